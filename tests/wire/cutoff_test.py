#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""A client cannot reach one data server, but the metadata server can (docs/device-failure.md).
Prints TAP.

The client writes through the metadata server, so no copy becomes stale, and no repair runs over and
over.
"""
import os
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../wirelib"))
import harness  # noqa: E402
import tap  # noqa: E402
from harness import *  # noqa: E402,F403
from files import content  # noqa: E402
from tool import admin_of, is_state, pid_of, state  # noqa: E402
from nfs41 import err  # noqa: E402
from mirrored import Holder, equal, servers, states  # noqa: E402

NXIO, ILLEGAL = 6, 10044
HOLD, STOOD, START = 4, 5, 5
SETTINGS = ["mds.repair_files=4", "ds.lease=30s", "mds.lease=10s", f"mds.ds_unreached={HOLD}s",
            "mds.recall_deadline=3s", "mds.ds_suspect=700ms", "mds.ds_dead=1500ms"]
W = None


def cluster():
    """One cluster for all tests, whose servers have been there for a while."""
    global W
    if not W:
        W = Cluster(settings=SETTINGS)
        time.sleep(STOOD + 0.5)
    return W


def ask(c, f, s, iomode=IO_RW):
    """Sends LAYOUTGET until the server recalls nothing. Returns an error status, or the servers
    of the layout."""
    got = c.until(lambda got: err(got.status) not in ("RECALLCONFLICT", "LAYOUTTRYLATER"), putfh(f),
                  layoutget(s, iomode), tries=400)
    return ([m[0].deviceid for m in ff_layout(got.results[-1].layouts[0].body).mirrors]
            if err(got.status) == "OK" else err(got.status))


def report(x, what):
    x.c.ok(putfh(x.f), layouterror(x.o.stateid, [(x.uuids[0], NXIO, what)]))


def test_its_writes_go_through_us_and_end_there(w):
    x = Holder("round")
    report(x, NUM["WRITE"])
    check(states(x.c, x.f)[0] != "in-sync", True, "the write is on one copy")
    x.give_back(x.o.stateid)
    eventually(lambda: set(states(x.c, x.f)) == {"in-sync"}, 10, "repair")
    repaired = w.metric("weft_mds_repaired_total")
    check(ask(x.c, x.f, x.s), "LAYOUTUNAVAILABLE")
    x.c.ok(putfh(x.f), write(x.s, 0, b"y" * 5000, FILE_SYNC))
    check((states(x.c, x.f), w.metric("weft_mds_repaired_total")), (["in-sync"] * 2, repaired),
          "nothing is stale again")
    equal(w, x.c, x.f, b"y" * 5000)
    check(len(ask(x.c, x.f, x.s, IO_READ)), 2, "it still reads by itself")
    # Other clients write as before.
    two = client()
    s = two.ok(putfh(x.f), open_(claim_fh(), BOTH | NO_DELEG)).stateid
    check(sorted(ask(two, x.f, s)), sorted(x.uuids), "another client")


def test_what_is_on_other_servers_it_writes_by_itself(w):
    x = Holder("other")
    report(x, ILLEGAL)
    check(states(x.c, x.f), ["in-sync"] * 2,
          "a connection that failed says nothing of what was written")
    check(ask(x.c, x.f, x.s), "LAYOUTUNAVAILABLE")
    y = Holder("elsewhere", policy="mirrors=1")
    while y.names[0] == x.names[0]:
        y = Holder(f"elsewhere{time.monotonic_ns()}", policy="mirrors=1")
    check(y.named, y.uuids, "another client, another server")
    # The same client, and a file that is not on that server.
    s = x.c.ok(putfh(y.f), open_(claim_fh(), BOTH | NO_DELEG)).stateid
    check(ask(x.c, y.f, s), y.uuids, "of what is on others it gets layouts")


def test_the_only_copy_is_written_through_us(w):
    x = Holder("only", policy="mirrors=1")
    report(x, NUM["WRITE"])
    check(states(x.c, x.f), ["in-sync"])
    check(ask(x.c, x.f, x.s), "LAYOUTUNAVAILABLE")
    x.c.ok(putfh(x.f), write(x.s, 0, b"z" * 5000, FILE_SYNC))
    check(content(x.c, x.f, x.s), b"z" * 5000)


def test_it_is_over_after_a_while(w):
    x = Holder("hold")
    report(x, ILLEGAL)
    began = time.monotonic()
    check(ask(x.c, x.f, x.s), "LAYOUTUNAVAILABLE")
    eventually(lambda: sorted(ask(x.c, x.f, x.s)) == sorted(x.uuids), HOLD + 3, "layouts again")
    check(HOLD - 0.5 < time.monotonic() - began, True, "not before")


def test_one_that_was_started_anew_was_gone_for_all(w):
    x = Holder("again")
    report(x, ILLEGAL)
    check(ask(x.c, x.f, x.s), "LAYOUTUNAVAILABLE")
    w.restart(x.names[0])
    is_state(w, x.names[0], "alive", 5)
    check(sorted(ask(x.c, x.f, x.s)), sorted(x.uuids),
          "what was said before it was started counts no more")
    x.get()
    report(x, ILLEGAL)
    check(sorted(ask(x.c, x.f, x.s)), sorted(x.uuids), "nor what is said just after it")


def test_a_write_under_way_through_us_ends_when_its_server_is_dead(w):
    x = Holder("under-way")
    x.give_back(x.o.stateid)
    pid = pid_of(w, x.names[0])
    stand_still(pid)
    began = time.monotonic()
    try:
        got = x.c.until(lambda got: err(got.status) != "DELAY", putfh(x.f),
                        write(x.s, 0, b"w" * 5000, FILE_SYNC), tries=400)
        took = time.monotonic() - began
    finally:
        os.kill(pid, signal.SIGCONT)
    check(err(got.status), "OK")
    tap.say(f"after {took:.1f} s")
    check(took < 12, True, "not after the time of a call, 30 s")
    is_state(w, x.names[0], "alive", 6)
    eventually(lambda: set(states(x.c, x.f)) == {"in-sync"}, 10, "repair")
    equal(w, x.c, x.f, b"w" * 5000)


def others_are_there(w):
    try:
        return w.metric("weft_mds_ds_alive") == 3
    except OSError:  # it starts
        return False


def looks_at_start(w, name, until):
    """While the others have joined and this server's time goes on: how often it was suspect."""
    looks = 0
    while time.monotonic() < until:
        if others_are_there(w):
            now = state(w, name)
            if time.monotonic() < until:  # else the time may have been over before the answer
                check(now, "suspect", f"{until - time.monotonic():.1f} s before the end")
                looks += 1
        time.sleep(0.2)
    return looks


def test_after_our_start_a_server_may_join_late(w):
    x = Holder("late")
    x.give_back(x.o.stateid)
    pid = pid_of(w, x.names[0])
    for attempt in range(10):
        time.sleep(1)  # behind it the server asks for the size and writes it down
        stand_still(pid)
        w.dev("kill", w.dir, "mds", "-9")
        began = time.monotonic()
        with subprocess.Popen([os.path.join(BUILD, "tools/weft-dev"), "start", w.dir, "mds"],
                              stdout=subprocess.DEVNULL) as start:
            try:
                looks = looks_at_start(w, x.names[0], began + START - 0.5)
            finally:
                os.kill(pid, signal.SIGCONT)
            # The command ends when all servers have joined.
            check(start.wait(100), 0, "weft-dev start")
        is_state(w, x.names[0], "alive", 6)
        if looks:
            break
        tap.say(f"start {attempt + 1} took longer than the server's time to join")
    check(looks > 0, True, "the others join before its time is over")
    check(states(client(), x.f), ["in-sync"] * 2)


class around:
    def __init__(self, name):
        self.w = cluster()

    def __enter__(self):
        harness.THE = self.w
        return (self.w,)

    def __exit__(self, *_):
        for c in harness.CLIENTS:
            c.drop()
        harness.CLIENTS.clear()


if __name__ == "__main__":
    try:
        tap.run(tap.named(globals()), around)
    finally:
        if W:
            W.down()
