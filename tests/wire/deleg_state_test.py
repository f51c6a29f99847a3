#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Delegations: their stateids, opens during a recall, holders that fail (RFC 8881, chapter 10).
Prints TAP.

Each test gets a client, whose c.d is a directory of its own. A test uses new files, because the
server gives no delegation for a while on a file whose delegation it recalled.
"""
import contextlib
import os
import sys
import threading
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../wirelib"))
import harness  # noqa: E402
from harness import *  # noqa: E402,F403
from steps import *  # noqa: E402,F403
from delegs import *  # noqa: E402,F403
from nfs41 import err, op  # noqa: E402


# ---- the stateid


def test_data_moves_with_a_write_delegations_stateid(c):
    o = fresh(c, "f", D_WRITE)
    c.ok(putfh(o.fh), close(o.stateid))
    sid, g = o.deleg_stateid, make(c, "g")
    for s in (sid, (0, sid[1])):
        c.ok(putfh(o.fh), write(s, 0, b"data", FILE_SYNC))
        check(c.ok(putfh(o.fh), read(s, 0, 4)).data, b"data")
        check(c.ok(putfh(o.fh), setattr_(s, size=2), getattr_("size")).attrs.size, 2)
        c.ok(putfh(o.fh), allocate(s, 0, 20), deallocate(s, 4, 4), seek(s, 0, 0),
             read_plus(s, 0, 9))
        c.ok(putfh(g), savefh(), putfh(o.fh), copy(ANON, s, 0, 10, 4), savefh(), putfh(g),
             copy(s, ANON, 0, 0, 4))
    no_callback(c)


def test_a_read_delegation_is_not_for_writing(c):
    o = fresh(c, "f")
    c.no("OPENMODE", putfh(o.fh), write(o.deleg_stateid, 0, b"x"))
    c.no("OPENMODE", putfh(o.fh), setattr_(o.deleg_stateid, size=2))
    check(c.attrs(o.fh, "size").size, 10)
    c.ok(putfh(o.fh), read(o.deleg_stateid, 0, 1))


def test_layouts_with_a_delegations_stateid(c):
    o = fresh(c, "r")
    g = c.ok(putfh(o.fh), layoutget(o.deleg_stateid, IO_READ))
    check(g.layouts[0].iomode, IO_READ)
    c.no(("OPENMODE", "BADIOMODE", "ACCESS"), putfh(o.fh), layoutget(o.deleg_stateid, IO_RW))
    o = fresh(c, "w", D_WRITE)
    c.ok(putfh(o.fh), close(o.stateid))
    g = c.ok(putfh(o.fh), layoutget(o.deleg_stateid, IO_RW))
    check(g.layouts[0].iomode, IO_RW)
    c.ok(putfh(o.fh), layoutreturn(g.stateid), delegreturn(o.deleg_stateid))
    c.no("BAD_STATEID", putfh(o.fh), layoutget(o.deleg_stateid, IO_RW))


def test_locks_with_a_delegations_stateid(c):
    """RFC 8881 (9.1.2) asks for a lock with the stateid of an open. RFC 9754 also allows that of a
    delegation."""
    o = take(c, make(c, "f"), D_WRITE, WANT_XOR)
    got = c.call(putfh(o.fh), lock(o.deleg_stateid, WRITE_LT, 0, 5, b"lo"))
    check(err(got.status), "OK")
    k = got.results[-1].stateid
    c.ok(putfh(o.fh), write(k, 0, b"x"))
    two = client()
    obey(c)
    check(err(past_delay(two, putfh(o.fh), lockt(WRITE_LT, 0, 1, b"him")).status), "DENIED")
    c.ok(putfh(o.fh), locku(k, 0, 5))
    check(err(past_delay(two, putfh(o.fh), lockt(WRITE_LT, 0, 1, b"him")).status), "OK")


def test_locks_end_with_the_delegation_they_came_by(c):
    """With no open left, a DELEGRETURN leaves no lock behind. With an open, the lock
    is the open's."""
    two = client()
    for i, claimed in enumerate((False, True)):
        o = take(c, make(c, f"f{i}"), D_WRITE, WANT_XOR)
        c.ok(putfh(o.fh), lock(o.deleg_stateid, WRITE_LT, 0, 5, b"lo"))
        if claimed:
            s = c.ok(putfh(o.fh),
                     open_(claim_deleg_cur_fh(o.deleg_stateid), BOTH | NO_DELEG)).stateid
        got = c.call(putfh(o.fh), delegreturn(o.deleg_stateid))
        if got.status:
            check(err(got.status), "LOCKS_HELD")
            continue
        denied = err(past_delay(two, putfh(o.fh), lockt(WRITE_LT, 0, 1, b"him")).status)
        if claimed:
            check(denied in ("DENIED", "OK"), True)
            c.ok(putfh(o.fh), write(s, 0, b"x"))
        else:
            check(denied, "OK", "LOCKT after the DELEGRETURN")


def test_a_delegation_gives_no_rights_to_the_data(c):
    """A user that may only read cannot write by way of a delegation, and a user that may only write
    cannot read."""
    for name, mode, acc, ops, cred in (
            ("r", 0o644, READ, (lambda s: write(s, 0, b"x"), lambda s: setattr_(s, size=1)), USER),
            ("w", 0o622, WRITE, (lambda s: read(s, 0, 9),), USER)):
        for i, flags in enumerate((WANT_WRITE, WANT_ANY, WANT_WRITE | WANT_XOR)):
            s, f = c.open(c.d, f"{name}{i}", attrs={"mode": mode})
            c.ok(putfh(f), write(s, 0, b"0123456789", FILE_SYNC), setattr_(mode=mode), close(s))
            o = c.ok(putfh(f), open_(claim_fh(), acc | flags, owner=b"user"), cred=cred)
            if o.deleg in (D_NONE, D_NONE_EXT):
                continue
            for do in ops:
                c.no(("ACCESS", "OPENMODE"), putfh(f), do(o.deleg_stateid), cred=cred)
            got = c.call(putfh(f), open_(claim_deleg_cur_fh(o.deleg_stateid), BOTH, owner=b"cur"),
                         cred=cred)
            check(err(got.status) in ("ACCESS", "OPENMODE"), True,
                  f"CLAIM_DELEG_CUR_FH for both: {err(got.status)}")
    check(c.attrs(f, "size").size, 10)


def test_seqids_of_a_delegations_stateid(c):
    o = fresh(c, "f")
    seq, other = o.deleg_stateid
    c.ok(putfh(o.fh), read((0, other), 0, 1))
    c.no("BAD_STATEID", putfh(o.fh), read((seq + 1, other), 0, 1))
    c.no("BAD_STATEID", putfh(o.fh), delegreturn((seq + 5, other)))
    check([err(s) for s in c.ok(test_stateid((seq, other), (0, other), (seq + 1, other))).statuses],
          ["OK", "OK", "BAD_STATEID"])
    c.no("LOCKS_HELD", free_stateid(o.deleg_stateid))
    c.ok(putfh(o.fh), delegreturn((0, other)))


def test_open_operations_refuse_a_delegations_stateid(c):
    o = fresh(c, "f", D_WRITE)
    c.no("BAD_STATEID", putfh(o.fh), close(o.deleg_stateid))
    c.no("BAD_STATEID", putfh(o.fh), open_downgrade(o.deleg_stateid, READ))
    c.no("BAD_STATEID", putfh(o.fh), locku(o.deleg_stateid))
    c.no("BAD_STATEID", putfh(o.fh), layoutreturn(o.deleg_stateid))
    holds(c, o)
    c.no("BAD_STATEID", putfh(o.fh), delegreturn(o.stateid))


def test_delegreturn_errors(c):
    two = client()
    o, g = fresh(c, "f"), make(c, "g")
    c.no("BAD_STATEID", putfh(g), delegreturn(o.deleg_stateid))
    two.no("BAD_STATEID", putfh(o.fh), delegreturn(o.deleg_stateid))
    two.no("BAD_STATEID", putfh(o.fh), read(o.deleg_stateid, 0, 1))
    two.no("BAD_STATEID", free_stateid(o.deleg_stateid))
    check(err(two.ok(test_stateid(o.deleg_stateid)).statuses[0]), "BAD_STATEID")
    c.no("BAD_STATEID", putfh(g), read(o.deleg_stateid, 0, 1))
    for sid in (ANON, BYPASS, INVALID):
        c.no("BAD_STATEID", putfh(o.fh), delegreturn(sid))
    c.no("NOFILEHANDLE", delegreturn(o.deleg_stateid))
    holds(c, o)
    c.ok(putfh(o.fh), delegreturn(o.deleg_stateid))
    c.no("BAD_STATEID", putfh(o.fh), delegreturn(o.deleg_stateid))
    c.no("BAD_STATEID", free_stateid(o.deleg_stateid))


def test_a_delegation_outlives_close(c):
    two = client()
    o = fresh(c, "f")
    c.ok(putfh(o.fh), close(o.stateid))
    holds(c, o)
    recalls(c, o, two, putfh(o.fh), open_(claim_fh(), WRITE | NO_DELEG))


def test_an_open_outlives_its_delegation(c):
    o = fresh(c, "f", D_WRITE)
    c.ok(putfh(o.fh), delegreturn(o.deleg_stateid), write(o.stateid, 0, b"x"), close(o.stateid))


def test_a_returned_delegation_can_be_had_again(c):
    """Only a recall for a conflict ends the file's delegations for a while."""
    o = fresh(c, "f")
    c.ok(putfh(o.fh), delegreturn(o.deleg_stateid), close(o.stateid))
    take(c, o.fh)


def test_a_delegation_survives_a_session(c):
    two = client()
    o = fresh(c, "f", D_WRITE)
    c.ok(destroy_session(c.session.sessionid))
    c.create_session()
    holds(c, o)
    recalls(c, o, two, putfh(o.fh), open_(claim_fh(), READ | NO_DELEG))


def test_a_client_with_a_delegation_is_busy(c):
    one = client()
    f = make(c, "f")
    o = take(one, f)
    one.ok(putfh(f), close(o.stateid))
    c.no("CLIENTID_BUSY", destroy_clientid(one.clientid))
    one.ok(putfh(f), delegreturn(o.deleg_stateid), destroy_session(one.session.sessionid))
    c.ok(destroy_clientid(one.clientid))


def test_a_restarted_clients_delegations_are_gone(c):
    one = client()
    o = take(one, make(c, "f"), D_WRITE)
    new = client(owner=one.owner)
    quick(c, putfh(o.fh), open_(claim_fh(), BOTH | NO_DELEG))
    check(err(new.ok(test_stateid(o.deleg_stateid)).statuses[0]), "BAD_STATEID")
    no_callback(one)


# ---- opens during a recall (10.4.4, 18.16.3)


def test_opens_are_claimed_while_a_recall_is_under_way(_):
    """The deadline is so long that no machine is too slow for the holder."""
    with own(*harness.CALM, "mds.recall_deadline=20s") as (_, c):
        claimed(c, "f0", lambda o: [putfh(c.d), open_(claim_delegate_cur(o.deleg_stateid, "f0"),
                                                      BOTH | WANT_WRITE)])
        claimed(c, "f1", lambda o: [putfh(o.fh), open_(claim_deleg_cur_fh(o.deleg_stateid),
                                                       BOTH | WANT_WRITE)])


def claimed(c, name, claim):
    """The holder of a delegation claims its open by these operations before it obeys a recall."""
    two, f = client(), make(c, name)
    o, got = take(c, f, D_WRITE), Obj(begun=threading.Event(), claimed=threading.Event())
    c.ok(putfh(f), close(o.stateid))

    def before(args):
        if not got.begun.wait(60):
            raise Failed("no conflicting open has begun")
        got.open = c.ok(*claim(o))
        c.ok(putfh(f), write(got.open.stateid, 0, b"flushed", FILE_SYNC))
        got.early = it.done()
        got.claimed.set()
    obey(c, before=before)
    it = later(two, putfh(f), open_(claim_fh(), READ | NO_DELEG), read(CURRENT, 0, 7))
    got.begun.set()
    check(it.result().results[-1].data, b"flushed")
    check(got.claimed.wait(60), True, "the holder has claimed its open")
    c.wait_callback("RECALL")
    check(got.open.deleg in (D_NONE, D_NONE_EXT), True,
          "a delegation for a claim of the delegation")
    check(got.early, False, "the conflicting open did not wait")
    c.ok(putfh(f), write(got.open.stateid, 0, b"x"), close(got.open.stateid))


def test_a_claimed_open_denies(c):
    """The server has the claimed open before it decides on the conflicting one."""
    two = client()
    o = fresh(c, "f", D_WRITE)
    c.ok(putfh(o.fh), close(o.stateid))
    obey(c, open_(claim_deleg_cur_fh(o.deleg_stateid), READ | NO_DELEG, WRITE))
    check(err(past_delay(two, putfh(o.fh), open_(claim_fh(), WRITE | NO_DELEG)).status),
          "SHARE_DENIED")
    c.wait_callback("RECALL")


def test_a_claim_without_recall_is_an_open(c):
    o = fresh(c, "f")
    c.ok(putfh(o.fh), close(o.stateid))
    for claim in ([putfh(c.d), open_(claim_delegate_cur(o.deleg_stateid, "f"), READ)],
                  [putfh(o.fh), open_(claim_deleg_cur_fh(o.deleg_stateid), READ)]):
        r = c.ok(*claim)
        check(r.deleg in (D_NONE, D_NONE_EXT), True)
        c.ok(putfh(o.fh), read(r.stateid, 0, 1), close(r.stateid))
    holds(c, o)
    no_callback(c)


def test_a_claim_of_a_read_delegation_does_not_write(c):
    """A read delegation does not cover an open for writing (10.4): the server does not pass over
    other clients' delegations."""
    two = client()
    o = fresh(c, "f")
    other = take(two, o.fh)
    obey(two)
    got = c.call(putfh(o.fh),
                 open_(claim_deleg_cur_fh(o.deleg_stateid), BOTH | NO_DELEG, owner=b"w"))
    gone = err(two.ok(test_stateid(other.deleg_stateid)).statuses[0]) == "BAD_STATEID"
    check(got.status != 0 or gone, True, "open for writing beside another's read delegation")


def test_claims_with_a_delegation_that_is_not_theirs(c):
    two = client()
    o, g = fresh(c, "f"), make(c, "g")
    gone = fresh(c, "gone")
    c.ok(putfh(gone.fh), delegreturn(gone.deleg_stateid))
    two.no("BAD_STATEID", putfh(o.fh), open_(claim_deleg_cur_fh(o.deleg_stateid), READ))
    two.no("BAD_STATEID", putfh(c.d), open_(claim_delegate_cur(o.deleg_stateid, "f"), READ))
    c.no("BAD_STATEID", putfh(g), open_(claim_deleg_cur_fh(o.deleg_stateid), READ))
    c.no("BAD_STATEID", putfh(c.d), open_(claim_delegate_cur(o.deleg_stateid, "g"), READ))
    c.no("BAD_STATEID", putfh(o.fh), open_(claim_deleg_cur_fh(o.stateid), READ))
    c.no("BAD_STATEID", putfh(gone.fh), open_(claim_deleg_cur_fh(gone.deleg_stateid), READ))
    for sid in (ANON, BYPASS):
        c.no("BAD_STATEID", putfh(o.fh), open_(claim_deleg_cur_fh(sid), READ))
    c.no("NOENT", putfh(c.d), open_(claim_delegate_cur(o.deleg_stateid, "nothing"), READ))
    holds(c, o)


def test_data_is_flushed_by_layouts_while_a_recall_is_under_way(c):
    two = client()
    o = take(c, make(c, "f"), D_WRITE, WANT_XOR)
    obey(c, layoutget(o.deleg_stateid, IO_RW), layoutreturn(CURRENT),
         write(o.deleg_stateid, 0, b"flushed", FILE_SYNC))
    got = past_delay(two, putfh(o.fh), open_(claim_fh(), READ | NO_DELEG), read(CURRENT, 0, 7))
    check(got.results[-1].data, b"flushed")
    c.wait_callback("RECALL")
    c.ok(putrootfh())
    check(c.status_flags & REVOKED, 0)


def test_a_truncation_recalls_delegation_and_layout(c):
    two, names = client(), []
    o = take(c, make(c, "f"), D_WRITE, WANT_XOR)
    held = c.ok(putfh(o.fh), layoutget(o.deleg_stateid, IO_RW)).stateid

    def on_callback(name, args):
        names.append(name)
        back = ([write(o.deleg_stateid, 0, b"x"), delegreturn(args.stateid)] if name == "RECALL"
                else [layoutreturn(args.stateid)])
        Later(lambda: c.ok(putfh(o.fh), *back))
        return 0
    c.on_callback = on_callback
    quick(two, putfh(o.fh), setattr_(size=3))
    check(two.attrs(o.fh, "size").size, 3)
    check(sorted(names), ["LAYOUTRECALL", "RECALL"])
    check([err(x) for x in c.ok(test_stateid(o.deleg_stateid, held)).statuses], ["BAD_STATEID"] * 2)
    check(c.status_flags & REVOKED, 0)


# ---- holders that fail (10.4.5, 10.4.6)


def test_a_holder_that_does_not_return_is_revoked(c):
    two = client()
    o, w = fresh(c, "f", D_WRITE), fresh(c, "g")
    kept = fresh(c, "kept")
    began, watch = time.monotonic(), Watch(mds_pid(harness.THE))
    its = [later(two, putfh(x.fh), open_(claim_fh(), BOTH | NO_DELEG, owner=b"o%d" % i))
           for i, x in enumerate((o, w))]
    check([err(it.result().status) for it in its], ["OK", "OK"])
    at_most, took = watch.took(), time.monotonic() - began
    check(0.8 < took and at_most < 2.6, True, f"took {took:.1f} s with a deadline of 1 s")
    c.ok(putrootfh())
    check(c.status_flags & REVOKED, REVOKED, "SEQ4_STATUS_RECALLABLE_STATE_REVOKED")
    sid = o.deleg_stateid
    check([err(s) for s in c.ok(test_stateid(sid, w.deleg_stateid, kept.deleg_stateid)).statuses],
          ["DELEG_REVOKED", "DELEG_REVOKED", "OK"])
    c.no("DELEG_REVOKED", putfh(o.fh), write(sid, 0, b"late"))
    c.no("DELEG_REVOKED", putfh(o.fh), read(sid, 0, 1))
    c.no("DELEG_REVOKED", putfh(o.fh), setattr_(sid, size=1))
    c.no("DELEG_REVOKED", putfh(o.fh), layoutget(sid, IO_READ))
    c.no("DELEG_REVOKED", putfh(o.fh), open_(claim_deleg_cur_fh(sid), READ))
    c.no("DELEG_REVOKED", putfh(c.d), open_(claim_delegate_cur(sid, "f"), READ))
    got = c.call(putfh(o.fh), delegreturn(sid))
    check(err(got.status) in ("OK", "DELEG_REVOKED"), True, f"DELEGRETURN: {err(got.status)}")
    if got.status:
        c.ok(free_stateid(sid))
    c.no("BAD_STATEID", putfh(o.fh), read(sid, 0, 1))
    c.no("BAD_STATEID", free_stateid(sid))
    c.ok(putrootfh())
    check(c.status_flags & REVOKED, REVOKED, "one of two is acknowledged")
    c.ok(free_stateid((0, w.deleg_stateid[1])))
    c.ok(putrootfh())
    check(c.status_flags & REVOKED, 0, "after FREE_STATEID")
    # The opens are consistent with the other's, and live (10.4.6).
    c.ok(putfh(o.fh), write(o.stateid, 0, b"x"), putfh(w.fh), read(w.stateid, 0, 1))
    holds(c, kept)


def test_answers_to_a_recall(c):
    """The server repeats a recall after DELAY. A holder that does not know its delegation yet may
    still learn of it, and returns it in time."""
    two = client()
    for i, answers in enumerate(([DELAY], [DELAY, DELAY], [BADHANDLE], [BAD_STATEID])):
        o = fresh(c, f"f{i}", D_WRITE)
        c.ok(putrootfh())  # it has the reply: else there is a pause of half a second after each
        obey(c, answers=answers)
        got = past_delay(two, putfh(o.fh), open_(claim_fh(), BOTH | NO_DELEG))
        check(err(got.status), "OK", str(answers))
        c.ok(putrootfh())
        check(c.status_flags & REVOKED, 0, f"{answers}: revoked")
        check(err(c.ok(test_stateid(o.deleg_stateid)).statuses[0]), "BAD_STATEID")
        n = 0
        with contextlib.suppress(TimeoutError):
            while c.wait_callback("RECALL", 0.05).stateid == o.deleg_stateid:
                n += 1
        check(n, len(answers) + 1, f"{answers}: recalls")


def test_holders_that_never_answer_well_are_revoked(c):
    """Silence, endless DELAY, endless BADHANDLE and a cut connection: no holder delays other
    clients past the deadline."""
    two, holders = client(), []
    for name, answer in (("silent", None), ("delay", DELAY), ("badhandle", BADHANDLE),
                         ("inval", 22), ("garbage", b"\1\2\3\4"), ("cut", 0)):
        h = client()
        h.on_callback = lambda name, args, answer=answer: answer
        o = take(h, make(c, name), D_WRITE)
        holders.append((name, h, o))
        for _, held, _ in holders:
            held.ok()
    h.drop()
    h.conns = [h.connection()]  # without callbacks: it has not bound the connection
    with living([h for _, h, _ in holders]) as late:
        began = time.monotonic()
        its = [(name,
                later(two, putfh(o.fh), open_(claim_fh(), READ | NO_DELEG, owner=name.encode())))
               for name, h, o in holders]
        for name, it in its:
            check(err(it.result().status), "OK", name)
        took = time.monotonic() - began
    check(0.7 < took < 3 + sum(late), True,
          f"took {took:.1f} s, of which the machine {sum(late):.1f}")
    for name, h, o in holders:
        status = err(h.ok(test_stateid(o.deleg_stateid)).statuses[0])
        # An answer other than DELAY and OK may end the recall, and the delegation (20.2.4).
        check(status in (("DELEG_REVOKED",) if name in ("silent", "delay", "cut")
                         else ("DELEG_REVOKED", "BAD_STATEID")), True, f"{name}: {status}")
        check(h.status_flags & REVOKED, REVOKED if status == "DELEG_REVOKED" else 0, name)
        h.no((status,), putfh(o.fh), read(o.deleg_stateid, 0, 1))


def test_a_recall_follows_the_client_to_a_new_connection(c):
    two = client()
    o = fresh(c, "f", D_WRITE)
    c.drop()
    it = later(two, putfh(o.fh), open_(claim_fh(), READ | NO_DELEG))
    time.sleep(0.2)
    check(it.done(), False)
    obey(c)
    c.conns = [c.connection()]
    first(c, "OK", bind_conn(c.session.sessionid, 7))
    check(err(it.result().status), "OK")
    check(c.wait_callback("RECALL").stateid, o.deleg_stateid)
    c.ok(putrootfh())
    check(c.status_flags & (REVOKED | CB_PATH_DOWN), 0)


def test_a_recall_follows_the_client_to_a_new_session(c):
    two = client()
    o = fresh(c, "f", D_WRITE)
    c.ok(destroy_session(c.session.sessionid))
    it = later(two, putfh(o.fh), open_(claim_fh(), READ | NO_DELEG))
    time.sleep(0.1)
    obey(c)
    c.create_session()
    check(err(it.result().status), "OK")
    check(c.wait_callback("RECALL").stateid, o.deleg_stateid)


def cut(c, lost):
    """Drops the connection during a callback. lost: the callback never arrived; otherwise its
    answer never left."""
    c.wait_callback("RECALL")
    c.drop()
    if lost:
        c.cb_seqs = {slot: seq - 1 for slot, seq in c.cb_seqs.items()}
    c.conns = [c.connection()]
    first(c, "OK", bind_conn(c.session.sessionid, 7))


def test_a_recall_that_was_lost_is_sent_again(c):
    two = client()
    o = fresh(c, "f", D_WRITE)
    c.on_callback = lambda name, args: None
    it = later(two, putfh(o.fh), open_(claim_fh(), READ | NO_DELEG))
    c.wait_callback("RECALL")
    with c.cb_cond:
        c.callbacks.append(Obj(name="RECALL"))
    obey(c)
    cut(c, True)
    check(err(it.result().status), "OK")
    check(c.wait_callback("RECALL").stateid, o.deleg_stateid)
    c.ok(putrootfh())
    check(c.status_flags & REVOKED, 0)


def test_a_recall_whose_answer_was_lost_is_obeyed(c):
    """2.10.6.2: the server sends the recall again in its slot. The client has it already, and
    answers RETRY_UNCACHED_REP."""
    two = client()
    o = fresh(c, "f", D_WRITE)
    c.on_callback = lambda name, args: None
    it = later(two, putfh(o.fh), open_(claim_fh(), READ | NO_DELEG))
    cut(c, False)
    time.sleep(0.2)
    check(it.done(), False, "the conflicting open was done")
    c.ok(putfh(o.fh), delegreturn(o.deleg_stateid))
    check(err(it.result().status), "OK")
    c.ok(putrootfh())
    check(c.status_flags & REVOKED, 0)


@brief
def test_silent_holders_and_files_in_contention(c):
    """Several tests share one pause. State of a client whose lease ended blocks no other client. A
    file in contention can have delegations again after a lease."""
    two, silent = client(), client()
    read_, write_ = take(silent, make(c, "r")), take(silent, make(c, "w"), D_WRITE)
    xor = take(silent, make(c, "x"), D_WRITE, WANT_XOR)
    courteous = client()
    kept = [take(courteous, make(c, f"k{kind}"), kind) for kind in (D_READ, D_WRITE)]
    recalled = [fresh(c, "c1"), fresh(c, "c2", D_WRITE)]
    for o in recalled:
        c.ok(putfh(o.fh), close(o.stateid))
        r = recalls(c, o, two, putfh(o.fh), open_(claim_fh(), WRITE | NO_DELEG))
        two.ok(putfh(o.fh), close(r.stateid))
        refused(ask(c, o.fh, READ, WANT_READ, owner=b"1"), CONTENTION)
        refused(ask(c, o.fh, BOTH, WANT_WRITE, owner=b"2"), CONTENTION)
        check(ask(c, o.fh, READ, 0, owner=b"3").deleg, D_NONE)
        refused(c.ok(putfh(o.fh), want_delegation(WANT_READ)), CONTENTION)
    end = time.monotonic() + LEASE + 0.6
    while time.monotonic() < end:
        time.sleep(0.4)
        c.ok(putrootfh()), two.ok(putrootfh())
    for o in recalled:
        n = ask(c, o.fh, READ, WANT_READ, owner=b"1")
        check((n.deleg, getattr(n, "why", None)), (D_READ, None), "after a lease")
    for o in kept:  # no client wanted them
        holds(courteous, o)
        recalls(courteous, o, two, putfh(o.fh), open_(claim_fh(), WRITE | NO_DELEG))
    quick(two, putfh(read_.fh), setattr_(mode=0o600))
    quick(two, putfh(write_.fh), open_(claim_fh(), BOTH | NO_DELEG))
    quick(two, putfh(xor.fh), open_(claim_fh(), READ | NO_DELEG))
    got = silent.conn.compound(sequence(silent.session.sessionid, silent.slots[0] + 1, 0, 0))
    check(err(got.status) == "BADSESSION" or got.results[0].flags & 0x78 != 0, True,
          "the silent client is not told")


if __name__ == "__main__":
    harness.run_shared(globals(), lambda w, name: (with_dir(client(), name),), closing=True, ds=2,
                        parts=3, settings=harness.CALM)
