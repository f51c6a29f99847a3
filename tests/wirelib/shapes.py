# SPDX-License-Identifier: Apache-2.0
"""A directory of a client's own, for files in every shape: one object, stripes, copies."""
import contextlib
import random

import harness
from files import MB, content, on_every_mirror
from harness import *  # noqa: F403

SHAPES = ("stripes=1", "stripes=2,mirrors=2,unit=1M", "stripes=4,unit=1M", "mirrors=2")


def noise(n, seed=1):
    return random.Random(seed).randbytes(n)


class Place:
    """A client, and a folder of its own."""

    count = 0

    def __init__(self):
        Place.count += 1
        self.c = client()
        self.d = self.c.mkdir(self.c.root(), f"data{Place.count}")

    def file(self, name="f", shape=None, data=b"", at=0, c=None):
        """Writes a new file with this content through the metadata server. Returns (open stateid,
        filehandle)."""
        c = c or self.c
        if shape:
            c.ok(putfh(self.d), setxattr("weft.policy", shape))
        s, f = c.open(self.d, name)
        for off in range(0, len(data), MB):
            c.ok(putfh(f), write(s, at + off, data[off:off + MB], UNSTABLE))
        c.ok(putfh(f), commit())
        return s, f


def same_everywhere(c, f, sid, want):
    check(content(c, f, sid) == want, True, "what the metadata server reads")
    for i, got in enumerate(on_every_mirror(c, f, sid, len(want))):
        check(got == want, True, f"what mirror {i} holds")


@contextlib.contextmanager
def server_down(name):
    w = harness.THE
    w.dev("kill", w.dir, name, "-9")
    try:
        yield
    finally:
        w.dev("start", w.dir, name)
        eventually(lambda: w.metric("weft_mds_ds_alive") == 4, 10, "the return of the server")


def place(w, name):
    return (Place(),)
