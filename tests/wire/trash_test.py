#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The trash: what a directory's policy keeps, how it expires, comes back and goes, also after the
metadata server was killed. Prints TAP."""
import contextlib
import glob
import http.client
import os
import random
import socket
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../wirelib"))
import harness  # noqa: E402
from harness import *  # noqa: E402,F403
from jobs import api, ended  # noqa: E402
from tool import weft  # noqa: E402
from steps import one_server  # noqa: E402
from tool import fsck  # noqa: E402
from nfs41 import ANON, close, copy, err, remove, rename, savefh  # noqa: E402


def objects(w):
    return len([p for p in glob.glob(os.path.join(w.dir, "ds*/objects/**"), recursive=True)
                if os.path.isfile(p)])


def trash(w, path="/"):
    return api(w, "GET", f"/v1/trash?path={path}&limit=10000")


def names(w, path="/"):
    return sorted(e["path"] for e in trash(w, path)["entries"])


def put(w, target):
    conn = http.client.HTTPConnection("mds")
    conn.sock = socket.socket(socket.AF_UNIX)
    conn.sock.connect(w.where["mds"].removeprefix("unix:"))
    conn.request("PUT", target)
    with conn.getresponse() as reply:
        return reply.status


def kept(w, name, policy="trash=7d"):
    """A client, and a directory whose policy that is."""
    c = client()
    d = c.mkdir(c.root(), name)
    weft(w, "policy", "set", f"/{name}", policy)
    return c, d


def written(c, d, name, data=b"0123456789"):
    s, f, _, ds, fh = one_server(c, d, name)
    check(ds.write(fh, 0, data).status, 0)
    c.ok(putfh(f), write(s, 0, data, FILE_SYNC))
    c.ok(putfh(f), close(s))
    return f


def data_of(c, d, name):
    s, f = c.open(d, name)
    got = c.ok(putfh(f), read(s, 0, 100)).data
    c.ok(putfh(f), close(s))
    return got


def test_a_removed_file_is_kept_and_comes_back(w):
    c, d = kept(w, "a")
    f = written(c, d, "f")
    c.ok(putfh(d), remove("f"))
    c.no("NOENT", putfh(d), lookup("f"))
    check(err(c.call(putfh(f), getattr_("type")).status), "STALE")
    check(err(c.call(putfh(f), setattr_(mode=0o400)).status), "STALE")
    s, g = c.open(d, "g")
    check(err(c.call(putfh(f), savefh(), putfh(g), copy(ANON, s)).status), "STALE")
    got = trash(w, "/a")
    e = got["entries"][0]
    check((e["path"], e["type"], e["size_bytes"], e["uid"], got["next"]),
          ("/a/f", "file", 10, 0, None))
    check((-1 < e["expires_at"] - e["removed_at"] - 7 * 86400 <= 0, got["total_bytes"] >= 10),
          (True, True))
    check(weft(w, "trash", "restore", "/a/f").strip(), "restored: /a/f")
    check(data_of(c, d, "f"), b"0123456789")
    check((trash(w, "/a")["entries"], c.attrs(f, "numlinks").numlinks), ([], 1))
    check("not in the trash" in api(w, "PUT", "/v1/trash/restore?path=/a/f", 404)["error"], True)


def test_without_the_policy_or_with_0_nothing_is_kept(w):
    c, d = kept(w, "b", "trash=0")
    plain = c.mkdir(c.root(), "plain")
    for at in (d, plain):
        written(c, at, "f")
        c.ok(putfh(at), remove("f"))
    check((names(w, "/b"), names(w, "/plain")), ([], []))


def test_it_is_inherited_past_a_policy_for_other_things(w):
    c, d = kept(w, "c")
    sub = c.mkdir(d, "sub")
    none = c.mkdir(d, "none")
    weft(w, "policy", "set", "/c/sub", "stripes=1,mirrors=1")
    weft(w, "policy", "set", "/c/none", "trash=0")
    check(weft(w, "policy", "get", "/c").strip(), "stripes=1,unit=1M,mirrors=1,trash=7d")
    for at in (sub, none):
        c.ok(putfh(at), create(FIFO, "pipe", mode=0o600))
        c.ok(putfh(at), remove("pipe"))
        written(c, at, "f")
        c.ok(putfh(at), remove("f"))
    check(names(w, "/c"), ["/c/sub/f"])
    check("trash: expected" in api(w, "PUT", "/v1/policy?path=/c", 400, "trash=7")["error"], True)


def test_a_file_that_a_rename_replaces_is_kept(w):
    c, d = kept(w, "e")
    written(c, d, "f", b"old")
    written(c, d, "g", b"new")
    c.ok(putfh(d), savefh(), rename("g", "f"))
    check(names(w, "/e"), ["/e/f"])
    check("exists" in api(w, "PUT", "/v1/trash/restore?path=/e/f", 409)["error"], True)
    weft(w, "trash", "restore", "/e/f", "--to", "/e/was")
    check((data_of(c, d, "f"), data_of(c, d, "was"), names(w, "/e")), (b"new", b"old", []))


def test_a_name_that_is_left_keeps_it_out(w):
    c, d = kept(w, "links")
    f = written(c, d, "f")
    c.ok(putfh(f), savefh(), putfh(d), link("g"))
    c.ok(putfh(d), remove("f"))
    check(names(w, "/links"), [])
    c.ok(putfh(d), remove("g"))
    check(names(w, "/links"), ["/links/g"])


def test_a_file_that_is_open_is_used_until_the_last_close_and_kept(w):
    c, d = kept(w, "o")
    s, f, _, ds, fh = one_server(c, d, "f")
    check(ds.write(fh, 0, b"0123456789").status, 0)
    client().ok(putfh(d), remove("f"))
    check(names(w, "/o"), ["/o/f"])
    c.ok(putfh(f), write(s, 10, b"!", FILE_SYNC))
    check(c.ok(putfh(f), read(s, 0, 99)).data, b"0123456789!")
    c.ok(putfh(f), close(s))
    check(err(c.call(putfh(f), getattr_("type")).status), "STALE")
    weft(w, "trash", "restore", "/o/f")
    check(data_of(c, d, "f"), b"0123456789!")


def test_one_that_was_restored_while_it_is_open_stays(w):
    c, d = kept(w, "ro")
    s, f = c.open(d, "f")
    c.ok(putfh(f), write(s, 0, b"abc", FILE_SYNC))
    c.ok(putfh(d), remove("f"))
    weft(w, "trash", "restore", "/ro/f")
    c.ok(putfh(f), close(s))
    check((data_of(c, d, "f"), names(w, "/ro")), (b"abc", []))


def tree(c, d):
    """x/ with f and a symbolic link, x/y/ with g, and x/empty/."""
    x = c.mkdir(d, "x", attrs={"mode": 0o750})
    y = c.mkdir(x, "y", attrs={"mode": 0o711})
    c.mkdir(x, "empty")
    written(c, x, "f", b"f")
    written(c, y, "g", b"g")
    c.ok(putfh(x), create(LNK, "l", "f"))
    return x, y


def cut(c, d, x, y):
    for at, name in ((y, "g"), (x, "y"), (x, "f"), (x, "l"), (x, "empty"), (d, "x")):
        c.ok(putfh(at), remove(name))


def test_a_tree_comes_back_with_its_directories(w):
    c, d = kept(w, "t")
    x, y = tree(c, d)
    cut(c, d, x, y)
    check(names(w, "/t"),
          ["/t/x", "/t/x/empty", "/t/x/f", "/t/x/l", "/t/x/y", "/t/x/y/g"])
    check(names(w, "/t/x/y"), ["/t/x/y", "/t/x/y/g"])
    check(err(c.call(putfh(x), create(DIR, "new", mode=0o755)).status), "STALE")
    # One file brings the directories of its path with it.
    weft(w, "trash", "restore", "/t/x/y/g")
    check(names(w, "/t"), ["/t/x/empty", "/t/x/f", "/t/x/l"])
    check((c.attrs(x, "mode").mode, c.attrs(y, "mode").mode), (0o750, 0o711))
    weft(w, "trash", "restore", "-r", "/t/x", "--wait")
    check((names(w, "/t"), data_of(c, x, "f"), data_of(c, y, "g")), ([], b"f", b"g"))
    check((c.attrs(x, "numlinks").numlinks, c.ok(putfh(x), lookup("l"), readlink()).link),
          (4, b"f"))


def test_a_directory_that_was_made_again_takes_the_files(w):
    c, d = kept(w, "m")
    x, y = tree(c, d)
    cut(c, d, x, y)
    again = c.mkdir(d, "x")
    written(c, again, "f", b"newer")
    got = ended(w, api(w, "PUT", "/v1/trash/restore?path=/m/x&recursive=1")["job"])
    check((got["state"], got["kind"], "its name exists" in got["error"]),
          ("failed", "trash-restore", True), got)
    check(data_of(c, again, "f"), b"newer")
    back = c.ok(putfh(again), lookup("y"), getfh()).fh
    check((back, data_of(c, back, "g")), (y, b"g"))


def test_of_several_of_one_name_the_last_one_comes_back(w):
    c, d = kept(w, "n")
    for data in (b"one", b"two", b"three"):
        written(c, d, "f", data)
        c.ok(putfh(d), remove("f"))
    ids = [e["id"] for e in trash(w, "/n")["entries"]]
    weft(w, "trash", "restore", "/n/f")
    check(data_of(c, d, "f"), b"three")
    weft(w, "trash", "restore", str(min(ids)), "--to", "/n/first")
    check(data_of(c, d, "first"), b"one")
    c.ok(putfh(d), remove("f"))
    got = ended(w, api(w, "PUT", "/v1/trash/restore?path=/n&recursive=1")["job"])
    check((got["state"], data_of(c, d, "f"), len(names(w, "/n"))), ("done", b"three", 1), got)
    # Within a second, and the first to go has the higher number.
    written(c, d, "new", b"last")
    written(c, d, "g", b"first")
    c.ok(putfh(d), savefh(), rename("new", "g"))
    c.ok(putfh(d), remove("g"))
    weft(w, "trash", "restore", "/n/g")
    check(data_of(c, d, "g"), b"last")


def test_it_expires_and_its_objects_go(w):
    before = objects(w)
    c, d = kept(w, "expires", "trash=1s")
    x, y = tree(c, d)
    cut(c, d, x, y)
    eventually(lambda: not names(w, "/expires"), 60, "the end of what expired")
    eventually(lambda: objects(w) == before, 60, "the end of its objects")


def test_it_is_emptied_by_path_and_age(w):
    before = objects(w)
    c, d = kept(w, "empty")
    x, y = tree(c, d)
    cut(c, d, x, y)
    written(c, d, "stays")
    c.ok(putfh(d), remove("stays"))
    ended(w, api(w, "DELETE", "/v1/trash?path=/empty/x&older_s=3600")["job"])
    check(len(names(w, "/empty")), 7)
    got = ended(w, api(w, "DELETE", "/v1/trash?path=/empty/x")["job"])
    check((got["state"], got["done_files"], names(w, "/empty")), ("done", 6, ["/empty/stays"]), got)
    eventually(lambda: objects(w) == before + 1, 60, "the end of the objects")


def test_an_expiry_and_a_restore_do_not_both_win(w):
    c, d = kept(w, "race", "trash=1s")
    won = 0
    for k in range(12):
        written(c, d, f"f{k}")
        c.ok(putfh(d), remove(f"f{k}"))
    while names(w, "/race"):
        for k in range(12):
            status = put(w, f"/v1/trash/restore?path=/race/f{k}")
            check(status in (200, 404), True, status)
            won += status == 200
            time.sleep(random.random() / 8)
    there = [k for k in range(12) if c.call(putfh(d), lookup(f"f{k}")).status == 0]
    check(len(there), won)
    for k in there:
        check(data_of(c, d, f"f{k}"), b"0123456789")


def test_a_kill_leaves_each_file_in_one_place_restart(w):
    c, d = kept(w, "kill")
    x = c.mkdir(d, "x")
    for k in range(40):
        s, f = c.open(x, f"f{k}")
        c.ok(putfh(f), write(s, 0, b"%d" % k, FILE_SYNC), close(s))
    for _ in range(2):
        # Half of them go, and half of those come back, while the server dies.
        kill = threading.Timer(random.random() / 2, w.dev, ("kill", w.dir, "mds", "-9"))
        kill.start()
        with contextlib.suppress(Exception):
            for k in range(40):
                c.call(putfh(x), remove(f"f{k}"))
                if k % 2:
                    api(w, "PUT", f"/v1/trash/restore?path=/kill/x/f{k}")
        kill.join()
        w.dev("start", w.dir, "mds")
        c = client()
        there = {f"/kill/x/f{k}" for k in range(40)
                 if c.call(putfh(x), lookup(f"f{k}")).status == 0}
        away = names(w, "/kill/x")
        check((there & set(away), len(there) + len(away)), (set(), 40))
        fsck(w)
        ended(w, api(w, "PUT", "/v1/trash/restore?path=/kill/x&recursive=1")["job"])
    for k in range(40):
        check(data_of(c, x, f"f{k}"), b"%d" % k)


if __name__ == "__main__":
    harness.run_shared(globals(), ds=2, settings=["mds.lease=20s", "mds.sync=false"])
