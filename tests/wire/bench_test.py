#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""weft-bench against a live cluster. Prints TAP.

Its phases do what they say, its results add up, and it reports what fails.
"""
import importlib.machinery
import json
import os
import signal
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../wirelib"))
import tap  # noqa: E402
from harness import ADDR, BUILD, Client, Cluster, Failed, check, eventually  # noqa: E402

SERVER = f"{ADDR[0]}:{ADDR[1]}"
THE = None


def run(*args, want=0):
    done = subprocess.run([os.path.join(BUILD, "weft-bench"), *args], capture_output=True,
                          text=True, timeout=60, check=False)
    check(done.returncode, want, f"weft-bench {args}: {done.stderr[-300:]}")
    return done


def bench(what, *args):
    """The phases by name, and the whole result."""
    got = json.loads(run(what, "--server", SERVER, "--quiet", "--json", "-", *args).stdout)
    return {p["phase"]: p for p in got["phases"]}, got


def pid(name="mds"):
    return str(next(d["pid"] for d in json.loads(THE.dev("status", THE.dir, "--json"))["daemons"]
                    if d["name"] == name))


def sound(p):
    """What holds for every phase's figures."""
    check(p["p50_us"] <= p["p90_us"] <= p["p99_us"] <= p["p999_us"] <= p["max_us"], True, f"{p}")
    check(abs(p["ops_per_s"] * p["seconds"] - p["ops"]) < 1, True, f"{p}")


def test_null_calls_are_counted_and_cost_the_server_time():
    got, _ = bench("null", "--count", "3000", "--depth", "4", "--pid", pid())
    check(got["null"]["ops"], 3000)
    sound(got["null"])
    if not 0.1 < got["null"]["server_cpu_us_per_op"] < 5000:
        raise Failed(f"{got}")


def test_null_calls_ask_an_nfsv3_data_server_too():
    ds = next(d for d in json.loads(THE.dev("status", THE.dir, "--json"))["daemons"]
              if d["name"] == "ds1")
    args = ("null", "--nfs3", "--quiet", "--sessions", "3", "--conns", "2", "--depth", "4",
            "--count", "1000")
    got = json.loads(run(*args, "--server", f"{ds['addr']}:{ds['port']}", "--json", "-",
                         "--pid", pid("ds1")).stdout)
    check((got["phases"][0]["ops"], got["nfs3"]), (3000, True))
    sound(got["phases"][0])
    if not 0.1 < got["phases"][0]["server_cpu_us_per_op"] < 5000:
        raise Failed(f"{got}")
    check(bench("null", "--count", "5")[1]["nfs3"], False)
    check(run(*args, "--server", SERVER, want=1).stderr,
          "weft-bench: null: Protocol error (NFS status 0)\n", "no NFSv3 is served there")
    check("Connection refused" in run(*args, "--server", "127.0.0.1:1", want=1).stderr, True)


def counts(name="mds"):
    return next(d["metrics"] for d in json.loads(THE.dev("status", THE.dir, "--json"))["daemons"]
                if d["name"] == name)


def counting():
    """Are the daemons built with --enable-counts?"""
    with open(os.path.join(BUILD, "config.log"), encoding="utf-8", errors="replace") as f:
        return "-DCOUNTS_ON" in f.read()


def test_counts_tell_what_operations_cost_the_servers_threads():
    args = ("md", "--server", SERVER, "--quiet", "--json", "-", "--count", "200", "--depth", "4",
            "--phases", "create,stat,unlink", "--counts", counts())
    if not counting():
        check("build it with --enable-counts" in run(*args, want=1).stderr, True)
        return
    got = {p["phase"]: p["counts"] for p in json.loads(run(*args).stdout)["phases"]}
    for phase, c in got.items():
        check(c["locks"] >= c["contended"] >= 0 and c["shared_lines"] >= 0, True, f"{phase}: {c}")
        check(0 < c["system_calls"] < 20, True, f"{phase}: {c}")
    # Each of them goes to the committer, which spends its time on something.
    for phase in ("create", "unlink"):
        check(got[phase]["by"]["messages"]["kv_submit"] >= 1, True, f"{phase}: {got[phase]}")
        check(got[phase]["committer_us"]["store"] > 0 and got[phase]["committer_us"]["commit"] > 0,
              True, f"{phase}: {got[phase]}")
    check(got["stat"]["messages"] < 0.1 and got["stat"]["committer_us"]["store"]
          < got["create"]["committer_us"]["store"] / 10, True, f"{got['stat']}")


def test_reads_share_no_lock_and_no_line_with_other_connections():
    """Two threads of the server share the sessions, or the connections of one session. The figures
    leave out what a turn of a loop costs, and the watch over data servers, because no single
    operation causes them."""
    if not counting():
        return "not built with --enable-counts"
    folder = os.path.join(THE.top, "two")
    try:
        THE.dev("up", folder, "--ds", "1", "--port", "13049", "--set", "mds.threads=2",
                "--set", "ds.threads=2")
        daemons = json.loads(THE.dev("status", folder, "--json"))["daemons"]
        common = ("--server", f"{ADDR[0]}:13049", "--quiet", "--json", "-", "--sessions", "8",
                  "--depth", "4", "--counts", ",".join(d["metrics"] for d in daemons))
        got = json.loads(run("md", *common, "--count", "1000", "--time", "2",
                             "--phases", "create,stat,open,readdir").stdout)["phases"]
        got += json.loads(run("io", *common, "--size", "4k", "--file", "1M", "--time", "2",
                              "--phases", "randread").stdout)["phases"]
        got = {p["phase"]: p["counts"] for p in got}
        one = run("md", *common, "--sessions", "1", "--conns", "8", "--depth", "32",
                  "--count", "1000", "--time", "2", "--phases", "create,stat,readdir").stdout
        got.update({f"{p['phase']} of one session": p["counts"] for p in json.loads(one)["phases"]})
        for phase in ("stat", "stat of one session"):
            locks = {site for site, n in got[phase]["by"]["locks"].items() if n > 0.2}
            check(locks - {"ds_reg_watch"}, set(), f"{phase}: {got[phase]}")
            check(got[phase]["contended"] < 0.01, True, f"{phase}: {got[phase]}")
        locks = {site for site, n in got["open"]["by"]["locks"].items() if n > 0.4}
        locks -= {"ds_reg_watch", "op_accessed"}
        check(locks, {"st_look_lock", "st_file_lock", "st_open_list", "st_open_unlist"},
              "those of an OPEN and its CLOSE are their thread's, their file's and their "
              f"client's: {got['open']}")
        # A thread's first use of an object takes two locks of that object, and so does
        # its last use.
        holds = {"obj_get", "hold_new", "ds_hold_put", "ds_obj_put"}
        locks = {site: n for site, n in got["randread"]["by"]["locks"].items() if n > 0.1}
        locks.pop("ds_reg_watch", None)
        check(set(locks) - holds, set(), f"a read by layout takes no other: {got['randread']}")
        check(max(locks.values(), default=0) < 1.05, True, f"each at most once: {got['randread']}")
        check(got["randread"]["contended"] < 0.01, True, f"{got['randread']}")
        for phase in ("stat", "open", "readdir", "randread", "stat of one session",
                      "readdir of one session"):
            each = {site: n for site, n in got[phase]["by"]["shared_lines"].items()
                    if site not in ("submit_and_wait", "loop_post", "loop_wake", "ds_reg_watch")}
            check(max(each.values(), default=0) < 0.4, True, f"{phase}: {got[phase]}")
            check(got[phase]["messages"] < 0.2, True, f"{phase}: {got[phase]}")
        check(max(got["stat of one session"]["by"]["shared_lines"].get(site, 0)
                  for site in ("slot_next", "slot_leave")) < 0.1, True,
              f"{got['stat of one session']}")
        opens = json.loads(run("md", *common, "--count", "100", "--body", "4096", "--time", "2",
                               "--phases", "create,open").stdout)["phases"][1]
        through = json.loads(run("io", *common, "--size", "4k", "--file", "1M", "--no-layouts",
                                 "--phases", "randread").stdout)["phases"][0]
        # The first client works by an OPEN with a layout, a READ and the layout's return, the
        # second by a READ through the metadata server.
        for p in (opens, through):
            asked = {(k, site): n for k in ("locks", "shared_lines")
                     for site, n in p["counts"]["by"][k].items()
                     if n > 0.1 and site.startswith("ds_reg_") and site != "ds_reg_watch"}
            check(asked, {}, f"{p['phase']}: who asks for a data server meets nobody")
            met = {site: n for site, n in p["counts"]["by"]["shared_lines"].items()
                   if n > 0.4 and site.startswith(("st_", "count", "taken", "given"))}
            check(met, {}, f"{p['phase']}: who opens, lays out and closes other files meets nobody")
        check(got["create"]["by"]["shared_lines"].get("kept", 0) < 0.1, True,
              f"what sessions keep is not told each time: {got['create']}")
        check(got["create"]["shared_lines"] > 1, True,
              f"it shows where lines are shared: {got['create']}")
    finally:
        THE.dev("down", folder, "--purge")


SCALING = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../bench/scaling")


def test_scaling_draws_a_curve_of_each_operation():
    args = [SCALING, "--threads", "1,2", "--rounds", "1", "--seconds", "1",
            "--works", "names,nconnect,creates", "--dir", THE.top,
            *(["--counts", BUILD] if counting() else [])]
    out = os.path.join(THE.top, "scaling.json")
    text = subprocess.run([sys.executable, *args, "--json", out], capture_output=True, text=True,
                          timeout=100, check=False)
    check(text.returncode, 0, text.stderr[-300:])
    with open(out, encoding="utf-8") as f:
        curves = {c["phase"]: c for c in json.load(f)["curves"]}
    check(list(curves), ["stat", "open", "readdir", "nconnect-stat", "nconnect-open", "create"])
    for phase, c in curves.items():
        check([p["threads"] for p in c["points"]], [1, 2], phase)
        check((c["points"][0]["times"], c["points"][0]["times_by_cpu"]), (1, 1), phase)
        check(all(p["ops_per_s"] > 0 and p["server_cpu_us_per_op"] > 0 for p in c["points"]), True,
              f"{c}")
        check((c["two_threads"]["times_by_cpu"], c["two_threads"]["met"]),
              (c["points"][1]["times_by_cpu"], c["points"][1]["times_by_cpu"] >= 1.8), phase)
        check(text.stdout.count(f"bends at {c['bends_at']} threads" if c["bends_at"]
                                else "straight up to 2 threads") >= 1, True, text.stdout)
    check(text.stdout.count("1.8 is met") + text.stdout.count("1.8 is MISSED: an operation costs"),
          len(curves), text.stdout)
    check(0 < curves["create"]["points"][0]["committer_share"] < 1.1, True, f"{curves['create']}")


def curve(phase, *points):
    """A curve of tests/bench/scaling on a machine with 64 processors. Each point has its threads,
    its operations per second, its CPU time, and the shares of the committer and of the generator.
    """
    scaling = importlib.machinery.SourceFileLoader("scaling", SCALING).load_module()
    counts = {"by": {"contended": {"op_open": 0.5, "kept": 0.1}, "shared_lines": {}}, "locks": 1,
              "contended": 0.6, "shared_lines": 0, "allocations": 0, "system_calls": 0,
              "messages": 0}

    def point(threads, rate, cpu, committer, client):
        share = scaling.Share(1)
        share.own, share.load = True, [0]
        return scaling.Point(threads, share, [{"ops_per_s": rate, "server_cpu_us_per_op": cpu,
                                               "client_cpu_us_per_op": client * 1e6 / rate,
                                               "committer_share": committer}], counts)
    return scaling.Curve(phase, [point(*p) for p in points])


def test_scaling_names_where_a_curve_bends_and_by_what():
    straight = curve("stat", (1, 1e5, 10, 0, 0.1), (2, 2e5, 10, 0, 0.2), (4, 3.9e5, 10, 0, 0.4))
    check(straight.bend(), None)
    locked = curve("open", (1, 1e5, 10, 0, 0.1), (2, 1.9e5, 10.5, 0, 0.2), (4, 2e5, 20, 0, 0.2),
                   (8, 2e5, 40, 0, 0.2))
    check(locked.bend().threads, 4)
    check("contended locks: op_open 0.50" in locked.why(locked.bend()), True,
          locked.why(locked.bend()))
    committer = curve("create", (1, 1e4, 40, 0.4, 0.1), (2, 2e4, 40, 0.8, 0.1),
                      (4, 2.4e4, 40, 0.97, 0.1))
    check((committer.bend().threads, committer.why(committer.bend())),
          (4, "the committer, which is busy 97% of the time"))
    # What two threads do, by the CPU time of an operation.
    check("2 threads do 2.00 times by CPU: 1.8 is met" in straight.text(), True, straight.text())
    dear = curve("open", (1, 1e5, 10, 0, 0.1), (2, 1.9e5, 11.2, 0, 0.2))
    check((dear.bend(), dear.twice()["met"]), (None, False), "it is no bend yet")
    check("1.8 is MISSED: an operation costs 1.12 times the CPU time of the first; contended "
          "locks: op_open 0.50" in dear.text(), True, dear.text())
    check(curve("create", (1, 1e5, 10, 1, 0.1), (2, 1e5, 11.1, 1, 0.1)).twice()["met"], True,
          "the committer bounds the rate, and no operation costs more")
    check(curve("stat", (2, 2e5, 10, 0, 0.1), (4, 3e5, 12, 0, 0.2)).twice(), None)
    # The generator is busy: the cost of an operation says that more processors would do more.
    check(curve("stat", (1, 1e5, 10, 0, 0.9), (2, 1e5, 10, 0, 0.9)).bend(), None)


def test_md_has_its_phases_in_their_order():
    got, whole = bench("md", "--sessions", "3", "--depth", "4", "--count", "40", "--conns", "2")
    check([p["phase"] for p in whole["phases"]],
          "mkdir rmdir create stat open readdir rename unlink".split())
    for p in got.values():
        check(p["ops"], 120, p["phase"])
        sound(p)
        check("server_cpu_us_per_op" in p or "mib_per_s" in p, False, "what was not asked for")


def test_md_in_one_folder_with_bodies_by_two_threads():
    got, _ = bench("md", "--sessions", "3", "--threads", "2", "--depth", "4", "--count", "20",
                   "--shared", "--body", "5000", "--verify")
    check(got["readdir"]["ops"], 3 * 60, "each session lists what all have made")
    check(got["open"]["ops"], 60)
    check(got["create"]["mib_per_s"] > 0 and got["open"]["mib_per_s"] > 0, True)


def test_io_reads_what_it_wrote():
    got, _ = bench("io", "--sessions", "2", "--depth", "3", "--file", "2M", "--size", "100k",
                   "--verify", "--phases", "write,read,randwrite,randread,remove")
    for name in ("write", "read", "randwrite", "randread"):
        check(got[name]["ops"], 2 * 20, name)
        sound(got[name])
    got, _ = bench("io", "--file", "300k", "--size", "100k",
                   "--verify", "--stable", "--registered", "--phases", "randread,remove")
    check(got["randread"]["ops"], 3)


def test_io_of_all_sessions_on_one_file():
    args = ("--sessions", "3", "--depth", "2", "--file", "1M", "--size", "128k", "--verify",
            "--phases", "write,read,randwrite,randread,remove")
    for how, files in (["--shared"], 1), ([], 3):
        got, whole = bench("io", *args, *how)
        check(whole["shared"], bool(how))
        for name in ("write", "read", "randwrite", "randread"):
            check(got[name]["ops"], 3 * 8, f"{how} {name}")
            sound(got[name])
        check(got["remove"]["ops"], files, "one file, which one session removes")
        check(left(), [], "and no other is left")


def left():
    """The files that weft-bench left."""
    c = Client(ADDR)
    try:
        return [e.name for e in c.readdir_all(c.root()) if e.name.startswith(b"weft-bench")]
    finally:
        c.close()


def test_a_time_ends_what_makes_and_repeats_what_reads():
    got, _ = bench("md", "--time", "4", "--count", "50", "--body", "100", "--sessions", "2",
                   "--phases", "create,stat,open,rename,unlink", "--verify", "--random")
    for name in ("create", "rename", "unlink"):
        check(got[name]["ops"], 100, name)
    for name in ("stat", "open"):
        check(got[name]["ops"] > 100 and got[name]["seconds"] >= 4, True, f"{got[name]}")
    check(all(0.9 < got[n]["slowest_over_fastest"] for n in got), True)
    # weft-bench neither reads nor removes what it did not make in time.
    got, _ = bench("md", "--time", "1", "--count", "1000000", "--phases", "create,rename,unlink")
    check(0 < got["create"]["ops"] < 1000000 and got["create"]["seconds"] < 3, True,
          f"{got['create']}")
    check(got["unlink"]["ops"] <= got["create"]["ops"], True)
    got, _ = bench("io", "--time", "1", "--file", "300k", "--size", "100k",
                   "--verify", "--phases", "write,read")
    check(all(got[n]["ops"] > 3 for n in ("write", "read")), True, f"{got}")
    check(left(), [])


def test_small_files_each_once_in_random_order_both_ways():
    for how in ([], ["--no-layouts"]):
        was = THE.metric(r'weft_mds_op_total{op="READ"}')
        got, whole = bench("small", "--count", "100", "--sessions", "2", "--depth", "4",
                           "--body", "20k", "--verify", "--policy", "mirrors=2", *how)
        check([p["phase"] for p in whole["phases"]], ["create", "read", "remove"])
        check([got[n]["ops"] for n in got], [200, 200, 200])
        check(got["read"]["mib_per_s"] > 0, True)
        check(THE.metric(r'weft_mds_op_total{op="READ"}') - was, 200 if how else 0,
              "through the metadata server")


def test_small_files_are_read_again_under_another_policy():
    was = THE.metric(r'weft_mds_op_total{op="READ"}')
    got, whole = bench("small", "--count", "50", "--sessions", "2", "--depth", "4", "--body", "20k",
                       "--verify", "--policy", "threshold=1G", "--phases", "create,read")
    check(THE.metric(r'weft_mds_op_total{op="READ"}') - was, 100,
          "steered through the metadata server")
    was += 100
    got, whole = bench("small", "--count", "50", "--sessions", "2", "--depth", "4", "--body", "20k",
                       "--verify", "--policy", "threshold=1G", "--reread", "threshold=0")
    check([p["phase"] for p in whole["phases"]], ["create", "read", "reread", "remove"])
    check(got["reread"]["ops"], 100)
    check(THE.metric(r'weft_mds_op_total{op="READ"}') - was, 100, "the first time only")


def test_a_storm_is_striped_and_mirrored_and_as_even_as_it_is():
    def written():
        return sum(THE.metric(r'weft_ds_bytes_total{dir="write"}', n) for n in ("ds1", "ds2"))
    was = written()
    got, _ = bench("storm", "--sessions", "8", "--file", "1M", "--size", "256k", "--depth", "2",
                   "--policy", "mirrors=2", "--commit", "3")
    check(got["write"]["ops"], 32)
    check(got["write"]["slowest_over_fastest"] >= 1, True)
    check(written() - was, 2 * 8 << 20, "bytes to two copies")
    sound(got["write"])
    check(left(), [])


def test_what_fails_or_is_interrupted_leaves_nothing():
    done = run("md", "--server", SERVER, "--quiet", "--policy", "nonsense", want=1)
    check(done.stderr.count("\n"), 1, done.stderr)
    check(left(), [])
    for signo in (signal.SIGINT, signal.SIGTERM):
        with subprocess.Popen([os.path.join(BUILD, "weft-bench"), "md", "--server", SERVER,
                               "--quiet", "--sessions", "3", "--threads", "2", "--depth", "4",
                               "--count", "1000000", "--phases", "mkdir,create"],
                              stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as p:
            try:
                eventually(left, 5, "its folder")
                p.send_signal(signo)
                _, why = p.communicate(timeout=60)
            finally:
                p.kill()
        end = "interrupted" if signo == signal.SIGINT else "terminated"
        check((p.returncode, why), (1, f"weft-bench: {end}\n"))
        check(left(), [])
    run("md", "--server", SERVER, "--quiet", "--count", "5", "--phases", "create", "--keep")
    check(len(left()), 1)


def test_two_results_are_compared():
    with tempfile.TemporaryDirectory() as d:
        a, b, bad = (os.path.join(d, n) for n in "abc")
        for path in (a, b):
            run("md", "--server", SERVER, "--quiet", "--count", "20",
                "--phases", "create,mkdir" if path == a else "mkdir", "--json", path)
        done = run("compare", a, b)
        check(done.stderr, "", "what differs")
        check([line.split()[0] for line in done.stdout.splitlines()[2:]], ["mkdir"])
        with open(a, encoding="utf-8") as f:
            want = json.load(f)["phases"][1]["ops_per_s"]
        with open(b, encoding="utf-8") as f:
            want = json.load(f)["phases"][0]["ops_per_s"] / want
        got = float(done.stdout.splitlines()[2].split()[1])
        check(abs(got - want) < 0.01 * want + 0.001, True, f"{got}, want {want}")
        with open(bad, "w", encoding="utf-8") as f:
            f.write("{}")
        run("compare", a, bad, want=1)


def test_what_two_results_were_asked_to_do_differently_is_told():
    asked = {"threads": ("--threads", "2", "--sessions", "2"), "conns": ("--conns", "2"),
             "ds_conns": ("--ds-conns", "2"),
             "depth": ("--depth", "2"), "count": ("--count", "6"), "shared": ("--shared",),
             "random": ("--random",), "verify": ("--verify",), "minor": ("--minor", "2"),
             "body": ("--body", "7"), "stable": ("--stable",), "layouts": ("--no-layouts",),
             "policy": ("--policy", "mirrors=2"), "reread": ("--reread", "mirrors=1"),
             "commit": ("--commit", "3"), "seconds": ("--time", "9"), "file": ("--file", "2M"),
             "size": ("--size", "2M"), "gid": ("--gid", "1")}
    with tempfile.TemporaryDirectory() as d:
        paths = {}
        for key, args in {"": (), **asked}.items():
            paths[key] = os.path.join(d, f"{key}.json")
            run("small", "--server", SERVER, "--quiet", "--count", "5", "--phases", "create",
                "--json", paths[key], *args)
        for key in asked:
            told = run("compare", paths[""], paths[key]).stderr.splitlines()
            want = {"sessions", key} if key == "threads" else {key}
            check({line.split(" differ in ")[1].split(":")[0] for line in told}, want, key)
        for uid in ("0", "1"):
            run("null", "--server", SERVER, "--quiet", "--count", "5", "--uid", uid,
                "--json", paths[""] + uid)
        said = run("compare", paths[""] + "0", paths[""] + "1").stderr
    check(said.split(":")[1], " the two results differ in uid")


def test_a_file_for_the_results_is_opened_before_anything_is_done():
    done = run("md", "--server", "127.0.0.1:1",
               "--quiet", "--json", os.path.join(THE.top, "none/x"), want=1)
    check(done.stderr, f"weft-bench: {THE.top}/none/x: No such file or directory\n")
    was = left()
    done = run("md", "--server", SERVER, "--quiet", "--count", "5", "--phases", "create",
               "--json", "/dev/full", want=1)
    check(done.stderr, "weft-bench: cannot write /dev/full\n")
    check(left(), was)
    with tempfile.TemporaryDirectory() as d:
        path = os.path.join(d, "json")
        with open(path, "w", encoding="utf-8") as f:
            f.write("x" * 100000)
        run("md", "--server", SERVER, "--quiet", "--dir", "none", "--json", path, want=1)
        check(os.path.getsize(path), 100000, "a result of before stays where there is no new one")
        run("null", "--server", SERVER, "--quiet", "--count", "5", "--json", path)
        with open(path, encoding="utf-8") as f:
            check(json.load(f)["bench"], "null")


def test_a_folder_that_could_not_be_made_does_not_stay():
    done = run("md", "--server", SERVER, "--quiet", "--uid", "1", want=1)
    check((done.stderr.count("\n"), "Permission denied" in done.stderr), (1, True), done.stderr)


def test_what_fails_is_told():
    for args in (["md", "--server", SERVER, "--dir", "none"], ["null", "--server", "127.0.0.1:1"],
                 ["md", "--server", SERVER, "--pid", "999999999"],
                 ["md", "--server", SERVER, "--counts", "127.0.0.1:1"]):
        done = run(*args, "--quiet", want=1)
        check(done.stderr.startswith("weft-bench: ") and done.stderr.count("\n") == 1, True,
              f"{args}: {done.stderr}")
        check(done.stdout, "", f"{args}: nothing was measured")


def test_wrong_arguments_are_told_and_end_with_2():
    for args in (["md", "--phases", "fly"], ["io", "--file", "1k"], ["md", "--threads", "2"],
                 ["md", "--count", "0"], ["md", "--count", "9x"], ["md", "--minor", "3"],
                 ["md", "--pid", "x"], ["small", "--body", "0"], ["md", "--nfs3"]):
        done = run(*args, "--server", "127.0.0.1:1", "--quiet", want=2)
        check(done.stderr.startswith("weft-bench: ") and done.stderr.count("\n") == 1, True,
              f"{args}: {done.stderr}")
    for args in ([], ["fly"], ["md", "more"], ["md", "--fly"], ["io", "--size"]):
        done = run(*args, want=2)
        check(done.stderr.startswith(("weft-bench: ", "usage: ")), True, f"{args}: {done.stderr}")
    check("weft-bench: unrecognized option '--fly'" in run("md", "--fly", want=2).stderr, True)


def test_a_policy_that_the_server_refuses_is_told():
    for text in ("unit=64k", "mirrors=0", "group0=x", "mirrors=44,stripes=44"):
        done = run("md", "--server", SERVER, "--quiet", "--policy", text, want=1)
        check(done.stderr,
              f"weft-bench: policy {text}: the server refuses it; weft(1) describes policies\n")
    check(run("md", "--server", SERVER, "--quiet", "--policy", "unit=1M,mirrors=2", "--count", "5",
              "--phases", "create").stderr, "")


def test_a_quiet_run_says_nothing_on_standard_error():
    for args in (["md", "--count", "5"], ["io", "--file", "1M", "--rdma"]):
        check(run(*args, "--server", SERVER, "--quiet").stderr, "", f"{args}")


def main():
    global THE
    if not tap.built("weft-mds", "weft-ds", "weft-bench"):
        tap.skip("not built")
        return
    THE = Cluster(ds=2)
    try:
        tap.run(tap.named(globals()))
    finally:
        THE.down()


if __name__ == "__main__":
    main()
