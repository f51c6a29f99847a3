#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""tests/checker against histories with planted violations and against good ones. It finds each
violation for its reason. Prints TAP."""
import os
import subprocess
import sys
import tempfile
import time
import json

sys.dont_write_bytecode = True
SRC = (os.environ.get("top_srcdir")
       or os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
sys.path.insert(0, os.path.join(SRC, "tests/checker"))
from check import Options, check  # noqa: E402
from history import History, Malformed  # noqa: E402


class Story(list):
    """Lines of a history, in a short form. A process gets the next number by itself, and the next
    time too where a line has none."""

    def __init__(self):
        super().__init__()
        self.n, self.t = 0, 0.0

    def op(self, p, op, at=None, done=True, err=None, got=None, **a):
        """at: (begin, end); done=False: no answer"""
        self.n += 1
        if at is None:
            at = self.t + 1, self.t + 2
        self.t = max(self.t, at[1])
        self.append(dict(a, e="call", p=p, n=self.n, t=at[0], op=op))
        if done:
            self.append(dict(got or {}, e="done", p=p, n=self.n, t=at[1],
                             **({"err": err} if err else {})))
        return self

    def mark(self, what, **a):
        self.t += 1
        self.append(dict({"t": self.t}, e="mark", what=what, **a))
        return self

    # What most stories are about.
    def write(self, p, tag, off=0, n=100, sync=True, f="F", **how):
        return self.op(p, "write", f=f, off=off, len=n, tag=tag, sync=sync, **how)

    def read(self, p, *runs, off=0, n=100, f="F", direct=True, **how):
        return self.op(p, "read", f=f, off=off, len=n, direct=direct,
                       got={"runs": [list(r) for r in runs]}, **how)

    def stat(self, p, size, **how):
        return self.op(p, "stat", f="F", got={"size": size}, **how)

    def cut(self, p, size, **how):
        return self.op(p, "truncate", f="F", size=size, **how)

    def make(self, p, name, f, **how):
        return self.op(p, "create", dir="D", name=name, got={"f": f}, **how)

    def look(self, p, name, f, **how):
        if f is None:
            return self.op(p, "lookup", dir="D", name=name, err="ENOENT", **how)
        return self.op(p, "lookup", dir="D", name=name, got={"f": f}, **how)

    def unlink(self, p, name, **how):
        return self.op(p, "unlink", dir="D", name=name, **how)

    def rename(self, p, f, name, to, **how):
        return self.op(p, "rename", f=f, dir="D", name=name, todir="D", toname=to, **how)

    def list(self, p, *names, **how):
        return self.op(p, "readdir", dir="D", got={"names": [list(n) for n in names]}, **how)

    def lock(self, p, kind="w", off=0, n=10, **how):
        return self.op(p, "lock", f="F", off=off, len=n, kind=kind, **how)

    def unlock(self, p, off=0, n=10, **how):
        return self.op(p, "unlock", f="F", off=off, len=n, **how)


A, B, A2, B2 = "a/0", "b/0", "a/1", "b/1"
S = Story
STRICT, OPEN, FLIPS = Options(), Options(to_open=True), Options(flips=True)
# (name, kind, options, history)
BAD = [
    ("an acknowledged write is gone", "lost", STRICT, S().write(A, 1).read(B)),
    ("an overwritten byte comes back", "lost", STRICT,
     S().write(A, 1).write(A, 2).read(B, (100, 1))),
    ("in the middle of a larger write", "lost", STRICT,
     S().write(A, 1).write(A, 2, off=40, n=20).read(B, (100, 1))),
    ("a byte goes back while the write is under way", "back", STRICT,
     S().write(A, 1).write(B, 2, at=(10, 30)).read(A, (100, 2),
                                                   at=(12, 14)).read(A, (100, 1), at=(16, 18))),
    ("two writers' bytes are seen in turns", "back", STRICT,
     S().write(A, 1, at=(1, 5)).write(B, 2,
                                      at=(1, 5)).read(A, (100, 1)).read(A, (100, 2)).read(
                                          A, (100, 1))),
    ("a byte changes after a loss to one that is older than the overlap", "lost", FLIPS,
     S().write(A, 9).write(A, 1, at=(4, 8)).write(B, 2,
                                                  at=(4, 8)).read(A, (100, 1)).mark(
                                                      "lost", who="ds1").read(A, (100, 9))),
    ("a byte changes twice after a loss", "back", FLIPS,
     S().write(A, 1, at=(4, 8)).write(B, 2,
                                      at=(4, 8)).read(A, (100, 1)).mark("lost", who="ds1").read(
                                          A, (100, 2)).read(A, (100, 1))),
    ("a byte changes to the other writer's, and nothing was lost", "back", FLIPS,
     S().write(A, 1, at=(4, 8)).write(B, 2,
                                      at=(4, 8)).read(A, (100, 1)).read(A, (100, 2)).read(
                                          A, (100, 1))),
    ("a truncation takes effect twice", "back", Options(lease=10),
     S().write(B, 1).mark("away", who="a", until=12).cut(A, 0, at=(4, 20)).read(B, at=(6, 7)).write(
         B, 2, at=(8, 9)).read(B, (100, 2), at=(10, 11)).read(B, at=(13, 14))),
    ("a truncation of a client that was away takes effect after its end", "lost", Options(lease=10),
     S().write(B, 1).mark("away", who="a",
                          until=30).cut(A, 0,
                                        at=(4, 20)).read(B, at=(6, 7)).write(
                                            B, 2, at=(22, 23)).read(B, at=(24, 25))),
    ("bytes of another file", "unwritten", STRICT,
     S().write(A, 1, f="G").write(A, 2).read(B, (100, 1))),
    ("bytes that nobody wrote", "alien", STRICT, S().write(A, 1).read(B, (50, 1), (50, -1))),
    ("bytes of a write that is not begun", "early", STRICT, S().read(B, (100, 1)).write(A, 1)),
    ("a truncation comes undone", "lost", STRICT, S().write(A, 1).cut(A, 0).read(B, (100, 1))),
    ("a read ends before the end of the file", "lost", STRICT, S().write(A, 1).read(B, (60, 1))),
    ("a size that nothing made", "size", STRICT, S().write(A, 1).stat(B, 120)),
    ("a size that was cut away", "size", STRICT, S().write(A, 1).cut(A, 50).stat(B, 100)),
    ("what was synced from a cache is gone", "lost", OPEN,
     S().write(A, 1, sync=False).op(A, "fsync", f="F").op(B, "open", f="F").read(B, direct=False)),
    ("a client does not see its own cached write", "lost", OPEN,
     S().op(A, "open", f="F").write(A, 1,
                                    sync=False).write(A, 2,
                                                      sync=False).read(A, (100, 1), direct=False)),
    ("a write that was durable before a crash is gone", "lost", STRICT,
     S().write(A, 1, sync=False).op(A, "fsync", f="F").mark("crash", who="a").read(B)),
    ("an acknowledged name is gone", "name-lost", STRICT,
     S().make(A, "x", "i1").look(B, "x", None)),
    ("a name that was taken away is back", "name-lost", STRICT,
     S().make(A, "x", "i1").unlink(A, "x").look(B, "x", "i1")),
    ("two make one name", "name-twice", STRICT,
     S().make(A, "x", "i1", at=(1, 5)).make(B, "x", "i2", at=(2, 6))),
    ("two take one name away", "name-twice", STRICT,
     S().make(A, "x", "i1").unlink(A, "x", at=(4, 8)).unlink(B, "x", at=(5, 9))),
    ("one that takes a name away is seen twice", "name-back", STRICT,
     S().make(A, "x", "i1").unlink(B2, "x", at=(14, 90)).look(A, "x", None, at=(20, 21))
     .make(A, "x", "i2", at=(22, 23)).look(A, "x", None, at=(24, 25))
     .make(A, "x", "i3", at=(26, 27)).look(A, "x", "i3", at=(92, 93))),
    ("a rename is seen half: both names", "name-back", STRICT,
     S().make(A, "x", "i1").rename(A, "i1", "x", "y",
                                   at=(4, 20)).look(B, "y", "i1",
                                                    at=(6, 7)).look(B, "x", "i1", at=(8, 9))),
    ("a rename is seen half: no name", "name-back", STRICT,
     S().make(A, "x", "i1").rename(A, "i1", "x", "y",
                                   at=(4, 20)).look(B, "x", None,
                                                    at=(6, 7)).look(B, "y", None, at=(8, 9))),
    ("a name leads to another file", "name-unwritten", STRICT,
     S().make(A, "x", "i1").look(B, "x", "i2")),
    ("a listing leaves a name out", "name-lost", STRICT,
     S().make(A, "x", "i1").make(A, "y", "i2").list(B, ("x", "i1"))),
    ("a listing has a name twice", "listing", STRICT,
     S().make(A, "x", "i1").list(B, ("x", "i1"), ("x", "i1"))),
    ("it exists, is the answer, and it does not", "name-answer", STRICT,
     S().make(A, "x", "i1").unlink(A, "x").op(B, "create", dir="D", name="x", err="EEXIST")),
    ("a name of before a restore's backup is gone", "name-lost", STRICT,
     S().make(A, "x", "i1").mark("restore", since=10, before=11,
                                 t=20).look(B, "x", None, at=(21, 22))),
    ("two have one lock", "lock-twice", STRICT, S().lock(A).lock(B, kind="r")),
    ("two have a part of one lock", "lock-twice", STRICT,
     S().lock(A, n=0).unlock(A, off=100, n=10).lock(B, off=110, n=1)),
    ("a lock is refused for nobody's sake", "lock-refused", STRICT,
     S().lock(A).unlock(A).lock(B, err="EAGAIN")),
    ("a lock ends before the lease of a client that is away", "lock-twice", Options(lease=10),
     S().lock(A).mark("away", who="a", until=100).lock(B, at=(5, 6))),
]
GOOD = [
    ("writes and reads in turns", STRICT,
     S().write(A, 1).read(B, (100, 1)).write(B, 2).read(A, (100, 2)).stat(A, 100)),
    ("either of two at once, and then that one", STRICT,
     S().write(A, 1, at=(1, 5)).write(B, 2, at=(1, 5)).read(A, (100, 2),
                                                            at=(3, 4)).read(A, (100, 1)).read(
                                                                B, (100, 1))),
    ("one that is not answered is seen late", STRICT,
     S().write(A, 1, done=False).write(B, 2).read(B, (100, 2)).read(B, (100, 1)).read(B, (100, 1))),
    ("of three that take a name away the slow one is the last", STRICT,
     S().make(A, "x", "i1").unlink(B, "x", at=(10, 11)).look(A, "x", None, at=(15, 16))
     .unlink(B2, "x", at=(14, 90)).make(A, "x", "i2", at=(20, 21)).look(A, "x", "i2", at=(22, 23))
     .unlink(A, "x", at=(24, 25)).look(A, "x", None, at=(26, 27))
     .make(A, "x", "i3", at=(30, 31)).look(A, "x", "i3",
                                           at=(32, 33)).look(A, "x", None, at=(92, 93))),
    ("one that is not answered never comes", STRICT,
     S().write(A, 1, done=False).write(B, 2).read(B, (100, 2)).read(B, (100, 2))),
    ("a part of one that failed", STRICT,
     S().write(A, 1, err="EIO").read(B, (30, 1), (70, 0)).stat(B, 30)),
    ("a short write", STRICT, S().write(A, 1, got={"len": 40}).read(B, (40, 1)).stat(B, 40)),
    ("a truncation, a hole, and a write behind it", STRICT,
     S().write(A, 1).cut(A, 10).read(B, (10, 1)).cut(A, 50).read(B, (10, 1), (40, 0)).write(
         A, 2, off=80, n=20).read(B, (10, 1), (70, 0), (20, 2)).stat(B, 100)
     .op(A, "zero", f="F", off=0, len=5).read(B, (5, 0), (5, 1), (70, 0), (20, 2))),
    ("zeros of several truncations of unknown outcome", STRICT,
     S().read(B).cut(A, 0, done=False).write(B, 1).read(B, (100, 1)).read(B).write(B, 2).read(
         B, (100, 2))),
    ("zeros of truncations, some the earliest's and some the latest's, with flips", FLIPS,
     S().read(B, at=(1, 2)).cut(A, 0, done=False, at=(3, 4)).write(B, 1, at=(5, 6))
     .read(B, (100, 1), at=(7, 8)).read(B, at=(9, 10)).write(B, 2, at=(11, 12))
     .read(B, (100, 2), at=(13, 14)).cut(A2, 0, at=(20, 21)).cut(B2, 0, at=(22, 40))
     .read(A2, at=(23, 24)).cut(A2, 0, at=(25, 27)).read(B, at=(26, 28))
     .write(A2, 3, at=(29, 32)).read(B, at=(41, 42))),
    ("a cached write that was not synced is lost with its client", OPEN,
     S().write(A, 1, sync=False).read(A, (100, 1),
                                      direct=False).mark("crash", who="a").read(B).read(B)),
    ("what was closed and not synced is lost with its client", OPEN,
     S().write(A, 1, sync=False).op(A, "close", f="F").mark("crash", who="a").read(B)),
    ("a cache is as old as its open", OPEN,
     S().write(A, 1).op(B, "open", f="F").read(B, (100, 1), direct=False)
     .write(A, 2).read(B, (100, 1), direct=False)
     .op(B, "open", f="F").read(B, (100, 2), direct=False)),
    ("what a fsync that failed left behind", OPEN,
     S().write(A, 1).write(A, 2, sync=False).op(A, "fsync", f="F",
                                                err="EIO").read(A, (100, 1),
                                                                direct=False).op(A, "fsync",
                                                                                 f="F").read(
                                                                                     B, (100, 1))),
    ("a byte changes once, after a loss, to the other writer's", FLIPS,
     S().write(A, 1, at=(4, 8)).write(B, 2,
                                      at=(4, 8)).read(A, (100, 1)).read(B, (100, 1)).mark(
                                          "lost", who="ds1").read(A, (100, 2)).read(B, (100, 2))),
    ("a truncation of a client whose sessions went is done twice", Options(lease=10),
     S().write(B, 1).mark("away", who="a", until=30).cut(A, 0, at=(4, 20)).read(B, at=(6, 7)).write(
         B, 2, at=(8, 9)).read(B, (100, 2), at=(10, 11)).read(B, at=(13, 14))),
    ("what is not yet durable is seen and gone", Options(power=True),
     S().write(A, 1).write(A, 2,
                           sync=False).read(B, (100, 2)).mark("lost", who="ds1").read(B, (100, 1))),
    ("names come and go", STRICT,
     S().make(A, "x", "i1").look(B, "x", "i1").rename(A, "i1", "x",
                                                      "y").look(B, "x",
                                                                None).list(B, ("y", "i1")).op(
                                                                    B, "link", f="i1", dir="D",
                                                                    name="z").unlink(A, "y")
     .look(B, "z", "i1").make(B, "y", "i2").op(A, "create", dir="D", name="y",
                                               err="EEXIST").op(A, "unlink", dir="D", name="x",
                                                                err="ENOENT")),
    ("a file is renamed away and back", STRICT,
     S().make(A, "x", "i1").rename(A, "i1", "x", "y").look(B, "y", "i1")
     .rename(A, "i1", "y", "x").look(B, "x", "i1").look(B, "y", None)
     .rename(B, "i1", "x", "y").look(A, "x", None)),
    ("a rename under way is seen from one side only", STRICT,
     S().make(A, "x", "i1").rename(A, "i1", "x", "y",
                                   at=(4, 20)).look(B, "x", "i1",
                                                    at=(6, 7)).look(B, "y", "i1",
                                                                    at=(8, 9)).look(B, "x", None,
                                                                                    at=(10, 11))),
    ("a create that was not answered is found later", STRICT,
     S().op(A, "create", dir="D", name="x",
            done=False).look(B, "x", None).look(B, "x",
                                                "i7").op(B, "create", dir="D", name="x",
                                                         err="EEXIST")),
    ("what a restore takes back", STRICT,
     S().make(A, "x", "i1").write(A, 1).make(A, "y", "i2",
                                             at=(12, 13)).unlink(A, "x", at=(14, 15)).write(
                                                 A, 2, at=(16, 17)).read(B, (100, 2), at=(18, 19))
     .mark("restore", since=10, before=11, t=20).look(B, "x", "i1",
                                                      at=(21, 22)).look(B, "y",
                                                                        None).make(B, "y",
                                                                                   "i3").read(
                                                                                       B, (100,
                                                                                           1))),
    ("locks of parts, shared ones, and one that is refused", STRICT,
     S().lock(A).lock(B, off=10).lock(B, off=0, n=1,
                                      err="EAGAIN").unlock(A).lock(B, kind="r").lock(
                                          A, kind="r").unlock(B, n=0).unlock(A, n=0).lock(A, n=0)),
    ("a lock is waited for", STRICT,
     S().lock(A).lock(B, at=(3, 30)).unlock(A, at=(10, 12)).unlock(B)),
    ("the lock of a client whose lease is over, of one that crashed, and a refusal in grace",
     Options(lease=10),
     S().lock(A).mark("away", who="a", until=100).lock(B, at=(20, 21)).mark("crash", who="b").lock(
         "c/0", at=(30, 31)).unlock("c/0").mark("grace", until=50).lock("d/0", err="EAGAIN")),
    ("clocks that differ", STRICT,
     S().mark("clock", who="a", offset=100.0,
              error=0.5).write(A, 1, at=(1, 2)).write(A, 3, sync=False, off=200,
                                                      at=(2.1, 2.2)).op(A, "fsync", f="F",
                                                                        at=(2.3, 2.4))
     .read(B, at=(90, 91)).read(B, (100, 1), (100, 0), (100, 3), n=300, at=(103, 104))),
]
TORN = [
    ("a done without a call", [{"e": "done", "p": A, "n": 1, "t": 1}]),
    ("an unknown operation", S().op(A, "frobnicate")),
    ("an end before the beginning", S().op(A, "open", f="F", at=(2, 1))),
    ("one process in two operations", S().op(A, "fsync", f="F", done=False).op(A, "fsync", f="F")),
    ("a tag used twice", S().write(A, 1).write(B, 1)),
    ("a read that does not say what it saw", S().op(A, "read", f="F", off=0, len=1)),
]


def kinds(options, story):
    return [b.kind for b in check(History(story), options)]


def run_program(story, *args):
    with tempfile.NamedTemporaryFile("w", suffix=".json", encoding="ascii") as f:
        f.writelines(json.dumps(r) + "\n" for r in story)
        f.write('{"e": "call", "half')  # from a guest that died
        f.flush()
        done = subprocess.run([sys.executable, os.path.join(SRC, "tests/checker/check.py"), *args,
                               f.name], capture_output=True, text=True, check=False)
        return done.returncode, done.stdout


def large(n):
    """A good history of n lines: two clients write and read blocks of 16 files in turns."""
    s, have, t = Story(), {}, 0.0
    for i in range(n // 4):
        f, off = f"F{i % 16}", i * 7919 % 256 * 4096
        p = (A, B)[i & 1]
        t += 1
        s.write(p, i + 1, off=off, n=4096, f=f, at=(t, t + .5))
        have[f, off] = i + 1
        s.read(p, (4096, i + 1), off=off, n=4096, f=f, at=(t + .6, t + .9))
    return s


def recorded(spoilt):
    """Two clients work on a folder here. spoilt: then a file loses its bytes, before
    all is read."""
    # A file's identity is its inode number: tmpfs gives none twice, other file systems do.
    with tempfile.TemporaryDirectory(dir="/dev/shm") as d:
        top = os.path.join(d, "f")
        os.mkdir(top)
        record = [sys.executable, os.path.join(SRC, "tests/checker/record.py")]
        with subprocess.Popen([*record, "work", top, f"{d}/h1", "g1", "--number", "1", "--seconds",
                               "1"], stdout=subprocess.DEVNULL) as one:
            two = subprocess.run([*record, "work", top, f"{d}/h2", "g2", "--number", "2",
                                  "--seconds", "1", "--roles", "bcl"], stdout=subprocess.DEVNULL,
                                 check=False)
            status = one.wait(), two.returncode
        if spoilt:
            biggest = max((e.stat().st_size, e.path) for e in os.scandir(top) if e.is_file())[1]
            with open(biggest, "r+b") as f:
                f.write(bytes(os.fstat(f.fileno()).st_size))
        last = subprocess.run([*record, "read", top, f"{d}/h3", "g3"], stdout=subprocess.DEVNULL,
                              check=False)
        lines = []
        for name in sorted(os.listdir(d)):
            if name[0] == "h":
                with open(os.path.join(d, name), encoding="ascii") as f:
                    lines += list(f)
        found = kinds(STRICT, lines)
        # Zeros are a loss. Where a client read them before the bytes were written, they are also an
        # older value.
        if spoilt and set(found) == {"lost", "back"}:
            found = ["lost"]
        return (*status, last.returncode, len(lines) > 10,
                set(found)), (0, 0, 0, True, {"lost"} if spoilt else set())


def main():
    tests = [(f"found: {name}", lambda o=o, s=s, k=k: (set(kinds(o, s)), {k}))
             for name, k, o, s in BAD]
    tests += [(f"explained: {name}", lambda o=o, s=s: (kinds(o, s), [])) for name, o, s in GOOD]

    def torn(s):
        try:
            kinds(STRICT, s)
        except Malformed:
            return True, True
        return "it was judged", "refused"
    tests += [(f"refused: {name}", lambda s=s: torn(s)) for name, s in TORN]
    tests += [("the program's status tells",
               lambda: ((run_program(BAD[0][3])[0], run_program(GOOD[0][2])[0],
                         run_program(TORN[0][1])[0]), (1, 0, 2))),
              ("and its lines tell the operations",
               lambda: ("a/0#1 write(" in run_program(BAD[0][3])[1], True)),
              ("at least twenty planted violations, and as many good histories",
               lambda: (len(BAD) >= 20 and len(GOOD) >= 20, True))]

    def rate():
        s, began = large(100000), time.process_time()
        got = kinds(STRICT, s)
        print(f"# {len(s)} lines in {time.process_time() - began:.1f} s of a processor")
        return got, []
    tests.append(("a hundred thousand lines", rate))
    tests.append(("a recorded history of a local folder is explained", lambda: recorded(False)))
    tests.append(("and one whose bytes were changed behind it is not", lambda: recorded(True)))
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
