#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Filehandles, names, directories and attributes, over the wire (RFC 8881 and 8276). Prints TAP.

A test gets a client and the filehandle of a directory of its own. A test whose name begins with
restart_ gets a cluster of its own.
"""
import json
import os
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../wirelib"))
import harness  # noqa: E402
from harness import *  # noqa: E402,F403
from nfs41 import err, op  # noqa: E402
from steps import *  # noqa: E402,F403


# ---- filehandles and names


def test_operations_that_need_a_filehandle_say_so(c, d):
    need = [getfh(), savefh(), lookup("x"), lookupp(), getattr_("type"), setattr_(mode=0o700),
            access(1), create(DIR, "x"), remove("x"), readlink(), readdir(), open_("x"),
            close(ANON), read(ANON, 0, 1), write(ANON, 0, b"x"), commit(), verify(type=REG),
            nverify(type=REG), layoutget(ANON), layoutreturn(), layoutcommit(ANON), getxattr("x"),
            setxattr("x", "y"), listxattrs(), removexattr("x"), open_downgrade(ANON, READ),
            secinfo("x"), secinfo_no_name(), rename("x", "y"), link("x"), layouterror(ANON, [])]
    for one in need:
        got = c.no("NOFILEHANDLE", one)
        check(got.num, one.num)


def test_the_saved_filehandle_is_needed_too(c, d):
    for one in (restorefh(), rename("a", "b"), link("a")):
        c.no("NOFILEHANDLE", putfh(d), one)


def test_savefh_and_restorefh(c, d):
    got = c.ok(putfh(d), savefh(), putrootfh(), getfh(), restorefh(), getfh())
    check((got.fh, got.all[3].fh != d), (d, True))


def test_secinfo_consumes_the_filehandle(c, d):
    c.mkdir(d, "x")
    c.no("NOFILEHANDLE", putfh(d), secinfo("x"), getfh())
    c.no("NOFILEHANDLE", putfh(d), secinfo_no_name(), getfh())
    check(AUTH_SYS in c.ok(putfh(d), secinfo("x")).flavors, True)
    check(AUTH_SYS in c.ok(putfh(d), secinfo_no_name(1)).flavors, True)
    c.no("NOENT", putfh(d), secinfo("y"))
    c.no("NOENT", putrootfh(), secinfo_no_name(1))


def test_the_public_filehandle_is_the_root(c, d):
    check(c.ok(op("PUTPUBFH"), getfh()).fh, c.root())


def test_filehandles_that_never_were_are_bad(c, d):
    _, fh = c.open(d, "f")
    bad = [b"", b"x", bytes(len(fh)), b"\xff" * len(fh), b"\xff" * 128, fh[:-1], fh + b"\0"]
    bad += [fh[:i] + bytes([fh[i] ^ 1]) + fh[i + 1:] for i in range(len(fh))]
    for one in bad:
        c.no("BADHANDLE", putfh(one))
    c.no("BADXDR", op("PUTFH", opaque(b"x" * 129)))


def test_a_removed_files_handle_is_stale(c, d):
    s, fh = c.open(d, "f")
    sub = c.mkdir(d, "sub")
    c.ok(putfh(fh), close(s), putfh(d), remove("f"), remove("sub"))
    for one in (fh, sub):
        got = c.call(putfh(one), getattr_("type"))
        check(err(got.status), "STALE")


def test_filehandles_are_the_same_on_every_way(c, d):
    _, fh = c.open(d, "f")
    c.ok(putfh(fh), savefh(), putfh(d), link("g"))
    for name in ("f", "g"):
        check(c.ok(putfh(d), lookup(name), getfh()).fh, fh)
    entries = c.readdir_all(d, ("filehandle", "fileid"))
    check([e.attrs.filehandle for e in entries], [fh, fh])


BAD_NAMES = [(b"", "INVAL"), (b".", "BADNAME"), (b"..", "BADNAME"), (b"a/b", "BADCHAR"),
             (b"/", "BADCHAR"), (b"a\0b", "BADCHAR"), (b"n" * 256, "NAMETOOLONG"),
             (b"n" * 5000, "NAMETOOLONG")]


def test_names_that_cannot_be(c, d):
    _, fh = c.open(d, "f")
    for name, want in BAD_NAMES:
        for one in (lookup(name), create(DIR, name), create(LNK, name, "x"), remove(name),
                    secinfo(name), open_(claim_null(name)),
                    open_(claim_null(name), BOTH | NO_DELEG, how=UNCHECKED, attrs={"mode": 0o644})):
            c.no(want, putfh(d), one)
        c.no(want, putfh(fh), savefh(), putfh(d), link(name))
        c.no(want, putfh(d), savefh(), rename("f", name))
        c.no(want, putfh(d), savefh(), rename(name, "g"))


def test_names_of_255_bytes_and_strange_ones_are_kept(c, d):
    names = [b"n" * 255, "\u00e4\u00f6\u2603".encode(), b" ", b"...", b"a\nb", b"-", b"A", b"a",
             b"\x01", b"*?"]
    for name in names:
        c.ok(putfh(d), create(DIR, name, mode=0o755))
        c.no("EXIST", putfh(d), create(DIR, name, mode=0o755))
    check(sorted(e.name for e in c.readdir_all(d)), sorted(names))


def test_lookup_errors(c, d):
    _, fh = c.open(d, "f")
    link_fh = c.ok(putfh(d), create(LNK, "l", "f"), getfh()).fh
    c.no("NOENT", putfh(d), lookup("no"))
    c.no("NOTDIR", putfh(fh), lookup("x"))
    c.no("SYMLINK", putfh(link_fh), lookup("x"))
    c.no("NOENT", putrootfh(), lookupp())
    c.no("NOTDIR", putfh(fh), lookupp())
    c.no(("NOTDIR", "SYMLINK"), putfh(link_fh), lookupp())
    sub = c.mkdir(d, "sub")
    check(c.ok(putfh(sub), lookupp(), getfh()).fh, d)


def test_a_directory_moved_has_a_new_parent(c, d):
    a, b = c.mkdir(d, "a"), c.mkdir(d, "b")
    x = c.mkdir(a, "x")
    c.ok(putfh(a), savefh(), putfh(b), rename("x", "y"))
    check(c.ok(putfh(x), lookupp(), getfh()).fh, b)
    check((c.attrs(a, "numlinks").numlinks, c.attrs(b, "numlinks").numlinks), (2, 3))


# ---- CREATE, REMOVE, RENAME, LINK


def test_create_of_every_type(c, d):
    for kind, more in ((DIR, {}), (LNK, {"link": "a/b/c"}), (BLK, {"dev": (8, 1)}),
                       (CHR, {"dev": (1, 3)}), (SOCK, {}), (FIFO, {})):
        r = c.ok(putfh(d), create(kind, f"t{kind}", mode=0o640, **more), getfh(),
                 getattr_("type", "mode", "rawdev", "size"))
        check((r.attrs.type, r.attrs.mode), (kind, 0o777 if kind == LNK else 0o640))
        check(r.attrs.rawdev, more.get("dev", (0, 0)))
        check(r.all[1].attrset, set() if kind == LNK else {ATTR["mode"]})
        if kind == LNK:
            check((c.ok(putfh(r.all[2].fh), readlink()).link, r.attrs.size), (b"a/b/c", 5))
        c.no("EXIST", putfh(d), create(kind, f"t{kind}", mode=0o640, **more))


def test_create_makes_no_regular_files(c, d):
    for kind in (REG, ATTRDIR, NAMEDATTR):
        c.no("BADTYPE", putfh(d), create(kind, "x"))
    c.no(("BADTYPE", "BADXDR"), putfh(d), create(77, "x"))
    c.no("INVAL", putfh(d), create(LNK, "x", ""))
    check(c.readdir_all(d), [])


def test_create_sets_what_it_says(c, d):
    r = c.ok(putfh(d),
             create(DIR, "x", mode=0o1751, owner="7", owner_group="8", time_modify_set=(5, 6),
                    time_access_set=(3, 4)),
             getattr_("mode", "owner", "owner_group", "time_modify", "time_access"))
    check(r.all[1].attrset,
          {ATTR[n] for n in ("mode", "owner", "owner_group", "time_modify_set", "time_access_set")})
    a = r.attrs
    check((a.mode, a.owner, a.owner_group, a.time_modify, a.time_access),
          (0o1751, "7", "8", (5, 6), (3, 4)))


def test_create_errors(c, d):
    _, fh = c.open(d, "f")
    c.no("NOTDIR", putfh(fh), create(DIR, "x"))
    c.no("ATTRNOTSUPP", putfh(d), create(DIR, "x", raw={14: u32(0)}))
    c.no("INVAL", putfh(d), create(DIR, "x", raw={1: u32(1)}))
    c.ok(putfh(d), setattr_(mode=0o777))
    for kind in (BLK, CHR):
        c.no("PERM", putfh(d), create(kind, "dev", dev=(1, 2), mode=0o600), cred=USER)
    check([e.name for e in c.readdir_all(d)], [b"f"])


def test_change_info_is_the_directorys_change(c, d):
    before = c.attrs(d, "change").change
    for make in (create(DIR, "a", mode=0o755), create(LNK, "b", "x"), remove("a")):
        r = c.ok(putfh(d), make, putfh(d), getattr_("change"))
        info = r.all[1].cinfo
        check((info.atomic, info.before, info.after), (True, before, r.attrs.change))
        if info.after <= before:
            raise Failed("the change attribute stayed")
        before = info.after
    r = c.ok(putfh(d), open_("f", BOTH | NO_DELEG, how=GUARDED, attrs={"mode": 0o600}), putfh(d),
             getattr_("change"))
    check((r.all[1].cinfo.before, r.all[1].cinfo.after), (before, r.attrs.change))
    r = c.ok(putfh(d), open_("f", READ | NO_DELEG))
    check(r.cinfo.before, r.cinfo.after, "an OPEN that makes nothing")


def test_remove_rules(c, d):
    s, fh = c.open(d, "f")
    sub = c.mkdir(d, "sub")
    c.mkdir(sub, "x")
    c.no("NOENT", putfh(d), remove("no"))
    c.no("NOTEMPTY", putfh(d), remove("sub"))
    c.no("NOTDIR", putfh(fh), remove("x"))
    c.ok(putfh(sub), remove("x"), putfh(d), remove("sub"))
    c.ok(putfh(d), remove("f"))
    check(c.readdir_all(d), [])


def test_a_file_removed_while_open_lives_until_close(c, d):
    s, fh = c.open(d, "f")
    c.ok(putfh(fh), write(s, 0, b"still here", FILE_SYNC))
    c.ok(putfh(d), remove("f"))
    got = c.ok(putfh(fh), read(s, 0, 100), getattr_("numlinks"))
    check((got.all[1].data, got.attrs.numlinks), (b"still here", 0))
    c.ok(putfh(fh), close(s))
    check(err(c.call(putfh(fh), getattr_("type")).status), "STALE")


def test_rename_replaces(c, d):
    _, a = c.open(d, "a")
    s, b = c.open(d, "b")
    c.ok(putfh(b), close(s))
    before = c.attrs(d, "change").change
    got = c.ok(putfh(d), savefh(), rename("a", "b"))
    check((got.source.before, got.source.after), (got.target.before, got.target.after))
    check((got.source.before, got.source.after), (before, c.attrs(d, "change").change))
    check(c.ok(putfh(d), lookup("b"), getfh()).fh, a)
    c.no("NOENT", putfh(d), lookup("a"))
    check(err(c.call(putfh(b), getattr_("type")).status), "STALE")


def test_rename_rules(c, d):
    _, f = c.open(d, "f")
    a, b = c.mkdir(d, "a"), c.mkdir(d, "b")
    inner = c.mkdir(a, "inner")
    c.no("EXIST", putfh(d), savefh(), rename("f", "a"))
    c.no("EXIST", putfh(d), savefh(), rename("a", "f"))
    c.no("EXIST", putfh(d), savefh(), rename("b", "a"))  # not empty
    c.no("NOENT", putfh(d), savefh(), rename("no", "x"))
    c.no("INVAL", putfh(d), savefh(), putfh(a), rename("a", "x"))
    c.no("INVAL", putfh(d), savefh(), putfh(inner), rename("a", "x"))
    c.no("NOTDIR", putfh(f), savefh(), putfh(d), rename("x", "y"))
    c.no("NOTDIR", putfh(d), savefh(), putfh(f), rename("a", "y"))
    c.ok(putfh(a), savefh(), putfh(d), rename("inner", "b"))  # onto an empty directory
    check(c.ok(putfh(d), lookup("b"), getfh()).fh, inner)
    check(err(c.call(putfh(b), getattr_("type")).status), "STALE")


def test_rename_to_itself_changes_nothing(c, d):
    _, f = c.open(d, "f")
    c.ok(putfh(f), savefh(), putfh(d), link("g"))
    before = c.attrs(d, "change").change
    for old, new in (("f", "f"), ("f", "g"), ("g", "f")):
        got = c.ok(putfh(d), savefh(), rename(old, new))
        check((got.source.before, got.source.after), (before, before))
    check(sorted(e.name for e in c.readdir_all(d)), [b"f", b"g"])


def test_link_rules(c, d):
    _, f = c.open(d, "f")
    before = c.attrs(f, "change").change
    got = c.ok(putfh(f), savefh(), putfh(d), link("g"))
    check(got.cinfo.after, c.attrs(d, "change").change)
    a = c.attrs(f, "numlinks", "change")
    check((a.numlinks, a.change > before), (2, True))
    c.no("EXIST", putfh(f), savefh(), putfh(d), link("g"))
    c.no("NOTDIR", putfh(f), savefh(), putfh(f), link("h"))
    c.no("ISDIR", putfh(d), savefh(), putfh(d), link("h"))
    c.ok(putfh(d), remove("f"))
    check(c.attrs(f, "numlinks").numlinks, 1)


def test_readlink_of_what_is_no_link(c, d):
    _, f = c.open(d, "f")
    for fh in (f, d):
        c.no(("INVAL", "WRONG_TYPE"), putfh(fh), readlink())
    c.ok(putfh(d), create(LNK, "l", b"x" * 4095))
    check(len(c.ok(putfh(d), lookup("l"), readlink()).link), 4095)
    c.no("NAMETOOLONG", putfh(d), create(LNK, "m", b"x" * 70000))


# ---- attributes


def test_supported_attributes_are_exactly_what_comes(c, d):
    _, f = c.open(d, "f")
    link_fh = c.ok(putfh(d), create(LNK, "l", "x"), getfh()).fh
    fifo = c.ok(putfh(d), create(FIFO, "p"), getfh()).fh
    for fh in (c.root(), d, f, link_fh, fifo):
        names = all_readable(c, fh)
        check(c.ok(putfh(fh), getattr_(*names)).attrs.bits, names)
        check(c.ok(putfh(fh), getattr_(*(set(range(100)) - WRITE_ONLY))).attrs.bits, names)
        for one in names:
            check(c.ok(putfh(fh), getattr_(one)).attrs.bits, {one})


def test_required_attributes_and_those_a_client_needs_are_there(c, d):
    got = c.attrs(d, "supported_attrs").supported_attrs
    required = set(range(12)) | {19, 75}  # RFC 8881 section 5.6
    need = {ATTR[n] for n in """acl aclsupport dacl cansettime case_insensitive case_preserving
        chown_restricted fileid files_avail files_free files_total fs_charset_cap fs_layout_types
        homogeneous layout_blksize layout_types maxfilesize maxlink maxname maxread maxwrite mode
        mode_set_masked mode_umask mounted_on_fileid no_trunc numlinks owner owner_group rawdev
        space_avail space_free space_total space_used time_access time_access_set time_create
        time_delta time_metadata time_modify time_modify_set change_attr_type xattr_support
        open_arguments""".split()}
    check((required | need) - got, set())


def test_attributes_of_4_2_are_unknown_in_4_1(c, d):
    one = client(minor=1)
    got = one.attrs(d, "supported_attrs").supported_attrs
    check({b for b in got if b > 76}, set())
    check(one.ok(putfh(d), getattr_("type", 79, 82)).attrs.bits, {1})


def test_values_of_attributes(c, d):
    a = c.ok(putfh(d), getattr_(*all_readable(c, d))).attrs
    check((a.type, a.lease_time, a.rdattr_error, a.fh_expire_type), (DIR, 20, 0, 0))
    check((a.maxname, a.fs_layout_types, a.case_insensitive, a.xattr_support),
          (255, [FLEX], False, True))
    check((a.mounted_on_fileid, a.filehandle, a.numlinks), (a.fileid, d, 2))
    if min(a.maxread, a.maxwrite) < 1 << 20 or a.fileid == 0 or a.time_metadata[0] < 1 << 30:
        raise Failed(f"{a.maxread} {a.maxwrite} {a.fileid} {a.time_metadata}")
    check(a.fsid, c.ok(putrootfh(), getattr_("fsid")).attrs.fsid)


def test_values_of_the_file_system(c, d):
    """RFC 8881 section 5.8.2: what the server is, and says that it is."""
    a = c.ok(putfh(d), getattr_(*all_readable(c, d))).attrs
    for name in """link_support symlink_support unique_handles cansettime case_preserving
                chown_restricted homogeneous no_trunc""".split():
        check(getattr(a, name), True, name)
    for name in "named_attr case_insensitive".split():
        check(getattr(a, name), False, name)
    check((a.maxfilesize, a.maxlink, a.time_delta), ((1 << 44) - 4096, 65000, (0, 1)))
    # ALLOW and DENY; names of any bytes; it counts up.
    check((a.aclsupport, a.fs_charset_cap, a.change_attr_type), (3, 1, 0))
    # Space is the living data servers'. There may be as many files as there are numbers.
    check(0 < a.space_avail <= a.space_total, True, f"{a.space_avail} of {a.space_total} bytes")
    check((a.space_free, a.files_avail, a.files_total), (a.space_avail, a.files_free, 1 << 48))
    check(0 < a.files_total - a.files_free < 1 << 20, True,
          f"{a.files_free} of {a.files_total} files")
    # It is true.
    c.open(d, "Case"), c.open(d, "case")
    check({e.name for e in c.readdir_all(d)}, {b"Case", b"case"})
    c.no("NAMETOOLONG", putfh(d), create(FIFO, "n" * (a.maxname + 1)))
    c.ok(putfh(d), setattr_(mode=0o777))
    s, f = c.open(d, "f", cred=USER)[0], c.ok(putfh(d), lookup("f"), getfh()).fh
    c.no("PERM", putfh(f), setattr_(owner="2000"), cred=USER)
    c.no("FBIG", putfh(f), setattr_(s, size=a.maxfilesize + 1), cred=USER)
    c.ok(putfh(f), setattr_(time_modify_set=(1, a.time_delta[1])))
    check(c.attrs(f, "time_modify").time_modify, (1, a.time_delta[1]))
    c.ok(putfh(f), write(s, 0, bytes(100000), FILE_SYNC), cred=USER)
    used = c.attrs(f, "space_used", "size")
    check((used.size, 100000 <= used.space_used <= 1 << 20), (100000, True),
          f"{used.space_used} bytes used")
    check([who for _, _, _, who in c.attrs(f, "acl").acl][:1], ["OWNER@"])
    dev = c.ok(putfh(d), create(CHR, "dev", dev=(7, 9)), getfh()).fh
    check((a.rawdev, c.attrs(dev, "rawdev").rawdev), ((0, 0), (7, 9)))


def test_write_only_attributes_cannot_be_read(c, d):
    for one in (48, 54):
        c.no("INVAL", putfh(d), getattr_(one))
        c.no("INVAL", putfh(d), readdir(attrs=(one,)))
        c.no("INVAL", putfh(d), verify(raw={one: u32(0)}))
        c.no("INVAL", putfh(d), nverify(raw={one: u32(0)}))


def test_read_only_attributes_cannot_be_set(c, d):
    _, f = c.open(d, "f")
    for raw_attr in ({1: u32(1)}, {3: u64(1)}, {20: u64(1)}, {35: u32(1)}, {45: u64(1)},
                     {52: nfstime((1, 1))}, {0: bitmap([1])}, {10: u32(5)}, {8: u64(1) + u64(1)},
                     {53: nfstime((1, 1))}):
        got = c.no("INVAL", putfh(f), setattr_(raw=raw_attr))
        check(got.attrset, set())


def test_unsupported_attributes_cannot_be_set(c, d):
    _, f = c.open(d, "f")
    supported = c.attrs(f, "supported_attrs").supported_attrs
    for num, value in ((14, u32(1)), (25, u32(1)), (32, opaque("text/plain")), (46, u32(1)),
                       (49, u32(0)), (90, u32(0)), (12, u32(0)), (63, u32(4) + opaque(""))):
        if num not in supported:
            check(c.no("ATTRNOTSUPP", putfh(f), setattr_(raw={num: value})).attrset, set())
            c.no("ATTRNOTSUPP", putfh(f), verify(raw={num: value}))
            c.no("ATTRNOTSUPP", putfh(f), nverify(raw={num: value}))


def test_attribute_lists_must_fit_their_bits(c, d):
    _, f = c.open(d, "f")
    for body in (bitmap([33]) + opaque(u32(0o600) + u32(0)), bitmap([33]) + opaque(b""),
                 bitmap([33, 36]) + opaque(u32(0o600)), bitmap([54]) + opaque(u32(2)),
                 bitmap([54]) + opaque(u32(1) + u64(0)), bitmap([]) + opaque(u32(0)),
                 bitmap([36]) + opaque(u32(100) + b"abcd")):
        c.no("BADXDR", putfh(f), op("SETATTR", stateid(ANON), body))
    check(c.attrs(f, "mode").mode, 0o644)


def test_values_that_cannot_be_set(c, d):
    _, f = c.open(d, "f")
    c.no("INVAL", putfh(f), setattr_(time_modify_set=(1, 1000000000)))
    c.no("INVAL", putfh(f), setattr_(mode=0o10000))
    for who in ("fred", "-1", "1x", "", "4294967296", "fred@nowhere"):
        c.no("BADOWNER", putfh(f), setattr_(owner=who))
        c.no("BADOWNER", putfh(f), setattr_(owner_group=who))
    check(c.attrs(f, "owner").owner, "0")


def test_setattr_tells_what_it_set(c, d):
    _, f = c.open(d, "f")
    before = c.attrs(f, "change").change
    got = c.ok(putfh(f), setattr_(mode=0o711, owner="12", owner_group="13", time_modify_set=(-5, 7),
                                  time_access_set=None))
    check(got.attrset,
          {ATTR[n] for n in ("mode", "owner", "owner_group", "time_modify_set", "time_access_set")})
    a = c.attrs(f, "mode", "owner", "owner_group", "time_modify", "change")
    check((a.mode, a.owner, a.owner_group, a.time_modify, a.change > before),
          (0o711, "12", "13", (-5, 7), True))
    check(c.ok(putfh(f), setattr_()).attrset, set())


def test_verify_and_nverify(c, d):
    c.ok(putfh(d), verify(type=DIR), getfh())
    c.no("NOT_SAME", putfh(d), verify(type=REG))
    c.no("SAME", putfh(d), nverify(type=DIR))
    c.ok(putfh(d), nverify(type=REG), getfh())
    a = c.attrs(d, "change", "mode", "owner")
    c.ok(putfh(d), verify(change=a.change, mode=a.mode, owner=a.owner))
    c.ok(putfh(d), nverify(change=a.change + 1, mode=a.mode))
    c.no("INVAL", putfh(d), verify(raw={11: u32(0)}))


def test_change_rises_with_every_change(c, d):
    s, f = c.open(d, "f")
    seen = [c.attrs(f, "change").change]
    for i in range(3):
        for one in (setattr_(mode=0o600 + i), write(s, i, b"x", FILE_SYNC), setattr_(s, size=i),
                    setxattr("a", str(i)), setattr_(time_modify_set=(1, i))):
            c.ok(putfh(f), one)
            seen.append(c.attrs(f, "change").change)
    check(sorted(set(seen)), seen)


# ---- READDIR


def test_readdir_pages_cover_all_entries_once_while_others_change(c, d):
    names = {b"%05d-%s" % (i, b"n" * (i % 40)) for i in range(2000)}
    todo = list(names)
    while todo:
        started = [c.begin(*[putfh(d), create(FIFO, todo.pop())])
                   for _ in range(min(16, len(todo)))]
        for one in started:
            check(c.finish(one).status, 0)
    turn = iter(range(1000))

    def between():
        i = next(turn)
        c.ok(putfh(d), create(FIFO, b"new %d" % i, mode=0o600), putfh(d), remove(b"new %d" % i))
        c.ok(putfh(d), create(FIFO, b"stays %d" % i, mode=0o600))
        gone = sorted(names)[i * 7 % 2000]
        if gone in removed or gone not in names:
            return
        c.ok(putfh(d), remove(gone))
        removed.add(gone)
    removed = set()
    entries = c.readdir_all(d, ("fileid", "type", "fsid", "rdattr_error"), between, maxcount=8000)
    got = [e.name for e in entries]
    check(len(got), len(set(got)), "names twice")
    missing = names - removed - set(got)
    check(missing, set())
    check({n for n in got if n not in names and not n.startswith((b"new", b"stays"))}, set())
    cookies = [e.cookie for e in entries]
    check((len(set(cookies)), {0, 1, 2} & set(cookies)), (len(cookies), set()))
    check({e.attrs.type for e in entries}, {FIFO})


def test_readdir_cookies(c, d):
    for i in range(5):
        c.ok(putfh(d), create(FIFO, f"e{i}"))
    one = c.ok(putfh(d), readdir())
    check((len(one.entries), one.eof), (5, True))
    for cookie in (1, 2):
        c.no("BAD_COOKIE", putfh(d), readdir(cookie, one.verf))
    last = c.ok(putfh(d), readdir(one.entries[-1].cookie, one.verf))
    check((last.entries, last.eof), ([], True))
    mid = c.ok(putfh(d), readdir(one.entries[1].cookie, one.verf))
    check([e.name for e in mid.entries], [e.name for e in one.entries[2:]])
    c.ok(putfh(d), remove(one.entries[1].name.decode()))
    mid = c.ok(putfh(d), readdir(one.entries[1].cookie, one.verf))
    check([e.name for e in mid.entries], [e.name for e in one.entries[2:]],
          "after its entry was removed")
    if any(one.verf):
        c.no("NOT_SAME", putfh(d), readdir(one.entries[2].cookie, b"\xa5" * 8))


def test_readdir_limits(c, d):
    c.ok(putfh(d), create(FIFO, "a" * 200), putfh(d), create(FIFO, "b" * 200))
    for small in (0, 1, 16, 100):
        c.no("TOOSMALL", putfh(d), readdir(maxcount=small))
    one = c.ok(putfh(d), readdir(maxcount=300))
    check((len(one.entries), one.eof), (1, False))
    empty = c.mkdir(d, "empty")
    got = c.ok(putfh(empty), readdir())
    check((got.entries, got.eof), ([], True))
    _, f = c.open(d, "f")
    c.no("NOTDIR", putfh(f), readdir())


def test_readdir_replies_keep_to_maxcount(c, d):
    for i in range(60):
        c.ok(putfh(d), create(FIFO, f"{i}" * 20, mode=0o600))
    attrs = tuple(all_readable(c, d))
    for maxcount in (600, 1000, 4096, 10000):
        c.slots[9] += 1
        body = raw(c.conn, sequence(c.session.sessionid, c.slots[9], 9, 9), putfh(d),
                   readdir(maxcount=maxcount, attrs=attrs))
        entries = len(body) - 12 - 44 - 8 - 8
        if entries > maxcount:
            raise Failed(f"{entries} bytes, maxcount {maxcount}")


def test_readdir_attributes_equal_getattrs(c, d):
    c.open(d, "f")
    c.mkdir(d, "sub")
    c.ok(putfh(d), create(LNK, "l", "f"))
    names = all_readable(c, d)
    stable = names - {ATTR["space_avail"], ATTR["space_free"], ATTR["files_avail"],
                      ATTR["files_free"], ATTR["files_total"]}
    for e in c.readdir_all(d, stable):
        got = c.ok(putfh(d), lookup(e.name), getattr_(*stable)).attrs
        check(vars(e.attrs), vars(got))


def test_hard_links_have_cookies_of_their_own(c, d):
    _, f = c.open(d, "f")
    for i in range(20):
        c.ok(putfh(f), savefh(), putfh(d), link(f"l{i}"))
    entries = c.readdir_all(d, ("fileid",), maxcount=500)
    check((len(entries), len({e.cookie for e in entries}), len({e.attrs.fileid for e in entries})),
          (21, 21, 1))


# ---- extended attributes (RFC 8276)


def test_xattrs_are_set_read_replaced_and_removed(c, d):
    _, f = c.open(d, "f")
    for fh in (f, d):
        before = c.attrs(fh, "change").change
        got = c.ok(putfh(fh), setxattr("name", b"\0value"), getattr_("change"))
        check((got.all[1].cinfo.before, got.all[1].cinfo.after), (before, got.attrs.change))
        check(got.attrs.change > before, True)
        check(c.ok(putfh(fh), getxattr("name")).value, b"\0value")
        c.ok(putfh(fh), setxattr("name", b"second"))
        c.no("EXIST", putfh(fh), setxattr("name", b"third", 1))
        c.ok(putfh(fh), setxattr("name", b"", 2))
        check(c.ok(putfh(fh), getxattr("name")).value, b"")
        c.no("NOXATTR", putfh(fh), setxattr("other", b"x", 2))
        c.ok(putfh(fh), setxattr("other", b"x", 1))
        check(sorted(c.ok(putfh(fh), listxattrs()).names), [b"name", b"other"])
        got = c.ok(putfh(fh), removexattr("name"), getattr_("change"))
        check(got.all[1].cinfo.after, got.attrs.change)
        for one in (getxattr("name"), removexattr("name")):
            c.no("NOXATTR", putfh(fh), one)
        check(c.ok(putfh(fh), listxattrs()).names, [b"other"])


def test_xattr_limits(c, d):
    _, f = c.open(d, "f")
    c.ok(putfh(f), setxattr("n" * 255, b"x"))
    c.no("NAMETOOLONG", putfh(f), setxattr("n" * 256, b"x"))
    c.no("INVAL", putfh(f), setxattr("", b"x"))
    c.ok(putfh(f), setxattr("large", b"v" * 65536))
    check(c.ok(putfh(f), getxattr("large")).value, b"v" * 65536)
    c.no("XATTR2BIG", putfh(f), setxattr("larger", b"v" * 65537))
    c.no(("BADXDR", "INVAL"), putfh(f), setxattr("a", b"x", 3))
    check(sorted(c.ok(putfh(f), listxattrs()).names), [b"large", b"n" * 255])


def test_listxattrs_in_pages(c, d):
    _, f = c.open(d, "f")
    got = c.ok(putfh(f), listxattrs())
    check((got.names, got.eof), ([], True))
    names = [b"name %03d" % i for i in range(50)]
    for name in names:
        c.ok(putfh(f), setxattr(name, b"x"))
    seen, cookie, pages = [], 0, 0
    while True:
        got = c.ok(putfh(f), listxattrs(cookie, 200))
        size = sum(4 + len(n) + -len(n) % 4 for n in got.names)
        check(0 < size <= 200, True, f"{size} bytes of names, maxcount 200")
        seen += got.names
        pages += 1
        if got.eof:
            break
        cookie = got.cookie
    check((sorted(seen), pages > 3), (names, True))
    c.no("TOOSMALL", putfh(f), listxattrs(0, 8))
    check(len(c.ok(putfh(f), listxattrs(0, 1 << 20)).names), 50)


def test_xattrs_survive_rename_and_go_with_their_file(c, d):
    s, f = c.open(d, "f")
    c.ok(putfh(f), setxattr("a", b"1"), savefh(), putfh(d), savefh(), rename("f", "g"))
    check(c.ok(putfh(f), getxattr("a")).value, b"1")
    c.ok(putfh(f), close(s), putfh(d), remove("g"))
    _, g = c.open(d, "f")
    check(c.ok(putfh(g), listxattrs()).names, [])


def test_access_tells_xattr_rights(c, d):
    _, f = c.open(d, "f", attrs={"mode": 0o644, "owner": "1000"})
    xattrs = 0x40 | 0x80 | 0x100
    for cred, want in ((USER, xattrs), (OTHER, 0x140)):
        got = c.ok(putfh(f), access(xattrs), cred=cred)
        check((got.supported, got.access), (xattrs, want))
    check(client(minor=1).ok(putfh(f), access(xattrs | 1)).supported, 1)


def test_the_policy_attribute(c, d):
    sub = c.mkdir(d, "sub")
    inherited = c.ok(putfh(d), getxattr("weft.policy")).value
    c.ok(putfh(d), setxattr("weft.policy", "mirrors=2,unit=2M,stripes=2"))
    for fh in (d, sub):
        check(c.ok(putfh(fh), getxattr("weft.policy")).value, b"stripes=2,unit=2M,mirrors=2")
        check(c.ok(putfh(fh), listxattrs()).names, [])
    c.ok(putfh(sub), setxattr("weft.policy", "stripes=4"))
    check(c.ok(putfh(sub), getxattr("weft.policy")).value, b"stripes=4,unit=1M,mirrors=1")
    c.ok(putfh(sub), removexattr("weft.policy"))
    check(c.ok(putfh(sub), getxattr("weft.policy")).value, b"stripes=2,unit=2M,mirrors=2")
    c.ok(putfh(d), removexattr("weft.policy"))
    check(c.ok(putfh(sub), getxattr("weft.policy")).value, inherited)


def test_policies_that_cannot_be(c, d):
    c.ok(putfh(d), setattr_(mode=0o777))
    for bad in ("", "x", "stripes=0", "stripes=", "unit=1", "unit=3M", "unit=512K", "unit=4G",
                "mirrors=0", "mirrors=5", "stripes=64", "stripes=2,stripes=3",
                "stripes=2,,mirrors=2", "stripes=-1", "color=red"):
        c.no("INVAL", putfh(d), setxattr("weft.policy", bad))
    c.no(("PERM", "ACCESS"), putfh(d), setxattr("weft.policy", "stripes=2"), cred=USER)
    c.ok(putfh(d), setattr_(owner="1000"), setxattr("weft.policy", "stripes=1"))
    c.ok(putfh(d), setxattr("weft.policy", "stripes=2,unit=2G"), cred=USER)


def test_the_layout_attribute(c, d):
    c.ok(putfh(d), setxattr("weft.policy", "stripes=2,mirrors=2"))
    s, f = c.open(d, "f")
    c.ok(putfh(f), write(s, 0, bytes(1 << 20)))
    c.ok(putfh(f), write(s, 1 << 20, bytes(1 << 19)), commit())
    got = json.loads(c.ok(putfh(f), getxattr("weft.layout")).value)
    check((got["version"], got["size"], got["unit"], len(got["mirrors"])), (1, 3 << 19, 1 << 20, 2))
    check(got["inode"], c.attrs(f, "fileid").fileid)
    servers = set()
    for m in got["mirrors"]:
        check((m["state"], len(m["objects"])), ("in-sync", 2))
        for o in m["objects"]:
            check(o["state"], "in-sync")
            check({"ds", "id", "addr", "object", "size"} - set(o), set())
            servers.add(o["ds"])
    check(servers, {"ds1", "ds2", "ds3", "ds4"})
    c.no("PERM", putfh(f), setxattr("weft.layout", "{}"))
    c.no("PERM", putfh(f), removexattr("weft.layout"))
    check(c.ok(putfh(f), listxattrs()).names, [])


if __name__ == "__main__":
    harness.main(globals(), parts=2, settings=CALM)
