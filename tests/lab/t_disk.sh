# SPDX-License-Identifier: Apache-2.0
# A data server whose disk is slow (dm-delay) or fails (dm-flakey, dm-error), or whose network is
# slow and loses packets (netem), in the middle of mirrored and striped writes: it and a client
# share a guest, which has all that. No call fails, nothing that was acknowledged is lost, and the
# copies are equal at the end. WEFT_SOAK=1: many rounds.
. "$LAB_HERE/faults.sh"
cluster_up --ds 2 --set mds.lease=10s --set mds.grace=5s --set mds.recall_deadline=3s \
	--set ds.lease=10s
rounds=1
[ -z "${WEFT_SOAK:-}" ] || rounds=${WEFT_ROUNDS:-20}
guest -m 1500M -t $((120 + rounds * 120)) 1 disk.sh "$WEFT_BUILD" "$CLUSTER/cluster.key" \
	"10.77.0.1:12049" &
# in_guest COMMAND...: its status; what it prints
in_guest() {
	local turn=1
	while [ -e "$SHARED/do.$turn" ]; do turn=$((turn + 1)); done
	echo "$*" >"$SHARED/do.$turn.new"
	mv "$SHARED/do.$turn.new" "$SHARED/do.$turn"
	wait_flag "done.$turn" "${GUEST_LIMIT:-60}" || return 1
	cat "$SHARED/did.$turn"
	return "$(cat "$SHARED/done.$turn")"
}
both="two three"
check "a data server in a guest joins" in_guest start_ds 12060
check "writers" in_guest writers two=stripes=2,unit=1M,mirrors=2 three=mirrors=3
for n in $both; do wait_flag "$n.log" 30 || { cat "$SHARED/writers"; exit 1; }; done
copies() { # WHAT: the same as whole(), where a guest has one of the stores
	local n
	for n in $both; do tell --json file show "/$n/f" >"$LAB_DIR/$n.layout"; done
	check "$1: copies are equal, and hold what was acknowledged" in_guest whole "$CLUSTER" \
		"$LAB_DIR" $both
}
# fault WHAT SECONDS BEGIN... -- END...
fault() {
	local what=$1 seconds=$2 begin=() at
	shift 2
	while [ "$1" != -- ]; do begin+=("$1"); shift; done
	shift
	at=$(now)
	check "$what" in_guest "${begin[@]}"
	sleep "$seconds"
	wrote "$at" 30 "$what" $both
	check "$what: it is over, and was felt" in_guest "$@"
}
settled() { # WHAT
	pause $both
	repaired 40 "$1"
	copies "$1"
	go_on $both
	sleep 0.3
}
for ((round = 1; round <= rounds; round++)); do
	fault "a slow network that loses packets" 2 slow_net delay 60ms 30ms loss 2% -- well_net
	fault "a slow disk" 2 slow_disk 150 -- well
	fault "a disk that fails now and then" 3 flaky_disk 1 1 -- well_again
	settled "a disk that fails now and then"
	[ -n "${WEFT_SOAK:-}" ] || continue
	fault "a disk that fails" $((RANDOM % 8)) failing_disk -- well_again
	settled "a disk that fails"
done
stop_writers $both
flag end
wait
told $both
for n in $both; do same "$n: no call failed" "$(grep -c '^e ' "$SHARED/$n.log")" 0; done
check "copies became stale, and were repaired" test "$(metric mds weft_mds_repaired_total)" -gt 0
