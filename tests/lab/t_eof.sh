# SPDX-License-Identifier: Apache-2.0
# Only the metadata server knows where a striped file ends. It stands still while stock clients read
# the tails of files: no read fails, and none ends early. Then a data server stands still beside a
# writer: first one copy of two, for which no client waits, then the only one, for which it waits.
# WEFT_SOAK=1: 420 reads, over pauses of 5, 10 and 30 seconds, LAB_ROUNDS (7) times, on a machine of
# its own: all are there 6 s after the pause, and 3 s after a data server of two stands still.
pauses='5 10' after=30 limit=60 dead=
if [ -n "${WEFT_SOAK:-}" ]; then
	pauses= after=6 limit=3 dead='--set mds.ds_suspect=500ms --set mds.ds_dead=1500ms'
	for ((i = 1; i <= ${LAB_ROUNDS:-7}; i++)); do pauses="$pauses 5-$i 10-$i 30-$i"; done
fi
cluster_up --set mds.lease=30s --set mds.recall_deadline=3s $dead
guest -t $((300 + 60 * $(wc -w <<<"$pauses"))) 1 eof.sh $after $limit $pauses &
parked() { metric ds1,ds2,ds3,ds4 weft_ds_eof_parked; }
for tag in $pauses; do
	pause=${tag%-*}
	wait_flag "open.$tag" 120 || break
	stand_still "$(daemon mds pid)"
	flag "read.$tag"
	most=0 end=$((SECONDS + pause))
	while [ $SECONDS -lt $end ] || { [ $most = 0 ] && [ $SECONDS -lt $((end + 60)) ]; }; do
		now=$(parked)
		[ "$now" -le $most ] || most=$now
		sleep 0.1
	done
	kill -CONT "$(daemon mds pid)"
	date +%s.%N >"$SHARED/back.$tag.new"
	mv "$SHARED/back.$tag.new" "$SHARED/back.$tag"
	check "questions were open in $pause s: $most" test $most -ge 1
	wait_flag "done.$tag" 120 || break
done
# One copy of each stripe is enough to tell.
if wait_flag open.ds 120; then
	stand_still "$(daemon "$(cat "$SHARED/server.ds")" pid)"
	flag read.ds
	wait_flag done.ds 120
	kill -CONT "$(daemon "$(cat "$SHARED/server.ds")" pid)"
fi
# The client waits for the only one.
if wait_flag open.only 120; then
	stand_still "$(daemon "$(cat "$SHARED/server.only")" pid)"
	flag read.only
	sleep 4
	check "no tail is read without the only copy" test ! -e "$SHARED/done.only"
	kill -CONT "$(daemon "$(cat "$SHARED/server.only")" pid)"
	date +%s.%N >"$SHARED/back.only.new"
	mv "$SHARED/back.only.new" "$SHARED/back.only"
	wait_flag done.only 120
fi
wait
