# SPDX-License-Identifier: Apache-2.0
"""The weft tool, and what it lists."""
import json
import os
import subprocess
import time

from harness import BUILD, check, eventually


def weft(w, *args, rc=0):
    """stdout of weft. Where it refuses, the line that says why."""
    done = subprocess.run([os.path.join(BUILD, "weft"), "--admin", f"unix:{w.dir}/run/mds.sock",
                           *args], capture_output=True, text=True, timeout=60, check=False)
    check(done.returncode, rc, f"weft {' '.join(args)}: {done.stdout}{done.stderr}")
    return done.stderr if rc else done.stdout


def rows(w):
    return {r["name"]: r for r in json.loads(weft(w, "ds", "list", "--json"))["ds"]}


def log_of(w):
    with open(os.path.join(w.dir, "log/mds.log"), encoding="utf-8") as f:
        return f.read()


def ask(w, *args):
    return json.loads(weft(w, "--json", *args))


def fsck(w):
    """Looks at the store beside the running server: it is sound."""
    done = subprocess.run([os.path.join(BUILD, "weft-fsck"), "--json", os.path.join(w.dir, "mds")],
                          capture_output=True, text=True, timeout=60, check=False)
    check((done.returncode, json.loads(done.stdout)["violations"]), (0, []))


def pid_of(w, name):
    return next(d["pid"] for d in json.loads(w.dev("status", w.dir, "--json"))["daemons"]
                if d["name"] == name)


def admin_of(w):
    return next(d["admin"] for d in json.loads(w.dev("status", w.dir, "--json"))["daemons"]
                if d["name"] == "mds")


def weft_json(w, *args, want=0):
    """What weft --json prints, decoded. Where it refuses, the line that says why."""
    done = subprocess.run([os.path.join(BUILD, "weft"), "--admin", admin_of(w), "--json", *args],
                          capture_output=True, text=True, timeout=60, check=False)
    check(done.returncode, want, f"weft {args}: {done.stderr}")
    return json.loads(done.stdout) if not want else done.stderr


def server(w, name):
    return next(d for d in weft_json(w, "ds", "list")["ds"] if d["name"] == name)


def state(w, name):
    return server(w, name)["state"]


def is_state(w, name, want, seconds):
    began = time.monotonic()
    eventually(lambda: state(w, name) == want, seconds, f"{name} {want}")
    return time.monotonic() - began
