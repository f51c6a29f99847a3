# SPDX-License-Identifier: Apache-2.0
"""Jobs as the admin API shows them."""
import http.client
import json
import socket

from harness import *  # noqa: F403


def api(w, method, target, want=200, body=None):
    conn = http.client.HTTPConnection("mds")
    conn.sock = socket.socket(socket.AF_UNIX)
    conn.sock.connect(w.where["mds"].removeprefix("unix:"))
    conn.request(method, target, body)
    with conn.getresponse() as reply:
        got = json.loads(reply.read())
        check(reply.status, want, f"{method} {target}: {got}")
        return got


def one(w, job):
    return api(w, "GET", f"/v1/jobs/one?id={job}")


def ended(w, job):
    """Waits until it is over."""
    last = {}

    def over():
        last.update(one(w, job))
        return last["state"] in ("done", "failed", "cancelled")
    eventually(over, 60, f"the end of job {job}")
    return last


def restriping(w, path):
    got = mds_json(w, path)
    return got["restriping"][0] if got["files"] else None


def mds_json(w, path):
    """The API's answer."""
    conn = http.client.HTTPConnection("mds")
    conn.sock = socket.socket(socket.AF_UNIX)
    conn.sock.connect(w.where["mds"].removeprefix("unix:"))
    conn.request("GET", f"/v1/restripe?path={path}")
    with conn.getresponse() as reply:
        check(reply.status, 200)
        return json.loads(reply.read())
