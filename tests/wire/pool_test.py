#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Payload over TCP: the data server does not copy it, takes its memory from the pool, and answers
all calls when the pool is used up. Prints TAP."""
import contextlib
import hashlib
import os
import socket
import struct
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../wirelib"))
import harness  # noqa: E402
import tap  # noqa: E402
from harness import *  # noqa: E402,F403
from steps import data_server, one_server  # noqa: E402
from nfs41 import Reader, auth_sys, opaque, rpc_call, u32, u64  # noqa: E402

MIB = 1 << 20


def data(i, n=MIB):
    return hashlib.blake2b(b"%d" % i).digest() * (n // 64)


def counters(w, *names):
    return [w.metric(re.escape(n), "ds1") for n in names]


def write_args(fh, offset, payload, how=UNSTABLE):
    return opaque(fh) + u64(offset) + u32(len(payload)) + u32(how) + opaque(payload)


def read_args(fh, offset, n):
    return opaque(fh) + u64(offset) + u32(n)


def status(body):
    return Reader(body).u32()


def read_data(body):
    r = Reader(body)
    check(r.u32(), 0)
    if r.boolean():
        r.fixed(84)
    n, _ = r.u32(), r.boolean()
    got = r.opaque()
    check(len(got), n)
    return got


def cluster(*settings):
    if harness.THE:
        harness.THE.down()
    harness.THE = Cluster(ds=1, settings=settings)
    return harness.THE


COUNTS = ("weft_ds_copied_bytes_total", 'weft_ds_disk_io_total{path="direct"}',
          'weft_ds_disk_io_total{path="buffered"}', "weft_ds_fixed_io_total")


def test_payload_of_aligned_calls_is_not_copied(_):
    w = cluster()
    c = client()
    _, _, _, ds, fh = one_server(c, c.root())
    before = counters(w, *COUNTS)
    # The connection predicts what comes. The test varies that: users with credentials of other
    # lengths, small calls in between, several calls at a time.
    calls = []
    for i in range(64):
        cred = auth_sys(1000 + i, 1000, range(i % 3 * 5))
        calls.append(ds.conn.start(7, write_args(fh, i * MIB, data(i)), cred, vers=3))
        if i % 5 == 0:
            calls.append(ds.conn.start(1, opaque(fh), auth_sys(), vers=3))
        if i % 7 == 0:
            calls.append(ds.conn.start(6, read_args(fh, i * MIB, 4096), auth_sys(0, 0, range(7)),
                                       vers=3))
        if i % 8 == 7:
            check([status(ds.conn.finish(x)) for x in calls], [0] * len(calls))
            calls.clear()
            check(ds.commit(fh).status, 0)
    for i in range(64):
        check(ds.read(fh, i * MIB, MIB).data == data(i), True, f"megabyte {i}")
    copied, direct, buffered, fixed = [b - a for a, b in zip(before, counters(w, *COUNTS))]
    tap.say(f"{copied:.0f} of {128 * MIB} bytes of payload were copied; direct {direct:.0f}, "
            f"buffered {buffered:.0f}, fixed {fixed:.0f}")
    check(copied < 128 * MIB / 1000, True, f"{copied} bytes were copied")
    # Except the first one, of which the server knew nothing.
    check((direct >= 127, buffered, fixed >= 127), (True, 1, True))
    ds.close()


def test_sizes_from_16_KiB_on_are_predicted(_):
    w = harness.THE
    c = client()
    _, _, _, ds, fh = one_server(c, c.root(), "sizes")
    check(ds.write(fh, 0, data(0)).status, 0)
    for size in (16384, 32768, 65536, 262144):
        before = counters(w, *COUNTS)
        for i in range(40):
            check(ds.write(fh, i * size, data(i, size), UNSTABLE).status, 0)
        copied, direct, _, _ = [b - a for a, b in zip(before, counters(w, *COUNTS))]
        check((copied, direct), (0, 40), f"calls of {size} bytes")
    ds.close()


def test_a_header_that_was_not_expected_is_counted(_):
    w = harness.THE
    c = client()
    _, _, _, ds, fh = one_server(c, c.root(), "first")
    before = counters(w, *COUNTS)[0]
    check(ds.write(fh, 0, data(1)).status, 0)
    copied = counters(w, *COUNTS)[0] - before
    # Of a connection that has proved nothing, the server reads the first 64 KiB before the rest
    # has a place.
    check(0 < copied <= 65536 + 16384, True, f"{copied} bytes were copied")
    check(ds.read(fh, 0, MIB).data == data(1), True)
    ds.close()


HEAD = 28 + 4 + 88 + 12  # of a reply to READ, with its mark


def stalled_write(addr, fh):
    """Half of a WRITE, and nothing more."""
    record = rpc_call(1, 7, write_args(fh, 0, data(9)), auth_sys(), vers=3)
    s = socket.create_connection(addr, 10)
    s.sendall((u32(0x80000000 | len(record)) + record)[:MIB // 2])
    return s


def deaf_reader(addr, fh, calls, offset=0, n=MIB):
    """It asks, and reads no reply."""
    s = socket.socket()
    s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
    s.connect(addr)
    record = rpc_call(1, 6, read_args(fh, offset, n), auth_sys(), vers=3)
    with contextlib.suppress(TimeoutError):  # the server does not read it any more
        s.settimeout(1)
        s.sendall((u32(0x80000000 | len(record)) + record) * calls)
    return s


def take(s, n):
    s.settimeout(20)
    while n > 0:
        got = len(s.recv(min(n, MIB)))
        check(got > 0, True, "the connection was closed")
        n -= got


def used_up(w, threads):
    c = client()
    _, f, o, ds, fh = one_server(c, c.root())
    addr = ds.conn.sock.getpeername()
    check(ds.write(fh, 0, data(0)).status, 0)
    idle = [stalled_write(addr, fh) for _ in range(2 * threads)] + [deaf_reader(addr, fh, 24)
                                                                    for _ in range(2 * threads)]
    time.sleep(0.3)
    missed = counters(w, "weft_pool_misses_total")[0]
    others = [data_server(c, o.mirrors[0][0]) for _ in range(6)]
    for turn in range(2):
        calls = [(d, n, i, d.conn.start(7, write_args(fh, (8 + n * 6 + i) * MIB,
                                                      data(n * 6 + i + turn)), auth_sys(), vers=3))
                 for i in range(6) for n, d in enumerate(others)]
        for d, n, i, x in calls:
            check(status(d.conn.finish(x)), 0)
        calls = [(d, n, i,
                  d.conn.start(6, read_args(fh, (8 + n * 6 + i) * MIB, MIB), auth_sys(), vers=3))
                 for i in range(6) for n, d in enumerate(others)]
        for d, n, i, x in calls:
            check(read_data(d.conn.finish(x)) == data(n * 6 + i + turn), True,
                  f"megabyte {n * 6 + i}")
    missed = counters(w, "weft_pool_misses_total")[0] - missed
    tap.say(f"the pool had nothing {missed:.0f} times")
    check(missed > 0, True, "the pool was never used up")
    # The slow ones get their replies.
    for s in idle[2 * threads:]:
        take(s, 24 * (MIB + HEAD))
    for s in idle:
        s.close()
    for d in others:
        d.close()
    ds.close()
    pool_comes_back(w)


def test_all_calls_are_answered_when_the_pool_is_used_up(_):
    used_up(cluster("ds.pool=2M", "mds.pool=2M"), 1)


def test_the_same_with_more_threads(_):
    used_up(cluster("ds.pool=4M", "ds.threads=3"), 3)


def test_without_a_pool(_):
    w = cluster("ds.pool=0", "mds.pool=0")
    c = client()
    s, f, _, ds, fh = one_server(c, c.root())
    for i in range(4):
        check(ds.write(fh, i * MIB, data(i)).status, 0)
        check(ds.read(fh, i * MIB, MIB).data == data(i), True)
    check(c.ok(putfh(f), read(s, 0, 65536)).data == data(0)[:65536], True, "through the MDS")
    check(counters(w, "weft_ds_fixed_io_total", 'weft_pool_bytes{state="free"}'), [0, 0])
    ds.close()


def created_when_joined(c):
    for i in range(1200):
        try:
            return one_server(c, c.root(), f"f{i}")
        except Failed as e:
            if "DELAY" not in str(e):
                raise
            time.sleep(0.05)
    raise Failed("the data server does not come back")


def answers(w):
    try:
        return w.metric("weft_ds_fixed_io_total", "ds1") >= 0 and w.metric("weft_mds_ds_alive") == 1
    except OSError:
        return False


def test_too_little_memory_may_be_locked(_):
    w = cluster("ds.pool=8M")
    rows = json.loads(w.dev("status", w.dir, "--json"))["daemons"]
    pid = next(r["pid"] for r in rows if r["name"] == "ds1")
    with open(f"/proc/{pid}/cmdline", "rb") as f:
        words = [os.fsdecode(x) for x in f.read().split(b"\0")[:-1]]
    w.dev("kill", w.dir, "ds1", "-9")
    words[0] = os.path.join(BUILD, "weft-ds")
    log = os.path.join(w.top, "locked.log")
    with open(log, "w", encoding="utf-8") as out:
        child = subprocess.Popen(["setpriv", "--bounding-set", "-ipc_lock", "prlimit",
                                  "--memlock=1048576:1048576", *words], stderr=out)
    try:
        eventually(lambda: answers(w), 10, "the server with little memory")
        c = client()
        _, _, _, ds, fh = created_when_joined(c)
        for i in range(4):
            check(ds.write(fh, i * MIB, data(i)).status, 0)
            check(ds.read(fh, i * MIB, MIB).data == data(i), True)
        check(counters(w, "weft_ds_fixed_io_total")[0], 0)
        with open(log, encoding="utf-8") as f:
            told = [x for x in f if "RLIMIT_MEMLOCK" in x]
        check(len(told), 1)
        check("1048576 bytes, each thread needs 8388608" in told[0], True, told[0])
        ds.close()
    finally:
        child.kill()
        child.wait()


def pool_comes_back(w):
    for _ in range(1200):
        used = counters(w, 'weft_pool_bytes{state="used"}')[0]
        if not used:
            return
        time.sleep(0.05)
    raise Failed(f"{used} bytes of the pool are in use though nobody uses any")


SENDS = ("weft_rpc_zerocopy_sends_total", "weft_rpc_zerocopy_copied_total")


def test_pages_handed_to_the_kernel_come_back(_):
    w = cluster("ds.zerocopy=yes")
    c = client()
    _, _, o, ds, fh = one_server(c, c.root())
    for i in range(8):
        check(ds.write(fh, i * MIB, data(i)).status, 0)
    for turn in range(4):
        calls = [ds.conn.start(6, read_args(fh, i * MIB, MIB), auth_sys(), vers=3)
                 for i in range(8)]
        calls += [ds.conn.start(1, opaque(fh), auth_sys(), vers=3)]
        for i, x in enumerate(calls[:8]):
            check(read_data(ds.conn.finish(x)) == data(i), True, f"megabyte {i}, turn {turn}")
        check(status(ds.conn.finish(calls[8])), 0)
    sends = counters(w, *SENDS)[0]
    check(sends >= 8, True, f"{sends} sends")
    # Peers that vanish while their replies are on the way.
    for i in range(6):
        s = deaf_reader(ds.conn.sock.getpeername(), fh, 12)
        if i % 2:
            s.recv(100000)
            s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        time.sleep(0.02)
        s.close()
    check(read_data(ds.conn.finish(ds.conn.start(6, read_args(fh, 0, MIB), auth_sys(), vers=3)))
          == data(0), True)
    pool_comes_back(w)
    ds.close()


def test_what_nobody_acknowledges_is_not_the_others_memory(_):
    """Many clients read most of what they have asked for, and no more, so that the server has sent
    all of it. The last of it, and what went out along with it, is in the kernel."""
    w = cluster("ds.pool=2M", "mds.pool=2M", "ds.zerocopy=yes")
    c = client()
    _, _, o, ds, fh = one_server(c, c.root())
    addr = ds.conn.sock.getpeername()
    for i in range(2):
        check(ds.write(fh, i * MIB, data(i)).status, 0)
    # The second size takes a buffer of twice as much.
    for n in (MIB, MIB // 2 + 4096):
        idle = []
        for i in range(24):
            idle.append(deaf_reader(addr, fh, 24, 0, n))
            take(idle[-1], 24 * (n + HEAD) - 2 * MIB)
        started = time.monotonic()
        others = [data_server(c, o.mirrors[0][0]) for _ in range(4)]
        for d in others:
            calls = [d.conn.start(6, read_args(fh, MIB, MIB), auth_sys(), vers=3) for _ in range(6)]
            for x in calls:
                check(read_data(d.conn.finish(x)) == data(1), True)
        tap.say(f"reads beside {len(idle)} deaf readers of {n} bytes took "
                f"{time.monotonic() - started:.2f} s")
        for s in idle:
            take(s, 2 * MIB)
            s.close()
        for d in others:
            d.close()
    pool_comes_back(w)
    ds.close()


def test_short_replies_do_not_take_all_memory(_):
    """Reads at the end of a file, for much more than there is."""
    w = cluster("ds.pool=2M", "mds.pool=2M")
    c = client()
    _, _, o, ds, fh = one_server(c, c.root())
    addr = ds.conn.sock.getpeername()
    check(ds.write(fh, 0, data(0)).status, 0)
    s = deaf_reader(addr, fh, 80000, MIB - 4)
    d = data_server(c, o.mirrors[0][0])
    for _ in range(4):
        check(read_data(d.conn.finish(d.conn.start(6, read_args(fh, 0, MIB), auth_sys(), vers=3)))
              == data(0), True)
    s.close()
    d.close()
    pool_comes_back(w)
    ds.close()


def test_auto_stops_where_the_kernel_copies(_):
    w = cluster()
    c = client()
    _, _, _, ds, fh = one_server(c, c.root())
    check(ds.write(fh, 0, data(0)).status, 0)
    for _ in range(20):
        check(ds.read(fh, 0, MIB).data == data(0), True)
    sends, copied = counters(w, *SENDS)
    tap.say(f"{sends:.0f} sends without a copy on loopback, {copied:.0f} were copied")
    # Loopback copies; a kernel that cannot say so (before 6.2) refuses the first one.
    check((1 <= sends <= 3, copied <= sends), (True, True), f"{sends} sends, {copied} copied")
    pool_comes_back(w)
    ds.close()


@contextlib.contextmanager
def around(name):
    with harness.clients():
        yield (None,)


if __name__ == "__main__":
    try:
        tap.run(tap.named(globals()), around)
    finally:
        harness.down()
