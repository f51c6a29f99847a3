#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""An instance that does not hold its store sends nothing: no reply, no callback, no order, no
answer to a data server. When it holds the store again it answers, and no client and no data server
has lost anything by the wait. Prints TAP.

tests/fault/weft-mds holds its store for as long as the test says (tests/fault/lease.c). A packet
socket counts the bytes that leave its port, whoever they are for.
"""
import contextlib
import json
import os
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../wirelib"))
import harness  # noqa: E402
from harness import *  # noqa: E402,F403
from daemons import Http, get_metrics  # noqa: E402
from sniffer import Sniffer  # noqa: E402
from steps import lay  # noqa: E402

HOLD_MS, BEAT_S = 2000, 0.3
# Data servers connect again in half of it, and are silent for more than a lease in the rest.
SHUT_S = 9.5
LEASES = ["mds.lease=5s", "mds.grace=2s", "mds.recall_deadline=2s", "mds.courtesy=0s",
          "ds.lease=3s"]


class Holder:
    """Says that the store is held, as PostgreSQL would."""

    def __init__(self, fifo):
        os.mkfifo(fifo)
        self.fd = os.open(fifo, os.O_RDWR)
        self.beating = threading.Event()
        self.over = threading.Event()
        self.beating.set()
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def say(self, text):
        os.write(self.fd, text.encode() + b"\n")

    def run(self):
        while not self.over.wait(BEAT_S):
            if self.beating.is_set():
                self.say(f"hold {HOLD_MS}")

    def end(self):
        self.over.set()
        self.thread.join()
        os.close(self.fd)


class World:
    """A cluster whose metadata server holds its store by Holder's leave."""

    def __init__(self):
        self.bin = tempfile.mkdtemp(prefix="weft-lease-bin.")
        os.symlink(os.path.join(BUILD, "tests/fault/weft-mds"), os.path.join(self.bin, "weft-mds"))
        os.symlink(os.path.join(BUILD, "weft-ds"), os.path.join(self.bin, "weft-ds"))
        os.environ["WEFT_BUILD"] = self.bin
        os.environ["WEFT_LEASE_FIFO"] = os.path.join(self.bin, "lease")
        self.holder = Holder(os.environ["WEFT_LEASE_FIFO"])
        self.w = Cluster(ds=2, settings=LEASES)
        rows = json.loads(self.w.dev("status", self.w.dir, "--json"))["daemons"]
        self.admin = next(r["admin"] for r in rows if r["name"] == "mds")
        self.pid = next(r["pid"] for r in rows if r["name"] == "mds")

    def ask(self, method, target):
        conn = Http(self.admin)
        conn.request(method, target)
        reply = conn.getresponse()
        text = reply.read()
        conn.close()
        return reply.status, json.loads(text)

    def held(self):
        return "does not hold its store" not in json.dumps(self.ask("GET", "/v1/health")[1])

    def shut(self):
        self.holder.beating.clear()
        eventually(lambda: not self.held(), 30, "the end of the lease")

    def open(self):
        self.holder.beating.set()

    def down(self):
        self.holder.end()
        del os.environ["WEFT_LEASE_FIFO"]
        self.w.down()
        harness.shutil.rmtree(self.bin)


def asks(c, two, d, f):
    """Requests of all sorts that are under way: what they want."""
    return [(c, c.begin(putfh(f), getattr_("size")), "OK"),
            (c, c.begin(putfh(d), create(DIR, "made")), "OK"),
            (c, c.begin(putfh(d), lookup("none")), "NOENT"),
            (two, two.begin(putfh(f), setattr_(ANON, size=7)), "OK")]


def answered(began):
    for one, what, want in began:
        check(err(one.finish(what).status), want)


def returning(c, f):
    """The client gives a layout back that is recalled."""
    def on(name, args):
        if name == "LAYOUTRECALL":
            threading.Thread(target=lambda: c.call(putfh(f), layoutreturn(args.stateid)),
                             daemon=True).start()
        return 0
    c.on_callback = on


def writes(c, f, sid):
    """Writes through the metadata server and closes. It says DELAY until the file's data server has
    joined again, and has run the truncate: their leases ended while the store was not held. A
    client asks again."""
    got = c.until(lambda got: err(got.status) != "DELAY", putfh(f),
                  write(sid, 0, b"kept", FILE_SYNC), tries=1200)
    check(err(got.status), "OK", "WRITE")
    c.ok(putfh(f), close(sid))


def test_nothing_leaves_and_nothing_is_lost(world):
    c, two, sniff = client(), client(), Sniffer(ADDR[1])
    d = c.mkdir(c.root(), "d", attrs={"mode": 0o777})
    s, f = c.open(d, "f", attrs={"mode": 0o666})
    kept, g = c.open(d, "g", attrs={"mode": 0o666})
    lay(c, f, s)
    lay(c, g, kept)
    returning(c, f)
    answered(asks(c, two, c.mkdir(d, "sub"), f))
    check(sniff.bytes() > 0, True, "bytes that the sniffer sees while the store is held")
    check(c.wait_callback("LAYOUTRECALL").fh, f)
    lay(c, f, s)

    world.shut()
    sniff.bytes()
    before = time.monotonic()
    began = asks(c, two, d, f)
    check(world.ask("GET", "/v1/ds")[0], 503)
    check(world.ask("PUT", "/v1/key/rotate")[0], 503)
    status, health = world.ask("GET", "/v1/health")
    check((status, health["health"], [r["code"] for r in health["reasons"]]),
          (503, "error", ["not-serving"]))
    with contextlib.suppress(TimeoutError):
        c.finish(began[0][1], SHUT_S)
        raise Failed("a reply came while the store was not held")
    check(time.monotonic() - before >= SHUT_S, True)
    check(sniff.bytes(), 0, "bytes that left")
    check(get_metrics(world.admin)[("weft_rpc_parked_total", ())] > 0, True, "answers that wait")

    world.open()
    answered(began)
    check(c.wait_callback("LAYOUTRECALL").fh, f)
    check(two.ok(putfh(f), getattr_("size")).attrs.size, 7)
    # Nobody's lease ended meanwhile, and the time of no recall.
    writes(c, g, kept)
    writes(c, f, s)
    eventually(world.held)
    status, ds = world.ask("GET", "/v1/ds")
    check((status, {one["state"] for one in ds["ds"]} <= {"alive", "suspect"}), (200, True))
    status, events = world.ask("GET", "/v1/events")
    bad = [e for e in events["events"] if e["kind"] in ("ds-dead", "layout-fenced", "copy-stale")]
    check((status, bad), (200, []))
    sniff.close()


def test_who_is_deposed_ends_and_says_nothing(world):
    c, two, sniff = client(), client(), Sniffer(ADDR[1])
    d = c.mkdir(c.root(), "deposed", attrs={"mode": 0o777})
    f = c.open(d, "f", attrs={"mode": 0o666})[1]
    world.shut()
    sniff.bytes()
    asks(c, two, d, f)
    parked = ("weft_rpc_parked_total", ())
    eventually(lambda: get_metrics(world.admin)[parked] > 0, 30, "answers that wait")
    world.holder.say("lost")
    eventually(lambda: not os.path.exists(f"/proc/{world.pid}/exe"), 30, "the end of weft-mds")
    check(c.conn.is_closed(60), True)
    check(sniff.bytes(), 0, "bytes that left")
    sniff.close()


def main():
    if not tap.built("tests/fault/weft-mds"):
        return tap.skip("the daemon is not built")
    world = World()

    @contextlib.contextmanager
    def around(name):
        with clients():
            yield (world,)
    try:
        return tap.run(tap.named(globals()), around)
    finally:
        world.down()


if __name__ == "__main__":
    main()
