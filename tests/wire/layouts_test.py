#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Layouts of the metadata server and the data behind them, over the wire (RFC 8881 and 8435).
Prints TAP.

A test gets a client and the filehandle of a directory of its own. A test whose name begins with
restart_ gets a cluster of its own.
"""
import json
import os
import random
import sys
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../wirelib"))
import harness  # noqa: E402
from harness import *  # noqa: E402,F403
from nfs41 import err, op  # noqa: E402
from steps import *  # noqa: E402,F403


# ---- layouts (18.40 to 18.44 and RFC 8435)


def test_a_layout_is_the_whole_file_whatever_is_asked(c, d):
    s, f = c.open(d, "f")
    for iomode in (IO_READ, IO_RW):
        for offset, length, least in ((0, MAX64, 0), (0, 4096, 4096), (4096, 8192, 1),
                                      (1 << 40, MAX64, 4096), (0, 0, 0)):
            lay(c, f, s, iomode, offset=offset, length=length, minlength=least)


def test_a_striped_and_mirrored_layout(c, d):
    s, f, o = striped(c, d, "stripes=2,unit=4M,mirrors=2")
    check((o.unit, [len(m) for m in o.mirrors]), (4 << 20, [2, 2]))
    check(len({x.deviceid for m in o.mirrors for x in m}), 4)
    check(len({x.fhs[0] for m in o.mirrors for x in m}), 4)
    again = lay(c, f, s)
    check([[x.deviceid for x in m] for m in again.mirrors],
          [[x.deviceid for x in m] for m in o.mirrors])


def test_devices_are_named_once_and_have_addresses(c, d):
    s, f, o = striped(c, d, "stripes=4")
    ports = set()
    for x in o.mirrors[0]:
        got = device(c, x.deviceid)
        ports |= {uaddr(a)[1] for _, a in got.addrs}
        check(vars(got)["addrs"], vars(device(c, x.deviceid))["addrs"])
    check(len(ports), 4)


def test_getdeviceinfo_errors(c, d):
    deviceid = lay(c, *reversed(c.open(d, "f"))).mirrors[0][0].deviceid
    c.no("NOENT", getdeviceinfo(b"\xee" * 16))
    c.no("UNKNOWN_LAYOUTTYPE", getdeviceinfo(deviceid, kind=1))
    got = c.no("TOOSMALL", getdeviceinfo(deviceid, maxcount=8))
    c.ok(getdeviceinfo(deviceid, maxcount=got.mincount))
    c.no("TOOSMALL", getdeviceinfo(deviceid, maxcount=got.mincount - 1))
    check(c.ok(getdeviceinfo(deviceid, maxcount=0)).body, b"")
    for notify in (set(), {1}, {2}):
        check(c.ok(getdeviceinfo(deviceid, notify=notify)).notify, notify)


def test_layoutget_errors(c, d):
    s, f = c.open(d, "f")
    r, _ = c.open(d, "f", READ, owner=b"reader", how=None)
    for want, args in (("BADIOMODE", dict(iomode=IO_ANY)), ("BADIOMODE", dict(iomode=0)),
                       ("BADIOMODE", dict(iomode=4)), ("UNKNOWN_LAYOUTTYPE", dict(kind=1)),
                       ("UNKNOWN_LAYOUTTYPE", dict(kind=99)),
                       ("INVAL", dict(length=10, minlength=11)),
                       ("INVAL", dict(offset=MAX64, length=MAX64 - 1, minlength=2)),
                       ("INVAL", dict(offset=MAX64 - 5, length=10, minlength=1)),
                       ("TOOSMALL", dict(maxcount=20))):
        c.no(want, putfh(f), layoutget(s, **args))
    c.no("OPENMODE", putfh(f), layoutget(r, IO_RW))
    lay(c, f, r, IO_READ)
    for bad in (ANON, BYPASS, INVALID, CURRENT, (1, b"\x01" * 12)):
        c.no("BAD_STATEID", putfh(f), layoutget(bad))
    client().no("BAD_STATEID", putfh(f), layoutget(s))
    c.no(("BAD_STATEID", "INVAL", "WRONG_TYPE"), putfh(d), layoutget(s))


def test_a_layout_comes_with_open(c, d):
    r = c.ok(putfh(d), open_("f", BOTH | NO_DELEG, how=EXCLUSIVE4_1, verf=b"verifier",
                             attrs={"mode": 0o644}), getfh(),
             access(0x3f), getattr_("size"), layoutget(CURRENT, minlength=0))
    check((r.stateid[0], len(r.layouts), r.stateid[1] != r.all[1].stateid[1]), (1, 1, True))


def test_layout_stateids_count(c, d):
    s, f = c.open(d, "f")
    a = lay(c, f, s)
    b = lay(c, f, a.stateid)
    check((a.stateid[0], b.stateid), (1, (2, a.stateid[1])))
    check(lay(c, f, a.stateid, IO_READ).stateid, (3, a.stateid[1]),
          "requests under way together have one seqid")
    c.no("BAD_STATEID", putfh(f), layoutget((0, a.stateid[1])))
    c.no("BAD_STATEID", putfh(f), layoutreturn((0, a.stateid[1])))
    c.no(("BAD_STATEID", "OLD_STATEID"), putfh(f), layoutget((99, a.stateid[1])))
    check(c.ok(putfh(f), layoutreturn((3, a.stateid[1]), IO_READ)).stateid, (4, a.stateid[1]))
    check(lay(c, f, s, IO_READ).stateid[1], a.stateid[1])


def test_the_last_layoutreturn_ends_the_stateid(c, d):
    s, f = c.open(d, "f")
    o = lay(c, f, s)
    r = c.ok(putfh(f), layoutreturn(o.stateid), getattr_("size"))
    check((r.all[1].present, r.all[1].stateid), (False, None))
    for one in (layoutget(o.stateid), layoutreturn(o.stateid)):
        c.no("BAD_STATEID", putfh(f), one)
    c.no(("BAD_STATEID", "BADLAYOUT"), putfh(f), layoutcommit(o.stateid))
    check(err(c.ok(test_stateid(o.stateid)).statuses[0]), "BAD_STATEID")
    new = lay(c, f, s)
    check((new.stateid[0], new.stateid[1] != o.stateid[1]), (1, True))
    c.no("BAD_STATEID", putfh(f), layoutreturn(new.stateid), layoutget(CURRENT))


def test_layoutreturn_of_parts(c, d):
    s, f = c.open(d, "f")
    lay(c, f, s, IO_READ)
    o = lay(c, f, s, IO_RW)
    r = c.ok(putfh(f), layoutreturn(o.stateid, IO_RW))
    check((r.present, r.stateid), (True, (3, o.stateid[1])))
    c.ok(putfh(f), layoutreturn(r.stateid, IO_RW))
    r = c.ok(putfh(f), layoutreturn((4, o.stateid[1]), IO_READ, offset=0, length=4096))
    check(r.present, True, "the rest of the file is still held")
    check(c.ok(putfh(f), layoutreturn(r.stateid, IO_ANY)).present, False)


def test_layoutreturn_of_a_file_system_and_of_all(c, d):
    for how in (RET_FSID, RET_ALL):
        for name in "ab":
            s, f = c.open(d, name)
            o = lay(c, f, s)
        check(c.ok(putfh(f), layoutreturn(iomode=IO_READ, how=how)).present, False)
        check(err(c.ok(test_stateid(o.stateid)).statuses[0]), "OK")
        check(c.ok(putfh(f), layoutreturn(how=how)).present, False)
        check(err(c.ok(test_stateid(o.stateid)).statuses[0]), "BAD_STATEID")
        c.ok(putfh(f), layoutreturn(how=how))


def test_layoutreturn_errors(c, d):
    s, f = c.open(d, "f")
    o = lay(c, f, s)
    for want, args in (("INVAL", dict(iomode=0)), ("INVAL", dict(iomode=7)),
                       ("NO_GRACE", dict(reclaim=True)), ("UNKNOWN_LAYOUTTYPE", dict(kind=1)),
                       ("BADXDR", dict(body=u32(1))), ("BADXDR", dict(body=u32(9) + u32(0)))):
        c.no(want, putfh(f), layoutreturn(o.stateid, **args))
    for how in (RET_ALL, RET_FSID):
        c.no("INVAL", putfh(f), layoutreturn(how=how, reclaim=True))
    c.no("NOFILEHANDLE", layoutreturn(how=RET_FSID))
    c.ok(layoutreturn(how=RET_ALL, iomode=IO_READ))
    for bad in (s, (1, b"\x01" * 12), BYPASS, INVALID):
        c.no("BAD_STATEID", putfh(f), layoutreturn(bad))
    c.ok(putfh(f), layoutreturn(o.stateid))


def layoutupdate(server):
    """ff_layoutupdate4 (RFC 8435, 9.2.1)."""
    latency = u64(1) * 5 + nfstime((0, 5)) * 2
    return (opaque("tcp") + opaque("127.0.0.1.47.18") + opaque(server.fhs[0]) + latency * 2
            + nfstime((1, 2)) + boolean(True))


def iostats(sid, server):
    """ff_iostats4: io_info4 of reads and writes are two numbers each."""
    return u64(0) + u64(MAX64) + stateid(sid) + u64(7) * 4 + server.deviceid + layoutupdate(server)


def test_a_layoutreturn_reports_errors_and_statistics(c, d):
    s, f, o = striped(c, d, "mirrors=2")
    a, b = o.mirrors[0][0], o.mirrors[1][0]
    errors = [(0, 4096, o.stateid, [(a.deviceid, 5, NUM["READ"])]),
              (0, MAX64, s, [(b.deviceid, 6, NUM["READ"])])]
    body = ff_return(errors, array([iostats(o.stateid, a), iostats(s, b)]))
    for bad in (body[:-4], body[:8]):
        c.no("BADXDR", putfh(f), layoutreturn(o.stateid, body=bad))
    check(c.ok(putfh(f), layoutreturn(o.stateid, body=body), getattr_("size")).all[1].present,
          False)
    o = lay(c, f, s)
    check(len(o.mirrors), 2)
    body = ff_return([(0, MAX64, o.stateid, [(b.deviceid, 28, NUM["WRITE"])])])
    c.ok(putfh(f), layoutreturn(o.stateid, body=body))
    check([m[0].deviceid for m in lay(c, f, s).mirrors], [a.deviceid])


def layoutstats(sid, server):
    body = layoutupdate(server)
    return op("LAYOUTSTATS", u64(0), u64(MAX64), stateid(sid), u64(7) * 4, server.deviceid,
              u32(FLEX), opaque(body))


def test_reports_come_several_in_a_compound(c, d):
    s, f, o = striped(c, d, "stripes=2,mirrors=2")
    servers = [x for m in o.mirrors for x in m]
    c.ok(putfh(f), *[layoutstats(o.stateid, x) for x in servers], getattr_("size"))
    c.ok(putfh(f), *[layouterror(o.stateid, [(x.deviceid, 5, NUM["READ"])]) for x in servers],
         getattr_("size"))
    c.no("BADXDR", putfh(f), op("LAYOUTERROR", u64(0), u64(MAX64), stateid(o.stateid), u32(1)))


def test_a_report_about_a_layout_that_is_gone_changes_nothing(c, d):
    s, f, o = striped(c, d, "mirrors=2")
    c.ok(putfh(f), layoutreturn(o.stateid))
    for sid in (o.stateid, s, (1, b"\x01" * 12)):
        c.call(putfh(f), layouterror(sid, [(o.mirrors[0][0].deviceid, 5, NUM["WRITE"])]))
    check(len(lay(c, f, s).mirrors), 2)


def test_a_layout_hint_says_how_many_mirrors(c, d):
    """RFC 8435, 12.1. A hint that the server cannot follow leaves the policy's number."""
    for hint, mirrors in ((2, 2), (3, 3), (None, 1), (0, 1), (77, 1), (1 << 31, 1)):
        for how in (UNCHECKED, GUARDED, EXCLUSIVE4_1):
            name = f"h{hint}.{how}"
            f = c.ok(putfh(d), open_(name, BOTH | NO_DELEG, how=how, attrs={"layout_hint": hint},
                                     verf=b"12345678"), getfh()).fh
            check(len(json.loads(c.ok(putfh(f), getxattr("weft.layout")).value)["mirrors"]),
                  mirrors, f"hint {hint}")
    c.no("INVAL", putfh(d), create(DIR, "hinted", layout_hint=2))
    s, f = c.open(d, "there")
    c.no("INVAL", putfh(f), setattr_(layout_hint=2))
    c.no("INVAL", putfh(f), getattr_("layout_hint"))
    c.no("BADXDR", putfh(d),
         open_("bad", BOTH | NO_DELEG, how=UNCHECKED, attrs={"raw": {63: u32(4) + opaque(u32(1))}}))
    c.ok(putfh(d),
         open_("other", BOTH | NO_DELEG, how=UNCHECKED, attrs={"raw": {63: u32(1) + opaque(b"x")}}))


def test_a_failed_write_to_a_mirror_makes_it_stale(c, d):
    s, f, o = striped(c, d, "mirrors=2")
    bad, good = o.mirrors[1][0], o.mirrors[0][0]
    change = c.attrs(f, "change").change
    c.ok(putfh(f), layouterror(o.stateid, [(bad.deviceid, 5, NUM["WRITE"])]))
    check([[x.deviceid for x in m] for m in lay(c, f, s).mirrors], [[good.deviceid]])
    states = [m["state"]
              for m in json.loads(c.ok(putfh(f), getxattr("weft.layout")).value)["mirrors"]]
    check(sorted(states), ["in-sync", "stale"])
    check(c.attrs(f, "change").change > change, True)
    # The last copy stays; the client hears of the error.
    c.ok(putfh(f), layouterror(lay(c, f, s).stateid, [(good.deviceid, 5, NUM["WRITE"])]))
    c.no("IO", putfh(f), layoutget(s))


def test_what_the_last_copy_failed_with_ends_at_the_application(c, d):
    """This holds for STALE and BADHANDLE too: the client has no guard against asking again for
    ever. The server waits for a data server that it cannot reach."""
    for status, want in ((70, "STALE"), (10001, "IO"), (10006, "SERVERFAULT"), (69, "DQUOT"),
                         (28, "NOSPC"),
                         # FBIG, ROFS: WRITE returns them.
                         (27, "LAYOUTUNAVAILABLE"), (30, "LAYOUTUNAVAILABLE"), (6, None)):
        s, f, o = striped(c, d, "mirrors=1", name=f"last{status}")
        c.ok(putfh(f), layouterror(o.stateid, [(o.mirrors[0][0].deviceid, status, NUM["WRITE"])]))
        if want:
            c.no(want, putfh(f), layoutget(s))
        else:
            c.ok(putfh(f), layoutget(s))


def test_a_return_with_twenty_errors_may_have_had_more(c, d):
    """Linux cuts the list off there, and READ errors come first. The server believes one copy and
    makes the others from it."""
    def returned(n, name, what="READ", iomode=IO_RW):
        s, f, _ = striped(c, d, "mirrors=2", name=name)
        o = lay(c, f, s, iomode)
        one = o.mirrors[0][0].deviceid
        c.ok(putfh(f), layoutreturn(o.stateid, body=ff_return(
            [(k << 20, 4096, o.stateid, [(one, 5, NUM[what])]) for k in range(n)])))
        return sorted(m["state"]
                      for m in json.loads(c.ok(putfh(f), getxattr("weft.layout")).value)["mirrors"])
    check(returned(19, "nineteen"), ["in-sync", "in-sync"])
    check(returned(20, "twenty"), ["in-sync", "stale"])
    check(returned(100, "hundred"), ["in-sync", "stale"])
    # The server does not leave the client with copies that it cannot reach.
    for n in range(8):
        s, f, o = striped(c, d, "mirrors=3", name=f"named{n}")
        bad = o.mirrors[n % 3][0].deviceid
        c.ok(putfh(f), layoutreturn(o.stateid, body=ff_return(
            [(k << 20, 4096, o.stateid, [(bad, 5, NUM["READ"])]) for k in range(20)])))
        check([m[0].deviceid != bad for m in lay(c, f, s).mirrors], [True], n)
    s, f, o = striped(c, d, "mirrors=3", name="errors")
    # A LAYOUTERROR carries as many errors as it says. Of those that find no room, the server knows
    # only that there are more.
    a, b = (m[0].deviceid for m in o.mirrors[:2])
    c.ok(putfh(f), layouterror(o.stateid, [(a, 5, NUM["READ"])] * 64))
    o = lay(c, f, s)
    check(len(o.mirrors), 3)
    c.ok(putfh(f), layouterror(o.stateid, [(a, 5, NUM["READ"])] * 64 + [(b, 5, NUM["WRITE"])]))
    check(len(lay(c, f, s).mirrors), 1)


def test_who_does_not_write_reports_no_failed_write(c, d):
    s, f, o = striped(c, d, "mirrors=2")
    c.ok(putfh(f), layoutreturn(o.stateid))
    reader = client()
    r = reader.ok(putfh(f), open_(claim_fh(), READ | NO_DELEG))
    mine = lay(reader, f, r.stateid, IO_READ)
    change = c.attrs(f, "change").change
    errors = [(m[0].deviceid, 5, NUM["WRITE"]) for m in mine.mirrors]
    for e in errors:
        reader.ok(putfh(f), layouterror(mine.stateid, [e]))
    check(c.attrs(f, "change").change, change)
    check(len(lay(c, f, s).mirrors), 2)


def test_who_may_not_read_gets_no_layout_that_reads(c, d):
    s, f, o, ds, fh = one_server(c, d)
    ds.write(fh, 0, b"secret")
    c.ok(putfh(f), setattr_(mode=0o622), close(s))
    w = client()
    got = w.ok(putfh(f), open_(claim_fh(), WRITE | NO_DELEG), cred=USER)
    w.no("OPENMODE", putfh(f), layoutget(got.stateid, IO_READ), cred=USER)
    r = w.ok(putfh(f), layoutget(got.stateid, IO_RW), cred=USER)
    mine = ff_layout(r.layouts[0].body).mirrors[0][0].fhs[0]
    check(ds.write(mine, 6, b"more").status, 0)
    check(ds.read(mine, 0, 6).status != 0, True, "the data server reads to who may only write")


def test_a_failed_read_changes_nothing(c, d):
    s, f, o = striped(c, d, "mirrors=2")
    for x in (o.mirrors[0][0], o.mirrors[1][0]):
        c.ok(putfh(f),
             layouterror(o.stateid, [(x.deviceid, 5, NUM["READ"]), (x.deviceid, 6, 10044)]))
    check(len(lay(c, f, s).mirrors), 2)


def test_data_written_to_the_data_server_is_the_files(c, d):
    s, f, o, ds, fh = one_server(c, d)
    data = os.urandom(100000)
    got = ds.write(fh, 0, data)
    check((got.status, got.count, got.how), (0, len(data), FILE_SYNC))
    for one in (c, client()):
        check(one.attrs(f, "size").size, len(data), "size while the layout is out")
    check(c.ok(putfh(f), read(s, 5, 200000)).data, data[5:])
    got = ds.write(fh, len(data), b"more", UNSTABLE)
    check(ds.commit(fh).verf, got.verf)
    r = c.ok(putfh(f), layoutreturn(o.stateid), getattr_("size"))
    check((r.all[1].present, r.attrs.size), (False, len(data) + 4))
    c.ok(putfh(f), write(s, 0, b"by the MDS"))
    o = lay(c, f, s, IO_READ)
    check(ds.read(o.mirrors[0][0].fhs[0], 0, 12).data, b"by the MDS" + data[10:12])


def test_stripes_lie_where_the_layout_says(c, d):
    s, f, o = striped(c, d, "stripes=2,unit=1M,mirrors=2")
    data = os.urandom(1 << 20)
    for i in range(3):
        c.ok(putfh(f), write(s, i << 20, data[i:] + data[:i], FILE_SYNC))
    for mirror in o.mirrors:
        for i in range(3):
            x = mirror[i % 2]
            got = data_server(c, x).read(x.fhs[0], i << 20, 1 << 20)
            check(got.data == data[i:] + data[:i], True, f"stripe {i}")


def test_holes_of_a_striped_file_are_zeros_at_the_data_servers(c, d):
    s, f, o = striped(c, d, "stripes=2,unit=1M")
    a, b = o.mirrors[0]
    check(data_server(c, b).write(b.fhs[0], (1 << 20) + 10, b"second stripe").status, 0)
    got = data_server(c, a).read(a.fhs[0], 0, 4096)
    check((got.status, got.data, got.eof), (0, bytes(4096), False))
    got = data_server(c, b).read(b.fhs[0], 1 << 20, 4096)
    check((got.data, got.eof), (bytes(10) + b"second stripe", True))
    check(c.ok(putfh(f), setattr_(s, size=(2 << 20) + 5), read(s, 2 << 20, 100)).data, bytes(5))


def test_times_and_change_follow_writes_to_the_data_server(c, d):
    s, f, o, ds, fh = one_server(c, d)
    seen = c.attrs(f, "change", "time_modify")
    for i in range(3):
        check(ds.write(fh, 0, b"x").status, 0)  # the size stays
        now = c.attrs(f, "change", "time_modify")
        check((now.change > seen.change, now.time_modify >= seen.time_modify), (True, True))
        check(c.attrs(f, "change").change, now.change, "change without a write")
        seen = now
    ds.write(fh, 0, b"y")
    c.ok(putfh(f), setattr_(time_modify_set=(1000, 5)))
    check(c.attrs(f, "time_modify").time_modify, (1000, 5), "a time that was set")
    c.ok(putfh(f), layoutcommit(o.stateid, last=0, length=1), layoutreturn(o.stateid))
    check(c.attrs(f, "time_modify").time_modify, (1000, 5), "after LAYOUTCOMMIT and LAYOUTRETURN")


def test_two_clients_write_one_file(c, d):
    s, f, o, ds, fh = one_server(c, d)
    two = client()
    mine = lay(two, f, two.open(d, "f")[0])
    check((mine.mirrors[0][0].deviceid, mine.mirrors[0][0].fhs[0] != fh),
          (o.mirrors[0][0].deviceid, True))
    for i in range(10):
        check((ds.write(fh, 2 * i, b"a").status,
               ds.write(mine.mirrors[0][0].fhs[0], 2 * i + 1, b"b").status), (0, 0))
    check(c.ok(putfh(f), read(s, 0, 100)).data, b"ab" * 10)
    check(ds.read(lay(two, f, mine.stateid, IO_READ).mirrors[0][0].fhs[0], 0, 4).data, b"abab")
    check((c.callbacks, two.callbacks), ([], []))


def test_io_through_the_metadata_server_and_layouts_mix(c, d):
    s, f, o = striped(c, d, "stripes=2,mirrors=2,unit=1M")
    two = client()
    s2, _ = two.open(d, "f")
    # The client has to return the layout once: two clients write the file, and all need the
    # same first copy.
    returns_when_recalled(c, f)
    for i in range(4):
        two.until(lambda got: err(got.status) != "DELAY", putfh(f),
                  write(s2, (i << 20) - 3 if i else 0, b"mds%d--" % i, FILE_SYNC))
    c.wait_callback("LAYOUTRECALL")
    o = settled(c, f, s)
    for m in o.mirrors:
        x = m[1]
        check(data_server(c, x).write(x.fhs[0], (1 << 20) + 3, b"direct").status, 0)
    check(two.ok(putfh(f), read(s2, (1 << 20) - 3, 12)).data, b"mds1--direct")
    check(two.attrs(f, "size").size, (3 << 20) + 3)
    # Until the server has compared the copies, readers have the first one only.
    c.ok(putfh(f), layoutreturn(o.stateid))
    both = []

    def compared():
        both[:] = settled(c, f, s, IO_READ).mirrors
        return len(both) == 2
    eventually(compared, 30, "a layout for reading with both copies")
    for m in both:
        check(data_server(c, m[0]).read(m[0].fhs[0], 2 << 20, 3).data, b"2--")


def test_a_read_layout_cannot_write(c, d):
    s, f, o, ds, fh = one_server(c, d, iomode=IO_READ)
    check(ds.write(fh, 0, b"x").status, 13)
    check(ds.read(fh, 0, 10).status, 0)


def test_old_kernels_get_no_stripes(c, d):
    s, f, o = striped(c, d, "stripes=4")
    for release in ("6.1.0-18-amd64", "6.12.9", "6.17.13"):
        old = client(release=release)
        so, _ = old.open(d, "f")
        got = old.call(putfh(f), layoutget(so))
        check(err(got.status), "LAYOUTUNAVAILABLE", release)
        data = release.ljust(20).encode()
        old.ok(putfh(f), write(so, 3 << 20, data))
        check(c.ok(putfh(f), read(s, 3 << 20, 20)).data, data)
    for release in ("6.18.0", "7.2.13", "10.0.1"):
        new = client(release=release)
        check(len(lay(new, f, new.open(d, "f")[0]).mirrors[0]), 4)
    old = client(release="6.1.0")
    so, g = old.open(d, "new")
    got = old.call(putfh(g), layoutget(so))
    if not got.status:
        check(len(ff_layout(got.results[-1].layouts[0].body).mirrors[0]), 1)
    else:
        check(err(got.status), "LAYOUTUNAVAILABLE")


def test_stripes_are_for_clients_that_are_known_to_stripe(c, d):
    """A client that says nothing of itself, as FreeBSD does, would write the whole file at the
    first server, so its data goes through the metadata server."""
    data = random.Random(3).randbytes(2 << 20)
    for i, impl in enumerate((None, ("freebsd.org", "FreeBSD 15"), ("kernel.org", "Linux"),
                              ("", ""), ("weft", "libweft2"), ("weft", "x" * 1000))):
        other = client(impl=impl)
        s, f = other.open(d, f"f{i}")
        c.ok(putfh(d), setxattr("weft.policy", "stripes=2,unit=1M"))
        s, f = other.open(d, f"striped{i}")
        other.no("LAYOUTUNAVAILABLE", putfh(f), layoutget(s))
        other.ok(putfh(f), write(s, 0, data[:1 << 20], UNSTABLE), commit())
        other.ok(putfh(f), write(s, 1 << 20, data[1 << 20:], UNSTABLE), commit(), close(s))
        mine, f = c.open(d, f"striped{i}")
        o = lay(c, f, mine, IO_READ)
        got = b"".join(data_server(c, x).read(x.fhs[0], k << 20, 1 << 20).data for k,
                       x in enumerate(o.mirrors[0]))
        check(got == data, True, f"{impl}: what a client that stripes reads")
        c.ok(putfh(f), layoutreturn(o.stateid), close(mine))
        c.ok(putfh(d), setxattr("weft.policy", "stripes=1"))
        s, f = other.open(d, f"plain{i}")
        check(len(lay(other, f, s).mirrors[0]), 1, "layouts without stripes are everybody's")
    c.ok(putfh(d), setxattr("weft.policy", "stripes=2,unit=1M"))
    for impl in (("weft", "libweft"), ("kernel.org", "Linux 6.18.0 #1")):
        other = client(impl=impl)
        check(len(lay(other, other.open(d, "striped0")[1],
                      other.open(d, "striped0")[0]).mirrors[0]), 2, impl)


def test_a_striped_handle_is_for_its_stripe_alone(c, d):
    """A client that is known to stripe may still not do it. A data server refuses it what belongs
    to another server, and others lose nothing of it."""
    for shape, count in (("stripes=4,unit=1M", 4), ("stripes=2,mirrors=2,unit=2M", 2)):
        s, f, o = striped(c, d, shape, shape)
        check({x.fhs[0][0] >> 4 for m in o.mirrors for x in m}, {3}, "a capability of version 2")
        for m in o.mirrors:
            for k, x in enumerate(m):
                check((1 << x.fhs[0][4], x.fhs[0][5], x.fhs[0][2]), (o.unit, count, k),
                      "unit, stripes, stripe")
                ds = data_server(c, x)
                for unit in range(2 * count):
                    want = 0 if unit % count == k else 22
                    check(ds.write(x.fhs[0], unit * o.unit, b"w" * 4096).status, want,
                          f"WRITE in unit {unit}")
                    check(ds.write(x.fhs[0], (unit + 1) * o.unit - 1, b"w").status, want)
                    check(ds.read(x.fhs[0], unit * o.unit, 4096).status, want,
                          f"READ in unit {unit}")
                check(ds.write(x.fhs[0], (k + 1) * o.unit - 1, b"ww").status, 22,
                      "across a unit's end")
        c.ok(putfh(f), layoutreturn(o.stateid), close(s))
        s, f = c.open(d, shape, BOTH, how=None)
        size = 2 * count * o.unit
        check(c.attrs(f, "size").size, size)
        check(c.ok(putfh(f), read(s, size - 3, 10)).data, b"\0\0w")
    s, f, o, ds, fh = (one_server(c, d, "plain")
                       if c.ok(putfh(d), setxattr("weft.policy", "stripes=1")) else None)
    check((fh[0] >> 4, fh[4], fh[5]), (3, 0, 1))
    check(ds.write(fh, 5 << 20, b"anywhere").status, 0)


def restart_an_administrator_names_clients_that_stripe(w):
    w.dev("down", w.dir)
    w.dev("up", w.dir, "--set", "mds.striping_clients=FreeBSD 16,  Some NFS ,")
    c = client()
    d = c.mkdir(c.root(), "d")
    c.ok(putfh(d), setxattr("weft.policy", "stripes=2,unit=1M"))
    for name, want in (("FreeBSD 16.1", "OK"), ("Some NFS", "OK"), ("Some NFSv5", "OK"),
                       ("FreeBSD 15", "LAYOUTUNAVAILABLE"), ("some NFS", "LAYOUTUNAVAILABLE")):
        other = client(impl=("x", name))
        s, f = other.open(d, "f")
        check(err(other.call(putfh(f), layoutget(s)).status), want, name)


def test_layoutcommit_tells_a_new_size(c, d):
    s, f, o, ds, fh = one_server(c, d)
    ds.write(fh, 0, bytes(5000))
    r = c.ok(putfh(f), layoutcommit(o.stateid, last=4999, length=5000), getattr_("size"))
    check((r.all[1].newsize in (None, 5000), r.attrs.size), (True, 5000))
    r = c.ok(putfh(f), layoutcommit(o.stateid, last=99, length=100), getattr_("size"))
    check((r.all[1].newsize in (None, 5000), r.attrs.size), (True, 5000), "it never shrinks")
    check(err(c.ok(test_stateid(o.stateid)).statuses[0]), "OK")


def test_layoutcommit_errors(c, d):
    s, f, o, ds, fh = one_server(c, d)
    for bad in ((1, b"\x01" * 12), ANON, s):
        c.no(("BAD_STATEID", "BADLAYOUT"), putfh(f), layoutcommit(bad))
    c.no("NO_GRACE", putfh(f), layoutcommit(o.stateid, reclaim=True))
    c.no(("INVAL", "BADLAYOUT"), putfh(f), layoutcommit(o.stateid, last=5000, length=100))
    c.no("UNKNOWN_LAYOUTTYPE", putfh(f), layoutcommit(o.stateid, kind=1))
    s2, g = c.open(d, "g")
    r = lay(c, g, s2, IO_READ)
    c.no("BADIOMODE", putfh(g), layoutcommit(r.stateid, last=9, length=10))


def test_who_creates_a_file_is_told_its_size_without_a_question_to_data_servers(c, d):
    def asked():
        return sum(harness.THE.metric("weft_rpc_calls_total", name)
                   for name in harness.THE.where if name.startswith("ds"))

    def calm():  # the server deletes what other tests have left, and asks about it
        was = asked()
        time.sleep(0.4)
        return asked() == was

    eventually(calm, 20, "silence")
    before = asked()
    r = c.ok(putfh(d), open_("f", BOTH | NO_DELEG, how=GUARDED, attrs={"mode": 0o600}), getfh(),
             access(0x3f), getattr_("size"), layoutget(CURRENT, minlength=0))
    check((asked() - before, r.all[4].attrs.size), (0, 0))
    c.ok(putfh(r.all[2].fh), getattr_("size"))
    check(asked() - before, 1, "with a layout out")


def test_a_layout_outlives_close_until_returned(c, d):
    s, f, o, ds, fh = one_server(c, d)
    check(o.return_on_close, True)
    c.ok(putfh(f), close(s))
    check(ds.write(fh, 0, b"still").status, 0)
    check(err(c.ok(test_stateid(o.stateid)).statuses[0]), "OK")
    c.ok(putfh(f), layoutreturn(o.stateid))


def test_a_voluntary_return_does_not_fence_others(c, d):
    s, f, o, ds, fh = one_server(c, d)
    two = client()
    mine = lay(two, f, two.open(d, "f")[0])
    c.ok(putfh(f), layoutreturn(o.stateid))
    check(ds.write(mine.mirrors[0][0].fhs[0], 0, b"x").status, 0)
    check(two.callbacks, [])


def test_handles_of_the_data_server_are_guarded(c, d):
    s, f, o, ds, fh = one_server(c, d)
    for i in range(len(fh)):
        bad = fh[:i] + bytes([fh[i] ^ 1]) + fh[i + 1:]
        check(ds.write(bad, 0, b"x").status in (10001, 13, 70), True, f"byte {i}")
    check(ds.read(fh[:-1], 0, 1).status, 10001)
    check(ds.write(fh, 0, b"x").status, 0)


if __name__ == "__main__":
    harness.main(globals(), parts=2, settings=CALM)
