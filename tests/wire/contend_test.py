#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Two clients write one mirrored file at the same time (docs/mirrors.md, "Two writers").
Prints TAP.

Its copies are equal in the end. Until then all readers have the same first copy.
"""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../wirelib"))
import harness  # noqa: E402
from harness import *  # noqa: E402,F403
from nfs41 import err  # noqa: E402
from files import MB, layout_of  # noqa: E402
from mirrored import (BLOCK, Shared, bytes_of, compared, contended, crossed, equal,  # noqa: E402
                      made, servers, stopped, settings_of_two_writers, two_writers, uuid_of)


def test_copies_that_two_clients_wrote_in_different_orders_become_the_same(w):
    f = made("cross")
    a, b = two_writers(f)
    check(contended(w), 1)
    want = crossed(w, f, a, b)
    one = uuid_of(a.c, f, servers(a.c, f)[0])
    readers = [Shared(f).lay(IO_READ) for _ in range(6)]
    check({x.first() for x in (a, b, *readers)}, {one}, "the first copy of all")
    a.give_back()
    check(contended(w), 1, "one still writes")
    b.give_back()
    compared(w, readers[0].c, f)
    equal(w, readers[0].c, f, want)
    check(readers[0].c.ok(putfh(f), read(ANON, 0, 4 * BLOCK)).data, want)


def test_one_writer_costs_nothing(w):
    f = made("one")
    a = Shared(f).lay()
    a.lay()
    a.write(a.o.mirrors[0][0].deviceid, 0, b"a")
    a.write(a.o.mirrors[1][0].deviceid, 0, b"a")
    reader = Shared(f).lay(IO_READ)
    check((contended(w), a.c.callbacks), (0, []))
    a.give_back()
    # Two writes one after the other are not at once.
    b = Shared(f).lay()
    check((contended(w), reader.c.callbacks), (0, []))
    b.give_back()


def test_a_restart_of_the_metadata_server_forgets_nothing(w):
    f = made("restart")
    a, b = two_writers(f)
    want = crossed(w, f, a, b)
    w.restart()
    # Both clients come back, so the server does not judge what they wrote as a lost writer's. The
    # client that made the file comes back too: grace ends with the last one.
    back = [Client(ADDR, owner=c.owner, verifier=c.verifier) for c in harness.CLIENTS]
    harness.CLIENTS += back
    for c in back:
        c.until(lambda got: err(got.status) not in ("GRACE", "DELAY"), putfh(f), getattr_("size"),
                tries=400)
    compared(w, back[0], f)
    equal(w, back[0], f, want)


def test_a_write_through_the_metadata_server_beside_a_layout_counts(w):
    f = made("through")
    a, b = Shared(f).lay(), Shared(f)
    for _ in range(20):
        b.c.until(lambda got: err(got.status) != "DELAY", putfh(f),
                  write(b.s, 0, b"m" * BLOCK, FILE_SYNC), tries=400)
        a.lay()
        if contended(w):  # else the server compared it before the layout came
            break
    check(contended(w), 1)
    a.write(uuid_of(a.c, f, servers(a.c, f)[1]), 0, b"a" * BLOCK)
    check(len(set(bytes_of(w, a.c, f))), 2, "the copies differ")
    a.give_back()
    compared(w, b.c, f)
    equal(w, b.c, f, b"m" * BLOCK + b"0" * (3 * BLOCK))


def test_two_writes_through_the_metadata_server_that_overlap_come_one_after_the_other(w):
    f = made("overlap")
    a, b = Shared(f), Shared(f)
    one, two = servers(a.c, f)
    path = next(os.path.join(w.dir, o["ds"], o["object"]) for m in layout_of(a.c, f)["mirrors"]
                for o in m["objects"] if o["ds"] == one)
    with stopped(w, two):
        writing = a.c.begin(putfh(f), write(a.s, 0, b"a" * BLOCK, FILE_SYNC))
        eventually(lambda: open(path, "rb").read(1) == b"a", 30, "the copy that takes it")
        b.c.no("DELAY", putfh(f), write(b.s, BLOCK - 1, b"b" * BLOCK, FILE_SYNC))
    check(err(a.c.finish(writing).status), "OK")
    b.c.until(lambda got: err(got.status) != "DELAY", putfh(f),
              write(b.s, BLOCK - 1, b"b" * BLOCK, FILE_SYNC))
    check(contended(w), 0)
    equal(w, a.c, f, b"a" * (BLOCK - 1) + b"b" * BLOCK + b"0" * (2 * BLOCK + 1))


if __name__ == "__main__":
    run_apart(globals(), settings=settings_of_two_writers)
