#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The server compares copies in passing, when the last write layout is back. It reports and repairs
a difference, and does neither for what only looks like one (docs/mirrors.md, "Compared in
passing"). Prints TAP."""
import json
import os
import subprocess
import sys
import threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../wirelib"))
from harness import *  # noqa: E402,F403
from nfs41 import err  # noqa: E402
from mirrored import (BLOCK, Shared, bytes_of, equal, made, servers,  # noqa: E402
                      settings_of_two_writers, stopped, uuid_of, whole)
from files import layout_of  # noqa: E402


def events(w, kind):
    out = subprocess.run([os.path.join(BUILD, "weft"), "--admin", w.where["mds"], "--json",
                          "events", "--kind", kind],
                         capture_output=True, text=True, timeout=60, check=True).stdout
    return [json.loads(line) for line in out.splitlines()]


def both(x, off, data):
    for m in x.o.mirrors:
        x.write(m[0].deviceid, off, data)


def told(w, c, f):
    eventually(lambda: events(w, "copies-differ") and whole(c, f), 60, "an event and a repair")


def marked(w, c, f):
    """Each GETATTR of a marked file asks the data servers. They have other calls as
    well, but few."""
    def calls():
        return sum(w.metric("weft_rpc_calls_total", name)
                   for name in w.where if name.startswith("ds"))
    before = calls()
    for _ in range(20):
        c.attrs(f, "size")
    return calls() - before >= 20


def calm(w, c, f):
    """The server compared the file, and found nothing."""
    eventually(lambda: not marked(w, c, f), 60, "the mark is gone")
    check((events(w, "copies-differ"), events(w, "copy-stale"), whole(c, f)), ([], [], True))


def test_what_one_copy_alone_has_at_its_end_is_kept_and_told(w):
    f = made("longer")
    a, c = Shared(f).lay(), client()
    both(a, 0, b"b" * BLOCK)
    a.write(uuid_of(a.c, f, servers(a.c, f)[1]), 4 * BLOCK, b"x" * BLOCK)
    a.give_back()
    told(w, c, f)
    equal(w, c, f, b"b" * BLOCK + b"0" * (3 * BLOCK) + b"x" * BLOCK)
    check(c.attrs(f, "size").size, 5 * BLOCK)
    check(events(w, "copies-differ")[0]["subject"], servers(c, f)[0])


def test_a_copy_that_was_not_written_is_found_by_its_count(w):
    f = made("count")
    a, c = Shared(f).lay(), client()
    both(a, 0, b"0" * BLOCK)
    a.give_back()
    calm(w, c, f)  # and the counts are known
    a = Shared(f).lay()
    a.write(uuid_of(a.c, f, servers(a.c, f)[1]), 0, b"x" * BLOCK)
    a.c.attrs(f, "size")  # what is counted on the way is not forgotten
    a.give_back()
    told(w, c, f)
    equal(w, c, f, b"0" * (4 * BLOCK))


def test_an_end_past_a_size_that_was_set_is_no_end(w):
    f = made("cut")
    a, c = Shared(f).lay(), client()
    both(a, 0, b"b" * BLOCK)
    a.c.until(lambda got: err(got.status) != "DELAY", putfh(f), setattr_(a.s, size=BLOCK))
    late = os.path.join(w.dir, servers(c, f)[1],
                        layout_of(c, f)["mirrors"][1]["objects"][0]["object"])
    with open(late, "ab") as o:
        o.write(b"late" * BLOCK)
    check(c.attrs(f, "size").size, BLOCK)
    a.give_back()
    told(w, c, f)
    equal(w, c, f, b"b" * BLOCK)
    check(c.attrs(f, "size").size, BLOCK)


def test_a_write_that_is_late_at_one_copy_is_no_difference(w):
    f = made("late")
    a, c = Shared(f).lay(), client()
    one, two = servers(c, f)
    with stopped(w, two):
        a.write(uuid_of(c, f, one), 4 * BLOCK, b"x" * BLOCK)
        late = threading.Thread(target=a.write, args=(uuid_of(c, f, two), 4 * BLOCK, b"x" * BLOCK))
        late.start()
        a.c.until(lambda got: err(got.status) != "DELAY", putfh(f), layoutreturn(a.o.stateid))
    late.join()
    a.c.ok(putfh(f), close(a.s))
    calm(w, c, f)
    equal(w, c, f, b"0" * (4 * BLOCK) + b"x" * BLOCK)


def test_what_is_written_to_both_is_no_difference(w):
    f = made("both")
    c = client()
    for n in range(5):
        a = Shared(f).lay()
        both(a, n * 3000, b"x" * 10000)
        a.c.until(lambda got: err(got.status) != "DELAY", putfh(f), setattr_(a.s, size=2000 + n))
        both(a.lay(), n, b"y" * 5000)
        a.c.until(lambda got: err(got.status) != "DELAY", putfh(f),
                  write(a.s, 90000, b"m" * 5000, FILE_SYNC))
        a.give_back()
        calm(w, c, f)
    check(len(set(bytes_of(w, c, f))), 1)


if __name__ == "__main__":
    run_apart(globals(), settings=settings_of_two_writers)
