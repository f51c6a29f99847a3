# SPDX-License-Identifier: Apache-2.0
"""What many tests do with a client: they open files, get layouts, obey recalls, reclaim."""
import time

import harness
from harness import *  # noqa: F403
from nfs41 import err, op


def eid(conn, owner, verifier, flags=0, want="OK", cred=None):
    return first(conn, want, exchange_id(owner, verifier, flags), cred=cred)


def confirmed(c, name):
    """(clientid, sequence for CREATE_SESSION) of a new owner."""
    got = eid(c, b"%s %d" % (name.encode(), time.monotonic_ns()), b"verifier")
    return got.clientid, got.seq


def raw(conn, *ops, minor=2, cred=None):
    """The bytes of the COMPOUND's reply."""
    return conn.rpc(1, compound_args(ops, minor), cred or auth_sys())


def all_readable(c, fh):
    return c.attrs(fh, "supported_attrs").supported_attrs - WRITE_ONLY


def opened(c, d, name, acc=BOTH, how=None, **args):
    """The result of OPEN, .fh and .attrs with it."""
    r = c.ok(putfh(d), open_(name, acc | NO_DELEG, how=how, **args), getfh(),
             getattr_("size", "mode", "fileid"))
    one = r.all[1]
    one.fh, one.attrs = r.all[2].fh, r.attrs
    if one.rflags & 2:
        raise Failed("OPEN4_RESULT_CONFIRM")
    check(one.deleg in (0, 3), True, "delegation")
    return one


def attrset(*names):
    return {ATTR[n] for n in names}


def lay(c, fh, sid, iomode=IO_RW, **args):
    """A layout, taken apart strictly; .stateid is the layout's."""
    r = c.ok(putfh(fh), layoutget(sid, iomode, **args))
    check(len(r.layouts), 1)
    got = r.layouts[0]
    check((got.offset, got.length, got.iomode, got.kind), (0, MAX64, iomode, FLEX))
    if len(got.body) > 4096:
        raise Failed(f"a layout of {len(got.body)} bytes")
    o = ff_layout(got.body)
    check(len({len(m) for m in o.mirrors}), 1, "mirrors of different width")
    check(o.unit == 0, len(o.mirrors[0]) == 1, "a stripe unit is there for stripes only")
    check(o.flags & ~0xf, 0)
    for server in (s for m in o.mirrors for s in m):
        check(len(server.fhs), 1)
        check((server.user.isdigit(), server.group.isdigit()), (True, True))
        check(server.user.lstrip("0") or "0", server.user)
        check(server.stateid, ANON, "the stateid for NFSv3")
        if not 0 < len(server.fhs[0]) <= 64:
            raise Failed(f"a handle of {len(server.fhs[0])} bytes")
    o.stateid, o.return_on_close = r.stateid, r.return_on_close
    return o


def device(c, deviceid):
    r = c.ok(getdeviceinfo(deviceid))
    check((r.kind, r.notify), (FLEX, {1, 2}))
    o = ff_device(r.body)
    for v in o.versions:
        check((v.version, v.minor, v.rsize >= 1024, v.wsize >= 1024), (3, 0, True, True))
    return o


def data_server(c, server):
    netid, addr = device(c, server.deviceid).addrs[0]
    check(netid, "tcp")
    return DataServer(uaddr(addr), auth_sys(int(server.user), int(server.group)))


def one_server(c, d, name="f", iomode=IO_RW):
    """A file of one object: (open stateid, filehandle, layout, its data server, the
    handle there)."""
    s, f = c.open(d, name)
    o = lay(c, f, s, iomode)
    server = o.mirrors[0][0]
    return s, f, o, data_server(c, server), server.fhs[0]


NOT_NOW = ("LAYOUTTRYLATER", "RECALLCONFLICT", "DELAY", "GRACE")


def settled(c, f, sid, iomode=IO_RW):
    """A layout, whatever works on the file now. A recall may come between two LAYOUTGETs."""
    for _ in range(20):
        # A minute: a recall that another client does not answer takes its deadline.
        c.until(lambda got: err(got.status) not in NOT_NOW, putfh(f), layoutget(sid, iomode),
                tries=1200)
        try:
            return lay(c, f, sid, iomode)
        except Failed as e:
            if not any(f": {why}," in str(e) for why in NOT_NOW):
                raise
    raise Failed("no layout stays")


def striped(c, d, policy, name="f", **how):
    c.ok(putfh(d), setxattr("weft.policy", policy))
    s, f = c.open(d, name)
    return s, f, lay(c, f, s, **how)


def answered(c, before, args, *ops):
    """Answers OK to a recall with these arguments. before(args) and the operations follow
    in a thread."""
    def go():
        try:
            if before:
                before(args)
            c.ok(*ops)
        except Failed as e:
            c.fault(f"in answer to a recall: {e}")
        except Closed:  # the test has seen enough
            pass
    threading.Thread(target=go, daemon=True).start()
    return 0


def returns_when_recalled(c, fh, before=None):
    """The client answers a recall with OK, then returns the layout."""
    def on_callback(name, args):
        return answered(c, before, args, putfh(args.fh), layoutreturn(args.stateid))
    c.on_callback = on_callback


def revoked():
    """Layouts that the server took away at a deadline: 0 more where nothing waited for one."""
    return harness.THE.metric("weft_mds_layout_revoked_total")


def again(c, reclaim=False):
    """The client as it goes on after the server's restart: new connection, clientid and session."""
    c.drop()
    c.conns = [c.connection()]
    c.exchange_id()
    c.create_session()
    if reclaim:
        c.ok(reclaim_complete())


def reclaim(c, fh, acc=BOTH, owner=b"owner", deny=0):
    return c.ok(putfh(fh), open_(claim_previous(), acc | NO_DELEG, deny, owner)).stateid
