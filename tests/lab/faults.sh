# SPDX-License-Identifier: Apache-2.0
# faults.sh - for tests that hurt a cluster while guest/acked.sh writes; sourced by them.
acked=$LAB_HERE/guest/acked.py

# Runs weft, without asking each time where the server is.
tell() {
	: "${mds_admin:=$(daemon mds admin)}"
	"$WEFT_BUILD/weft" --admin "$mds_admin" "$@"
}
now() { date +%s.%N; }
# objects_of LAYOUT: a line "SERVER OBJECT" for each object of a file, from the JSON of file show
objects_of() { awk -F'"' '$2 == "ds" { ds = $4 } $2 == "object" { print ds, $4 }' "$1"; }
stop_writers() { local n; for n; do flag "$n.stop"; done; }
# Nothing is under way between pause and go_on.
pause() {
	local n
	for n; do flag "$n.pause"; done
	for n; do wait_flag "$n.paused" "${PAUSE_LIMIT:-60}" || return 1; done
}
go_on() { local n; for n; do rm -f "$SHARED/$n.pause"; done; }

# first_after LOG TIME: seconds from TIME to the end of the first block that was begun after it
first_after() {
	awk -v at="$2" '
		$1 == "i" && !(($2, $3) in begun) { begun[$2, $3] = $4 }
		$1 == "a" && begun[$2, $3] > at && (!best || $4 < best) { best = $4 }
		END { if (!best) exit 1; printf "%.2f\n", best - at }' "$1"
}
# wrote FAULT-TIME SECONDS WHAT NAME...: the server acknowledges each writer's first block after
# FAULT-TIME within SECONDS. Prints the time.
wrote() {
	local at=$1 limit=$2 what=$3 n end took
	shift 3
	end=$(($(date +%s) + limit))
	for n; do
		until took=$(first_after "$SHARED/$n.log" "$at"); do
			[ "$(date +%s)" -le "$end" ] || {
				not_ok "$what: $n writes again within $limit s"
				return 1
			}
			sleep 0.1
		done
		ok "$what: $n writes again, after $took s"
	done
}
unrepaired() { tell --json mirror status | sed -n 's/^ *"files": \([0-9]*\).*/\1/p'; }
until_repaired() { # SECONDS: until weft mirror status is empty
	local end=$((SECONDS + $1))
	until [ "$(unrepaired 2>/dev/null)" = 0 ]; do
		[ $SECONDS -lt $end ] || { tell mirror status 2>&1 | sed 's/^/#   /'; return 1; }
		sleep 0.1
	done
}
repaired() { # SECONDS WHAT
	local began
	began=$(date +%s%N)
	if until_repaired "$1"; then
		ok "$2: everything is repaired, after $((($(date +%s%N) - began) / 1000000)) ms"
	else
		not_ok "$2: everything is repaired within $1 s"
	fi
}
# whole WHAT NAME...: with the writers paused: the copies are equal, and hold what was acknowledged
whole() {
	local what=$1 n
	shift
	for n; do tell --json file show "/$n/f" >"$LAB_DIR/$n.layout"; done
	check "$what: copies are equal, and hold what was acknowledged ($*)" python3 "$acked" \
		mirrors "$CLUSTER" "$LAB_DIR" "$SHARED" "$@"
}
# told NAME...: figures of the whole run
told() {
	local n count errors longest
	for n; do
		read -r count errors longest <<<"$(python3 "$acked" count "$SHARED/$n.log")"
		echo "# $n: $count blocks acknowledged, $errors errors, longest wait $longest s"
	done
}

# ---- faults

slay() { # DAEMON: kill -9
	local pid
	pid=$(daemon "$1" pid)
	kill -KILL "$pid"
	while [ -e "/proc/$pid/exe" ]; do sleep 0.01; done
}
freeze() { stand_still "$(daemon "$1" pid)"; }
unfreeze() { kill -CONT "$(daemon "$1" pid)"; }
# slow DS SECONDS: it runs for a fifth of the time, a hundredth of a second at once.
slow() {
	local pid
	pid=$(daemon "$1" pid)
	timeout "$2" bash -c "while kill -STOP $pid; do sleep 0.04; kill -CONT $pid; sleep 0.01;
		done"
	kill -CONT "$pid"
}
# Partitions, by nftables, which drops packets without an answer. The daemons differ by their
# groups, and nftables keeps their connections' ports.
MDS_GID=4445 DS_GID=4444
cuts_up() { # PORT: of the data server that is cut off
	cut_port=$1
	nft -f - <<-NFT
		table inet weft {
			set of_ds { type inet_service; flags dynamic; size 4096; }
			set of_mds { type inet_service; flags dynamic; size 4096; }
			chain note {
				type filter hook output priority -10;
				meta skgid $DS_GID tcp dport 12049 add @of_ds { tcp sport }
				meta skgid $MDS_GID tcp dport $cut_port add @of_mds { tcp sport }
			}
			chain in { type filter hook input priority 0; }
			chain out { type filter hook output priority 0; }
		}
	NFT
}
# cut client|mds to|from|both: what does not come through any more, seen from the data server
cut() {
	local here='ip daddr { 127.0.0.1, 10.77.0.1 }'
	case $1.$2 in client.to | client.both) nft add rule inet weft in iifname labbr tcp dport \
		"$cut_port" drop ;; esac
	case $1.$2 in client.from | client.both) nft add rule inet weft out oifname labbr tcp \
		sport "$cut_port" drop ;; esac
	case $1.$2 in mds.to | mds.both)
		nft add rule inet weft out $here tcp sport 12049 tcp dport @of_ds drop
		nft add rule inet weft out meta skgid $MDS_GID tcp dport "$cut_port" drop
		;;
	esac
	case $1.$2 in mds.from | mds.both)
		nft add rule inet weft out meta skgid $DS_GID tcp dport 12049 drop
		nft add rule inet weft out $here tcp sport "$cut_port" tcp dport @of_mds drop
		;;
	esac
}
join() { nft flush chain inet weft in; nft flush chain inet weft out; }
