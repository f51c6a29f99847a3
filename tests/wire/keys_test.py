#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Data servers have keys of their own. Prints TAP.

A known key of one server opens no other server. A server exchanges the cluster key for a key of its
own, once. The tests rotate the cluster key under I/O.
"""
import contextlib
import os
import re
import subprocess
import sys
import threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../wirelib"))
import harness  # noqa: E402
import tap  # noqa: E402
from harness import *  # noqa: E402,F403
from steps import data_server, settled  # noqa: E402
from files import v3_attrs, wcc  # noqa: E402
from tool import admin_of, weft_json as weft  # noqa: E402
from beside import Server, mds_said  # noqa: E402
from siphash import siphash  # noqa: E402

LONG = 60


def fields(text):
    return dict(line.split("=", 1) for line in text.splitlines()[1:])


def key_file(w, name):
    """What weft ds key makes for a server."""
    path = os.path.join(w.top, f"{name}.{len(os.listdir(w.top))}.key")
    weft(w, "ds", "key", name, "--out", path)
    check(os.stat(path).st_mode & 0o777, 0o440)
    return path


def read(path):
    with open(path, encoding="ascii") as f:
        return f.read()


def forged(path, **changes):
    """A copy of a key file with other values."""
    text = read(path)
    for k, v in changes.items():
        text = re.sub(rf"(?m)^{k}=.*$", f"{k}={v}", text)
    with open(path + ".forged", "w", encoding="ascii") as f:
        f.write(text)
    os.chmod(path + ".forged", 0o440)
    return path + ".forged"


def moved(w):
    """Waits until the cluster's own data servers, and those that other tests left alive, have keys
    of the newest number."""
    eventually(lambda: not [s for s in weft(w, "key", "status")["servers"] if s["alive"]
                            or s["name"] in ("ds1", "ds2")], LONG, "all have keys of their own")


class File:
    """One on each data server; its handle there, as a layout gives it."""

    def __init__(self, name, policy="mirrors=2"):
        self.c = client()
        d = self.c.mkdir(self.c.root(), name)
        self.c.ok(putfh(d), setxattr("weft.policy", policy))
        self.s, self.f = self.c.open(d, "f")
        self.o = settled(self.c, self.f, self.s)
        self.ds = [data_server(self.c, m[0]) for m in self.o.mirrors]
        self.fh = [m[0].fhs[0] for m in self.o.mirrors]
        for ds, fh in zip(self.ds, self.fh):
            check(ds.write(fh, 0, b"A" * 4096).status, 0)


def test_a_key_of_one_server_opens_nothing_of_another(w):
    moved(w)
    x = File("theirs")
    keys = [fields(read(key_file(w, n)))["cap"] for n in ("ds1", "ds2")]
    for ds, fh in zip(x.ds, x.fh):
        good = [siphash(bytes.fromhex(k), fh[:24]) == fh[24:] for k in keys]
        check(sum(good), 1, "a capability is made with its server's key")
        mine, other = keys[good.index(True)], keys[good.index(False)]
        # Never fenced (epoch 2^32 - 1), never barred (client 0), with every right.
        head = bytes([fh[0] | 7]) + fh[1:16] + b"\xff" * 4 + b"\0" * 4
        check(ds.read(head + siphash(bytes.fromhex(mine), head), 0, 16).status, 0,
              "the forger's own server believes him")
        check(ds.read(head + siphash(bytes.fromhex(other), head), 0, 16).status, 10001)
        check(ds.write(head + siphash(bytes.fromhex(other), head), 0, b"X").status, 10001)
        for number in (1, 7, 255):
            head = bytes([fh[0], number]) + head[2:]
            check(ds.read(head + siphash(bytes.fromhex(mine), head), 0, 16).status, 10001,
                  "of a number that is none")


def test_a_key_of_one_server_is_not_another_at_the_control_port(w):
    mine = key_file(w, "ds1")
    theirs = fields(read(key_file(w, "ds2")))
    s = Server(w, "ds2", cluster_key="", key=forged(mine, server=theirs["server"]))
    try:
        s.says("it closed the connection instead of answering the join request", LONG)
        eventually(lambda: "cannot decrypt a message" in mds_said(w), LONG, "told")
        check(weft(w, "ds", "list")["ds"][1]["alive"], True)
    finally:
        s.end()


def test_a_key_file_makes_a_server_and_is_looked_at(w):
    path = key_file(w, "fresh")
    s = Server(w, "fresh", cluster_key="", key=path)
    try:
        s.says("joined as data server", LONG)
        check(next(d for d in weft(w, "ds", "list")["ds"]
                   if d["name"] == "fresh")["id"].replace("-", ""), fields(read(path))["server"])
        store = os.path.join(s.top, "store")
    finally:
        s.end()
    check("cluster key" in s.said(), False)
    os.chmod(path, 0o444)
    for settings, why in (({"key": path}, "lets others read or change it"),
                          ({"key": os.path.join(w.dir, "weft.conf")}, None),
                          ({"key": key_file(w, "ds1")}, "the key of another data server"),
                          ({"key": forged(key_file(w, "fresh"), version="3")},
                           "a key of a newer version"),
                          ({"key": forged(key_file(w, "fresh"), version="2")},
                           "not a data server's key"),
                          ({"key": forged(key_file(w, "fresh"), cap="00")},
                           "not a data server's key")):
        t = Server(w, "fresh", store=store, cluster_key="", **settings)
        try:
            check(t.child.wait(LONG) != 0, True)
            check(why is None or why in t.said(), True, t.said())
        finally:
            t.end()


def test_the_cluster_key_moves_a_server_over_once(w):
    s = Server(w, "old")
    store = os.path.join(s.top, "store")
    try:
        s.says("joined as data server", LONG)
        s.says("WARN weft-ds: this data server has the cluster key", LONG)
        s.says("the MDS sent this data server its own keys", LONG)
        check(os.stat(os.path.join(store, "key")).st_mode & 0o777, 0o600)
        moved(w)
        check(bool(re.search(r"WARN .*\(old\) joined with the cluster key", mds_said(w))), True)
    finally:
        s.end()
    # From now on it needs no cluster key, and says so where it has one.
    for settings in ({"cluster_key": ""}, {}):
        s = Server(w, "old", store=store, **settings)
        try:
            s.says("joined as data server", LONG)
            check("has the cluster key" in s.said(), False)
            check("remove that file from this machine" in s.said(), not settings)
        finally:
            s.end()
    os.unlink(os.path.join(store, "key"))
    s = Server(w, "old", store=store)
    try:
        s.says("this server has its own keys but used the cluster key", LONG)
        eventually(lambda: "old at 127.0.0.1" in mds_said(w)
                   and "it has its own keys but used the cluster key" in mds_said(w), LONG, "told")
    finally:
        s.end()
    s = Server(w, "old", store=store, cluster_key="", key=key_file(w, "old"))
    try:
        s.says("joined as data server", LONG)
    finally:
        s.end()
    weft(w, "ds", "kill", "old")
    weft(w, "ds", "kill", "fresh")


class Writer(threading.Thread):
    """Reads and writes by capabilities that it got once."""

    def __init__(self, x):
        super().__init__()
        self.x, self.end, self.n, self.bad = x, False, 0, []
        self.start()

    def run(self):
        while not self.end:
            for ds, fh in zip(self.x.ds, self.x.fh):
                got = ds.write(fh, 0, b"B" * 4096).status, ds.read(fh, 0, 4096).status
                if got != (0, 0):
                    self.bad.append(got)
            self.n += 1


def test_the_key_is_rotated_and_no_call_fails(w):
    moved(w)
    x = File("kept")
    go = Writer(x)
    try:
        was = weft(w, "key", "status")["number"]
        got = weft(w, "key", "rotate", "--yes")
        check((got["number"], [s["name"] for s in got["servers"] if s["alive"]]), (was + 1, []))
        n = go.n
        eventually(lambda: go.n > n + 20, LONG, "I/O goes on")
    finally:
        go.end = True
        go.join()
    check(go.bad, [])
    y = File("after")
    check({fh[1] for fh in y.fh}, {was + 1}, "new handles are of the new number")
    check({fh[1] for fh in x.fh}, {was})
    # The server believes what a client reports of a handle of the number before (RFC 9766).
    told = wcc([(x.o.mirrors[0][0], v3_attrs(8192, (2000, 7)))])
    x.c.ok(putfh(x.f), setattr_(time_access_set=(1000, 0)), layout_wcc(x.o.stateid, told))
    check(x.c.attrs(x.f, "time_access").time_access, (2000, 7))


class Repeated(threading.Thread):
    """Runs a command again and again until its effect has begun."""

    def __init__(self, command, begun):
        super().__init__()
        self.command, self.begun, self.end = command, begun, False

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.end = True
        self.join()

    def run(self):
        while not self.end and not self.begun():
            subprocess.run(self.command, capture_output=True, check=False)


def test_a_kill_in_the_middle_of_a_rotation_is_no_end(w):
    moved(w)
    was = weft(w, "key", "status")["number"]
    x = File("middle", policy="mirrors=2")
    w.dev("kill", w.dir, "ds2", "-9")
    # The second rotation recalls layouts, so the server has to know them all. That takes the grace
    # period and a lease.
    rotate = [os.path.join(BUILD, "weft"), "--admin", admin_of(w), "--json", "key", "rotate",
              "--yes"]
    begun = f"a new cluster key, number {was + 1},"
    with Repeated(rotate, lambda: begun in mds_said(w)):
        eventually(lambda: begun in mds_said(w), LONG, "the rotation has begun")
        w.dev("kill", w.dir, "mds", "-9")
    w.dev("start", w.dir, "mds")
    w.dev("start", w.dir, "ds2")
    eventually(lambda: {d["name"]: d["alive"] for d in weft(w, "ds", "list")["ds"]
                        if d["name"] in ("ds1", "ds2")} == {"ds1": True, "ds2": True}, LONG,
               "both are back")
    moved(w)
    check(weft(w, "key", "status")["number"], was + 1)
    harness.CLIENTS.remove(x.c)
    probe = client()
    d = probe.mkdir(probe.root(), "probe")

    def opens():
        try:
            return probe.open(d, "f") is not None
        except Failed as e:
            if "GRACE" in str(e):
                return False
            raise
    eventually(opens, LONG, "the end of grace")
    y = File("later")
    check({fh[1] for fh in y.fh}, {was + 1})
    # The cluster key opens nothing any more.
    s = Server(w, "late")
    try:
        s.says("make a new ds.key file with weft ds key", LONG)
    finally:
        s.end()


@contextlib.contextmanager
def around(name):
    with harness.clients():
        yield (harness.THE,)


if __name__ == "__main__":
    harness.THE = Cluster(ds=2, settings=["mds.lease=10s", "mds.grace=5s"])
    try:
        tap.run(tap.named(globals()), around)
    finally:
        harness.THE.down()
