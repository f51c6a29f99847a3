#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""A fence that a generic data server has not done (docs/generic.md). Prints TAP.

Such a server has no lease that would end, so the passage of time alone lets no client go on.
"""
import os
import signal
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../wirelib"))
import harness  # noqa: E402
import tap  # noqa: E402
from harness import *  # noqa: E402,F403
from steps import data_server, settled  # noqa: E402
from foreign import Foreign  # noqa: E402
from tool import rows, weft  # noqa: E402
from nfs3 import EXPORTS  # noqa: E402
from nfs41 import *  # noqa: E402,F403
from nfs41 import err  # noqa: E402
from files import MB  # noqa: E402
from mirrored import Wide, servers, states  # noqa: E402

LEASE_S = 3
# The metadata server's own limit for a confirmation is five seconds more than a lease. It is for
# servers that have a lease.
LONG_S = 2 * (LEASE_S + 5)
TWO = "mirrors=2,group0=kind=weft,group1=kind=nfs3"
GOOD, ENDED = 0, (13, 70)  # ACCES, STALE


def foreign_at(x):
    """Which copy is on a server that is not ours."""
    return next(i for i, m in enumerate(x.o.mirrors) if int(m[0].user) >= 1 << 30)


class Asked:
    """A request that is under way."""

    def __init__(self, c, *ops):
        self.c, self.under_way = c, c.begin(*ops)

    def no_answer_for(self, seconds):
        began = time.monotonic()
        try:
            got = self.c.finish(self.under_way, seconds)
        except TimeoutError:
            return
        raise Failed(f"answered after {time.monotonic() - began:.1f} s: {err(got.status)}")

    def answer(self):
        return err(self.c.finish(self.under_way, 120).status)


def again(w, name, squash):
    """Starts the server again. Where it squashes root it answers every caller, and no longer does
    what the metadata server, which is root, asks for."""
    server = w.servers[name]
    server.kill()
    exports = EXPORTS.replace("squash = none", "squash = " + squash, 1)
    server.put("exports", exports.format(top=server.top))
    server.start()
    eventually(lambda: rows(w)[name]["alive"], 60, "it is back")


def change_of(w, name, **attrs):
    """The server of a file stands still, and a client makes a change that ends old capabilities."""
    x = Wide(name, MB, "group=kind=nfs3")
    fh, server = x.o.mirrors[0][0].fhs[0], w.servers[servers(x.c, x.f)[0]]
    x.c.ok(putfh(x.f), layoutreturn(x.o.stateid))
    stand_still(server.child.pid)
    try:
        asked = Asked(client(), putfh(x.f), setattr_(ANON, **attrs))
        asked.no_answer_for(LONG_S)
    finally:
        os.kill(server.child.pid, signal.SIGCONT)
    check(asked.answer(), "OK")
    return x, fh


def test_a_right_that_is_taken_is_taken_when_that_is_answered(w):
    x, fh = change_of(w, "right", mode=0)
    check(x.ds[0].read(fh, 0, 10).status in ENDED, True, "the handle of before")


def test_a_right_to_one_of_two_copies_is_taken_when_that_is_answered(w):
    x = Wide("both", MB, TWO)
    at, name = foreign_at(x), next(s for s in servers(x.c, x.f) if s.startswith("g"))
    m = x.o.mirrors[at][0]
    read = lambda: data_server(x.c, m).read(m.fhs[0], 0, 4).status  # noqa: E731
    x.give_back()
    again(w, name, "root")
    asked = Asked(client(), putfh(x.f), setattr_(ANON, mode=0))
    asked.no_answer_for(LONG_S)
    check(read(), GOOD, "the handle of before, until then")
    again(w, name, "none")
    check(asked.answer(), "OK")
    check(read() in ENDED, True, "the handle of before")


def test_a_size_that_is_set_is_set_when_that_is_answered(w):
    x, fh = change_of(w, "size", size=10)
    check(x.ds[0].write(fh, 0, b"late").status in ENDED, True, "the handle of before")
    check(x.c.attrs(x.f, "size").size, 10)


def test_a_retry_of_a_change_waits_as_its_first_try_did(w):
    x = Wide("again", MB, "group=kind=nfs3")
    fh, server = x.o.mirrors[0][0].fhs[0], w.servers[servers(x.c, x.f)[0]]
    x.c.ok(putfh(x.f), layoutreturn(x.o.stateid))
    owner = client()
    seq = sequence(owner.session.sessionid, 1, 1, 1, True)
    args = compound_args((seq, putfh(x.f), setattr_(ANON, mode=0)))
    stand_still(server.child.pid)
    try:
        owner.connection().start(1, args, owner.cred)
        eventually(lambda: x.c.attrs(x.f, "mode").mode == 0, 60, "it is committed")
        w.dev("kill", w.dir, "mds", "-9")
        w.dev("start", w.dir, "mds")
        conn = Conn(ADDR)
        xid = conn.start(1, args, owner.cred)
        try:
            raise Failed(f"answered: {err(read_compound(conn.finish(xid, LONG_S)).status)}")
        except TimeoutError:
            pass
    finally:
        os.kill(server.child.pid, signal.SIGCONT)
    check(err(read_compound(conn.finish(xid, 120)).status), "OK")
    check(x.ds[0].read(fh, 0, 10).status in ENDED, True, "the handle of before")


def reader_and_writer(name):
    """Both clients have the file open, and a layout. The reader keeps its layout."""
    x = Wide(name, MB, TWO)
    x.give_back()
    reader = client()
    s = reader.ok(putfh(x.f), open_(claim_fh(), IO_READ | NO_DELEG)).stateid
    o = settled(reader, x.f, s, IO_READ)
    reader.on_callback = lambda what, args: None
    at = next(i for i, m in enumerate(o.mirrors) if int(m[0].group) >= 1 << 30)
    x.open_layout()
    return x, lambda: data_server(reader, o.mirrors[at][0]).read(o.mirrors[at][0].fhs[0], 0, 4)


def test_a_report_is_answered_when_nobody_reads_the_copy_that_missed_a_write(w):
    x, old = reader_and_writer("report")
    at = foreign_at(x)
    name = next(s for s in servers(x.c, x.f) if s.startswith("g"))
    again(w, name, "root")
    check(x.ds[1 - at].write(x.o.mirrors[1 - at][0].fhs[0], 0, b"NEW ").status, GOOD)
    failed = [(x.o.mirrors[at][0].deviceid, 5, NUM["WRITE"])]
    asked = Asked(x.c, putfh(x.f), layouterror(x.o.stateid, failed))
    asked.no_answer_for(LONG_S)
    seen = []

    def reads():  # a data server whose lease lapsed serves again with the next one
        seen.append(old())
        return seen[-1].status == GOOD
    eventually(reads, what="what the reader can still read")
    check(seen[-1].data, bytes(x.data[:4]), "what the reader can still read")
    again(w, name, "none")
    check(asked.answer(), "OK")
    check(old().status in ENDED, True, "the reader's handle")


def test_a_dead_servers_copy_that_nobody_holds_is_done_without(w):
    x = Wide("without", MB, TWO)
    name = next(s for s in servers(x.c, x.f) if s.startswith("g"))
    x.give_back()
    stand_still(w.servers[name].child.pid)
    try:
        check(Asked(client(), putfh(x.f), setattr_(ANON, mode=0o600)).answer(), "OK")
        check(sorted(states(x.c, x.f)), ["in-sync", "stale"])
    finally:
        os.kill(w.servers[name].child.pid, signal.SIGCONT)


def around(name):
    settings = [f"ds.lease={LEASE_S}s", "mds.lease=60s", "mds.recall_deadline=2s",
                "mds.repair_wait=300s"]
    if "dead" not in name:
        settings += ["mds.ds_refused=60s", "mds.ds_dead=120s"]
    harness.THE = Foreign(2, 2, settings)
    return own_cluster(harness.THE)


if __name__ == "__main__":
    tap.run(tap.named(globals()), around, beside=3)
