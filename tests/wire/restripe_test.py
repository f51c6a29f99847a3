#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Files that get other stripes or another unit, while clients write and across kills of the
metadata server and of data servers. Prints TAP."""
import os
import re
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../wirelib"))
from harness import *  # noqa: E402,F403
from files import MB, content, layout_of  # noqa: E402
from jobs import restriping  # noqa: E402
from tool import ask, fsck, weft  # noqa: E402
from nfs41 import err  # noqa: E402
from mirrored import QUICK, Striped, servers, writing  # noqa: E402


def shape(c, f):
    j = layout_of(c, f)
    return len(j["mirrors"][0]["objects"]), j["unit"], len(j["mirrors"])


def compared(w, path):
    """Every copy of every stripe has the same bytes."""
    got = ask(w, "mirror", "verify", path)
    check((got["differences"], got["skipped"]), ([], 0))


def read_all(c, f, size):
    """Reads by a stateid of its own, as another client would."""
    s = c.until(lambda got: err(got.status) not in ("DELAY", "GRACE"), putfh(f),
                open_(claim_fh(), READ | NO_DELEG), tries=200).results[-1].stateid
    data = content(c, f, s)
    c.ok(putfh(f), op("CLOSE", u32(0), stateid(s)))
    check(len(data), size)
    return data


def clean(w):
    eventually(lambda: w.metric("weft_mds_orders") == 0, 20, "deletion of the old objects")
    fsck(w)


def test_other_stripes_while_a_client_writes(w):
    x = Striped("wide", 10 * MB, "stripes=1,mirrors=2")
    x.give_back()
    before = x.c.attrs(x.f, "time_modify", "size")
    for stripes in (3, 2, 1):
        with writing(x):
            weft(w, "move", "/wide/f", "--stripes", str(stripes), "--wait")
        check(shape(x.c, x.f), (stripes, MB, 2))
        check(content(x.c, x.f, x.s) == bytes(x.data), True, f"{stripes} stripes")
        compared(w, "/wide/f")
    check(x.c.ok(putfh(x.f), getxattr("weft.policy")).value, b"stripes=1,unit=1M,mirrors=2")
    check(x.c.attrs(x.f, "size").size, before.size)
    check("restriped: " in weft(w, "events", "--kind", "file-moved"), True)
    clean(w)


def test_units_sizes_and_holes_are_kept(w):
    c = client()
    d = c.mkdir(c.root(), "holes")
    c.ok(putfh(d), setxattr("weft.policy", "stripes=4,mirrors=1"))
    s, f = c.open(d, "f")
    size = 20 * MB + 12345
    want = bytearray(size)
    for off in (0, 3 * MB - 100, 9 * MB + 4096, size - 777):
        data = bytes([off % 251 + 1]) * 777
        c.until(lambda got: err(got.status) != "DELAY", putfh(f), write(s, off, data, FILE_SYNC))
        want[off:off + len(data)] = data
    for stripes, unit in (("2", "4M"), ("1", "1M"), ("4", "2M")):
        before = c.attrs(f, "time_modify").time_modify
        weft(w, "move", "/holes/f", "--stripes", stripes, "--unit", unit, "--wait")
        check(shape(c, f), (int(stripes), int(unit[0]) * MB, 1))
        check(content(c, f, s) == bytes(want), True)
        check((c.attrs(f, "size").size, c.attrs(f, "time_modify").time_modify), (size, before),
              "it is as it was for who looks at it")
        held = sum(os.stat(os.path.join(w.dir, o["ds"], o["object"])).st_blocks
                   for o in layout_of(c, f)["mirrors"][0]["objects"])
        check(held * 512 < MB, True, "holes are holes")
    empty = c.open(d, "empty")[1]
    weft(w, "move", "/holes/empty", "--unit", "8M", "--wait")
    check((shape(c, empty), c.attrs(empty, "size").size), ((4, 8 * MB, 1), 0))
    clean(w)


def test_what_cannot_be_is_refused(w):
    c = client()
    d = c.mkdir(c.root(), "no")
    s, f = c.open(d, "f")
    c.until(lambda got: err(got.status) != "DELAY", putfh(f), write(s, 0, b"x" * MB, FILE_SYNC))
    for args, why in ((("--stripes", "0"), "expected a number"),
                      (("--stripes", "45"), "expected a number"),
                      (("--stripes", "1"), "already has these stripes"),
                      (("--unit", "3M"), "power of two"),
                      (("--stripes", "2", "--group", "rack=a"), "one after the other"),
                      (("--unit", "1M,mirrors=2"), "power of two")):
        check(why in weft(w, "move", "/no/f", *args, rc=1), True, args)
    check("not a regular file" in weft(w, "move", "/no", "--stripes", "2", rc=1), True)
    w.dev("down", w.dir)
    w.dev("up", w.dir, "--set", "mds.repair_files=0")
    weft(w, "move", "/no/f", "--stripes", "2")
    check("already" in weft(w, "move", "/no/f", "--stripes", "3", rc=1), True)
    check("being restriped" in weft(w, "mirror", "add", "/no/f", rc=1), True)
    check(restriping(w, "/no/f")["step"], "waits")
    weft(w, "move", "/no/f", "--cancel")
    check(restriping(w, "/no/f"), None)
    eventually(lambda: w.metric("weft_mds_orders") == 0, 10,
               "deletion of objects that were never made")
    weft(w, "move", "/no/f", "--stripes", "2")
    c = client()
    c.until(lambda got: err(got.status) not in ("DELAY", "GRACE"), putfh(d), remove("f"), tries=200)
    clean(w)


def test_it_outlives_kills(w):
    """It is slow enough to be hit: the test kills the metadata server, a data server that is read,
    and one that is filled."""
    x = Striped("kill", 8 * MB, "stripes=2,mirrors=2")
    x.give_back()
    data = bytes(x.data)
    weft(w, "move", "/kill/f", "--stripes", "4")
    time.sleep(0.5)
    amid = restriping(w, "/kill/f") is not None
    w.restart()
    check((amid, restriping(w, "/kill/f") is not None), (True, True),
          "it was under way when the kill came, and is after it")
    for ds in ("ds1", "ds4"):
        eventually(lambda: restriping(w, "/kill/f")["step"] == "copy", 30, "it goes on")
        time.sleep(0.3)
        w.dev("kill", w.dir, ds, "-9")
        time.sleep(0.5)
        w.dev("start", w.dir, ds)
        check(restriping(w, "/kill/f") is not None, True, "it was under way when the kill came")
    eventually(lambda: restriping(w, "/kill/f") is None, 90, "its end")
    c = client()
    check(shape(c, x.f), (4, MB, 2))
    check(read_all(c, x.f, len(data)) == data, True)
    eventually(lambda: ask(w, "mirror", "status")["files"] == 0, 60, "repairs")
    compared(w, "/kill/f")
    clean(w)


def cut_and_grown(w, name):
    """True: the file was being restriped until its last change was done."""
    x = Striped(name, 12 * MB, "stripes=3")
    x.give_back()
    want = bytearray(x.data)
    weft(w, "move", f"/{name}/f", "--stripes", "2")
    eventually(lambda: (restriping(w, f"/{name}/f") or {"done": 12 * MB})["done"] >= 4 * MB, 60,
               "some of it")
    for size in (3 * MB + 5, 7 * MB):
        x.c.until(lambda got: err(got.status) != "DELAY", putfh(x.f),
                  op("SETATTR", stateid(x.s), fattr(size=size)), tries=200)
        want = want[:size] + bytes(max(0, size - len(want)))
    x.c.until(lambda got: err(got.status) != "DELAY", putfh(x.f),
              write(x.s, 2 * MB - 10, b"n" * 5000, FILE_SYNC), tries=200)
    want[2 * MB - 10:2 * MB - 10 + 5000] = b"n" * 5000
    under_way = restriping(w, f"/{name}/f") is not None
    eventually(lambda: restriping(w, f"/{name}/f") is None, 60, "its end")
    check(shape(x.c, x.f), (2, MB, 1))
    check(content(x.c, x.f, x.s) == bytes(want), True)
    check(x.c.attrs(x.f, "size").size, 7 * MB)
    clean(w)
    return under_way


def test_a_file_that_is_cut_and_grown_meanwhile(w):
    """The copy may be quicker than the changes. Then the result is right all the same."""
    if not any(cut_and_grown(w, f"cut{n}") for n in range(8)):
        return "the copy was quicker than the changes each time"
    return None


def cut_and_written(w, name):
    """True: nothing that was noted had been taken when the last write was done."""
    x = Striped(name, 6 * MB, "stripes=2")
    x.give_back()
    weft(w, "move", f"/{name}/f", "--stripes", "1")
    eventually(lambda: (restriping(w, f"/{name}/f") or {}).get("step") == "copy", 30, "the copy")
    x.c.until(lambda got: err(got.status) != "DELAY", putfh(x.f),
              op("SETATTR", stateid(x.s), fattr(size=0)), tries=200)
    # Small, so that they are written while the copy waits for its next second.
    want, small = bytearray(16 * MB), 16384
    pieces = {at: bytes([at * 2 // MB + 1]) * small for at in range(0, 16 * MB, MB // 2)}
    end = max(pieces) + small
    for at, piece in pieces.items():
        want[at:at + len(piece)] = piece
    while pieces:  # many at once: all before the server copies the first
        some = [(at, x.c.begin(putfh(x.f), write(x.s, at, pieces[at], FILE_SYNC)))
                for at in sorted(pieces)[:min(8, x.c.target + 1)]]
        done = {at: err(x.c.finish(one).status) for at, one in some}
        check(set(done.values()) <= {"OK", "DELAY"}, True, done)
        for at in done:
            if done[at] == "OK":
                del pieces[at]
    now = restriping(w, f"/{name}/f") or {}
    eventually(lambda: restriping(w, f"/{name}/f") is None, 60, "its end")
    check(shape(x.c, x.f), (1, MB, 1))
    check(x.c.attrs(x.f, "size").size, end)
    check(content(x.c, x.f, x.s) == bytes(want[:end]), True)
    clean(w)
    return (now.get("round"), now.get("step")) == (0, "copy")


def test_a_file_that_is_cut_and_written_far_behind_meanwhile(w):
    """The note of a cut reaches to the end of the file, and later writes behind it are the same
    note. The server copies what is cut at once, so the copy may be quicker than the writer. Then
    the result is right all the same, and shows nothing of that note."""
    if not any(cut_and_written(w, f"cutfar{n}") for n in range(8)):
        return "the copy was quicker than the writes each time"
    return None


def test_times_tell_of_the_last_writes_before_it(w):
    """The counts that GETATTR would compare are gone with the old objects."""
    x = Striped("times", 6 * MB, "stripes=2")
    x.give_back()
    before = x.c.attrs(x.f, "time_modify", "change")
    weft(w, "move", "/times/f", "--stripes", "1")
    eventually(lambda: (restriping(w, "/times/f") or {}).get("step") == "copy", 30, "the copy")
    x.open_layout()
    check(set(x.write(MB - 100, b"w" * 5000)), {0})
    x.give_back()
    check(restriping(w, "/times/f") is not None, True, "it was under way")
    eventually(lambda: restriping(w, "/times/f") is None, 60, "its end")
    after = x.c.attrs(x.f, "time_modify", "change")
    check((after.change != before.change, after.time_modify > before.time_modify), (True, True))
    check(content(x.c, x.f, x.s) == bytes(x.data), True)
    clean(w)


def commits(w, ds):
    return w.metric(r'weft_ds_op_total\{proc="COMMIT"\}', ds)


def test_what_waits_for_its_commit_is_kept_before_the_old_objects_go(w):
    """The client then sends COMMIT to the new objects. No client would hear that an old one could
    not keep the data."""
    x = Striped("kept", 2 * MB, "stripes=1")
    x.give_back()
    for words in (("--stripes", "2"), ("--stripes", "1"), ("--from",)):
        old = servers(x.c, x.f)
        before = {name: commits(w, name) for name in old}
        x.c.until(lambda got: err(got.status) != "DELAY", putfh(x.f),
                  write(x.s, 4096, b"unstable", UNSTABLE), tries=200)
        x.data[4096:4104] = b"unstable"
        check({name: commits(w, name) for name in old}, before)
        weft(w, "move", "/kept/f", *words, *(old if words == ("--from",) else ()), "--wait")
        check([name for name in old if commits(w, name) == before[name]], [], words)
        check(content(x.c, x.f, x.s) == bytes(x.data), True)


def test_no_server_is_forgotten_that_a_layout_to_come_needs(w):
    x = Striped("needs", 2 * MB, "stripes=1")
    x.give_back()
    w.dev("down", w.dir)
    w.dev("up", w.dir, "--set", "mds.repair_files=0")
    weft(w, "move", "/needs/f", "--stripes", "2")
    c = client()
    c.until(lambda got: err(got.status) not in ("DELAY", "GRACE"), putfh(x.f),
            open_(claim_fh(), BOTH | NO_DELEG), tries=200)
    others = {f"ds{n}" for n in range(1, 5)} - set(servers(c, x.f))
    for name in others:
        weft(w, "ds", "kill", name)
    time.sleep(4)  # their leases
    said = {}
    for name in others:
        done = subprocess.run([os.path.join(BUILD, "weft"), "--admin", w.where["mds"], "ds",
                               "forget", name], capture_output=True, text=True, timeout=60,
                              check=False)
        said[name] = (done.returncode, done.stderr)
    needed = [name for name in others if "are being restriped" in said[name][1]]
    check(needed != [] and all(said[name][0] == 0 for name in others if name not in needed), True,
          said)
    with open(os.path.join(w.dir, "weft.conf"), "r+", encoding="utf-8") as f:
        text = re.sub(r"(repair_files = \W*)0", r"\g<1>4", f.read())
        f.seek(0)
        f.write(text)
    check(re.search(r"repair_files = \W*4", text) is not None, True)
    w.restart()
    c = client()
    eventually(lambda: restriping(w, "/needs/f") is None, 40, "it is placed anew, and made")
    check(shape(c, x.f)[0], 2)
    check([name for name in needed if name in servers(c, x.f)], [])
    for name in needed:
        weft(w, "ds", "forget", name)
    clean(w)


def settings(name):
    return [*QUICK, "mds.grace=1s",
            *(["mds.repair_rate=3M"]
              if any(part in name for part in ("kills", "cut_and_grown", "times")) else []),
            *(["mds.repair_rate=1M"] if "cut_and_written" in name else [])]


if __name__ == "__main__":
    run_apart(globals(), settings=settings)
