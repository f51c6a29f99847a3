# A data server is drained while a stock client writes, reads back and compares, by layouts: no error, and nothing is left on it. Then the same client's file gets a mirror, moves and loses
# the mirror again under it.
for program in fio; do
	command -v $program >/dev/null || { skip "$program is not there"; exit 0; }
done
cluster_up --set mds.repair_files=8
guest -t 150 1 drain.sh &
wait_flag writing
weft ds list --json >"$LAB_DIR/before"
objects() { find "$CLUSTER/$1" -path '*/objects/*' -type f | wc -l; }
before=$(objects ds2)
check "something is on the server" test "$before" -gt 10
began=$SECONDS
check "it is drained" timeout 40 "$WEFT_BUILD/weft" --admin "$(daemon mds admin)" ds drain ds2 --wait
echo "# $before objects, $((SECONDS - began)) s"
same "nothing is left on it" "$(objects ds2)" 0
flag drained
wait_flag settled
check "one mirror more" timeout 20 "$WEFT_BUILD/weft" --admin "$(daemon mds admin)" mirror add /d/one/plain.0.0 --wait
check "it moves" timeout 20 "$WEFT_BUILD/weft" --admin "$(daemon mds admin)" move /d/one/plain.0.0 --from "$(weft file show /d/one/plain.0.0 --json | python3 -c '
import json, sys
print(json.load(sys.stdin)["mirrors"][0]["objects"][0]["ds"])')" --wait
check "one mirror less" timeout 20 "$WEFT_BUILD/weft" --admin "$(daemon mds admin)" mirror remove /d/one/plain.0.0 0 --wait
flag moved
wait
check "nothing was placed on it meanwhile" test "$(objects ds2)" = 0
weft ds undrain ds2 >/dev/null
