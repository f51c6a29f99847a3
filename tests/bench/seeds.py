#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""seeds.py - two loads of machine learning on a weft cluster of this build: many small files read
in random order, and checkpoints written at once.

    seeds.py small [--once] [--files N] [--most BYTES] [--bytes A,B,...] [--rounds N] [--ds N]
        [--dir FOLDER] [--json FILE]
    seeds.py storm [--writers N] [--file BYTES] [--rounds N] [--ds N] [--dir FOLDER] [--json FILE]

Run it as root in the build tree (or with its folder in WEFT_BUILD).

small: for each size it makes N files (fewer where they would have more than --most bytes) in two
directories. The policy of one has threshold=0, so that clients use layouts. That of the other has
threshold=1G, so that clients go through the metadata server. It reads each file once in random
order: look-up, open, read, close. It prints files for each CPU second of all servers, and how much
more the metadata server's way costs: a threshold belongs at the size where that is 1. --once makes
the files once, through the metadata server, and reads them both ways: half the disk, and no figure
for making them by layout.

storm: N writers each write a file at once, OPEN to CLOSE with a COMMIT, striped over four data
servers, and over two with two mirrors. It prints the throughput, how much longer the slowest writer
takes than the fastest (slow/fast), and the metadata server's CPU time for a GiB and its share of a
processor.

Figures are median (least-most) of the rounds.
"""
import argparse
import json
import os
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import peers  # noqa: E402
from works import Spread  # noqa: E402

WAYS = {"layout": "threshold=0", "mds": "threshold=1G"}
SHAPES = {"striped": "stripes=4,mirrors=1", "mirrored": "stripes=2,mirrors=2"}
SESSIONS, DEPTH, PORT, LIMIT = 4, 4, 22049, 7200


def size_of(text):
    unit = {"k": 10, "m": 20, "g": 30}.get(text[-1].lower())
    return int(text[:-1]) << unit if unit else int(text)


def arguments():
    p = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("what", choices=("small", "storm"))
    p.add_argument("--once", action="store_true")
    p.add_argument("--files", type=int, default=4000)
    p.add_argument("--most", type=size_of, default=1 << 30)
    p.add_argument("--bytes", default="4k,16k,50k,256k,1m")
    p.add_argument("--writers", type=int, default=64)
    p.add_argument("--file", type=size_of, default=256 << 20)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--ds", type=int, default=4)
    p.add_argument("--dir", default=os.environ.get("TMPDIR", "/var/tmp"))
    p.add_argument("--json")
    return p.parse_args()


def small(a, weft):
    figures = {}
    for r in range(a.rounds):
        for size in a.bytes.split(","):
            count = max(SESSIONS, min(a.files, a.most // size_of(size))) // SESSIONS
            work = ("small", "--sessions", SESSIONS, "--depth", DEPTH, "--count", count, "--body",
                    size)
            if a.once:
                got = weft.target.bench(*work, "--policy", WAYS["mds"], "--reread", WAYS["layout"],
                                        limit=LIMIT)
                runs = {"mds": {"read": got["read"]}, "layout": {"read": got["reread"]}}
                made = got["create"]
                print(f"seeds: round {r + 1}, {size}: {1e6 / made['server_cpu_us_per_op']:.0f} "
                      f"files made for a CPU second, {made['ops_per_s']:.0f} a second",
                      file=sys.stderr)
            else:
                runs = {way: weft.target.bench(*work, "--policy", WAYS[way], limit=LIMIT)
                        for way in list(WAYS)[::-1 if r % 2 else 1]}
            for way, got in runs.items():
                for phase in {"create", "read"} & set(got):
                    figures.setdefault((phase, size, count * SESSIONS),
                                       {}).setdefault(way, []).append(got[phase])
                print(f"seeds: round {r + 1}, {size}, {way}: {got['read']['ops_per_s']:.0f} files "
                      "read a second", file=sys.stderr)
    for (phase, size, files), ways in sorted(figures.items(), reverse=True, key=lambda f: f[0][0]):
        cpu = {w: [g["server_cpu_us_per_op"] for g in got] for w, got in ways.items()}
        yield {"phase": phase, "bytes": size, "files": files,
               **{f"{w}: files/CPU s": Spread(1e6 / v for v in cpu[w]) for w in WAYS},
               "CPU, mds/layout": Spread(m / n for m, n in zip(cpu["mds"], cpu["layout"])),
               **{f"{w}: files/s": Spread(g["ops_per_s"] for g in ways[w]) for w in WAYS},
               **{f"{w}: p50 us": Spread(g["p50_us"] for g in ways[w]) for w in WAYS}}


def storm(a, weft):
    servers, writers = [pid for name, pid in ((n, weft.pid(n)) for n in weft.daemons)
                        if name != "mds"], {}
    weft.target.pids = [weft.pid()]
    for r in range(a.rounds):
        for shape in list(SHAPES)[::-1 if r % 2 else 1]:
            before = sum(map(peers.cpu_ns, servers))
            got = weft.target.bench("storm", "--sessions", a.writers, "--depth", 2, "--file",
                                    a.file, "--policy", SHAPES[shape], limit=LIMIT)["write"]
            got["ds_s"] = (sum(map(peers.cpu_ns, servers)) - before) / 1e9
            writers.setdefault(shape, []).append(got)
            print(f"seeds: round {r + 1}, {shape}: {got['mib_per_s']:.0f} MiB/s", file=sys.stderr)
    gib = a.writers * a.file / 2**30
    for shape, rounds in writers.items():
        mds = [g["server_cpu_us_per_op"] * g["ops"] / 1e6 for g in rounds]
        yield {"shape": shape, "writers": a.writers, "MiB each": a.file >> 20,
               "MiB/s": Spread(g["mib_per_s"] for g in rounds),
               "slow/fast": Spread(g["slowest_over_fastest"] for g in rounds),
               "MDS CPU ms/GiB": Spread(s * 1000 / gib for s in mds),
               "MDS share of a CPU": Spread(s / g["seconds"] for s, g in zip(mds, rounds)),
               "DS CPU s/GiB": Spread(g["ds_s"] / gib for g in rounds)}


def tell(a, table):
    width = {k: max(len(k), *(len(str(row[k])) for row in table)) for k in table[0]}
    for row in ({k: k for k in width}, *table):
        print("  ".join(f"{str(row[k]):>{w}}" for k, w in width.items()), flush=True)
    if a.json:
        with open(a.json, "w", encoding="utf-8") as f:
            json.dump([{k: v.json() if isinstance(v, Spread) else v for k, v in row.items()}
                       for row in table], f, indent=1)
            f.write("\n")


def main():
    a = arguments()
    try:
        peers.own_namespaces()
        with tempfile.TemporaryDirectory(prefix="seeds.", dir=a.dir) as folder:
            weft = peers.Weft("weft", "weft", folder, PORT, ds=a.ds)
            try:
                tell(a, list({"small": small, "storm": storm}[a.what](a, weft)))
            finally:
                weft.down()
    except peers.Trouble as e:
        print(f"seeds: {e}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
