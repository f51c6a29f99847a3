#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Clients that were past their lease when the metadata server failed do not hold its grace period
(mds/state/st_lapse.c). Prints TAP.

Each test has a cluster of its own, with a grace period that no test sees the end of by time.
"""
import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../wirelib"))
from harness import *  # noqa: E402,F403
from delegs import living  # noqa: E402
from steps import again, reclaim  # noqa: E402
from tool import weft_json as weft  # noqa: E402
from nfs41 import err  # noqa: E402

GRACE = "300s"


def log_has(w, what):
    """How often, in all boots."""
    with open(os.path.join(w.dir, "log", "mds.log"), encoding="utf-8", errors="replace") as f:
        return sum(what in line for line in f)


def lapse(w, *lives):
    """Waits until one more client's record says that its lease has run out."""
    before = log_has(w, "leases of 1 clients have run out")
    with living(lives):
        eventually(lambda: log_has(w, "leases of 1 clients have run out") > before, 60,
                   "the end of the lease in the record")


def makes(d, name):
    """What grace refuses."""
    return putfh(d), open_(name, BOTH | NO_DELEG, how=UNCHECKED, attrs={"mode": 0o600})


def serves(c, *ops):
    """Grace is over, long before mds.grace."""
    return c.until(lambda got: err(got.status) not in ("GRACE", "DELAY"), *ops, tries=1)


def two(w):
    live, gone = client(), client()
    d = live.mkdir(live.root(), "d")
    s, f = gone.open(d, "f", deny=BOTH)
    live.open(d, "g")
    return live, gone, d, s, f


def test_one_past_its_lease_does_not_hold_grace(w):
    live, gone, d, _, f = two(w)
    lapse(w, live)
    w.restart()
    again(live, True)
    serves(live, *makes(d, "new"))
    check(log_has(w, "did not come back in the grace period"), 1, "a client that is barred")
    # What it had is free, and it reclaims nothing.
    serves(live, putfh(d), open_("f", BOTH | NO_DELEG))
    again(gone)
    gone.no(("NO_GRACE", "RECLAIM_BAD"), putfh(f), open_(claim_previous(), BOTH | NO_DELEG))


def test_one_that_came_back_before_the_failure_holds_grace(w):
    live, back, d, s, f = two(w)
    lapse(w, live)
    # Nobody is heard after it, so its lease does not run out, however long the kill takes.
    back.ok(putfh(f), write(s, 0, b"nobody was in the way"))
    w.restart()
    again(live, True)
    live.no("GRACE", *makes(d, "new"))
    again(back)
    reclaim(back, f, deny=BOTH)
    live.no("GRACE", *makes(d, "new"))
    back.ok(reclaim_complete())
    serves(live, *makes(d, "new"))
    live.no("SHARE_DENIED", putfh(d), open_("f", BOTH | NO_DELEG))


def test_one_whose_retry_was_answered_holds_grace(w):
    live, back, d, _, f = two(w)
    back.ok()
    lapse(w, live)
    got = back.conn.compound(sequence(back.session.sessionid, back.slots[0], 0, 0))
    check(err(got.status), "OK", "the retry")
    w.restart()
    again(live, True)
    live.no("GRACE", *makes(d, "new"))
    again(back)
    reclaim(back, f, deny=BOTH)
    back.ok(reclaim_complete())
    serves(live, *makes(d, "new"))


def test_one_past_its_lease_reclaims_while_grace_runs_and_is_waited_for_then(w):
    live, gone, d, _, f = two(w)
    lapse(w, live)
    w.restart()
    again(gone)
    again(live, True)
    live.no("GRACE", *makes(d, "new"))
    reclaim(gone, f, deny=BOTH)
    gone.ok(reclaim_complete())
    serves(live, *makes(d, "new"))
    live.no("SHARE_DENIED", putfh(d), open_("f", BOTH | NO_DELEG))
    # Its record is as others' are again.
    gone.ok()
    w.restart()
    again(live, True)
    live.no("GRACE", *makes(d, "newer"))
    again(gone, True)
    serves(live, *makes(d, "newer"))


def test_where_all_are_past_their_lease_grace_lasts_no_longer_than_one(w):
    live, gone = client(), client()
    d = live.mkdir(live.root(), "d")
    gone.open(d, "f")
    lapse(w, live)
    live.ok(destroy_session(live.session.sessionid))
    first(live, "OK", destroy_clientid(live.clientid))
    w.restart()
    serves(client(), *makes(d, "new"))


def test_a_server_that_hears_nobody_says_of_nobody_that_its_lease_ran_out(w):
    """It may be the one that is cut off."""
    live, silent, d, _, _ = two(w)
    took = 2
    while took >= 2:  # seconds, of a lease of 3: else one is heard when the other's is over
        began = time.monotonic()
        silent.ok()
        live.ok()
        took = time.monotonic() - began
    eventually(lambda: all(x["state"] == "courteous" for x in weft(w, "client", "list")["clients"]),
               60, "the ends of their leases")
    time.sleep(1)  # ticks
    w.restart()
    again(live, True)
    live.no("GRACE", *makes(d, "new"))
    again(silent, True)
    serves(live, *makes(d, "new"))


if __name__ == "__main__":
    run_apart(globals(), ds=1, settings=["mds.lease=3s", f"mds.grace={GRACE}", "mds.courtesy=600s",
                                         "mds.threads=2"])
