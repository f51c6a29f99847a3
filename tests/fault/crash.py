#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""kill -9 of the metadata server under load, at random and at named points (base/crash.h,
tests/fault/crash.c). Prints TAP.

Clients change directories of their own on many slots, and each knows what must be there: it draws
only operations that can succeed. A client sends again what was on the wire at a kill, the same
bytes on the same session. Either it gets the answer that it would have got, or BADSESSION. Then it
sends the operation in a new session, where it must succeed for the first time. After every kill
weft-fsck checks the store, and the clients look up everything that was acknowledged.

CRASH_ROUNDS: kills at each point (1; make soak: 20); WEFT_SEED.
"""
import contextlib
import os
import random
import signal
import sys
import threading
import time
import traceback

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))),
                                "wirelib"))
import harness as base  # noqa: E402
import tap  # noqa: E402
from harness import ADDR, Cluster, check  # noqa: E402
from nfs41 import (BOTH, CURRENT, DIR, FIFO, GUARDED, LNK, NO_DELEG,  # noqa: E402
                   Client, Closed, Failed, close, compound_args, create, err, getfh,
                   getxattr, link, listxattrs, open_, putfh, read_compound, readdir,
                   reclaim_complete, remove, removexattr, rename,
                   savefh, sequence, setattr_, setxattr)
import json  # noqa: E402
import subprocess  # noqa: E402

# lanes: slots of a client, each with a directory; most entries in it
CLIENTS, LANES, MOST = 3, 6, 12
# Where, and at which passes of it: some come seldom, others with every operation.
POINTS = {
    "kv-run": (1, 300), "kv-commit": (1, 60), "log": (1, 60), "halflog": (1, 60),
    "kv-logged": (1, 60), "write": (1, 200), "half": (1, 200), "kv-committed": (1, 60),
    "kv-answer": (1, 60),
    "sync": (1, 2), "synced": (1, 2), "kv-pinned": (1, 3), "kv-synced": (1, 3),
    "kv-checkpoint": (1, 3), "kv-restore": (1, 2), "kv-redo": (1, 1), "kv-redone": (1, 1),
    "kv-done": (1, 300), "reply": (1, 300), "replied": (1, 300), "once-again": (1, 1),
    "once-sweep": (1, 1), "grace-over": (1, 1), "orders-send": (1, 10),
    "orders-done": (1, 10), "orders-delete": (1, 3), "boot": (1, 1),
}
ROUNDS = int(os.environ.get("CRASH_ROUNDS") or (20 if os.environ.get("WEFT_SOAK") else 1))
SEED = int(os.environ.get("WEFT_SEED") or random.SystemRandom().randrange(2**32))
THE = None  # the Test
FAILED = False


class Thing:
    """An inode, as the client set it."""

    def __init__(self, kind, mode, fh=None):
        self.kind, self.mode, self.fh, self.xattrs, self.links = kind, mode, fh, {}, 1


class Lane:
    def __init__(self, fh, seed):
        self.fh, self.rng, self.names, self.made = fh, random.Random(seed), {}, 0
        self.seq, self.pending = 0, None  # pending: (bytes as sent, operation), not answered

    def draw(self):
        """(operations, index of the one that counts, what it makes of the model given
        its results)"""
        r, names = self.rng, self.names
        files = [n for n, t in names.items() if t.kind != DIR]
        new = f"n{self.made}"
        self.made += 1
        what = r.choice(["open", "mkdir", "symlink", "fifo", "link", "rename", "over", "unlink",
                         "rmdir", "setattr", "setxattr", "removexattr"])
        if not names or (len(names) < 4 and r.random() < 0.7):
            what = "open"
        if len(names) >= MOST:
            what = "remove"
        one = r.choice(sorted(names)) if names else None
        mode = r.randrange(0o1000)
        here = putfh(self.fh)
        if what in ("link", "unlink", "over") and not files:
            what = "open"
        if what == "open":
            return self.makes(new, Thing(1, mode),
                              (here, open_(new, BOTH | NO_DELEG, how=GUARDED, attrs={"mode": mode}),
                               getfh(), close(CURRENT)))
        if what == "mkdir":
            return self.makes(new, Thing(DIR, mode), (here, create(DIR, new, mode=mode), getfh()))
        if what == "symlink":
            return self.makes(new, Thing(LNK, None),
                              (here, create(LNK, new, link=b"to " + new.encode()), getfh()))
        if what == "fifo":
            return self.makes(new, Thing(FIFO, mode), (here, create(FIFO, new, mode=mode), getfh()))
        if what == "link":
            one = r.choice(sorted(files))

            def linked(_):
                names[new] = names[one]
                names[one].links += 1
            return (putfh(names[one].fh), savefh(), here, link(new)), 4, linked
        if what in ("rename", "over"):
            others = sorted(n for n in files if names[n] is not names[one]
                            and names[one].kind != DIR)
            to = r.choice(others) if what == "over" and others else new

            def renamed(_):
                if to in names:
                    names[to].links -= 1
                names[to] = names.pop(one)
            return (here, savefh(), rename(one, to)), 3, renamed
        if what in ("unlink", "rmdir", "remove"):
            some = sorted(n for n, t in names.items() if what == "remove"
                          or (t.kind == DIR) == (what == "rmdir"))
            one = r.choice(some or sorted(names))

            def removed(_):
                names.pop(one).links -= 1
            return (here, remove(one)), 2, removed
        thing = names[one]
        if what == "setattr" and thing.mode is not None:
            return (putfh(thing.fh), setattr_(mode=mode)), 2, lambda _: setattr(thing, "mode", mode)
        if thing.kind not in (1, DIR):
            return self.draw()
        if what == "removexattr" and thing.xattrs:
            name = r.choice(sorted(thing.xattrs))
            return (putfh(thing.fh), removexattr(name)), 2, lambda _: thing.xattrs.pop(name)
        name, value = f"x{r.randrange(3)}", b"%d" % r.randrange(10**6)
        return (putfh(thing.fh),
                setxattr(name, value,
                         2 if name in thing.xattrs else 1)), 2, lambda _: thing.xattrs.update(
                             {name: value})

    def makes(self, name, thing, ops):
        def made(results):
            thing.fh = results[3].fh
            self.names[name] = thing
        return ops, 2, made


class Worker(threading.Thread):
    def __init__(self, number, log):
        super().__init__(daemon=True)
        self.number, self.log, self.fault = number, log, None
        self.acked = self.again = self.undone = self.looked = self.recovered = 0
        self.ending = threading.Event()
        self.c = Client(ADDR, owner=b"crash test %d.%d" % (os.getpid(), number), fore={"reqs": 16})
        top = self.c.mkdir(self.c.root(), f"client{number}")
        self.lanes = [Lane(self.c.mkdir(top, f"lane{i}"), f"{SEED}.{number}.{i}")
                      for i in range(LANES)]
        self.take_slots()

    def take_slots(self):
        for i, lane in enumerate(self.lanes):
            self.c.free.remove(i + 1)
            lane.seq = 0

    def run(self):
        try:
            while not self.ending.is_set():
                try:
                    self.load()
                except (Closed, OSError):
                    self.recover()
        except Exception as e:
            self.fault = f"client {self.number}: {type(e).__name__}: {e}"
            if os.environ.get("WEFT_TRACE"):
                traceback.print_exc()

    def load(self):
        """One operation on each lane, all on the wire together."""
        started = [(lane, self.ask(lane, i + 1)) for i, lane in enumerate(self.lanes)]
        closed = None
        for lane, xid in started:
            try:
                self.answered(lane, self.c.conn.finish(xid))
            except Closed as e:  # others' answers may have come
                closed = e
        if closed:
            raise closed

    def ask(self, lane, slot):
        ops, at, then = lane.pending[1] if lane.pending else lane.draw()
        lane.seq += 1
        args = compound_args((sequence(self.c.session.sessionid, lane.seq, slot, LANES, True),
                              *ops))
        lane.pending = args, (ops, at, then)
        return self.c.conn.start(1, args, self.c.cred)

    def answered(self, lane, reply):
        """The operation is done, or is not and stays to be done."""
        ops, at, then = lane.pending[1]
        got = read_compound(reply)
        if len(got.results) > at and got.results[at].status == 0:
            then(got.results)
            lane.pending = None
            self.acked += 1
            self.log.write(f"{self.number} {got.results[at].op}\n")
            return True
        status = err(got.status)
        if status not in ("DELAY", "GRACE", "BADSESSION"):
            raise Failed(f"{got.results[-1].op} of {[o.num for o in ops]}: {status}; it can only "
                         "succeed once")
        if status == "BADSESSION" or len(got.results) < 2:
            return False
        time.sleep(0.01)
        return False

    def connect(self):
        while True:
            try:
                self.c.drop()
                self.c.conns = [self.c.connection()]
                return
            except OSError:
                time.sleep(0.01)

    def recover(self):
        """Sends again whatever was on the wire, as it was. Then makes a new session, and looks
        at everything."""
        while True:
            try:
                self.connect()
                for lane in self.lanes:
                    if lane.pending and lane.pending[0]:
                        if self.answered(lane, self.c.conn.rpc(1, lane.pending[0], self.c.cred)):
                            self.again += 1
                        else:
                            # not done, and no session has it now
                            lane.pending = None, lane.pending[1]
                            self.undone += 1
                self.c.exchange_id()
                self.c.create_session(fore={"reqs": 16})
                self.take_slots()
                self.c.call(reclaim_complete())
                self.look()
                self.recovered += 1
                return
            except (Closed, OSError):
                pass

    def look(self):
        for i, lane in enumerate(self.lanes):
            got = {e.name.decode(): e.attrs
                   for e in self.c.ok(putfh(lane.fh),
                                      readdir(attrs=["type", "mode", "numlinks",
                                                     "filehandle"])).entries}
            check(sorted(got), sorted(lane.names), f"names of client {self.number}, lane {i}")
            for name, t in lane.names.items():
                a = got[name]
                check((a.type, a.filehandle), (t.kind, t.fh), name)
                check(a.mode, a.mode if t.mode is None else t.mode, name)
                check(a.numlinks, 2 if t.kind == DIR else t.links, name)
                for x, value in t.xattrs.items():
                    check(self.c.ok(putfh(t.fh), getxattr(x)).value, value, f"{name}: {x}")
                if t.xattrs:
                    check(sorted(self.c.ok(putfh(t.fh), listxattrs()).names),
                          sorted(n.encode() for n in t.xattrs))
                self.looked += 1


class Server:
    def __init__(self, *settings):
        self.bin = base.tempfile.mkdtemp(prefix="weft-crash-bin.")
        os.symlink(os.path.join(base.BUILD, "tests/fault/weft-mds"),
                   os.path.join(self.bin, "weft-mds"))
        os.symlink(os.path.join(base.BUILD, "weft-ds"), os.path.join(self.bin, "weft-ds"))
        os.environ["WEFT_BUILD"] = self.bin
        self.w = Cluster(ds=2, settings=["mds.threads=2", "mds.lease=10s", "mds.grace=10s",
                                         *settings])

    def installed(self):
        """The next start is of weft-mds itself."""
        os.unlink(os.path.join(self.bin, "weft-mds"))
        os.symlink(os.path.join(base.BUILD, "weft-mds"), os.path.join(self.bin, "weft-mds"))

    def pid(self):
        with open(os.path.join(self.w.dir, "run/mds.pid"), encoding="ascii") as f:
            return int(f.read())

    def alive(self):
        try:
            with open(f"/proc/{self.pid()}/stat", encoding="utf-8") as f:
                return f.read().rpartition(")")[2].split()[0] not in "ZX"
        except OSError:
            return False

    def start(self, at=None):
        """False: it killed itself before it served."""
        env = {**os.environ, "WEFT_CRASH_AT": at} if at else os.environ
        done = subprocess.run([os.path.join(base.BUILD, "tools/weft-dev"), "start", self.w.dir,
                               "mds"], capture_output=True, text=True, env=env, timeout=60,
                              check=False)
        if done.returncode and (not at or self.alive()):
            raise Failed(f"the server does not start: {done.stderr}")
        return done.returncode == 0

    def wait_dead(self, seconds):
        end = time.monotonic() + seconds
        while self.alive():
            if time.monotonic() > end:
                return False
            time.sleep(0.005)
        return True

    def kill(self):
        os.kill(self.pid(), signal.SIGKILL)
        check(self.wait_dead(5), True, "death by SIGKILL")

    def fsck(self):
        """Checks a copy, because the server still has to replay the store's log."""
        copy = os.path.join(self.bin, "store")
        subprocess.run(["cp", "-RL", "--sparse=always", os.path.join(self.w.dir, "mds"), copy],
                       check=True)
        done = subprocess.run([os.path.join(base.BUILD, "weft-fsck"), "--json", copy],
                              capture_output=True, text=True, check=False)
        base.shutil.rmtree(copy)
        check(done.returncode, 0, done.stdout + done.stderr)
        return json.loads(done.stdout)

    def down(self):
        self.w.down()
        base.shutil.rmtree(self.bin)


class Test:
    def __init__(self, rng, server):
        self.rng, self.s, self.kills, self.checked = rng, server, 0, 0
        self.log = open(os.path.join(self.s.w.top, "acknowledged"), "w", buffering=1,
                        encoding="ascii")
        self.workers = [Worker(n, self.log) for n in range(CLIENTS)]
        for worker in self.workers:
            worker.start()

    def faults(self):
        for w in self.workers:
            if w.fault:
                raise Failed(w.fault)

    def settled(self, rounds, seconds=20):
        """All clients have recovered more often than these counts, and go on."""
        end = time.monotonic() + seconds
        while True:
            self.faults()
            if all(w.recovered > n for w, n in zip(self.workers, rounds)):
                return
            if not self.s.alive():
                return
            if time.monotonic() > end:
                raise Failed(f"clients do not recover in {seconds} s")
            time.sleep(0.01)

    def counts(self):
        return [w.recovered for w in self.workers]

    def died(self):
        self.kills += 1
        self.s.fsck()
        self.checked += 1

    def at_random(self):
        before = self.counts()
        time.sleep(self.rng.uniform(0, 0.4))
        self.s.kill()
        self.died()
        self.s.start()
        self.settled(before)

    def at(self, point):
        self.s.kill()
        self.died()
        before = self.counts()
        if point == "once-again":  # an operation that is committed and not answered
            self.dies_at("kv-committed", 20)
        self.dies_at(point, self.rng.randint(*POINTS[point]))
        self.s.start()
        self.settled(before)

    def dies_at(self, point, count):
        """Kills a start after a kill, so that there is something to recover."""
        if self.s.start(f"{point}:{count}") and not self.s.wait_dead(30):
            raise Failed(f"it never came to {point}, {count} times")
        self.died()
        self.faults()

    def end(self):
        before = self.counts()
        self.s.kill()
        self.died()
        self.s.installed()  # which knows no such points
        check(self.s.start("boot:1"), True, "weft-mds starts where its twin kills itself")
        self.settled(before)
        for w in self.workers:
            w.ending.set()
        for w in self.workers:
            w.join(20)
            check(w.is_alive(), False, "a client that does not end")
        self.faults()
        for w in self.workers:
            w.look()
            w.c.drop()
        lines = sum(1 for _ in open(self.log.name, encoding="ascii"))
        total = {k: sum(getattr(w, k) for w in self.workers)
                 for k in ("acked", "again", "undone", "looked")}
        check(lines, total["acked"], "lines in the log of what was acknowledged")
        check(total["acked"] > 100 and total["again"] > 0 and total["undone"] > 0, True,
              f"{total}: too little happened")
        base.Cluster.dev("kill", self.s.w.dir, "mds")
        self.s.fsck()
        print(f"# {self.kills} kills, {self.checked + 1} clean checks of the store; "
              f"{total['acked']} operations acknowledged, {total['looked']} entries found as "
              "they were "
              f"told; {total['again']} answered again after a kill, {total['undone']} not done by "
              "then and done once after it", flush=True)


@contextlib.contextmanager
def around(name):
    """One test for all. After a failure nothing is known of what must be there."""
    global FAILED
    if FAILED:
        raise Failed("not run, after a failure")
    FAILED = True
    yield (THE,)
    FAILED = False


def main():
    global THE
    if not tap.built("tests/fault/weft-mds"):
        tap.skip("the daemon is not built")
        return
    rng = random.Random(SEED)
    tests = [(f"killed at random {n + 1}", lambda t: t.at_random()) for n in range(3 * ROUNDS)]
    tests += [(f"killed at {p} {n + 1}", lambda t, p=p: t.at(p)) for p in POINTS
              for n in range(ROUNDS)]
    rng.shuffle(tests)
    tests.append(("everything acknowledged is there, once", lambda t: t.end()))
    tap.say(f"seed {SEED}")
    THE = Test(rng, Server())
    try:
        tap.run(tests, around)
    finally:
        THE.s.down()


if __name__ == "__main__":
    main()
