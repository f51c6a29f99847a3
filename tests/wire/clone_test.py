#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""CLONE (RFC 7862, 15.13) on data servers whose stores have reflinks: XFS on a loop device.
Prints TAP."""
import os
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../wirelib"))
import harness  # noqa: E402
import tap  # noqa: E402
from harness import *  # noqa: E402,F403
from steps import (data_server, lay, one_server, reclaim, returns_when_recalled,  # noqa: E402
                   striped)
from mounts import mounted  # noqa: E402
from nfs41 import err, op  # noqa: E402
from once import Once, back_again, same_again  # noqa: E402
from shapes import SHAPES, noise, place, same_everywhere, server_down  # noqa: E402
from files import MB, content, layout_of  # noqa: E402
from mirrored import name_of, object_path, without  # noqa: E402

XFS = None  # a folder on it


def do_clone(c, src, dst, *args):
    (s1, f1), (s2, f2) = src, dst
    return c.ok(putfh(f1), savefh(), putfh(f2), clone(s1, s2, *args), timeout=60)


def test_clone_blksize_is_told(p):
    got = p.c.attrs(p.c.root(), "clone_blksize", "supported_attrs")
    check((got.clone_blksize, 77 in got.supported_attrs), (4096, True))


def paths(c, f):
    """The files of its objects."""
    w = harness.THE
    return [os.path.join(w.dir, o["ds"], o["object"]) for m in layout_of(c, f)["mirrors"]
            for o in m["objects"]]


def own_bytes(path):
    """How many bytes of a file lie in extents that it shares with no other file."""
    text = subprocess.run(["filefrag", "-v", "-b4096", path], check=True, capture_output=True,
                          text=True).stdout
    extents = [line.split(":") for line in text.splitlines() if re.match(r" +\d+: ", line)]
    return sum(int(e[3]) * 4096 for e in extents if "shared" not in e[-1])


def test_a_clone_shares_blocks(p):
    """The clone has its bytes, and the disk is no fuller."""
    c, data = p.c, noise(12 * MB + 777)
    for shape in SHAPES:
        src = p.file(f"s{shape}", shape, data)
        c.ok(putfh(p.d), setxattr("weft.policy", "stripes=1"))
        s, f = p.file(f"d{shape}")
        change = c.attrs(f, "change").change
        do_clone(c, src, (s, f))
        subprocess.run(["sync", "-f", XFS], check=True)
        used = sum(own_bytes(path) for path in paths(c, f))
        check(used < 2 * MB, True, f"{shape}: {used} bytes are its own")
        got = c.attrs(f, "size", "change")
        check((got.size, got.change > change), (len(data), True))
        same_everywhere(c, f, s, data)
        c.ok(putfh(f), write(s, MB, b"mine", FILE_SYNC))
        c.ok(putfh(src[1]), write(src[0], 2 * MB, b"yours", FILE_SYNC))
        same_everywhere(c, f, s, data[:MB] + b"mine" + data[MB + 4:])
        same_everywhere(c, src[1], src[0], data[:2 * MB] + b"yours" + data[2 * MB + 5:])


def test_clones_of_ranges(p):
    c, data = p.c, noise(8 * MB + 100)
    for shape in ("stripes=1", "stripes=2,mirrors=2,unit=1M"):
        src, dst = p.file(f"s{shape}", shape, data), p.file(f"d{shape}", shape)
        do_clone(c, src, dst, 0, 0, 8 * MB)
        want = bytearray(data[:8 * MB])
        for a, b, n in ((4 * MB, 0, MB),
                        (0, 2 * MB + 8192 if shape == "stripes=1" else 2 * MB, 4096),
                        (8 * MB, 4 * MB, 0), (8 * MB, 8 * MB, 100), (0, 20 * MB, 2 * MB)):
            do_clone(c, src, dst, a, b, n)
            piece = data[a:a + n] if n else data[a:]
            want.extend(bytes(max(0, b + len(piece) - len(want))))
            want[b:b + len(piece)] = piece
            if len(piece) % 4096:  # the block that it ends in is zeroed
                end = min(b + len(piece) + 4096 - len(piece) % 4096, len(want))
                want[b + len(piece):end] = bytes(end - b - len(piece))
            check(c.attrs(dst[1], "size").size, len(want))
        same_everywhere(c, dst[1], dst[0], bytes(want))
    do_clone(c, src, src, 0, 4 * MB, 2 * MB)
    same_everywhere(c, src[1], src[0], data[:4 * MB] + data[:2 * MB] + data[6 * MB:])


def test_clones_of_holes(p):
    c = p.c
    src = p.file("src", "stripes=2,mirrors=2,unit=1M", b"head")
    c.ok(putfh(src[1]), write(src[0], 5 * MB, b"tail", FILE_SYNC), setattr_(src[0], size=9 * MB))
    want = b"head" + bytes(5 * MB - 4) + b"tail" + bytes(4 * MB - 4)
    dst = p.file("dst")
    do_clone(c, src, dst)
    same_everywhere(c, dst[1], dst[0], want)
    r = c.ok(putfh(dst[1]), seek(dst[0], MB, DATA))
    check((r.eof, r.offset), (False, 5 * MB))
    over = p.file("over", "stripes=2,mirrors=2,unit=1M", noise(9 * MB))
    empty = p.file("empty")
    do_clone(c, empty, over)
    check(c.attrs(over[1], "size").size, 9 * MB)


def test_clone_errors(p):
    c = p.c
    s1, f1 = p.file("src", "stripes=1", noise(10000))
    s2, f2 = p.file("dst", "stripes=1", noise(20000, 2))
    r2, _ = c.open(p.d, "dst", READ, owner=b"reader", how=None)
    go = lambda want, *args, a=f1, b=f2: c.no(want, putfh(a), savefh(), putfh(b), clone(*args))
    go("INVAL", s1, s2, 100, 0, 4096)
    go("INVAL", s1, s2, 0, 100, 4096)
    go("INVAL", s1, s2, 0, 0, 4095)
    go("INVAL", s1, s2, 12288, 0, 0)
    go("INVAL", s1, s2, 8192, 0, 4096)
    go("INVAL", s1, s2, 0, 0, MAX64)
    go("INVAL", s1, s1, 0, 4096, 8192, b=f1)
    go("INVAL", s1, s1, b=f1)
    go("FBIG", s1, s2, 0, (1 << 63) - 4096, 8192)
    go("OPENMODE", s1, r2)
    go("BAD_STATEID", (1, b"\x01" * 12), s2)
    go("BAD_STATEID", s1, (1, b"\x01" * 12))
    go("WRONG_TYPE", ANON, s2, a=p.d)
    go("WRONG_TYPE", s1, ANON, b=p.d)
    c.no("NOFILEHANDLE", putfh(f2), clone(s1, s2))
    other = p.file("other", "stripes=4,unit=1M", noise(5000))
    go("XDEV", s1, other[0], b=other[1])
    check(content(c, other[1], other[0]) == noise(5000), True,
          "what could not be cloned over is as it was")
    c.no("BADXDR", putfh(f1), savefh(), putfh(f2), op("CLONE", stateid(s1), stateid(s2), u64(0)))


def test_a_clone_has_what_layouts_wrote_and_fences_them(p):
    c, two = p.c, client()
    s, f, o = striped(c, p.d, "stripes=2,unit=1M,mirrors=2", "src")
    for m in o.mirrors:
        for i in (0, 1):
            check(data_server(c, m[i]).write(m[i].fhs[0], i * MB, bytes([65 + i]) * 4096).status, 0)

    def late(args):
        for m in o.mirrors:
            data_server(c, m[0]).write(m[0].fhs[0], 2 * MB, b"late")
    returns_when_recalled(c, f, late)
    dst = two.open(p.d, "dst")
    do_clone(two, (two.open(p.d, "src")[0], f), dst)
    for m in o.mirrors:
        check(data_server(c, m[0]).write(m[0].fhs[0], 0, b"after").status, 13,
              "a handle from before")
    want = b"A" * 4096 + bytes(MB - 4096) + b"B" * 4096 + bytes(MB - 4096) + b"late"
    got = content(two, dst[1], dst[0])
    check((got == want[:len(got)], len(got) >= MB + 4096), (True, True))
    same_everywhere(two, dst[1], dst[0], got)


def test_who_only_reads_does_not_keep_writers_waiting(p):
    """The clones of a reader freeze what others write, but only now and then."""
    c, reader, who = p.c, client(), auth_sys(1000, 1000)
    c.ok(putfh(p.d), setattr_(mode=0o777), setxattr("weft.policy", "stripes=1"))
    s, f = c.open(p.d, "src")
    c.ok(putfh(f), write(s, 0, noise(MB), FILE_SYNC))
    mine, again = reader.open(p.d, "src", READ, how=None, cred=who)[0], (putfh(f), savefh())
    dst = reader.open(p.d, "dst", cred=who)
    ask = lambda: err(reader.call(*again, putfh(dst[1]), clone(mine, dst[0]), cred=who,
                                  timeout=60).status)
    check(ask(), "OK")
    check([ask() for _ in range(5)], ["DELAY"] * 5)
    c.ok(putfh(f), write(s, 0, b"not in the way", FILE_SYNC))
    began, done = time.monotonic(), 0
    while time.monotonic() - began < 3.5:
        done += ask() == "OK"
        (c.ok(putfh(f), write(s, 0, b"now and then"), timeout=60)
         if err(c.call(putfh(f), write(s, 0, b"-")).status) == "OK" else time.sleep(0.02))
    check(1 <= done <= 4, True, f"{done} clones in 3.5 s")
    # A client that may write the file waits for no other, and no client waits where none writes.
    own = c.open(p.d, "own")
    for _ in range(3):
        do_clone(c, (s, f), own)
    c.ok(putfh(f), close(s))
    check([ask() for _ in range(3)], ["OK"] * 3)


def test_a_target_with_a_write_layout_is_placed_again(p):
    c, data = p.c, noise(4 * MB)
    src = p.file("src", "stripes=2,unit=1M", data)
    returns_when_recalled(c, None)
    s, f, o, ds, fh = one_server(c, c.mkdir(p.d, "plain"), "dst")
    c.ok(putfh(src[1]), savefh(), putfh(f), clone(src[0], s), timeout=60)
    c.wait_callback("LAYOUTRECALL")
    check(ds.write(fh, 0, b"old").status in (70, 13), True, "a handle to the object of before")
    same_everywhere(c, f, s, data)
    check(len(layout_of(c, f)["mirrors"][0]["objects"]), 2)


def test_a_mirror_that_misses_a_clone_is_stale(p):
    c, data = p.c, noise(6 * MB)
    src, (s, f) = p.file("src", "mirrors=2", data), p.file("dst")
    name = layout_of(c, src[1])["mirrors"][0]["objects"][0]["ds"]
    with server_down(name):
        ops = putfh(src[1]), savefh(), putfh(f), clone(src[0], s)
        got = c.until(lambda got: err(got.status) != "DELAY", *ops, pause=0.3, timeout=60)
        check(err(got.status), "OK")
        check(content(c, f, s) == data, True)
    states = {m["objects"][0]["ds"]: m["state"] for m in layout_of(c, f)["mirrors"]}
    check((states.pop(name), set(states.values())), ("stale", {"in-sync"}))
    same_everywhere(c, f, s, data)


def known(c, s, f):
    """The client asked the metadata server after a layout was out, so the server knows that the
    file's objects exist."""
    o = lay(c, f, s)
    c.ok(putfh(f), layoutreturn(o.stateid))
    c.attrs(f, "size")


def lose(c, *objects):
    """Removes the object of each (stateid, filehandle, mirror). Sets a new size, so that each
    server runs a fence after that."""
    w = harness.THE
    for s, f, mirror in objects:
        path = object_path(w, c, f, mirror)
        known(c, s, f)
        with without(w, name_of(w, path)):
            os.unlink(path)
        c.until(lambda got: err(got.status) != "DELAY", putfh(f), setattr_(s, size=2 * MB),
                pause=0.1, timeout=60)
        eventually(lambda path=path: os.path.exists(path), 10, "the fence's place")


def no_orders():
    eventually(lambda: harness.THE.metric("weft_mds_orders") == 0, 10, "all orders end")


def test_what_is_lost_is_not_cloned(p):
    c, data = p.c, noise(4 * MB)
    src, own, dst = (p.file("src", "stripes=1", data), p.file("own", "stripes=1"),
                     p.file("dst", "stripes=1"))
    do_clone(c, src, own)
    lose(c, (*src, 0))
    for to, want in ((dst, b""), (own, data)):  # placed in other places, and in the same ones
        c.no("IO", putfh(src[1]), savefh(), putfh(to[1]), clone(src[0], to[0]), timeout=60)
        check((c.attrs(to[1], "size").size, content(c, to[1], to[0]) == want), (len(want), True),
              "it is as it was")
    no_orders()
    # The lost object does not stop changes of the source: a client that truncates it to
    # nothing mends it.
    c.until(lambda got: err(got.status) != "DELAY", putfh(src[1]), setattr_(src[0], size=0),
            pause=0.1, timeout=60)
    c.until(lambda got: err(got.status) != "DELAY", putfh(src[1]),
            write(src[0], 0, data[:MB], FILE_SYNC), pause=0.1, timeout=60)
    do_clone(c, src, dst)
    same_everywhere(c, dst[1], dst[0], data[:MB])


def test_a_clone_that_is_lost_is_not_empty(p):
    """No client has written the clone or asked for its size. The server still knows that its
    objects exist, and reports an error when they are gone."""
    c, w, data = p.c, harness.THE, noise(3 * MB)
    src, in_place = p.file("src", "stripes=1", data), p.file("own", "stripes=1")
    dst = c.open(p.d, "dst")
    for s, f in (dst, in_place):
        before = c.attrs(f, "change", "time_modify")
        do_clone(c, src, (s, f))
        after = c.attrs(f, "change", "time_modify")
        check(after.change > before.change, True)
        time.sleep(0.3)
        again = c.attrs(f, "change", "time_modify")
        check((again.change, again.time_modify), (after.change, after.time_modify),
              "that it is known is no change")
        path = object_path(w, c, f)
        with without(w, name_of(w, path)):
            os.unlink(path)
        got = c.until(lambda got: err(got.status) != "DELAY", putfh(f), read(s, 0, 10), pause=0.1,
                      timeout=60)
        check(err(got.status), "IO", "no zeros")


def test_a_clone_that_its_server_made_late_is_not_empty(p):
    c, w, data = p.c, harness.THE, noise(3 * MB)
    src, dst = p.file("src", "stripes=1", data), p.file("dst", "stripes=1")
    name = name_of(w, object_path(w, c, src[1]))
    with without(w, name):
        do_clone(c, src, dst)
    no_orders()
    path = object_path(w, c, dst[1])
    eventually(lambda: os.path.exists(path) and os.stat(path).st_size == 3 * MB, 10, "the clone")
    time.sleep(0.5)
    with without(w, name):
        os.unlink(path)
    got = c.until(lambda got: err(got.status) != "DELAY", putfh(dst[1]), read(dst[0], 0, 10),
                  pause=0.1, timeout=60)
    check(err(got.status), "IO", "no zeros")


def test_a_copy_of_what_is_lost_is_stale(p):
    c, data = p.c, noise(4 * MB)
    src, new = p.file("src", "mirrors=2", data), p.file("new", "mirrors=2")
    lose(c, (*src, 1))
    lost = layout_of(c, src[1])["mirrors"][1]["objects"][0]["ds"]
    do_clone(c, src, new)
    states = {m["objects"][0]["ds"]: m["state"] for m in layout_of(c, new[1])["mirrors"]}
    check((states.pop(lost), set(states.values())), ("stale", {"in-sync"}))
    check(content(c, new[1], new[0]) == data[:2 * MB], True)
    no_orders()


def test_a_clone_into_what_is_lost_fails(p):
    c, data = p.c, noise(3 * MB)
    src, dst = p.file("src", "stripes=1", data), p.file("dst", "stripes=1")
    do_clone(c, src, dst)
    c.ok(putfh(dst[1]), write(dst[0], 0, data[:1], FILE_SYNC))
    lose(c, (*dst, 0))
    c.no("IO", putfh(src[1]), savefh(), putfh(dst[1]), clone(src[0], dst[0], 0, MB, MB), timeout=60)
    no_orders()
    c.until(lambda got: err(got.status) != "DELAY", putfh(dst[1]), setattr_(dst[0], size=0),
            pause=0.1, timeout=60)
    do_clone(c, src, dst)
    same_everywhere(c, dst[1], dst[0], data)


def test_an_order_to_clone_what_turns_out_to_be_lost_ends(p):
    """The server is away when the CLONE is made, and comes back without the source."""
    c, data, w = p.c, noise(3 * MB), harness.THE
    src, dst = p.file("src", "stripes=1", data), p.file("dst", "stripes=1")
    path = object_path(w, c, src[1])
    known(c, *src)
    with server_down(name_of(w, path)):
        got = c.until(lambda got: err(got.status) != "DELAY", putfh(src[1]), savefh(),
                      putfh(dst[1]), clone(src[0], dst[0]), pause=0.3, timeout=60)
        check(err(got.status), "OK")
        os.unlink(path)
    no_orders()
    for s, f in (src, dst):
        got = c.until(lambda got: err(got.status) != "DELAY", putfh(f), read(s, 0, 10), pause=0.1,
                      timeout=60)
        check(err(got.status), "IO", "no zeros")
    for name in ("src", "dst"):
        c.until(lambda got: err(got.status) != "DELAY", putfh(p.d), remove(name), pause=0.1,
                timeout=60)
    no_orders()


def test_a_clone_survives_a_restart(p):
    c, w, data = p.c, harness.THE, noise(6 * MB + 5)
    src, dst = p.file("src", "stripes=2,mirrors=2,unit=1M", data), p.file("dst")
    do_clone(c, src, dst)
    w.restart()
    again = client()
    got = again.until(lambda got: err(got.status) != "GRACE", putfh(p.d),
                      open_("dst", BOTH | NO_DELEG), getfh())
    s, f = got.results[2].stateid, got.results[3].fh
    same_everywhere(again, f, s, data)


def test_a_clone_is_done_once(p):
    """A retry after a restart gets the old answer: what another client wrote over the
    clone stays."""
    c, w, data = p.c, harness.THE, noise(MB + 5)
    src, dst = p.file("src", "stripes=1", data), p.file("dst")
    two = client()
    two.open(p.d, "dst")
    o = Once(c)
    o.slot = 5
    o.send(putfh(src[1]), savefh(), putfh(dst[1]), clone(src[0], dst[0]), getattr_("fileid"))
    w.restart()
    two = back_again(two)
    s = reclaim(two, dst[1])
    got = two.until(lambda got: err(got.status) != "DELAY", putfh(dst[1]),
                    write(s, 0, b"since", FILE_SYNC))
    check(err(got.status), "OK")
    same_again(Conn(ADDR), o.sent)
    two.ok(reclaim_complete())
    two.until(lambda got: err(got.status) != "GRACE", putfh(dst[1]), lockt(READ_LT, 0, 1))
    same_everywhere(two, dst[1], s, b"since" + data[5:])


def test_a_clone_is_done_by_whoever_comes_back(p):
    """The clone's only server is down, and the MDS is killed in between: the order is
    in the store."""
    c, w, data = p.c, harness.THE, noise(3 * MB + 99)
    (s, f), dst = p.file("src", "stripes=1", data), p.file("dst", "stripes=1", b"")
    name = layout_of(c, f)["mirrors"][0]["objects"][0]["ds"]
    with server_down(name):
        got = c.until(lambda got: err(got.status) != "DELAY", putfh(f), savefh(), putfh(dst[1]),
                      clone(s, dst[0]), pause=0.3, timeout=60)
        check(err(got.status), "OK")
        check(c.attrs(dst[1], "size").size, len(data))
        c.no("DELAY", putfh(dst[1]), read(dst[0], 0, 10))
        w.restart()
    again = client()
    got = again.until(lambda got: err(got.status) != "GRACE", putfh(p.d),
                      open_("dst", BOTH | NO_DELEG), getfh())
    s, f = got.results[2].stateid, got.results[3].fh
    again.until(lambda got: err(got.status) != "DELAY", putfh(f), read(s, 0, 1))
    same_everywhere(again, f, s, data)


if __name__ == "__main__":
    XFS = mounted()
    if not XFS:
        tap.skip("needs root, loop devices and mkfs.xfs")
        sys.exit(0)
    tempfile.tempdir = XFS
    try:
        harness.run_shared(globals(), place, parts=2, settings=harness.CALM)
    finally:
        subprocess.run(["umount", "-l", XFS], check=True)  # a daemon may not have ended yet
        shutil.rmtree(os.path.dirname(XFS))
