#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""A file that is removed while it is open keeps its data until the last close, or until the clients
that had it open are gone for good (OPEN4_RESULT_PRESERVE_UNLINKED), whichever daemon or client dies
in between. Prints TAP.

Every test has a cluster of its own.
"""
import glob
import os
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../wirelib"))
import harness  # noqa: E402
import tap  # noqa: E402
from harness import *  # noqa: E402,F403
from steps import again, lay, one_server, reclaim, returns_when_recalled  # noqa: E402
from nfs41 import err, op  # noqa: E402


def objects(w):
    return len([p for p in glob.glob(os.path.join(w.dir, "ds*/objects/**"), recursive=True)
                if os.path.isfile(p)])


def gone(w, f, c, seconds=8):
    eventually(lambda: objects(w) == 0, seconds, "the end of the object")
    check(err(c.call(putfh(f), getattr_("type")).status), "STALE")


def stays(w, seconds=0.7):
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        check(objects(w), 1, "objects")
        time.sleep(0.1)


def held(w, how=lambda c, d: c.ok(putfh(d), remove("f"))):
    """A client that has a file open, with data at its data server. Another client has
    removed the file."""
    holder, other = client(), client()
    d = other.mkdir(other.root(), "d")
    s, f, o, ds, fh = one_server(holder, d)
    check(ds.write(fh, 0, b"0123456789").status, 0)
    returns_when_recalled(holder, f)
    how(other, d)
    other.no("NOENT", putfh(d), lookup("f"))
    stays(w, 0.3)
    return holder, other, d, s, f, ds, fh


def test_open_says_that_the_server_keeps_it(w):
    c = client()
    d = c.mkdir(c.root(), "d")
    r = c.ok(putfh(d), open_("f", BOTH | NO_DELEG, how=GUARDED, attrs={"mode": 0o600}))
    check(r.rflags & 8, 8)


def test_all_its_ways_of_io_go_on(w):
    holder, other, d, s, f, ds, fh = held(w)
    check((ds.read(fh, 0, 10).data, ds.write(fh, 10, b"abc").status), (b"0123456789", 0))
    o = lay(holder, f, s)
    check(o.mirrors[0][0].fhs[0] != b"" and holder.attrs(f, "numlinks", "size").size, 13)
    holder.ok(putfh(f), write(s, 13, b"!", FILE_SYNC))
    check(holder.ok(putfh(f), read(s, 8, 9)).data, b"89abc!")
    holder.ok(putfh(f), setattr_(s, size=4), setattr_(mode=0o400))
    check(holder.ok(putfh(f), read(s, 0, 9)).data, b"0123")
    # No client finds it again, except by its handle.
    other.no("NOENT", putfh(f), savefh(), putfh(d), link("back"))
    holder.ok(putfh(f), close(s))
    gone(w, f, other)


def test_the_last_of_several_closes_ends_it(w):
    two = client()

    def both(other, d):
        both.s2, both.f = two.open(d, "f")
        other.ok(putfh(d), remove("f"))
    holder, other, d, s, f, ds, fh = held(w, both)
    holder.ok(putfh(f), close(s))
    stays(w)
    check(two.ok(putfh(f), read(both.s2, 0, 99)).data, b"0123456789")
    two.ok(putfh(f), close(both.s2))
    gone(w, f, other)


def test_a_name_that_is_left_keeps_it(w):
    def one_of_two(other, d):
        fh = other.ok(putfh(d), lookup("f"), getfh()).fh
        other.ok(putfh(fh), savefh(), putfh(d), link("g"), remove("f"))
    holder, other, d, s, f, ds, fh = held(w, one_of_two)
    holder.ok(putfh(f), close(s))
    stays(w)
    check(other.attrs(f, "numlinks").numlinks, 1)


def test_a_rename_over_it_is_a_removal(w):
    def over(other, d):
        other.ok(putfh(d), create(FIFO, "new", mode=0o600))
        other.ok(putfh(d), savefh(), rename("new", "f"), remove("f"))
    holder, other, d, s, f, ds, fh = held(w, over)
    check(holder.ok(putfh(f), read(s, 0, 99)).data, b"0123456789")
    holder.ok(putfh(f), close(s))
    gone(w, f, other)


def test_a_holder_that_dies_keeps_it_for_its_lease(w):
    holder, other, d, s, f, ds, fh = held(w)
    died = time.monotonic()
    holder.drop()
    while time.monotonic() - died < 0.9:  # its lease
        check(other.ok(putfh(d), getattr_("type")) and objects(w), 1, "objects")
        time.sleep(0.1)
    while objects(w):
        other.ok(putfh(d))
        if time.monotonic() - died > 60:
            raise Failed("it stays after its holder's lease and courtesy")
        time.sleep(0.1)
    tap.say(f"gone {time.monotonic() - died:.1f} s after its holder; lease 3 s, courtesy 1 s")
    gone(w, f, other)


def test_a_holder_that_starts_anew_has_closed_it(w):
    holder, other, d, s, f, ds, fh = held(w)
    Client(ADDR, owner=holder.owner, verifier=b"anew....").close()
    gone(w, f, other)


def test_a_crash_of_the_server_keeps_it_for_its_holder(w):
    holder, other, d, s, f, ds, fh = held(w)
    for _ in range(2):
        w.restart()
        again(holder)
        again(other, True)
        s = reclaim(holder, f)
        holder.ok(reclaim_complete())
        stays(w, 0.5)
        got = holder.until(lambda got: err(got.status) not in ("DELAY", "GRACE"), putfh(f),
                           read(s, 0, 99))
        check(got.results[-1].data, b"0123456789")
    holder.ok(putfh(f), close(s))
    gone(w, f, other)


def test_after_a_crash_a_holder_that_dies_keeps_it_no_longer_than_its_lease(w):
    holder, other, d, s, f, ds, fh = held(w)
    w.restart()
    again(holder)
    again(other, True)
    reclaim(holder, f)
    holder.ok(reclaim_complete())
    holder.drop()
    stays(w, 0.6)
    eventually(lambda: other.ok(putfh(d)) and objects(w) == 0, 12, "the end of the object")


def test_after_a_crash_nobody_comes_back_for_it(w):
    holder, other, d, s, f, ds, fh = held(w)
    holder.drop()
    w.restart()
    again(other, True)
    stays(w, 1)  # grace: the holder may come
    eventually(lambda: other.ok(putfh(d)) and objects(w) == 0, 12, "the end of the object")
    w.dev("down", w.dir)
    done = subprocess.run([os.path.join(BUILD, "weft-fsck"), os.path.join(w.dir, "mds")],
                          capture_output=True, text=True, check=False)
    check(done.returncode, 0, done.stdout + done.stderr)


def test_a_crash_beside_the_last_close_leaves_nothing(w):
    holder, other, d, s, f, ds, fh = held(w)
    holder.begin(putfh(f), close(s), cache=True)
    w.restart()
    again(other, True)
    again(holder)
    holder.ok(reclaim_complete())  # it has closed, and reclaims nothing
    eventually(lambda: other.ok(putfh(d)) and objects(w) == 0, 12, "the end of the object")


def test_removals_one_after_the_other_go_to_a_data_server_together(w):
    c, n, servers = client(), 400, ("ds1", "ds2")
    d = c.mkdir(c.root(), "d")
    for i in range(n):
        s, f = c.open(d, f"f{i}")
        c.ok(putfh(f), close(s))
    orders, commits = (sum(w.metric("weft_rpc_calls_total", s) for s in servers),
                       w.metric("weft_mds_kv_commits_total"))
    began = time.monotonic()
    for i in range(n):
        c.ok(putfh(d), remove(f"f{i}"))
    eventually(lambda: w.metric("weft_mds_orders") == 0, 5, "the end of the deletions")
    rounds = (time.monotonic() - began) / 0.1 + 2
    check(sum(w.metric("weft_rpc_calls_total", s) for s in servers) - orders
          <= len(servers) * rounds + n / 128, True, "messages to data servers")
    time.sleep(0.3)  # the rows of what is done go 0.1 s later
    check(w.metric("weft_mds_kv_commits_total") - commits <= n + 2 * rounds + 5, True, "commits")


def settings(name):
    """A lease that has to end is short. Any other lease, and grace that its holder comes back in,
    outlasts what a loaded machine takes."""
    ends = "dies" in name or "nobody" in name
    return ["mds.courtesy=1s", "mds.sync=false",
            *(["mds.lease=3s", "mds.grace=10s"] if ends else [*CALM, "mds.grace=20s"])]


if __name__ == "__main__":
    harness.run_apart(globals(), ds=2, settings=settings)
