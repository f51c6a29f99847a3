#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The server does not take what it does not know for "no", and a client can still give back what it
may no longer use. Prints TAP.

The tests cover name services that fail (users and groups, hosts of the exports); exports that go or
become read only while clients hold state or have calls under way; COMMIT's permission; and
TEST_STATEID's size. Like exports_test.py, the test has a mount namespace and names of its own. A
thread of it answers DNS.
"""
import contextlib
import ctypes
import glob
import os
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time

if os.environ.get("WEFT_EXPORTS_TEST") != "inside":
    os.environ["WEFT_EXPORTS_TEST"] = "inside"
    os.execvp("unshare",
              ["unshare", "-m", sys.executable, os.path.abspath(__file__), *sys.argv[1:]])

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../wirelib"))
import exported  # noqa: E402
import harness  # noqa: E402
import tap  # noqa: E402
from exported import ADMIN, BASE, BOTH_C, ONLY_B, exports, names, text, walk  # noqa: E402
from harness import BUILD, Cluster, check, eventually, rejected  # noqa: E402
from load import Watch, mds_pid  # noqa: E402
from steps import lay  # noqa: E402
from nfs41 import *  # noqa: E402,F403
from nfs41 import err, op  # noqa: E402

MB = 1 << 20
KEEP = 1.0  # the server uses an answer for twice as long while it cannot ask again
make = exported.client


# ---- name services


SILENT = object()


class Dns(threading.Thread):
    """A DNS server on 127.0.0.1. It answers for a name by the state of its first label: an address,
    None (there is no such name), False (it fails), or SILENT."""

    def __init__(self):
        super().__init__(daemon=True)
        self.names, self.asked = {}, []
        self.sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.sock.bind(("127.0.0.1", 53))
        self.start()

    def run(self):
        while True:
            query, peer = self.sock.recvfrom(1500)
            labels, at = [], 12
            while query[at]:
                labels.append(query[at + 1:at + 1 + query[at]].decode())
                at += 1 + query[at]
            kind = struct.unpack(">H", query[at + 1:at + 3])[0]
            name = ".".join(labels).lower()
            self.asked.append(name)
            has = self.names.get(name)
            if has is SILENT:
                continue
            data = b""
            if has and kind == 1 and not name.endswith("arpa"):
                data = socket.inet_aton(has)
            elif has and kind == 12:
                data = b"".join(bytes([len(p)]) + p.encode() for p in has.split(".")) + b"\0"
            rcode = 2 if has is False else 3 if has is None else 0
            answer = (b"\xc0\x0c" + struct.pack(">HHIH", kind, 1, 0, len(data)) + data
                      if data else b"")
            self.sock.sendto(query[:2] + struct.pack(">HHHHH", 0x8180 | rcode, 1, int(bool(data)),
                                                     0, 0) + query[12:at + 5] + answer, peer)


DNS = None


def reverse_of(addr):
    return ".".join(reversed(addr.split("."))) + ".in-addr.arpa"


def resolver(timeout):
    """Running programs read it again."""
    with open("/etc/resolv.conf", "w", encoding="ascii") as f:
        f.write(f"nameserver 127.0.0.1\noptions timeout:{timeout} attempts:1\n")


@contextlib.contextmanager
def users_unreadable():
    """getpwuid_r fails: its file is a link to itself."""
    os.rename("/etc/passwd", "/etc/passwd.kept")
    os.symlink("passwd", "/etc/passwd")
    try:
        yield
    finally:
        os.rename("/etc/passwd.kept", "/etc/passwd")


def log_lines(what):
    with open(f"{exported.CLUSTER.dir}/log/mds.log", encoding="utf-8") as log:
        return sum(what in line for line in log)


def alive(c, seconds):
    """Time passes, and the client keeps its lease."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        c.ok()
        time.sleep(0.3)


MANY = auth_sys(3000, 3000)  # of the groups 3001 to 3040
NOT_KNOWN = auth_sys(4711, 4711)


def test_a_user_whose_groups_cannot_be_told_waits():
    a = make(ADMIN)
    d = a.mkdir(a.root(), "groups", attrs={"mode": 0o777})
    # All but the group 3040 may enter: a user without known groups would get in.
    shut = a.mkdir(d, "shut", attrs={"mode": 0o707, "owner_group": "3040"})
    a.no("ACCESS", putfh(shut), create(DIR, "x"), cred=MANY)
    a.ok(putfh(shut), create(DIR, "by another"), cred=NOT_KNOWN)
    sid, _ = a.open(d, "lock", cred=MANY)
    with users_unreadable():
        # What the server knew counts for a while. Then it knows nothing.
        a.no("ACCESS", putfh(shut), create(DIR, "x"), cred=MANY)
        alive(a, 2 * KEEP + 0.3)
        watch = Watch(mds_pid(harness.THE))
        for _ in range(20):
            a.no("DELAY", putfh(shut), cred=MANY)
        check(watch.took() < 2, True)
        a.no("DELAY", putrootfh(), cred=MANY)
        a.no("DELAY", putrootfh(), cred=auth_sys(4712, 4712))
        # What needs no user goes on: SEQUENCE renews the lease and its slot is used, and
        # TEST_STATEID works.
        check(err(a.ok(test_stateid(sid), cred=MANY).statuses[0]), "OK")
        a.ok(putfh(shut), getattr_("type"))  # root has no groups
        alive(a, 1.2)
        check(1 <= log_lines("cannot look up") <= 2, True, "the log has a line now and then")
    got = a.until(lambda got: err(got.status) != "DELAY", putfh(shut), create(DIR, "x"), cred=MANY,
                  tries=40)
    check(err(got.status), "ACCESS")
    # No caller waits for the next try.
    a.until(lambda got: got.status == 0, putfh(shut), create(DIR, "by one more"),
            cred=auth_sys(4712, 4712), tries=40)


def test_nobody_has_no_groups_to_tell():
    exports(BASE.replace('export "/a" {', 'export "/a" {\n\tsquash = all'))
    c = make(exported.ALL)
    fa = walk(c, "a")
    with users_unreadable():
        c.ok(putfh(fa), getattr_("type"), cred=auth_sys(4713, 4713))
        make(BOTH_C).no("DELAY", putfh(fa), cred=auth_sys(4714, 4714))


def test_an_export_whose_host_cannot_be_told_waits():
    DNS.names["flaky.weft.test"] = False
    exports(BASE + """
export "/n" {
	create = yes privileged_port = no
	client "flaky.weft.test" { access = rw squash = none }
	client "127.0.0.0/8" { }
}
export "/sure" {
	create = yes privileged_port = no
	client "127.0.0.2" { }
	client "flaky.weft.test" { access = rw }
}
export "/same" { create = yes privileged_port = no client "flaky.weft.test 127.0.0.2" { } }
""")
    c, a = make(BOTH_C), make(ADMIN)
    walk(c, "sure")  # what comes behind the first that is met does not matter
    walk(c, "same")  # nor the other patterns of a section that is
    fb = walk(c, "deep", "er", "b")
    wait = "DELAY"
    c.no(wait, putrootfh(), lookup("n"))
    c.no(wait, putrootfh(), secinfo("n"))
    c.no(wait, putrootfh(), open_("n", READ | NO_DELEG))
    c.no(wait, putrootfh(), readdir())  # there, or not there?
    c.no(wait, putrootfh(), secinfo_no_name())
    c.ok(putfh(fb), create(DIR, "other exports go on"))
    check(1 <= log_lines("cannot look up a name in the exports") <= 2, True)
    # There is no such name: the next section.
    DNS.names["flaky.weft.test"] = None
    got = c.until(lambda got: err(got.status) != wait, putrootfh(), lookup("n"), getfh(), tries=40)
    fh = got.results[-1].fh
    c.no("ROFS", putfh(fh), create(DIR, "x"))
    check("n" in [text(n) for n in names(c, c.root())], True)
    # It fails again: what the server knew counts for a while.
    DNS.names["flaky.weft.test"] = False
    alive(c, 1.2)
    c.no("ROFS", putfh(fh), create(DIR, "x"))
    alive(c, 2 * KEEP)
    c.no(wait, putfh(fh))
    c.no(wait, putfh(fb), lookupp(), lookupp(), lookupp(), lookup("n"))
    a.no(wait, putrootfh(), lookup("n"))  # inside an export: neither its own nor another's
    # It is this one: the first section.
    DNS.names["flaky.weft.test"] = BOTH_C
    c.until(lambda got: err(got.status) != wait, putfh(fh), tries=40)
    c.ok(putfh(fh), create(DIR, "x"))


def test_a_peer_whose_name_cannot_be_told_waits():
    DNS.names[reverse_of("127.0.0.41")] = False
    exports(BASE + 'export "/w" { create = yes privileged_port = no client "*.wild.test" { } }')
    conn = Conn(harness.ADDR, source=("127.0.0.41", 0))
    # Perhaps it is a stranger. The server does not say so, and keeps no client for it yet.
    ask = lambda: conn.compound(exchange_id(b"perhaps a stranger", bytes(8)), cred=auth_sys())
    check(err(ask().status), "DELAY")
    DNS.names[reverse_of("127.0.0.41")] = "one.wild.test"
    DNS.names["one.wild.test"] = False  # must lead back
    time.sleep(1.1)
    check(err(ask().status), "DELAY")
    DNS.names["one.wild.test"] = "127.0.0.41"
    eventually(lambda: err(ask().status) == "OK")
    walk(make("127.0.0.41"), "w")
    conn.close()
    DNS.names[reverse_of("127.0.0.42")] = None
    conn = Conn(harness.ADDR, source=("127.0.0.42", 0))
    check(rejected(conn, 1, compound_args([exchange_id(b"a stranger", bytes(8))]), cred=auth_sys()),
          ("denied", 1, 5))
    conn.close()


def test_sessions_go_on_while_name_servers_say_nothing():
    """A look-up of all these names takes longer than the lease, and so does each try."""
    hosts = [f"silent{n}.weft.test" for n in range(7)]
    exports(BASE + f"""
export "/q" {{
	create = yes privileged_port = no
	client "{' '.join(hosts)}" {{ access = rw }}
	client "127.0.0.0/8" {{ }}
}}
""")
    c = make(BOTH_C)
    walk(c, "q")
    b = walk(c, "deep", "er", "b")
    sid, f = c.open(b, "kept through silence", deny=BOTH)
    for host in hosts:
        DNS.names[host] = SILENT
    worst, began = 0.0, time.monotonic()
    # The cached answer grows old, a try fails, and the server makes the next one.
    while time.monotonic() - began < 9:
        before = time.monotonic()
        c.ok()
        worst = max(worst, time.monotonic() - before)
        time.sleep(0.2)
    check(worst < 4, True, f"SEQUENCE waited for {worst:.1f} s")
    c.no("DELAY", putrootfh(), lookup("q"))
    c.ok(putfh(f), write(sid, 0, b"words", FILE_SYNC))
    before = time.monotonic()
    walk(make(ONLY_B), "deep", "er", "b")  # its first question does not take long either
    check(time.monotonic() - before < 5, True,
          f"a new client waited for {time.monotonic() - before:.1f} s")
    c.ok(putfh(f), close(sid))
    for host in hosts:
        DNS.names[host] = None
    c.until(lambda got: err(got.status) != "DELAY", putrootfh(), lookup("q"), tries=300)


# ---- exports that go

WITHOUT_B = BASE.replace("127.0.0.2, 127.0.0.6", "127.0.0.6")


def objects():
    """Objects with data: a fence makes empty ones. Skips files that go while it looks."""

    def size(path):
        try:
            return os.path.getsize(path) if os.path.isfile(path) else 0
        except FileNotFoundError:
            return 0

    return sum(size(p) > 0 for p in glob.glob(f"{exported.CLUSTER.dir}/ds*/objects/**",
                                              recursive=True))


def test_what_is_held_of_an_export_that_goes_is_given_back():
    c, other = make(BOTH_C), make(ONLY_B)
    b = walk(c, "deep", "er", "b")
    sid, f = c.open(b, "held", deny=BOTH)
    lk = c.ok(putfh(f), lock(sid, WRITE_LT, 0, 10, owner=b"locker")).stateid
    other.no("SHARE_DENIED", putfh(b), open_("held", READ | NO_DELEG))
    s2, f2 = c.open(b, "reads")
    c.ok(putfh(f2), close(s2))
    deleg = c.ok(putfh(f2), open_(claim_fh(), READ | WANT_READ)).all[1]
    check(deleg.deleg in (D_READ, D_READ_TIMES), True)
    s3, f3 = c.open(b, "laid out")
    layout = lay(c, f3, s3)
    before = objects()
    s4, f4 = c.open(b, "unlinked")
    c.ok(putfh(f4), write(s4, 0, b"x", FILE_SYNC))
    other.ok(putfh(b), remove("unlinked"))
    check(objects(), before + 1)
    recalls = {}
    c.on_callback = lambda name, args: recalls.setdefault(name, args) and 0
    exports(WITHOUT_B)
    eventually(lambda: {"RECALL", "LAYOUTRECALL"} <= set(recalls), what="recalls")
    # It is good for nothing else.
    for ops in ([getattr_("type")], [read(sid, 0, 1)], [write(sid, 0, b"x")], [savefh()],
                [lookup("x")], [open_(claim_fh(), READ | NO_DELEG)],
                [lock(sid, WRITE_LT, 20, 1, owner=b"l")], [layoutget(s3)], [commit()], []):
        got = c.call(putfh(f), *ops)
        check((err(got.status), len(got.results)), ("STALE", 2), ops)
    for first, name in ((getattr_("type"), "GETATTR"),
                        (setattr_(deleg.deleg_stateid, mode=0o777), "SETATTR")):
        got = c.call(putfh(f), first, close(sid))
        check((err(got.status), got.results[-1].op), ("ACCESS", name),
              "attributes are not told or set")
    for ops in ([read(lk, 0, 1)], [savefh()], [getfh()], [open_(claim_fh(), READ | NO_DELEG)],
                [commit()]):
        lk = c.ok(putfh(f), locku(lk, 5, 1)).stateid
        got = c.call(putfh(f), locku(lk, 5, 1), *ops)
        check((err(got.status), len(got.results)), ("STALE", 4), ops)
        lk = got.results[2].stateid
    make(ADMIN).no("BAD_STATEID", putfh(f), close(sid))
    forged = bytearray(f)
    forged[19] ^= 1
    check(err(c.call(putfh(bytes(forged)), close(sid)).results[1].status), "BADHANDLE")
    c.no("LOCKS_HELD", putfh(f), close(sid))
    lk = c.ok(putfh(f), locku(lk)).stateid
    c.ok(free_stateid(lk))
    sid = c.ok(putfh(f), open_downgrade(sid, READ)).stateid
    c.ok(putfh(f2), close(deleg.stateid))
    c.ok(putfh(f), close(sid))
    other.ok(putfh(b), open_("held", BOTH | NO_DELEG))
    c.ok(putfh(f2), delegreturn(deleg.deleg_stateid))
    c.ok(putfh(f3), layoutreturn(recalls["LAYOUTRECALL"].stateid), close(s3))
    c.ok(putfh(f4), close(s4))
    eventually(lambda: objects() == before, what="the end of the unlinked file's object")
    check([err(n) for n in c.ok(test_stateid(deleg.deleg_stateid, layout.stateid, sid)).statuses],
          ["BAD_STATEID"] * 3)
    check(c.ok().flags, 0)


def test_what_goes_is_given_back_by_its_client_alone():
    """A stranger on another host that has read the ids off the wire is no client, and neither is a
    caller without a user."""
    c = make(BOTH_C)
    b = walk(c, "deep", "er", "b")
    sid, f = c.open(b, "held")
    lk = c.ok(putfh(f), lock(sid, WRITE_LT, 0, 10, owner=b"locker")).stateid
    s2, f2 = c.open(b, "laid out")
    layout = lay(c, f2, s2)
    s3, f3 = c.open(b, "delegated")
    c.ok(putfh(f3), close(s3))
    deleg = c.ok(putfh(f3), open_(claim_fh(), READ | WANT_READ)).all[1]
    check(deleg.deleg in (D_READ, D_READ_TIMES), True)
    exports(WITHOUT_B)
    asks = ((f, locku(lk)), (f, open_downgrade(sid, READ)), (f, close(sid)),
            (f2, layoutreturn(layout.stateid)), (f3, delegreturn(deleg.deleg_stateid)),
            (f2, close(s2)))
    for addr, cred in ((exported.RO, None), (ADMIN, None), (BOTH_C, harness.NOBODY)):
        conn = Conn(harness.ADDR, source=(addr, 0))
        for fh, ask in asks:
            got = c.call(putfh(fh), ask, conn=conn, cred=cred)
            check((err(got.status), len(got.results)), ("STALE", 2), (addr, ask))
        conn.close()
    conn = Conn(harness.ADDR, source=(BOTH_C, 0))  # its own, made again, with any user
    c.ok(putfh(f2), layoutreturn(layout.stateid), close(s2), conn=conn, cred=MANY)
    lk = c.ok(putfh(f), locku(lk), conn=conn).stateid
    c.ok(free_stateid(lk), conn=conn)
    c.ok(putfh(f), close(sid), conn=conn)
    c.ok(putfh(f3), delegreturn(deleg.deleg_stateid), close(deleg.stateid), conn=conn)
    conn.close()


def test_layouts_of_an_export_that_goes_come_back_together():
    c = make(BOTH_C)
    b = walk(c, "deep", "er", "b")
    s, f = c.open(b, "together")
    held = lay(c, f, s)
    c.on_callback = lambda name, args: 10008
    exports(WITHOUT_B)
    c.ok(putfh(f), layoutreturn(how=RET_FSID))
    check(err(c.ok(test_stateid(held.stateid)).statuses[0]), "BAD_STATEID")
    c.ok(putfh(f), close(s))


def test_who_may_use_nothing_any_more_loses_it_with_its_lease():
    c, other = make(ONLY_B), make(BOTH_C)
    b = walk(c, "deep", "er", "b")
    _, f = c.open(b, "denied", deny=BOTH)
    exports(BASE.replace("127.0.0.2, 127.0.0.6", "127.0.0.2"))
    try:
        c.call(putfh(f))
        raise AssertionError("a stranger by now is served")
    except Rejected:
        pass
    other.no("SHARE_DENIED", putfh(b), open_("denied", BOTH | NO_DELEG))
    other.until(lambda got: got.status == 0, putfh(b), open_("denied", BOTH | NO_DELEG), tries=80,
                pause=0.1)


# ---- a copy that goes on


def two_files(c, d):
    c.ok(putfh(d), setxattr("weft.policy", "stripes=1"))
    src = c.open(d, "src")
    # No server has both: the copy goes through the metadata server.
    c.ok(putfh(d), setxattr("weft.policy", "mirrors=2"))
    dst = c.open(d, "dst")
    c.ok(putfh(src[1]), write(src[0], 0, b"x", FILE_SYNC), setattr_(src[0], size=4 << 30))
    return src, dst


def begin_copy(c, src, dst):
    job = c.ok(putfh(src[1]), savefh(), putfh(dst[1]),
               copy(src[0], dst[0], synchronous=False)).callback
    eventually(lambda: c.ok(putfh(dst[1]), offload_status(job)).count, 10, "progress")
    return job


def big_copy(c, d):
    src, dst = two_files(c, d)
    return src, dst, begin_copy(c, src, dst)


def copy_stops(c, want, table):
    src, dst, job = big_copy(c, walk(c, "deep", "er", "b"))
    exports(table)
    cb = c.wait_callback("OFFLOAD")
    check((cb.stateid, err(cb.status), 0 < cb.count < 4 << 30), (job, want, True))
    exports(BASE)
    c.ok(putfh(dst[1]), close(dst[0]), putfh(src[1]), close(src[0]))


def test_a_copy_stops_when_its_export_becomes_read_only():
    copy_stops(make(BOTH_C), "ROFS",
               BASE.replace('127.0.0.6" { access = rw', '127.0.0.6" { access = ro'))


def test_a_copy_stops_when_its_export_is_no_more_the_clients():
    copy_stops(make(BOTH_C), "STALE", WITHOUT_B)


def test_a_copy_stops_when_its_flavour_is_not_taken_any_more():
    copy_stops(make(BOTH_C), "ACCESS",
               BASE.replace('127.0.0.6" { access = rw', '127.0.0.6" { access = rw sec = {none}'))


def test_a_copy_goes_on_over_a_reload_that_leaves_it_its_right():
    c = make(BOTH_C)
    src, dst, job = big_copy(c, walk(c, "deep", "er", "b"))
    # The second has a name to look up.
    for n, more in enumerate(('client "127.0.0.77" { }', 'client "named.weft.test" { }')):
        exports(BASE.replace('export "/deep/er/b" {', 'export "/deep/er/b" { ' + more))
        count = c.ok(putfh(dst[1]), offload_status(job)).count
        eventually(lambda: c.ok(putfh(dst[1]), offload_status(job)).count > count + 20 * MB, 10,
                   f"progress after reload {n}")
    check(c.ok(putfh(dst[1]), offload_status(job)).complete, [])
    # The server cannot look up a name in the way: the copy waits, and goes on.
    DNS.names["flaky.weft.test"] = False
    exports(BASE.replace('export "/deep/er/b" {',
                         'export "/deep/er/b" { client "flaky.weft.test" { access = ro }'))
    c.no("DELAY", putfh(dst[1]))
    DNS.names["flaky.weft.test"] = None
    c.until(lambda got: err(got.status) != "DELAY", putfh(dst[1]), tries=60)
    count = c.ok(putfh(dst[1]), offload_status(job)).count
    eventually(lambda: c.ok(putfh(dst[1]), offload_status(job)).count > count, 10,
               "progress after a wait")
    c.ok(putfh(dst[1]), offload_cancel(job), close(dst[0]), putfh(src[1]), close(src[0]))


def test_copies_that_wait_for_a_name_leave_their_place():
    """As many copies as run at a time wait until the server knows their client. Another client's
    copy goes on. (There is one loop.)"""
    c, o = make(BOTH_C), make(ONLY_B)
    b = walk(c, "deep", "er", "b")
    its, *files = [two_files(who, c.mkdir(b, f"copy{n}")) for n, who in enumerate((o, c, c, c, c))]
    waiting = [(dst, begin_copy(c, src, dst)) for src, dst in files]
    DNS.names[reverse_of(BOTH_C)], DNS.names[reverse_of(ONLY_B)] = SILENT, None
    resolver(5)
    try:
        exports(BASE.replace('export "/deep/er/b" {', 'export "/deep/er/b" { client "*.wild.test" '
                             '{ access = rw squash = none }'))
        watch = Watch(mds_pid(harness.THE))
        job = begin_copy(o, *its)
        took = watch.took()
        check(took < 1.8, True, f"held up for {took:.1f} s")
    finally:
        resolver(1)
        DNS.names[reverse_of(BOTH_C)] = None
    c.until(lambda got: err(got.status) != "DELAY", putfh(b), tries=200)
    o.ok(putfh(its[1][1]), offload_cancel(job))
    for dst, job in waiting:
        c.ok(putfh(dst[1]), offload_cancel(job))


# ---- COMMIT (18.3), TEST_STATEID (18.48)


def test_commit_is_for_those_who_write():
    c, two = make(ADMIN), make(BOTH_C)
    d = c.mkdir(c.root(), "commit", attrs={"mode": 0o777})
    owner, other = auth_sys(1000, 1000), auth_sys(2000, 2000)
    s, f = c.open(d, "f", cred=owner, attrs={"mode": 0o644})
    c.ok(putfh(f), write(s, 0, b"words"), cred=owner)
    c.ok(putfh(f), commit(), cred=owner)
    # From the client that has it open for writing. Which of its users wrote is for the client to
    # know.
    c.ok(putfh(f), commit(), cred=other)
    c.ok(putfh(f), setattr_(s, mode=0o444), cred=owner)
    c.ok(putfh(f), commit(), cred=owner)
    c.ok(putfh(f), close(s), cred=owner)
    c.ok(putfh(f), commit(), cred=owner)  # the owner, whatever the mode
    c.no("ACCESS", putfh(f), commit(), cred=other)
    s, _ = c.open(d, "f", READ, cred=other, how=None)
    c.no("ACCESS", putfh(f), commit(), cred=other)
    c.ok(putfh(f), setattr_(mode=0o666), commit())
    c.ok(putfh(f), commit(), cred=other)
    # A read only export: only what was opened before it was.
    a = walk(two, "a")
    two.ok(putfh(a), setattr_(mode=0o777))
    s, f = two.open(a, "commit")
    two.ok(putfh(f), write(s, 0, b"words"))
    make(exported.RO).no("ACCESS", putfh(f), commit())
    exports(BASE.replace('client "127.0.0.2" { access = rw squash',
                         'client "127.0.0.2" { access = ro squash'))
    two.no("ROFS", putfh(f), write(s, 0, b"words"))
    two.ok(putfh(f), commit(), close(s))
    two.no("ACCESS", putfh(f), commit())


def test_many_stateids_are_tested():
    c = make(ADMIN)
    d = c.mkdir(c.root(), "stateids")
    s, f = c.open(d, "f")
    n = min(c.session.fore.maxreq // 16, c.session.fore.maxresp // 4) - 100
    check(n > 10000, True, n)
    got = c.ok(test_stateid(*[s if i % 3 == 0 else (1, bytes([i % 251 + 1]) * 12)
                              for i in range(n)]))
    check([err(x) for x in got.statuses], ["OK" if i % 3 == 0 else "BAD_STATEID" for i in range(n)])
    c.ok(putfh(f), close(s))
    small = make(ADMIN, fore={"maxresp": 2000, "cached": 2000})
    small.no("REP_TOO_BIG", test_stateid(*[(1, b"\1" * 12)] * 500))
    check(len(small.ok(test_stateid(*[(1, b"\1" * 12)] * 400)).statuses), 400)


# ---- connections


def test_a_peer_that_is_gone_ends_its_connection_in_a_minute():
    """TCP_USER_TIMEOUT, read from the server's own sockets."""
    c = make(ADMIN)
    with open(f"{exported.CLUSTER.dir}/run/mds.pid", encoding="ascii") as f:
        pid = int(f.read())
    libc = ctypes.CDLL(None, use_errno=True)
    pidfd, found = libc.syscall(434, pid, 0), []
    for fd in os.listdir(f"/proc/{pid}/fd"):
        try:
            if not os.readlink(f"/proc/{pid}/fd/{fd}").startswith("socket:"):
                continue
        except OSError:
            continue
        mine = libc.syscall(438, pidfd, int(fd), 0)
        if mine < 0:
            raise OSError(ctypes.get_errno(), "pidfd_getfd")
        with socket.socket(fileno=mine) as s, contextlib.suppress(OSError):
            if s.getpeername()[:2] == c.conn.sock.getsockname()[:2]:
                found.append((s.getsockopt(socket.IPPROTO_TCP, 18),
                              s.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)))
    os.close(pidfd)
    check(found, [(60000, 1)])


# ---- harness


@contextlib.contextmanager
def around(name):
    exports(BASE)
    with harness.clients(closing=True):
        yield ()


def main():
    global DNS
    top = tempfile.mkdtemp(prefix="weft-trust-test.")
    exported.FILE = os.path.join(top, "exports")
    exported.write_file(BASE)
    exported.own_files(top)
    with open("/etc/nsswitch.conf", "a", encoding="ascii") as f:
        f.write("hosts: files dns\n")
    with contextlib.suppress(FileNotFoundError):
        os.unlink("/etc/resolv.conf")
    resolver(1)
    try:
        DNS = Dns()
        exported.CLUSTER = Cluster(ds=2, settings=[f"mds.exports={exported.FILE}",
                                                       "mds.groups=server", "mds.names_keep=1s",
                                                       "mds.lease=5s", "mds.recall_deadline=5s"])
        harness.THE = exported.CLUSTER
        tap.run(tap.named(globals()), around)
    finally:
        if exported.CLUSTER:
            exported.CLUSTER.down()
        subprocess.run(["umount", "/etc"], check=False)
        shutil.rmtree(top)


if __name__ == "__main__":
    main()
