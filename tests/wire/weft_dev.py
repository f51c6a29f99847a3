#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""weft-dev with the real daemons: what its man page promises. Prints TAP."""
import contextlib
import json
import os
import shutil
import socket
import stat
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../wirelib"))
import tap  # noqa: E402
from tap import BUILD, SRC  # noqa: E402

SCRIPT = os.path.join(BUILD, "tools/weft-dev")
KEYS = {"name", "pid", "addr", "port", "admin", "metrics"}


def dev(*args, rc=0):
    done = subprocess.run([SCRIPT, *args], capture_output=True, text=True, timeout=150, check=False)
    assert done.returncode == rc, f"{args}: status {done.returncode}, want {rc}: {done.stderr}"
    return done.stdout if rc == 0 else done.stderr


def status(d):
    s = json.loads(dev("status", d, "--json"))
    assert set(s) == {"mount", "daemons"}, s
    for row in s["daemons"]:
        assert set(row) == KEYS, row
    return s["mount"], {row["name"]: row for row in s["daemons"]}


def metrics(where):
    return subprocess.run([sys.executable, os.path.join(SRC, "tests/lab/metric.py"), *where],
                          capture_output=True, text=True, check=True).stdout.strip()


@contextlib.contextmanager
def folder(name="c"):
    top = tempfile.mkdtemp(prefix="weft-dev-test.")
    d = os.path.join(top, name)
    try:
        yield d
    finally:
        if os.path.exists(os.path.join(d, "cluster.json")):
            dev("down", d)
        shutil.rmtree(top)


def test_a_cluster_from_up_to_purge():
    with folder() as d:
        mount = dev("up", d, "--ds", "2", "--set", "mds.lease=5s").strip()
        assert mount == "mount -t nfs4 -o vers=4.2,port=12049 127.0.0.1:/", mount
        told, rows = status(d)
        assert told == mount
        assert [(n, r["addr"], r["port"]) for n, r in rows.items()] == [
            ("mds", "127.0.0.1", 12049), ("ds1", "127.0.0.1", 12050),
            ("ds2", "127.0.0.1", 12051)], rows
        for row in rows.values():
            os.kill(row["pid"], 0)
            socket.create_connection((row["addr"], row["port"]), 5).close()
            assert row["admin"].startswith(f"unix:{d}/"), row
        assert stat.S_IMODE(os.stat(f"{d}/cluster.key").st_mode) == 0o600
        # Every series exists from the start, with 0.
        for proc in ("NULL", "GETATTR", "SETATTR", "READ", "WRITE", "COMMIT", "FSSTAT", "FSINFO"):
            metrics([d, "ds2", "weft_ds_op_total", f"proc={proc}"])
        assert metrics([d, "ds1", "weft_ds_bytes_total", "dir=read"]) == "0"
        assert metrics([d, "ds1", "weft_ds_bytes_total", "dir=write"]) == "0"
        for op in ("READ", "WRITE", "OPEN", "LAYOUTGET", "LAYOUTRETURN", "SEQUENCE"):
            assert metrics([d, "mds", "weft_mds_op_total", f"op={op}"]) == "0", op
        before = rows
        assert dev("up", d).strip() == mount
        assert status(d)[1] == before, "up on a running cluster changes nothing"
        for name, how in (("ds1", []), ("ds2", ["-9"]), ("mds", ["-9"])):
            dev("kill", d, name, *how)
            assert not os.path.exists(f"/proc/{before[name]['pid']}") or zombie(before[name]["pid"])
            assert status(d)[1][name]["pid"] == 0
        dev("kill", d, "ds1")
        for name in ("mds", "ds2", "ds1"):
            dev("start", d, name)
            assert status(d)[1][name]["pid"] > 0
        dev("down", d)
        assert not any(r["pid"] for r in status(d)[1].values())
        assert dev("up", d).strip() == mount
        assert "ds3" not in status(d)[1]
        dev("down", d, "--purge")
        assert not os.path.exists(d)
        dev("status", d, rc=1)


def zombie(pid):
    with open(f"/proc/{pid}/stat", encoding="utf-8") as f:
        return f.read().rpartition(")")[2].split()[0] == "Z"


def test_the_identity_of_a_data_server_stays():
    with folder() as d:
        dev("up", d, "--ds", "1")
        dev("down", d)
        dev("up", d, "--ds", "2")
        dev("kill", d, "ds1", "-9")
        dev("start", d, "ds1")
        assert set(status(d)[1]) == {"mds", "ds1", "ds2"}
        dev("kill", d, "mds")
        dev("start", d, "mds")
        dev("up", d)


def test_bad_settings_change_nothing():
    with folder() as d:
        err = dev("up", d, "--set", "mds.leese=5s", rc=2)
        assert "mds.leese" in err and "mds.lease" in err, err
        err = dev("up", d, "--set", "mds.lease=soon", rc=2)
        assert "mds.lease" in err, err
        err = dev("up", d, "--set", "mds.size_from_ds=perhaps", rc=2)
        assert "always" in err and "never" in err, err
        dev("up", d, "--set", "mds.lease", rc=2)
        dev("up", d, "--set", "mds.store=/tmp", rc=2)
        dev("up", d, "--ds", "0", rc=2)
        dev("up", d, "--volumes", "17", rc=2)
        dev("up", d, "--port", "70000", rc=2)
        dev("up", d, "--addr", "nowhere", rc=2)
        assert not os.path.exists(d)


def test_volumes_are_added_and_kept():
    with folder() as d:
        dev("up", d, "--ds", "1")
        dev("down", d)
        dev("up", d, "--volumes", "3")
        assert all(os.path.isdir(f"{d}/{v}/objects") for v in ("ds1", "ds1.v2", "ds1.v3"))
        dev("down", d)
        assert "hold data" in dev("up", d, "--volumes", "2", rc=2)
        dev("up", d)
        dev("down", d, "--purge")
        assert not os.path.exists(d)


def test_settings_of_a_running_cluster_are_kept():
    with folder() as d:
        dev("up", d, "--ds", "2", "--set", "mds.lease=7s")
        assert "run with other settings" in dev("up", d, "--set", "mds.lease=8s", rc=1)
        assert "hold data" in dev("up", d, "--ds", "1", rc=2)
        assert "no daemon is called 'ds9'" in dev("kill", d, "ds9", rc=2)
        dev("down", d)
        dev("up", d)
        with open(f"{d}/weft.conf", encoding="utf-8") as f:
            assert 'lease = "7s"' in f.read()


def test_the_address_may_appear_later():
    with folder() as d:
        assert dev("up", d, "--ds", "2", "--addr", "10.77.9.9", "--port", "13000").strip() == \
            "mount -t nfs4 -o vers=4.2,port=13000 10.77.9.9:/"
        # Only in a network of its own, which tests/netns gives where it can.
        if ([name for _, name in socket.if_nameindex()] == ["lo"]
            and subprocess.run(["ip", "addr", "add", "10.77.9.9/32", "dev", "lo"],
                               check=False).returncode == 0):
            for port in (13000, 13001, 13002):
                socket.create_connection(("10.77.9.9", port), 5).close()
            subprocess.run(["ip", "addr", "del", "10.77.9.9/32", "dev", "lo"], check=True)


def test_ipv6():
    with folder() as d:
        assert dev("up", d, "--ds", "1", "--addr",
                   "::1").strip() == "mount -t nfs4 -o vers=4.2,port=12049 [::1]:/"
        socket.create_connection(("::1", 12050), 5).close()


def test_a_long_folder_gets_loopback_admin_ports():
    with folder("x" * 120) as d:
        dev("up", d, "--ds", "1")
        for row in status(d)[1].values():
            assert row["admin"].startswith("127.0.0.1:"), row
            assert row["metrics"] == f"http://{row['admin']}/metrics", row
        assert metrics([d, "ds1", "weft_ds_op_total", "proc=WRITE"]) == "0"


def test_a_pid_that_another_program_has_is_dead():
    with folder() as d:
        dev("up", d, "--ds", "1")
        pid = status(d)[1]["ds1"]["pid"]
        dev("kill", d, "ds1")
        with open(f"{d}/run/ds1.pid", "w", encoding="ascii") as f:
            f.write(f"{os.getpid()}\n")
        assert status(d)[1]["ds1"]["pid"] == 0
        dev("kill", d, "ds1", "-9")  # and does not hit this process
        dev("start", d, "ds1")
        assert status(d)[1]["ds1"]["pid"] not in (0, pid, os.getpid())


def test_a_folder_with_other_files_is_left_alone():
    with folder() as d:
        os.mkdir(d)
        with open(f"{d}/mine", "w", encoding="ascii"):
            pass
        assert "holds files but no cluster" in dev("up", d, rc=1)
        assert os.listdir(d) == ["mine"]


def test_a_port_in_use_is_told():
    with folder() as d, socket.socket() as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        s.bind(("127.0.0.1", 12050))
        s.listen()
        err = dev("up", d, "--ds", "1", rc=1)
        assert "ds1" in err and "in use" in err, err
        assert not any(r["pid"] for r in status(d)[1].values())


tap.run(tap.named(globals()))
