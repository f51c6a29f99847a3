# SPDX-License-Identifier: Apache-2.0
# Delegations between two stock clients: read and write, recalls, sizes and times that a holder
# keeps, a restart of the MDS. Twice: with times kept by the server, and by holders (RFC 9754).
for times in false true; do
	cluster_up --set mds.lease=5s --set mds.grace=5s --set mds.delegated_times=$times
	rm -f "$SHARED"/*
	guest 1 deleg.sh a $times &
	guest 2 deleg.sh b $times &
	wait_flag made 120
	# A client sends CLOSE after the file's last user has gone on. A file that is still open for
	# writing gives no delegation for reading.
	end=$((SECONDS + 60))
	until [ "$(metric mds weft_mds_op_total op=CLOSE)" = \
		"$(metric mds weft_mds_op_total op=OPEN)" ] || [ $SECONDS -ge $end ]; do
		sleep 0.1
	done
	flag closed
	end=$((SECONDS + 60))
	until [ "$(metric mds weft_mds_delegations)" = 5 ] || [ $SECONDS -ge $end ]; do
		sleep 0.1
	done
	same "each file has a delegation" "$(metric mds weft_mds_delegations)" 5
	flag given
	wait_flag held 120
	opens=$(metric mds weft_mds_op_total op=OPEN)
	flag reopen
	wait_flag reopened
	same "files with a delegation are opened without the server" \
		"$(metric mds weft_mds_op_total op=OPEN)" "$opens"
	flag counted
	wait_flag asked
	same "the holder was asked for the size" \
		"$(python3 -c 'import sys; print(float(sys.argv[1]) > 0)' \
		"$(metric mds weft_mds_delegation_getattrs_total)")" True
	wait_flag restart
	dev kill mds -9
	check "the MDS starts again" dev start mds
	flag restarted
	wait
	same "no delegation was revoked" "$(metric mds weft_mds_delegations_revoked_total)" 0
	cluster_down
	rm -rf "$CLUSTER"
done
