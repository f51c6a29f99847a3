#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The resource agents ocf:weft:mds and ocf:weft:ds: each action and each of its answers, with real
# daemons, and with stand-ins for a daemon that ends badly and for systemctl. Prints TAP. As root.
set -u
build=${top_builddir:-$PWD}
work=$(mktemp -d)
chmod 755 "$work"
# The codes of OCF 1.1.
OK=0 GENERIC=1 ARGS=2 UNIMPLEMENTED=3 PERM=4 INSTALLED=5 CONFIGURED=6 STOPPED=7 DEGRADED=190
n=0 failed=0 frozen=''
under=()

skip_all() { echo "1..0 # SKIP $1"; exit 0; }
[ "$(id -u)" = 0 ] || skip_all "needs root"
for f in /usr/lib/ocf/lib/heartbeat/ocf-shellfuncs /usr/sbin/ocf-tester; do
	[ -e $f ] || skip_all "no $f (tools/setup tests)"
done
end() {
	local p
	[ -z "$frozen" ] || kill -CONT "$frozen"
	for p in $(pgrep -x 'weft-(mds|ds)'); do
		! tr '\0' ' ' <"/proc/$p/cmdline" | grep -qF "$work" || kill -KILL "$p"
	done
	umount "$work/disk" 2>/dev/null
	rm -rf "$work"
} 2>/dev/null
trap end EXIT

# ---- two agents that find their programs in a folder of the test's

mkdir "$work/bin" "$work/etc" "$work/disk" "$work/fake"
for p in weft-mds weft-ds weft; do ln -s "$build/$p" "$work/bin/$p"; done
for a in mds ds; do
	sed -e "s,^daemon=.*,daemon=$work/bin/weft-$a," -e "s,^weft=.*,weft=$work/bin/weft," \
		-e "s,own=[^ ]*/,own=$work/etc/," "$build/dist/ocf/$a" >"$work/$a"
	chmod +x "$work/$a"
done
head -c 32 /dev/urandom | od -An -v -tx1 | tr -d ' \n' >"$work/key"
chmod 400 "$work/key"
mds_conf() { # FILE PORT
	printf 'mds {\n\tlisten = "127.0.0.1:%s"\n\tcluster_key = %s\n' "$2" "$work/key" >"$1"
	printf '\tpool = "16M"\n\tthreads = 1\n}\n' >>"$1"
}
ds_conf() { # FILE PORT
	printf 'ds {\n\tname = ds%s\n' "$2" >"$1"
	printf '\tlisten = "127.0.0.1:%s"\n\tadvertise = "127.0.0.1:%s"\n' "$2" "$2" >>"$1"
	printf '\tmds = "127.0.0.1:2049"\n\tcluster_key = %s\n\tpool = "32M"\n\tthreads = 1\n}\n' \
		"$work/key" >>"$1"
}
mds_conf "$work/etc/weft.conf" 2049
mds_conf "$work/etc/mds-b.conf" 2149
ds_conf "$work/etc/ds-a.conf" 2050
ds_conf "$work/etc/ds-b.conf" 2150
export OCF_ROOT=/usr/lib/ocf OCF_RESOURCE_INSTANCE=tested
export HA_LOGFACILITY=none HA_LOGFILE=$work/ha.log

# settings WHAT NAME: prints the resource's parameters. Its store is $work/disk/WHAT-NAME.
settings() {
	printf 'OCF_RESKEY_%s\n' "user=nobody" "mountpoint=$work/disk" \
		"config=$work/etc/$([ "$2" = . ] && echo weft || echo "$1-$2").conf" \
		"store=$work/disk/$1-$2" "admin=$work/run-$1-$2/admin" "logfile=$work/$1-$2.log"
}
# does CODE ACTION WHAT NAME [VARIABLE=VALUE...]: the agent answers so. The command "under" runs it.
does() {
	local want=$1 action=$2 what=$3 name=$4 got
	shift 4
	mapfile -t set < <(settings "$what" "$name")
	env "${set[@]}" "$@" "${under[@]}" "$work/$what" "$action" >"$work/out" 2>&1
	got=$?
	[ $got = "$want" ] && return 0
	echo "$what $name $action: $got instead of $want"
	cat "$work/out"
	tail -n 5 "$work/$what-$name.log"
	return 1
}
says() { grep -F "$1" "$work/out" || { cat "$work/out"; return 1; }; }
# pid WHAT NAME: of the daemon.
pid() {
	local p
	for p in $(pgrep -x "weft-$1"); do
		! tr '\0' '\n' <"/proc/$p/cmdline" | grep -qxF "$1.store=$work/disk/$1-$2" ||
			echo "$p"
	done 2>/dev/null
}
# until_it COMMAND...: at most a minute.
until_it() {
	local end=$((SECONDS + 60))
	until "$@" >"$work/last" 2>&1; do
		[ $SECONDS -lt $end ] ||
			{ echo "not within a minute: $*"; tail -n 8 "$work/last"; return 1; }
		sleep 0.1
	done
}
# gone PID WHAT NAME: the process has ended, and the store is free.
gone() {
	local lock=LOCK
	[ "$2" = mds ] || lock=lock
	! grep -qsv '^State:.*Z' <(grep '^State:' "/proc/$1/status" 2>/dev/null) &&
		flock -n "$work/disk/$2-$3/$lock" true
}

# ---- the tests, in this order

described() {
	local a
	for a in mds ds; do
		"$work/$a" meta-data >"$work/$a.xml" || return 1
		grep -F "<resource-agent name=\"$a\"" "$work/$a.xml" || return 1
		command -v xmllint >/dev/null || continue
		xmllint --noout --nonet --relaxng /usr/share/resource-agents/metadata.rng \
			"$work/$a.xml" || return 1
	done
}
# What Pacemaker is told to call, the agent has.
described_actions() {
	local a
	for a in $(sed -n 's/.*<action name="\([a-z-]*\)".*/\1/p' "$work/mds.xml"); do
		grep -qE "(^|[ (|	])$a([ )|])" <(sed -n '/^case/,$p' "$work/mds") || return 1
	done
	does $UNIMPLEMENTED promote mds . && does $UNIMPLEMENTED "" ds a && does $OK usage ds a
}
parameters() {
	does $CONFIGURED validate-all mds . OCF_RESKEY_store=relative && says "store:" &&
		does $CONFIGURED validate-all ds a OCF_RESKEY_admin=unix:/run/x && says "admin:" &&
		does $CONFIGURED start mds . OCF_RESKEY_name=../x && says "name:" &&
		does $CONFIGURED start mds . OCF_RESKEY_mountpoint=/other && says "mountpoint:" &&
		does $OK stop mds . OCF_RESKEY_mountpoint=/other &&
		does $STOPPED monitor mds . OCF_RESKEY_mountpoint=/other &&
		does $OK validate-all mds . && does $OK validate-all ds a
}
not_installed() {
	local a
	for a in mds ds; do
		rm "$work/bin/weft-$a"
		does $INSTALLED validate-all $a . && does $INSTALLED start $a . &&
			does $INSTALLED monitor $a . OCF_RESKEY_CRM_meta_interval=5000 &&
			does $STOPPED monitor $a . OCF_RESKEY_CRM_meta_interval=0 &&
			does $OK stop $a . || return 1
		ln -s "$build/weft-$a" "$work/bin/weft-$a"
		does $INSTALLED validate-all $a . OCF_RESKEY_config="$work/none" &&
			does $INSTALLED start $a . OCF_RESKEY_user=nobody-of-weft &&
			does $STOPPED monitor $a . OCF_RESKEY_config="$work/none" || return 1
	done
}
bad_configuration() {
	local f=$work/etc/mds-bad.conf
	echo 'mds { leese = 3s }' >"$f"
	does $ARGS validate-all mds bad && says "mds-bad.conf" && does $ARGS start mds bad &&
		does $STOPPED monitor mds bad && does $OK stop mds bad || return 1
	# What only the daemon can find.
	printf 'mds {\n\tcluster_key = %s\n}\n' "$work/none" >"$f"
	does $OK validate-all mds bad && does $ARGS start mds bad && says "mds.cluster_key"
}
not_mounted() {
	local a
	for a in mds ds; do
		does $INSTALLED start $a b && says "nothing is mounted on" &&
			does $INSTALLED start $a b OCF_RESKEY_mountpoint= && says "has no store" &&
			does $STOPPED monitor $a b OCF_RESKEY_CRM_meta_interval=0 &&
			does $STOPPED monitor $a b OCF_RESKEY_CRM_meta_interval=5000 &&
			does $OK stop $a b || return 1
	done
	[ -z "$(ls "$work/disk")" ]
}
mounted() {
	truncate -s 512M "$work/disk.img" && mkfs.ext4 -q -O ^has_journal "$work/disk.img" &&
		mount -o loop "$work/disk.img" "$work/disk"
}
it_starts() {
	local p
	does $OK start mds . INVOCATION_ID=1 NOTIFY_SOCKET="$work/notify" WATCHDOG_USEC=9 \
		WATCHDOG_PID=1 LISTEN_FDS=1 LISTEN_PID=1 && does $OK monitor mds . || return 1
	p=$(pid mds .)
	grep -qP '^Uid:\t65534\t65534' "/proc/$p/status" &&
		grep -q '^CapEff:	0*$' "/proc/$p/status" &&
		grep -q '^NoNewPrivs:	1' "/proc/$p/status" || return 1
	! grep -zE '^(INVOCATION_ID|NOTIFY_SOCKET|WATCHDOG_|LISTEN_)' "/proc/$p/environ" || return 1
	# It outlives who started it, and holds nothing of it.
	[ "$(ps -o sid= -p "$p" | xargs)" = "$p" ] || return 1
	does $OK start mds . && [ "$(pid mds .)" = "$p" ]
}
a_data_server() {
	does $OK start ds a && until_it does $OK monitor ds a && does $OK monitor mds . &&
		does $OK start ds b && until_it does $OK monitor ds b
}
# Where a store was made before, no mount point has to be named.
a_store_is_known() {
	does $OK stop ds b OCF_RESKEY_mountpoint=/other && does $STOPPED monitor ds b &&
		does $OK start ds b OCF_RESKEY_mountpoint=
}
many() {
	local p q
	does $OK start mds b && until_it does $OK monitor mds b || return 1
	p=$(pid mds .) q=$(pid mds b)
	[ "$p" ] && [ "$q" ] && does $OK stop mds b && gone "$q" mds b &&
		does $STOPPED monitor mds b && does $OK monitor mds . &&
		[ "$(pid mds .)" = "$p" ] || return 1
	p=$(pid ds a) q=$(pid ds b)
	does $OK stop ds b && gone "$q" ds b && [ "$(pid ds a)" = "$p" ] && does $OK monitor ds a
}
# twice WHAT NAME OTHER: the other's configuration, and this store.
twice() {
	local p
	p=$(pid "$1" "$2")
	does $GENERIC start "$1" "$3" OCF_RESKEY_store="$work/disk/$1-$2" &&
		says "in use by weft-$1 (process $p)" &&
		does $STOPPED monitor "$1" "$3" OCF_RESKEY_store="$work/disk/$1-$2" &&
		does $OK stop "$1" "$3" OCF_RESKEY_store="$work/disk/$1-$2" &&
		grep -F "in use by weft-$1 (process $p), which this resource did" "$work/ha.log" &&
		[ "$(pid "$1" "$2")" = "$p" ] && does $OK monitor "$1" "$2"
}
only_one() { twice mds . b && twice ds a b; }
# Another program has the lock: the daemon says so.
locked() {
	(
		flock 9
		does $GENERIC start ds b && says "another weft-ds uses this store"
	) 9<>"$work/disk/ds-b/lock" && does $STOPPED monitor ds b && does $OK stop ds b
}
# Another program of the daemon's name and arguments is not the daemon.
impostor() {
	local p rc
	mkdir "$work/other"
	printf '#!/bin/bash\nread -r <>%s\n' "$work/other/fifo" >"$work/other/weft-mds"
	mkfifo "$work/other/fifo"
	chmod +x "$work/other/weft-mds"
	"$work/other/weft-mds" -c "$work/etc/mds-b.conf" &
	p=$!
	until_it grep -qx weft-mds "/proc/$p/comm" && does $STOPPED monitor mds b &&
		does $OK start mds b && until_it does $OK monitor mds b && does $OK stop mds b &&
		kill -0 "$p"
	rc=$?
	kill "$p"
	wait "$p"
	return $rc
}
# stand_in LOCK CONFIG: Python as weft-mds. It has the lock, ends its first thread, and takes no
# SIGTERM.
stand_in() {
	mkdir -p "$work/stand" || return 1
	[ -e "$work/stand/weft-mds" ] || cp "$(
		python3 -c 'import os, sys; print(os.path.realpath(sys.executable))'
	)" "$work/stand/weft-mds" || return 1
	cat >"$work/stand/run.py" <<-'END'
		import ctypes, fcntl, os, signal, sys, threading
		signal.signal(signal.SIGTERM, signal.SIG_IGN)
		fcntl.flock(os.open(sys.argv[1], os.O_RDWR), fcntl.LOCK_EX | fcntl.LOCK_NB)
		threading.Thread(target=signal.pause).start()
		exit_thread = 60 if os.uname().machine == "x86_64" else 93
		ctypes.CDLL(None).syscall(exit_thread, 0)
	END
	PYTHONHOME=$(python3 -c 'import sys; print(sys.base_prefix)') \
		exec "$work/stand/weft-mds" "$work/stand/run.py" "$1" "--config=$2"
}
# The first thread of a process is no more, and says nothing; the others go on.
ends_badly() {
	local p rc lock=$work/disk/mds-b/LOCK
	stand_in "$lock" "$work/etc/mds-b.conf" >"$work/stand.out" 2>&1 &
	p=$!
	until_it grep -q '^State:.*Z' "/proc/$p/status" && ! flock -n "$lock" true &&
		does $GENERIC monitor mds b &&
		does $OK stop mds b OCF_RESKEY_CRM_meta_timeout=4000 &&
		flock -n "$lock" true && does $STOPPED monitor mds b
	rc=$?
	kill -KILL $p
	wait $p
	return $rc
}
# asked COUNT: the agent has asked so often for a lock.
asked() { [ "$(wc -l <"$work/flock.log")" -ge "$1" ]; }
# No daemon is seen, and its store is not free: so may a daemon's end look. A stop waits.
lock_lasts() {
	local p rc holder
	(
		exec 9<"$work/disk/mds-b/LOCK"
		flock -n 9 && exec sleep 600
	) >"$work/stand.out" 2>&1 &
	holder=$!
	printf '#!/bin/sh\necho >>%s/flock.log\nexec %s "$@"\n' "$work" "$(command -v flock)" \
		>"$work/fake/flock"
	chmod +x "$work/fake/flock"
	: >"$work/flock.log"
	until_it grep -qx sleep "/proc/$holder/comm"
	does $OK stop mds b PATH="$work/fake:$PATH" >"$work/slow.out" 2>&1 &
	p=$!
	until_it asked 3 && kill -0 $p
	rc=$?
	kill "$holder"
	wait "$holder"
	wait $p && [ $rc = 0 ]
	rc=$?
	rm "$work/fake/flock"
	return $rc
}
# Where pgrep says nothing, nothing is known.
no_pgrep() {
	local p end rc
	p=$(pid mds .)
	for end in 'kill -KILL $$' 'exit 127' 'exit 2'; do
		printf '#!/bin/sh\n%s\n' "$end" >"$work/fake/pgrep"
		chmod +x "$work/fake/pgrep"
		does $GENERIC stop mds . PATH="$work/fake:$PATH" && says "pgrep" &&
			does $GENERIC monitor mds . PATH="$work/fake:$PATH"
		rc=$?
		rm "$work/fake/pgrep"
		[ $rc = 0 ] || return 1
	done
	[ "$(pid mds .)" = "$p" ] && does $OK monitor mds .
}
admin_socket() {
	does $CONFIGURED start mds b OCF_RESKEY_admin="$work/key" && says "$work/key is there" &&
		[ -s "$work/key" ] && does $PERM start mds b OCF_RESKEY_admin="$work/key/admin" &&
		says "cannot be made" && does $STOPPED monitor mds b && does $OK stop mds b
}
# It serves, whatever it says of an address that it need not join.
spare_address() {
	local rc
	cat >"$work/fake/said" <<-'END'
		#!/bin/sh
		echo '{"ok": true, "joined": true, "mds": [{"address": "a", "joined": true},'
		echo ' {"address": "b", "joined": false, "why": "it stands by"}]}'
	END
	chmod +x "$work/fake/said"
	ln -sfn "$work/fake/said" "$work/bin/weft"
	does $OK monitor ds a
	rc=$?
	ln -sfn "$build/weft" "$work/bin/weft"
	return $rc
}
# systemd starts the unit's daemon just when it is told to stop it.
unit_starts() {
	local under rc
	# shellcheck disable=SC2016
	under=(unshare -m sh -c 'mount -t tmpfs run /run && mkdir -p /run/systemd/system &&
		exec "$@"' sh)
	"${under[@]}" true || { echo "no mount namespace: not tried"; return 0; }
	cat >"$work/fake/systemctl" <<-END
		#!/bin/sh
		echo "\$*" >>"$work/systemctl.log"
		case \$1 in
			is-active) echo activating ;;
			stop)
				setsid "$work/bin/weft-mds" -c "$work/etc/weft.conf" \\
					-o "mds.store=$work/disk/mds-." -o mds.user=nobody \\
					-o "mds.admin=unix:$work/run-mds-./admin" \\
					</dev/null >>"$work/mds-..log" 2>&1 &
				until grep -qx weft-mds "/proc/\$!/comm"; do sleep 0.1; done
				;;
		esac
	END
	chmod +x "$work/fake/systemctl"
	does $OK stop mds . PATH="$work/fake:$PATH" && [ -z "$(pid mds .)" ] &&
		grep -qx "stop weft-mds.service" "$work/systemctl.log"
	rc=$?
	rm "$work/fake/systemctl"
	under=()
	[ $rc = 0 ] && flock -n "$work/disk/mds-./LOCK" true && does $OK start mds . &&
		until_it does $OK monitor mds .
}
killed() {
	local p
	for a in "mds ." "ds a"; do
		# shellcheck disable=SC2086
		set -- $a
		p=$(pid "$1" "$2")
		kill -KILL "$p"
		until_it gone "$p" "$1" "$2" && [ -S "$work/run-$1-$2/admin" ] &&
			does $STOPPED monitor "$1" "$2" && does $OK start "$1" "$2" &&
			until_it does $OK monitor "$1" "$2" || return 1
	done
}
# waits WHAT NAME: the monitor of a daemon that stands still ends in its time, and so does a stop.
stands_still() {
	local p began
	for a in "mds ." "ds a"; do
		# shellcheck disable=SC2086
		set -- $a
		p=$(pid "$1" "$2")
		kill -STOP "$p"
		frozen=$p began=$SECONDS
		does $GENERIC monitor "$1" "$2" OCF_RESKEY_CRM_meta_timeout=6000 &&
			says "does not answer" || return 1
		# 4 s are its own part of it. The rest is for a machine that does much else.
		[ $((SECONDS - began)) -ge 3 ] && [ $((SECONDS - began)) -lt 90 ] || return 1
		does $OK stop "$1" "$2" OCF_RESKEY_CRM_meta_timeout=600000 && gone "$p" "$1" "$2" &&
			does $STOPPED monitor "$1" "$2" || return 1
		frozen=''
		does $OK start "$1" "$2" || return 1
	done
	until_it does $OK monitor mds . && until_it does $OK monitor ds a
}
# It reads its exports, and waits for who writes them.
starting() {
	local p rc
	mkfifo "$work/exports"
	mds_conf "$work/etc/mds-slow.conf" 2249
	printf 'mds { exports = %s }\n' "$work/exports" >>"$work/etc/mds-slow.conf"
	# A check of the configuration reads them too, and is no daemon.
	"$work/bin/weft-mds" -c "$work/etc/mds-slow.conf" -o "mds.store=$work/disk/mds-slow" \
		--check >"$work/slow.out" 2>&1 &
	p=$!
	until_it pid_there mds slow && does $STOPPED monitor mds slow && does $OK stop mds slow &&
		kill "$p" || return 1
	wait "$p"
	does $GENERIC start mds slow >"$work/slow.out" 2>&1 &
	p=$!
	until_it does $GENERIC monitor mds slow && does $GENERIC monitor mds slow &&
		says "it is starting" &&
		does $OK stop mds slow && does $STOPPED monitor mds slow
	rc=$?
	[ $rc = 0 ] && wait $p
}
pid_there() { [ "$(pid "$1" "$2")" ]; }
# A data server that has joined no metadata server runs; to move it would not help.
degraded() {
	does $OK stop mds . && until_it does $DEGRADED monitor ds a && says "runs and waits" &&
		does $OK start ds a && does $OK start mds . && until_it does $OK monitor ds a
}
# A metadata server that no data server has confirmed.
unconfirmed() {
	does $OK stop ds a && does $OK stop ds b && does $OK stop mds . && does $OK start mds . &&
		does $DEGRADED monitor mds . && says "runs and waits" &&
		does $DEGRADED monitor mds . OCF_RESKEY_CRM_meta_interval=0 &&
		does $OK start ds a && until_it does $OK monitor mds .
}
# Debian's own tester. It knows no code for a daemon that waits, as one may that has just started.
tester() { # WHAT NAME
	local o=()
	while read -r s; do o+=(-o "${s#OCF_RESKEY_}"); done < <(settings "$1" "$2")
	sed 's/^OCF_DEGRADED=.*/OCF_DEGRADED=0/' "$work/$1" >"$work/tested"
	chmod +x "$work/tested"
	ocf-tester -n tested "${o[@]}" "$work/tested"
}
tester_mds() { does $OK stop mds . && tester mds .; }
tester_ds() { does $OK start mds . && does $OK stop ds a && tester ds a; }
nothing_left() {
	does $OK stop mds . && does $OK stop ds a && does $OK stop ds a &&
		[ -z "$(pid mds .)$(pid ds a)$(pid ds b)$(pid mds b)" ] && umount "$work/disk" &&
		does $STOPPED monitor mds . && does $INSTALLED start mds . &&
		[ -z "$(ls "$work/disk")" ]
}

try() { # NAME COMMAND...
	local name=$1 why=''
	shift
	n=$((n + 1))
	if why=$("$@" 2>&1); then
		echo "ok $n - $name"
	else
		echo "not ok $n - $name"
		tail -n 20 <<<"$why" | sed 's/^/# /'
		failed=1
	fi
}
try "the meta-data is what OCF's schema says" described
try "each action that it names is there, and another is not implemented" described_actions
try "a parameter that no node can take is said to be so" parameters
try "what a node lacks is not installed there, and nothing runs there" not_installed
try "where the store is not mounted nothing runs, starts or is made" not_mounted
try "a file system is mounted" mounted
try "a configuration that makes no sense is an error of this node" bad_configuration
try "a start answers when the daemon serves, as its user; another one changes nothing" it_starts
try "data servers, two on a node" a_data_server
try "a store that is there needs no mount point" a_store_is_known
try "several on a node start and stop alone" many
try "a store that is served is not served twice, nor a matter of another resource's stop" only_one
try "a store that another program has is not served" locked
try "another program of the daemon's name is left alone" impostor
try "one whose first thread has ended runs, and a stop kills it in the end" ends_badly
try "a stop waits until the store is free" lock_lasts
try "where pgrep fails, nothing is said to have stopped" no_pgrep
try "what is no socket stays, and a folder that cannot be made is said" admin_socket
try "a data server serves without an address that it need not join" spare_address
try "what systemd starts meanwhile is stopped too" unit_starts
try "one that was killed is not running, and starts again" killed
try "one that stands still fails in time, and is killed by a stop" stands_still
try "one that starts does not serve yet, and stops" starting
try "a data server without a metadata server is degraded" degraded
try "a metadata server without a data server is degraded" unconfirmed
try "ocf-tester finds nothing in ocf:weft:mds" tester_mds
try "ocf-tester finds nothing in ocf:weft:ds" tester_ds
try "stopped, the file system can move" nothing_left
echo "1..$n"
exit $failed
