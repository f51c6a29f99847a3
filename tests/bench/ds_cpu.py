#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""CPU time of a data server per MiB and per 4 KiB over TCP, for several settings side by side.
Rounds of all settings run in turn, so that other work of the machine falls on all. Prints the least
of all rounds, which is the cost without disturbance, and ratios to the first setting.

    ds_cpu.py [--mib N] [--rounds N] [--sizes BYTES... --] NAME:KEY=VALUE,KEY=VALUE... NAME:...
    ds_cpu.py plain:ds.pool=0 pool:ds.pool=64M
    ds_cpu.py old@/path/to/another/build: new:

Run it in a built tree.
"""
import argparse
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../wirelib"))
import harness  # noqa: E402
from harness import *  # noqa: E402,F403
from steps import one_server  # noqa: E402
from nfs41 import auth_sys, opaque, u32, u64  # noqa: E402

MIB = 1 << 20
DEPTH = 8


def cpu_ns(pid):
    """Of all threads, in the kernel and outside."""
    total = 0
    for t in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{t}/schedstat", encoding="ascii") as f:
            total += int(f.read().split()[0])
    return total


class Variant:
    def __init__(self, spec):
        name, _, settings = spec.partition(":")
        self.name, _, build = name.partition("@")
        self.settings = [s for s in settings.split(",") if s]
        self.build = build or harness.BUILD
        self.took = {}

    def run(self, mib, sizes):
        harness.BUILD = self.build
        w = Cluster(ds=1, settings=self.settings)
        try:
            self.measure(w, mib, sizes)
        finally:
            for c in harness.CLIENTS:
                c.drop()
            harness.CLIENTS.clear()
            w.down()

    def measure(self, w, mib, sizes):
        pid = next(r["pid"] for r in json.loads(w.dev("status", w.dir, "--json"))["daemons"]
                   if r["name"] == "ds1")
        c = client()
        _, _, _, ds, fh = one_server(c, c.root())
        for size in sizes:
            n = min(mib * MIB // size, mib * 16)
            for what, proc in (("write", 7), ("read", 6)):
                self.calls(ds, proc, fh, size, min(n, 2 * DEPTH))  # what comes only the first time
                before = cpu_ns(pid)
                self.calls(ds, proc, fh, size, n)
                spent = (cpu_ns(pid) - before) / n / 1000
                self.took.setdefault((what, size), []).append(spent)
                ds.commit(fh)
        ds.close()

    @staticmethod
    def calls(ds, proc, fh, size, n):
        data, cred, under_way = os.urandom(size), auth_sys(), []
        for i in range(n):
            args = opaque(fh) + u64(i * size) + u32(size)
            if proc == 7:
                args += u32(0) + opaque(data)
            under_way.append(ds.conn.start(proc, args, cred, vers=3))
            if len(under_way) == DEPTH:
                ds.conn.finish(under_way.pop(0))
        for x in under_way:
            ds.conn.finish(x)


def main():
    p = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--mib", type=int, default=128)
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--sizes", type=int, nargs="+", default=[MIB, 4096])
    p.add_argument("variants", nargs="+")
    a = p.parse_args()
    variants = [Variant(v) for v in a.variants]
    for _ in range(a.rounds):
        for v in variants:
            v.run(a.mib, a.sizes)
    print(f"{'':10}{'':12}" + "".join(f"{v.name:>22}" for v in variants))
    for what, size in variants[0].took:
        line, first = f"{what:10}{size // 1024:7} KiB ", None
        for v in variants:
            us = min(v.took[what, size])
            first = first or us
            line += f"{us:11.1f} us ({us / first:5.2f})"
        print(line)


if __name__ == "__main__":
    main()
