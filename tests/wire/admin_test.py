#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The admin API, the weft tool and the metrics of real daemons. Prints TAP."""
import contextlib
import http.client
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../wirelib"))
import nfs41 as nfs  # noqa: E402
from daemons import *  # noqa: E402,F403
from tap import SRC  # noqa: E402


# ---- the tests: status and servers


def test_status_as_table_and_as_json(c):
    text = c.weft("status")
    for line in (rf"version +{re.escape(VERSION)}", rf"cluster +{UUID}",
                 r"boot epoch +1", r"data servers +4 known, 4 alive",
                 r"space +\S+[KMGT] available of \S+[KMGT]",
                 r"clients +\d+ \(\d+ sessions, \d+ opens, \d+ layouts\)", r"orders +\d+ pending",
                 r"store +\d+ inodes, \S+, \d+ commits, [\d.]+ operations each"):
        assert re.search(rf"^{line}$", text, re.M), f"no line {line} in {text}"
    got = c.json("status")
    assert set(got) == {"version", "cluster", "fs", "exports_hash", "boot_epoch", "grace", "ds",
                        "clients", "orders", "store", "health", "files_not_in_sync"}, got
    assert got["version"] == VERSION and got["boot_epoch"] == 1 and got["grace"] is False, got
    assert re.fullmatch(UUID, got["cluster"]), got
    assert (got["ds"]["known"] == got["ds"]["alive"] == 4
            and 0 < got["ds"]["available"] <= got["ds"]["capacity"]), got
    assert set(got["clients"]) == {"known", "sessions", "opens", "layouts"}, got
    assert set(got["store"]) == {"inodes", "commits", "operations", "bytes_used"}, got
    assert (got.keys() - {"health", "files_not_in_sync"}
            == ask(c.admin["mds"], "GET", "/v1/status").keys())
    c.nfs()
    assert c.json("status")["clients"]["known"] == 1


def test_ds_list_as_table_and_as_json(c):
    rows = c.json("ds", "list")["ds"]
    assert sorted(r["name"] for r in rows) == ["ds1", "ds2", "ds3", "ds4"], rows
    assert sorted(r["number"] for r in rows) == [1, 2, 3, 4], rows
    for r in rows:
        assert set(r) == {"number", "name", "id", "kind", "alive", "state", "since_at", "addr",
                          "capacity", "available", "max_read", "max_write", "weight", "load",
                          "latency_us", "labels", "labels_set", "space", "version", "read_bytes_s",
                          "written_bytes_s", "operations_s"}, r
        assert r["weight"] == 1 and r["load"] >= 0 and r["labels"] == r["labels_set"] == {}, r
        assert r["state"] == "alive" and abs(r["since_at"] - time.time()) < 600, r
        assert (r["alive"] is True and re.fullmatch(UUID, r["id"])
                and r["addr"] == [f"127.0.0.1:{PORT + int(r['name'][2])}"]), r
    lines = c.weft("ds", "list").splitlines()
    assert lines[0].split() == ["NUM", "NAME", "STATE", "SINCE", "WEIGHT", "SIZE", "USED", "LOAD",
                                "LATENCY", "ADDRESSES"], lines
    assert ([line.split()[:3] + line.split()[4:5] for line in lines[1:]]
            == [[str(r["number"]), r["name"], "alive", "1"] for r in rows]), lines


def test_a_data_server_that_is_gone_is_dead(c):
    c.dev("kill", c.dir, "ds4", "-9")
    deadline = time.monotonic() + 5
    while c.json("status")["ds"]["alive"] != 3:
        assert time.monotonic() < deadline, "still alive after 5 s"
        time.sleep(0.02)
    while not re.search(r"^ *\d +ds4 +dead ", c.weft("ds", "list"), re.M):
        assert time.monotonic() < deadline, "not dead after 5 s"
        time.sleep(0.02)
    c.dev("start", c.dir, "ds4")
    rows = {r["name"]: r for r in c.json("ds", "list")["ds"]}
    assert len(rows) == 4 and rows["ds4"]["alive"], rows
    c.pid["ds4"] = next(d["pid"] for d in json.loads(c.dev("status", c.dir, "--json"))["daemons"]
                        if d["name"] == "ds4")


# ---- policies


def policy_xattr(c, fh):
    return c.nfs().ok(nfs.putfh(fh), nfs.op("GETXATTR", nfs.opaque("weft.policy"))).value.decode()


def test_policies_are_kept_in_their_normal_form(c):
    fh = c.mkdir("/normal")
    for text, normal in (("mirrors=2,unit=1024K,stripes=4", "stripes=4,unit=1M,mirrors=2"),
                         ("unit=4M", "stripes=1,unit=4M,mirrors=1"),
                         ("mirrors=3", "stripes=1,unit=1M,mirrors=3"),
                         ("stripes=44", "stripes=44,unit=1M,mirrors=1"),
                         ("unit=2G,stripes=2", "stripes=2,unit=2G,mirrors=1"),
                         ("unit=1048576", "stripes=1,unit=1M,mirrors=1"),
                         ("threshold=65536,mirrors=2", "stripes=1,unit=1M,mirrors=2,threshold=64K"),
                         ("threshold=0", "stripes=1,unit=1M,mirrors=1,threshold=0"),
                         ("stripes=11,mirrors=4", "stripes=11,unit=1M,mirrors=4")):
        assert c.weft("policy", "set", "/normal", text) == normal + "\n", text
        assert c.weft("policy", "get", "/normal") == normal + "\n", text
        assert c.json("policy", "get", "/normal") == {"path": "/normal", "policy": normal,
                                                      "inherited": False}, text
        assert policy_xattr(c, fh) == normal, text


def test_policies_are_inherited_until_a_directory_has_its_own(c):
    default = "stripes=1,unit=1M,mirrors=1"
    c.mkdir("/up/mid/low")
    assert c.json("policy", "get", "/up/mid/low") == {"path": "/up/mid/low", "policy": default,
                                                      "inherited": True}
    c.weft("policy", "set", "/up", "stripes=2")
    assert c.json("policy", "get", "/up/mid/low") == {"path": "/up/mid/low",
                                                      "policy": "stripes=2,unit=1M,mirrors=1",
                                                      "inherited": True}
    got = json.loads(c.weft("policy", "set", "/up/mid", "mirrors=2", "--json"))
    assert got == {"path": "/up/mid", "policy": "stripes=1,unit=1M,mirrors=2",
                   "inherited": False}, got
    assert c.json("policy", "get", "/up/mid/low")["policy"] == "stripes=1,unit=1M,mirrors=2"
    assert policy_xattr(c, c.mkdir("/up/mid/low")) == "stripes=1,unit=1M,mirrors=2"
    got = c.json("policy", "remove", "/up/mid")
    assert got == {"path": "/up/mid", "policy": "stripes=2,unit=1M,mirrors=1",
                   "inherited": True}, got
    c.weft("policy", "remove", "/up/mid")  # it has none: nothing to do
    c.weft("policy", "remove", "/up")
    assert c.json("policy", "get", "/up/mid/low")["policy"] == default


def test_wrong_policies_are_refused_and_the_key_is_named(c):
    c.mkdir("/refuse")
    c.weft("policy", "set", "/refuse", "stripes=3")
    for text, needles in (("stripes=0", ["stripes", "from 1 to 44"]),
                          ("stripes=45", ["stripes", "from 1 to 44"]), ("stripes=x", ["stripes"]),
                          ("stripes=", ["stripes"]), ("stripes=-1", ["stripes"]),
                          ("stripes=4294967297", ["stripes"]), ("mirrors=0", ["mirrors"]),
                          ("mirrors=two", ["mirrors"]), ("unit=3M", ["unit", "power of two", "1M"]),
                          ("unit=512K", ["unit"]), ("unit=4G", ["unit", "2G"]),
                          ("unit=1T", ["unit"]), ("unit=1m", ["unit"]), ("unit=M", ["unit"]),
                          ("strips=2", ["strips", "stripes, unit, mirrors, domain, threshold, "
                                        "trash, group or group0"]),
                          ("stripes", ["stripes", "KEY=VALUE"]),
                          ("stripes=1,stripes=2", ["stripes", "once"]),
                          ("threshold=64k", ["threshold", "from 0 to 1T"]),
                          ("stripes=2,", ["KEY=VALUE"]), ("stripes=2,,mirrors=2", ["KEY=VALUE"]),
                          ("stripes=2 mirrors=2", ["stripes"]),
                          ("mirrors=5", ["mirrors=5", "only 4 data servers"]),
                          ("stripes=23,mirrors=2", ["stripes=23,mirrors=2", "4096 bytes"]),
                          ("k\u00e9y=1", ["unknown key"])):
        told = c.weft("policy", "set", "/refuse", text, rc=1)
        assert all(n in told for n in needles) and told.count("\n") == 1, f"{text}: {told}"
        status = 409 if text in ("mirrors=5", "stripes=23,mirrors=2") else 400
        assert ask(c.admin["mds"], "PUT", "/v1/policy?path=/refuse", text.encode(),
                   status)["error"] in told, text
    done = subprocess.run([program("weft"), "--json", "--admin", c.admin["mds"], "policy", "set",
                           "/refuse", "unit=3M"], capture_output=True, text=True, check=False)
    assert (done.returncode == 1 and "unit" in json.loads(done.stdout)["error"]
            and "unit" in done.stderr), done
    for empty in ("", " "):
        assert "empty" in c.weft("policy", "set", "/refuse", empty, rc=2)
    assert c.weft("policy", "get", "/refuse") == "stripes=3,unit=1M,mirrors=1\n"


# ---- files


def write_file(c, parent, name, size):
    """Writes through the MDS; the data servers make the objects."""
    n = c.nfs()
    sid, fh = n.open(parent, name)
    for at in range(0, size, 1 << 20):
        n.ok(nfs.putfh(fh), nfs.write(sid, at, b"w" * min(1 << 20, size - at), nfs.FILE_SYNC))
    n.ok(nfs.putfh(fh), nfs.close(sid))
    return fh


def test_file_show_names_every_object(c):
    d, size = c.mkdir("/show"), (5 << 20) + 1000
    c.weft("policy", "set", "/show", "stripes=4,mirrors=2")
    fh = write_file(c, d, "f", size)
    got = c.json("file", "show", "/show/f")
    assert set(got) == {"version", "inode", "size", "unit", "policy", "mirrors"}, got
    assert got["policy"] == "stripes=4,unit=1M,mirrors=2", got
    assert (got["version"], got["size"], got["unit"]) == (1, size, 1 << 20), got
    assert got["inode"] == c.nfs().attrs(fh, "fileid").fileid
    servers = {r["name"]: r for r in c.json("ds", "list")["ds"]}
    assert len(got["mirrors"]) == 2
    for mirror in got["mirrors"]:
        assert (set(mirror) == {"state", "efficiency", "objects"}
                and mirror["state"] == "in-sync"), mirror
        assert mirror["efficiency"] > 0 and len(mirror["objects"]) == 4, mirror
        # Objects are sparse: each one ends at the file's last byte in it. Stripe 1 has units 1
        # and 5, and the latter has 1000 bytes.
        assert [o["size"] for o in mirror["objects"]] == [5 << 20, size, 3 << 20, 4 << 20], mirror
        for o in mirror["objects"]:
            assert (set(o) == {"ds", "id", "addr", "object", "size", "state"}
                    and o["state"] == "in-sync"), o
            assert (o["id"], o["addr"]) == (servers[o["ds"]]["id"], servers[o["ds"]]["addr"]), o
            assert os.path.getsize(os.path.join(c.dir, o["ds"], o["object"])) == o["size"], o
    for a, b in zip(*(m["objects"] for m in got["mirrors"])):
        assert a["ds"] != b["ds"], "copies of one stripe share a server"
    xattr = c.nfs().ok(nfs.putfh(fh), nfs.op("GETXATTR", nfs.opaque("weft.layout"))).value
    assert json.loads(xattr) == got
    lines = c.weft("file", "show", "/show/f", "-o", "+addresses").splitlines()
    assert lines[0] == f"inode {got['inode']}, {size} bytes, unit 1.0M", lines
    assert lines[1].split() == ["MIRROR", "STRIPE", "STATE", "SERVER", "SIZE", "OBJECT",
                                "ADDRESSES"], lines
    want = [[str(m), str(s), o["state"], o["ds"], str(o["size"]), o["object"], *o["addr"]]
            for m, mirror in enumerate(got["mirrors"]) for s, o in enumerate(mirror["objects"])]
    assert [line.split() for line in lines[2:]] == want, lines
    c.weft("policy", "set", "/show", "threshold=64K")
    assert c.json("file", "show", "/show/f") == {**got, "threshold": 65536}
    assert (c.weft("file", "show", "/show/f").splitlines()[:2]
            == [lines[0], "through the metadata server while smaller than 64K"])


def test_an_empty_file_has_objects_that_are_not_there_yet(c):
    write_file(c, c.mkdir("/empty"), "f", 0)
    got = c.json("file", "show", "/empty/f")
    (o,) = got["mirrors"][0]["objects"]
    assert got["size"] == o["size"] == 0 and o["state"] == "in-sync", got
    assert not os.path.exists(os.path.join(c.dir, o["ds"], o["object"]))


def test_a_copy_that_misses_a_write_is_shown_stale(c):
    d = c.mkdir("/stale")
    c.weft("policy", "set", "/stale", "mirrors=2")
    fh = write_file(c, d, "f", 1000)
    objects = [m["objects"][0] for m in c.json("file", "show", "/stale/f")["mirrors"]]
    before = c.nfs().attrs(fh, "change").change
    c.dev("kill", c.dir, objects[1]["ds"], "-9")
    write_file(c, d, "f", 2000)
    got = c.json("file", "show", "/stale/f")
    assert [m["state"] for m in got["mirrors"]] == ["in-sync", "stale"], got
    assert [m["objects"][0]["state"] for m in got["mirrors"]] == ["in-sync", "stale"], got
    assert got["mirrors"][0]["efficiency"] > got["mirrors"][1]["efficiency"], got
    assert re.search(rf"^ *1 +0 +stale +{objects[1]['ds']} ", c.weft("file", "show", "/stale/f"),
                     re.M)
    assert c.nfs().attrs(fh, "change").change > before
    c.dev("start", c.dir, objects[1]["ds"])
    c.pid.update({d["name"]: d["pid"]
                  for d in json.loads(c.dev("status", c.dir, "--json"))["daemons"]})


# ---- paths


def test_paths_of_any_bytes_that_names_can_have(c):
    for name in ("with space", "50%", "a&b=c", "q?", "#", "plus+", "\u00fcml\u00e4ut", '"quoted"',
                 "back\\slash", "x" * 255):
        d = c.mkdir(f"/paths/{name}")
        c.weft("policy", "set", f"/paths/{name}", "stripes=2")
        assert c.json("policy", "get", f"/paths/{name}")["path"] == f"/paths/{name}"
        write_file(c, d, "f", 0)
        assert c.json("file", "show", f"/paths//{name}///f")["size"] == 0
    raw = os.fsdecode(b"/paths/\xff")
    assert "/paths/?" in c.weft("policy", "get", raw, rc=1)
    long = "/\u00e4" * 1365  # PATH_MAX, and three times that in a URL
    assert c.weft("policy", "get", long, rc=1) == f"weft: {long}: no such file or directory\n"


def test_wrong_paths_are_told(c):
    n, d = c.nfs(), c.mkdir("/wrong")
    write_file(c, d, "f", 0)
    n.ok(nfs.putfh(d), nfs.create(nfs.LNK, "l", link="/wrong"))
    admin = c.admin["mds"]
    for args, path, status, needle in (
            (("policy", "get"), "/wrong/none", 404, "no such"),
            (("file", "show"), "/wrong/none/deeper", 404, "no such"),
            (("policy", "get"), "/wrong/f", 400, "only directories have policies"),
            (("file", "show"), "/wrong", 400, "not a regular file"),
            (("file", "show"), "/wrong/f/x", 404, "no such"),
            (("file", "show"), "/wrong/l/f", 404, "no such"),
            (("file", "show"), "/wrong/../wrong/f", 400, "not a path"),
            (("file", "show"), "/wrong/" + "n" * 256, 400, "not a path")):
        told = c.weft(*args, path, rc=1)
        assert path in told and needle in told, told
        what = "policy" if args[0] == "policy" else "file"
        assert needle in ask(admin, "GET", f"/v1/{what}?path={path}", status=status)["error"]
    told = c.weft("policy", "set", "/wrong/f", "stripes=2", rc=1)
    assert "only directories have policies" in told
    assert "no such" in c.weft("policy", "set", "/wrong/none", "stripes=2", rc=1)
    assert "no such" in c.weft("policy", "remove", "/wrong/none", rc=1)
    for path in ("wrong", "", "./wrong", "-"):
        assert "absolute" in c.weft("policy", "get", path, rc=2), path
        assert "absolute" in ask(admin, "GET", f"/v1/policy?path={path}", status=400)["error"], path
    for target in ("/v1/policy", "/v1/file", "/v1/policy?paths=/"):
        assert "path" in ask(admin, "GET", target, status=400)["error"], target


# ---- the tool itself


def test_usage_errors_end_with_2(c):
    for args in ((), ("frobnicate",), ("ds",), ("ds", "frob"), ("status", "now"), ("policy",),
                 ("ds", "weight"), ("ds", "weight", "ds1"), ("ds", "weight", "ds1", "1", "2"),
                 ("ds", "group", "ds1"), ("policy", "get"), ("policy", "get", "/", "/"),
                 ("policy", "set", "/"), ("policy", "set", "/", "stripes=1", "more"),
                 ("file", "show"), ("file",), ("--frob", "status"),
                 ("status", "--frob"), ("--frob", "fsck", "/x"), ("--admin",)):
        output = run(program("weft"), *args, rc=2)
        assert re.search('"weft (--help|help [a-z ]+)" (lists|shows)', output), f"{args}: {output}"
        assert output.count("\n") <= 3, f"{args}: {output}"
    assert "unknown command" in run(program("weft"), "frobnicate", rc=2)
    for args, near in ((("ds", "lst"), "weft ds list"), (("statsu",), "weft status"),
                       (("mirorr", "repair", "/x"), "weft mirror"), (("frobnicate",), None),
                       (("--jsno", "status"), "--json"), (("ds", "list", "--josn"), "--json")):
        output = run(program("weft"), *args, rc=2)
        meant = f'Did you mean "{near}"?'
        assert ("Did you mean" in output) == bool(near), f"{args}: {output}"
        assert not near or meant in output, f"{args}: {output}"
    for args in (("--help",), ("-h",), ("status", "--help")):
        assert "usage: weft" in run(program("weft"), *args), args
    assert "is followed by one of: show\n" in run(program("weft"), "file", rc=2)
    with open("/dev/full", "w", encoding="ascii") as full:
        done = subprocess.run([program("weft"), "--admin", c.admin["mds"], "status"], stdout=full,
                              stderr=subprocess.PIPE, check=False)
        assert done.returncode == 1 and b"cannot write" in done.stderr, done


@contextlib.contextmanager
def answering(*pieces):
    """A server that sends this to each caller, whatever the request, and closes."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        s.listen()

        def serve():
            with contextlib.suppress(OSError):
                conn, _ = s.accept()
                conn.recv(65536)
                for p in pieces:
                    conn.sendall(p)
                conn.close()
        t = threading.Thread(target=serve, daemon=True)
        t.start()
        yield f"127.0.0.1:{s.getsockname()[1]}"
        t.join(60)


def test_no_answer_ends_with_3(c):
    with socket.socket() as s:  # bound and not listening
        s.bind(("127.0.0.1", 0))
        refused = f"127.0.0.1:{s.getsockname()[1]}"
        for addr in (f"unix:{c.top}/none.sock", f"unix:{c.dir}/cluster.json", refused):
            for args in (("status",), ("policy", "get", "/"), ("file", "show", "/f", "--json")):
                told = run(program("weft"), "--admin", addr, *args, rc=3)
                assert "no answer" in told and addr in told, told
    for addr in ("127.0.0.1", "nowhere:1", "unix:", "unix:/" + "x" * 200, "", "127.0.0.1:x",
                 "::1:5", "https://host", "http://10.0.0.1:80"):
        told = run(program("weft"), "--admin", addr, "status", rc=2)
        assert (told.startswith(f'weft: --admin "{addr[:200]}') and told.count("\n") == 2
                and re.search("expected unix:/PATH, 127|107 bytes|needs https://", told)), told
    for said in ((), (b"SSH-2.0-OpenSSH\r\n",), (b"HTTP/1.1 200 OK\r\n\r\nhello",),
                 (b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n", b'{"version": 1}')):
        with answering(*said) as addr:
            run(program("weft"), "--admin", addr, "status", rc=3)
    with answering(b"HTTP/1.1 503 Busy\r\n\r\n<html>") as addr:
        run(program("weft"), "--admin", addr, "status", rc=1)


def test_the_server_is_named_by_option_or_environment(c):
    weft, admin = program("weft"), c.admin["mds"]
    assert admin == f"unix:{c.dir}/run/mds.sock"
    for args, env in ((("--admin", admin, "status"), None), ((f"--admin={admin}", "status"), None),
                      (("status", "--admin", admin), None),
                      (("--admin", admin[5:], "status"), None), (("status",), admin),
                      (("--admin", admin, "status"), f"unix:{c.top}/none.sock")):
        assert "4 known" in run(weft, *args, env={"WEFT_ADMIN": env}), (args, env)
    assert "/run/weft-mds/admin" in run(weft, "status", rc=3, env={"WEFT_ADMIN": None})
    assert "/run/weft-mds/admin" in run(weft, "status", rc=3, env={"WEFT_ADMIN": ""})
    assert f"{c.top}/none" in run(weft, "--admin", f"unix:{c.top}/none", "status", rc=3,
                                  env={"WEFT_ADMIN": admin})
    # A data server's admin socket is no metadata server's.
    assert "no such path" in run(weft, "--admin", c.admin["ds1"], "status", rc=1)


def test_fsck(c):
    store = f"{c.dir}/mds"
    assert re.fullmatch(rf"{store}: \d+ inodes, \d+ directories, .*: 0 violations\n",
                        c.weft("fsck", store))
    for args in (("--json", "fsck", store), ("fsck", "--json", store), ("fsck", store, "--json")):
        got = json.loads(c.weft(*args))
        assert (got["count"] == 0 and got["violations"] == [] and got["complete"] is True
                and got["directories"] > 0), got
    assert "usage: weft-fsck" in c.weft("fsck", rc=2)
    assert "usage: weft-fsck" in c.weft("fsck", "--frob", store, rc=2)
    assert "usage: weft-fsck" in c.weft("fsck", "--help")
    assert "holds no store" in c.weft("fsck", c.top, rc=3)
    assert c.top in c.weft("fsck", f"{c.top}/none", rc=3)
    os.mkdir(f"{c.top}/bad")
    with open(f"{c.top}/bad/data.mdb", "wb") as f:
        f.write(b"x" * 65536)
    assert f"{c.top}/bad" in c.weft("fsck", f"{c.top}/bad", rc=3)


# ---- metrics


def test_every_series_exists_from_the_start_with_0(c):
    ops = labelled(c.first["mds"], "weft_mds_op_total")
    # The series of DELEGRETURN and the like exist, although the server does not serve
    # these operations.
    assert set(nfs.OPS.values()) <= set(ops), set(nfs.OPS.values()) - set(ops)
    assert not any(ops.values()), {k: v for k, v in ops.items() if v}
    for name in ("weft_mds_garbage_total", "weft_rpc_garbage_total"):
        assert c.first["mds"][name, ()] == 0
    for name in ("ds1", "ds2", "ds3", "ds4"):
        first = c.first[name]
        assert labelled(first, "weft_ds_op_total") == dict.fromkeys(PROCS, 0), first
        assert labelled(first, "weft_ds_bytes_total") == {"read": 0, "write": 0}, first
        assert first["weft_ds_garbage_total", ()] == 0


def test_the_man_pages_name_every_metric_and_no_other(c):
    told, both = {}, set()
    for daemon in ("mds", "ds"):
        with open(os.path.join(SRC, f"docs/weft-{daemon}.8"), encoding="utf-8") as f:
            told[daemon] = set(re.findall(
                r"weft_(?:mds|ds|rpc|rdma|pool|build|health)_[a-z_]*[a-z]", f.read()))
    for daemon, name in (("mds", "mds"), ("ds", "ds1")):
        served = {re.sub(r"_(bucket|count|sum)$", "", series) for series, _ in c.first[name]}
        own = {m for m in served | SPARSE if m.startswith(f"weft_{daemon}_")}
        both |= {m for m in served - own if not m.startswith("process_")}
        assert ({m for m in told[daemon] if m.startswith(f"weft_{daemon}_")}
                == own), told[daemon] ^ own
    assert told["mds"] >= both and all(
        m.startswith(("weft_rpc_", "weft_rdma_", "weft_pool_", "weft_build_", "weft_health_"))
        for m in both), both - told["mds"]


def test_metrics_count(c):
    write_file(c, c.mkdir("/count"), "f", 3 << 20)
    mds, ds = get_metrics(c.admin["mds"]), [get_metrics(c.admin[f"ds{i}"]) for i in range(1, 5)]
    ops = labelled(mds, "weft_mds_op_total")
    assert ops["WRITE"] >= 3 and ops["OPEN"] >= 1 and ops["LAYOUTGET"] == 0, ops
    assert sum(labelled(mds, "weft_mds_compound_seconds_count").values()) >= 4
    assert sum(labelled(d, "weft_ds_bytes_total")["write"] for d in ds) >= 3 << 20
    for d in ds:
        assert (d["weft_ds_op_seconds_count", (("proc", "WRITE"),)]
                == labelled(d, "weft_ds_op_total")["WRITE"])
    # The server counts a client's garbage: first bytes that are no RPC, then a COMPOUND
    # without arguments.
    with socket.create_connection(("127.0.0.1", PORT), 60) as s:
        s.sendall(b"GET / HTTP/1.1\r\n\r\n" * 8)
        s.settimeout(60)
        with contextlib.suppress(ConnectionError):
            assert s.recv(1) == b""
    with contextlib.suppress(nfs.Rejected):
        nfs.Conn(("127.0.0.1", PORT)).rpc(1, b"", nfs.auth_sys())
    after = get_metrics(c.admin["mds"])
    assert after["weft_rpc_garbage_total", ()] == mds["weft_rpc_garbage_total", ()] + 1
    assert after["weft_mds_garbage_total", ()] == mds["weft_mds_garbage_total", ()] + 1


def test_the_version_is_in_metrics_and_first_in_the_log(c):
    for name, first in c.first.items():
        assert {k: v for k, v in first.items() if k[0] == "weft_build_info"} == {
            ("weft_build_info", (("version", VERSION),)): 1}, name
        with open(os.path.join(c.dir, "log", name + ".log"), encoding="utf-8") as f:
            program_name = "weft-mds" if name == "mds" else "weft-ds"
            assert f.readline() == f"INFO {program_name}: version {VERSION}\n", name


def test_every_installed_program_prints_its_version(c):
    """The programs that make install puts into the folders of programs. None may be
    missing here."""
    with open(os.path.join(BUILD, "Makefile"), encoding="utf-8") as f:
        made = f.read().replace("\\\n", " ")
    lists = [re.search(rf"^{name} = (.*)$", made, re.M)[1].split()
             for name in ("bin_PROGRAMS", "sbin_PROGRAMS", "dist_bin_SCRIPTS")]
    programs = [p.removesuffix("$(EXEEXT)") for some in lists for p in some]
    assert {"weft", "weft-bench", "weft-mds", "weft-ds", "weft-fsck", "tools/weft-dev"} <= \
            set(programs), programs
    for p in programs:
        assert run(program(p), "--version") == f"{os.path.basename(p)} {VERSION}\n", p
    # An installation: the programs are beside each other in bin, the daemons in sbin.
    top = os.path.join(c.top, "installed")
    os.makedirs(os.path.join(top, "bin"))
    shutil.copy(os.path.join(SRC, "tools/weft-dev"), os.path.join(top, "bin"))
    shutil.copy(program("weft"), os.path.join(top, "bin"))
    assert run(os.path.join(top, "bin/weft-dev"), "--version", env={"WEFT_BUILD": None}) == \
        f"weft-dev {VERSION}\n"
    with open("/dev/full", "w", encoding="ascii") as full:
        assert subprocess.run([program("weft-mds"), "--version"],
                              stdout=full, check=False).returncode == 1


# ---- HTTP


def test_bad_requests_are_answered_and_harm_nothing(c):
    for name, admin in c.admin.items():
        for target in ("/", "/v1", "/v1/", "/v1/frob", "/metrics/", "//metrics", "/v1/health/x",
                       "/..%2f..%2fetc/passwd", "*"):
            ask(admin, "GET", target, status=404)
        for method in ("POST", "PUT", "DELETE", "PATCH", "FROB"):
            assert "method" in ask(admin, method, "/v1/health", b"x", status=405)["error"], method
            ask(admin, method, "/metrics", b"", status=405)
        assert "too large" in ask(admin, "PUT", "/v1/policy?path=/", b"x" * ((1 << 20) + 1),
                                  status=413)["error"]
        for raw in (b"", b"\r\n\r\n", b"\0" * 1000, b"GET\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n",
                    b"GET /" + b"a" * 100000 + b" HTTP/1.1\r\n\r\n",
                    b"GET / HTTP/1.1\r\nA: " + b"b" * 100000 + b"\r\n\r\n",
                    b"PUT /v1/policy?path=/ HTTP/1.1\r\nContent-Length: -5\r\n\r\nx", b"PUT "
                    b"/v1/policy?path=/ HTTP/1.1\r\nContent-Length: 99999999999999999999\r\n\r\nx",
                    b"\x16\x03\x01\x02\x00" * 50, b"PUT /v1/policy?path=/ HTTP/1.1\r\nHost: "
                    b"x\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\nx\r\n"):
            with connect(admin) as s, contextlib.suppress(ConnectionError, socket.timeout):
                s.settimeout(0.02)
                s.sendall(raw)
                s.recv(65536)
        assert ask(admin, "GET", "/v1/health")
        os.kill(c.pid[name], 0)
    # The server refuses binary policies, and shows them as far as they print.
    for body in (b"\xff\xfe=1", b"stripes=\x00", b"\x00", b"stripes=1,\n\nmirrors=1"):
        told = ask(c.admin["mds"], "PUT", "/v1/policy?path=/", body, status=400)["error"]
        assert told.isprintable(), told
    # A body that never comes keeps no other caller from its answer.
    with connect(c.admin["mds"]) as s:
        s.sendall(b"PUT /v1/policy?path=/ HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nstr")
        assert ask(c.admin["mds"], "GET", "/v1/health")["status"] == "ok"
    assert c.weft("policy", "get", "/") == "stripes=1,unit=1M,mirrors=1\n"
    head = Http(c.admin["mds"])
    head.request("HEAD", "/v1/status")
    assert (reply := head.getresponse()).status == 200 and reply.read() == b""
    got = ask(c.admin["ds1"], "GET", "/v1/health")
    assert (got["ok"], got["joined"]) == (True, True), got
    assert [(m["joined"], m["fs"]) for m in got["mds"]] == [(True, 1)], got


# ---- a metadata server by itself


def wait_free(port):
    """The kernel gives a socket of io_uring back some milliseconds after the process is gone."""
    deadline = time.monotonic() + 60
    while True:
        with socket.socket() as s:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                s.bind(("127.0.0.1", port))
                return s.listen()
            except OSError:
                assert time.monotonic() < deadline, f"port {port} is not free"
        time.sleep(0.001)


class Alone:
    """A weft-mds without data servers, on other ports. It serves the admin API on a Unix socket,
    and on TCP to clients that send the token."""

    def __init__(self, c, name, *sets):
        self.token, self.unix = f"{c.top}/token", f"unix:{c.top}/{name}.sock"
        with open(self.token, "w", encoding="ascii") as f:
            os.fchmod(f.fileno(), 0o400)
            f.write("a-token-of-this-test\n")
        os.environ["WEFT_ADMIN_TOKEN"] = self.token
        self.log = f"{c.top}/{name}.log"
        self.admin = "127.0.0.1:13001"
        self.args = [program("weft-mds"), "-c", f"{c.dir}/weft.conf",
                     "-o", f"mds.store={c.top}/{name}", "-o", "mds.listen=127.0.0.1:13000",
                     "-o", f"mds.admin={self.unix}, {self.admin}",
                     "-o", f"mds.admin_token={self.token}"] + [x for s in sets for x in ("-o", s)]

    def __enter__(self):
        wait_free(13000)
        with open(self.log, "w", encoding="utf-8") as log:
            self.process = subprocess.Popen(self.args, stdin=subprocess.DEVNULL, stdout=log,
                                            stderr=log, env=environment("weft-mds"))
        deadline = time.monotonic() + 60
        while True:
            assert (self.process.poll() is None
                    and time.monotonic() < deadline), open(self.log, encoding="utf-8").read()
            with contextlib.suppress(OSError):
                # 503: it does not serve yet
                assert over_tcp(self.admin, "GET", "/v1/health")[0] in (200, 503)
                return self
            time.sleep(0.01)

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.environ.pop("WEFT_ADMIN_TOKEN", None)


def over_tcp(admin, method, target, body=None, **headers):
    """The status and the JSON of an answer to exactly this."""
    conn = http.client.HTTPConnection("localhost", timeout=60)
    conn.sock = connect(admin)
    conn.putrequest(method, target, skip_host="Host" in headers)
    for name, value in {"Content-Length": str(len(body or b"")), **headers}.items():
        if value is not None:
            conn.putheader(name, value)
    conn.endheaders(body)
    reply = conn.getresponse()
    text = reply.read()
    conn.close()
    return reply.status, text.decode()


def test_tcp_without_a_token_is_metrics_and_health(c):
    with Alone(c, "reader", "mds.admin_token=") as a:
        os.environ.pop("WEFT_ADMIN_TOKEN")
        for method in ("GET", "HEAD"):
            for target, want in (("/metrics", (200,)), ("/v1/health", (200, 503))):
                assert over_tcp(a.admin, method, target)[0] in want, target
        for method, target in [("GET", "/v1/status"), ("GET", "/v1/ds"), ("GET", "/nothing"),
                               ("PUT", "/v1/policy?path=/"), ("PUT", "/v1/ds/kill"),
                               ("POST", "/v1/ds"), ("DELETE", "/v1/clients"), ("POST", "/metrics"),
                               ("PUT", "/v1/health")]:
            status, text = over_tcp(a.admin, method, target, b"stripes=4")
            assert status == 403 and "needs the role" in text and "the Unix socket" in text, (
                method, target, status, text)
            status, text = over_tcp(a.admin, method, target, b"stripes=4", Authorization="Bearer ")
            assert status == 401, (method, target, status, text)
        assert "Unix socket" in run(program("weft"), "--admin", a.admin, "status", rc=1)
        assert run(program("weft"), "--admin", a.unix, "policy", "set", "/",
                   "stripes=4").startswith("stripes=4,")


def test_the_token_opens_the_port_to_who_shows_it(c):
    with Alone(c, "tokened") as a:
        good = {"Authorization": "Bearer a-token-of-this-test"}
        assert over_tcp(a.admin, "PUT", "/v1/policy?path=/", b"stripes=4", **good)[0] == 200
        for other in ("Bearer a-token-of-this-tes", "Bearer a-token-of-this-test1",
                      "Basic a-token-of-this-test", "a-token-of-this-test", "Bearer", ""):
            status, text = over_tcp(a.admin, "PUT", "/v1/policy?path=/", b"stripes=2",
                                    Authorization=other)
            assert status == 401 and ("unknown token" in text or "Bearer TOKEN" in text), (
                other, text)
        # A browser on this machine sends such headers for foreign pages, and for foreign names that
        # DNS resolves to this machine.
        for headers in ({"Host": "evil.example"}, {"Host": "evil.example:13001"},
                        {"Host": "127.0.0.1.evil.example"}, {"Host": "128.0.0.1"},
                        {"Origin": "http://evil.example"}, {"Origin": "null"}, {"Host": None}):
            for target in ("/metrics", "/v1/health", "/v1/status"):
                assert over_tcp(a.admin, "GET", target, **good,
                                **headers)[0] in (400, 403), (headers, target)
        for host in ("127.0.0.1", "127.0.0.1:13001", "localhost", "LOCALHOST:13001", "127.1.2.3"):
            assert over_tcp(a.admin, "GET", "/v1/status", **good, Host=host)[0] == 200, host
        assert json.loads(over_tcp(a.admin, "GET", "/v1/policy?path=/",
                                   **good)[1])["policy"].startswith("stripes=4,")


def test_no_daemon_leaves_a_core(c):
    for pid in c.pid.values():
        with open(f"/proc/{pid}/limits", encoding="ascii") as f:
            assert re.search(r"Max core file size +1 +1 ", f.read())


def test_half_requests_over_tcp_take_no_memory(c):
    with Alone(c, "halves") as a:
        def rss():
            with open(f"/proc/{a.process.pid}/status", encoding="ascii") as f:
                return int(re.search(r"VmRSS:\s+(\d+) kB", f.read())[1])
        before, socks = rss(), []
        for token in ("", "Authorization: Bearer a-token-of-this-test\r\n"):
            for _ in range(50):
                s = connect(a.admin)
                s.setblocking(False)
                with contextlib.suppress(OSError):
                    s.send("PUT /v1/policy?path=/ HTTP/1.1\r\nHost: "
                           f"localhost\r\n{token}Content-Length: 1000000\r\n\r\n".encode() + b"x"
                           * 900000)
                socks.append(s)
        assert json.loads(over_tcp(a.unix, "GET", "/v1/health")[1])["status"]
        assert rss() - before < 32 * 1024, f"{rss() - before} KiB more"
        for s in socks:
            s.close()


def test_a_token_has_to_be_a_secret(c):
    path = f"{c.top}/bad.token"
    for text, mode, needle in (("short", 0o400, "16 to 256"), ("x" * 257, 0o400, "16 to 256"),
                               ("with a space in it", 0o400, "16 to 256"),
                               ("x" * 20, 0o444, "chmod"),
                               ("x" * 20, 0o620, "chmod"), (None, 0, "No such file")):
        if os.path.exists(path):
            os.unlink(path)
        if text:
            with open(path, "w", encoding="ascii") as f:
                os.fchmod(f.fileno(), mode)
                f.write(text + "\n")
        told = run(program("weft-mds"), "--check", "-c", f"{c.dir}/weft.conf",
                   "-o", f"mds.admin_token={path}", rc=2)
        assert "mds.admin_token: " in told and needle in told, (text, oct(mode), told)


def test_a_server_without_data_servers_on_tcp(c):
    with Alone(c, "alone") as a:
        weft = (program("weft"), "--admin", a.admin)
        assert "0 known, 0 alive" in run(*weft, "status")
        assert "4 known" not in run(program("weft"), "status", env={"WEFT_ADMIN": a.admin})
        assert run(program("weft"), "--admin", f"http://{a.admin}", "ds", "list").count("\n") == 1
        assert run(*weft, "policy", "set", "/", "stripes=4").startswith("stripes=4,")
        assert "only 0 data servers" in run(*weft, "policy", "set", "/", "mirrors=2", rc=1)
        assert "Address already in use" in run(*a.args, rc=1)
        told = run(*a.args, "-o", "mds.listen=127.0.0.1:13009", "-o", "mds.admin=127.0.0.1:13008",
                   rc=1)  # on ports of its own: its store is another's
        assert "in use" in told and str(a.process.pid) in told, told
        a.process.send_signal(signal.SIGTERM)
        assert a.process.wait(10) == 0
    with Alone(c, "alone") as a:
        assert run(program("weft"), "--admin", a.admin, "policy", "get",
                   "/").startswith("stripes=4,")
        assert "boot epoch    2\n" in run(program("weft"), "--admin", a.admin, "status")


def test_it_ends_while_policies_are_being_set(c):
    with Alone(c, "ending") as a:
        def change():
            with contextlib.suppress(OSError, http.client.HTTPException, AssertionError):
                while True:
                    ask(a.admin, "PUT", "/v1/policy?path=/", b"stripes=2")
        threads = [threading.Thread(target=change, daemon=True) for _ in range(4)]
        for t in threads:
            t.start()
        time.sleep(0.2)
        a.process.send_signal(signal.SIGTERM)
        assert a.process.wait(10) == 0
        for t in threads:
            t.join(60)


main(globals())
