#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""make.py BUILD - makes 69a6aeb.tar.xz with the programs of BUILD, which is a build of 69a6aeb.

The archive has the stores of a metadata server and two data servers as a kill leaves them, the
cluster's key, a data server's JOIN, and facts.json: what only the server knew (handles, inode
numbers). A later store goes beside this one, never in its place.
"""
import json
import os
import socket
import subprocess
import sys
import tempfile

os.environ["WEFT_BUILD"] = os.environ["top_builddir"] = sys.argv[1]
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "../wirelib"), os.path.join(HERE, "../lab")]
import join4  # noqa: E402
from shape import *  # noqa: E402,F403
from harness import Cluster  # noqa: E402
from steps import data_server, lay  # noqa: E402

ADDR = ("127.0.0.1", 12049)


def put(c, s, f, pieces):
    for at, data in pieces:
        for off in range(0, len(data), 65536):
            c.ok(putfh(f), write(s, at + off, data[off:off + 65536], UNSTABLE))
    c.ok(putfh(f), commit())


def names(c):
    facts = {"files": {}, "fileids": {}}
    for name, (policy, pieces, size) in FILES.items():
        d = c.mkdir(c.root(), name)
        c.ok(putfh(d), setxattr("weft.policy", policy))
        s, f = c.open(d, "f")
        put(c, s, f, [(0, text(9999, "cut"))] if name == "cut" else pieces)
        if name != "cut":
            c.ok(putfh(f), setattr_(s, size=size))
        c.ok(putfh(f), close(s))
        facts["files"][name] = f.hex()
        facts["fileids"][name] = c.attrs(f, "fileid").fileid
    d = c.mkdir(c.root(), "names")
    deep = c.mkdir(c.mkdir(d, "deep"), "deeper \u00e4\u2603")
    s, f = c.open(deep, "x" * 255)
    c.ok(putfh(f), close(s))
    c.ok(putfh(f), savefh(), putfh(d), link("hard"))
    c.ok(putfh(d), create(LNK, "symbolic", "deep/deeper"))
    for name, kind in SPECIAL.items():
        c.ok(putfh(d), create(kind, name))
    s, f = c.open(d, "attributes")
    c.ok(putfh(f), close(s))
    c.ok(putfh(f), setxattr(*XATTR))
    c.ok(putfh(f), setattr_(owner="1000", owner_group="50"), setattr_(acl=ACL),
         setattr_(time_modify_set=TIME))
    facts["mode"] = c.attrs(f, "mode").mode
    return facts


def behind(c, w):
    """ds2 misses a cut and a removal."""
    d = c.mkdir(c.root(), "gone")
    c.ok(putfh(d), setxattr("weft.policy", GONE[1]))
    s, f = c.open(d, "f")
    put(c, s, f, [(0, text(GONE[0], "gone"))])
    c.ok(putfh(f), close(s))
    cut, s = bytes.fromhex(FACTS["files"]["cut"]), None
    w.dev("kill", w.dir, "ds2", "-9")
    c.ok(putfh(d), remove("f"))
    c.until(lambda got: err(got.status) == "OK", putfh(cut), setattr_(size=1234), tries=400)
    orders = w.metric("weft_mds_orders")
    if not orders:
        raise AssertionError("no order waits")
    return orders


def client_of_before(c):
    """A client that had an open, a lock and a layout at the end."""
    f = bytes.fromhex(FACTS["files"]["plain"])
    s = c.ok(putfh(f), open_(claim_fh(), BOTH | NO_DELEG, 0, b"kept")).stateid
    o = lay(c, f, s, IO_READ)
    facts = {"capability": o.mirrors[0][0].fhs[0].hex(),
             "user": [o.mirrors[0][0].user, o.mirrors[0][0].group]}
    c.ok(putfh(f), lock(s, WRITE_LT, 0, 100, owner=LOCK_OWNER))
    return facts


def join_of(top):
    key = open(os.path.join(top, "c/cluster.key"), "rb").read()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        keys = {"store": f"{top}/other", "listen": "127.0.0.1:12070",
                "mds": "127.0.0.1:%d" % listener.getsockname()[1], "name": JOIN_NAME,
                "cluster_key": f"{top}/c/cluster.key", "labels": "rack=r1",
                "admin": f"unix:{top}/other.sock"}
        ds = subprocess.Popen([os.path.join(sys.argv[1], "weft-ds"),
                               *[a for k, v in keys.items() for a in ("-o", f"ds.{k}={v}")]])
        try:
            listener.settimeout(20)
            return join4.heard(listener, bytes.fromhex(key.decode().strip()))
        finally:
            ds.kill()
            ds.wait()


w = Cluster(2, ["mds.lease=60s", "mds.grace=60s"])
try:
    c = Client(ADDR, owner=OWNER, verifier=VERIFIER)
    FACTS = names(c)
    FACTS.update(client_of_before(c))
    FACTS["orders"] = behind(c, w)
    for name in ("ds1", "mds"):
        w.dev("kill", w.dir, name, "-9")
    uuid, join = join_of(w.top)
    FACTS.update(join=join.hex(), join_uuid=uuid.hex())
    with open(os.path.join(w.dir, "facts.json"), "w", encoding="utf-8") as f:
        json.dump(FACTS, f, indent=1)
    for name in TOPS:
        subprocess.run(["find", os.path.join(w.dir, name), "-name", "lock.mdb", "-delete"],
                       check=True)
    subprocess.run(["tar", "--xattrs", "--sparse", "--sort=name", "--owner=0", "--group=0",
                    "--numeric-owner", "-C", w.dir, "-cJf", STORE, *TOPS, "cluster.key",
                    "facts.json"],
                   check=True, env={**os.environ, "XZ_OPT": "-9e"})
    print(STORE, os.path.getsize(STORE), "bytes")
finally:
    w.down()
