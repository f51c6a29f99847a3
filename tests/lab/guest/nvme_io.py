#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""nvme_io.py FILE STATE [OLD] - writes random data to FILE, with fsync, and reads it back past the
cache, until STATE.stop is there.

It compares every byte with a copy in memory (at first OLD's), which it leaves in STATE.copy.
STATE.rounds counts the rounds, STATE.slowest is the longest in seconds. Any error ends it with
status 1.
"""
import os
import random
import sys
import time

SIZE = 8 << 20
path, state = sys.argv[1:3]
rng = random.Random(7)
copy = bytearray(open(sys.argv[3], "rb").read() if len(sys.argv) > 3 else SIZE)
rounds, slowest = 0, 0.0

fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
os.ftruncate(fd, SIZE)
while not os.path.exists(state + ".stop"):
    begin = time.monotonic()
    for _ in range(3):
        # Most of them begin on a page; some do not.
        size = rng.choice((1 << 20, 256 << 10, 4096, 70001))
        at = rng.randrange(0, SIZE - size)
        at -= at % 4096 if size % 4096 == 0 else 0
        data = rng.randbytes(size)
        assert os.pwrite(fd, data, at) == size, f"{size} bytes at {at}"
        copy[at:at + size] = data
    os.fsync(fd)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    at = rng.randrange(0, SIZE - (1 << 20)) & ~4095
    assert (os.pread(fd, 1 << 20,
                     at) == copy[at:at + (1 << 20)]), f"1 MiB at {at} is not what was written"
    rounds += 1
    slowest = max(slowest, time.monotonic() - begin)
    with open(state + ".rounds", "w", encoding="ascii") as f:
        f.write(str(rounds))
os.close(fd)
with open(state + ".copy", "wb") as f:
    f.write(copy)
with open(state + ".slowest", "w", encoding="ascii") as f:
    f.write(f"{slowest:.1f}")
