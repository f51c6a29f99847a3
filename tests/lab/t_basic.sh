# SPDX-License-Identifier: Apache-2.0
# Daily work of one client, with a second connection count and subdirectory mounts.
cluster_up
guest 1 basic.sh
check "create went to the MDS" test "$(metric mds weft_mds_op_total op=OPEN)" -gt 0
dev kill mds
dev start mds
guest 1 basic_again.sh
check "rm -rf leaves no object" no_objects 60
