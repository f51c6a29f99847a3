# SPDX-License-Identifier: Apache-2.0
"""What the project asks of weft's figures. A figure meets its bar when the median does."""
from works import CPU, LATENCY, RATE, RPCS, SHOWN, Spread  # noqa: F401

# What an RPC may cost, in times the floor of an echo: an RPC that reads, and one that changes
# something and makes it durable.
READS, CHANGES = 3.0, 6.0


class Bar:
    def __init__(self, name, value, bound, least=False):
        """value: a Spread, a number or None (not measured). bound: the most it may be, or the
        least; None: for comparison."""
        self.name, self.bound, self.least = name, bound, least
        self.value = value if value is None or isinstance(value, Spread) else Spread([value])

    def met(self):
        if self.value is None or self.bound is None:
            return None
        return self.value.median >= self.bound if self.least else self.value.median <= self.bound

    def row(self):
        asked = "-" if self.bound is None else f"{'>=' if self.least else '<='} {self.bound:g}"
        return (self.name, "not measured" if self.value is None else str(self.value), asked,
                {True: "met", False: "MISSED", None: "-"}[self.met()])

    def json(self):
        return {"bar": self.name, **({} if self.value is None else self.value.json()),
                "bound": self.bound, "least": self.least, "met": self.met()}


def echo(results, work, phase, floor, server="weft"):
    """Cost over that of as many bare messages as the work takes."""
    return results.ratio(work, phase, server, "floor", over=("floor", floor),
                         factor=1 / sum(RPCS[phase]))


def against_peers(results):
    for work, how in (("names", "64 in flight"), ("names-1", "one at a time")):
        for p in ("create", "unlink", "rename"):
            yield Bar(f"durable {SHOWN.get(p, p)}, {how}: of Ganesha VFS",
                      results.ratio(work, p, "weft", "ganesha-vfs"), 0.25)
            yield Bar(f"{SHOWN.get(p, p)} without sync, {how}: of Ganesha VFS",
                      results.ratio(work, p, "weft-nosync", "ganesha-vfs"), None)
        for p in ("stat", "open"):
            yield Bar(f"{SHOWN.get(p, p)}, {how}: of Ganesha MEM",
                      results.ratio(work, p, "weft", "ganesha-mem"), 0.5)
    yield Bar("readdir with attributes, CPU per entry: of Ganesha VFS",
              results.ratio("names", "readdir", "weft", "ganesha-vfs"), 0.25)


def against_echo(results):
    for p in ("stat", "open"):
        yield Bar(f"{SHOWN.get(p, p)}, one at a time: of an echo per RPC",
                  echo(results, "names-1", p, "echo-1"), 1.6)
    for p in ("stat", "open", "create", "rename", "unlink"):
        changes, reads = RPCS[p]
        bound = (changes * CHANGES + reads * READS) / (changes + reads)
        yield Bar(f"{SHOWN.get(p, p)}, 64 in flight: of an echo per RPC",
                  echo(results, "names", p, "echo-64"), bound)
    yield Bar("NULL, 64 in flight: of an echo", echo(results, "null", "null", "echo-64"), None)


def creates(results, fixed):
    rate = results.get("many", "create", "weft", RATE)
    syncs = fixed.get("fdatasync_per_s")
    yield Bar("creates per second, 256 in flight: of one fdatasync each",
              Spread([v / syncs for v in rate.values]) if rate and syncs else None, 10, True)
    yield Bar("the same: of Ganesha VFS, every change synced",
              results.ratio("many", "create", "weft", "ganesha-sync", RATE), None)
    yield Bar("creates, 256 in flight: LMDB's CPU for the same batches, synced, of the "
              "committer's and its checkpoints'", fixed.get("lmdb_share"), 0.6, True)
    yield Bar("the same, with no log and no sync on either side", fixed.get("lmdb_nosync_share"),
              None)
    for p in ("create", "stat", "open", "rename", "unlink"):
        yield Bar(f"{SHOWN.get(p, p)} in a shared directory: of unique ones",
                  results.ratio("shared", p, "weft", "weft", over=("names", p)), 1.2)


def data(results):
    for phase, floor in (("read-1m", "send"), ("write-1m", "receive")):
        for server, how in (("weft", "by layout"), ("weft-path", "by path")):
            yield Bar(f"NFSv3 {phase} {how}: of bare {floor}",
                      results.ratio("nfs3", phase, server, "floor", over=("floor", floor)), 1.3)
    for server, how in (("weft", "by layout"), ("weft-path", "by path")):
        yield Bar(f"NFSv3 4 KiB random read {how}: of Ganesha",
                  results.ratio("nfs3", "randread-4k", server, "ganesha-vfs"), 0.5)


def sizes(fixed):
    yield Bar("bytes for each open file", fixed.get("open_file_bytes"), 2048)
    yield Bar("bytes for each idle client with one slot", fixed.get("idle_client_bytes"), 4096)
    n = fixed.get("entries")
    many = f"{n} " if n else "many "
    for p in ("create", "stat", "unlink"):
        yield Bar(f"{p} in a directory of {many}entries: of one with 1000",
                  fixed.get(f"big_{p}_ratio"), 1.3)
    n = fixed.get("files")
    many = f"{n} " if n else "many "
    yield Bar(f"seconds to start with {many}files", fixed.get("start_s"), 2)
    yield Bar(f"stat with {many}files: of that with 10000", fixed.get("many_stat_ratio"), 1.5)
    yield Bar(f"ms for weft health with {many}files, median", fixed.get("health_ms"), 50)
    yield Bar("the same, the longest of 20", fixed.get("health_most_ms"), None)


def bars(results, fixed):
    return [*against_peers(results), *against_echo(results), *creates(results, fixed),
            *data(results), *sizes(fixed)]
