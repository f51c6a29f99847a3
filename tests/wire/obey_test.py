#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""A data server that lives but does not run its orders: no fence is over before its lease is. Its
drive hangs (a frozen file system). Prints TAP."""
import contextlib
import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../wirelib"))
import harness  # noqa: E402
import tap  # noqa: E402
from mounts import on_ext4, own_mounts, run, unmount  # noqa: E402
from harness import *  # noqa: E402,F403
from steps import data_server, settled  # noqa: E402
from nfs41 import err  # noqa: E402
from files import MB  # noqa: E402
from mirrored import Wide, servers, uuid_of  # noqa: E402
from tool import weft  # noqa: E402

ACCES = 13


@contextlib.contextmanager
def frozen(path):
    check(run("fsfreeze", "-f", path), True)
    try:
        yield
    finally:
        run("fsfreeze", "-u", path)


def on_both(name):
    """A mirrored file with a copy at ds1, and which of its mirrors that is."""
    deadline = time.monotonic() + 60
    for n in range(10000):
        try:
            x = Wide(f"{name}{n}", MB)
        except Failed as e:
            # On a slow machine a data server may be silent for longer than its lease of 3 s.
            if not re.search("NOSPC|DELAY", str(e)) or time.monotonic() > deadline:
                raise
            time.sleep(0.2)
            continue
        if "ds1" in servers(x.c, x.f):
            return (x, next(i for i, m in enumerate(x.o.mirrors)
                            if uuid_of(x.c, x.f, "ds1") == m[0].deviceid))
        x.give_back()
        check(time.monotonic() < deadline, True, "no file came to ds1")


def kept(w, iomode, change):
    """What ds1 answers to a client that keeps its layout, before the other client's change gets its
    answer and after it, and how long that took."""
    x, at = on_both(f"kept{iomode}-")
    ds1 = x.o.mirrors[at][0]
    if iomode == IO_RW:
        x.give_back()
    two = client()
    s, f = two.open(x.d, "f")
    o = settled(two, f, s, iomode)
    fh = next(m[0].fhs[0] for m in o.mirrors if m[0].deviceid == ds1.deviceid)
    ds = data_server(two, ds1)
    before = ds.read(fh, 0, 4096).status
    with frozen(os.path.join(w.dir, "ds1")):
        began = time.monotonic()
        change(x, ds1.deviceid)
        took = time.monotonic() - began
        after = ds.read(fh, 0, 4096).status
    ds.close()
    tap.say(f"READ {before}, after the change, which took {took:.1f} s, {after}")
    check((before, after), (0, ACCES))
    # It runs its orders again, and gets a new lease.
    eventually(lambda: w.metric("weft_mds_orders") == 0, 60, "orders")
    eventually(lambda: json.loads(weft(w, "--json", "ds", "list"))["ds"][0]["state"] == "alive", 60,
               "ds1 is alive")


def report(x, deviceid):
    x.c.ok(putfh(x.f), layouterror(x.o.stateid, [(deviceid, 5, NUM["WRITE"])]), timeout=90)


def cut(x, _):
    x.c.until(lambda got: err(got.status) != "DELAY", putfh(x.f), setattr_(x.s, size=0), tries=900)


def test_what_it_has_is_refused_before_others_are_answered(_):
    if not own_mounts():
        return "only root has mounts of its own"
    w = harness.THE = Cluster(ds=2, settings=CALM)
    if not on_ext4(w, "ds1"):
        return "no ext4 on a loop device here"
    kept(w, IO_READ, report)
    kept(w, IO_RW, cut)


@contextlib.contextmanager
def around(name):
    with harness.clients():
        yield (None,)


if __name__ == "__main__":
    try:
        tap.run(tap.named(globals()), around)
    finally:
        if harness.THE:
            harness.THE.dev("down", harness.THE.dir)
            unmount(os.path.join(harness.THE.dir, "ds1"))
            harness.THE.down()
