# SPDX-License-Identifier: Apache-2.0
"""A cluster whose data servers have several volumes."""
import glob
import os
import re
import subprocess

import harness
from harness import *  # noqa: F403
from mounts import unmount

MOUNTS = []


class Volumes(Cluster):
    """Each data server has this many volumes."""

    n = 3

    @staticmethod
    def dev(*args):
        return Cluster.dev(*args, *(["--volumes", str(Volumes.n)] if args[0] == "up" else []))

    def folder(self, i, server="ds1"):
        return os.path.join(self.dir, server + ("" if i == 1 else f".v{i}"))

    def start_fails(self, name):
        done = subprocess.run([os.path.join(BUILD, "tools/weft-dev"), "start", self.dir, name],
                              capture_output=True, text=True, timeout=60, check=False)
        check(done.returncode, 1)
        return done.stderr

    def volume(self, what, i, label="", server="ds1"):
        """A metric of a volume."""
        return self.metric(rf"{what}{{volume=\"{re.escape(self.folder(i, server))}\"{label}}}",
                           server)

    def down(self):
        if os.path.exists(os.path.join(self.dir, "cluster.json")):
            self.dev("down", self.dir)
        while MOUNTS:
            unmount(MOUNTS.pop())
        super().down()


def cluster(volumes, ds):
    Volumes.n = volumes
    w = harness.THE = Volumes(ds=ds, settings=harness.CALM)
    return w, client()


def objects(folder):
    """File numbers of the objects there."""
    return {int(os.path.basename(p)[:16], 16) for p in glob.glob(folder + "/objects/??/??/*")}


def put(c, d, name, data):
    s, f = c.open(d, name)
    c.ok(putfh(f), write(s, 0, data, FILE_SYNC))
    return s, f
