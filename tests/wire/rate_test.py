#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""mds.rate_of_address: what one address may ask in a second over all of its connections, and what
that leaves for others. Prints TAP."""
import os
import sys
import threading
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../wirelib"))
import harness as base  # noqa: E402
from harness import *  # noqa: E402,F403
from load import Watch, mds_pid  # noqa: E402

RATE, SECONDS = 100, 3


def flood(conns, until, watch=None):
    """Each connection asks again as soon as it has an answer. Returns how many got one. The watch
    hears of the threads before they end."""
    counts, one = [0] * len(conns), threading.Lock()

    def run(i):
        while time.monotonic() < until:
            conns[i].rpc(0)
            counts[i] += 1
        with one:
            watch and watch.delays()
    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(conns))]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return sum(counts)


def test_an_address_has_its_rate_and_no_more(w):
    """An address may save up a tenth of a second's worth. It does not matter which of its
    connections ask."""
    for n in (1, 8):
        conns = [Conn(ADDR, source=("127.0.0.3", 0)) for _ in range(n)]
        began, watch = time.monotonic(), Watch(mds_pid(w))
        done = flood(conns, began + SECONDS, watch)
        most, took = time.monotonic() - began, watch.took()
        for conn in conns:
            conn.close()
        base.tap.say(f"{done} calls in {most:.1f} s on {n} connections; {took:.1f} s of them "
                     "nobody waited for a processor")
        check(done <= RATE * most + RATE / 10 + n + 2, True, f"{done} calls in {most:.1f} s")
        check(done >= RATE * took / 3, True, f"only {done} calls in {took:.1f} s")
        time.sleep(0.2)


def test_others_have_their_own(w):
    """Beside a flood that has far more connections, another address gets what it asks for within
    its rate."""
    many = [Conn(ADDR, source=("127.0.0.3", 0)) for _ in range(100)]
    one = Conn(ADDR, source=("127.0.0.4", 0))
    flooding = threading.Thread(target=flood, args=(many, time.monotonic() + SECONDS))
    flooding.start()
    longest, watch = 0, Watch(mds_pid(w))
    for _ in range(20):
        time.sleep(0.1)
        watch.start()
        one.rpc(0)
        longest = max(longest, watch.took())
    flooding.join()
    base.tap.say(f"the longest that another address waited: {longest * 1e3:.0f} ms")
    check(longest < 0.5, True, f"{longest:.2f} s")  # behind the flood it would be a second
    for conn in (*many, one):
        conn.close()


if __name__ == "__main__":
    base.run_apart(globals(), ds=1, settings=(f"mds.rate_of_address={RATE}",))
