#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Operations that wait for the end of grace (mds/nfs4/await_grace.c), while the server dies, stops
or ends, and while their client or their session goes. Prints TAP.

Each test has a cluster of its own, whose grace period ends by RECLAIM_COMPLETE alone. An operation
waits for 2 s at most, and then gets GRACE.
"""
import contextlib
import os
import signal
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../wirelib"))
import harness  # noqa: E402
import tap  # noqa: E402
from harness import *  # noqa: E402,F403
from steps import again, reclaim  # noqa: E402
from nfs41 import err  # noqa: E402

WAITING = 5  # operations that wait


def makes(d, name):
    return (putfh(d), open_(name, BOTH | NO_DELEG, how=GUARDED, attrs={"mode": 0o600}), getfh(),
            close(CURRENT))


class Waiting:
    """A client whose opens wait for grace, which another client holds."""

    def __init__(self, w, n=WAITING):
        self.w, self.holder, self.c = w, client(), client()
        self.d = self.c.mkdir(self.c.root(), "d")
        _, self.f = self.holder.open(self.d, "held")
        w.restart()
        again(self.c, True)
        self.begin(n)

    def begin(self, n):
        self.began = [self.c.begin(*makes(self.d, f"new{i}"), cache=True) for i in range(n)]
        self.c.ok()  # its connection's requests are taken up in their order

    def answers(self):
        """Each is answered: at once when grace ends, else by GRACE."""
        got = [err(self.c.finish(b).status) for b in self.began]
        check(set(got) <= {"OK", "GRACE"}, True, got)
        return got

    def pid(self):
        with open(os.path.join(self.w.dir, "run/mds.pid"), encoding="ascii") as f:
            return int(f.read())

    def grace_ends(self):
        """Also in the next life. What was refused, or has no answer, is done now, once."""
        again(self.holder)
        reclaim(self.holder, self.f)
        self.holder.ok(reclaim_complete())

    def made(self, got=(), want=("OK",)):
        for i in range(len(self.began)):
            if i < len(got) and got[i] == "OK":
                continue
            done = self.c.until(lambda g: err(g.status) not in ("GRACE", "DELAY"),
                                *makes(self.d, f"new{i}"), tries=1)
            check(err(done.status) in want, True, f"new{i}: {err(done.status)}")
        names = {e.name.decode() for e in self.c.ok(putfh(self.d), readdir()).entries}
        check(names, {"held", *(f"new{i}" for i in range(len(self.began)))})

    def next_life(self):
        """The client sends what was on the wire again, and then it is a new client."""
        session, slots = self.c.session.sessionid, [b[2] for b in self.began]
        seqs = list(self.c.slots)
        self.c.drop()
        self.c.conns = [self.c.connection()]
        for i, slot in enumerate(slots):
            first(self.c, "BADSESSION", sequence(session, seqs[slot], slot, max(slots), True),
                  *makes(self.d, f"new{i}"))
        again(self.c, True)
        self.grace_ends()
        self.made()


def test_a_server_that_is_killed(x):
    x.w.restart()
    x.next_life()


def test_a_server_that_stands_still(x):
    stand_still(x.pid())
    time.sleep(2.5)  # longer than they wait
    os.kill(x.pid(), signal.SIGCONT)
    got = x.answers()
    x.grace_ends()
    x.made(got)


def test_a_server_that_ends_in_order(x):
    began = time.monotonic()
    x.w.dev("kill", x.w.dir, "mds")
    tap.say(f"it ended in {time.monotonic() - began:.1f} s")
    with open(os.path.join(x.w.dir, "log/mds.log"), encoding="utf-8") as f:
        check("signal 15: stopping" in f.read(), True, "an orderly end")
    x.w.dev("start", x.w.dir, "mds")
    x.next_life()


def test_a_client_that_disconnects(x):
    """It asks again on another connection, and gets the answer that was kept for it."""
    x.c.drop()
    x.c.conns = [x.c.connection()]
    kept = []
    for i, (_, _, slot) in enumerate(x.began):
        def answer():
            got = x.c.conn.compound(sequence(x.c.session.sessionid, x.c.slots[slot], slot,
                                             WAITING, True), *makes(x.d, f"new{i}"))
            kept.append(err(got.status))
            return kept[-1] != "DELAY"
        eventually(answer, 60, "the kept answer")
    check(set(kept) <= {"DELAY", "GRACE"}, True, kept)
    x.c.free = list(range(len(x.c.slots)))
    x.grace_ends()
    x.made()


def test_a_client_that_is_gone_altogether(x):
    """Nobody hears the answers, and the server goes on. What it does when grace ends is done."""
    x.c.drop()
    x.c = client()
    x.grace_ends()
    x.made(want=("OK", "EXIST"))


def test_a_session_that_is_destroyed(x):
    conn, session = x.c.conn, x.c.session.sessionid
    check(err(conn.compound(destroy_session(session)).status), "OK", "DESTROY_SESSION")
    got = [err(read_compound(conn.finish(xid, 60)).status) for _, xid, _ in x.began]
    check(set(got), {"GRACE"}, "the answers of what it had under way")
    first(x.c, "BADSESSION", sequence(session, 1, 0))
    x.c.create_session()
    x.grace_ends()
    x.made()


def test_all_slots_of_a_session_wait(x):
    """Its other session goes on meanwhile, and so does the client that holds grace."""
    free = [s for s in x.c.free if s <= x.c.target]
    x.began += [x.c.begin(*makes(x.d, f"new{WAITING + i}"), cache=True) for i in range(len(free))]
    check([s for s in x.c.free if s <= x.c.target], [], "free slots")
    x.grace_ends()
    got = x.answers()
    x.made(got)


@contextlib.contextmanager
def around(name):
    w = harness.THE = Cluster(1, ["mds.lease=60s", "mds.grace=300s",
                                  f"mds.threads={1 if 'slots' in name else 2}"])
    try:
        with clients():
            yield (Waiting(w),)
    finally:
        harness.THE = None
        w.down()


if __name__ == "__main__":
    tap.run(tap.named(globals()), around, 3)
