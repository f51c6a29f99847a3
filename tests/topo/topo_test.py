#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""weft topo as its man page says: the table, the JSON, what is near a store,
recordings. Prints TAP."""
import json
import os
import subprocess
import sys
import tempfile

SRC = (os.environ.get("top_srcdir")
       or os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
BUILD = os.environ.get("top_builddir") or os.getcwd()
sys.path.insert(0, os.path.join(SRC, "tests/wirelib"))
import tap  # noqa: E402

WEFT = os.path.join(BUILD, "weft")
TREES = ("degraded", "storage", "two-nodes", "two-sockets", "vm")


def tree(name):
    return os.path.join(SRC, "tests/topo", name + ".topo")


def weft(*args, rc=0, stdout=subprocess.PIPE):
    done = subprocess.run([WEFT, *args], stdout=stdout, stderr=subprocess.PIPE, text=True,
                          timeout=30, check=False)
    assert done.returncode == rc, f"{args}: status {done.returncode}, want {rc}: {done.stderr}"
    if rc == 0:
        assert done.stderr == "", done.stderr
        return done.stdout
    assert (done.stderr.startswith("weft: ")
            and (rc == 2 or done.stderr.count("\n") == 1)), done.stderr
    return done.stderr


def topo(name, *args):
    return json.loads(weft("topo", "--json", "--sysfs", tree(name), *args))


def unpack(path, into):
    """A folder like /sys from a recorded tree."""
    where = None
    with open(path, encoding="ascii") as f:
        for line in f.read().split("\n")[1:]:
            if line.startswith("/"):
                where = into + line
                os.makedirs(where, exist_ok=True)
            elif line.startswith("\t"):
                name, eq, content = line[1:].partition("=")
                link, arrow, target = line[1:].partition(" -> ")
                if arrow and (not eq or len(link) < len(name)):
                    os.symlink(target, os.path.join(where, link))
                else:
                    with open(os.path.join(where, name), "w", encoding="ascii") as out:
                        out.write(content + "\n")


def test_the_table_says_what_the_json_says(_):
    for name in TREES:
        want, table = topo(name), weft("topo", "--sysfs", tree(name)).split("\n")
        names = [d["name"] for d in want["devices"]]
        assert table[0].split() == names + ["NUMA"], table[0]
        for d, line in zip(want["devices"], table[1:]):
            row = line.split()
            assert (row[0] == d["name"]
                    and row[-1] == ("-" if d["numa"] is None else str(d["numa"]))), line
            assert row[1:-1] == [want["distances"][d["name"]][n] for n in names], line
            assert want["distances"][d["name"]][d["name"]] == "X"
        lines = {x.split()[0]: x for x in table[len(names) + 3:] if x}
        for d in want["devices"]:
            assert d.get("pci", "-") == lines[d["name"]].split()[1], lines[d["name"]]
            assert ((" !" in lines[d["name"]]) == d.get("link", {}).get("degraded", False)), lines[
                d["name"]]
        for cls in ("X", "PIX", "PXB", "PHB", "NODE", "SYS"):
            assert cls in lines, f"{cls} is not explained"


def test_the_json_of_a_machine_with_switches(_):
    j = topo("two-sockets")
    dev = {d["name"]: d for d in j["devices"]}
    assert [d["kind"] for d in j["devices"]] == ["nvme"] * 9 + ["nic"] * 10 + ["gpu"] * 8
    assert j["numa"] == [{"node": 0, "cpus": "0-47,96-143", "distances": {"0": 10, "1": 21}},
                         {"node": 1, "cpus": "48-95,144-191", "distances": {"0": 21, "1": 10}}]
    assert dev["nvme7"] == {
        "name": "nvme7", "kind": "nvme", "numa": 1, "pci": "0000:af:00.0", "id": "144d:a826",
        "vendor": "Samsung",
        "driver": "nvme", "link": {"gts": 32.0, "width": 4, "max_gts": 32.0, "max_width": 4,
                                   "degraded": False},
        "model": "SAMSUNG MZWLO7T6HBLA-00A07", "transport": "pcie", "address": "0000:af:00.0",
        "state": "live",
        "namespaces": [{"name": "nvme7n1", "bytes": 3840755982336}], "via": []}, dev["nvme7"]
    assert dev["NIC4"]["interfaces"] == [{"name": "ens3f0np0", "mbps": 200000, "up": True,
                                          "addresses": ["10.1.0.11", "fd00:1::11"]}]
    assert dev["NIC2"]["rdma"] == [{"name": "mlx5_0", "port": 1, "mbps": 400000, "active": True,
                                    "link_layer": "InfiniBand", "interface": "ibs1"}]
    assert dev["GPU0"]["vendor"] == "NVIDIA"
    assert ([j["distances"]["nvme7"][n] for n in ("nvme8", "NIC7", "NIC6", "NIC2", "GPU6")]
            == ["PIX", "PXB", "NODE", "SYS", "PXB"])


def test_faults_are_shown(_):
    j = topo("degraded")
    dev = {d["name"]: d for d in j["devices"]}
    assert [n for n, d in dev.items() if d.get("link", {}).get("degraded")] == ["nvme0", "NIC0"]
    assert dev["nvme0"]["numa"] is None and dev["nvme5"]["state"] == "dead"
    assert (dev["nvme1"]["via"] == ["NIC0"] and dev["nvme2"]["via"] == ["NIC1"]
            and dev["nvme4"]["via"] == [])
    table = weft("topo", "--sysfs", tree("degraded"))
    assert "8 GT/s x2 of 8 GT/s x4 !" in table and "dead" in table and "tcp by NIC0" in table


def test_what_is_near_a_block_device(_):
    near = topo("two-sockets", "--near", "nvme7n1")
    assert (near["near"], near["pci"], near["drives"], near["numa"], near["cpus"]) == (
        "nvme7n1", ["0000:af:00.0"], ["nvme7"], 1, "48-95,144-191"), near
    assert [n["name"] for n in near["nics"]] == ["NIC7", "NIC6", "NIC8", "NIC9", "NIC2", "NIC3",
                                                 "NIC4", "NIC5", "NIC0", "NIC1"]
    assert near["nics"][0] == {"name": "NIC7", "distance": "PXB", "numa": 1, "mbps": 400000}
    near = topo("two-sockets", "--near", "md127")
    assert near["drives"] == ["nvme1", "nvme5"] and near["numa"] is None and near["cpus"] == "0-191"
    table = weft("topo", "--sysfs", tree("two-sockets"), "--near", "dm-0")
    assert "NVMe  nvme0" in table and "CPUs  0-47,96-143" in table, table
    assert table.index("NIC0 ") < table.index("NIC2 ") < table.index("NIC8 ")
    assert "no such block device" in weft("topo", "--sysfs", tree("two-sockets"), "--near", "sda",
                                          rc=1)
    assert "not on a block device" in weft("topo", "--near", "/proc", rc=1)
    weft("topo", "--sysfs", tree("vm"), "--near", "/srv", rc=2)


def test_a_recording_of_this_machine_is_read_back(_):
    with tempfile.TemporaryDirectory() as d:
        path = os.path.join(d, "rec")
        assert weft("topo", "--record", path) == ""
        assert (json.loads(weft("topo", "--json", "--sysfs", path))
                == json.loads(weft("topo", "--json")))
        with open(path, encoding="ascii") as f:
            assert weft("topo", "--sysfs", path, "--record", "-") == f.read()
        weft("topo", "--record", os.path.join(d, "no/rec"), rc=1)
    with open("/dev/full", "w", encoding="ascii") as full:
        weft("topo", "--record", "-", rc=1, stdout=full)
        weft("topo", rc=1, stdout=full)
        weft("topo", "--json", "--sysfs", tree("two-sockets"), rc=1, stdout=full)


def test_an_address_with_a_label_belongs_to_its_interface(_):
    done = subprocess.run(["unshare", "-n" if os.geteuid() == 0 else "-rn", "sh", "-c",
                           "ip link set lo up; ip addr add 192.0.2.77/32 dev lo label lo:x; exec "
                           "\"$@\"", "sh", WEFT, "topo", "--record", "-"],
                          capture_output=True, text=True, timeout=30, check=True)
    assert "\n/weft/addresses\n\tlo=127.0.0.1 192.0.2.77 ::1\n" in done.stdout, done.stdout[-300:]


def test_a_folder_like_sys_is_read_as_its_recording(_):
    for name in TREES:
        with tempfile.TemporaryDirectory() as d:
            unpack(tree(name), d)
            assert json.loads(weft("topo", "--json", "--sysfs", d)) == topo(name), name
    with tempfile.TemporaryDirectory() as d:
        assert weft("topo", "--sysfs", d) == "No NVMe drive, network card or GPU was found.\n"


def test_options(_):
    assert json.loads(weft("--json", "topo", "--sysfs", tree("vm"))) == topo("vm")
    assert weft("topo", "--help").startswith("usage: weft topo")
    for args in (["x"], ["--near"], ["--nix"], ["--near", "sda", "--record", "-"]):
        done = subprocess.run([WEFT, "topo", *args], capture_output=True, text=True, timeout=30,
                              check=False)
        assert done.returncode == 2 and "usage: weft topo" in done.stderr and not done.stdout, args
    assert "No such file" in weft("topo", "--sysfs", "/no such", rc=1)
    with tempfile.NamedTemporaryFile("w") as f:
        f.write("weft-topo 1\n/a\n\tb\n")
        f.flush()
        assert "line 3" in weft("topo", "--sysfs", f.name, rc=1)


if __name__ == "__main__":
    tap.main(globals())
