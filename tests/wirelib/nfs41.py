# SPDX-License-Identifier: Apache-2.0
"""A small NFSv4.1/4.2 client for tests: ONC RPC over TCP, XDR, sessions, a backchannel, COMPOUNDs.

It is written from the RFCs alone and decodes strictly: it reads every reply to its last byte and
every attribute to the end of its list, and raises Malformed on what the protocol does not allow. It
sends whatever the test asks for, nonsense too.
"""
import collections
import itertools
import os
import socket
import struct
import threading
import time
from types import SimpleNamespace as Obj

NFS, CB_PROGRAM = 100003, 0x40000000
AUTH_NONE, AUTH_SYS = 0, 1
REG, DIR, BLK, CHR, LNK, SOCK, FIFO, ATTRDIR, NAMEDATTR = range(1, 10)
READ, WRITE, BOTH = 1, 2, 3
WANT_READ, WANT_WRITE, WANT_ANY, NO_DELEG, WANT_CANCEL = 0x100, 0x200, 0x300, 0x400, 0x500
WANT_TIMES, WANT_XOR = 0x100000, 0x200000
D_NONE, D_READ, D_WRITE, D_NONE_EXT, D_READ_TIMES, D_WRITE_TIMES = range(6)
UNCHECKED, GUARDED, EXCLUSIVE, EXCLUSIVE4_1 = range(4)
UNSTABLE, DATA_SYNC, FILE_SYNC = range(3)
IO_READ, IO_RW, IO_ANY = 1, 2, 3
FLEX = 4
RET_FILE, RET_FSID, RET_ALL = 1, 2, 3
DATA, HOLE = 0, 1
MAX64 = 2**64 - 1
ANON = (0, bytes(12))
BYPASS = (2**32 - 1, b"\xff" * 12)
CURRENT = (1, bytes(12))
INVALID = (2**32 - 1, bytes(12))

ERRORS = {
    0: "OK", 1: "PERM", 2: "NOENT", 5: "IO", 6: "NXIO", 13: "ACCESS", 17: "EXIST", 18: "XDEV",
    20: "NOTDIR", 21: "ISDIR", 22: "INVAL", 27: "FBIG", 28: "NOSPC", 30: "ROFS", 31: "MLINK",
    63: "NAMETOOLONG", 66: "NOTEMPTY", 69: "DQUOT", 70: "STALE", 10001: "BADHANDLE",
    10095: "NOXATTR", 10096: "XATTR2BIG",
    **dict(enumerate("""BAD_COOKIE NOTSUPP TOOSMALL SERVERFAULT BADTYPE DELAY SAME DENIED EXPIRED
    LOCKED GRACE FHEXPIRED SHARE_DENIED WRONGSEC CLID_INUSE RESOURCE MOVED NOFILEHANDLE
    MINOR_VERS_MISMATCH STALE_CLIENTID STALE_STATEID OLD_STATEID BAD_STATEID BAD_SEQID NOT_SAME
    LOCK_RANGE SYMLINK RESTOREFH LEASE_MOVED ATTRNOTSUPP NO_GRACE RECLAIM_BAD RECLAIM_CONFLICT
    BADXDR LOCKS_HELD OPENMODE BADOWNER BADCHAR BADNAME BAD_RANGE LOCK_NOTSUPP OP_ILLEGAL DEADLOCK
    FILE_OPEN ADMIN_REVOKED CB_PATH_DOWN BADIOMODE BADLAYOUT BAD_SESSION_DIGEST BADSESSION BADSLOT
    COMPLETE_ALREADY CONN_NOT_BOUND_TO_SESSION DELEG_ALREADY_WANTED BACK_CHAN_BUSY LAYOUTTRYLATER
    LAYOUTUNAVAILABLE NOMATCHING_LAYOUT RECALLCONFLICT UNKNOWN_LAYOUTTYPE SEQ_MISORDERED
    SEQUENCE_POS REQ_TOO_BIG REP_TOO_BIG REP_TOO_BIG_TO_CACHE RETRY_UNCACHED_REP UNSAFE_COMPOUND
    TOO_MANY_OPS OP_NOT_IN_SESSION HASH_ALG_UNSUPP UNUSED_10073 CLIENTID_BUSY PNFS_IO_HOLE
    SEQ_FALSE_RETRY BAD_HIGH_SLOT DEADSESSION ENCR_ALG_UNSUPP PNFS_NO_LAYOUT NOT_ONLY_OP WRONG_CRED
    WRONG_TYPE DIRDELEG_UNAVAIL REJECT_DELEG RETURNCONFLICT DELEG_REVOKED PARTNER_NOTSUPP
    PARTNER_NO_AUTH UNION_NOTSUPP OFFLOAD_DENIED WRONG_LFS BADLABEL
    OFFLOAD_NO_REQS""".split(), 10003))}

OPS = dict(enumerate("""ACCESS CLOSE COMMIT CREATE DELEGPURGE DELEGRETURN GETATTR GETFH LINK LOCK
    LOCKT LOCKU LOOKUP LOOKUPP NVERIFY OPEN OPENATTR OPEN_CONFIRM OPEN_DOWNGRADE PUTFH PUTPUBFH
    PUTROOTFH READ READDIR READLINK REMOVE RENAME RENEW RESTOREFH SAVEFH SECINFO SETATTR SETCLIENTID
    SETCLIENTID_CONFIRM VERIFY WRITE RELEASE_LOCKOWNER BACKCHANNEL_CTL BIND_CONN_TO_SESSION
    EXCHANGE_ID CREATE_SESSION DESTROY_SESSION FREE_STATEID GET_DIR_DELEGATION GETDEVICEINFO
    GETDEVICELIST LAYOUTCOMMIT LAYOUTGET LAYOUTRETURN SECINFO_NO_NAME SEQUENCE SET_SSV TEST_STATEID
    WANT_DELEGATION DESTROY_CLIENTID RECLAIM_COMPLETE ALLOCATE COPY COPY_NOTIFY DEALLOCATE IO_ADVISE
    LAYOUTERROR LAYOUTSTATS OFFLOAD_CANCEL OFFLOAD_STATUS READ_PLUS SEEK WRITE_SAME CLONE GETXATTR
    SETXATTR LISTXATTRS REMOVEXATTR""".split(), 3))
OPS.update({77: "LAYOUT_WCC", 10044: "ILLEGAL"})
NUM = {name: num for num, name in OPS.items()}


def err(status):
    return ERRORS.get(status, str(status))


class Malformed(Exception):
    """A reply that the protocol does not allow."""


class Rejected(Exception):
    """The RPC was not accepted, or accepted without success: .why is ("denied", ...) or
    ("accepted", status, ...)."""

    def __init__(self, *why):
        super().__init__(f"RPC rejected: {why}")
        self.why = why


class Closed(Exception):
    """The server closed the connection."""


# XDR. Packing makes bytes; Reader takes them apart.


def u32(n):
    return struct.pack(">I", n & 0xffffffff)


def u64(n):
    return struct.pack(">Q", n & MAX64)


def boolean(b):
    return u32(1 if b else 0)


def opaque(b):
    if isinstance(b, str):
        b = b.encode()
    return u32(len(b)) + b + bytes(-len(b) % 4)


def array(items):
    return u32(len(items)) + b"".join(items)


def stateid(s):
    return u32(s[0]) + s[1]


def nfstime(t):
    return struct.pack(">qI", *t)


def bitmap(bits):
    words = [0] * (max(bits) // 32 + 1 if bits else 0)
    for b in bits:
        words[b // 32] |= 1 << b % 32
    return array([u32(w) for w in words])


class Reader:
    def __init__(self, data):
        self.data, self.at = data, 0

    def fixed(self, n):
        b = self.data[self.at:self.at + n]
        if len(b) != n:
            raise Malformed(f"ends at {len(self.data)}, {n} bytes wanted at {self.at}")
        self.at += n
        return b

    def u32(self):
        return struct.unpack(">I", self.fixed(4))[0]

    def u64(self):
        return struct.unpack(">Q", self.fixed(8))[0]

    def boolean(self):
        n = self.u32()
        if n > 1:
            raise Malformed(f"boolean {n}")
        return n == 1

    def opaque(self, limit=None):
        n = self.u32()
        if limit is not None and n > limit:
            raise Malformed(f"{n} bytes where {limit} are allowed")
        b = self.fixed(n)
        if any(self.fixed(-n % 4)):
            raise Malformed("padding is not zero")
        return b

    def text(self):
        return self.opaque().decode()

    def array(self, item):
        return [item() for _ in range(self.u32())]

    def bitmap(self):
        words = self.array(self.u32)
        return {32 * i + b for i, w in enumerate(words) for b in range(32) if w >> b & 1}

    def stateid(self):
        return self.u32(), self.fixed(12)

    def nfstime(self):
        t = struct.unpack(">qI", self.fixed(12))
        if t[1] > 999999999:
            raise Malformed(f"nanoseconds {t[1]}")
        return t

    def cinfo(self):
        return Obj(atomic=self.boolean(), before=self.u64(), after=self.u64())

    def end(self):
        if self.at != len(self.data):
            raise Malformed(f"{len(self.data) - self.at} bytes too many")


# Attributes: number -> (name, reader).


def _fs_locations(r):
    path = lambda: r.array(r.text)
    return path(), r.array(lambda: (r.array(r.text), path()))


def _ace(r):
    return r.u32(), r.u32(), r.u32(), r.text()


ATTRS = {
    0: ("supported_attrs", Reader.bitmap), 1: ("type", Reader.u32),
    2: ("fh_expire_type", Reader.u32), 3: ("change", Reader.u64), 4: ("size", Reader.u64),
    5: ("link_support", Reader.boolean), 6: ("symlink_support", Reader.boolean),
    7: ("named_attr", Reader.boolean), 8: ("fsid", lambda r: (r.u64(), r.u64())),
    9: ("unique_handles", Reader.boolean), 10: ("lease_time", Reader.u32),
    11: ("rdattr_error", Reader.u32), 12: ("acl", lambda r: r.array(lambda: _ace(r))),
    13: ("aclsupport", Reader.u32), 14: ("archive", Reader.boolean),
    15: ("cansettime", Reader.boolean), 16: ("case_insensitive", Reader.boolean),
    17: ("case_preserving", Reader.boolean), 18: ("chown_restricted", Reader.boolean),
    19: ("filehandle", lambda r: r.opaque(128)), 20: ("fileid", Reader.u64),
    21: ("files_avail", Reader.u64), 22: ("files_free", Reader.u64),
    23: ("files_total", Reader.u64), 24: ("fs_locations", _fs_locations),
    25: ("hidden", Reader.boolean), 26: ("homogeneous", Reader.boolean),
    27: ("maxfilesize", Reader.u64), 28: ("maxlink", Reader.u32), 29: ("maxname", Reader.u32),
    30: ("maxread", Reader.u64), 31: ("maxwrite", Reader.u64), 32: ("mimetype", Reader.text),
    33: ("mode", Reader.u32), 34: ("no_trunc", Reader.boolean), 35: ("numlinks", Reader.u32),
    36: ("owner", Reader.text), 37: ("owner_group", Reader.text),
    38: ("quota_avail_hard", Reader.u64), 39: ("quota_avail_soft", Reader.u64),
    40: ("quota_used", Reader.u64), 41: ("rawdev", lambda r: (r.u32(), r.u32())),
    42: ("space_avail", Reader.u64), 43: ("space_free", Reader.u64),
    44: ("space_total", Reader.u64), 45: ("space_used", Reader.u64), 46: ("system", Reader.boolean),
    47: ("time_access", Reader.nfstime), 48: ("time_access_set", None),
    49: ("time_backup", Reader.nfstime), 50: ("time_create", Reader.nfstime),
    51: ("time_delta", Reader.nfstime), 52: ("time_metadata", Reader.nfstime),
    53: ("time_modify", Reader.nfstime), 54: ("time_modify_set", None),
    55: ("mounted_on_fileid", Reader.u64), 56: ("dir_notif_delay", Reader.nfstime),
    57: ("dirent_notif_delay", Reader.nfstime),
    58: ("dacl", lambda r: (r.u32(), r.array(lambda: _ace(r)))),
    60: ("change_policy", lambda r: (r.u64(), r.u64())),
    62: ("fs_layout_types", lambda r: r.array(r.u32)), 63: ("layout_hint", None),
    64: ("layout_types", lambda r: r.array(r.u32)),
    65: ("layout_blksize", Reader.u32), 66: ("layout_alignment", Reader.u32),
    68: ("mdsthreshold", lambda r: r.array(lambda: (r.u32(), r.bitmap(), r.opaque()))),
    70: ("retention_set", None), 72: ("retentevt_set", None), 74: ("mode_set_masked", None),
    75: ("suppattr_exclcreat", Reader.bitmap), 76: ("fs_charset_cap", Reader.u32),
    77: ("clone_blksize", Reader.u32), 78: ("space_freed", Reader.u64),
    79: ("change_attr_type", Reader.u32), 81: ("mode_umask", None),
    82: ("xattr_support", Reader.boolean), 83: ("offline", Reader.boolean),
    84: ("time_deleg_access", Reader.nfstime), 85: ("time_deleg_modify", Reader.nfstime),
    86: ("open_arguments", lambda r: tuple(r.bitmap() for _ in range(5))),
}
ATTR = {name: num for num, (name, _) in ATTRS.items()}
WRITE_ONLY = {num for num, (_, reader) in ATTRS.items() if reader is None}


def read_fattr(r):
    bits = r.bitmap()
    body = Reader(r.opaque())
    got = {}
    for b in sorted(bits):
        if b not in ATTRS or b in WRITE_ONLY:
            raise Malformed(f"attribute {b} in a reply")
        name, reader = ATTRS[b]
        got[name] = reader(body)
    body.end()
    return Obj(bits=bits, body=body.data, **got)


def settime(t):
    """None: the server's time."""
    return u32(0) if t is None else u32(1) + nfstime(t)


def _aces(aces):
    return array([u32(kind) + u32(flags) + u32(mask) + opaque(who) for kind, flags, mask,
                  who in aces])


_SETTERS = {"size": u64, "mode": u32, "owner": opaque, "owner_group": opaque,
            "time_access_set": settime, "time_modify_set": settime,
            "mode_set_masked": lambda m: u32(m[0]) + u32(m[1]), "acl": _aces,
            "dacl": lambda a: u32(a[0]) + _aces(a[1]), "change": u64, "type": u32, "fileid": u64,
            "hidden": boolean, "mimetype": opaque, "numlinks": u32, "archive": boolean,
            "mode_umask": lambda m: u32(m[0]) + u32(m[1]), "time_create": nfstime,
            "time_modify": nfstime, "time_metadata": nfstime, "layout_hint": lambda mirrors: u32(4)
            + opaque(boolean(mirrors is not None) + (b"" if mirrors is None else u32(mirrors))),
            "time_deleg_access": nfstime, "time_deleg_modify": nfstime}


def fattr(**attrs):
    """fattr(mode=0o644, size=0); raw={number: bytes} puts bytes."""
    raw = attrs.pop("raw", {})
    raw.update({ATTR[name]: _SETTERS[name](value) for name, value in attrs.items()})
    return bitmap(raw) + opaque(b"".join(raw[b] for b in sorted(raw)))


# Operations: each makes an Op, the bytes that follow its number included.

Op = collections.namedtuple("Op", "num args")


def op(name, *args):
    return Op(NUM[name] if isinstance(name, str) else name, b"".join(args))


def bits_of(names):
    return bitmap({ATTR[n] if isinstance(n, str) else n for n in names})


def putrootfh():
    return op("PUTROOTFH")


def putfh(fh):
    return op("PUTFH", opaque(fh))


def getfh():
    return op("GETFH")


def savefh():
    return op("SAVEFH")


def restorefh():
    return op("RESTOREFH")


def lookup(name):
    return op("LOOKUP", opaque(name))


def lookupp():
    return op("LOOKUPP")


def getattr_(*names):
    return op("GETATTR", bits_of(names))


def setattr_(sid=ANON, **attrs):
    return op("SETATTR", stateid(sid), fattr(**attrs))


def verify(**attrs):
    return op("VERIFY", fattr(**attrs))


def nverify(**attrs):
    return op("NVERIFY", fattr(**attrs))


def access(bits):
    return op("ACCESS", u32(bits))


def create(kind, name, link=b"", dev=(0, 0), **attrs):
    extra = (opaque(link) if kind == LNK else u32(dev[0]) + u32(dev[1]) if kind in (BLK, CHR)
             else b"")
    return op("CREATE", u32(kind), extra, opaque(name), fattr(**attrs))


def remove(name):
    return op("REMOVE", opaque(name))


def rename(old, new):
    return op("RENAME", opaque(old), opaque(new))


def link(name):
    return op("LINK", opaque(name))


def readlink():
    return op("READLINK")


def readdir(cookie=0, verf=bytes(8), dircount=0, maxcount=32768, attrs=()):
    return op("READDIR", u64(cookie), verf, u32(dircount), u32(maxcount), bits_of(attrs))


def claim_null(name):
    return u32(0) + opaque(name)


def claim_previous(deleg=0):
    return u32(1) + u32(deleg)


def claim_delegate_cur(sid, name):
    return u32(2) + stateid(sid) + opaque(name)


def claim_fh():
    return u32(4)


def claim_deleg_cur_fh(sid):
    return u32(5) + stateid(sid)


def open_(claim, acc=READ | NO_DELEG, deny=0, owner=b"owner", how=None, attrs=None, verf=bytes(8)):
    """how: None for no create, else the create mode."""
    if isinstance(claim, str):
        claim = claim_null(claim)
    if how is None:
        openhow = u32(0)
    elif how == EXCLUSIVE:
        openhow = u32(1) + u32(how) + verf
    elif how == EXCLUSIVE4_1:
        openhow = u32(1) + u32(how) + verf + fattr(**attrs or {})
    else:
        openhow = u32(1) + u32(how) + fattr(**attrs or {})
    return op("OPEN", u32(0), u32(acc), u32(deny), u64(0), opaque(owner), openhow, claim)


def close(sid, seqid=0):
    return op("CLOSE", u32(seqid), stateid(sid))


READ_LT, WRITE_LT, READW_LT, WRITEW_LT = 1, 2, 3, 4


def lock(sid, kind, first=0, length=MAX64, owner=None, reclaim=False):
    """owner: the first lock of this lock-owner, sid is the open's; else sid is the lock's."""
    new = (u32(0) + stateid(sid) + u32(0) + u64(0) + opaque(owner) if owner is not None
           else stateid(sid) + u32(0))
    return op("LOCK", u32(kind), boolean(reclaim), u64(first), u64(length),
              boolean(owner is not None), new)


def lockt(kind, first=0, length=MAX64, owner=b"lo"):
    return op("LOCKT", u32(kind), u64(first), u64(length), u64(0), opaque(owner))


def locku(sid, first=0, length=MAX64, kind=WRITE_LT):
    return op("LOCKU", u32(kind), u32(0), stateid(sid), u64(first), u64(length))


def open_downgrade(sid, acc, deny=0):
    return op("OPEN_DOWNGRADE", stateid(sid), u32(0), u32(acc), u32(deny))


def read(sid, offset, count):
    return op("READ", stateid(sid), u64(offset), u32(count))


def write(sid, offset, data, how=UNSTABLE):
    return op("WRITE", stateid(sid), u64(offset), u32(how), opaque(data))


def commit(offset=0, count=0):
    return op("COMMIT", u64(offset), u32(count))


def delegreturn(sid):
    return op("DELEGRETURN", stateid(sid))


def want_delegation(want, claim=None):
    return op("WANT_DELEGATION", u32(want), claim or claim_fh())


def test_stateid(*sids):
    return op("TEST_STATEID", array([stateid(s) for s in sids]))


def free_stateid(sid):
    return op("FREE_STATEID", stateid(sid))


def reclaim_complete(one_fs=False):
    return op("RECLAIM_COMPLETE", boolean(one_fs))


def destroy_session(sessionid):
    return op("DESTROY_SESSION", sessionid)


def destroy_clientid(clientid):
    return op("DESTROY_CLIENTID", u64(clientid))


def bind_conn(sessionid, way):
    """way: 1 fore, 2 back, 3 fore or both, 7 back or both."""
    return op("BIND_CONN_TO_SESSION", sessionid, u32(way), boolean(False))


def exchange_id(owner, verifier, flags=0, impl=("weft.test", "Linux 7.2.0 test"), how=0,
                protect=b""):
    impl_id = array([opaque(impl[0]) + opaque(impl[1]) + nfstime((0, 0))]) if impl else u32(0)
    return op("EXCHANGE_ID", verifier, opaque(owner), u32(flags), u32(how), protect, impl_id)


FORE = dict(maxreq=1049620, maxresp=1049480, cached=4096, ops=16, reqs=16)
BACK = dict(maxreq=4096, maxresp=4096, cached=0, ops=2, reqs=8)


def channel(maxreq, maxresp, cached, ops, reqs, pad=0):
    return b"".join(u32(n) for n in (pad, maxreq, maxresp, cached, ops, reqs, 0))


def create_session(clientid, seq, flags=2, fore=None, back=None, program=CB_PROGRAM, sec=None):
    if sec is None:
        sec = [u32(AUTH_SYS) + u32(0) + opaque("test") + u32(0) + u32(0) + u32(0)]
    return op("CREATE_SESSION", u64(clientid), u32(seq), u32(flags),
              channel(**{**FORE, **(fore or {})}), channel(**{**BACK, **(back or {})}),
              u32(program), array(sec))


def sequence(sessionid, seq, slot=0, highest=0, cache=False):
    return op("SEQUENCE", sessionid, u32(seq), u32(slot), u32(highest), boolean(cache))


def layoutget(sid, iomode=IO_RW, offset=0, length=MAX64, minlength=4096, kind=FLEX, maxcount=4096):
    return op("LAYOUTGET", boolean(False), u32(kind), u32(iomode), u64(offset), u64(length),
              u64(minlength), stateid(sid), u32(maxcount))


FF_EMPTY = u32(0) + u32(0)


def layoutreturn(sid=ANON, iomode=IO_ANY, offset=0, length=MAX64, how=RET_FILE, body=FF_EMPTY,
                 kind=FLEX, reclaim=False):
    rest = u64(offset) + u64(length) + stateid(sid) + opaque(body) if how == RET_FILE else b""
    return op("LAYOUTRETURN", boolean(reclaim), u32(kind), u32(iomode), u32(how), rest)


def layoutcommit(sid, last=None, offset=0, length=MAX64, mtime=None, kind=FLEX, body=b"",
                 reclaim=False):
    return op("LAYOUTCOMMIT", u64(offset), u64(length), boolean(reclaim), stateid(sid),
              u32(0) if last is None else u32(1) + u64(last),
              u32(0) if mtime is None else u32(1) + nfstime(mtime), u32(kind), opaque(body))


def getdeviceinfo(deviceid, maxcount=4096, notify=(1, 2), kind=FLEX):
    return op("GETDEVICEINFO", deviceid, u32(kind), u32(maxcount), bitmap(set(notify)))


def layouterror(sid, errors, offset=0, length=MAX64):
    """errors: (device id, status, operation)."""
    return op("LAYOUTERROR", u64(offset), u64(length), stateid(sid),
              array([d + u32(s) + u32(o) for d, s, o in errors]))


def getxattr(name):
    return op("GETXATTR", opaque(name))


def setxattr(name, value, how=0):
    """how: 0 either, 1 create, 2 replace."""
    return op("SETXATTR", u32(how), opaque(name), opaque(value))


def listxattrs(cookie=0, maxcount=4096):
    return op("LISTXATTRS", u64(cookie), u32(maxcount))


def removexattr(name):
    return op("REMOVEXATTR", opaque(name))


def allocate(sid, offset, length):
    return op("ALLOCATE", stateid(sid), u64(offset), u64(length))


def deallocate(sid, offset, length):
    return op("DEALLOCATE", stateid(sid), u64(offset), u64(length))


def seek(sid, offset, what):
    return op("SEEK", stateid(sid), u64(offset), u32(what))


def read_plus(sid, offset, count):
    return op("READ_PLUS", stateid(sid), u64(offset), u32(count))


def io_advise(sid, offset=0, count=0, hints=()):
    return op("IO_ADVISE", stateid(sid), u64(offset), u64(count), bitmap(hints))


def clone(src, dst, src_offset=0, dst_offset=0, count=0):
    """SAVED_FH to CURRENT_FH, as copy."""
    return op("CLONE", stateid(src), stateid(dst), u64(src_offset), u64(dst_offset), u64(count))


def copy(src, dst, src_offset=0, dst_offset=0, count=0, consecutive=True, synchronous=True,
         servers=()):
    return op("COPY", stateid(src), stateid(dst), u64(src_offset), u64(dst_offset), u64(count),
              boolean(consecutive), boolean(synchronous), array(servers))


def offload_status(sid):
    return op("OFFLOAD_STATUS", stateid(sid))


def offload_cancel(sid):
    return op("OFFLOAD_CANCEL", stateid(sid))


def layout_wcc(sid, body=b"", kind=FLEX):
    return op("LAYOUT_WCC", stateid(sid), u32(kind), opaque(body))


def secinfo_no_name(style=0):
    return op("SECINFO_NO_NAME", u32(style))


def secinfo(name):
    return op("SECINFO", opaque(name))


# Results. A decoder is given the reader after the status and the result to fill; it is called when
# the status is 0.


def _channel(r):
    n = [r.u32() for _ in range(6)]
    ird = r.array(r.u32)
    if len(ird) > 1:
        raise Malformed("more than one ca_rdma_ird")
    return Obj(pad=n[0], maxreq=n[1], maxresp=n[2], cached=n[3], ops=n[4], reqs=n[5], ird=ird)


def _exchange_id(r, o):
    o.clientid, o.seq, o.flags = r.u64(), r.u32(), r.u32()
    o.protect = None
    how = r.u32()
    if how == 1:  # SP4_MACH_CRED: what is enforced, what is allowed
        o.protect = r.bitmap(), r.bitmap()
    elif how:
        raise Malformed(f"state protection {how}")
    o.minor_id, o.major_id, o.scope = r.u64(), r.opaque(1024), r.opaque(1024)
    o.impl = r.array(lambda: (r.text(), r.text(), r.nfstime()))
    if len(o.impl) > 1:
        raise Malformed("more than one eir_server_impl_id")


def _create_session(r, o):
    o.sessionid, o.seq, o.flags = r.fixed(16), r.u32(), r.u32()
    o.fore, o.back = _channel(r), _channel(r)


def _sequence(r, o):
    o.sessionid = r.fixed(16)
    o.seq, o.slot, o.highest, o.target, o.flags = (r.u32() for _ in range(5))


def _open(r, o):
    o.stateid, o.cinfo, o.rflags, o.attrset = r.stateid(), r.cinfo(), r.u32(), r.bitmap()
    _delegation(r, o)


def _delegation(r, o):
    o.deleg = r.u32()
    if o.deleg == D_NONE_EXT:
        o.why = r.u32()
        if o.why in (1, 2):
            o.will = r.boolean()
    elif o.deleg > D_WRITE_TIMES:
        raise Malformed(f"delegation type {o.deleg}")
    elif o.deleg != D_NONE:
        o.deleg_stateid, o.recall = r.stateid(), r.boolean()
        if o.deleg in (D_WRITE, D_WRITE_TIMES):
            o.limit = r.u32(), r.fixed(8)
            if o.limit[0] not in (1, 2):
                raise Malformed(f"nfs_space_limit4 by {o.limit[0]}")
        o.ace = _ace(r)


def _layoutget(r, o):
    o.return_on_close, o.stateid = r.boolean(), r.stateid()
    o.layouts = r.array(lambda: Obj(offset=r.u64(), length=r.u64(), iomode=r.u32(), kind=r.u32(),
                                    body=r.opaque()))


def _layoutreturn(r, o):
    o.present = r.boolean()
    o.stateid = r.stateid() if o.present else None


def _layoutcommit(r, o):
    o.newsize = r.u64() if r.boolean() else None


def _getdeviceinfo(r, o):
    o.kind, o.body, o.notify = r.u32(), r.opaque(), r.bitmap()


def _readdir(r, o):
    o.verf, o.entries = r.fixed(8), []
    while r.boolean():
        o.entries.append(Obj(cookie=r.u64(), name=r.opaque(), attrs=read_fattr(r)))
    o.eof = r.boolean()


def _secinfo(r, o):
    def one():
        flavor = r.u32()
        return (flavor, r.opaque(), r.u32(), r.u32()) if flavor == 6 else flavor
    o.flavors = r.array(one)


def _set(**fields):
    def decode(r, o):
        for name, reader in fields.items():
            setattr(o, name, reader(r))
    return decode


def _segment(r):
    what, offset = r.u32(), r.u64()
    if what > HOLE:
        raise Malformed(f"READ_PLUS content {what}")
    return (Obj(what=what, offset=offset, data=r.opaque()) if what == DATA
            else Obj(what=what, offset=offset, length=r.u64()))


def write_response(r):
    """write_response4: .callback is the copy stateid, or None."""
    ids = r.array(r.stateid)
    if len(ids) > 1:
        raise Malformed("more than one wr_callback_id")
    return Obj(callback=ids[0] if ids else None, count=r.u64(), how=r.u32(), verf=r.fixed(8))


def _copy(r, o):
    o.__dict__.update(write_response(r).__dict__)
    o.consecutive, o.synchronous = r.boolean(), r.boolean()


_CINFO = _set(cinfo=Reader.cinfo)
_STATEID = _set(stateid=Reader.stateid)
_NOTHING = _set()
DECODERS = {
    "ACCESS": _set(supported=Reader.u32, access=Reader.u32), "CLOSE": _STATEID,
    "COMMIT": _set(verf=lambda r: r.fixed(8)), "DELEGRETURN": _NOTHING,
    "WANT_DELEGATION": _delegation, "CREATE": _set(cinfo=Reader.cinfo, attrset=Reader.bitmap),
    "GETATTR": _set(attrs=read_fattr), "GETFH": _set(fh=lambda r: r.opaque(128)), "LINK": _CINFO,
    "LOCK": _STATEID, "LOCKT": _NOTHING, "LOCKU": _STATEID, "LOOKUP": _NOTHING, "LOOKUPP": _NOTHING,
    "NVERIFY": _NOTHING, "OPEN": _open, "OPEN_DOWNGRADE": _STATEID, "PUTFH": _NOTHING,
    "PUTPUBFH": _NOTHING, "PUTROOTFH": _NOTHING,
    "READ": _set(eof=Reader.boolean, data=Reader.opaque), "READDIR": _readdir,
    "READLINK": _set(link=Reader.opaque), "REMOVE": _CINFO,
    "RENAME": _set(source=Reader.cinfo, target=Reader.cinfo), "RESTOREFH": _NOTHING,
    "SAVEFH": _NOTHING, "SECINFO": _secinfo, "VERIFY": _NOTHING,
    "WRITE": _set(count=Reader.u32, how=Reader.u32, verf=lambda r: r.fixed(8)),
    "BACKCHANNEL_CTL": _NOTHING, "BIND_CONN_TO_SESSION": _set(sessionid=lambda r: r.fixed(16),
                                                              way=Reader.u32, rdma=Reader.boolean),
    "EXCHANGE_ID": _exchange_id, "CREATE_SESSION": _create_session, "DESTROY_SESSION": _NOTHING,
    "FREE_STATEID": _NOTHING, "GETDEVICEINFO": _getdeviceinfo, "LAYOUTCOMMIT": _layoutcommit,
    "LAYOUTGET": _layoutget, "LAYOUTRETURN": _layoutreturn, "SECINFO_NO_NAME": _secinfo,
    "SEQUENCE": _sequence, "TEST_STATEID": _set(statuses=lambda r: r.array(r.u32)),
    "DESTROY_CLIENTID": _NOTHING, "RECLAIM_COMPLETE": _NOTHING, "LAYOUTERROR": _NOTHING,
    "LAYOUTSTATS": _NOTHING, "GETXATTR": _set(value=Reader.opaque), "SETXATTR": _CINFO,
    "REMOVEXATTR": _CINFO, "ALLOCATE": _NOTHING, "DEALLOCATE": _NOTHING,
    "SEEK": _set(eof=Reader.boolean, offset=Reader.u64),
    "READ_PLUS": _set(eof=Reader.boolean, segments=lambda r: r.array(lambda: _segment(r))),
    "IO_ADVISE": _set(hints=Reader.bitmap), "CLONE": _NOTHING, "COPY": _copy,
    "LAYOUT_WCC": _NOTHING,
    "OFFLOAD_STATUS": _set(count=Reader.u64, complete=lambda r: r.array(r.u32)),
    "OFFLOAD_CANCEL": _NOTHING,
    "LISTXATTRS": _set(cookie=Reader.u64, names=lambda r: r.array(r.opaque), eof=Reader.boolean),
}


def read_result(r):
    o = Obj(num=r.u32(), status=r.u32())
    o.op = OPS.get(o.num, str(o.num))
    if o.op == "SETATTR":  # the mask comes with errors too
        o.attrset = r.bitmap()
    elif o.status == 0:
        if o.op not in DECODERS:
            raise Malformed(f"{o.op} succeeded, and nothing here decodes it")
        DECODERS[o.op](r, o)
    elif o.op in ("LOCK", "LOCKT") and err(o.status) == "DENIED":
        o.first, o.length, o.kind, o.clientid, o.owner = (r.u64(), r.u64(), r.u32(), r.u64(),
                                                          r.opaque(1024))
    elif o.op == "GETDEVICEINFO" and err(o.status) == "TOOSMALL":
        o.mincount = r.u32()
    elif o.op == "COPY" and err(o.status) == "OFFLOAD_NO_REQS":
        o.consecutive, o.synchronous = r.boolean(), r.boolean()
    elif o.op == "LAYOUTGET" and err(o.status) == "LAYOUTTRYLATER":
        o.will = r.boolean()
    return o


def compound_args(ops, minor=2, tag=b""):
    return opaque(tag) + u32(minor) + array([u32(o.num) + o.args for o in ops])


def read_compound(body):
    r = Reader(body)
    c = Obj(status=r.u32(), tag=r.opaque())
    c.results = r.array(lambda: read_result(r))
    r.end()
    if c.results and c.status != c.results[-1].status:
        raise Malformed(f"COMPOUND says {err(c.status)}, "
                        f"its last operation {err(c.results[-1].status)}")
    if any(o.status for o in c.results[:-1]):
        raise Malformed("operations after one that failed")
    return c


# RPC.


def auth_sys(uid=0, gid=0, gids=(), machine="test"):
    return AUTH_SYS, u32(0) + opaque(machine) + u32(uid) + u32(gid) + array([u32(g) for g in gids])


NOBODY = AUTH_NONE, b""


def rpc_call(xid, proc, args, cred, prog=NFS, vers=4, rpcvers=2):
    head = [xid, 0, rpcvers, prog, vers, proc, cred[0]]
    return b"".join(u32(n) for n in head) + opaque(cred[1]) + u32(0) + u32(0) + args


class Conn:
    """One TCP connection. A thread of its own reads it: replies wake their caller, calls go to
    on_call."""

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
                    # Not here: what answers a callback may send a call and wait for its reply.
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

    def is_closed(self, timeout=5):
        with self.cond:
            return self.cond.wait_for(lambda: self.closed, timeout)

    def close(self):
        for how in (lambda: self.sock.shutdown(socket.SHUT_RDWR), self.sock.close):
            try:
                how()
            except OSError:
                pass


class Failed(AssertionError):
    """A COMPOUND ended with another status than the test wants."""


class Client:
    """A client with one session. call() sends SEQUENCE and the given operations on a free slot.

    The client checks callbacks against the rules for CB_SEQUENCE, puts them in .callbacks, and
    answers them by .on_callback(name, args). That returns a status, or bytes that follow the status
    OK, or None for no answer. Breaches are in .cb_faults, and close() raises them. A callback that
    comes again on another connection counts in .cb_again, and the client answers
    RETRY_UNCACHED_REP.
    """

    numbers = itertools.count(1)

    def __init__(self, addr, minor=2, cred=None, owner=None, verifier=None, release="7.2.0",
                 session=True, reclaim=True, source=None, impl=True, **session_args):
        """impl: nii_domain and nii_name; None: it gives none; True: a Linux kernel's, of this
        release."""
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
        """All must succeed. The result of the last one; .all has them all, without SEQUENCE."""
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
        """Asks again, at most tries times, until done(compound)."""
        for _ in range(tries):
            c = self.call(*ops, **how)
            if done(c):
                return c
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
        """All entries, page by page; between() is called between two pages."""
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

    def wait_callback(self, name, timeout=30):
        """The first callback of this name, which is taken from the list."""
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
