#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Where files go (docs/groups.md). Prints TAP.

The tests cover labels and weights of data servers, policies with groups and domains, and a file's
own policy.
"""
import os
import subprocess
import sys
import threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../wirelib"))
import harness  # noqa: E402
import tap  # noqa: E402
from harness import *  # noqa: E402,F403
from delegs import Later  # noqa: E402
from steps import lay, one_server, returns_when_recalled, revoked  # noqa: E402
from nfs41 import err  # noqa: E402
from tool import log_of, rows, weft  # noqa: E402

NAMES = ["ds1", "ds2", "ds3", "ds4"]
POLICY = "weft.policy"


@contextlib.contextmanager
def racks(w, **labels):
    """Sets two racks of two servers, or the given labels."""
    labels = labels or {"ds1": "rack=r1", "ds2": "rack=r1", "ds3": "rack=r2", "ds4": "rack=r2"}
    for name, text in labels.items():
        weft(w, "ds", "group", name, *text.split(","))
    try:
        yield
    finally:
        for name, r in rows(w).items():
            if r["labels_set"]:
                weft(w, "ds", "group", name, *[f"{k}=" for k in r["labels_set"]])
            if r["weight"] != 1:
                weft(w, "ds", "weight", name, "1")


def layout_of(c, fh):
    return json.loads(c.ok(putfh(fh), getxattr("weft.layout")).value)


def where(c, fh):
    """Data servers' names by mirror and stripe."""
    return [[o["ds"] for o in m["objects"]] for m in layout_of(c, fh)["mirrors"]]


def make(c, d, name):
    s, f = c.open(d, name)
    c.ok(putfh(f), close(s))
    return f


def apart(c, fh, rack=lambda ds: int(ds[2]) // 3):
    """Copies of every stripe are in different racks."""
    for copies in zip(*where(c, fh)):
        check(len({rack(ds) for ds in copies}), len(copies), f"copies on {copies}")


# ---- servers


def test_weights_and_labels_are_set_and_shown(c, d):
    w = harness.THE
    with racks(w, ds1="rack=r1,speed=nvme", ds2="rack=r2"):
        number = str(rows(w)["ds2"]["number"])
        weft(w, "ds", "weight", number, "0.1")
        check('"weight": 0.1,' in weft(w, "ds", "list", "--json"), True)
        weft(w, "ds", "weight", number, "0.25")
        weft(w, "ds", "weight", rows(w)["ds3"]["id"], "1000")
        got = rows(w)
        check([got[n]["weight"] for n in NAMES], [1, 0.25, 1000, 1])
        check([got[n]["labels"] for n in NAMES],
              [{"rack": "r1", "speed": "nvme"}, {"rack": "r2"}, {}, {}])
        one = weft(w, "ds", "group", "ds1", "speed=", "site=a")
        check(one.splitlines()[1].split()[9], "rack=r1,site=a")
        check(json.loads(weft(w, "ds", "group", "ds1", "site=", "--json"))["labels"],
              {"rack": "r1"})
        check(re.search(rf"^ *{number} +ds2 +alive +\S+ +0\.25 .* rack=r2\b", weft(w, "ds", "list"),
                        re.M) is not None, True)
        for args, why in ((("weight", "ds1", "--", "-1"), "from 0 to 1000"),
                          (("weight", "ds1", "1001"), "from 0 to 1000"),
                          (("weight", "ds1", "1.005"), "two decimals"),
                          (("weight", "ds1", "x"), "a number"), (("weight", "ds1", ""), "a number"),
                          (("weight", "ds1", "1."), "a number"),
                          (("weight", "ds1", ".5"), "a number"),
                          (("weight", "ds9", "1"), "ds9: no such data server"),
                          (("weight", "99", "1"), "no such"),
                          (("group", "", "a=1"), "expected a data server"),
                          (("group", "ds1", "rack"), "KEY=VALUE"),
                          (("group", "ds1", "a=1", "b"), 'label "b"'),
                          (("group", "ds1", "1a=1"), "KEY a letter"),
                          (("group", "ds1", "a=1", "a=2"), "label a: given more than once"),
                           (("group", "ds1", "a=b c"), "VALUE"), (("group", "ds1", ""), "KEY="),
                          (("group", "ds1", *[f"k{n}=1" for n in range(9)]), "at most 8"),
                          (("group", "ds1", *[f"k{n}=1" for n in range(8)]), "at most 8")):
            told = weft(w, "ds", *args, rc=1)
            check(why in told and told.count("\n") == 1, True, f"{args}: {told}")
        check(rows(w)["ds1"]["labels"], {"rack": "r1"}, "what is refused changes nothing")
        check("unknown command" in weft(w, "ds", "frob", "ds1", rc=2), True)


def test_servers_tell_their_load(c, d):
    """Requests in progress, on average: a busy server has some, and the others have none."""
    w = harness.THE
    s, f = c.open(d, "f")
    c.ok(putfh(f), write(s, 0, bytes(1 << 20), FILE_SYNC))
    busy, got, enough = where(c, f)[0][0], {}, threading.Event()

    def writes():  # also while weft is started, which may take longer than what is averaged over
        while not enough.is_set():
            for one in [c.begin(putfh(f), write(s, 0, bytes(1 << 20), FILE_SYNC))
                        for _ in range(4)]:
                check(err(c.finish(one).status), "OK")
    work = Later(writes)

    def told():
        got.update({n: r["load"] for n, r in rows(w).items()})
        return got[busy] >= 0.03
    try:
        eventually(told, what="a load")
    finally:
        enough.set()
        work.result()
    check(max(v for n, v in got.items() if n != busy) < got[busy], True, f"{got}, {busy} is busy")


def restart_keeps_weights_and_labels(w):
    weft(w, "ds", "weight", "ds1", "0")
    weft(w, "ds", "weight", "ds2", "2.5")
    with racks(w, ds2="rack=r7,speed=nvme"):
        weft(w, "ds", "weight", "ds2", "2.5")
        before = rows(w)["ds2"]
        w.restart()
        w.restart("ds2")
        eventually(lambda: all(r["alive"] for r in rows(w).values()), 10, "everybody is back")
        after = rows(w)
        check((after["ds2"]["weight"], after["ds2"]["labels"], after["ds1"]["weight"]),
              (2.5, before["labels"], 0))


def restart_with_labels_of_the_servers_own(w):
    """The administrator's label replaces the server's, key by key. Without it the server's
    counts again."""
    w.down()
    w.__init__(ds=2, settings=["ds.labels=speed=hdd,rack=own"])
    check(rows(w)["ds1"]["labels"], {"rack": "own", "speed": "hdd"})
    weft(w, "ds", "group", "ds1", "rack=r1", "site=a")
    check(rows(w)["ds1"]["labels"], {"rack": "r1", "site": "a", "speed": "hdd"})
    check(rows(w)["ds1"]["labels_set"], {"rack": "r1", "site": "a"})
    w.restart("ds1")
    eventually(lambda: rows(w)["ds1"]["alive"], 10, "it is back")
    check(rows(w)["ds1"]["labels"], {"rack": "r1", "site": "a", "speed": "hdd"})
    weft(w, "ds", "group", "ds1", "rack=")
    check(rows(w)["ds1"]["labels"], {"rack": "own", "site": "a", "speed": "hdd"})
    done = subprocess.run([os.path.join(BUILD, "weft-ds"), "-c", os.path.join(w.dir, "weft.conf"),
                           "-o", "ds.labels=rack", "-o", f"ds.store={w.dir}/x",
                           "-o", f"ds.cluster_key={w.dir}/cluster.key"], capture_output=True,
                          text=True, timeout=60, check=False)
    check(done.returncode != 0 and "ds.labels: label" in done.stderr, True, done.stderr)


# ---- policies


def test_copies_keep_apart_and_policies_are_inherited(c, d):
    w, sub = harness.THE, c.mkdir(d, "sub")
    with racks(w):
        c.ok(putfh(d), setxattr(POLICY, "domain=rack,mirrors=2,stripes=2"))
        check(c.ok(putfh(sub), getxattr(POLICY)).value, b"stripes=2,unit=1M,mirrors=2,domain=rack")
        for n in range(16):
            apart(c, make(c, sub, f"f{n}"))
        c.ok(putfh(sub), setxattr(POLICY, "mirrors=2,group0=rack=r2,group1=rack=r1"))
        for n in range(8):
            check([[int(x[2]) // 3 for x in m] for m in where(c, make(c, sub, f"g{n}"))],
                  [[1], [0]])
        c.ok(putfh(sub), setxattr(POLICY, "stripes=4,group=rack=r1"))
        check(sorted(where(c, make(c, sub, "h"))[0]), ["ds1", "ds1", "ds2", "ds2"])
        c.ok(putfh(sub), setxattr(POLICY, "stripes=3,group=rack=r1/r2"))
        check(len(set(where(c, make(c, sub, "i"))[0])), 3)


def test_a_new_policy_is_for_new_files(c, d):
    w = harness.THE
    with racks(w):
        c.ok(putfh(d), setxattr(POLICY, "group=rack=r1"))
        old = [make(c, d, f"o{n}") for n in range(6)]
        before = [layout_of(c, f) for f in old]
        c.ok(putfh(d), setxattr(POLICY, "group=rack=r2,mirrors=2"))
        new = make(c, d, "new")
        check((sorted(x for m in where(c, new) for x in m), [layout_of(c, f) for f in old]),
              (["ds3", "ds4"], before))
        check({x for f in old for m in where(c, f) for x in m} <= {"ds1", "ds2"}, True)
        # A change of a server's labels does not move them either.
        weft(w, "ds", "group", "ds1", "rack=r2")
        check([layout_of(c, f) for f in old], before)


def test_files_lie_as_the_weights_say(c, d):
    w = harness.THE
    with racks(w, ds4="rack=none"):
        for name, weight in (("ds1", "1"), ("ds2", "2"), ("ds3", "4"), ("ds4", "0")):
            weft(w, "ds", "weight", name, weight)
        got = [where(c, make(c, d, f"f{n}"))[0][0] for n in range(70)]
        for name, share in (("ds1", 10), ("ds2", 20), ("ds3", 40), ("ds4", 0)):
            check(abs(got.count(name) - share) <= (3 if share else 0), True,
                  f"{name} has {got.count(name)} of 70 files, its share is {share}")


def test_policies_that_cannot_be_met_are_refused_and_say_what_is_lacking(c, d):
    w = harness.THE
    path = "/policies_that_cannot_be_met_are_refused_and_say_what_is_lacking"
    with racks(w):
        for text, why in (("mirrors=3,domain=rack", "only 2 values"),
                          ("domain=shelf", "mirror 0: none of the 4 data servers"),
                          ("group=rack=r3", "mirror 0: none"),
                          ("mirrors=2,group1=rack=r3", "mirror 1: none"),
                          ("mirrors=3,group=rack=r1",
                           "only 2 of the data servers are in the groups"),
                          ("group1=rack=r1", "group1: mirrors=1"),
                          ("group=rack", "group: expected labels"),
                          ("domain=a=b", "domain: expected the key"),
                          ("group=rack=r1+rack=r2", "each key once")):
            told = weft(w, "policy", "set", path, text, rc=1)
            check(why in told and told.count("\n") == 1, True, f"{text}: {told}")
            c.no("INVAL", putfh(d), setxattr(POLICY, text))
        c.ok(putfh(d), setxattr(POLICY, "mirrors=2,domain=rack"))
        make(c, d, "f")
        # The policy could be met when it was set, and cannot be met now. The server makes no
        # lesser file.
        weft(w, "ds", "group", "ds3", "rack=")
        weft(w, "ds", "weight", "ds4", "0")
        create = open_("g", BOTH | NO_DELEG, how=GUARDED, attrs={"mode": 0o600})
        # A young cluster waits for a lease.
        c.until(lambda got: err(got.status) != "DELAY", putfh(d), create)
        c.no("NOSPC", putfh(d), create)
        c.no("NOENT", putfh(d), lookup("g"))
        check("cannot place a file: policy stripes=1,unit=1M,mirrors=2,domain=rack: "
              "mirrors=2,domain=rack: the data servers that are alive and have a weight"
              " have only 1 value of that label" in log_of(w), True, "the log")
        weft(w, "ds", "weight", "ds4", "1")
        apart(c, make(c, d, "h"))
        # A hint that the policy cannot follow leaves the policy's number (RFC 8435, 12.1).
        f = c.ok(putfh(d), open_("hint", BOTH | NO_DELEG, how=GUARDED, attrs={"layout_hint": 3}),
                 getfh()).fh
        check(len(where(c, f)), 2)


def restart_of_a_rack_is_waited_for(w):
    """The server does not put copies into one rack because the other is away: DELAY for a
    lease, then NOSPC."""
    with racks(w):
        c = client()
        d = c.mkdir(c.root(), "d")
        c.ok(putfh(d), setxattr(POLICY, "mirrors=2,domain=rack"))
        for name in ("ds3", "ds4"):
            w.dev("kill", w.dir, name, "-9")
        eventually(lambda: w.metric("weft_mds_ds_alive") == 2, 6, "the death of a rack")
        c = client()  # the lease of the other client may be over
        create = open_("f", BOTH | NO_DELEG, how=GUARDED, attrs={"mode": 0o600})
        c.no("DELAY", putfh(d), create)
        c.until(lambda got: err(got.status) != "DELAY", putfh(d), create, tries=120)
        c.no("NOSPC", putfh(d), create)
        w.dev("start", w.dir, "ds3")
        w.dev("start", w.dir, "ds4")
        apart(c, make(c, d, "f"))


# ---- a file's own policy


def test_an_empty_file_takes_a_policy_of_its_own(c, d):
    w = harness.THE
    with racks(w):
        s, f = c.open(d, "f")
        before = c.ok(putfh(f), getattr_("change")).attrs.change
        check(c.ok(putfh(f), getxattr(POLICY)).value, b"stripes=1,unit=1M,mirrors=1")
        r = c.ok(putfh(f),
                 setxattr(POLICY, "mirrors=2,stripes=2,unit=2M,group=rack=r1/r2,domain=rack"),
                 getattr_("change"))
        check(r.attrs.change > before, True, "the change attribute")
        check(c.ok(putfh(f), getxattr(POLICY)).value,
              b"stripes=2,unit=2M,mirrors=2,domain=rack,group=rack=r1/r2")
        check((len(where(c, f)), len(where(c, f)[0]), layout_of(c, f)["unit"]), (2, 2, 2 << 20))
        apart(c, f)
        # Its open stands, through the server and by layout.
        c.ok(putfh(f), write(s, 0, b"first", FILE_SYNC))
        o = lay(c, f, s)
        check([len(m) for m in o.mirrors], [2, 2])
        check(c.ok(putfh(f), read(s, 0, 10)).data, b"first")
        placed = layout_of(c, f)
        c.no("EXIST", putfh(f), setxattr(POLICY, "mirrors=1"))
        check(layout_of(c, f), placed)
        c.no("INVAL", putfh(f), setxattr(POLICY, "mirrors=9"))
        c.no("INVAL", putfh(f), op("REMOVEXATTR", opaque(POLICY)))
        check(c.ok(putfh(f), listxattrs()).names, [])


def test_who_may_not_place_a_file_again(c, d):
    f = make(c, d, "f")
    c.no("EXIST", putfh(f), setxattr(POLICY, "mirrors=2", 1))
    c.ok(putfh(f), setattr_(mode=0o666))
    c.no("PERM", putfh(f), setxattr(POLICY, "mirrors=2"), cred=USER)
    c.ok(putfh(f), setattr_(owner="1000"))
    c.ok(putfh(f), setxattr(POLICY, "mirrors=2", 2), cred=USER)
    check(len(where(c, f)), 2)
    ln = c.ok(putfh(d), create(LNK, "l", link="f"), getfh()).fh
    c.no(("INVAL", "WRONG_TYPE"), putfh(ln), setxattr(POLICY, "mirrors=2"))


def test_a_layout_that_is_out_comes_back_first(c, d):
    """What a client wrote under it counts: the file is not empty."""
    for name, data, want in (("empty", None, "OK"), ("written", b"data", "EXIST")):
        s, f, o, ds, fh = one_server(c, d, name)
        # pylint: disable-next=cell-var-from-loop
        returns_when_recalled(c, f, (lambda args: ds.write(fh, 0, data)) if data else None)
        two, gone = client(), revoked()
        got = two.until(lambda got: err(got.status) != "DELAY", putfh(f),
                        setxattr(POLICY, "mirrors=2"))
        check((err(got.status), revoked()), (want, gone))
        c.wait_callback("LAYOUTRECALL")
        check(len(where(c, f)), 1 if data else 2)
        if data:
            check(c.ok(putfh(f), read(s, 0, 10)).data, data)
        else:
            check(ds.write(fh, 0, b"old").status in (70, 13), True,
                  "a handle to the object of before")
            c.ok(putfh(f), write(s, 0, b"new", FILE_SYNC))
            check(c.ok(putfh(f), read(s, 0, 10)).data, b"new")


def test_a_holder_that_is_silent_is_fenced(c, d):
    s, f, o, ds, fh = one_server(c, d)
    c.on_callback = lambda name, args: None
    two, gone = client(), revoked()
    got = two.until(lambda got: err(got.status) != "DELAY", putfh(f), setxattr(POLICY, "mirrors=2"),
                    tries=120)
    check(err(got.status), "OK")
    check(revoked(), gone + 1)
    check(ds.write(fh, 0, b"old").status in (70, 13), True, "a handle to the object of before")
    check((len(where(two, f)), two.ok(putfh(f), read(ANON, 0, 10)).data), (2, b""))


def restart_after_a_file_was_placed_again(w):
    """The answer is durable. The old objects are gone."""
    c = client()
    d = c.mkdir(c.root(), "d")
    s, f = c.open(d, "f")
    c.ok(putfh(f), setxattr(POLICY, "mirrors=2"))
    placed = layout_of(c, f)
    w.restart()
    c = client()
    check(layout_of(c, c.until(lambda got: not got.status, putrootfh(), lookup("d"), lookup("f"),
                               getfh()).results[-1].fh), placed)


if __name__ == "__main__":
    harness.main(globals(), settings=CALM, restarted=CALM)
