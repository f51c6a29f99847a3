# SPDX-License-Identifier: Apache-2.0
# Fresh mirrored files, with and without stripes. fsx changes each at random and knows what it must
# hold (tests/lab/soak_fsx runs this). After each batch of 25 files the copies are compared.
. "$LAB_HERE/faults.sh"
batch=25
batches=$(((FSX_FILES + batch - 1) / batch))
cluster_up --set mds.lease=10s --set mds.repair_files=4 --set mds.repair_wait=20s
guest -t $((300 + FSX_FILES * 10)) 1 fsx.sh "$FSX_BIN" "$FSX_SEED" $batches $batch &
kills=0 stops=0 compared=0 differ=0
# Until the batch is done, one server at a time is killed and comes back, or stands still for 1 s.
hurt() { # BATCH
	local n=0 server
	until [ -e "$SHARED/done.$1" ]; do
		server=ds$((1 + (RANDOM + n) % 4)) n=$((n + 1))
		if [ $((RANDOM % 2)) = 0 ]; then
			dev kill "$server" -9 >/dev/null
			sleep 0.$((RANDOM % 10))
			dev start "$server" >/dev/null
			kills=$((kills + 1))
		else
			freeze "$server"
			sleep 1
			unfreeze "$server"
			stops=$((stops + 1))
		fi
		for ((i = 0; i < 20; i++)); do
			[ ! -e "$SHARED/done.$1" ] || return 0
			sleep 0.2
		done
	done
}
for ((b = 1; b <= batches; b++)); do
	[ -z "$FSX_KILLS" ] || hurt $b
	wait_flag done.$b $((600 + batch * 10)) || break
	until_repaired 180 || { not_ok "batch $b: everything is repaired within 180 s"; break; }
	tell mirror verify -r "/b$b" >"$LAB_DIR/verify" 2>&1
	if grep -q "^$batch files compared (.*: 0 ranges differ;" "$LAB_DIR/verify"; then
		compared=$((compared + batch))
	else
		differ=$((differ + 1))
		sed "s/^/# batch $b: /" "$LAB_DIR/verify"
	fi
	flag go.$b
done
wait
same "batches whose copies differ" $differ 0
same "files that were compared" $compared $((batches * batch))
echo "# count: files=$compared kills=$kills stops=$stops"
