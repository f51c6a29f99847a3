# SPDX-License-Identifier: Apache-2.0
# Byte-range locks between two clients, through a restart of the MDS.
cluster_up --set mds.lease=5s --set mds.grace=5s
guest 1 locks.sh a &
guest 2 locks.sh b &
wait_flag held 120
dev kill mds -9
check "the MDS starts again" dev start mds
flag restarted
wait
