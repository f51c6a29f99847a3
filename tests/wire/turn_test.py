#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""What the connections of one address share (docs/security.md, "Limits"): a rate, and calls in
hand. Calls that wait for a client do not count as in hand. Prints TAP."""
import os
import select
import socket
import struct
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../wirelib"))
import harness  # noqa: E402
import tap  # noqa: E402
from files import layout_of  # noqa: E402
from harness import *  # noqa: E402,F403
from steps import settled  # noqa: E402
from load import SANITIZED, Pace, anon, mds_pid, raw_call  # noqa: E402
from nfs41 import err, op  # noqa: E402

MIB = 1 << 20
CALLS = 16  # in hand of an address
RATE = 40
WAITING = [f"mds.calls_of_address={CALLS}", "mds.recall_deadline=12s", "mds.lease=60s",
           "mds.threads=1"]
FLOODED = [f"mds.rate_of_address={RATE}", "mds.ds_suspect=1500ms", "mds.ds_dead=3s",
           "mds.threads=1"]


def holder(d, name, addr):
    """A client with a write delegation of a file of its own. It returns a recalled delegation
    later."""
    c = client(source=(addr, 0))
    s, f = c.open(d, name)
    c.ok(putfh(f), close(s))
    o = c.ok(putfh(f), open_(claim_fh(), BOTH | WANT_WRITE))
    check(o.deleg, D_WRITE)
    return c, f, o


def test_calls_that_wait_for_a_client_do_not_keep_its_answer_out(w):
    """Two clients of one address each hold a delegation that many calls of the other wait for.
    DELEGRETURN must get in, on the clients' own connections."""
    d = client().root()
    pair = [holder(d, f"f{i}", "127.0.0.2") for i in range(2)]
    began = time.monotonic()
    waiting = [[c.begin(putfh(other[1]), setattr_(ANON, mode=0o600)) for _ in range(CALLS - 4)]
               for (c, f, o), other in zip(pair, pair[::-1])]
    for c, _, _ in pair:
        c.wait_callback("RECALL")
    time.sleep(0.3)
    for c, f, o in pair:
        c.ok(putfh(f), delegreturn(o.deleg_stateid))
    for (c, _, _), calls in zip(pair, waiting):
        check({err(c.finish(one).status) for one in calls}, {"OK"})
    took = time.monotonic() - began
    check(took < 8, True, f"it took {took:.1f} s, of a deadline of 12")


def test_nor_do_copies_that_wait_for_layouts(w):
    """Copies find that an object of their target is denied, and wait until another client has
    returned the layout that names it; more of them wait behind. LAYOUTRETURN must get in, on a
    connection that has calls in hand itself."""
    pair = [client(source=("127.0.0.2", 0)) for _ in range(2)]
    c, other = pair
    d = c.mkdir(c.root(), "copies")
    c.ok(putfh(d), setxattr("weft.policy", "mirrors=2"))
    src = c.open(d, "src")
    c.ok(putfh(src[1]), write(src[0], 0, b"of another", FILE_SYNC))
    # A loop works on this many at a time.
    *targets, free = [c.open(d, f"f{i}") for i in range(5)]
    for s, f in targets:
        c.ok(putfh(f), write(s, 0, b"before", FILE_SYNC))
    w.dev("kill", w.dir, "ds2", "-9")
    for _, f in targets:
        object_ = next(o["object"] for m in layout_of(c, f)["mirrors"]
                       for o in m["objects"] if o["ds"] == "ds2")
        # As if fenced for good.
        os.setxattr(os.path.join(w.dir, "ds2", object_), "user.weft",
                    struct.pack(">BBHIQII", 2, 0, 0, 1000, 0, 0, 0))
    w.dev("start", w.dir, "ds2")
    eventually(lambda: w.metric("weft_mds_ds_alive") == 2, 20, "the server")
    held = []
    for _, f in targets:
        s = other.until(lambda got: err(got.status) != "DELAY", putfh(f),
                        open_(claim_fh(), READ | NO_DELEG), tries=200).results[-1].stateid
        held.append(settled(other, f, s, IO_READ))
    begin = lambda one, to: one.begin(putfh(src[1]), savefh(), putfh(to[1]),  # noqa: E731
                                      copy(ANON, ANON, 0, 0, 10))
    began = time.monotonic()
    first = [begin(c, to) for to in targets]
    for _ in targets:
        other.wait_callback("LAYOUTRECALL")
    more = [begin(other, free) for _ in range(8)]
    late = [begin(c, free) for _ in range(CALLS + 1 - len(first) - len(more))]
    time.sleep(0.3)
    for (_, f), o in zip(targets, held):
        other.ok(putfh(f), layoutreturn(o.stateid))
    took = time.monotonic() - began
    check({err(c.finish(one).status) for one in first + late}
          | {err(other.finish(one).status) for one in more}, {"OK"})
    check(took < 8, True, f"it took {took:.1f} s, of a deadline of 12")


def pour(socks, data, seconds):
    """Sends each its data, as far as the peer reads it. Returns how many bytes of all went out."""
    left, sent, until = ({s.fileno(): [s, memoryview(x)] for s, x in zip(socks, data)}, 0,
                         time.monotonic() + seconds)
    while left and time.monotonic() < until:
        for fd in select.select([], list(left), [], 0.2)[1]:
            one = left[fd]
            n = one[0].send(one[1])
            sent += n
            one[1] = one[1][n:]
            if not one[1]:
                del left[fd]
    return sent


def test_one_address_has_no_more_waiting_than_its_share(w):
    """As many calls as possible wait for a silent client. The server bounds what they hold, and no
    other client is late."""
    pace, d = Pace(), client().root()
    c, f, _ = holder(d, "kept", "127.0.0.3")
    c.on_callback = lambda name, args: time.sleep(60)
    before, pid = pace.run(), mds_pid(w)
    socks, data, n, size = [], [], 30, 512 << 10
    many = [client(source=("127.0.0.2", 0)) for _ in range(n)]
    for one in many:
        s = socket.create_connection(ADDR, 5, ("127.0.0.2", 0))
        s.setblocking(False)
        socks.append(s)
        data.append(b"".join(raw_call(slot, sequence(one.session.sessionid, one.slots[slot] + 1,
                                                     slot, len(one.slots) - 1), putfh(f),
                                      setattr_(ANON, mode=0o600), write(ANON, 0, bytes(size)))
                             for slot in range(len(one.slots))))
    memory = anon(pid)
    sent = pour(socks, data, 2.5)
    grown, asked = anon(pid) - memory, sum(map(len, data))
    pace.beside("an address has what waits", before)
    tap.say(f"{sent / MIB:.0f} of {asked / MIB:.0f} MiB were taken of one address, "
            f"{grown / MIB:.0f} MiB of memory")
    # 2 MiB in hand, four times that waiting, and of each connection 1 MiB, one more call, and one
    # that is on its way, with its room.
    most = CALLS * (128 << 10) * 5 + n * (MIB + 3 * size)
    check(asked > 2 * most, True, "calls enough")
    check(SANITIZED or grown < most, True, f"{grown / MIB:.1f} MiB, of {most / MIB:.1f}")
    for s in socks:
        s.close()
    c.drop()


def test_a_data_server_is_not_behind_the_flood_of_its_address(w):
    """Many connections use up the rate of its address: its heartbeats come through."""
    socks = [socket.create_connection(ADDR, 5, ("127.0.0.1", 0)) for _ in range(100)]
    call = rpc_call(1, 0, b"", NOBODY)
    for s in socks:
        s.sendall((u32(0x80000000 | len(call)) + call) * 4 * RATE)
    alive = []
    until = time.monotonic() + 6
    while time.monotonic() < until:
        alive.append(int(w.metric("weft_mds_ds_alive")))
        time.sleep(0.2)
    check(set(alive), {1}, "data servers that live")
    # They take their turns, at that rate.
    got = 0
    for s in socks:
        s.setblocking(False)
        try:
            got += len(s.recv(1 << 20)) // 28
        except BlockingIOError:
            pass
        s.close()
    check(RATE < got < 12 * RATE, True, f"{got} answers")


if __name__ == "__main__":
    harness.run_apart(globals(), lambda name: 2 if "copies" in name else 1,
                       lambda name: FLOODED if "flood" in name else WAITING)
