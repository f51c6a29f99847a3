# SPDX-License-Identifier: Apache-2.0
# Every way to read and write, on each kind of layout; the expected bytes come from a plain file
# that gets the same I/O.
cluster_up
guest -t 400 1 io.py
same "the MDS saw no WRITE" "$(metric mds weft_mds_op_total op=WRITE)" 0
check "rm -rf leaves no object" no_objects 60
