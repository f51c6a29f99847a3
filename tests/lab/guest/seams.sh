#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# seams.sh CLIENT NUMBER PHASES SEED POLICY: works on one folder with the recorder
# (tests/checker/record.py) until the host says stop.N, in each phase on a mount of its own.
. "$(dirname "$0")/lib.sh"
client=$1 number=$2 phases=$3 seed=$4
record=${0%/*}/../../checker/record.py
[ ! -w /sys/module/nfs_layout_flexfiles/parameters/dataserver_timeo ] ||
	echo 30 >/sys/module/nfs_layout_flexfiles/parameters/dataserver_timeo
for ((phase = 1; phase <= phases; phase++)); do
	wait_flag go.$phase 300
	mount_weft actimeo=0,lookupcache=none
	if [ "$number.$phase" = 1.1 ]; then
		mkdir $M/d $M/d/names
		policy $M/d "$5" || not_ok "the policy $5"
		flag made
	fi
	wait_flag made
	flag "$client.$phase.works"
	timeout 1200 python3 "$record" work $M/d "$WEFT_SHARED/h.$phase.$client" "$client.$phase" \
		--number "$number" --phase $phase --seed "$seed" --clock "$LAB_HOST:12999" \
		--flags "$WEFT_SHARED/phase.$phase" --roles "${ROLES:-bbcnl}" --limit 100 \
		>"$WEFT_SHARED/$client.$phase.said" 2>&1 </dev/null ||
		{
			not_ok "phase $phase: no process of $client hangs"
			sed 's/^/#   /' "$WEFT_SHARED/$client.$phase.said" | tail -20
			dmesg | tail -40 | sed 's/^/#   /'
		}
	sed '/^# /!s/^/# /' "$WEFT_SHARED/$client.$phase.said"
	flag "$client.$phase.ended"
	wait_flag read.$phase 500
	check "phase $phase: $client reads all of it" timeout 300 python3 "$record" read $M/d \
		"$WEFT_SHARED/h.$phase.$client.read" "$client.read.$phase" --clock "$LAB_HOST:12999"
	umount_weft
	flag "$client.$phase.over"
done
no_complaint
