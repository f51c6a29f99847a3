# SPDX-License-Identifier: Apache-2.0
"""Processes of an instance whose log is in PostgreSQL, and a real PostgreSQL: a primary and two
synchronous standbys (tests/ha/pgcluster)."""
import contextlib
import glob
import json
import os
import shutil
import signal
import subprocess
import tempfile

from daemons import Http, environment, program
from harness import *  # noqa: F403
from nfs41 import Client
from sniffer import Sniffer

# Long enough that a loaded machine causes no takeover that a test does not want.
LEASE_S = 4


class Postgres:
    def __init__(self):
        self.top = tempfile.mkdtemp(prefix="weft-pg-test.")
        os.chmod(self.top, 0o755)
        self.dir = os.path.join(self.top, "pg")
        self("make")

    def __call__(self, *what):
        done = subprocess.run(["bash", os.path.join(SRC, "tests/ha/pgcluster"), self.dir, *what],
                              capture_output=True, text=True, timeout=300, check=False)
        check(done.returncode, 0, f"pgcluster {what}: {done.stdout[-500:]}{done.stderr[-500:]}")
        return done.stdout.strip()

    def sql(self, text):
        return self("sql", "p", text)

    def init(self, inst):
        return subprocess.run(
            [program("weft"), "pg", "init", "--instance", str(inst),
             f"host={self.dir}/p dbname=postgres user=postgres"],
            capture_output=True, text=True, timeout=120, check=True).stdout

    def down(self):
        self("end")
        shutil.rmtree(self.top)


class World:
    def __init__(self, pg, inst):
        self.top = tempfile.mkdtemp(prefix="weft-pg-test.")
        self.pg, self.inst = pg, inst
        self.run, self.clients = {}, []
        self.port = {"a": 12111, "b": 12112, "ds": 12113}
        self.admin = {n: f"unix:{self.top}/{n}.sock" for n in self.port}
        with open(f"{self.top}/key", "w", opener=lambda p, f: os.open(p, f, 0o600),
                  encoding="ascii") as f:
            f.write("5" * 64 + "\n")
        with open(f"{self.top}/exports", "w", encoding="ascii") as f:
            f.write('export "/" {\n  client "*" { access = rw  squash = none  '
                    'privileged_port = false  sec = {sys, none} }\n}\n')
        pg.init(inst)

    def sql(self, text):
        """$ stands for the instance."""
        return self.pg.sql(text.replace("$", str(self.inst)))

    def keys(self, name, *more):
        own = [f"mds.store={self.top}/{name}", f"mds.listen=127.0.0.1:{self.port[name]}",
               f"mds.cluster_key={self.top}/key",
               f"mds.admin={self.admin[name]},127.0.0.1:{self.port[name] + 10}",
               f"mds.exports={self.top}/exports", "mds.lease=20s", "mds.grace=2s",
               f"mds.log=postgresql:host={self.pg.dir}/p dbname=postgres user=weft",
               f"mds.fs={self.inst}", f"mds.log_lease={LEASE_S}s", *more]
        return [x for s in own for x in ("-o", s)]

    def start(self, name, *more, args=()):
        with open(f"{self.top}/{name}.log", "ab") as log:
            # pylint: disable=consider-using-with
            self.run[name] = subprocess.Popen([program("weft-mds"), *self.keys(name, *more), *args],
                                              stderr=log, stdout=log, env=environment("weft-mds"))

    def ds(self):
        own = [f"ds.cluster_key={self.top}/key", f"ds.store={self.top}/ds", "ds.name=ds",
               f"ds.listen=127.0.0.1:{self.port['ds']}", f"ds.admin={self.admin['ds']}",
               f"ds.mds=127.0.0.1:{self.port['a']},127.0.0.1:{self.port['b']}",
               "ds.heartbeat=300ms"]
        with open(f"{self.top}/ds.log", "ab") as log:
            # pylint: disable=consider-using-with
            self.run["ds"] = subprocess.Popen(
                [program("weft-ds"), *[x for s in own for x in ("-o", s)]],
                stderr=log, stdout=log, env=environment("weft-ds"))

    def log(self, name):
        with contextlib.suppress(FileNotFoundError), \
                open(f"{self.top}/{name}.log", encoding="utf-8") as f:
            return f.read()
        return ""

    def serves(self, name, times=1):
        """Waits until this process has begun to serve for the nth time."""
        def done():
            check(self.run[name].poll(), None, f"{name} runs: {self.log(name)[-800:]}")
            return self.log(name).count("serving: boot") >= times
        eventually(done, 60, f"{name} serves")

    def says(self, name, text):
        eventually(lambda: text in self.log(name), 60, f"{name} says \"{text}\"")

    def ended(self, name):
        """Waits for its end. Returns its status."""
        got = self.run.pop(name).wait(90)
        return got

    def kill(self, name):
        self.run[name].kill()
        self.ended(name)

    def stop(self, name):
        self.run[name].terminate()
        return self.ended(name)

    def client(self, name, **how):
        c = Client(("127.0.0.1", self.port[name]), **how)
        self.clients.append(c)
        return c

    def drop(self):
        for c in self.clients:
            c.drop()
        self.clients.clear()

    def down(self):
        self.drop()
        for p in self.run.values():
            p.send_signal(signal.SIGCONT)
            p.kill()
            p.wait(60)
        bad = [line for path in glob.glob(f"{self.top}/*.log")
               for line in self.log(os.path.basename(path)[:-4]).splitlines()
               if "Sanitizer" in line or "ssert" in line or "runtime error" in line]
        shutil.rmtree(self.top)
        if bad:
            raise Failed("a daemon complains: " + "; ".join(bad[:5]))


def ask(admin, path):
    conn = Http(admin)
    conn.request("GET", path)
    reply = conn.getresponse()
    text = reply.read()
    conn.close()
    return reply.status, json.loads(text)


def make_files(c, where, n):
    d = c.mkdir(c.root(), where, attrs={"mode": 0o777})
    for i in range(n):
        c.ok(putfh(d), create(DIR, f"f{i}"))
    return d


def has_files(c, where, n):
    d = c.ok(putfh(c.root()), lookup(where), getfh()).fh
    for i in range(n):
        c.ok(putfh(d), lookup(f"f{i}"))


def stands_still_and_wakes(w):
    """a holds the instance and stands still until b serves. It then answers nothing more: neither
    what was asked before nor what it does late."""
    c, two = w.client("a"), w.client("a")
    d = make_files(c, "d", 20)
    sniff = Sniffer(w.port["a"])
    c.ok(putfh(d), lookup("f1"))
    check(sniff.bytes() > 0, True, "bytes that the sniffer sees")
    stand_still(w.run["a"].pid)
    sniff.bytes()
    c.begin(putfh(d), create(DIR, "late"))
    two.begin(putfh(d), lookup("f2"))
    w.serves("b")
    b = w.client("b")
    has_files(b, "d", 20)
    make_files(b, "e", 20)
    w.run["a"].send_signal(signal.SIGCONT)
    check(w.ended("a") != 0, True, "status")
    check("another instance holds the store" in w.log("a"), True, w.log("a")[-800:])
    check(sniff.bytes(), 0, "bytes that left")
    sniff.close()
    b.no("NOENT", putfh(b.ok(putfh(b.root()), lookup("d"), getfh()).fh), lookup("late"))


def refuses(w, text, *more, status=None, args=()):
    before = len(w.log("a"))
    w.start("a", *more, args=args)
    got = w.ended("a")
    check(got != 0 if status is None else got == status, True, f"status {got}")
    check(text in w.log("a")[before:], True, f"{text!r}: {w.log('a')[before:][-600:]}")


def missing():
    """Why there is nothing to test; or None."""
    if not glob.glob("/usr/lib/postgresql/*/bin/initdb"):
        return "there is no PostgreSQL"
    got = subprocess.run([program("weft-mds"), "--check=values", "-o",
                          "mds.log=postgresql:host=/"], capture_output=True, text=True,
                         check=False)
    if "built without PostgreSQL" in got.stderr:
        return "weft-mds was built without PostgreSQL"
    return None
