#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""agent.py DEVICE - moves service addresses on a node: a process that world.py keeps there.

Lines on its standard input, each with a line as its answer:
    take ADDRESS/PREFIX [PORT PID PEER:PORT...]
        puts the address on DEVICE, and says so to the network by ARP, now and then every half
        second while the process PID runs (0: always). The PEERs had connections to PORT of the
        node that had the address before. Each gets an ACK that is out of place; its own answer is
        reset here, as no connection is there: what was closed here without the address ends first.
    leave ADDRESS/PREFIX
        takes the address away."""
import fcntl
import select
import socket
import struct
import subprocess
import sys
import time

AGAIN = 0.5  # between two announcements
CLOSED = ("state", "fin-wait-1", "state", "fin-wait-2", "state", "closing", "state", "last-ack",
          "state", "time-wait")
TICKLES = (0.0, 0.06, 0.2, 0.5, 1.0)  # after the address came: one may be lost, or come too early


def checksum(data):
    total = sum(struct.unpack(f"!{(len(data) + 1) // 2}H", data + b"\0" * (len(data) % 2)))
    while total >> 16:
        total = (total & 0xffff) + (total >> 16)
    return ~total & 0xffff


def tickle(src, port, peer, peer_port):
    """A TCP packet with a number that is in no window."""
    a, b = socket.inet_aton(src), socket.inet_aton(peer)
    head = struct.pack("!HHIIBBHHH", port, peer_port, 0, 0, 5 << 4, 0x10, 1000, 0, 0)
    total = checksum(a + b + struct.pack("!BBH", 0, socket.IPPROTO_TCP, len(head)) + head)
    head = head[:16] + struct.pack("!H", total) + head[18:]
    return struct.pack("!BBHHHBBH4s4s", 0x45, 0, 20 + len(head), 0, 0, 64, socket.IPPROTO_TCP, 0, a,
                       b) + head


def runs(pid):
    """A process that stands still must not call for packets that it does not answer."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as f:
            return f.read().rpartition(")")[2].split()[0] not in "TtZX"
    except OSError:
        return False


class Agent:
    def __init__(self, device):
        self.device, self.held, self.due, self.by = device, {}, [], {}
        self.link = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
        self.link.bind((device, 0x0806))
        self.ip = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
        got = fcntl.ioctl(self.ip, 0x8927, struct.pack("16s16x", device.encode()))  # SIOCGIFHWADDR
        self.mac = got[18:24]

    def announce(self, addr):
        """An ARP request and an answer; some listen to one of them only."""
        ip = socket.inet_aton(addr)
        for op in (1, 2):
            self.link.send(b"\xff" * 6 + self.mac + b"\x08\x06"
                           + struct.pack("!HHBBH", 1, 0x0800, 6, 4, op) + self.mac + ip
                           + (b"\0" * 6 if op == 1 else self.mac) + ip)

    def take(self, where, port=0, pid=0, *peers):
        addr = where.partition("/")[0]
        subprocess.run(["ss", "-KtnH", *CLOSED, "src", addr], check=True, stdout=sys.stderr)
        subprocess.run(["ip", "addr", "replace", where, "dev", self.device], check=True)
        now = time.monotonic()
        self.held[addr], self.by[addr] = now + AGAIN, int(pid)
        self.announce(addr)
        rows = [p.rsplit(":", 1) for p in peers]
        self.due = [(now + t, addr, int(port), rows) for t in TICKLES if rows]

    def leave(self, where):
        if self.held.pop(where.partition("/")[0], None):
            subprocess.run(["ip", "addr", "del", where, "dev", self.device], check=True)

    def turn(self):
        """What is due by now. Returns the seconds until something is."""
        now = time.monotonic()
        for addr, at in self.held.items():
            if at <= now:
                if not self.by[addr] or runs(self.by[addr]):
                    self.announce(addr)
                self.held[addr] = now + AGAIN
        while self.due and self.due[0][0] <= now:
            _, addr, port, rows = self.due.pop(0)
            for peer, peer_port in rows:
                self.ip.sendto(tickle(addr, port, peer, int(peer_port)), (peer, 0))
        return max(0, min([*self.held.values(), *(d[0] for d in self.due), now + 60]) - now)


def main():
    agent = Agent(sys.argv[1])
    print("ready", flush=True)
    while True:
        if not select.select([sys.stdin], [], [], agent.turn())[0]:
            continue
        words = sys.stdin.readline().split()
        if not words:
            return
        {"take": agent.take, "leave": agent.leave}[words[0]](*words[1:])
        print("done", flush=True)


main()
