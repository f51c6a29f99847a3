#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""When weft-ds begins to accept connections over TCP. Prints TAP.

It does so at once; with RDMA, when RDMA is there, or after two seconds without it.
"""
import contextlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../wirelib"))
import tap  # noqa: E402
from tap import BUILD  # noqa: E402

PORTS = iter(range(12083, 12099))  # an ended server may accept a connection a moment longer
LATE = "not all addresses of ds.rdma are ready"
WAIT_S = 0.7
NULL = bytes.fromhex("80000028 00000001 00000000 00000002 000186a3 00000003 00000000 00000000 "
                     "00000000 00000000 00000000")


class Server:
    """A weft-ds without a metadata server. No device has an address of 192.0.2.0/24, so the server
    waits for its RDMA."""

    def __init__(self, *settings, held=None):
        self.addr = held.getsockname() if held else ("127.0.0.1", next(PORTS))
        self.top = tempfile.mkdtemp(prefix="weft-listen-test.")
        with open(self.top + "/key", "w", encoding="ascii") as f:
            os.fchmod(f.fileno(), 0o600)
            f.write("5a" * 32 + "\n")
        words = [os.path.join(BUILD, "weft-ds")]
        for s in (f"store={self.top}/store", f"cluster_key={self.top}/key",
                  "listen=%s:%d" % self.addr, "mds=127.0.0.1:1", "admin=", "name=one", *settings):
            words += ["-o", "ds." + s]
        env = {**os.environ, "ASAN_OPTIONS": "detect_leaks=0"}
        if held:  # sd_listen_fds(3): descriptor 3, and LISTEN_PID is whose it is
            words = ["/bin/sh", "-c",
                     f'exec 3<&{held.fileno()}; LISTEN_PID=$$ LISTEN_FDS=1 exec "$@"', "sh", *words]
        self.begin = time.monotonic()
        with open(self.top + "/log", "w", encoding="utf-8") as f:
            self.child = subprocess.Popen(words, stdin=subprocess.DEVNULL, stderr=f, env=env,
                                          pass_fds=[held.fileno()] if held else [])

    def log(self):
        with open(self.top + "/log", encoding="utf-8") as f:
            return f.read()

    def connect(self):
        """Seconds from its start to the first connection that is not refused; the connection."""
        while True:
            assert self.child.poll() is None and time.monotonic() - self.begin < 60, self.log()
            with contextlib.suppress(ConnectionRefusedError):
                s = socket.create_connection(self.addr, 60)
                return time.monotonic() - self.begin, s
            time.sleep(0.01)

    def stop(self):
        if self.child.poll() is None:
            self.child.terminate()
        self.child.wait(20)
        shutil.rmtree(self.top)


@contextlib.contextmanager
def server(*settings, **how):
    s = Server(*settings, **how)
    try:
        yield s
    finally:
        s.stop()


def answered(s):
    s.sendall(NULL)
    got = s.recv(4096)
    assert got[4:12] == b"\0\0\0\1\0\0\0\1", got


def test_rdma_is_waited_for_before_tcp_is_served(_):
    with server("rdma=192.0.2.1", "pool=16M") as d:
        after, s = d.connect()
        with s:
            answered(s)
        assert after >= WAIT_S, f"a client was taken {after:.2f} s after the start"
        assert d.log().count(LATE) == 1, d.log()
        assert d.log().index(LATE) < d.log().index("NFSv3 over tcp at"), d.log()


def test_without_rdma_nothing_is_waited_for(_):
    with server() as d:
        _, s = d.connect()
        with s:
            answered(s)
        assert LATE not in d.log(), d.log()


def test_a_held_socket_is_served_all_along(_):
    with (socket.create_server(("127.0.0.1", next(PORTS))) as held,
          server("rdma=192.0.2.1", "pool=16M", held=held) as d):
        _, s = d.connect()
        with s:
            answered(s)
        while LATE not in d.log():
            assert d.child.poll() is None and time.monotonic() - d.begin < 60, d.log()
            time.sleep(0.1)
        with socket.create_connection(d.addr, 60) as s:
            answered(s)


def main():
    if not tap.built("weft-ds"):
        tap.skip("weft-ds is not built")
        return
    tap.main(globals())


if __name__ == "__main__":
    main()
