#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Folders of a data server, exported by path: the rules of exports, handles, retransmissions,
restarts. Prints TAP. As root."""
import contextlib
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../wirelib"))
from nfs41 import NOBODY, auth_sys, opaque, u32  # noqa: E402
import harness  # noqa: E402
import steps  # noqa: E402
from harness import check, eventually  # noqa: E402
from nfs3 import (A_READ, CHR, DATA_SYNC, FIFO, FILE_SYNC, UNSTABLE, V3, ADDR,  # noqa: E402
                  EXPORTS, PORT, UP, Server, exchange, raw_call, receive, rejected, sattr)
import tap  # noqa: E402
from tap import BUILD  # noqa: E402

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


# ---- exports' rules


def test_a_read_only_export_refuses_every_change(s):
    s.put("ro/f", "text")
    ro = s.c.mnt(s.path("ro"))[1]
    f = s.c.ok("lookup", ro, "f").fh
    check(s.c.ok("read", f, 0, 10).data, b"text")
    for st in (s.c.setattr(f, mode=0o600), s.c.write(f, 0, b"x"), s.c.create(ro, "g"),
               s.c.mkdir(ro, "g"), s.c.symlink(ro, "g", "x"), s.c.mknod(ro, "g", FIFO),
               s.c.remove(ro, "f"), s.c.rmdir(ro, "g"), s.c.rename(ro, "f", ro, "g"),
               s.c.link(f, ro, "g"), s.c.commit(f)):
        check(status(st), "ROFS")
    check(s.c.ok("access", f).access, A_READ)
    check(os.listdir(s.path("ro")), ["f"])


def test_squash(s):
    sq, al = s.c.mnt(s.path("squash"))[1], s.c.mnt(s.path("all"))[1]
    a = s.c.ok("create", sq, "root").attr
    check((a.uid, a.gid), (5555, 6666))
    a = s.c.ok("create", sq, "user", cred=auth_sys(1000, 0)).attr
    check((a.uid, a.gid), (1000, 6666), "group 0 is squashed as well")
    a = s.c.ok("create", sq, "nobody", cred=NOBODY).attr
    check((a.uid, a.gid), (5555, 6666))
    a = s.c.ok("create", al, "user", cred=USER).attr
    check((a.uid, a.gid), (65534, 65534))
    s.put("squash/roots", "x")
    os.chmod(s.path("squash/roots"), 0o600)
    f = s.c.ok("lookup", sq, "roots").fh
    check(status(s.c.read(f, 0, 1)), "ACCES")
    os.chown(s.path("squash/roots"), 0, 0)
    os.chmod(s.path("squash/roots"), 0o640)
    check(status(s.c.read(f, 0, 1, cred=auth_sys(1000, 1000, (0,)))), "ACCES",
          "nor is group 0 one of many")
    check(status(s.c.mknod(sq, "dev", CHR, (1, 3))), "PERM")


def test_flavours_ports_and_addresses(s):
    check(rejected(s.c.getattr, s.root, cred=NOBODY), ("denied", 1, 5))
    check(s.c.mnt(s.path("exp"), cred=NOBODY)[0], 13)
    check(s.c.mnt(s.path("low"))[0], 13, "from a port above 1023")
    low = V3(ADDR, source=("127.0.0.1", 700))
    st, fh, _ = low.mnt(s.path("low"))
    check((st, status(low.getattr(fh))), (0, "OK"))
    check(rejected(s.c.getattr, fh), ("denied", 1, 5))
    low.close()


def test_reload(s):
    s.put("exports", EXPORTS.format(top=s.top).replace(f'"{s.top}/exp" {{ client "*"',
                                                       f'"{s.top}/exp" {{ client "192.0.2.1"'))
    s.child.send_signal(signal.SIGHUP)
    try:
        eventually(lambda: status(s.c.getattr(s.root)) == "STALE", 5, "the new table")
        check(s.c.mnt(s.path("exp"))[0], 13)
        s.put("exports", "nonsense")
        s.child.send_signal(signal.SIGHUP)
        eventually(lambda: "exports not reloaded" in s.log(), 5, "a complaint")
    finally:
        s.put("exports", EXPORTS.format(top=s.top))
        s.child.send_signal(signal.SIGHUP)
    eventually(lambda: status(s.c.getattr(s.root)) == "OK", 5, "the old handle works again")


def test_hosts_by_name(s):
    one = ('export "{top}/exp" {{ client "%s" {{ access = rw squash = none privileged_port = no '
           '}} }}\n')
    try:
        for name, want in (("localhost", "OK"), ("nobody.knows.this.host", "JUKEBOX"),
                           ("localhost nobody.knows.this.host", "OK"), ("192.0.2.1", "STALE")):
            s.put("exports", (one % name).format(top=s.top))
            s.child.send_signal(signal.SIGHUP)
            eventually(lambda: status(s.c.getattr(s.root)) == want, 15, f"{want} for {name}")
            check(s.c.mnt(s.path("exp"))[0], {"OK": 0, "JUKEBOX": 10006, "STALE": 13}[want])
    finally:
        s.put("exports", EXPORTS.format(top=s.top))
        s.child.send_signal(signal.SIGHUP)
    eventually(lambda: status(s.c.getattr(s.root)) == "OK", 5, "the old table")


# ---- handles


def test_handles_survive_a_restart(s):
    f = s.c.ok("create", s.d, "f").fh
    s.c.ok("write", f, 0, b"data")
    fsid = s.c.ok("getattr", f).fsid
    for sig in (signal.SIGKILL, signal.SIGTERM):
        s.restart(sig)
        s.c.close()
        s.c = V3(ADDR)
        check((s.c.ok("read", f, 0, 4).data, s.c.ok("getattr", f).fsid), (b"data", fsid))


def test_handles_cannot_be_made_or_changed(s):
    f = s.c.ok("create", s.d, "f").fh
    for i in range(len(f)):
        for bit in (1, 128):
            bad = bytearray(f)
            bad[i] ^= bit
            check(status(s.c.getattr(bytes(bad))), "BADHANDLE", f"byte {i}")
    for bad in (b"", f[:-1], f + b"\0", bytes(64), b"\x21" + bytes(63), b"\x21",
                f[:8] + bytes(len(f) - 8)):
        check(status(s.c.getattr(bad)), "BADHANDLE", bad.hex())
    check(rejected(s.c.getattr, f + bytes(65 - len(f))), ("accepted", 4))


def test_no_handle_of_one_kind_passes_for_the_other(s):
    """What looks like a capability: 32 bytes, version 1 in the upper half of the first."""
    cap = bytes([0x13]) + os.urandom(31)
    check(status(s.c.getattr(cap)), "BADHANDLE")
    check(status(s.c.read(cap, 0, 10)), "BADHANDLE")
    check(status(s.c.rename(s.d, "f", cap, "x")), "BADHANDLE")
    check(status(s.c.lookup(cap, "x")), "NOTSUPP", "names are not for capabilities")
    f = s.c.ok("create", s.d, "f").fh
    check(status(s.c.getattr(bytes([0x13]) + f[1:])), "BADHANDLE")


def test_capabilities_beside_exports(s):
    """A cluster whose data server exports folders as well: a real capability, and a real handle."""
    top = s.path("exp", "cluster")
    os.makedirs(top, exist_ok=True)
    s.put("exports.cluster",
          f'export "{top}" {{ client "*" {{ access = rw squash = none privileged_port = no }} }}\n')
    cluster = harness.Cluster(1, ["ds.exports=" + s.path("exports.cluster")])
    try:
        m = harness.Client(harness.ADDR)
        sid, f, _, server, cap = steps.one_server(m, m.mkdir(m.root(), "d"))
        check(server.write(cap, 0, b"object").status, 0)
        c = V3(server.conn.sock.getpeername())
        st, root, _ = c.mnt(top)
        check(st, 0)
        fh = c.ok("create", root, "f").fh
        c.ok("write", fh, 0, b"file")
        check((c.ok("read", cap, 0, 10).data, c.ok("read", fh, 0, 10).data), (b"object", b"file"))
        for call, want in ((lambda: c.rename(root, "f", cap, "x"), "BADHANDLE"),
                           (lambda: c.rename(cap, "f", root, "x"), "NOTSUPP"),
                           (lambda: c.link(fh, cap, "x"), "BADHANDLE"),
                           (lambda: c.link(cap, root, "x"), "NOTSUPP"),
                           (lambda: c.lookup(cap, ".."), "NOTSUPP"),
                           (lambda: c.create(cap, "x"), "NOTSUPP"),
                           (lambda: c.readdir(cap), "NOTSUPP"),
                           (lambda: c.setattr(cap, mode=0o777), "ACCES")):
            check(status(call()), want)
        check(c.mnt(os.path.join(cluster.dir, "ds1"))[0], 13)
        check(os.listdir(top), ["f"])
        c.close()
        m.close()
    finally:
        cluster.down()


def test_another_key_makes_other_handles(s):
    s.kill()
    s.put("key", "5b" * 32 + "\n")
    s.start()
    try:
        c = V3(ADDR)
        check(status(c.getattr(s.root)), "BADHANDLE")
        c.close()
    finally:
        s.kill()
        s.put("key", "5a" * 32 + "\n")
        s.start()
        s.c.close()
        s.c = V3(ADDR)
    check(status(s.c.getattr(s.root)), "OK")


# ---- retransmissions


def test_what_was_done_is_not_done_again(s):
    s.c.ok("create", s.d, "f")
    record = raw_call(77, 12, opaque(s.d) + opaque("f"))
    replays = s.metric("weft_ds_export_replays_total")
    with socket.create_connection(ADDR) as a:
        one = exchange(a, record)
    s.c.ok("create", s.d, "f")
    with socket.create_connection(ADDR) as b:
        two = exchange(b, record)
    check(two, one, "a retransmission over another connection has the same reply")
    check(os.path.exists(os.path.join(s.dir, "f")), True, "and removes nothing")
    check(s.metric("weft_ds_export_replays_total") - replays, 1)
    with socket.create_connection(ADDR) as b:
        check(exchange(b, raw_call(77, 12, opaque(s.d) + opaque("f"), auth_sys(0, 1)))[24:28],
              u32(0), "another credential is another call")
        s.c.ok("create", s.d, "f")
        check(exchange(b, raw_call(77, 12, opaque(s.d) + opaque("g")))[24:28], u32(2),
              "other arguments are")
        check(os.path.exists(os.path.join(s.dir, "f")), True)
        check(exchange(b, raw_call(78, 12, opaque(s.d) + opaque("f")))[24:28], u32(0),
              "and another number is")


def test_two_at_once_are_done_once(s):
    """MKDIR sent many times over many connections: one makes the directory, and all get
    that answer."""
    for i in range(20):
        record = raw_call(1000 + i, 9, opaque(s.d) + opaque(f"d{i}") + sattr(mode=0o755))
        socks = [socket.create_connection(ADDR) for _ in range(4)]
        for k in socks:
            k.sendall(struct.pack(">I", 0x80000000 | len(record)) + record)
        got = [receive(k) for k in socks]
        check({g[24:28] for g in got}, {u32(0)}, "status")
        check(len(set(got)), 1, "replies")
        for k in socks:
            k.close()


def test_kept_replies_have_a_bound(s):
    s.keys["export_replies"] = "64K"
    s.restart()
    s.c.close()
    s.c = V3(ADDR)
    try:
        s.c.ok("create", s.d, "f")
        record = raw_call(9000, 12, opaque(s.d) + opaque("f"))
        with socket.create_connection(ADDR) as a:
            check(exchange(a, record)[24:28], u32(0))
            for _ in range(400):
                s.c.ok("setattr", s.d, mode=0o777)
            check(exchange(a, record)[24:28], u32(2), "what is forgotten is done again")
    finally:
        del s.keys["export_replies"]
        s.restart()


def test_reading_pushes_nothing_out(s):
    s.c.ok("create", s.d, "f")
    record = raw_call(5000, 12, opaque(s.d) + opaque("f"))
    with socket.create_connection(ADDR) as a:
        one = exchange(a, record)
        for _ in range(300):
            s.c.ok("getattr", s.d)
        check(exchange(a, record), one)


# ---- durability


SHIM = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <unistd.h>
/* Syncs fail while the file is there. */
static int sync_of(const char *name, int fd)
{
	int (*real)(int) = dlsym(RTLD_NEXT, name);

	if (access(FLAG, F_OK) == 0)
		return errno = EIO, -1;
	return real(fd);
}
int fsync(int fd) { return sync_of("fsync", fd); }
int fdatasync(int fd) { return sync_of("fdatasync", fd); }
"""


def test_a_sync_that_fails_is_told(s):
    f = s.c.ok("create", s.d, "f").fh
    flag = s.path("run", "fail")
    s.put("shim.c", SHIM)
    cc = subprocess.run(["cc", "-shared", "-fPIC", f'-DFLAG="{flag}"', "-o", s.path("shim.so"),
                         s.path("shim.c"), "-ldl"], capture_output=True, check=False)
    if cc.returncode:
        return "there is no compiler"
    with open(os.path.join(BUILD, "weft-ds"), "rb") as exe:
        if b"__asan_init" in exe.read():
            return "a sanitizer wants to be first"
    s.kill()
    os.environ["LD_PRELOAD"] = s.path("shim.so")
    try:
        s.start()
    finally:
        del os.environ["LD_PRELOAD"]
    try:
        s.c.close()
        s.c = V3(ADDR)
        w = s.c.ok("write", f, 0, b"x", UNSTABLE)
        with open(flag, "w", encoding="ascii"):
            pass
        check(status(s.c.commit(f)), "IO")
        check(status(s.c.write(f, 0, b"y", FILE_SYNC)), "IO")
        check(status(s.c.write(f, 0, b"y", DATA_SYNC)), "IO")
        for st in (s.c.create(s.d, "g"), s.c.mkdir(s.d, "d"), s.c.rename(s.d, "g", s.d, "h"),
                   s.c.link(f, s.d, "l"), s.c.remove(s.d, "h"), s.c.setattr(f, mode=0o600)):
            check(status(st), "IO", "nothing is promised that is not durable")
        os.unlink(flag)
        check(s.c.ok("commit", f).verf != w.verf, True,
              "what was not committed before is sent again")
    finally:
        s.restart()


# ---- consistency


def test_wcc_data_has_nothing_of_others_between(s):
    """Many clients make files in one directory. The state before in one client's reply is the state
    after in another's."""
    seen, lock = [], threading.Lock()

    def work(n):
        c = V3(ADDR)
        for i in range(30):
            w = c.ok("create", s.d, f"f{n}-{i}").wcc
            with lock:
                seen.append(((w.before.mtime, w.before.ctime), (w.after.mtime, w.after.ctime)))
        c.close()
    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    check(len(seen), 120)
    afters = {a for _, a in seen}
    first = min(b for b, _ in seen)
    for b, _ in seen:
        check(b in afters or b == first, True, "before is some call's after")


# ---- the table


def test_tables_that_make_no_sense(s):
    one = 'export "{top}/%s" {{ client "*" {{ %s }} }}\n'
    os.makedirs(s.path("exp/in"), exist_ok=True)
    try:
        for text, words in ((one % ("exp", "") + one % ("exp/in", ""), "overlaps export"),
                            (one % ("store", ""), "overlaps ds.store"),
                            (one % ("store/objects", ""), "overlaps ds.store"),
                            ('export "{top}" {{ client "*" {{ }} }}\n', "overlaps ds.store"),
                            (one % ("exp", "sec = krb5"), "sys and none"),
                            (one % ("exp", "layouts = no"), "layouts"),
                            ('export "{top}/exp" {{ create = true client "*" {{ }} }}\n', "create"),
                            (one % ("exp", "access = all"), "access"), ("", "no export")):
            said = s.refused(text)
            check(words in said, True, said)
        said = s.refused(one % ("exp", ""), store=s.path("run/store2") + "," + s.path("exp/in"))
        check("overlaps ds.store" in said and "exp/in" in said, True, said)
    finally:
        s.put("exports", EXPORTS.format(top=s.top))
        s.start()


def test_privileges_are_wanted_and_named(s):
    s.kill()
    args = [a for w in s.args()[1:] if w not in ("-o", "ds.user=nobody") for a in ("-o", w)]
    args += ["-o", "ds.store=" + s.path("run/store"), "-o", "ds.listen=127.0.0.1:9020"]
    os.chown(s.path("key"), 65534, -1)
    try:
        done = subprocess.run([os.path.join(BUILD, "weft-ds"), *args], capture_output=True,
                              text=True, timeout=60, check=False, user=65534, group=65534)
        check((done.returncode, "CAP_SETUID" in done.stderr and "ds.exports" in done.stderr),
              (1, True), done.stderr)
    finally:
        os.chown(s.path("key"), 0, -1)
        s.start()


def test_threads_hold_what_they_need_and_no_other_does(s):
    with open("/proc/sys/kernel/cap_last_cap", encoding="ascii") as f:
        check(int(f.read()) < 64, True)
    for task in os.listdir(f"/proc/{s.child.pid}/task"):
        with open(f"/proc/{s.child.pid}/task/{task}/status", encoding="ascii") as f:
            t = dict(line.rstrip("\n").split(":\t", 1) for line in f if ":\t" in line)
        held = int(t["CapPrm"], 16)
        if t["Name"] == "weft-path":
            # chown, dac_override, dac_read_search, fowner, fsetid, setgid, setuid, mknod
            check(held & ~0x80000df, 0, "of a thread that serves exports")
        else:
            check(held, 0, t["Name"])
        check((t["CapBnd"], t["NoNewPrivs"]), ("0" * 16, "1"))


def registered():
    done = subprocess.run(["rpcinfo", "-p", "127.0.0.1"], capture_output=True, text=True,
                          timeout=60, check=False)
    return sorted(tuple(w[i] for i in (0, 1, 2, 3))
                  for w in map(str.split, done.stdout.splitlines()) if w[0] in ("100003", "100005"))


def test_rpcbind_is_told(s):
    """In a mount namespace of its own, because rpcbind's socket is a file."""
    if not shutil.which("rpcbind") or not shutil.which("rpcinfo"):
        return "there is no rpcbind"
    s.kill()
    pidfile = s.path("run", "rpcbind.pid")
    script = (f"mount -t tmpfs tmpfs /run && {{ rpcbind -f & echo $! >{pidfile}; }} && while [ ! "
              "-S /run/rpcbind.sock ]; do sleep 0.05; done; exec \"$@\"")
    try:
        with open(s.path("log"), "a", encoding="utf-8") as f:
            s.child = subprocess.Popen(["unshare", "-m", "sh", "-c", script, "sh", *s.args(), "-o",
                                        "ds.rpcbind=true"], stdin=subprocess.DEVNULL,
                                       stdout=f, stderr=f,
                                       env={**os.environ, "ASAN_OPTIONS": "detect_leaks=0"})
        want = [("100003", "3", "tcp", str(PORT)), ("100005", "3", "tcp", str(PORT))]
        eventually(lambda: registered() == want, 15, "the registration")
        s.kill(signal.SIGTERM)
        check(registered(), [], "what is left at the end")
    finally:
        with contextlib.suppress(OSError, ValueError), open(pidfile, encoding="ascii") as f:
            os.kill(int(f.read()), signal.SIGKILL)
        s.ups = s.log().count(UP)
        s.start()


def test_an_export_that_is_not_there_is_not_served(s):
    s.kill()
    s.put("exports", EXPORTS.format(top=s.top) + f'export "{s.top}/later" {{ client "*" {{ access '
          f'= rw squash = none privileged_port = no }} }}\n')
    s.start()
    c = V3(ADDR)
    try:
        check(c.mnt(s.path("later"))[0], 13)
        os.mkdir(s.path("later"))
        s.child.send_signal(signal.SIGHUP)
        eventually(lambda: c.mnt(s.path("later"))[0] == 0, 5, "a reload finds it")
    finally:
        c.close()
        s.put("exports", EXPORTS.format(top=s.top))


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
