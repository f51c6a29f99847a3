#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""rdma_odd.py FILE - lengths and offsets that do not fit a page, each synchronous and each past the
cache, compared with a copy in memory."""
import mmap
import os
import random
import sys

path = sys.argv[1]
rng = random.Random(7)
model = bytearray()
sizes = [1, 2, 3, 4, 5, 63, 100, 511, 1000, 1023, 1025, 3700, 3779, 3780, 3781, 3884, 3885, 4000,
         4093, 4094, 4095, 4096, 4097, 4098, 4099,
         8191, 16385, 65537, 131071, 1048575, 1048576]


def drop(fd):
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)


fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_DSYNC, 0o644)
for turn in range(3):
    for size in sizes:
        at = rng.randrange(0, 3 << 20) + rng.choice((0, 1, 2, 3, 4095, 4097))
        data = rng.randbytes(size)
        assert os.pwrite(fd, data, at) == size
        if len(model) < at + size:
            model.extend(bytes(at + size - len(model)))
        model[at:at + size] = data
drop(fd)
for size in sizes:
    at = rng.randrange(0, len(model))
    got = os.pread(fd, size, at)
    assert got == model[at:at + size], f"{size} bytes at {at}"
    drop(fd)
os.close(fd)
# Each READ is as long as the request.
fd = os.open(path, os.O_RDONLY | os.O_DIRECT)
page = mmap.mmap(-1, 2 << 20)
for size in sizes + [2 << 20]:
    at = rng.randrange(0, len(model))
    n = os.preadv(fd, [memoryview(page)[:size]], at)
    want = bytes(model[at:at + size])
    assert n == len(want) and page[:n] == want, f"direct: {size} bytes at {at}, {n} came"
