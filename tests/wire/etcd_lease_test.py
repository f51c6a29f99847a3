#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""A metadata server whose log is in PostgreSQL and whose lease is in etcd: reads go on while
PostgreSQL is away, nothing is answered without the lease, and one process at a time answers. Prints
TAP.

PostgreSQL and etcd are real. Each test has an instance of its own there; "a" and "b" are two
processes of it. A packet socket counts what leaves the port of one.
"""
import contextlib
import glob
import itertools
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../wirelib"))
from harness import *  # noqa: E402,F403
from daemons import environment, get_metrics, program  # noqa: E402
from load import Watch  # noqa: E402
from nfs41 import err  # noqa: E402
from sniffer import Sniffer  # noqa: E402
from tls_wire import Certs  # noqa: E402
import pg_world as log  # noqa: E402
from pg_world import (  # noqa: E402
    LEASE_S, ask, has_files, make_files, stands_still_and_wakes)

INSTANCES = itertools.count(1)
PORTS = itertools.count(12140, 2)


class Etcd:
    """One etcd of one member, with its files in memory."""

    def __init__(self, certs=None, tokens=False):
        self.certs, self.more = certs, []
        where = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        self.top = tempfile.mkdtemp(prefix="weft-etcd.", dir=where)
        self.port = next(PORTS)
        self.url = f"http{'s' if certs else ''}://127.0.0.1:{self.port}"
        self.tokens = ["--auth-token", f"jwt,pub-key={self.top}/pub,priv-key={self.top}/priv,"
                       "sign-method=RS256,ttl=10m"] if tokens else []
        if tokens:
            for what in (["genrsa", "-out", f"{self.top}/priv", "2048"],
                         ["rsa", "-in", f"{self.top}/priv", "-pubout", "-out", f"{self.top}/pub"]):
                subprocess.run(["openssl", *what], capture_output=True, check=True, timeout=60)
        self.start()

    def start(self):
        peer = f"http://127.0.0.1:{self.port + 1}"
        with open(f"{self.top}/log", "ab") as out:
            # pylint: disable=consider-using-with
            self.run = subprocess.Popen(
                ["etcd", "--data-dir", f"{self.top}/data", "--listen-client-urls", self.url,
                 "--advertise-client-urls", self.url, "--listen-peer-urls", peer,
                 "--initial-advertise-peer-urls", peer, "--initial-cluster", f"default={peer}",
                 # At the usual cost of 10 a user takes a twentieth of a processor's second, on a
                 # busy machine more than the server waits for etcd.
                 "--bcrypt-cost", "4", "--logger", "zap", "--log-level", "warn", *self.tls(),
                 *self.tokens], stdout=out, stderr=out)
        eventually(lambda: self.ctl("endpoint", "health", good=None)[0] == 0, 60, "etcd answers")

    def tls(self):
        c = self.certs
        return [] if not c else ["--cert-file", c["server"], "--key-file", c["server.key"],
                                 "--client-cert-auth", "--trusted-ca-file", c["ca"]]

    def needs_users(self):
        """Users, and which keys they may write: root, and weft."""
        for what in (["user", "add", "root:r"], ["user", "grant-role", "root", "root"],
                     ["user", "add", "weft:secret"], ["role", "add", "weft"],
                     ["role", "grant-permission", "weft", "--prefix=true", "readwrite",
                      "weft/lease/"],
                     ["user", "grant-role", "weft", "weft"], ["auth", "enable"]):
            self.ctl(*what)
        self.more = ["--user", "root:r"]

    def ctl(self, *what, good=0):
        c = self.certs
        tls = [] if not c else ["--cacert", c["ca"], "--cert", c["nameless"], "--key",
                                c["nameless.key"]]
        done = subprocess.run(["etcdctl", "--endpoints", self.url, *tls, *self.more, *what],
                              capture_output=True, text=True, check=False, timeout=60,
                              env=dict(os.environ, ETCDCTL_API="3"))
        if good is not None:
            check(done.returncode, good, f"etcdctl {what}: {done.stderr[-500:]}")
        return done.returncode, done.stdout

    def signal(self, how):
        self.run.send_signal(how)

    def kill(self):
        self.run.kill()
        self.run.wait(60)

    def down(self):
        self.kill()
        shutil.rmtree(self.top)


class World(log.World):
    def __init__(self, pg, etcd, inst):
        self.etcd = etcd
        super().__init__(pg, inst)

    def keys(self, name, *more):
        return super().keys(name, f"mds.log_lease_in=etcd:{self.etcd.url}", *more)

    def key(self):
        return self.etcd.ctl("get", "--prefix", "--print-value-only",
                             f"weft/lease/{self.inst}/")[1].strip()


def both(w):
    """"a" serves, and "b" stands by."""
    w.start("a")
    w.serves("a")
    w.start("b")
    w.says("b", f"standby: another process holds instance {w.inst}")


def longest(w, c, d, names, seconds=0.0, until=None):
    """Looks names up at a, one after another. Returns the longest time that one took, without what
    waited for a processor."""
    end, most, watch = time.monotonic() + seconds, 0.0, Watch(w.run["a"].pid)
    for name in itertools.cycle(names):
        watch.start()
        c.ok(putfh(d), lookup(name), getattr_("size"))
        most = max(most, watch.took())
        if time.monotonic() > end and (until is None or until()):
            return most


def reasons(w, name):
    return [r["code"] for r in ask(w.admin[name], "/v1/health")[1]["reasons"]]


def gauge(w, name):
    return get_metrics(w.admin["a"])[(f"weft_mds_{name}", ())]


def waits(c, what, seconds=1):
    with contextlib.suppress(TimeoutError):
        c.finish(what, seconds)
        raise Failed("a reply came that had to wait")


def test_reads_go_on_while_postgresql_is_away(w):
    both(w)
    c, two, three, four = (w.client("a") for _ in range(4))
    d = make_files(c, "d", 20)
    w.says("a", "data server 1 (ds): ")
    epoch = w.sql("select epoch from weft.instance where id = $")
    names = [f"f{i}" for i in range(20)]
    w.pg("pause", "p")
    made = c.begin(putfh(d), create(DIR, "made"))
    gone = three.begin(putfh(d), remove("f0"))
    moved = four.begin(putfh(d), savefh(), rename("f1", "g1"))
    # Three times as long as the lease in PostgreSQL would last.
    most = longest(w, two, d, names, 3 * LEASE_S)
    print(f"# longest read without PostgreSQL: {most:.3f} s")
    # Changes in doubt are shown to nobody.
    for name in ("made", "g1"):
        check(err(two.call(putfh(d), lookup(name)).status), "NOENT")
    check("the store is not held now" in w.log("a"), False, w.log("a")[-800:])
    eventually(lambda: "log-away" in reasons(w, "a"), 60, "health says log-away")
    check(ask(w.admin["a"], "/v1/health")[0], 200)
    check((gauge(w, "log_up"), gauge(w, "store_held")), (0, 1))
    for one, what in ((c, made), (three, gone), (four, moved)):
        waits(one, what)
    check(most < 1, True, f"a read took {most} s")
    w.pg("resume", "p")
    for one, what in ((c, made), (three, gone), (four, moved)):
        check(err(one.finish(what).status), "OK")
    for name in ("made", "g1"):
        two.ok(putfh(d), lookup(name))
    for name in ("f0", "f1"):
        check(err(two.call(putfh(d), lookup(name)).status), "NOENT")
    eventually(lambda: "log-away" not in reasons(w, "a"), 60, "health is well again")
    check((gauge(w, "log_up"), gauge(w, "store_held")), (1, 1))
    check(gauge(w, "etcd_requests_total") > 5, True, "questions to etcd")
    check(w.sql("select epoch from weft.instance where id = $"), epoch)
    check("serving: boot" in w.log("b"), False, "a standby that serves")


def test_a_standby_keeps_its_place_in_the_log(w):
    """It tells PostgreSQL what it has, and that it lives. Else the holder keeps the log, and
    forgets it after a day."""
    both(w)
    make_files(w.client("a"), "d", 5)
    where = f"from weft.reader where inst = $ and starts_with(name, (select node || ':' " \
            f"from weft.member where inst = $ and role = 'standby')) and name like '%:{w.top}/b %'"

    def reader():
        batch, seen = w.sql(f"select batch, extract(epoch from seen) {where}").split("|")
        return int(batch), float(seen)
    eventually(lambda: w.sql(f"select count(*) {where}") == "1", 60, "b is known")
    before = reader()
    eventually(lambda: reader()[1] > before[1], 60, "b says that it lives")
    eventually(lambda: reader()[0] > before[0], 90, "b says what it has")


def weft(w, *args, status=0):
    done = subprocess.run(
        [program("weft"), "instance", *args, "--log",
         f"host={w.pg.dir}/p dbname=postgres user=weft"], capture_output=True, text=True,
        timeout=120, check=False, env=environment("weft"))
    check(done.returncode, status, f"weft instance {args}: {done.stdout}{done.stderr}")
    return done.stdout if not status else done.stderr


def mine(w):
    """The instance, as the list shows it."""
    return [i for i in json.loads(weft(w, "list", "--json")) if i["instance"] == w.inst][0]


def test_list_and_drain_know_the_holder(w):
    """Also where its name is long, and is cut within a character."""
    nodes, top = {"a": "n" * 31 + "\u00f6" * 8, "b": "n2"}, w.top + "/" + "\u00f6" * 60
    os.mkdir(top)
    for name, node in nodes.items():
        w.start(name, f"mds.store={top}/{name}", f"mds.node={node}")
        if name == "a":
            w.serves("a")
    eventually(lambda: [(s["node"], s["up"], s["lag_batches"]) for s in mine(w)["standbys"]]
               == [("n2", True, 0)], 60, "a standby")
    eventually(lambda: mine(w)["holder"], 60, "the holder says where it is")
    check((mine(w)["holder"], mine(w)["held"]), (nodes["a"], True))
    make_files(w.client("a"), "d", 5)
    said = weft(w, "drain", nodes["a"])
    check(f"1 instances have left {nodes['a']}" in said, True, said)
    check(w.ended("a"), 75)
    w.serves("b")
    check(mine(w)["holder"], "n2")
    has_files(w.client("b"), "d", 5)
    # Of a holder that does not say where it is, nothing is known.
    stand_still(w.run["b"].pid)
    w.sql("delete from weft.member where inst = $ and role = 'holder'")
    said = weft(w, "drain", "n2", status=1)
    check(f"instance {w.inst}: its holder does not say where it is" in said, True, said)
    w.run["b"].send_signal(signal.SIGCONT)


def test_nothing_is_answered_while_etcd_is_away(w):
    both(w)
    c = w.client("a")
    d = make_files(c, "d", 5)
    w.etcd.signal(signal.SIGSTOP)
    w.says("a", "etcd does not extend the lease")
    # What waits makes it known that the lease is over.
    while "the store is not held now" not in w.log("a"):
        last = c.begin(putfh(d), lookup("f1"))
        with contextlib.suppress(TimeoutError):
            c.finish(last, 0.2)
            last = None
    sniff = Sniffer(w.port["a"])
    time.sleep(LEASE_S)
    check(sniff.bytes(), 0, "bytes that left without the lease")
    sniff.close()
    w.etcd.signal(signal.SIGCONT)
    check(err(c.finish(last).status), "OK")
    c.ok(putfh(d), create(DIR, "more"))
    check("serving: boot" in w.log("b"), False, "a standby that serves")


def test_a_holder_that_stood_still_answers_nothing_and_ends(w):
    both(w)
    stands_still_and_wakes(w)


def test_one_whose_key_was_deleted_ends(w):
    both(w)
    c = w.client("a")
    make_files(c, "d", 20)
    w.etcd.ctl("del", "--prefix", f"weft/lease/{w.inst}/")
    check(w.ended("a") != 0, True, "status")
    w.says("a", "is gone; stopping")
    w.serves("b")
    has_files(w.client("b"), "d", 20)


def test_an_end_in_order_frees_the_key(w):
    both(w)
    make_files(w.client("a"), "d", 20)
    w.drop()
    check(w.stop("a"), 0)
    w.serves("b")
    has_files(w.client("b"), "d", 20)
    w.drop()
    check(w.stop("b"), 0)
    check(w.key(), "1 free")
    check(w.sql("select owner from weft.instance where id = $"), "")
    w.start("b")
    w.serves("b", 2)


def test_another_etcd_takes_nothing(w):
    w.start("a")
    w.serves("a")
    c = w.client("a")
    d = make_files(c, "d", 5)
    other = Etcd()
    try:
        w.start("b", f"mds.log_lease_in=etcd:{other.url}")
        w.says("b", "has its lease in another etcd")
        # Nor one whose lease is in PostgreSQL, where the row does not change.
        w.kill("b")
        w.start("b", "mds.log_lease_in=")
        w.says("b", "has its lease in etcd")
        stand_still(w.run["a"].pid)
        with contextlib.suppress(Failed):
            waited = time.monotonic() + 3 * LEASE_S
            while time.monotonic() < waited:
                check("serving: boot" in w.log("b"), False, "a process without the key that serves")
                time.sleep(0.2)
        check("serving: boot" in w.log("b"), False, "a process without the key that serves")
        w.run["a"].send_signal(signal.SIGCONT)
        c.ok(putfh(d), lookup("f1"))
        w.drop()
        # After an end in order it may.
        check(w.stop("a"), 0)
        w.serves("b")
        has_files(w.client("b"), "d", 5)
    finally:
        other.down()


def test_a_change_in_doubt_goes_with_its_holder(w):
    both(w)
    c, two = w.client("a"), w.client("a")
    d = make_files(c, "d", 5)
    w.pg("pause", "p")
    c.begin(putfh(d), create(DIR, "doubt"))
    longest(w, two, d, ["f1"], 2)
    check(err(two.call(putfh(d), lookup("doubt")).status), "NOENT")
    w.kill("a")
    # The key is due before PostgreSQL answers: nobody serves without the row.
    time.sleep(2 * LEASE_S)
    check("serving: boot" in w.log("b"), False, "a process without the row that serves")
    w.pg("resume", "p")
    w.serves("b")
    b = w.client("b")
    has_files(b, "d", 5)
    check(err(b.call(putfh(b.ok(putfh(b.root()), lookup("d"), getfh()).fh),
                     create(DIR, "doubt")).status) in ("OK", "EXIST"), True, "it is there, or not")
    make_files(b, "e", 5)


def server(w):
    return ask(w.admin["a"], "/v1/ds")[1]["ds"][0]


def test_data_servers_outlive_postgresql(w):
    # No data server is judged for what waits: it beats, and is answered.
    w.start("a", "ds.lease=3s", "mds.ds_dead=4s")
    w.serves("a")
    c, two = w.client("a"), w.client("a")
    d = make_files(c, "d", 3)
    w.says("a", "data server 1 (ds): ")
    eventually(lambda: server(w)["alive"], 60, "the data server is up")
    state = server(w)["state"]
    w.pg("pause", "p")
    made = c.begin(putfh(d), create(DIR, "made"))
    longest(w, two, d, ["f1"], 12)
    check((server(w)["alive"], server(w)["state"]), (True, state))
    w.pg("resume", "p")
    check(err(c.finish(made).status), "OK")
    check("dead" in w.log("a"), False, w.log("a")[-800:])


def test_tls_a_user_and_endpoints_that_are_away(w):
    certs = Certs()
    # Of one that has a common name etcd's gateway says that it will not be used, and refuses.
    certs.make("nameless", "ca", "extendedKeyUsage=clientAuth", subject="/O=weft")
    etcd = Etcd(certs)
    try:
        etcd.needs_users()
        with open(f"{w.top}/password", "w", encoding="ascii") as f:
            f.write("wrong\n")
        # Nobody listens at the first; the second does not answer.
        deaf = socket.create_server(("127.0.0.1", 0))
        keys = [f"mds.log_lease_in=etcd:https://127.0.0.1:1,"
                f"https://127.0.0.1:{deaf.getsockname()[1]},{etcd.url}",
                f"mds.etcd_ca={certs['ca']}", f"mds.etcd_cert={certs['nameless']}",
                f"mds.etcd_key={certs['nameless.key']}", "mds.etcd_user=weft",
                f"mds.etcd_password={w.top}/password"]
        w.start("a", *keys)
        w.says("a", "authentication failed")
        check("secret" in w.log("a"), False, "the password")
        with open(f"{w.top}/password", "w", encoding="ascii") as f:
            f.write("secret\n")
        w.serves("a")
        d = make_files(w.client("a"), "d", 3)
        # Its tokens end when it starts again.
        etcd.kill()
        w.says("a", "etcd does not extend the lease")
        etcd.start()
        w.says("a", "etcd extends the lease again")
        w.client("a").ok(putfh(d), create(DIR, "more"))
        w.drop()
        check(w.stop("a"), 0)
        # Another authority's certificate is not asked.
        w.start("a", *keys, f"mds.etcd_ca={certs['other']}")
        w.says("a", "certificate")
        check(w.log("a").count("serving: boot"), 1)
        deaf.close()
    finally:
        etcd.down()


def test_a_token_that_a_change_of_users_made_old_is_renewed(w):
    """etcd refuses a JSON Web Token for that, in other words than one that is over."""
    etcd = Etcd(tokens=True)
    try:
        etcd.needs_users()
        with open(f"{w.top}/password", "w", encoding="ascii") as f:
            f.write("secret\n")
        w.start("a", f"mds.log_lease_in=etcd:{etcd.url}", "mds.etcd_user=weft",
                f"mds.etcd_password={w.top}/password")
        w.serves("a")
        c = w.client("a")
        d = make_files(c, "d", 3)
        etcd.ctl("user", "add", "other:x")
        # It must have asked etcd again, more than once.
        asked = gauge(w, "etcd_requests_total")
        eventually(lambda: gauge(w, "etcd_requests_total") > asked + 8, 60, "questions to etcd")
        c.ok(putfh(d), create(DIR, "more"))
        check("auth store is old" in w.log("a"), False, w.log("a")[-800:])
    finally:
        etcd.down()


def test_a_wrong_lease_is_told(w):
    for text, *more in (("expected etcd: and endpoints", "mds.log_lease_in=consul:x"),
                        ("an endpoint is http", "mds.log_lease_in=etcd:192.0.2.1:2379"),
                        ("no endpoint is named", "mds.log_lease_in=etcd: ,"),
                        ("needs mds.log", "mds.log=", "mds.log_lease_in=etcd:http://a:1"),
                        ("belong together", "mds.etcd_cert=/x"),
                        ("by https:// only", "mds.log_lease_in=etcd:http://192.0.2.1:1",
                         "mds.etcd_user=u", "mds.etcd_password=/x")):
        log.refuses(w, text, *more, status=2)


@contextlib.contextmanager
def around(pg, etcd):
    w = World(pg, etcd, next(INSTANCES))
    try:
        w.ds()
        yield (w,)
    except BaseException:
        for one in "ab":
            print("\n".join(f"# {one}: {line}" for line in w.log(one).splitlines()[-12:]))
        raise
    finally:
        # A test that failed may have left it so.
        for one in ("p", "s1", "s2"):
            pg("resume", one)
        etcd.signal(signal.SIGCONT)
        w.down()


def main():
    if not glob.glob("/usr/lib/postgresql/*/bin/initdb"):
        return tap.skip("there is no PostgreSQL")
    if not shutil.which("etcd"):
        return tap.skip("there is no etcd")
    got = subprocess.run([program("weft-mds"), "--check=values", "-o",
                          "mds.log=postgresql:host=/"], capture_output=True, text=True,
                         check=False)
    if "built without PostgreSQL" in got.stderr:
        return tap.skip("weft-mds was built without PostgreSQL")
    with contextlib.ExitStack() as ends:
        pg, etcd = log.Postgres(), Etcd()
        ends.callback(pg.down)
        ends.callback(etcd.down)
        return tap.run(tap.named(globals()), lambda name: around(pg, etcd))


if __name__ == "__main__":
    main()
