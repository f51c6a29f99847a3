#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Copies that miss a write become equal again: in place, elsewhere, across restarts of every
daemon, and while clients write. Prints TAP."""
import json
import os
import struct
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../wirelib"))
import harness  # noqa: E402
import healing  # noqa: E402
import tap  # noqa: E402
from harness import *  # noqa: E402,F403
from steps import lay, one_server, settled, striped  # noqa: E402
from files import MB, content, layout_of  # noqa: E402
from nfs41 import err  # noqa: E402
from mirrored import (Wide, Writer, bytes_of, equal, servers, states, stopped, whole,  # noqa: E402
                      x_ino)
from tool import weft  # noqa: E402

def test_a_copy_that_missed_a_write_heals_in_place(w):
    healing.a_copy_that_missed_a_write_heals_in_place(w)


def test_a_server_that_comes_back_gets_what_it_missed(w):
    healing.a_server_that_comes_back_gets_what_it_missed(w)


def test_one_that_stays_away_is_replaced(w):
    healing.one_that_stays_away_is_replaced(w)


def test_writes_go_on_while_it_is_repaired(w):
    x = Wide("busy", 12 * MB)
    x.report(1)
    x.c.ok(putfh(x.f), layoutreturn(x.o.stateid))
    t = Writer(x)
    t.start()
    try:
        eventually(lambda: whole(x.c, x.f), 25, "repair beside a writer")
    finally:
        t.over = True
        t.join()
    check(t.why, None)
    tap.say(f"{t.n} writes, {t.rebuilding} of them while an object was being rebuilt")
    check(t.n > 0, True)
    check(content(x.c, x.f, x.s) == bytes(x.data), True)
    equal(w, x.c, x.f, bytes(x.data))


def test_a_restart_of_the_metadata_server_in_the_middle(w):
    healing.a_restart_of_the_metadata_server_in_the_middle(w)


def test_a_restart_of_either_data_server_in_the_middle(w):
    healing.a_restart_of_either_data_server_in_the_middle(w)


def test_a_client_that_dies_leaves_copies_that_are_made_equal(w):
    healing.a_client_that_dies_leaves_copies_that_are_made_equal(w)


def half_done(w, x, off, data, begin, end):
    """A client writes this to a file through the metadata server. One copy takes the write. The
    other refuses it, because another client truncates the file, which fences it. The other copy's
    server knows that fence. The server whose copy has the write has not run it yet when the test
    calls end() with what begin() gave."""
    objects = [(o["ds"], os.path.join(w.dir, o["ds"], o["object"]))
               for m in layout_of(x.c, x.f)["mirrors"] for o in m["objects"]]
    (has, has_path), (name, path) = objects
    w.dev("kill", w.dir, name, "-9")
    # The file's epoch is 1, and will be 2.
    os.setxattr(path, "user.weft", struct.pack(">BBHIQII", 2, 0, 0, 2, 0, 0, 0))
    w.dev("start", w.dir, name)
    eventually(lambda: w.metric("weft_mds_ds_alive") == 4, 15, "the server")
    eventually(lambda: w.metric("weft_mds_orders") == 0, 15, "what it was to do")
    x.c.attrs(x.f, "size")  # the server must not need to ask one that stands still
    other = client()
    s = other.ok(putfh(x.f), open_(claim_fh(), BOTH | NO_DELEG)).stateid
    with stopped(w, name) as refuse:
        writing = begin()
        eventually(lambda: open(has_path, "rb").read()[off:off + len(data)] == data, 5,
                   "the copy that takes it")
        with stopped(w, has):
            cut = putfh(x.f), setattr_(s, size=len(x.data))
            cutting = [other.begin(*cut)]

            def fenced():
                conn, xid, _ = cutting[0]
                if xid in conn.replies:  # it may not begin yet
                    check(err(other.finish(cutting[0]).status), "DELAY")
                    cutting[0] = other.begin(*cut)
                return w.metric("weft_mds_orders") >= 2
            eventually(fenced, 15, "the fence")
            refuse()
            end(writing)
    check(err(other.finish(cutting[0]).status) in ("OK", "DELAY"), True)
    other.until(lambda got: err(got.status) != "DELAY", putfh(x.f), setattr_(s, size=len(x.data)),
                tries=200)
    other.ok(putfh(x.f), close(s))


def fenced_off(w, x, off, data):
    """A WRITE that one copy has, and that no server has given up yet."""
    half_done(w, x, off, data, lambda: x.c.begin(putfh(x.f), write(x.s, off, data, FILE_SYNC)),
              lambda writing: check(err(x.c.finish(writing).status), "DELAY",
                                    "a write that is not on all copies"))
    got = bytes_of(w, x.c, x.f)
    check([g[off:off + len(data)] == data for g in got], [True, False], "one has it")
    check(whole(x.c, x.f), True, "and may get it from the client still")


def test_a_client_that_dies_in_the_middle_of_a_write_through_the_metadata_server_does_too(w):
    x = Wide("through")
    x.give_back()
    fenced_off(w, x, 5000, b"half of a write")
    other = client()
    fresh = Client(ADDR, owner=x.c.owner, verifier=b"rebooted")
    harness.CLIENTS.append(fresh)
    eventually(lambda: w.metric("weft_mds_repaired_total") > 0 and whole(other, x.f), 15, "repair")
    equal(w, other, x.f)


def test_one_that_gives_such_a_write_up_does_too(w):
    x = Wide("through")
    x.give_back()
    fenced_off(w, x, 5000, b"half of a write")
    x.c.ok(putfh(x.f), close(x.s))
    eventually(lambda: w.metric("weft_mds_repaired_total") > 0 and whole(x.c, x.f), 15, "repair")
    equal(w, x.c, x.f)


def test_a_copy_that_is_cancelled_in_the_middle_of_such_a_piece_does_too(w):
    x = Wide("copied")
    x.give_back()
    s, f = x.c.open(x.d, "src")
    x.c.ok(putfh(f), write(s, 0, b"half of a piece", FILE_SYNC), setattr_(s, size=64 * MB))

    def cancel(done):
        time.sleep(0.5)  # the data server refused its piece, and the server tries it again
        cancelled.append(x.c.begin(putfh(x.f), offload_cancel(done.callback)))
        time.sleep(0.5)
    cancelled = []
    stale = lambda: subprocess.run(  # noqa: E731
        [os.path.join(BUILD, "weft"), "--admin", w.where["mds"], "events", "--kind", "copy-stale"],
        capture_output=True, text=True, timeout=60, check=True).stdout.count("/copied/f")
    check(stale(), 0)
    half_done(w, x, 0, b"half of a piece", lambda: x.c.ok(putfh(f), savefh(), putfh(x.f),
                                                          copy(s, x.s, synchronous=False)), cancel)
    check(err(x.c.finish(cancelled[0]).status), "OK")
    check(stale(), 1, "one is believed")
    eventually(lambda: whole(x.c, x.f), 15, "repair")
    one, two = bytes_of(w, x.c, x.f)
    check(one == two, True, "both have it, or none")


def test_one_that_is_given_up_does_too(w):
    healing.one_that_is_given_up_does_too(w)


def test_a_writer_that_is_fenced_does_too(w):
    healing.a_writer_that_is_fenced_does_too(w)


def test_one_that_does_not_come_back_after_a_restart_does_too(w):
    x, there = Wide("lost"), client()
    check(x.ds[1].write(x.o.mirrors[1][0].fhs[0], 0, b"half of a write").status, 0)
    w.restart()
    back = Client(ADDR, owner=there.owner, verifier=there.verifier)
    harness.CLIENTS.append(back)
    back.until(lambda got: err(got.status) != "GRACE", putfh(x.f),
               open_(claim_fh(), BOTH | NO_DELEG), tries=200)
    # The server judges it before it reads it or gives it out: it leaves one copy at once.
    got = back.until(lambda got: err(got.status) != "DELAY", putfh(x.f), read(ANON, 0, 1),
                     getxattr("weft.layout"))
    now = [o["state"] for m in json.loads(got.results[-1].value)["mirrors"] for o in m["objects"]]
    check(now.count("in-sync"), 1, now)
    eventually(lambda: w.metric("weft_mds_repaired_total") == 1 and whole(back, x.f), 20, "repair")
    equal(w, back, x.f)
    # What the store knew of it is gone: the next restart judges nothing.
    w.restart()
    again = Client(ADDR, owner=there.owner, verifier=there.verifier)
    harness.CLIENTS.append(again)
    again.until(lambda got: err(got.status) != "GRACE", putfh(x.f),
                open_(claim_fh(), BOTH | NO_DELEG), tries=200)
    time.sleep(0.6)
    check((whole(again, x.f), w.metric("weft_mds_repair_files")), (True, 0))


def test_one_that_comes_back_after_a_restart_is_trusted(w):
    x = Wide("kept")
    w.restart()
    back = Client(ADDR, owner=x.c.owner, verifier=x.c.verifier)
    harness.CLIENTS.append(back)
    got = back.until(lambda got: err(got.status) != "GRACE", putfh(x.f),
                     open_(claim_fh(), BOTH | NO_DELEG), tries=200)
    settled(back, x.f, got.results[-1].stateid)
    time.sleep(0.6)
    check((whole(back, x.f), w.metric("weft_mds_repair_files")), (True, 0))


def test_a_read_that_no_copy_answers_ends(w):
    c = client()
    d = c.mkdir(c.root(), "read")
    s, f, o, ds, fh = one_server(c, d)
    ds.write(fh, 0, b"lost")
    c.ok(putfh(f), layoutreturn(o.stateid))
    o = lay(c, f, s, IO_READ)
    c.ok(putfh(f), layouterror(o.stateid, [(o.mirrors[0][0].deviceid, 5, NUM["READ"])]))
    c.no("IO", putfh(f), layoutget(s, IO_READ))
    other = client()
    got = other.ok(putfh(f), open_(claim_fh(), READ | NO_DELEG))
    lay(other, f, got.stateid, IO_READ)  # it has not seen yet that it fails
    time.sleep(5.2)
    o = lay(c, f, s, IO_READ)
    # One of two copies fails: the other one is there.
    s, f, o = striped(c, c.mkdir(d, "wide"), "mirrors=2", "two")
    c.ok(putfh(f), layouterror(o.stateid, [(o.mirrors[0][0].deviceid, 5, NUM["READ"])]))
    lay(c, f, s, IO_READ)
    c.ok(putfh(f), layouterror(o.stateid, [(o.mirrors[1][0].deviceid, 5, NUM["READ"])]))
    c.no("IO", putfh(f), layoutget(s, IO_READ))
    # A server that the client does not reach, and the metadata server does.
    s, f, o, ds, fh = one_server(c, d, "cut off")
    c.ok(putfh(f), layouterror(o.stateid, [(o.mirrors[0][0].deviceid, 6, NUM["READ"])]))
    c.no("LAYOUTUNAVAILABLE", putfh(f), layoutget(s, IO_READ))
    # A server that does not come back counts as gone after mds.io_error_after.
    s, f, o, ds, fh = one_server(c, d, "away")
    ds.write(fh, 0, b"lost")
    c.ok(putfh(f), layoutreturn(o.stateid))
    name = servers(c, f)[0]
    w.dev("kill", w.dir, name, "-9")
    began = time.monotonic()
    c.until(lambda got: err(got.status) == "IO", putfh(f), layoutget(s, IO_READ), tries=400)
    c.no("IO", putfh(f), read(s, 0, 4))
    check(2 < time.monotonic() - began < 12, True, "not at once, and not never")
    w.dev("start", w.dir, name)
    eventually(lambda: w.metric("weft_mds_ds_alive") == 4, 8, "the return of the server")
    check(c.ok(putfh(f), read(s, 0, 4)).data, b"lost")


def test_the_tool_shows_it_and_hurries(w):
    quiet = "no copy is known to be out of sync; nothing is being repaired or moved\n"
    check(weft(w, "mirror", "status").endswith(quiet), True)
    x = Wide("tool", 24 * MB, "mirrors=3")
    names = servers(x.c, x.f)
    x.give_back()
    w.dev("kill", w.dir, names[0], "-9")
    x.c.until(lambda got: err(got.status) != "DELAY", putfh(x.f), write(x.s, 0, b"on", FILE_SYNC),
              tries=200)
    x.data[:2] = b"on"
    got = json.loads(weft(w, "--json", "mirror", "status"))
    check((got["files"], got["running"], len(got["waiting"])), (1, [], 1))
    (one,) = json.loads(weft(w, "--json", "mirror", "status", "/tool/f"))["waiting"]
    check((one["inode"], one["ds"], one["state"], "may come back" in one["why"]),
          (x_ino(x), names[0], "stale", True))
    check(1 <= one["left_s"] <= 60, True)
    check("waits" in weft(w, "mirror", "status"), True)
    weft(w, "mirror", "repair", "/tool/f")  # elsewhere, at once: the wait is 60 s here
    eventually(lambda: json.loads(weft(w, "--json", "mirror", "status"))["running"], 10,
               "the repair")
    seen = []

    def copying():
        seen.extend(r
                    for r in json.loads(weft(w, "--json", "mirror", "status", "/tool/f"))["running"]
                    if r["step"] == "copy" and r["size"])
        return seen

    eventually(copying, 10, "progress")
    check((seen[0]["size"], seen[0]["from"] in names[1:], seen[0]["ds"] not in names),
          (24 * MB, True, True))
    check("%" in weft(w, "mirror", "status"), True)
    eventually(lambda: whole(x.c, x.f), 40, "repair")
    equal(w, x.c, x.f, bytes(x.data))
    for args, why in ((("mirror", "repair", "/tool"), "not a regular file"),
                      (("mirror", "status", "/none"), "no such file")):
        done = subprocess.run([os.path.join(BUILD, "weft"), "--admin", w.where["mds"], *args],
                              capture_output=True, text=True, timeout=60, check=False)
        check((done.returncode, why in done.stderr), (1, True), done.stderr)


def test_what_is_not_repaired_stays_stale(w):
    w.dev("down", w.dir)
    w.dev("up", w.dir, "--set", "mds.repair_files=0")
    x = Wide("off")
    x.report(1)
    x.c.ok(putfh(x.f), layoutreturn(x.o.stateid))
    time.sleep(2)
    check(sorted(states(x.c, x.f)), ["in-sync", "stale"])
    check(w.metric("weft_mds_repair_files"), 1)
    w.dev("down", w.dir)
    done = subprocess.run([os.path.join(BUILD, "weft-fsck"), "--json", os.path.join(w.dir, "mds")],
                          capture_output=True, text=True, timeout=60, check=False)
    check((done.returncode, json.loads(done.stdout)["violations"]), (0, []))
    w.dev("up", w.dir)


if __name__ == "__main__":
    run_apart(globals(), settings=healing.settings)
