#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Lines of tests/CHECKLISTS.md that have no test elsewhere. Prints TAP."""
import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../wirelib"))
import harness  # noqa: E402
from harness import *  # noqa: E402,F403
from steps import data_server, lay, returns_when_recalled  # noqa: E402
from nfs41 import err, op  # noqa: E402


def place(name):
    c = client()
    return c, c.mkdir(c.root(), f"{name}{time.monotonic_ns()}")


# ---- pitfalls


def test_devices_tell_sizes_that_the_server_takes(w):
    """P7, P9: and notifications as the client asked for them, both."""
    c, d = place("dev")
    s, f = c.open(d, "f")
    x = lay(c, f, s).mirrors[0][0]
    r = c.ok(getdeviceinfo(x.deviceid, notify=(1, 2)))
    check(r.notify, {1, 2})
    (v,) = [v for v in ff_device(r.body).versions if v.version == 3]
    check((v.minor, v.tight), (0, False))
    check(1024 <= v.rsize <= 1 << 20 and 1024 <= v.wsize <= 1 << 20, True, f"{v}")
    ds = data_server(c, x)
    check((ds.write(x.fhs[0], 0, bytes(v.wsize)).count, ds.read(x.fhs[0], 0, v.rsize).count),
          (v.wsize, min(v.wsize, v.rsize)))


def test_callbacks_come_on_the_connection_that_was_bound_last(w):
    """P25: while the first connection is still there."""
    c, d = place("bound")
    s, f = c.open(d, "f")
    lay(c, f, s)
    came = []
    second = c.connection()
    first_call, second_call = c.conn.on_call, second.on_call
    c.conn.on_call = lambda *a: (came.append(1), first_call(*a))
    second.on_call = lambda *a: (came.append(2), second_call(*a))
    c.conns.append(second)
    check(err(second.compound(bind_conn(c.session.sessionid, 7)).status), "OK")
    returns_when_recalled(c, f)
    two = client()
    two.until(lambda got: err(got.status) != "DELAY", putfh(f), setattr_(ANON, size=1))
    check(set(came), {2}, "connections that carried callbacks")


def test_unused_sessions_do_not_keep_a_client(w):
    """P31: the sessions that trunking probes leave."""
    c = client()
    probe = client(session=False)
    probe.exchange_id()
    for _ in range(3):
        probe.create_session()
    first(probe, "CLIENTID_BUSY", destroy_clientid(probe.clientid))  # RFC 8881 section 18.50.3
    probe.create_session()
    probe.ok(putrootfh())
    first(probe, "CLIENTID_BUSY", destroy_clientid(probe.clientid))
    first(probe, "OK", destroy_session(probe.session.sessionid))
    probe.create_session()
    probe.ok(putrootfh())
    first(probe, "CLIENTID_BUSY", destroy_clientid(probe.clientid))  # a session is in use again
    first(probe, "OK", destroy_session(probe.session.sessionid))
    first(c, "OK", destroy_clientid(probe.clientid))
    first(c, "BADSESSION", sequence(probe.session.sessionid, 1))


def test_a_daemon_tells_what_is_on(w):
    """P36"""
    with open(os.path.join(w.dir, "log/mds.log"), encoding="utf-8") as f:
        text = f.read()
    for word in ("serving: boot", "engine LMDB", "threads", "sync", "recorded clients",
                 "NFSv4.1 and 4.2 over TCP"):
        check(word in text, True, f"\"{word}\" in the log")


def test_an_idle_connection_stays(w):
    """P47: no lease, and nothing else that the server counts, ends it. The session may go."""
    c = client()
    idle = c.connection()
    idle.rpc(0)
    # More than the lease. The long run also waits for the minute after which other servers close.
    time.sleep(65 if os.environ.get("WEFT_SOAK") else 3)
    check((idle.rpc(0), c.conn.rpc(0)), (b"", b""))


# ---- conformance


def test_booleans_and_enumerations_are_checked(w):
    """C2: in arguments of operations, BADXDR (RFC 8881 section 15.1.1.1)."""
    c, d = place("bools")
    s, f = c.open(d, "f")
    two = u32(2)
    got = c.conn.compound(op("SEQUENCE", c.session.sessionid, u32(1), u32(9), u32(9), two))
    check(err(got.status), "BADXDR")
    for want, one in (("BADXDR", op("RECLAIM_COMPLETE", two)),
                      ("BADXDR", op("OPEN", u32(0), u32(1), u32(0), u64(0), opaque("o"), two)),
                      ("BADXDR",
                       op("LOCK", u32(2), two, u64(0), u64(1), boolean(False), stateid(s), u32(0))),
                      ("BADXDR", op("LAYOUTGET", two, u32(4), u32(2), u64(0), u64(MAX64), u64(0),
                                    stateid(s), u32(4096))),
                      ("BADXDR", op("LAYOUTCOMMIT", u64(0), u64(1), two)),
                      (("BADXDR", "INVAL"), op("WRITE", stateid(s), u64(0), u32(3), opaque(b"x"))),
                      (("BADXDR", "INVAL"), op("SETXATTR", u32(3), opaque("a"), opaque("b"))),
                      (("BADXDR", "INVAL"),
                       op("LAYOUTRETURN", boolean(False), u32(4), u32(3), u32(4))),
                      (("BADXDR", "INVAL"),
                       op("LOCKT", u32(5), u64(0), u64(1), u64(0), opaque("o")))):
        c.no(want, putfh(f), one)
    c.no(("BADXDR", "INVAL"), op("SECINFO_NO_NAME", u32(2)))
    first(c, "BADXDR", op("BIND_CONN_TO_SESSION", c.session.sessionid, u32(1), two))
    first(c, "BADXDR", op("BIND_CONN_TO_SESSION", c.session.sessionid, u32(5), u32(0)))


def test_bind_conn_stands_alone_even_after_sequence(w):
    """C34"""
    c = client()
    c.no("NOT_ONLY_OP", bind_conn(c.session.sessionid, 1))
    first(c, "NOT_ONLY_OP", bind_conn(c.session.sessionid, 1), putrootfh())
    first(c, "NOT_ONLY_OP", create_session(c.clientid, 99), putrootfh())
    check(err(c.call(destroy_session(c.session.sessionid), putrootfh()).status), "NOT_ONLY_OP")


def test_rdattr_error_is_for_the_entry(w):
    """C38: a client that asks for it gets it. It is OK where the entry's attributes are there."""
    c, d = place("rdattr")
    c.open(d, "f")
    c.mkdir(d, "sub")
    for e in c.readdir_all(d, ("rdattr_error", "type", "fileid")):
        check((e.attrs.rdattr_error, e.attrs.type in (REG, DIR)), (0, True))


def test_close_leaves_no_current_stateid(w):
    """C40 (RFC 8881 section 16.2.3.1.2)"""
    c, d = place("close")
    c.no("BAD_STATEID", putfh(d), open_("f", BOTH | NO_DELEG, how=GUARDED, attrs={"mode": 0o600}),
         close(CURRENT), read(CURRENT, 0, 1))
    c.no("BAD_STATEID", putfh(d), open_("f", BOTH | NO_DELEG), close(CURRENT), close(CURRENT))


def test_a_failed_sequence_renews_nothing(w):
    """C46: a client that only fails loses its lease."""
    c, d = place("fails")
    one = client()
    s, f = one.open(d, "f", deny=BOTH)
    until = time.monotonic() + 2.6
    while time.monotonic() < until:
        for bad in (sequence(one.session.sessionid, 77, 0),
                    sequence(one.session.sessionid, 1, 5000), sequence(b"\xee" * 16, 1)):
            check(one.conn.compound(bad).status != 0, True)
        c.ok(putrootfh())
        time.sleep(0.1)
    got = c.until(lambda got: err(got.status) != "DELAY", putfh(d), open_("f"), tries=20)
    check(err(got.status), "OK")


def test_what_names_the_client_renews_its_lease(w):
    """C50: SEQUENCE, BIND_CONN_TO_SESSION, CREATE_SESSION and EXCHANGE_ID of a confirmed client
    each renew the lease."""
    c, d = place("renew")
    ways = {"sequence": lambda o: o.ok(),
            "bind": lambda o: first(o, "OK", bind_conn(o.session.sessionid, 3)),
            "eid": lambda o: o.exchange_id(), "session": lambda o: o.create_session()}
    silent = client()
    silent.open(d, "silent", deny=BOTH)
    clients = {name: client() for name in ways}
    for name, one in clients.items():
        one.open(d, name, deny=BOTH)
    until = time.monotonic() + 3
    while time.monotonic() < until:
        for name, one in clients.items():
            ways[name](one)
        c.ok(putrootfh())
        time.sleep(0.5)
    for name in ways:
        c.no("SHARE_DENIED", putfh(d), open_(name))
    got = c.until(lambda got: err(got.status) != "DELAY", putfh(d), open_("silent"), tries=20)
    check(err(got.status), "OK")


def test_locks_are_set_with_ones_own_stateids_only(w):
    """C49"""
    c, d = place("locks")
    s, f = c.open(d, "f")
    k = c.ok(putfh(f), lock(s, WRITE_LT, 0, 10, b"lo")).stateid
    two = client()
    s2, _ = two.open(d, "f")
    for bad in (lock(s, WRITE_LT, 50, 1, b"x"), lock(k, WRITE_LT, 50, 1), locku(k, 0, 10),
                open_downgrade(s, READ), close(s), layoutget(s)):
        two.no("BAD_STATEID", putfh(f), bad)
    two.no("DENIED", putfh(f), lock(s2, WRITE_LT, 0, 1, b"x"))


def test_reclaim_complete_of_one_file_system_ends_nothing(w):
    """C53: after it the client may go on with its reclaims, and still has to send the
    one for all."""
    c = client(reclaim=False)
    c.ok(putrootfh(), reclaim_complete(True))
    c.ok(putrootfh(), reclaim_complete(True))
    c.ok(reclaim_complete())
    c.no("COMPLETE_ALREADY", reclaim_complete())


def test_free_stateid_frees_locks_only(w):
    """C60: a layout is no lock. A lock stateid without locks goes."""
    c, d = place("free")
    s, f = c.open(d, "f")
    o = lay(c, f, s)
    k = c.ok(putfh(f), lock(s, WRITE_LT, 0, 10, b"lo")).stateid
    for held in (o.stateid, s, k):
        c.no("LOCKS_HELD", free_stateid(held))
    lay(c, f, o.stateid)
    k = c.ok(putfh(f), locku(k, 0, 10)).stateid
    c.ok(free_stateid(k))
    c.no("BAD_STATEID", free_stateid(k))
    check([err(x) for x in c.ok(test_stateid(s, k)).statuses], ["OK", "BAD_STATEID"])


if __name__ == "__main__":
    harness.run_shared(globals())
