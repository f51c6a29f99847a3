# SPDX-License-Identifier: Apache-2.0
"""controls.py - what an instance does when a rule is taken away, which the checker must find. For
instance.py. A client works through each of these; one of its two mounts goes on talking to the node
that served at first (a permanent neighbour entry), whoever has the address later.

    lease      answers go out without a look at the lease. The node is cut off from PostgreSQL.
    guard      a process that is no longer the one writes on. It stands still and wakes.
    doubt      a batch in doubt is looked for by a read. PostgreSQL's standbys stand still, its
               primary shows a batch that no standby has, and fails.
    promotion  a standby that lacks what was acknowledged is made the primary by hand

lease, guard and doubt are mistakes in weft-mds (without.c), promotion is an administrator's. The
last two have a PostgreSQL of their own, without a manager (pgcluster). There all copies that know
better go with the failure: they would notice."""
import json
import os
import shutil
import signal
import subprocess
import time

import judge
from client import ROLES
from moves import CLOCK, GAP, PORT, SERVICE, begin, fresh, histories, report
from world import HERE, ip, now, pause, wait

OTHER = "10.77.250.3"  # the service address of the client's second mount
LOG_LEASE = 2.0  # mds.log_lease
# mds.lease: the node that takes over waits for a client that talks to the other one.
LEASE = 4
TABLE = "create table if not exists public.own (owner text primary key, session int8, batch int8)"
LONG = 2.0  # seconds of work that the checker is to find something in
# An answer that is older than what was acknowledged, or what was acknowledged is gone.
FOUND = {"lost", "back", "name-lost", "name-back"}


class Client:
    """A guest that works. work is the folder for its histories; phase, the number of its folder at
    the server."""

    def __init__(self, w, number, work, phase=1):
        self.w, self.orders, self.number, self.work, self.phase = w, 0, number, work, phase
        self.port = f"lab{number}"
        for d in ("shared", "h"):
            os.makedirs(os.path.join(work, d), exist_ok=True)
        self.guest = w.guest(number, os.path.join(HERE, "guest.sh"), f"{SERVICE},{OTHER}",
                             str(PORT), self.work, CLOCK, str(phase))
        begin(self, phase)

    def ip(self, *words):
        """The guest does that."""
        self.orders += 1
        path = os.path.join(self.work, "shared")
        with open(f"{path}/new", "w", encoding="ascii") as f:
            f.write(" ".join(words))
        os.rename(f"{path}/new", f"{path}/order{self.orders}")
        wait(lambda: os.path.exists(f"{path}/did{self.orders}"), "order of the guest")

    def stick_to(self, node):
        """The second mount goes on talking to this node."""
        mac = json.loads(node.here("ip", "-j", "link", "show", "eth0"))[0]["address"]
        self.ip("neigh", "replace", OTHER, "lladdr", mac, "nud", "permanent", "dev", "vec0")

    def let_go(self):
        """It asks again where the address is."""
        self.ip("neigh", "del", OTHER, "dev", "vec0")

    def is_believed(self, node):
        """It sticks to this node, which answers it for ever, and whose calls for the addresses
        nobody else hears."""
        ip("-n", node.name, "neigh", "replace", f"10.77.{self.number}.2", "lladdr",
           f"02:77:00:00:{self.number:02x}:02", "nud", "permanent", "dev", "eth0")
        self.w.filter.no_arp(node)
        self.stick_to(node)

    def works(self, since):
        """Each process of the first mount has had an answer to something that it asked later."""
        with open(f"{self.work}/h/p1.clock", encoding="ascii") as f:
            offset = json.loads(f.readline())["offset"]
        for k in range(len(ROLES["a"])):
            wait(lambda k=k: fresh(f"{self.work}/h/p1.{k}", since - offset),
                 f"work of process {k}", 60, 0.05)

    def die(self):
        """It loses its power: no FIN, no RST."""
        ip("link", "set", self.port, "down")
        self.guest.terminate()
        self.guest.wait(30)
        return f"port {self.port} is down, guest {self.number} was killed"

    def found(self):
        """Ends it. What of FOUND the checker finds, and how many operations it saw."""
        self.guest.terminate()
        self.guest.wait(30)
        bad, log = judge.judge(judge.read(histories(self, 1, False)))
        return [b for b in bad if b.kind in FOUND], len(log.ops)


class ByHand:
    """PostgreSQL in a folder, with a primary p and two standbys, and nobody who looks after it."""

    def __init__(self, w, name):
        self.folder, self.lead = os.path.join(w.work, f"pg-{name}"), "p"
        self.do("make")

    def do(self, *words):
        return subprocess.run(["bash", os.path.join(HERE, "pgcluster"), self.folder, *words],
                              check=True, stdout=subprocess.PIPE, text=True,
                              timeout=120).stdout.strip()

    def conninfo(self, user):
        hosts = ",".join(os.path.join(self.folder, n) for n in ("p", "s1", "s2"))
        return f"host={hosts} port=5432 user={user} dbname=postgres"

    reach = conninfo

    def sql(self, text):
        return self.do("sql", self.lead, text)

    def fail_over(self, name, other):
        """All are dead. name is started and made the primary; the other one, its standby, begins
        as a copy of it."""
        for n in ("p", "s1", "s2"):
            self.do("kill", n)
        here, there = (os.path.join(self.folder, n) for n in (name, other))
        shutil.rmtree(there)
        subprocess.run(["cp", "-a", here, there], check=True)
        with open(os.path.join(there, "postgresql.conf"), "a", encoding="ascii") as f:
            f.write(f"unix_socket_directories = '{there}'\nprimary_conninfo = 'host={here} "
                    f"port=5432 user=postgres application_name={other}'\n")
        self.do("start", name)
        self.do("promote", name)
        self.lead = name
        self.sql(f"alter system set synchronous_standby_names = '{other}'")
        self.sql("select pg_reload_conf()")
        self.do("start", other)
        return f"{name} was made the primary"


def lease(m, c):
    node, _ = m.back()
    c.is_believed(node)
    time.sleep(GAP)
    epoch = m.row()[0]
    m.w.filter.between(node, *m.e.nodes)
    m.hold(epoch, 0)
    c.works(now())
    time.sleep(LONG)
    return m.w.filter.heal()


def guard(m, c):
    node, _ = m.back()
    c.is_believed(node)
    time.sleep(GAP)
    epoch, p = m.row()[0], m.mds[node.name]
    proof = pause(p)
    m.hold(epoch, 0)
    c.works(now())
    time.sleep(LONG)
    p.send_signal(signal.SIGCONT)
    time.sleep(LONG)
    return proof


def standby_off(m):
    """The copy that stands by loses its power: it ends where it is."""
    node, other = m.back()
    other.power_off()
    time.sleep(GAP)
    return node, other


def other_serves(m, node, other):
    """The copy that served is gone, the other one comes back with what it has."""
    node.power_off()
    other.power_on()
    epoch = m.row()[0]
    m.boot(other)
    m.hold(epoch, 0)


def doubt(m, c):
    node, other = standby_off(m)
    m.e.do("pause", "s1")
    m.e.do("pause", "s2")
    time.sleep(3 * m.lease)
    proof = m.e.fail_over("s1", "s2")
    other_serves(m, node, other)
    c.works(now())
    return proof


def promotion(m, c):
    node, other = standby_off(m)
    m.e.do("pause", "s2")
    time.sleep(LONG)
    proof = m.e.fail_over("s2", "s1")
    other_serves(m, node, other)
    c.works(now())
    return proof


# name: the rule, what is wrong, what is known of its instance
ALL = {
    "lease": (lease, "an instance that answers without a lease", {"without": "lease"}),
    "guard": (guard, "an instance whose statements have no guard",
              {"without": "guard", "user": "postgres"}),
    "doubt": (doubt, "a batch in doubt that was looked for by a read",
              {"without": "doubt", "user": "postgres"}),
    "promotion": (promotion, "a primary that lacks what was acknowledged", {"user": "postgres"}),
}


def run(w, make, e, names):
    """make: the class of instances; e: PostgreSQL with its manager."""
    for number, name in enumerate(names, 2):
        rule, what, how = ALL[name]
        of = e if name in ("lease", "guard") else ByHand(w, name)
        if rule is guard:
            e.sql(TABLE)
        m = make(w, of, LOG_LEASE, number, client=LEASE, **how)
        c = Client(w, number, os.path.join(w.work, "h", name))
        begun, proof = now(), rule(m, c)
        bad, n = c.found()
        m.end()
        kinds = ", ".join(sorted({b.kind for b in bad}))
        report(bad, f"control: {what} is found in {now() - begun:.0f} s ({len(bad)}: {kinds}; "
               f"{proof})", f"the checker found nothing in {n} operations")
