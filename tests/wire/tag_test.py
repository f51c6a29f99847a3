#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""What clients of a compute job do is counted under its name (docs/tags.md), and what is done below
a directory under the directory (docs/heat.md). Prints TAP."""
import os
import re
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../wirelib"))
from harness import *  # noqa: E402,F403
from files import MB  # noqa: E402
from jobs import api  # noqa: E402
from pageblocks import Shell, only  # noqa: E402
from steps import again, lay  # noqa: E402
from tool import ask, fsck, weft  # noqa: E402

KB = 1024


def node(name, **how):
    return client(owner=b"Linux NFSv4.2 " + name.encode(), **how)


def tags(w):
    return {t["name"]: t for t in api(w, "GET", "/v1/tags")["tags"]}


def tag(w, name, *clients_, want=200):
    got = api(w, "PUT", f"/v1/tags?name={name}", want, "\n".join(clients_))
    return got["tags"][0] if want == 200 else got["error"]


def untag(w, name):
    api(w, "DELETE", f"/v1/tags?name={name}")


def top(w, **args):
    return api(w, "GET", "/v1/top?" + "&".join(f"{k}={v}" for k, v in args.items()))


def listed(w):
    return api(w, "GET", "/v1/clients")["clients"]


def sums(w, name):
    t = tags(w)[name]
    return [t["operations"], t["read_bytes"], t["written_bytes"]]


def names(t):
    return {c["client"]: c["known"] for c in t["clients"]}


def file(c, name, d=None):
    return c.open(c.root() if d is None else d, name, BOTH)


def stats(sid, server, read_bytes, written_bytes):
    """LAYOUTSTATS: bytes since the layout was made, in operations of 64 KiB."""
    def latency(size):
        n = size // (64 * KB)
        return u64(n) + u64(size) + u64(n) + u64(size) + u64(0) + u64(0) + u32(0) + u64(n) + u32(0)
    body = (opaque("tcp") + opaque("127.0.0.1.8.1") + opaque(server.fhs[0]) + latency(read_bytes)
            + latency(written_bytes) + u64(1) + u32(0) + boolean(True))
    return op("LAYOUTSTATS", u64(0), u64(MAX64), stateid(sid), u64(0) * 4, server.deviceid,
              u32(FLEX), opaque(body))


def test_what_the_clients_of_a_job_do_is_counted_for_it(w):
    a, b, c = node("rack1/count1"), node("count2"), node("other")
    (sa, fa), (sb, fb), (sc, fc) = file(a, "fa"), file(b, "fb"), file(c, "fc")
    a.ok(putfh(fa), write(sa, 0, bytes(64 * KB), FILE_SYNC))
    got = ask(w, "job", "tag", "train-7", "count1", "count2", "count3")["tags"]
    check([(t["name"], t["known"], names(t)) for t in got],
          [("train-7", 2, {"count1": 1, "count2": 1, "count3": 0})])
    check(sums(w, "train-7"), [0, 0, 0], "what was done before is not the job's")
    check(abs(got[0]["made_at"] - time.time()) < 60 and got[0]["since_at"] >= got[0]["made_at"],
          True)
    for _ in range(3):  # SEQUENCE, PUTFH, WRITE
        a.ok(putfh(fa), write(sa, 0, bytes(64 * KB), FILE_SYNC))
    b.ok(putfh(fb), write(sb, 0, bytes(4 * KB), FILE_SYNC))
    b.ok(putfh(fb), read(sb, 0, 4 * KB))
    b.ok(putfh(fb), read_plus(sb, 0, 4 * KB))
    c.ok(putfh(fc), write(sc, 0, bytes(64 * KB), FILE_SYNC))
    check(sums(w, "train-7"), [18, 8 * KB, 196 * KB])
    d = node("count3")
    s, f = file(d, "fd")
    d.ok(putfh(f), write(s, 0, bytes(8 * KB), FILE_SYNC))
    more = sums(w, "train-7")
    check((more[0] > 18, more[1:]), (True, [8 * KB, 204 * KB]), "a client that came later")
    # What went past the metadata server counts as the client reports it.
    o = lay(a, fa, sa)
    for times in (1, 1, 2):
        a.ok(putfh(fa), stats(o.stateid, o.mirrors[0][0], times * MB, times * 2 * MB))
    check(sums(w, "train-7")[1:], [8 * KB + 2 * MB, 204 * KB + 4 * MB])
    check({x["name"]: x["tag"] for x in listed(w)
           if x["name"] in ("count1", "count3", "other")},
          {"count1": "train-7", "count3": "train-7", "other": None})
    for dir_, n in (("read", 8 * KB + 2 * MB), ("write", 204 * KB + 4 * MB)):
        check(w.metric(f'weft_mds_tag_bytes_total{{tag="train-7",dir="{dir_}"}}'), n)
    check(w.metric('weft_mds_tag_operations_total{tag="train-7"}'), sums(w, "train-7")[0])
    now = top(w)
    (job,) = now["tags"]
    check((job["name"], job["clients"]), ("train-7", 3))
    check(job["ops"] > 1 and 0 < job["p50_us"] <= job["p99_us"] and job["read"] > 64 * KB
          and job["written"] > job["read"], True, job)
    check({r["name"]: r["tag"] for r in now["clients"] if r["name"] in ("count2", "other")},
          {"count2": "train-7", "other": None})
    check(re.search(r"^ *[\d.]+ .* 3 +train-7$", weft(w, "top", "--by", "job"), re.M) is not None
          and "CLIENT" not in weft(w, "top", "--by", "job"), True)
    check("train-7" in weft(w, "top") and "--by takes" in weft(w, "top", "--by", "x", rc=2), True)
    check(re.search(r"^train-7 +3 +3 +\d+ +2.0M +4.2M", weft(w, "job", "list"), re.M) is not None,
          True, weft(w, "job", "list"))
    check(weft(w, "job", "list", "train-7").splitlines()[-1].split(), ["count3", "1"])
    # Taken out, one and then all.
    weft(w, "job", "untag", "train-7", "count2")
    was = sums(w, "train-7")
    b.ok(putfh(fb), write(sb, 0, bytes(4 * KB), FILE_SYNC))
    check((sums(w, "train-7"), sorted(names(tags(w)["train-7"]))), (was, ["count1", "count3"]))
    check(ask(w, "job", "untag", "train-7")["tags"], [])
    check((tags(w), top(w)["tags"]), ({}, []))
    check("no client is in a compute job" in weft(w, "job", "list"), True)
    a.ok(putfh(fa), write(sa, 0, bytes(64 * KB), FILE_SYNC))
    tag(w, "train-7", "count1")
    check(sums(w, "train-7"), [0, 0, 0], "a job of the same name begins at 0")
    untag(w, "train-7")


def test_how_a_client_is_named(w):
    at, by_owner = client(source=("127.0.0.5", 0)), client(owner=b"plain owner, 7")
    odd = client(owner=b"odd\\\x01owner")
    number = next(x["number"] for x in listed(w)
                  if x["owner"] == "plain owner, 7")
    # An IPv4 address in any of its forms; a number stands for the client's owner.
    got = ask(w, "job", "tag", "named", "::ffff:127.0.0.5", str(number), r"odd\x5c\x01owner",
              "2001:DB8:0::1")["tags"][0]
    check(names(got), {"127.0.0.5": 1, "plain owner, 7": 1, r"odd\x5c\x01owner": 1,
                       "2001:db8::1": 0})
    was = sums(w, "named")[0]
    for c in (at, by_owner, odd):
        c.ok(putrootfh())
    check(sums(w, "named")[0] - was, 6)
    for bad, want, why in (("999999", 404, "no such client now"), ("0x123", 404, "no such client"),
                           (r"\x01no", 404, "no such client now"), ("", 400, "one a line"),
                           ("n" * 256, 400, "expected"), ("a\tb", 400, "a client's name")):
        got = api(w, "PUT", "/v1/tags?name=named", want, "fine\n" + bad if bad else "\n\n")
        check(why in got["error"], True, got)
    got = api(w, "PUT", "/v1/tags?name=lines", body="a\rb\r\nc\rd\r" + "e\r" * 200)["tags"][0]
    check(sorted(names(got)), ["a", "b", "c", "d", "e"])
    untag(w, "lines")
    for body in (b"\xff\xfe", b"a\x1b[1mb", b"\xc2\x9b31m"):
        check("a client's name" in api(w, "PUT", "/v1/tags?name=named", 400, body)["error"], True)
    check("%ff" not in api(w, "DELETE", "/v1/tags?name=named&client=%ff%1b", 400)["error"], True)
    for bad in ("", "a%20b", "a/b", "n" * 65, "%c3%a4"):
        for method in ("GET", "PUT", "DELETE"):
            got = api(w, method, f"/v1/tags?name={bad}", 400, "node1")
            check("name: expected" in got["error"], True, got)
    for method in ("PUT", "DELETE"):
        check("name: expected" in api(w, method, "/v1/tags", 400, "node1")["error"], True)
    check("does not name it so" in weft(w, "job", "untag", "named", "plain", rc=1), True)
    for args in (("untag", "none"), ("untag", "none", "x"), ("list", "none")):
        check("none" in weft(w, "job", *args, rc=1), True, args)
    check(len(tags(w)["named"]["clients"]), 4, "what is refused changes nothing")
    weft(w, "job", "untag", "named", str(number), "127.0.0.5")
    check(sorted(names(tags(w)["named"])), ["2001:db8::1", r"odd\x5c\x01owner"])
    untag(w, "named")


def test_a_client_is_in_one_job(w):
    node("rack2/both", source=("127.0.0.6", 0))
    tag(w, "one", "both", "later")
    tag(w, "one", "both", "both", "127.0.0.6")
    check(len(tags(w)["one"]["clients"]), 3)
    for other in ("both", "127.0.0.6", "Linux NFSv4.2 rack2/both", "later"):
        said = tag(w, "two", "fine", other, want=409)
        check("one names" in said and "in one compute job" in said and other in said, True, said)
    check(sorted(tags(w)), ["one"], "nothing of a refused request counts")
    # Two jobs named it before it came: the owner is looked for first, then the name, then the
    # address.
    client(owner=b"evil\x1b[2J", source=("127.0.0.9", 0))
    tag(w, "one", "127.0.0.9")
    said = tag(w, "two", "evil\\x1b[2J", want=409)
    check("\x1b" not in said and "evil\\x1b[2J: the compute job one names" in said, True, said)
    weft(w, "job", "untag", "one", "127.0.0.9")
    check("one names it" in weft(w, "job", "tag", "two", "both", rc=1), True)
    tag(w, "two", "127.0.0.7")
    c = node("later", source=("127.0.0.7", 0))
    was = sums(w, "one")[0], sums(w, "two")[0]
    c.ok(putrootfh())
    check((sums(w, "one")[0] - was[0], sums(w, "two")[0] - was[1]), (2, 0))
    check(tags(w)["two"]["known"], 0)
    weft(w, "job", "untag", "one", "later")
    c.ok(putrootfh())
    check(sums(w, "two")[0] - was[1], 2)
    for name in ("one", "two"):
        untag(w, name)


def test_directories_with_what_is_below_them(w):
    c = node("deep")
    here = c.mkdir(c.root(), "projects")
    a, b = c.mkdir(here, "a"), c.mkdir(here, "b")
    deep = c.mkdir(c.mkdir(a, "x"), "y")
    c.ok(putfh(b), setxattr("weft.policy", b"stripes=1,mirrors=2"))
    (s1, f1), (s2, f2), (s3, f3) = file(c, "f", a), file(c, "f", deep), file(c, "f", b)
    # The one amid the three: rates fall with time, which passes between them.
    for s, f in ((s2, f2), (s1, f1), (s2, f2), (s2, f2)):
        c.ok(putfh(f), write(s, 0, bytes(MB), FILE_SYNC))
    # A client writes both copies, and reports both.
    o = lay(c, f3, s3)
    c.ok(putfh(f3), *[stats(o.stateid, m[0], 0, 8 * MB) for m in o.mirrors])
    got = {r["path"]: r for r in top(w, path="/projects")["directories"]}
    check(sorted(got), ["/projects", "/projects/a", "/projects/b"])
    part = got["/projects/b"]["written"] / got["/projects/a"]["written"]
    check(3.5 < part < 4.5, True, got)
    check(got["/projects"]["written"] < 1 and got["/projects"]["ops"] > 0, True, got)
    check(got["/projects/a"]["p99_us"] > 0 and got["/projects/a"]["ops"] > 0, True, got)
    flat = {r["path"]: r["written"] for r in top(w, rows=50)["directories"]}
    part = flat["/projects/a/x/y"] / flat["/projects/a"]
    check(2.5 < part < 3.5, True, flat)
    check("/projects" not in [r["path"] for r in top(w, path="/projects/a")["directories"]], True)
    for path, want in (("/projects/a/f", 400), ("/none", 404)):
        check(path in api(w, "GET", f"/v1/top?path={path}", want)["error"], True)
    out = weft(w, "top", "/projects", "--by", "directory")
    check((out.count("DIRECTORY"), out.count("/projects"), "SERVER" in out), (1, 3, False), out)
    (export,) = [r for r in top(w)["exports"] if r["name"] == "/"]
    check(export["ops"] > 1 and export["written"] > MB and export["p50_us"] > 0, True, export)
    check(re.search(r"^ *[\d.]+ .* /$", weft(w, "top", "--by", "export"), re.M) is not None, True)


def test_tags_outlive_clients_and_the_server(w):
    c, at = node("stays"), client(source=("127.0.0.8", 0))
    tag(w, "long", "stays", "127.0.0.8")
    fsck(w)

    def counts(*clients_):
        was = sums(w, "long")[0]
        for one in clients_:
            one.ok(putrootfh())
        check(sums(w, "long")[0] - was, 2 * len(clients_))
    counts(c, at)
    again(c)
    again(at)
    counts(c, at)
    rebooted = node("stays")  # another verifier
    counts(rebooted, at)
    eventually(lambda: "tag long: 127.0.0.8, stays" in weft(w, "events", "--kind", "audit"), 60,
               "the audit")
    made = tags(w)["long"]["made_at"]
    w.restart()
    check((tags(w)["long"]["made_at"], sums(w, "long")), (made, [0, 0, 0]))
    check(names(tags(w)["long"]), {"stays": 0, "127.0.0.8": 0})
    again(rebooted)
    again(at)
    counts(rebooted, at)
    check(names(tags(w)["long"]), {"stays": 1, "127.0.0.8": 1})
    untag(w, "long")
    fsck(w)


def test_the_block_of_the_page_runs(w):
    block, = only("tags.md", "weft job tag train-7 node17")
    said = Shell(w.top, WEFT_ADMIN=f"unix:{w.dir}/run/mds.sock").run(block)
    check("train-7" in said and "train-7" not in tags(w), True, said)
    # What nothing runs, and what fails in the middle, is found.
    for wrong in (lambda: only("tags.md"), lambda: only("tags.md", "weft job untag"),
                  lambda: Shell(w.top).run("true\nfalse | true\ntrue")):
        try:
            wrong()
        except Failed:
            continue
        raise AssertionError("a wrong block passes")


def test_at_most_64_jobs(w):
    for i in range(64):
        tag(w, f"many{i}", f"m{i}")
    check("64 compute jobs" in tag(w, "more", "x", want=409), True)
    tag(w, "many63", "x")
    for i in range(64):
        untag(w, f"many{i}")
    check(tags(w), {})


if __name__ == "__main__":
    run_shared(globals(), ds=2, settings=[*CALM, "mds.grace=1s"])
