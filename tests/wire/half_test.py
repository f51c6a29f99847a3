#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Records that begin and never end, from strangers and from clients (docs/security.md, "Limits").
Prints TAP.

The tests cover the memory and the time that they take, and whether other clients can still connect.
"""
import contextlib
import os
import re
import resource
import select
import socket
import struct
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../wirelib"))
import harness  # noqa: E402
import tap  # noqa: E402
from harness import ADDR, Cluster, check, client, eventually  # noqa: E402
from steps import data_server, lay  # noqa: E402
from nfs41 import *  # noqa: E402,F403
from nfs41 import Conn, err  # noqa: E402

MB, TIME = 1 << 20, 8
MANY = 2000
SLOT = 15  # that the client does not use
# Threads enough that an even share of what strangers may hold is less than the most of one.
SETTINGS = ["mds.threads=8", "ds.threads=8", f"mds.record_time={TIME}s",
            f"ds.record_time={TIME}s", "mds.lease=30s", "ds.connections_of_address=2100"]
CLUSTER = None


def pid_of(daemon):
    with open(os.path.join(CLUSTER.dir, "run", daemon + ".pid"), encoding="ascii") as f:
        return int(f.read())


def memory(daemon):
    with open(f"/proc/{pid_of(daemon)}/status", encoding="ascii") as f:
        return int(re.search(r"VmRSS:\s+(\d+) kB", f.read())[1]) * 1024


def head(prog, vers, proc):
    return struct.pack(">10I", 77, 0, 2, prog, vers, proc, 0, 0, 0, 0)


def shapes(prog, vers, proc):
    """Beginnings of records: (bytes). None of them ends."""
    call = head(prog, vers, proc)
    return [
        struct.pack(">I", 0x80000000 | (MB + 4096)) + call + bytes(MB),  # all but its end
        struct.pack(">I", 0x80000000 | 60000) + call + bytes(59000),
        struct.pack(">I", 0x80000000 | 8000) + call + bytes(7000),
        struct.pack(">I", 0x80000000 | 200) + call,
        struct.pack(">I", 40) + call + struct.pack(">I", 65000) + bytes(64000),  # fragments
        (struct.pack(">I", 1000) + bytes(1000)) * 60,
        b"\x80\x00",
        struct.pack(">I", 0x80000000 | 90000) + bytes(89000),
    ]


class Hostile:
    """MANY connections, each with half a record, sent as far as the server takes it."""

    def __init__(self, addr, kinds, source):
        self.poll, self.conns = select.epoll(), {}
        for i in range(MANY):
            s = socket.create_connection(addr, 60, (source, 0))
            s.setblocking(False)
            self.conns[s.fileno()] = [s, memoryview(kinds[i % len(kinds)])]
            self.poll.register(s.fileno(), select.EPOLLOUT | select.EPOLLRDHUP)
        self.ended = 0

    def run(self, seconds):
        """Sends what the server takes, and drops connections that it ended. Returns when nothing
        happens for this many seconds."""
        while True:
            events = self.poll.poll(seconds)
            if not events:
                return
            for fd, what in events:
                self.one(fd, what)

    def one(self, fd, what):
        s, rest = self.conns[fd]
        try:
            if what & (select.EPOLLHUP | select.EPOLLERR | select.EPOLLRDHUP):
                raise ConnectionResetError
            self.conns[fd][1] = rest = rest[s.send(rest):]
            if not rest:
                self.poll.modify(fd, select.EPOLLRDHUP)
        except BlockingIOError:
            pass
        except OSError:
            self.poll.unregister(fd)
            s.close()
            del self.conns[fd]
            self.ended += 1

    def close(self):
        for s, _ in self.conns.values():
            s.close()
        self.poll.close()


def cost_us(daemon, work, n=100):
    """What one call costs, in CPU time of the daemon, so that other programs do not count."""
    clock = ~pid_of(daemon) << 3 | 2  # CPU time of another process
    began = time.clock_gettime(clock)
    for _ in range(n):
        work()
    return (time.clock_gettime(clock) - began) / n * 1e6


def hostile(daemon, addr, kinds, work):
    """Checks the memory that half records take, what other clients' work costs beside them, and
    that all of them end."""
    cost_us(daemon, work)
    alone = cost_us(daemon, work)
    before = memory(daemon)
    began = time.monotonic()
    h = Hostile(addr, kinds, "127.0.0.9")
    try:
        h.run(1)
        grown = memory(daemon) - before
        beside = min(cost_us(daemon, work) for _ in range(3))
        tap.say(f"{MANY} half records: {grown / MB:.1f} MiB more, {h.ended} ended at once; others' "
                f"work costs {alone:.0f} us, beside them {beside:.0f} us")
        check(grown < 64 * MB, True, f"memory grows by {grown / MB:.0f} MiB")
        h.run(0.5)
        end = time.monotonic() + 60
        while h.conns:
            check(time.monotonic() < end, True,
                  f"{len(h.conns)} half records are there after a minute")
            h.run(0.5)
        check(time.monotonic() - began >= TIME, True, "no half record had its time")
        # Other programs on the machine push it out of caches, at times more and at times less.
        alone = max(alone, cost_us(daemon, work))
        check(beside < 2 * alone + 100, True, f"{beside:.0f} us, alone {alone:.0f} us")
    finally:
        h.close()


def test_half_records_to_the_metadata_server(c):
    hostile("mds", ADDR, shapes(NFS, 4, 1), lambda: c.ok(putrootfh(), getfh()))


def file_of(c, name):
    """A data server and a handle there."""
    s, f = c.open(c.root(), name)
    m = lay(c, f, s).mirrors[0][0]
    ds = data_server(c, m)
    ds.addr = ds.conn.sock.getpeername()
    return ds, m.fhs[0]


def test_half_records_to_a_data_server(c):
    ds, fh = file_of(c, "half")
    check(ds.write(fh, 0, b"x" * 4096).status, 0)
    hostile("ds1", ds.addr, shapes(NFS, 3, 7), lambda: ds.write(fh, 0, b"x" * 4096))
    ds.close()


def test_a_first_record_of_a_mebibyte_in_a_session_is_served(c):
    s, f = c.open(c.root(), "first")
    data = os.urandom(MB)
    conn = Conn(ADDR)
    got = conn.compound(sequence(c.session.sessionid, 1, SLOT, SLOT), putfh(f),
                        write(s, 0, data, FILE_SYNC), cred=c.cred)
    check(err(got.status), "OK")
    conn.close()
    check(c.ok(putfh(f), read(s, MB - 100, 100)).data, data[-100:])


def test_a_first_record_with_a_session_that_is_gone_hears_so(c):
    f = c.root()
    conn = Conn(ADDR)
    got = conn.compound(sequence(b"\x55" * 16, 1, 0, 0), putfh(f), write(ANON, 0, bytes(MB)),
                        cred=c.cred)
    check(err(got.status), "BADSESSION")
    got = conn.compound(sequence(b"\x55" * 16, 1, 0, 0), putfh(f), write(ANON, 0, bytes(MB)),
                        cred=c.cred)
    check(err(got.status), "BADSESSION", "the next one on the same connection")
    check(conn.rpc(0), b"")
    conn.close()


def test_a_first_record_with_a_capability_is_served(c):
    ds, fh = file_of(c, "cap")
    data = os.urandom(MB)
    check(ds.write(fh, 0, data).status, 0)
    for off in (0, MB - 100):
        check(ds.read(fh, off, 100).data, data[off:off + 100])
    ds.close()


def test_a_first_record_with_another_handle_is_badhandle(c):
    ds, fh = file_of(c, "bad")
    bad = bytearray(fh)
    bad[-1] ^= 1
    check(ds.write(bytes(bad), 0, bytes(MB)).status, 10001)
    check(ds.write(fh, 0, bytes(MB)).status, 0, "then a good one on the same connection")
    ds.close()


def test_half_a_record_of_a_session_ends_too(c):
    s, f = c.open(c.root(), "slow")
    conn = Conn(ADDR)
    args = compound_args([sequence(c.session.sessionid, 1, SLOT, SLOT), putfh(f),
                          write(ANON, 0, bytes(MB))])
    record = rpc_call(5, 1, args, c.cred or auth_sys())
    began = time.monotonic()
    conn.send_raw(u32(0x80000000 | len(record)) + record[:-4])
    check(conn.is_closed(60), True)
    check(TIME - 1 <= time.monotonic() - began, True, "before its time")
    conn.close()
    c.ok(putfh(f), getattr_("size"))


def test_a_data_server_limits_connections_of_an_address(c):
    ds, fh = file_of(c, "many")
    refused = CLUSTER.metric('weft_ds_refused_total\\{what="connections"\\}', "ds1")
    socks = [socket.create_connection(ds.addr, 60, ("127.0.0.10", 0)) for _ in range(2110)]
    eventually(lambda: CLUSTER.metric('weft_ds_refused_total\\{what="connections"\\}', "ds1")
               == refused + 10, what="ten refused")
    check(ds.write(fh, 0, b"x").status, 0, "another address is not concerned")
    for s in socks:
        s.close()
    ds.close()


@contextlib.contextmanager
def around(name):
    with harness.clients(closing=True):
        yield (client(),)


def main():
    global CLUSTER
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 8192:
        tap.skip(f"{hard} open files at most")
        return
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 8192), hard))
    harness.THE = CLUSTER = Cluster(ds=1, settings=SETTINGS)
    try:
        tap.run(tap.named(globals()), around)
    finally:
        CLUSTER.down()


if __name__ == "__main__":
    main()
