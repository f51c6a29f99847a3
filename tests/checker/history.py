# SPDX-License-Identifier: Apache-2.0
"""history.py - the format of a history: what the clients of a file system asked, when they asked,
and which answers they got. This is its manual.

A history is one or more files of lines, each line a JSON object. Order does not matter; times do.
There are three kinds of lines.

Process p begins its operation n:

    {"e": "call", "p": "g1/0", "n": 7, "t": 12.5, "op": "write", ...}

It ends the operation. With "err" (an errno's name) the operation failed:

    {"e": "done", "p": "g1/0", "n": 7, "t": 12.6, ...}

Something happened that the judge has to know:

    {"e": "mark", "t": 13.0, "what": "lost", "who": "ds1"}

p is CLIENT/NUMBER. A client is one cache (a mounted kernel, a library). A number is one thread of
it, which does one thing at a time. A call without a done has an unknown outcome: it happened, or
did not, or happens yet. So has a call that failed with an error that says nothing (EIO, ETIMEDOUT,
EINTR, ESTALE, ...): only the errors below, where an operation says so, are answers. Times are
seconds of one clock, or of each client's own with a mark "clock".

A history names files and folders by identity (f, dir: a string, never used again), not by name. It
names bytes by the tag of the write that they come from: a positive number that no other write of
the history has. 0 is no byte (a hole, or past the end). -1 is bytes that no recorded write can have
made.

    op        what the call has     what the done has, and the errors that are answers
    create    dir name              f: always exclusive; mkdir is the same. EEXIST
    lookup    dir name              f. ENOENT
    link      f dir name            EEXIST
    unlink    dir name              rmdir is the same. ENOENT
    rename    f dir name            f is what the caller knows to be there. ENOENT
              todir toname
    readdir   dir                   names: [[name, f], ...], all of them
    open      f                     from here on the process' cached reads are not older than this
    close     f                     what the client wrote is visible from now on
    fsync     f                     and from now on it is durable as well
    write     f off len tag sync    len: how many bytes (all, if absent). sync: visible and durable
                                    when it is done
    zero      f off len             these are no bytes any more (a hole); always sync
    truncate  f size                always sync
    read      f off len direct      runs: [[length, tag], ...] from off on; less than len is the end
                                    of the file. direct: past the client's cache
    stat      f                     size
    lock      f off len kind        kind: "r" or "w"; len 0: to the end. EAGAIN
    unlock    f off len

    mark      what it has           what it means
    clock     who offset error      client who: add offset to its times; they are right to within
                                    error
    crash     who                   client who lost its cache, its locks and what it had not made
                                    durable
    lost      who, until (a time)   a data server did not answer (killed, stopped, cut off); see
                                    Options.flips in check.py
    away      who, until            client who could not reach the metadata server: its lease may
                                    have run out
    grace     until                 a metadata server was down, or gave no new locks
    restore   since, before         from t on the metadata is as it was at some moment between these
                                    two times (a backup); nothing was under way at t
"""
import json

INF = float("inf")
NOTHING, ALIEN = 0, -1
ANSWERS = {"create": "EEXIST", "mkdir": "EEXIST", "link": "EEXIST", "lookup": "ENOENT",
           "unlink": "ENOENT", "rmdir": "ENOENT", "rename": "ENOENT", "lock": "EAGAIN"}
NEEDS = {"create": "dir name", "mkdir": "dir name", "lookup": "dir name", "link": "f dir name",
         "unlink": "dir name", "rmdir": "dir name",
         "rename": "f dir name todir toname", "readdir": "dir", "open": "f", "close": "f",
         "fsync": "f", "write": "f off len tag sync", "zero": "f off len",
         "truncate": "f size", "read": "f off len", "stat": "f", "lock": "f off len kind",
         "unlock": "f off len"}
NEEDS = {op: tuple(keys.split()) for op, keys in NEEDS.items()}
GIVES = {"create": "f", "mkdir": "f", "lookup": "f", "readdir": "names", "read": "runs",
         "stat": "size"}
MARKS = {"clock": ("who", "offset", "error"), "crash": ("who",), "lost": ("who",), "away": ("who",),
         "grace": (), "restore": ("since", "before")}


class Malformed(Exception):
    """This is no history: the recorder, not the file system, is wrong."""


class Op:
    """One operation. inv and res are widened by the error of the client's clock. res is INF where
    the outcome is unknown; until is when the call returned all the same. err: an answer that is
    an error. again: the operation may have taken effect more than once between inv and res
    (check.py says when). slack is what the interval grew by: times of one client among themselves
    are right without it."""
    __slots__ = ("p", "client", "n", "op", "inv", "res", "a", "got", "err", "until", "slack",
                 "again")

    def __init__(self, p, n, call):
        self.p, self.n, self.a, self.op = p, n, call, call["op"]
        self.client = p.partition("/")[0]
        self.inv, self.res, self.got, self.err, self.until = call["t"], INF, None, None, INF
        self.slack, self.again = 0, False

    def __str__(self):
        what = " ".join(f"{k}={v}" for k, v in self.a.items()
                        if k not in ("e", "p", "n", "t", "op"))
        end = "no answer" if self.res == INF else f"{self.res:.6f}"
        return (f"{self.p}#{self.n} {self.op}({what}) {self.inv:.6f}..{end}"
                + (f" {self.err}" if self.err else ""))


class History:
    """ops, by the time they began; marks, by time; records: how many lines there were."""

    def __init__(self, lines):
        pending, self.ops, self.marks, self.records = {}, [], [], 0
        for number, line in enumerate(lines, 1):
            self.records += 1
            try:
                self.take(json.loads(line) if isinstance(line, (str, bytes)) else line, pending)
            except (KeyError, TypeError, ValueError, AttributeError) as e:
                raise Malformed(f"line {number}: {type(e).__name__} {e}: {line!r}") from e
        self.marks.sort(key=lambda m: m["t"])
        self.set_clocks()
        self.ops.sort(key=lambda o: o.inv)
        self.one_at_a_time()

    def take(self, r, pending):
        kind = r["e"]
        if kind == "call":
            key = r["p"], r["n"]
            if key in pending:
                raise ValueError("a second call of this number")
            op = pending[key] = Op(r["p"], r["n"], r)
            for need in NEEDS[op.op]:
                r[need]
            self.ops.append(op)
        elif kind == "done":
            op = pending[r["p"], r["n"]]
            if op.got is not None:
                raise ValueError("a second end of this operation")
            if r["t"] < op.inv:
                raise ValueError("it ended before it began")
            op.got = r
            err = r.get("err")
            if err is None:
                if op.op in GIVES:
                    r[GIVES[op.op]]
                op.res = r["t"]
            elif err == ANSWERS.get(op.op):
                op.err, op.res = err, r["t"]
            op.until = r["t"]
        elif kind == "mark":
            for need in MARKS[r["what"]]:
                r[need]
            r["t"] + 0
            self.marks.append(r)
        else:
            raise ValueError("neither call, done nor mark")

    def set_clocks(self):
        """Each client's time becomes the one clock's; an interval grows by what may be wrong with
        it."""
        clocks = {m["who"]: (m["offset"], m["error"]) for m in self.marks if m["what"] == "clock"}
        for op in self.ops if clocks else ():
            offset, error = clocks.get(op.client, (0, 0))
            op.inv += offset - error
            op.res += offset + error
            op.until += offset + error
            op.slack = error

    def one_at_a_time(self):
        last = {}
        for op in self.ops:
            was = last.get(op.p)
            if was is not None and was.got is None:
                raise Malformed(f"{op} began while {was} had no end")
            last[op.p] = op

    def marked(self, what):
        return [m for m in self.marks if m["what"] == what]
