# SPDX-License-Identifier: Apache-2.0
# Several exports with rules of their own, seen by a stock client; a reload while the
# client has mounts.
exports() { # NAME=TEXT...: what clients of the lab may do under each
	local one
	{
		for one; do
			printf 'export "/%s" {\n\tcreate = yes\n\tclient "10.77.1.2" { %s }\n}\n' \
				"${one%%:*}" "${one#*:}"
		done
		printf 'export "/deep/secret" { create = yes client "192.0.2.1" { } }\n'
	} >"$CLUSTER/exports.new"
	mv "$CLUSTER/exports.new" "$CLUSTER/exports"
	check "the exports are read" weft exports reload
}
HOME_RW='home:access = rw squash = none' \
	SQUASHED='squashed:access = rw squash = all anon_uid = 1234 anon_gid = 4321' \
	PUB='deep/pub:squash = none'
cluster_up
# While every client may do everything: something to read, and something that none is to see.
exports "$HOME_RW" 'squashed:access = rw squash = none' 'deep/pub:access = rw squash = none'
guest 1 exports.sh &
wait_flag filled 120
exports "$HOME_RW" "$SQUASHED" "$PUB"
flag two
wait_flag want-ro 120
exports 'home:squash = none' "$SQUASHED" 'deep/pub:access = rw squash = none'
flag ro
wait_flag want-rw 120
exports "$HOME_RW" "$SQUASHED" "$PUB"
flag rw
wait_flag want-gone 120
opens() {
	weft --json status |
		python3 -c 'import json, sys; print(json.load(sys.stdin)["clients"]["opens"])'
}
before=$(opens)
exports "$SQUASHED" "$PUB"
flag gone
wait_flag closed 120
for _ in {1..60}; do
	[ "$(opens)" -le $((before - 2)) ] && break
	sleep 0.5
done
check "what the client closed there is closed ($before opens, now $(opens))" test "$(opens)" \
	-le $((before - 2))
wait_flag want-back 120
printf 'export "/home" { client "10.77.1.2/99" { } }\n' >"$CLUSTER/exports"
if out=$(weft exports reload 2>&1); then
	not_ok "a bad file is refused"
else
	ok "a bad file is refused: ${out##*/}"
fi
exports "$HOME_RW" "$SQUASHED" "$PUB"
flag back
wait
