# SPDX-License-Identifier: Apache-2.0
# Not a test, a measurement (tests/lab/run b_deleg): the requests that delegations save and cost the
# stock client, how many are wasted, and how many files a second client finds changed.
files=500
ops="OPEN CLOSE ACCESS GETATTR LAYOUTGET DELEGRETURN"
counts() {
	local op
	for op in $ops; do metric mds weft_mds_op_total op=$op; done
	metric mds weft_mds_delegations_given_total
	metric mds weft_mds_delegation_recalls_total
	metric mds weft_mds_delegations_wasted_total
	metric mds weft_mds_delegation_getattrs_total
}
measure() { # OPTION...
	local phase before after i line
	cluster_up "$@"
	rm -f "$SHARED"/*
	guest -t 200 1 deleg_costs.sh a $files &
	guest -t 200 2 deleg_costs.sh b $files &
	for phase in epoch1 epoch2 epoch3 create append handoff again; do
		wait_flag $phase.begin
		mapfile -t before < <(counts)
		flag $phase.go
		wait_flag $phase.end
		mapfile -t after < <(counts)
		line=
		for i in "${!after[@]}"; do
			line="$line $(printf '%7d' $((${after[i]%.*} - ${before[i]%.*})))"
		done
		printf '# %-10s%s  %s s\n' $phase "$line" "$(cat "$SHARED/$phase.end")"
		flag $phase.seen
	done
	wait
	cluster_down
	rm -rf "$CLUSTER"
}
for mode in ${DELEG_MODES:-none read write}; do
	echo "# delegations=$mode: $ops given recalls wasted cb_getattr seconds"
	measure --set mds.delegations=$mode ${DELEG_OPTIONS:-}
done
