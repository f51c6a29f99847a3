#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Any NFSv3 server as a data server (docs/generic.md). Here it is a weft-ds that exports a folder.
Prints TAP."""
import contextlib
import os
import signal
import stat
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../wirelib"))
import harness  # noqa: E402
import nfs3  # noqa: E402
import tap  # noqa: E402
from harness import *  # noqa: E402,F403
from steps import data_server, lay, one_server  # noqa: E402
from tool import log_of, rows, weft  # noqa: E402
from files import layout_of  # noqa: E402
from nfs41 import err  # noqa: E402

POOL = 8
LATE_PORT = 904
FIRST = 0x40000000


class World:
    """A cluster with one data server of ours and one that is any NFSv3 server. Files of /g are on
    the latter."""

    def __init__(self):
        self.foreign = nfs3.Server(mds="127.0.0.1:9")
        try:
            self.w = harness.Cluster(1, [f"mds.generic_pool={POOL}"])
        except BaseException:
            self.foreign.stop()
            raise
        self.dir = self.w.dir

    def url(self, path="exp"):
        return f"nfs3://127.0.0.1:{nfs3.PORT}{self.foreign.path(path)}"

    def add(self, path="exp", *more, rc=0):
        return weft(self.w, "ds", "add", self.url(path), f"mount-port={nfs3.PORT}", *more, rc=rc)

    def ready(self, name="any"):
        made = lambda: sum(  # noqa: E731
            stat.S_IMODE(st.st_mode) == 0o640 for _, st in self.files())
        eventually(lambda: rows(self.w)[name]["alive"] and made() >= POOL
                   and made() == len(self.files()), 20, "it lives, and files are made ahead")
        return self

    def files(self):
        """What is on the server: (path, stat)."""
        return [(p, os.stat(p)) for top, _, names in os.walk(self.foreign.path("exp"))
                for p in (os.path.join(top, n) for n in names)]

    def owned(self, server):
        """The files that the holder of this layout may write."""
        return [p for p, st in self.files()
                if (st.st_uid, st.st_gid) == (int(server.user), int(server.group))]

    def down(self):
        self.w.down()
        self.foreign.stop()


def begin(w):
    """A client, and a directory on the generic server."""
    w.add("exp", "name=any")
    w.ready()
    c = client()
    d = folder(c)
    # The server takes them once their handles are recorded.
    got = c.until(lambda got: err(got.status) != "DELAY", putfh(d),
                  open_(claim_null("first"), BOTH | NO_DELEG, how=UNCHECKED), tries=100)
    check(err(got.status), "OK")
    return c, d


def folder(c):
    d = c.mkdir(c.root(), "g")
    c.ok(putfh(d), setxattr("weft.policy", "group=kind=nfs3"))
    return d


def gone(status):
    return nfs3.ERRORS.get(status, status)


# ---- adding one


def test_it_is_taken_in_and_shown(w):
    w.add("exp", "name=any", "rdma=20049")
    row = rows(w.w)["any"]
    check((row["kind"], row["labels"], rows(w.w)["ds1"]["kind"]),
          ("nfs3", {"kind": "nfs3"}, "weft"))
    check(sorted(row["addr"]), sorted([f"127.0.0.1:{nfs3.PORT}", "127.0.0.1:20049"]))
    w.ready()
    row = rows(w.w)["any"]
    st = os.statvfs(w.foreign.path("exp"))
    check((row["capacity"], row["max_read"] >= 65536, row["max_write"] >= 65536),
          (st.f_blocks * st.f_frsize, True, True))
    for p, st in w.files():
        check((stat.S_IMODE(st.st_mode), st.st_size, st.st_mtime, st.st_uid >= FIRST,
               st.st_gid >= FIRST), (0o640, 0, 0, True, True), p)
    check(len({st.st_uid for p, st in w.files()}), len(w.files()), "owners")
    check("already" in w.add("exp", "name=again", rc=1), True)
    w.w.restart()
    eventually(lambda: rows(w.w)["any"]["alive"], 10, "it lives after a restart")


def test_what_is_wrong_with_it_is_said(w):
    check("no_root_squash" in w.add("squash", rc=1), True, "root is squashed")
    check("no_root_squash" in w.add("all", rc=1), True, "all are squashed")
    check("Read-only" in w.add("ro", rc=1), True, "read-only")
    check("MOUNT" in w.add("nowhere", rc=1), True, "no such export")
    check("rpcbind" in weft(w.w, "ds", "add", w.url(), rc=1), True, "no rpcbind")
    for url, word in (("nfs://h/p", "nfs3://"), ("nfs3://h", "nfs3://"), ("nfs3://:1/p", "nfs3://"),
                      ("nfs3://[::1/p", "nfs3://"), ("nfs3://127.0.0.1:x/p", "port"),
                      ("nfs3://127.0.0.1:70000/p", "port")):
        check(word in weft(w.w, "ds", "add", url, rc=1), True, url)
    for option in ("mount-port=0", "rdma=x", "handle=abc", "name=a\"b", "speed=1", "nonsense"):
        check("expected" in w.add("exp", option, rc=1), True, option)
    check(list(rows(w.w)), ["ds1"])
    check(os.listdir(w.foreign.path("exp")) + os.listdir(w.foreign.path("all")), [], "what is left")


def test_by_a_handle_without_mount(w):
    v3 = nfs3.V3(nfs3.ADDR)
    status, fh, _ = v3.mnt(w.foreign.path("exp"))
    check(status, 0)
    weft(w.w, "ds", "add", w.url(), f"handle={fh.hex()}", "name=any")
    w.ready()


# ---- files


def test_data_is_read_and_written_with_synthetic_owners(w):
    c, d = begin(w)
    s, f, o, ds, fh = one_server(c, d)
    server = o.mirrors[0][0]
    check([x["ds"] for x in layout_of(c, f)["mirrors"][0]["objects"]], ["any"])
    check((int(server.user) >= FIRST, int(server.group) >= FIRST), (True, True))
    check(gone(ds.write(fh, 0, b"hello generic", FILE_SYNC).status), "OK")
    check(ds.read(fh, 0, 100).data, b"hello generic")
    path, = w.owned(server)
    with open(path, "rb") as p:
        check(p.read(), b"hello generic")
    # other users may not
    other = DataServer(nfs3.ADDR, auth_sys(1000, 1000))
    check((gone(other.read(fh, 0, 5).status), gone(other.write(fh, 0, b"x").status)),
          ("ACCES", "ACCES"))
    # through the MDS
    check(c.attrs(f, "size").size, 13)
    check(c.ok(putfh(f), read(s, 0, 100)).data, b"hello generic")
    c.ok(putfh(f), write(s, 6, b"GENERIC", FILE_SYNC))
    check(ds.read(fh, 0, 100).data, b"hello GENERIC")


def test_a_layout_for_reading_does_not_write(w):
    c, d = begin(w)
    s, f, o, ds, fh = one_server(c, d)
    ds.write(fh, 0, b"data", FILE_SYNC)
    two = client()
    s2, f2 = two.open(d, "f", acc=READ | NO_DELEG)
    server = lay(two, f2, s2, IO_READ).mirrors[0][0]
    reader = data_server(two, server)
    check((reader.read(fh, 0, 4).data, gone(reader.write(fh, 0, b"x").status)), (b"data", "ACCES"))


def test_size_change_and_times_follow_what_is_written(w):
    c, d = begin(w)
    s, f = c.open(d, "f")
    c.ok(putfh(f), setattr_(s, time_modify_set=(1000, 5)))
    before = c.attrs(f, "change", "time_modify", "size")
    o = lay(c, f, s)
    check(c.attrs(f, "time_modify").time_modify, before.time_modify, "nobody wrote")
    server = o.mirrors[0][0]
    ds, fh = data_server(c, server), server.fhs[0]
    ds.write(fh, 1 << 20, b"end", FILE_SYNC)
    now = c.attrs(f, "change", "time_modify", "size", "space_used")
    check((now.size, now.change > before.change, now.time_modify > before.time_modify),
          ((1 << 20) + 3, True, True))
    check(now.space_used < 1 << 20, True, "sparse")
    time.sleep(0.02)
    ds.write(fh, 0, b"x", FILE_SYNC)
    check(c.attrs(f, "change").change > now.change, True, "a write that does not grow it counts")
    c.ok(putfh(f), layoutreturn(o.stateid))
    check(c.attrs(f, "size").size, (1 << 20) + 3)


def test_a_size_is_set(w):
    c, d = begin(w)
    s, f, o, ds, fh = one_server(c, d)
    ds.write(fh, 0, b"0123456789", FILE_SYNC)
    c.ok(putfh(f), layoutreturn(o.stateid))
    two = client()
    s2, f2 = two.open(d, "f")
    check(two.attrs(f2, "size").size, 10)
    two.until(lambda got: err(got.status) != "DELAY", putfh(f2),
              setattr_(s2, size=4, time_modify_set=(2000, 7)))
    check((two.attrs(f2, "size").size, two.ok(putfh(f2), read(s2, 0, 10)).data), (4, b"0123"))
    server = lay(two, f2, s2).mirrors[0][0]
    check(two.attrs(f2, "time_modify").time_modify, (2000, 7), "a size that is set is no write")
    path, = w.owned(server)
    check(os.stat(path).st_size, 4)
    two.ok(putfh(f2), setattr_(s2, size=100000))
    check((os.stat(path).st_size, two.ok(putfh(f2), read(s2, 99990, 100)).data),
          (100000, bytes(10)))


def test_a_size_is_set_once_also_over_a_crash(w):
    """The order is done but still in the store when the server dies. It must not cut what a client
    has written since."""
    c, d = begin(w)
    s, f, o, ds, fh = one_server(c, d)
    ds.write(fh, 0, b"0123456789", FILE_SYNC)
    c.ok(putfh(f), layoutreturn(o.stateid))
    c.ok(putfh(f), setattr_(s, size=4))
    server = lay(c, f, s).mirrors[0][0]
    wrote = DataServer(nfs3.ADDR, auth_sys(int(server.user), int(server.group))).write(
        fh, 0, b"ABCDEFGH", FILE_SYNC)
    w.w.dev("kill", w.dir, "mds", "-9")
    check(gone(wrote.status), "OK")
    w.w.dev("start", w.dir, "mds")
    eventually(lambda: rows(w.w)["any"]["alive"], 10, "it lives after a restart")
    c = client()
    f = c.until(lambda got: not got.status, putrootfh(), lookup("g"), lookup("f"), getfh(),
                tries=100).results[-1].fh
    check(c.attrs(f, "size").size, 8)
    got = c.until(lambda got: err(got.status) not in ("DELAY", "GRACE"), putfh(f),
                  read(ANON, 0, 100), tries=100)
    check(got.results[-1].data, b"ABCDEFGH")


def test_removal_frees_the_file(w):
    c, d = begin(w)
    s, f, o, ds, fh = one_server(c, d)
    ds.write(fh, 0, b"x", FILE_SYNC)
    path, = w.owned(o.mirrors[0][0])
    c.ok(putfh(f), layoutreturn(o.stateid), close(s))
    c.ok(putfh(d), remove("f"))
    eventually(lambda: not os.path.exists(path), 10, "the object goes")
    check(gone(ds.write(fh, 0, b"y").status), "STALE")


def test_the_pool_is_filled_again(w):
    c, d = begin(w)
    for n in range(3 * POOL):
        got = c.until(lambda got: err(got.status) != "DELAY", putfh(d),
                      open_(claim_null(f"f{n}"), BOTH | NO_DELEG, how=UNCHECKED), getfh(),
                      tries=100)
        check(err(got.status), "OK", n)
    eventually(lambda: len(w.files()) >= 4 * POOL - POOL // 2, 10, "files are made ahead again")
    w.w.restart()
    c = client()
    c.reclaim = None
    eventually(lambda: rows(w.w)["any"]["alive"], 10, "it lives after a restart")


def test_a_file_that_a_late_call_may_empty_is_nobodys(w):
    c, d = begin(w)
    number = lambda p: int(os.path.basename(p), 16)  # noqa: E731
    complete = lambda: {  # noqa: E731
        number(p) for p, st in w.files() if stat.S_IMODE(st.st_mode) == 0o640}
    last = max(complete())
    stand_still(w.foreign.child.pid)
    try:
        for n in range(POOL // 2 + 1):
            c.ok(putfh(d), open_(claim_null(f"f{n}"), BOTH | NO_DELEG, how=UNCHECKED), getfh())
        time.sleep(6.5)  # the server gives up the calls that make others
    finally:
        os.kill(w.foreign.child.pid, signal.SIGCONT)
    eventually(lambda: len(complete()) >= POOL + POOL // 2 + 1, 20, "files are made ahead again")
    check(min(n for n in complete() if n > last) > last + POOL // 2, True,
          "under names that no call of before is about")
    # After a restart the server uses them when it fills the pool next.
    w.w.restart()
    c.close()
    eventually(lambda: rows(w.w)["any"]["alive"], 10, "it lives after a restart")
    c = client()
    for n in range(POOL):
        got = c.until(lambda got: err(got.status) not in ("DELAY", "GRACE"), putfh(d),
                      open_(claim_null(f"again{n}"), BOTH | NO_DELEG, how=UNCHECKED), tries=100)
        check(err(got.status), "OK", n)
    eventually(lambda: any(last < n <= last + POOL // 2 for n in complete()), 10,
               "what was doubtful is made")


# ---- fencing


def test_a_fence_changes_the_owner(w):
    c, d = begin(w)
    s, f, o, ds, fh = one_server(c, d)
    server = o.mirrors[0][0]
    check(gone(ds.write(fh, 0, b"one", FILE_SYNC).status), "OK")
    c.on_callback = lambda name, args: None  # it keeps its layout
    two = client()
    s2, f2 = two.open(d, "f")
    two.until(lambda got: err(got.status) != "DELAY", putfh(f2), setattr_(s2, size=1), tries=100)
    check((gone(ds.write(fh, 0, b"two", FILE_SYNC).status), gone(ds.read(fh, 0, 3).status)),
          ("ACCES", "ACCES"))
    now = lay(two, f2, s2).mirrors[0][0]
    check((now.user != server.user, now.group != server.group, now.fhs), (True, True, server.fhs))
    check(gone(data_server(two, now).write(fh, 1, b"2", FILE_SYNC).status), "OK")
    check(two.ok(putfh(f2), read(s2, 0, 10)).data, b"o2")


def test_who_is_evicted_does_not_write(w):
    c, d = begin(w)
    s, f, o, ds, fh = one_server(c, d)
    ds.write(fh, 0, b"one", FILE_SYNC)
    c.ok(putfh(f), lock(s, WRITE_LT, owner=b"first"))
    two = client()
    s2, f2 = two.open(d, "f")
    end = time.monotonic() + 60
    while True:
        got = two.call(putfh(f2), lock(s2, WRITE_LT, owner=b"second"))
        if err(got.status) == "OK":
            break
        check(err(got.status) in ("DENIED", "DELAY"), True, err(got.status))
        check(time.monotonic() < end, True, "the lock of a client that is gone")
        time.sleep(0.2)
    now = two.until(lambda got: err(got.status) not in ("LAYOUTTRYLATER", "DELAY",
                                                        "RECALLCONFLICT"), putfh(f2),
                    layoutget(s2, IO_RW), tries=100)
    check(err(now.status), "OK")
    check(gone(ds.write(fh, 0, b"two", FILE_SYNC).status), "ACCES")


def test_a_fence_that_is_not_confirmed_is_none(w):
    """While the server is away, no client gets a layout and no size is reported as set, until it is
    back and has the order."""
    c, d = begin(w)
    s, f, o, ds, fh = one_server(c, d)
    ds.write(fh, 0, b"0123456789", FILE_SYNC)
    w.foreign.kill()
    two = client()
    s2, f2 = two.open(d, "f")
    c.on_callback = lambda name, args: None
    done = two.begin(putfh(f2), setattr_(s2, size=3))
    eventually(lambda: not rows(w.w)["any"]["alive"], 10, "it is missed")
    w.foreign.start()
    eventually(lambda: rows(w.w)["any"]["alive"], 10, "it is back")
    check(err(two.finish(done).status) in ("OK", "DELAY"), True)
    two.until(lambda got: err(got.status) != "DELAY", putfh(f2), setattr_(s2, size=3), tries=100)
    again = DataServer(nfs3.ADDR, auth_sys(int(o.mirrors[0][0].user), int(o.mirrors[0][0].group)))
    check(gone(again.write(fh, 0, b"late", FILE_SYNC).status), "ACCES")
    check(two.ok(putfh(f2), read(s2, 0, 10)).data, b"012")


@contextlib.contextmanager
def holding(w):
    """The metadata server and clients reach the server through this."""
    held = nfs3.Holding(LATE_PORT, nfs3.ADDR)
    w.url = lambda path="exp": f"nfs3://127.0.0.1:{LATE_PORT}{w.foreign.path(path)}"
    try:
        yield held
    finally:
        held.close()


def size_is_set(c, f, s, size):
    c.until(lambda got: err(got.status) != "DELAY", putfh(f), setattr_(s, size=size), tries=300)


def test_a_size_that_is_set_late_cuts_nothing(w):
    """A call gets no answer. The metadata server repeats it, and the data server runs it. When the
    first call runs, a client has written more."""
    with holding(w) as held:
        c, d = begin(w)
        s, f, o, ds, fh = one_server(c, d)
        ds.write(fh, 0, b"0123456789", FILE_SYNC)
        path, = w.owned(o.mirrors[0][0])
        c.ok(putfh(f), layoutreturn(o.stateid))
        held.hold = lambda: not held.kept
        size_is_set(c, f, s, 4)
        check((len(held.kept), os.stat(path).st_size), (1, 4))
        now = lay(c, f, s).mirrors[0][0]
        check(gone(data_server(c, now).write(fh, 0, b"ABCDEFGHIJ", FILE_SYNC).status), "OK")
        check((list(held.let_go()), os.stat(path).st_size), (["NOT_SYNC"], 10))


def test_a_fence_that_is_done_late_lets_nobody_in(w):
    with holding(w) as held:
        c, d = begin(w)
        s, f, o, ds, fh = one_server(c, d)
        path, = w.owned(o.mirrors[0][0])
        c.on_callback = lambda name, args: None  # it keeps its layout
        two = client()
        held.hold = lambda: not held.kept
        s2, f2 = two.open(d, "f")
        size_is_set(two, f2, s2, 1)
        check(len(held.kept), 1)
        between = data_server(two, lay(two, f2, s2).mirrors[0][0])
        two.on_callback = lambda name, args: None
        three = client()
        s3, f3 = three.open(d, "f")
        size_is_set(three, f3, s3, 2)
        now = lay(three, f3, s3).mirrors[0][0]
        check(list(held.let_go()), ["NOT_SYNC"])
        check(os.stat(path).st_uid, int(now.user))
        check(gone(between.write(fh, 0, b"late", FILE_SYNC).status), "ACCES")


def test_who_writes_all_the_time_is_fenced(w):
    """The metadata server must fence a client. Each time it is about to change the file's owner,
    the client changes the file."""
    with holding(w) as held:
        c, d = begin(w)
        s, f, o, ds, fh = one_server(c, d)
        path, = w.owned(o.mirrors[0][0])
        c.on_callback = lambda name, args: None
        written = []

        def busy():
            if os.stat(path).st_uid == int(o.mirrors[0][0].user):
                written.append(os.utime(path))

        held.hold = busy
        two = client()
        s2, f2 = two.open(d, "f")
        size_is_set(two, f2, s2, 1)
        check(len(written) >= 8, True, len(written))
        check((os.stat(path).st_uid, os.stat(path).st_size),
              (int(lay(two, f2, s2).mirrors[0][0].user), 1))


# ---- limits


def test_a_size_that_no_file_has_is_not_believed(w):
    c, d = begin(w)
    s, f, o, ds, fh = one_server(c, d)
    ds.write(fh, 0, b"data", FILE_SYNC)
    check(c.attrs(f, "size").size, 4)
    path, = w.owned(o.mirrors[0][0])
    try:
        os.truncate(path, 1 << 50)
    except OSError:
        os.truncate(path, (1 << 44) - 4096)  # as large as files are here, and may be
        return
    got = c.call(putfh(f), getattr_("size"))
    check(err(got.status) == "DELAY" or c.attrs(f, "size").size == 4, True)
    got = c.call(putfh(f), seek(s, 0, 1))
    check(err(got.status) != "OK", True)


def test_what_it_cannot_do_is_refused(w):
    c, d = begin(w)
    for policy in ("group=kind=nfs3,mirrors=2", "group=kind=nfs3,stripes=28"):
        got = c.call(putfh(d), setxattr("weft.policy",
                                        policy + (",mirrors=1" if "stripes" in policy else "")))
        check(err(got.status), "INVAL", policy)
    s, f, o, ds, fh = one_server(c, d)
    ds.write(fh, 0, b"data", FILE_SYNC)
    c.no("NOTSUPP", putfh(f), allocate(s, 0, 4096))
    r = c.ok(putfh(f), seek(s, 0, 0))
    check((r.eof, r.offset), (False, 0))
    r = c.ok(putfh(f), seek(s, 1, 1))
    check(r.offset, 4)


def test_a_policy_may_mix_kinds_over_files(w):
    c, d = begin(w)
    other = c.mkdir(c.root(), "both")
    homes = set()
    for n in range(8):
        s, f = c.open(other, f"f{n}")
        homes.add(layout_of(c, f)["mirrors"][0]["objects"][0]["ds"])
        c.ok(putfh(f), write(s, 0, b"mixed", FILE_SYNC))
        check(c.ok(putfh(f), read(s, 0, 10)).data, b"mixed")
    check(homes, {"ds1", "any"})


def test_a_file_is_placed_on_it_while_it_is_empty(w):
    c, d = begin(w)
    s, f = c.open(c.root(), "f")
    c.ok(putfh(f), setxattr("weft.policy", "group=kind=nfs3"))
    check(layout_of(c, f)["mirrors"][0]["objects"][0]["ds"], "any")
    o = c.until(lambda got: err(got.status) not in ("LAYOUTTRYLATER", "DELAY", "RECALLCONFLICT"),
                putfh(f), layoutget(s, IO_RW), tries=100)
    server = lay(c, f, s).mirrors[0][0]
    check(gone(data_server(c, server).write(server.fhs[0], 0, b"there", FILE_SYNC).status), "OK")
    check(c.ok(putfh(f), read(s, 0, 10)).data, b"there")


@contextlib.contextmanager
def around(name):
    w = World()
    try:
        with clients():
            yield (w,)
        if os.environ.get("WEFT_TRACE"):
            tap.say(log_of(w.w))
    finally:
        w.down()


if __name__ == "__main__":
    tap.run(tap.named(globals()), around, beside=4)
