#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Two clients write one file, and the server fences one of them in the middle. Prints TAP.

No byte of the fenced client arrives after what the other one wrote. WEFT_SOAK=1 runs 200 rounds.
"""
import os
import signal
import sys
import threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../wirelib"))
import tap  # noqa: E402
from harness import *  # noqa: E402,F403
from nfs41 import err  # noqa: E402
from files import MB  # noqa: E402
from mirrored import Wide, equal, servers, uuid_of, whole  # noqa: E402
from repair_test import settings  # noqa: E402

ROUNDS = 200 if os.environ.get("WEFT_SOAK") else 3
TRIES = 300


def pid_of(w, name):
    with open(os.path.join(w.dir, "run", name + ".pid"), encoding="ascii") as f:
        return int(f.read())


class Waiting(threading.Thread):
    """A WRITE to a stopped server: it waits in the socket, and the server runs it as soon as it
    goes on."""

    def __init__(self, ds, fh, data):
        super().__init__()
        self.ds, self.fh, self.data, self.status = ds, fh, data, None
        self.start()

    def run(self):
        self.status = self.ds.write(self.fh, 0, self.data).status


def one_round(w, n, frozen):
    """The first client writes the whole file with A, and only one copy accepts it. The second
    client truncates the file and writes B. Returns (both wrote, the status of the write that
    waited)."""
    x = Wide(f"f{n}", 2 * MB)
    at = n % 2
    name = next(s for s in servers(x.c, x.f) if uuid_of(x.c, x.f, s) == x.o.mirrors[at][0].deviceid)
    late = None
    if frozen:
        stand_still(pid_of(w, name))
    try:
        if frozen:
            late = Waiting(x.ds[at], x.o.mirrors[at][0].fhs[0], b"A" * MB)
        first = x.ds[1 - at].write(x.o.mirrors[1 - at][0].fhs[0], 0, b"A" * MB).status
        two = client()
        s = two.ok(putfh(x.f), open_(claim_fh(), BOTH | NO_DELEG)).stateid
        go_on = lambda got: err(got.status) != "DELAY"  # noqa: E731
        two.until(go_on, putfh(x.f), setattr_(s, size=0), tries=TRIES)
        for off in range(0, 2 * MB, MB):
            second = err(two.until(go_on, putfh(x.f), write(s, off, b"B" * MB, FILE_SYNC),
                                   tries=TRIES).status)
    finally:
        if frozen:
            os.kill(pid_of(w, name), signal.SIGCONT)
    if frozen:
        late.join()
    else:
        late = x.ds[at].write(x.o.mirrors[at][0].fhs[0], 0, b"A" * MB)
    eventually(lambda: whole(two, x.f), 30, "repair")
    equal(w, two, x.f, b"B" * (2 * MB))
    for ds in x.ds:
        ds.close()
    x.c.drop()
    two.drop()
    return first == 0 and second in ("OK", 0), late.status


def rounds(w, frozen):
    got = [one_round(w, n, frozen) for n in range(ROUNDS)]
    check(sum(both for both, _ in got), ROUNDS, "rounds in which both wrote")
    # The copy of a stopped server may be stale by then, and clients read nothing from it.
    if not frozen:
        check([late for _, late in got if late == 0], [], "late writes that were taken")
    tap.say(f"{ROUNDS} rounds; the late writes were answered {sorted({late for _, late in got})}")


def test_a_write_that_comes_late_is_refused(w):
    rounds(w, False)


def test_one_that_waited_in_a_server_that_stood_still_is_never_read(w):
    rounds(w, True)


if __name__ == "__main__":
    run_apart(globals(), settings=settings)
