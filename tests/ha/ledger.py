#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""ledger.py FILE - what the worlds of soak add up to: failures, violations, and for each kind of
failure how often it came and how long the longest operation of each lasted (half of them, 95 of
100, the longest). "quiet" are those at a load below 2.

A line of FILE is a world: its time, subject=, faults=, operations=, violations=, lease= (0: it has
none), and KIND=SECONDS@LOAD,... with the longest operation after each failure of the kind. Older
lines have KIND=COUNT and longest_KIND=SECONDS instead."""
import collections
import sys
import time

TOTALS = ("faults", "operations", "violations")
QUIET = 2.0


def add(path, subject, totals, figures, lease=0):
    """Adds a world. totals: those three. figures: {kind: [(seconds, load), ...]}."""
    if not path:
        return
    what = [f"{k}={n}" for k, n in zip(TOTALS, totals)] + [f"lease={lease:g}"]
    what += [f"{kind}=" + ",".join(f"{s:.2f}@{load:.1f}" for s, load in v)
             for kind, v in sorted(figures.items())]
    with open(path, "a", encoding="ascii") as f:
        f.write(f"{time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())} subject={subject} "
                + " ".join(what) + "\n")


def read(lines):
    """(worlds, totals, counts, {(subject, kind): [(seconds, load, lease), ...]})"""
    worlds, totals, counts = 0, collections.Counter(), collections.Counter()
    figures = collections.defaultdict(list)
    for line in lines:
        pairs = dict(w.split("=", 1) for w in line.split()[1:])
        subject, lease = pairs.pop("subject"), float(pairs.pop("lease", 0))
        worlds += 1
        for k in TOTALS:
            totals[k] += int(pairs.pop(k))
        for k, v in pairs.items():
            if k.startswith("longest_"):
                continue
            if "@" not in v:
                counts[subject, k] += int(v)
                continue
            counts[subject, k] += v.count("@")
            figures[subject, k] += [(*map(float, x.split("@")), lease) for x in v.split(",")]
    return worlds, totals, counts, figures


def spread(values):
    v = sorted(values)
    return (f"half {v[(len(v) - 1) // 2]:.2f} s, 95 % {v[-(-len(v) * 95 // 100) - 1]:.2f} s, "
            f"longest {v[-1]:.2f} s")


def main():
    from strikes import KINDS  # which needs this one
    with open(sys.argv[1], encoding="ascii") as f:
        worlds, totals, counts, figures = read(f)
    print(f"  {worlds} worlds, {totals['faults']} failures, {totals['operations']} operations, "
          f"{totals['violations']} violations")
    for key in sorted(counts):
        line = f"  {key[0]} {key[1]}: {counts[key]}"
        if figures[key]:
            line += ", " + spread([x[0] for x in figures[key]])
        quiet = [x[0] for x in figures[key] if x[1] < QUIET]
        print(line + (f"; quiet: {len(quiet)}, {spread(quiet)}" if quiet else ""))
    for name, least in (("all", 0), ("quiet", QUIET)):
        moved = [s for (subject, kind), v in figures.items() for s, at, lease in v
                 if subject == "instance" and KINDS.get(kind) == (True, 0) and lease == 1.5
                 and (not least or at < least)]
        if moved:
            print(f"  take-overs of an instance, lease 1.5 s, {name}: {len(moved)}, "
                  f"{spread(moved)}")


if __name__ == "__main__":
    main()
