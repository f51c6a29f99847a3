# SPDX-License-Identifier: Apache-2.0
"""A cluster with exports for several clients, which are loopback addresses. The test that uses it
runs in a mount namespace of its own."""
import os
import shutil
import subprocess

import harness
from harness import BUILD, check
from nfs41 import *  # noqa: F403

ADMIN, BOTH_C, RO, ALL, ROOTSQ, ONLY_B, STRANGER = (f"127.0.0.{n}" for n in (1, 2, 3, 4, 5, 6, 99))
BASE = """
# whoever administers
export "/" { client "127.0.0.1" { access = rw squash = none privileged_port = no \
sec = {sys, none} } }
export "/a" {
	create = yes
	privileged_port = no
	client "127.0.0.2" { access = rw squash = none }
	client "127.0.0.3" { squash = none }
	client "127.0.0.4" { access = rw squash = all anon_uid = 1234 anon_gid = 4321 }
	client "127.0.0.5 127.0.0.2/31" { access = rw sec = {sys, none} }
}
export "/deep/er/b" {
	create = yes
	privileged_port = no
	client "127.0.0.2, 127.0.0.6" { access = rw squash = none }
}
/* no AUTH_SYS here */
export "/other" {
	create = yes
	id = 77
	privileged_port = no
	squash = none
	client "127.0.0.2" { access = rw sec = {none} }
	client "127.0.0.1" { access = rw }
}
"""
CLUSTER = None
FILE = None


def client(addr, port=0, **how):
    return harness.client(source=(addr, port), **how)


def write_file(text):
    with open(FILE + ".new", "w", encoding="utf-8") as f:
        f.write(text)
    os.rename(FILE + ".new", FILE)


def weft(*args, rc=0):
    admin = f"unix:{CLUSTER.dir}/run/mds.sock"
    done = subprocess.run([os.path.join(BUILD, "weft"), "--admin", admin, *args],
                          capture_output=True, text=True, timeout=60, check=False)
    if done.returncode != rc:
        with open(f"{CLUSTER.dir}/log/mds.log", encoding="utf-8") as log:
            check(done.returncode, rc, done.stderr + "".join(log.readlines()[-15:]))
    return done.stdout if rc == 0 else done.stderr


def exports(text):
    write_file(text)
    return weft("exports", "reload")


def walk(c, *names, cred=None):
    return c.ok(putrootfh(), *[lookup(n) for n in names], getfh(), cred=cred).fh


def names(c, fh, **how):
    return sorted(e.name for e in c.readdir_all(fh, **how))


def text(name):
    return name.decode() if isinstance(name, bytes) else name


def own_files(top):
    """Names of this test's own, in this mount namespace."""
    users = "root:x:0:0::/:/bin/sh\nmany:x:3000:3000::/:/bin/sh\n"
    groups = ("root:x:0:\n" + "".join(f"g{n}:x:{n}:many\n" for n in range(3001, 3041))
              + "other:x:3041:\n")
    hosts = ("127.0.0.1 localhost\n127.0.0.31 named.weft.test\n127.0.0.32 in.weft.test\n127.0.0.33 "
             "one.lab.test\n127.0.0.34 out.weft.test\n")
    etc = os.path.join(top, "etc")
    shutil.copytree("/etc", etc, symlinks=True)
    for name, content in (("passwd", users), ("group", groups), ("hosts", hosts),
                          ("netgroup", "trusted (in.weft.test,,) (127.0.0.35,,)\n"),
                          ("nsswitch.conf",
                           "passwd: files\ngroup: files\nhosts: files\nnetgroup: files\n")):
        with open(os.path.join(etc, name), "w", encoding="utf-8") as f:
            f.write(content)
    subprocess.run(["mount", "--bind", etc, "/etc"], check=True)
