#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""check.py - decides whether a file system that keeps its promises can explain the answers that its
clients got (history.py has the format).

    check.py [--to-open] [--flips] [--power] [--lease SECONDS] HISTORY...

Its status is 0 where it can, 1 where it cannot (each reason is a line), and 2 where the files are
no history.

What it holds a file system to:
- Each byte of each file, and each name of each folder, is a register that all see change at single
  moments (linearizable). An operation takes effect once, at one moment between its call and its
  done. An operation of unknown outcome takes effect at any moment after its call, or never. With
  values that are written once, check.py decides this exactly and in O(n log n) (Gibbons and Korach,
  Testing Shared Memories, 1997: "zones").
- So an acknowledged write, truncation or change of a name is there until another one. No client
  sees a byte or a name go back, sees what no client asked for, sees bytes beyond a size, or misses
  bytes below it. What a client wrote through a cache counts from its fsync or close on.
- A client sees its own writes from the moment they return, whatever its cache does.
- A reported size is one that a write or truncation made. A rename is one change of two names. An
  exclusive create, link or unlink is one change: two of them do not both succeed.
- Between the done of lock and the call of unlock no other process has a lock that conflicts. EAGAIN
  has a lock that may be the reason, or a grace period.

Options, each a promise that is weaker:
- to_open: cached reads of a process are as new as its last open of the file, not as new as
  themselves (NFS close-to-open).
- flips: two clients wrote a byte at the same time, and a data server was lost (mark "lost")
  between. Then the byte may change once, for each client that reads, to the other writer's byte.
- power: a client may see what is not yet durable, and it may be gone later: data servers lose what
  they had not synced.
- lease: seconds that a client which is away keeps its locks. A client that is away for longer loses
  its sessions, and with them what the server knows of its requests (RFC 8881, section 2.10.6.1).
  The client asks again, and a change of bytes that it asked for takes effect once or twice between
  its call and its done.

What it does not see (write the test so that it does not matter, or look elsewhere):
- It judges operations of several bytes or names byte by byte: half a write that a client sees is no
  violation (POSIX wants more, NFS does not give it).
- A value may be written more than once to one register (a file that is renamed away and back; zeros
  of several truncations). check.py gives a read of it to the earliest operation that explains the
  read, then to the latest (one that the client asked for again, if there is one). Where neither
  explains it, check.py searches all orders in which nothing takes effect twice (flips and lease
  allow that). It refuses a history where no order explains it, and where the search takes more than
  SEARCH steps (many operations of unknown outcome).
- rename believes f: a process must know what it renames (give each process names of its own to
  rename from).
- check.py does not judge link counts, times and modes.
- After a "restore", bytes written since the backup may be there or not, each by itself. Names are
  those of one moment of the backup's time, each by itself.
- Operations that it does not know are an error, so that they do not pass for judged.

Cost: 10 to 30 us a line (more where operations are large and cut across each other), and about 1
KiB of memory. A million lines take up to half a minute and 1 GB.
"""
import argparse
import bisect
import collections
import sys
import os

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from history import ALIEN, INF, NOTHING, History, Malformed  # noqa: E402

Options = collections.namedtuple("Options", "to_open flips power lease",
                                 defaults=(False, False, False, 0.0))
MOST = 50  # violations of one kind that are reported
SEARCH = 200000  # steps of a search, some seconds


class Violation(Exception):
    """kind is one word (tests/unit/checker_test.py has all). what is the register and how it broke.
    ops are the operations that show it."""

    def __init__(self, kind, what, *ops):
        super().__init__(kind, what)
        self.kind, self.what, self.ops = kind, what, ops

    def __str__(self):
        return "\n    ".join([f"{self.kind}: {self.what}"]
                             + [str(o) for o in self.ops if o is not None])


# ---- one register

class Write:
    """A value, and when it came into the register at the earliest and at the latest. op is None for
    what was there at the start."""
    __slots__ = ("inv", "res", "val", "op", "reads")

    def __init__(self, inv, res, val, op):
        self.inv, self.res, self.val, self.op, self.reads = inv, res, val, op, []


class Read:
    __slots__ = ("inv", "res", "val", "op")

    def __init__(self, inv, res, val, op):
        self.inv, self.res, self.val, self.op = inv, res, val, op


def give_reads(writes, reads, latest):
    """Gives each read to the write that it saw. Returns the first violation, or None. Reads of a
    value that several operations wrote go to the earliest (latest) that can be meant."""
    by_val = {}
    for w in writes:
        w.reads = []
        by_val.setdefault(w.val, []).append(w)
    several = []
    for r in reads:
        have = by_val.get(r.val)
        if have is None:
            if r.val is None:
                return Violation("lost", "nothing is seen, and something must be there",
                                 writes[0].op, r.op)
            return Violation("unwritten", "a value is seen that nothing put there", r.op)
        if len(have) > 1:
            several.append((r, have))
        elif have[0].inv > r.res:
            return Violation("early", "a value is seen before the operation that makes it began",
                             r.op, have[0].op)
        else:
            have[0].reads.append(r)
    if not several:
        return None
    # What is over by when: (latest moment of effect, earliest moment), by the first.
    done = sorted((min([w.res] + [r.res for r in w.reads]), w.inv) for w in writes)
    ends, newest = [d[0] for d in done], []
    for d in done:
        newest.append(max(d[1], newest[-1] if newest else -INF))
    for r, have in several:
        at = bisect.bisect_left(ends, r.inv) - 1
        # something that began then was over before the read began
        floor = newest[at] if at >= 0 else -INF
        can = [w for w in have if w.inv <= r.res]
        if not can:
            return Violation("early", "a value is seen before the operation that makes it began",
                             r.op, have[0].op)
        good = [w for w in can if w.res >= floor] or can[-1:]
        pick = next((w for w in reversed(good) if w.op is not None and w.op.again),
                    good[-1]) if latest else good[0]
        pick.reads.append(r)
    return None


def by_client(reads):
    out = {}
    for r in reads:
        out.setdefault(r.op.client, []).append(r)
    return out


def is_flip(a, b, lost):
    """The two values were written at the same time, and a server was lost: each client's reads
    change once from one to the other."""
    if a.inv > b.res or b.inv > a.res or a.op is None or b.op is None:
        return False
    xs, ys = by_client(a.reads), by_client(b.reads)
    for client in xs.keys() & ys.keys():
        x, y = xs[client], ys[client]
        if min(r.inv for r in x) > min(r.inv for r in y):
            x, y = y, x
        change = min(r.res for r in y)
        if max(r.inv for r in x) > change or not any(m <= change for m in lost):
            return False
    return any(m <= max(r.res for r in a.reads + b.reads) for m in lost)


def is_again(a, b):
    """One client asked again for its write, and the other write came between."""
    return (any(w.op is not None and w.op.again for w in (a, b)) and a.inv <= b.res
            and b.inv <= a.res)


def told(a, b):
    """Why a, which a client still saw at its zone's end, and b exclude each other."""
    last = max(a.reads, key=lambda r: r.inv).op if a.reads else None
    seen = min(b.reads, key=lambda r: r.res).op if b.reads else None
    if a.res < b.inv:
        if b.op is not None and b.res < b.op.res or seen is not None and seen.res < b.res:
            return Violation("back", "an older value is seen after a newer one was seen", a.op,
                             b.op, seen, last)
        return Violation("lost", "an older value is seen after a newer one was acknowledged", a.op,
                         b.op, last)
    return Violation("back", "two values are seen in turns", a.op, b.op, seen, last)


def zones(writes, lost, flips):
    """The first violation, or None. Each value has a time from when it surely was there to when it
    surely still was. That time must exclude every other value's."""
    forward, backward = [], []
    for w in writes:
        lo, hi = w.res, w.inv
        for r in w.reads:
            if r.res < lo:
                lo = r.res
            if r.inv > hi:
                hi = r.inv
        if lo < hi:
            forward.append((lo, hi, w))
        elif lo < INF:
            backward.append((hi, lo, w))
    forward.sort(key=lambda z: z[0])
    top = None
    for z in forward:
        if top is not None and z[0] < top[1]:
            a, b = (top[2], z[2]) if top[2].inv <= z[2].inv else (z[2], top[2])
            if not (is_again(a, b) or flips and is_flip(a, b, lost)):
                return told(a, b)
        if top is None or z[1] > top[1]:
            top = z
    if not backward:
        return None
    starts = [z[0] for z in forward]
    for lo, hi, w in backward:
        at = bisect.bisect_left(starts, lo) - 1
        if at >= 0 and forward[at][1] > hi:
            a = forward[at][2]
            if not (is_again(a, w) or flips and is_flip(a, w, lost)):
                return told(a, w)
    return None


def register(writes, reads, lost=(), flips=False):
    """The first violation of a register, or None."""
    if not reads:
        return None
    for latest in (False, True):
        bad = give_reads(writes, reads, latest) or zones(writes, lost, flips)
        if bad is None:
            return None
    exact = len({w.val for w in writes}) == len(writes)
    return None if not exact and in_some_order(writes, reads) else bad


def fewest_waiting(states):
    """Of states with one value and the same writes to come, those in which the
    fewest reads wait."""
    kept = {}
    for value, todo, waiting in sorted(states, key=lambda s: len(s[2])):
        have = kept.setdefault((value, todo), [])
        if not any(fewer <= waiting for fewer in have):
            have.append(waiting)
    return {(value, todo, waiting) for (value, todo), have in kept.items() for waiting in have}


def in_some_order(writes, reads):
    """Is there an order of the writes that explains all reads?

    Just-in-time linearization (Lowe, Testing for linearizability, 2017): a write takes effect when
    something ends that needs it to. A state is the value, the writes that are to come, and the
    reads that have not seen theirs. Two rules keep the states few. Of writes of one value, the one
    that ends first goes first. A write whose value no read sees may have come just before any other
    write, so the search tries it by itself only when it ends and no other write has come.
    """
    CALL, DONE = 0, 1
    events = []
    for k, w in enumerate(writes):
        events += [(t, how, k, w, None) for t, how in ((w.inv, CALL), (w.res, DONE)) if t < INF]
    for k, r in enumerate(reads):
        events += [(r.inv, CALL, k, None, r), (r.res, DONE, k, None, r)]
    events.sort(key=lambda e: e[:2])
    seen_by_some = {r.val for r in reads}
    unseen = frozenset(k for k, w in enumerate(writes) if w.val not in seen_by_some)
    steps, none = 0, frozenset()
    states = {(object(), none, none)}  # what is there at the start is a write too

    def after_write(k, todo, waiting):
        value = writes[k].val
        return value, todo - {k} - unseen, frozenset(n for n in waiting if reads[n].val != value)

    def next_ones(todo):
        first = {}
        for k in todo - unseen:
            have = first.get(writes[k].val)
            if have is None or writes[k].res < writes[have].res:
                first[writes[k].val] = k
        return first.values()

    for _, how, k, w, r in events:
        after = set()
        steps += len(states)
        if how == CALL:
            for value, todo, waiting in states:
                if w is not None:
                    after.add((value, todo | {k}, waiting))
                else:
                    after.add((value, todo, waiting if r.val == value else waiting | {k}))
        elif w is not None and k in unseen:
            for value, todo, waiting in states:
                after.add(after_write(k, todo, waiting) if k in todo else (value, todo, waiting))
        else:
            known, more = set(states), list(states)
            while more:
                steps += 1
                if steps > SEARCH:
                    return False
                state = more.pop()
                _, todo, waiting = state
                if k not in (todo if w is not None else waiting):
                    after.add(state)
                    continue
                for x in next_ones(todo):
                    state = after_write(x, todo, waiting)
                    if state not in known:
                        known.add(state)
                        more.append(state)
        if not after:
            return False
        states = fewest_waiting(after)
    return True


# ---- bytes

def settle(ops, crashes):
    """When each buffered write was visible at the latest: {op: time}. A fsync or close covers what
    the client wrote to the file before, except what an earlier failed one was for."""
    due, out, closed = {}, {}, {}
    events = [(o.until if o.op == "write" else o.res, 0, o) for o in ops
              if o.op in ("write", "fsync", "close") and not (o.op == "write" and o.a["sync"])]
    events += [(o.until, 1, o) for o in ops if o.op in ("fsync", "close") and o.res == INF
               and o.until < INF]
    events += [(m["t"], 2, m) for m in crashes]
    for _, kind, o in sorted(events, key=lambda e: (e[0], e[1])):
        if kind == 2:
            for key in [k for k in due if k[0] == o["who"]]:
                del due[key]
            for op in [op for key, ops in closed.items() if key[0] == o["who"] for op in ops]:
                out.pop(op, None)
            closed = {k: v for k, v in closed.items() if k[0] != o["who"]}
            continue
        key = o.client, o.a["f"]
        if kind == 1:
            due.pop(key, None)
        elif o.op == "write":
            if o.until < INF:
                due.setdefault(key, []).append(o)
        elif o.res < INF:
            began = o.inv + 2 * o.slack
            covered = [w for w in due.get(key, ()) if w.until <= began]
            if covered:
                due[key] = [w for w in due[key] if w.until > began]
            for w in covered:
                if w.res < INF:
                    out[w] = o.res
            if o.op == "close":
                closed.setdefault(key, []).extend(covered)
            else:
                closed.pop(key, None)
    return out


class File:
    """The operations of one file, and the registers of its bytes."""

    def __init__(self, name, options, marks):
        self.name, self.options, self.marks = name, options, marks
        self.ops = []

    def makers(self):
        """(from, to, earliest, latest, value, op) of all that changes bytes. A truncation or a
        hole puts NOTHING."""
        crashes = [m for m in self.marks if m["what"] == "crash"]
        visible = settle(self.ops, crashes)
        restores = [(m["since"], m["t"]) for m in self.marks if m["what"] == "restore"]
        for o in self.ops:
            if o.op == "write":
                off, n = o.a["off"], o.a["len"]
                res = o.res if o.a["sync"] else visible.get(o, INF)
                done = n if o.got is None else o.got.get("len", n)
                if any(o.res >= since and o.inv <= t for since, t in restores):
                    res = INF
                if done:
                    yield off, off + done, o.inv, res, o.a["tag"], o
                if done < n:
                    yield off + done, off + n, o.inv, INF, o.a["tag"], o
            elif o.op in ("truncate", "zero"):
                off = o.a["size"] if o.op == "truncate" else o.a["off"]
                end = INF if o.op == "truncate" else off + o.a["len"]
                res = INF if any(o.res >= since and o.inv <= t for since, t in restores) else o.res
                yield off, end, o.inv, res, NOTHING, o

    def seen(self):
        """(from, to, earliest, latest, value, op) of all that clients saw."""
        opened = {}
        for o in self.ops:
            if o.op == "open":
                opened[o.p] = o.inv
            elif o.res == INF or o.err:
                continue
            elif o.op == "stat":
                yield o.got["size"], INF, o.inv, o.res, NOTHING, o
            elif o.op == "read":
                inv = (opened.get(o.p, o.inv) if self.options.to_open and not o.a.get("direct")
                       else o.inv)
                at, end = o.a["off"], o.a["off"] + o.a["len"]
                for n, tag in o.got["runs"]:
                    yield at, at + n, inv, o.res, tag, o
                    at += n
                if at < end:
                    yield at, INF, inv, o.res, NOTHING, o

    def check(self):
        made, seen = list(self.makers()), list(self.seen())
        tags = {m[4]: m for m in made if m[4] != NOTHING}
        for s in seen:
            if s[4] == ALIEN:
                yield Violation("alien", f"{self.name}: bytes {s[0]} to {s[1]} are nothing that "
                                "was written there", s[5])
            elif s[4] != NOTHING and s[4] not in tags:
                yield Violation("unwritten", f"{self.name}: bytes {s[0]} to {s[1]} are of no "
                                "write to this file", s[5])
        seen = [s for s in seen if s[4] == NOTHING or s[4] in tags]
        yield from self.check_bytes(made, seen)
        yield from self.check_own(made, seen)
        yield from self.check_sizes(made)

    def check_bytes(self, made, seen):
        """What the servers hold. What a client sees of its own cache says nothing about them."""
        visible = {m[5]: m[3] for m in made}
        writer = {m[4]: m[5] for m in made if m[4] != NOTHING}
        restores = [(m["since"], m["t"]) for m in self.marks if m["what"] == "restore"]
        bind = []
        for s in seen:
            w = writer.get(s[4])
            if any(s[3] >= since and s[2] <= t for since, t in restores):
                continue
            if (w is not None and w.op == "write" and not w.a["sync"] and visible[w] > s[3]
                and (self.options.power or w.client == s[5].client and not s[5].a.get("direct"))):
                continue
            bind.append(s)
        yield from self.segments(made, bind, self.options.flips)

    def check_own(self, made, seen):
        """A client's cached reads of its own cached writes. A crash ends what it knows."""
        clients = {m[5].client for m in made if m[5].op == "write" and not m[5].a["sync"]}
        crashes = {m["who"] for m in self.marks if m["what"] == "crash"}
        for c in sorted(clients - crashes):
            # After a fsync or close that failed the client may have dropped what it had.
            bad = max((o.until for o in self.ops if o.op in ("fsync", "close") and o.client == c
                       and o.res == INF), default=-INF)
            own = [(a, b, inv + o.slack, INF if o.op == "write" and inv < bad else o.res - o.slack,
                    v, o) for a, b, inv, _, v, o in made if o.client == c]
            tags = {m[4] for m in own}
            if any(o.client != c and v == NOTHING for *_, v, o in made):
                continue  # another client's truncation may explain any nothing
            mine = [(a, b, o.inv + o.slack, o.res - o.slack, v, o) for a, b, _, _, v, o in seen
                    if o.client == c and v in tags and v != NOTHING]
            yield from self.segments(own, mine, False)

    def segments(self, made, seen, flips):
        """Bytes that every operation treats alike are one register."""
        if not seen:
            return
        cuts = sorted({x for m in made for x in m[:2]} | {x for s in seen for x in s[:2]}
                      | {0, INF})
        where = {x: i for i, x in enumerate(cuts)}
        writes, reads = [[] for _ in cuts], [[] for _ in cuts]
        for a, b, inv, res, v, o in made:
            for i in range(where[a], where[b]):
                writes[i].append(Write(inv, res, v, o))
        for a, b, inv, res, v, o in seen:
            r = Read(inv, res, v, o)
            for i in range(where[a], where[b]):
                reads[i].append(r)
        lost = [m["t"] for m in self.marks if m["what"] == "lost"]
        told_of = set()
        for i in range(len(cuts) - 1):
            if reads[i]:
                bad = register([Write(-INF, -INF, NOTHING, None)] + writes[i], reads[i], lost,
                               flips)
                if bad is not None and (bad.kind, bad.ops) not in told_of:
                    told_of.add((bad.kind, bad.ops))
                    bad.what = f"{self.name}, bytes {cuts[i]} to {cuts[i + 1]}: {bad.what}"
                    yield bad

    def check_sizes(self, made):
        """A write or truncation made each reported size, and no truncation before
        had taken it away."""
        ends, cut = {0: [(-INF, -INF)]}, []
        for a, b, inv, res, _, o in made:
            if o.op == "truncate":
                ends.setdefault(a, []).append((inv, res))
                cut.append((inv, res, a))
            elif o.op == "write":
                ends.setdefault(b, []).append((inv, res))
        for o in self.ops:
            if o.op != "stat" or o.res == INF or o.err:
                continue
            size = o.got["size"]
            partial = any(a < size < b and w.op == "write" and inv <= o.res
                          for a, b, inv, _, _, w in made)
            can = [m for m in ends.get(size, ()) if m[0] <= o.res]
            if not can and not partial:
                yield Violation("size", f"{self.name}: no operation made its size {size}", o)
            elif (not partial
                  and not any(all(not (res < i and r < o.inv and n < size) for i, r, n in cut)
                              for _, res in can)):
                yield Violation("size", f"{self.name}: its size {size} had been cut away", o)


# ---- names

class Names:
    """The names of all folders, each a register of what it names."""

    def __init__(self, options, marks):
        self.options, self.marks = options, marks
        self.writes, self.reads, self.maybe = {}, {}, {}
        self.changes = {}  # register: [(op, what must be there before it: True, False, None)]
        self.lists, self.halves = [], {}

    def put(self, key, op, val, needs):
        w = Write(op.inv, op.res, val, op)
        self.writes.setdefault(key, []).append(w)
        self.changes.setdefault(key, []).append((op, needs, val))
        self.halves.setdefault(op, []).append(w)

    def see(self, key, op, val):
        self.reads.setdefault(key, []).append(Read(op.inv, op.res, val, op))

    def take(self, o):
        a = o.a
        if o.op == "readdir":
            if o.res < INF and not o.err:
                self.lists.append(o)
            return
        key = a["dir"], a["name"]
        if o.op == "lookup":
            if o.res < INF:
                self.see(key, o, None if o.err else o.got["f"])
        elif o.err == "EEXIST":
            self.maybe.setdefault(key, []).append(o)
        elif o.err == "ENOENT":
            self.see(key, o, None)
        elif o.op in ("create", "mkdir"):
            self.put(key, o, o.got["f"] if o.res < INF else ("unknown", o.p, o.n), False)
        elif o.op == "link":
            self.put(key, o, a["f"], False)
        elif o.op in ("unlink", "rmdir"):
            self.put(key, o, None, True)
        else:
            to = a["todir"], a["toname"]
            if to != key:
                self.put(key, o, None, True)
                self.put(to, o, a["f"], None)

    def expand(self):
        """A listing saw each name of its folder, there or not."""
        of_dir = {}
        for key in set(self.writes) | set(self.reads):
            of_dir.setdefault(key[0], []).append((key[1], *self.life(key)))
        for o in self.lists:
            listed = {}
            for name, f in o.got["names"]:
                if name in listed:
                    yield Violation("listing", f"{name} is twice in one listing of {o.a['dir']}", o)
                listed[name] = f
            names = {name for name, born, gone in of_dir.get(o.a["dir"], ()) if born <= o.res
                     and gone >= o.inv}
            for name in names | set(listed):
                self.see((o.a["dir"], name), o, listed.get(name))

    def life(self, key):
        """Before the first time and after the second one, nothing could be there. That it is not
        there needs no judge."""
        writes = self.writes.get(key)
        if not writes:
            return INF, INF
        last = max(writes, key=lambda w: w.inv)
        over = last.val is None and all(w is last or w.res < last.inv for w in writes)
        return min(w.inv for w in writes), last.res if over else INF

    def bind_unknown(self, key):
        """An identity may have no known maker. Then it is that of a create whose answer did not
        come, if there is one."""
        writes = self.writes.get(key, [])
        open_ones = [w for w in writes if isinstance(w.val, tuple)]
        if not open_ones:
            return
        known = {w.val for w in writes}
        for r in sorted(self.reads.get(key, ()), key=lambda r: r.res):
            if r.val is None or r.val in known:
                continue
            w = next((w for w in open_ones if isinstance(w.val, tuple) and w.inv <= r.res), None)
            if w is not None:
                w.val = r.val
                known.add(r.val)

    def tighten(self):
        """Both halves of a rename took effect by the time when a client saw one of them."""
        single = {}
        for key, reads in self.reads.items():
            count = collections.Counter(w.val for w in self.writes.get(key, ()))
            for r in reads:
                if count.get(r.val) == 1 and r.val is not None:
                    single[key, r.val] = min(single.get((key, r.val), INF), r.res)
        for op, halves in self.halves.items():
            if op.op != "rename":
                continue
            a = op.a
            hi = single.get(((a["todir"], a["toname"]), a["f"]), INF)
            hi = min(hi, self.gone(op))
            for w in halves:
                w.res = min(w.res, hi)

    def gone(self, op):
        """When a client saw that the old name was away, if only this rename takes it away."""
        key = op.a["dir"], op.a["name"]
        if sum(w.val is None for w in self.writes[key]) != 1:
            return INF
        made = [w for w in self.writes[key] if w.val == op.a["f"] and w.res < INF]
        if not made:
            return INF
        since = min(w.res for w in made)
        return min((r.res for r in self.reads.get(key, ()) if r.val is None and r.inv > since),
                   default=INF)

    def check(self):
        yield from self.expand()
        for key in self.writes:
            self.bind_unknown(key)
        self.tighten()
        restores = [m for m in self.marks if m["what"] == "restore"]
        for key in sorted(set(self.writes) | set(self.reads), key=str):
            bad = self.one(key, restores)
            if bad is not None:
                bad.what = f"name {key[1]} in {key[0]}: {bad.what}"
                bad.kind = "name-" + bad.kind
                yield bad
            yield from self.check_changes(key, restores)
        for key, ops in self.maybe.items():
            yield from self.check_present(key, ops, restores)

    def one(self, key, restores):
        """Each time between restores by itself. A restore begins with what the name may have been
        in the backup's time."""
        writes, reads = self.writes.get(key, []), self.reads.get(key, [])
        begin = [Write(-INF, -INF, None, None)]
        start = -INF
        for m in restores + [{"t": INF, "since": INF, "before": INF}]:
            t = m["t"]
            here = begin + [w for w in writes if start <= w.inv < t]
            bad = register(here, [r for r in reads if start <= r.inv and r.res <= t])
            if bad is not None:
                return bad
            sure = [w for w in here if w.res < m["since"]]
            floor = max((w.inv for w in sure), default=-INF)
            can = [w for w in here if w.inv <= m["before"] and w.res >= floor]
            if t < INF:
                begin = [Write(t, t if len({w.val for w in can}) == 1 else INF, w.val, w.op)
                         for w in can]
            start = t
        return None

    def check_changes(self, key, restores):
        """Two operations that need the name to be absent (or present) both succeeded:
        something came between."""
        acts = sorted(((o, n, v) for o, n, v in self.changes.get(key, ())), key=lambda c: c[0].inv)
        for i, (o, needs, _) in enumerate(acts):
            if needs is None or o.res == INF:
                continue
            for p, also, _ in acts[i + 1:]:
                if p.inv > o.res:
                    break
                if also != needs or p.res == INF or any(o.inv <= m["t"] <= p.res for m in restores):
                    continue
                lo, hi = min(o.inv, p.inv), max(o.res, p.res)
                if not any(q is not o and q is not p and (v is None) != needs and q.inv <= hi
                           and q.res >= lo for q, _, v in acts):
                    yield Violation("name-twice", f"name {key[1]} in {key[0]}: both succeeded, "
                                    "and only one can", o, p)

    def check_present(self, key, ops, restores):
        """EEXIST: something may have been there."""
        writes = self.writes.get(key, [])
        for o in ops:
            if any(m["t"] <= o.res for m in restores):
                continue
            good = False
            for w in writes:
                if (w.val is not None and w.inv <= o.res
                    and not any(v.val is None and w.res < v.inv and v.res < o.inv for v in writes)):
                    good = True
                    break
            if not good:
                yield Violation("name-answer", f"name {key[1]} in {key[0]}: EEXIST, and it was "
                                "not there", o)


# ---- locks

class Locks:
    def __init__(self, name, options, marks):
        self.name, self.options, self.marks, self.ops = name, options, marks, []

    def check(self):
        held, refused = self.holds()
        held.sort(key=lambda h: h[0])
        active = []
        for h in held:
            active = [g for g in active if g[1] > h[0]]
            for g in active:
                if (g[5] != h[5] and "w" in (g[4], h[4]) and g[2] < h[3] and h[2] < g[3]
                    and h[0] < h[1]):
                    yield Violation("lock-twice", f"{self.name}: two have locks that exclude each "
                                    "other", g[6], h[6])
            active.append(h)
        possible, ends = self.possible()
        for o in refused:
            if not self.explained(o, possible, ends):
                yield Violation("lock-refused", f"{self.name}: refused, and nobody can have a "
                                "lock in its way", o)

    def holds(self):
        """[sure from, sure to, first byte, end, kind, owner, op] of each piece; and the refusals.
        A restart keeps locks (clients reclaim them). A crash ends them, and so does an absence
        longer than the lease."""
        held, refused, mine = [], [], {}
        for o in self.ops:
            if o.err:
                refused.append(o)
                continue
            a, b = o.a["off"], o.a["off"] + o.a["len"] if o.a["len"] else INF
            keep = []
            for h in mine.get(o.p, ()):
                if h[3] <= a or b <= h[2]:
                    keep.append(h)
                    continue
                h[1] = min(h[1], o.inv)
                for lo, hi in ((h[2], a), (b, h[3])):
                    if lo < hi:
                        rest = [h[0], INF, lo, hi, h[4], h[5], h[6]]
                        keep.append(rest)
                        held.append(rest)
            mine[o.p] = keep
            if o.op == "lock" and o.res < INF:
                h = [o.res, INF, a, b, o.a["kind"], o.p, o]
                held.append(h)
                mine[o.p].append(h)
        for h in held:
            client = h[5].partition("/")[0]
            for m in self.marks:
                if m["what"] == "crash" and m["who"] == client and m["t"] >= h[6].inv:
                    h[1] = min(h[1], m["t"])
                elif m["what"] == "away" and m["who"] == client and h[0] <= m.get("until", INF):
                    h[1] = (min(h[1], max(m["t"] + self.options.lease, h[0]))
                            if m["t"] + self.options.lease < m.get("until", INF) else h[1])
        return held, refused

    def possible(self):
        """[(from, to, first byte, end, kind, owner)] of locks that may have been, by time; and the
        latest end so far."""
        out, ends = [], []
        after = {}
        for o in reversed(self.ops):
            a, b = o.a["off"], o.a["off"] + o.a["len"] if o.a["len"] else INF
            if o.op == "unlock" and o.res < INF:
                after.setdefault(o.p, []).append((a, b, o.res))
            elif o.op == "lock" and not o.err:
                out.append((o.inv,
                            next((t for lo, hi, t in reversed(after.get(o.p, ())) if lo <= a
                                  and b <= hi), INF), a, b, o.a["kind"], o.p))
        out.reverse()
        for h in out:
            ends.append(max(h[1], ends[-1] if ends else -INF))
        return out, ends

    def explained(self, o, possible, ends):
        """Another process' lock that may have been there, or a grace period."""
        if any(m["what"] == "grace" and m["t"] <= o.res and m.get("until", INF) >= o.inv
               for m in self.marks):
            return True
        a, b = o.a["off"], o.a["off"] + o.a["len"] if o.a["len"] else INF
        at = bisect.bisect_right(possible, o.res, key=lambda h: h[0]) - 1
        while at >= 0 and ends[at] >= o.inv:
            h = possible[at]
            if (h[1] >= o.inv and h[5] != o.p and "w" in (h[4], o.a["kind"]) and h[2] < b
                and a < h[3]):
                return True
            at -= 1
        return False


# ---- all

NAMES = {"create", "mkdir", "lookup", "link", "unlink", "rmdir", "rename", "readdir"}


def asked_again(history, lease):
    """Finds the operations whose clients lost their sessions meanwhile."""
    for m in history.marks:
        until = m.get("until", INF)
        if m["what"] != "away" or not lease or until - m["t"] <= lease:
            continue
        for o in history.ops:
            o.again |= o.client == m["who"] and o.inv <= until and o.res >= m["t"]


def check(history, options=Options()):
    """Every Violation of a History, MOST of a kind at most."""
    files, locks, names = {}, {}, Names(options, history.marks)
    asked_again(history, options.lease)
    for o in history.ops:
        if o.op in NAMES:
            names.take(o)
        elif o.op in ("lock", "unlock"):
            locks.setdefault(o.a["f"], Locks(o.a["f"], options, history.marks)).ops.append(o)
        else:
            files.setdefault(o.a["f"], File(o.a["f"], options, history.marks)).ops.append(o)
    tags, count = set(), collections.Counter()
    for o in history.ops:
        if o.op == "write":
            if o.a["tag"] <= 0 or o.a["tag"] in tags:
                raise Malformed(f"a tag is used twice, or is none: {o}")
            tags.add(o.a["tag"])
    for part in [names, *locks.values(), *files.values()]:
        for bad in part.check():
            count[bad.kind] += 1
            if count[bad.kind] <= MOST:
                yield bad


def main():
    p = argparse.ArgumentParser(description="Can this history be explained?")
    p.add_argument("--to-open", action="store_true")
    p.add_argument("--flips", action="store_true")
    p.add_argument("--power", action="store_true")
    p.add_argument("--lease", type=float, default=0.0)
    p.add_argument("history", nargs="+")
    a = p.parse_args()

    def lines():
        for path in a.history:
            with open(path, encoding="ascii") as f:
                for line in f:
                    if line.endswith("\n"):  # the last line of a guest that died
                        yield line
    try:
        h = History(lines())
        bad = list(check(h, Options(a.to_open, a.flips, a.power, a.lease)))
    except Malformed as e:
        print(f"no history: {e}", file=sys.stderr)
        return 2
    for b in bad:
        print(b)
    kinds = collections.Counter(o.op for o in h.ops)
    print(f"{h.records} lines, {len(h.ops)} operations "
          f"({', '.join(f'{n} {k}' for k, n in sorted(kinds.items()))}), "
          f"{sum(o.res == INF for o in h.ops)} of unknown outcome, {len(bad)} violations")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
