#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""trash_cost.py [--files N] [--rounds N] [--dir FOLDER] [--json] - what the trash costs: removing a
tree of N files with and without it, by weft-bench in rounds that alternate; then jobs that restore
and empty it, with what another client meanwhile waits for at the longest, beside what it waits for
without a job. As root, in a built tree or with its folder in WEFT_BUILD.

The other client sets the mode of a file of its own, one request after the other: each is a
transaction, as each step of a job is.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(os.path.dirname(HERE), "wirelib")]
import peers  # noqa: E402

PORTS = {"none": 22049, "trash": 23049}
ALONE_S = 5
FIGURES = {"ops_per_s": "removals a second", "server_cpu_us_per_op": "us of server CPU each"}


def tool(weft, *args):
    done = subprocess.run([os.path.join(peers.BUILD, "weft"), "--admin",
                           weft.daemons["mds"]["admin"], *args], capture_output=True, text=True,
                          timeout=peers.LIMIT, check=False)
    if done.returncode:
        raise peers.Trouble(f"weft {' '.join(args)}: {done.stderr.strip()[-300:]}")
    return done.stdout


def removed(weft, files):
    return weft.target.bench("md", "--sessions", 4, "--depth", 16, "--count", files // 4,
                             "--phases", "create,unlink")["unlink"]


class Other(threading.Thread):
    """Milliseconds of each of its requests."""

    def __init__(self, port):
        super().__init__(daemon=True)
        from nfs41 import Client, close, putfh, setattr_
        self.c, self.took, self.over = Client(("127.0.0.1", port)), [], threading.Event()
        sid, fh = self.c.open(self.c.root(), "other", attrs={"mode": 0o644})
        self.c.ok(putfh(fh), close(sid))
        self.ops = lambda n: (putfh(fh), setattr_(mode=0o600 + n % 8))

    def run(self):
        while not self.over.is_set():
            began = time.monotonic()
            self.c.ok(*self.ops(len(self.took)))
            self.took.append((time.monotonic() - began) * 1000)

    def ends(self):
        self.over.set()
        self.join()
        self.c.drop()
        return {"requests": len(self.took), "median_ms": statistics.median(self.took),
                "p99_ms": statistics.quantiles(self.took, n=100)[98], "most_ms": max(self.took)}


def beside(port, work):
    """The other client's times while work runs, and the seconds of that."""
    other = Other(port)
    other.start()
    began = time.monotonic()
    work()
    seconds = time.monotonic() - began
    return {**other.ends(), "seconds": seconds}


def entries(weft):
    return json.loads(tool(weft, "--json", "trash", "list", "/"))["total_entries"]


def measure(a, folder):
    out = {"files": a.files, "rounds": a.rounds}
    wefts = {n: peers.Weft(n, n, folder, port) for n, port in PORTS.items()}
    try:
        tool(wefts["trash"], "policy", "set", "/", "trash=7d")
        got = {n: [] for n in wefts}
        for r in range(a.rounds):
            for n in list(wefts)[::1 if r % 2 else -1]:
                got[n].append(removed(wefts[n], a.files))
        for n, rounds in got.items():
            out[n] = {f: statistics.median(g[f] for g in rounds) for f in FIGURES}
        weft, port = wefts["trash"], PORTS["trash"]
        out["alone"] = beside(port, lambda: time.sleep(ALONE_S))
        for job in (["restore", "-r", "/"], ["empty", "/"]):
            if job[0] == "empty":
                removed(weft, a.files)
            there = entries(weft)
            if there < a.files:
                raise peers.Trouble(f"the trash has {there} entries")
            out[job[0]] = beside(port, lambda j=job: tool(weft, "trash", *j, "--wait"))
            out[job[0]]["entries"] = there - entries(weft)
    finally:
        for w in wefts.values():
            w.down()
    return out


def show(out):
    print(f"{out['files']} files, {out['rounds']} rounds\n")
    print(f"{'':24}{'no trash':>12}{'trash=7d':>12}")
    for f, title in FIGURES.items():
        print(f"{title:24}{out['none'][f]:>12.1f}{out['trash'][f]:>12.1f}")
    print(f"\n{'ms of the other client':24}{'median':>12}{'99 %':>12}{'longest':>12}")
    for n in ("alone", "restore", "empty"):
        o = out[n]
        what = f"; {o['entries']} entries in {o['seconds']:.1f} s" if "entries" in o else ""
        print(f"{n:24}{o['median_ms']:>12.2f}{o['p99_ms']:>12.2f}{o['most_ms']:>12.1f}"
              f"  of {o['requests']}{what}")


def main():
    p = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--files", type=int, default=50000)
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--dir", default=os.environ.get("TMPDIR", "/var/tmp"))
    p.add_argument("--json", action="store_true")
    a = p.parse_args()
    try:
        peers.own_namespaces()
        with tempfile.TemporaryDirectory(prefix="trash_cost.", dir=a.dir) as folder:
            out = measure(a, folder)
    except peers.Trouble as e:
        print(f"trash_cost: {e}", file=sys.stderr)
        return 1
    if a.json:
        print(json.dumps(out, indent=1))
    else:
        show(out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
