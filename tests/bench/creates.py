#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""creates.py [IN_FLIGHT [COUNT]] - durable creates in flight together at a weft-mds of this build:
how many share a commit, and what one costs.

Run it in the build tree, as bash tests/netns /usr/bin/python3 .../tests/bench/creates.py: it starts
a cluster with weft-dev in a folder under TMPDIR. IN_FLIGHT (1000) OPENs that create a file each are
on the wire at any time, over as many sessions of 16 slots as that takes. COUNT (8000) are done in
all. The script makes the requests before the clock starts.
"""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time

SRC = (os.environ.get("top_srcdir")
       or os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
sys.path.insert(0, os.path.join(SRC, "tests/wirelib"))
from nfs41 import (  # noqa: E402 (after the path)
    BOTH, NO_DELEG, UNCHECKED, Client, claim_null, compound_args, getfh, open_, putfh,
    read_compound, sequence)

DEV = os.path.join(os.environ.get("top_builddir") or os.getcwd(), "tools/weft-dev")
SLOTS = 16  # a new session has so many


def cpu_seconds(pid):
    with open(f"/proc/{pid}/stat", encoding="ascii") as f:
        ticks = f.read().rsplit(")", 1)[1].split()[11:13]
    return sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")


def metric(where, name):
    return float(subprocess.run([sys.executable, os.path.join(SRC, "tests/lab/metric.py"), where,
                                 "mds", name], capture_output=True,
                                text=True, check=True).stdout)


def run(folder, in_flight, count):
    subprocess.run([DEV, "up", folder, "--ds", "2"], check=True, capture_output=True)
    mds = next(d for d in json.loads(subprocess.run([DEV, "status", folder, "--json"], check=True,
                                                    capture_output=True).stdout)["daemons"]
               if d["name"] == "mds")
    clients = [Client((mds["addr"], mds["port"]), fore={"reqs": SLOTS})
               for _ in range((in_flight + SLOTS - 1) // SLOTS)]
    d = clients[0].mkdir(clients[0].root(), "bench")
    lanes = [(c, slot) for c in clients for slot in range(SLOTS)][:in_flight]
    rounds = count // len(lanes)
    waves = []
    for r in range(rounds):
        wave = []
        for n, (c, slot) in enumerate(lanes):
            ops = (sequence(c.session.sessionid, c.slots[slot] + 1 + r, slot, SLOTS - 1), putfh(d),
                   open_(claim_null(f"f{r}.{n}".encode()), BOTH | NO_DELEG, how=UNCHECKED,
                         attrs={"mode": 0o644}), getfh())
            wave.append((c, compound_args(ops)))
        waves.append(wave)
    before = [metric(folder, m) for m in ("weft_mds_kv_commits_total", "weft_mds_kv_ops_total")]
    cpu, began = cpu_seconds(mds["pid"]), time.monotonic()
    for wave in waves:
        started = [(c, c.conn.start(1, args, c.cred)) for c, args in wave]
        for c, xid in started:
            got = read_compound(c.conn.finish(xid))
            if got.status:
                raise SystemExit(f"OPEN: status {got.status}")
    seconds, cpu = time.monotonic() - began, cpu_seconds(mds["pid"]) - cpu
    commits, ops = (metric(folder, m) - b
                    for m, b in zip(("weft_mds_kv_commits_total", "weft_mds_kv_ops_total"), before))
    done = rounds * len(lanes)
    print(f"{done} durable creates, {len(lanes)} in flight, {len(clients)} sessions: "
          f"{done / seconds:.0f}/s, {commits:.0f} commits "
          f"({commits / seconds:.0f}/s, {ops / commits:.0f} mutations each, {commits / done:.4f} "
          "per create), "
          f"{cpu / done * 1e6:.0f} us of the server's CPU each")


def main():
    in_flight, count = map(int, [*sys.argv[1:3], "1000", "8000"][:2] if len(sys.argv) != 2
                           else [sys.argv[1], "8000"])
    top = tempfile.mkdtemp(prefix="weft-bench.")
    try:
        run(os.path.join(top, "c"), in_flight, count)
    finally:
        subprocess.run([DEV, "down", os.path.join(top, "c")], check=False, capture_output=True)
        shutil.rmtree(top)


main()
