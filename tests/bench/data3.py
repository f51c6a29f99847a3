# SPDX-License-Identifier: Apache-2.0
"""NFSv3 READ and WRITE over TCP by nfs3_load, of one file at each server. The files are an object
of weft by the handle of its layout (direct I/O), a file of a folder that weft-ds exports, and the
same file by nfs-ganesha (both through the page cache)."""
import os
import subprocess
import sys

import peers

sys.path.insert(0, os.path.join(peers.SRC, "tests/wirelib"))

FILE = 16 << 20
# name: what, size, COUNT for each unit of scale, WINDOW
CALLS = {"write-1m": ("write", 1 << 20, 32, 8), "read-1m": ("read", 1 << 20, 32, 8),
         "randread-4k": ("randread", 4096, 2000, 16)}
TITLES = {"weft": "by layout", "weft-path": "a folder of weft-ds",
          "ganesha-vfs": "nfs-ganesha, the same folder"}


class Data:
    def __init__(self, weft, tree, ganesha):
        """tree: the folder that both servers export."""
        with open(os.path.join(tree, "file"), "wb"):
            pass
        from nfs3 import V3
        from nfs41 import Client
        self.program = os.path.join(peers.BUILD, "tests/bench/nfs3_load")
        port = weft.daemons["ds1"]["port"]
        self.client = Client(("127.0.0.1", weft.port))
        self.keep, layout = self.layout(self.client)
        pid = weft.pid("ds1")
        self.files = {"weft": (layout.port, layout.fh, layout.uid, pid)}
        self.held = [V3(("127.0.0.1", port)), V3(("127.0.0.1", peers.GANESHA_PORT + 1)),
                     V3(("127.0.0.1", peers.GANESHA_PORT))]
        self.files["weft-path"] = (port, self.by_path(self.held[0], self.held[0], tree), 0, pid)
        self.files["ganesha-vfs"] = (peers.GANESHA_PORT,
                                     self.by_path(self.held[1], self.held[2], tree), 0, ganesha.pid)
        for name in self.files:
            self.call(name, "write", 1 << 20, FILE >> 20, 8)

    @staticmethod
    def layout(c):
        """What stands for the open file, and where its only object is."""
        import steps
        from types import SimpleNamespace
        stateid, _, o, ds, fh = steps.one_server(c, c.root(), "nfs3_load")
        where = SimpleNamespace(port=ds.conn.sock.getpeername()[1], fh=fh,
                                uid=int(o.mirrors[0][0].user))
        return (stateid, ds), where

    @staticmethod
    def by_path(mount, nfs, tree):
        status, top, _ = mount.mnt(tree)
        if status:
            raise peers.Trouble(f"MNT {tree}: status {status}")
        return nfs.ok("lookup", top, b"file").fh

    def call(self, name, what, size, count, window):
        port, fh, uid, _ = self.files[name]
        done = subprocess.run([self.program, "127.0.0.1",
                               *map(str, (port, fh.hex(), what, size, count, window, FILE, uid))],
                              capture_output=True, text=True,
                              timeout=peers.LIMIT, check=False)
        if done.returncode:
            raise peers.Trouble(f"{name}: {what} by NFSv3: {done.stderr.strip()[-200:]}")

    def round(self, r, results, scale):
        self.client.root()  # this keeps the lease
        names = list(self.files)
        first = r % len(names)
        for phase, (what, size, count, window) in CALLS.items():
            n = max(8, int(count * scale))
            for name in names[first:] + names[:first]:
                before = peers.cpu_ns(self.files[name][3])
                self.call(name, what, size, n, window)
                results.add(r, "nfs3", name,
                            {phase: {"server_cpu_us_per_op": (peers.cpu_ns(self.files[name][3])
                                                              - before) / n / 1000}})

    def down(self):
        self.client.drop()
