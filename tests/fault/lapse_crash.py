#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""kill -9 of the metadata server while it notes in a client's record that the lease has run out,
or that the client is back (mds/state/st_lapse.c). Prints TAP.

Whatever was durable at the kill, a client that was heard before it holds the next grace period, and
a client that comes back in time reclaims what it had. Only a client whose lapse is durable is not
waited for. CRASH_ROUNDS: kills at each point (1; make soak: 20); WEFT_SEED.
"""
import os
import random
import sys
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import crash  # noqa: E402
from crash import ADDR, ROUNDS, SEED, Server, check, tap  # noqa: E402
from nfs41 import (BOTH, CURRENT, NO_DELEG, UNCHECKED, Client, Closed,  # noqa: E402
                   claim_previous, close, compound_args, destroy_clientid, destroy_session, err,
                   open_, putfh, reclaim_complete, sequence)
from delegs import living  # noqa: E402
from harness import eventually  # noqa: E402
from steps import again  # noqa: E402

SETTINGS = ["mds.lease=3s", "mds.grace=300s", "mds.courtesy=600s"]


class Test:
    def __init__(self, rng, server):
        self.rng, self.s, self.n = rng, server, 0
        self.kills = self.held = self.lapsed = self.answered = 0
        c = Client(ADDR)
        self.d = c.mkdir(c.root(), "d")
        self.ends(c)

    @staticmethod
    def ends(c):
        """The client goes, with its record."""
        c.ok(destroy_session(c.session.sessionid))
        got = c.conn.compound(destroy_clientid(c.clientid))
        check(err(got.status), "OK", "DESTROY_CLIENTID")
        c.close()

    def log_has(self, what):
        with open(os.path.join(self.s.w.dir, "log/mds.log"), encoding="utf-8") as f:
            return sum(what in line for line in f)

    def two(self):
        self.n += 1
        live, one = Client(ADDR), Client(ADDR)
        self.sid, self.f = one.open(self.d, f"f{self.n}", deny=BOTH)
        self.had = self.log_has("clients have run out")
        return live, one

    def goes_on(self):
        """After a kill: the store is clean, and the server starts."""
        check(self.s.wait_dead(60), True, "it never came to the point")
        self.kills += 1
        self.s.fsck()
        self.s.start()

    def grace_runs(self, live):
        live.no("GRACE", putfh(self.d), open_(f"g{self.n}", BOTH | NO_DELEG, how=UNCHECKED,
                                              attrs={"mode": 0o600}))

    def grace_is_over(self, live):
        live.until(lambda got: err(got.status) not in ("GRACE", "DELAY"), putfh(self.d),
                   open_(f"g{self.n}", BOTH | NO_DELEG, how=UNCHECKED, attrs={"mode": 0o600}),
                   close(CURRENT), tries=1)

    def reclaims(self, one):
        sid = one.ok(putfh(self.f), open_(claim_previous(), BOTH | NO_DELEG, BOTH)).stateid
        one.ok(reclaim_complete())
        one.ok(putfh(self.f), close(sid))

    def runs_out(self, live):
        """Until the server says that the record says so."""
        with living([live]):
            eventually(lambda: self.log_has("clients have run out") > self.had, 60,
                       "the end of the lease in the record")
        self.lapsed += 1

    def asks(self, one):
        """A request that the server does not answer. True: it did."""
        try:
            one.conn.compound(sequence(one.session.sessionid, one.slots[0] + 1, 0, 0))
            return True
        except (Closed, OSError):
            return False

    def kept_alive(self, live):
        """Until the server dies."""
        def dead():
            try:
                live.ok()
            except (Closed, OSError):
                return True
            return False
        eventually(dead, 60, "its end")

    def holds(self, live, one):
        again(live, True)
        self.grace_runs(live)
        again(one)
        self.reclaims(one)
        self.grace_is_over(live)
        self.held += 1
        self.ends(live)
        self.ends(one)

    def before_the_lapse_is_durable(self):
        self.s.kill()
        self.s.start("lease-ends:1")
        live, one = self.two()
        self.kept_alive(live)
        self.goes_on()
        self.holds(live, one)

    def after_the_client_is_back(self):
        """Its record says that it is back, and the client has no answer."""
        self.s.kill()
        self.s.start("lease-back:1")
        live, one = self.two()
        self.runs_out(live)
        check(self.asks(one), False, "an answer")
        self.goes_on()
        self.holds(live, one)

    def while_it_comes_back(self):
        """At random. Who has an answer holds grace. Who has none may not, but what it had is still
        its own."""
        live, one = self.two()
        self.runs_out(live)
        xid = one.conn.start(1, compound_args((sequence(one.session.sessionid, one.slots[0] + 1,
                                                        0, 0),)), one.cred)
        time.sleep(self.rng.uniform(0, 0.004))
        self.s.kill()
        try:
            one.conn.finish(xid)
            self.answered += 1
            answered = True
        except (Closed, OSError):
            answered = False
        self.goes_on()
        if answered:
            self.holds(live, one)
            return
        again(one)
        self.reclaims(one)
        again(live, True)
        self.grace_is_over(live)
        self.ends(live)
        self.ends(one)

    def end(self):
        tap.say(f"{self.kills} kills; {self.lapsed} leases ran out in a record; {self.held} "
                f"clients held grace, {self.answered} of them with an answer before a random kill")


def main():
    if not tap.built("tests/fault/weft-mds"):
        tap.skip("the daemon is not built")
        return
    rng = random.Random(SEED)
    tests = [(f"killed as it notes the end of a lease {n + 1}",
              lambda t: t.before_the_lapse_is_durable()) for n in range(ROUNDS)]
    tests += [(f"killed before the first answer to one that is back {n + 1}",
               lambda t: t.after_the_client_is_back()) for n in range(ROUNDS)]
    tests += [(f"killed while one comes back {n + 1}", lambda t: t.while_it_comes_back())
              for n in range(3 * ROUNDS)]
    rng.shuffle(tests)
    tests.append(("the store is clean", lambda t: t.end()))
    tap.say(f"seed {SEED}")
    crash.THE = Test(rng, Server(*SETTINGS))
    try:
        tap.run(tests, crash.around)
    finally:
        crash.THE.s.down()


if __name__ == "__main__":
    main()
