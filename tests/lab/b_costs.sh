# SPDX-License-Identifier: Apache-2.0
# Not a test, a measurement (tests/lab/run b_costs): what the stock client's operations cost the
# daemons in CPU time.
cluster_up
files=2000
ticks() { # DAEMON: user and system time, in ticks
	local pid
	pid=$(daemon "$1" pid)
	awk '{print $14 + $15}' "/proc/$pid/stat"
}
# The guest says when a phase begins and ends. cost PHASE UNIT COUNT DAEMON... charges it to
# each DAEMON.
cost() {
	local phase=$1 unit=$2 count=$3 before=0 after=0 d commits
	shift 3
	wait_flag "$phase.begin"
	for d in "$@"; do before=$((before + $(ticks $d))); done
	commits=$(metric mds weft_mds_kv_commits_total)
	flag "$phase.go"
	wait_flag "$phase.end" 300
	for d in "$@"; do after=$((after + $(ticks $d))); done
	commits=$(($(metric mds weft_mds_kv_commits_total) - commits))
	echo "# $phase: $(((after - before) * 1000000 / $(getconf \
		CLK_TCK) / count)) us of CPU ($*) per $unit; $commits commits for $count"
	flag "$phase.seen"
}
guest -t 400 1 costs.sh $files &
cost create "create and close" $files mds
cost stat "cold stat" $files mds
cost unlink "unlink" $files mds
cost write "MiB written" 512 ds1 ds2 ds3 ds4
cost read "MiB read" 512 ds1 ds2 ds3 ds4
wait
