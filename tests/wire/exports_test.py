#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Exports over the wire: which clients see what, from where, with which flavour. Prints TAP.

weft-exports(5) and RFC 8881 chapters 2.6 and 7 say how. Clients are loopback addresses. The test
runs in a mount namespace with its own hosts, netgroups, users and groups.
"""
import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile

if os.environ.get("WEFT_EXPORTS_TEST") != "inside":
    os.environ["WEFT_EXPORTS_TEST"] = "inside"
    os.execvp("unshare",
              ["unshare", "-m", sys.executable, os.path.abspath(__file__), *sys.argv[1:]])

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../wirelib"))
import exported  # noqa: E402
from daemons import ask  # noqa: E402
import harness  # noqa: E402
import tap  # noqa: E402
from exported import (ADMIN, ALL, BASE, BOTH_C, ONLY_B, RO, ROOTSQ, STRANGER, client,  # noqa: E402
                      exports, names, own_files, text, walk, weft, write_file)
from harness import ADDR, BUILD, Cluster, check, eventually, rejected  # noqa: E402
from steps import device, lay  # noqa: E402
from nfs41 import *  # noqa: E402,F403
from nfs41 import err, op  # noqa: E402

PORTS = iter(range(700, 1000))


# ---- what a client sees


def test_a_stranger_gets_nothing(make):
    conn = Conn(ADDR, source=(STRANGER, 0))
    conn.rpc(0)
    for one in (exchange_id(b"a stranger", bytes(8)), putrootfh()):
        check(rejected(conn, 1, compound_args([one]), cred=auth_sys()), ("denied", 1, 5))
    conn.close()
    known = exported.CLUSTER.metric('weft_mds_refused_total\\{what="strangers"\\}')
    check(known >= 2, True)


def test_where_a_client_has_an_export_no_other_is_there(make):
    a, fh = make(ADMIN), walk(make(BOTH_C), "a")
    c = make(ONLY_B)
    c.no("NOENT", putrootfh(), lookup("a"))
    c.no("STALE", putfh(fh))
    c.no("STALE", putfh(a.mkdir(a.root(), "x")))
    c.no("ROFS", putrootfh(), create(DIR, "y"))
    a.ok(putrootfh(), lookup("deep"), setxattr("secret", "words"))
    deep = walk(c, "deep")
    check(c.ok(putfh(deep), listxattrs()).names, [])
    c.no("NOXATTR", putfh(deep), getxattr("secret"))
    c.no("NOXATTR", putfh(deep), getxattr("weft.policy"))


def test_only_what_leads_to_an_export_is_seen(make):
    a = make(ADMIN)
    a.mkdir(a.root(), "hidden")
    deep = walk(a, "deep")
    a.mkdir(deep, "beside")
    c = make(ONLY_B)
    root = c.root()
    check([text(n) for n in names(c, root)], ["deep"])
    deep = walk(c, "deep")
    check([text(n) for n in names(c, deep)], ["er"])
    c.no("NOENT", putfh(deep), lookup("beside"))
    c.no("NOENT", putfh(root), lookup("hidden"))
    c.no("NOENT", putfh(root), lookup("a"))
    c.no("NOENT", putfh(root), open_("a"))
    b = walk(c, "deep", "er", "b")
    c.mkdir(b, "made")
    check([text(n) for n in names(c, b)], ["made"])


def test_the_pseudo_file_system_is_nobodys_and_read_only(make):
    a = make(ADMIN)
    deep = walk(a, "deep")
    a.ok(putfh(deep), setattr_(mode=0o700, owner="55"))
    c = make(ONLY_B)
    fh = walk(c, "deep")
    got = c.attrs(fh, "mode", "owner", "type", "fsid", "change", cred=auth_sys(1000, 1000))
    check((got.mode, got.owner, got.type), (0o555, "0", DIR))
    before = got.change
    c.ok(putfh(fh), lookup("er"), cred=auth_sys(1000, 1000))
    for one in (create(DIR, "x"), remove("er"), setattr_(mode=0o777), setxattr("x", "y"),
                open_("f", READ | NO_DELEG, how=UNCHECKED, attrs={}),
                open_("beside", READ | NO_DELEG, how=GUARDED, attrs={})):
        c.no("ROFS", putfh(fh), one)
    c.no("ROFS", putfh(fh), savefh(), rename("er", "es"))
    check(c.ok(putfh(fh), access(0x3f)).access & ~3, 0)
    exports(BASE + "\n")
    after = c.attrs(fh, "change").change
    check(after > before, True, "what is seen may be new: the change attribute rises with a reload")


def test_an_export_is_a_file_system_of_its_own(make):
    c = make(BOTH_C)
    root, fa, fb = c.root(), walk(c, "a"), walk(c, "deep", "er", "b")
    ids = [c.attrs(fh, "fsid").fsid for fh in (root, fa, fb)]
    check(len(set(ids)), 3)
    check(c.attrs(walk(c, "deep"), "fsid").fsid, ids[0])
    for e in c.readdir_all(root, attrs=("fsid", "fileid", "mounted_on_fileid", "filehandle",
                                        "rdattr_error")):
        fh = walk(c, text(e.name)) if text(e.name) != "other" else None
        if fh is None:
            check(e.attrs.rdattr_error, 10016, "AUTH_SYS is wrong there")
            check(e.attrs.bits, {11})
            continue
        got = c.attrs(fh, "fsid", "fileid", "mounted_on_fileid")
        check((e.attrs.fsid, e.attrs.fileid, e.attrs.mounted_on_fileid, e.attrs.filehandle),
              (got.fsid, got.fileid, got.mounted_on_fileid, fh))


def test_lookupp_leaves_an_export_for_the_pseudo_root_only(make):
    c = make(ONLY_B)
    b = walk(c, "deep", "er", "b")
    d = c.mkdir(b, "below")
    er, deep = walk(c, "deep", "er"), walk(c, "deep")
    check(c.ok(putfh(d), lookupp(), getfh()).fh, b)
    check(c.ok(putfh(b), lookupp(), getfh()).fh, er)
    check(c.ok(putfh(b), lookupp(), lookupp(), getfh()).fh, deep)
    check(c.ok(putfh(deep), lookupp(), getfh()).fh, c.root())
    c.no("NOENT", putrootfh(), lookupp())
    check([text(n) for n in names(c, c.ok(putfh(b), lookupp(), lookupp(), lookupp(), getfh()).fh)],
          ["deep"])


def test_a_handle_is_worth_nothing_where_its_export_is_not_ours(make):
    both, b = make(BOTH_C), make(ONLY_B)
    fa = walk(both, "a")
    sid, f = both.open(fa, "theirs")
    for fh in (fa, f):
        b.no("STALE", putfh(fh))
        b.no("STALE", putfh(walk(b, "deep", "er", "b")), savefh(), putfh(fh))
    b.no("STALE", putfh(f))
    mine = walk(b, "deep", "er", "b")
    # A handle is version, zero, fs, incarnation, export, cluster, inode, MAC. Only the key can make
    # one of another export or inode.
    for cut in (slice(6, 8), slice(12, 20)):
        forged = bytearray(mine)
        forged[cut] = f[cut]
        b.no("BADHANDLE", putfh(bytes(forged)))
    both.ok(putfh(f), close(sid))


def test_names_do_not_cross_exports(make):
    c = make(BOTH_C)
    fa, fb = walk(c, "a"), walk(c, "deep", "er", "b")
    sid, f = c.open(fa, "x")
    c.ok(putfh(f), close(sid))
    c.no("XDEV", putfh(f), savefh(), putfh(fb), link("x"))
    c.no("XDEV", putfh(fa), savefh(), putfh(fb), rename("x", "x"))
    c.no("XDEV", putfh(fb), savefh(), putrootfh(), rename("x", "x"))
    c.ok(putfh(f), savefh(), putfh(fa), link("y"))
    c.ok(putfh(fa), savefh(), putfh(fa), rename("y", "z"))
    c.no(("XDEV", "NOTSUPP"), putfh(f), savefh(), putfh(fb),
         op("CLONE", stateid(ANON), stateid(ANON), u64(0), u64(0), u64(0)))


def test_the_way_to_an_export_stays(make):
    a = make(ADMIN)
    root = a.root()
    for name in ("a", "deep"):
        a.no("FILE_OPEN", putfh(root), remove(name))
        a.no("XDEV", putfh(root), savefh(), putfh(root), rename(name, "elsewhere"))
    d = a.mkdir(root, "empty")
    a.no("XDEV", putfh(root), savefh(), putfh(root), rename("empty", "a"))
    a.ok(putfh(root), savefh(), putfh(root), rename("empty", "moved"))
    a.ok(putfh(root), remove("moved"))
    a.no("STALE", putfh(d), getattr_("type"))


# ---- what a client may do


def test_a_read_only_export_answers_rofs(make):
    rw, c = make(BOTH_C), make(RO)
    fa = walk(rw, "a")
    sid, f = rw.open(fa, "file")
    rw.ok(putfh(f), write(sid, 0, b"words", FILE_SYNC), close(sid))
    rw.mkdir(fa, "dir")
    check(c.ok(putrootfh(), lookup("a"), getfh()).fh, fa)
    for one in (create(DIR, "x"), create(LNK, "x", "y"), remove("file"), setattr_(mode=0o700),
                setxattr("n", "v"), removexattr("n"),
                open_("new", READ | NO_DELEG, how=UNCHECKED, attrs={"mode": 0o644}),
                open_("new", WRITE | NO_DELEG, how=GUARDED, attrs={}),
                open_("new", BOTH | NO_DELEG, how=EXCLUSIVE4_1, verf=b"12345678"),
                open_("file", WRITE | NO_DELEG), open_("file", BOTH | NO_DELEG),
                open_("file", READ | NO_DELEG, how=UNCHECKED, attrs={"size": 0})):
        c.no("ROFS", putfh(fa), one)
    c.no("ROFS", putfh(fa), savefh(), rename("file", "g"))
    c.no("ROFS", putfh(f), savefh(), putfh(fa), link("g"))
    for one in (setattr_(size=0), write(ANON, 0, b"x"), open_(claim_fh(), WRITE | NO_DELEG),
                op("ALLOCATE", stateid(ANON), u64(0), u64(1)),
                op("DEALLOCATE", stateid(ANON), u64(0), u64(1))):
        c.no(("ROFS", "NOTSUPP"), putfh(f), one)
    c.no("NOENT", putfh(fa), open_("absent", WRITE | NO_DELEG))
    got = c.ok(putfh(fa), access(0x3f))
    check((got.supported, got.access), (0x1f, 3))
    sid, f2 = c.open(fa, "file", READ, how=UNCHECKED, attrs={"mode": 0o600})
    check(f2, f)
    check(c.ok(putfh(f), read(sid, 0, 10)).data, b"words")
    c.no(("LAYOUTUNAVAILABLE", "OPENMODE"), putfh(f), layoutget(sid, IO_RW))
    c.ok(putfh(f), layoutget(sid, IO_READ))
    c.ok(putfh(f), close(sid))
    check(rw.attrs(f, "size", "mode").size, 5)


def test_the_first_section_that_fits_decides(make):
    c = make(RO)  # 127.0.0.3 is in 127.0.0.2/31, too, which may write
    c.no("ROFS", putfh(walk(c, "a")), create(DIR, "x"))
    exports(BASE.replace('client "127.0.0.3"', 'client "127.0.0.13"'))
    c.ok(putfh(walk(c, "a")), access(1))
    make(BOTH_C).ok(putrootfh(), lookup("a"), setattr_(mode=0o777))
    c.mkdir(walk(c, "a"), "now")


def test_root_is_squashed(make):
    c = make(ROOTSQ)
    make(BOTH_C).ok(putrootfh(), lookup("a"), setattr_(mode=0o777))
    fa = walk(c, "a")
    for i, (cred, want) in enumerate(((auth_sys(0, 0), ("65534", "65534")),
                                      (auth_sys(0, 100, (5,)), ("65534", "65534")),
                                      (auth_sys(7, 0), ("7", "65534")),
                                      (auth_sys(7, 8), ("7", "8")), (NOBODY, ("65534", "65534")))):
        got = c.attrs(c.mkdir(fa, f"d{i}", cred=cred), "owner", "owner_group")
        check((got.owner, got.owner_group), want)
    # neither root's rights, nor its group's
    both = make(BOTH_C)
    both.mkdir(fa, "g", attrs={"mode": 0o770})
    c.no("ACCESS", putfh(fa), lookup("g"), create(DIR, "x"), cred=auth_sys(0, 0))
    c.no("ACCESS", putfh(fa), lookup("g"), create(DIR, "x"), cred=auth_sys(9, 9, (0,)))
    both.ok(putfh(fa), lookup("g"), create(DIR, "x", mode=0o755), cred=auth_sys(9, 9, (0,)))
    c.no(("PERM", "ACCESS"), putfh(fa), lookup("d3"), setattr_(owner="9"))


def test_all_are_squashed(make):
    make(BOTH_C).ok(putrootfh(), lookup("a"), setattr_(mode=0o777))
    c = make(ALL)
    fa = walk(c, "a")
    for i, cred in enumerate((auth_sys(0, 0), auth_sys(7, 8, (9,)))):
        got = c.attrs(c.mkdir(fa, f"all{i}", cred=cred), "owner", "owner_group")
        check((got.owner, got.owner_group), ("1234", "4321"))
    make(BOTH_C).mkdir(fa, "nine", attrs={"mode": 0o775, "owner_group": "9"})
    c.no("ACCESS", putfh(fa), lookup("nine"), create(DIR, "x"), cred=auth_sys(7, 8, (9,)))


# ---- flavours (section 2.6.3.1)


def wrong(c, at, *ops, want="WRONGSEC"):
    """The operation at this place, and none before it, fails."""
    got = c.call(*ops)
    check((err(got.status), len(got.results) - 2), (want, at))


def test_wrongsec_as_the_series_of_operations_says(make):
    c = make(BOTH_C)
    make(ADMIN).ok(putrootfh(), lookup("other"), setattr_(mode=0o777))
    other = c.ok(putrootfh(), lookup("other"), getfh(), cred=NOBODY).fh
    inside = c.ok(putfh(other), create(DIR, "in"), getfh(), cred=NOBODY).fh
    c.ok(putfh(other), open_("f", BOTH | NO_DELEG, how=UNCHECKED, attrs={"mode": 0o666}),
         cred=NOBODY)
    f = c.ok(putfh(other), lookup("f"), getfh(), cred=NOBODY).fh
    fa = walk(c, "a")
    by_name = open_("f", READ | NO_DELEG)
    wrong(c, 0, putfh(other), getattr_("type"))  # anything else
    wrong(c, 0, putfh(other), getfh())
    wrong(c, 0, putfh(other), create(DIR, "x"))
    wrong(c, 0, putfh(f), open_(claim_fh(), READ | NO_DELEG))  # also OPEN by handle
    wrong(c, 0, putfh(other), savefh(), getattr_("type"))  # as if SAVEFH were not there
    c.ok(putfh(other))  # nothing
    c.ok(putfh(other), savefh())
    c.ok(putfh(other), putfh(fa), getattr_("type"))  # the last of a series of them
    c.ok(putfh(other), savefh(), putrootfh(), getattr_("type"))
    c.ok(putfh(other), putrootfh(), lookup("a"), getattr_("type"))
    wrong(c, 1, putrootfh(), lookup("other"))
    wrong(c, 1, putfh(other), lookup("in"))
    wrong(c, 1, putfh(other), lookup("absent"))  # it does not even say whether the name is there
    wrong(c, 1, putfh(other), by_name)
    wrong(c, 1, putfh(other), open_("new", BOTH | NO_DELEG, how=GUARDED, attrs={}))
    wrong(c, 1, putfh(inside), lookupp())
    c.ok(putfh(other), lookupp(), getattr_("type"))  # the pseudo root allows all flavours
    wrong(c, 3, putfh(other), savefh(), putfh(fa), restorefh(), getattr_("type"))
    c.ok(putfh(other), savefh(), putfh(fa), restorefh())
    c.no("XDEV", putfh(other), savefh(), putfh(fa), link("x"))


def test_secinfo_tells_what_an_export_takes(make):
    c = make(BOTH_C)
    make(ADMIN).ok(putrootfh(), lookup("other"), setattr_(mode=0o777))
    other = c.ok(putrootfh(), lookup("other"), getfh(), cred=NOBODY).fh
    inside = c.ok(putfh(other), create(DIR, "below"), getfh(), cred=NOBODY).fh
    check(c.ok(putrootfh(), secinfo("other")).flavors, [AUTH_NONE])
    check(c.ok(putrootfh(), secinfo("a")).flavors, [AUTH_SYS])
    check(c.ok(putfh(other), secinfo_no_name()).flavors, [AUTH_NONE])
    check(c.ok(putfh(other), secinfo("below")).flavors, [AUTH_NONE])
    check(c.ok(putfh(inside), secinfo_no_name(1)).flavors, [AUTH_NONE])
    check(c.ok(putrootfh(), secinfo_no_name()).flavors, [AUTH_SYS, AUTH_NONE],
          "the pseudo root: of all that can be reached")
    check(c.ok(putfh(other), secinfo_no_name(1)).flavors, [AUTH_SYS, AUTH_NONE])
    c.no("NOFILEHANDLE", putfh(other), secinfo_no_name(), getattr_("type"))
    exports(BASE.replace("sec = {none}", "sec = {krb5p, krb5i, krb5, sys}"))
    check(c.ok(putrootfh(), secinfo("other")).flavors, [AUTH_SYS],
          "without a key table; with one: gss_test.py")


def test_auth_none_is_nobody(make):
    a = make(ADMIN)  # squash = none
    d = a.mkdir(a.root(), "open", attrs={"mode": 0o777})
    got = a.attrs(a.mkdir(d, "x", cred=NOBODY), "owner", "owner_group")
    check((got.owner, got.owner_group), ("65534", "65534"))
    a.mkdir(d, "shut", attrs={"mode": 0o700})
    a.no("ACCESS", putfh(d), lookup("shut"), lookup("x"), cred=NOBODY)


def test_a_port_below_1024_where_it_is_demanded(make):
    exports(BASE.replace("privileged_port = no\n\tclient \"127.0.0.2\" { access = rw squash = none "
                         "}", "client \"127.0.0.2\" { access = rw squash = none }"))
    c = make(BOTH_C)
    check(c.conn.sock.getsockname()[1] >= 1024, True)
    c.no("WRONGSEC", putrootfh(), lookup("a"))
    check(c.ok(putrootfh(), secinfo("a")).flavors, [])
    c = make(BOTH_C, port=next(PORTS))
    check(c.ok(putrootfh(), secinfo("a")).flavors, [AUTH_SYS])
    c.mkdir(walk(c, "a"), "low")


def test_tls_where_it_is_demanded(make):
    c = make(BOTH_C)
    fa = walk(c, "a")
    for level in ("tls", "mtls"):
        exports(BASE.replace(
            "create = yes\n\tprivileged_port = no\n\tclient \"127.0.0.2\" {",
            f"create = yes\n\tprivileged_port = no\n\ttls = {level}\n\tclient \"127.0.0.2\" {{"))
        wrong(c, 0, putfh(fa), getattr_("type"))
        wrong(c, 1, putrootfh(), lookup("a"))
        check(c.ok(putfh(fa), secinfo_no_name()).flavors, [])
        c.ok(putrootfh(), lookup("deep"))


def test_layouts_of_one_export_come_back_together(make):
    c = make(BOTH_C)
    a, b = walk(c, "a"), walk(c, "deep", "er", "b")
    held = []
    for d in (a, b):
        sid, f = c.open(d, "fsid")
        held.append(c.ok(putfh(f), layoutget(sid, IO_RW)).stateid)
    c.ok(putfh(a), layoutreturn(how=RET_FSID))
    check([err(n) for n in c.ok(test_stateid(*held)).statuses], ["BAD_STATEID", "OK"])
    c.ok(layoutreturn(how=RET_ALL))
    check(err(c.ok(test_stateid(held[1])).statuses[0]), "BAD_STATEID")


def test_layouts_where_the_administrator_allows_them(make):
    c = make(BOTH_C)
    fa = walk(c, "a")
    sid, f = c.open(fa, "laid")
    c.ok(putfh(f), layoutget(sid, IO_RW))
    check(c.attrs(f, "fs_layout_types").fs_layout_types, [FLEX])
    c.ok(putfh(f), op("LAYOUTRETURN", boolean(False), u32(FLEX), u32(IO_ANY), u32(RET_ALL)))
    exports(BASE.replace("squash = none }\n\tclient \"127.0.0.3\"",
                         "squash = none layouts = no }\n\tclient \"127.0.0.3\""))
    c.no("LAYOUTUNAVAILABLE", putfh(f), layoutget(sid, IO_READ))
    check(c.attrs(f, "fs_layout_types").fs_layout_types, [])
    c.ok(putfh(f), write(sid, 0, b"through the server"))
    c.ok(putfh(f), close(sid))


# ---- reload


def test_a_reload_drops_no_client(make):
    c = make(BOTH_C)
    fa = walk(c, "a")
    sid, f = c.open(fa, "kept")
    clientid, conn = c.clientid, c.conn
    told = exports(BASE.replace('client "127.0.0.2" { access = rw squash',
                                'client "127.0.0.2" { access = ro squash'))
    check("/a" in told and "/deep/er/b" in told, True, told)
    c.no("ROFS", putfh(f), write(sid, 0, b"x"))
    c.no("ROFS", putfh(fa), create(DIR, "x"))
    check(c.ok(putfh(f), read(sid, 0, 1)).data, b"")
    exports(BASE)
    c.ok(putfh(f), write(sid, 0, b"x", FILE_SYNC))
    c.ok(putfh(f), close(sid))
    check((c.clientid, c.conn), (clientid, conn))
    check(c.conn.closed, False)


def test_a_reload_takes_back_what_was_given(make):
    a, b = make(BOTH_C), make(ONLY_B)
    held = {}
    for c, path in ((a, ("a",)), (b, ("deep", "er", "b"))):
        d = walk(c, *path)
        sid, f = c.open(d, "laid out")
        held[c] = sid, f, lay(c, f, sid)
    c, (sid, f, layout) = a, held[a]
    first = layout.mirrors[0][0]
    ds = DataServer(uaddr(device(c, first.deviceid).addrs[0][1]))
    check(ds.write(first.fhs[0], 0, b"before").status, 0)
    answered = []
    c.on_callback = lambda name, args: answered.append((name, args.fh)) or 0
    exports(BASE.replace('client "127.0.0.2" { access = rw squash = none }\n\tclient "127.0.0.3"',
                         'client "127.0.0.2" { squash = none }\n\tclient "127.0.0.3"'))
    recall = c.wait_callback("LAYOUTRECALL")
    check(recall.fh, f, "the very bytes of GETFH")
    c.ok(putfh(f), layoutreturn(recall.stateid))
    eventually(lambda: ds.write(first.fhs[0], 0, b"before").status == 13,
               what="the fence of a returned handle")
    c.no("LAYOUTUNAVAILABLE", putfh(f), layoutget(sid, IO_RW))
    check(c.ok(putfh(f), read(sid, 0, 10)).data, b"before")
    check(b.callbacks, [], "nothing has changed for the other export")
    ds.close()


def test_an_export_that_goes_is_stale(make):
    c, only = make(BOTH_C), make(ONLY_B)
    b = walk(c, "deep", "er", "b")
    exports(BASE.replace("127.0.0.2, 127.0.0.6", "127.0.0.20"))
    c.no("STALE", putfh(b))
    check(sorted(text(n) for n in names(c, c.root())), ["a", "other"])
    try:
        only.call(putfh(b))
        raise AssertionError("a stranger by now is served")
    except Rejected:
        pass
    exports(BASE)
    c.ok(putfh(b), getattr_("type"))
    exports(BASE.replace('export "/deep/er/b" {', 'export "/deep/er/b" {\n\tid = 4711'))
    c.no("STALE", putfh(b))
    walk(c, "deep", "er", "b")


def test_a_bad_file_changes_nothing(make):
    c = make(BOTH_C)
    for bad, line, what in (('export "/a" {\n\tclient "10.0.0.0/33" { }\n}', 2, '10.0.0.0/33'),
                            ('export "a" {\n client "*" {}\n}', 3, "absolute path"),
                            ('export "/a" {\n client "*" {\n access = write\n }\n}', 3, "rw|ro"),
                            ('export "/a" {\n clients "*" {}\n}', 2, "clients"),
                            ('export "/a" { client "*" {} }\n'
                             'export "/a" { client "*" {} }', 2, "/a"),
                            ('export "/a" { }', 1, "no client"),
                            ("", 1, "no export"),
                            ('export "/a" { client "*" { sec = {sys, krb6} } }', 1, "krb6"),
                            ('export "/a" { client "*" {', None, "not closed"),
                            ('export "/a" { id = 9 client "*" {} }\nexport "/b" { id = 9 client '
                             '"*" {} }', 1, "same id 9"),
                            ('export "/a" { id = 65536 client "*" {} }', 1, "up to 65535"),
                            ('export "/a/../b" { client "*" {} }', 1, "..")):
        write_file(bad)
        told = weft("exports", "reload", rc=1)
        check(what in told and (line is None or f"{exported.FILE}:{line}: " in told), True, told)
        walk(c, "a")
        args = [os.path.join(BUILD, "weft-mds"), "--check", "-o", "mds.store=/s",
                "-o", "mds.cluster_key=/k", "-o", f"mds.exports={exported.FILE}"]
        done = subprocess.run(args, capture_output=True, text=True, timeout=60, check=False)
        check((done.returncode, what in done.stderr), (2, True), done.stderr)
    os.unlink(exported.FILE)
    check("No such file" in weft("exports", "reload", rc=1), True)
    walk(c, "a")
    check('"/a"' in weft("--json", "exports").replace("\\/", "/"), True)


def test_who_is_refused_for_the_port_is_told_why_on_both_sides(make):
    write_file(BASE + 'export "/low" { create = yes client "127.0.0.1" { access = rw } }\n')
    weft("exports", "reload")
    done = subprocess.run([os.path.join(BUILD, "weft-bench"), "md", "--server",
                           f"{ADDR[0]}:{ADDR[1]}", "--dir", "/low", "--count", "5", "--quiet"],
                          capture_output=True, text=True, timeout=60, check=False)
    check((done.returncode != 0, "NFS4ERR_WRONGSEC" in done.stderr,
           "a port below 1024" in done.stderr), (True, True, True), done.stderr)
    with open(f"{exported.CLUSTER.dir}/log/mds.log", encoding="utf-8") as log:
        check(re.search(r"refused 127\.0\.0\.1:\d+ access to export \d+ \(NFS4ERR_WRONGSEC\): "
                        r"its port is not below 1024 \(privileged_port\)", log.read())
              is not None, True)


def test_a_hangup_reloads(make):
    write_file(BASE + f'export "/strange" {{ create = yes privileged_port = no client "{STRANGER}" '
               f'{{ }} }}\n')
    with open(f"{exported.CLUSTER.dir}/run/mds.pid", encoding="ascii") as f:
        os.kill(int(f.read()), signal.SIGHUP)
    eventually(lambda: "/strange" in weft("exports"))
    c = make(STRANGER)
    c.ok(putrootfh(), lookup("strange"))
    write_file("nonsense")
    with open(f"{exported.CLUSTER.dir}/run/mds.pid", encoding="ascii") as f:
        os.kill(int(f.read()), signal.SIGHUP)
    with open(f"{exported.CLUSTER.dir}/log/mds.log", encoding="utf-8") as log:
        eventually(lambda: "exports not reloaded, the old ones stay" in log.read())
    walk(c, "strange")


def test_a_missing_directory_is_told_and_not_served(make):
    told = exports(BASE + f'export "/late" {{ privileged_port = no client "{STRANGER}" {{ }} }}\n')
    check("/late" in told and "NOT SERVED" in told, True, told)
    c, a = Conn(ADDR, source=(STRANGER, 0)), make(ADMIN)
    rejected(c, 1, compound_args([putrootfh()]), cred=auth_sys())
    c.close()
    a.mkdir(a.root(), "late")
    check("NOT SERVED" in weft("exports", "reload"), False)
    walk(make(STRANGER), "late")


def test_handles_outlive_restarts_and_the_order_of_the_file(make):
    c = make(BOTH_C)
    handles = [walk(c, "a"), walk(c, "deep", "er", "b"), c.mkdir(walk(c, "deep", "er", "b"), "sub"),
               c.root()]
    blocks = BASE.split("export ")
    write_file(blocks[0] + "".join("export " + b for b in reversed(blocks[1:])).replace(
        "/* no AUTH_SYS here */", "").replace("# whoever administers", ""))
    exported.CLUSTER.restart()
    c = make(BOTH_C)
    for fh in handles:
        check(c.until(lambda r: r.status != 10013, putfh(fh), getattr_("type"),
                      getfh()).results[-1].fh, fh)
    check([walk(c, "a"), walk(c, "deep", "er", "b")], handles[:2])


# ---- names and groups: from this test's own files (see main)


def test_hosts_and_netgroups(make):
    exports(BASE + 'export "/named" { create = yes privileged_port = no client "named.weft.test" { '
            '} client "@trusted" { access = rw } client "*.lab.test" {} }\n')
    for addr, sees in (("127.0.0.31", True), ("127.0.0.32", True), ("127.0.0.33", True),
                       ("127.0.0.34", False), ("127.0.0.35", False)):
        if sees:
            walk(make(addr), "named")
        else:
            c = Conn(ADDR, source=(addr, 0))
            check(rejected(c, 1, compound_args([putrootfh()]), cred=auth_sys()), ("denied", 1, 5),
                  addr)
            c.close()
    c = make("127.0.0.32")
    # The client is in the netgroup, so it may write, but root is squashed.
    c.no("ACCESS", putrootfh(), lookup("named"), create(DIR, "x"))
    make("127.0.0.31").no("ROFS", putrootfh(), lookup("named"), create(DIR, "x"))


def test_a_node_with_other_exports_says_so(make):
    """What another node has, or what was changed while the server was stopped, is the same to the
    store."""
    def hash_of():
        return ask(admin, "GET", "/v1/status")["exports_hash"]

    def differs():
        return [r["text"] for r in ask(admin, "GET", "/v1/health")["reasons"]
                if r["code"] == "exports-differ"]

    def again(text):
        exported.CLUSTER.dev("kill", exported.CLUSTER.dir, "mds")
        write_file(text)
        exported.CLUSTER.dev("start", exported.CLUSTER.dir, "mds")
        eventually(serves, what="health after the start")

    def serves():
        try:
            return ask(admin, "GET", "/v1/health")
        except AssertionError:  # 503: it waits for a data server
            return None

    def logged():
        with open(f"{exported.CLUSTER.dir}/log/mds.log", encoding="utf-8") as log:
            return log.read().count("of them are not as they were in force before")

    admin = f"unix:{exported.CLUSTER.dir}/run/mds.sock"
    was, before = hash_of(), logged()
    again(BASE)
    check((hash_of(), differs(), logged()), (was, [], before))
    other = BASE.replace('client "127.0.0.2" { access = rw squash = none }', "", 1).replace(
        "id = 77", "id = 78")
    again(other)
    check(hash_of() != was, True, was)
    check((differs(), logged()), (["3 exports are not as they were in force before this start"],
                                  before + 1))
    weft("exports", "reload")
    eventually(lambda: not differs(), what="the reason goes with the reload")
    write_file(BASE)
    weft("exports", "reload")
    eventually(lambda: (hash_of(), differs()) == (was, []), what="what was before")
    # Another order of the exports, and other comments, say the same.
    head, a, b, c = BASE.split("export ")[1:]
    again("# on another node\n" + "".join("export " + x.split("/*")[0] for x in (c, b, a, head)))
    check((hash_of(), differs(), logged()), (was, [], before + 1))


def test_groups_of_the_server(make):
    exported.CLUSTER.dev("down", exported.CLUSTER.dir)
    exported.CLUSTER.dev("up", exported.CLUSTER.dir, "--set", "mds.groups=server")
    a = make(ADMIN)
    root = a.root()
    fh = a.mkdir(root, "many", attrs={"mode": 0o770, "owner_group": "3040"})
    who = auth_sys(3000, 3000, tuple(range(3001, 3017)))
    a.ok(putfh(fh), create(DIR, "x"), cred=who)  # only the server knows the 40th group
    # The server does not go by the groups that the client sends.
    a.no("ACCESS", putfh(fh), create(DIR, "y"), cred=auth_sys(3001, 3001, (3040,)))
    a.ok(putfh(fh), setattr_(mode=0o700))
    a.no("ACCESS", putfh(fh), create(DIR, "z"), cred=who)
    d = a.mkdir(root, "given", attrs={"mode": 0o777})
    # Grace is over.
    eventually(lambda: a.call(putfh(d),
                              open_("g", BOTH | NO_DELEG, how=UNCHECKED, attrs={})).status == 0)
    sid, f = a.open(d, "f", cred=who)
    a.ok(putfh(f), setattr_(owner_group="3040"), cred=who)
    a.no("PERM", putfh(f), setattr_(owner_group="3041"), cred=who)
    a.ok(putfh(f), close(sid), cred=who)


# ---- harness


@contextlib.contextmanager
def around(name):
    write_file(BASE)
    weft("exports", "reload")
    with harness.clients(closing=True):
        yield (client,)


def main():
    top = tempfile.mkdtemp(prefix="weft-exports-test.")
    exported.FILE = os.path.join(top, "exports")
    write_file(BASE)
    own_files(top)
    harness.THE = exported.CLUSTER = Cluster(ds=1, settings=[f"mds.exports={exported.FILE}",
                                                             "mds.lease=60s"])
    try:
        tap.run(tap.named(globals()), around)
    finally:
        exported.CLUSTER.down()
        subprocess.run(["umount", "/etc"], check=False)
        shutil.rmtree(top)


if __name__ == "__main__":
    main()
