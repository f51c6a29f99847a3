#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""CPU time of several servers for the same work of the same client, in rounds that alternate
between them.

    beside.py SHARED FILE [json]

The client's side (tests/lab/guest/ganesha.sh) does what SHARED says, one piece of work at a time.
beside.py reads the servers' time before and after each piece. FILE is JSON:

    rounds, mib, ops, syncs
        how much: rounds, MiB of bulk work, calls of 4 KiB, calls of 4 KiB that are stable each
    servers
        {name: {"pid": N, "metrics": WHERE or null}}; the first is what the others are divided by
    works
        which of WORK below; none: all
    perf
        a folder for a profile of each server and work, taken in a round of its own before; "": none

The time is that of the process in all its threads, in the kernel and outside, including threads
that have ended (its CPU clock). It leaves out what the kernel's own threads do for the process:
later writeback of what no call has synced, and completions of the disk.
"""
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../lab"))
from metric import fetch  # noqa: E402

LIMIT = 120  # seconds for one piece of work
# Of another process, see clock_getcpuclockid(3): ~PID << 3 and the kind of clock
CPUCLOCK_SCHED = 2

# What is done, what one of it is, and how many of them, by the names of the counts.
WORK = {
    "read-1m": ("read, 1 MiB, sequential", "MiB", "mib"),
    "write-1m": ("write, 1 MiB, sequential, and COMMIT", "MiB", "mib"),
    "read-4k": ("read, 4 KiB, random, 16 in flight", "4 KiB", "ops"),
    "write-4k": ("write, 4 KiB, random, and COMMIT", "4 KiB", "ops"),
    "sync-4k": ("write, 4 KiB, random, stable each, 16 in flight", "4 KiB", "syncs"),
}


def cpu_ns(pid):
    return time.clock_gettime_ns((~pid << 3) | CPUCLOCK_SCHED)


def switches(pid):
    """How often its threads have given a processor away."""
    total = 0
    for t in os.listdir(f"/proc/{pid}/task"):
        try:
            with open(f"/proc/{pid}/task/{t}/status", encoding="ascii") as f:
                total += sum(int(n)
                             for n in re.findall(r"^(?:non)?voluntary_ctxt_switches:\s*(\d+)",
                                                 f.read(), re.M))
        except (FileNotFoundError, ProcessLookupError):
            pass  # it has ended meanwhile
    return total


def copied(where):
    """Payload bytes that the daemon copied, all that it moved, and its calls by procedure."""
    text = fetch(where)

    def total(name):
        return sum(float(v) for v in re.findall(rf"^{name}(?:{{.*?}})? (\S+)", text, re.M))
    return (total("weft_ds_copied_bytes_total"),
            total("weft_ds_bytes_total") + total("weft_ds_export_bytes_total"), {
        proc: total(f'weft_ds_op_total{{proc="{proc}"}}') for proc in ("READ", "WRITE", "COMMIT")})


class Client:
    """The guest does one piece of work at a time, by files that both see."""

    def __init__(self, shared):
        self.shared = shared
        self.n = 0

    def do(self, server, work, count):
        self.n += 1
        todo, done = (os.path.join(self.shared, f"{x}.{self.n}") for x in ("todo", "done"))
        with open(todo + ".new", "w", encoding="ascii") as f:
            f.write(f"{server} {work} {count}\n")
        os.rename(todo + ".new", todo)
        end = time.monotonic() + LIMIT
        while not os.path.exists(done):
            if time.monotonic() > end:
                raise SystemExit(f"not ok - {work} by {server} within {LIMIT} s")
            time.sleep(0.02)
        with open(done, encoding="ascii") as f:
            status, *ops = f.read().split()
        if status != "0":
            raise SystemExit(f"not ok - {work} by {server} (status {status})")
        return [int(x) for x in ops]


class Bench:
    def __init__(self, shared, spec):
        self.client = Client(shared)
        self.spec = spec
        self.servers = spec["servers"]
        self.works = [w for w in WORK if w in spec["works"] or not spec["works"]]
        self.us = {}      # by work and server: microseconds for one, of each round
        self.calls = {}   # the same: READs, WRITEs and COMMITs of the last round
        self.switched = {}  # the same: switches for one, of each round
        self.copies = {}  # the same: copied bytes for each of payload

    def one(self, server, work):
        s, count = self.servers[server], self.spec[WORK[work][2]]
        had = copied(s["metrics"]) if s["metrics"] else None
        switched = switches(s["pid"])
        before = cpu_ns(s["pid"])
        ops = self.client.do(server, work, count)
        spent = cpu_ns(s["pid"]) - before
        switched = switches(s["pid"]) - switched
        if had:
            has = copied(s["metrics"])
            ops = [int(has[2][p] - had[2][p]) for p in has[2]]
            if has[1] > had[1]:
                self.copies[work, server] = (has[0] - had[0]) / (has[1] - had[1])
        # Of calls of 4 KiB, those that came: the client writes a page once that the
        # program wrote twice.
        units = WORK[work][1] == "4 KiB" and sum(ops[:2]) or count
        self.us.setdefault((work, server), []).append(spent / units / 1000)
        self.switched.setdefault((work, server), []).append(switched / units)
        self.calls[work, server] = ops

    def profile(self, server, work):
        out = os.path.join(self.spec["perf"], f"{work}.{server}")
        perf = subprocess.Popen(["perf", "record", "-q", "-e", "cpu-clock", "-F", "5000", "-g",
                                 "-o", out, "-p", str(self.servers[server]["pid"])])
        time.sleep(0.5)
        self.client.do(server, work, self.spec[WORK[work][2]])
        perf.send_signal(signal.SIGINT)
        perf.wait()

    def run(self):
        names = list(self.servers)
        for server in names:  # what comes only the first time
            for work in self.works:
                self.client.do(server, work, 16)
                if self.spec["perf"]:
                    self.profile(server, work)
        for i in range(self.spec["rounds"]):
            for work in self.works:
                for server in names[i % len(names):] + names[:i % len(names)]:
                    self.one(server, work)
        self.client.do("-", "end", 0)

    def show(self):
        names, first = list(self.servers), next(iter(self.servers))
        for work in self.works:
            title, unit, _ = WORK[work]
            print(f"# {title}: us of the server's CPU per {unit}, median (least to most of "
                  f"{self.spec['rounds']}), against {first}; context switches; "
                  "calls of the last round; payload bytes that the daemon copied, of each")
            base = statistics.median(self.us[work, first])
            for server in names:
                us = self.us[work, server]
                line = (f"#   {server:12}{statistics.median(us):9.1f} ({min(us):.1f} to "
                        f"{max(us):.1f})".ljust(50))
                line += (f" {statistics.median(us) / base:6.2f}  switches "
                         f"{statistics.median(self.switched[work, server]):5.2f}")
                if self.calls[work, server]:
                    line += "  READ %d WRITE %d COMMIT %d" % tuple(self.calls[work, server])
                if (work, server) in self.copies:
                    line += f"  copied {self.copies[work, server]:.4f}"
                print(line)


def main():
    shared, path = sys.argv[1:3]
    with open(path, encoding="ascii") as f:
        b = Bench(shared, json.load(f))
    b.run()
    b.show()
    if len(sys.argv) > 3:
        print(json.dumps({f"{w} {s}": v for (w, s), v in b.us.items()}))


if __name__ == "__main__":
    main()
