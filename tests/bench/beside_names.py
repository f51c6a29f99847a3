#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""CPU time of servers for the same operations on names by the stock client, in rounds that
alternate between them: the host's side of tests/lab/b_names.sh.

    beside_names.py SHARED FILE [OUT]

FILE, JSON: rounds, files, and servers: {name: [pid, ...]}, all of whose time counts. OUT gets all
figures, as JSON.
"""
import json
import os
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from beside import Client, cpu_ns  # noqa: E402
from works import Results  # noqa: E402

WORKS = {"create": "create+close", "stat": "cold stat", "open": "open+close, cold",
         "rename": "rename", "unlink": "unlink"}


def main():
    with open(sys.argv[2], encoding="ascii") as f:
        spec = json.load(f)
    client, results, names = Client(sys.argv[1]), Results(), list(spec["servers"])
    for r in range(spec["rounds"] + 1):  # the first round does not count
        for work in WORKS:
            for server in names[r % len(names):] + names[:r % len(names)]:
                before = sum(map(cpu_ns, spec["servers"][server]))
                client.do(server, work, spec["files"])
                if r:
                    us = (sum(map(cpu_ns, spec["servers"][server])) - before) / spec["files"] / 1000
                    results.add(r, "stock", server, {work: {"server_cpu_us_per_op": us}})
    client.do("-", "end", 0)
    print("# us of the server's CPU each, through the stock client (nfs-ganesha syncs nothing of "
          "this); then ratios")
    print(f"# {'':18}" + "".join(f"{s:>22}" for s in names)
          + "".join(f"{a + '/' + b.removeprefix('ganesha-'):>22}" for a, b in ratios(names)))
    for work, title in WORKS.items():
        print(f"# {title:18}" + "".join(f"{results.get('stock', work, s)!s:>22}" for s in names) +
              "".join(f"{results.ratio('stock', work, a, b)!s:>22}" for a, b in ratios(names)))
    if len(sys.argv) > 3:
        with open(sys.argv[3], "w", encoding="utf-8") as f:
            json.dump([{"phase": p, "server": s, "rounds": list(v.values())}
                       for (_, p, s), v in results.figures.items()], f, indent=1)


def ratios(names):
    return [(a, b) for a in names if a.startswith("weft") for b in names if b.startswith("ganesha")]


if __name__ == "__main__":
    main()
