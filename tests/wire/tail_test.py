#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""READs of the tail of a striped file, whose end only the metadata server knows: while that
server stands still, and beside a data server that does (docs/size.md, "The end of a striped
file"). Prints TAP."""
import os
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../wirelib"))
import tap  # noqa: E402
from harness import *  # noqa: E402,F403
from steps import data_server, settled  # noqa: E402
from load import Watch, mds_pid  # noqa: E402
from nfs41 import err  # noqa: E402
from files import MB, layout_of  # noqa: E402
from mirrored import stopped, uuid_of  # noqa: E402

TAIL = 2683
SOAK = bool(os.environ.get("WEFT_SOAK"))
CALM = ["mds.lease=60s", "mds.recall_deadline=60s", "ds.lease=60s", "mds.ds_dead=60s",
        "mds.ds_suspect=50s", "ds.eof_wait=60s"]


class Tail:
    """A striped file whose last bytes are in one stripe, read from the other's server beyond
    them."""

    def __init__(self, name, policy):
        self.c = client()
        self.d = self.c.mkdir(self.c.root(), name)
        self.c.ok(putfh(self.d), setxattr("weft.policy", f"{policy},unit=1M"))
        self.s, self.f = self.c.open(self.d, "f")
        self.c.ok(putfh(self.f), write(self.s, MB, b"t" * TAIL, FILE_SYNC))
        # For writing: what is committed may not be the end.
        self.o = settled(self.c, self.f, self.s)

    def server(self, name):
        at = uuid_of(self.c, self.f, name)
        return next(x for m in self.o.mirrors for x in m if x.deviceid == at)

    def of(self, stripe, mirror=0):
        return layout_of(self.c, self.f)["mirrors"][mirror]["objects"][stripe]["ds"]

    def reader(self, stripe, mirror=0):
        x = self.server(self.of(stripe, mirror))
        ds = data_server(self.c, x)
        return lambda: ds.read(x.fhs[0], 0 if stripe == 0 else MB, 4096)


def test_a_read_is_answered_when_the_metadata_server_is_back(w):
    x = Tail("stands", "stripes=2")
    for stripe, want in ((0, bytes(4096)), (1, b"t" * TAIL)):
        go, got = x.reader(stripe), []
        check((go().data, go().eof), (want, stripe == 1))
        name = x.of(stripe)
        with stopped(w, "mds"):
            t = threading.Thread(target=lambda: got.append((go(), time.monotonic())))
            t.start()
            eventually(lambda: w.metric("weft_ds_eof_parked", name) == 1, 30, "a question is open")
            until = time.monotonic() + 2.5  # longer than one question
            while time.monotonic() < until:
                check(got, [], "an answer without the metadata server")
                time.sleep(0.1)
            back = time.monotonic()
        t.join(30)
        check((got[0][0].status, got[0][0].data, got[0][0].eof), (0, want, stripe == 1))
        took = got[0][1] - back
        tap.say(f"stripe {stripe}: answered {took:.3f} s after the metadata server's return")
        check(took < (0.3 if SOAK else 10), True, f"{took:.3f} s")


def test_a_question_waits_for_no_server_that_the_answer_does_not_need(w):
    x = Tail("enough", "stripes=2,mirrors=2")
    go = x.reader(0)
    for stripe, mirror in ((0, 1), (1, 1), (1, 0)):  # which one stands still
        check(go().data, bytes(4096))
        with stopped(w, x.of(stripe, mirror)):
            watch = Watch(mds_pid(w))
            for _ in range(10):
                got = go()
                check((got.status, got.data), (0, bytes(4096)))
            took = watch.took()
        tap.say(f"10 questions beside a silent copy of stripe {stripe}: {took:.2f} s")
        check(took < 10, True, f"{took:.2f} s")  # each waited for 2 s


def test_what_was_written_counts_while_layouts_come_back_for_a_size(w):
    x, asked = Tail("cut", "stripes=2"), []
    far = data_server(x.c, x.server(x.of(0)))
    check((x.reader(1)().data, x.reader(1)().eof), (b"t" * TAIL, True))
    x.c.on_callback = lambda name, args: asked.append(args.stateid) or 0
    two, three = client(), client()
    cut = two.begin(putfh(x.f), setattr_(ANON, size=10))
    eventually(lambda: asked, 30, "recall")
    wrote = far.write(x.server(x.of(0)).fhs[0], 2 * MB, b"far")
    check(wrote.status, 0, "the holder writes on until it gives back")
    got = x.reader(1)()
    want = (b"t" * TAIL + bytes(4096 - TAIL), False)
    check((got.data, got.eof), want, "the middle of the file is not its end")
    check(three.attrs(x.f, "size").size, 2 * MB + 3)
    x.c.ok(putfh(x.f), layoutreturn(asked[0]))
    check(err(two.finish(cut, 60).status), "OK")
    check(three.attrs(x.f, "size").size, 10)
    check(three.ok(putfh(x.f), read(ANON, 0, 4096)).data, bytes(10))


if __name__ == "__main__":
    run_apart(globals(), settings=lambda name: CALM)
