# SPDX-License-Identifier: Apache-2.0
"""Stores on file systems of their own."""
import ctypes
import os
import shutil
import subprocess

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
