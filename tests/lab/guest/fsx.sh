#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# fsx.sh FSX SEED BATCHES FILES - each file of each batch is fresh, and fsx changes it 48 times.
. "$(dirname "$0")/lib.sh"
fsx=$1 seed=$2 batches=$3 files=$4
mount_weft
# What fsx writes of its own when it fails
mkdir -p /run/fsx
cp "$fsx" /run/fsx.bin
bad=0
for ((b = 1; b <= batches; b++)); do
	mkdir "$M/b$b" "$M/b$b/m" "$M/b$b/s"
	policy "$M/b$b/m" mirrors=2
	policy "$M/b$b/s" stripes=2,mirrors=2
	for ((i = 0; i < files; i++)); do
		f=$M/b$b/$([ $((i % 2)) = 0 ] && echo m || echo s)/f$i
		/run/fsx.bin -q -N 48 -S $((seed + (b - 1) * files + i)) -l 4194304 -o 262144 -P \
			/run/fsx "$f" \
			>/run/fsx.out 2>&1 && continue
		bad=$((bad + 1))
		not_ok "seed $((seed + (b - 1) * files + i)): $f is what fsx made of it"
		tail -30 /run/fsx.out | sed 's/^/#   /'
	done
	flag "done.$b"
	wait_flag "go.$b" 600
done
same "files that are not fsx's picture" $bad 0
umount_weft
no_complaint
