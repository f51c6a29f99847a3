# SPDX-License-Identifier: Apache-2.0
"""RPC-with-TLS (RFC 9289) for the client of nfs41.py, and certificates that openssl makes."""
import contextlib
import os
import shutil
import socket
import ssl
import struct
import subprocess
import tempfile
import threading

from harness import ADDR, check
from nfs41 import *  # noqa: F403

AUTH_TLS = 7
PROBE = AUTH_TLS, b""
CERTS = None


class Certs:
    """Two authorities that do not know each other. "ca" signs for the servers and for good
    clients."""

    def __init__(self):
        self.dir = tempfile.mkdtemp(prefix="weft-tls-test.")
        for ca in ("ca", "other"):
            self.openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
                         "-nodes", "-days", "30", "-keyout", self[ca + ".key"], "-out", self[ca],
                         "-subj", f"/CN=weft test {ca}")
        self.serial = {}
        self.make("server", "ca", "subjectAltName=DNS:server.test,IP:127.0.0.1")
        self.make("server2", "ca", "subjectAltName=DNS:server2.test,IP:127.0.0.1")
        self.make("client", "ca", "extendedKeyUsage=clientAuth")
        self.make("rpcclient", "ca", "extendedKeyUsage=1.3.6.1.5.5.7.3.33")
        self.make("serveronly", "ca", "extendedKeyUsage=serverAuth")
        self.make("stranger", "other", "extendedKeyUsage=clientAuth")
        self.make("old", "ca", "extendedKeyUsage=clientAuth", days="-1")

    def __getitem__(self, name):
        return os.path.join(self.dir, name + ("" if name.endswith(".key") else ".pem"))

    @staticmethod
    def openssl(*args):
        done = subprocess.run(["openssl", *args], capture_output=True, text=True, timeout=60,
                              check=False)
        assert done.returncode == 0, f"openssl {args[0]}: {done.stderr}"
        return done.stdout

    def make(self, name, ca, extension, days="30", subject=None):
        request, ext = self[name] + ".csr", self[name] + ".ext"
        with open(ext, "w", encoding="ascii") as f:
            f.write(extension + "\nkeyUsage=digitalSignature\n")
        self.openssl("req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
                     "-nodes", "-keyout", self[name + ".key"], "-out", request, "-subj",
                     subject or f"/CN={name}")
        self.serial[name] = f"{0x5EED0000 + len(self.serial):X}"
        self.openssl("x509", "-req", "-in", request, "-CA", self[ca], "-CAkey", self[ca + ".key"],
                     "-days", days, "-extfile", ext, "-set_serial", "0x" + self.serial[name],
                     "-out", self[name])


def context(cert=None, alpn=("sunrpc",), ca="ca"):
    ctx = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    ctx.load_verify_locations(CERTS[ca])
    if alpn:
        ctx.set_alpn_protocols(list(alpn))
    if cert:
        ctx.load_cert_chain(CERTS[cert], CERTS[cert + ".key"])
    return ctx


class TlsSocket:
    """As much of a socket as Conn wants. What goes out can be cut into pieces of chop bytes."""

    def __init__(self, sock, ctx, name="server.test", chop=1 << 20):
        self.sock, self.chop, self.lock = sock, chop, threading.Lock()
        self.inside, self.outside = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = ctx.wrap_bio(self.inside, self.outside, server_hostname=name)
        while True:
            try:
                self.tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                self.flush()
                self.feed()
            except ssl.SSLError:
                with contextlib.suppress(OSError):
                    self.flush()
                raise
        self.flush()

    def flush(self):
        data = self.outside.read()
        for at in range(0, len(data), self.chop):
            self.sock.sendall(data[at:at + self.chop])

    def feed(self):
        data = self.sock.recv(1 << 18)
        if not data:
            raise Closed("the connection ended")
        with self.lock:
            self.inside.write(data)

    def recv(self, n):
        while True:
            with self.lock:
                try:
                    return self.tls.read(n)
                except ssl.SSLWantReadError:
                    pass
                except ssl.SSLError as e:
                    raise OSError(str(e)) from e
            self.feed()

    def sendall(self, data):
        with self.lock:
            self.tls.write(data)
            data = self.outside.read()
        for at in range(0, len(data), self.chop):
            self.sock.sendall(data[at:at + self.chop])

    def notify(self):
        with self.lock, contextlib.suppress(ssl.SSLError):
            self.tls.unwrap()
        self.flush()

    def shutdown(self, how):
        self.sock.shutdown(how)

    def close(self):
        self.sock.close()


def record(data):
    return u32(0x80000000 | len(data)) + data


def exactly(sock, n):
    out = b""
    while len(out) < n:
        got = sock.recv(n - len(out))
        if not got:
            raise Closed(f"the connection ended after {out!r}")
        out += got
    return out


def ask(sock, call):
    """Sends one record and reads one, in the clear."""
    sock.sendall(record(call))
    head = struct.unpack(">I", exactly(sock, 4))[0]
    return exactly(sock, head & 0x7fffffff)


def connect(addr=ADDR):
    sock = socket.create_connection(addr, 60)
    sock.settimeout(60)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def probed(addr=ADDR, vers=4):
    sock = connect(addr)
    reply = ask(sock, rpc_call(77, 0, b"", PROBE, vers=vers))
    check(reply, u32(77) + u32(1) + u32(0) + u32(0) + opaque(b"STARTTLS") + u32(0))
    return sock


class TlsConn(Conn):
    def __init__(self, addr=ADDR, on_call=None, vers=4, ctx=None, chop=1 << 20):
        sock = TlsSocket(probed(addr, vers), ctx or context(), chop=chop)
        sock.sock.settimeout(None)
        self.sock = sock
        self.on_call, self.cond, self.replies, self.wanted, self.closed = (
            on_call, threading.Condition(), {}, set(), False)
        self.stray = []
        self.sending = threading.Lock()
        threading.Thread(target=self._read, daemon=True).start()


class TlsClient(Client):
    ctx = chop = None

    def __init__(self, addr=ADDR, ctx=None, chop=1 << 20, **how):
        self.ctx, self.chop = ctx, chop
        super().__init__(addr, **how)

    def connection(self):
        return TlsConn(self.addr, self._on_call, ctx=self.ctx, chop=self.chop)


def down(top, *daemons):
    """The end of a file of tests that made CERTS and, below top, other files. None: the test did
    not make it."""
    for one in daemons:
        if one:
            one.down()
    if CERTS:
        shutil.rmtree(CERTS.dir)
    shutil.rmtree(top)


def live():
    """The files that the daemons use: tests exchange them."""
    for name, source in (("live", "server"), ("live.key", "server.key"), ("trusted", "ca")):
        shutil.copy(CERTS[source], CERTS[name])
