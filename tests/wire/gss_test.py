#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Kerberos 5 (RFC 2203; RFC 8881 sections 2.10.8.3, 5.9, 18.35), with a real KDC and cluster.
Prints TAP.

The principals games (uid 5) and news (uid 9) have the names of users of every Debian. alice has no
user here.
"""
import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../wirelib"))
WHY = None
try:
    import gss
    from gss import CONTINUE, DESTROY, GSS, INTEGRITY, NONE, PRIVACY, Cred, GssClient, GssConn
except ImportError as e:
    WHY = f"python3-gssapi is missing ({e})"
import nfs41  # noqa: E402
import tap  # noqa: E402
from harness import ADDR, Cluster, Failed, check, eventually, rejected  # noqa: E402
from nfs41 import *  # noqa: E402,F403
from nfs41 import Reader, err  # noqa: E402
from tap import BUILD  # noqa: E402

SERVICES = (1, 2, 3)
CREDPROBLEM, CTXPROBLEM = ("denied", 1, 13), ("denied", 1, 14)
BADCRED, REJECTEDCRED, BADVERF = ("denied", 1, 1), ("denied", 1, 2), ("denied", 1, 3)
GARBAGE = ("accepted", 4)
MACHINE = "nfs/client"
REALM = None
BIND, EXID, CREATE_S, DESTROY_S, DESTROY_C = 41, 42, 43, 44, 57
LINUX = {BIND, EXID, CREATE_S, DESTROY_S, DESTROY_C}, {4, 14, 21, 8, 5, 33, 52, 51, 55, 45, 38}
CLIENTS, TICKETS = [], {}


def conn():
    c = GssConn(ADDR)
    CLIENTS.append(c)
    return c


def cred(principal="games", service=2, fresh=False):
    """A context of this principal, made on a connection of its own."""
    if principal not in TICKETS:
        TICKETS[principal] = REALM.login(principal)
    return conn().init(Cred(TICKETS[principal], service))


def client(principal="games", service=2, **how):
    c = GssClient(ADDR, cred=cred(principal, service), **how)
    CLIENTS.append(c)
    return c


def sys_client(uid=0, **how):
    c = GssClient(ADDR, cred=auth_sys(uid, uid), **how)
    CLIENTS.append(c)
    return c


def why(c, credential, proc=0, args=b"", **how):
    """Why the server rejects the call."""
    try:
        c.rpc(proc, args, credential, **how)
    except nfs41.Rejected as e:
        return e.why[:3] if e.why[0] == "denied" else e.why[:2]
    raise Failed("the call was accepted")


def dropped(c, record, xid):
    """No reply comes for it, and the connection goes on."""
    before = len(c.stray)
    with c.cond:
        c.wanted.discard(xid)
    c.send_record(record)
    check(c.rpc(0), b"")
    time.sleep(0.1)
    check(len(c.stray), before, "replies")


def first(c, want, *ops, credential):
    got = c.compound(*ops, minor=2, cred=credential)
    check(err(got.status), want)
    return got.results[-1]


# ---- contexts and calls


def test_all_three_services_carry_calls_and_a_megabyte():
    boss = sys_client()
    d = boss.mkdir(boss.root(), "services")
    boss.ok(putfh(d), setattr_(mode=0o777))
    data = os.urandom(1 << 20)
    for service in SERVICES:
        c = client("games", service)
        check(c.conn.rpc(0, cred=c.cred), b"")
        s, f = c.open(d, f"f{service}")
        check(c.ok(putfh(f), write(s, 0, data, FILE_SYNC)).count, len(data))
        got = c.ok(putfh(f), read(s, 0, 1 << 20)).data
        check((len(got), got == data), (1 << 20, True), f"service {service}")
        check(c.ok(putfh(f), read(s, 1, 3)).data, data[1:4])
        c.ok(putfh(f), close(s))


def test_services_mix_in_one_context():
    c = client("games", 2)
    for service in (3, 1, 2, 3):
        c.ok(putrootfh(), getattr_("fileid"), cred=c.cred.with_service(service))


def test_a_context_is_used_on_any_connection_and_thread():
    x = cred("games", 3)
    conns = [conn() for _ in range(6)]
    for _ in range(20):
        started = [(c, c.start(0, b"", x)) for c in conns]
        for c, xid in started:
            check(c.finish(xid), b"")


def test_a_bad_header_checksum_is_a_credproblem():
    c, x = conn(), cred()
    check(why(c, x, spoil=("mic",)), CREDPROBLEM)
    check(c.rpc(0, cred=x), b"")


def test_a_verifier_of_another_flavour_is_bad():
    c, x = conn(), cred()
    xid = next(c.xids)
    record, _, _ = c.call_bytes(xid, 0, b"", x, service=1)
    at = len(gss.head(xid, 0, gss.cred_body(0, 1, 1, x.handle)))
    with c.cond:
        c.wanted.add(xid)
    c.send_record(record[:at] + u32(0) + u32(0))
    try:
        c._accepted(c.raw(xid))
        raise Failed("accepted")
    except nfs41.Rejected as e:
        check(e.why, BADVERF)


def test_unknown_handles_are_a_credproblem():
    c, x = conn(), cred()
    for handle in (bytes(16), b"", x.handle[:-1], x.handle + b"\0", os.urandom(16),
                   os.urandom(300)):
        check(why(c, x, handle=handle), CREDPROBLEM, handle.hex())
    check(c.rpc(0, cred=x), b"")


def test_handles_are_not_guessable():
    handles = {cred().handle for _ in range(8)}
    check(len(handles), 8)
    check({len(h) for h in handles}, {16})
    a, b = sorted(handles)[:2]
    check(sum(x == y for x, y in zip(a, b)) < 8, True, "handles have much in common")


def test_replayed_sequence_numbers_are_dropped():
    c, x = conn(), cred()
    before = CLUSTER.metric("weft_rpc_gss_dropped_total")
    xid = next(c.xids)
    record, _, _ = c.call_bytes(xid, 0, b"", x, seq=100)
    with c.cond:
        c.wanted.add(xid)
    c.send_record(record)
    c.raw(xid)
    dropped(c, record, xid)
    xid = next(c.xids)
    dropped(c, c.call_bytes(xid, 0, b"", x, seq=100)[0], xid)
    check(CLUSTER.metric("weft_rpc_gss_dropped_total"), before + 2)


def test_the_sequence_window():
    c, x = conn(), cred()
    check(x.window >= 128, True)
    high = 5000
    check(c.rpc(0, cred=x, seq=high), b"")
    # Out of order is in order, once.
    for seq in (high - 1, high - x.window + 1, high - 7):
        check(c.rpc(0, cred=x, seq=seq), b"")
        xid = next(c.xids)
        dropped(c, c.call_bytes(xid, 0, b"", x, seq=seq)[0], xid)
    xid = next(c.xids)
    dropped(c, c.call_bytes(xid, 0, b"", x, seq=high - x.window)[0], xid)
    # The window moves. A free number stays free. A used number that is too old cannot
    # be used again.
    check(c.rpc(0, cred=x, seq=high + 10), b"")
    check(c.rpc(0, cred=x, seq=high + 5), b"")
    xid = next(c.xids)
    dropped(c, c.call_bytes(xid, 0, b"", x, seq=high)[0], xid)
    check(c.rpc(0, cred=x, seq=high + 3 * x.window), b"")
    check(c.rpc(0, cred=x, seq=high + 3 * x.window - x.window + 1), b"")
    xid = next(c.xids)
    dropped(c, c.call_bytes(xid, 0, b"", x, seq=high + x.window)[0], xid)


def test_a_bad_call_does_not_move_the_window():
    c, x = conn(), cred()
    check(c.rpc(0, cred=x, seq=10), b"")
    check(why(c, x, seq=100000, spoil=("mic",)), CREDPROBLEM)
    check(c.rpc(0, cred=x, seq=11), b"")


def test_sequence_numbers_end():
    c, x = conn(), cred()
    for seq in (0x80000000, 0xffffffff):
        check(why(c, x, seq=seq), CTXPROBLEM)
    check(c.rpc(0, cred=x, seq=0x7fffffff), b"")


def test_malformed_credentials_are_bad():
    c, x = conn(), cred()
    for service in (4, 0x7fffffff):
        check(why(c, x, service=service), BADCRED)
    for version in (0, 2, 3):
        check(why(c, x, version=version), BADCRED)
    check(why(c, x, gssproc=4), BADCRED)
    for body in (b"", u32(1), gss.cred_body(0, 1, 1, x.handle)[:-4],
                 gss.cred_body(0, 1, 1, x.handle) + u32(0),
                 u32(1) + u32(0) + u32(1) + u32(1) + u32(400)):
        check(rejected(c, 0, b"", cred=(6, body)), BADCRED, body.hex())


def test_arguments_that_are_not_what_was_signed_are_garbage():
    c, x = conn(), cred()
    args = compound_args([putrootfh()])
    for service, spoil in ((2, "checksum"), (2, "within"), (3, "within"), (3, "body"),
                           (3, "clear")):
        check(why(c, x.with_service(service), 1, args, spoil=(spoil,)), GARBAGE,
              f"{service} {spoil}")
    check(c.rpc(0, cred=x), b"")


def test_what_follows_the_wrapped_arguments_is_garbage():
    c, x = conn(), cred()
    for service in (2, 3):
        xid = next(c.xids)
        record, seq, service = c.call_bytes(xid, 0, b"", x, service=service)
        c.gss[xid] = x, seq, service
        with c.cond:
            c.wanted.add(xid)
        c.send_record(record + u32(0))
        try:
            c.finish(xid)
            raise Failed("accepted")
        except nfs41.Rejected as e:
            check(e.why[:2], GARBAGE)


def test_a_rejection_carries_a_verifier_and_plain_results():
    c, x = conn(), cred()
    for service in SERVICES:
        xid = c.start(0, b"", x.with_service(service), vers=3)
        body = c.raw(xid)
        r = Reader(body)
        check((r.u32(), r.u32()), (0, GSS))
        x.ctx.verify_signature(u32(c.gss.pop(xid)[1]), r.opaque())
        check((r.u32(), r.u32(), r.u32()), (2, 4, 4))
        r.end()


def test_a_destroyed_context_is_gone():
    c, x = conn(), cred()
    keep = cred()
    check(why(c, x, 1, compound_args([]), gssproc=DESTROY), BADCRED)
    for service in SERVICES:
        y = cred()
        check(c.rpc(0, cred=y.with_service(service), gssproc=DESTROY), b"")
        check(why(c, y), CREDPROBLEM)
    check(c.rpc(0, cred=keep), b"")


def test_a_replayed_destroy_is_dropped():
    c, x = conn(), cred()
    check(c.rpc(0, cred=x, seq=3), b"")
    xid = next(c.xids)
    dropped(c, c.call_bytes(xid, 0, b"", x, seq=3, gssproc=DESTROY)[0], xid)
    check(c.rpc(0, cred=x, seq=4), b"")


def test_garbage_tokens_make_no_context():
    c, x = conn(), Cred(REALM.login("games"))
    before = CLUSTER.metric("weft_rpc_gss_contexts")
    for token in (b"", b"x", os.urandom(200), x.token[:-1], x.token[:40],
                  x.token[:20] + bytes(len(x.token) - 20)):
        (flavor, mic), got = c.init_raw(token)
        check((got.major >> 16 != 0, got.handle, got.token, flavor, mic), (True, b"", b"", 0, b""),
              token[:20].hex())
    check(CLUSTER.metric("weft_rpc_gss_contexts"), before)
    c.init(x)
    check(c.rpc(0, cred=x), b"")


def test_making_a_context_has_rules():
    c, x = conn(), Cred(REALM.login("games"))

    def refused(**how):
        try:
            return c.init_raw(x.token, **how)
        except nfs41.Rejected as e:
            return e.why
    check(refused(rpcproc=1), BADCRED)
    check(refused(version=2), REJECTEDCRED)
    check(refused(handle=b"x" * 16), BADCRED)
    check(refused(proc=CONTINUE, handle=os.urandom(16)), BADCRED)
    check(refused(proc=CONTINUE), BADCRED)
    c.init(x)
    check(refused(proc=CONTINUE, handle=x.handle), BADCRED)
    # An argument that is none.
    xid = next(c.xids)
    with c.cond:
        c.wanted.add(xid)
    c.send_record(gss.head(xid, 0, gss.cred_body(1, 0, 0, b"")) + u32(0) + u32(0) + u32(1 << 20))
    try:
        c._accepted(c.raw(xid))
        raise Failed("accepted")
    except nfs41.Rejected as e:
        check(e.why[:2], GARBAGE)


def test_a_ticket_for_another_service_is_refused():
    x = Cred(REALM.login("games"), target="nfs@elsewhere")
    _, got = conn().init_raw(x.token)
    check(got.major >> 16 != 0, True)
    x = Cred(REALM.login("games"), target="host@localhost")  # in the key table, and not ours
    _, got = conn().init_raw(x.token)
    check(got.major >> 16 != 0, True)


def test_an_expired_context_is_a_ctxproblem():
    c, x = conn(), Cred(REALM.login("games", "2s"))
    c.init(x)
    check(c.rpc(0, cred=x), b"")
    deadline = time.monotonic() + 60
    while True:
        try:
            c.rpc(0, cred=x)
        except nfs41.Rejected as e:
            check(e.why, CTXPROBLEM)
            return
        check(time.monotonic() < deadline, True, "the context lives on")
        time.sleep(0.3)


def test_the_least_recently_used_context_makes_room():
    c = conn()
    before = CLUSTER.metric("weft_rpc_gss_evicted_total")
    old, kept = cred(), cred()
    for _ in range(22):
        cred()
        check(c.rpc(0, cred=kept), b"")
    check(why(c, old), CREDPROBLEM)
    check(c.rpc(0, cred=kept), b"")
    check(CLUSTER.metric("weft_rpc_gss_contexts"), 20)
    check(CLUSTER.metric("weft_rpc_gss_evicted_total") > before, True)


# ---- which user it is


def test_principals_are_users_and_the_unknown_are_nobody():
    boss = sys_client()
    d = boss.mkdir(boss.root(), "who")
    boss.ok(putfh(d), setattr_(mode=0o777))
    for principal, uid, gid in (("games", "5", "60"), ("news", "9", "9"),
                                ("alice", "65534", "65534"), (MACHINE, "65534", "65534")):
        c = client(principal)
        s, f = c.open(d, principal.replace("/", "_"), attrs={"mode": 0o600})
        c.ok(putfh(f), close(s))
        got = boss.attrs(f, "owner", "owner_group")
        check((got.owner, got.owner_group), (uid, gid), principal)
    f = boss.ok(putfh(d), lookup("games"), getfh()).fh
    check(client("games").ok(putfh(f), access(3)).access, 1)
    check(client("news").ok(putfh(f), access(3)).access, 0)


def test_owners_are_names_with_kerberos_and_numbers_without():
    boss = sys_client()
    d = boss.mkdir(boss.root(), "owners")
    boss.ok(putfh(d), setattr_(mode=0o777, owner="5", owner_group="60"))
    c = client()
    got = c.attrs(d, "owner", "owner_group")
    check((got.owner, got.owner_group), ("games@weft.test", "games@weft.test"))
    got = boss.attrs(d, "owner", "owner_group")
    check((got.owner, got.owner_group), ("5", "60"))
    # An id without a name stays a number.
    boss.ok(putfh(d), setattr_(owner="12345678", owner_group="12345679"))
    got = c.attrs(d, "owner", "owner_group")
    check((got.owner, got.owner_group), ("12345678", "12345679"))


def test_readdir_has_names_too():
    boss = sys_client()
    d = boss.mkdir(boss.root(), "listed")
    want = {}
    for uid, name in ((1, "daemon"), (2, "bin"), (5, "games"), (9, "news"), (13, "proxy"),
                      (4711, None)):
        boss.mkdir(d, f"d{uid}", attrs={"mode": 0o755, "owner": str(uid)})
        want[b"d%d" % uid] = f"{name}@weft.test" if name else str(uid)
    for c in (client(service=1), client(service=3)):
        check({e.name: e.attrs.owner for e in c.readdir_all(d, ("owner",))}, want)


def test_owners_are_set_by_name_and_by_number():
    boss, c = sys_client(), client("games")
    d = boss.mkdir(boss.root(), "set")
    for text, uid in (("news@weft.test", "9"), ("7", "7"), ("games@weft.test", "5")):
        boss.ok(putfh(d), setattr_(owner=text))
        check(boss.attrs(d, "owner").owner, uid, text)
    boss.ok(putfh(d), setattr_(owner_group="mail@weft.test"))
    check(boss.attrs(d, "owner_group").owner_group, "8")
    for text in ("nosuchuser@weft.test", "games@other.test", "games", "", "05", "4294967295",
                 "@weft.test", "games@weft.test\0", "x" * 300):
        boss.no("BADOWNER", putfh(d), setattr_(owner=text))
    check(boss.attrs(d, "owner").owner, "5")
    c.ok(putfh(d), setattr_(owner="games@weft.test"))
    c.no("PERM", putfh(d), setattr_(owner="news@weft.test"))
    # At creation, and in VERIFY.
    s, f = boss.open(d, "made", attrs={"mode": 0o644, "owner": "news@weft.test",
                                       "owner_group": "games@weft.test"})
    got = boss.attrs(f, "owner", "owner_group")
    check((got.owner, got.owner_group), ("9", "60"))
    c.ok(putfh(f), verify(owner="news@weft.test"))
    boss.ok(putfh(f), verify(owner="9"))


def test_secinfo_lists_what_is_live():
    oid = bytes.fromhex("2a864886f712010202")  # without DER's tag and length
    # In the order of the exports file.
    want = [1, (6, oid, 0, 1), (6, oid, 0, 2), (6, oid, 0, 3), 0]
    for c in (client(), sys_client()):
        check(c.ok(putrootfh(), secinfo_no_name()).flavors, want)
    boss = sys_client()
    boss.mkdir(boss.root(), "listed_flavours")
    check(boss.ok(putrootfh(), secinfo("listed_flavours")).flavors, want)


def exports(text):
    with open(CLUSTER.dir + "/exports", "w", encoding="utf-8") as f:
        f.write(text)
    subprocess.run([os.path.join(BUILD, "weft"), "--admin", f"unix:{CLUSTER.dir}/run/mds.sock",
                    "exports", "reload"], check=True, timeout=60, capture_output=True)


def test_an_export_takes_the_flavours_it_names():
    with open(CLUSTER.dir + "/exports", encoding="utf-8") as f:
        before = f.read()
    everybody = 'client "*" { access = rw  squash = none  privileged_port = false  sec = '
    boss, oid = sys_client(), bytes.fromhex("2a864886f712010202")
    safe = boss.mkdir(boss.root(), "safe")
    boss.ok(putfh(safe), setattr_(mode=0o777))
    c = client("games", 2)
    try:
        exports('export "/" { %s{sys, krb5, krb5i, krb5p} } }\nexport "/safe" { %s{krb5p, krb5i} } '
                '}\n' % (everybody, everybody))
        inside = c.ok(putrootfh(), lookup("safe"), getfh()).fh
        for credential, want in ((auth_sys(0, 0), "WRONGSEC"), (c.cred.with_service(1), "WRONGSEC"),
                                 (c.cred.with_service(3), "OK")):
            got = c.call(putfh(inside), getattr_("type"), cred=credential)
            check(err(got.status), want)
            got = c.call(putrootfh(), lookup("safe"), getattr_("type"), cred=credential)
            check(err(got.status), want)
            check(c.ok(putrootfh(), secinfo("safe"), cred=credential).flavors,
                  [(6, oid, 0, 3), (6, oid, 0, 2)])
        check(c.ok(putrootfh(), secinfo_no_name()).flavors,
              [1, (6, oid, 0, 1), (6, oid, 0, 2), (6, oid, 0, 3)])
        # Data behind krb5i and krb5p goes through the metadata server, because the way to the data
        # servers has no such protection.
        s, f = c.open(inside, "f")
        c.no("LAYOUTUNAVAILABLE", putfh(f), layoutget(s))
        c.ok(putfh(f), write(s, 0, b"data", FILE_SYNC))
        # Unless the administrator declares the network of the data servers to be protected.
        exports('export "/" { %s{sys, krb5, krb5i, krb5p} } }\nexport "/safe" { %s{krb5p, krb5i}  '
                'layouts = yes } }\n' % (everybody, everybody))
        c.ok(putfh(f), layoutget(s))
        exports('export "/" { %s{krb5} } }\n'
                % everybody.replace("squash = none", "squash = all  anon_uid = 9  anon_gid = 9"))
        d = c.ok(putrootfh(), lookup("safe"), create(DIR, "squashed"), getfh(),
                 cred=c.cred.with_service(1)).fh
        check(c.attrs(d, "owner", cred=c.cred.with_service(1)).owner, "news@weft.test")
    finally:
        exports(before)


# ---- principals of clients, and their protection


def test_a_client_is_its_principals():
    a = client("games", 2)
    boss = sys_client()
    d = boss.mkdir(boss.root(), "mine")
    boss.ok(putfh(d), setattr_(mode=0o777))
    s, f = a.open(d, "f")
    # The same principal may use another context and another service; another principal may not.
    check(first(a.conn, "OK", exchange_id(a.owner, a.verifier),
                credential=cred("games", 3)).clientid, a.clientid)
    for other in (cred("news"), auth_sys(5, 60), auth_sys(0, 0)):
        first(a.conn, "CLID_INUSE", exchange_id(a.owner, os.urandom(8)), credential=other)
        first(a.conn, "PERM", exchange_id(a.owner, a.verifier, 0x40000000), credential=other)
    a.ok(putfh(f), close(s))


def test_only_its_principal_confirms_a_client():
    c, owner = conn(), os.urandom(12)
    got = first(c, "OK", exchange_id(owner, os.urandom(8)), credential=cred("games"))
    for other in (cred("news"), auth_sys(5, 60)):
        first(c, "CLID_INUSE", create_session(got.clientid, got.seq), credential=other)
    first(c, "OK", create_session(got.clientid, got.seq), credential=cred("games"))


def test_a_retry_is_known_by_its_principal_whatever_its_sequence_number():
    a = client("games")
    boss = sys_client()
    d = boss.mkdir(boss.root(), "retry")
    boss.ok(putfh(d), setattr_(mode=0o777))
    slot = a.free[0]
    made = a.ok(putfh(d), create(DIR, "once", mode=0o755), getfh(), cache=True)
    ops = (sequence(a.session.sessionid, a.slots[slot], slot, slot, True), putfh(d),
           create(DIR, "once", mode=0o755), getfh())
    for again in (a.cred, cred("games", 3), cred("games", 1)):
        got = a.conn.compound(*ops, cred=again)
        check((err(got.status), got.results[-1].fh), ("OK", made.fh))
    for other in (cred("news"), auth_sys(5, 60), auth_sys(0, 0)):
        check(err(a.conn.compound(*ops, cred=other).status), "SEQ_FALSE_RETRY")


def machine(enforce=LINUX[0], allow=LINUX[1], **how):
    """A client that the machine's credential protects, as Linux makes one."""
    m = GssClient(ADDR, cred=cred(MACHINE, 2), session=False, **how)
    CLIENTS.append(m)
    got = first(m.conn, "OK",
                exchange_id(m.owner, m.verifier, how=1, protect=bitmap(enforce) + bitmap(allow)),
                credential=m.cred)
    m.eid, m.clientid, m.cs_seq = got, got.clientid, got.seq
    return m


def test_a_machine_credential_needs_integrity():
    protect = bitmap(LINUX[0]) + bitmap(LINUX[1])
    for bad in (cred(MACHINE, 1), auth_sys(0, 0)):
        first(conn(), "INVAL", exchange_id(os.urandom(9), os.urandom(8), how=1, protect=protect),
              credential=bad)
    for good in (2, 3):
        got = first(conn(), "OK", exchange_id(os.urandom(9), os.urandom(8), how=1, protect=protect),
                    credential=cred(MACHINE, good))
        check(got.protect[0], LINUX[0])
        check(got.protect[1] <= LINUX[1], True)
        check({4, 14, 21, 8} <= got.protect[1], True, "what may be allowed")
    ssv = (bitmap({BIND}) + bitmap(set()) + array([opaque(b"oid")]) + array([opaque(b"oid")])
           + u32(8) + u32(1))
    first(conn(), "ENCR_ALG_UNSUPP", exchange_id(os.urandom(9), os.urandom(8), how=2, protect=ssv),
          credential=cred(MACHINE))


def test_only_what_may_be_enforced_is():
    m = machine({7, 18, 3, BIND, 53}, {4, 18, 38})
    check(m.eid.protect, ({7, BIND}, {4}))
    check(machine(set(), set()).eid.protect, (set(), set()))


def test_protected_operations_are_the_machines():
    m = machine()
    user, plain, weak = cred("games"), auth_sys(0, 0), cred(MACHINE, 1)
    for bad in (user, plain, weak):
        first(m.conn, "WRONG_CRED", create_session(m.clientid, m.cs_seq), credential=bad)
    m.create_session()
    m.ok(reclaim_complete())
    # A replay of CREATE_SESSION gives nothing away either.
    first(m.conn, "WRONG_CRED", create_session(m.clientid, m.cs_seq - 1), credential=user)
    first(m.conn, "OK", create_session(m.clientid, m.cs_seq - 1), credential=m.cred)
    for bad in (user, plain, weak):
        first(m.conn, "WRONG_CRED", destroy_session(m.session.sessionid), credential=bad)
        first(m.conn, "WRONG_CRED", destroy_clientid(m.clientid), credential=bad)
        first(m.conn, "ACCESS", bind_conn(m.session.sessionid, 3), credential=bad)
        first(m.conn, "CLID_INUSE", exchange_id(m.owner, os.urandom(8)), credential=bad)
    m.ok(putrootfh(), cred=user)
    m.ok(putrootfh(), cred=m.cred)
    check(first(m.conn, "OK", exchange_id(m.owner, m.verifier), credential=m.cred).protect is None,
          False)
    first(m.conn, "OK", destroy_session(m.session.sessionid), credential=m.cred)
    first(m.conn, "OK", destroy_clientid(m.clientid), credential=cred(MACHINE, 3))


def test_connections_of_a_protected_session_are_bound():
    m = machine()
    m.create_session()
    m.ok(reclaim_complete())
    other = m.connection()
    CLIENTS.append(other)
    seq = lambda: sequence(  # noqa: E731
        m.session.sessionid, m.slots[m.free[0]] + 1, m.free[0], m.free[0])
    first(other, "CONN_NOT_BOUND_TO_SESSION", seq(), credential=m.cred)
    check(first(other, "OK", bind_conn(m.session.sessionid, 1), credential=m.cred).way, 1)
    m.ok(putrootfh(), conn=other)
    third = m.connection()
    CLIENTS.append(third)
    check(first(third, "OK", bind_conn(m.session.sessionid, 3), credential=m.cred).way, 3)
    m.ok(putrootfh(), conn=third, cred=cred("games"))
    # What a client bound ends with the connection.
    other.close()
    fourth = m.connection()
    CLIENTS.append(fourth)
    first(fourth, "CONN_NOT_BOUND_TO_SESSION", seq(), credential=m.cred)
    m.ok(putrootfh())


def test_the_machine_does_state_operations_as_nobody():
    m, user = machine(), cred("games")
    m.create_session()
    m.ok(reclaim_complete())
    boss = sys_client()
    d = boss.mkdir(boss.root(), "machine")
    boss.ok(putfh(d), setattr_(mode=0o777))
    s, f = m.open(d, "f", cred=user, attrs={"mode": 0o600})
    boss.ok(putfh(d), setattr_(mode=0o700, owner="5"))
    m.no("ACCESS", putfh(d), lookup("f"))
    check(m.ok(putfh(f), access(1), cred=user).access, 1)
    l = m.ok(putfh(f), layoutget(s), cred=user.with_service(1))
    m.ok(putfh(f), layoutreturn(l.stateid))
    m.ok(putfh(f), close(s))


def test_an_unprotected_client_may_use_any_credential():
    a = client("games")
    for other in (cred("news"), auth_sys(5, 60)):
        a.ok(putrootfh(), cred=other)
    check(a.eid.protect, None)


def test_sessions_and_callbacks_are_the_clients_principals():
    """This holds for each state protection, and for each of Kerberos' services."""
    a, far = client("games"), GssConn(ADDR, source=("127.0.0.2", 0))
    CLIENTS.append(far)
    for other in (cred("news"), auth_sys(4711, 4711), auth_sys(5, 60)):
        for seq in (a.cs_seq - 1, a.cs_seq):
            first(far, "CLID_INUSE", create_session(a.clientid, seq), credential=other)
        for way in (1, 2, 3):
            first(far, "ACCESS", bind_conn(a.session.sessionid, way), credential=other)
        a.no("ACCESS", nfs41.op("BACKCHANNEL_CTL", u32(0x40000000), u32(1), u32(0)), cred=other)
    for service in SERVICES:
        check(first(far, "OK", bind_conn(a.session.sessionid, 1),
                    credential=cred("games", service)).way, 1)
    check(first(far, "OK", create_session(a.clientid, a.cs_seq - 1), credential=a.cred).sessionid,
          a.session.sessionid, "its own answer")


def test_a_stateid_is_not_good_for_another_principal():
    boss = sys_client()
    d = boss.mkdir(boss.root(), "stateids")
    boss.ok(putfh(d), setattr_(mode=0o777))
    games = client("games")
    s, f = games.open(d, "f", attrs={"mode": 0o600})
    games.ok(putfh(f), write(s, 0, b"secret", FILE_SYNC))
    for ops in ([read(s, 0, 10)], [write(s, 0, b"other", FILE_SYNC)], [setattr_(s, size=0)]):
        games.no("ACCESS", putfh(f), *ops, cred=cred("news"))
    check(games.ok(putfh(f), read(s, 0, 10), cred=cred("games", 1)).data, b"secret")


def test_a_principal_destroys_what_is_its_own():
    a = client("games")
    sid, elsewhere = a.session.sessionid, GssConn(ADDR, source=("127.0.0.2", 0))
    CLIENTS.append(elsewhere)
    for bad in (cred("news"), auth_sys(0, 0)):
        first(elsewhere, "CONN_NOT_BOUND_TO_SESSION", destroy_session(sid), credential=bad)
        first(a.conn, "WRONG_CRED", destroy_clientid(a.clientid), credential=bad)
    first(a.conn, "CONN_NOT_BOUND_TO_SESSION", destroy_session(sid), credential=auth_sys(0, 0))
    # The session still has a connection of its own.
    first(elsewhere, "CONN_NOT_BOUND_TO_SESSION", destroy_session(sid), credential=cred("games"))
    a.conn.close()
    eventually(lambda: err(elsewhere.compound(destroy_session(sid), minor=2,
                                              cred=cred("games")).status) == "OK",
               what="the end of its connection")
    first(elsewhere, "OK", destroy_clientid(a.clientid), credential=cred("games"))


# ---- the daemon


def test_without_a_key_table_gss_is_rejected_and_sys_is_listed():
    top = tempfile.mkdtemp(prefix="weft-gss-none.")
    try:
        dev = os.path.join(BUILD, "tools/weft-dev")
        subprocess.run([dev, "up", top + "/c", "--ds", "1", "--port", "13049"], check=True,
                       capture_output=True, timeout=60)
        c = GssConn(("127.0.0.1", 13049))
        x = Cred(REALM.login("games"))
        try:
            c.init_raw(x.token)
            raise Failed("accepted")
        except nfs41.Rejected as e:
            check(e.why, REJECTEDCRED)
        check(c.rpc(0), b"")
        c.close()
        a = nfs41.Client(("127.0.0.1", 13049))
        check(a.ok(putrootfh(), secinfo_no_name()).flavors, [1, 0])
        a.no("BADOWNER", putrootfh(), setattr_(owner="games@weft.test"))
        a.close()
    finally:
        subprocess.run([dev, "down", top + "/c"], check=True, capture_output=True, timeout=60)
        shutil.rmtree(top)


def test_a_key_table_without_our_keys_is_said_at_start():
    for path in ("/nonexistent/keytab", REALM.keytab("host/localhost")):
        with open(os.path.join(REALM.dir, "key"), "w", encoding="ascii") as f:
            os.fchmod(f.fileno(), 0o600)
            f.write("ab" * 32 + "\n")
        store = tempfile.mkdtemp(prefix="weft-gss-bad.")
        done = subprocess.run([os.path.join(BUILD, "weft-mds"), "-o", f"mds.store={store}/s",
                               "-o", "mds.listen=127.0.0.1:13060",
                               "-o", f"mds.cluster_key={REALM.dir}/key", "-o", f"mds.keytab={path}",
                               "-o", "mds.idmap_domain=weft.test"],
                              capture_output=True, text=True, timeout=60, check=False)
        shutil.rmtree(store)
        check(done.returncode, 2 if path.startswith("/nonexistent") else 1, done.stderr)
        check("mds.keytab" in done.stderr and path in done.stderr, True, done.stderr)


def test_after_a_restart_only_the_same_principal_reclaims():
    a, boss = client("games"), sys_client()
    d = boss.mkdir(boss.root(), "reclaimed")
    boss.ok(putfh(d), setattr_(mode=0o777))
    s, f = a.open(d, "f", attrs={"mode": 0o666})
    CLUSTER.restart()
    # The server has lost all contexts, and says so.
    c = conn()
    check(why(c, a.cred), CREDPROBLEM)
    reclaim = (putfh(f), open_(claim_previous(), READ, owner=b"owner"))
    thief = client("news", owner=a.owner, reclaim=False)
    thief.no(("NO_GRACE", "RECLAIM_BAD"), *reclaim)
    thief.close()
    plain = sys_client(5, owner=a.owner, reclaim=False)
    plain.no(("NO_GRACE", "RECLAIM_BAD"), *reclaim)
    plain.close()
    again = client("games", owner=a.owner, verifier=a.verifier, reclaim=False)
    again.ok(*reclaim)
    again.ok(reclaim_complete())
    again.no("COMPLETE_ALREADY", reclaim_complete())


def test_one_principal_and_one_address_make_room_of_their_own():
    """A principal with too many contexts loses its own, though there are not too many in all."""
    def why_not(x):
        try:
            conn().rpc(0, cred=x)
        except nfs41.Rejected as e:
            return e.why[:3]
        return None

    def at(addr, principal):
        c = GssConn(ADDR, source=(addr, 0))
        CLIENTS.append(c)
        if principal not in TICKETS:
            TICKETS[principal] = REALM.login(principal)
        return c.init(Cred(TICKETS[principal], 2))
    global CLUSTER
    CLUSTER.down()
    CLUSTER = None
    CLUSTER = cluster("mds.gss_contexts_of_address=5", "mds.gss_contexts_of_principal=3")
    other = at("127.0.0.2", "alice")
    mine = [at("127.0.0.3", "games") for _ in range(4)]
    check([why_not(x) for x in mine], [CREDPROBLEM] + [None] * 3, "of one principal")
    check(why_not(other), None)
    news = [at("127.0.0.3", "news") for _ in range(2)] + [at("127.0.0.3", "alice")]
    check([why_not(x) for x in mine], [CREDPROBLEM] * 2 + [None] * 2, "of one address")
    check([why_not(x) for x in news + [other]], [None] * 4)
    # Here the principal's oldest context belongs to another address, so this address makes
    # room as well.
    for x in [other] + mine[2:] + news:
        check(why_not(x), None)
    at("127.0.0.4", "alice")
    one = at("127.0.0.3", "alice")
    check([why_not(x) for x in [other] + mine[2:]], [CREDPROBLEM, CREDPROBLEM, None])
    check(why_not(one), None)


BOTH = CLUSTER = None


@contextlib.contextmanager
def around(name):
    try:
        yield ()
    finally:
        for c in CLIENTS:
            c.drop() if isinstance(c, nfs41.Client) else c.close()
        CLIENTS.clear()


def cluster(*more):
    return Cluster(ds=1, settings=[f"mds.keytab={BOTH}", "mds.idmap_domain=weft.test",
                                   "mds.threads=2", "mds.gss_contexts=20", "mds.grace=3s", *more])


def main():
    global BOTH, CLUSTER, REALM, WHY
    for p in ("krb5kdc", "kdb5_util", "kadmin.local", "kinit"):
        if not WHY and not shutil.which(p, path=os.environ["PATH"] + ":/usr/sbin:/sbin"):
            WHY = f"{p} is missing"
    if not tap.built():
        WHY = "the daemons are not built"
    if WHY:
        tap.skip(WHY)
        return
    top = tempfile.mkdtemp(prefix="weft-gss.")
    try:
        REALM = gss.Realm(top, "games", "news", "alice", MACHINE, "nfs/localhost", "nfs/elsewhere",
                          "host/localhost", skew=1)
        both = os.path.join(top, "both.keytab")
        subprocess.run(["ktutil"], input=f"rkt {REALM.keytab('nfs/localhost')}\nrkt "
                       f"{REALM.keytab('host/localhost')}\nwkt {both}\n",
                       text=True, check=True, capture_output=True)
        BOTH = both
        CLUSTER = cluster()
        tap.run(tap.named(globals()), around)
    finally:
        if CLUSTER:
            CLUSTER.down()
        if REALM:
            REALM.down()
        shutil.rmtree(top)


if __name__ == "__main__":
    main()
