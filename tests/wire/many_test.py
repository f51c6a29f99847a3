#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Many clients: what each one costs, that none slows another, and that the server gets all of it
back. Slot tables grow and shrink. Prints TAP.

There are 2,000 clients on as many connections, 10,000 with WEFT_SOAK=1 or MANY_CLIENTS=10000, and
500 with a build that has sanitizers. The test does not judge the memory of such a build.
"""
import glob
import os
import resource
import select
import socket
import statistics
import struct
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../wirelib"))
import harness  # noqa: E402
import tap  # noqa: E402
from harness import *  # noqa: E402,F403
from load import SANITIZED, Slots, anon, mds_pid  # noqa: E402
from nfs41 import err, op  # noqa: E402

CLIENTS_N = int(os.environ.get("MANY_CLIENTS")
                or (500 if SANITIZED else 10000 if os.environ.get("WEFT_SOAK") else 2000))
# Bounds of the daemon's memory in bytes: for a client with its session, an open and a layout, and
# for its connection. Memory of the kernel does not count.
STATE_MAX, CONN_MAX = 4500, 2000
WINDOW = 400
# While the clients end, another client waits no longer than this many seconds for the answer to a
# SEQUENCE. It is 0.15 s with 10,000; the rest is for a machine that runs other tests beside this
# one. GONE_MAX bounds the processor time of the daemon.
WAIT_MAX = 8.0 if SANITIZED else 2.0
# Seconds of the daemon, from a client's lease's end to its files having been judged.
GONE_MAX = 0.002 if SANITIZED else 0.0006


class Swarm:
    """Clients with a session each, in one thread, at first on a few connections. each() has every
    client do one COMPOUND, with WINDOW of them under way at a time."""

    def __init__(self, n, tag):
        self.n, self.tag = n, tag
        self.ids, self.sessions, self.seqs, self.fhs, self.sids = ([0] * n, [b""] * n, [0] * n,
                                                                   [b""] * n, [None] * n)
        self.poll = select.epoll()
        self.socks, self.rest, self.by_fd = [], [b""] * n, {}
        self.connect(min(n, 50))
        self.meanwhile, self.every, self.at = None, 0, 0

    def connect(self, n):
        while len(self.socks) < n:
            s = socket.create_connection(ADDR, 60)
            s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.by_fd[s.fileno()] = len(self.socks)
            self.socks.append(s)
            self.poll.register(s.fileno(), select.EPOLLIN)

    def close(self):
        self.poll.close()
        for s in self.socks:
            s.close()

    def each(self, make, take, who=None):
        """make(i): operations. take(i, compound). Returns how many got an answer."""
        todo, out, done = list(range(self.n) if who is None else who)[::-1], 0, 0
        while todo or out:
            if self.meanwhile and time.monotonic() > self.at + self.every:
                self.at = time.monotonic()
                self.meanwhile()
            while todo and out < WINDOW:
                i = todo.pop()
                record = rpc_call(0x1000000 + i, 1, compound_args(make(i)), auth_sys())
                self.socks[i % len(self.socks)].sendall(u32(0x80000000 | len(record)) + record)
                out += 1
            events = self.poll.poll(60)
            if not events:
                raise Failed(f"{out} calls are not answered")
            for fd, _ in events:
                for xid, body in self.records(self.by_fd[fd]):
                    take(xid - 0x1000000, read_compound(body))
                    out -= 1
                    done += 1
        return done

    def records(self, k):
        got = self.socks[k].recv(262144)
        if not got:
            raise Failed(f"connection {k} was closed")
        data = self.rest[k] + got
        while (len(data) >= 4
               and len(data) >= 4 + (size := struct.unpack_from(">I", data)[0] & 0x7fffffff)):
            yield struct.unpack_from(">I", data, 4)[0], data[28:4 + size]
            data = data[4 + size:]
        self.rest[k] = data

    def ok(self, i, c):
        if c.status:
            raise Failed(f"client {i}: {c.results[-1].op}: {err(c.status)}")
        return c.results

    def in_session(self, ops, take=None, who=None):
        def make(i):
            self.seqs[i] += 1
            return [sequence(self.sessions[i], self.seqs[i], 0, 0, True), *ops(i)]
        return self.each(make, lambda i, c: take(i, self.ok(i, c)) if take else self.ok(i, c), who)

    def begin(self):
        def born(i, c):
            r = self.ok(i, c)[0]
            self.ids[i] = r.clientid, r.seq
        self.each(lambda i: [exchange_id(b"%s %d of a swarm" % (self.tag, i), b"verifier")], born)

        def joined(i, c):
            self.sessions[i] = self.ok(i, c)[0].sessionid
        self.each(lambda i: [create_session(*self.ids[i])], joined)
        return self.in_session(lambda i: [reclaim_complete()])

    def open(self, d):
        def opened(i, r):
            self.sids[i], self.fhs[i] = r[2].stateid, r[3].fh
        n = self.in_session(lambda i: [putfh(d), open_(f"{self.tag.decode()}{i}", BOTH | NO_DELEG,
                                                       how=GUARDED, attrs={"mode": 0o600}),
                                       getfh()], opened)

        def laid(i, r):
            check(len(r[2].layouts), 1)
        self.in_session(lambda i: [putfh(self.fhs[i]), layoutget(self.sids[i])], laid)
        return n

    def renew(self):
        return self.in_session(lambda i: [])


def clients_known(w):
    return json.loads(w.dev("status", w.dir, "--json")), w.metric("weft_mds_slots")


def busy(pid):
    """Seconds of processor time that its threads have had."""
    total = 0
    for path in glob.glob(f"/proc/{pid}/task/*/schedstat"):
        with open(path, encoding="ascii") as f:
            total += int(f.read().split()[0])
    return total / 1e9


def pace(c, d, pid, name, n=150):
    """Measures a lone SEQUENCE and a create: the seconds of the daemon's processor time, which
    other work of the machine hardly changes, and the median time of a reply."""
    def one(*ops):
        began = time.perf_counter()
        c.ok(*ops)
        return time.perf_counter() - began

    def many(ops):
        before = busy(pid)
        took = statistics.median(one(*ops(i)) for i in range(n))
        return (busy(pid) - before) / n, took
    return (many(lambda i: [putrootfh()]),
            many(lambda i: [putfh(d), create(FIFO, b"%s%d" % (name, i), mode=0o600)]))


def test_each_client_costs_little_and_slows_nobody(w):
    # Longer than it takes to start them all, on a machine that is loaded ten times over.
    lease = 60
    w.dev("down", w.dir)
    w.dev("up", w.dir, "--set", f"mds.lease={lease}s", "--set", "mds.courtesy=0s", "--set",
          "mds.sync=false")
    c = client()
    d = c.mkdir(c.root(), "many")
    pid = mds_pid(w)
    few = Swarm(10, b"few")
    few.begin()
    few.open(d)
    alone = pace(c, d, pid, b"alone")
    # What WINDOW calls at a time take once is not memory of a client; nor is the metrics' text.
    bare = w.metric("weft_mds_slots")
    warm = Swarm(WINDOW, b"warm")
    check((warm.begin(), warm.open(d)), (WINDOW, WINDOW))
    kept0, slots0 = w.metric("weft_mds_kept_bytes"), w.metric("weft_mds_slots")
    at0 = anon(pid)
    many = Swarm(CLIENTS_N, b"n")
    # The others keep their leases, however long this takes.
    many.meanwhile, many.every = lambda: (few.renew(), warm.renew(), c.ok()), lease / 4
    check(many.begin(), CLIENTS_N)
    check((few.renew(), warm.renew()), (10, WINDOW))
    check(many.open(d), CLIENTS_N)
    check((few.renew(), warm.renew()), (10, WINDOW))
    at1 = anon(pid)
    many.connect(CLIENTS_N)
    check((many.renew(), few.renew(), warm.renew()), (CLIENTS_N, 10, WINDOW))
    at2, kept, slots = anon(pid), w.metric("weft_mds_kept_bytes"), w.metric("weft_mds_slots")
    check(w.metric("weft_rpc_connections") >= CLIENTS_N, True)
    crowd = pace(c, d, pid, b"crowd")
    check((many.renew(), few.renew(), warm.renew()), (CLIENTS_N, 10, WINDOW))
    per_client, per_conn = (at1 - at0) / CLIENTS_N, (at2 - at1) / (CLIENTS_N - 50)
    tap.say(f"{CLIENTS_N} clients on as many connections: {per_conn:.0f} bytes of memory a "
            f"connection, {per_client:.0f} bytes a client with a "
            f"session, an open and a layout; {(kept - kept0) / CLIENTS_N:.0f} of them for slots "
            "and kept replies")
    for what, a, b in zip(("SEQUENCE and PUTROOTFH", "CREATE"), alone, crowd):
        tap.say(f"{what}: {a[0] * 1e6:.0f} us of the daemon with 10 clients, {b[0] * 1e6:.0f} us "
                f"with {CLIENTS_N}; as the client sees it {a[1] * 1e6:.0f} and {b[1] * 1e6:.0f} us")
        if b[0] > 4 * a[0] + 300e-6:
            raise Failed(f"{what} takes {b[0] * 1e6:.0f} us of the daemon with {CLIENTS_N} "
                         f"clients, {a[0] * 1e6:.0f} us with 10")
    check(slots - slots0, CLIENTS_N, "slots in use")
    if not SANITIZED and (per_conn > CONN_MAX or per_client > STATE_MAX):
        raise Failed(f"a connection costs {per_conn:.0f} bytes (bound {CONN_MAX}), a client "
                     f"{per_client:.0f} (bound {STATE_MAX})")
    # The clients fall silent and their leases end. The server gets all of it back, while
    # others go on.
    for swarm in (many, few, warm):
        swarm.close()
    ended, used, longest = time.monotonic(), busy(pid), 0
    while w.metric("weft_mds_slots") > bare:
        for _ in range(10):  # the metrics would be most of what the daemon does meanwhile
            began = time.perf_counter()
            c.ok(putrootfh())
            longest = max(longest, time.perf_counter() - began)
            time.sleep(0.1)
        if time.monotonic() - ended > 3 * lease + 20:
            raise Failed(f"{w.metric('weft_mds_slots')} slots are still there")
    used = (busy(pid) - used) / (CLIENTS_N + WINDOW)
    tap.say(f"all were gone {time.monotonic() - ended:.1f} s after they fell silent, the lease is "
            f"{lease} s; {used * 1e6:.0f} us of the daemon each; the longest that another waited: "
            f"{longest * 1e3:.0f} ms")
    if longest > WAIT_MAX:
        raise Failed(f"another waited {longest:.1f} s while {CLIENTS_N} clients ended")
    if used > GONE_MAX:
        raise Failed(f"the end of a client takes {used * 1e6:.0f} us of {CLIENTS_N}")
    eventually(lambda: w.metric("weft_rpc_connections") < 20, what="the end of their connections")
    most, until = at0 + (at2 - at0) // 3 + (11 << 19), time.monotonic() + 60
    while anon(pid) > most and time.monotonic() < until and not SANITIZED:
        time.sleep(0.1)
    tap.say(f"memory: {at0 >> 10} KiB before, {at2 >> 10} KiB with them, {anon(pid) >> 10} "
            "KiB after")
    if anon(pid) > most and not SANITIZED:
        raise Failed("it did not come back")


def test_courteous_clients(w):
    """Many clients whose leases ran out keep their state while no other client needs it. A client
    whose state is in the way loses it, and no other client does."""
    n, lease = 300, 4
    w.dev("down", w.dir)
    w.dev("up", w.dir, "--set", f"mds.lease={lease}s", "--set", "mds.courtesy=600s")
    c = client()
    d = c.mkdir(c.root(), "court")
    many = Swarm(n, b"court")
    # It has nothing open: no courtesy would keep it.
    many.meanwhile, many.every = lambda: c.ok(putrootfh()), lease / 4
    check((many.begin(), many.open(d)), (n, n))
    slots = w.metric("weft_mds_slots")
    for _ in range(3 * lease + 2):
        time.sleep(1)
        c.ok(putrootfh())
    check(w.metric("weft_mds_slots") >= slots, True, "their sessions")
    in_way = [7, 130, 299]
    for i in in_way:
        got = c.until(lambda got: err(got.status) != "DELAY", putfh(d),
                      open_(f"court{i}", READ | NO_DELEG, owner=b"o", deny=2))
        check(err(got.status), "OK", f"the open that client {i} stood in the way of")
    rest = [i for i in range(n) if i not in in_way]
    check(many.in_session(lambda i: [putfh(many.fhs[i]), write(many.sids[i], 0, b"mine")],
                          who=rest), n - len(in_way), "the others use what they had")
    lost = []
    many.each(lambda i: [sequence(many.sessions[i], many.seqs[i] + 1)],
              lambda i, got: lost.append((i, err(got.status))), in_way)
    check(sorted(lost), [(i, "BADSESSION") for i in in_way])
    many.close()


def test_connections_come_and_go(w):
    """A session lives on whatever connections there are. A connection that breaks loses only
    replies, and a retry gets those."""
    c = client()
    d = c.mkdir(c.root(), "go")
    base = w.metric("weft_rpc_connections")
    for i in range(150):
        conn = c.connection()
        slot = i % 3
        c.slots[slot] += 1
        seq = sequence(c.session.sessionid, c.slots[slot], slot, 2, True)
        ops = seq, putfh(d), create(FIFO, f"n{i}", mode=0o600), getfh()
        if i % 3 == 0:  # the connection breaks before its reply
            conn.start(1, compound_args(ops), auth_sys())
            if i % 2:
                time.sleep(0.002)
            conn.close()
            conn = c.connection()
            eventually(lambda: err(conn.compound(*ops).status) != "DELAY",
                       what="the end of the first")
        got = conn.compound(*ops)  # and a retry in any case
        check((err(got.status), len(got.results)), ("OK", 4), f"create {i}")
        check(got.results[3].fh, c.ok(putfh(d), lookup(f"n{i}"), getfh(), conn=conn).fh)
        conn.close()
    check(len(c.readdir_all(d)), 150)
    eventually(lambda: w.metric("weft_rpc_connections") <= base, what="the end of the connections")
    # The first is still the one for callbacks.
    check(c.ok(putrootfh()) and c.status_flags, 0)


def test_trunking(w):
    """One client by two addresses (RFC 8881 section 2.10.5) finds the same server and is the same
    client. One session has connections to both, and two sessions work too."""
    c = client()
    d = c.mkdir(c.root(), "trunk")
    second = c.connection()
    got = second.compound(exchange_id(c.owner, c.verifier)).results[0]
    check((got.clientid, got.scope, got.major_id, got.minor_id, got.flags & 0x80000000 != 0),
          (c.clientid, c.eid.scope, c.eid.major_id, c.eid.minor_id, True))
    check(err(second.compound(bind_conn(c.session.sessionid, 3)).status), "OK")
    s, f = c.open(d, "f")
    c.ok(putfh(f), write(s, 0, b"one way", FILE_SYNC))
    check(c.ok(putfh(f), read(s, 0, 9), conn=second).data, b"one way")
    other = second.compound(create_session(got.clientid, c.cs_seq)).results[0]
    # State is the client's, not the session's.
    r = second.compound(sequence(other.sessionid, 1), putfh(f), read(s, 0, 9), close(s))
    check((err(r.status), r.results[2].data), ("OK", b"one way"))
    c.no("BAD_STATEID", putfh(f), read(s, 0, 1))
    check(err(second.compound(destroy_session(other.sessionid)).status), "OK")
    c.ok(putrootfh(), conn=second)


def test_a_session_that_uses_its_last_slots_gets_more(w):
    before = w.metric("weft_mds_slots")
    s = Slots(64)
    check(s.granted, 16)
    check(s.told(0), (16, 16))
    s.send(16, want="BADSLOT")
    check(s.told(14), (16, 16))
    check(s.told(15), (32, 32))
    s.send(32, want="BADSLOT")
    check(s.told(31), (64, 64))
    check(s.told(63), (64, 64), "more than was asked for")
    s.send(64, want="BADSLOT")
    check(w.metric("weft_mds_slots") - before, 5, "slots that were used")
    small = Slots(3)
    check((small.granted, small.told(2)), (3, (3, 3)))
    most = Slots(5000)
    n = most.granted
    while (told := most.told(n - 1)[0]) != n:
        n = told
    check(n, 1024)


def test_slots_not_needed_go_when_the_client_knows(w):
    before = w.metric("weft_mds_slots")
    s = Slots(64)
    for slot in range(16):
        s.send(slot, putrootfh(), cache=True)
    s.send(6)
    s.send(7)
    check(s.told(0), (32, 32))
    time.sleep(2.2)  # a lease
    s.send(1)        # ends the time in which the client needed all
    time.sleep(2.2)
    # The server said it, and the client does not know it yet: all must still be there.
    check(s.told(0), (32, 4))
    s.send(15, putrootfh(), again=True, cache=True)
    check(s.told(1), (32, 4), "by a slot that did not tell it")
    check(s.told(0, highest=9), (32, 4), "with a request outstanding above")
    check(w.metric("weft_mds_slots") - before, 16)
    check(s.told(0), (4, 4))
    check(w.metric("weft_mds_slots") - before, 4)
    s.send(4, want="BADSLOT")
    s.send(15, want="BADSLOT", again=True)
    # When it is used again it grows again. A slot that was gone begins at 1, or at the number that
    # the client kept: Linux may keep it, and would try its next number for ever.
    check(s.told(3), (8, 8))
    s.send(7, again=True, want="SEQ_MISORDERED")
    s.seqs[7] += 1
    s.send(7, want="SEQ_MISORDERED")
    s.seqs[7] = 0
    check(s.told(7), (16, 16))
    s.seqs[7] = 0
    s.send(7, again=True, want="SEQ_MISORDERED")
    s.send(6)
    check(s.seqs[6], 3)
    s.send(6, again=True)


def test_kept_replies_have_a_limit(w):
    w.dev("down", w.dir)
    # Time enough to fill it before the first slots are asked back: the server asks every lease / 8.
    w.dev("up", w.dir, "--set", "mds.reply_cache=1M", "--set", "mds.lease=160s")
    c = client()
    d = c.mkdir(c.root(), "d")
    c.ok(putfh(d), setxattr("big", bytes(14000)))
    ask = putfh(d), getxattr("big")
    one, others = Slots(1024), [Slots(1024) for _ in range(10)]
    slot, n = 1, 0
    while err(one.c.conn.compound(sequence(one.c.session.sessionid, 1, slot, slot, True),
                                  *ask).status) == "OK":
        one.seqs[slot] = 1
        slot, n = slot + 1, one.told(0)[0]
        if slot > 500:
            raise Failed("one session keeps without limit")
    check(20 < slot < 80, True, f"{slot} replies were kept")
    tap.say(f"{slot} replies of 14 KB were kept, {w.metric('weft_mds_kept_bytes') / 1024:.0f} KiB, "
            f"and {n} slots granted")
    for s in [one, *others]:
        for k in range(3):
            for slot in (0, 1):
                s.send(slot, *ask, cache=True)
    full = w.metric("weft_mds_kept_bytes")
    check((1 << 20) < full < (1 << 20) + 12 * 2 * 16384, True,
          f"{full} bytes are kept, the limit is 1 MiB")
    one.send(9, *ask, cache=True, want="DELAY")
    one.send(9, *ask)
    others[0].send(9, *ask, cache=True)
    # The server asks it for half of its slots every lease / 8, until the kept replies are under
    # half of the limit.
    until = time.monotonic() + 120
    while w.metric("weft_mds_kept_bytes") > 1 << 19:
        if time.monotonic() > until:
            raise Failed(f"{w.metric('weft_mds_kept_bytes')} bytes are kept, {one.told(0)}")
        time.sleep(0.2)
        one.told(0)
    check(2 <= one.told(0)[1] <= 32, True)


def main():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    global CLIENTS_N
    if CLIENTS_N > hard - 200:
        tap.say(f"only {hard} files may be open: {hard - 200} clients, not {CLIENTS_N}")
        CLIENTS_N = hard - 200
    harness.run_apart(globals(), beside=1)  # it measures


if __name__ == "__main__":
    main()
