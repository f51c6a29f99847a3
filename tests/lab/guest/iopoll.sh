#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
. "$(dirname "$0")/lib.sh"
export WEFT_BUILD=$1
NQN=nqn.2014-08.org.example:weft
target=/sys/kernel/config/nvmet
CLUSTER=/run/c
dev() { local c=$1; shift; python3 "$WEFT_BUILD/tools/weft-dev" "$c" $CLUSTER "$@"; }
metric() { "$WEFT_BUILD/tests/lab/metric" $CLUSTER "$@"; }
ticks() { # of CPU, of a daemon
	set -- $(sed 's/.*) //' "/proc/$(cat $CLUSTER/run/"$1".pid)/stat")
	echo $((${12} + ${13}))
}

mount -t tmpfs -o size=700m tmpfs /run
truncate -s 320M /run/disk
mkdir $target/subsystems/$NQN $target/ports/1
echo 1 >$target/subsystems/$NQN/attr_allow_any_host
mkdir $target/subsystems/$NQN/namespaces/1
echo -n /run/disk >$target/subsystems/$NQN/namespaces/1/device_path
echo 1 >$target/subsystems/$NQN/namespaces/1/enable
echo tcp >$target/ports/1/addr_trtype
echo ipv4 >$target/ports/1/addr_adrfam
echo 127.0.0.1 >$target/ports/1/addr_traddr
echo 4421 >$target/ports/1/addr_trsvcid
ln -s $target/subsystems/$NQN $target/ports/1/subsystems/$NQN
exec 9<>/dev/nvme-fabrics
echo "nqn=$NQN,transport=tcp,traddr=127.0.0.1,trsvcid=4421,nr_io_queues=1,nr_poll_queues=1" >&9
exec 9>&-
for i in {1..100}; do [ ! -b /dev/nvme0n1 ] || break; sleep 0.1; done
mkfs.xfs -q /dev/nvme0n1 || { not_ok "XFS on a drive with a queue to poll"; exit 1; }
mkfs.ext4 -q /run/plain 320M >/dev/null || { not_ok "another disk"; exit 1; }
WEFT_MOUNT=$(dev up --ds 2 --addr "$LAB_SELF" --set mds.lease=10s --set mds.grace=2s --set \
	ds.iopoll=true) || {
	not_ok "the cluster starts"
	exit 1
}
for d in ds1 ds2; do
	dev kill $d
	cp -a $CLUSTER/$d /run/empty.$d
done
mount /dev/nvme0n1 $CLUSTER/ds1 && mount -o loop /run/plain $CLUSTER/ds2 &&
	rmdir $CLUSTER/ds2/lost+found || {
	not_ok "the disks are mounted"
	exit 1
}
for d in ds1 ds2; do
	cp -a /run/empty.$d/. $CLUSTER/$d
	: >$CLUSTER/log/$d.log
	dev start $d || { not_ok "$d starts"; exit 1; }
done
check "the drive that has a queue for it is polled" \
	grep -q 'ds1: polling its drive' $CLUSTER/log/ds1.log
check "the one that has none is not, and the log says so" \
	grep -q 'WARN.*ds2: not polling its drive .*: it has no queues to poll' $CLUSTER/log/ds2.log

mount_weft
mkdir $M/d
policy $M/d stripes=2,unit=1M
head -c 24M /dev/urandom >/run/src
check "a file is written" timeout 60 dd if=/run/src of=$M/d/f bs=1M oflag=direct conv=fsync \
	status=none
check "in small pieces, too" timeout 60 dd if=/run/src of=$M/d/g bs=16k count=256 oflag=direct \
	conv=fsync status=none
check "and part of a page" timeout 60 dd if=/run/src of=$M/d/h bs=5000 count=40 conv=fsync \
	status=none
remount_weft
check "it is read" cmp $M/d/f /run/src
check "in small pieces, too" \
	bash -c "dd if=$M/d/g bs=16k iflag=direct status=none | cmp -n 4194304 - /run/src"
check "and part of a page" cmp -n 200000 $M/d/h /run/src
polled=$(metric ds1 weft_ds_polled_io_total) direct=$(metric ds1 weft_ds_disk_io_total path=direct)
check "what was direct was polled for ($polled of $direct)" test "$polled" -ge 24 -a "$polled" = \
	"$direct"
fixed=$(metric ds1 weft_ds_fixed_io_total)
check "from and to memory that the ring knows ($fixed)" test $((fixed * 2)) -gt $direct ||
	grep -i 'pool' $CLUSTER/log/ds1.log | sed 's/^/#   /'
same "nothing was where there is no queue" "$(metric ds2 weft_ds_polled_io_total)" 0
check "and it did direct I/O" test "$(metric ds2 weft_ds_disk_io_total path=direct)" -ge 12
before=$(ticks ds1)
sleep 2
n=$(($(ticks ds1) - before))
# a spin: 200
check "nothing is polled when nothing is under way ($n ticks of CPU in 2 s)" test $n -le 40
umount_weft
check "the daemons stop" timeout 30 python3 "$WEFT_BUILD/tools/weft-dev" down $CLUSTER
grep -hE 'Sanitizer|runtime error|[Aa]ssert|FATAL|^ERROR' $CLUSTER/log/ds*.log | head -20 |
	sed 's/^/not ok - a daemon complains: /'
no_complaint
