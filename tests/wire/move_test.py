#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Mirrors that come and go, files that move to other servers, and servers that are drained, while
clients write and across kills of the metadata server. Prints TAP."""
import json
import os
import random
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../wirelib"))
from harness import *  # noqa: E402,F403
from steps import settled  # noqa: E402
from files import MB, content, layout_of  # noqa: E402
from nfs41 import err  # noqa: E402
from mirrored import (QUICK, RACKS, Striped, Wide, bytes_of, equal, racks, servers,  # noqa: E402
                      states, still, whole, writing)
from tool import ask, fsck, weft  # noqa: E402

def objects_on(w, ds):
    """The files of a data server's store that are objects."""
    return [os.path.join(d, p) for d, _, names in os.walk(os.path.join(w.dir, ds))
            for p in names if p.count("-") == 2 or ".o" in p]


def test_a_mirror_more_is_filled_while_a_client_writes(w):
    x = Wide("add", 8 * MB, "stripes=1")
    x.give_back()
    with writing(x):
        got = ask(w, "mirror", "add", "/add/f")
        check(got["files"], 1)
        eventually(lambda: still(x.c, x.f), 30, "the new mirror")
    check(len(set(servers(x.c, x.f))), 2)
    equal(w, x.c, x.f, bytes(x.data))
    check("MIRROR" in weft(w, "mirror", "list", "/add/f"), True)
    check(len(settled(x.c, x.f, x.s).mirrors), 2, "clients write to both")
    fsck(w)


def test_a_mirror_less(w):
    x = Striped("remove", 4 * MB, "stripes=2,mirrors=3")
    before = servers(x.c, x.f)
    x.give_back()
    with writing(x):
        weft(w, "mirror", "remove", "/remove/f", "1", "--wait")
    check(servers(x.c, x.f), before[:2] + before[4:],
          "the second is gone, the others are as they were")
    check(content(x.c, x.f, x.s) == bytes(x.data), True)
    eventually(lambda: w.metric("weft_mds_orders") == 0, 10, "deletion of its objects")
    weft(w, "mirror", "remove", "/remove/f", "0", "--wait")
    check(content(x.c, x.f, x.s) == bytes(x.data), True)
    check("no copy in sync" in weft(w, "mirror", "remove", "/remove/f", "0", rc=1), True)
    check("counted from 0" in weft(w, "mirror", "remove", "/remove/f", "7", rc=1), True)
    check("expected its number" in weft(w, "mirror", "remove", "/remove/f", "first", rc=1), True)
    fsck(w)


def test_the_last_copy_in_sync_is_not_taken_away(w):
    w.dev("down", w.dir)
    w.dev("up", w.dir, "--set", "mds.repair_files=0")
    x = Wide("last")
    x.report(1)
    (stale,) = [i for i, s in enumerate(states(x.c, x.f)) if s == "stale"]
    check("no copy in sync" in weft(w, "mirror", "remove", "/last/f", str(1 - stale), rc=1), True)
    weft(w, "mirror", "remove", "/last/f", str(stale))
    check("being removed" in weft(w, "mirror", "add", "/last/f", rc=1), True)
    got = ask(w, "mirror", "status", "/last/f")
    check([(m["object"], m["state"]) for m in got["moving"]], [(stale, "leaves")])


def test_what_cannot_be_is_refused(w):
    racks(w)
    c = client()
    d = c.mkdir(c.root(), "no")
    c.ok(putfh(d), setxattr("weft.policy", "mirrors=2,domain=rack"))
    c.open(d, "f")
    check("another domain" in weft(w, "mirror", "add", "/no/f", rc=1), True)
    check("labels" in weft(w, "mirror", "add", "/no/f", "--group", "rack", rc=1), True)
    check("not a regular file" in weft(w, "mirror", "add", "/no", rc=1), True)
    check("no such file" in weft(w, "mirror", "add", "/none", rc=1), True)
    told = weft(w, "move", "/no/f", "--policy", "stripes=2,mirrors=2", rc=1)
    check("keeps stripes and unit" in told, True, told)
    check("weft mirror add" in weft(w, "move", "/no/f", "--policy", "mirrors=1", rc=1), True)
    check("expected a destination" in weft(w, "move", "/no/f", rc=1), True)
    check("labels" in weft(w, "move", "/no/f", "--group", "rack=c", rc=1), True)
    check("no such data server" in weft(w, "move", "/no/f", "--from", "ds9", rc=1), True)
    check("no such data server" in weft(w, "ds", "drain", "ds9", rc=1), True)
    c.ok(putfh(d), setxattr("weft.policy", "stripes=22,mirrors=2"))
    c.open(d, "wide")
    check("would not fit" in weft(w, "mirror", "add", "/no/wide", rc=1), True)
    check("would not fit" in weft(w, "move", "/no/wide", "--from", "ds1", rc=1), True)
    fsck(w)


def test_a_copy_that_is_replaced_keeps_to_the_policy(w):
    """Two racks of two servers. When a server dies, the new copy is made in the same rack. Where
    that rack has no server left, the copy waits."""
    racks(w)
    x = Wide("rack", 2 * MB, "mirrors=2,domain=rack")
    check(x.c.ok(putfh(x.f), getxattr("weft.policy")).value,
          b"stripes=1,unit=1M,mirrors=2,domain=rack")
    before = servers(x.c, x.f)
    lost = before[1]
    (other,) = [d for d, r in RACKS.items() if r == RACKS[lost] and d != lost]
    x.give_back()
    w.dev("kill", w.dir, other, "-9")
    w.dev("kill", w.dir, lost, "-9")
    x.c.until(lambda got: err(got.status) != "DELAY", putfh(x.f), write(x.s, 0, b"on", FILE_SYNC),
              tries=200)
    x.data[:2] = b"on"
    time.sleep(5)  # mds.repair_wait and a lease
    weft(w, "mirror", "repair", "/rack/f")
    (one,) = ask(w, "mirror", "status", "/rack/f")["waiting"]
    check(("no data server" in one["why"], states(x.c, x.f)), (True, ["in-sync", "stale"]),
          one["why"])
    w.dev("start", w.dir, other)
    eventually(lambda: whole(x.c, x.f), 20, "repair")
    check(servers(x.c, x.f), [before[0], other])
    equal_on(w, x)


def equal_on(w, x):
    got = bytes_of(w, x.c, x.f)
    check(all(g == bytes(x.data) for g in got), True, "every copy holds what was written")


def test_a_file_moves_while_a_client_writes(w):
    racks(w)
    x = Striped("move", 8 * MB, "stripes=2,mirrors=1,group=rack=a")
    check({RACKS[s] for s in servers(x.c, x.f)}, {"rack=a"})
    x.give_back()
    with writing(x):
        weft(w, "move", "/move/f", "--group", "rack=b", "--wait")
    check({RACKS[s] for s in servers(x.c, x.f)}, {"rack=b"})
    check(x.c.ok(putfh(x.f), getxattr("weft.policy")).value,
          b"stripes=2,unit=1M,mirrors=1,group=rack=b")
    check(content(x.c, x.f, x.s) == bytes(x.data), True)
    eventually(lambda: w.metric("weft_mds_orders") == 0, 10, "deletion of the old objects")
    # Both mirrors, one after the other, and never fewer than two copies.
    weft(w, "mirror", "add", "/move/f", "--wait")
    weft(w, "move", "/move/f", "--policy",
         "stripes=2,mirrors=2,domain=rack,group0=rack=a,group1=rack=b", "--wait")
    check([RACKS[s] for s in servers(x.c, x.f)], ["rack=a"] * 2 + ["rack=b"] * 2)
    weft(w, "move", "/move/f", "--from", "ds1", "--wait")
    last = json.loads(weft(w, "--json", "events", "--kind", "file-moved").splitlines()[-1])
    check((last["path"], last["subject"], "moved to ds2" in last["text"]), ("/move/f", "ds1", True),
          last)
    check("ds1" in servers(x.c, x.f), False)
    check(content(x.c, x.f, x.s) == bytes(x.data), True)
    fsck(w)


def test_a_move_outlives_the_metadata_server(w):
    racks(w)
    x = Striped("crash", 12 * MB, "stripes=2,mirrors=2,domain=rack")
    x.give_back()
    before = servers(x.c, x.f)
    data = bytes(x.data)
    weft(w, "move", "/crash/f", "--from", before[0])
    eventually(lambda: not still(x.c, x.f), 30, "the beginning of the move")
    for i in range(3):
        time.sleep(random.Random(i).random() if i else 0)
        w.restart()
    c = client()
    eventually(lambda: still(c, x.f), 40, "the move")
    check(before[0] in servers(c, x.f), False)
    got = c.until(lambda got: err(got.status) != "GRACE", putfh(x.f),
                  open_(claim_fh(), BOTH | NO_DELEG), tries=200)
    check(content(c, x.f, got.results[-1].stateid) == data, True)
    eventually(lambda: w.metric("weft_mds_orders") == 0, 10, "deletion of the old objects")
    fsck(w)


def drained(w, ds):
    (one,) = [d for d in ask(w, "ds", "list")["ds"] if d["name"] == ds]
    return one.get("drain") == "drained"


def test_a_server_is_drained_while_clients_write(w):
    x = Wide("drain", 4 * MB, "mirrors=2")
    x.give_back()
    c = client()
    d = c.mkdir(c.root(), "many")
    files = []
    for i in range(40):
        s, f = c.open(d, f"f{i}")
        c.until(lambda got: err(got.status) != "DELAY", putfh(f),
                write(s, 0, b"%d" % i * 1000, FILE_SYNC))
        files.append((s, f, b"%d" % i * 1000))
    name = servers(x.c, x.f)[0]
    with writing(x):
        weft(w, "ds", "drain", name, "--wait")
    check(drained(w, name), True)
    check(any(name in servers(c, f) for _, f, _ in files + [(0, x.f, 0)]), False)
    check("drained" in weft(w, "ds", "list"), True)
    check(content(x.c, x.f, x.s) == bytes(x.data), True)
    equal_on(w, x)
    for s, f, data in files:
        check(content(c, f, s), data)
    # The server places nothing new there, after a restart too.
    w.restart()
    eventually(lambda: not ask(w, "status")["grace"], 20, "the end of the grace period")
    c = client()
    d = c.mkdir(c.root(), "new")
    c.ok(putfh(d), setxattr("weft.policy", "mirrors=3"))
    for i in range(5):
        check(name in servers(c, c.open(d, f"g{i}")[1]), False)
    eventually(lambda: drained(w, name), 10, "the state after a restart")
    weft(w, "ds", "undrain", name)
    c.ok(putfh(d), setxattr("weft.policy", "mirrors=4"))
    check(name in servers(c, c.open(d, "all")[1]), True)
    fsck(w)


def many_on(c, name, label, n):
    """Empty files of a directory, all on the server with this label."""
    d = c.mkdir(c.root(), name)
    c.until(lambda got: err(got.status) not in ("DELAY", "GRACE"), putfh(d),
            setxattr("weft.policy", "group=rack=" + label), tries=200)
    for at in range(0, n, 4):
        ops = [o for k in range(at, at + 4)
               for o in (putfh(d), open_(f"f{k}", BOTH | NO_DELEG, how=UNCHECKED),
                         op("CLOSE", u32(0), stateid(CURRENT)))]
        got = c.until(lambda got: err(got.status) not in ("DELAY", "GRACE"), *ops, tries=200)
        check(err(got.status), "OK")


def test_a_drain_queues_no_more_than_it_can_do(w):
    """1,024 files that can move, and then 16 in each pass, of which there are at most four a
    second."""
    w.dev("down", w.dir)
    # However slow the machine, the other servers count as alive: a file that cannot move because
    # they do not is not one of the 1,024.
    w.dev("up", w.dir, *[a for s in ("mds.repair_files=0", "mds.ds_suspect=50s", "mds.ds_dead=60s",
                                     "ds.lease=60s") for a in ("--set", s)])
    weft(w, "ds", "group", "ds1", "rack=full")
    many_on(client(), "queue", "full", 3000)
    waits = lambda: ask(w, "mirror", "status")["files"]  # noqa: E731
    full = time.monotonic()  # or later
    weft(w, "ds", "drain", "ds1")

    def is_full():
        nonlocal full
        before = time.monotonic()
        if waits() >= 1024:
            return True
        full = before
        return False
    eventually(is_full, 30, "a queue")
    time.sleep(1.5)
    got = waits()
    most = 1024 + 16 * (4 * (time.monotonic() - full) + 1)
    check(got <= most, True, f"{got} wait, at most {most}")


def test_what_cannot_leave_keeps_nothing_else_from_the_queue(w):
    """More than 1,024 files cannot leave the first server. The files of the second, which can
    leave, are all queued."""
    w.dev("down", w.dir)
    w.dev("up", w.dir, "--set", "mds.repair_files=0")
    weft(w, "ds", "group", "ds1", "rack=full")
    weft(w, "ds", "group", "ds2", "rack=two")
    c = client()
    many_on(c, "stay", "full", 1100)
    many_on(c, "go", "two", 500)
    weft(w, "ds", "group", "ds3", "rack=two")
    waits = lambda: ask(w, "mirror", "status")["files"]  # noqa: E731
    weft(w, "ds", "drain", "ds1")
    eventually(lambda: waits() >= 1024, 30, "a queue")
    weft(w, "ds", "drain", "ds2")
    # By 16 in each look it would take half a minute, at best.
    eventually(lambda: waits() >= 1524, 10, "the others are in it, too")


def test_whole_trees(w):
    """Each file by itself. A second command takes only files that the first has not finished."""
    c = client()
    top = c.mkdir(c.root(), "tree")
    c.ok(putfh(top), setxattr("weft.policy", "mirrors=1"))
    files = []
    for d in (top, c.mkdir(top, "a"), c.mkdir(c.mkdir(top, "b"), "c")):
        for n in range(4):
            s, f = c.open(d, f"f{n}")
            c.ok(putfh(f), write(s, 0, b"in a tree", FILE_SYNC), close(s))
            files.append(f)
    tree = lambda *args: ask(w, *args[:-1], "-r", args[-1])  # noqa: E731
    check(tree("mirror", "add", "--to", "2", "/tree/a"), {"files": 4, "begun": 4, "refused": 0})
    eventually(lambda: all(len(servers(c, f)) == 2 and whole(c, f) for f in files[4:8]), 20,
               "their second mirror")
    check(tree("mirror", "add", "--to", "2", "/tree"), {"files": 8, "begun": 8, "refused": 0})
    eventually(lambda: all(len(servers(c, f)) == 2 and whole(c, f) for f in files), 20,
               "the others'")
    check(tree("mirror", "add", "--to", "2", "/tree"), {"files": 0, "begun": 0, "refused": 0})
    there = sum("ds1" in servers(c, f) for f in files)
    check(there > 0, True)
    check(tree("move", "--from", "ds1", "/tree"), {"files": there, "begun": there, "refused": 0})
    eventually(lambda: all("ds1" not in servers(c, f) and len(servers(c, f)) == 2 and whole(c, f)
                           for f in files), 30, "the move")
    check([content(c, f) for f in files], [b"in a tree"] * 12)
    check(tree("mirror", "repair", "/tree"), {"files": 0, "begun": 0, "refused": 0})
    # A refused file does not stop the others, and the command reports it.
    x = Wide("tree2", MB, "mirrors=4")
    done = subprocess.run([os.path.join(BUILD, "weft"), "--admin", w.where["mds"], "mirror", "add",
                           "-r", "--to", "5", "/tree2"], capture_output=True, text=True, timeout=60,
                          check=False)
    check((done.returncode, done.stdout, "/tree2/f" in done.stderr),
          (1, "1 files: 0 begun, 1 refused\n", True), done.stderr)
    for words in (("mirror", "add", "-r", "/tree"), ("mirror", "add", "--to", "2", "/tree")):
        check(subprocess.run([os.path.join(BUILD, "weft"), "--admin", w.where["mds"], *words],
                             capture_output=True, timeout=60, check=False).returncode, 2, words)
    x.give_back()


def test_where_nothing_can_go_it_stays(w):
    x = Wide("full", 2 * MB, "mirrors=4")
    x.give_back()
    name = servers(x.c, x.f)[0]
    weft(w, "ds", "drain", name)
    eventually(lambda: ask(w, "mirror", "status", "/full/f")["moving"], 10, "the look")
    (one,) = ask(w, "mirror", "status", "/full/f")["moving"]
    check((one["state"], "no data server" in one["why"]), ("waits", True))
    (shown,) = [d for d in ask(w, "ds", "list")["ds"] if d["name"] == name]
    check((shown["drain"], shown["left"]), ("draining", 1))
    check("1 left" in weft(w, "ds", "list"), True)
    check((len(servers(x.c, x.f)), content(x.c, x.f, x.s) == bytes(x.data)), (4, True))
    weft(w, "ds", "undrain", name)
    eventually(lambda: ask(w, "mirror", "status")["files"] == 0, 10, "nothing to do")


def test_a_drain_of_one_that_fails_its_orders_ends_with_an_error(w):
    x = Wide("fails", MB, "mirrors=2")
    x.give_back()
    name = servers(x.c, x.f)[0]
    path = os.path.join(w.dir, name, layout_of(x.c, x.f)["mirrors"][0]["objects"][0]["object"])
    w.dev("kill", w.dir, name, "-9")
    os.unlink(path)
    os.mkdir(path)
    w.dev("start", w.dir, name)
    why = weft(w, "ds", "drain", name, "--wait", rc=1)
    check(("objects fail" in why, "ds kill" in why), (True, True), why)
    check("orders fail" in weft(w, "ds", "list"), True)
    got = x.c.until(lambda got: err(got.status) != "DELAY", putfh(x.f), read(x.s, 0, MB), tries=200)
    check(got.results[-1].data == bytes(x.data), True)


def test_what_is_stale_comes_before_what_moves(w):
    c = client()
    d = c.mkdir(c.root(), "many")
    c.ok(putfh(d), setxattr("weft.policy", "mirrors=3"))
    files = [c.open(d, f"f{i}")[1] for i in range(40)]
    name = servers(c, files[0])[0]
    x = Wide("last", MB, "mirrors=2")
    weft(w, "ds", "drain", name)
    eventually(lambda: w.metric("weft_mds_repair_files") > 20, 20, "the look")
    x.report(0)
    x.c.ok(putfh(x.f), layoutreturn(x.o.stateid))
    eventually(lambda: whole(x.c, x.f), 20, "repair")
    check(w.metric("weft_mds_repair_files") > 5, True, "others wait still")


def test_large_directories_are_compared_bit_by_bit(w):
    c = client()
    d = c.mkdir(c.root(), "large")
    for i in range(140):
        one = c.mkdir(d, f"d{i}")
        if i % 14 == 0:
            c.open(one, "f")
    got = ask(w, "mirror", "verify", "/", "-r")
    check((got["single"], got["skipped"]), (10, 0))


def spoil(w, x, obj, off, data):
    """Changes bytes of one copy, behind the back of all clients and servers."""
    o = [o for m in layout_of(x.c, x.f)["mirrors"] for o in m["objects"]][obj]
    with open(os.path.join(w.dir, o["ds"], o["object"]), "r+b") as p:
        p.seek(off)
        p.write(data)
        p.flush()
        os.fsync(p.fileno())
    return o["ds"]


def test_copies_are_compared_and_mended(w):
    x = Wide("verify", 10 * MB, "mirrors=3")
    x.give_back()
    c = client()
    s, f = c.open(c.mkdir(c.root(), "single"), "f")
    with writing(x):
        got = ask(w, "mirror", "verify", "/", "-r")
        check((got["files"], got["single"], got["skipped"], got["differences"]), (1, 1, 0, []),
              "while a client writes")
    check(got["bytes"] >= 30 * MB, True)
    names = servers(x.c, x.f)
    # In the second range, and past the first page. A hole is the same as zeros.
    check(spoil(w, x, 1, 9 * MB + 5, b"rotten"), names[1])
    got = json.loads(verify(w, "/verify/f", rc=1))
    (d,) = got["differences"]
    check((d["path"], d["offset"], d["kept"], [b["ds"] for b in d["differ"]], d["mended"]),
          ("/verify/f", 8 * MB, names[0], [names[1]], False))
    check(states(x.c, x.f), ["in-sync"] * 3, "what is only reported stays")
    # Two of three copies differ from the one that is believed. Only the administrator can know
    # which is right.
    json.loads(verify(w, "/verify/f", "--mend", "--keep", "2", rc=1))
    eventually(lambda: whole(x.c, x.f), 20, "repair")
    check(json.loads(verify(w, "/verify/f"))["differences"], [])
    equal(w, x.c, x.f, bytes(x.data))
    # A longer copy differs. The server does not guess which is right.
    spoil(w, x, 2, 10 * MB, b"more")
    d, *_ = json.loads(verify(w, "/verify/f", "--mend", rc=1))["differences"]
    check((d["kept"], [b["ds"] for b in d["differ"]], d["mended"], states(x.c, x.f)),
          (names[2], names[:2], False, ["in-sync"] * 3))
    (d,) = json.loads(verify(w, "/verify/f", "--mend", "--keep", "0", rc=1))["differences"]
    check(([b["ds"] for b in d["differ"]], d["mended"]), ([names[2]], True))
    eventually(lambda: whole(x.c, x.f), 20, "repair")
    equal(w, x.c, x.f, bytes(x.data))
    check("recursive" in weft(w, "mirror", "verify", "/verify", rc=1), True)
    check("keep" in weft(w, "mirror", "verify", "/verify/f", "--keep", "x", rc=1), True)
    # The command says which copy it cannot ask.
    w.dev("kill", w.dir, names[1], "-9")
    check(json.loads(verify(w, "/verify/f", rc=1))["skipped"], 1)


def test_what_is_gone_is_never_what_is_believed(w):
    for name, gone in (("two", [0]), ("three", [0, 1])):
        x = Wide(name, 10 * MB, f"mirrors={len(gone) + 1}")
        x.give_back()
        paths = [os.path.join(w.dir, m["objects"][0]["ds"], m["objects"][0]["object"])
                 for m in layout_of(x.c, x.f)["mirrors"]]
        names = servers(x.c, x.f)
        for k in gone:
            w.dev("kill", w.dir, names[k], "-9")
            os.unlink(paths[k])
            w.dev("start", w.dir, names[k])
        eventually(lambda: all(d["state"] == "alive" for d in ask(w, "ds", "list")["ds"]), 10,
                   "all are back")
        (d,) = json.loads(verify(w, f"/{name}/f", rc=1))["differences"]
        check((d["kept"], [b["ds"] for b in d["differ"]], d["mended"]),
              (names[-1], names[:-1], False))
        check([os.path.exists(p) for p in paths], [k not in gone for k in range(len(paths))],
              "it is not made, empty, by the look at it")
        check(states(x.c, x.f), ["in-sync"] * len(paths))
        if name == "three":  # a fence made them, empty: they have no vote
            for k in gone:
                with open(paths[k], "wb"):
                    pass
            (d,) = [f for f in json.loads(verify(w, "/three/f", "--mend", rc=1))["differences"]
                    if f["offset"] == 0]
            check((d["kept"], d["mended"], states(x.c, x.f)), (names[2], False, ["in-sync"] * 3))
            json.loads(verify(w, "/three/f", "--mend", "--keep", "2", rc=1))
        else:
            (d,) = json.loads(verify(w, f"/{name}/f", "--mend", rc=1))["differences"]
            check((d["kept"], d["mended"]), (names[-1], True))
        eventually(lambda: whole(x.c, x.f) and all(map(os.path.exists, paths)), 20, "repair")
        equal(w, x.c, x.f, bytes(x.data))


def verify(w, *args, rc=0):
    done = subprocess.run([os.path.join(BUILD, "weft"), "--admin", w.where["mds"], "--json",
                           "mirror", "verify", *args], capture_output=True, text=True, timeout=60,
                          check=False)
    check(done.returncode, rc, done.stderr)
    return done.stdout


def settings(name):
    return [*QUICK, *(["mds.repair_rate=8M"] if "crash" in name or "outlives" in name else []),
            *(["mds.repair_files=1"] if "stale_comes" in name else [])]


if __name__ == "__main__":
    run_apart(globals(), settings=settings)
