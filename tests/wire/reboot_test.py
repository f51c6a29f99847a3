#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Leases that ran out and restarts of the daemons, over the wire (RFC 8881, 8.3 and
8.4). Prints TAP.

A test gets a client and the filehandle of a directory of its own. A test whose name begins with
restart_ gets a cluster of its own.
"""
import json
import os
import sys
import threading
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../wirelib"))
import harness  # noqa: E402
from harness import *  # noqa: E402,F403
from delegs import living  # noqa: E402
from load import Watch, mds_pid, pids  # noqa: E402
from nfs41 import err, op  # noqa: E402
from steps import *  # noqa: E402,F403


# ---- leases that ran out


def open_denied(c, d):
    """Opens what a silent client denies others. DELAY: it is being evicted. SHARE_DENIED: its lease
    has not run out yet; it is longer where the server itself stood still for more than a second."""
    got = c.until(lambda got: err(got.status) not in ("DELAY", "SHARE_DENIED"), putfh(d),
                  open_("denied", READ | NO_DELEG), tries=1200)
    check(err(got.status), "OK", "OPEN")


@brief
def test_expired_clients_yield(c, d):
    """One pause for several tests: what a silent client holds blocks no other client."""
    sub = [c.mkdir(d, n) for n in "abc"]
    silent = client()
    s, f, o, ds, fh = one_server(silent, sub[0])
    silent.open(sub[1], "denied", deny=BOTH)
    ls, lf = silent.open(sub[0], "locked")
    silent.ok(putfh(lf), lock(ls, WRITE_LT, 0, 10, b"dead"))
    s2, other, o2, ds2, fh2 = one_server(silent, sub[1], "other")
    courteous = client()
    kept, g = courteous.open(sub[2], "kept")
    with living([c]):
        time.sleep(2.6)
    check(ds2.write(fh2, 0, b"not yet").status, 0)
    open_denied(c, sub[1])
    # The OPEN did not touch this file, so it does not wait for the file's fence.
    eventually(lambda: ds2.write(fh2, 0, b"evicted").status == 13, 60, "the fence of its layouts")
    c.until(lambda got: err(got.status) != "DELAY", putfh(f), setattr_(ANON, size=7))
    check([cb.name for cb in silent.callbacks], [], "a client that is gone is not asked")
    check(c.attrs(f, "size").size, 7)
    check(ds.write(fh, 0, b"late").status, 13)
    c.until(lambda got: err(got.status) != "DELAY", putfh(lf), lockt(WRITE_LT, 0, 1))
    got = silent.conn.compound(sequence(silent.session.sessionid, silent.slots[0] + 1, 0, 0))
    check(err(got.status) == "BADSESSION" or got.results[0].flags & 0x78 != 0, True,
          "the silent client is not told")
    courteous.ok(putfh(g), write(kept, 0, b"nobody was in the way"))


@brief
def test_what_a_dead_client_wrote_is_read(c, d):
    """No LAYOUTCOMMIT and no LAYOUTRETURN came: the size is the data servers'."""
    dead, data = client(), bytes(range(256)) * 400
    s, f, o, ds, fh = one_server(dead, d)
    s2, g, o2 = striped(dead, d, "stripes=2,mirrors=2", "striped")
    check(ds.write(fh, 0, data).status, 0)
    for m in o2.mirrors:
        check(data_server(dead, m[0]).write(m[0].fhs[0], 0, data).status, 0)
        check(data_server(dead, m[1]).write(m[1].fhs[0], 1 << 20, data).status, 0)
    dead.open(d, "denied", deny=BOTH)
    dead.drop()
    two = client()  # it has seen nothing of it

    def is_read():
        for fh_, at in ((f, 0), (g, 1 << 20)):
            got = two.until(lambda got: err(got.status) != "DELAY", putfh(fh_), getattr_("size"),
                            read(ANON, at, 1 << 20))
            check(got.results[2].attrs.size, at + len(data), "the size")
            check((got.results[3].eof, got.results[3].data == data), (True, True),
                  "what was written")
    is_read()  # the writer may still be alive
    time.sleep(2.6)
    is_read()  # the writer's lease is over
    open_denied(two, d)
    check(ds.write(fh, 0, b"late").status, 13)
    is_read()  # the writer is evicted


# ---- restart


def restart_ends_ids_of_before(w):
    c = client()
    d = c.mkdir(c.root(), "d")
    s, f = c.open(d, "f")
    session, clientid, seq = c.session.sessionid, c.clientid, c.cs_seq
    w.restart()
    c.drop()
    c.conns = [c.connection()]
    first(c, "BADSESSION", sequence(session, 3))
    first(c, "BADSESSION", bind_conn(session, 1))
    first(c, "STALE_CLIENTID", create_session(clientid, seq))
    first(c, "STALE_CLIENTID", destroy_clientid(clientid))
    scope, major = c.eid.scope, c.eid.major_id
    again(c)
    check((c.clientid != clientid, c.session.sessionid != session), (True, True))
    check((c.eid.scope, c.eid.major_id), (scope, major))
    # SEQUENCE does not set SEQ4_STATUS_RESTART_RECLAIM_NEEDED (section 18.46.3). It would tell a
    # client that has just made its session what making the session told it already.
    first(c, "OK", sequence(c.session.sessionid, 1, 5, 5))
    check(err(c.ok(test_stateid(s)).statuses[0]), "BAD_STATEID")
    new = reclaim(c, f)
    check(new[1] != s[1], True)
    c.no("GRACE", putfh(f), lock(new, WRITE_LT, 0, 5, b"me"))
    k = c.ok(putfh(f), lock(new, WRITE_LT, 0, 5, b"me", reclaim=True)).stateid
    c.no("RECLAIM_CONFLICT", putfh(f), lock(new, WRITE_LT, 4, 5, b"you", reclaim=True))
    c.no("BAD_STATEID", putfh(f), read(s, 0, 1))
    c.ok(reclaim_complete())
    check(c.ok(putrootfh()) and c.status_flags & 8, 0)
    c.until(lambda got: err(got.status) != "GRACE", putfh(f), lockt(READ_LT, 0, 1))
    c.no("DENIED", putfh(f), lockt(READ_LT, 4, 1, b"you"))
    c.no("NO_GRACE", putfh(f), lock(k, WRITE_LT, 20, 5, reclaim=True))


def restart_keeps_what_was_answered(w):
    c = client()
    d = c.mkdir(c.root(), "d")
    s, f = c.open(d, "f")
    for i in range(50):
        c.ok(putfh(d), create(FIFO, f"n{i}", mode=0o640))
    c.ok(putfh(f), write(s, 0, b"data", FILE_SYNC), setxattr("a", b"x"), putfh(d),
         setxattr("weft.policy", "mirrors=2"))
    c.ok(putfh(d), create(LNK, "l", "target"), putfh(d), remove("n7"), putfh(d), savefh(),
         rename("n8", "m8"))
    kw = dict(how=EXCLUSIVE4_1, verf=b"verifier", attrs={"mode": 0o640})
    x = opened(c, d, "x", **kw)
    stable = all_readable(c, d) - {ATTR[n] for n in """space_avail space_free files_avail files_free
        files_total space_used time_access""".split()}
    before = {e.name: (e.cookie, vars(e.attrs)) for e in c.readdir_all(d, stable)}
    verf = c.ok(putfh(f), write(s, 9, b"", UNSTABLE)).verf
    w.restart()
    again(c, True)
    after = {e.name: (e.cookie, vars(e.attrs)) for e in c.readdir_all(d, stable)}
    for name in before:
        check(after.get(name), before[name], name.decode())
    check(set(after), set(before))
    check(opened(c, d, "x", **kw).fh, x.fh)
    s, g = c.open(d, "f", how=None)
    check((g, c.ok(putfh(f), read(s, 0, 9)).data, c.ok(putfh(f), getxattr("a")).value),
          (f, b"data", b"x"))
    check(c.ok(putfh(d), getxattr("weft.policy")).value, b"stripes=1,unit=1M,mirrors=2")
    check(c.ok(putfh(f), commit()).verf != verf, True, "the write verifier stayed")


def restart_gives_grace_to_those_on_record(w):
    one, two, stranger = client(), client(), None
    d = one.mkdir(one.root(), "d")
    s1, f = one.open(d, "f", deny=WRITE)
    s2, g = two.open(d, "g")
    one.mkdir(d, "sub")
    w.restart()
    again(one)
    stranger = client(reclaim=False)
    for c in (one, stranger):
        for ops in ([putfh(d), open_("f")],
                    [putfh(d), open_("new", BOTH | NO_DELEG, how=GUARDED, attrs={"mode": 0o600})],
                    [putfh(f), open_(claim_fh())], [putfh(d), remove("g")],
                    [putfh(d), savefh(), rename("g", "h")], [putfh(g), setattr_(size=0)],
                    [putfh(g), read(ANON, 0, 1)], [putfh(g), write(ANON, 0, b"x")]):
            c.no("GRACE", *ops)
        c.ok(putfh(d), lookup("f"), getattr_("type", "size"), access(0x3f), putfh(d), readdir())
    stranger.no(("RECLAIM_BAD", "NO_GRACE"), putfh(f), open_(claim_previous(), BOTH | NO_DELEG))
    new = reclaim(one, f, deny=WRITE)
    one.no("GRACE", putfh(f), layoutget(new))
    one.ok(putfh(f), write(new, 0, b"in grace"), read(new, 0, 8))
    one.ok(reclaim_complete())
    one.no("NO_GRACE", putfh(f), open_(claim_previous(), BOTH | NO_DELEG))
    one.no("GRACE", putfh(d), open_("g"))
    again(two)
    two.no("RECLAIM_CONFLICT", putfh(f), open_(claim_previous(), BOTH | NO_DELEG))
    new2 = reclaim(two, g)
    two.ok(reclaim_complete())
    # All recorded clients are done: grace ends at once.
    stranger.ok(reclaim_complete())
    watch = Watch(mds_pid(w))
    stranger.until(lambda got: err(got.status) != "GRACE", putfh(d), open_("g"))
    check(watch.took() < 1, True, "grace went on")
    stranger.ok(putfh(d), open_("g"), putfh(d), remove("sub"))
    stranger.no("SHARE_DENIED", putfh(d), open_("f", WRITE | NO_DELEG))
    two.no("NO_GRACE", putfh(g), open_(claim_previous(), BOTH | NO_DELEG, 0, b"another"))
    lay(two, g, new2)


def restart_one_file_system_complete_ends_nothing(w):
    """RECLAIM_COMPLETE with rca_one_fs (section 18.51.3): neither grace nor what the client may
    reclaim."""
    one, two = client(), client()
    d = one.mkdir(one.root(), "d")
    _, f = one.open(d, "f")
    _, g = one.open(d, "g")
    _, h = two.open(d, "h")
    w.dev("down", w.dir)
    w.dev("up", w.dir, "--set", "mds.grace=20s")
    for c in (one, two):
        again(c)
        c.ok(putfh(h), reclaim_complete(True))
    one.no("GRACE", putfh(d), open_("f"))
    reclaim(one, f)
    two.ok(reclaim_complete())
    for c in (one, two):
        c.ok(putfh(f), reclaim_complete(True))
        c.no("GRACE", putfh(d), open_("f"))
    reclaim(one, g)
    one.ok(reclaim_complete())
    one.no("COMPLETE_ALREADY", reclaim_complete())
    two.until(lambda got: err(got.status) != "GRACE", putfh(d), open_("f", READ | NO_DELEG))
    one.no("NO_GRACE", putfh(g), open_(claim_previous(), BOTH | NO_DELEG, 0, b"another"))


def restart_an_operation_waits_for_the_end_of_grace(w):
    """Who has reclaimed all is not refused at once, and goes on when the last client has."""
    last, *rest = [client() for _ in range(5)]
    d = last.mkdir(last.root(), "d")
    for n, c in enumerate(rest):
        _, f = c.open(d, f"f{n}")
    w.dev("down", w.dir)
    w.dev("up", w.dir, "--set", "mds.grace=600s")
    for c in (last, *rest):
        again(c)
    s = reclaim(rest[3], f)  # the last one's file

    def refused(c):
        began = time.monotonic()
        c.no("GRACE", putfh(d), open_("new"))
        return time.monotonic() - began
    # It is the client itself that has to reclaim.
    check(min(refused(rest[0]) for _ in range(3)) < 1, True, "the answer comes at once")
    for c in rest:
        c.ok(reclaim_complete())
    check(refused(rest[0]) > 1.9, True, "the answer is held")
    got, wait = {}, (
        (putfh(d), open_("new", BOTH | NO_DELEG, how=UNCHECKED, attrs={}), getattr_("size")),
        (putfh(d), remove("f1")),
        (putfh(d), savefh(), rename("f2", "f9")),
        (putfh(f), lock(s, WRITE_LT, 0, 5, b"me")))
    for n, (c, ops) in enumerate(zip(rest, wait)):
        threading.Thread(target=lambda c=c, n=n, ops=ops: got.update({n: c.until(
            lambda got: err(got.status) != "GRACE", *ops)})).start()
    last.ok(reclaim_complete())
    eventually(lambda: len(got) == len(wait), 60, "each goes on")
    check([err(got[n].status) for n in range(4)], ["OK"] * 4, "what has waited")
    check(sorted(e.name for e in last.readdir_all(d)), [b"f0", b"f3", b"f9", b"new"])


def restart_without_clients_needs_no_grace(w):
    w.restart()
    c = client()
    c.open(c.mkdir(c.root(), "d"), "f")


def restart_when_no_client_lives_any_more(w):
    """The data servers hear of it, and bar all numbers that clients had."""
    c = client()
    c.ok(destroy_session(c.session.sessionid))
    first(c, "OK", destroy_clientid(c.clientid))
    w.restart()
    eventually(lambda: [w.metric("weft_ds_bars", f"ds{k}") for k in (1, 2, 3, 4)] == [1] * 4,
               what="one run of numbers")
    client().root()


@brief
def restart_ends_grace_when_a_client_stays_away(w):
    gone, c = client(), client()
    d = c.mkdir(c.root(), "d")
    s, f = gone.open(d, "f", deny=BOTH)
    o = lay(gone, f, s)
    x = o.mirrors[0][0]
    ds = data_server(gone, x)
    check(ds.write(x.fhs[0], 0, bytes(50000)).status, 0)
    gone.drop()
    w.restart()
    began, watch = time.monotonic(), Watch(mds_pid(w))
    again(c, True)
    c.until(lambda got: err(got.status) not in ("GRACE", "DELAY"), putfh(d), open_("f"))
    at_most, took = watch.took(), time.monotonic() - began
    check(1 < took and at_most < 3.5, True, f"grace of 2 s took {took:.1f} s")
    watch = Watch(*pids(w))
    eventually(lambda: ds.write(x.fhs[0], 0, b"late").status == 13,
               what="the fence of the client that stayed away")
    check(watch.took() < 2, True, f"the fence took {watch.took():.1f} s")
    # The client reported it to no server, and neither boot knew it: the size is what the
    # client wrote.
    got = c.until(lambda got: err(got.status) != "DELAY", putfh(f), getattr_("size"),
                  read(ANON, 49990, 100)).results
    check((got[2].attrs.size, got[3].data), (50000, bytes(10)))
    gone.conns = [gone.connection()]
    gone.exchange_id()
    gone.create_session()
    gone.no(("NO_GRACE", "RECLAIM_BAD"), putfh(f), open_(claim_previous(), BOTH | NO_DELEG))


def restart_finds_sizes_and_fences_old_layouts(w):
    c = client()
    d = c.mkdir(c.root(), "d")
    s, f, o, ds, fh = one_server(c, d)
    s2, g, o2 = striped(c, d, "stripes=2,mirrors=2", "striped")
    change = c.attrs(f, "change").change
    check(ds.write(fh, 0, bytes(100000)).status, 0)
    for m in o2.mirrors:
        data_server(c, m[1]).write(m[1].fhs[0], 1 << 20, b"in the second stripe")
    w.restart()
    again(c)
    new = reclaim(c, f)
    c.ok(putfh(f), layoutreturn(ANON))  # as the Linux client does
    c.ok(reclaim_complete())
    got = c.until(lambda got: err(got.status) != "DELAY", putfh(f),
                  getattr_("size", "change")).results[-1].attrs
    check((got.size, got.change > change), (100000, True))
    check(c.attrs(g, "size").size, (1 << 20) + 20)
    check(c.ok(putfh(g), read(ANON, (1 << 20) - 1, 100)).data, b"\0in the second stripe")
    two = client()
    c.until(lambda got: err(got.status) != "DELAY", putfh(f), read(new, 0, 1))
    two.until(lambda got: err(got.status) != "DELAY", putfh(f), setattr_(ANON, size=5))
    check(ds.write(fh, 0, b"old").status, 13)
    check((two.attrs(f, "size").size, ds.read(fh, 0, 1).status), (5, 13))
    o = lay(c, f, new)
    check(ds.write(o.mirrors[0][0].fhs[0], 0, b"new").status, 0)


def restart_keeps_a_removed_file_that_is_open(w):
    c = client()
    d = c.mkdir(c.root(), "d")
    s, f = c.open(d, "f")
    c.open(d, "g")
    c.ok(putfh(f), write(s, 0, b"orphan", FILE_SYNC), putfh(d), remove("f"))
    w.restart()
    again(c)
    new = reclaim(c, f)
    c.ok(reclaim_complete())
    check(c.ok(putfh(f), read(new, 0, 10)).data, b"orphan")
    c.ok(putfh(f), close(new))
    check(err(c.call(putfh(f), getattr_("type")).status), "STALE")


def restart_ends_grace_for_a_new_incarnation(w):
    c = client()
    d = c.mkdir(c.root(), "d")
    s, f = c.open(d, "f", deny=BOTH)
    w.restart()
    c.verifier = b"reboot.."
    again(c)
    c.ok(reclaim_complete())
    c.until(lambda got: err(got.status) not in ("GRACE", "DELAY"), putfh(d), open_("f"), tries=100)


def restart_without_return_on_close(w):
    w.dev("down", w.dir)
    w.dev("up", w.dir, "--set", "mds.return_on_close=false", "--set", "mds.size_from_ds=always")
    c = client()
    d = c.mkdir(c.root(), "d")
    s, f, o, ds, fh = one_server(c, d)
    check(o.return_on_close, False)
    ds.write(fh, 0, b"12345")
    r = c.ok(putfh(f), layoutreturn(o.stateid), close(s), getattr_("size"))
    check((r.all[1].present, r.attrs.size), (False, 5))


@brief
def restart_of_a_data_server_delays_what_needs_it(w):
    """LAYOUTTRYLATER while an order to the only copy waits; no room for a policy wider than the
    living servers."""
    c = client()
    d = c.mkdir(c.root(), "d")
    wide = c.mkdir(d, "wide")
    c.ok(putfh(wide), setxattr("weft.policy", "mirrors=4"))
    s, f, o, ds, fh = one_server(c, d)
    ds.write(fh, 0, b"0123456789")
    c.ok(putfh(f), layoutreturn(o.stateid))
    name = next(x["ds"]
                for m in json.loads(c.ok(putfh(f), getxattr("weft.layout")).value)["mirrors"]
                for x in m["objects"])
    w.dev("kill", w.dir, name, "-9")
    started = c.begin(putfh(f), setattr_(s, size=5))
    make = open_("new", BOTH | NO_DELEG, how=GUARDED, attrs={"mode": 0o600})
    eventually(lambda: w.metric("weft_mds_ds_alive") == 3, 6, "the death of a server")
    began, watch = time.monotonic(), Watch(mds_pid(w))
    c.no("DELAY", putfh(wide), make)
    c.until(lambda got: err(got.status) != "DELAY", putfh(wide), make, tries=120)
    c.no("NOSPC", putfh(wide), make)
    at_most, took = watch.took(), time.monotonic() - began
    check(1.5 < took and at_most < 4, True, f"DELAY for {took:.1f} s, the lease is 2 s")
    first_answer = c.finish(started)
    check(err(first_answer.status) in ("OK", "DELAY"), True)
    got = c.no("LAYOUTTRYLATER", putfh(f), layoutget(s))
    check(got.will, False)
    c.no("DELAY", putfh(f), read(s, 0, 10))
    w.dev("start", w.dir, name)
    c.until(lambda got: err(got.status) not in ("LAYOUTTRYLATER", "DELAY", "RECALLCONFLICT"),
            putfh(f), layoutget(s))
    c.ok(putfh(f), setattr_(s, size=5))
    check(c.ok(putfh(f), read(s, 0, 10)).data, b"01234")
    c.ok(putfh(wide), make)


def restart_of_a_mirrors_server_makes_its_copy_stale(w):
    c = client()
    d = c.mkdir(c.root(), "d")
    s, f, o = striped(c, d, "mirrors=2")
    c.ok(putfh(f), write(s, 0, b"both", FILE_SYNC), layoutreturn(o.stateid))
    name = json.loads(c.ok(putfh(f),
                           getxattr("weft.layout")).value)["mirrors"][0]["objects"][0]["ds"]
    lay(c, f, s)
    w.dev("kill", w.dir, name, "-9")
    watch = Watch(*pids(w))
    check(c.attrs(f, "size").size, 4)
    check(watch.took() < 5, True, "GETATTR waited for a dead server")
    check(c.ok(putfh(f), read(s, 0, 10)).data, b"both")
    c.until(lambda got: err(got.status) != "DELAY", putfh(f), write(s, 0, b"one!", FILE_SYNC))
    check(c.ok(putfh(f), read(s, 0, 10)).data, b"one!")
    w.dev("start", w.dir, name)
    eventually(lambda: w.metric("weft_mds_ds_alive") == 4, 5, "the return of the server")
    got = json.loads(c.ok(putfh(f), getxattr("weft.layout")).value)["mirrors"]
    check({m["objects"][0]["ds"]: m["state"] for m in got}[name], "stale")
    check(len(lay(c, f, s).mirrors), 1)
    for _ in range(4):
        check(c.ok(putfh(f), read(s, 0, 10)).data, b"one!")


def restart_of_a_data_server_is_survived(w):
    c = client()
    d = c.mkdir(c.root(), "d")
    s, f, o, ds, fh = one_server(c, d)
    verf = ds.write(fh, 0, b"data", FILE_SYNC).verf
    name = next(x["ds"]
                for m in json.loads(c.ok(putfh(f), getxattr("weft.layout")).value)["mirrors"]
                for x in m["objects"])
    w.dev("kill", w.dir, name, "-9")
    check(ds.conn.is_closed(), True)
    w.dev("start", w.dir, name)
    ds = data_server(c, o.mirrors[0][0])
    eventually(lambda: ds.read(fh, 0, 10).status == 0, 5, "service by the data server")
    check(ds.read(fh, 0, 10).data, b"data")
    check(ds.write(fh, 4, b"!", UNSTABLE).verf != verf, True, "the write verifier stayed")
    check(c.ok(putfh(f), read(s, 0, 10)).data, b"data!")


if __name__ == "__main__":
    # No grace ends by itself while a client still reclaims, however slow the machine.
    harness.main(globals(), parts=2, settings=CALM, restarted=[*CALM, "mds.grace=300s"])
