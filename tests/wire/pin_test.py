#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Pinned and warm copies (docs/pin.md): they are made in their group as one job, read first,
written as others, and taken away. Prints TAP."""
import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../wirelib"))
from harness import *  # noqa: E402,F403
from jobs import api  # noqa: E402
from files import MB, content, layout_of  # noqa: E402
from mirrored import QUICK, equal, servers, states  # noqa: E402
from steps import data_server, lay, settled  # noqa: E402
from tool import ask, fsck, rows, weft  # noqa: E402

FAST, SLOW = ["ds3", "ds4"], ["ds1", "ds2"]


def groups(w, root="/d", policy="mirrors=1,group=group=slow"):
    """Two groups of two servers; a directory whose files are on the slow one."""
    for name in FAST + SLOW:
        weft(w, "ds", "group", name, "group=fast" if name in FAST else "group=slow")
    c = client()
    d = c.mkdir(c.root(), root[1:])
    weft(w, "policy", "set", root, policy)
    return c, d


def file(c, d, name, size=8192):
    s, f = c.open(d, name)
    for off in range(0, max(size, 1), MB):
        c.ok(putfh(f), write(s, off, name.encode()[:1] * min(size, MB), FILE_SYNC))
    c.ok(putfh(f), close(s))
    return f


def pinned(c, f):
    """Servers of the pinned copy, if it is in sync."""
    return [o["ds"] for m in layout_of(c, f)["mirrors"] if m.get("pinned")
            for o in m["objects"] if o["state"] == "in-sync"]


def pins(w):
    return ask(w, "pin", "list")["pins"]


def gone(w, c, *files):
    eventually(lambda: not pins(w), 60, "the end of the pins")
    for f in files:
        check([len(m["objects"]) for m in layout_of(c, f)["mirrors"]], [1])
    eventually(lambda: w.metric("weft_mds_orders") == 0, 60, "the deletion of the copies")
    fsck(w)


def first(w, c, f, name="f"):
    """The server that clients read first."""
    names = {bytes.fromhex(r["id"].replace("-", "")): r["name"] for r in rows(w).values()}
    got = set()
    for _ in range(8):
        other = client()
        d = other.ok(putrootfh(), lookup("d"), getfh()).fh
        s, g = other.open(d, name, READ, how=None)
        o = lay(other, g, s, IO_READ)
        got.add(names[o.mirrors[0][0].deviceid])
        other.ok(putfh(g), layoutreturn(o.stateid), close(s))
    return got


def test_a_tree_is_pinned_and_unpinned(w):
    c, d = groups(w)
    sub = c.mkdir(d, "sub")
    files = [file(c, d, "f"), file(c, d, "g", 0), file(c, sub, "h", 3 * MB)]
    before = [servers(c, f) for f in files]
    check("a directory" in weft(w, "pin", "/d", rc=1), True)
    got = ask(w, "pin", "-r", "/d", "--group", "fast", "--wait")["pins"][0]
    check((got["path"], got["group"], got["state"], got["copies"], got["copies_bytes"],
           got["ends_at"], got["without_copy"]),
          ("/d", "group=fast", "held", 3, 8192 + 3 * MB, None, 0), got)
    for f, was in zip(files, before):
        check(servers(c, f)[0], was[0], "the first copy is where it was")
        check((len(pinned(c, f)), pinned(c, f)[0] in FAST), (1, True))
        check(c.ok(putfh(f), getxattr("weft.policy")).value,
              b"stripes=1,unit=1M,mirrors=1,group=group=slow", "the policy is as it was")
        if f != files[1]:
            equal(w, c, f)
    check(first(w, c, files[0]) <= set(FAST), True, "clients read the pinned copy first")
    (job,) = [j for j in ask(w, "jobs")["finished"] if j["kind"] == "pin"]
    check((job["state"], job["done_files"], job["done_bytes"]), ("done", 3, 8192 + 3 * MB), job)
    fsck(w)
    # A file that is made later has no such copy, until the path is pinned again.
    late = file(c, sub, "late")
    check(pinned(c, late), [])
    got = ask(w, "pin", "-r", "/d", "--for", "12h", "--wait")["pins"]
    check([(p["copies"], p["state"]) for p in got], [(4, "held")])
    check(abs(got[0]["ends_at"] - got[0]["made_at"] - 12 * 3600) < 2, True)
    check(len(pinned(c, late)), 1)
    for mirror in "01":  # also the one that is not pinned: the other would be alone
        check("weft unpin" in weft(w, "mirror", "remove", "/d/f", mirror, rc=1), True)
    check("weft unpin" in weft(w, "move", "/d/f", "--group", "group=slow", rc=1), True)
    check("weft unpin" in weft(w, "move", "/d/f", "--stripes", "2", rc=1), True)
    weft(w, "unpin", "/d", "--wait")
    gone(w, c, *files, late)
    check([servers(c, f) for f in files], before)
    check("not pinned" in weft(w, "unpin", "/d", rc=1), True)


def test_writes_go_to_all_copies_and_the_time_ends(w):
    c, d = groups(w)
    f = file(c, d, "f", 2 * MB)
    s, _ = c.open(d, "f", how=None)
    weft(w, "pin", "/d/f", "--wait")
    o = settled(c, f, s)
    check(len(o.mirrors), 2, "a layout for writing names both")
    for m in o.mirrors:
        ds = data_server(c, m[0])
        check(ds.write(m[0].fhs[0], 4096, b"new" * 1000).status, 0)
        ds.close()
    c.ok(putfh(f), layoutreturn(o.stateid))
    c.ok(putfh(f), write(s, MB, b"through the metadata server", FILE_SYNC))
    equal(w, c, f)
    got = ask(w, "mirror", "verify", "/d/f")
    check((got["files"], got["different"]), (1, 0), got)
    api(w, "PUT", "/v1/pins?path=/d/f&for_s=1", body="")
    gone(w, c, f)
    check(content(c, f, s)[4096:4102], b"newnew")


def test_what_cannot_be_is_refused(w):
    c, d = groups(w)
    f = file(c, d, "f")
    check("no data server has the label group=none" in
          weft(w, "pin", "/d/f", "--group", "none", rc=1), True)
    check("expected a name" in weft(w, "pin", "/d/f", "--group", "a b", rc=1), True)
    check("no such file" in weft(w, "pin", "/d/none", rc=1), True)
    check("--for" in weft(w, "pin", "/d/f", "--for", "12", rc=2), True)
    s, _ = c.open(d, "f", how=None)
    c.ok(putfh(f), setattr_(s, size=1 << 43))
    said = weft(w, "pin", "/d/f", rc=1)
    check((f"{1 << 43} bytes are needed" in said, "are free below" in said), (True, True), said)
    eventually(lambda: not pins(w), 30, "nothing is left of it")
    check(servers(c, f)[0] in SLOW and len(servers(c, f)) == 1, True)
    c.ok(putfh(f), setattr_(s, size=4096), close(s))
    weft(w, "pin", "/d/f", "--wait")
    check(pinned(c, f)[0] in FAST, True)
    fsck(w)


def test_restart_goes_on_and_a_cancel_takes_away(w):
    c, d = groups(w)
    files = [file(c, d, f"{i}x", 2 * MB) for i in range(6)]
    weft(w, "pin", "-r", "/d")
    (p,) = pins(w)
    weft(w, "set", "mds.repair_rate=4M")
    eventually(lambda: pins(w)[0]["copies"] >= 1, 60, "the first copy")
    w.dev("kill", w.dir, "mds", "-9")
    w.dev("start", w.dir, "mds")
    eventually(lambda: pins(w)[0]["state"] == "held", 60, "the rest after a restart")
    (q,) = pins(w)
    check((q["id"], q["copies"], q["copies_bytes"]), (p["id"], 6, 12 * MB), q)
    c = client()
    check({len(pinned(c, f)) for f in files}, {1})
    weft(w, "unpin", "/d", "--wait")
    gone(w, c, *files)
    # Again, and cancelled in the middle: all that was made goes.
    weft(w, "set", "mds.repair_rate=512K")  # 24 s for all
    job = ask(w, "pin", "-r", "/d")["pins"][0]["job"]
    eventually(lambda: pins(w)[0]["copies"] >= 1, 60, "the first copy")
    weft(w, "set", "mds.repair_rate=0")
    weft(w, "jobs", "cancel", str(job))
    gone(w, c, *files)
    over = [(j["kind"], j["state"]) for j in ask(w, "jobs")["finished"]
            if j["kind"] in ("pin", "unpin")]
    check(over[:2], [("unpin", "done"), ("pin", "cancelled")])


def test_a_dead_server_of_the_group(w):
    c, d = groups(w)
    f = file(c, d, "f", MB)
    weft(w, "pin", "/d/f", "--wait")
    (was,) = pinned(c, f)
    (other,) = [n for n in FAST if n != was]
    w.dev("kill", w.dir, was, "-9")
    weft(w, "ds", "kill", was, "--yes")
    weft(w, "mirror", "repair", "/d/f")
    eventually(lambda: pinned(c, f) == [other], 60, "the copy on the other server of the group")
    check(servers(c, f)[0] in SLOW, True)
    # Without one, it waits; no other group gets it.
    w.dev("kill", w.dir, other, "-9")
    weft(w, "ds", "kill", other, "--yes")
    weft(w, "mirror", "repair", "/d/f")
    s, _ = c.open(d, "f", how=None)
    c.until(lambda got: not got.status, putfh(f), write(s, 0, b"on", FILE_SYNC), tries=200)
    eventually(lambda: states(c, f) == ["in-sync", "stale"], 60, "the copy misses a write")
    eventually(lambda: [x["why"] for x in ask(w, "mirror", "status", "/d/f")["waiting"]] ==
               ["no data server is available for it"], 60, "it waits for its group")
    check(content(c, f, s)[:2], b"on")
    fsck(w)


def test_warm_copies_go_for_a_pin(w):
    c, d = groups(w, policy="stripes=1,mirrors=2,domain=group")
    one, two = file(c, d, "one"), file(c, d, "two")
    got = ask(w, "warm", "/d/one", "--wait")["pins"][0]
    check((got["warm"], got["copies"]), (True, 1), "neither domain nor groups keep it away")
    check(abs(got["ends_at"] - got["made_at"] - 86400) < 2, True, "a day")
    check(pinned(c, one)[0] in FAST, True)
    weft(w, "pin", "/d/two", "--wait")
    check({p["path"]: p["warm"] for p in pins(w)}, {"/d/one": True, "/d/two": False})
    # The limit sinks below what is in use: warm copies go, pinned ones stay.
    w.dev("down", w.dir)
    w.dev("up", w.dir, "--set", "mds.near_full=1")
    eventually(lambda: [p["path"] for p in pins(w)] == ["/d/two"], 60, "the warm copy goes")
    c = client()
    check((pinned(c, one), len(pinned(c, two))), ([], 1))
    check("are free below" in weft(w, "warm", "/d/one", rc=1), True)
    c.ok(putfh(c.ok(putrootfh(), lookup("d"), getfh()).fh), remove("two"))
    eventually(lambda: not pins(w), 60, "a path that is gone is not pinned")
    fsck(w)


if __name__ == "__main__":
    run_apart(globals(), settings=[*QUICK, "mds.lease=60s"])
