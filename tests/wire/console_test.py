#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""What weft-mds does for the console: its files and their headers, sessions of browsers, and which
pages may send requests. Prints TAP."""
import hashlib
import http.client
import json
import os
import re
import shutil
import ssl
import sys
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../wirelib"))
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import tap  # noqa: E402
from api_server import DEADLINE_S, TCP, TLS, Server  # noqa: E402
from daemons import run  # noqa: E402
from tap import SRC  # noqa: E402

FOLDER = os.path.join(SRC, "console")
COOKIE = {TCP: "weft-session", TLS: "__Host-weft-session"}
ORIGIN = {TCP: f"http://{TCP}", TLS: TLS}


class Browsed(Server):
    change = {}

    def args(self, **change):
        return super().args(**{"mds.console": FOLDER, **self.change, **change})

    def ask(self, where, method, target, body=None, **headers):
        """(status, headers, body). The host is of this machine by each address."""
        at = TCP if where == TCP else TLS[8:]
        if where == TCP:
            conn = http.client.HTTPConnection(at, timeout=DEADLINE_S)
        else:
            ctx = ssl.create_default_context(cafile=f"{self.top}/ca.pem")
            conn = http.client.HTTPSConnection(at, timeout=DEADLINE_S, context=ctx)
        conn.request(method, target, body, {k.replace("_", "-"): v for k, v in headers.items()})
        reply = conn.getresponse()
        got = reply.status, reply.headers, reply.read().decode()
        conn.close()
        return got

    def login(self, where, token):
        status, headers, body = self.ask(where, "POST", "/v1/session", token,
                                         Origin=ORIGIN[where])
        assert status == 200, body
        cookie = headers["Set-Cookie"].split(";")[0]
        return {"Cookie": cookie, "X_Weft_CSRF": json.loads(body)["csrf"]}

    def who(self, where, **headers):
        status, _, body = self.ask(where, "GET", "/v1/session", **headers)
        assert status == 200, body
        return json.loads(body)


def shipped():
    return sorted(os.path.relpath(os.path.join(d, f), FOLDER)
                  for d, _, names in os.walk(FOLDER) for f in names)


# ---- files


def test_each_file_is_served_with_its_type_and_a_strict_policy(s):
    types = {".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8",
             ".css": "text/css; charset=utf-8", ".svg": "image/svg+xml",
             ".json": "application/json"}
    served = 0
    for where in (TCP, TLS):
        for name in shipped():
            kind = types.get(os.path.splitext(name)[1])
            path = "" if name == "index.html" else name
            status, headers, body = s.ask(where, "GET", f"/console/{path}")
            if not kind:
                assert status in (403, 404), name
                continue
            with open(os.path.join(FOLDER, name), encoding="utf-8") as f:
                assert (status, body) == (200, f.read()), name
            served += 1
            policy = dict(p.split(" ", 1) for p in
                          headers["Content-Security-Policy"].split("; "))
            assert policy == {"default-src": "'none'", "script-src": "'self'",
                              "style-src": "'self'", "img-src": "'self' data:",
                              "connect-src": "'self'", "base-uri": "'none'",
                              "form-action": "'self'", "frame-ancestors": "'none'"}, policy
            want = {"Content-Type": kind, "X-Content-Type-Options": "nosniff",
                    "Referrer-Policy": "no-referrer", "Cache-Control": "no-cache",
                    "Cross-Origin-Opener-Policy": "same-origin",
                    "Cross-Origin-Resource-Policy": "same-origin"}
            assert {k: headers[k] for k in want} == want, (name, dict(headers))
    assert served == 2 * len([n for n in shipped() if not n.endswith((".LICENSE", ".am"))])
    status, headers, _ = s.ask(TLS, "GET", "/console")
    assert (status, headers["Location"]) == (308, "/console/")


def test_a_browser_that_has_a_file_gets_it_not_again(s):
    tag = s.ask(TLS, "GET", "/console/app.js")[1]["ETag"]
    assert re.fullmatch('"[0-9a-f]{32}"', tag), tag
    for match, want in ((tag, 304), (f"W/{tag}", 304), (f'"x", {tag}', 304), ("*", 304),
                        (tag.upper(), 200), ('"x"', 200)):
        status, headers, body = s.ask(TLS, "GET", "/console/app.js", If_None_Match=match)
        assert status == want and headers["ETag"] == tag and bool(body) == (want == 200), match
    assert s.ask(TLS, "GET", "/console/api.js")[1]["ETag"] != tag
    assert s.ask(TLS, "HEAD", "/console/app.js")[2] == ""
    for method in ("POST", "PUT", "DELETE"):
        assert s.ask(TLS, method, "/console/app.js")[0] == 405, method


def test_no_path_leads_elsewhere(s):
    token = s.token("admin", "walker")
    for path in ("/console/../cluster.key", "/console/%2e%2e/cluster.key", "/console//app.js",
                 "/console/vendor/../app.js", "/console/vendor/", "/console/vendor",
                 "/console/room.am", "/console/app.js/", "/console/none",
                 "/console/.git", "/consoles", "/console%2fapp.js/../../etc/passwd",
                 "/console/vendor/preact.LICENSE"):
        status, _, body = s.ask(TLS, "GET", path, Authorization=f"Bearer {token}")
        assert status in (400, 404), (path, status, body[:200])


def test_the_folder_is_checked_at_the_start(s):
    other = f"{s.top}/other"
    os.makedirs(f"{other}/vendor")
    for change, needle in ((f"{s.top}/none", "No such file"), (other, "no index.html")):
        told = run(*s.args(**{"mds.console": change}), "--check", rc=2)
        assert f"mds.console: {change}" in told and needle in told, told
    with open(f"{other}/index.html", "w", encoding="ascii") as f:
        f.write("x" * (1 << 20))
    assert "File too large" in run(*s.args(**{"mds.console": other}), "--check", rc=2)
    with open(f"{other}/index.html", "w", encoding="ascii") as f:
        f.write("mine")
    os.mkfifo(f"{other}/pipe.js")
    assert "pipe.js" in run(*s.args(**{"mds.console": other}), "--check", rc=2)
    os.unlink(f"{other}/pipe.js")
    run(*s.args(**{"mds.console": other}), "--check")
    run(*s.args(**{"mds.console": "off"}), "--check")


def test_the_libraries_are_those_of_the_manifest(_):
    with open(f"{FOLDER}/vendor/manifest.json", encoding="utf-8") as f:
        manifest = json.load(f)
    listed = {}
    for m in manifest:
        assert re.fullmatch(r"\d+\.\d+\.\d+", m["version"]), m
        assert m["licence"] in ("MIT", "Apache-2.0"), m
        assert any(x["file"].endswith(".LICENSE") for x in m["files"]), m
        listed.update({x["file"]: x["sha256"] for x in m["files"]})
    assert set(listed) | {"manifest.json"} == set(os.listdir(f"{FOLDER}/vendor"))
    for name, want in listed.items():
        with open(f"{FOLDER}/vendor/{name}", "rb") as f:
            assert hashlib.sha256(f.read()).hexdigest() == want, name


def test_the_page_has_no_markup_from_values_and_no_other_origin(_):
    found = []
    for name in shipped():
        if name.startswith("vendor/") or name.endswith(".am"):
            continue
        with open(os.path.join(FOLDER, name), encoding="utf-8") as f:
            for n, line in enumerate(f, 1):
                if re.search(r"innerHTML|outerHTML|insertAdjacent|document\.write|\beval\b|"
                             r"new Function|setAttribute|https?:(?!//www\.w3\.org/2000/svg\")|"
                             r"\sstyle=|<script>|\son[a-z]+=", line):
                    found.append(f"{name}:{n}: {line.strip()}")
    assert not found, found


# ---- sessions


def test_a_login_gives_a_cookie_that_scripts_cannot_read(s):
    token = s.token("operate", "o1")
    for where, secure in ((TCP, ""), (TLS, "; Secure")):
        status, headers, body = s.ask(where, "POST", "/v1/session", token + "\n",
                                      Origin=ORIGIN[where])
        got = json.loads(body)
        assert status == 200 and headers["Cache-Control"] == "no-store", (status, body)
        m = re.fullmatch(rf"{COOKIE[where]}=([\w-]{{43}}); Path=/; Max-Age=43200; HttpOnly; "
                         rf"SameSite=Strict{secure}", headers["Set-Cookie"])
        assert m and m[1] not in body and token not in body, headers["Set-Cookie"]
        assert (got["who"], got["role"], got["session"]) == ("token o1", "operate", True), got
        assert abs(got["ends_at"] - time.time() - 43200) < 600
        assert re.fullmatch(r"[\w-]{43}", got["csrf"]) and got["csrf"] != m[1]
        assert re.search(r"audit: token o1: POST /v1/session: 200, from 127", s.text())
    assert token not in s.text()
    for body in ("", "x y", "x" * 257, "\xff", '{"token": "x"}'):
        status, _, text = s.ask(TLS, "POST", "/v1/session", body.encode("latin-1"))
        assert status == 400 and "expected a token" in text, (body[:9], status, text)


def test_a_request_needs_the_cookie_and_the_header(s):
    token = s.token("operate", "o2")
    for where in (TCP, TLS):
        mine, other = s.login(where, token), s.login(where, token)
        assert s.who(where, **mine)["role"] == "operate"
        csrf = mine["X_Weft_CSRF"]
        for headers in ({"Cookie": mine["Cookie"]}, {"X_Weft_CSRF": csrf},
                        {**mine, "X_Weft_CSRF": other["X_Weft_CSRF"]},
                        {**mine, "X_Weft_CSRF": csrf[:-1]}, {**mine, "X_Weft_CSRF": ""},
                        {**mine, "Cookie": mine["Cookie"][:-1]},
                        {**mine, "Cookie": mine["Cookie"].replace("session=", "session2=")}):
            assert s.who(where, **headers) == {"who": None, "role": "none", "session": False,
                                               "ends_at": None}, headers
            for method, target in (("GET", "/v1/status"), ("PUT", "/v1/policy?path=/")):
                status, _, body = s.ask(where, method, target, "stripes=2", **headers)
                assert status == 403, (headers, target, status, body)
        assert s.ask(where, "GET", "/v1/status", **mine)[0] == 200
        assert s.ask(where, "PUT", "/v1/policy?path=/", "stripes=2", **mine)[0] == 200
        status, _, body = s.ask(where, "PUT", "/v1/ds/kill?ds=7", **mine)
        assert status == 403 and "token o2 has operate" in body, body
        several = {**mine, "Cookie": f"a=b; {mine['Cookie']}; c=d"}
        assert s.who(where, **several)["role"] == "operate"
        # A token that is sent counts before the session.
        read = s.token("read", f"r-{len(where)}")
        assert s.who(where, **mine, Authorization=f"Bearer {read}")["role"] == "read"
        assert s.ask(where, "GET", "/v1/status", **mine, Authorization="Bearer x")[0] == 401
    assert re.search(r"audit: token o2: PUT /v1/policy: 200, from 127", s.text())
    assert re.search(r"audit: unknown: PUT /v1/policy: 403, from 127", s.text())
    # The cookie of one way does not count on the other.
    mine = s.login(TLS, token)
    assert s.who(TCP, **mine)["role"] == "none"
    bare = {**mine, "Cookie": mine["Cookie"].removeprefix("__Host-")}
    assert s.who(TLS, **bare)["role"] == "none"


def test_a_session_ends_with_its_token_and_by_logging_out(s):
    token = s.token("read", "short")
    mine, twin = s.login(TLS, token), s.login(TLS, token)
    status, headers, body = s.ask(TLS, "DELETE", "/v1/session", **mine)
    assert (status == 200 and json.loads(body)["role"] == "none"
            and "Max-Age=0" in headers["Set-Cookie"]), (status, body)
    assert s.who(TLS, **mine)["role"] == "none" and s.who(TLS, **twin)["role"] == "read"
    assert s.ask(TLS, "DELETE", "/v1/session", **mine)[0] == 403
    assert s.ask(TLS, "DELETE", "/v1/session", Authorization=f"Bearer {token}")[0] == 409
    s.weft("token", "revoke", "short")
    assert s.who(TLS, **twin)["role"] == "none"
    # Another token of the same name does not bring it back.
    again = s.token("admin", "short")
    assert s.who(TLS, **twin)["role"] == "none" and s.login(TLS, again)
    ending = s.login(TLS, s.token("read", "ending", "--days", "0.00002"))
    deadline = time.monotonic() + DEADLINE_S
    while s.who(TLS, **ending)["role"] != "none":
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert s.who(TLS, **s.login(TLS, "the-token-of-the-file"))["who"] == "token mds.admin_token"


def test_a_token_has_a_bounded_number_of_sessions(s):
    token, neighbour = s.token("read", "many"), s.login(TCP, s.token("read", "neighbour"))
    made = [s.login(TCP, token) for _ in range(18)]
    assert [s.who(TCP, **m)["role"] for m in made] == ["none"] * 2 + ["read"] * 16
    assert s.who(TCP, **neighbour)["role"] == "read"


def test_a_page_sends_requests_only_to_where_it_came_from(s):
    token = s.token("operate", "o3")
    for where in (TCP, TLS):
        mine, own = s.login(where, token), ORIGIN[where]
        port = own.rsplit(":", 1)[1]
        for origin in (None, own, own.replace("127.0.0.1", "localhost")):
            headers = {"Host": origin.split("//")[1], "Origin": origin} if origin else {}
            assert s.ask(where, "PUT", "/v1/policy?path=/", "stripes=2", **mine,
                         **headers)[0] == 200, origin
        for origin in ("null", "", "https://evil.example", own + "0", own[:-1], own + ".evil",
                       own.replace("http", "xttp"), f"http{'' if where == TLS else 's'}://"
                       f"127.0.0.1:{port}", own.rsplit(":", 1)[0], f"{own}/", f"x{own}",
                       own.replace("127.0.0.1", "localhost")):
            for auth in (mine, {"Authorization": f"Bearer {token}"}):
                status, _, body = s.ask(where, "PUT", "/v1/policy?path=/", "stripes=2", **auth,
                                        Origin=origin)
                assert status == 403 and "another origin" in body, (origin, status, body)
            assert s.ask(where, "POST", "/v1/session", token, Origin=origin)[0] == 403, origin
        for site, want in (("same-origin", 200), ("none", 200), ("cross-site", 403),
                           ("same-site", 403), ("x", 403)):
            status, headers, _ = s.ask(where, "GET", "/v1/status", **mine, Sec_Fetch_Site=site)
            assert status == want, (site, status)
            assert headers["Content-Security-Policy"] == ("default-src 'none'; "
                                                          "frame-ancestors 'none'")
            # A link leads to the page.
            assert s.ask(where, "GET", "/console/", Sec_Fetch_Site=site)[0] == 200
    assert s.ask(TCP, "GET", "/console/", Host="evil.example")[0] == 403
    # With a certificate, too.
    s.cert("boss3", "ca", "clientAuth", cn="boss")
    ctx = ssl.create_default_context(cafile=f"{s.top}/ca.pem")
    ctx.load_cert_chain(f"{s.top}/boss3.pem", f"{s.top}/boss3.key")
    for headers, want in (({}, 200), ({"Origin": TLS}, 200), ({"Origin": "https://evil"}, 403),
                          ({"Sec-Fetch-Site": "cross-site"}, 403)):
        conn = http.client.HTTPSConnection(TLS[8:], timeout=DEADLINE_S, context=ctx)
        conn.request("PUT", "/v1/policy?path=/", "stripes=2", headers)
        assert conn.getresponse().status == want, headers
        conn.close()


def test_names_are_listed_in_pieces(s):
    status, _, body = s.ask(TCP, "GET", "/v1/dir?path=/", Authorization="Bearer "
                            + s.token("read", "lister"))
    assert status == 200 and json.loads(body) == {"path": "/", "type": "directory",
                                                  "entries": [], "next": None}, body


# ---- these start the server again, or use up the tries


def test_wrong_tokens_are_counted_by_address(s):
    good = s.token("read", "good")
    time.sleep(1 - time.monotonic() % 1)  # the log takes so many refusals in each second
    for n in range(5):
        status, _, body = s.ask(TCP, "POST", "/v1/session", f"weft_{n}")
        assert status == 401 and "unknown token" in body, (n, status, body)
    for token in ("weft_x", good):
        status, _, body = s.ask(TLS, "POST", "/v1/session", token)
        assert status == 429 and re.search(r"from 127\.0\.0\.1: it can try again in \d+ s",
                                           body), (status, body)
    assert re.search(r"audit: unknown: POST /v1/session: 401, from 127\.0\.0\.1:\d+$", s.text(),
                     re.M)
    # Nobody else waits: neither another address, nor those that are logged in, nor tokens.
    conn = http.client.HTTPConnection(TCP, timeout=DEADLINE_S, source_address=("127.0.0.2", 0))
    conn.request("POST", "/v1/session", good)
    assert conn.getresponse().status == 200
    conn.close()
    assert s.ask(TCP, "GET", "/v1/status", Authorization=f"Bearer {good}")[0] == 200


def test_a_login_lasts_as_long_as_the_key_says(s):
    token = s.token("read", "brief")
    s.stop()
    s.change = {"mds.console_login": "1s"}
    s.start()
    mine = s.login(TLS, token)
    deadline = time.monotonic() + DEADLINE_S
    while s.who(TLS, **mine)["role"] != "none":
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert s.ask(TLS, "GET", "/v1/status", **mine)[0] == 403
    s.stop()
    s.change = {"mds.console": "off"}
    s.start()
    auth = {"Authorization": f"Bearer {token}"}
    assert s.ask(TLS, "GET", "/console/", **auth)[0] == 404
    assert s.who(TLS, **mine)["role"] == "none"


def main():
    if not tap.built("weft", "weft-mds") or not shutil.which("openssl") or os.geteuid():
        tap.skip("the programs are not built, openssl is missing, or this is not root")
        return
    s = Browsed()
    try:
        tap.run(tap.named(globals()), tap.giving(s))
    finally:
        s.down()


if __name__ == "__main__":
    main()
