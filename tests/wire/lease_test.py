#!/usr/bin/python3
"""What renews a lease (RFC 8881 section 8.3), and what does not. Prints TAP."""
import os
import signal
import sys
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import mds_test as base  # noqa: E402
from mds_test import *  # noqa: E402,F403
from nfs41 import err, op  # noqa: E402

LEASE = 1


def pid_of(w, name):
    return next(r["pid"] for r in json.loads(w.dev("status", w.dir, "--json"))["daemons"] if r["name"] == name)


def test_a_request_in_hand_keeps_the_lease(w):
    """Its client waits for the answer, and has no cause to send another: for three leases here, because a data server stands still."""
    c = client()
    d = c.mkdir(c.root(), "d")
    s, f = c.open(d, "f")
    c.ok(putfh(f), write(s, 0, b"old", FILE_SYNC))
    pid = pid_of(w, "ds1")
    os.kill(pid, signal.SIGSTOP)
    try:
        waits = c.begin(putfh(f), write(s, 0, b"new", FILE_SYNC))
        time.sleep(3 * LEASE)
        other = client()  # the server serves, and ends what has run out
        other.ok(putrootfh())
    finally:
        os.kill(pid, signal.SIGCONT)
    check(err(c.finish(waits, 30).status) in ("OK", "DELAY"), True)
    time.sleep(LEASE * 0.6)  # it runs from the answer on
    got = c.until(lambda got: err(got.status) != "DELAY", putfh(f), write(s, 0, b"more", FILE_SYNC))
    check(err(got.status), "OK", "the state is there")


def test_silence_ends_it(w):
    """The same without a request; nobody is courteous here."""
    c = client()
    d = c.mkdir(c.root(), "d")
    s, f = c.open(d, "f")
    for _ in range(6):  # a lone SEQUENCE is enough, over more than the lease
        time.sleep(LEASE * 0.4)
        c.ok()
    c.ok(putfh(f), write(s, 0, b"here", FILE_SYNC))
    time.sleep(3 * LEASE)
    first(c, "BADSESSION", sequence(c.session.sessionid, 99))


def test_a_retry_of_a_request_in_hand_is_put_off(w):
    """And does not end what it repeats."""
    c = client()
    d = c.mkdir(c.root(), "d")
    s, f = c.open(d, "f")
    c.ok(putfh(f), write(s, 0, b"old", FILE_SYNC))
    c.slots[0] += 1
    ops = sequence(c.session.sessionid, c.slots[0], 0, 0, True), putfh(f), write(s, 0, b"new", FILE_SYNC)
    one, two = c.connection(), c.connection()
    pid = pid_of(w, "ds1")
    os.kill(pid, signal.SIGSTOP)
    try:
        one.start(1, compound_args(ops), auth_sys())
        time.sleep(2 * LEASE)
        check(err(two.compound(*ops).status), "DELAY")
    finally:
        os.kill(pid, signal.SIGCONT)
    eventually(lambda: err(two.compound(*ops).status) != "DELAY", 10, "the end of the first")
    check(err(two.compound(*ops).status), "OK")


if __name__ == "__main__":
    base.run_apart(globals(), ds=1, settings=(f"mds.lease={LEASE}s", "mds.courtesy=0s", "mds.ds_dead=30s", "mds.ds_suspect=20s"))
