# SPDX-License-Identifier: Apache-2.0
"""What the machine itself allows, measured in the same run as the servers: messages over TCP
without a server behind them, and its memory, disk and LMDB alone."""
import os
import shutil
import subprocess

import peers

PORT = 24049
# name: REQUEST, REPLY (bytes of payload; a message has 128 besides), COUNT for each unit of scale,
# WINDOW of a connection, connections. The sizes of echo are about those of a LOOKUP with attributes
# and its reply.
MESSAGES = {"echo-64": (72, 172, 4000, 16, 4), "echo-1": (72, 172, 1000, 1, 1),
            "receive": (1 << 20, 0, 48, 8, 1), "send": (0, 1 << 20, 48, 8, 1),
            "send-4k": (0, 4096, 2000, 16, 1)}


class Floor:
    """Messages: a round of them with each round of the servers."""

    def __init__(self):
        self.program = os.path.join(peers.BUILD, "tests/bench/tcp_floor")
        self.daemon = subprocess.Popen([self.program, "serve", str(PORT)])
        peers.eventually(self.listens, 5, "tcp_floor")

    def call(self, *args):
        return subprocess.Popen([self.program, "call", "127.0.0.1", str(PORT), *map(str, args),
                                 "0"], stderr=subprocess.DEVNULL)

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
            results.add(r, "floor", "floor",
                        {name: {"server_cpu_us_per_op": (peers.cpu_ns(self.daemon.pid) - before) / n
                                / conns / 1000}})


def floor(*args):
    done = subprocess.run([os.path.join(peers.BUILD, "tests/bench/floor"), *map(str, args)],
                          capture_output=True, text=True, timeout=peers.LIMIT, check=False)
    if done.returncode:
        raise peers.Trouble(done.stderr.strip())
    return {name: float(value)
            for name, value in (line.split() for line in done.stdout.splitlines())}


def machine(folder, seconds):
    """Of its memory, of the disk under the folder, and of LMDB there; each for
    this many seconds."""
    folder = os.path.join(folder, "floor")
    os.mkdir(folder)
    out = {**floor("memory"), **floor("disk", folder, seconds), **floor("reads", folder, seconds),
           **floor("lmdb", os.path.join(folder, "lmdb"), seconds, 64)}
    shutil.rmtree(folder)
    return out


# the threads that make commits and write them to the store's own file
STORE = ("kv-commit", "kv-checkpoint")


def store_us(weft):
    return [peers.thread_ns(weft.pid(), name) / 1000 for name in STORE]


def checkpointed(weft):
    """Waits until all commits are in the store's own file. A checkpoint begins 2 s after the first
    commit that no checkpoint has, and the second one from here on began after this call."""
    def made():
        return weft.metric("weft_mds_kv_checkpoints_total")
    before = made()
    try:
        peers.eventually(lambda: made() >= before + 2, 6, "two checkpoints")
    except peers.Trouble:
        pass  # the store commits nothing more


def creates(folder, name, count, settings):
    """256 in flight at a weft-mds of its own: CPU time of the store's threads, commits and
    checkpoints."""
    weft = peers.Weft(name, name, folder, 25049, settings)
    try:
        before, commits, checkpoints = store_us(weft), weft.metric(
            "weft_mds_kv_commits_total"), weft.metric("weft_mds_kv_checkpoints_total")
        weft.target.bench("md", "--sessions", 16, "--depth", 16, "--count", count, "--phases",
                          "create")
        if not settings:
            checkpointed(weft)
        commits = weft.metric("weft_mds_kv_commits_total") - commits
        us = [after - b for after, b in zip(store_us(weft), before)]
        return us, commits, weft.metric("weft_mds_kv_checkpoints_total") - checkpoints
    finally:
        weft.down()


def recorded(folder, name, count, settings):
    """The file with the batches of a weft-mds that records them."""
    tree, record = os.path.join(folder, name), os.path.join(folder, name + ".batches")
    os.mkdir(tree)
    os.symlink(os.path.join(peers.BUILD, "tests/bench/mds_record"), os.path.join(tree, "weft-mds"))
    os.symlink(os.path.join(peers.BUILD, "weft-ds"), os.path.join(tree, "weft-ds"))
    had = {k: os.environ.get(k) for k in ("WEFT_BUILD", "WEFT_RECORD")}
    os.environ.update(WEFT_BUILD=tree, WEFT_RECORD=record)
    try:
        creates(folder, name + ".weft", count, settings)
    finally:
        for k, v in had.items():
            os.environ.pop(k)
            if v is not None:
                os.environ[k] = v
    return record


def replayed(folder, name, count, settings, *how):
    """CPU time of LMDB alone for the batches of such a weft-mds, the number of batches, and how
    many of them were synced."""
    record, store = recorded(folder, name, count, settings), os.path.join(folder, name + ".lmdb")
    got = floor("replay", record, store, *how)
    shutil.rmtree(store)
    os.unlink(record)
    return got


def committer(folder, count):
    """LMDB alone over weft's store, for the CPU time of the same batches: creates, 256 in flight.
    Durable: LMDB syncs each batch. weft logs it (kv-commit) and writes pages at checkpoints
    (kv-checkpoint), and the time of all checkpoints counts, the last one included. Then with
    neither log nor sync on either side, which leaves LMDB's own work and weft's mutations."""
    nosync = ["mds.sync=false"]
    (commit, checkpoint), commits, checkpoints = creates(folder, "plain", count, [])
    (bare, none), bare_commits, _ = creates(folder, "plain-nosync", count, nosync)
    if not checkpoints or none:
        raise peers.Trouble(f"the committer: {checkpoints} checkpoints, and {none} us of them "
                            "without a log")
    durable, quick = replayed(folder, "record", count,
                              []), replayed(folder, "record-nosync", count, nosync, "nosync")
    done = count * 16
    return {"committer_us_per_create": commit / done, "checkpoint_us_per_create": checkpoint / done,
            "committer_commits": commits,
            "committer_checkpoints": checkpoints,
            "lmdb_us_per_create": durable["replay_cpu_us"] / done,
            "lmdb_batches": durable["replay_batches"], "lmdb_syncs": durable["replay_syncs"],
            "lmdb_share": durable["replay_cpu_us"] / (commit + checkpoint),
            "committer_nosync_us_per_create": bare / done,
            "lmdb_nosync_us_per_create": quick["replay_cpu_us"] / done,
            "committer_nosync_commits": bare_commits,
            "lmdb_nosync_batches": quick["replay_batches"],
            "lmdb_nosync_syncs": quick["replay_syncs"],
            "lmdb_nosync_share": quick["replay_cpu_us"] / bare}
