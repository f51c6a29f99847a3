#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""weft du: what is below each directory and what each user has, over the wire and over restarts,
beside what a walk finds. Prints TAP and the seed (WEFT_SEED repeats the choices).

The last test lets several clients work at random on their own trees, kills the server at any moment
and compares. WEFT_SOAK: many rounds.
"""
import os
import random
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../wirelib"))
from harness import *  # noqa: E402,F403
from jobs import api, ended  # noqa: E402
from steps import again, data_server, lay  # noqa: E402
from tool import fsck, weft, weft_json  # noqa: E402

SOAK = bool(os.environ.get("WEFT_SOAK"))
WORKERS, ROUNDS = 3, 40 if SOAK else 2
FIGURES = ("files", "directories", "logical_bytes", "stored_bytes")


def du(w, path, *args):
    got = weft_json(w, "du", *args, path)["paths"][0]
    check(got["reason"], None)
    return got


def figures(w, path):
    got = du(w, path, "-s")
    return tuple(got[k] for k in FIGURES)


def users(w):
    return {u["uid"]: tuple(u[k] for k in FIGURES)
            for u in weft_json(w, "du", "--users")["users"]}


def sized(c, d, name, size, **attrs):
    sid, fh = c.open(d, name, attrs={"mode": 0o644, **attrs})
    c.ok(putfh(fh), setattr_(sid, size=size))
    c.ok(putfh(fh), close(sid))
    return fh


def mv(c, a, old, b, new):
    c.ok(putfh(a), savefh(), putfh(b), rename(old, new))


def ln(c, f, d, name):
    c.ok(putfh(f), savefh(), putfh(d), link(name))


def walked(c, top):
    """What is below a directory, and by owner, as a client finds it. A file with several names
    counts once."""
    seen, by_user, todo = {}, {}, [top]
    while todo:
        for e in c.readdir_all(todo.pop(), ("fileid", "type", "size", "owner", "filehandle")):
            if e.attrs.fileid in seen:
                continue
            seen[e.attrs.fileid] = e.attrs
            if e.attrs.type == DIR:
                todo.append(e.attrs.filehandle)
    files = directories = size = 0
    for a in seen.values():
        files += a.type != DIR
        directories += a.type == DIR
        size += a.size if a.type == REG else 0
        u = by_user.setdefault(int(a.owner), [0, 0, 0])
        u[0] += a.type != DIR
        u[1] += a.type == DIR
        u[2] += a.size if a.type == REG else 0
    return (files, directories, size), {k: tuple(v) for k, v in by_user.items()}


def test_each_operation_is_in_the_sums_at_once(w):
    c = client()
    a = c.mkdir(c.root(), "one")
    b = c.mkdir(a, "b")
    deep = c.mkdir(c.mkdir(b, "c"), "d")
    check(figures(w, "/one"), (0, 3, 0, 0))
    sized(c, deep, "f", 1000)
    sized(c, a, "g", 500)
    check(figures(w, "/one"), (2, 3, 1500, 1500))
    check(figures(w, "/one/b"), (1, 2, 1000, 1000))
    check(figures(w, "/one/b/c/d/f"), (1, 0, 1000, 1000))
    c.ok(putfh(deep), lookup("f"), setattr_(size=10))
    check(figures(w, "/one"), (2, 3, 510, 510))
    c.ok(putfh(a), create(LNK, "s", b"target"))
    check(figures(w, "/one"), (3, 3, 510, 510))
    c.ok(putfh(deep), remove("f"))
    check(figures(w, "/one"), (2, 3, 500, 500))
    c.ok(putfh(b), lookup("c"), remove("d"))
    check(figures(w, "/one"), (2, 2, 500, 500))
    fsck(w)


def test_a_subtree_takes_its_sum_along(w):
    c = client()
    top = c.mkdir(c.root(), "two")
    x, y = c.mkdir(top, "x"), c.mkdir(top, "y")
    for i in range(3):
        sized(c, c.mkdir(x, f"d{i}"), "f", 100)
    mv(c, top, "x", y, "z")
    check(figures(w, "/two/y"), (3, 4, 300, 300))
    check(figures(w, "/two/y/z"), (3, 3, 300, 300))
    check(figures(w, "/two"), (3, 5, 300, 300))
    fsck(w)


def test_a_file_counts_at_its_first_name(w):
    c = client()
    top = c.mkdir(c.root(), "three")
    x, y, z = (c.mkdir(top, n) for n in "xyz")
    f = sized(c, x, "f", 100)
    ln(c, f, y, "f2")
    ln(c, f, y, "f3")
    check([figures(w, f"/three{p}")[0] for p in ("", "/x", "/y")], [1, 1, 0])
    c.ok(putfh(x), remove("f"))
    check([figures(w, f"/three{p}")[0] for p in ("", "/x", "/y")], [1, 0, 1])
    mv(c, y, "f2", z, "f2")
    check(figures(w, "/three")[0], 1)
    c.ok(putfh(y), remove("f3"))
    check([figures(w, f"/three{p}")[2] for p in ("", "/x", "/y", "/z")], [100, 0, 0, 100])
    c.ok(putfh(z), remove("f2"))
    check(figures(w, "/three"), (0, 3, 0, 0))
    fsck(w)


def test_copies_count_in_what_is_stored(w):
    c = client()
    top = c.mkdir(c.root(), "four")
    c.ok(putfh(top), setxattr("weft.policy", "mirrors=2"))
    sized(c, top, "f", 4096)
    check(figures(w, "/four"), (1, 0, 4096, 8192))
    fsck(w)


def test_users(w):
    c = client()
    top = c.mkdir(c.root(), "five")
    before = users(w)
    check(before.get(4711), None)
    f = sized(c, top, "f", 300)
    c.ok(putfh(f), setattr_(owner="4711"))
    for uid in range(4712, 4720):  # more than wait in one directory
        c.ok(putfh(sized(c, top, f"f{uid}", uid)), setattr_(owner=str(uid)))
    check(users(w)[4711], (1, 0, 300, 300))
    check([users(w)[uid][2] for uid in range(4712, 4720)], list(range(4712, 4720)))
    c.ok(putfh(f), setattr_(owner="0"))
    check(users(w).get(4711), None)
    check(users(w)[0][0], before[0][0] + 1)
    listed = weft(w, "du", "--users", "--rows", "1")
    check("more users" in listed, True, listed)
    fsck(w)


def in_trash(w, uid):
    u = {u["uid"]: u for u in weft_json(w, "du", "--users")["users"]}.get(uid)
    return u and (u["trash_files"], u["trash_stored_bytes"])


def test_the_trash_counts_for_the_owner_alone(w):
    c = client()
    top = c.mkdir(c.root(), "bin")
    c.ok(putfh(top), setxattr("weft.policy", "mirrors=2,trash=1h"))
    f = sized(c, c.mkdir(top, "d"), "f", 4096)
    c.ok(putfh(f), setattr_(owner="4800"))
    c.ok(putfh(top), lookup("d"), remove("f"))
    check(figures(w, "/bin"), (0, 1, 0, 0))
    check((users(w)[4800], in_trash(w, 4800)), ((0, 0, 0, 0), (1, 8192)))
    shown = next(line for line in weft(w, "du", "--users").splitlines() if "4800" in line)
    check(shown.split()[:6], ["0B", "0B", "0", "0", "8.0K", "4800"])
    fsck(w)
    c.ok(putfh(top), remove("d"))
    fsck(w)
    weft(w, "trash", "restore", "/bin/d/f")
    check(figures(w, "/bin"), (1, 1, 4096, 8192))
    check((users(w)[4800], in_trash(w, 4800)), ((1, 0, 4096, 8192), (0, 0)))
    c.ok(putfh(top), lookup("d"), remove("f"))
    weft(w, "trash", "empty", "/bin")
    eventually(lambda: in_trash(w, 4800) is None, 60, "the trash to be empty")
    check(figures(w, "/bin"), (0, 1, 0, 0))
    fsck(w)


def test_a_file_that_is_being_written_says_so_and_is_exact_after_it(w):
    c = client()
    top = c.mkdir(c.root(), "six")
    sid, f = c.open(top, "f")
    o = lay(c, f, sid)
    server = o.mirrors[0][0]
    with_ds = data_server(c, server)
    got = du(w, "/six", "-s")
    check((got["writing_files"], got["exact"]), (1, False))
    with_ds.write(server.fhs[0], 0, b"x" * 70000)
    c.ok(putfh(f), layoutreturn(o.stateid))
    eventually(lambda: du(w, "/six", "-s")["exact"], 60, "the mark to go")
    got = du(w, "/six", "-s")
    check((got["logical_bytes"], got["stored_bytes"] >= 70000), (70000, True))
    check("being written" in weft(w, "du", "/six"), False)
    fsck(w)


def test_the_table_and_its_refusals(w):
    c = client()
    top = c.mkdir(c.root(), "seven")
    for i, size in enumerate((10, 2 << 20, 5)):
        sized(c, c.mkdir(c.mkdir(top, f"d{i}"), "e"), "f", size)
    lines = weft(w, "du", "/seven").splitlines()
    check([line.split()[-1] for line in lines[1:]], ["/seven/d1", "/seven/d0", "/seven/d2",
                                                     "/seven"])
    check(lines[1].split()[:2], ["2.0M", "2.0M"])
    check(len(du(w, "/seven", "--depth", "2")["below"]), 6)
    cut = du(w, "/seven", "--depth", "2", "--rows", "2")
    check((len(cut["below"]), cut["cut"]), (2, True))
    refused = weft(w, "du", "/none", rc=1)
    check("/none" in refused and "o such" in refused, True, refused)
    weft(w, "du", "--depth", "17", "/seven", rc=1)
    weft(w, "du", "-s", "--depth", "1", rc=2)
    weft(w, "du", "--users", "/seven", rc=2)
    check(len(weft_json(w, "du", "/seven", "/seven/d1")["paths"]), 2)


class Worker:
    """A client at random in a tree of its own, until the server goes away."""

    def __init__(self, rnd, n):
        self.rnd, self.name = rnd, f"w{n}"
        self.c = client()
        self.top = self.c.mkdir(self.c.root(), self.name)
        self.c.ok(putfh(self.top), setxattr("weft.policy", "trash=1h"))
        self.stop, self.done, self.wrong = False, 0, None

    def entries(self, d):
        return self.c.readdir_all(d, ("type", "filehandle"))

    def some_dir(self):
        d = self.top
        while self.rnd.random() < 0.7:
            below = [e.attrs.filehandle for e in self.entries(d) if e.attrs.type == DIR]
            if not below:
                break
            d = self.rnd.choice(below)
        return d

    def step(self):
        rnd, c, d = self.rnd, self.c, self.some_dir()
        name = f"n{rnd.randrange(9)}"
        there = self.entries(d)
        what = rnd.randrange(8)
        if what < 2 or not there:
            c.call(putfh(d), create(DIR, name, mode=0o755))
            return
        if what < 4:
            r = c.call(putfh(d), open_(name, BOTH | NO_DELEG, how=UNCHECKED,
                                       attrs={"mode": 0o644, "size": rnd.randrange(9000)}), getfh())
            if not r.status:
                c.call(putfh(r.results[3].fh), close(r.results[2].stateid))
            return
        e = rnd.choice(there)
        if what == 4:
            c.call(putfh(d), remove(e.name))
        elif what == 5:
            c.call(putfh(e.attrs.filehandle), setattr_(owner=str(rnd.randrange(5))))
        elif what == 6:
            c.call(putfh(d), savefh(), putfh(self.some_dir()), rename(e.name, name))
        else:
            c.call(putfh(e.attrs.filehandle), savefh(), putfh(self.some_dir()), link(name))

    def run(self):
        try:
            while not self.stop:
                self.step()
                self.done += 1
        except Exception as e:  # the server was killed: any of its answers may be missing
            if not self.stop:
                self.wrong = e

    def compare(self, w):
        got, by_user = walked(self.c, self.top)
        check(figures(w, f"/{self.name}")[:3], got, self.name)
        return by_user


def test_the_sums_after_kills_are_what_a_walk_finds(w):
    seed = int(os.environ.get("WEFT_SEED", time.time_ns()))
    print(f"# WEFT_SEED={seed}", flush=True)
    rnd = random.Random(seed)
    workers = [Worker(random.Random(rnd.random()), n) for n in range(WORKERS)]
    before = {u: f[:3] for u, f in users(w).items()}
    for x in workers:
        before[0] = (before[0][0], before[0][1] - 1, before[0][2])
    for k in range(ROUNDS):
        threads = [threading.Thread(target=x.run) for x in workers]
        for t in threads:
            t.start()
        enough = sum(x.done for x in workers) + rnd.randrange(60, 200)
        eventually(lambda n=enough: sum(x.done for x in workers) >= n
                   or any(x.wrong for x in workers), 60, "some steps")
        check([x.wrong for x in workers], [None] * WORKERS)
        for x in workers:
            x.stop = True
        w.restart()
        for t in threads:
            t.join()
        for x in workers:
            x.stop = False
            again(x.c, True)
        fsck(w)
        # Where a name is taken, what had it stays in the trash.
        back = f"/v1/trash/restore?path=/{workers[k % WORKERS].name}&recursive=1"
        ended(w, api(w, "PUT", back)["job"])
        fsck(w)
        all_users = dict(before)
        for x in workers:
            for uid, f in x.compare(w).items():
                have = all_users.get(uid, (0, 0, 0))
                all_users[uid] = tuple(a + b for a, b in zip(have, f))
        for x in workers:
            have = all_users[0]
            all_users[0] = (have[0], have[1] + 1, have[2])
        # A user may have files only in the trash, which his figures do not count.
        used = lambda of: {u: f[:3] for u, f in of.items() if any(f[:3])}  # noqa: E731
        check(used(users(w)), used(all_users), f"round {k}")
    fsck(w)


if __name__ == "__main__":
    run_shared(globals(), settings=CALM)
