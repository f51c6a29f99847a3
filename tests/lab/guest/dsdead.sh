#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
. "$(dirname "$0")/lib.sh"
mount_weft
mkdir $M/d
policy $M/d mirrors=2
for f in 1 2 3 4; do head -c 16M /dev/urandom >$M/d/r$f; done
cold
# Each reads or writes one file again and again, past the cache or synced, and logs every call (the
# clock is the host's).
python='import mmap, os, sys, time
what, path, log = sys.argv[1:]
stop = os.environ["WEFT_SHARED"] + "/stop"
size, block, n = 1 << 18, mmap.mmap(-1, 1 << 18), 0
fd = os.open(path, os.O_RDONLY | os.O_DIRECT if what == "read" else os.O_CREAT | os.O_RDWR)
with open(log, "w", buffering=1) as out:
    while not os.path.exists(stop):
        began, ok, n = time.time(), 1, n + 1
        try:
            if what == "read":
                ok = int(os.preadv(fd, [block], n % 64 * size) == size)
            else:
                os.pwrite(fd, bytes([n % 251]) * size, n % 64 * size)
                os.fsync(fd)
        except OSError as e:
            ok = -e.errno
        out.write(f"{began} {time.time()} {ok}\n")
        time.sleep(0.02)'
for f in 1 2 3 4; do
	python3 -c "$python" read $M/d/r$f "$WEFT_SHARED/read$f.log" &
	python3 -c "$python" write $M/d/w$f "$WEFT_SHARED/write$f.log" &
done
sleep 1
flag going
wait
umount_weft
