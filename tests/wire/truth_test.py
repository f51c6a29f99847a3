#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Copies are equal, and clients read them only when they are, whatever else happens to the file at
that moment. Prints TAP."""
import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../wirelib"))
import healing  # noqa: E402
from harness import *  # noqa: E402,F403
from steps import again  # noqa: E402
from files import MB, content, layout_of  # noqa: E402
from load import Watch, pids  # noqa: E402
from nfs41 import err  # noqa: E402
from mirrored import QUICK, Wide, servers, states, uuid_of, whole, x_ino  # noqa: E402


def at_of(x, name):
    """Which row of the layout is that server's."""
    return next(i for i, m in enumerate(x.o.mirrors) if uuid_of(x.c, x.f, name) == m[0].deviceid)


def objects_of(x):
    return [o["object"] for m in layout_of(x.c, x.f)["mirrors"] for o in m["objects"]]


def test_no_size_is_set_while_a_repair_is_about_to_copy(w):
    healing.no_size_is_set_while_a_repair_is_about_to_copy(w)


def test_a_copy_that_its_server_cannot_open_is_made_elsewhere(w):
    """A drive died, and the daemon lives: it does no order for the object."""
    x = Wide("drive")
    name = servers(x.c, x.f)[1]
    at, path = at_of(x, name), os.path.join(w.dir, name, objects_of(x)[1])
    w.dev("kill", w.dir, name, "-9")
    os.rename(path, path + ".was")
    os.mkdir(path)
    w.dev("start", w.dir, name)
    x.report(at)
    x.c.ok(putfh(x.f), layoutreturn(x.o.stateid))
    eventually(lambda: whole(x.c, x.f), 25, "repair")
    check(name in servers(x.c, x.f), False)
    check(content(x.c, x.f, x.s) == bytes(x.data), True)
    # Its deletion is not done either, and blocks no other.
    check(w.metric("weft_mds_orders") > 0, True)
    watch = Watch(*pids(w))
    x.c.until(lambda got: err(got.status) != "DELAY", putfh(x.f), setattr_(x.s, size=MB), tries=200)
    check(watch.took() < 2, True, "a size is set without it")
    os.rmdir(path)
    os.rename(path + ".was", path)
    eventually(lambda: w.metric("weft_mds_orders") == 0 and not os.path.exists(path), 10,
               "its deletion")


def test_one_that_fails_does_not_keep_the_others_from_repair(w):
    x = Wide("starve", MB, "mirrors=4")
    names = servers(x.c, x.f)  # every server has a copy: the first can be made nowhere else
    path = os.path.join(w.dir, names[0], objects_of(x)[0])
    w.dev("kill", w.dir, names[0], "-9")
    os.unlink(path)
    os.mkdir(path)
    w.dev("start", w.dir, names[0])
    x.c.ok(putfh(x.f), layouterror(x.o.stateid, [(x.o.mirrors[at_of(x, n)][0].deviceid, 5,
                                                  NUM["WRITE"]) for n in names[:2]]))
    x.c.ok(putfh(x.f), layoutreturn(x.o.stateid))
    eventually(lambda: states(x.c, x.f)[1] == "in-sync", 30, "repair of the second")
    check(states(x.c, x.f)[0] in ("stale", "rebuilding"), True)


def test_nothing_is_written_while_layouts_with_a_stale_copy_come_back(w):
    healing.nothing_is_written_while_layouts_with_a_stale_copy_come_back(w)


def test_who_reports_has_a_newer_layout_taken_back(w):
    """The client reported from the older layout. From the newer one it would read a copy that it
    knows to lack a write."""
    x = Wide("newer", MB, "mirrors=3")
    recalls = []
    x.c.on_callback = lambda name, args: recalls.append(name) or 0
    x.report(0)
    time.sleep(0.3)
    check(recalls, [], "what it speaks of it returns by itself")
    x.c.ok(putfh(x.f), layoutreturn(x.o.stateid))
    x.open_layout()
    old = x.o
    x.open_layout()
    check(x.o.stateid[0] > old.stateid[0], True, "a grant more")
    x.c.ok(putfh(x.f), layouterror(old.stateid, [(old.mirrors[0][0].deviceid, 5, NUM["WRITE"])]))
    eventually(lambda: recalls == ["LAYOUTRECALL"], what="the recall")


def created(c, d, name, mode, *then):
    """Creates name, which its COMPOUND asks a layout for, writes it through the MDS and closes
    it."""
    r = c.call(putfh(d), open_(name, BOTH | NO_DELEG, how=GUARDED, attrs={"mode": mode}), getfh(),
               *then)
    s, f = r.results[2].stateid, r.results[3].fh
    c.ok(putfh(f), write(s, 0, b"x" * 1000, FILE_SYNC))
    c.ok(putfh(f), close(s))
    return err(r.status), f


def test_who_created_a_file_and_got_no_layout_leaves_no_mark(w):
    gone, c = client(), client()
    d = c.mkdir(c.root(), "d")
    c.ok(putfh(d), setxattr("weft.policy", "mirrors=2"))
    ask, held = layoutget(CURRENT, minlength=0), gone.open(d, "held")
    made = [created(gone, d, f"set-id {i}", 0o4755, ask) for i in range(4)]
    made += [created(gone, d, f"ended {i}", 0o644, lookup("none"), ask) for i in range(4)]
    made += [created(gone, d, f"small {i}", 0o644, layoutget(CURRENT, minlength=0, maxcount=8))
             for i in range(4)]
    check([m[0] for m in made], ["LAYOUTUNAVAILABLE"] * 4 + ["NOTDIR"] * 4 + ["TOOSMALL"] * 4)
    files = [m[1] for m in made]


    def calls():
        return sum(w.metric("weft_rpc_calls_total", name)
                   for name in w.where if name.startswith("ds"))
    time.sleep(1)
    before = calls()
    for f in files:
        check(c.attrs(f, "size").size, 1000)
    assert calls() - before < 6, "each GETATTR asks the data servers"
    gone.drop()
    w.restart()
    again(c, True)
    c.until(lambda got: err(got.status) not in ("GRACE", "DELAY"), putfh(d), open_("held"),
            tries=400)
    time.sleep(2)
    for f in files:
        check(states(c, f), ["in-sync", "in-sync"])


if __name__ == "__main__":
    run_apart(globals(), settings=lambda name: [*QUICK, *healing.SETTINGS.get(name, [])])
