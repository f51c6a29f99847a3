#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""RPC-with-TLS (RFC 9289) on both daemons, by Python's ssl module. Prints TAP. The test makes its
certificates with openssl.

A test gets the cluster whose daemons offer TLS. A required_ test gets one whose daemons demand it,
a mutual_ test one whose daemons demand a certificate with it, and a start_ test none.
"""
import contextlib
import os
import re
import select
import shutil
import signal
import ssl
import struct
import subprocess
import sys
import tempfile
import threading
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../wirelib"))
import tap  # noqa: E402
from tap import BUILD  # noqa: E402
from nfs41 import *  # noqa: E402,F403
from nfs41 import err  # noqa: E402
import tls_wire  # noqa: E402
from load import SANITIZED, anon  # noqa: E402
from harness import ADDR, Cluster, check, eventually, rejected, uaddr  # noqa: E402
from steps import device, lay, returns_when_recalled  # noqa: E402
from tls_wire import (AUTH_TLS, PROBE, Certs, TlsClient, TlsConn, TlsSocket, ask,  # noqa: E402
                      connect, context, live, probed, record)

TOOWEAK, BADCRED, BADVERF = ("denied", 1, 5), ("denied", 1, 1), ("denied", 1, 3)
HANDSHAKE_SECONDS = 10
RECALL_S = 20  # a recall that does not arrive holds the operation up as long
CERTS = None
THE = RUNNING = None  # the cluster, and its kind
STALLED = None


# ---- certificates


# ---- TLS over a socket


def to_end(sock):
    """All bytes until the connection ends."""
    out = b""
    with contextlib.suppress(ConnectionResetError):
        while got := sock.recv(65536):
            out += got
    return out


def refused(ctx, addr=ADDR):
    """The handshake must fail on both sides. Returns what the client heard. TLS 1.3 rejects a
    client's certificate after the handshake."""
    before = THE.metric("weft_rpc_tls_failed_total")
    sock = probed(addr)
    try:
        tls = TlsSocket(sock, ctx)
        tls.sendall(record(rpc_call(1, 0, b"", NOBODY)))
        tls.recv(1)
        raise Failed("the handshake was accepted")
    except (ssl.SSLError, OSError, Closed) as e:
        why = str(e)
    eventually(lambda: THE.metric("weft_rpc_tls_failed_total") == before + 1, 5,
               "the count of failures")
    sock.close()
    return why


def log(daemon="mds"):
    with open(os.path.join(THE.dir, "log", daemon + ".log"), encoding="utf-8") as f:
        return f.read()


def pid(daemon="mds"):
    with open(os.path.join(THE.dir, "run", daemon + ".pid"), encoding="ascii") as f:
        return int(f.read())


def clear_probe(call):
    sock = connect()
    got = ask(sock, call)
    sock.close()
    return struct.unpack(f">{len(got) // 4}I", got)[2:]


def io_through_the_mds(c, name):
    """Writes in a directory of this name and reads it back, and closes the client."""
    d = c.mkdir(c.root(), name)
    s, f = c.open(d, "f")
    c.ok(putfh(f), write(s, 0, b"through the MDS", FILE_SYNC))
    check(c.ok(putfh(f), read(s, 0, 100)).data, b"through the MDS")
    c.close()


class Stalled:
    """Handshakes that stop somewhere, and go on beside other tests until the server ends them."""

    def __init__(self):
        self.faults = []
        self.threads = [threading.Thread(target=self.stall, args=(b,), daemon=True)
                        for b in (b"", b"\x16", b"\x16\x03\x01\x02\x00\x01")]
        for t in self.threads:
            t.start()

    def stall(self, bytes_of_it):
        try:
            sock = probed()
            sock.settimeout(HANDSHAKE_SECONDS + 10)
            sock.sendall(bytes_of_it)
            began = time.monotonic()
            check(to_end(sock), b"", "an answer")
            took = time.monotonic() - began
            if not HANDSHAKE_SECONDS - 1 < took < HANDSHAKE_SECONDS + 3:
                self.faults.append(f"{len(bytes_of_it)} bytes: ended after {took:.1f} s")
        except Exception as e:
            self.faults.append(f"{len(bytes_of_it)} bytes: {e}")


# ---- the probe


def test_the_probe_is_answered_with_starttls():
    probed().close()


def test_a_malformed_probe_is_denied():
    call = rpc_call(1, 0, b"", (AUTH_TLS, b"abcd"))
    check(clear_probe(call), (1, 1, BADCRED[2]), "a credential that is not empty")
    for verf in (u32(AUTH_TLS) + u32(0), u32(0) + opaque(b"abcd")):
        call = rpc_call(1, 0, b"", PROBE)[:-8] + verf
        check(clear_probe(call), (1, 1, BADVERF[2]), "a verifier that is not an empty AUTH_NONE")


def test_auth_tls_on_other_procedures_is_denied():
    sock = connect()
    for proc in (1, 2, 77):
        got = ask(sock, rpc_call(proc, proc, compound_args([]), PROBE))
        check(got, u32(proc) + u32(1) + u32(1) + u32(1) + u32(BADCRED[2]))
    check(ask(sock, rpc_call(9, 0, b"", NOBODY))[:16], u32(9) + u32(1) + u32(0) + u32(0))


def test_the_probe_of_a_program_that_is_not_here_starts_tls_all_the_same():
    for how, status in ((dict(prog=100005), u32(1)), (dict(vers=3), u32(2) + u32(4) + u32(4))):
        sock = connect()
        got = ask(sock, rpc_call(5, 0, b"", PROBE, **how))
        check(got, u32(5) + u32(1) + u32(0) + u32(0) + opaque(b"STARTTLS") + status)
        TlsSocket(sock, context()).close()


def test_the_probe_behind_a_call_in_the_clear_is_denied():
    sock = connect()
    for xid in (1, 2):
        check(ask(sock, rpc_call(xid, 0, b"", NOBODY))[8:12], u32(0))
    ask(sock, rpc_call(3, 1, compound_args([]), auth_sys()))
    check(ask(sock, rpc_call(4, 0, b"", PROBE)),
          u32(4) + u32(1) + u32(1) + u32(1) + u32(BADCRED[2]))


def test_the_probe_behind_null_is_taken():
    sock = connect()
    ask(sock, rpc_call(1, 0, b"", auth_sys()))
    check(ask(sock, rpc_call(2, 0, b"", PROBE))[16:], opaque(b"STARTTLS") + u32(0))
    TlsSocket(sock, context()).close()


def test_the_probe_inside_tls_is_denied():
    conn = TlsConn()
    check(rejected(conn, 0, cred=PROBE), BADCRED)
    check(conn.rpc(0), b"")


def test_a_call_behind_the_probe_is_dropped_without_an_answer():
    """RFC 9289 section 5.1.1."""
    sock = connect()
    sock.sendall(record(rpc_call(1, 0, b"", PROBE)) + record(rpc_call(2, 0, b"", NOBODY)))
    # The server may have answered the probe itself before it sees the call.
    answer = record(u32(1) + u32(1) + u32(0) + u32(0) + opaque(b"STARTTLS") + u32(0))
    check(to_end(sock) in (b"", answer), True)
    sock = probed()
    sock.sendall(record(rpc_call(2, 0, b"", NOBODY)))
    check(to_end(sock), b"")


def test_bytes_that_are_no_handshake_are_dropped_without_an_answer():
    for data in (b"GET / HTTP/1.0\r\n\r\n", b"\x16\x02\x00\x01\x01", bytes(100),
                 b"\x17\x03\x03\x00\x01\x00"):
        sock = probed()
        sock.sendall(data)
        check(to_end(sock), b"", repr(data))


def test_a_broken_handshake_gets_an_alert():
    before = THE.metric("weft_rpc_tls_failed_total")
    for data in (b"\x16\x03\x01\x00\x05\x01\x00\x00\x01\x00", b"\x16\x03\x01\xff\xff" + bytes(100),
                 b"\x16\x03\x03\x00\x04\x02\x00\x00\x00"):
        sock = probed()
        sock.sendall(data)
        got = to_end(sock)
        check(got[:1] in (b"\x15", b""), True, repr(got))
    check(THE.metric("weft_rpc_tls_failed_total"), before + 3)


# ---- the handshake


def test_tls_1_3_with_alpn_and_without_tickets():
    conn = TlsConn()
    check(conn.rpc(0), b"")
    tls = conn.sock.tls
    check((tls.version(), tls.selected_alpn_protocol()), ("TLSv1.3", "sunrpc"))
    check(tls.session.has_ticket if tls.session else False, False, "a ticket was sent")
    check(tls.getpeercert()["subject"], ((("commonName", "server"),),))


def test_tls_1_2_is_refused():
    ctx = context()
    ctx.maximum_version = ssl.TLSVersion.TLSv1_2
    check("alert" in refused(ctx).lower(), True)


def test_alpn_must_have_sunrpc():
    got = refused(context(alpn=("http/1.1", "sunrp", "sunrpcs")))
    check("no application protocol" in got.lower().replace("_", " "), True, got)
    check(TlsSocket(probed(), context(alpn=("http/1.1", "sunrpc"))).tls.selected_alpn_protocol(),
          "sunrpc")


def test_a_client_without_alpn_is_let_in():
    """As Linux with ktls-utils 1.0."""
    check(TlsConn(ctx=context(alpn=None)).rpc(0), b"")


def test_a_client_without_a_certificate_is_anonymous():
    before = log().count("without a certificate")
    check(TlsConn().rpc(0), b"")
    check(log().count("without a certificate"), before + 1)


def test_a_client_with_a_good_certificate_is_known_by_serial_and_issuer():
    for name in ("client", "rpcclient"):
        check(TlsConn(ctx=context(name)).rpc(0), b"")
        check(re.search(rf'over TLS .*certificate {CERTS.serial[name]} of "/CN=weft test ca"',
                        log()) is not None, True, name)


def test_a_client_with_a_wrong_certificate_is_refused():
    for name, why in (("stranger", "unknown ca"), ("serveronly", "certificate"),
                      ("old", "certificate expired")):
        got = refused(context(name))
        check(why in got.lower().replace("_", " "), True, f"{name}: {got}")


def test_close_notify_is_answered():
    tls = TlsSocket(probed(), context())
    tls.notify()
    rest = to_end(tls.sock)
    tls.inside.write(rest)
    try:
        tls.tls.unwrap()
    except ssl.SSLError as e:
        raise Failed(f"no close_notify came back: {e}, {len(rest)} bytes") from e


# ---- calls


def test_records_in_single_bytes():
    io_through_the_mds(TlsClient(chop=1), "bytes")


def test_records_split_and_put_together():
    """RPC records cut into TLS records of every size, and many of them in one."""
    conn = TlsConn()
    call = rpc_call(1, 0, b"", auth_sys())
    xids = range(5000, 5040)
    stream = b""
    for xid in xids:
        conn.wanted.add(xid)
        call = rpc_call(xid, 0, b"", auth_sys())
        stream += u32(20) + call[:20] + record(call[20:])
    for size in (1, 3, 37, 1000, len(stream)):
        conn.send_raw(stream[:size])
        stream = stream[size:]
    conn.send_raw(stream)
    for xid in xids:
        check(conn.finish(xid), b"")


def test_large_reads_and_writes():
    data = os.urandom(1 << 20)
    for chop in (1 << 20, 1447, 16401):
        c = TlsClient(chop=chop)
        d = c.mkdir(c.root(), f"large{chop}")
        s, f = c.open(d, "f")
        for at in (0, 1 << 20):
            c.ok(putfh(f), write(s, at, data, UNSTABLE))
        c.ok(putfh(f), commit())
        begun = [c.begin(putfh(f), read(s, at, 1 << 20)) for at in (0, 1 << 20, 0)]
        for one in begun:
            check(c.finish(one).results[-1].data == data, True)
        check(c.ok(putfh(f), read(s, 12345, 70001)).data == (data + data)[12345:82346], True)
        c.close()


def test_a_client_that_does_not_read_is_not_read_either():
    most = 40000
    sock = TlsSocket(probed(), context())
    sock.sock.settimeout(1)
    before, sent = anon(pid()), 0
    # A COMPOUND without a session has a small reply, which its tag makes larger: enough of them
    # fill every buffer on the way.
    call = record(rpc_call(1, 1, compound_args([putrootfh()], tag=b"x" * 900), auth_sys()))
    with contextlib.suppress(TimeoutError):
        for sent in range(most):
            sock.sendall(call)
    check(sent < most - 1, True, "the server reads on though nobody takes its answers")
    grown = anon(pid()) - before
    check(SANITIZED or grown < 64 << 20, True, f"the server grew by {grown} bytes")
    other = TlsClient()
    check(other.ok(putrootfh()).status, 0)
    other.close()
    sock.close()


def test_cleartext_after_the_handshake_ends_the_connection():
    before = THE.metric("weft_rpc_tls_failed_total")
    tls = TlsSocket(probed(), context())
    tls.sock.sendall(record(rpc_call(1, 0, b"", NOBODY)))
    check(rpc_call(1, 0, b"", NOBODY)[:4] in to_end(tls.sock), False)
    check(THE.metric("weft_rpc_tls_failed_total"), before + 1)


def test_a_record_that_was_changed_ends_the_connection():
    tls = TlsSocket(probed(), context())
    tls.tls.write(record(rpc_call(1, 0, b"", NOBODY)))
    data = bytearray(tls.outside.read())
    data[-1] ^= 1
    tls.sock.sendall(data)
    check(b"\0\0\0\x01" in to_end(tls.sock)[5:], False)


def vouched(test):
    """The administrator declares the data servers' network to be protected."""
    def run():
        with exports(lambda was: was.replace("{\n", "{\n\tlayouts = yes\n", 1)):
            test()
    run.__module__ = test.__module__
    return run


@vouched
def test_callbacks_go_over_tls():
    c, two = TlsClient(), TlsClient()
    d = c.mkdir(c.root(), "recall")
    s, f = c.open(d, "f")
    lay(c, f, s)
    returns_when_recalled(c, f)
    began = time.monotonic()
    two.ok(putfh(f), setattr_(ANON, size=7))
    check(c.wait_callback("LAYOUTRECALL").fh, f)
    check(time.monotonic() - began < RECALL_S / 2, True, "the recall did not arrive in time")
    for one in (c, two):
        one.close()


@vouched
def test_the_data_server_serves_over_tls():
    c = TlsClient()
    d = c.mkdir(c.root(), "data")
    s, f = c.open(d, "f")
    server = lay(c, f, s).mirrors[0][0]
    ds = DataServer.__new__(DataServer)
    addr = uaddr(device(c, server.deviceid).addrs[0][1])
    ds.conn, ds.cred = TlsConn(addr, vers=3), auth_sys(int(server.user), int(server.group))
    data = os.urandom(1 << 20)
    check(ds.write(server.fhs[0], 0, data).status, 0)
    check(ds.read(server.fhs[0], 0, 1 << 20).data == data, True)
    check(c.ok(putfh(f), read(s, 0, 1 << 20)).data == data, True)
    c.close()


def test_many_connections():
    """200 at once, each with calls of several sizes."""
    faults, before = [], THE.metric("weft_rpc_tls_connections")

    def one(n):
        try:
            conn = TlsConn()
            for size in (0, 100, 900):
                got = conn.compound(putrootfh(), tag=b"%d" % n + b"x" * size)
                check(err(got.status), "OP_NOT_IN_SESSION")
            conn.sock.notify()
            conn.close()
        except Exception as e:
            faults.append(f"{n}: {type(e).__name__} {e}")
    for _ in range(4):
        threads = [threading.Thread(target=one, args=(n,)) for n in range(50)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    check(faults, [])
    eventually(lambda: THE.metric("weft_rpc_tls_connections") <= before, 5,
               "the end of all connections")


def test_many_handshakes_at_once_leave_turns_to_others():
    """With the group of the stock client, whose public-key work is the slowest."""
    ctx = context()
    ctx.set_ecdh_curve("secp384r1")
    out = ssl.MemoryBIO()
    tls = ctx.wrap_bio(ssl.MemoryBIO(), out, server_hostname="server.test")
    with contextlib.suppress(ssl.SSLWantReadError):
        tls.do_handshake()
    hello = out.read()
    other = Conn(ADDR)
    socks = [probed() for _ in range(200)]
    for sock in socks:
        sock.sendall(hello)
    wait, pings = {sock.fileno() for sock in socks}, 0
    poll = select.poll()
    for fd in wait:
        poll.register(fd, select.POLLIN)
    while wait:
        check(other.rpc(0), b"")
        pings += 1
        for fd, _ in poll.poll(0):
            poll.unregister(fd)
            wait.discard(fd)
    for sock in socks:
        sock.close()
    check(pings >= 10, True, f"{pings} calls of another connection were answered meanwhile")


# ---- loading certificates again


def hup(want):
    before = log().count(want)
    os.kill(pid(), signal.SIGHUP)
    eventually(lambda: log().count(want) > before, 5, f"a line with {want!r}")


def test_certificates_are_loaded_anew_and_nobody_is_dropped():
    c = TlsClient()
    try:
        for name in ("server2", "server2.key"):
            shutil.copy(CERTS[name], CERTS[name.replace("server2", "live")])
        hup('certificate "/CN=server2"')
        check(TlsSocket(probed(), context(), "server2.test").tls.getpeercert()["subject"],
              ((("commonName", "server2"),),))
        with open(CERTS["live"], "w", encoding="ascii") as f:
            f.write("no certificate\n")
        hup("stay in use")
        TlsSocket(probed(), context(), "server2.test").close()
        shutil.copy(CERTS["server"], CERTS["live"])
        hup("is not the key of the certificate")
        TlsSocket(probed(), context(), "server2.test").close()
    finally:
        live()
        hup('certificate "/CN=server"')
    c.ok(putrootfh())
    c.close()


def test_a_client_whose_authority_is_taken_away_is_judged_again():
    """RFC 9289 section 5.2.1. Clients without a certificate stay."""
    known, anonymous = TlsConn(ctx=context("client")), TlsConn()
    try:
        hup('certificate "/CN=server"')
        check(known.rpc(0), b"", "after loading the same again")
        shutil.copy(CERTS["other"], CERTS["trusted"])
        hup('certificate "/CN=server"')
        with contextlib.suppress(Closed):
            known.rpc(0)
            raise Failed("the connection goes on")
        check(anonymous.rpc(0), b"")
    finally:
        live()
        hup('certificate "/CN=server"')


def test_a_revoked_certificate_is_refused():
    top = CERTS.dir
    with open(os.path.join(top, "index.txt"), "w", encoding="ascii") as f:
        f.write(f"R\t351231235959Z\t250101000000Z\t{CERTS.serial['rpcclient']}\tunknown\t"
                "/CN=rpcclient\n")
    conf = os.path.join(top, "ca.cnf")
    with open(conf, "w", encoding="ascii") as f:
        f.write(f"[ca]\ndefault_ca=x\n[x]\ndatabase={top}/index.txt\n"
                "default_md=sha256\ndefault_crl_days=30\n")
    crl = CERTS.openssl("ca", "-config", conf, "-gencrl", "-cert", CERTS["ca"], "-keyfile",
                        CERTS["ca.key"])
    known = TlsConn(ctx=context("rpcclient"))
    try:
        with open(CERTS["trusted"], "a", encoding="ascii") as f:
            f.write(crl)
        hup('certificate "/CN=server"')
        check("revoked" in refused(context("rpcclient")).lower(), True)
        with contextlib.suppress(Closed):
            known.rpc(0)
            raise Failed("the connection goes on")
        check(TlsConn(ctx=context("client")).rpc(0), b"")
    finally:
        live()
        hup('certificate "/CN=server"')


# ---- layouts where an export demands TLS


def write_exports(text):
    with open(os.path.join(THE.dir, "exports"), "w", encoding="utf-8") as f:
        f.write(text)
    done = subprocess.run([os.path.join(BUILD, "weft"), "--admin", f"unix:{THE.dir}/run/mds.sock",
                           "exports", "reload"],
                          capture_output=True, text=True, timeout=60, check=False)
    check(done.returncode, 0, done.stderr)


@contextlib.contextmanager
def exports(change):
    """Uses other exports for a while: change(text) gives them."""
    with open(os.path.join(THE.dir, "exports"), encoding="utf-8") as f:
        was = f.read()
    try:
        write_exports(change(was))
        yield
    finally:
        write_exports(was)


def laid(level, cert=None):
    """What LAYOUTGET says when "/" demands this level of TLS."""
    with exports(lambda was: was.replace("{\n", f"{{\n\ttls = {level}\n", 1)):
        c = TlsClient(ctx=context(cert))
        s, f = c.open(c.root(), f"laid {level}")
        got = c.call(putfh(f), layoutget(s))
        types = c.attrs(c.root(), "fs_layout_types").fs_layout_types
        c.close()
    check(types, [FLEX] if got.status == 0 else [])
    return err(got.status)


def test_no_layouts_where_data_servers_take_less_than_the_export():
    check(laid("tls"), "LAYOUTUNAVAILABLE")
    check(laid("none"), "OK",
          "the client has TLS by its own will, and to data servers that take it as well")
    check(laid("none\n\tlayouts = yes"), "OK", "the administrator vouches")


def test_what_went_is_given_back_as_protected_as_its_session():
    c = TlsClient(ctx=context("client"))
    s, f = c.open(c.root(), "given back")
    with exports(lambda was: 'export "/else" { create = yes privileged_port = no client "*" { } }'):
        for conn in (Conn(ADDR), TlsConn(ADDR, ctx=context())):
            got = c.call(putfh(f), close(s), conn=conn)
            check((err(got.status), len(got.results)), ("STALE", 2))
            conn.close()
        c.ok(putfh(f), close(s))
    c.close()


def test_a_session_is_destroyed_as_protected_as_it_was_made():
    c = TlsClient(ctx=context("client"))
    sid = c.session.sessionid
    for conn in (Conn(ADDR), TlsConn(ADDR, ctx=context())):
        for want, one in (("CONN_NOT_BOUND_TO_SESSION", destroy_session(sid)),
                          ("WRONG_CRED", destroy_clientid(c.clientid))):
            check(err(conn.compound(one).status), want)
        conn.close()
    conn = TlsConn(ADDR, ctx=context("client"))
    check([err(conn.compound(one).status) for one in (sequence(sid, 1, 5), destroy_session(sid),
                                                      destroy_clientid(c.clientid))], ["OK"] * 3)
    conn.close()
    c.close()


def test_a_stalled_handshake_is_ended_in_time():
    """The last test with this cluster: the handshakes began with it."""
    for t in STALLED.threads:
        t.join()
    check(STALLED.faults, [])


def required_layouts_where_data_servers_demand_as_much():
    check(laid("tls"), "OK")
    check(laid("mtls", "client"), "LAYOUTUNAVAILABLE")


def mutual_layouts_where_data_servers_demand_a_certificate():
    check(laid("mtls", "client"), "OK")
    check(laid("tls", "client"), "OK")


# ---- where TLS is demanded


def required_calls_in_the_clear_are_too_weak():
    conn = Conn(ADDR)
    check(conn.rpc(0), b"")
    check(conn.rpc(0, cred=auth_sys()), b"")
    for cred in (NOBODY, auth_sys()):
        check(rejected(conn, 1, compound_args([]), cred=cred), TOOWEAK)
    check(conn.rpc(0), b"")
    sock = connect()
    check(ask(sock, rpc_call(1, 1, compound_args([]), auth_sys()))[8:],
          u32(1) + u32(1) + u32(TOOWEAK[2]))
    check(ask(sock, rpc_call(2, 0, b"", PROBE))[16:], opaque(b"STARTTLS") + u32(0))
    TlsSocket(sock, context()).close()


def required_data_servers_demand_it_too():
    conn = Conn(("127.0.0.1", ADDR[1] + 1))
    check(conn.rpc(0, vers=3), b"")
    check(rejected(conn, 1, opaque(bytes(32)), cred=auth_sys(), vers=3), TOOWEAK)


def required_the_control_protocol_goes_on():
    check(THE.metric("weft_mds_ds_alive"), 2)
    check(" calls in the clear" in log(), False)


def required_files_are_read_and_written():
    io_through_the_mds(TlsClient(), "files")
    check(any("with the cluster's key" in log(ds) for ds in ("ds1", "ds2")), True)


# ---- where a client's certificate is demanded


def mutual_only_clients_with_a_certificate_are_let_in():
    got = refused(context())
    check("certificate required" in got.lower().replace("_", " "), True, got)
    check(rejected(Conn(ADDR), 1, compound_args([]), cred=auth_sys()), TOOWEAK)
    check(TlsConn(ctx=context("client")).rpc(0), b"")


def mutual_the_mds_needs_none_on_data_servers():
    io_through_the_mds(TlsClient(ctx=context("client")), "files")


# ---- starting


def start_errors_name_the_file_and_what_is_wrong():
    with tempfile.TemporaryDirectory() as top:
        key = os.path.join(top, "key")
        with open(key, "w", encoding="ascii") as f:
            os.fchmod(f.fileno(), 0o600)
            f.write("ab" * 32 + "\n")
        locked = os.path.join(top, "locked")
        CERTS.openssl("ec", "-in", CERTS["server.key"], "-aes128", "-passout", "pass:secret",
                      "-out", locked)
        empty = os.path.join(top, "empty")
        open(empty, "w", encoding="ascii").close()
        good = dict(tls="optional", tls_cert=CERTS["server"], tls_key=CERTS["server.key"])
        cases = [
            (dict(tls="maybe"), "tls"), (dict(tls_cert=""), "tls_cert: names no file"),
            (dict(tls_key=""), "tls_key: names no file"),
            (dict(tls_cert="/nowhere/c.pem"),
             "tls_cert: /nowhere/c.pem: No such file or directory"),
            (dict(tls_key="/nowhere/k.pem"), "tls_key: /nowhere/k.pem: No such file or directory"),
            (dict(tls_ca="/nowhere/a.pem"), "tls_ca: /nowhere/a.pem: No such file or directory"),
            (dict(tls_cert=empty), f"tls_cert: {empty}: "),
            (dict(tls_key=empty), f"tls_key: {empty}: "),
            (dict(tls_ca=empty), f"tls_ca: {empty}: "),
            (dict(tls_key=locked), f"tls_key: {locked}: "),
            (dict(tls_key=CERTS["client.key"]), "is not the key of the certificate in"),
            (dict(tls="mutual"), "tls_ca: names no file"),
        ]
        for program, section in (("weft-mds", "mds"), ("weft-ds", "ds")):
            for change, want in cases:
                args = {**good, **change, "store": os.path.join(top, "store"), "cluster_key": key,
                        "listen": "127.0.0.1:13000"}
                done = subprocess.run(
                    [os.path.join(BUILD, program),
                     *(a for k, v in args.items() for a in ("-o", f"{section}.{k}={v}"))],
                    capture_output=True, text=True, timeout=60, check=False)
                check(done.returncode != 0 and want in done.stderr, True,
                      f"{program} {change}: {done.stderr}")


# ---- harness


def cluster(mode):
    live()
    return Cluster(2, [f"mds.recall_deadline={RECALL_S}s",
                       *(s for d in ("mds", "ds")
                         for s in (f"{d}.tls={mode}", f"{d}.tls_cert={CERTS['live']}",
                                   f"{d}.tls_key={CERTS['live.key']}",
                                   f"{d}.tls_ca={CERTS['trusted']}"))])


@contextlib.contextmanager
def around(name):
    """With a cluster of its kind, which is the one that runs or a new one."""
    global THE, RUNNING, STALLED
    kind = name.partition("_")[0]
    if kind not in ("required", "mutual", "start"):
        kind = "optional"
    if kind != RUNNING:
        if THE:
            THE.down()
        THE, RUNNING = None, None
        if kind != "start":
            THE = cluster(kind)
        RUNNING = kind
        if kind == "optional":
            STALLED = Stalled()
    yield ()


def main():
    global CERTS
    if not tap.built() or not shutil.which("openssl"):
        tap.skip("the daemons are not built, or openssl is missing")
        return
    CERTS = tls_wire.CERTS = Certs()
    try:
        tap.run(tap.named(globals(), "test_", "required_", "mutual_", "start_"), around)
    finally:
        if THE:
            THE.down()
        shutil.rmtree(CERTS.dir)


if __name__ == "__main__":
    main()
