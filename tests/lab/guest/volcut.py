#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""volcut.py LOOPDEV LOOPDEV - kills a data server of two volumes and cuts the power of both.
Prints TAP."""
import os
import random
import signal
import subprocess
import sys
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.environ["top_srcdir"], "tests/wirelib"))
import harness  # noqa: E402
import volumes as vt  # noqa: E402
from harness import UNSTABLE, check, eventually, putfh, read, remove, write  # noqa: E402

LOOPS, CUTS = sys.argv[1:], 6
SEED = int(os.environ.get("WEFT_SEED") or random.SystemRandom().randrange(2**32))


def run(*args):
    done = subprocess.run(args, capture_output=True, text=True, check=False)
    assert not done.returncode, f"{' '.join(args)}: {done.stderr}"
    return done.stdout


def table(i, kind, *rest):
    """Loads this table into the device. It does not wait for what is on its way to the device."""
    size = run("blockdev", "--getsz", LOOPS[i - 1]).strip()
    run("dmsetup", "suspend", "--noflush", "--nolockfs", f"cut{i}")
    run("dmsetup", "load", f"cut{i}", "--table",
        " ".join(["0", size, kind, LOOPS[i - 1], "0", *rest]))
    run("dmsetup", "resume", f"cut{i}")


def cut(w):
    with open(os.path.join(w.dir, "run", "ds1.pid"), encoding="ascii") as f:
        # The server stands still before its disks drop writes: a machine stops with its disks.
        os.kill(int(f.read()), signal.SIGSTOP)
    for i in (1, 2):
        table(i, "flakey", "0", "3600", "1", "drop_writes")
    w.dev("kill", w.dir, "ds1", "-9")
    for i in (1, 2):
        # The dead server's rings end late.
        eventually(lambda: not subprocess.run(
            ["umount", w.folder(i)], capture_output=True,  # noqa: B023
            check=False).returncode, 10, "umount")
    with open("/proc/sys/vm/drop_caches", "w", encoding="ascii") as f:
        f.write("3\n")
    for i in (1, 2):
        table(i, "linear")
        run("mount", f"/dev/mapper/cut{i}", w.folder(i))
    w.dev("start", w.dir, "ds1")


def attempt(done, seconds=20):
    """Retries what the server may put off while it comes back."""
    end = time.monotonic() + seconds
    while True:
        try:
            return done()
        except harness.Failed:
            if time.monotonic() > end:
                raise
            time.sleep(0.2)


def verify(c, files):
    for name, data in files.items():
        s, f = attempt(lambda: c.open(c.root(), name))  # noqa: B023
        got = attempt(lambda: c.ok(putfh(f), read(s, 0, 1 << 16), timeout=30).data)  # noqa: B023
        check(got == data, True, f"{name}: {len(got)} bytes, want {len(data)}")
        c.ok(putfh(f), harness.close(s))


def main():
    print(f"# seed {SEED}", flush=True)
    rng, files, lost = random.Random(SEED), {}, 0
    w, c = vt.cluster(2, 1)
    w.dev("kill", w.dir, "ds1")
    for i in (1, 2):
        os.rename(w.folder(i), w.folder(i) + ".old")
        os.mkdir(w.folder(i))
        run("mount", f"/dev/mapper/cut{i}", w.folder(i))
        run("cp", "-a", w.folder(i) + ".old/.", w.folder(i))
    run("sync")
    w.dev("start", w.dir, "ds1")
    for k in range(CUTS):
        for i in range(rng.randrange(10, 40)):
            name, data = f"f{k}.{i}", rng.randbytes(rng.randrange(1, 20000))
            s, f = vt.put(c, c.root(), name, data)
            c.ok(putfh(f), harness.close(s))
            files[name] = data
        for name in rng.sample(sorted(files), 5):
            c.ok(putfh(c.root()), remove(name), timeout=30)
            del files[name]
        s, f = c.open(c.root(), f"unstable{k}")
        c.ok(putfh(f), write(s, 0, b"x" * 4096, UNSTABLE))
        cut(w)
        verify(c, files)
        r = c.call(putfh(f), read(s, 0, 4096), timeout=30)
        lost += bool(r.status) or r.results[-1].data != b"x" * 4096
    held = [len(vt.objects(w.folder(i))) for i in (1, 2)]
    print(f"{'ok' if min(held) > 0 else 'not ok'} - both volumes have objects ({held})")
    print(f"ok - everything acknowledged is there after each of {CUTS} power cuts")
    print(f"{'ok' if lost else 'not ok'} - and what was not, is lost ({lost} of {CUTS})",
          flush=True)
    eventually(lambda: sum(len(vt.objects(w.folder(i))) for i in (1, 2)) <= len(files) + CUTS, 10,
               "the objects of removed files are gone")
    print("ok - removed files stay removed", flush=True)


try:
    main()
except (AssertionError, harness.Failed, OSError) as e:
    print(f"not ok - everything acknowledged is there after each power cut\n#   {e}", flush=True)
os._exit(0)  # clients of a server that is gone
