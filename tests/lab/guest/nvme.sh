#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
. "$(dirname "$0")/lib.sh"
here=$(cd "$(dirname "$0")/.." && pwd)
export WEFT_BUILD=$1
NQN=nqn.2014-08.org.example:weft
target=/sys/kernel/config/nvmet
CLUSTER=/run/c
dev() { local c=$1; shift; python3 "$WEFT_BUILD/tools/weft-dev" "$c" $CLUSTER "$@"; }
metric() { "$WEFT_BUILD/tests/lab/metric" $CLUSTER "$@"; }
# within SECONDS COMMAND...
within() {
	local end=$((SECONDS + $1))
	shift
	until "$@" >/dev/null 2>&1; do
		[ $SECONDS -lt $end ] || return 1
		sleep 0.05
	done
}

# ---- the target, and its paths: 1 is loop, 2 and 3 are TCP

# On a file: a loop device takes memory on sector boundaries only. The loop transport hands it the
# host's memory, and NVMe takes any address that is a multiple of four.
namespace() { # FILE
	mkdir $target/subsystems/$NQN
	echo 1 >$target/subsystems/$NQN/attr_allow_any_host
	mkdir $target/subsystems/$NQN/namespaces/1
	echo -n "$1" >$target/subsystems/$NQN/namespaces/1/device_path
	echo 1 >$target/subsystems/$NQN/namespaces/1/enable
}
port() { # PATH: made, not yet linked
	local p=$target/ports/$1
	mkdir $p || return 1
	if [ "$1" = 1 ]; then
		echo loop >$p/addr_trtype
	else
		echo tcp >$p/addr_trtype
		echo ipv4 >$p/addr_adrfam
		echo 127.0.0.1 >$p/addr_traddr
		echo $((4420 + $1)) >$p/addr_trsvcid
	fi
}
link() { ln -s $target/subsystems/$NQN $target/ports/$1/subsystems/$NQN; }
unlink() { rm $target/ports/$1/subsystems/$NQN; }
ana() { echo "$2" >$target/ports/$1/ana_groups/1/ana_state; } # PATH STATE
# The host tries a lost path again each second, for ten minutes.
connect() { # PATH
	local how=transport=loop
	[ "$1" = 1 ] ||
		how=transport=tcp,traddr=127.0.0.1,trsvcid=$((4420 + $1))\
,reconnect_delay=1,ctrl_loss_tmo=600
	exec 9<>/dev/nvme-fabrics
	echo "nqn=$NQN,$how" >&9
	exec 9>&-
	within 10 live "$1"
}
controller() { # PATH: its name, if it is there
	local c want="trsvcid=$((4420 + $1))"
	for c in /sys/class/nvme/nvme*; do
		[ -e $c/transport ] || continue
		if [ "$1" = 1 ]; then [ "$(cat $c/transport)" != loop ] || echo ${c##*/}
		else [[ $(cat $c/address) != *$want* ]] || echo ${c##*/}; fi
	done
}
state() { cat "/sys/class/nvme/$(controller $1)/state" 2>/dev/null; }
live() { [ "$(state $1)" = live ] && [ -e "$(echo /sys/class/nvme/$(controller $1)/nvme*c*n1)" ]; }
delete() { echo 1 >/sys/class/nvme/$(controller $1)/delete_controller; }
carried() { # PATH: how many reads and writes so far
	awk '{ print $1 + $5 }' /sys/class/nvme/$(controller $1)/nvme*c*n1/stat 2>/dev/null ||
		echo 0
}

# ---- the application

app_start() { # NAME FILE [OLD]
	app=/run/$1
	rm -f $app.stop
	echo 0 >$app.rounds
	timeout 300 python3 "$here/guest/nvme_io.py" $2 $app ${3:-} &
	app_pid=$!
}
app_rounds() { cat $app.rounds || echo 0; }
app_past() { kill -0 $app_pid 2>/dev/null && [ "$(app_rounds)" -ge "$1" ]; } # ROUNDS
app_goes_on() { within "${1:-15}" app_past $(($(app_rounds) + 3)); }
app_lives() { # or the rest makes no sense
	kill -0 $app_pid 2>/dev/null && return
	for d in mds ds1; do tail -8 $CLUSTER/log/$d.log | sed "s/^/# $d: /"; done
	dmesg | tail -20 | sed 's/^/# /'
	exit 1
}
app_stop() { # NAME
	: >$app.stop
	if wait $app_pid; then
		ok "$1 ($(app_rounds) rounds, the longest took $(cat $app.slowest) s)"
	else
		not_ok "$1"
	fi
}
moved() { [ "$(carried $1)" -ge "$2" ]; }
# The application goes on, and this path carries it.
carries() { # NAME PATH
	check "$1" app_goes_on || app_lives
	check "$1: path $2 carries the I/O" within 10 moved $2 $(($(carried $2) + 30))
}
# No warning, and nothing from a sanitizer. Which server the metadata server hears first
# does not matter.
log_clean() { # NAME DAEMON
	if grep -nE '^(ERROR|WARN)|Sanitizer|runtime error|[Aa]ssert' $CLUSTER/log/$2.log |
		grep -vE 'the cluster key, which|its own keys|no join yet' >/run/grepped; then
		not_ok "$1"
		head -5 /run/grepped | sed 's/^/#   /'
	else
		ok "$1"
	fi
}

# ---- the test pulls one path after another, of those in use and of the others

one_path() {
	carries "all paths are there" 1
	unlink 1
	check "the path in use is gone" test -z "$(controller 1)"
	check "the path in use is pulled" app_goes_on
	link 1
	check "it is put back" connect 1
	carries "it is put back" 1

	unlink 3
	check "another path is lost" within 5 not_live 3
	carries "another path is pulled" 1
	link 3
	check "it comes back by itself" within 10 live 3

	ana 1 inaccessible
	ana 2 optimized
	carries "the path in use becomes inaccessible" 2
	unlink 2
	check "the path in use, TCP, is lost" within 5 not_live 2
	carries "the path in use, TCP, is pulled" 3
	link 2
	check "that comes back by itself" within 10 live 2
	carries "that comes back" 2
	delete 2
	check "the controller of the path in use is deleted" app_goes_on
	check "and made anew" connect 2
	ana 1 optimized
	ana 2 non-optimized
	carries "the first path is accessible again" 1
}
not_live() { [ "$(state $1)" != live ]; }

# All at once: I/O waits.
all_paths() {
	local before
	delete 1
	unlink 2
	unlink 3
	check "all paths are lost" within 5 not_live 2
	sleep 1
	before=$(app_rounds)
	sleep 3
	check "without a path nothing goes on" test $(($(app_rounds) - before)) -le 1
	check "the data server answers meanwhile" \
		timeout 2 "$WEFT_BUILD/tests/lab/metric" $CLUSTER ds1 weft_ds_joined
	link 3
	carries "one path comes back" 3
	link 2
	within 10 live 2
	connect 1
}

# ---- the drive goes for good; files of d/ have a copy elsewhere, those of single/ have not

# FILE: which server has it
server() {
	layout "$1" |
		python3 -c 'import re, sys; print(*sorted(set(re.findall(r"\"ds\": *\"(\w+)\"",
			sys.stdin.read()))))'
}
available() {
	"$WEFT_BUILD/weft" --admin unix:$CLUSTER/run/mds.sock --json ds list |
		python3 -c 'import json, sys
print(*[d["available"] for d in json.load(sys.stdin)["ds"]
			if d["name"] == sys.argv[1]])' "$1"
}
failed() { [ "$(metric ds1 weft_ds_store_failing)" = "$1" ]; }
only_on() { # DAEMON: the files of single/ that it holds
	local f
	for f in $M/single/*; do [ "$(server "$f")" != "$1" ] || echo "$f"; done
}
no_room() { [ "$(available ds1)" = 0 ]; }
put() { cp /run/src "$1" && timeout 20 sync "$1"; }

gone() {
	local f lost written kept
	for f in 1 2 3 4 5 6 7 8; do put $M/single/$f; done
	lost=$(only_on ds1 | head -1) written=$(only_on ds1 | tail -1) kept=$(only_on ds2 | head -1)
	check "both data servers hold files" test -n "$lost" -a "$written" != "$lost" -a -n "$kept"
	check "both copies are written" app_goes_on || app_lives
	delete 1
	delete 2
	delete 3
	same "the drive is gone" "$(controller 1)$(controller 2)$(controller 3)" ""
	check "without it the application goes on with the other copy" app_goes_on 40
	check "the errors are counted" test "$(metric ds1 weft_ds_disk_errors_total)" -gt 0
	cold
	fails "what was there alone cannot be written" "Input/output error" timeout -s KILL 20 dd \
		if=/run/src of="$written" bs=1M conv=notrunc,fsync
	check "what is elsewhere can" cmp "$kept" /run/src
	# A reader may be kept waiting for the drive, but gets no data.
	same "what was there alone is not read" "$(timeout 3 cat "$lost" 2>/dev/null | wc -c)" 0
	check "the data server says that its store fails" within 5 failed 1
	check "and says so once" \
		[ "$(grep -c 'ERROR.*this server reports no free space' $CLUSTER/log/ds1.log)" = 1 ]
	check "there is no room on it" within 5 no_room
	check "a new file with two copies" put $M/d/new
	for f in a b c d; do
		check "a new file" put $M/single/$f
		same "a new file is on the other data server" "$(server $M/single/$f)" ds2
	done
	app_stop "no error reaches the application"
	remount_weft
	check "all data is there, from the copy" cmp $M/d/f $app.copy
	check "and the new file's" cmp $M/d/new /run/src
	same "the data server ends in order" "$(timeout 20 python3 "$WEFT_BUILD/tools/weft-dev" \
		kill $CLUSTER ds1 2>&1)" ""

	umount $CLUSTER/ds1
	for f in 1 2 3; do connect $f; done
	mount /dev/nvme0n1 $CLUSTER/ds1 && dev start ds1
	check "the drive is put back" failed 0
	remount_weft
	check "what was only there is there again" cmp "$lost" /run/src
	check "what it missed is not read from it" cmp $M/d/f $app.copy
	umount_weft
}

# ---- a store on the drive

truncate -s 320M /run/disk
namespace /run/disk || { not_ok "an NVMe target"; exit 1; }
for p in 1 2 3; do
	port $p
	[ $p = 1 ] || ana $p non-optimized
	link $p && connect $p || { not_ok "path $p"; exit 1; }
done
mkfs.xfs -q /dev/nvme0n1 || { not_ok "XFS on the multipath device"; exit 1; }
WEFT_MOUNT=$(dev up --ds 1 --addr "$LAB_SELF" --set mds.lease=10s --set mds.grace=2s) || {
	not_ok "the cluster starts"
	exit 1
}
dev kill ds1
cp -a $CLUSTER/ds1 /run/empty
mount /dev/nvme0n1 $CLUSTER/ds1 && cp -a /run/empty/. $CLUSTER/ds1 || {
	not_ok "the store moves to the drive"
	exit 1
}
dev start ds1 || { not_ok "ds1 starts"; exit 1; }
same "weft topo knows the drive's paths" "$("$WEFT_BUILD/weft" topo --near $CLUSTER/ds1 --json |
	python3 -c 'import json, sys; print(*json.load(sys.stdin)["drives"])')" \
	"$(controller 1) $(controller 2) $(controller 3)"

mount_weft
app_start paths $M/f
one_path
all_paths
app_stop "no error reaches the application"
remount_weft
check "from a cold cache all data is there" cmp $M/f $app.copy
direct=$(metric ds1 weft_ds_disk_io_total path=direct) \
	buffered=$(metric ds1 weft_ds_disk_io_total path=buffered) \
	fixed=$(metric ds1 weft_ds_fixed_io_total)
check "most of the I/O is direct ($direct; buffered: $buffered)" test "$direct" \
	-gt $((2 * buffered))
check "and from and to memory that the ring knows ($fixed)" test $((fixed * 2)) -gt "$direct"
umount_weft
log_clean "the data server has nothing to complain of" ds1
same "and counted no error" "$(metric ds1 weft_ds_disk_errors_total)" 0

dev down
umount $CLUSTER/ds1 && mount /dev/nvme0n1 $CLUSTER/ds1
dev up --ds 2 >/dev/null || { not_ok "the cluster starts with two data servers"; exit 1; }
mount_weft
check "all data is there after all was taken down" cmp $M/f $app.copy
mkdir $M/d $M/single
policy $M/d stripes=1,mirrors=2
policy $M/single stripes=1
head -c 1M /dev/urandom >/run/src
app_start drive $M/d/f
gone
log_clean "the other data server has nothing to complain of" ds2
grep -hE 'Sanitizer|runtime error|[Aa]ssert|FATAL' $CLUSTER/log/*.log | head -20 |
	sed 's/^/not ok - a daemon complains: /'
check "the daemons stop" timeout 30 python3 "$WEFT_BUILD/tools/weft-dev" down $CLUSTER

