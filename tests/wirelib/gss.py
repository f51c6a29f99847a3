# SPDX-License-Identifier: Apache-2.0
"""RPCSEC_GSS (RFC 2203) for the client of nfs41.py, on python3-gssapi, with a KDC of the test's own
(tests/kdc)."""
import itertools
import os
import subprocess

import gssapi

import nfs41
from nfs41 import Client, Conn, Malformed, Reader, Rejected, opaque, u32

GSS = 6
NONE, INTEGRITY, PRIVACY = 1, 2, 3
DATA, INIT, CONTINUE, DESTROY = range(4)
KDC = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "kdc")


class Realm:
    """A KDC in a folder. From here on this process and the programs that it starts use it."""

    def __init__(self, folder, *principals, skew=300):
        self.dir = folder
        subprocess.run(["bash", KDC, "up", folder, "-s", str(skew), *principals], check=True,
                       timeout=60)
        os.environ["KRB5_CONFIG"] = os.path.join(folder, "krb5.conf")
        self.caches = itertools.count(1)

    def keytab(self, principal):
        return os.path.join(self.dir, principal.replace("/", "-") + ".keytab")

    def login(self, principal, life="1h"):
        """A new ticket cache with this principal's ticket."""
        cache = os.path.join(self.dir, f"cc{next(self.caches)}")
        how = ["-k", "-t", self.keytab(principal)] if "/" in principal else []
        subprocess.run(["kinit", "-c", cache, "-l", life, *how, principal], input=principal + "\n",
                       text=True, check=True, stdout=subprocess.DEVNULL, timeout=60)
        return "FILE:" + cache

    def down(self):
        subprocess.run(["bash", KDC, "down", self.dir], check=True, timeout=60)


def head(xid, proc, body, prog=nfs41.NFS, vers=4):
    return b"".join(u32(n) for n in (xid, 0, 2, prog, vers, proc, GSS)) + opaque(body)


def cred_body(proc, seq, service, handle, version=1):
    return u32(version) + u32(proc) + u32(seq) + u32(service) + opaque(handle)


class Cred:
    """One context, in the form of a credential of nfs41. with_service() gives the same context with
    another protection."""

    def __init__(self, cache, service=INTEGRITY, target="nfs@localhost"):
        flags = gssapi.RequirementFlag
        self.service = service
        self.ctx = gssapi.SecurityContext(
            name=gssapi.Name(target, gssapi.NameType.hostbased_service), usage="initiate",
            mech=gssapi.MechType.kerberos,
            creds=gssapi.Credentials(usage="initiate", store={"ccache": cache}),
            flags=flags.mutual_authentication | flags.integrity | flags.confidentiality)
        self.token = self.ctx.step()
        self.handle, self.window, self.seqs = b"", 0, itertools.count(1)

    def with_service(self, service):
        other = object.__new__(Cred)
        other.__dict__.update(self.__dict__, service=service)
        return other

    def __getitem__(self, i):
        raise TypeError("a GSS credential needs a GssConn")


class GssConn(Conn):
    """A connection whose calls may carry a Cred. init() makes its context."""

    def __init__(self, addr, on_call=None, source=None):
        self.gss = {}
        super().__init__(addr, on_call, source)

    def init_raw(self, token, proc=INIT, handle=b"", rpcproc=0, version=1):
        """(the verifier, the decoded result) of a call that makes a context."""
        xid = next(self.xids)
        with self.cond:
            self.wanted.add(xid)
        self.send_record(head(xid, rpcproc, cred_body(proc, 0, 0, handle, version)) + u32(0)
                         + u32(0) + opaque(token))
        verf, r = self._accepted(self.raw(xid))
        out = nfs41.Obj(handle=r.opaque(400), major=r.u32(), minor=r.u32(), window=r.u32(),
                        token=r.opaque())
        r.end()
        return verf, out

    def init(self, cred):
        (flavor, mic), got = self.init_raw(cred.token)
        if got.major:
            raise Rejected("gss", got.major, got.minor)
        cred.ctx.step(got.token)
        if flavor != GSS or not cred.ctx.complete:
            raise Malformed("the context is not complete")
        cred.ctx.verify_signature(u32(got.window), mic)
        cred.handle, cred.window = got.handle, got.window
        return cred

    def call_bytes(self, xid, proc, args, cred, seq=None, gssproc=DATA, service=None, handle=None,
                   version=1, spoil=(), **how):
        """A whole record. spoil names what is wrong in it: "mic", "checksum", "within", "clear",
        "body"."""
        seq = next(cred.seqs) if seq is None else seq
        service = service or cred.service
        h = head(xid, proc, cred_body(gssproc, seq, service,
                                      cred.handle if handle is None else handle, version), **how)
        mic = cred.ctx.get_signature(h + (b"x" if "mic" in spoil else b""))
        within = u32(seq + 1 if "within" in spoil else seq) + args
        if service == INTEGRITY:
            sum_ = cred.ctx.get_signature(within + (b"x" if "checksum" in spoil else b""))
            args = opaque(within) + opaque(sum_)
        elif service == PRIVACY:
            token = cred.ctx.wrap(within, "clear" not in spoil).message
            args = opaque(bytes(b ^ 1 for b in token) if "body" in spoil else token)
        return h + u32(GSS) + opaque(mic) + args, seq, service

    def start(self, proc, args, cred, **how):
        if not isinstance(cred, Cred):
            return super().start(proc, args, cred, **how)
        xid = next(self.xids)
        with self.cond:
            self.wanted.add(xid)
        record, seq, service = self.call_bytes(xid, proc, args, cred, **how)
        self.gss[xid] = cred, seq, service
        try:
            self.send_record(record)
        except OSError as e:
            raise nfs41.Closed(str(e)) from e
        return xid

    def raw(self, xid, timeout=60):
        with self.cond:
            if not self.cond.wait_for(lambda: xid in self.replies or self.closed, timeout):
                raise TimeoutError(f"no reply in {timeout} s")
            if xid not in self.replies:
                raise nfs41.Closed("the connection was closed before the reply")
            self.wanted.discard(xid)
            return self.replies.pop(xid)

    @staticmethod
    def _accepted(body):
        r = Reader(body)
        if r.u32() == 1:
            raise Rejected("denied", r.u32(), *([r.u32()] if r.at < len(body) else []))
        verf = r.u32(), r.opaque(400)
        status = r.u32()
        if status:
            raise Rejected("accepted", status, verf)
        return verf, r

    def finish(self, xid, timeout=60):
        if xid not in self.gss:
            return super().finish(xid, timeout)
        cred, seq, service = self.gss.pop(xid)
        (flavor, mic), r = self._accepted(self.raw(xid, timeout))
        if flavor != GSS:
            raise Malformed("the verifier is not GSS's")
        cred.ctx.verify_signature(u32(seq), mic)
        if service == NONE:
            return r.data[r.at:]
        if service == INTEGRITY:
            body, mic = r.opaque(), r.opaque()
            cred.ctx.verify_signature(body, mic)
        else:
            plain = cred.ctx.unwrap(r.opaque())
            if not plain.encrypted:
                raise Malformed("the results are not encrypted")
            body = plain.message
        r.end()
        if body[:4] != u32(seq):
            raise Malformed("another sequence number in the results")
        return body[4:]


class GssClient(Client):
    def connection(self):
        return GssConn(self.addr, self._on_call)
