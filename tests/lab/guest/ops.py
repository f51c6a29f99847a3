#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""ops.py FOLDER FILES SEED - makes random changes of new files, and compares each file with a copy
in memory. The changes are writes with and without a map, truncations, holes, zeroed ranges, reads.
Says what differs, and where."""
import ctypes
import mmap
import os
import random
import sys

MAX, MOST, OPS = 4 << 20, 256 << 10, 48
KEEP_SIZE, PUNCH, ZERO = 1, 2, 16
libc = ctypes.CDLL(None, use_errno=True)
libc.fallocate.argtypes = ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64


def fallocate(fd, mode, off, length):
    if libc.fallocate(fd, mode, off, length):
        raise OSError(ctypes.get_errno(), "fallocate")


class File:
    def __init__(self, path, seed):
        self.fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        self.want, self.r, self.log = bytearray(), random.Random(seed), []

    def span(self):
        off = self.r.randrange(MAX - 1)
        return off, self.r.randrange(1, min(MOST, MAX - off))

    def put(self, off, data):
        if len(self.want) < off + len(data):
            self.want.extend(bytes(off + len(data) - len(self.want)))
        self.want[off:off + len(data)] = data

    def write(self):
        off, n = self.span()
        data = self.r.randbytes(n)
        os.pwrite(self.fd, data, off)
        self.put(off, data)
        return off, n

    def mapped(self):
        off, n = self.span()
        if off + n > len(self.want):
            self.cut_to(off + n)
        data = self.r.randbytes(n)
        with mmap.mmap(self.fd, off + n) as m:
            m[off:off + n] = data
            m.flush()
        self.put(off, data)
        return off, n

    def cut_to(self, size):
        os.ftruncate(self.fd, size)
        if size < len(self.want):
            del self.want[size:]
        else:
            self.want.extend(bytes(size - len(self.want)))

    def cut(self):
        size = self.r.randrange(MAX)
        self.cut_to(size)
        return size, 0

    def punch(self):
        off, n = self.span()
        fallocate(self.fd, PUNCH | KEEP_SIZE, off, n)
        end = min(off + n, len(self.want))
        if off < end:
            self.want[off:end] = bytes(end - off)
        return off, n

    def zero(self):
        off, n = self.span()
        fallocate(self.fd, ZERO, off, n)
        self.put(off, bytes(n))
        return off, n

    def read(self):
        off, n = self.span()
        self.same(off, os.pread(self.fd, n, off))
        return off, n

    def same(self, off, got):
        want = bytes(self.want[off:off + len(got)])
        if got != want:
            at = next(k for k in range(len(got)) if got[k:k + 1] != want[k:k + 1])
            raise ValueError(f"byte {off + at} is {got[at]}, want "
                             f"{want[at] if at < len(want) else 'the end'}")

    def check(self):
        size = os.fstat(self.fd).st_size
        if size != len(self.want):
            raise ValueError(f"size {size}, want {len(self.want)}")

    def run(self):
        for _ in range(OPS):
            op = self.r.choice((self.write, self.write, self.mapped, self.cut, self.punch,
                                self.zero, self.read))
            self.log.append((op.__name__, *op()))
            self.check()
        os.fsync(self.fd)
        os.posix_fadvise(self.fd, 0, 0, os.POSIX_FADV_DONTNEED)
        self.same(0, os.pread(self.fd, MAX, 0))
        os.close(self.fd)


def main(folder, files, seed):
    bad = 0
    for n in range(int(files)):
        f = File(f"{folder}/f{n}", f"{seed}.{n}")
        try:
            f.run()
        except (OSError, ValueError) as e:
            bad += 1
            print(f"# file {n}: {e}; after {f.log[-4:]}")
    print(f"# {folder}: {bad} of {files} files differ, seed {seed}")
    return bad > 0


sys.exit(main(*sys.argv[1:]))
