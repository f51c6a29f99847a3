#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Attributes, times and POSIX permissions over the wire: every attribute of every kind of file,
which times every operation moves, and which user may do what. Prints TAP."""
import itertools
import os
import sys
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../wirelib"))
import harness as base  # noqa: E402
import steps  # noqa: E402
from harness import OTHER, USER, check, client, eventually  # noqa: E402
from nfs41 import *  # noqa: E402,F403
from nfs41 import err, op  # noqa: E402

ROOT = auth_sys()
KINDS = {REG: "file", DIR: "directory", LNK: "symlink", FIFO: "fifo", SOCK: "socket",
         BLK: "block device", CHR: "character device"}
# Settable, and those that only SETATTR knows; the delegated times (84, 85) have tests of their own.
SETTABLE = {4, 12, 33, 36, 37, 48, 50, 54, 58, 74, 81}
DELEGATED = {84, 85}


def make(c, d, name, kind=REG, mode=0o644, owner=0, gid=0, cred=None):
    if kind == REG:
        sid, fh = c.open(d, name, attrs={"mode": 0o600}, cred=cred or ROOT)
        c.ok(putfh(fh), close(sid))
    else:
        extra = {} if kind == LNK else {"mode": 0o700}
        fh = c.ok(putfh(d), create(kind, name, **({"link": b"target"} if kind == LNK else {}),
                                   **extra), getfh()).fh
    if kind != LNK:
        c.ok(putfh(fh), setattr_(owner=str(owner), owner_group=str(gid)), setattr_(mode=mode))
    return fh


def may(c, cred, *ops):
    got = err(c.call(*ops, cred=cred).status)
    if got not in ("OK", "ACCESS", "PERM"):
        raise Failed(f"{ops[-1]}: {got}")
    return got if got != "OK" else True


# ---- attributes


def test_every_attribute_of_every_kind_of_file(c, d):
    """Reads them one at a time and all together, decodes each byte, and compares by VERIFY. An
    absent attribute is absent."""
    read_only = 0
    for kind in KINDS:
        fh = make(c, d, f"x{kind}", kind)
        there = c.attrs(fh, "supported_attrs").supported_attrs
        readable = there - WRITE_ONLY - DELEGATED
        moving = {ATTR[n] for n in ("space_avail", "space_free", "space_total", "rdattr_error")}
        whole = c.ok(putfh(fh), getattr_(*readable)).attrs
        check(whole.bits, readable)
        for num in range(96):
            if num in there & (WRITE_ONLY | DELEGATED):
                c.no("INVAL", putfh(fh), getattr_(num))
                c.no("INVAL", putfh(d), readdir(attrs=(num,)))
                c.no("INVAL", putfh(fh), verify(raw={num: u32(0)}))
            elif num in there:
                one = c.ok(putfh(fh), getattr_(num)).attrs
                check(one.bits, {num})
                if num not in moving:
                    check(getattr(one, ATTRS[num][0]), getattr(whole, ATTRS[num][0]))
                    c.ok(putfh(fh), verify(raw={num: one.body}))
                    c.no("SAME", putfh(fh), nverify(raw={num: one.body}))
                    c.no("NOT_SAME", putfh(fh), verify(raw={num: one.body + bytes(4)}))
                if num not in SETTABLE:
                    check(c.no("INVAL", putfh(fh), setattr_(raw={num: one.body})).attrset, set())
                    read_only += 1
            else:
                check(c.ok(putfh(fh), getattr_(num, "type")).attrs.bits, {1})
                check(c.no("ATTRNOTSUPP", putfh(fh), setattr_(raw={num: u32(0)})).attrset, set())
                c.no("ATTRNOTSUPP", putfh(fh), verify(raw={num: u32(0)}))
                c.no("ATTRNOTSUPP", putfh(fh), nverify(raw={num: u32(0)}))
        check(SETTABLE - there, set())
    print(f"# {read_only} read-only attributes refused")


def test_attributes_have_the_values_of_their_file(c, d):
    for kind in KINDS:
        fh = make(c, d, f"x{kind}", kind, mode=0o640, owner=1000, gid=50)
        a = c.attrs(fh, "type", "numlinks", "rawdev", "layout_types", "space_freed", "space_used",
                    "size", "fs_charset_cap", "mode", "layout_alignment", "layout_blksize",
                    "fileid", "mounted_on_fileid", "owner", "homogeneous")
        check((a.type, a.numlinks, a.mounted_on_fileid, a.fs_charset_cap),
              (kind, 2 if kind == DIR else 1, a.fileid, 1))
        check(a.layout_types, [FLEX] if kind == REG else [])
        check((a.mode, a.size), (0o777, 6) if kind == LNK else (0o640, 0))
        check(a.space_freed, a.space_used)
        check(a.layout_alignment, a.layout_blksize)
    f = c.ok(putfh(d), lookup(f"x{REG}"), getfh()).fh
    sid, _ = c.open(d, f"x{REG}", how=None)
    c.ok(putfh(f), write(sid, 0, bytes(5000), FILE_SYNC))
    a = c.attrs(f, "space_freed", "space_used")
    check((a.space_freed, a.space_used >= 5000), (a.space_used, True))
    c.ok(putfh(f), savefh(), putfh(d), link("second"))
    check(c.attrs(f, "space_freed").space_freed, 0, "another name holds it")
    b = c.ok(putfh(d), create(CHR, "dev", dev=(10, 200), mode=0o600), getattr_("rawdev")).attrs
    check(b.rawdev, (10, 200))


def test_time_create_is_its_owners(c, d):
    f = make(c, d, "f", owner=1000, mode=0o666)
    c.no("PERM", putfh(f), setattr_(time_create=(5, 6)), cred=OTHER)
    check(c.ok(putfh(f), setattr_(time_create=(5, 6)), cred=USER).attrset, {50})
    check(c.attrs(f, "time_create").time_create, (5, 6))
    c.no("INVAL", putfh(f), setattr_(time_create=(5, 10**9)))
    r = c.ok(putfh(d), create(FIFO, "p", time_create=(7, 8), mode=0o600),
             getattr_("time_create", "time_modify")).attrs
    check((r.time_create, r.time_modify > (1000, 0)), ((7, 8), True))


# ---- times (every operation against a table)

TIMES = {"a": "time_access", "m": "time_modify", "c": "time_metadata", "v": "change",
         "b": "time_create"}


def stat(c, fh):
    got = c.attrs(fh, *TIMES.values())
    return {k: getattr(got, n) for k, n in TIMES.items()}


class Scene:
    """A directory d with f (regular, 8 bytes, also named f2), e (a directory with g in it), s (a
    symlink), and an open of f."""

    def __init__(self, c, parent, name):
        self.c = c
        self.d = c.mkdir(parent, name, attrs={"mode": 0o777})
        self.sid, self.f = c.open(self.d, "f", attrs={"mode": 0o666})
        c.ok(putfh(self.f), write(self.sid, 0, b"12345678", FILE_SYNC), setxattr("x", "1"))
        c.ok(putfh(self.f), savefh(), putfh(self.d), link("f2"))
        self.e = c.mkdir(self.d, "e", attrs={"mode": 0o777})
        self.g = make(c, self.e, "g", mode=0o666)
        self.s = make(c, self.d, "s", LNK)


# name: (operations of a scene, what moves: object -> times). Nothing else moves.
NEW = "m c v"
CHANGED = "c v"
TABLE = {
    "lookup, access, getattr": (lambda w: [putfh(w.d), lookup("f"), access(0x3f), getattr_("size")],
                                {}),
    "lookupp": (lambda w: [putfh(w.e), lookupp()], {}),
    "readdir": (lambda w: [putfh(w.d), readdir(attrs=("fileid",))], {"d": "a"}),
    "readlink": (lambda w: [putfh(w.s), readlink()], {"s": "a"}),
    "read": (lambda w: [putfh(w.f), read(w.sid, 0, 8)], {"f": "a"}),
    "read of nothing": (lambda w: [putfh(w.f), read(w.sid, 0, 0)], {}),
    "read beyond the end": (lambda w: [putfh(w.f), read(w.sid, 100, 8)], {"f": "a"}),
    "read plus": (lambda w: [putfh(w.f), read_plus(w.sid, 0, 8)], {"f": "a"}),
    "seek": (lambda w: [putfh(w.f), seek(w.sid, 0, 0)], {}),
    "layout for reading": (lambda w: [putfh(w.f), layoutget(w.sid, IO_READ)], {"f": "a"}),
    "open for reading": (lambda w: [putfh(w.d), open_("f", READ | NO_DELEG, owner=b"o1")],
                         {"f": "a"}),
    "open for writing": (lambda w: [putfh(w.d), open_("f", WRITE | NO_DELEG, owner=b"o1")], {}),
    "open that creates, for reading": (
        lambda w: [putfh(w.d), open_("n", READ | NO_DELEG, owner=b"o1", how=GUARDED,
                                     attrs={"mode": 0o600})], {"d": NEW}),
    "copy": (lambda w: [putfh(w.f), savefh(), putfh(w.g), copy(w.sid, ANON, count=8)],
             {"f": "a", "g": NEW}),
    "write": (lambda w: [putfh(w.f), write(w.sid, 0, b"x", FILE_SYNC)], {"f": NEW}),
    "write of nothing": (lambda w: [putfh(w.f), write(w.sid, 0, b"", FILE_SYNC)], {}),
    "commit": (lambda w: [putfh(w.f), commit()], {}),
    "open": (lambda w: [putfh(w.d), open_("f", BOTH | NO_DELEG, owner=b"o2")], {}),
    "open that creates nothing": (
        lambda w: [putfh(w.d), open_("f", BOTH | NO_DELEG, owner=b"o3", how=UNCHECKED,
                                     attrs={"mode": 0o600})], {}),
    "open that truncates": (
        lambda w: [putfh(w.d), open_("f", BOTH | NO_DELEG, owner=b"o4", how=UNCHECKED,
                                     attrs={"size": 0})], {"f": NEW}),
    "open that truncates what is empty": (
        lambda w: [putfh(w.e), open_("g", BOTH | NO_DELEG, owner=b"o4", how=UNCHECKED,
                                     attrs={"size": 0})], {"g": NEW}),
    "open that creates": (
        lambda w: [putfh(w.d), open_("n", BOTH | NO_DELEG, owner=b"o5", how=GUARDED,
                                     attrs={"mode": 0o600})], {"d": NEW}),
    "open that cannot create": (
        lambda w: [putfh(w.d), open_("f", BOTH | NO_DELEG, how=GUARDED, attrs={"mode": 0o600})],
        {}),
    "lock and unlock": (lambda w: [putfh(w.f), lock(w.sid, WRITE_LT, owner=b"l")], {}),
    "open downgrade": (lambda w: [putfh(w.f), open_downgrade(w.sid, READ)], {}),
    "close": (lambda w: [putfh(w.f), close(w.sid)], {}),
    "create of a directory": (lambda w: [putfh(w.d), create(DIR, "n", mode=0o700)], {"d": NEW}),
    "create of a symlink": (lambda w: [putfh(w.d), create(LNK, "n", b"x")], {"d": NEW}),
    "create of a fifo": (lambda w: [putfh(w.e), create(FIFO, "n", mode=0o600)], {"e": NEW}),
    "create of what is there": (lambda w: [putfh(w.d), create(FIFO, "f", mode=0o600)], {}),
    "remove of one of two names": (lambda w: [putfh(w.d), remove("f2")], {"d": NEW, "f": CHANGED}),
    "remove of the last name": (lambda w: [putfh(w.e), remove("g")], {"e": NEW}),
    "remove of a directory": (lambda w: [putfh(w.e), remove("g"), putfh(w.d), remove("e")],
                              {"d": NEW}),
    "remove of nothing": (lambda w: [putfh(w.d), remove("none")], {}),
    "remove of a directory that is not empty": (lambda w: [putfh(w.d), remove("e")], {}),
    "link": (lambda w: [putfh(w.f), savefh(), putfh(w.e), link("n")], {"f": CHANGED, "e": NEW}),
    "link to what is there": (lambda w: [putfh(w.f), savefh(), putfh(w.d), link("f")], {}),
    "rename in a directory": (lambda w: [putfh(w.d), savefh(), rename("f", "n")],
                              {"d": NEW, "f": CHANGED}),
    "rename into another": (lambda w: [putfh(w.d), savefh(), putfh(w.e), rename("f", "n")],
                            {"d": NEW, "e": NEW, "f": CHANGED}),
    "rename over another": (lambda w: [putfh(w.e), savefh(), putfh(w.d), rename("g", "f")],
                            {"d": NEW, "e": NEW, "f": CHANGED, "g": CHANGED}),
    "rename of a directory": (lambda w: [putfh(w.d), savefh(), rename("e", "n")],
                              {"d": NEW, "e": CHANGED}),
    "rename to the same file": (lambda w: [putfh(w.d), savefh(), rename("f", "f2")], {}),
    "rename to itself": (lambda w: [putfh(w.d), savefh(), rename("f", "f")], {}),
    "rename of nothing": (lambda w: [putfh(w.d), savefh(), rename("none", "f")], {}),
    "mode": (lambda w: [putfh(w.f), setattr_(mode=0o640)], {"f": CHANGED}),
    "the same mode": (lambda w: [putfh(w.f), setattr_(mode=0o666)], {"f": CHANGED}),
    "mode_set_masked": (lambda w: [putfh(w.e), setattr_(mode_set_masked=(0o1000, 0o1000))],
                        {"e": CHANGED}),
    "owner": (lambda w: [putfh(w.f), setattr_(owner="1000")], {"f": CHANGED}),
    "group of a directory": (lambda w: [putfh(w.e), setattr_(owner_group="50")], {"e": CHANGED}),
    "acl": (lambda w: [putfh(w.f), setattr_(acl=[(0, 0, 1, "2000")])], {"f": CHANGED}),
    "dacl of a directory": (lambda w: [putfh(w.e), setattr_(dacl=(0, [(0, 3, 1, "2000")]))],
                            {"e": CHANGED}),
    "size": (lambda w: [putfh(w.f), setattr_(w.sid, size=3)], {"f": NEW}),
    "the same size": (lambda w: [putfh(w.f), setattr_(w.sid, size=8)], {"f": NEW}),
    "a larger size": (lambda w: [putfh(w.f), setattr_(w.sid, size=100)], {"f": NEW}),
    "access time": (lambda w: [putfh(w.f), setattr_(time_access_set=(1, 2))], {"f": "a c v"}),
    "access time now": (lambda w: [putfh(w.f), setattr_(time_access_set=None)], {"f": "a c v"}),
    "modify time": (lambda w: [putfh(w.f), setattr_(time_modify_set=(1, 2))], {"f": "m c v"}),
    "modify time of a directory": (lambda w: [putfh(w.e), setattr_(time_modify_set=None)],
                                   {"e": "m c v"}),
    "both times of a symlink": (
        lambda w: [putfh(w.s), setattr_(time_modify_set=(1, 2), time_access_set=(1, 2))],
        {"s": "a m c v"}),
    "creation time": (lambda w: [putfh(w.f), setattr_(time_create=(1, 2))], {"f": "b c v"}),
    "a refused change": (lambda w: [putfh(w.f), setattr_(mode=0o10000)], {}),
    "xattr set": (lambda w: [putfh(w.f), setxattr("y", "2")], {"f": CHANGED}),
    "xattr replaced": (lambda w: [putfh(w.f), setxattr("x", "1", 2)], {"f": CHANGED}),
    "xattr of a directory": (lambda w: [putfh(w.e), setxattr("y", "2")], {"e": CHANGED}),
    "xattr removed": (lambda w: [putfh(w.f), removexattr("x")], {"f": CHANGED}),
    "xattr that is not there removed": (lambda w: [putfh(w.f), removexattr("none")], {}),
    "xattr read": (lambda w: [putfh(w.f), op("GETXATTR", opaque("x"))], {}),
    "xattrs listed": (lambda w: [putfh(w.f), op("LISTXATTRS", u64(0), u32(1000))], {}),
    "a policy": (lambda w: [putfh(w.e), setxattr("weft.policy", "mirrors=2")], {"e": CHANGED}),
}
REFUSED = {"create of what is there", "remove of nothing",
           "remove of a directory that is not empty", "link to what is there", "rename of nothing",
           "a refused change", "xattr that is not there removed", "open that cannot create"}


def test_each_operation_moves_the_times_it_should(c, d):
    done, scenes = 0, []
    for n, (name, (ops, want)) in enumerate(TABLE.items()):
        w = Scene(c, d, f"scene{n}")
        things = {k: getattr(w, k) for k in "dfegs"}
        scenes.append((name, want, things, {k: stat(c, fh) for k, fh in things.items()}))
        got = c.call(*ops(w))
        check(got.status == 0, name not in REFUSED, f"{name}: {err(got.status)}")
    reads = [(things[k], before[k]) for _, want, things, before in scenes
             for k in want if "a" in want[k].split()]
    eventually(lambda: all(stat(c, fh)["a"] != was["a"] for fh, was in reads), what="access times")
    time.sleep(1)  # access times are set within 250 ms
    for name, want, things, before in scenes:
        for k, fh in things.items():
            if (name.startswith("remove of the last") and k == "g"
                or name == "remove of a directory" and k in "eg"):
                c.no("STALE", putfh(fh), getattr_("type"))
                continue
            after = stat(c, fh)
            moved = {t for t in TIMES if after[t] != before[k][t]}
            check(moved, set(want.get(k, "").split()), f"{name}: {k}")
            check(after["v"] >= before[k]["v"], True, f"{name}: the change attribute")
            done += 1
    check(done, 5 * len(TABLE) - 3)


def test_a_new_file_has_one_time(c, d):
    for kind in KINDS:
        before = stat(c, d)
        s = stat(c, make(c, d, f"x{kind}", kind)) if kind == LNK else None
        if s is None:
            ops = ([open_("n", BOTH | NO_DELEG, how=GUARDED, attrs={"mode": 0o600})]
                   if kind == REG else [create(kind, f"y{kind}", mode=0o600)])
            s = stat(c, c.ok(putfh(d), *ops, getfh()).fh)
        check((s["a"], s["m"], s["b"]), (s["c"],) * 3, KINDS[kind])
        after = stat(c, d)
        check((after["m"], after["c"]) if kind != LNK else 0,
              (s["c"], s["c"]) if kind != LNK else 0, "the directory's")
        check(after["v"] > before["v"], True)


def test_change_info_is_the_directorys_change(c, d):
    e = c.mkdir(d, "e")
    change = lambda fh: c.attrs(fh, "change").change
    for ops in ([putfh(d), create(FIFO, "a", mode=0o600)],
                [putfh(d), open_("f", BOTH | NO_DELEG, how=GUARDED, attrs={"mode": 0o600})],
                [putfh(d), remove("a")], [putfh(d), lookup("f"), savefh(), putfh(d), link("g")]):
        before = change(d)
        ci = c.ok(*ops).cinfo
        check((ci.atomic, ci.before, ci.after), (True, before, change(d)))
    before = change(d), change(e)
    r = c.ok(putfh(d), savefh(), putfh(e), rename("g", "g"))
    check((r.source.before, r.target.before, r.source.after, r.target.after),
          (*before, change(d), change(e)))


# ---- permissions


def test_only_the_first_class_that_fits_counts(c, d):
    for mode, cred, want in ((0o077, USER, 0), (0o707, auth_sys(2000, 50), 0), (0o770, OTHER, 0),
                             (0o007, OTHER, 0x2d), (0o070, auth_sys(2, 2, (50,)), 0x2d),
                             (0o700, auth_sys(1000, 50), 0x2d), (0o000, ROOT, 0x0d),
                             (0o001, ROOT, 0x2d)):
        f = make(c, d, f"f{mode:o}{cred[1][-8:].hex()}", mode=mode, owner=1000, gid=50)
        check(c.ok(putfh(f), access(0x3f), cred=cred).access & 0x2d, want, f"{mode:o}")


def test_who_may_set_times(c, d):
    for mode, owner, cred, exact, now in ((0o000, 1000, USER, True, True),
                                          (0o666, 1000, OTHER, "PERM", True),
                                          (0o644, 1000, OTHER, "PERM", "ACCESS"),
                                          (0o000, 1000, ROOT, True, True),
                                          (0o464, 1, auth_sys(2, 50), "PERM", True)):
        f = make(c, d, f"f{mode:o}{owner}{cred[1][-8:].hex()}", mode=mode, owner=owner, gid=50)
        check(may(c, cred, putfh(f), setattr_(time_modify_set=(1, 1), time_access_set=(1, 1))),
              exact)
        check(may(c, cred, putfh(f), setattr_(time_modify_set=None, time_access_set=None)), now)
        check(may(c, cred, putfh(f), setattr_(time_modify_set=None, time_access_set=(1, 1))), exact,
              "one of them exact")


def test_who_may_give_files_away(c, d):
    member = auth_sys(1000, 1000, (50, 60))
    for cred, kw, want in ((member, {"owner": "1000"}, True), (member, {"owner": "2000"}, "PERM"),
                           (member, {"owner_group": "60"}, True),
                           (member, {"owner_group": "70"}, "PERM"),
                           (member, {"owner": "1000", "owner_group": "1000"}, True),
                           (USER, {"owner_group": "60"}, "PERM"),
                           (USER, {"owner_group": "50"}, True), (OTHER, {"owner": "1000"}, "PERM"),
                           (OTHER, {"owner_group": "50"}, "PERM"),
                           (OTHER, {"owner": "2000"}, "PERM"),
                           (ROOT, {"owner": "5", "owner_group": "6"}, True)):
        for kind in (REG, DIR):
            f = make(c, d, f"f{itertools.count()}{len(kw)}{os.urandom(4).hex()}", kind, mode=0o777,
                     owner=1000, gid=50)
            check(may(c, cred, putfh(f), setattr_(**kw)), want, f"{kw}")


def test_what_a_change_of_owner_or_mode_leaves_of_the_set_id_bits(c, d):
    member = auth_sys(1000, 1000, (50,))
    for n, (mode, kw, cred, want) in enumerate((
            (0o6755, {"owner_group": "1000"}, member, 0o755),
            (0o6755, {"owner": "2000"}, ROOT, 0o755), (0o6644, {"owner": "2000"}, ROOT, 0o2644),
            (0o2644, {"owner_group": "1000"}, member, 0o2644),
            (0o4755, {"owner": "1000"}, member, 0o755), (0o755, {"mode": 0o6755}, member, 0o6755),
            (0o755, {"mode": 0o6755}, USER, 0o4755), (0o755, {"mode": 0o7755}, ROOT, 0o7755),
            (0o755, {"mode": 0o1755}, member, 0o1755))):
        f = make(c, d, f"f{n}", mode=mode, owner=1000, gid=50)
        c.ok(putfh(f), setattr_(**kw), cred=cred)
        check(c.attrs(f, "mode").mode, want, f"{n}: {mode:o} {kw}")
    e = make(c, d, "e", DIR, mode=0o6755, owner=1000, gid=50)
    c.ok(putfh(e), setattr_(owner="2000", owner_group="60"))
    check(c.attrs(e, "mode").mode, 0o6755, "directories keep them")


def test_what_writing_leaves_of_the_set_id_bits(c, d):
    member = auth_sys(2000, 2000, (50,))
    for n, (mode, cred, want) in enumerate(((0o6777, USER, 0o777), (0o6777, OTHER, 0o777),
                                            (0o6777, ROOT, 0o6777), (0o2767, member, 0o2767),
                                            (0o2777, member, 0o777), (0o2666, member, 0o2666),
                                            (0o2666, OTHER, 0o666), (0o4666, member, 0o666))):
        for how in ("write", "truncate", "open"):
            f = make(c, d, f"f{n}{how}", mode=mode, owner=1000, gid=50)
            if how == "open":
                c.ok(putfh(d), open_(f"f{n}{how}", BOTH | NO_DELEG, how=UNCHECKED,
                                     attrs={"size": 0}), cred=cred)
            else:
                r = c.ok(putfh(d), open_(f"f{n}{how}", WRITE | NO_DELEG, owner=os.urandom(4)),
                         cred=cred)
                c.ok(putfh(f), write(r.stateid, 0, b"x", FILE_SYNC) if how == "write"
                     else setattr_(r.stateid, size=0), cred=cred)
            check(c.attrs(f, "mode").mode, want, f"{mode:o} by {how}, case {n}")


def test_no_layout_writes_past_set_id_bits(c, d):
    """The server does not see writes to data servers: no client has a write layout of a file with
    set-id bits."""
    s, f, o, ds, fh = steps.one_server(c, d)
    steps.returns_when_recalled(c, f)
    c.ok(putfh(f), setattr_(mode=0o6777))
    check(c.wait_callback("LAYOUTRECALL").fh, f)
    c.no("LAYOUTUNAVAILABLE", putfh(f), layoutget(s))
    c.ok(putfh(f), write(s, 0, b"root", FILE_SYNC))
    check(c.attrs(f, "mode").mode, 0o6777)
    c.no("LAYOUTUNAVAILABLE", putfh(f), layoutget(s), cred=OTHER)
    check(c.attrs(f, "mode").mode, 0o6777, "nothing was written")
    c.ok(putfh(f), write(s, 0, b"other", FILE_SYNC), cred=OTHER)
    check(c.attrs(f, "mode").mode, 0o777)
    c.ok(putfh(f), layoutget(s), cred=OTHER)
    c.ok(putfh(f), setattr_(mode=0o755))
    check(c.wait_callback("LAYOUTRECALL").fh, f, "a right is taken")
    c.ok(putfh(f), layoutget(s))
    c.ok(putfh(f), setattr_(mode=0o775), setattr_(mode_set_masked=(0, 0o4000)))
    check(c.callbacks, [])


def test_no_write_delegation_holds_set_id_bits(c, d):
    for mode, none in ((0o6777, True), (0o2644, True), (0o755, False)):
        make(c, d, f"f{mode:o}", mode=mode)
        r = c.ok(putfh(d), open_(f"f{mode:o}", BOTH, owner=b"%o" % mode))
        check(r.deleg in (0, 3), none, f"{mode:o}")


def test_a_file_is_writable_by_who_made_it_whatever_its_mode(c, d):
    c.ok(putfh(d), setattr_(mode=0o777))
    for mode in (0o444, 0o000):
        r = c.ok(putfh(d), open_(f"f{mode}", BOTH | NO_DELEG, how=GUARDED, attrs={"mode": mode}),
                 getfh(), cred=USER)
        c.ok(putfh(r.fh), write(r.all[1].stateid, 0, b"data", FILE_SYNC), cred=USER)
        check(c.ok(putfh(r.fh), read(r.all[1].stateid, 0, 4), cred=USER).data, b"data")
        c.ok(putfh(r.fh), setattr_(r.all[1].stateid, size=2), cred=USER)
        c.no("ACCESS", putfh(d), open_(f"f{mode}", WRITE | NO_DELEG, owner=b"again"), cred=USER)


def test_groups_of_new_files(c, d):
    plain, setgid = (make(c, d, "plain", DIR, mode=0o777, gid=77),
                     make(c, d, "setgid", DIR, mode=0o2777, gid=77))
    for n, (e, cred, mode, kind, want) in enumerate((
            (plain, USER, 0o2755, REG, (1000, 0o2755)), (plain, USER, 0o755, DIR, (1000, 0o755)),
            (setgid, USER, 0o755, DIR, (77, 0o2755)),
            (setgid, USER, 0o644, REG, (77, 0o644)), (setgid, USER, 0o2755, REG, (77, 0o755)),
            (setgid, auth_sys(1000, 77), 0o2755, REG, (77, 0o2755)),
            (setgid, USER, 0o2644, REG, (77, 0o2644)), (setgid, ROOT, 0o2755, REG, (77, 0o2755)),
            (setgid, USER, 0o600, FIFO, (77, 0o600)))):
        ops = ([open_(f"n{n}", BOTH | NO_DELEG, how=GUARDED, attrs={"mode": mode})]
               if kind == REG else [create(kind, f"n{n}", mode=mode)])
        a = c.ok(putfh(e), *ops, getattr_("owner_group", "mode"), cred=cred).attrs
        check((int(a.owner_group), a.mode), want, f"case {n}")


def test_what_links_and_renames_need(c, d):
    """(modes of the two directories and of what is moved; its kind and owner; in one directory or
    across) for user 1000, who owns neither directory."""
    cases = [
        (0o777, 0o777, 0o000, FIFO, 2000, True), (0o777, 0o775, 0o777, FIFO, 1000, "ACCESS"),
        (0o775, 0o777, 0o777, FIFO, 1000, "ACCESS"), (0o776, 0o777, 0o777, FIFO, 1000, "ACCESS"),
        (0o777, 0o776, 0o777, FIFO, 1000, "ACCESS"), (0o1777, 0o777, 0o777, FIFO, 2000, "PERM"),
        (0o1777, 0o777, 0o000, FIFO, 1000, True), (0o777, 0o1777, 0o777, FIFO, 2000, True),
        (0o777, 0o777, 0o555, DIR, 1000, "ACCESS"), (0o777, 0o777, 0o755, DIR, 1000, True),
        (0o777, 0o777, 0o755, DIR, 2000, "ACCESS"), (0o777, 0o777, 0o777, DIR, 2000, True),
        (0o1777, 0o777, 0o777, DIR, 2000, "PERM")]
    for n, (src, dst, mode, kind, owner, want) in enumerate(cases):
        a, b = make(c, d, f"a{n}", DIR, mode=0o777), make(c, d, f"b{n}", DIR, mode=0o777)
        make(c, a, "x", kind, mode=mode, owner=owner)
        c.ok(putfh(a), setattr_(mode=src), putfh(b), setattr_(mode=dst))
        check(may(c, USER, putfh(a), savefh(), putfh(b), rename("x", "y")), want, f"case {n}")
        if want is True and kind == DIR:
            check(c.ok(putfh(b), lookup("y"), lookupp(), getfh()).fh, b,
                  "the parent of what was moved")
            check((c.attrs(a, "numlinks").numlinks, c.attrs(b, "numlinks").numlinks), (2, 3))
    e = make(c, d, "e", DIR, mode=0o777)
    make(c, e, "sub", DIR, mode=0o000, owner=2000)
    check(may(c, USER, putfh(e), savefh(), rename("sub", "sub2")), True,
          "in one directory its .. stays")
    f = make(c, d, "f", mode=0o000, owner=2000)
    check(may(c, USER, putfh(f), savefh(), putfh(e), link("l")), True,
          "a link needs no right to the file")
    c.ok(putfh(e), setattr_(mode=0o555))
    check(may(c, USER, putfh(f), savefh(), putfh(e), link("l2")), "ACCESS")


def test_sticky_directories_at_both_ends_of_a_rename(c, d):
    for n, (src, dst, mine, theirs, want) in enumerate(((0o777, 0o1777, 1000, 2000, "PERM"),
                                                        (0o777, 0o1777, 2000, 1000, True),
                                                        (0o1777, 0o1777, 1000, 1000, True),
                                                        (0o1777, 0o777, 1000, 2000, True),
                                                        (0o1777, 0o777, 2000, 1000, "PERM"))):
        a, b = make(c, d, f"a{n}", DIR, mode=0o777), make(c, d, f"b{n}", DIR, mode=0o777)
        make(c, a, "x", FIFO, owner=mine)
        make(c, b, "y", FIFO, owner=theirs)
        c.ok(putfh(a), setattr_(mode=src), putfh(b), setattr_(mode=dst))
        check(may(c, USER, putfh(a), savefh(), putfh(b), rename("x", "y")), want, f"case {n}")
    own = make(c, d, "own", DIR, mode=0o1777, owner=1000)
    make(c, own, "x", FIFO, owner=2000)
    check(may(c, USER, putfh(own), remove("x")), True, "the directory's owner")


def test_devices_are_roots(c, d):
    c.ok(putfh(d), setattr_(mode=0o777))
    for kind, want in ((BLK, "PERM"), (CHR, "PERM"), (FIFO, True), (SOCK, True)):
        check(may(c, USER, putfh(d), create(kind, f"x{kind}", mode=0o666)), want)


def test_reading_through_needs_search_alone(c, d):
    e = make(c, d, "e", DIR, mode=0o711)
    make(c, e, "f", mode=0o644)
    check(may(c, USER, putfh(e), open_("f", READ | NO_DELEG)), True)
    check(may(c, USER, putfh(e), readdir()), "ACCESS")
    c.ok(putfh(e), setattr_(mode=0o766))
    check(may(c, USER, putfh(e), open_("f", READ | NO_DELEG)), "ACCESS")
    check(may(c, USER, putfh(e), create(FIFO, "n", mode=0o600)), "ACCESS",
          "adding needs search, too")
    check(may(c, USER, putfh(e), readdir()), True)


def test_xattrs_in_a_sticky_directory_are_its_owners(c, d):
    e = make(c, d, "e", DIR, mode=0o1777, owner=1000)
    check(may(c, OTHER, putfh(e), setxattr("a", "b")), "PERM")
    check(may(c, USER, putfh(e), setxattr("a", "b")), True)
    s = make(c, d, "s", LNK)
    check(may(c, ROOT, putfh(s), setxattr("a", "b")), "PERM")


if __name__ == "__main__":
    base.main(globals(), settings=base.CALM)
