# SPDX-License-Identifier: Apache-2.0
"""A small NFSv4.1/4.2 client for tests: ONC RPC over TCP, XDR, sessions, a backchannel, COMPOUNDs.

It is written from the RFCs alone and decodes strictly: it reads every reply to its last byte and
every attribute to the end of its list, and raises Malformed on what the protocol does not allow. It
sends whatever the test asks for, nonsense too.
"""
import itertools
import os
import struct
import threading
import time
from types import SimpleNamespace as Obj

from nfs4_ops import *  # noqa: F403
from nfs4_results import *  # noqa: F403
from rpc import *  # noqa: F403
from xdr import *  # noqa: F403


class Failed(AssertionError):
    """A COMPOUND ended with another status than the test wants."""


class Client:
    """A client with one session. call() sends SEQUENCE and the given operations on a free slot.

    The client checks callbacks against the rules for CB_SEQUENCE, puts them in .callbacks, and
    answers them by .on_callback(name, args). That returns a status, or bytes that follow the status
    OK, or None for no answer. Breaches are in .cb_faults, and close() raises them. When a callback
    comes again on another connection, it counts in .cb_again, and the client answers
    RETRY_UNCACHED_REP.
    """

    numbers = itertools.count(1)

    def __init__(self, addr, minor=2, cred=None, owner=None, verifier=None, release="7.2.0",
                 session=True, reclaim=True, source=None, impl=True, **session_args):
        """impl: nii_domain and nii_name; None: the client gives none; True: a Linux kernel's, of
        this release."""
        self.addr, self.minor, self.cred = addr, minor, cred or auth_sys()
        self.owner = owner or b"weft wire test %d.%d" % (os.getpid(), next(self.numbers))
        self.verifier = verifier or os.urandom(8)
        self.source = source
        self.impl = ("kernel.org", f"Linux {release} test") if impl is True else impl
        self.callbacks, self.cb_faults, self.cb_cond = [], [], threading.Condition()
        self.cb_thread = threading.local()
        # Guards the slot table: the answer to a callback may make calls beside the test's.
        self.lock = threading.Lock()
        self.on_callback = lambda name, args: 0
        self.cb_seqs, self.cb_conns, self.cb_again, self.session = {}, {}, 0, None
        # What callbacks must say; (program, user and group or None) of each.
        self.cb_program, self.cb_ids, self.cb_calls = (CB_PROGRAM, (0, 0), [])
        self.conns = [self.connection()]
        if session:
            self.exchange_id()
            self.create_session(**session_args)
            if reclaim:
                self.ok(reclaim_complete())

    @property
    def conn(self):
        return self.conns[0]

    def connection(self):
        return Conn(self.addr, self._on_call, self.source)

    def exchange_id(self, flags=0, cred=None):
        c = self.conn.compound(exchange_id(self.owner, self.verifier, flags, self.impl),
                               minor=self.minor, cred=cred or self.cred)
        if c.status:
            raise Failed(f"EXCHANGE_ID: {err(c.status)}")
        self.eid = c.results[0]
        self.clientid, self.cs_seq = self.eid.clientid, self.eid.seq
        return self.eid

    def create_session(self, **args):
        c = self.conn.compound(create_session(self.clientid, self.cs_seq, **args), minor=self.minor,
                               cred=self.cred)
        if c.status:
            raise Failed(f"CREATE_SESSION: {err(c.status)}")
        self.cs_seq += 1
        session = c.results[0]
        self.slots = [0] * session.fore.reqs
        self.free = list(range(session.fore.reqs))
        self.target = session.fore.reqs - 1
        with self.cb_cond:
            self.session, self.cb_seqs = session, {}
            self.cb_cond.notify_all()
        return session

    # Requests.

    def begin(self, *ops, cache=False, conn=None, cred=None, tag=b""):
        """Sends a COMPOUND on a free slot; finish() takes what this returns."""
        with self.lock:
            slot = min(self.free)
            if slot > self.target:
                raise Failed(f"no slot is free: the server wants no more than {self.target + 1} "
                             "in use")
            self.free.remove(slot)
            self.slots[slot] += 1
            busy = set(range(len(self.slots))) - set(self.free)
            seq = sequence(self.session.sessionid, self.slots[slot], slot, max(busy), cache)
        conn = conn or self.conn
        xid = conn.start(1, compound_args((seq, *ops), self.minor, tag), cred or self.cred)
        return conn, xid, slot

    def finish(self, started, timeout=60):
        conn, xid, slot = started
        c = read_compound(conn.finish(xid, timeout))
        with self.lock:
            self._finished(slot, c.results[0])
        return c

    def _finished(self, slot, seq):
        self.free.append(slot)
        if seq.num != NUM["SEQUENCE"]:
            raise Malformed(f"the first result is {seq.op}")
        if seq.status:
            self.slots[slot] -= 1
        elif (seq.sessionid, seq.seq, seq.slot) != (self.session.sessionid, self.slots[slot], slot):
            raise Malformed("SEQUENCE does not echo its arguments")
        else:
            self.status_flags = seq.flags
            self._heed(seq)

    def _heed(self, seq):
        """The table follows what SEQUENCE says (RFC 8881 section 2.10.6.1): a slot that comes again
        begins at 1."""
        self.target = seq.target
        last, busy = seq.highest + 1, set(range(len(self.slots))) - set(self.free)
        if last < len(self.slots) and (not busy or max(busy) < last):
            del self.slots[last:]
        self.slots += [0] * (last - len(self.slots))
        self.free = [i for i in range(len(self.slots)) if i not in busy]

    def call(self, *ops, timeout=60, **how):
        return self.finish(self.begin(*ops, **how), timeout)

    def ok(self, *ops, **how):
        """All must succeed. Returns the result of the last one; .all has them all,
        without SEQUENCE."""
        c = self.call(*ops, **how)
        if c.status:
            raise Failed(f"{c.results[-1].op}: {err(c.status)}, want OK")
        last = c.results[-1]
        last.all = c.results[1:]
        return last

    def no(self, want, *ops, **how):
        """The last operation must fail, with this error or one of these."""
        c = self.call(*ops, **how)
        want = (want,) if isinstance(want, str) else want
        if err(c.status) not in want or len(c.results) != len(ops) + 1:
            raise Failed(f"{c.results[-1].op} (operation {len(c.results) - 1} of {len(ops)}): "
                         f"{err(c.status)}, "
                         f"want {' or '.join(want)} of the last")
        return c.results[-1]

    def until(self, done, *ops, tries=600, pause=0.05, **how):
        """Asks again until done(compound), at least this many times and for a minute: how long
        that takes on a loaded machine says nothing about the server."""
        end = time.monotonic() + 60
        while tries > 0 or time.monotonic() < end:
            c = self.call(*ops, **how)
            if done(c):
                return c
            tries -= 1
            time.sleep(pause)
        raise Failed(f"still {c.results[-1].op}: {err(c.status)}")

    # What most tests need.

    def root(self):
        return self.ok(putrootfh(), getfh()).fh

    def mkdir(self, parent, name, **how):
        attrs = {"mode": 0o755, **how.pop("attrs", {})}
        return self.ok(putfh(parent), create(DIR, name, **attrs), getfh(), **how).fh

    def open(self, parent, name, acc=BOTH, how=UNCHECKED, **args):
        """(stateid, filehandle)"""
        kw = {k: args.pop(k) for k in ("cred", "conn") if k in args}
        attrs = args.pop("attrs", {"mode": 0o644} if how is not None else None)
        r = self.ok(putfh(parent), open_(name, acc | NO_DELEG, how=how, attrs=attrs, **args),
                    getfh(), **kw)
        return r.all[1].stateid, r.fh

    def attrs(self, fh, *names, **how):
        got = self.ok(putfh(fh), getattr_(*names), **how).attrs
        missing = {ATTR[n] for n in names} ^ got.bits
        if missing:
            raise Failed(f"GETATTR: attributes {missing} are missing or too many")
        return got

    def readdir_all(self, fh, attrs=(), between=None, **how):
        """All entries, page by page. It calls between() between two pages."""
        cookie, verf, out = 0, bytes(8), []
        while True:
            r = self.ok(putfh(fh), readdir(cookie, verf, attrs=attrs, **how))
            out += r.entries
            if r.eof:
                return out
            if not r.entries:
                raise Failed("an empty page that is not the last")
            cookie, verf = r.entries[-1].cookie, r.verf
            if between:
                between()

    # The backchannel.

    def fault(self, text):
        with self.cb_cond:
            self.cb_faults.append(text)
            self.cb_cond.notify_all()

    def _on_call(self, conn, xid, body):
        try:
            self.cb_thread.conn = conn
            reply = self._callback(body)
        except Malformed as e:
            self.fault(str(e))
            return
        if reply is None:
            return
        try:
            conn.send_record(u32(xid) + u32(1) + u32(0) + u32(0) + u32(0) + reply)
        except OSError:
            pass

    def _callback(self, body):
        r = Reader(body)
        rpcvers, prog, vers, proc = (r.u32() for _ in range(4))
        flavor, cred = r.u32(), r.opaque(400)
        r.u32()
        r.opaque(400)
        # RFC 8881, 18.36.3 says version 4; its XDR, RFC 7863 and all implementations say 1. The
        # Linux client takes both.
        if (rpcvers, prog) != (2, self.cb_program) or vers not in (1, 4):
            raise Malformed(f"callback to RPC {rpcvers}, program {prog}, version {vers}")
        if proc == 0:
            return u32(0)
        if proc != 1:
            raise Malformed(f"callback procedure {proc}")
        if flavor == AUTH_SYS:
            a = Reader(cred)
            a.u32()
            a.text()
            ids, gids = (a.u32(), a.u32()), a.array(a.u32)
            if ids != self.cb_ids or gids:
                raise Malformed(f"the callback's credential is {ids}, {gids}, not the one that was "
                                "asked for")
            a.end()
        elif flavor != AUTH_NONE:
            raise Malformed(f"callback with flavour {flavor}")
        self.cb_calls.append((prog, ids if flavor == AUTH_SYS else None))
        tag, minor = r.opaque(), r.u32()
        r.u32()  # callback_ident, meaningless since 4.1
        count, out, status = r.u32(), [], 0
        if minor != self.minor:
            raise Malformed(f"callback of minor version {minor}")
        for i in range(count):
            num = r.u32()
            if i == 2:
                raise Malformed(f"{count} operations in a CB_COMPOUND")
            if (i == 0) != (num == 11):
                raise Malformed(f"operation {i} of a CB_COMPOUND is {num}")
            if num == 11:
                sequence_res = self._cb_sequence(self.cb_thread.conn, r)
                if sequence_res is None:
                    status = 10068
                    out.append(u32(11) + u32(status))
                    break
                out.append(u32(11) + u32(0) + sequence_res)
                continue
            args = CB_OPS[num](r) if num in CB_OPS else None
            if args is None:
                raise Malformed(f"callback operation {num}")
            args.referring = self.cb_thread.referring
            with self.cb_cond:
                self.callbacks.append(args)
                self.cb_cond.notify_all()
            status, body = self.on_callback(args.name, args), b""
            if status is None:
                return None
            if isinstance(status, bytes):
                status, body = 0, status
            out.append(u32(num) + u32(status) + body)
            if status:
                break
        else:
            r.end()
        return u32(0) + u32(status) + opaque(tag) + array(out)

    def _cb_sequence(self, conn, r):
        sessionid, seq, slot, highest, cache = r.fixed(16), r.u32(), r.u32(), r.u32(), r.boolean()
        # (session, [(sequence, slot)]).
        calls = r.array(lambda: (r.fixed(16), r.array(lambda: (r.u32(), r.u32()))))
        self.cb_thread.referring = [(who, *call) for who, some in calls for call in some]
        with self.cb_cond:  # a callback may overtake the reply of CREATE_SESSION
            if not self.cb_cond.wait_for(lambda: self.session
                                         and sessionid == self.session.sessionid, 2):
                raise Malformed("CB_SEQUENCE of another session")
        if slot >= self.session.back.reqs or highest >= self.session.back.reqs:
            raise Malformed(f"CB_SEQUENCE slot {slot}, highest {highest}")
        if slot in self.cb_seqs and seq == self.cb_seqs[slot] and self.cb_conns[slot] is not conn:
            self.cb_conns[slot] = conn
            self.cb_again += 1
            return None
        if seq != self.cb_seqs.get(slot, 0) + 1:
            raise Malformed(f"CB_SEQUENCE {seq} on slot {slot} after {self.cb_seqs.get(slot, 0)}")
        if cache:
            raise Malformed("csa_cachethis is set")
        self.cb_seqs[slot], self.cb_conns[slot] = seq, conn
        return (sessionid + u32(seq) + u32(slot) + u32(self.session.back.reqs - 1)
                + u32(self.session.back.reqs - 1))

    def wait_callback(self, name, timeout=60):
        """Takes the first callback of this name from the list, and returns it."""
        def found():
            return self.cb_faults or any(c.name == name for c in self.callbacks)
        with self.cb_cond:
            if not self.cb_cond.wait_for(found, timeout):
                raise TimeoutError(f"no {name} in {timeout} s")
            if self.cb_faults:
                raise Malformed(self.cb_faults[0])
            got = next(c for c in self.callbacks if c.name == name)
            self.callbacks.remove(got)
            return got

    def drop(self):
        for conn in self.conns:
            conn.close()

    def close(self):
        self.drop()
        if self.cb_faults:
            raise Malformed(self.cb_faults[0])

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        if kind:
            self.drop()
        else:
            self.close()


def _cb_layoutrecall(r):
    o = Obj(name="LAYOUTRECALL", kind=r.u32(), iomode=r.u32(), changed=r.boolean(), how=r.u32())
    if o.how == RET_FILE:
        o.fh, o.offset, o.length, o.stateid = r.opaque(128), r.u64(), r.u64(), r.stateid()
    elif o.how == RET_FSID:
        o.fsid = r.u64(), r.u64()
    elif o.how != RET_ALL:
        raise Malformed(f"clora_recall type {o.how}")
    return o


def _cb_offload(r):
    o = Obj(name="OFFLOAD", fh=r.opaque(128), stateid=r.stateid(), status=r.u32())
    if o.status:
        o.count = r.u64()
    else:
        o.__dict__.update(write_response(r).__dict__)
    return o


CB_OPS = {
    3: lambda r: Obj(name="GETATTR", fh=r.opaque(128), bits=r.bitmap()),
    4: lambda r: Obj(name="RECALL", stateid=r.stateid(), truncate=r.boolean(), fh=r.opaque(128)),
    5: _cb_layoutrecall,
    8: lambda r: Obj(name="RECALL_ANY", keep=r.u32(), mask=r.bitmap()),
    10: lambda r: Obj(name="RECALL_SLOT", target=r.u32()),
    13: lambda r: Obj(name="NOTIFY_LOCK", fh=r.opaque(128), clientid=r.u64(), owner=r.opaque(1024)),
    15: _cb_offload,
    14: lambda r: Obj(name="NOTIFY_DEVICEID", changes=r.array(lambda: (r.bitmap(), r.opaque()))),
}


# Flexible files (RFC 8435).


def ff_layout(body):
    r = Reader(body)

    def server():
        return Obj(deviceid=r.fixed(16), efficiency=r.u32(), stateid=r.stateid(),
                   fhs=r.array(lambda: r.opaque(128)), user=r.text(), group=r.text())
    o = Obj(unit=r.u64(), mirrors=r.array(lambda: r.array(server)), flags=r.u32(), hint=r.u32())
    r.end()
    return o


def ff_device(body):
    r = Reader(body)
    o = Obj(addrs=r.array(lambda: (r.text(), r.text())),
            versions=r.array(lambda: Obj(version=r.u32(), minor=r.u32(), rsize=r.u32(),
                                         wsize=r.u32(), tight=r.boolean())))
    r.end()
    return o


def ff_return(ioerrs=(), iostats=b""):
    """ioerrs: (offset, length, stateid, [(device id, status, operation)])"""
    return array([u64(o) + u64(n) + stateid(s) + array([d + u32(st) + u32(num) for d, st,
                                                        num in errors])
                  for o, n, s, errors in ioerrs]) + (iostats or u32(0))


# NFSv3 (RFC 1813), as far as a data server needs it.


def uaddr(text):
    """(host, port) of a universal address (RFC 5665)."""
    host, high, low = text.rsplit(".", 2)
    return host, int(high) * 256 + int(low)


class DataServer:
    """READ, WRITE, COMMIT and GETATTR with a layout's filehandle. status 0 is NFS3_OK."""

    def __init__(self, addr, cred=None):
        self.conn, self.cred = Conn(addr), cred or auth_sys()

    def _call(self, proc, args):
        r = Reader(self.conn.rpc(proc, args, self.cred, vers=3))
        return r, Obj(status=r.u32())

    @staticmethod
    def _attr(r):
        return Reader(r.fixed(84)) if r.boolean() else None

    def _wcc(self, r):
        if r.boolean():
            r.fixed(24)
        self._attr(r)

    def getattr(self, fh):
        r, o = self._call(1, opaque(fh))
        if o.status == 0:
            a = Reader(r.fixed(84))
            a.fixed(20)
            o.size = a.u64()
        r.end()
        return o

    def read(self, fh, offset, count):
        r, o = self._call(6, opaque(fh) + u64(offset) + u32(count))
        self._attr(r)
        if o.status == 0:
            o.count, o.eof, o.data = r.u32(), r.boolean(), r.opaque()
            if o.count != len(o.data):
                raise Malformed(f"READ3 count {o.count}, {len(o.data)} bytes")
        r.end()
        return o

    def write(self, fh, offset, data, how=FILE_SYNC):
        r, o = self._call(7, opaque(fh) + u64(offset) + u32(len(data)) + u32(how) + opaque(data))
        self._wcc(r)
        if o.status == 0:
            o.count, o.how, o.verf = r.u32(), r.u32(), r.fixed(8)
        r.end()
        return o

    def commit(self, fh, offset=0, count=0):
        r, o = self._call(21, opaque(fh) + u64(offset) + u32(count))
        self._wcc(r)
        if o.status == 0:
            o.verf = r.fixed(8)
        r.end()
        return o

    def close(self):
        self.conn.close()
