#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""A metadata server whose log is in PostgreSQL: what it answered outlives the process and its
folder, one process at a time answers, and while PostgreSQL is away clients wait. Prints TAP.

PostgreSQL is real, a primary and two synchronous standbys (tests/ha/pgcluster). Each test has an
instance of its own there, and "a" and "b" are two processes of it. A packet socket counts what
leaves the port of one.
"""
import contextlib
import itertools
import json
import os
import shutil
import signal
import socket
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../wirelib"))
from harness import *  # noqa: E402,F403
from daemons import environment, program  # noqa: E402
from nfs41 import err  # noqa: E402
from pg_world import (  # noqa: E402
    Postgres, World, ask, has_files, make_files, missing, refuses, stands_still_and_wakes)

INSTANCES = itertools.count(1)


def both(w):
    """"a" serves, and "b" stands by."""
    w.start("a")
    w.serves("a")
    w.start("b")
    w.says("b", f"standby: another process holds instance {w.inst}")
    check("serving: boot" in w.log("b"), False, "a standby that serves")
    got = ask("127.0.0.1:12122", "/v1/health")
    check((got[0], got[1]["status"], [r["code"] for r in got[1]["reasons"]]),
          (503, "waiting", ["not-serving"]))
    check("standby" in got[1]["why"], True, got[1])
    check(ask(w.admin["b"], "/v1/ds")[0], 503)


def test_what_was_answered_outlives_the_process_and_its_folder(w):
    w.start("a")
    w.serves("a")
    make_files(w.client("a"), "one", 30)
    w.drop()
    w.kill("a")
    w.start("a")
    w.serves("a", 2)
    c = w.client("a")
    has_files(c, "one", 30)
    make_files(c, "two", 30)
    eventually(lambda: w.sql("select folded = acked and folded > 60 from weft.instance"
                             " join weft.fold on inst = id where id = $") == "t",
               what="the table follows")
    make_files(c, "three", 30)
    w.drop()
    w.kill("a")
    shutil.rmtree(f"{w.top}/a")
    w.start("a")
    w.serves("a", 3)
    check("a new copy begins with batch" in w.log("a"), True, w.log("a")[-800:])
    c = w.client("a")
    for where in ("one", "two", "three"):
        has_files(c, where, 30)
    epochs = w.sql("select epoch from weft.instance where id = $")
    check(epochs, "3")


def test_clients_wait_while_postgresql_is_away(w):
    w.start("a")
    w.serves("a")
    c, two = w.client("a"), w.client("a")
    d = make_files(c, "d", 1)
    w.says("a", "data server 1 (ds): ")
    s, f = c.open(d, "f", attrs={"mode": 0o666})
    began = w.log("a").count("serving: boot")
    w.pg("pause", "p")
    made = c.begin(putfh(d), create(DIR, "made"))
    # A look needs no PostgreSQL, but a lease.
    w.says("a", "the store is not held now")
    seen = two.begin(putfh(d), lookup("f0"))
    for one, what in ((c, made), (two, seen)):
        with contextlib.suppress(TimeoutError):
            one.finish(what, 1)
            raise Failed("a reply came while the store was not held")
    w.pg("resume", "p")
    check(err(c.finish(made).status), "OK")
    check(err(two.finish(seen).status), "OK")
    # The open of before, without reclaim: there was no new boot.
    c.ok(putfh(f), setattr_(s, size=7), close(s))
    check(w.log("a").count("serving: boot"), began)
    check("grace" in w.log("a").rpartition("is not held now")[2], False, "grace")
    check(w.sql("select epoch from weft.instance where id = $"), "1")
    for one in ("s1", "s2"):
        w.pg("pause", one)
    made = c.begin(putfh(d), create(DIR, "replicated"))
    with contextlib.suppress(TimeoutError):
        c.finish(made, 2)
        raise Failed("a change that no standby has was answered")
    for one in ("s1", "s2"):
        w.pg("resume", one)
    check(err(c.finish(made).status), "OK")


def test_an_end_does_not_wait_for_postgresql(w):
    w.start("a")
    w.serves("a")
    d = make_files(w.client("a"), "d", 1)
    w.pg("pause", "p")
    w.clients[0].begin(putfh(d), create(DIR, "made"))
    w.says("a", "PostgreSQL is away")
    w.run["a"].terminate()
    w.says("a", "signal 15: stopping")
    # Who is impatient changes nothing.
    w.run["a"].terminate()
    check(w.ended("a") != 0, True, "status")
    w.says("a", "does not answer: stopping without it")
    check("before anything was served" in w.log("a"), False, w.log("a")[-800:])
    w.pg("resume", "p")
    # A standby ends at once.
    w.start("a")
    w.serves("a", 2)
    w.start("b")
    w.says("b", "standby")
    check(w.stop("b"), 0)


def test_an_end_does_not_wait_for_an_append_that_is_refused(w):
    w.start("a")
    w.serves("a")
    d = make_files(w.client("a"), "d", 1)
    w.sql("revoke insert on weft.log from weft")
    try:
        w.clients[0].begin(putfh(d), create(DIR, "made"))
        w.says("a", "permission denied")
        w.run["a"].terminate()
        check(w.ended("a") != 0, True, "status")
    finally:
        w.sql("grant insert on weft.log to weft")
    w.says("a", "does not answer: stopping without it")


@contextlib.contextmanager
def table_is_locked(w):
    """Another's lock keeps the table for longer than any test. Gives the process that has it."""
    with subprocess.Popen(["bash", os.path.join(SRC, "tests/ha/pgcluster"), w.pg.dir, "sql", "p",
                           "begin; lock table weft.kv in access exclusive mode;"
                           " select pg_sleep(600)"], stdout=subprocess.DEVNULL) as lock:
        try:
            eventually(lambda: w.sql("select count(*) from pg_locks where granted and"
                                     " mode = 'AccessExclusiveLock' and"
                                     " relation = 'weft.kv'::regclass") == "1", what="the lock")
            yield lock
        finally:
            w.sql("select pg_terminate_backend(pid) from pg_locks where granted and"
                  " mode = 'AccessExclusiveLock' and relation = 'weft.kv'::regclass")


def wait_for_the_table(w, who):
    return int(w.sql("select count(*) from pg_stat_activity where wait_event_type = 'Lock'"
                     f" and application_name = '{who} $'"))


def test_a_signal_is_heard_while_an_empty_store_is_filled(w):
    w.start("a")
    w.serves("a")
    make_files(w.client("a"), "d", 20)
    w.drop()
    eventually(lambda: w.sql("select count(*) > 0 from weft.kv where inst = $") == "t",
               what="the table follows")
    w.stop("a")
    with table_is_locked(w) as lock:
        w.start("b")
        eventually(lambda: wait_for_the_table(w, "weft-snapshot"), 60, "b waits")
        w.run["b"].terminate()
        check(w.ended("b"), 0)
        check(lock.poll(), None, "the lock, while b ends")
        check("unavailable" in w.log("b"), False, "b gave the question up by itself")
    w.start("b")
    w.serves("b")
    has_files(w.client("b"), "d", 20)


def test_an_end_does_not_wait_for_the_table(w):
    w.start("a")
    w.serves("a")
    with table_is_locked(w) as lock:
        make_files(w.client("a"), "d", 5)
        eventually(lambda: wait_for_the_table(w, "weft-fold"), 60, "a folds")
        w.drop()
        check(w.stop("a"), 0)
        check(lock.poll(), None, "the lock, while a ends")
        # By itself a fold gives up after 30 s, and then another one waits there.
        check("this process ends, and broke off a fold" in w.log("a") or
              wait_for_the_table(w, "weft-fold") > 1, True, w.log("a")[-800:])
    w.start("b")
    w.serves("b")
    has_files(w.client("b"), "d", 5)


def test_a_signal_is_heard_between_the_claim_and_service(w):
    w.sql("revoke insert on weft.log from weft")
    try:
        w.start("a")
        w.says("a", "permission denied")
        w.run["a"].terminate()
        check(w.ended("a"), 1)
    finally:
        w.sql("grant insert on weft.log to weft")
    check("before anything was served" in w.log("a"), True, w.log("a")[-800:])
    w.start("b")
    w.serves("b")


def test_a_signal_is_heard_by_a_standby_whose_claim_found_no_log(w):
    w.start("a")
    w.serves("a")
    w.start("b", "mds.backup_log=64M")
    w.says("b", "standby: another process holds instance")
    make_files(w.client("a"), "d", 20)
    w.drop()
    # The next claim takes away what b reads after it.
    w.sql("create function weft.lose() returns trigger language plpgsql security definer as"
          " 'begin revoke select on weft.log from weft; return new; end';"
          "create trigger lose after update on weft.instance for each row"
          " when (old.epoch <> new.epoch and new.id = $) execute function weft.lose()")
    try:
        # Its last batches are in no checkpoint of b yet, so its archive reads them at the end.
        w.stop("a")
        # Before it beats it would only end its claim.
        claimed = "select epoch = 2 and beat > {} from weft.instance where id = $"
        eventually(lambda: w.sql(claimed.format(0)) == "t", 60, "b claims")
        beat = int(w.sql("select beat from weft.instance where id = $"))
        eventually(lambda: w.sql(claimed.format(beat + 2)) == "t", 60, "b beats")
        w.run["b"].terminate()
        check(w.ended("b"), 0)
        eventually(lambda: w.sql("select owner from weft.instance where id = $") == "", 60,
                   "b gives the instance up")
    finally:
        w.sql("drop function weft.lose cascade; grant select on weft.log to weft")
    check("serving: boot" in w.log("b"), False)
    w.start("b")
    w.serves("b")
    has_files(w.client("b"), "d", 20)


def test_a_standby_takes_over_from_one_that_was_killed(w):
    both(w)
    c = w.client("a")
    make_files(c, "d", 20)
    w.kill("a")
    w.serves("b")
    has_files(w.client("b"), "d", 20)
    check(ask(w.admin["b"], "/v1/ds")[0], 200)
    check(ask("127.0.0.1:12122", "/v1/health")[1]["status"], "ok")
    # The first comes back as the standby.
    w.start("a")
    w.says("a", f"standby: another process holds instance {w.inst}")
    make_files(w.client("b"), "e", 20)
    w.drop()
    check(w.stop("b"), 0)
    w.serves("a", 2)
    c = w.client("a")
    has_files(c, "d", 20)
    has_files(c, "e", 20)


def test_an_idle_copy_keeps_its_place(w):
    both(w)
    rows = f"select string_agg(name, ',' order by name) from weft.reader where inst = {w.inst}"
    eventually(lambda: w.sql(rows).count(",") == 1, what="both copies are known")
    names = w.sql(rows).split(",")
    check([len(n.rpartition(" ")[2]) for n in names], [16, 16], names)
    seen = f"select seen, batch from weft.reader where inst = {w.inst} and name = '{names[1]}'"
    was = {w.sql(seen)}

    def moves():
        was.add(w.sql(seen))
        return len({(one.split("|")[1]) for one in was}) < len(was) - 1
    eventually(moves, 90, "it says that it lives, twice, with the same batch")
    # Another machine of this name, or a copy that is made again, is another one.
    w.stop("b")
    shutil.rmtree(f"{w.top}/b")
    w.start("b")
    eventually(lambda: w.sql(rows).count(",") == 2, what="the new copy is another one")
    w.stop("b")
    w.start("b")
    w.says("b", "standby")
    eventually(lambda: w.sql(seen.replace("seen, batch", "seen > now() - interval '8s'")
                             .replace(names[1], w.sql(rows).split(",")[2])) in ("t", "f"))
    check(w.sql(rows).count(","), 2)


def backlog(port):
    """How many connections wait to be accepted."""
    with open("/proc/net/tcp", encoding="ascii") as f:
        for line in f:
            part = line.split()
            if part[1].endswith(f":{port:04X}") and part[3] == "0A":
                return int(part[4].split(":")[1], 16)
    raise Failed(f"nobody listens at {port}")


def test_connections_to_a_standby_wait_or_go(w):
    both(w)
    for _ in range(50):
        socket.create_connection(("127.0.0.1", w.port["b"])).close()
    # Who waits there is answered when it serves.
    early = socket.create_connection(("127.0.0.1", w.port["b"]))
    xid = b"\0\0\0\7"
    call = xid + b"".join(n.to_bytes(4, "big") for n in (0, 2, 100003, 4, 0, 0, 0, 0, 0))
    early.sendall((1 << 31 | len(call)).to_bytes(4, "big") + call)
    eventually(lambda: backlog(w.port["b"]) == 0, 60, "the backlog of the standby is empty")
    make_files(w.client("a"), "d", 3)
    w.drop()
    w.stop("a")
    w.serves("b")
    early.settimeout(60)
    check(early.recv(8)[4:], xid)
    early.close()
    has_files(w.client("b"), "d", 3)


def test_one_that_was_deposed_says_nothing_more(w):
    both(w)
    stands_still_and_wakes(w)


def test_a_wrong_log_is_told(w):
    refuses(w, "expected postgresql:", "mds.log=oracle:x", status=2)
    refuses(w, "others can see a password", "mds.log=postgresql:password=x", status=2)
    refuses(w, "there is no instance 77", "mds.fs=77")
    # Files of another log are not taken for this one's.
    w.start("a", "mds.log=")
    w.serves("a")
    w.stop("a")
    refuses(w, "the store has its log in files")
    shutil.rmtree(f"{w.top}/a")
    w.start("a")
    w.serves("a", 2)
    w.stop("a")
    refuses(w, "the store is a copy of a log elsewhere", "mds.log=")
    check("is there" in w.pg.init(w.inst), True)


def test_a_log_that_was_set_back_is_noticed(w):
    w.start("a")
    w.serves("a")
    make_files(w.client("a"), "d", 20)
    w.drop()
    w.stop("a")
    w.sql("delete from weft.log_$_0 where batch > (select batch - 3 from weft.instance"
          " where id = $)")
    w.sql("update weft.instance set batch = batch - 3, acked = batch - 3 where id = $")
    refuses(w, "the copy holds batch")
    # The same, but the log goes on from there: another history with the same numbers.
    shutil.copytree(f"{w.top}/a", f"{w.top}/kept")
    shutil.rmtree(f"{w.top}/a")
    w.sql("delete from weft.kv where inst = $;"
          "update weft.fold set folded = 0, head = '' where inst = $")
    w.start("a")
    w.serves("a", 2)
    make_files(w.client("a"), "other", 20)
    w.drop()
    w.stop("a")
    shutil.rmtree(f"{w.top}/a")
    os.rename(f"{w.top}/kept", f"{w.top}/a")
    refuses(w, "does not follow from what the copy holds")


def put_back(w, keep):
    """Keeps the tables of the instance, and then puts them back, as a restoration does."""
    tables = {"instance": "id = $", "fold": "inst = $", "kv": "inst = $", "log": "part / 4 = $",
              "reader": "inst = $"}
    if keep:
        w.sql("drop schema if exists kept cascade; create schema kept;" + "".join(
            f"create table kept.{t} as select * from weft.{t} where {of};"
            for t, of in tables.items()))
        return
    w.sql("".join(f"delete from weft.{t} where {of};" for t, of in
                  reversed(list(tables.items()))) +
          "".join(f"insert into weft.{t} select * from kept.{t};" for t in tables))


def test_a_database_that_was_put_back_is_served_as_a_restored_store(w):
    both(w)
    c = w.client("a")
    d = make_files(c, "d", 20)
    w.says("a", "data server 1 (ds): ")
    old = c.ok(putfh(d), lookup("f1"), getfh()).fh
    eventually(lambda: w.sql("select folded > 20 from weft.fold where inst = $") == "t",
               what="the table follows")
    make_files(c, "more", 10)
    put_back(w, True)
    late = make_files(c, "late", 20)
    w.drop()
    # The server, and not its standby, holds most.
    w.stop("b")
    w.stop("a")
    put_back(w, False)
    ident = w.sql("select ident from weft.instance where id = $")
    refuses(w, "ends before it")
    refuses(w, "remove it", args=["--restored"])
    shutil.rmtree(f"{w.top}/a")
    w.start("a", args=["--restored"])
    w.serves("a", 2)
    check("copies of the one before are refused" in w.log("a"), True, w.log("a")[-800:])
    check(f"boot {1 << 16}, incarnation 2" in w.log("a"), True, w.log("a")[-1500:])
    check(w.sql("select restored from weft.instance where id = $"), "0")
    check(w.sql("select ident from weft.instance where id = $") != ident, True, "identity")
    c = w.client("a")
    has_files(c, "d", 20)
    has_files(c, "more", 10)
    check(err(c.call(putfh(c.root()), lookup("late")).status), "NOENT")
    for fh in (old, late):
        check(err(c.call(putfh(fh), getattr_("fileid")).status), "STALE")
    # A number of before is not given again.
    new = make_files(c, "new", 5)
    check(c.attrs(new, "fileid").fileid >> 32 & 0xffff, 1, "the new line of time")
    # The copy of the other machine is of the log before.
    w.start("b")
    w.says("b", "is a copy of another log in PostgreSQL: remove the copy")
    check(w.ended("b") != 0, True, "status")
    shutil.rmtree(f"{w.top}/b")
    w.start("b")
    w.says("b", "a new copy begins with batch")
    w.drop()
    w.stop("a")
    w.serves("b")
    c = w.client("b")
    has_files(c, "new", 5)
    has_files(c, "d", 20)
    w.drop()
    w.stop("b")
    # An attempt that did not come to its end.
    w.sql("update weft.instance set restored = 1 where id = $")
    w.start("a")
    w.says("a", "it was put back to an earlier time: start weft-mds once with --restored")
    w.stop("a")
    w.start("a", args=["--restored=only"])
    check(w.ended("a"), 0, w.log("a")[-800:])
    w.start("a")
    w.serves("a", 3)
    has_files(w.client("a"), "new", 5)


def verify(w, *more, user="postgres"):
    got = subprocess.run([program("weft"), "pg", "verify", *more, "--instance", str(w.inst),
                          f"host={w.pg.dir}/p dbname=postgres user={user}"],
                         capture_output=True, text=True, timeout=120, check=False,
                         env=environment("weft"))
    return got.returncode, got.stdout + got.stderr


def finds(w, fault, text):
    """A fault that is planted is found; then it is taken away."""
    put_back(w, True)
    w.sql(fault)
    rc, said = verify(w, "--store", f"{w.top}/a")
    check((rc, "WRONG: " in said and text in said), (1, True), f"{text}: {said}")
    put_back(w, False)


def test_verify_finds_what_is_wrong(w):
    same = f"the copy in {w.top}/a has the same pairs"
    # Nothing is folded: all is in the log.
    w.sql("revoke update on weft.fold from weft")
    try:
        w.start("a")
        w.serves("a")
        make_files(w.client("a"), "d", 20)
        w.drop()
        rc, said = verify(w, user="weft")
        check((rc, said.count("sound: ")), (0, 3), said)
        w.stop("a")
        rc, said = verify(w, "--store", f"{w.top}/a")
        check((rc, same in said, "the log has batches 1 to" in said), (0, True, True), said)
        finds(w, "update weft.log set data = set_byte(data, 99, get_byte(data, 99) # 1)"
                 " where part / 4 = $ and batch = 5", "batch 5 of the log is damaged")
        finds(w, "update weft.log l set data = (select data from weft.log where part / 4 = $ and"
                 " batch = 6) where part / 4 = $ and batch = 5",
              "batch 5 of the log does not follow from the one before it")
        finds(w, "delete from weft.log where part / 4 = $ and batch = 5",
              "batch 5 of the log is not there")
        finds(w, "update weft.instance set batch = batch + 1 where id = $", "should have all from")
        finds(w, "with b as (select max(batch) - 3 as m from weft.log where part / 4 = $),"
                 " d as (delete from weft.log using b where part / 4 = $ and batch > m)"
                 " update weft.instance set batch = m, acked = m from b where id = $",
              ", and the log ends at")
        finds(w, "update weft.instance set ident = gen_random_uuid() where id = $",
              "batch 1 of the log is damaged, or is one of another log")
    finally:
        w.sql("grant update on weft.fold to weft")
    w.start("a")
    w.serves("a", 2)
    eventually(lambda: w.sql("select count(*) > 20 from weft.kv where inst = $") == "t",
               what="the table follows")
    w.stop("a")
    rc, said = verify(w, "--store", f"{w.top}/a")
    check((rc, same in said), (0, True), said)
    finds(w, "update weft.kv set v = v || 'x' where inst = $ and k = (select k from weft.kv"
             " where inst = $ order by k limit 1)", "is not what table and log make of batch")
    finds(w, "update weft.fold set head = '' where inst = $", "does not say which batch")
    rc, said = verify(w, "--json", "--store", f"{w.top}/a")
    check((rc, json.loads(said)["sound"]), (0, True), said)
    # A copy that was stopped first is behind the table, and that is no fault.
    shutil.copytree(f"{w.top}/a", f"{w.top}/earlier")
    w.start("a")
    w.serves("a", 3)
    make_files(w.client("a"), "more", 20)
    w.drop()
    folded = f"select folded >= {int(w.sql('select batch from weft.instance where id = $'))}" \
        " from weft.fold where inst = $"
    eventually(lambda: w.sql(folded) == "t", what="the table follows")
    w.stop("a")
    rc, said = verify(w, "--store", f"{w.top}/earlier")
    check((rc, "WRONG" in said, f"not compared: the copy in {w.top}/earlier holds" in said),
          (3, False, True), said)
    rc, said = verify(w, "--json", "--store", f"{w.top}/earlier")
    got = json.loads(said)
    check((rc, got["sound"], got["looked_at"][-1]["sound"]), (3, True, None), said)
    rc, said = verify(w, "--store", f"{w.top}/a")
    check((rc, same in said), (0, True), said)


def weft(*args):
    done = subprocess.run([program("weft"), *args], capture_output=True, text=True, timeout=120,
                          check=False, env=environment("weft"))
    check(done.returncode, 0, f"weft {args}: {done.stdout}{done.stderr}")
    return done.stdout


def test_a_backup_becomes_a_store_without_postgresql(w):
    w.start("a")
    w.serves("a")
    make_files(w.client("a"), "d", 20)
    w.drop()
    weft("backup", "--store", f"{w.top}/a", f"{w.top}/backup")
    row = "select epoch, batch, owner from weft.instance where id = $"
    w.stop("a")
    was = w.sql(row)
    shutil.rmtree(f"{w.top}/a")
    weft("restore", "--store", f"{w.top}/a", f"{w.top}/backup")
    # It has its log in files: PostgreSQL's gets nothing of it.
    refuses(w, "remove it", args=["--restored=only"])
    check(w.sql(row), was)
    w.start("a", "mds.log=", args=["--restored=only"])
    check(w.ended("a"), 0, w.log("a")[-800:])
    w.start("a", "mds.log=")
    w.serves("a", 2)
    has_files(w.client("a"), "d", 20)
    check(w.sql(row), was)


def test_what_cannot_serve_takes_nothing(w):
    w.start("a")
    w.serves("a")
    make_files(w.client("a"), "d", 20)
    w.drop()
    w.stop("a")
    row = w.sql("select epoch, owner from weft.instance where id = $")
    refuses(w, f"mds.fs or mds.cluster: the store is that of file system {w.inst}",
            f"mds.cluster={'6' * 32}")
    refuses(w, "mds.near: ", "mds.near=127.0.0.0/99 rack=r1", status=2)
    # Its copy holds more than the log.
    w.sql("delete from weft.log_$_0 where batch > (select batch - 3 from weft.instance"
          " where id = $)")
    w.sql("update weft.instance set batch = batch - 3, acked = batch - 3 where id = $")
    refuses(w, "ends before it")
    check(w.sql("select epoch, owner from weft.instance where id = $"), row)
    # Also beside one that serves: it says so, and does not stand by. The table may have had what
    # the log has lost.
    w.sql("delete from weft.kv where inst = $;"
          "update weft.fold set folded = 0, head = '' where inst = $")
    w.start("b")
    w.serves("b")
    refuses(w, "the copy")
    has = w.sql("select epoch from weft.instance where id = $")
    shutil.rmtree(f"{w.top}/a")
    w.start("a")
    w.says("a", "standby: another process holds instance")
    w.kill("b")
    w.serves("a", 2)
    check(int(w.sql("select epoch from weft.instance where id = $")), int(has) + 1)


def test_what_fails_before_it_serves_gives_the_instance_up(w):
    owner = "select epoch, owner from weft.instance where id = $"
    with open(f"{w.top}/keytab", "wb") as f:
        f.write(b"no keys")
    refuses(w, "mds.keytab: ", f"mds.keytab={w.top}/keytab")
    # PostgreSQL may do what it was told only after the process has ended.
    eventually(lambda: w.sql(owner) == "1|", 60, "a process that did not come to its last thread")
    with socket.socket() as port:
        port.bind(("127.0.0.1", 0))
        port.listen()
        refuses(w, "mds.metrics: ", f"mds.metrics=127.0.0.1:{port.getsockname()[1]}", status=1)
    eventually(lambda: w.sql(owner) == "2|", 60, "one that had its threads")
    check("serving: boot" in w.log("a"), False)
    w.start("a")
    w.serves("a")


def test_what_cannot_serve_does_not_wait_for_an_append_that_is_refused(w):
    # PostgreSQL takes all up to the event that says that the server has started.
    w.sql("create function weft.no_room() returns trigger language plpgsql as 'begin"
          " if position(''boot 1''::bytea in new.data) > 0 then raise exception ''no room'';"
          " end if; return new; end';"
          "create trigger no_room before insert on weft.log for each row"
          " when (new.part / 4 = $) execute function weft.no_room()")
    try:
        with socket.socket() as port:
            port.bind(("127.0.0.1", 0))
            port.listen()
            refuses(w, "mds.metrics: ", f"mds.metrics=127.0.0.1:{port.getsockname()[1]}")
        check("PostgreSQL is away" in w.log("a") and "no room" in w.log("a"), True, w.log("a"))
        w.says("a", "does not answer: stopping without it")
    finally:
        w.sql("drop function weft.no_room cascade")
    w.start("a")
    w.serves("a")


def test_a_row_that_is_gone_ends_the_process(w):
    w.start("a")
    w.serves("a")
    make_files(w.client("a"), "d", 2)
    w.sql("delete from weft.fold where inst = $; delete from weft.reader where inst = $;"
          "delete from weft.instance where id = $")
    check(w.ended("a") != 0, True, "status")
    w.says("a", "its row is gone")


@contextlib.contextmanager
def around(pg):
    w = World(pg, next(INSTANCES))
    try:
        w.ds()
        yield (w,)
    except BaseException:
        for one in "ab":
            print("\n".join(f"# {one}: {line}" for line in w.log(one).splitlines()[-12:]))
        raise
    finally:
        # A test that failed may have left it so.
        for one in ("p", "s1", "s2"):
            pg("resume", one)
        w.down()


def main():
    skip = missing()
    if skip:
        return tap.skip(skip)
    pg = Postgres()
    try:
        return tap.run(tap.named(globals()), lambda name: around(pg))
    finally:
        pg.down()


if __name__ == "__main__":
    main()
