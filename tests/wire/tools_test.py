#!/usr/bin/python3
"""What administrators look at and take away: clients, layouts, files, attributes, events, load. Real daemons; prints TAP."""
import contextlib
import json
import os
import re
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import mds_test  # noqa: E402
import tap  # noqa: E402
from mds_test import *  # noqa: E402,F403
from nfs41 import err  # noqa: E402

MB = 1 << 20
admin = None


def weft(*args, rc=0, **how):
    done = subprocess.run([os.path.join(BUILD, "weft"), "--admin", admin, *args], capture_output=True, text=True, timeout=40, check=False, **how)
    check(done.returncode, rc, f"weft {' '.join(args)}: {done.stdout[-300:]} {done.stderr[-300:]}")
    return done.stdout if rc == 0 else done.stderr


def asked(*args):
    return json.loads(weft("--json", *args))


def numbered(c):
    """This client as weft client list shows it, or None."""
    want = f"0x{c.clientid:016x}"
    return next((x for x in asked("client", "list")["clients"] if x["clientid"] == want), None)


def listed(c):
    got = numbered(c)
    check(got is not None, True, "the client is listed")
    return got


def made(name, policy=None, **how):
    """A client with a file in a directory of its own: client, directory, file handle, open stateid."""
    c = client(**how)
    d = c.mkdir(c.root(), name)
    if policy:
        c.ok(putfh(d), setxattr("weft.policy", policy))
    sid, fh = c.open(d, "f")
    return c, d, fh, sid


# ---- clients


def test_client_list_tells_what_each_holds(w):
    c, d, fh, sid = made("held", owner=b"Linux NFSv4.2 rack1/node7")
    lay(c, fh, sid)
    c.ok(putfh(fh), lock(sid, 2, 0, 10, owner=b"lo"))
    got = listed(c)
    check({k: got[k] for k in ("name", "owner", "state", "minor", "opens", "locks", "delegations", "layouts", "sessions", "backchannels", "flavour", "tls", "addr", "principal")},
          {"name": "node7", "owner": "Linux NFSv4.2 rack1/node7", "state": "active", "minor": 2, "opens": 1, "locks": 1, "delegations": 0, "layouts": 1, "sessions": 1,
           "backchannels": 1, "flavour": "sys", "tls": "no", "addr": ["127.0.0.1"], "principal": None})
    check(got["number"] > 0 and 0 < got["lease_left"] <= asked("client", "list")["lease"], True, got)
    line = next(line for line in weft("client", "list").splitlines() if " node7 " in line)
    check(line.split()[:3], [str(got["number"]), "node7", "active"])
    check(line.split()[-2:], ["sys", "127.0.0.1"])


def test_a_name_that_is_no_text_is_shown_all_the_same(w):
    c = client(owner=b"\xff\x00<b>\\", minor=1)
    check((listed(c)["name"], listed(c)["minor"]), ("\\xff\\x00<b>\\x5c", 1))


def test_an_expired_client_is_courteous(w):
    c, d, fh, sid = made("late")
    eventually(lambda: listed(c)["state"] == "courteous", 6, "the end of its lease")
    check(listed(c)["lease_left"], 0)
    check(re.search(rf"^ *{listed(c)['number']} .* courteous +-\d+s ", weft("client", "list"), re.M) is not None, True)
    c.ok(putfh(fh), getattr_("size"))
    check(listed(c)["state"], "active", "it lives on")


def test_evict_takes_everything_and_fences(w):
    c, d, fh, sid = made("evict")
    got = lay(c, fh, sid)
    ds = data_server(c, got.mirrors[0][0])
    check(ds.write(got.mirrors[0][0].fhs[0], 0, b"before").status, 0)
    number = listed(c)["number"]
    check(re.search(rf"client {number} .* is evicted", weft("client", "evict", str(number))) is not None, True)
    check(numbered(c), None)
    check(err_nfs3(ds.write(got.mirrors[0][0].fhs[0], 0, b"after").status), "ACCES", "its capabilities are worth nothing")
    check(err(c.call(putfh(fh)).status), "BADSESSION")
    check("no such client" in weft("client", "evict", str(number), rc=1), True)
    again(w)
    n = client(owner=c.owner, verifier=c.verifier)
    check(listed(n)["number"] > number, True, "durable: it does not come back as who it was")


def again(w):
    """The metadata server is killed and starts again; grace is over."""
    w.restart()
    eventually(lambda: not asked("status")["grace"], 8, "the end of grace")


def err_nfs3(status):
    return {0: "OK", 13: "ACCES", 70: "STALE"}.get(status, str(status))


def test_clients_are_named_in_several_ways(w):
    c = client(owner=b"Linux NFSv4.2 solo")
    d = client(owner=b"Linux NFSv4.1 a/twin")
    e = client(owner=b"Linux NFSv4.1 b/twin")
    told = weft("client", "evict", "twin", rc=1)
    check("2 clients are called that" in told, True, told)
    check("clients are called that" in weft("client", "evict", "127.0.0.1", rc=1), True)
    for bad in ("nobody", "0", "-1", "1x", "0xzz", "99999999999999999999"):
        check("no such client" in weft("client", "evict", "--", bad, rc=1), True, bad)
    check("expected a client" in weft("client", "evict", "", rc=1), True)
    check(asked("client", "evict", "solo")["state"], "evicted")
    check(numbered(c), None)
    weft("client", "evict", f"0x{d.clientid:016x}")
    weft("client", "evict", "twin")
    check((numbered(d), numbered(e)), (None, None))


# ---- layouts


def test_layout_list_by_file_client_and_server(w):
    c, d, fh, sid = made("lists", "stripes=2", owner=b"Linux NFSv4.2 lists")
    sid2, fh2 = c.open(d, "g")
    lay(c, fh, sid)
    lay(c, fh2, sid2, IO_READ)
    r = client(owner=b"Linux NFSv4.2 reader")
    rsid, _ = r.open(d, "f", how=None, acc=READ | NO_DELEG)
    lay(r, fh, rsid, IO_READ)
    rows = asked("layout", "list", "/lists/f")["layouts"]
    check(sorted((x["name"], x["mode"], x["path"], x["recalled"]) for x in rows),
          [("lists", "write", "/lists/f", False), ("reader", "read", "/lists/f", False)])
    check(all(len(x["ds"]) == 2 for x in rows), True, rows)
    mine = asked("layout", "list", "--client", "lists")["layouts"]
    check(sorted((x["path"], x["mode"]) for x in mine), [("/lists/f", "write"), ("/lists/g", "read")])
    on = rows[0]["ds"][0]
    check({x["path"] for x in asked("layout", "list", "--ds", on)["layouts"]} >= {"/lists/f"}, True)
    off = next(s["name"] for s in asked("ds", "list")["ds"] if s["name"] not in rows[0]["ds"])
    check(asked("layout", "list", "--ds", off, "/lists/f")["known"], 0)
    check(re.search(r"^ *\d+ +reader +read +no +\d+ +ds\d,ds\d +/lists/f$", weft("layout", "list"), re.M) is not None, True)
    check("no such client" in weft("layout", "list", "--client", "nobody", rc=1), True)
    check("no such data server" in weft("layout", "list", "--ds", "ds99", rc=1), True)
    check("no such file" in weft("layout", "list", "/lists/none", rc=1), True)
    check("has no option" in weft("layout", "recall", "--ds", on, "/lists/f", rc=2), True)


def test_a_renamed_file_is_listed_where_it_is(w):
    c, d, fh, sid = made("from")
    to = c.mkdir(c.root(), "to")
    lay(c, fh, sid)
    c.ok(putfh(d), savefh(), putfh(to), rename("f", "elsewhere"))
    check([x["path"] for x in asked("layout", "list", "--client", f"0x{c.clientid:016x}")["layouts"]], ["/to/elsewhere"])


def test_recall_asks_and_then_fences(w):
    c, d, fh, sid = made("recall")
    got = lay(c, fh, sid)

    def give_back(name, args):
        if name == "CB_LAYOUTRECALL":
            threading.Timer(0.2, lambda: c.call(putfh(fh), layoutreturn(got.stateid))).start()
        return 0
    c.on_callback = give_back
    check(weft("layout", "recall", "/recall/f"), "1 layouts are back\n")
    check(asked("layout", "list", "/recall/f")["known"], 0)
    check(weft("layout", "recall", "/recall/f"), "0 layouts are back\n", "it can be repeated")
    c.on_callback = lambda name, args: 0  # it says yes, and keeps it
    got = settled(c, fh, sid)
    ds = data_server(c, got.mirrors[0][0])
    check(ds.write(got.mirrors[0][0].fhs[0], 0, b"x").status, 0)
    check(asked("layout", "recall", "/recall/f"), {"path": "/recall/f", "recalled": 1})
    check(err_nfs3(ds.write(got.mirrors[0][0].fhs[0], 0, b"y").status), "ACCES")
    check(asked("layout", "list", "/recall/f")["known"], 0)
    check("not a regular file" in weft("layout", "recall", "/recall", rc=1), True)


def settled(c, f, sid, iomode=IO_RW):
    """A layout, whoever is at work on the file now."""
    c.until(lambda got: err(got.status) not in ("LAYOUTTRYLATER", "RECALLCONFLICT", "DELAY", "GRACE"), putfh(f), layoutget(sid, iomode), tries=200)
    return lay(c, f, sid, iomode)


# ---- the journal


def events(*args):
    return [json.loads(line) for line in weft("--json", "events", *args).splitlines()]


def seen(kind, *args):
    return [e for e in events(*args) if e["kind"] == kind]


def test_events_tell_of_starts_servers_and_policies(w):
    eventually(lambda: seen("started"), 3, "the first event")
    check({e["subject"] for e in seen("ds-joined")} >= {"ds1", "ds2", "ds3", "ds4"}, True)
    c = client()
    c.mkdir(c.root(), "noted")
    weft("policy", "set", "/noted", "stripes=2")
    weft("ds", "weight", "ds1", "2")
    weft("ds", "weight", "ds1", "1")
    weft("exports", "reload")
    eventually(lambda: seen("exports-reloaded"), 3, "the reload")
    check([(e["subject"], e["text"]) for e in seen("policy-set")][-1], ("/noted", "stripes=2,unit=1M,mirrors=1"))
    check([e["text"] for e in seen("ds-changed")][-2:], ["weight 2", "weight 1"])
    rows = events()
    check([e["seq"] for e in rows], sorted(e["seq"] for e in rows))
    check(re.search(r"^20\d\d-\d\d-\d\d \d\d:\d\d:\d\d  policy-set +/noted +stripes=2,unit=1M,mirrors=1$", weft("events"), re.M) is not None, True)


def test_events_are_chosen_by_time_kind_and_number(w):
    weft("exports", "reload")
    eventually(lambda: seen("exports-reloaded", "--since", "10s"), 3, "the reload")
    check({e["kind"] for e in events("--kind", "exports-reloaded")}, {"exports-reloaded"})
    check(len(events("-n", "2")), 2)
    check(events("-n", "1"), events()[-1:])
    check(events("--since", "2099-01-01"), [])
    check(len(events("--since", "1w")) >= len(events("--since", "10s")) > 0, True)
    check(len(events("--since", "2020-01-31 12:00")), len(events("--since", "2020-01-31")))
    for bad in ("soon", "10", "5x", "2030-13-01", "-5m", ""):
        check("TIME is" in weft("events", f"--since={bad}", rc=2), True, bad)
    check("no such kind" in weft("events", "--kind", "party", rc=1), True)
    for bad in ("0", "-1", "x", "99999999999999999999999"):
        check("last: expected a number" in weft("events", f"--last={bad}", rc=1), True, bad)


def test_events_follow(w):
    with subprocess.Popen([os.path.join(BUILD, "weft"), "--admin", admin, "--json", "events", "-f", "-n", "1"], stdout=subprocess.PIPE, text=True) as p:
        try:
            json.loads(p.stdout.readline())
            weft("ds", "weight", "ds2", "3")
            while True:
                e = json.loads(p.stdout.readline())
                if e["kind"] == "ds-changed":
                    break
            check((e["subject"], e["text"]), ("ds2", "weight 3"))
        finally:
            p.kill()
    weft("ds", "weight", "ds2", "1")


def test_a_stale_copy_is_in_the_journal_before_its_report_is_answered(w):
    c, d, fh, sid = made("journal", "mirrors=2")
    c.ok(putfh(fh), write(sid, 0, b"x" * 1000, FILE_SYNC))
    got = lay(c, fh, sid)
    name = asked("file", "show", "/journal/f")["mirrors"][0]["objects"][0]["ds"]
    c.ok(putfh(fh), layouterror(got.stateid, [(got.mirrors[0][0].deviceid, 5, NUM["WRITE"])]))
    w.dev("kill", w.dir, "mds", "-9")
    w.dev("start", w.dir, "mds")
    stale = seen("copy-stale")
    check([(e["path"], e["text"]) for e in stale][-1], ("/journal/f", "1 object became stale"))
    check(stale[-1]["subject"] in {m["objects"][0]["ds"] for m in asked("file", "show", "/journal/f")["mirrors"]} | {name}, True)
    eventually(lambda: [e for e in seen("copy-repaired") if e["path"] == "/journal/f"], 15, "the repair")
    eventually(lambda: seen("grace-ended", "--since", "20s"), 5, "the end of grace")


def test_fences_and_evictions_are_in_the_journal(w):
    c, d, fh, sid = made("fenced", owner=b"Linux NFSv4.2 fenced")
    settled(c, fh, sid)
    weft("layout", "recall", "/fenced/f")
    weft("client", "evict", "fenced")
    eventually(lambda: [e for e in seen("client-evicted") if e["text"].endswith("the administrator wanted it") and "fenced" in e["subject"]], 3, "the eviction")
    check([e["path"] for e in seen("layout-fenced")][-1], "/fenced/f")


SETTINGS_HERE = ["mds.lease=2s", "mds.recall_deadline=1s", "mds.grace=1s"]


def main():
    if not tap.built("weft", "weft-mds", "weft-ds"):
        tap.skip("the programs are not built")
        return
    os.environ.pop("WEFT_ADMIN", None)
    mds_test.THE = w = Cluster(settings=SETTINGS_HERE)
    rows = json.loads(w.dev("status", w.dir, "--json"))["daemons"]
    global admin
    admin = next(r["admin"] for r in rows if r["name"] == "mds")

    @contextlib.contextmanager
    def around(_name):
        try:
            yield (w,)
        finally:
            while mds_test.CLIENTS:
                mds_test.CLIENTS.pop().drop()
    try:
        tap.run(tap.named(globals()), around)
    finally:
        w.down()


if __name__ == "__main__":
    main()
