#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""kill -9 of the metadata server while machines use join tokens, at random and at named points:
one machine gets the keys of a token, the same machine gets them again, and no other one does.
Prints TAP.

For each token some machines ask at a time, each with a claim of its own, until each is answered.
CRASH_ROUNDS: kills at each point (1; make soak: 20); WEFT_SEED.
"""
import json
import os
import random
import sys
import threading
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import crash  # noqa: E402
from crash import ADDR, ROUNDS, SEED, Server, check, tap  # noqa: E402
import join_token  # noqa: E402
from daemons import ask  # noqa: E402
from join_token import OK, TAKE, USED  # noqa: E402

MACHINES = 4
# Where, and at which passes of it at most.
POINTS = {"kv-run": 4, "kv-commit": 4, "log": 4, "halflog": 4, "kv-logged": 4, "kv-committed": 4,
          "kv-answer": 4, "reply": 8}


class Machine(threading.Thread):
    """Asks with its claim until the metadata server has answered."""

    def __init__(self, token, begin):
        super().__init__(daemon=True)
        self.token, self.secret, self.begin = token, os.urandom(32), begin
        self.status = self.keys = None
        self.unanswered, self.fault = 0, None

    def ask(self):
        s = join_token.Asker(ADDR, *self.token)
        with s.s:
            status, result = s.take(join_token.public(self.secret), TAKE)
        keys = join_token.opened(result, *self.token, self.secret) if status == OK else None
        return status, keys

    def run(self):
        self.begin.wait()
        while self.status is None:
            try:
                self.status, self.keys = self.ask()
            except (OSError, AssertionError):  # the connection ended, or there is none
                self.unanswered += 1
                time.sleep(0.02)
            except Exception as e:
                self.fault = e
                return


class Test:
    def __init__(self, rng, server):
        self.rng, self.s, self.used = rng, server, []
        self.kills = self.unanswered = self.again = 0
        rows = json.loads(server.w.dev("status", server.w.dir, "--json"))["daemons"]
        self.admin = next(r["admin"] for r in rows if r["name"] == "mds")

    def token(self):
        j = ask(self.admin, "POST", "/v1/cluster/token")
        return bytes.fromhex(j["id"]), bytes.fromhex(j["secret"])

    def round(self, point=None):
        """A kill while machines ask; then all of them are answered."""
        token, begin = self.token(), threading.Event()
        machines = [Machine(token, begin) for _ in range(MACHINES)]
        for m in machines:
            m.start()
        served = True
        if point:
            self.s.kill()
            served = self.s.start(f"{point}:{self.rng.randint(1, POINTS[point])}")
        begin.set()
        if point and served and not self.s.wait_dead(1):
            self.s.kill()
        elif not point:
            time.sleep(self.rng.uniform(0, 0.01))
            self.s.kill()
        self.kills += 1
        self.s.fsck()
        self.s.start()
        for m in machines:
            m.join(60)
            check((m.is_alive(), m.fault), (False, None), "a machine that is not answered")
        self.unanswered += sum(m.unanswered for m in machines)
        self.judge(token, machines)

    def judge(self, token, machines):
        got = [m for m in machines if m.status == OK]
        check(sorted(m.status for m in machines), [OK] + [USED] * (MACHINES - 1), "answers")
        check(len(got[0].keys or b""), 113, "its keys open")
        self.used.append(got[0])
        for m in self.rng.sample(self.used, min(len(self.used), 3)):
            check(m.ask(), (OK, m.keys), "the same machine, again")
            other = Machine(m.token, None)
            check(other.ask(), (USED, None), "another one, later")
            self.again += 1

    def end(self):
        check(len({m.keys for m in self.used}), len(self.used), "each token has keys of its own")
        check(self.unanswered > 0 and self.again > 0, True, "too little happened")
        tap.say(f"{self.kills} kills, {len(self.used)} tokens, {self.again} answered again, "
                f"{self.unanswered} questions that the kills left unanswered")


def main():
    if not tap.built("tests/fault/weft-mds"):
        tap.skip("the daemon is not built")
        return
    rng = random.Random(SEED)
    tests = [(f"killed at random {n + 1}", lambda t: t.round()) for n in range(2 * ROUNDS)]
    tests += [(f"killed at {p} {n + 1}", lambda t, p=p: t.round(p)) for p in POINTS
              for n in range(ROUNDS)]
    rng.shuffle(tests)
    tests.append(("a token is good once", lambda t: t.end()))
    tap.say(f"seed {SEED}")
    crash.THE = Test(rng, Server())
    try:
        tap.run(tests, crash.around)
    finally:
        crash.THE.s.down()


if __name__ == "__main__":
    main()
