# SPDX-License-Identifier: Apache-2.0
# Two stock clients write the same blocks of one mirrored file, without a cache, while a data server
# stands still or is killed. When both have closed it, its copies are compared and made the same: no
# file stays that differs. WEFT_SOAK=1: WEFT_ROUNDS rounds, or 200.
. "$LAB_HERE/faults.sh"
rounds=4
[ -z "${WEFT_SOAK:-}" ] || rounds=${WEFT_ROUNDS:-200}
cluster_up --set mds.lease=30s --set mds.repair_files=4 --set mds.repair_wait=20s
guest -t $((120 + rounds * 60)) 1 contend.sh a $rounds &
guest -t $((120 + rounds * 60)) 2 contend.sh b $rounds &
differ=0 contended=0 held=0 compared=0
# The servers of a file, first copy first
servers_of() { tell --json file show "$1" | sed -n 's/.*"ds": "\([^"]*\)".*/\1/p'; }
contended_files() { metric mds weft_mds_contended_files; }
# Nothing is left to compare or to repair.
settled() {
	local end=$((SECONDS + 120))
	until [ "$(contended_files)" = 0 ] && [ "$(unrepaired)" = 0 ]; do
		[ $SECONDS -lt $end ] || { tell mirror status | sed 's/^/# /'; return 1; }
		sleep 0.1
	done
}
# Both write: it is marked.
marked() {
	local end=$((SECONDS + 60))
	while [ "$(contended_files)" = 0 ]; do
		[ $SECONDS -lt $end ] || return 1
		sleep 0.1
	done
}
alike() {
	local first='' ds object
	tell --json file show "$1" >"$LAB_DIR/layout" || return 1
	objects_of "$LAB_DIR/layout" >"$LAB_DIR/objects"
	while read -r ds object; do
		first=${first:-$CLUSTER/$ds/$object}
		cmp "$first" "$CLUSTER/$ds/$object" || return 1
	done <"$LAB_DIR/objects"
	[ -n "$first" ]
}
hurt() { # ROUND FILE
	local server
	server=$(servers_of "$2" | sed -n "$((1 + $1 % 2))p")
	if [ $(($1 % 4)) -lt 3 ]; then
		stand_still "$(daemon "$server" pid)"
		sleep 1
		kill -CONT "$(daemon "$server" pid)"
	else
		dev kill "$server" -9 >/dev/null
		dev start "$server" >/dev/null
	fi
}
one_round() {
	local n=$1
	wait_flag "made.$n" || return 1
	flag "go.$n"
	wait_flag "a.busy.$n" && wait_flag "b.busy.$n" || return 1
	marked && contended=$((contended + 1))
	hurt "$n" "/d/f$n"
	flag "stop.$n"
	wait_flag "a.closed.$n" 180 && wait_flag "b.closed.$n" 180 || return 1
	settled || { held=$((held + 1)); return 0; }
	compared=$((compared + 1))
	alike "/d/f$n" >"$LAB_DIR/differ" 2>&1 || {
		differ=$((differ + 1))
		sed "s/^/# round $n: /" "$LAB_DIR/differ"
	}
}
for ((round = 1; round <= rounds; round++)); do
	one_round $round || { not_ok "round $round comes to its end"; break; }
done
wait
same "rounds in which two clients wrote a marked file" $contended $rounds
same "files that stayed marked" $held 0
same "files whose copies differ" $differ 0
same "files that were compared" $compared $rounds
