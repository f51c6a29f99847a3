#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""ACLs (RFC 8881 chapter 6) over the wire. Prints TAP.

The tests cover what a client can set, what an ACL does to the mode, who may do what, and what a new
file inherits.
"""
import itertools
import json
import os
import random
import subprocess
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../wirelib"))
import harness as base  # noqa: E402
import steps  # noqa: E402
from harness import BUILD, OTHER, USER, Cluster, check, client  # noqa: E402,F401
from nfs41 import *  # noqa: E402,F403
from nfs41 import err, op  # noqa: E402
from acls import *  # noqa: E402,F403

ROOT = auth_sys()
MEMBER = auth_sys(3000, 3000, (50,))


def effective(acl):
    return [a for a in acl if not a[1] & IO]


def mode_of(acl):
    """The mode that an ACL gives (RFC 8881, 6.3.2)."""
    mode = 0
    for who in (OWNER, GROUP, ALL):
        allowed = decided = 0
        for kind, _, mask, name in effective(acl):
            if name in (who, ALL):
                allowed |= 0 if kind else mask & ~decided
                decided |= mask
        mode = (mode << 3 | (4 if allowed & R else 0) | (2 if allowed & W and allowed & A else 0)
                | (1 if allowed & X else 0))
    return mode


def rights(acl, uid, gids, owner, gid):
    """What an ACL allows (6.2.1)."""
    allowed = decided = 0
    for kind, flags, mask, who in effective(acl):
        mine = {OWNER: uid == owner, GROUP: gid in gids, ALL: True}.get(who)
        if mine is None:
            mine = int(who) in gids if flags & GRP else int(who) == uid
        if mine:
            allowed |= 0 if kind else mask & ~decided
            decided |= mask
    return allowed


def get(c, fh, **how):
    a = c.attrs(fh, "acl", "mode", **how)
    check(mode_of(a.acl), a.mode & 0o777, "the ACL's mode")
    return a


def world(c, d):
    c.ok(putfh(d), setattr_(mode=0o777))


def may(c, cred, *ops):
    got = err(c.call(*ops, cred=cred).status)
    if got not in ("OK", "ACCESS", "PERM"):
        raise Failed(f"{ops[-1]}: {got}")
    return got == "OK"


# ---- what the server reports


def test_without_an_acl_the_mode_is_told_as_one(c, d):
    check(c.attrs(d, "aclsupport").aclsupport, 3)
    f, sub = make(c, d, "f"), make(c, d, "sub", kind=DIR)
    rnd = random.Random(6)
    for mode in ([0, 0o777, 0o700, 0o070, 0o007, 0o604, 0o066, 0o755, 0o6751, 0o1777]
                 + rnd.sample(range(512), 40)):
        for fh, is_dir in ((f, False), (sub, True)):
            c.ok(putfh(fh), setattr_(mode=mode))
            a = get(c, fh)
            check(a.mode, mode)
            for uid, gids, shift in ((1000, (1,), 6), (1000, (50,), 6), (2000, (50, 7), 3),
                                     (2000, (7,), 0)):
                got, bits = rights(a.acl, uid, gids, 1000, 50), mode >> shift & 7
                want = ((R if bits & 4 else 0) | (W | A | (DC if is_dir else 0) if bits & 2 else 0)
                        | (X if bits & 1 else 0))
                check(got & (R | W | A | X | (DC if is_dir else 0)), want,
                      f"{mode:o} for {uid} {gids}")
                check(bool(got & WACL), uid == 1000)


def test_an_acl_comes_back_as_it_was_set(c, d):
    acls = [[], [ace(ALL, R | RATTR)],
            [ace(OWNER, FULL), ace(2000, R, DENY), group(77, R | X), ace(ALL, RATTR | RACL | SYNC)],
            [ace(n, n % 0x1ff) for n in range(1, 60)]]
    for kind in (REG, DIR, FIFO, SOCK):
        fh = make(c, d, f"x{kind}", kind=kind)
        for acl in acls:
            before = c.attrs(fh, "change", "time_metadata", "time_modify")
            r = c.ok(putfh(fh), setattr_(acl=acl))
            check(r.attrset, {12})
            check(get(c, fh).acl, acl)
            after = c.attrs(fh, "change", "time_metadata", "time_modify")
            check((after.change > before.change, after.time_metadata > before.time_metadata,
                   after.time_modify), (True, True, before.time_modify))
    sub = make(c, d, "sub", kind=DIR)
    acl = [ace(OWNER, FULL, flags=flags)
           for flags in (FI, DI, FI | DI, FI | IO, DI | IO | NP, FI | DI | NP)]
    c.ok(putfh(sub), setattr_(acl=acl))
    check(get(c, sub).acl, acl)


def test_setting_an_acl_computes_the_mode_and_keeps_its_high_bits(c, d):
    f = make(c, d, "f", mode=0o6711)
    for acl, mode in (([ace(OWNER, R | W | A | X), ace(GROUP, R | X), ace(ALL, R)], 0o754), ([], 0),
                      ([ace(OWNER, W)], 0), ([ace(OWNER, A | W)], 0o200),
                      ([ace(ALL, R | X)], 0o555), ([ace(GROUP, R, DENY), ace(ALL, R)], 0o404),
                      ([ace(2000, R | W | A | X), ace(OWNER, R)], 0o400),
                      ([ace(ALL, R), ace(OWNER, R, DENY)], 0o444)):
        c.ok(putfh(f), setattr_(acl=acl))
        check(c.attrs(f, "mode").mode, 0o6000 | mode, str(acl))


def test_mode_and_acl_together_are_mode_first(c, d):
    f = make(c, d, "f")
    r = c.ok(putfh(f), setattr_(mode=0o4777, acl=[ace(OWNER, R | X), ace(ALL, RATTR)]))
    check(r.attrset, {12, 33})
    check(get(c, f).mode, 0o4500)
    c.ok(putfh(f), setattr_(mode_set_masked=(0o2000, 0o6777), acl=[ace(ALL, R)]))
    check(get(c, f).mode, 0o2444)


def test_mode_set_masked_changes_the_bits_of_its_mask(c, d):
    acl = [ace(2000, R | W | A), ace(OWNER, R | W | A | DC), ace(ALL, R)]
    f = make(c, d, "f", acl, mode=0o644)
    c.ok(putfh(f), setattr_(mode_set_masked=(0o7777, 0o4000)))
    a = get(c, f)
    check((a.mode, a.acl), (0o4644, acl), "no permission bit, no change of the ACL")
    c.ok(putfh(f), setattr_(mode_set_masked=(0o040, 0o4070)))
    a = get(c, f)
    check(a.mode, 0o644)
    check(rights(a.acl, 2000, (1,), 1000, 50) & (R | W | A), R, "bound by the group's bits")
    plain = make(c, d, "plain", mode=0o751)
    c.ok(putfh(plain), setattr_(mode_set_masked=(0o006, 0o007)))
    check(c.attrs(plain, "mode").mode, 0o756)
    for bad in ((0o10000, 0o777), (0o644, 0o10777)):
        c.no("INVAL", putfh(f), setattr_(mode_set_masked=bad))
    c.no("INVAL", putfh(f), setattr_(mode=0o644, mode_set_masked=(0o644, 0o777)))
    c.no("INVAL", putfh(d), create(DIR, "x", mode_set_masked=(0o755, 0o777)))
    c.no("INVAL", putfh(d),
         open_("x", BOTH | NO_DELEG, how=GUARDED, attrs={"mode_set_masked": (0o755, 0o777)}))
    c.no("INVAL", putfh(f), getattr_("mode_set_masked"))
    c.no("INVAL", putfh(f), verify(mode_set_masked=(1, 1)))


def test_a_mode_of_undefined_bits_is_invalid_everywhere(c, d):
    f = make(c, d, "f")
    size = c.attrs(f, "size", "type")
    for kw in ({"mode": 0o10644}, {"mode": 0x80000000 | 0o644, "size": size.size},
               {"mode": 0o10000, "size": 0, "type": 1}):
        c.no("INVAL", putfh(f), verify(**kw))
        c.no("INVAL", putfh(f), nverify(**kw))
    c.no("INVAL", putfh(f), setattr_(mode=0o10000))
    c.ok(putfh(f), verify(mode=0o644, size=0))


def test_verify_compares_acls(c, d):
    acl = [ace(OWNER, FULL), ace(ALL, R)]
    f = make(c, d, "f", acl)
    c.ok(putfh(f), verify(acl=acl))
    c.no("SAME", putfh(f), nverify(acl=acl))
    c.no("NOT_SAME", putfh(f), verify(acl=acl[:1]))
    c.ok(putfh(f), nverify(acl=acl[:1]))


# ---- what the server refuses


def test_aces_that_cannot_be_held_are_refused(c, d):
    f, sub = make(c, d, "f"), make(c, d, "sub", kind=DIR)
    bad = [ace(ALL, R, AUDIT), ace(ALL, R, ALARM), ace(ALL, R, 4), ace(ALL, R, flags=SUCCESS),
           ace(ALL, R, flags=FAILED), ace(ALL, R, flags=0x100), ace(ALL, 0x800), ace(ALL, 0x200000),
           ace(ALL, 0x80000000), ace(2000, RATTR | R, DENY),
           ace(ALL, R, flags=IO), ace("INTERACTIVE@", R), ace("AUTHENTICATED@", R)]
    for one in bad:
        for fh in (f, sub):
            check(c.no("ATTRNOTSUPP", putfh(fh), setattr_(acl=[ace(OWNER, FULL), one])).attrset,
                  set())
    for flags in (FI, DI, FI | DI | IO, NP):
        c.no("ATTRNOTSUPP", putfh(f), setattr_(acl=[ace(ALL, R, flags=flags)]))
        c.no("ATTRNOTSUPP", putfh(d),
             open_("new", BOTH | NO_DELEG, how=GUARDED, attrs={"acl": [ace(ALL, R, flags=flags)]}))
    for who in ("", "nobody-knows@", "x", "4294967295", "-1", "owner@",
                "1000@no.such.domain.invalid"):
        c.no("BADOWNER", putfh(f), setattr_(acl=[ace(who, R)]))
    check(c.attrs(f, "mode").mode, 0o644)
    check(get(c, f).acl[0][3], OWNER)


def test_acl_limits(c, d):
    f = make(c, d, "f")
    most = [ace(n, R) for n in range(250)]
    c.ok(putfh(f), setattr_(acl=most))
    check(get(c, f).acl, most)
    c.no("NOSPC", putfh(f), setattr_(acl=most + [ace(9999, R)]))
    check(get(c, f).acl, most)
    c.ok(putfh(f), setattr_(mode=0o640))
    check(get(c, f).mode, 0o640)
    sub = make(c, d, "sub", [ace(n, R | W | A | X, flags=FI | DI) for n in range(250)], kind=DIR)
    for mode in (0o700, 0o000, 0o057, 0o666):
        c.ok(putfh(sub), setattr_(mode=mode))
        check(get(c, sub).mode, mode)
    below = c.ok(putfh(sub), create(DIR, "below", mode=0o057), getfh()).fh
    check(get(c, below).mode, 0o057)
    c.ok(putfh(below), setattr_(mode=0o700))
    check(get(c, below).mode, 0o700)


def test_acl_bodies_that_do_not_fit_are_badxdr(c, d):
    f = make(c, d, "f")
    good = u32(1) + u32(ALLOW) + u32(0) + u32(R) + opaque(ALL)
    for raw_attr in (u32(2**32 - 1), u32(2) + good[4:], good[:-4], u32(1), good + u32(0),
                     u32(2**30) + good,
                     u32(1) + u32(0) + u32(0) + u32(R) + u32(2**31) + b"OWNER@\0\0"):
        c.no("BADXDR", putfh(f), setattr_(raw={12: raw_attr}))
    check(c.attrs(f, "mode").mode, 0o644)


def test_acl_and_dacl_are_not_set_together(c, d):
    f = make(c, d, "f")
    c.no("ATTRNOTSUPP", putfh(f), setattr_(acl=[ace(ALL, R)], dacl=(0, [ace(ALL, R)])))
    c.no("ATTRNOTSUPP", putfh(f), setattr_(raw={59: u32(0) + u32(0)}))
    c.no("INVAL", putfh(f), setattr_(dacl=(8, [ace(ALL, R)])))


def test_symbolic_links_have_no_acl(c, d):
    link_fh = c.ok(putfh(d), create(LNK, "l", "x"), getfh()).fh
    check(mode_of(c.attrs(link_fh, "acl").acl), 0o777)
    c.no("ATTRNOTSUPP", putfh(link_fh), setattr_(acl=[ace(ALL, R)]))
    c.no("ATTRNOTSUPP", putfh(d), create(LNK, "m", "x", acl=[ace(ALL, R)]))


# ---- which user may do what


def test_the_first_ace_that_speaks_of_a_right_decides(c, d):
    f = make(c, d, "f")
    for acl, cred, want in (
            ([ace(2000, R, DENY), ace(ALL, R)], OTHER, False),
            ([ace(ALL, R), ace(2000, R, DENY)], OTHER, True),
            ([ace(2000, R, DENY), ace(ALL, R)], MEMBER, True), ([ace(ALL, W | A)], OTHER, False),
            ([], USER, False), ([group(50, R, DENY), ace(ALL, R)], MEMBER, False),
            ([ace(GROUP, R)], MEMBER, True), ([ace(GROUP, R)], OTHER, False),
            ([group(3000, R)], MEMBER, True), ([ace(3000, R)], OTHER, False),
            ([ace(50, R)], MEMBER, False), ([group(2000, R)], auth_sys(1, 2000), True),
            ([ace(OWNER, R, DENY), ace(ALL, R)], USER, False),
            ([ace(1000, R)], USER, True), ([ace(ALL, R, DENY)], ROOT, True)):
        c.ok(putfh(f), setattr_(acl=acl))
        check(bool(c.ok(putfh(f), access(1), cred=cred).access), want, f"{acl} {cred}")
        check(may(c, cred, putfh(f), read(ANON, 0, 1)), want, f"{acl} {cred}")


def test_access_follows_any_acl(c, d):
    """Random ACLs against the algorithm of 6.2.1."""
    seed = int(os.environ.get("WEFT_SEED", random.randrange(10**6)))
    print(f"# seed {seed}")
    rnd = random.Random(seed)
    people = [(1000, (1,)), (1000, (50,)), (2000, (7, 50)), (2000, (7,)), (3000, (77, 8))]
    who = [OWNER, GROUP, ALL, 1000, 2000, 3000, -7, -50, -77]
    fhs = {k: make(c, d, f"x{k}", kind=k) for k in (REG, DIR)}
    asked = 0
    for _ in range(60):
        kind = rnd.choice((REG, DIR))
        acl = []
        for _ in range(rnd.randrange(8)):
            w, mask, typ = rnd.choice(who), rnd.randrange(512) & ~RATTR, rnd.randrange(2)
            flags = rnd.choice((0, 0, DI, DI | IO)) if kind == DIR else 0
            acl.append(ace(w, mask, typ, flags) if isinstance(w, str) or w > 0
                       else group(-w, mask, typ, flags))
        c.ok(putfh(fhs[kind]), setattr_(acl=acl))
        get(c, fhs[kind])
        for uid, gids in people:
            has = rights(acl, uid, gids, 1000, 50)
            both = has & (W | A) == W | A
            if kind == DIR:
                want = (2 if has & X else 0) | (8 if has & (W | A) else 0) | (16 if has & DC else 0)
                want |= 4 if has & W and has & DC else 0
            else:
                want = (12 if both else 0) | (32 if has & X else 0)
            want |= (1 if has & R else 0) | (0x140 if has & RX else 0) | (0x80 if has & WX else 0)
            got = c.ok(putfh(fhs[kind]), access(0x1ff),
                       cred=auth_sys(uid, gids[0], gids[1:])).access
            check(got, want, f"{acl} for {uid} {gids}")
            asked += 1
    check(asked, 300)


def test_each_right_opens_its_operation_and_no_other(c, d):
    """For each right: an operation that needs it fails when the ACL grants all rights but this one.
    It succeeds when the ACL grants this one alone, with the search of directories."""
    world(c, d)
    counter = itertools.count()

    def fresh(kind, acl):
        return make(c, d, f"f{next(counter)}", acl, kind=kind)

    def child(fh, kind=FIFO):
        name = f"c{next(counter)}"
        c.ok(putfh(fh), create(kind, name, mode=0o777))
        return name
    new = lambda fh: open_("new", BOTH | NO_DELEG, how=GUARDED, attrs={"mode": 0o600})
    cases = [  # right, kind, operations with the file handle
        (R, REG, lambda f: [putfh(f), read(ANON, 0, 1)], 0),
        (R, DIR, lambda f: [putfh(f), readdir()], 0),
        (W | A, REG, lambda f: [putfh(f), write(ANON, 0, b"x")], 0),
        (W | A, REG, lambda f: [putfh(f), setattr_(size=0)], 0),
        (W | A, REG, lambda f: [putfh(f), op("OPEN", u32(0), u32(WRITE | NO_DELEG), u32(0), u64(0),
                                             opaque("o"), u32(0), claim_fh())], 0),
        (W, DIR, lambda f: [putfh(f), create(FIFO, "new", mode=0o600)], X),
        (W, DIR, lambda f: [putfh(f), new(f)], X),
        (A, DIR, lambda f: [putfh(f), create(DIR, "new", mode=0o600)], X),
        (X, DIR, lambda f: [putfh(f), lookup(child(f))], 0),
        (X, DIR, lambda f: [putfh(f), lookupp()], 0),
        (DC, DIR, lambda f: [putfh(f), remove(child(f))], X),
        (RX, REG, lambda f: [putfh(f), op("LISTXATTRS", u64(0), u32(1000))], 0),
        (WX, REG, lambda f: [putfh(f), op("SETXATTR", u32(0), opaque("a"), opaque("b"))], 0),
        (WATTR, REG, lambda f: [putfh(f), setattr_(time_modify_set=(1, 1))], 0),
        (WATTR, REG, lambda f: [putfh(f), setattr_(time_create=(1, 1))], 0),
        (RACL, REG, lambda f: [putfh(f), getattr_("acl")], 0),
        (RACL, REG, lambda f: [putfh(f), getattr_("dacl")], 0),
        (WACL, REG, lambda f: [putfh(f), setattr_(mode=0o600)], 0),
        (WACL, REG, lambda f: [putfh(f), setattr_(acl=[])], 0),
        (WOWN, REG, lambda f: [putfh(f), setattr_(owner="2000", owner_group="2000")], 0)]
    for n, (right, kind, ops, more) in enumerate(cases):
        for one in [b for b in RIGHTS if b & right]:
            rest = FULL & ~one & ~(X if kind == REG else 0)
            # Where the ACL says nothing of DELETE_CHILD, ADD_FILE will do.
            check(may(c, OTHER, *ops(fresh(kind, [ace(2000, rest)]))), one == DC,
                  f"without {one:#x}, {n}")
            check(may(c, OTHER, *ops(fresh(kind, [ace(2000, one, DENY), ace(ALL, rest | one)]))),
                  False, f"{one:#x} denied, {n}")
        check(may(c, OTHER, *ops(fresh(kind, [ace(2000, right | more)]))), True,
              f"{right:#x} alone")


def test_now_may_be_set_with_either_right(c, d):
    for right, want in ((W, True), (WATTR, True), (A | R | X, False)):
        f = make(c, d, f"f{right}", [ace(2000, right)])
        check(may(c, OTHER, putfh(f), setattr_(time_modify_set=None, time_access_set=None)), want)


def test_who_may_execute_may_read(c, d):
    f = make(c, d, "f", [ace(2000, X), ace(3000, R)])
    check(c.ok(putfh(f), access(0x21), cred=OTHER).access, 0x20)
    check(may(c, OTHER, putfh(f), read(ANON, 0, 1)), True)
    check(may(c, OTHER, putfh(d), open_("f", READ | NO_DELEG)), True)
    check(c.ok(putfh(f), access(0x21), cred=MEMBER).access, 0x01)
    check(c.ok(putfh(f), access(0x21), cred=ROOT).access, 0x21, "root executes what somebody may")
    g = make(c, d, "g", [ace(2000, R)])
    check(c.ok(putfh(g), access(0x21), cred=ROOT).access, 0x01)


def test_owners_keep_what_no_ace_can_take(c, d):
    f = make(c, d, "f", [ace(OWNER, FULL & ~RATTR, DENY)])
    c.ok(putfh(f), getattr_("acl"), cred=USER)
    c.no("PERM", putfh(f), setattr_(time_modify_set=(1, 1)), cred=USER)
    c.no("PERM", putfh(f), setattr_(owner_group="1000"), cred=USER)
    c.ok(putfh(f), setattr_(acl=[]), cred=USER)
    c.ok(putfh(f), setattr_(time_modify_set=(1, 1)), cred=USER)
    c.ok(putfh(f), setattr_(owner_group="1000"), cred=USER)
    check(may(c, USER, putfh(f), read(ANON, 0, 1)), False)
    c.ok(putfh(f), setattr_(mode=0o600), cred=USER)
    check(may(c, USER, putfh(f), read(ANON, 0, 1)), True)


def test_write_owner_takes_a_file_and_gives_it_to_nobody_else(c, d):
    f = make(c, d, "f", [ace(2000, WOWN)], mode=0o644)
    for kw in ({"owner": "3000"}, {"owner_group": "77"}, {"owner": "3000", "owner_group": "2000"}):
        c.no("PERM", putfh(f), setattr_(**kw), cred=OTHER)
    c.ok(putfh(f), setattr_(owner_group="2000"), cred=OTHER)
    c.ok(putfh(f), setattr_(owner="2000"), cred=OTHER)
    a = c.attrs(f, "owner", "owner_group")
    check((a.owner, a.owner_group), ("2000", "2000"))


def test_write_acl_lets_nobody_but_the_owner_set_the_set_id_bits(c, d):
    f = make(c, d, "f", [ace(2000, WACL)], mode=0o755)
    c.ok(putfh(f), setattr_(mode=0o6755), cred=OTHER)
    check(c.attrs(f, "mode").mode, 0o755)
    g = make(c, d, "g", [ace(auth_sys and 2000, WACL | WOWN)], mode=0o755)
    c.no("PERM", putfh(g), setattr_(mode=0o755), cred=MEMBER)


def test_delete_and_delete_child(c, d):
    """6.2.1.3.2: (the directory's ACL, the file's ACL, sticky) and whether 2000 may remove."""
    x = ace(2000, X)
    cases = [
        ([x], None, 0, False), ([x, ace(2000, W)], None, 0, True),
        ([x, ace(2000, W)], None, 1, False),
        ([x, ace(2000, DC)], None, 0, True), ([x, ace(2000, DC)], None, 1, False),
        ([x, ace(2000, W), ace(2000, DC, DENY)], None, 0, False),
        ([x], [ace(2000, D)], 0, True), ([x], [ace(2000, D)], 1, True),
        ([x, ace(2000, DC, DENY)], [ace(2000, D)], 0, True),
        ([x, ace(2000, DC)], [ace(2000, D, DENY)], 0, True),
        ([x, ace(2000, W)], [ace(2000, D, DENY)], 0, False),
        ([x, ace(2000, W)], [ace(2000, R)], 0, True), ([ace(2000, DC)], [ace(2000, D)], 0, False),
        (0o755, [ace(2000, D)], 0, True), (0o757, [ace(2000, D, DENY)], 0, True),
        (0o755, None, 0, False), (0o757, None, 0, True),
        (0o757, None, 1, False), (0o757, [ace(2000, D)], 1, True)]
    for n, (parent, acl, sticky, want) in enumerate(cases):
        sub = make(c, d, f"d{n}", kind=DIR)
        make(c, sub, "f", acl, kind=FIFO)
        make(c, sub, "g", acl, kind=REG)
        if isinstance(parent, int):
            c.ok(putfh(sub), setattr_(mode=parent | (0o1000 if sticky else 0)))
        else:
            c.ok(putfh(sub), setattr_(mode=0o1755 if sticky else 0o755), setattr_(acl=parent))
        for name in "fg":
            check(may(c, OTHER, putfh(sub), remove(name)), want,
                  f"case {n}: {parent} {acl} {sticky}")
            check(bool(may(c, ROOT, putfh(sub), lookup(name)) if not want else True), True)


def test_rename_needs_to_remove_there_and_to_add_here(c, d):
    xd = ace(2000, X)
    for n, (src, dst, over, kind, want) in enumerate([
            ([xd, ace(2000, DC)], [xd, ace(2000, W)], None, FIFO, True),
            ([xd, ace(2000, DC)], [xd, ace(2000, A)], None, FIFO, False),
            ([xd, ace(2000, DC)], [xd, ace(2000, A)], None, DIR, True),
            ([xd, ace(2000, DC)], [xd, ace(2000, W)], None, DIR, False),
            ([xd], [xd, ace(2000, W | A)], None, FIFO, False),
            ([xd, ace(2000, DC)], [xd, ace(2000, W)], [], FIFO, True),
            ([xd, ace(2000, DC)], [xd, ace(2000, W), ace(2000, DC, DENY)], [], FIFO, False),
            ([xd, ace(2000, DC)], [xd, ace(2000, W), ace(2000, DC, DENY)], [ace(2000, D)], FIFO,
             True), ([xd, ace(2000, DC)], [xd, ace(2000, DC)], [], FIFO, False)]):
        a, b = make(c, d, f"a{n}", kind=DIR), make(c, d, f"b{n}", kind=DIR)
        moved = make(c, a, "x", kind=kind, mode=0o777)
        if over is not None:
            make(c, b, "y", over, kind=kind)
        for fh, acl in ((a, src), (b, dst)):
            c.ok(putfh(fh), setattr_(acl=acl))
        check(may(c, OTHER, putfh(a), savefh(), putfh(b), rename("x", "y")), want, f"case {n}")
        if want:
            check(c.ok(putfh(b), lookup("y"), getfh()).fh, moved)


def test_reading_an_acl_needs_its_right_in_readdir_too(c, d):
    c.ok(putfh(d), setattr_(mode=0o755))
    make(c, d, "a", [ace(2000, R)])
    make(c, d, "b", [ace(2000, R | RACL)])
    make(c, d, "c")
    c.no("ACCESS", putfh(d), readdir(attrs=("acl", "fileid")), cred=OTHER)
    got = {e.name: e.attrs for e in c.ok(putfh(d), readdir(attrs=("acl", "fileid", "rdattr_error")),
                                         cred=OTHER).entries}
    got = {(k.decode() if isinstance(k, bytes) else k): v for k, v in got.items()}
    check((got["a"].bits, got["a"].rdattr_error), ({11}, 13))
    check((got["b"].acl, got["b"].rdattr_error), ([ace(2000, R | RACL)], 0))
    check(mode_of(got["c"].acl), 0o644)
    fh = c.ok(putfh(d), lookup("a"), getfh()).fh
    c.no("ACCESS", putfh(fh), verify(acl=[]), cred=OTHER)
    c.no("ACCESS", putfh(fh), nverify(acl=[]), cred=OTHER)
    c.ok(putfh(fh), getattr_("mode", "size", "owner"), cred=OTHER)


# ---- the mode and the ACL


def test_a_mode_bounds_the_acl_and_leaves_the_rest(c, d):
    acl = [ace(2000, W, DENY), ace(2000, R | X | WATTR | D), group(77, R | W | A | RACL),
           ace(OWNER, FULL), ace(GROUP, R | X), ace(ALL, R | RATTR | SYNC)]
    f = make(c, d, "f", acl, mode=0o644)
    for mode in (0o640, 0o600, 0o000, 0o777, 0o057, 0o755, 0o421, 0o124):
        c.ok(putfh(f), setattr_(acl=acl), setattr_(mode=mode))
        a = get(c, f)
        check(a.mode, mode)
        bob, grp = (rights(a.acl, 2000, (1,), 1000, 50),
                    rights([x for x in a.acl if x[3] == "77"], 5, (77,), 1000, 50))
        bits = mode >> 3 & 7
        check(grp, (R if bits & 4 else 0) | (W | A if bits & 2 else 0) | RACL, f"{mode:o}")
        check(bob & (WATTR | D | RATTR | SYNC | W), WATTR | D | RATTR | SYNC, f"{mode:o}")
        check(bool(bob & X), bool(bits & 1 or mode & 1), f"{mode:o}")
        own = rights(a.acl, 1000, (50,), 1000, 50)
        check(own & (WACL | WOWN | WATTR | D), WACL | WOWN | WATTR | D)
        check(bool(own & R), bool(mode & 0o400))
        n = len(a.acl)
        c.ok(putfh(f), setattr_(mode=mode))
        check(len(get(c, f).acl), n, "the same mode again")
    c.ok(putfh(f), setattr_(acl=acl), setattr_(mode=0))
    for cred in (USER, OTHER, MEMBER, auth_sys(9, 77)):
        for acc in (READ, WRITE):
            c.no("ACCESS", putfh(d), open_("f", acc | NO_DELEG), cred=cred)


def test_a_mode_leaves_what_is_inherited(c, d):
    acl = [ace(2000, R | W | A | X, flags=FI | DI), ace(3000, R | W | A, flags=FI | IO),
           ace(OWNER, FULL, flags=DI), ace(ALL, R | X)]
    sub = make(c, d, "sub", acl, kind=DIR)
    c.ok(putfh(sub), setattr_(mode=0o700))
    a = get(c, sub)
    check(a.mode, 0o700)
    check(rights(a.acl, 2000, (1,), 1000, 50) & (R | W | A | X), 0)
    passed = [(k, f & ~IO, m, w) for k, f, m, w in a.acl if f & (FI | DI)]
    check(passed, [(k, f & ~IO, m, w) for k, f, m, w in acl if f & (FI | DI)])
    below = c.ok(putfh(sub), create(FIFO, "x", mode=0o666), getfh()).fh
    check(rights(get(c, below).acl, 2000, (1,), 0, 0) & (R | W | A | X), R | W | A)


# ---- inheritance


def inherited(c, sub, kind, **attrs):
    name = f"n{random.randrange(10**9)}"
    if kind == REG:
        fh = c.ok(putfh(sub), open_(name, BOTH | NO_DELEG, how=GUARDED, attrs=attrs), getfh()).fh
    else:
        fh = c.ok(putfh(sub), create(kind, name, **attrs), getfh()).fh
    return fh, get(c, fh)


def test_flags_say_who_inherits(c, d):
    acl = [ace(1, R, flags=FI), ace(2, R, flags=DI), ace(3, R, flags=FI | DI),
           ace(4, R, flags=FI | NP), ace(5, R, flags=DI | NP),
           ace(6, R, flags=FI | DI | NP), ace(7, R, flags=FI | IO), ace(8, R, flags=DI | IO),
           ace(9, R, flags=FI | DI | IO), ace(10, R), ace(ALL, R | X | W | A | DC)]
    sub = make(c, d, "sub", acl, kind=DIR)
    for kind in (REG, FIFO, SOCK):
        check(inherited(c, sub, kind)[1].acl, [ace(n, R) for n in (1, 3, 4, 6, 7, 9)],
              f"type {kind}")
    fh, a = inherited(c, sub, DIR)
    check(a.acl, [ace(1, R, flags=FI | IO), ace(2, R, flags=DI), ace(3, R, flags=FI | DI),
                  ace(5, R), ace(6, R),
                  ace(7, R, flags=FI | IO), ace(8, R, flags=DI), ace(9, R, flags=FI | DI)])
    check(a.mode, 0)
    check(inherited(c, fh, REG)[1].acl, [ace(n, R) for n in (1, 3, 7, 9)])
    link_fh = c.ok(putfh(sub), create(LNK, "l", "x"), getfh()).fh
    check((c.attrs(link_fh, "mode").mode, mode_of(c.attrs(link_fh, "acl").acl)), (0o777, 0o777))


def test_mode_and_acl_at_create(c, d):
    """6.4.3: just the mode, just the ACL, both, neither."""
    acl = [ace(2000, R | W | A, flags=FI | DI), ace(OWNER, FULL, flags=FI | DI),
           ace(GROUP, R, flags=FI | DI), ace(ALL, RATTR, flags=FI | DI)]
    sub = make(c, d, "sub", acl, kind=DIR)
    own = [ace(3000, R), ace(OWNER, R | W | A)]
    for kind in (REG, FIFO, DIR):
        fh, a = inherited(c, sub, kind, mode=0o2640)
        check((a.mode, rights(a.acl, 2000, (1,), 0, 0) & (R | W | A)), (0o2640, R),
              f"mode only, type {kind}")
        fh, a = inherited(c, sub, kind, acl=own)
        check((a.mode, a.acl), (0o600, own), "ACL only")
        fh, a = inherited(c, sub, kind, acl=own, mode=0o4777)
        check((a.mode, a.acl), (0o4600, own), "both")
        fh, a = inherited(c, sub, kind)
        check(a.mode, 0o740 if mode_of(acl) == 0o740 else mode_of(acl), "neither")
        check(rights(a.acl, 2000, (1,), 0, 0), R | W | A | RATTR)
    check(c.ok(putfh(sub), open_("x", BOTH | NO_DELEG, how=EXCLUSIVE4_1,
                                 attrs={"acl": own, "mode": 0o600}, verf=b"12345678"),
               getattr_("acl")).attrs.acl, own)
    check({12, 58} & c.attrs(sub, "suppattr_exclcreat").suppattr_exclcreat, {12, 58})
    r = c.ok(putfh(d), create(FIFO, "r", acl=own, mode=0o600))
    check(r.attrset, {12, 33})


def test_a_umask_gives_way_to_what_is_inherited(c, d):
    acl = [ace(2000, R | W | A, flags=FI), ace(OWNER, R | W | A, flags=FI),
           ace(GROUP, R | W | A | X, flags=FI)]
    sub, plain = make(c, d, "sub", acl, kind=DIR), make(c, d, "plain", kind=DIR)
    fh, a = inherited(c, sub, REG, mode_umask=(0o666, 0o077))
    check((a.mode, rights(a.acl, 2000, (1,), 0, 0) & (R | W | A)), (0o660, R | W | A))
    fh, a = inherited(c, sub, REG, mode_umask=(0o604, 0o022))
    check((a.mode, rights(a.acl, 2000, (1,), 0, 0) & (R | W | A)), (0o600, 0))
    check(inherited(c, plain, REG, mode_umask=(0o666, 0o027))[1].mode, 0o640)
    nobody = make(c, d, "nobody", [ace(2000, R, flags=FI)], kind=DIR)
    check(inherited(c, nobody, REG, mode_umask=(0o666, 0o022))[1].mode, 0o600,
          "an ACL that does not speak of the owner")
    check(inherited(c, sub, DIR, mode_umask=(0o777, 0o022))[1].mode & 0o077, 0,
          "what only files inherit leaves nothing for others")


def test_a_setgid_directory_with_an_acl_hands_down_both(c, d):
    sub = make(c, d, "sub", [ace(2000, R, flags=FI | DI), ace(ALL, R | W | A | X | DC)], kind=DIR)
    c.ok(putfh(sub), setattr_(mode_set_masked=(0o2000, 0o2000)))
    a = c.ok(putfh(sub), create(DIR, "x", mode=0o755), getattr_("mode", "owner_group", "acl"),
             cred=OTHER).attrs
    check((a.mode, a.owner_group, a.acl[-1][3]), (0o2755, "50", ALL))


# ---- dacl


def test_dacl_carries_the_flags_of_automatic_inheritance(c, d):
    f, sub = make(c, d, "f"), make(c, d, "sub", kind=DIR)
    flags, aces = c.attrs(f, "dacl").dacl
    check((flags, mode_of(aces)), (0, 0o644))
    acl = [ace(2000, R, flags=FI | DI | INHERITED), ace(ALL, R | W | A | X | DC)]
    c.ok(putfh(sub), setattr_(dacl=(1, acl)))
    check(c.attrs(sub, "dacl").dacl, (1, acl))
    check(get(c, sub).acl[0][1], FI | DI, "INHERITED is dacl's alone")
    fh, a = inherited(c, sub, FIFO)
    check(c.attrs(fh, "dacl").dacl, (1, [ace(2000, R, flags=INHERITED)]))
    c.ok(putfh(fh), setattr_(mode=0o600))
    check(c.attrs(fh, "dacl").dacl[0], 3, "a mode that changes inherited ACEs protects")
    c.ok(putfh(sub), setattr_(acl=[ace(ALL, R, flags=FI | INHERITED)]))
    check(c.attrs(sub, "dacl").dacl, (2, [ace(ALL, R, flags=FI)]),
          "one who sets acl knows nothing of it")
    check(59 in c.attrs(f, "supported_attrs").supported_attrs, False)


# ---- the rest


def test_an_acl_goes_where_its_file_goes(c, d):
    acl = [ace(2000, R), ace(OWNER, FULL)]
    f = make(c, d, "f", acl)
    c.ok(putfh(f), op("SETXATTR", u32(0), opaque("user"), opaque("value")))
    c.ok(putfh(d), savefh(), rename("f", "g"), putfh(f), savefh(), putfh(d), link("h"))
    s, _ = c.open(d, "g", how=None)
    c.ok(putfh(f), write(s, 0, b"data", FILE_SYNC), setattr_(s, size=2), close(s))
    check(get(c, f).acl, acl)
    sub = make(c, d, "sub", acl, kind=DIR)
    c.ok(putfh(sub), op("SETXATTR", u32(0), opaque("weft.policy"), opaque("mirrors=2")))
    check(get(c, sub).acl, acl)
    c.ok(putfh(sub), setattr_(acl=[ace(ALL, FULL)]))
    check(c.ok(putfh(sub), op("GETXATTR", opaque("weft.policy"))).status, 0)
    for name in "gh":
        c.ok(putfh(d), remove(name))
    c.no("STALE", putfh(f), getattr_("acl"))


def test_an_acl_that_is_set_takes_back_the_layouts_of_others(c, d):
    for attrs in ({"acl": [ace(OWNER, R)]}, {"mode_set_masked": (0, 0o077)}):
        s, f, o, ds, fh = steps.one_server(c, d)
        steps.returns_when_recalled(c, f)
        client().ok(putfh(f), setattr_(**attrs))
        check(c.wait_callback("LAYOUTRECALL").fh, f)
        c.ok(putfh(f), close(s), putfh(d), remove("f"))


def test_an_acl_that_says_what_the_mode_says_is_not_kept(c, d):
    f = make(c, d, "f", mode=0o640)
    acl = get(c, f).acl
    c.ok(putfh(f), setattr_(acl=[ace(2000, FULL)] + acl))
    check(len(get(c, f).acl), len(acl) + 1)
    c.ok(putfh(f), setattr_(acl=acl))
    c.ok(putfh(f), setattr_(mode=0o604))
    fresh = make(c, d, "fresh", mode=0o604)
    check(get(c, f).acl, get(c, fresh).acl)


def fsck(w):
    done = subprocess.run([os.path.join(BUILD, "weft-fsck"), "--json", os.path.join(w.dir, "mds")],
                          capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, json.loads(done.stdout)


def restart_acls_outlive_the_server(w):
    c = client()
    d = c.mkdir(c.root(), "d", attrs={"mode": 0o755})
    acl = [ace(2000, R, DENY), group(77, R | W | A, flags=0), ace(OWNER, FULL), ace(ALL, R)]
    f = make(c, d, "f", acl)
    tree = [ace(2000, FULL, flags=FI | DI), ace(ALL, R | X)]
    sub = make(c, d, "sub", tree, kind=DIR)
    gone = make(c, d, "gone", acl)
    c.ok(putfh(d), remove("gone"))
    c.no("STALE", putfh(gone), getattr_("acl"))
    w.restart()
    c = client()
    c.until(lambda got: err(got.status) not in ("GRACE", "DELAY"), putfh(d), lookup("f"))
    check((get(c, f).acl, get(c, sub).acl), (acl, tree))
    check(may(c, OTHER, putfh(f), access(1)), True)
    check(c.ok(putfh(f), access(1), cred=OTHER).access, 0)
    check(c.ok(putfh(f), access(1), cred=MEMBER).access, 1)
    rc, got = fsck(w)
    check((rc, got["violations"], got["acls"]), (0, [], 2))


if __name__ == "__main__":
    base.main(globals(), settings=base.CALM)
