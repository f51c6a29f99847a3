#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""weft fsck --online and weft scrub. The test damages stores on purpose. docs/scrub.md says what
they find, what they mend, and what they leave alone. Prints TAP."""
import contextlib
import json
import os
import re
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../wirelib"))
import harness  # noqa: E402
import metric  # noqa: E402
import tap  # noqa: E402
from harness import *  # noqa: E402,F403
from files import MB, content, layout_of  # noqa: E402
from nfs41 import err  # noqa: E402
from steps import settled  # noqa: E402
from mirrored import (Wide, equal, name_of, object_path, servers, states, whole,  # noqa: E402
                      without)

SETTINGS = ["mds.repair_files=4", "mds.repair_wait=20s", "mds.lease=5s"]
# Seconds in which a test has to see a scrub that waits for its second look, or to stop it.
SEEN_WITHIN, STOP_WITHIN = 15, 6


def weft(w, *args, rc=0):
    done = subprocess.run([os.path.join(BUILD, "weft"), "--admin", w.where["mds"], *args],
                          capture_output=True, text=True, timeout=60, check=False)
    check(done.returncode, rc, f"weft {' '.join(args)}: {done.stdout} {done.stderr}")
    return done.stdout if rc < 2 else done.stderr


def fsck(w, *args, rc=0):
    return json.loads(weft(w, "fsck", "--online", "--json", *args, rc=rc))


def scrub(w, *args, rc=0):
    return json.loads(weft(w, "--json", "scrub", *args, rc=rc))


def kinds(j):
    return sorted((f["kind"], f["done"]) for f in j["findings"])


def plain(name, size=MB, policy="mirrors=1"):
    """A file without a layout and without a mark."""
    x = Wide(name, size, policy)
    x.give_back()
    quiet(x.c, x.f)
    return x


def quiet(c, f):
    c.attrs(f, "size", "change")
    time.sleep(0.5)


def folder(ino):
    n = ino * 0x9e3779b97f4a7c15 % (1 << 64) >> 48
    return f"objects/{n >> 8:02x}/{n & 255:02x}"


def plant(w, ds, ino, incarnation=1, stripe=0, copy=7, data=b"garbage"):
    """Makes an object that no file has, or had. A server reports that it lacks a deleted object,
    whatever is under the name."""
    d = os.path.join(w.dir, ds, folder(ino))
    os.makedirs(d, exist_ok=True)
    path = os.path.join(d, f"{ino:016x}.{incarnation:04x}.{stripe:02x}.{copy:02x}")
    with open(path, "wb") as p:
        p.write(data)
    return path


def removed_inode(c, name="was"):
    """The number of a file that was removed."""
    d = c.mkdir(c.root(), name)
    s, f = c.open(d, "f")
    ino = layout_of(c, f)["inode"]
    c.ok(putfh(f), close(s))
    c.ok(putfh(d), remove("f"))
    # The scrub passes over an object that the server is deleting.
    eventually(lambda: sum(map(float, re.findall(r"^weft_mds_orders(?:\{.*\})? (\S+)",
                                                 metric.fetch(harness.THE.where["mds"]), re.M)))
               == 0, 10, "its deletion")
    return ino


def test_what_is_in_order_is_found_so(w):
    x = Wide("good", 3 * MB, "mirrors=2")
    x.give_back()
    quiet(x.c, x.f)
    got = fsck(w)
    check((got["found"], got["findings"], got["what"], got["running"], got["phase"], got["objects"],
           got["files"]), (0, [], "fsck", False, "over", 2, 1))
    got = scrub(w)
    check((got["found"], got["what"], got["bytes"] >= 6 * MB), (0, "scrub", True))
    check(weft(w, "scrub", "--status").startswith("scrub: 2 objects and 1 files checked"), True)
    eventually(
        lambda: [e["text"] for e in map(
            json.loads, weft(w, "--json", "events", "--kind", "scrub").splitlines()
        )][-1].startswith("over: 2 objects"), what="its event")
    check("take no other option" in weft(w, "scrub", "--status", "--stop", rc=2), True)
    check("takes only" in weft(w, "fsck", "--online", "/somewhere", rc=2), True)


def test_what_is_made_and_removed_meanwhile_is_never_garbage(w):
    c = client()
    d = c.mkdir(c.root(), "churn")
    c.ok(putfh(d), setxattr("weft.policy", "mirrors=2"))
    # A file that is removed and still open.
    s, f = c.open(d, "open")
    c.ok(putfh(f), write(s, 0, b"held", FILE_SYNC))
    c.ok(putfh(d), remove("open"))
    n, why, over = 0, [], threading.Event()

    def churn():
        nonlocal n
        try:
            c = client()
            while not over.is_set():
                s, f = c.open(d, f"f{n}")
                c.ok(putfh(f), write(s, 0, b"x" * 5000, FILE_SYNC))
                c.ok(putfh(f), close(s))
                if n >= 20:
                    c.ok(putfh(d), remove(f"f{n - 20}"))
                n += 1
        except Exception as e:
            why.append(e)

    t = threading.Thread(target=churn)
    t.start()
    try:
        rounds = 0
        while rounds < 3 or n <= 40 and not why and rounds < 30:
            rounds += 1
            got = fsck(w)
            check((got["found"], got["removed"], got["skipped"]), (0, 0, 0), got["findings"])
    finally:
        over.set()
        t.join()
    check((why, n > 40), ([], True))
    tap.say(f"{n} files were made, {rounds} looks")
    check(content(c, f, s), b"held")


def test_an_orphan_is_removed_at_the_second_look(w):
    x = plain("orphan", policy="mirrors=2")
    ino = removed_inode(x.c)
    a, b = plant(w, "ds1", ino), plant(w, "ds2", ino, stripe=3)
    mine = plant(w, servers(x.c, x.f)[0], layout_of(x.c, x.f)["inode"], copy=77)
    got = fsck(w, "--dry-run", rc=1)
    check((kinds(got), got["removed"], got["counts"]["orphan"]), ([("orphan", "left")] * 3, 0, 3))
    check(all(map(os.path.exists, (a, b, mine))), True, "nothing is removed by a dry run")
    check("(inode" in weft(w, "scrub", "--status"), True)
    got = fsck(w, rc=1)
    check((kinds(got), got["removed"]), ([("orphan", "removed")] * 3, 3))
    check({(f["ds"], f["inode"], f["stripe"], f["copy"]) for f in got["findings"]}
          >= {("ds1", ino, 0, 7), ("ds2", ino, 3, 7)}, True)
    eventually(lambda: not any(map(os.path.exists, (a, b, mine))), 5, "deletion")
    check(fsck(w)["found"], 0)
    equal(w, x.c, x.f, bytes(x.data))
    check(w.metric(r'weft_mds_scrub_found_total{kind="orphan"}') >= 3, True)


def test_what_may_be_needed_is_not_removed(w):
    x = plain("needed")
    ino = removed_inode(x.c)
    foreign = plant(w, "ds1", ino, incarnation=9)
    path = object_path(w, x.c, x.f)
    with without(w, name_of(w, path)):
        os.rename(path, path[:-2] + "09")  # the only copy, under a name that no map has
    got = fsck(w, rc=1)
    check(kinds(got), [("foreign", "left"), ("lost", "left"), ("needed", "left")])
    check(os.path.exists(path[:-2] + "09") and os.path.exists(foreign), True)
    # The store is older than an object: then the scrub takes nothing at all for garbage.
    garbage, later = plant(w, "ds1", ino), plant(w, "ds2", 1 << 40)
    got = fsck(w, rc=1)
    check([k for k in kinds(got) if k[0] in ("orphan", "not-yet")],
          [("not-yet", "left"), ("orphan", "left")])
    check(os.path.exists(garbage), True)
    os.unlink(later)
    check(fsck(w, rc=1)["removed"], 1)


def test_all_lists_tell_how_old_the_store_is_before_anything_is_removed(w):
    """There is more garbage than the scrub remembers at a time, and the list that comes last has
    what makes it doubtful."""
    x = plain("old")
    ino = removed_inode(x.c)
    first = plant(w, "ds1", ino)
    for k in range(16384 + 300):
        name = f"{first[:-5]}{k >> 8:02x}.{k & 255:02x}"
        if not os.path.exists(name):
            os.link(first, name)
    later = plant(w, "ds4", 1 << 40)
    got = fsck(w, rc=1)
    check((got["removed"], got["counts"]["not-yet"]), (0, 1))
    check((os.path.exists(first), os.path.exists(later)), (True, True))


def test_an_object_that_is_gone_is_made_anew_or_told(w):
    x, y = plain("gone", 3 * MB, "mirrors=2"), plain("only")
    path, only = object_path(w, x.c, x.f, 1), object_path(w, y.c, y.f)
    with without(w, name_of(w, path)):
        os.unlink(path)
    with without(w, name_of(w, only)):
        os.unlink(only)
    got = fsck(w, "--dry-run", rc=1)
    check((kinds(got), states(x.c, x.f)),
          ([("lost", "left"), ("missing", "left")], ["in-sync"] * 2))
    got = fsck(w, rc=1)
    check(kinds(got), [("lost", "left"), ("missing", "stale")])
    check({(f["kind"], f["path"], f["ds"]) for f in got["findings"]},
          {("missing", "/gone/f", name_of(w, path)), ("lost", "/only/f", name_of(w, only))})
    eventually(lambda: whole(x.c, x.f) and os.path.exists(path), 15, "repair")
    equal(w, x.c, x.f, bytes(x.data))
    got = y.c.call(putfh(y.f), read(y.s, 0, 10))
    check(err(got.status), "IO", "what is lost is not read as zeros")


def test_what_a_fence_finds_gone_is_lost_and_not_empty(w):
    x, y, z = plain("gone", 3 * MB, "mirrors=2"), plain("only"), plain("emptied")
    path, only, cut = (object_path(w, x.c, x.f, 0), object_path(w, y.c, y.f),
                       object_path(w, z.c, z.f))
    with contextlib.ExitStack() as away:
        for name in sorted({name_of(w, p) for p in (path, only, cut)}):
            away.enter_context(without(w, name))
        for p in (path, only, cut):
            os.unlink(p)
    for f in (x, y, z):  # setting a size fences
        del f.data[-1:]
        f.c.until(lambda got: err(got.status) != "DELAY", putfh(f.f),
                  setattr_(f.s, size=len(f.data)), tries=200)
    eventually(lambda: all(map(os.path.exists, (path, only, cut))), 10, "the fence's place")
    for f in (y, z):
        got = f.c.until(lambda got: err(got.status) != "DELAY", putfh(f.f), read(ANON, 0, 10),
                        tries=200)
        check(err(got.status), "IO", "what is lost is not read as zeros")
    check(content(x.c, x.f) == bytes(x.data), True, "the other copy is read")
    got = fsck(w, "--dry-run", rc=1)
    check(kinds(got), [("lost", "left"), ("lost", "left"), ("missing", "left")])
    # Its server knows it after a restart, too.
    with without(w, name_of(w, only)):
        pass
    check(err(y.c.until(lambda got: err(got.status) != "DELAY", putfh(y.f), read(ANON, 0, 10),
                        tries=200).status), "IO")
    check(kinds(fsck(w, rc=1)), [("lost", "left"), ("lost", "left"), ("missing", "stale")])
    eventually(lambda: whole(x.c, x.f), 15, "repair")
    equal(w, x.c, x.f, bytes(x.data))
    # A client that truncates a file to nothing wants nothing of what was in it.
    z.c.until(lambda got: err(got.status) != "DELAY", putfh(z.f), setattr_(size=0), tries=200)
    z.c.until(lambda got: err(got.status) != "DELAY", putfh(z.f),
              write(ANON, 0, b"again", FILE_SYNC), tries=200)
    check(content(z.c, z.f), b"again")
    check([(f["kind"], f["path"]) for f in fsck(w, rc=1)["findings"]], [("lost", "/only/f")])


def test_a_wrong_size_is_found_and_mended_where_the_right_one_is_known(w):
    x, y, z = plain("cut", 3 * MB, "mirrors=2"), plain("short"), plain("long", MB, "mirrors=2")
    os.truncate(object_path(w, x.c, x.f, 0), 2 * MB)
    os.truncate(object_path(w, y.c, y.f), 1000)
    for mirror in (0, 1):
        os.truncate(object_path(w, z.c, z.f, mirror), 2 * MB)
    got = fsck(w, rc=1)
    by = {}
    for f in got["findings"]:
        by.setdefault(f["path"], []).append((f["kind"], f["done"], f["size"], f["want"]))
    check(by,
          {"/cut/f": [("size", "stale", 2 * MB, 3 * MB)], "/short/f": [("size", "left", 1000, MB)],
           "/long/f": [("size", "left", 2 * MB, MB)] * 2})
    eventually(lambda: whole(x.c, x.f), 15, "repair")
    equal(w, x.c, x.f, bytes(x.data))


def test_what_was_allocated_past_the_end_is_in_order(w):
    c = client()
    for n, policy in enumerate(("stripes=2", "stripes=2,mirrors=2", "mirrors=1")):
        d = c.mkdir(c.root(), f"more{n}")
        c.ok(putfh(d), setxattr("weft.policy", f"{policy},unit=1M"))
        for k, (at, size) in enumerate(((0, 908260), (MB - 1, 3), (5, 3 * MB))):
            s, f = c.open(d, f"f{k}")
            c.ok(putfh(f), allocate(s, at, size), close(s))
            check(c.attrs(f, "size").size, at + size)
            check(c.ok(putfh(f), read(ANON, at + size - 2, 9)).data, bytes(2))
    time.sleep(0.5)
    got = fsck(w)
    check((got["found"], got["findings"], got["skipped"]), (0, [], 0))


def test_a_file_that_is_being_written_is_left_for_later(w):
    x = Wide("busy", MB, "mirrors=2")
    os.truncate(object_path(w, x.c, x.f, 0), 1000)
    got = scrub(w)
    check((got["found"], got["busy"] >= 1, states(x.c, x.f)), (0, True, ["in-sync"] * 2))


def flip(path, at):
    with open(path, "r+b") as p:
        p.seek(at)
        was = p.read(1)
        p.seek(at)
        p.write(bytes([was[0] ^ 0x40]))
        os.fsync(p.fileno())


def test_flipped_bits_are_outvoted_or_told(w):
    x, y = plain("three", 10 * MB, "mirrors=3"), plain("two", MB, "mirrors=2")
    flip(object_path(w, x.c, x.f, 1), 9 * MB + 5)
    flip(object_path(w, y.c, y.f, 0), 77)
    check(fsck(w)["found"], 0, "fsck reads no content")
    got = scrub(w, "--dry-run", rc=1)
    check((kinds(got), states(x.c, x.f)), ([("differs", "left")] * 2, ["in-sync"] * 3))
    got = scrub(w, rc=1)
    check(kinds(got), [("differs", "left"), ("differs", "stale")])
    check([(f["path"], f["ds"], f["size"]) for f in got["findings"] if f["done"] == "stale"],
          [("/three/f", servers(x.c, x.f)[1], 8 * MB)])
    eventually(lambda: whole(x.c, x.f), 15, "repair")
    equal(w, x.c, x.f, bytes(x.data))
    check(states(y.c, y.f), ["in-sync"] * 2, "of two that differ none is believed")
    weft(w, "mirror", "verify", "/two/f", "--mend", "--keep", "1", rc=1)
    eventually(lambda: whole(y.c, y.f), 15, "repair")
    equal(w, y.c, y.f, bytes(y.data))
    check(scrub(w)["found"], 0)


def test_a_crash_in_the_middle(w):
    x = plain("crash", policy="mirrors=2")
    # A restart may do an order for what was the file's again.
    garbage = plant(w, "ds1", removed_inode(x.c), stripe=3)
    got = fsck(w, "--background")
    check(got["running"], True)
    check("another check" in subprocess.run([os.path.join(BUILD, "weft"), "--admin", w.where["mds"],
                                             "scrub", "--background"], capture_output=True,
                                            text=True, check=False).stderr, True)
    eventually(lambda: scrub(w, "--status")["phase"] == "second-look", 5,
               "the second look is waited for")
    w.restart()
    got = scrub(w, "--status")
    check((got["running"], got["number"], got["phase"]), (True, 1, "second-look"))
    check(os.path.exists(garbage), True)
    got = fsck(w, rc=1)  # looks at the one that goes on
    check((got["number"], kinds(got), got["objects"]), (1, [("orphan", "removed")], 3))
    eventually(lambda: not os.path.exists(garbage), 5, "deletion")
    # What it found outlives a restart, and so does the stop.
    w.restart()
    check(kinds(scrub(w, "--status")), [("orphan", "removed")])
    w.dev("down", w.dir)
    w.dev("up", w.dir, "--set", f"mds.scrub_delay={STOP_WITHIN}s")
    garbage = plant(w, "ds1", removed_inode(client(), "too"), stripe=3)
    fsck(w, "--background")
    scrub(w, "--stop")
    eventually(lambda: scrub(w, "--status")["stopped"], 5, "its end")
    time.sleep(STOP_WITHIN + 0.5)
    check(os.path.exists(garbage), True)


def test_a_server_that_is_away_is_said_to_be(w):
    x = plain("away", MB, "mirrors=2")
    name = servers(x.c, x.f)[0]
    next(y for y in (plain(f"alone{k}") for k in range(8)) if servers(y.c, y.f) == [name])
    w.dev("kill", w.dir, name, "-9")
    eventually(lambda: next(d for d in json.loads(weft(w, "--json", "ds", "list"))["ds"]
                            if d["name"] == name)["state"] == "dead", 10, "its death")
    got = fsck(w, rc=1)
    check((("away", "left") in kinds(got), ("cut-off", "left") in kinds(got), got["degraded"] >= 1),
          (True, True, True), got)
    lost = [f["path"] for f in got["findings"] if f["kind"] == "cut-off"]
    check(all(p.startswith("/alone") for p in lost), True)
    # File by file: the files without a copy, and those with fewer copies.
    check((weft(w, "find", "/", "--lost").split(),
           weft(w, "find", "--on-ds", name, "--degraded").split()), (lost, ["/away/f"]))
    check("--on-ds" in weft(w, "find", rc=2)
          and not weft(w, "find", "--on-ds", "ds1" if name != "ds1" else "ds2", "--lost"), True)
    weft(w, "ds", "kill", name)
    eventually(lambda: subprocess.run([os.path.join(BUILD, "weft"), "--admin", w.where["mds"],
                                       "ds", "forget", name, "--force"], capture_output=True,
                                      check=False).returncode == 0, 10, "its end")
    check(weft(w, "find", "/", "--lost").split(), lost, "of one that is forgotten, too")
    r = x.c.until(lambda got: err(got.status) != "DELAY", putfh(x.f), read(x.s, 0, 10), tries=200)
    check(r.status, 0)


def test_a_check_that_begins_before_the_server_serves_runs_once(w):
    plain("early")
    names = {f"ds{k}" for k in range(1, 5)}
    w.dev("kill", w.dir, "mds", "-9")
    for name in names:
        w.dev("kill", w.dir, name, "-9")
    w.dev("start", w.dir, "mds")
    weft(w, "fsck", "--online", "--background")
    for name in names:
        w.dev("start", w.dir, name)
    eventually(lambda: not scrub(w, "--status")["running"], 60, "its end")
    with open(os.path.join(w.dir, "log", "mds.log"), encoding="utf-8") as f:
        log = f.read()
    check(("scrub 1 continues" in log, log.count("serving: boot")), (False, 2), log[-2000:])


def test_the_administrator_says_which_copy_is_good(w):
    w.dev("down", w.dir)
    w.dev("up", w.dir, "--set", "mds.repair_files=0")
    x = Wide("choose", 3 * MB, "mirrors=2")
    good = bytes(x.data)
    x.report(1)  # missed the next write
    x.give_back()
    quiet(x.c, x.f)
    (stale,) = [i for i, s in enumerate(states(x.c, x.f)) if s == "stale"]
    x.c.ok(putfh(x.f), write(x.s, 0, b"the stale one lacks it", FILE_SYNC))
    got = json.loads(weft(w, "--json", "mirror", "choose", "/choose/f"))
    check([(c["mirror"], c["state"], c["has"], c["size"]) for c in got["copies"]],
          [(m, "stale" if m == stale else "in-sync", "it", 3 * MB) for m in (0, 1)])
    check((got["copies"][0]["sum"] != got["copies"][1]["sum"],
           all(abs(c["changed_at"] - time.time()) < 600 and c["changed_at"] % 1
               for c in got["copies"]),
           got["chosen"]), (True, True, False))
    check("CHANGED" in weft(w, "mirror", "choose", "/choose/f"), True)
    args = ("mirror", "choose", "/choose/f", "--copy", str(stale))
    done = subprocess.run([os.path.join(BUILD, "weft"), "--admin", w.where["mds"], *args],
                          capture_output=True, text=True, check=False)
    check("in sync, and readable" in done.stderr, True, done.stderr)
    check("--force needs" in weft(w, "mirror", "choose", "/choose/f", "--force", rc=2), True)
    weft(w, "mirror", "choose", "/choose/f", "--copy", "7", rc=1)
    # The copy in sync is lost: no client reads zeros, and none reads stale data.
    name = servers(x.c, x.f)[1 - stale]
    path = object_path(w, x.c, x.f, 1 - stale)
    with without(w, name):
        # Its server may come back at any time, with the copy.
        why = subprocess.run([os.path.join(BUILD, "weft"), "--admin", w.where["mds"], "mirror",
                              "choose", "/choose/f", "--copy", str(stale)], capture_output=True,
                             text=True, check=False).stderr
        # The server may count as dead by now; then its lease stands in the way.
        check(("away but not dead" in why or "may still hold its lease" in why,
               states(x.c, x.f)[1 - stale]), (True, "in-sync"), why)
        os.unlink(path)
    check(err(x.c.call(putfh(x.f), read(x.s, 0, 10)).status), "IO")
    check(kinds(fsck(w, rc=1)), [("lost", "left")])
    got = json.loads(weft(w, "--json", "mirror", "choose", "/choose/f"))
    check({c["mirror"]: c["has"] for c in got["copies"]}, {stale: "it", 1 - stale: "nothing"})
    weft(w, "mirror", "choose", "/choose/f", "--copy", str(1 - stale), rc=1)
    w.restart()
    eventually(lambda: subprocess.run([os.path.join(BUILD, "weft"), "--admin", w.where["mds"],
                                       "mirror", "choose", "/choose/f", "--copy", str(stale)],
                                      capture_output=True, check=False).returncode == 0,
               10, "the choice, when the data servers are back")
    w.restart()
    c = client()
    f = c.ok(putrootfh(), lookup("choose"), lookup("f"), getfh()).fh
    check(states(c, f)[stale], "in-sync")
    eventually(lambda: c.call(putfh(f), read(ANON, 0, 10)).status == 0, 10, "it is read again")
    check(content(c, f) == good, True)
    check([e["kind"] for e in map(json.loads, weft(w, "--json", "events", "--kind",
                                                   "copy-chosen").splitlines())], ["copy-chosen"])
    w.dev("down", w.dir)
    w.dev("up", w.dir, "--set", "mds.repair_files=4")
    c = client()
    f = c.ok(putrootfh(), lookup("choose"), lookup("f"), getfh()).fh
    eventually(lambda: whole(c, f), 15, "repair of the others")
    equal(w, c, f, good)


def test_a_choice_leaves_stripes_that_have_a_good_copy(w):
    w.dev("down", w.dir)
    w.dev("up", w.dir, "--set", "mds.repair_files=0")
    c = client()
    d = c.mkdir(c.root(), "striped")
    c.ok(putfh(d), setxattr("weft.policy", "stripes=2,mirrors=2"))
    s, f = c.open(d, "f")
    for off in (0, MB):
        c.ok(putfh(f), write(s, off, b"d" * MB, FILE_SYNC))
    o = settled(c, f, s)
    c.ok(putfh(f), layouterror(o.stateid, [(o.mirrors[1][0].deviceid, 5, NUM["WRITE"])]))
    c.ok(putfh(f), layoutreturn(o.stateid))
    quiet(c, f)
    now = lambda: [[x["state"] for x in m["objects"]]  # noqa: E731
                   for m in layout_of(c, f)["mirrors"]]
    was = now()
    (stale,) = [m for m in (0, 1) if was[m][0] == "stale"]
    check(was[1 - stale] + was[stale][1:], ["in-sync"] * 3)
    path = object_path(w, c, f, 1 - stale)
    with without(w, name_of(w, path)):
        os.unlink(path)
    weft(w, "mirror", "choose", "/striped/f", "--copy", str(stale))
    check((now()[stale], now()[1 - stale]), (["in-sync"] * 2, ["stale", "in-sync"]),
          "of the second stripe both stay")


if __name__ == "__main__":
    run_apart(globals(), settings=lambda name:
              [*SETTINGS, f"mds.scrub_delay={f'{SEEN_WITHIN}s' if 'crash' in name else '200ms'}"])
