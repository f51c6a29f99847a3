# SPDX-License-Identifier: Apache-2.0
"""The constants, attributes and operations of NFSv4.1 and 4.2 (RFC 8881, 7862, 8276, 8435), with a
maker for each operation. The makers have the names of RFC 8881."""
import collections
from types import SimpleNamespace as Obj

from xdr import *  # noqa: F403

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
    """owner: the first lock of this lock-owner, and sid is the open's. Otherwise sid
    is the lock's."""
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
    """From SAVED_FH to CURRENT_FH, as copy."""
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
