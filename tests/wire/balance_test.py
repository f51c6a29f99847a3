#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The balancer moves files until each data server holds its share. Prints TAP.

The tests cover what it advises, what it moves, and the limits that it keeps.
"""
import http.client
import json
import os
import socket
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../wirelib"))
from harness import *  # noqa: E402,F403
from steps import lay  # noqa: E402
from files import MB, content, layout_of, stats  # noqa: E402
from tool import ask, fsck, weft  # noqa: E402
from nfs41 import err  # noqa: E402
from mirrored import QUICK, RACKS, Striped, bytes_of, racks, servers, still, writing  # noqa: E402

FILES = 16


class Heap:
    """Files of a megabyte, all on ds1 and ds2, because the others have no weight when the
    files are made."""

    def __init__(self, w, policy="mirrors=1", n=FILES, size=MB):
        for ds in ("ds3", "ds4"):
            weft(w, "ds", "weight", ds, "0")
        self.c = client()
        self.d = self.c.mkdir(self.c.root(), "heap")
        self.c.ok(putfh(self.d), setxattr("weft.policy", policy))
        self.files = []
        for i in range(n):
            s, f = self.c.open(self.d, f"f{i}")
            data = bytes([i + 1]) * size
            self.c.until(lambda got: err(got.status) != "DELAY", putfh(f),
                         write(s, 0, data, FILE_SYNC))
            self.files.append((s, f, data))
        for ds in ("ds3", "ds4"):
            weft(w, "ds", "weight", ds, "1")

    def on(self, ds):
        return sum(ds in servers(self.c, f) for _, f, _ in self.files)

    def where(self):
        return [servers(self.c, f) for _, f, _ in self.files]

    def intact(self):
        return all(content(self.c, f, s) == data for s, f, data in self.files)


def test_dry_run_says_and_run_does(w):
    h = Heap(w)
    before = h.where()
    dry = ask(w, "balance", "--dry-run")
    check((dry["dry_run"], dry["running"], dry["files"], dry["done_files"], dry["bytes"]),
          (True, False, 8, 0, 8 * MB))
    check({m["to"] for m in dry["moves"]}, {"ds3", "ds4"})
    check({(m["state"], m["why"]) for m in dry["moves"]}, {("planned", "share")})
    check(h.where(), before, "nothing was moved")
    said = weft(w, "advise")
    check("ds1 holds 8.0M; its share by weight and size is 4.0M" in said
          and "would move from ds1 to ds" in said, True, said)
    got = ask(w, "balance")
    check((got["files"], got["done_files"], got["left"]), (8, 8, 0))
    check([h.on(f"ds{i}") for i in (1, 2, 3, 4)], [4, 4, 4, 4])
    check(sorted((m["path"], m["to"]) for m in got["moves"])
          == sorted((f"/heap/f{i}", a[0]) for i, (b, a) in enumerate(zip(before, h.where()))
                    if a != b), True, "what it tells is what it did")
    check({m["state"] for m in got["moves"]}, {"done"})
    check(h.intact(), True)
    again = ask(w, "balance")
    check((again["files"], again["end"]),
          (0, "no data server deviates from its share by more than the spread"))
    check("nothing would move" in weft(w, "advise"), True)
    check(w.metric("weft_mds_balanced_files_total"), 8)
    # A server of twice the weight has twice as much. A moved file stays for a while.
    moved = {m["path"] for m in got["moves"]}
    weft(w, "ds", "weight", "ds4", "5")
    got = ask(w, "balance")
    check(got["files"] > 0 and not moved & {m["path"] for m in got["moves"]}, True, got["moves"])
    check({m["to"] for m in got["moves"]}, {"ds4"})
    check("moving another file would not improve" in got["end"], True, got["end"])
    w.restart()
    eventually(lambda: not ask(w, "status")["grace"], 20, "the end of the grace period")
    check(ask(w, "balance")["files"], 0, "nor after a restart")
    fsck(w)


def test_limits_are_kept(w):
    h = Heap(w, n=12)
    got = ask(w, "balance", "--files", "2")
    check((got["files"], got["end"]), (2, "the limit was reached"))
    got = ask(w, "balance", "--bytes", "1M")
    check((got["files"], got["bytes"]), (1, MB))
    check(h.on("ds3") + h.on("ds4"), 3)
    # Half a second for each megabyte.
    began = time.monotonic()
    got = ask(w, "balance", "--rate", "2M", "--files", "3")
    check((got["files"], time.monotonic() - began > 0.9), (3, True))
    # A wide spread asks for nothing.
    check(ask(w, "balance", "--spread", "100")["files"], 0)
    for bad in (("--files", "0"), ("--bytes", "x"), ("--rate", "-1"), ("--spread", "0"),
                ("--bytes", "2Q")):
        check("expected a number" in weft(w, "balance", *bad, rc=1), True, bad)


def test_policies_are_kept_while_clients_write(w):
    racks(w)
    h = Heap(w, "mirrors=1,group=rack=a", n=2)
    check(ask(w, "balance")["files"], 0, "there is no other place for it")
    check(h.on("ds3") + h.on("ds4"), 0)
    # Copies stay in their racks: ds1's rack has only ds2 besides.
    weft(w, "ds", "weight", "ds2", "0")
    weft(w, "ds", "weight", "ds4", "0")
    x = Striped("both", 2 * MB, "stripes=1,mirrors=2,domain=rack")
    s, g = x.c.open(x.d, "g")
    for off in 0, MB:
        x.c.until(lambda got: err(got.status) != "DELAY", putfh(g),
                  write(s, off, b"g" * MB, FILE_SYNC))
    x.give_back()
    check(set(servers(x.c, x.f)), {"ds1", "ds3"})
    weft(w, "ds", "weight", "ds2", "1")
    weft(w, "ds", "weight", "ds4", "1")
    with writing(x):
        got = ask(w, "balance")
    check("/both/f" in [m["path"] for m in got["moves"]], True, got)
    for f in x.f, g:
        check(len({RACKS[s] for s in servers(x.c, f)}), 2)
    check("ds4" in servers(x.c, x.f) + servers(x.c, g), True)
    check([RACKS[n] for _, f, _ in h.files for n in servers(h.c, f)], ["rack=a"] * 2)
    check(bytes_of(w, x.c, x.f) == [bytes(x.data)] * 2, True)
    fsck(w)


def test_what_is_interrupted_goes_on(w):
    h = Heap(w)
    # Eight files, and no more than one in four seconds: it is under way until the restart.
    code = "PUT", "/v1/balance?rate=256K"
    check(admin(w, *code)["running"], True)
    eventually(lambda: h.on("ds3") + h.on("ds4") > 1, 20, "the first moves")
    # The server refuses a second move beside the first; the same one again changes nothing.
    check("another run" in weft(w, "balance", "--files", "7", rc=1), True)
    check(admin(w, *code)["number"], 1)
    check("still" in weft(w, "advise"), True)
    w.restart()
    eventually(lambda: not ask(w, "status")["grace"], 20, "the end of the grace period")
    check(ask(w, "advise")["balance"]["number"] in (0, 1), True)
    got = ask(w, "balance")
    check(got["done_files"], got["files"])
    h.c = client()
    check([h.on(f"ds{i}") for i in (1, 2, 3, 4)], [4, 4, 4, 4])
    eventually(lambda: all(still(h.c, f) for _, f, _ in h.files), 20, "all in their places")
    # A stopped balancer chooses no more.
    for ds in ("ds1", "ds2"):
        weft(w, "ds", "weight", ds, "4")
    check(admin(w, "PUT", "/v1/balance?rate=1")["running"], True)
    weft(w, "balance", "--stop")
    eventually(lambda: not admin(w, "GET", "/v1/balance")["running"], 10, "the end")
    check(admin(w, "GET", "/v1/balance")["files"] <= 1, True)
    fsck(w)


def admin(w, method, target):
    """The API's answer, as the tool gets it."""
    conn = http.client.HTTPConnection("mds")
    conn.sock = socket.socket(socket.AF_UNIX)
    conn.sock.connect(w.where["mds"].removeprefix("unix:"))
    conn.request(method, target)
    with conn.getresponse() as reply:
        check(reply.status, 200)
        return json.loads(reply.read())


def test_a_hot_file_leaves_a_slow_server(w):
    h = Heap(w, n=2)
    s, f, data = h.files[0]
    slow = servers(h.c, f)[0]
    o = lay(h.c, f, s)
    server = o.mirrors[0][0]
    fast = lay(h.c, h.files[1][1], h.files[1][0])
    for _ in range(150):
        s, f = h.c.open(h.d, "f0")
    h.files[0] = s, f, data
    h.c.ok(putfh(f), stats(o.stateid, server, 100, 4096, 90000))
    h.c.ok(putfh(h.files[1][1]), stats(fast.stateid, fast.mirrors[0][0], 100, 4096, 500))
    eventually(lambda: f"{slow} is slow" in weft(w, "advise", "--spread", "100"), 5,
               "that what they told is looked at")
    said = weft(w, "advise", "--spread", "100")
    check(f"{slow} is slow: clients wait 90.0 ms" in said and "/heap is hot" in said
          and "because they are hot" in said, True, said)
    got = ask(w, "balance", "--spread", "100")
    check([(m["path"], m["from"], m["why"]) for m in got["moves"]], [("/heap/f0", slow, "hot")],
          got)
    check(slow in servers(h.c, f), False)
    check(h.intact(), True)


if __name__ == "__main__":
    run_apart(globals(), settings=[*QUICK, "mds.grace=1s"])
