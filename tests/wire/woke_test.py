#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The metadata server's own pause is no data server's silence. Prints TAP."""
import json
import os
import signal
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../wirelib"))
from harness import *  # noqa: E402,F403
from tool import pid_of, state, weft  # noqa: E402

DEAD = 15  # s; a test under load takes less from one step to the next


def test_who_answered_meanwhile_is_not_dead(w):
    """The metadata server asks a data server whether it lives, and stands still before it reads the
    answer. By its own clock, the question had no answer for longer than mds.ds_dead."""
    mds, ds = pid_of(w, "mds"), pid_of(w, "ds1")
    stand_still(ds)
    eventually(lambda: state(w, "ds1") == "suspect", 10, "the question")
    time.sleep(1.5)  # until it has asked one in vain
    stand_still(mds)
    os.kill(ds, signal.SIGCONT)
    time.sleep(1.2 * DEAD)
    os.kill(mds, signal.SIGCONT)
    eventually(lambda: state(w, "ds1") == "alive", 30, "its answer is read")
    events = map(json.loads, weft(w, "--json", "events").splitlines())
    check([e for e in events if e["kind"] == "ds-dead"], [])


def test_who_is_silent_as_well_dies_after_it(w):
    mds, ds = pid_of(w, "mds"), pid_of(w, "ds1")
    stand_still(ds)
    stand_still(mds)
    time.sleep(2)
    os.kill(mds, signal.SIGCONT)
    eventually(lambda: state(w, "ds1") == "dead", 60, "its death")
    os.kill(ds, signal.SIGCONT)
    eventually(lambda: state(w, "ds1") == "alive", 60, "its return")


if __name__ == "__main__":
    # With one thread the server happens to read the answer before the watch looks.
    run_apart(globals(), ds=1, beside=2,
              settings=("mds.threads=4", "ds.lease=120s", f"mds.ds_dead={DEAD}s",
                        "mds.ds_suspect=2s"))
