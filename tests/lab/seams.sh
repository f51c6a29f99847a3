# SPDX-License-Identifier: Apache-2.0
# seams.sh - one round at the seams. Two guests write, rename and lock on one folder. Meanwhile the
# round stops, kills, cuts off and puts back what holds the cluster up, at random from SEAMS_SEED.
# Then tests/checker judges all that the guests saw. A test sources it, after faults.sh, and calls
# seams_round.
#
# A seed gives the same faults; what they meet depends on the machine. Bash seeds each subshell
# again, so this shell alone makes the draws, and a draw in $(...) is not the seed's.
# Figures are lines "# count: WHAT N", for the ledger of tests/soak.
checker=$LAB_HERE/../checker
SEAMS_SEED=${SEAMS_SEED:-$(od -An -N3 -tu4 /dev/urandom | tr -d ' ')}
RANDOM=$((SEAMS_SEED % 32768))
clock() { python3 -S -c 'import time; print(f"{time.monotonic():.6f}")'; }
# mark WHAT FROM UNTIL [WHO]
mark() {
	printf '{"e": "mark", "what": "%s", "t": %s, "until": %s, "who": "%s"}\n' "$1" "$2" "$3" \
		"${4:-}" >>"$SHARED/h.marks"
}
counted() { echo "$1" >>"$LAB_DIR/counts"; }

# Servers have groups of their own, so that packets show whose they are (faults.sh).
start_one() { # NAME
	case $1 in
		mds) setpriv --regid $MDS_GID --clear-groups "$weft_dev" start "$CLUSTER" mds ;;
		*) setpriv --regid $DS_GID --clear-groups "$weft_dev" start "$CLUSTER" "$1" ;;
	esac
}
seams_up() {
	# The client's own lease starts up to two thirds of it before a cut.
	cluster_up --set mds.lease=6s --set mds.grace=6s --set mds.recall_deadline=2s \
		--set ds.lease=3s --set mds.repair_wait=60s --set mds.courtesy=0s \
		--set mds.ds_suspect=1s \
		--set mds.ds_dead=2s --set mds.repair_files=4
	local d
	for d in ds3 mds; do
		dev kill $d && start_one $d >/dev/null || not_ok "$d starts again"
	done
	cuts_up 12052
	nft -f - <<-NFT
		table inet weft {
			chain guests_in { type filter hook input priority 0; }
			chain guests_out { type filter hook output priority 0; }
		}
	NFT
	python3 "$checker/record.py" clock 12999 &
	clock_pid=$!
}

# ---- faults: each sets how long it lasted, and what may be different for it

# nap SECONDS: up to so many and nine tenths
nap() {
	local whole=$((RANDOM % $1))
	sleep "$whole.$((RANDOM % 9))"
}
# a_server: sets d
a_server() { d=ds$((1 + RANDOM % 4)); }
fault_ds_stops() {
	local d t
	a_server
	t=$(clock)
	freeze $d
	nap 4
	unfreeze $d
	mark lost "$t" "$(clock)" $d
}
fault_ds_dies() {
	local d t
	a_server
	t=$(clock)
	slay $d
	nap 3
	start_one $d >/dev/null || not_ok "$d starts again"
	mark lost "$t" "$(clock)" $d
}
fault_mds_stops() {
	local t
	t=$(clock)
	freeze mds
	nap 6
	unfreeze mds
	mark grace "$t" "$(clock)"
}
fault_mds_dies() {
	local t
	t=$(clock)
	slay mds
	nap 2
	start_one mds >/dev/null || not_ok "the MDS starts again"
	mark grace "$t" "$(python3 -S -c 'import time; print(time.monotonic() + 8)')"
}
fault_both_die() {
	local d t
	a_server
	t=$(clock)
	slay mds
	slay $d
	nap 2
	start_one mds >/dev/null || not_ok "the MDS starts again"
	start_one $d >/dev/null || not_ok "$d starts again"
	mark lost "$t" "$(clock)" $d
	mark grace "$t" "$(python3 -S -c 'import time; print(time.monotonic() + 8)')"
}
fault_guest_and_ds_are_cut() {
	local g=$((1 + RANDOM % 2)) port=$((12050 + RANDOM % 4)) way=$((RANDOM % 3)) t
	t=$(clock)
	[ "$way" = 1 ] || nft add rule inet weft guests_in ip saddr 10.77.$g.2 tcp dport $port drop
	[ "$way" = 2 ] || nft add rule inet weft guests_out ip daddr 10.77.$g.2 tcp sport $port drop
	nap 5
	guests_join
	mark lost "$t" "$(clock)" ds$((port - 12049))
}
fault_guest_and_mds_are_cut() {
	local g=$((1 + RANDOM % 2)) t
	t=$(clock)
	nft add rule inet weft guests_in ip saddr 10.77.$g.2 tcp dport 12049 drop
	nft add rule inet weft guests_out ip daddr 10.77.$g.2 tcp sport 12049 drop
	nap 9
	guests_join
	# The server's connection comes back some time after the cut.
	mark away "$t" "$(python3 -S -c 'import time; print(time.monotonic() + 5)')" "g$g.$phase"
}
fault_mds_and_ds_are_cut() {
	local ways=(both from) way=$((RANDOM % 2)) t
	t=$(clock)
	cut mds "${ways[way]}"
	nap 5
	join
	mark lost "$t" "$(clock)" ds3
}
told() { # NAME FILE: it failed, and why
	not_ok "$1"
	sed 's/^/#   /' "$LAB_DIR/$2"
}
# No client may notice these two. A copy of the store from before a rotation does not know the
# newest key, so a round that puts a store back has none.
fault_key_rotates() {
	local end=$((SECONDS + 60))
	[ -z "${SEAMS_RESTORE:-}" ] || { fault_exports_change; return; }
	# The server refuses while a data server has yet to get the key before, or layouts are out.
	until weft key rotate --yes >"$LAB_DIR/rotate" 2>&1; do
		[ $SECONDS -lt $end ] || { told "the cluster key is rotated" rotate; return; }
		sleep 0.5
	done
}
fault_exports_change() {
	# For a network without guests: all layouts and delegations come back.
	[ -e "$CLUSTER/exports.base" ] || cp "$CLUSTER/exports" "$CLUSTER/exports.base"
	sed "s,^export .*{,&\n\tclient \"10.99.$((RANDOM % 256)).0/24\" { access = ro }," \
		"$CLUSTER/exports.base" >"$CLUSTER/exports.new"
	mv "$CLUSTER/exports.new" "$CLUSTER/exports"
	weft exports reload >"$LAB_DIR/reload" 2>&1 || told "the exports are read" reload
}
guests_join() { nft flush chain inet weft guests_in; nft flush chain inet weft guests_out; }
SEAMS_FAULTS=${SEAMS_FAULTS:-ds_stops ds_dies mds_stops mds_dies both_die
	guest_and_ds_are_cut guest_and_mds_are_cut mds_and_ds_are_cut}

# The round takes back what the server acknowledged between the backup and its return, and says so
# to the judge. Nothing is mounted.
back_up() {
	local d
	since=$(clock)
	dev kill mds >/dev/null
	rm -rf "$LAB_DIR/backup"
	cp -a "$CLUSTER/mds" "$LAB_DIR/backup"
	before=$(clock)
	start_one mds >/dev/null || not_ok "the MDS starts after a backup"
}
put_back() {
	local pid said
	dev kill mds >/dev/null
	said=$(stat -c %s "$CLUSTER/log/mds.log")
	rm -rf "$CLUSTER/mds"
	cp -a "$LAB_DIR/backup" "$CLUSTER/mds"
	setpriv --regid $MDS_GID --clear-groups "$WEFT_BUILD/weft-mds" -c "$CLUSTER/weft.conf" \
		--restored >>"$CLUSTER/log/mds.log" 2>&1 &
	pid=$!
	local end=$((SECONDS + 60))
	until tail -c "+$said" "$CLUSTER/log/mds.log" | grep -q serving; do
		[ $SECONDS -lt $end ] && kill -0 $pid 2>/dev/null || {
			not_ok "a store that was put back is made whole"
			tail -5 "$CLUSTER/log/mds.log" | sed 's/^/#   /'
			break
		}
		sleep 0.2
	done
	kill -TERM $pid 2>/dev/null
	wait $pid
	start_one mds >/dev/null || not_ok "the MDS starts after a restore"
	printf '{"e": "mark", "what": "restore", "t": %s, "since": %s, "before": %s}\n' "$(clock)" \
		"$since" "$before" >>"$SHARED/h.marks"
	counted restores
}
still() { # NAME: both guests have shown it
	wait_flag "g1.$phase.$1" 200 && wait_flag "g2.$phase.$1" 200
}

# seams_round PHASES FAULTS: in each phase this many faults. It puts a store back between the second
# and the third phase, and so on.
seams_round() {
	local phases=$1 faults=$2 f since='' before='' policy phase n guests=() all=($SEAMS_FAULTS)
	local policies=("mirrors=2" "stripes=2,unit=1M,mirrors=2" "stripes=2,unit=1M" "mirrors=3")
	policy=${SEAMS_POLICY:-${policies[$((SEAMS_SEED % 4))]}}
	echo "# seed $SEAMS_SEED, policy $policy"
	: >"$SHARED/h.marks"
	seams_up
	for n in 1 2; do
		guest -t $((200 + phases * (faults * 25 + 420))) $n seams.sh g$n $n "$phases" \
			"$SEAMS_SEED" "$policy" &
		guests+=($!)
	done
	for ((phase = 1; phase <= phases; phase++)); do
		flag go.$phase
		still works || break
		sleep 2
		for ((n = 0; n < faults; n++)); do
			f=${all[RANDOM % ${#all[@]}]}
			echo "# $(clock) $f"
			fault_$f
			counted "$f"
			nap 4
		done
		sleep 1
		echo "# $(clock) the end of phase $phase"
		flag phase.$phase.stop
		still ended || break
		repaired 300 "phase $phase"
		flag read.$phase
		still over || break
		echo "# $(clock) all is read"
		# Between a backup and its return there is one phase.
		if [ -n "$since" ]; then
			put_back
			since=
		elif [ $((phase + 1)) -lt "$phases" ] && [ -n "${SEAMS_RESTORE:-}" ]; then
			back_up
		fi
	done
	wait "${guests[@]}"
	kill $clock_pid
	judge
}
judge() {
	local out flips=--flips
	# Shown also where all is well: how much was judged.
	if out=$(python3 "$checker/check.py" --to-open $flips --lease 2 "$SHARED"/h.* 2>&1); then
		ok "all that was seen can be explained"
	else
		not_ok "all that was seen can be explained (seed $SEAMS_SEED)"
		printf '%s\n' "$out" | head -60 | sed 's/^/#   /'
		mkdir -p "${SEAMS_KEEP:-/var/tmp}" &&
			tar -czf "${SEAMS_KEEP:-/var/tmp}/seams-$SEAMS_SEED.tar.gz" -C "$LAB_DIR" \
			shared -C "$CLUSTER" log
	fi
	sed -n '$s/^/# judged: /p' <<<"$out"
	sort "$LAB_DIR/counts" | uniq -c | awk '{ print "# count: " $2, $1 }'
}
