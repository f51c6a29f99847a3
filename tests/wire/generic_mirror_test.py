#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Copies and stripes on any NFSv3 server, alone and beside our data servers. Prints TAP.

It runs tests of repair_test, truth_test and fenced_test on such servers, and tests that only such
servers need.
"""
import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../wirelib"))
import healing  # noqa: E402
import harness  # noqa: E402
import nfs3  # noqa: E402
import tap  # noqa: E402
from daemons import ask  # noqa: E402
from foreign import FIRST_PORT, KINDS, Foreign  # noqa: E402
from harness import *  # noqa: E402,F403
from steps import data_server, settled  # noqa: E402
from files import MB, content, layout_of  # noqa: E402
from tool import rows, weft  # noqa: E402
from nfs41 import err  # noqa: E402
from mirrored import (BLOCK, QUICK, Shared, Wide, equal, object_path, servers, states,  # noqa: E402
                      whole)

WIDE = Wide.__init__


def of_kind(kind):
    """Puts the copies of a test's files where this kind of test wants them. Test names say which
    copy is on a foreign server."""
    def init(self, name, size=3 * MB, policy="mirrors=2"):
        WIDE(self, name, size, policy + "," + KINDS[kind])
    return init


def borrowed(name, *kinds):
    """Runs a test of another file here, for these kinds."""
    for kind in kinds:
        def test(w, kind=kind):
            Wide.__init__ = of_kind(kind)
            try:
                getattr(healing, name)(w)
            finally:
                Wide.__init__ = WIDE
        globals()[f"test_{name}_{kind}"] = test


borrowed("a_copy_that_missed_a_write_heals_in_place", "source", "target", "both")
borrowed("a_server_that_comes_back_gets_what_it_missed", "source", "target")
borrowed("one_that_stays_away_is_replaced", "both")
borrowed("a_restart_of_the_metadata_server_in_the_middle", "target")
borrowed("a_restart_of_either_data_server_in_the_middle", "source", "target")
borrowed("a_client_that_dies_leaves_copies_that_are_made_equal", "target")
borrowed("one_that_is_given_up_does_too", "both")
borrowed("a_writer_that_is_fenced_does_too", "source")
borrowed("no_size_is_set_while_a_repair_is_about_to_copy", "target")
borrowed("nothing_is_written_while_layouts_with_a_stale_copy_come_back", "target")
borrowed("a_write_that_comes_late_is_refused", "both", "target")


borrowed("one_that_waited_in_a_server_that_stood_still_is_never_read", "target")


def open_in(name, policy):
    c = client()
    d = c.mkdir(c.root(), name)
    c.ok(putfh(d), setxattr("weft.policy", policy))
    s, f = c.open(d, "f")
    return c, s, f


def test_a_striped_file_does_not_end_before_its_end(w):
    """A client that reads a hole of it does not get the end of the file there."""
    c, s, f = open_in("stripes", "stripes=2,group=kind=nfs3")
    o = settled(c, f, s)
    check(len(o.mirrors[0]), 2)
    ds = [data_server(c, server) for server in o.mirrors[0]]
    at = lambda n, off, count: ds[n].read(o.mirrors[0][n].fhs[0], off, count)  # noqa: E731
    check(ds[1].write(o.mirrors[0][1].fhs[0], 3 * MB, b"the end", FILE_SYNC).status, 0)
    check(c.attrs(f, "size").size, 3 * MB + 7)
    check((at(0, 2 * MB, 65536).data, at(1, MB, 65536).data), (bytes(65536), bytes(65536)))
    before = c.attrs(f, "change", "time_modify")
    time.sleep(0.3)
    now = c.attrs(f, "change", "time_modify")
    check((now.change, now.time_modify), (before.change, before.time_modify), "that is no write")
    # Through the metadata server as well
    c.ok(putfh(f), write(s, 8 * MB + 5, b"later", FILE_SYNC))
    check((at(0, 6 * MB, 4096).data, at(1, 7 * MB, 4096).data), (bytes(4096), bytes(4096)))
    check(c.attrs(f, "size").size, 8 * MB + 10)
    c.ok(putfh(f), layoutreturn(o.stateid))
    c.until(lambda got: err(got.status) != "DELAY", putfh(f), setattr_(s, size=MB + 1), tries=200)
    check((c.attrs(f, "size").size, content(c, f, s)), (MB + 1, bytes(MB + 1)))
    r = c.ok(putfh(f), seek(s, 0, 0))
    check((r.eof, r.offset), (False, 0))


def test_stripes_and_copies_of_both_kinds_in_one_file(w):
    x = Wide("mixed", 5 * MB - 3, "mirrors=2,group0=kind=weft,group1=kind=nfs3")
    c, s, f = open_in("four", "stripes=2,mirrors=2,group0=kind=weft,group1=kind=nfs3")
    check({n[0] for n in servers(c, f)[:2]} | {n[0] + "!" for n in servers(c, f)[2:]}, {"d", "g!"})
    for off in range(0, 5 * MB, MB):
        c.ok(putfh(f), write(s, off, bytes(x.data[off:off + MB]), FILE_SYNC))
    check(content(c, f, s) == bytes(x.data), True)
    x.give_back()
    for path in ("/mixed/f", "/four/f"):
        weft(w, "mirror", "verify", path)
    # Objects of ours end at their last byte, foreign ones where the file ends. That is no finding.
    x.c.attrs(x.f, "size"), c.attrs(f, "size")
    time.sleep(0.5)
    got = json.loads(subprocess.run([os.path.join(BUILD, "weft"), "--admin", w.where["mds"], "fsck",
                                     "--online", "--json"], capture_output=True, text=True,
                                    timeout=60, check=False).stdout)
    check((got["found"], got["busy"], got["files"]), (0, 0, 2), got["findings"])
    # A byte of a foreign copy differs: the scrub finds it, and mends it from ours.
    one = layout_of(x.c, x.f)["mirrors"][1]["objects"][0]
    with open(os.path.join(w.dir, one["ds"], one["object"]), "r+b") as p:
        p.seek(MB + 77)
        p.write(bytes([x.data[MB + 77] ^ 1]))
    weft(w, "mirror", "verify", "/mixed/f", rc=1)
    weft(w, "mirror", "verify", "--mend", "/mixed/f", rc=1)
    eventually(lambda: whole(x.c, x.f), 15, "repair")
    equal(w, x.c, x.f, bytes(x.data))


def test_mirrors_come_and_go_there_and_files_move(w):
    x = Wide("moves", 3 * MB, "group0=kind=weft")
    x.give_back()
    weft(w, "mirror", "add", "/moves/f", "--group", "kind=nfs3")
    eventually(lambda: len(states(x.c, x.f)) == 2 and whole(x.c, x.f), 15, "the new mirror")
    equal(w, x.c, x.f, bytes(x.data))
    weft(w, "mirror", "remove", "/moves/f", "0")
    eventually(lambda: len(states(x.c, x.f)) == 1, 15, "one mirror less")
    name, = servers(x.c, x.f)
    check((name[0], content(x.c, x.f, x.s) == bytes(x.data)), ("g", True))
    # A drain moves it to the other foreign server.
    weft(w, "ds", "drain", name)
    eventually(lambda: servers(x.c, x.f)[-1] != name and len(states(x.c, x.f)) == 1, 15, "the move")
    check((servers(x.c, x.f)[0][0], content(x.c, x.f, x.s) == bytes(x.data)), ("g", True))
    eventually(lambda: rows(w)[name].get("drain") == "drained", 10, "nothing is left there")
    weft(w, "move", "/moves/f", "--group", "kind=weft")
    eventually(lambda: servers(x.c, x.f)[-1][0] == "d" and len(states(x.c, x.f)) == 1, 15,
               "the move back")
    equal(w, x.c, x.f, bytes(x.data))


def test_one_that_is_dead_is_done_without_and_comes_back(w):
    x = Wide("away", 3 * MB, "mirrors=2,group0=kind=weft,group1=kind=nfs3")
    name = servers(x.c, x.f)[1]
    x.c.on_callback = lambda what, args: None  # it keeps its layout
    stand_still(w.servers[name].child.pid)
    try:
        eventually(lambda: rows(w)[name]["state"] == "dead", 20, "it is declared dead")
        two = client()
        s = two.ok(putfh(x.f), open_(claim_fh(), BOTH | NO_DELEG)).stateid
        began = time.monotonic()
        two.until(lambda got: err(got.status) != "DELAY", putfh(x.f),
                  write(s, 0, b"without it", FILE_SYNC), tries=400)
        tap.say(f"written after {time.monotonic() - began:.1f} s")
        check(states(two, x.f)[0], "in-sync")
    finally:
        os.kill(w.servers[name].child.pid, signal.SIGCONT)
    eventually(lambda: rows(w)[name]["state"] == "alive", 10, "it is back")
    eventually(lambda: whole(two, x.f), 20, "repair")
    x.data[:10] = b"without it"
    equal(w, two, x.f, bytes(x.data))
    # The client's old handle is fenced, or gone: ACCES, STALE.
    at = next(i for i, m in enumerate(x.o.mirrors) if int(m[0].user) >= 1 << 30)
    check(x.ds[at].write(x.o.mirrors[at][0].fhs[0], 0, b"late").status in (13, 70), True)


def test_nothing_of_before_is_left_behind_an_end_that_a_write_moves(w):
    """The copy is longer than the source. The write arrives after the repair has read the source's
    end."""
    x = Wide("behind", 3 * MB // 2, "mirrors=2,group0=kind=weft,group1=kind=nfs3")
    name = servers(x.c, x.f)[1]
    at = next(i for i, m in enumerate(x.o.mirrors) if int(m[0].user) >= 1 << 30)
    check(x.ds[at].write(x.o.mirrors[at][0].fhs[0], 2 * MB, b"old" * 100000, FILE_SYNC).status, 0)
    x.report(at)
    x.c.ok(putfh(x.f), layoutreturn(x.o.stateid))
    eventually(lambda: w.metric("weft_mds_repair_equal_bytes_total") >= MB, 10,
               "the first of two windows")
    stand_still(w.servers[name].child.pid)
    try:
        time.sleep(1.5)  # repair has read the source, and not what is here
        two = client()
        s = two.ok(putfh(x.f), open_(claim_fh(), BOTH | NO_DELEG)).stateid
        done = two.begin(putfh(x.f), write(s, 4 * MB, b"the end", FILE_SYNC))
        time.sleep(0.3)
    finally:
        os.kill(w.servers[name].child.pid, signal.SIGCONT)
    check(err(two.finish(done).status), "OK")
    eventually(lambda: whole(x.c, x.f), 20, "repair")
    equal(w, x.c, x.f, bytes(x.data) + bytes(4 * MB - len(x.data)) + b"the end")


def test_what_is_found_equal_is_looked_at_again_after_a_restart(w):
    x = Wide("equal", 6 * MB, "mirrors=2,group0=kind=weft,group1=kind=nfs3")
    name = servers(x.c, x.f)[1]
    at = next(i for i, m in enumerate(x.o.mirrors) if int(m[0].user) >= 1 << 30)
    x.report(at)
    x.c.ok(putfh(x.f), layoutreturn(x.o.stateid))
    same = lambda: w.metric("weft_mds_repair_equal_bytes_total")  # noqa: E731
    eventually(lambda: same() >= MB, 20, "the first window")
    w.dev("kill", w.dir, name, "-9")
    w.dev("start", w.dir, name)
    eventually(lambda: whole(x.c, x.f), 40, "repair")
    # In its place, or made again elsewhere.
    check(same() + w.metric("weft_mds_repair_written_bytes_total") >= 7 * MB, True, same())
    equal(w, x.c, x.f, bytes(x.data))


def test_a_copy_that_denies_for_good_does_not_keep_the_other_from_being_written(w):
    x = Wide("denied", MB, "mirrors=2,group0=kind=weft,group1=kind=nfs3")
    x.give_back()
    os.chown(os.path.realpath(object_path(w, x.c, x.f, 1)), 0, 0)
    x.data[5:10] = b"again"
    got = x.c.until(lambda got: err(got.status) != "DELAY", putfh(x.f),
                    write(x.s, 5, b"again", FILE_SYNC), tries=100)
    check(err(got.status), "OK")
    # The copy lacks the write. Repair mends it and gives it to its owner again.
    check("copy-stale" in [
        e["kind"] for e in map(json.loads, weft(w, "--json", "events").splitlines())], True)
    eventually(lambda: whole(x.c, x.f), 15, "repair")
    equal(w, x.c, x.f, bytes(x.data))


def test_nor_from_being_copied_to(w):
    x = Wide("copied", MB, "mirrors=2,group0=kind=weft,group1=kind=nfs3")
    x.give_back()
    s, f = x.c.open(x.d, "src")
    x.c.ok(putfh(f), write(s, 0, b"of another", FILE_SYNC))
    os.chown(os.path.realpath(object_path(w, x.c, x.f, 1)), 0, 0)
    x.data[7:17] = b"of another"
    r = x.c.ok(putfh(f), savefh(), putfh(x.f), copy(s, x.s, 0, 7, 10), timeout=60)
    check(r.count, 10)
    check("copy-stale" in [
        e["kind"] for e in map(json.loads, weft(w, "--json", "events").splitlines())], True)
    eventually(lambda: whole(x.c, x.f), 15, "repair")
    equal(w, x.c, x.f, bytes(x.data))


def test_no_other_stripes_and_no_balance_with_what_copies_nothing(w):
    """Files on such servers, and policies that lead to them, cannot get other stripes. The balancer
    reports only our servers as behind, and moves nothing to or from the others."""
    c, s, f = open_in("there", "group=kind=nfs3")
    c.ok(putfh(f), write(s, 0, bytes(range(256)) * 4096, FILE_SYNC))
    one, t, g = open_in("here", "group=kind=weft")
    one.ok(putfh(g), write(t, 0, bytes(range(256)) * 4096, FILE_SYNC))
    check("generic" in weft(w, "move", "/there/f", "--stripes", "2", rc=1), True)
    weft(w, "move", "/here/f", "--stripes", "2", "--wait")
    check((len(servers(one, g)), {n[0] for n in servers(one, g)}), (2, {"d"}))
    said = weft(w, "balance", "--dry-run", "--spread", "1", "--json")
    moves = json.dumps(json.loads(said)["moves"])
    check(('"g1"' in moves, '"g2"' in moves), (False, False), said)
    weft(w, "balance", "--spread", "1")
    time.sleep(1)
    check((servers(c, f)[0][0], {n[0] for n in servers(one, g)}), ("g", {"d"}))
    check(content(c, f, s) == bytes(range(256)) * 4096, True)


def test_one_that_is_killed_by_word_is_nobodys_and_is_admitted_again(w):
    c, s, f = open_in("killed", "group=kind=nfs3")
    c.ok(putfh(f), write(s, 0, b"only here", FILE_SYNC))
    name, = servers(c, f)
    weft(w, "ds", "kill", name)
    check(rows(w)[name]["state"], "killed")
    c.no("IO", putfh(f), read(s, 0, 9))
    check("1 files have objects there, and for 1 of them that is the only copy"
          in weft(w, "ds", "forget", name, rc=1), True)
    weft(w, "ds", "admit", name)
    eventually(lambda: rows(w)[name]["state"] == "alive", 10, "it is admitted")
    got = c.until(lambda got: err(got.status) not in ("DELAY", "IO"), putfh(f), read(s, 0, 9),
                  tries=200)
    check(got.results[-1].data, b"only here")


def sound(w):
    """Checks the store with its checker, while the cluster is down."""
    w.dev("down", w.dir)
    done = subprocess.run([os.path.join(BUILD, "weft-fsck"), "--json", os.path.join(w.dir, "mds")],
                          capture_output=True, text=True, timeout=60, check=False)
    check((done.returncode, json.loads(done.stdout)["violations"]), (0, []))
    w.dev("up", w.dir)


def below(w, name):
    """What is left on a server: our directories and files."""
    top = os.path.realpath(os.path.join(w.dir, name))
    return [os.path.join(at, n) for at, dirs, files in os.walk(top) for n in dirs + files]


def test_one_that_is_drained_is_forgotten_and_nothing_of_ours_stays_there(w):
    c, s, f = open_in("moved", "group=kind=nfs3")
    c.ok(putfh(f), write(s, 0, b"goes elsewhere", FILE_SYNC))
    name, = servers(c, f)
    check("only a killed server" in weft(w, "ds", "forget", name, rc=1), True)
    weft(w, "ds", "drain", name, "--wait")
    check(len(below(w, name)) >= 24, True, "files made ahead")
    number = rows(w)[name]["number"]
    weft(w, "ds", "kill", name)
    said = weft(w, "ds", "forget", name)
    check((name in said, "could be removed" in said), (True, False), said)
    check((name in rows(w), below(w, name)), (False, []))
    check(content(c, f, s), b"goes elsewhere")
    # The copy may come again, as another one.
    port = int(w.servers[name].keys["listen"].rpartition(":")[2])
    weft(w, "ds", "add", f"nfs3://127.0.0.1:{port}{w.servers[name].path('exp')}",
         f"mount-port={port}", f"name={name}")
    w.alive(name)
    check(rows(w)[name]["number"] > number, True)
    weft(w, "ds", "kill", name)
    os.mkdir(os.path.join(next(at for at in below(w, name) if os.path.isdir(at)), "not ours"))
    said = weft(w, "ds", "forget", name)
    check("not all of weft's objects could be removed from it: RMDIR: " in said, True, said)
    check([os.path.basename(at) for at in below(w, name)][-1:], ["not ours"],
          "what is not ours stays")
    sound(w)
    check(name in rows(w), False, "after a restart")


def test_one_that_is_gone_is_forgotten_with_what_only_it_has(w):
    x = Wide("two", 3 * MB, "mirrors=2,group0=kind=weft,group1=kind=nfs3")
    x.give_back()
    name = servers(x.c, x.f)[1]
    weft(w, "ds", "weight", *[n for n in rows(w) if n[0] == "g" and n != name], "0")
    c, s, f = open_in("one", "group=kind=nfs3")
    c.ok(putfh(f), write(s, 0, b"only here", FILE_SYNC))
    check(servers(c, f), [name])
    there = len(below(w, name))
    w.dev("kill", w.dir, name, "-9")
    weft(w, "ds", "kill", name)
    check("2 files have objects there, and for 1 of them that is the only copy"
          in weft(w, "ds", "forget", name, rc=1), True)
    said = weft(w, "ds", "forget", "--force", name)
    check(("/one/f" in said, "could be removed from it: files have objects there" in said),
          (True, True), said)
    check((name in rows(w), len(below(w, name))), (False, there),
          "what is there stays where it cannot be reached")
    c.no("IO", putfh(f), read(s, 0, 9))
    x.c.until(lambda got: err(got.status) != "DELAY", putfh(x.f),
              write(x.s, 0, b"without", FILE_SYNC), tries=100)
    x.data[:7] = b"without"
    check(content(x.c, x.f, x.s) == bytes(x.data), True)
    d = c.ok(putrootfh(), lookup("one"), getfh()).fh
    c.ok(putfh(d), remove("f"))
    eventually(lambda: w.metric("weft_mds_orders") == 0, 10, "no order is left for it")
    sound(w)


def test_a_server_that_stops_ends_what_waits_for_one_that_stands_still(w):
    name = next(n for n in sorted(rows(w)) if n[0] == "g")
    weft(w, "ds", "kill", name)
    with subprocess.Popen([os.path.join(BUILD, "weft"), "--admin", f"unix:{w.dir}/run/mds.sock",
                           "ds", "forget", name], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True) as asking:
        stand_still(w.servers[name].child.pid)
        try:
            time.sleep(0.3)
            began = time.monotonic()
            w.dev("kill", w.dir, "mds")
            check(time.monotonic() - began < 8, True, "it stops")
            asking.communicate(timeout=60)
            check(asking.returncode != 0, True, "it is told")
        finally:
            asking.kill()
            os.kill(w.servers[name].child.pid, signal.SIGCONT)
    w.dev("start", w.dir, "mds")


def test_who_writes_beside_another_reads_by_a_layout_of_its_own(w):
    """A handle that allows writes there allows reads too. Two clients that write and read have
    one first copy."""
    c, s, f = open_in("shared", "mirrors=2," + KINDS["target"])
    c.ok(putfh(f), write(s, 0, b"0" * BLOCK, FILE_SYNC), close(s))
    a, b = Shared(f).lay(), Shared(f)
    check(a.o.flags, 0, "one writes it")
    for _ in range(20):  # a comparison that began before both had the file ends it
        b.lay()
        a.lay()
        if w.metric("weft_mds_contended_files"):
            break
    check((a.o.flags, len(a.o.mirrors)), (4, 2), "FF_FLAGS_NO_READ_IO")
    reads = settled(a.c, f, a.s, IO_READ)
    check((len(reads.mirrors), reads.mirrors[0][0].deviceid), (1, a.first()))
    a.o.stateid = reads.stateid
    a.give_back()
    b.give_back()
    eventually(lambda: w.metric("weft_mds_contended_files") == 0, 60, "a comparison")
    check(Shared(f).lay().o.flags, 0, "one writes it again")


class Holds:
    """In front of a server: passes calls on, except the first call that has the mark in it."""

    def __init__(self, to, mark):
        self.to, self.mark, self.held, self.go = to, mark, threading.Event(), threading.Event()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            one, _ = self.listener.accept()
            two = socket.create_connection(("127.0.0.1", self.to))
            for run, a, b in ((self.calls, one, two), (self.replies, two, one)):
                threading.Thread(target=run, args=(a, b), daemon=True).start()

    def calls(self, a, b):
        lock = threading.Lock()
        with contextlib.suppress(OSError, EOFError):
            while True:
                call, last = b"", False
                while not last:
                    head = self.exactly(a, 4)
                    last = head[0] >> 7
                    call += head + self.exactly(a, int.from_bytes(head, "big") & 0x7FFFFFFF)
                if self.mark in call and not self.held.is_set():
                    threading.Thread(target=self.later, args=(b, call, lock), daemon=True).start()
                    self.held.set()
                    continue
                with lock:
                    b.sendall(call)
        self.end(a, b)

    def later(self, b, call, lock):
        self.go.wait(60)
        with lock, contextlib.suppress(OSError):
            b.sendall(call)

    def replies(self, a, b):
        with contextlib.suppress(OSError):
            while got := a.recv(1 << 18):
                b.sendall(got)
        self.end(a, b)

    @staticmethod
    def end(*socks):
        for s in socks:
            with contextlib.suppress(OSError):
                s.shutdown(socket.SHUT_RDWR)

    @staticmethod
    def exactly(s, n):
        got = b""
        while len(got) < n:
            more = s.recv(n - len(got))
            if not more:
                raise EOFError
            got += more
        return got


class Cuts(Holds):
    """In front of a server: where it is armed, it ends the connection instead of passing on a
    READ, a WRITE, or a COMMIT of the object's owner."""

    def __init__(self, to):
        self.proc, self.off, self.left, self.n = 0, 0, 0, 0
        self.seen = []  # READs since the last cut: where
        super().__init__(to, b"")

    def arm(self, proc, off, times):
        self.proc, self.off, self.left, self.n, self.seen = proc, off, times, 0, []

    def calls(self, a, b):
        with contextlib.suppress(OSError, EOFError):
            while True:
                call, last = b"", False
                while not last:
                    head = self.exactly(a, 4)
                    last = head[0] >> 7
                    call += self.exactly(a, int.from_bytes(head, "big") & 0x7FFFFFFF)
                if not self.cut(call):
                    b.sendall((len(call) | 1 << 31).to_bytes(4, "big") + call)
                    continue
                break
        self.end(a, b)

    def cut(self, call):
        word = lambda at: int.from_bytes(call[at:at + 4], "big")  # noqa: E731
        if word(12) != 100003 or word(20) not in (READ3, WRITE3, COMMIT3):
            return False
        # AUTH_SYS: stamp, machine, user. Fences and files made ahead are of root.
        if word(20) == COMMIT3 and word(40 + (word(36) + 3) // 4 * 4) < 1 << 30:
            return False
        at = 32 + word(28)  # the verifier, after the credential
        at += 8 + word(at + 4)
        at += 4 + (word(at) + 3) // 4 * 4
        off = word(at) << 32 | word(at + 4)
        if word(20) == self.proc and off >= self.off and self.left > 0:
            self.left -= 1
            self.n += 1
            self.seen = []
            return True
        if word(20) == READ3:
            self.seen.append(off)
        return False


READ3, WRITE3, COMMIT3 = 6, 7, 21


class Restarts(Cuts):
    """Where it is armed, it goes away instead of passing on a call: for 2 s it refuses
    connections."""

    def __init__(self, to):
        self.socks = []
        super().__init__(to)

    def accept(self):
        with contextlib.suppress(OSError):
            super().accept()

    def calls(self, a, b):
        self.socks += [a, b]
        super().calls(a, b)

    def cut(self, call):
        if not super().cut(call):
            return False
        self.listener.shutdown(socket.SHUT_RDWR)  # a thread in accept() would keep the port
        self.listener.close()
        self.end(*self.socks)
        self.socks = []
        threading.Timer(2, self.back).start()
        return True

    def back(self):
        self.listener = socket.create_server(("127.0.0.1", self.port))
        threading.Thread(target=self.accept, daemon=True).start()


def behind(w, name, port, way):
    """A file with its second copy on a server that is reached through that port only."""
    one = w.servers[name]
    os.symlink(one.path("exp"), os.path.join(w.dir, name))
    w.note(name)
    weft(w, "ds", "add", f"nfs3://127.0.0.1:{way}{one.path('exp')}", f"mount-port={port}",
         f"name={name}")
    weft(w, "ds", "group", name, "rack=held")
    w.alive(name)
    policy = "mirrors=2,group0=kind=weft,group1=rack=held"
    two = client()
    d = two.mkdir(two.root(), "ready")
    two.ok(putfh(d), setxattr("weft.policy", policy))
    # Until it has objects for new files.
    two.until(lambda got: err(got.status) != "DELAY", putfh(d),
              open_("f", BOTH | NO_DELEG, how=UNCHECKED, attrs={"mode": 0o644}), tries=200)
    x = Wide("held", 4 * MB, policy)
    return x, two, next(i for i, m in enumerate(x.o.mirrors) if int(m[0].user) >= 1 << 30)


def missed(x, at, word):
    """Each window of the copy lacks an acknowledged write."""
    for off in range(0, 4 * MB, MB):
        data = word * 1000
        x.data[off + 7:off + 7 + len(data)] = data
        check(x.ds[1 - at].write(x.o.mirrors[1 - at][0].fhs[0], off + 7, data, FILE_SYNC).status, 0)


def test_a_lost_connection_does_not_restart_a_copy(w):
    goes_on(w, Cuts)


def test_nor_does_a_server_that_refuses_connections_for_two_seconds(w):
    goes_on(w, Restarts)


def goes_on(w, kind):
    port = FIRST_PORT + 9
    w.servers["g9"] = nfs3.Server(listen=f"127.0.0.1:{port}", mds="127.0.0.1:9")
    way = kind(port)
    x, _, at = behind(w, "g9", port, way.port)
    # The COMMIT is BEGIN's.
    for proc, off in ((READ3, 2 * MB), (WRITE3, 2 * MB), (COMMIT3, 0)):
        missed(x, at, b"%d" % proc)
        failed = w.metric("weft_mds_repair_failures_total")
        way.arm(proc, off, 1)
        x.report(at)
        x.c.ok(putfh(x.f), layoutreturn(x.o.stateid))
        eventually(lambda: way.n == 1 and whole(x.c, x.f), 60, "repair")
        check(w.metric("weft_mds_repair_failures_total"), failed, "it goes on by itself")
        check((min(way.seen), max(way.seen)), (off, 3 * MB), "where it was")
        equal(w, x.c, x.f, bytes(x.data))
        x.open_layout()


def test_a_copy_that_gets_no_further_ends(w):
    port = FIRST_PORT + 9
    w.servers["g9"] = nfs3.Server(listen=f"127.0.0.1:{port}", mds="127.0.0.1:9")
    way = Cuts(port)
    x, _, at = behind(w, "g9", port, way.port)
    missed(x, at, b"n")
    way.arm(WRITE3, 2 * MB, 1 << 30)
    x.report(at)
    x.c.ok(putfh(x.f), layoutreturn(x.o.stateid))
    eventually(lambda: w.metric("weft_mds_repair_failures_total") > 0, 60, "its end")
    check(way.n >= 5, True, f"{way.n} tries")
    waits = json.loads(weft(w, "--json", "mirror", "status"))["waiting"]
    check([f["why"] for f in waits], ["the data server failed"])
    way.left = 0
    eventually(lambda: whole(x.c, x.f), 60, "repair")
    equal(w, x.c, x.f, bytes(x.data))


def steps_of(w):
    """Some steps take half a second: a program would be too slow to see them."""
    return [f["step"] for f in ask(f"unix:{w.dir}/run/mds.sock", "GET", "/v1/repair")["running"]]


def test_sizes_that_are_set_end_a_copy_and_do_not_make_its_server_bad(w):
    """Clients may set sizes as often as they like. The file is not frozen each time at once."""
    x = Wide("sizes", 4 * MB, "mirrors=2,group0=kind=weft,group1=kind=nfs3")
    at = next(i for i, m in enumerate(x.o.mirrors) if int(m[0].user) >= 1 << 30)
    before, pauses = servers(x.c, x.f), []
    failed = lambda: w.metric("weft_mds_repair_failures_total") > 0  # noqa: E731
    until = lambda what: eventually(lambda: steps_of(w) == [what] or failed(), 60,  # noqa: E731
                                    f"the step {what}")
    x.report(at)
    x.c.ok(putfh(x.f), layoutreturn(x.o.stateid))
    until("copy")
    while not failed():
        x.c.until(lambda got: err(got.status) != "DELAY", putfh(x.f),
                  setattr_(x.s, size=4 * MB + 1 + len(pauses) % 2), tries=1000)
        until("recall")
        began = time.monotonic()
        until("copy")
        pauses.append(time.monotonic() - began)
    check(max(pauses) > 3, True, f"pauses that grow to 4 s: {pauses}")
    why = "the file changed while the object was rebuilt"
    with open(os.path.join(w.dir, "log", "mds.log"), encoding="utf-8") as f:
        check(set(re.findall(r"the repair of object .* stopped: (.*)", f.read())), {why})
    # It waits for 2 s, from when that is stored.
    waits = json.loads(weft(w, "--json", "mirror", "status"))["waiting"]
    check([f["why"] for f in waits] in ([why], []), True, f"{waits}")
    eventually(lambda: whole(x.c, x.f), 60, "repair")
    check(servers(x.c, x.f), before, "in its place")
    equal(w, x.c, x.f, bytes(x.data) + bytes(1 + (len(pauses) - 1) % 2))


def test_a_copy_waits_for_a_write_that_it_left_to_its_client(w):
    """The write is under way to the copy, which has older bytes there than the source. Until the
    write is over, the copy counts for nothing."""
    port, mark = FIRST_PORT + 9, b"a write that is held"
    w.servers["g9"] = nfs3.Server(listen=f"127.0.0.1:{port}", mds="127.0.0.1:9")
    held = Holds(port, mark)
    x, two, at = behind(w, "g9", port, held.port)

    def total():
        return (w.metric("weft_mds_repair_equal_bytes_total") +
                w.metric("weft_mds_repair_written_bytes_total"))

    # An acknowledged write that the copy missed.
    x.data[3 * MB:3 * MB + 4096] = b"n" * 4096
    check(x.ds[1 - at].write(x.o.mirrors[1 - at][0].fhs[0], 3 * MB, b"n" * 4096,
                             FILE_SYNC).status, 0)
    s = two.ok(putfh(x.f), open_(claim_fh(), BOTH | NO_DELEG)).stateid
    before = total()
    x.report(at)
    x.c.ok(putfh(x.f), layoutreturn(x.o.stateid))
    eventually(lambda: total() >= before + MB, 60, "the first window")
    data = mark.ljust(4096, b".")
    done = two.begin(putfh(x.f), write(s, 3 * MB, data, FILE_SYNC))
    check(held.held.wait(60), True, "the write is under way")

    eventually(lambda: steps_of(w) == ["end"] or whole(x.c, x.f), 60, "all windows")
    check(whole(x.c, x.f), False, "it has not what was acknowledged")
    held.go.set()
    check(err(two.finish(done).status), "OK")
    x.data[3 * MB:3 * MB + 4096] = data
    eventually(lambda: whole(x.c, x.f), 60, "repair")
    equal(w, x.c, x.f, bytes(x.data))


SETTINGS = {**healing.SETTINGS,
            "nothing_of_before_is_left_behind_an_end_that_a_write": ["mds.repair_rate=1M"],
            "what_is_found_equal_is_looked_at_again_after_a": ["mds.repair_rate=1M"],
            "a_copy_waits_for_a_write_that_it_left_to_its": ["mds.repair_rate=2M"],
            "sizes_that_are_set_end_a_copy_and_do_not_make_its_server": ["mds.repair_rate=1M"],
            # The server does not count as dead.
            "nor_does_a_server_that_refuses_connections_for_two": [
                "mds.ds_refused=60s", "mds.ds_dead=60s", "ds.lease=15s", "mds.repair_wait=60s"]}


@contextlib.contextmanager
def around(name):
    plain = name.rpartition("_")[0]
    both = name.endswith("_both")
    w = harness.THE = Foreign(1 if both else 2, 4 if "stays_away" in name else 3 if both else 2,
                               [*QUICK, *SETTINGS.get(plain, []),
                                *(["mds.repair_rate=4M"] if "restart" in name or "writes" in name
                                  else []),
                                *(["mds.courtesy=1s", "mds.lease=2s"] if "given" in name else []),
                                *(["mds.repair_wait=60s"] if "comes_back" in name
                                  or "data_server" in name or "found_equal" in name else [])])
    try:
        with clients():
            yield (w,)
    finally:
        if os.environ.get("WEFT_TRACE"):
            with open(os.path.join(w.dir, "log", "mds.log"), encoding="utf-8") as f:
                tap.say(f.read())
        w.down()


if __name__ == "__main__":
    tap.run(tap.named(globals()), around, beside=4)
