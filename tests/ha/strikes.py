# SPDX-License-Identifier: Apache-2.0
"""strikes.py - what can happen to an instance (instance.py), of the node that serves where nothing
else is said:

    kill      kill -9 of the server
    power     a power cut of its node
    hang      the same, 0.4 s after all in the node hung
    pause     the server stops, and goes on when the other one has served for a while
    freeze    all in its node does
    cut       its node's port is down for as long
    apart     it and PostgreSQL do not reach each other for as long; all others reach it
    dumb      the same, but only what the node sends to PostgreSQL is lost
    numb      the same, but only what PostgreSQL sends to the node is lost
    liar      as pause; one of the client's mounts goes on talking to the node of before
    twice     a power cut; and one of the node that takes over, as soon as it has claimed
    both      a client that holds opens, locks and more loses its power, and then the node
    stop      the server is ended in order
    move      weft instance move: its node gives the instance to the other one, and stands by
    clock     its clock is an hour ahead, then an hour late, then the server is killed
    full      the file system of its store is full

Nobody takes over after these:

    waiting   kill -9 of the server that stands by
    deaf      what the client sends does not reach the node for 2 s; what the node sends arrives
    mute      the other way round
    clients   neither arrives
    stores    the data servers and the node do not reach each other for 2 s
    etcd      kill -9 of etcd's leader
    engine    all of PostgreSQL stops for 3 s
    standby   the synchronous standby of PostgreSQL stops for 3 s
    lost      a power cut of the synchronous standby's node: Patroni names the other one

And these make PostgreSQL choose another primary:

    primary   a power cut of its node
    halt      all in its node stops; when there is another primary, its watchdog resets it
    island    its node's port is down for as long
    brim      the file system of its data is full for 2 s (it may remain the primary)
"""
import errno
import os
import signal
import struct
import subprocess
import time

from controls import Client
from moves import BUILD
from world import HANG, NoProof, kill, now, pause, wait

BOTH = 1.5  # seconds in which the new holder works and the old one is still away
STOP = 3.0  # seconds in which PostgreSQL stands still
HOLD = 2.0  # seconds of what ends by itself
FULL = 8.0  # seconds in which a store's file system is full
HOUR = 3600
GONE = 10.0  # seconds more in which a client that died may keep others from new opens
PRIMARY = 30.0  # seconds that PostgreSQL's manager has for another primary
# kind: does another node serve after it (None: it may), and the seconds in which nothing can be
# answered besides those of a take-over (None: this is no measure, as both nodes were away, or a
# client was told nothing on purpose).
KINDS = {
    "kill": (True, 0), "power": (True, 0), "pause": (True, 0), "cut": (True, 0), "stop": (True, 0),
    "freeze": (True, 0), "apart": (True, 0), "hang": (True, 0), "engine": (False, STOP),
    "waiting": (False, 0), "standby": (False, STOP), "move": (True, 0),
    "dumb": (True, 0), "deaf": (False, HOLD),
    "numb": (True, 0), "mute": (False, HOLD), "liar": (True, None), "clients": (False, HOLD),
    "twice": (True, None), "stores": (False, HOLD), "clock": (True, 0), "etcd": (False, 0),
    "full": (None, FULL), "both": (True, GONE), "lost": (None, PRIMARY), "primary": (None, PRIMARY),
    "halt": (None, PRIMARY), "island": (None, PRIMARY), "brim": (None, PRIMARY),
}
# After these there is another primary: the servers must know all hosts.
PRIMARIES = ("primary", "halt", "island", "brim")


def fill(folder):
    """Files that leave no block there, and another file gets none. Returns their paths."""
    def write(name, n):
        path = os.path.join(folder, name)
        with open(path, "ab", buffering=0) as f:
            paths.append(path)
            try:
                while f.write(bytes(n)) == n:
                    pass
                os.fsync(f.fileno())
            except OSError as e:
                if e.errno != errno.ENOSPC:
                    raise
        return os.path.getsize(path)
    paths = []
    write("fill", 1 << 20)
    write("fill", 4096)
    if write("more", 4096):
        raise NoProof(f"{folder} has room")
    return set(paths)


class Strikes:
    """Each hit_KIND(node, other, epoch) returns what shows that it struck."""

    def hit_kill(self, node, *_):
        return kill(self.mds[node.name])

    def hit_waiting(self, _node, other, _):
        return kill(self.mds[other.name])

    def hit_power(self, node, *_):
        return node.power_off()

    def hit_hang(self, node, *_):
        proof = node.freeze()
        time.sleep(HANG)
        return f"{proof}; {HANG} s later {node.power_off()}"

    def hit_pause(self, node, _, epoch):
        p = self.mds[node.name]
        proof = pause(p)
        self.hold(epoch)
        p.send_signal(signal.SIGCONT)
        return self.deposed(node, proof)

    def hit_freeze(self, node, _, epoch):
        proof = node.freeze()
        self.hold(epoch)
        node.wake()
        return self.deposed(node, proof)

    def hit_cut(self, node, _, epoch):
        proof = node.unplug()
        self.hold(epoch)
        node.plug()
        return self.deposed(node, proof)

    def until_deposed(self, node, epoch):
        """Of a partition between the node and PostgreSQL."""
        self.hold(epoch)
        return self.deposed(node, self.w.filter.heal())

    def hit_apart(self, node, _, epoch):
        self.w.filter.between(node, *self.e.nodes)
        return self.until_deposed(node, epoch)

    def hit_dumb(self, node, _, epoch):
        for n in self.e.nodes:
            self.w.filter.one_way(node, n)
        return self.until_deposed(node, epoch)

    def hit_numb(self, node, _, epoch):
        for n in self.e.nodes:
            self.w.filter.one_way(n, node)
        return self.until_deposed(node, epoch)

    def hit_liar(self, node, other, epoch):
        self.client.stick_to(node)
        self.w.filter.watch(self.client.port, node)
        proof = self.hit_pause(node, other, epoch)
        seen = self.w.filter.heal()
        self.client.let_go()
        return f"{proof}; meanwhile {seen} went there"

    def hit_twice(self, node, other, epoch):
        proof = node.power_off()
        self.hold(epoch, 0)
        served = "serving: boot" in self.text(other)
        proof = (f"{proof}; when {other.name} had claimed, and served{'' if served else ' not yet'}"
                 f", {other.power_off()}")
        at = self.row()[0]
        node.power_on()
        self.boot(node)
        self.hold(at, 0)
        return proof

    def hit_both(self, node, *_):
        self.others += 1
        folder = os.path.join(self.w.work, "h", f"other{self.others}")
        other = Client(self.w, 2, folder, 100 + self.others)
        return f"{other.die()}; {node.power_off()}"

    def hit_stop(self, node, *_):
        p = self.mds[node.name]
        p.terminate()
        return f"the server ended with status {p.wait(60)}"

    def hit_move(self, node, other, _):
        done = subprocess.run(
            ["nsenter", f"--net={other.path}", "--", os.path.join(BUILD, "weft"), "instance",
             "move", "1", "--to", other.name, "--log",
             self.e.conninfo(only=self.e.primary())], capture_output=True, text=True, check=False,
            timeout=90)
        if done.returncode:
            raise RuntimeError(f"weft instance move: {done.stderr}")
        status = self.mds[node.name].wait(60)
        return f"{done.stdout.strip()}; the server ended with status {status}"

    def hit_clock(self, node, *_):
        proof = [self.clocks[node.name].set(offset) for offset in (HOUR, -HOUR)]
        proof.append(kill(self.mds[node.name]))
        self.clocks[node.name].set(0)
        return "; ".join(proof)

    def hit_full(self, node, _, epoch):
        paths = fill(self.folder(node))
        end = now() + FULL
        while now() < end and self.row()[0] == epoch:
            time.sleep(0.1)
        for path in paths:
            os.unlink(path)
        ended = self.mds[node.name].poll()
        return (f"{node.name} had no block for its store; its server "
                + ("went on" if ended is None else f"ended with status {ended}"))

    def ends_by_itself(self):
        time.sleep(HOLD)
        return self.w.filter.heal()

    def hit_deaf(self, node, *_):
        self.w.filter.one_way(self.client.port, node)
        return self.ends_by_itself()

    def hit_mute(self, node, *_):
        self.w.filter.one_way(node, self.client.port)
        return self.ends_by_itself()

    def hit_clients(self, node, *_):
        self.w.filter.between(node, self.client.port)
        return self.ends_by_itself()

    def hit_stores(self, node, *_):
        self.w.filter.between(node, *self.stores)
        return self.ends_by_itself()

    def hit_etcd(self, *_):
        return self.e.kill_leader()

    def hit_engine(self, *_):
        return self.e.stop_for(self.e.nodes, STOP)

    def hit_standby(self, *_):
        return self.e.stop_for([self.e.standby()], STOP)

    def hit_lost(self, *_):
        n = self.e.standby()
        proof = n.power_off()
        self.e.other_standby(n)
        self.e.boot(n)
        return proof

    def hit_primary(self, *_):
        n = self.e.primary()
        proof = n.power_off()
        self.e.other_primary(n)
        self.e.boot(n)
        return proof

    def hit_brim(self, *_):
        n = self.e.primary()
        paths = fill(self.e.folder(n, "pg"))
        self.e.ask(n, "select pg_switch_wal()")
        time.sleep(HOLD)
        for path in paths:
            os.unlink(path)
        proof = wait(lambda: [x for x in self.w.text(f"patroni-{n.name}").splitlines()
                              if "No space left" in x], "full disk in PostgreSQL's log", 30)
        wait(self.e.ready, "primary", 150, 0.2)
        return proof[-1]

    def hit_halt(self, *_):
        """Patroni 3.0.2 takes etcd's key for the primary back when it wakes, whoever has it: what
        the other primary has acknowledged is lost. So a watchdog is part of the set-up."""
        n = self.e.primary()
        proof = n.freeze()
        self.e.other_primary(n)
        proof = f"{proof}; then {n.power_off()}"
        self.e.boot(n)
        return proof

    def hit_island(self, *_):
        n = self.e.primary()
        proof = n.unplug()
        self.e.other_primary(n)
        n.plug()
        return proof


class Clock:
    """What a server that is linked with clock.c takes for the time of day: a file of two numbers,
    by how many ns it is off, and how often the server asked."""

    def __init__(self, path):
        self.path = path
        with open(path, "wb") as f:
            f.write(bytes(16))

    def set(self, seconds):
        """Returns when the server has asked since."""
        with open(self.path, "r+b") as f:
            f.write(struct.pack("q", seconds * 10**9))
        asked = self.asked()
        if seconds:
            n = wait(lambda: self.asked() - asked, "look at the clock", 30)
            return f"the server was told {n} times or more that it is {seconds} s later"
        return ""

    def asked(self):
        with open(self.path, "rb") as f:
            return struct.unpack("qq", f.read(16))[1]
