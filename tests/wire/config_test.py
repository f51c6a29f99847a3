#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The configuration of real daemons: its errors, its examples in the man pages and
guides. Prints TAP."""
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../wirelib"))
from daemons import *  # noqa: E402,F403
from tap import SRC  # noqa: E402


# ---- configuration


def test_configuration_errors_name_file_line_key_and_what_was_expected(c):
    conf = f"{c.top}/bad.conf"
    for text, needles in (
            ("mds {\n\tlease = 5x\n}\n", [":2:", "mds.lease", "a time such as 30s", '"5x"']),
            ("mds {\n\tstore = /x\n\n\tleese = 5s\n}\n",
             [":4:", '"mds.leese"', "did you mean mds.lease?"]),
            ("# one\n/* two\n three */\nmds {\n\tlease = 0s // four\n}\n",
             [":5:", "mds.lease", "a time from 1s to 3600s", '"0s"']),
            ("mds {\n\tthreads = 65\n}\n", [":2:", "mds.threads", "a number from 1 to 64"]),
            ("mds {\n\tthreads = many\n}\n",
             [":2:", "mds.threads", "a number from 1 to 64", '"many"']),
            ("mds {\n\tsync = maybe\n}\n", [":2:", "mds.sync", "true or false"]),
            ("mds {\n\tsize_from_ds = perhaps\n}\n",
             [":2:", "mds.size_from_ds", "one of always|layout|never"]),
            ("log {\n\tlevel = loud\n}\n", [":2:", "log.level", "one of error|warn|info|debug"]),
            ("ds {\n\theartbeet = 1s\n}\n", [":2:", '"ds.heartbeet"', "ds.heartbeat"]),
            ("\nmdss {\n\tlease = 5s\n}\n", [":2:", '"mdss"']),
            ("lease = 5s\n", [":1:", '"lease"']),
            ("mds {\n\tlease 5s\n}\n", [":2:"]),
            ("mds {\n\tlease = 5s\n", ["not closed"]),
            ("mds {\n\tlease = 5s\n\0}\n", [])):
        with open(conf, "w", encoding="utf-8") as f:
            f.write(text)
        for daemon in ("weft-mds", "weft-ds"):
            told = run(program(daemon), "-c", conf, rc=2)
            assert (all(n in told for n in [daemon, conf, *needles])
                    and told.count("\n") == 1), f"{text!r}: {told}"
            run(program(daemon), "--check", "-c", conf, rc=2)
    for daemon in ("weft-mds", "weft-ds"):
        for args, needles in ((("-o", "mds.leese=5s"), ["mds.leese", "mds.lease"]),
                              (("-o", "mds.lease"), ["KEY=VALUE", "mds.lease"]),
                              (("-o", "ds.lease=soon"), ["ds.lease", "a time such as 30s"]),
                              (("-o", "=5"), ["KEY=VALUE"]),
                              (("-c", f"{c.top}/none"), [f"{c.top}/none", "No such file"]),
                              (("-c", c.top), [c.top])):
            told = run(program(daemon), *args, rc=2)
            assert (all(n in told for n in needles)
                    and told.count("\n") == 1), f"{daemon} {args}: {told}"
        for args in (("--frob",), ("extra",), ("-o",)):
            assert f"usage: {daemon}" in run(program(daemon), *args, rc=2), args


def test_what_is_not_set_or_cannot_be_used_is_told(c):
    key, store = f"{c.dir}/cluster.key", f"{c.top}/unused"
    with open(f"{c.top}/short.key", "w", encoding="ascii") as f:
        os.fchmod(f.fileno(), 0o600)
        f.write("12ab\n")
    whole = {"mds": [f"mds.store={store}", f"mds.cluster_key={key}", "mds.listen=127.0.0.1:13000"],
             "ds": [f"ds.store={store}", f"ds.cluster_key={key}", "ds.listen=127.0.0.1:13000"]}
    for daemon, change, needles in (
            ("mds", "mds.store=", ["mds.store"]), ("mds", "mds.cluster_key=", ["mds.cluster_key"]),
            ("mds", f"mds.cluster_key={c.top}/none", [f"{c.top}/none"]),
            ("mds", f"mds.cluster_key={c.top}/short.key", [f"{c.top}/short.key", "64 hexadecimal"]),
            ("mds", "mds.store=/proc/none/x", ["/proc/none/x"]),
            ("mds", "mds.listen=nowhere", ["mds.listen", "nowhere"]),
            ("mds", f"mds.listen=127.0.0.1:{PORT}", ["mds.listen", "in use"]),
            ("mds", "mds.admin=0.0.0.0:13001", ["mds.admin", "0.0.0.0"]),
            ("mds", f"mds.admin=unix:{c.dir}/cluster.json", ["mds.admin", "cluster.json"]),
            ("mds", f"mds.admin={c.admin['mds']}", ["mds.admin", "in use"]),
            ("ds", "ds.store=", ["ds.store"]), ("ds", "ds.cluster_key=", ["ds.cluster_key"]),
            ("ds", f"ds.cluster_key={c.top}/short.key", ["ds.cluster_key", "64 hexadecimal"]),
            ("ds", "ds.listen=nowhere", ["ds.listen", "nowhere"]),
            ("ds", "ds.listen=0.0.0.0:13000", ["ds.advertise", "wildcard"]),
            ("ds", "ds.mds=a,b", ["ds.mds"]),
            ("ds", "ds.mds=127.0.0.1:9, 127.0.0.1:9", ["ds.mds", ":9 is there twice"]),
            ("mds", f"mds.cluster={'5' * 32}", ["mds.cluster", "mds.fs"]),
            ("ds", "ds.mds=", ["ds.mds"]),
            ("ds", "ds.heartbeat=20s", ["ds.heartbeat", "ds.lease"]),
            ("ds", f"ds.store={c.dir}/ds1", [f"{c.dir}/ds1", "another weft-ds"]),
            ("ds", "ds.admin=0.0.0.0:13001", ["ds.admin", "0.0.0.0"])):
        done = subprocess.run([program(f"weft-{daemon}")]
                              + [x for s in [*whole[daemon], change] for x in ("-o", s)],
                              capture_output=True, text=True, timeout=60, check=False,
                              env=environment(f"weft-{daemon}"))
        told = [line for line in done.stderr.splitlines()
                if " INFO " not in f" {line}" and not line.startswith("INFO")]
        assert done.returncode in (1, 2) and len(told) == 1 and all(
            n in told[0] for n in needles), f"{change}: {done.returncode} {done.stderr}"


FILES = """mds.store={top}/s
mds.cluster_key={key}
mds.exports={top}/exports
mds.admin=unix:{top}/sock
ds.store={top}/s
ds.cluster_key={key}
ds.admin=unix:{top}/sock"""


def test_the_examples_of_the_man_pages_are_taken(c):
    """The check replaces the files that this machine does not have. tests/wire/units_test.py starts
    the daemons with the examples word for word."""
    with open(f"{c.top}/exports", "w", encoding="ascii") as f:
        f.write('export "/" { client "*" {} }\n')
    for daemon in ("weft-mds", "weft-ds"):
        with open(os.path.join(SRC, f"docs/{daemon}.8"), encoding="utf-8") as f:
            example = re.search(r"^\.nf\n# /etc/weft/weft.conf\n(.*?)^\.fi", f.read(),
                                re.M | re.S)[1].replace("\\", "")
        with open(f"{c.top}/example.conf", "w", encoding="utf-8") as f:
            f.write(example)
        files = FILES.format(top=c.top, key=f"{c.dir}/cluster.key").splitlines()
        run(program(daemon), "--check", "-c", f"{c.top}/example.conf",
            *[x for s in files for x in ("-o", s)])


def sections(text):
    """Yields each piece of a page that looks like a section of a configuration, or like an export,
    up to its closing bracket."""
    for m in re.finditer(r'\b(?:(mds|ds|log) \{|(export) "[^"\n]*" \{)', text):
        depth, at = 0, m.start()
        for at in range(m.start(), len(text)):
            depth += {"{": 1, "}": -1}.get(text[at], 0)
            if text[at] == "}" and not depth:
                break
        yield bool(m[2]), text[m.start():at + 1].replace("\\", "")


def test_every_configuration_in_the_guides_is_taken(c):
    found = {True: 0, False: 0}
    for name in sorted(os.listdir(os.path.join(SRC, "docs"))):
        if not name.endswith((".md", ".8", ".5", ".1")):
            continue
        with open(os.path.join(SRC, "docs", name), encoding="utf-8") as f:
            for export, text in sections(f.read()):
                with open(f"{c.top}/section", "w", encoding="utf-8") as out:
                    out.write(text + "\n")
                if export:
                    files = [x for s in FILES.format(top=c.top,
                                                     key=f"{c.dir}/cluster.key").splitlines()
                             if ".exports=" not in s for x in ("-o", s)]
                    run(program("weft-mds"), "--check", *files,
                        "-o", f"mds.exports={c.top}/section")
                else:
                    run(program("weft-mds"), "--check=values", "-c", f"{c.top}/section")
                found[export] += 1
    assert found[True] >= 3 and found[False] >= 4, found


def test_check_refuses_what_cannot_start(c):
    """Both exit with 2, the status of a configuration that makes no sense."""
    key = f"{c.dir}/cluster.key"
    for name, text in (("short.key", "12ab"), ("bad.exports", 'export "/a" {')):
        with open(f"{c.top}/{name}", "w", encoding="ascii") as f:
            os.fchmod(f.fileno(), 0o600)
            f.write(text)
    good = ([s for s in FILES.format(top=c.top, key=key).splitlines() if ".exports=" not in s]
            + ["mds.listen=127.0.0.1:13000", "ds.listen=127.0.0.1:13000"])
    for d in ("mds", "ds"):
        sets = [x for s in good for x in ("-o", s)]
        run(program(f"weft-{d}"), "--check", *sets)
        # RuntimeDirectory= of a unit that does not run.
        run(program(f"weft-{d}"), "--check", *sets, "-o", f"{d}.admin=unix:/run/weft-none/admin")
        for change, needles in (
                ("store=", [f"{d}.store"]),
                ("store=/nowhere/at/all", [f"{d}.store", "/nowhere/at/all", "No such file"]),
                (f"store={key}", [f"{d}.store", "Not a directory"]),
                ("cluster_key=", [f"{d}.cluster_key"]),
                (f"cluster_key={c.top}/none", [f"{d}.cluster_key", "No such file"]),
                (f"cluster_key={c.top}/short.key", [f"{d}.cluster_key", "64 hexadecimal"]),
                (f"exports={c.top}/none", [f"{c.top}/none", "No such file"]),
                (f"exports={c.top}/bad.exports", ["bad.exports", "not closed"]),
                ("tls=required", [f"{d}.tls_cert", "names no file"]),
                ("admin=bogus", [f"{d}.admin", '"bogus"', "unix:/path"]),
                ("admin=0.0.0.0:9300", [f"{d}.admin", "127.0.0.0/8"]),
                ("admin=127.0.0.1:http", [f"{d}.admin", "127.0.0.1:PORT"]),
                ("admin=unix:sock", [f"{d}.admin", "absolute"]),
                ("admin=unix:/run/weft-none/deeper/admin", [f"{d}.admin", "No such file"]),
                (f"admin=unix:{c.top}/no/sock", [f"{d}.admin", f"{c.top}/no: No such"]),
                (f"admin=unix:{key}", [f"{d}.admin", "not a socket"])):
            for how in (["--check"], []):
                told = run(program(f"weft-{d}"), *how, *sets, "-o", f"{d}.{change}", rc=2)
                assert (all(n in told for n in needles)
                        and told.count("\n") == 1), f"{d} {how} {change}: {told}"


def test_an_admin_socket_is_for_its_group_whatever_the_umask(c):
    """The unit's umask is 0077."""
    d = f"{c.top}/umask"
    os.mkdir(d)
    dead = subprocess.Popen([program("weft-ds"), "-o", f"ds.store={d}/s",
                             "-o", f"ds.cluster_key={c.dir}/cluster.key",
                             "-o", "ds.listen=127.0.0.1:13007", "-o", f"ds.admin=unix:{d}/sock",
                             "-o", "ds.mds=127.0.0.1:13008", "-o", "ds.pool=32M"], umask=0o077,
                            stderr=subprocess.DEVNULL, env=environment("weft-ds"))
    try:
        until = time.monotonic() + 60
        while not os.path.exists(f"{d}/sock") or os.stat(f"{d}/sock").st_mode & 0o777 != 0o660:
            assert time.monotonic() < until, os.listdir(d)
            time.sleep(0.02)
    finally:
        dead.kill()
        dead.wait()


def test_a_key_that_others_can_read_or_write_is_refused(c):
    shutil.copy(f"{c.dir}/cluster.key", f"{c.top}/open.key")
    for d, mode in (("mds", 0o644), ("ds", 0o644), ("mds", 0o660), ("ds", 0o666)):
        os.chmod(f"{c.top}/open.key", mode)
        sets = [x for s in FILES.format(top=c.top, key=f"{c.top}/open.key").splitlines()
                if ".exports=" not in s for x in ("-o", s)]
        told = run(program(f"weft-{d}"), "--check", *sets, rc=2)
        assert (f"{d}.cluster_key: {c.top}/open.key: mode {mode:04o} lets others read or change "
                "it" in told), told


# ---- keys that change while a daemon runs


def same(got, want):
    assert got == want, f"{got}, want {want}"


def key_of(c, name, daemon="mds"):
    found = ask(c.admin[daemon], "GET", f"/v1/config?key={name}")
    same([k["key"] for k in found["keys"]], [name])
    return found["keys"][0]


def rewrite(c, old, new):
    """Changes the cluster's configuration file, and has weft-mds read it again."""
    path = ask(c.admin["mds"], "GET", "/v1/config")["file"]
    with open(path, encoding="utf-8") as f:
        text = f.read()
    same(text.count(old), 1)
    with open(path, "w", encoding="utf-8") as f:
        f.write(text.replace(old, new))
    os.kill(c.pid["mds"], signal.SIGHUP)


def soon(what, wanted):
    until = time.monotonic() + 60
    while (got := what()) != wanted:
        assert time.monotonic() < until, f"{got} stays, want {wanted}"
        time.sleep(0.02)


def test_a_live_key_changes_at_once_and_is_an_event(c):
    same(ask(c.admin["mds"], "GET", "/v1/repair")["rate"], 256 << 20)
    told = c.weft("set", "mds.repair_rate=64M")
    assert re.search(r"mds\.repair_rate +64M +set +at once", told), told
    same(ask(c.admin["mds"], "GET", "/v1/repair")["rate"], 64 << 20)
    k = key_of(c, "mds.repair_rate")
    same((k["value"], k["default"], k["from"], k["live"]), ("64M", "256M", "set", True))
    soon(lambda: [json.loads(e)["text"] for e in
                  c.weft("--json", "events", "--kind", "config-changed").splitlines()],
         ["mds.repair_rate is 64M, until weft-mds starts again or reads its file"])
    for bad, needles in (("mds.repair_rate=fast", ["a size such as 64M", '"fast"']),
                         ("mds.repair_files=65", ["a number from 0 to 64"]),
                         ("mds.repair_rat=1M", ["did you mean mds.repair_rate?"]),
                         ("ds.heartbeat=2s", ["is not a key of weft-mds"])):
        told = c.weft("set", bad, rc=1)
        assert all(n in told for n in needles), told
    same(key_of(c, "mds.repair_rate")["value"], "64M")
    c.weft("set", "mds.repair_rate", rc=2)


def test_a_key_that_needs_a_start_is_refused_and_says_where_to_change_it(c):
    told = c.weft("set", "mds.threads=2", rc=1)
    path = ask(c.admin["mds"], "GET", "/v1/config")["file"]
    assert f"mds.threads takes effect when the daemon starts: change it in {path}" in told, told
    k = key_of(c, "mds.threads")
    same((k["value"], k["live"], "next_start" in k), ("1", False, True))
    same(k["next_start"], None)


def test_a_data_server_changes_its_own_keys(c):
    daemon = next(n for n in c.admin if n != "mds")
    got = ask(c.admin[daemon], "PUT", "/v1/config?key=log.level&value=debug")
    same(got["keys"][0]["value"], "debug")
    same(key_of(c, "log.level", daemon)["from"], "set")
    same(key_of(c, "log.level")["value"], "info")
    ask(c.admin[daemon], "PUT", "/v1/config?key=mds.repair_rate&value=1M", status=404)
    ask(c.admin[daemon], "PUT", "/v1/config?key=ds.threads&value=2", status=409)
    ask(c.admin[daemon], "PUT", "/v1/config?key=log.level", status=400)
    ask(c.admin[daemon], "PUT", "/v1/config?value=1", status=400)
    ask(c.admin[daemon], "PUT", "/v1/config?key=log.level&value=info")


def test_a_reload_applies_live_keys_and_says_what_waits_for_a_start(c):
    """Live keys of the file count more than what was set; a file with an error changes nothing."""
    c.weft("set", "mds.scrub_delay=5s")
    rewrite(c, "mds {", "mds {\n\trepair_files = 2\n\tcourtesy = 100s")
    soon(lambda: key_of(c, "mds.repair_files")["value"], "2")
    same(ask(c.admin["mds"], "GET", "/v1/repair")["files_at_a_time"], 2)
    soon(lambda: key_of(c, "mds.courtesy")["next_start"], "100s")
    same(key_of(c, "mds.courtesy")["value"], "3600s")
    same(key_of(c, "mds.scrub_delay")["value"], "60s")
    told = c.weft("config")
    assert re.search(r"mds\.courtesy +3600s +default +to 100s at the next start", told), told
    assert "mds.grace" not in told and "mds.grace" in c.weft("config", "--all"), told
    rewrite(c, "repair_files = 2\n\tcourtesy = 100s", "repair_files = two")
    with open(f"{c.dir}/log/mds.log", encoding="utf-8", errors="replace") as f:
        soon(lambda: "the configuration stays as it was" in f.read(), True)
    same(key_of(c, "mds.repair_files")["value"], "2")
    rewrite(c, "mds {\n\trepair_files = two", "mds {")
    soon(lambda: key_of(c, "mds.repair_files")["value"], "4")
    same(key_of(c, "mds.courtesy")["next_start"], None)


main(globals())
