#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Folders of a data server, exported by path: NFSv3 and MOUNT v3 from outside, after RFC 1813.
Prints TAP. As root."""
import contextlib
import os
import struct
import subprocess
import sys
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../wirelib"))
from nfs41 import NOBODY, auth_sys, opaque, u32, u64  # noqa: E402
from harness import check, eventually  # noqa: E402
from nfs3 import (A_DELETE, A_EXECUTE, A_EXTEND, A_LOOKUP, A_MODIFY, A_READ, BLK,  # noqa: E402
                  CHR, DATA_SYNC, DIR, EXCLUSIVE, FIFO, FILE_SYNC, GUARDED, LNK, MOUNT, NFS, REG,
                  SERVER_TIME, SOCK, UNCHECKED, UNSTABLE, V3, ADDR, Server, rejected, sattr)
import tap  # noqa: E402

USER, OTHER = auth_sys(1000, 1000, (1000, 7000)), auth_sys(2000, 2000)

THE = None


def before():
    THE.c = V3(ADDR)
    THE.root = THE.c.mnt(THE.path("exp"))[1]
    name = f"d{time.monotonic_ns()}"
    THE.dir = THE.path("exp", name)
    THE.d = THE.c.ok("mkdir", THE.root, name, mode=0o777).fh
    return THE


def after(s):
    s.c.close()


def status(got):
    return got[0]


# ---- MOUNT


def test_mnt_gives_the_root_and_the_flavours(s):
    st, fh, flavours = s.c.mnt(s.path("exp"))
    check((st, flavours), (0, [1]))
    a = s.c.ok("getattr", fh)
    check((a.type, a.fileid), (DIR, os.stat(s.path("exp")).st_ino))
    check(s.c.mnt(s.path("ro"))[2], [1, 0], "in the file's order")
    check(s.c.mnt(s.path("squash"))[2], [0, 1])


def test_mnt_of_what_is_below_or_not_there(s):
    os.makedirs(s.path("exp", "sub/deep"), exist_ok=True)
    s.put("exp/file", "x")
    with contextlib.suppress(FileExistsError):
        os.symlink("sub", s.path("exp", "sym"))
    check(s.c.ok("getattr", s.c.mnt(s.path("exp/sub/deep"))[1]).fileid,
          os.stat(s.path("exp/sub/deep")).st_ino)
    check(s.c.mnt(s.path("exp") + "//./sub/")[0], 0)
    for path, want in (("exp/none", 2), ("exp/file", 20), ("exp/sym/deep", 20),
                       ("exp/sub/../..", 13), ("exp/../exp", 13), ("store", 13), ("expo", 13),
                       ("elsewhere", 13), ("", 13), ("exp/" + "n" * 256, 63)):
        check(s.c.mnt(s.path(path))[0], want, path)
    check(s.c.mnt("")[0], 13)


def test_exports_are_told_to_those_who_may(s):
    r = s.c.mount(5)
    seen = {}
    while r.boolean():
        path = r.text()
        seen[path] = []
        while r.boolean():
            seen[path].append(r.text())
    r.end()
    check(sorted(seen), sorted(s.path(n) for n in ("exp", "ro", "squash", "all", "low")))
    check(seen[s.path("exp")], ["*"])


def dump(s):
    r, out = s.c.mount(2), []
    while r.boolean():
        out.append((r.text(), r.text()))
    r.end()
    return out


def test_the_list_of_mounts(s):
    s.c.mount(4)
    check(dump(s), [])
    s.c.mnt(s.path("exp"))
    s.c.mnt(s.path("ro"))
    s.c.mnt(s.path("exp"))
    check(sorted(dump(s)), [("127.0.0.1", s.path("exp")), ("127.0.0.1", s.path("ro"))])
    s.c.mount(3, opaque(s.path("exp"))).end()
    check(dump(s), [("127.0.0.1", s.path("ro"))])
    s.c.mount(4).end()
    check(dump(s), [])


def test_programs_versions_and_procedures(s):
    s.c.mount(0).end()
    check(s.c.conn.rpc(0, b"", NOBODY, prog=NFS, vers=3), b"")
    check(rejected(s.c.conn.rpc, 22, b"", prog=NFS, vers=3), ("accepted", 3))
    check(rejected(s.c.conn.rpc, 6, b"", prog=MOUNT, vers=3), ("accepted", 3))
    check(rejected(s.c.conn.rpc, 0, b"", prog=MOUNT, vers=1), ("accepted", 2, 3, 3))
    check(rejected(s.c.conn.rpc, 1, u32(2000) + bytes(2000), prog=MOUNT, vers=3), ("accepted", 4))


# ---- attributes


def test_getattr_tells_what_the_file_system_says(s):
    fh = s.c.ok("create", s.d, "f", mode=0o640).fh
    s.c.ok("write", fh, 0, b"x" * 10000)
    st, a = os.stat(os.path.join(s.dir, "f")), s.c.ok("getattr", fh)
    check((a.type, a.mode, a.nlink, a.uid, a.gid, a.size, a.used, a.fileid),
          (REG, 0o640, 1, 0, 0, 10000, st.st_blocks * 512, st.st_ino))
    check(a.mtime, (st.st_mtime_ns // 10**9, st.st_mtime_ns % 10**9))
    check(a.fsid, s.c.ok("getattr", s.root).fsid)
    check(a.fsid != s.c.ok("getattr", s.c.mnt(s.path("ro"))[1]).fsid, True,
          "exports have fsids of their own")


def test_setattr_sets_each_attribute(s):
    fh = s.c.ok("create", s.d, "f", mode=0o600).fh
    w = s.c.ok("setattr", fh, mode=0o4751)
    check((w.after.mode, w.before.size), (0o4751, 0))
    check(s.c.ok("setattr", fh, uid=1000, gid=7000).after.uid, 1000)
    check(s.c.ok("setattr", fh, size=5000).after.size, 5000)
    check(s.c.ok("setattr", fh, mode=0o4755, size=10).after.mode, 0o4755,
          "set-id bits that are asked for survive the size")
    a = s.c.ok("setattr", fh, atime=(1, 2), mtime=(4000000000, 999999999)).after
    check((a.atime, a.mtime), ((1, 2), (4000000000, 999999999)))
    before, now = time.time(), s.c.ok("setattr", fh, atime=SERVER_TIME, mtime=SERVER_TIME).after
    check(before - 2 < now.mtime[0] < time.time() + 2 and now.atime[0] > 1, True, "server time")


def test_setattr_checks_its_guard(s):
    fh = s.c.ok("create", s.d, "f", mode=0o600).fh
    ctime = s.c.ok("getattr", fh).ctime
    st, w = s.c.setattr(fh, guard=(ctime[0], ctime[1] ^ 1), mode=0o644)
    check((st, w.after.mode), ("NOT_SYNC", 0o600))
    check(s.c.ok("setattr", fh, guard=ctime, mode=0o644).after.mode, 0o644)


def test_setattr_refuses(s):
    fh = s.c.ok("create", s.d, "f", mode=0o644, uid=1000, gid=1000).fh
    check(status(s.c.setattr(fh, cred=OTHER, mode=0o777)), "PERM")
    check(status(s.c.setattr(fh, cred=USER, uid=2000)), "PERM")
    check(status(s.c.setattr(fh, cred=USER, gid=2000)), "PERM")
    check(status(s.c.setattr(fh, cred=USER, gid=7000)), "OK")
    check(status(s.c.setattr(fh, cred=OTHER, size=0)), "ACCES")
    check(status(s.c.setattr(s.d, size=0)), "INVAL")
    check(status(s.c.setattr(fh, size=2**63)), "FBIG")
    check(status(s.c.setattr(fh, cred=OTHER, atime=(1, 1))), "PERM")
    st, w = s.c.setattr(fh, cred=OTHER, mode=0o600, size=5)
    check((st, w.after.size), ("PERM", 0),
          "what is not permitted comes before what cannot be taken back")
    check(rejected(s.c.call, "SETATTR", opaque(fh) + sattr()[:-4] + u32(3) + u32(0)),
          ("accepted", 4))
    check(rejected(s.c.setattr, fh, atime=(1, 10**9)), ("accepted", 4))


def test_access_is_the_kernels_word(s):
    fh = s.c.ok("create", s.d, "f", mode=0o640, uid=1000, gid=7000).fh
    check(s.c.ok("access", fh, cred=USER).access, A_READ | A_MODIFY | A_EXTEND)
    check(s.c.ok("access", fh, cred=auth_sys(3000, 7000)).access, A_READ)
    check(s.c.ok("access", fh, cred=auth_sys(3000, 1, (7000,))).access, A_READ)
    check(s.c.ok("access", fh, cred=OTHER).access, 0)
    check(s.c.ok("access", fh, A_MODIFY, cred=USER).access, A_MODIFY)
    d = s.c.ok("mkdir", s.d, "d", mode=0o750, uid=1000).fh
    check(s.c.ok("access", d, cred=USER).access, A_READ | A_LOOKUP | A_MODIFY | A_EXTEND | A_DELETE)
    check(s.c.ok("access", d, cred=OTHER).access, 0)
    acl = [(1, 7, 2**32 - 1), (2, 5, 2000), (4, 5, 2**32 - 1), (16, 5, 2**32 - 1),
           (32, 0, 2**32 - 1)]
    os.setxattr(os.path.join(s.dir, "d"), "system.posix_acl_access",
                struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *e) for e in acl))
    check(s.c.ok("access", d, cred=OTHER).access, A_READ | A_LOOKUP, "POSIX ACLs count")
    x = s.c.ok("create", s.d, "x", mode=0o711).fh
    check(s.c.ok("access", x, cred=USER).access, A_EXECUTE)


def test_file_system_procedures_tell_true_values(s):
    v, st = os.statvfs(s.dir), s.c.ok("fsstat", s.d)
    check((st.tbytes, st.tfiles), (v.f_blocks * v.f_frsize, v.f_files))
    check(abs(st.abytes - v.f_bavail * v.f_frsize) < 1 << 28, True, "free")
    i = s.c.ok("fsinfo", s.d)
    check((i.rtmax, i.wtmax, i.properties, i.delta), (1 << 20, 1 << 20, 27, (0, 1)))
    check(i.maxfilesize >= 1 << 43, True, "largest file")
    p = s.c.ok("pathconf", s.d)
    check((p.name_max, p.no_trunc, p.chown_restricted, p.case_insensitive, p.case_preserving),
          (255, True, True, False, True))
    check(p.linkmax, os.pathconf(s.dir, "PC_LINK_MAX"))
    f = s.c.ok("create", s.d, "f").fh
    for name in ("fsstat", "fsinfo", "pathconf"):
        check(s.c.ok(name, f).attr.type, REG, f"{name} of any object")


# ---- names


def test_lookup(s):
    f = s.c.ok("create", s.d, "f", mode=0o600)
    got = s.c.ok("lookup", s.d, "f")
    check((got.fh, got.attr.fileid, got.dir.type), (f.fh, f.attr.fileid, DIR))
    check(s.c.ok("lookup", s.d, ".").fh, s.d)
    check(s.c.ok("lookup", s.d, "..").fh, s.root)
    check(s.c.ok("lookup", s.root, "..").fh, s.root, "the way up ends at the export")
    for name, want in (("none", "NOENT"), ("", "ACCES"), ("a/b", "ACCES"), ("a\0b", "ACCES"),
                       ("n" * 256, "NAMETOOLONG"), ("../..", "ACCES")):
        st, d = s.c.lookup(s.d, name)
        check((st, d.fileid), (want, os.stat(s.dir).st_ino), repr(name))
    check(status(s.c.lookup(f.fh, "x")), "NOTDIR")
    s.c.ok("mkdir", s.d, "closed", mode=0o700)
    closed = s.c.ok("lookup", s.d, "closed").fh
    check(status(s.c.lookup(closed, "x", cred=USER)), "ACCES")


def test_a_directory_moved_out_of_the_export_leads_nowhere(s):
    d = s.c.ok("mkdir", s.d, "moved", mode=0o777).fh
    os.rename(os.path.join(s.dir, "moved"), s.path("moved"))
    try:
        check(status(s.c.lookup(d, "..")), "ACCES")
    finally:
        os.rmdir(s.path("moved"))


def test_symlinks_are_not_followed(s):
    got = s.c.ok("symlink", s.d, "l", "/etc", mode=0o777)
    check((got.attr.type, s.c.ok("readlink", got.fh).data), (LNK, b"/etc"))
    check(status(s.c.lookup(got.fh, "passwd")), "NOTDIR")
    check(status(s.c.read(got.fh, 0, 10)), "INVAL")
    check(status(s.c.readlink(s.d)), "INVAL")
    check(status(s.c.create(got.fh, "x")), "NOTDIR")
    out = s.c.ok("symlink", s.d, "out", s.path("key"))
    check(status(s.c.create(s.d, "out")), "EXIST", "nor by CREATE")
    check(status(s.c.setattr(out.fh, size=0)), "INVAL")
    check(os.stat(s.path("key")).st_size, 65)
    check(s.c.ok("setattr", out.fh, uid=1000, mtime=(5, 0)).after.uid, 1000)
    check(os.stat(s.path("key")).st_uid, 0)
    check(status(s.c.setattr(out.fh, mode=0o777)), "NOTSUPP")
    for target, want in (("", "ACCES"), ("a\0", "ACCES"), ("x" * 4096, "NAMETOOLONG"),
                         ("x" * 4000, "OK")):
        check(status(s.c.symlink(s.d, f"t{len(target)}", target)), want)
    check(status(s.c.symlink(s.d, "l", "y")), "EXIST")


def test_what_is_mounted_below_is_not_reached(s):
    m = os.path.join(s.dir, "m")
    os.mkdir(m)
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", m], check=True)
    try:
        with open(os.path.join(m, "secret"), "w", encoding="ascii"):
            pass
        check(status(s.c.lookup(s.d, "m")), "ACCES")
        e = {e.name: e for e in s.c.ok("readdirplus", s.d).entries}[b"m"]
        check((e.attr, e.fh), (None, None))
        check(s.c.mnt(m)[0], 13)
        check(status(s.c.create(s.d, "m")), "EXIST")
        check(status(s.c.rmdir(s.d, "m")), "ACCES")
    finally:
        subprocess.run(["umount", m], check=True)


def test_create(s):
    got = s.c.ok("create", s.d, "f", GUARDED, mode=0o4640, uid=1000, gid=7000, mtime=(7, 8))
    a = got.attr
    check((a.mode, a.uid, a.gid, a.mtime, a.size), (0o4640, 1000, 7000, (7, 8), 0))
    check(got.wcc.before is not None and got.wcc.after.mtime >= got.wcc.before.mtime, True, "wcc")
    st, w = s.c.create(s.d, "f", GUARDED, mode=0o600)
    check((st, w.before is not None, w.after is not None), ("EXIST", True, True),
          "a failure has whole wcc data")
    s.c.ok("write", got.fh, 0, b"12345")
    check(s.c.ok("create", s.d, "f", UNCHECKED, mode=0o777).attr.size, 5, "what is there stays")
    check(s.c.ok("create", s.d, "f", UNCHECKED, mode=0o777).attr.mode, 0o4640)
    check(s.c.ok("create", s.d, "f", UNCHECKED, size=0).attr.size, 0)
    check(status(s.c.create(s.d, "f", UNCHECKED, size=0, cred=OTHER)), "ACCES")
    s.c.ok("mkdir", s.d, "d")
    check(status(s.c.create(s.d, "d", UNCHECKED)), "EXIST")
    check(status(s.c.create(got.fh, "x")), "NOTDIR")
    for name, want in ((".", "EXIST"), ("..", "EXIST"), ("", "ACCES"), ("a/b", "ACCES"),
                       ("n" * 256, "NAMETOOLONG"), ("n" * 255, "OK")):
        check(status(s.c.create(s.d, name)), want, repr(name))
    check(s.c.ok("create", s.d, "sized", GUARDED, size=100).attr.size, 100)
    check(status(s.c.create(s.d, "theirs", cred=USER, uid=2000)), "PERM")
    check(os.path.exists(os.path.join(s.dir, "theirs")), False,
          "what cannot be as it should is not left")
    mine = s.c.ok("create", s.d, "mine", cred=USER, uid=1000, gid=1000)
    check((mine.attr.uid, mine.attr.gid, mine.attr.mode), (1000, 1000, 0o600))
    check(rejected(s.c.call, "CREATE", opaque(s.d) + opaque("g") + u32(3) + sattr()),
          ("accepted", 4))


def test_exclusive_create_keeps_its_verifier(s):
    for i, verf in enumerate((b"12345678", b"\xff" * 8, bytes(8), b"\x80\0\0\0\x7f\xff\xff\xff")):
        fh = s.c.ok("create", s.d, f"x{i}", EXCLUSIVE, verf).fh
        s.restart()
        s.c.close()
        s.c = V3(ADDR)
        got = s.c.ok("create", s.d, f"x{i}", EXCLUSIVE, verf)
        check((got.fh, got.attr.mode), (fh, 0o600), "the same one again is the same file")
        for k in range(8):
            other = bytearray(verf)
            other[k] ^= 1
            check(status(s.c.create(s.d, f"x{i}", EXCLUSIVE, bytes(other))), "EXIST", f"byte {k}")
    s.c.ok("setattr", fh, atime=SERVER_TIME, mtime=SERVER_TIME)
    check(status(s.c.create(s.d, f"x{i}", EXCLUSIVE, verf)), "EXIST")


def test_mkdir_mknod(s):
    a = s.c.ok("mkdir", s.d, "d", mode=0o1755, mtime=(9, 9)).attr
    check((a.type, a.mode, a.mtime, a.nlink), (DIR, 0o1755, (9, 9), 2))
    check(status(s.c.mkdir(s.d, "d")), "EXIST")
    check(status(s.c.mkdir(s.d, "..")), "EXIST")
    a = s.c.ok("mknod", s.d, "p", FIFO, mode=0o622).attr
    check((a.type, a.mode), (FIFO, 0o622))
    check(s.c.ok("mknod", s.d, "s", SOCK, mode=0o600).attr.type, SOCK)
    a = s.c.ok("mknod", s.d, "c", CHR, (1, 3), mode=0o666).attr
    check((a.type, a.rdev), (CHR, (1, 3)))
    check(s.c.ok("mknod", s.d, "b", BLK, (7, 300)).attr.rdev, (7, 300))
    check(status(s.c.mknod(s.d, "u", CHR, (1, 3), cred=USER)), "PERM")
    check(s.c.ok("mknod", s.d, "up", FIFO, cred=USER).attr.uid, 1000)
    for kind in (REG, DIR, LNK):
        check(status(s.c.mknod(s.d, "bad", kind)), "BADTYPE")
    check(rejected(s.c.mknod, s.d, "bad", 9), ("accepted", 4))
    check(status(s.c.read(s.c.ok("lookup", s.d, "p").fh, 0, 1)), "INVAL", "a fifo is not opened")
    os.chmod(s.dir, 0o2777)
    os.chown(s.dir, 0, 7000)
    check(s.c.ok("mkdir", s.d, "inherits", cred=USER, mode=0o755).attr.gid, 7000)
    check(s.c.ok("create", s.d, "inherits2", cred=USER).attr.gid, 7000)


def test_remove_and_rmdir(s):
    f = s.c.ok("create", s.d, "f").fh
    s.c.ok("mkdir", s.d, "d")
    check(status(s.c.rmdir(s.d, "f")), "NOTDIR")
    check(status(s.c.remove(s.d, "d")), "ISDIR")
    check(status(s.c.remove(s.d, "none")), "NOENT")
    check(status(s.c.rmdir(s.d, "none")), "NOENT")
    check(status(s.c.rmdir(s.d, ".")), "INVAL")
    check(status(s.c.rmdir(s.d, "..")), "EXIST")
    check(status(s.c.remove(f, "x")), "NOTDIR")
    s.c.ok("create", s.c.ok("lookup", s.d, "d").fh, "inside")
    st, w = s.c.rmdir(s.d, "d")
    check((st, w.before is not None, w.after is not None), ("NOTEMPTY", True, True))
    s.c.ok("write", f, 0, b"data")
    s.c.ok("remove", s.d, "f")
    check(status(s.c.getattr(f)), "STALE")
    check(status(s.c.read(f, 0, 1)), "STALE", "also where it was kept open")
    check(status(s.c.write(f, 0, b"x")), "STALE")
    s.c.ok("remove", s.c.ok("lookup", s.d, "d").fh, "inside")
    s.c.ok("rmdir", s.d, "d")
    os.chmod(s.dir, 0o1777)
    s.c.ok("create", s.d, "roots")
    check(status(s.c.remove(s.d, "roots", cred=USER)), "PERM", "sticky")


def test_removed_files_give_their_room_back(s):
    fh = s.c.ok("create", s.d, "big").fh
    s.c.ok("write", fh, 0, bytes(1 << 20))
    pid = s.child.pid

    def held():
        out = []
        for n in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                out.append(os.readlink(f"/proc/{pid}/fd/{n}"))
        return [p for p in out if "big" in p]
    check(len(held()) > 0, True, "it is kept open")
    os.unlink(os.path.join(s.dir, "big"))
    eventually(lambda: not held(), 8, "a file removed on this machine is closed")


def test_rename(s):
    a, b = s.c.ok("mkdir", s.d, "a").fh, s.c.ok("mkdir", s.d, "b").fh
    f = s.c.ok("create", a, "f").fh
    w = s.c.ok("rename", a, "f", b, "g")
    check((w.src.after.fileid, w.dst.after.fileid, w.src.before is not None,
           w.dst.before is not None),
          (os.stat(os.path.join(s.dir, "a")).st_ino, os.stat(os.path.join(s.dir, "b")).st_ino, True,
           True))
    check(s.c.ok("lookup", b, "g").fh, f, "its handle stays")
    over = s.c.ok("create", b, "h").fh
    s.c.ok("write", over, 0, b"x")
    s.c.ok("rename", b, "g", b, "h")
    check(status(s.c.read(over, 0, 1)), "STALE")
    for args, want in (((b, "none", b, "x"), "NOENT"), ((s.d, "a", a, "x"), "INVAL"),
                       ((b, "h", s.d, "a"), "EXIST"), ((s.d, "a", b, "h"), "EXIST"),
                       ((s.d, "a", s.d, "b"), "EXIST"), ((b, ".", b, "x"), "INVAL"),
                       ((b, "h", b, ".."), "INVAL"), ((b, "h", f, "x"), "NOTDIR"),
                       ((f, "h", b, "x"), "NOTDIR"), ((b, "", b, "x"), "ACCES"),
                       ((b, "h", b, "n" * 256), "NAMETOOLONG")):
        check(status(s.c.rename(*args)), want, str(args[1::2]))
    other = s.c.mnt(s.path("all"))[1]
    check(status(s.c.rename(b, "h", other, "h")), "XDEV")
    check(status(s.c.rename(b, "h", b"x" * 20, "h")), "BADHANDLE")


def test_link(s):
    f = s.c.ok("create", s.d, "f").fh
    got = s.c.ok("link", f, s.d, "g")
    check((got.attr.nlink, s.c.ok("lookup", s.d, "g").fh), (2, f))
    st, out = s.c.link(f, s.d, "g")
    check((st, out.wcc.before is not None, out.attr.nlink), ("EXIST", True, 2))
    check(status(s.c.link(s.d, s.d, "h")), "INVAL")
    check(status(s.c.link(f, f, "h")), "NOTDIR")
    check(status(s.c.link(f, s.d, "..")), "EXIST")
    check(status(s.c.link(f, s.c.mnt(s.path("all"))[1], "h")), "XDEV")
    sym = s.c.ok("symlink", s.d, "sym", "f").fh
    check(s.c.ok("link", sym, s.d, "sym2").attr.type, LNK, "a link to a link is not followed")


# ---- directories


def all_entries(call, **how):
    out, cookie, verf, calls = [], 0, bytes(8), 0
    while True:
        st, got = call(cookie=cookie, verf=verf, **how)
        check(st, "OK")
        calls += 1
        check(bool(got.entries) or got.eof, True, "an empty reply that is not the end")
        out += got.entries
        if got.eof:
            return out, calls
        cookie, verf = got.entries[-1].cookie, got.verf


def test_readdir_gives_each_name_once(s):
    names = {f"name-{i:04}".encode() for i in range(700)}
    for n in names:
        with open(os.path.join(s.dir.encode(), n), "wb"):
            pass
    for count in (512, 4096, 1 << 20):
        got, calls = all_entries(lambda **how: s.c.readdir(s.d, **how), count=count)
        check(sorted(e.name for e in got), sorted(names | {b".", b".."}), f"count {count}")
        check(calls > 1, count < 20000)
    inos = {e.name: e.fileid for e in got}
    check(inos[b"name-0007"], os.stat(os.path.join(s.dir, "name-0007")).st_ino)
    plus, _ = all_entries(lambda **how: s.c.readdirplus(s.d, **how), dircount=2000, maxcount=8000)
    check(sorted(e.name for e in plus), sorted(names | {b".", b".."}))
    for e in plus:
        if e.name[:1] != b".":
            check(e.attr.fileid, e.fileid)
    e = plus[-1]
    check(s.c.ok("getattr", e.fh).fileid, e.fileid)
    root = {e.name: e.fileid for e in s.c.ok("readdir", s.root, count=1 << 20).entries}
    check(root[b".."], root[b"."], "what is above an export is not told")


def test_readdir_keeps_to_its_counts(s):
    for i in range(50):
        with open(os.path.join(s.dir, f"entry-{i:02}"), "wb"):
            pass
    for count in (180, 200, 333, 1000):
        data = s.c.conn.rpc(16, opaque(s.d) + u64(0) + bytes(8) + u32(count), s.c.cred, prog=NFS,
                            vers=3)
        check(len(data) - 4 <= count, True, f"{len(data) - 4} of {count} bytes")
        data = s.c.conn.rpc(17, opaque(s.d) + u64(0) + bytes(8) + u32(8192) + u32(count + 300),
                            s.c.cred, prog=NFS, vers=3)
        check(len(data) - 4 <= count + 300, True, f"{len(data) - 4} of {count + 300} bytes")
    few = s.c.ok("readdirplus", s.d, dircount=120, maxcount=30000).entries
    check(1 <= len(few) <= 5, True, f"{len(few)} entries with a dircount of 120")
    check(len(s.c.ok("readdirplus", s.d, dircount=1, maxcount=30000).entries), 1)
    for call in (lambda: s.c.readdir(s.d, count=60), lambda: s.c.readdir(s.d, count=0),
                 lambda: s.c.readdirplus(s.d, maxcount=60)):
        check(status(call()), "TOOSMALL")


def test_readdir_checks_its_cookie(s):
    got = s.c.ok("readdir", s.d)
    check(status(s.c.readdir(s.d, got.entries[0].cookie, b"x" * 8)), "BAD_COOKIE")
    check(status(s.c.readdir(s.d, 2**64 - 1, got.verf)), "BAD_COOKIE")
    check(status(s.c.readdirplus(s.d, got.entries[0].cookie, b"x" * 8)), "BAD_COOKIE")
    end = s.c.ok("readdir", s.d, got.entries[-1].cookie, got.verf)
    check((end.entries, end.eof), ([], True))
    f = s.c.ok("create", s.d, "f").fh
    check(status(s.c.readdir(f)), "NOTDIR")
    check(status(s.c.readdirplus(f)), "NOTDIR")
    d = s.c.ok("mkdir", s.d, "closed", mode=0o711).fh
    check(status(s.c.readdir(d, cred=USER)), "ACCES")
    d = s.c.ok("mkdir", s.d, "names", mode=0o744).fh
    s.c.ok("create", d, "x")
    e = {e.name: e for e in s.c.ok("readdirplus", d, cred=USER).entries}[b"x"]
    check((e.attr, e.fh), (None, None), "names alone where the caller may not look them up")


# ---- data


def test_read_and_write(s):
    f = s.c.ok("create", s.d, "f", mode=0o644).fh
    data = os.urandom(300001)
    w = s.c.ok("write", f, 0, data, FILE_SYNC)
    check((w.count, w.committed, w.wcc.before.size, w.wcc.after.size),
          (300001, FILE_SYNC, 0, 300001))
    got = s.c.ok("read", f, 0, 1 << 20)
    check((got.data, got.eof, got.attr.size), (data, True, 300001))
    got = s.c.ok("read", f, 1, 300000)
    check((got.data, got.eof), (data[1:], True))
    got = s.c.ok("read", f, 7, 4099)
    check((got.data, got.eof), (data[7:4106], False))
    check((s.c.ok("read", f, 300001, 10).eof, s.c.ok("read", f, 2**62, 10).count,
           s.c.ok("read", f, 2**64 - 1, 10).eof), (True, 0, True))
    check((s.c.ok("read", f, 0, 0).count, s.c.ok("read", f, 0, 0).eof), (0, False))
    check(s.c.ok("write", f, 500000, b"end", DATA_SYNC).committed, DATA_SYNC)
    check(s.c.ok("read", f, 300001, 199999).data, bytes(199999), "a hole")
    check(s.c.ok("write", f, 0, b"").count, 0)
    check(s.c.ok("write", f, 0, b"abcdef", count=3).count, 3)
    check(s.c.ok("read", f, 0, 4).data, b"abc" + data[3:4])
    check(rejected(s.c.write, f, 0, b"abc", count=4), ("accepted", 4))
    check(rejected(s.c.write, f, 0, b"abc", 3), ("accepted", 4))
    check(status(s.c.write(f, 2**63 - 1, b"abc")), "FBIG")
    check(status(s.c.write(f, 2**64 - 1, b"abc")), "FBIG")
    for st in (s.c.read(s.d, 0, 1), s.c.write(s.d, 0, b"x"), s.c.commit(s.d)):
        check(status(st), "INVAL", "a directory has no data")


def test_unstable_writes_and_commit(s):
    f = s.c.ok("create", s.d, "f").fh
    w = s.c.ok("write", f, 0, b"x" * 100, UNSTABLE)
    check(w.committed, UNSTABLE)
    check(s.c.ok("commit", f).verf, w.verf)
    check(s.c.ok("write", f, 0, b"y", FILE_SYNC).verf, w.verf)
    s.restart()
    s.c.close()
    s.c = V3(ADDR)
    check(s.c.ok("commit", f).verf != w.verf, True,
          "another life of the server has another verifier")


def test_who_may_read_and_write(s):
    f = s.c.ok("create", s.d, "f", mode=0o640, uid=1000, gid=7000).fh
    s.c.ok("write", f, 0, b"secret")
    check(status(s.c.read(f, 0, 10, cred=OTHER)), "ACCES")
    check(status(s.c.write(f, 0, b"x", cred=OTHER)), "ACCES")
    check(status(s.c.commit(f, cred=OTHER)), "ACCES")
    check(s.c.ok("read", f, 0, 10, cred=auth_sys(3000, 3000, (7000,))).data, b"secret")
    check(status(s.c.write(f, 0, b"x", cred=auth_sys(3000, 3000, (7000,)))), "ACCES")
    s.c.ok("setattr", f, mode=0)
    check(s.c.ok("read", f, 0, 10, cred=USER).data, b"secret", "the owner has it open perhaps")
    s.c.ok("write", f, 0, b"S", cred=USER)
    s.c.ok("setattr", f, cred=USER, size=3)
    check(s.c.ok("access", f, cred=USER).access, 0)
    s.c.ok("setattr", f, mode=0o711)
    check(s.c.ok("read", f, 0, 10, cred=OTHER).data, b"Sec", "what may be executed may be read")
    check(status(s.c.write(f, 0, b"x", cred=OTHER)), "ACCES")
    s.c.ok("setattr", f, mode=0o4755)
    s.c.ok("write", f, 0, b"x", cred=USER)
    check(s.c.ok("getattr", f).mode, 0o755, "writing takes set-id bits")
    check(s.c.ok("read", f, 0, 3, cred=auth_sys(2**32 - 1, 2**32 - 1)).count, 3,
          "an id of all ones is nobody's")


def test_the_server_never_complained(s):
    bad = [line for line in s.log().splitlines() if "Sanitizer" in line or "runtime error" in line
           or "FATAL" in line or "cannot act" in line]
    check(bad, [])


def main():
    global THE
    if os.geteuid() or not tap.built():
        tap.skip("wants root, and the daemons built")
        return
    THE = Server(user="nobody")
    try:
        tap.main(globals(), before, after)
    finally:
        THE.stop()


if __name__ == "__main__":
    main()
