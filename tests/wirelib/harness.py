# SPDX-License-Identifier: Apache-2.0
"""A real cluster for tests over the wire, the clients of a test, and the running of tests on it.

A test file imports everything here, the client of nfs41.py included, and ends with main(),
run_shared() or run_apart().
"""
import contextlib
import glob
import json
import os
import re
import shutil
import signal
import sys
import tempfile
import time

sys.dont_write_bytecode = True
import tap  # noqa: E402
from tap import BUILD, SRC  # noqa: E402,F401
sys.path.insert(0, os.path.join(SRC, "tests/lab"))
import devtool  # noqa: E402
from nfs41 import *  # noqa: E402,F403
from nfs41 import err  # noqa: E402
import metric  # noqa: E402

ADDR = ("127.0.0.1", 12049)
SETTINGS = ["mds.lease=2s", "mds.grace=2s", "mds.recall_deadline=1s", "ds.lease=3s",
            "ds.heartbeat=300ms",
            # What these tests find stale stays stale; repair_test.py tests repairs.
            "mds.repair_files=0",
            # The metadata server asks again when a client reports that it cannot reach a server;
            # cutoff_test.py tests the rest.
            "mds.ds_unreached=0s"]
USER, OTHER = auth_sys(1000, 1000), auth_sys(2000, 2000)


def complaints(top):
    """Lines that no daemon may write to its log. They fail the test that runs then, whatever
    else it found. Memory that a daemon does not free at exit does not count: the end of the
    process frees it."""
    found = []
    for name in sorted(glob.glob(os.path.join(top, "log", "*.log"))):
        with open(name, encoding="utf-8", errors="replace") as f:
            found += [line.strip()[:300] for line in f
                      if re.search(r"Sanitizer|runtime error|FATAL|[Aa]ssert|"
                                   r"read handles open", line)
                      and not re.search(r"LeakSanitizer|leaked in \d+ alloc", line)]
    return found[:20]


class Cluster:
    def __init__(self, ds=4, settings=()):
        self.top = tempfile.mkdtemp(prefix="weft-mds-test.")
        self.dir = os.path.join(self.top, "c")
        try:
            self.dev("up", self.dir, "--ds", str(ds),
                     *[a for s in [*SETTINGS, *settings] for a in ("--set", s)])
        except BaseException:
            self.down()
            raise
        self.where = {r["name"]: r["metrics"]
                      for r in json.loads(self.dev("status", self.dir, "--json"))["daemons"]}

    @staticmethod
    def dev(*args):
        return devtool.command(*args)

    def restart(self, name="mds"):
        self.dev("kill", self.dir, name, "-9")
        self.dev("start", self.dir, name)

    def metric(self, name, daemon="mds"):
        m = re.search(rf"^{name} (\S+)", metric.fetch(self.where[daemon]), re.M)
        return float(m[1])

    def down(self):
        if os.path.exists(os.path.join(self.dir, "cluster.json")):
            self.dev("down", self.dir)
        bad = complaints(self.dir)
        shutil.rmtree(self.top)
        if bad:
            raise Failed("a daemon complains: " + "; ".join(bad))


CLIENTS = []
THE = MADE = None  # the cluster, and its settings where tests share it
COMMON = ()  # more settings of the shared cluster
RESTARTED = ()  # and of the clusters of restart_ tests
# For tests that are not about leases: a loaded machine may take longer over one request than a
# lease of SETTINGS lasts.
CALM = ["mds.lease=20s"]
BRIEF = set()


def client(**how):
    """Closed at the end of the test. There, breaches of the callback rules count."""
    c = Client(ADDR, **how)
    CLIENTS.append(c)
    return c


def brief(test):
    """Marks a test in which a lease has to end: it runs on a cluster with SETTINGS alone, whatever
    its neighbours have."""
    BRIEF.add(test.__name__.removeprefix("test_"))
    return test


def rejected(conn, *args, **how):
    try:
        conn.rpc(*args, **how)
    except Rejected as e:
        return e.why
    raise Failed("the call was accepted")


def first(c, want, *ops, minor=2, cred=None):
    """A COMPOUND without SEQUENCE must end with this status. Returns its last result."""
    got = (c.conn if isinstance(c, Client) else c).compound(*ops, minor=minor, cred=cred)
    check(err(got.status), want)
    return got.results[-1] if got.results else None


def check(got, want, what=""):
    if got != want:
        raise Failed(f"{what}{': ' if what else ''}{got!r}, want {want!r}")


def eventually(done, seconds=30, what="it"):
    """A deadline below 5 s is what the test is about. Any other deadline is for what does not
    happen. Everything takes longer under load, so that deadline is at least 60 s."""
    if seconds >= 5:
        seconds = max(seconds, 60)
    end = time.monotonic() + seconds
    while not done():
        if time.monotonic() > end:
            raise Failed(f"{what} did not happen in {seconds} s")
        time.sleep(0.05)


def stand_still(pid):
    """Sends SIGSTOP and returns when no thread of the process runs any more. A thread goes on until
    it has its turn on a processor."""
    os.kill(pid, signal.SIGSTOP)

    def state(thread):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError), open(
                f"/proc/{pid}/task/{thread}/stat", encoding="utf-8", errors="replace") as f:
            return f.read().rpartition(")")[2].split()[0]
        return "X"
    eventually(lambda: all(state(t) in "TtZX" for t in os.listdir(f"/proc/{pid}/task")), 30,
               f"process {pid} to stand still")


# ---- running tests


@contextlib.contextmanager
def own_cluster(w):
    """For a test that has a cluster of its own: the cluster ends with the test, and so do
    the clients."""
    try:
        with clients():
            yield (w,)
    finally:
        w.down()


@contextlib.contextmanager
def clients(closing=False):
    """The clients of a test end with it. With closing, breaches of the callback rules count where
    the test went well."""
    try:
        yield
        if closing:
            for one in CLIENTS:
                one.close()
    finally:
        for one in CLIENTS:
            one.drop()
        CLIENTS.clear()


def shared(ds, settings, name):
    """The cluster that tests share: the first of them makes it."""
    global THE, MADE
    settings = () if name in BRIEF else settings
    if THE and MADE != settings:
        down()
    if not THE:
        THE, MADE = Cluster(ds, settings), settings
    return THE


def down():
    global THE
    was, THE = THE, None
    if was:
        was.down()


def in_parts(tests, parts, alone="restart"):
    """For tap.run: tests whose names begin so run alone, and the others share this
    many processes."""
    names = [n for n, _ in tests if not n.startswith(alone) and n not in BRIEF]
    of = {n: i * parts // len(names) for i, n in enumerate(names)} | {n: "brief" for n in BRIEF}
    return lambda name: of.get(name, name)


def run_shared(names, given=lambda w, name: (w,), closing=False, ds=4, parts=1, settings=()):
    """Runs these tests on one cluster, or this many parts of them beside one another.
    given(cluster, name) yields what a test gets."""
    @contextlib.contextmanager
    def around(name):
        with clients(closing):
            yield given(shared(ds, settings, name), name)
    tests = tap.named(names)
    try:
        tap.run(tests, around, parts + bool(BRIEF), in_parts(tests, parts), down)
    finally:
        down()


def run_apart(names, ds=4, settings=(), beside=3):
    """Runs each of these tests with a cluster of its own. ds, the number of its data servers, and
    settings may be functions of the name."""
    @contextlib.contextmanager
    def around(name):
        global THE
        w = THE = Cluster(ds(name) if callable(ds) else ds,
                          settings(name) if callable(settings) else settings)
        try:
            with clients():
                yield (w,)
        finally:
            THE = None
            w.down()
    tap.run(tap.named(names), around, beside)


@contextlib.contextmanager
def around(name):
    """A test gets a client and a directory of its own on the shared cluster. A restart_ test gets a
    cluster of its own."""
    if name.startswith("restart"):
        down()
        with clients():
            own = Cluster(settings=() if name in BRIEF else RESTARTED)
            try:
                yield (own,)
            finally:
                own.down()
        return
    shared(4, COMMON, name)
    with clients(closing=True):
        c = client()
        yield c, c.mkdir(c.root(), name)


def main(names, parts=1, settings=(), restarted=()):
    """Runs these tests. The settings are those of the cluster that they share, restarted are those
    of the clusters of restart_ tests."""
    global COMMON, RESTARTED
    COMMON, RESTARTED = settings, restarted
    tests = tap.named(names, "test_", "restart_")
    try:
        tap.run(tests, around, parts + 2, in_parts(tests, parts), down)
    finally:
        down()
