#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Stores that an older program left (tests/compat), killed in the middle of its work. Prints TAP.

The daemons of this version find every name, byte and attribute. They refuse a newer store in one
line. A data server that speaks protocol 4 joins.
"""
import json
import os
import struct
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../wirelib"))
import tap  # noqa: E402
from harness import *  # noqa: E402,F403
from steps import data_server, lay, reclaim  # noqa: E402
sys.path.insert(0, os.path.join(SRC, "tests/compat"))
import join4  # noqa: E402
import shape  # noqa: E402
from files import MB, content, layout_of  # noqa: E402
from nfs41 import err  # noqa: E402


class Kept(Cluster):
    """A cluster on the kept stores. It serves as soon as it is up, before any client has come back.
    """

    def __init__(self):
        super().__init__(2,
                         ["mds.lease=20s", "mds.grace=20s", "mds.repair_files=4", "ds.lease=10s"])
        self.dev("down", self.dir)
        for top in shape.TOPS:
            shutil.rmtree(os.path.join(self.dir, top))
        subprocess.run(["tar", "--xattrs", "--xattrs-include=*", "--no-same-owner", "-C", self.dir,
                        "-xJf", shape.STORE], check=True)
        with open(os.path.join(self.dir, "facts.json"), encoding="utf-8") as f:
            self.facts = json.load(f)

    def up(self):
        self.dev("up", self.dir)
        self.c = client(owner=shape.OWNER, verifier=shape.VERIFIER, reclaim=False)
        return self.c

    def file(self, name):
        return bytes.fromhex(self.facts["files"][name])

    def program(self, name, *args):
        return subprocess.run([os.path.join(BUILD, name), *args], capture_output=True, text=True,
                              timeout=120, check=False)

    def objects(self, ino):
        return [p for ds in ("ds1", "ds2")
                for p in glob.glob(os.path.join(self.dir, ds, "objects/*/*/%016x.*" % ino))
                if os.path.getsize(p)]


def test_every_name_byte_and_attribute_is_there(w):
    c = w.up()
    s = reclaim(c, w.file("plain"), owner=b"kept")
    c.ok(putfh(w.file("plain")), lock(s, WRITE_LT, 0, 100, owner=shape.LOCK_OWNER, reclaim=True))
    c.ok(reclaim_complete())
    late = client()  # it is in no record, and grace is over: the only recorded client has come back
    check(content(late, w.file("plain")) == shape.whole("plain"), True)
    late.no("NO_GRACE", putfh(w.file("plain")),
            open_(claim_previous(), BOTH | NO_DELEG, 0, b"late"))
    root = c.root()
    for name, (policy, _, size) in shape.FILES.items():
        f = c.ok(putfh(root), lookup(name), lookup("f"), getfh()).fh
        check(c.attrs(f, "fileid", "size").fileid, w.facts["fileids"][name], name)
        check(c.attrs(w.file(name), "size").size, size, f"{name}, by its old handle")
        check(content(c, f) == shape.whole(name), True, name)
        got = c.ok(putfh(root), lookup(name), getxattr("weft.policy")).value.decode()
        check(all(part in got for part in policy.split(",")), True, f"{name}: {got}")
    d = c.ok(putfh(root), lookup("names"), getfh()).fh
    deep = c.ok(putfh(d), lookup("deep"), lookup("deeper \u00e4\u2603"), lookup("x" * 255),
                getfh()).fh
    hard = c.ok(putfh(d), lookup("hard"), getfh()).fh
    check((c.attrs(hard, "fileid", "numlinks").numlinks, c.attrs(deep, "fileid").fileid),
          (2, c.attrs(hard, "fileid").fileid))
    check(c.ok(putfh(d), lookup("symbolic"), readlink()).link, b"deep/deeper")
    for name, kind in shape.SPECIAL.items():
        check(c.ok(putfh(d), lookup(name), getattr_("type")).attrs.type, kind, name)
    f = c.ok(putfh(d), lookup("attributes"), getfh()).fh
    check(c.ok(putfh(f), getxattr(shape.XATTR[0])).value, shape.XATTR[1])
    a = c.attrs(f, "acl", "owner", "owner_group", "time_modify", "mode")
    check((list(a.acl), a.owner, a.owner_group, a.time_modify, a.mode),
          (shape.ACL, "1000", "50", shape.TIME, w.facts["mode"]))
    names = sorted(e.name for e in c.readdir_all(d))
    check(names, sorted([b"deep", b"hard", b"symbolic", b"attributes",
                         *(n.encode() for n in shape.SPECIAL)]), "names")


def test_orders_of_before_are_done(w):
    gone = max(w.facts["fileids"].values()) + 10
    left = [p for p in glob.glob(os.path.join(w.dir, "ds2/objects/*/*/*")) if os.path.getsize(p)]
    c = w.up()
    c.ok(reclaim_complete())
    eventually(lambda: w.metric("weft_mds_orders") == 0, 60, "every order")
    known = set(w.facts["fileids"].values())
    eventually(lambda: all(int(os.path.basename(p)[:16], 16) in known
                           for p in glob.glob(os.path.join(w.dir, "ds2/objects/*/*/*"))
                           if os.path.getsize(p)), 60,
               f"the removal of a file that was removed while ds2 was away ({len(left)}, {gone})")
    f = w.file("cut")
    eventually(lambda: {o["state"] for m in layout_of(c, f)["mirrors"] for o in m["objects"]}
               == {"in-sync"}, 60, "repair of what missed the cut")
    for path in w.objects(w.facts["fileids"]["cut"]):
        with open(path, "rb") as o:
            check(o.read() == shape.whole("cut"), True, path)
    check(w.program("weft-fsck", os.path.join(w.dir, "mds")).returncode, 0, "weft-fsck")


def test_a_capability_of_before_is_known(w):
    """A client kept its layout while all servers were upgraded. It reads on, or it is fenced and
    asks for another layout. The server never takes its capability for a bad handle."""
    c = w.up()
    c.ok(reclaim_complete())
    s, f = c.open(c.ok(putfh(c.root()), lookup("plain"), getfh()).fh, "f", READ, how=None)
    x = lay(c, f, s, IO_READ).mirrors[0][0]
    x.user, x.group = (v.encode() if isinstance(x.user, bytes) else v for v in w.facts["user"])
    got = data_server(c, x).read(bytes.fromhex(w.facts["capability"]), 0, 4096)
    if got.status != 13:
        check((got.status, got.data == shape.whole("plain")[:4096]), (0, True))
    forged = bytearray.fromhex(w.facts["capability"])
    forged[31] ^= 1
    check(data_server(c, x).read(bytes(forged), 0, 4096).status, 10001,
          "one that is not of the cluster's")


def test_a_data_server_of_protocol_4_joins(w):
    c = w.up()
    c.ok(reclaim_complete())
    with open(os.path.join(w.dir, "cluster.key"), encoding="utf-8") as f:
        key = bytes.fromhex(f.read().strip())
    ds = join4.DataServer(ADDR, key, bytes.fromhex(w.facts["join_uuid"]))
    check(ds.protocol, 4, "HELLO")
    got = ds.ask(bytes.fromhex(w.facts["join"]))
    status, op_, cluster, fs, number, epoch, lease = struct.unpack(">2I16s2IQI", got)
    check((status, op_, fs, number, lease), (0, 1, 1, 3, 10000), "JOIN")
    got = ds.ask(struct.pack(">IQQI", 2, 1 << 30, 1 << 29, 0))
    check(struct.unpack(">2IQI", got), (0, 2, epoch, 10000), "HEARTBEAT")
    # The server refuses the operation of a later protocol, although it could read the message.
    check(struct.unpack_from(">I", ds.ask(struct.pack(">I", 4) + bytes.fromhex(w.facts["join"])[4:]
                                          + struct.pack(">I", 0))), (7,), "JOIN2 in protocol 4")


def test_version_1_for_stripes_ends_after_the_instance_that_a_server_joined(w):
    """The kept servers join by protocol 5 for the first time. The old capability of a striped file
    is fenced or good in this instance. In the next one the server refuses it, a grace period and a
    lease later."""
    w.dev("up", w.dir, "--set", "mds.grace=1s", "--set", "mds.lease=5s")
    told = lambda: int(w.metric("weft_ds_striped_version", "ds1"))
    check(told(), 1, "in the first instance")
    w.restart("mds")
    eventually(lambda: told() == 2, 60, "the end of version 1")
    c = client()
    s, f = c.open(c.ok(putfh(c.root()), lookup("striped"), getfh()).fh, "f", READ, how=None)
    o = lay(c, f, s, IO_READ)
    check([x.fhs[0][0] >> 4 for x in o.mirrors[0]], [3, 3], "new layouts: version 2")
    check(b"".join(data_server(c, x).read(x.fhs[0], k << 20, MB).data
                   for k, x in enumerate(o.mirrors[0])) == shape.whole("striped")[:2 * MB], True)


def refused(w, program, key, store, want):
    done = w.program(program, "-c", os.path.join(w.dir, "weft.conf"), "-o", f"{key}={store}")
    lines = [line for line in done.stderr.splitlines() if not line.startswith("INFO")]
    check((done.returncode != 0, len(lines)), (True, 1), done.stderr)
    if want not in lines[0]:
        raise Failed(f"{program} says: {lines[0]}")


def test_a_store_from_the_future_is_refused_in_one_line(w):
    ds, mds = os.path.join(w.dir, "ds1"), os.path.join(w.dir, "mds")
    with open(os.path.join(ds, "identity"), encoding="ascii") as f:
        text = f.read()
    version = int(re.search(r"^version=(\d+)$", text, re.M)[1])
    with open(os.path.join(ds, "identity"), "w", encoding="ascii") as f:
        f.write(text.replace(f"version={version}\n", "version=99\n"))
    refused(w, "weft-ds", "ds.store", ds, "the store has version 99, this weft-ds knows")
    with open(os.path.join(mds, "data.mdb"), "r+b") as f:
        data = f.read()
        places = [m.start() for m in re.finditer(b"WEFT-KV\0", data)]
        check(len(places) > 0, True)
        for at in places:
            f.seek(at + 8)
            f.write(struct.pack("<I", 99))
    refused(w, "weft-mds", "mds.store", mds,
            "the store has format version 99; this program knows version")


if __name__ == "__main__":
    tap.run(tap.named(globals()), lambda name: own_cluster(Kept()), 3)
