#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# rdmaio.sh rxe|siw|tcp BUILD SECONDS kills|none: rounds of fio until the time is over, two at
# least.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/rdma_lib.sh"
kind=$1 BUILD=$2 seconds=$3 kills=$4
here=$(cd "$(dirname "$0")/.." && pwd)
CLUSTER=/run/c
mount -t tmpfs -o size=1400m tmpfs /run
mount -t debugfs none /sys/kernel/debug
dev() { local command=$1; shift; python3 "$here/../../tools/weft-dev" "$command" $CLUSTER "$@"; }
metric() { "$BUILD/tests/lab/metric" $CLUSTER "$@"; }
total() { metric ds1,ds2,ds3 "$@"; } # of the data servers
# verified DIR SEED: three kinds of I/O at once, each block with its checksum, read back at the end.
verified() {
	timeout 300 fio --output=/run/fio.out --directory="$1" --randseed="$2" --verify=crc32c \
		--verify_fatal=1 --do_verify=1 --fallocate=none \
		--name=direct --rw=randwrite --bsrange=4k-1m --size=24m --direct=1 \
		--ioengine=libaio --iodepth=16 \
		--name=small --rw=randrw --bs=4k --size=4m --direct=1 --ioengine=libaio \
		--iodepth=64 \
		--name=cached --rw=randwrite --bsrange=512-200k --bs_unaligned=1 --size=12m \
		--ioengine=psync --fsync=50 ||
		{ tail -25 /run/fio.out; return 1; }
}
# Workers of rpciod that wait for an invalidation. Either it belongs to a cancelled call, or an
# answered call waits for it. The stock client waits for ever where the connection went meanwhile
# (docs/rdma.md).
hung() {
	grep -lzP 'frwr_unmap_sync\S*\n\S+ xprt_rdma_free|xprt_request_dequeue_xprt' \
		/proc/[0-9]*/stack 2>/dev/null
}
# Calls to data servers that wait for their answers.
unanswered() {
	grep -h 'nfsv3.*q:xprt_pending' /sys/kernel/debug/sunrpc/rpc_clnt/*/tasks |
		awk '{ print $1 }' | sort
}
answer() {
	timeout 10 "$BUILD/tests/lab/metric" $CLUSTER mds,ds1,ds2,ds3 \
		weft_rpc_received_bytes_total >/dev/null
}
# Ends this guest where its kernel hangs so, and only where no server owes it an answer: then only a
# fresh client can go on. The test counts it.
hang() {
	local workers calls
	workers=$(hung) calls=$(unanswered)
	[ -n "$workers" ] && sleep 15 && [ "$(hung)" = "$workers" ] || return
	[ -z "$(comm -12 <(echo "$calls") <(unanswered) | grep .)" ] && answer || return
	echo "# $kind: round $round: the client's kernel hangs, $(wc -w \
		<<<"$workers") worker(s) of rpciod; all servers answer, and owe it nothing:"
	sed 's/^/#   /' $(head -1 <<<"$workers") /sys/kernel/debug/sunrpc/rpc_clnt/*/tasks
	: >"$WEFT_SHARED/hang"
	sleep 1
	echo o >/proc/sysrq-trigger # umount and sync would wait for ever
	sleep 60
}
# What a round that does not end has to show.
stuck() {
	sleep 60
	hang
	sleep 60
	echo "# round $round takes more than 120 s: the tasks that wait," \
		"and what the daemons said last"
	dmesg -C
	echo w >/proc/sysrq-trigger
	dmesg | head -150 | sed 's/^/#   /'
	tail -n 12 $CLUSTER/log/*.log | sed 's/^/#   /'
	ss -tnp | sed 's/^/#   /'
	rdma resource show qp | sed 's/^/#   /'
	for d in ds1 ds2 ds3 mds; do
		echo "#   $d: $(curl -s --max-time 3 --unix-socket "$(ls $CLUSTER/run/$d*sock |
			head -1)" http://x/metrics |
			grep -E '^weft_(rdma|pool)' | grep -v ' 0$' | tr '\n' ' ')"
	done
	for i in 1 2; do
		echo "#   $(grep -H . /sys/class/infiniband/*/ports/1/hw_counters/* |
			sed 's|.*hw_counters/||' | grep -v ':0$' | tr '\n' ' ')"
		for f in /sys/kernel/debug/sunrpc/rpc_clnt/*/tasks \
			/sys/kernel/debug/sunrpc/rpc_xprt/*/info; do
			echo "#   $f"
			head -20 "$f" | sed 's/^/#     /'
		done
		sleep 5
	done
	grep -A12 'fstype nfs' /proc/self/mountstats | grep -E 'xprt|device' | sed 's/^/#   /'
	hang
}
rdma=(--rdma 20049) proto=proto=rdma,port=20049
[ "$kind" != tcp ] || rdma=() proto=proto=tcp,port=12049
[ "$kind" = tcp ] || rdma_up "$kind"
export WEFT_BUILD=$BUILD
dev up --ds 3 --addr "$LAB_SELF" "${rdma[@]}" --set mds.lease=10s --set mds.grace=5s >/run/up.log \
	2>&1 || {
	not_ok "the cluster starts: $(tail -3 /run/up.log)"
	exit 1
}
for i in {1..100}; do
	[ "$kind" = tcp ] || [ "$(grep -l 'NFS over RDMA at' $CLUSTER/log/*.log | wc -l)" != 4 ] ||
		break
	sleep 0.1
done
sleep 1
WEFT_MOUNT="mount -t nfs4 -o vers=4.2,$proto $LAB_SELF:/"
mount_weft

end=$((SECONDS + seconds)) round=0
while [ $SECONDS -lt $end ] || [ $round -lt 2 ]; do
	stuck &
	watch=$!
	mkdir $M/d
	if [ $((round % 2)) = 0 ] || [ $kills = none ]; then
		policy $M/d stripes=2,unit=1M,mirrors=1
		check "round $round: what fio wrote is what it reads" verified $M/d $RANDOM || break
		[ $round != 0 ] ||
			same "the metadata server moved none of it" \
			"$(metric mds weft_mds_op_total op=WRITE) $(metric mds weft_mds_op_total \
			op=READ)" "0 0"
	else
		policy $M/d stripes=1,mirrors=2
		victim=ds$((1 + RANDOM % 3))
		verified $M/d $RANDOM >/run/verified 2>&1 &
		fio=$!
		sleep $((round / 2 % 3)).7
		if [ ! -d /proc/$fio ] && wait $fio; then # too fast: once more
			rm -r $M/d
			kill $watch
			continue
		fi
		dev kill $victim -9
		echo kill >>"$WEFT_SHARED/rounds"
		sleep 1
		dev start $victim >/run/start.log 2>&1 ||
			not_ok "$victim starts again: $(tail -1 /run/start.log)"
		if wait $fio; then
			ok "round $round: what fio wrote is what it reads, and $victim was killed"
		else
			not_ok "round $round: what fio wrote is what it reads, \
and $victim was killed"
			sed 's/^/#   /' /run/verified
			break
		fi
	fi
	rm -r $M/d
	kill $watch
	echo round >>"$WEFT_SHARED/rounds"
	[ "$kind" = tcp ] || [ $((round % 10)) != 0 ] ||
		echo "# $kind: round $round: by RDMA since they started last," \
			"the data servers: $(($(total weft_rdma_bytes_total) >> 20)) MiB"
	round=$((round + 1))
done
[ "$kind" = tcp ] ||
	check "data came by RDMA Read and went by RDMA Write" \
	test "$(total weft_rdma_bytes_total dir=read)" -gt 1000000 \
	-a "$(total weft_rdma_bytes_total dir=write)" -gt 1000000 ||
	for d in mds ds1 ds2 ds3; do tail -6 $CLUSTER/log/$d.log | sed "s/^/#   $d: /"; done
# A client that comes back meanwhile would go on over TCP. Or the daemon says that RDMA takes long.
[ "$kind" = tcp ] || same "no data server took connections over TCP before those over RDMA" \
	"$(awk '/NFS over RDMA at|not all addresses of ds.rdma/ { told = 1 }
		/NFSv3 over tcp at/ { n += !told; told = 0 }
		END { print n + 0 }' $CLUSTER/log/ds?.log)" 0
umount_weft
dev down >/run/down.log 2>&1 || not_ok "the daemons stop: $(tail -3 /run/down.log)"
if grep -qE 'Sanitizer|runtime error|[Aa]ssert|FATAL' $CLUSTER/log/*.log; then
	not_ok "no daemon complains"
	grep -hE -A30 'Sanitizer|runtime error|[Aa]ssert|FATAL' $CLUSTER/log/*.log | head -50 |
		sed 's/^/#   /'
else
	ok "no daemon complains"
fi
no_complaint
