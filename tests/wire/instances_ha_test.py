#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Two instances over two nodes, whose logs are in PostgreSQL: each node holds one and stands by for
the other. weft instance shows them, and moves them on command. Prints TAP.

The nodes are the processes "a" and "b" of each instance, with mds.node n1 and n2. A process that
ends is started again, as systemd does.
"""
import contextlib
import itertools
import json
import os
import re
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../wirelib"))
from harness import *  # noqa: E402,F403
from daemons import Http, environment, program  # noqa: E402
import pg_world as base  # noqa: E402
from handbook import blocks, pattern  # noqa: E402
from pg_world import Postgres, ask, has_files, make_files  # noqa: E402

NODES = ("n1", "n2")
NUMBERS = itertools.count(1)
MOVED = 75  # MEMBER_MOVED of weft-mds


class Pair(base.World):
    """One instance: "a" is its process on n1, "b" that on n2."""

    def __init__(self, pg, inst, port):
        super().__init__(pg, inst)
        self.port = {"a": port, "b": port + 1, "ds": port + 2}
        self.ended_with, self.lock, self.over = [], threading.Lock(), False
        self.keeper = None
        # PostgreSQL has the end of the path, of 45 bytes: this begins within a character.
        self.stores = self.top + "/" + "\u00f6" * 60
        os.mkdir(self.stores)

    def keys(self, name, *more):
        return super().keys(name, f"mds.node={NODES['ab'.index(name)]}",
                            f"mds.store={self.stores}/{name}", *more)

    def keep(self):
        """Starts again what ends, until the end of the test."""
        def turn():
            while not self.over:
                with self.lock:
                    for name in "ab":
                        p = self.run.get(name)
                        if p and p.poll() is not None:
                            self.ended_with.append((name, p.returncode))
                            self.start(name)
                time.sleep(0.02)
        self.keeper = threading.Thread(target=turn, daemon=True)
        self.keeper.start()

    def strike(self, name):
        """kill -9; it comes back by itself."""
        with self.lock:
            self.run[name].kill()

    def down(self):
        self.over = True
        if self.keeper:
            self.keeper.join()
        super().down()


class Nodes:
    """Instances over the two nodes."""

    def __init__(self, pg, n):
        self.pg = pg
        self.inst = [Pair(pg, next(NUMBERS), 12111 + 40 * i) for i in range(n)]
        for w in self.inst:
            w.ds()
        self.stack = contextlib.ExitStack()

    def weft(self, *args, status=0):
        done = subprocess.run(
            [program("weft"), "instance", *args, "--log",
             f"host={self.pg.dir}/p dbname=postgres user=weft"], capture_output=True, text=True,
            timeout=120, check=False, env=environment("weft"))
        check(done.returncode, status, f"weft instance {args}: {done.stdout}{done.stderr}")
        return done.stdout if not status else done.stderr

    def list(self):
        mine = {w.inst for w in self.inst}
        return {i["instance"]: i for i in json.loads(self.weft("list", "--json"))
                if i["instance"] in mine}

    def held(self):
        """Who holds each, in order; None: nobody."""
        got = self.list()
        return [got[w.inst]["holder"] if got[w.inst]["held"] else None for w in self.inst]

    def ready(self):
        """Each is held, and a standby that has all of it is up."""
        return all(i["held"] and i["holder"] and
                   any(s["up"] and s["node"] != i["holder"] and s["lag_batches"] == 0
                       for s in i["standbys"]) for i in self.list().values())

    def wait(self):
        eventually(self.ready, 120, "each is held, and has a standby")

    def down(self):
        for w in self.inst:
            w.down()
            # The next test's drain must not find it.
            w.sql("delete from weft.fold where inst = $; delete from weft.reader where inst = $;"
                  "delete from weft.instance where id = $")


def serve(w, first_, second):
    w.start(first_)
    w.serves(first_)
    w.start(second)
    w.says(second, f"standby: another process holds instance {w.inst}")


def active(nodes):
    """The first is held by n1, the second by n2; each prefers that."""
    one, two = nodes.inst
    serve(one, "a", "b")
    serve(two, "b", "a")
    nodes.wait()
    for w, node in ((one, "n1"), (two, "n2")):
        nodes.weft("move", str(w.inst), "--prefer", node)
        w.keep()
    check(nodes.held(), ["n1", "n2"])


def test_the_blocks_of_the_page_do_what_they_say(nodes):
    active(nodes)
    check([w.inst for w in nodes.inst], [1, 2], "the page's instances")
    top = nodes.inst[0].top
    os.mkdir(f"{top}/bin")
    with open(f"{top}/bin/weft", "w", opener=lambda p, f: os.open(p, f, 0o755),
              encoding="ascii") as f:
        f.write(f'#!/bin/sh\nexec {program("weft")} "$@" --log '
                f'"host={nodes.pg.dir}/p dbname=postgres user=weft"\n')
    with open(os.path.join(SRC, "docs/ha.md"), encoding="utf-8") as f:
        mine = [b for b in blocks("ha.md", f.read()) if b.first.startswith("# On n1")]
    check(len(mine) >= 5, True, f"{len(mine)} blocks")
    for block in mine:
        nodes.wait()
        done = subprocess.run(["bash", "-e", "-c", block.text],
                              env={**environment("weft"), "PATH": f"{top}/bin:{os.environ['PATH']}",
                                   "COLUMNS": "160"},
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              timeout=240, check=False)
        said = f"{block.where}: status {done.returncode}, it printed\n{done.stdout}"
        check(done.returncode != 0, "refused" in block.first, said)
        if block.expected is not None:
            check(bool(pattern(block.expected).fullmatch(done.stdout)), True,
                  f"{said}\nand not\n{block.expected}")
    check(nodes.held(), ["n1", "n2"])


def test_list_shows_who_holds_and_who_follows(nodes):
    (w,) = nodes.inst
    serve(w, "a", "b")
    nodes.wait()
    make_files(w.client("a"), "d", 20)

    def standby():
        (s,) = nodes.list()[w.inst]["standbys"]
        return s
    # The server adds batches of its own: events, what data servers do.
    eventually(lambda: [standby()[k] for k in ("node", "up", "lag_batches", "lag_bytes", "lag_s")]
               == ["n2", True, 0, 0, 0], 60, "it has all")
    got = nodes.list()[w.inst]
    check((got["holder"], got["epoch"], got["preferred"], got["move"]), ("n1", 1, None, None))
    check(got["takeover"]["by"], "n1")
    table = nodes.weft("list")
    lines = [line.split() for line in table.splitlines()
             if line.split()[0] == str(w.inst)]
    check([line[1:3] for line in lines], [["n1", "holder"], ["n2", "standby"]], table)
    # One that stands still is behind, and then gone.
    stand_still(w.run["b"].pid)
    make_files(w.client("a"), "e", 20)
    eventually(lambda: standby()["lag_batches"] > 0 and standby()["lag_bytes"] is None
               and standby()["lag_s"] > 0 and not standby()["up"], 60, "it is behind, and gone")
    check(" gone " in nodes.weft("list"), True)
    said = nodes.weft("move", str(w.inst), "--to", "n2", status=1)
    check("no standby on n2 is up" in said, True, said)
    check(nodes.held(), ["n1"])
    has_files(w.client("a"), "e", 20)


def test_a_move_that_cannot_be_leaves_the_instance(nodes):
    (w,) = nodes.inst
    w.start("a")
    w.serves("a")
    inst = str(w.inst)
    said = nodes.weft("move", inst, "--to", "n2", status=1)
    check("no standby on n2 is up" in said, True, said)
    said = nodes.weft("move", inst, "--to", "n1", status=1)
    check("it is there already" in said, True, said)
    said = nodes.weft("move", inst, "--home", status=1)
    check("has no preferred node" in said, True, said)
    said = nodes.weft("drain", "n1", status=1)
    check("no standby elsewhere" in said, True, said)
    for args in (("--prefer", "n2"), ("--to", "n2")):
        said = nodes.weft("move", "4711", *args, status=1)
        check("there is no instance with this number" in said, True, said)
    for node in ("n2", ""):
        said = nodes.weft("move", inst, "--prefer", node, "--json")
        check(json.loads(said), {"instance": w.inst, "preferred": node or None})
    nodes.weft("move", inst, status=2)
    nodes.weft("move", "0", "--to", "n2", status=2)
    check(w.run["a"].poll(), None, "a runs")
    check(w.log("a").count("serving: boot"), 1)
    w.stop("a")
    said = nodes.weft("move", inst, "--to", "n2", status=1)
    check("no process that holds it has answered" in said, True, said)
    # It was withdrawn: who serves later does not obey it.
    w.start("b")
    w.serves("b")
    w.start("a")
    w.says("a", f"standby: another process holds instance {w.inst}")
    nodes.wait()
    check(nodes.list()[w.inst]["move"]["state"], "refused")
    check(nodes.held(), ["n2"])


def test_a_move_that_nobody_waits_for_any_more_is_refused(nodes):
    (w,) = nodes.inst
    serve(w, "a", "b")
    nodes.wait()
    eventually(lambda: nodes.list()[w.inst]["takeover"], 60, "its row is there")
    w.sql("update weft.place set seq = 1, state = 'asked', target = 'n2',"
          " asked = now() - interval '1 min', changed = now() - interval '1 min' where inst = $")

    def move():
        got = nodes.list()[w.inst]["move"]
        return got["state"], got["why"]
    eventually(lambda: move()[0] not in ("asked", "begun"), 60, "it is decided")
    check(move(), ("refused", "it was asked for too long ago"))
    check(w.run["a"].poll(), None, "a runs")
    check(nodes.held(), ["n1"])


def test_drain_takes_a_standby_that_follows_and_fails_where_it_knows_nothing(nodes):
    (w,) = nodes.inst
    serve(w, "a", "b")
    nodes.wait()
    said = nodes.weft("drain", "n4", status=1)
    check("no instance has the node n4" in said, True, said)
    # One that speaks and is an hour behind is not where it goes, preferred or not.
    nodes.weft("move", str(w.inst), "--prefer", "n3")
    w.sql("insert into weft.member values ($, 'n3:/x', 'n3', 'standby', 0,"
          " now() - interval '1 hour', now() + interval '1 hour')")
    said = nodes.weft("drain", "n1")
    check("1 instances have left n1" in said, True, said)
    check(w.ended("a"), MOVED)
    check(nodes.held(), ["n2"])
    # A holder that is not told of may be on the node that is to be empty.
    w.sql("update weft.instance set owner = 'n9:/nowhere 0123456789abcdef' where id = $")
    said = nodes.weft("drain", "n3", status=1)
    check(f"instance {w.inst}: its holder does not say where it is" in said, True, said)


def test_drain_looks_again_at_one_that_is_free(nodes):
    (w,) = nodes.inst
    w.sql("insert into weft.member values ($, 'n1:/x', 'n1', 'standby', 0, now(),"
          " now() + interval '1 hour')")
    got = []

    def drained():
        """The standby takes the instance while drain looks. False: that came too late."""
        w.sql("update weft.instance set owner = '' where id = $")
        began = time.monotonic()
        with subprocess.Popen(
                [program("weft"), "instance", "drain", "n1", "--log",
                 f"host={nodes.pg.dir}/p dbname=postgres user=weft"], text=True,
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment("weft")) as p:
            eventually(lambda: p.poll() is not None or nodes.pg.sql(
                "select 1 from pg_stat_activity where application_name = 'weft-member 0'"
                " and state = 'idle' and query like '%json_agg%'"), 60, "it has looked once")
            w.sql("update weft.instance set owner = 'n1:/x 0123456789abcdef' where id = $")
            in_time = time.monotonic() < began + 4
            got[:] = p.communicate(timeout=120)[0], p.returncode
        return got[1] or in_time
    eventually(drained, 120, "it is taken while drain looks")
    check((f"instance {w.inst} stays at n1" in got[0], got[1]), (True, 1), got)
    # Nobody takes it: then it is nowhere.
    w.sql("update weft.instance set owner = '' where id = $")
    check("0 instances have left n1" in nodes.weft("drain", "n1"), True)


def test_two_nodes_whose_names_begin_alike_are_two(nodes):
    (w,) = nodes.inst
    names = ["n" * 40 + c for c in "12"]
    for name, node in zip("ab", names):
        os.mkdir(f"{w.top}/{node}")
        # The paths end alike, as those of two machines are the same.
        w.start(name, f"mds.node={node}", f"mds.store={w.top}/{node}/" + "s" * 50)
        if name == "a":
            w.serves("a")

    def seen():
        i = nodes.list()[w.inst]
        return i["holder"], [s["node"] for s in i["standbys"] if s["lag_batches"] == 0]
    eventually(lambda: seen() == (names[0], [names[1]]), 60, "both are seen")
    nodes.weft("drain", names[0])
    check(seen()[0], names[1])


def test_one_that_has_followed_nothing_yet_is_behind(nodes):
    (w,) = nodes.inst
    w.start("a")
    w.serves("a")
    make_files(w.client("a"), "d", 5)
    # A new copy begins with the table.
    nodes.pg.sql("revoke select on weft.kv from weft")
    try:
        w.start("b")

        def standby():
            got = nodes.list()[w.inst]["standbys"]
            return got[0] if got else {"lag_s": 0}
        eventually(lambda: standby()["lag_s"] > 3, 60, "it is behind by more and more")
        got = standby()
        check((got["up"], got["batch"]), (True, 0), got)
    finally:
        nodes.pg.sql("grant select on weft.kv to weft")
    nodes.wait()


SLOW = """create or replace function weft.slow() returns trigger language plpgsql as
$slow$ begin perform pg_sleep(2); return new; end $slow$;
create trigger slow before update on weft.place for each row
when (old.state <> new.state and new.state in ('begun', 'leaving')) execute function weft.slow()"""


def test_a_step_whose_answer_was_lost_is_gone_on_from(nodes):
    (w,) = nodes.inst
    serve(w, "a", "b")
    nodes.wait()
    make_files(w.client("a"), "d", 5)
    # Longer than the holder waits: what it asked for is done, and it does not hear of it.
    nodes.pg.sql(SLOW)
    try:
        said = nodes.weft("move", str(w.inst), "--to", "n2")
    finally:
        nodes.pg.sql("drop trigger slow on weft.place")
    check(f"instance {w.inst} is at n2" in said, True, said)
    check(w.ended("a"), MOVED)
    check(nodes.held(), ["n2"])
    has_files(w.client("b"), "d", 5)


def test_each_node_has_one_and_takes_both(nodes):
    active(nodes)
    one, two = nodes.inst
    make_files(one.client("a"), "d", 20)
    make_files(two.client("b"), "d", 20)
    said = json.loads(nodes.weft("drain", "n1", "--json"))
    check([(i["instance"], i["holder"], i["move"]["state"]) for i in said],
          [(one.inst, "n2", "done")])
    check(json.loads(nodes.weft("drain", "n1", "--json")), [])
    check(nodes.held(), ["n2", "n2"])
    check(one.ended_with, [("a", MOVED)])
    check(two.ended_with, [], "the other one")
    has_files(one.client("b"), "d", 20)
    nodes.wait()
    # Nothing goes back by itself; on command it does.
    check(nodes.held(), ["n2", "n2"])
    said = nodes.weft("move", str(one.inst), "--home")
    check(f"instance {one.inst} is at n1" in said, True, said)
    nodes.wait()
    # The node of the second dies: the first's clients see nothing.
    boots = one.log("a").count("serving: boot")
    two.strike("b")
    eventually(lambda: nodes.held() == ["n1", "n1"], 120, "both are at n1")
    two.serves("a")
    has_files(two.client("a"), "d", 20)
    check(one.log("a").count("serving: boot"), boots)
    nodes.wait()
    took = nodes.list()[two.inst]["takeover"]
    check((took["by"], took["why"]), ("n1", "lease"))
    check(took["detection_ms"] >= 1000 * base.LEASE_S, True, took)
    nodes.weft("move", str(two.inst), "--home")
    check(nodes.held(), ["n1", "n2"])


LATE = """create or replace function weft.late() returns trigger language plpgsql as
$late$ begin if new.role = 'standby' then new.has := new.has - 5;
new.as_of := now() - interval '1 min'; end if; return new; end $late$;
create trigger late before insert or update on weft.member for each row
execute function weft.late()"""


def test_the_holder_tells_how_its_standbys_are(nodes):
    (w,) = nodes.inst
    w.start("a")
    w.serves("a")

    def has(code, there=True):
        eventually(lambda: (code in [r["code"] for r in
                                     ask(w.admin["a"], "/v1/health")[1]["reasons"]]) == there,
                   60, f"{code} is {there}")

    def status():
        return ask(w.admin["a"], "/v1/status")[1]["instance"]

    def event(kind, text):
        eventually(lambda: any(text in e["text"] for e in
                               ask(w.admin["a"], f"/v1/events?kind={kind}")[1]["events"]),
                   60, f"{kind}: {text}")

    def series(name):
        return float(re.search(rf"^{re.escape(name)} (\S+)$", metrics(w.admin["a"]), re.M)[1])

    has("standby-none")
    event("takeover", f"instance {w.inst}, it was free: detection ")
    event("standby", "has no standby that follows")
    w.start("b")
    has("standby-none", False)
    event("standby", f"1 follow instance {w.inst}")
    eventually(lambda: series("weft_mds_standbys") == 1, 60, "a standby")
    got = status()
    check((got["instance"], got["node"], got["holder"], got["held"], got["takeover"]["by"],
           [s["node"] for s in got["standbys"]]), (w.inst, "n1", "n1", True, "n1", ["n2"]))
    check(0 <= got["lease_age_s"] < base.LEASE_S, True, got)
    age = series("weft_mds_lease_age_seconds")
    check(0 <= age < base.LEASE_S, True, age)
    for part in ("detection", "claim", "filling", "serving"):
        check(round(1000 * series(f'weft_mds_takeover_seconds{{part="{part}"}}')),
              got["takeover"][part + "_ms"])
    # It prefers the other node.
    nodes.weft("move", str(w.inst), "--prefer", "n2")
    has("instance-away")
    nodes.weft("move", str(w.inst), "--prefer", "n1")
    has("instance-away", False)
    # One that speaks and does not follow.
    nodes.pg.sql(LATE)
    try:
        has("standby-lags")
        event("standby", "s behind")
        # The bytes are of the newest look at the log, which comes once in a while.
        for name, least in (("batches", 5), ("bytes", 1), ("seconds", 10)):
            eventually(lambda n=name, x=least: series(f"weft_mds_standby_lag_{n}") >= x, 60,
                       f"{name} that it lacks")
        said = nodes.weft("move", str(w.inst), "--to", "n2", status=1)
        check(re.search(r"the standby on n2 lacks \d+ batches after 5 s", said) is not None, True,
              said)
        event("instance-move", "refused: the standby on n2 lacks")
    finally:
        nodes.pg.sql("drop trigger late on weft.member")
    has("standby-lags", False)
    # A list that PostgreSQL does not give is none that says that all is well.
    eventually(lambda: series("weft_mds_standbys") == 1, 60, "a standby")
    nodes.pg.sql("revoke select on weft.place from weft")
    try:
        has("standby-none")
        check("PostgreSQL does not say which standbys follow" in
              [r["text"] for r in ask(w.admin["a"], "/v1/health")[1]["reasons"]], True)
        check((series("weft_mds_standbys"), status()["seen_s"] > 10), (0, True))
    finally:
        nodes.pg.sql("grant select on weft.place to weft")
    has("standby-none", False)
    w.kill("b")
    has("standby-none")
    check(w.run["a"].poll(), None, "a runs")


def test_a_holder_that_was_never_told_of_its_standbys_says_so(nodes):
    (w,) = nodes.inst
    nodes.pg.sql("revoke select on weft.place from weft")
    try:
        w.start("a")
        w.serves("a")
        eventually(lambda: "PostgreSQL does not say which standbys follow" in
                   [r["text"] for r in ask(w.admin["a"], "/v1/health")[1]["reasons"]],
                   60, "its health says so")
        check(ask(w.admin["a"], "/v1/status")[1]["instance"]["seen_s"], None)
    finally:
        nodes.pg.sql("grant select on weft.place to weft")


def metrics(admin):
    conn = Http(admin)
    conn.request("GET", "/metrics")
    text = conn.getresponse().read().decode()
    conn.close()
    return text


@contextlib.contextmanager
def around(pg, name):
    nodes = Nodes(pg, 2 if "each_node" in name or "blocks" in name else 1)
    try:
        yield (nodes,)
    except BaseException:
        for w in nodes.inst:
            for one in "ab":
                print("\n".join(f"# {w.inst} {one}: {line}"
                                for line in w.log(one).splitlines()[-12:]))
        raise
    finally:
        nodes.down()


def main():
    skip = base.missing()
    if skip:
        return tap.skip(skip)
    pg = Postgres()
    try:
        return tap.run(tap.named(globals()), lambda name: around(pg, name))
    finally:
        pg.down()


if __name__ == "__main__":
    main()
