# SPDX-License-Identifier: Apache-2.0
"""A small NFSv3 and MOUNT v3 client for tests, written from RFC 1813 alone. It reads every reply to
its last byte. Also a weft-ds that exports folders."""
import contextlib
import os
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import threading
from types import SimpleNamespace as Obj

import tap
from harness import eventually
from nfs41 import Closed, Conn, Malformed, Reader, Rejected, auth_sys, boolean, opaque, u32, u64
from tap import BUILD

NFS, MOUNT = 100003, 100005
PROCS = """NULL GETATTR SETATTR LOOKUP ACCESS READLINK READ WRITE CREATE MKDIR SYMLINK MKNOD REMOVE
    RMDIR RENAME LINK READDIR READDIRPLUS FSSTAT FSINFO PATHCONF COMMIT""".split()
ERRORS = {0: "OK", 1: "PERM", 2: "NOENT", 5: "IO", 6: "NXIO", 13: "ACCES", 17: "EXIST", 18: "XDEV",
          19: "NODEV", 20: "NOTDIR", 21: "ISDIR", 22: "INVAL", 27: "FBIG", 28: "NOSPC", 30: "ROFS",
          31: "MLINK", 63: "NAMETOOLONG", 66: "NOTEMPTY", 69: "DQUOT", 70: "STALE", 71: "REMOTE",
          10001: "BADHANDLE", 10002: "NOT_SYNC", 10003: "BAD_COOKIE", 10004: "NOTSUPP",
          10005: "TOOSMALL", 10006: "SERVERFAULT", 10007: "BADTYPE", 10008: "JUKEBOX"}
REG, DIR, BLK, CHR, LNK, SOCK, FIFO = range(1, 8)
UNCHECKED, GUARDED, EXCLUSIVE = range(3)
UNSTABLE, DATA_SYNC, FILE_SYNC = range(3)
A_READ, A_LOOKUP, A_MODIFY, A_EXTEND, A_DELETE, A_EXECUTE = 1, 2, 4, 8, 16, 32
SERVER_TIME = "server"
ROOT = auth_sys(0, 0)


def sattr(mode=None, uid=None, gid=None, size=None, atime=None, mtime=None):
    def one(v, put):
        return boolean(v is not None) + (put(v) if v is not None else b"")

    def stamp(v):
        return (u32(0) if v is None else u32(1) if v == SERVER_TIME
                else u32(2) + u32(v[0]) + u32(v[1]))
    return one(mode, u32) + one(uid, u32) + one(gid,
                                                u32) + one(size, u64) + stamp(atime) + stamp(mtime)


def when(r):
    t = r.u32(), r.u32()
    if t[1] > 999999999:
        raise Malformed(f"nanoseconds {t[1]}")
    return t


def fattr(r):
    a = Obj(type=r.u32(), mode=r.u32(), nlink=r.u32(), uid=r.u32(), gid=r.u32(), size=r.u64(),
            used=r.u64(), rdev=(r.u32(), r.u32()), fsid=r.u64(), fileid=r.u64(), atime=when(r),
            mtime=when(r), ctime=when(r))
    if not REG <= a.type <= FIFO:
        raise Malformed(f"type {a.type}")
    return a


def post(r):
    return fattr(r) if r.boolean() else None


def wcc(r):
    before = Obj(size=r.u64(), mtime=when(r), ctime=when(r)) if r.boolean() else None
    return Obj(before=before, after=post(r))


def handle(r):
    return r.opaque(64) if r.boolean() else None


def made(r):
    return Obj(fh=handle(r), attr=post(r), wcc=wcc(r))


def entries(r, plus):
    out = []
    while r.boolean():
        e = Obj(fileid=r.u64(), name=r.opaque(255), cookie=r.u64())
        if plus:
            e.attr, e.fh = post(r), handle(r)
        out.append(e)
    return out, r.boolean()


def listing(r, plus):
    out = Obj(attr=post(r), verf=r.fixed(8))
    out.entries, out.eof = entries(r, plus)
    return out


# What a procedure gives: when it worked, and when it failed.
RESULTS = {
    "GETATTR": (fattr, lambda r: None), "SETATTR": (wcc, wcc),
    "LOOKUP": (lambda r: Obj(fh=r.opaque(64), attr=post(r), dir=post(r)), post),
    "ACCESS": (lambda r: Obj(attr=post(r), access=r.u32()), post),
    "READLINK": (lambda r: Obj(attr=post(r), data=r.opaque()), post),
    "READ": (lambda r: Obj(attr=post(r), count=r.u32(), eof=r.boolean(), data=r.opaque()), post),
    "WRITE": (lambda r: Obj(wcc=wcc(r), count=r.u32(), committed=r.u32(), verf=r.fixed(8)), wcc),
    "CREATE": (made, wcc), "MKDIR": (made, wcc), "SYMLINK": (made, wcc), "MKNOD": (made, wcc),
    "REMOVE": (wcc, wcc), "RMDIR": (wcc, wcc),
    "RENAME": (lambda r: Obj(src=wcc(r), dst=wcc(r)), lambda r: Obj(src=wcc(r), dst=wcc(r))),
    "LINK": (lambda r: Obj(attr=post(r), wcc=wcc(r)), lambda r: Obj(attr=post(r), wcc=wcc(r))),
    "READDIR": (lambda r: listing(r, False), post),
    "READDIRPLUS": (lambda r: listing(r, True), post),
    "FSSTAT": (lambda r: Obj(attr=post(r), tbytes=r.u64(), fbytes=r.u64(), abytes=r.u64(),
                             tfiles=r.u64(), ffiles=r.u64(), afiles=r.u64(), invarsec=r.u32()),
               post),
    "FSINFO": (lambda r: Obj(attr=post(r), rtmax=r.u32(), rtpref=r.u32(), rtmult=r.u32(),
                             wtmax=r.u32(), wtpref=r.u32(), wtmult=r.u32(), dtpref=r.u32(),
                             maxfilesize=r.u64(), delta=when(r), properties=r.u32()), post),
    "PATHCONF": (lambda r: Obj(attr=post(r), linkmax=r.u32(), name_max=r.u32(),
                               no_trunc=r.boolean(), chown_restricted=r.boolean(),
                               case_insensitive=r.boolean(), case_preserving=r.boolean()), post),
    "COMMIT": (lambda r: Obj(wcc=wcc(r), verf=r.fixed(8)), wcc),
}


class V3:
    """One connection. The method of a procedure gives (status name, result). ok() gives the result
    of a call that must work."""

    def __init__(self, addr, cred=ROOT, source=None):
        self.conn, self.cred = Conn(addr, source=source), cred

    def call(self, name, args, cred=None, **how):
        r = Reader(self.conn.rpc(PROCS.index(name), args, cred or self.cred, prog=NFS, vers=3,
                                 **how))
        return self.decode(name, r)

    @staticmethod
    def decode(name, r):
        status = r.u32()
        if status not in ERRORS:
            raise Malformed(f"status {status}")
        out = RESULTS[name][status != 0](r)
        r.end()
        return ERRORS[status], out

    def ok(self, name, *args, **how):
        status, out = getattr(self, name)(*args, **how)
        if status != "OK":
            raise AssertionError(f"{name}: {status}")
        return out

    def mount(self, proc, args=b"", cred=None):
        return Reader(self.conn.rpc(proc, args, cred or self.cred, prog=MOUNT, vers=3))

    def mnt(self, path, cred=None):
        """(status, handle, flavours)"""
        r = self.mount(1, opaque(path), cred)
        status, fh, flavours = r.u32(), None, None
        if not status:
            fh, flavours = r.opaque(64), r.array(r.u32)
        r.end()
        return status, fh, flavours

    def getattr(self, fh, **how):
        return self.call("GETATTR", opaque(fh), **how)

    def setattr(self, fh, guard=None, cred=None, **attrs):
        g = boolean(guard is not None) + (u32(guard[0]) + u32(guard[1]) if guard else b"")
        return self.call("SETATTR", opaque(fh) + sattr(**attrs) + g, cred=cred)

    def lookup(self, d, name, **how):
        return self.call("LOOKUP", opaque(d) + opaque(name), **how)

    def access(self, fh, bits=63, **how):
        return self.call("ACCESS", opaque(fh) + u32(bits), **how)

    def readlink(self, fh, **how):
        return self.call("READLINK", opaque(fh), **how)

    def read(self, fh, off, count, **how):
        return self.call("READ", opaque(fh) + u64(off) + u32(count), **how)

    def write(self, fh, off, data, stable=FILE_SYNC, count=None, **how):
        return self.call("WRITE", opaque(fh) + u64(off) + u32(len(data) if count is None else count)
                         + u32(stable) + opaque(data), **how)

    def create(self, d, name, how=UNCHECKED, verf=None, cred=None, **attrs):
        return self.call("CREATE", opaque(d) + opaque(name) + u32(how)
                         + (verf if how == EXCLUSIVE else sattr(**attrs)), cred=cred)

    def mkdir(self, d, name, cred=None, **attrs):
        return self.call("MKDIR", opaque(d) + opaque(name) + sattr(**attrs), cred=cred)

    def symlink(self, d, name, target, cred=None, **attrs):
        return self.call("SYMLINK", opaque(d) + opaque(name) + sattr(**attrs) + opaque(target),
                         cred=cred)

    def mknod(self, d, name, kind, dev=(0, 0), cred=None, **attrs):
        what = sattr(**attrs) if kind in (CHR, BLK, SOCK, FIFO) else b""
        what += u32(dev[0]) + u32(dev[1]) if kind in (CHR, BLK) else b""
        return self.call("MKNOD", opaque(d) + opaque(name) + u32(kind) + what, cred=cred)

    def remove(self, d, name, **how):
        return self.call("REMOVE", opaque(d) + opaque(name), **how)

    def rmdir(self, d, name, **how):
        return self.call("RMDIR", opaque(d) + opaque(name), **how)

    def rename(self, d, name, d2, name2, **how):
        return self.call("RENAME", opaque(d) + opaque(name) + opaque(d2) + opaque(name2), **how)

    def link(self, fh, d, name, **how):
        return self.call("LINK", opaque(fh) + opaque(d) + opaque(name), **how)

    def readdir(self, d, cookie=0, verf=bytes(8), count=8192, **how):
        return self.call("READDIR", opaque(d) + u64(cookie) + verf + u32(count), **how)

    def readdirplus(self, d, cookie=0, verf=bytes(8), dircount=8192, maxcount=32768, **how):
        return self.call("READDIRPLUS",
                         opaque(d) + u64(cookie) + verf + u32(dircount) + u32(maxcount), **how)

    def fsstat(self, fh, **how):
        return self.call("FSSTAT", opaque(fh), **how)

    def fsinfo(self, fh, **how):
        return self.call("FSINFO", opaque(fh), **how)

    def pathconf(self, fh, **how):
        return self.call("PATHCONF", opaque(fh), **how)

    def commit(self, fh, off=0, count=0, **how):
        return self.call("COMMIT", opaque(fh) + u64(off) + u32(count), **how)

    def close(self):
        self.conn.close()


def raw_call(xid, proc, args, cred=ROOT):
    """A whole record, for calls that the test sends twice."""
    head = [xid, 0, 2, NFS, 3, proc, cred[0]]
    return b"".join(struct.pack(">I", n) for n in head) + opaque(cred[1]) + u32(0) + u32(0) + args


def exchange(sock, record):
    sock.sendall(struct.pack(">I", 0x80000000 | len(record)) + record)
    return receive(sock)


def receive(sock):
    def exactly(n):
        out = b""
        while len(out) < n:
            chunk = sock.recv(n - len(out))
            if not chunk:
                raise Closed
            out += chunk
        return out
    return exactly(struct.unpack(">I", exactly(4))[0] & 0x7fffffff)


def rejected(call, *args, **how):
    try:
        call(*args, **how)
    except Rejected as e:
        return e.why
    raise AssertionError("the call was accepted")


class Holding:
    """A proxy in front of a server. While hold() is true it keeps the SETATTRs of NFSv3 and passes
    them on later, as if the network had been slow."""

    def __init__(self, port, to):
        self.to, self.hold, self.kept = to, lambda: False, []
        self.listener = socket.create_server(("127.0.0.1", port))
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        with contextlib.suppress(OSError):
            while True:
                near, _ = self.listener.accept()
                far = socket.create_connection(self.to)
                threading.Thread(target=self.calls, args=(near, far), daemon=True).start()
                threading.Thread(target=self.replies, args=(far, near), daemon=True).start()

    def calls(self, near, far):
        with contextlib.suppress(OSError, Closed):
            while True:
                record = receive(near)
                prog, _, proc = struct.unpack_from(">III", record, 12)
                if (prog, proc) == (NFS, PROCS.index("SETATTR")) and self.hold():
                    self.kept.append(record)
                else:
                    far.sendall(struct.pack(">I", 1 << 31 | len(record)) + record)
        far.close()

    @staticmethod
    def replies(far, near):
        with contextlib.suppress(OSError):
            while got := far.recv(1 << 16):
                near.sendall(got)
        near.close()

    def let_go(self):
        """Passes the SETATTRs on. Returns the statuses that they get now."""
        kept, self.kept = self.kept, []
        with socket.create_connection(self.to) as s:
            for record in kept:
                s.sendall(struct.pack(">I", 1 << 31 | len(record)) + record)
                yield ERRORS[struct.unpack_from(">I", receive(s), 24)[0]]

    def close(self):
        self.listener.shutdown(socket.SHUT_RDWR)  # a thread in accept() would keep the port
        self.listener.close()


# ---- a server

PORT = 902
ADDR = ("127.0.0.1", PORT)
UP = "NFSv3 over tcp at"
EXPORTS = """
export "{top}/exp" {{ client "*" {{ access = rw  squash = none  privileged_port = no }} }}
export "{top}/ro" {{
	client "*" {{ access = ro  squash = none  privileged_port = no  sec = {{sys, none}} }}
}}
export "{top}/squash" {{
	client "*" {{
		access = rw  privileged_port = no  sec = {{none, sys}}
		anon_uid = 5555  anon_gid = 6666
	}}
}}
export "{top}/all" {{ client "*" {{ access = rw  squash = all  privileged_port = no }} }}
export "{top}/low" {{ client "*" {{ access = rw }} }}
export "{top}/elsewhere" {{ client "192.0.2.0/24" {{ access = rw }} }}
"""


class Server:
    """weft-ds with folders of its own; there is no metadata server."""

    def __init__(self, exports=EXPORTS, **keys):
        self.top = tempfile.mkdtemp(prefix="weft-nfs3-test.")
        os.chmod(self.top, 0o755)
        for name in ("exp", "ro", "squash", "all", "low", "elsewhere", "run"):
            os.mkdir(self.path(name))
            os.chmod(self.path(name), 0o777)
        self.put("key", "5a" * 32 + "\n")
        os.chmod(self.path("key"), 0o600)
        self.put("exports", exports.format(top=self.top))
        self.keys, self.child, self.ups = keys, None, 0
        self.start()

    def path(self, *names):
        return os.path.join(self.top, *names)

    def put(self, name, text):
        with open(self.path(name), "w", encoding="utf-8") as f:
            f.write(text)

    def args(self):
        keys = {"store": self.path("store"), "cluster_key": self.path("key"),
                "listen": f"127.0.0.1:{PORT}", "name": "one", "exports": self.path("exports"),
                "admin": "unix:" + self.path("run/admin"), "pool": "32M", **self.keys}
        return [os.path.join(BUILD, "weft-ds"),
                *[a for k, v in keys.items() for a in ("-o", f"ds.{k}={v}")]]

    def start(self):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.path("run/admin"))
        with open(self.path("log"), "a", encoding="utf-8") as f:
            self.child = subprocess.Popen(self.args(), stdin=subprocess.DEVNULL, stdout=f, stderr=f,
                                          env={**os.environ, "ASAN_OPTIONS": "detect_leaks=0"})
        # Not by connecting: the socket of a killed server may live a little longer.
        ups = self.ups
        eventually(lambda: self.child.poll() is not None or self.log().count(UP) > ups, 20,
                   "weft-ds starts")
        if self.child.poll() is not None:
            raise AssertionError(self.log())
        self.ups += 1

    def log(self):
        with open(self.path("log"), encoding="utf-8") as f:
            return f.read()

    def kill(self, sig=signal.SIGKILL):
        self.child.send_signal(sig)
        self.child.wait()

    def restart(self, sig=signal.SIGKILL):
        self.kill(sig)
        self.start()

    def refused(self, exports, store=None):
        """The server's last words about this table, at a start that fails."""
        self.kill()
        self.put("exports", exports.format(top=self.top))
        args = self.args() + (["-o", f"ds.store={store}"] if store else [])
        done = subprocess.run(args, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode in (1, 2), done
        return done.stderr

    def metric(self, name):
        with socket.socket(socket.AF_UNIX) as s:
            s.connect(self.path("run/admin"))
            s.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            text = b""
            while chunk := s.recv(65536):
                text += chunk
        return sum(float(line.split()[1]) for line in text.decode().splitlines()
                   if line.startswith(name))

    def stop(self):
        if os.environ.get("WEFT_TRACE"):
            tap.say(f"{self.log()}status {self.child.poll()}")
        if self.child.poll() is None:
            self.child.terminate()
            self.child.wait(60)
        for d in ("exp/m",):
            subprocess.run(["umount", self.path(d)], capture_output=True, check=False)
        shutil.rmtree(self.top)
