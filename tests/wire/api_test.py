#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Who may do what with the admin API: users of the Unix socket, tokens, certificates; and the audit
of what they did. Prints TAP."""
import contextlib
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
import tap  # noqa: E402
from api_server import DEADLINE_S, GROUP, NOBODY, TCP, TLS, Server  # noqa: E402
from daemons import program, run  # noqa: E402
from tap import SRC  # noqa: E402


def curl(*args, user=0, groups=()):
    """The status and the answer."""
    done = subprocess.run(["curl", "-s", "-w", "\n%{http_code}", *args], capture_output=True,
                          text=True, timeout=DEADLINE_S, check=False, user=user, group=user,
                          extra_groups=groups, cwd="/")
    body, status = done.stdout.rsplit("\n", 1)
    return int(status), body


def over_unix(s, method, target, **who):
    return curl("--unix-socket", s.path, "-X", method, "--data", "stripes=2",
                f"http://localhost{target}", **who)


def over_tcp(method, target, token):
    return curl("-X", method, "-H", f"Authorization: Bearer {token}", "--data", "stripes=2",
                f"http://{TCP}{target}")


def test_the_unix_socket_gives_roles_by_user_and_group(s):
    gid = int(subprocess.run(["getent", "group", GROUP], capture_output=True, text=True,
                             check=True).stdout.split(":")[2])
    for who in ({"user": NOBODY}, {"user": NOBODY, "groups": [gid + 1]}):
        assert over_unix(s, "GET", "/v1/status", **who)[0] == 200
        for method, target, role in (("PUT", "/v1/policy?path=/", "operate"),
                                     ("PUT", "/v1/ds/kill?ds=1", "admin"),
                                     ("GET", "/v1/tokens", "admin")):
            status, text = over_unix(s, method, target, **who)
            assert (status == 403 and f"the role {role}" in json.loads(text)["error"]
                    and "user nobody" in text), (target, status, text)
    for who in ({"user": NOBODY, "groups": [gid]}, {"user": 0}):
        assert over_unix(s, "PUT", "/v1/policy?path=/", **who)[0] == 200, who
        assert over_unix(s, "GET", "/v1/tokens", **who)[0] == 200, who


def test_a_token_has_the_role_that_it_was_made_with(s):
    may = {"read": s.token("read", "r1"), "operate": s.token("operate", "o1"),
           "admin": s.token("admin", "a1")}
    order = list(may)
    for method, target, need in (("GET", "/v1/status", "read"),
                                 ("PUT", "/v1/policy?path=/", "operate"),
                                 ("PUT", "/v1/verify?path=/&mend=1", "admin"),
                                 ("PUT", "/v1/scrub?newer=1", "admin"),
                                 ("GET", "/v1/tokens", "admin")):
        for role, token in may.items():
            status, text = over_tcp(method, target, token)
            if order.index(role) < order.index(need):
                assert status == 403 and ("the role operate" if role == "read" and "PUT" == method
                                          else f"the role {need}") in text, (target, role, text)
            else:
                assert status not in (401, 403), (target, role, status, text)
    for bad in ("weft_" + "x" * 43, may["read"][:-1], may["read"] + "x", "x"):
        status, text = over_tcp("GET", "/v1/status", bad)
        assert status == 401 and "unknown token" in text, (bad, status, text)
    assert over_tcp("GET", "/v1/health", "x")[0] == 200
    assert over_tcp("PUT", "/v1/policy?path=/", "the-token-of-the-file")[0] == 200
    got = {t["name"]: t for t in json.loads(s.weft("--json", "token", "list"))["tokens"]}
    for role, name in (("read", "r1"), ("operate", "o1"), ("admin", "a1")):
        t = got[name]
        assert (t["role"] == role and t["ends_at"] is None
                and abs(t["made_at"] - time.time()) < 600
                and t["last_used_at"] >= t["made_at"]), t
    assert "a token of that name exists" in s.weft("token", "create", "--role", "read", "--name",
                                                   "r1", rc=1)
    assert "expected read, operate or admin" in s.weft("token", "create", "--role", "all", rc=1)
    assert "--role" in s.weft("token", "create", rc=2)
    # A token counts before what is known of the user.
    assert "needs the role operate" in s.weft("policy", "set", "/", "stripes=2", rc=1,
                                              WEFT_TOKEN=may["read"])
    s.weft("token", "revoke", "r1")
    assert over_tcp("GET", "/v1/status", may["read"])[0] == 401
    assert "no token has that name" in s.weft("token", "revoke", "r1", rc=1)


def test_tokens_end_and_the_store_has_none(s):
    lasting, short = s.token("read", "lasting"), s.token("read", "short", "--days", "0.00003")
    deadline = time.monotonic() + DEADLINE_S
    while over_tcp("GET", "/v1/status", short)[0] != 401:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    s.stop()
    for name in os.listdir(f"{s.top}/store"):
        path = f"{s.top}/store/{name}"
        if os.path.isfile(path):
            with open(path, "rb") as f:
                assert lasting.encode() not in f.read(), name
    s.start()
    assert over_tcp("GET", "/v1/status", lasting)[0] == 200
    assert over_tcp("GET", "/v1/status", short)[0] == 401
    assert lasting not in s.text()


def test_each_change_leaves_a_line(s):
    operate = s.token("operate", "auditor")
    over_tcp("PUT", "/v1/policy?path=/", operate)
    over_tcp("PUT", "/v1/ds/kill?ds=77", operate)
    over_unix(s, "PUT", "/v1/policy?path=/", user=NOBODY)
    over_unix(s, "DELETE", "/v1/tokens?name=nothing%0athere")
    over_tcp("PUT", "/v1/policy?path=/", "wrong")
    want = [("token auditor", r"PUT /v1/policy: 200, from 127\.0\.0\.1:\d+; path=/"),
            ("token auditor", r"PUT /v1/ds/kill: 403, from 127\.0\.0\.1:\d+; ds=77"),
            ("user nobody", "PUT /v1/policy: 403, from unix; path=/"),
            ("user root", r"DELETE /v1/tokens: 404, from unix; name=nothing\?there"),
            ("user root", r"POST /v1/tokens: 200, from unix; role=operate; name=auditor"),
            ("token", r"PUT /v1/policy: 401, from 127\.0\.0\.1:\d+; path=/")]
    deadline = time.monotonic() + DEADLINE_S
    while True:
        got = [json.loads(line) for line in s.weft("--json", "events", "--kind", "audit",
                                                   "-n", "1000").splitlines()]
        left = [w for w in want if not any(e["subject"] == w[0] and re.fullmatch(w[1], e["text"])
                                           for e in got)]
        if not left:
            break
        assert time.monotonic() < deadline, (left, got[-8:])
        time.sleep(0.1)
    for who, what in want:
        assert re.search(rf"INFO weft-mds: audit: {who}: {what}$", s.text(), re.M), (who, what)
    assert operate not in s.text()
    # GET leaves none.
    assert not any("GET" in e["text"] for e in got)


def test_strangers_cannot_flood_the_journal(s):
    before = s.text().count("audit:")
    began = time.monotonic()
    args = []
    for _ in range(300):
        args += ["-o", "/dev/null", f"http://{TCP}/v1/ds/kill"]
    subprocess.run(["curl", "-s", "-X", "PUT", *args], timeout=DEADLINE_S, check=True,
                   capture_output=True)
    seconds = int(time.monotonic() - began) + 2
    assert s.text().count("audit:") - before <= min(10 * seconds, 290)
    deadline = time.monotonic() + DEADLINE_S
    while not re.search(r"audit: unknown: PUT /v1/ds/kill: 403, from \S+, after \d+ more",
                        s.text()):
        assert time.monotonic() < deadline
        subprocess.run(["curl", "-s", "-X", "PUT", f"http://{TCP}/v1/ds/kill"], check=True,
                       capture_output=True)
        time.sleep(0.2)


def test_https_takes_tokens_and_certificates(s):
    base = ("--cacert", f"{s.top}/ca.pem")
    assert curl(*base, f"{TLS}/v1/health")[0] == 200
    for target in ("/v1/status", "/metrics"):
        assert curl(*base, f"{TLS}{target}")[0] == 403, target
    token = s.token("operate", "tls")
    assert curl(*base, "-H", f"Authorization: Bearer {token}", f"{TLS}/metrics")[0] == 200
    s.cert("watcher", "ca", "clientAuth")
    s.cert("second", "ca", "clientAuth", "DNS:ops.example.org,DNS:x.example", "watcher")
    s.cert("boss", "ca", "clientAuth")
    s.cert("stranger", "ca", "clientAuth")
    s.cert("forged", "other", "clientAuth", cn="boss")
    s.cert("misused", "ca", "serverAuth", cn="boss")
    for name, get, put, kill in (("watcher", 200, 403, 403), ("second", 200, 200, 403),
                                 ("boss", 200, 200, 404), ("stranger", 403, 403, 403),
                                 ("forged", 403, 403, 403), ("misused", 403, 403, 403)):
        mine = (*base, "--cert", f"{s.top}/{name}.pem", "--key", f"{s.top}/{name}.key")
        got = (curl(*mine, f"{TLS}/v1/status")[0],
               curl(*mine, "-X", "PUT", "--data", "stripes=2", f"{TLS}/v1/policy?path=/")[0],
               curl(*mine, "-X", "PUT", f"{TLS}/v1/ds/kill?ds=77")[0])
        assert got == (get, put, kill), (name, got)
    assert re.search(r"audit: certificate ops\.example\.org: PUT /v1/policy: 200", s.text())
    assert re.search(r"audit: certificate stranger: PUT /v1/policy: 403", s.text())
    # An old TLS, and a page in a browser.
    assert curl(*base, "--tls-max", "1.2", f"{TLS}/v1/health")[0] == 0
    assert curl(*base, "-H", "Origin: https://evil.example", f"{TLS}/v1/health")[0] == 403


def test_weft_speaks_https(s):
    s.cert("boss2", "ca", "clientAuth", cn="boss")
    ca = ("--cacert", f"{s.top}/ca.pem")
    s.file("weft.token", s.token("read", "cli"))
    for args, env in ((("--token-file", f"{s.top}/weft.token"), {}),
                      (("--cert", f"{s.top}/boss2.pem", "--key", f"{s.top}/boss2.key"), {}),
                      ((), {"WEFT_ADMIN_TOKEN": f"{s.top}/weft.token"})):
        assert "0 known" in s.weft(*ca, *args, "status", admin=TLS, **env), args
    assert "needs the role read" in s.weft(*ca, "status", rc=1, admin=TLS)
    assert "certificate" in s.weft("status", rc=3, admin=TLS)
    assert "--token-file" in s.weft("--token-file", f"{s.top}/none", "status", rc=3, admin=TLS)


def test_the_certificate_is_exchanged_while_it_serves(s):
    def serial():
        done = subprocess.run(["openssl", "s_client", "-connect", TLS[8:]], input="",
                              capture_output=True, text=True, timeout=DEADLINE_S, check=False)
        return re.search(r"-----BEGIN.*?-----END", done.stdout, re.S)[0]
    before = serial()
    s.cert("server", "ca", "serverAuth", "IP:127.0.0.1")
    s.process.send_signal(signal.SIGHUP)
    deadline = time.monotonic() + DEADLINE_S
    now = None
    while now in (None, before):
        assert time.monotonic() < deadline
        with contextlib.suppress(TypeError):
            now = serial()
        time.sleep(0.1)
    with open(f"{s.top}/server.pem", "w", encoding="ascii") as f:
        f.write("nothing\n")
    s.process.send_signal(signal.SIGHUP)
    while "the old certificate stays" not in s.text():
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert serial() == now


def test_check_refuses_what_cannot_start(s):
    for change, needle in (({"mds.admin": "10.0.0.1:1"}, "without https://"),
                           ({"mds.admin": "https://nowhere:1"}, "not an address"),
                           ({"mds.tls_key": ""}, "https:// needs mds.tls_cert and mds.tls_key"),
                           ({"mds.admin_certs": "all boss"}, "expected read, operate or admin"),
                           ({"mds.admin_certs": "read"}, "expected read, operate or admin")):
        told = run(*s.args(**change), "--check", rc=2)
        assert needle in told, (change, told)


def blocks():
    """The shell blocks of docs/api.md."""
    with open(os.path.join(SRC, "docs/api.md"), encoding="utf-8") as f:
        return re.findall(r"^```sh\n(.*?)^```$", f.read(), re.M | re.S)


def test_the_examples_of_the_guide_run(s):
    s.cert("server", "ca", "serverAuth", "IP:127.0.0.1,DNS:localhost")
    s.process.send_signal(signal.SIGHUP)
    s.cert("ops", "ca", "clientAuth", cn="ops.example.org")
    script = "".join(blocks())
    assert script.count("curl") >= 4, script
    for here, there in (("/run/weft-mds/admin", s.path), ("https://mds.example.org:9443", TLS),
                        ("/etc/weft/ca.pem", f"{s.top}/ca.pem"),
                        ("/etc/weft/ops.pem", f"{s.top}/ops.pem"),
                        ("/etc/weft/ops.key", f"{s.top}/ops.key")):
        assert here in script, here
        script = script.replace(here, there)
    done = subprocess.run(["bash", "-euo", "pipefail", "-c", script], capture_output=True,
                          text=True, check=False, cwd=s.top, timeout=DEADLINE_S,
                          env={**os.environ, "WEFT_ADMIN": s.unix,
                               "PATH": f"{os.path.dirname(program('weft'))}:{os.environ['PATH']}"})
    assert done.returncode == 0 and '"error"' not in done.stdout, (done.stdout, done.stderr)


def main():
    if not tap.built("weft", "weft-mds") or not shutil.which("curl") or os.geteuid():
        tap.skip("the programs are not built, curl is missing, or this is not root")
        return
    s = Server()
    try:
        tap.run(tap.named(globals()), tap.giving(s))
    finally:
        s.down()


if __name__ == "__main__":
    main()
