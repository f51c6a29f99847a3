# SPDX-License-Identifier: Apache-2.0
# Many files in one directory (LAB_MANY, 2,000 by default), listed with attributes. rm -rf leaves no
# object anywhere.
: "${LAB_MANY:=2000}"
export LAB_MANY
cluster_up
guest -t $((200 + LAB_MANY / 50)) 1 many.sh
check "rm -rf leaves no object on any data server" no_objects $((60 + LAB_MANY / 500))
