#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Permissions, OPEN, stateids, READ, WRITE and byte-range locks, over the wire (RFC
8881). Prints TAP.

A test gets a client and the filehandle of a directory of its own. A test whose name begins with
restart_ gets a cluster of its own.
"""
import os
import sys
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../wirelib"))
import harness  # noqa: E402
from harness import *  # noqa: E402,F403
from nfs41 import err, op  # noqa: E402
from steps import *  # noqa: E402,F403


# ---- permissions


def test_access_bits_of_owner_group_and_others(c, d):
    _, f = c.open(d, "f", attrs={"mode": 0o640, "owner": "1000", "owner_group": "50"})
    file_all = 0x01 | 0x04 | 0x08 | 0x20  # READ, MODIFY, EXTEND, EXECUTE
    for cred, want in ((auth_sys(0), 0x0d), (USER, 0x0d), (auth_sys(2000, 50), 0x01),
                       (auth_sys(2000, 60, (70, 50)), 0x01), (OTHER, 0), (NOBODY, 0)):
        got = c.ok(putfh(f), access(file_all), cred=cred)
        check((got.supported, got.access), (file_all, want), str(cred))
    c.ok(putfh(f), setattr_(mode=0o711))
    check(c.ok(putfh(f), access(0x3f), cred=OTHER).access & 0x2d, 0x20)
    check(c.ok(putfh(f), access(0x01), cred=auth_sys(0)).supported, 0x01)


def test_access_bits_of_a_directory(c, d):
    sub = c.mkdir(d, "sub", attrs={"mode": 0o751, "owner": "1000", "owner_group": "50"})
    dir_all = 0x01 | 0x02 | 0x04 | 0x08 | 0x10
    for cred, want in ((auth_sys(0), dir_all), (USER, dir_all), (auth_sys(2000, 50), 0x03),
                       (OTHER, 0x02), (NOBODY, 0x02)):
        got = c.ok(putfh(sub), access(dir_all), cred=cred)
        check((got.supported, got.access), (dir_all, want), str(cred))


def test_sixteen_groups_count(c, d):
    _, f = c.open(d, "f", attrs={"mode": 0o060, "owner": "1", "owner_group": "115"})
    c.ok(putfh(d), open_("f", BOTH | NO_DELEG), cred=auth_sys(2000, 2000, range(100, 116)))
    c.no("ACCESS", putfh(d), open_("f", BOTH | NO_DELEG), cred=auth_sys(2000, 2000, range(99, 115)))
    # The owner's bits come first.
    c.no("ACCESS", putfh(d), open_("f", BOTH | NO_DELEG), cred=auth_sys(1, 115))


def test_auth_none_is_nobody(c, d):
    private, public = (c.mkdir(d, "private", attrs={"mode": 0o700}),
                       c.mkdir(d, "public", attrs={"mode": 0o777}))
    c.no("ACCESS", putfh(private), readdir(), cred=NOBODY)
    c.no("ACCESS", putfh(private), create(DIR, "x"), cred=NOBODY)
    c.no("PERM", putfh(public), setattr_(mode=0o700), cred=NOBODY)
    c.ok(putfh(public), create(DIR, "x", mode=0o755), cred=NOBODY)
    check(c.ok(putfh(public), lookup("x"), getattr_("owner")).attrs.owner, "65534")


def test_what_needs_permission_is_refused_without(c, d):
    c.ok(putfh(d), setattr_(mode=0o755))
    s, f = c.open(d, "f", attrs={"mode": 0o600})
    closed = c.mkdir(d, "closed", attrs={"mode": 0o700})
    c.mkdir(closed, "x")
    for ops in ([putfh(d), create(DIR, "y")], [putfh(d), remove("f")],
                [putfh(d), savefh(), rename("f", "g")], [putfh(f), savefh(), putfh(d), link("g")],
                [putfh(d), open_("f")], [putfh(d), open_("f", WRITE | NO_DELEG)],
                [putfh(d), open_("new", BOTH | NO_DELEG, how=UNCHECKED, attrs={"mode": 0o600})],
                [putfh(closed), readdir()], [putfh(closed), lookup("x")],
                [putfh(f), read(ANON, 0, 1)], [putfh(f), write(ANON, 0, b"x")],
                [putfh(f), setattr_(size=0)], [putfh(f), setattr_(time_modify_set=None)],
                [putfh(f), getxattr("a")], [putfh(f), setxattr("a", "b")]):
        c.no("ACCESS", *ops, cred=USER)
    for attrs in ({"mode": 0o777}, {"owner": "1000"}, {"owner_group": "1000"},
                  {"time_modify_set": (1, 1)}):
        c.no("PERM", putfh(f), setattr_(**attrs), cred=USER)
    check(c.ok(putfh(f), access(0x3f), cred=USER).access, 0)


def test_owners_do_what_owners_may(c, d):
    _, f = c.open(d, "f", attrs={"mode": 0o000, "owner": "1000", "owner_group": "50"})
    c.ok(putfh(f), setattr_(mode=0o600, time_modify_set=(1, 1)), cred=USER)
    c.no("PERM", putfh(f), setattr_(owner="2000"), cred=USER)
    c.no("PERM", putfh(f), setattr_(owner_group="60"), cred=USER)
    c.ok(putfh(f), setattr_(owner_group="60"), cred=auth_sys(1000, 1000, (60,)))
    c.ok(putfh(f), setattr_(owner="1000"), cred=USER)
    check(c.attrs(f, "owner", "owner_group", "mode").owner_group, "60")


def test_new_files_belong_to_who_made_them(c, d):
    c.ok(putfh(d), setattr_(mode=0o777))
    a = c.ok(putfh(d), create(DIR, "x", mode=0o700), getattr_("owner", "owner_group"),
             cred=auth_sys(1000, 55)).attrs
    check((a.owner, a.owner_group), ("1000", "55"))
    c.no("PERM", putfh(d), create(DIR, "y", mode=0o700, owner="2000"), cred=USER)


def test_a_setgid_directory_hands_its_group_down(c, d):
    sub = c.mkdir(d, "sub", attrs={"mode": 0o2777, "owner_group": "77"})
    r = c.ok(putfh(sub), create(DIR, "x", mode=0o755), getattr_("owner_group", "mode"),
             cred=USER).attrs
    check((r.owner_group, r.mode), ("77", 0o2755))
    r = c.ok(putfh(sub), open_("f", BOTH | NO_DELEG, how=GUARDED, attrs={"mode": 0o2755}),
             getattr_("owner_group", "mode"), cred=USER).attrs
    check((r.owner_group, r.mode), ("77", 0o755), "set-group-id of a group one is not in")


def test_a_sticky_directory_guards_its_entries(c, d):
    sub = c.mkdir(d, "sub", attrs={"mode": 0o1777})
    c.ok(putfh(sub), create(FIFO, "mine", mode=0o666), putfh(sub), create(DIR, "dir", mode=0o777),
         cred=USER)
    for ops in ([putfh(sub), remove("mine")], [putfh(sub), remove("dir")],
                [putfh(sub), savefh(), rename("mine", "x")]):
        c.no(("ACCESS", "PERM"), *ops, cred=OTHER)
    c.ok(putfh(sub), create(FIFO, "his", mode=0o666), cred=OTHER)
    c.no(("ACCESS", "PERM"), putfh(sub), savefh(), rename("his", "mine"), cred=OTHER)
    c.ok(putfh(sub), remove("mine"), cred=USER)
    c.ok(putfh(sub), savefh(), rename("dir", "dir2"), cred=USER)


def test_set_id_bits_fall_when_others_write_or_own(c, d):
    s, f = c.open(d, "f", attrs={"mode": 0o6777})
    c.ok(putfh(f), write(s, 0, b"root", FILE_SYNC))
    check(c.attrs(f, "mode").mode, 0o6777)
    r = c.ok(putfh(d), open_("f", WRITE | NO_DELEG, owner=b"u"), cred=USER)
    c.ok(putfh(f), write(r.stateid, 0, b"user", FILE_SYNC), cred=USER)
    check(c.attrs(f, "mode").mode, 0o777)
    c.ok(putfh(f), setattr_(mode=0o6777), setattr_(r.stateid, size=1), cred=auth_sys())
    c.ok(putfh(f), setattr_(mode=0o6777))
    c.ok(putfh(f), setattr_(r.stateid, size=0), cred=USER)
    check(c.attrs(f, "mode").mode, 0o777)
    c.ok(putfh(f), setattr_(mode=0o6755, owner="1000"))
    c.ok(putfh(f), setattr_(mode=0o2755), cred=USER)
    check(c.attrs(f, "mode").mode, 0o755, "set-group-id by an owner outside the group")


def test_parents_need_no_reading_for_lookup(c, d):
    sub = c.mkdir(d, "sub", attrs={"mode": 0o711})
    c.mkdir(sub, "x")
    c.ok(putfh(sub), lookup("x"), cred=USER)
    c.no("ACCESS", putfh(sub), readdir(), cred=USER)
    c.ok(putfh(sub), setattr_(mode=0o744))
    c.ok(putfh(sub), readdir(), cred=USER)
    c.no("ACCESS", putfh(sub), lookup("x"), cred=USER)


# ---- OPEN (18.16) and its kin


def test_unchecked_create_makes_or_opens(c, d):
    a = opened(c, d, "f", how=UNCHECKED, attrs={"mode": 0o640})
    check((a.attrset, a.attrs.mode, a.attrs.size), (attrset("mode"), 0o640, 0))
    c.ok(putfh(a.fh), write(a.stateid, 0, b"data"))
    b = opened(c, d, "f", how=UNCHECKED, attrs={"mode": 0o600}, owner=b"b")
    check((b.fh, b.attrset, b.attrs.mode, b.attrs.size), (a.fh, set(), 0o640, 4))
    b = opened(c, d, "f", how=UNCHECKED, attrs={"mode": 0o600, "size": 0}, owner=b"b")
    check((b.attrset, b.attrs.mode, b.attrs.size), (attrset("size"), 0o640, 0))


def test_guarded_create_only_makes(c, d):
    a = opened(c, d, "f", how=GUARDED, attrs={"mode": 0o604, "size": 100})
    check((a.attrset, a.attrs.mode, a.attrs.size), (attrset("mode", "size"), 0o604, 100))
    c.no("EXIST", putfh(d), open_("f", BOTH | NO_DELEG, how=GUARDED, attrs={"mode": 0o600}))
    c.mkdir(d, "dir")
    c.no("EXIST", putfh(d), open_("dir", BOTH | NO_DELEG, how=GUARDED, attrs={"mode": 0o600}))


def test_create_by_open_sets_what_it_says(c, d):
    want = {"mode": 0o751, "owner": "7", "owner_group": "8", "time_modify_set": (5, 6),
            "time_access_set": (3, 4)}
    a = opened(c, d, "f", how=GUARDED, attrs=want)
    check(a.attrset, attrset(*want))
    got = c.attrs(a.fh, "mode", "owner", "owner_group", "time_modify", "time_access")
    check((got.mode, got.owner, got.owner_group, got.time_modify, got.time_access),
          (0o751, "7", "8", (5, 6), (3, 4)))


def test_mode_umask_is_applied(c, d):
    a = opened(c, d, "f", how=GUARDED, attrs={"mode_umask": (0o666, 0o027)})
    check((a.attrs.mode, a.attrset), (0o640, attrset("mode_umask")))
    c.no("INVAL", putfh(d), open_("g", BOTH | NO_DELEG, how=GUARDED,
                                  attrs={"mode_umask": (0o666, 0o22), "mode": 0o600}))
    c.no("INVAL", putfh(a.fh), setattr_(mode_umask=(0o666, 0o022)))


def test_exclusive4_is_inval_of_a_pnfs_server(c, d):
    c.no("INVAL", putfh(d), open_("f", BOTH | NO_DELEG, how=EXCLUSIVE))
    check(c.readdir_all(d), [])


def test_exclusive4_1_knows_its_verifier(c, d):
    kw = dict(how=EXCLUSIVE4_1, verf=b"verifier", attrs={"mode": 0o640})
    a = opened(c, d, "f", **kw)
    check((a.attrs.mode, attrset("mode") - a.attrset), (0o640, set()))
    b = opened(c, d, "f", **kw)
    check((b.fh, b.stateid[1], b.stateid[0]), (a.fh, a.stateid[1], a.stateid[0] + 1))
    check(attrset("mode") - b.attrset, set())
    other = client()
    check(opened(other, d, "f", **kw).fh, a.fh)
    c.no("EXIST", putfh(d),
         open_("f", BOTH | NO_DELEG, how=EXCLUSIVE4_1, verf=b"another.", attrs={"mode": 0o640}))
    c.no("EXIST", putfh(d), open_("f", BOTH | NO_DELEG, how=GUARDED, attrs={"mode": 0o640}))


def test_exclusive4_1_takes_what_suppattr_exclcreat_lists(c, d):
    listed = c.attrs(d, "suppattr_exclcreat").suppattr_exclcreat
    check(attrset("mode", "size") - listed, set())
    values = {"mode": 0o600, "size": 0, "owner": "1", "owner_group": "2", "time_access_set": (1, 2),
              "time_modify_set": (1, 2)}
    for name, value in values.items():
        one = open_(f"f {name}", BOTH | NO_DELEG, how=EXCLUSIVE4_1, verf=b"verifier",
                    attrs={name: value})
        if ATTR[name] in listed:
            got = c.ok(putfh(d), one)
            check(ATTR[name] in got.attrset, True)
        else:
            c.no("INVAL", putfh(d), one)


def test_open_for_writing_of_a_new_read_only_file(c, d):
    c.ok(putfh(d), setattr_(mode=0o777))
    for i, how in enumerate((UNCHECKED, GUARDED, EXCLUSIVE4_1)):
        r = c.ok(putfh(d), open_(f"f{i}", BOTH | NO_DELEG, how=how, attrs={"mode": 0o444}), getfh(),
                 cred=USER)
        c.ok(putfh(r.fh), write(r.all[1].stateid, 0, b"x"), cred=USER)
        c.no("ACCESS", putfh(d), open_(f"f{i}", BOTH | NO_DELEG, owner=b"2"), cred=USER)


def test_truncation_by_open_needs_write_permission(c, d):
    s, f = c.open(d, "f", attrs={"mode": 0o644})
    c.ok(putfh(f), write(s, 0, b"data"))
    c.no("ACCESS", putfh(d), open_("f", READ | NO_DELEG, how=UNCHECKED, attrs={"size": 0}),
         cred=USER)
    check(c.attrs(f, "size").size, 4)


def test_what_open_cannot_open(c, d):
    sub = c.mkdir(d, "dir")
    link_fh = c.ok(putfh(d), create(LNK, "link", "dir"), getfh()).fh
    fifo = c.ok(putfh(d), create(FIFO, "fifo"), getfh()).fh
    # RFC 8881 section 18.16.3 has WRONG_TYPE for the fifo. Linux turns that into EIO, and handles
    # SYMLINK correctly.
    for name, fh, want in (("dir", sub, "ISDIR"), ("link", link_fh, "SYMLINK"),
                           ("fifo", fifo, "SYMLINK")):
        c.no(want, putfh(d), open_(name))
        c.no(want, putfh(d), open_(name, BOTH | NO_DELEG, how=UNCHECKED, attrs={"mode": 0o600}))
        c.no(want, putfh(fh), open_(claim_fh()))
    c.no("NOENT", putfh(d), open_("no"))
    _, f = c.open(d, "f")
    c.no("NOTDIR", putfh(f), open_("x"))
    c.no(("SYMLINK", "NOTDIR"), putfh(link_fh), open_("x"))


def test_open_by_filehandle(c, d):
    s, f = c.open(d, "f")
    got = c.ok(putfh(f), open_(claim_fh(), BOTH | NO_DELEG), getfh())
    check((got.all[1].stateid, got.fh), ((s[0] + 1, s[1]), f))


def test_open_arguments_that_make_no_sense(c, d):
    c.open(d, "f")
    for acc, deny in ((0, 0), (4, 0), (READ, 4)):
        c.no("INVAL", putfh(d), open_("f", acc, deny))
    c.no("BADXDR", putfh(d), open_(u32(9)))
    c.no(("BADXDR", "INVAL"), putfh(d),
         op("OPEN", u32(0), u32(1), u32(0), u64(0), opaque("o"), u32(2), claim_null("f")))
    c.no("NO_GRACE", putfh(d), lookup("f"), open_(claim_previous()))


def test_share_reservations(c, d):
    one, two = client(), client()
    for acc in (READ, WRITE, BOTH):
        for deny in range(4):
            s, f = one.open(d, "f", acc, deny=deny)
            for acc2 in (READ, WRITE, BOTH):
                for deny2 in range(4):
                    conflict = acc & deny2 or acc2 & deny
                    got = two.call(putfh(d), open_("f", acc2 | NO_DELEG, deny2))
                    check(err(got.status), "SHARE_DENIED" if conflict else "OK",
                          f"{acc} {deny} then {acc2} {deny2}")
                    if not conflict:
                        two.ok(putfh(f), close(got.results[-1].stateid))
            one.ok(putfh(f), close(s))


def test_an_open_is_checked_against_its_owners_own(c, d):
    s, f = c.open(d, "f", READ, deny=WRITE)
    c.no("SHARE_DENIED", putfh(d), open_("f", BOTH | NO_DELEG))
    c.no("SHARE_DENIED", putfh(d), open_("f", BOTH | NO_DELEG, owner=b"two"))
    check(c.ok(putfh(d), open_("f", READ | NO_DELEG)).stateid, (s[0] + 1, s[1]))


def test_opens_of_one_owner_make_one_state(c, d):
    s, f = c.open(d, "f", READ)
    c.no("OPENMODE", putfh(f), write(s, 0, b"x"))
    s2, _ = c.open(d, "f", WRITE)
    check(s2, (s[0] + 1, s[1]))
    c.ok(putfh(f), write(s2, 0, b"x"), read(s2, 0, 1), close(s2))
    c.no("BAD_STATEID", putfh(f), read(s2, 0, 1))
    s3, _ = c.open(d, "f", READ)
    check((s3[0], s3[1] != s[1]), (1, True))
    check(c.open(d, "f", READ, owner=b"other")[0][1] != s3[1], True)


def test_open_downgrade(c, d):
    c.open(d, "f", READ)
    s, f = c.open(d, "f", BOTH)
    got = c.ok(putfh(f), open_downgrade(s, READ))
    check(got.stateid, (s[0] + 1, s[1]))
    c.no("OPENMODE", putfh(f), write(got.stateid, 0, b"x"))
    c.no("INVAL", putfh(f), open_downgrade(got.stateid, BOTH))
    c.no("INVAL", putfh(f), open_downgrade(got.stateid, READ, WRITE))
    c.no("INVAL", putfh(f), open_downgrade(got.stateid, 0))
    c.no("OLD_STATEID", putfh(f), open_downgrade(s, READ))
    c.no("BAD_STATEID", putfh(f), open_downgrade(ANON, READ))
    two = client()
    two.ok(putfh(d), open_("f", READ | NO_DELEG, WRITE))


def test_close(c, d):
    s, f = c.open(d, "f")
    s2, _ = c.open(d, "f")
    c.no("OLD_STATEID", putfh(f), close(s))
    c.no("BAD_STATEID", putfh(f), close((s2[0] + 1, s2[1])))
    c.no("BAD_STATEID", putfh(f), close(ANON))
    c.no("BAD_STATEID", putfh(d), close(s2))
    check(c.ok(putfh(f), close((0, s[1]))).stateid, INVALID)
    c.no("BAD_STATEID", putfh(f), close(s2))


def test_a_file_replaced_while_open_lives_until_close(c, d):
    s, f = c.open(d, "f")
    c.ok(putfh(f), write(s, 0, b"old"))
    c.open(d, "g")
    c.ok(putfh(d), savefh(), rename("g", "f"))
    check(c.ok(putfh(f), read(s, 0, 9)).data, b"old")
    c.ok(putfh(f), close(s))
    check(err(c.call(putfh(f), getattr_("type")).status), "STALE")


def test_a_name_made_again_is_another_file(c, d):
    s, f = c.open(d, "f")
    old = c.attrs(f, "fileid").fileid
    c.ok(putfh(f), write(s, 0, b"old"), close(s), putfh(d), remove("f"))
    s, g = c.open(d, "f")
    check((g != f, c.attrs(g, "fileid").fileid != old), (True, True))
    check(c.ok(putfh(g), read(s, 0, 9)).data, b"")


def test_space_and_files_add_up(c, d):
    a = c.attrs(d, "space_total", "space_free", "space_avail", "files_total", "files_free",
                "files_avail")
    check(a.space_total >= a.space_free >= a.space_avail > 0, True)
    check(a.files_total >= a.files_free >= a.files_avail > 0, True)


def test_open_owners_have_a_limit(c, d):
    c.open(d, "f", owner=b"o" * 1024)
    c.no("BADXDR", putfh(d), open_("f", owner=b"o" * 1025))
    one, two = c.open(d, "f", owner=b"")[0], c.open(d, "f", owner=b"\0")[0]
    check(one[1] != two[1], True)


# ---- stateids (8.2)


def test_stateid_seqids(c, d):
    s, f = c.open(d, "f")
    now, _ = c.open(d, "f")
    for one in (read, lambda sid, o, n: write(sid, o, b"x"),
                lambda sid, o, n: setattr_(sid, size=5)):
        c.no("OLD_STATEID", putfh(f), one(s, 0, 1))
        c.no("BAD_STATEID", putfh(f), one((now[0] + 1, now[1]), 0, 1))
        c.ok(putfh(f), one((0, now[1]), 0, 1))
        c.ok(putfh(f), one(now, 0, 1))


def test_stateids_that_are_not_ones_own(c, d):
    s, f = c.open(d, "f")
    _, g = c.open(d, "g")
    two = client()
    bogus = s[0], s[1][:-1] + bytes([s[1][-1] ^ 0x55])
    for one in (lambda sid: read(sid, 0, 1), lambda sid: write(sid, 0, b"x"),
                lambda sid: setattr_(sid, size=5), close):
        c.no("BAD_STATEID", putfh(g), one(s))
        two.no("BAD_STATEID", putfh(f), one(s))
        c.no("BAD_STATEID", putfh(f), one(bogus))


def test_special_stateids(c, d):
    s, f = c.open(d, "f")
    c.ok(putfh(f), write(ANON, 0, b"anonymous"), read(ANON, 0, 9), read(BYPASS, 0, 9),
         write(BYPASS, 0, b"x"), setattr_(ANON, size=3), setattr_(BYPASS, size=3))
    for bad in (INVALID, (2, bytes(12)), (0, b"\xff" * 12), (7, b"\xff" * 12), CURRENT):
        for one in (read(bad, 0, 1), write(bad, 0, b"x"), setattr_(bad, size=1), close(bad),
                    open_downgrade(bad, READ)):
            c.no("BAD_STATEID", putfh(f), one)


def test_special_stateids_meet_share_reservations(c, d):
    s, f = c.open(d, "f", READ, deny=BOTH)
    two = client()
    two.no("LOCKED", putfh(f), read(ANON, 0, 1))
    two.no("LOCKED", putfh(f), write(ANON, 0, b"x"))
    two.no("LOCKED", putfh(f), write(BYPASS, 0, b"x"))
    two.no("LOCKED", putfh(f), setattr_(ANON, size=1))
    two.ok(putfh(f), setattr_(ANON, mode=0o600))


def test_the_current_stateid(c, d):
    r = c.ok(putfh(d), open_("f", BOTH | NO_DELEG, how=GUARDED, attrs={"mode": 0o600}),
             write(CURRENT, 0, b"current"), read(CURRENT, 0, 10), setattr_(CURRENT, size=3),
             getattr_("size"), close(CURRENT))
    check((r.all[3].data, r.all[5].attrs.size), (b"current", 3))
    s, f = c.open(d, "f")
    c.no("BAD_STATEID", putfh(d), open_("f"), putfh(f), read(CURRENT, 0, 1))
    r = c.ok(putfh(d), open_("f", BOTH | NO_DELEG), savefh(), putfh(d), restorefh(),
             read(CURRENT, 0, 3))
    check(r.data, b"cur")


def test_test_stateid_and_free_stateid(c, d):
    s, f = c.open(d, "f")
    s2, _ = c.open(d, "f")
    got = c.ok(test_stateid(s2, s, (s2[0] + 1, s2[1]), (1, b"\x01" * 12), ANON, BYPASS)).statuses
    check([err(x) for x in got],
          ["OK", "OLD_STATEID", "BAD_STATEID", "BAD_STATEID", "BAD_STATEID", "BAD_STATEID"])
    check(c.ok(test_stateid()).statuses, [])
    c.no("LOCKS_HELD", free_stateid(s2))
    c.no("BAD_STATEID", free_stateid((1, b"\x01" * 12)))
    c.no("BAD_STATEID", free_stateid(ANON))
    check(err(client().ok(test_stateid(s2)).statuses[0]), "BAD_STATEID")


# ---- READ, WRITE, COMMIT, sizes


def test_data_goes_through_the_metadata_server(c, d):
    s, f = c.open(d, "f")
    data = os.urandom(1 << 20)
    got = c.ok(putfh(f), write(s, 0, data))
    check(got.count, len(data))
    c.ok(putfh(f), write(s, 3 << 20, b"tail"), write(s, 100, b"overlay"), commit())
    data = data[:100] + b"overlay" + data[107:]
    check(c.ok(putfh(f), read(s, 0, 1 << 20)).data, data)
    check(c.ok(putfh(f), read(s, 1 << 20, 1 << 20)).data, bytes(1 << 20))
    got = c.ok(putfh(f), read(s, (3 << 20) - 2, 100), getattr_("size"))
    check((got.all[1].data, got.all[1].eof, got.attrs.size), (b"\0\0tail", True, (3 << 20) + 4))


def test_reads_at_and_beyond_the_end(c, d):
    s, f = c.open(d, "f")
    for offset, count in ((0, 10), (100, 1), (2**62, 10)):
        got = c.ok(putfh(f), read(s, offset, count))
        check((got.data, got.eof), (b"", True))
    c.ok(putfh(f), write(s, 0, b"0123456789"))
    for offset, count, want, eof in ((0, 10, b"0123456789", True), (0, 5, b"01234", False),
                                     (5, 100, b"56789", True), (10, 1, b"", True),
                                     (3, 0, b"", False)):
        got = c.ok(putfh(f), read(s, offset, count))
        check((got.data, got.eof), (want, eof), f"{offset} {count}")


def test_write_tells_how_stable_it_is(c, d):
    s, f = c.open(d, "f")
    for how in (UNSTABLE, DATA_SYNC, FILE_SYNC):
        got = c.ok(putfh(f), write(s, 0, b"x", how))
        check((got.count, got.how >= how), (1, True))
    check(c.ok(putfh(f), commit()).verf, got.verf)
    check(c.ok(putfh(f), write(s, 5, b"")).count, 0)
    check(c.attrs(f, "size").size, 1, "a WRITE of nothing")
    c.no(("BADXDR", "INVAL"), putfh(f), write(s, 0, b"x", 3))


def test_io_on_what_is_no_file(c, d):
    link_fh = c.ok(putfh(d), create(LNK, "l", "x"), getfh()).fh
    fifo = c.ok(putfh(d), create(FIFO, "p"), getfh()).fh
    for fh, want in ((d, "ISDIR"), (link_fh, "SYMLINK"), (fifo, "WRONG_TYPE")):
        for one in (read(ANON, 0, 1), write(ANON, 0, b"x"), commit()):
            c.no(want, putfh(fh), one)
    c.no("ISDIR", putfh(d), setattr_(size=0))
    c.no(("INVAL", "SYMLINK", "WRONG_TYPE"), putfh(link_fh), setattr_(size=0))


def test_writes_beyond_the_largest_file_are_too_big(c, d):
    s, f = c.open(d, "f")
    most = c.attrs(f, "maxfilesize").maxfilesize
    c.no("FBIG", putfh(f), write(s, most, b"x"))
    c.no(("FBIG", "INVAL"), putfh(f), write(s, MAX64, b"xx"))
    c.no("FBIG", putfh(f), setattr_(s, size=most + 1))
    c.no(("FBIG", "INVAL"), putfh(f), setattr_(s, size=MAX64))
    check(c.attrs(f, "size").size, 0)
    c.ok(putfh(f), setattr_(s, size=most), setattr_(s, size=0))


def test_sizes_are_set(c, d):
    s, f = c.open(d, "f")
    c.ok(putfh(f), write(s, 0, b"0123456789", FILE_SYNC))
    for sid, size, want in ((s, 4, b"0123"), (ANON, 8, b"0123\0\0\0\0"), (s, 0, b""),
                            ((0, s[1]), 3, b"\0\0\0")):
        check(c.ok(putfh(f), setattr_(sid, size=size)).attrset, attrset("size"))
        got = c.ok(putfh(f), read(s, 0, 100), getattr_("size"))
        check((got.all[1].data, got.attrs.size), (want, size))
    r, _ = c.open(d, "f", READ, how=None, owner=b"reader")
    c.no("OPENMODE", putfh(f), setattr_(r, size=1))
    c.ok(putfh(f), close(s))
    c.no("BAD_STATEID", putfh(f), setattr_(s, size=1))


def test_a_large_sparse_file(c, d):
    s, f = c.open(d, "f")
    c.ok(putfh(f), setattr_(s, size=100 << 30), write(s, 70 << 30, b"middle"))
    check(c.ok(putfh(f), read(s, (70 << 30) - 1, 8)).data, b"\0middle\0")
    check(c.attrs(f, "size").size, 100 << 30)


def test_writes_of_many_slots_meet(c, d):
    s, f = c.open(d, "f")
    started = [c.begin(putfh(f), write(s, i * 8192, bytes([i]) * 8192)) for i in range(16)]
    for one in started:
        check(c.finish(one).status, 0)
    data = c.ok(putfh(f), commit(), read(s, 0, 1 << 20)).data
    check(data == b"".join(bytes([i]) * 8192 for i in range(16)), True)


def test_a_write_moves_mtime_and_change(c, d):
    s, f = c.open(d, "f")
    c.ok(putfh(f), setattr_(time_modify_set=(1, 1)))
    a = c.attrs(f, "change", "time_metadata")
    c.ok(putfh(f), write(s, 0, b"x"))
    b = c.attrs(f, "change", "time_modify", "time_metadata")
    check((b.change > a.change, b.time_modify > (1, 1), b.time_metadata >= a.time_metadata),
          (True, True, True))


# ---- byte-range locks (RFC 8881, 18.10 to 18.12)


def test_a_lock_keeps_others_out(c, d):
    s, f = c.open(d, "f")
    two = client()
    s2, _ = two.open(d, "f")
    k = c.ok(putfh(f), lock(s, WRITE_LT, 10, 20, b"me")).stateid
    check(k[0], 1)
    got = two.no("DENIED", putfh(f), lock(s2, READ_LT, 0, 11, b"you"))
    # guess_test.py tests whose client it is.
    check((got.first, got.length, got.kind, got.owner), (10, 20, WRITE_LT, b"me"))
    got = two.no("DENIED", putfh(f), lockt(WRITE_LT, 29, 1, b"you"))
    check((got.first, got.length), (10, 20))
    two.ok(putfh(f), lockt(WRITE_LT, 30, 1, b"you"))
    two.no("DENIED", putfh(f), lock(s2, WRITEW_LT, 0, MAX64, b"you"))
    # another owner of the same client, and the owner itself
    c.no("DENIED", putfh(f), lockt(READ_LT, 15, 1, b"other"))
    c.ok(putfh(f), lockt(WRITE_LT, 15, 1, b"me"))
    k2 = two.ok(putfh(f), lock(s2, READ_LT, 30, MAX64, b"you")).stateid
    check(c.no("DENIED", putfh(f), lock(k, WRITE_LT, 100, 1)).length, MAX64)
    c.ok(putfh(f), lock(k, READ_LT, 100, 1))
    two.ok(putfh(f), locku(k2, 0, MAX64))
    check(c.ok(putfh(f), lock((2, k[1]), WRITE_LT, 100, 1)).stateid, (3, k[1]))


def test_locks_are_split_and_joined(c, d):
    s, f = c.open(d, "f")
    two = client()
    k = c.ok(putfh(f), lock(s, WRITE_LT, 0, 100, b"me")).stateid
    k = c.ok(putfh(f), locku(k, 40, 20)).stateid
    k = c.ok(putfh(f), lock(k, READ_LT, 80, 10)).stateid
    def held(first, length):
        got = two.call(putfh(f), lockt(WRITE_LT, first, length, b"you")).results[-1]
        return (got.first, got.length, got.kind) if got.status else None
    check([held(*w) for w in ((0, 1), (40, 20), (60, 1), (85, 1), (95, 1), (100, 5))],
          [(0, 40, WRITE_LT), None, (60, 20, WRITE_LT), (80, 10, READ_LT), (90, 10, WRITE_LT),
           None])
    c.ok(putfh(f), lock(k, WRITE_LT, 40, 60))
    check(held(99, 1), (0, 100, WRITE_LT))


def test_lock_errors(c, d):
    s, f = c.open(d, "f")
    r, _ = c.open(d, "f", READ, owner=b"reader", how=None)
    c.no("INVAL", putfh(f), lock(s, WRITE_LT, 0, 0, b"me"))
    c.no("INVAL", putfh(f), lock(s, WRITE_LT, 10, MAX64 - 1, b"me"))
    c.no("BADXDR", putfh(f), lock(s, 5, 0, 1, b"me"))
    c.no("INVAL", putfh(f), lockt(READ_LT, 5, 0))
    c.no("OPENMODE", putfh(f), lock(r, WRITE_LT, 0, 1, b"me"))
    c.no("NO_GRACE", putfh(f), lock(s, WRITE_LT, 0, 1, b"me", reclaim=True))
    for bad in (ANON, (1, b"\x01" * 12), INVALID):
        c.no("BAD_STATEID", putfh(f), lock(bad, WRITE_LT, 0, 1, b"me"))
        c.no("BAD_STATEID", putfh(f), locku(bad, 0, 1))
    c.no("BAD_STATEID", putfh(f), locku(s, 0, 1))
    client().no("BAD_STATEID", putfh(f), lock(s, WRITE_LT, 0, 1, b"me"))
    k = c.ok(putfh(f), lock(s, WRITE_LT, 0, 1, b"me")).stateid
    c.ok(putfh(f), lock(k, WRITE_LT, 5, 1))
    c.no("OLD_STATEID", putfh(f), lock(k, WRITE_LT, 7, 1))
    c.no("BAD_STATEID", putfh(f), lock((9, k[1]), WRITE_LT, 7, 1))
    c.no("ISDIR", putfh(d), lockt(READ_LT, 0, 1))
    c.no("NOFILEHANDLE", lockt(READ_LT, 0, 1))


def test_lock_stateids_stand_for_their_open(c, d):
    s, f = c.open(d, "f")
    k = c.ok(putfh(f), lock(s, WRITE_LT, 0, 10, b"me")).stateid
    c.ok(putfh(f), write(k, 0, b"locked"), read(k, 0, 6), setattr_(k, size=3))
    check(len(lay(c, f, k).mirrors), 1)
    check([err(x) for x in c.ok(test_stateid(k, s)).statuses], ["OK", "OK"])
    c.no("LOCKS_HELD", free_stateid(k))
    c.no("LOCKS_HELD", putfh(f), close(s))
    k = c.ok(putfh(f), locku(k)).stateid
    c.ok(free_stateid(k))
    check(err(c.ok(test_stateid(k)).statuses[0]), "BAD_STATEID")
    k = c.ok(putfh(f), lock(s, WRITE_LT, 0, 10, b"me")).stateid
    c.ok(putfh(f), locku(k, 0, 10))
    c.ok(putfh(f), close(s))
    c.no("BAD_STATEID", putfh(f), locku(k, 0, 10))


def test_one_lock_owner_has_one_stateid(c, d):
    s, f = c.open(d, "f")
    k = c.ok(putfh(f), lock(s, WRITE_LT, 0, 1, b"me")).stateid
    check(c.ok(putfh(f), lock(s, WRITE_LT, 5, 1, b"me")).stateid, (2, k[1]))


def test_who_waits_for_a_lock_is_told_when_it_may_be_had(c, d):
    """CB_NOTIFY_LOCK (section 20.11), which OPEN promises, comes once. A client that did not ask
    for it gets none."""
    s, f = c.open(d, "f")
    two = client()
    o = opened(two, d, "f")
    check(o.rflags & 0x20, 0x20, "OPEN4_RESULT_MAY_NOTIFY_LOCK")
    for kind, mine in ((WRITEW_LT, WRITE_LT), (READW_LT, WRITE_LT), (WRITEW_LT, READ_LT)):
        k = c.ok(putfh(f), lock(s, mine, 0, 10, b"holder")).stateid
        two.no("DENIED", putfh(f), lock(o.stateid, kind, 5, 10, b"waiter"))
        if kind == WRITEW_LT:
            two.no("DENIED", putfh(f), lock(o.stateid, WRITE_LT, 5, 10, b"asks"))
        k = c.ok(putfh(f), locku(k, 0, 5)).stateid
        time.sleep(0.2)
        check(two.callbacks, [], "it stands in the way still")
        c.ok(putfh(f), locku(k, 5, 5))
        got = two.wait_callback("NOTIFY_LOCK")
        check((got.fh, got.clientid, got.owner), (o.fh, two.clientid, b"waiter"))
        w = two.ok(putfh(f), lock(o.stateid, kind, 5, 10, b"waiter")).stateid
        two.ok(putfh(f), locku(w, 5, 10))
    k = c.ok(putfh(f), lock(s, WRITE_LT, 0, 10, b"holder")).stateid
    c.ok(putfh(f), locku(k, 0, 10))
    time.sleep(0.2)
    check(two.callbacks, [])


if __name__ == "__main__":
    harness.main(globals(), parts=2, settings=CALM)
