# SPDX-License-Identifier: Apache-2.0
"""The weft tool, and what it lists."""
import json
import os
import subprocess

from harness import BUILD, check


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
                          capture_output=True, text=True, timeout=20, check=False)
    check((done.returncode, json.loads(done.stdout)["violations"]), (0, []))
