# SPDX-License-Identifier: Apache-2.0
"""A weft-ds beside those of the cluster, with settings of its own."""
import json
import os
import subprocess
import tempfile
import time

from harness import *  # noqa: F403

PORT = 13100


def environment():
    return {**os.environ, "ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":detect_leaks=0"}


class Server:
    """A weft-ds beside the cluster's, with settings of its own."""

    def __init__(self, w, name, program=None, **settings):
        global PORT
        PORT += 1
        self.top = tempfile.mkdtemp(prefix="weft-join.", dir=w.top)
        self.port = PORT
        self.began = time.monotonic()
        self.log = os.path.join(self.top, "log")
        self.admin = os.path.join(self.top, "admin")
        keys = {"name": name, "store": os.path.join(self.top, "store"),
                "cluster_key": os.path.join(w.dir, "cluster.key"), "listen": f"127.0.0.1:{PORT}",
                "mds": f"127.0.0.1:{ADDR[1]}", "admin": f"unix:{self.admin}", "pool": "32M",
                **settings}
        with open(self.log, "w", encoding="utf-8") as f:
            self.child = subprocess.Popen([program or os.path.join(BUILD, "weft-ds"),
                                           *[a for k, v in keys.items()
                                             for a in ("-o", f"ds.{k}={v}")]], stderr=f,
                                          env=environment())

    def said(self):
        with open(self.log, encoding="utf-8") as f:
            return f.read()

    def says(self, text, seconds=60):
        eventually(lambda: text in self.said(), seconds, f"{text!r} in {self.said()!r}")

    def health(self):
        done = subprocess.run(["curl", "-s", "--unix-socket", self.admin, "http://x/v1/health"],
                              capture_output=True, check=True, timeout=60)
        return json.loads(done.stdout)

    def end(self):
        self.child.kill()
        self.child.wait()


def mds_said(w):
    with open(os.path.join(w.dir, "log", "mds.log"), encoding="utf-8") as f:
        return f.read()
