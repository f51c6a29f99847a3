#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""moves.py [--rounds N] [--detect S] [--ledger FILE] [--limit S] [--no-control] - a metadata server
that moves between two nodes, with its store on a disk that both reach, as a shared drive is. No
operation may last longer than --limit seconds (6).

n1 and n2 are its nodes, d1 and d2 have the data servers, and a stock client (guest.sh) works
through it all. After some failures the other node takes over, --detect seconds later (what notices
is not here yet, so that time is given):

    power    a power cut of the server's node
    hang     the same, 0.4 s after all in the node hung
    kill     kill -9 of the server

After the others nobody takes over; the server goes on:

    restart  kill -9, and the server is started again on its node at once
    pause    the server stops and goes on (SIGSTOP, SIGCONT)
    freeze   all in its node does
    cut      its node's port is down for a while
    deaf     what the client sends does not reach the node; what the node sends arrives
    apart    the data servers and the server do not reach each other

Then the checker judges, weft-fsck looks at the store, and the controls come: a take-over without
tickles that must be found slow (by TIGHT, whatever --limit is), and one with an old copy of the
store, whose losses must be found."""
import argparse
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import time

import judge
import ledger
from world import HANG, HERE, gone, kill, now, pause, reported, wait, world

PORT, SERVICE, CLOCK = 12049, "10.77.250.1", "10.77.0.1:9999"
BUILD = os.environ.get("WEFT_BUILD") or os.getcwd()
TIGHT = 6.0  # seconds that an operation may last where the machine has time for it
# A client that has asked nothing for a third of this may ask for a renewal, and so find out without
# a tickle: that must be later than TIGHT.
LEASE = 21
HOLD = 2.0  # seconds of what ends by itself
GAP = 1.5  # seconds of work before a failure
MOVING = ("power", "hang", "kill")
KINDS = ("power", "hang", "restart", "cut", "kill", "pause", "deaf", "freeze", "apart")

failed = 0


def report(good, name, *why):
    global failed
    failed += not good
    print(f"{'ok' if good else 'not ok'} - {name}", flush=True)
    for line in [] if good else why:
        print(f"#   {line}", flush=True)


def write_conf(w, more="", lease=LEASE):
    """The configuration of all daemons, in the world's folder w; more: lines of weft-mds; lease:
    mds.lease, in seconds."""
    key = os.path.join(w, "key")
    with open(os.open(key, os.O_CREAT | os.O_WRONLY, 0o600), "w", encoding="ascii") as f:
        f.write(secrets.token_hex(32) + "\n")
    with open(os.path.join(w, "exports"), "w", encoding="ascii") as f:
        f.write('export "/" {\n\tclient "*" { access = rw  squash = none  '
                'privileged_port = false }\n}\n')
    conf = os.path.join(w, "weft.conf")
    with open(conf, "w", encoding="ascii") as f:
        f.write(f'''mds {{
	listen = "{SERVICE}:{PORT}"
	cluster_key = "{key}"
	exports = "{w}/exports"
	pool = "16M"
	lease = {lease}s
	grace = {lease + 2}s
{more}}}
ds {{
	mds = "{SERVICE}:{PORT}"
	cluster_key = "{key}"
	pool = "32M"
}}
''')
    return conf


class Mover:
    """The cluster. active is the node whose server has the address."""

    def __init__(self, w):
        self.w, self.tickles, self.hang = w, True, HANG
        self.nodes = [w.node("n1"), w.node("n2")]
        self.stores = [w.node("d1"), w.node("d2")]
        for n in self.nodes:
            n.start_agent()
        self.store = os.path.join(w.work, "mds")
        for d in ("d1", "d2", "mds"):
            os.mkdir(os.path.join(w.work, d))
        self.conf = write_conf(w.work, f'	admin = "unix:{w.work}/mds.sock"\n')
        self.active, self.other = self.nodes
        self.mds = self.start(self.active)
        self.active.order("take", f"{SERVICE}/16")
        self.ds = [n.run(os.path.join(BUILD, "weft-ds"), "-c", self.conf, "-o", f"ds.name={n.name}",
                         "-o", f"ds.listen={n.addr}:12050", "-o", f"ds.advertise={n.addr}:12050",
                         "-o", f"ds.store={w.work}/{n.name}", log=n.name) for n in self.stores]

    def start(self, node, *args):
        """A server that listens, although its address is not there yet (IP_FREEBIND)."""
        p = node.run(os.path.join(BUILD, "weft-mds"), "-c", self.conf, "-o",
                     f"mds.store={self.store}", *args, log="mds")
        wait(lambda: node.listens(PORT) or p.poll() is not None, "listening server")
        if p.poll() is not None:
            raise RuntimeError("weft-mds ended: " + self.w.text("mds")[-500:])
        return p

    def take_over(self, peers):
        """The other node serves, with the address."""
        self.active, self.other = self.other, self.active
        self.mds = self.start(self.active)
        rows = [str(PORT), str(self.mds.pid), *peers] if self.tickles else []
        self.active.order("take", f"{SERVICE}/16", *rows)

    # ---- failures: each strikes, and the other node takes over

    def strike(self, kind, detect):
        peers, node = self.active.connections(PORT), self.active
        at, proof = now(), getattr(self, "hit_" + kind)(node)
        struck = now()
        self.w.fault(kind, node.name, at, proof)
        if kind in MOVING:
            time.sleep(max(0, detect - (now() - struck)))
            if not gone(self.mds.pid):
                raise RuntimeError("the old server still runs: two would have one store")
            self.take_over(peers)
        self.w.healed()

    def hit_kill(self, node):
        proof = kill(self.mds)
        node.order("leave", f"{SERVICE}/16")
        return proof

    def hit_power(self, node):
        return node.power_off()

    def hit_hang(self, node):
        proof = node.freeze()
        time.sleep(self.hang)
        return f"{proof}; {self.hang} s later {node.power_off()}"

    def hit_restart(self, node):
        proof = kill(self.mds)
        self.mds = self.start(node)
        return proof

    def hit_pause(self, _):
        proof = pause(self.mds)
        time.sleep(HOLD)
        self.mds.send_signal(signal.SIGCONT)
        return proof

    def hit_freeze(self, node):
        proof = node.freeze()
        time.sleep(HOLD)
        node.wake()
        return proof

    def hit_cut(self, node):
        proof = node.unplug()
        time.sleep(HOLD)
        node.plug()
        return proof

    def filtered(self):
        time.sleep(HOLD)
        return self.w.filter.heal()

    def hit_deaf(self, node):
        self.w.filter.one_way("lab1", node)
        return self.filtered()

    def hit_apart(self, node):
        self.w.filter.between(node, *self.stores)
        return self.filtered()

    def back(self):
        """The node that failed boots, and is there for the next take-over."""
        if not self.other.on:
            self.other.power_on()


def histories(w, phase, world_too=True):
    h = os.path.join(w.work, "h")
    return [os.path.join(h, n) for n in sorted(os.listdir(h))
            if n.startswith(f"p{phase}.") or (world_too and n == "world")]


def fresh(path, since):
    """Does this history have the end of an operation that began after that time?"""
    with open(path, "rb") as f:
        f.seek(max(0, os.fstat(f.fileno()).st_size - 8192))
        lines = [json.loads(x) for x in f.read().split(b"\n")[1:-1]]
    calls = {r["n"] for r in lines if r["e"] == "call" and r["t"] > since}
    return any(r["n"] in calls for r in lines if r["e"] == "done")


def settle(w, phase):
    """Waits until each process of the client works again, so that what is slow now does not count
    for the next failure."""
    at, h = now(), os.path.join(w.work, "h")
    with open(f"{h}/p{phase}.clock", encoding="ascii") as f:
        offset = json.loads(f.readline())["offset"]
    for n in os.listdir(h):
        if n.startswith(f"p{phase}.") and n != f"p{phase}.clock":
            wait(lambda n=n: fresh(f"{h}/{n}", at - offset), f"work of {n}", 60, 0.05)


def begin(w, phase):
    open(os.path.join(w.work, "shared", f"phase{phase}"), "w", encoding="ascii").close()
    wait(lambda: os.path.exists(os.path.join(w.work, "shared", f"p{phase}.going{phase}"))
         and os.path.exists(os.path.join(w.work, "shared", f"p{phase}.held{phase}")),
         "work in the guest", 120)


def end(w, phase):
    """Returns the client's status, or None where it does not end."""
    open(os.path.join(w.work, "shared", f"p{phase}.stop"), "w", encoding="ascii").close()
    path = os.path.join(w.work, "shared", f"status{phase}")
    try:
        wait(lambda: os.path.exists(path), "end of the client", 60)
    except TimeoutError:
        return None
    with open(path, encoding="ascii") as f:
        return int(f.read())


def series(w, m, a):
    """The failures of --rounds, each of which the client must survive."""
    begin(w, 1)
    begun = now()
    for i in range(a.rounds):
        m.back()
        time.sleep(GAP)
        m.strike(KINDS[i % len(KINDS)], a.detect)
        settle(w, 1)
    status = end(w, 1)
    report(status == 0, "the client works through all of it", f"status {status}",
           *w.text("guest1").splitlines()[-10:])
    bad, log = judge.judge(judge.read(histories(w, 1)), a.limit)
    report(not bad and w.faults == a.rounds, f"{a.rounds} failures in {now() - begun:.0f} s, "
           f"{len(log.ops)} operations, {len(bad)} violations",
           *(line for b in bad[:10] for line in str(b).splitlines()))
    figures = {}
    for mark, most in judge.longest(log):
        longest = max(most.values(), default=0)
        figures.setdefault(mark["kind"], []).append((longest, mark["load"]))
        print(f"# {mark['kind']} of {mark['node']}: longest "
              + " ".join(f"{op} {s:.2f}" for op, s in sorted(most.items())) + " s", flush=True)
    ledger.add(a.ledger, "moves", (w.faults, len(log.ops), len(bad)), figures)


def sound(w, m):
    """The store, after the server has stopped in order; it is started again."""
    m.mds.terminate()
    report(m.mds.wait(60) == 0, "the server ends in order", w.text("mds")[-300:])
    done = subprocess.run([os.path.join(BUILD, "weft-fsck"), m.store], capture_output=True,
                          text=True, check=False)
    report(done.returncode == 0, "weft-fsck finds the name space sound", done.stdout[-500:],
           done.stderr[-500:])
    m.mds = m.start(m.active)


def control_slow(w, m, a):
    """Hang, then power, and no client is tickled: the checker must find it slow. The hang lasts
    until each process of the client waits: one that asked after the power cut would ask again by
    TCP, and so find out for all."""
    begin(w, 2)
    m.tickles, m.hang = False, 3.0
    m.back()
    m.strike("hang", a.detect)
    status = end(w, 2)
    m.tickles, m.hang = True, HANG
    bad, _ = judge.judge(judge.read(histories(w, 2, False)), TIGHT)
    report(status == 0 and {b.kind for b in bad} == {"slow"},
           "control: without tickles the checker finds calls that last too long",
           f"status {status}", *map(str, bad[:5]))


def control_lost(w, m, a):
    """The other node serves a copy of the store that is seconds old, as after a promotion that did
    not look: the checker must find what is lost."""
    begin(w, 3)
    copy = m.store + ".old"
    m.mds.send_signal(signal.SIGSTOP)
    shutil.copytree(m.store, copy)
    m.mds.send_signal(signal.SIGCONT)
    time.sleep(2)
    m.back()
    m.store = copy
    m.strike("power", a.detect)
    time.sleep(2)
    end(w, 3)
    bad, _ = judge.judge(judge.read(histories(w, 3, False)))
    kinds = {b.kind for b in bad}
    report("name-lost" in kinds or "lost" in kinds,
           f"control: with an old copy of the store the checker finds losses ({len(bad)}: "
           f"{', '.join(sorted(kinds))})", "it found none")


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--rounds", type=int, default=10)
    p.add_argument("--detect", type=float, default=1.0)
    p.add_argument("--limit", type=float, default=TIGHT)
    p.add_argument("--ledger")
    p.add_argument("--no-control", action="store_true")
    a = p.parse_args()
    with world() as w:
        record = os.path.join(HERE, "../checker/record.py")
        w.started.append(subprocess.Popen([sys.executable, record, "clock",
                                           CLOCK.rsplit(":", 1)[1]]))
        m = Mover(w)
        guest = w.guest(1, os.path.join(HERE, "guest.sh"), SERVICE, str(PORT), w.work, CLOCK)
        series(w, m, a)
        sound(w, m)
        if not a.no_control:
            control_slow(w, m, a)
            control_lost(w, m, a)
        open(os.path.join(w.work, "shared", "end"), "w", encoding="ascii").close()
        try:
            status = guest.wait(30)
        except subprocess.TimeoutExpired:
            status = "none"
        if a.no_control:  # otherwise its server has forgotten what it has open
            report(status == 0, "the guest has nothing to complain of", f"status {status}",
                   *w.text("guest1").splitlines()[-10:])
    print(json.dumps({"failed": failed}) if failed else "# all as it must be", flush=True)
    return failed != 0


if __name__ == "__main__":
    sys.exit(reported("moves", main))
