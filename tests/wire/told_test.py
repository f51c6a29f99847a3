#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""What weft says of answers that a server would seldom give: this script is the
server. Prints TAP."""
import contextlib
import http.server
import json
import os
import re
import subprocess
import sys
import threading
from urllib.parse import parse_qs, urlparse

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../wirelib"))
import tap  # noqa: E402
from tap import BUILD  # noqa: E402

MIB = 1 << 20
ASKED = []


def check(got, want, what=""):
    if got != want:
        raise AssertionError(f"{what}: {got!r}, want {want!r}")


@contextlib.contextmanager
def serving(answers):
    """The address of a server that answers each path with JSON, or with what a function makes of
    the query."""
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            url = urlparse(self.path)
            ASKED.append(f"{self.command} {self.path}")
            got = answers.get(url.path)
            body = json.dumps(got(parse_qs(url.query)) if callable(got) else got
                              if got is not None else {"error": f"no {url.path}"}).encode()
            self.send_response(200 if got is not None else 404)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_PUT = do_DELETE = do_GET

        def log_message(self, *_):
            pass
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def weft(answers, *args, want=0):
    with serving(answers) as addr:
        done = subprocess.run([os.path.join(BUILD, "weft"), "--admin", addr, *args],
                              capture_output=True, text=True, timeout=120, check=False)
    check(done.returncode, want, f"weft {args}: {done.stdout}{done.stderr}")
    return done.stdout


RUNNING = {"inode": 7, "path": "/f", "object": 1, "ds": "ds2", "from": "ds4", "step": "copy",
           "done": 72 * MIB, "size": 272 * MIB, "written": 0, "equal": 0, "rate": 20 * MIB,
           "left_s": 10}
REPAIR = {"files_at_a_time": 4, "rate": 20 * MIB, "wait_s": 60, "files": 1,
          "running": [RUNNING], "waiting": [], "moving": []}


def servers(**states):
    return {"ds": [{"number": i, "name": name, "state": state} for i,
                   (name, state) in enumerate(states.items(), 1)]}


def test_each_size_of_a_line_is_its_own():
    said = weft({"/v1/repair": REPAIR, "/v1/ds": servers(ds2="alive", ds4="alive"),
                 "/v1/find": {"found": [], "looked": 1, "cursor": None}}, "mirror", "status", "/f")
    check(re.search(r"^ds2 +copy +ds4 +26% +272M +20M/s +10s +/f$", said, re.M) is not None, True,
          said)


QUIET = {**REPAIR, "files": 0, "running": []}
STATUS = {"version": "1.2.3", "cluster": "c", "boot_epoch": 3, "grace": False,
          "ds": {"known": 2, "alive": 1}, "clients": {}, "orders": 0, "store": {}}


def pages(*counts):
    """What /v1/find?count=1 answers, one after the other; the last has no cursor."""
    def answer(query):
        i = int(query.get("cursor", ["0"])[0])
        check(query["count"], ["1"])
        lost, degraded = counts[min(i, len(counts) - 1)]
        return {"files": 100, "lost": lost, "degraded": degraded, "too_deep": 0,
                "cursor": str(i + 1) if i + 1 < len(counts) else None}
    return answer


def test_a_server_that_is_dead_is_told_with_the_files_that_lack_a_copy():
    answers = {"/v1/status": STATUS, "/v1/repair": QUIET,
               "/v1/ds": servers(ds1="alive", ds2="dead"), "/v1/find": pages((0, 5), (1, 7))}
    line = "PROBLEMS FOUND: ds2 is dead; 1 files lost, 12 degraded, of all 200 examined just now"
    for args in (("status",), ("mirror", "status")):
        said = " ".join(weft(answers, *args).split())
        check(line in said, True, said)
        check("all copies are in sync" in said, False, said)
    got = json.loads(weft(answers, "--json", "mirror", "status"))
    check(got["health"], {"servers": [{"name": "ds2", "state": "dead"}], "lost": 1, "degraded": 12,
                          "looked": 200, "too_deep": 0, "all": True})


def test_what_was_not_looked_at_is_not_spoken_of():
    endless = {"files": 100, "lost": 0, "degraded": 0, "too_deep": 0, "cursor": "x"}
    said = " ".join(weft({"/v1/status": STATUS, "/v1/repair": QUIET, "/v1/find": endless,
                          "/v1/ds": servers(ds1="alive")}, "status").split())
    head = "no known problems: all data servers are alive; 0 files lost, 0 degraded, of the first "
    check(head in said, True, said)
    check("examines all)" in said, True, said)


def on_a_terminal(answers, answer, *args):
    """What weft says there, and its status."""
    ours, its = os.openpty()
    with serving(answers) as addr:
        child = subprocess.Popen([os.path.join(BUILD, "weft"), "--admin", addr, *args], stdin=its,
                                 stdout=its, stderr=its)
        os.close(its)
        os.write(ours, answer)
        said = b""
        with contextlib.suppress(OSError):
            while more := os.read(ours, 4096):
                said += more
        rc = child.wait(60)
    os.close(ours)
    return rc, said.decode()


def test_what_loses_something_says_so_and_asks_on_a_terminal_only():
    ds = {"number": 1, "name": "ds1", "state": "killed"}
    answers = {"/v1/ds/kill": {"ds": [ds]}, "/v1/ds/forget": {"forgotten": "ds1", "lost": []},
               "/v1/mirror/remove": QUIET, "/v1/choose": {"running": False},
               "/v1/clients": {"clients": [], "clientid": "1", "number": 1, "name": "c"},
               "/v1/scrub": {"running": False, "findings": []},
               "/v1/verify": {"running": False, "different": 0, "skipped": 0, "differences": []}}
    for args, warning in ((("ds", "kill", "ds1"), "cannot be read or written until"),
                          (("ds", "forget", "ds1"), "removed for good"),
                          (("ds", "forget", "--force", "ds1"), "ONLY COPY IS THERE ARE LOST"),
                          (("mirror", "remove", "/f", "1"), "one copy fewer"),
                          (("mirror", "choose", "/f", "--copy", "1"), "is lost"),
                          (("client", "evict", "c"), "did not commit is lost"),
                          (("scrub", "--remove-newer"), "deleted for good"),
                          (("mirror", "verify", "/f", "--mend"), "the first copy in sync is kept"),
                          (("mirror", "verify", "/f", "--mend", "--keep", "1"),
                           "the copy of mirror 1 is kept")):
        for answer, done in ((b"\n", False), (b"n\n", False), (b"y\n", True)):
            ASKED.clear()
            rc, said = on_a_terminal(answers, answer, *args)
            check((warning in said, "Continue? [y/N]" in said, rc == 0, bool(ASKED)),
                  (True, True, done, done), f"{args} {answer}: {said}")
        ASKED.clear()
        rc, said = on_a_terminal(answers, b"", *args, "--yes")
        check((rc, "Continue?" in said, bool(ASKED)), (0, False, True), f"{args} --yes: {said}")
        weft(answers, *args)  # weft does not ask a script


tap.run(tap.named(globals()))
