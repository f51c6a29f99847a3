#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""What stops no trash and no start: damaged rows, a kill in the middle of a job, a data server that
is nearly full. Prints TAP.

Every test has a cluster of its own.
"""
import json
import os
import struct
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../wirelib"))
import harness  # noqa: E402
from mounts import own_mounts, run  # noqa: E402
from harness import *  # noqa: E402,F403
from jobs import api, ended  # noqa: E402
from rows import rows_of  # noqa: E402
from steps import one_server  # noqa: E402
from tool import fsck, log_of, weft  # noqa: E402
from nfs41 import close, remove, rename, savefh  # noqa: E402

ENTRY, EXPIRY, PLACE, ASIDE, JOB = b"R\1", b"R\2", b"R\3", b"R\5", b"J"
MB = 1 << 20


def kept(w, name="d", policy="trash=7d"):
    c = client(fore={"ops": 64})
    d = c.mkdir(c.root(), name)
    weft(w, "policy", "set", f"/{name}", policy)
    return c, d


def trash(w, path="/"):
    return api(w, "GET", f"/v1/trash?path={path}&limit=10000")


def names(w, path="/"):
    return sorted(e["name"] for e in trash(w, path)["entries"])


def removed(c, d, *files):
    for name in files:
        s, f = c.open(d, name)
        c.ok(putfh(f), write(s, 0, name.encode(), FILE_SYNC))
        c.ok(putfh(f), close(s))
        c.ok(putfh(d), remove(name))


def events(w, kind):
    lines = weft(w, "--json", "events", "--kind", kind, "--last", "100").splitlines()
    return json.loads("[" + ",".join(lines) + "]")


def damaged(w):
    """The texts of the events."""
    return [e["text"] for e in events(w, "trash-damaged")]


def stopped(w):
    w.dev("kill", w.dir, "mds")
    return rows_of(os.path.join(w.dir, "mds"))


def job_row(number, version=1):
    """The job that empties all of the trash."""
    return (JOB + struct.pack(">Q", number),
            struct.pack("<BBB4Q4Q3Q", version, 2, 0, number, 1, 0, 1 << 63, 0, 0, 0, 0, 0, 0, 0))


def test_a_damaged_entry_stops_neither_a_job_nor_the_list(w):
    c, d = kept(w)
    removed(c, d, "a", "b", "c")
    with stopped(w) as r:
        key, data = next((k, v) for k, v in r.all(ENTRY) if v.endswith(b"b"))
        r.put(key, b"\x09" + data[1:])
    w.dev("start", w.dir, "mds")
    ino = struct.unpack(">Q", key[-8:])[0]
    check((names(w), damaged(w)), (["a", "c"], []))
    got = ended(w, api(w, "DELETE", "/v1/trash?path=/d")["job"])
    check((got["state"], got["done_files"], f"inode {ino}" in got["error"]), ("failed", 2, True),
          got)
    check((names(w), [f"inode {ino}" in t for t in damaged(w)]), ([], [True]))
    check(f"inode {ino} is damaged" in log_of(w), True)
    # It is set aside: the next job, and the next start, do not meet it.
    w.restart()
    got = ended(w, api(w, "DELETE", "/v1/trash?path=/d")["job"])
    check((got["state"], len(damaged(w))), ("done", 1), got)
    with stopped(w) as r:
        check([k[2:] for k, _ in r.all(ASIDE)], [key[1:]])
        check(len(r.all(b"i" + struct.pack(">Q", ino))), 1, "the inode stays")


def test_a_damaged_entry_does_not_keep_others_from_expiring(w):
    c, d = kept(w, policy="trash=1h")
    removed(c, d, "a", "b", "c")
    with stopped(w) as r:
        for key, data in r.all(ENTRY):
            # All of them have expired, and those of a and b cannot be read.
            r.put(key, (b"\x09" if data[31:] in (b"a", b"b") else data[:1]) + data[1:23]
                  + struct.pack("<Q", 1) + data[31:])
        for n, (key, data) in enumerate(r.all(EXPIRY)):
            r.delete(key)
            r.put(EXPIRY + struct.pack(">Q", 1) + key[10:], data)
        # And one leads to nothing.
        r.put(EXPIRY + struct.pack(">QQ", 1, 987654), b"\1")
    w.dev("start", w.dir, "mds")
    eventually(lambda: not trash(w)["entries"] and len(damaged(w)) == 3, 60, "the end of all")
    check(sum("inode 987654 " in t for t in damaged(w)), 1)
    with stopped(w) as r:
        check((len(r.all(ENTRY)), len(r.all(EXPIRY)), len(r.all(PLACE))), (0, 0, 2))
    w.dev("start", w.dir, "mds")
    removed(c := client(), c.ok(putrootfh(), lookup("d"), getfh()).fh, "e")
    check((names(w), len(damaged(w))), (["e"], 3))


def found(w):
    """What weft-fsck says of the store of a server that is stopped."""
    done = subprocess.run([os.path.join(BUILD, "weft-fsck"), "--json", os.path.join(w.dir, "mds")],
                          capture_output=True, text=True, timeout=60, check=False)
    return [str(v) for v in json.loads(done.stdout)["violations"]]


def test_rows_of_jobs_stop_no_start(w):
    c, d = kept(w)
    removed(c, d, "a")
    with stopped(w) as r:
        for n in range(20):
            r.put(*job_row(1000 + n))
            r.put(*job_row(2000 + n, version=7))
        r.put(JOB + b"short", b"")
    check([sum("jobs about the trash" in v for v in found(w)), len(found(w))], [21, 21])
    w.dev("start", w.dir, "mds")
    eventually(lambda: not names(w), 60, "the first job")
    jobs = lambda: api(w, "GET", "/v1/jobs?kind=trash-empty")["jobs"]  # noqa: E731
    eventually(lambda: not jobs(), 60, "the end of all jobs")
    check((len(damaged(w)), sum("asked for at 20" in t for t in damaged(w))), (21, 20))
    with stopped(w) as r:
        left = r.all(JOB)
        check((len(left), {k[1] for k, _ in left}), (21, {0xff}))
    w.dev("start", w.dir, "mds")
    check((len(damaged(w)), jobs()), (21, []))
    fsck(w)


def many(c, d, count):
    for n in range(0, count, 30):
        c.ok(*[o for k in range(n, min(n + 30, count))
               for o in (putfh(d), create(LNK, f"l{k}", "to"))])


def cut(c, d, count):
    for n in range(0, count, 60):
        c.ok(putfh(d), *[remove(f"l{k}") for k in range(n, min(n + 60, count))])


def killed_in_the_middle(w, target, method, count, left):
    """The job, begun and killed before it was over. left: how many it has not done yet."""
    job = api(w, method, target)["job"]
    seen = count
    while seen == count:
        seen = left()
    w.dev("kill", w.dir, "mds", "-9")
    check(0 < seen < count, True, f"{seen} of {count} were left at the kill")
    w.dev("start", w.dir, "mds")
    got = ended(w, job)
    check(got["state"], "done", got)
    return got


def test_a_job_goes_on_after_a_kill(w):
    count = 10000
    c, d = kept(w)
    many(c, d, count)
    cut(c, d, count)
    total = lambda: api(w, "GET", "/v1/trash?limit=1")["total_entries"]  # noqa: E731
    check(total(), count)
    killed_in_the_middle(w, "/v1/trash/restore?path=/d&recursive=1", "PUT", count, total)
    c = client(fore={"ops": 64})
    check((total(), len({e.name for e in c.readdir_all(d)})), (0, count))
    fsck(w)
    cut(c, d, count)
    got = killed_in_the_middle(w, "/v1/trash?path=/d", "DELETE", count, total)
    check((total(), got["done_files"]), (0, count))
    check(client().readdir_all(d), [])
    fsck(w)


def test_of_many_versions_the_newest_comes_back(w):
    c, d = kept(w)
    for n in range(0, 300, 15):
        c.ok(*[o for k in range(n, n + 15)
               for o in (putfh(d), create(LNK, "f", f"v{k}"), putfh(d), remove("f"))])
    for want in (b"v299", b"v298"):
        got = ended(w, api(w, "PUT", "/v1/trash/restore?path=/d&recursive=1")["job"])
        check((got["state"], got["done_files"]), ("done", 1), got)
        check(c.ok(putfh(d), lookup("f"), readlink()).link, want)
        c.ok(putfh(d), savefh(), rename("f", "kept" + want.decode()))


def test_a_data_server_that_is_nearly_full_loses_the_oldest_first(w):
    small = os.path.join(w.dir, "ds1")
    if not own_mounts():
        return "only root has mounts of its own"
    w.dev("kill", w.dir, "ds1", "-9")
    os.rename(small, small + ".was")
    os.mkdir(small)
    if not run("mount", "-t", "tmpfs", "-o", "size=256M", "small", small):
        return "no tmpfs can be mounted here"
    try:
        check(run("cp", "-a", small + ".was/.", small), True)
        os.truncate(os.path.join(small, "reserve"), 0)
        w.dev("start", w.dir, "ds1")
        return goes_by_age(w, small)
    finally:
        w.dev("down", w.dir)
        subprocess.run(["umount", "-l", small], check=False)


def goes_by_age(w, small):
    c, d = kept(w)
    for k in range(8):
        s, f, o, ds, fh = one_server(c, d, f"f{k}")
        for at in range(8):
            eventually(lambda: ds.write(fh, at * MB, bytes(MB)).status == 0, 60, "room")
        c.ok(putfh(f), layoutcommit(o.stateid, 8 * MB - 1))
        c.ok(putfh(f), layoutreturn(o.stateid), close(s))
        c.ok(putfh(d), remove(f"f{k}"))
    check(len(names(w)), 8)
    v = os.statvfs(small)
    with open(os.path.join(small, "ballast"), "wb") as f:
        os.posix_fallocate(f.fileno(), 0,
                           v.f_bavail * v.f_frsize - v.f_blocks * v.f_frsize * 4 // 100)
    eventually(lambda: events(w, "trash-emptied"), 60, "the event")
    left = names(w)
    check((0 < len(left) < 8, left), (True, [f"f{k}" for k in range(8 - len(left), 8)]))
    v = os.statvfs(small)
    eventually(lambda: os.statvfs(small).f_bavail > v.f_blocks * 5 // 100, 60, "room")
    check(names(w), left)
    fsck(w)


if __name__ == "__main__":
    harness.run_apart(globals(), ds=1,
                      settings=["mds.lease=60s", "mds.sync=false", "mds.grace=1s"])
