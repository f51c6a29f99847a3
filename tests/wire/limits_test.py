#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""What one client may take (docs/security.md, "Limits"). Prints TAP.

Other tests check that the server never takes an id of another boot or cluster for one of its own.
"""
import contextlib
import json
import os
import socket
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../wirelib"))
import harness  # noqa: E402
import steps  # noqa: E402
import tap  # noqa: E402
from harness import ADDR, Cluster, check, eventually  # noqa: E402
from steps import lay  # noqa: E402
from nfs41 import *  # noqa: E402,F403
from nfs41 import err  # noqa: E402

SETTINGS = ["mds.connections=20", "mds.connections_of_address=8", "mds.clients=12",
            "mds.clients_of_address=5", "mds.opens_of_client=4", "mds.locks_of_client=3",
            "mds.layouts_of_client=2",
            "mds.opens_of_address=6", "mds.locks_of_address=5", "mds.layouts_of_address=3",
            "mds.opens=8", "mds.locks=7", "mds.layouts=5", "mds.courtesy=60s", "mds.grace=10s"]
CLUSTER = None


def client(addr="127.0.0.2", **how):
    return harness.client(source=(addr, 0), **how)


def refused(what):
    return CLUSTER.metric(f'weft_mds_refused_total\\{{what="{what}"\\}}')


def weft(*args):
    done = subprocess.run([os.path.join(harness.BUILD, "weft"),
                           "--admin", f"unix:{CLUSTER.dir}/run/mds.sock", "--json", *args],
                          capture_output=True, text=True, timeout=60, check=True)
    return json.loads(done.stdout)


def vacant():
    """No client of an earlier test holds anything."""
    for one in weft("client", "list")["clients"]:
        try:
            weft("client", "evict", str(one["clientid"]))
        except subprocess.CalledProcessError:  # its lease was over meanwhile
            check(one["clientid"] in [c["clientid"] for c in weft("client", "list")["clients"]],
                  False)


def connect(addr):
    s = socket.create_connection(ADDR, 60, (addr, 0))
    s.settimeout(60)
    return s


def served(s):
    """Does the server answer a NULL on it, or close it?"""
    record = rpc_call(1, 0, b"", NOBODY)
    try:
        s.sendall(u32(0x80000000 | len(record)) + record)
        return len(s.recv(100)) > 0
    except OSError:
        return False


def test_connections_of_one_address(make):
    before = refused("connections")
    mine = [connect("127.0.0.7") for _ in range(8)]
    check([served(s) for s in mine], [True] * 8)
    more = [connect("127.0.0.7") for _ in range(3)]
    check([served(s) for s in more], [False] * 3)
    other = connect("127.0.0.8")
    check(served(other), True, "another address is not concerned")
    check(refused("connections") - before, 3)
    mine.pop().close()

    def again():
        s = connect("127.0.0.7")
        ok = served(s)
        s.close()
        return ok
    eventually(again, what="a place that was left")
    for s in mine + more + [other]:
        s.close()


def test_connections_in_all(make):
    mine = []
    for n in range(30):
        mine.append(connect(f"127.0.1.{n}"))
    got = [served(s) for s in mine]
    check(True in got and False in got, True, repr(got))
    check(got, sorted(got, reverse=True), "the first are served")
    for s in mine:
        s.close()
    eventually(lambda: served(connect("127.0.0.2")), what="a place that was left")


def test_opens_of_one_client(make):
    c, other = make(), make("127.0.0.3")
    d = c.mkdir(c.root(), "opens")
    held = [c.open(d, f"f{n}") for n in range(4)]
    c.no("DELAY", putfh(d), open_("fifth", BOTH | NO_DELEG, how=GUARDED, attrs={}))
    c.no("NOENT", putfh(d), lookup("fifth"))
    sid, f = other.open(d, "fifth")
    other.ok(putfh(f), close(sid))
    c.ok(putfh(held[0][1]), close(held[0][0]))
    sid, f = c.open(d, "fifth")
    for s, fh in held[1:] + [(sid, f)]:
        c.ok(putfh(fh), close(s))


def test_locks_of_one_client(make):
    c = make()
    sid, f = c.open(c.root(), "locks")
    lsid = c.ok(putfh(f), lock(sid, WRITE_LT, 0, 1, owner=b"o")).stateid
    for at in (10, 20):
        lsid = c.ok(putfh(f), lock(lsid, WRITE_LT, at, 1)).stateid
    c.no("DELAY", putfh(f), lock(lsid, WRITE_LT, 30, 1))
    lsid = c.ok(putfh(f), locku(lsid, 10, 1)).stateid
    lsid = c.ok(putfh(f), lock(lsid, WRITE_LT, 30, 1)).stateid
    c.ok(putfh(f), locku(lsid))
    lsid = c.ok(putfh(f), lock((lsid[0] + 1, lsid[1]), WRITE_LT, 0, 1)).stateid
    c.ok(putfh(f), locku(lsid))
    # States of lock-owners count, too, with or without ranges.
    for n in range(2):
        one = c.ok(putfh(f), lock(sid, WRITE_LT, 0, 1, owner=b"n%d" % n)).stateid
        last = c.ok(putfh(f), locku(one)).stateid
    c.no("DELAY", putfh(f), lock(sid, WRITE_LT, 0, 1, owner=b"more"))
    c.ok(putfh(f), free_stateid((0, last[1])), lock(sid, WRITE_LT, 0, 1, owner=b"more"))
    c.ok(putfh(f), locku(c.ok(putfh(f), lock(sid, WRITE_LT, 5, 1, owner=b"more")).stateid),
         close(sid))


def test_layouts_of_one_client(make):
    c = make()
    held = [c.open(c.root(), f"laid{n}") for n in range(3)]
    layouts = [lay(c, f, sid) for sid, f in held[:2]]
    sid, f = held[2]
    c.no("LAYOUTUNAVAILABLE", putfh(f), layoutget(sid))
    c.ok(putfh(f), write(sid, 0, b"through the server"))
    lay(c, held[0][1], held[0][0])  # a client may get a layout again that it has
    c.ok(putfh(held[1][1]), layoutreturn(layouts[1].stateid))
    lay(c, f, sid)


def three(make):
    """Two clients of one address, one of another and one of a third, each with an open file of its
    own."""
    vacant()
    clients = [make(), make(), make("127.0.0.3"), make("127.0.0.4")]
    return [(c, *c.open(c.root(), f"mine{n}")) for n, c in enumerate(clients)]


def test_opens_of_one_address_and_in_all(make):
    (a, _, _), (b, bs, bf), (c, _, _), (e, es, ef) = three(make)
    d = a.mkdir(a.root(), "address")
    guarded = {"how": GUARDED, "attrs": {}}
    before = refused("opens")
    for n in range(3):
        a.open(d, f"a{n}")
    b.open(d, "b0")  # the sixth of this address; in all eight
    b.no("DELAY", putfh(d), open_("b1", BOTH | NO_DELEG, **guarded))
    c.no("DELAY", putfh(d), open_("c1", BOTH | NO_DELEG, **guarded))
    check(refused("opens") - before, 2)
    e.ok(putfh(ef), close(es))
    # There is room, but not for this address.
    b.no("DELAY", putfh(d), open_("b1", BOTH | NO_DELEG, **guarded))
    b.no("NOENT", putfh(d), lookup("b1"))
    c.open(d, "c1")
    b.ok(putfh(bf), close(bs))
    b.open(d, "b1")


def test_locks_of_one_address_and_in_all(make):
    (a, as_, af), (b, bs, bf), (c, cs, cf), (e, es, ef) = three(make)

    def some(who, f, sid, n, owner):
        got = (sid, [who.ok(putfh(f), lock(sid, WRITE_LT, 0, 1, owner=owner)).stateid])
        for at in range(1, n):
            got[1].append(who.ok(putfh(f), lock(got[1][-1], WRITE_LT, 10 * at, 1)).stateid)
        return got[1][-1]
    some(a, af, as_, 3, b"a")
    held = some(b, bf, bs, 2, b"b")
    b.no("DELAY", putfh(bf), lock(held, WRITE_LT, 50, 1))  # five at this address
    other = some(c, cf, cs, 2, b"c")
    e.no("DELAY", putfh(ef), lock(es, WRITE_LT, 0, 1, owner=b"e"))  # seven in all
    c.ok(putfh(cf), locku(other, 10, 1))
    b.no("DELAY", putfh(bf), lock(held, WRITE_LT, 50, 1))
    e.ok(putfh(ef), locku(e.ok(putfh(ef), lock(es, WRITE_LT, 0, 1, owner=b"e")).stateid))
    held = b.ok(putfh(bf), locku(held, 10, 1)).stateid
    b.ok(putfh(bf), lock(held, WRITE_LT, 50, 1))


def test_layouts_of_one_address_and_in_all(make):
    (a, as_, af), (b, bs, bf), (c, cs, cf), (e, es, ef) = three(make)
    a2, af2 = a.open(a.root(), "laid a2")
    b2, bf2 = b.open(b.root(), "laid b2")
    lay(a, af, as_)
    lay(a, af2, a2)
    mine = lay(b, bf, bs)  # the third of this address
    b.no("LAYOUTUNAVAILABLE", putfh(bf2), layoutget(b2))
    b.ok(putfh(bf2), write(b2, 0, b"through the server"))
    lay(c, cf, cs)
    lay(e, ef, es)  # the fifth in all
    g = make("127.0.0.5")
    gs, gf = g.open(g.root(), "laid g")
    g.no("LAYOUTUNAVAILABLE", putfh(gf), layoutget(gs))
    b.ok(putfh(bf), layoutreturn(mine.stateid))
    lay(b, bf2, b2)


def test_who_is_gone_makes_room(make):
    vacant()
    a, b = make(), make()
    d = a.mkdir(a.root(), "gone")
    for n in range(4):
        a.open(d, f"g{n}")
    b.open(d, "h0")
    b.open(d, "h1")
    b.no("DELAY", putfh(d), open_("h2", BOTH | NO_DELEG, how=GUARDED, attrs={}))
    a.conn.close()  # the server keeps it after its lease, unless another needs the place

    def one():
        return err(b.call(putfh(d), open_("h2", BOTH | NO_DELEG, how=UNCHECKED, attrs={})).status)
    eventually(lambda: one() == "OK", 20, "room that the dead had")


def test_what_was_had_under_a_delegation_is_held_to_the_clients_own_limit(make):
    """Other clients of its address have used up the address's limit. The server still accepts the
    opens and locks that a client reports when its delegation is recalled, or the client would lose
    them."""
    vacant()
    a, b, h = make(), make(), make("127.0.0.3")
    d = a.mkdir(a.root(), "claims")
    s, f = h.open(d, "f")
    h.ok(putfh(f), close(s))
    o = b.ok(putfh(f), open_(claim_fh(), BOTH | WANT_WRITE))
    check(o.deleg, D_WRITE)
    b.ok(putfh(f), close(o.stateid))
    mine = [a.open(d, f"a{n}") for n in range(4)]
    bs, bf = [b.open(d, f"b{n}") for n in range(2)][0]
    sid = a.ok(putfh(mine[0][1]), lock(mine[0][0], WRITE_LT, 0, 1, owner=b"a")).stateid
    for at in (10, 20):
        sid = a.ok(putfh(mine[0][1]), lock(sid, WRITE_LT, at, 1)).stateid
    sid = b.ok(putfh(bf), lock(bs, WRITE_LT, 0, 1, owner=b"b")).stateid
    b.ok(putfh(bf), lock(sid, WRITE_LT, 10, 1))
    b.no("DELAY", putfh(d), open_("b2", BOTH | NO_DELEG, how=GUARDED, attrs={}))
    started = h.begin(putfh(f), open_(claim_fh(), WRITE | NO_DELEG))
    b.wait_callback("RECALL")
    s = b.ok(putfh(f), open_(claim_deleg_cur_fh(o.deleg_stateid), BOTH)).stateid
    held = b.ok(putfh(f), lock(s, WRITE_LT, 0, 1, owner=b"kept")).stateid
    b.no("DELAY", putfh(f), lock(held, WRITE_LT, 10, 1))  # its own fourth
    b.ok(putfh(f), delegreturn(o.deleg_stateid))
    check(err(h.finish(started).status) in ("OK", "DELAY"), True)
    b.no("DELAY", putfh(d), open_("b2", BOTH | NO_DELEG, how=GUARDED, attrs={}))


def test_nobody_goes_for_a_layout(make):
    vacant()
    a, b, gone = make(), make(), make()
    gone.open(a.root(), "of the dead")
    gone.conn.close()
    files = [a.open(a.root(), f"speed{n}") for n in range(2)]
    more = [b.open(b.root(), f"more{n}") for n in range(2)]
    for sid, f in files:
        lay(a, f, sid)
    lay(b, more[0][1], more[0][0])
    for _ in range(20):  # past its lease, and then some
        time.sleep(0.2)
        a.ok(putrootfh())
        b.no("LAYOUTUNAVAILABLE", putfh(more[1][1]), layoutget(more[1][0]))
    check(gone.clientid in [int(one["clientid"], 0) for one in weft("client", "list")["clients"]],
          True)


def test_one_address_does_not_take_the_room_makers_time(make):
    """It is at its limit and asks all the time. Another address' dead clients make room there
    all the same."""
    vacant()
    full, mine, gone = ([make() for _ in range(5)], [make("127.0.0.3") for _ in range(4)],
                        make("127.0.0.3"))
    gone.open(gone.root(), "of the dead")
    gone.conn.close()

    def one_more(who):
        return err(who.conn.compound(exchange_id(b"room %f" % time.monotonic(),
                                                 os.urandom(8))).status)

    def room():
        for _ in range(40):
            one_more(full[0])
        for one in full + mine:
            one.ok(putrootfh())
        return one_more(mine[0]) == "OK"
    eventually(room, 20, "room at the other address")
    vacant()


def test_clients_of_one_address_and_in_all(make):
    c, other = make(), make("127.0.0.3")

    def one_more(who=c):
        return err(who.conn.compound(exchange_id(b"one more %f" % time.monotonic(),
                                                 os.urandom(8))).status)
    eventually(lambda: (other.ok(putrootfh()), one_more())[1] == "DELAY",
               what="the limit of an address")
    check(one_more(other), "OK", "another address has room")
    check([one_more(other) for _ in range(12)][-1], "DELAY")
    check(refused("clients") > 0, True)
    many = [Conn(ADDR, source=(f"127.0.3.{n}", 0)) for n in range(12)]
    got = [err(conn.compound(exchange_id(b"from %d" % n, bytes(8))).status)
           for n, conn in enumerate(many)]
    check(("OK" in got, got[-1]), (True, "DELAY"), "the limit of all")
    for conn in many:
        conn.close()
    check(err(c.call(putrootfh(), getattr_("type")).status), "OK", "who is in stays in")
    # The server drops unconfirmed clients after a lease, and the dead at once: there is room again.
    eventually(lambda: (c.ok(putrootfh()), other.ok(putrootfh()), one_more())[2] == "OK", 15,
               "a place that was left")


def test_reclaims_are_held_to_the_clients_own_limit(make):
    """The server does not compare them with what was there before: no client's reclaims take the
    place of another's."""
    vacant()
    a, b = make(), make()
    d = a.mkdir(a.root(), "reclaims")
    files = []
    for c in (a, b):
        for n in range(5):
            s, f = c.open(d, f"{len(files)}")
            files.append(f)
            c.ok(putfh(f), close(s))
    for c in (a, b):
        c.open(d, "0")
        c.drop()
    CLUSTER.restart()
    a, b = (client(owner=c.owner, verifier=c.verifier, reclaim=False) for c in (a, b))
    sids = [[c.ok(putfh(f), open_(claim_previous(), BOTH | NO_DELEG)).stateid for f in mine[:4]]
            for c, mine in ((a, files[:5]), (b, files[5:]))]
    b.no("DELAY", putfh(files[9]), open_(claim_previous(), BOTH | NO_DELEG))
    for c, f, sid in ((a, files[0], sids[0][0]), (b, files[5], sids[1][0])):
        held = c.ok(putfh(f), lock(sid, WRITE_LT, 0, 1, owner=b"o", reclaim=True)).stateid
        for at in (10, 20):
            held = c.ok(putfh(f), lock(held, WRITE_LT, at, 1, reclaim=True)).stateid
        c.no("DELAY", putfh(f), lock(held, WRITE_LT, 30, 1, reclaim=True))


# ---- ids of another boot, another file system, another cluster


def test_ids_of_another_boot_and_cluster(make):
    global CLUSTER
    CLUSTER.down()
    harness.THE = CLUSTER = Cluster(ds=1)
    c = make()
    d = c.mkdir(c.root(), "here")
    sid, f = c.open(d, "f")
    lsid = c.ok(putfh(f), lock(sid, WRITE_LT, 0, 1, owner=b"o")).stateid
    layout = lay(c, f, sid)
    root, session, clientid, ds_fh = (c.root(), c.session.sessionid, c.clientid,
                                      layout.mirrors[0][0].fhs[0])
    ours = layout.mirrors[0][0]
    where = uaddr(steps.device(c, ours.deviceid).addrs[0][1])
    verf = c.ok(putfh(f), write(sid, 0, b"x")).verf
    c.drop()
    CLUSTER.restart()
    c = make()
    eventually(lambda: c.call(putfh(f), open_(claim_fh(), READ | NO_DELEG)).status != 10013, 10,
               "the end of grace")
    check(c.ok(putfh(f), getfh()).fh, f, "handles outlive a boot")
    check(c.clientid != clientid and c.session.sessionid != session, True)
    check(err(c.conn.compound(sequence(session, 9)).status), "BADSESSION")
    check(err(c.conn.compound(create_session(clientid, 1)).status), "STALE_CLIENTID")
    check(err(c.conn.compound(destroy_clientid(clientid)).status), "STALE_CLIENTID")
    new, _ = c.open(d, "f")
    check(new[1] not in (sid[1], lsid[1], layout.stateid[1]), True)
    for old in (sid, lsid, layout.stateid):
        c.no("BAD_STATEID", putfh(f), read(old, 0, 1))
        c.no("BAD_STATEID", putfh(f), close(old))
        check([err(s) for s in c.ok(test_stateid(old)).statuses], ["BAD_STATEID"])
    c.no(("BAD_STATEID", "BADLAYOUT"), putfh(f), layoutreturn(layout.stateid))
    check(c.ok(putfh(f), write(new, 0, b"x")).verf != verf, True,
          "the write verifier is another boot's")
    c.ok(putfh(f), close(new))
    c.drop()
    # Another cluster at the same address knows none of these ids, and gives none of them again.
    CLUSTER.down()
    harness.THE = CLUSTER = Cluster(ds=1)
    c = make()
    for fh in (root, d, f):
        c.no("BADHANDLE", putfh(fh))
    check(err(c.conn.compound(sequence(session, 1)).status), "BADSESSION")
    mine = c.root()
    check((mine != root, len(mine)), (True, len(root)))
    here = c.mkdir(mine, "here")  # the same inode number, a different object
    check(here != d, True)
    sid2, f2 = c.open(here, "f")
    mine = lay(c, f2, sid2).mirrors[0][0]
    check(mine.deviceid != ours.deviceid and mine.fhs[0] != ds_fh, True,
          "devices and capabilities are another cluster's")
    ds = DataServer(uaddr(steps.device(c, mine.deviceid).addrs[0][1]))
    check(ds.write(mine.fhs[0], 0, b"y").status, 0)
    check(ds.read(ds_fh, 0, 1).status, 10001, "a capability of another cluster is a bad handle")
    check(where, uaddr(steps.device(c, mine.deviceid).addrs[0][1]), "at the very address")
    ds.close()


@contextlib.contextmanager
def around(name):
    with harness.clients(closing=True):
        yield (client,)
    time.sleep(0.1)


def main():
    global CLUSTER
    harness.THE = CLUSTER = Cluster(ds=1, settings=SETTINGS)
    try:
        tap.run(tap.named(globals()), around)
    finally:
        CLUSTER.down()


if __name__ == "__main__":
    main()
