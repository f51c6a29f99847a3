# SPDX-License-Identifier: Apache-2.0
"""What weft takes and how it does as things get many: memory of open files and idle clients, cost
in large directories, time to start with many files, and what an administrator's questions take
then."""
import http.client
import os
import socket
import statistics
import subprocess
import time

import peers

OPENS, CLIENTS, SMALL, FEW = 10000, 400, 1000, 10000
PHASES = ("create", "stat", "rename", "unlink")
ASKED = 20  # times each
ANSWER_S = 1.1  # for so long an answer may be the one before (mds/admin/admin_health.c)


def held(weft, what, n):
    """Bytes that the daemon has grown by for each."""
    command = [os.path.join(peers.BUILD, "tests/bench/hold"), f"127.0.0.1:{weft.port}", what]

    def one(count):
        with subprocess.Popen([*command, str(count)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                              text=True) as p:
            if p.stdout.readline() != "held\n":
                raise peers.Trouble(f"hold {what} {count}")
            got = peers.resident(weft.pid())
            p.stdin.close()
            if p.wait(60):
                raise peers.Trouble(f"hold {what} {count} ended with {p.returncode}")
        return got
    one(n // 10)  # makes what comes only the first time, and the files
    few, many = one(n // 10), one(n)
    return (many - few) / (n - n // 10)


def names(weft, entries, *more):
    return weft.target.bench("md", "--sessions", 4, "--depth", 16, "--count", entries // 4, *more,
                             limit=peers.LIMIT + entries // 2000)


def directories(weft, entries):
    """Cost in a directory of this many over that in a small one, by phase. For creates it is the
    mean while the directory grows."""
    phases, ratios = ",".join(PHASES), {p: [] for p in PHASES}
    for _ in range(3 if entries <= 50000 else 1):
        few = [names(weft, SMALL, "--shared", "--phases", phases) for _ in range(5)]
        big = names(weft, entries, "--shared", "--phases", phases)
        few += [names(weft, SMALL, "--shared", "--phases", phases) for _ in range(5)]
        for p in PHASES:
            ratios[p].append(big[p]["server_cpu_us_per_op"]
                             / statistics.median(f[p]["server_cpu_us_per_op"] for f in few))
    return {p: statistics.median(v) for p, v in ratios.items()}


def fetched(weft, path):
    conn = http.client.HTTPConnection("mds")
    conn.sock = socket.socket(socket.AF_UNIX)
    conn.sock.connect(weft.daemons["mds"]["admin"].removeprefix("unix:"))
    conn.request("GET", path)
    with conn.getresponse() as reply:
        if reply.status != 200 or not reply.read():
            raise peers.Trouble(f"GET {path}: {reply.status}")


def command(weft, *args):
    """weft health may find what is wrong with a machine, such as a disk that is nearly full."""
    done = subprocess.run([os.path.join(peers.BUILD, "weft"), "--admin",
                           weft.daemons["mds"]["admin"], *args], stdout=subprocess.DEVNULL,
                          stderr=subprocess.PIPE, text=True, timeout=peers.LIMIT, check=False)
    if done.returncode > 2 or done.stderr:
        raise peers.Trouble(f"weft {' '.join(args)}: {done.stderr.strip()[-300:]}")


def answers(weft):
    """Milliseconds that each question takes, from its beginning to its end: median and most. No
    answer is one that the server kept."""
    asked = {"health": lambda: command(weft, "health"),
             "du": lambda: command(weft, "du", "-s", "/"),
             "v1_health": lambda: fetched(weft, "/v1/health"),
             "metrics": lambda: fetched(weft, "/metrics")}
    out = {}
    for name, ask in asked.items():
        took = []
        for _ in range(ASKED):
            time.sleep(ANSWER_S)
            began = time.monotonic()
            ask()
            took.append((time.monotonic() - began) * 1000)
        out[f"{name}_ms"], out[f"{name}_most_ms"] = statistics.median(took), max(took)
    return out


def start(weft, files):
    """Seconds that the metadata server takes to serve again with this many files, from the call
    that starts it. Also the cost of a stat with this many files over that with few."""
    few = statistics.median(names(weft, FEW, "--random", "--phases",
                                  "create,stat,unlink")["stat"]["server_cpu_us_per_op"]
                            for _ in range(5))
    many = names(weft, files, "--random", "--phases", "create,stat",
                 "--keep")["stat"]["server_cpu_us_per_op"]
    weft.dev("kill", weft.dir, "mds")
    began = time.monotonic()
    weft.dev("start", weft.dir, "mds")
    return time.monotonic() - began, many / few


def measure(weft, entries, files):
    """weft: a cluster that does not sync, or it would take long. files: they stay."""
    out = {"open_file_bytes": held(weft, "opens", OPENS),
           "idle_client_bytes": held(weft, "clients", CLIENTS)}
    if entries:
        out["entries"] = entries
        out.update({f"big_{p}_ratio": v for p, v in directories(weft, entries).items()})
    if files:
        out["files"] = files
        out["start_s"], out["many_stat_ratio"] = start(weft, files)
        out.update(answers(weft))
    return out
