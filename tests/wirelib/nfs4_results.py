# SPDX-License-Identifier: Apache-2.0
"""Results of operations, and COMPOUND (RFC 8881, chapter 16)."""
from types import SimpleNamespace as Obj

from nfs4_ops import *  # noqa: F403
from nfs4_ops import _ace, err
from xdr import *  # noqa: F403

# Results. A decoder gets the reader after the status, and the result to fill. It runs when the
# status is 0.


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
    if how == 1:  # SP4_MACH_CRED: what the server enforces, what it allows
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
