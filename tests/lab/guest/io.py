#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Every way to read and write. Each test runs on a weft directory with one policy after the other.
"""
import errno
import mmap
import os
import random
import shlex
import subprocess
import sys
import time
import traceback

M = "/mnt/weft"
MIB = 1 << 20
POLICIES = ("stripes=1,mirrors=1", "stripes=4,unit=1M,mirrors=1", "stripes=4,unit=1M,mirrors=2",
            "stripes=3,unit=2M,mirrors=1")


def cold():
    os.sync()
    with open("/proc/sys/vm/drop_caches", "w", encoding="ascii") as f:
        f.write("3")


def pattern(seed, length):
    return random.Random(seed).randbytes(length)


def whole(path):
    with open(path, "rb") as f:
        return f.read()


def equal(got, want, what):
    if got == want:
        return
    where = next((i for i, (a, b) in enumerate(zip(got, want)) if a != b), min(len(got), len(want)))
    raise AssertionError(f"{what}: differs at {where} (lengths {len(got)} and {len(want)}): "
                         f"{got[where:where + 16].hex()} for {want[where:where + 16].hex()}")


def direct_read(path, offset, length):
    fd = os.open(path, os.O_RDONLY | os.O_DIRECT)
    try:
        buf = mmap.mmap(-1, (length + 4095) // 4096 * 4096)
        return bytes(buf[:os.preadv(fd, [buf], offset)])
    finally:
        os.close(fd)


def t_truncate_down_and_up(d):
    data = pattern(1, 5 * MIB + 77)
    with open(f"{d}/f", "wb") as f:
        f.write(data)
    cut = 2 * MIB + 1234
    os.truncate(f"{d}/f", cut)
    os.truncate(f"{d}/f", 6 * MIB)
    want = data[:cut] + bytes(6 * MIB - cut)
    equal(whole(f"{d}/f"), want, "warm")
    cold()
    equal(whole(f"{d}/f"), want, "cold")
    equal(direct_read(f"{d}/f", 2 * MIB, 4 * MIB), want[2 * MIB:], "direct")


def t_truncate_open_file(d):
    with open(f"{d}/f", "w+b") as f:
        f.write(pattern(2, 3 * MIB))
        f.flush()
        f.truncate(100)
        f.seek(MIB)
        f.write(b"end")
    cold()
    equal(whole(f"{d}/f"), pattern(2, 3 * MIB)[:100] + bytes(MIB - 100) + b"end", "after")


def t_odirect(d):
    size = 9 * MIB
    data = pattern(3, size)
    fd = os.open(f"{d}/f", os.O_CREAT | os.O_WRONLY | os.O_DIRECT)
    buf = mmap.mmap(-1, size)
    buf[:] = data
    done = os.pwritev(fd, [buf], 0)
    os.close(fd)
    assert done == size, done
    equal(whole(f"{d}/f"), data, "buffered read")
    cold()
    equal(direct_read(f"{d}/f", 0, size), data, "direct read")
    equal(direct_read(f"{d}/f", 4096 * 300, 4096 * 700), data[4096 * 300:4096 * 1000],
          "direct read across stripes")


def t_odirect_ends_where_the_file_ends(d):
    for size in (1, 4095, 4097, MIB - 1, MIB + 1, 3 * MIB + 513, 5 * MIB):
        data = pattern(size, size)
        with open(f"{d}/f{size}", "wb") as f:
            f.write(data)
        cold()
        equal(direct_read(f"{d}/f{size}", 0, 8 * MIB), data, f"size {size}")
        equal(direct_read(f"{d}/f{size}", size // 4096 * 4096, MIB), data[size // 4096 * 4096:],
              f"tail of {size}")
        equal(direct_read(f"{d}/f{size}", 16 * MIB, MIB), b"", f"beyond {size}")


def t_odirect_hole_before_the_end(d):
    with open(f"{d}/f", "wb") as f:
        f.seek(7 * MIB + 100)
        f.write(b"x" * 50)
    cold()
    equal(direct_read(f"{d}/f", 0, 8 * MIB), bytes(7 * MIB + 100) + b"x" * 50, "direct")


def t_mmap(d):
    size = 6 * MIB
    with open(f"{d}/f", "w+b") as f:
        f.truncate(size)
        with mmap.mmap(f.fileno(), size) as m:
            for off in range(0, size, 70001):
                m[off:off + 3] = b"abc"[:min(3, size - off)]
            m.flush()
    cold()
    want = bytearray(size)
    for off in range(0, size, 70001):
        want[off:off + 3] = b"abc"[:min(3, size - off)]
    equal(whole(f"{d}/f"), bytes(want), "cold")
    with open(f"{d}/f", "rb") as f, mmap.mmap(f.fileno(), size, prot=mmap.PROT_READ) as m:
        equal(bytes(m), bytes(want), "mapped")


def t_append(d):
    want = b""
    for i in range(300):
        piece = b"%d:" % i + b"z" * (i * 37 % 9000)
        with open(f"{d}/f", "ab") as f:
            f.write(piece)
        want += piece
    cold()
    equal(whole(f"{d}/f"), want, "cold")


def t_holes(d):
    spots = (0, 100 * 1024, MIB - 1, 3 * MIB + 5, 10 * MIB)
    want = bytearray(10 * MIB + 9)
    with open(f"{d}/f", "wb") as f:
        for n, off in enumerate(spots):
            f.seek(off)
            f.write(b"spot%d    " % n)
            want[off:off + 9] = b"spot%d    " % n
    equal(whole(f"{d}/f"), bytes(want), "warm")
    cold()
    equal(whole(f"{d}/f"), bytes(want), "cold")


def t_unaligned(d):
    rnd = random.Random(11)
    want = bytearray(4 * MIB)
    with open(f"{d}/f", "w+b", buffering=0) as f:
        f.truncate(4 * MIB)
        for n in range(400):
            off = rnd.randrange(4 * MIB - 70000)
            piece = rnd.randbytes(rnd.choice((1, 7, 511, 4096, 4097, 65536)))
            os.pwrite(f.fileno(), piece, off)
            want[off:off + len(piece)] = piece
            if n % 40 == 0:
                os.fsync(f.fileno())
                off = rnd.randrange(4 * MIB - 70000)
                equal(os.pread(f.fileno(), 60000, off), bytes(want[off:off + 60000]), f"read {n}")
    cold()
    equal(whole(f"{d}/f"), bytes(want), "cold")


def t_buffered_and_direct(d):
    rnd = random.Random(12)
    want = bytearray(2 * MIB)
    fd = os.open(f"{d}/f", os.O_CREAT | os.O_RDWR)
    os.ftruncate(fd, 2 * MIB)
    dfd = os.open(f"{d}/f", os.O_RDWR | os.O_DIRECT)
    page = mmap.mmap(-1, 4096)
    for _ in range(100):
        off = rnd.randrange(2 * MIB - 3000)
        piece = rnd.randbytes(rnd.randrange(1, 3000))
        os.pwrite(fd, piece, off)
        want[off:off + len(piece)] = piece
        off = rnd.randrange(512) * 4096
        page[:] = rnd.randbytes(4096)
        os.pwritev(dfd, [page], off)
        want[off:off + 4096] = page[:]
    os.close(dfd)
    os.close(fd)
    cold()
    equal(whole(f"{d}/f"), bytes(want), "cold")


def t_empty_file(d):
    with open(f"{d}/f", "wb"):
        pass
    cold()
    equal(whole(f"{d}/f"), b"", "cold")
    equal(direct_read(f"{d}/f", 0, 4096), b"", "direct")
    assert os.stat(f"{d}/f").st_size == 0


def t_100_gib_sparse(d):
    size = 100 << 30
    with open(f"{d}/f", "w+b") as f:
        f.truncate(size)
        for off in (0, 50 << 30, size - 6):
            f.seek(off)
            f.write(b"sparse")
    cold()
    assert os.stat(f"{d}/f").st_size == size
    with open(f"{d}/f", "rb") as f:
        for off in (0, 50 << 30, size - 6):
            f.seek(off)
            equal(f.read(6), b"sparse", f"at {off}")
        f.seek(33 << 30)
        equal(f.read(MIB), bytes(MIB), "in the hole")
    os.truncate(f"{d}/f", 3)
    cold()
    equal(whole(f"{d}/f"), b"spa", "cut")


def t_beyond_the_maximum(d):
    """A size that no data server's file system has. The server takes it or refuses it, but at once
    (and rm removes what is left)."""
    began = time.monotonic()
    with open(f"{d}/f", "wb") as f:
        try:
            os.ftruncate(f.fileno(), (1 << 63) - 1)
        except OSError as e:
            assert e.errno in (errno.EFBIG, errno.EINVAL), e
    assert time.monotonic() - began < 10, f"took {time.monotonic() - began:.0f} s"


def t_many_writers_one_file(d):
    """Each process of one client has a stretch of its own."""
    pids = []
    for n in range(4):
        pid = os.fork()
        if pid == 0:
            fd = os.open(f"{d}/f", os.O_CREAT | os.O_WRONLY)
            os.pwrite(fd, bytes([n + 1]) * (3 * MIB), n * 3 * MIB)
            os.close(fd)
            os._exit(0)
        pids.append(pid)
    for pid in pids:
        assert os.waitpid(pid, 0)[1] == 0
    cold()
    equal(whole(f"{d}/f"), b"".join(bytes([n + 1]) * (3 * MIB) for n in range(4)), "cold")


def t_write_back_past_close(d):
    """Only the umount or sync writes the data of many files."""
    for n in range(50):
        with open(f"{d}/f{n}", "wb") as f:
            f.write(pattern(n, n * 1000))
    cold()
    for n in range(50):
        equal(whole(f"{d}/f{n}"), pattern(n, n * 1000), f"f{n}")


def t_name_of_255_bytes(d):
    name = "é" * 127 + "x"
    with open(f"{d}/{name}", "wb") as f:
        f.write(b"long")
    cold()
    assert os.listdir(d) == [name], os.listdir(d)
    equal(whole(f"{d}/{name}"), b"long", "data")
    try:
        with open(f"{d}/{name}y", "wb"):
            raise AssertionError("a name of 256 bytes was taken")
    except OSError as e:
        assert e.errno == errno.ENAMETOOLONG, e


def main():
    os.makedirs(M, exist_ok=True)
    subprocess.run(shlex.split(os.environ["WEFT_MOUNT"]) + [M], check=True, timeout=60)
    tests = [(name[2:].replace("_", " "), f) for name, f in globals().items()
             if name.startswith("t_")]
    only = sys.argv[1:]
    for n, policy in enumerate(POLICIES):
        for name, test in tests:
            if only and name not in only:
                continue
            d = f"{M}/{n}-{name.replace(' ', '-')}"
            os.mkdir(d)
            os.setxattr(d, "user.weft.policy", policy.encode())
            began = time.monotonic()
            try:
                test(d)
                print(f"ok - {name} on {policy} ({time.monotonic() - began:.1f} s)", flush=True)
            except Exception as e:  # the next test runs all the same
                print(f"not ok - {name} on {policy}: {e!r}", flush=True)
                for line in traceback.format_exc().splitlines()[-3:]:
                    print(f"#   {line}", flush=True)
    done = subprocess.run(f"rm -rf {M}/*", shell=True, capture_output=True, text=True, check=False)
    print(f"{'ok' if done.returncode == 0 else 'not ok'} - rm -rf of it all {done.stderr}",
          flush=True)
    subprocess.run(["umount", M], check=True, timeout=60)


main()
