#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""eof.py - striped files whose end is in another stripe than the first byte of their tail.

eof.py make FOLDER
    makes the files.
eof.py FOLDER SHARED PAUSE LIMIT
    opens the files, reads their heads, says so, and reads their tails while the metadata server
    stands still.
"""
import mmap
import os
import sys
import threading
import time

UNIT, TAIL, FILES = 1 << 20, 2683, 20


def content(n):
    return bytes((n * 7 + k) % 251 for k in range(251)) * ((3 * UNIT + TAIL) // 251 + 1)


def make(folder):
    for n in range(FILES):
        with open(f"{folder}/f{n}", "wb") as f:
            f.write(content(n)[:3 * UNIT + TAIL])


def wait_for(path):
    while not os.path.exists(path):
        time.sleep(0.02)


def tail(fd, n, direct, out):
    want = content(n)[3 * UNIT:3 * UNIT + TAIL]
    try:
        if direct:
            with mmap.mmap(-1, 8192) as m:
                got = bytes(m[:os.preadv(fd, [m], 3 * UNIT)])
        else:
            got = os.pread(fd, 8192, 3 * UNIT)
        out[n] = (got == want, len(got), time.time())
    except OSError as e:
        out[n] = (False, e.strerror, time.time())


def main(folder, shared, pause, limit):
    fds = [os.open(f"{folder}/f{n}", os.O_RDONLY | (os.O_DIRECT if n % 2 else 0))
           for n in range(FILES)]
    page = mmap.mmap(-1, 4096)
    for n, fd in enumerate(fds):  # layouts and devices are there
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
        os.preadv(fd, [page], 0)
    open(f"{shared}/open.{pause}", "w").close()
    wait_for(f"{shared}/read.{pause}")
    began, out = time.time(), {}
    threads = [threading.Thread(target=tail, args=(fd, n, n % 2, out)) for n, fd in enumerate(fds)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    open(f"{shared}/done.{pause}", "w").close()
    try:
        with open(f"{shared}/back.{pause}", encoding="ascii") as f:
            back = float(f.read())
    except FileNotFoundError:
        back = began
    bad = {n: r[:2] for n, r in out.items() if not r[0]}
    last = max(r[2] for r in out.values()) - back
    late = {n: round(r[2] - back, 2) for n, r in sorted(out.items())
            if r[2] - back > float(limit) / 2}
    print(f"# {len(out)} tails, {len(bad)} short or failed {bad}; the last {last:.2f} s after its "
          f"time; late {late}")
    return 1 if bad or len(out) != FILES or last > float(limit) else 0


if sys.argv[1] == "make":
    make(sys.argv[2])
else:
    sys.exit(main(*sys.argv[1:]))
