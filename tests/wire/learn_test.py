#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Metadata servers that tell their data servers of others (mds.instances): who joins what, what is
kept, and what a list that is not valid does. Prints TAP.
"""
import contextlib
import os
import socket
import struct
import subprocess
import sys
import threading

HERE = os.path.dirname(os.path.abspath(__file__))
for folder in ("../wirelib", "../compat", "."):
    sys.path.insert(0, os.path.join(HERE, folder))
import join4  # noqa: E402
from daemons import ask, environment, program  # noqa: E402
from harness import *  # noqa: E402,F403
from instances_test import Two, served  # noqa: E402
from join_token import HELLO_FS, PROTOCOL, blake  # noqa: E402

JOIN2, HEARTBEAT, INSTANCES, INVAL = 4, 2, 10, 7
FAKE = 12104


def at(name, host=1):
    return f"127.0.0.{host}:{ {'a': 12101, 'b': 12102, 'fake': FAKE}[name] }"


class Told(Two):
    def __init__(self):
        super().__init__()
        self.told = {}

    def mds_keys(self, name, fs=0):
        return [*super().mds_keys(name, fs), "-o",
                "mds.instances=" + ",".join(self.told.get(name, []))]

    def again(self, name, told=None, fs=0):
        """Restarts this metadata server; told: the list that it tells from now on."""
        if told is not None:
            self.told[name] = told
        self.kill(name)
        self.mds(name, fs)

    def kept(self):
        """The rows of the data server's file."""
        try:
            with open(f"{self.top}/ds/instances", encoding="ascii") as f:
                head, version, *rows = f.read().splitlines()
        except FileNotFoundError:
            return []
        check((head, version), ("weft-ds instances", "version=1"))
        return sorted(r.removeprefix("told=") for r in rows)

    def joined(self):
        """As Two's; of two addresses with one port the one that is joined."""
        return {m["address"].rsplit(":", 1)[1]: m
                for m in sorted(self.states(), key=lambda m: m["joined"])}

    def ports(self):
        return sorted(int(p) for p in self.joined())


@contextlib.contextmanager
def around(name):
    w = Told()
    try:
        if "malformed" in name or "list" in name:
            yield (w,)
            return
        w.told["a"] = [] if "meets" in name else [at("b")]
        w.mds("a")
        if "meets" not in name:
            w.mds("b", 2)
        w.ds("a")
        yield (w,)
    finally:
        w.down()


def test_it_serves_the_second_one_too_and_knows_it_after_a_restart(w):
    w.wait_joined("a", "b")
    said = w.joined()
    check([(said[p]["fs"], said[p]["learned"]) for p in ("12101", "12102")],
          [(1, False), (2, True)])
    check(w.kept(), [f"1 {at('b')}"])
    files = [w.file(n, "d", n.encode()) for n in "ab"]
    served(w, *files)
    w.has_own("a", "b")
    # The first one is down: only the store says where the second is. With keys of its own, too.
    w.kill("a")
    w.kill("ds")
    w.ds("a", cluster_key=False)
    w.wait_joined("b")
    check(w.joined()["12101"]["joined"], False)
    served(w, files[1])
    w.mds("a")
    w.wait_joined("a", "b")
    served(w, *files)


def test_with_keys_of_the_first_it_meets_the_second(w):
    """A data server that has no cluster key any more when it hears of the second one."""
    w.wait_joined("a")
    w.has_own("a")
    w.ds_again("a")
    check((w.ports(), w.kept()), ([12101], []))
    w.mds("b", 2)
    w.again("a", [at("b")])
    w.wait_joined("a", "b")
    w.has_own("b")
    check("has keys of another file system" in w.log("b"), True)
    served(w, w.file("b", "d", b"2"))


def test_an_address_that_is_withdrawn_is_forgotten(w):
    w.wait_joined("a", "b")
    w.again("b", [at("a"), at("b", 2)], fs=2)  # its own second address among them
    eventually(lambda: len(w.kept()) == 3, 60, f"{w.kept()}")
    w.wait_joined("a", "b")
    w.again("a", [])
    # b has not said its own first address: nobody tells it now.
    eventually(lambda: w.kept() == sorted([f"2 {at('a')}", f"2 {at('b', 2)}"]), 60,
               f"{w.kept()}")
    w.wait_joined("a", "b")
    check([m["learned"] for m in w.states()], [False, True], "a is of ds.mds: it stays")
    b = w.file("b", "d", b"2")
    served(w, b)
    w.again("b", [], fs=2)
    eventually(lambda: w.ports() == [12101] and not w.kept(), 60, f"{w.states()}")
    check(w.joined()["12101"]["joined"], True)
    w.kill("ds")
    w.ds("a")
    w.wait_joined("a")
    check(w.ports(), [12101])
    w.again("a", [at("b")])
    w.wait_joined("a", "b")
    served(w, b)


def test_two_addresses_of_one_are_no_fault(w):
    w.again("a", [at("a"), at("a", 2), at("b"), at("b", 2)])
    w.wait_joined("a", "b")
    eventually(lambda: len(w.states()) == 4, 60, f"{w.states()}")
    eventually(lambda: ask(w.admin["ds"], "GET", "/v1/health")["joined"], 60, f"{w.states()}")


class Fake:
    """A metadata server of file system 9 that has the cluster key, and tells what it likes."""

    def __init__(self, cluster_key, cluster):
        self.key, self.cluster = cluster_key, cluster
        self.parts, self.joins, self.error = [], 0, None
        self.s = socket.create_server(("127.0.0.1", FAKE))
        self.conns = []
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            try:
                c = self.s.accept()[0]
            except OSError:
                return
            self.conns.append(c)
            try:
                self.speak(c)
            except (AssertionError, OSError):
                c.close()  # the data server went, or drop() did

    def speak(self, c):
        call = join4.record(c)
        xid, = struct.unpack_from(">I", call)
        hello, mine = call[40:92], os.urandom(32)
        said = PROTOCOL | 9 * HELLO_FS
        join4.send(c, struct.pack(">7I", xid, 1, 0, 0, 0, 0, said) + mine)
        both = blake(self.key, 64, b"weft control v3\0", hello[4:20], hello[20:52], mine,
                     hello[:4], struct.pack(">II", PROTOCOL, 9))
        both = both[:32], both[32:]
        sent = 0
        while True:
            call = join4.record(c)
            xid, kind = struct.unpack_from(">2I", call)
            check(kind, 0)
            asked, plain = join4.unseal(both[0], join4.TO_MDS, join4.CALL, 0, call[40:])
            op, = struct.unpack_from(">I", plain)
            if op == JOIN2:
                got = struct.pack(">2I", 0, op) + self.cluster + struct.pack(">IIQI", 9, 1, 5, 3000)
                got += struct.pack(">I", len(self.parts))
                for p in self.parts:
                    got += struct.pack(">2I", INSTANCES, len(p)) + p + bytes(-len(p) % 4)
            elif op == HEARTBEAT:
                got = struct.pack(">2IQI", 0, op, 5, 3000)
            else:
                got = struct.pack(">I", INVAL)
            sent += 1
            join4.send(c, struct.pack(">6I", xid, 1, 0, 0, 0, 0)
                       + join4.seal(both[1], join4.TO_DS, join4.REPLY, sent, asked, got))
            self.joins += op == JOIN2

    def tell(self, *parts):
        """Answers the next join, which comes now, with these entries."""
        self.parts, before = list(parts), self.joins
        for c in self.conns:
            with contextlib.suppress(OSError):
                c.shutdown(socket.SHUT_RDWR)
        eventually(lambda: self.joins > before, 60, "the data server joins again")


def one(text, port=12102):
    if ":" in text:
        return socket.inet_pton(socket.AF_INET6, text) + struct.pack(">H", port)
    return bytes(10) + b"\xff\xff" + socket.inet_aton(text) + struct.pack(">H", port)


def test_a_list_that_is_not_valid_changes_nothing_and_is_logged_once(w):
    fake = Fake(bytes.fromhex("5" * 64), b"a cluster's uuid")
    w.start("ds", "weft-ds", w.ds_keys(at("fake")))
    eventually(lambda: w.joined()[str(FAKE)]["joined"], 60, f"{w.states()}")
    w.kill("ds")
    with open(f"{w.top}/ds/instances", "w", encoding="ascii") as f:
        f.write("weft-ds instances\nversion=1\ntold=1 127.0.0.99:12102\n")  # nobody is there
    w.start("ds", "weft-ds", w.ds_keys(at("fake")))
    eventually(lambda: w.joined()[str(FAKE)]["joined"], 60, f"{w.states()}")
    fake.tell(one("127.0.0.9"))
    eventually(lambda: len(w.kept()) == 2, 60, f"{w.kept()}")
    good = w.kept()
    logged = lambda: w.log("ds").count("tells addresses of instances that this server does not")
    bad = [[b"abc"], [one("127.0.0.8"), one("127.0.0.7")[:-1]], [one("127.0.0.8", 0)],
           [one("0.0.0.0")], [one("224.0.0.1")], [one("255.255.255.255")], [one("::")],
           [one("ff02::1")], [one("fe80::1")],
           [b"".join(one(f"127.0.{k}.{i}") for i in range(1, 14)) for k in range(1, 6)],  # 65
           # 64, which are too many beside the other one
           [b"".join(one(f"127.0.{k}.{i}") for i in range(1, 9)) for k in range(1, 9)]]
    for parts in bad:
        fake.tell(*parts)
        eventually(lambda: w.joined()[str(FAKE)]["joined"], 60, f"{w.states()}")
        check(w.kept(), good, f"{parts}")
        check(len(w.states()), 3, f"{w.states()}")
    check(logged(), 1)
    fake.tell()  # it says nothing: an older one
    eventually(lambda: w.joined()[str(FAKE)]["joined"], 60, f"{w.states()}")
    check(w.kept(), good)
    # 63 fit, in several entries, and one twice counts once.
    fake.tell(*[b"".join(one(f"127.0.{k}.{i}") for i in range(1, 10)) for k in range(1, 8)],
              one("127.0.1.1"))
    eventually(lambda: len(w.kept()) == 64 and len(w.states()) == 65, 60, f"{w.kept()}")
    # Others of them, as many: places are used again.
    fake.tell(*[b"".join(one(f"127.1.{k}.{i}") for i in range(1, 10)) for k in range(1, 8)])
    eventually(lambda: len(w.states()) == 65
               and sum("127.1." in m["address"] for m in w.states()) == 63, 60, f"{w.states()}")
    fake.tell(b"")
    eventually(lambda: w.kept() == ["1 127.0.0.99:12102"] and len(w.states()) == 2, 60, f"{w.kept()}")
    fake.tell(b"a")
    eventually(lambda: logged() == 2, 60, "it is logged again after a good one")
    fake.s.close()


def test_a_file_that_is_not_valid_is_replaced(w):
    w.wait_joined("a", "b")
    w.kill("ds")
    with open(f"{w.top}/ds/instances", "w", encoding="ascii") as f:
        f.write("weft-ds instances\nversion=1\ntold=1 127.0.0.1:0\n")
    w.ds("a")
    w.wait_joined("a", "b")
    check("/ds/instances: Invalid argument" in w.log("ds"), True)
    check(w.kept(), [f"1 {at('b')}"])


def test_a_malformed_setting_is_refused(w):
    for said, want in (("127.0.0.1:x", '"127.0.0.1:x" is not an address'),
                       ("192.0.2.1,0.0.0.0", '"0.0.0.0" is not an address that a data server'),
                       ("[fe80::1]", "that a data server can connect to"),
                       ("224.0.0.5:2049", "that a data server can connect to"),
                       ("192.0.2.1:0", "that a data server can connect to"),
                       ("192.0.2.1,192.0.2.1:2049", "192.0.2.1:2049 is there twice"),
                       (",".join(f"192.0.2.{i}" for i in range(1, 66)), "more than 64 addresses")):
        done = subprocess.run(
            [program("weft-mds"), "-o", f"mds.store={w.top}/a", "-o", "mds.listen=127.0.0.1:12109",
             "-o", f"mds.cluster_key={w.top}/key", "-o", f"mds.instances={said}", "--check"],
            capture_output=True, text=True, timeout=60, check=False,
            env=environment("weft-mds"))
        check((done.returncode, "mds.instances: " in done.stderr and want in done.stderr),
              (2, True), done.stderr[-300:])


if __name__ == "__main__":
    tap.run(tap.named(globals()), around, 1)
