# faults.sh - for tests that hurt a cluster while guest/acked.sh writes; sourced by them.
acked=$LAB_HERE/guest/acked.py

now() { date +%s.%N; }
stop_writers() { local n; for n; do flag "$n.stop"; done; }
# Nothing is under way between pause and go_on.
pause() {
	local n
	for n; do flag "$n.pause"; done
	for n; do wait_flag "$n.paused" "${PAUSE_LIMIT:-60}" || return 1; done
}
go_on() { local n; for n; do rm -f "$SHARED/$n.pause"; done; }

# wrote FAULT-TIME SECONDS WHAT NAME...: each writer's first block that was begun after FAULT-TIME is acknowledged within SECONDS; the time is told.
wrote() {
	local at=$1 limit=$2 what=$3 n end took
	shift 3
	end=$(($(date +%s) + limit))
	for n; do
		until took=$(python3 "$acked" first "$SHARED/$n.log" "$at" 2>/dev/null); do
			[ "$(date +%s)" -le "$end" ] || { not_ok "$what: $n writes again within $limit s"; return 1; }
			sleep 0.1
		done
		ok "$what: $n writes again, after $took s"
	done
}
unrepaired() { weft --json mirror status | python3 -c 'import json, sys; print(json.load(sys.stdin)["files"])'; }
# repaired SECONDS WHAT: until weft mirror status is empty
repaired() {
	local end=$((SECONDS + $1)) began
	began=$(now)
	until [ "$(unrepaired 2>/dev/null)" = 0 ]; do
		if [ $SECONDS -ge $end ]; then
			not_ok "$2: everything is repaired within $1 s"
			weft mirror status 2>&1 | sed 's/^/#   /'
			return 1
		fi
		sleep 0.1
	done
	ok "$2: everything is repaired, after $(python3 -c "import time; print(f'{time.time() - $began:.1f}')") s"
}
# whole WHAT NAME...: with the writers paused: the copies are equal, and hold what was acknowledged
whole() {
	local what=$1 n
	shift
	for n; do
		weft --json file show "/$n/f" >"$LAB_DIR/$n.layout" || { not_ok "$what: $n can be shown"; continue; }
		check "$what: the copies of $n are equal, and hold what was acknowledged" python3 "$acked" mirrors "$CLUSTER" "$LAB_DIR/$n.layout" "$SHARED/$n.log"
	done
}
# told NAME...: figures of the whole run
told() {
	local n count errors longest
	for n; do
		read -r count errors longest < <(python3 "$acked" count "$SHARED/$n.log")
		echo "# $n: $count blocks acknowledged, $errors errors, the longest wait for one $longest s"
	done
}
