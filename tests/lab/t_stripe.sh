# SPDX-License-Identifier: Apache-2.0
# 256 MiB on stripes=4,mirrors=2: the data goes straight to and comes straight from all four data
# servers, and the pieces lie where the layout says.
cluster_up
sum() { # DAEMON...: NAME and labels follow --
	local total=0 d names=()
	while [ "$1" != -- ]; do names+=("$1"); shift; done
	shift
	for d in "${names[@]}"; do total=$((total + $(metric "$d" "$@"))); done
	echo $total
}
same "no data has gone anywhere" "$(sum ds1 ds2 ds3 ds4 -- weft_ds_op_total proc=WRITE)" 0
guest 1 stripe_write.sh
for d in ds1 ds2 ds3 ds4; do
	check "$d took its share of the WRITEs" test "$(metric $d weft_ds_bytes_total dir=write)" \
		-ge $((100 << 20))
	check "$d counts them" test "$(metric $d weft_ds_op_total proc=WRITE)" -ge 100
done
same "no byte was written twice" "$(sum ds1 ds2 ds3 ds4 -- weft_ds_bytes_total dir=write)" \
	$((512 << 20))
same "the MDS saw no WRITE" "$(metric mds weft_mds_op_total op=WRITE)" 0
for d in ds1 ds2 ds3 ds4; do
	same "$d saw no READ yet" "$(metric $d weft_ds_op_total proc=READ)" 0
done
python3 "$LAB_HERE/rebuild.py" "$CLUSTER" "$SHARED/layout.json" "$SHARED/rebuilt" &&
	for m in 0 1; do
	check "mirror $m, put together from the stores, is the file" cmp "$SHARED/big" \
		"$SHARED/rebuilt.$m"
done
guest 1 stripe_read.sh
# Which copy of a stripe a client reads is drawn for each stripe (docs/mirrors.md): one server may
# come first for none, but never all but one.
served=0
for d in ds1 ds2 ds3 ds4; do
	[ "$(metric $d weft_ds_op_total proc=READ)" -lt 10 ] || served=$((served + 1))
done
check "several data servers served the READs: $served" test $served -ge 2
same "the data servers served each byte once" "$(sum ds1 ds2 ds3 ds4 -- weft_ds_bytes_total \
	dir=read)" $((256 << 20))
same "the MDS saw no READ" "$(metric mds weft_mds_op_total op=READ)" 0
same "the MDS still saw no WRITE" "$(metric mds weft_mds_op_total op=WRITE)" 0
check "weft file show tells the same placement" bash -c '
	"$1/weft" --admin "$2" file show /s/big --json | python3 -c "
import json, sys
a, b = json.load(sys.stdin), json.load(open(sys.argv[1]))
assert a[\"inode\"] == b[\"inode\"] and a[\"size\"] == b[\"size\"] == 256 << 20, (a, b)
assert [[o[\"object\"] for o in m[\"objects\"]] for m in a[\"mirrors\"]] == [
    [o[\"object\"] for o in m[\"objects\"]] for m in b[\"mirrors\"]]
" "$3"' - "$WEFT_BUILD" "$(daemon mds admin)" "$SHARED/layout.json"
