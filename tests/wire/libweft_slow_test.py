#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""libweft (client/weft.h) and data servers with many calls at once. Prints TAP.

A slow one gets all its calls itself, however many wait there. A dead one is noticed. Several
connections share them.
"""
import os
import socket
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../wirelib"))
import tap  # noqa: E402
from harness import *  # noqa: E402,F403
from mirrored import stopped  # noqa: E402

PROGRAM = os.path.join(BUILD, "tests/wirelib/weft_depth")
RATE = 5e6  # bytes a second
DEPTH = 96
QUIET_S = 10  # docs/libweft.md
# No lease is to end here, however loaded the machine is.
CALM = ["mds.lease=60s", "mds.recall_deadline=120s", "ds.lease=60s", "mds.ds_dead=60s",
        "mds.ds_suspect=50s", "mds.ds_refused=60s"]


class Narrow:
    """A proxy that passes on RATE bytes a second in each direction of a connection, once it is
    told to."""

    def __init__(self, port):
        self.far, self.slow, self.rate = port, False, RATE
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                near, _ = self.listener.accept()
                far = socket.create_connection(("127.0.0.1", self.far))
            except OSError:
                return
            for a, b in ((near, far), (far, near)):
                threading.Thread(target=self.carry, args=(a, b), daemon=True).start()

    def carry(self, a, b):
        due = 0.0
        try:
            while got := a.recv(1 << 16):
                b.sendall(got)
                now = time.monotonic()
                due = max(due, now) + len(got) / self.rate
                while self.slow and now < due:
                    time.sleep(min(due - now, 0.1))
                    now = time.monotonic()
        except OSError:
            pass
        for s in (a, b):
            try:
                s.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def close(self):
        self.listener.close()


class Depth:
    """weft_depth with a file."""

    def __init__(self, name, how, conns):
        self.p = subprocess.Popen([PROGRAM, f"{ADDR[0]}:{ADDR[1]}", name, how],
                                  stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, text=True,
                                  env={**os.environ, "WEFT_DS_CONNS": str(conns)})

    def begin(self, n):
        self.p.stdin.write(f"{n}\n")
        self.p.stdin.flush()

    def result(self):
        """Milliseconds, and errors at data servers."""
        words = self.p.stdout.readline().split()
        if len(words) != 4:
            raise Failed(f"it ended: {self.p.communicate(timeout=60)[1].strip()[-600:]}")
        return int(words[1]), int(words[3])

    def run(self, n):
        self.begin(n)
        return self.result()

    def end(self):
        said = self.p.communicate(timeout=300)
        check((self.p.returncode, said[1]), (0, ""), "weft_depth")

    def kill(self):
        self.p.kill()
        self.p.communicate()


@contextlib.contextmanager
def depth(name, how, conns=1):
    d = Depth(name, how, conns)
    try:
        yield d
        d.end()
    finally:
        d.kill()


def row_of(w, name):
    rows = json.loads(w.dev("status", w.dir, "--json"))["daemons"]
    return next(r for r in rows if r["name"] == name)


@contextlib.contextmanager
def behind(w, name):
    """The data server starts again behind a proxy, whose address its clients get."""
    row = row_of(w, name)
    with open(f"/proc/{row['pid']}/cmdline", "rb") as f:
        words = [os.fsdecode(word) for word in f.read().split(b"\0")[:-1]]
    w.dev("kill", w.dir, name, "-9")
    words[0] = os.path.join(BUILD, "weft-ds")
    proxy = Narrow(row["port"])
    child = subprocess.Popen([*words, "-o", f"ds.advertise=127.0.0.1:{proxy.port}"],
                             stderr=subprocess.DEVNULL)
    try:
        yield proxy
    finally:
        child.kill()
        child.wait()
        proxy.close()


def through(w):
    """Calls for data that the metadata server has got."""
    return [w.metric(r'weft_mds_op_total{op="%s"}' % op) for op in ("READ", "WRITE")]


def test_a_slow_data_server_gets_all_its_calls(w):
    with behind(w, "ds1") as proxy:
        with depth("old", "write") as old:
            check(old.run(DEPTH)[1], 0, "errors before")
        was = through(w)
        with depth("new", "write") as new, depth("old", "read") as old:
            check((new.run(1)[1], old.run(1)[1]), (0, 0), "errors before")
            proxy.slow = True
            new.begin(DEPTH)
            old.begin(DEPTH)
            (wrote, bad), (read, worse) = new.result(), old.result()
            proxy.slow = False
        tap.say(f"{DEPTH} MiB written in {wrote} ms, read in {read} ms")
        check((bad, worse), (0, 0), "errors of writing, of reading")
        check(through(w), was, "through the metadata server")
        # Else the proxy was no test of it.
        check(min(wrote, read) > 1500 * QUIET_S, True, f"{wrote} ms, {read} ms")


def test_a_recall_does_not_wait_for_a_slow_data_server(w):
    c = client()
    with behind(w, "ds1") as proxy, depth("recalled", "write") as d:
        check(d.run(1)[1], 0, "errors before")
        was = through(w)
        # All of it would take 24 minutes.
        proxy.rate, proxy.slow = RATE / 80, True
        d.begin(DEPTH)
        eventually(lambda: w.metric(r'weft_ds_op_total{proc="WRITE"}', "ds1") >= 2, 60, "a WRITE")
        began = time.monotonic()
        c.ok(putrootfh(), lookup("recalled"), setattr_(mode=0o600))
        took = time.monotonic() - began
        proxy.slow = False
        errors = d.result()[1]
        tap.say(f"the layout was back after {took:.1f} s, {errors} errors")
        check(w.metric("weft_mds_layout_revoked_total"), 0, "layouts taken away")
        check(errors >= 1, True, "calls ended")
        check(through(w)[1] > was[1], True, "and went through the metadata server")


def test_a_data_server_that_stands_still_is_left_in_time(w):
    c = client()
    c.ok(putrootfh(), setxattr("weft.policy", "mirrors=2"))
    servers = ("ds1", "ds2")

    def reads():
        return {n: w.metric(r'weft_ds_op_total{proc="READ"}', n) for n in servers}
    with depth("dead", "write") as d:
        d.run(8)
    with depth("dead", "read") as d:
        was = reads()
        d.run(1)
        now = reads()
        used = max(servers, key=lambda n: now[n] - was[n])
        with stopped(w, used):
            ms, errors = d.run(8)
        tap.say(f"left after {ms} ms")
        check(errors >= 1, True, "an error was seen")
        check(1000 * QUIET_S - 50 <= ms < 60000, True, f"{ms} ms")


def conns(pid, port):
    """How many connections this process has to this port."""
    inodes = {str(os.stat(f"/proc/{pid}/fd/{fd}").st_ino) for fd in os.listdir(f"/proc/{pid}/fd")}
    with open("/proc/net/tcp", encoding="ascii") as f:
        rows = [line.split() for line in f][1:]
    return sum(r[2].endswith(f":{port:04X}") and r[3] == "01" and r[9] in inodes for r in rows)


def test_calls_at_once_share_the_connections_to_a_data_server(w):
    port = row_of(w, "ds1")["port"]
    for n in (1, 4):
        for how in ("write", "read"):
            was = through(w)
            with depth("shared", how, n) as d:
                check(d.run(1)[1], 0, "errors")
                check(conns(d.p.pid, port), 1, "connections for one call at a time")
                check(d.run(32)[1], 0, "errors")
                check(conns(d.p.pid, port), n, f"connections for 32 calls at once, at most {n}")
            check(through(w), was, "through the metadata server")


if __name__ == "__main__":
    run_apart(globals(), ds=lambda name: 2 if "still" in name else 1, settings=CALM)
