#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""What renews a lease (RFC 8881 section 8.3), and what does not. Prints TAP."""
import os
import signal
import sys
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../wirelib"))
import harness as base  # noqa: E402
from harness import *  # noqa: E402,F403
from nfs41 import err, op  # noqa: E402

LEASE = 5


def a_lease_passes():
    """A lease passes by the server's clock: it ended a client that was silent for one."""
    c = client()
    eventually(lambda: err(c.conn.compound(sequence(c.session.sessionid, 99), minor=2).status)
               == "BADSESSION", 60, "the end of a lease")


def pid_of(w, name):
    return next(r["pid"] for r in json.loads(w.dev("status", w.dir, "--json"))["daemons"]
                if r["name"] == name)


def test_a_request_in_hand_keeps_the_lease(w):
    """A client waits for an answer, and has no reason to send another request. Here it waits for
    more than a lease, because a data server is stopped."""
    c = client()
    d = c.mkdir(c.root(), "d")
    s, f = c.open(d, "f")
    c.ok(putfh(f), write(s, 0, b"old", FILE_SYNC))
    pid = pid_of(w, "ds1")
    try:
        stand_still(pid)
        waits = c.begin(putfh(f), write(s, 0, b"new", FILE_SYNC))
        a_lease_passes()
    finally:
        os.kill(pid, signal.SIGCONT)
    check(err(c.finish(waits).status) in ("OK", "DELAY"), True)
    time.sleep(1)  # it runs from the answer on, whatever the ticks meanwhile, four a second, find
    got = c.until(lambda got: err(got.status) != "DELAY", putfh(f), write(s, 0, b"more", FILE_SYNC))
    check(err(got.status), "OK", "the state is there")


def test_silence_ends_it(w):
    """The same without a request. The server is not courteous here."""
    c = client()
    d = c.mkdir(c.root(), "d")
    s, f = c.open(d, "f")
    other = client()
    gone = (lambda c: err(c.conn.compound(sequence(c.session.sessionid, 99), minor=2).status)
            == "BADSESSION")
    # A lone SEQUENCE is enough, over more than a lease.
    eventually(lambda: c.ok() and gone(other), 60, "the end of another's")
    c.ok(putfh(f), write(s, 0, b"here", FILE_SYNC))
    eventually(lambda: gone(c), 60, "the end")


def test_a_retry_of_a_request_in_hand_is_put_off(w):
    """And it does not end the request that it repeats."""
    c = client()
    d = c.mkdir(c.root(), "d")
    s, f = c.open(d, "f")
    c.ok(putfh(f), write(s, 0, b"old", FILE_SYNC))
    c.slots[0] += 1
    ops = (sequence(c.session.sessionid, c.slots[0], 0, 0, True), putfh(f),
           write(s, 0, b"new", FILE_SYNC))
    one, two = c.connection(), c.connection()
    pid = pid_of(w, "ds1")
    try:
        stand_still(pid)
        one.start(1, compound_args(ops), auth_sys())
        a_lease_passes()
        check(err(two.compound(*ops).status), "DELAY")
    finally:
        os.kill(pid, signal.SIGCONT)
    eventually(lambda: err(two.compound(*ops).status) != "DELAY", 60, "the end of the first")
    check(err(two.compound(*ops).status), "OK")


if __name__ == "__main__":
    base.run_apart(globals(), ds=1,
                   settings=(f"mds.lease={LEASE}s", "mds.courtesy=0s", "mds.ds_dead=60s",
                             "mds.ds_suspect=50s", "ds.lease=60s"))
