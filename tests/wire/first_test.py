#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Two clients that write at once may leave copies that differ (docs/mirrors.md, "Two writers").
Prints TAP.

The copy that readers see first changes only when it is lost. A lost copy does not come back before
it is equal.
"""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../wirelib"))
import harness  # noqa: E402
from harness import *  # noqa: E402,F403
from steps import data_server, settled  # noqa: E402
from nfs41 import err  # noqa: E402
from tool import server  # noqa: E402
from mirrored import (BLOCK, Shared, cross, crossed_writers, through, compared,  # noqa: E402
                      contended, equal, servers, states, uuid_of, whole)

ACCES, IO, NXIO = 13, 5, 6
LATER = "DELAY", "LAYOUTTRYLATER", "RECALLCONFLICT"


def settings(name):
    """When the server declares a data server dead whose port refuses: at once, or only when its
    lease is over, soon or late."""
    refused = "mds.ds_refused=300s" if "before" in name or "behind" in name else "mds.ds_refused=2s"
    lease = "ds.lease=10s" if "behind" in name else "ds.lease=60s"
    return ["mds.lease=60s", lease, refused, "mds.ds_suspect=2s", "mds.ds_dead=300s",
            "mds.repair_files=4", "mds.recall_deadline=20s",
            "mds.repair_wait=300s", "mds.grace=60s"]


def lives(w, name):
    return server(w, name)["alive"]


class Reader(Shared):
    """Another client each time. It reads the copy that its layout prefers."""

    def __init__(self, f):
        super().__init__(f)
        self.o = settled(self.c, f, self.s, IO_READ)

    def byte(self):
        m = next(m[0] for m in self.o.mirrors if m[0].deviceid == self.first())
        got = data_server(self.c, m).read(m.fhs[0], 0, 1)
        check(got.status, 0)
        return got.data


def name_of(c, f, deviceid):
    return next(s for s in servers(c, f) if uuid_of(c, f, s) == deviceid)


def first_and_byte(a, f):
    """The first server of a new reader's layout, and the byte that it reads there."""
    reader = Reader(f)
    return name_of(a.c, f, reader.first()), reader.byte()


def test_a_server_that_is_back_before_it_is_dead_was_first_all_the_time(w):
    f, a, _, (one, two) = crossed_writers(w, "back")
    c = client()
    check((first_and_byte(a, f), through(c, f)), ((one, b"b"), b"b"))
    w.dev("kill", w.dir, one, "-9")
    eventually(lambda: not lives(w, one), 60, "that it is gone is noticed")
    check(name_of(a.c, f, Reader(f).first()), one,
          "what a layout names first while its server is away")
    c.no("DELAY", putfh(f), read(ANON, 0, 1))
    w.dev("start", w.dir, one)
    eventually(lambda: lives(w, one), 60, "it is back")
    check((first_and_byte(a, f), through(c, f)), ((one, b"b"), b"b"))
    check(states(a.c, f), ["in-sync", "in-sync"], "nothing was to be repaired")


def test_a_server_that_dies_behind_the_writers_is_first_no_more(w):
    f, a, b, (one, two) = crossed_writers(w, "writers")
    c = client()
    check((first_and_byte(a, f), through(c, f)), ((one, b"b"), b"b"))
    w.dev("kill", w.dir, one, "-9")
    eventually(lambda: not lives(w, one), 60, "that it is gone is noticed")
    a.give_back()
    b.give_back()
    eventually(lambda: through(c, f) == b"a", 60, "it is dead")
    check((first_and_byte(a, f), through(c, f)), ((two, b"a"), b"a"))
    w.dev("start", w.dir, one)
    seen = set()
    eventually(lambda: seen.add(through(c, f)) or (contended(w) == 0 and whole(c, f)), 60,
               "a comparison and a repair")
    seen.add(through(c, f))
    check(seen, {b"a"}, "what is read from then on")
    equal(w, c, f, b"a" * BLOCK + b"0" * (3 * BLOCK))


def test_a_copy_that_is_repaired_while_two_write_comes_after_the_others(w):
    f, a, b, (one, two) = crossed_writers(w, "late")
    a.c.ok(putfh(f), layouterror(a.o.stateid, [(uuid_of(a.c, f, one), IO, NUM["WRITE"])]))
    eventually(lambda: whole(a.c, f), 60, "a repair")
    # The layouts went back for the repair. Both clients write both copies again, in different
    # orders, as before. Now readers see the second copy.
    cross(w, f, a, b)
    reader = Reader(f)
    check((name_of(a.c, f, reader.first()), reader.byte()), (two, b"a"))
    check(through(reader.c, f), b"a")
    # A restart does not forget it: the comparison believes the copy that readers have seen. All
    # clients come back.
    w.restart()
    back = [Client(ADDR, owner=c.owner, verifier=c.verifier) for c in harness.CLIENTS]
    harness.CLIENTS += back
    for c in back:
        c.until(lambda got: err(got.status) not in ("GRACE", "DELAY"), putfh(f), getattr_("size"),
                tries=400)
    check(through(back[0], f), b"a")
    compared(w, back[0], f)
    equal(w, back[0], f, b"a" * BLOCK + b"0" * (3 * BLOCK))


def test_what_the_metadata_server_reads_does_not_go_back(w):
    f, a, b, (one, _) = crossed_writers(w, "through")
    c = client()
    seen = [through(c, f)]
    w.dev("kill", w.dir, one, "-9")
    seen.append(through(c, f))
    w.dev("start", w.dir, one)
    seen.append(through(c, f))
    eventually(lambda: whole(c, f), 60, "a repair")
    seen.append(through(c, f))
    check(seen, [b"b", b"a", b"a", b"a"], "what is read")
    a.give_back()
    b.give_back()
    compared(w, c, f)
    equal(w, c, f, b"a" * BLOCK + b"0" * (3 * BLOCK))


def test_a_reader_does_not_go_on_to_another_copy_by_itself(w):
    f, a, _, (one, two) = crossed_writers(w, "alone")
    reader = Reader(f)
    check([name_of(a.c, f, m[0].deviceid) for m in reader.o.mirrors], [one],
          "what a layout for reading names")
    at = [m[0].deviceid for m in a.o.mirrors].index(uuid_of(a.c, f, two))
    check(a.ds[at].read(a.o.mirrors[at][0].fhs[0], 0, 1).status, ACCES,
          "the second copy, by a layout for writing")
    for status in (NXIO, IO):
        r = Reader(f)
        r.c.ok(putfh(f), layouterror(r.o.stateid, [(r.first(), status, NUM["READ"])]))
        # The metadata server reaches the data server, and reads from it for this client.
        r.c.until(lambda got: err(got.status) not in LATER, putfh(f), layoutreturn(r.o.stateid))
        r.c.no("LAYOUTUNAVAILABLE", putfh(f), layoutget(r.s, IO_READ))
        check(through(r.c, f), b"b")
    check(states(a.c, f), ["in-sync", "in-sync"], "a reader's word makes no copy stale")


if __name__ == "__main__":
    run_apart(globals(), ds=2, settings=settings)
