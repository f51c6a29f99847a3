# SPDX-License-Identifier: Apache-2.0
# Two stock clients write one file. In every round the first is cut off from the metadata server
# only, or its machine stands still, in the middle of its writes; the second one cuts the file and
# writes all of it. Then the first, which still reaches the data servers, must have written nothing
# more: no byte of it is in any copy. WEFT_SOAK=1: 200 rounds. WEFT_KIND: on which kind of data
# servers (foreign.sh); only ours count what they refuse.
. "$LAB_HERE/faults.sh"
. "$LAB_HERE/foreign.sh"
command -v nft >/dev/null || { skip "needs nftables"; exit 0; }
cluster_up --set mds.lease=20s --set mds.grace=5s --set mds.recall_deadline=700ms \
	--set mds.courtesy=60s --set ds.lease=5s --set mds.generic_pool=24
foreign_up 4
rounds=3
[ -z "${WEFT_SOAK:-}" ] || rounds=${WEFT_ROUNDS:-200}
guest -t $((100 + rounds * 15)) 1 fenced.sh first $rounds "stripes=2,unit=1M,mirrors=2$where" &
guest -t $((100 + rounds * 15)) 2 fenced.sh second $rounds &
# Packets of guest 1 and the metadata server
nft -f - <<-NFT
	table inet weft {
		chain in { type filter hook input priority 0; }
		chain out { type filter hook output priority 0; }
	}
NFT
cut_mds() {
	nft add rule inet weft in ip saddr 10.77.1.2 tcp dport 12049 drop
	nft add rule inet weft out ip daddr 10.77.1.2 tcp sport 12049 drop
}
first_pid=
freeze_first() {
	: "${first_pid:=$(pgrep -o -f 'umid=lab1\.')}"
	kill -STOP "$first_pid"
}
fenced() {
	if [ "$kind" = weft ]; then
		metric ds1,ds2,ds3,ds4 weft_ds_fenced_total
	else
		echo 0
	fi
}
acked() { stat -c %s "$SHARED/$1" 2>/dev/null || echo 0; }
# What an object of each stripe holds: the units of 1 MiB that the file has there.
head -c 1M /dev/zero | tr '\0' B >"$LAB_DIR/unit"
for stripe in 0 1; do
	for unit in 0 1; do
		dd if="$LAB_DIR/unit" of="$LAB_DIR/stripe$stripe" bs=1M \
			seek=$((2 * unit + stripe)) conv=notrunc status=none
	done
done
pure() { # FILE: each copy
	local k=0 ds object
	tell --json file show "$1" >"$LAB_DIR/layout" || return 1
	# 2 mirrors, and their objects
	[ "$(grep -c '"in-sync"' "$LAB_DIR/layout")" = 6 ] || { cat "$LAB_DIR/layout"; return 1; }
	objects_of "$LAB_DIR/layout" >"$LAB_DIR/objects"
	while read -r ds object; do
		cmp -n $((3 + k % 2 << 20)) "$LAB_DIR/stripe$((k % 2))" "$CLUSTER/$ds/$object" ||
			return 1
		k=$((k + 1))
	done <"$LAB_DIR/objects"
	[ $k = 4 ]
}
both=0 late=0 mixed=0 was=$(fenced)
# Every other round the machine of the first stands still, and its writes under way come late.
one_round() {
	local n=$1 before now
	wait_flag "acked.$n" 60 || return 1
	wait_flag "second-acked.$n" 60 || return 1
	flag "first.$n"
	for ((i = 0; i < 400; i++)); do [ "$(acked "acked.$n")" -lt 6 ] || break; sleep 0.02; done
	[ $((n % 2)) = 1 ] || freeze_first
	cut_mds
	before=$(acked "acked.$n")
	flag "second.$n"
	wait_flag "wrote.$n" 60 || return 1
	[ $((n % 2)) = 1 ] || kill -CONT "$first_pid"
	until_repaired 30 || return 1
	sleep 0.3
	pure "/d/f$n" >"$LAB_DIR/mixed" 2>&1 || {
		mixed=$((mixed + 1))
		sed "s/^/# round $n: /" "$LAB_DIR/mixed"
	}
	[ "$before" -lt 1 ] || [ "$(acked "second-acked.$n")" -lt 16 ] || both=$((both + 1))
	now=$(fenced)
	[ "$now" -le "$was" ] || late=$((late + 1))
	was=$now
	nft flush chain inet weft in
	nft flush chain inet weft out
	flag "stop.$n"
	wait_flag "over.$n" 60
}
for ((round = 1; round <= rounds; round++)); do
	one_round $round || { not_ok "round $round comes to its end"; break; }
done
same "rounds in which both wrote" $both $rounds
same "rounds with data of both, after the first was fenced" $mixed 0
[ "$kind" != weft ] ||
	same "rounds in which writes of the first came after the fence, and were refused" $late \
	$rounds
wait
repaired 30 "at the end"
foreign_down
