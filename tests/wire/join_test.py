#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""A data server that cannot join says why, on both sides. Prints TAP.

It accepts no folder that is not its own.
"""
import contextlib
import os
import re
import socket
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../wirelib"))
import harness  # noqa: E402
import tap  # noqa: E402
from harness import *  # noqa: E402,F403
from beside import Server, mds_said  # noqa: E402
from tool import weft_json as weft  # noqa: E402


def once_a(seconds, text, said, began):
    """The daemon says it with restraint."""
    n = len(re.findall(text, said))
    check(1 <= n <= 1 + (time.monotonic() - began) // seconds, True, f"{n} times: {said}")


def test_why_it_does_not_join_is_told_on_both_sides(w):
    other = os.path.join(w.top, "other.key")
    with open(other, "w", encoding="ascii") as f:
        f.write("7" * 64 + "\n")
    os.chmod(other, 0o600)
    mds = f"127.0.0.1:{ADDR[1]}"
    cases = [
        (Server(w, "away", mds="127.0.0.1:13999"),
         "127.0.0.1:13999: no connection: Connection refused", None),
        (Server(w, "key", cluster_key=other),
         f"{mds}: it closed the connection instead of answering the join request: "
         "another cluster key?",
         r"control: 127\.0\.0\.1:\d+: cannot decrypt a message: another cluster key\?"),
        (Server(w, "wrong", mds="127.0.0.1:12050"), "127.0.0.1:12050: the handshake failed (",
         None),
        (Server(w, "ds1"),
         f"{mds}: another data server has this server's name: choose another one (ds.name)",
         r"refused data server ds1 at 127\.0\.0\.1:\d+: another data server has that name"),
    ]
    try:
        for s, why, there in cases:
            s.says(f"WARN weft-ds: not joined to the MDS at {why}")
            got = s.health()
            check((got["ok"], got["joined"]), (True, False))
            check(why.partition(": ")[2] in got["why"], True, got)
            if there:
                eventually(lambda there=there: re.search(there, mds_said(w)), 60, there)
            once_a(60, "not joined", s.said(), s.began)
        once_a(30, "cannot decrypt", mds_said(w), cases[0][0].began)
        check([d["name"] for d in weft(w, "ds", "list")["ds"]], ["ds1"])
    finally:
        for s, _, _ in cases:
            s.end()


def test_one_that_says_nothing_is_told_of_before_it_is_given_up(w):
    """The server's own timers decide, and no load changes their order. The first line is that of
    2.5 s, and not that of the handshake's end, 5 s after the connection."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        s = Server(w, "silent", mds=f"127.0.0.1:{silent.getsockname()[1]}")
        try:
            s.says("not joined to the MDS at")
            s.says("retrying")
            first = [line for line in s.said().splitlines() if "not joined" in line][0]
            check(first.endswith(": no answer yet; retrying"), True, s.said())
        finally:
            s.end()


def test_one_that_is_not_admitted_is_told_of_and_one_that_joins_has_no_reason(w):
    s = Server(w, "fresh")
    try:
        s.says("joined as data server")
        eventually(lambda: s.health()["joined"], 60, "it has joined")
        weft(w, "ds", "kill", "fresh")
        s.says("an administrator must admit this server (weft ds admit); "
                   "until then it serves nothing")
        check("admit" in s.health()["why"], True)
        there = r"refused data server fresh at 127\.0\.0\.1:\d+: it was killed"
        eventually(lambda: re.search(there, mds_said(w)), 60, "the other side")
        weft(w, "ds", "admit", "fresh")
        eventually(lambda: s.health()["joined"], 60, "it joins")
    finally:
        s.end()


def test_one_that_has_to_wait_says_so_when_it_lasts(w):
    """A metadata server that has just started hears first from a server that it knows."""
    w.dev("kill", w.dir, "ds1")
    w.dev("kill", w.dir, "mds")
    starts = threading.Thread(target=lambda: w.dev("start", w.dir, "mds"))
    starts.start()
    s = Server(w, "waits")
    try:
        s.says("it accepts no join yet")
        check("it accepts no join yet" in s.health()["why"], True)
        first = [line for line in s.said().splitlines() if "not joined" in line][0]
        check("it refused" in s.said(), False, first)
        w.dev("start", w.dir, "ds1")
        s.says("joined as data server")
        eventually(lambda: s.health()["joined"], 60, "it has joined")
    finally:
        s.end()
        starts.join()


def test_a_name_that_is_taken_is_refused_of_a_server_that_is_known_as_well(w):
    s = Server(w, "before")
    try:
        s.says("joined as data server")
    finally:
        s.end()
    s = Server(w, "ds1", store=os.path.join(s.top, "store"))
    try:
        s.says("another data server has this server's name")
    finally:
        s.end()


def test_a_folder_that_is_not_its_own_is_left_alone(w):
    mine = os.path.join(w.top, "mine")
    os.mkdir(mine)
    with open(os.path.join(mine, "thesis.tex"), "w", encoding="ascii"):
        pass
    for folder, why in ((os.path.join(w.dir, "mds"), "is the metadata store of a weft-mds"),
                        (mine, "is not empty (thesis.tex)")):
        before = sorted(os.listdir(folder))
        s = Server(w, "thief", store=folder)
        try:
            check(s.child.wait(60) != 0, True)
            check(f"{folder} " in s.said() and why in s.said(), True, s.said())
        finally:
            s.end()
        check(sorted(os.listdir(folder)), before, "nothing is written there")
    empty = os.path.join(w.top, "disk")
    os.makedirs(os.path.join(empty, "lost+found"))
    s = Server(w, "third", store=empty)
    try:
        s.says("joined as data server")
    finally:
        s.end()


@contextlib.contextmanager
def around(name):
    with harness.clients():
        yield (harness.THE,)


if __name__ == "__main__":
    harness.THE = Cluster(ds=1, settings=[*CALM, "ds.lease=20s"])
    try:
        tap.run(tap.named(globals()), around)
    finally:
        harness.THE.down()
