#!/bin/bash
. "$(dirname "$0")/lib.sh"
mount_weft
mkdir $M/m2 $M/s2
policy $M/m2 mirrors=2
policy $M/s2 stripes=2,mirrors=2
bad=0
for ((n = 0; n < $1; n++)); do
	d=$M/m2; [ $((n % 2)) = 0 ] || d=$M/s2
	: >$d/f$n
	/work/fsx/fsx -N 48 -S 11 -l 4194304 -o 262144 -P /run $d/f$n >/run/fsx.out 2>&1 || { bad=$((bad + 1)); grep -m3 -iE "READ BAD|Size error|expected|operation" /run/fsx.out | sed 's/^/# /'; }
done
echo "# fsx: $bad of $1 failed"
umount_weft
