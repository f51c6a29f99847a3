#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The metadata server over the wire alone: what RFC 8881, 7862, 8276 and 8435 say, with a real
cluster. Prints TAP.

A test gets a client and the filehandle of a directory of its own. A test whose name begins with
restart_ gets a cluster of its own.
"""
import contextlib
import json
import os
import random
import signal
import sys
import threading
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../wirelib"))
import harness  # noqa: E402
from harness import *  # noqa: E402,F403
from nfs41 import err, op  # noqa: E402
from steps import *  # noqa: E402,F403


# ---- RPC


def test_null_answers_with_every_flavour_it_knows(c, d):
    for cred in (NOBODY, auth_sys()):
        check(c.conn.rpc(0, cred=cred), b"")


def test_another_rpc_version_is_denied(c, d):
    for version in (0, 1, 3, 2**32 - 1):
        check(rejected(c.conn, 0, rpcvers=version), ("denied", 0, 2, 2))


def test_unknown_programs_are_unavailable(c, d):
    for program in (100005, 400122, 0, 2**32 - 1):
        check(rejected(c.conn, 0, prog=program), ("accepted", 1))


def test_other_program_versions_are_a_mismatch(c, d):
    for version in (0, 2, 3, 5):
        check(rejected(c.conn, 0, vers=version), ("accepted", 2, 4, 4))


def test_unknown_procedures_are_unavailable(c, d):
    for proc in (2, 3, 2**32 - 1):
        check(rejected(c.conn, proc), ("accepted", 3))


def test_unknown_flavours_are_denied(c, d):
    for flavor in (2, 3, 6, 7, 390003):
        why = rejected(c.conn, 1, compound_args([]), cred=(flavor, bytes(20)))
        check(why[:2], ("denied", 1), f"flavour {flavor}")
    check(c.conn.rpc(0), b"")


def test_bad_auth_sys_bodies_are_denied(c, d):
    seventeen = AUTH_SYS, u32(0) + opaque("m") + u32(0) + u32(0) + array([u32(1)] * 17)
    name = AUTH_SYS, u32(0) + opaque("m" * 256) + u32(0) + u32(0) + u32(0)
    longer = AUTH_SYS, auth_sys()[1] + u32(0)
    for cred in (seventeen, (AUTH_SYS, auth_sys()[1][:-4]), name, longer, (AUTH_SYS, b"")):
        check(rejected(c.conn, 1, compound_args([]), cred=cred), ("denied", 1, 1),
              repr(cred[1][:24]))


def test_a_frame_that_cannot_be_decoded_is_garbage(c, d):
    before = harness.THE.metric("weft_mds_garbage_total")
    args = compound_args([putrootfh()], tag=b"tag")
    bad = [b"", args[:3], args[:6], args[:10], args[:14], u32(2**31) + args[4:], u32(2**32 - 1)]
    for body in bad:
        check(rejected(c.conn, 1, body, cred=auth_sys()), ("accepted", 4), body.hex())
    check(harness.THE.metric("weft_mds_garbage_total"), before + len(bad))


def test_arguments_cut_short_are_badxdr(c, d):
    whole = compound_args([sequence(c.session.sessionid, 1)])
    for cut in (1, 4, 20, 31):
        try:
            got = read_compound(c.conn.rpc(1, whole[:-cut], auth_sys()))
            check(err(got.status), "BADXDR")
        except Rejected as e:
            check(e.why, ("accepted", 4))


def test_operands_that_run_past_the_end_are_badxdr(c, d):
    c.no("BADXDR", putrootfh(), op("LOOKUP", u32(2**32 - 1), b"abcd"))
    c.no("BADXDR", putrootfh(), op("GETATTR", u32(2**30)))
    c.no("BADXDR", op("PUTFH", u32(129), bytes(132)))
    c.no("BADXDR", putrootfh(), op("CREATE", u32(DIR)))


def test_fragments_make_one_record(c, d):
    xid = 77
    call = rpc_call(xid, 0, b"", NOBODY)
    for sizes in ([len(call)], [1] * len(call), [0, 3, 0, 0, len(call) - 3], [len(call), 0]):
        with c.conn.cond:
            c.conn.wanted.add(xid)
        at = 0
        for i, n in enumerate(sizes):
            c.conn.send_raw(u32(n | (0x80000000 if i == len(sizes) - 1 else 0)) + call[at:at + n])
            at += n
        check(c.conn.finish(xid), b"")


def test_calls_sent_together_are_all_answered(c, d):
    calls = []
    for xid in range(900, 930):
        c.conn.wanted.add(xid)
        record = rpc_call(xid, 0, b"", NOBODY)
        calls.append(u32(0x80000000 | len(record)) + record)
    stream = b"".join(calls)
    for at in range(0, len(stream), 37):
        c.conn.send_raw(stream[at:at + 37])
    for xid in range(900, 930):
        check(c.conn.finish(xid), b"")


def test_a_record_too_large_ends_its_connection_only(c, d):
    before = harness.THE.metric("weft_rpc_garbage_total")
    for head in (0x7fffffff, 0xffffffff, 0x80000000 | 1 << 24):
        conn = Conn(ADDR)
        with contextlib.suppress(OSError):
            conn.send_raw(u32(head) + bytes(1000))
        if not conn.is_closed():
            raise Failed(f"still open after a header of {head:#x}")
    check(harness.THE.metric("weft_rpc_garbage_total"), before + 3)
    check(c.conn.rpc(0), b"")


def test_fragments_without_end_are_bounded(c, d):
    conn = Conn(ADDR)
    with contextlib.suppress(OSError):
        for _ in range(40):
            conn.send_raw(u32(65536) + bytes(65536))
    if not conn.is_closed():
        raise Failed("2.5 MiB of one record were taken")


def test_bytes_that_are_no_rpc_do_no_harm(c, d):
    before = harness.THE.metric("weft_rpc_garbage_total")
    for record in (b"", u32(1), u32(1) + u32(2), u32(1) + u32(7) + bytes(40)):
        conn = Conn(ADDR)
        conn.send_record(record)
        if not conn.is_closed():
            raise Failed(f"still open after {record!r}")
    check(harness.THE.metric("weft_rpc_garbage_total"), before + 4)
    http = Conn(ADDR)
    http.send_raw(b"GET / HTTP/1.0\r\n\r\n")
    check(http.is_closed(), True)
    check(c.conn.rpc(0), b"")


def test_a_call_whose_header_is_cut_is_garbage(c, d):
    xid = 4711
    c.conn.wanted.add(xid)
    c.conn.send_record(rpc_call(xid, 0, b"", NOBODY)[:20])
    try:
        c.conn.finish(xid)
    except Rejected as e:
        return check(e.why, ("accepted", 4))
    raise Failed("the call was accepted")


def test_a_reply_to_no_call_does_not_disconnect(c, d):
    before = harness.THE.metric("weft_rpc_bad_replies_total")
    c.conn.send_record(u32(12345) + u32(1) + u32(0) + u32(0) + u32(0) + u32(0))
    c.conn.send_record(u32(12345) + u32(1))
    c.ok(putrootfh())
    check(harness.THE.metric("weft_rpc_bad_replies_total"), before + 2)


# ---- compounds


def test_minor_versions_0_and_3_are_a_mismatch_without_results(c, d):
    for minor in (0, 3, 4, 2**32 - 1):
        for ops in ([], [putrootfh(), getfh()]):
            got = c.conn.compound(*ops, minor=minor)
            check((err(got.status), got.results), ("MINOR_VERS_MISMATCH", []))


def test_minor_version_1_is_served(c, d):
    with client(minor=1) as one:
        check(one.ok(putrootfh(), getattr_("type")).attrs.type, DIR)


def test_the_tag_comes_back(c, d):
    for tag in (b"", b"a", b"a tag of some length", "h\u00e4\u2603".encode(), b"x" * 1000):
        check(c.call(putrootfh(), tag=tag).tag, tag)
        check(c.conn.compound(tag=tag).tag, tag)
        check(c.conn.compound(putrootfh(), minor=0, tag=tag).tag, tag)


def test_a_tag_is_utf8(c, d):
    """Section 16.2.4."""
    for tag in (b"\x7f", b"\xc2\x80", b"\xdf\xbf", b"\xe0\xa0\x80", b"\xed\x9f\xbf",
                b"\xee\x80\x80", b"\xef\xbf\xbd", b"\xf0\x90\x80\x80", b"\xf4\x8f\xbf\xbf"):
        check(err(c.call(putrootfh(), tag=tag).status), "OK", repr(tag))
    for tag in (b"\x80", b"\xbf", b"\xc0\xaf", b"\xc1\xbf", b"\xc2", b"a\xc2 ", b"\xe0\x80\x80",
                b"\xe0\x9f\xbf", b"\xe2\x98", b"\xed\xa0\x80", b"\xed\xbf\xbf", b"\xef\xbf\xbe",
                b"\xf0\x8f\xbf\xbf", b"\xf0\x9f\x98", b"\xf4\x90\x80\x80", b"\xf5\x80\x80\x80",
                b"\xf8\x88\x80\x80\x80", b"\xfe", b"\xff"):
        got = c.conn.compound(putrootfh(), tag=tag)
        check((err(got.status), got.tag, len(got.results)), ("INVAL", tag, 0), repr(tag))


def test_an_empty_compound_is_ok(c, d):
    got = c.conn.compound()
    check((got.status, got.results), (0, []))


def test_unknown_operations_are_illegal(c, d):
    for num in (0, 1, 2, 200, 10043, 10044, 2**32 - 1):  # 77 is LAYOUT_WCC
        got = c.no("OP_ILLEGAL", putrootfh(), op(num))
        check(got.num, 10044)


def test_operations_of_4_2_are_illegal_in_4_1(c, d):
    one = client(minor=1)
    stock = NUM["LAYOUTERROR"], NUM["LAYOUTSTATS"]  # the Linux client sends these in 4.1, too
    for num in set(range(59, 76)) - set(stock):
        check(one.no("OP_ILLEGAL", putrootfh(), op(num, bytes(200))).num, 10044)


def test_operations_that_4_1_dropped_are_not_supported(c, d):
    args = {"OPEN_CONFIRM": stateid(ANON) + u32(1), "RENEW": u64(c.clientid),
            "SETCLIENTID_CONFIRM": u64(1) + bytes(8), "SETCLIENTID": bytes(8) + opaque("id")
            + u32(1) + opaque("tcp") + opaque("127.0.0.1.0.1") + u32(1),
            "RELEASE_LOCKOWNER": u64(c.clientid) + opaque("o")}
    for name, body in args.items():
        check(c.no("NOTSUPP", putrootfh(), op(name, body)).num, NUM[name])


def test_operations_defined_and_not_served_are_not_supported(c, d):
    sid, fh = c.open(d, "f")
    both = stateid(sid) + stateid(sid)
    args = {"OPENATTR": boolean(False), "DELEGPURGE": u64(0),
            "GETDEVICELIST": u32(4) + u32(1) + u64(0) + bytes(8),
            "GET_DIR_DELEGATION": boolean(False) + bitmap([]) + bytes(24) + bitmap([]) + bitmap([]),
            "COPY_NOTIFY": stateid(sid) + u32(1) + opaque("n"), "CLONE": both + u64(0) * 3,
            "WRITE_SAME": stateid(sid) + u32(2) + u64(0) * 3 + u32(0) + u32(0) + u32(0)
            + opaque("")}
    for name, body in args.items():
        got = c.no("NOTSUPP", putfh(fh), savefh(), op(name, body))
        check(got.num, NUM[name])


def test_set_ssv_is_for_clients_that_have_one(c, d):
    """Section 18.47.3: INVAL, as SP4_SSV is granted to nobody."""
    c.no("INVAL", op("SET_SSV", opaque(bytes(32)) + opaque(bytes(32))))
    c.no("BADXDR", op("SET_SSV", opaque(bytes(32)) + u32(1000)))


# ---- client ids (RFC 8881, 18.35 and 18.50)


UPDATE, CONFIRMED, PNFS_MDS = 0x40000000, 0x80000000, 0x20000


def test_a_new_owner_gets_an_unconfirmed_clientid(c, d):
    a, b = eid(c, b"new a", b"verifier"), eid(c, b"new b", b"verifier")
    for got in (a, b):
        check(got.flags & ~0x103, PNFS_MDS)  # a pNFS metadata server, and not CONFIRMED_R
    if a.clientid == b.clientid:
        raise Failed("two owners, one clientid")
    check((a.major_id, a.minor_id, a.scope), (b.major_id, b.minor_id, b.scope))


def test_an_owner_asking_again_gets_its_confirmed_clientid(c, d):
    again = eid(c, c.owner, c.verifier)
    check(again.clientid, c.clientid)
    check(again.flags & CONFIRMED, CONFIRMED)
    check((again.major_id, again.scope), (c.eid.major_id, c.eid.scope))
    c.ok(putrootfh())
    check(again.seq, c.cs_seq, "the sequence that the next CREATE_SESSION must have")


def test_another_principal_with_state_in_its_way_is_refused(c, d):
    c.open(d, "f")
    eid(c, c.owner, c.verifier, want="CLID_INUSE", cred=USER)
    eid(c, c.owner, b"another.", want="CLID_INUSE", cred=USER)
    c.ok(putrootfh())


def test_another_principal_replaces_a_client_without_state(c, d):
    one = client()
    one.ok(destroy_session(one.session.sessionid))
    got = eid(c, one.owner, one.verifier, cred=USER)
    check((got.clientid != one.clientid, got.flags & CONFIRMED), (True, 0))


def test_an_unconfirmed_record_is_replaced(c, d):
    old = eid(c, b"replaced", b"verifier")
    for verifier, cred in ((b"verifier", None), (b"another.", None), (b"another.", USER)):
        new = eid(c, b"replaced", verifier, cred=cred)
        if new.clientid == old.clientid:
            raise Failed("the clientid stayed")
        first(c, "STALE_CLIENTID", create_session(old.clientid, old.seq))
        old = new


def test_a_restarted_client_loses_its_state_when_it_confirms(c, d):
    sid, fh = c.open(d, "f", deny=BOTH)
    new = eid(c, c.owner, b"restart.")
    check((new.clientid != c.clientid, new.flags & CONFIRMED), (True, 0))
    c.ok(putfh(fh), read(sid, 0, 1))
    other = client()
    other.no("SHARE_DENIED", putfh(d), open_("f"))
    first(c, "OK", create_session(new.clientid, new.seq))
    first(c, "BADSESSION", sequence(c.session.sessionid, 9, 1))
    first(c, "STALE_CLIENTID", create_session(c.clientid, c.cs_seq))
    other.until(lambda got: err(got.status) != "DELAY", putfh(d), open_("f", READ | NO_DELEG))
    other.ok(putfh(d), open_("f", READ | NO_DELEG))


def test_an_unconfirmed_restart_does_not_harm_the_old_client(c, d):
    eid(c, c.owner, b"restart.")
    again = eid(c, c.owner, c.verifier)
    check((again.clientid, again.flags & CONFIRMED), (c.clientid, CONFIRMED))
    c.ok(putrootfh())


def test_an_update_keeps_the_clientid(c, d):
    got = eid(c, c.owner, c.verifier, UPDATE)
    check((got.clientid, got.flags & CONFIRMED), (c.clientid, CONFIRMED))


def test_an_update_without_confirmed_record_is_noent(c, d):
    eid(c, b"nobody knows", b"verifier", UPDATE, "NOENT")
    old = eid(c, b"unconfirmed", b"verifier")
    eid(c, b"unconfirmed", b"verifier", UPDATE, "NOENT")
    first(c, "OK", create_session(old.clientid, old.seq))


def test_an_update_with_another_verifier_is_not_same(c, d):
    eid(c, c.owner, b"another.", UPDATE, "NOT_SAME")
    c.ok(putrootfh())


def test_an_update_by_another_principal_is_refused(c, d):
    eid(c, c.owner, c.verifier, UPDATE, "PERM", cred=USER)
    c.ok(putrootfh())


def test_exchange_id_flags_not_defined_for_requests_are_inval(c, d):
    for flag in (CONFIRMED, 0x8, 0x200, 0x1000, 0x01000000):
        eid(c, b"flags", b"verifier", flag, "INVAL")
    for flag in (0x1, 0x2, 0x100, PNFS_MDS, 0x10000, 0x40000):
        eid(c, b"flags %d" % flag, b"verifier", flag)


def test_exchange_id_arrays_have_limits(c, d):
    impl = opaque("d") + opaque("n") + nfstime((0, 0))
    base = b"verifier" + opaque("impl") + u32(0) + u32(0)
    first(c, "OK", op("EXCHANGE_ID", base, u32(0)))
    first(c, "OK", op("EXCHANGE_ID", base, array([impl])))
    first(c, "BADXDR", op("EXCHANGE_ID", base, array([impl, impl])))
    first(c, "BADXDR", op("EXCHANGE_ID", b"verifier", opaque(b"o" * 1025), u32(0), u32(0), u32(0)))
    first(c, "OK", op("EXCHANGE_ID", b"verifier", opaque(b"o" * 1024), u32(0), u32(0), u32(0)))
    first(c, "BADXDR", op("EXCHANGE_ID", b"verifier", opaque("how"), u32(0), u32(3), u32(0)))


def test_state_protection_by_the_machine_needs_gss(c, d):
    ops = bitmap([NUM["EXCHANGE_ID"]]) + bitmap([])
    first(c, "INVAL", op("EXCHANGE_ID", b"verifier", opaque("mach"), u32(0), u32(1), ops, u32(0)))


def test_exchange_id_without_sequence_stands_alone(c, d):
    first(c, "NOT_ONLY_OP", exchange_id(b"alone", b"verifier"), putrootfh())


def test_a_clientid_in_use_is_not_destroyed(c, d):
    c.open(d, "f")
    first(c, "CLIENTID_BUSY", destroy_clientid(c.clientid))
    c.ok(putrootfh())


def test_destroying_a_clientid(c, d):
    one = client()
    one.ok(destroy_session(one.session.sessionid))
    first(c, "OK", destroy_clientid(one.clientid))
    first(c, "STALE_CLIENTID", destroy_clientid(one.clientid))
    first(c, "STALE_CLIENTID", create_session(one.clientid, one.cs_seq))
    first(c, "STALE_CLIENTID", destroy_clientid(MAX64))
    unconfirmed = eid(c, b"never confirmed", b"verifier")
    c.ok(destroy_clientid(unconfirmed.clientid))
    check(eid(c, one.owner, one.verifier).flags & CONFIRMED, 0)


def test_destroy_clientid_without_sequence_stands_alone(c, d):
    first(c, "NOT_ONLY_OP", destroy_clientid(c.clientid), putrootfh())


# ---- sessions (18.36, 18.37, 18.46)


def test_create_session_is_replayed_byte_for_byte(c, d):
    clientid, seq = confirmed(c, "replay")
    one = raw(c.conn, create_session(clientid, seq))
    check(raw(c.conn, create_session(clientid, seq)), one)
    check(raw(Conn(ADDR), create_session(clientid, seq)), one)
    two = first(c, "OK", create_session(clientid, seq + 1))
    if two.sessionid == read_compound(one).results[0].sessionid:
        raise Failed("two sessions with one id")
    check(two.seq, seq + 1)
    check(read_compound(raw(c.conn, create_session(clientid, seq + 1))).results[0].sessionid,
          two.sessionid)


def test_create_session_out_of_order_is_misordered(c, d):
    clientid, seq = confirmed(c, "misordered")
    for wrong in (seq - 1, seq + 1, seq + 2, seq + 2**31):
        first(c, "SEQ_MISORDERED", create_session(clientid, wrong))
    first(c, "OK", create_session(clientid, seq))
    first(c, "SEQ_MISORDERED", create_session(clientid, seq + 2))
    first(c, "SEQ_MISORDERED", create_session(clientid, seq - 1))


def test_create_session_errors(c, d):
    first(c, "STALE_CLIENTID", create_session(0, 1))
    clientid, seq = confirmed(c, "errors")
    first(c, "NOT_ONLY_OP", create_session(clientid, seq), putrootfh())
    first(c, "CLID_INUSE", create_session(clientid, seq), cred=USER)
    two = channel(**FORE)[:-4] + array([u32(1), u32(1)])
    first(c, "BADXDR", op("CREATE_SESSION", u64(clientid), u32(seq), u32(0), two, channel(**BACK),
                          u32(1), u32(0)))


def test_create_session_with_unknown_flags_is_inval(c, d):
    clientid, seq = confirmed(c, "flags")
    first(c, "INVAL", create_session(clientid, seq, flags=8))


def test_create_session_clamps_the_fore_channel_down(c, d):
    clientid, seq = confirmed(c, "clamp")
    huge = dict(maxreq=2**32 - 1, maxresp=2**32 - 1, cached=2**32 - 1, ops=2**32 - 1,
                reqs=2**32 - 1, pad=4096)
    got = first(c, "OK", create_session(clientid, seq, fore=huge,
                                        back=dict(ops=3, reqs=5, maxreq=8192))).fore
    for name in ("maxreq", "maxresp", "cached", "ops", "reqs"):
        if not 0 < getattr(got, name) < 2**24:
            raise Failed(f"{name} {getattr(got, name)}")
    check(got.pad, 0)
    if got.ops < 8 or got.maxreq < 1 << 20 or got.maxresp < 1 << 20:
        raise Failed(f"too little for a stock client: {got}")


def test_create_session_raises_nothing(c, d):
    clientid, seq = confirmed(c, "small")
    small = dict(maxreq=2000, maxresp=2100, cached=1000, ops=9, reqs=3)
    got = first(c, "OK", create_session(clientid, seq, fore=small,
                                        back=dict(maxreq=900, maxresp=901, cached=0))).fore
    for name, value in small.items():
        if not 0 < getattr(got, name) <= value:
            raise Failed(f"{name} {getattr(got, name)}, asked {value}")


def test_create_session_leaves_the_backchannel_counts_alone(c, d):
    for ops, reqs in ((2, 1), (2, 16), (7, 64)):
        clientid, seq = confirmed(c, "back")
        got = first(c, "OK", create_session(clientid, seq, back=dict(ops=ops, reqs=reqs))).back
        check((got.ops, got.reqs), (ops, reqs))
        if (got.maxreq > BACK["maxreq"] or got.maxresp > BACK["maxresp"]
            or got.cached > BACK["cached"]):
            raise Failed(f"raised: {got}")


def test_create_session_with_impossible_sizes_is_too_small(c, d):
    clientid, seq = confirmed(c, "tiny")
    for tiny in (dict(maxresp=10), dict(maxreq=10)):
        first(c, "TOOSMALL", create_session(clientid, seq, fore=tiny))


def test_create_session_grants_what_it_can(c, d):
    clientid, seq = confirmed(c, "grants")
    check(first(c, "OK", create_session(clientid, seq, flags=0)).flags, 0)
    check(first(c, "OK", create_session(clientid, seq + 1, flags=7)).flags & ~1, 2)  # no RDMA here
    check(first(c, "OK", create_session(clientid, seq + 2, flags=2)).flags, 2)


def test_create_session_inside_a_session(c, d):
    clientid, seq = confirmed(c, "inside")
    got = c.ok(create_session(clientid, seq))
    check(got.sessionid != c.session.sessionid, True)
    check(first(c, "OK", create_session(clientid, seq)).sessionid, got.sessionid)


def test_the_first_operation_must_be_one_that_may(c, d):
    for one in (putrootfh(), getfh(), getattr_("type"), reclaim_complete(), test_stateid(),
                open_("x")):
        first(c, "OP_NOT_IN_SESSION", one)
    first(c, "OP_NOT_IN_SESSION", putrootfh(), sequence(c.session.sessionid, 1))


def test_a_second_sequence_is_misplaced(c, d):
    c.no("SEQUENCE_POS", sequence(c.session.sessionid, 1))
    c.no("SEQUENCE_POS", putrootfh(), sequence(c.session.sessionid, 1))


def test_unknown_sessions_are_bad(c, d):
    for wrong in (bytes(16), b"\xff" * 16, c.session.sessionid[:-1] + b"\xfe"):
        first(c, "BADSESSION", sequence(wrong, 1))
        first(c, "BADSESSION", destroy_session(wrong))
        first(c, "BADSESSION", bind_conn(wrong, 1))


def test_slots_beyond_the_last_are_bad(c, d):
    for slot in (c.session.fore.reqs, 2**32 - 1):
        first(c, "BADSLOT", sequence(c.session.sessionid, 1, slot, slot))


def test_sequence_numbers_out_of_order_change_nothing(c, d):
    sid = c.session.sessionid
    for wrong in (0, 2, 3, 2**32 - 1):
        if wrong:  # 0 on a slot never used repeats nothing
            first(c, "SEQ_MISORDERED", sequence(sid, wrong, 5, 5), putrootfh())
    first(c, "OK", sequence(sid, 1, 5, 5), putrootfh())
    for wrong in (0, 3, 2**31, 2**32 - 1):
        first(c, "SEQ_MISORDERED", sequence(sid, wrong, 5, 5), putrootfh())
    first(c, "OK", sequence(sid, 2, 5, 5), putrootfh())


def test_sequence_tells_all_slots(c, d):
    got = first(c, "OK", sequence(c.session.sessionid, 1, 7, 7))
    check((got.highest, got.target, got.flags),
          (c.session.fore.reqs - 1, c.session.fore.reqs - 1, 0))


def test_a_cached_reply_is_replayed_byte_for_byte(c, d):
    ops = (sequence(c.session.sessionid, 1, 3, 3, True), putfh(d), create(DIR, "once", mode=0o700),
           getfh(), getattr_("fileid"))
    one = raw(c.conn, *ops)
    check(read_compound(one).status, 0)
    check(raw(c.conn, *ops), one)
    c.ok(putfh(d), remove("once"))
    check(raw(Conn(ADDR), *ops), one, "over a new connection")
    c.no("NOENT", putfh(d), lookup("once"))


def test_a_cached_failure_is_replayed(c, d):
    ops = sequence(c.session.sessionid, 1, 3, 3, True), putfh(d), lookup("later")
    one = raw(c.conn, *ops)
    c.mkdir(d, "later")
    check(raw(c.conn, *ops), one)


def test_a_replay_that_was_not_to_be_cached_is_told(c, d):
    ops = sequence(c.session.sessionid, 1, 3, 3), putfh(d), create(DIR, "once", mode=0o700), getfh()
    one = raw(c.conn, *ops)
    two = raw(c.conn, *ops)
    if two != one:
        got = read_compound(two)
        check((err(got.status), len(got.results)), ("RETRY_UNCACHED_REP", 2))
    alone = sequence(c.session.sessionid, 1, 4, 4)
    check(raw(c.conn, alone), raw(c.conn, alone), "a lone SEQUENCE is always cached")


def test_another_request_in_a_used_slot_is_a_false_retry(c, d):
    sid = c.session.sessionid
    first(c, "OK", sequence(sid, 1, 3, 3, True), putfh(d), create(DIR, "x"))
    first(c, "SEQ_FALSE_RETRY", sequence(sid, 1, 3, 3, True), putfh(d), remove("x"), getfh())
    c.ok(putfh(d), lookup("x"))
    first(c, "OK", sequence(sid, 2, 3, 3, True), putfh(d), remove("x"))


def test_a_replay_by_another_user_does_not_get_the_reply(c, d):
    ops = (sequence(c.session.sessionid, 1, 3, 3, True), putfh(d),
           create(DIR, "secret", mode=0o700), getfh())
    first(c, "OK", *ops)
    got = c.conn.compound(*ops, cred=USER)
    check(err(got.status), "SEQ_FALSE_RETRY")


def test_too_many_operations(c, d):
    n = c.session.fore.ops
    first(c, "OK", sequence(c.session.sessionid, 1, 3, 3), *[putrootfh()] * (n - 1))
    got = first(c, "TOO_MANY_OPS", sequence(c.session.sessionid, 2, 3, 3), *[putrootfh()] * n)
    check(got.op, "SEQUENCE")
    first(c, "OK", sequence(c.session.sessionid, 2, 3, 3), putrootfh())


def test_a_request_larger_than_agreed(c, d):
    small = client(fore=dict(maxreq=1500))
    s, fh = small.open(d, "f")
    small.ok(putfh(fh), write(s, 0, bytes(1000)))
    check(err(small.call(putfh(fh), write(s, 0, bytes(2000))).status), "REQ_TOO_BIG")
    small.ok(putrootfh())


def test_a_reply_larger_than_agreed(c, d):
    small = client(fore=dict(maxresp=1000, cached=400))
    small.ok(putfh(d), create(LNK, "l", "x" * 3000), putfh(d), create(LNK, "m", "y" * 600))
    got = small.call(putfh(d), lookup("l"), readlink())
    check((err(got.status), len(got.results)), ("REP_TOO_BIG", 4))
    got = small.call(putfh(d), lookup("m"), readlink(), cache=True)
    check((err(got.status), len(got.results)), ("REP_TOO_BIG_TO_CACHE", 4))
    check(len(small.ok(putfh(d), lookup("m"), readlink()).link), 600)


def test_a_mutation_whose_reply_cannot_be_sent_is_not_done(c, d):
    small = client(fore=dict(maxresp=1000, cached=400))
    small.ok(putfh(d), create(LNK, "l", "x" * 1000))
    for _ in range(2):
        got = small.call(putfh(d), lookup("l"), readlink(), putfh(d), create(DIR, "x"))
        check(err(got.status), "REP_TOO_BIG")
    c.no("NOENT", putfh(d), lookup("x"))


def test_several_connections_serve_one_session(c, d):
    conns = [c.conn] + [c.connection() for _ in range(3)]
    c.conns += conns[1:]
    started = [c.begin(putrootfh(), getattr_("type"), conn=conns[i % 4]) for i in range(12)]
    for one in reversed(started):
        check(c.finish(one).status, 0)


def test_slots_run_beside_one_another(c, d):
    started = [c.begin(putfh(d), create(DIR, f"n{i}")) for i in range(c.session.fore.reqs)]
    check([c.finish(s).status for s in started], [0] * len(started))
    check(len(c.readdir_all(d)), len(started))


def test_binding_a_connection(c, d):
    sid = c.session.sessionid
    for way, want in ((1, (1,)), (2, (2, 3)), (3, (1, 3)), (7, (2, 3))):
        conn = c.connection()
        c.conns.append(conn)
        got = first(conn, "OK", bind_conn(sid, way))
        check((got.sessionid, got.way in want, got.rdma), (sid, True, False),
              f"way {way} gave {got.way}")
    conn = c.connection()
    c.conns.append(conn)
    check(first(conn, "OK", bind_conn(sid, 3)).way, 3)
    first(conn, "NOT_ONLY_OP", bind_conn(sid, 1), putrootfh())
    first(conn, "BADXDR", bind_conn(sid, 4))
    c.no("NOT_ONLY_OP", bind_conn(sid, 1))


def test_a_session_is_destroyed(c, d):
    one = client()
    sid = one.session.sessionid
    first(one, "NOT_ONLY_OP", destroy_session(sid), putrootfh())
    first(one, "OK", destroy_session(sid))
    first(one, "BADSESSION", sequence(sid, 5))
    first(one, "BADSESSION", destroy_session(sid))
    one.create_session()
    one.ok(putrootfh())


def test_ids_alone_destroy_nothing(c, d):
    """A stranger has read the ids off the wire. Sections 18.37.3 and 18.50.3 leave open who may use
    them where no machine credential says it."""
    one, other = client(), client(source=("127.0.0.2", 0))
    sid = one.session.sessionid
    for conn, cred in ((other.conn, None), (one.conn, NOBODY)):
        first(conn, "CONN_NOT_BOUND_TO_SESSION", destroy_session(sid), cred=cred)
        first(conn, "WRONG_CRED", destroy_clientid(one.clientid), cred=cred)
    other.no("CONN_NOT_BOUND_TO_SESSION", destroy_session(sid))
    other.no("WRONG_CRED", destroy_clientid(one.clientid))
    one.ok(putrootfh(), destroy_session(sid))
    first(other.conn, "WRONG_CRED", destroy_clientid(one.clientid))
    unconfirmed = eid(c, b"never confirmed, elsewhere", b"verifier")
    first(other.conn, "WRONG_CRED", destroy_clientid(unconfirmed.clientid))
    for clientid in (one.clientid, unconfirmed.clientid):
        first(Conn(ADDR), "OK", destroy_clientid(clientid), cred=USER)


def test_a_session_with_a_connection_is_destroyed_on_one_of_its_own(c, d):
    """Section 18.37.3. Where the session has no connection left, any connection of the client will
    do, as when a client unmounts after a long while."""
    one, rogue = client(), Conn(ADDR)
    sid = one.session.sessionid
    first(rogue, "CONN_NOT_BOUND_TO_SESSION", destroy_session(sid))
    first(rogue, "OK", sequence(sid, 1, 3))
    first(rogue, "OK", destroy_session(sid))
    one.create_session()
    sid = one.session.sessionid
    first(rogue, "CONN_NOT_BOUND_TO_SESSION", destroy_session(sid))
    one.conn.close()
    eventually(lambda: err(rogue.compound(destroy_session(sid)).status) == "OK",
               what="the end of its connection")
    first(rogue, "BADSESSION", sequence(sid, 2, 3))
    rogue.close()


def test_a_session_made_elsewhere_is_destroyed_from_there(c, d):
    """One client with two addresses."""
    one = client()
    conn = Conn(ADDR, source=("127.0.0.2", 0))
    got = first(conn, "OK", create_session(one.clientid, one.cs_seq))
    first(conn, "CONN_NOT_BOUND_TO_SESSION", destroy_session(one.session.sessionid))
    first(conn, "OK", destroy_session(got.sessionid))
    got = first(conn, "OK", create_session(one.clientid, one.cs_seq + 1))
    first(one, "OK", sequence(got.sessionid, 1), destroy_session(got.sessionid))
    conn.close()


def test_a_session_destroys_itself_only_at_the_end(c, d):
    sid = c.session.sessionid
    got = c.call(destroy_session(sid), putrootfh())
    check((err(got.status), len(got.results)), ("NOT_ONLY_OP", 2))
    c.ok(putrootfh(), destroy_session(sid))
    first(c, "BADSESSION", sequence(sid, 5))


def test_state_survives_its_session(c, d):
    s, fh = c.open(d, "f")
    c.ok(destroy_session(c.session.sessionid))
    c.create_session()
    c.ok(putfh(fh), write(s, 0, b"x"))
    c.ok(putfh(fh), close(s))


def test_reclaim_complete_comes_once(c, d):
    one = client(reclaim=False)
    one.ok(reclaim_complete())
    one.no("COMPLETE_ALREADY", reclaim_complete())
    one.no("NOFILEHANDLE", reclaim_complete(True))
    one.ok(putrootfh(), reclaim_complete(True))


def test_backchannel_ctl_is_taken(c, d):
    sys_cred = u32(AUTH_SYS) + u32(0) + opaque("test") + u32(0) + u32(0) + u32(0)
    c.ok(op("BACKCHANNEL_CTL", u32(CB_PROGRAM), array([sys_cred])))
    c.no("BADXDR", op("BACKCHANNEL_CTL", u32(CB_PROGRAM), array([u32(77)])))


def test_backchannel_ctl_counts_from_the_next_callback_on(c, d):
    """Section 18.33.3: the program, and the credential, of the connection that is bound already."""
    s, f = c.open(d, "f")
    two = client()

    def recalled():
        lay(c, f, s)
        del c.cb_calls[:]
        returns_when_recalled(c, f)
        two.until(lambda got: err(got.status) != "DELAY", putfh(f), setattr_(ANON, size=7))
        c.wait_callback("LAYOUTRECALL")
        return set(c.cb_calls)
    check(recalled(), {(CB_PROGRAM, (0, 0))})
    for program, ids in ((CB_PROGRAM + 5, (1234, 4321)), (CB_PROGRAM + 6, None),
                         (CB_PROGRAM, (0, 7))):
        sec = (u32(AUTH_SYS) + u32(0) + opaque("test") + u32(ids[0]) + u32(ids[1]) + u32(0)
               if ids else u32(0))
        c.cb_program, c.cb_ids = program, ids
        c.ok(op("BACKCHANNEL_CTL", u32(program), array([sec])))
        check(recalled(), {(program, ids)})


@brief
def test_the_lease_ends_and_is_forgotten(c, d):
    """A client that holds nothing is gone some leases after its last word."""
    one = client()
    time.sleep(5.5)
    check(err(one.conn.compound(sequence(one.session.sessionid, 2, 0, 0)).status), "BADSESSION")


# ---- filehandles and names


def test_operations_that_need_a_filehandle_say_so(c, d):
    need = [getfh(), savefh(), lookup("x"), lookupp(), getattr_("type"), setattr_(mode=0o700),
            access(1), create(DIR, "x"), remove("x"), readlink(), readdir(), open_("x"),
            close(ANON), read(ANON, 0, 1), write(ANON, 0, b"x"), commit(), verify(type=REG),
            nverify(type=REG), layoutget(ANON), layoutreturn(), layoutcommit(ANON), getxattr("x"),
            setxattr("x", "y"), listxattrs(), removexattr("x"), open_downgrade(ANON, READ),
            secinfo("x"), secinfo_no_name(), rename("x", "y"), link("x"), layouterror(ANON, [])]
    for one in need:
        got = c.no("NOFILEHANDLE", one)
        check(got.num, one.num)


def test_the_saved_filehandle_is_needed_too(c, d):
    for one in (restorefh(), rename("a", "b"), link("a")):
        c.no("NOFILEHANDLE", putfh(d), one)


def test_savefh_and_restorefh(c, d):
    got = c.ok(putfh(d), savefh(), putrootfh(), getfh(), restorefh(), getfh())
    check((got.fh, got.all[3].fh != d), (d, True))


def test_secinfo_consumes_the_filehandle(c, d):
    c.mkdir(d, "x")
    c.no("NOFILEHANDLE", putfh(d), secinfo("x"), getfh())
    c.no("NOFILEHANDLE", putfh(d), secinfo_no_name(), getfh())
    check(AUTH_SYS in c.ok(putfh(d), secinfo("x")).flavors, True)
    check(AUTH_SYS in c.ok(putfh(d), secinfo_no_name(1)).flavors, True)
    c.no("NOENT", putfh(d), secinfo("y"))
    c.no("NOENT", putrootfh(), secinfo_no_name(1))


def test_the_public_filehandle_is_the_root(c, d):
    check(c.ok(op("PUTPUBFH"), getfh()).fh, c.root())


def test_filehandles_that_never_were_are_bad(c, d):
    _, fh = c.open(d, "f")
    bad = [b"", b"x", bytes(len(fh)), b"\xff" * len(fh), b"\xff" * 128, fh[:-1], fh + b"\0"]
    bad += [fh[:i] + bytes([fh[i] ^ 1]) + fh[i + 1:] for i in range(len(fh))]
    for one in bad:
        c.no("BADHANDLE", putfh(one))
    c.no("BADXDR", op("PUTFH", opaque(b"x" * 129)))


def test_a_removed_files_handle_is_stale(c, d):
    s, fh = c.open(d, "f")
    sub = c.mkdir(d, "sub")
    c.ok(putfh(fh), close(s), putfh(d), remove("f"), remove("sub"))
    for one in (fh, sub):
        got = c.call(putfh(one), getattr_("type"))
        check(err(got.status), "STALE")


def test_filehandles_are_the_same_on_every_way(c, d):
    _, fh = c.open(d, "f")
    c.ok(putfh(fh), savefh(), putfh(d), link("g"))
    for name in ("f", "g"):
        check(c.ok(putfh(d), lookup(name), getfh()).fh, fh)
    entries = c.readdir_all(d, ("filehandle", "fileid"))
    check([e.attrs.filehandle for e in entries], [fh, fh])


BAD_NAMES = [(b"", "INVAL"), (b".", "BADNAME"), (b"..", "BADNAME"), (b"a/b", "BADCHAR"),
             (b"/", "BADCHAR"), (b"a\0b", "BADCHAR"), (b"n" * 256, "NAMETOOLONG"),
             (b"n" * 5000, "NAMETOOLONG")]


def test_names_that_cannot_be(c, d):
    _, fh = c.open(d, "f")
    for name, want in BAD_NAMES:
        for one in (lookup(name), create(DIR, name), create(LNK, name, "x"), remove(name),
                    secinfo(name), open_(claim_null(name)),
                    open_(claim_null(name), BOTH | NO_DELEG, how=UNCHECKED, attrs={"mode": 0o644})):
            c.no(want, putfh(d), one)
        c.no(want, putfh(fh), savefh(), putfh(d), link(name))
        c.no(want, putfh(d), savefh(), rename("f", name))
        c.no(want, putfh(d), savefh(), rename(name, "g"))


def test_names_of_255_bytes_and_strange_ones_are_kept(c, d):
    names = [b"n" * 255, "\u00e4\u00f6\u2603".encode(), b" ", b"...", b"a\nb", b"-", b"A", b"a",
             b"\x01", b"*?"]
    for name in names:
        c.ok(putfh(d), create(DIR, name, mode=0o755))
        c.no("EXIST", putfh(d), create(DIR, name, mode=0o755))
    check(sorted(e.name for e in c.readdir_all(d)), sorted(names))


def test_lookup_errors(c, d):
    _, fh = c.open(d, "f")
    link_fh = c.ok(putfh(d), create(LNK, "l", "f"), getfh()).fh
    c.no("NOENT", putfh(d), lookup("no"))
    c.no("NOTDIR", putfh(fh), lookup("x"))
    c.no("SYMLINK", putfh(link_fh), lookup("x"))
    c.no("NOENT", putrootfh(), lookupp())
    c.no("NOTDIR", putfh(fh), lookupp())
    c.no(("NOTDIR", "SYMLINK"), putfh(link_fh), lookupp())
    sub = c.mkdir(d, "sub")
    check(c.ok(putfh(sub), lookupp(), getfh()).fh, d)


def test_a_directory_moved_has_a_new_parent(c, d):
    a, b = c.mkdir(d, "a"), c.mkdir(d, "b")
    x = c.mkdir(a, "x")
    c.ok(putfh(a), savefh(), putfh(b), rename("x", "y"))
    check(c.ok(putfh(x), lookupp(), getfh()).fh, b)
    check((c.attrs(a, "numlinks").numlinks, c.attrs(b, "numlinks").numlinks), (2, 3))


# ---- CREATE, REMOVE, RENAME, LINK


def test_create_of_every_type(c, d):
    for kind, more in ((DIR, {}), (LNK, {"link": "a/b/c"}), (BLK, {"dev": (8, 1)}),
                       (CHR, {"dev": (1, 3)}), (SOCK, {}), (FIFO, {})):
        r = c.ok(putfh(d), create(kind, f"t{kind}", mode=0o640, **more), getfh(),
                 getattr_("type", "mode", "rawdev", "size"))
        check((r.attrs.type, r.attrs.mode), (kind, 0o777 if kind == LNK else 0o640))
        check(r.attrs.rawdev, more.get("dev", (0, 0)))
        check(r.all[1].attrset, set() if kind == LNK else {ATTR["mode"]})
        if kind == LNK:
            check((c.ok(putfh(r.all[2].fh), readlink()).link, r.attrs.size), (b"a/b/c", 5))
        c.no("EXIST", putfh(d), create(kind, f"t{kind}", mode=0o640, **more))


def test_create_makes_no_regular_files(c, d):
    for kind in (REG, ATTRDIR, NAMEDATTR):
        c.no("BADTYPE", putfh(d), create(kind, "x"))
    c.no(("BADTYPE", "BADXDR"), putfh(d), create(77, "x"))
    c.no("INVAL", putfh(d), create(LNK, "x", ""))
    check(c.readdir_all(d), [])


def test_create_sets_what_it_says(c, d):
    r = c.ok(putfh(d),
             create(DIR, "x", mode=0o1751, owner="7", owner_group="8", time_modify_set=(5, 6),
                    time_access_set=(3, 4)),
             getattr_("mode", "owner", "owner_group", "time_modify", "time_access"))
    check(r.all[1].attrset,
          {ATTR[n] for n in ("mode", "owner", "owner_group", "time_modify_set", "time_access_set")})
    a = r.attrs
    check((a.mode, a.owner, a.owner_group, a.time_modify, a.time_access),
          (0o1751, "7", "8", (5, 6), (3, 4)))


def test_create_errors(c, d):
    _, fh = c.open(d, "f")
    c.no("NOTDIR", putfh(fh), create(DIR, "x"))
    c.no("ATTRNOTSUPP", putfh(d), create(DIR, "x", raw={14: u32(0)}))
    c.no("INVAL", putfh(d), create(DIR, "x", raw={1: u32(1)}))
    c.ok(putfh(d), setattr_(mode=0o777))
    for kind in (BLK, CHR):
        c.no("PERM", putfh(d), create(kind, "dev", dev=(1, 2), mode=0o600), cred=USER)
    check([e.name for e in c.readdir_all(d)], [b"f"])


def test_change_info_is_the_directorys_change(c, d):
    before = c.attrs(d, "change").change
    for make in (create(DIR, "a", mode=0o755), create(LNK, "b", "x"), remove("a")):
        r = c.ok(putfh(d), make, putfh(d), getattr_("change"))
        info = r.all[1].cinfo
        check((info.atomic, info.before, info.after), (True, before, r.attrs.change))
        if info.after <= before:
            raise Failed("the change attribute stayed")
        before = info.after
    r = c.ok(putfh(d), open_("f", BOTH | NO_DELEG, how=GUARDED, attrs={"mode": 0o600}), putfh(d),
             getattr_("change"))
    check((r.all[1].cinfo.before, r.all[1].cinfo.after), (before, r.attrs.change))
    r = c.ok(putfh(d), open_("f", READ | NO_DELEG))
    check(r.cinfo.before, r.cinfo.after, "an OPEN that makes nothing")


def test_remove_rules(c, d):
    s, fh = c.open(d, "f")
    sub = c.mkdir(d, "sub")
    c.mkdir(sub, "x")
    c.no("NOENT", putfh(d), remove("no"))
    c.no("NOTEMPTY", putfh(d), remove("sub"))
    c.no("NOTDIR", putfh(fh), remove("x"))
    c.ok(putfh(sub), remove("x"), putfh(d), remove("sub"))
    c.ok(putfh(d), remove("f"))
    check(c.readdir_all(d), [])


def test_a_file_removed_while_open_lives_until_close(c, d):
    s, fh = c.open(d, "f")
    c.ok(putfh(fh), write(s, 0, b"still here", FILE_SYNC))
    c.ok(putfh(d), remove("f"))
    got = c.ok(putfh(fh), read(s, 0, 100), getattr_("numlinks"))
    check((got.all[1].data, got.attrs.numlinks), (b"still here", 0))
    c.ok(putfh(fh), close(s))
    check(err(c.call(putfh(fh), getattr_("type")).status), "STALE")


def test_rename_replaces(c, d):
    _, a = c.open(d, "a")
    s, b = c.open(d, "b")
    c.ok(putfh(b), close(s))
    before = c.attrs(d, "change").change
    got = c.ok(putfh(d), savefh(), rename("a", "b"))
    check((got.source.before, got.source.after), (got.target.before, got.target.after))
    check((got.source.before, got.source.after), (before, c.attrs(d, "change").change))
    check(c.ok(putfh(d), lookup("b"), getfh()).fh, a)
    c.no("NOENT", putfh(d), lookup("a"))
    check(err(c.call(putfh(b), getattr_("type")).status), "STALE")


def test_rename_rules(c, d):
    _, f = c.open(d, "f")
    a, b = c.mkdir(d, "a"), c.mkdir(d, "b")
    inner = c.mkdir(a, "inner")
    c.no("EXIST", putfh(d), savefh(), rename("f", "a"))
    c.no("EXIST", putfh(d), savefh(), rename("a", "f"))
    c.no("EXIST", putfh(d), savefh(), rename("b", "a"))  # not empty
    c.no("NOENT", putfh(d), savefh(), rename("no", "x"))
    c.no("INVAL", putfh(d), savefh(), putfh(a), rename("a", "x"))
    c.no("INVAL", putfh(d), savefh(), putfh(inner), rename("a", "x"))
    c.no("NOTDIR", putfh(f), savefh(), putfh(d), rename("x", "y"))
    c.no("NOTDIR", putfh(d), savefh(), putfh(f), rename("a", "y"))
    c.ok(putfh(a), savefh(), putfh(d), rename("inner", "b"))  # onto an empty directory
    check(c.ok(putfh(d), lookup("b"), getfh()).fh, inner)
    check(err(c.call(putfh(b), getattr_("type")).status), "STALE")


def test_rename_to_itself_changes_nothing(c, d):
    _, f = c.open(d, "f")
    c.ok(putfh(f), savefh(), putfh(d), link("g"))
    before = c.attrs(d, "change").change
    for old, new in (("f", "f"), ("f", "g"), ("g", "f")):
        got = c.ok(putfh(d), savefh(), rename(old, new))
        check((got.source.before, got.source.after), (before, before))
    check(sorted(e.name for e in c.readdir_all(d)), [b"f", b"g"])


def test_link_rules(c, d):
    _, f = c.open(d, "f")
    before = c.attrs(f, "change").change
    got = c.ok(putfh(f), savefh(), putfh(d), link("g"))
    check(got.cinfo.after, c.attrs(d, "change").change)
    a = c.attrs(f, "numlinks", "change")
    check((a.numlinks, a.change > before), (2, True))
    c.no("EXIST", putfh(f), savefh(), putfh(d), link("g"))
    c.no("NOTDIR", putfh(f), savefh(), putfh(f), link("h"))
    c.no("ISDIR", putfh(d), savefh(), putfh(d), link("h"))
    c.ok(putfh(d), remove("f"))
    check(c.attrs(f, "numlinks").numlinks, 1)


def test_readlink_of_what_is_no_link(c, d):
    _, f = c.open(d, "f")
    for fh in (f, d):
        c.no(("INVAL", "WRONG_TYPE"), putfh(fh), readlink())
    c.ok(putfh(d), create(LNK, "l", b"x" * 4095))
    check(len(c.ok(putfh(d), lookup("l"), readlink()).link), 4095)
    c.no("NAMETOOLONG", putfh(d), create(LNK, "m", b"x" * 70000))


# ---- attributes


def test_supported_attributes_are_exactly_what_comes(c, d):
    _, f = c.open(d, "f")
    link_fh = c.ok(putfh(d), create(LNK, "l", "x"), getfh()).fh
    fifo = c.ok(putfh(d), create(FIFO, "p"), getfh()).fh
    for fh in (c.root(), d, f, link_fh, fifo):
        names = all_readable(c, fh)
        check(c.ok(putfh(fh), getattr_(*names)).attrs.bits, names)
        check(c.ok(putfh(fh), getattr_(*(set(range(100)) - WRITE_ONLY))).attrs.bits, names)
        for one in names:
            check(c.ok(putfh(fh), getattr_(one)).attrs.bits, {one})


def test_required_attributes_and_those_a_client_needs_are_there(c, d):
    got = c.attrs(d, "supported_attrs").supported_attrs
    required = set(range(12)) | {19, 75}  # RFC 8881 section 5.6
    need = {ATTR[n] for n in """acl aclsupport dacl cansettime case_insensitive case_preserving
        chown_restricted fileid files_avail files_free files_total fs_charset_cap fs_layout_types
        homogeneous layout_blksize layout_types maxfilesize maxlink maxname maxread maxwrite mode
        mode_set_masked mode_umask mounted_on_fileid no_trunc numlinks owner owner_group rawdev
        space_avail space_free space_total space_used time_access time_access_set time_create
        time_delta time_metadata time_modify time_modify_set change_attr_type xattr_support
        open_arguments""".split()}
    check((required | need) - got, set())


def test_attributes_of_4_2_are_unknown_in_4_1(c, d):
    one = client(minor=1)
    got = one.attrs(d, "supported_attrs").supported_attrs
    check({b for b in got if b > 76}, set())
    check(one.ok(putfh(d), getattr_("type", 79, 82)).attrs.bits, {1})


def test_values_of_attributes(c, d):
    a = c.ok(putfh(d), getattr_(*all_readable(c, d))).attrs
    check((a.type, a.lease_time, a.rdattr_error, a.fh_expire_type), (DIR, 20, 0, 0))
    check((a.maxname, a.fs_layout_types, a.case_insensitive, a.xattr_support),
          (255, [FLEX], False, True))
    check((a.mounted_on_fileid, a.filehandle, a.numlinks), (a.fileid, d, 2))
    if min(a.maxread, a.maxwrite) < 1 << 20 or a.fileid == 0 or a.time_metadata[0] < 1 << 30:
        raise Failed(f"{a.maxread} {a.maxwrite} {a.fileid} {a.time_metadata}")
    check(a.fsid, c.ok(putrootfh(), getattr_("fsid")).attrs.fsid)


def test_values_of_the_file_system(c, d):
    """RFC 8881 section 5.8.2: what the server is, and says that it is."""
    a = c.ok(putfh(d), getattr_(*all_readable(c, d))).attrs
    for name in """link_support symlink_support unique_handles cansettime case_preserving
                chown_restricted homogeneous no_trunc""".split():
        check(getattr(a, name), True, name)
    for name in "named_attr case_insensitive".split():
        check(getattr(a, name), False, name)
    check((a.maxfilesize, a.maxlink, a.time_delta), ((1 << 44) - 4096, 65000, (0, 1)))
    # ALLOW and DENY; names of any bytes; it counts up.
    check((a.aclsupport, a.fs_charset_cap, a.change_attr_type), (3, 1, 0))
    # Space is the living data servers', files are as many as numbers go.
    check(0 < a.space_avail <= a.space_total, True, f"{a.space_avail} of {a.space_total} bytes")
    check((a.space_free, a.files_avail, a.files_total), (a.space_avail, a.files_free, 1 << 48))
    check(0 < a.files_total - a.files_free < 1 << 20, True,
          f"{a.files_free} of {a.files_total} files")
    # It is so.
    c.open(d, "Case"), c.open(d, "case")
    check({e.name for e in c.readdir_all(d)}, {b"Case", b"case"})
    c.no("NAMETOOLONG", putfh(d), create(FIFO, "n" * (a.maxname + 1)))
    c.ok(putfh(d), setattr_(mode=0o777))
    s, f = c.open(d, "f", cred=USER)[0], c.ok(putfh(d), lookup("f"), getfh()).fh
    c.no("PERM", putfh(f), setattr_(owner="2000"), cred=USER)
    c.no("FBIG", putfh(f), setattr_(s, size=a.maxfilesize + 1), cred=USER)
    c.ok(putfh(f), setattr_(time_modify_set=(1, a.time_delta[1])))
    check(c.attrs(f, "time_modify").time_modify, (1, a.time_delta[1]))
    c.ok(putfh(f), write(s, 0, bytes(100000), FILE_SYNC), cred=USER)
    used = c.attrs(f, "space_used", "size")
    check((used.size, 100000 <= used.space_used <= 1 << 20), (100000, True),
          f"{used.space_used} bytes used")
    check([who for _, _, _, who in c.attrs(f, "acl").acl][:1], ["OWNER@"])
    dev = c.ok(putfh(d), create(CHR, "dev", dev=(7, 9)), getfh()).fh
    check((a.rawdev, c.attrs(dev, "rawdev").rawdev), ((0, 0), (7, 9)))


def test_write_only_attributes_cannot_be_read(c, d):
    for one in (48, 54):
        c.no("INVAL", putfh(d), getattr_(one))
        c.no("INVAL", putfh(d), readdir(attrs=(one,)))
        c.no("INVAL", putfh(d), verify(raw={one: u32(0)}))
        c.no("INVAL", putfh(d), nverify(raw={one: u32(0)}))


def test_read_only_attributes_cannot_be_set(c, d):
    _, f = c.open(d, "f")
    for raw_attr in ({1: u32(1)}, {3: u64(1)}, {20: u64(1)}, {35: u32(1)}, {45: u64(1)},
                     {52: nfstime((1, 1))}, {0: bitmap([1])}, {10: u32(5)}, {8: u64(1) + u64(1)},
                     {53: nfstime((1, 1))}):
        got = c.no("INVAL", putfh(f), setattr_(raw=raw_attr))
        check(got.attrset, set())


def test_unsupported_attributes_cannot_be_set(c, d):
    _, f = c.open(d, "f")
    supported = c.attrs(f, "supported_attrs").supported_attrs
    for num, value in ((14, u32(1)), (25, u32(1)), (32, opaque("text/plain")), (46, u32(1)),
                       (49, u32(0)), (90, u32(0)), (12, u32(0)), (63, u32(4) + opaque(""))):
        if num not in supported:
            check(c.no("ATTRNOTSUPP", putfh(f), setattr_(raw={num: value})).attrset, set())
            c.no("ATTRNOTSUPP", putfh(f), verify(raw={num: value}))
            c.no("ATTRNOTSUPP", putfh(f), nverify(raw={num: value}))


def test_attribute_lists_must_fit_their_bits(c, d):
    _, f = c.open(d, "f")
    for body in (bitmap([33]) + opaque(u32(0o600) + u32(0)), bitmap([33]) + opaque(b""),
                 bitmap([33, 36]) + opaque(u32(0o600)), bitmap([54]) + opaque(u32(2)),
                 bitmap([54]) + opaque(u32(1) + u64(0)), bitmap([]) + opaque(u32(0)),
                 bitmap([36]) + opaque(u32(100) + b"abcd")):
        c.no("BADXDR", putfh(f), op("SETATTR", stateid(ANON), body))
    check(c.attrs(f, "mode").mode, 0o644)


def test_values_that_cannot_be_set(c, d):
    _, f = c.open(d, "f")
    c.no("INVAL", putfh(f), setattr_(time_modify_set=(1, 1000000000)))
    c.no("INVAL", putfh(f), setattr_(mode=0o10000))
    for who in ("fred", "-1", "1x", "", "4294967296", "fred@nowhere"):
        c.no("BADOWNER", putfh(f), setattr_(owner=who))
        c.no("BADOWNER", putfh(f), setattr_(owner_group=who))
    check(c.attrs(f, "owner").owner, "0")


def test_setattr_tells_what_it_set(c, d):
    _, f = c.open(d, "f")
    before = c.attrs(f, "change").change
    got = c.ok(putfh(f), setattr_(mode=0o711, owner="12", owner_group="13", time_modify_set=(-5, 7),
                                  time_access_set=None))
    check(got.attrset,
          {ATTR[n] for n in ("mode", "owner", "owner_group", "time_modify_set", "time_access_set")})
    a = c.attrs(f, "mode", "owner", "owner_group", "time_modify", "change")
    check((a.mode, a.owner, a.owner_group, a.time_modify, a.change > before),
          (0o711, "12", "13", (-5, 7), True))
    check(c.ok(putfh(f), setattr_()).attrset, set())


def test_verify_and_nverify(c, d):
    c.ok(putfh(d), verify(type=DIR), getfh())
    c.no("NOT_SAME", putfh(d), verify(type=REG))
    c.no("SAME", putfh(d), nverify(type=DIR))
    c.ok(putfh(d), nverify(type=REG), getfh())
    a = c.attrs(d, "change", "mode", "owner")
    c.ok(putfh(d), verify(change=a.change, mode=a.mode, owner=a.owner))
    c.ok(putfh(d), nverify(change=a.change + 1, mode=a.mode))
    c.no("INVAL", putfh(d), verify(raw={11: u32(0)}))


def test_change_rises_with_every_change(c, d):
    s, f = c.open(d, "f")
    seen = [c.attrs(f, "change").change]
    for i in range(3):
        for one in (setattr_(mode=0o600 + i), write(s, i, b"x", FILE_SYNC), setattr_(s, size=i),
                    setxattr("a", str(i)), setattr_(time_modify_set=(1, i))):
            c.ok(putfh(f), one)
            seen.append(c.attrs(f, "change").change)
    check(sorted(set(seen)), seen)


# ---- READDIR


def test_readdir_pages_cover_all_entries_once_while_others_change(c, d):
    names = {b"%05d-%s" % (i, b"n" * (i % 40)) for i in range(2000)}
    todo = list(names)
    while todo:
        started = [c.begin(*[putfh(d), create(FIFO, todo.pop())])
                   for _ in range(min(16, len(todo)))]
        for one in started:
            check(c.finish(one).status, 0)
    turn = iter(range(1000))

    def between():
        i = next(turn)
        c.ok(putfh(d), create(FIFO, b"new %d" % i, mode=0o600), putfh(d), remove(b"new %d" % i))
        c.ok(putfh(d), create(FIFO, b"stays %d" % i, mode=0o600))
        gone = sorted(names)[i * 7 % 2000]
        if gone in removed or gone not in names:
            return
        c.ok(putfh(d), remove(gone))
        removed.add(gone)
    removed = set()
    entries = c.readdir_all(d, ("fileid", "type", "fsid", "rdattr_error"), between, maxcount=8000)
    got = [e.name for e in entries]
    check(len(got), len(set(got)), "names twice")
    missing = names - removed - set(got)
    check(missing, set())
    check({n for n in got if n not in names and not n.startswith((b"new", b"stays"))}, set())
    cookies = [e.cookie for e in entries]
    check((len(set(cookies)), {0, 1, 2} & set(cookies)), (len(cookies), set()))
    check({e.attrs.type for e in entries}, {FIFO})


def test_readdir_cookies(c, d):
    for i in range(5):
        c.ok(putfh(d), create(FIFO, f"e{i}"))
    one = c.ok(putfh(d), readdir())
    check((len(one.entries), one.eof), (5, True))
    for cookie in (1, 2):
        c.no("BAD_COOKIE", putfh(d), readdir(cookie, one.verf))
    last = c.ok(putfh(d), readdir(one.entries[-1].cookie, one.verf))
    check((last.entries, last.eof), ([], True))
    mid = c.ok(putfh(d), readdir(one.entries[1].cookie, one.verf))
    check([e.name for e in mid.entries], [e.name for e in one.entries[2:]])
    c.ok(putfh(d), remove(one.entries[1].name.decode()))
    mid = c.ok(putfh(d), readdir(one.entries[1].cookie, one.verf))
    check([e.name for e in mid.entries], [e.name for e in one.entries[2:]],
          "after its entry was removed")
    if any(one.verf):
        c.no("NOT_SAME", putfh(d), readdir(one.entries[2].cookie, b"\xa5" * 8))


def test_readdir_limits(c, d):
    c.ok(putfh(d), create(FIFO, "a" * 200), putfh(d), create(FIFO, "b" * 200))
    for small in (0, 1, 16, 100):
        c.no("TOOSMALL", putfh(d), readdir(maxcount=small))
    one = c.ok(putfh(d), readdir(maxcount=300))
    check((len(one.entries), one.eof), (1, False))
    empty = c.mkdir(d, "empty")
    got = c.ok(putfh(empty), readdir())
    check((got.entries, got.eof), ([], True))
    _, f = c.open(d, "f")
    c.no("NOTDIR", putfh(f), readdir())


def test_readdir_replies_keep_to_maxcount(c, d):
    for i in range(60):
        c.ok(putfh(d), create(FIFO, f"{i}" * 20, mode=0o600))
    attrs = tuple(all_readable(c, d))
    for maxcount in (600, 1000, 4096, 10000):
        c.slots[9] += 1
        body = raw(c.conn, sequence(c.session.sessionid, c.slots[9], 9, 9), putfh(d),
                   readdir(maxcount=maxcount, attrs=attrs))
        entries = len(body) - 12 - 44 - 8 - 8
        if entries > maxcount:
            raise Failed(f"{entries} bytes, maxcount {maxcount}")


def test_readdir_attributes_equal_getattrs(c, d):
    c.open(d, "f")
    c.mkdir(d, "sub")
    c.ok(putfh(d), create(LNK, "l", "f"))
    names = all_readable(c, d)
    stable = names - {ATTR["space_avail"], ATTR["space_free"], ATTR["files_avail"],
                      ATTR["files_free"], ATTR["files_total"]}
    for e in c.readdir_all(d, stable):
        got = c.ok(putfh(d), lookup(e.name), getattr_(*stable)).attrs
        check(vars(e.attrs), vars(got))


def test_hard_links_have_cookies_of_their_own(c, d):
    _, f = c.open(d, "f")
    for i in range(20):
        c.ok(putfh(f), savefh(), putfh(d), link(f"l{i}"))
    entries = c.readdir_all(d, ("fileid",), maxcount=500)
    check((len(entries), len({e.cookie for e in entries}), len({e.attrs.fileid for e in entries})),
          (21, 21, 1))


# ---- permissions


def test_access_bits_of_owner_group_and_others(c, d):
    _, f = c.open(d, "f", attrs={"mode": 0o640, "owner": "1000", "owner_group": "50"})
    file_all = 0x01 | 0x04 | 0x08 | 0x20  # READ, MODIFY, EXTEND, EXECUTE
    for cred, want in ((auth_sys(0), 0x0d), (USER, 0x0d), (auth_sys(2000, 50), 0x01),
                       (auth_sys(2000, 60, (70, 50)), 0x01), (OTHER, 0), (NOBODY, 0)):
        got = c.ok(putfh(f), access(file_all), cred=cred)
        check((got.supported, got.access), (file_all, want), str(cred))
    c.ok(putfh(f), setattr_(mode=0o711))
    check(c.ok(putfh(f), access(0x3f), cred=OTHER).access & 0x2d, 0x20)
    check(c.ok(putfh(f), access(0x01), cred=auth_sys(0)).supported, 0x01)


def test_access_bits_of_a_directory(c, d):
    sub = c.mkdir(d, "sub", attrs={"mode": 0o751, "owner": "1000", "owner_group": "50"})
    dir_all = 0x01 | 0x02 | 0x04 | 0x08 | 0x10
    for cred, want in ((auth_sys(0), dir_all), (USER, dir_all), (auth_sys(2000, 50), 0x03),
                       (OTHER, 0x02), (NOBODY, 0x02)):
        got = c.ok(putfh(sub), access(dir_all), cred=cred)
        check((got.supported, got.access), (dir_all, want), str(cred))


def test_sixteen_groups_count(c, d):
    _, f = c.open(d, "f", attrs={"mode": 0o060, "owner": "1", "owner_group": "115"})
    c.ok(putfh(d), open_("f", BOTH | NO_DELEG), cred=auth_sys(2000, 2000, range(100, 116)))
    c.no("ACCESS", putfh(d), open_("f", BOTH | NO_DELEG), cred=auth_sys(2000, 2000, range(99, 115)))
    # The owner's bits come first.
    c.no("ACCESS", putfh(d), open_("f", BOTH | NO_DELEG), cred=auth_sys(1, 115))


def test_auth_none_is_nobody(c, d):
    private, public = (c.mkdir(d, "private", attrs={"mode": 0o700}),
                       c.mkdir(d, "public", attrs={"mode": 0o777}))
    c.no("ACCESS", putfh(private), readdir(), cred=NOBODY)
    c.no("ACCESS", putfh(private), create(DIR, "x"), cred=NOBODY)
    c.no("PERM", putfh(public), setattr_(mode=0o700), cred=NOBODY)
    c.ok(putfh(public), create(DIR, "x", mode=0o755), cred=NOBODY)
    check(c.ok(putfh(public), lookup("x"), getattr_("owner")).attrs.owner, "65534")


def test_what_needs_permission_is_refused_without(c, d):
    c.ok(putfh(d), setattr_(mode=0o755))
    s, f = c.open(d, "f", attrs={"mode": 0o600})
    closed = c.mkdir(d, "closed", attrs={"mode": 0o700})
    c.mkdir(closed, "x")
    for ops in ([putfh(d), create(DIR, "y")], [putfh(d), remove("f")],
                [putfh(d), savefh(), rename("f", "g")], [putfh(f), savefh(), putfh(d), link("g")],
                [putfh(d), open_("f")], [putfh(d), open_("f", WRITE | NO_DELEG)],
                [putfh(d), open_("new", BOTH | NO_DELEG, how=UNCHECKED, attrs={"mode": 0o600})],
                [putfh(closed), readdir()], [putfh(closed), lookup("x")],
                [putfh(f), read(ANON, 0, 1)], [putfh(f), write(ANON, 0, b"x")],
                [putfh(f), setattr_(size=0)], [putfh(f), setattr_(time_modify_set=None)],
                [putfh(f), getxattr("a")], [putfh(f), setxattr("a", "b")]):
        c.no("ACCESS", *ops, cred=USER)
    for attrs in ({"mode": 0o777}, {"owner": "1000"}, {"owner_group": "1000"},
                  {"time_modify_set": (1, 1)}):
        c.no("PERM", putfh(f), setattr_(**attrs), cred=USER)
    check(c.ok(putfh(f), access(0x3f), cred=USER).access, 0)


def test_owners_do_what_owners_may(c, d):
    _, f = c.open(d, "f", attrs={"mode": 0o000, "owner": "1000", "owner_group": "50"})
    c.ok(putfh(f), setattr_(mode=0o600, time_modify_set=(1, 1)), cred=USER)
    c.no("PERM", putfh(f), setattr_(owner="2000"), cred=USER)
    c.no("PERM", putfh(f), setattr_(owner_group="60"), cred=USER)
    c.ok(putfh(f), setattr_(owner_group="60"), cred=auth_sys(1000, 1000, (60,)))
    c.ok(putfh(f), setattr_(owner="1000"), cred=USER)
    check(c.attrs(f, "owner", "owner_group", "mode").owner_group, "60")


def test_new_files_belong_to_who_made_them(c, d):
    c.ok(putfh(d), setattr_(mode=0o777))
    a = c.ok(putfh(d), create(DIR, "x", mode=0o700), getattr_("owner", "owner_group"),
             cred=auth_sys(1000, 55)).attrs
    check((a.owner, a.owner_group), ("1000", "55"))
    c.no("PERM", putfh(d), create(DIR, "y", mode=0o700, owner="2000"), cred=USER)


def test_a_setgid_directory_hands_its_group_down(c, d):
    sub = c.mkdir(d, "sub", attrs={"mode": 0o2777, "owner_group": "77"})
    r = c.ok(putfh(sub), create(DIR, "x", mode=0o755), getattr_("owner_group", "mode"),
             cred=USER).attrs
    check((r.owner_group, r.mode), ("77", 0o2755))
    r = c.ok(putfh(sub), open_("f", BOTH | NO_DELEG, how=GUARDED, attrs={"mode": 0o2755}),
             getattr_("owner_group", "mode"), cred=USER).attrs
    check((r.owner_group, r.mode), ("77", 0o755), "set-group-id of a group one is not in")


def test_a_sticky_directory_guards_its_entries(c, d):
    sub = c.mkdir(d, "sub", attrs={"mode": 0o1777})
    c.ok(putfh(sub), create(FIFO, "mine", mode=0o666), putfh(sub), create(DIR, "dir", mode=0o777),
         cred=USER)
    for ops in ([putfh(sub), remove("mine")], [putfh(sub), remove("dir")],
                [putfh(sub), savefh(), rename("mine", "x")]):
        c.no(("ACCESS", "PERM"), *ops, cred=OTHER)
    c.ok(putfh(sub), create(FIFO, "his", mode=0o666), cred=OTHER)
    c.no(("ACCESS", "PERM"), putfh(sub), savefh(), rename("his", "mine"), cred=OTHER)
    c.ok(putfh(sub), remove("mine"), cred=USER)
    c.ok(putfh(sub), savefh(), rename("dir", "dir2"), cred=USER)


def test_set_id_bits_fall_when_others_write_or_own(c, d):
    s, f = c.open(d, "f", attrs={"mode": 0o6777})
    c.ok(putfh(f), write(s, 0, b"root", FILE_SYNC))
    check(c.attrs(f, "mode").mode, 0o6777)
    r = c.ok(putfh(d), open_("f", WRITE | NO_DELEG, owner=b"u"), cred=USER)
    c.ok(putfh(f), write(r.stateid, 0, b"user", FILE_SYNC), cred=USER)
    check(c.attrs(f, "mode").mode, 0o777)
    c.ok(putfh(f), setattr_(mode=0o6777), setattr_(r.stateid, size=1), cred=auth_sys())
    c.ok(putfh(f), setattr_(mode=0o6777))
    c.ok(putfh(f), setattr_(r.stateid, size=0), cred=USER)
    check(c.attrs(f, "mode").mode, 0o777)
    c.ok(putfh(f), setattr_(mode=0o6755, owner="1000"))
    c.ok(putfh(f), setattr_(mode=0o2755), cred=USER)
    check(c.attrs(f, "mode").mode, 0o755, "set-group-id by an owner outside the group")


def test_parents_need_no_reading_for_lookup(c, d):
    sub = c.mkdir(d, "sub", attrs={"mode": 0o711})
    c.mkdir(sub, "x")
    c.ok(putfh(sub), lookup("x"), cred=USER)
    c.no("ACCESS", putfh(sub), readdir(), cred=USER)
    c.ok(putfh(sub), setattr_(mode=0o744))
    c.ok(putfh(sub), readdir(), cred=USER)
    c.no("ACCESS", putfh(sub), lookup("x"), cred=USER)


# ---- OPEN (18.16) and its kin


def test_unchecked_create_makes_or_opens(c, d):
    a = opened(c, d, "f", how=UNCHECKED, attrs={"mode": 0o640})
    check((a.attrset, a.attrs.mode, a.attrs.size), (attrset("mode"), 0o640, 0))
    c.ok(putfh(a.fh), write(a.stateid, 0, b"data"))
    b = opened(c, d, "f", how=UNCHECKED, attrs={"mode": 0o600}, owner=b"b")
    check((b.fh, b.attrset, b.attrs.mode, b.attrs.size), (a.fh, set(), 0o640, 4))
    b = opened(c, d, "f", how=UNCHECKED, attrs={"mode": 0o600, "size": 0}, owner=b"b")
    check((b.attrset, b.attrs.mode, b.attrs.size), (attrset("size"), 0o640, 0))


def test_guarded_create_only_makes(c, d):
    a = opened(c, d, "f", how=GUARDED, attrs={"mode": 0o604, "size": 100})
    check((a.attrset, a.attrs.mode, a.attrs.size), (attrset("mode", "size"), 0o604, 100))
    c.no("EXIST", putfh(d), open_("f", BOTH | NO_DELEG, how=GUARDED, attrs={"mode": 0o600}))
    c.mkdir(d, "dir")
    c.no("EXIST", putfh(d), open_("dir", BOTH | NO_DELEG, how=GUARDED, attrs={"mode": 0o600}))


def test_create_by_open_sets_what_it_says(c, d):
    want = {"mode": 0o751, "owner": "7", "owner_group": "8", "time_modify_set": (5, 6),
            "time_access_set": (3, 4)}
    a = opened(c, d, "f", how=GUARDED, attrs=want)
    check(a.attrset, attrset(*want))
    got = c.attrs(a.fh, "mode", "owner", "owner_group", "time_modify", "time_access")
    check((got.mode, got.owner, got.owner_group, got.time_modify, got.time_access),
          (0o751, "7", "8", (5, 6), (3, 4)))


def test_mode_umask_is_applied(c, d):
    a = opened(c, d, "f", how=GUARDED, attrs={"mode_umask": (0o666, 0o027)})
    check((a.attrs.mode, a.attrset), (0o640, attrset("mode_umask")))
    c.no("INVAL", putfh(d), open_("g", BOTH | NO_DELEG, how=GUARDED,
                                  attrs={"mode_umask": (0o666, 0o22), "mode": 0o600}))
    c.no("INVAL", putfh(a.fh), setattr_(mode_umask=(0o666, 0o022)))


def test_exclusive4_is_inval_of_a_pnfs_server(c, d):
    c.no("INVAL", putfh(d), open_("f", BOTH | NO_DELEG, how=EXCLUSIVE))
    check(c.readdir_all(d), [])


def test_exclusive4_1_knows_its_verifier(c, d):
    kw = dict(how=EXCLUSIVE4_1, verf=b"verifier", attrs={"mode": 0o640})
    a = opened(c, d, "f", **kw)
    check((a.attrs.mode, attrset("mode") - a.attrset), (0o640, set()))
    b = opened(c, d, "f", **kw)
    check((b.fh, b.stateid[1], b.stateid[0]), (a.fh, a.stateid[1], a.stateid[0] + 1))
    check(attrset("mode") - b.attrset, set())
    other = client()
    check(opened(other, d, "f", **kw).fh, a.fh)
    c.no("EXIST", putfh(d),
         open_("f", BOTH | NO_DELEG, how=EXCLUSIVE4_1, verf=b"another.", attrs={"mode": 0o640}))
    c.no("EXIST", putfh(d), open_("f", BOTH | NO_DELEG, how=GUARDED, attrs={"mode": 0o640}))


def test_exclusive4_1_takes_what_suppattr_exclcreat_lists(c, d):
    listed = c.attrs(d, "suppattr_exclcreat").suppattr_exclcreat
    check(attrset("mode", "size") - listed, set())
    values = {"mode": 0o600, "size": 0, "owner": "1", "owner_group": "2", "time_access_set": (1, 2),
              "time_modify_set": (1, 2)}
    for name, value in values.items():
        one = open_(f"f {name}", BOTH | NO_DELEG, how=EXCLUSIVE4_1, verf=b"verifier",
                    attrs={name: value})
        if ATTR[name] in listed:
            got = c.ok(putfh(d), one)
            check(ATTR[name] in got.attrset, True)
        else:
            c.no("INVAL", putfh(d), one)


def test_open_for_writing_of_a_new_read_only_file(c, d):
    c.ok(putfh(d), setattr_(mode=0o777))
    for i, how in enumerate((UNCHECKED, GUARDED, EXCLUSIVE4_1)):
        r = c.ok(putfh(d), open_(f"f{i}", BOTH | NO_DELEG, how=how, attrs={"mode": 0o444}), getfh(),
                 cred=USER)
        c.ok(putfh(r.fh), write(r.all[1].stateid, 0, b"x"), cred=USER)
        c.no("ACCESS", putfh(d), open_(f"f{i}", BOTH | NO_DELEG, owner=b"2"), cred=USER)


def test_truncation_by_open_needs_write_permission(c, d):
    s, f = c.open(d, "f", attrs={"mode": 0o644})
    c.ok(putfh(f), write(s, 0, b"data"))
    c.no("ACCESS", putfh(d), open_("f", READ | NO_DELEG, how=UNCHECKED, attrs={"size": 0}),
         cred=USER)
    check(c.attrs(f, "size").size, 4)


def test_what_open_cannot_open(c, d):
    sub = c.mkdir(d, "dir")
    link_fh = c.ok(putfh(d), create(LNK, "link", "dir"), getfh()).fh
    fifo = c.ok(putfh(d), create(FIFO, "fifo"), getfh()).fh
    # RFC 8881 section 18.16.3 has WRONG_TYPE for the fifo. Linux turns that into EIO, and handles
    # SYMLINK correctly.
    for name, fh, want in (("dir", sub, "ISDIR"), ("link", link_fh, "SYMLINK"),
                           ("fifo", fifo, "SYMLINK")):
        c.no(want, putfh(d), open_(name))
        c.no(want, putfh(d), open_(name, BOTH | NO_DELEG, how=UNCHECKED, attrs={"mode": 0o600}))
        c.no(want, putfh(fh), open_(claim_fh()))
    c.no("NOENT", putfh(d), open_("no"))
    _, f = c.open(d, "f")
    c.no("NOTDIR", putfh(f), open_("x"))
    c.no(("SYMLINK", "NOTDIR"), putfh(link_fh), open_("x"))


def test_open_by_filehandle(c, d):
    s, f = c.open(d, "f")
    got = c.ok(putfh(f), open_(claim_fh(), BOTH | NO_DELEG), getfh())
    check((got.all[1].stateid, got.fh), ((s[0] + 1, s[1]), f))


def test_open_arguments_that_make_no_sense(c, d):
    c.open(d, "f")
    for acc, deny in ((0, 0), (4, 0), (READ, 4)):
        c.no("INVAL", putfh(d), open_("f", acc, deny))
    c.no("BADXDR", putfh(d), open_(u32(9)))
    c.no(("BADXDR", "INVAL"), putfh(d),
         op("OPEN", u32(0), u32(1), u32(0), u64(0), opaque("o"), u32(2), claim_null("f")))
    c.no("NO_GRACE", putfh(d), lookup("f"), open_(claim_previous()))


def test_share_reservations(c, d):
    one, two = client(), client()
    for acc in (READ, WRITE, BOTH):
        for deny in range(4):
            s, f = one.open(d, "f", acc, deny=deny)
            for acc2 in (READ, WRITE, BOTH):
                for deny2 in range(4):
                    conflict = acc & deny2 or acc2 & deny
                    got = two.call(putfh(d), open_("f", acc2 | NO_DELEG, deny2))
                    check(err(got.status), "SHARE_DENIED" if conflict else "OK",
                          f"{acc} {deny} then {acc2} {deny2}")
                    if not conflict:
                        two.ok(putfh(f), close(got.results[-1].stateid))
            one.ok(putfh(f), close(s))


def test_an_open_is_checked_against_its_owners_own(c, d):
    s, f = c.open(d, "f", READ, deny=WRITE)
    c.no("SHARE_DENIED", putfh(d), open_("f", BOTH | NO_DELEG))
    c.no("SHARE_DENIED", putfh(d), open_("f", BOTH | NO_DELEG, owner=b"two"))
    check(c.ok(putfh(d), open_("f", READ | NO_DELEG)).stateid, (s[0] + 1, s[1]))


def test_opens_of_one_owner_make_one_state(c, d):
    s, f = c.open(d, "f", READ)
    c.no("OPENMODE", putfh(f), write(s, 0, b"x"))
    s2, _ = c.open(d, "f", WRITE)
    check(s2, (s[0] + 1, s[1]))
    c.ok(putfh(f), write(s2, 0, b"x"), read(s2, 0, 1), close(s2))
    c.no("BAD_STATEID", putfh(f), read(s2, 0, 1))
    s3, _ = c.open(d, "f", READ)
    check((s3[0], s3[1] != s[1]), (1, True))
    check(c.open(d, "f", READ, owner=b"other")[0][1] != s3[1], True)


def test_open_downgrade(c, d):
    c.open(d, "f", READ)
    s, f = c.open(d, "f", BOTH)
    got = c.ok(putfh(f), open_downgrade(s, READ))
    check(got.stateid, (s[0] + 1, s[1]))
    c.no("OPENMODE", putfh(f), write(got.stateid, 0, b"x"))
    c.no("INVAL", putfh(f), open_downgrade(got.stateid, BOTH))
    c.no("INVAL", putfh(f), open_downgrade(got.stateid, READ, WRITE))
    c.no("INVAL", putfh(f), open_downgrade(got.stateid, 0))
    c.no("OLD_STATEID", putfh(f), open_downgrade(s, READ))
    c.no("BAD_STATEID", putfh(f), open_downgrade(ANON, READ))
    two = client()
    two.ok(putfh(d), open_("f", READ | NO_DELEG, WRITE))


def test_close(c, d):
    s, f = c.open(d, "f")
    s2, _ = c.open(d, "f")
    c.no("OLD_STATEID", putfh(f), close(s))
    c.no("BAD_STATEID", putfh(f), close((s2[0] + 1, s2[1])))
    c.no("BAD_STATEID", putfh(f), close(ANON))
    c.no("BAD_STATEID", putfh(d), close(s2))
    check(c.ok(putfh(f), close((0, s[1]))).stateid, INVALID)
    c.no("BAD_STATEID", putfh(f), close(s2))


def test_a_file_replaced_while_open_lives_until_close(c, d):
    s, f = c.open(d, "f")
    c.ok(putfh(f), write(s, 0, b"old"))
    c.open(d, "g")
    c.ok(putfh(d), savefh(), rename("g", "f"))
    check(c.ok(putfh(f), read(s, 0, 9)).data, b"old")
    c.ok(putfh(f), close(s))
    check(err(c.call(putfh(f), getattr_("type")).status), "STALE")


def test_a_name_made_again_is_another_file(c, d):
    s, f = c.open(d, "f")
    old = c.attrs(f, "fileid").fileid
    c.ok(putfh(f), write(s, 0, b"old"), close(s), putfh(d), remove("f"))
    s, g = c.open(d, "f")
    check((g != f, c.attrs(g, "fileid").fileid != old), (True, True))
    check(c.ok(putfh(g), read(s, 0, 9)).data, b"")


def test_space_and_files_add_up(c, d):
    a = c.attrs(d, "space_total", "space_free", "space_avail", "files_total", "files_free",
                "files_avail")
    check(a.space_total >= a.space_free >= a.space_avail > 0, True)
    check(a.files_total >= a.files_free >= a.files_avail > 0, True)


def test_open_owners_have_a_limit(c, d):
    c.open(d, "f", owner=b"o" * 1024)
    c.no("BADXDR", putfh(d), open_("f", owner=b"o" * 1025))
    one, two = c.open(d, "f", owner=b"")[0], c.open(d, "f", owner=b"\0")[0]
    check(one[1] != two[1], True)


# ---- stateids (8.2)


def test_stateid_seqids(c, d):
    s, f = c.open(d, "f")
    now, _ = c.open(d, "f")
    for one in (read, lambda sid, o, n: write(sid, o, b"x"),
                lambda sid, o, n: setattr_(sid, size=5)):
        c.no("OLD_STATEID", putfh(f), one(s, 0, 1))
        c.no("BAD_STATEID", putfh(f), one((now[0] + 1, now[1]), 0, 1))
        c.ok(putfh(f), one((0, now[1]), 0, 1))
        c.ok(putfh(f), one(now, 0, 1))


def test_stateids_that_are_not_ones_own(c, d):
    s, f = c.open(d, "f")
    _, g = c.open(d, "g")
    two = client()
    bogus = s[0], s[1][:-1] + bytes([s[1][-1] ^ 0x55])
    for one in (lambda sid: read(sid, 0, 1), lambda sid: write(sid, 0, b"x"),
                lambda sid: setattr_(sid, size=5), close):
        c.no("BAD_STATEID", putfh(g), one(s))
        two.no("BAD_STATEID", putfh(f), one(s))
        c.no("BAD_STATEID", putfh(f), one(bogus))


def test_special_stateids(c, d):
    s, f = c.open(d, "f")
    c.ok(putfh(f), write(ANON, 0, b"anonymous"), read(ANON, 0, 9), read(BYPASS, 0, 9),
         write(BYPASS, 0, b"x"), setattr_(ANON, size=3), setattr_(BYPASS, size=3))
    for bad in (INVALID, (2, bytes(12)), (0, b"\xff" * 12), (7, b"\xff" * 12), CURRENT):
        for one in (read(bad, 0, 1), write(bad, 0, b"x"), setattr_(bad, size=1), close(bad),
                    open_downgrade(bad, READ)):
            c.no("BAD_STATEID", putfh(f), one)


def test_special_stateids_meet_share_reservations(c, d):
    s, f = c.open(d, "f", READ, deny=BOTH)
    two = client()
    two.no("LOCKED", putfh(f), read(ANON, 0, 1))
    two.no("LOCKED", putfh(f), write(ANON, 0, b"x"))
    two.no("LOCKED", putfh(f), write(BYPASS, 0, b"x"))
    two.no("LOCKED", putfh(f), setattr_(ANON, size=1))
    two.ok(putfh(f), setattr_(ANON, mode=0o600))


def test_the_current_stateid(c, d):
    r = c.ok(putfh(d), open_("f", BOTH | NO_DELEG, how=GUARDED, attrs={"mode": 0o600}),
             write(CURRENT, 0, b"current"), read(CURRENT, 0, 10), setattr_(CURRENT, size=3),
             getattr_("size"), close(CURRENT))
    check((r.all[3].data, r.all[5].attrs.size), (b"current", 3))
    s, f = c.open(d, "f")
    c.no("BAD_STATEID", putfh(d), open_("f"), putfh(f), read(CURRENT, 0, 1))
    r = c.ok(putfh(d), open_("f", BOTH | NO_DELEG), savefh(), putfh(d), restorefh(),
             read(CURRENT, 0, 3))
    check(r.data, b"cur")


def test_test_stateid_and_free_stateid(c, d):
    s, f = c.open(d, "f")
    s2, _ = c.open(d, "f")
    got = c.ok(test_stateid(s2, s, (s2[0] + 1, s2[1]), (1, b"\x01" * 12), ANON, BYPASS)).statuses
    check([err(x) for x in got],
          ["OK", "OLD_STATEID", "BAD_STATEID", "BAD_STATEID", "BAD_STATEID", "BAD_STATEID"])
    check(c.ok(test_stateid()).statuses, [])
    c.no("LOCKS_HELD", free_stateid(s2))
    c.no("BAD_STATEID", free_stateid((1, b"\x01" * 12)))
    c.no("BAD_STATEID", free_stateid(ANON))
    check(err(client().ok(test_stateid(s2)).statuses[0]), "BAD_STATEID")


# ---- READ, WRITE, COMMIT, sizes


def test_data_goes_through_the_metadata_server(c, d):
    s, f = c.open(d, "f")
    data = os.urandom(1 << 20)
    got = c.ok(putfh(f), write(s, 0, data))
    check(got.count, len(data))
    c.ok(putfh(f), write(s, 3 << 20, b"tail"), write(s, 100, b"overlay"), commit())
    data = data[:100] + b"overlay" + data[107:]
    check(c.ok(putfh(f), read(s, 0, 1 << 20)).data, data)
    check(c.ok(putfh(f), read(s, 1 << 20, 1 << 20)).data, bytes(1 << 20))
    got = c.ok(putfh(f), read(s, (3 << 20) - 2, 100), getattr_("size"))
    check((got.all[1].data, got.all[1].eof, got.attrs.size), (b"\0\0tail", True, (3 << 20) + 4))


def test_reads_at_and_beyond_the_end(c, d):
    s, f = c.open(d, "f")
    for offset, count in ((0, 10), (100, 1), (2**62, 10)):
        got = c.ok(putfh(f), read(s, offset, count))
        check((got.data, got.eof), (b"", True))
    c.ok(putfh(f), write(s, 0, b"0123456789"))
    for offset, count, want, eof in ((0, 10, b"0123456789", True), (0, 5, b"01234", False),
                                     (5, 100, b"56789", True), (10, 1, b"", True),
                                     (3, 0, b"", False)):
        got = c.ok(putfh(f), read(s, offset, count))
        check((got.data, got.eof), (want, eof), f"{offset} {count}")


def test_write_tells_how_stable_it_is(c, d):
    s, f = c.open(d, "f")
    for how in (UNSTABLE, DATA_SYNC, FILE_SYNC):
        got = c.ok(putfh(f), write(s, 0, b"x", how))
        check((got.count, got.how >= how), (1, True))
    check(c.ok(putfh(f), commit()).verf, got.verf)
    check(c.ok(putfh(f), write(s, 5, b"")).count, 0)
    check(c.attrs(f, "size").size, 1, "a WRITE of nothing")
    c.no(("BADXDR", "INVAL"), putfh(f), write(s, 0, b"x", 3))


def test_io_on_what_is_no_file(c, d):
    link_fh = c.ok(putfh(d), create(LNK, "l", "x"), getfh()).fh
    fifo = c.ok(putfh(d), create(FIFO, "p"), getfh()).fh
    for fh, want in ((d, "ISDIR"), (link_fh, "SYMLINK"), (fifo, "WRONG_TYPE")):
        for one in (read(ANON, 0, 1), write(ANON, 0, b"x"), commit()):
            c.no(want, putfh(fh), one)
    c.no("ISDIR", putfh(d), setattr_(size=0))
    c.no(("INVAL", "SYMLINK", "WRONG_TYPE"), putfh(link_fh), setattr_(size=0))


def test_writes_beyond_the_largest_file_are_too_big(c, d):
    s, f = c.open(d, "f")
    most = c.attrs(f, "maxfilesize").maxfilesize
    c.no("FBIG", putfh(f), write(s, most, b"x"))
    c.no(("FBIG", "INVAL"), putfh(f), write(s, MAX64, b"xx"))
    c.no("FBIG", putfh(f), setattr_(s, size=most + 1))
    c.no(("FBIG", "INVAL"), putfh(f), setattr_(s, size=MAX64))
    check(c.attrs(f, "size").size, 0)
    c.ok(putfh(f), setattr_(s, size=most), setattr_(s, size=0))


def test_sizes_are_set(c, d):
    s, f = c.open(d, "f")
    c.ok(putfh(f), write(s, 0, b"0123456789", FILE_SYNC))
    for sid, size, want in ((s, 4, b"0123"), (ANON, 8, b"0123\0\0\0\0"), (s, 0, b""),
                            ((0, s[1]), 3, b"\0\0\0")):
        check(c.ok(putfh(f), setattr_(sid, size=size)).attrset, attrset("size"))
        got = c.ok(putfh(f), read(s, 0, 100), getattr_("size"))
        check((got.all[1].data, got.attrs.size), (want, size))
    r, _ = c.open(d, "f", READ, how=None, owner=b"reader")
    c.no("OPENMODE", putfh(f), setattr_(r, size=1))
    c.ok(putfh(f), close(s))
    c.no("BAD_STATEID", putfh(f), setattr_(s, size=1))


def test_a_large_sparse_file(c, d):
    s, f = c.open(d, "f")
    c.ok(putfh(f), setattr_(s, size=100 << 30), write(s, 70 << 30, b"middle"))
    check(c.ok(putfh(f), read(s, (70 << 30) - 1, 8)).data, b"\0middle\0")
    check(c.attrs(f, "size").size, 100 << 30)


def test_writes_of_many_slots_meet(c, d):
    s, f = c.open(d, "f")
    started = [c.begin(putfh(f), write(s, i * 8192, bytes([i]) * 8192)) for i in range(16)]
    for one in started:
        check(c.finish(one).status, 0)
    data = c.ok(putfh(f), commit(), read(s, 0, 1 << 20)).data
    check(data == b"".join(bytes([i]) * 8192 for i in range(16)), True)


def test_a_write_moves_mtime_and_change(c, d):
    s, f = c.open(d, "f")
    c.ok(putfh(f), setattr_(time_modify_set=(1, 1)))
    a = c.attrs(f, "change", "time_metadata")
    c.ok(putfh(f), write(s, 0, b"x"))
    b = c.attrs(f, "change", "time_modify", "time_metadata")
    check((b.change > a.change, b.time_modify > (1, 1), b.time_metadata >= a.time_metadata),
          (True, True, True))


# ---- extended attributes (RFC 8276)


def test_xattrs_are_set_read_replaced_and_removed(c, d):
    _, f = c.open(d, "f")
    for fh in (f, d):
        before = c.attrs(fh, "change").change
        got = c.ok(putfh(fh), setxattr("name", b"\0value"), getattr_("change"))
        check((got.all[1].cinfo.before, got.all[1].cinfo.after), (before, got.attrs.change))
        check(got.attrs.change > before, True)
        check(c.ok(putfh(fh), getxattr("name")).value, b"\0value")
        c.ok(putfh(fh), setxattr("name", b"second"))
        c.no("EXIST", putfh(fh), setxattr("name", b"third", 1))
        c.ok(putfh(fh), setxattr("name", b"", 2))
        check(c.ok(putfh(fh), getxattr("name")).value, b"")
        c.no("NOXATTR", putfh(fh), setxattr("other", b"x", 2))
        c.ok(putfh(fh), setxattr("other", b"x", 1))
        check(sorted(c.ok(putfh(fh), listxattrs()).names), [b"name", b"other"])
        got = c.ok(putfh(fh), removexattr("name"), getattr_("change"))
        check(got.all[1].cinfo.after, got.attrs.change)
        for one in (getxattr("name"), removexattr("name")):
            c.no("NOXATTR", putfh(fh), one)
        check(c.ok(putfh(fh), listxattrs()).names, [b"other"])


def test_xattr_limits(c, d):
    _, f = c.open(d, "f")
    c.ok(putfh(f), setxattr("n" * 255, b"x"))
    c.no("NAMETOOLONG", putfh(f), setxattr("n" * 256, b"x"))
    c.no("INVAL", putfh(f), setxattr("", b"x"))
    c.ok(putfh(f), setxattr("large", b"v" * 65536))
    check(c.ok(putfh(f), getxattr("large")).value, b"v" * 65536)
    c.no("XATTR2BIG", putfh(f), setxattr("larger", b"v" * 65537))
    c.no(("BADXDR", "INVAL"), putfh(f), setxattr("a", b"x", 3))
    check(sorted(c.ok(putfh(f), listxattrs()).names), [b"large", b"n" * 255])


def test_listxattrs_in_pages(c, d):
    _, f = c.open(d, "f")
    got = c.ok(putfh(f), listxattrs())
    check((got.names, got.eof), ([], True))
    names = [b"name %03d" % i for i in range(50)]
    for name in names:
        c.ok(putfh(f), setxattr(name, b"x"))
    seen, cookie, pages = [], 0, 0
    while True:
        got = c.ok(putfh(f), listxattrs(cookie, 200))
        size = sum(4 + len(n) + -len(n) % 4 for n in got.names)
        check(0 < size <= 200, True, f"{size} bytes of names, maxcount 200")
        seen += got.names
        pages += 1
        if got.eof:
            break
        cookie = got.cookie
    check((sorted(seen), pages > 3), (names, True))
    c.no("TOOSMALL", putfh(f), listxattrs(0, 8))
    check(len(c.ok(putfh(f), listxattrs(0, 1 << 20)).names), 50)


def test_xattrs_survive_rename_and_go_with_their_file(c, d):
    s, f = c.open(d, "f")
    c.ok(putfh(f), setxattr("a", b"1"), savefh(), putfh(d), savefh(), rename("f", "g"))
    check(c.ok(putfh(f), getxattr("a")).value, b"1")
    c.ok(putfh(f), close(s), putfh(d), remove("g"))
    _, g = c.open(d, "f")
    check(c.ok(putfh(g), listxattrs()).names, [])


def test_access_tells_xattr_rights(c, d):
    _, f = c.open(d, "f", attrs={"mode": 0o644, "owner": "1000"})
    xattrs = 0x40 | 0x80 | 0x100
    for cred, want in ((USER, xattrs), (OTHER, 0x140)):
        got = c.ok(putfh(f), access(xattrs), cred=cred)
        check((got.supported, got.access), (xattrs, want))
    check(client(minor=1).ok(putfh(f), access(xattrs | 1)).supported, 1)


def test_the_policy_attribute(c, d):
    sub = c.mkdir(d, "sub")
    inherited = c.ok(putfh(d), getxattr("weft.policy")).value
    c.ok(putfh(d), setxattr("weft.policy", "mirrors=2,unit=2M,stripes=2"))
    for fh in (d, sub):
        check(c.ok(putfh(fh), getxattr("weft.policy")).value, b"stripes=2,unit=2M,mirrors=2")
        check(c.ok(putfh(fh), listxattrs()).names, [])
    c.ok(putfh(sub), setxattr("weft.policy", "stripes=4"))
    check(c.ok(putfh(sub), getxattr("weft.policy")).value, b"stripes=4,unit=1M,mirrors=1")
    c.ok(putfh(sub), removexattr("weft.policy"))
    check(c.ok(putfh(sub), getxattr("weft.policy")).value, b"stripes=2,unit=2M,mirrors=2")
    c.ok(putfh(d), removexattr("weft.policy"))
    check(c.ok(putfh(sub), getxattr("weft.policy")).value, inherited)


def test_policies_that_cannot_be(c, d):
    c.ok(putfh(d), setattr_(mode=0o777))
    for bad in ("", "x", "stripes=0", "stripes=", "unit=1", "unit=3M", "unit=512K", "unit=4G",
                "mirrors=0", "mirrors=5", "stripes=64", "stripes=2,stripes=3",
                "stripes=2,,mirrors=2", "stripes=-1", "color=red"):
        c.no("INVAL", putfh(d), setxattr("weft.policy", bad))
    c.no(("PERM", "ACCESS"), putfh(d), setxattr("weft.policy", "stripes=2"), cred=USER)
    c.ok(putfh(d), setattr_(owner="1000"), setxattr("weft.policy", "stripes=1"))
    c.ok(putfh(d), setxattr("weft.policy", "stripes=2,unit=2G"), cred=USER)


def test_the_layout_attribute(c, d):
    c.ok(putfh(d), setxattr("weft.policy", "stripes=2,mirrors=2"))
    s, f = c.open(d, "f")
    c.ok(putfh(f), write(s, 0, bytes(1 << 20)))
    c.ok(putfh(f), write(s, 1 << 20, bytes(1 << 19)), commit())
    got = json.loads(c.ok(putfh(f), getxattr("weft.layout")).value)
    check((got["version"], got["size"], got["unit"], len(got["mirrors"])), (1, 3 << 19, 1 << 20, 2))
    check(got["inode"], c.attrs(f, "fileid").fileid)
    servers = set()
    for m in got["mirrors"]:
        check((m["state"], len(m["objects"])), ("in-sync", 2))
        for o in m["objects"]:
            check(o["state"], "in-sync")
            check({"ds", "id", "addr", "object", "size"} - set(o), set())
            servers.add(o["ds"])
    check(servers, {"ds1", "ds2", "ds3", "ds4"})
    c.no("PERM", putfh(f), setxattr("weft.layout", "{}"))
    c.no("PERM", putfh(f), removexattr("weft.layout"))
    check(c.ok(putfh(f), listxattrs()).names, [])


# ---- layouts (18.40 to 18.44 and RFC 8435)


def test_a_layout_is_the_whole_file_whatever_is_asked(c, d):
    s, f = c.open(d, "f")
    for iomode in (IO_READ, IO_RW):
        for offset, length, least in ((0, MAX64, 0), (0, 4096, 4096), (4096, 8192, 1),
                                      (1 << 40, MAX64, 4096), (0, 0, 0)):
            lay(c, f, s, iomode, offset=offset, length=length, minlength=least)


def test_a_striped_and_mirrored_layout(c, d):
    s, f, o = striped(c, d, "stripes=2,unit=4M,mirrors=2")
    check((o.unit, [len(m) for m in o.mirrors]), (4 << 20, [2, 2]))
    check(len({x.deviceid for m in o.mirrors for x in m}), 4)
    check(len({x.fhs[0] for m in o.mirrors for x in m}), 4)
    again = lay(c, f, s)
    check([[x.deviceid for x in m] for m in again.mirrors],
          [[x.deviceid for x in m] for m in o.mirrors])


def test_devices_are_named_once_and_have_addresses(c, d):
    s, f, o = striped(c, d, "stripes=4")
    ports = set()
    for x in o.mirrors[0]:
        got = device(c, x.deviceid)
        ports |= {uaddr(a)[1] for _, a in got.addrs}
        check(vars(got)["addrs"], vars(device(c, x.deviceid))["addrs"])
    check(len(ports), 4)


def test_getdeviceinfo_errors(c, d):
    deviceid = lay(c, *reversed(c.open(d, "f"))).mirrors[0][0].deviceid
    c.no("NOENT", getdeviceinfo(b"\xee" * 16))
    c.no("UNKNOWN_LAYOUTTYPE", getdeviceinfo(deviceid, kind=1))
    got = c.no("TOOSMALL", getdeviceinfo(deviceid, maxcount=8))
    c.ok(getdeviceinfo(deviceid, maxcount=got.mincount))
    c.no("TOOSMALL", getdeviceinfo(deviceid, maxcount=got.mincount - 1))
    check(c.ok(getdeviceinfo(deviceid, maxcount=0)).body, b"")
    for notify in (set(), {1}, {2}):
        check(c.ok(getdeviceinfo(deviceid, notify=notify)).notify, notify)


def test_layoutget_errors(c, d):
    s, f = c.open(d, "f")
    r, _ = c.open(d, "f", READ, owner=b"reader", how=None)
    for want, args in (("BADIOMODE", dict(iomode=IO_ANY)), ("BADIOMODE", dict(iomode=0)),
                       ("BADIOMODE", dict(iomode=4)), ("UNKNOWN_LAYOUTTYPE", dict(kind=1)),
                       ("UNKNOWN_LAYOUTTYPE", dict(kind=99)),
                       ("INVAL", dict(length=10, minlength=11)),
                       ("INVAL", dict(offset=MAX64, length=MAX64 - 1, minlength=2)),
                       ("INVAL", dict(offset=MAX64 - 5, length=10, minlength=1)),
                       ("TOOSMALL", dict(maxcount=20))):
        c.no(want, putfh(f), layoutget(s, **args))
    c.no("OPENMODE", putfh(f), layoutget(r, IO_RW))
    lay(c, f, r, IO_READ)
    for bad in (ANON, BYPASS, INVALID, CURRENT, (1, b"\x01" * 12)):
        c.no("BAD_STATEID", putfh(f), layoutget(bad))
    client().no("BAD_STATEID", putfh(f), layoutget(s))
    c.no(("BAD_STATEID", "INVAL", "WRONG_TYPE"), putfh(d), layoutget(s))


def test_a_layout_comes_with_open(c, d):
    r = c.ok(putfh(d), open_("f", BOTH | NO_DELEG, how=EXCLUSIVE4_1, verf=b"verifier",
                             attrs={"mode": 0o644}), getfh(),
             access(0x3f), getattr_("size"), layoutget(CURRENT, minlength=0))
    check((r.stateid[0], len(r.layouts), r.stateid[1] != r.all[1].stateid[1]), (1, 1, True))


def test_layout_stateids_count(c, d):
    s, f = c.open(d, "f")
    a = lay(c, f, s)
    b = lay(c, f, a.stateid)
    check((a.stateid[0], b.stateid), (1, (2, a.stateid[1])))
    check(lay(c, f, a.stateid, IO_READ).stateid, (3, a.stateid[1]),
          "requests under way together have one seqid")
    c.no("BAD_STATEID", putfh(f), layoutget((0, a.stateid[1])))
    c.no("BAD_STATEID", putfh(f), layoutreturn((0, a.stateid[1])))
    c.no(("BAD_STATEID", "OLD_STATEID"), putfh(f), layoutget((99, a.stateid[1])))
    check(c.ok(putfh(f), layoutreturn((3, a.stateid[1]), IO_READ)).stateid, (4, a.stateid[1]))
    check(lay(c, f, s, IO_READ).stateid[1], a.stateid[1])


def test_the_last_layoutreturn_ends_the_stateid(c, d):
    s, f = c.open(d, "f")
    o = lay(c, f, s)
    r = c.ok(putfh(f), layoutreturn(o.stateid), getattr_("size"))
    check((r.all[1].present, r.all[1].stateid), (False, None))
    for one in (layoutget(o.stateid), layoutreturn(o.stateid)):
        c.no("BAD_STATEID", putfh(f), one)
    c.no(("BAD_STATEID", "BADLAYOUT"), putfh(f), layoutcommit(o.stateid))
    check(err(c.ok(test_stateid(o.stateid)).statuses[0]), "BAD_STATEID")
    new = lay(c, f, s)
    check((new.stateid[0], new.stateid[1] != o.stateid[1]), (1, True))
    c.no("BAD_STATEID", putfh(f), layoutreturn(new.stateid), layoutget(CURRENT))


def test_layoutreturn_of_parts(c, d):
    s, f = c.open(d, "f")
    lay(c, f, s, IO_READ)
    o = lay(c, f, s, IO_RW)
    r = c.ok(putfh(f), layoutreturn(o.stateid, IO_RW))
    check((r.present, r.stateid), (True, (3, o.stateid[1])))
    c.ok(putfh(f), layoutreturn(r.stateid, IO_RW))
    r = c.ok(putfh(f), layoutreturn((4, o.stateid[1]), IO_READ, offset=0, length=4096))
    check(r.present, True, "the rest of the file is still held")
    check(c.ok(putfh(f), layoutreturn(r.stateid, IO_ANY)).present, False)


def test_layoutreturn_of_a_file_system_and_of_all(c, d):
    for how in (RET_FSID, RET_ALL):
        for name in "ab":
            s, f = c.open(d, name)
            o = lay(c, f, s)
        check(c.ok(putfh(f), layoutreturn(iomode=IO_READ, how=how)).present, False)
        check(err(c.ok(test_stateid(o.stateid)).statuses[0]), "OK")
        check(c.ok(putfh(f), layoutreturn(how=how)).present, False)
        check(err(c.ok(test_stateid(o.stateid)).statuses[0]), "BAD_STATEID")
        c.ok(putfh(f), layoutreturn(how=how))


def test_layoutreturn_errors(c, d):
    s, f = c.open(d, "f")
    o = lay(c, f, s)
    for want, args in (("INVAL", dict(iomode=0)), ("INVAL", dict(iomode=7)),
                       ("NO_GRACE", dict(reclaim=True)), ("UNKNOWN_LAYOUTTYPE", dict(kind=1)),
                       ("BADXDR", dict(body=u32(1))), ("BADXDR", dict(body=u32(9) + u32(0)))):
        c.no(want, putfh(f), layoutreturn(o.stateid, **args))
    for how in (RET_ALL, RET_FSID):
        c.no("INVAL", putfh(f), layoutreturn(how=how, reclaim=True))
    c.no("NOFILEHANDLE", layoutreturn(how=RET_FSID))
    c.ok(layoutreturn(how=RET_ALL, iomode=IO_READ))
    for bad in (s, (1, b"\x01" * 12), BYPASS, INVALID):
        c.no("BAD_STATEID", putfh(f), layoutreturn(bad))
    c.ok(putfh(f), layoutreturn(o.stateid))


def layoutupdate(server):
    """ff_layoutupdate4 (RFC 8435, 9.2.1)."""
    latency = u64(1) * 5 + nfstime((0, 5)) * 2
    return (opaque("tcp") + opaque("127.0.0.1.47.18") + opaque(server.fhs[0]) + latency * 2
            + nfstime((1, 2)) + boolean(True))


def iostats(sid, server):
    """ff_iostats4: io_info4 of reads and writes are two numbers each."""
    return u64(0) + u64(MAX64) + stateid(sid) + u64(7) * 4 + server.deviceid + layoutupdate(server)


def test_a_layoutreturn_reports_errors_and_statistics(c, d):
    s, f, o = striped(c, d, "mirrors=2")
    a, b = o.mirrors[0][0], o.mirrors[1][0]
    errors = [(0, 4096, o.stateid, [(a.deviceid, 5, NUM["READ"])]),
              (0, MAX64, s, [(b.deviceid, 6, NUM["READ"])])]
    body = ff_return(errors, array([iostats(o.stateid, a), iostats(s, b)]))
    for bad in (body[:-4], body[:8]):
        c.no("BADXDR", putfh(f), layoutreturn(o.stateid, body=bad))
    check(c.ok(putfh(f), layoutreturn(o.stateid, body=body), getattr_("size")).all[1].present,
          False)
    o = lay(c, f, s)
    check(len(o.mirrors), 2)
    body = ff_return([(0, MAX64, o.stateid, [(b.deviceid, 28, NUM["WRITE"])])])
    c.ok(putfh(f), layoutreturn(o.stateid, body=body))
    check([m[0].deviceid for m in lay(c, f, s).mirrors], [a.deviceid])


def layoutstats(sid, server):
    body = layoutupdate(server)
    return op("LAYOUTSTATS", u64(0), u64(MAX64), stateid(sid), u64(7) * 4, server.deviceid,
              u32(FLEX), opaque(body))


def test_reports_come_several_in_a_compound(c, d):
    s, f, o = striped(c, d, "stripes=2,mirrors=2")
    servers = [x for m in o.mirrors for x in m]
    c.ok(putfh(f), *[layoutstats(o.stateid, x) for x in servers], getattr_("size"))
    c.ok(putfh(f), *[layouterror(o.stateid, [(x.deviceid, 5, NUM["READ"])]) for x in servers],
         getattr_("size"))
    c.no("BADXDR", putfh(f), op("LAYOUTERROR", u64(0), u64(MAX64), stateid(o.stateid), u32(1)))


def test_a_report_about_a_layout_that_is_gone_changes_nothing(c, d):
    s, f, o = striped(c, d, "mirrors=2")
    c.ok(putfh(f), layoutreturn(o.stateid))
    for sid in (o.stateid, s, (1, b"\x01" * 12)):
        c.call(putfh(f), layouterror(sid, [(o.mirrors[0][0].deviceid, 5, NUM["WRITE"])]))
    check(len(lay(c, f, s).mirrors), 2)


def test_a_layout_hint_says_how_many_mirrors(c, d):
    """RFC 8435, 12.1; a hint that cannot be followed leaves the policy's number."""
    for hint, mirrors in ((2, 2), (3, 3), (None, 1), (0, 1), (77, 1), (1 << 31, 1)):
        for how in (UNCHECKED, GUARDED, EXCLUSIVE4_1):
            name = f"h{hint}.{how}"
            f = c.ok(putfh(d), open_(name, BOTH | NO_DELEG, how=how, attrs={"layout_hint": hint},
                                     verf=b"12345678"), getfh()).fh
            check(len(json.loads(c.ok(putfh(f), getxattr("weft.layout")).value)["mirrors"]),
                  mirrors, f"hint {hint}")
    c.no("INVAL", putfh(d), create(DIR, "hinted", layout_hint=2))
    s, f = c.open(d, "there")
    c.no("INVAL", putfh(f), setattr_(layout_hint=2))
    c.no("INVAL", putfh(f), getattr_("layout_hint"))
    c.no("BADXDR", putfh(d),
         open_("bad", BOTH | NO_DELEG, how=UNCHECKED, attrs={"raw": {63: u32(4) + opaque(u32(1))}}))
    c.ok(putfh(d),
         open_("other", BOTH | NO_DELEG, how=UNCHECKED, attrs={"raw": {63: u32(1) + opaque(b"x")}}))


def test_a_failed_write_to_a_mirror_makes_it_stale(c, d):
    s, f, o = striped(c, d, "mirrors=2")
    bad, good = o.mirrors[1][0], o.mirrors[0][0]
    change = c.attrs(f, "change").change
    c.ok(putfh(f), layouterror(o.stateid, [(bad.deviceid, 5, NUM["WRITE"])]))
    check([[x.deviceid for x in m] for m in lay(c, f, s).mirrors], [[good.deviceid]])
    states = [m["state"]
              for m in json.loads(c.ok(putfh(f), getxattr("weft.layout")).value)["mirrors"]]
    check(sorted(states), ["in-sync", "stale"])
    check(c.attrs(f, "change").change > change, True)
    # The last copy stays; the client hears of the error.
    c.ok(putfh(f), layouterror(lay(c, f, s).stateid, [(good.deviceid, 5, NUM["WRITE"])]))
    c.no("IO", putfh(f), layoutget(s))


def test_what_the_last_copy_failed_with_ends_at_the_application(c, d):
    """This holds for STALE and BADHANDLE too: the client has no guard against asking again for
    ever. The server waits for a data server that it cannot reach."""
    for status, want in ((70, "STALE"), (10001, "IO"), (10006, "SERVERFAULT"), (69, "DQUOT"),
                         (28, "NOSPC"),
                         # FBIG, ROFS: WRITE tells them.
                         (27, "LAYOUTUNAVAILABLE"), (30, "LAYOUTUNAVAILABLE"), (6, None)):
        s, f, o = striped(c, d, "mirrors=1", name=f"last{status}")
        c.ok(putfh(f), layouterror(o.stateid, [(o.mirrors[0][0].deviceid, status, NUM["WRITE"])]))
        if want:
            c.no(want, putfh(f), layoutget(s))
        else:
            c.ok(putfh(f), layoutget(s))


def test_a_return_with_twenty_errors_may_have_had_more(c, d):
    """Linux cuts the list off there, and READ errors come first. The server believes one copy and
    makes the others from it."""
    def returned(n, name, what="READ", iomode=IO_RW):
        s, f, _ = striped(c, d, "mirrors=2", name=name)
        o = lay(c, f, s, iomode)
        one = o.mirrors[0][0].deviceid
        c.ok(putfh(f), layoutreturn(o.stateid, body=ff_return(
            [(k << 20, 4096, o.stateid, [(one, 5, NUM[what])]) for k in range(n)])))
        return sorted(m["state"]
                      for m in json.loads(c.ok(putfh(f), getxattr("weft.layout")).value)["mirrors"])
    check(returned(19, "nineteen"), ["in-sync", "in-sync"])
    check(returned(20, "twenty"), ["in-sync", "stale"])
    check(returned(100, "hundred"), ["in-sync", "stale"])
    # What the client cannot reach itself is not what it is left with.
    for n in range(8):
        s, f, o = striped(c, d, "mirrors=3", name=f"named{n}")
        bad = o.mirrors[n % 3][0].deviceid
        c.ok(putfh(f), layoutreturn(o.stateid, body=ff_return(
            [(k << 20, 4096, o.stateid, [(bad, 5, NUM["READ"])]) for k in range(20)])))
        check([m[0].deviceid != bad for m in lay(c, f, s).mirrors], [True], n)
    s, f, o = striped(c, d, "mirrors=3", name="errors")
    # A LAYOUTERROR carries as many errors as it says. Of those that find no room, the server knows
    # only that there are more.
    a, b = (m[0].deviceid for m in o.mirrors[:2])
    c.ok(putfh(f), layouterror(o.stateid, [(a, 5, NUM["READ"])] * 64))
    o = lay(c, f, s)
    check(len(o.mirrors), 3)
    c.ok(putfh(f), layouterror(o.stateid, [(a, 5, NUM["READ"])] * 64 + [(b, 5, NUM["WRITE"])]))
    check(len(lay(c, f, s).mirrors), 1)


def test_who_does_not_write_reports_no_failed_write(c, d):
    s, f, o = striped(c, d, "mirrors=2")
    c.ok(putfh(f), layoutreturn(o.stateid))
    reader = client()
    r = reader.ok(putfh(f), open_(claim_fh(), READ | NO_DELEG))
    mine = lay(reader, f, r.stateid, IO_READ)
    change = c.attrs(f, "change").change
    errors = [(m[0].deviceid, 5, NUM["WRITE"]) for m in mine.mirrors]
    for e in errors:
        reader.ok(putfh(f), layouterror(mine.stateid, [e]))
    check(c.attrs(f, "change").change, change)
    check(len(lay(c, f, s).mirrors), 2)


def test_who_may_not_read_gets_no_layout_that_reads(c, d):
    s, f, o, ds, fh = one_server(c, d)
    ds.write(fh, 0, b"secret")
    c.ok(putfh(f), setattr_(mode=0o622), close(s))
    w = client()
    got = w.ok(putfh(f), open_(claim_fh(), WRITE | NO_DELEG), cred=USER)
    w.no("OPENMODE", putfh(f), layoutget(got.stateid, IO_READ), cred=USER)
    r = w.ok(putfh(f), layoutget(got.stateid, IO_RW), cred=USER)
    mine = ff_layout(r.layouts[0].body).mirrors[0][0].fhs[0]
    check(ds.write(mine, 6, b"more").status, 0)
    check(ds.read(mine, 0, 6).status != 0, True, "the data server reads to who may only write")


def test_a_failed_read_changes_nothing(c, d):
    s, f, o = striped(c, d, "mirrors=2")
    for x in (o.mirrors[0][0], o.mirrors[1][0]):
        c.ok(putfh(f),
             layouterror(o.stateid, [(x.deviceid, 5, NUM["READ"]), (x.deviceid, 6, 10044)]))
    check(len(lay(c, f, s).mirrors), 2)


def test_data_written_to_the_data_server_is_the_files(c, d):
    s, f, o, ds, fh = one_server(c, d)
    data = os.urandom(100000)
    got = ds.write(fh, 0, data)
    check((got.status, got.count, got.how), (0, len(data), FILE_SYNC))
    for one in (c, client()):
        check(one.attrs(f, "size").size, len(data), "size while the layout is out")
    check(c.ok(putfh(f), read(s, 5, 200000)).data, data[5:])
    got = ds.write(fh, len(data), b"more", UNSTABLE)
    check(ds.commit(fh).verf, got.verf)
    r = c.ok(putfh(f), layoutreturn(o.stateid), getattr_("size"))
    check((r.all[1].present, r.attrs.size), (False, len(data) + 4))
    c.ok(putfh(f), write(s, 0, b"by the MDS"))
    o = lay(c, f, s, IO_READ)
    check(ds.read(o.mirrors[0][0].fhs[0], 0, 12).data, b"by the MDS" + data[10:12])


def test_stripes_lie_where_the_layout_says(c, d):
    s, f, o = striped(c, d, "stripes=2,unit=1M,mirrors=2")
    data = os.urandom(1 << 20)
    for i in range(3):
        c.ok(putfh(f), write(s, i << 20, data[i:] + data[:i], FILE_SYNC))
    for mirror in o.mirrors:
        for i in range(3):
            x = mirror[i % 2]
            got = data_server(c, x).read(x.fhs[0], i << 20, 1 << 20)
            check(got.data == data[i:] + data[:i], True, f"stripe {i}")


def test_holes_of_a_striped_file_are_zeros_at_the_data_servers(c, d):
    s, f, o = striped(c, d, "stripes=2,unit=1M")
    a, b = o.mirrors[0]
    check(data_server(c, b).write(b.fhs[0], (1 << 20) + 10, b"second stripe").status, 0)
    got = data_server(c, a).read(a.fhs[0], 0, 4096)
    check((got.status, got.data, got.eof), (0, bytes(4096), False))
    got = data_server(c, b).read(b.fhs[0], 1 << 20, 4096)
    check((got.data, got.eof), (bytes(10) + b"second stripe", True))
    check(c.ok(putfh(f), setattr_(s, size=(2 << 20) + 5), read(s, 2 << 20, 100)).data, bytes(5))


def test_times_and_change_follow_writes_to_the_data_server(c, d):
    s, f, o, ds, fh = one_server(c, d)
    seen = c.attrs(f, "change", "time_modify")
    for i in range(3):
        check(ds.write(fh, 0, b"x").status, 0)  # the size stays
        now = c.attrs(f, "change", "time_modify")
        check((now.change > seen.change, now.time_modify >= seen.time_modify), (True, True))
        check(c.attrs(f, "change").change, now.change, "change without a write")
        seen = now
    ds.write(fh, 0, b"y")
    c.ok(putfh(f), setattr_(time_modify_set=(1000, 5)))
    check(c.attrs(f, "time_modify").time_modify, (1000, 5), "a time that was set")
    c.ok(putfh(f), layoutcommit(o.stateid, last=0, length=1), layoutreturn(o.stateid))
    check(c.attrs(f, "time_modify").time_modify, (1000, 5), "after LAYOUTCOMMIT and LAYOUTRETURN")


def test_two_clients_write_one_file(c, d):
    s, f, o, ds, fh = one_server(c, d)
    two = client()
    mine = lay(two, f, two.open(d, "f")[0])
    check((mine.mirrors[0][0].deviceid, mine.mirrors[0][0].fhs[0] != fh),
          (o.mirrors[0][0].deviceid, True))
    for i in range(10):
        check((ds.write(fh, 2 * i, b"a").status,
               ds.write(mine.mirrors[0][0].fhs[0], 2 * i + 1, b"b").status), (0, 0))
    check(c.ok(putfh(f), read(s, 0, 100)).data, b"ab" * 10)
    check(ds.read(lay(two, f, mine.stateid, IO_READ).mirrors[0][0].fhs[0], 0, 4).data, b"abab")
    check((c.callbacks, two.callbacks), ([], []))


def test_io_through_the_metadata_server_and_layouts_mix(c, d):
    s, f, o = striped(c, d, "stripes=2,mirrors=2,unit=1M")
    two = client()
    s2, _ = two.open(d, "f")
    # The layout comes back once: two write the file, and all are to have the same first copy.
    returns_when_recalled(c, f)
    for i in range(4):
        two.until(lambda got: err(got.status) != "DELAY", putfh(f),
                  write(s2, (i << 20) - 3 if i else 0, b"mds%d--" % i, FILE_SYNC))
    c.wait_callback("LAYOUTRECALL")
    o = settled(c, f, s)
    for m in o.mirrors:
        x = m[1]
        check(data_server(c, x).write(x.fhs[0], (1 << 20) + 3, b"direct").status, 0)
    check(two.ok(putfh(f), read(s2, (1 << 20) - 3, 12)).data, b"mds1--direct")
    check(two.attrs(f, "size").size, (3 << 20) + 3)
    # Until the copies are compared, who reads has the first one only.
    c.ok(putfh(f), layoutreturn(o.stateid))
    both = []

    def compared():
        both[:] = settled(c, f, s, IO_READ).mirrors
        return len(both) == 2
    eventually(compared, 30, "a layout for reading with both copies")
    for m in both:
        check(data_server(c, m[0]).read(m[0].fhs[0], 2 << 20, 3).data, b"2--")


def test_a_read_layout_cannot_write(c, d):
    s, f, o, ds, fh = one_server(c, d, iomode=IO_READ)
    check(ds.write(fh, 0, b"x").status, 13)
    check(ds.read(fh, 0, 10).status, 0)


def test_old_kernels_get_no_stripes(c, d):
    s, f, o = striped(c, d, "stripes=4")
    for release in ("6.1.0-18-amd64", "6.12.9", "6.17.13"):
        old = client(release=release)
        so, _ = old.open(d, "f")
        got = old.call(putfh(f), layoutget(so))
        check(err(got.status), "LAYOUTUNAVAILABLE", release)
        data = release.ljust(20).encode()
        old.ok(putfh(f), write(so, 3 << 20, data))
        check(c.ok(putfh(f), read(s, 3 << 20, 20)).data, data)
    for release in ("6.18.0", "7.2.13", "10.0.1"):
        new = client(release=release)
        check(len(lay(new, f, new.open(d, "f")[0]).mirrors[0]), 4)
    old = client(release="6.1.0")
    so, g = old.open(d, "new")
    got = old.call(putfh(g), layoutget(so))
    if not got.status:
        check(len(ff_layout(got.results[-1].layouts[0].body).mirrors[0]), 1)
    else:
        check(err(got.status), "LAYOUTUNAVAILABLE")


def test_stripes_are_for_clients_that_are_known_to_stripe(c, d):
    """A client that says nothing of itself, as FreeBSD does, would write the whole file at the
    first server, so its data goes through the metadata server."""
    data = random.Random(3).randbytes(2 << 20)
    for i, impl in enumerate((None, ("freebsd.org", "FreeBSD 15"), ("kernel.org", "Linux"),
                              ("", ""), ("weft", "libweft2"), ("weft", "x" * 1000))):
        other = client(impl=impl)
        s, f = other.open(d, f"f{i}")
        c.ok(putfh(d), setxattr("weft.policy", "stripes=2,unit=1M"))
        s, f = other.open(d, f"striped{i}")
        other.no("LAYOUTUNAVAILABLE", putfh(f), layoutget(s))
        other.ok(putfh(f), write(s, 0, data[:1 << 20], UNSTABLE), commit())
        other.ok(putfh(f), write(s, 1 << 20, data[1 << 20:], UNSTABLE), commit(), close(s))
        mine, f = c.open(d, f"striped{i}")
        o = lay(c, f, mine, IO_READ)
        got = b"".join(data_server(c, x).read(x.fhs[0], k << 20, 1 << 20).data for k,
                       x in enumerate(o.mirrors[0]))
        check(got == data, True, f"{impl}: what a client that stripes reads")
        c.ok(putfh(f), layoutreturn(o.stateid), close(mine))
        c.ok(putfh(d), setxattr("weft.policy", "stripes=1"))
        s, f = other.open(d, f"plain{i}")
        check(len(lay(other, f, s).mirrors[0]), 1, "layouts without stripes are everybody's")
    c.ok(putfh(d), setxattr("weft.policy", "stripes=2,unit=1M"))
    for impl in (("weft", "libweft"), ("kernel.org", "Linux 6.18.0 #1")):
        other = client(impl=impl)
        check(len(lay(other, other.open(d, "striped0")[1],
                      other.open(d, "striped0")[0]).mirrors[0]), 2, impl)


def test_a_striped_handle_is_for_its_stripe_alone(c, d):
    """A client that is known to stripe may still not do it. A data server refuses it what belongs
    to another server, and others lose nothing of it."""
    for shape, count in (("stripes=4,unit=1M", 4), ("stripes=2,mirrors=2,unit=2M", 2)):
        s, f, o = striped(c, d, shape, shape)
        check({x.fhs[0][0] >> 4 for m in o.mirrors for x in m}, {3}, "a capability of version 2")
        for m in o.mirrors:
            for k, x in enumerate(m):
                check((1 << x.fhs[0][4], x.fhs[0][5], x.fhs[0][2]), (o.unit, count, k),
                      "unit, stripes, stripe")
                ds = data_server(c, x)
                for unit in range(2 * count):
                    want = 0 if unit % count == k else 22
                    check(ds.write(x.fhs[0], unit * o.unit, b"w" * 4096).status, want,
                          f"WRITE in unit {unit}")
                    check(ds.write(x.fhs[0], (unit + 1) * o.unit - 1, b"w").status, want)
                    check(ds.read(x.fhs[0], unit * o.unit, 4096).status, want,
                          f"READ in unit {unit}")
                check(ds.write(x.fhs[0], (k + 1) * o.unit - 1, b"ww").status, 22,
                      "across a unit's end")
        c.ok(putfh(f), layoutreturn(o.stateid), close(s))
        s, f = c.open(d, shape, BOTH, how=None)
        size = 2 * count * o.unit
        check(c.attrs(f, "size").size, size)
        check(c.ok(putfh(f), read(s, size - 3, 10)).data, b"\0\0w")
    s, f, o, ds, fh = (one_server(c, d, "plain")
                       if c.ok(putfh(d), setxattr("weft.policy", "stripes=1")) else None)
    check((fh[0] >> 4, fh[4], fh[5]), (3, 0, 1))
    check(ds.write(fh, 5 << 20, b"anywhere").status, 0)


def restart_an_administrator_names_clients_that_stripe(w):
    w.dev("down", w.dir)
    w.dev("up", w.dir, "--set", "mds.striping_clients=FreeBSD 16,  Some NFS ,")
    c = client()
    d = c.mkdir(c.root(), "d")
    c.ok(putfh(d), setxattr("weft.policy", "stripes=2,unit=1M"))
    for name, want in (("FreeBSD 16.1", "OK"), ("Some NFS", "OK"), ("Some NFSv5", "OK"),
                       ("FreeBSD 15", "LAYOUTUNAVAILABLE"), ("some NFS", "LAYOUTUNAVAILABLE")):
        other = client(impl=("x", name))
        s, f = other.open(d, "f")
        check(err(other.call(putfh(f), layoutget(s)).status), want, name)


def test_layoutcommit_tells_a_new_size(c, d):
    s, f, o, ds, fh = one_server(c, d)
    ds.write(fh, 0, bytes(5000))
    r = c.ok(putfh(f), layoutcommit(o.stateid, last=4999, length=5000), getattr_("size"))
    check((r.all[1].newsize in (None, 5000), r.attrs.size), (True, 5000))
    r = c.ok(putfh(f), layoutcommit(o.stateid, last=99, length=100), getattr_("size"))
    check((r.all[1].newsize in (None, 5000), r.attrs.size), (True, 5000), "it never shrinks")
    check(err(c.ok(test_stateid(o.stateid)).statuses[0]), "OK")


def test_layoutcommit_errors(c, d):
    s, f, o, ds, fh = one_server(c, d)
    for bad in ((1, b"\x01" * 12), ANON, s):
        c.no(("BAD_STATEID", "BADLAYOUT"), putfh(f), layoutcommit(bad))
    c.no("NO_GRACE", putfh(f), layoutcommit(o.stateid, reclaim=True))
    c.no(("INVAL", "BADLAYOUT"), putfh(f), layoutcommit(o.stateid, last=5000, length=100))
    c.no("UNKNOWN_LAYOUTTYPE", putfh(f), layoutcommit(o.stateid, kind=1))
    s2, g = c.open(d, "g")
    r = lay(c, g, s2, IO_READ)
    c.no("BADIOMODE", putfh(g), layoutcommit(r.stateid, last=9, length=10))


def test_who_creates_a_file_is_told_its_size_without_a_question_to_data_servers(c, d):
    def asked():
        return sum(harness.THE.metric("weft_rpc_calls_total", name)
                   for name in harness.THE.where if name.startswith("ds"))

    def calm():  # what other tests have left is asked about, and deleted
        was = asked()
        time.sleep(0.4)
        return asked() == was

    eventually(calm, 20, "silence")
    before = asked()
    r = c.ok(putfh(d), open_("f", BOTH | NO_DELEG, how=GUARDED, attrs={"mode": 0o600}), getfh(),
             access(0x3f), getattr_("size"), layoutget(CURRENT, minlength=0))
    check((asked() - before, r.all[4].attrs.size), (0, 0))
    c.ok(putfh(r.all[2].fh), getattr_("size"))
    check(asked() - before, 1, "with a layout out")


def test_a_layout_outlives_close_until_returned(c, d):
    s, f, o, ds, fh = one_server(c, d)
    check(o.return_on_close, True)
    c.ok(putfh(f), close(s))
    check(ds.write(fh, 0, b"still").status, 0)
    check(err(c.ok(test_stateid(o.stateid)).statuses[0]), "OK")
    c.ok(putfh(f), layoutreturn(o.stateid))


def test_a_voluntary_return_does_not_fence_others(c, d):
    s, f, o, ds, fh = one_server(c, d)
    two = client()
    mine = lay(two, f, two.open(d, "f")[0])
    c.ok(putfh(f), layoutreturn(o.stateid))
    check(ds.write(mine.mirrors[0][0].fhs[0], 0, b"x").status, 0)
    check(two.callbacks, [])


def test_handles_of_the_data_server_are_guarded(c, d):
    s, f, o, ds, fh = one_server(c, d)
    for i in range(len(fh)):
        bad = fh[:i] + bytes([fh[i] ^ 1]) + fh[i + 1:]
        check(ds.write(bad, 0, b"x").status in (10001, 13, 70), True, f"byte {i}")
    check(ds.read(fh[:-1], 0, 1).status, 10001)
    check(ds.write(fh, 0, b"x").status, 0)


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
    """RFC 8881, 8.4.2.4 and 2.10.6.1.3: the reply that carried it is lost, and was too long to be
    cached without a request for that."""
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
    began = time.monotonic()
    two.ok(putfh(f), setattr_(ANON, size=7))
    took = time.monotonic() - began
    check(0.8 < took < 2.5, True, f"took {took:.1f} s with a deadline of 1 s")
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
    eventually(lambda: c.ok(putrootfh()) and c.status_flags & 0x201, 1, "SEQ4_STATUS_CB_PATH_DOWN")
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
        h.wait_callback("LAYOUTRECALL", 1)


def test_removing_a_file_takes_its_data_away(c, d):
    s, f, o, ds, fh = one_server(c, d)
    ds.write(fh, 0, b"data")
    returns_when_recalled(c, f)
    c.ok(putfh(f), close(s))
    two = client()
    two.ok(putfh(d), remove("f"))
    eventually(lambda: ds.write(fh, 0, b"x").status in (13, 70), 3, "the removal of the object")
    eventually(lambda: ds.read(fh, 0, 1).status == 70, 3, "the removal of the object")


def test_a_change_of_owner_recalls(c, d):
    s, f, o, ds, fh = one_server(c, d)
    returns_when_recalled(c, f)
    client().ok(putfh(f), setattr_(owner="1000", mode=0o600))
    c.wait_callback("LAYOUTRECALL", 2)


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
    new = eid(c, c.owner, b"restart.")
    first(c, "OK", create_session(new.clientid, new.seq))
    eventually(lambda: ds.write(fh, 0, b"y").status == 13, 3, "the fence of the old incarnation")
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


# ---- mechanics


def test_a_retry_while_the_first_is_under_way_does_nothing_twice(c, d):
    s, f, o, ds, fh = one_server(c, d)
    two = client()
    ops = (sequence(two.session.sessionid, 1, 5, 5, True), putfh(f), setattr_(ANON, size=7),
           getattr_("change"))
    xid = two.conn.start(1, compound_args(ops), auth_sys())
    c.wait_callback("LAYOUTRECALL")
    conn = two.connection()
    two.conns.append(conn)
    retry = conn.start(1, compound_args(ops), auth_sys())
    time.sleep(0.1)
    c.ok(putfh(f), layoutreturn((2, o.stateid[1])))
    one = two.conn.finish(xid)
    check(read_compound(one).status, 0)
    got = conn.finish(retry)
    check(got == one or err(read_compound(got).status) == "DELAY", True)
    check(raw(conn, *ops), one)
    check(len(c.callbacks), 0)


def test_a_reply_lost_with_its_connection_is_cached(c, d):
    s, f, o, ds, fh = one_server(c, d)
    two = client()
    ops = (sequence(two.session.sessionid, 1, 5, 5, True), putfh(f), setattr_(ANON, size=7),
           putfh(d), create(DIR, "x"))
    two.conn.start(1, compound_args(ops), auth_sys())
    c.wait_callback("LAYOUTRECALL")
    two.drop()
    c.ok(putfh(f), layoutreturn((2, o.stateid[1])))
    two.conns = [two.connection()]
    eventually(lambda: err(two.conn.compound(*ops).status) == "OK", 3, "the cached reply")
    check(c.attrs(f, "size").size, 7)


def test_nonsense_arguments_harm_nothing(c, d):
    rng = random.Random(1)
    fillers = [lambda n: bytes(n), lambda n: b"\xff" * n,
               lambda n: bytes(rng.choice((0, 0, 0, 1, 4, 255)) for _ in range(n))]
    for minor in (1, 2):
        one = client(minor=minor)
        for num in range(80):
            c.ok(putrootfh())  # it keeps its lease
            for n in (0, 4, 8, 16, 24, 40, 64, 100, 180):
                for fill in fillers:
                    try:
                        got = one.call(putfh(d), op(num, fill(n)))
                    except Rejected as e:
                        check(e.why, ("accepted", 4))
                        one = client(minor=minor)
                        continue
                    if got.results[0].status or err(got.status) == "SERVERFAULT":
                        raise Failed(f"{OPS.get(num, num)} with {n} bytes: {err(got.status)}")
    check([e.name for e in c.readdir_all(d)], [])


def test_bits_of_unknown_attributes_are_ignored_and_not_set(c, d):
    check(c.ok(putfh(d), getattr_(1, 95, 200, 1000)).attrs.bits, {1})
    c.no("ATTRNOTSUPP", putfh(d), setattr_(raw={200: u32(0)}))
    for e in c.readdir_all(c.root(), (1, 200)):
        check(e.attrs.bits, {1})


def test_creates_at_once_share_commits(c, d):
    many = [client() for _ in range(8)]
    before = harness.THE.metric("weft_mds_kv_commits")
    w = harness.THE
    pid = next(r["pid"] for r in json.loads(w.dev("status", w.dir, "--json"))["daemons"]
               if r["name"] == "mds")
    stand_still(pid)  # until all have come: a commit may be faster than this sends
    try:
        started = [(m, [m.begin(putfh(d), create(DIR, f"{i}.{j}", mode=0o700)) for j in range(16)])
                   for i, m in enumerate(many)]
    finally:
        os.kill(pid, signal.SIGCONT)
    for m, calls in started:
        for one in calls:
            check(m.finish(one).status, 0)
    commits = harness.THE.metric("weft_mds_kv_commits") - before
    check(len(c.readdir_all(d)), 128)
    if commits > 100:
        raise Failed(f"{commits} commits for 128 creates")


def test_callbacks_wait_for_their_slots(c, d):
    one = client(back=dict(reqs=1))
    names = [f"f{i}" for i in range(6)]
    fhs = []
    for name in names:
        s, f = one.open(d, name)
        lay(one, f, s)
        fhs.append(f)
    returns_when_recalled(one, None)
    for call in [c.begin(putfh(f), setattr_(ANON, size=7)) for f in fhs]:
        check(c.finish(call).status, 0)
    check(sorted(args.fh for args in one.callbacks), sorted(fhs))
    one.ok(putrootfh())
    check(one.status_flags & 0x40, 0)


def test_times_are_set_to_now_by_those_who_may_write(c, d):
    _, f = c.open(d, "f", attrs={"mode": 0o666, "time_modify_set": (1, 1)})
    c.ok(putfh(f), setattr_(time_modify_set=None, time_access_set=None), cred=USER)
    check(c.attrs(f, "time_modify").time_modify > (1000, 0), True)
    c.no("PERM", putfh(f), setattr_(time_modify_set=(1, 1)), cred=USER)
    c.no("PERM", putfh(f), setattr_(time_modify_set=None, time_access_set=(1, 1)), cred=USER)


def test_a_new_owner_gets_no_set_id_bits(c, d):
    _, f = c.open(d, "f", attrs={"mode": 0o6755})
    c.ok(putfh(f), setattr_(owner="1000"))
    check(c.attrs(f, "mode").mode, 0o755)
    sub = c.mkdir(d, "sub", attrs={"mode": 0o2755})
    c.ok(putfh(sub), setattr_(owner="1000"))
    check(c.attrs(sub, "mode").mode, 0o2755)


def test_delegation_wants_are_answered(c, d):
    other = client()
    other.open(d, "f", BOTH | NO_DELEG)
    for want in (0x100, 0x200, 0x300, 0x400, 0x500):
        got = c.ok(putfh(d), open_("f", READ | want, owner=b"w%d" % want))
        check(got.deleg, 3, "OPEN_DELEGATE_NONE_EXT")
        check(got.why, {0x400: 0, 0x500: 7}.get(want, 1), "NOT_WANTED, CANCELLED, CONTENTION")
    check(c.ok(putfh(d), open_("f", READ, owner=b"none")).deleg, 0)


def test_open_keeps_its_state_when_its_reply_ends_early(c, d):
    small = client(fore=dict(maxresp=900, cached=900))
    small.ok(putfh(d), create(LNK, "l", "x" * 800))
    got = small.call(putfh(d), open_("f", BOTH | NO_DELEG, how=GUARDED, attrs={"mode": 0o600}),
                     getfh(), putfh(d), lookup("l"), readlink(), cache=True)
    check(err(got.status) in ("REP_TOO_BIG", "REP_TOO_BIG_TO_CACHE"), True)
    small.ok(putfh(got.results[3].fh), write(got.results[2].stateid, 0, b"x"))


def at_once(*calls):
    """Sends (client, operations) together; the statuses."""
    started = [(one, one.begin(*ops)) for one, ops in calls]
    return [err(one.finish(s).status) for one, s in started]


def test_one_of_many_guarded_creates_wins(c, d):
    many = [client() for _ in range(6)]
    for i in range(20):
        make = open_(f"f{i}", BOTH | NO_DELEG, how=GUARDED, attrs={"mode": 0o600})
        got = at_once(*[(m, [putfh(d), make]) for m in many],
                      (c, [putfh(d), create(DIR, f"f{i}", mode=0o700)]))
        check(sorted(got), ["EXIST"] * 6 + ["OK"])


def test_renames_at_once_make_no_loop(c, d):
    two = client()
    for i in range(20):
        a, b = c.mkdir(d, "a"), c.mkdir(d, "b")
        got = at_once((c, [putfh(d), savefh(), putfh(b), rename("a", "a")]),
                      (two, [putfh(d), savefh(), putfh(a), rename("b", "b")]))
        check(sorted(got)[1], "OK")
        check(sorted(got)[0] in ("INVAL", "NOENT"), True, got)
        top, inner = (b"b", b"a") if got[0] == "OK" else (b"a", b"b")
        check([e.name for e in c.readdir_all(d)], [top])
        c.ok(putfh(d), lookup(top), remove(inner), putfh(d), remove(top))


def test_a_directory_is_not_removed_while_it_fills(c, d):
    two = client()
    for i in range(30):
        sub = c.mkdir(d, "sub")
        made, gone = at_once((c, [putfh(sub), create(FIFO, "x", mode=0o600)]),
                             (two, [putfh(d), remove("sub")]))
        check((made, gone) in (("OK", "NOTEMPTY"), ("STALE", "OK"), ("NOENT", "OK")), True,
              (made, gone))
        if made == "OK":
            c.ok(putfh(sub), remove("x"), putfh(d), remove("sub"))
    check((c.readdir_all(d), c.attrs(d, "numlinks").numlinks), ([], 2))


def test_links_and_removes_at_once_count_right(c, d):
    two = client()
    _, f = c.open(d, "f")
    for i in range(20):
        at_once((c, [putfh(f), savefh(), putfh(d), link(f"l{i}")]),
                (two, [putfh(d), remove(f"l{i - 1}")]),
                (c, [putfh(f), savefh(), putfh(d), link(f"m{i}")]),
                (two, [putfh(d), remove(f"m{i - 1}")]))
    check(c.attrs(f, "numlinks").numlinks, len(c.readdir_all(d)))


# ---- byte-range locks (RFC 8881, 18.10 to 18.12)


def test_a_lock_keeps_others_out(c, d):
    s, f = c.open(d, "f")
    two = client()
    s2, _ = two.open(d, "f")
    k = c.ok(putfh(f), lock(s, WRITE_LT, 10, 20, b"me")).stateid
    check(k[0], 1)
    got = two.no("DENIED", putfh(f), lock(s2, READ_LT, 0, 11, b"you"))
    # guess_test.py tests whose client it is.
    check((got.first, got.length, got.kind, got.owner), (10, 20, WRITE_LT, b"me"))
    got = two.no("DENIED", putfh(f), lockt(WRITE_LT, 29, 1, b"you"))
    check((got.first, got.length), (10, 20))
    two.ok(putfh(f), lockt(WRITE_LT, 30, 1, b"you"))
    two.no("DENIED", putfh(f), lock(s2, WRITEW_LT, 0, MAX64, b"you"))
    # another owner of the same client, and the owner itself
    c.no("DENIED", putfh(f), lockt(READ_LT, 15, 1, b"other"))
    c.ok(putfh(f), lockt(WRITE_LT, 15, 1, b"me"))
    k2 = two.ok(putfh(f), lock(s2, READ_LT, 30, MAX64, b"you")).stateid
    check(c.no("DENIED", putfh(f), lock(k, WRITE_LT, 100, 1)).length, MAX64)
    c.ok(putfh(f), lock(k, READ_LT, 100, 1))
    two.ok(putfh(f), locku(k2, 0, MAX64))
    check(c.ok(putfh(f), lock((2, k[1]), WRITE_LT, 100, 1)).stateid, (3, k[1]))


def test_locks_are_split_and_joined(c, d):
    s, f = c.open(d, "f")
    two = client()
    k = c.ok(putfh(f), lock(s, WRITE_LT, 0, 100, b"me")).stateid
    k = c.ok(putfh(f), locku(k, 40, 20)).stateid
    k = c.ok(putfh(f), lock(k, READ_LT, 80, 10)).stateid
    def held(first, length):
        got = two.call(putfh(f), lockt(WRITE_LT, first, length, b"you")).results[-1]
        return (got.first, got.length, got.kind) if got.status else None
    check([held(*w) for w in ((0, 1), (40, 20), (60, 1), (85, 1), (95, 1), (100, 5))],
          [(0, 40, WRITE_LT), None, (60, 20, WRITE_LT), (80, 10, READ_LT), (90, 10, WRITE_LT),
           None])
    c.ok(putfh(f), lock(k, WRITE_LT, 40, 60))
    check(held(99, 1), (0, 100, WRITE_LT))


def test_lock_errors(c, d):
    s, f = c.open(d, "f")
    r, _ = c.open(d, "f", READ, owner=b"reader", how=None)
    c.no("INVAL", putfh(f), lock(s, WRITE_LT, 0, 0, b"me"))
    c.no("INVAL", putfh(f), lock(s, WRITE_LT, 10, MAX64 - 1, b"me"))
    c.no("BADXDR", putfh(f), lock(s, 5, 0, 1, b"me"))
    c.no("INVAL", putfh(f), lockt(READ_LT, 5, 0))
    c.no("OPENMODE", putfh(f), lock(r, WRITE_LT, 0, 1, b"me"))
    c.no("NO_GRACE", putfh(f), lock(s, WRITE_LT, 0, 1, b"me", reclaim=True))
    for bad in (ANON, (1, b"\x01" * 12), INVALID):
        c.no("BAD_STATEID", putfh(f), lock(bad, WRITE_LT, 0, 1, b"me"))
        c.no("BAD_STATEID", putfh(f), locku(bad, 0, 1))
    c.no("BAD_STATEID", putfh(f), locku(s, 0, 1))
    client().no("BAD_STATEID", putfh(f), lock(s, WRITE_LT, 0, 1, b"me"))
    k = c.ok(putfh(f), lock(s, WRITE_LT, 0, 1, b"me")).stateid
    c.ok(putfh(f), lock(k, WRITE_LT, 5, 1))
    c.no("OLD_STATEID", putfh(f), lock(k, WRITE_LT, 7, 1))
    c.no("BAD_STATEID", putfh(f), lock((9, k[1]), WRITE_LT, 7, 1))
    c.no("ISDIR", putfh(d), lockt(READ_LT, 0, 1))
    c.no("NOFILEHANDLE", lockt(READ_LT, 0, 1))


def test_lock_stateids_stand_for_their_open(c, d):
    s, f = c.open(d, "f")
    k = c.ok(putfh(f), lock(s, WRITE_LT, 0, 10, b"me")).stateid
    c.ok(putfh(f), write(k, 0, b"locked"), read(k, 0, 6), setattr_(k, size=3))
    check(len(lay(c, f, k).mirrors), 1)
    check([err(x) for x in c.ok(test_stateid(k, s)).statuses], ["OK", "OK"])
    c.no("LOCKS_HELD", free_stateid(k))
    c.no("LOCKS_HELD", putfh(f), close(s))
    k = c.ok(putfh(f), locku(k)).stateid
    c.ok(free_stateid(k))
    check(err(c.ok(test_stateid(k)).statuses[0]), "BAD_STATEID")
    k = c.ok(putfh(f), lock(s, WRITE_LT, 0, 10, b"me")).stateid
    c.ok(putfh(f), locku(k, 0, 10))
    c.ok(putfh(f), close(s))
    c.no("BAD_STATEID", putfh(f), locku(k, 0, 10))


def test_one_lock_owner_has_one_stateid(c, d):
    s, f = c.open(d, "f")
    k = c.ok(putfh(f), lock(s, WRITE_LT, 0, 1, b"me")).stateid
    check(c.ok(putfh(f), lock(s, WRITE_LT, 5, 1, b"me")).stateid, (2, k[1]))


def test_who_waits_for_a_lock_is_told_when_it_may_be_had(c, d):
    """CB_NOTIFY_LOCK (section 20.11), which OPEN promises, comes once. A client that did not say it
    waits gets none."""
    s, f = c.open(d, "f")
    two = client()
    o = opened(two, d, "f")
    check(o.rflags & 0x20, 0x20, "OPEN4_RESULT_MAY_NOTIFY_LOCK")
    for kind, mine in ((WRITEW_LT, WRITE_LT), (READW_LT, WRITE_LT), (WRITEW_LT, READ_LT)):
        k = c.ok(putfh(f), lock(s, mine, 0, 10, b"holder")).stateid
        two.no("DENIED", putfh(f), lock(o.stateid, kind, 5, 10, b"waiter"))
        if kind == WRITEW_LT:
            two.no("DENIED", putfh(f), lock(o.stateid, WRITE_LT, 5, 10, b"asks"))
        k = c.ok(putfh(f), locku(k, 0, 5)).stateid
        time.sleep(0.2)
        check(two.callbacks, [], "it stands in the way still")
        c.ok(putfh(f), locku(k, 5, 5))
        got = two.wait_callback("NOTIFY_LOCK")
        check((got.fh, got.clientid, got.owner), (o.fh, two.clientid, b"waiter"))
        w = two.ok(putfh(f), lock(o.stateid, kind, 5, 10, b"waiter")).stateid
        two.ok(putfh(f), locku(w, 5, 10))
    k = c.ok(putfh(f), lock(s, WRITE_LT, 0, 10, b"holder")).stateid
    c.ok(putfh(f), locku(k, 0, 10))
    time.sleep(0.2)
    check(two.callbacks, [])


# ---- leases that ran out


@brief
def test_expired_clients_yield(c, d):
    """One pause for several tests: what a silent client holds is in nobody's way."""
    sub = [c.mkdir(d, n) for n in "abc"]
    silent = client()
    s, f, o, ds, fh = one_server(silent, sub[0])
    silent.open(sub[1], "denied", deny=BOTH)
    ls, lf = silent.open(sub[0], "locked")
    silent.ok(putfh(lf), lock(ls, WRITE_LT, 0, 10, b"dead"))
    s2, other, o2, ds2, fh2 = one_server(silent, sub[1], "other")
    courteous = client()
    kept, g = courteous.open(sub[2], "kept")
    time.sleep(2.6)
    check(ds2.write(fh2, 0, b"not yet").status, 0)
    c.until(lambda got: err(got.status) != "DELAY", putfh(sub[1]), open_("denied", READ | NO_DELEG))
    # The OPEN did not touch this file, so it does not wait for the file's fence.
    eventually(lambda: ds2.write(fh2, 0, b"evicted").status == 13, 60, "the fence of its layouts")
    c.until(lambda got: err(got.status) != "DELAY", putfh(f), setattr_(ANON, size=7))
    check([cb.name for cb in silent.callbacks], [], "a client that is gone is not asked")
    check(c.attrs(f, "size").size, 7)
    check(ds.write(fh, 0, b"late").status, 13)
    c.until(lambda got: err(got.status) != "DELAY", putfh(lf), lockt(WRITE_LT, 0, 1))
    got = silent.conn.compound(sequence(silent.session.sessionid, silent.slots[0] + 1, 0, 0))
    check(err(got.status) == "BADSESSION" or got.results[0].flags & 0x78 != 0, True,
          "the silent client is not told")
    courteous.ok(putfh(g), write(kept, 0, b"nobody was in the way"))


@brief
def test_what_a_dead_client_wrote_is_read(c, d):
    """No LAYOUTCOMMIT and no LAYOUTRETURN came: the size is the data servers'."""
    dead, data = client(), bytes(range(256)) * 400
    s, f, o, ds, fh = one_server(dead, d)
    s2, g, o2 = striped(dead, d, "stripes=2,mirrors=2", "striped")
    check(ds.write(fh, 0, data).status, 0)
    for m in o2.mirrors:
        check(data_server(dead, m[0]).write(m[0].fhs[0], 0, data).status, 0)
        check(data_server(dead, m[1]).write(m[1].fhs[0], 1 << 20, data).status, 0)
    dead.open(d, "denied", deny=BOTH)
    dead.drop()
    two = client()  # it has seen nothing of it

    def is_read():
        for fh_, at in ((f, 0), (g, 1 << 20)):
            got = two.until(lambda got: err(got.status) != "DELAY", putfh(fh_), getattr_("size"),
                            read(ANON, at, 1 << 20))
            check(got.results[2].attrs.size, at + len(data), "the size")
            check((got.results[3].eof, got.results[3].data == data), (True, True),
                  "what was written")
    is_read()  # of one that may still be alive
    time.sleep(2.6)
    is_read()  # whose lease is over
    two.until(lambda got: err(got.status) != "DELAY", putfh(d), open_("denied", READ | NO_DELEG))
    check(ds.write(fh, 0, b"late").status, 13)
    is_read()  # who is evicted


# ---- restart


def restart_ends_ids_of_before(w):
    c = client()
    d = c.mkdir(c.root(), "d")
    s, f = c.open(d, "f")
    session, clientid, seq = c.session.sessionid, c.clientid, c.cs_seq
    w.restart()
    c.drop()
    c.conns = [c.connection()]
    first(c, "BADSESSION", sequence(session, 3))
    first(c, "BADSESSION", bind_conn(session, 1))
    first(c, "STALE_CLIENTID", create_session(clientid, seq))
    first(c, "STALE_CLIENTID", destroy_clientid(clientid))
    scope, major = c.eid.scope, c.eid.major_id
    again(c)
    check((c.clientid != clientid, c.session.sessionid != session), (True, True))
    check((c.eid.scope, c.eid.major_id), (scope, major))
    # SEQUENCE does not set SEQ4_STATUS_RESTART_RECLAIM_NEEDED (section 18.46.3). It would tell a
    # client that has just made its session what making the session told it already.
    first(c, "OK", sequence(c.session.sessionid, 1, 5, 5))
    check(err(c.ok(test_stateid(s)).statuses[0]), "BAD_STATEID")
    new = reclaim(c, f)
    check(new[1] != s[1], True)
    c.no("GRACE", putfh(f), lock(new, WRITE_LT, 0, 5, b"me"))
    k = c.ok(putfh(f), lock(new, WRITE_LT, 0, 5, b"me", reclaim=True)).stateid
    c.no("RECLAIM_CONFLICT", putfh(f), lock(new, WRITE_LT, 4, 5, b"you", reclaim=True))
    c.no("BAD_STATEID", putfh(f), read(s, 0, 1))
    c.ok(reclaim_complete())
    check(c.ok(putrootfh()) and c.status_flags & 8, 0)
    c.until(lambda got: err(got.status) != "GRACE", putfh(f), lockt(READ_LT, 0, 1))
    c.no("DENIED", putfh(f), lockt(READ_LT, 4, 1, b"you"))
    c.no("NO_GRACE", putfh(f), lock(k, WRITE_LT, 20, 5, reclaim=True))


def restart_keeps_what_was_answered(w):
    c = client()
    d = c.mkdir(c.root(), "d")
    s, f = c.open(d, "f")
    for i in range(50):
        c.ok(putfh(d), create(FIFO, f"n{i}", mode=0o640))
    c.ok(putfh(f), write(s, 0, b"data", FILE_SYNC), setxattr("a", b"x"), putfh(d),
         setxattr("weft.policy", "mirrors=2"))
    c.ok(putfh(d), create(LNK, "l", "target"), putfh(d), remove("n7"), putfh(d), savefh(),
         rename("n8", "m8"))
    kw = dict(how=EXCLUSIVE4_1, verf=b"verifier", attrs={"mode": 0o640})
    x = opened(c, d, "x", **kw)
    stable = all_readable(c, d) - {ATTR[n] for n in """space_avail space_free files_avail files_free
        files_total space_used time_access""".split()}
    before = {e.name: (e.cookie, vars(e.attrs)) for e in c.readdir_all(d, stable)}
    verf = c.ok(putfh(f), write(s, 9, b"", UNSTABLE)).verf
    w.restart()
    again(c, True)
    after = {e.name: (e.cookie, vars(e.attrs)) for e in c.readdir_all(d, stable)}
    for name in before:
        check(after.get(name), before[name], name.decode())
    check(set(after), set(before))
    check(opened(c, d, "x", **kw).fh, x.fh)
    s, g = c.open(d, "f", how=None)
    check((g, c.ok(putfh(f), read(s, 0, 9)).data, c.ok(putfh(f), getxattr("a")).value),
          (f, b"data", b"x"))
    check(c.ok(putfh(d), getxattr("weft.policy")).value, b"stripes=1,unit=1M,mirrors=2")
    check(c.ok(putfh(f), commit()).verf != verf, True, "the write verifier stayed")


def restart_gives_grace_to_those_on_record(w):
    one, two, stranger = client(), client(), None
    d = one.mkdir(one.root(), "d")
    s1, f = one.open(d, "f", deny=WRITE)
    s2, g = two.open(d, "g")
    one.mkdir(d, "sub")
    w.restart()
    again(one)
    stranger = client(reclaim=False)
    for c in (one, stranger):
        for ops in ([putfh(d), open_("f")],
                    [putfh(d), open_("new", BOTH | NO_DELEG, how=GUARDED, attrs={"mode": 0o600})],
                    [putfh(f), open_(claim_fh())], [putfh(d), remove("g")],
                    [putfh(d), savefh(), rename("g", "h")], [putfh(g), setattr_(size=0)],
                    [putfh(g), read(ANON, 0, 1)], [putfh(g), write(ANON, 0, b"x")]):
            c.no("GRACE", *ops)
        c.ok(putfh(d), lookup("f"), getattr_("type", "size"), access(0x3f), putfh(d), readdir())
    stranger.no(("RECLAIM_BAD", "NO_GRACE"), putfh(f), open_(claim_previous(), BOTH | NO_DELEG))
    new = reclaim(one, f, deny=WRITE)
    one.no("GRACE", putfh(f), layoutget(new))
    one.ok(putfh(f), write(new, 0, b"in grace"), read(new, 0, 8))
    one.ok(reclaim_complete())
    one.no("NO_GRACE", putfh(f), open_(claim_previous(), BOTH | NO_DELEG))
    one.no("GRACE", putfh(d), open_("g"))
    again(two)
    two.no("RECLAIM_CONFLICT", putfh(f), open_(claim_previous(), BOTH | NO_DELEG))
    new2 = reclaim(two, g)
    two.ok(reclaim_complete())
    # All recorded clients are done: grace ends at once.
    stranger.ok(reclaim_complete())
    began = time.monotonic()
    stranger.until(lambda got: err(got.status) != "GRACE", putfh(d), open_("g"))
    check(time.monotonic() - began < 1, True, "grace went on")
    stranger.ok(putfh(d), open_("g"), putfh(d), remove("sub"))
    stranger.no("SHARE_DENIED", putfh(d), open_("f", WRITE | NO_DELEG))
    two.no("NO_GRACE", putfh(g), open_(claim_previous(), BOTH | NO_DELEG, 0, b"another"))
    lay(two, g, new2)


def restart_one_file_system_complete_ends_nothing(w):
    """RECLAIM_COMPLETE with rca_one_fs (section 18.51.3): neither grace nor what the client may
    reclaim."""
    one, two = client(), client()
    d = one.mkdir(one.root(), "d")
    _, f = one.open(d, "f")
    _, g = one.open(d, "g")
    _, h = two.open(d, "h")
    w.dev("down", w.dir)
    w.dev("up", w.dir, "--set", "mds.grace=20s")
    for c in (one, two):
        again(c)
        c.ok(putfh(h), reclaim_complete(True))
    one.no("GRACE", putfh(d), open_("f"))
    reclaim(one, f)
    two.ok(reclaim_complete())
    for c in (one, two):
        c.ok(putfh(f), reclaim_complete(True))
        c.no("GRACE", putfh(d), open_("f"))
    reclaim(one, g)
    one.ok(reclaim_complete())
    one.no("COMPLETE_ALREADY", reclaim_complete())
    two.until(lambda got: err(got.status) != "GRACE", putfh(d), open_("f", READ | NO_DELEG))
    one.no("NO_GRACE", putfh(g), open_(claim_previous(), BOTH | NO_DELEG, 0, b"another"))


def restart_without_clients_needs_no_grace(w):
    w.restart()
    c = client()
    c.open(c.mkdir(c.root(), "d"), "f")


def restart_ends_grace_when_a_client_stays_away(w):
    gone, c = client(), client()
    d = c.mkdir(c.root(), "d")
    s, f = gone.open(d, "f", deny=BOTH)
    o = lay(gone, f, s)
    x = o.mirrors[0][0]
    ds = data_server(gone, x)
    check(ds.write(x.fhs[0], 0, bytes(50000)).status, 0)
    gone.drop()
    w.restart()
    began = time.monotonic()
    again(c, True)
    c.no("GRACE", putfh(d), open_("f"))
    c.until(lambda got: err(got.status) not in ("GRACE", "DELAY"), putfh(d), open_("f"))
    took = time.monotonic() - began
    check(1 < took < 3.5, True, f"grace of 2 s took {took:.1f} s")
    eventually(lambda: ds.write(x.fhs[0], 0, b"late").status == 13, 2,
               "the fence of the client that stayed away")
    # It told nobody, and neither boot knew: the size is what it wrote.
    got = c.until(lambda got: err(got.status) != "DELAY", putfh(f), getattr_("size"),
                  read(ANON, 49990, 100)).results
    check((got[2].attrs.size, got[3].data), (50000, bytes(10)))
    gone.conns = [gone.connection()]
    gone.exchange_id()
    gone.create_session()
    gone.no(("NO_GRACE", "RECLAIM_BAD"), putfh(f), open_(claim_previous(), BOTH | NO_DELEG))


def restart_finds_sizes_and_fences_old_layouts(w):
    c = client()
    d = c.mkdir(c.root(), "d")
    s, f, o, ds, fh = one_server(c, d)
    s2, g, o2 = striped(c, d, "stripes=2,mirrors=2", "striped")
    change = c.attrs(f, "change").change
    check(ds.write(fh, 0, bytes(100000)).status, 0)
    for m in o2.mirrors:
        data_server(c, m[1]).write(m[1].fhs[0], 1 << 20, b"in the second stripe")
    w.restart()
    again(c)
    new = reclaim(c, f)
    c.ok(putfh(f), layoutreturn(ANON))  # as the Linux client does
    c.ok(reclaim_complete())
    got = c.until(lambda got: err(got.status) != "DELAY", putfh(f),
                  getattr_("size", "change")).results[-1].attrs
    check((got.size, got.change > change), (100000, True))
    check(c.attrs(g, "size").size, (1 << 20) + 20)
    check(c.ok(putfh(g), read(ANON, (1 << 20) - 1, 100)).data, b"\0in the second stripe")
    two = client()
    c.until(lambda got: err(got.status) != "DELAY", putfh(f), read(new, 0, 1))
    two.until(lambda got: err(got.status) != "DELAY", putfh(f), setattr_(ANON, size=5))
    check(ds.write(fh, 0, b"old").status, 13)
    check((two.attrs(f, "size").size, ds.read(fh, 0, 1).status), (5, 13))
    o = lay(c, f, new)
    check(ds.write(o.mirrors[0][0].fhs[0], 0, b"new").status, 0)


def restart_keeps_a_removed_file_that_is_open(w):
    c = client()
    d = c.mkdir(c.root(), "d")
    s, f = c.open(d, "f")
    c.open(d, "g")
    c.ok(putfh(f), write(s, 0, b"orphan", FILE_SYNC), putfh(d), remove("f"))
    w.restart()
    again(c)
    new = reclaim(c, f)
    c.ok(reclaim_complete())
    check(c.ok(putfh(f), read(new, 0, 10)).data, b"orphan")
    c.ok(putfh(f), close(new))
    check(err(c.call(putfh(f), getattr_("type")).status), "STALE")


def restart_ends_grace_for_a_new_incarnation(w):
    c = client()
    d = c.mkdir(c.root(), "d")
    s, f = c.open(d, "f", deny=BOTH)
    w.restart()
    c.verifier = b"reboot.."
    again(c)
    c.ok(reclaim_complete())
    c.until(lambda got: err(got.status) not in ("GRACE", "DELAY"), putfh(d), open_("f"), tries=20)


def restart_without_return_on_close(w):
    w.dev("down", w.dir)
    w.dev("up", w.dir, "--set", "mds.return_on_close=false", "--set", "mds.size_from_ds=always")
    c = client()
    d = c.mkdir(c.root(), "d")
    s, f, o, ds, fh = one_server(c, d)
    check(o.return_on_close, False)
    ds.write(fh, 0, b"12345")
    r = c.ok(putfh(f), layoutreturn(o.stateid), close(s), getattr_("size"))
    check((r.all[1].present, r.attrs.size), (False, 5))


def restart_of_a_data_server_delays_what_needs_it(w):
    """LAYOUTTRYLATER while an order to the only copy waits; no room for a policy wider than the
    living servers."""
    c = client()
    d = c.mkdir(c.root(), "d")
    wide = c.mkdir(d, "wide")
    c.ok(putfh(wide), setxattr("weft.policy", "mirrors=4"))
    s, f, o, ds, fh = one_server(c, d)
    ds.write(fh, 0, b"0123456789")
    c.ok(putfh(f), layoutreturn(o.stateid))
    name = next(x["ds"]
                for m in json.loads(c.ok(putfh(f), getxattr("weft.layout")).value)["mirrors"]
                for x in m["objects"])
    w.dev("kill", w.dir, name, "-9")
    started = c.begin(putfh(f), setattr_(s, size=5))
    make = open_("new", BOTH | NO_DELEG, how=GUARDED, attrs={"mode": 0o600})
    eventually(lambda: w.metric("weft_mds_ds_alive") == 3, 6, "the death of a server")
    began = time.monotonic()
    c.no("DELAY", putfh(wide), make)
    c.until(lambda got: err(got.status) != "DELAY", putfh(wide), make, tries=120)
    c.no("NOSPC", putfh(wide), make)
    check(1.5 < time.monotonic() - began < 4, True,
          f"DELAY for {time.monotonic() - began:.1f} s, the lease is 2 s")
    first_answer = c.finish(started)
    check(err(first_answer.status) in ("OK", "DELAY"), True)
    got = c.no("LAYOUTTRYLATER", putfh(f), layoutget(s))
    check(got.will, False)
    c.no("DELAY", putfh(f), read(s, 0, 10))
    w.dev("start", w.dir, name)
    c.until(lambda got: err(got.status) not in ("LAYOUTTRYLATER", "DELAY", "RECALLCONFLICT"),
            putfh(f), layoutget(s))
    c.ok(putfh(f), setattr_(s, size=5))
    check(c.ok(putfh(f), read(s, 0, 10)).data, b"01234")
    c.ok(putfh(wide), make)


def restart_of_a_mirrors_server_makes_its_copy_stale(w):
    c = client()
    d = c.mkdir(c.root(), "d")
    s, f, o = striped(c, d, "mirrors=2")
    c.ok(putfh(f), write(s, 0, b"both", FILE_SYNC), layoutreturn(o.stateid))
    name = json.loads(c.ok(putfh(f),
                           getxattr("weft.layout")).value)["mirrors"][0]["objects"][0]["ds"]
    lay(c, f, s)
    w.dev("kill", w.dir, name, "-9")
    began = time.monotonic()
    check(c.attrs(f, "size").size, 4)
    check(time.monotonic() - began < 5, True, "GETATTR waited for a dead server")
    check(c.ok(putfh(f), read(s, 0, 10)).data, b"both")
    c.until(lambda got: err(got.status) != "DELAY", putfh(f), write(s, 0, b"one!", FILE_SYNC))
    check(c.ok(putfh(f), read(s, 0, 10)).data, b"one!")
    w.dev("start", w.dir, name)
    eventually(lambda: w.metric("weft_mds_ds_alive") == 4, 5, "the return of the server")
    got = json.loads(c.ok(putfh(f), getxattr("weft.layout")).value)["mirrors"]
    check({m["objects"][0]["ds"]: m["state"] for m in got}[name], "stale")
    check(len(lay(c, f, s).mirrors), 1)
    for _ in range(4):
        check(c.ok(putfh(f), read(s, 0, 10)).data, b"one!")


def restart_of_a_data_server_is_survived(w):
    c = client()
    d = c.mkdir(c.root(), "d")
    s, f, o, ds, fh = one_server(c, d)
    verf = ds.write(fh, 0, b"data", FILE_SYNC).verf
    name = next(x["ds"]
                for m in json.loads(c.ok(putfh(f), getxattr("weft.layout")).value)["mirrors"]
                for x in m["objects"])
    w.dev("kill", w.dir, name, "-9")
    check(ds.conn.is_closed(), True)
    w.dev("start", w.dir, name)
    ds = data_server(c, o.mirrors[0][0])
    eventually(lambda: ds.read(fh, 0, 10).status == 0, 5, "service by the data server")
    check(ds.read(fh, 0, 10).data, b"data")
    check(ds.write(fh, 4, b"!", UNSTABLE).verf != verf, True, "the write verifier stayed")
    check(c.ok(putfh(f), read(s, 0, 10)).data, b"data!")


if __name__ == "__main__":
    harness.main(globals(), parts=2, settings=CALM)
