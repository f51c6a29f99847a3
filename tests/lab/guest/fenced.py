#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""fenced.py - one of two clients that write the same file, round by round (t_fenced.sh).

fenced.py first FOLDER SHARED ROUNDS
    in round N writes A over FOLDER/fN, again and again, by direct I/O, from the flag first.N to the
    flag stop.N. Each acknowledged block adds a byte to SHARED/acked.N. It tries again what fails,
    because it is fenced meanwhile. Then it shows the flag over.N.
fenced.py second FOLDER SHARED ROUNDS
    at the flag second.N truncates the file to nothing, writes B all over it, and shows the flag
    wrote.N.
"""
import mmap
import os
import sys
import threading
import time

BLOCK, BLOCKS, WRITERS = 1 << 18, 16, 2


def wait(flag):
    while not os.path.exists(flag):
        time.sleep(0.02)


def show(flag):
    with open(flag, "x", encoding="ascii"):
        pass


def put(path, numbers, letter, acked, until):
    buf = mmap.mmap(-1, BLOCK)
    buf[:] = letter * BLOCK
    fd = None
    while True:
        for b in numbers:
            if until and os.path.exists(until):
                return
            try:
                if fd is None:
                    fd = os.open(path, os.O_WRONLY | os.O_DIRECT)
                if os.pwrite(fd, buf, b * BLOCK) != BLOCK:
                    raise OSError("a short write")
                os.write(acked, letter)
            except OSError as e:
                if not until:
                    sys.exit(f"{path}: {e}")
                time.sleep(0.1)
        if not until:
            os.close(fd)
            return


def cmd_first(folder, shared, rounds):
    for n in range(1, int(rounds) + 1):
        path = os.path.join(folder, f"f{n}")
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o666))
        acked = os.open(os.path.join(shared, f"acked.{n}"), os.O_CREAT | os.O_WRONLY | os.O_APPEND,
                        0o666)
        wait(os.path.join(shared, f"first.{n}"))
        writers = [threading.Thread(target=put,
                                    args=(path, range(w, BLOCKS, WRITERS), b"A", acked,
                                          os.path.join(shared, f"stop.{n}")))
                   for w in range(WRITERS)]
        for w in writers:
            w.start()
        for w in writers:
            w.join()
        os.close(acked)
        show(os.path.join(shared, f"over.{n}"))


def cmd_second(folder, shared, rounds):
    for n in range(1, int(rounds) + 1):
        path = os.path.join(folder, f"f{n}")
        acked = os.open(os.path.join(shared, f"second-acked.{n}"),
                        os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o666)
        wait(os.path.join(shared, f"second.{n}"))
        os.truncate(path, 0)
        put(path, range(BLOCKS), b"B", acked, None)
        os.close(acked)
        show(os.path.join(shared, f"wrote.{n}"))


sys.exit(globals()["cmd_" + sys.argv[1]](*sys.argv[2:]))
