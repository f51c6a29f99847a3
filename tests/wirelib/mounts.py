# SPDX-License-Identifier: Apache-2.0
"""Stores on file systems of their own."""
import ctypes
import os
import shutil
import subprocess
import sys
import tempfile

from harness import eventually

CLONE_NEWNS = 0x20000
EXT4_IOC_SHUTDOWN = 0x8004587d
NOLOGFLUSH = 2


def own_mounts():
    """Makes mounts of this process and its children alone. They go with the processes."""
    libc = ctypes.CDLL(None, use_errno=True)
    return (os.geteuid() == 0 and libc.unshare(CLONE_NEWNS) == 0
            and run("mount", "--make-rprivate", "/"))


def run(*words):
    return subprocess.run(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                          check=False).returncode == 0


def unmount(folder):
    """Ends the mount there, if there is one. The kernel closes what a process had in an io_uring
    after the process has ended, and the file system is busy as long."""
    eventually(lambda: not os.path.ismount(folder) or run("umount", folder),
               what=f"the umount of {folder}")


def on_ext4(w, name, size=64 << 30):
    """Moves the store of a data server to an ext4 of its own. False: this machine mounts none."""
    store, image = os.path.join(w.dir, name), os.path.join(w.top, "image")
    with open(image, "wb") as f:
        # Files go where there is space, so the image offers about as much as the other
        # store: 64 GiB.
        f.truncate(size)
    w.dev("kill", w.dir, name, "-9")
    os.rename(store, store + ".old")
    os.mkdir(store)
    if (not run("mkfs.ext4", "-q", "-T", "largefile4", "-m", "0", image)
            or not run("mount", "-o", "loop", image, store)):
        return False
    os.rmdir(os.path.join(store, "lost+found"))
    shutil.copytree(store + ".old", store, dirs_exist_ok=True)
    w.dev("start", w.dir, name)
    return True


def mounted():
    """Mounts an XFS with reflinks in a mount namespace of this test. Returns the folder, or None
    where the machine cannot do it."""
    if os.geteuid() or not os.path.exists("/dev/loop-control"):
        return None
    if "CLONE_TEST_NS" not in os.environ:
        os.environ["CLONE_TEST_NS"] = "1"
        os.execvp("unshare", ["unshare", "-m", sys.executable, *sys.argv])
    top = tempfile.mkdtemp(prefix="weft-clone-test.")
    image, where = os.path.join(top, "image"), os.path.join(top, "xfs")
    os.mkdir(where)
    with open(image, "wb") as f:
        f.truncate(2 << 30)
    for command in (["mkfs.xfs", "-q", "-m", "reflink=1", image],
                    ["mount", "-o", "loop", image, where]):
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        except FileNotFoundError:
            done = None
        if not done or done.returncode:
            shutil.rmtree(top)
            return None
    return where
