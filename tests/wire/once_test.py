#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Exactly once: retries in a boot, over connections, and of what an earlier boot did. Prints TAP.

A test called restart_... kills the metadata server; its requests are sent as bytes, and sent again
as the same bytes.
"""
import os
import signal
import subprocess
import sys
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../wirelib"))
import harness as base  # noqa: E402
from harness import *  # noqa: E402,F403
from harness import ADDR, Cluster, check, client, eventually  # noqa: E402
from nfs41 import *  # noqa: E402,F403
from nfs41 import err  # noqa: E402
from once import Once, back_again, same_again, seq_flags  # noqa: E402


def bad_session(conn, args, cred=auth_sys()):
    check(err(read_compound(conn.rpc(1, args, cred)).status), "BADSESSION")


MODE = "mode", "numlinks", "size", "change", "fileid"


def things(c, d):
    """What every non-idempotent operation works on."""
    fhs = {}
    for name in ("gone", "from", "over", "linked", "cut", "attrs", "short", "xattr"):
        sid, fhs[name] = c.open(d, name)
        if name == "cut":
            c.ok(putfh(fhs[name]), write(sid, 0, b"0123456789", FILE_SYNC))
        c.ok(putfh(fhs[name]), close(sid))
    c.mkdir(d, "empty")
    return Obj(**fhs, sub=c.mkdir(d, "sub"), policy=c.mkdir(d, "policy"))


def every_operation(o, d, t):
    """One request for each operation that the server must not do twice. Other requests do not
    change what it reads afterwards."""
    after = getfh(), getattr_(*MODE)
    o.send(putfh(d), savefh(), create(DIR, "made", mode=0o750), *after, restorefh(),
           getattr_("fileid"))
    o.send(putfh(d), create(LNK, "symlink", link=b"to"), *after, readlink())
    o.send(putfh(d), create(FIFO, "pipe", mode=0o600), *after)
    o.send(putfh(d), create(CHR, "device", dev=(1, 3)), *after)
    o.send(putfh(t.linked), savefh(), putfh(d), link("link"), restorefh(), getattr_(*MODE))
    o.send(putfh(d), remove("gone"))
    o.send(putfh(d), remove("empty"), getattr_("fileid"))
    o.send(putfh(d), savefh(), rename("from", "moved"), lookup("moved"), *after)
    o.send(putfh(d), savefh(), putfh(t.sub), rename("over", "over"), getattr_(*MODE), restorefh(),
           getfh())
    how = BOTH | NO_DELEG
    o.send(putfh(d), savefh(), open_("guarded", how, how=GUARDED, attrs={"mode": 0o640}),
           access(0x1f), *after)
    o.send(putfh(d), open_("unchecked", how, how=UNCHECKED, attrs={"mode": 0o640, "size": 0}),
           *after)
    o.send(putfh(d), open_("exclusive", how, how=EXCLUSIVE4_1, verf=b"verifier",
                           attrs={"mode": 0o600}), *after)
    o.send(putfh(d), open_("sized", how, how=GUARDED, attrs={"size": 5}), *after)
    o.send(putfh(d), open_("cut", how, how=UNCHECKED, attrs={"size": 0}), *after)
    o.send(putfh(t.attrs), setattr_(mode=0o604, owner_group="7", time_modify_set=(1, 2)),
           getattr_(*MODE, "time_modify"))
    o.send(putfh(t.short), setattr_(size=3), getattr_(*MODE))
    o.send(putfh(t.xattr), setxattr("x", b"value", 1), getxattr("x"), getattr_(*MODE))
    o.send(putfh(t.policy), setxattr("weft.policy", b"mirrors=2", 1), getxattr("weft.policy"),
           getattr_(*MODE))
    o.send(putfh(d), create(DIR, "one"), getfh(), putfh(d), create(DIR, "two"), getfh())


def more_operations(o, d, t):
    """Operations that undo some of these."""
    o.send(putfh(t.xattr), removexattr("x"), listxattrs(), getattr_(*MODE))
    o.send(putfh(t.policy), removexattr("weft.policy"), getattr_(*MODE))
    o.send(putfh(d), remove("one"), remove("two"), lookup("two"), want="NOENT")


def state(c, d, t):
    return [c.attrs(fh, *MODE, "time_modify", "time_metadata")
            for fh in (d, *(getattr(t, n) for n in ("attrs", "short", "xattr", "linked", "sub",
                                                    "policy", "cut")))]


def names(c, d):
    return sorted(e.name.decode() for e in c.ok(putfh(d), readdir(attrs=["fileid"])).entries)


ALL = sorted("""attrs cut device exclusive guarded link linked made moved one pipe policy
    short sized sub symlink two unchecked xattr""".split())


def test_every_operation_over_a_new_connection(c, d):
    t, o = things(c, d), Once(client())
    for work in every_operation, more_operations:
        work(o, d, t)
        before = names(c, d), state(c, d, t)
        o.c.drop()
        o.c.conns = [o.c.connection()]
        same_again(Conn(ADDR), o.sent, flags=None)
        check((names(c, d), state(c, d, t)), before)
    check(names(c, d), [n for n in ALL if n not in ("one", "two")])


STATE = ("shut", "lock", "unlock", "free", "less", "get", "back", "size", "wrote", "loose", "room",
         "hole", "source", "copied")
SINCE = "wrote", "loose", "hole", "copied"  # another client writes there afterwards


def held(c, d):
    """Files that the client has open, and what else the operations on state need."""
    t = Obj(**{name: Obj(**dict(zip(("sid", "fh"), c.open(d, name)))) for name in STATE})
    c.ok(putfh(t.hole.fh), write(t.hole.sid, 0, b"before" * 20000, FILE_SYNC), putfh(t.source.fh),
         write(t.source.sid, 0, b"source" * 50000, FILE_SYNC))
    t.locked = c.ok(putfh(t.unlock.fh), lock(t.unlock.sid, WRITE_LT, 0, 10, b"lo")).stateid
    k = c.ok(putfh(t.free.fh), lock(t.free.sid, WRITE_LT, 0, 10, b"lo")).stateid
    t.freed = c.ok(putfh(t.free.fh), locku(k, 0, 10)).stateid
    c.ok(putfh(t.less.fh), open_(claim_fh(), READ | NO_DELEG))
    sid, t.deleg = c.open(d, "deleg")
    c.ok(putfh(t.deleg), close(sid))
    o = c.ok(putfh(t.deleg), open_(claim_fh(), READ | WANT_READ))
    check(o.deleg, D_READ)
    t.delegation = o.deleg_stateid
    t.layout = c.ok(putfh(t.back.fh), layoutget(t.back.sid)).stateid
    t.writer = c.ok(putfh(t.size.fh), layoutget(t.size.sid)).stateid
    return t


def on_state(t):
    """One request for each operation that changes state."""
    return ((putfh(t.shut.fh), close(t.shut.sid)),
            (putfh(t.lock.fh), lock(t.lock.sid, WRITE_LT, 0, 10, b"lo")),
            (putfh(t.unlock.fh), locku(t.locked, 0, 10)),
            (free_stateid(t.freed),),
            (putfh(t.less.fh), open_downgrade((0, t.less.sid[1]), READ)),
            (putfh(t.deleg), delegreturn(t.delegation)),
            (putfh(t.get.fh), layoutget(t.get.sid)),
            (putfh(t.back.fh), layoutreturn(t.layout)),
            (putfh(t.size.fh), layoutcommit(t.writer, last=4999, length=5000)))


def on_data(t):
    """And one for each that changes a file's data."""
    return ((putfh(t.wrote.fh), write(t.wrote.sid, 0, b"first" * 20000, FILE_SYNC),
             getattr_("fileid")),
            (putfh(t.loose.fh), write(t.loose.sid, 0, b"first", UNSTABLE)),
            (putfh(t.room.fh), allocate(t.room.sid, 0, 70000)),
            (putfh(t.hole.fh), deallocate(t.hole.sid, 0, 65536)),
            (putfh(t.source.fh), savefh(), putfh(t.copied.fh), copy(t.source.sid, t.copied.sid)))


def writes_since(c, t, sids):
    """Another client writes where the first one did."""
    for name in SINCE:
        got = c.until(lambda got: err(got.status) != "DELAY", putfh(getattr(t, name).fh),
                      write(sids[name], 0, b"since", FILE_SYNC))
        check(err(got.status), "OK", name)


def data_of(c, t, sids):
    """The beginnings and the sizes."""
    return {name: (c.until(lambda got: err(got.status) != "DELAY", putfh(getattr(t, name).fh),
                           read(sids[name], 0, 10)).results[-1].data,
                   c.attrs(getattr(t, name).fh, "size").size) for name in SINCE}


FIRST_DATA = {"wrote": (b"firstfirst", 100000), "loose": (b"first", 5), "hole": (bytes(10), 120000),
              "copied": (b"sourcesour", 300000)}
SINCE_DATA = {"wrote": (b"sincefirst", 100000), "loose": (b"since", 5),
              "hole": (b"since" + bytes(5), 120000), "copied": (b"sinceesour", 300000)}


def test_state_and_data_over_a_new_connection(c, d):
    a, b = client(), client()
    t, o = held(a, d), Once(a)
    sids = {name: b.open(d, name)[0] for name in (*SINCE, "lock")}
    for ops in (*on_state(t), *on_data(t)):
        got = o.send(*ops)
        if got.op == "LOCK":
            a.ok(putfh(t.lock.fh), locku(got.stateid, 0, 10))
    lay_again = a.ok(putfh(t.back.fh), layoutget(t.back.sid)).stateid
    writes_since(b, t, sids)
    k = b.ok(putfh(t.lock.fh), lock(sids["lock"], WRITE_LT, 0, 10, b"other")).stateid
    check(data_of(b, t, sids), SINCE_DATA)
    a.drop()
    a.conns = [a.connection()]
    same_again(Conn(ADDR), o.sent, flags=None)
    check(data_of(b, t, sids), SINCE_DATA)
    c.no("DENIED", putfh(t.lock.fh), lockt(WRITE_LT, 0, 10))
    b.ok(putfh(t.lock.fh), locku(k, 0, 10))
    c.ok(putfh(t.lock.fh), lockt(WRITE_LT, 0, 10))
    a.ok(putfh(t.back.fh), layoutreturn(lay_again))


def test_a_reply_that_a_broken_connection_lost(c, d):
    """No client saw the first answer. The retry gets it, and the server does not run it again."""
    a, b = client(), client()
    t = held(a, d)
    sids = {name: b.open(d, name)[0] for name in SINCE}
    sent, conn = [], a.connection()
    for slot, ops in enumerate((*on_state(t), *on_data(t)), 1):
        sent.append(compound_args((sequence(a.session.sessionid, 1, slot, 20, True), *ops)))
        conn.start(1, sent[-1], a.cred)
    eventually(lambda: data_of(c, t, dict.fromkeys(SINCE, ANON)) == FIRST_DATA, what="the work")
    conn.close()
    conn = Conn(ADDR)
    wait = lambda args: eventually(
        lambda: err(read_compound(conn.rpc(1, args, a.cred)).results[0].status) != "DELAY",
        what="the end of a request")
    for args in sent:
        wait(args)
    writes_since(b, t, sids)
    for args in sent:
        got = read_compound(conn.rpc(1, args, a.cred))
        check([(r.op, err(r.status)) for r in got.results if r.status], [])
    check(data_of(b, t, sids), SINCE_DATA)


def restart_every_operation_gets_its_first_answer(w):
    c = client()
    d = c.mkdir(c.root(), "d")
    t, o = things(c, d), Once(client())
    every_operation(o, d, t)
    before = names(c, d), state(c, d, t)
    check(before[0], ALL)
    for _ in range(2):  # the rows outlive a second restart
        w.restart()
        conn = Conn(ADDR)
        same_again(conn, o.sent)
        same_again(conn, o.sent)
        check(w.metric("weft_mds_once_total"), 2 * len(o.sent))
        conn.close()
    look = back_again(o.c)
    check((names(look, d), state(look, d, t)), before)
    check(look.attrs(t.cut, "size").size, 0)


def restart_what_was_undone_gets_its_first_answer(w):
    c = client()
    d = c.mkdir(c.root(), "d")
    t, o = things(c, d), Once(client())
    every_operation(o, d, t)
    o.sent = []
    more_operations(o, d, t)
    before = names(c, d), state(c, d, t)
    w.restart()
    same_again(Conn(ADDR), o.sent)
    look = back_again(o.c)
    check((names(look, d), state(look, d, t)), before)


def restart_without_cachethis_too(w):
    c = client()
    d = c.mkdir(c.root(), "d")
    o = Once(c, cache=False)
    o.send(putfh(d), create(DIR, "x"), getfh())
    o.send(putfh(d), remove("x"))
    w.restart()
    same_again(Conn(ADDR), o.sent)


def restart_a_reply_that_nobody_got(w):
    c = client()
    d = c.mkdir(c.root(), "d")
    for name in ("gone", "from", "file"):
        sid, fh = c.open(d, name)
        c.ok(putfh(fh), close(sid))
    other = client()
    requests = [(putfh(d), remove("gone")), (putfh(d), savefh(), rename("from", "to")),
                (putfh(d), create(DIR, "made")),
                (putfh(d), open_("new", BOTH | NO_DELEG, how=GUARDED, attrs={"mode": 0o600})),
                (putfh(fh), savefh(), putfh(d), link("link")), (putfh(fh), setxattr("x", b"1", 1))]
    sent = [compound_args((sequence(other.session.sessionid, 1, n + 1, 10, True), *ops)) for n,
            ops in enumerate(requests)]
    conn = Conn(ADDR)
    for args in sent:
        conn.start(1, args, other.cred)
    eventually(lambda: names(c, d) == ["file", "link", "made", "new", "to"]
               and err(c.call(putfh(fh), getxattr("x")).status) == "OK", what="the work")
    conn.close()
    before = c.attrs(d, *MODE), c.attrs(fh, *MODE)
    w.restart()
    conn = Conn(ADDR)
    for args in sent:
        check([err(r.status) for r in read_compound(conn.rpc(1, args, other.cred)).results
               if err(r.status) != "OK"], [])
    look = back_again(c)
    check((look.attrs(d, *MODE), look.attrs(fh, *MODE)), before)
    check(names(look, d), ["file", "link", "made", "new", "to"])


def restart_an_open_is_reclaimed_with_the_stateid_it_got(w):
    c = client()
    d = c.mkdir(c.root(), "d")
    o = Once(client())
    o.send(putfh(d), open_("f", BOTH | NO_DELEG, how=GUARDED, attrs={"mode": 0o600}), getfh(),
           layoutget(CURRENT))
    w.restart()
    conn = Conn(ADDR)
    args, cred, reply = o.sent[0]
    got = read_compound(conn.rpc(1, args, cred))
    was = read_compound(reply).results
    check(err(got.status), "DELAY", "a layout from an earlier boot's session")
    check([vars(r.cinfo) for r in (got.results[2], was[2])], [vars(was[2].cinfo)] * 2)
    check((got.results[2].stateid, got.results[3].fh), (was[2].stateid, was[3].fh))
    bad_session(conn, compound_args((sequence(o.c.session.sessionid, 2, 0, 0), putfh(was[3].fh),
                                     close(was[2].stateid))), cred)
    again = back_again(o.c)
    sid = again.ok(putfh(was[3].fh), open_(claim_previous(), BOTH)).stateid
    again.ok(putfh(was[3].fh), layoutreturn(ANON))
    again.ok(reclaim_complete())
    again.ok(putfh(was[3].fh), close(sid))


def restart_new_and_false_requests_learn_that_the_session_is_gone(w):
    c = client()
    d = c.mkdir(c.root(), "d")
    o = Once(c)
    o.slot = 5
    o.send(putfh(d), create(DIR, "x"))
    args, cred, _ = o.sent[0]
    sid = c.session.sessionid
    w.restart()
    conn = Conn(ADDR)
    request = putfh(d), create(DIR, "x")
    for seq, slot in ((2, 5), (0, 5), (1, 6), (1, 2**32 - 1)):
        bad_session(conn, compound_args((sequence(sid, seq, slot, slot, True), *request)))
    # The same slot and sequence with another request: other bytes, fewer of them, more of them,
    # another minor version, another user.
    for ops in ((putfh(d), create(DIR, "y")), (putfh(d),), (*request, getfh())):
        bad_session(conn, compound_args((sequence(sid, 1, 5, 5, True), *ops)))
    bad_session(conn, compound_args((sequence(sid, 1, 5, 5, True), *request), minor=1))
    for other in (auth_sys(1000), NOBODY):
        bad_session(conn, args, other)
    for wrong in (bytes(16), sid[:15] + bytes([sid[15] ^ 1]), b"\xff" * 16):
        bad_session(conn, compound_args((sequence(wrong, 1, 5, 5, True), *request)))
    check(err(conn.compound(bind_conn(sid, 3)).status), "BADSESSION")
    check(err(conn.compound(destroy_session(sid)).status), "BADSESSION")
    # highest_slotid and cachethis may differ in a retry
    check(read_compound(conn.rpc(1, compound_args((sequence(sid, 1, 5, 7, False), *request)),
                                 cred)).status, 0)
    same_again(conn, o.sent)


def restart_a_slots_last_request_counts(w):
    c = client()
    d = c.mkdir(c.root(), "d")
    sid = c.session.sessionid
    kept = []
    for seq, ops in ((1, (create(DIR, "a"),)), (2, (create(DIR, "b"),)), (3, (getattr_("size"),))):
        kept.append(compound_args((sequence(sid, seq, 7, 7, True), putfh(d), *ops)))
        check(read_compound(c.conn.rpc(1, kept[-1], c.cred)).status, 0)
    w.restart()
    conn = Conn(ADDR)
    bad_session(conn, kept[0])
    bad_session(conn, kept[2])  # it changed nothing, so the server keeps nothing of it
    check(read_compound(conn.rpc(1, kept[1], c.cred)).status, 0)


def restart_what_failed_was_not_done(w):
    c = client()
    d = c.mkdir(c.root(), "d")
    o = Once(c)
    o.slot = 5
    o.send(putfh(d), remove("x"), want="NOENT")
    o.send(putfh(d), create(DIR, "y"), remove("x"), want="NOENT")
    w.restart()
    conn = Conn(ADDR)
    bad_session(conn, o.sent[0][0])
    got = read_compound(conn.rpc(1, o.sent[1][0], c.cred))
    check([(r.op, err(r.status)) for r in got.results],
          [("SEQUENCE", "OK"), ("PUTFH", "OK"), ("CREATE", "OK"), ("REMOVE", "DELAY")])


def rows(w):
    """What the store keeps of requests: fsck counts them among the rows, and is clean. Sums of
    directories have rows of their own."""
    done = subprocess.run([os.path.join(base.BUILD, "weft-fsck"), "--json",
                           os.path.join(w.dir, "mds")], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)["rows"]


def restart_rows_go_with_their_session_and_after_grace(w):
    start = rows(w)
    c = client()
    d = c.mkdir(c.root(), "d")
    check(rows(w), start + 2)  # the client's record, and mkdir's
    for n in range(5):
        c.ok(putfh(d), create(DIR, f"d{n}"))
    check(rows(w), start + 2)  # the slot's last only
    o = Once(c)
    o.slot = 3
    for n in range(6):
        o.send(putfh(d), create(DIR, f"e{n}"))
    check(rows(w), start + 8)
    old = c.session.sessionid
    c.create_session()
    c.ok(destroy_session(old))
    eventually(lambda: rows(w) == start + 1, 30, "deletion of an ended session's rows")
    c.ok(putfh(d), remove("e0"))
    check(rows(w), start + 2)
    c.no("BADSESSION", destroy_session(old))
    o = Once(c)
    o.slot = 2
    o.send(putfh(d), remove("e1"))
    w.restart()
    check(rows(w) >= start + 3, True)
    same_again(Conn(ADDR), o.sent)
    c.drop()
    c.conns = [c.connection()]
    c.exchange_id()
    c.create_session()
    c.ok(reclaim_complete())
    eventually(lambda: rows(w) == start + 1, 30, "deletion of an earlier boot's rows")
    bad_session(c.conn, o.sent[0][0])


@brief
def restart_a_client_that_expires_takes_its_rows_along(w):
    start = rows(w)
    c = client()
    c.mkdir(c.root(), "d")
    check(rows(w), start + 2)
    eventually(lambda: rows(w) == start, 30, "deletion of the rows of a client that is forgotten")


def restart_a_truncation_is_confirmed_before_it_is_answered_again(w):
    c = client()
    d = c.mkdir(c.root(), "d")
    sid, f = c.open(d, "f")
    c.ok(putfh(f), write(sid, 0, b"0123456789", FILE_SYNC))
    o = Once(c)
    o.slot = 3
    o.send(putfh(f), setattr_(sid, size=4))
    w.restart()
    same_again(Conn(ADDR), o.sent)
    again = back_again(c)
    again.ok(reclaim_complete())
    got = again.until(lambda got: err(got.status) not in ("DELAY", "GRACE"), putfh(f),
                      read(ANON, 0, 100))
    check(got.results[-1].data, b"0123")


def restart_what_others_wrote_since_stays(w):
    """WRITE, ALLOCATE, DEALLOCATE and COPY of files with one copy and with two: the server answers
    a retry and does not do it again."""
    a, b = client(), client()
    d = a.mkdir(a.root(), "d")
    o, made = Once(a), []
    for policy in ("mirrors=1", "mirrors=2"):
        folder = a.mkdir(d, policy)
        a.ok(putfh(folder), setxattr("weft.policy", policy))
        t = held(a, folder)
        for name in SINCE:
            b.open(folder, name)
        for ops in on_data(t):
            o.send(*ops)
        made.append(t)
    for boot in range(2):
        w.restart()
        b = back_again(b)
        for t in made:
            sids = {name: b.ok(putfh(getattr(t, name).fh),
                               open_(claim_previous(), BOTH | NO_DELEG)).stateid for name in SINCE}
            if not boot:
                writes_since(b, t, sids)
            check(data_of(b, t, sids), SINCE_DATA)
            t.sids = sids
        conn = Conn(ADDR)
        same_again(conn, o.sent)
        check(w.metric("weft_mds_once_total"), len(o.sent))
        for t in made:
            check(data_of(b, t, t.sids), SINCE_DATA)
            check((b.attrs(t.room.fh, "size").size,
                   b.attrs(t.room.fh, "space_used").space_used >= 70000), (70000, True))
        # Another request in the same place: a byte of its data differs.
        args, cred, _ = o.sent[0]
        at = len(args) // 2
        bad_session(conn, args[:at] + bytes([args[at] ^ 1]) + args[at + 1:], cred)
        conn.close()


def restart_what_another_wrote_over_a_reply_that_nobody_got(w):
    a, b = client(), client()
    d = a.mkdir(a.root(), "d")
    t = held(a, d)
    for name in SINCE:
        b.open(d, name)
    sent, conn, start = [], a.connection(), rows(w)
    for slot, ops in enumerate(on_data(t), 1):
        sent.append(compound_args((sequence(a.session.sessionid, 1, slot, 20, True), *ops)))
        conn.start(1, sent[-1], a.cred)
    eventually(lambda: rows(w) >= start + len(sent), what="the work")
    conn.close()
    w.restart()
    b = back_again(b)
    sids = {name: b.ok(putfh(getattr(t, name).fh), open_(claim_previous(), BOTH | NO_DELEG)).stateid
            for name in SINCE}
    writes_since(b, t, sids)
    conn = Conn(ADDR)
    for args in sent:
        got = read_compound(conn.rpc(1, args, a.cred))
        check([(r.op, err(r.status)) for r in got.results if r.status], [])
    check(data_of(b, t, sids), SINCE_DATA)


def restart_a_write_that_a_size_overtook_was_not_done(w):
    """A client sets the size while data is on its way to one of two copies. The WRITE gets an error
    that asks for a retry, also after a crash."""
    a, b = client(), client()
    d = a.mkdir(a.root(), "d")
    a.ok(putfh(d), setxattr("weft.policy", "mirrors=2"))
    sid, f = a.open(d, "f")
    a.ok(putfh(f), write(sid, 0, b"0123456789", FILE_SYNC))
    other, _ = b.open(d, "f")
    a.attrs(f, "size"), b.attrs(f, "size")
    daemons = {r["name"]: r["pid"] for r in json.loads(w.dev("status", w.dir, "--json"))["daemons"]}
    first, last = ((daemons[o["ds"]], os.path.join(w.dir, o["ds"], o["object"]))
                   for m in json.loads(a.ok(putfh(f), getxattr("weft.layout")).value)["mirrors"]
                   for o in m["objects"])
    conn = a.connection()
    args = compound_args((sequence(a.session.sessionid, 1, 3, 20, True), putfh(f),
                          write(sid, 20, b"overtaken", FILE_SYNC)))
    try:
        stand_still(last[0])
        writing = conn.start(1, args, a.cred)
        eventually(lambda: open(first[1], "rb").read()[20:] == b"overtaken",
                   what="the copy that has it")
        time.sleep(0.1)
        stand_still(first[0])
        cutting = b.begin(putfh(f), setattr_(other, size=5))
        eventually(lambda: w.metric("weft_mds_orders") >= 2, what="the orders to cut it")
        os.kill(last[0], signal.SIGCONT)
        check(err(read_compound(conn.finish(writing)).status), "DELAY")
    finally:
        os.kill(last[0], signal.SIGCONT)
        os.kill(first[0], signal.SIGCONT)
    check(err(b.finish(cutting).status), "OK")
    w.restart()
    check(err(read_compound(Conn(ADDR).rpc(1, args, a.cred)).status) != "OK", True,
          "nobody is told that it was done")
    again = back_again(a)
    again.ok(reclaim_complete())
    got = again.until(lambda got: err(got.status) not in ("DELAY", "GRACE"), putfh(f),
                      read(ANON, 0, 100))
    check(got.results[-1].data, b"01234")


def restart_a_layoutcommit_by_the_clients_word_is_kept(w):
    """The data server cannot be asked, so the size is what the client says. A retry must not undo a
    truncation that comes afterwards."""
    c = client()
    d = c.mkdir(c.root(), "d")
    sid, f = c.open(d, "f")
    layout = c.ok(putfh(f), layoutget(sid)).stateid
    name = next(x["ds"]
                for m in json.loads(c.ok(putfh(f), getxattr("weft.layout")).value)["mirrors"]
                for x in m["objects"])
    w.dev("kill", w.dir, name, "-9")
    o = Once(c)
    o.slot = 3
    got = o.send(putfh(f), layoutcommit(layout, last=4999, length=5000))
    check(got.newsize, 5000)
    w.restart()
    same_again(Conn(ADDR), o.sent)


def restart_a_long_compound_is_kept_too(w):
    c = client(fore={"cached": 16384, "ops": 40})
    d = c.mkdir(c.root(), "d")
    for n in range(40):
        c.mkdir(d, f"a-name-that-takes-some-room-{n}")
    o = Once(c)
    o.slot = 3
    sid, f = c.open(d, "data")
    c.ok(putfh(f), write(sid, 0, b"x" * 3001, FILE_SYNC))
    listing = readdir(maxcount=8000, attrs=["fileid", "change", "size"])
    o.send(putfh(d), listing, create(DIR, "new"), getfh(), putfh(d), getattr_("change"))
    o.send(putfh(f), read(sid, 0, 3001), putfh(d), create(DIR, "newer"), getfh(), putfh(d),
           getattr_("change"))
    w.restart()
    conn = Conn(ADDR)
    at = len(o.sent[0][2]) - 8
    for n, (args, cred, reply) in enumerate(o.sent):
        again = seq_flags(conn.rpc(1, args, cred))[0]
        # The directory has changed since the first of them, whose last result shows it.
        check(again == seq_flags(reply)[0] if n else again[:at] == seq_flags(reply)[0][:at], True,
              f"request {n}")


def restart_a_listening_socket_that_is_held_outlives_the_server(w):
    w.dev("kill", w.dir, "mds", "-9")
    held = socket.socket()
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    time.sleep(0.2)  # the dead server's ring has the port a moment longer
    held.bind(ADDR)
    held.listen(100)
    held.setblocking(False)  # as a service manager's may be
    script = f'exec 3<&{held.fileno()}; LISTEN_PID=$$ LISTEN_FDS=1 exec "$@"'

    def start():
        return subprocess.Popen(["bash", "-c", script, "bash", os.path.join(base.BUILD, "weft-mds"),
                                 "-c", os.path.join(w.dir, "weft.conf")],
                                pass_fds=[held.fileno()], stderr=subprocess.DEVNULL)
    server = start()
    try:
        c = client()
        d = c.mkdir(c.root(), "d")
        server.kill()
        server.wait()
        check(c.conn.is_closed(), True)
        time.sleep(0.2)
        conn = Conn(ADDR)  # no server runs, and the socket refuses no connection
        xid = conn.start(0, b"", NOBODY)
        time.sleep(0.1)
        server = start()
        check(conn.finish(xid), b"")
        conn.close()
        back_again(c).ok(putfh(d), create(DIR, "x"))
    finally:
        server.kill()
        server.wait()
        held.close()


def test_the_socket_units_are_sound(c, d):
    if not shutil.which("systemd-analyze"):
        return
    with tempfile.TemporaryDirectory() as top:
        for name in ("mds", "ds"):
            with open(os.path.join(top, f"weft-{name}.service"), "w", encoding="ascii") as f:
                f.write(f"[Service]\nExecStart={base.BUILD}/weft-{name}\n")
            shutil.copy(os.path.join(base.SRC, f"dist/systemd/weft-{name}.socket"), top)
            done = subprocess.run(["systemd-analyze", "verify", "--man=no",
                                   os.path.join(top, f"weft-{name}.socket")], capture_output=True,
                                  text=True, check=False)
            check((done.returncode, done.stdout + done.stderr), (0, ""))


if __name__ == "__main__":
    # A loaded machine may take longer over a restart and what follows than a lease or a grace
    # period of SETTINGS lasts.
    base.main(globals(), settings=CALM, restarted=[*CALM, "mds.grace=30s"])
