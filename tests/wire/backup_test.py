#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Backups of the metadata store (docs/backup.md): full and incremental ones beside a running
server, damage, gaps, and restoring into an empty folder. Prints TAP."""
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../wirelib"))
from harness import *  # noqa: E402,F403
from backups import MINE, WEFT, graceless, health, put, run, serving, some_files, \
    start_restored, stop, store, walk, writing  # noqa: E402
from tool import fsck, weft_json  # noqa: E402


def folder(w):
    return os.path.join(w.top, "backup")


def backup(w, *args, rc=0):
    return run("backup", "--store", store(w), *args, folder(w), rc=rc)


def files(w):
    return sorted(n for n in os.listdir(folder(w)) if n.endswith(".weft"))


def restored(w, *args, **how):
    """Puts the backup back into an empty folder and starts the server."""
    said = run("restore", "--store", store(w), *args, **how)
    check("--restored" in said, True, said)
    start_restored(w)
    check(os.path.exists(os.path.join(store(w), "restored")), False, "the mark goes")
    w.dev("start", w.dir, "mds")
    serving(w)
    fsck(w)
    graceless(w)


def test_everything_comes_back(w):
    c = client()
    d = c.mkdir(c.root(), "d", attrs={"mode": 0o777})
    some_files(c, d, 0, 10)
    with writing(w):
        said = backup(w)
    check("full backup" in said, True, said)
    sub = c.mkdir(d, "sub")
    some_files(c, sub, 10, 5)
    # What only the log has is in the archive after the recovery.
    stop(w, "-9")
    w.dev("start", w.dir, "mds")
    graceless(w)
    with writing(w):
        backup(w, "--incremental")
    graceless(w)
    c = client()
    c.ok(putfh(d), remove("f3"))
    c.ok(putfh(d), savefh(), putfh(sub), rename("f4", "moved"))
    one = c.ok(putfh(d), lookup("f1"), getfh()).fh
    c.ok(putfh(one), savefh(), putfh(sub), link("hard"))
    f = c.ok(putfh(d), lookup("f5"), getfh()).fh
    c.ok(putfh(f), setattr_(ANON, mode=0o604))
    c.ok(putfh(f), setxattr("user.kept", "value"))
    backup(w, "--incremental")
    check(files(w), ["0001-full.weft", "0002-incremental.weft", "0003-incremental.weft"])
    check(os.stat(folder(w)).st_mode & 0o777, 0o700)
    check({os.stat(os.path.join(folder(w), n)).st_mode & 0o777 for n in files(w)}, {0o600})
    check(run("backup", "--verify", folder(w)).count("whole"), 3)
    was = walk(c, c.root())
    check("/d/sub/moved" in was and "/d/f3" not in was, True, str(sorted(was)[:9]))
    c.drop()
    stop(w, "-9")
    shutil.rmtree(store(w))
    os.mkdir(store(w), 0o700)
    restored(w, folder(w))
    c = client()
    now = walk(c, c.root())
    check(sorted(now), sorted(was))
    other = [p for p in now if now[p] != was[p]]
    check({p: now[p] for p in other}, {p: was[p] for p in other})
    # It is another line of time: what was before cannot be gone on from.
    said = backup(w, "--incremental", rc=1)
    check("full backup" in said, True, said)
    backup(w)


def changed(data, at):
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1:]


def large(c, d, n=6):
    """The store gets larger than a pipe: a backup into one that no one reads stands still."""
    f = put(c, d, "large", b"x")
    for i in range(n):
        c.ok(putfh(f), setxattr(f"user.{i}", "v" * 60000))


def test_a_backup_that_was_killed_is_none(w):
    c = client()
    d = c.mkdir(c.root(), "d")
    large(c, d)
    # The kernel kills the process in the middle of the file.
    done = subprocess.run([WEFT, "backup", "--store", store(w), folder(w)], capture_output=True,
                          check=False, timeout=60, preexec_fn=lambda: resource.setrlimit(
                              resource.RLIMIT_FSIZE, (20000, 20000)))
    check(done.returncode, -signal.SIGXFSZ, repr(done))
    check((files(w), os.listdir(folder(w))), ([], ["0001-full.weft.new"]))
    check("has no backup" in run("restore", "--store", os.path.join(w.top, "no"), folder(w), rc=1),
          True)
    check("make a full one first" in backup(w, "--incremental", rc=1), True)
    backup(w)
    check(os.listdir(folder(w)), ["0001-full.weft"])
    # Killed in the middle of a pipe.
    with subprocess.Popen([WEFT, "backup", "--store", store(w), "-o", "-"],
                          stdout=subprocess.PIPE) as p:
        part = os.read(p.stdout.fileno(), 30000)
        os.kill(p.pid, signal.SIGKILL)
    check("not written to its end" in
          run("restore", "--store", os.path.join(w.top, "no"), "-", rc=1, input=part), True)
    check(os.listdir(os.path.join(w.top, "no")), [])
    c.open(d, "goes on")
    # It gives way to a server that recovers.
    with subprocess.Popen([WEFT, "backup", "--store", store(w), "-o", "-"],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE) as p:
        os.read(p.stdout.fileno(), 1)  # it has its snapshot, and stands still
        stop(w, "-9")
        w.dev("start", w.dir, "mds")
        check(p.wait(60), 1)
        check(b"gives way" in p.stderr.read(), True)
    serving(w)


def test_damage_gaps_and_wrong_order_are_found(w):
    c = client()
    d = c.mkdir(c.root(), "d")
    backup(w)
    for i in range(2):
        put(c, d, f"f{i}", b"data")
        backup(w, "--incremental")
    one, two, three = (os.path.join(folder(w), n) for n in files(w))
    new = os.path.join(w.top, "new")
    for wrong, why in (((one, three), "is missing between them"), ((one, three, two), "missing"),
                       ((two, three), "the full backup that it follows is missing"),
                       ((one, two, two), "is missing between them"),
                       ((one, one), "cannot follow another")):
        said = run("restore", "--store", new, *wrong, rc=1)
        check(why in said, True, said)
        check(os.listdir(new), [])
    # A byte anywhere: in the first line, in a record, in the last line.
    for n, path in ((1, one), (2, two), (3, three)):
        with open(path, "rb") as f:
            data = f.read()
        for at in ((20, len(data) - 30), (data.index(b"\n") + 70,), (len(data) // 2,))[n - 1]:
            with open(path, "wb") as f:
                f.write(changed(data, at))
            said = run("backup", "--verify", folder(w), rc=1)
            check(os.path.basename(path) in said, True, f"{n} {at}: {said}")
        run("restore", "--store", new, folder(w), rc=1)
        check(os.listdir(new), [])
        with open(path, "wb") as f:
            f.write(data[:-1])
        check("ends in a line" in run("backup", "--verify", folder(w), rc=1), True)
        with open(path, "wb") as f:
            f.write(data)
    check(run("backup", "--verify", folder(w)).count("whole"), 3)
    # A folder with something in it is no place for a store.
    with open(os.path.join(new, "x"), "w", encoding="ascii"):
        pass
    check("not empty" in run("restore", "--store", new, folder(w), rc=1), True)
    check("not empty" in run("restore", "--store", store(w), folder(w), rc=1), True)


def test_through_a_pipe(w):
    c = client()
    d = c.mkdir(c.root(), "d")
    some_files(c, d, 0, 3)
    with open(os.path.join(w.top, "full"), "wb") as f:
        run_to(f, "backup", "--store", store(w), "-o", "-")
    some_files(c, d, 3, 2)
    with open(os.path.join(w.top, "more"), "wb") as f:
        run_to(f, "backup", "--store", store(w), "--incremental", "--after",
               os.path.join(w.top, "full"), "-o", "-")
    was = walk(c, c.root())
    c.drop()
    stop(w)
    os.rename(store(w), os.path.join(w.top, "old"))
    with open(os.path.join(w.top, "full"), "ab") as f, \
            open(os.path.join(w.top, "more"), "rb") as more:
        f.write(more.read())
    with open(os.path.join(w.top, "full"), "rb") as f:
        run("restore", "--store", store(w), "-", stdin=f)
    # It does not serve before it was made whole.
    try:
        w.dev("start", w.dir, "mds")
    except AssertionError as e:
        check("--restored" in str(e), True, str(e))
    else:
        raise Failed("it serves")
    start_restored(w)
    w.dev("start", w.dir, "mds")
    serving(w)
    eventually(lambda: not weft_json(w, "status")["grace"], 60, "the end of grace")
    c = client()
    check(walk(c, c.root()), was)


def run_to(out, *args):
    done = subprocess.run([WEFT, *args], stdout=out, stderr=subprocess.PIPE, timeout=60,
                          check=False)
    check((done.returncode, done.stderr), (0, b""))


def reason(w, code):
    return next((r for r in health(w).get("reasons", []) if r["code"] == code), None)


def test_a_log_that_cannot_be_written_comes_back(w):
    c = client()
    d = c.mkdir(c.root(), "d")
    backup(w)
    stop(w)
    archive = os.path.join(store(w), "archive")
    shutil.rmtree(archive)
    with open(archive, "w", encoding="ascii"):
        pass
    w.dev("start", w.dir, "mds")
    graceless(w)
    eventually(lambda: "Not a directory" in (reason(w, "backup-log") or {"text": ""})["text"], 60,
               "the warning")
    check("(no log: it ended at 20" in backup(w), True)
    said = backup(w, "--incremental", rc=1)
    check("no log for backups (it ended at 20" in said and "Not a directory" in said, True, said)
    os.unlink(archive)
    c = client()
    some_files(c, d, 0, 2)
    eventually(lambda: not reason(w, "backup-log"), 60, "the log begins again")
    # A gap: the next one has to be a full one.
    said = backup(w, "--incremental", rc=1)
    check("Not a directory" in said and "make a full backup" in said, True, said)
    backup(w)
    some_files(c, d, 2, 2)
    backup(w, "--incremental")
    check([n[5:] for n in files(w)], ["full.weft"] * 3 + ["incremental.weft"])
    was = walk(c, c.root())
    c.drop()
    stop(w)
    shutil.rmtree(store(w))
    restored(w, folder(w))
    c = client()
    check(walk(c, c.root()), was)


def test_old_ones_go_with_keep(w):
    c = client()
    d = c.mkdir(c.root(), "d")
    for i in range(3):
        put(c, d, f"f{i}", b"data")
        said = backup(w, "--keep", "3")
        check("removed" in said, False, said)
        backup(w, "--incremental")
    other = os.path.join(folder(w), "notes.weft")
    with open(other, "w", encoding="ascii") as f:
        f.write("not a backup of ours")
    # What does not make a full backup removes none.
    for wrong in (("--incremental",), ("--verify",), ("-o", "-")):
        run("backup", "--store", store(w), "--keep", "1", *wrong, folder(w), rc=2)
    for wrong in ("0", "-1", "x", "1x", "10000"):
        run("backup", "--store", store(w), "--keep", wrong, folder(w), rc=2)
    check(len(files(w)), 7)
    said = backup(w, "--keep", "3", "--json")
    check(json.loads(said)["removed"], 2, said)
    check([n for n in files(w) if n != "notes.weft"],
          ["0003-full.weft", "0004-incremental.weft", "0005-full.weft", "0006-incremental.weft",
           "0007-full.weft"])
    said = backup(w, "--keep", "1")
    check("older ones removed: 5" in said, True, said)
    check(sorted(os.listdir(folder(w))), ["0008-full.weft", "notes.weft"])
    os.unlink(other)
    check(run("backup", "--verify", folder(w)).count("whole"), 1)
    # A backup that fails leaves those that are there.
    done = subprocess.run([WEFT, "backup", "--store", store(w), "--keep", "1", folder(w)],
                          capture_output=True, check=False, timeout=60,
                          preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (10, 10)))
    check(done.returncode, -signal.SIGXFSZ, repr(done))
    check(files(w), ["0008-full.weft"])


def another_file_system(w):
    """The folder of a store of file system 2 of the same cluster."""
    text, other = os.path.join(w.top, "meta"), os.path.join(w.top, "fs2")
    run("export-meta", "--store", store(w), text)
    with open(text, encoding="utf-8") as f:
        lines = f.read()
    check(lines.count('"fs":1,"incarnation"'), 1)
    with open(text, "w", encoding="utf-8") as f:
        f.write(lines.replace('"fs":1,"incarnation"', '"fs":2,"incarnation"'))
    run("import-meta", "--edited", "--store", other, text)
    return other


def test_a_folder_has_the_backups_of_one_store(w):
    c = client()
    d = c.mkdir(c.root(), "d")
    some_files(c, d, 0, 3)
    other, its = another_file_system(w), os.path.join(w.top, "its")
    for _ in range(2):
        backup(w, "--keep", "2")
    said = run("backup", "--store", other, "--keep", "2", its)
    check("0001-full.weft" in said, True, said)
    whose = "another store, of file system {} of cluster .* and this is file system {} of cluster"
    for args in (("--keep", "1"), ()):
        said = run("backup", "--store", other, *args, folder(w), rc=1)
        check(re.search("0001-full.weft is a backup of " + whose.format(1, 2), said) is not None,
              True, said)
    check(files(w), ["0001-full.weft", "0002-full.weft"])
    # One that somebody put there.
    shutil.copy(os.path.join(its, "0001-full.weft"), os.path.join(folder(w), "0003-full.weft"))
    for args in (("--keep", "1"), ()):
        said = backup(w, *args, rc=1)
        check(re.search("0003-full.weft is a backup of " + whose.format(2, 1), said) is not None,
              True, said)
    check(sorted(os.listdir(folder(w))), [f"000{i}-full.weft" for i in (1, 2, 3)])
    os.unlink(os.path.join(folder(w), "0003-full.weft"))
    # One that does not say whose it is: a backup is made, and none goes.
    first = os.path.join(folder(w), "0001-full.weft")
    with open(first, "rb") as f:
        data = f.read()
    with open(first, "wb") as f:
        f.write(data[:data.index(b"\n") + 9])
    backup(w)
    said = backup(w, "--keep", "1", rc=1)
    check("0001-full.weft: whose store it is of cannot be read" in said and
          "removes nothing" in said, True, said)
    check(files(w), [f"000{i}-full.weft" for i in (1, 2, 3, 4)])
    os.unlink(first)
    said = backup(w, "--keep", "2")
    check("older ones removed: 2" in said, True, said)
    check(files(w), ["0004-full.weft", "0005-full.weft"])


def late(w):
    return next((r for r in health(w).get("reasons", []) if r["code"] == "backup-late"), None)


def test_without_a_log_there_are_full_backups_only(w):
    c = client()
    c.mkdir(c.root(), "d")
    # mds.backup_age is 1000 s here.
    eventually(lambda: "no backup" in (late(w) or {"text": ""})["text"], 60, "the warning")
    said = backup(w)
    eventually(lambda: not late(w), 60, "its end")
    with open(os.path.join(store(w), "last-backup"), "w", encoding="ascii") as f:
        json.dump({"made_at": int(time.time()) - 7300, "kind": "full", "to": 1}, f)
    eventually(lambda: "2 hours ago" in (late(w) or {"text": ""})["text"], 60, "the warning")
    check("no incremental one can follow" in said, True, said)
    said = backup(w, "--incremental", rc=1)
    check("mds.backup_log" in said and "full" in said, True, said)
    # A stopped server's store, and one that was not closed.
    stop(w, "-9")
    backup(w)
    check(run("backup", "--verify", folder(w)).count("whole"), 2)


def settings(name):
    return [s.replace("backup_log=64M", "backup_age=1000s") if "without_a_log" in name else s
            for s in MINE]


if __name__ == "__main__":
    run_apart(globals(), ds=2, settings=settings)
