#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""powercut.py LOOPDEV - the crash test (tests/fault/crash.py), with a power cut at each kill: the
store loses what the page cache had not written."""
import os
import random
import subprocess
import sys
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.environ["top_srcdir"], "tests/fault"))
import crash  # noqa: E402
from nfs41 import Failed  # noqa: E402

LOOP, STORE, DEVICE = sys.argv[1], "/run/store", "/dev/mapper/cut"


def run(*args):
    done = subprocess.run(args, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Failed(f"{' '.join(args)}: {done.stderr}")
    return done.stdout


def table(kind, *rest):
    """Loads this table into the device. It does not wait for what is on its way to the device."""
    size = run("blockdev", "--getsz", LOOP).strip()
    run("dmsetup", "suspend", "--noflush", "--nolockfs", "cut")
    run("dmsetup", "load", "cut", "--table", " ".join(["0", size, kind, LOOP, "0", *rest]))
    run("dmsetup", "resume", "cut")


class Machine(crash.Server):
    def __init__(self, *settings):
        super().__init__(*settings)
        # The store moves to the device.
        self.w.dev("kill", self.w.dir, "mds")
        run("mount", DEVICE, STORE)
        run("rm", "-rf", f"{STORE}/mds")
        run("cp", "-a", f"{self.w.dir}/mds", STORE)
        run("rm", "-rf", f"{self.w.dir}/mds")
        os.symlink(f"{STORE}/mds", f"{self.w.dir}/mds")
        run("sync")
        self.start()

    def kill(self):
        super().kill()
        table("flakey", "0", "3600", "1", "drop_writes")
        for _ in range(100):  # the dead server's rings end late
            if subprocess.run(["umount", STORE], capture_output=True, check=False).returncode == 0:
                break
            time.sleep(0.02)
        with open("/proc/sys/vm/drop_caches", "w", encoding="ascii") as f:
            f.write("3\n")
        table("linear")
        run("mount", DEVICE, STORE)

    def down(self):
        super().down()
        run("umount", STORE)


def cuts(n, *settings):
    machine = Machine(*settings)
    t = crash.Test(random.Random(crash.SEED), machine)
    try:
        for _ in range(n):
            t.at_random()
        t.end()
    finally:
        for w in t.workers:
            w.ending.set()
        t.s.down()


def main():
    print(f"# seed {crash.SEED}", flush=True)
    try:
        cuts(8)
        print("ok - everything acknowledged is there after each of 8 power cuts", flush=True)
    except (Failed, OSError) as e:
        print(f"not ok - everything acknowledged is there after each power cut\n#   {e}",
              flush=True)
        os._exit(1)
    try:  # the test sees what is lost where the server syncs nothing
        cuts(8, "mds.sync=false")
        print("not ok - without mds.sync a power cut loses what was acknowledged", flush=True)
    except (Failed, OSError):
        print("ok - without mds.sync a power cut loses what was acknowledged", flush=True)
    os._exit(0)  # clients of a server that is gone


main()
