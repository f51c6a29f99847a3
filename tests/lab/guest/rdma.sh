#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# rdma.sh KIND PART BUILD: a cluster in this guest, on a device of this kind, and its client.
. "$(dirname "$0")/lib.sh"
kind=$1 part=$2
export WEFT_BUILD=$3
here=$(cd "$(dirname "$0")/.." && pwd)
export PATH=$here/../../tools:$PATH
CLUSTER=/run/c
dev() { local c=$1; shift; python3 "$WEFT_BUILD/tools/weft-dev" "$c" $CLUSTER "$@"; }
metric() { "$WEFT_BUILD/tests/lab/metric" $CLUSTER "$@"; }
both() { metric ds1,ds2 "$@"; } # the sum over the data servers
# within SECONDS COMMAND...
within() {
	local end=$((SECONDS + $1))
	shift
	until "$@" >/dev/null 2>&1; do
		[ $SECONDS -lt $end ] || return 1
		sleep 0.1
	done
}
# A data server has joined, or joined again, since it takes connections over RDMA.
told() {
	awk '/NFS over RDMA at/ { up = 1 } /joined as/ { told = up } END { exit !told }' \
		$CLUSTER/log/"$1".log
}
logged() { [ "$(grep -c "$2" $CLUSTER/log/"$1".log)" -ge "$3" ]; }
link_add() { rdma link add dev0 type "$kind" netdev vec0; }
# of the daemons: what the kernel counts, by the name of the threads that made it, and descriptors
resources() {
	local d
	for r in qp cq mr; do echo "$r $(rdma resource show $r | grep -c 'comm weft-')"; done
	for d in mds ds1 ds2; do
		echo "$d.fd $(ls "/proc/$(cat $CLUSTER/run/$d.pid)/fd" | wc -l)"
	done
}
# BEFORE: what there is more of than then; it has 10 s to go. Two regions more are buffers that the
# daemon took because connections met, and they stay.
grown() {
	local now i
	for i in {1..50}; do
		now=$({ echo "$1"; resources; } |
			awk '!($1 in was) { was[$1] = $2;
				next }
				$2 > was[$1] + ($1 == "mr") * 2 { print $1, was[$1] " -> " $2 }')
		[ -n "$now" ] || break
		sleep 0.2
	done
	echo "$now"
}
ticks() { # of CPU, of the daemons
	local d n=0
	for d in mds ds1 ds2; do
		set -- $(sed 's/.*) //' "/proc/$(cat $CLUSTER/run/$d.pid)/stat")
		n=$((n + ${12} + ${13}))
	done
	echo $n
}
rdma_mount() { # PROTO
	case $1 in
		rdma) WEFT_MOUNT="mount -t nfs4 -o vers=4.2,proto=rdma,port=20049 $LAB_SELF:/" ;;
		tcp) WEFT_MOUNT=$tcp_mount ;;
	esac
	mount_weft
}

mount -t tmpfs -o size=1200m tmpfs /run
head -c 67108864 /dev/urandom >/run/src

posted() {
	requests=$(both weft_rdma_work_requests_total) chains=$(both weft_rdma_doorbells_total)
}
per_mib() { # WHAT: of the data servers, since posted
	echo "$(both weft_rdma_work_requests_total) $requests $(both \
		weft_rdma_doorbells_total) $chains" |
		awk -v what="$kind: for each MiB that is $1" \
		'{ printf "# %s: %.2f work requests in %.2f chains\n",
			what, ($1 - $2) / 64, ($3 - $4) / 64; exit $3 - $4 > 64 * 4 }' &&
		ok "$kind: posted in few chains ($1)" || not_ok "$kind: posted in few chains ($1)"
}
io() {
	local p before n requests chains polls
	for p in tcp rdma; do
		before=$(both weft_rdma_bytes_total dir=write)
		posted
		rdma_mount $p
		check "$kind: 64 MiB are written (metadata over $p)" cp /run/src $M/$p
		umount_weft
		per_mib written
		posted
		rdma_mount $p
		check "$kind: and are the same from a cold cache" cmp /run/src $M/$p
		n=$(($(both weft_rdma_bytes_total dir=write) - before))
		per_mib read
		check "$kind: they came by RDMA Write" test $n -ge 67108864
		umount_weft
	done
	same "$kind: the metadata server moved none of it" \
		"$(metric mds weft_rdma_bytes_total dir=write)" 0
	# On iWARP the server copies all that it fetches. The test sees that here, so it would see a
	# copy elsewhere.
	n=$(both weft_ds_copied_bytes_total)
	if [ $kind = siw ]; then
		check "$kind: each byte that was fetched was copied once, and counted ($n)" \
			test "$n" -ge 134217728 -a "$n" -le "$(both weft_rdma_bytes_total dir=read)"
	else
		same "$kind: no byte that was fetched was copied" "$n" 0
	fi
	same "$kind: no byte of it was copied to be sent" "$(both weft_rdma_copied_bytes_total)" 0
	without_layouts

	rdma_mount rdma
	check "$kind: odd lengths and offsets" timeout 60 python3 "$here/guest/rdma_odd.py" $M/odd
	mkdir $M/many
	for n in $(seq 300); do : >"$M/many/a-file-with-a-rather-long-name-$n"; done
	ln -s "$(printf 'x%.0s' $(seq 3000))" $M/link
	umount_weft
	rdma_mount rdma
	same "$kind: a long directory" "$(ls $M/many | wc -l)" 300
	same "$kind: a long symbolic link" "$(readlink $M/link | wc -c)" 3001
	same "$kind: a long extended attribute" \
		"$(setfattr -n user.big -v "$(printf 'y%.0s' $(seq 20000))" $M/odd &&
		getfattr --absolute-names --only-values -n user.big $M/odd | wc -c)" 20000
	backchannel
	umount_weft

	for n in $(seq 3); do
		rdma_mount rdma
		umount_weft
	done
	sleep 1
	before=$(resources)
	for n in $(seq 25); do
		rdma_mount rdma
		umount_weft
	done
	check "$kind: memory is registered" grep -q '^mr [1-9]' <<<"$before"
	same "$kind: connecting 25 times leaves nothing behind" "$(grown "$before")" ""

	kill_mds
	plain

	before=$(ticks) polls=$(metric mds,ds1,ds2 weft_rdma_polls_total)
	sleep 3
	n=$(($(ticks) - before)) polls=$(($(metric mds,ds1,ds2 weft_rdma_polls_total) - polls))
	# A spin: 300. What others take of the machine counts for whoever runs in the guest.
	check "$kind: idle daemons do not spin ($n ticks of CPU in 3 s, \
$polls looks for completions)" test $n -le 120 -a $polls = 0
}

# Data goes through the metadata server, which gets it by TCP into memory that it sends it from.
without_layouts() {
	local exports before
	exports=$(cat $CLUSTER/exports)
	sed -i 's/client "\*" {/& layouts = no /' $CLUSTER/exports
	check "$kind: clients get no layouts any more" "$WEFT_BUILD/weft" \
		--admin "unix:$CLUSTER/run/mds.sock" exports reload
	before=$(metric mds weft_rdma_copied_bytes_total)
	rdma_mount rdma
	check "$kind: what comes through the metadata server is the same" cmp /run/src $M/rdma
	umount_weft
	check "$kind: it went by RDMA Write" test "$(metric mds weft_rdma_bytes_total dir=write)" \
		-ge 67108864
	same "$kind: and was not copied to be sent" "$(metric mds weft_rdma_copied_bytes_total)" \
		"$before"
	printf '%s\n' "$exports" >$CLUSTER/exports
	"$WEFT_BUILD/weft" --admin "unix:$CLUSTER/run/mds.sock" exports reload >/dev/null
}

# A folder that a data server exports, without any metadata server.
plain() {
	local before n mount="mount -t nfs -o vers=3,proto=rdma,port=20050"
	mount+=",mountproto=tcp,mountport=12050,nolock $LAB_SELF:/run/x /mnt/v3"
	mkdir -p /mnt/v3
	before=$(metric ds1 weft_rdma_bytes_total dir=write)
	check "$kind: an exported folder is mounted by NFSv3" timeout 30 $mount || return
	check "$kind: it takes 64 MiB" cp /run/src /mnt/v3/f
	check "$kind: odd lengths and offsets by NFSv3" \
		timeout 60 python3 "$here/guest/rdma_odd.py" /mnt/v3/odd
	ln -s "$(printf 'x%.0s' $(seq 1000))" /mnt/v3/link
	umount /mnt/v3
	timeout 30 $mount
	check "$kind: and gives them back" cmp /run/src /mnt/v3/f
	same "$kind: and a link" "$(readlink /mnt/v3/link | wc -c)" 1001
	umount /mnt/v3
	n=$(($(metric ds1 weft_rdma_bytes_total dir=write) - before))
	check "$kind: by RDMA Write" test $n -ge 67108864
	same "$kind: without a copy" "$(metric ds1 weft_rdma_copied_bytes_total)" 0
}

# Names change while the metadata server dies and comes back: the server makes each change once.
kill_mds() {
	local changer
	rdma_mount rdma
	(for n in $(seq 300); do mkdir $M/d$n && mv $M/d$n $M/e$n && rmdir $M/e$n || exit 1; done) &
	changer=$!
	sleep 0.5
	dev kill mds -9
	check "$kind: the metadata server starts again" dev start mds
	if wait $changer; then
		ok "$kind: what was asked of it is done once"
	else
		not_ok "$kind: what was asked of it is done once"
	fi
	umount_weft
}

# Another client, by another name, wants what this one holds: the server calls back on its
# RDMA connection.
backchannel() {
	local began
	exec 7>$M/held
	echo one >&7
	mkdir -p /mnt/other
	check "$kind: another client is not kept waiting" \
		timeout 20 unshare --uts --mount bash -c "hostname other
		$tcp_mount /mnt/other || exit 1
		truncate -s 2 /mnt/other/held && umount /mnt/other"
	same "$kind: and what it changed is seen" "$(cat $M/held | wc -c)" 2
	exec 7>&-
	check "$kind: the holder was called back" \
		test "$(metric mds weft_mds_layout_recalls_total)" -gt 0
	same "$kind: and nothing was taken from it" "$(metric mds weft_mds_layout_revoked_total)" 0
}

loss() {
	local writer
	rdma_mount tcp
	cp /run/src $M/f
	sync $M/f
	(while [ ! -e /run/stop ]; do cat /run/src >$M/g && sync $M/g && cmp /run/src $M/g || {
		echo "not ok - $kind: I/O goes on"; exit 1; }; echo >>/run/rounds; done) &
	writer=$!
	sleep 1
	dev kill ds1 -9
	check "$kind: a data server that was killed starts again" dev start ds1
	check "$kind: and is told to clients with RDMA again" within 20 logged ds1 \
		'NFS over RDMA at' 2
	sleep 2

	check "$kind: the device is taken away" timeout 30 rdma link delete dev0
	check "$kind: the data servers say so" within 5 logged ds2 'has gone' 1
	sleep 8
	local tcp=$(both weft_rpc_received_bytes_total) rdma
	within 25 test "$(wc -l </run/rounds)" -ge 2
	check "$kind: I/O goes on over TCP" within 30 more_than "$tcp" 20000000 \
		weft_rpc_received_bytes_total

	check "$kind: the device comes back" link_add
	check "$kind: and is served again" within 20 logged ds2 'NFS over RDMA at' 2
	: >/run/stop
	if wait $writer; then
		ok "$kind: nothing was lost"
	else
		not_ok "$kind: nothing was lost"
	fi
	umount_weft
	sleep 2
	rdma_mount tcp
	rdma=$(both weft_rdma_bytes_total dir=write)
	check "$kind: what was written is there" cmp /run/src $M/f
	check "$kind: and is read by RDMA again" more_than "$rdma" 60000000 weft_rdma_bytes_total \
		dir=write
	umount_weft
}
more_than() { # BEFORE BY METRIC...
	local before=$1 by=$2
	shift 2
	[ $(($(both "$@") - before)) -ge "$by" ]
}

# Everything at IPv6 addresses.
ipv6() {
	local n
	WEFT_MOUNT="mount -t nfs4 -o vers=4.2,proto=rdma6,port=20049 [$self6]:/"
	mount_weft
	same "$kind: a mount over RDMA by IPv6" \
		"$(sed -n "s|.* $M nfs4 .*proto=\([a-z0-9]*\),port=\([0-9]*\).*|\1 \2|p" \
		/proc/mounts)" "rdma6 20049"
	check "$kind: 64 MiB are written by IPv6" cp /run/src $M/six
	remount_weft
	n=$(both weft_rdma_bytes_total dir=write)
	check "$kind: and are the same from a cold cache" cmp /run/src $M/six
	check "$kind: the layout's addresses of RDMA and IPv6 are used" \
		test $(($(both weft_rdma_bytes_total dir=write) - n)) -ge 67108864
	umount_weft
	mkdir -p /mnt/v3
	check "$kind: an exported folder is mounted over RDMA by IPv6" timeout 30 mount -t nfs \
		-o vers=3,proto=rdma6,port=20050,mountproto=tcp6,mountport=12050,nolock \
		"[$self6]:/run/x" /mnt/v3 || return
	check "$kind: it takes data" cp /run/src /mnt/v3/six
	umount /mnt/v3
	check "$kind: which the server has" cmp /run/src /run/x/six
}

calls() {
	local set sets='rdma.srq=true rdma.srq=false rdma.poll=0 rdma.credits=2' n=200
	[ $kind = rxe ] || sets='rdma.srq=true'
	for set in $sets; do
		timeout 40 "$WEFT_BUILD/tests/lab/rdma_rpc" "$LAB_SELF:20070" "$LAB_SELF:20070" $n \
			$set | sed "s/^\(ok\|not ok\) - /\1 - $kind, $set: /"
		n=30
	done
	timeout 40 "$WEFT_BUILD/tests/lab/rdma_rpc" "$LAB_SELF:20070" "0.0.0.0:20070" $n |
		sed "s/^\(ok\|not ok\) - /\1 - $kind, any address: /"
	timeout 40 "$WEFT_BUILD/tests/lab/rdma_rpc" "[fd77::3]:20070" "[::]:20070" $n |
		sed "s/^\(ok\|not ok\) - /\1 - $kind, any IPv6 address: /"
	check "$kind: nothing is left" test "$(rdma resource show qp | grep -c rdma_rpc)" = 0
}

link_add || { skip "$kind: no such device here"; exit 0; }
mkdir -m 777 /run/x
printf 'export "/run/x" {\n\tclient "*" { access = rw  squash = none  '\
'privileged_port = false }\n}\n' >/run/exports.v3
[ "$part" != calls ] || { calls; no_complaint; exit 0; }
self6=$(ip -6 -o addr show dev "$LAB_DEV" scope global |
	awk '{ sub("/.*", "", $4); print $4; exit }')
addr=$LAB_SELF
[ "$part" != ipv6 ] || addr=$self6
tcp_mount=$(dev up --ds 2 --addr "$addr" --rdma 20049 --set mds.lease=10s --set mds.grace=5s --set \
	ds.exports=/run/exports.v3) || {
	not_ok "$kind: the cluster starts"
	exit 1
}
WEFT_MOUNT=$tcp_mount
check "$kind: RDMA is served" within 10 logged ds1 'NFS over RDMA at' 1
check "$kind: and clients are told" within 10 told ds1
within 10 told ds2
$part
check "$kind: the daemons stop" timeout 20 python3 "$WEFT_BUILD/tools/weft-dev" down $CLUSTER
grep -hE 'Sanitizer|runtime error|[Aa]ssert|FATAL' $CLUSTER/log/*.log | head -20 |
	sed 's/^/not ok - a daemon complains: /'
for d in mds ds1 ds2; do tail -8 $CLUSTER/log/$d.log | sed "s/^/# $d: /"; done
no_complaint
