#!/bin/bash
# rdmawire.sh rxe|siw BUILD KEY MDS [SOAK]
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/rdma_lib.sh"
kind=$1 BUILD=$2 KEY=$3 MDS=$4 soak=${5:-}
rdma_up "$kind"
ds_disk wire 600
# In a long run a guest has no room for all that the sanitizer keeps of what was freed, and then goes on for ever with the first page that it lacks.
export ASAN_OPTIONS=quarantine_size_mb=8:thread_local_quarantine_size_kb=64
ds_start wire 12100 20049 -o log.level=warn
pid=${ds_pid[wire]}
uuid=$(grep -oE '[0-9a-f]{32}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}' /mnt/wire/store/identity | head -1)
args=(-k "$KEY" -u "$uuid" -S $RANDOM$RANDOM)
[ "$kind" != siw ] || args+=(-i)
[ -z "$soak" ] || args+=(-s)
export ASAN_OPTIONS=$ASAN_OPTIONS:detect_leaks=0 # of the client: a test that fails keeps its memory
wire() {
	local rc
	local more=()
	[ "$1" != -n ] || { more=(-n "$2"); shift 2; }
	timeout "${WIRE_LIMIT:-200}" "$BUILD/tests/wire/rdma/rdma_wire" "${args[@]}" "${more[@]}" "$LAB_SELF" "$@"
	rc=$?
	[ $rc -le 1 ] || not_ok "rdma_wire $*: status $rc" # 1: it has said so
}

# Objects that are made once, and stay, are there after the first of everything.
wire "private data is exchanged"
wire @conn @data @load
same "no message found the peer without a Receive" "$(rnr)" 0
sleep 2
before=$(held "$pid" wire)
check "what it holds is seen: $before" grep -qE ' mr=[1-9].* cm_id=[1-9]' <<<"$before"
wire @error
[ "$kind" = siw ] || check "a client without Receives is seen in the device's counters" test "$(rnr)" -gt 0
same "what connections of all kinds held is given back" "$(settled "$pid" wire "$before")" "$before"
WIRE_LIMIT=900 wire connects
same "what many connections held is given back" "$(settled "$pid" wire "$before")" "$before"
same "the device said of each queue pair that it used no more receives" "$(ds_metric wire weft_rdma_undrained_total)" 0
WIRE_LIMIT=900 wire fuzz
same "what broken headers held is given back" "$(settled "$pid" wire "$before")" "$before"
# What is registered is listed by thread.
wire -n 24 "connections that stand" &
sleep 2
standing=$(mr_bytes) n=$(ds_metric wire weft_rdma_connections)
wait $!
same "one thread registers all memory, and it is none that serves clients" "$(rdma resource show mr | grep 'comm weft-ds' | grep -oE ' pid [0-9]+' | sort -u | wc -l)" 1
beside=$((256 << 20)) # the pool, and on iWARP what is read into
[ "$kind" != siw ] || beside=$(((256 + 32) << 20))
echo "# $kind: with $n connections $(((standing - beside) / 1024)) KiB are registered for messages, $(((standing - beside) / 1024 / n)) for each"
if [ "$kind" = rxe ]; then
	before=$(ds_metric wire weft_pool_bytes 'state="used"')
	wire "announces much, and answers nothing" &
	most=0
	for i in {1..15}; do
		now=$(ds_metric wire weft_pool_bytes 'state="used"')
		[ "$now" -le "$most" ] || most=$now
		sleep 0.1
	done
	wait $!
	check "what a client announces and does not give costs little memory ($(((most - before) / 1024)) KiB)" test $((most - before)) -le $((8 << 20)) -a "$most" -gt "$before"
fi
ds_stop wire
ds_complaints wire
same "all RDMA objects went with it" "$(held "$pid")" "fd=0 qp=0 cq=0 mr=0 pd=0 cm_id=0 srq=0"

# Few Receives, shared by all: what is granted is there all the same.
ds_start wire 12100 20049 -o log.level=warn -o rdma.receives=704
before=$(rnr)
wire "all credits" "as many calls"
same "no message found a server of few Receives without one" "$(rnr)" "$before"
ds_stop wire
ds_complaints wire
# Each connection has its own: who sends more than granted hurts only itself.
ds_start wire 12100 20049 -o log.level=warn -o rdma.srq=false
wire "all credits" "as many calls" "RDMA_DONE" "128 at once"
same "no message found a server without shared Receives without one" "$(rnr)" "$before"
wire "more calls than granted" "are thrown away" "vanish" "fuzz"
ds_stop wire
ds_complaints wire
ds_start wire 12100 20049 -o log.level=warn -o rdma.connections_of_address=5
wire -n 5 "until an address has no more"
ds_stop wire
ds_complaints wire
for shared in true false; do
	ds_start wire 12100 20049 -o log.level=warn -o rdma.receives=256 -o rdma.srq=$shared
	wire "connections until all receives are granted"
	ds_stop wire
	ds_complaints wire
done
# Where memory may not be locked it says so, and serves without RDMA.
: >/run/wire.log
ds_by=(setpriv --bounding-set -ipc_lock,-sys_resource prlimit --memlock=8388608:8388608)
ds_start wire 12100 20049 -o log.level=warn
same "a registration that is refused is told once, with the limit" "$(grep -c "rdma: ${kind}0: registering 256 MiB of the pool: .*RLIMIT_MEMLOCK" /run/wire.log)" 1
ds_by=()
ds_stop wire
ds_complaints wire
tail -5 /run/wire.log | sed 's/^/#   /'
dmesg | grep -E 'BUG:|Oops|general protection|WARNING:' | head -5 | sed 's/^/#   /'
