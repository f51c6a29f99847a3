#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""What administrators look at and take away: clients, layouts, files, attributes, events, load.
Uses real daemons; prints TAP."""
import contextlib
import json
import os
import re
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../wirelib"))
import harness  # noqa: E402
import tap  # noqa: E402
from harness import *  # noqa: E402,F403
from steps import data_server, lay, settled  # noqa: E402
from nfs41 import err  # noqa: E402

MB = 1 << 20
admin = None


def weft(*args, rc=0, **how):
    done = subprocess.run([os.path.join(BUILD, "weft"), "--admin", admin, *args],
                          capture_output=True, text=True, timeout=60, check=False, **how)
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
    """A client with a file in a directory of its own: client, directory, file handle, open
    stateid."""
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
    check({k: got[k] for k in ("name", "owner", "state", "minor", "opens", "locks", "delegations",
                               "layouts", "sessions", "backchannels", "flavour", "tls", "addr",
                               "principal")},
          {"name": "node7", "owner": "Linux NFSv4.2 rack1/node7", "state": "active", "minor": 2,
           "opens": 1, "locks": 1, "delegations": 0, "layouts": 1, "sessions": 1, "backchannels": 1,
           "flavour": "sys", "tls": "no", "addr": ["127.0.0.1"], "principal": None})
    check(got["number"] > 0 and 0 < got["lease_left_s"] <= asked("client", "list")["lease_s"], True,
          got)
    line = next(line for line in weft("client", "list").splitlines() if " node7 " in line)
    check(line.split()[:3], [str(got["number"]), "node7", "active"])
    check(line.split()[-2:], ["sys", "127.0.0.1"])


def test_a_name_that_is_no_text_is_shown_all_the_same(w):
    c = client(owner=b"\xff\x00<b>\\", minor=1)
    check((listed(c)["name"], listed(c)["minor"]), ("\\xff\\x00<b>\\x5c", 1))


def test_an_expired_client_is_courteous(w):
    c, d, fh, sid = made("late")
    eventually(lambda: listed(c)["state"] == "courteous", 15, "the end of its lease")
    check(listed(c)["lease_left_s"], 0)
    check(re.search(rf"^ *{listed(c)['number']} .* courteous +-\d+s ", weft("client", "list"),
                    re.M) is not None, True)
    c.ok(putfh(fh), getattr_("size"))
    check(listed(c)["state"], "active", "it lives on")


def test_evict_takes_everything_and_fences(w):
    c, d, fh, sid = made("evict")
    got = lay(c, fh, sid)
    ds = data_server(c, got.mirrors[0][0])
    check(ds.write(got.mirrors[0][0].fhs[0], 0, b"before").status, 0)
    number = listed(c)["number"]
    check(re.search(rf"client {number} .* is evicted",
                    weft("client", "evict", str(number))) is not None, True)
    check(numbered(c), None)
    check(err_nfs3(ds.write(got.mirrors[0][0].fhs[0], 0, b"after").status), "ACCES",
          "its capabilities are worth nothing")
    check(err(c.call(putfh(fh)).status), "BADSESSION")
    check("no such client" in weft("client", "evict", str(number), rc=1), True)
    again(w)
    n = client(owner=c.owner, verifier=c.verifier)
    check(listed(n)["number"] > number, True, "durable: it does not come back as who it was")


def again(w):
    """Kills the metadata server and starts it again. Grace is over."""
    w.restart()
    eventually(lambda: not asked("status")["grace"], 8, "the end of grace")


def err_nfs3(status):
    return {0: "OK", 13: "ACCES", 70: "STALE"}.get(status, str(status))


def test_clients_are_named_in_several_ways(w):
    # The server does not forget a client that holds something, however long the commands take.
    c, d, e = (made(name, owner=owner)[0] for name,
               owner in (("solo", b"Linux NFSv4.2 solo"), ("twin1", b"Linux NFSv4.1 a/twin"),
                         ("twin2", b"Linux NFSv4.1 b/twin")))
    told = weft("client", "evict", "twin", rc=1)
    check("2 clients have that name" in told, True, told)
    check("clients have that name" in weft("client", "evict", "127.0.0.1", rc=1), True)
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
    check(sorted((x["path"], x["mode"]) for x in mine),
          [("/lists/f", "write"), ("/lists/g", "read")])
    on = rows[0]["ds"][0]
    check({x["path"] for x in asked("layout", "list", "--ds", on)["layouts"]} >= {"/lists/f"}, True)
    off = next(s["name"] for s in asked("ds", "list")["ds"] if s["name"] not in rows[0]["ds"])
    check(asked("layout", "list", "--ds", off, "/lists/f")["known"], 0)
    check(re.search(r"^ *\d+ +reader +read +no +\d+ +ds\d,ds\d +/lists/f$", weft("layout", "list"),
                    re.M) is not None, True)
    check("no such client" in weft("layout", "list", "--client", "nobody", rc=1), True)
    check("no such data server" in weft("layout", "list", "--ds", "ds99", rc=1), True)
    check("no such file" in weft("layout", "list", "/lists/none", rc=1), True)
    check("has no option" in weft("layout", "recall", "--ds", on, "/lists/f", rc=2), True)


def test_a_renamed_file_is_listed_where_it_is(w):
    c, d, fh, sid = made("from")
    to = c.mkdir(c.root(), "to")
    lay(c, fh, sid)
    c.ok(putfh(d), savefh(), putfh(to), rename("f", "elsewhere"))
    check([x["path"] for x in asked("layout", "list", "--client",
                                    f"0x{c.clientid:016x}")["layouts"]], ["/to/elsewhere"])


def test_recall_asks_and_then_fences(w):
    c, d, fh, sid = made("recall")
    got = lay(c, fh, sid)

    def give_back(name, args):
        if name == "LAYOUTRECALL":
            threading.Timer(0.2, lambda: c.call(putfh(fh), layoutreturn(got.stateid))).start()
        return 0
    c.on_callback = give_back
    check(weft("layout", "recall", "/recall/f"), "1 layouts were returned or fenced\n")
    check([e for e in seen("layout-fenced") if e["path"] == "/recall/f"], [], "nothing was fenced")
    check(asked("layout", "list", "/recall/f")["known"], 0)
    check(weft("layout", "recall", "/recall/f"), "0 layouts were returned or fenced\n",
          "it can be repeated")
    c.on_callback = lambda name, args: 0  # it says yes, and keeps it
    got = settled(c, fh, sid)
    ds = data_server(c, got.mirrors[0][0])
    check(ds.write(got.mirrors[0][0].fhs[0], 0, b"x").status, 0)
    check(asked("layout", "recall", "/recall/f"), {"path": "/recall/f", "recalled": 1})
    check(err_nfs3(ds.write(got.mirrors[0][0].fhs[0], 0, b"y").status), "ACCES")
    check(asked("layout", "list", "/recall/f")["known"], 0)
    check("not a regular file" in weft("layout", "recall", "/recall", rc=1), True)


# ---- the journal


def events(*args):
    return [json.loads(line) for line in weft("--json", "events", *args).splitlines()]


def seen(kind, *args):
    return [e for e in events(*args) if e["kind"] == kind]


def test_events_tell_of_starts_servers_and_policies(w):
    eventually(lambda: seen("started"), what="the first event")
    check({e["subject"] for e in seen("ds-joined")} >= {"ds1", "ds2", "ds3", "ds4"}, True)
    c = client()
    c.mkdir(c.root(), "noted")
    weft("policy", "set", "/noted", "stripes=2")
    weft("ds", "weight", "ds1", "2")
    weft("ds", "weight", "ds1", "1")
    weft("exports", "reload")
    eventually(lambda: seen("exports-reloaded"), what="the reload")
    check([(e["subject"], e["text"]) for e in seen("policy-set")][-1],
          ("/noted", "stripes=2,unit=1M,mirrors=1"))
    check([e["text"] for e in seen("ds-changed")][-2:], ["weight 2", "weight 1"])
    rows = events()
    check([e["seq"] for e in rows], sorted(e["seq"] for e in rows))
    check(re.search(
        r"^20\d\d-\d\d-\d\d \d\d:\d\d:\d\d  policy-set +/noted +stripes=2,unit=1M,mirrors=1$",
        weft("events"), re.M) is not None, True)


def test_events_are_chosen_by_time_kind_and_number(w):
    weft("exports", "reload")
    eventually(lambda: seen("exports-reloaded", "--since", "10m"), what="the reload")
    check({e["kind"] for e in events("--kind", "exports-reloaded")}, {"exports-reloaded"})
    check(len(events("-n", "2")), 2)
    # The file's watcher may report one more between the two.
    eventually(lambda: events("-n", "1") == events()[-1:], 60, "the last event alone")
    check(events("--since", "2099-01-01"), [])
    # A span ends now: what is older than it is not there, however long it takes to ask.
    old = seen("exports-reloaded")[-1]["seq"]
    eventually(lambda: old not in [e["seq"] for e in events("--since", "1s")], 60,
               "an event that is older than a second")
    check(old in [e["seq"] for e in events("--since", "1w")], True)
    check(len(events("--since", "1w")) >= len(events("--since", "10m")) > 0, True)
    check(len(events("--since", "2020-01-31 12:00")), len(events("--since", "2020-01-31")))
    for bad in ("soon", "10", "5x", "2030-13-01", "-5m", ""):
        check("TIME is" in weft("events", f"--since={bad}", rc=2), True, bad)
    check("no such kind" in weft("events", "--kind", "party", rc=1), True)
    for bad in ("0", "-1", "x", "99999999999999999999999"):
        check("last: expected a number" in weft("events", f"--last={bad}", rc=1), True, bad)


def test_events_follow(w):
    with subprocess.Popen([os.path.join(BUILD, "weft"), "--admin", admin, "--json", "events", "-f",
                           "-n", "1"], stdout=subprocess.PIPE, text=True) as p:
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
    check(stale[-1]["subject"] in {m["objects"][0]["ds"] for m in asked(
        "file", "show", "/journal/f")["mirrors"]} | {name}, True)
    eventually(lambda: [e for e in seen("copy-repaired") if e["path"] == "/journal/f"], 15,
               "the repair")
    eventually(lambda: seen("grace-ended", "--since", "20s"), 5, "the end of grace")


def test_fences_and_evictions_are_in_the_journal(w):
    c, d, fh, sid = made("fenced", owner=b"Linux NFSv4.2 fenced")
    settled(c, fh, sid)
    weft("layout", "recall", "/fenced/f")
    weft("client", "evict", "fenced")
    eventually(lambda: [e for e in seen("client-evicted")
                        if e["text"].endswith("the administrator evicted it")
                        and "fenced" in e["subject"]],
               what="the eviction")
    check([e["path"] for e in seen("layout-fenced")][-1], "/fenced/f")


# ---- find


def test_find_by_server_state_and_policy(w):
    c = client()
    top = c.mkdir(c.root(), "find")
    many = c.mkdir(top, "many")
    c.ok(putfh(many), setxattr("weft.policy", "stripes=2,mirrors=2"))
    deep = top
    for name in ("a", "b", "\u00e4 \n"):
        deep = c.mkdir(deep, name)
    want = {}
    for d, path in ((top, "/find"), (many, "/find/many"), (deep, "/find/a/b/\\xc3\\xa4 \\x0a")):
        for i in range(3):
            c.open(d, f"f{i}")
            want[f"{path}/f{i}"] = None
    rows = [json.loads(line) for line in weft("--json", "find", "/find", "--policy",
                                              "unit=1M").splitlines()]
    check(sorted(r["path"] for r in rows if r["type"] == "file"), sorted(want), "every file")
    check([r["path"] for r in rows if r["type"] == "directory"], ["/find/many"])
    for s in ("ds1", "ds2", "ds3", "ds4"):
        on = {r["path"] for r in rows if s in {o["ds"] for o in r["objects"]}}
        check(set(weft("find", "/find", "--on-ds", s).splitlines()), on, s)
    check(weft("find", "/find", "--stale"), "")
    check(sorted(weft("find", "--policy", "mirrors=2,stripes=2", "/find").splitlines()),
          ["/find/many"] + [f"/find/many/f{i}" for i in range(3)])
    check(weft("find", "/find", "--policy", "mirrors=2,stripes=3"), "")
    check(weft("find", "/find/many/f1", "--policy", "mirrors=2"), "/find/many/f1\n")
    check(set(weft("find", "/find", "--policy", "mirrors=2", "--on-ds", "ds1").splitlines())
          <= {f"/find/many/f{i}" for i in range(3)}, True, "directories lie on no server")
    sid, fh = c.open(many, "f0")
    got = lay(c, fh, sid)
    # It returns the layout at once: the server waits for that no longer than a recall's deadline.
    # Nothing repairs the file before it is found.
    weft("set", "mds.repair_files=0")
    c.ok(putfh(fh), layouterror(got.stateid, [(got.mirrors[0][0].deviceid, 5, NUM["WRITE"])]),
         layoutreturn(got.stateid))
    check(weft("find", "/find", "--stale"), "/find/many/f0  (1 of 4 objects)\n")
    weft("set", "mds.repair_files=2")
    check("no condition" in weft("find", "/find", rc=2), True)
    check("mirrors" in weft("find", "--policy", "mirror=2", rc=1), True)
    check("no such data server" in weft("find", "--on-ds", "ds9", rc=1), True)
    check("no such file" in weft("find", "/none", "--stale", rc=1), True)


def ask(target, status=200):
    import http.client
    import socket
    conn = http.client.HTTPConnection("localhost", timeout=60)
    conn.sock = socket.socket(socket.AF_UNIX)
    conn.sock.connect(admin[5:])
    conn.request("GET", target)
    reply = conn.getresponse()
    check(reply.status, status, target)
    return json.loads(reply.read())


def test_find_goes_on_from_a_cursor_and_over_changes(w):
    c = client()
    top = c.mkdir(c.root(), "walk")
    dirs = [c.mkdir(top, f"d{i}") for i in range(3)]
    for d in dirs:
        for i in range(300):
            c.ok(putfh(d), open_(f"f{i}", BOTH, how=UNCHECKED, attrs={"mode": 0o644}, owner=b"o"),
                 getfh())
    page = ask("/v1/find?path=/walk&policy=mirrors=1")
    check((len(page["found"]), page["cursor"] is not None), (500, True), "an answer is bounded")
    rest = ask(f"/v1/find?path=/walk&policy=mirrors=1&cursor={page['cursor']}")
    check((len(rest["found"]), rest["cursor"]), (400, None))
    check(len({f["path"] for f in page["found"] + rest["found"]}), 900, "each of them once")
    # A program removes the directory that the walk is in: the walk finds all the rest.
    at = page["found"][-1]["path"].split("/")[2]
    for i in range(300):
        c.call(putfh(dirs[int(at[1])]), remove(f"f{i}"))
    c.ok(putfh(top), remove(at))
    rest = ask(f"/v1/find?path=/walk&policy=mirrors=1&cursor={page['cursor']}")
    check(len(rest["found"]), 300, "those of the third directory")
    for bad in ("x", "1", "1_", "1_2.", "_", "1_2.3_4x", "1_2/3_4", "-1_2"):
        ask(f"/v1/find?path=/walk&stale=1&cursor={bad}", 400)
    ask("/v1/find?path=/walk&stale=1&cursor=ffffffffffffffff_ffffffffffffffff.1_1")
    ask("/v1/find?path=/walk", 400)


def test_file_show_tells_who_has_it_and_what_waits(w):
    c, d, fh, sid = made("shows", "mirrors=2", owner=b"Linux NFSv4.2 holder")
    got = lay(c, fh, sid)
    check("layouts: holder (write)\n" in weft("file", "show", "/shows/f"), True)
    ds = asked("file", "show", "/shows/f")["mirrors"][1]["objects"][0]["ds"]
    w.dev("kill", w.dir, ds, "-9")
    of_it = [m[0].deviceid for m in got.mirrors if uuid_of("/shows/f", ds) == m[0].deviceid]
    said = c.call(putfh(fh), layouterror(got.stateid, [(i, 6, NUM["WRITE"]) for i in of_it]),
                  layoutreturn(got.stateid))
    # The server finds out by itself as well, and takes the layout back from who returns it late.
    check(err(said.status) in ("OK", "BAD_STATEID"), True, err(said.status))
    eventually(lambda: f"object 1 on {ds} waits: its data server is away"
               in weft("file", "show", "/shows/f"), 5, "what it waits for")
    check("layouts: " in weft("file", "show", "/shows/f"), False)
    w.dev("start", w.dir, ds)
    eventually(lambda: "waits" not in weft("file", "show", "/shows/f"), 15, "the repair")


def uuid_of(path, ds):
    import uuid
    return next(uuid.UUID(o["id"]).bytes for m in asked("file", "show", path)["mirrors"]
                for o in m["objects"] if o["ds"] == ds)


# ---- extended attributes


def shown(path, *name):
    return {x["name"]: x.get("text", "0x" + x.get("hex", ""))
            for x in asked("xattr", "show", path, *name)["xattrs"]}


def test_xattr_show_set_and_remove(w):
    c, d, fh, sid = made("xattrs", "stripes=2")
    c.ok(putfh(fh), setxattr("plain", "text of\nlines"))
    c.ok(putfh(fh), setxattr("bytes", b"\x00\xff"))
    got = shown("/xattrs/f")
    check(json.loads(got.pop("user.weft.layout"))["inode"],
          asked("file", "show", "/xattrs/f")["inode"])
    check(got, {"user.weft.policy": "stripes=2,unit=1M,mirrors=1", "user.plain": "text of\nlines",
                "user.bytes": "0x00ff"})
    check(shown("/xattrs"), {"user.weft.policy": "stripes=2,unit=1M,mirrors=1"})
    check(weft("xattr", "show", "/xattrs/f", "user.bytes"), "user.bytes = 0x00ff\n")
    check(weft("xattr", "set", "/xattrs/f", "plain", "\u00e4"), "user.plain = \u00e4\n")
    check(c.ok(putfh(fh), getxattr("plain")).value, "\u00e4".encode())
    weft("xattr", "set", "/xattrs/f", "user.bytes", "0x0001Fe")
    check(c.ok(putfh(fh), getxattr("bytes")).value, b"\x00\x01\xfe")
    weft("xattr", "set", "/xattrs", "empty")
    check(shown("/xattrs")["user.empty"], "")
    before = c.attrs(fh, "change").change
    check("user.plain" in weft("xattr", "remove", "/xattrs/f", "plain"), False)
    check(c.attrs(fh, "change").change > before, True, "clients see that it has changed")
    c.no("NOXATTR", putfh(fh), getxattr("plain"))
    check("has no attribute user.plain" in weft("xattr", "remove", "/xattrs/f", "plain", rc=1),
          True)
    check("has no attribute" in weft("xattr", "show", "/xattrs/f", "none", rc=1), True)
    check("no such file" in weft("xattr", "show", "/xattrs/none", rc=1), True)
    check("hexadecimal" in weft("xattr", "set", "/xattrs/f", "x", "0x123", rc=1), True)
    check("hexadecimal" in weft("xattr", "set", "/xattrs/f", "x", "0x12zz", rc=1), True)
    check("longer than 65536" in weft("xattr", "set", "/xattrs/f", "x", "y" * 65537, rc=1), True)
    for bad in ("", "user.", "n" * 256):
        check("name: expected" in weft("xattr", "set", "/xattrs/f", bad, "v", rc=1), True, bad)
    for name in ("weft.layout", "user.weft.policy"):
        weft("xattr", "set", "/xattrs/f", name, "stripes=1", rc=1)
        weft("xattr", "remove", "/xattrs/f", name, rc=1)
    c.ok(putfh(d), create(5, "link", link=b"f"))
    check("only regular files" in weft("xattr", "set", "/xattrs/link", "a", "b", rc=1), True)


def test_a_delegation_comes_back_before_an_attribute_changes(w):
    c, d, fh, sid = made("xdeleg", owner=b"Linux NFSv4.2 xdeleg")
    c.ok(putfh(fh), close(sid))
    told = []

    def give_back():
        # Is it there before? Then this succeeds.
        told.append(c.call(putfh(fh), getxattr("new"), delegreturn(held)).status == 0)
        c.ok(putfh(fh), delegreturn(held))

    def recalled(name, args):
        if name == "RECALL":
            threading.Timer(0.3, give_back).start()
        return 0
    c.on_callback = recalled
    r = c.ok(putfh(d), open_("f", READ | 0x0100, how=None, attrs=None), getfh())
    held = r.all[1].deleg_stateid
    check(listed(c)["delegations"], 1)
    weft("xattr", "set", "/xdeleg/f", "new", "value")
    check(told, [False], "the delegation is returned first")
    check(c.ok(putfh(fh), getxattr("new")).value, b"value")


# ---- load and heat


def told(o, server, read=(0, 0), written=(0, 0)):
    """LAYOUTSTATS: operations and bytes since the layout was made."""
    def latency(ops, size):
        return (u64(ops) + u64(size) + u64(ops) + u64(size) + u64(0) + (u64(0) + u32(0))
                + u64(ops // 1000) + u32(ops % 1000 * 1000000))
    body = (opaque("tcp") + opaque("127.0.0.1.8.1") + opaque(server.fhs[0]) + latency(*read)
            + latency(*written) + u64(1) + u32(0) + boolean(True))
    return op("LAYOUTSTATS", u64(0), u64(MAX64), stateid(o.stateid), u64(0) * 4, server.deviceid,
              u32(FLEX), opaque(body))


def row(rows, **want):
    return next((r for r in rows if all(r.get(k) == v for k, v in want.items())), None)


def test_top_tells_who_does_how_much_where(w):
    c, d, fh, sid = made("busy", owner=b"Linux NFSv4.2 busy")
    seen = []

    def busy():  # and again where it took so long that the rates have fallen meanwhile
        for _ in range(10):
            c.ok(putfh(fh), write(sid, 0, b"w" * MB, FILE_SYNC))
            c.ok(putfh(fh), read(sid, 0, 65536))
            c.ok(putfh(d), lookup("f"))
        got = asked("top", "-n", "1")
        seen[:] = row(got["clients"], name="busy"), row(got["directories"], path="/busy")
        return all(r["ops"] > 1 and r["written"] > 10 * r["read"] > 0 and (r["mean_us"] or 0) > 0
                   and 0 < r["p50_us"] <= r["p99_us"] for r in seen)
    eventually(busy, what="more than an operation a second, and times")
    me = seen[0]
    check(me["number"], listed(c)["number"])
    # A megabyte a second for 10 s is what 10 MB in no time look like: less than 2 MB a second, with
    # this half-life.
    check(MB / 2 < me["written"] < 2 * MB, True, me)
    text = weft("top", "-n", "2", "--rows", "5")
    check(text.count("CLIENT"), 2)
    check(re.search(r"^ *[\d.]+ +\S+/s +\S+/s( +[\d.]+[um]?s){3} +/busy$", text, re.M)
          is not None, True, text)
    for bad in ("0", "x", "-1", ""):
        check("N is a number" in weft("top", f"-n{bad}" if bad else "--times=", rc=2), True, bad)
    check("rows: expected" in weft("top", "--rows", "0", rc=1), True)


def test_data_past_the_metadata_server_is_known_from_the_clients_word(w):
    c, d, fh, sid = made("past", owner=b"Linux NFSv4.2 past")
    o = lay(c, fh, sid)
    server = o.mirrors[0][0]
    for times in (1, 1, 2):  # the same again is nothing new, and sums grow
        c.ok(putfh(fh),
             told(o, server, (100 * times, 100 * MB * times), (50 * times, 10 * MB * times)))
    got = asked("top")
    name = asked("file", "show", "/past/f")["mirrors"][0]["objects"][0]["ds"]
    rate = 200 * MB * 0.693 / got["half_life"]
    for r in (row(got["clients"], name="past"), row(got["directories"], path="/past")):
        check(rate / 2 < r["read"] < rate * 1.1, True, r)
        check(r["read"] / 12 < r["written"] < r["read"] / 8, True, r)
    # Data servers say themselves what they do now. Clients say how long it took.
    check(row(got["servers"], name=name)["mean_us"], 1000)
    hot = asked("heat", "/past")
    check([(f["path"], f["heat"] > 3000) for f in hot["files"]], [("/past/f", True)])
    check([f["path"] for f in hot["directories"]], ["/past"])
    check(re.search(r"^ *\d+ +[\d.]+ +\S+/s +\S+/s +/past/f$", weft("heat"), re.M) is not None,
          True)
    check(asked("heat", "/")["files"][0]["path"], "/past/f", "the hottest first")
    check("no such file" in weft("heat", "/none", rc=1), True)
    c.no("BADXDR", putfh(fh), op("LAYOUTSTATS", u64(0), u64(MAX64), stateid(o.stateid), u64(0) * 4,
                                 server.deviceid, u32(FLEX), opaque(b"abc")))


# On a loaded machine each command takes a second and more.
SETTINGS_HERE = ["mds.lease=20s", "mds.recall_deadline=5s", "mds.grace=1s", "mds.repair_files=2"]


def main():
    if not tap.built("weft", "weft-mds", "weft-ds"):
        tap.skip("the programs are not built")
        return
    os.environ.pop("WEFT_ADMIN", None)
    harness.THE = w = Cluster(settings=SETTINGS_HERE)
    rows = json.loads(w.dev("status", w.dir, "--json"))["daemons"]
    global admin
    admin = next(r["admin"] for r in rows if r["name"] == "mds")

    @contextlib.contextmanager
    def around(_name):
        try:
            yield (w,)
        finally:
            while harness.CLIENTS:
                harness.CLIENTS.pop().drop()
    try:
        tap.run(tap.named(globals()), around)
    finally:
        w.down()


if __name__ == "__main__":
    main()
