#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""tests/ha/judge.py against histories with planted violations and against good ones. It finds each
violation for its reason. Prints TAP."""
import json
import os
import random
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
SRC = (os.environ.get("top_srcdir")
       or os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
sys.path.insert(0, os.path.join(SRC, "tests/ha"))
from judge import Malformed, judge, longest  # noqa: E402


class Story(list):
    """Lines of a history. An operation gets the next number, and the next time if it has none."""

    def __init__(self):
        super().__init__()
        self.n, self.t = 0, 0.0

    def op(self, p, op, at=None, done=True, err=None, got=None, **a):
        self.n += 1
        at = at or (self.t + 1, self.t + 2)
        self.t = max(self.t, at[1])
        self.append(dict(a, e="call", p=p, n=self.n, t=at[0], op=op))
        if done:
            self.append(dict(got or {}, e="done", p=p, n=self.n, t=at[1],
                             **({"err": err} if err else {})))
        return self

    def add(self, p, val, **how):
        return self.op(p, "add", reg="c", got={"val": val}, **how)

    def get(self, p, val, **how):
        return self.op(p, "get", reg="c", got={"val": val}, **how)

    def put(self, p, val, **how):
        return self.op(p, "put", reg="c", val=val, **how)

    def make(self, p, name, f="i1", **how):
        return self.op(p, "create", dir="D", name=name, got={"f": f}, **how)

    def unlink(self, p, name, **how):
        return self.op(p, "unlink", dir="D", name=name, **how)

    def look(self, p, name, f):
        return self.op(p, "lookup", dir="D", name=name, **({"got": {"f": f}} if f else
                                                            {"err": "ENOENT"}))

    def lock(self, p, op="lock", **how):
        return self.op(p, op, f="F", off=0, len=1, kind="w", **how)

    def mark(self, what, at=None, **a):
        self.t = max(self.t, at or self.t + 1)
        self.append(dict(a, e="mark", what=what, t=at or self.t))
        return self

    def healed(self):
        return self.mark("healed")

    def fault(self, **a):
        return self.mark("fault", kind="power", node="n1", **{"proof": "no process is left", **a})


A, B, S = "a/0", "b/0", Story
BAD = [
    ("an acknowledged write is lost", "stale", S().add(A, 1).add(A, 2).get(B, 1)),
    ("an acknowledged write is lost, and the next one takes its value", "lost twice",
     S().add(A, 1).add(B, 1)),
    ("two at once are given one value", "twice", S().add(A, 1, at=(1, 5)).add(B, 1, at=(1, 5))),
    ("many were acknowledged, and values were jumped over", "alien",
     S().add(A, 1).add(A, 3)),
    ("the old node answers a read from memory", "stale",
     S().add(A, 1).fault().add(A, 2).get(B, 1)),
    ("an older value after a newer one was seen", "back",
     S().add(A, 1).add(B, 2, at=(10, 30)).get(A, 2, at=(12, 13)).get(A, 1, at=(14, 15))),
    ("a value that no one asked for", "alien", S().get(A, 1)),
    ("an acknowledged value is lost", "lost", S().put(A, 7).put(A, 8).fault().get(B, 7)),
    ("the old node's value after the new one's was seen", "back",
     S().put(A, 7).put(B, 8, at=(10, 30)).get(A, 8, at=(12, 13)).get(A, 7, at=(14, 15))),
    ("a value from nowhere", "unwritten", S().put(A, 7).get(B, 9)),
    ("a register forgets all", "lost", S().put(A, 7).get(B, 0)),
    ("an acknowledged create is lost", "name-lost", S().make(A, "x").fault().look(B, "x", None)),
    ("a create that is acknowledged is seen late", "name-lost",
     S().make(A, "x").look(B, "x", None).look(B, "x", "i1")),
    ("a removed name comes back", "name-lost",
     S().make(A, "x").unlink(A, "x").fault().look(B, "x", "i1")),
    ("EEXIST for a retry", "name-answer",
     S().op(A, "create", dir="D", name="x", err="EEXIST").fault().look(A, "y", None)),
    ("ENOENT for a retry", "name-lost",
     S().make(A, "x").op(A, "unlink", dir="D", name="x", err="ENOENT")),
    ("two have one lock", "lock-twice", S().lock(A).fault().lock(B).lock(A, "unlock")),
    ("synced bytes are lost", "lost",
     S().op(A, "write", f="F", off=0, len=16, tag=5, sync=True).fault().op(
         B, "read", f="F", off=0, len=16, direct=True, got={"runs": []})),
    ("EIO to a program", "error",
     S().op(A, "write", f="F", off=0, len=16, tag=5, sync=True, err="EIO")),
    ("an open file is stale", "error", S().fault().op(A, "use", what="open", err="ESTALE").lock(A)),
    ("a call that never ends", "silent", S().add(A, 1).add(A, 2, done=False)),
    ("a fault without a proof", "unproven", S().fault(proof="").add(A, 1)),
    ("nothing works after a fault", "dead", S().add(A, 1).fault()),
    ("nothing works between two faults", "dead", S().fault().fault().add(A, 1)),
    ("only what began before the fault had struck works", "dead",
     S().fault(struck=3).add(A, 1, at=(2, 4))),
    ("nothing works after the healing", "dead", S().fault().add(A, 1).healed()),
    ("nor where a later fault's healing does", "dead",
     S().fault().add(A, 1).healed().fault().healed().add(A, 2)),
    ("what began after a fault ends only after the next one", "dead",
     S().fault().healed().add(A, 1, at=(3, 9)).fault(at=5).healed().add(A, 2)),
]
GOOD = [
    ("each change once", S().add(A, 1).add(B, 2).get(A, 2)),
    ("a change of unknown outcome that took effect",
     S().add(A, 1).op(A, "add", reg="c", err="unknown").get(B, 2).add(A, 3)),
    ("and one that did not",
     S().add(A, 1).op(A, "add", reg="c", err="unknown").get(B, 1).add(A, 2)),
    ("a register's value, and one of unknown outcome that comes late",
     S().get(A, 0).put(A, 7).op(A, "put", reg="c", val=8, err="unknown").get(B, 7).get(B, 8)),
    ("a read beside a change sees either",
     S().add(A, 1, at=(1, 9)).get(B, 0, at=(2, 3)).get(B, 1, at=(4, 5))),
    ("the other's EEXIST", S().make(A, "x").op(B, "create", dir="D", name="x", err="EEXIST")),
    ("a fault that strikes late, is healed late, and then all goes on",
     S().fault(struck=2).add(A, 1, at=(1.5, 5)).healed().add(A, 2).fault().healed().add(A, 3)),
    ("a lock that goes on", S().lock(A).fault().op(A, "use", what="lock").op(
        B, "lock", f="F", off=0, len=1, kind="w", err="EAGAIN").lock(A, "unlock").lock(B)),
]
TORN = [("an operation without its argument", [{"e": "call", "p": A, "n": 1, "t": 1, "op": "add"}]),
        ("an answer without a value", S().op(A, "get", reg="c")),
        ("an end without a call", [{"e": "done", "p": A, "n": 1, "t": 1}]),
        ("an operation that no rule judges", S().op(A, "chmod", f="F"))]


def kinds(story, **how):
    return {v.kind for v in judge(story, **how)[0]}


def program(story, *args):
    with tempfile.NamedTemporaryFile("w", suffix=".history") as f:
        f.writelines(json.dumps(r) + "\n" for r in story)
        f.flush()
        done = subprocess.run([sys.executable, os.path.join(SRC, "tests/ha/judge.py"), *args,
                               f.name], capture_output=True, text=True, check=False)
        return done.returncode, done.stdout


def torn(story):
    try:
        return kinds(story)
    except Malformed:
        return "refused"


def made(seed, cheat):
    """A counter under three clients; cheat: one read in it is a single change too old."""
    rng, s, value, t = random.Random(seed), Story(), 0, 0.0
    for i in range(3000):
        t += 1
        if rng.random() < 0.5:
            value += 1
            s.add(f"c{rng.randrange(3)}/0", value, at=(t, t + 0.5))
        else:
            s.get(f"c{rng.randrange(3)}/0", value, at=(t, t + 0.5))
    if cheat:
        gets = [r for r, call in zip(s[1::2], s[::2]) if call["op"] == "get" and r["val"]]
        rng.choice(gets)["val"] -= 1
    return s


def main():
    tests = [(f"found: {name}", lambda s=s, k=k: (kinds(s), set(k.split()))) for name, k, s in BAD]
    tests += [(f"explained: {name}", lambda s=s: (kinds(s), set())) for name, s in GOOD]
    tests += [(f"refused: {name}", lambda s=s: (torn(s), "refused")) for name, s in TORN]
    slow = S().fault().add(A, 1, at=(1, 6.5)).get(A, 1)
    tests += [
        ("found: a call over the limit", lambda: (kinds(slow, limit=5), {"slow"})),
        ("explained: a call below it", lambda: (kinds(slow, limit=6), set())),
        ("the longest call of each kind after a fault",
         lambda: ([m for _, m in longest(judge(slow)[1])], [{"add": 5.5, "get": 1.0}])),
        ("the longest time without an answer",
         lambda: (longest(judge(S().put(A, 1).fault().op(
             A, "put", reg="c", val=2, err="unknown").put(A, 3))[1])[0][1],
                  {"put": 1.0, "no put": 5.0})),
        ("a guest's clock is set right",
         lambda: (kinds([{"e": "mark", "what": "clock", "t": 0, "who": "b", "offset": -100,
                          "error": 0.001}] + S().add(A, 1, at=(5, 6)).get(B, 0, at=(101, 102))),
                  set())),
        ("explained: three thousand operations", lambda: (kinds(made(1, False)), set()))]
    tests += [(f"found: one of them is one change too old, seed {i}",
               lambda i=i: (bool(kinds(made(i, True))), True)) for i in range(5)]
    tests += [("the program's status tells",
               lambda: ([program(s)[0] for s in (BAD[0][2], GOOD[0][1], TORN[0][1])], [1, 0, 2])),
              ("and its lines tell the operations",
               lambda: ("stale: c is 1" in program(BAD[0][2])[1]
                        and "b/0#3 get(reg=c)" in program(BAD[0][2])[1], True)),
              ("a limit is one of its arguments",
               lambda: (program(slow, "--limit", "5")[0], 1))]
    print(f"1..{len(tests)}")
    for i, (name, fn) in enumerate(tests, 1):
        try:
            got, want = fn()
        except Exception as e:  # the test's result reports it
            got, want = repr(e), None
        print(f"{'ok' if got == want else 'not ok'} {i} - {name}", flush=True)
        if got != want:
            print(f"# got {got}, want {want}")


main()
