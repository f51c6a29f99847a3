#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Data servers with several volumes: files are spread, found, removed and cloned; a volume is
missing or fails. Prints TAP."""
import fcntl
import os
import shutil
import struct
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../wirelib"))
import harness  # noqa: E402
import tap  # noqa: E402
from mounts import EXT4_IOC_SHUTDOWN, NOLOGFLUSH, own_mounts, run, unmount  # noqa: E402
from harness import *  # noqa: E402,F403
from volumes import MOUNTS, Volumes, cluster, objects, put  # noqa: E402

MIB = 1 << 20


def number(c, f):
    return c.attrs(f, "fileid").fileid


def where(w, c, f):
    """Which volumes of ds1 have objects of the file."""
    return [i for i in range(1, Volumes.n + 1) if number(c, f) in objects(w.folder(i))]


def on_file_system(w, i, size, *mkfs):
    """A volume of ds1 moves to a file system of its own while ds1 is down. False: this machine
    mounts none."""
    folder, image = w.folder(i), os.path.join(w.top, f"image{i}")
    with open(image, "wb") as f:
        f.truncate(size)
    os.rename(folder, folder + ".old")
    os.mkdir(folder)
    if not run(*mkfs, image) or not run("mount", "-o", "loop", image, folder):
        return False
    MOUNTS.append(folder)
    if os.path.exists(folder + "/lost+found"):
        os.rmdir(folder + "/lost+found")
    shutil.copytree(folder + ".old", folder, dirs_exist_ok=True)
    return True


def test_files_are_spread_found_and_removed(_):
    w, c = cluster(3, 2)
    names = [f"f{i}" for i in range(90)]
    for n in names:
        put(c, c.root(), n, n.encode() * 5000)
    servers = [("ds1", i) for i in (1, 2, 3)] + [("ds2", i) for i in (1, 2, 3)]
    held = {v: objects(w.folder(v[1], v[0])) for v in servers}
    for i in (1, 2, 3):
        # 30 are expected, with a deviation of 4.5.
        check(len(held["ds1", i] | held["ds2", i]) >= 8, True, f"objects in volume {i}: {held}")
    check(sum(len(h) for h in held.values()), 90)
    check([w.volume("weft_ds_volume_failing", i) for i in (1, 2, 3)], [0] * 3)
    total, free = (w.volume("weft_ds_volume_bytes", 2, f',space="{what}"')
                   for what in ("total", "free"))
    check(0 < free < total, True)
    for name in ("ds1", "ds2"):
        w.restart(name)
    for n in names:
        s, f = c.open(c.root(), n)
        check(c.ok(putfh(f), read(s, 0, 1 << 16), timeout=60).data, n.encode() * 5000)
        c.ok(putfh(f), write(s, 5, b"more", FILE_SYNC), close(s))
    check({v: objects(w.folder(v[1], v[0])) for v in servers}, held, "objects of before and now")
    for n in names:
        c.ok(putfh(c.root()), remove(n))
    eventually(lambda: not any(objects(w.folder(i, s)) for s, i in servers), 10, "all objects gone")


def test_a_missing_volume_keeps_the_server_down(_):
    w, c = cluster(3, 1)
    files = [put(c, c.root(), f"f{i}", b"data" * 1000) for i in range(12)]
    held = [objects(w.folder(i)) for i in (1, 2, 3)]
    w.dev("kill", w.dir, "ds1", "-9")
    away = w.folder(2) + ".away"
    os.rename(w.folder(2), away)
    told = w.start_fails("ds1")
    check("is missing, it was in " + w.folder(2) in told, True, told)
    check("is its file system mounted?" in told, True, told)
    shutil.rmtree(w.folder(2))
    os.rename(away, w.folder(2))
    w.dev("start", w.dir, "ds1")
    for s, f in files:
        check(c.ok(putfh(f), read(s, 0, 4000), timeout=60).data, b"data" * 1000)
    check([objects(w.folder(i)) for i in (1, 2, 3)], held)


def test_a_volume_whose_disk_fails(_):
    """No client writes to it, and the server misses it all the same. The others go on, also
    with new files."""
    if not own_mounts():
        return "only root has mounts of its own"
    w, c = cluster(3, 1)
    files = {i: [] for i in (1, 2, 3)}
    w.dev("kill", w.dir, "ds1")
    if not on_file_system(w, 2, 64 << 30, "mkfs.ext4", "-q", "-T", "largefile4"):
        return "no ext4 on a loop device here"
    w.dev("start", w.dir, "ds1")
    capacity = lambda: json.loads(subprocess.run([os.path.join(BUILD, "weft"), "--admin",
                                                  "unix:" + w.dir + "/run/mds.sock", "--json", "ds",
                                                  "list"],
                                                 capture_output=True, text=True,
                                                 check=True).stdout)["ds"][0]["capacity"]
    before = capacity()
    n = 0
    while not files[2] or n < 12:
        s, f = put(c, c.root(), f"f{n}", b"data" * 1000)
        files[where(w, c, f)[0]].append((s, f))
        n += 1
    fd = os.open(w.folder(2), os.O_RDONLY)
    fcntl.ioctl(fd, EXT4_IOC_SHUTDOWN, struct.pack("I", NOLOGFLUSH))
    os.close(fd)
    eventually(lambda: w.volume("weft_ds_volume_failing", 2) == 1, 10, "it is missed")
    check((w.volume("weft_ds_volume_failing", 1), w.metric("weft_ds_store_failing", "ds1")), (0, 1))
    eventually(lambda: before - capacity() > 60 << 30, 5, "its room is not counted")
    for i in range(20):
        _, f = put(c, c.root(), f"new{i}", b"new" * 1000)
        check(2 in where(w, c, f), False, "a new file in the volume that fails")
    for s, f in files[1] + files[3]:
        c.ok(putfh(f), write(s, 0, b"DATA", FILE_SYNC))
        check(c.ok(putfh(f), read(s, 0, 4000)).data, b"DATA" + b"data" * 999)
    s, f = files[2][0]
    got = c.call(putfh(f), write(s, 0, b"DATA", FILE_SYNC), timeout=60)
    check(err(got.status) in ("IO", "DELAY"), True, err(got.status))
    # The volume is repaired, and the server started again.
    w.dev("kill", w.dir, "ds1")
    unmount(w.folder(2))
    # The device of the last mount lets go of the image a moment later.
    image = os.path.join(w.top, "image2")
    eventually(lambda: run("mount", "-o", "loop", image, w.folder(2)), what="its next mount")
    w.dev("start", w.dir, "ds1")
    check(w.metric("weft_ds_store_failing", "ds1"), 0)
    for s, f in files[2]:
        c.ok(putfh(f), write(s, 8, b"ATAD", FILE_SYNC), timeout=60)
        check(c.ok(putfh(f), read(s, 4, 8)).data, b"dataATAD")


def test_clones_stay_in_the_volume_of_their_source(_):
    if not own_mounts():
        return "only root has mounts of its own"
    w, c = cluster(2, 1)
    w.dev("kill", w.dir, "ds1")
    for i in (1, 2):
        if not on_file_system(w, i, 1 << 30, "mkfs.xfs", "-q", "-m", "reflink=1"):
            return "no XFS on a loop device here"
    w.dev("start", w.dir, "ds1")
    data = os.urandom(4 * MIB) + b"tail"
    d = c.mkdir(c.root(), "d")
    c.ok(putfh(d), setxattr("weft.policy", "stripes=1"))

    def src(name):
        s, f = c.open(d, name)
        for at in range(0, len(data), MIB):
            c.ok(putfh(f), write(s, at, data[at:at + MIB], FILE_SYNC))
        return s, f

    def clone_to(a, b, *args):
        c.ok(putfh(a[1]), savefh(), putfh(b[1]), clone(a[0], b[0], *args), timeout=60)

    def whole(b, n=len(data)):
        return b"".join(c.ok(putfh(b[1]), read(b[0], at, MIB)).data for at in range(0, n, MIB))
    free = lambda: sum(os.statvfs(w.folder(i)).f_bfree for i in (1, 2)) * 4096
    sources = [src(f"s{i}") for i in range(6)]
    before = free()
    for k, a in enumerate(sources):
        b = c.open(d, f"new{k}")
        clone_to(a, b)
        check((where(w, c, b[1]), whole(b) == data), (where(w, c, a[1]), True))
        # A file that was written and truncated to nothing: it is here or there.
        b = put(c, d, f"old{k}", b"old" * 10000)
        c.ok(putfh(b[1]), setattr_(b[0], size=0))
        clone_to(a, b)
        check((where(w, c, b[1]), whole(b) == data), (where(w, c, a[1]), True))
    w.restart("ds1")
    for k in range(6):
        check(whole(c.open(d, f"old{k}")) == data, True)
    subprocess.run(["sync"], check=True)
    check(before - free() < 8 * MIB, True, f"{before - free()} bytes more are used")
    # A clone over a part of a file: the file stays in its volume, and the bytes are right.
    apart = 0
    for k in range(12):
        a, b = sources[k % 6], put(c, d, f"part{k}", b"x" * MIB)
        was = where(w, c, b[1])
        clone_to(a, b, 0, 4096, 2 * MIB)
        apart += was != where(w, c, a[1])
        check((where(w, c, b[1]), whole(b, 2 * MIB + 4096) == b"x" * 4096 + data[:2 * MIB]),
              (was, True))
    check(apart > 0, True, "clones from one volume to another")


def after(_):
    for one in harness.CLIENTS:
        one.drop()
    harness.CLIENTS.clear()
    if harness.THE:
        harness.THE.down()
    harness.THE = None


if __name__ == "__main__":
    tap.main(globals(), lambda: True, after)
