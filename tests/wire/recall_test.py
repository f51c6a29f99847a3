#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Recalls of layouts, over the wire (RFC 8881, 12.5.5). Prints TAP.

A test gets a client and the filehandle of a directory of its own. A test whose name begins with
restart_ gets a cluster of its own.
"""
import os
import sys
import threading
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../wirelib"))
import harness  # noqa: E402
from harness import *  # noqa: E402,F403
from load import Watch, mds_pid, pids  # noqa: E402
from nfs41 import err, op  # noqa: E402
from steps import *  # noqa: E402,F403


# ---- recall (12.5.5)


def test_who_said_yes_to_a_recall_and_asks_for_more_is_recalled_again(c, d):
    s, f, o, ds, fh = one_server(c, d)
    asked = []
    c.on_callback = lambda name, args: asked.append(args.stateid) or 0
    two = client()
    waits = threading.Thread(target=lambda: two.call(putfh(f), setattr_(ANON, size=7)))
    waits.start()
    try:
        eventually(lambda: len(asked) == 1, 5, "recall")
        time.sleep(0.05)  # its answer has come
        c.no("RECALLCONFLICT", putfh(f), layoutget(o.stateid))
        eventually(lambda: len(asked) > 1, 5, "another recall")
        check(set(asked), {(2, o.stateid[1])}, "it counts no further")
        c.ok(putfh(f), layoutreturn(asked[0]))
    finally:
        waits.join()
    lay(c, f, s)


def test_a_truncation_recalls_the_layouts_of_others(c, d):
    s, f, o, ds, fh = one_server(c, d)
    ds.write(fh, 0, b"0123456789")
    returns_when_recalled(c, f, lambda args: ds.write(fh, 5, b"late"))
    two, before = client(), revoked()
    r = two.ok(putfh(f), setattr_(ANON, size=7), getattr_("size"))
    check((r.attrs.size, revoked()), (7, before))
    got = c.wait_callback("LAYOUTRECALL")
    check((got.kind, got.iomode in (IO_RW, IO_ANY), got.how, got.fh), (FLEX, True, RET_FILE, f))
    check((got.offset, got.length, got.stateid), (0, MAX64, (2, o.stateid[1])))
    check(two.ok(putfh(f), read(ANON, 0, 100)).data, b"01234la")
    check(c.ok(putfh(f), open_(claim_fh(), BOTH | NO_DELEG), read(CURRENT, 0, 9)).data, b"01234la")
    check(ds.write(fh, 0, b"fenced").status, 13, "a handle from before the truncation")
    check(ds.write(lay(c, f, (0, s[1])).mirrors[0][0].fhs[0], 0, b"ok").status, 0)


def test_ones_own_truncation_takes_ones_own_layout_back(c, d):
    """Its capabilities end. A client that learns this only from a refused WRITE would write again
    when its file is closed."""
    s, f, o, ds, fh = one_server(c, d)
    ds.write(fh, 0, b"0123456789")
    returns_when_recalled(c, f)
    check(c.ok(putfh(f), setattr_(s, size=5), getattr_("size")).attrs.size, 5)
    check(c.wait_callback("LAYOUTRECALL").fh, f)
    check(ds.write(fh, 8, b"?").status, 13)
    new = lay(c, f, s)
    check(ds.write(new.mirrors[0][0].fhs[0], 8, b"!").status, 0)
    check(c.ok(putfh(f), read(s, 0, 100)).data, b"01234\0\0\0!")


def test_a_truncation_by_open_recalls_too(c, d):
    s, f, o, ds, fh = one_server(c, d)
    ds.write(fh, 0, b"0123456789")
    returns_when_recalled(c, f)
    two = client()
    r = two.ok(putfh(d), open_("f", BOTH | NO_DELEG, how=UNCHECKED, attrs={"size": 0}),
               getattr_("size"))
    check(r.attrs.size, 0)
    c.wait_callback("LAYOUTRECALL")


def test_a_layoutget_during_a_recall_conflicts(c, d):
    s, f, o, ds, fh = one_server(c, d)
    seen = []

    def on_callback(name, args):
        seen.append(c.call(putfh(f), layoutget(o.stateid)))  # sent before the recall is answered
        threading.Thread(target=lambda: c.ok(putfh(f), layoutreturn(args.stateid)),
                         daemon=True).start()
        return 0
    c.on_callback = on_callback
    client().ok(putfh(f), setattr_(ANON, size=7))
    check([err(g.status) for g in seen], ["RECALLCONFLICT"])


def test_a_new_client_gets_no_layout_during_a_recall(c, d):
    s, f, o, ds, fh = one_server(c, d)
    two, three = client(), client()
    s3, _ = three.open(d, "f")
    started = two.begin(putfh(f), setattr_(ANON, size=7))
    c.wait_callback("LAYOUTRECALL")
    three.no("RECALLCONFLICT", putfh(f), layoutget(s3))
    c.ok(putfh(f), layoutreturn((2, o.stateid[1])))
    check(two.finish(started).status, 0)
    lay(three, f, s3)


def test_a_client_without_the_layout_says_so(c, d):
    s, f, o, ds, fh = one_server(c, d)
    c.on_callback = lambda name, args: 10060  # NOMATCHING_LAYOUT
    before = revoked()
    client().ok(putfh(f), setattr_(ANON, size=7))
    check(revoked(), before)
    check(ds.write(fh, 0, b"fenced").status, 13)


def test_a_client_that_delays_is_asked_again(c, d):
    s, f, o, ds, fh = one_server(c, d)
    answers = []

    def on_callback(name, args):
        answers.append(args)
        if len(answers) < 2:
            return 10008  # DELAY
        threading.Thread(target=lambda: c.ok(putfh(f), layoutreturn(args.stateid)),
                         daemon=True).start()
        return 0
    c.on_callback = on_callback
    client().ok(putfh(f), setattr_(ANON, size=7))
    check((len(answers), answers[0].stateid), (2, answers[1].stateid))
    check(c.ok(putrootfh()) and c.status_flags & 0x40, 0)


def test_a_retry_tells_of_a_revoked_layout_too(c, d):
    """RFC 8881, 8.4.2.4 and 2.10.6.1.3: the client loses the reply that carried it. The reply was
    too long for the cache without a request for that."""
    c.ok(putfh(d), create(LNK, "l", "x" * 1000))
    s, f, o, ds, fh = one_server(c, d)
    client().ok(putfh(f), setattr_(ANON, size=7))
    flags, said = [], []
    for seq in (1, 1, 2):
        got = read_compound(raw(c.conn, sequence(c.session.sessionid, seq, 3, 3), putfh(d),
                                lookup("l"), readlink()))
        flags.append(got.results[0].flags & 0x40)
        said.append(err(got.status))
    check(said, ["OK", "RETRY_UNCACHED_REP", "OK"])
    check(flags, [0x40, 0x40, 0], "SEQ4_STATUS_RECALLABLE_STATE_REVOKED")


def test_a_recall_not_obeyed_ends_in_a_fence(c, d):
    s, f, o, ds, fh = one_server(c, d)
    ds.write(fh, 0, b"0123456789")
    two, before = client(), revoked()
    began, watch = time.monotonic(), Watch(mds_pid(harness.THE))
    two.ok(putfh(f), setattr_(ANON, size=7))
    at_most, took = watch.took(), time.monotonic() - began
    check(0.8 < took and at_most < 2.5, True, f"took {took:.1f} s with a deadline of 1 s")
    check(ds.write(fh, 0, b"fenced").status, 13)
    check(revoked(), before + 1)
    c.ok(putrootfh())
    check(c.status_flags & 0x40, 0x40, "SEQ4_STATUS_RECALLABLE_STATE_REVOKED")
    gone = "DELEG_REVOKED", "ADMIN_REVOKED", "EXPIRED", "BAD_STATEID"
    check(err(c.ok(test_stateid(o.stateid)).statuses[0]) in gone, True)
    for one in (layoutget(o.stateid), layoutreturn(o.stateid)):
        c.no(gone, putfh(f), one)
    c.call(free_stateid((0, o.stateid[1])))
    c.ok(putrootfh())
    check(c.status_flags & 0x40, 0, "after FREE_STATEID")
    check(ds.write(lay(c, f, s).mirrors[0][0].fhs[0], 7, b"again").status, 0)
    check(two.ok(putfh(f), read(ANON, 0, 100)).data, b"0123456again")


def test_a_recall_follows_the_client_to_a_new_connection(c, d):
    s, f, o, ds, fh = one_server(c, d)
    c.drop()
    two = client()
    started = two.begin(putfh(f), setattr_(ANON, size=7))
    time.sleep(0.2)
    c.conns = [c.connection()]
    returns_when_recalled(c, f)
    check(first(c, "OK", bind_conn(c.session.sessionid, 7)).way in (2, 3), True)
    check(two.finish(started).status, 0)
    check(c.wait_callback("LAYOUTRECALL").stateid, (2, o.stateid[1]))
    c.ok(putrootfh())
    check(c.status_flags & 0x41, 0)


def test_a_recall_follows_the_client_to_a_new_session(c, d):
    s, f, o, ds, fh = one_server(c, d)
    c.ok(destroy_session(c.session.sessionid))
    two = client()
    started = two.begin(putfh(f), setattr_(ANON, size=7))
    time.sleep(0.2)
    returns_when_recalled(c, f)
    c.create_session()
    check(two.finish(started).status, 0)
    check(c.wait_callback("LAYOUTRECALL").stateid, (2, o.stateid[1]))


def test_a_lost_backchannel_is_told(c, d):
    c.drop()
    c.conns = [c.connection()]
    check(first(c, "OK", bind_conn(c.session.sessionid, 1)).way, 1)
    eventually(lambda: c.ok(putrootfh()) and c.status_flags & 0x201,
               what="SEQ4_STATUS_CB_PATH_DOWN")
    first(c, "OK", bind_conn(c.session.sessionid, 7))
    c.ok(putrootfh())
    check(c.status_flags & 0x201, 0)


def test_a_client_without_backchannel_is_told(c, d):
    one = client(flags=0)
    check(one.status_flags & 1, 1, "SEQ4_STATUS_CB_PATH_DOWN")
    one.create_session(flags=2)
    one.ok(putrootfh())
    check(one.status_flags & 1, 0)


def test_a_callback_uses_the_credential_of_the_session(c, d):
    one = client(sec=[u32(AUTH_NONE)])
    s, f = one.open(d, "f")
    o = lay(one, f, s)
    returns_when_recalled(one, f)
    c.ok(putfh(f), setattr_(ANON, size=7))
    one.wait_callback("LAYOUTRECALL")


def test_callbacks_of_a_4_1_session_are_4_1(c, d):
    one = client(minor=1)
    s, f, o, ds, fh = one_server(one, d)
    returns_when_recalled(one, f)
    c.ok(putfh(f), setattr_(ANON, size=7))
    one.wait_callback("LAYOUTRECALL")


def test_many_holders_are_all_recalled(c, d):
    _, f = c.open(d, "f")
    holders = [client() for _ in range(12)]
    for h in holders:
        lay(h, f, h.open(d, "f")[0])
        returns_when_recalled(h, f)
    c.ok(putfh(f), setattr_(ANON, size=7))
    for h in holders:
        h.wait_callback("LAYOUTRECALL")


def test_removing_a_file_takes_its_data_away(c, d):
    s, f, o, ds, fh = one_server(c, d)
    ds.write(fh, 0, b"data")
    returns_when_recalled(c, f)
    c.ok(putfh(f), close(s))
    two = client()
    two.ok(putfh(d), remove("f"))
    eventually(lambda: ds.write(fh, 0, b"x").status in (13, 70),
               what="the removal of the object")
    eventually(lambda: ds.read(fh, 0, 1).status == 70, what="the removal of the object")


def test_a_change_of_owner_recalls(c, d):
    s, f, o, ds, fh = one_server(c, d)
    returns_when_recalled(c, f)
    client().ok(putfh(f), setattr_(owner="1000", mode=0o600))
    c.wait_callback("LAYOUTRECALL")


def test_two_truncations_at_once_recall_each_other(c, d):
    two = client()
    s, f, o, ds, fh = one_server(c, d)
    s2, _ = two.open(d, "f")
    lay(two, f, s2)
    for one in (c, two):
        returns_when_recalled(one, f)
    before = revoked()
    calls = [(one, sid, n, one.begin(putfh(f), setattr_(sid, size=n))) for one, sid,
             n in ((c, s, 5), (two, s2, 9)) * 3]
    for one, sid, n, call in calls:
        if err(one.finish(call).status) == "DELAY":
            check(one.until(lambda got: err(got.status) != "DELAY", putfh(f),
                            setattr_(sid, size=n)).status, 0)
    check(revoked(), before)
    check(c.attrs(f, "size").size in (5, 9), True)
    check(ds.write(fh, 0, b"old").status, 13)


def test_a_restarted_clients_layouts_are_fenced(c, d):
    s, f, o, ds, fh = one_server(c, d)
    check(ds.write(fh, 0, b"x").status, 0)
    new, watch = eid(c, c.owner, b"restart."), Watch(*pids(harness.THE))
    first(c, "OK", create_session(new.clientid, new.seq))
    eventually(lambda: ds.write(fh, 0, b"y").status == 13, what="the fence of the old incarnation")
    check(watch.took() < 3, True, f"the fence took {watch.took():.1f} s")
    two = client()
    ok = lay(two, f, two.open(d, "f")[0])
    check(ds.write(ok.mirrors[0][0].fhs[0], 0, b"z").status, 0)


def test_garbage_in_answer_to_a_callback_does_no_harm(c, d):
    s, f, o, ds, fh = one_server(c, d)
    c._callback = lambda body: b"\0\0\0"
    two = client()
    two.ok(putfh(f), setattr_(ANON, size=7))
    check(ds.write(fh, 0, b"x").status, 13)
    two.ok(putrootfh())


def test_a_callback_that_fails_ends_in_a_fence(c, d):
    s, f, o, ds, fh = one_server(c, d)
    c.on_callback = lambda name, args: 10036  # BADXDR
    client().ok(putfh(f), setattr_(ANON, size=7))
    check(ds.write(fh, 0, b"x").status, 13)


if __name__ == "__main__":
    harness.main(globals(), parts=2, settings=CALM)
