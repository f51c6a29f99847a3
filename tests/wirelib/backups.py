# SPDX-License-Identifier: Apache-2.0
"""A metadata store that is backed up and put back: what its files hold, and its server's start."""
import contextlib
import json
import os
import signal
import subprocess
import threading

import devtool
from files import content
from harness import *  # noqa: F403
from nfs41 import err
from steps import data_server, settled
from tool import weft_json

WEFT = os.path.join(BUILD, "weft")
MINE = ["mds.lease=20s", "mds.grace=1s", "ds.lease=20s", "mds.backup_log=64M"]


def store(w):
    return os.path.join(w.dir, "mds")


def run(*args, rc=0, **how):
    """What weft prints; where it refuses, the reason."""
    done = subprocess.run([WEFT, *args], capture_output=True, timeout=60, check=False, **how)
    check(done.returncode, rc, f"weft {args}: {done.stdout[-300:]!r} {done.stderr!r}")
    return done.stderr.decode() if rc else done.stdout.decode("utf-8", "replace")


def health(w):
    try:
        at = next(d["admin"] for d in json.loads(w.dev("status", w.dir, "--json"))["daemons"]
                  if d["name"] == "mds")
        return json.loads(devtool.MODULE.ask(at, "/v1/health")[1])
    except Exception as e:  # between the process that makes it whole and the one that serves
        return {"status": repr(e)}


def serving(w):
    eventually(lambda: health(w)["status"] == "ok", 60, "serving")


def graceless(w):
    serving(w)
    eventually(lambda: not weft_json(w, "status")["grace"], 60, "the end of grace")


def stop(w, *how):
    w.dev("kill", w.dir, "mds", *how)


def start_restored(w):
    cluster = devtool.MODULE.Cluster.load(w.dir)
    d = cluster.daemons[0]
    arguments = d.arguments
    d.arguments = lambda: arguments() + ["--restored"]
    cluster.start([d])
    serving(w)
    # weft-dev does not know this process by its arguments.
    with open(os.path.join(w.dir, "run", "mds.pid"), encoding="ascii") as f:
        pid = int(f.read())
    os.kill(pid, signal.SIGTERM)

    def ended():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError), \
                open(f"/proc/{pid}/status", encoding="ascii") as f:
            return "State:\tZ" in f.read()
        return True
    eventually(ended, 60, "its end")


def put(c, d, name, data, **attrs):
    """Writes by the layout, to the data servers."""
    got = c.until(lambda got: err(got.status) not in ("GRACE", "DELAY"), putfh(d),
                  open_(name, BOTH | NO_DELEG, how=UNCHECKED, attrs={"mode": 0o640}), getfh(),
                  tries=300)
    check(err(got.status), "OK")
    s, f = got.results[-2].stateid, got.results[-1].fh
    o = settled(c, f, s)
    check([data_server(c, m[0]).write(m[0].fhs[0], 0, data).status for m in o.mirrors],
          [0] * len(o.mirrors))
    c.ok(putfh(f), layoutreturn(o.stateid))
    c.ok(putfh(f), close(s))
    check(c.attrs(f, "size").size, len(data))
    return f


def some_files(c, d, first, n):
    for i in range(first, first + n):
        put(c, d, f"f{i}", b"%d " % i * (1000 + i))


SEEN = ("type", "mode", "size", "numlinks", "owner", "owner_group", "time_modify", "fileid")


def walk(c, fh, path=""):
    """Everything below: path -> attributes, and what the file holds."""
    out = {}
    for e in sorted(c.readdir_all(fh, ("fileid",)), key=lambda e: e.name):
        name = e.name.decode() if isinstance(e.name, bytes) else e.name
        at = f"{path}/{name}"
        got = c.ok(putfh(fh), lookup(e.name), getfh(), getattr_(*SEEN))
        a, f = got.attrs, got.all[2].fh
        out[at] = [getattr(a, n) for n in SEEN]
        if a.type == 2:
            out |= walk(c, f, at)
        elif a.type == 1:
            out[at] += [content(c, f), c.ok(putfh(f), listxattrs()).names]
    return out


@contextlib.contextmanager
def writing(w):
    """Creates and removes meanwhile, as fast as one client can."""
    c = client()
    d = c.mkdir(c.root(), f"busy{len(CLIENTS)}")
    over, made = threading.Event(), []

    def go():
        while not over.is_set():
            c.open(d, f"f{len(made)}")
            if len(made) % 3 == 2:
                c.ok(putfh(d), remove(f"f{len(made) - 1}"))
            made.append(1)
    t = threading.Thread(target=go)
    t.start()
    try:
        eventually(lambda: len(made) > 20, 60, "files")
        yield made
        n = len(made)
        eventually(lambda: len(made) > n, 60, "one more file")
    finally:
        over.set()
        t.join()
