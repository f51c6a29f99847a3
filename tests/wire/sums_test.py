#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Damaged sums: weft du answers what the damaged rows do not count, nothing else stops, weft health
has a reason, and weft-fsck --rebuild-sums makes the sums again. Prints TAP."""
import json
import os
import struct
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../wirelib"))
import harness  # noqa: E402
from harness import *  # noqa: E402,F403
from jobs import api  # noqa: E402
from rows import rows_of  # noqa: E402
from tool import fsck, weft, weft_json  # noqa: E402
from nfs41 import close, rename, remove, savefh  # noqa: E402

FIGURES = ("files", "directories", "logical_bytes", "stored_bytes")
UNKNOWN = (None,) * 4
ANN, BOB = 4900, 4901


def counted(o):
    """What an object of an answer counts; a reason is there exactly where something is unknown."""
    got = tuple(o[k] for k in FIGURES)
    check(bool(o["reason"]), None in got + (o.get("trash_files", 0),), o)
    return got


def du(w, depth="2"):
    """{path: figures} of the root and what is below it."""
    top = weft_json(w, "du", "--depth", depth, "/")["paths"][0]
    return {o["path"]: counted(o) for o in [top, *top["below"]]}


def users(w):
    return {u["uid"]: counted(u) + (u["trash_files"],)
            for u in weft_json(w, "du", "--users")["users"]}


def serves(w):
    try:
        return bool(api(w, "GET", "/v1/health"))
    except Failed:  # 503: it waits for its data server
        return False


def start(w):
    w.dev("start", w.dir, "mds")
    eventually(lambda: serves(w), 60, "the service")


def reasons(w):
    return {r["code"] for r in api(w, "GET", "/v1/health")["reasons"]}


def damage(w):
    return "sums-damaged" in reasons(w)


def stopped(w):
    w.dev("kill", w.dir, "mds")
    return rows_of(os.path.join(w.dir, "mds"))


def offline(w, *args, rc=0):
    done = subprocess.run([os.path.join(BUILD, "weft-fsck"), *args, os.path.join(w.dir, "mds")],
                          capture_output=True, text=True, timeout=60, check=False)
    check(done.returncode, rc, done.stdout + done.stderr)
    return done


def sized(c, d, name, size, owner):
    sid, fh = c.open(d, name, attrs={"mode": 0o644})
    c.ok(putfh(fh), setattr_(sid, size=size))
    c.ok(putfh(fh), close(sid))
    c.ok(putfh(fh), setattr_(owner=str(owner)))


def tree(c):
    a, other = c.mkdir(c.root(), "a"), c.mkdir(c.root(), "other")
    b = c.mkdir(a, "b")
    sized(c, b, "f", 100, ANN)
    sized(c, other, "g", 30, BOB)
    return a, b, other


def inode(w, path):
    return weft_json(w, "du", "-s", path)["paths"][0]["inode"]


def test_a_damaged_row_costs_only_what_it_counts(w):
    c = client()
    tree(c)
    check(du(w)["/"], (2, 3, 130, 130))
    check(damage(w), False)
    row = b"U" + struct.pack(">Q", inode(w, "/a/b"))
    with stopped(w) as r:
        r.put(row, b"\x09")
    start(w)
    check(du(w), {"/": UNKNOWN, "/a": UNKNOWN, "/a/b": (1, 0, 100, 100),
                  "/other": (1, 0, 30, 30)})
    check((users(w)[ANN], users(w)[BOB]), ((1, 0, 100, 100, 0), (1, 0, 30, 30, 0)))
    shown = weft(w, "du", "/")
    check("/: not known: the sums in the store are damaged" in shown, True, shown)
    check(damage(w), True)
    hint = next(r["hint"] for r in api(w, "GET", "/v1/health")["reasons"]
                if r["code"] == "sums-damaged")
    check("weft-fsck --rebuild-sums" in hint, True, hint)


def test_users_are_known_but_for_the_damaged_one(w):
    c = client()
    tree(c)
    with stopped(w) as r:
        r.put(b"u" + struct.pack(">L", ANN), b"\x09" * 33)
        r.put(b"R\4" + struct.pack(">L", BOB), b"\x09")
    start(w)
    got = users(w)
    check((got[ANN], got[BOB]), (UNKNOWN + (0,), (1, 0, 30, 30, None)))
    first = [u["uid"] for u in weft_json(w, "du", "--users", "--rows", "2")["users"]]
    check(sorted(first), [ANN, BOB])
    check(du(w)["/"], (2, 3, 130, 130))
    check(damage(w), True)


def test_a_damaged_directory_below_does_not_hide_the_others(w):
    c = client()
    tree(c)
    ino = inode(w, "/a/b")
    with stopped(w) as r:
        r.put(b"i" + struct.pack(">Q", ino), b"\x09")
        for key, _ in r.all(b"U"):
            r.delete(key)
    start(w)
    got = du(w, "3")
    check((got["/a/b"], got["/other"]), (UNKNOWN, (1, 0, 30, 30)))


def test_what_is_changed_goes_on_and_a_repair_knows_it_all_again(w):
    c = client()
    tree(c)
    ino = inode(w, "/a/b")
    with stopped(w) as r:
        r.put(b"U" + struct.pack(">Q", ino), b"\x09")
        r.put(b"u" + struct.pack(">L", ANN), b"\x09")
        r.put(b"R\4" + struct.pack(">L", ANN), b"\x09")
    start(w)
    eventually(lambda: "in-grace" not in reasons(w), 60, "the end of grace")
    c = client()
    a, b, other = (c.ok(putrootfh(), *(lookup(n) for n in p.split("/")), getfh()).fh
                   for p in ("a", "a/b", "other"))
    weft(w, "policy", "set", "/other", "trash=1h")
    sized(c, b, "h", 7, ANN)
    sized(c, other, "t", 9, ANN)
    c.ok(putfh(other), remove("t"))
    c.ok(putfh(a), savefh(), putfh(other), rename("b", "moved"))
    c.ok(putfh(other), lookup("moved"), remove("f"))
    check(users(w)[ANN], UNKNOWN + (None,))
    w.dev("kill", w.dir, "mds")
    found = json.loads(offline(w, "--json", rc=1).stdout)
    check((found["complete"], found["count"] > 0), (True, True), found)
    done = offline(w, "--rebuild-sums")
    check("0 violations" in done.stdout, True, done.stdout)
    start(w)
    check(du(w), {"/": (2, 3, 37, 37), "/a": (0, 0, 0, 0), "/other": (2, 1, 37, 37),
                  "/other/moved": (1, 0, 7, 7)})
    check((users(w)[ANN], users(w)[BOB]), ((1, 0, 7, 7, 2), (1, 0, 30, 30, 0)))
    check(damage(w), False)
    fsck(w)


if __name__ == "__main__":
    harness.run_apart(globals(), ds=1,
                      settings=["mds.lease=60s", "mds.sync=false", "mds.grace=1s"])
