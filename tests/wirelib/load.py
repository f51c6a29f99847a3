# SPDX-License-Identifier: Apache-2.0
"""What a daemon takes for its clients, and how soon it answers one of them."""
import contextlib
import glob
import json
import os
import re
import statistics
import time

import harness
import tap
from harness import *  # noqa: F403
from nfs41 import err

with open(os.path.join(BUILD, "weft-mds"), "rb") as program:
    SANITIZED = b"__asan_init" in program.read()


def anon(pid):
    """Bytes of memory of its own that the process has."""
    with open(f"/proc/{pid}/status", encoding="ascii") as f:
        return int(re.search(r"RssAnon:\s+(\d+)", f.read())[1]) * 1024


def mds_pid(w):
    return next(r["pid"] for r in json.loads(w.dev("status", w.dir, "--json"))["daemons"]
                if r["name"] == "mds")


def pids(w):
    """Of its daemons that run."""
    return [r["pid"] for r in json.loads(w.dev("status", w.dir, "--json"))["daemons"] if r["pid"]]


class Watch:
    """A stopwatch for what the daemons and this process do. The time in which one of their threads
    is ready, and waits for a processor that other programs have, does not count. What waits for a
    lock, for a peer or for a time counts in full."""

    def __init__(self, *pids):
        self.files = [f"/proc/{pid}/task/*/schedstat" for pid in ("self", *pids)]
        self.waited = {}  # seconds that each thread was ready and did not run; it may have ended
        self.start()

    def delays(self):
        for path in (p for pattern in self.files for p in glob.glob(pattern)):
            with contextlib.suppress(OSError), open(path, encoding="ascii") as f:
                self.waited[path] = int(f.read().split()[1]) / 1e9
        return sum(self.waited.values())

    def start(self):
        self.before, self.began = self.delays(), time.monotonic()

    def took(self):
        """Seconds since start()."""
        passed = time.monotonic() - self.began
        return max(0, passed - (self.delays() - self.before))


class Slots:
    """A session, slot by slot."""

    def __init__(self, asked=64, ops=16, **how):
        self.c = client(session=False, **how)
        self.c.exchange_id()
        self.c.create_session(fore=dict(reqs=asked, cached=16384, ops=ops))
        self.granted = self.c.session.fore.reqs
        self.seqs = {}

    def send(self, slot, *ops, highest=None, again=False, want="OK", cache=False):
        """Sends the slot's next request, or its last one again. Returns the result of SEQUENCE."""
        seq = self.seqs.get(slot, 0) + (not again)
        got = self.c.conn.compound(sequence(self.c.session.sessionid, seq, slot,
                                            slot if highest is None else highest, cache), *ops)
        check(err(got.status), want, f"slot {slot}")
        if got.results[0].status == 0:
            self.seqs[slot] = seq
        return got.results[0]

    def told(self, *args, **how):
        r = self.send(*args, **how)
        return r.highest + 1, r.target + 1


class Pace:
    """The operations of a client in a directory of its own, one after the other; how long each
    takes by a Watch, and how many were done."""

    def __init__(self):
        self.watch = Watch(mds_pid(harness.THE))
        self.c = client()
        self.d = self.c.mkdir(self.c.root(), f"pace{time.monotonic_ns()}")
        self.s, self.f = self.c.open(self.d, "f")
        self.n = 0

    def turn(self):
        c, name = self.c, f"n{self.n}"
        c.ok(putfh(self.d), create(FIFO, name, mode=0o600))
        c.ok(putfh(self.d), lookup(name), getattr_("type", "change"))
        c.ok(putfh(self.d), readdir(maxcount=2000))
        c.ok(putfh(self.f), setxattr("x", name.encode()))
        c.ok(putfh(self.d), remove(name))
        self.n += 1

    def run(self, seconds=0.6, least=15):
        """The median and the longest of its turns."""
        took, until = [], time.monotonic() + seconds
        while time.monotonic() < until or len(took) < least:
            self.watch.start()
            self.turn()
            took.append(self.watch.took())
        return statistics.median(took), max(took)

    def beside(self, what, before, more=0.02):
        for _ in range(4):  # other programs run on the machine
            now = self.run()
            late = now[0] > 8 * before[0] + more or now[1] > before[1] + 0.7
            if not late:
                break
        tap.say(f"{what}: five operations in {now[0] * 1000:.1f} ms (longest {now[1] * 1000:.0f}), "
                f"before in {before[0] * 1000:.1f}")
        if late:
            raise Failed(f"{what}: {now[0] * 1000:.1f} ms, longest {now[1] * 1000:.0f} ms; before "
                         f"{before[0] * 1000:.1f} ms")


def raw_call(xid, *ops):
    record = rpc_call(xid, 1, compound_args(ops), auth_sys())
    return u32(0x80000000 | len(record)) + record
