#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Delegations: the settings of the server, and its restarts (RFC 8881, chapter 10). Prints TAP.

Each test gets a client, whose c.d is a directory of its own. A test uses new files, because the
server gives no delegation for a while on a file whose delegation it recalled.
"""
import os
import struct
import sys
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../wirelib"))
import harness  # noqa: E402
import steps  # noqa: E402
from harness import *  # noqa: E402,F403
from steps import *  # noqa: E402,F403
from delegs import *  # noqa: E402,F403
from nfs41 import err, op  # noqa: E402


# ---- settings, restarts: clusters of their own


def test_settings_none(c):
    with own("mds.delegations=none") as (w, c):
        f = make(c, "f")
        check(ask(c, f, READ, 0).deleg, D_NONE)
        for i, want in enumerate((WANT_READ, WANT_WRITE, WANT_ANY,
                                  WANT_ANY | WANT_XOR | WANT_TIMES)):
            o = ask(c, f, BOTH, want, owner=b"w%d" % i)
            refused(o, RESOURCE, NOT_SUPP_FTYPE, WRITE_NOT_SUPP_FTYPE)
            c.ok(putfh(f), read(o.stateid, 0, 1))
        got = c.call(putfh(f), want_delegation(WANT_READ))
        check(err(got.status) in ("OK", "NOTSUPP"), True)
        if not got.status:
            refused(got.results[-1], RESOURCE, NOT_SUPP_FTYPE)


def test_settings_read(c):
    with own("mds.delegations=read") as (w, c):
        f = make(c, "f")
        for i, want in enumerate((WANT_WRITE, WANT_WRITE, 0)):
            o = ask(c, f, BOTH, want, owner=b"w%d" % i)
            if want:
                refused(o, RESOURCE, WRITE_NOT_SUPP_FTYPE)
            else:
                check(o.deleg in (D_NONE, D_READ), True)
            c.ok(putfh(f), close(o.stateid))
        for i, want in enumerate((WANT_READ, WANT_ANY, 0)):
            check(ask(c, make(c, f"r{i}"), READ, want).deleg, D_READ)


def test_settings_max(c):
    with own("mds.delegations_max=8", "mds.lease=8s") as (w, c):
        two, held = client(), []
        two.d = c.d
        c.on_callback = two.on_callback = lambda name, args: 0
        files = [make(c, f"f{i}") for i in range(14)]
        for i, f in enumerate(files[:8]):
            o = ask(c, f, *((READ, WANT_READ) if i % 2 else (BOTH, WANT_WRITE)))
            if o.deleg == D_NONE_EXT:
                refused(o, RESOURCE)
                break
            held.append(o)
        check(len(held) >= 4, True, f"{len(held)} of 8 were given")
        r = c.wait_callback("RECALL_ANY")
        check((r.mask <= {0, 1}, bool(r.mask), r.keep < 8), (True, True, True),
              f"keep {r.keep}, mask {r.mask}")
        for i, f in enumerate(files[8:]):
            refused(ask(c, f, READ, WANT_READ), RESOURCE)
        refused(ask(two, files[9], BOTH, WANT_WRITE), RESOURCE)
        check(ask(two, files[10], READ, 0).deleg, D_NONE)
        refused(c.ok(putfh(files[11]), want_delegation(WANT_READ)), RESOURCE)
        for o in held[r.keep:] or held[-1:]:
            c.ok(putfh(o.fh), delegreturn(o.deleg_stateid))
        o = ask(two, files[12], READ, WANT_READ)
        check(o.deleg, D_READ, "after some came back")
        two.ok(putfh(o.fh), delegreturn(o.deleg_stateid))
        # What a client holds that is gone blocks no other client.
        for i in range(8):
            ask(c, make(c, f"more{i}"), READ, WANT_READ)
        f = make(two, "last")
        refused(ask(two, f, READ, WANT_READ, owner=b"0"), RESOURCE)
        c.drop()
        two.until(lambda got: got.results[-1].deleg == D_READ, putfh(f),
                  open_(claim_fh(), READ | WANT_READ), tries=30, pause=0.1)


def test_settings_threshold(c):
    """mdsthreshold (RFC 8881, 5.12.6) where it is set: for files, and for the layouts that the
    server gives."""
    check(c.attrs(make(c, "f"), "mdsthreshold").mdsthreshold, [], "without a setting")
    with own("mds.threshold=64K") as (w, c):
        f = make(c, "f")
        items = c.attrs(f, "mdsthreshold").mdsthreshold
        check([(kind, hints) for kind, hints, _ in items], [(FLEX, {0, 1})], "read and write size")
        check(items[0][2], u64(65536) * 2)
        check(c.attrs(c.d, "mdsthreshold").mdsthreshold, [], "of a directory")


def threshold(c, fh):
    """What the server says of a file; 0: nothing."""
    items = c.attrs(fh, "mdsthreshold").mdsthreshold
    return struct.unpack(">QQ", items[0][2])[0] if items else 0


def policy(c, fh, text):
    return c.ok(putfh(fh), setxattr("weft.policy", text))


def test_a_directorys_threshold_is_that_of_its_files(c):
    """Files inherit it as they do a policy, and existing files follow at once. It depends on
    where a file is."""
    below = c.mkdir(c.d, "below")
    other = c.mkdir(c.d, "other")
    old, deep = make(c, "old"), make(c, "deep", d=below)
    check([threshold(c, f) for f in (old, deep)], [0, 0], "before")
    policy(c, c.d, "threshold=64K")
    check([threshold(c, f) for f in (old, deep, make(c, "new"))], [65536] * 3,
          "files of the directory and below it")
    policy(c, below, "stripes=1,threshold=0")
    policy(c, other, "threshold=1M")
    check([threshold(c, f) for f in (old, deep, make(c, "far", d=other))], [65536, 0, 1 << 20],
          "directories with their own")
    c.ok(putfh(c.d), savefh(), putfh(other), rename("old", "old"))
    check(threshold(c, old), 1 << 20, "moved there")
    c.ok(putfh(other), removexattr("weft.policy"))
    policy(c, c.d, "stripes=1")
    check([threshold(c, f) for f in (old, deep)], [0, 0], "taken away")


def test_a_directorys_threshold_counts_before_the_servers_and_stays_after_a_restart(c):
    with own("mds.threshold=16K") as (w, c):
        big, none = c.mkdir(c.d, "big"), c.mkdir(c.d, "none")
        policy(c, big, "threshold=1M")
        policy(c, none, "threshold=0")
        files = [make(c, "f"), make(c, "g", d=big), make(c, "h", d=none)]
        for when in ("now", "after a restart"):
            check([threshold(c, f) for f in files], [16384, 1 << 20, 0], when)
            if when == "now":
                w.restart()
                steps.again(c)
                c.ok(reclaim_complete())


def test_restart_reclaims_ask_for_permission(c):
    with own() as (w, c):
        s, f = c.open(c.d, "f", attrs={"mode": 0o600})
        o = fresh(c, "w", D_WRITE, owner=b"w")
        c.ok(putfh(o.fh), setattr_(mode=0o600))
        w.restart()
        steps.again(c)
        c.no("ACCESS", putfh(f), open_(claim_previous(0), BOTH | NO_DELEG), cred=USER)
        n = c.ok(putfh(o.fh), want_delegation(WANT_WRITE, claim_previous(D_WRITE)), cred=USER)
        check(n.deleg, D_NONE_EXT, "a delegation for who may not")
        c.ok(putfh(f), open_(claim_previous(0), BOTH | NO_DELEG))
        check(c.ok(putfh(o.fh), want_delegation(WANT_WRITE, claim_previous(D_WRITE))).deleg,
              D_WRITE)
        c.ok(reclaim_complete())


def test_a_recall_that_is_not_obeyed_ends_where_nobody_waits(c):
    """A client that gets DELAY does not wait for the holder. The recall has its deadline
    all the same."""
    two = client()
    o = fresh(c, "f")
    c.ok(putfh(o.fh), close(o.stateid))
    c.on_callback = lambda name, args: 0
    two.no("DELAY", putfh(o.fh), setattr_(size=3))
    end = time.monotonic() + 15  # the lease is 20 s
    while (err((got := two.call(putfh(o.fh), setattr_(size=3))).status) == "DELAY"
           and time.monotonic() < end):
        time.sleep(0.1)
    check(err(got.status), "OK")
    check(err(c.ok(test_stateid(o.deleg_stateid)).statuses[0]), "DELEG_REVOKED")


def test_what_a_holder_told_is_forgotten_with_the_operation(c):
    two = client()
    o = fresh(c, "f", D_WRITE)
    c.ok(putfh(o.fh), close(o.stateid))
    answers(c, o, change=o.change + 1, size=777)
    r = past_delay(two, putfh(o.fh), getattr_("size"), setattr_(mode=0o640), getattr_("size"))
    check([x.attrs.size for x in r.results if x.num == NUM["GETATTR"]], [777, 10])


def test_restart_delegations_are_reclaimed(c):
    with own("mds.delegated_times=true") as (w, c):
        two = client()
        r, wr, plain = fresh(c, "r"), fresh(c, "w", D_WRITE), ask(c, make(c, "p"), BOTH, NO_DELEG)
        rt, wt = ask(c, make(c, "rt"), READ, WANT_READ | WANT_TIMES), take_times(c, "wt")
        bare = fresh(c, "bare")
        c.ok(putfh(bare.fh), close(bare.stateid))
        mine = take(two, r.fh)
        unlinked = [take(c, make(c, f"u{i}"), D_WRITE, WANT_XOR) for i in range(2)]
        c.ok(putfh(c.d), remove("u0"), remove("u1"))
        w.restart()
        for one in (c, two):
            steps.again(one)
        check(err(c.ok(test_stateid(wr.deleg_stateid)).statuses[0]), "BAD_STATEID")
        got = {}
        for name, old, acc, kind, given in (("r", r, READ, D_READ, D_READ),
                                            ("w", wr, BOTH, D_WRITE, D_WRITE),
                                            ("p", plain, BOTH, D_NONE, D_NONE),
                                            ("rt", rt, READ, D_READ_TIMES, D_READ_TIMES),
                                            ("wt", wt, BOTH, D_WRITE_TIMES, D_WRITE_TIMES)):
            o = c.ok(putfh(old.fh), open_(claim_previous(kind), acc))
            check(o.deleg, given, f"the type for a claim of {kind}")
            o.fh = old.fh
            got[name] = o
            c.ok(putfh(o.fh), read(o.stateid, 0, 1))
            if kind:
                c.ok(putfh(o.fh), read(o.deleg_stateid, 0, 1))
        n = c.ok(putfh(bare.fh), want_delegation(WANT_READ, claim_previous(D_READ)))
        check(n.deleg, D_READ, "WANT_DELEGATION")
        # Another client's claim of the same delegation.
        check(two.ok(putfh(mine.fh), open_(claim_previous(D_READ), READ)).deleg, D_READ)
        two.no("RECLAIM_CONFLICT", putfh(wr.fh), open_(claim_previous(0), READ | NO_DELEG))
        two.no("RECLAIM_CONFLICT", putfh(wr.fh), open_(claim_previous(D_READ), READ))
        two.no("RECLAIM_CONFLICT", putfh(r.fh), open_(claim_previous(D_WRITE), BOTH))
        # A removed file stays for a client that had it open, even by a delegation alone.
        for i, old in enumerate(unlinked):
            if i:
                o = c.ok(putfh(old.fh), open_(claim_previous(D_WRITE), BOTH | WANT_XOR))
                xor(c, o)
            else:
                o = c.ok(putfh(old.fh), want_delegation(WANT_WRITE, claim_previous(D_WRITE)))
            check(o.deleg, D_WRITE)
            old.deleg_stateid = o.deleg_stateid
            check(c.ok(putfh(old.fh), read(o.deleg_stateid, 0, 10)).data, b"0123456789")
        two.no(("INVAL", "BADXDR"), putfh(plain.fh), open_(claim_previous(6), BOTH))
        c.no("GRACE", putfh(plain.fh), want_delegation(WANT_READ))
        c.ok(reclaim_complete())
        c.no("NO_GRACE", putfh(plain.fh), open_(claim_previous(D_READ), READ, owner=b"late"))
        c.no("NO_GRACE", putfh(plain.fh), want_delegation(WANT_READ, claim_previous(D_READ)))
        two.ok(reclaim_complete())
        # The reclaimed delegations are as good as any.
        after = got["w"]
        obey(c)
        check(err(past_delay(two, putfh(wr.fh), open_(claim_fh(), BOTH | NO_DELEG)).status), "OK")
        if not after.recall:
            check(c.wait_callback("RECALL").stateid, after.deleg_stateid)
        check(err(c.ok(test_stateid(after.deleg_stateid)).statuses[0]), "BAD_STATEID")
        check(set_times(c, got["wt"], time_deleg_modify=now_minus(0)).time_modify[0] > 1, True)
        for old in unlinked:
            c.ok(putfh(old.fh), delegreturn(old.deleg_stateid))
            c.until(lambda x: err(x.status) == "STALE", putfh(old.fh), getattr_("size"))


def test_restart_claims_in_grace(c):
    with own() as (w, c):
        two = client()
        o, p, q = fresh(c, "f", D_WRITE), make(c, "p"), make(c, "q")
        (c.ok(putfh(p), open_(claim_fh(), BOTH | NO_DELEG)),
         two.ok(putfh(p), open_(claim_fh(), READ | NO_DELEG)))
        w.restart()
        for one in (c, two):
            steps.again(one)
        # 10.2.1: opens under a reclaimed delegation are granted, and give no new delegation.
        old = c.ok(putfh(o.fh), open_(claim_previous(D_WRITE), BOTH))
        n = c.ok(putfh(o.fh), open_(claim_deleg_cur_fh(old.deleg_stateid), READ, owner=b"second"),
                 read(CURRENT, 0, 1)).all[1]
        check(n.deleg in (D_NONE, D_NONE_EXT), True)
        n = c.ok(putfh(c.d), open_(claim_delegate_cur(old.deleg_stateid, "f"), BOTH,
                                   owner=b"third"), write(CURRENT, 0, b"x")).all[1]
        check(n.deleg in (D_NONE, D_NONE_EXT), True)
        # A write delegation and another client's open: one of the two is wrong.
        c.ok(putfh(p), open_(claim_previous(D_NONE), BOTH))
        two.no("RECLAIM_CONFLICT", putfh(p), open_(claim_previous(D_WRITE), READ))
        # An open that is no reclaim waits for the end of grace, and then gets what it always gets.
        c.ok(reclaim_complete())
        for op_ in (open_(claim_fh(), READ | WANT_READ), want_delegation(WANT_READ)):
            c.no("GRACE", putfh(q), op_)
        two.ok(reclaim_complete())
        got = c.until(lambda x: err(x.status) != "GRACE", putfh(q),
                      open_(claim_fh(), READ | WANT_READ))
        check(got.results[-1].deleg, D_READ, "after grace")


def test_restart_changes_wait_for_what_is_reclaimed(c):
    """In grace the server cannot know whose delegation a change would have to recall
    (section 8.4.2.1)."""
    with own("mds.grace=20s") as (w, c):
        two = client()
        r, wr = fresh(c, "r"), fresh(c, "w", D_WRITE)
        _, mine = two.open(c.d, "mine")
        fifo = c.ok(putfh(c.d), create(FIFO, "fifo"), getfh()).fh
        c.ok(putfh(r.fh), setxattr("a", b"x"))
        w.restart()
        for one in (c, two):
            steps.again(one)
        for f in (r.fh, wr.fh):
            for change in ({"mode": 0o640}, {"owner": "7"}, {"time_modify_set": (1, 0)}):
                check(two.no("GRACE", putfh(f), setattr_(**change)).attrset, set())
            two.no("GRACE", putfh(f), savefh(), putfh(c.d), link("another"))
            two.no("DELAY", putfh(f), setxattr("b", b"y"))
        two.no("DELAY", putfh(r.fh), removexattr("a"))
        two.no("PERM", putfh(r.fh), setattr_(mode=0o600), cred=USER)
        two.ok(putfh(r.fh), getattr_("size", "change"))
        # Files on which no client has a delegation.
        two.ok(putfh(c.d), setattr_(mode=0o700), setxattr("b", b"y"), putfh(fifo),
               setattr_(mode=0o600), savefh(), putfh(c.d), link("fifo2"))
        steps.reclaim(two, mine)
        two.ok(putfh(mine), setattr_(mode=0o600), setxattr("b", b"y"), removexattr("b"), savefh(),
               putfh(c.d), link("mine2"))
        # Other clients may read beside a read delegation, but not beside a write delegation.
        c.ok(putfh(r.fh), open_(claim_previous(D_READ), READ))
        c.no("GRACE", putfh(r.fh), setattr_(mode=0o640))
        c.no("DELAY", putfh(r.fh), setxattr("b", b"y"))
        o = c.ok(putfh(wr.fh), want_delegation(WANT_WRITE, claim_previous(D_WRITE)))
        c.ok(putfh(wr.fh), setattr_(mode=0o640))
        two.no("GRACE", putfh(wr.fh), setattr_(mode=0o600))
        for one in (c, two):
            one.ok(reclaim_complete())
        obey(c)
        check(err(past_delay(two, putfh(wr.fh), setattr_(mode=0o600)).status), "OK")
        check(c.wait_callback("RECALL").stateid, o.deleg_stateid)


if __name__ == "__main__":
    harness.run_shared(globals(), lambda w, name: (with_dir(client(), name),), closing=True, ds=2,
                        parts=3, settings=harness.CALM)
