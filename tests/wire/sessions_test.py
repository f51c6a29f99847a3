#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Client ids and sessions of the metadata server, over the wire (RFC 8881, chapter 2 and 18.35 to
18.50). Prints TAP.

A test gets a client and the filehandle of a directory of its own. A test whose name begins with
restart_ gets a cluster of its own.
"""
import itertools
import os
import sys
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../wirelib"))
import harness  # noqa: E402
from harness import *  # noqa: E402,F403
from nfs41 import err, op  # noqa: E402
from steps import *  # noqa: E402,F403


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
    mine = c.session.sessionid
    for wrong in (bytes(16), b"\xff" * 16, mine[:-1] + bytes([mine[-1] ^ 1])):
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
    """A stranger has read the ids off the wire. Sections 18.37.3 and 18.50.3 leave open which
    clients may use them where no machine credential says it."""
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
    """The server forgets a client that holds nothing some leases after its last request."""
    one, seq = client(), itertools.count(2)

    def forgotten():
        # A request renews the lease. Each wait is longer than the time until the server forgets,
        # which begins again where the server itself stood still.
        time.sleep(5.5)
        got = one.conn.compound(sequence(one.session.sessionid, next(seq), 0, 0))
        return err(got.status) == "BADSESSION"
    eventually(forgotten)


if __name__ == "__main__":
    harness.main(globals(), parts=2, settings=CALM)
