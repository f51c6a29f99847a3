# SPDX-License-Identifier: Apache-2.0
# lib.sh - the functions of the host side of a lab test (t_*.sh). run sources it, then the test.
#
# LAB_DIR is the test's folder, CLUSTER the cluster's in it, SHARED one that guests and host both
# use for flags.
CLUSTER=$LAB_DIR/c
SHARED=$LAB_DIR/shared
weft_dev=$LAB_HERE/../../tools/weft-dev
export WEFT_SHARED=$SHARED
mkdir -p "$SHARED"

# Without a process of its own: a fork takes longer than many of these waits, in a guest above all.
# It never reads anything here.
mkfifo "$LAB_DIR/nap"
exec {NAP}<>"$LAB_DIR/nap"
sleep() { read -rt "$1" -u "$NAP"; return 0; }

ok() { echo "ok - $*"; }
not_ok() { echo "not ok - $*"; }
skip() { echo "skip - $*"; }
# check NAME COMMAND...: the command's status decides. It prints the command's output on failure.
check() {
	local name=$1 out
	shift
	if out=$("$@" 2>&1); then ok "$name"; else
		not_ok "$name"
		printf '%s\n' "$out" | tail -20 | sed 's/^/#   /'
		return 1
	fi
}
# same NAME GOT WANT
same() {
	if [ "$2" = "$3" ]; then ok "$1"; else not_ok "$1: got '$2', want '$3'"; fi
}

# cluster_up [OPTION...]: four data servers at the lab's address; short leases, so that recovery
# takes seconds.
cluster_up() {
	WEFT_MOUNT=$("$weft_dev" up "$CLUSTER" --ds 4 --addr 10.77.0.1 --set mds.lease=10s --set \
		mds.grace=10s "$@") || {
		not_ok "the cluster starts"
		exit 1
	}
	export WEFT_MOUNT
}
dev() { # COMMAND ARG...: weft-dev on the cluster
	local command=$1
	shift
	"$weft_dev" "$command" "$CLUSTER" "$@"
}
weft() {
	local admin
	admin=$(daemon mds admin)
	"$WEFT_BUILD/weft" --admin "$admin" "$@"
}
# NAME FIELD: of weft-dev status. It finds what tests ask for often by itself, where
# weft-dev puts it.
daemon() {
	local pid
	case $2 in
		pid)
			pid=$(cat "$CLUSTER/run/$1.pid" 2>/dev/null)
			case $(readlink "/proc/${pid:-none}/exe") in */weft-* | */ganesha.nfsd) \
				echo "$pid"
			return ;; esac
			;;
		admin) [ ! -S "$CLUSTER/run/$1.sock" ] || {
			echo "unix:$(realpath "$CLUSTER")/run/$1.sock"
			return
		} ;;
	esac
	dev status --json | python3 -c '
import json, sys
print(next(d[sys.argv[2]] for d in json.load(sys.stdin)["daemons"]
		if d["name"] == sys.argv[1]))' "$1" "$2"
}
# metric DAEMON[,DAEMON...] NAME [LABEL=VALUE]...: the sum of the series that have these labels.
metric() {
	# Below a folder with a long name, daemons have no Unix sockets: metric.py asks
	# weft-dev where.
	if [ -S "$CLUSTER/run/mds.sock" ]; then
		"$WEFT_BUILD/tests/lab/metric" "$CLUSTER" "$@"
	else
		python3 -S "$LAB_HERE/metric.py" "$CLUSTER" "$@"
	fi
}

# Ends the cluster (also at the end of every test): the daemons must have lived to here without a
# complaint, and the store must be sound.
cluster_down() {
	local d alive=1
	for d in $(dev status --json |
		python3 -c 'import json, sys
print(*[d["name"] for d in json.load(sys.stdin)["daemons"]
		if not d["pid"]])'); do
		not_ok "$d still runs at the end"
		tail -20 "$CLUSTER/log/$d.log" | sed 's/^/#   /'
		alive=
	done
	[ -z "$alive" ] || ok "every daemon still runs at the end"
	check "the cluster stops" dev down
	if grep -nE 'Sanitizer|runtime error|[Aa]ssert|FATAL|SUMMARY|read handles open' \
		"$CLUSTER"/log/*.log >"$LAB_DIR/complaints"; then
		not_ok "no daemon complains"
		for d in "$CLUSTER"/log/*.log; do
			grep -qE 'Sanitizer|runtime error|[Aa]ssert|FATAL' "$d" &&
				grep -E -A40 'Sanitizer|runtime error|[Aa]ssert|FATAL' "$d" |
				head -60 | sed "s|^|#   $(basename "$d"): |"
		done
	else
		ok "no daemon complains"
	fi
	check "weft-fsck finds the name space sound" "$WEFT_BUILD/weft-fsck" "$CLUSTER/mds"
}
cluster_end() {
	[ ! -e "$CLUSTER/cluster.json" ] || cluster_down
}

# guest [-m MEM] [-t SECONDS] N SCRIPT [ARG...]: boots guest N and runs guest/SCRIPT in it. A status
# other than 0 is a failure.
guest() {
	local mem=1G limit=300 rc n script
	while :; do case $1 in
		-m) mem=$2; shift 2 ;;
		-t) limit=$2; shift 2 ;;
		*) break ;;
	esac; done
	n=$1 script=$2
	shift 2
	"$LAB_HERE/lab" -m "$mem" -t "$limit" -n "$n" /usr/bin/env "WEFT_MOUNT=$WEFT_MOUNT" \
		"WEFT_SHARED=$SHARED" \
		"LAB_MANY=${LAB_MANY:-}" "$LAB_HERE/guest/$script" "$@"
	rc=$?
	case $rc in
		0) ;;
		124) not_ok "guest $n ends $script within $limit s" ;;
		# it ended itself, and says why
		125) [ -e "$SHARED/hang" ] || not_ok "guest $n runs $script to its end" ;;
		*) not_ok "guest $n runs $script to its end (status $rc)" ;;
	esac
	return $rc
}
# Flags: files in SHARED. A guest has the same two functions.
flag() { : >"$SHARED/$1"; }
wait_flag() { # NAME [SECONDS]
	local end=$((SECONDS + ${2:-120}))
	until [ -e "$SHARED/$1" ]; do
		[ $SECONDS -lt $end ] || { not_ok "flag $1 within ${2:-120} s"; return 1; }
		sleep 0.05
	done
}
# stand_still PID: sends SIGSTOP, and returns when no thread of the process runs any more. A thread
# goes on until it has its turn on a processor.
stand_still() {
	local end=$((SECONDS + 30))
	kill -STOP "$1" || return 1
	while sed 's/.*) //' "/proc/$1"/task/*/stat 2>/dev/null | grep -q '^[^TtZX]'; do
		[ $SECONDS -lt $end ] || { not_ok "process $1 stands still"; return 1; }
		sleep 0.02
	done
}
# Objects on all data servers, and waiting for none (deletes run after the reply).
objects() { find "$CLUSTER"/ds*/objects -type f 2>/dev/null | wc -l; }
no_objects() { # SECONDS
	local end=$((SECONDS + $1))
	while [ "$(objects)" != 0 ]; do
		[ $SECONDS -lt $end ] || {
			echo "$(objects) objects are left:"
			find "$CLUSTER"/ds*/objects -type f | head -5
			return 1
		}
		sleep 0.2
	done
}
