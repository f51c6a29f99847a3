# SPDX-License-Identifier: Apache-2.0
# Mirrored and striped files are written while data servers are killed (-9): one that comes back is
# repaired in place, one that stays away is replaced. The copies are equal at the end, and hold
# everything that was acknowledged. WEFT_SOAK=1: many rounds. WEFT_KIND: on which kind of data
# servers (foreign.sh).
. "$LAB_HERE/faults.sh"
. "$LAB_HERE/foreign.sh"
cluster_up --set mds.lease=5s --set mds.grace=5s --set mds.recall_deadline=5s \
	--set mds.repair_wait=6s --set ds.lease=5s --set mds.generic_pool=24
foreign_up 4
rounds=1
[ -z "${WEFT_SOAK:-}" ] || rounds=${WEFT_ROUNDS:-20}
guest -t $((100 + rounds * 60)) 1 acked.sh 60 600 "two=stripes=2,unit=1M,mirrors=2$where" \
	"three=mirrors=3$mixed" &
both="two three"
for n in $both; do wait_flag "$n.log" 60; done
sleep 1

# back DS SECONDS: killed, and back before repair_wait
back() {
	local at what="$1 is killed, and back after $2 s"
	slay "$1"
	at=$(now)
	sleep "$2"
	wrote "$at" 30 "$what" $both
	check "$what: it starts" start_ds "$1"
	repaired 30 "$what"
	pause $both && until_repaired 30 && whole "$what" $both
	go_on $both
	sleep 0.5
}
# away DS: killed, replaced, and started when no copy waits for it any more
away() {
	local at what="$1 stays away"
	slay "$1"
	at=$(now)
	wrote "$at" 30 "$what" $both
	repaired 40 "$what"
	same "$what: no file is on it" "$(for n in $both; do tell --json file show /"$n"/f; done |
		grep -c "\"$1\"")" 0
	check "$what: it starts" start_ds "$1"
	pause $both && until_repaired 30 && whole "$what" $both
	go_on $both
	sleep 0.5
}
for ((round = 1; round <= rounds; round++)); do
	victim=$ds$((RANDOM % 4 + 1))
	back $victim 1
	back $ds$((RANDOM % 4 + 1)) 0.3
	away $ds$((RANDOM % 4 + 1))
done
stop_writers $both
wait
repaired 30 "at the end"
whole "at the end" $both
told $both
check "objects were repaired" test "$(metric mds weft_mds_repaired_total)" -gt 0
there() { if [ "$kind" = weft ]; then objects; else echo $(($(foreign_objects) + $(objects))); fi; }
objects_are() { [ "$(there)" = 7 ] || { echo "$(there) objects"; return 1; }; }
for ((i = 0; i < 100; i++)); do objects_are >/dev/null && break; sleep 0.1; done
check "what was replaced is deleted" objects_are
foreign_down
