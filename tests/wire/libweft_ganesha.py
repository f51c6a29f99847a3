#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""libweft speaks plain NFSv4.1 and 4.2 to a foreign server: nfs-ganesha, where it is installed.
Prints TAP."""
import os
import shutil
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../wirelib"))
import tap  # noqa: E402
from libweft import libweft  # noqa: E402
from harness import Failed, eventually  # noqa: E402

PORT = 12049
CONF = """
NFS_CORE_PARAM { Protocols = 4; NFS_Port = %d; Enable_NLM = false; Enable_RQUOTA = false; \
Enable_UDP = false; }
NFSv4 { Graceless = true; Minor_Versions = 1, 2; RecoveryBackend = fs; Lease_Lifetime = 4; \
Allow_Numeric_Owners = true; Only_Numeric_Owners = true; }
EXPORT { Export_Id = 1; Path = %s; Pseudo = /x; Access_Type = RW; Squash = No_Root_Squash; \
SecType = sys; FSAL { Name = VFS; } }
LOG { Default_Log_Level = EVENT; }
"""


class Ganesha:
    """Its files, rpcbind's socket among them, are in memory of this test's own."""

    def __init__(self):
        self.dir = tempfile.mkdtemp(prefix="libweft-ganesha.")
        self.export = os.path.join(self.dir, "export")
        os.mkdir(self.export)
        conf = os.path.join(self.dir, "conf")
        with open(conf, "w", encoding="utf-8") as f:
            f.write(CONF % (PORT, self.export))
        for where in ("/run", "/var/lib/nfs"):
            subprocess.run(["mount", "-t", "tmpfs", "tmpfs", where], check=True)
        for where in ("/run/ganesha", "/var/lib/nfs/ganesha"):
            os.makedirs(where)
        self.started = [subprocess.Popen(["rpcbind", "-f"])]
        eventually(lambda: os.path.exists("/run/rpcbind.sock"), 5, "rpcbind's socket")
        self.log = os.path.join(self.dir, "log")
        self.started.append(subprocess.Popen(["ganesha.nfsd", "-F", "-f", conf,
                                              "-p", "/run/ganesha.pid", "-L", self.log]))
        eventually(self.serves, 20, "ganesha's service")

    def serves(self):
        try:
            libweft("null", address=("127.0.0.1", PORT))
            return True
        except Failed:
            return False

    def down(self):
        for p in reversed(self.started):
            p.terminate()
            try:
                p.wait(20)
            except subprocess.TimeoutExpired:
                p.kill()
                p.wait()
        shutil.rmtree(self.dir)


def speaks(name, minor):
    libweft(name, address=("127.0.0.1", PORT), WEFT_MINOR=minor, WEFT_TOP="x")
    for entry in os.scandir(THE.export):
        shutil.rmtree(entry.path)


def test_names_attributes_and_links():
    speaks("names", "1")
    speaks("names", "2")


def test_a_path_longer_than_a_compound():
    speaks("paths", "1")


def test_data_in_many_calls():
    speaks("data", "1")
    speaks("data", "2")


def test_many_calls_on_four_connections():
    speaks("many", "1")


def test_an_idle_client_keeps_its_lease():
    speaks("idle", "1")


def main():
    global THE
    # No other process sees a mount of ours.
    if (os.environ.get("LIBWEFT_NS") != "1" and shutil.which("ganesha.nfsd")
            and shutil.which("rpcbind") and os.geteuid() == 0):
        os.environ["LIBWEFT_NS"] = "1"
        os.execvp("unshare", ["unshare", "-m", sys.executable, *sys.argv])
    if not tap.built("tests/wirelib/weft_client") or os.environ.get("LIBWEFT_NS") != "1":
        tap.skip("nfs-ganesha and rpcbind are not here, or not root")
        return
    THE = Ganesha()
    began = time.monotonic()
    try:
        tap.run(tap.named(globals()))
    finally:
        THE.down()
    tap.say(f"{time.monotonic() - began:.1f} s")


if __name__ == "__main__":
    main()
