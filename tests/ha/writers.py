#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""writers.py [--rounds N] [--lease S] [--kinds KIND,...] [--ledger FILE] [--no-control] - the
smallest instance that moves, pg_writer: a register whose log is in PostgreSQL (engine.py). It runs
on the nodes n1 and n2, one holds the instance, by a lease of S seconds (1.5), the other one waits.
Clients on c1 ask at its address; those on c2 go on talking to the node that had it first (a
permanent neighbour entry). Each failure is followed by the next one:

    kill     kill -9 of the holder
    power    a power cut of its node
    pause    the holder stops, and goes on when the other one has claimed and worked
    freeze   all in its node does
    cut      its node's port is down for as long
    apart    it and PostgreSQL do not reach each other for as long; clients reach it
    engine   all of PostgreSQL stops for 3 s: no take-over
    standby  the synchronous standby's node stops for 3 s
    cancel   an administrator cancels waits for the standby
    alone    an administrator makes synchronous_standby_names empty
    primary  a power cut of the primary's node: Patroni makes another one

Then the control: a holder that answers without a lease must be found."""
import argparse
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time

import engine
import judge
import ledger
from world import (HERE, Ended, NoProof, Off, honest, kill, liar, now, pause, reported, wait,
                   world)

PORT, SERVICE = 7000, "10.77.250.2"
BUILD = os.environ.get("WEFT_BUILD") or os.getcwd()
WRITER = os.path.join(os.environ.get("HA_BIN", os.path.join(BUILD, "tests/ha")), "pg_writer")
WEFT = os.path.join(os.environ.get("HA_BIN", BUILD), "weft")
KINDS = ("kill", "pause", "power", "cut", "apart", "freeze", "engine", "standby", "cancel",
         "alone")
GAP = 1.0  # seconds of work before a failure
BOTH = 1.5  # seconds in which clients write to the new holder and the old one is still away
PUTS = "-c1.0"  # the end of a history that has only writes
LOOKS = 5  # at who holds the instance, until one is still there to be struck
# A writer that ended starts again after PAUSE seconds. Each time that no claim came between, it
# waits twice as long, up to PAUSES; after MOST such times it stays away.
PAUSE, PAUSES, MOST = 0.1, 1.0, 100

failed = 0


def report(good, name, *why):
    global failed
    failed += not good
    print(f"{'ok' if good else 'not ok'} - {name}", flush=True)
    for line in [] if good else why:
        print(f"#   {line}", flush=True)


class Writers:
    """One instance of pg_writer on two nodes, and who follows what they say: the address is where
    the newest claim is."""

    def __init__(self, w, e, nodes, inst, lease, *args, all_hosts=False):
        self.w, self.e, self.nodes, self.inst, self.args = w, e, nodes, inst, args
        self.lease, self.holder, self.claims, self.epoch = lease, None, 0, 0
        self.writers, self.threads, self.ending, self.lock = {}, [], False, threading.Lock()
        self.rows, self.barren, self.broken = [], {n.name: 0 for n in nodes}, None
        self.clients = None
        # A look at the row has L / 4 for all hosts together, in which a busy machine does not even
        # connect to three. Where the primary stays, its address is enough.
        self.conninfo = e.conninfo(only=None if all_hosts else e.primary())
        done = subprocess.run(["nsenter", f"--net={nodes[0].path}", "--", WEFT, "pg", "init",
                               e.conninfo("postgres").replace("port=5432", "port=5432 "
                                                              "target_session_attrs=read-write"),
                               "--instance", str(inst)], capture_output=True, text=True,
                              check=False, timeout=60)
        if done.returncode:
            raise RuntimeError(f"weft pg init: {done.stderr}")
        for n in nodes:
            self.start(n)
        self.wait_claim(0)

    def start(self, node):
        """Starts a node's writer, if none runs there and this is not the end."""
        with self.lock, contextlib.suppress(Off):
            old = self.writers.get(node.name)
            if self.ending or old and old.poll() is None:
                return
            p = node.run(WRITER, "--conninfo", self.conninfo, "--inst", str(self.inst), "--owner",
                         node.name, "--lease-ms", str(int(self.lease * 1000)), "--listen",
                         f"{SERVICE}:{PORT}", *self.args, log=f"writer-{node.name}",
                         stdout=subprocess.PIPE, text=True)
            self.writers[node.name] = p
            t = threading.Thread(target=self.follow, args=(node, p), daemon=True)
            t.start()
            self.threads.append(t)

    def follow(self, node, p):
        for line in p.stdout:
            if line.startswith("claimed"):
                self.take(node, p, int(line.split()[1]))
        p.wait()
        with self.lock:
            mine = self.writers[node.name] is p and not self.ending
        if mine and node.on:
            self.order(node, "leave")
            self.back(node, p.returncode)

    def take(self, node, p, epoch):
        """The newest claim has the address. It counts before the agent has it: an agent in a node
        that stands still answers when that goes on."""
        with self.lock:
            self.barren[node.name] = 0
            self.claims += 1
            if epoch < self.epoch:
                return
            self.epoch, self.holder = epoch, (node, p)
            rows = [str(PORT), str(p.pid), *self.rows]
        self.order(node, "take", *rows)

    def order(self, node, what, *rows):
        try:
            node.order(what, f"{SERVICE}/16", *rows)
        except Exception as e:  # such as a power cut; clients notice where the address is missing
            if node.on and not self.ending and not self.w.ending:
                print(f"# {what} of {node.name}: {type(e).__name__} {e}", flush=True)

    def back(self, node, status):
        """Starts a writer that ended by itself."""
        with self.lock:
            self.barren[node.name] += 1
            n = self.barren[node.name]
            if n > MOST:
                self.broken = f"the writer of {node.name} ended {n} times, now with {status}"
                return
        time.sleep(min(PAUSES, PAUSE * 2 ** min(n - 1, 10)))
        self.start(node)

    def wait_claim(self, claims, seconds=60):
        wait(lambda: self.claims > claims or self.broken, "claim", seconds)
        if self.broken:
            raise RuntimeError(self.broken)

    def end(self):
        with self.lock:  # no writer starts from here on
            self.ending = True
        for p in self.writers.values():
            p.send_signal(signal.SIGCONT)
            p.kill()
        for t in self.threads:
            t.join(30)
        for n in self.nodes:
            if n.on:
                self.order(n, "leave")

    # ---- failures: each returns what shows that it struck

    def strike(self, kind):
        for _ in range(LOOKS):
            with self.lock:
                (node, p), claims = self.holder, self.claims
                self.rows = node.connections(PORT)
            at = now()
            try:
                if p.poll() is not None:
                    raise Ended(f"it ended with {p.returncode}")
                proof = getattr(self, "hit_" + kind)(node, p, claims)
                break
            except Ended as e:  # its lease is over where a machine had no time for it
                print(f"# {kind} of {node.name}: {e}; who holds it now?", flush=True)
                self.wait_claim(claims)
        else:
            raise NoProof(f"no holder stays until {kind} strikes")
        if not proof:
            raise NoProof(f"{kind} struck nothing")
        self.w.fault(kind, node.name, at, proof)
        if kind in ("kill", "power", "pause", "freeze", "cut", "apart"):
            self.wait_claim(claims)
        if kind == "power":
            node.power_on()
            self.start(node)
        self.w.healed()

    def hold(self, claims):
        """Until the other node has claimed, clients write there, and have done so for a while.
        claims: how many there were before the failure."""
        self.wait_claim(claims)
        self.clients.settle(PUTS)
        time.sleep(BOTH)

    def hit_kill(self, _node, p, _):
        return kill(p)

    def hit_power(self, node, _p, _):
        return node.power_off()

    def hit_pause(self, _node, p, claims):
        proof = pause(p)
        self.hold(claims)
        p.send_signal(signal.SIGCONT)
        return proof

    def hit_freeze(self, node, _p, claims):
        proof = node.freeze()
        self.hold(claims)
        node.wake()
        return proof

    def hit_cut(self, node, _p, claims):
        proof = node.unplug()
        self.hold(claims)
        node.plug()
        return proof

    def hit_apart(self, node, _p, claims):
        self.w.filter.between(node, *self.e.nodes)
        self.hold(claims)
        return self.w.filter.heal()

    def hit_engine(self, *_):
        return self.e.stop_for(self.e.nodes, 3)

    def hit_standby(self, *_):
        return self.e.stop_for([self.e.standby()], 3)

    def hit_cancel(self, *_):
        return self.e.cancel(2)

    def hit_alone(self, *_):
        return self.e.alone(1)

    def hit_primary(self, *_):
        n = self.e.primary()
        proof = n.power_off()
        wait(self.e.ready, "other primary", 120, 0.2)
        self.e.boot(n)
        return proof


class Clients:
    """Of ws. c1 is honest. c2 sends to the link address of the holder of now, whoever has the
    service later."""

    def __init__(self, w, c1, c2, ws, name):
        self.w, self.name, self.c2, ws.clients = w, name, c2, self
        node = ws.holder[0]
        self.out = os.path.join(w.work, "h", name)
        self.stop = os.path.join(w.work, "shared", f"{name}.stop")
        print(f"# {liar(c2, node, SERVICE)}", flush=True)
        program = os.path.join(HERE, "register.py")
        self.running = [n.run("python3", "-S", program, f"{SERVICE}:{PORT}", f"{self.out}-{n.name}",
                              n.name, self.stop, *roles, log=f"{name}-{n.name}")
                        for n, roles in ((c1, ("put", "put", "get", "get")),
                                         (c2, ("get", "get", "get")))]
        wait(lambda: self.size() > 4000, "first answers", 60)

    def paths(self):
        h = os.path.dirname(self.out)
        return [os.path.join(h, n) for n in sorted(os.listdir(h)) if n.startswith(self.name + "-")]

    def size(self):
        return min([os.path.getsize(p) for p in self.paths() if "-c1." in p] or [0])

    def settle(self, whose="-c1."):
        """Each process of c1 has answers again."""
        for p in self.paths():
            if whose in p:
                begin = now()
                wait(lambda p=p, begin=begin: answered(p, begin), f"answers in {p}", 90, 0.02)

    def end(self):
        open(self.stop, "w", encoding="ascii").close()
        status = [p.wait(30) for p in self.running]
        honest(self.c2, SERVICE)
        return status


def answered(path, since):
    with open(path, "rb") as f:
        f.seek(max(0, os.path.getsize(path) - 2000))
        lines = [json.loads(x) for x in f.read().split(b"\n")[1:-1]]
    calls = {r["n"] for r in lines if r["e"] == "call" and r["t"] > since}
    return any(r["n"] in calls and "err" not in r for r in lines if r["e"] == "done")


def series(w, ws, cs, a):
    begun = now()
    kinds = a.kinds.split(",") if a.kinds else KINDS
    for i in range(a.rounds):
        time.sleep(GAP)
        ws.strike(kinds[i % len(kinds)])
        cs.settle()
    status = cs.end()
    w.marks.flush()
    bad, log = judge.judge(judge.read([*cs.paths(), os.path.join(w.work, "h", "world")]))
    puts = sum(o.op == "put" and o.res < judge.INF for o in log.ops)
    gets = sum(o.op == "get" and o.res < judge.INF for o in log.ops)
    liars = sum(o.op == "get" and o.res < judge.INF and o.client == "c2" for o in log.ops)
    report(not bad and not any(status) and w.faults == a.rounds and liars > 0,
           f"{a.rounds} failures in {now() - begun:.0f} s, {puts} acknowledged writes, "
           f"{gets} reads, {liars} of them by the old address, {ws.claims} claims, "
           f"{len(bad)} violations",
           f"status {status}, {w.faults} faults",
           *(line for b in bad[:10] for line in str(b).splitlines()))
    figures = {}
    for mark, most in judge.longest(log):
        figures.setdefault(mark["kind"], []).append((most.get("no put", 0), mark["load"]))
        print(f"# {mark['kind']} of {mark['node']}: longest "
              + " ".join(f"{op} {s:.2f}" for op, s in sorted(most.items())) + " s", flush=True)
    ledger.add(a.ledger, "writers", (w.faults, len(log.ops), len(bad)), figures, a.lease)


def control(w, e, nodes, clients, inst, a, name, kinds, *args):
    """The same with a rule taken away: the checker must find it after one of these failures."""
    ws = Writers(w, e, nodes, inst, a.lease, *args)
    cs = Clients(w, *clients, ws, name)
    for kind in kinds:
        time.sleep(GAP)
        ws.strike(kind)
        cs.settle("-c2.")
        time.sleep(GAP)
    cs.end()
    ws.end()
    bad, _ = judge.judge(judge.read(cs.paths()))
    kinds = {b.kind for b in bad}
    report(kinds & {"lost", "back"}, f"control: {args[0]} is found ({', '.join(sorted(kinds))})",
           "the checker found nothing")


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--rounds", type=int, default=len(KINDS))
    p.add_argument("--lease", type=float, default=1.5)
    p.add_argument("--kinds")
    p.add_argument("--ledger")
    p.add_argument("--no-control", action="store_true")
    a = p.parse_args()
    why = engine.missing()
    if not os.access(WRITER, os.X_OK):
        why = "pg_writer, which needs libpq"
    if why or not shutil.which("nft"):
        print(f"skip - writers: it needs {why or 'nft'}")
        return 0
    with world() as w:
        e = engine.Engine(w)
        print(f"# PostgreSQL is up, {e.primary().name} is its primary", flush=True)
        nodes, clients = [w.node("n1"), w.node("n2")], [w.node("c1"), w.node("c2")]
        for n in nodes:
            n.start_agent()
        ws = Writers(w, e, nodes, 1, a.lease, all_hosts="primary" in (a.kinds or ""))
        cs = Clients(w, *clients, ws, "main")
        series(w, ws, cs, a)
        ws.end()
        if not a.no_control:
            control(w, e, nodes, clients, 2, a, "lease", ("apart",), "--no-lease")
    return failed != 0


if __name__ == "__main__":
    sys.exit(reported("writers", main))
