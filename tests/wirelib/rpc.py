# SPDX-License-Identifier: Apache-2.0
"""ONC RPC over TCP (RFC 5531): credentials, records, and a connection with a thread that reads."""
import itertools
import socket
import struct
import threading
import time

from nfs4_ops import *  # noqa: F403
from nfs4_results import compound_args, read_compound
from xdr import *  # noqa: F403


class Rejected(Exception):
    """The RPC was not accepted, or accepted without success: .why is ("denied", ...) or
    ("accepted", status, ...)."""

    def __init__(self, *why):
        super().__init__(f"RPC rejected: {why}")
        self.why = why


class Closed(Exception):
    """The server closed the connection."""


def auth_sys(uid=0, gid=0, gids=(), machine="test"):
    return AUTH_SYS, u32(0) + opaque(machine) + u32(uid) + u32(gid) + array([u32(g) for g in gids])


NOBODY = AUTH_NONE, b""


def rpc_call(xid, proc, args, cred, prog=NFS, vers=4, rpcvers=2):
    head = [xid, 0, rpcvers, prog, vers, proc, cred[0]]
    return b"".join(u32(n) for n in head) + opaque(cred[1]) + u32(0) + u32(0) + args


class Conn:
    """One TCP connection. A thread of its own reads it: replies wake their caller, calls
    go to on_call."""

    xids = itertools.count(0x5eed0000)

    def __init__(self, addr, on_call=None, source=None):
        """source: the address and port to call from."""
        self.sock = socket.create_connection(addr, 10, source)
        self.sock.settimeout(None)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.on_call, self.cond, self.replies, self.wanted, self.closed = (
            on_call, threading.Condition(), {}, set(), False)
        self.stray = []
        self.sending = threading.Lock()
        threading.Thread(target=self._read, daemon=True).start()

    def _exactly(self, n):
        parts = []
        while n:
            b = self.sock.recv(min(n, 1 << 20))
            if not b:
                raise Closed
            parts.append(b)
            n -= len(b)
        return b"".join(parts)

    def _read(self):
        try:
            while True:
                record, last = b"", False
                while not last:
                    head = struct.unpack(">I", self._exactly(4))[0]
                    last = bool(head >> 31)
                    record += self._exactly(head & 0x7fffffff)
                xid, kind = struct.unpack(">II", record[:8])
                if kind == 0 and self.on_call:
                    # In another thread: the answer to a callback may send a call and wait
                    # for its reply.
                    threading.Thread(target=self.on_call, args=(self, xid, record[8:]),
                                     daemon=True).start()
                    continue
                with self.cond:
                    if xid in self.wanted:
                        self.replies[xid] = record[8:]
                    else:
                        self.stray.append(record)
                    self.cond.notify_all()
        except (Closed, OSError):
            with self.cond:
                self.closed = True
                self.cond.notify_all()

    def send_raw(self, data):
        with self.sending:
            self.sock.sendall(data)

    def send_record(self, record):
        self.send_raw(u32(0x80000000 | len(record)) + record)

    def start(self, proc, args, cred, **how):
        xid = next(self.xids)
        with self.cond:
            self.wanted.add(xid)
        try:
            self.send_record(rpc_call(xid, proc, args, cred, **how))
        except OSError as e:
            raise Closed(str(e)) from e
        return xid

    def finish(self, xid, timeout=60):
        with self.cond:
            if not self.cond.wait_for(lambda: xid in self.replies or self.closed, timeout):
                raise TimeoutError(f"no reply in {timeout} s")
            if xid not in self.replies:
                raise Closed("the connection was closed before the reply")
            self.wanted.discard(xid)
            return self._accept(self.replies.pop(xid))

    @staticmethod
    def _accept(body):
        r = Reader(body)
        denied = r.u32()
        if denied == 1:
            why = r.u32()
            rest = (r.u32(), r.u32()) if why == 0 else (r.u32(),)
            r.end()
            raise Rejected("denied", why, *rest)
        if denied != 0:
            raise Malformed(f"reply_stat {denied}")
        if (r.u32(), r.opaque(400)) != (0, b""):
            raise Malformed("the verifier is not AUTH_NONE")
        status = r.u32()
        if status:
            rest = (r.u32(), r.u32()) if status == 2 else ()
            r.end()
            raise Rejected("accepted", status, *rest)
        return r.data[r.at:]

    def rpc(self, proc, args=b"", cred=NOBODY, timeout=60, **how):
        return self.finish(self.start(proc, args, cred, **how), timeout)

    def compound(self, *ops, minor=2, tag=b"", cred=None, timeout=60):
        return read_compound(self.rpc(1, compound_args(ops, minor, tag), cred or auth_sys(),
                                      timeout))

    def is_closed(self, timeout=60):
        with self.cond:
            return self.cond.wait_for(lambda: self.closed, timeout)

    def close(self):
        for how in (lambda: self.sock.shutdown(socket.SHUT_RDWR), self.sock.close):
            try:
                how()
            except OSError:
                pass
