#!/usr/bin/python3
"""Copies are equal and only read when they are, whatever else happens to the file at that moment. Prints TAP."""
import contextlib
import os
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import mds_test  # noqa: E402
import tap  # noqa: E402
from mds_test import *  # noqa: E402,F403
from nfs41 import err  # noqa: E402
from repair_test import MB, QUICK, Wide, equal, servers, states, uuid_of, weft, whole, x_ino  # noqa: E402


def at_of(x, name):
    """Which row of the layout is that server's."""
    return next(i for i, m in enumerate(x.o.mirrors) if uuid_of(x.c, x.f, name) == m[0].deviceid)


def running(w):
    return json.loads(weft(w, "--json", "mirror", "status"))["running"]


def test_no_size_is_set_while_a_repair_is_about_to_copy(w):
    x = Wide("cut")
    x.report(1)
    eventually(lambda: [r["step"] for r in running(w)] == ["recall"], 5, "the freeze")
    # It keeps its layout. Were it cut now, the source might be copied before its order, and the target be cut already.
    x.c.no("DELAY", putfh(x.f), setattr_(x.s, size=MB))
    x.give_back()
    x.c.until(lambda got: err(got.status) != "DELAY", putfh(x.f), setattr_(x.s, size=MB), tries=200)
    eventually(lambda: whole(x.c, x.f), 15, "repair")
    equal(w, x.c, x.f, bytes(x.data[:MB]))
    check(x.c.attrs(x.f, "size").size, MB)


SETTINGS = {
    "no_size_is_set_while_a_repair_is_about_to_copy": ["mds.recall_deadline=4s"],
}


@contextlib.contextmanager
def around(name):
    """A cluster of its own for each."""
    w = mds_test.THE = Cluster(settings=[*QUICK, *SETTINGS.get(name, [])])
    try:
        yield (w,)
    finally:
        for c in mds_test.CLIENTS:
            with contextlib.suppress(Exception):
                c.drop()
        mds_test.CLIENTS.clear()
        w.down()


if __name__ == "__main__":
    tap.run(tap.named(globals()), around)
