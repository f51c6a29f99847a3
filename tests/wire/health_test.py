#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""weft health, GET /v1/health and their metrics: each reason comes and goes. Prints TAP.

docs/health.md says what each reason means.
"""
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../wirelib"))
import harness  # noqa: E402
import tap  # noqa: E402
from harness import *  # noqa: E402,F403
from beside import Server  # noqa: E402
from nfs41 import close, err, remove  # noqa: E402
from mirrored import Wide, object_path, servers, without  # noqa: E402
from once import back_again  # noqa: E402
from tool import pid_of  # noqa: E402

LEVELS = {"ok": 0, "warn": 1, "error": 2}
SEVERITIES = {"info": 0, "warn": 1, "error": 2}
SEEN = set()


def weft(w, *args, rc=0):
    done = subprocess.run([os.path.join(BUILD, "weft"), "--admin", w.where["mds"], *args],
                          capture_output=True, text=True, timeout=60, check=False)
    check(done.returncode, rc, f"weft {' '.join(args)}: {done.stdout} {done.stderr}")
    return done.stdout


def health(w):
    """The answer of weft health, whose exit status fits to it."""
    done = subprocess.run([os.path.join(BUILD, "weft"), "--admin", w.where["mds"], "--json",
                           "health"], capture_output=True, text=True, timeout=60, check=False)
    if done.returncode == 3:
        return {"health": None, "reasons": []}
    got = json.loads(done.stdout)
    check(done.returncode, LEVELS[got["health"]])
    check(done.returncode, max([SEVERITIES[r["severity"]] for r in got["reasons"]], default=0))
    SEEN.update(r["code"] for r in got["reasons"])
    return got


def reasons(w):
    return {r["code"]: r for r in health(w)["reasons"]}


def has(w, code, severity="warn"):
    """Waits for the reason, also among the metrics. Returns it."""
    got = {}

    def there():
        got.update(reasons(w))
        return code in got
    eventually(there, 60, code)
    check(got[code]["severity"], severity, code)
    check(bool(got[code]["text"] and got[code]["hint"]) and got[code]["count"] > 0, True, got)
    eventually(lambda: w.metric(rf'weft_health_reason\{{reason="{code}"\}}') == 1, 60, code)
    eventually(lambda: w.metric("weft_health_status") >= SEVERITIES[severity], 60, "the status")
    return got[code]


def gone(w, *codes):
    for code in codes:
        eventually(lambda code=code: code not in reasons(w), 60, f"{code} goes; {reasons(w)}")
        eventually(lambda code=code: w.metric(rf'weft_health_reason\{{reason="{code}"\}}') == 0,
                   60, code)


def sound(w):
    eventually(lambda: health(w)["health"] == "ok", 60, f"OK: {reasons(w)}")
    eventually(lambda: w.metric("weft_health_status") == 0, 60, "the status is 0")


def ask(w, query="", name="mds"):
    status, body = devtool.MODULE.ask(w.where[name], "/v1/health" + query)
    return status, json.loads(body) if body else {}


def settle(w, *sets):
    """Restarts all with these settings."""
    w.dev("down", w.dir)
    w.dev("up", w.dir, *[a for s in sets for a in ("--set", s)])


def file_of(name, policy):
    x = Wide(name, 1 << 20, policy)
    x.give_back()
    x.c.ok(putfh(x.f), close(x.s))
    return x


def test_servers_that_are_away(w):
    two, one = file_of("two", "mirrors=2"), file_of("one", "mirrors=1")
    for i in range(20):
        c, d = two.c, two.d
        s, f = c.open(d, f"other{i}")
        c.ok(putfh(f), close(s))
    sound(w)
    check(weft(w, "health"), "OK: nothing is wrong\n")
    check(health(w)["rows_examined"], 0)
    name = servers(one.c, one.f)[0]
    pid = pid_of(w, name)
    try:
        stand_still(pid)
        check(name in has(w, "ds-suspect")["text"], True)
        check(name in has(w, "ds-dead")["text"], True)
        check(has(w, "files-lost", "error")["count"], 1)
        eventually(lambda: has(w, "files-degraded")["count"] == 21, 60, "two and its neighbours")
        eventually(lambda: not has(w, "files-degraded")["count_is_minimum"], 60, "all are counted")
        check(reasons(w)["files-lost"]["count"], 1)
        check(health(w)["rows_examined"], 0)  # none of them is in the table of repairs
        said = weft(w, "mirror", "status")
        check(name + " is dead" in said and "no copy is known to be out of sync" not in said, True,
              said)
        check(weft(w, "health", rc=2).startswith("ERROR: files-lost, "), True)
        two.c.ok(putfh(two.d), remove("other0"))
        check(name in has(w, "orders-late")["text"], True)
    finally:
        os.kill(pid, signal.SIGCONT)
    gone(w, "ds-dead", "ds-suspect", "files-lost", "files-degraded", "orders-late")
    sound(w)


def test_copies_that_are_not_in_sync(w):
    x = Wide("stale", 1 << 20)
    for i in range(20):
        s, f = x.c.open(x.d, f"other{i}")
        x.c.ok(putfh(f), close(s))
    x.report(1)
    x.give_back()
    check(has(w, "files-stale")["count"], 1)
    check(has(w, "files-degraded")["count"], 1)
    check(health(w)["rows_examined"], 1, "of 21 files")
    # Repair has no copy to read: somebody removed it.
    good = next(i for i, m in enumerate(json.loads(weft(w, "--json", "file", "show",
                                                        "/stale/f"))["mirrors"])
                if m["state"] == "in-sync")
    path = object_path(w, x.c, x.f, good)
    with without(w, os.path.relpath(path, w.dir).split("/")[0]):
        os.unlink(path)
    w.dev("down", w.dir)
    w.dev("up", w.dir, "--set", "mds.repair_files=4")
    has(w, "repair-failing")
    c = client()
    c.until(lambda got: err(got.status) not in ("GRACE", "DELAY"), putfh(c.root()),
            lookup("stale"), remove("f"), tries=400)
    gone(w, "files-stale", "files-degraded", "repair-failing")
    sound(w)


def test_what_an_administrator_did(w):
    weft(w, "ds", "drain", "ds2")
    check("ds2" in has(w, "ds-draining", "info")["text"], True)
    sound(w)
    weft(w, "ds", "undrain", "ds2")
    gone(w, "ds-draining")
    weft(w, "ds", "kill", "ds2")
    check("ds2" in has(w, "ds-killed")["text"], True)
    weft(w, "ds", "admit", "ds2")
    gone(w, "ds-killed")
    sound(w)
    settle(w, "mds.admit=manual")
    s = Server(w, "extra")
    try:
        check("extra" in has(w, "ds-waiting")["text"], True)
        status, _ = devtool.MODULE.ask(f"unix:{s.admin}", "/v1/health")
        check(status, 200)
        status, body = devtool.MODULE.ask(f"unix:{s.admin}", "/v1/health?ready")
        check((status, "weft ds admit" in json.loads(body)["why"]), (503, True))
        weft(w, "ds", "admit", "extra")
        gone(w, "ds-waiting")
        sound(w)
        eventually(lambda: devtool.MODULE.ask(f"unix:{s.admin}", "/v1/health?ready")[0] == 200,
                   60, "it is ready")
    finally:
        s.end()


def test_a_start(w):
    """The metadata server alone; then in grace; then ready."""
    c = client()
    s, _ = c.open(c.mkdir(c.root(), "held"), "f")
    sound(w)
    check(ask(w, "?ready")[0], 200)
    for name in ("ds1", "ds2", "mds"):
        w.dev("kill", w.dir, name, "-9")
    check(subprocess.run([os.path.join(BUILD, "weft"), "--admin", w.where["mds"], "health"],
                         capture_output=True, check=False).returncode, 3)
    w.dev("start", w.dir, "mds")
    has(w, "not-serving", "error")
    has(w, "ds-none", "error")
    check("ds1" in has(w, "ds-not-joined")["text"], True)
    status, got = ask(w)
    check((status, got["status"], bool(got["why"])), (503, "waiting", True))
    check(got["error"], got["why"])
    w.dev("start", w.dir, "ds1")
    w.dev("start", w.dir, "ds2")
    has(w, "in-grace")
    check((ask(w)[0], ask(w, "?ready")[0]), (200, 503))
    check("grace" in ask(w, "?ready")[1].get("error", ""), True)
    back_again(c).ok(reclaim_complete())
    gone(w, "not-serving", "ds-none", "ds-not-joined", "in-grace")
    check(ask(w, "?ready")[0], 200)
    check(bool(s), True)


def test_clients_that_are_silent(w):
    c = client()
    _, f = c.open(c.mkdir(c.root(), "silent"), "f")
    check(bool(f), True)
    check(has(w, "clients-courteous")["count"], 1)
    told = json.dumps(ask(w)[1])
    for secret in ("silent", *[x["name"] for x in json.loads(weft(
            w, "--json", "client", "list"))["clients"]]):
        check(secret in told, False, f"{secret} is told to everybody: {told}")
    weft(w, "client", "evict", "1")
    gone(w, "clients-courteous")
    sound(w)


def test_what_a_scrub_found(w):
    x = file_of("scrubbed", "mirrors=1")
    path = object_path(w, x.c, x.f)
    with without(w, os.path.relpath(path, w.dir).split("/")[0]):
        os.unlink(path)
    weft(w, "scrub", rc=1)
    has(w, "scrub-damage")
    x.c.ok(putfh(x.d), remove("f"))
    weft(w, "scrub")
    gone(w, "scrub-damage")
    sound(w)


def test_exports_and_versions(w):
    path = os.path.join(w.dir, "exports")
    with open(path, encoding="utf-8") as f:
        had = f.read()
    there = 'client "*" { access = rw squash = none privileged_port = false }'
    for text, code, severity in ((had + f'export "/absent" {{ {there} }}\n', "exports-missing",
                                  "warn"),
                                 (f'export "/absent" {{ {there} }}\n', "exports-none", "error")):
        with open(path, "w", encoding="utf-8") as f:
            f.write(text)
        weft(w, "exports", "reload")
        has(w, code, severity)
        check("/absent" in json.dumps(ask(w)[1]), False, "a path is told to everybody")
    with open(path, "w", encoding="utf-8") as f:
        f.write(had)
    weft(w, "exports", "reload")
    gone(w, "exports-missing", "exports-none")
    # Somebody, or another node, changes them while the server is stopped.
    w.dev("kill", w.dir, "mds", "-9")
    with open(path, "w", encoding="utf-8") as f:
        f.write(had + f'export "/more" {{ create = yes {there} }}\n')
    w.dev("start", w.dir, "mds")
    check("1 exports are not as they were" in has(w, "exports-differ", "info")["text"], True)
    weft(w, "exports", "reload")
    gone(w, "exports-differ")
    with open(path, "w", encoding="utf-8") as f:
        f.write(had)
    weft(w, "exports", "reload")
    # A data server of another version.
    version = subprocess.run([os.path.join(BUILD, "weft-ds"), "--version"], capture_output=True,
                             text=True, check=True).stdout.split()[1]
    other = os.path.join(w.top, "weft-ds-other")
    with open(os.path.join(BUILD, "weft-ds"), "rb") as f:
        program = f.read()
    with open(other, "wb") as f:
        f.write(program.replace(version.encode() + b"\0",
                                b"9" * len(version) + b"\0"))
    os.chmod(other, 0o755)
    s = Server(w, "newer", program=other)
    try:
        check("newer" in has(w, "ds-versions")["text"], True)
        check({d["name"]: d["version"] for d in json.loads(weft(w, "--json", "ds", "list"))["ds"]},
              {"ds1": version, "ds2": version, "newer": "9" * len(version)})
    finally:
        s.end()
    gone(w, "ds-versions")


def certificate(where, days):
    key, cert = os.path.join(where, "key.pem"), os.path.join(where, "cert.pem")
    request = os.path.join(where, "request.pem")
    for args in (("req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                  "-keyout", key, "-out", request, "-subj", "/CN=mds"),
                 ("x509", "-req", "-in", request, "-signkey", key, "-days", str(days), "-out",
                  cert)):
        subprocess.run(["openssl", *args], check=True, capture_output=True, timeout=60)
    return key, cert


def test_a_certificate_that_ends(w):
    with tempfile.TemporaryDirectory(dir=w.top) as where:
        key, cert = certificate(where, 10)
        settle(w, "mds.tls=optional", f"mds.tls_cert={cert}", f"mds.tls_key={key}")
        told = has(w, "tls-cert-ends")["text"]  # in its first second it has 10 days left
        check("9 days" in told or "10 days" in told, True, told)
        certificate(where, -1)
        os.kill(pid_of(w, "mds"), signal.SIGHUP)
        has(w, "tls-cert-over", "error")
        gone(w, "tls-cert-ends")
        certificate(where, 90)
        os.kill(pid_of(w, "mds"), signal.SIGHUP)
        gone(w, "tls-cert-over", "tls-cert-ends")
        sound(w)


def test_disks_that_fill(w):
    """Each data server is on a disk that has more than a percent in use."""
    one = os.statvfs(os.path.join(w.dir, "ds1"))
    if (one.f_blocks - one.f_bavail) * 100 < 2 * one.f_blocks:
        return "the disk is empty"
    settle(w, "mds.near_full=1", "mds.full=100")
    check("ds1" in has(w, "ds-near-full")["text"], True)
    check("near-full" in weft(w, "ds", "list"), True)
    settle(w, "mds.near_full=1", "mds.full=1")
    has(w, "ds-full", "error")
    told = weft(w, "ds", "list")
    check(" full " in told and "near-full" not in told, True, told)
    gone(w, "ds-near-full")
    settle(w, "mds.near_full=100", "mds.full=100", "ds.reserve=17M")
    if one.f_blocks * one.f_frsize > 17 * 64 << 20 and one.f_bavail * one.f_frsize > 1 << 30:
        eventually(lambda: os.stat(os.path.join(w.dir, "ds1", "reserve")).st_size == 17 << 20, 60,
                   "the reserve grows")
    gone(w, "ds-full", "ds-near-full")
    sound(w)
    return None


def test_a_metadata_store_without_room(w):
    store, small = os.path.join(w.dir, "mds"), os.path.join(w.top, "small")
    w.dev("down", w.dir)
    os.mkdir(small)
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=224M", "small", small], check=False,
                      capture_output=True).returncode:
        w.dev("up", w.dir)
        return "no tmpfs can be mounted here"
    try:
        shutil.copytree(store, small, dirs_exist_ok=True)
        os.rename(store, store + ".was")
        os.symlink(small, store)
        w.dev("up", w.dir)
        has(w, "store-near-full")
        with open(os.path.join(small, "ballast"), "wb") as f:
            os.posix_fallocate(f.fileno(), 0, os.statvfs(small).f_bavail * 4096 - (32 << 20))
        has(w, "store-full", "error")
        gone(w, "store-near-full")
        os.unlink(os.path.join(small, "ballast"))
        gone(w, "store-full")
        subprocess.run(["mount", "-o", "remount,size=1G", small], check=True)
        gone(w, "store-near-full")
        sound(w)
        w.dev("down", w.dir)
        os.unlink(store)
        os.rename(store + ".was", store)
    finally:
        subprocess.run(["umount", "-l", small], check=False)
    return None


def settings(name):
    return [*([] if "silent" in name else CALM), "mds.ds_suspect=700ms",
            # Time to be seen suspect: two programs and a request come between.
            *(["mds.ds_dead=20s", "ds.lease=25s"] if "away" in name else ["mds.ds_dead=30s"]),
            "mds.orders_late=1s",
            # Of a start, until the client is back.
            f"mds.grace={'60s' if 'start' in name else '3s'}", "mds.courtesy=60s"]


if __name__ == "__main__":
    run_apart(globals(), ds=2, settings=settings, beside=8)
