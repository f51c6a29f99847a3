#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# rdmalink.sh server KIND BUILD KEY MDS; rdmalink.sh client KIND BUILD KEY SERVER
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/rdma_lib.sh"
part=$1 kind=$2 BUILD=$3 KEY=$4 MDS=$5
ds_name=$kind # the metadata server has a data server of each kind
rdma_up "$kind"

# Connections over TCP are the metadata server's, which comes and goes as it likes.
but_tcp() {
	local line n
	read -r line
	n=$(ss -Htnp state established 2>/dev/null | grep -c "pid=$pid,")
	[[ $line =~ ^fd=([0-9]+)(.*) ]] && echo "fd=$((BASH_REMATCH[1] - n))${BASH_REMATCH[2]}"
}
but_buffers() { sed -E 's/ mr=[0-9]*//'; } # those that were taken stay
descriptors() { # and which connections over TCP the sockets among them are
	ls -l "/proc/$pid/fd" | awk 'NR > 1 { print $(NF - 2), $NF }' | sort -n
	ss -Htanp 2>/dev/null | grep "pid=$pid,"
}
# same_held NAME WHAT-IT-HOLDS: prints descriptors one by one where there is a difference.
same_held() {
	descriptors >/run/fd.after
	same "$1" "$2" "$before"
	[ "$2" = "$before" ] || sed 's/^/#   before: /' /run/fd.before
	[ "$2" = "$before" ] || sed 's/^/#   after: /' /run/fd.after
}
until_held() { # SECONDS: what it holds when it is what it was before, or when the time is over
	local end=$((SECONDS + $1)) now
	while :; do
		now=$(held "$pid" link | but_tcp | but_buffers)
		[ "$now" != "$before" ] && [ $SECONDS -lt $end ] || break
		sleep 0.5
	done
	echo "$now"
}
server() {
	local pid before now began n=2
	# On iWARP TCP gives a peer up: siw has done what TCP's buffer holds. Here TCP does so after
	# half a minute instead of a quarter of an hour.
	[ "$kind" != siw ] || echo 5 >/proc/sys/net/ipv4/tcp_retries2
	ds_disk link 300
	ds_start link 12100 20049 -o rdma.quiet=10s
	pid=${ds_pid[link]}
	grep -oE '[0-9a-f]{32}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}' /mnt/link/store/identity |
		head -1 >"$WEFT_SHARED/uuid.new"
	mv "$WEFT_SHARED/uuid.new" "$WEFT_SHARED/uuid"
	wait_flag used
	sleep 2
	before=$(held "$pid" link | but_tcp)
	descriptors >/run/fd.before
	check "what it holds is seen: $before" grep -qE ' mr=[1-9].* cm_id=[1-9].* connections=0 ' \
		<<<"$before"
	flag seen
	wait_flag cut
	began=$SECONDS
	now=$(held "$pid" link)
	check "connections are there when the link is cut" grep -q " connections=$n " <<<"$now"
	before=$(but_buffers <<<"$before")
	now=$(until_held 90)
	same_held "what was held for a client that is out of reach is given back" "$now"
	echo "# $kind: that took $((SECONDS - began)) s"
	flag given_back
	wait_flag done
	now=$(until_held 20)
	same_held "and again in the end" "$now"
	ds_stop link
	ds_complaints link
	tail -5 /run/link.log | sed 's/^/#   /'
}
wire() { timeout -s KILL 100 "$BUILD/tests/wirelib/rdma/rdma_wire" "${args[@]}" "$@"; }
client() {
	local reads idle=
	wait_flag uuid
	args=(-k "$KEY" -u "$(cat "$WEFT_SHARED/uuid")")
	[ "$kind" != siw ] || args+=(-i)
	wire -n 1000 "$MDS" "128 at once"
	flag used
	wait_flag seen
	wire -n 1000000000 "$MDS" "128 at once" >/run/reads &
	reads=$!
	# Nothing is under way on another connection: the server finds a vanished peer all the same.
	wire -n 200 "$MDS" "a connection that is idle" >/run/idle &
	idle=$!
	sleep 2
	flag reads
	wait_flag back 200
	kill $reads $idle 2>/dev/null
	wait $reads $idle
	same "the reads had not ended before" "$(grep -c '^ok' /run/reads)" 0
	wire -n 1000 "$MDS" "128 at once"
	flag done
}
$part
# rxe may complain of a queue pair that was cut off from its peer
[ "$part" = client ] || no_complaint
