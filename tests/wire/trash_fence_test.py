#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""No client writes a file that is in the trash, once no client has it open. Prints TAP."""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../wirelib"))
import harness  # noqa: E402
from harness import *  # noqa: E402,F403
from jobs import api  # noqa: E402
from steps import lay, one_server, returns_when_recalled  # noqa: E402
from tool import ask, fsck, weft  # noqa: E402
from nfs41 import close, err, remove, rename, savefh  # noqa: E402

ACCES = 13


def kept(w, name):
    """A client, and a directory whose files the trash keeps."""
    c = client()
    d = c.mkdir(c.root(), name)
    weft(w, "policy", "set", f"/{name}", "trash=7d")
    return c, d


def data_of(w, path):
    weft(w, "trash", "restore", path)
    c, fh = client(), None
    fh = c.ok(putrootfh(), *[lookup(n) for n in path[1:].split("/")], getfh()).fh
    s = c.ok(putfh(fh), open_(claim_fh(), READ | NO_DELEG)).stateid
    got = c.ok(putfh(fh), read(s, 0, 100)).data
    c.ok(putfh(fh), close(s))
    fsck(w)
    return got


def test_the_remover_cannot_write_by_the_layout_that_it_kept(w):
    c, d = kept(w, "a")
    s, f, _, ds, fh = one_server(c, d, "f")
    check(ds.write(fh, 0, b"0123456789").status, 0)
    c.ok(putfh(f), close(s))
    c.ok(putfh(d), remove("f"))
    check(ds.write(fh, 0, b"late").status, ACCES)
    check(data_of(w, "/a/f"), b"0123456789")


def test_the_layout_that_it_kept_is_recalled_first(w):
    c, d = kept(w, "b")
    s, f, _, ds, fh = one_server(c, d, "f")
    check(ds.write(fh, 0, b"0123456789").status, 0)
    c.ok(putfh(f), close(s))
    returns_when_recalled(c, f)
    c.ok(putfh(d), remove("f"))
    check(len([x for x in c.callbacks if x.name == "LAYOUTRECALL"]), 1, "recalls")
    check(data_of(w, "/b/f"), b"0123456789")


def test_one_that_renames_over_it_cannot_either(w):
    c, d = kept(w, "r")
    s, f, _, ds, fh = one_server(c, d, "f")
    check(ds.write(fh, 0, b"0123456789").status, 0)
    c.ok(putfh(f), close(s))
    s, g = c.open(d, "g")
    c.ok(putfh(g), close(s))
    c.ok(putfh(d), savefh(), rename("g", "f"))
    check(ds.write(fh, 0, b"late").status, ACCES)
    c.ok(putfh(d), remove("f"))
    first = min(e["id"] for e in api(w, "GET", "/v1/trash?path=/r")["entries"])
    weft(w, "trash", "restore", str(first), "--to", "/r/old")
    s, f = c.open(d, "old", READ, how=None)
    check(c.ok(putfh(f), read(s, 0, 99)).data, b"0123456789")


def test_an_open_file_is_written_until_the_last_close_and_not_after(w):
    holder, (other, d) = client(), kept(w, "o")
    s, f, _, ds, fh = one_server(holder, d, "f")
    returns_when_recalled(holder, f)
    other.ok(putfh(d), remove("f"))
    o = lay(holder, f, s)
    fh = o.mirrors[0][0].fhs[0]
    check(ds.write(fh, 0, b"0123456789").status, 0)
    holder.on_callback = lambda name, args: 0
    holder.ok(putfh(f), close(s))
    check(ds.write(fh, 0, b"late").status, ACCES)
    check(err(holder.call(putfh(f), getattr_("type")).status), "STALE")
    check(data_of(w, "/o/f"), b"0123456789")


def test_the_layout_of_a_client_that_is_gone_writes_no_more(w):
    holder, (other, d) = client(), kept(w, "g")
    s, f, _, ds, fh = one_server(holder, d, "f")
    returns_when_recalled(holder, f)
    other.ok(putfh(d), remove("f"))
    fh = lay(holder, f, s).mirrors[0][0].fhs[0]
    check(ds.write(fh, 0, b"0123456789").status, 0)
    number = next(x["number"] for x in ask(w, "client", "list")["clients"]
                  if int(x["clientid"], 16) == holder.clientid)
    weft(w, "client", "evict", str(number))
    check(ds.write(fh, 0, b"late").status, ACCES)
    check(data_of(w, "/g/f"), b"0123456789")


if __name__ == "__main__":
    harness.run_shared(globals(), ds=2, settings=[
        *harness.CALM, "mds.return_on_close=false", "mds.recall_deadline=2s", "mds.sync=false"])
