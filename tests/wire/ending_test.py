#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""An export that is removed or changed ends every capability given below it (docs/security.md).
Prints TAP.

That includes capabilities of layouts that came back long before. It happens at a reload, at a
start, and after a server that stops in the middle. Clients are loopback addresses.
"""
import contextlib
import os
import signal
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../wirelib"))
import harness  # noqa: E402
import tap  # noqa: E402
from harness import *  # noqa: E402,F403
from jobs import api, ended  # noqa: E402
from steps import data_server, lay  # noqa: E402
from tool import weft_json as weft  # noqa: E402
from nfs41 import err  # noqa: E402
from mirrored import stopped  # noqa: E402

ACCES = 13
ADMIN, USER_C, OTHER_C = "127.0.0.1", "127.0.0.2", "127.0.0.3"
COMMON = "create = yes privileged_port = no squash = none access = rw"
ROOT = f'export "/" {{ {COMMON} client "{ADMIN}" {{ }} }}\n'
A = f'export "/a" {{ {COMMON} client "{ADMIN}" {{ }} client "{USER_C}" {{ }} }}\n'
A_MORE = (f'export "/a" {{ {COMMON} client "{ADMIN}" {{ }} client "{USER_C}" {{ }} client '
          f'"{OTHER_C}" {{ }} }}\n')
A_LESS = f'export "/a" {{ {COMMON} client "{ADMIN}" {{ }} client "{OTHER_C}" {{ }} }}\n'
A_READS = f'export "/a" {{ {COMMON} client "{ADMIN}" {{ }} client "{USER_C}" {{ access = ro }} }}\n'
B = f'export "/b" {{ {COMMON} client "{ADMIN}" {{ }} client "{USER_C}" {{ }} }}\n'
# While these tests look, the server must not bar a client that does not come back after a restart,
# or whose lease is over.
PATIENT = ["mds.lease=300s", "mds.grace=300s", "ds.lease=120s"]
FILE = None


def write_exports(*parts):
    with open(FILE + ".new", "w", encoding="utf-8") as f:
        f.write("".join(parts))
    os.rename(FILE + ".new", FILE)


def ending(w):
    """The server's report, when nothing is left to do."""
    told = []

    def over():
        told.append(weft(w, "exports")["ending"])
        return not told[-1]["running"]
    eventually(over, 60, "the end of what was given")
    return told[-1]


def reload(w, *parts):
    """The server's report, when all has ended."""
    ending(w)
    write_exports(*parts)
    weft(w, "exports", "reload")
    return ending(w)


@contextlib.contextmanager
def all_stopped(w):
    """As stopped(), of both data servers."""
    with stopped(w, "ds1") as one, stopped(w, "ds2") as two:
        yield lambda: (one(), two())


def at(c, *names):
    return c.ok(putrootfh(), *[lookup(n) for n in names], getfh()).fh


class Kept:
    """A client that returned its layout, and kept the handle for the data server."""

    def __init__(self, d, name, iomode=IO_READ):
        self.c = client(source=(USER_C, 0))
        s, self.f = self.c.open(at(self.c, *d), name)
        self.s = s
        self.c.ok(putfh(self.f), write(s, 0, b"0123456789", FILE_SYNC))
        o = lay(self.c, self.f, s, iomode)
        server = o.mirrors[0][0]
        self.ds, self.fh = data_server(self.c, server), server.fhs[0]
        check((self.read(), self.write() if iomode == IO_RW else 0), (0, 0))
        self.c.ok(putfh(self.f), layoutreturn(o.stateid))
        check(self.read(), 0, "a returned layout's handle, before")

    def read(self):
        return self.ds.read(self.fh, 0, 10).status

    def write(self):
        return self.ds.write(self.fh, 0, b"abcdefghij").status

    def ended(self):
        eventually(lambda: self.read() == ACCES, 60, "the end of a capability")
        check(self.write(), ACCES)


def epoch(fh):
    return int.from_bytes(fh[16:20], "big")


def epoch_now(c, *names):
    s, f = c.open(at(c, *names[:-1]), names[-1], READ | NO_DELEG, how=None)
    o = lay(c, f, s, IO_READ)
    c.ok(putfh(f), layoutreturn(o.stateid))
    return epoch(o.mirrors[0][0].fhs[0])


def test_a_removed_export_ends_what_was_returned(w):
    read, wrote = Kept(["a"], "read"), Kept(["a"], "wrote", IO_RW)
    elsewhere = Kept(["b"], "elsewhere")
    clean = Kept(["a"], "clean")
    admin = client(source=(ADMIN, 0))
    deep = admin.mkdir(admin.mkdir(at(admin, "a"), "deep"), "er")
    below = Kept(["a", "deep", "er"], "below")
    check(deep != below.f, True)
    admin.until(lambda got: err(got.status) != "DELAY", putfh(at(admin, "a", "clean")),
                setattr_(ANON, mode=0o600))
    check(clean.read(), ACCES)
    got = reload(w, ROOT, B)
    for x in (read, wrote, below):
        x.ended()
    check((got["exports"], got["ended"], got["unconfirmed"]), (1, 3, 0),
          "files that were fenced: of none that nobody has a capability for")
    check(got["looked"] >= 5, True, got)
    check(elsewhere.read(), 0, "another export's")
    check(epoch_now(admin, "a", "clean"), epoch(clean.fh) + 1,
          "the epoch of the chmod: no other fence")
    check(epoch_now(admin, "b", "elsewhere"), epoch(elsewhere.fh))
    elsewhere.c.no("STALE", putfh(read.f))


def test_so_does_one_that_gives_somebody_less(w):
    x, elsewhere = Kept(["a"], "less"), Kept(["b"], "elsewhere")
    check(reload(w, ROOT, A_LESS, B)["ended"], 1)
    x.ended()
    reload(w, ROOT, A, B)
    x = Kept(["a"], "ro", IO_RW)
    check(reload(w, ROOT, A_READS, B)["ended"] >= 1, True)
    x.ended()
    check(elsewhere.read(), 0)


def test_one_that_gives_others_more_ends_nothing(w):
    x = Kept(["a"], "f")
    before = ending(w)["number"]
    got = reload(w, ROOT, A_MORE, B)
    check((got["exports"], got["looked"], got["ended"]), (0, 0, 0))
    check(got["number"] > before, True)
    check(x.read(), 0)
    check(reload(w, ROOT, A_MORE, B)["looked"], 0, "the same file again")
    check(reload(w, ROOT, A, B)["ended"], 1, "and who was added is taken out again")
    x.ended()


def test_a_hangup_does_it_too(w):
    x = Kept(["a"], "f")
    write_exports(ROOT, B)
    with open(f"{w.dir}/run/mds.pid", encoding="ascii") as f:
        os.kill(int(f.read()), signal.SIGHUP)
    x.ended()


def test_of_a_file_that_was_removed_while_it_is_open(w):
    x = Kept(["a"], "f")
    x.c.ok(putfh(at(x.c, "a")), remove("f"))
    check(x.read(), 0)
    check(reload(w, ROOT, B)["ended"], 1)
    x.ended()


def test_of_a_file_with_a_name_elsewhere(w):
    x, admin = Kept(["a"], "f"), client(source=(ADMIN, 0))
    d = admin.mkdir(at(admin, "a"), "d")
    there = x.c.ok(putfh(at(x.c, "a")), lookup("d"), getfh()).fh
    x.c.ok(putfh(x.f), savefh(), putfh(there), link("second"))
    admin.ok(putfh(at(admin, "a")), remove("f"))
    check(len(d) > 0, True)
    check(reload(w, ROOT, B)["ended"], 1)
    x.ended()


def test_a_data_server_that_was_away_ends_it_when_it_is_back(w):
    x = Kept(["a"], "f")
    with all_stopped(w) as go:
        write_exports(ROOT, B)
        weft(w, "exports", "reload")
        eventually(lambda: w.metric("weft_mds_orders") > 0, 60, "the fence")
        go()
    x.ended()
    check(ending(w)["ended"], 1)


def test_nothing_is_moved_away_before_it_is_looked_at(w):
    x, admin = Kept(["a"], "f"), client(source=(ADMIN, 0))
    out = admin.mkdir(at(admin), "outside")
    admin.mkdir(at(admin, "a"), "d")
    with all_stopped(w) as go:
        write_exports(ROOT, B)
        weft(w, "exports", "reload")
        a, d = at(admin, "a"), at(admin, "a", "d")
        admin.no("DELAY", putfh(a), savefh(), putfh(out), rename("f", "f"))
        admin.no("DELAY", putfh(a), savefh(), putfh(out), rename("d", "d"))
        admin.ok(putfh(a), savefh(), putfh(d), rename("f", "g"))
        admin.no("DELAY", putfh(d), savefh(), putfh(out), rename("g", "f"))
        admin.ok(putfh(at(admin)), savefh(), putfh(at(admin)), rename("outside", "inside"))
        go()
    x.ended()
    ending(w)
    admin.ok(putfh(d), savefh(), putfh(out), rename("g", "f"))


def test_a_start_with_other_exports(w):
    x, elsewhere, wrote = Kept(["a"], "f"), Kept(["b"], "f"), Kept(["a"], "wrote", IO_RW)
    ending(w)
    w.dev("kill", w.dir, "mds", "-9")
    write_exports(ROOT, B)
    check(x.read(), 0)
    w.dev("start", w.dir, "mds")
    for one in (x, wrote):
        one.ended()
    check(ending(w)["ended"], 2)
    check(elsewhere.read(), 0)
    w.restart()
    check((ending(w)["looked"], elsewhere.read()), (0, 0), "nothing is left of it")


def test_a_server_that_stops_in_the_middle(w):
    x = [Kept(["a"], f"f{k}") for k in range(3)]
    elsewhere = Kept(["b"], "f")
    ending(w)
    with all_stopped(w) as go:
        write_exports(ROOT, B)
        weft(w, "exports", "reload")
        w.dev("kill", w.dir, "mds", "-9")
        go()
    w.dev("start", w.dir, "mds")
    for one in x:
        one.ended()
    ending(w)
    check(elsewhere.read(), 0)


def test_a_reload_names_its_job_also_when_it_is_over_already(w):
    ending(w)
    # A long list: passes end while an answer is made.
    many = [f'export "/a{n}" {{ {COMMON} ' + " ".join(
        f'client "10.{n}.{k}.0/24" {{ access = ro }}' for k in range(60)) + " }\n"
        for n in range(60)]
    write_exports(ROOT, A, B, *many)
    jobs = [api(w, "PUT", "/v1/exports")["ending"]["job"] for _ in range(10)]
    check([n for n, job in enumerate(jobs) if not job], [], "answers without a job")
    for job in sorted(set(jobs)):
        check(ended(w, job)["kind"], "revoke")


def test_the_first_reload_after_a_start_names_its_job(w):
    ending(w)
    w.restart()
    job = api(w, "PUT", "/v1/exports")["ending"]["job"]
    check(ended(w, job)["state"], "done")


@contextlib.contextmanager
def around(name):
    global FILE
    with tempfile.TemporaryDirectory(prefix="weft-ending-test.") as top:
        FILE = os.path.join(top, "exports")
        write_exports(ROOT, A, B)
        harness.THE = w = Cluster(2, [f"mds.exports={FILE}", *PATIENT])
        try:
            with harness.clients():
                yield (w,)
        finally:
            w.down()


if __name__ == "__main__":
    tap.run(tap.named(globals()), around, 3)
