#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""weft cluster: a metadata server and two data servers on three machines, made by the commands
alone. A machine is a folder with a root of its own, in a network of its own, without systemd: the
test runs the commands that weft prints. Prints TAP. As root."""
import contextlib
import json
import os
import re
import resource
import shutil
import select
import socket
import struct
import subprocess
import sys
import threading

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../wirelib"))
import tap  # noqa: E402
from tap import BUILD, SRC  # noqa: E402
from nfs41 import FILE_SYNC, Client, putfh, setxattr, write  # noqa: E402
from harness import check, eventually  # noqa: E402
from steps import data_server, settled  # noqa: E402
import join_token  # noqa: E402
from cluster_machines import (  # noqa: E402
    ENV, HERE, LONG, RAN, UID, machines, owners, sh)
from join4 import record, seal, send, unseal  # noqa: E402

CLAIM = "00112233445566778899aabbccddeeff" * 2
def token(m, *args):
    out, said = m.weft("cluster", "key", *args)
    check(re.fullmatch(r"weft_join_[A-Za-z0-9_-]+\n", out) is not None, True, out)
    check("good once" in said, True, said)
    return out.strip()


def test_init_refuses_what_cannot_work(w):
    m = w[0]
    before = m.tree()
    for why, args in (
            ("192.0.2.9: is no address of this machine .it has: 192.0.2.1", ["192.0.2.9"]),
            ("not a wildcard", ["0.0.0.0"]), ("cannot reach a loopback address", ["127.0.0.1"]),
            ("expected an address of this machine", ["a-name"]),
            ("--clients: .*", ["--clients", "10.0.0.0/99"]),
            ("--root .*: expected the absolute path", ["--root", "/none"]),
            ("absolute path of a folder", ["--store", "mds"]),
            ("no extended attributes there|neither XFS nor ext4", ["--store", "/proc/mds"])):
        m.refused(why, "cluster", "init", *args)
    check(m.tree(), before, "nothing has changed")
    os.makedirs(m.path("srv/full"))
    m.write("srv/full/a-file", "")
    m.refused("/srv/full: is not empty; a new store needs an empty folder", "cluster", "init",
              "--store", "/srv/full")
    os.rename(m.path("srv/full/a-file"), m.path("srv/full/identity"))
    m.refused("is the store of a data server", "cluster", "init", "--store", "/srv/full")
    shutil.rmtree(m.path("srv/full"))


def test_a_dry_run_says_all_and_changes_nothing(w):
    m = w[0]
    before = m.tree()
    said, _ = m.weft("cluster", "init", "192.0.2.1", "--dry-run")
    check(m.tree(), before)
    for line in ("would make  /etc/weft/cluster.key (root:weft, mode 0440)", "| (secret)",
                 '| \tlisten = "192.0.2.1:2049"', '| \tclient "192.0.2.0/24"',
                 "to do       setpriv", "Nothing was changed."):
        check(line in said, True, f"{line!r} in {said}")
    check(re.search(r"[0-9a-f]{64}", said), None, "the key is not shown")
    j = json.loads(m.weft("--json", "cluster", "init", "192.0.2.1", "--dry-run")[0])
    check((j["done"], j["dry_run"], m.tree() == before), (False, True, True), j)
    check([s["text"] for s in j["steps"] if s["what"].startswith("/etc/weft/cluster.key")],
          ["(secret)"])


def test_init_makes_the_metadata_server(w):
    m = w[0]
    said, _ = m.weft("cluster", "init", "192.0.2.1")
    check("ok          address 192.0.2.1:2049 is on this machine (e0, network 192.0.2.0/24)"
          in said, True, said)
    owners(m, {"etc/weft": (0, UID, 0o750), "etc/weft/cluster.key": (0, UID, 0o440),
               "etc/weft/exports": (0, UID, 0o640), "etc/weft/weft.conf": (0, UID, 0o640),
               "var/lib/weft": (UID, UID, 0o700), "var/lib/weft/mds": (UID, UID, 0o700)})
    check(sorted(os.listdir(m.path("etc/weft"))), ["cluster.key", "exports", "weft.conf"])
    before = m.tree()
    again, _ = m.weft("cluster", "init", "192.0.2.1")
    check((m.tree() == before, re.search("^made", again, re.M), "is there    /etc/weft/weft.conf"
           in again), (True, None, True), again)
    m.start(said)
    eventually(lambda: subprocess.run(m.inside("weft", "status"), env=ENV, check=False,
                                      capture_output=True).returncode == 0, LONG, "it serves")


def test_a_second_init_does_not_overwrite(w):
    m = w[0]
    key, conf = m.read("etc/weft/cluster.key"), m.read("etc/weft/weft.conf")
    before = m.tree()
    m.refused(r"/etc/weft/exports: is there already, with another text .*exports.before",
              "cluster", "init", "--clients", "198.51.100.0/24")
    m.refused("weft.conf: is there already", "cluster", "init", "192.0.2.1:2149")
    check({k: v for k, v in m.tree().items() if k.startswith("etc")},
          {k: v for k, v in before.items() if k.startswith("etc")})
    m.weft("cluster", "init", "--clients", "198.51.100.0/24", "--force")
    check("192.0.2.0/24" in m.read("etc/weft/exports.before"), True)
    check("198.51.100.0/24" in m.read("etc/weft/exports"), True)
    check((m.read("etc/weft/cluster.key"), m.read("etc/weft/weft.conf")), (key, conf))
    m.refused("exports.before: is there already: move it away", "cluster", "init", "--force")
    os.rename(m.path("etc/weft/exports.before"), m.path("etc/weft/exports"))


def join(m, t, *args, name="ds1"):
    said, _ = m.weft("cluster", "join", "-", "--force", *args, text=t)
    owners(m, {"etc/weft": (0, UID, 0o750), f"etc/weft/ds-{name}.key": (0, UID, 0o440),
               f"etc/weft/ds-{name}.conf": (0, UID, 0o640),
               f"srv/weft/{name}": (UID, UID, 0o700)})
    check(sorted(n for n in os.listdir(m.path("etc/weft")) if name in n),
          [f"ds-{name}.conf", f"ds-{name}.key"], "and no claim is left")
    return said


def alive(m, *names):
    eventually(lambda: {s["name"] for s in json.loads(m.weft("--json", "ds", "list")[0])["ds"]
                        if s["state"] == "alive"} == set(names), LONG, f"{names} serve")


def test_a_token_that_is_altered_or_expired_is_refused(w):
    m1, m2 = w[:2]
    t = token(m1)
    before = m2.tree()
    for bad in (t[:-1], t[:20] + ("A" if t[20] != "A" else "B") + t[21:], t + "A", t.swapcase()):
        m2.refused("mistyped or cut short|not a join token", "cluster", "join", bad)
    m2.refused("not a join token", "cluster", "join", "weft_abc")
    m2.refused("one word", "cluster", "join", t + " " + t)
    late = token(m1, "late", "--hours", "0.0002")
    eventually(lambda: "expired" in subprocess.run(
        m2.inside("weft", "cluster", "join", late, "--force", "--dry-run"), env=ENV, check=False,
        capture_output=True, text=True).stderr, LONG, "it is good for one second")
    m2.refused("this token has expired; .*weft cluster key late", "cluster", "join", late,
               "--force")
    elsewhere = token(m1, "elsewhere", "--mds", "192.0.2.1:2999")
    m2.refused("no answer from the metadata server at 192.0.2.1:2999", "cluster", "join",
               elsewhere, "--force")
    old = token(m1, "replaced")
    token(m1, "replaced")
    m2.refused("does not know this token", "cluster", "join", old, "--force")
    check(m2.tree(), before)
    m1.weft("cluster", "key", "12", rc=2)
    m1.refused("hours: expected", "cluster", "key", "x", "--hours", "1000")


def test_it_says_what_limits_and_names_the_machine_has(w):
    m = w[0]
    host, hosts = os.uname().nodename, m.read("etc/hosts")

    def look(*limits):
        said, _ = m.weft("cluster", "init", "192.0.2.1", "--dry-run", under=("prlimit", *limits))
        return {(x[0], x[1].strip()) for x in re.findall(r"^(ok|WARN) +(.*)$", said, re.M)}

    def has(found, level, text):
        check([x for x in found if x[0] == level and re.match(text, x[1])] != [], True,
              f"{level} {text} in {sorted(found)}")

    if resource.getrlimit(resource.RLIMIT_MEMLOCK)[1] == resource.RLIM_INFINITY and \
            resource.getrlimit(resource.RLIMIT_NOFILE)[1] >= 65536:
        has(look("--memlock=unlimited", "--nofile=65536"), "ok",
            "limits of locked memory and open files")
    has(look("--memlock=65536"), "WARN", r"locked memory is limited to 64K")
    has(look("--nofile=1024"), "WARN", "open files are limited to 1024 here")
    has(look(), "ok", f"name {host} leads to 192.0.2.1")
    has(look(), "ok", f"address 192.0.2.1 has the name {host}")
    m.write("etc/hosts", "127.0.0.1 localhost\n192.0.2.77 " + host + "\n")
    has(look(), "WARN", f"name {host} does not lead to 192.0.2.1")
    has(look(), "WARN", "address 192.0.2.1 has no name")
    m.write("etc/hosts", hosts)
    for pages, text in ((0, "no huge pages"), (512, "512 huge pages")):
        m.write("tmp/meminfo", f"MemTotal:       8000000 kB\nHugePages_Total:     {pages}\n")
        sh("mount", "--bind", m.path("tmp/meminfo"), m.path("proc/meminfo"))
        try:
            has(look(), "ok", text)
        finally:
            sh("umount", m.path("proc/meminfo"))


# Another time than the kernel's, and another word of whether it is synchronized.
CLOCK = """#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/timex.h>
#include <time.h>
int clock_gettime(clockid_t id, struct timespec *ts)
{
	int (*real)(clockid_t, struct timespec *) = dlsym(RTLD_NEXT, "clock_gettime");
	int rc = real(id, ts);

	if (id == CLOCK_REALTIME)
		ts->tv_sec += atoi(getenv("APART"));
	return rc;
}
int adjtimex(struct timex *tx)
{
	tx->status = atoi(getenv("UNSYNC")) ? STA_UNSYNC : 0;
	return 0;
}
"""


def test_a_clock_that_is_apart_is_refused(w):
    m1, m2, _ = w
    m2.write("tmp/clock.c", CLOCK)
    try:
        made = subprocess.run(["cc", "-shared", "-fPIC", "-o", m2.path("tmp/clock.so"),
                               m2.path("tmp/clock.c"), "-ldl"], capture_output=True, check=False)
    except FileNotFoundError:
        return "there is no compiler"
    check(made.returncode, 0, made.stderr.decode())
    with open(os.path.join(BUILD, "weft"), "rb") as exe:
        if b"__asan_init" in exe.read():
            return "a sanitizer wants to be first"
    t = token(m1, "apart")

    def look(apart, unsync=0):
        return m2.weft("cluster", "join", t, "--dry-run", "--force", under=(
            "env", "LD_PRELOAD=/tmp/clock.so", f"APART={apart}", f"UNSYNC={unsync}"))[0]

    said = look(0)
    check("ok          clock is synchronized\n" in said, True, said)
    check(re.search(r"^ok +clock is within 2 s of the metadata server's", said, re.M) is not None,
          True, said)
    said = look(0, unsync=1)
    check("WARN        clock: nothing synchronizes it" in said, True, said)
    for apart, where in ((3600, "before"), (-3600, "behind")):
        said = look(apart)
        check(re.search(r"^WARN +the clock of this machine is 3[56]\d\d\.\d s " + where +
                        " that of the metadata server; 2 s is the most", said, re.M) is not None,
              True, said)
    for name in ("clock.c", "clock.so"):
        os.unlink(m2.path("tmp", name))
    return None


def test_a_machine_joins_once(w):
    m1, m2, m3 = w
    t = token(m1, "ds1")
    before = m2.tree()
    said, _ = m2.weft("cluster", "join", t, "--dry-run", "--force")
    check((m2.tree() == before, "the token was not used" in said), (True, True), said)
    check("takes the token of ds1" in said and "| (secret)" in said, True, said)
    m2.refused("neither XFS nor ext4", "cluster", "join", t)
    os.makedirs(m2.path("srv/weft/ds1/x"))
    m2.refused("/srv/weft/ds1: is not empty", "cluster", "join", t, "--force")
    os.rmdir(m2.path("srv/weft/ds1/x"))
    m2.refused("is no address of this machine", "cluster", "join", t, "--address", "192.0.2.1")
    m2.start(join(m2, t))
    m3.refused("this token was used before", "cluster", "join", t, "--force")
    check(os.path.exists(m3.path("etc/weft")), False)
    alive(m1, "ds1")
    before = {k: v for k, v in m2.tree().items() if k.startswith("etc")}
    again, _ = m2.weft("cluster", "join", t, "--force")
    check({k: v for k, v in m2.tree().items() if k.startswith("etc")} == before
          and not re.search("^made", again, re.M), True, again)


def test_a_join_that_failed_in_the_middle_goes_on(w):
    m1, _, m3 = w
    t = token(m1, "ds2")
    os.makedirs(m3.path("etc/weft"))
    m3.write("etc/weft/ds-ds2.claim", CLAIM + "\n")
    m3.weft("cluster", "join", "-", "--force", text=t + "\n")
    key = m3.read("etc/weft/ds-ds2.key")
    check(key.startswith("weft data server key\n") and "\nname=ds2\n" in key, True)
    # As if it had died when the token was used, and before the answer was on the disk.
    for name in ("key", "conf"):
        os.unlink(m3.path(f"etc/weft/ds-ds2.{name}"))
    m3.refused("this token was used before", "cluster", "join", t, "--force")
    m3.write("etc/weft/ds-ds2.claim", CLAIM + "\n")
    m3.start(join(m3, t, name="ds2"))
    check(m3.read("etc/weft/ds-ds2.key"), key, "the same server")
    alive(m1, "ds1", "ds2")
    m1.refused("ds2: a data server has that name", "cluster", "key", "ds2")
    m3.write("etc/weft/ds-ds2.key", key.replace("ds2", "ds3"))
    m3.refused("is not the key of ds2", "cluster", "join", t, "--force")
    m3.write("etc/weft/ds-ds2.key", key)


def test_the_key_of_another_cluster_is_not_kept(w):
    """A key file of this name is there, and the token is another cluster's: its weft-mds says that
    the key is none of its data server's."""
    m1, _, m3 = w
    t = token(m1, "lone")
    mine, other = m3.read("etc/weft/ds-ds2.key").replace("name=ds2", "name=lone"), "lone"
    cluster = json.loads(m1.weft("--json", "status")[0])["cluster"]
    before = m3.tree()
    m3.write(f"etc/weft/ds-{other}.key", mine)
    m3.refused(f"^weft: /etc/weft/ds-lone.key: is there, and is the key of another data server "
               f"[(][0-9a-f-]{{36}}[)] than the token's, [0-9a-f-]{{36}} of the cluster {cluster} "
               "at 192.0.2.1:2049: move it away$", "cluster", "join", "-", "--force", text=t)
    os.unlink(m3.path(f"etc/weft/ds-{other}.key"))
    check(m3.tree(), {**before, "etc/weft": m3.tree()["etc/weft"]})
    # The token was not used: it joins now, and again with the key of that.
    m3.weft("cluster", "join", "-", "--force", text=t)
    m3.weft("cluster", "join", "-", "--force", text=t)
    for name in ("key", "conf"):
        os.unlink(m3.path(f"etc/weft/ds-lone.{name}"))
    shutil.rmtree(m3.path("srv/weft/lone"))


@contextlib.contextmanager
def listening():
    """A socket where the test is the metadata server."""
    with socket.create_server((HERE, 2049)) as listener:
        try:
            yield listener
        finally:
            listener.shutdown(socket.SHUT_RDWR)  # ends who waits for a connection


class Recorder:
    """Stands between a machine and the metadata server, and keeps all that goes through."""

    def __init__(self, listener):
        self.listener, self.ways = listener, []
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        with contextlib.suppress(OSError):
            while True:
                near = self.listener.accept()[0]
                far = socket.create_connection(("192.0.2.1", 2049))
                self.ways.append((bytearray(), bytearray()))
                threading.Thread(target=self.carry, args=(near, far, *self.ways[-1]),
                                 daemon=True).start()

    @staticmethod
    def carry(near, far, there, back):
        with near, far, contextlib.suppress(OSError):
            while True:
                for s in select.select([near, far], [], [])[0]:
                    data = s.recv(65536)
                    if not data:
                        return
                    (there if s is near else back).extend(data)
                    (far if s is near else near).sendall(data)

    def read(self, text):
        """What a holder of the token reads: (requests, responses)."""
        asked, said = [], []
        for there, back in self.ways:
            there, back = (list(records(x)) for x in (there, back))
            keys = join_token.channel(*join_token.parse(text), there[0][40:], back[0][24:])
            for k, (call, reply) in enumerate(zip(there[1:], back[1:])):
                asked.append(unseal(keys[0], 1, 1, 0, call[40:])[1])
                said.append(unseal(keys[1], 2, 2, k + 1, reply[24:])[1])
        return asked, said


def records(data):
    while data:
        n = struct.unpack_from(">I", data)[0] & 0x7FFFFFFF
        yield bytes(data[4:4 + n])
        data = data[4 + n:]


def test_a_recorded_join_gives_no_keys_later(w):
    """Who records a join, and gets the token afterwards, reads all but the keys; and asks again
    with the same claim in vain."""
    m1, _, m3 = w
    t = token(m1, "seen", "--mds", HERE)
    with listening() as listener:
        spy = Recorder(listener)
        m3.weft("cluster", "join", "-", "--force", text=t)
    keys = m3.read("etc/weft/ds-seen.key")
    check("\nname=seen\n" in keys, True)
    secrets = [bytes.fromhex(x) for x in re.findall(
        r"^(?:cap|control|tls|path)=([0-9a-f]+)$", keys, re.M)]
    asked, said = spy.read(t)
    check(([struct.unpack_from(">2I", x) for x in asked], [b"seen" in x for x in said]),
          ([(7, join_token.LOOK), (7, join_token.TAKE)], [True, True]), "it reads them")
    m = join_token.Asker(("192.0.2.1", 2049), *join_token.parse(t))
    status, again = m.take(asked[1][8:40])
    check((status, len(join_token.tail(again)[1])), (join_token.OK, 129))
    for plain in (*asked, *said, again):
        check([x.hex() for x in secrets if x in plain], [], "keys in what it reads")
    for answer in (said[1][4:], again):
        check(join_token.opened(answer, *join_token.parse(t), os.urandom(32)), None)
    check((len(secrets), os.path.exists(m3.path("etc/weft/ds-seen.claim"))), (4, False))
    # The same keys open with the secret of a claim: what is tried above is what must not work.
    own, fresh = os.urandom(32), join_token.parse(token(m1, "seen2"))
    m = join_token.Asker(("192.0.2.1", 2049), *fresh)
    check(m.take(bytes(32))[0], join_token.INVAL, "a claim that is no key uses nothing up")
    status, got = m.take(join_token.public(own))
    check((status, len(join_token.opened(got, *fresh, own) or b"")), (0, 113))
    for name in ("key", "conf"):
        os.unlink(m3.path(f"etc/weft/ds-seen.{name}"))
    shutil.rmtree(m3.path("srv/weft/seen"))


def test_a_peer_of_an_older_version_gets_one_clear_error(w):
    m1, m2 = w[:2]
    fresh = join_token.parse(token(m1, "old"))
    m = join_token.Asker(("192.0.2.1", 2049), *fresh)
    check(struct.unpack_from(">I", m.old())[0], join_token.NOTSUPP)
    eventually(lambda: "its weft is older than this weft-mds: upgrade it"
               in m1.read("tmp/log"), LONG, "the log says so")
    t = token(m1, "older", "--mds", HERE)
    with listening() as listener:
        threading.Thread(target=older_mds, args=(listener, t), daemon=True).start()
        m2.refused(f"the weft-mds at {HERE}:2049 is older than this weft, .*: upgrade it",
                   "cluster", "join", "-", "--force", text=t)


def older_mds(listener, text):
    """It knows the token, and TOKEN alone: what it cannot decode ends the connection."""
    for _ in range(2):
        with listener.accept()[0] as s:
            call, nonce = record(s), os.urandom(32)
            answer = call[40:44] + nonce
            send(s, call[:4] + struct.pack(">5I", 1, 0, 0, 0, 0) + answer)
            keys = join_token.channel(*join_token.parse(text), call[40:], answer)
            call = record(s)
            counter, plain = unseal(keys[0], 1, 1, 0, call[40:])
            if struct.unpack_from(">I", plain)[0] == join_token.TOKEN:
                said = struct.pack(">2I2Q", 0, join_token.TOKEN, 0, 0) + bytes(4 + 8 + 4 + 112)
                send(s, call[:4] + struct.pack(">5I", 1, 0, 0, 0, 0)
                     + seal(keys[1], 2, 2, 1, counter, said))
                s.recv(1)


def test_no_process_shows_the_token(w):
    """As an argument, it is erased before anything is asked."""
    m1, m2 = w[:2]
    t = token(m1, "shown", "--mds", HERE)
    with listening() as listener:
        child = subprocess.Popen(m2.inside("weft", "cluster", "join", t, "--force"), env=ENV,
                                 stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        with listener.accept()[0]:
            with open(f"/proc/{child.pid}/cmdline", "rb") as f:
                shown = f.read()
            check((b"cluster\0join" in shown, b"weft_join_" in shown), (True, False), shown)
        child.communicate(timeout=LONG)


def test_a_file_is_written_and_read(w):
    m1 = w[0]
    done = subprocess.run(
        ["nsenter", "-t", str(m1.net.pid), "-n", sys.executable, __file__, "client"],
        capture_output=True, text=True, timeout=LONG, check=False)
    check((done.returncode, done.stdout), (0, "read back\n"), done.stderr)


def client():
    """In the network of the first machine, as root from a port of root's."""
    unit = 1 << 20
    data = os.urandom(4 * unit)
    c = Client(("192.0.2.1", 2049), source=("192.0.2.1", 900))
    d = c.mkdir(c.root(), "scratch")
    c.ok(putfh(d), setxattr("weft.policy", "stripes=2,unit=1M"))
    s, f = c.open(d, "g")
    for at in range(0, len(data), unit):
        c.ok(putfh(f), write(s, at, data[at:at + unit], FILE_SYNC))
    o = settled(c, f, s)
    stripes = [(data_server(c, m), m.fhs[0]) for m in o.mirrors[0]]
    got = b"".join(stripes[i % 2][0].read(stripes[i % 2][1], i * unit, unit).data
                   for i in range(4))
    check((len(stripes), got == data), (2, True), "each stripe is on its data server")
    print("read back")


def test_the_page_has_what_was_run(w):
    """docs/start.md: its other commands, of packages, disks and mounts, are for a guest."""
    with open(os.path.join(SRC, "docs/start.md"), encoding="utf-8") as f:
        blocks = "".join(re.findall(r"^```sh\n(.*?)^```$", f.read(), re.M | re.S))
    w[0].weft("health")
    w[0].weft("ds", "list")
    w[0].weft("policy", "set", "/scratch", "stripes=2")
    lines = re.findall(r"^weft (.*)$", blocks, re.M)
    check((len(lines), [x for x in lines if x not in RAN]), (8, []), sorted(RAN))


SYSTEMCTL = """#!/bin/sh
echo "$*" >>/tmp/systemctl
echo "it says something"
[ -e /tmp/good ]
"""


def test_systemd_starts_the_unit(w):
    """A systemctl that notes what it is asked to do, and fails at first."""
    m = w[2]
    os.makedirs(m.path("run/systemd/system"))
    os.makedirs(m.path("tmp/bin"))
    m.write("tmp/bin/systemctl", SYSTEMCTL)
    os.chmod(m.path("tmp/bin/systemctl"), 0o755)
    env = {"PATH": "/tmp/bin:" + ENV["PATH"]}
    said, _ = m.weft("cluster", "init", "--dry-run", env=env)
    check(("would run   systemctl enable --now weft-mds.service" in said,
           os.path.exists(m.path("tmp/systemctl"))), (True, False), said)
    m.refused("weft-mds.service. failed, and journalctl says why", "cluster", "init", env=env)
    m.write("tmp/good", "")
    j = json.loads(m.weft("--json", "cluster", "init", env=env)[0])
    check((j["done"], j["steps"][-1]),
          (True, {"state": "run", "what": "systemctl enable --now weft-mds.service"}), j)
    said, _ = m.weft("cluster", "init", "--force", "192.0.2.3:2149", "--store", "/data/mds",
                     env=env)
    check(m.read("tmp/systemctl").splitlines()[-4:],
          ["enable --now weft-mds.service", "daemon-reload", "enable --now weft-mds.service",
           "restart weft-mds.service"], said)


def test_an_image_is_made_below_a_root(w):
    m1 = w[0]
    os.makedirs(m1.path("img/etc"))
    m1.write("img/etc/passwd", "weft:x:991:992::/:/bin/false\n")
    m1.refused("no group weft below /img", "cluster", "init", "--root", "/img")
    m1.write("img/etc/group", "weft:x:992:\n")
    said, _ = m1.weft("cluster", "init", "--root", "/img", "--store", "/data/mds")
    for path, want in {"img/data/mds": (991, 992, 0o700),
                       "img/etc/weft/cluster.key": (0, 992, 0o440),
                       "img/etc/systemd/system/weft-mds.service.d/store.conf": (0, 0, 0o644)
                       }.items():
        owners(m1, {path: want})
    check("ReadWritePaths=/data/mds\n"
          in m1.read("img/etc/systemd/system/weft-mds.service.d/store.conf"), True)
    check("systemctl --root=/img enable weft-mds.service" in said, True, said)
    check("store = /data/mds\n" in m1.read("img/etc/weft/weft.conf"), True)
    said, _ = m1.weft("cluster", "init", "198.51.100.1", "--root", "/img", "--dry-run", "--force")
    check("WARN        address 198.51.100.1:2049 is not of this machine" in said, True, said)


if __name__ == "__main__":
    if sys.argv[1:] == ["client"]:
        client()
    elif os.geteuid() or shutil.which("nsenter") is None:
        tap.skip("only root can make machines")
    else:
        with machines() as them:
            tap.run(tap.named(globals()), tap.giving(them))
