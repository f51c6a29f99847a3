"""What the machine itself allows, measured in the same run as the servers: messages over TCP without a server behind, and its memory, disk and LMDB alone."""
import os
import shutil
import subprocess

import peers

PORT = 24049
# name: REQUEST, REPLY (bytes of payload; a message has 128 besides), COUNT for each unit of scale, WINDOW of a connection, connections.
# The sizes of echo are about those of a LOOKUP with attributes and its reply.
MESSAGES = {"echo-64": (72, 172, 4000, 16, 4), "echo-1": (72, 172, 1000, 1, 1), "receive": (1 << 20, 0, 48, 8, 1), "send": (0, 1 << 20, 48, 8, 1),
            "send-4k": (0, 4096, 2000, 16, 1)}


class Floor:
    """Messages: a round of them with each round of the servers."""

    def __init__(self):
        self.program = os.path.join(peers.BUILD, "tests/bench/tcp_floor")
        self.daemon = subprocess.Popen([self.program, "serve", str(PORT)])
        peers.eventually(self.listens, 5, "tcp_floor")

    def call(self, *args):
        return subprocess.Popen([self.program, "call", "127.0.0.1", str(PORT), *map(str, args), "0"], stderr=subprocess.DEVNULL)

    def listens(self):
        return self.call(72, 172, 1, 1).wait() == 0

    def down(self):
        peers.drop([self.daemon])

    def round(self, r, results, scale):
        for name, (request, reply, count, window, conns) in MESSAGES.items():
            n = max(8, int(count * scale / conns))
            before = peers.cpu_ns(self.daemon.pid)
            callers = [self.call(request, reply, n, window) for _ in range(conns)]
            if any([c.wait(peers.LIMIT) for c in callers]):
                raise peers.Trouble(f"tcp_floor: {name}")
            results.add(r, "floor", "floor", {name: {"server_cpu_us_per_op": (peers.cpu_ns(self.daemon.pid) - before) / n / conns / 1000}})


def floor(*args):
    done = subprocess.run([os.path.join(peers.BUILD, "tests/bench/floor"), *map(str, args)], capture_output=True, text=True, timeout=peers.LIMIT, check=False)
    if done.returncode:
        raise peers.Trouble(done.stderr.strip())
    return {name: float(value) for name, value in (line.split() for line in done.stdout.splitlines())}


def machine(folder, seconds):
    """Of its memory, the disk under the folder, and LMDB there; each for so long."""
    folder = os.path.join(folder, "floor")
    os.mkdir(folder)
    out = {**floor("memory"), **floor("disk", folder, seconds), **floor("reads", folder, seconds), **floor("lmdb", os.path.join(folder, "lmdb"), seconds, 64)}
    shutil.rmtree(folder)
    return out


def committer(folder, count):
    """The share of the committer's CPU time that LMDB alone would take for the same batches: creates, 256 in flight, at a weft-mds that writes its batches down, and at
    a plain one whose committer is measured."""
    def creates(name, settings=()):
        weft = peers.Weft(name, name, folder, 25049, settings)
        try:
            before, commits = peers.thread_ns(weft.pid(), "kv-commit"), weft.metric("weft_mds_kv_commits")
            weft.target.bench("md", "--sessions", 16, "--depth", 16, "--count", count, "--phases", "create")
            return (peers.thread_ns(weft.pid(), "kv-commit") - before) / 1000, weft.metric("weft_mds_kv_commits") - commits
        finally:
            weft.down()
    us, commits = creates("plain")
    tree, record = os.path.join(folder, "record"), os.path.join(folder, "record.batches")
    os.mkdir(tree)
    os.symlink(os.path.join(peers.BUILD, "tests/bench/mds_record"), os.path.join(tree, "weft-mds"))
    os.symlink(os.path.join(peers.BUILD, "weft-ds"), os.path.join(tree, "weft-ds"))
    had = {k: os.environ.get(k) for k in ("WEFT_BUILD", "WEFT_RECORD")}
    os.environ.update(WEFT_BUILD=tree, WEFT_RECORD=record)
    try:
        creates("recorded")
    finally:
        for k, v in had.items():
            os.environ.pop(k)
            if v is not None:
                os.environ[k] = v
    replay = floor("replay", record, os.path.join(folder, "replay"))
    shutil.rmtree(os.path.join(folder, "replay"))
    done = count * 16
    return {"committer_us_per_create": us / done, "committer_commits": commits, "lmdb_us_per_create": replay["replay_cpu_us"] / done,
            "lmdb_batches": replay["replay_batches"], "lmdb_share": replay["replay_cpu_us"] / us}
