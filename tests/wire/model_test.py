#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Random name space operations of several clients at once, over the wire, against models. Prints
TAP and the seed (WEFT_SEED repeats the choices).

Each client has a tree of its own that no other client changes. The test compares every result and
attribute with a model of the tree. All clients share one directory. There, the change attributes
that come with each mutation (change_info4, atomic) put all mutations that succeeded in one order,
and every failure must be right at some moment between its call and its reply. The test kills the
server and starts it again in the middle, and checks its store at the end.
"""
import os
import random
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../wirelib"))
import harness  # noqa: E402
import tap  # noqa: E402
from harness import *  # noqa: E402,F403
from steps import again  # noqa: E402
from nfs41 import err, op  # noqa: E402

SOAK = bool(os.environ.get("WEFT_SOAK"))
CLIENTS_N, ROUNDS = 4, 1500 if SOAK else 150
NAMES = [f"n{i}" for i in range(7)] + ["ü" * 20]
SHARED = [f"s{i}" for i in range(3)]
XATTRS = ["a", "bb"]


class Node:
    def __init__(self, kind, fh, mode):
        self.kind, self.fh, self.mode = kind, fh, mode
        self.names, self.xattrs, self.entries, self.change, self.fileid = 1, {}, {}, 0, 0

    def nlink(self):
        return (self.names if self.kind != DIR
                else 2 + sum(n.kind == DIR for n in self.entries.values()))


class Tree:
    """A client, the model of its own tree, and what it saw of the shared directory."""

    fileids, lock = {}, threading.Lock()

    def __init__(self, c, top, shared, rnd):
        self.c, self.shared, self.rnd = c, shared, rnd
        self.root = Node(DIR, top, 0o755)
        self.dirs, self.log, self.n, self.gone = [self.root], [], 0, []

    # Its own tree: one operation, and what the model says of it.

    def pick(self):
        d = self.rnd.choice(self.dirs)
        return d, self.rnd.choice(NAMES)

    def own(self):
        return getattr(self,
                       "own_" + self.rnd.choice("make make make open link rename rename rename "
                                                "remove remove setattr xattr list look".split()))()

    def made(self, d, name, node, got):
        d.entries[name] = node
        if node.kind == DIR:
            self.dirs.append(node)

    def own_make(self):
        d, name = self.pick()
        kind = (DIR if self.rnd.random() < 0.4
                and len(self.dirs) < 12 else self.rnd.choice([FIFO, LNK, SOCK]))
        mode = self.rnd.choice([0o600, 0o755, 0o4711])
        attrs = {} if kind == LNK else {"mode": mode}

        def check_it(got):
            self.expect(got, "EXIST" if name in d.entries else "OK", f"CREATE {name}")
            if not got.status:
                self.made(d, name, Node(kind, got.results[-1].fh, 0o777 if kind == LNK else mode),
                          got)
        return [putfh(d.fh), create(kind, name, b"target", **attrs), getfh()], check_it

    def own_open(self):
        d, name = self.pick()

        def check_it(got):
            self.expect(got, "EXIST" if name in d.entries else "OK", f"OPEN {name}")
            if not got.status:
                self.made(d, name, Node(REG, got.results[3].fh, 0o640), got)
        owner = b"%d" % self.rnd.randrange(1 << 40)
        return [putfh(d.fh), open_(name, BOTH | NO_DELEG, owner=owner, how=GUARDED,
                                   attrs={"mode": 0o640}), getfh(), close((1, bytes(12)))], check_it

    def own_link(self):
        (a, old), (b, new) = self.pick(), self.pick()
        n = a.entries.get(old)

        def check_it(got):
            want = ("NOENT" if not n else "EXIST" if new in b.entries else "ISDIR"
                    if n.kind == DIR else "OK")
            self.expect(got, want, f"LINK {old} {new}")
            if not got.status:
                b.entries[new] = n
                n.names += 1
        return [putfh(a.fh), lookup(old), savefh(), putfh(b.fh), link(new)], check_it

    def inside(self, d, top):
        return d is top or any(n.kind == DIR and self.inside(d, n) for n in top.entries.values())

    def drop(self, n):
        n.names -= 1
        if n.kind == DIR:
            self.dirs.remove(n)
        if n.kind == DIR or not n.names:
            self.gone.append(n.fh)

    def own_rename(self):
        (a, old), (b, new) = self.pick(), self.pick()
        n, over = a.entries.get(old), b.entries.get(new)

        def check_it(got):
            if not n:
                want = "NOENT"
            elif n is over:
                want = "OK"
            elif n.kind == DIR and self.inside(b, n):
                want = "INVAL"
            elif over and ((n.kind == DIR) != (over.kind == DIR) or over.entries):
                want = "EXIST"
            else:
                want = "OK"
            self.expect(got, want, f"RENAME {old} {new}")
            if got.status or n is over:
                return
            del a.entries[old]
            b.entries[new] = n
            if over:
                self.drop(over)
        return [putfh(a.fh), savefh(), putfh(b.fh), rename(old, new)], check_it

    def own_remove(self):
        d, name = self.pick()
        n = d.entries.get(name)

        def check_it(got):
            self.expect(got, "NOENT" if not n else "NOTEMPTY" if n.entries else "OK",
                        f"REMOVE {name}")
            if n and not got.status:
                del d.entries[name]
                self.drop(n)
        return [putfh(d.fh), remove(name)], check_it

    def own_setattr(self):
        d, name = self.pick()
        n, mode = d.entries.get(name), self.rnd.choice([0o600, 0o644, 0o1777, 0o755])

        def check_it(got):
            self.expect(got, "OK" if n else "NOENT", f"SETATTR {name}")
            if n:
                n.mode = mode
        return [putfh(d.fh), lookup(name), setattr_(mode=mode)], check_it

    def own_xattr(self):
        d, name = self.pick()
        n, x, how, value = (d.entries.get(name), self.rnd.choice(XATTRS), self.rnd.randrange(4),
                            os.urandom(self.rnd.randrange(40)))

        def check_it(got):
            if not n:
                want = "NOENT"
            elif n.kind not in (REG, DIR):
                want = "PERM"
            elif how == 1 and x in n.xattrs:
                want = "EXIST"
            elif how >= 2 and x not in n.xattrs:
                want = "NOXATTR"
            else:
                want = "OK"
            if want == "PERM" and got.status:  # the RFC names no error for what cannot have any
                return
            self.expect(got, want, f"xattr {x} of {name}, {how}")
            if got.status:
                return
            if how == 3:
                del n.xattrs[x]
            else:
                n.xattrs[x] = value
        return ([putfh(d.fh), lookup(name),
                 removexattr(x) if how == 3 else setxattr(x, value, how)], check_it)

    def own_list(self):
        d = self.rnd.choice(self.dirs)

        def check_it(got):
            self.expect(got, "OK", "READDIR")
            check({e.name.decode() for e in got.results[-1].entries}, set(d.entries), "READDIR")
        return [putfh(d.fh), readdir(attrs=("type",))], check_it

    def own_look(self):
        d, name = self.pick()
        n = d.entries.get(name)
        if not n and self.gone and self.rnd.random() < 0.5:
            fh = self.rnd.choice(self.gone)
            return ([putfh(fh), getattr_("type")],
                    lambda got: self.expect(got, "STALE", "a handle of what is gone"))

        def check_it(got):
            self.expect(got, "OK" if n else "NOENT", f"LOOKUP {name}")
            if n:
                self.compare(n, got.results[-2].fh, got.results[-1].attrs)
        return ([putfh(d.fh), lookup(name), getfh(),
                 getattr_("type", "mode", "numlinks", "change", "fileid")], check_it)

    def compare(self, n, fh, a):
        check((fh, a.type, a.mode, a.numlinks), (n.fh, n.kind, n.mode, n.nlink()))
        check(a.change > n.change or (n.change, n.fileid) == (a.change, a.fileid), True,
              f"change {a.change} after {n.change}")
        n.change, n.fileid = a.change, a.fileid
        with self.lock:
            check(self.fileids.setdefault(a.fileid, fh), fh, "a fileid is used again")

    def expect(self, got, want, what):
        self.n += 1
        if err(got.status) != want:
            raise Failed(f"{what}: {err(got.status)}, the model says {want}")

    def compare_all(self, d=None):
        d = d or self.root
        got = {e.name.decode(): e for e in self.c.readdir_all(
            d.fh, ("type", "mode", "numlinks", "change", "fileid", "filehandle"))}
        check(set(got), set(d.entries))
        for name, n in d.entries.items():
            self.compare(n, got[name].attrs.filehandle, got[name].attrs)
            for x in XATTRS if n.kind in (REG, DIR) else ():
                r = self.c.call(putfh(n.fh), getxattr(x))
                check(r.results[-1].value if not r.status else None, n.xattrs.get(x),
                      f"xattr {x} of {name}")
            if n.kind == DIR:
                self.compare_all(n)

    # The shared directory: (kind, names, status, change_info, when it began and ended).

    def common(self):
        kind, a, b = (self.rnd.choice(["make", "make", "remove", "rename"]),
                      self.rnd.choice(SHARED), self.rnd.choice(SHARED))
        ops = {"make": create(FIFO, a, mode=0o600), "remove": remove(a),
               "rename": rename(a, b)}[kind]
        began = time.monotonic()

        def note(got):
            last = got.results[-1]
            ci = None if got.status else last.target if kind == "rename" else last.cinfo
            if ci and kind == "rename":
                check(last.source, last.target, "both sides of a RENAME in one directory")
            ci = ci and (ci.atomic, ci.before, ci.after)
            self.log.append((kind, a, b, err(got.status), ci, began, time.monotonic()))
        return [putfh(self.shared), savefh(), ops], note

    def round(self):
        """One operation of its own and two of the shared directory, in flight together."""
        todo = [self.own(), self.common(), self.common()]
        self.rnd.shuffle(todo)
        started = [(self.c.begin(*ops, cache=True), check_it) for ops, check_it in todo]
        for s, check_it in started:
            check_it(self.c.finish(s))


def apply(entries, kind, a, b):
    """(status, the names afterwards). RENAME of a name to itself, or onto another, succeeds when
    the name is there."""
    if kind == "make":
        return ("EXIST", entries) if a in entries else ("OK", entries | {a})
    if a not in entries:
        return "NOENT", entries
    return "OK", entries - {a} | ({b} if kind == "rename" else set())


def one_order(log, first_change, listed):
    """All of it could have happened one after the other, each operation between its call
    and its reply."""
    wins = sorted((e for e in log if e[3] == "OK" and e[4][1] != e[4][2]), key=lambda e: e[4][2])
    states, at, change = [frozenset()], [], first_change
    latest = 0.0
    for kind, a, b, _, (atomic, before, after), began, ended in wins:
        check((atomic, before), (True, change), f"{kind} {a} {b}: the change before it")
        status, now = apply(states[-1], kind, a, b)
        check(status, "OK", f"{kind} {a} {b} on {set(states[-1])}")
        check(ended > latest, True, f"{kind} {a} {b} ended before one began that comes before it")
        latest = max(latest, began)
        states.append(now)
        at.append((began, ended))
        change = after
    check(states[-1], frozenset(listed), "what is there at the end")
    # A failure is right in some state that was, or could have been, between its call and its reply.
    for kind, a, b, status, ci, began, ended in log:
        if status == "OK" and ci[1] != ci[2]:
            continue
        low = max((i + 1 for i, (_, e) in enumerate(at) if e < began), default=0)
        high = min((i for i, (s, _) in enumerate(at) if s > ended), default=len(at))
        if status == "OK":  # RENAME to itself
            check((kind, a), ("rename", b))
            possible = any(a in s for s in states[low:high + 1])
        else:
            possible = any(apply(s, kind, a, b)[0] == status for s in states[low:high + 1])
        check(possible, True, f"{kind} {a} {b}: {status} in none of the states {low} to {high}")
    return len(wins)


def test_random_operations_of_several_clients_agree_with_their_models(w):
    seed = int(os.environ.get("WEFT_SEED") or random.SystemRandom().randrange(1 << 32))
    tap.say(f"WEFT_SEED={seed}")
    rnd = random.Random(seed)
    first = client()
    shared = first.mkdir(first.root(), "shared")
    change = first.attrs(shared, "change").change
    trees = []
    for i in range(CLIENTS_N):
        c = client()
        trees.append(Tree(c, c.mkdir(c.root(), f"own{i}"), shared, random.Random(rnd.random())))
    failed = []

    def run(t):
        try:
            for _ in range(ROUNDS):
                if failed:
                    return
                t.round()
        except Exception as e:
            failed.append(e)

    for phase in range(3):
        threads = [threading.Thread(target=run, args=(t,)) for t in trees]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        if failed:
            raise failed[0]
        if phase < 2:
            w.restart()
            again(first, True)
            for t in trees:
                again(t.c, True)
        for t in trees:
            t.compare_all()
    log = [e for t in trees for e in t.log]
    wins = one_order(log, change, {e.name.decode() for e in first.readdir_all(shared)})
    own = sum(t.n for t in trees)
    tap.say(f"{own} operations in trees of their own, {len(log)} in the shared directory, {wins} "
            "of them changed it")
    check(own >= CLIENTS_N * ROUNDS * 2 and wins > len(log) // 4, True, "too little was done")
    w.dev("down", w.dir)
    done = subprocess.run([os.path.join(BUILD, "weft-fsck"), os.path.join(w.dir, "mds")],
                          capture_output=True, text=True, check=False)
    check(done.returncode, 0, done.stdout + done.stderr)


def test_the_order_is_checked(w):
    """A checker that finds nothing proves nothing: it refuses histories that cannot be."""
    ok = [("make", "a", "b", "OK", (True, 5, 6), 1.0, 2.0),
          ("remove", "a", "b", "OK", (True, 6, 7), 1.5, 2.5),
          ("remove", "a", "b", "NOENT", None, 3.0, 4.0)]
    check(one_order(ok, 5, set()), 2)
    wrong = [
        # NOENT after all clients had seen that it was made.
        (ok[:1] + ok[2:], {"a"}),
        (ok, {"a"}),                                                  # it is there at the end
        # A change that two operations use.
        ([ok[0], ("remove", "a", "b", "OK", (True, 5, 7), 1.5, 2.5)], set()),
        ([ok[0], ("make", "a", "b", "OK", (True, 6, 7), 3.0, 4.0)], {"a"}),    # made twice
        # Before the name was there.
        ([("make", "a", "b", "OK", (True, 5, 6), 3.0, 4.0),
          ("remove", "a", "b", "OK", (True, 6, 7), 1.0, 2.0)], set()),
        (ok[:2] + [("make", "a", "b", "EXIST", None, 3.0, 4.0)], set()),  # EXIST, and nothing was
    ]
    for history, listed in wrong:
        try:
            one_order(history, 5, listed)
        except Failed:
            continue
        raise Failed(f"{history} was taken for possible")


if __name__ == "__main__":
    harness.run_apart(globals(), settings=["mds.threads=3", "mds.sync=false", "mds.lease=10s"])
