#!/bin/bash
# ganesha.sh TREE WEFT-PORT GANESHA-PORT GANESHA-MOUNT-PORT FLOOR-PROGRAM FLOOR-PORT FLOOR-FILE-PORT MIB - the client's side of tests/bench/beside.py.
. "$(dirname "$0")/lib.sh"
tree=$1 weft=$2 nfs=$3 mnt=$4 floor=$5 bare=$6 file=$7 mib=$8
size=$((mib << 20))
opts=vers=3,proto=tcp,mountproto=tcp,nolock,hard,rsize=1048576,wsize=1048576
mount_v3() { # NAME PORT MOUNT-PORT
	mkdir -p "/mnt/$1"
	timeout 60 mount -t nfs -o "$opts,port=$2,mountport=$3" "$LAB_HOST:$tree" "/mnt/$1" || { not_ok "mount of $1"; exit 1; }
}
mount_v3 by-path "$weft" "$weft"
mount_v3 ganesha "$nfs" "$mnt"
mount_weft
policy $M stripes=1,mirrors=1
dd if=/dev/zero of=$M/file bs=1M count="$mib" conv=fsync status=none
sync

# calls MOUNT-POINT: how many READs, WRITEs and COMMITs it has sent.
calls() {
	awk -v m="$1" '$1 == "device" { here = $5 == m } here && $1 == "READ:" { r = $2 } here && $1 == "WRITE:" { w = $2 } here && $1 == "COMMIT:" { c = $2 }
		END { print r + 0, w + 0, c + 0 }' /proc/self/mountstats
}
load() { # FILE COUNT RW BS [OPTION...]: count of BS bytes
	fio --name=x --filename="$1" --size="$size" --rw="$3" --bs="$4" --io_size="$(($2 * ($4)))" --norandommap --randrepeat=0 --thread --output=/run/fio "${@:5}"
}
stock() { # FILE WORK COUNT
	case $2 in
		read-1m) load "$1" "$3" read $((1 << 20)) --direct=1 --ioengine=libaio --iodepth=8 ;;
		write-1m) dd if=/dev/zero of="$1" bs=1M count="$3" conv=notrunc,fsync status=none ;;
		read-4k) load "$1" "$3" randread 4096 --direct=1 --ioengine=libaio --iodepth=16 ;;
		# Every other page, so that the client joins no two of them.
		write-4k) load "$1" "$3" randwrite 4096 --blockalign=8192 --ioengine=psync --end_fsync=1 ;;
		sync-4k) load "$1" "$3" randwrite 4096 --direct=1 --ioengine=libaio --iodepth=16 ;;
	esac
}
bare() { # PORT WORK COUNT
	case $2 in
		read-1m) "$floor" call "$LAB_HOST" "$1" 0 $((1 << 20)) "$3" 8 0 ;;
		write-1m) "$floor" call "$LAB_HOST" "$1" $((1 << 20)) 0 "$3" 8 0 ;;
		read-4k) "$floor" call "$LAB_HOST" "$1" 0 4096 "$3" 16 "$size" ;;
		write-4k | sync-4k) "$floor" call "$LAB_HOST" "$1" 4096 0 "$3" 16 "$size" ;;
	esac
}

for ((i = 1; ; i++)); do
	wait_flag todo.$i 200
	read -r server work count <"$WEFT_SHARED/todo.$i"
	[ "$work" != end ] || break
	before=(0 0 0) after=(0 0 0) point=/mnt/$server
	[ "$server" != layout ] || point=$M
	echo 3 >/proc/sys/vm/drop_caches
	before=($(calls "$point"))
	case $server in
		bare) bare "$bare" "$work" "$count" ;;
		bare+file) bare "$file" "$work" "$count" ;;
		*) stock "$point/file" "$work" "$count" ;;
	esac
	status=$?
	after=($(calls "$point"))
	if [ -d "$point" ]; then
		status="$status $((after[0] - before[0])) $((after[1] - before[1])) $((after[2] - before[2]))"
	fi
	echo "$status" >"$WEFT_SHARED/done.new"
	mv "$WEFT_SHARED/done.new" "$WEFT_SHARED/done.$i"
done
echo 0 >"$WEFT_SHARED/done.$i.new"
mv "$WEFT_SHARED/done.$i.new" "$WEFT_SHARED/done.$i"
umount /mnt/by-path /mnt/ganesha
umount_weft
