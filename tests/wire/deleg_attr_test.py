#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Delegations: CB_GETATTR (RFC 8881, 10.4.3), and what RFC 9754 adds. Prints TAP.

Each test gets a client, whose c.d is a directory of its own. A test uses new files, because the
server gives no delegation for a while on a file whose delegation it recalled.
"""
import os
import sys
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../wirelib"))
import harness  # noqa: E402
from harness import *  # noqa: E402,F403
from steps import *  # noqa: E402,F403
from delegs import *  # noqa: E402,F403
from nfs41 import err, op  # noqa: E402


# ---- CB_GETATTR (10.4.3)


def test_an_unmodified_file_has_the_servers_attributes(c):
    two = client()
    o = fresh(c, "f", D_WRITE)
    before = c.attrs(o.fh, *WATCHED)
    answers(c, o)
    for _ in range(2):
        check(vars(two.attrs(o.fh, *WATCHED)), vars(before))
    for one in c.asked:
        check(one.fh, o.fh)
        check(one.bits <= {3, 4}, True, f"asks for {one.bits}")
    check(any(4 in one.bits for one in c.asked) and any(3 in one.bits for one in c.asked), True,
          "it was not asked")
    c.callbacks.clear()
    holds(c, o)


def test_a_modified_file_moves_on_with_every_getattr(c):
    two = client()
    o = fresh(c, "f", D_WRITE)
    before = c.attrs(o.fh, *WATCHED)
    answers(c, o, change=o.change + 1, size=1000)
    last, seen = before, []
    for _ in range(3):
        time.sleep(0.02)
        got = two.attrs(o.fh, *WATCHED)
        check(got.size, 1000, "size")
        check(got.change > last.change, True, f"change {got.change} after {last.change}")
        check(got.time_modify > last.time_modify and got.time_metadata > last.time_metadata, True,
              "mtime and ctime")
        check(abs(got.time_modify[0] - time.time()) < 5, True, "mtime is now")
        last = got
        seen.append(got)
    # A size of data that the holder never writes was never the file's size. Change and times do
    # not go back.
    c.ok(putfh(o.fh), delegreturn(o.deleg_stateid))
    after = two.attrs(o.fh, *WATCHED)
    check(after.size, 10, "the server's size was changed")
    check(after.change >= last.change and after.time_modify >= last.time_modify, True,
          "it went back")


def test_a_larger_size_alone_is_a_modification(c):
    two = client()
    o = fresh(c, "f", D_WRITE)
    before = c.attrs(o.fh, *WATCHED)
    answers(c, o, size=11)
    got = two.attrs(o.fh, *WATCHED)
    check((got.size, got.change > before.change, got.time_modify > before.time_modify),
          (11, True, True))


def test_a_smaller_size_is_a_modification(c):
    two = client()
    o = fresh(c, "f", D_WRITE)
    answers(c, o, change=o.change + 1, size=4)
    got = two.attrs(o.fh, *WATCHED)
    check((got.size, got.change > o.change), (4, True))


def test_any_one_of_the_attributes_asks(c):
    two = client()
    for name in WATCHED:
        o = fresh(c, name, D_WRITE)
        before = getattr(c.attrs(o.fh, name), name)
        answers(c, o, change=o.change + 1, size=77)
        time.sleep(0.01)
        got = getattr(two.attrs(o.fh, name), name)
        if name == "size":
            check(got, 77)
        else:
            check(got > before, True, f"{name}: {got} after {before}")
        check(len(c.asked) > 0, True, name)


def test_getattr_of_other_attributes_asks_nobody(c):
    two = client()
    o = fresh(c, "f", D_WRITE)
    answers(c, o, change=o.change + 1, size=77)
    for names in (["type"], ["fileid", "fsid", "filehandle"],
                  ["mode", "owner", "owner_group", "numlinks"], ["lease_time", "supported_attrs"],
                  ["time_create"]):
        quick(two, putfh(o.fh), getattr_(*names))
    quick(two, putfh(c.d), lookup("f"), access(1))
    check(len(c.asked), 0)
    no_callback(c)


def test_the_holders_own_getattr_asks_nobody(c):
    o = fresh(c, "f", D_WRITE)
    answers(c, o, change=o.change + 1, size=77)
    check(c.attrs(o.fh, *WATCHED).size, 10)
    c.no("NOT_SAME", putfh(o.fh), verify(size=77))
    c.no("SAME", putfh(o.fh), nverify(size=10))
    c.ok(putfh(o.fh), getattr_(*WATCHED), delegreturn(o.deleg_stateid))
    check(len(c.asked), 0)
    no_callback(c)


def test_a_read_delegation_asks_nobody(c):
    two = client()
    o = fresh(c, "f")
    answers(c, o, change=o.change + 1, size=77)
    check(two.attrs(o.fh, *WATCHED).size, 10)
    no_callback(c)


def test_verify_and_nverify_ask_too(c):
    two = client()
    o = fresh(c, "f", D_WRITE)
    answers(c, o, change=o.change + 1, size=77)
    check(err(past_delay(two, putfh(o.fh), verify(size=77)).status), "OK",
          "VERIFY of the holder's size")
    check(err(past_delay(two, putfh(o.fh), verify(size=10)).status), "NOT_SAME",
          "VERIFY of the server's size")
    check(err(past_delay(two, putfh(o.fh), nverify(size=77)).status), "SAME",
          "NVERIFY of the holder's size")
    check(err(past_delay(two, putfh(o.fh), nverify(size=10)).status), "OK",
          "NVERIFY of the server's size")
    check(err(past_delay(two, putfh(o.fh), verify(change=o.change)).status), "NOT_SAME",
          "VERIFY of the old change")


def test_getattrs_at_once_are_all_answered(c):
    o = fresh(c, "f", D_WRITE)
    answers(c, o, change=o.change + 1, size=1000)
    slowly = c.on_callback

    def on_callback(name, args):
        time.sleep(0.1)
        return slowly(name, args)
    c.on_callback = on_callback
    others = [client() for _ in range(6)]
    its = [later(one, putfh(o.fh), getattr_(*WATCHED)) for one in others]
    got = [it.result().results[-1].attrs for it in its]
    check([g.size for g in got], [1000] * 6)
    check(all(g.change > o.change for g in got), True)
    more = others[0].attrs(o.fh, "change")
    check(more.change > max(g.change for g in got), True, "a later one moves on")


def test_a_holder_that_answers_nonsense_is_recalled(c):
    """The server checks the answer of a holder. It recalls the delegation when the answer is an
    error, is cut, lacks what was asked for, or has more."""
    two = client()
    for i, body in enumerate((fattr(), fattr(mode=0o777), b"", u32(1) + u32(8) + opaque(b"\1\2"),
                              BADHANDLE, 10006,
                              u32(1) + u32(1 << 3 | 1 << 4) + opaque(u64(7)), u32(2**31))):
        o = fresh(c, f"f{i}", D_WRITE)
        obey(c)
        recall = c.on_callback
        c.on_callback = (lambda name, args, body=body, recall=recall: body if name == "GETATTR"
                         else recall(name, args))
        r = past_delay(two, putfh(o.fh), getattr_("size", "change"))
        check(err(r.status), "OK", f"body {i}")
        check(r.results[-1].attrs.size, 10, f"body {i}")
        c.wait_callback("RECALL")
        c.callbacks.clear()


def test_holders_that_do_not_answer_getattr_are_recalled(c):
    two, cut_off = client(), client()
    o, gone = fresh(c, "f", D_WRITE), take(cut_off, make(c, "g"), D_WRITE)
    obey(c)
    recall = c.on_callback
    c.on_callback = lambda name, args: None if name == "GETATTR" else recall(name, args)
    cut_off.drop()
    its = [later(two, putfh(x.fh), getattr_("size")) for x in (o, gone)]
    watch = Watch(mds_pid(harness.THE))
    c.wait_callback("GETATTR")
    c.wait_callback("RECALL")
    for name, it in zip(("the silent one", "the one that is cut off"), its):
        it.thread.join(60)
        check(it.done(), True, f"GETATTR of the file of {name} is answered")
        check(it.result().results[-1].attrs.size, 10)
    took = watch.took()
    check(took < 4, True, f"took {took:.1f} s")
    c.ok(putrootfh())
    check(c.status_flags & REVOKED, 0)
    cut_off.conns = [cut_off.connection()]
    check(err(cut_off.ok(test_stateid(gone.deleg_stateid)).statuses[0]), "DELEG_REVOKED")


def test_a_holder_that_returns_instead_of_answering(c):
    two = client()
    o = fresh(c, "f", D_WRITE)
    going = []

    def on_callback(name, args):
        if name == "GETATTR":
            going.append(Later(lambda: c.ok(putfh(o.fh),
                                            write(o.deleg_stateid, 0, bytes(20), FILE_SYNC),
                                            delegreturn(o.deleg_stateid))))
        return None
    c.on_callback = on_callback
    watch = Watch(mds_pid(harness.THE))
    check(past_delay(two, putfh(o.fh), getattr_("size")).results[-1].attrs.size, 20)
    took = watch.took()
    check(took < 2.5, True, f"took {took:.1f} s")
    # The thread that got the callback may run later than the operation that caused it.
    eventually(lambda: going, what="GETATTR")
    going[0].result()
    c.ok(putrootfh())
    check(c.status_flags & REVOKED, 0)


def test_a_holder_that_delays_getattr_is_waited_for(c):
    two = client()
    o = fresh(c, "f", D_WRITE)
    answers(c, o, change=o.change + 1, size=77)
    answer, n = c.on_callback, []

    def on_callback(name, args):
        n.append(name)
        return DELAY if n == ["GETATTR"] else answer(name, args)
    c.on_callback = on_callback
    got = past_delay(two, putfh(o.fh), getattr_("size"))
    check(err(got.status), "OK")
    # The server asks the holder again, or recalls: either gives true values.
    check(got.results[-1].attrs.size, 77 if "RECALL" not in n else 10, str(n))


def test_writing_by_the_holder_shows(c):
    """The holder wrote its data. The server reports its own values, and the holder's change
    attribute is no news to it."""
    two = client()
    o = fresh(c, "f", D_WRITE)
    c.ok(putfh(o.fh), write(o.deleg_stateid, 0, b"x" * 50, FILE_SYNC))
    now = c.attrs(o.fh, *WATCHED)
    check(now.size, 50)
    answers(c, o, change=o.change + 1, size=50)
    got = two.attrs(o.fh, *WATCHED)
    check((got.size, got.change >= now.change), (50, True))


# ---- RFC 9754: open_arguments


def words(*bits):
    return u32(1) + u32(sum(1 << b for b in bits))


def open_arguments(c, *want):
    raw = c.conn.rpc(1, compound_args([sequence(c.session.sessionid, c.slots[0] + 1, 0, 0),
                                       putrootfh(), getattr_("open_arguments")], 2), c.cred)
    c.slots[0] += 1
    value = (words(1, 2, 3) + words(0, 1, 2, 3) + words(*want) + words(0, 1, 2, 4, 5)
             + words(0, 1, 3))
    check(raw[-len(value):].hex(), value.hex(),
          "oa_share_access, _deny, _access_want, oa_open_claim, oa_create_mode")
    check(raw[-len(value) - 4:-len(value)], u32(len(value)))


def test_open_arguments_byte_by_byte(c):
    open_arguments(c, 3, 4, 5, 21)
    supported = c.attrs(c.d, "supported_attrs").supported_attrs
    check((86 in supported, 84 in supported, 85 in supported), (True, False, False))


def test_without_delegated_times_the_attributes_are_unsupported(c):
    o = ask(c, make(c, "f"), BOTH, WANT_WRITE | WANT_TIMES)
    check(o.deleg, D_WRITE)
    c.no("ATTRNOTSUPP", putfh(o.fh), setattr_(o.deleg_stateid, time_deleg_modify=(1, 0)))
    check(c.ok(putfh(o.fh), getattr_("time_deleg_modify")).attrs.bits, set())


# ---- RFC 9754: open XOR delegation


def test_only_the_delegation_comes(c):
    for kind in (D_READ, D_WRITE):
        o = take(c, make(c, f"f{kind}"), kind, WANT_XOR)
        xor(c, o)
        holds(c, o)
        c.ok(putfh(o.fh), layoutget(o.deleg_stateid, IO_READ))
        if kind == D_WRITE:
            c.ok(putfh(o.fh), write(o.deleg_stateid, 0, b"x"), layoutget(o.deleg_stateid, IO_RW),
                 setattr_(o.deleg_stateid, size=4))
        c.ok(putfh(o.fh), delegreturn(o.deleg_stateid))
        c.no("BAD_STATEID", putfh(o.fh), read(o.deleg_stateid, 0, 1))


def test_the_delegation_is_the_current_stateid(c):
    f = make(c, "f")
    r = c.ok(putfh(f), open_(claim_fh(), BOTH | WANT_WRITE | WANT_XOR),
             write(CURRENT, 0, b"cur", FILE_SYNC), read(CURRENT, 0, 3), layoutget(CURRENT, IO_RW))
    xor(c, r.all[1])
    check((r.all[3].data, r.layouts[0].iomode), (b"cur", IO_RW))


def test_a_new_file_is_opened_by_its_delegation(c):
    r = c.ok(putfh(c.d), open_("new", BOTH | WANT_WRITE | WANT_XOR, how=GUARDED,
                               attrs={"mode": 0o600}), getfh())
    o = r.all[1]
    o.fh = r.fh
    xor(c, o)
    c.ok(putfh(o.fh), write(o.deleg_stateid, 0, b"x"), read(o.deleg_stateid, 0, 1))


def test_without_a_delegation_the_open_comes(c):
    two, f = client(), make(c, "f")
    two.ok(putfh(f), open_(claim_fh(), BOTH | NO_DELEG))
    for i, want in enumerate((WANT_READ, WANT_ANY, NO_DELEG, 0)):
        o = ask(c, f, READ, want | WANT_XOR, owner=b"o%d" % i)
        check((o.rflags & NO_OPEN_STATEID, o.stateid == ANON), (0, False))
        c.ok(putfh(f), read(o.stateid, 0, 1), close(o.stateid))


def test_an_owner_that_has_the_file_open_gets_both(c):
    f = make(c, "f")
    old = ask(c, f, READ, NO_DELEG)
    o = take(c, f, D_WRITE, WANT_XOR)
    check(o.rflags & NO_OPEN_STATEID, 0)
    check(o.stateid, (old.stateid[0] + 1, old.stateid[1]))
    c.ok(putfh(f), write(o.stateid, 0, b"x"))


def test_another_owner_gets_its_open(c):
    """The second owner asks for an open, because the client has a delegation already."""
    o = take(c, make(c, "f"), D_WRITE, WANT_XOR)
    n = ask(c, o.fh, READ, WANT_READ | WANT_XOR, owner=b"second")
    if n.rflags & NO_OPEN_STATEID:
        check(n.deleg_stateid[1], o.deleg_stateid[1], "another delegation of one client")
    else:
        c.ok(putfh(o.fh), read(n.stateid, 0, 1), close(n.stateid))
    no_callback(c)
    holds(c, o)
    c.ok(putfh(o.fh), delegreturn((0, o.deleg_stateid[1])))
    c.no("BAD_STATEID", putfh(o.fh), delegreturn((0, o.deleg_stateid[1])))


def test_what_denies_the_holder_waits_and_is_denied(c):
    """A delegation alone counts as an open. Its holder may turn it into one before the server
    decides on another client's deny."""
    two = client()
    for i, (kind, acc, deny) in enumerate(((D_WRITE, BOTH, WRITE), (D_WRITE, BOTH, READ),
                                           (D_READ, READ, READ))):
        o = take(c, make(c, f"f{i}"), kind, WANT_XOR)
        obey(c, open_(claim_deleg_cur_fh(o.deleg_stateid), acc | NO_DELEG))
        check(err(past_delay(two, putfh(o.fh), open_(claim_fh(), READ | NO_DELEG, deny)).status),
              "SHARE_DENIED")
        c.wait_callback("RECALL")


def test_an_open_that_denies_comes_with_its_stateid(c):
    """A delegation alone cannot say what the open denies."""
    two, f = client(), make(c, "f")
    o = take(c, f, D_WRITE, WANT_XOR, deny=WRITE)
    check((o.rflags & NO_OPEN_STATEID, o.stateid == ANON), (0, False))
    recalls(c, o, two, putfh(f), open_(claim_fh(), WRITE | NO_DELEG), want="SHARE_DENIED")


def test_a_file_its_holder_removed_lives_until_the_delegreturn(c):
    for i, replaced in enumerate((False, True)):
        o = take(c, make(c, f"f{i}"), D_WRITE, WANT_XOR)
        xor(c, o)
        if replaced:
            c.ok(putfh(c.d), create(FIFO, "p"), putfh(c.d), savefh(), rename("p", f"f{i}"))
        else:
            c.ok(putfh(c.d), remove(f"f{i}"))
        no_callback(c)
        c.ok(putfh(o.fh), write(o.deleg_stateid, 0, b"still"), read(o.deleg_stateid, 0, 5),
             getattr_("numlinks"))
        check(c.attrs(o.fh, "numlinks").numlinks, 0)
        c.ok(putfh(o.fh), delegreturn(o.deleg_stateid))
        c.until(lambda got: err(got.status) == "STALE", putfh(o.fh), getattr_("size"))


def test_a_file_another_removed_lives_with_the_opens_claimed(c):
    two = client()
    o = take(c, make(c, "f"), D_WRITE, WANT_XOR)
    sids = []
    obey(c, before=lambda args: sids.append(
        c.ok(putfh(o.fh), open_(claim_deleg_cur_fh(o.deleg_stateid), BOTH | NO_DELEG)).stateid))
    check(err(past_delay(two, putfh(c.d), remove("f")).status), "OK")
    c.ok(putfh(o.fh), write(sids[0], 0, b"still"), read(sids[0], 0, 5), close(sids[0]))
    c.until(lambda got: err(got.status) == "STALE", putfh(o.fh), getattr_("size"))


def test_a_delegation_alone_keeps_a_conflict_waiting(c):
    two = client()
    for kind in (D_READ, D_WRITE):
        o = take(c, make(c, f"f{kind}"), kind, WANT_XOR)
        recalls(c, o, two, putfh(o.fh), open_(claim_fh(), BOTH | NO_DELEG))


# ---- delegated times


def deleg_times(c):
    open_arguments(c, 3, 4, 5, 20, 21)
    supported = c.attrs(c.d, "supported_attrs").supported_attrs
    check({84, 85} <= supported, True, "supported_attrs")
    two = client()
    plain = fresh(c, "plain", D_WRITE)
    c.no("BAD_STATEID", putfh(plain.fh), setattr_(plain.deleg_stateid, time_deleg_modify=(1, 0)))
    for name, want, acc, kind in (("r", WANT_READ, READ, D_READ_TIMES),
                                  ("w", WANT_WRITE, BOTH, D_WRITE_TIMES)):
        o = ask(c, make(c, name), acc, want | WANT_TIMES)
        check(o.deleg, kind)
        holds(c, o)
        check(ask(c, make(c, name + "x"), acc, want | WANT_TIMES | WANT_XOR).deleg, kind)
    return two


def test_delegated_times(c):
    with own("mds.delegated_times=true") as (w, c):
        two = deleg_times(c)
        for name in ("time_deleg_access", "time_deleg_modify"):
            f = make(c, "inval" + name)
            c.no("INVAL", putfh(f), getattr_(name))
            c.no("INVAL", putfh(f), verify(**{name: (1, 0)}))
            c.no("INVAL", putfh(f), nverify(**{name: (1, 0)}))
            c.no("INVAL", putfh(c.d), create(DIR, "x" + name, mode=0o700, **{name: (1, 0)}))
            c.no("INVAL", putfh(c.d), open_("y" + name, BOTH | NO_DELEG, how=GUARDED,
                                            attrs={"mode": 0o600, name: (1, 0)}))
            c.no("BAD_STATEID", putfh(f), setattr_(ANON, **{name: (1, 0)}))
        o = take_times(c, "f")
        two.no("BAD_STATEID", putfh(o.fh), setattr_(o.deleg_stateid, time_deleg_modify=(1, 0)))
        c.no("BAD_STATEID", putfh(o.fh), setattr_(o.stateid, time_deleg_modify=(1, 0)))
        a = c.attrs(o.fh, "time_access", "time_modify", "time_metadata", "change")
        # Earlier than the stored time: ignored.
        b = set_times(c, o, time_deleg_access=(5, 5), time_deleg_modify=(6, 6))
        check((b.time_access, b.time_modify, b.time_metadata),
              (a.time_access, a.time_modify, a.time_metadata))
        # The access time moves no ctime and no change.
        time.sleep(0.03)
        at = now_minus(0.01)
        b = set_times(c, o, time_deleg_access=at)
        check((b.time_access, b.time_modify, b.time_metadata), (at, a.time_modify, a.time_metadata))
        # The modify time moves ctime, to itself, and change.
        mt = now_minus(0.005)
        m = set_times(c, o, time_deleg_modify=mt)
        check((m.time_access, m.time_modify, m.time_metadata), (at, mt, mt))
        check(m.change > b.change, True, "change")
        # A time in the future becomes now.
        ahead = int(time.time()) + 1000
        f = set_times(c, o, time_deleg_access=(ahead, 0), time_deleg_modify=(ahead, 0))
        for t in (f.time_access, f.time_modify, f.time_metadata):
            check(mt < t <= now_minus(-0.5), True, f"{t} where {ahead} was told")
        check(f.time_access, f.time_modify, "one sample of now")
        c.ok(putfh(o.fh), delegreturn(o.deleg_stateid))
        c.no("BAD_STATEID", putfh(o.fh), setattr_(o.deleg_stateid, time_deleg_modify=mt))
        # A holder of a read delegation reports an access time alone, and may do so.
        r = ask(c, make(c, "g"), READ, WANT_READ | WANT_TIMES)
        time.sleep(0.02)
        at = now_minus(0.005)
        check(set_times(c, r, time_deleg_access=at).time_access, at)
        r = c.ok(putfh(r.fh), setattr_(r.deleg_stateid, time_deleg_access=now_minus(0)),
                 delegreturn(r.deleg_stateid))
        times_in_cb_getattr(c, two)


def times_in_cb_getattr(c, two):
    o = take_times(c, "cb")
    time.sleep(0.05)
    at, mt = now_minus(0.01), now_minus(0.02)
    answers(c, o, change=o.change + 1, size=99, time_deleg_access=at, time_deleg_modify=mt)
    got = two.attrs(o.fh, *WATCHED, "time_access")
    check({84, 85} <= c.asked[0].bits, True, f"CB_GETATTR asks for {c.asked[0].bits}")
    check((got.size, got.time_access, got.time_modify, got.time_metadata), (99, at, mt, mt))
    check(got.change > o.change, True)
    # Unmodified: an older time and the same change.
    p = take_times(c, "cb2")
    before = c.attrs(p.fh, *WATCHED)
    answers(c, p, time_deleg_access=(1, 0), time_deleg_modify=(1, 0))
    check(vars(two.attrs(p.fh, *WATCHED)), vars(before))
    # The server asks for the access time too. It asks nothing of a holder for reading.
    c.asked.clear()
    before = two.attrs(p.fh, "time_access").time_access
    at = now_minus(0.001)
    answers(c, p, time_deleg_access=at, time_deleg_modify=(1, 0))
    check(two.attrs(p.fh, "time_access").time_access, at, f"asked alone, after {before}")
    r = ask(c, make(c, "cbr"), READ, WANT_READ | WANT_TIMES)
    answers(c, r, time_deleg_access=at, time_deleg_modify=at)
    c.callbacks.clear()
    two.attrs(r.fh, *WATCHED, "time_access")
    no_callback(c)
    # A time in the future becomes now.
    q = take_times(c, "cb3")
    answers(c, q, change=q.change + 1, size=99, time_deleg_access=(2**33, 0),
            time_deleg_modify=(2**33, 0))
    got = two.attrs(q.fh, *WATCHED)
    check(got.time_modify <= now_minus(-0.5), True, f"mtime {got.time_modify}")


if __name__ == "__main__":
    harness.run_shared(globals(), lambda w, name: (with_dir(client(), name),), closing=True, ds=2,
                        parts=3, settings=harness.CALM)
