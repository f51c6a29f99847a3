#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""How much one transaction of a trash job does, whatever the tree looks like (docs/trash.md).
Prints TAP.

The metadata server kills itself after a job's first step (tests/fault/crash.c), and its next run
says how many entries are left. Clients come back only after that: nothing goes on in the grace
period.

In these trees what is deeper has lower inode numbers. So a job meets files first, and each of them
takes all directories of its path along.
"""
import contextlib
import http.client
import os
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from crash import ADDR, Client, Server, check, tap  # noqa: E402
from jobs import api, ended  # noqa: E402
from nfs41 import (DIR, LNK, create, getfh, lookup, putfh, putrootfh,  # noqa: E402
                   reclaim_complete, remove, rename, savefh)
from tool import weft  # noqa: E402

BATCH, UP = 64, 256  # mds/jobs/trash.c, mds/namespace/ns_trash.h
# A step chooses at least 8 entries.
TREES, DEEP = 12, 40
DEEPER = 20
MOST = BATCH - 1 + DEEP + 1
RESTORE = "PUT", "/v1/trash/restore?path=/&recursive=1"
EMPTY = "DELETE", "/v1/trash?path=/"


def client():
    return Client(ADDR, owner=b"trash %d" % os.getpid(), fore={"ops": 64})


def batched(c, each):
    n = 56 // len(each[0])
    for k in range(0, len(each), n):
        c.ok(*[o for ops in each[k:k + n] for o in ops])


def made(c, names, at):
    """Directories of these names; their handles."""
    got = []
    for n in range(0, len(names), 20):
        done = c.call(*[o for name in names[n:n + 20]
                        for o in (putfh(at), create(DIR, name, mode=0o755), getfh())])
        check(done.status, 0)
        got += [r.fh for r in done.results if hasattr(r, "fh")]
    return got


def grown(c, at, count, deep):
    """So many trees: below each top deep directories, each in the one before, the deepest with a
    link "f". Their handles, the deepest ones first."""
    levels = [made(c, [f"t{k}" for k in range(count)], at)]
    batched(c, [(putfh(d), create(LNK, "f", link=b"to")) for d in levels[0]])
    for n in range(1, deep):
        new = made(c, [f"new{k}" for k in range(count)], at)
        batched(c, [(putfh(at), savefh(), putfh(d), rename(f"t{k}", "x"), putfh(at), savefh(),
                     rename(f"new{k}", f"t{k}")) for k, d in enumerate(new)])
        levels.append(new)
    return levels


def cut(c, at, levels):
    """Removes them, from below."""
    batched(c, [(putfh(d), remove("f")) for d in levels[0]])
    for level in levels[1:]:
        batched(c, [(putfh(d), remove("x")) for d in level])
    batched(c, [(putfh(at), remove(f"t{k}")) for k in range(len(levels[0]))])


def in_trash(w):
    return api(w, "GET", "/v1/trash?limit=1")["total_entries"]


def planted(s, count, deep):
    """All of that in the trash; the client, and the directory, whose number is the highest."""
    c = client()
    root = c.root()
    levels = grown(c, root, count, deep)
    d = c.mkdir(root, "d")
    weft(s.w, "policy", "set", "/d", "trash=7d")
    batched(c, [(putfh(root), savefh(), putfh(d), rename(f"t{k}", f"t{k}"))
                for k in range(count)])
    cut(c, d, levels)
    check(in_trash(s.w), count * (deep + 1))
    return c, d


def taken(s, ask, steps):
    """How many entries are out of the trash after so many steps of a job."""
    there = in_trash(s.w)
    s.kill()
    check(s.start(at=f"trash:{steps}"), True, "the start")
    back()
    try:
        api(s.w, *ask)
    except (OSError, http.client.HTTPException):
        pass  # it is dead already
    check(s.wait_dead(60), True, "the death")
    check(s.start(), True, "the start")
    return there - in_trash(s.w)


def back():
    """Ends the grace period: the client is there, and has nothing to reclaim."""
    c = client()
    c.call(reclaim_complete())
    return c


def bounded(s, ask):
    c, d = planted(s, TREES, DEEP)
    c.drop()
    # A step ends with the entry that, with its path, is the BATCH-th or later.
    first = taken(s, ask, 1)
    check(BATCH <= first <= MOST, True, f"{first} entries in one transaction")
    back()
    jobs = api(s.w, "GET", "/v1/jobs")
    (job,) = [j["id"] for j in jobs["jobs"] + jobs["finished"]
              if j["kind"] in ("trash-restore", "trash-empty")]  # and not an expiry beside it
    got = ended(s.w, job)
    check((got["state"], in_trash(s.w)), ("done", 0), got)
    s.fsck()


def restore_is_bounded(s):
    bounded(s, RESTORE)
    c = back()
    d = c.ok(putrootfh(), lookup("d"), getfh()).fh
    for k in range(TREES):
        c.ok(putfh(d), lookup(f"t{k}"), *[lookup("x")] * (DEEP - 1), lookup("f"))


def empty_is_bounded(s):
    bounded(s, EMPTY)


def control(s):
    """What would be too much is found: two steps are more than one may do."""
    c, _ = planted(s, TREES, DEEP)
    c.drop()
    both = taken(s, RESTORE, 2)
    check(both > MOST, True, f"{both} entries in two transactions")


def what_is_too_deep_comes_with_the_next(s):
    c, d = planted(s, 1, UP + DEEPER)
    c.drop()
    c = back()
    got = ended(s.w, api(s.w, *RESTORE)["job"])
    # One restore takes at most UP entries out: the link and the deepest directories are refused.
    check((got["state"], "its path is too deep" in got["error"], in_trash(s.w)),
          ("failed", True, 1 + DEEPER), got)
    got = ended(s.w, api(s.w, *RESTORE)["job"])
    check((got["state"], in_trash(s.w)), ("done", 0), got)
    at = c.ok(putfh(d), lookup("t0"), getfh()).fh
    for _ in range(UP + DEEPER - 1):
        at = c.ok(putfh(at), lookup("x"), getfh()).fh
    c.ok(putfh(at), lookup("f"))


@contextlib.contextmanager
def around(_):
    s = Server("mds.sync=false")
    try:
        yield (s,)
    finally:
        s.down()


def main():
    if not tap.built("tests/fault/weft-mds"):
        tap.skip("the daemon is not built")
        return

    tap.run([("a restore of all does so much in one transaction", restore_is_bounded),
             ("and so does an emptying", empty_is_bounded),
             ("two transactions are more", control),
             ("what is too deep comes with the next one", what_is_too_deep_comes_with_the_next)],
            around)


if __name__ == "__main__":
    main()
