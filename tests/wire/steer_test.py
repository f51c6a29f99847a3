#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Which copy a client reads (docs/mirrors.md, "Reading"): weights, nearness, and what clients tell
of their reads. Prints TAP."""
import os
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../wirelib"))
import harness  # noqa: E402
from files import stats, told  # noqa: E402
from tool import rows, weft  # noqa: E402
from harness import *  # noqa: E402,F403
from steps import lay  # noqa: E402

N = 120


def file_on(w, n):
    """A file with n copies, each on a server of its own; the servers' names by device."""
    c = client()
    d = c.mkdir(c.root(), "d")
    c.ok(putfh(d), setxattr("weft.policy", f"mirrors={n}"))
    s, f = c.open(d, "f")
    c.ok(putfh(f), write(s, 0, b"x" * 4096, FILE_SYNC))
    names = {bytes.fromhex(r["id"].replace("-", "")): r["name"] for r in rows(w).values()}
    return c, f, s, names


def first_copies(names, n=N):
    """How many of n clients have which server first; it has the highest efficiency, and the same
    client gets it again."""
    got = {}
    for _ in range(n):
        c = client()
        d = c.ok(putrootfh(), lookup("d"), getfh()).fh
        s, f = c.open(d, "f", READ, how=None)
        o = lay(c, f, s, IO_READ)
        eff = [m[0].efficiency for m in o.mirrors]
        check(eff == sorted(set(eff), reverse=True), True, f"efficiencies {eff}")
        again = lay(c, f, o.stateid, IO_READ)
        check([m[0].deviceid for m in again.mirrors], [m[0].deviceid for m in o.mirrors])
        c.ok(putfh(f), layoutreturn(again.stateid), close(s))
        c.close()
        harness.CLIENTS.remove(c)
        name = names[o.mirrors[0][0].deviceid]
        got[name] = got.get(name, 0) + 1
    return got


def part(got, want, n=N):
    """Within 5 sigma: by chance, one test of some million fails."""
    sigma = (n * want * (1 - want)) ** 0.5
    check(abs(got - n * want) <= 5 * sigma, True, f"{got} of {n}, want {n * want:.0f}")


def test_clients_are_spread_by_weight(w):
    _, _, _, names = file_on(w, 3)
    weft(w, "ds", "weight", "ds3", "4")
    got = first_copies(names)
    for name, want in (("ds1", 1 / 6), ("ds2", 1 / 6), ("ds3", 4 / 6)):
        part(got.get(name, 0), want)
    weft(w, "ds", "weight", "ds3", "0")
    check(first_copies(names, 20).get("ds3", 0), 0,
          "one that has no weight is the last that is read")


def test_what_clients_tell_of_their_reads_steers(w):
    c, f, s, names = file_on(w, 3)
    o = lay(c, f, s)
    by = {names[m[0].deviceid]: m[0] for m in o.mirrors}
    check({r["latency_us"] for r in rows(w).values()}, {None})
    c.ok(putfh(f), stats(o.stateid, by["ds1"], 100, 4096, 500),
         stats(o.stateid, by["ds2"], 10, 1 << 20, 16 * 500),
         stats(o.stateid, by["ds3"], 10, 4096, 98000))
    eventually(lambda: {n: r["latency_us"] for n, r in rows(w).items()}
               == {"ds1": 500, "ds2": 500, "ds3": 98000}, 5, "what they told")
    table = [line.split() for line in weft(w, "ds", "list").splitlines()]
    check({line[1]: line[table[0].index("LATENCY")] for line in table[1:]},
          {"ds1": "500us", "ds2": "500us", "ds3": "98ms"})
    got = first_copies(names)
    part(got.get("ds3", 0), 0.25 / 2.25)
    # One report of many changes little, and a broken one nothing. A LAYOUTRETURN reports too.
    c.ok(putfh(f), stats(o.stateid, by["ds1"], 1, 4096, 8500))
    eventually(lambda: rows(w)["ds1"]["latency_us"] == 1500, 5, "one word of many")
    c.ok(putfh(f), stats(o.stateid, by["ds1"], 0, 0, 0),
         stats(o.stateid, by["ds1"], MAX64 >> 1, 0, 0))
    c.no("BADXDR", putfh(f), op("LAYOUTSTATS", u64(0), u64(MAX64), stateid(o.stateid), u64(0) * 4,
                                by["ds1"].deviceid, u32(FLEX), opaque(b"\0" * 8)))
    time.sleep(0.5)
    check(rows(w)["ds1"]["latency_us"], 1500)
    body = (u32(0) + u32(1) + u64(0) + u64(MAX64) + stateid(o.stateid) + u64(0) * 4
            + by["ds2"].deviceid + told(by["ds2"], 1, 4096, 8500))
    c.ok(putfh(f), layoutreturn(o.stateid, body=body))
    eventually(lambda: rows(w)["ds2"]["latency_us"] == 1500, 5, "the LAYOUTRETURN's")


def test_who_is_near_is_read(w):
    """The map has this machine near ds2's label."""
    _, _, _, names = file_on(w, 3)
    got = first_copies(names, 30)
    check(got.get("ds2", 0) + got.get("ds3", 0) + got.get("ds1", 0), 30)
    part(got.get("ds2", 0), 1 / 3, 30)
    weft(w, "ds", "group", "ds2", "rack=r2")
    got = first_copies(names, 30)
    check(got.get("ds2", 0) >= 28, True, f"{got}: near ones count a thousand times")


def test_a_bad_map_is_refused(w):
    w.dev("kill", w.dir, "mds", "-9")
    done = subprocess.run([os.path.join(BUILD, "weft-mds"), "-c", os.path.join(w.dir, "weft.conf"),
                           "-o", "mds.near=127.0.0.0/99 rack=r1"], capture_output=True, text=True,
                          timeout=60, check=False)
    check((done.returncode != 0, "mds.near: 127.0.0.0/99 is neither an address" in done.stderr),
          (True, True), done.stderr)
    w.dev("start", w.dir, "mds")


if __name__ == "__main__":
    harness.run_apart(globals(), 3, [*CALM, "mds.near=127.0.0.0/8 rack=r2",
                                     "mds.near_factor=1000"])
