#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""side-by-side in its smallest size, where nfs-ganesha is installed: its table and its JSON are
complete, and the figures agree. Prints TAP."""
import json
import os
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
sys.path.insert(0, os.path.join(HERE, "../wirelib"))
import limits  # noqa: E402
import peers  # noqa: E402
import tap  # noqa: E402
from harness import Failed, check  # noqa: E402
from bars import Bar  # noqa: E402
from works import CPU, Results  # noqa: E402

THE = None
SERVERS = {"weft", "weft-nosync", "ganesha-vfs", "ganesha-mem"}
PHASES = ["create", "stat", "open", "readdir", "rename", "unlink"]


def run(*args, want=0, program="side-by-side"):
    done = subprocess.run([os.path.join(HERE, program), *args], capture_output=True, text=True,
                          timeout=100, check=False)
    check(done.returncode, want, f"{program} {args}: {done.stderr[-500:]}")
    return done


class Run:
    """One run for all tests."""

    def __init__(self):
        with tempfile.TemporaryDirectory() as d:
            path = os.path.join(d, "json")
            self.table = run("--rounds", "2", "--scale", "0.05", "--works", "names-1,nfs3,null",
                             "--json", path).stdout
            with open(path, encoding="utf-8") as f:
                self.json = json.load(f)


def figures():
    return {(f["phase"], f["server"]): f["rounds"] for f in THE.json["figures"]
            if f["work"] == "names-1"}


def test_every_server_did_every_phase_in_every_round():
    check(THE.json["version"], 1)
    check(THE.json["setup"]["rounds"], 2)
    check({s for _, s in figures()}, SERVERS)
    for phase in PHASES:
        for server in SERVERS:
            rounds = figures()[phase, server]
            check(len(rounds), 2, f"{phase} {server}")
            for r in rounds:
                check(r["ops"] > 0 and r[CPU] > 0 and r["p50_us"] > 0, True,
                      f"{phase} {server}: {r}")


def test_ratios_are_of_one_round_each():
    got = {(r["phase"], r["of"], r["over"]): r for r in THE.json["ratios"] if r["figure"] == CPU
           and r["work"] == "names-1"}
    for phase in PHASES:
        for of in ("weft", "weft-nosync"):
            for over in ("ganesha-vfs", "ganesha-mem"):
                r = got[phase, of, over]
                want = sorted(a[CPU] / b[CPU]
                              for a, b in zip(figures()[phase, of], figures()[phase, over]))
                check([round(r[k], 6) for k in ("min", "max", "median")],
                      [round(v, 6) for v in (want[0], want[1], sum(want) / 2)],
                      f"{phase} {of} {over}")


def test_a_round_that_one_lacks_is_in_no_ratio():
    r = Results()
    for i, (a, b) in enumerate(((1.0, 2.0), (3.0, 2.0), (8.0, None))):
        r.add(i, "w", "weft", {"p": {CPU: a}})
        if b:
            r.add(i, "w", "other", {"p": {CPU: b}})
    got = r.ratio("w", "p", "weft", "other")
    check((got.least, got.median, got.most), (0.5, 1.0, 1.5))
    check(r.ratio("w", "p", "weft", "none"), None)


def test_the_table_tells_what_is_synced_and_each_operation():
    for text in ("syncs no create", "us of server CPU each", "ratio of CPU", "weft/vfs",
                 "weft-nosync/mem", "create+close", "readdir, per entry", "echo-64", "Bars",
                 "not measured", "by layout"):
        if text not in THE.table:
            raise Failed(f"no {text!r} in the table:\n{THE.table[:3000]}")


def test_limits_are_measured_beside():
    floor = {f["phase"]: f["rounds"] for f in THE.json["figures"] if f["work"] == "floor"}
    for name in ("echo-64", "echo-1", "receive", "send", "send-4k"):
        check(len(floor[name]), 2, name)
        check(all(r[CPU] > 0 for r in floor[name]), True, name)


def test_the_same_calls_of_nfsv3_go_to_all_three():
    got = {(f["phase"], f["server"]): f["rounds"] for f in THE.json["figures"]
           if f["work"] == "nfs3"}
    check(set(got),
          {(p, s) for p in ("write-1m", "read-1m", "randread-4k")
           for s in ("weft", "weft-path", "ganesha-vfs")})
    check(all(r[CPU] > 0 for rounds in got.values() for r in rounds), True)


def test_each_bar_says_its_figure_and_whether_it_is_met():
    got = {b["bar"]: b for b in THE.json["bars"]}
    for name, b in got.items():
        if "median" not in b or b["bound"] is None:
            check(b["met"], None, name)
        else:
            check(b["met"], b["median"] >= b["bound"] if b["least"] else b["median"] <= b["bound"],
                  name)
        check(name in THE.table, True, f"{name} in the table")
    want = [a[CPU] / e[CPU] / 2 for a, e in zip(figures()["open", "weft"],
                                                next(f["rounds"] for f in THE.json["figures"]
                                                     if f["phase"] == "echo-1"))]
    check(abs(got["open+close, one at a time: of an echo per RPC"]["median"] - sum(want) / 2)
          < 1e-6, True, "two RPCs")
    check(got["bytes for each open file"]["met"], None, "what was not measured")


def test_a_bar_is_met_at_its_bound():
    for value, bound, least, want in ((0.25, 0.25, False, True), (0.26, 0.25, False, False),
                                      (10, 10, True, True), (9.9, 10, True, False),
                                      (None, 1, False, None),
                                      (1, None, False, None)):
        check(Bar("b", value, bound, least).met(), want, f"{value} {bound} {least}")


def test_the_floor_programs_measure():
    with tempfile.TemporaryDirectory() as d:
        for args, names in ((("memory",), ["memcpy_us_per_mib"]),
                            (("disk", d, 0.1),
                             ["fdatasync_per_s", "fdatasync_cpu_us", "commit_per_s",
                              "commit_cpu_us"]),
                            (("lmdb", os.path.join(d, "l"), 0.1, 16),
                             ["lmdb_puts_per_cpu_s", "lmdb_gets_per_cpu_s"])):
            got = limits.floor(*args)
            check(list(got), names)
            check(all(v > 0 for v in got.values()), True, f"{got}")


def test_a_commit_of_the_metadata_server_is_written_down_and_done_again():
    with tempfile.TemporaryDirectory() as d:
        got = limits.committer(d, 4)
    check(got["lmdb_batches"] > 0 and got["committer_commits"] > 0, True, f"{got}")
    check(got["lmdb_syncs"] >= got["lmdb_batches"] and got["lmdb_nosync_syncs"] == 0
          < got["lmdb_nosync_batches"], True, f"{got}")
    check(got["committer_checkpoints"] >= 1 and got["checkpoint_us_per_create"] > 0, True, f"{got}")
    check(abs(got["lmdb_share"] * (got["committer_us_per_create"] + got["checkpoint_us_per_create"])
              - got["lmdb_us_per_create"]) < 1e-6, True, f"{got}")
    check(abs(got["lmdb_nosync_share"] * got["committer_nosync_us_per_create"]
              - got["lmdb_nosync_us_per_create"]) < 1e-6, True, f"{got}")


def seeds(*args):
    """What seeds.py prints, as JSON."""
    with tempfile.TemporaryDirectory() as d:
        path = os.path.join(d, "json")
        run(*args, "--rounds", "2", "--json", path, program="seeds.py")
        with open(path, encoding="utf-8") as f:
            return json.load(f)


def test_small_files_are_read_both_ways():
    got = seeds("small", "--files", "40", "--bytes", "4k,1m", "--most", "16m", "--ds", "2")
    check([(r["phase"], r["bytes"], r["files"]) for r in got],
          [("read", "4k", 40), ("read", "1m", 16), ("create", "4k", 40), ("create", "1m", 16)])
    for r in got:
        ratio = r["CPU, mds/layout"]
        check(0 < ratio["min"] <= ratio["median"] <= ratio["max"], True, f"{ratio}")


def test_checkpoints_are_written_at_once():
    got = seeds("storm", "--writers", "4", "--file", "2m")
    check([(r["shape"], r["writers"], r["MiB each"]) for r in got],
          [("striped", 4, 2), ("mirrored", 4, 2)])
    check(all(r["slow/fast"]["min"] >= 1 and r["MiB/s"]["min"] > 0 and r["MDS CPU ms/GiB"]["min"]
              > 0 for r in got), True, f"{got}")


def test_what_it_does_not_know_is_refused():
    run("--works", "fly", want=2)
    run("--rounds", "0", want=2)


def main():
    global THE
    if not tap.built("weft-mds", "weft-ds", "weft-bench", "tests/bench/floor",
                     "tests/bench/mds_record", "tests/bench/nfs3_load",
                     "tests/bench/tcp_floor") or peers.missing() or os.geteuid():
        tap.skip("nfs-ganesha is not here, or not root")
        return
    THE = Run()
    tap.run(tap.named(globals()))


if __name__ == "__main__":
    main()
