#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""What weft trace shows of a request, in both daemons, and the probes beside it (docs/tracing.md).
Prints TAP."""
import contextlib
import http.server
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../wirelib"))
import harness  # noqa: E402
import tap  # noqa: E402
from harness import *  # noqa: E402,F403
from steps import data_server, raw, settled  # noqa: E402
from nfs41 import err  # noqa: E402

PROBES = {
    "weft-mds": {"request_start", "request_wait", "request_resume", "request_end", "mutation_done",
                 "commit_batch", "file_phase", "recall", "fence", "order_put", "order_send",
                 "order_done"},
    "weft-ds": {"request_start", "request_end", "io_start", "io_done", "sync_start", "sync_done",
                "order_run"},
}
SETTINGS_HERE = ["mds.lease=20s", "mds.recall_deadline=1s", "mds.grace=1s"]
admins = {}


def weft(*args, admin="mds", rc=0):
    done = subprocess.run([os.path.join(BUILD, "weft"), "--admin", admins[admin], *args],
                          capture_output=True, text=True, timeout=60, check=False)
    check(done.returncode, rc, f"weft {' '.join(args)}: {done.stdout[-300:]} {done.stderr[-300:]}")
    return done.stdout if rc == 0 else done.stderr


def traced(*args, admin="mds"):
    return json.loads(weft("--json", "trace", *args, admin=admin))["requests"]


def kinds(r):
    return [e["kind"] for e in r["events"]]


def texts(r):
    return [e["text"] for e in r["events"]]


def in_order(r, *patterns):
    """These are found in the request's steps, one after the other."""
    left = texts(r)
    for p in patterns:
        while left and not re.search(p, left[0]):
            left.pop(0)
        check(bool(left), True, f"{p} in {json.dumps(texts(r), indent=1)}")
        left.pop(0)


def with_ops(rows, ops):
    """The newest request with these operations in a row."""
    found = [r for r in rows if re.search(rf"^reply NFS4_OK: .*{ops}", r["events"][-1]["text"])]
    check(bool(found), True, f"{ops} in {[r['events'][-1]['text'] for r in rows]}")
    return found[-1]


def daemon(w, name):
    rows = json.loads(w.dev("status", w.dir, "--json"))["daemons"]
    return next(r for r in rows if r["name"] == name)


def made(name):
    c = client()
    d = c.mkdir(c.root(), name)
    sid, fh = c.open(d, "f")
    return c, d, fh, sid


def inode(c, fh):
    return c.ok(putfh(fh), getattr_("fileid")).attrs.fileid


def test_a_create_is_shown_from_its_call_to_its_reply(w):
    c = client()
    c.mkdir(c.root(), "made")
    r = with_ops(traced("-n", "20"), "CREATE")
    in_order(r, r"^COMPOUND of \d operations, xid 0x[0-9a-f]{8}$", "^CREATE waits$",
             r"^batch \d+ of \d+ mutations is durable: ran \d+ us, commit \d+ us$",
             r"^mutation done in batch \d+$", "^CREATE goes on: NFS4_OK$",
             r"^reply NFS4_OK: SEQUENCE PUTFH CREATE .*; client \d+$")
    check((r["whole"], r["client"].rsplit(":", 1)[0]), (True, "127.0.0.1"))
    check([e["us"] for e in r["events"]][0], 0)
    check(r["us"], r["events"][-1]["us"])
    head, *lines = weft("trace", "--id", r["request"]).splitlines()
    check(re.fullmatch(rf"request {r['request']} from 127\.0\.0\.1:\d+, 20\d\d-\d\d-\d\d "
                       r"\d\d:\d\d:\d\d\.\d{3}", head) is not None, True, head)
    check(len(lines), len(r["events"]))
    check(all(re.match(r" +-?\d+\.\d us  thread \d+ +\S", x) for x in lines), True, lines)


def test_a_write_keeps_its_number_while_data_servers_answer(w):
    """The answer comes on a connection that belongs to no request."""
    c, _, fh, sid = made("through")
    c.ok(putfh(fh), write(sid, 0, bytes(5000), FILE_SYNC))
    r = with_ops(traced("-n", "20"), "SEQUENCE PUTFH WRITE")
    in_order(r, "^WRITE waits$", r"^mutation done in batch \d+$", "^WRITE goes on: NFS4_OK",
             "^reply NFS4_OK: SEQUENCE PUTFH WRITE")


def test_a_request_that_only_reads_is_two_steps(w):
    c = client()
    c.ok(putfh(c.root()), getattr_("size"))
    r = with_ops(traced("-n", "5"), "SEQUENCE PUTFH GETATTR")
    check(kinds(r), ["request_start", "request_end"])


def test_a_failure_names_its_status_and_the_operation(w):
    c = client()
    c.no("NOENT", putfh(c.root()), lookup("none"))
    rows = [r for r in traced("-n", "5") if "NFS4ERR_NOENT" in r["events"][-1]["text"]]
    check(rows[-1]["events"][-1]["text"].startswith(
        "reply NFS4ERR_NOENT: SEQUENCE PUTFH LOOKUP; client "), True, rows)


def test_a_retry_ends_with_the_status_that_was_kept(w):
    c = client()
    for name, status in (("there", "NFS4_OK"), ("none", "NFS4ERR_NOENT")):
        if status == "NFS4_OK":
            c.mkdir(c.root(), name)
        ops = (sequence(c.session.sessionid, 1 + (name == "none"), 3, 3, True), putfh(c.root()),
               lookup(name))
        one = raw(c.conn, *ops)
        check(raw(c.conn, *ops), one)
        first, again = [r for r in traced("-n", "2")]
        check(first["events"][-1]["text"].split(";")[0],
              f"reply {status}: SEQUENCE PUTFH LOOKUP")
        check(kinds(again), ["request_start", "request_end"])
        check(again["events"][-1]["text"],
              f"reply {status}: SEQUENCE; " + first["events"][-1]["text"].split("; ")[1])
        check(again["whole"], True)


def test_requests_are_chosen_by_number_client_and_inode(w):
    c, d, fh, sid = made("chosen")
    c.ok(putfh(fh), getattr_("size"))
    ino = inode(c, fh)
    check(len(traced("-n", "1")), 1)
    check(len(traced("-n", "2", "--client", "127.0.0.1")), 2)
    check(traced("--client", "192.0.2.1"), [])
    check(traced("--client", "2001:db8::1"), [])
    rows = traced("--inode", str(ino), "-n", "100")
    check(all(ino in [e["inode"] for e in r["events"]] for r in rows), True, rows)
    check([r["request"] for r in rows if "OPEN" in r["events"][-1]["text"]] != [], True)
    one = rows[-1]["request"]
    check([r["request"] for r in traced("--id", one)], [one])
    check("no events of request 999.1 are kept" in weft("trace", "--id", "999.1", rc=1), True)
    for bad in ("1", "1.", ".1", "0.1", "1.0", "x", "1.2.3", "-1.2"):
        check("id: expected" in weft("trace", "--id=" + bad, rc=1), True, bad)
    for option in ("--client=nobody", "--inode=0", "--last=0", "--last=1001"):
        check("expected" in weft("trace", option, rc=1), True, option)


def test_follow_prints_requests_as_they_are_answered(w):
    c = client()
    with subprocess.Popen([os.path.join(BUILD, "weft"), "--admin", admins["mds"], "trace", "-f",
                           "-n", "1"], stdout=subprocess.PIPE, text=True) as p:
        try:
            check(p.stdout.readline().startswith("request "), True)
            c.mkdir(c.root(), "followed")
            seen = set()
            for line in p.stdout:
                if line.startswith("request "):
                    check(line.split()[1] in seen, False, "a request is printed once")
                    seen.add(line.split()[1])
                if re.search("reply NFS4_OK: .* CREATE ", line):
                    break
        finally:
            p.kill()


def test_follow_says_that_a_daemon_is_too_old(_w):
    class Old(http.server.BaseHTTPRequestHandler):
        def do_GET(self):  # noqa: N802
            self.send_response(400 if "after=" in self.path else 200)
            self.end_headers()
            self.wfile.write(b'{"error":"after: expected a time"}' if "after=" in self.path else
                             b'{"requests":[],"kept":0}')

        def log_message(self, *_args):
            pass
    with http.server.HTTPServer(("127.0.0.1", 0), Old) as old:
        threading.Thread(target=old.serve_forever, daemon=True).start()
        admins["old"] = f"127.0.0.1:{old.server_port}"
        try:
            check(weft("trace", "-f", admin="old", rc=1),
                  f'weft: trace: {admins["old"]} is too old for --follow: '
                  'its answer has no "next"\n')
        finally:
            old.shutdown()


def test_a_recall_is_shown_in_the_request_that_needs_it(w):
    c, d, fh, sid = made("recalled")
    got = settled(c, fh, sid)

    def give_back(name, args):
        if name == "LAYOUTRECALL":
            threading.Thread(target=c.call, args=(putfh(fh), layoutreturn(got.stateid)),
                             daemon=True).start()
        return 0
    c.on_callback = give_back
    other = client()
    other.ok(putfh(fh), setattr_(ANON, size=0))
    r = with_ops(traced("--inode", str(inode(other, fh)), "-n", "50"), "SETATTR")
    in_order(r, "^COMPOUND", "^set the size: recalls layouts$",
             r"^recall from client \d+: the (whole|writing) layout$", "^SETATTR waits$",
             "^set the size: fences$", r"^mutation done in batch \d+$",
             "^set the size: waits for data servers$",
             r"^order \d+ for data server \d+, truncate: sent$",
             r"^order \d+ for data server \d+, truncate: done",
             "^SETATTR goes on: NFS4_OK$", "^set the size: the file is released$|^reply NFS4_OK")


def log_line(w, pattern):
    with open(os.path.join(w.dir, "log", "mds.log"), encoding="utf-8", errors="replace") as f:
        return re.search(pattern, f.read(), re.M)


def test_a_fence_is_shown_with_the_id_that_log_lines_have(w):
    c = client()
    d = c.mkdir(c.root(), "fenced")
    c.ok(putfh(d), setxattr("weft.policy", "mirrors=2"))
    sid, fh = c.open(d, "f")
    settled(c, fh, sid)
    ino = inode(c, fh)
    c.on_callback = lambda name, args: 0  # it says yes, and keeps the layout
    other = client()
    other.until(lambda got: err(got.status) != "DELAY", putfh(fh), setattr_(ANON, size=0))
    line = log_line(w, rf"inode {ino}: its copies may differ: .* \[request (\d+\.\d+)\]$")
    check(line is not None, True, "the log line has the id")
    (r,) = traced("--id", line[1])
    in_order(r, "^set the size: recalls layouts$", r"^recall from client \d+: the writing layout$",
             "^set the size: fences; 1 layout did not come back$", r"^fence: epoch \d+$",
             r"^order \d+ for data server \d+, truncate: put$",
             r"^set the size: waits for data servers; 1 layout",
             r"^order \d+ for data server \d+, truncate: sent$",
             r"^order \d+ for data server \d+, truncate: done",
             "^set the size: the file is exclusive; 1 layout",
             "^set the size: the file is released",
             "^SETATTR goes on: ", "^reply ")
    # Both daemons show an order by its number.
    number = next(m[1] for t in texts(r) for m in [re.match(r"order (\d+) .*: done", t)] if m)
    shown = json.loads(weft("--json", "file", "show", "/fenced/f"))
    ran = [t for m in shown["mirrors"] for o in m["objects"]
           for x in traced("--inode", str(ino), admin=o["ds"]) for t in texts(x)]
    check(f"order {number}, truncate: status 0" in ran, True, ran)


def test_a_data_server_shows_its_calls_and_their_input_and_output(w):
    c, d, fh, sid = made("data")
    got = settled(c, fh, sid)
    m = got.mirrors[0][0]
    ds = data_server(c, m)
    check(ds.write(m.fhs[0], 4096, b"x" * 8192).status, 0)
    check(ds.read(m.fhs[0], 4096, 100).status, 0)
    name = json.loads(weft("--json", "file", "show", "/data/f"))["mirrors"][0]["objects"][0]["ds"]
    wrote, read_ = traced("-n", "2", "--inode", str(inode(c, fh)), admin=name)
    in_order(wrote, "^WRITE, xid 0x", "^disk: write 8192 bytes at 4096$",
             "^disk: write done, 8192 bytes$", "^disk: sync", "^disk: sync done$",
             r"^reply NFS3_OK: WRITE of 8192 bytes at 4096; client \d+$")
    check(kinds(read_), ["request_start", "io_start", "io_done", "request_end"])
    check(all(e["us"] >= 0 for r in (wrote, read_) for e in r["events"]), True)


# ---- the probes


def have_probes():
    """None, or why this build has none."""
    if not shutil.which("readelf"):
        return "readelf is missing"
    with open(os.path.join(BUILD, "Makefile"), encoding="utf-8") as f:
        return None if "-DHAVE_SYS_SDT_H" in f.read() else "configure did not find sys/sdt.h"


def test_the_programs_have_the_probes(_w):
    why = have_probes()
    if why:
        return why
    for program, want in PROBES.items():
        notes = subprocess.run(["readelf", "-n", os.path.join(BUILD, program)],
                               capture_output=True, text=True, check=True).stdout
        check(set(re.findall(r"Provider: weft\n *Name: (\w+)", notes)), want, program)
        # An operand in thread-local memory is one that bpftrace does not understand.
        check(re.findall(r"Arguments: .*%[fg]s.*", notes), [], program)
    return None


def test_bpftrace_sees_what_weft_trace_shows(w):
    why = have_probes()
    if why:
        return why
    if not shutil.which("bpftrace"):
        return "bpftrace is missing"
    binary = os.path.join(BUILD, "weft-mds")
    pid = daemon(w, "mds")["pid"]
    program = (f'BEGIN {{ printf("begun\\n"); }} usdt:{binary}:weft:request_end '
               '{ printf("%llu %llu\\n", arg0, arg2 & 0xffff); }')
    with tempfile.TemporaryFile("w+") as complaints, \
            subprocess.Popen(["bpftrace", "-p", str(pid), "-e", program], stdout=subprocess.PIPE,
                             stderr=complaints, text=True) as p:
        try:
            if not any("begun" in line for line in p.stdout):
                complaints.seek(0)
                return f"bpftrace cannot attach uprobes here: {complaints.read().strip()[-200:]}"
            c = client()
            c.no("NOENT", putfh(c.root()), lookup("none"))
            for line in p.stdout:
                if line.endswith(" 2\n"):
                    break
            else:
                complaints.seek(0)
                raise harness.Failed(f"bpftrace ended: {complaints.read()}")
            request = int(line.split()[0])
        finally:
            p.kill()
    (r,) = traced("--id", f"{request >> 48}.{request & (1 << 48) - 1}")
    check(r["events"][-1]["text"].startswith("reply NFS4ERR_NOENT: SEQUENCE PUTFH LOOKUP"), True, r)
    return None


# ---- a restart comes last: other tests open files, which the grace period refuses


def until_created(p):
    """The ids that a follower prints up to a CREATE."""
    seen = []
    for line in p.stdout:
        if line.startswith("request "):
            seen.append(line.split()[1])
        if re.search("reply NFS4_OK: .* CREATE ", line):
            return seen
    raise harness.Failed(f"weft trace -f ended after {seen}")


def test_follow_goes_on_when_the_daemon_is_restarted(w):
    c = client()
    for _ in range(100):  # the next run begins with numbers that this one had
        c.ok(putfh(c.root()), getattr_("size"))
    with tempfile.TemporaryFile("w+") as said, \
            subprocess.Popen([os.path.join(BUILD, "weft"), "--admin", admins["mds"], "trace", "-f",
                              "-n", "1"], stdout=subprocess.PIPE, stderr=said, text=True) as p:
        limit = threading.Timer(60, p.kill)
        limit.start()
        try:
            check(p.stdout.readline().startswith("request "), True)
            c.mkdir(c.root(), "run1")
            until_created(p)
            w.restart()
            c = client()
            c.mkdir(c.root(), "run2")
            seen = until_created(p)
        finally:
            limit.cancel()
            p.kill()
        said.seek(0)
        lines = [x for x in said if "no answer from" not in x]
    check(lines, ["weft: the daemon was restarted: its request numbers begin again\n"])
    check(traced("-n", "1000")[0]["request"] in seen, True, seen)


def main():
    if not tap.built("weft", "weft-mds", "weft-ds"):
        tap.skip("the programs are not built")
        return
    os.environ.pop("WEFT_ADMIN", None)
    harness.THE = w = Cluster(settings=SETTINGS_HERE)
    for row in json.loads(w.dev("status", w.dir, "--json"))["daemons"]:
        admins[row["name"]] = row["admin"]

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
