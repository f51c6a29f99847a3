#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The metadata server's own pause is no silence of its clients: a client that never stopped calling
keeps what it has. Prints TAP."""
import os
import signal
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../wirelib"))
from harness import *  # noqa: E402,F403
from steps import lay  # noqa: E402
from nfs41 import err  # noqa: E402

LEASE = RECALL = 10  # a test under load takes less from one request to the next


class Paused:
    """Stands still for longer than a lease."""

    def __init__(self, w):
        with open(os.path.join(w.dir, "run", "mds.pid"), encoding="ascii") as f:
            self.pid = int(f.read())

    def __enter__(self):
        stand_still(self.pid)
        return self

    def __exit__(self, *why):
        time.sleep(1.2 * LEASE)
        os.kill(self.pid, signal.SIGCONT)


def test_who_called_meanwhile_keeps_what_it_has(w):
    c, other = client(), client()
    d = c.mkdir(c.root(), "d", attrs={"mode": 0o777})
    got = c.ok(putfh(d), open_("f", BOTH | NO_DELEG, deny=WRITE, how=UNCHECKED,
                               attrs={"mode": 0o666}), getfh())
    s, f = got.all[1].stateid, got.fh
    with Paused(w):
        # Both requests wait in their sockets. The other client's conflicts with what the
        # first one has.
        wants = other.begin(putfh(f), open_(claim_fh(), BOTH | NO_DELEG))
        renews = c.begin()
    check(err(c.finish(renews).status), "OK")
    check(err(other.finish(wants).status) in ("SHARE_DENIED", "DELAY"), True)
    c.ok(putfh(f), write(s, 0, b"kept", FILE_SYNC), close(s))


def test_who_was_silent_as_well_has_its_lease_still(w):
    c = client()
    d = c.mkdir(c.root(), "d")
    s, f = c.open(d, "f")
    with Paused(w):
        pass
    c.ok(putfh(f), write(s, 0, b"kept", FILE_SYNC), close(s))


def test_a_recall_goes_on_where_it_stood(w):
    """Its deadline is shorter than the pause: the layout comes back in time."""
    c, other = client(), client()
    d = c.mkdir(c.root(), "d")
    s, f = c.open(d, "f")
    lay(c, f, s)
    # The client says yes, and returns the layout when the test asks it to.
    c.on_callback = lambda name, args: 0
    cut = other.begin(putfh(f), setattr_(ANON, size=0))
    got = c.wait_callback("LAYOUTRECALL")
    with Paused(w):
        back = c.begin(putfh(f), layoutreturn(got.stateid))
    check(err(c.finish(back).status), "OK")
    check(err(other.finish(cut).status), "OK")
    check(w.metric("weft_mds_layout_revoked_total"), 0)


def test_silence_still_ends_a_lease(w):
    c, other = client(), client()
    d = c.mkdir(c.root(), "d")
    c.open(d, "f")
    eventually(lambda: other.ok() and err(c.conn.compound(sequence(c.session.sessionid, 99),
                                                          minor=2).status) == "BADSESSION",
               12 * LEASE, "the end of the lease")


if __name__ == "__main__":
    run_apart(globals(), ds=1, beside=4,
              settings=(f"mds.lease={LEASE}s", "mds.courtesy=0s", f"mds.recall_deadline={RECALL}s",
              "ds.lease=60s", "mds.ds_dead=60s", "mds.ds_suspect=50s"))
