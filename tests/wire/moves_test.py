#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""weft-mds with mds.addresses: rows of its connections, and a move to another node. Prints TAP."""
import contextlib
import json
import os
import secrets
import shutil
import socket
import struct
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../wirelib"))
import tap  # noqa: E402
from harness import BUILD, check, eventually, Failed  # noqa: E402
from nodes import Addr, V4, V6, world  # noqa: E402


class Mds:
    """A weft-mds on a node, with the store of the folder, wherever it was before."""

    def __init__(self, node, folder, addr):
        self.log = os.path.join(folder, f"mds{node.n}.log")
        keys = {"store": f"{folder}/store", "cluster_key": f"{folder}/key", "user": "",
                "listen": "0.0.0.0:2049, [::]:2049", "admin": f"unix:{folder}/admin{node.n}",
                "addresses": f"{V4}, {V6}", "addr_socket": addr.path, "threads": "2"}
        with open(self.log, "a+", encoding="utf-8") as log:
            log.seek(0)
            self.starts = log.read().count("service addresses:") + 1
            self.proc = subprocess.Popen(
                ["nsenter", "-t", str(node.pid), "-n", os.path.join(BUILD, "weft-mds"),
                 *[x for k, v in keys.items() for x in ("-o", f"mds.{k}={v}")]], stderr=log)

    def said(self):
        with open(self.log, encoding="utf-8") as f:
            return f.read()

    def heard(self, text, times):
        def done():
            check(self.proc.poll(), None, self.said())
            return self.said().count(text) >= times
        eventually(done, what=text)

    def kill(self):
        self.proc.kill()
        self.proc.wait()

    def stop(self):
        self.proc.terminate()
        check(self.proc.wait(60), 0, self.said())


@contextlib.contextmanager
def moving(*numbers, wait=2):
    """Nodes, the last of which is the client, and a weft-addr on each of the others."""
    with world(*numbers) as (nodes, folder):
        with open(f"{folder}/key", "w", encoding="utf-8") as f:
            f.write(secrets.token_hex(32) + "\n")
        os.chmod(f"{folder}/key", 0o600)
        addrs = [Addr(n, folder, "-w", str(wait)) for n in nodes[:-1]]
        started = []

        def mds(n):
            started.append(Mds(nodes[n], folder, addrs[n]))
            started[-1].heard("service addresses:", started[-1].starts)
            return started[-1]
        try:
            yield nodes, folder, addrs, mds
        finally:
            for m in started:
                if m.proc.poll() is None:
                    m.kill()
            for a in addrs:
                a.end()


def null(s):
    """A call of the procedure NULL: the server has the connection."""
    s.settimeout(60)
    s.sendall(struct.pack("!I10I", 0x80000028, 7, 0, 2, 100003, 4, 0, 0, 0, 0, 0))
    check(len(s.recv(1000)) >= 28, True, "the answer of NULL")


def call(node, ip, port=0):
    s = node.socket(socket.AF_INET6 if ":" in ip else socket.AF_INET)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    s.settimeout(60)
    if port:
        s.bind(("::" if ":" in ip else "0.0.0.0", port))
    s.connect((ip, 2049))
    null(s)
    return s


def rows(folder):
    done = subprocess.run([os.path.join(BUILD, "weft-fsck"), "--json", f"{folder}/store"],
                          capture_output=True, text=True, timeout=60, check=False)
    got = json.loads(done.stdout)
    check((got["violations"], got["complete"]), ([], True))
    return got["rows"]


def died(s):
    return bool(s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)) or \
        s.getsockopt(socket.SOL_TCP, 11, 1)[0] != 1


def test_connections_have_rows_while_they_live():
    with moving(1, 3) as ((n1, c), folder, _, mds):
        mds(0)
        before = rows(folder)
        mine = [call(c, V4), call(c, V6), call(c, V4)]
        # No service address: such a connection ends with its node, and needs no row.
        other = call(c, "10.9.0.1")
        eventually(lambda: rows(folder) == before + 3, what="three rows")
        mine.pop().close()
        eventually(lambda: rows(folder) == before + 2, what="two rows")
        other.close()
        check(rows(folder), before + 2)


def test_a_power_cut_resets_its_clients_elsewhere():
    with moving(1, 2, 3) as ((n1, n2, c), folder, _, mds):
        m1 = mds(0)
        before = rows(folder)
        # The client uses the same port again, as stock clients do.
        mine = {ip: call(c, ip, 700 + i) for i, ip in enumerate((V4, V6))}
        eventually(lambda: rows(folder) == before + 2, what="two rows")
        n1.cut()
        m1.kill()
        check(n1.has(V4), True)
        check([died(s) for s in mine.values()], [False, False])
        began = time.monotonic()
        m2 = mds(1)
        check((n2.has(V4), n2.has(V6)), (True, True))
        up = time.monotonic()
        for ip, s in mine.items():
            while not died(s):
                if time.monotonic() > up + 5:
                    raise Failed(f"{ip}: 5 s after the address came the client knows nothing")
                time.sleep(0.005)
        tap.say(f"start to address {up - began:.2f} s, all reset "
                f"{max(0, time.monotonic() - up):.2f} s later")
        check("2 connections of before are made known dead" in m2.said(), True)
        again = [call(c, ip, 700 + i) for i, ip in enumerate((V4, V6))]
        # The former rows are gone, and those of the same addresses and ports are there.
        eventually(lambda: rows(folder) == before + 2, what="two rows")
        check([died(s) for s in again], [False, False])


def test_a_stop_refuses_nothing_and_keeps_the_rows():
    with moving(1, 2, 3) as ((n1, n2, c), folder, _, mds):
        m1 = mds(0)
        before = rows(folder)
        mine = call(c, V4)
        eventually(lambda: rows(folder) == before + 1, what="a row")
        refused, tries, over = [], [0], threading.Event()

        def knock():
            while not over.is_set():
                with c.socket(socket.AF_INET) as s:
                    s.settimeout(0.2)
                    try:
                        s.connect((V4, 2049))
                        tries[0] += 1
                    except ConnectionRefusedError as e:
                        refused.append(e)
                    except OSError:
                        pass
        knocker = threading.Thread(target=knock)
        knocker.start()
        try:
            eventually(lambda: tries[0] > 20, what="connections")
            m1.stop()
            check((n1.has(V4), n1.has(V6)), (False, False))
            # The end of the connection could not leave any more.
            check(died(mine), False)
            mds(1)
            tried = tries[0]
            eventually(lambda: tries[0] > tried + 5, what="connections to node 2")
        finally:
            over.set()
            knocker.join()
        check(refused, [])
        eventually(lambda: died(mine), what="the reset of a connection from before")


def test_a_daemon_that_is_killed_comes_back_in_place():
    with moving(1, 3, wait=60) as ((_, c), _, (a,), mds):
        m = mds(0)
        s = call(c, V4)
        m.kill()
        mds(0)
        eventually(lambda: died(s), what="the end of the old connection")
        call(c, V4)
        check("released" in a.said(), False)
        # And the other way round: weft-addr is away for a while.
        a.kill()
        a.start()
        eventually(lambda: a.holder().states() == {V4: "open", V6: "open"}, what="the addresses")
        call(c, V4)


if __name__ == "__main__":
    if os.geteuid() or not all(shutil.which(p) for p in ("nsenter", "nft", "ip")):
        tap.skip("only root can make networks, with ip and nft")
    elif not tap.built("weft-addr", "weft-mds", "weft-fsck"):
        tap.skip("the programs are not built")
    else:
        tap.run(tap.named(globals()), beside=2)
