#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""A data server whose disk fails says so and gets no new files. Prints TAP."""
import contextlib
import fcntl
import os
import struct
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../wirelib"))
import harness  # noqa: E402
import tap  # noqa: E402
from harness import *  # noqa: E402,F403
from steps import one_server  # noqa: E402
from files import holder  # noqa: E402
from tool import server  # noqa: E402
from mounts import EXT4_IOC_SHUTDOWN, NOLOGFLUSH, on_ext4, own_mounts, unmount  # noqa: E402

MIB = 1 << 20
def test_a_store_that_fails_is_taken_out(_):
    if not own_mounts():
        return "only root has mounts of its own"
    w = harness.THE = Cluster(ds=2, settings=CALM)
    if not on_ext4(w, "ds1"):
        return "no ext4 on a loop device here"
    c, until = client(), time.monotonic() + 60
    n = 0
    while True:
        s, f, _, ds, fh = one_server(c, c.root(), f"f{n}")
        if holder(c, f) == "ds1":
            break
        n += 1
        check(time.monotonic() < until, True, "no file came to ds1")
    check(ds.write(fh, 0, bytes(MIB)).status, 0)
    check(w.metric("weft_ds_store_failing", "ds1"), 0)
    fd = os.open(os.path.join(w.dir, "ds1"), os.O_RDONLY)
    fcntl.ioctl(fd, EXT4_IOC_SHUTDOWN, struct.pack("I", NOLOGFLUSH))
    os.close(fd)
    # One error, or none: the server misses a disk all the same that it uses seldom.
    check(ds.write(fh, 0, bytes(MIB)).status, 5)
    eventually(lambda: w.metric("weft_ds_store_failing", "ds1") == 1, 10,
               "the failing store is missed")
    check(0 < w.metric("weft_ds_disk_errors_total", "ds1") < 8, True)
    check([ds.write(fh, i * MIB, bytes(MIB)).status for i in range(8)], [5] * 8)
    eventually(lambda: server(w, "ds1")["available"] == 0, what="a heartbeat that says so")
    where = [holder(c, c.open(c.root(), f"new{i}")[1]) for i in range(16)]
    check(where, ["ds2"] * 16)
    ds.close()


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
