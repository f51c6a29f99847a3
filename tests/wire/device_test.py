#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Device notifications (RFC 8881 section 20.12). Prints TAP.

A data server comes back at another address.
"""
import os
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../wirelib"))
import harness  # noqa: E402
from harness import *  # noqa: E402,F403
from steps import device, striped  # noqa: E402
from nfs41 import u32  # noqa: E402


def with_dir(c, name):
    c.d = c.mkdir(c.root(), name)
    return c


def moved(cluster, name, address):
    """The data server's process, started again with another address for clients."""
    rows = json.loads(cluster.dev("status", cluster.dir, "--json"))["daemons"]
    pid = next(r["pid"] for r in rows if r["name"] == name)
    with open(f"/proc/{pid}/cmdline", "rb") as f:
        words = [os.fsdecode(w) for w in f.read().split(b"\0")[:-1]]
    cluster.dev("kill", cluster.dir, name, "-9")
    words[0] = os.path.join(BUILD, "weft-ds")
    return subprocess.Popen([*words, "-o", f"ds.advertise={address}"], stderr=subprocess.DEVNULL)


def test_clients_that_asked_are_told_of_a_device_that_changes(cluster):
    asked, silent = with_dir(client(), "a"), with_dir(client(), "s")
    s, f, o = striped(asked, asked.d, "stripes=4")
    ids = [x.deviceid for x in o.mirrors[0]]
    for i in ids:
        asked.ok(getdeviceinfo(i, notify=(1, 2)))
        silent.ok(getdeviceinfo(i, notify=()))
    before = {i: device(asked, i).addrs for i in ids}
    child = moved(cluster, "ds1", "127.0.0.77:12345")
    try:
        told = asked.wait_callback("NOTIFY_DEVICEID")
        check(len(told.changes), 1, "changes in one callback")
        mask, value = told.changes[0]
        check(mask, {1}, "NOTIFY_DEVICEID4_CHANGE")
        gone = [i for i in ids if value == u32(FLEX) + i + u32(1)]
        check(len(gone), 1, "layout type, the device, immediate")
        eventually(lambda: device(asked, gone[0]).addrs != before[gone[0]], what="its address")
        check(device(asked, gone[0]).addrs, [("tcp", "127.0.0.77.48.57")])
        for i in ids:
            if i != gone[0]:
                check(device(asked, i).addrs, before[i], "another device")
        time.sleep(0.2)
        check((asked.callbacks, silent.callbacks), ([], []), "more callbacks")
    finally:
        child.kill()
        child.wait()


def test_a_data_server_that_comes_back_as_it_was_is_no_news(cluster):
    c = with_dir(client(), "b")
    s, f, o = striped(c, c.d, "stripes=3")
    for x in o.mirrors[0]:
        c.ok(getdeviceinfo(x.deviceid, notify=(1, 2)))
    cluster.restart("ds2")
    time.sleep(0.5)
    check(c.callbacks, [])


if __name__ == "__main__":
    # A server that is started again is not dead meanwhile, however long that takes.
    harness.run_shared(globals(), settings=[*CALM, "ds.lease=60s", "mds.ds_refused=60s",
                                             "mds.ds_dead=60s"])
