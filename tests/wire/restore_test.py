#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Time goes one way (docs/recovery.md): the daemons notice restored stores, and make them whole.
WEFT_SOAK=1: 10,000 files. Prints TAP."""
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../wirelib"))
import devtool  # noqa: E402
import tap  # noqa: E402
from harness import *  # noqa: E402,F403
from steps import data_server, settled  # noqa: E402
from files import content, layout_of, on_every_mirror  # noqa: E402
from tool import pid_of, weft_json as weft  # noqa: E402
from nfs41 import err  # noqa: E402

MB = 1 << 20
SOAK = os.environ.get("WEFT_SOAK")
FILES = 10000 if SOAK else 20
PATIENCE = 1200 if SOAK else 60  # seconds that a command may take
SETTINGS_HERE = ["mds.repair_files=4", "mds.scrub_delay=200ms", "mds.lease=20s", "mds.grace=1s",
                 "ds.lease=20s", "mds.recall_deadline=2s", "mds.repair_wait=4s"]


def store(w):
    return os.path.join(w.dir, "mds")


def backup(w, name="mds", to="backup"):
    """A copy of the store of a stopped server."""
    there = os.path.join(w.top, to)
    shutil.rmtree(there, ignore_errors=True)
    shutil.copytree(os.path.join(w.dir, name), there, symlinks=True)
    return there


def put_back(w, name="mds", frm="backup"):
    at = os.path.join(w.dir, name)
    shutil.rmtree(at)
    shutil.copytree(os.path.join(w.top, frm), at, symlinks=True)


def stop(w, name="mds", hard=False):
    w.dev("kill", w.dir, name, *(["-9"] if hard else []))


def stop_keyed(w, name):
    """Stops a server that has its own keys: it would refuse a copy of its store without them."""
    eventually(lambda: os.path.exists(os.path.join(w.dir, name, "key")), 60, "keys of its own")
    stop(w, name)


def start(w, name="mds"):
    w.dev("start", w.dir, name)


def boots(w, n):
    for _ in range(n):
        stop(w)
        start(w)
        eventually(lambda: health(w)["status"] == "ok", 60, "serving")


def start_restored(w):
    cluster = devtool.MODULE.Cluster.load(w.dir)
    d = cluster.daemons[0]
    arguments = d.arguments
    d.arguments = lambda: arguments() + ["--restored"]
    cluster.start([d])


def spawn(w, name):
    """Does not wait for the server, because it does not join."""
    d = next(d for d in devtool.MODULE.Cluster.load(w.dir).daemons if d.name == name)
    d.spawn()


def ended(pid):
    try:
        with open(f"/proc/{pid}/status", encoding="ascii") as f:
            return "State:\tZ" in f.read()
    except (FileNotFoundError, ProcessLookupError):
        return True


def end_restored(w):
    """weft-dev does not know this process by its arguments."""
    with open(os.path.join(w.dir, "run", "mds.pid"), encoding="ascii") as f:
        pid = int(f.read())
    os.kill(pid, signal.SIGTERM)
    eventually(lambda: ended(pid), 60, "its end")


def made_whole(w):
    """The restored store serves again, by a start without the option."""
    start_restored(w)
    whole(w)
    end_restored(w)
    start(w)
    eventually(lambda: health(w)["status"] == "ok", 60, "serving")


def health(w, name="mds"):
    try:
        at = next(d["admin"] for d in json.loads(w.dev("status", w.dir, "--json"))["daemons"]
                  if d["name"] == name)
        # 200 or 503: both say how it is
        got = json.loads(devtool.MODULE.ask(at, "/v1/health")[1])
        return got if "status" in got else {"status": repr(got)}
    except Exception as e:  # between the process that makes it whole and the one that serves
        return {"status": repr(e)}


def mds_pid(w):
    return next(d["pid"] for d in json.loads(w.dev("status", w.dir, "--json"))["daemons"]
                if d["name"] == "mds")


def log_of(w, name="mds"):
    with open(f"{w.dir}/log/{name}.log", encoding="utf-8") as f:
        return f.read()


def write_file(c, d, name, data, mode=0o600, cred=None):
    got = c.until(lambda got: err(got.status) not in ("GRACE", "DELAY"), putfh(d),
                  open_(name, BOTH | NO_DELEG, how=UNCHECKED, attrs={"mode": mode}), getfh(),
                  tries=300)
    check(err(got.status), "OK")
    s, f = got.results[-2].stateid, got.results[-1].fh
    if data:
        got = c.until(lambda got: err(got.status) != "DELAY", putfh(f),
                      write(s, 0, data, FILE_SYNC), tries=300)
        check(err(got.status), "OK")
    return s, f


def refused(w):
    eventually(lambda: "restored from an older copy" in health(w).get("why", ""), 60,
               "it is noticed")
    line = [x for x in log_of(w).split("\n") if "is ahead of this store" in x]
    check(bool(line) and "data server ds" in line[-1] and "--restored" in line[-1], True, str(line))


def objects(w):
    return sum(len(files) for n in range(1, 4) for _, _,
               files in os.walk(os.path.join(w.dir, f"ds{n}", "objects")))


def scrub(w, *how):
    at = next(d["admin"] for d in json.loads(w.dev("status", w.dir, "--json"))["daemons"]
              if d["name"] == "mds")
    done = subprocess.run([os.path.join(BUILD, "weft"), "--admin", at, "scrub", *how],
                          capture_output=True, text=True, timeout=PATIENCE, check=False)
    check(done.returncode in (0, 1), True, done.stderr)
    tap.say(done.stdout.splitlines()[-1])


def whole(w):
    eventually(lambda: health(w)["status"] == "ok"
               and "the store was restored and is consistent" in log_of(w), 60, "it serves")


def scenario(w, between, away=None):
    c = client()
    d = c.mkdir(c.root(), "d", attrs={"mode": 0o777})
    if away:
        c.ok(putfh(d), setxattr("weft.policy", "mirrors=2"))
    _, kept = write_file(c, d, "kept", b"K" * 70000)
    _, cut = write_file(c, d, "cut", b"C" * 70000)
    c.drop()
    stop(w)
    backup(w)
    start(w)
    for n in range(between - 1):
        boots(w, 1)
    if away:
        stop(w, away)
    c = client()
    d = c.ok(putrootfh(), lookup("d"), getfh()).fh
    old = [write_file(c, d, f"secret{n}", (b"SECRET %d " % n) * 700)[1] for n in range(FILES)]
    if away:
        write_file(c, d, "kept", b"N" * 70000)
    # Truncated, and fenced: the epochs and orders of its objects are ahead of the store's.
    fh = c.ok(putfh(d), lookup("cut"), getfh()).fh
    for n in range(3):
        s, _ = write_file(c, d, "cut", b"C" * 70000)
        o = settled(c, fh, s)
        got = c.until(lambda got: err(got.status) != "DELAY", putfh(fh), setattr_(ANON, size=10),
                      tries=300)
        check(err(got.status), "OK")
        c.ok(putfh(fh), close(s))
    c.drop()
    stop(w, hard=True)
    put_back(w)
    start(w)
    refused(w)
    stop(w)
    start_restored(w)
    if away:
        eventually(lambda: "every data server" in health(w).get("why", ""), 60, "it waits")
        start(w, away)
    whole(w)
    # A start without the option serves what the store is now.
    end_restored(w)
    start(w)
    eventually(lambda: health(w)["status"] == "ok", 60, "serving")
    return d, kept, old, b"KN" if away else b"K"


def verify(w, was_d, kept, old, of):
    c = client()
    # Old handles name nothing.
    for f in [was_d, kept, *old[:50]]:
        got = c.call(putfh(f), getattr_("type"))
        check(err(got.status), "STALE", "an old handle")
    d = c.ok(putrootfh(), lookup("d"), getfh()).fh
    # New files are empty, and parts of them that no client wrote are zeros.
    for n in range(FILES):
        s, f = write_file(c, d, f"new{n}", b"")
        got = c.until(lambda got: err(got.status) != "DELAY", putfh(f), setattr_(s, size=7000),
                      tries=300)
        check(err(got.status), "OK")
        if n < 50:
            check(content(c, f, s), bytes(7000), f"new file {n}")
        c.ok(putfh(f), close(s))
    # The old files are there, with the bytes that their objects have.
    f = c.ok(putfh(d), lookup("kept"), getfh()).fh
    first = content(c, f)
    check(first in [bytes([b]) * 70000 for b in of], True, "what was written before, or since")
    if len(of) > 1:  # and its copies are the same in the end
        eventually(lambda: all(o["state"] == "in-sync" for m in layout_of(c, f)["mirrors"]
                               for o in m["objects"]), 60, "repair")
        s, f = c.open(d, "kept", how=UNCHECKED)
        check(on_every_mirror(c, f, s, 70000), [first, first])
    # Data servers obey truncations and fences.
    f = c.ok(putfh(d), lookup("cut"), getfh()).fh
    s, f = write_file(c, d, "cut", b"D" * 70000)
    check(content(c, f, s), b"D" * 70000)
    a = settled(c, f, s)
    copies = [(data_server(c, m[0]), m[0].fhs[0]) for m in a.mirrors]
    check([ds.write(fh, 0, b"E" * 10).status for ds, fh in copies], [0] * len(copies))
    two = client()
    c.on_callback = lambda name, args: 0  # it keeps its layout
    got = two.until(lambda got: err(got.status) != "DELAY", putfh(f), setattr_(ANON, size=10),
                    tries=400)
    check(err(got.status), "OK")
    check([ds.write(fh, 20, b"late").status == 0 for ds, fh in copies], [False] * len(copies),
          "it is fenced")
    check(content(two, f), b"E" * 10)
    check(err(c.call(putfh(d), lookup("secret0")).status), "NOENT")
    # What the lost files left stays until the administrator decides.
    had = objects(w)
    scrub(w)
    check(objects(w) >= FILES and objects(w) == had, True, "kept")
    scrub(w, "--remove-newer")
    eventually(lambda: objects(w) <= had - FILES, 60, "removed")
    check(content(c, c.ok(putfh(d), lookup("kept"), getfh()).fh), first)


def test_one_boot_is_noticed_and_made_whole(w):
    verify(w, *scenario(w, 1))


def test_three_boots(w):
    if not SOAK:
        return "only with WEFT_SOAK"
    verify(w, *scenario(w, 3))


def test_ten_boots_with_one_that_was_away(w):
    verify(w, *scenario(w, 10, "ds2"))


def test_who_has_seen_less_lets_it_serve_until_the_other_comes(w):
    c = client()
    d = c.mkdir(c.root(), "d")
    c.drop()
    stop(w)
    backup(w)
    stop(w, "ds1")
    start(w)
    write_file(client(), d, "f", b"x" * 5000)
    stop(w, hard=True)
    stop(w, "ds2")
    put_back(w)
    start(w)
    start(w, "ds1")
    eventually(lambda: health(w)["status"] == "ok", 60, "serving")
    mds = mds_pid(w)
    spawn(w, "ds2")
    eventually(lambda: ended(mds), 60, "the end")
    line = [x for x in log_of(w).split("\n") if "is ahead of this store" in x][-1]
    check("data server ds2" in line and "another one" in line and line.endswith("weft ds forget"),
          True, line)
    # The administrator says that it is wrong.
    stop(w, "ds1")
    start(w)
    refused(w)
    weft(w, "ds", "kill", "ds2")
    eventually(lambda: health(w)["status"] == "waiting", 60, "it waits for the other")
    start(w, "ds1")
    eventually(lambda: health(w)["status"] == "ok", 60, "serving")


def read_status(c, f):
    return err(c.until(lambda got: err(got.status) != "DELAY", putfh(f), read(ANON, 0, 100),
                       tries=300).status)


def write_by_layout(c, d, name, data):
    """The question for the size, which the return of the layout makes one for the data servers,
    tells the metadata server that the objects are there."""
    s, f = write_file(c, d, name, b"")
    o = settled(c, f, s)
    check([data_server(c, m[0]).write(m[0].fhs[0], 0, data).status for m in o.mirrors], [0, 0])
    c.ok(putfh(f), layoutreturn(o.stateid))
    c.ok(putfh(f), close(s))
    check(c.attrs(f, "size").size, len(data))


def objects_at(w, name):
    return sum(len(files) for _, _, files in os.walk(os.path.join(w.dir, name, "objects")))


def test_a_copy_that_moved_away_since_is_not_believed(w):
    """The backup names a server that has deleted its object since. The other copy of the file is
    whole, and it is the one that stays."""
    c = client()
    d = c.mkdir(c.root(), "d", attrs={"mode": 0o777})
    c.ok(putfh(d), setxattr("weft.policy", "mirrors=2"))
    for n in range(12):
        write_by_layout(c, d, f"f{n}", b"%02d" % n * 30000)
    c.drop()
    stop(w)
    backup(w)
    start(w)
    check(objects_at(w, "ds2") > 3, True, "objects of ds2")
    eventually(lambda: health(w)["status"] == "ok", 60, "serving")
    weft(w, "ds", "drain", "ds2")
    eventually(lambda: objects_at(w, "ds2") == 0, 120, "they have moved")
    stop(w, hard=True)
    put_back(w)
    made_whole(w)
    c = client()
    d = c.ok(putrootfh(), lookup("d"), getfh()).fh
    for n in range(12):
        f = c.ok(putfh(d), lookup(f"f{n}"), getfh()).fh
        c.until(lambda got: err(got.status) not in ("GRACE", "DELAY"), putfh(f), read(ANON, 0, 1),
                tries=600)
        check(content(c, f), b"%02d" % n * 30000, f"f{n}")

    def left():
        got = weft(w, "mirror", "status")
        return not got["running"] and not got["waiting"]
    eventually(left, 120, "they have two copies again")
    for n in range(12):
        s, f = c.open(d, f"f{n}")
        check(on_every_mirror(c, f, s, 60000), [b"%02d" % n * 30000] * 2, f"f{n}")


def test_what_was_removed_since_keeps_no_repair_busy(w):
    """The backup has these files. The data servers have deleted their objects since."""
    c = client()
    d = c.mkdir(c.root(), "d", attrs={"mode": 0o777})
    c.ok(putfh(d), setxattr("weft.policy", "mirrors=2"))
    for n in range(3):
        write_file(c, d, f"empty{n}", b"")
    for name, byte in (("lost", b"L"), ("kept", b"K")):
        write_by_layout(c, d, name, byte * 70000)
    c.drop()
    stop(w)
    backup(w)
    start(w)
    c = client()
    d = c.ok(putrootfh(), lookup("d"), getfh()).fh
    for name in ("empty0", "empty1", "empty2", "lost"):
        got = c.until(lambda got, name=name: err(got.status) not in ("GRACE", "DELAY"), putfh(d),
                      remove(name), tries=300)
        check(err(got.status), "OK")
    eventually(lambda: objects(w) == 2, 60, "they are deleted")
    c.drop()
    stop(w, hard=True)
    put_back(w)
    made_whole(w)
    # The command reports what no server can repair, and that takes no other file's turn.
    c = client()
    d = c.ok(putrootfh(), lookup("d"), getfh()).fh
    f = c.ok(putfh(d), lookup("lost"), getfh()).fh
    lost = c.attrs(f, "fileid").fileid

    def left():
        got = weft(w, "mirror", "status")
        return not got["running"] and {(x["inode"], x["why"]) for x in got["waiting"]} or None
    try:
        eventually(lambda: left() == {(lost, "no copy of it exists any more: it is lost")}, 60,
                   "all others are repaired")
    except Failed:
        tap.say(f"lost is {lost}: {weft(w, 'mirror', 'status')}")
        tap.say(log_of(w))
        raise
    check(read_status(c, f), "IO", "not zeros")
    check(content(c, c.ok(putfh(d), lookup("kept"), getfh()).fh), b"K" * 70000)
    # A file that was empty is a file like others.
    s, f = write_file(c, d, "empty1", b"new " * 5000)
    check(content(c, f, s), b"new " * 5000)
    check(on_every_mirror(c, f, s, 20000), [b"new " * 5000] * 2)
    # Also after a restart of the data servers, which delete again what they find deleted.
    for name in ("ds1", "ds2"):
        stop(w, name, hard=True)
        start(w, name)
    eventually(lambda: health(w)["status"] == "ok", 60, "serving")
    check(content(c, f, s), b"new " * 5000)


def test_honest_ends_are_no_restoration(w):
    c = client()
    d = c.mkdir(c.root(), "d", attrs={"mode": 0o777})
    for n in range(6):
        c = client()
        d = c.ok(putrootfh(), lookup("d"), getfh()).fh
        write_file(c, d, f"f{n}", b"x" * 5000)
        got = c.until(lambda got: err(got.status) != "DELAY", putfh(d), remove(f"f{n}"), tries=300)
        check(err(got.status), "OK")
        c.drop()
        stop(w, hard=True)
        if n % 2:
            stop(w, "ds1", hard=True)
        start(w)
        if n % 2:
            start(w, "ds1")
        eventually(lambda: health(w)["status"] == "ok", 60, "serving")
    check("restored from an older copy" in log_of(w), False)


# ---- data servers' stores


def restorations(w):
    """The servers whose restoration the journal records."""
    out = []
    eventually(lambda: out.extend(e["subject"] for e in weft_lines(w, "events")
                                  if e["kind"] == "restored") or out, 60, "event")
    return out


def weft_lines(w, *args):
    at = next(d["admin"] for d in json.loads(w.dev("status", w.dir, "--json"))["daemons"]
              if d["name"] == "mds")
    out = subprocess.run([os.path.join(BUILD, "weft"), "--admin", at, "--json", *args],
                         capture_output=True, text=True, timeout=PATIENCE, check=True).stdout
    return [json.loads(line) for line in out.splitlines()]


def ds_of(w, name):
    return next(d for d in weft(w, "ds", "list")["ds"] if d["name"] == name)


def test_a_data_servers_store_that_was_put_back_serves_nobody(w):
    c = client()
    d = c.mkdir(c.root(), "d")
    c.ok(putfh(d), setxattr("weft.policy", "mirrors=2"))
    s, f = write_file(c, d, "f", b"OLD " * 5000)
    stop_keyed(w, "ds1")
    backup(w, "ds1", "ds1.backup")
    start(w, "ds1")
    c = client()
    s, f = write_file(c, c.ok(putrootfh(), lookup("d"), getfh()).fh, "f", b"NEW " * 5000)
    eventually(lambda: all(o["state"] == "in-sync" for m in layout_of(c, f)["mirrors"]
                           for o in m["objects"]), 60, "repair")
    stop(w, "ds1")
    put_back(w, "ds1", "ds1.backup")
    spawn(w, "ds1")
    eventually(lambda: ds_of(w, "ds1")["state"] == "waiting", 60, "it is noticed")
    check("restored from an older copy" in ds_of(w, "ds1")["why"], True)
    eventually(lambda: "restored from an older copy" in health(w).get("ds", {}).get("ds1", ""), 60,
               "health")
    eventually(lambda: "ds-trouble" in [r["code"] for r in health(w)["reasons"]], 60, "a reason")
    check("its store was restored from an older copy" in log_of(w), True)
    check(restorations(w), ["ds1"])
    check(content(c, f, s), b"NEW " * 5000)
    weft(w, "ds", "admit", "ds1")
    eventually(lambda: ds_of(w, "ds1")["alive"], 60, "it has joined")
    eventually(lambda: all(o["state"] == "in-sync" for m in layout_of(c, f)["mirrors"]
                           for o in m["objects"]), 60, "repair")
    s, f = c.open(c.ok(putrootfh(), lookup("d"), getfh()).fh, "f", how=UNCHECKED)
    check(on_every_mirror(c, f, s, 20000), [b"NEW " * 5000] * 2)


def backup_running(w, name, to):
    """A copy as of one instant."""
    pid = pid_of(w, name)
    os.kill(pid, signal.SIGSTOP)
    try:
        eventually(lambda: state_of(pid) == "T", 60, "it stands still")
        backup(w, name, to)
    finally:
        os.kill(pid, signal.SIGCONT)


def state_of(pid):
    with open(f"/proc/{pid}/stat", encoding="ascii") as f:
        return f.read().rsplit(")", 1)[1].split()[0]


def start_alone(w, name, times):
    """Starts the server where no metadata server hears of it."""
    admin = os.path.join(w.top, "alone.sock")
    for _ in range(times):
        with open(os.path.join(w.top, "alone.log"), "w", encoding="utf-8") as log:
            settings = [f"ds.store={w.dir}/{name}", f"ds.name={name}", "ds.mds=127.0.0.1:1",
                        "ds.listen=127.0.0.1:12098", f"ds.admin=unix:{admin}"]
            alone = subprocess.Popen([os.path.join(BUILD, "weft-ds"), "-c",
                                      os.path.join(w.dir, "weft.conf")]
                                     + [x for s in settings for x in ("-o", s)], stdout=log,
                                     stderr=log)
        eventually(lambda: devtool.MODULE.ask("unix:" + admin, "/v1/health")[0], 60, "it runs")
        alone.terminate()
        check(alone.wait(), 0)


def proofs(w, name):
    """Joins that its store records."""
    return log_of(w).count(f"({name}): its store has join")


def after_join(w, name, what):
    """Runs what makes it join, and waits until both sides have recorded that."""
    eventually(lambda: proofs(w, name), 60, "its first join is recorded")
    had = proofs(w, name)
    what()
    eventually(lambda: proofs(w, name) > had, 60, "its join is recorded")


def put_back_is_noticed(w, name, why):
    spawn(w, name)
    eventually(lambda: ds_of(w, name)["state"] == "waiting", 60, "it is noticed")
    check("restored from an older copy" in ds_of(w, name)["why"], True)
    eventually(lambda: "restored from an older copy" in health(w).get("ds", {}).get(name, ""), 60,
               "health")
    check(f"its store was restored from an older copy: {why}" in log_of(w), True, why)
    check(restorations(w), [name])
    weft(w, "ds", "admit", name)
    eventually(lambda: ds_of(w, name)["alive"], 60, "it has joined")


def test_joins_show_an_older_snapshot_that_was_started_often(w):
    eventually(lambda: proofs(w, "ds1"), 60, "its first join is recorded")
    stop_keyed(w, "ds1")
    backup(w, "ds1", "ds1.backup")
    after_join(w, "ds1", lambda: start(w, "ds1"))
    stop(w, "ds1")
    put_back(w, "ds1", "ds1.backup")
    start_alone(w, "ds1", 3)
    put_back_is_noticed(w, "ds1", "it joined again after")


def test_joins_show_a_snapshot_of_the_newest_start(w):
    c = client()
    d = c.mkdir(c.root(), "d")
    c.ok(putfh(d), setxattr("weft.policy", "mirrors=2"))
    s, f = write_file(c, d, "f", b"OLD " * 5000)
    c.drop()
    eventually(lambda: os.path.exists(os.path.join(w.dir, "ds1", "key")), 60, "keys of its own")
    backup_running(w, "ds1", "ds1.backup")
    after_join(w, "ds1", lambda: boots(w, 1))
    c = client()
    s, f = write_file(c, c.ok(putrootfh(), lookup("d"), getfh()).fh, "f", b"NEW " * 5000)
    stop(w, "ds1", hard=True)
    put_back(w, "ds1", "ds1.backup")
    put_back_is_noticed(w, "ds1", "it joined again after")
    eventually(lambda: all(o["state"] == "in-sync" for m in layout_of(c, f)["mirrors"]
                           for o in m["objects"]), 60, "repair")
    s, f = c.open(c.ok(putrootfh(), lookup("d"), getfh()).fh, "f", how=UNCHECKED)
    check(on_every_mirror(c, f, s, 20000), [b"NEW " * 5000] * 2)


def test_joins_show_a_metadata_store_of_its_newest_boot(w):
    """A copy that was made beside the store, and that a data server has joined since,
    is no crash."""
    c = client()
    d = c.mkdir(c.root(), "d", attrs={"mode": 0o777})
    eventually(lambda: os.path.exists(os.path.join(w.dir, "ds1", "key")), 60, "keys of its own")
    eventually(lambda: proofs(w, "ds1"), 60, "its first join is recorded")
    backup_running(w, "mds", "backup")
    stop(w, "ds1", hard=True)
    after_join(w, "ds1", lambda: start(w, "ds1"))
    c = client()
    write_file(c, c.ok(putrootfh(), lookup("d"), getfh()).fh, "since", b"x" * 5000)
    c.drop()
    # It would compare well, if it came first, and let the metadata server serve until then.
    stop(w, "ds2")
    stop(w, hard=True)
    put_back(w)
    start(w)
    refused(w)
    check("it has had join" in log_of(w), True)
    stop(w)
    spawn(w, "ds2")
    made_whole(w)
    eventually(lambda: all(ds_of(w, ds)["alive"] for ds in ("ds1", "ds2")), 60, "they have joined")
    boots(w, 1)
    eventually(lambda: all(ds_of(w, ds)["alive"] for ds in ("ds1", "ds2")), 60, "they have joined")
    check("its store was restored from an older copy" in log_of(w), False)


def test_joins_that_end_anywhere_are_no_restoration(w):
    """The test kills either side while the other joins it, or just after."""
    rnd = random.Random(os.environ.get("WEFT_SEED", "16"))
    eventually(lambda: proofs(w, "ds1"), 60, "its first join is recorded")
    for n in range(200 if SOAK else 16):
        mds = n % 4 == 3
        stop(w, "ds1", hard=True)
        if mds:
            stop(w, hard=True)
            spawn(w, "mds")
        spawn(w, "ds1")
        time.sleep(rnd.random() * 0.4)  # when the next kill comes, whatever the server does then
        if mds:
            stop(w, hard=True)
            start(w)
    stop(w, "ds1", hard=True)
    after_join(w, "ds1", lambda: start(w, "ds1"))
    eventually(lambda: health(w)["status"] == "ok", 60, "serving")
    check("restored from an older copy" in log_of(w), False)


def test_of_two_processes_with_one_store_the_second_is_refused(w):
    stop_keyed(w, "ds1")
    backup(w, "ds1", "ds1.copy")
    start(w, "ds1")
    log = open(os.path.join(w.top, "copy.log"), "w", encoding="utf-8")
    copy = subprocess.Popen([os.path.join(BUILD, "weft-ds"), "-c", os.path.join(w.dir, "weft.conf"),
                             "-o", f"ds.store={w.top}/ds1.copy", "-o", "ds.name=ds1", "-o",
                             "ds.listen=127.0.0.1:12099", "-o", f"ds.admin=unix:{w.top}/copy.sock"],
                            stdout=log, stderr=log)
    try:
        eventually(lambda: "runs twice" in log_of(w), 60, "it is noticed")
        check("second process" in ds_of(w, "ds1")["why"], True)
        eventually(lambda: "second process" in health(w).get("ds", {}).get("ds1", ""), 60, "health")
        check(restorations(w), ["ds1"])
        check((ds_of(w, "ds1")["alive"], [a.split(":")[1] for a in ds_of(w, "ds1")["addr"]]),
              (True, ["12050"]))
        # The first goes. The second has what was copied, and no server takes it for the first.
        stop(w, "ds1", hard=True)
        eventually(lambda: ds_of(w, "ds1")["state"] == "waiting", 60, "it waits")
    finally:
        copy.terminate()
        copy.wait()
        log.close()


if __name__ == "__main__":
    run_apart(globals(), ds=lambda name: 3 if "away" in name else 2,
              settings=lambda name: SETTINGS_HERE + (["log.level=debug"]
                                                     if "joins" in name else []))
