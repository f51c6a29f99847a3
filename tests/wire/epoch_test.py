#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""A new size, or the loss of a right, ends capabilities (docs/fencing.md). Prints TAP.

It does not matter which client returned its layout before, or which client makes the change.
"""
import contextlib
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../wirelib"))
import harness  # noqa: E402
from harness import *  # noqa: E402,F403
from steps import data_server, lay, returns_when_recalled  # noqa: E402
from nfs41 import err  # noqa: E402
from mirrored import servers, stopped  # noqa: E402

ACCES = 13
OTHER = auth_sys(1000, 1000)


def settings(name):
    return ["mds.lease=20s", "ds.lease=60s", "mds.recall_deadline=20s",
            *(["mds.grace=60s"] if "restart" in name else [])]


class Held:
    """A client of another user. It has written the file straight to its data server and returned
    its layout."""

    def __init__(self, w, name, mode=0o666, iomode=IO_RW, give_back=True):
        self.owner, self.c = client(), client()
        self.d = self.owner.mkdir(self.owner.root(), name, attrs={"mode": 0o777})
        s, self.f = self.owner.open(self.d, "f", attrs={"mode": mode})
        self.owner.ok(putfh(self.f), write(s, 0, b"0123456789", FILE_SYNC), close(s))
        got = self.c.ok(putfh(self.f), open_(claim_fh(), BOTH | NO_DELEG), cred=OTHER)
        self.s = got.stateid
        self.o = lay(self.c, self.f, self.s, iomode)
        self.ds = data_server(self.c, self.o.mirrors[0][0])
        self.fh = self.o.mirrors[0][0].fhs[0]
        if iomode == IO_RW:
            check(self.write(), 0)
        if give_back:
            self.give_back()

    def give_back(self):
        self.c.ok(putfh(self.f), layoutreturn(self.o.stateid), cred=OTHER)

    def write(self, off=0, data=b"abcdefghij"):
        return self.ds.write(self.fh, off, data).status

    def read(self):
        return self.ds.read(self.fh, 0, 10).status

    def change(self, **attrs):
        self.owner.until(lambda got: err(got.status) != "DELAY", putfh(self.f),
                         setattr_(ANON, **attrs))


def test_a_size_that_is_set_fences_who_returned_the_layout(w):
    x = Held(w, "cut")
    x.change(size=0)
    check(x.write(), ACCES, "a write that comes late")
    check(x.owner.attrs(x.f, "size").size, 0)
    check(x.owner.ok(putfh(x.f), read(ANON, 0, 10)).data, b"")


def test_also_by_who_has_a_layout_himself(w):
    c = client()
    d = c.mkdir(c.root(), "own")
    s, f = c.open(d, "f")
    o = lay(c, f, s)
    ds, fh = data_server(c, o.mirrors[0][0]), o.mirrors[0][0].fhs[0]
    check(ds.write(fh, 0, b"0123456789").status, 0)
    c.ok(putfh(f), setattr_(s, size=5))
    check(ds.write(fh, 5, b"late!").status, ACCES, "a write of before")
    check(c.attrs(f, "size").size, 5)
    new = lay(c, f, s)
    check(ds.write(new.mirrors[0][0].fhs[0], 5, b"new").status, 0)


def test_a_mode_that_takes_rights_ends_capabilities(w):
    x = Held(w, "mode")
    x.change(mode=0o600)
    x.c.no("ACCESS", putfh(x.f), open_(claim_fh(), BOTH | NO_DELEG), cred=OTHER)
    check((x.write(), x.read()), (ACCES, ACCES))


def test_who_takes_a_right_beside_another_waits_for_the_same_fence(w):
    x, other = Held(w, "beside"), client()
    with stopped(w, *servers(x.owner, x.f)) as go:
        one = x.owner.begin(putfh(x.f), setattr_(ANON, mode=0o600))
        eventually(lambda: w.metric("weft_mds_orders") > 0, 30, "the fence")
        two = other.begin(putfh(x.f), setattr_(ANON, mode=0o400))
        try:
            other.finish(two, 2)
            check("an answer", "none: the data server has not confirmed")
        except TimeoutError:
            pass
        go()
        check([err(c.finish(begun, 60).status) for c, begun in ((x.owner, one), (other, two))],
              ["OK", "OK"])
    check(x.write(), ACCES, "a write that comes late")


def test_those_that_only_read_as_well(w):
    x = Held(w, "reads", iomode=IO_READ)
    check(x.read(), 0)
    x.change(mode=0o600)
    check(x.read(), ACCES)


def test_so_does_another_owner(w):
    x = Held(w, "owner")
    x.change(owner="4711")
    check((x.write(), x.read()), (ACCES, ACCES))


def test_what_was_given_before_a_restart_ends_too(w):
    x = Held(w, "restart")
    w.restart()
    # Grace is over when the last client is back.
    back = {c.owner: Client(ADDR, owner=c.owner, verifier=c.verifier) for c in harness.CLIENTS}
    harness.CLIENTS += back.values()
    x.owner = back[x.owner.owner]
    x.owner.until(lambda got: err(got.status) not in ("GRACE", "DELAY"), putfh(x.f),
                  setattr_(ANON, mode=0o600), tries=400)
    check((x.write(), x.read()), (ACCES, ACCES))


def test_who_took_nothing_away_asks_no_data_server(w):
    x = Held(w, "more", mode=0o606)
    x.change(mode=0o666)
    check((x.write(), x.read()), (0, 0), "a right more ends nothing")
    x.change(mode=0o600)
    check(x.write(), ACCES)
    # From here on no client has a capability. There is nothing to end, and no client to wait for.
    with contextlib.ExitStack() as servers:
        for k in range(1, 3):
            servers.enter_context(stopped(w, f"ds{k}"))
        x.owner.ok(putfh(x.f), setattr_(ANON, mode=0o400))
        x.owner.ok(putfh(x.f), setattr_(ANON, owner="4711"))


def test_a_hole_in_a_mirrored_file_recalls_the_layout_of_whoever_asks(w):
    c = client()
    d = c.mkdir(c.root(), "hole")
    c.ok(putfh(d), setxattr("weft.policy", "mirrors=2"))
    s, f = c.open(d, "f")
    o = lay(c, f, s)
    for m in o.mirrors:
        check(data_server(c, m[0]).write(m[0].fhs[0], 0, b"x" * 8192).status, 0)
    returns_when_recalled(c, f)
    c.until(lambda got: err(got.status) != "DELAY", putfh(f), deallocate(s, 0, 4096))
    c.wait_callback("LAYOUTRECALL")
    check(data_server(c, o.mirrors[0][0]).write(o.mirrors[0][0].fhs[0], 0, b"late").status, ACCES)
    check(c.ok(putfh(f), read(s, 0, 8192)).data, bytes(4096) + b"x" * 4096)


if __name__ == "__main__":
    run_apart(globals(), ds=2, settings=settings)
