#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""RPC and COMPOUND of the metadata server, over the wire (RFC 5531 and 8881): calls, retries,
requests that run at once. Prints TAP.

A test gets a client and the filehandle of a directory of its own. A test whose name begins with
restart_ gets a cluster of its own.
"""
import contextlib
import json
import os
import random
import signal
import sys
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
    """Section 18.47.3: INVAL, because the server grants SP4_SSV to no client."""
    c.no("INVAL", op("SET_SSV", opaque(bytes(32)) + opaque(bytes(32))))
    c.no("BADXDR", op("SET_SSV", opaque(bytes(32)) + u32(1000)))


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
    eventually(lambda: err(two.conn.compound(*ops).status) == "OK", what="the cached reply")
    check(c.attrs(f, "size").size, 7)


def test_nonsense_arguments_harm_nothing(c, d):
    rng = random.Random(1)
    fillers = [lambda n: bytes(n), lambda n: b"\xff" * n,
               lambda n: bytes(rng.choice((0, 0, 0, 1, 4, 255)) for _ in range(n))]
    for minor in (1, 2):
        one = client(minor=minor)
        for num in range(80):
            c.ok(putrootfh())  # this keeps its lease
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
    before = harness.THE.metric("weft_mds_kv_commits_total")
    w = harness.THE
    pid = next(r["pid"] for r in json.loads(w.dev("status", w.dir, "--json"))["daemons"]
               if r["name"] == "mds")
    stand_still(pid)  # until all have come: a commit may be faster than this thread sends
    try:
        started = [(m, [m.begin(putfh(d), create(DIR, f"{i}.{j}", mode=0o700)) for j in range(16)])
                   for i, m in enumerate(many)]
    finally:
        os.kill(pid, signal.SIGCONT)
    for m, calls in started:
        for one in calls:
            check(m.finish(one).status, 0)
    commits = harness.THE.metric("weft_mds_kv_commits_total") - before
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
    """Sends (client, operations) together. Returns the statuses."""
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


if __name__ == "__main__":
    harness.main(globals(), parts=2, settings=CALM)
