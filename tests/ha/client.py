#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""client.py A B OUT FLAGS CLOCK PHASE - runs in a guest, on two mounts A and B of one server that
share no cache. Processes of a work through A and those of b through B; their histories are OUT.*
(see judge.py). It ends when the file FLAGS.stop is there, reads all once more through B, and ends
with status 0. Each process does one thing, again and again:

    create  makes a file, exclusively, and removes an older one
    list    lists what create made, through the other mount
    open    opens a file that was there before, reads it, closes it
    write   writes a block with fsync
    read    reads those blocks through the other mount, past its cache
    lock    locks and unlocks a byte; two processes, one through each mount
    use     writes through a descriptor that it opened at the start, on a file whose byte it locked
    try     tries to get that lock, through the other mount
    map     writes and reads through a shared mapping, which it has from the start to the end
    again   opens, reads and closes a file that nobody else has: where the server gives it a
            delegation, it asks nobody for that

At the end it says what it asked the server for, by the counts of its mounts.
"""
import argparse
import contextlib
import fcntl
import json
import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../checker"))
import record  # noqa: E402
from record import Ended, now, pattern, runs_of  # noqa: E402

ROLES = {"a": ("create", "open", "write", "lock", "use", "map", "again"),
         "b": ("list", "read", "lock", "try")}
PACE = 0.08
KEPT, BLOCKS, BLOCK = 8, 16, 4096


class Worker(record.Process):
    def role_create(self):
        d = os.path.join(self.a.folder, "d")
        if not hasattr(self, "own"):
            self.own, self.made = [], 0
            self.dir = f"i{os.stat(d).st_ino}"
        self.made += 1
        name = f"p{self.a.phase}-{self.made}"

        def create():
            fd = os.open(os.path.join(d, name), os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
            try:
                return f"i{os.fstat(fd).st_ino}"
            finally:
                os.close(fd)
        if self.do("create", create, lambda v: {"f": v}, dir=self.dir, name=name):
            self.own.append(name)
        if len(self.own) > KEPT:
            old = self.own.pop(0)
            self.do("unlink", lambda: os.unlink(os.path.join(d, old)), dir=self.dir, name=old)
        time.sleep(PACE)

    def role_list(self):
        d = os.path.join(self.a.folder, "d")
        if not hasattr(self, "dir"):
            self.dir = f"i{os.stat(d).st_ino}"
        self.do("readdir", lambda: [(e.name, f"i{e.inode()}") for e in os.scandir(d)],
                lambda v: {"names": v}, dir=self.dir)
        time.sleep(PACE)

    def role_open(self):
        path = os.path.join(self.a.folder, "old")
        if not hasattr(self, "f"):
            self.f = f"i{os.stat(path).st_ino}"
        fd = self.do("open", lambda: os.open(path, os.O_RDWR), f=self.f)
        if fd is not None:
            self.do("stat", lambda: os.fstat(fd).st_size, lambda v: {"size": v}, f=self.f)
            self.do("close", lambda: os.close(fd), f=self.f)
        time.sleep(PACE)

    def role_write(self):
        f, fd = self.fd_of("w", os.O_RDWR)
        off, tag = self.rng.randrange(BLOCKS) * BLOCK, self.next_tag()
        data = pattern(tag, off, BLOCK)

        def write():
            n = os.pwrite(fd, data, off)
            os.fsync(fd)
            return n
        self.do("write", write, lambda v: {"len": v}, f=f, off=off, len=BLOCK, tag=tag, sync=True)
        time.sleep(PACE)

    def role_read(self):
        f, fd = self.fd_of(self.rng.choice(("w", "m")), os.O_RDONLY | os.O_DIRECT)
        off = self.rng.randrange(BLOCKS) * BLOCK
        buf = record.mmap.mmap(-1, BLOCK)
        self.do("read", lambda: os.preadv(fd, [buf], off),
                lambda v: {"runs": runs_of(buf[:v], off)}, f=f, off=off, len=BLOCK, direct=True)
        time.sleep(PACE)

    def role_lock(self):
        f, fd = self.fd_of("locks", os.O_RDWR)
        how = fcntl.LOCK_EX | fcntl.LOCK_NB
        if self.do("lock", lambda: fcntl.lockf(fd, how, 10, 0) or True, lambda v: {}, f=f, off=0,
                   len=10, kind="w"):
            time.sleep(0.02)
        # Also after one whose outcome is unknown.
        self.do("unlock", lambda: fcntl.lockf(fd, fcntl.LOCK_UN, 10, 0), f=f, off=0, len=10)
        time.sleep(PACE)

    def role_use(self):
        f, fd = self.fd_of("held", os.O_RDWR)
        if not hasattr(self, "n_used"):
            self.n_used = 0
            if self.do("lock", lambda: fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 10, 0)
                       or True, lambda v: {}, f=f, off=0, len=10, kind="w"):
                open(f"{self.a.flags}.held{self.a.phase}", "w", encoding="ascii").close()
        self.n_used += 1

        def use():
            os.pwrite(fd, b"%08d" % self.n_used, 16)
            os.fsync(fd)
        self.do("use", use, what="a descriptor and a lock that were held")
        time.sleep(PACE)

    def role_map(self):
        f, fd = self.fd_of("m", os.O_RDWR)
        if not hasattr(self, "map"):
            self.map = record.mmap.mmap(fd, BLOCKS * BLOCK)
        off, tag = self.rng.randrange(BLOCKS) * BLOCK, self.next_tag()

        def write():
            self.map[off:off + BLOCK] = pattern(tag, off, BLOCK)
            self.map.flush(off, BLOCK)
            return BLOCK
        self.do("write", write, lambda v: {"len": v}, f=f, off=off, len=BLOCK, tag=tag, sync=True)
        at = self.rng.randrange(BLOCKS) * BLOCK
        self.do("read", lambda: self.map[at:at + BLOCK], lambda v: {"runs": runs_of(v, at)}, f=f,
                off=at, len=BLOCK, direct=False)
        time.sleep(PACE)

    def role_again(self):
        path = os.path.join(self.a.folder, "own")
        if not hasattr(self, "f"):
            self.f = f"i{os.stat(path).st_ino}"
        fd = self.do("open", lambda: os.open(path, os.O_RDWR), f=self.f)
        if fd is not None:
            self.do("read", lambda: os.pread(fd, BLOCK, 0), lambda v: {"runs": runs_of(v, 0)},
                    f=self.f, off=0, len=BLOCK, direct=False)
            if self.n % 20 < 3:
                tag = self.next_tag()
                self.do("write", lambda: os.pwrite(fd, pattern(tag, 0, BLOCK), 0),
                        lambda v: {"len": v}, f=self.f, off=0, len=BLOCK, tag=tag, sync=False)
                self.do("fsync", lambda: os.fsync(fd), f=self.f)
            self.do("close", lambda: os.close(fd), f=self.f)
        time.sleep(PACE)

    def let_go(self):
        """The end of use is the end of its lock."""
        if hasattr(self, "n_used"):
            f, fd = self.fds["held"]
            self.do("unlock", lambda: fcntl.lockf(fd, fcntl.LOCK_UN, 10, 0), f=f, off=0, len=10)
        super().let_go()

    def role_try(self):
        f, fd = self.fd_of("held", os.O_RDWR)
        if os.path.exists(f"{self.a.flags}.held{self.a.phase}"):
            if self.do("lock", lambda: fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
                       or True, lambda v: {}, f=f, off=0, len=1, kind="w"):
                self.do("unlock", lambda: fcntl.lockf(fd, fcntl.LOCK_UN, 1, 0), f=f, off=0, len=1)
        time.sleep(3 * PACE)

    def role_last(self):
        """Everything, once."""
        self.role_list()
        for name in ("w", "m"):
            f, fd = self.fd_of(name, os.O_RDONLY | os.O_DIRECT)
            for off in range(0, BLOCKS * BLOCK, BLOCK):
                buf = record.mmap.mmap(-1, BLOCK)
                self.do("read", lambda buf=buf, off=off, fd=fd: os.preadv(fd, [buf], off),
                        lambda v, buf=buf, off=off: {"runs": runs_of(buf[:v], off)}, f=f, off=off,
                        len=BLOCK, direct=True)
        raise Ended


def prepare(top):
    os.mkdir(os.path.join(top, "d"))
    for name in ("w", "locks", "held", "m", "own", "old"):
        fd = os.open(os.path.join(top, name), os.O_CREAT | os.O_RDWR, 0o644)
        if name == "m":
            os.ftruncate(fd, BLOCKS * BLOCK)
        os.close(fd)


def asked(top):
    """{operation: how often this mount has asked for it}"""
    with open("/proc/self/mountstats", encoding="ascii") as f:
        part = f.read().partition(f" mounted on {top} with ")[2].partition("\ndevice ")[0]
    words = (line.split() for line in part.splitlines())
    return {w[0][:-1]: int(w[1]) for w in words if len(w) > 8 and w[0].endswith(":")
            and w[0][:-1].isupper()}


def start(a, client, role, k, folder):
    """A process for a role, and the state that it shares with this one."""
    state = record.State()
    pid = os.fork()
    if pid:
        return pid, state
    how = argparse.Namespace(**vars(a), client=client, seed=k, number=1 + "ab".index(client),
                             seconds=0, roles={k: role}, folder=folder)
    one = Worker(how, k, state)
    with contextlib.suppress(BrokenPipeError):
        one.run()
    for (op, name), n in sorted(one.errors.items()):
        print(f"# {one.p}: {n} {op} failed with {name}", flush=True)
    os._exit(0)


def main():
    p = argparse.ArgumentParser()
    for name in ("A", "B", "out", "flags", "clock"):
        p.add_argument(name)
    p.add_argument("phase", type=int)
    a = p.parse_args()
    offset, error = record.measure_clock(a.clock)
    with open(a.out + ".clock", "w", encoding="ascii") as f:
        for who in ROLES:
            f.write(json.dumps({"e": "mark", "what": "clock", "t": now(), "who": who,
                                "offset": offset, "error": error}) + "\n")
    top = {"a": f"{a.A}/phase{a.phase}", "b": f"{a.B}/phase{a.phase}"}
    os.mkdir(top["a"])
    prepare(top["a"])
    k, pids = 0, {}
    for client, roles in ROLES.items():
        for role in roles:
            pid, _ = start(a, client, role, k, top[client])
            pids[pid] = role
            k += 1
    open(f"{a.flags}.going{a.phase}", "w", encoding="ascii").close()
    bad = 0
    while pids:
        pid, status = os.wait()
        role = pids.pop(pid)
        if status:
            print(f"# {role} ended with {status}", flush=True)
            bad = 1
    counts = asked(a.A)
    print("# asked: " + " ".join(f"{op}={counts.get(op, 0)}" for op in (
        "OPEN", "OPEN_NOATTR", "LOCK", "LAYOUTGET", "WRITE", "READ", "DELEGRETURN")), flush=True)
    pid, _ = start(a, "b", "last", k, top["b"])
    return bad or os.waitpid(pid, 0)[1] != 0


if __name__ == "__main__":
    sys.exit(main())
