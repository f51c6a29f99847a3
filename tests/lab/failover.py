#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""failover.py CLUSTER SHARED RUNS [held] - kills the metadata server and starts it again, RUNS
times. It adds to SHARED/figures what the guest's logs in SHARED say of it.

held: this program holds the listening sockets, as a service manager does, and hands them to each
server."""
import json
import os
import re
import signal
import socket
import statistics
import subprocess
import sys
import time

import metric

cluster, shared, runs, held = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4:] == ["held"]
DEV = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../tools/weft-dev")
BUILD = os.environ["WEFT_BUILD"]


def count(text, op):
    return float(re.search(rf'^weft_mds_op_total{{op="{op}"}} (\S+)', text, re.M)[1])


def ended(what, after):
    """When the first operation ended that only the next server can have answered."""
    with open(f"{shared}/{what}.log", encoding="ascii") as f:
        for line in f:
            if line.endswith("\n") and float(line.split()[1]) > after:
                return float(line.split()[1])
    return None


def wait(done, seconds, what):
    end = time.time() + seconds
    while True:
        got = done()
        if got:
            return got
        if time.time() > end:
            raise SystemExit(f"no {what} in {seconds} s")
        time.sleep(0.005)


def gone(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as f:
            return f.read().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


def listening(addr):
    s = socket.socket()
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    s.bind(addr)
    s.listen(4096)
    return s


def wait_listening(addr):
    """The dead server's ring may have the port a moment longer."""
    end = time.time() + 5
    while True:
        try:
            return listening(addr)
        except OSError:
            if time.time() > end:
                raise
            time.sleep(0.01)


def server(sockets):
    """The command that starts the server, with its sockets from descriptor 3 on."""
    moves = " ".join(f"{3 + i}<&{s.fileno()}" for i, s in enumerate(sockets))
    script = (f'exec {moves}; LISTEN_PID=$$ LISTEN_FDS={len(sockets)} exec "$@"'
              if sockets else 'exec "$@"')
    with open(f"{cluster}/log/mds.log", "a", encoding="ascii") as log:
        return subprocess.Popen(["bash", "-c", script, "bash", os.path.join(BUILD, "weft-mds"),
                                 "-c", f"{cluster}/weft.conf"], stdin=subprocess.DEVNULL,
                                stdout=log,
                                stderr=log, cwd=cluster, start_new_session=True,
                                pass_fds=[s.fileno() for s in sockets])


def main():
    mds = next(d for d in json.loads(subprocess.run([DEV, "status", cluster, "--json"],
                                                    capture_output=True,
                                                    check=True).stdout)["daemons"]
               if d["name"] == "mds")
    found = {k: [] for k in ("serves", "reclaim", "complete", "look", "open", "create")}
    pid, sockets = mds["pid"], []
    for _ in range(runs):
        time.sleep(4)
        killed = time.time()
        os.kill(pid, signal.SIGKILL)
        wait(lambda p=pid: gone(p), 5, "death")  # the port and the store are free then
        if held and not sockets:
            sockets = [wait_listening(addr) for addr in ((mds["addr"], mds["port"]),
                                                         ("127.0.0.1", mds["port"]))]
        pid = server(sockets).pid
        with open(f"{cluster}/run/mds.pid", "w", encoding="ascii") as f:
            f.write(f"{pid}\n")

        def told(op):
            try:
                return count(metric.fetch(mds["metrics"]), op) > 0 or None
            except (OSError, TypeError, SystemExit):
                return None

        def up():
            try:
                return metric.fetch(mds["metrics"])
            except OSError:
                return None
        wait(up, 20, "service")
        found["serves"].append(time.time() - killed)
        wait(lambda: told("OPEN"), 60, "reclaim")
        found["reclaim"].append(time.time() - killed)
        wait(lambda: told("RECLAIM_COMPLETE"), 60, "RECLAIM_COMPLETE")
        found["complete"].append(time.time() - killed)
        for what in ("look", "open", "create"):
            found[what].append(wait(lambda w=what: ended(w, killed + 0.02), 60, what) - killed)
    names = {"serves": "the server serves", "reclaim": "the first reclaim",
             "complete": "RECLAIM_COMPLETE", "look": "a LOOKUP that waits",
             "open": "an OPEN that waits",
             "create": "a create that waits"}
    with open(f"{shared}/figures", "a", encoding="ascii") as out:
        out.write("sockets held by who starts the server:\n"
                  if held else "sockets of the server's own:\n")
        for k, v in found.items():
            v.sort()
            out.write(f"  {names[k]}: median {statistics.median(v):.2f} s, {v[0]:.2f} .. "
                      f"{v[-1]:.2f} s, {len(v)} kills\n")


main()
