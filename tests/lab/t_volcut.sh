# SPDX-License-Identifier: Apache-2.0
# A machine with a data server of two volumes loses power, again and again. It loses what either
# file system had not synced, and everything acknowledged is there.
guest -t 200 1 volcut.sh "$WEFT_BUILD"
