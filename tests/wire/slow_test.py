#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""A slow or dead client or data server delays no other, and takes no more memory than its share.
Prints TAP."""
import os
import select
import signal
import socket
import statistics
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../wirelib"))
import harness  # noqa: E402
import tap  # noqa: E402
from harness import *  # noqa: E402,F403
from steps import data_server, lay  # noqa: E402
from files import holder  # noqa: E402
from load import SANITIZED, Pace, Slots, Watch, anon, raw_call  # noqa: E402
from nfs41 import err, op  # noqa: E402

MIB = 1 << 20


def pid_of(w, name):
    return next(r["pid"] for r in json.loads(w.dev("status", w.dir, "--json"))["daemons"]
                if r["name"] == name)


def done(w, name):
    return int(w.metric(r'weft_mds_op_total{op="%s"}' % name))


def deaf(addr=ADDR):
    """A connection whose peer reads nothing."""
    s = socket.socket()
    s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
    s.connect(addr)
    s.setblocking(False)
    return s


def pour(s, data, most, patience=0.4):
    """Sends data(i) until most are sent, or the peer takes no more for a while. Returns how many
    went out whole."""
    for i in range(most):
        left = data(i)
        while left:
            if not select.select([], [s], [], patience)[1]:
                return i
            left = left[s.send(left):]
    return most


def test_a_client_that_does_not_read_its_replies(w):
    pace = Pace()
    c = client()
    d = c.mkdir(c.root(), "wide")
    for i in range(120):
        c.ok(putfh(d), create(FIFO, f"an entry with a longer name {i:4}", mode=0o600))
    s, f = c.open(d, "data")
    c.ok(putfh(f), write(s, 0, bytes(MIB)), commit())
    before, pid = pace.run(), pid_of(w, "mds")
    memory = anon(pid)
    lists = deaf()
    seq = c.slots[5]
    taken = done(w, "READDIR")
    sent = pour(lists,
                lambda i: raw_call(i, sequence(c.session.sessionid, seq + 1 + i, 5, 5), putfh(d),
                                   readdir(attrs=("type", "size", "change"), maxcount=30000)), 5000)
    taken, grown = done(w, "READDIR") - taken, anon(pid) - memory
    tap.say(f"READDIR: {taken} of {sent} calls were taken of a client that reads nothing, "
            f"{grown / MIB:.1f} MiB")
    check(100 < taken < 2500, True, f"{taken} calls were taken")
    pace.beside("one reads no READDIR", before)
    # 4 MiB of replies wait, and 256 calls may be under way then, with a buffer of 24 KiB each
    # (RPC_MAX_QUEUED, RPC_MAX_CALLS): the more the busier the machine is.
    check(SANITIZED or grown < 4 * MIB + 256 * (24 << 10), True, f"{grown / MIB:.1f} MiB")
    # READ: a megabyte each, and as many at a time as the slots allow.
    many = Slots(1024, owner=c.owner, verifier=c.verifier)
    n = many.granted
    while n < 256:
        n = many.told(n - 1)[0]
    memory, taken = anon(pid), done(w, "READ")
    reads = deaf()
    sent = pour(reads, lambda i: raw_call(i, sequence(many.c.session.sessionid, many.seqs.get(i, 0)
                                                      + 1, i, 255), putfh(f), read(s, 0, MIB)), 256)
    # Until the server has taken none for a while.
    most, last, since = 0, -1, time.monotonic()
    while time.monotonic() < since + 3:
        pace.turn()
        most = max(most, anon(pid) - memory)
        if done(w, "READ") != last:
            last, since = done(w, "READ"), time.monotonic()
    tap.say(f"READ: {done(w, 'READ') - taken} of {sent} calls of 1 MiB were taken, "
            f"{most / MIB:.1f} MiB of memory")
    pace.beside("one reads no READ", before)
    # More than the 4 MiB that other replies get, and no more than 32 MiB and the kernel's buffers.
    # How many come in beside those that are under way depends on how busy the machine is.
    check((sent, 8 < done(w, "READ") - taken < 60), (256, True))
    check(SANITIZED or most < 48 * MIB, True, f"{most / MIB:.1f} MiB")
    lists.close()
    reads.close()


def flood(addr, n, call):
    """A process: sends call(i, k) on n connections i from addr, for k = 0, 1.., as fast as they go,
    and reads what comes back."""
    child = os.fork()
    if child:
        return child
    try:
        poll, left = select.epoll(), {}
        for i in range(n):
            s = socket.create_connection(ADDR, 60, (addr, 0))
            s.setblocking(False)
            poll.register(s.fileno(), select.EPOLLIN | select.EPOLLOUT)
            left[s.fileno()] = [s, i, 0, b""]
        while True:
            for fd, what in poll.poll():
                one = left[fd]
                if what & select.EPOLLIN:
                    one[0].recv(1 << 20)
                if what & select.EPOLLOUT:
                    if not one[3]:
                        one[3] = memoryview(b"".join(call(one[1], one[2] + k) for k in range(40)))
                        one[2] += 40
                    one[3] = one[3][one[0].send(one[3]):]
    finally:
        os._exit(0)


def pipelined(c, fh, n, slot=5):
    """Sends n calls of a client at once, on a connection of their own, and waits for all
    replies."""
    seq, s = c.slots[slot], socket.create_connection(ADDR, 60)
    calls = b"".join(raw_call(i, sequence(c.session.sessionid, seq + 1 + i, slot, len(c.slots) - 1),
                              putfh(fh), getattr_("type")) for i in range(n))
    with s, s.makefile("rb") as replies:
        s.settimeout(60)
        s.sendall(calls)
        for i in range(n):
            body = replies.read(int.from_bytes(replies.read(4), "big") & 0x7fffffff)
            check((int.from_bytes(body[:4], "big"), body[24:28]), (i, u32(0)), "a reply")
    c.slots[slot] += n


def test_a_flood_on_many_connections(w):
    """Calls of 60 operations, as fast as the server takes them. One address has one turn, however
    many connections it has."""
    pace = Pace()
    c = client(source=("127.0.0.9", 0))
    d = c.mkdir(c.root(), "flooded")
    c.mkdir(d, "d")
    steps = [putfh(d)] + [lookup("d"), lookupp()] * 29
    many = Slots(1024, ops=64, owner=b"flood", source=("127.0.0.9", 0))
    n = many.granted
    while n < 256:
        n = many.told(n - 1)[0]
    before = pace.run()
    one = raw_call(1, sequence(many.c.session.sessionid, 0, 0, 255), *steps)
    at = one.index(many.c.session.sessionid) + 16
    seqs = {slot: many.seqs.get(slot, 0) for slot in range(200)}

    def call(slot, k):
        return one[:at] + u32(seqs[slot] + 1 + k) + u32(slot) + one[at + 8:]
    child = flood("127.0.0.9", 200, call)
    try:
        eventually(lambda: done(w, "LOOKUPP") > 29 * 2000, 20, what="the flood")
        taken = done(w, "LOOKUPP")
        pipelined(pace.c, pace.f, 400)
        taken = (done(w, "LOOKUPP") - taken) // 29
        # Calls that run while the test asks for the numbers come on top. Without turns of addresses
        # each connection would do one for each: 200.
        tap.say(f"{taken} calls of a flood on 200 connections were taken, besides 400 of another "
                "address")
        check(100 < taken < 400 * 64 + 10000, True, f"{taken} calls")
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    pace.beside("after the flood", before)


def test_readers_of_a_data_server_that_do_not_read_their_replies(w):
    c = client()
    d = c.mkdir(c.root(), "data")
    s, f = c.open(d, "f")
    c.ok(putfh(f), write(s, 0, bytes(MIB)), commit())
    x = lay(c, f, s).mirrors[0][0]
    ds, pid = data_server(c, x), pid_of(w, holder(c, f))
    memory, watch = anon(pid), Watch(pid)
    call = rpc_call(1, 6, opaque(x.fhs[0]) + u64(0) + u32(MIB), auth_sys(), vers=3)
    silent = [deaf(ds.conn.sock.getpeername()) for _ in range(24)]
    for one in silent:
        check(pour(one, lambda i: u32(0x80000000 | len(call)) + call, 50), 50)
    for _ in range(4):  # other programs run on the machine
        took = []
        for _ in range(30):
            watch.start()
            check(ds.read(x.fhs[0], 0, 4096).count, 4096)
            took.append(watch.took())
        if max(took) < 2:
            break
    grown = (anon(pid) - memory) / MIB
    tap.say(f"READ beside 1,200 whose replies are not read: {statistics.median(took) * 1000:.1f} "
            f"ms, {grown:.0f} MiB")
    check(max(took) < 2, True, f"{max(took):.1f} s")
    check(SANITIZED or 64 < grown < 240, True, f"{grown:.0f} MiB")
    for one in silent:
        one.close()


def test_a_client_that_sends_half_of_a_record(w):
    pace = Pace()
    before, memory = pace.run(), anon(pid_of(w, "mds"))
    call = raw_call(1, sequence(pace.c.session.sessionid, 1))
    halves = [deaf() for _ in range(90)]
    for i, s in enumerate(halves):
        s.send((call[:len(call) // 2], call[:3], u32(0x80000000 | MIB) + call[4:])[i % 3])
    pace.beside("90 halves of records", before)
    grown = anon(pid_of(w, "mds")) - memory
    check(SANITIZED or grown < 4 * MIB, True, f"{grown / MIB:.1f} MiB")
    for s in halves:
        s.close()


def test_a_client_that_does_not_answer_recalls(w):
    pace, c, two = Pace(), client(), client()
    d = c.mkdir(c.root(), "recalled")
    files = []
    for i in range(30):
        s, f = c.open(d, f"f{i}")
        lay(c, f, s)
        files.append(f)
    before = pace.run()
    # The kernel takes the recalls, and no client ever answers.
    c.on_callback = lambda name, args: time.sleep(60)
    watch = Watch(pid_of(w, "mds"))
    started = [two.begin(putfh(f), setattr_(ANON, size=1)) for f in files[:12]]
    pace.beside("recalls are not answered", before)
    for one in started:
        got = two.finish(one)
        check(err(got.status) in ("OK", "DELAY"), True, err(got.status))
    took = watch.took()
    tap.say(f"12 truncations past a client that is silent took {took:.1f} s; the deadline is 1 s")
    check(took < 4, True, f"{took:.1f} s")
    for f in files[:12]:
        two.until(lambda got: err(got.status) != "DELAY", putfh(f), setattr_(ANON, size=1))
    # The other clients' layouts are as they were.
    pace.beside("after the recalls", before)
    c.drop()


def test_a_data_server_that_stands_still(w):
    pace, c, two = Pace(), client(), client()
    d = c.mkdir(c.root(), "striking")
    files = {}
    for i in range(24):
        s, f = c.open(d, f"f{i}")
        c.ok(putfh(f), write(s, 0, b"x" * 1000, FILE_SYNC))
        files.setdefault(holder(c, f), []).append((s, f, f"f{i}"))
    check(len(files), 4, "servers that hold the files")
    name, stopped = min(files.items())
    live = [f for n, fs in files.items() if n != name for f in fs]
    before, pid = pace.run(), pid_of(w, name)
    watch = Watch(pid_of(w, "mds"), *(pid_of(w, n) for n in files if n != name))

    def rounds(n):
        for k in range(n):
            s, f, _ = live[k % len(live)]
            watch.start()
            c.ok(putfh(f), write(s, 0, b"y" * 1000, FILE_SYNC))
            check(c.ok(putfh(f), read(s, 0, 2)).data, b"yy")
            yield watch.took()
    io = statistics.median(rounds(40))
    stand_still(pid)
    try:
        # Asked of the server that stands still: they wait, each for itself.
        waiting = [two.begin(putfh(f), read(ANON, 0, 10)) for s, f, n in stopped[:3]]
        waiting += [two.begin(putfh(stopped[0][1]), write(ANON, 0, b"z", FILE_SYNC))
                    for _ in range(2)]
        pace.beside("a data server stands still", before)
        for _ in range(3):
            now = list(rounds(40))
            if statistics.median(now) < 8 * io + 0.02 and max(now) < 1.5:
                break
        tap.say(f"WRITE and READ at the others: {statistics.median(now) * 1000:.1f} ms, before "
                f"{io * 1000:.1f}, longest {max(now) * 1000:.0f}")
        check(statistics.median(now) < 8 * io + 0.02 and max(now) < 1.5, True, f"{now}")
        # Names need no data server: what it holds is removed, and new files are made and opened.
        for s, f, n in stopped[3:]:
            watch.start()
            c.ok(putfh(f), close(s), putfh(d), remove(n))
            check(watch.took() < 1, True, "REMOVE waited")
        watch.start()
        for i in range(20):
            c.open(d, f"new{i}")
        check(watch.took() < 2, True, "OPEN waited")
    finally:
        os.kill(pid, signal.SIGCONT)
    for one in waiting:
        check(err(two.finish(one).status) in ("OK", "DELAY", "IO"), True)
    for s, f, n in stopped[:3]:
        got = two.until(lambda got: err(got.status) != "DELAY", putfh(f), read(ANON, 0, 4),
                        tries=200)
        check(err(got.status), "OK")


if __name__ == "__main__":
    harness.run_shared(globals(), settings=harness.CALM)
