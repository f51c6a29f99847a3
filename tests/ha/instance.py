#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""instance.py [--rounds N] [--lease S] [--kinds KIND,...] [--ledger FILE] [--limit S]
[--client S] [--controls NAME,...] [--no-control] - an instance whose log is in PostgreSQL
(engine.py), as docs/ha.md sets it up: weft-mds on two nodes, each with a store of its own, and
weft-addr on both. One serves, the other one stands by and takes over by itself. A stock client
(guest.sh) works through it all. No operation may last longer than --limit seconds (4), not counting
the time in which nothing can be answered (strikes.py). --lease is mds.log_lease (1.5), and --client
mds.lease (21).

n1 and n2 are its nodes, d1 and d2 have the data servers. N failures come, of the KINDs in turn
(strikes.py; the first twelve). A server that ended is started again before the next failure. Then
come the controls (controls.py). --rounds 0: only those."""
import argparse
import os
import signal
import subprocess
import sys
import time

import controls
import engine
import judge
import ledger
import moves
from controls import OTHER, Client
from moves import BUILD, CLOCK, GAP, PORT, SERVICE, end, histories, report, settle
from strikes import BOTH, KINDS, PRIMARIES, Clock, Strikes
from world import HERE, disk, now, reported, wait, world

CONTROL = os.path.join(os.environ.get("HA_BIN", os.path.join(BUILD, "tests/ha")), "weft-mds")
FIRST = 12  # of the kinds of failures, without --kinds
TIGHT = 4.0


class Instance(Strikes):
    """number is mds.fs. One instance runs at a time on the nodes: end() makes room for another.
    program is weft-mds, or the one from which WEFT_WITHOUT takes the rule `without` away. client:
    mds.lease, in seconds."""

    def __init__(self, w, e, lease, number=1, user="weft", without=None, client=moves.LEASE,
                 kinds=()):
        self.w, self.e, self.lease, self.number, self.user = w, e, lease, number, user
        self.program, self.env, self.kinds = os.path.join(BUILD, "weft-mds"), {}, kinds
        self.clocks, self.client, self.others = {}, None, 0
        if without or "clock" in kinds:
            self.program = CONTROL
            self.env = {"WEFT_WITHOUT": without or ""}
        self.tail = f"-{number}" if number > 1 else ""
        self.nodes, self.stores = ([w.nodes.get(n) or w.node(n) for n in pair]
                                   for pair in (("n1", "n2"), ("d1", "d2")))
        self.mds, self.holders = {}, {}
        for n in self.stores:
            os.mkdir(self.folder(n))
        for n in self.nodes:
            os.mkdir(self.folder(n))
            self.clocks[n.name] = Clock(os.path.join(w.work, f"clock-{n.name}"))
            if "full" in kinds:
                disk(self.folder(n), 256)
        self.init()
        self.conf = self.write_conf(client)
        for n in self.nodes:
            if not n.agent:
                n.start_agent()
            self.boot(n)
        wait(self.active, "holder")
        self.ds = [n.run(os.path.join(BUILD, "weft-ds"), "-c", self.conf, "-o", f"ds.name={n.name}",
                         "-o", f"ds.listen={n.addr}:12050", "-o", f"ds.advertise={n.addr}:12050",
                         "-o", f"ds.store={self.folder(n)}", log=n.name + self.tail)
                   for n in self.stores]

    def folder(self, n):
        """The store of a node."""
        return os.path.join(self.w.work, ("mds-" if n in self.nodes else "") + n.name + self.tail)

    def text(self, n):
        """What the newest server of a node has said."""
        return self.w.text(f"mds-{n.name}{self.tail}").rpartition("version ")[2]

    def init(self):
        done = subprocess.run(
            ["nsenter", f"--net={self.nodes[0].path}", "--", os.path.join(BUILD, "weft"), "pg",
             "init", self.e.conninfo("postgres") + " target_session_attrs=read-write", "--instance",
             str(self.number)], capture_output=True, text=True, check=False, timeout=60)
        if done.returncode:
            raise RuntimeError(f"weft pg init: {done.stderr}")

    def write_conf(self, client):
        with open(os.path.join(self.w.work, "addr.conf"), "w", encoding="ascii") as f:
            f.write(f"{SERVICE} eth0\n{OTHER} eth0\n")
        return moves.write_conf(self.w.work, f'''	log = "postgresql:{self.log_at()}"
	log_lease = {int(self.lease * 1000)}ms
	addresses = "{SERVICE}, {OTHER}"
	fs = {self.number}
''', client)

    def log_at(self):
        if set(self.kinds) & set(PRIMARIES):
            return self.e.conninfo(self.user)
        return self.e.reach(self.user)

    def boot(self, n):
        """What a node starts when it has power."""
        for what, start in ((self.holders, self.start_addr), (self.mds, self.start_mds)):
            if n.name not in what or what[n.name].poll() is not None:
                what[n.name] = start(n)

    def start_addr(self, n):
        return n.run(os.path.join(BUILD, "weft-addr"), "-c", f"{self.w.work}/addr.conf", "-g",
                     "root", "-s", f"{self.w.work}/{n.name}.addr", log=f"addr-{n.name}")

    def start_mds(self, n):
        return n.run(self.program, "-c", self.conf, "-o", f"mds.store={self.folder(n)}", "-o",
                     f"mds.listen={SERVICE}:{PORT}, {OTHER}:{PORT}", "-o",
                     f"mds.admin=unix:{self.w.work}/{n.name}.sock", "-o",
                     f"mds.node={n.name}", "-o",
                     f"mds.addr_socket={self.w.work}/{n.name}.addr",
                     log=f"mds-{n.name}{self.tail}",
                     env={**self.env, "WEFT_CLOCK": self.clocks[n.name].path})

    def end(self):
        """Ends all of it at once; the nodes stay."""
        self.w.filter.flush()
        for n in self.nodes:
            if not n.on:
                n.power_on()
        for p in [*self.mds.values(), *self.ds]:
            p.send_signal(signal.SIGCONT)
            p.kill()
            p.wait()
        for p in self.holders.values():  # it takes the addresses away
            p.send_signal(signal.SIGCONT)
            p.terminate()
            p.wait(60)

    def row(self):
        """(epoch, the node that holds it or None)"""
        got = self.e.sql("select epoch, owner from weft.instance "
                         f"where id = {self.number}").split("|")
        return int(got[0]), next((n for n in self.nodes if f"mds-{n.name}" in got[1]), None)

    def active(self):
        n = self.row()[1]
        if n and "serving: boot" in self.text(n):
            return n
        return None

    def back(self):
        """All run, and one of them stands by."""
        for n in self.nodes:
            if not n.on:
                n.power_on()
            self.boot(n)
        holder = wait(self.active, "holder", 60, 0.2)
        other = next(n for n in self.nodes if n is not holder)
        wait(lambda: "standby: another" in self.text(other), "standby", 60, 0.05)
        return holder, other

    def strike(self, kind):
        node, other = self.back()
        time.sleep(GAP)
        epoch, at = self.row()[0], now()
        proof = getattr(self, "hit_" + kind)(node, other, epoch)
        self.w.fault(kind, node.name, at, proof)
        moves_it = KINDS[kind][0]
        if moves_it:
            self.hold(epoch, 0)
        elif moves_it is False and self.row()[0] != epoch:
            report(False, f"{kind} moves nothing")
        self.w.healed()

    def hold(self, epoch, seconds=BOTH):
        wait(lambda: self.row()[0] > epoch, "take-over", 60, 0.05)
        time.sleep(seconds)

    def deposed(self, node, proof):
        """Where it can speak again, the former holder ends."""
        p = self.mds[node.name]
        wait(lambda: p.poll() is not None, "end of the one that was deposed")
        return f"{proof}; then it ended with status {p.returncode}"


def series(w, m, a):
    """The failures of --rounds, each of which the client must survive."""
    begun = now()
    for i in range(a.rounds):
        m.strike(m.kinds[i % len(m.kinds)])
        settle(w, 1)
    status = end(w, 1)
    report(status == 0, "the client works through all of it", f"status {status}",
           *w.text("guest1").splitlines()[-10:])
    bad, log = judge.judge(judge.read(histories(w, 1)))
    report(not bad and w.faults == a.rounds, f"{a.rounds} failures in {now() - begun:.0f} s, "
           f"{len(log.ops)} operations, {len(bad)} violations",
           *(line for b in bad[:10] for line in str(b).splitlines()))
    figures, slow = {}, []
    for mark, most in judge.longest(log):
        longest = max(most.values(), default=0)
        figures.setdefault(mark["kind"], []).append((longest, mark["load"]))
        more = KINDS[mark["kind"]][1]
        if more is not None and longest > a.limit + more:
            slow.append(f"{mark['kind']} of {mark['node']}: {longest:.2f} s")
        print(f"# {mark['kind']} of {mark['node']}: longest "
              + " ".join(f"{op} {s:.2f}" for op, s in sorted(most.items())) + " s", flush=True)
    held(w, log)
    report(not slow, f"no operation lasts longer than {a.limit} s", *slow)
    ledger.add(a.ledger, "instance", (w.faults, len(log.ops), len(bad)), figures, a.lease)


def held(w, log):
    """The first mount had delegations and layouts: it opens without asking for it."""
    line = w.text("guest1").rpartition("# asked: ")[2].splitlines()[0]
    asked = {k: int(v) for k, v in (x.split("=") for x in line.split())}
    opens = sum(o.client == "a" and o.op in ("open", "create") for o in log.ops)
    n = asked["OPEN"] + asked["OPEN_NOATTR"]
    report(n < opens and asked["LAYOUTGET"], f"the client held delegations and layouts: it asked "
           f"for {n} of {opens} opens, and for {asked['LAYOUTGET']} layouts", line)


def ends(m):
    """Both are ended in order."""
    holder, other = m.back()
    for n in (other, holder):
        m.mds[n.name].terminate()
        status = m.mds[n.name].wait(60)
        report(status == 0, f"the server of {n.name} ends in order",
               *m.text(n).splitlines()[-5:])


def broken(w, e, a):
    m = Instance(w, e, a.lease, client=a.client,
                 kinds=a.kinds.split(",") if a.kinds else list(KINDS)[:FIRST])
    m.client = Client(w, 1, w.work)
    series(w, m, a)
    open(os.path.join(w.work, "shared", "end"), "w", encoding="ascii").close()
    status = m.client.guest.wait(60)
    report(status == 0, "the guest has nothing to complain of", f"status {status}",
           *w.text("guest1").splitlines()[-10:])
    ends(m)
    m.end()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--rounds", type=int, default=FIRST)
    p.add_argument("--lease", type=float, default=1.5)
    p.add_argument("--client", type=int, default=moves.LEASE)
    p.add_argument("--kinds")
    p.add_argument("--limit", type=float, default=TIGHT)
    p.add_argument("--ledger")
    p.add_argument("--controls", default=",".join(controls.ALL))
    p.add_argument("--no-control", action="store_true")
    a = p.parse_args()
    why = engine.missing()
    if not os.access(CONTROL, os.X_OK):
        why = "tests/ha/weft-mds, which needs libpq"
    if why:
        print(f"skip - instance: it needs {why}")
        return 0
    with world() as w:
        w.started.append(subprocess.Popen([sys.executable, os.path.join(HERE,
                                           "../checker/record.py"), "clock",
                                           CLOCK.rsplit(":", 1)[1]]))
        e = engine.Engine(w, 700 if "brim" in (a.kinds or "") else 0)
        if a.rounds:
            broken(w, e, a)
        if not a.no_control:
            controls.run(w, Instance, e, a.controls.split(","))
    print(f"# {moves.failed} failed" if moves.failed else "# all as it must be", flush=True)
    return moves.failed != 0


if __name__ == "__main__":
    sys.exit(reported("instance", main))
