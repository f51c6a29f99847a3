#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""register.py HOST:PORT OUT NAME STOP ROLE... - clients of pg_writer, a process for each ROLE (put
or get), until the file STOP is there. Their histories are OUT.N, of processes NAME/N (judge.py).

A client asks on one connection. Where that breaks, or no answer comes for WAIT, the outcome is
unknown, and it makes another connection and asks something else."""
import json
import os
import socket
import sys
import time

WAIT = 1.0
CONNECT = 0.3
PACE = 0.01
now = time.monotonic


class Client:
    def __init__(self, where, out, p, stop):
        host, port = where.rsplit(":", 1)
        self.where, self.p, self.stop, self.n = (host, int(port)), p, stop, 0
        self.out, self.sock, self.file = open(out, "a", encoding="ascii", buffering=1), None, None

    def line(self, **r):
        self.out.write(json.dumps(r) + "\n")

    def connect(self):
        while self.sock is None and not os.path.exists(self.stop):
            s = socket.socket()
            s.settimeout(CONNECT)
            try:
                s.connect(self.where)
            except OSError:
                s.close()
                time.sleep(0.02)
                continue
            s.settimeout(WAIT)
            s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.sock, self.file = s, s.makefile("r", encoding="ascii")

    def ask(self, text):
        """The answer's number, or None."""
        try:
            self.sock.sendall(text.encode() + b"\n")
            return int(self.file.readline().split()[1])
        except (OSError, IndexError, ValueError):
            self.sock.close()
            self.sock = None
            return None

    def run(self, role, number):
        while not os.path.exists(self.stop):
            self.connect()
            if self.sock is None:
                return
            self.n += 1
            val = number * 1000000 + self.n
            how = {"val": val} if role == "put" else {}
            self.line(e="call", p=self.p, n=self.n, t=now(), op=role, reg="r", **how)
            got = self.ask(f"write {val}" if role == "put" else "read")
            end = now()
            self.line(e="done", p=self.p, n=self.n, t=end,
                      **({"err": "unknown"} if got is None else {"val": got}))
            time.sleep(PACE)


def main():
    where, out, name, stop = sys.argv[1:5]
    base = (sum(map(ord, name)) % 1000 + 1) * 100
    pids = []
    for k, role in enumerate(sys.argv[5:]):
        pid = os.fork()
        if not pid:
            Client(where, f"{out}.{k}", f"{name}/{k}", stop).run(role, base + k)
            os._exit(0)
        pids.append(pid)
    return max(os.waitpid(pid, 0)[1] for pid in pids) != 0


sys.exit(main())
