#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""instructions.py [BUILD] - instructions and allocations of weft-mds for one stat, beside the
figures that are kept (instructions.base).

Run it in the build tree, as bash tests/netns /usr/bin/python3 .../tests/bench/instructions.py.
BUILD is another build whose weft-mds it measures. weft-mds runs under valgrind's callgrind, on one
thread, with a data server beside it. The figure is what one COMPOUND costs from its first byte to
its reply's (op_dispatch). A stat is SEQUENCE, PUTFH, LOOKUP, GETFH, and GETATTR of what a Linux
client asks for. The cheapest of several turns counts, less an empty turn: work that the server does
by the clock only adds. BIND_CONN_TO_SESSION is the mark between turns. What malloc and free cost is
left out, and their calls are counted instead: they search what was freed before, and that depends
on which threads of the server ran first. So the figure is nearly the same each time, on any
machine, however busy.

The kept figures are for one compiler (gcc's major version and -O2) and say nothing beside another.
They are a bound. A change that makes a stat dearer for a reason writes the new figures down.
"""
import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
SRC = (os.environ.get("top_srcdir")
       or os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
BUILD = os.environ.get("top_builddir") or os.getcwd()
for folder in ("tests/wirelib", "tests/lab"):
    sys.path.insert(0, os.path.join(SRC, folder))
import devtool  # noqa: E402 (after the path)
from nfs41 import (  # noqa: E402
    BOTH, Client, Closed, Conn, bind_conn, getattr_, getfh, lookup, putfh)

STATS, TURNS = 200, 8
DEV = {"mds.threads": 1, "mds.lease": "60s", "mds.grace": "1s", "ds.lease": "60s",
       "mds.ds_dead": "600s", "mds.ds_suspect": "500s"}
ATTRS = ("type", "change", "size", "fsid", "fileid", "mode", "numlinks", "owner", "owner_group",
         "rawdev", "space_used", "time_access", "time_metadata",
         "time_modify", "mounted_on_fileid")
ALLOCATES = ("malloc", "calloc", "realloc", "aligned_alloc", "memalign", "posix_memalign")
ALLOCATOR = (*ALLOCATES, "free", "_int_malloc", "_int_free", "_int_memalign", "_int_realloc",
             "malloc_consolidate", "unlink_chunk.constprop.0", "sysmalloc", "checked_request2size",
             "tcache_init.part.0", "arena_get2.part.0")


def counted(path):
    """(instructions, calls of malloc and its like) of a callgrind's output."""
    names, calls, total, own, fn, callee = {}, 0, 0, 0, None, None
    with open(path, encoding="utf-8", errors="replace") as f:
        for line in f:
            name = re.match(r"(c?)fn=\((\d+)\)(?: (\S+))?", line)
            if name:
                called = names.setdefault(name[2], name[3])
                called = called and re.split("[@']", called)[0]
                fn, callee = (fn, called) if name[1] else (called, None)
            elif line.startswith("calls="):
                if callee in ALLOCATES:
                    calls += int(line[6:].split()[0])
                next(f)  # what the call cost
            elif line.startswith(("summary:", "totals:")):
                total = int(line.split()[1])
            elif fn in ALLOCATOR and line[:1].isdigit():
                own += int(line.split()[1])
    return total - own, calls


def serving(where, mds):
    end = time.monotonic() + 60
    while True:
        if mds.poll() is not None:
            raise AssertionError(f"weft-mds under valgrind ended with status {mds.returncode}")
        with contextlib.suppress(OSError, Closed):
            with contextlib.closing(Conn(where)) as conn:
                conn.rpc(0)
                return
        if time.monotonic() > end:
            raise AssertionError("weft-mds under valgrind does not serve")
        time.sleep(0.1)


def run(build):
    """(instructions, allocations) of each turn of STATS stats, and of each empty one."""
    top = tempfile.mkdtemp(prefix="weft-instructions.")
    cluster, out = os.path.join(top, "c"), os.path.join(top, "out")
    mds = None
    try:
        devtool.command("up", cluster, "--ds", "1",
                        *[a for k, v in DEV.items() for a in ("--set", f"{k}={v}")])
        daemons = {d["name"]: d
                   for d in json.loads(devtool.command("status", cluster, "--json"))["daemons"]}
        where = daemons["mds"]["addr"], daemons["mds"]["port"]
        with open(f"/proc/{daemons['mds']['pid']}/cmdline", "rb") as f:
            args = [os.fsdecode(a) for a in f.read().split(b"\0")[1:-1]]
        with Client(where) as c:
            d = c.mkdir(c.root(), "d")
            for i in range(10):
                c.open(d, f"f{i}", BOTH)
        devtool.command("kill", cluster, "mds")
        with open(os.path.join(top, "valgrind.log"), "w", encoding="ascii") as log:
            mds = subprocess.Popen(["valgrind", "--tool=callgrind", "--toggle-collect=op_dispatch",
                                    "--dump-before=op_bind_conn", f"--callgrind-out-file={out}",
                                    "--compress-pos=no",
                                    os.path.join(build, "weft-mds"), *args], stdout=log, stderr=log,
                                   cwd=cluster)
        serving(where, mds)
        with Client(where) as c:
            d = c.ok(putfh(c.root()), lookup("d"), getfh()).fh
            # nothing looks at the first one, or at what is behind the last mark
            for stats in [STATS] * (1 + TURNS) + [0] * (1 + TURNS):
                c.conn.compound(bind_conn(c.session.sessionid, 1), cred=c.cred)
                for i in range(stats):
                    c.ok(putfh(d), lookup(f"f{i % 10}"), getfh(), getattr_(*ATTRS))
        mds.send_signal(signal.SIGTERM)
        if mds.wait(60):
            raise AssertionError(f"weft-mds ended with status {mds.returncode}")
        mds = None
        turns = [counted(f"{out}.{i}") for i in range(3, 3 + 2 * TURNS)]
        return turns[:TURNS], turns[TURNS:]
    finally:
        if mds:
            mds.kill()
            mds.wait()
        devtool.command("down", cluster)
        shutil.rmtree(top)


def measure(build=BUILD):
    """(instructions, allocations) of one stat."""
    full, empty = ([min(figure) for figure in zip(*turns)] for turns in run(build))
    return tuple((f - e) / STATS for f, e in zip(full, empty))


def kept():
    with open(os.path.join(SRC, "tests/bench/instructions.base"), encoding="ascii") as f:
        return json.load(f)


def made_with(build=BUILD):
    """What the figures depend on: the compiler and its flags; or why they say nothing."""
    with open(os.path.join(build, "config.log"), encoding="utf-8", errors="replace") as f:
        said = dict(re.findall(r"^([A-Z_]+)='(.*)'$", f.read(), re.M))
    version = subprocess.run([*said["CC"].split(), "-dumpversion"], capture_output=True, text=True,
                             check=False).stdout.strip().split(".")[0]
    flags = ([f for f in said["CFLAGS"].split() if not re.fullmatch(r"-g\d?", f)]
             + said.get("SANITIZE_CFLAGS", "").split() + said.get("COUNT_CPPFLAGS", "").split())
    return f"{said['CC'].split()[-1]} {version} {' '.join(flags)}"


def main():
    build = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else BUILD)
    instructions, allocations = measure(build)
    base = kept()
    print(f"a stat: {instructions:.1f} instructions, {allocations:.2f} allocations")
    print(f"kept:   {base['instructions']} instructions, {base['allocations']} allocations "
          f"({base['made_with']})")
    print(f"ratio:  {instructions / base['instructions']:.4f}")


if __name__ == "__main__":
    main()
