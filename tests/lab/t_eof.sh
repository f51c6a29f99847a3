# Where a striped file ends only the metadata server knows. It stands still while stock clients read the
# tails of files: no read fails, and none ends early. Then a data server stands still beside a writer.
# WEFT_SOAK=1: it stands still for 10 and 30 seconds as well.
pauses=5
[ -z "${WEFT_SOAK:-}" ] || pauses='5 10 30'
cluster_up --set mds.lease=30s --set mds.recall_deadline=3s
guest -t 400 1 eof.sh $pauses &
parked() { metric ds1,ds2,ds3,ds4 weft_ds_eof_parked; }
for pause in $pauses; do
	wait_flag "open.$pause" 120 || break
	stand_still "$(daemon mds pid)"
	flag "read.$pause"
	most=0 end=$((SECONDS + pause))
	while [ $SECONDS -lt $end ] || { [ $most = 0 ] && [ $SECONDS -lt $((end + 60)) ]; }; do
		now=$(parked)
		[ "$now" -le $most ] || most=$now
		sleep 0.1
	done
	kill -CONT "$(daemon mds pid)"
	date +%s.%N >"$SHARED/back.$pause.new"
	mv "$SHARED/back.$pause.new" "$SHARED/back.$pause"
	check "questions were open in $pause s: $most" test $most -ge 1
	wait_flag "done.$pause" 120 || break
done
# One copy of each stripe is enough to tell.
if wait_flag open.ds 120; then
	stand_still "$(daemon "$(cat "$SHARED/server")" pid)"
	flag read.ds
	wait_flag done.ds 120
	kill -CONT "$(daemon "$(cat "$SHARED/server")" pid)"
fi
wait
