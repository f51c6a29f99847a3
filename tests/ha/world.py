# SPDX-License-Identifier: Apache-2.0
"""world.py - nodes, as network namespaces on one bridge, and what can happen to them. run gives it
a network, processes and mounts of its own, so nothing of it is left when it ends.

The bridge is the lab's (tests/lab/lab), so guests see the nodes: node NAME is 10.77.210.N.

Each fault returns a proof, a text, or raises NoProof: a fault that did not strike proves nothing.
"""
import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
import traceback

HERE = os.path.dirname(os.path.abspath(__file__))
LAB = os.path.join(HERE, "../lab/lab")
BRIDGE = "labbr"
HANG = 0.4  # seconds from a hang to the power cut
ANSWER = 10  # seconds that an agent has for an answer
now = time.monotonic


class NoProof(Exception):
    """A fault did not strike."""


class Ended(NoProof):
    """What it was to strike had ended by itself."""


class Off(Exception):
    """Nothing starts on a node without power, or in a world that ends."""


def ip(*words):
    subprocess.run(["ip", *words], check=True)


def wait(done, what, seconds=60, pause=0.01):
    """The first true value of done()."""
    end = now() + seconds
    while True:
        got = done()
        if got:
            return got
        if now() > end:
            raise TimeoutError(f"no {what} within {seconds} s")
        time.sleep(pause)


def states(pid):
    """The letters of a process's threads; none where it is gone."""
    out = []
    with contextlib.suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(OSError):
                with open(f"/proc/{pid}/task/{task}/stat", encoding="ascii",
                          errors="replace") as f:
                    out.append(f.read().rpartition(")")[2].split()[0])
    return [s for s in out if s not in "ZX"]


def gone(pid):
    return not states(pid)


class Node:
    """A machine: a network namespace, and all processes in it."""

    def __init__(self, world, name, addr):
        self.world, self.name, self.addr, self.port = world, name, addr, f"p-{name}"
        self.path, self.agent, self.on = f"/run/netns/{name}", None, True
        self.started, self.ordering = [], threading.Lock()
        self.heard, self.owed = b"", 0
        ip("netns", "add", name)
        ip("link", "add", self.port, "mtu", "9000", "type", "veth", "peer", "name", "eth0", "mtu",
           "9000", "netns", name)
        ip("link", "set", self.port, "master", BRIDGE, "up")
        ip("-n", name, "link", "set", "lo", "up")
        ip("-n", name, "link", "set", "eth0", "up")
        ip("-n", name, "addr", "add", f"{addr}/16", "dev", "eth0")
        self.inode = os.stat(self.path).st_ino

    def run(self, *command, log, user=None, env=None, **how):
        """Starts a program here. Its output goes to the file log.log. user: not as root."""
        if user:
            command = "setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", *command
        with open(os.path.join(self.world.work, "log", f"{log}.log"), "ab") as out:
            how = {"stdin": subprocess.DEVNULL, "stdout": out, "stderr": out, **how}
            with self.world.lock:
                if self.world.ending or not self.on:
                    raise Off(self.name)
                p = subprocess.Popen(["nsenter", f"--net={self.path}", "--", *command],
                                     start_new_session=True,
                                     env={**os.environ, **(env or {})}, **how)
                self.world.started.append(p)
                self.started.append(p)
        return p

    def here(self, *command, **how):
        """Runs a program here to its end. Returns what it prints."""
        return subprocess.run(["nsenter", f"--net={self.path}", "--", *command], check=True,
                              stdout=subprocess.PIPE, text=True, **how).stdout

    def pids(self):
        """All processes here, and those on their way: nsenter is not here from its start."""
        out = {p.pid for p in self.started if p.returncode is None and states(p.pid)}
        for pid in os.listdir("/proc"):
            with contextlib.suppress(OSError, ValueError):
                if os.stat(f"/proc/{int(pid)}/ns/net").st_ino == self.inode and states(pid):
                    out.add(int(pid))
        return out

    def start_agent(self):
        with self.ordering:
            self.agent = self.run("python3", "-S", os.path.join(HERE, "agent.py"), "eth0",
                                  log=f"agent-{self.name}", stdin=subprocess.PIPE,
                                  stdout=subprocess.PIPE, bufsize=0)
            self.heard, self.owed = b"", 0
            self.hear("ready", now() + ANSWER)

    def hear(self, want, end):
        """The agent's next line must be this, and come before this time."""
        while b"\n" not in self.heard:
            if not select.select([self.agent.stdout], [], [], max(0, end - now()))[0]:
                raise TimeoutError(f"no answer of the agent of {self.name} within {ANSWER} s")
            more = self.agent.stdout.read(4096)
            if not more:
                raise RuntimeError(f"the agent of {self.name} has ended")
            self.heard += more
        got, _, self.heard = self.heard.partition(b"\n")
        if got.decode() != want:
            raise RuntimeError(f"the agent of {self.name} says {got!r}")

    def order(self, *words):
        """Returns when the agent has done it. One that stands still does it when it goes on: its
        late answer is not the answer to a later order."""
        with self.ordering:
            self.agent.stdin.write((" ".join(words) + "\n").encode())
            self.owed += 1
            end = now() + ANSWER
            while self.owed:
                self.hear("done", end)
                self.owed -= 1

    def connections(self, port):
        """PEER:PORT of each connection to this port here."""
        out = []
        # A process's net folder is that of its namespace.
        with open(f"/proc/{self.agent.pid}/net/tcp", encoding="ascii") as f:
            for line in list(f)[1:]:
                mine, peer, state = line.split()[1:4]
                if int(mine.split(":")[1], 16) == port and state == "01":
                    a, p = peer.split(":")
                    quad = ".".join(str(b) for b in reversed(bytes.fromhex(a)))
                    out.append(f"{quad}:{int(p, 16)}")
        return out

    def listens(self, port):
        with open(f"/proc/{self.agent.pid}/net/tcp", encoding="ascii") as f:
            return any(w[1].endswith(f":{port:04X}") and w[3] == "0A"
                       for w in (line.split() for line in f))

    # ---- what can happen to it

    def signal_all(self, number):
        """Returns the processes that it sent the signal to."""
        pids = self.pids()
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        return pids

    def kill_all(self):
        """Lists and kills until nothing is left: what is killed may have started more. Returns how
        many there were."""
        killed = set()

        def none_left():
            pids = self.signal_all(signal.SIGKILL)
            killed.update(pids)
            return not pids
        wait(none_left, f"end of all in {self.name}", 10)
        return len(killed)

    def carrier(self):
        got = subprocess.run(["ip", "-j", "link", "show", self.port], check=True,
                             stdout=subprocess.PIPE).stdout
        return json.loads(got)[0]["operstate"].lower()

    def unplug(self):
        """The port is down: nothing of what the node sends from now on gets out."""
        ip("link", "set", self.port, "down")
        if self.carrier() != "down":
            raise NoProof(f"{self.port} is {self.carrier()}")
        return f"port {self.port} is down"

    def plug(self):
        ip("link", "set", self.port, "up")
        wait(lambda: self.carrier() == "up", f"carrier of {self.port}", 10)

    def power_off(self):
        """No FIN, no RST: first the port, then the processes. None starts meanwhile."""
        proof = self.unplug()
        with self.world.lock:
            self.on = False
        n = self.kill_all()
        if not n:
            raise NoProof(f"{self.name} ran nothing")
        return f"{proof}, {n} processes of {self.name} were killed after that"

    def power_on(self):
        """As a machine boots: with its own address only, and nothing runs."""
        ip("-n", self.name, "addr", "flush", "dev", "eth0")
        ip("-n", self.name, "neigh", "flush", "all")
        ip("-n", self.name, "addr", "add", f"{self.addr}/16", "dev", "eth0")
        self.plug()
        self.on = True
        self.start_agent()

    def freeze(self):
        """All processes stop. The kernel goes on: it acknowledges by TCP, and answers ARP."""
        seen = set()
        while True:
            pids = self.signal_all(signal.SIGSTOP)
            proof = stands_still(pids)
            if pids <= seen:
                return proof
            seen |= pids  # one of them may have started another before it stopped

    def wake(self):
        self.signal_all(signal.SIGCONT)


def stands_still(pids):
    """A thread goes on until it has its turn on a processor."""
    wait(lambda: all(set(states(p)) <= set("Tt") for p in pids), "stop of all threads", 10)
    left = sum(bool(states(p)) for p in pids)
    if not left:
        raise NoProof("there is nothing to stop")
    return f"all threads of {left} processes have state T"


def kill(process):
    """kill -9 of what a node's run() started."""
    process.kill()
    process.wait()
    if process.returncode != -signal.SIGKILL:
        raise Ended(f"it had ended before, with {process.returncode}")
    return f"process {process.pid} ended by signal 9"


def pause(process):
    process.send_signal(signal.SIGSTOP)
    if process.poll() is not None:
        raise Ended(f"it had ended before, with {process.returncode}")
    return stands_still([process.pid])


def disk(folder, mib):
    """Mounts a file system of its own there, in memory."""
    path = os.path.join("/dev/shm", os.path.basename(folder))
    with open(path, "wb") as f:
        f.truncate(mib << 20)
    subprocess.run(["mkfs.ext4", "-q", "-m", "0", "-O", "^has_journal", path], check=True)
    subprocess.run(["mount", "-o", "loop", path, folder], check=True)


class Filter:
    """Partitions: what the bridge does not hand on from one port to another. Each counts."""

    def __init__(self):
        self.nft("add table bridge ha; "
                 "add chain bridge ha cut { type filter hook forward priority 0; }")

    @staticmethod
    def nft(text):
        return subprocess.run(["nft", "-f", "-"], input=text.replace("; ", "\n"), text=True,
                              check=True, stdout=subprocess.PIPE).stdout

    def one_way(self, a, b):
        """Nothing of node a reaches node b (or a guest's port, a text)."""
        x, y = (n if isinstance(n, str) else n.port for n in (a, b))
        self.nft(f'add rule bridge ha cut iifname "{x}" oifname "{y}" counter drop')

    def no_arp(self, a):
        """Node a neither asks nor says where an address is."""
        self.nft(f'add rule bridge ha cut iifname "{a.port}" ether type arp counter drop')

    def watch(self, a, b):
        """Counts what node or port a sends to node b."""
        x, y = (n if isinstance(n, str) else n.port for n in (a, b))
        self.nft(f'add rule bridge ha cut iifname "{x}" oifname "{y}" counter')

    def between(self, a, *others):
        for b in others:
            self.one_way(a, b)
            self.one_way(b, a)

    def dropped(self):
        """What each rule dropped."""
        got = subprocess.run(["nft", "-j", "list", "chain", "bridge", "ha", "cut"], check=True,
                             stdout=subprocess.PIPE).stdout
        return [e["counter"]["packets"] for r in json.loads(got)["nftables"] if "rule" in r
                for e in r["rule"]["expr"] if "counter" in e]

    def flush(self):
        self.nft("flush chain bridge ha cut")

    def heal(self):
        """Ends all partitions. Returns the proof that they struck."""
        counts = self.dropped()
        self.flush()
        if not sum(counts):
            raise NoProof("the filter met nothing")
        return f"the bridge dropped or counted {sum(counts)} frames"


def liar(client, node, addr):
    """A client node that goes on talking to this node's link address, whoever has addr now."""
    mac = json.loads(node.here("ip", "-j", "link", "show", "eth0"))[0]["address"]
    ip("-n", client.name, "neigh", "replace", addr, "lladdr", mac, "nud", "permanent", "dev",
       "eth0")
    return f"{addr} is at {mac} for {client.name}"


def honest(client, addr):
    ip("-n", client.name, "neigh", "del", addr, "dev", "eth0")


class World:
    """work is an empty folder on a file system of its own. Leave it with close()."""

    def __init__(self, work):
        self.work, self.started, self.nodes, self.faults = work, [], {}, 0
        self.ending, self.lock = False, threading.Lock()
        for d in ("log", "shared", "h"):
            os.makedirs(os.path.join(work, d), exist_ok=True)
        os.makedirs("/run/netns", exist_ok=True)
        subprocess.run([LAB, "-b"], check=True)
        self.filter = Filter()
        self.marks = open(os.path.join(work, "h", "world"), "a", encoding="ascii", buffering=1)

    def node(self, name):
        n = self.nodes[name] = Node(self, name, f"10.77.210.{len(self.nodes) + 1}")
        return n

    def guest(self, number, *script, seconds=600):
        """A stock client: starts the lab's guest with this script."""
        with open(os.path.join(self.work, "log", f"guest{number}.log"), "ab") as out:
            p = subprocess.Popen([LAB, "-m", "512M", "-t", str(seconds), "-n", str(number),
                                  *script], stdin=subprocess.DEVNULL, stdout=out, stderr=out)
        self.started.append(p)
        return p

    def mark(self, what, **how):
        self.marks.write(json.dumps({"e": "mark", "what": what, **how}) + "\n")

    def fault(self, kind, node, at, proof):
        """Writes the mark: from that time on this was broken, by now it has struck, and so it is
        known."""
        self.faults += 1
        self.mark("fault", t=at, struck=now(), kind=kind, node=node, proof=proof,
                  load=os.getloadavg()[0])
        print(f"# {kind} of {node}: {proof}", flush=True)

    def healed(self):
        """Writes the mark: what was broken works again, there or on another node."""
        self.mark("healed", t=now())

    def text(self, log):
        with open(os.path.join(self.work, "log", f"{log}.log"), encoding="utf-8",
                  errors="replace") as f:
            return f.read()

    def close(self):
        """Ends all that was started, by its id, and waits for it."""
        with self.lock:
            self.ending = True
        for n in self.nodes.values():
            with contextlib.suppress(TimeoutError):
                n.kill_all()
        for p in self.started:
            if p.poll() is None:
                p.send_signal(signal.SIGCONT)
                p.terminate()
        for p in self.started:
            try:
                p.wait(20)
            except subprocess.TimeoutExpired:
                p.kill()
                p.wait()
        self.marks.close()


@contextlib.contextmanager
def world():
    """The world of HA_WORK, which run has made. It ends whatever happens in it, also a signal: then
    the file HA_WHY says what it was at."""
    signal.signal(signal.SIGTERM, ended)
    w = World(os.environ["HA_WORK"])
    try:
        yield w
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        w.close()


def ended(_, frame):
    if os.environ.get("HA_WHY"):
        with open(os.environ["HA_WHY"], "w", encoding="utf-8") as f:
            f.write("it was at " + ", ".join(path_to(frame)) + "\n")
    sys.exit(143)


def path_to(frame):
    """The functions that a signal met, and what wait() waits for."""
    for f, line in traceback.walk_stack(frame):
        code = f.f_code
        if os.path.dirname(code.co_filename) == HERE:
            what = f" (no {f.f_locals['what']} yet)" if code is wait.__code__ else ""
            yield f"{os.path.basename(code.co_filename)}:{line} {code.co_name}{what}"


def reported(name, main):
    """Returns main's status. What it raises is a line "not ok" with the reason, and a traceback on
    standard error."""
    try:
        return main()
    except Exception as e:  # whatever it is
        print(f"not ok - {name}: it comes to its end")
        for line in f"{type(e).__name__}: {e}".splitlines():
            print(f"#   {line}")
        for f, line in traceback.walk_tb(e.__traceback__):
            if os.path.dirname(f.f_code.co_filename) == HERE:
                print(f"#   in {f.f_code.co_name}, "
                      f"{os.path.basename(f.f_code.co_filename)}:{line}")
        sys.stdout.flush()
        traceback.print_exc()
        return 1
