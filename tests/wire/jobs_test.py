#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The list of jobs: each kind shows up with its number and gets on, can be waited for and
cancelled, and what is durable keeps its number over a restart. Prints TAP."""
import os
import pty
import select
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../wirelib"))
from harness import *  # noqa: E402,F403
from files import MB, layout_of  # noqa: E402
from jobs import api, ended, one  # noqa: E402
from mirrored import QUICK, Wide, servers, states, whole  # noqa: E402
from tool import ask, weft  # noqa: E402

# What is copied takes seconds. A data server copies 8 MiB at a time.
SLOW = [*QUICK, "mds.repair_rate=16M"]


def jobs(w, **args):
    query = "&".join(f"{k}={v}" for k, v in args.items())
    return api(w, "GET", f"/v1/jobs?{query}")


def grows(w, job, key="done_bytes", steps=3):
    """Its progress is seen to grow, and never to be more than all."""
    seen = []

    def more():
        j = one(w, job)
        if j[key] is not None:
            check(j[key.replace("done", "total")] is None
                  or j[key] <= j[key.replace("done", "total")], True, j)
            check(not seen or j[key] >= seen[-1], True, f"{seen}, then {j}")
            seen.append(j[key])
        return len(set(seen)) >= steps
    eventually(more, 60, f"progress of job {job}")


def shows(w, job, **want):
    """The job is in the list, and in those of its kind and its file; and has all that a job has."""
    j = one(w, job)
    check({k: j[k] for k in want}, want)
    check(set(j), {"id", "kind", "state", "path", "inode", "ds", "resumes", "cancellable",
                   "begun_at", "ended_at", "phase", "done_bytes", "total_bytes", "done_objects",
                   "total_objects", "done_files", "total_files", "rate_bytes_s", "eta_s",
                   "waits_for", "error", "result"})
    check(job in [k["id"] for k in jobs(w)["jobs"]], True)
    check([k["id"] for k in jobs(w, kind=j["kind"])["jobs"]], [job])
    if j["path"]:
        check(job in [k["id"] for k in jobs(w, path=j["path"])["jobs"]], True)
    return j


def mirrored(name, size=16 * MB, policy="mirrors=1"):
    x = Wide(name, size, policy)
    x.give_back()
    return x


def test_a_mirror_more_shows_its_progress_and_ends(w):
    x = mirrored("add", 24 * MB)
    job = api(w, "PUT", "/v1/mirror/add?path=/add/f")["job"]
    shows(w, job, kind="mirror-add", path="/add/f", resumes=True, cancellable=True, error=None,
          ended_at=None)
    grows(w, job)
    j = one(w, job)
    check((j["total_bytes"], j["done_objects"], j["total_objects"]), (24 * MB, 0, 1))
    check(j["begun_at"] > 1e9, True)
    eventually(lambda: one(w, job)["rate_bytes_s"] or one(w, job)["state"] == "done", 60, "a rate")
    weft(w, "jobs", "wait", str(job))
    j = one(w, job)
    check((j["state"], j["done_bytes"], j["done_objects"], whole(x.c, x.f)),
          ("done", 24 * MB, 1, True))
    check(j["ended_at"] >= j["begun_at"], True)
    got = jobs(w, path="/add/f")
    check((got["jobs"], [k["id"] for k in got["finished"]], got["more"]), ([], [job], False))
    check("it is over: done" in api(w, "DELETE", f"/v1/jobs?id={job}", 409)["error"], True)
    again = api(w, "PUT", "/v1/mirror/add?path=/add/f")["job"]
    check(again != job, True, "another job about the file has another number")
    check((one(w, job)["state"], one(w, again)["kind"]), ("done", "mirror-add"))


def test_a_mirror_that_is_being_added_is_cancelled(w):
    x = mirrored("cancel", 24 * MB)
    job = api(w, "PUT", "/v1/mirror/add?path=/cancel/f")["job"]
    grows(w, job)
    api(w, "DELETE", f"/v1/jobs?id={job}")
    check(ended(w, job)["state"], "cancelled")
    check(len(servers(x.c, x.f)), 1)
    done = subprocess.run([os.path.join(BUILD, "weft"), "--admin", w.where["mds"], "jobs", "wait",
                           str(job)], capture_output=True, text=True, timeout=60, check=False)
    check((done.returncode, "was cancelled" in done.stderr), (1, True), done.stderr)


def test_a_restart_keeps_the_numbers_of_what_goes_on(w):
    mirrored("restart", 48 * MB)
    mirrored("wide")
    mirrored("wider", MB)
    add = api(w, "PUT", "/v1/mirror/add?path=/restart/f")["job"]
    api(w, "PUT", "/v1/move?path=/wide/f&stripes=2")
    stripes = api(w, "PUT", "/v1/move?path=/wider/f&stripes=2")["job"]  # waits for the other
    scrub = api(w, "PUT", "/v1/scrub?content=1")["job"]
    verify = api(w, "PUT", "/v1/verify?path=/&recursive=1")["job"]
    drain = api(w, "PUT", "/v1/ds/drain?ds=ds4")["job"]
    grows(w, add)
    w.restart()
    j = one(w, add)
    check((j["kind"], j["path"], j["resumes"]), ("mirror-add", "/restart/f", True))
    check(one(w, stripes)["kind"], "restripe")
    check((one(w, scrub)["kind"], one(w, drain)["kind"]), ("scrub", "drain"))
    check("no such job" in api(w, "GET", f"/v1/jobs/one?id={verify}", 404)["error"], True,
          "it has to be begun again")
    check(api(w, "PUT", "/v1/verify?path=/&recursive=1")["job"] != verify, True)
    for job in (add, stripes, scrub, drain):
        check(ended(w, job)["state"], "done", job)
    check(ask(w, "file", "show", "/restart/f")["mirrors"][1]["state"], "in-sync")


def test_moves_and_restripes(w):
    x = mirrored("move")
    (old,) = servers(x.c, x.f)
    weft(w, "set", "mds.repair_rate=512K")  # slow enough to be seen and cancelled
    job = api(w, "PUT", f"/v1/move?path=/move/f&from={old}")["job"]
    shows(w, job, kind="move", path="/move/f")
    eventually(lambda: one(w, job)["phase"] == "copy", 60, "the copy")
    check("copied to their new places" in api(w, "DELETE", f"/v1/jobs?id={job}", 409)["error"],
          True)
    check(one(w, job)["cancellable"], False)
    weft(w, "set", "mds.repair_rate=0")
    weft(w, "jobs", "wait", str(job))
    check(old in servers(x.c, x.f), False)
    weft(w, "set", "mds.repair_rate=512K")
    job = api(w, "PUT", "/v1/move?path=/move/f&stripes=3")["job"]
    shows(w, job, kind="restripe", path="/move/f", total_objects=3)
    eventually(lambda: one(w, job)["phase"] == "copy", 60, "the copy")
    weft(w, "jobs", "cancel", str(job))
    weft(w, "set", "mds.repair_rate=0")
    j = ended(w, job)
    check((j["state"], len(servers(x.c, x.f))), ("cancelled", 1))
    eventually(lambda: not ask(w, "mirror", "status", "/move/f")["files"]
               and w.metric("weft_mds_orders") == 0, 60, "the end of the new objects")
    job = api(w, "PUT", "/v1/move?path=/move/f&stripes=2")["job"]
    grows(w, job, steps=2)
    weft(w, "jobs", "wait", str(job))
    check((one(w, job)["state"], len(servers(x.c, x.f))), ("done", 2))


def test_what_has_not_begun_is_cancelled(w):
    """Repair is off, so nothing begins."""
    x = mirrored("off", MB, "mirrors=2")
    before = servers(x.c, x.f)
    job = api(w, "PUT", f"/v1/move?path=/off/f&from={before[0]}")["job"]
    j = shows(w, job, kind="move", state="waiting", done_objects=0, total_objects=1)
    check("repair is off" in j["waits_for"], True, j)
    check("is being moved" in weft(w, "mirror", "remove", "/off/f", "0", rc=1)
          or "are being moved" in weft(w, "mirror", "remove", "/off/f", "0", rc=1), True)
    check("cancelling" in weft(w, "jobs", "cancel", str(job))
          or one(w, job)["state"] == "cancelled", True)
    check((ended(w, job)["state"], servers(x.c, x.f)), ("cancelled", before))
    job = api(w, "PUT", "/v1/mirror/remove?path=/off/f&mirror=1")["job"]
    shows(w, job, kind="mirror-remove", state="waiting")
    api(w, "DELETE", f"/v1/jobs?id={job}")
    check((ended(w, job)["state"], servers(x.c, x.f), states(x.c, x.f)),
          ("cancelled", before, ["in-sync"] * 2), "the mirror stays")
    job = api(w, "PUT", "/v1/move?path=/off/f&stripes=2")["job"]
    shows(w, job, kind="restripe", state="waiting")
    api(w, "DELETE", f"/v1/jobs?id={job}")
    check((ended(w, job)["state"], servers(x.c, x.f)), ("cancelled", before))
    x.open_layout()
    x.report(1)
    job = api(w, "PUT", "/v1/repair?path=/off/f")["job"]
    shows(w, job, kind="repair", cancellable=False)
    check("stay behind" in api(w, "DELETE", f"/v1/jobs?id={job}", 409)["error"], True)
    check(one(w, job)["kind"], "repair")


def test_a_drain(w):
    for n in range(4):
        mirrored(f"drain{n}", 4 * MB, "mirrors=2")
    job = api(w, "PUT", "/v1/ds/drain?ds=ds2")["job"]
    shows(w, job, kind="drain", ds="ds2", path=None, cancellable=True)
    eventually(lambda: one(w, job)["total_objects"], 60, "its objects are counted")
    api(w, "DELETE", f"/v1/jobs?id={job}")
    check(one(w, job)["state"], "cancelled")
    check("drain" in api(w, "GET", "/v1/ds/one?ds=ds2"), False)
    check(api(w, "PUT", "/v1/ds/drain?ds=ds2")["job"], job)
    grows(w, job, "done_objects", 2)
    weft(w, "jobs", "wait", str(job))
    check(one(w, job)["state"], "done")
    check(api(w, "GET", "/v1/ds/one?ds=ds2")["drain"], "drained")


def test_runs_of_which_there_is_one(w):
    mirrored("runs", 4 * MB, "mirrors=2")
    verify = api(w, "PUT", "/v1/verify?path=/runs/f")["job"]
    shows(w, verify, kind="verify", path="/runs/f", resumes=False, cancellable=True)
    api(w, "DELETE", f"/v1/jobs?id={verify}")
    check(ended(w, verify)["state"], "cancelled")
    verify = api(w, "PUT", "/v1/verify?path=/&recursive=1")["job"]
    scrub = api(w, "PUT", "/v1/scrub?content=1")["job"]
    shows(w, scrub, kind="scrub", resumes=True, cancellable=True, path=None)
    weft(w, "jobs", "wait", str(verify))
    j = one(w, verify)
    check((j["state"], "0 ranges differ" in j["result"], j["done_files"]), ("done", True, 1))
    weft(w, "jobs", "wait", str(scrub))
    check((one(w, scrub)["state"], "0 findings" in one(w, scrub)["result"]), ("done", True))
    scrub = api(w, "PUT", "/v1/scrub?content=1")["job"]
    api(w, "DELETE", f"/v1/jobs?id={scrub}")
    check(ended(w, scrub)["state"], "cancelled")
    balance = api(w, "PUT", "/v1/balance?dry=1")["job"]
    check((ended(w, balance)["kind"], one(w, balance)["state"], bool(one(w, balance)["result"])),
          ("balance", "done", True))
    choose = api(w, "PUT", "/v1/choose?path=/runs/f")["job"]
    check((ended(w, choose)["kind"], one(w, choose)["state"]), ("choose", "done"))
    choose = api(w, "PUT", "/v1/choose?path=/runs/f&mirror=0")["job"]
    j = ended(w, choose)
    check((j["state"], "has a good copy" in j["error"]), ("failed", True), j)
    check("has a good copy" in weft(w, "jobs", "wait", str(choose), rc=1), True)
    revoke = api(w, "PUT", "/v1/exports")["ending"]["job"]
    check((ended(w, revoke)["kind"], one(w, revoke)["state"]), ("revoke", "done"))


def test_trees_are_waited_for(w):
    c = client()
    top = c.mkdir(c.root(), "tree")
    c.ok(putfh(top), setxattr("weft.policy", "mirrors=1"))
    files = []
    for n in range(6):
        s, f = c.open(top, f"f{n}")
        c.ok(putfh(f), write(s, 0, bytes(MB // 2), FILE_SYNC), close(s))
        files.append(f)
    check(ask(w, "mirror", "add", "-r", "--to", "2", "/tree", "--wait"),
          {"files": 6, "begun": 6, "refused": 0, "done": 6, "failed": 0, "cancelled": 0})
    check([len(servers(c, f)) == 2 and whole(c, f) for f in files], [True] * 6)
    there = sum("ds1" in servers(c, f) for f in files)
    check(there > 0, True)
    check(weft(w, "move", "-r", "--from", "ds1", "/tree", "--wait"),
          f"{there} files: {there} begun, 0 refused, {there} done, 0 failed, 0 cancelled\n")
    check(any("ds1" in servers(c, f) for f in files), False)
    # One of them is cancelled: the command says so.
    p = subprocess.Popen([os.path.join(BUILD, "weft"), "--admin", w.where["mds"], "move", "-r",
                          "--stripes", "2", "/tree", "--wait"], stdout=subprocess.PIPE,
                         stderr=subprocess.PIPE, text=True)
    last = {}

    def waits():
        last["job"] = [j["id"] for j in jobs(w, kind="restripe")["jobs"]
                       if j["state"] == "waiting"]
        return last["job"]
    eventually(waits, 60, "a job that waits")
    api(w, "DELETE", f"/v1/jobs?id={last['job'][-1]}")
    out, err = p.communicate(timeout=120)
    check((p.returncode, out, f"job {last['job'][-1]} (restripe " in err),
          (1, "6 files: 6 begun, 0 refused, 5 done, 0 failed, 1 cancelled\n", True), err)


def on_terminal(w, *args):
    """What the command prints on a terminal, and its status."""
    master, slave = pty.openpty()
    p = subprocess.Popen([os.path.join(BUILD, "weft"), "--admin", w.where["mds"], *args],
                         stdout=subprocess.PIPE, stderr=slave)
    os.close(slave)
    seen = b""
    while select.select([master], [], [], 60)[0]:
        try:
            got = os.read(master, 4096)
        except OSError:  # nothing has it open any more
            break
        if not got:
            break
        seen += got
    os.close(master)
    p.stdout.close()
    return seen.decode(), p.wait(timeout=60)


def test_wait_shows_a_bar_on_a_terminal_and_lines_elsewhere(w):
    mirrored("bar")
    mirrored("lines")
    job = api(w, "PUT", "/v1/mirror/add?path=/bar/f")["job"]
    seen, rc = on_terminal(w, "jobs", "wait", str(job))
    check((rc, "[#" in seen, " of 16M" in seen, "mirror-add /bar/f" in seen, "\n" in seen),
          (0, True, True, True, False), seen)
    job = api(w, "PUT", "/v1/mirror/add?path=/lines/f")["job"]
    done = subprocess.run([os.path.join(BUILD, "weft"), "--admin", w.where["mds"], "jobs", "wait",
                           str(job)], capture_output=True, text=True, timeout=60, check=False)
    lines = done.stderr.splitlines()
    check((done.returncode, len(lines) >= 2, all(n.startswith(f"job {job} ") for n in lines)),
          (0, True, True), done.stderr)
    check(("done" in done.stdout, "\r" in done.stderr), (True, False), done.stdout)
    job = api(w, "PUT", "/v1/mirror/add?path=/bar/f")["job"]
    (got,) = ask(w, "jobs", "wait", str(job))["jobs"]
    check((got["id"], got["state"]), (job, "done"))


def test_what_is_not_there_is_refused_and_the_list_is_bounded(w):
    api(w, "GET", "/v1/jobs/one?id=1", 404)
    api(w, "GET", "/v1/jobs/one?id=0", 400)
    api(w, "GET", "/v1/jobs/one?id=x", 400)
    api(w, "GET", "/v1/jobs/one", 400)
    api(w, "DELETE", "/v1/jobs?id=4711", 404)
    api(w, "DELETE", "/v1/jobs?id=18446744073709551615", 400)
    for source in range(16):
        api(w, "GET", f"/v1/jobs/one?id={(99 << 12) + source}", 404)
    got = api(w, "GET", "/v1/jobs?kind=nap", 400)["error"]
    check("no jobs of the kind" in got, True, got)
    api(w, "GET", "/v1/jobs?path=/none", 404)
    api(w, "GET", "/v1/jobs?limit=0", 400)
    check(jobs(w, ids="1,2,3"), {"jobs": []})
    api(w, "GET", "/v1/jobs?ids=1,x", 400)
    check("no such job" in weft(w, "jobs", "wait", "4711", rc=1), True)
    check("no such job" in weft(w, "jobs", "cancel", "4711", rc=1), True)
    check("ID is a job's number" in weft(w, "jobs", "wait", "all", rc=2), True)
    # The look at the exports that follows each start is a job until it is over.
    eventually(lambda: "no job runs or waits" in weft(w, "jobs"), 60, "no job")
    check("argument is missing" in weft(w, "jobs", "wait", rc=2), True)
    bounded(w)


def bounded(w):
    """Repair is off, so all of them wait."""
    c = client()
    top = c.mkdir(c.root(), "many")
    for n in range(5):
        s, f = c.open(top, f"f{n}")
        c.ok(putfh(f), write(s, 0, b"in a tree", FILE_SYNC), close(s))
        ds = layout_of(c, f)["mirrors"][0]["objects"][0]["ds"]
        api(w, "PUT", f"/v1/move?path=/many/f{n}&from={ds}")
    got = jobs(w, limit=3)
    check((len(got["jobs"]), got["more"]), (3, True))
    got = jobs(w)
    check((len(got["jobs"]), got["more"], {j["kind"] for j in got["jobs"]}), (5, False, {"move"}))
    ids = [str(j["id"]) for j in got["jobs"]]
    check([str(j["id"]) for j in jobs(w, ids=",".join(ids))["jobs"]], ids)
    told = weft(w, "jobs", "list", "/many/f3")
    check((told.count("/many/f"), "/many/f3" in told, "repair is off" in told), (1, True, True),
          told)
    check(len(ask(w, "jobs", "--kind", "move")["jobs"]), 5)


def settings(name):
    off = "has_not_begun" in name or "bounded" in name
    return [*QUICK, "mds.repair_files=0"] if off else SLOW


if __name__ == "__main__":
    run_apart(globals(), settings=settings, beside=4)
