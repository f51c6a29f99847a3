#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""weft-mds with mds.addresses: rows of its connections, and a move to another node. Prints TAP."""
import contextlib
import json
import os
import resource
import secrets
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../wirelib"))
import tap  # noqa: E402
from harness import BUILD, check, eventually, Failed, stand_still  # noqa: E402
from load import Watch  # noqa: E402
from nodes import Addr, V4, V6, world  # noqa: E402


class Mds:
    """A weft-mds on a node, with the store of the folder, wherever it was before."""

    def __init__(self, node, folder, addr, fifo=None, stderr=None, level="info"):
        self.log = os.path.join(folder, f"mds{node.n}.log")
        keys = {"store": f"{folder}/store", "cluster_key": f"{folder}/key", "user": "",
                "listen": "0.0.0.0:2049, [::]:2049", "admin": f"unix:{folder}/admin{node.n}",
                "addresses": f"{V4}, {V6}", "addr_socket": addr.path, "threads": "2"}
        with open(self.log, "a+", encoding="utf-8") as log:
            log.seek(0)
            self.starts = log.read().count("service addresses:") + 1
            program = "tests/fault/weft-mds" if fifo else "weft-mds"
            self.proc = subprocess.Popen(
                ["nsenter", "-t", str(node.pid), "-n", os.path.join(BUILD, program),
                 *[x for k, v in keys.items() for x in ("-o", f"mds.{k}={v}")],
                 "-o", f"log.level={level}"],
                stderr=log if stderr is None else stderr,
                env={**os.environ, **({"WEFT_LEASE_FIFO": fifo} if fifo else {})})

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


def make_key(folder):
    with open(f"{folder}/key", "w", encoding="utf-8") as f:
        f.write(secrets.token_hex(32) + "\n")
    os.chmod(f"{folder}/key", 0o600)


@contextlib.contextmanager
def moving(*numbers, wait=2):
    """Nodes, the last of which is the client, and a weft-addr on each of the others."""
    with world(*numbers) as (nodes, folder):
        make_key(folder)
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
    with moving(1, 2, 3) as ((n1, n2, c), folder, addrs, mds):
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
        up, watch = time.monotonic(), Watch(m2.proc.pid, addrs[1].pid)
        for ip, s in mine.items():
            while not died(s):
                if time.monotonic() > up + 60:
                    raise Failed(f"{ip}: 60 s after the address came the client knows nothing")
                time.sleep(0.005)
        took = watch.took()
        tap.say(f"start to address {up - began:.2f} s, all reset {took:.2f} s later")
        check(took < 5, True, f"{took:.2f} s")
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


class Fake:
    """A weft-addr that puts no address anywhere. It answers OK, or what the test says."""

    def __init__(self, folder):
        self.path = os.path.join(folder, "fake.sock")
        self.heard, self.times, self.conn, self.taken = [], [], None, 0
        self.answers = {}  # verb: a list of answers; the last one counts for all that follow
        self.around = {}  # verb: what happens around its next answer
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.listener.bind(self.path)
        self.listener.listen(8)
        self.over = threading.Event()
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        while not self.over.is_set():
            fds = [self.listener] + ([self.conn] if self.conn else [])
            for s in select.select(fds, [], [], 0.1)[0]:
                if s is self.listener:
                    self.close()
                    self.conn = s.accept()[0]
                    self.taken += 1
                else:
                    self.one()

    def one(self):
        try:
            text = self.conn.recv(1 << 17).decode()
        except ConnectionResetError:
            return  # it left an answer unread: what it said, and its end, come next
        if not text:
            self.close()
            return
        self.heard.append(text)
        self.times.append(time.monotonic())
        verb = text.split()[0]
        answers = self.answers.get(verb, [])
        answer = answers.pop(0) if len(answers) > 1 else answers[0] if answers else "OK"
        if verb == "TICKLE" and answer == "OK":
            answer = f"OK {len(text.splitlines()) - 1}"
        with self.around.pop(verb, contextlib.nullcontext)():
            with contextlib.suppress(BrokenPipeError):  # it may not wait for an answer
                self.conn.send(answer.encode())

    def close(self):
        if self.conn:
            self.conn.close()
        self.conn = None

    def verbs(self):
        return [t.split()[0] for t in self.heard]

    def wait(self, verb, times=1):
        eventually(lambda: self.verbs().count(verb) >= times, what=f"{times} {verb}")

    def end(self):
        self.over.set()
        self.thread.join()
        self.close()
        self.listener.close()


@contextlib.contextmanager
def pretended():
    """A node and its client, a weft-addr that is not one, and what starts servers with it."""
    with world(1, 3) as ((n1, c), folder):
        make_key(folder)
        fake, started = Fake(folder), []

        def mds(fifo=None, **how):
            started.append(Mds(n1, folder, fake, fifo, **how))
            return started[-1]
        try:
            yield (n1, c), folder, fake, mds
        finally:
            for m in started:
                if m.proc.poll() is None:
                    m.kill()
            fake.end()


def make_fifo(folder):
    """(path, open file) What is written there says how long a server holds its store."""
    path = f"{folder}/fifo"
    os.mkfifo(path)
    return path, os.open(path, os.O_RDWR)


def connections(c, n):
    """So many connections to the address, all of which the server has."""
    made = []
    for _ in range(n):
        s = c.socket(socket.AF_INET)
        s.settimeout(60)
        s.connect((V4, 2049))
        made.append(s)
    for s in made:
        null(s)
    return made


def test_rows_come_in_bounded_messages_until_all_are_taken():
    with pretended() as ((n1, c), folder, fake, mds):
        n1.run("ip", "addr", "add", f"{V4}/32", "dev", "eth0")
        m = mds()
        fake.wait("LISTENING")
        before = rows(folder)
        made = connections(c, 720)
        eventually(lambda: rows(folder) == before + 720, what="720 rows")
        m.kill()
        want = {f"{V4} 2049 10.9.0.3 {s.getsockname()[1]}" for s in made}
        fake.heard.clear()
        # It has no room for most of them at first.
        fake.answers["TICKLE"] = ["OK 10", "OK 0", "OK"]
        m = mds()
        eventually(lambda: rows(folder) == before, what="no rows of before")
        check(fake.verbs()[:3], ["HOLD", "LIVE", "LISTENING"])
        check([len(t) <= 65536 and len(t.splitlines()) <= 701 for t in fake.heard],
              [True] * len(fake.heard))
        messages = [t.splitlines()[1:] for t in fake.heard if t.startswith("TICKLE")]
        check(messages[1][:5], messages[0][10:15])
        check(messages[2][:5], messages[1][:5])
        taken = messages[0][:10] + [row for part in messages[2:] for row in part]
        check((len(taken), set(taken)), (720, want))
        for s in made:
            s.close()


def test_rows_that_are_refused_cost_no_address():
    with pretended() as ((n1, c), folder, fake, mds):
        n1.run("ip", "addr", "add", f"{V4}/32", "dev", "eth0")
        m = mds()
        fake.wait("LISTENING")
        before = rows(folder)
        made = connections(c, 3)
        eventually(lambda: rows(folder) == before + 3, what="3 rows")
        m.kill()
        eventually(lambda: fake.conn is None, what="the end of the connection")
        fake.answers["TICKLE"] = ["ERROR no"]
        fake.heard.clear()
        fake.taken = 0
        m = mds()
        eventually(lambda: rows(folder) == before, what="no rows of before")
        fake.wait("LIVE", 4)
        check((fake.taken, fake.verbs().count("HOLD"), fake.verbs().count("TICKLE")), (1, 1, 1))
        check("3 connections of before: ERROR no" in m.said(), True)
        for s in made:
            s.close()


def test_a_server_says_that_it_lives():
    with pretended() as (_, _, fake, mds):
        m = mds()
        fake.wait("LIVE", 8)
        live = [(t, at) for t, at in zip(fake.heard, fake.times) if t.startswith("LIVE")]
        check({t for t, _ in live}, {"LIVE 5000 KEEP"})
        gaps = [b[1] - a[1] for a, b in zip(live, live[1:])]
        tap.say(f"LIVE every {sum(gaps) / len(gaps):.2f} s, {max(gaps):.2f} s at most")
        # It asks again when weft-addr does, and says LIVE from the first moment on.
        fake.heard.clear()
        fake.answers["LIVE"] = ["ERROR nothing is held", "OK"]
        fake.wait("HOLD")
        at = fake.verbs().index("HOLD")
        eventually(lambda: fake.verbs()[at:at + 3] == ["HOLD", "LIVE", "LISTENING"], what="all")
        m.stop()
        check(fake.verbs()[-1], "RELEASE")


def test_a_server_that_hangs_loses_its_addresses():
    with moving(1, 3, wait=60) as ((n1, c), _, (a,), mds):
        m = mds(0)
        call(c, V4)
        m.proc.send_signal(signal.SIGSTOP)
        eventually(lambda: not n1.has(V4) and not n1.has(V6), what="no address")
        check(a.holder().states(), {V4: "lapsed", V6: "lapsed"})
        m.proc.send_signal(signal.SIGCONT)
        eventually(lambda: n1.has(V4) and n1.has(V6), what="the addresses")
        call(c, V4)


def test_the_addresses_end_with_the_lease_of_the_store():
    with pretended() as (_, folder, fake, mds):
        fifo, holder = make_fifo(folder)
        m = mds(fifo)
        m.heard("listening:", 1)
        # No proof, no address.
        time.sleep(1)
        check((fake.taken, fake.heard), (0, []))
        os.write(holder, b"hold 60000\n")
        fake.wait("LISTENING")
        check(fake.heard[1], "LIVE 5000")
        os.write(holder, b"lost\n")
        eventually(lambda: m.proc.poll() is not None, what="the end of the server")
        fake.wait("RELEASE")
        check((m.proc.wait(), fake.verbs()[-1]), (1, "RELEASE"))
        # What is left of a lease is what weft-addr hears.
        fake.heard.clear()
        m = mds(fifo)
        os.write(holder, b"hold 3000\n")
        fake.wait("LIVE")
        first = int(fake.heard[1].split()[1])
        check((first <= 3000, "KEEP" in fake.heard[1]), (True, False))
        fake.wait("LIVE", 2)
        parts = [int(t.split()[1]) for t in fake.heard if t.startswith("LIVE")]
        check(parts, sorted(parts, reverse=True))
        os.close(holder)


def test_an_answer_that_comes_after_the_lease_gives_no_address():
    with pretended() as (_, folder, fake, mds):
        fifo, holder = make_fifo(folder)
        m = mds(fifo)
        m.heard("listening:", 1)

        @contextlib.contextmanager
        def late():
            stand_still(m.proc.pid)
            time.sleep(3.2)
            yield
            m.proc.send_signal(signal.SIGCONT)
        fake.around["HOLD"] = late

        def asked():
            os.write(holder, b"hold 3000\n")
            end = time.monotonic() + 5
            while time.monotonic() < end and not fake.heard:
                time.sleep(0.01)
            return fake.heard
        eventually(asked, what="HOLD")
        # weft-addr leaves addresses without LIVE to their holder: it must not become one.
        eventually(lambda: len(fake.heard) > 1, what="what follows HOLD")
        check(fake.verbs()[1], "RELEASE")
        eventually(lambda: fake.conn is None, what="the end of the connection")
        check(fake.verbs(), ["HOLD", "RELEASE"])
        os.write(holder, b"hold 600000\n")
        fake.wait("LISTENING")
        check(fake.verbs()[2:5], ["HOLD", "LIVE", "LISTENING"])
        os.close(holder)


def test_who_lost_the_store_asks_for_no_address_while_its_log_blocks():
    with pretended() as (_, folder, fake, mds):
        fifo, holder = make_fifo(folder)
        reader, writer = os.pipe()
        m = mds(fifo, stderr=writer, level="error")
        os.write(holder, b"hold 600000\n")
        fake.wait("LISTENING")
        # The daemon waits for room. This end of the pipe does not.
        filler = os.open(f"/proc/self/fd/{writer}", os.O_WRONLY | os.O_NONBLOCK)
        for size in (4096, 1):
            with contextlib.suppress(BlockingIOError):
                while True:
                    os.write(filler, b"x" * size)

        @contextlib.contextmanager
        def released():
            fake.answers["LIVE"] = ["ERROR nothing is held"]
            yield
        fake.around["RELEASE"] = released
        os.write(holder, b"lost\n")
        fake.wait("RELEASE")
        # It would say LIVE twice a second, and ask again 0.2 s after it is refused.
        time.sleep(3)
        check(m.proc.poll(), None, "it waits for its log")
        check("HOLD" in fake.verbs()[fake.verbs().index("RELEASE"):], False, str(fake.verbs()))
        os.close(filler)
        os.close(writer)
        with open(reader, "rb") as log:
            check(b"another instance holds the store" in log.read(), True)
        check(m.proc.wait(60), 1)
        os.close(holder)


def test_a_weft_addr_that_does_not_answer_stops_nothing():
    with moving(1, 3) as ((_, c), folder, (a,), _):
        a.proc.send_signal(signal.SIGSTOP)
        waiting = []
        with contextlib.suppress(BlockingIOError):
            while len(waiting) < 1000:
                waiting.append(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
                waiting[-1].setblocking(False)
                waiting[-1].connect(a.path)
        m = Mds(a.node, folder, a)
        try:
            m.heard("does not answer", 1)
            call(c, "10.9.0.1")
            check(a.node.has(V4), False)
            for s in waiting:
                s.close()
            a.proc.send_signal(signal.SIGCONT)
            m.heard("service addresses:", 1)
            call(c, V4)
            # It stops also where the answer of RELEASE does not come.
            a.proc.send_signal(signal.SIGSTOP)
            m.stop()
            a.proc.send_signal(signal.SIGCONT)
            eventually(lambda: not a.node.has(V4), what="no address")
        finally:
            m.kill()


def test_addresses_that_make_no_sense_are_named():
    def refused(listen, addresses):
        done = subprocess.run(
            [os.path.join(BUILD, "weft-mds"), "--check=values", "-o", f"mds.listen={listen}", "-o",
             f"mds.addresses={addresses}"], capture_output=True, text=True, timeout=60,
            check=False)
        return done.returncode, done.stderr
    for address in ("10.9.0.100/24", "10.9.0.100:2049", "0.0.0.0", "::", "224.0.0.1", "ff02::1",
                    "::ffff:10.9.0.100", "host"):
        status, said = refused("0.0.0.0, [::]", f"10.9.0.1, {address}")
        check((status, f'"{address}"' in said), (2, True), f"{address}: {said}")
    check("there twice" in refused("0.0.0.0, [::]", "fd09::1, FD09:0::1")[1], True)
    for listen, address in (("10.9.0.1", "10.9.0.2"), ("[::]", "10.9.0.2"), ("0.0.0.0", "fd09::1")):
        status, said = refused(listen, address)
        check((status, f'"{address}": mds.listen has' in said), (2, True), said)
    for listen, address in (("10.9.0.1, 10.9.0.2:2050", "10.9.0.2"), ("0.0.0.0, [fd09::1]",
                                                                     "10.9.0.2, fd09::1")):
        check(refused(listen, address)[0], 0, refused(listen, address)[1])


if __name__ == "__main__":
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, most), most))
    if os.geteuid() or not all(shutil.which(p) for p in ("nsenter", "nft", "ip")):
        tap.skip("only root can make networks, with ip and nft")
    elif not tap.built("weft-addr", "weft-mds", "weft-fsck"):
        tap.skip("the programs are not built")
    else:
        tap.run(tap.named(globals()), beside=2)
