#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""judge.py - reads what the clients of an instance that moves wrote, and prints each promise that
was broken.

    judge.py [--limit SECONDS] [--figures FILE] HISTORY...

Its status is 0 where all promises were kept, 1 where one was broken (each is a line), and 2 where
the files are no history. The format is that of tests/checker/history.py, with more operations and
a mark:

    op        what the call has     what the done has
    put       reg val               a register was set to val, which no other put has; not 0, which
                                    it has at the start. "err": "unknown" as below
    add       reg                   val: a counter grew by one, and this is what it is now. With
                                    "err": "unknown" no answer came (a connection was reset)
    get       reg                   val, of a register or a counter. "unknown" is the same
    use       what                  a descriptor or a lock that the process held before was used

    mark      what it has           what it means
    fault     kind node proof       something was broken from t on, and by struck (t where it is
                                    not there) that had happened; proof says how that is known
    healed                          what the fault before it broke works again, there or elsewhere

Times are CLOCK_MONOTONIC; a guest's come with a mark "clock".

What judge.py holds an instance to:
(1) Each acknowledged change is there at the end, and each of unknown outcome is there or not, once.
(2) No answer is older than what was acknowledged, or seen, before the question.
(3) A client that asks again gets no EEXIST or ENOENT for its own change.
(4) Two clients never hold locks that exclude each other. What was open or locked before goes on.
(6) No program gets an error that is no answer (EIO, ESTALE, ...), and no call is without an end.
Names, bytes and locks are for tests/checker/check.py, counters and the rest are judged here.
(5), that the stores are equal, is for who runs the world: that needs their programs.

A fault proves nothing that has no proof, and nothing that no client felt its end: some operation
must begin after it struck and was healed, and succeed before the next one. With --limit no
operation lasts longer. --figures adds a line of JSON for each fault: the longest operation of each
kind between this fault and the next.
"""
import argparse
import bisect
import collections
import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../checker"))
import check  # noqa: E402
import history  # noqa: E402
from check import Violation  # noqa: E402
from history import ANSWERS, INF, Malformed, Op  # noqa: E402

OWN = {"put": ("reg", "val"), "add": ("reg",), "get": ("reg",), "use": ("what",)}
UNKNOWN = {"put": "unknown", "add": "unknown", "get": "unknown"}
OWN_MARKS = {"fault": ("kind", "node"), "healed": ()}


class Log:
    """The lines that are judged here: ops and marks; and rest, the lines for check.py."""

    def __init__(self, lines):
        self.ops, self.marks, self.rest, self.clocks = [], [], [], {}
        pending = {}
        for number, line in enumerate(lines, 1):
            try:
                self.take(json.loads(line) if isinstance(line, (str, bytes)) else line, pending)
            except (KeyError, TypeError, ValueError, AttributeError) as e:
                raise Malformed(f"line {number}: {type(e).__name__} {e}: {line!r}") from e
        for o in self.ops:
            offset, error = self.clocks.get(o.client, (0, 0))
            o.inv += offset - error
            o.res += offset + error
            o.until += offset + error
            o.slack = error
        self.ops.sort(key=lambda o: o.inv)
        self.marks.sort(key=lambda m: m["t"])

    def take(self, r, pending):
        if r["e"] == "mark" and r["what"] in OWN_MARKS:
            for need in OWN_MARKS[r["what"]]:
                r[need]
            r["t"] + r.get("struck", 0)
            self.marks.append(r)
            return
        if r["e"] == "mark" and r["what"] == "clock":
            self.clocks[r["who"]] = r["offset"], r["error"]
        if r["e"] == "call":
            o = pending[r["p"], r["n"]] = Op(r["p"], r["n"], r)
            for need in OWN.get(o.op, ()):
                r[need]
            self.ops.append(o)
            if o.op in OWN:
                return
        elif r["e"] == "done":
            o = pending[r["p"], r["n"]]
            o.got, o.err, o.until = r, r.get("err"), r["t"]
            if o.err is None:
                o.res = r["t"]
            if o.op in OWN:
                if o.err is None and o.op in ("add", "get"):
                    r["val"] + 0
                return
        self.rest.append(r)


def counter(name, ops):
    """Adds and gets of one counter that began at 0."""
    calls = sorted(o.inv for o in ops if o.op == "add")
    acks = sorted((o for o in ops if o.op == "add" and o.res < INF), key=lambda o: o.res)
    ends = [o.res for o in acks]
    known = sorted(((o.res, o.got["val"], o.op == "add", o) for o in ops if o.res < INF),
                   key=lambda k: k[0])
    when, most = [k[0] for k in known], []
    for k in known:
        most.append(max(most[-1] if most else k, k, key=lambda x: x[1]))
    given = {}
    for o in acks:
        if o.got["val"] in given:
            yield Violation("twice", f"{name}: two changes were given the same value",
                            given[o.got["val"]], o)
        given[o.got["val"]] = o
    for o in (k[3] for k in known):
        val, floor = o.got["val"], bisect.bisect_left(ends, o.inv)
        at = bisect.bisect_left(when, o.inv) - 1
        need = floor + (o.op == "add")
        if val < need:
            yield Violation("lost" if o.op == "add" else "stale", f"{name} is {val}, and {floor} "
                            "changes were acknowledged before",
                            acks[floor - 1] if floor else None, o)
        elif at >= 0 and val < most[at][1] + (o.op == "add"):
            yield Violation("stale" if most[at][2] else "back", f"{name} is {val}, and an earlier "
                            f"answer was {most[at][1]}", most[at][3], o)
        if val > bisect.bisect_right(calls, o.res):
            yield Violation("alien", f"{name} is {val}, and fewer changes were asked for", o)


def register(name, ops):
    """Puts and gets of a register, whose values come once."""
    writes = [check.Write(-INF, -INF, 0, None)]
    writes += [check.Write(o.inv, o.res, o.a["val"], o) for o in ops if o.op == "put"]
    reads = [check.Read(o.inv, o.res, o.got["val"], o) for o in ops
             if o.op == "get" and o.res < INF]
    bad = check.register(writes, reads)
    if bad is not None:
        bad.what = f"{name}: {bad.what}"
        yield bad


def answers(ops):
    """(6) and (4): what is no answer, and what has none."""
    for o in ops:
        if o.got is None:
            yield Violation("silent", "a call has no end", o)
        elif o.err is not None and o.err not in (ANSWERS.get(o.op), UNKNOWN.get(o.op)):
            yield Violation("error", f"a program gets {o.err}", o)


def spans(log):
    """(fault, when the next one began), by time."""
    faults = [m for m in log.marks if m["what"] == "fault"]
    return list(zip(faults, [m["t"] for m in faults[1:]] + [INF]))


def proven(log):
    """Each fault struck, and something began after it was over, and succeeded before the next."""
    good = sorted((o.inv, o.until) for o in log.ops if o.got is not None
                  and o.err in (None, ANSWERS.get(o.op)))
    healed = [m["t"] for m in log.marks if m["what"] == "healed"]
    for m, end in spans(log):
        what = f"fault {m['kind']} of {m['node']} at {m['t']:.3f}"
        if not m.get("proof"):
            yield Violation("unproven", f"{what}: nothing shows that it struck")
        over = max([m["t"], m.get("struck", m["t"])] + [t for t in healed if m["t"] <= t < end])
        if not any(until < end for _, until in good[bisect.bisect_right(good, (over, INF)):]):
            yield Violation("dead", f"{what}: nothing began after it was over ({over:.3f}) and "
                            "succeeded before the next fault")


def waits(log, begin, end):
    """{"no OP": seconds}: the longest time without an answer to a process, of a register's."""
    most, last = collections.Counter(), {}
    for o in sorted((o for o in log.ops if o.op in ("put", "get") and o.res < INF),
                    key=lambda o: o.res):
        was = last.get((o.p, o.op))
        if was is not None and was.res < end and o.res > begin:
            most["no " + o.op] = max(most["no " + o.op], o.res - was.res)
        last[o.p, o.op] = o
    return most


def longest(log):
    """For each fault: {op: seconds}, by the operations that were under way in its time."""
    out = []
    for m, end in spans(log):
        most = waits(log, m["t"], end)
        for o in log.ops:
            if o.got is not None and o.until > m["t"] and o.inv < end:
                most[o.op] = max(most[o.op], o.until - o.inv - 2 * o.slack)
        out.append((m, dict(most)))
    return out


def judge(lines, limit=INF):
    """(violations, log)"""
    log = Log(lines)
    bad = list(check.check(history.History(log.rest), check.Options()))
    regs = {}
    for o in log.ops:
        if o.op in ("put", "add", "get"):
            regs.setdefault(o.a["reg"], []).append(o)
    for name, ops in sorted(regs.items()):
        rule = register if any(o.op == "put" for o in ops) else counter
        bad += list(rule(name, ops))[:check.MOST]
    bad += list(answers(log.ops))[:check.MOST]
    bad += proven(log)
    for o in log.ops:
        if o.got is not None and o.until - o.inv - 2 * o.slack > limit:
            bad.append(Violation("slow", f"a call lasts longer than {limit} s", o))
    return bad, log


def read(paths):
    for path in paths:
        with open(path, encoding="ascii") as f:
            for line in f:
                if line.endswith("\n"):  # not the last line of a guest that died
                    yield line


def main():
    p = argparse.ArgumentParser(description="Were all promises kept?")
    p.add_argument("--limit", type=float, default=INF)
    p.add_argument("--figures")
    p.add_argument("history", nargs="+")
    a = p.parse_args()
    try:
        bad, log = judge(read(a.history), a.limit)
    except Malformed as e:
        print(f"no history: {e}", file=sys.stderr)
        return 2
    for b in bad:
        print(b)
    for m, most in longest(log):
        print(f"{m['kind']} of {m['node']}: longest " + (" ".join(
            f"{op} {s:.2f}" for op, s in sorted(most.items())) or "nothing") + " s")
        if a.figures:
            with open(a.figures, "a", encoding="ascii") as f:
                f.write(json.dumps({"kind": m["kind"], "node": m["node"], "longest": most}) + "\n")
    kinds = collections.Counter(o.op for o in log.ops)
    print(f"{len(log.ops)} operations ({', '.join(f'{n} {k}' for k, n in sorted(kinds.items()))}), "
          f"{len(spans(log))} faults, {len(bad)} violations")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
