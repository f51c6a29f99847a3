# SPDX-License-Identifier: Apache-2.0
"""What side-by-side has its servers do, and the result: figures by work, phase, server and
round, and their ratios."""
import statistics

# RPCs of one piece of work, by phase: those that change something, and others. libweft sends one
# compound for each, and an OPEN has its CLOSE.
RPCS = {"mkdir": (1, 0), "rmdir": (1, 0), "create": (1, 1), "stat": (0, 1), "open": (0, 2),
        "rename": (1, 0), "unlink": (1, 0), "null": (0, 1)}
SHOWN = {"create": "create+close", "open": "open+close", "readdir": "readdir, per entry"}
CPU, LATENCY, RATE = "server_cpu_us_per_op", "p50_us", "ops_per_s"


class Work:
    def __init__(self, name, title, what, count, *args, only=None):
        """count: pieces of a session, for each unit of --scale. only: the servers that do it; None:
        all but ganesha-sync."""
        self.name, self.title, self.what, self.count, self.args, self.only = (
            name, title, what, count, args, only)

    def takes(self, target):
        return target.name in self.only if self.only else target.name != "ganesha-sync"

    def run(self, target, scale):
        size = [] if self.what == "io" else ["--count", max(4, int(self.count * scale))]
        if self.what == "io":
            unit = int(self.args[self.args.index("--size") + 1].replace("k", ""))
            size = ["--file", f"{max(4, int(self.count * scale)) * unit}k"]
        return target.bench(self.what, *size, *self.args)


NAMES = "create,stat,open,readdir,rename,unlink"
WORKS = [
    Work("names", "names, 64 in flight", "md", 100, "--sessions", 4, "--depth", 16, "--phases",
         NAMES),
    Work("names-1", "names, one at a time", "md", 100, "--phases", NAMES),
    Work("many", "names, 256 in flight", "md", 25, "--sessions", 16, "--depth", 16, "--phases",
         "create,rename,unlink",
         only=("weft", "weft-nosync", "ganesha-vfs", "ganesha-sync")),
    Work("shared", "names in one folder, 64 in flight", "md", 100, "--sessions", 4, "--depth", 16,
         "--shared", "--phases", NAMES.replace("readdir,", ""),
         only=("weft", "ganesha-vfs")),
    Work("bulk", "1 MiB, 8 in flight, NFSv4.1 and layouts", "io", 32, "--size", "1024k", "--depth",
         8, "--phases", "write,read,remove"),
    Work("small", "4 KiB at random, 16 in flight, NFSv4.1 and layouts", "io", 1000, "--size", "4k",
         "--depth", 16, "--phases", "randread,remove"),
    Work("null", "NULL calls, 64 in flight", "null", 500, "--sessions", 4, "--depth", 16),
]


class Spread:
    """Median, least and most of the rounds."""

    def __init__(self, values):
        self.values = list(values)
        self.median, self.least, self.most = statistics.median(self.values), min(self.values), max(
            self.values)

    def __str__(self):
        def short(v):
            return f"{v:.3g}" if v < 100 else f"{v:.0f}"
        return f"{short(self.median)} ({short(self.least)}-{short(self.most)})"

    def json(self):
        return {"median": self.median, "min": self.least, "max": self.most}


class Results:
    """Rounds of figures. A ratio is of two figures of the same round."""

    def __init__(self):
        self.figures = {}  # (work, phase, server): a dict of each round's figures, by round

    def add(self, round_, work, server, phases):
        for phase, p in phases.items():
            self.figures.setdefault((work, phase, server), {})[round_] = p

    def phases(self):
        """(work, phase) in the order of their first run."""
        return list(dict.fromkeys((w, p) for w, p, _ in self.figures if p != "remove"))

    def get(self, work, phase, server, figure=CPU):
        rounds = self.figures.get((work, phase, server), {})
        values = [r[figure] for r in rounds.values() if figure in r]
        return Spread(values) if values else None

    def ratio(self, work, phase, server, other, figure=CPU, over=None, factor=1.0):
        """server's figure over other's, and over's work and phase for that where over is given.
        None where one of them was not measured."""
        a = self.figures.get((work, phase, server), {})
        b = self.figures.get((*(over or (work, phase)), other), {})
        values = [a[r][figure] / b[r][figure] * factor for r in a if r in b and b[r].get(figure)
                  and figure in a[r]]
        return Spread(values) if values else None
