# SPDX-License-Identifier: Apache-2.0
"""A cluster in which some data servers are any NFSv3 servers (docs/generic.md).

Each of these is a weft-ds of its own, which exports a folder and knows no metadata server.
"""
import os
import signal
import time

import harness
import nfs3
from harness import eventually
from tool import rows, weft

FIRST_PORT = 910
POOL = 24
KINDS = {
    "source": "group0=kind=nfs3,group1=kind=weft",
    "target": "group0=kind=weft,group1=kind=nfs3",
    "both": "group=kind=nfs3",
}


class Foreign(harness.Cluster):
    """A cluster with own data servers of ours (ds1, ...) and others of any kind (g1, ...). The
    objects of both kinds are below DIR/NAME."""

    def __init__(self, own=2, others=2, settings=(), **keys):
        self.servers = {}
        super().__init__(own, [f"mds.generic_pool={POOL}", *settings])
        try:
            for n in range(1, own + 1):
                weft(self, "ds", "group", f"ds{n}", "kind=weft")
            for n in range(1, others + 1):
                self.add(f"g{n}", FIRST_PORT + n, **keys)
            for name in self.servers:
                self.alive(name)
            time.sleep(0.5)  # the server gives them to files when their handles are in the store
        except BaseException:
            self.down()
            raise

    def add(self, name, port, **keys):
        one = self.servers[name] = nfs3.Server(listen=f"127.0.0.1:{port}", mds="127.0.0.1:9",
                                               **keys)
        os.symlink(one.path("exp"), os.path.join(self.dir, name))
        self.note(name)
        weft(self, "ds", "add", f"nfs3://127.0.0.1:{port}{one.path('exp')}", f"mount-port={port}",
             f"name={name}")

    def note(self, name):
        with open(os.path.join(self.dir, "run", name + ".pid"), "w", encoding="ascii") as f:
            f.write(str(self.servers[name].child.pid))

    def alive(self, name):
        """The server may get files."""
        made = lambda: sum(len(names)  # noqa: E731
                           for _, _, names in os.walk(os.path.join(self.dir, name) + "/"))
        eventually(lambda: rows(self)[name]["alive"] and made() >= POOL, 20, "files made ahead")

    def dev(self, *args):
        if len(args) < 3 or args[2] not in self.servers:
            return super().dev(*args)
        if args[0] == "kill":
            self.servers[args[2]].kill(getattr(signal, "SIGKILL") if "-9" in args
                                       else signal.SIGTERM)
        elif args[0] == "start":
            self.servers[args[2]].start()
            self.note(args[2])
        return ""

    def down(self):
        try:
            super().down()
        finally:
            for one in self.servers.values():
                one.stop()
