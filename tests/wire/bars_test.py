#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""What a data server stores about evicted clients (docs/fencing.md). Prints TAP.

It stores as many runs of numbers as there are live clients, and it never accepts an evicted
client's capability again.
"""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../wirelib"))
import harness  # noqa: E402
import tap  # noqa: E402
from harness import *  # noqa: E402,F403
from steps import NOT_NOW, data_server, settled  # noqa: E402
from nfs41 import err  # noqa: E402

ACCES = 13
ROUNDS = 150
FEW = 64  # mds/dataserver/living_clients.c


def settings(name):
    # No test waits for a lease. The lease of the client that lives must not end on a slow machine.
    return ["mds.lease=300s", "ds.lease=60s", "mds.recall_deadline=5s", "mds.grace=60s"]


def victim(verifier=None):
    c = Client(ADDR, owner=b"victim", verifier=verifier)
    harness.CLIENTS.append(c)
    return c


def leave(c):
    """The client leaves in an orderly way."""
    c.ok(destroy_session(c.session.sessionid))
    first(c, "OK", destroy_clientid(c.clientid))
    forget(c)


def forget(c):
    harness.CLIENTS.remove(c)
    c.drop()


class World:
    def __init__(self, w):
        self.w, self.one = w, client()
        self.d = self.one.mkdir(self.one.root(), "d")
        s, self.f = self.one.open(self.d, "f")
        self.one.ok(putfh(self.f), write(s, 0, b"0123456789", FILE_SYNC), close(s))
        self.layout(self.one)

    def layout(self, c):
        """(the stateid of the open, the handle) of a layout of c's, for reading."""
        s = c.until(lambda got: err(got.status) not in NOT_NOW, putfh(self.f),
                    open_(claim_fh(), READ | NO_DELEG), tries=400).results[-1].stateid
        # A layout may still be out that a restart of a data server recalled.
        self.o = settled(c, self.f, s, IO_READ)
        self.ds = data_server(c, self.o.mirrors[0][0])
        return s, self.o.mirrors[0][0].fhs[0]

    def evict(self):
        """Restarts a client that has a layout, and lets it leave. The data servers bar its first
        number. No client has the second. Returns the handle."""
        c = victim()
        _, fh = self.layout(c)
        check(self.read(fh), 0)
        forget(c)
        again = victim()  # this makes its session when all data servers have barred the first
        check(self.read(fh), ACCES)
        leave(again)
        return fh

    def read(self, fh):
        ds = data_server(self.one, self.o.mirrors[0][0])
        try:
            return ds.read(fh, 0, 10).status
        finally:
            ds.close()

    def lives(self, what):
        """The client that lives reads, with a new layout.

        If the MDS noticed a data server's restart, it recalled the old layout, and revoked it then.
        """
        eventually(lambda: self.read(self.layout(self.one)[1]) == 0, 60, what)

    def bars(self):
        return [int(self.w.metric("weft_ds_bars", f"ds{k}")) for k in (1, 2)]


def test_bars_of_evicted_clients_do_not_pile_up(w):
    x = World(w)
    old = [x.evict() for _ in range(ROUNDS)]
    tap.say(f"{ROUNDS} evictions: {x.bars()} runs")
    eventually(lambda: max(x.bars()) <= FEW + 8, 60, "fewer runs")
    _, mine = x.layout(x.one)
    check(x.read(mine), 0, "one that lives")
    check([x.read(fh) for fh in old[::10]], [ACCES] * len(old[::10]), "evicted ones")


def test_after_restarts_an_evicted_clients_capability_is_no_good(w):
    x = World(w)
    old = [x.evict() for _ in range(6)]
    check([n >= 1 for n in x.bars()], [True, True])
    for k in (1, 2):
        w.restart(f"ds{k}")
    w.restart()
    forget(x.one)
    # Grace is over when the client is back with its number, which no server bars.
    x.one = Client(ADDR, owner=x.one.owner, verifier=x.one.verifier)
    harness.CLIENTS.append(x.one)
    x.layout(x.one)
    # The metadata server sends its list to data servers that have joined: between two clients that
    # live there is one run.
    eventually(lambda: max(x.bars()) <= 2, 60, "one run between two that live")
    x.lives("a lease")
    check([x.read(fh) for fh in old], [ACCES] * len(old))
    for k in (1, 2):
        w.restart(f"ds{k}")
    x.lives("a lease")
    check([x.read(fh) for fh in old], [ACCES] * len(old), "after another start of the data servers")
    check(max(x.bars()) <= 2, True, "what was told is kept")
    x.evict()
    x.lives("one that lives")


if __name__ == "__main__":
    run_apart(globals(), ds=2, settings=settings)
