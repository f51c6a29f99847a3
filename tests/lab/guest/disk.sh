#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# disk.sh BUILD KEY MDS: the data server ds3 in the guest, on ext4 on a device that it makes slow or
# fail, and a client beside it, whose way to ds3 (lo) it makes slow. The test gives it commands by
# files: do.N is a command, did.N what it printed, done.N its status.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/rdma_lib.sh"
BUILD=$1 KEY=$2 MDS=$3
mkdir -p /run/disks /mnt/ds3
truncate -s 300M /run/disks/ds3
loop=$(losetup --show -f /run/disks/ds3) && sectors=$(blockdev --getsz "$loop") &&
	dmsetup create disk --table "0 $sectors linear $loop 0" && dmsetup mknodes disk || {
		not_ok "a device-mapper device"
		exit 1
	}
# Without a journal: the file system must not give up first.
mkfs.ext4 -q -O ^has_journal -E lazy_itable_init=0 /dev/mapper/disk &&
	mount -o errors=continue /dev/mapper/disk /mnt/ds3 || {
	not_ok "its file system"
	exit 1
}
mkdir /mnt/ds3/store
table() {
	dmsetup suspend --nolockfs disk && dmsetup load disk --table "$*" && dmsetup resume disk
}
well() { table "0 $sectors linear $loop 0"; }
slow_disk() { # MS
	table "0 $sectors delay $loop 0 $1" && python3 - "$1" <<-PY
		import os, sys, time
		fd, began = os.open("/mnt/ds3/probe",
		                    os.O_CREAT | os.O_WRONLY | os.O_DSYNC), time.time()
		os.write(fd, b"x")
		sys.exit(time.time() - began < float(sys.argv[1]) / 1000)
	PY
}
flaky_disk() { table "0 $sectors flakey $loop 0 $1 $2"; } # SECONDS it works, SECONDS it fails
failing_disk() { table "0 $sectors error"; }
slow_net() { tc qdisc add dev lo root netem "$@"; }
# It lasts until a packet is lost: with a few hundred that is not sure.
well_net() {
	local felt=1 i
	for i in {1..150}; do
		tc -s qdisc show dev lo | grep -E 'Sent [0-9]{6,} .*dropped [1-9]' && {
			felt=0
			break
		}
		sleep 0.2
	done
	[ $felt = 0 ] || tc -s qdisc show dev lo
	tc qdisc del dev lo root
	return $felt
}
well_again() {
	well
	[ "$(ds_metric ds3 weft_ds_disk_errors_total)" -gt "$errors" ] || {
		echo "no error of the disk since $errors"
		return 1
	}
	errors=$(ds_metric ds3 weft_ds_disk_errors_total)
}
writers() { "${0%/*}/acked.sh" 60 600 "$@" >"$WEFT_SHARED/writers" 2>&1 & writers=$!; }
start_ds() { # PORT
	"$BUILD/weft-ds" -o ds.name=ds3 -o ds.store=/mnt/ds3/store -o ds.cluster_key="$KEY" \
		-o ds.mds="$MDS" -o ds.listen="$LAB_SELF:$1" -o ds.admin=unix:/run/ds3.sock \
		2>>/run/ds3.log &
	ds_pid[ds3]=$!
	for i in {1..150}; do
		! ds_get ds3 /v1/health | grep -q '"joined": *true' || return 0
		sleep 0.2
	done
	tail -20 /run/ds3.log
	return 1
}
# The copies: those of the host's servers are seen here, too.
whole() { # CLUSTER FOLDER NAME...
	local cluster=$1 folder=$2 d
	shift 2
	mkdir -p /run/stores
	for d in ds1 ds2; do ln -sfn "$cluster/$d" /run/stores/$d; done
	ln -sfn /mnt/ds3/store /run/stores/ds3
	echo 3 >/proc/sys/vm/drop_caches
	python3 "${0%/*}/acked.py" mirrors /run/stores "$folder" "$WEFT_SHARED" "$@"
}
errors=0
dmesg -n 1
ok "a data server on a disk of its own"
for ((n = 1; ; n++)); do
	until [ -e "$WEFT_SHARED/do.$n" ] || [ -e "$WEFT_SHARED/end" ]; do sleep 0.05; done
	[ -e "$WEFT_SHARED/do.$n" ] || break
	read -r command <"$WEFT_SHARED/do.$n"
	$command >"$WEFT_SHARED/did.$n" 2>&1
	echo $? >"$WEFT_SHARED/done.$n.new"
	mv "$WEFT_SHARED/done.$n.new" "$WEFT_SHARED/done.$n"
done
wait "$writers"
cat "$WEFT_SHARED/writers"
ds_complaints ds3
ds_stop ds3
