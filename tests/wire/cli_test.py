#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The command line of weft: tables, help, errors, completion, and that JSON comes from every
command that looks. Tests of tables and words ask a server that this script is; those whose names
begin with real_ ask a cluster. Prints TAP."""
import contextlib
import fcntl
import http.server
import json
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
from urllib.parse import urlparse

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../wirelib"))
import harness  # noqa: E402
import tap  # noqa: E402
from harness import *  # noqa: E402,F403
from nfs41 import err  # noqa: E402

TOP = os.environ.get("top_srcdir", os.path.join(os.path.dirname(__file__), "../.."))
WEFT = os.path.join(BUILD, "weft")
PLAIN = {k: v for k, v in os.environ.items()
         if k not in ("COLUMNS", "NO_COLOR", "WEFT_ADMIN", "TERM")} | {"LC_ALL": "C.UTF-8"}
GIB = 1 << 30
SERVERS = 64


# ---- a server with 64 of everything, and long names


def name(i):
    return f"storage-rack{i % 9}-node{i:03d}.cluster.example.org"


def path(i):
    return f"/projects/vision/übung-{i:02d}/" + "deep/" * 12 + f"checkpoint-{i:05d}.pt"


def server(i):
    state = ("alive", "alive", "suspect", "dead", "killed", "waiting")[i % 6]
    one = {"number": i, "name": name(i), "id": f"6819bc24-0000-4000-8000-{i:012d}", "kind": "weft",
           "alive": state == "alive", "state": state, "since_at": 1700000000 + i, "addr":
           [f"[2001:db8:1:2:3:4:5:{i:x}]:2050", f"10.77.{i}.200:2050"],
           "capacity": 1023 * GIB << 10, "available": 1 + 7 * GIB * i, "max_read": 1 << 20,
           "max_write": 1 << 20,
           "weight": 0.25 * (i % 5), "load": 1234.5, "latency_us": (None, 850, 1100, 143000)[i % 4],
           "labels": {"rack": f"r{i}", "speed": "nvme", "room": "second-floor"}, "labels_set": {}}
    if i % 3 == 0:
        one |= {"drain": "draining", "left": 123456 + i, "failing": 0, "stuck": False}
    if i == 9:
        one |= {"stuck": True, "failing": 7}
    if state == "waiting":
        one["why"] = "its store was restored from a backup; admit it when you know that it is whole"
    return one


def client_of(i):
    return {"number": 100 + i, "clientid": f"0x{i:016x}", "name": name(i), "owner":
            "Linux NFSv4.2 " + name(i), "addr": [f"2001:db8:1:2:3:4:5:{i:x}", "10.1.2.3", "::1"],
            "state": ("active", "courteous", "reclaiming", "unconfirmed")[i % 4], "minor": 2,
            "lease_left_s": 0 if i % 4 == 1 else 89.5, "silent_s": 400.0, "opens": 123456,
            "locks": 99,
            "delegations": 4321, "layouts": 54321, "sessions": 16, "backchannels": i % 2,
            "flavour": "krb5p", "tls": "mutual", "principal": None}


def rates(i):
    return {"ops": 123456.7, "read": 9e12, "written": 1e10, "mean_us": 999, "p50_us": None,
            "p99_us": 12345678, "heat": 1e9 + i}


EVERY = range(1, SERVERS + 1)
OBJECTS = [{"state": ("in-sync", "stale")[i % 2], "ds": name(i), "size": 1 << 50, "leaving": i == 2,
            "object": f"objects/{i:02x}/00000000000f4240.00000001.002a.00.{i:02d}", "addr":
            server(i)["addr"]} for i in EVERY]
ANSWERS = {
    "/v1/ds": {"ds": [server(i) for i in EVERY]},
    "/v1/clients": {"known": SERVERS, "lease_s": 90.0, "clients": [client_of(i) for i in EVERY]},
    "/v1/layouts": {"known": 99, "recalled": 0, "layouts": [
        {"client": i, "name": name(i), "mode": "write", "recalled": i % 2 == 0, "inode": 1 << 40,
         "ds": [name(k) for k in range(44)], "path": path(i) if i % 5 else None} for i in EVERY]},
    "/v1/file": {"inode": 1000000, "size": 1 << 50, "unit": 1 << 20, "threshold": 65536,
                 "policy": "stripes=32,unit=1M,mirrors=2", "mirrors": [
                     {"state": "in-sync", "objects": OBJECTS[:32]},
                     {"state": "stale", "objects": OBJECTS[32:], "spare": True}]},
    "/v1/repair": {"files_at_a_time": 4, "rate": 20 << 20, "wait_s": 60, "files": 190,
                   "running": [{"inode": i, "path": path(i), "object": i, "ds": name(i), "from":
                                name(i + 1), "step": "copy", "done": 72 << 20, "size": 272 << 30,
                                "written": 0, "equal": 0, "rate": 20 << 20, "left_s": 9000}
                               for i in EVERY],
                   "waiting": [{"inode": 9 << 40, "path": None, "object": i, "ds": name(i), "state":
                                "stale", "why": "its data server is away and may come back",
                                "fails": 0, "left_s": 55} for i in EVERY],
                   "moving": [{"inode": i, "path": path(i), "object": i, "ds": name(i), "to":
                               name(i + 1) if i % 2 else None, "state": ("waits", "moves")[i % 2],
                               "why": "no data server with these labels has room for it"}
                              for i in EVERY]},
    "/v1/find": {"found": [], "files": 10, "lost": 0, "degraded": 0, "too_deep": 0, "cursor": None},
    "/v1/exports": {"exports": [
        {"path": path(i), "id": i, "served": i % 7 != 0, "rules": [
            {"clients": ["10.0.0.0/8", "*.gpu.cluster.example.org", f"2001:db8::{i}/64"],
             "access": "rw", "squash": "root", "anon_uid": 65534, "anon_gid": 65534, "sec":
             ["sys", "krb5", "krb5i", "krb5p"], "tls": "required", "privileged_port": i % 2 == 0,
             "layouts": "true"}] if i % 5 else []} for i in EVERY], "ending": {"running": False}},
    "/v1/top": {"half_life": 10, "clients": [{"name": name(i), "number": i} | rates(i)
                                             for i in EVERY],
                "servers": [{"name": name(i), "number": i} | rates(i) for i in EVERY],
                "tags": [{"name": f"train-{i:060}", "clients": 1000 * i} | rates(i) for i in EVERY],
                "exports": [{"name": path(i)} | rates(i) for i in EVERY],
                "directories": [{"inode": i, "path": path(i) if i % 2 else None} | rates(i)
                                for i in EVERY]},
    "/v1/tags": {"tags": [{"name": f"train-{i:060}", "made_at": 1700000000, "known": 16384,
                           "since_at": 1700000000, "operations": i << 40, "read_bytes": i << 50,
                           "written_bytes": 0,
                           "clients": [{"client": name(k), "known": k} for k in EVERY]}
                          for i in EVERY]},
    "/v1/heat": {"half_life": 600, "directories": [{"inode": i, "path": path(i)} | rates(i)
                                                   for i in EVERY],
                 "files": [{"inode": i, "path": path(i)} | rates(i) for i in EVERY]},
    "/v1/balance": {"running": False, "dry_run": True, "files": SERVERS, "bytes": GIB, "left": 0,
                    "end": "nothing more helps", "moves": [
                        {"inode": i, "path": path(i), "bytes": GIB * i, "from": name(i), "to":
                         name(i + 1), "why": "slow", "state": "would move"} for i in EVERY]},
    "/v1/choose": {"running": False, "size": 1 << 50, "copies": [
        {"mirror": i // 32, "stripe": i % 32, "ds": name(i), "server": ("alive", "dead")[i % 2],
         "state": "stale", "has": "nothing", "size": 1 << 44 if i % 3 else None, "changed_at":
         1700000000.5, "sum": f"{i:064x}"} for i in EVERY]},
    "/v1/move": {"files": SERVERS, "restriping": [
        {"inode": i, "path": path(i), "stripes": 44, "unit": 2 << 30, "step": "copy", "done": GIB,
         "size": GIB << 10, "written": GIB} for i in EVERY]},
    "/v1/orders": {"known": 100, "orders": [
        {"number": i << 20, "ds": name(i), "ds_number": i, "what": ("delete", "bar-client")[i % 2],
         "inode": None if i % 2 else i, "path": None if i % 4 else path(i), "stripe": i % 32,
         "mirror": 1, "client": 4711 if i % 2 else None, "age_s": 7000.5, "tries": 1234567, "error":
         "input/output error" if i % 3 else None} for i in EVERY]},
}
TABLES = (("ds", "list"), ("client", "list"), ("layout", "list"), ("file", "show", "/f"),
          ("mirror", "status", "/f"), ("mirror", "list", "/f"), ("exports",), ("top", "-n", "1"),
          ("heat",), ("balance", "--dry-run"), ("mirror", "choose", "/f"),
          ("move", "/f", "--stripes", "44"), ("orders",), ("job", "list", "7"))


@contextlib.contextmanager
def serving():
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            got = ANSWERS.get(urlparse(self.path).path)
            body = json.dumps(got if got is not None else {"error": f"no {self.path}"}).encode()
            self.send_response(200 if got is not None else 404)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_PUT = do_DELETE = do_GET

        def log_message(self, *_):
            pass
    server_ = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server_.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield f"127.0.0.1:{server_.server_port}"
    finally:
        server_.shutdown()
        server_.server_close()


def weft(*args, rc=0, addr=None, **env):
    """Standard output, or where it fails standard error."""
    with contextlib.ExitStack() as stack:
        addr = addr or stack.enter_context(serving())
        done = subprocess.run([WEFT, "--admin", addr, *args], capture_output=True, text=True,
                              timeout=60, check=False, env=PLAIN | env, encoding="utf-8")
    check(done.returncode, rc, f"weft {' '.join(args)}: {done.stdout[-300:]}{done.stderr[-300:]}")
    return done.stderr if rc else done.stdout


def alone(*args, rc=0):
    """As weft, without a server."""
    done = subprocess.run([WEFT, *args], capture_output=True, text=True, timeout=60, check=False,
                          env=PLAIN, encoding="utf-8")
    check(done.returncode, rc, f"weft {' '.join(args)}: {done.stdout[-300:]}{done.stderr[-300:]}")
    return done.stderr if rc else done.stdout


def on_a_terminal(columns, *args, **env):
    """What weft prints on a terminal of that width."""
    ours, its = os.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    with serving() as addr:
        child = subprocess.Popen([WEFT, "--admin", addr, *args], stdin=its, stdout=its, stderr=its,
                                 env=PLAIN | {"TERM": "xterm"} | env)
        os.close(its)
        said = b""
        with contextlib.suppress(OSError):
            while more := os.read(ours, 65536):
                said += more
        check(child.wait(60), 0, said)
    os.close(ours)
    return said.decode().replace("\r\n", "\n")


def table_of(command):
    return next(row for row in commands() if row[0] == command)


def commands():
    """Name, arguments, options, columns of each command."""
    rows = [line.split("\t") for line in alone("complete", "--table").splitlines()]
    return [(name_, args, options.split(), columns.split(",") if columns else [])
            for name_, args, options, columns in rows]


def heads_of(line, columns):
    """Where the heads of a table are in this line, or None."""
    words = line.split()
    if len(words) < 2 or any(w not in columns for w in words):
        return None
    return [(m.start(), m.end()) for m in re.finditer(r"\S+", line)]


def aligned(lines, heads):
    """Each column begins or ends where its head does, in every line."""
    for begin, end in heads:
        left = all(not begin or line[begin - 1:begin] in ("", " ") for line in lines)
        right = all(line[end:end + 1] in ("", " ") for line in lines)
        check(left or right, True, f"{begin}-{end} of " + "\n".join(lines[:4]))


def test_every_table_fits_80_columns_with_64_servers():
    columns = {c for row in commands() for c in row[3]}
    for args in TABLES:
        said = weft(*args)
        for line in said.splitlines():  # a note may have a path, whole
            check(len(line) <= 80 or " " not in line.strip(), True, f"{args}: {len(line)}: {line}")
        tables = [t for t in re.split(r"\n\n", said.strip("\n"))]
        found = 0
        for part in tables:
            lines = part.splitlines()
            at = next((i for i, line in enumerate(lines) if heads_of(line, columns)), None)
            if at is None:
                continue
            found += 1
            body = [line for line in lines[at + 1:] if not re.match(r"[^ ]+: |  |\d+ ", line)
                    or re.match(r" +\d", line)]
            aligned([lines[at], *body[:SERVERS]], heads_of(lines[at], columns))
            check(len(lines) > at + 2, True, f"{args}: rows")
        many = {"top": 5, "heat": 2, "job": 2, "mirror": 3 if args[1:2] == ("status",) else 1}
        check(found, many.get(args[0], 1), f"{args}: {said[:500]}")


def test_a_cut_is_marked_and_a_path_keeps_its_end():
    said = weft("heat")
    check(re.search(r" …\S*/checkpoint-00001\.pt$", said, re.M) is not None, True, said[:400])
    check(re.search(r"^ *1 storage\S*… ", weft("ds", "list"), re.M) is not None, True)
    check("~" in weft("heat", LC_ALL="C"), True, "where the terminal has no such letter")


def test_the_width_is_the_terminals_or_columns():
    for columns in (80, 100, 200):
        for said in (weft("ds", "list", COLUMNS=str(columns)),
                     re.sub(r"\x1b\[[\d;]*m", "", on_a_terminal(columns, "ds", "list"))):
            wide = max(len(line) for line in said.splitlines())
            check(columns - 20 <= wide <= columns, True, f"{columns}: {wide}")
    check("ADDRESSES" in weft("ds", "list", COLUMNS="300"), True)
    check("ADDRESSES" in weft("ds", "list"), False)


def test_columns_are_picked_by_name():
    for args in TABLES:
        words = [a for a in args if not a.startswith(("/", "-")) and not a.isdigit()]
        columns = table_of(" ".join(words))[3]
        if words == ["move"]:  # its other columns are those of a move without new stripes
            columns = ["STRIPES", "UNIT", "STEP", "DONE", "SIZE", "WRITTEN", "PATH"]
        said = weft(*args, "-o", ",".join(columns).lower())
        check(set(columns) - set(said.split()), set(), f"{args}: {said[:200]}")
    said = weft("ds", "list", "--columns", "addresses,name").splitlines()
    check(said[0].split(), ["ADDRESSES", "NAME"])
    check(said[1].split(), [",".join(server(1)["addr"]), name(1)], "a script gets all of it")
    check(weft("ds", "list", "-o", "+id").splitlines()[0].split()[-1], "ID")
    check(all(len(line) <= 80 for line in weft("ds", "list", "-o", "name,addresses",
                                               COLUMNS="80").splitlines()), True)
    for bad, hint in (("latenci", 'Did you mean "LATENCY"?'), ("xyzzyx", "Its columns are NUM,"),
                      ("", "Its columns are"), ("name,,id", "Its columns are")):
        told = alone("ds", "list", "-o", bad, rc=2)
        check((hint in told, told.count("\n")), (True, 3), told)
    check("has no option --columns" in alone("ds", "forget", "--columns", "NAME", "x", rc=2), True)


def test_colours_are_for_terminals():
    said = on_a_terminal(80, "ds", "list")
    for state, colour in (("dead", 31), ("killed", 31), ("suspect", 33), ("123459 left", 33)):
        check(re.search(rf"\x1b\[(1;)?{colour}m{state}", said) is not None, True, said[:800])
    check(re.search(r"\x1b\[[\d;]+malive", said), None)
    plain = re.sub(r"\x1b\[[\d;]*m", "", said)
    check(max(len(line) for line in plain.splitlines()) <= 80, True)
    check("\x1b" in on_a_terminal(80, "ds", "list", NO_COLOR=""), True, "an empty NO_COLOR")
    for quiet in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
        check("\x1b" in on_a_terminal(80, "ds", "list", **quiet), False, quiet)
    check("\x1b" in weft("ds", "list"), False)


def test_times_and_unknowns_have_one_form():
    rows = dict(line.split() for line in weft("ds", "list", "-o", "num,latency").splitlines()[1:65])
    check([rows[str(i)] for i in (1, 2, 3, 4)], ["850us", "1.1ms", "143ms", "-"])
    top = weft("top", "-n", "1", "-o", "mean,p50,p99").splitlines()
    check(top[1].split(), ["999us", "-", "12s"])


def test_names_cannot_control_the_terminal():
    was, ANSWERS["/v1/ds"] = ANSWERS["/v1/ds"], {"ds": [server(1) | {"name": "a\x1b[31m\nb"}]}
    try:
        said = weft("ds", "list", "-o", "num,name")
        check(said.splitlines()[1].split(), ["1", "a\\x1b[31m\\x0ab"], said)
    finally:
        ANSWERS["/v1/ds"] = was


# ---- help and errors


def test_each_command_has_help_of_its_own():
    verbs = {c[0].split()[0] for c in commands() if " " in c[0]}
    for command, args, options, columns in commands():
        said = alone("help", *command.split())
        lines = said.splitlines()
        check(all(len(line) <= 80 for line in lines), True, said)
        check(lines[0].startswith(f"usage: weft {command}"), True, said)
        if command not in ("fsck", "topo", "help", "backup", "restore", "export-meta",
                           "import-meta"):
            check(alone(*command.split(), "--help"), said, command)
        if command in verbs:
            continue  # a noun that is a command too: its help lists what may follow
        check(lines[-1].strip().startswith("weft " + command.split()[0]), True, said)
        for option in options:
            what = re.search(rf"^  .*--{option[2:].replace('=', ' ')}\s+(\S.*)$", said, re.M)
            check(bool(what and what[1]), True, f"{command} {option}: {said}")
        for column in columns:
            check(re.search(rf"\b{re.escape(column)}\b", said) is not None, True, column)
        for word in args.replace("[", " ").replace("]", " ").split():
            check(word in said, True, word)


def test_the_summary_is_one_screen_and_has_every_command():
    said = alone("--help")
    lines = said.splitlines()
    check((len(lines) <= 50, max(len(line) for line in lines) <= 80), (True, True), len(lines))
    check(alone("help") == said == alone("-h"), True)
    for command, *_ in commands():
        for word in command.split():
            check(re.search(rf"\b{word}\b", said) is not None, True, command)
    check("kill DS" in alone("help", "ds") and "drain DS" in alone("ds", "--help"), True)
    for command in ("status", "ds"):
        check("COMMAND" in said and len(alone("help", command).splitlines()) < 60, True)


def test_an_error_has_three_lines_at_most_and_names_what_is_near():
    for args, near in ((("ds",), "list, weight"), (("ds", "drian", "x"), "weft ds drain"),
                       (("polcy", "get"), "weft policy"), (("ds", "drain"), "weft help ds drain"),
                       (("help", "mirorr"), "weft mirror"),
                       (("help", "ds", "lis"), "weft ds list"),
                       (("ds", "drain", "--wiat", "x"), "--wait"),
                       (("events", "-o", "x"), "weft help events"),
                       ((), "--help"), (("ds", "kill", "--force", "x"), "no option --force"),
                       (("--admin", "x", "status"), "unix:/PATH, 127.0.0.1:PORT or https")):
        told = alone(*args, rc=2)
        check((near in told, told.count("\n") <= 3), (True, True), f"{args}: {told}")


def man_commands():
    """The commands that weft.1 has, and their text."""
    with open(os.path.join(TOP, "docs/weft.1"), encoding="utf-8") as f:
        part = f.read().split(".SH COMMANDS")[1].split(".SH POLICIES")[0]
    found = {}
    for entry in re.split(r"^\.TP\n", re.sub(r"^\.RS\n.*?^\.RE\n", "", part, flags=re.M | re.S),
                          flags=re.M)[1:]:
        head, _, text = entry.partition("\n")
        while head.endswith("\\"):
            more, _, text = text.partition("\n")
            head = head[:-1] + more
        plain = re.sub(r"\\f.|[\"\\]", "", re.sub(r"^\.\w+ ", "", head))
        found.setdefault(plain, []).append(entry)
    return found


def test_the_man_page_has_each_command_and_option_and_no_other():
    with open(os.path.join(TOP, "docs/weft.1"), encoding="utf-8") as f:
        whole = f.read().replace("\\-", "-")
    heads = man_commands()
    names = {row[0] for row in commands()}
    seen = set()
    for head in heads:
        words = re.findall(r"[a-z]+(?:-[a-z]+)*", " ".join(head.split(" ")[:2]))
        name_ = next((n for n in (" ".join(words[:2]), words[0]) if n in names), None)
        check(name_ is not None, True, f"weft.1 has {head!r}, which is no command")
        seen.add(name_)
    check(names - seen, set(), "commands that weft.1 lacks")
    part = whole.split(".SH COMMANDS")[1].split(".SH POLICIES")[0]
    known = {o.split("=")[0] for row in commands() for o in row[2]}
    other = {"--admin", "--json", "--columns", "--help", "--online", "--plan",
             "--sysfs", "--near", "--record",  # topo's own
             "--incremental", "--keep", "--verify", "--edited"}  # weft-backup's
    check({o for o in re.findall(r"--[a-z][a-z-]+", part)} - known - other, set(),
          "options that are none")
    for command, _, options, _ in commands():
        for option in options:
            check(option.split("=")[0] in whole, True, f"{command} {option} in weft.1")


# ---- completion


def completed(*words):
    with serving() as addr:
        done = subprocess.run([WEFT, "complete", "--", "--admin", addr, *words], env=PLAIN,
                              capture_output=True, text=True, timeout=60, check=False)
    check((done.returncode, done.stderr), (0, ""))
    return [line.split("\t")[0] for line in done.stdout.splitlines()]


def test_what_may_follow_is_known():
    for words, want in ((("ds", "k"), ["kill", "key"]), (("ev",), ["events"]),
                        (("ds", "list", "-o", "name,st"), ["name,state"]),
                        (("ds", "drain", name(7)[:21]), [name(7)]),
                        (("layout", "list", "--client", name(9)[:20]), [name(9)]),
                        (("ds", "drain", "--w"), ["--wait"]),
                        (("find", "/", "--deg"), ["--degraded"]),
                        (("policy", "set", "/", "str"), ["stripes="]),
                        (("help", "ds", "adm"), ["admit"]),
                        (("fsck", ""), [":files"]), (("file", "show", "/x"), []),
                        (("nonsense", ""), [])):
        check(completed(*words), want, words)
    check({c[0].split()[0] for c in commands()} == set(completed("")), True)


def test_bash_completes(shell="bash"):
    source = "/usr/share/bash-completion/bash_completion"
    if not os.path.exists(source):
        return "the package bash-completion is not installed"
    ours, its = os.openpty()
    child = subprocess.Popen(["bash", "--norc", "--noprofile", "-i"], stdin=its, stdout=its,
                             stderr=its, start_new_session=True,
                             env=PLAIN | {"PS1": "$ ", "TERM": "dumb", "PATH":
                                          f"{BUILD}:{os.environ['PATH']}", "INPUTRC": "/dev/null"})
    os.close(its)
    said = b""

    def until(text):
        nonlocal said
        while text not in said:
            said += os.read(ours, 4096)
    try:
        os.write(ours, f". {source}; . {TOP}/dist/completion/bash/weft; complete -p weft; "
                 "echo rea''dy\n".encode())
        until(b"ready\r\n")
        check(b"complete -F _weft weft" in said, True, said)
        for typed, want in ((b"weft mirr\t", b"mirror "), (b"weft ds undr\t", b"undrain "),
                            (b"weft policy set / mirr\t", b"mirrors=")):
            said = b""
            os.write(ours, typed)
            until(want)
            os.write(ours, b"\x15")  # away with the line
    finally:
        child.kill()
        child.wait()
        os.close(ours)


def test_fish_completes():
    if not shutil.which("fish"):
        return "the package fish is not installed"
    done = subprocess.run(["fish", "--no-config", "-c", f"set PATH {BUILD} $PATH; source "
                           f"{TOP}/dist/completion/fish/weft.fish; complete -C 'weft ds undr'"],
                          capture_output=True, text=True, timeout=60, check=False, env=PLAIN)
    check(done.stdout.split("\t")[0], "undrain", done)


def test_zsh_completes():
    if not shutil.which("zsh"):
        return "the package zsh is not installed"
    script = (f"PATH={BUILD}:$PATH; "
              # What _describe would get, in an array.
              "_describe() { print -l -- ${(P)3} }; words=(weft ds undr); CURRENT=3; "
              f"source {TOP}/dist/completion/zsh/_weft")
    done = subprocess.run(["zsh", "-f", "-c", script], capture_output=True, text=True, timeout=60,
                          check=False, env=PLAIN)
    check(done.stdout.startswith("undrain:end a drain"), True, done)


# ---- with a cluster


def real_orders_say_what_a_server_has_to_do(w):
    admin = w.where["mds"]
    check(weft("orders", addr=admin), "no order to a data server is pending\n")
    c = client()
    d = c.mkdir(c.root(), "orders")
    s, f = c.open(d, "f")
    c.ok(putfh(f), write(s, 0, b"x" * 4096, FILE_SYNC))
    (o,) = json.loads(c.ok(putfh(f), getxattr("weft.layout")).value)["mirrors"][0]["objects"]
    ino = json.loads(c.ok(putfh(f), getxattr("weft.layout")).value)["inode"]
    c.ok(putfh(f), close(s))
    # Its object cannot be deleted: it is a folder that is not empty.
    at = os.path.join(w.dir, o["ds"], o["object"])
    w.dev("kill", w.dir, o["ds"], "-9")
    os.unlink(at)
    os.makedirs(os.path.join(at, "full"))
    c.ok(putfh(d), remove("f"))

    def orders():
        return json.loads(weft("--json", "orders", addr=admin))["orders"]
    eventually(orders, 60, "the order")
    (one,) = orders()
    check((one["ds"], one["what"], one["inode"], one["path"], one["client"]),
          (o["ds"], "delete", ino, None, None))
    check(one["error"] in (None, "not connected"), True, one)
    check((one["stripe"], one["mirror"], one["age_s"] >= 0), (0, 0, True))
    w.dev("start", w.dir, o["ds"])
    eventually(lambda: [x for x in orders() if x["tries"] > 1
                        and x["error"] == "input/output error"], 60, "two tries")
    line = weft("orders", "--ds", o["ds"], addr=admin).splitlines()[1]
    check(re.match(rf"{o['ds']} +delete +\S+ +\d+ +inode {ino} +\S", line) is not None, True, line)
    other = next(n for n in ("ds1", "ds2") if n != o["ds"])
    check("no order to this data server" in weft("orders", "--ds", other, addr=admin), True)
    with open(os.path.join(w.top, "c/log/mds.log"), encoding="utf-8") as log:
        text = log.read()
    check(f"({o['ds']}): cannot delete the object of inode {ino} (stripe 0, mirror 0): " in text,
          True, text[-500:])
    shutil.rmtree(at)
    eventually(lambda: not orders(), 60, "it is done")


def real_a_policy_that_is_refused_says_why(w):
    admin = w.where["mds"]
    c = client(owner=b"Linux NFSv4.2 a/node7")
    d = c.mkdir(c.root(), "refused")
    s, f = c.open(d, "f")
    c.ok(putfh(f), write(s, 0, b"x" * 4096, FILE_SYNC))

    def events():
        return json.loads("[" + ",".join(weft("--json", "events", "--kind", "policy-refused",
                                              addr=admin).splitlines()) + "]")
    for n, (fh, key, value, status, why) in enumerate((
            (d, "weft.policy", "mirrors=9", "INVAL", "mirrors=9: there are only"),
            (d, "weft.polcy", "mirrors=2", "INVAL", "did you mean user.weft.policy?"),
            (d, "weft.\x1b[1m", "x", "INVAL", "user.weft.?[1m: names that begin with"),
            (f, "weft.policy", "mirrors=2", "EXIST", "the file is not empty")), 1):
        # There is one event a second: each refusal is tried until its own is there.
        deadline = time.monotonic() + 60
        while not any(why in e["text"] for e in events()):
            check(time.monotonic() < deadline, True, f"{why}: {events()}")
            got = c.call(putfh(fh), setxattr(key, value))
            check(err(got.status), status, key)
            time.sleep(0.3)
        (e,) = [e for e in events() if why in e["text"]][:1]
        check((e["subject"].endswith("node7"), e["path"], e["kind"]),
              (True, "/refused" if fh == d else "/refused/f", "policy-refused"), e)
        check(re.match(r"client \d+, uid 0: ", e["text"]) is not None, True, e)
        check(len(events()) >= n, True)
    with open(os.path.join(w.top, "c/log/mds.log"), encoding="utf-8") as log:
        check("mirrors=9: there are only" in log.read(), True)
    told = weft("xattr", "set", "/refused", "user.weft.polcy", "x", rc=1, addr=admin)
    check("did you mean user.weft.policy?" in told, True, told)
    c.ok(putfh(d), setxattr("weftish", "x"))
    c.no("NOXATTR", putfh(d), getxattr("weft.polcy"))
    c.no("NOXATTR", putfh(d), removexattr("weft.polcy"))


def real_every_command_that_looks_prints_json(w):
    admin = w.where["mds"]
    c = client()
    d = c.mkdir(c.root(), "json")
    c.open(d, "f")
    given = {"ds key": None, "file show": ["/json/f"], "policy get": ["/json"],
             "mirror list": ["/json/f"], "xattr show": ["/json"],
             "find": ["/", "--policy", "unit=1M"],
             "top": ["-n", "1"], "balance": ["--dry-run"], "scrub": ["--status"],
             "mirror verify": ["/json/f"], "mirror choose": ["/json/f"],
             "layout recall": ["/json/f"],
             "mirror repair": ["/json/f"], "move": ["/json/f", "--cancel"],
             "policy set": ["/json", "mirrors=1"], "policy remove": ["/json"],
             "ds weight": ["ds1", "1"], "ds group": ["ds1", "a=b"], "ds undrain": ["ds1"],
             "ds admit": ["ds1"], "ds drain": ["ds2"], "xattr set": ["/json", "a", "b"],
             "xattr remove": ["/json", "a"], "set": ["mds.repair_rate=64M"], "topo": [],
             "job tag": ["j", "node1"]}
    lines = ("events", "find")  # an object a line
    for command, args, _, _ in commands():
        if command in ("help", "fsck", "ds kill", "ds forget", "ds add", "ds key", "key rotate",
                       "client evict", "mirror add", "mirror remove", "jobs wait", "jobs cancel",
                       "token create", "token revoke", "support", "backup", "restore",
                       "export-meta", "import-meta",
                       "trash restore", "trash empty", "cluster init", "cluster join", "pin",
                       "pg init", "pg verify", "warm", "unpin", "job untag",
                       "instance list", "instance make", "instance move", "instance drain"):
            continue
        if command not in given and args.strip("[]") != args and args:
            args = ""
        check(not args or args[0] == "[" or command in given, True, f"{command}: how to call it?")
        done = subprocess.run([WEFT, "--admin", admin, "--json", *command.split(),
                               *given.get(command, [])], capture_output=True, text=True, timeout=60,
                              check=False, env=PLAIN)
        texts = done.stdout.splitlines() if command in lines else [done.stdout]
        for text in texts:
            try:
                got = json.loads(text)
            except ValueError:
                raise AssertionError(f"{command}: {done.returncode} {text!r} "
                                     f"{done.stderr}") from None
            if done.returncode:
                check("error" in got or command.startswith("scrub"), True, f"{command}: {got}")


@contextlib.contextmanager
def around(test):
    if not test.startswith("real_"):
        yield ()
        return
    # No client is past its lease, however long all commands take: weft health would warn.
    w = harness.THE = harness.THE or Cluster(ds=2, settings=["mds.lease=600s"])
    try:
        yield (w,)
    finally:
        while harness.CLIENTS:
            harness.CLIENTS.pop().drop()


if __name__ == "__main__":
    os.environ.pop("WEFT_ADMIN", None)
    try:
        tap.run(tap.named(globals(), "test_", "real_"), around)
    finally:
        harness.down()
