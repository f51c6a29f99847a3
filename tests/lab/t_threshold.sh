# SPDX-License-Identifier: Apache-2.0
# A directory's threshold (mdsthreshold): a stock client reads and writes its small files through
# the MDS, and all others straight.
cluster_up --ds 2
counts() {
	echo "$(metric mds weft_mds_op_total \
		op=WRITE) $(($(metric mds weft_mds_op_total op=READ) +
		$(metric mds weft_mds_op_total op=READ_PLUS)))"
}
guest 1 threshold.sh write plain 4096
guest 1 threshold.sh read plain 4096
same "without a threshold the MDS sees no WRITE and no READ" "$(counts)" "0 0"
guest 1 threshold.sh write steered 4096
guest 1 threshold.sh read steered 4096
same "below the directory's it sees both" "$(counts)" "1 1"
guest 1 threshold.sh read steered/below 4096
same "and in a directory below" "$(counts)" "1 2"
weft policy set /plain threshold=64K >/dev/null
guest 1 threshold.sh read plain 4096
same "and of a file that was there before" "$(counts)" "1 3"
weft policy set /steered threshold=1K >/dev/null
guest 1 threshold.sh read steered 4096
same "but not of one that is larger" "$(counts)" "1 3"
