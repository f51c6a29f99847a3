#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The data operations of RFC 7862 on files that are striped and mirrored over data servers.
Prints TAP."""
import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../wirelib"))
import harness  # noqa: E402
from harness import *  # noqa: E402,F403
from steps import data_server, one_server, returns_when_recalled, striped  # noqa: E402
from nfs41 import err, op  # noqa: E402
from shapes import SHAPES, noise, place, same_everywhere, server_down  # noqa: E402
from files import MB, content, layout_of, v3_attrs, wcc  # noqa: E402

struct_time = lambda sec, nsec: u64(sec) + u32(nsec)
DS_NAMES = ("ds1", "ds2", "ds3", "ds4")


def segments(c, f, sid, offset, count):
    """Checks that READ_PLUS's segments are contiguous. Returns the bytes."""
    r = c.ok(putfh(f), read_plus(sid, offset, count))
    at, data = offset, b""
    for s in r.segments:
        check(s.offset, at, "a segment's offset")
        piece = s.data if s.what == DATA else bytes(s.length)
        at += len(piece)
        data += piece
    return r, data


# ---- SEEK (15.11)


def test_seek_finds_data_and_holes(p):
    c = p.c
    for shape in SHAPES:
        s, f = p.file(shape, shape)
        for off in (0, 3 * MB, 4 * MB, 9 * MB + 8192):
            c.ok(putfh(f), write(s, off, noise(65536), FILE_SYNC))
        c.ok(putfh(f), setattr_(s, size=20 * MB))
        starts = [0, 3 * MB, 4 * MB, 9 * MB + 8192]
        for at in (0, 1, 65535, 65536, 2 * MB, 3 * MB, 3 * MB + 65536, 4 * MB + 1, 5 * MB, 9 * MB,
                   10 * MB, 20 * MB - 1):
            inside = [b for b in starts if b <= at < b + 65536]
            later = [b for b in starts if b > at]
            r = c.ok(putfh(f), seek(s, at, DATA))
            want = (False, at) if inside else (False, later[0]) if later else (True, 20 * MB)
            check((r.eof, r.offset), want, f"{shape}: data from {at}")
            r = c.ok(putfh(f), seek(s, at, HOLE))
            check((r.eof, r.offset), (False, inside[0] + 65536 if inside else at),
                  f"{shape}: a hole from {at}")


def test_seek_knows_the_hole_at_the_end(p):
    c = p.c
    for shape in SHAPES:
        s, f = p.file(shape, shape, noise(3 * MB))
        r = c.ok(putfh(f), seek(s, 0, HOLE))
        check((r.eof, r.offset), (True, 3 * MB), shape)
        r = c.ok(putfh(f), seek(s, MB, DATA))
        check((r.eof, r.offset), (False, MB), shape)


def test_seek_errors(p):
    c = p.c
    s, f = p.file(data=bytes(5000))
    c.no("NXIO", putfh(f), seek(s, 5001, DATA))
    c.no("NXIO", putfh(f), seek(s, 5000, HOLE))
    c.no("NXIO", putfh(f), seek(s, MAX64, DATA))
    c.no("UNION_NOTSUPP", putfh(f), seek(s, 0, 2))
    c.no("NOFILEHANDLE", seek(s, 0, DATA))
    c.no("ISDIR", putfh(p.d), seek(ANON, 0, DATA))
    for bad in ((1, b"\x01" * 12), INVALID):
        c.no("BAD_STATEID", putfh(f), seek(bad, 0, DATA))
    client().no("BAD_STATEID", putfh(f), seek(s, 0, DATA))
    w, _ = c.open(p.d, "f", WRITE, owner=b"writer", how=None)
    c.ok(putfh(f), seek(w, 0, DATA))  # as READ: permission to read allows it too
    c.no("BADXDR", putfh(f), op("SEEK", stateid(s), u64(0)))


def test_seek_sees_what_a_layout_wrote(p):
    c = p.c
    s, f, o = striped(c, p.d, "stripes=2,unit=1M")
    x = o.mirrors[0][1]
    check(data_server(c, x).write(x.fhs[0], 3 * MB, noise(4096)).status, 0)
    r = c.ok(putfh(f), seek(s, 0, DATA))
    check((r.eof, r.offset), (False, 3 * MB))


# ---- ALLOCATE and DEALLOCATE (15.1, 15.4)


def test_allocate_reserves_and_grows(p):
    c = p.c
    for shape in SHAPES:
        s, f = p.file(shape, shape, b"head")
        before = c.attrs(f, "space_used", "change")
        c.ok(putfh(f), allocate(s, MB // 2, 5 * MB))
        after = c.attrs(f, "size", "space_used", "change")
        check(after.size, MB // 2 + 5 * MB, shape)
        check(after.space_used - before.space_used >= 5 * MB, True,
              f"{shape}: space {before.space_used} to {after.space_used}")
        check(after.change > before.change, True)
        want = b"head" + bytes(MB // 2 + 5 * MB - 4)
        same_everywhere(c, f, s, want)
        c.ok(putfh(f), allocate(s, 0, 100))
        check(c.attrs(f, "size").size, len(want), "an allocation inside")


def test_allocate_keeps_what_is_there(p):
    c = p.c
    data = noise(3 * MB)
    s, f = p.file(shape="stripes=2,mirrors=2,unit=1M", data=data)
    c.ok(putfh(f), allocate(s, 0, 4 * MB))
    same_everywhere(c, f, s, data + bytes(MB))


def test_allocate_without_room_is_nospc_and_grows_nothing(p):
    c = p.c
    for shape in ("stripes=1", "stripes=2,mirrors=2,unit=1M"):
        s, f = p.file(shape, shape, b"x")
        c.no("NOSPC", putfh(f), allocate(s, 0, 1 << 43))
        got = c.attrs(f, "size", "space_used")
        check((got.size, got.space_used < MB), (1, True))
    s, f = p.file()
    c.no("FBIG", putfh(f), allocate(s, 1 << 62, 1 << 40))


def test_deallocate_makes_zeros(p):
    c = p.c
    for shape in SHAPES:
        data = noise(6 * MB)
        s, f = p.file(shape, shape, data)
        used = c.attrs(f, "space_used").space_used
        change = c.attrs(f, "change").change
        c.ok(putfh(f), deallocate(s, MB + 1000, 3 * MB))
        want = data[:MB + 1000] + bytes(3 * MB) + data[4 * MB + 1000:]
        got = c.attrs(f, "size", "space_used", "change")
        check((got.size, got.change > change), (6 * MB, True), shape)
        check(used - got.space_used >= 2 * MB, True, f"{shape}: space {used} to {got.space_used}")
        same_everywhere(c, f, s, want)
        r = c.ok(putfh(f), seek(s, 2 * MB, HOLE))
        check((r.eof, r.offset), (False, 2 * MB), shape)
        c.ok(putfh(f), deallocate(s, 5 * MB, 100 * MB), getattr_("size"))
        same_everywhere(c, f, s, want[:5 * MB] + bytes(MB))
        c.ok(putfh(f), deallocate(s, 1 << 62, 1 << 61))


def test_allocate_and_deallocate_errors(p):
    c = p.c
    s, f = p.file(data=bytes(5000))
    r, _ = c.open(p.d, "f", READ, owner=b"reader", how=None)
    link = c.ok(putfh(p.d), create(LNK, "l", link=b"f"), getfh()).fh
    for one in (allocate, deallocate):
        c.no("INVAL", putfh(f), one(s, 0, 0))
        c.no("INVAL", putfh(f), one(s, MAX64 - 10, 20))
        c.no("OPENMODE", putfh(f), one(r, 0, 10))
        c.no("WRONG_TYPE", putfh(p.d), one(ANON, 0, 10))
        c.no("WRONG_TYPE", putfh(link), one(ANON, 0, 10))
        c.no("NOFILEHANDLE", one(s, 0, 10))
        for bad in ((1, b"\x01" * 12), INVALID):
            c.no("BAD_STATEID", putfh(f), one(bad, 0, 10))
        client(cred=OTHER).no("ACCESS", putfh(f), one(ANON, 0, 10))
    c.no("BADXDR", putfh(f), op("ALLOCATE", stateid(s), u64(0)))
    c.ok(putfh(f), setattr_(mode=0o6777))
    other = client(cred=OTHER)
    o, _ = other.open(p.d, "f", BOTH, how=None)
    other.ok(putfh(f), allocate(o, 0, 10))
    check(c.attrs(f, "mode").mode, 0o777, "set-id bits after another's ALLOCATE")


def test_deallocate_takes_back_write_layouts_of_mirrored_files(p):
    c, two = p.c, client()
    s, f, o = striped(c, p.d, "mirrors=2")
    for m in o.mirrors:
        check(data_server(c, m[0]).write(m[0].fhs[0], 0, b"\xff" * 8192).status, 0)

    def late(args):  # a write that is under way when the recall comes counts
        for m in o.mirrors:
            data_server(c, m[0]).write(m[0].fhs[0], 8192, b"late")
    returns_when_recalled(c, f, late)
    s2, _ = two.open(p.d, "f")
    two.ok(putfh(f), deallocate(s2, 0, 4096), timeout=60)
    c.wait_callback("LAYOUTRECALL")
    for m in o.mirrors:
        check(data_server(c, m[0]).write(m[0].fhs[0], 0, b"fenced").status, 13,
              "a handle from before")
    same_everywhere(two, f, s2, bytes(4096) + b"\xff" * 4096 + b"late")


def test_deallocate_of_one_copy_leaves_layouts_alone(p):
    c, two = p.c, client()
    s, f, o, ds, fh = one_server(c, p.d)
    ds.write(fh, 0, b"\xff" * 8192)
    s2, _ = two.open(p.d, "f")
    two.ok(putfh(f), deallocate(s2, 0, 4096))
    check((ds.write(fh, 8192, b"more").status, c.callbacks), (0, []))
    check(content(two, f, s2), bytes(4096) + b"\xff" * 4096 + b"more")


def test_a_mirror_that_misses_a_change_is_stale(p):
    c, data = p.c, noise(4 * MB)
    files = [p.file(f"f{i}", "mirrors=2", data) for i in range(2)]
    hole = data[:MB] + bytes(MB) + data[2 * MB:]
    s0, f0 = files[0]
    name = layout_of(c, f0)["mirrors"][0]["objects"][0]["ds"]
    with server_down(name):
        done = lambda got: err(got.status) != "DELAY"
        check(err(c.until(done, putfh(f0), deallocate(s0, MB, MB), pause=0.3).status), "OK")
        check(content(c, f0, s0) == hole, True, "what is left is read")
        check(err(c.until(done, putfh(f0), write(s0, 0, data[:512]), pause=0.1).status), "OK",
              "and written")
        check(c.attrs(f0, "size").size, 4 * MB)
        s1, f1 = files[1]
        check(err(c.until(done, putfh(f1), allocate(s1, 0, 5 * MB), pause=0.3).status), "OK")
        check(content(c, f1, s1) == data + bytes(MB), True)
    states = {m["objects"][0]["ds"]: m["state"] for m in layout_of(c, f0)["mirrors"]}
    check(states.pop(name), "stale")
    check(set(states.values()), {"in-sync"})
    same_everywhere(c, f0, s0, hole)


# ---- READ_PLUS (15.10)


def test_read_plus_tells_data_and_holes(p):
    c = p.c
    for shape in SHAPES:
        s, f = p.file(shape, shape)
        want = bytearray(6 * MB)
        for off, n in ((0, 100000), (MB - 5, 10), (2 * MB + 4096, 300000), (5 * MB, MB)):
            piece = noise(n, off + 1)
            want[off:off + n] = piece
            c.ok(putfh(f), write(s, off, piece, FILE_SYNC))
        at = 0
        while at < len(want):
            r, got = segments(c, f, s, at, 777777)
            check(got[:777777] == bytes(want[at:at + len(got)])[:777777], True,
                  f"{shape}: {len(got)} bytes at {at}")
            check(len(got) > 0, True)
            check(r.eof, at + 777777 >= len(want), f"{shape}: eof at {at}")
            at += len(got)
        r, got = segments(c, f, s, 3 * MB, 65536)
        check([(x.what, x.offset, getattr(x, "length", None)) for x in r.segments],
              [(HOLE, 3 * MB, 2 * MB)], "a hole in its entirety")
        r, got = segments(c, f, s, 2 * MB + 4096 + 300000 - 1000, 200000)
        check([x.what for x in r.segments], [DATA, HOLE])


def test_read_plus_at_the_edges(p):
    c = p.c
    s, f = p.file(data=b"abc")
    r, got = segments(c, f, s, 1, 100)
    check((got, r.eof), (b"bc", True))
    for off, n, eof in ((3, 10, True), (1 << 50, 10, True), (0, 0, False)):
        r, got = segments(c, f, s, off, n)
        check((got, r.eof), (b"", eof))
    s, f = p.file("empty")
    check(segments(c, f, s, 0, 10)[0].eof, True)
    lk = c.ok(putfh(f), setattr_(s, size=10 * MB), lock(s, READ_LT, 0, MB, owner=b"lo")).stateid
    r, got = segments(c, f, lk, 0, 65536)
    check(len(got), 65536, "a hole reaches no further than what is asked for by a lock's holder")
    c.no("ISDIR", putfh(p.d), read_plus(ANON, 0, 10))
    c.no("BAD_STATEID", putfh(f), read_plus((1, b"\x01" * 12), 0, 10))
    c.no("NOFILEHANDLE", read_plus(s, 0, 10))
    link = c.ok(putfh(p.d), create(LNK, "l", link=b"f"), getfh()).fh
    c.no("SYMLINK", putfh(link), read_plus(ANON, 0, 10))


# ---- IO_ADVISE (15.5)


def test_io_advise_promises_nothing(p):
    c = p.c
    s, f = p.file(data=b"abc")
    for hints in ((), (0,), (1, 4, 8), tuple(range(11)), (40,)):
        check(c.ok(putfh(f), io_advise(s, 0, 0, hints)).hints, set())
    c.no("BAD_STATEID", putfh(f), io_advise((1, b"\x01" * 12), 0, 0, (1,)))
    c.no("NOFILEHANDLE", io_advise(s))
    c.no("ISDIR", putfh(p.d), io_advise(ANON))
    c.no("INVAL", putfh(f), io_advise(s, MAX64 - 1, 10))


# ---- COPY, OFFLOAD_STATUS, OFFLOAD_CANCEL (15.2, 15.8, 15.9)


def do_copy(c, src, dst, *args, **how):
    (s1, f1), (s2, f2) = src, dst
    return c.ok(putfh(f1), savefh(), putfh(f2), copy(s1, s2, *args, **how), timeout=60)


def test_copy_copies(p):
    c, data = p.c, noise(9 * MB + 777)
    sources = [p.file(f"s{i}", shape, data) for i, shape in enumerate(SHAPES)]
    for i, shape in enumerate(SHAPES):
        s, f = p.file(f"d{i}", shape)
        change = c.attrs(f, "change").change
        r = do_copy(c, sources[(i + 1) % len(SHAPES)], (s, f))
        check((r.callback, r.count, r.how, r.consecutive, r.synchronous),
              (None, len(data), FILE_SYNC, True, True), shape)
        got = c.attrs(f, "size", "change")
        check((got.size, got.change > change), (len(data), True))
        check(c.ok(putfh(f), commit()).verf, r.verf, "COMMIT's verifier")
        same_everywhere(c, f, s, data)


def moved(way):
    """Bytes that the data servers' NFSv3 has carried."""
    return sum(harness.THE.metric(rf'weft_ds_bytes_total\{{dir="{way}"\}}', d) for d in DS_NAMES)


def test_a_copy_on_one_server_moves_nothing(p):
    c, data = p.c, noise(9 * MB)
    src = p.file("src", "stripes=1", data)
    c.ok(putfh(src[1]), setattr_(src[0], size=200 * MB))
    on = lambda f: layout_of(c, f)["mirrors"][0]["objects"][0]["ds"]
    for i in range(100):
        dst = p.file(f"d{i}")
        if on(dst[1]) == on(src[1]):
            break
    before = moved("read"), moved("write")
    r = do_copy(c, src, dst, 4096, 5)
    check((r.count, r.how, moved("read"), moved("write")), (200 * MB - 4096, FILE_SYNC, *before))
    check(c.ok(putfh(dst[1]), commit()).verf, r.verf, "COMMIT's verifier")
    check(content(c, dst[1], dst[0], 0, 10 * MB) == bytes(5) + data[4096:]
          + bytes(10 * MB - 5 - len(data) + 4096), True)
    check(c.attrs(dst[1], "size").size, 200 * MB - 4091)
    r = c.ok(putfh(dst[1]), seek(dst[0], 20 * MB, DATA))
    check(r.eof, True, "the hole is one")


def test_copy_of_ranges(p):
    c, data, old = p.c, noise(6 * MB), noise(5 * MB, 2)
    src = p.file("src", "stripes=2,mirrors=2,unit=1M", data)
    s, f = p.file("dst", "stripes=4,unit=1M", old)
    want = bytearray(old)
    for a, b, n in ((100, 3 * MB + 5, MB), (2 * MB, 0, 4096), (5 * MB + 1, 6 * MB, 0),
                    (0, 9 * MB, 10)):
        r = do_copy(c, src, (s, f), a, b, n)
        n = n or len(data) - a
        check(r.count, n)
        want.extend(bytes(max(0, b + n - len(want))))
        want[b:b + n] = data[a:a + n]
        check(c.attrs(f, "size").size, len(want))
    check(content(c, f, s) == bytes(want), True)
    check(do_copy(c, src, (s, f), len(data), 0, 0).count, 0, "from the end of the source")


def test_copy_errors(p):
    c = p.c
    s1, f1 = p.file("src", data=noise(5000))
    s2, f2 = p.file("dst")
    r1, _ = c.open(p.d, "src", READ, owner=b"reader", how=None)
    r2, _ = c.open(p.d, "dst", READ, owner=b"reader", how=None)
    go = lambda want, *args, a=f1, b=f2, **how: c.no(want, putfh(a), savefh(), putfh(b),
                                                     copy(*args, **how))
    go("INVAL", s1, s2, 5001)
    go("INVAL", s1, s2, 4000, 0, 1001)
    go("INVAL", s1, s2, MAX64 - 5, 0, 10)
    go("INVAL", s1, s1, 0, 5000, 100, b=f1)
    go("FBIG", s1, s2, 0, MAX64 - 100, 50)
    go("OPENMODE", s1, r2)
    go("BAD_STATEID", (1, b"\x01" * 12), s2)
    go("BAD_STATEID", s1, (1, b"\x01" * 12))
    go("BAD_STATEID", s2, s2)
    go("WRONG_TYPE", ANON, s2, a=p.d)
    go("WRONG_TYPE", s1, ANON, b=p.d)
    go("PARTNER_NOTSUPP", s1, s2, servers=[u32(1) + opaque("other")])
    go("PARTNER_NOTSUPP", s1, s2,
       servers=[u32(3) + opaque("tcp") + opaque("127.0.0.1.8.1"), u32(2) + opaque("nfs://x/y")])
    go("BADXDR", s1, s2, servers=[u32(9) + opaque("other")])
    c.no("NOFILEHANDLE", putfh(f2), copy(s1, s2))
    c.no("NOFILEHANDLE", copy(s1, s2))
    c.ok(putfh(f1), savefh(), putfh(f2), copy(r1, s2))
    check(c.attrs(f2, "size").size, 5000)
    other = client(cred=OTHER)
    c.ok(putfh(f1), setattr_(mode=0o600))
    other.no("ACCESS", putfh(f1), savefh(), putfh(f2), copy(ANON, ANON))


def test_copy_clears_set_id_bits(p):
    c = p.c
    p.file("src", data=b"abc")
    s, f = p.file("dst")
    c.ok(putfh(f), setattr_(mode=0o6777))
    o = client(cred=OTHER)
    r, a = o.open(p.d, "src", READ, how=None)
    w, b = o.open(p.d, "dst", BOTH, how=None)
    do_copy(o, (r, a), (w, b))
    check(c.attrs(f, "mode").mode, 0o777)


def test_a_large_copy_is_asynchronous(p):
    c, data = p.c, noise(24 * MB)
    src, dst = (p.file("src", "stripes=2,unit=1M", data),
                p.file("dst", "mirrors=2,stripes=2,unit=1M"))
    answered = threading.Event()
    c.on_callback = lambda name, args: 0 if answered.wait(10) else 1
    r = do_copy(c, src, dst, synchronous=False)
    check((r.callback is not None, r.synchronous), (True, False))
    check(r.callback[0] != 0, True, "a copy stateid's seqid")
    (s, f), ended = dst, lambda: c.ok(putfh(dst[1]), offload_status(r.callback))
    c.no("NOFILEHANDLE", offload_status(r.callback))
    c.no("BAD_STATEID", putfh(src[1]), offload_status(r.callback))
    c.no("BAD_STATEID", putfh(f), offload_status((0, r.callback[1])))
    c.no("BAD_STATEID", putfh(f), offload_status(s))
    client().no("BAD_STATEID", putfh(f), offload_status(r.callback))
    c.no("BAD_STATEID", putfh(f), offload_status(r.callback), cred=USER)
    eventually(lambda: ended().complete, 20, "the end of the copy")
    got = ended()
    check((got.count, got.complete), (len(data), [0]))
    answered.set()
    cb = c.wait_callback("OFFLOAD")
    check((cb.fh, cb.stateid, cb.status, cb.count, cb.how, cb.callback),
          (f, r.callback, 0, len(data), FILE_SYNC, None))
    check(c.ok(putfh(f), commit()).verf, cb.verf, "COMMIT's verifier")
    eventually(lambda: err(c.call(putfh(f), offload_status(r.callback)).status) == "BAD_STATEID", 5,
               "the end of the stateid")
    same_everywhere(c, f, s, data)


def test_a_client_without_backchannel_copies_synchronously(p):
    data = noise(20 * MB)
    p.file("src", data=data)
    c = client(flags=0)
    src, dst = c.open(p.d, "src"), c.open(p.d, "dst")
    r = do_copy(c, src, dst, synchronous=False)
    check((r.callback, r.count, r.synchronous), (None, len(data), True))


def test_no_slot_is_held_for_hours(p):
    c, size = p.c, 1 << 42
    src, dst = p.file("src", data=b"x"), p.file("dst")
    c.ok(putfh(src[1]), setattr_(src[0], size=size))
    r = c.no("OFFLOAD_NO_REQS", putfh(src[1]), savefh(), putfh(dst[1]), copy(src[0], dst[0]))
    check((r.consecutive, r.synchronous), (True, False))
    two = client(flags=0)
    s, d = two.open(p.d, "src"), two.open(p.d, "dst")
    check(do_copy(two, s, d, synchronous=False).count, 256 * MB,
          "a short copy without a backchannel")


def test_offload_cancel_stops_a_copy(p):
    c = p.c
    src, dst = p.file("src", data=b"x"), p.file("dst", "mirrors=2")
    c.ok(putfh(src[1]), setattr_(src[0], size=4 << 30))
    r = do_copy(c, src, dst, synchronous=False)
    eventually(lambda: c.ok(putfh(dst[1]), offload_status(r.callback)).count, 10, "progress")
    check(c.ok(putfh(dst[1]), offload_status(r.callback)).complete, [])
    c.no("BAD_STATEID", putfh(src[1]), offload_cancel(r.callback))
    c.no("BAD_STATEID", putfh(dst[1]), offload_cancel(r.callback), cred=USER)
    c.ok(putfh(dst[1]), offload_cancel(r.callback))
    change = c.attrs(dst[1], "change", "size")
    c.no("BAD_STATEID", putfh(dst[1]), offload_status(r.callback))
    c.no("BAD_STATEID", putfh(dst[1]), offload_cancel(r.callback))
    time.sleep(0.3)
    check(c.attrs(dst[1], "change", "size"), change, "nothing is copied any more")
    check(change.size < 4 << 30, True)
    check(c.callbacks, [])


def test_copies_end_with_their_client(p):
    two = client()
    src = p.file("src", "mirrors=2", b"x")
    dst = two.open(p.d, "dst")
    p.c.ok(putfh(src[1]), setattr_(src[0], size=4 << 30))
    do_copy(two, (two.open(p.d, "src")[0], src[1]), dst, synchronous=False)
    Client(ADDR, owner=two.owner).drop()  # its restart
    time.sleep(0.2)
    size = p.c.attrs(dst[1], "size").size
    time.sleep(0.3)
    check((p.c.attrs(dst[1], "size").size, size < 4 << 30), (size, True))


def test_many_copies_take_turns(p):
    """Twelve large copies run. Small copies do not wait for the ends of the large ones, which are
    seconds away, or more on a slow machine."""
    c = p.c
    big, small = p.file("big", data=b"x"), p.file("small", data=noise(100000))
    c.ok(putfh(big[1]), setattr_(big[0], size=2 << 30))
    jobs = []
    for i in range(12):
        dst = p.file(f"d{i}", "mirrors=2")
        jobs.append((dst[1], do_copy(c, big, dst, synchronous=False).callback))
    for i in range(3):
        began = time.monotonic()
        check(do_copy(c, small, p.file(f"s{i}")).count, 100000)
        over = [sid for f, sid in jobs if c.ok(putfh(f), offload_status(sid)).complete]
        check(time.monotonic() - began < 5 or not over, True,
              "a small copy waited for the large ones")
    for f, sid in jobs:
        c.ok(putfh(f), offload_cancel(sid))


def test_a_mirror_that_misses_a_copy_is_stale(p):
    c, data = p.c, noise(6 * MB)
    src, (s, f) = p.file("src", "mirrors=2", data), p.file("dst", "mirrors=2", noise(MB, 2))
    name = layout_of(c, f)["mirrors"][0]["objects"][0]["ds"]
    with server_down(name):
        ops = putfh(src[1]), savefh(), putfh(f), copy(src[0], s)
        got = c.until(lambda got: err(got.status) != "DELAY", *ops, pause=0.3, timeout=60)
        check((err(got.status), got.results[-1].count), ("OK", len(data)))
        check(content(c, f, s) == data, True)
    states = {m["objects"][0]["ds"]: m["state"] for m in layout_of(c, f)["mirrors"]}
    check((states.pop(name), set(states.values())), ("stale", {"in-sync"}))
    same_everywhere(c, f, s, data)


# ---- LAYOUT_WCC (RFC 9766)


def test_layout_wcc_is_a_hint_to_look(p):
    c = p.c
    s, f, o = striped(c, p.d, "stripes=2,mirrors=2,unit=1M")
    x = o.mirrors[0][1]
    body = wcc(*[[(y, v3_attrs(MB + 5, mtime=(9, 9))) for y in m] for m in o.mirrors])
    c.ok(putfh(f), layout_wcc(o.stateid, body))
    check(c.attrs(f, "size").size, 0, "what no data server has")
    for m in o.mirrors:
        check(data_server(c, m[1]).write(m[1].fhs[0], MB, b"12345").status, 0)
    r = c.ok(putfh(f), layout_wcc(o.stateid, body), getattr_("size", "mode", "owner"))
    check((r.attrs.size, r.attrs.mode, r.attrs.owner), (MB + 5, 0o644, c.attrs(p.d, "owner").owner))
    c.ok(putfh(f), layout_wcc(o.stateid, wcc([(x, v3_attrs(5))])))
    check(c.attrs(f, "size").size, MB + 5, "it shrinks nothing")


def test_layout_wcc_tells_access_times(p):
    c = p.c
    s, f, o, ds, fh = one_server(c, p.d, iomode=IO_READ)
    x = o.mirrors[0][0]
    c.ok(putfh(f), setattr_(time_access_set=(1000, 0)))
    change = c.attrs(f, "change").change
    tell = lambda t: c.ok(putfh(f), layout_wcc(o.stateid, wcc([(x, v3_attrs(99, t, t))])))
    tell((2000, 7))
    got = c.attrs(f, "time_access", "change", "size", "time_modify")
    check((got.time_access, got.change, got.size, got.time_modify != (2000, 7)),
          ((2000, 7), change, 0, True))
    tell((1500, 0))
    check(c.attrs(f, "time_access").time_access, (2000, 7), "it goes back for nobody")
    tell((1 << 40, 0))
    check(c.attrs(f, "time_access").time_access[0] < time.time() + 5, True,
          "the future is not believed")


def test_layout_wcc_errors(p):
    c = p.c
    s, f, o = striped(c, p.d, "mirrors=2")
    x, attrs = o.mirrors[0][0], v3_attrs(5, (1, 1), (1, 1))
    good = wcc([(x, attrs)], [(o.mirrors[1][0], fattr())])
    c.ok(putfh(f), layout_wcc(o.stateid, good), layout_wcc(o.stateid, wcc()),
         layout_wcc(o.stateid, wcc([])), getattr_("size"))
    for bad in (b"", u32(1), good[:-4], good + u32(0), good[:-8] + u32(9) + u32(0)):
        c.no("BADXDR", putfh(f), layout_wcc(o.stateid, bad))
    c.no("INVAL", putfh(f), layout_wcc(o.stateid, wcc([(x, fattr(raw={3: u64(1)}))])))
    c.no("INVAL", putfh(f),
         layout_wcc(o.stateid, wcc([(x, fattr(raw={47: struct_time(1, 10**9)}))])))
    c.no("BADXDR", putfh(f), layout_wcc(o.stateid, wcc([(x, fattr(raw={4: u32(1)}))])))
    c.no("UNKNOWN_LAYOUTTYPE", putfh(f), layout_wcc(o.stateid, good, kind=1))
    for sid in (s, ANON, (1, b"\x01" * 12), (99, o.stateid[1])):
        c.no("BAD_STATEID", putfh(f), layout_wcc(sid, good))
    c.no("NOFILEHANDLE", layout_wcc(o.stateid, good))
    c.no("ISDIR", putfh(p.d), layout_wcc(o.stateid, good))
    # These name nothing that the server knows.
    for triple in ((x, attrs, b"\x01" * 32), (x, attrs, x.fhs[0], s),
                   (o.mirrors[1][0], attrs, x.fhs[0])):
        c.ok(putfh(f), layout_wcc(o.stateid, wcc([triple])))
    c.ok(putfh(f), layoutreturn(o.stateid))
    c.no("BAD_STATEID", putfh(f), layout_wcc(o.stateid, good))


def test_after_a_restart_the_copy_is_gone(p):
    c, w = p.c, harness.THE
    src, dst = p.file("src", data=b"x"), p.file("dst", "mirrors=2")
    c.ok(putfh(src[1]), setattr_(src[0], size=8 << 30))
    r = do_copy(c, src, dst, synchronous=False)
    w.restart()
    again = client()
    again.no("BAD_STATEID", putfh(dst[1]), offload_status(r.callback))
    again.no("BAD_STATEID", putfh(dst[1]), offload_cancel(r.callback))


if __name__ == "__main__":
    harness.run_shared(globals(), place, parts=2, settings=harness.CALM)
