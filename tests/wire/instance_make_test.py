#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""weft instance make: what it writes, what it refuses, and that a server starts with it as far as
PostgreSQL. Prints TAP. As root."""
import contextlib
import json
import os
import re
import subprocess
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../wirelib"))
import tap  # noqa: E402
from harness import check, eventually  # noqa: E402
from handbook import blocks  # noqa: E402
from cluster_machines import ENV, LONG, UID, machines, owners  # noqa: E402

UUID = "01234567-89ab-cdef-0123-456789abcdef"
LOG = "host=192.0.2.5 dbname=postgres user=weft"
MAKE = ("--address", "192.0.2.12", "--interface", "e0", "--log", LOG)
SECOND = ("instance", "make", "2", *MAKE, "--cluster", UUID)


def prepare(m):
    os.makedirs(m.path("etc/weft"))
    m.write("etc/weft/cluster.key", "5" * 64 + "\n")
    os.chmod(m.path("etc/weft/cluster.key"), 0o440)
    os.chown(m.path("etc/weft/cluster.key"), 0, UID)
    m.write("etc/weft/exports", 'export "/" {\n  client "192.0.2.0/24" { access = rw }\n}\n')


def test_it_refuses_what_is_not_safe(m):
    m.refused("etc/weft/cluster.key: is missing", *SECOND)
    prepare(m)
    before = m.tree()
    for why, args in (
            ("--cluster UUID is needed", ("instance", "make", "2", *MAKE)),
            ("192.0.2.1: is this machine's own, on e0",
             ("instance", "make", "1", *MAKE, "--address", "192.0.2.1")),
            ("no such interface", (*SECOND, "--interface", "e9")),
            ("expected an address without a port", (*SECOND, "--address", "192.0.2.12:2049")),
            ("expected an address without a port", (*SECOND, "--address", "node1")),
            ("--log: ", (*SECOND, "--log", "nonsense")),
            ("expected a uuid", (*SECOND, "--cluster", "x")),
            ("cannot stand there", (*SECOND, "--node", "a b"))):
        m.refused(why, *args)
    for args in (("instance", "make", "0", *MAKE), ("instance", "make", "2"),
                 (*SECOND, "--rank", "x"), (*SECOND, "--log", LOG + " password=x")):
        m.weft(*args, rc=2)
    # Others on this machine.
    other = "mds {{\n\tlog = \"postgresql:host=/x\"\n\t{}\n}}\n"
    for path, text, why in (
            ("weft.conf", "fs = 2", "has instance 2 on this machine already"),
            ("weft.conf", "fs = 3\n\tlisten = \"0.0.0.0:2049\"", "listens on all addresses"),
            ("mds-3.conf", "fs = 3\n\tlisten = \"192.0.2.12:2049\"", "uses the address 192.0.2.12"),
            ("mds-3.conf", "fs = 3\n\tlisten = \"192.0.2.13:2049\"\n\t"
             "store = /var/lib/weft/mds-2", "uses the store")):
        m.write("etc/weft/" + path, other.format(text))
        m.refused(why, *SECOND)
        os.unlink(m.path("etc/weft/" + path))
    m.write("etc/weft/mds-2.conf", "mds { }\n")
    m.refused("mds-2.conf: is there already, with another text", *SECOND)
    os.unlink(m.path("etc/weft/mds-2.conf"))
    os.makedirs(m.path("var/lib/weft/mds-2/x"))
    m.refused("a new store needs an empty folder", *SECOND)
    os.removedirs(m.path("var/lib/weft/mds-2/x"))
    os.makedirs(m.path("var/lib"), exist_ok=True)
    changed = {p for p, was in m.tree().items() if was[4] != before.get(p, (None,) * 5)[4]}
    check(changed, set(), "files that a refusal left")


def test_it_makes_a_node_of_an_instance(m):
    prepare(m)
    before = m.tree()
    said, _ = m.weft(*SECOND, "--node", "n1", "--rank", "500", "--dry-run")
    for part in ("would make", "/etc/weft/mds-2.conf (root:weft, mode 0640)", "fs = 2",
                 "192.0.2.12 e0", "weft pg init --instance 2", "Nothing was changed."):
        check(part in said, True, f"{part} in {said}")
    check(m.tree(), before, "a dry run")
    said, _ = m.weft(*SECOND, "--node", "n1", "--rank", "500")
    commands = re.findall(r"^to do +(.*)$", said, re.M)
    check([c for c in commands if "weft-addr" in c or "weft-mds -c" in c] and len(commands), 3,
          said)
    owners(m, {"etc/weft/mds-2.conf": (0, UID, 0o640), "var/lib/weft/mds-2": (UID, UID, 0o700),
               "etc/weft/addr.conf": (0, UID, 0o644)})
    conf = m.read("etc/weft/mds-2.conf")
    for line in ("store = /var/lib/weft/mds-2", 'listen = "192.0.2.12:2049"', "fs = 2",
                 f"cluster = {UUID}", "node = n1", "log_rank = 500ms",
                 f'log = "postgresql:{LOG}"'):
        check("\t" + line + "\n" in conf, True, f"{line} in {conf}")
    # Both programs take what was written.
    for args in (("weft-mds", "-c", "/etc/weft/mds-2.conf", "--check"), ("weft-addr", "-n")):
        done = subprocess.run(m.inside(*args), env=ENV, capture_output=True, text=True,
                              timeout=LONG, check=False)
        check(done.returncode, 0, f"{args}: {done.stderr}")
    # Again: all is there. A second instance: its line joins the others.
    before = m.read("etc/weft/mds-2.conf")
    said, _ = m.weft(*SECOND, "--node", "n1", "--rank", "500")
    check(said.count("is there"), 4, said)
    check(m.read("etc/weft/mds-2.conf"), before)
    said, _ = m.weft("instance", "make", "3", *MAKE[2:], "--address", "192.0.2.13", "--cluster",
                     UUID)
    check("echo 192.0.2.13 e0 >>/etc/weft/addr.conf" in said, True, said)
    # It tells its data servers of the other one, and says that the other one has to as well.
    check("\tinstances = \"192.0.2.12, 192.0.2.13\"\n" in m.read("etc/weft/mds-3.conf"), True,
          m.read("etc/weft/mds-3.conf"))
    check("instances = " in conf, False, "the first one knows no other")
    check("on each node of the other instances: mds.instances" in said, True, said)
    done = subprocess.run(m.inside("weft-mds", "-c", "/etc/weft/mds-3.conf", "--check"), env=ENV,
                          capture_output=True, text=True, timeout=LONG, check=False)
    check(done.returncode, 0, done.stderr)
    m.refused("uses the address 192.0.2.12", "instance", "make", "4", *MAKE, "--cluster", UUID)


def test_force_changes_a_node(m):
    prepare(m)
    m.weft(*SECOND, "--node", "n1")
    before = m.read("etc/weft/mds-2.conf")
    # It has served, and holds its address.
    m.write("var/lib/weft/mds-2/data.mdb", "x")
    subprocess.run(m.inside("ip", "addr", "add", "192.0.2.12/32", "dev", "e0"), check=True)
    more = (*SECOND, "--node", "n1", "--rank", "700")
    m.refused("with --force it is kept as", *more)
    # Under systemd its server begins again; here nothing is done.
    os.makedirs(m.path("run/systemd/system"))
    said, _ = m.weft(*more, "--force", "--dry-run")
    check("would run   systemctl restart weft-mds@2.service\n" in said, True, said)
    said, _ = m.weft(*SECOND, "--node", "n1", "--dry-run")
    check("would run   systemctl start weft-mds@2.service\n" in said, True, said)
    os.rmdir(m.path("run/systemd/system"))
    m.weft(*more, "--force")
    check(m.read("etc/weft/mds-2.conf"), before.replace("log_rank = 0ms", "log_rank = 700ms"))
    check(m.read("etc/weft/mds-2.conf.before"), before)
    check(m.read("var/lib/weft/mds-2/data.mdb"), "x")
    # No configuration of before makes the machine's own address one that moves.
    os.unlink(m.path("etc/weft/mds-2.conf.before"))
    m.refused("is this machine's own, on e0", *SECOND, "--address", "192.0.2.1", "--force")


def test_a_line_joins_no_other(m):
    prepare(m)
    m.write("etc/weft/addr.conf", "192.0.2.77 e0")
    said, _ = m.weft(*SECOND)
    (command,) = re.findall(r"^to do +(.*>>.*)$", said, re.M)
    subprocess.run(m.inside("sh", "-c", command), env=ENV, check=True, timeout=LONG)
    check(m.read("etc/weft/addr.conf"), "192.0.2.77 e0\n192.0.2.12 e0\n")
    said, _ = m.weft(*SECOND)
    check(">>" in said, False, said)


def test_a_store_that_is_put_back_is_told_its_unit(m):
    prepare(m)
    m.write("etc/weft/one.conf", "mds {\n\tstore = /srv/weft/one\n\tlisten = \"127.0.0.1:2049\"\n"
            "\tcluster_key = /etc/weft/cluster.key\n\texports = /etc/weft/exports\n}\n")
    with subprocess.Popen(m.inside("weft-mds", "-c", "/etc/weft/one.conf"), env=ENV,
                          stderr=subprocess.DEVNULL) as server:
        try:
            eventually(lambda: subprocess.run(
                m.inside("weft", "backup", "-c", "/etc/weft/one.conf", "/srv/weft/backup"),
                env=ENV, capture_output=True, timeout=LONG, check=False).returncode == 0, LONG,
                "a backup")
        finally:
            server.terminate()
    m.weft(*SECOND)
    said, _ = m.weft("restore", "-c", "/etc/weft/mds-2.conf", "/srv/weft/backup")
    for part in ("take mds.log out of /etc/weft/mds-2.conf, and mds.log_lease_in if it is there",
                 "/run/weft-mds-2\n",
                 " weft-mds -c /etc/weft/mds-2.conf --restored=only\n",
                 "systemctl start weft-mds@2\n"):
        check(part in said, True, f"{part} in {said}")
    said, _ = m.weft("restore", "--json", "--store", "/srv/weft/two", "-c", "/etc/weft/one.conf",
                     "/srv/weft/backup")
    check(json.loads(said)["next"], "weft-mds -c /etc/weft/one.conf --restored=only", said)


def test_the_block_of_the_page_does_what_it_says(m):
    prepare(m)
    with open(os.path.join(tap.SRC, "docs/ha.md"), encoding="utf-8") as f:
        (block,) = [b for b in blocks("ha.md", f.read()) if b.first == "# On m1:"]
    done = subprocess.run(m.inside("sh", "-e", "-c", block.text.replace("eth0", "e0")), env=ENV,
                          capture_output=True, text=True, timeout=LONG, check=False)
    check((done.returncode, "Nothing was changed." in done.stdout), (0, True), done)


@contextlib.contextmanager
def one(_name):
    with machines() as (m, *_):
        yield (m,)


if __name__ == "__main__":
    tap.run(tap.named(globals()), one)
