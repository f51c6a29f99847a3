#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Access times (mds.atime, docs/acl.md "Times"): which reads move them, when, and what that costs.
Prints TAP.

perms_test.py tests which operations count as a read.
"""
import os
import sys
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../wirelib"))
import harness as base  # noqa: E402
from harness import CALM, check, client, eventually  # noqa: E402
from nfs41 import *  # noqa: E402,F403

MANY = 3000
TIMES = ("time_access", "time_modify", "time_metadata", "change")


def times(c, fh):
    return tuple(getattr(c.attrs(fh, *TIMES), n) for n in TIMES)


def all_times(c, fhs):
    """The times of each, by few requests: on a loaded machine each of them takes its time."""
    got = []
    for i in range(0, len(fhs), 6):
        r = c.ok(*[o for fh in fhs[i:i + 6] for o in (putfh(fh), getattr_(*TIMES))])
        got += [tuple(getattr(x.attrs, n) for n in TIMES) for x in r.all[1::2]]
    check(len(got), len(fhs))
    return got


def links(c, d, n):
    """Filehandles of n new symbolic links; n is a multiple of 5."""
    fhs = []
    for i in range(0, n, 5):
        r = c.ok(*[o for k in range(i, i + 5)
                   for o in (putfh(d), create(LNK, f"s{k}", b"to"), getfh())])
        fhs += [x.fh for x in r.all[2::3]]
    return fhs


def written(c, d, name, data=b"12345678"):
    sid, fh = c.open(d, name, attrs={"mode": 0o666})
    c.ok(putfh(fh), write(sid, 0, data, FILE_SYNC))
    return sid, fh


def follows(c, fh, before, what):
    """The access time is after the others; nothing else has moved."""
    eventually(lambda: times(c, fh)[0] != before[0], what=what)
    now = times(c, fh)
    check((now[0] > max(now[1], now[2]), now[1:]), (True, before[1:]), what)
    return now


def test_it_follows_the_first_time_after_a_change(w):
    c = client()
    d = c.mkdir(c.root(), "d")
    sid, fh = written(c, d, "f")
    before = times(c, fh)
    c.ok(putfh(fh), read(sid, 0, 8))
    at = follows(c, fh, before, "the first read")
    told = w.metric("weft_mds_atimes_total")
    for _ in range(5):
        c.ok(putfh(fh), read(sid, 0, 8))
        c.ok(putfh(d), open_("f", READ | NO_DELEG, owner=b"again"))
    time.sleep(1)
    check((times(c, fh), w.metric("weft_mds_atimes_total")), (at, told),
          "it is after mtime and ctime, and no day old")
    c.ok(putfh(fh), write(sid, 0, b"x", FILE_SYNC))
    before = times(c, fh)
    c.ok(putfh(fh), read(sid, 0, 8))
    follows(c, fh, before, "a read after a write")
    c.ok(putfh(fh), setattr_(mode=0o600))
    before = times(c, fh)
    c.ok(putfh(fh), read(sid, 0, 8))
    follows(c, fh, before, "a read after a change of the mode")


def test_what_was_set_since_stands(w):
    """The server notes a read, and a client sets the times before the server writes
    the note down."""
    c = client()
    d = c.mkdir(c.root(), "d")
    files = [written(c, d, f"f{i}") for i in range(20)]
    for sid, fh in files:
        c.ok(putfh(fh), read(sid, 0, 8), setattr_(time_access_set=(1000, 5)))
    time.sleep(1)
    check({times(c, fh)[0] for _, fh in files}, {(1000, 5)})


def test_the_end_of_a_delegation_for_reading_counts(w):
    """Its holder opens and reads without the server."""
    c = client()
    d = c.mkdir(c.root(), "d")
    sid, fh = written(c, d, "f")
    c.ok(putfh(fh), close(sid))
    before = times(c, fh)
    o = c.ok(putfh(d), open_("f", READ | WANT_READ, owner=b"o")).all[1]
    check(o.deleg, D_READ)
    follows(c, fh, before, "OPEN")
    c.ok(putfh(fh), setattr_(time_access_set=(1000, 0)))
    before = times(c, fh)
    check(before[0], (1000, 0))
    c.ok(putfh(fh), delegreturn(o.deleg_stateid))
    follows(c, fh, before, "DELEGRETURN")


def test_many_are_set_by_few_commits(w):
    """As when a program reads a data set for the first time. Nothing that the table
    holds is lost."""
    c = client()
    d = c.mkdir(c.root(), "d")
    fhs = links(c, d, MANY)
    commits = w.metric("weft_mds_kv_commits_total")
    for i in range(0, MANY, 6):
        c.ok(*[o for fh in fhs[i:i + 6] for o in (putfh(fh), readlink())])
    eventually(lambda: w.metric("weft_mds_atimes_total") >= MANY, what="the last of them")
    check((w.metric("weft_mds_atimes_total"), w.metric("weft_mds_atimes_dropped_total")), (MANY, 0))
    used = w.metric("weft_mds_kv_commits_total") - commits
    base.tap.say(f"{MANY} access times in {used:.0f} commits")
    check(used <= MANY / 20, True, f"{used} commits")
    check(all(at[0] > at[2] for at in all_times(c, fhs)), True)


def test_what_several_threads_have_read_is_set_and_counted_once(w):
    c, readers = client(), [client() for _ in range(8)]
    d = c.mkdir(c.root(), "d")
    fhs = links(c, d, 60)
    for i in range(0, len(fhs), 6):
        for r in readers:
            r.ok(*[o for fh in fhs[i:i + 6] for o in (putfh(fh), readlink())])
    eventually(lambda: all(at[0] > at[2] for at in all_times(c, fhs)),
               what="the last of them")
    time.sleep(1)
    check((w.metric("weft_mds_atimes_total"), w.metric("weft_mds_atimes_dropped_total")),
          (len(fhs), 0))


def test_off_reading_moves_nothing(w):
    c = client()
    d = c.mkdir(c.root(), "d")
    sid, fh = written(c, d, "f")
    before = times(c, fh), times(c, d)
    c.ok(putfh(fh), read(sid, 0, 8), putfh(d), readdir(attrs=("fileid",)))
    c.ok(putfh(d), open_("f", READ | NO_DELEG, owner=b"again"))
    c.ok(putfh(fh), layoutget(sid, IO_READ))
    time.sleep(1)
    check((times(c, fh), times(c, d), w.metric("weft_mds_atimes_total")), (*before, 0))


if __name__ == "__main__":
    base.run_apart(globals(), settings=lambda name: [*CALM, *(["mds.atime=off"] if "off" in name
                   else ["mds.threads=2"] if "threads" in name else [])])
