#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Data servers that die. Prints TAP.

The tests cover how the metadata server notices, what becomes of layouts, and what state a server
has when it comes back.
"""
import json
import os
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../wirelib"))
import tap  # noqa: E402
from harness import *  # noqa: E402,F403
from steps import data_server  # noqa: E402
from files import content, layout_of  # noqa: E402
from load import Watch, mds_pid, pids  # noqa: E402
from nfs41 import err  # noqa: E402
from mirrored import Holder, servers, states  # noqa: E402
from tool import is_state, pid_of, server, state, weft_json as weft  # noqa: E402

MB = 1 << 20
# Leases are long, so that nothing that these tests see comes from a lease that runs out.
QUICK = ["ds.lease=30s", "mds.lease=10s", "mds.ds_suspect=700ms", "mds.ds_dead=1500ms",
         "mds.repair_wait=4s", "mds.recall_deadline=3s"]


def test_killed_it_is_dead_in_a_second_and_writers_go_on_without_it(w):
    x = Holder("kill")
    check(sorted(x.named), sorted(x.uuids))
    began, watch = time.monotonic(), Watch(mds_pid(w))
    w.dev("kill", w.dir, x.names[0], "-9")
    eventually(lambda: x.recalls, what="recall")
    took = watch.took()
    tap.say(f"recalled {x.recalls[0] - began:.2f} s after kill -9")
    check(took < 3, True, f"soon, not after {took:.1f} s")
    check((state(w, x.names[0]), state(w, x.names[1])), ("dead", "alive"))
    check(states(x.c, x.f), ["stale", "in-sync"])
    check(x.get(), [x.uuids[1]], "what a new layout names")
    eventually(lambda: x.gone, what="CB_NOTIFY_DEVICEID")
    check(x.gone, [({2}, x.uuids[0])], "DELETE")
    took = watch.took()
    check(took < 4.5, True, f"before a lease of 5 s could end, not after {took:.1f} s")


def test_one_that_says_nothing_is_dead_after_a_while(w):
    x, y = Holder("stop"), Holder("read", IO_READ)
    name = x.names[0]
    pid = pid_of(w, name)
    began = time.monotonic()
    stand_still(pid)
    try:
        watch, suspicion = Watch(mds_pid(w)), []

        def recalled():
            already = list(x.recalls)
            if w.metric(rf'weft_mds_ds_state{{ds="{name}",id="\d+",state="suspect"}}'):
                suspicion.append(already)
            return x.recalls
        eventually(recalled, what="recall")
        took, at_most = x.recalls[0] - began, watch.took()
        check(any(suspicion), False, "recalled on suspicion")
        # A slow machine may see both at once.
        check(bool(suspicion) or took - at_most > 0.3, True, "suspicion")
        check(1.4 < took and at_most < 4, True, f"when: after {took:.1f} s")
        check(state(w, name), "dead")
        check(x.get(), [x.uuids[1]])
        check(content(x.c, x.f, x.s), b"x" * 5000)
    finally:
        os.kill(pid, signal.SIGCONT)
    is_state(w, name, "alive", 5)
    check(states(x.c, x.f)[0] in ("stale", "rebuilding", "in-sync"), True)
    eventually(lambda: set(states(x.c, x.f)) == {"in-sync"}, 10, "repair in place")
    check(servers(x.c, x.f), x.names)
    check(set(states(y.c, y.f)), {"in-sync"}, "of a file that nobody wrote")


def test_files_that_nobody_has_open_are_judged_when_they_are_written(w):
    x = Holder("lazy")
    x.give_back(x.o.stateid)
    w.dev("kill", w.dir, x.names[0], "-9")
    is_state(w, x.names[0], "dead", 30)
    check(states(x.c, x.f), ["in-sync", "in-sync"])
    check(x.get(IO_READ), [x.uuids[1]], "readers are not sent there")
    check(states(x.c, x.f), ["in-sync", "in-sync"], "for that nothing is stale")
    for args in (("mirror", "status"), ("status",)):
        wrong = weft(w, *args)["health"]
        check([s for s in wrong["servers"] if s["name"] == x.names[0]],
              [{"name": x.names[0], "state": "dead"}], "it is told")
        check((wrong["degraded"] >= 1, wrong["all"]), (True, True), f"a file lacks a copy: {wrong}")
    check(x.get(IO_RW), [x.uuids[1]], "nor are writers")
    check(states(x.c, x.f), ["stale", "in-sync"])


def test_one_that_only_a_client_does_not_reach_lives(w):
    x = Holder("part")
    x.c.ok(putfh(x.f), layouterror(x.o.stateid, [(x.uuids[0], 6, NUM["READ"])]))
    time.sleep(2.2)
    check((state(w, x.names[0]), x.recalls), ("alive", []))


def cut_short(w, name):
    """Makes a file whose new size one dead server has not received: the metadata server died
    before it could go on without that server. Returns the file, the server's name and a client of
    the next instance."""
    x = Holder(name)
    x.give_back(x.o.stateid)
    gone = x.names[1]
    stand_still(pid_of(w, gone))
    x.c.begin(putfh(x.f), setattr_(x.s, size=100))
    eventually(lambda: w.metric("weft_mds_orders") > 0, 10, "the order")
    w.dev("kill", w.dir, "mds", "-9")
    w.dev("start", w.dir, "mds")
    is_state(w, gone, "dead", 60)
    return x, gone, client()


def test_who_set_a_size_and_was_cut_short_keeps_nobody_waiting(w):
    x, gone, c = cut_short(w, "short")
    try:
        watch = Watch(*pids(w))
        got = c.until(lambda got: err(got.status) not in ("DELAY", "GRACE"), putfh(x.f),
                      read(ANON, 0, 5000), tries=100)
        check((got.results[-1].data, watch.took() < 3), (b"x" * 100, True))
        check(sorted(states(c, x.f)), ["in-sync", "stale"])
    finally:
        os.kill(pid_of(w, gone), signal.SIGCONT)


def test_nor_who_copies_it(w):
    """Copies of a dead server are stale at once, though repair would wait for the server."""
    x, gone, c = cut_short(w, "copied")
    try:
        got = c.until(lambda got: err(got.status) not in ("DELAY", "GRACE"), putfh(x.d),
                      open_("to", BOTH | NO_DELEG, how=UNCHECKED, attrs={"mode": 0o644}), getfh(),
                      tries=200)
        s, to = got.results[-2].stateid, got.results[-1].fh
        began = time.monotonic()
        got = c.until(lambda got: err(got.status) not in ("DELAY", "GRACE"), putfh(x.f), savefh(),
                      putfh(to), copy(ANON, s), tries=100)
        check((err(got.status), got.results[-1].count), ("OK", 100))
        tap.say(f"copied after {time.monotonic() - began:.1f} s")
        check(time.monotonic() - began < 10, True, "before repair begins without it")
        check(sorted(states(c, x.f)), ["in-sync", "stale"])
    finally:
        os.kill(pid_of(w, gone), signal.SIGCONT)


def put_off(x):
    """The server puts off requests for a file that only a silent server has: an application on a
    hard mount waits for that server."""
    for mode in (IO_READ, IO_RW):
        x.c.until(lambda got: err(got.status) != "RECALLCONFLICT", putfh(x.f), layoutget(x.s, mode))
        x.c.no("LAYOUTTRYLATER", putfh(x.f), layoutget(x.s, mode))
    x.c.no("DELAY", putfh(x.f), read(x.s, 0, 100))
    x.c.no("DELAY", putfh(x.f), write(x.s, 0, b"later", FILE_SYNC))


def given_up(x, seconds):
    eventually(lambda: err(x.c.call(putfh(x.f), layoutget(x.s, IO_RW)).status) == "IO", seconds,
               "the end of waiting")
    x.c.no("IO", putfh(x.f), layoutget(x.s, IO_READ))
    x.c.no("IO", putfh(x.f), read(x.s, 0, 100))
    x.c.no("IO", putfh(x.f), write(x.s, 0, b"lost", FILE_SYNC))


def back_again(w, x):
    with subprocess.Popen([os.path.join(BUILD, "tools/weft-dev"), "start", w.dir, x.names[0]],
                          stdout=subprocess.DEVNULL):
        is_state(w, x.names[0], "alive", 30)
    check(x.get(), x.uuids, "it is back")
    check(content(x.c, x.f, x.s), b"x" * 5000)


def test_the_only_copy_is_waited_for_until_its_server_is_said_to_be_gone(w):
    x = Holder("patient", policy="mirrors=1")
    w.dev("kill", w.dir, x.names[0], "-9")
    eventually(lambda: x.recalls, 30, "recall")
    check(states(x.c, x.f), ["in-sync"])
    until = time.monotonic() + 3  # mds.repair_wait is 1 s
    while time.monotonic() < until:
        put_off(x)
    weft(w, "ds", "kill", x.names[0])
    given_up(x, 30)
    weft(w, "ds", "admit", x.names[0])
    put_off(x)
    back_again(w, x)


def test_the_only_copy_is_given_up_after_the_time_that_is_configured(w):
    x = Holder("only", policy="mirrors=1")
    w.dev("kill", w.dir, x.names[0], "-9")
    eventually(lambda: x.recalls, 30, "recall")
    check(states(x.c, x.f), ["in-sync"])
    put_off(x)
    given_up(x, 30)
    back_again(w, x)


def test_a_restart_of_the_metadata_server_kills_nobody(w):
    x = Holder("boot")
    x.give_back(x.o.stateid)
    time.sleep(1)  # behind it the server asks for the size and writes it down
    w.restart()
    for _ in range(8):
        check({d["state"] for d in weft(w, "ds", "list")["ds"]} <= {"alive", "suspect"}, True)
        time.sleep(0.1)
    for name in x.names:
        is_state(w, name, "alive", 5)
    check([o["state"] for m in weft(w, "file", "show", "/boot/f")["mirrors"] for o in m["objects"]],
          ["in-sync", "in-sync"])


def test_the_administrators_word(w):
    x = Holder("word")
    name, at = x.names[0], x.named.index(x.uuids[0])
    ds, fh = data_server(x.c, x.o.mirrors[at][0]), x.o.mirrors[at][0].fhs[0]
    check(ds.write(fh, 0, b"y" * 5000).status, 0)
    check("is alive" in weft(w, "ds", "forget", name, want=1), True,
          "an alive one is not forgotten")
    watch = Watch(*pids(w))
    got = weft(w, "ds", "kill", name)
    check((got["state"], got["alive"], abs(got["since_at"] - time.time()) < 60),
          ("killed", False, True))
    eventually(lambda: x.recalls, 30, "recall")
    eventually(lambda: ds.write(fh, 0, b"z" * 5000).status == 13, what="the end of its lease")
    took = watch.took()
    check(took < 10, True, f"its lease of 30 s is ended, and not over after {took:.1f} s")
    check(x.get(), [x.uuids[1]])
    check(weft(w, "ds", "kill", name)["since_at"], got["since_at"], "said twice")
    w.restart()
    time.sleep(1.5)
    check((state(w, name), server(w, name)["since_at"]), ("killed", got["since_at"]),
          "after a restart")
    check(ds.write(fh, 0, b"z" * 5000).status, 13)
    w.dev("kill", w.dir, name, "-9")
    # The command ends when the server has joined.
    with subprocess.Popen([os.path.join(BUILD, "tools/weft-dev"), "start", w.dir, name],
                          stdout=subprocess.DEVNULL):
        time.sleep(1.5)
        check(state(w, name), "killed", "after its own restart")
        check(weft(w, "ds", "admit", name)["state"] in ("dead", "alive"), True)
        is_state(w, name, "alive", 5)
    check("ds9" in weft(w, "ds", "kill", "ds9", want=1), True)
    ds.close()


def test_it_is_forgotten_with_what_only_it_has(w):
    x = Holder("lost", policy="mirrors=1")
    y = Holder("kept", policy="mirrors=2")
    while y.names[0] != x.names[0] and y.names[1] != x.names[0]:
        y = Holder(f"kept{time.monotonic_ns()}", policy="mirrors=2")
    for h in (x, y):
        h.give_back(h.o.stateid)
    name = x.names[0]
    weft(w, "ds", "kill", name)
    before = set(states(y.c, y.f))
    check("may still serve clients" in weft(w, "ds", "forget", "--force", name, want=1),
          True, "it has its lease")
    check(set(states(y.c, y.f)) | {"stale", "in-sync"} == before | {"stale", "in-sync"}, True,
          "a refusal loses nothing")
    eventually(lambda: "may still serve clients" not in weft(w, "ds", "forget", name, want=1), 60,
               "the end of its lease")
    text = weft(w, "ds", "forget", name, want=1)
    check("for 1 of them that is the only copy" in text and "--force" in text, True, text)
    check(state(w, name), "killed")
    check("in-sync" in states(y.c, y.f), True)
    got = weft(w, "ds", "forget", "--force", name)
    check((got["forgotten"], got["lost_files"], got["lost"]), (name, 1, ["/lost/f"]))
    check(sorted(states(y.c, y.f)), ["in-sync", "stale"])
    x.c.no("IO", putfh(x.f), read(x.s, 0, 100))
    x.c.no("IO", putfh(x.f), write(x.s, 0, b"gone", FILE_SYNC))
    x.c.no("IO", putfh(x.f), layoutget(x.s, IO_READ))
    check(content(y.c, y.f, y.s), b"x" * 5000)
    x.c.ok(putfh(x.d), remove("f"))
    eventually(lambda: w.metric("weft_mds_orders") == 0, 5, "no order is left for it")
    # Its daemon still runs, and joins as a new server.
    eventually(lambda: any(d["name"] == name and d["alive"] for d in weft(w, "ds", "list")["ds"]),
               5, "it joins anew")
    check(server(w, name)["number"], 5)
    w.restart()
    is_state(w, name, "alive", 5)
    check(len(weft(w, "ds", "list")["ds"]), 4)
    w.dev("down", w.dir)
    done = subprocess.run([os.path.join(BUILD, "weft-fsck"), "--json", os.path.join(w.dir, "mds")],
                          capture_output=True, text=True, timeout=60, check=False)
    check((done.returncode, json.loads(done.stdout)["violations"]), (0, []))
    w.dev("up", w.dir)


def test_what_is_on_one_that_is_gone_is_made_anew_while_nobody_looks(w):
    x = Holder("anew")
    x.give_back(x.o.stateid)
    name = x.names[0]
    w.dev("kill", w.dir, name, "-9")
    eventually(lambda: name not in servers(x.c, x.f) and set(states(x.c, x.f)) == {"in-sync"}, 20,
               "repair elsewhere")
    check(content(x.c, x.f, x.s), b"x" * 5000)
    weft(w, "ds", "kill", name)
    time.sleep(4)  # its lease
    check(weft(w, "ds", "forget", name)["files"], 0)
    check(name in {d["name"] for d in weft(w, "ds", "list")["ds"]}, False)


def test_servers_that_were_never_here_wait_where_they_must(w):
    rows = json.loads(w.dev("status", w.dir, "--json"))["daemons"]
    pid = next(r["pid"] for r in rows if r["name"] == "mds")
    with open(f"/proc/{pid}/cmdline", "rb") as f:
        words = [os.fsdecode(b) for b in f.read().split(b"\0")[:-1]]
    w.dev("kill", w.dir, "mds", "-9")
    words[0] = os.path.join(BUILD, "weft-mds")
    with subprocess.Popen([*words, "-o", "mds.admit=manual"], stderr=subprocess.DEVNULL) as child:
        try:
            admin = next(r["admin"] for r in rows if r["name"] == "mds")
            ask = lambda *a: json.loads(subprocess.run(
                [os.path.join(BUILD, "weft"), "--admin", admin, "--json", *a], capture_output=True,
                text=True, timeout=60, check=False).stdout or "{}")
            of = lambda name: next((d["state"] for d in ask("ds", "list").get("ds", [])
                                    if d["name"] == name), None)
            eventually(lambda: of("ds4") == "alive", 10, "those that are known join")
            ask("ds", "kill", "ds4")
            time.sleep(4.5)  # its lease
            check(ask("ds", "forget", "ds4")["files"], 0)
            eventually(lambda: of("ds4") == "waiting", 5, "a new one waits")
            time.sleep(1.5)
            check(of("ds4"), "waiting")
            ask("ds", "admit", "ds4")
            eventually(lambda: of("ds4") == "alive", 5, "it is admitted")
        finally:
            child.kill()
    w.dev("start", w.dir, "mds")


def settings(name):
    own = "while_nobody" in name or "never_here" in name or "cut_short" in name
    # In place, however slow the machine.
    in_place = "cut_short" in name or "who_copies" in name or "says_nothing" in name
    return [*QUICK, *(["mds.repair_wait=60s"] if in_place else []),
            *(["mds.repair_wait=1s"] if "waited_for_until" in name else []),
            # Time to ask before the lease is over.
            *(["ds.lease=20s"] if "forgotten" in name else []),
            *(["mds.io_error_after=6s"] if "configured" in name else []),
            *(["mds.repair_files=4"] if "while" in name else []), *(["ds.lease=4s"] if own else [])]


if __name__ == "__main__":
    run_apart(globals(), settings=settings)
