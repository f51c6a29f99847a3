#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""A data server whose disk has no byte left starts, and deletions make room. Prints TAP."""
import contextlib
import os
import re
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../wirelib"))
import harness  # noqa: E402
import tap  # noqa: E402
from mounts import on_ext4, own_mounts, unmount  # noqa: E402
from harness import *  # noqa: E402,F403
from steps import one_server  # noqa: E402
from nfs41 import close, remove  # noqa: E402

MIB = 1 << 20
NOSPC = 28  # NFS3ERR_NOSPC


def here(w, *names):
    return os.path.join(w.dir, "ds1", *names)


def fill(w):
    """Fills the disk to the last block, behind the daemon's back."""
    def free():
        v = os.statvfs(here(w))
        return v.f_bavail * v.f_frsize

    def full():
        # Blocks of files that were removed come back when the file system's journal commits.
        with open(here(w, "ballast"), "ab", buffering=0) as f:
            for size in (MIB, 4096):
                with contextlib.suppress(OSError):
                    while True:
                        f.write(bytes(size))
            os.fsync(f.fileno())
        subprocess.run(["sync", "-f", here(w)], check=True)
        return free() == 0
    eventually(full, 60, "the disk is full")


def said(w):
    with open(os.path.join(w.dir, "log", "ds1.log"), encoding="utf-8") as f:
        return f.read()


def write_on(ds, fh, off, length):
    for i in range(off, off + length, MIB):
        got = ds.write(fh, i, bytes(MIB)).status
        if got:
            return got
    return 0


def new_file(c, name):
    s, f, _, ds, fh = one_server(c, c.root(), name)
    return s, f, ds, fh


def made(c, *names):
    for name in names:
        s, f, ds, fh = new_file(c, name)
        check(write_on(ds, fh, 0, 32 * MIB), 0)
        ds.close()
        c.ok(putfh(f), close(s))  # an open file stays when its name goes


def start_with_a_full_disk(w, c, name):
    """Killed, filled, started: the server joins, and a file's deletion makes room for another."""
    w.dev("kill", w.dir, "ds1", "-9")
    fill(w)
    w.dev("start", w.dir, "ds1")
    eventually(lambda: w.metric("weft_ds_joined", "ds1") == 1, 60, "the full data server joins")
    s, f, ds, fh = new_file(c, f"{name}.new")
    eventually(lambda: write_on(ds, fh, 0, MIB) == NOSPC, 60, "it is full")
    c.ok(putfh(c.root()), remove(name))
    eventually(lambda: write_on(ds, fh, 0, 8 * MIB) == 0, 60, "there is room for a write")
    ds.close()


def test_full_to_the_last_byte_it_starts_and_a_delete_makes_room(_):
    if not own_mounts():
        return "only root has mounts of its own"
    w = harness.THE = Cluster(ds=1, settings=[*CALM, "ds.lease=20s"])
    if not on_ext4(w, "ds1", 192 * MIB):
        return "no ext4 on a loop device here"
    w.dev("kill", w.dir, "ds1", "-9")
    os.unlink(here(w, "reserve"))  # it came along, and is as large as the other disk wants it
    w.dev("start", w.dir, "ds1")
    c = client()
    made(c, "a", "b")
    kept = os.stat(here(w, "reserve")).st_size
    check(1 * MIB < kept <= 16 * MIB, True, f"the reserve: {kept}")
    start_with_a_full_disk(w, c, "a")
    check(os.stat(here(w, "reserve")).st_size < kept, True, "some of the reserve was given up")
    check("KiB of the reserve are left" in said(w), True)
    # With room the server makes it whole, without a restart.
    os.unlink(here(w, "ballast"))
    eventually(lambda: os.stat(here(w, "reserve")).st_size == kept, 60,
               "the reserve is whole again")
    return None


def test_one_without_a_reserve_starts_as_well(_):
    w = harness.THE
    if not w or not os.path.exists(here(w, "reserve")):
        return "no ext4 on a loop device here"
    w.dev("kill", w.dir, "ds1", "-9")
    os.unlink(here(w, "reserve"))
    start_with_a_full_disk(w, client(), "b")
    check("the journal continues in its last block" in said(w), True)
    return None


def test_a_full_disk_is_called_that(_):
    w = harness.THE
    if not w or not os.path.exists(here(w, "identity")):
        return "no ext4 on a loop device here"
    w.dev("kill", w.dir, "ds1", "-9")
    for name in os.listdir(here(w, "journal")):
        os.unlink(here(w, "journal", name))
    with contextlib.suppress(FileNotFoundError):
        os.unlink(here(w, "reserve"))
    fill(w)
    try:
        w.dev("start", w.dir, "ds1")
        raise AssertionError("it started without room for its journal")
    except Exception as e:
        check(re.search(r"/journal: no room for one record \(No space left on device\): free some "
                        r"space", str(e) + said(w)) is not None, True, f"{e}")


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
