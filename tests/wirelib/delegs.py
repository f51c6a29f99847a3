# SPDX-License-Identifier: Apache-2.0
"""What the tests of delegations do with clients: they ask for delegations, return what the server
recalls, and wait for what a recall holds up."""
import contextlib
import threading
import time

import harness
from harness import *  # noqa: F403
from load import Watch, mds_pid
from nfs41 import err, op
from steps import answered

DELAY, BADHANDLE, BAD_STATEID = 10008, 10001, 10025
(NOT_WANTED, CONTENTION, RESOURCE, NOT_SUPP_FTYPE, WRITE_NOT_SUPP_FTYPE, NOT_UPGRADE, NOT_DOWNGRADE,
 CANCELLED, IS_DIR) = range(9)
NO_OPEN_STATEID = 0x10
CB_PATH_DOWN, REVOKED = 1, 0x40
READ_TYPES, WRITE_TYPES = (D_READ, D_READ_TIMES), (D_WRITE, D_WRITE_TIMES)
LEASE = 2
WATCHED = "change", "size", "time_modify", "time_metadata"


class Later:
    """Something under way in a thread of its own."""

    def __init__(self, do):
        self.value = self.fault = None
        self.thread = threading.Thread(target=self._run, args=(do,), daemon=True)
        self.thread.start()

    def _run(self, do):
        try:
            self.value = do()
        except Exception as e:  # for result()
            self.fault = e

    def done(self):
        return not self.thread.is_alive()

    def result(self, timeout=60):
        self.thread.join(timeout)
        if not self.done():
            raise TimeoutError(f"still under way after {timeout} s")
        if self.fault:
            raise self.fault
        return self.value


def past_delay(c, *ops, **how):
    """The compound, sent again while the server says DELAY."""
    return c.until(lambda got: err(got.status) != "DELAY", *ops,
                   **{"tries": 400, "pause": 0.02, **how})


@contextlib.contextmanager
def living(clients):
    """Renews the leases of these clients. Yields a list of how many seconds late each round was.
    That delay comes from the machine and not from a holder."""
    late, over = [], threading.Event()

    def renew():
        before = time.monotonic()
        while not over.wait(0.2):
            for c in clients:
                c.ok()
            now = time.monotonic()
            late.append(max(0, now - before - 0.3))
            before = now

    it = Later(renew)
    try:
        yield late
    finally:
        over.set()
        it.result()


def later(c, *ops):
    return Later(lambda: past_delay(c, *ops))


def quick(c, *ops, want="OK"):
    """The server does it at once, and does not wait for a holder."""
    watch = Watch(*([mds_pid(harness.THE)] if harness.THE else []))
    got = past_delay(c, *ops)
    took = watch.took()
    check(err(got.status), want, got.results[-1].op)
    check(took < 0.7, True, f"{got.results[-1].op}: took {took:.2f} s")
    return got.results[-1]


def make(c, name, data=b"0123456789", d=None):
    """A file that no client has open; its filehandle."""
    s, f = c.open(d or c.d, name)
    c.ok(putfh(f), write(s, 0, data, FILE_SYNC), close(s))
    return f


def ask(c, f, acc=READ, want=WANT_READ, **how):
    """An OPEN by filehandle: the reply, with .change as it was then."""
    r = c.ok(putfh(f), open_(claim_fh(), acc | want, **how), getattr_("change", "size"))
    o = r.all[1]
    o.fh, o.change, o.size = f, r.attrs.change, r.attrs.size
    return o


def take(c, f, kind=D_READ, flags=0, **how):
    """An OPEN that must give this delegation."""
    acc, want = (READ, WANT_READ) if kind in READ_TYPES else (BOTH, WANT_WRITE)
    o = ask(c, f, acc, want | flags, **how)
    check(o.deleg, kind, "the delegation's type")
    check(o.recall, False, "recalled already")
    return o


def fresh(c, name, kind=D_READ, **how):
    return take(c, make(c, name), kind, **how)


def obey(c, *first_ops, before=None, answers=()):
    """The holder answers recalls with these statuses, then with OK. It returns its delegation after
    before(args) and first_ops."""
    answers = list(answers)

    def on_callback(name, args):
        if name != "RECALL":
            return DELAY
        if answers:
            return answers.pop(0)
        return answered(c, before, args, putfh(args.fh), *first_ops, delegreturn(args.stateid))
    c.on_callback = on_callback


def no_callback(*clients):
    for c in clients:
        check([x.name for x in c.callbacks], [])


def recalls(c, o, two, *ops, want="OK", to_zero=False):
    """Checks that the operations of two wait until c has returned its delegation, and then end as
    wanted. Returns their last result."""
    early, begun = [], threading.Event()

    def before(args):
        begun.wait(60)
        time.sleep(0.04)
        early.append(it.done())
    obey(c, before=before)
    it = later(two, *ops)
    begun.set()
    got = it.result()
    name = got.results[-1].op
    check(early, [False], f"{name} was done before the DELEGRETURN")
    check(err(got.status), want, name)
    r = c.wait_callback("RECALL")
    check((r.fh, r.stateid), (o.fh, o.deleg_stateid), f"CB_RECALL for {name}")
    check(r.truncate and not to_zero, False, f"CB_RECALL for {name}: truncate")
    no_callback(c)
    c.no("BAD_STATEID", putfh(o.fh), delegreturn(o.deleg_stateid))
    return got.results[-1]


def refused(o, *why):
    check(o.deleg, D_NONE_EXT, "OPEN_DELEGATE_NONE_EXT")
    check(o.why in why, True, f"ond_why {o.why}, of {why}")
    if o.why in (CONTENTION, RESOURCE):
        check(o.will, False, "a promise of a callback")


def holds(c, o):
    """The delegation allows what it promises."""
    check(err(c.ok(test_stateid(o.deleg_stateid)).statuses[0]), "OK", "TEST_STATEID")
    c.ok(putfh(o.fh), read(o.deleg_stateid, 0, 1))


@contextlib.contextmanager
def own(*settings):
    """A cluster of the test's own, with a client."""
    if harness.THE:
        harness.THE.down()
        harness.THE = None
    w = Cluster(1, settings)
    try:
        yield w, with_dir(client(), "d")
    finally:
        for one in harness.CLIENTS:
            one.drop()
        w.down()


def with_dir(c, name):
    c.d = c.mkdir(c.root(), name)
    return c


def answers(c, o, change=None, size=None, **more):
    """The holder of a write delegation answers CB_GETATTR as if its cache held these values, and
    obeys recalls."""
    obey(c)
    recall = c.on_callback
    c.asked = []

    def on_callback(name, args):
        if name != "GETATTR":
            return recall(name, args)
        c.asked.append(args)
        if args.fh != o.fh:
            return BADHANDLE
        have = {"change": o.change if change is None else change,
                "size": o.size if size is None else size, **more}
        return fattr(**{n: v for n, v in have.items() if ATTR[n] in args.bits})
    c.on_callback = on_callback


def xor(c, o):
    """Only the delegation came."""
    check((o.stateid, o.rflags & NO_OPEN_STATEID), (ANON, NO_OPEN_STATEID))


def set_times(c, o, **times):
    return c.ok(putfh(o.fh), setattr_(o.deleg_stateid, **times),
                getattr_("time_access", "time_modify", "time_metadata", "change")).attrs


def now_minus(seconds):
    t = time.time() - seconds
    return int(t), int(t % 1 * 1e9)


def take_times(c, name):
    o = ask(c, make(c, name), BOTH, WANT_WRITE | WANT_TIMES)
    check(o.deleg, D_WRITE_TIMES)
    return o
