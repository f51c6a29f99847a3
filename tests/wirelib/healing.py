# SPDX-License-Identifier: Apache-2.0
"""What becomes of a copy that missed a write. repair_test, truth_test and fenced_test run these
tests on data servers of weft, generic_mirror_test where copies are on NFSv3 servers."""
import json
import os
import random
import signal
import threading
import time

import harness
import tap
from files import MB, content
from harness import *  # noqa: F403
from mirrored import QUICK, Wide, bytes_of, equal, servers, states, uuid_of, whole, x_ino
from nfs41 import err
from steps import settled
from tool import weft


def a_copy_that_missed_a_write_heals_in_place(w):
    x = Wide("place")
    name = servers(x.c, x.f)[1]
    at = next(i for i, m in enumerate(x.o.mirrors) if uuid_of(x.c, x.f, name) == m[0].deviceid)
    x.ds[1 - at].write(x.o.mirrors[1 - at][0].fhs[0], MB, b"n" * 5000)
    x.data[MB:MB + 5000] = b"n" * 5000
    x.report(at)
    x.c.ok(putfh(x.f), layoutreturn(x.o.stateid))
    eventually(lambda: whole(x.c, x.f), 10, "repair")
    check(servers(x.c, x.f)[1], name, "in place")
    equal(w, x.c, x.f, bytes(x.data))
    check(w.metric("weft_mds_repair_equal_bytes_total") >= 2 * MB, True,
          "what was equal was not written")
    check(w.metric("weft_mds_repair_files"), 0)
    mtime = x.c.attrs(x.f, "time_modify").time_modify
    check(len(settled(x.c, x.f, x.s).mirrors), 2)
    time.sleep(0.3)
    check(x.c.attrs(x.f, "time_modify").time_modify, mtime, "what was copied is no write")


def a_server_that_comes_back_gets_what_it_missed(w):
    x = Wide("back")
    name = servers(x.c, x.f)[0]
    at = next(i for i, m in enumerate(x.o.mirrors) if uuid_of(x.c, x.f, name) == m[0].deviceid)
    w.dev("kill", w.dir, name, "-9")
    # A client's mirrored write: one copy takes it, and the client reports that it cannot reach the
    # other.
    x.data[MB:MB + 9] = b"on one of"
    check(x.ds[1 - at].write(x.o.mirrors[1 - at][0].fhs[0], MB, b"on one of").status, 0)
    x.report(at, 6)
    # A repair may try while the server is away.
    check(states(x.c, x.f)[0] in ("stale", "rebuilding"), True, "the copy that missed it")
    x.give_back()
    done = lambda got: err(got.status) != "DELAY"
    for off in (5, 2 * MB):
        x.c.until(done, putfh(x.f), write(x.s, off, b"while it was away", FILE_SYNC), tries=200)
        x.data[off:off + 17] = b"while it was away"
    first, other = sorted(states(x.c, x.f))
    check((first, other in ("stale", "rebuilding")), ("in-sync", True), other)
    check(content(x.c, x.f, x.s) == bytes(x.data), True)
    w.dev("start", w.dir, name)
    eventually(lambda: whole(x.c, x.f), 60, "repair")
    check(servers(x.c, x.f)[0], name, "in place")
    equal(w, x.c, x.f, bytes(x.data))


def one_that_stays_away_is_replaced(w):
    x = Wide("gone", policy="stripes=2,mirrors=2", size=0)
    for off in range(0, 5 * MB, MB):
        data = random.Random(off).randbytes(MB)
        x.c.ok(putfh(x.f), write(x.s, off, data, FILE_SYNC))
        x.data += data
    x.give_back()
    before = servers(x.c, x.f)
    name = before[0]
    w.dev("kill", w.dir, name, "-9")
    x.c.until(lambda got: err(got.status) != "DELAY", putfh(x.f), write(x.s, 0, b"on", FILE_SYNC),
              tries=200)
    x.data[:2] = b"on"
    eventually(lambda: whole(x.c, x.f) or name not in servers(x.c, x.f), 20, "repair")
    eventually(lambda: states(x.c, x.f)[0] == "in-sync", 10, "repair of the object")
    now = servers(x.c, x.f)
    check((now[0] == name, now[1:] == before[1:]), (False, True), f"{before} -> {now}")
    check(now[0] in now[2:3], False, "copies of a stripe share no server")
    check(content(x.c, x.f, x.s) == bytes(x.data), True)
    got = bytes_of(w, x.c, x.f)
    check(got[0] == got[2], True, "equal")
    w.dev("start", w.dir, name)
    eventually(lambda: w.metric("weft_mds_orders") == 0, 10, "deletion of the old object")
    old = [p for _, _, names in os.walk(os.path.join(w.dir, name, "objects"))
           for p in names if p.startswith(f"{x_ino(x):016x}.")]
    check(old, [], "the old object is deleted")


def a_restart_of_the_metadata_server_in_the_middle(w):
    x = Wide("mds", 12 * MB)
    x.report(1)
    x.c.ok(putfh(x.f), layoutreturn(x.o.stateid))
    eventually(lambda: "rebuilding" in states(x.c, x.f), 8, "the beginning of the repair")
    data = bytes(x.data)
    w.restart()
    c = client()
    eventually(lambda: whole(c, x.f), 25, "repair after the restart")
    equal(w, c, x.f, data)


def a_restart_of_either_data_server_in_the_middle(w):
    for which in (0, 1):
        x = Wide(f"ds{which}", 12 * MB)
        names = servers(x.c, x.f)
        at = next(i for i,
                  m in enumerate(x.o.mirrors) if uuid_of(x.c, x.f, names[1]) == m[0].deviceid)
        x.report(at)
        x.c.ok(putfh(x.f), layoutreturn(x.o.stateid))
        eventually(lambda: "rebuilding" in states(x.c, x.f), 8, "the beginning of the repair")
        w.restart(names[which])
        eventually(lambda: whole(x.c, x.f), 40,
                   f"repair after a restart of the {('source', 'target')[which]}")
        equal(w, x.c, x.f, bytes(x.data))


def a_client_that_dies_leaves_copies_that_are_made_equal(w):
    x = Wide("dead")
    check(x.ds[1].write(x.o.mirrors[1][0].fhs[0], 0, b"half of a write").status, 0)
    other = client()
    fresh = Client(ADDR, owner=x.c.owner, verifier=b"rebooted")  # it is back, and knows nothing
    harness.CLIENTS.append(fresh)
    eventually(lambda: w.metric("weft_mds_repaired_total") > 0 and whole(other, x.f), 15, "repair")
    equal(w, other, x.f)


def one_that_is_given_up_does_too(w):
    x = Wide("given up")
    check(x.ds[1].write(x.o.mirrors[1][0].fhs[0], 0, b"half of a write").status, 0)
    before = w.metric("weft_mds_repaired_total")
    x.c.conn.close()
    # Each question has a client of its own, whose lease has just begun.
    eventually(lambda: w.metric("weft_mds_repaired_total") > before and whole(client(), x.f), 60,
               "eviction and repair")
    equal(w, client(), x.f)


def a_writer_that_is_fenced_does_too(w):
    x = Wide("fenced")
    check(x.ds[0].write(x.o.mirrors[0][0].fhs[0], 0, b"half of a write").status, 0)
    other = client()
    before = w.metric("weft_mds_repaired_total")
    got = other.ok(putfh(x.f), open_(claim_fh(), BOTH | NO_DELEG))
    other.until(lambda got: err(got.status) != "DELAY", putfh(x.f),
                setattr_(got.stateid, size=2 * MB), tries=200)
    eventually(lambda: w.metric("weft_mds_repaired_total") > before and whole(other, x.f), 15,
               "repair")
    equal(w, other, x.f)


def settings(name):
    return [*QUICK, *(["mds.io_error_after=4s"] if "no_copy_answers" in name else []),
            *(["mds.repair_rate=4M"] if "restart" in name or "writes_go" in name else []),
            *(["mds.repair_rate=2M"] if "tool" in name else []),
            # In place, however slow the machine.
            *(["mds.repair_wait=60s"] if "tool" in name or "comes_back" in name
              or "data_server" in name else []),
            *(["mds.courtesy=1s", "mds.lease=2s"] if "given" in name else []),
            # The metadata server does not give up a server that stands still.
            *(["ds.lease=60s", "mds.ds_dead=60s", "mds.ds_suspect=50s"] if "of_a_write" in name
              or "such_a_write" in name or "such_a_piece" in name else [])]


def running(w):
    return json.loads(weft(w, "--json", "mirror", "status"))["running"]


def nothing_is_written_while_layouts_with_a_stale_copy_come_back(w):
    """A reader would go on without what was written."""
    x, reader, writer = Wide("reader"), client(), client()
    got = reader.ok(putfh(x.f), open_(claim_fh(), READ | NO_DELEG))
    held = settled(reader, x.f, got.stateid, IO_READ)
    ws = writer.ok(putfh(x.f), open_(claim_fh(), BOTH | NO_DELEG)).stateid
    t = threading.Thread(target=lambda: x.report(1))
    t.start()
    eventually(lambda: "stale" in states(writer, x.f), 5, "the report")
    writer.no("DELAY", putfh(x.f), write(ws, 0, b"new", FILE_SYNC))
    reader.ok(putfh(x.f), layoutreturn(held.stateid))
    t.join()
    x.give_back()
    writer.until(lambda got: err(got.status) != "DELAY", putfh(x.f),
                 write(ws, 0, b"new", FILE_SYNC), tries=200)


def no_size_is_set_while_a_repair_is_about_to_copy(w):
    x = Wide("cut")
    x.report(1)
    eventually(lambda: [r["step"] for r in running(w)] == ["recall"], 5, "the freeze")
    # The client keeps its layout. If the target were cut now, the source might be copied before its
    # order.
    x.c.no("DELAY", putfh(x.f), setattr_(x.s, size=MB))
    x.give_back()
    x.c.until(lambda got: err(got.status) != "DELAY", putfh(x.f), setattr_(x.s, size=MB), tries=200)
    eventually(lambda: whole(x.c, x.f), 15, "repair")
    equal(w, x.c, x.f, bytes(x.data[:MB]))
    check(x.c.attrs(x.f, "size").size, MB)


SETTINGS = {
    "who_created_a_file_and_got_no_layout_leaves_no_mark": ["mds.repair_files=0", "mds.grace=3s",
                                                            "mds.lease=2s"],
    "who_reports_has_a_newer_layout_taken_back": ["mds.repair_files=0"],
    "nothing_is_written_while_layouts_with_a_stale_copy_come_back": ["mds.recall_deadline=4s",
                                                                     "mds.repair_files=0"],
    "no_size_is_set_while_a_repair_is_about_to_copy": ["mds.recall_deadline=4s"],
}
ROUNDS = 200 if os.environ.get("WEFT_SOAK") else 3
TRIES = 300


def pid_of(w, name):
    with open(os.path.join(w.dir, "run", name + ".pid"), encoding="ascii") as f:
        return int(f.read())


class Waiting(threading.Thread):
    """A WRITE to a stopped server: it waits in the socket, and the server runs it as soon as it
    goes on."""

    def __init__(self, ds, fh, data):
        super().__init__()
        self.ds, self.fh, self.data, self.status = ds, fh, data, None
        self.start()

    def run(self):
        self.status = self.ds.write(self.fh, 0, self.data).status


def one_round(w, n, frozen):
    """The first client writes the whole file with A, and only one copy accepts it. The second
    client truncates the file and writes B. Returns (both wrote, the status of the write that
    waited)."""
    x = Wide(f"f{n}", 2 * MB)
    at = n % 2
    name = next(s for s in servers(x.c, x.f) if uuid_of(x.c, x.f, s) == x.o.mirrors[at][0].deviceid)
    late = None
    if frozen:
        stand_still(pid_of(w, name))
    try:
        if frozen:
            late = Waiting(x.ds[at], x.o.mirrors[at][0].fhs[0], b"A" * MB)
        first = x.ds[1 - at].write(x.o.mirrors[1 - at][0].fhs[0], 0, b"A" * MB).status
        two = client()
        s = two.ok(putfh(x.f), open_(claim_fh(), BOTH | NO_DELEG)).stateid
        go_on = lambda got: err(got.status) != "DELAY"  # noqa: E731
        two.until(go_on, putfh(x.f), setattr_(s, size=0), tries=TRIES)
        for off in range(0, 2 * MB, MB):
            second = err(two.until(go_on, putfh(x.f), write(s, off, b"B" * MB, FILE_SYNC),
                                   tries=TRIES).status)
    finally:
        if frozen:
            os.kill(pid_of(w, name), signal.SIGCONT)
    if frozen:
        late.join()
    else:
        late = x.ds[at].write(x.o.mirrors[at][0].fhs[0], 0, b"A" * MB)
    eventually(lambda: whole(two, x.f), 30, "repair")
    equal(w, two, x.f, b"B" * (2 * MB))
    for ds in x.ds:
        ds.close()
    x.c.drop()
    two.drop()
    return first == 0 and second in ("OK", 0), late.status


def rounds(w, frozen):
    got = [one_round(w, n, frozen) for n in range(ROUNDS)]
    check(sum(both for both, _ in got), ROUNDS, "rounds in which both wrote")
    # The copy of a stopped server may be stale by then, and clients read nothing from it.
    if not frozen:
        check([late for _, late in got if late == 0], [], "late writes that were taken")
    tap.say(f"{ROUNDS} rounds; the late writes were answered {sorted({late for _, late in got})}")


def a_write_that_comes_late_is_refused(w):
    rounds(w, False)


def one_that_waited_in_a_server_that_stood_still_is_never_read(w):
    rounds(w, True)
