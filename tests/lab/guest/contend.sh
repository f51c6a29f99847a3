#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# contend.sh a|b ROUNDS - the same blocks of a mirrored file, again and again, until the host says
# stop.
. "$(dirname "$0")/lib.sh"
me=$1 rounds=$2
mount_weft
if [ "$me" = a ]; then
	mkdir $M/d
	policy $M/d mirrors=2
fi
for ((n = 1; n <= rounds; n++)); do
	[ "$me" = b ] || { head -c 131072 /dev/zero >$M/d/f$n; flag made.$n; }
	wait_flag go.$n
	python3 - "$M/d/f$n" "$me" "$WEFT_SHARED" $n <<'PY' || not_ok "$me writes file $n"
import mmap, os, random, sys
path, me, shared, n = sys.argv[1:]
fd = os.open(path, os.O_WRONLY | os.O_DIRECT)
block = mmap.mmap(-1, 4096)
block.write(me.encode() * 4096)
stop, busy, count = f"{shared}/stop.{n}", f"{shared}/{me}.busy.{n}", 0
order = list(range(32))
while not os.path.exists(stop):
    random.shuffle(order)
    for at in order:
        os.pwrite(fd, block, at * 4096)
    count += 1
    if count == 2:
        open(busy, "w").close()
os.close(fd)
PY
	flag $me.closed.$n
done
umount_weft
no_complaint
