# SPDX-License-Identifier: Apache-2.0
"""How side-by-side shows what it has measured: tables, and all of it as JSON."""
import os
import platform

from bars import bars
from data3 import TITLES
from works import CPU, LATENCY, RATE, SHOWN

# Columns of ratios: whose figure over whose.
RATIOS = [("weft", "ganesha-vfs"), ("weft", "ganesha-mem"), ("weft-nosync", "ganesha-vfs"),
          ("weft-nosync", "ganesha-mem")]
NOTE = ((
    """nfs-ganesha syncs no create, rename or unlink: a crash loses what it has answered. \
weft answers when the change is on the disk. The rows of weft-nosync
(mds.sync=false) are the like-for-like; ganesha-sync, where it is, is \
Ganesha on a file system that syncs each change."""))


def machine(folder):
    with open("/proc/cpuinfo", encoding="utf-8") as f:
        model = next((line.split(":", 1)[1].strip() for line in f if line.startswith("model name")),
                     platform.machine())
    return {"cpus": os.cpu_count(), "cpu": model, "kernel": platform.release(), "folder": folder,
            "load": os.getloadavg()[0]}


def line(name, cells, width=23):
    print(f"{name:22}" + "".join(f"{c if c is not None else '-'!s:>{width}}" for c in cells))


def operations(results, work):
    rows = [p for w, p in results.phases() if w == work.name]
    servers = [s for s in dict.fromkeys(s for w, _, s in results.figures if w == work.name)]
    ratios = [(a, b) for a, b in RATIOS if a in servers and b in servers]
    print(f"\n{work.title}\n")
    line("us of server CPU each", servers)
    for p in rows:
        line(SHOWN.get(p, p), [str(results.get(work.name, p, s) or "-") for s in servers])
    for title, figure in (("CPU", CPU), ("median time", LATENCY), ("per second", RATE)):
        print()
        line(f"ratio of {title}", [f"{a}/{b.removeprefix('ganesha-')}" for a, b in ratios])
        for p in rows:
            line(SHOWN.get(p, p),
                 [str(results.ratio(work.name, p, a, b, figure) or "-") for a, b in ratios])


def data(results):
    rows = [p for w, p in results.phases() if w == "nfs3"]
    if not rows:
        return
    print("\nNFSv3 over TCP: us of server CPU each\n")
    line("", TITLES.values(), 30)
    for p in rows:
        line(p, [str(results.get("nfs3", p, s) or "-") for s in TITLES], 30)


def alone(results, fixed):
    print("\nThe machine alone: us of CPU for each message or MiB; once: as they are called\n")
    for w, p in results.phases():
        if w == "floor":
            line(p, [str(results.get(w, p, "floor"))])
    for name, value in fixed.items():
        print(f"{name:34}{value:>11.6g}")


def show_bars(results, fixed):
    rows = [b.row() for b in bars(results, fixed)]
    wide = max(len(r[0]) for r in rows)
    print("\nBars (medians; CPU time of the server unless said otherwise)\n")
    for name, value, asked, met in rows:
        print(f"{name:{wide}}  {value:>26}  {asked:>8}  {met}")


def show(results, fixed, setup, works):
    print(f"{setup['cpus']} processors ({setup['cpu']}), Linux {setup['kernel']}, "
          f"{setup['rounds']} rounds, load {setup['load']:.1f}; each figure: median "
          f"(least-most)\n{NOTE}")
    for w in works:
        operations(results, w)
    data(results)
    alone(results, fixed)
    show_bars(results, fixed)


def everything(results, fixed, setup):
    figures = [{"work": w, "phase": p, "server": s, "rounds": list(r.values())}
               for (w, p, s), r in results.figures.items()]
    ratios = []
    for w, p in results.phases():
        for a, b in RATIOS:
            for figure in (CPU, LATENCY, RATE):
                r = results.ratio(w, p, a, b, figure)
                if r:
                    ratios.append({"work": w, "phase": p, "of": a, "over": b, "figure": figure,
                                   **r.json()})
    return {"version": 1, "setup": setup, "figures": figures, "ratios": ratios, "limits": fixed,
            "bars": [b.json() for b in bars(results, fixed)]}
