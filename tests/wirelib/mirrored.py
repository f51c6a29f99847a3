# SPDX-License-Identifier: Apache-2.0
"""Files of several copies that a client writes straight to the data servers."""
import contextlib
import json
import os
import random
import signal
import threading
import time
import uuid

import tap
from harness import *  # noqa: F403
from steps import data_server, settled
from files import MB, layout_of
from nfs41 import err
from tool import weft

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
        # Of a client that a slow machine held up since its write the layout may be revoked.
        gone = err(x.c.call(putfh(x.f), layoutreturn(x.o.stateid)).status)
        if gone not in ("OK", "BAD_STATEID"):
            self.why = gone
        for ds in x.ds:
            ds.close()
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

BLOCK = 4096


class Shared:
    """One client with the file open. It returns its layout at each recall."""

    def __init__(self, f, c=None):
        self.c, self.f = c or client(), f
        got = self.c.until(lambda got: err(got.status) not in ("GRACE", "DELAY"), putfh(f),
                           open_(claim_fh(), BOTH | NO_DELEG), tries=400)
        self.s, self.recalls = got.results[-1].stateid, 0
        self.obey()

    def obey(self):
        def on_callback(name, args):
            if name == "LAYOUTRECALL":
                self.recalls += 1
                threading.Thread(target=self.c.call,
                                 args=(putfh(self.f), layoutreturn(args.stateid)),
                                 daemon=True).start()
            return 0
        self.c.on_callback = on_callback

    def lay(self, iomode=IO_RW):
        self.o = settled(self.c, self.f, self.s, iomode)
        self.ds = [data_server(self.c, m[0]) for m in self.o.mirrors]
        return self

    def first(self):
        """The server that the client reads."""
        return max((m[0] for m in self.o.mirrors), key=lambda ds: ds.efficiency).deviceid

    def write(self, deviceid, off, data):
        at = [m[0].deviceid for m in self.o.mirrors].index(deviceid)
        check(self.ds[at].write(self.o.mirrors[at][0].fhs[0], off, data).status, 0)

    def give_back(self):
        self.c.until(lambda got: err(got.status) != "DELAY", putfh(self.f),
                     layoutreturn(self.o.stateid))
        self.c.ok(putfh(self.f), close(self.s))


def made(name):
    c = client()
    d = c.mkdir(c.root(), name)
    c.ok(putfh(d), setxattr("weft.policy", "mirrors=2"))
    s, f = c.open(d, "f", attrs={"mode": 0o666})
    c.ok(putfh(f), write(s, 0, b"0" * (4 * BLOCK), FILE_SYNC), close(s))
    return f


def two_writers(f):
    """Both clients have a layout to write the file, and the file is marked. While neither has one,
    the server may compare the copies: then the mark goes, and one layout comes without it."""
    a, b = Shared(f).lay(), Shared(f)
    for _ in range(20):
        b.lay()
        before = b.recalls
        a.lay()
        if b.recalls == before:
            return a, b
    raise Failed("two do not get to write the file")


def crossed(w, f, a, b):
    """The copies get the two writes in different orders. Returns what the first copy has."""
    one, two = (uuid_of(a.c, f, s) for s in servers(a.c, f))
    a.write(one, 0, b"a" * BLOCK)
    b.write(one, 0, b"b" * BLOCK)
    b.write(two, 0, b"b" * BLOCK)
    a.write(two, 0, b"a" * BLOCK)
    check(len(set(bytes_of(w, a.c, f))), 2, "the copies differ")
    return b"b" * BLOCK + b"0" * (3 * BLOCK)


def contended(w):
    return w.metric("weft_mds_contended_files")


def compared(w, c, f):
    eventually(lambda: contended(w) == 0 and whole(c, f), 60, "a comparison and a repair")


def object_path(w, c, f, mirror=0, stripe=0):
    o = layout_of(c, f)["mirrors"][mirror]["objects"][stripe]
    return os.path.join(w.dir, o["ds"], o["object"])


def name_of(w, path):
    return os.path.relpath(path, w.dir).split("/")[0]


@contextlib.contextmanager
def without(w, ds):
    """Its daemon has no object open."""
    w.dev("kill", w.dir, ds, "-9")
    yield
    w.dev("start", w.dir, ds)
    eventually(lambda: next(d for d in json.loads(weft(w, "--json", "ds", "list"))["ds"]
                            if d["name"] == ds)["state"] == "alive", 10, f"{ds} is back")

RACKS = {"ds1": "rack=a", "ds2": "rack=a", "ds3": "rack=b", "ds4": "rack=b"}


def racks(w):
    for ds, label in RACKS.items():
        weft(w, "ds", "group", ds, label)


def still(c, f):
    """Nothing is under way, in the API's view and in a client's."""
    j = layout_of(c, f)
    return ({o["state"] for m in j["mirrors"] for o in m["objects"]} == {"in-sync"}
            and not any("leaving" in o or "spare" in m for m in j["mirrors"] for o in m["objects"]))


class Striped(Wide):
    """A file with stripes: a write goes to each copy of each stripe that it covers."""

    def open_layout(self):
        self.o = settled(self.c, self.f, self.s)
        self.at = [[data_server(self.c, o) for o in m] for m in self.o.mirrors]
        self.ds = [ds for m in self.at for ds in m]

    def write(self, off, data):
        self.data[off:off + len(data)] = data
        results = []
        while data:
            n, k = min(len(data), MB - off % MB), off // MB % len(self.at[0])
            results += [self.at[m][k].write(self.o.mirrors[m][k].fhs[0], off, data[:n]).status
                        for m in range(len(self.at))]
            off, data = off + n, data[n:]
        return results


@contextlib.contextmanager
def writing(x):
    """A client writes all the while, and the server refuses none of its writes."""
    t = Writer(x)
    t.start()
    try:
        yield t
    finally:
        t.over = True
        t.join()
    check(t.why, None, "the writer")
    tap.say(f"{t.n} writes beside it")
    check(t.n > 0, True)


class Holder:
    """A client with a mirrored file and a layout of it, which it returns at a recall."""

    def __init__(self, name, iomode=IO_RW, policy="mirrors=2", data=b"x" * 5000):
        self.c = client()
        self.c.on_callback = self.called
        self.d = self.c.mkdir(self.c.root(), name)
        self.c.ok(putfh(self.d), setxattr("weft.policy", policy))
        # A test before this one may have restarted the server.
        got = self.c.until(lambda got: err(got.status) != "GRACE", putfh(self.d),
                           open_("f", BOTH | NO_DELEG, how=UNCHECKED, attrs={"mode": 0o644}),
                           getfh(), tries=200)
        check(err(got.status), "OK")
        self.s, self.f = got.results[-2].stateid, got.results[-1].fh
        self.c.ok(putfh(self.f), write(self.s, 0, data, FILE_SYNC))
        self.names = servers(self.c, self.f)
        self.uuids = [uuid_of(self.c, self.f, n) for n in self.names]
        self.recalls, self.gone = [], []
        self.get(iomode)

    def get(self, iomode=IO_RW):
        self.o = settled(self.c, self.f, self.s, iomode)
        self.named = [m[0].deviceid for m in self.o.mirrors]
        for i in self.named:
            self.c.ok(getdeviceinfo(i))
        return self.named

    def called(self, name, args):
        if name == "LAYOUTRECALL":
            self.recalls.append(time.monotonic())
            threading.Thread(target=self.give_back, args=(args.stateid,), daemon=True).start()
        elif name == "NOTIFY_DEVICEID":
            self.gone.append((args.changes[0][0], args.changes[0][1][4:20]))
        return 0

    def give_back(self, sid):
        self.c.call(putfh(self.f), layoutreturn(sid))


def cross(w, f, a, b):
    """A comparison that began before both clients had the file recalls their layouts. Then cross()
    tries again."""
    for _ in range(20):
        eventually(lambda: whole(a.c, f), 60, "a repair")
        a.lay()
        b.lay()
        a.lay()
        try:
            crossed(w, f, a, b)
        except (Failed, ValueError):
            continue
        if contended(w) and whole(a.c, f):
            return
    raise Failed("two do not get to write the file")


def crossed_writers(w, name):
    """Two clients have the file to write. Its copies differ in the first byte: the first copy has b
    there. Returns (the file, both clients, their servers)."""
    f = made(name)
    a, b = two_writers(f)
    cross(w, f, a, b)
    return f, a, b, servers(a.c, f)


def through(c, f):
    """A byte as the metadata server reads it."""
    got = c.until(lambda got: err(got.status) != "DELAY", putfh(f), read(ANON, 0, 1), tries=600,
                  pause=0.1)
    return got.results[-1].data


def settings_of_two_writers(name):
    calm = ["mds.lease=20s", "ds.lease=60s", "mds.ds_dead=60s", "mds.ds_suspect=50s"]
    return [*calm, "mds.repair_files=4", "mds.recall_deadline=20s", "mds.repair_wait=1s",
            *(["mds.grace=60s"] if "restart" in name else [])]
