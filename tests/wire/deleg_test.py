#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Delegations: who gets one and what recalls it (RFC 8881, chapter 10 and 18.49). Prints TAP.

Each test gets a client, whose c.d is a directory of its own. A test uses new files, because the
server gives no delegation for a while on a file whose delegation it recalled.
"""
import os
import random
import sys
import threading
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../wirelib"))
import harness  # noqa: E402
from harness import *  # noqa: E402,F403
from steps import *  # noqa: E402,F403
from delegs import *  # noqa: E402,F403
from nfs41 import err, op  # noqa: E402


# ---- which clients get one (10.4, 18.16.3)


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
    # The server gives a delegation that blocks no client.
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
        if kind is None:  # nothing conflicted, so the server recalled nothing
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
    """Share reservations (9.7) stay, whichever client holds a delegation."""
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
    """The ace says which users may open without an ACCESS. It may name no user that the server
    would refuse."""
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
    """A client that opens, writes, closes and removes the files that other clients use at the same
    time, and obeys recalls.

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
        """What GETATTR says of change and mtime, and between which times."""
        since = time.monotonic()
        got = past_delay(self.c, putfh(f), getattr_("change", "time_modify"))
        self.seen.append((f, since, time.monotonic(),
                          (got.results[-1].attrs.change, got.results[-1].attrs.time_modify)))

    def race(self):
        while time.monotonic() < self.end:
            # Two files at a time, and other files soon: after a conflict a file has no delegations.
            at = int((self.end - time.monotonic()) / 0.04) % len(self.files)
            f = self.files[at - self.rand.randrange(2)]
            if self.rand.random() < 0.3:
                self.look(f)
            acc, want = self.rand.choice(((READ, 0), (READ, WANT_READ), (BOTH, WANT_WRITE),
                                          (WRITE, 0), (READ, WANT_ANY), (BOTH, NO_DELEG),
                                          (READ, WANT_READ | WANT_XOR),
                                          (BOTH, WANT_WRITE | WANT_XOR)))
            got = past_delay(self.c, putfh(f), open_(claim_fh(), acc | want), getattr_("type"))
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


def test_what_conflicts_is_never_held_at_once(_):
    # Nobody loses a delegation who returns it late, because a loaded machine lets it wait.
    with own("mds.recall_deadline=60s", "mds.lease=60s") as (w, c):
        races(c)


def races(c):
    files = [make(c, f"f{i}") for i in range(40)]
    racers = [Racer(client(), files, 0, i) for i in range(6)]
    # On a loaded machine it takes more than once until delegations of both kinds were given.
    for _ in range(20):
        for r in racers:
            r.end = time.monotonic() + 1.6
        held = [Later(r.race) for r in racers]
        held = [h.result() for h in held]
        given = [sum(what == "deleg" and writing == w
                     for one in held for _, what, writing, *_ in one) for w in (False, True)]
        if min(given) > 3:
            break
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
    """An answer that a client asked for after another answer had come is not older
    than that one."""
    tap.say(f"{len(seen)} looks")
    for f in {x[0] for x in seen}:
        of = sorted((x for x in seen if x[0] == f), key=lambda x: x[1])
        for i, (_, _, until, (change, mtime)) in enumerate(of):
            for _, since, _, (c, m) in of[i + 1:]:
                if since > until and (c < change or m < mtime):
                    raise Failed(f"change {change}, mtime {mtime}; later {c}, {m}")


def test_a_want_recalls_nothing(c):
    """18.49.4: the server takes no delegation from one client to give it to another."""
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
    it = past_delay(c, putfh(f), setattr_(size=3))
    check((err(it.status), len(returned)), ("OK", 50))
    for one in held:
        one.wait_callback("RECALL")
    c.ok(putfh(f), close(s))


def test_many_files_of_one_holder_are_recalled_at_once(c):
    """There are more than the backchannel has slots."""
    for i in range(30):
        take(c, make(c, f"f{i}"), D_WRITE if i % 2 else D_READ, WANT_XOR)
    obey(c)
    two = client()  # now: the server asks for slots back of a client that is idle for a lease
    its = ([later(two, putfh(c.d), remove(f"f{i}")) for i in range(12)]
           + [later(client(), putfh(c.d), remove(f"f{i}")) for i in range(12, 30)])
    check([err(it.result().status) for it in its], ["OK"] * 30)
    c.ok(putrootfh())
    check(c.status_flags & REVOKED, 0)


def test_the_holder_never_waits_for_itself(c):
    """While the server recalls its delegation for another client, it does what the
    holder asks for."""
    two, pid = client(), mds_pid(harness.THE)
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
                watch = Watch(pid)
                got = c.call(putfh(o.fh), x)
                took.append((got.results[-1].op, err(got.status), watch.took() < 0.5))
                given += [got.results[-1].deleg] if x.num == NUM["OPEN"] and not got.status else []
        obey(c, getattr_(*WATCHED), before=before)
        check(err(past_delay(two, putfh(o.fh), open_(claim_fh(), BOTH | NO_DELEG)).status), "OK")
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
    got = past_delay(three, putfh(o.fh), open_(claim_fh(), READ | WANT_READ)).results[-1]
    refused(got, CONTENTION)
    refused(past_delay(three, putfh(o.fh), want_delegation(WANT_READ)).results[-1], CONTENTION)
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


if __name__ == "__main__":
    # All holders obey, however slow the machine.
    harness.run_shared(globals(), lambda w, name: (with_dir(client(), name),), closing=True, ds=2,
                        parts=3, settings=[*harness.CALM, "mds.recall_deadline=20s"])
