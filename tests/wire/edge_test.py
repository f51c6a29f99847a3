#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Reclaims and locks after restarts (RFC 8881 sections 8.4.3 and 18.51.3). Prints TAP.

Other tests are about a callback that may reach the client before a reply does (section 2.10.6.3).
Each test has a cluster of its own.
"""
import os
import signal
import sys
import threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../wirelib"))
from harness import *  # noqa: E402,F403
from steps import again, data_server, lay, reclaim, striped  # noqa: E402
from nfs41 import err  # noqa: E402

# The lease is long, so that the server evicts no client that is cut off. The grace period is long
# enough for what has to happen in it, however slow the machine is.
SETTINGS = ["mds.lease=60s", "mds.grace=8s"]


def serves(c, *ops):
    """An operation that waits in the grace period."""
    return c.until(lambda got: err(got.status) not in ("GRACE", "DELAY"), *ops, tries=600)


def test_who_did_not_complete_its_reclaims_reclaims_nothing_after_the_next_start(w):
    """The second edge condition: grace ends while a client is cut off, and another client locks
    what it had."""
    a, b = client(), client()
    d = a.mkdir(a.root(), "d")
    s, f = a.open(d, "f")
    a.ok(putfh(f), lock(s, WRITE_LT, 0, 10, b"a"))
    w.restart()
    again(b, True)
    again(a)
    a.drop()
    t = serves(b, putfh(d), open_("f", BOTH | NO_DELEG), getfh()).results[2].stateid
    k = b.ok(putfh(f), lock(t, WRITE_LT, 0, 10, b"b")).stateid
    b.ok(putfh(f), write(k, 0, b"new", FILE_SYNC), locku(k, 0, 10), putfh(f), close(t))
    w.restart()
    again(a)
    a.no("NO_GRACE", putfh(f), open_(claim_previous(), BOTH | NO_DELEG))
    a.ok(reclaim_complete())
    again(b, True)
    # The client knows that it lost its state. From here on it is like any other client, also after
    # the next start.
    s = serves(a, putfh(d), open_("f", BOTH | NO_DELEG)).results[2].stateid
    a.ok(putfh(f), lock(s, WRITE_LT, 0, 10, b"a"))
    w.restart()
    again(a)
    s = reclaim(a, f)
    a.ok(putfh(f), lock(s, WRITE_LT, 0, 10, b"a", reclaim=True))


def test_a_late_reclaim_complete_counts_for_the_next_start(w):
    a, b = client(), client()
    d = a.mkdir(a.root(), "d")
    _, f = a.open(d, "f")
    w.restart()
    again(b, True)
    again(a)
    s = reclaim(a, f)
    serves(b, putfh(d), open_("g", BOTH | NO_DELEG, how=UNCHECKED, attrs={"mode": 0o600}))
    a.no("NO_GRACE", putfh(f), open_(claim_previous(), BOTH | NO_DELEG, 0, b"another"))
    a.no("GRACE", putfh(f), lock(s, WRITE_LT, 0, 10, b"a"))
    a.no("GRACE", putfh(f), layoutget(s))
    a.ok(putfh(f), write(s, 0, b"what it has"))
    a.ok(reclaim_complete())
    a.ok(putfh(f), lock(s, WRITE_LT, 0, 10, b"a"))
    lay(a, f, s)
    w.restart()
    again(a)
    reclaim(a, f)


def test_a_client_that_was_restarted_begins_anew(w):
    """The client's new record has nothing of the old one."""
    a, b = client(), client()
    d = a.mkdir(a.root(), "d")
    _, f = a.open(d, "f")
    w.restart()
    again(b, True)
    again(a)
    serves(b, putfh(d), open_("g", BOTH | NO_DELEG, how=UNCHECKED, attrs={"mode": 0o600}))
    a.verifier = b"rebooted"
    again(a, True)
    serves(a, putfh(d), open_("f", BOTH | NO_DELEG))
    w.restart()
    again(a)
    reclaim(a, f)


def test_one_that_is_being_confirmed_when_grace_ends_is_not_barred(w):
    """The client was restarted. Its new number waits until the data servers bar the old one."""
    a, b = client(), client()
    d = a.mkdir(a.root(), "d")
    a.mkdir(d, "empty")
    s, f = a.open(d, "f")
    lay(a, f, s)
    w.restart()
    again(b, True)
    a.drop()
    a.conns = [a.connection()]
    a.verifier = b"rebooted"
    a.exchange_id()
    was = a.session.sessionid
    confirmed = threading.Thread(target=a.create_session, daemon=True)
    pids = [int(open(os.path.join(w.dir, "run", f"ds{k}.pid"), encoding="ascii").read())
            for k in (1, 2)]
    try:
        for pid in pids:
            stand_still(pid)
        confirmed.start()
        serves(b, putfh(d), remove("empty"))
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
    confirmed.join(60)
    check(a.session.sessionid != was, True, "a new session")
    a.ok(reclaim_complete())
    got = a.until(lambda got: err(got.status) != "DELAY", putfh(d),
                  open_("new", BOTH | NO_DELEG, how=UNCHECKED, attrs={"mode": 0o600}), getfh())
    s, f = got.results[2].stateid, got.results[3].fh
    o = a.until(lambda got: err(got.status) not in ("LAYOUTTRYLATER", "DELAY"), putfh(f),
                layoutget(s), tries=600)
    check(err(o.status), "OK")
    o = lay(a, f, s)
    server = o.mirrors[0][0]
    check(data_server(a, server).write(server.fhs[0], 0, b"x").status, 0,
          "a WRITE to its data server")


def test_one_that_never_came_back_is_a_stranger(w):
    """The first edge condition: its record went with its lease."""
    a, b = client(), client()
    d = a.mkdir(a.root(), "d")
    _, f = a.open(d, "f")
    a.drop()
    w.restart()
    again(b, True)
    serves(b, putfh(d), open_("f", BOTH | NO_DELEG))
    w.restart()
    again(a)
    a.no("RECLAIM_BAD", putfh(f), open_(claim_previous(), BOTH | NO_DELEG))


def test_nothing_is_locked_before_reclaim_complete(w):
    """Outside of grace, too."""
    a = client()
    d = a.mkdir(a.root(), "d")
    _, f = a.open(d, "f")
    whole, part = client(reclaim=False), client(reclaim=False)
    for c in (whole, part):
        c.no("GRACE", putfh(d), open_("f", BOTH | NO_DELEG))
        c.no("GRACE", putfh(d), open_("new", BOTH | NO_DELEG, how=GUARDED, attrs={"mode": 0o600}))
        c.no("GRACE", putfh(f), open_(claim_fh(), READ | WANT_READ))
        c.no("NO_GRACE", putfh(f), open_(claim_previous(), BOTH | NO_DELEG))
        c.ok(putfh(d), create(DIR, "no lock %d" % c.clientid), putfh(f), getattr_("size"),
             read(ANON, 0, 1))
    whole.ok(reclaim_complete())
    part.ok(putrootfh(), reclaim_complete(True))  # some clients never say it for all
    for c in (whole, part):
        c.ok(putfh(d), open_("f", BOTH | NO_DELEG))
    a.no("NOENT", putfh(d), lookup("new"))


def test_another_principals_client_goes_with_its_record(w):
    """Otherwise each later grace period lasts its whole time, because no client comes for
    that record."""
    a, gone = client(), client()
    d = a.mkdir(a.root(), "d")
    gone.ok(destroy_session(gone.session.sessionid))
    heir = client(owner=gone.owner, cred=USER)
    w.restart()
    again(a, True)
    again(heir, True)
    a.until(lambda got: err(got.status) != "GRACE", putfh(d),
            open_("f", BOTH | NO_DELEG, how=UNCHECKED, attrs={"mode": 0o600}))


def test_who_may_yet_reclaim_is_not_replaced(w):
    a = client()
    d = a.mkdir(a.root(), "d")
    _, f = a.open(d, "f")
    w.restart()
    again(a)
    first(a, "CLID_INUSE", exchange_id(a.owner, b"another.", 0), cred=USER)
    reclaim(a, f)


NO_LAYOUT, NO_STATEID = 10060, 10025


def recalled_unseen(w, a, b, answers):
    """The server gives a layout of a mirrored file to a, which does not use the slot again. It
    recalls the layout because b reports a stale copy. Returns the callbacks, and a READ by the
    layout."""
    d = a.mkdir(a.root(), "d")
    s, f, o = striped(a, d, "mirrors=2")
    servers = [data_server(a, m[0]) for m in o.mirrors]
    for m, ds in zip(o.mirrors, servers):
        check(ds.write(m[0].fhs[0], 0, b"old ").status, 0)
    a.ok(putfh(f), layoutreturn(o.stateid))
    o2 = lay(b, f, b.ok(putfh(f), open_(claim_fh(), BOTH | NO_DELEG)).stateid)
    seen = []

    def on_callback(name, args):
        seen.append(args)
        return answers(len(seen))
    a.on_callback = on_callback
    o = lay(a, f, s, IO_READ)
    at = (a.session.sessionid, a.slots[0], 0)
    b.ok(putfh(f), layouterror(o2.stateid, [(o2.mirrors[1][0].deviceid, 5, NUM["WRITE"])]),
         timeout=60)
    bad = next(k for k, m in enumerate(o.mirrors) if m[0].deviceid == o2.mirrors[1][0].deviceid)
    return seen, at, servers[bad].read(o.mirrors[bad][0].fhs[0], 0, 4).status


def test_a_layout_on_its_way_is_not_forgotten(w):
    """The recall overtakes the reply of LAYOUTGET: the client does not know the layout yet, but
    soon will."""
    a, b = client(), client()
    seen, at, read_by_it = recalled_unseen(w, a, b, lambda n: NO_LAYOUT)
    check((seen[0].referring, len(seen) > 1), ([at], True), "referring calls")
    check(read_by_it, 13, "a READ of the stale copy by that layout")


def test_a_layout_that_the_client_has_seen_is_believed_to_be_gone(w):
    a, b = client(), client()

    def answers(n):
        if n == 2:
            a.ok(putrootfh())  # with the granting slot
        return NO_LAYOUT
    seen, at, _ = recalled_unseen(w, a, b, answers)
    # The client's request overtook its answer to the second callback.
    check([x.referring for x in seen], [[at], [at], []], "referring calls")
    check(a.ok(putrootfh()) and a.status_flags & 0x40, 0, "SEQ4_STATUS_RECALLABLE_STATE_REVOKED")


def test_a_delegation_on_its_way_is_not_forgotten(w):
    a, b = client(), client()
    d = a.mkdir(a.root(), "d")
    s, f = a.open(d, "f")
    a.ok(putfh(f), close(s))
    seen = []

    def on_callback(name, args):
        seen.append(args)
        return NO_STATEID
    a.on_callback = on_callback
    o = a.ok(putfh(f), open_(claim_fh(), READ | WANT_READ))
    check(o.deleg, D_READ)
    at = (a.session.sessionid, a.slots[0], 0)
    b.until(lambda got: err(got.status) != "DELAY", putfh(f), open_(claim_fh(), BOTH | NO_DELEG),
            tries=600)
    check((seen[0].referring, len(seen) > 2), ([at], True), "referring calls")
    # The server says that the client has lost what it may have got since.
    check(err(a.ok(test_stateid(o.deleg_stateid)).statuses[0]), "DELEG_REVOKED")
    check(a.status_flags & 0x40, 0x40)


if __name__ == "__main__":
    run_apart(globals(), ds=2, settings=lambda name: [*SETTINGS, "mds.grace=60s"]
              if "principals" in name else [*SETTINGS, "mds.recall_deadline=5s"])
