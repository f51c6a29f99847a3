#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Between the daemons, too, the data of a protected request is protected. Prints TAP.

No daemon has a certificate for that. A relay between the daemons looks at each byte.
"""
import contextlib
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import threading

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../wirelib"))
import harness  # noqa: E402
import tap  # noqa: E402
import tls_wire  # noqa: E402
from harness import ADDR, Cluster, check, eventually  # noqa: E402
from nfs41 import *  # noqa: E402,F403
from nfs41 import err  # noqa: E402
from tool import weft_json as weft  # noqa: E402
from beside import Server  # noqa: E402
from tap import BUILD  # noqa: E402
try:
    import gss
except ImportError:
    gss = None

LONG = 60
PEERS = dict(prog=0x20077EFE, vers=1)  # CTL_PEER_PROGRAM
TOP = REALM = W = NEAR = None


class Relay:
    """In front of a data server's port: it keeps the bytes of both directions."""

    def __init__(self, to):
        self.to, self.socks, self.refuses = to, set(), False
        self.there, self.back = bytearray(), bytearray()
        self.lock, self.refused = threading.Lock(), 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            one, _ = self.listener.accept()
            if self.refuses:
                threading.Thread(target=self.refuse, args=(one,), daemon=True).start()
                continue
            try:
                two = socket.create_connection(("127.0.0.1", self.to))
            except ConnectionRefusedError:
                one.close()
                continue
            with self.lock:
                self.socks |= {one, two}
            for a, b, kept in ((one, two, self.there), (two, one, self.back)):
                threading.Thread(target=self.pump, args=(a, b, kept), daemon=True).start()

    def pump(self, a, b, kept):
        with contextlib.suppress(OSError):
            while got := a.recv(1 << 18):
                kept += got
                b.sendall(got)
        for s in (a, b):
            with contextlib.suppress(OSError):
                s.shutdown(socket.SHUT_RDWR)

    def refuse(self, one):
        """Answers the probe as a server without TLS, and takes the bytes that follow."""
        with contextlib.suppress(OSError, Closed):
            call = tls_wire.exactly(one, 44)
            one.sendall(tls_wire.record(call[4:8] + u32(1) + u32(1) + u32(1) + u32(2)))
            self.refused += 1
            while got := one.recv(1 << 18):
                self.there += got

    def cut(self):
        with self.lock:
            socks, self.socks = self.socks, set()
        for s in socks:
            with contextlib.suppress(OSError):
                s.shutdown(socket.SHUT_RDWR)

    def seen(self):
        return len(self.there), len(self.back)


class Relayed:
    """A data server behind a relay: all others have the relay's address."""

    def __init__(self, name, **settings):
        join = sys.modules[Server.__module__]
        self.relay = Relay(join.PORT + 1)
        self.server = Server(W, name, advertise=f"127.0.0.1:{self.relay.port}", **settings)
        self.server.says("joined as data server", LONG)


class Plain(Client):
    """Nothing protects its requests, and its data goes through the metadata server too."""


def tls_client(on=ADDR):
    return tls_wire.TlsClient(on)


def gss_client(service):
    conn = gss.GssConn(ADDR)
    c = gss.GssClient(ADDR, cred=conn.init(gss.Cred(REALM.login("games"), service)))
    c.conn_of_context = conn
    return c


def kinds():
    """The kinds of clients whose requests come protected."""
    yield "tls", tls_client
    if REALM:
        yield "krb5i", lambda: gss_client(gss.INTEGRITY)
        yield "krb5p", lambda: gss_client(gss.PRIVACY)


def of(c, name):
    inside = c.ok(putrootfh(), lookup("all"), getfh()).fh
    return c.open(inside, name)


def marked():
    mark = secrets.token_hex(16).encode()
    return mark, mark * 8192


def written(c, s, f, data, stable=FILE_SYNC):
    got = c.until(lambda got: err(got.status) != "DELAY", putfh(f), write(s, 0, data, stable))
    check(err(got.status), "OK")


def is_read(c, s, f, data):
    check(c.ok(putfh(f), read(s, 0, len(data))).data == data, True, "what was written is read")


def goes_by(relay, c, name):
    """Whether the relay sees the bytes of a WRITE, and those of a READ."""
    mark, data = marked()
    s, f = of(c, name)
    there, back = relay.seen()
    written(c, s, f, data)
    written(c, s, f, data, UNSTABLE)
    c.ok(putfh(f), commit())
    is_read(c, s, f, data)
    check(c.ok(putfh(f), read_plus(s, 0, len(data))).status, 0)
    after = relay.seen()
    least = 2 * len(data)
    check(after[0] - there > least and after[1] - back > least, True, "it goes by the relay")
    return mark in relay.there[there:], mark in relay.back[back:]


def all_have_keys():
    return not [s for s in weft(W, "key", "status")["servers"] if s["alive"]]


def test_what_came_in_the_clear_goes_on_as_before():
    c = Plain(ADDR)
    check(goes_by(NEAR.relay, c, "plain"), (True, True))
    c.close()


def test_what_came_protected_is_not_seen_between_the_daemons():
    for name, kind in kinds():
        c = kind()
        check(goes_by(NEAR.relay, c, name), (False, False), name)
        c.drop()
    check("with the cluster's key" in NEAR.server.said(), True)
    check(" calls in the clear" in NEAR.server.said(), False,
          "said of a server that offers clients no TLS")


def test_who_takes_it_away_gets_no_data():
    mark, data = marked()
    c, relay = tls_client(), NEAR.relay
    s, f = of(c, "taken away")
    written(c, s, f, b"before")
    relay.refuses = True
    relay.cut()
    try:
        # The first call may get its answer before the daemon has tried to connect again.
        c.until(lambda got: check(err(got.status), "DELAY") or relay.refused, putfh(f),
                write(s, 0, data, FILE_SYNC), tries=600, pause=0.1)
    finally:
        relay.refuses = False
    written(c, s, f, data)
    is_read(c, s, f, data)
    check(mark in relay.there or mark in relay.back, False)
    c.close()


# ---- strangers


def probe(port, **how):
    sock = tls_wire.connect(("127.0.0.1", port))
    return sock, tls_wire.ask(sock, rpc_call(77, 0, b"", tls_wire.PROBE, **how))


def shaken(port, key, identity):
    """Whether a handshake with this key succeeds, by openssl."""
    sock, got = probe(port, **PEERS)
    check(got, u32(77) + u32(1) + u32(0) + u32(0) + opaque(b"STARTTLS") + u32(0))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        child = subprocess.Popen(
            ["openssl", "s_client", "-connect", f"127.0.0.1:{listener.getsockname()[1]}", "-tls1_3",
             "-alpn", "sunrpc", "-psk", key, "-psk_identity", identity,
             "-ciphersuites", "TLS_AES_128_GCM_SHA256"],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        one, _ = listener.accept()
    relay = Relay.__new__(Relay)
    pumps = [threading.Thread(target=relay.pump, args=(*way, bytearray()), daemon=True)
             for way in ((one, sock), (sock, one))]
    for t in pumps:
        t.start()
    out = child.communicate(timeout=LONG)[0]
    for t in pumps:
        t.join()
    check("Reused, TLSv1.3" in out or "Cipher is (NONE)" in out, True, out)
    return "Reused, TLSv1.3" in out


def key_file(name):
    path = os.path.join(TOP, secrets.token_hex(4) + ".key")
    weft(W, "ds", "key", name, "--out", path)
    return path


def key_of(name):
    with open(key_file(name), encoding="ascii") as f:
        return dict(line.split("=", 1) for line in f.read().splitlines()[1:])["tls"]


def test_strangers_have_no_tls_there():
    port = NEAR.server.port
    programs = ((100003, 3), (100005, 3), (0x20077EFF, 1))
    for how in (dict(prog=prog, vers=vers) for prog, vers in programs):
        sock, got = probe(port, **how)
        check(got, u32(77) + u32(1) + u32(1) + u32(1) + u32(2), f"as where there is none: {how}")
        sock.close()
    mine = key_of("near")
    check(shaken(port, mine, "weft"), True)
    for key, identity in ((secrets.token_hex(32), "weft"), (mine, "left"),
                          (key_of("other"), "weft"), (mine, "weft" + "x" * 16),
                          (secrets.token_hex(32), "weft" + "x" * 16)):
        check(shaken(port, key, identity), False, identity)
    sock, _ = probe(port, **PEERS)
    try:
        tls_wire.TlsSocket(sock, tls_wire.context())
        raise Failed("a handshake without a key was taken")
    except (OSError, Closed):
        sock.close()


# ---- rotation


class Doing(threading.Thread):
    """Writes and reads through the metadata server until the test ends it."""

    def __init__(self, c, name):
        super().__init__()
        self.c, self.over, self.n, self.bad = c, False, 0, []
        self.s, self.f = of(c, name)
        self.start()

    def run(self):
        try:
            while not self.over:
                data = os.urandom(65536)
                written(self.c, self.s, self.f, data)
                is_read(self.c, self.s, self.f, data)
                self.n += 1
        except Exception as e:
            self.bad.append(f"{type(e).__name__}: {e}")


def test_a_rotation_of_the_key_fails_no_io():
    eventually(all_have_keys, LONG, "all have keys of their own")
    clients = [tls_client(), Plain(ADDR)]
    doing = [Doing(c, f"rotated {i}") for i, c in enumerate(clients)]

    def goes_on():
        at = [d.n for d in doing]
        eventually(lambda: all(d.bad or d.n > n + 5 for d, n in zip(doing, at)), LONG,
                   "I/O goes on")
    try:
        goes_on()
        weft(W, "key", "rotate", "--yes")
        goes_on()
        eventually(all_have_keys, LONG, "all have the new keys")
        goes_on()
        NEAR.relay.cut()  # the next connections need a new handshake
        goes_on()
    finally:
        for d in doing:
            d.over = True
        for d in doing:
            d.join()
    check([d.bad for d in doing], [[], []])
    for c in clients:
        c.close()


# ---- between data servers


def test_what_one_data_server_reads_of_another_is_not_seen():
    c, relay = Plain(ADDR), NEAR.relay
    mark, data = marked()
    s, f = of(c, "moves")
    written(c, s, f, data)
    check(mark in relay.there, True, "it went there in the clear")
    back = len(relay.back)
    far = Relayed("far", cluster_key="", key=key_file("far"))  # the test rotated the cluster key
    try:
        weft(W, "ds", "drain", "near")
        listed = lambda: weft(W, "ds", "list")["ds"]  # noqa: E731
        near = lambda: next(d for d in listed() if d["name"] == "near")  # noqa: E731
        eventually(lambda: near().get("drain") == "drained", LONG, "all is moved")
        check(len(relay.back) - back > len(data), True, "it comes by the relay")
        check(mark in relay.back[back:], False)
        there = len(far.relay.back)
        is_read(c, s, f, data)
        check(mark in far.relay.back[there:], True, "it is read of the other server")
    finally:
        far.server.end()
    c.close()


# ---- harness


def start():
    global W, NEAR
    tls_wire.live()
    certs = tls_wire.CERTS
    settings = ["mds.lease=10s", "mds.grace=5s", "mds.repair_files=10", "mds.tls=optional",
                f"mds.tls_cert={certs['live']}", f"mds.tls_key={certs['live.key']}"]
    sec = "sys"
    if REALM:
        settings += [f"mds.keytab={REALM.keytab('nfs/localhost')}", "mds.idmap_domain=weft.test"]
        sec = "sys, krb5, krb5i, krb5p"
    W = harness.THE = Cluster(1, settings)
    with open(W.dir + "/exports", "w", encoding="utf-8") as f:
        f.write('export "/" { client "*" { access = rw  squash = none  privileged_port = false'
                '  sec = {%s} } }\n' % sec)
    subprocess.run([os.path.join(BUILD, "weft"), "--admin", f"unix:{W.dir}/run/mds.sock",
                    "exports", "reload"], check=True, capture_output=True)
    NEAR = Relayed("near")
    weft(W, "ds", "kill", "ds1")  # all files are on the servers behind relays
    boss = Client(ADDR, cred=auth_sys(0, 0))
    boss.ok(putfh(boss.mkdir(boss.root(), "all")), setattr_(mode=0o777))
    boss.close()


def main():
    global TOP, REALM
    if not tap.built() or not shutil.which("openssl"):
        tap.skip("the daemons are not built, or openssl is missing")
        return
    TOP = tempfile.mkdtemp(prefix="weft-between.")
    try:
        tls_wire.CERTS = tls_wire.Certs()
        path = os.environ["PATH"] + ":/usr/sbin:/sbin"
        kerberos = "krb5kdc", "kdb5_util", "kadmin.local", "kinit"
        if gss and all(shutil.which(p, path=path) for p in kerberos):
            REALM = gss.Realm(TOP, "games", "nfs/localhost", skew=1)
        start()
        tap.run(tap.named(globals()))
    finally:
        if NEAR:
            NEAR.server.end()
        tls_wire.down(TOP, W, REALM)


if __name__ == "__main__":
    main()
