# SPDX-License-Identifier: Apache-2.0
"""What t_dsdead.sh's clients logged: calls that failed, the longest stall after each event, and
when all went on as before."""
import glob
import os
import statistics
import sys

shared = sys.argv[1]
LIMIT = {"kill": 8, "freeze": 13}  # seconds; mds.ds_dead is 5 s, and the machine may be busy
CALM = 2  # seconds: what is late after this many without a late call is not of the event


def stall(late, at):
    """When the calls that are late from then on are over, and how long some were under way in all;
    both in seconds. late: (begin, end)."""
    over = lost = 0
    reached, going = at, True
    for a, b in sorted(late):
        lost += max(0, b - max(a, reached))
        going = going and (not over or a - at - over < CALM)
        over = max(over, b - at) if going else over
        reached = max(reached, b)
    return over, lost


def calls(path):
    with open(path, encoding="ascii") as f:
        return [(float(a), float(b), int(c)) for a, b, c in (line.split() for line in f)]


logs = {os.path.basename(p)[:-4]: calls(p) for p in sorted(glob.glob(f"{shared}/*.log"))}
with open(f"{shared}/events", encoding="ascii") as f:
    events = [(n, float(t)) for n, t in (line.split() for line in f)]
failed = [(n, c) for n, got in logs.items() for c in got if c[2] != 1]
print(f"{'not ok' if failed else 'ok'} - no call failed of {sum(map(len, logs.values()))} "
      f"({failed[:3]})")
for i, (event, at) in enumerate(events):
    if event not in LIMIT:  # a server is back: its repair is another matter
        continue
    end = min(events[i + 1][1] if i + 1 < len(events) else 1e18, at + 14)
    stalls, again, lost = {}, {}, {}
    for name, got in logs.items():
        before = [b - a for a, b, _ in got if at - 3 < a and b < at] or [0]
        usual = max(10 * statistics.median(before), 2 * max(before), 0.5)
        late = [(a, b) for a, b, _ in got if a < end and b > at and b - a > usual]
        stalls[name] = max((b - a for a, b, _ in got if a < end and b > at), default=end - at)
        again[name], lost[name] = stall(late, at)
    worst = max(stalls, key=stalls.get)
    reads, writes = (max(v for n, v in again.items() if n.startswith(kind))
                     for kind in ("read", "write"))
    before, after = (sum(1 for got in logs.values() for _, b, _ in got if lo < b < lo + 3)
                     for lo in (at - 3, at + max(reads, writes)))
    print(f"# {event}: reads as before after {reads:.2f} s, writes after {writes:.2f} s; longest "
          f"call {stalls[worst]:.2f} s ({worst}); "
          f"{before / 3:.0f} calls a second before, {after / 3:.0f} then")
    ok = (max(again.values()) < LIMIT[event] and max(lost.values()) < LIMIT[event]
          and after > before / 3)
    print(f"{'ok' if ok else 'not ok'} - {event}: all go on within {LIMIT[event]} s, at the speed "
          "of before")
