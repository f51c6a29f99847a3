#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Placement: threads, memory and connections follow a recorded machine of two nodes, each with one
processor that this machine has as well. Also the order of the addresses that clients get, and
settings made by hand. Prints TAP."""
import contextlib
import os
import re
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../wirelib"))
import harness  # noqa: E402
import tap  # noqa: E402
from harness import *  # noqa: E402,F403
from steps import device, one_server  # noqa: E402
from tap import SRC  # noqa: E402

TREE = os.path.join(SRC, "tests/topo/two-nodes.topo")
PORT = 12070
NEAR0, NEAR1 = f"127.0.0.10:{PORT}", f"127.0.0.11:{PORT}"
TWO = (f"ds.topology={TREE}", "ds.threads=2", "ds.pool=32M", f"ds.listen={NEAR0},{NEAR1}",
       "ds.advertise=")
MIB = 1 << 20


class Placed:
    """The cluster's data server, started by hand with other settings."""

    def __init__(self, cluster, words, settings, cpus):
        self.log = os.path.join(cluster.top, "placed.log")
        args = [a for s in settings for a in ("-o", s)]
        before = os.sched_getaffinity(0)
        os.sched_setaffinity(0, cpus or before)
        try:
            with open(self.log, "w", encoding="utf-8") as f:
                self.child = subprocess.Popen([os.path.join(BUILD, "weft-ds"), *words, *args],
                                              stderr=f)
        finally:
            os.sched_setaffinity(0, before)

    def text(self):
        with open(self.log, encoding="utf-8") as f:
            return f.read()

    def tasks(self):
        """(thread's name, processors it may run on, times it slept) by thread id."""
        got = {}
        for tid in os.listdir(f"/proc/{self.child.pid}/task"):
            with contextlib.suppress(FileNotFoundError), open(
                    f"/proc/{self.child.pid}/task/{tid}/status", encoding="utf-8") as f:
                s = dict(line.rstrip("\n").split(":\t", 1) for line in f if ":\t" in line)
                got[int(tid)] = s["Name"], s["Cpus_allowed_list"], int(s["voluntary_ctxt_switches"])
        return got

    def cpus(self, name):
        return sorted(c for n, c, _ in self.tasks().values() if n == name)

    def workers(self):
        """Where the store's threads may run."""
        return {c for tid, (n, c, _) in self.tasks().items() if n == "weft-ds"
                and tid != self.child.pid}

    def slept(self, name):
        return next(s for n, _, s in self.tasks().values() if n == name)


@contextlib.contextmanager
def placed(*settings, cpus=None):
    w = harness.THE
    rows = json.loads(w.dev("status", w.dir, "--json"))["daemons"]
    pid = next(r["pid"] for r in rows if r["name"] == "ds1")
    with open(f"/proc/{pid}/cmdline", "rb") as f:
        words = [os.fsdecode(x) for x in f.read().split(b"\0")[1:-1]]
    w.dev("kill", w.dir, "ds1", "-9")
    p = Placed(w, words, settings, cpus)
    try:
        eventually(lambda: "joined as data server" in p.text() or p.child.poll() is not None, 20,
                   "joining")
        check(p.child.poll(), None, p.text())
        eventually(lambda: w.metric("weft_ds_lease_seconds", "ds1") > 0, 20, "the lease")
        yield p
        p.child.send_signal(signal.SIGTERM)
        check(p.child.wait(20), 0, p.text())
    finally:
        if p.child.poll() is None:
            p.child.kill()
            p.child.wait()
        w.dev("start", w.dir, "ds1")


def nodes(name="weft_pool_node_bytes"):
    """The metric's sum for each node."""
    got = {}
    for label, value in re.findall(rf'^{name}\{{node="([^"]+)"[^}}]*\}} (\S+)',
                                   metric.fetch(harness.THE.where["ds1"]), re.M):
        got[label] = got.get(label, 0) + int(float(value))
    return got


def settled():
    """Waits until all others that connect, as the metadata server does, have connected."""
    before, since = nodes("weft_ds_node_connections_total"), time.monotonic()
    while time.monotonic() < since + 1:
        time.sleep(0.1)
        now = nodes("weft_ds_node_connections_total")
        if now != before:
            before, since = now, time.monotonic()


def counter(name):
    return int(harness.THE.metric(re.escape(name), "ds1"))


def has_both():
    return (None if {0, 1} <= os.sched_getaffinity(0) else "this machine's processors are not "
            "0 and 1")


def told(c):
    """What GETDEVICEINFO says of the one data server."""
    _, _, o, ds, _ = one_server(c, c.root(), f"told{time.monotonic_ns()}")
    ds.close()
    return [a for _, a in device(c, o.mirrors[0][0].deviceid).addrs]


def dotted(addr):
    host, port = addr.split(":")
    return f"{host}.{int(port) >> 8}.{int(port) & 255}"


def test_threads_and_memory_are_of_the_nodes(_):
    if has_both():
        return has_both()
    with placed(*TWO, "ds.disks=nvme1n1") as p:
        log = p.text()
        # The node with the drive is first.
        check("placement: NUMA node 1: threads 0 on processors 1; "
              "1 stores and 1 addresses are near it\n" in log, True, log)
        check("placement: NUMA node 0: threads 1 on processors 0; "
              "0 stores and 1 addresses are near it\n" in log, True, log)
        check((p.cpus("weft-loop-0"), p.cpus("weft-loop-1")), (["1"], ["0"]))
        check(p.tasks()[p.child.pid][1], "0-1", "the main thread")
        check(p.workers(), {"1"}, str(p.tasks()))
        check(nodes(), {"0": 16 * MIB, "1": 16 * MIB})
        check(log.count("cannot get memory of NUMA node") <= 1, True, log)
        # Each ring has its own node's.
        with open(f"/proc/{p.child.pid}/status", encoding="utf-8") as f:
            pinned = int(re.search(r"VmPin:\s+(\d+) kB", f.read())[1])
        check(pinned in (0, 32 << 10), True, f"{pinned} KiB are pinned")
    with placed(*TWO, "ds.disks=nvme0n1") as p:
        check((p.cpus("weft-loop-0"), p.cpus("weft-loop-1")), (["0"], ["1"]))
        check(p.workers(), {"0"}, str(p.tasks()))
    return None


def test_each_address_is_served_by_its_node(_):
    if has_both():
        return has_both()
    names = ("weft_ds_disk_io_total{path=\"direct\"}", "weft_ds_fixed_io_total",
             "weft_pool_borrowed_total")
    with placed(*TWO, "ds.disks=nvme1n1") as p:
        c = client()
        _, _, o, ds, fh = one_server(c, c.root(), "both")
        ds.close()
        server = o.mirrors[0][0]
        cred = auth_sys(int(server.user), int(server.group))
        settled()
        for host, loop, other in (("127.0.0.10", "weft-loop-1", "weft-loop-0"),
                                  ("127.0.0.11", "weft-loop-0", "weft-loop-1")):
            node = "0" if host == "127.0.0.10" else "1"
            conns, before = nodes("weft_ds_node_connections_total"), [counter(n) for n in names]
            mine, others = p.slept(loop), p.slept(other)
            for k in range(3):
                ds = DataServer((host, PORT), cred)
                data = os.urandom(MIB)
                for i in range(4):
                    check(ds.write(fh, (k * 4 + i) * MIB, data, UNSTABLE).status, 0)
                    check(ds.read(fh, (k * 4 + i) * MIB, MIB).data == data, True)
                check(ds.commit(fh).status, 0)
                ds.close()
            after = nodes("weft_ds_node_connections_total")
            check({n: after[n] - conns[n] for n in after},
                  {"0": 3 if node == "0" else 0, "1": 3 if node == "1" else 0})
            mine, others = p.slept(loop) - mine, p.slept(other) - others
            # Both wake up now and then by the clock, on a slow machine as often as for the calls.
            check(mine - others > 20, True,
                  f"{loop} slept {mine} times, {other} {others}")
            direct, fixed, borrowed = [counter(n) - b for n, b in zip(names, before)]
            if direct:  # else the file system has no direct I/O
                # The first write of each connection came with a header that the server
                # did not expect.
                check(fixed >= 21, True,
                      f"{fixed} of {direct} from memory that the thread's ring has")
            check(borrowed, 0, "blocks of the other node")
    return None


def test_addresses_are_told_in_the_order_that_suits_the_drive(_):
    for settings, want in ((["ds.disks=nvme1n1"], [NEAR1, NEAR0]),
                           (["ds.disks=nvme0n1"], [NEAR0, NEAR1]),
                           (["ds.disks=nvme1n1", "ds.order=config"], [NEAR0, NEAR1]),
                           ([], [NEAR0, NEAR1]),
                           (["ds.disks=nvme0n1", f"ds.advertise={NEAR1},{NEAR0}"], [NEAR0, NEAR1]),
                           (["ds.disks=nvme1n1", "ds.placement=off"], [NEAR1, NEAR0])):
        with placed(*TWO, *settings):
            check(told(client()), [dotted(a) for a in want], str(settings))


def test_an_affinity_is_never_widened(_):
    if has_both():
        return has_both()
    with placed(*TWO, "ds.disks=nvme1n1", cpus={0}) as p:
        check({c for _, c, _ in p.tasks().values()}, {"0"}, str(p.tasks()))
        check("placement: threads 0-1 on any of the processors 0, "
              "NUMA nodes are not distinguished\n" in p.text(), True, p.text())
        check(nodes(), {"0": 32 * MIB})
    return None


def test_processors_by_hand(_):
    if has_both():
        return has_both()
    with placed(*TWO, "ds.disks=nvme1n1", "ds.cpus=1") as p:
        check({c for _, c, _ in p.tasks().values()}, {"1"}, str(p.tasks()))
        check(nodes(), {"1": 32 * MIB})
    with placed(*TWO, "ds.disks=nvme1n1", "ds.placement=off") as p:
        check({c for n, c, _ in p.tasks().values() if not n.startswith("iou-")}, {"0-1"},
              str(p.tasks()))
        check(sum(nodes().values()), 32 * MIB)
        check(list(nodes("weft_ds_node_connections_total")), ["any"])
    return None


def test_on_a_machine_of_one_node_nothing_is_bound(_):
    """This machine, or the virtual machine of the recordings."""
    tree = os.path.join(SRC, "tests/topo/vm.topo")
    with open("/proc/self/status", encoding="utf-8") as f:
        mine = re.search(r"Cpus_allowed_list:\t(\S+)", f.read())[1]
    with placed(f"ds.topology={tree}", "ds.threads=2", "ds.pool=32M", f"ds.listen={NEAR0}",
                "ds.advertise=") as p:
        check({c for n, c, _ in p.tasks().values() if not n.startswith("iou-")}, {mine},
              str(p.tasks()))
        check("nodes are not distinguished" in p.text(), True, p.text())
        check((sum(nodes().values()), counter("weft_pool_borrowed_total")), (32 * MIB, 0))
        got = nodes("weft_ds_node_connections_total")
        check(list(got), ["any"])
        for host in range(4):
            DataServer(("127.0.0.10", PORT)).close()
        eventually(lambda: sum(nodes("weft_ds_node_connections_total").values()) >= 4 + got["any"],
                   5, "connections")


def daemon(*args):
    return subprocess.run([os.path.join(BUILD, "weft-ds"), *args], capture_output=True, text=True,
                          timeout=60, check=False)


def test_what_makes_no_sense_is_refused_with_one_line(_):
    for settings, want in ((["ds.cpus=0-x"],
                            'ds.cpus: "0-x" is not a list of processors such as 0-7,16-23'),
                           (["ds.cpus=0,1000"], 'ds.cpus: "0,1000": the daemon may only use '),
                           (["ds.disks=sdz"], 'ds.disks: no such block device: "sdz"'),
                           (["ds.disks=nvme0n1,nvme1n1"],
                            "ds.disks: names 2 block devices, but ds.store names 1 folders"),
                           (["ds.topology=/nowhere"],
                            "ds.topology: /nowhere: No such file or directory"),
                           (["ds.placement=yes"],
                            'ds.placement: expected one of auto|off, got "yes"'),
                           (["ds.order=best"],
                            'ds.order: expected one of topology|config, got "best"'),
                           (["ds.threads=2", "ds.rdma=127.0.0.10", "ds.pool=16M",
                             f"ds.listen={NEAR0},{NEAR1}"],
                            "ds.pool: RDMA needs at least 16 MiB for each NUMA node with threads; "
                            "there are 2 such nodes")):
        if "ds.rdma=127.0.0.10" in settings and has_both():
            continue
        done = daemon("--check", "-o", "ds.store=/tmp/none",
                      *[a for s in [f"ds.topology={TREE}", *settings] for a in ("-o", s)])
        check((done.returncode, done.stderr.count("\n"),
               done.stderr.startswith("ERROR weft-ds: " + want)), (2, 1, True), done.stderr)


PLAN = """\
NODE  THREADS    BOUND    PROCESSORS
1     0,2        yes      48-95,144-191
0     1,3        yes      0-47,96-143

NODE  DRIVES     STORE
1     nvme7      /srv/a

NODE  THREADS    CLASS    ADDRESS
1     0,2        NODE     10.1.0.12
0     1,3        SYS      fd00:1::11
0     1,3        SYS      10.2.0.11
-     0-3        -        10.9.9.9
"""


def test_the_plan_for_another_machine_is_shown(_):
    tree = os.path.join(SRC, "tests/topo/two-sockets.topo")
    done = daemon("--plan", "-o", f"ds.topology={tree}", "-o", "ds.store=/srv/a", "-o",
                  "ds.disks=nvme7n1", "-o", "ds.threads=4", "-o",
                  "ds.listen=[fd00:1::11],10.9.9.9,10.1.0.12,10.1.0.12:99", "-o",
                  "ds.rdma=10.2.0.11,0.0.0.0:99")
    check((done.returncode, done.stdout, done.stderr), (0, PLAN, ""))
    # Of several stores the sum counts.
    for drives, want in (("nvme1n1,nvme2n1,nvme7n1", ["10.1.0.11", "10.1.0.12"]),
                         ("nvme1n1,nvme5n1,nvme7n1", ["10.1.0.12", "10.1.0.11"])):
        done = daemon("--plan", "-o", f"ds.topology={tree}", "-o", "ds.store=/srv/a, /srv/b,/srv/c",
                      "-o", f"ds.disks={drives}", "-o", "ds.listen=10.1.0.11,10.1.0.12")
        check((done.returncode, [line.split()[-1] for line in done.stdout.splitlines()[-2:]]),
              (0, want), done.stderr)


def before():
    if not harness.THE:
        harness.THE = Cluster(ds=1)
    return harness.THE


def after(_):
    for one in harness.CLIENTS:
        one.drop()
    harness.CLIENTS.clear()


if __name__ == "__main__":
    try:
        tap.main(globals(), before, after)
    finally:
        if harness.THE:
            harness.THE.down()
