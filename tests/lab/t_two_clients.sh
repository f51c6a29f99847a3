# SPDX-License-Identifier: Apache-2.0
# Two clients: close-to-open, changes of the name space, one mirrored file written by both.
cluster_up
guest 1 two_clients.sh a &
guest 2 two_clients.sh b &
wait
