#!/bin/bash
# rdmalink.sh server KIND BUILD KEY MDS; rdmalink.sh client KIND BUILD KEY SERVER
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/rdma_lib.sh"
part=$1 kind=$2 BUILD=$3 KEY=$4 MDS=$5
rdma_up "$kind"

but_buffers() { sed -E 's/ mr=[0-9]*//; s/^fd=[0-9]* //'; } # those that were taken stay; descriptors are t_rdma's
until_held() { # SECONDS: what it holds when it is what it was before, or when the time is over
	local end=$((SECONDS + $1)) now
	while :; do
		now=$(held "$pid" link | but_buffers)
		[ "$now" != "$before" ] && [ $SECONDS -lt $end ] || break
		sleep 0.5
	done
	echo "$now"
}
server() {
	local pid before now began
	ds_disk link 300
	ds_start link 12100 20049
	pid=${ds_pid[link]}
	grep -oE '[0-9a-f]{32}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}' /mnt/link/store/identity | head -1 >"$WEFT_SHARED/uuid.new"
	mv "$WEFT_SHARED/uuid.new" "$WEFT_SHARED/uuid"
	wait_flag used
	sleep 2
	before=$(held "$pid" link)
	check "what it holds is seen: $before" grep -qE ' mr=[1-9].* cm_id=[1-9].* connections=0 ' <<<"$before"
	flag seen
	wait_flag cut
	began=$SECONDS
	now=$(held "$pid" link)
	check "a connection is there when the link is cut" grep -q ' connections=1 ' <<<"$now"
	before=$(but_buffers <<<"$before")
	now=$(until_held 90)
	same "what was held for a client that is out of reach is given back" "$now" "$before"
	echo "# $kind: that took $((SECONDS - began)) s"
	flag given_back
	wait_flag done
	now=$(until_held 20)
	same "and again in the end" "$now" "$before"
	ds_stop link
	ds_complaints link
	tail -5 /run/link.log | sed 's/^/#   /'
}
wire() { timeout -s KILL 100 "$BUILD/tests/wire/rdma/rdma_wire" "${args[@]}" "$@"; }
client() {
	local reads
	wait_flag uuid
	args=(-k "$KEY" -u "$(cat "$WEFT_SHARED/uuid")")
	[ "$kind" != siw ] || args+=(-i)
	wire -n 1000 "$MDS" "128 at once"
	flag used
	wait_flag seen
	wire -n 1000000000 "$MDS" "128 at once" >/run/reads &
	reads=$!
	sleep 2
	flag reads
	wait_flag back 200
	kill $reads 2>/dev/null
	wait $reads
	same "the reads had not ended before" "$(grep -c '^ok' /run/reads)" 0
	wire -n 1000 "$MDS" "128 at once"
	flag done
}
$part
[ "$part" = client ] || no_complaint # rxe may complain of a queue pair that was cut off from its peer
