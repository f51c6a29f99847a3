#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Two metadata servers of one cluster, each with a file system of its own, and data servers that
serve both: what one of them does, or does not do any more, never touches the other's. Prints TAP.
"""
import contextlib
import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time

for folder in ("../wirelib", "../compat"):
    sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), folder))
import join_token  # noqa: E402
import join4  # noqa: E402
from harness import *  # noqa: E402,F403
from daemons import Http, ask, connect, environment, get_metrics, program  # noqa: E402
from join_token import HELLO_FS, PROTOCOL, blake  # noqa: E402
from nfs41 import Client, err  # noqa: E402
from pageblocks import changed, only  # noqa: E402
from siphash import siphash  # noqa: E402
from steps import one_server  # noqa: E402

ACCES, BADHANDLE = 13, 10001
LEASE_MS = 3000


class Two:
    """Metadata servers "a" (file system 1) and "b" (file system 2), and one data server."""

    def __init__(self):
        self.top = tempfile.mkdtemp(prefix="weft-two-test.")
        self.run, self.clients = {}, []
        self.port = {"a": 12101, "b": 12102, "ds": 12103}
        self.admin = {n: f"unix:{self.top}/{n}.sock" for n in self.port}
        with open(f"{self.top}/key", "w", opener=lambda p, f: os.open(p, f, 0o600),
                  encoding="ascii") as f:
            f.write("5" * 64 + "\n")
        with open(f"{self.top}/exports", "w", encoding="ascii") as f:
            f.write('export "/" {\n  client "*" { access = rw  squash = none  '
                    'privileged_port = false  sec = {sys, none} }\n}\n')
        self.cluster = None

    def mds_keys(self, name, fs=0):
        both = ",".join(f"127.0.0.{n}:{self.port[name]}" for n in (1, 2))
        own = [f"mds.store={self.top}/{name}", f"mds.listen={both}",
               f"mds.cluster_key={self.top}/key", f"mds.admin={self.admin[name]}",
               f"mds.exports={self.top}/exports", "mds.lease=60s", "mds.grace=2s"]
        if fs:
            own += [f"mds.fs={fs}", f"mds.cluster={self.cluster}"]
        return [x for s in own for x in ("-o", s)]

    def mds(self, name, fs=0):
        self.start(name, "weft-mds", self.mds_keys(name, fs))
        if not self.cluster:
            self.cluster = ask(self.admin["a"], "GET", "/v1/status")["cluster"]

    def ds(self, *mdss, cluster_key=True):
        self.start("ds", "weft-ds", self.ds_keys(*(f"127.0.0.1:{self.port[m]}" for m in mdss),
                                                 cluster_key=cluster_key))

    def ds_again(self, *mdss):
        """The data server, which has no cluster key any more."""
        self.kill("ds")
        self.ds(*mdss, cluster_key=False)
        self.wait_joined(*mdss)

    def weft(self, name, *args):
        done = subprocess.run([program("weft"), "--admin", self.admin[name], *args],
                              capture_output=True, text=True, timeout=120, check=False)
        check(done.returncode, 0, f"{args}: {done.stdout + done.stderr}")
        return done.stdout

    def rotate(self, name):
        """A new cluster key of this file system, and the data server has its keys."""
        self.weft(name, "key", "rotate", "--yes")
        eventually(lambda: not json.loads(self.weft(name, "key", "status", "--json"))["servers"],
                   60, f"the data server has the new keys of {name}")

    def has_own(self, *names):
        eventually(lambda: all(not json.loads(self.weft(n, "key", "status", "--json"))["servers"]
                               for n in names), 60, "the data server has keys of its own")

    def cap_key(self, name):
        """The key of capabilities that this metadata server has for the data server."""
        path = f"{self.top}/{name}.{len(os.listdir(self.top))}.ds.key"
        self.weft(name, "ds", "key", "ds", "--out", path)
        with open(path, encoding="ascii") as f:
            got = dict(line.split("=", 1) for line in f.read().splitlines()[1:])
        return int(got["number"]), bytes.fromhex(got["cap"])

    def ds_keys(self, *addresses, cluster_key=True):
        own = [f"ds.cluster_key={self.top}/key"] if cluster_key else []
        own += [
            f"ds.store={self.top}/ds", f"ds.listen=127.0.0.1:{self.port['ds']}",
            f"ds.admin={self.admin['ds']}", "ds.name=ds",
            "ds.mds=" + ",".join(addresses),
            f"ds.lease={LEASE_MS}ms", "ds.heartbeat=500ms"]
        return [x for s in own for x in ("-o", s)]

    def start(self, name, prog, own):
        with open(f"{self.top}/{name}.log", "ab") as log:
            # pylint: disable=consider-using-with
            self.run[name] = subprocess.Popen(
                [program(prog), *own], stderr=log, stdout=log,
                env=environment(prog))
        eventually(lambda: self.answers(name), 60, f"{name} answers")

    def answers(self, name):
        check(self.run[name].poll(), None, f"{name} runs: {self.log(name)[-600:]}")
        try:
            connect(self.admin[name]).close()
            return True
        except OSError:
            return False

    def kill(self, name, how=signal.SIGKILL):
        self.run[name].send_signal(how)
        if how == signal.SIGKILL:
            self.run.pop(name).wait()

    def log(self, name):
        with open(f"{self.top}/{name}.log", encoding="utf-8") as f:
            return f.read()

    def joined(self):
        """What the data server says of each metadata server: its port to what it has there."""
        return {m["address"].rsplit(":", 1)[1]: m for m in self.states()}

    def states(self):
        conn = Http(self.admin["ds"])
        conn.request("GET", "/v1/health")
        got = json.loads(conn.getresponse().read())  # 503 before it listens
        conn.close()
        return got["mds"]

    def wait_joined(self, *names):
        eventually(lambda: all(self.joined().get(str(self.port[n]), {}).get("joined")
                               for n in names), 60,
                   "the data server joins")

    def client(self, name):
        c = Client(("127.0.0.1", self.port[name]))
        self.clients.append(c)
        return c

    def file(self, name, what, data):
        """(client, stateid, handle, layout, connection to the data server, handle there)"""
        c = self.client(name)
        s, f, o, ds, fh = one_server(c, c.mkdir(c.root(), what))
        check(ds.write(fh, 0, data).status, 0, "WRITE")
        return c, s, f, o, ds, fh

    def down(self):
        for c in self.clients:
            c.drop()
        for name in list(self.run):
            self.kill(name, signal.SIGCONT)
            self.kill(name, signal.SIGTERM)
        for name, p in self.run.items():
            p.wait(60)
        bad = [line for n in self.port if os.path.exists(f"{self.top}/{n}.log")
               for line in self.log(n).splitlines()
               if "Sanitizer" in line or "ssert" in line or "runtime error" in line]
        shutil.rmtree(self.top)
        if bad:
            raise Failed("a daemon complains: " + "; ".join(bad[:5]))


@contextlib.contextmanager
def around(name):
    if name.startswith("told"):
        with around_told(name) as args:
            yield args
        return
    w = Two()
    try:
        w.mds("a")
        if "page" in name:
            yield (w,)
            return
        w.mds("b", 2)
        w.ds("a", "b")
        w.wait_joined("a", "b")
        yield (w,)
    finally:
        w.down()


def test_the_blocks_of_the_page_set_one_up(w):
    of_mds, of_first, of_ds = only("instances.md", "mds {\n\tstore", "mds {\n\tinstances",
                                   "ds {\n\tmds")
    key = f"{w.top}/key"
    texts = {"first": changed(of_first, ("192.0.2.2", f"127.0.0.1:{w.port['b']}")),
             "b": changed(of_mds, ("/var/lib/weft/mds", f"{w.top}/b"),
                          ("/etc/weft/cluster.key", key),
                          ("0123456789abcdef0123456789abcdef", w.cluster.replace("-", ""))),
             "ds": changed(of_ds, ("192.0.2.1", f"127.0.0.1:{w.port['a']}"),
                           ("192.0.2.2", f"127.0.0.1:{w.port['b']}"))}
    for name, text in texts.items():
        with open(f"{w.top}/{name}.conf", "w", encoding="utf-8") as f:
            f.write(text)
    # What the blocks leave to their defaults, and cannot be that beside other tests.
    mine = {"b": [x for x in w.mds_keys("b") if not x.startswith(("mds.store=", "mds.cluster_key="))
                  and x != "-o"],
            "ds": [x for x in w.ds_keys() if not x.startswith("ds.mds=") and x != "-o"]}
    def start(name, prog):
        w.start(name, prog, ["-c", f"{w.top}/{name}.conf",
                             *[x for s in mine[name] for x in ("-o", s)]])
    start("b", "weft-mds")
    # The first one tells of it,
    w.kill("a")
    w.start("a", "weft-mds", ["-c", f"{w.top}/first.conf", *w.mds_keys("a")])
    w.ds("a")
    w.wait_joined("a", "b")
    # or the administrator of the data server.
    w.kill("ds")
    w.kill("a")
    w.mds("a")
    start("ds", "weft-ds")
    w.wait_joined("a", "b")
    said = w.joined()
    check((said["12101"]["fs"], said["12102"]["fs"]), (1, 2))
    for name in "ab":
        f = w.file(name, "d", name.encode())
        check(f[4].read(f[5], 0, 1).data, name.encode())


def test_each_serves_its_own_files(w):
    said = w.joined()
    check((said["12101"]["fs"], said["12102"]["fs"]), (1, 2))
    a, b = w.file("a", "d", b"of a" * 1000), w.file("b", "d", b"of b" * 1000)
    check(a[4].read(a[5], 0, 4000).data, b"of a" * 1000)
    check(b[4].read(b[5], 0, 4000).data, b"of b" * 1000)
    check(a[0].attrs(a[2], "fileid").fileid >> 48, 0)
    check(b[0].attrs(b[2], "fileid").fileid >> 48, 2)
    got = {n: ask(w.admin[n], "GET", "/v1/status") for n in "ab"}
    check(got["a"]["cluster"], got["b"]["cluster"])
    check([got[n]["fs"] for n in "ab"], [1, 2])


def test_one_client_takes_them_for_two_servers(w):
    """RFC 8881 section 2.10.5: the same major id would be one server."""
    a, b = w.client("a"), w.client("b")
    said = [x.conn.compound(exchange_id(b"an owner", b"verifier")).results[-1] for x in (a, b)]
    check(said[0].major_id != said[1].major_id, True, "so_major_id")
    check(said[0].scope, said[1].scope, "server scope")


def test_what_one_bars_the_other_does_not(w):
    """Both give their clients the same numbers."""
    a, b = w.file("a", "d", b"1"), w.file("b", "d", b"2")
    known = [ask(w.admin[n], "GET", "/v1/clients")["clients"] for n in "ab"]
    check([[x["number"] for x in k] for k in known], [[1], [1]])
    done = subprocess.run([program("weft"), "--admin", w.admin["a"], "client", "evict",
                           known[0][0]["clientid"], "--yes"],
                          capture_output=True, text=True, timeout=60, check=False)
    check(done.returncode, 0, done.stderr)
    eventually(lambda: a[4].read(a[5], 0, 1).status == ACCES, 30, "a's client is fenced")
    # On a loaded machine the data server's lease from b may lapse for a moment.
    eventually(lambda: b[4].read(b[5], 0, 1).status == 0, what="b's file")
    check(b[4].read(b[5], 0, 1).data, b"2")
    eventually(lambda: b[4].write(b[5], 0, b"3").status == 0, what="a write of b's client")
    w.kill("ds")
    w.ds("a", "b")
    w.wait_joined("a", "b")
    ds = type(b[4])(("127.0.0.1", w.port["ds"]))
    check((ds.read(a[5], 0, 1).status, ds.read(b[5], 0, 1).data), (ACCES, b"3"))


def test_one_that_is_gone_takes_its_lease_with_it(w):
    a, b = w.file("a", "d", b"1"), w.file("b", "d", b"2")
    w.kill("a")
    eventually(lambda: a[4].read(a[5], 0, 1).status == ACCES, 30, "the lease of a ends")
    # More than a lease: what b allows does not depend on a.
    until = time.monotonic() + 2 * LEASE_MS / 1000
    while time.monotonic() < until:
        check(b[4].read(b[5], 0, 1).data, b"2")
        check(b[4].write(b[5], 0, b"2").status, 0)
        time.sleep(0.1)
    health = ask(w.admin["ds"], "GET", "/v1/health")
    check((health["joined"], [m["joined"] for m in health["mds"]]), (False, [False, True]))
    got = get_metrics(w.admin["ds"])
    each = {family: [got[family, (("mds", f"127.0.0.1:{w.port[n]}"),)] for n in ("a", "b")]
            for family in ("weft_ds_mds_joined", "weft_ds_mds_lease_seconds")}
    check(each["weft_ds_mds_joined"], [0, 1])
    gone, left = each["weft_ds_mds_lease_seconds"]
    check((gone, 0 < left <= LEASE_MS / 1000), (0, True), each)
    check((got["weft_ds_joined", ()], got["weft_ds_lease_seconds", ()]), (0, 0))
    w.mds("a")
    w.wait_joined("a", "b")
    eventually(lambda: a[4].read(a[5], 0, 1).status == 0, 30, "a's files are served again")


def test_a_boot_of_one_is_no_boot_of_the_other(w):
    """The higher epoch of one instance must not lock the other out."""
    for _ in range(3):
        w.kill("a")
        w.mds("a")
    w.wait_joined("a", "b")
    b = w.file("b", "d", b"2")
    w.kill("b")
    w.mds("b", 2)
    w.wait_joined("a", "b")
    a = w.file("a", "d", b"1")
    eventually(lambda: b[4].read(b[5], 0, 1).status == 0, 30, "b's lease")
    check(a[4].read(a[5], 0, 1).data, b"1")


def test_a_scrub_of_one_leaves_the_others_objects(w):
    a, b = w.file("a", "d", b"1" * 5000), w.file("b", "d", b"2" * 5000)
    for name in "ab":
        done = subprocess.run([program("weft"), "--admin", w.admin[name], "scrub", "--yes"],
                              capture_output=True, text=True, timeout=120, check=False)
        check(done.returncode, 0, done.stdout + done.stderr)
    check(a[4].read(a[5], 0, 5000).data, b"1" * 5000)
    check(b[4].read(b[5], 0, 5000).data, b"2" * 5000)
    b[0].ok(putfh(b[2]), layoutreturn(b[3].stateid))
    b[0].ok(putfh(b[2]), close(b[1]))
    b[0].ok(putfh(b[0].root()), lookup("d"), remove("f"))
    names = lambda: [n for _, _, ns in os.walk(f"{w.top}/ds/objects") for n in ns]
    eventually(lambda: len(names()) == 1, 60, "the object of b's file is deleted, a's is not")
    check(a[4].read(a[5], 0, 5000).data, b"1" * 5000)


def test_two_addresses_of_one_server_do_not_fight(w):
    w.kill("ds")
    w.start("ds", "weft-ds", w.ds_keys(f"127.0.0.1:{w.port['a']}", f"127.0.0.2:{w.port['a']}"))
    eventually(lambda: any(m["joined"] for m in w.states()), 60, "the data server joins")
    time.sleep(3)
    got = w.states()
    check(sorted(m["joined"] for m in got), [False, True])
    check("has joined its file system at" in next(m["why"] for m in got if not m["joined"]), True)
    joins = w.log("ds").count("joined as data server")
    check(joins <= 3, True, f"{joins} joins")  # two of before, for a and b
    check(w.run["a"].poll(), None, "the metadata server goes on")


def served(w, *files):
    """Each file is read and written, also over a new connection."""
    for x in files:
        ds = type(x[4])(("127.0.0.1", w.port["ds"]))
        eventually(lambda x=x, ds=ds: ds.read(x[5], 0, 1).status == 0, 30, "READ")
        check(ds.write(x[5], 0, b"w").status, 0, "WRITE")
        ds.close()


def test_a_rotation_of_one_changes_its_keys_alone(w):
    w.has_own("a", "b")
    a, b = w.file("a", "d", b"1"), w.file("b", "d", b"2")
    w.rotate("a")
    check([w.cap_key(n)[0] for n in "ab"], [1, 0])
    served(w, a, b)
    w.ds_again("a", "b")
    served(w, a, b)
    w.rotate("b")
    check([w.cap_key(n)[0] for n in "ab"], [1, 1])
    served(w, a, b, w.file("b", "e", b"3"))  # the handles of number 0 too
    w.ds_again("a", "b")
    served(w, a, b, w.file("b", "f", b"4"), w.file("a", "e", b"5"))
    check(sorted(n for n in os.listdir(f"{w.top}/ds") if n.startswith("key")),
          ["key", "key.before", "key.before.fs2", "key.fs2"])


def sealed(fh, number, key):
    """A handle of the same object, which an instance seals: with every right, never fenced."""
    head = bytes([fh[0] | 7, number]) + fh[2:16] + b"\xff" * 4 + b"\0" * 4
    return head + siphash(key, head)


def test_one_cannot_seal_for_the_others_files(w):
    w.has_own("a", "b")
    files = {n: w.file(n, "d", n.encode()) for n in "ab"}
    keys = {n: w.cap_key(n) for n in "ab"}
    check(keys["a"][1] != keys["b"][1], True, "keys of the same number")
    ds = files["a"][4]
    for own, other in (("a", "b"), ("b", "a")):
        fh = files[own][5]
        check(ds.read(sealed(fh, *keys[own]), 0, 1).data, own.encode(), "its own is believed")
        check(ds.read(sealed(fh, *keys[other]), 0, 1).status, BADHANDLE)
        check(ds.write(sealed(fh, *keys[other]), 0, b"X").status, BADHANDLE)
        # Another inode number of the sealer's file system: there is no such object.
        ino = struct.unpack(">Q", fh[8:16])[0]
        moved = (ino & (1 << 48) - 1) | (2 << 48 if own == "a" else 0)
        check(ds.read(sealed(fh[:8] + struct.pack(">Q", moved) + fh[16:], *keys[other]), 0, 1)
              .data, other.encode(), "each has this inode number")


def test_it_meets_another_with_the_keys_of_one(w):
    w.kill("ds")
    shutil.rmtree(f"{w.top}/ds")
    w.kill("a")
    w.kill("b")
    for n in "ab":
        shutil.rmtree(f"{w.top}/{n}")
        os.unlink(f"{w.top}/{n}.log")
    w.cluster = None
    w.mds("a")
    w.ds("a")
    w.wait_joined("a")
    w.has_own("a")
    w.rotate("a")
    w.mds("b", 2)
    w.ds_again("a", "b")
    w.has_own("b")
    a, b = w.file("a", "d", b"1"), w.file("b", "d", b"2")
    served(w, a, b)
    check("has keys of another file system" in w.log("b"), True)
    check("joined with the cluster key" in w.log("b"), False)
    w.ds_again("a", "b")
    served(w, a, b)
    # It has keys of b now, and cannot be met again.
    w.kill("ds")
    os.unlink(f"{w.top}/ds/key.fs2")
    w.ds("a", "b", cluster_key=False)
    w.wait_joined("a")
    eventually(lambda: "own keys" in w.joined()[str(w.port["b"])].get("why", ""), 60,
               f"b refuses it: {w.joined()}")
    eventually(lambda: "has lost the keys of its own that it got here" in w.log("b"), 60,
               "b says what to do")
    check("weft ds key NAME" in w.joined()[str(w.port["b"])]["why"], True, "and so does it")
    w.weft("b", "ds", "key", "ds", "--out", f"{w.top}/again.key")
    w.kill("ds")
    w.start("ds", "weft-ds", [*w.ds_keys(f"127.0.0.1:{w.port['a']}", f"127.0.0.1:{w.port['b']}",
                                         cluster_key=False), "-o", f"ds.key={w.top}/again.key"])
    w.wait_joined("a", "b")
    served(w, a, b)


def open_yet(s):
    try:
        s.setblocking(False)  # with a timeout Python waits for it before it asks
        return s.recv(1, socket.MSG_PEEK) != b""
    except BlockingIOError:
        return True
    except ConnectionError:
        return False


def test_few_wait_that_say_they_have_keys_of_another(w):
    """Whoever reaches the port can say so, and proves nothing by it."""
    meet = struct.pack(">I", join_token.PROTOCOL | 3 * join_token.HELLO_OWN)
    callers, most = [], 0
    for _ in range(24):
        c = join4.DataServer.__new__(join4.DataServer)
        c.s = socket.create_connection(("127.0.0.1", w.port["a"]), timeout=60)
        c.xid = c.counter = 0
        check(len(c.call(join4.HELLO, meet + os.urandom(16 + 32))), 36, "HELLO")
        callers.append(c.s)
        most = max(most, sum(open_yet(s) for s in callers))
    check(most > 1, True, f"{most} wait")
    eventually(lambda: sum(open_yet(s) for s in callers) <= 16, 60, "at most 16 wait")
    eventually(lambda: not any(open_yet(s) for s in callers), 90, "and not for ever")
    served(w, w.file("a", "d", b"1"), w.file("b", "d", b"2"))


def test_after_a_rotation_the_administrator_admits_whom_it_meets(w):
    w.has_own("a", "b")
    w.rotate("b")
    w.kill("ds")
    shutil.rmtree(f"{w.top}/ds")
    w.weft("a", "ds", "key", "other", "--out", f"{w.top}/other.key")
    keys = [*w.ds_keys(f"127.0.0.1:{w.port['a']}", f"127.0.0.1:{w.port['b']}", cluster_key=False),
            "-o", "ds.name=other", "-o", f"ds.key={w.top}/other.key"]
    w.start("ds", "weft-ds", keys)
    w.wait_joined("a")
    eventually(lambda: "must admit" in w.joined()[str(w.port["b"])].get("why", ""), 60,
               f"b waits: {w.joined()}")
    w.weft("b", "ds", "admit", "other")
    w.wait_joined("a", "b")
    eventually(lambda: os.path.exists(f"{w.top}/ds/key.fs2"), 60, "b has sent its keys")


def made(c, name):
    """A file's handle; a start is over when it is there."""
    c.until(lambda got: err(got.status) != "GRACE", putfh(c.root()),
            open_(name, BOTH | NO_DELEG, how=UNCHECKED, attrs={"mode": 0o644}), tries=300)
    return c.open(c.root(), name)[1]


def test_a_restored_store_gives_no_number_again(w):
    b = w.file("b", "d", b"2")
    before = b[0].attrs(b[2], "fileid").fileid
    w.kill("b", signal.SIGTERM)
    w.run.pop("b").wait(60)
    shutil.copytree(f"{w.top}/b", f"{w.top}/b.copy")
    w.mds("b", 2)
    w.wait_joined("a", "b")
    c = w.client("b")
    f = made(c, "since")
    since = c.attrs(f, "fileid").fileid
    w.kill("b", signal.SIGTERM)
    w.run.pop("b").wait(60)
    shutil.rmtree(f"{w.top}/b")
    os.rename(f"{w.top}/b.copy", f"{w.top}/b")
    w.start("b", "weft-mds", [*w.mds_keys("b", 2), "--restored"])
    w.wait_joined("a", "b")
    c = w.client("b")
    f = made(c, "again")
    again = c.attrs(f, "fileid").fileid
    check((before >> 48, since >> 48, again >> 48), (2, 2, 2))
    check(again >= (2 << 48) + (1 << 32), True, f"{again:#x}, after {since:#x}")


def test_a_store_keeps_its_identity(w):
    w.kill("b")
    for fs, cluster, want in ((3, w.cluster, "file system 2"),
                              (2, "0" * 32, f"cluster {w.cluster.replace('-', '')}"),
                              (2, "nothing", "expected a uuid")):
        done = subprocess.run(
            [program("weft-mds"), "-o", f"mds.store={w.top}/b", "-o", "mds.listen=127.0.0.1:12109",
             "-o", f"mds.cluster_key={w.top}/key", "-o", f"mds.fs={fs}",
             "-o", f"mds.cluster={cluster}"],
            capture_output=True, text=True, timeout=60, check=False,
            env=environment("weft-mds"))
        check(done.returncode != 0 and want in done.stderr, True, done.stderr[-300:])
    w.mds("b", 2)
    w.wait_joined("a", "b")


# ---- an instance that tells its data servers of others (mds.instances)

JOIN2, HEARTBEAT, INSTANCES, INVAL = 4, 2, 10, 7
FAKE = 12104


def at(name, host=1):
    return f"127.0.0.{host}:{ {'a': 12101, 'b': 12102, 'fake': FAKE}[name] }"


class Told(Two):
    def __init__(self):
        super().__init__()
        self.told = {}

    def mds_keys(self, name, fs=0):
        return [*super().mds_keys(name, fs), "-o",
                "mds.instances=" + ",".join(self.told.get(name, []))]

    def again(self, name, told=None, fs=0):
        """Restarts this metadata server; told: the list that it tells from now on."""
        if told is not None:
            self.told[name] = told
        self.kill(name)
        self.mds(name, fs)

    def kept(self):
        """The rows of the data server's file."""
        try:
            with open(f"{self.top}/ds/instances", encoding="ascii") as f:
                head, version, *rows = f.read().splitlines()
        except FileNotFoundError:
            return []
        check((head, version), ("weft-ds instances", "version=1"))
        return sorted(r.removeprefix("told=") for r in rows)

    def joined(self):
        """As Two's; of two addresses with one port the one that is joined."""
        return {m["address"].rsplit(":", 1)[1]: m
                for m in sorted(self.states(), key=lambda m: m["joined"])}

    def ports(self):
        return sorted(int(p) for p in self.joined())


@contextlib.contextmanager
def around_told(name):
    w = Told()
    try:
        if "malformed" in name or "list" in name:
            yield (w,)
            return
        w.told["a"] = [] if "meets" in name else [at("b")]
        w.mds("a")
        if "meets" not in name:
            w.mds("b", 2)
        w.ds("a")
        yield (w,)
    finally:
        w.down()


def test_told_it_serves_the_second_one_too_and_knows_it_after_a_restart(w):
    w.wait_joined("a", "b")
    said = w.joined()
    check([(said[p]["fs"], said[p]["learned"]) for p in ("12101", "12102")],
          [(1, False), (2, True)])
    check(w.kept(), [f"1 {at('b')}"])
    files = [w.file(n, "d", n.encode()) for n in "ab"]
    served(w, *files)
    w.has_own("a", "b")
    # The first one is down: only the store says where the second is. With keys of its own, too.
    w.kill("a")
    w.kill("ds")
    w.ds("a", cluster_key=False)
    w.wait_joined("b")
    check(w.joined()["12101"]["joined"], False)
    served(w, files[1])
    w.mds("a")
    w.wait_joined("a", "b")
    c = w.client("a")  # the one of before has lost its state
    made(c, "since")
    served(w, files[1])


def test_told_with_keys_of_the_first_it_meets_the_second(w):
    """A data server that has no cluster key any more when it hears of the second one."""
    w.wait_joined("a")
    w.has_own("a")
    w.ds_again("a")
    check((w.ports(), w.kept()), ([12101], []))
    w.mds("b", 2)
    w.again("a", [at("b")])
    w.wait_joined("a", "b")
    w.has_own("b")
    check("has keys of another file system" in w.log("b"), True)
    served(w, w.file("b", "d", b"2"))


def test_told_an_address_that_is_withdrawn_is_forgotten(w):
    w.wait_joined("a", "b")
    w.again("b", [at("a"), at("b", 2)], fs=2)  # its own second address among them
    eventually(lambda: len(w.kept()) == 3, 60, f"{w.kept()}")
    w.wait_joined("a", "b")
    w.again("a", [])
    # b has not said its own first address: nobody tells it now.
    eventually(lambda: w.kept() == sorted([f"2 {at('a')}", f"2 {at('b', 2)}"]), 60,
               f"{w.kept()}")
    w.wait_joined("a", "b")
    check([m["learned"] for m in w.states()], [False, True], "a is of ds.mds: it stays")
    b = w.file("b", "d", b"2")
    served(w, b)
    w.again("b", [], fs=2)
    eventually(lambda: w.ports() == [12101] and not w.kept(), 60, f"{w.states()}")
    check(w.joined()["12101"]["joined"], True)
    w.kill("ds")
    w.ds("a")
    w.wait_joined("a")
    check(w.ports(), [12101])
    w.again("a", [at("b")])
    w.wait_joined("a", "b")
    made(w.client("b"), "since")  # the client of before has lost its state
    served(w, w.file("b", "e", b"3"))


def test_told_two_addresses_of_one_are_no_fault(w):
    w.again("a", [at("a"), at("a", 2), at("b"), at("b", 2)])
    w.wait_joined("a", "b")
    eventually(lambda: len(w.states()) == 4, 60, f"{w.states()}")
    eventually(lambda: ask(w.admin["ds"], "GET", "/v1/health")["joined"], 60, f"{w.states()}")
    # After a restart a learned address is the first that joins: the one of ds.mds is the spare.
    w.kill("ds")
    w.start("ds", "weft-ds", w.ds_keys(f"127.0.0.1:{FAKE}"))
    w.wait_joined("a", "b")
    with listening(FAKE) as s:
        threading.Thread(target=forward, args=(s, w.port["a"]), daemon=True).start()
        mine = "has joined its file system at"
        eventually(lambda: mine in w.joined()[str(FAKE)].get("why", ""), 60, f"{w.states()}")
        check(w.joined()[str(FAKE)]["learned"], False)
        eventually(lambda: ask(w.admin["ds"], "GET", "/v1/health")["joined"], 60, f"{w.states()}")


@contextlib.contextmanager
def listening(port):
    """A socket that listens. What waits in accept ends, and so does the socket: a close alone would
    leave it to that thread."""
    with socket.create_server(("127.0.0.1", port)) as s:
        try:
            yield s
        finally:
            s.shutdown(socket.SHUT_RDWR)


def forward(server, port):
    """Makes each connection to the server one to this port."""
    def copy(a, b):
        with contextlib.suppress(OSError):
            while data := a.recv(65536):
                b.sendall(data)
        for s in a, b:
            with contextlib.suppress(OSError):
                s.shutdown(socket.SHUT_RDWR)

    with contextlib.suppress(OSError):
        while True:
            near, far = server.accept()[0], socket.create_connection(("127.0.0.1", port))
            for ends in (near, far), (far, near):
                threading.Thread(target=copy, args=ends, daemon=True).start()


class Fake:
    """A metadata server of file system 9 that has the cluster key, and tells what it likes."""

    def __init__(self, cluster_key, cluster):
        self.key, self.cluster = cluster_key, cluster
        self.parts, self.joins, self.error = [], 0, None
        self.s = socket.create_server(("127.0.0.1", FAKE))
        self.conns = []
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            try:
                c = self.s.accept()[0]
            except OSError:
                return
            self.conns.append(c)
            try:
                self.speak(c)
            except (AssertionError, OSError):
                c.close()  # the data server went, or drop() did

    def speak(self, c):
        call = join4.record(c)
        xid, = struct.unpack_from(">I", call)
        hello, mine = call[40:92], os.urandom(32)
        said = PROTOCOL | 9 * HELLO_FS
        join4.send(c, struct.pack(">7I", xid, 1, 0, 0, 0, 0, said) + mine)
        both = blake(self.key, 64, b"weft control v3\0", hello[4:20], hello[20:52], mine,
                     hello[:4], struct.pack(">II", PROTOCOL, 9))
        both = both[:32], both[32:]
        sent = 0
        while True:
            call = join4.record(c)
            xid, kind = struct.unpack_from(">2I", call)
            check(kind, 0)
            asked, plain = join4.unseal(both[0], join4.TO_MDS, join4.CALL, 0, call[40:])
            op, = struct.unpack_from(">I", plain)
            if op == JOIN2:
                got = struct.pack(">2I", 0, op) + self.cluster + struct.pack(">IIQI", 9, 1, 5, 3000)
                got += struct.pack(">I", len(self.parts))
                for p in self.parts:
                    got += struct.pack(">2I", INSTANCES, len(p)) + p + bytes(-len(p) % 4)
            elif op == HEARTBEAT:
                got = struct.pack(">2IQI", 0, op, 5, 3000)
            else:
                got = struct.pack(">I", INVAL)
            sent += 1
            join4.send(c, struct.pack(">6I", xid, 1, 0, 0, 0, 0)
                       + join4.seal(both[1], join4.TO_DS, join4.REPLY, sent, asked, got))
            self.joins += op == JOIN2

    def tell(self, *parts):
        """Answers the next join, which comes now, with these entries."""
        self.parts, before = list(parts), self.joins
        for c in self.conns:
            with contextlib.suppress(OSError):
                c.shutdown(socket.SHUT_RDWR)
        eventually(lambda: self.joins > before, 60, "the data server joins again")


def one(text, port=12102):
    if ":" in text:
        return socket.inet_pton(socket.AF_INET6, text) + struct.pack(">H", port)
    return bytes(10) + b"\xff\xff" + socket.inet_aton(text) + struct.pack(">H", port)


def test_told_a_list_that_is_not_valid_changes_nothing_and_is_logged_once(w):
    fake = Fake(bytes.fromhex("5" * 64), b"a cluster's uuid")
    w.start("ds", "weft-ds", w.ds_keys(at("fake")))
    eventually(lambda: w.joined()[str(FAKE)]["joined"], 60, f"{w.states()}")
    w.kill("ds")
    with open(f"{w.top}/ds/instances", "w", encoding="ascii") as f:
        f.write("weft-ds instances\nversion=1\ntold=1 127.0.0.99:12102\n")  # nobody is there
    w.start("ds", "weft-ds", w.ds_keys(at("fake")))
    eventually(lambda: w.joined()[str(FAKE)]["joined"], 60, f"{w.states()}")
    fake.tell(one("127.0.0.9"))
    eventually(lambda: len(w.kept()) == 2, 60, f"{w.kept()}")
    good = w.kept()
    logged = lambda: w.log("ds").count("tells addresses of instances that this server does not")
    bad = [[b"abc"], [one("127.0.0.8"), one("127.0.0.7")[:-1]], [one("127.0.0.8", 0)],
           [one("0.0.0.0")], [one("224.0.0.1")], [one("255.255.255.255")], [one("::")],
           [one("ff02::1")], [one("fe80::1")],
           [b"".join(one(f"127.0.{k}.{i}") for i in range(1, 14)) for k in range(1, 6)],  # 65
           # 64, which are too many beside the other one
           [b"".join(one(f"127.0.{k}.{i}") for i in range(1, 9)) for k in range(1, 9)]]
    for parts in bad:
        fake.tell(*parts)
        eventually(lambda: w.joined()[str(FAKE)]["joined"], 60, f"{w.states()}")
        check(w.kept(), good, f"{parts}")
        check(len(w.states()), 3, f"{w.states()}")
    check(logged(), 1)
    fake.tell()  # it says nothing: an older one
    eventually(lambda: w.joined()[str(FAKE)]["joined"], 60, f"{w.states()}")
    check(w.kept(), good)
    # 63 fit, in several entries, and one twice counts once.
    fake.tell(*[b"".join(one(f"127.0.{k}.{i}") for i in range(1, 10)) for k in range(1, 8)],
              one("127.0.1.1"))
    eventually(lambda: len(w.kept()) == 64 and len(w.states()) == 65, 60, f"{w.kept()}")
    # Others of them, as many: places are used again.
    fake.tell(*[b"".join(one(f"127.1.{k}.{i}") for i in range(1, 10)) for k in range(1, 8)])
    eventually(lambda: len(w.states()) == 65
               and sum("127.1." in m["address"] for m in w.states()) == 63, 60, f"{w.states()}")
    fake.tell(b"")
    eventually(lambda: w.kept() == ["1 127.0.0.99:12102"] and len(w.states()) == 2, 60,
               f"{w.kept()}")
    fake.tell(b"a")
    eventually(lambda: logged() == 2, 60, "it is logged again after a good one")
    fake.s.shutdown(socket.SHUT_RDWR)


def test_told_a_file_that_is_not_valid_is_replaced(w):
    w.wait_joined("a", "b")
    w.kill("ds")
    with open(f"{w.top}/ds/instances", "w", encoding="ascii") as f:
        f.write("weft-ds instances\nversion=1\ntold=1 127.0.0.1:0\n")
    w.ds("a")
    w.wait_joined("a", "b")
    check("/ds/instances: Invalid argument" in w.log("ds"), True)
    check(w.kept(), [f"1 {at('b')}"])


def test_told_a_malformed_setting_is_refused(w):
    for said, want in (("127.0.0.1:x", '"127.0.0.1:x" is not an address'),
                       ("192.0.2.1,0.0.0.0", '"0.0.0.0" is not an address that a data server'),
                       ("[fe80::1]", "that a data server can connect to"),
                       ("224.0.0.5:2049", "that a data server can connect to"),
                       ("192.0.2.1:0", "that a data server can connect to"),
                       ("192.0.2.1,192.0.2.1:2049", "192.0.2.1:2049 is there twice"),
                       (",".join(f"192.0.2.{i}" for i in range(1, 66)), "more than 64 addresses")):
        done = subprocess.run(
            [program("weft-mds"), "-o", f"mds.store={w.top}/a", "-o", "mds.listen=127.0.0.1:12109",
             "-o", f"mds.cluster_key={w.top}/key", "-o", f"mds.instances={said}", "--check"],
            capture_output=True, text=True, timeout=60, check=False,
            env=environment("weft-mds"))
        check((done.returncode, "mds.instances: " in done.stderr and want in done.stderr),
              (2, True), done.stderr[-300:])


if __name__ == "__main__":
    tap.run(tap.named(globals()), around, 1)
