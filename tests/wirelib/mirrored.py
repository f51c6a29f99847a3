# SPDX-License-Identifier: Apache-2.0
"""Files of several copies that a client writes straight to the data servers."""
import contextlib
import os
import random
import signal
import threading
import time
import uuid

from harness import *  # noqa: F403
from steps import data_server, settled
from files import MB, layout_of
from nfs41 import err

QUICK = ["mds.repair_files=4", "mds.repair_wait=4s", "mds.lease=5s"]


def states(c, f):
    return [o["state"] for m in layout_of(c, f)["mirrors"] for o in m["objects"]]


def servers(c, f):
    return [o["ds"] for m in layout_of(c, f)["mirrors"] for o in m["objects"]]


def whole(c, f):
    return set(states(c, f)) == {"in-sync"}


def bytes_of(w, c, f):
    """What each object holds, from the stores."""
    out = []
    for m in layout_of(c, f)["mirrors"]:
        for o in m["objects"]:
            with open(os.path.join(w.dir, o["ds"], o["object"]), "rb") as p:
                out.append(p.read())
    return out


def equal(w, c, f, want=None):
    got = bytes_of(w, c, f)
    check([g == got[0] for g in got], [True] * len(got), "copies are equal byte for byte")
    if want is not None:
        check(got[0] == want, True, "and hold what was written")


class Wide:
    """A client with a mirrored file, which it writes straight to the data servers."""

    def __init__(self, name, size=3 * MB, policy="mirrors=2"):
        self.c = client()
        self.d = self.c.mkdir(self.c.root(), name)
        self.c.ok(putfh(self.d), setxattr("weft.policy", policy))
        self.s, self.f = self.c.open(self.d, "f")
        self.data = bytearray(random.Random(name).randbytes(size))
        self.open_layout()
        for off in range(0, size, MB):
            check(self.write(off, bytes(self.data[off:off + MB])), [0] * len(self.o.mirrors))

    def open_layout(self):
        self.o = settled(self.c, self.f, self.s)
        self.ds = [data_server(self.c, m[0]) for m in self.o.mirrors]

    def write(self, off, data):
        self.data[off:off + len(data)] = data
        return [ds.write(m[0].fhs[0], off, data).status for ds, m in zip(self.ds, self.o.mirrors)]

    def give_back(self):
        self.c.ok(putfh(self.f), layoutreturn(self.o.stateid))
        for ds in self.ds:
            ds.close()

    def report(self, mirror, status=5, what="WRITE"):
        self.c.ok(putfh(self.f),
                  layouterror(self.o.stateid,
                              [(self.o.mirrors[mirror][0].deviceid, status, NUM[what])]))


def uuid_of(c, f, name):
    return next(uuid.UUID(o["id"]).bytes for m in layout_of(c, f)["mirrors"]
                for o in m["objects"] if o["ds"] == name)


def x_ino(x):
    return layout_of(x.c, x.f)["inode"]


class Writer(threading.Thread):
    """Writes through layouts or the metadata server until the test stops it. x.data has the
    acknowledged writes."""

    def __init__(self, x):
        super().__init__()
        self.x, self.over, self.n, self.why, self.rebuilding = x, False, 0, None, 0

    def one(self, rnd):
        x = self.x
        got = x.c.call(putfh(x.f), layoutget(x.s))
        off, data = rnd.randrange(len(x.data) - 9000), rnd.randbytes(rnd.randrange(1, 9000))
        if got.status:
            if err(got.status) not in ("LAYOUTTRYLATER", "RECALLCONFLICT", "DELAY"):
                self.why = err(got.status)
            time.sleep(0.02)
            return
        x.open_layout()
        results = x.write(off, data)
        self.rebuilding += "rebuilding" in states(x.c, x.f)
        while any(results):  # fenced, or put off: done again under a new layout, as a client does
            x.c.call(putfh(x.f), layoutreturn(x.o.stateid))
            for ds in x.ds:
                ds.close()
            time.sleep(0.05)
            x.open_layout()
            results = x.write(off, data)
        x.give_back()
        self.n += 1

    def run(self):
        rnd = random.Random(7)
        try:
            while not self.over and not self.why:
                self.one(rnd)
        except Exception as e:  # noqa: BLE001
            self.why = e


@contextlib.contextmanager
def stopped(w, name):
    """A data server that does nothing until the end, or until the test calls what this yields."""
    pid = int(open(os.path.join(w.dir, "run", name + ".pid")).read())
    try:
        stand_still(pid)
        yield lambda: os.kill(pid, signal.SIGCONT)
    finally:
        os.kill(pid, signal.SIGCONT)
