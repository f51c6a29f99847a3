#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# rdmawire.sh rxe|siw BUILD KEY MDS [SOAK]
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/rdma_lib.sh"
kind=$1 BUILD=$2 KEY=$3 MDS=$4 soak=${5:-}
# The metadata server has a data server of each kind, each with a name of its own.
ds_name=$kind
rdma_up "$kind"
ds_disk wire 600
# In a long run a guest has no room for all that the sanitizer keeps of freed memory. Then it faults
# for ever on the first page that it lacks.
export ASAN_OPTIONS=quarantine_size_mb=8:thread_local_quarantine_size_kb=64
ds_start wire 12100 20049 -o log.level=warn
pid=${ds_pid[wire]}
uuid=$(grep -oE '[0-9a-f]{32}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}' \
	/mnt/wire/store/identity | head -1)
args=(-k "$KEY" -u "$uuid" -S $RANDOM$RANDOM)
[ "$kind" != siw ] || args+=(-i)
wire_limit=200
[ -z "$soak" ] || { args+=(-s); wire_limit=1800; }
export ASAN_OPTIONS=$ASAN_OPTIONS:detect_leaks=0 # of the client: a test that fails keeps its memory
wire() {
	local rc
	local more=()
	[ "$1" != -n ] || { more=(-n "$2"); shift 2; }
	timeout "${WIRE_LIMIT:-$wire_limit}" "$BUILD/tests/wirelib/rdma/rdma_wire" "${args[@]}" \
		"${more[@]}" "$LAB_SELF" "$@"
	rc=$?
	[ $rc -le 1 ] || not_ok "rdma_wire $*: status $rc" # 1: it has said so
}

# Objects that are made once, and stay, are there after the first of everything.
wire "private data is exchanged"
wire @conn @data @load
same "no message found the peer without a Receive" "$(rnr)" 0
# From and to the memory that the device knows, past the page cache, and without a look-up of its
# pages: one block of memory all the way.
direct=$(ds_metric wire weft_ds_disk_io_total direct) fixed=$(ds_metric wire weft_ds_fixed_io_total)
wire "WRITE of 1 MiB from nine segments"
direct=$(($(ds_metric wire weft_ds_disk_io_total direct) - direct)) \
	fixed=$(($(ds_metric wire weft_ds_fixed_io_total) - fixed))
check "what comes and goes by RDMA goes directly to and from the disk ($direct), \
and from and to registered memory ($fixed)" \
	test "$direct" -ge 2 -a "$fixed" -ge "$direct"
sleep 2
before=$(held "$pid" wire)
check "what it holds is seen: $before" grep -qE ' mr=[1-9].* cm_id=[1-9]' <<<"$before"
# On iWARP never (rdma.md): nothing there tries again.
srqs=$(grep -oE 'srq=[0-9]+' <<<"$before")
[ "$kind" = siw ] || check "connections share receives ($srqs)" test "${srqs#srq=}" -ge 1
[ "$kind" = rxe ] || same "on iWARP each connection has receives of its own" "$srqs" srq=0
wire @error
[ "$kind" = siw ] ||
	check "a client without Receives is seen in the device's counters" test "$(rnr)" -gt 0
same "what connections of all kinds held is given back" "$(settled "$pid" wire "$before")" "$before"
WIRE_LIMIT=1800 wire connects
same "what many connections held is given back" "$(settled "$pid" wire "$before")" "$before"
same "the device said of each queue pair that it used no more receives" \
	"$(ds_metric wire weft_rdma_undrained_total)" 0
WIRE_LIMIT=1800 wire fuzz
same "what broken headers held is given back" "$(settled "$pid" wire "$before")" "$before"
# What is registered is listed by thread.
wire -n 24 "connections that stand" &
sleep 2
standing=$(mr_bytes) n=$(ds_metric wire weft_rdma_connections)
wait $!
same "one thread registers all memory, and it is none that serves clients" \
	"$(rdma resource show mr | grep 'comm weft-ds' | grep -oE ' pid [0-9]+' | sort -u |
	wc -l)" 1
beside=$((256 << 20)) # the pool, and on iWARP what is read into
[ "$kind" != siw ] || beside=$(((256 + 32) << 20))
echo "# $kind: with $n connections $(((standing - beside) / 1024)) KiB are registered" \
	"for messages, $(((standing - beside) / 1024 / n)) for each"
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
	check "what a client announces and does not give costs little memory \
($(((most - before) / 1024)) KiB)" \
		test $((most - before)) -le $((8 << 20)) -a "$most" -gt "$before"
fi
ds_stop wire
ds_complaints wire
same "all RDMA objects went with it" "$(held "$pid")" "fd=0 qp=0 cq=0 mr=0 pd=0 cm_id=0 srq=0"

# How completions are found, and of which work requests.
counts() { # completions, events, looks that found none; work requests, those that tell
	ds_get wire /metrics | awk '/^weft_rdma_/ { n[$1] = $2 }
		END { print n["weft_rdma_completions_total"], n["weft_rdma_events_total"],
			n["weft_rdma_polls_total{found=\"none\"}"],
			n["weft_rdma_work_requests_total"], n["weft_rdma_signaled_total"] }'
}
since() { # BEFORE: what there is more of than then
	awk 'NR == 1 { split($0, was) } NR == 2 {
		print $1 - was[1], $2 - was[2], $3 - was[3], $4 - was[4], $5 - was[5] }' <<<"$1
$(counts)"
}
ds_start wire 12100 20049 -o log.level=warn -o rdma.poll=0
before=$(counts)
wire -n 2000 "128 at once"
read -r completions sleeps vain _ <<<"$(since "$before")"
# one more to be sure, in two queues
check "without rdma.poll a look in vain ends in sleep \
($completions completions, $sleeps events, $vain looks in vain)" \
	test "$completions" -ge 4000 -a "$vain" -le $((4 * sleeps))
before=$(counts)
wire "READ into 256 segments"
read -r _ _ _ requests tell <<<"$(since "$before")"
if [ "$kind" = siw ]; then
	check "on iWARP all tell that they are done ($tell of $requests work requests)" \
		test $((10 * tell)) -ge $((9 * requests))
else
	check "few tell that they are done, and one in 64 at least \
($tell of $requests work requests)" \
		test "$requests" -ge 1000 -a $((10 * tell)) -le "$requests" \
		-a $((64 * tell)) -ge "$requests"
fi
ds_stop wire
ds_complaints wire
ds_start wire 12100 20049 -o log.level=warn -o rdma.poll=10000
before=$(counts)
wire -n 2000 "128 at once"
read -r completions events vain _ <<<"$(since "$before")"
check "under load there is polling instead of events \
($completions completions, $events events, $vain looks in vain)" \
	test "$completions" -ge 4000 -a "$vain" -ge $((8 * events))
wire -n 6 "a connection that is idle" &
for i in {1..50}; do [ "$(ds_metric wire weft_rdma_connections)" != 1 ] || break; sleep 0.1; done
sleep 1.5
before=$(counts)
sleep 1
same "where a connection is idle nobody looks for completions" "$(since "$before")" "0 0 0 0 0"
wait $!
ds_stop wire
ds_complaints wire
# Any address, of IPv4 and of IPv6. The device goes and comes back, and the listeners come back
# by themselves.
: >/run/wire.log
self6=$(ip -6 -o addr show dev "$LAB_DEV" scope global |
	awk '{ sub("/.*", "", $4); print $4; exit }')
ds_rdma='0.0.0.0:20049,[::]:20049' ds_start wire 12100 20049
anywhere() { # WHEN
	for LAB_SELF in "$LAB_SELF" "$self6"; do
		wire "private data is exchanged" "WRITE of 1 MiB" |
			sed "s/^\(ok\|not ok\) - /\1 - at $LAB_SELF, $1: /"
	done
}
(anywhere "listening at any address")
check "the device is taken away" timeout 30 rdma link delete "${kind}0"
for i in {1..100}; do grep -q 'has gone' /run/wire.log && break; sleep 0.1; done
same "the server says so" "$(grep -c "${kind}0 has gone" /run/wire.log)" 1
same "and holds nothing of it" "$(held "${ds_pid[wire]}" | sed 's/fd=[0-9]* //')" \
	"qp=0 cq=0 mr=0 pd=0 cm_id=0 srq=0"
told() { # TIMES: since the device went it has joined so often, with other addresses
	for i in {1..100}; do
		[ "$(sed -n '/has gone/,$p' /run/wire.log | grep -c 'joined as')" -lt "$1" ] ||
			return 0
		sleep 0.1
	done
	return 1
}
check "the metadata server is told of it" told 1
rdma_up "$kind"
check "and when the device is back" told 2
(anywhere "when the device is back")
ds_stop wire
ds_complaints wire
# Few Receives, which all connections share: each still gets what the server granted.
ds_start wire 12100 20049 -o log.level=warn -o rdma.receives=704
before=$(rnr)
wire "all credits" "as many calls"
same "no message found a server of few Receives without one" "$(rnr)" "$before"
ds_stop wire
ds_complaints wire
# Each connection has its own: a client that sends more than the server granted hurts only itself.
ds_start wire 12100 20049 -o log.level=warn -o rdma.srq=false
same "without rdma.srq nothing is shared" "$(held "${ds_pid[wire]}" | grep -oE 'srq=[0-9]+')" srq=0
wire "vanish"
receives=$(ds_metric wire weft_rdma_receives_total) \
	chains=$(ds_metric wire weft_rdma_receive_doorbells_total)
check "receives are posted in chains ($receives in $chains)" test "$receives" -ge 1000 \
	-a "$receives" -ge $((8 * chains))
wire "all credits" "as many calls" "RDMA_DONE" "128 at once"
same "no message found a server without shared Receives without one" "$(rnr)" "$before"
wire "more calls than granted" "are thrown away" "fuzz"
ds_stop wire
ds_complaints wire
ds_start wire 12100 20049 -o log.level=warn -o rdma.connections_of_address=5 -o rdma.quiet=1s
posted=$(ds_metric wire weft_rdma_work_requests_total)
wire -n 4 "connections that stand"
posted=$(($(ds_metric wire weft_rdma_work_requests_total) - posted))
check "peers that are silent are tried, and that harms none: \
$posted work requests, 8 of them replies" \
	test $posted -ge 12 -a "$(ds_metric wire weft_rdma_failed_operations_total)" = 0
posted=$(ds_metric wire weft_rdma_work_requests_total)
wire -n 3 "a connection that is silent at first"
posted=$(($(ds_metric wire weft_rdma_work_requests_total) - posted))
if [ "$kind" = siw ]; then
	same "on iWARP nobody is sent to who has sent nothing" "$posted" 1
else
	check "who has connected and says nothing is tried \
($posted work requests, 1 of them a reply)" test $posted -ge 2
fi
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
same "a registration that is refused is told once, with the limit" \
	"$(grep -c "rdma: ${kind}0: registering 256 MiB of the pool: .*RLIMIT_MEMLOCK" \
	/run/wire.log)" 1
ds_by=()
ds_stop wire
ds_complaints wire
# The pool fits, with the rings and without, and what iWARP fetches into does not.
if [ "$kind" = siw ]; then
	: >/run/wire.log
	ds_by=(prlimit --memlock=62914560:62914560 setpriv --bounding-set -ipc_lock,-sys_resource)
	ds_start wire 12100 20049 -o ds.threads=1 -o ds.pool=16M
	sleep 2 # it is tried each second
	same "so is that of the memory that is fetched into" \
		"$(grep -c "rdma: siw0: registering 32 MiB for what is fetched: .*RLIMIT_MEMLOCK" \
		/run/wire.log) $(grep -c \
		"siw0 cannot be used: Cannot allocate memory" /run/wire.log)" "1 1"
	ds_by=()
	ds_stop wire
	ds_complaints wire
fi
# The stock client mounts a folder that is exported by path without a word of ports: rpcbind knows
# MOUNT over TCP, and NFS over RDMA is at its own port.
if [ "$kind" = rxe ] && command -v rpcbind >/dev/null; then
	rpcbind -f &
	rpcbind=$!
	mkdir -m 777 /run/x /mnt/v3
	printf 'export "/run/x" {\n\tclient "*" { access = rw  squash = none  '\
'privileged_port = false }\n}\n' >/run/exports.v3
	ds_start wire 12100 20049 -o ds.exports=/run/exports.v3 -o ds.rpcbind=true
	for i in {1..100}; do
		rpcinfo -p 127.0.0.1 | grep -q ' 100005 .* 12100 ' && break
		sleep 0.1
	done
	check "an exported folder is mounted over RDMA without its ports" timeout 30 mount -t nfs \
		-o vers=3,proto=rdma,nolock "$LAB_SELF:/run/x" /mnt/v3
	same "and it is RDMA" "$(sed -n \
		's|.* /mnt/v3 nfs .*proto=\([a-z]*\),port=\([0-9]*\).*|\1 \2|p' /proc/mounts)" \
		"rdma 20049"
	head -c 1000000 /dev/urandom >/run/data
	check "it takes data" cp /run/data /mnt/v3/data
	umount /mnt/v3
	same "which the server has" "$(cksum </run/x/data)" "$(cksum </run/data)"
	kill $rpcbind
	ds_stop wire
	ds_complaints wire
fi
# A pool of two pieces, with one region for each, in a daemon that is root's only until it may lock
# them. The kernel here has no huge pages.
if [ "$kind" = rxe ]; then
	: >/run/wire.log
	chmod 1777 /run
	chown -R nobody /mnt/wire/store
	ds_by=(prlimit --memlock=8388608:8388608)
	ds_start wire 12100 20049 -o ds.user=nobody -o ds.pool=1026M
	ds_by=()
	same "it is nobody's, and has no rights" \
		"$(awk '/^Uid|^CapPrm/ { print $2 }' "/proc/${ds_pid[wire]}/status" |
		tr '\n' ' ')" "$(id -u nobody) 0000000000000000 "
	for i in {1..100}; do grep -q 'NFS over RDMA at' /run/wire.log && break; sleep 0.1; done
	same "each piece of the pool is a region" \
		"$(grep -c "rdma: rxe0: .* 1026 MiB of memory in 2 regions" /run/wire.log)" 1
	check "and is registered" test "$(mr_bytes)" -ge $((1026 << 20))
	wire "WRITE of 1 MiB from nine segments" "READ into 256 segments" "all credits"
	ds_stop wire
	ds_complaints wire
fi
tail -5 /run/wire.log | sed 's/^/#   /'
dmesg | grep -E 'BUG:|Oops|general protection|WARNING:' | head -5 | sed 's/^/#   /'
