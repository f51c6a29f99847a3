# SPDX-License-Identifier: Apache-2.0
"""Nodes on one bridge, each a network of its own, and weft-addr on them."""
import contextlib
import ctypes
import os
import shutil
import signal
import socket
import subprocess
import tempfile

from harness import BUILD, check, eventually

V4 = "10.9.0.100"
V6 = "fd09::100"
_libc = ctypes.CDLL(None, use_errno=True)


def sh(*args, ok=True):
    done = subprocess.run(args, capture_output=True, text=True, timeout=60, check=False)
    if ok:
        check(done.returncode, 0, f"{' '.join(args)}: {done.stdout} {done.stderr}")
    return done.stdout


class Node:
    """10.9.0.N and fd09::N on eth0, which hangs on the bridge br0 of the test's own network."""

    def __init__(self, n):
        self.n, self.port = n, f"p{n}"
        self.net = subprocess.Popen(["unshare", "-n", "sleep", "infinity"])
        self.pid = self.net.pid
        mine = os.readlink("/proc/self/ns/net")

        def apart():
            try:
                return os.readlink(f"/proc/{self.pid}/ns/net") != mine
            except OSError:
                return False
        eventually(apart, what="a network of its own")
        sh("ip", "link", "add", self.port, "type", "veth", "peer", "name", "eth0", "netns",
           str(self.pid))
        sh("ip", "link", "set", self.port, "master", "br0", "up")
        self.run("sh", "-c", "ip link set lo up; echo 0 >/proc/sys/net/ipv6/conf/eth0/accept_dad; "
                 f"ip addr add 10.9.0.{n}/24 dev eth0; ip addr add fd09::{n}/64 dev eth0 nodad; "
                 "ip link set eth0 up")
        self.mac = self.run("ip", "-br", "link", "show", "eth0").split()[2]

    def run(self, *args, ok=True):
        return sh("nsenter", "-t", str(self.pid), "-n", *args, ok=ok)

    @contextlib.contextmanager
    def inside(self):
        """What the thread opens here belongs to the node's network for good."""
        with open("/proc/thread-self/ns/net") as home, \
                open(f"/proc/{self.pid}/ns/net") as there:
            check(_libc.setns(there.fileno(), 0), 0, "setns")
            try:
                yield
            finally:
                check(_libc.setns(home.fileno(), 0), 0, "setns")

    def socket(self, family, kind=socket.SOCK_STREAM, proto=0):
        with self.inside():
            return socket.socket(family, kind, proto)

    def listen(self, ip, port):
        s = self.socket(socket.AF_INET6 if ":" in ip else socket.AF_INET)
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        s.setsockopt(socket.SOL_IP, 15, 1)  # IP_FREEBIND, of both families
        s.bind((ip, port))
        s.listen()
        return s

    def has(self, ip):
        return f" {ip}/" in self.run("ip", "-o", "addr", "show", "dev", "eth0")

    def neighbour(self, ip):
        """The Ethernet address that the node sends to."""
        words = self.run("ip", "neigh", "show", ip, "dev", "eth0").split()
        return words[words.index("lladdr") + 1] if "lladdr" in words else None

    def cut(self):
        """No packet leaves it any more, and none reaches it."""
        sh("ip", "link", "set", self.port, "down")

    def mend(self):
        sh("ip", "link", "set", self.port, "up")
        eventually(lambda: "LOWER_UP" in self.run("ip", "link", "show", "eth0"), what="the link")

    def end(self):
        self.net.kill()
        self.net.wait()
        # The kernel takes a network down later than its last process.
        sh("ip", "link", "del", self.port, ok=False)


class Addr:
    """A weft-addr of a node, and what it answers."""

    def __init__(self, node, folder, *options, conf=None):
        self.node, self.path = node, os.path.join(folder, f"{node.n}.sock")
        self.conf = os.path.join(folder, f"{node.n}.conf")
        with open(self.conf, "w", encoding="utf-8") as f:
            f.write(conf or f"# of the test\n{V4} eth0\n{V6}/128 eth0\n")
        self.log = os.path.join(folder, f"{node.n}.log")
        self.start(*options)

    def start(self, *options):
        with open(self.log, "a", encoding="utf-8") as log:
            self.proc = subprocess.Popen(
                ["nsenter", "-t", str(self.node.pid), "-n", os.path.join(BUILD, "weft-addr"),
                 "-c", self.conf, "-s", self.path, "-g", "root", *options], stderr=log)
        self.pid = self.proc.pid  # nsenter becomes the program
        eventually(lambda: self.up() or self.proc.poll() is not None, what="weft-addr")
        check(self.proc.poll(), None, self.said())

    def up(self):
        try:
            self.holder().close()
            return True
        except OSError:
            return False

    def said(self):
        with open(self.log, encoding="utf-8") as f:
            return f.read()

    def holder(self):
        return Holder(self.path)

    def kill(self):
        self.proc.kill()
        self.proc.wait()

    def end(self):
        if self.proc.poll() is None:
            self.proc.send_signal(signal.SIGCONT)
            self.proc.terminate()
            check(self.proc.wait(60), 0, self.said())


class Holder:
    def __init__(self, path):
        self.s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            self.s.connect(path)
        except OSError:
            self.s.close()
            raise
        self.s.settimeout(60)

    def raw(self, message):
        self.s.send(message)
        return self.s.recv(65536).decode()

    def ask(self, text, want="OK"):
        got = self.raw(text.encode())
        check(got, want, text)

    def states(self):
        """{address: state}"""
        return {line.split()[0]: line.split()[2]
                for line in self.raw(b"STATUS").splitlines()[1:]}

    def close(self):
        self.s.close()


@contextlib.contextmanager
def world(*numbers):
    """A bridge with nodes on it, and a folder."""
    nodes, folder = [], tempfile.mkdtemp()
    try:
        sh("ip", "link", "add", "br0", "type", "bridge", "forward_delay", "0")
        sh("ip", "link", "set", "br0", "up")
        for n in numbers:
            nodes.append(Node(n))
        for node in nodes[1:]:
            # The bridge has learned where they are.
            node.run("ping", "-q", "-c", "1", "-W", "5", f"10.9.0.{nodes[0].n}", ok=False)
        yield nodes, folder
    finally:
        for node in nodes:
            node.end()
        sh("ip", "link", "del", "br0", ok=False)
        shutil.rmtree(folder)
