#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""record.py - works on a mounted folder at random, and writes what it asked and which answers it
got: a history (history.py).

record.py clock PORT
    runs on the machine that gives all clients their time. It answers each datagram with its clock,
    until it is ended.
record.py work FOLDER OUT CLIENT [--number N] [--phase N] [--seed S] [--seconds S]
        [--clock HOST:PORT] [--flags PATH] [--limit S] [--roles LETTERS]
    CLIENT works on FOLDER, and the histories of its processes are OUT.0, OUT.1, ... It ends after
    --seconds or when the file PATH.stop is there. While PATH.pause is there it holds nothing open
    and does nothing, and shows that by PATH.paused. An operation that takes longer than --limit is
    a complaint and the end. --number (1 to 15) is the client's own, --phase counts the times it
    works on the same folder. What failed, the longest wait, and the seed are lines at the end.
record.py read FOLDER OUT CLIENT [--clock HOST:PORT]
    reads everything that is there, past the cache: what is left at the end.

Roles, a process for each letter:
    b   blocks of files that all clients write, past the cache: reads, writes, truncations, sizes
    c   a file of its own through the cache, with fsync and close; and the other clients' files,
        opened again each time
    n   names in a folder that all use: creates, renames over another, links, unlinks, look-ups,
        listings
    l   locks on parts of one file
Mount with actimeo=0,lookupcache=none: the checker judges names and sizes as the servers report
them, and a client's caches of attributes promise less.

Every 16 bytes that are written name their write and where they belong, so what is read needs no
table. Each process renames only what it made, and holds no lock while it waits for another.
"""
import argparse
import array
import errno
import fcntl
import json
import mmap
import os
import random
import socket
import struct
import sys
import time

# Blocks are APART, so that files have several units of 1 MiB.
BLOCK, BLOCKS, APART, SHARED_FILES, NAMES = 4096, 96, 32768, 3, 12
now = time.monotonic


def pattern(tag, off, n):
    """The bytes of a write: off and n are multiples of 16."""
    a = array.array("Q", bytes(n))
    a[0::2] = array.array("Q", [tag]) * (n // 16)
    a[1::2] = array.array("Q", range(off, off + n, 16))
    return a.tobytes()


def runs_of(data, off):
    """[[length, tag], ...] of what was read at off."""
    runs = []

    def add(n, tag):
        if runs and runs[-1][1] == tag:
            runs[-1][0] += n
        else:
            runs.append([n, tag])

    def piece(at, n):
        part = data[at:at + n]
        if not any(part):
            return add(n, 0)
        tag = struct.unpack_from("<Q", part)[0] if n >= 16 else 0
        if tag < 1 << 62 and n % 16 == 0 and part == pattern(tag, off + at, n):
            return add(n, tag if tag else -1)
        if n <= 16:
            return add(n, -1)
        step = 1024 if n > 1024 else 16
        for k in range(at, at + n, step):
            piece(k, min(step, at + n - k))
    for at in range(0, len(data), 16384):
        piece(at, min(16384, len(data) - at))
    return runs


class Ended(Exception):
    """The flag to stop, or the time."""


class Process:
    """One process of a client: what it does comes in pairs of lines."""

    def __init__(self, a, k, state):
        self.a, self.p, self.n, self.state = a, f"{a.client}/{k}", 0, state
        self.rng = random.Random(f"{a.seed} {a.phase} {a.number} {k}")
        self.tag = (a.phase << 4 | a.number) << 40 | k << 32
        self.out = os.open(f"{a.out}.{k}", os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o666)
        self.end = now() + a.seconds if a.seconds else float("inf")
        self.fds = {}
        self.errors = {}

    def line(self, **r):
        os.write(self.out, (json.dumps(r) + "\n").encode())

    def do(self, op, fn, got=None, **a):
        """fn() does it. got(its value) is what the line of the end reports. Returns fn's value, or
        None where it failed."""
        self.n += 1
        self.state.began = begin = now()
        self.line(e="call", p=self.p, n=self.n, t=begin, op=op, **a)
        try:
            value = fn()
            end, told = now(), None
        except OSError as e:
            end, value = now(), None
            name = errno.errorcode.get(e.errno, str(e.errno))
            told = {"err": "EAGAIN" if name == "EACCES" and op == "lock" else name}
            if told["err"] not in ("EEXIST", "ENOENT", "EAGAIN"):
                self.errors[op, name] = self.errors.get((op, name), 0) + 1
        self.state.worst, self.state.began = max(self.state.worst, end - begin), 0
        self.line(e="done", p=self.p, n=self.n, t=end, **(told or (got(value) if got else {})))
        return value

    def between(self):
        """Before each operation: may it go on?"""
        flags = self.a.flags
        if now() > self.end or flags and os.path.exists(flags + ".stop"):
            raise Ended
        if flags and os.path.exists(flags + ".pause"):
            self.let_go()
            self.state.paused = 1
            while os.path.exists(flags + ".pause") and not os.path.exists(flags + ".stop"):
                time.sleep(0.02)
            self.state.paused = 0

    def let_go(self):
        for f, fd in self.fds.values():
            if self.p.split("/")[1] in self.cached:
                self.do("close", lambda fd=fd: os.close(fd), f=f)
            else:
                os.close(fd)
        self.fds = {}

    cached = ()

    def fd_of(self, name, flags):
        """(identity, descriptor) of a file of the folder, kept open. It opens a file again whose
        descriptor is stale."""
        if name not in self.fds:
            fd = os.open(os.path.join(self.a.folder, name), flags, 0o666)
            self.fds[name] = f"i{os.fstat(fd).st_ino}", fd
        return self.fds[name]

    def next_tag(self):
        self.tag += 1
        return self.tag

    def run(self):
        role = getattr(self, "role_" + self.a.roles[int(self.p.split("/")[1])])
        try:
            while True:
                self.between()
                role()
        except Ended:
            self.let_go()

    # ---- roles

    def role_b(self):
        r = self.rng
        try:
            f, fd = self.fd_of(f"s{r.randrange(SHARED_FILES)}",
                               os.O_RDWR | os.O_CREAT | os.O_DIRECT)
        except OSError:
            return time.sleep(0.1)
        first = r.randrange(BLOCKS)
        n, off, what = r.choice((1, 1, 1, 2, 4, 16)) * BLOCK, first * APART, r.random()
        buf = mmap.mmap(-1, n)
        if what < 0.5:
            tag = self.next_tag()
            buf[:] = pattern(tag, off, n)
            self.do("write", lambda: os.pwrite(fd, buf, off), lambda v: {"len": v}, f=f, off=off,
                    len=n, tag=tag, sync=True)
        elif what < 0.96:
            self.do("read", lambda: os.preadv(fd, [buf], off),
                    lambda v: {"runs": runs_of(buf[:v], off)}, f=f, off=off, len=n, direct=True)
        elif what < 0.97:
            self.do("truncate", lambda: os.ftruncate(fd, off), f=f, size=off)
        else:
            os.close(self.fds.popitem()[1][1])
        return None

    def role_c(self):
        r = self.rng
        mine = r.random() < 0.6
        others = [n for n in range(1, self.a.clients + 1) if n != self.a.number]
        name = f"c{self.a.number if mine else r.choice(others or [self.a.number])}"
        path = os.path.join(self.a.folder, name)
        try:
            fd = os.open(path, os.O_RDWR | os.O_CREAT if mine else os.O_RDONLY, 0o666)
            f = f"i{os.fstat(fd).st_ino}"
        except OSError:
            return time.sleep(0.1)
        os.close(fd)
        fd = self.do("open", lambda: os.open(path, os.O_RDWR if mine else os.O_RDONLY), f=f)
        if fd is None:
            return time.sleep(0.1)
        # The name may lead to another file by now; these do not.
        if f"i{os.fstat(fd).st_ino}" == f:
            for _ in range(r.randrange(1, 8)):
                off, n = r.randrange(BLOCKS * APART // 64) * 64, r.choice((64, 1024, 4096, 20480))
                if mine and r.random() < 0.6:
                    tag = self.next_tag()
                    data = pattern(tag, off, n)
                    self.do("write", lambda data=data, off=off: os.pwrite(fd, data, off),
                            lambda v: {"len": v}, f=f, off=off, len=n, tag=tag, sync=False)
                elif mine and r.random() < 0.2:
                    self.do("fsync", lambda: os.fsync(fd), f=f)
                else:
                    self.do("read", lambda off=off, n=n: os.pread(fd, n, off),
                            lambda v, off=off: {"runs": runs_of(v, off)}, f=f, off=off, len=n,
                            direct=False)
        # A close alone leaves it to a write delegation when the client writes it.
        if mine:
            self.do("fsync", lambda: os.fsync(fd), f=f)
        self.do("close", lambda: os.close(fd), f=f)
        return None

    def role_n(self):
        r, top = self.rng, os.path.join(self.a.folder, "names")
        if not hasattr(self, "own"):
            self.own, self.made = {}, 0
            self.dir = f"i{os.stat(top).st_ino}"
        d, what = self.dir, r.random()
        common = r.choice(("t", "l")) + str(r.randrange(NAMES))

        def ino(path):
            return f"i{os.stat(path).st_ino}"

        def create(path):
            fd = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666)
            try:
                return f"i{os.fstat(fd).st_ino}"
            finally:
                os.close(fd)
        if what < 0.25 and len(self.own) < 4 or not self.own:
            self.made += 1
            name = f"n{self.a.phase}-{self.a.number}-{self.p.split('/')[1]}-{self.made}"
            f = self.do("create", lambda: create(f"{top}/{name}"), lambda v: {"f": v}, dir=d,
                        name=name)
            if f:
                self.own[name] = f
        elif what < 0.45:
            name = r.choice(sorted(self.own))
            f, to = self.own.pop(name), f"t{r.randrange(NAMES)}"
            self.do("rename", lambda: os.rename(f"{top}/{name}", f"{top}/{to}"), f=f, dir=d,
                    name=name, todir=d, toname=to)
        elif what < 0.52:
            name = r.choice(sorted(self.own))
            to = f"l{r.randrange(NAMES)}"
            self.do("link", lambda: os.link(f"{top}/{name}", f"{top}/{to}"), f=self.own[name],
                    dir=d, name=to)
        elif what < 0.66:
            self.do("unlink", lambda: os.unlink(f"{top}/{common}"), dir=d, name=common)
        elif what < 0.92:
            name = common if r.random() < 0.8 else r.choice(sorted(self.own))
            self.do("lookup", lambda: ino(f"{top}/{name}"), lambda v: {"f": v}, dir=d, name=name)
        else:
            self.do("readdir", lambda: [(e.name, f"i{e.inode()}") for e in os.scandir(top)],
                    lambda v: {"names": [e for e in v if not e[0].startswith(".nfs")]}, dir=d)

    def role_l(self):
        r = self.rng
        try:
            f, fd = self.fd_of("locks", os.O_RDWR | os.O_CREAT)
        except OSError:
            return time.sleep(0.1)
        off, n = r.randrange(4) * 10, r.choice((5, 10, 20))
        kind = r.choice("rw")
        how = fcntl.LOCK_SH if kind == "r" else fcntl.LOCK_EX
        wait = 0 if r.random() < 0.4 else fcntl.LOCK_NB
        if self.do("lock", lambda: fcntl.lockf(fd, how | wait, n, off) or True, lambda v: {}, f=f,
                   off=off, len=n, kind=kind):
            time.sleep(r.choice((0, 0.01, 0.05)))
        # Also after one whose outcome is unknown.
        self.do("unlock", lambda: fcntl.lockf(fd, fcntl.LOCK_UN, n, off), f=f, off=off, len=n)
        time.sleep(r.choice((0, 0, 0.02)))
        return None


    def role_r(self):
        """Everything, once."""
        top = self.a.folder
        d = f"i{os.stat(top + '/names').st_ino}"
        self.do("readdir", lambda: [(e.name, f"i{e.inode()}") for e in os.scandir(top + "/names")],
                lambda v: {"names": [e for e in v if not e[0].startswith(".nfs")]}, dir=d)
        for name in sorted(os.listdir(top)):
            if name[0] not in "sc":
                continue
            fd = os.open(os.path.join(top, name), os.O_RDONLY | os.O_DIRECT)
            f = f"i{os.fstat(fd).st_ino}"
            self.do("stat", lambda fd=fd: os.fstat(fd).st_size, lambda v: {"size": v}, f=f)
            for off in range(0, BLOCKS * APART + (1 << 18), 1 << 18):
                buf = mmap.mmap(-1, 1 << 18)
                self.do("read", lambda fd=fd, buf=buf, off=off: os.preadv(fd, [buf], off),
                        lambda v, buf=buf, off=off: {"runs": runs_of(buf[:v], off)}, f=f, off=off,
                        len=1 << 18, direct=True)
            os.close(fd)
        raise Ended


class State:
    """What the parent knows of a process: three numbers in memory that both have."""

    def __init__(self):
        self.m = mmap.mmap(-1, 4096)

    def of(at):  # noqa: N805
        return property(lambda self: struct.unpack_from("d", self.m, at)[0],
                        lambda self, v: struct.pack_into("d", self.m, at, v))
    began, worst, paused = of(0), of(8), of(16)


def measure_clock(where):
    """(offset, error) of the clock at HOST:PORT and this one, from the quickest of many answers."""
    host, port = where.rsplit(":", 1)
    best = None
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.settimeout(1)
        s.connect((host, int(port)))
        for i in range(200):
            begin = now()
            s.send(struct.pack("!Q", i))
            try:
                n, theirs = struct.unpack("!Qd", s.recv(64))
            except OSError:
                continue
            end = now()
            if n == i and (best is None or end - begin < best[1] * 2):
                best = theirs - (begin + end) / 2, (end - begin) / 2
    if best is None:
        sys.exit(f"no clock at {where}")
    return best


def cmd_clock(port):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.bind(("0.0.0.0", int(port)))
        while True:
            n, who = s.recvfrom(64)
            s.sendto(n + struct.pack("!d", now()), who)


def cmd_read(folder, out, client, *args):
    return cmd_work(folder, out, client, "--roles", "r", *args)


def cmd_work(*args):
    p = argparse.ArgumentParser()
    p.add_argument("folder")
    p.add_argument("out")
    p.add_argument("client")
    p.add_argument("--number", type=int, default=1)
    p.add_argument("--phase", type=int, default=0)
    p.add_argument("--clients", type=int, default=2)
    p.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**32))
    p.add_argument("--seconds", type=float, default=0)
    p.add_argument("--limit", type=float, default=120)
    p.add_argument("--clock")
    p.add_argument("--flags")
    p.add_argument("--roles", default="bbcnnl")
    a = p.parse_args(args)
    os.makedirs(os.path.join(a.folder, "names"), exist_ok=True)
    if a.clock:
        offset, error = measure_clock(a.clock)
        # Read by check.py with the others.
        with open(a.out + ".clock", "w", encoding="ascii") as f:
            f.write(json.dumps({"e": "mark", "what": "clock", "t": now(), "who": a.client,
                                "offset": offset, "error": error}) + "\n")
    children = {}
    for k in range(len(a.roles)):
        state = State()
        pid = os.fork()
        if not pid:
            one = Process(a, k, state)
            one.run()
            for (op, name), n in sorted(one.errors.items()):
                print(f"# {one.p}: {n} {op} failed with {name}", flush=True)
            os._exit(0)
        children[pid] = state
    return watch(a, children)


def watch(a, children):
    """Waits until all processes have ended. Returns 1 where one hangs or ended badly."""
    status, states, paused = 0, list(children.values()), False
    while children:
        pid, how = os.waitpid(-1, os.WNOHANG)
        if pid:
            status |= how != 0
            del children[pid]
            continue
        time.sleep(0.02)
        all_paused = all(s.paused for s in children.values())
        if a.flags and all_paused != paused:
            paused = all_paused
            if paused:
                open(a.flags + ".paused", "w", encoding="ascii").close()
            else:
                os.unlink(a.flags + ".paused")
        began = [at for at in [s.began for s in children.values()] if at]  # each is read once
        if began and now() - min(began) > a.limit:
            print(f"# {a.client}: an operation has no end after {a.limit} s", flush=True)
            for pid in children:
                os.kill(pid, 9)
            return 1
    print(f"# {a.client}: seed {a.seed}, the longest wait {max(s.worst for s in states):.1f} s",
          flush=True)
    return status


if __name__ == "__main__":
    sys.exit(globals()["cmd_" + sys.argv[1]](*sys.argv[2:]))
