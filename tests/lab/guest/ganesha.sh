#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# ganesha.sh FLOOR-PROGRAM MIB - the client's side of tests/bench/beside.py. What to use is in
# $WEFT_SHARED/servers, a line for each:
#   NAME v3 FOLDER PORT MOUNT-PORT | NAME weft MOUNT-COMMAND... | NAME bare PORT
. "$(dirname "$0")/lib.sh"
floor=$1 mib=$2
size=$((mib << 20))
opts=vers=3,proto=tcp,mountproto=tcp,nolock,hard,rsize=1048576,wsize=1048576
declare -A point port
while read -r name kind what; do
	set -- $what
	case $kind in
		bare) port[$name]=$1; continue ;;
		v3) set -- mount -t nfs -o "$opts,port=$2,mountport=$3" "$LAB_HOST:$1" ;;
	esac
	point[$name]=/mnt/$name
	mkdir "/mnt/$name"
	timeout 60 "$@" "/mnt/$name" || { not_ok "mount of $name"; dmesg | tail -5; exit 1; }
	if [ "$kind" = weft ]; then
		mkdir -p "/mnt/$name/one"
		policy "/mnt/$name/one" stripes=1,mirrors=1
		point[$name]=/mnt/$name/one
		dd if=/dev/zero of="/mnt/$name/one/file" bs=1M count="$mib" conv=fsync status=none
	fi
done <"$WEFT_SHARED/servers"
sync

# calls NAME: how many READs, WRITEs and COMMITs its mount has sent, but for those to data servers.
calls() {
	awk -v m="/mnt/$1" '$1 == "device" { here = $5 == m } here &&
		$1 == "READ:" { r = $2 } here && $1 == "WRITE:" { w = $2 }
		here && $1 == "COMMIT:" { c = $2 }
		END { print r + 0, w + 0, c + 0 }' /proc/self/mountstats
}
load() { # FILE COUNT RW BS [OPTION...]: count of BS bytes
	fio --name=x --filename="$1" --size="$size" --rw="$3" --bs="$4" --io_size="$(($2 * $4))" \
		--norandommap --randrepeat=0 --thread --eta=never \
		--output=/run/fio "${@:5}"
}
stock() { # FILE WORK COUNT
	case $2 in
		read-1m) load "$1" "$3" read $((1 << 20)) --direct=1 --ioengine=libaio --iodepth=8 \
			;;
		write-1m) dd if=/dev/zero of="$1" bs=1M count="$3" conv=notrunc,fsync status=none ;;
		read-4k) load "$1" "$3" randread 4096 --direct=1 --ioengine=libaio --iodepth=16 ;;
		# Every other page, so that the client joins no two of them.
		write-4k) load "$1" "$3" randwrite 4096 --blockalign=8192 --ioengine=psync \
			--end_fsync=1 ;;
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
answer() { # NUMBER TEXT
	echo "$2" >"$WEFT_SHARED/done.new"
	mv "$WEFT_SHARED/done.new" "$WEFT_SHARED/done.$1"
}

for ((i = 1; ; i++)); do
	wait_flag todo.$i 200
	read -r server work count <"$WEFT_SHARED/todo.$i"
	[ "$work" != end ] || break
	echo 3 >/proc/sys/vm/drop_caches
	if [ -n "${port[$server]:-}" ]; then
		bare "${port[$server]}" "$work" "$count"
		answer $i $?
		continue
	fi
	before=($(calls "$server"))
	stock "${point[$server]}/file" "$work" "$count"
	status=$?
	after=($(calls "$server"))
	answer $i "$status $((after[0] - before[0])) $((after[1] - before[1])) \
$((after[2] - before[2]))"
done
answer $i 0
for name in "${!point[@]}"; do umount "/mnt/$name"; done
