#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A whole cluster in one process (tests/sim/cluster_sim): some schedules of failures, and each
# planted fault, which has to be found. SIM_SEED (1) is the first seed, SIM_SCHEDULES (300) says how
# many there are. Prints TAP.
set -u
sim=${top_builddir:-build}/tests/sim/cluster_sim
seed=${SIM_SEED:-1} schedules=${SIM_SCHEDULES:-300}
n=0 failed=0
report() { # STATUS NAME WHAT IT SAID
	n=$((n + 1))
	if [ "$1" = 0 ]; then echo "ok $n - $2"; else echo "not ok $n - $2"; failed=1; fi
	sed 's/^/# /' <<<"$3"
}

mapfile -t controls < <("$sim" --list | sed 's/ .*//')
echo "1..$((1 + ${#controls[@]}))"
said=$("$sim" --seed "$seed" --schedules "$schedules" 2>&1)
report $? "$schedules schedules of failures from seed $seed break no rule" "$said"
for c in "${controls[@]}"; do
	said=$("$sim" --control "$c" --schedules 20000 2>&1)
	report $? "the planted fault $c is found" "$(tail -1 <<<"$said")"
done
exit $failed
