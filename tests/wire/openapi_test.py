#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""docs/openapi.json and the daemons say the same: paths, roles, arguments, and the answers of a
cluster. Prints TAP."""
import copy
import glob
import http.client
import json
import os
import re
import sys
import time
import urllib.parse

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../wirelib"))
import nfs41 as nfs  # noqa: E402
import tap  # noqa: E402
from daemons import Cluster, Http, ask  # noqa: E402
from tap import SRC  # noqa: E402

TABLES = {"weft-mds": "mds/admin/admin.c", "weft-ds": "ds/ds_main.c"}
# What the HTTP server itself answers, on both.
OWN = {("GET", "/metrics", "none")}
METHODS = {"get", "put", "post", "delete"}


def source(path):
    with open(os.path.join(SRC, path), encoding="utf-8") as f:
        return f.read()


DOC = json.loads(source("docs/openapi.json"))


def operations(doc, daemon=None):
    """(method, path, operation)"""
    for path, item in doc["paths"].items():
        for method, op in item.items():
            if method in METHODS and (not daemon or daemon in op["x-weft-daemons"]):
                yield method.upper(), path, op


def routes(text):
    """The route table of a daemon: (method, path, role)."""
    rows = re.findall(r'^\t\{"(\w+)", "(/[^"]+)", HTTP_(\w+), \w+\},$', text, re.M)
    assert rows
    return {(m, p, {"OPEN": "none"}.get(r, r.lower())) for m, p, r in rows}


def differ(doc, tables):
    """What only one of the two has."""
    found = []
    for daemon, text in tables.items():
        code = routes(text) | OWN
        page = {(m, p, op["x-weft-role"]) for m, p, op in operations(doc, daemon)}
        found += [("code", daemon, *r) for r in sorted(code - page)]
        found += [("page", daemon, *r) for r in sorted(page - code)]
    return found


def strict(schema):
    """The same, where a property that it does not name is an error."""
    if isinstance(schema, list):
        return [strict(s) for s in schema]
    if not isinstance(schema, dict):
        return schema
    made = {k: strict(v) for k, v in schema.items()}
    if isinstance(made.get("properties"), dict) and "type" in made:
        made["additionalProperties"] = False
    return made


STRICT = strict(copy.deepcopy(DOC["components"]))


def faults(schema, value):
    import jsonschema  # pylint: disable=import-outside-toplevel
    check = jsonschema.Draft202012Validator({**schema, "components": STRICT})
    return [f"{'/'.join(map(str, e.absolute_path))}: {e.message[:200]}"
            for e in check.iter_errors(value)]


def answer(op, status):
    """The schema of an answer."""
    r = op["responses"][str(status)]
    if "$ref" in r:
        r = STRICT["responses"][r["$ref"].rsplit("/", 1)[1]]
    return next(iter(r["content"].values()))["schema"]


def request(admin, method, path, args=None, body=None, token=None):
    conn = Http(admin)
    target = path + ("?" + urllib.parse.urlencode(args) if args else "")
    conn.request(method, target, body, {"Authorization": f"Bearer {token}"} if token else {})
    reply = conn.getresponse()
    text = reply.read().decode()
    conn.close()
    return reply.status, text


def asked(admin, method, path, args=None, body=None, want=200):
    """Asks, and compares the answer with the page."""
    op = DOC["paths"][path][method.lower()]
    names = {p["name"] for p in op.get("parameters", [])}
    assert set(args or {}) <= names, (method, path, args, names)
    status, text = request(admin, method, path, args, body)
    assert status == want, (method, path, args, status, text[:300])
    wrong = faults(answer(op, status), json.loads(text))
    assert not wrong, (method, path, args, wrong[:5], text[:300])
    return json.loads(text)


# ---- the page and the code


def test_the_page_has_each_route_with_its_role_and_no_other(_):
    tables = {d: source(p) for d, p in TABLES.items()}
    assert not differ(DOC, tables), differ(DOC, tables)
    # A comparison that finds nothing proves nothing: it is tried on planted faults.
    doc = copy.deepcopy(DOC)
    doc["paths"]["/v1/status"]["get"]["x-weft-role"] = "operate"
    del doc["paths"]["/v1/tokens"]["delete"]
    doc["paths"]["/v1/new"] = {"get": {"x-weft-role": "read", "x-weft-daemons": ["weft-ds"]}}
    assert differ(doc, tables) == [("code", "weft-mds", "DELETE", "/v1/tokens", "admin"),
                                   ("code", "weft-mds", "GET", "/v1/status", "read"),
                                   ("page", "weft-mds", "GET", "/v1/status", "operate"),
                                   ("page", "weft-ds", "GET", "/v1/new", "read")]


def test_each_argument_is_on_the_page_and_read_somewhere(_):
    code = set()
    for path in [*glob.glob(os.path.join(SRC, "mds/admin/*.c")), "common/trace_http.c",
                 "common/live.c", "ds/ds_main.c"]:
        code.update(re.findall(r'(?:http_arg|http_has|admin_number_arg|bytes_arg|number_arg)'
                               r'\((?:rq|rq, rp), "([^"]+)"', source(path)))
    page = {p["name"] for _, _, op in operations(DOC) for p in op.get("parameters", [])}
    assert len(code) > 20 and code == page, (code - page, page - code)


def references(v):
    if isinstance(v, dict):
        if isinstance(v.get("$ref"), str):
            yield v["$ref"]
        for x in v.values():
            yield from references(x)
    if isinstance(v, list):
        for x in v:
            yield from references(x)


def test_the_page_is_whole(_):
    import jsonschema  # pylint: disable=import-outside-toplevel
    assert DOC["openapi"].startswith("3.1.")
    used = set(references(DOC))
    have = {f"#/components/{kind}/{name}" for kind in ("schemas", "responses")
            for name in DOC["components"][kind]}
    assert used == have, used ^ have
    for schema in DOC["components"]["schemas"].values():
        jsonschema.Draft202012Validator.check_schema(schema)
    ids = [op["operationId"] for _, _, op in operations(DOC)]
    assert len(ids) == len(set(ids)), ids
    for method, path, op in operations(DOC):
        assert op["summary"] and "200" in op["responses"], (method, path)
        role = op["x-weft-role"]
        assert (role == "none") == ("403" not in op["responses"]), (method, path)
        # A request that only looks needs no more than the role read; tokens are the exception.
        assert method != "GET" or role in ("none", "read") or path == "/v1/tokens", (method, path)


# ---- the answers of a cluster


def test_each_get_is_answered_as_the_page_says(c):
    mds = c.admin["mds"]
    d = c.mkdir("/d")
    c.weft("policy", "set", "/d", "stripes=2,mirrors=2")
    n = c.nfs()
    sid, fh = n.open(d, "f")
    n.ok(nfs.putfh(fh), nfs.write(sid, 0, b"w" * (1 << 20), nfs.FILE_SYNC))
    c.weft("xattr", "set", "/d/f", "user.x", "0x00ff")
    asked(mds, "POST", "/v1/tokens", {"role": "read", "name": "seen", "days": 2})
    job = asked(mds, "PUT", "/v1/verify", {"path": "/", "recursive": 1})["job"]
    asked(mds, "PUT", "/v1/choose", {"path": "/d/f"})
    asked(mds, "PUT", "/v1/balance", {"dry": 1, "spread": 5})
    asked(mds, "PUT", "/v1/scrub", {"dry": 1})
    f = {"path": "/d/f"}
    samples = {"/v1/health": [None, {"ready": ""}], "/v1/config": [None, {"key": "log.level"}],
               "/v1/orders": [None, {"ds": "ds1"}, {"last": 5}],
               "/v1/jobs": [None, {"kind": "verify"}, f, {"limit": 1}, {"ids": job}],
               "/v1/jobs/one": [{"id": job}], "/v1/ds/one": [{"ds": "ds1"}],
               "/v1/policy": [{"path": "/d"}], "/v1/file": [f],
               "/v1/dir": [{"path": "/d", "limit": 1}, {"path": "/"}, f],
               "/v1/repair": [None, f], "/v1/restripe": [None, f], "/v1/xattr": [f],
               "/v1/scrub": [None, {"findings": 1}], "/v1/heat": [None, {"path": "/d"}],
               "/v1/find": [{"path": "/", what: value} for what, value in
                             (("files", 1), ("count", 1), ("ds", "ds1"))],
               "/v1/events": [None, {"last": 3}, {"kind": "audit"}],
               "/v1/du": [{"path": "/"}, {"path": "/", "depth": 2}, f],
               "/v1/du/users": [{"rows": 1}],
               "/v1/trace": [None, {"last": 5}], "/v1/clients": [None, {"client": "1"}],
               "/v1/layouts": [None, f], "/v1/top": [{"rows": 3}]}
    for daemon, admin in (("weft-mds", mds), ("weft-ds", c.admin["ds1"])):
        for method, path, op in operations(DOC, daemon):
            if method == "GET" and path != "/metrics":
                for args in samples.get(path, [None]):
                    asked(admin, "GET", path, args)
                for bad in ({"path": "relative"}, {"path": "/none"}):
                    if any(p["name"] == "path" and p.get("required")
                           for p in op.get("parameters", [])):
                        asked(admin, "GET", path, bad, want=404 if bad["path"][0] == "/" else 400)


def test_each_change_is_answered_as_the_page_says(c):
    mds, f = c.admin["mds"], {"path": "/d/f"}
    for method, path, args, body in (
            ("PUT", "/v1/policy", {"path": "/d"}, "stripes=2,mirrors=2"),
            ("PUT", "/v1/ds/weight", {"ds": "ds1"}, "2"),
            ("PUT", "/v1/ds/labels", {"ds": "ds1"}, "rack=r1"),
            ("PUT", "/v1/ds/drain", {"ds": "ds4"}, None),
            ("PUT", "/v1/ds/undrain", {"ds": "ds4"}, None),
            ("PUT", "/v1/xattr", {**f, "name": "user.y"}, "text"),
            ("DELETE", "/v1/xattr", {**f, "name": "user.y"}, None),
            ("PUT", "/v1/layouts/recall", f, None), ("PUT", "/v1/exports", None, None),
            ("PUT", "/v1/repair", f, None), ("PUT", "/v1/mirror/add", f, None),
            ("DELETE", "/v1/verify", None, None), ("DELETE", "/v1/balance", None, None),
            ("DELETE", "/v1/scrub", None, None), ("PUT", "/v1/ds/key", {"ds": "new"}, None),
            ("POST", "/v1/cluster/token", {"name": "newer", "hours": 1}, None),
            ("DELETE", "/v1/tokens", {"name": "seen"}, None)):
        asked(mds, method, path, args, body)
    until = time.monotonic() + 60  # a mirror was added, and data servers may have orders for it
    while asked(mds, "GET", "/v1/orders")["orders"] and time.monotonic() < until:
        time.sleep(0.05)
    job = asked(mds, "PUT", "/v1/move", {**f, "stripes": 1})["job"]
    assert asked(mds, "DELETE", "/v1/jobs", {"id": job})["kind"] == "restripe"
    asked(mds, "DELETE", "/v1/jobs", {"id": 1}, want=404)
    for admin in (mds, c.admin["ds1"]):
        asked(admin, "PUT", "/v1/config", {"key": "log.level", "value": "info"})
        asked(admin, "PUT", "/v1/config", {"key": "log.level", "value": "?"}, want=400)
        asked(admin, "PUT", "/v1/config", {"key": "none", "value": "1"}, want=404)
    asked(mds, "PUT", "/v1/config", {"key": "mds.store", "value": "/x"}, want=409)
    asked(c.admin["ds1"], "PUT", "/v1/config", {"key": "ds.threads", "value": "1"}, want=409)
    asked(mds, "PUT", "/v1/ds/forget", {"ds": "ds1"}, want=409)
    asked(mds, "PUT", "/v1/ds/kill", {"ds": "nothing"}, want=404)
    asked(mds, "POST", "/v1/tokens", {"role": "all"}, want=400)
    asked(mds, "POST", "/v1/cluster/token", {"hours": 721}, want=400)
    asked(mds, "POST", "/v1/cluster/token", {"name": "ds1"}, want=409)
    # Sessions are for TCP (console_test.py).
    asked(mds, "POST", "/v1/session", None, "x", want=409)
    asked(mds, "DELETE", "/v1/session", want=409)


ORDER = ["none", "read", "operate", "admin"]


def test_each_request_with_too_small_a_role_is_refused(c):
    mds = c.admin["mds"]
    tokens = {r: ask(mds, "POST", f"/v1/tokens?role={r}")["token"] for r in ("read", "operate")}
    tried = 0
    for method, path, op in operations(DOC, "weft-mds"):
        need = op["x-weft-role"]
        for role, token in tokens.items():
            if ORDER.index(role) >= ORDER.index(need):
                continue
            status, text = request(mds, method, path, None, "", token)
            assert status == 403 and f"the role {need}" in text, (method, path, role, status, text)
            assert not faults(answer(op, 403), json.loads(text)), text
            tried += 1
        for p in op.get("parameters", []):
            if p.get("x-weft-role"):
                status, text = request(mds, method, path, {"path": "/", p["name"]: "1"}, "",
                                       tokens["operate"])
                assert (status == 403
                        and f"the role {p['x-weft-role']}" in text), (path, status, text)
    assert tried > 40, tried
    status, text = request(mds, "GET", "/v1/status", None, None, "unknown")
    op = DOC["paths"]["/v1/status"]["get"]
    assert status == 401 and not faults(answer(op, 401), json.loads(text)), text


def test_both_daemons_serve_the_page(c):
    for name in ("mds", "ds1"):
        assert ask(c.admin[name], "GET", "/v1/openapi.json") == DOC, name


def main():
    try:
        import jsonschema  # noqa: F401 pylint: disable=import-outside-toplevel,unused-import
    except ImportError:
        tap.skip("python3-jsonschema is not installed")
        return
    if not tap.built("weft", "weft-mds", "weft-ds"):
        tap.skip("the programs are not built")
        return
    os.environ.pop("WEFT_ADMIN", None)
    cluster = Cluster()
    try:
        tap.run(tap.named(globals()), tap.giving(cluster))
    except http.client.HTTPException as e:
        print(f"Bail out! {e}")
    finally:
        cluster.down()


if __name__ == "__main__":
    main()
