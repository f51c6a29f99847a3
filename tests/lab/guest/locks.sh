#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
. "$(dirname "$0")/lib.sh"
mount_weft
cat >/run/locks.py <<'PY'
import errno, fcntl, os, sys, time
from flags import SHARED, flag, wait
me, path = sys.argv[1:]
def refused(fd, kind, *where):
    try:
        fcntl.lockf(fd, kind | fcntl.LOCK_NB, *where)
    except OSError as e:
        assert e.errno in (errno.EAGAIN, errno.EACCES), e
        return True
    return False
fd = os.open(path, os.O_RDWR | os.O_CREAT)
if me == "a":
    fcntl.lockf(fd, fcntl.LOCK_EX, 100, 0)
    fcntl.lockf(fd, fcntl.LOCK_SH, 100, 1000)
    flag("l1")
    wait("l2")
    assert refused(fd, fcntl.LOCK_EX, 10, 205)
    flag("held")
    wait("restarted")
    # Reclaimed: b still gets no lock, and a goes on with its own.
    fcntl.lockf(fd, fcntl.LOCK_EX, 100, 1000)
    flag("l3")
    wait("l4")
    fcntl.lockf(fd, fcntl.LOCK_UN, 50, 0)
    flag("l5")
    wait("l6")
    os.close(fd)
    flag("l7")
    wait("l8")
    fd = os.open(path, os.O_RDWR)
    fcntl.lockf(fd, fcntl.LOCK_EX, 10, 500)
    flag("l9")
    time.sleep(6)
    flag("unlocks")
    fcntl.lockf(fd, fcntl.LOCK_UN, 10, 500)
    wait("l10")
else:
    wait("l1")
    assert refused(fd, fcntl.LOCK_SH, 1, 0) and refused(fd, fcntl.LOCK_EX, 1000, 50)
    fcntl.lockf(fd, fcntl.LOCK_SH, 10, 1005)
    fcntl.lockf(fd, fcntl.LOCK_UN, 10, 1005)
    fcntl.lockf(fd, fcntl.LOCK_EX, 100, 200)
    flag("l2")
    wait("l3")
    assert refused(fd, fcntl.LOCK_SH, 10, 1005), "the lock changed after the restart"
    assert refused(fd, fcntl.LOCK_SH, 1, 0), "a lock of before the restart is gone"
    flag("l4")
    wait("l5")
    fcntl.lockf(fd, fcntl.LOCK_EX, 50, 0)
    assert refused(fd, fcntl.LOCK_EX, 1, 50)
    flag("l6")
    wait("l7")
    fcntl.lockf(fd, fcntl.LOCK_EX, 0, 0)
    # A lock of the whole file that no client waits for; flock() is one of these on NFS.
    os.close(fd)
    flag("l8")
    # A lock that a client waits for comes when it can, not at the client's next try (that is
    # seconds away by then).
    fd = os.open(path, os.O_RDWR)
    wait("l9")
    fcntl.lockf(fd, fcntl.LOCK_EX, 10, 500)
    flag("got")
    # By the host's clock, of which both guests' files have their times: the guests'
    # own may differ by half a second.
    late = os.stat(f"{SHARED}/got").st_mtime - os.stat(f"{SHARED}/unlocks").st_mtime
    assert 0 <= late < 0.7, f"{late:.2f} s after it was free"
    flag("l10")
PY
check "$1: locks" timeout 200 python3 /run/locks.py "$1" $M/f
check "$1: flock" flock -w 20 $M/g$1 true
umount_weft
no_complaint
