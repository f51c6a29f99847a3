# SPDX-License-Identifier: Apache-2.0
# Every kind of fault in the middle of mirrored and striped writes: daemons killed, frozen and slow,
# cut off from clients or from each other (one way or both), and full. Nothing that was acknowledged
# is lost, no client hangs, and the copies are equal at the end. WEFT_SOAK=1: many rounds;
# WEFT_FAULTS: patterns with | between them, for those faults alone; WEFT_KIND: on which kind of
# data servers (foreign.sh).
. "$LAB_HERE/faults.sh"
. "$LAB_HERE/foreign.sh"
cluster_up --set mds.lease=5s --set mds.grace=5s --set mds.recall_deadline=2s --set ds.lease=3s \
	--set mds.repair_wait=60s --set mds.courtesy=0s --set mds.ds_suspect=1s \
	--set mds.ds_dead=2s --set mds.generic_pool=24
both="two three" names=$both
# A small disk for the fourth.
small=$CLUSTER/ds4
[ "$kind" = weft ] || small=$LAB_DIR/g4
[ "$kind" != weft ] || dev kill ds4
truncate -s 200M "$LAB_DIR/disk"
mkdir -p "$LAB_DIR/new" "$small"
if mkfs.ext4 -q -O ^has_journal -m 0 "$LAB_DIR/disk" &&
	mount -o loop "$LAB_DIR/disk" "$LAB_DIR/new"; then
	rmdir "$LAB_DIR/new/lost+found"
	cp -a "$small/." "$LAB_DIR/new/"
	mount --move "$LAB_DIR/new" "$small"
else
	skip "needs loop devices"
	small=
fi
[ "$kind" != weft ] || dev start ds4
foreign_up 4
victim=${ds}3 victim_port=12052
[ "$kind" = weft ] || victim_port=$((FOREIGN_PORT + 3))
# Groups of their own, so that packets show whose they are.
[ "$kind" != weft ] || dev kill $victim
dev kill mds
cuts=
if ! command -v nft >/dev/null || ! cuts_up $victim_port; then
	skip "needs nftables"
else
	cuts=1
fi
start_mds() { setpriv --regid $MDS_GID --clear-groups "$weft_dev" start "$CLUSTER" mds; }
start_mds
[ "$kind" != weft ] || setpriv --regid $DS_GID --clear-groups "$weft_dev" start "$CLUSTER" $victim

# full: the fourth has no room left, and each file of four objects has one there
# How many of its copies have become stale since that event, by the journal.
missed() {
	tell --json events --kind copy-stale --last 1000 | python3 -c '
import json, sys
print(sum(e["seq"] > int(sys.argv[1]) and sys.argv[2] in (e["subject"] or "").split(",")
    for e in map(json.loads, sys.stdin)))' "$full_since" "${ds}4"
}
fill() {
	local end=$((SECONDS + 30))
	full_since=$(tell --json events --last 1 | sed -n 's/.*"seq": *\([0-9]*\).*/\1/p') \
		full_repaired=$(metric mds weft_mds_repaired_total)
	# What moves away from it leaves room, which the test fills as well. Another file's copy may
	# be quicker, and stay.
	flag filling
	dd if=/dev/zero bs=1M status=none >>"$small/ballast" 2>"$LAB_DIR/dd"
	while [ -e "$SHARED/filling" ]; do
		dd if=/dev/zero bs=1M status=none >>"$small/ballast" 2>"$LAB_DIR/dd"
		sleep 0.1
	done &
	filler=$!
	go_on full
	# Only then do the writers wait for anything, and repair has something to make good.
	until [ "$(missed)" -gt 0 ] || [ $SECONDS -ge $end ]; do sleep 0.3; done
}
is_full() {
	check "${ds}4 is full: copies missed writes" test "$(missed)" -gt 0
	check "${ds}4 is full: what they missed was made good" \
		test "$(metric mds weft_mds_repaired_total)" -gt "$full_repaired"
	rm "$SHARED/filling"
	wait $filler
	rm "$small/ballast"
}
# The test kills a client of its own in the middle of its writes.
client_dies() {
	local lab before
	before=$(metric mds weft_mds_repaired_total)
	"$LAB_HERE/lab" -t 120 -n 2 /usr/bin/env "WEFT_MOUNT=$WEFT_MOUNT" "WEFT_SHARED=$SHARED" \
		"$LAB_HERE/guest/acked.sh" 60 600 "$1=stripes=2,unit=1M,mirrors=2$where" \
		2>/dev/null &
	lab=$!
	wait_flag "$1.log" 60 && sleep "1.$((RANDOM % 9))"
	kill -TERM $lab
	wait $lab
	# Its lease runs out, and the server judges its files: copies become stale, and repair
	# makes them equal.
	for ((i = 0; i < 150; i++)); do
		[ "$(metric mds weft_mds_repaired_total)" = "$before" ] || break
		sleep 0.1
	done
	check "a client is killed: its copies are not trusted" \
		test "$(metric mds weft_mds_repaired_total)" -gt "$before"
	repaired 30 "a client is killed"
	whole "a client is killed" "$1"
	told "$1"
}
rounds=1 client_ways="to from" mds_ways="both from"
[ -z "${WEFT_SOAK:-}" ] ||
	rounds=${WEFT_ROUNDS:-10} client_ways="both to from" mds_ways="both to from"
flag full.pause
guest -t $((120 + rounds * 240)) 1 acked.sh 60 "${WEFT_TIMEO:-30}" \
	"two=stripes=2,unit=1M,mirrors=2$where" "three=mirrors=3$mixed" \
	"full=stripes=2,unit=1M,mirrors=2$where" &
for n in $both; do wait_flag "$n.log" 60; done
sleep 1

chosen() { # WHAT
	local pattern patterns
	IFS='|' read -ra patterns <<<"${WEFT_FAULTS:-*}"
	# shellcheck disable=SC2053
	for pattern in "${patterns[@]}"; do [[ $1 != $pattern ]] || return 0; done
	return 1
}
# fault WHAT SECONDS BEGIN... -- END...: the fault lasts until the writers write again, and SECONDS
# at least. In passing: it lasts SECONDS, and they write again when it is over, if not before. Only
# its own long timers help a client that is cut off, or that waits for a frozen server.
passing() {
	fault_ends=first fault "$@"
}
fault() {
	local what=$1 least=$2 at='' begin=() began=$SECONDS
	shift 2
	chosen "$what" || return 1
	while [ "$1" != -- ]; do begin+=("$1"); shift; done
	shift
	"${begin[@]}"
	[ -n "$at" ] || at=$(now)
	sleep "$least"
	[ -z "${fault_ends:-}" ] || { at=$(now); "$@"; }
	wrote "$at" 40 "$what" $names
	[ -n "${fault_ends:-}" ] || "$@"
	repaired 30 "$what"
	# The log has by now what went wrong late.
	pause $names && until_repaired 30 && whole "$what" $names
	go_on $names
	sleep 0.2
	echo "# $what: $((SECONDS - began)) s"
}
mds_again() {
	slay mds
	at=$(now)
	sleep 0.5
	start_mds
}
for ((round = 1; round <= rounds; round++)); do
	fault "${ds}1 is killed" 1 slay ${ds}1 -- start_ds ${ds}1
	passing "$victim is frozen" 3 freeze $victim -- unfreeze $victim
	passing "the MDS is frozen" 2 freeze mds -- unfreeze mds
	fault "${ds}2 is slow" 0 slow ${ds}2 3 -- true
	if [ -n "$cuts" ]; then
		for way in $client_ways; do
			fault "$victim and the client are cut ($way)" 1 cut client $way -- join
		done
		for way in $mds_ways; do
			fault "$victim and the MDS are cut ($way)" 1 cut mds $way -- join
		done
	fi
	fault "the MDS is killed" 0 mds_again -- true
	! chosen "a client is killed" || client_dies dies$round
done
if [ -n "$small" ]; then
	names="$both full"
	fault "${ds}4 is full" 1 fill -- true && is_full
fi
stop_writers $both full
wait
repaired 30 "at the end"
whole "at the end" $both
told $both
check "objects were repaired since the MDS was killed" \
	test "$(metric mds weft_mds_repaired_total)" -gt 0
cluster_down
foreign_down
[ -z "$small" ] || umount -l "$small"
rm "$CLUSTER/cluster.json"
