# SPDX-License-Identifier: Apache-2.0
# A data server is drained while a stock client writes, reads back and compares, by layouts: no
# error, and nothing is left on it. Then the same client's file gets a mirror, moves and loses the
# mirror again under it. WEFT_KIND: on which kind of data servers (foreign.sh).
. "$LAB_HERE/foreign.sh"
for program in fio; do
	command -v $program >/dev/null || { skip "$program is not there"; exit 0; }
done
cluster_up --set mds.repair_files=8 --set mds.generic_pool=64
foreign_up 4
guest -t 150 1 drain.sh "${where#,}" &
wait_flag writing
weft ds list --json >"$LAB_DIR/before"
objects() {
	if [ "$kind" = weft ]; then
		find "$CLUSTER/$1" -path '*/objects/*' -type f | wc -l
	else
		find "$LAB_DIR/$1" -type f -size +0 | wc -l
	fi
}
victim=${ds}2
before=$(objects $victim)
check "something is on the server" test "$before" -gt 10
began=$SECONDS
check "it is drained" timeout 40 "$WEFT_BUILD/weft" --admin "$(daemon mds admin)" ds drain $victim \
	--wait
echo "# $before objects, $((SECONDS - began)) s"
same "nothing is left on it" "$(objects $victim)" 0
flag drained
wait_flag settled
check "one mirror more" timeout 20 "$WEFT_BUILD/weft" --admin "$(daemon mds admin)" mirror add \
	/d/one/plain.0.0 --wait
check "it moves" timeout 20 "$WEFT_BUILD/weft" --admin "$(daemon mds admin)" move /d/one/plain.0.0 \
	--from "$(weft file show /d/one/plain.0.0 --json | python3 -c '
import json, sys
print(json.load(sys.stdin)["mirrors"][0]["objects"][0]["ds"])')" --wait
check "one mirror less" timeout 20 "$WEFT_BUILD/weft" --admin "$(daemon mds admin)" mirror remove \
	/d/one/plain.0.0 0 --wait
flag moved
wait
check "nothing was placed on it meanwhile" test "$(objects $victim)" = 0
weft ds undrain $victim >/dev/null
foreign_down
