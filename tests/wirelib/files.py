# SPDX-License-Identifier: Apache-2.0
"""What a file holds, read through the metadata server and in each copy, and its layout."""
import json

from harness import *  # noqa: F403
from nfs41 import err
from steps import data_server, lay

MB = 1 << 20


def content(c, f, sid=ANON, offset=0, length=MAX64):
    """The file's bytes through the metadata server. It asks again where the server says DELAY."""
    out = b""
    while length:
        got = c.until(lambda got: err(got.status) != "DELAY", putfh(f),
                      read(sid, offset + len(out), min(MB, length)), tries=200)
        check(err(got.status), "OK", "READ")
        r = got.results[-1]
        out += r.data
        length -= len(r.data)
        if r.eof:
            break
    return out


def layout_of(c, f):
    return json.loads(c.ok(putfh(f), getxattr("weft.layout")).value)


def on_every_mirror(c, f, sid, size):
    """The file as each mirror has it, straight from the data servers."""
    o = lay(c, f, sid, IO_READ)
    out = []
    for mirror in o.mirrors:
        data = b""
        while len(data) < size:
            unit = o.unit or size
            x = mirror[len(data) // unit % len(mirror)]
            n = min(MB, size - len(data), unit - len(data) % unit)
            got = data_server(c, x).read(x.fhs[0], len(data), n)
            check((got.status, len(got.data)), (0, n), f"READ of {n} at {len(data)}")
            data += got.data
        out.append(data)
    c.ok(putfh(f), layoutreturn(o.stateid))
    return out


def wcc(*mirrors):
    """mirrors: lists of (server of a layout, attributes)"""
    one = (lambda x, attrs, fh=None, sid=ANON: x.deviceid + stateid(sid)
           + array([opaque(fh or x.fhs[0])]) + attrs)
    return array([array([one(*e) for e in m]) for m in mirrors])


def v3_attrs(size=None, atime=None, mtime=None):
    raw = {33: u32(0o644), 36: opaque("0"), 37: opaque("0"), 45: u64(4096), 52: nfstime((5, 5))}
    raw.update({n: v for n, v in ((4, size is not None and u64(size)),
                                  (47, atime and nfstime(atime)), (53, mtime and nfstime(mtime)))
                if v})
    return fattr(raw=raw)


def holder(c, f):
    return json.loads(c.ok(putfh(f),
                           getxattr("weft.layout")).value)["mirrors"][0]["objects"][0]["ds"]


def told(server, ops, size, us):
    """A LAYOUTSTATS body: this many reads of this size, each of us microseconds."""
    total = (ops * us // 1000000, ops * us % 1000000 * 1000)
    read_ = u64(ops) + u64(ops * size) + u64(ops) + u64(ops * size) + u64(0) + nfstime(total) * 2
    none = u64(0) * 5 + nfstime((0, 0)) * 2
    return (opaque("tcp") + opaque("127.0.0.1.47.18") + opaque(server.fhs[0]) + read_ + none
            + nfstime((1, 0)) + boolean(False))


def stats(sid, server, ops, size, us):
    return op("LAYOUTSTATS", u64(0), u64(MAX64), stateid(sid), u64(0) * 4, server.deviceid,
              u32(FLEX), opaque(told(server, ops, size, us)))
