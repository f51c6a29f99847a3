#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""What a file that two write is copied from: other stripes, COPY and CLONE take the bytes that its
readers have, and not another copy's (docs/mirrors.md, "Two writers"). Prints TAP."""
import http.client
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from contextlib import ExitStack

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../wirelib"))
import mounts  # noqa: E402
from harness import *  # noqa: E402,F403
from nfs41 import clone, copy, err  # noqa: E402
from tool import weft  # noqa: E402
from files import MB  # noqa: E402
from mirrored import (BLOCK, compared, contended, cross, crossed_writers, equal, made,  # noqa: E402
                      servers, stopped, through, two_writers, whole)
from jobs import restriping  # noqa: E402

XFS = None  # a folder on it
WANT = b"b" * BLOCK + b"0" * (3 * BLOCK)  # the first copy's; the other begins with a


def settings(name):
    """A server that stands still is neither suspect nor dead, and its lease is not over."""
    if "verified" in name:
        return ["mds.lease=60s", "mds.repair_files=4", "mds.repair_rate=512K"]
    quiet = ["mds.ds_suspect=100s", "mds.ds_dead=300s", "ds.lease=60s"]
    return ["mds.lease=60s", *quiet, "mds.repair_files=4", "mds.recall_deadline=20s",
            "mds.repair_wait=300s"]


def ended(w, path):
    eventually(lambda: restriping(w, path) is None, 100, "other stripes")


def bytes_in(c, f):
    """A repair or a comparison may put a READ off."""
    got = c.until(lambda got: err(got.status) != "DELAY", putfh(f), read(ANON, 0, 4 * BLOCK))
    check(err(got.status), "OK")
    return got.results[-1].data


def differed(w):
    """How often a comparison found that the copies of two writers differ."""
    with open(f"{w.dir}/log/mds.log", encoding="utf-8") as log:
        return log.read().count("copies that two clients wrote at the same time differed")


def test_other_stripes_are_made_of_what_readers_have(w):
    f, a, b, (one, _) = crossed_writers(w, "other")
    c, before = client(), differed(w)
    check(through(c, f), b"b")
    with stopped(w, one):
        weft(w, "move", "/other/f", "--stripes", "2")
        # It looks for sources while the first copy's server says nothing.
        eventually(lambda: restriping(w, "/other/f")["step"] not in ("waits", "watch")
                   or restriping(w, "/other/f")["restarts"], 60, "a look")
    ended(w, "/other/f")
    check(through(c, f), b"b")
    a.give_back()
    b.give_back()
    # That may be over by now: nobody has the file to write since the move took the layouts back.
    compared(w, c, f)
    check(differed(w), before, "the new copies differ, or the old ones were compared before")
    check(bytes_in(c, f) == WANT, True)


def test_two_begin_to_write_while_other_stripes_are_made(w):
    f, c = made("amid"), client()
    one, two = servers(c, f)
    rest = [s for s in ("ds1", "ds2", "ds3", "ds4") if s not in (one, two)]
    with ExitStack() as still:
        for s in rest:
            still.enter_context(stopped(w, s))
        with stopped(w, one):
            weft(w, "move", "/amid/f", "--stripes", "2")
            eventually(lambda: restriping(w, "/amid/f")["step"] == "copy", 60,
                       "a copy from the second")
        # The servers of the new objects take nothing yet.
        a, b = two_writers(f)
        cross(w, f, a, b)
        check((through(c, f), restriping(w, "/amid/f") is not None), (b"b", True))
    ended(w, "/amid/f")
    check(through(c, f), b"b")
    a.give_back()
    b.give_back()
    compared(w, c, f)
    check(bytes_in(c, f) == WANT, True)


def other(c, name, policy):
    """Another file: (stateid, handle)."""
    d = c.mkdir(c.root(), name)
    c.ok(putfh(d), setxattr("weft.policy", policy))
    return c.open(d, "g")


def taken(c, op, f, s, to):
    """The operation that takes all of a file to another. XDEV: the source was compared, and its
    second copy is being repaired."""
    got = c.until(lambda got: err(got.status) not in ("DELAY", "XDEV"), putfh(f), savefh(),
                  putfh(to[1]), op(s, to[0]), tries=400)
    check(err(got.status), "OK")


def opened(c, f):
    got = c.until(lambda got: err(got.status) != "DELAY", putfh(f),
                  open_(claim_fh(), BOTH | NO_DELEG), tries=400)
    return got.results[-1].stateid


def test_a_copy_takes_what_readers_have(w):
    f, _, _, (_, two) = crossed_writers(w, "copied")
    c = client()
    s = opened(c, f)
    beside = 0
    # The server of the second copy would copy it, if it were a copy to read.
    for n in range(60):
        to = other(c, f"to{n}", "mirrors=1")
        if servers(c, to[1]) != [two]:
            continue
        beside += 1
        taken(c, copy, f, s, to)
        check(bytes_in(c, to[1]) == WANT, True, "what was copied")
        if beside == 2:
            break
    check(beside, 2, "copies on the server of the second")


def test_a_clone_takes_what_readers_have(w):
    if not XFS:
        return "needs root, loop devices and mkfs.xfs"
    f, _, _, _ = crossed_writers(w, "cloned")
    c = client()
    s = opened(c, f)
    placed_again, beside = other(c, "again", "stripes=2"), other(c, "beside", "mirrors=2")
    for _ in range(2):  # to an empty file, and over what is there
        for to in (placed_again, beside):
            taken(c, clone, f, s, to)
            check(bytes_in(c, to[1]) == WANT, True,
                  "what was cloned")
            eventually(lambda to=to: whole(c, to[1]), 60, "a repair")
            equal(w, c, to[1], WANT)
    # Within the file each copy has its own, as before.
    ops = putfh(f), savefh(), putfh(f), clone(s, s, 0, 2 * BLOCK, BLOCK)
    check(err(c.until(lambda got: err(got.status) != "DELAY", *ops, tries=400).status), "OK")
    want = (b"b" * BLOCK + b"0" * BLOCK) * 2
    check(bytes_in(c, f) == want, True)
    eventually(lambda: contended(w) == 0 and whole(c, f), 60, "a comparison")
    equal(w, c, f)
    return None


def verify(w, method, path):
    """The API's answer."""
    conn = http.client.HTTPConnection("mds")
    conn.sock = socket.socket(socket.AF_UNIX)
    conn.sock.connect(w.where["mds"].removeprefix("unix:"))
    conn.request(method, f"/v1/verify?path={path}" if method == "PUT" else "/v1/verify")
    with conn.getresponse() as reply:
        check(reply.status in (200, 202), True, reply.status)
        return json.loads(reply.read())


def laid_out_anew_amid(w, name, size):
    """A comparison's answer, if the file got another layout meanwhile; None: it was over before."""
    c = client()
    d = c.mkdir(c.root(), name)
    c.ok(putfh(d), setxattr("weft.policy", "mirrors=2"))
    s, f = c.open(d, "f")
    for off in range(0, size, MB):
        c.ok(putfh(f), write(s, off, os.urandom(MB), FILE_SYNC))
    verify(w, "PUT", f"/{name}/f")
    # The verification waits for what it has summed, at the rate of repairs. Nothing is
    # left to copy.
    eventually(lambda: verify(w, "GET", "")["bytes"], 60, "the first sums")
    c.until(lambda got: err(got.status) != "DELAY", putfh(f), setattr_(s, size=0), tries=400)
    weft(w, "move", f"/{name}/f", "--stripes", "2")
    ended(w, f"/{name}/f")
    amid = verify(w, "GET", "")["running"]
    eventually(lambda: not verify(w, "GET", "")["running"], 100, "its end")
    return verify(w, "GET", "") if amid else None


def test_what_was_laid_out_anew_amid_is_not_told_to_be_verified(w):
    """The new copies were not compared. The end of the mark has them compared again."""
    got = next(filter(None, (laid_out_anew_amid(w, f"anew{n}", n * MB) for n in (2, 4, 8, 16))), {})
    check((got.get("files"), got.get("skipped"), got.get("different")), (0, 1, 0))


if __name__ == "__main__":
    XFS = mounts.mounted()
    if XFS:
        tempfile.tempdir = XFS
    try:
        run_apart(globals(), settings=settings)
    finally:
        if XFS:
            subprocess.run(["umount", "-l", XFS], check=True)  # a daemon may be ending yet
            shutil.rmtree(os.path.dirname(XFS))
