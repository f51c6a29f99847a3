#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Delegations, as RFC 8881 (chapter 10, 18.6, 18.16, 18.49, 20.1, 20.2, 20.6) and RFC 9754 say.
Prints TAP.

Each test gets a client, whose c.d is a directory of its own. A test uses new files, because the
server gives no delegation for a while on a file whose delegation it recalled.
"""
import contextlib
import os
import random
import struct
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../wirelib"))
import harness  # noqa: E402
import steps  # noqa: E402
import tap  # noqa: E402
from harness import *  # noqa: E402,F403
from steps import answered  # noqa: E402
from nfs41 import err, op  # noqa: E402
from nfs41 import Obj  # noqa: E402

DELAY, BADHANDLE, BAD_STATEID = 10008, 10001, 10025
(NOT_WANTED, CONTENTION, RESOURCE, NOT_SUPP_FTYPE, WRITE_NOT_SUPP_FTYPE, NOT_UPGRADE, NOT_DOWNGRADE,
 CANCELLED, IS_DIR) = range(9)
NO_OPEN_STATEID = 0x10
CB_PATH_DOWN, REVOKED = 1, 0x40
READ_TYPES, WRITE_TYPES = (D_READ, D_READ_TIMES), (D_WRITE, D_WRITE_TIMES)
LEASE = 2


# ---- helpers


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

    def result(self, timeout=10):
        self.thread.join(timeout)
        if not self.done():
            raise TimeoutError(f"still under way after {timeout} s")
        if self.fault:
            raise self.fault
        return self.value


def settled(c, *ops, **how):
    """The compound, sent again while the server says DELAY."""
    return c.until(lambda got: err(got.status) != "DELAY", *ops,
                   **{"tries": 400, "pause": 0.02, **how})


@contextlib.contextmanager
def living(clients):
    """Renews the leases of these clients. Yields a list of how many seconds late each round was:
    that delay comes from the machine and not from a holder."""
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
        it.result(30)


def later(c, *ops):
    return Later(lambda: settled(c, *ops))


def quick(c, *ops, want="OK"):
    """Done at once, not after a wait for a holder."""
    began = time.monotonic()
    got = settled(c, *ops)
    check(err(got.status), want, got.results[-1].op)
    check(time.monotonic() - began < 0.7, True,
          f"{got.results[-1].op}: took {time.monotonic() - began:.2f} s")
    return got.results[-1]


def make(c, name, data=b"0123456789", d=None):
    """A file that nobody has open; its filehandle."""
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
        begun.wait(30)
        time.sleep(0.04)
        early.append(it.done())
    obey(c, before=before)
    it = later(two, *ops)
    begun.set()
    got = it.result()
    name = got.results[-1].op
    check(early, [False], f"{name} was done before the DELEGRETURN")
    check(err(got.status), want, name)
    r = c.wait_callback("RECALL", 1)
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
    """The delegation is good for what it stands for."""
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


# ---- who gets one (10.4, 18.16.3)


def test_an_open_for_reading_gets_a_read_delegation(c):
    f = make(c, "f")
    o = ask(c, f, READ, 0)
    check((o.deleg, o.recall), (D_READ, False))
    check(o.deleg_stateid[0], 1, "seqid")
    check(o.deleg_stateid[1] != o.stateid[1], True,
          "the open's stateid and the delegation's are one")
    check(o.rflags & NO_OPEN_STATEID, 0)
    holds(c, o)
    c.ok(putfh(f), read(o.stateid, 0, 1), close(o.stateid), read(o.deleg_stateid, 0, 1),
         delegreturn(o.deleg_stateid))
    c.no("BAD_STATEID", putfh(f), read(o.deleg_stateid, 0, 1))


def test_an_open_for_writing_gets_a_write_delegation_the_second_time(c):
    two = client()
    two.d = c.d
    for acc in (WRITE, BOTH):
        f = make(two, f"f{acc}")
        one = ask(c, f, acc, 0)
        check(one.deleg, D_NONE, "the first open")
        c.ok(putfh(f), close(one.stateid))
        o = ask(c, f, acc, 0)
        check(o.deleg, D_WRITE, "the second open")
        c.ok(putfh(f), write(o.deleg_stateid, 0, b"x"))


def test_another_clients_write_between_breaks_the_row(c):
    two = client()
    two.d = c.d
    f = make(two, "f")
    for one in (c, two, c, two):
        o = ask(one, f, WRITE, 0)
        check(o.deleg, D_NONE)
        one.ok(putfh(f), close(o.stateid))


def test_every_want_with_every_access(c):
    given = {}
    for acc in (READ, WRITE, BOTH):
        for want in (WANT_READ, WANT_WRITE, WANT_ANY, NO_DELEG, WANT_CANCEL):
            o = ask(c, make(c, f"f{acc}.{want}"), acc, want)
            given[acc, want] = o.deleg
            if want == NO_DELEG:
                refused(o, NOT_WANTED)
            elif want == WANT_CANCEL:
                refused(o, CANCELLED)
            elif o.deleg == D_NONE_EXT:
                refused(o, CONTENTION, RESOURCE)
            else:
                allowed = {WANT_READ: [D_READ], WANT_WRITE: [D_WRITE],
                           WANT_ANY: [D_READ, D_WRITE]}[want]
                check(o.deleg in allowed, True, f"access {acc}, want {want:#x}, type {o.deleg}")
    # What is in nobody's way is given.
    check([given[READ, WANT_READ], given[WRITE, WANT_WRITE], given[BOTH, WANT_WRITE],
           given[BOTH, WANT_ANY]], [D_READ, D_WRITE, D_WRITE, D_WRITE])
    check(given[READ, WANT_ANY] in (D_READ, D_WRITE), True)


def test_wants_that_are_none_are_inval(c):
    f = make(c, "f")
    for want in (0x600, 0x700, 0x800, 0xff00):
        c.no("INVAL", putfh(f), open_(claim_fh(), READ | want))


def test_signal_and_push_promise_nothing(c):
    f, two = make(c, "f"), client()
    two.ok(putfh(f), open_(claim_fh(), WRITE | NO_DELEG))
    for flags in (0x10000, 0x20000, 0x30000):
        refused(ask(c, f, READ, WANT_READ | flags, owner=b"o%d" % flags), CONTENTION)
    check(ask(c, make(c, "g"), READ, 0x30000).deleg in (D_READ, D_NONE_EXT), True)


def test_a_created_file_comes_with_a_delegation(c):
    r = c.ok(putfh(c.d), open_("new", BOTH | WANT_WRITE, how=GUARDED, attrs={"mode": 0o600}),
             getfh())
    check(r.all[1].deleg, D_WRITE)
    check(r.all[1].limit[0] in (1, 2), True)
    r = c.ok(putfh(c.d), open_("new2", READ | WANT_READ, how=EXCLUSIVE4_1, attrs={"mode": 0o600},
                               verf=b"verifier"), getfh())
    check(r.all[1].deleg, D_READ)


def test_many_clients_read_with_delegations(c):
    f = make(c, "f")
    held = [(one, take(one, f)) for one in [c, *(client() for _ in range(5))]]
    check(len({o.deleg_stateid[1] for _, o in held}), 6, "different stateids")
    for one, o in held:
        holds(one, o)
        no_callback(one)


def test_a_client_has_one_delegation_of_a_file(c):
    o = fresh(c, "f")
    for i, want in enumerate((0, WANT_READ, WANT_ANY)):
        again = ask(c, o.fh, READ, want, owner=b"another %d" % i)
        if again.deleg in READ_TYPES:
            check(again.deleg_stateid[1], o.deleg_stateid[1], "a second delegation")
        else:
            check(again.deleg, D_NONE_EXT if want else D_NONE)
    no_callback(c)
    holds(c, o)
    c.ok(putfh(o.fh), delegreturn((0, o.deleg_stateid[1])))


def test_upgrade_and_downgrade_are_done_or_said_to_be_unsupported(c):
    for kind, want, other, why in ((D_READ, WANT_WRITE, D_WRITE, NOT_UPGRADE),
                                   (D_WRITE, WANT_READ, D_READ, NOT_DOWNGRADE)):
        o = fresh(c, f"f{kind}", kind)
        n = ask(c, o.fh, BOTH, want, owner=b"second")
        if n.deleg == D_NONE_EXT:
            check(n.why, why)
            check(err(c.ok(test_stateid(o.deleg_stateid)).statuses[0]), "OK")
        else:
            check(n.deleg, other)
        no_callback(c)


def test_a_conflicting_open_of_another_client_is_contention(c):
    two = client()
    for i, (theirs, deny, acc, want, kind) in enumerate(
            ((WRITE, 0, READ, WANT_READ, None), (BOTH, 0, READ, WANT_ANY, None),
             (READ, 0, READ, WANT_READ, D_READ), (READ, 0, BOTH, WANT_WRITE, None),
             (READ, 0, READ, WANT_WRITE, None), (WRITE, 0, WRITE, WANT_WRITE, None),
             (READ, WRITE, READ, WANT_READ, D_READ))):
        f = make(c, f"f{i}")
        s = two.ok(putfh(f), open_(claim_fh(), theirs | NO_DELEG, deny)).stateid
        o = ask(c, f, acc, want)
        if kind is None:
            refused(o, CONTENTION)
        else:
            check(o.deleg, kind, f"row {i}")
        if kind is None:  # nothing conflicted, nobody was recalled
            two.ok(putfh(f), close(s))
            check(ask(c, f, acc, want, owner=b"now").deleg not in (D_NONE, D_NONE_EXT), True,
                  f"row {i}: after the CLOSE")
    no_callback(c, two)


def test_an_open_without_want_gets_none_in_contention(c):
    two, f = client(), make(c, "f")
    two.ok(putfh(f), open_(claim_fh(), WRITE | NO_DELEG))
    check(ask(c, f, READ, 0).deleg, D_NONE)


def test_without_a_backchannel_there_is_no_delegation(c):
    for one in (client(flags=0), client(flags=2)):
        f = make(c, f"f{one.session.flags}")
        if one.session.flags & 2:
            check(take(one, f).deleg, D_READ)
            continue
        refused(ask(one, f), RESOURCE, CONTENTION)
        refused(ask(one, f, BOTH, WANT_WRITE, owner=b"w"), RESOURCE, CONTENTION)
        check(ask(one, f, READ, 0, owner=b"n").deleg, D_NONE)


def test_a_client_that_denies_takes_no_harm_from_its_delegation(c):
    """Share reservations (9.7) stay, whoever holds a delegation."""
    two = client()
    o = take(c, make(c, "f"), D_WRITE, deny=WRITE)
    check(err(recalls(c, o, two, putfh(o.fh), open_(claim_fh(), WRITE | NO_DELEG),
                      want="SHARE_DENIED").status), "SHARE_DENIED")
    two.ok(putfh(o.fh), open_(claim_fh(), READ | NO_DELEG))
    c.ok(putfh(o.fh), close(o.stateid))
    two.ok(putfh(o.fh), open_(claim_fh(), WRITE | NO_DELEG))


def test_an_open_that_denies_reading_recalls_read_delegations(c):
    two = client()
    o = fresh(c, "f")
    c.ok(putfh(o.fh), close(o.stateid))
    s = recalls(c, o, two, putfh(o.fh), open_(claim_fh(), READ | NO_DELEG, READ)).stateid
    c.no("SHARE_DENIED", putfh(o.fh), open_(claim_fh(), READ | NO_DELEG))
    two.ok(putfh(o.fh), close(s))


def test_a_deny_of_writing_does_not_recall_a_read_delegation(c):
    two = client()
    o = fresh(c, "f")
    quick(two, putfh(o.fh), open_(claim_fh(), READ | NO_DELEG, WRITE))
    no_callback(c)
    c.no("SHARE_DENIED", putfh(o.fh), open_(claim_fh(), WRITE | NO_DELEG))
    holds(c, o)


def test_delegations_need_the_permission_of_the_open(c):
    """The ace says who may open without an ACCESS: nobody it names may be one who is refused."""
    s, f = c.open(c.d, "secret", attrs={"mode": 0o600})
    c.ok(putfh(f), close(s))
    c.no("ACCESS", putfh(f), open_(claim_fh(), READ | WANT_READ), cred=USER)
    o = take(c, f)
    kind, flags, mask, who = o.ace
    check(kind in (0, 1), True, "the ace's type")
    if kind == 0 and mask & 1:
        check("EVERYONE" in who, False, "EVERYONE@ may read what others may not")


# ---- WANT_DELEGATION (18.49)


def test_want_delegation_gives_what_is_free(c):
    for want, kind in ((WANT_READ, D_READ), (WANT_WRITE, D_WRITE)):
        f = make(c, f"f{want}")
        o = c.ok(putfh(f), want_delegation(want))
        check((o.deleg, o.recall), (kind, False))
        o.fh = f
        holds(c, o)
        two = client()
        recalls(c, o, two, putfh(f), open_(claim_fh(), WRITE | NO_DELEG))
    f = make(c, "any")
    check(c.ok(putfh(f), want_delegation(WANT_ANY | BOTH)).deleg in (D_READ, D_WRITE), True)


def test_want_delegation_without_a_want_is_inval(c):
    f = make(c, "f")
    for want in (0, READ, BOTH, NO_DELEG, 0x30000, 0x600):
        c.no("INVAL", putfh(f), want_delegation(want))


def test_want_delegation_that_is_refused_says_why(c):
    two, f = client(), make(c, "f")
    two.ok(putfh(f), open_(claim_fh(), WRITE | NO_DELEG))
    for want in (WANT_READ, WANT_WRITE, WANT_ANY, WANT_READ | 0x30000):
        refused(c.ok(putfh(f), want_delegation(want)), CONTENTION)
    got = c.call(putfh(f), want_delegation(WANT_CANCEL))
    check(err(got.status), "OK")
    refused(got.results[-1], CANCELLED)
    no_callback(two)


def test_want_delegation_of_what_is_no_file(c):
    got = c.call(putfh(c.d), want_delegation(WANT_READ))
    if got.status == 0:
        refused(got.results[-1], IS_DIR)
    else:
        check(err(got.status) in ("ISDIR", "WRONG_TYPE"), True, err(got.status))
    for kind in (FIFO, LNK):
        f = c.ok(putfh(c.d), create(kind, f"k{kind}", "target"), getfh()).fh
        refused(c.ok(putfh(f), want_delegation(WANT_WRITE)), WRITE_NOT_SUPP_FTYPE)
        r = c.ok(putfh(f), want_delegation(WANT_READ))
        if r.deleg != D_READ:
            refused(r, NOT_SUPP_FTYPE)
    c.no("NOFILEHANDLE", want_delegation(WANT_READ))


def test_want_delegation_claims(c):
    f = make(c, "f")
    c.no("NOTSUPP", putfh(f), want_delegation(WANT_READ, u32(6)))
    c.no("NO_GRACE", putfh(f), want_delegation(WANT_READ, claim_previous(D_READ)))
    c.no(("INVAL", "BADXDR", "NOTSUPP"), putfh(f), want_delegation(WANT_READ, u32(0) + opaque("f")))
    c.no(("INVAL", "BADXDR", "NOTSUPP"), putfh(f), want_delegation(WANT_READ, u32(7)))


def test_delegations_of_previous_clients_are_not_supported(c):
    f = make(c, "f")
    c.no("NOTSUPP", putfh(c.d), open_(u32(3) + opaque("f")))
    c.no("NOTSUPP", putfh(f), open_(u32(6)))
    c.no("NOTSUPP", op("DELEGPURGE", u64(0)))
    c.no("NOTSUPP", putfh(c.d),
         op("GET_DIR_DELEGATION", boolean(False) + bitmap([]) + bytes(24) + bitmap([]) * 2))


# ---- what recalls (10.4.4)


def conflicts(c, kind):
    """(name, operations of another client on the file n, saved or current, in c.d), its status."""
    dir_, other = putfh(c.d), make(c, "other file")
    out = [("remove", lambda n, f: [dir_, remove(n)]),
           ("rename", lambda n, f: [dir_, savefh(), rename(n, n + ".new")]),
           ("rename over", lambda n, f: [dir_, create(FIFO, n + ".f"), dir_, savefh(),
                                         rename(n + ".f", n)]),
           ("link", lambda n, f: [putfh(f), savefh(), dir_, link(n + ".link")]),
           ("mode", lambda n, f: [putfh(f), setattr_(mode=0o600)]),
           ("owner", lambda n, f: [putfh(f), setattr_(owner="1000")]),
           ("size", lambda n, f: [putfh(f), setattr_(size=3)]),
           ("times", lambda n, f: [putfh(f), setattr_(time_modify_set=(5, 5))]),
           ("setxattr", lambda n, f: [putfh(f), setxattr("b", b"v")]),
           ("removexattr", lambda n, f: [putfh(f), removexattr("a")]),
           ("write", lambda n, f: [putfh(f), write(ANON, 0, b"x")]),
           ("allocate", lambda n, f: [putfh(f), allocate(ANON, 0, 99)]),
           ("deallocate", lambda n, f: [putfh(f), deallocate(ANON, 0, 9)]),
           ("copy to", lambda n, f: [putfh(other), savefh(), putfh(f), copy(ANON, ANON, 0, 0, 5)]),
           ("open write", lambda n, f: [dir_, open_(n, WRITE | NO_DELEG)]),
           ("open fh", lambda n, f: [putfh(f), open_(claim_fh(), BOTH | WANT_WRITE)]),
           ("open create", lambda n, f: [dir_, open_(n, READ | NO_DELEG, how=UNCHECKED,
                                                     attrs={"size": 0})])]
    if kind == D_WRITE:
        out += [("open read", lambda n, f: [dir_, open_(n, READ)]),
                ("read", lambda n, f: [putfh(f), read(ANON, 0, 9)]),
                ("bypass", lambda n, f: [putfh(f), read(BYPASS, 0, 9)]),
                ("read plus", lambda n, f: [putfh(f), read_plus(ANON, 0, 9)]),
                ("seek", lambda n, f: [putfh(f), seek(ANON, 0, 0)]),
                ("copy from", lambda n, f: [putfh(f), savefh(), putfh(other),
                                            copy(ANON, ANON, 0, 0, 5)]),
                ("lockt", lambda n, f: [putfh(f), lockt(READ_LT)])]
    return out


def delegated(c, name, kind):
    """A new file with an attribute, closed, and its delegation."""
    f = make(c, name)
    c.ok(putfh(f), setxattr("a", b"v"))
    o = take(c, f, kind)
    c.ok(putfh(f), close(o.stateid))
    return f, o


def every_conflict(c, kind):
    two, wrong = client(), []
    for name, ops in conflicts(c, kind):
        file = f"{name} {kind}"
        f, o = delegated(c, file, kind)
        try:
            recalls(c, o, two, *ops(file, f), to_zero=name == "open create")
        except (Failed, TimeoutError) as e:
            wrong.append(f"{name}: {e}")
            c.callbacks.clear()
            c.call(putfh(f), delegreturn(o.deleg_stateid))
    check(wrong, [])


def test_what_recalls_a_read_delegation(c):
    every_conflict(c, D_READ)


def test_what_recalls_a_write_delegation(c):
    every_conflict(c, D_WRITE)


def test_what_recalls_no_read_delegation(c):
    o, two = fresh(c, "f"), client()
    c.ok(putfh(o.fh), setxattr("a", b"v"))
    for ops in ([putfh(c.d), open_("f", READ)],
                [putfh(o.fh), open_(claim_fh(), READ | NO_DELEG, owner=b"x")],
                [putfh(o.fh), read(ANON, 0, 9)], [putfh(o.fh), read(BYPASS, 0, 9)],
                [putfh(o.fh), getattr_("size", "change")], [putfh(o.fh), lockt(READ_LT)],
                [putfh(o.fh), access(0x3f)], [putfh(c.d), lookup("f"), getattr_("mode")],
                [putfh(c.d), readdir(attrs=["size"])], [putfh(o.fh), getxattr("a")],
                [putfh(c.d), create(FIFO, "other")],
                [putfh(c.d), savefh(), rename("other", "other2")], [putfh(c.d), remove("other2")],
                [putfh(o.fh), commit()]):
        quick(two, *ops)
    no_callback(c)
    holds(c, o)


def test_who_may_not_do_it_recalls_nothing(c):
    two, wrong, names = client(), [], {}
    obey(c)
    for kind in (D_READ, D_WRITE):
        for name, ops in conflicts(c, kind):
            file = f"{name} {kind}"
            s, f = c.open(c.d, file, attrs={"mode": 0o600})
            c.ok(putfh(f), setxattr("a", b"v"), close(s))
            take(c, f, kind)
            names[f] = file
            if name == "rename over":
                two.ok(putfh(c.d), create(FIFO, file + ".f"))
            got = two.call(*(x for x in ops(file, f) if x.num != NUM["CREATE"]), cred=USER)
            if err(got.status) not in ("ACCESS", "PERM", "OK" if name == "lockt" else "PERM"):
                wrong.append((file, err(got.status)))
    time.sleep(0.1)
    check((wrong, [names[x.fh] for x in c.callbacks]), ([], []))


def test_the_holders_own_operations_recall_nothing(c):
    for kind in (D_READ, D_WRITE):
        for name, ops in conflicts(c, kind):
            file = f"{name} {kind}"
            f, _ = delegated(c, file, kind)
            quick(c, *ops(file, f))
            check(c.callbacks, [], name)


def test_ones_own_change_recalls_the_others(c):
    two = client()
    o = fresh(c, "f")
    mine = take(two, o.fh)
    recalls(c, o, two, putfh(o.fh), setattr_(mode=0o600))
    no_callback(two)
    holds(two, mine)


def test_ones_own_open_for_writing_recalls_the_others(c):
    two = client()
    o = fresh(c, "f")
    mine = take(two, o.fh)
    r = recalls(c, o, two, putfh(o.fh), open_(claim_fh(), BOTH | NO_DELEG, owner=b"w"))
    no_callback(two)
    check(err(two.ok(test_stateid(mine.deleg_stateid)).statuses[0]), "OK")
    two.ok(putfh(o.fh), write(r.stateid, 0, b"x"))


class Racer:
    """A client that opens, writes, closes and removes what other clients do at the same time, and
    obeys recalls.

    .held lists what it certainly held: (file, "deleg" or "open", writing, from, until), from the
    arrival of the reply until it sent the operation that ends it.
    """

    def __init__(self, one, files, end, seed):
        self.c, self.files, self.end, self.rand = one, files, end, random.Random(seed)
        self.held, self.seen, self.out, self.lock = [], [], {}, threading.Lock()
        one.on_callback = self.recalled

    def recalled(self, name, args):
        if name == "GETATTR":
            return self.rand.choice((DELAY, fattr(change=MAX64, size=1)))
        threading.Thread(target=self.give_back, args=(args,), daemon=True).start()
        return 0

    def give_back(self, args):
        """The reply that brought the delegation may come after its recall."""
        for _ in range(100):
            with self.lock:
                got = self.out.pop(args.stateid[1], None)
            if got:
                break
            time.sleep(0.002)
        if got:
            self.over(*got)
            self.c.ok(putfh(args.fh), delegreturn(args.stateid))

    def over(self, f, what, writing, since):
        self.held.append((f, what, writing, since, time.monotonic()))

    def look(self, f):
        """What GETATTR says of change and mtime, and between when."""
        since = time.monotonic()
        got = settled(self.c, putfh(f), getattr_("change", "time_modify"))
        self.seen.append((f, since, time.monotonic(),
                          (got.results[-1].attrs.change, got.results[-1].attrs.time_modify)))

    def race(self):
        while time.monotonic() < self.end:
            # Two files at a time, and others soon: after a conflict a file has no delegations.
            at = int((self.end - time.monotonic()) / 0.04) % len(self.files)
            f = self.files[at - self.rand.randrange(2)]
            if self.rand.random() < 0.3:
                self.look(f)
            acc, want = self.rand.choice(((READ, 0), (READ, WANT_READ), (BOTH, WANT_WRITE),
                                          (WRITE, 0), (READ, WANT_ANY), (BOTH, NO_DELEG),
                                          (READ, WANT_READ | WANT_XOR),
                                          (BOTH, WANT_WRITE | WANT_XOR)))
            got = settled(self.c, putfh(f), open_(claim_fh(), acc | want), getattr_("type"))
            if got.status:
                raise Failed(f"OPEN: {err(got.status)}")
            o, now = got.results[2], time.monotonic()
            if o.deleg in (D_READ, D_WRITE):
                with self.lock:
                    self.out[o.deleg_stateid[1]] = f, "deleg", o.deleg == D_WRITE, now
            if o.rflags & NO_OPEN_STATEID:
                continue
            if acc & WRITE:
                self.c.ok(putfh(f), write(o.stateid, 0, b"x"))
            time.sleep(self.rand.random() * 0.004)
            self.over(f, "open", bool(acc & WRITE), now)
            self.c.ok(putfh(f), close(o.stateid))
        with self.lock:
            out, self.out = self.out, {}
        for other, got in out.items():
            self.over(*got)
            self.c.ok(putfh(got[0]), delegreturn((0, other)))
        return self.held


def test_what_conflicts_is_never_held_at_once(c):
    files = [make(c, f"f{i}") for i in range(40)]
    end = time.monotonic() + 1.6
    racers = [Racer(client(), files, end, i) for i in range(6)]
    held = [Later(r.race) for r in racers]
    held = [h.result() for h in held]
    given = [sum(what == "deleg" and writing == w for one in held for _, what, writing, *_ in one)
             for w in (False, True)]
    tap.say(f"{sum(what == 'open' for one in held for _, what, *_ in one)} opens, {given} "
            "delegations")
    check(min(given) > 3, True, "delegations of both kinds were given")
    for a, b in ((a, b) for a in range(6) for b in range(6) if a != b):
        for f, what, writing, since, until in held[a]:
            if what == "deleg":
                for g, theirs, w, s, u in held[b]:
                    if f == g and s < until and since < u and (writing or w):
                        raise Failed(f"a {'write' if writing else 'read'} delegation beside a "
                                     f"{'writing' if w else 'reading'} {theirs}")
    for r in racers:
        r.c.ok(putrootfh())
        check(r.c.status_flags & REVOKED, 0, "revoked")
    nothing_goes_back([x for r in racers for x in r.seen])


def nothing_goes_back(seen):
    """What is asked after another had its answer is not older."""
    tap.say(f"{len(seen)} looks")
    for f in {x[0] for x in seen}:
        of = sorted((x for x in seen if x[0] == f), key=lambda x: x[1])
        for i, (_, _, until, (change, mtime)) in enumerate(of):
            for _, since, _, (c, m) in of[i + 1:]:
                if since > until and (c < change or m < mtime):
                    raise Failed(f"change {change}, mtime {mtime}; later {c}, {m}")


def test_a_want_recalls_nothing(c):
    """18.49.4: a delegation is not taken from one to be given to another."""
    two = client()
    o, w = fresh(c, "r"), fresh(c, "w", D_WRITE)
    refused(two.ok(putfh(o.fh), want_delegation(WANT_WRITE)), CONTENTION)
    refused(ask(two, o.fh, READ, WANT_WRITE), CONTENTION)
    for want in (WANT_READ, WANT_WRITE, WANT_ANY):
        refused(two.ok(putfh(w.fh), want_delegation(want)), CONTENTION)
    no_callback(c)
    holds(c, o), holds(c, w)


def test_sessions_of_4_1_have_delegations_too(c):
    one, two = client(minor=1), client()
    for kind in (D_READ, D_WRITE):
        f = make(c, f"f{kind}")
        o = take(one, f, kind)
        recalls(one, o, two, putfh(f), open_(claim_fh(), WRITE | NO_DELEG))
    # RFC 9754 extends 4.2: there its flags do not exist.
    got = one.call(putfh(make(c, "x")), open_(claim_fh(), READ | WANT_READ | WANT_XOR | WANT_TIMES))
    if got.status:
        check(err(got.status), "INVAL")
    else:
        o = got.results[-1]
        check((o.deleg in (D_READ, D_NONE_EXT), o.rflags & NO_OPEN_STATEID, o.stateid == ANON),
              (True, 0, False))


def test_many_holders_are_all_recalled(c):
    f = make(c, "f")
    held, returned = [], []
    for _ in range(50):
        one = client()
        take(one, f)
        obey(one, before=lambda args: (time.sleep(0.02), returned.append(args)))
        held.append(one)
    s = c.ok(putfh(f), open_(claim_fh(), READ | NO_DELEG)).stateid
    no_callback(*held)
    it = settled(c, putfh(f), setattr_(size=3))
    check((err(it.status), len(returned)), ("OK", 50))
    for one in held:
        one.wait_callback("RECALL", 1)
    c.ok(putfh(f), close(s))


def test_many_files_of_one_holder_are_recalled_at_once(c):
    """More than the backchannel has slots."""
    for i in range(30):
        take(c, make(c, f"f{i}"), D_WRITE if i % 2 else D_READ, WANT_XOR)
    obey(c)
    two = client()  # now: of one that is idle for a lease, slots are asked back
    its = ([later(two, putfh(c.d), remove(f"f{i}")) for i in range(12)]
           + [later(client(), putfh(c.d), remove(f"f{i}")) for i in range(12, 30)])
    check([err(it.result().status) for it in its], ["OK"] * 30)
    c.ok(putrootfh())
    check(c.status_flags & REVOKED, 0)


def test_the_holder_never_waits_for_itself(c):
    """While its delegation is recalled for another, what it does with the file is done."""
    two = client()
    for kind in (D_READ, D_WRITE):
        o = fresh(c, f"f{kind}", kind)
        own_ops = [getattr_(*WATCHED), open_(claim_fh(), BOTH | WANT_WRITE, owner=b"new"),
                   close(CURRENT), setattr_(mode=0o600),
                   write(ANON, 0, b"x"), setxattr("a", b"b"), lockt(READ_LT)]
        took, given = [], []

        def before(args, o=o, took=took, given=given, own_ops=own_ops):
            time.sleep(0.05)
            for x in own_ops if o.deleg == D_WRITE else own_ops[:1]:
                if x.num == NUM["CLOSE"]:
                    continue
                began = time.monotonic()
                got = c.call(putfh(o.fh), x)
                took.append((got.results[-1].op, err(got.status), time.monotonic() - began < 0.5))
                given += [got.results[-1].deleg] if x.num == NUM["OPEN"] and not got.status else []
        obey(c, getattr_(*WATCHED), before=before)
        check(err(settled(two, putfh(o.fh), open_(claim_fh(), BOTH | NO_DELEG)).status), "OK")
        c.wait_callback("RECALL")
        for name, status, fast in took:
            check((status in (("OK", "DELAY") if name == "OPEN" else ("OK",)), fast), (True, True),
                  f"{name}: {status}")
        check(all(g in (D_NONE, D_NONE_EXT) for g in given), True,
              "a new delegation while it is recalled")
        c.ok(putrootfh())
        check(c.status_flags & REVOKED, 0)


def test_no_new_delegations_while_a_writer_waits(c):
    two, three = client(), client()
    o = fresh(c, "f")
    obey(c, before=lambda args: time.sleep(0.3))
    it = later(two, putfh(o.fh), open_(claim_fh(), BOTH | NO_DELEG))
    c.wait_callback("RECALL")
    got = settled(three, putfh(o.fh), open_(claim_fh(), READ | WANT_READ)).results[-1]
    refused(got, CONTENTION)
    refused(settled(three, putfh(o.fh), want_delegation(WANT_READ)).results[-1], CONTENTION)
    check(err(it.result().status), "OK")
    no_callback(three)


def test_two_conflicts_at_once_make_one_recall(c):
    o = fresh(c, "f", D_WRITE)
    others = [client() for _ in range(4)]
    obey(c, before=lambda args: time.sleep(0.2))
    its = [later(one, putfh(o.fh), open_(claim_fh(), BOTH | NO_DELEG)) for one in others]
    check([err(it.result().status) for it in its], ["OK"] * 4)
    c.wait_callback("RECALL")
    no_callback(c)


def test_two_writers_with_read_delegations_recall_each_other(c):
    two = client()
    a = fresh(c, "f")
    b = take(two, a.fh)
    obey(c), obey(two)
    its = [later(one, putfh(a.fh), open_(claim_fh(), WRITE | NO_DELEG, owner=b"w"))
           for one in (c, two)]
    check([err(it.result().status) for it in its], ["OK"] * 2)
    left = [err(one.ok(test_stateid(o.deleg_stateid)).statuses[0]) for one, o in ((c, a), (two, b))]
    check(left, ["BAD_STATEID"] * 2)


# ---- the stateid


def test_data_moves_with_a_write_delegations_stateid(c):
    o = fresh(c, "f", D_WRITE)
    c.ok(putfh(o.fh), close(o.stateid))
    sid, g = o.deleg_stateid, make(c, "g")
    for s in (sid, (0, sid[1])):
        c.ok(putfh(o.fh), write(s, 0, b"data", FILE_SYNC))
        check(c.ok(putfh(o.fh), read(s, 0, 4)).data, b"data")
        check(c.ok(putfh(o.fh), setattr_(s, size=2), getattr_("size")).attrs.size, 2)
        c.ok(putfh(o.fh), allocate(s, 0, 20), deallocate(s, 4, 4), seek(s, 0, 0),
             read_plus(s, 0, 9))
        c.ok(putfh(g), savefh(), putfh(o.fh), copy(ANON, s, 0, 10, 4), savefh(), putfh(g),
             copy(s, ANON, 0, 0, 4))
    no_callback(c)


def test_a_read_delegation_is_not_for_writing(c):
    o = fresh(c, "f")
    c.no("OPENMODE", putfh(o.fh), write(o.deleg_stateid, 0, b"x"))
    c.no("OPENMODE", putfh(o.fh), setattr_(o.deleg_stateid, size=2))
    check(c.attrs(o.fh, "size").size, 10)
    c.ok(putfh(o.fh), read(o.deleg_stateid, 0, 1))


def test_layouts_with_a_delegations_stateid(c):
    o = fresh(c, "r")
    g = c.ok(putfh(o.fh), layoutget(o.deleg_stateid, IO_READ))
    check(g.layouts[0].iomode, IO_READ)
    c.no(("OPENMODE", "BADIOMODE", "ACCESS"), putfh(o.fh), layoutget(o.deleg_stateid, IO_RW))
    o = fresh(c, "w", D_WRITE)
    c.ok(putfh(o.fh), close(o.stateid))
    g = c.ok(putfh(o.fh), layoutget(o.deleg_stateid, IO_RW))
    check(g.layouts[0].iomode, IO_RW)
    c.ok(putfh(o.fh), layoutreturn(g.stateid), delegreturn(o.deleg_stateid))
    c.no("BAD_STATEID", putfh(o.fh), layoutget(o.deleg_stateid, IO_RW))


def test_locks_with_a_delegations_stateid(c):
    """RFC 8881 (9.1.2) asks for a lock with the stateid of an open. RFC 9754 also allows that of a
    delegation."""
    o = take(c, make(c, "f"), D_WRITE, WANT_XOR)
    got = c.call(putfh(o.fh), lock(o.deleg_stateid, WRITE_LT, 0, 5, b"lo"))
    check(err(got.status), "OK")
    k = got.results[-1].stateid
    c.ok(putfh(o.fh), write(k, 0, b"x"))
    two = client()
    obey(c)
    check(err(settled(two, putfh(o.fh), lockt(WRITE_LT, 0, 1, b"him")).status), "DENIED")
    c.ok(putfh(o.fh), locku(k, 0, 5))
    check(err(settled(two, putfh(o.fh), lockt(WRITE_LT, 0, 1, b"him")).status), "OK")


def test_locks_end_with_the_delegation_they_came_by(c):
    """With no open left, a DELEGRETURN leaves no lock behind; with one, the lock is the open's."""
    two = client()
    for i, claimed in enumerate((False, True)):
        o = take(c, make(c, f"f{i}"), D_WRITE, WANT_XOR)
        c.ok(putfh(o.fh), lock(o.deleg_stateid, WRITE_LT, 0, 5, b"lo"))
        if claimed:
            s = c.ok(putfh(o.fh),
                     open_(claim_deleg_cur_fh(o.deleg_stateid), BOTH | NO_DELEG)).stateid
        got = c.call(putfh(o.fh), delegreturn(o.deleg_stateid))
        if got.status:
            check(err(got.status), "LOCKS_HELD")
            continue
        denied = err(settled(two, putfh(o.fh), lockt(WRITE_LT, 0, 1, b"him")).status)
        if claimed:
            check(denied in ("DENIED", "OK"), True)
            c.ok(putfh(o.fh), write(s, 0, b"x"))
        else:
            check(denied, "OK", "LOCKT after the DELEGRETURN")


def test_a_delegation_gives_no_rights_to_the_data(c):
    """A user that may only read cannot write by way of a delegation, and a user that may only write
    cannot read."""
    for name, mode, acc, ops, cred in (
            ("r", 0o644, READ, (lambda s: write(s, 0, b"x"), lambda s: setattr_(s, size=1)), USER),
            ("w", 0o622, WRITE, (lambda s: read(s, 0, 9),), USER)):
        for i, flags in enumerate((WANT_WRITE, WANT_ANY, WANT_WRITE | WANT_XOR)):
            s, f = c.open(c.d, f"{name}{i}", attrs={"mode": mode})
            c.ok(putfh(f), write(s, 0, b"0123456789", FILE_SYNC), setattr_(mode=mode), close(s))
            o = c.ok(putfh(f), open_(claim_fh(), acc | flags, owner=b"user"), cred=cred)
            if o.deleg in (D_NONE, D_NONE_EXT):
                continue
            for do in ops:
                c.no(("ACCESS", "OPENMODE"), putfh(f), do(o.deleg_stateid), cred=cred)
            got = c.call(putfh(f), open_(claim_deleg_cur_fh(o.deleg_stateid), BOTH, owner=b"cur"),
                         cred=cred)
            check(err(got.status) in ("ACCESS", "OPENMODE"), True,
                  f"CLAIM_DELEG_CUR_FH for both: {err(got.status)}")
    check(c.attrs(f, "size").size, 10)


def test_seqids_of_a_delegations_stateid(c):
    o = fresh(c, "f")
    seq, other = o.deleg_stateid
    c.ok(putfh(o.fh), read((0, other), 0, 1))
    c.no("BAD_STATEID", putfh(o.fh), read((seq + 1, other), 0, 1))
    c.no("BAD_STATEID", putfh(o.fh), delegreturn((seq + 5, other)))
    check([err(s) for s in c.ok(test_stateid((seq, other), (0, other), (seq + 1, other))).statuses],
          ["OK", "OK", "BAD_STATEID"])
    c.no("LOCKS_HELD", free_stateid(o.deleg_stateid))
    c.ok(putfh(o.fh), delegreturn((0, other)))


def test_open_operations_refuse_a_delegations_stateid(c):
    o = fresh(c, "f", D_WRITE)
    c.no("BAD_STATEID", putfh(o.fh), close(o.deleg_stateid))
    c.no("BAD_STATEID", putfh(o.fh), open_downgrade(o.deleg_stateid, READ))
    c.no("BAD_STATEID", putfh(o.fh), locku(o.deleg_stateid))
    c.no("BAD_STATEID", putfh(o.fh), layoutreturn(o.deleg_stateid))
    holds(c, o)
    c.no("BAD_STATEID", putfh(o.fh), delegreturn(o.stateid))


def test_delegreturn_errors(c):
    two = client()
    o, g = fresh(c, "f"), make(c, "g")
    c.no("BAD_STATEID", putfh(g), delegreturn(o.deleg_stateid))
    two.no("BAD_STATEID", putfh(o.fh), delegreturn(o.deleg_stateid))
    two.no("BAD_STATEID", putfh(o.fh), read(o.deleg_stateid, 0, 1))
    two.no("BAD_STATEID", free_stateid(o.deleg_stateid))
    check(err(two.ok(test_stateid(o.deleg_stateid)).statuses[0]), "BAD_STATEID")
    c.no("BAD_STATEID", putfh(g), read(o.deleg_stateid, 0, 1))
    for sid in (ANON, BYPASS, INVALID):
        c.no("BAD_STATEID", putfh(o.fh), delegreturn(sid))
    c.no("NOFILEHANDLE", delegreturn(o.deleg_stateid))
    holds(c, o)
    c.ok(putfh(o.fh), delegreturn(o.deleg_stateid))
    c.no("BAD_STATEID", putfh(o.fh), delegreturn(o.deleg_stateid))
    c.no("BAD_STATEID", free_stateid(o.deleg_stateid))


def test_a_delegation_outlives_close(c):
    two = client()
    o = fresh(c, "f")
    c.ok(putfh(o.fh), close(o.stateid))
    holds(c, o)
    recalls(c, o, two, putfh(o.fh), open_(claim_fh(), WRITE | NO_DELEG))


def test_an_open_outlives_its_delegation(c):
    o = fresh(c, "f", D_WRITE)
    c.ok(putfh(o.fh), delegreturn(o.deleg_stateid), write(o.stateid, 0, b"x"), close(o.stateid))


def test_a_returned_delegation_can_be_had_again(c):
    """Only a recall for a conflict makes a file unfit."""
    o = fresh(c, "f")
    c.ok(putfh(o.fh), delegreturn(o.deleg_stateid), close(o.stateid))
    take(c, o.fh)


def test_a_delegation_survives_a_session(c):
    two = client()
    o = fresh(c, "f", D_WRITE)
    c.ok(destroy_session(c.session.sessionid))
    c.create_session()
    holds(c, o)
    recalls(c, o, two, putfh(o.fh), open_(claim_fh(), READ | NO_DELEG))


def test_a_client_with_a_delegation_is_busy(c):
    one = client()
    f = make(c, "f")
    o = take(one, f)
    one.ok(putfh(f), close(o.stateid))
    c.no("CLIENTID_BUSY", destroy_clientid(one.clientid))
    one.ok(putfh(f), delegreturn(o.deleg_stateid), destroy_session(one.session.sessionid))
    c.ok(destroy_clientid(one.clientid))


def test_a_restarted_clients_delegations_are_gone(c):
    one = client()
    o = take(one, make(c, "f"), D_WRITE)
    new = client(owner=one.owner)
    quick(c, putfh(o.fh), open_(claim_fh(), BOTH | NO_DELEG))
    check(err(new.ok(test_stateid(o.deleg_stateid)).statuses[0]), "BAD_STATEID")
    no_callback(one)


# ---- opens during a recall (10.4.4, 18.16.3)


def test_opens_are_claimed_while_a_recall_is_under_way(c):
    two = client()
    for i, by_name in enumerate((True, False)):
        f = make(c, f"f{i}")
        o = take(c, f, D_WRITE)
        c.ok(putfh(f), close(o.stateid))
        got = []

        def before(args, f=f, o=o, i=i, by_name=by_name, got=got):
            claim = ([putfh(c.d), open_(claim_delegate_cur(o.deleg_stateid, f"f{i}"),
                                        BOTH | WANT_WRITE)] if by_name
                     else [putfh(f), open_(claim_deleg_cur_fh(o.deleg_stateid), BOTH | WANT_WRITE)])
            got.append(c.ok(*claim))
            c.ok(putfh(f), write(got[0].stateid, 0, b"flushed", FILE_SYNC))
            got.append(it.done())
        obey(c, before=before)
        it = later(two, putfh(f), open_(claim_fh(), READ | NO_DELEG), read(CURRENT, 0, 7))
        check(it.result().results[-1].data, b"flushed")
        c.wait_callback("RECALL")
        check(got[0].deleg in (D_NONE, D_NONE_EXT), True,
              "a delegation for a claim of the delegation")
        check(got[1], False, "the conflicting open did not wait")
        c.ok(putfh(f), write(got[0].stateid, 0, b"x"), close(got[0].stateid))


def test_a_claimed_open_denies(c):
    """The claimed open is there before the conflicting one is decided."""
    two = client()
    o = fresh(c, "f", D_WRITE)
    c.ok(putfh(o.fh), close(o.stateid))
    obey(c, open_(claim_deleg_cur_fh(o.deleg_stateid), READ | NO_DELEG, WRITE))
    check(err(settled(two, putfh(o.fh), open_(claim_fh(), WRITE | NO_DELEG)).status),
          "SHARE_DENIED")
    c.wait_callback("RECALL")


def test_a_claim_without_recall_is_an_open(c):
    o = fresh(c, "f")
    c.ok(putfh(o.fh), close(o.stateid))
    for claim in ([putfh(c.d), open_(claim_delegate_cur(o.deleg_stateid, "f"), READ)],
                  [putfh(o.fh), open_(claim_deleg_cur_fh(o.deleg_stateid), READ)]):
        r = c.ok(*claim)
        check(r.deleg in (D_NONE, D_NONE_EXT), True)
        c.ok(putfh(o.fh), read(r.stateid, 0, 1), close(r.stateid))
    holds(c, o)
    no_callback(c)


def test_a_claim_of_a_read_delegation_does_not_write(c):
    """A read delegation does not cover an open for writing (10.4): the server does not pass over
    other clients' delegations."""
    two = client()
    o = fresh(c, "f")
    other = take(two, o.fh)
    obey(two)
    got = c.call(putfh(o.fh),
                 open_(claim_deleg_cur_fh(o.deleg_stateid), BOTH | NO_DELEG, owner=b"w"))
    gone = err(two.ok(test_stateid(other.deleg_stateid)).statuses[0]) == "BAD_STATEID"
    check(got.status != 0 or gone, True, "open for writing beside another's read delegation")


def test_claims_with_a_delegation_that_is_not_theirs(c):
    two = client()
    o, g = fresh(c, "f"), make(c, "g")
    gone = fresh(c, "gone")
    c.ok(putfh(gone.fh), delegreturn(gone.deleg_stateid))
    two.no("BAD_STATEID", putfh(o.fh), open_(claim_deleg_cur_fh(o.deleg_stateid), READ))
    two.no("BAD_STATEID", putfh(c.d), open_(claim_delegate_cur(o.deleg_stateid, "f"), READ))
    c.no("BAD_STATEID", putfh(g), open_(claim_deleg_cur_fh(o.deleg_stateid), READ))
    c.no("BAD_STATEID", putfh(c.d), open_(claim_delegate_cur(o.deleg_stateid, "g"), READ))
    c.no("BAD_STATEID", putfh(o.fh), open_(claim_deleg_cur_fh(o.stateid), READ))
    c.no("BAD_STATEID", putfh(gone.fh), open_(claim_deleg_cur_fh(gone.deleg_stateid), READ))
    for sid in (ANON, BYPASS):
        c.no("BAD_STATEID", putfh(o.fh), open_(claim_deleg_cur_fh(sid), READ))
    c.no("NOENT", putfh(c.d), open_(claim_delegate_cur(o.deleg_stateid, "nothing"), READ))
    holds(c, o)


def test_data_is_flushed_by_layouts_while_a_recall_is_under_way(c):
    two = client()
    o = take(c, make(c, "f"), D_WRITE, WANT_XOR)
    obey(c, layoutget(o.deleg_stateid, IO_RW), layoutreturn(CURRENT),
         write(o.deleg_stateid, 0, b"flushed", FILE_SYNC))
    got = settled(two, putfh(o.fh), open_(claim_fh(), READ | NO_DELEG), read(CURRENT, 0, 7))
    check(got.results[-1].data, b"flushed")
    c.wait_callback("RECALL")
    c.ok(putrootfh())
    check(c.status_flags & REVOKED, 0)


def test_a_truncation_recalls_delegation_and_layout(c):
    two, names = client(), []
    o = take(c, make(c, "f"), D_WRITE, WANT_XOR)
    held = c.ok(putfh(o.fh), layoutget(o.deleg_stateid, IO_RW)).stateid

    def on_callback(name, args):
        names.append(name)
        back = ([write(o.deleg_stateid, 0, b"x"), delegreturn(args.stateid)] if name == "RECALL"
                else [layoutreturn(args.stateid)])
        Later(lambda: c.ok(putfh(o.fh), *back))
        return 0
    c.on_callback = on_callback
    quick(two, putfh(o.fh), setattr_(size=3))
    check(two.attrs(o.fh, "size").size, 3)
    check(sorted(names), ["LAYOUTRECALL", "RECALL"])
    check([err(x) for x in c.ok(test_stateid(o.deleg_stateid, held)).statuses], ["BAD_STATEID"] * 2)
    check(c.status_flags & REVOKED, 0)


# ---- holders that fail (10.4.5, 10.4.6)


def test_a_holder_that_does_not_return_is_revoked(c):
    two = client()
    o, w = fresh(c, "f", D_WRITE), fresh(c, "g")
    kept = fresh(c, "kept")
    began = time.monotonic()
    its = [later(two, putfh(x.fh), open_(claim_fh(), BOTH | NO_DELEG, owner=b"o%d" % i))
           for i, x in enumerate((o, w))]
    check([err(it.result().status) for it in its], ["OK", "OK"])
    took = time.monotonic() - began
    check(0.8 < took < 2.6, True, f"took {took:.1f} s with a deadline of 1 s")
    c.ok(putrootfh())
    check(c.status_flags & REVOKED, REVOKED, "SEQ4_STATUS_RECALLABLE_STATE_REVOKED")
    sid = o.deleg_stateid
    check([err(s) for s in c.ok(test_stateid(sid, w.deleg_stateid, kept.deleg_stateid)).statuses],
          ["DELEG_REVOKED", "DELEG_REVOKED", "OK"])
    c.no("DELEG_REVOKED", putfh(o.fh), write(sid, 0, b"late"))
    c.no("DELEG_REVOKED", putfh(o.fh), read(sid, 0, 1))
    c.no("DELEG_REVOKED", putfh(o.fh), setattr_(sid, size=1))
    c.no("DELEG_REVOKED", putfh(o.fh), layoutget(sid, IO_READ))
    c.no("DELEG_REVOKED", putfh(o.fh), open_(claim_deleg_cur_fh(sid), READ))
    c.no("DELEG_REVOKED", putfh(c.d), open_(claim_delegate_cur(sid, "f"), READ))
    got = c.call(putfh(o.fh), delegreturn(sid))
    check(err(got.status) in ("OK", "DELEG_REVOKED"), True, f"DELEGRETURN: {err(got.status)}")
    if got.status:
        c.ok(free_stateid(sid))
    c.no("BAD_STATEID", putfh(o.fh), read(sid, 0, 1))
    c.no("BAD_STATEID", free_stateid(sid))
    c.ok(putrootfh())
    check(c.status_flags & REVOKED, REVOKED, "one of two is acknowledged")
    c.ok(free_stateid((0, w.deleg_stateid[1])))
    c.ok(putrootfh())
    check(c.status_flags & REVOKED, 0, "after FREE_STATEID")
    # The opens are consistent with the other's, and live (10.4.6).
    c.ok(putfh(o.fh), write(o.stateid, 0, b"x"), putfh(w.fh), read(w.stateid, 0, 1))
    holds(c, kept)


def test_answers_to_a_recall(c):
    """The server repeats a recall after DELAY. A holder that does not know its delegation yet may
    still learn of it, and returns it in time."""
    two = client()
    for i, answers in enumerate(([DELAY], [DELAY, DELAY], [BADHANDLE], [BAD_STATEID])):
        o = fresh(c, f"f{i}", D_WRITE)
        c.ok(putrootfh())  # it has the reply: else there is a pause of half a second after each
        obey(c, answers=answers)
        got = settled(two, putfh(o.fh), open_(claim_fh(), BOTH | NO_DELEG))
        check(err(got.status), "OK", str(answers))
        c.ok(putrootfh())
        check(c.status_flags & REVOKED, 0, f"{answers}: revoked")
        check(err(c.ok(test_stateid(o.deleg_stateid)).statuses[0]), "BAD_STATEID")
        n = 0
        with contextlib.suppress(TimeoutError):
            while c.wait_callback("RECALL", 0.05).stateid == o.deleg_stateid:
                n += 1
        check(n, len(answers) + 1, f"{answers}: recalls")


def test_holders_that_never_answer_well_are_revoked(c):
    """Silence, endless DELAY, endless BADHANDLE and a cut connection: no holder delays other
    clients past the deadline."""
    two, holders = client(), []
    for name, answer in (("silent", None), ("delay", DELAY), ("badhandle", BADHANDLE),
                         ("inval", 22), ("garbage", b"\1\2\3\4"), ("cut", 0)):
        h = client()
        h.on_callback = lambda name, args, answer=answer: answer
        o = take(h, make(c, name), D_WRITE)
        holders.append((name, h, o))
        for _, held, _ in holders:
            held.ok()
    h.drop()
    h.conns = [h.connection()]  # without callbacks: it has not bound it
    with living([h for _, h, _ in holders]) as late:
        began = time.monotonic()
        its = [(name,
                later(two, putfh(o.fh), open_(claim_fh(), READ | NO_DELEG, owner=name.encode())))
               for name, h, o in holders]
        for name, it in its:
            check(err(it.result(30).status), "OK", name)
        took = time.monotonic() - began
    check(0.7 < took < 3 + sum(late), True,
          f"took {took:.1f} s, of which the machine {sum(late):.1f}")
    for name, h, o in holders:
        status = err(h.ok(test_stateid(o.deleg_stateid)).statuses[0])
        # What is no answer of DELAY or OK may end the recall, and the delegation (20.2.4).
        check(status in (("DELEG_REVOKED",) if name in ("silent", "delay", "cut")
                         else ("DELEG_REVOKED", "BAD_STATEID")), True, f"{name}: {status}")
        check(h.status_flags & REVOKED, REVOKED if status == "DELEG_REVOKED" else 0, name)
        h.no((status,), putfh(o.fh), read(o.deleg_stateid, 0, 1))


def test_a_recall_follows_the_client_to_a_new_connection(c):
    two = client()
    o = fresh(c, "f", D_WRITE)
    c.drop()
    it = later(two, putfh(o.fh), open_(claim_fh(), READ | NO_DELEG))
    time.sleep(0.2)
    check(it.done(), False)
    obey(c)
    c.conns = [c.connection()]
    first(c, "OK", bind_conn(c.session.sessionid, 7))
    check(err(it.result().status), "OK")
    check(c.wait_callback("RECALL").stateid, o.deleg_stateid)
    c.ok(putrootfh())
    check(c.status_flags & (REVOKED | CB_PATH_DOWN), 0)


def test_a_recall_follows_the_client_to_a_new_session(c):
    two = client()
    o = fresh(c, "f", D_WRITE)
    c.ok(destroy_session(c.session.sessionid))
    it = later(two, putfh(o.fh), open_(claim_fh(), READ | NO_DELEG))
    time.sleep(0.1)
    obey(c)
    c.create_session()
    check(err(it.result().status), "OK")
    check(c.wait_callback("RECALL").stateid, o.deleg_stateid)


def cut(c, lost):
    """Drops the connection during a callback. lost: the callback never arrived; otherwise its
    answer never left."""
    c.wait_callback("RECALL")
    c.drop()
    if lost:
        c.cb_seqs = {slot: seq - 1 for slot, seq in c.cb_seqs.items()}
    c.conns = [c.connection()]
    first(c, "OK", bind_conn(c.session.sessionid, 7))


def test_a_recall_that_was_lost_is_sent_again(c):
    two = client()
    o = fresh(c, "f", D_WRITE)
    c.on_callback = lambda name, args: None
    it = later(two, putfh(o.fh), open_(claim_fh(), READ | NO_DELEG))
    c.wait_callback("RECALL")
    with c.cb_cond:
        c.callbacks.append(Obj(name="RECALL"))
    obey(c)
    cut(c, True)
    check(err(it.result().status), "OK")
    check(c.wait_callback("RECALL").stateid, o.deleg_stateid)
    c.ok(putrootfh())
    check(c.status_flags & REVOKED, 0)


def test_a_recall_whose_answer_was_lost_is_obeyed(c):
    """2.10.6.2: the server sends it again in its slot. The client has it already, and answers
    RETRY_UNCACHED_REP."""
    two = client()
    o = fresh(c, "f", D_WRITE)
    c.on_callback = lambda name, args: None
    it = later(two, putfh(o.fh), open_(claim_fh(), READ | NO_DELEG))
    cut(c, False)
    time.sleep(0.2)
    check(it.done(), False, "the conflicting open was done")
    c.ok(putfh(o.fh), delegreturn(o.deleg_stateid))
    check(err(it.result().status), "OK")
    c.ok(putrootfh())
    check(c.status_flags & REVOKED, 0)


@brief
def test_silent_holders_and_files_in_contention(c):
    """Several tests share one pause. State of a client whose lease ended blocks no other client. A
    file in contention can have delegations again after a lease."""
    two, silent = client(), client()
    read_, write_ = take(silent, make(c, "r")), take(silent, make(c, "w"), D_WRITE)
    xor = take(silent, make(c, "x"), D_WRITE, WANT_XOR)
    courteous = client()
    kept = [take(courteous, make(c, f"k{kind}"), kind) for kind in (D_READ, D_WRITE)]
    recalled = [fresh(c, "c1"), fresh(c, "c2", D_WRITE)]
    for o in recalled:
        c.ok(putfh(o.fh), close(o.stateid))
        r = recalls(c, o, two, putfh(o.fh), open_(claim_fh(), WRITE | NO_DELEG))
        two.ok(putfh(o.fh), close(r.stateid))
        refused(ask(c, o.fh, READ, WANT_READ, owner=b"1"), CONTENTION)
        refused(ask(c, o.fh, BOTH, WANT_WRITE, owner=b"2"), CONTENTION)
        check(ask(c, o.fh, READ, 0, owner=b"3").deleg, D_NONE)
        refused(c.ok(putfh(o.fh), want_delegation(WANT_READ)), CONTENTION)
    end = time.monotonic() + LEASE + 0.6
    while time.monotonic() < end:
        time.sleep(0.4)
        c.ok(putrootfh()), two.ok(putrootfh())
    for o in recalled:
        n = ask(c, o.fh, READ, WANT_READ, owner=b"1")
        check((n.deleg, getattr(n, "why", None)), (D_READ, None), "after a lease")
    for o in kept:  # nobody wanted them
        holds(courteous, o)
        recalls(courteous, o, two, putfh(o.fh), open_(claim_fh(), WRITE | NO_DELEG))
    quick(two, putfh(read_.fh), setattr_(mode=0o600))
    quick(two, putfh(write_.fh), open_(claim_fh(), BOTH | NO_DELEG))
    quick(two, putfh(xor.fh), open_(claim_fh(), READ | NO_DELEG))
    got = silent.conn.compound(sequence(silent.session.sessionid, silent.slots[0] + 1, 0, 0))
    check(err(got.status) == "BADSESSION" or got.results[0].flags & 0x78 != 0, True,
          "the silent client is not told")


# ---- CB_GETATTR (10.4.3)


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


WATCHED = "change", "size", "time_modify", "time_metadata"


def test_an_unmodified_file_has_the_servers_attributes(c):
    two = client()
    o = fresh(c, "f", D_WRITE)
    before = c.attrs(o.fh, *WATCHED)
    answers(c, o)
    for _ in range(2):
        check(vars(two.attrs(o.fh, *WATCHED)), vars(before))
    for one in c.asked:
        check(one.fh, o.fh)
        check(one.bits <= {3, 4}, True, f"asks for {one.bits}")
    check(any(4 in one.bits for one in c.asked) and any(3 in one.bits for one in c.asked), True,
          "it was not asked")
    c.callbacks.clear()
    holds(c, o)


def test_a_modified_file_moves_on_with_every_getattr(c):
    two = client()
    o = fresh(c, "f", D_WRITE)
    before = c.attrs(o.fh, *WATCHED)
    answers(c, o, change=o.change + 1, size=1000)
    last, seen = before, []
    for _ in range(3):
        time.sleep(0.02)
        got = two.attrs(o.fh, *WATCHED)
        check(got.size, 1000, "size")
        check(got.change > last.change, True, f"change {got.change} after {last.change}")
        check(got.time_modify > last.time_modify and got.time_metadata > last.time_metadata, True,
              "mtime and ctime")
        check(abs(got.time_modify[0] - time.time()) < 5, True, "mtime is now")
        last = got
        seen.append(got)
    # What the holder never writes was never its size; change and times do not go back.
    c.ok(putfh(o.fh), delegreturn(o.deleg_stateid))
    after = two.attrs(o.fh, *WATCHED)
    check(after.size, 10, "the server's size was changed")
    check(after.change >= last.change and after.time_modify >= last.time_modify, True,
          "it went back")


def test_a_larger_size_alone_is_a_modification(c):
    two = client()
    o = fresh(c, "f", D_WRITE)
    before = c.attrs(o.fh, *WATCHED)
    answers(c, o, size=11)
    got = two.attrs(o.fh, *WATCHED)
    check((got.size, got.change > before.change, got.time_modify > before.time_modify),
          (11, True, True))


def test_a_smaller_size_is_a_modification(c):
    two = client()
    o = fresh(c, "f", D_WRITE)
    answers(c, o, change=o.change + 1, size=4)
    got = two.attrs(o.fh, *WATCHED)
    check((got.size, got.change > o.change), (4, True))


def test_any_one_of_the_attributes_asks(c):
    two = client()
    for name in WATCHED:
        o = fresh(c, name, D_WRITE)
        before = getattr(c.attrs(o.fh, name), name)
        answers(c, o, change=o.change + 1, size=77)
        time.sleep(0.01)
        got = getattr(two.attrs(o.fh, name), name)
        if name == "size":
            check(got, 77)
        else:
            check(got > before, True, f"{name}: {got} after {before}")
        check(len(c.asked) > 0, True, name)


def test_getattr_of_other_attributes_asks_nobody(c):
    two = client()
    o = fresh(c, "f", D_WRITE)
    answers(c, o, change=o.change + 1, size=77)
    for names in (["type"], ["fileid", "fsid", "filehandle"],
                  ["mode", "owner", "owner_group", "numlinks"], ["lease_time", "supported_attrs"],
                  ["time_create"]):
        quick(two, putfh(o.fh), getattr_(*names))
    quick(two, putfh(c.d), lookup("f"), access(1))
    check(len(c.asked), 0)
    no_callback(c)


def test_the_holders_own_getattr_asks_nobody(c):
    o = fresh(c, "f", D_WRITE)
    answers(c, o, change=o.change + 1, size=77)
    check(c.attrs(o.fh, *WATCHED).size, 10)
    c.no("NOT_SAME", putfh(o.fh), verify(size=77))
    c.no("SAME", putfh(o.fh), nverify(size=10))
    c.ok(putfh(o.fh), getattr_(*WATCHED), delegreturn(o.deleg_stateid))
    check(len(c.asked), 0)
    no_callback(c)


def test_a_read_delegation_asks_nobody(c):
    two = client()
    o = fresh(c, "f")
    answers(c, o, change=o.change + 1, size=77)
    check(two.attrs(o.fh, *WATCHED).size, 10)
    no_callback(c)


def test_verify_and_nverify_ask_too(c):
    two = client()
    o = fresh(c, "f", D_WRITE)
    answers(c, o, change=o.change + 1, size=77)
    check(err(settled(two, putfh(o.fh), verify(size=77)).status), "OK",
          "VERIFY of the holder's size")
    check(err(settled(two, putfh(o.fh), verify(size=10)).status), "NOT_SAME",
          "VERIFY of the server's size")
    check(err(settled(two, putfh(o.fh), nverify(size=77)).status), "SAME",
          "NVERIFY of the holder's size")
    check(err(settled(two, putfh(o.fh), nverify(size=10)).status), "OK",
          "NVERIFY of the server's size")
    check(err(settled(two, putfh(o.fh), verify(change=o.change)).status), "NOT_SAME",
          "VERIFY of the old change")


def test_getattrs_at_once_are_all_answered(c):
    o = fresh(c, "f", D_WRITE)
    answers(c, o, change=o.change + 1, size=1000)
    slowly = c.on_callback

    def on_callback(name, args):
        time.sleep(0.1)
        return slowly(name, args)
    c.on_callback = on_callback
    others = [client() for _ in range(6)]
    its = [later(one, putfh(o.fh), getattr_(*WATCHED)) for one in others]
    got = [it.result().results[-1].attrs for it in its]
    check([g.size for g in got], [1000] * 6)
    check(all(g.change > o.change for g in got), True)
    more = others[0].attrs(o.fh, "change")
    check(more.change > max(g.change for g in got), True, "a later one moves on")


def test_a_holder_that_answers_nonsense_is_recalled(c):
    """The server checks the answer of a holder. It recalls the delegation when the answer is an
    error, is cut, lacks what was asked for, or has more."""
    two = client()
    for i, body in enumerate((fattr(), fattr(mode=0o777), b"", u32(1) + u32(8) + opaque(b"\1\2"),
                              BADHANDLE, 10006,
                              u32(1) + u32(1 << 3 | 1 << 4) + opaque(u64(7)), u32(2**31))):
        o = fresh(c, f"f{i}", D_WRITE)
        obey(c)
        recall = c.on_callback
        c.on_callback = (lambda name, args, body=body, recall=recall: body if name == "GETATTR"
                         else recall(name, args))
        r = settled(two, putfh(o.fh), getattr_("size", "change"))
        check(err(r.status), "OK", f"body {i}")
        check(r.results[-1].attrs.size, 10, f"body {i}")
        c.wait_callback("RECALL", 3)
        c.callbacks.clear()


def test_holders_that_do_not_answer_getattr_are_recalled(c):
    two, cut_off = client(), client()
    o, gone = fresh(c, "f", D_WRITE), take(cut_off, make(c, "g"), D_WRITE)
    obey(c)
    recall = c.on_callback
    c.on_callback = lambda name, args: None if name == "GETATTR" else recall(name, args)
    cut_off.drop()
    its = [later(two, putfh(x.fh), getattr_("size")) for x in (o, gone)]
    began = time.monotonic()
    c.wait_callback("GETATTR")
    c.wait_callback("RECALL", 4)
    for name, it in zip(("the silent one", "the one that is cut off"), its):
        it.thread.join(5)
        check(it.done(), True, f"GETATTR of the file of {name} is answered")
        check(it.result().results[-1].attrs.size, 10)
    check(time.monotonic() - began < 4, True, f"took {time.monotonic() - began:.1f} s")
    c.ok(putrootfh())
    check(c.status_flags & REVOKED, 0)
    cut_off.conns = [cut_off.connection()]
    check(err(cut_off.ok(test_stateid(gone.deleg_stateid)).statuses[0]), "DELEG_REVOKED")


def test_a_holder_that_returns_instead_of_answering(c):
    two = client()
    o = fresh(c, "f", D_WRITE)
    going = []

    def on_callback(name, args):
        if name == "GETATTR":
            going.append(Later(lambda: c.ok(putfh(o.fh),
                                            write(o.deleg_stateid, 0, bytes(20), FILE_SYNC),
                                            delegreturn(o.deleg_stateid))))
        return None
    c.on_callback = on_callback
    began = time.monotonic()
    check(settled(two, putfh(o.fh), getattr_("size")).results[-1].attrs.size, 20)
    check(time.monotonic() - began < 2.5, True, f"took {time.monotonic() - began:.1f} s")
    # The thread that got the callback may run later than the operation that caused it.
    eventually(lambda: going, what="GETATTR")
    going[0].result()
    c.ok(putrootfh())
    check(c.status_flags & REVOKED, 0)


def test_a_holder_that_delays_getattr_is_waited_for(c):
    two = client()
    o = fresh(c, "f", D_WRITE)
    answers(c, o, change=o.change + 1, size=77)
    answer, n = c.on_callback, []

    def on_callback(name, args):
        n.append(name)
        return DELAY if n == ["GETATTR"] else answer(name, args)
    c.on_callback = on_callback
    got = settled(two, putfh(o.fh), getattr_("size"))
    check(err(got.status), "OK")
    # Asked again, or recalled: either tells the truth.
    check(got.results[-1].attrs.size, 77 if "RECALL" not in n else 10, str(n))


def test_writing_by_the_holder_shows(c):
    """The holder wrote its data. The server reports its own values, and the holder's change
    attribute is no news to it."""
    two = client()
    o = fresh(c, "f", D_WRITE)
    c.ok(putfh(o.fh), write(o.deleg_stateid, 0, b"x" * 50, FILE_SYNC))
    now = c.attrs(o.fh, *WATCHED)
    check(now.size, 50)
    answers(c, o, change=o.change + 1, size=50)
    got = two.attrs(o.fh, *WATCHED)
    check((got.size, got.change >= now.change), (50, True))


# ---- RFC 9754: open_arguments


def words(*bits):
    return u32(1) + u32(sum(1 << b for b in bits))


def open_arguments(c, *want):
    raw = c.conn.rpc(1, compound_args([sequence(c.session.sessionid, c.slots[0] + 1, 0, 0),
                                       putrootfh(), getattr_("open_arguments")], 2), c.cred)
    c.slots[0] += 1
    value = (words(1, 2, 3) + words(0, 1, 2, 3) + words(*want) + words(0, 1, 2, 4, 5)
             + words(0, 1, 3))
    check(raw[-len(value):].hex(), value.hex(),
          "oa_share_access, _deny, _access_want, oa_open_claim, oa_create_mode")
    check(raw[-len(value) - 4:-len(value)], u32(len(value)))


def test_open_arguments_byte_by_byte(c):
    open_arguments(c, 3, 4, 5, 21)
    supported = c.attrs(c.d, "supported_attrs").supported_attrs
    check((86 in supported, 84 in supported, 85 in supported), (True, False, False))


def test_without_delegated_times_the_attributes_are_unsupported(c):
    o = ask(c, make(c, "f"), BOTH, WANT_WRITE | WANT_TIMES)
    check(o.deleg, D_WRITE)
    c.no("ATTRNOTSUPP", putfh(o.fh), setattr_(o.deleg_stateid, time_deleg_modify=(1, 0)))
    check(c.ok(putfh(o.fh), getattr_("time_deleg_modify")).attrs.bits, set())


# ---- RFC 9754: open XOR delegation


def xor(c, o):
    """Only the delegation came."""
    check((o.stateid, o.rflags & NO_OPEN_STATEID), (ANON, NO_OPEN_STATEID))


def test_only_the_delegation_comes(c):
    for kind in (D_READ, D_WRITE):
        o = take(c, make(c, f"f{kind}"), kind, WANT_XOR)
        xor(c, o)
        holds(c, o)
        c.ok(putfh(o.fh), layoutget(o.deleg_stateid, IO_READ))
        if kind == D_WRITE:
            c.ok(putfh(o.fh), write(o.deleg_stateid, 0, b"x"), layoutget(o.deleg_stateid, IO_RW),
                 setattr_(o.deleg_stateid, size=4))
        c.ok(putfh(o.fh), delegreturn(o.deleg_stateid))
        c.no("BAD_STATEID", putfh(o.fh), read(o.deleg_stateid, 0, 1))


def test_the_delegation_is_the_current_stateid(c):
    f = make(c, "f")
    r = c.ok(putfh(f), open_(claim_fh(), BOTH | WANT_WRITE | WANT_XOR),
             write(CURRENT, 0, b"cur", FILE_SYNC), read(CURRENT, 0, 3), layoutget(CURRENT, IO_RW))
    xor(c, r.all[1])
    check((r.all[3].data, r.layouts[0].iomode), (b"cur", IO_RW))


def test_a_new_file_is_opened_by_its_delegation(c):
    r = c.ok(putfh(c.d), open_("new", BOTH | WANT_WRITE | WANT_XOR, how=GUARDED,
                               attrs={"mode": 0o600}), getfh())
    o = r.all[1]
    o.fh = r.fh
    xor(c, o)
    c.ok(putfh(o.fh), write(o.deleg_stateid, 0, b"x"), read(o.deleg_stateid, 0, 1))


def test_without_a_delegation_the_open_comes(c):
    two, f = client(), make(c, "f")
    two.ok(putfh(f), open_(claim_fh(), BOTH | NO_DELEG))
    for i, want in enumerate((WANT_READ, WANT_ANY, NO_DELEG, 0)):
        o = ask(c, f, READ, want | WANT_XOR, owner=b"o%d" % i)
        check((o.rflags & NO_OPEN_STATEID, o.stateid == ANON), (0, False))
        c.ok(putfh(f), read(o.stateid, 0, 1), close(o.stateid))


def test_an_owner_that_has_the_file_open_gets_both(c):
    f = make(c, "f")
    old = ask(c, f, READ, NO_DELEG)
    o = take(c, f, D_WRITE, WANT_XOR)
    check(o.rflags & NO_OPEN_STATEID, 0)
    check(o.stateid, (old.stateid[0] + 1, old.stateid[1]))
    c.ok(putfh(f), write(o.stateid, 0, b"x"))


def test_another_owner_gets_its_open(c):
    """There is a delegation already: what the second owner asks for is an open."""
    o = take(c, make(c, "f"), D_WRITE, WANT_XOR)
    n = ask(c, o.fh, READ, WANT_READ | WANT_XOR, owner=b"second")
    if n.rflags & NO_OPEN_STATEID:
        check(n.deleg_stateid[1], o.deleg_stateid[1], "another delegation of one client")
    else:
        c.ok(putfh(o.fh), read(n.stateid, 0, 1), close(n.stateid))
    no_callback(c)
    holds(c, o)
    c.ok(putfh(o.fh), delegreturn((0, o.deleg_stateid[1])))
    c.no("BAD_STATEID", putfh(o.fh), delegreturn((0, o.deleg_stateid[1])))


def test_what_denies_the_holder_waits_and_is_denied(c):
    """A delegation alone counts as an open. Its holder may turn it into one before the server
    decides on another client's deny."""
    two = client()
    for i, (kind, acc, deny) in enumerate(((D_WRITE, BOTH, WRITE), (D_WRITE, BOTH, READ),
                                           (D_READ, READ, READ))):
        o = take(c, make(c, f"f{i}"), kind, WANT_XOR)
        obey(c, open_(claim_deleg_cur_fh(o.deleg_stateid), acc | NO_DELEG))
        check(err(settled(two, putfh(o.fh), open_(claim_fh(), READ | NO_DELEG, deny)).status),
              "SHARE_DENIED")
        c.wait_callback("RECALL")


def test_an_open_that_denies_comes_with_its_stateid(c):
    """A delegation alone cannot say what is denied."""
    two, f = client(), make(c, "f")
    o = take(c, f, D_WRITE, WANT_XOR, deny=WRITE)
    check((o.rflags & NO_OPEN_STATEID, o.stateid == ANON), (0, False))
    recalls(c, o, two, putfh(f), open_(claim_fh(), WRITE | NO_DELEG), want="SHARE_DENIED")


def test_a_file_its_holder_removed_lives_until_the_delegreturn(c):
    for i, replaced in enumerate((False, True)):
        o = take(c, make(c, f"f{i}"), D_WRITE, WANT_XOR)
        xor(c, o)
        if replaced:
            c.ok(putfh(c.d), create(FIFO, "p"), putfh(c.d), savefh(), rename("p", f"f{i}"))
        else:
            c.ok(putfh(c.d), remove(f"f{i}"))
        no_callback(c)
        c.ok(putfh(o.fh), write(o.deleg_stateid, 0, b"still"), read(o.deleg_stateid, 0, 5),
             getattr_("numlinks"))
        check(c.attrs(o.fh, "numlinks").numlinks, 0)
        c.ok(putfh(o.fh), delegreturn(o.deleg_stateid))
        c.until(lambda got: err(got.status) == "STALE", putfh(o.fh), getattr_("size"))


def test_a_file_another_removed_lives_with_the_opens_claimed(c):
    two = client()
    o = take(c, make(c, "f"), D_WRITE, WANT_XOR)
    sids = []
    obey(c, before=lambda args: sids.append(
        c.ok(putfh(o.fh), open_(claim_deleg_cur_fh(o.deleg_stateid), BOTH | NO_DELEG)).stateid))
    check(err(settled(two, putfh(c.d), remove("f")).status), "OK")
    c.ok(putfh(o.fh), write(sids[0], 0, b"still"), read(sids[0], 0, 5), close(sids[0]))
    c.until(lambda got: err(got.status) == "STALE", putfh(o.fh), getattr_("size"))


def test_a_delegation_alone_keeps_a_conflict_waiting(c):
    two = client()
    for kind in (D_READ, D_WRITE):
        o = take(c, make(c, f"f{kind}"), kind, WANT_XOR)
        recalls(c, o, two, putfh(o.fh), open_(claim_fh(), BOTH | NO_DELEG))


# ---- delegated times, restarts, settings: clusters of their own


def deleg_times(c):
    open_arguments(c, 3, 4, 5, 20, 21)
    supported = c.attrs(c.d, "supported_attrs").supported_attrs
    check({84, 85} <= supported, True, "supported_attrs")
    two = client()
    plain = fresh(c, "plain", D_WRITE)
    c.no("BAD_STATEID", putfh(plain.fh), setattr_(plain.deleg_stateid, time_deleg_modify=(1, 0)))
    for name, want, acc, kind in (("r", WANT_READ, READ, D_READ_TIMES),
                                  ("w", WANT_WRITE, BOTH, D_WRITE_TIMES)):
        o = ask(c, make(c, name), acc, want | WANT_TIMES)
        check(o.deleg, kind)
        holds(c, o)
        check(ask(c, make(c, name + "x"), acc, want | WANT_TIMES | WANT_XOR).deleg, kind)
    return two


def set_times(c, o, **times):
    return c.ok(putfh(o.fh), setattr_(o.deleg_stateid, **times),
                getattr_("time_access", "time_modify", "time_metadata", "change")).attrs


def test_delegated_times(c):
    with own("mds.delegated_times=true") as (w, c):
        two = deleg_times(c)
        for name in ("time_deleg_access", "time_deleg_modify"):
            f = make(c, "inval" + name)
            c.no("INVAL", putfh(f), getattr_(name))
            c.no("INVAL", putfh(f), verify(**{name: (1, 0)}))
            c.no("INVAL", putfh(f), nverify(**{name: (1, 0)}))
            c.no("INVAL", putfh(c.d), create(DIR, "x" + name, mode=0o700, **{name: (1, 0)}))
            c.no("INVAL", putfh(c.d), open_("y" + name, BOTH | NO_DELEG, how=GUARDED,
                                            attrs={"mode": 0o600, name: (1, 0)}))
            c.no("BAD_STATEID", putfh(f), setattr_(ANON, **{name: (1, 0)}))
        o = take_times(c, "f")
        two.no("BAD_STATEID", putfh(o.fh), setattr_(o.deleg_stateid, time_deleg_modify=(1, 0)))
        c.no("BAD_STATEID", putfh(o.fh), setattr_(o.stateid, time_deleg_modify=(1, 0)))
        a = c.attrs(o.fh, "time_access", "time_modify", "time_metadata", "change")
        # Earlier than what is stored: ignored.
        b = set_times(c, o, time_deleg_access=(5, 5), time_deleg_modify=(6, 6))
        check((b.time_access, b.time_modify, b.time_metadata),
              (a.time_access, a.time_modify, a.time_metadata))
        # The access time moves no ctime and no change.
        time.sleep(0.03)
        at = now_minus(0.01)
        b = set_times(c, o, time_deleg_access=at)
        check((b.time_access, b.time_modify, b.time_metadata), (at, a.time_modify, a.time_metadata))
        # The modify time moves ctime, to itself, and change.
        mt = now_minus(0.005)
        m = set_times(c, o, time_deleg_modify=mt)
        check((m.time_access, m.time_modify, m.time_metadata), (at, mt, mt))
        check(m.change > b.change, True, "change")
        # The future is now.
        ahead = int(time.time()) + 1000
        f = set_times(c, o, time_deleg_access=(ahead, 0), time_deleg_modify=(ahead, 0))
        for t in (f.time_access, f.time_modify, f.time_metadata):
            check(mt < t <= now_minus(-0.5), True, f"{t} where {ahead} was told")
        check(f.time_access, f.time_modify, "one sample of now")
        c.ok(putfh(o.fh), delegreturn(o.deleg_stateid))
        c.no("BAD_STATEID", putfh(o.fh), setattr_(o.deleg_stateid, time_deleg_modify=mt))
        # A read delegation has an access time only to tell, and may tell it.
        r = ask(c, make(c, "g"), READ, WANT_READ | WANT_TIMES)
        time.sleep(0.02)
        at = now_minus(0.005)
        check(set_times(c, r, time_deleg_access=at).time_access, at)
        r = c.ok(putfh(r.fh), setattr_(r.deleg_stateid, time_deleg_access=now_minus(0)),
                 delegreturn(r.deleg_stateid))
        times_in_cb_getattr(c, two)


def now_minus(seconds):
    t = time.time() - seconds
    return int(t), int(t % 1 * 1e9)


def take_times(c, name):
    o = ask(c, make(c, name), BOTH, WANT_WRITE | WANT_TIMES)
    check(o.deleg, D_WRITE_TIMES)
    return o


def times_in_cb_getattr(c, two):
    o = take_times(c, "cb")
    time.sleep(0.05)
    at, mt = now_minus(0.01), now_minus(0.02)
    answers(c, o, change=o.change + 1, size=99, time_deleg_access=at, time_deleg_modify=mt)
    got = two.attrs(o.fh, *WATCHED, "time_access")
    check({84, 85} <= c.asked[0].bits, True, f"CB_GETATTR asks for {c.asked[0].bits}")
    check((got.size, got.time_access, got.time_modify, got.time_metadata), (99, at, mt, mt))
    check(got.change > o.change, True)
    # Unmodified: an older time and the same change.
    p = take_times(c, "cb2")
    before = c.attrs(p.fh, *WATCHED)
    answers(c, p, time_deleg_access=(1, 0), time_deleg_modify=(1, 0))
    check(vars(two.attrs(p.fh, *WATCHED)), vars(before))
    # The access time is asked for, too; a holder for reading is asked nothing.
    c.asked.clear()
    before = two.attrs(p.fh, "time_access").time_access
    at = now_minus(0.001)
    answers(c, p, time_deleg_access=at, time_deleg_modify=(1, 0))
    check(two.attrs(p.fh, "time_access").time_access, at, f"asked alone, after {before}")
    r = ask(c, make(c, "cbr"), READ, WANT_READ | WANT_TIMES)
    answers(c, r, time_deleg_access=at, time_deleg_modify=at)
    c.callbacks.clear()
    two.attrs(r.fh, *WATCHED, "time_access")
    no_callback(c)
    # The future is now.
    q = take_times(c, "cb3")
    answers(c, q, change=q.change + 1, size=99, time_deleg_access=(2**33, 0),
            time_deleg_modify=(2**33, 0))
    got = two.attrs(q.fh, *WATCHED)
    check(got.time_modify <= now_minus(-0.5), True, f"mtime {got.time_modify}")


def test_settings_none(c):
    with own("mds.delegations=none") as (w, c):
        f = make(c, "f")
        check(ask(c, f, READ, 0).deleg, D_NONE)
        for i, want in enumerate((WANT_READ, WANT_WRITE, WANT_ANY,
                                  WANT_ANY | WANT_XOR | WANT_TIMES)):
            o = ask(c, f, BOTH, want, owner=b"w%d" % i)
            refused(o, RESOURCE, NOT_SUPP_FTYPE, WRITE_NOT_SUPP_FTYPE)
            c.ok(putfh(f), read(o.stateid, 0, 1))
        got = c.call(putfh(f), want_delegation(WANT_READ))
        check(err(got.status) in ("OK", "NOTSUPP"), True)
        if not got.status:
            refused(got.results[-1], RESOURCE, NOT_SUPP_FTYPE)


def test_settings_read(c):
    with own("mds.delegations=read") as (w, c):
        f = make(c, "f")
        for i, want in enumerate((WANT_WRITE, WANT_WRITE, 0)):
            o = ask(c, f, BOTH, want, owner=b"w%d" % i)
            if want:
                refused(o, RESOURCE, WRITE_NOT_SUPP_FTYPE)
            else:
                check(o.deleg in (D_NONE, D_READ), True)
            c.ok(putfh(f), close(o.stateid))
        for i, want in enumerate((WANT_READ, WANT_ANY, 0)):
            check(ask(c, make(c, f"r{i}"), READ, want).deleg, D_READ)


def test_settings_max(c):
    with own("mds.delegations_max=8", "mds.lease=1s") as (w, c):
        two, held = client(), []
        two.d = c.d
        c.on_callback = two.on_callback = lambda name, args: 0
        files = [make(c, f"f{i}") for i in range(14)]
        for i, f in enumerate(files[:8]):
            o = ask(c, f, *((READ, WANT_READ) if i % 2 else (BOTH, WANT_WRITE)))
            if o.deleg == D_NONE_EXT:
                refused(o, RESOURCE)
                break
            held.append(o)
        check(len(held) >= 4, True, f"{len(held)} of 8 were given")
        r = c.wait_callback("RECALL_ANY", 5)
        check((r.mask <= {0, 1}, bool(r.mask), r.keep < 8), (True, True, True),
              f"keep {r.keep}, mask {r.mask}")
        for i, f in enumerate(files[8:]):
            refused(ask(c, f, READ, WANT_READ), RESOURCE)
        refused(ask(two, files[9], BOTH, WANT_WRITE), RESOURCE)
        check(ask(two, files[10], READ, 0).deleg, D_NONE)
        refused(c.ok(putfh(files[11]), want_delegation(WANT_READ)), RESOURCE)
        for o in held[r.keep:] or held[-1:]:
            c.ok(putfh(o.fh), delegreturn(o.deleg_stateid))
        o = ask(two, files[12], READ, WANT_READ)
        check(o.deleg, D_READ, "after some came back")
        two.ok(putfh(o.fh), delegreturn(o.deleg_stateid))
        # What a client holds that is gone is in nobody's way.
        for i in range(8):
            ask(c, make(c, f"more{i}"), READ, WANT_READ)
        f = make(two, "last")
        refused(ask(two, f, READ, WANT_READ, owner=b"0"), RESOURCE)
        c.drop()
        two.until(lambda got: got.results[-1].deleg == D_READ, putfh(f),
                  open_(claim_fh(), READ | WANT_READ), tries=30, pause=0.1)


def test_settings_threshold(c):
    """mdsthreshold (RFC 8881, 5.12.6) where it is set: for files, of the layouts that are given."""
    check(c.attrs(make(c, "f"), "mdsthreshold").mdsthreshold, [], "without a setting")
    with own("mds.threshold=64K") as (w, c):
        f = make(c, "f")
        items = c.attrs(f, "mdsthreshold").mdsthreshold
        check([(kind, hints) for kind, hints, _ in items], [(FLEX, {0, 1})], "read and write size")
        check(items[0][2], u64(65536) * 2)
        check(c.attrs(c.d, "mdsthreshold").mdsthreshold, [], "of a directory")


def threshold(c, fh):
    """What is said of a file; 0: nothing."""
    items = c.attrs(fh, "mdsthreshold").mdsthreshold
    return struct.unpack(">QQ", items[0][2])[0] if items else 0


def policy(c, fh, text):
    return c.ok(putfh(fh), setxattr("weft.policy", text))


def test_a_directorys_threshold_is_that_of_its_files(c):
    """Files inherit it as they do a policy, and existing files follow at once. It depends on where
    a file is."""
    below = c.mkdir(c.d, "below")
    other = c.mkdir(c.d, "other")
    old, deep = make(c, "old"), make(c, "deep", d=below)
    check([threshold(c, f) for f in (old, deep)], [0, 0], "before")
    policy(c, c.d, "threshold=64K")
    check([threshold(c, f) for f in (old, deep, make(c, "new"))], [65536] * 3,
          "files of the directory and below it")
    policy(c, below, "stripes=1,threshold=0")
    policy(c, other, "threshold=1M")
    check([threshold(c, f) for f in (old, deep, make(c, "far", d=other))], [65536, 0, 1 << 20],
          "directories with their own")
    c.ok(putfh(c.d), savefh(), putfh(other), rename("old", "old"))
    check(threshold(c, old), 1 << 20, "moved there")
    c.ok(putfh(other), removexattr("weft.policy"))
    policy(c, c.d, "stripes=1")
    check([threshold(c, f) for f in (old, deep)], [0, 0], "taken away")


def test_a_directorys_threshold_counts_before_the_servers_and_stays_after_a_restart(c):
    with own("mds.threshold=16K") as (w, c):
        big, none = c.mkdir(c.d, "big"), c.mkdir(c.d, "none")
        policy(c, big, "threshold=1M")
        policy(c, none, "threshold=0")
        files = [make(c, "f"), make(c, "g", d=big), make(c, "h", d=none)]
        for when in ("now", "after a restart"):
            check([threshold(c, f) for f in files], [16384, 1 << 20, 0], when)
            if when == "now":
                w.restart()
                steps.again(c)
                c.ok(reclaim_complete())


def test_restart_reclaims_ask_for_permission(c):
    with own() as (w, c):
        s, f = c.open(c.d, "f", attrs={"mode": 0o600})
        o = fresh(c, "w", D_WRITE, owner=b"w")
        c.ok(putfh(o.fh), setattr_(mode=0o600))
        w.restart()
        steps.again(c)
        c.no("ACCESS", putfh(f), open_(claim_previous(0), BOTH | NO_DELEG), cred=USER)
        n = c.ok(putfh(o.fh), want_delegation(WANT_WRITE, claim_previous(D_WRITE)), cred=USER)
        check(n.deleg, D_NONE_EXT, "a delegation for who may not")
        c.ok(putfh(f), open_(claim_previous(0), BOTH | NO_DELEG))
        check(c.ok(putfh(o.fh), want_delegation(WANT_WRITE, claim_previous(D_WRITE))).deleg,
              D_WRITE)
        c.ok(reclaim_complete())


def test_a_recall_that_is_not_obeyed_ends_where_nobody_waits(c):
    """Who is told DELAY does not wait for the holder; the recall has its deadline all the same."""
    two = client()
    o = fresh(c, "f")
    c.ok(putfh(o.fh), close(o.stateid))
    c.on_callback = lambda name, args: 0
    two.no("DELAY", putfh(o.fh), setattr_(size=3))
    end = time.monotonic() + 5
    while (err((got := two.call(putfh(o.fh), setattr_(size=3))).status) == "DELAY"
           and time.monotonic() < end):
        time.sleep(0.1)
    check(err(got.status), "OK")
    check(err(c.ok(test_stateid(o.deleg_stateid)).statuses[0]), "DELEG_REVOKED")


def test_what_a_holder_told_is_forgotten_with_the_operation(c):
    two = client()
    o = fresh(c, "f", D_WRITE)
    c.ok(putfh(o.fh), close(o.stateid))
    answers(c, o, change=o.change + 1, size=777)
    r = settled(two, putfh(o.fh), getattr_("size"), setattr_(mode=0o640), getattr_("size"))
    check([x.attrs.size for x in r.results if x.num == NUM["GETATTR"]], [777, 10])


def test_restart_delegations_are_reclaimed(c):
    with own("mds.delegated_times=true") as (w, c):
        two = client()
        r, wr, plain = fresh(c, "r"), fresh(c, "w", D_WRITE), ask(c, make(c, "p"), BOTH, NO_DELEG)
        rt, wt = ask(c, make(c, "rt"), READ, WANT_READ | WANT_TIMES), take_times(c, "wt")
        bare = fresh(c, "bare")
        c.ok(putfh(bare.fh), close(bare.stateid))
        mine = take(two, r.fh)
        unlinked = [take(c, make(c, f"u{i}"), D_WRITE, WANT_XOR) for i in range(2)]
        c.ok(putfh(c.d), remove("u0"), remove("u1"))
        w.restart()
        for one in (c, two):
            steps.again(one)
        check(err(c.ok(test_stateid(wr.deleg_stateid)).statuses[0]), "BAD_STATEID")
        got = {}
        for name, old, acc, kind, given in (("r", r, READ, D_READ, D_READ),
                                            ("w", wr, BOTH, D_WRITE, D_WRITE),
                                            ("p", plain, BOTH, D_NONE, D_NONE),
                                            ("rt", rt, READ, D_READ_TIMES, D_READ_TIMES),
                                            ("wt", wt, BOTH, D_WRITE_TIMES, D_WRITE_TIMES)):
            o = c.ok(putfh(old.fh), open_(claim_previous(kind), acc))
            check(o.deleg, given, f"the type for a claim of {kind}")
            o.fh = old.fh
            got[name] = o
            c.ok(putfh(o.fh), read(o.stateid, 0, 1))
            if kind:
                c.ok(putfh(o.fh), read(o.deleg_stateid, 0, 1))
        n = c.ok(putfh(bare.fh), want_delegation(WANT_READ, claim_previous(D_READ)))
        check(n.deleg, D_READ, "WANT_DELEGATION")
        # Another client's claim of the same.
        check(two.ok(putfh(mine.fh), open_(claim_previous(D_READ), READ)).deleg, D_READ)
        two.no("RECLAIM_CONFLICT", putfh(wr.fh), open_(claim_previous(0), READ | NO_DELEG))
        two.no("RECLAIM_CONFLICT", putfh(wr.fh), open_(claim_previous(D_READ), READ))
        two.no("RECLAIM_CONFLICT", putfh(r.fh), open_(claim_previous(D_WRITE), BOTH))
        # A file that was removed is there for who had it open, if by a delegation alone.
        for i, old in enumerate(unlinked):
            if i:
                o = c.ok(putfh(old.fh), open_(claim_previous(D_WRITE), BOTH | WANT_XOR))
                xor(c, o)
            else:
                o = c.ok(putfh(old.fh), want_delegation(WANT_WRITE, claim_previous(D_WRITE)))
            check(o.deleg, D_WRITE)
            old.deleg_stateid = o.deleg_stateid
            check(c.ok(putfh(old.fh), read(o.deleg_stateid, 0, 10)).data, b"0123456789")
        two.no(("INVAL", "BADXDR"), putfh(plain.fh), open_(claim_previous(6), BOTH))
        c.no("GRACE", putfh(plain.fh), want_delegation(WANT_READ))
        c.ok(reclaim_complete())
        c.no("NO_GRACE", putfh(plain.fh), open_(claim_previous(D_READ), READ, owner=b"late"))
        c.no("NO_GRACE", putfh(plain.fh), want_delegation(WANT_READ, claim_previous(D_READ)))
        two.ok(reclaim_complete())
        # They are as good as any.
        after = got["w"]
        obey(c)
        check(err(settled(two, putfh(wr.fh), open_(claim_fh(), BOTH | NO_DELEG)).status), "OK")
        if not after.recall:
            check(c.wait_callback("RECALL").stateid, after.deleg_stateid)
        check(err(c.ok(test_stateid(after.deleg_stateid)).statuses[0]), "BAD_STATEID")
        check(set_times(c, got["wt"], time_deleg_modify=now_minus(0)).time_modify[0] > 1, True)
        for old in unlinked:
            c.ok(putfh(old.fh), delegreturn(old.deleg_stateid))
            c.until(lambda x: err(x.status) == "STALE", putfh(old.fh), getattr_("size"))


def test_restart_claims_in_grace(c):
    with own() as (w, c):
        two = client()
        o, p, q = fresh(c, "f", D_WRITE), make(c, "p"), make(c, "q")
        (c.ok(putfh(p), open_(claim_fh(), BOTH | NO_DELEG)),
         two.ok(putfh(p), open_(claim_fh(), READ | NO_DELEG)))
        w.restart()
        for one in (c, two):
            steps.again(one)
        # 10.2.1: opens under a reclaimed delegation are for now, and no new delegation.
        old = c.ok(putfh(o.fh), open_(claim_previous(D_WRITE), BOTH))
        n = c.ok(putfh(o.fh), open_(claim_deleg_cur_fh(old.deleg_stateid), READ, owner=b"second"),
                 read(CURRENT, 0, 1)).all[1]
        check(n.deleg in (D_NONE, D_NONE_EXT), True)
        n = c.ok(putfh(c.d), open_(claim_delegate_cur(old.deleg_stateid, "f"), BOTH,
                                   owner=b"third"), write(CURRENT, 0, b"x")).all[1]
        check(n.deleg in (D_NONE, D_NONE_EXT), True)
        # A write delegation and another's open: one of the two is wrong.
        c.ok(putfh(p), open_(claim_previous(D_NONE), BOTH))
        two.no("RECLAIM_CONFLICT", putfh(p), open_(claim_previous(D_WRITE), READ))
        # What is no reclaim waits for the end of grace, and then gets what it always gets.
        c.ok(reclaim_complete())
        for op_ in (open_(claim_fh(), READ | WANT_READ), want_delegation(WANT_READ)):
            c.no("GRACE", putfh(q), op_)
        two.ok(reclaim_complete())
        got = c.until(lambda x: err(x.status) != "GRACE", putfh(q),
                      open_(claim_fh(), READ | WANT_READ))
        check(got.results[-1].deleg, D_READ, "after grace")


def test_restart_changes_wait_for_what_is_reclaimed(c):
    """In grace nobody knows whose delegation a change would have to recall (section 8.4.2.1)."""
    with own("mds.grace=20s") as (w, c):
        two = client()
        r, wr = fresh(c, "r"), fresh(c, "w", D_WRITE)
        _, mine = two.open(c.d, "mine")
        fifo = c.ok(putfh(c.d), create(FIFO, "fifo"), getfh()).fh
        c.ok(putfh(r.fh), setxattr("a", b"x"))
        w.restart()
        for one in (c, two):
            steps.again(one)
        for f in (r.fh, wr.fh):
            for change in ({"mode": 0o640}, {"owner": "7"}, {"time_modify_set": (1, 0)}):
                check(two.no("GRACE", putfh(f), setattr_(**change)).attrset, set())
            two.no("GRACE", putfh(f), savefh(), putfh(c.d), link("another"))
            two.no("DELAY", putfh(f), setxattr("b", b"y"))
        two.no("DELAY", putfh(r.fh), removexattr("a"))
        two.no("PERM", putfh(r.fh), setattr_(mode=0o600), cred=USER)
        two.ok(putfh(r.fh), getattr_("size", "change"))
        # What nobody has a delegation on.
        two.ok(putfh(c.d), setattr_(mode=0o700), setxattr("b", b"y"), putfh(fifo),
               setattr_(mode=0o600), savefh(), putfh(c.d), link("fifo2"))
        steps.reclaim(two, mine)
        two.ok(putfh(mine), setattr_(mode=0o600), setxattr("b", b"y"), removexattr("b"), savefh(),
               putfh(c.d), link("mine2"))
        # Others may read beside one for reading, and beside none for writing.
        c.ok(putfh(r.fh), open_(claim_previous(D_READ), READ))
        c.no("GRACE", putfh(r.fh), setattr_(mode=0o640))
        c.no("DELAY", putfh(r.fh), setxattr("b", b"y"))
        o = c.ok(putfh(wr.fh), want_delegation(WANT_WRITE, claim_previous(D_WRITE)))
        c.ok(putfh(wr.fh), setattr_(mode=0o640))
        two.no("GRACE", putfh(wr.fh), setattr_(mode=0o600))
        for one in (c, two):
            one.ok(reclaim_complete())
        obey(c)
        check(err(settled(two, putfh(wr.fh), setattr_(mode=0o600)).status), "OK")
        check(c.wait_callback("RECALL").stateid, o.deleg_stateid)


if __name__ == "__main__":
    harness.run_shared(globals(), lambda w, name: (with_dir(client(), name),), closing=True, ds=2,
                        parts=3, settings=harness.CALM)
