#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
. "$(dirname "$0")/lib.sh"
mount_weft
echo words >$M/deep/pub/text && chmod 777 $M/squashed && sync
flag filled
wait_flag two
umount_weft
mount_weft
same "the root shows the exports and what leads to them" "$(ls $M | tr '\n' ' ')" \
	"deep home squashed "
same "and no other's" "$(ls $M/deep)" pub
fails "what is on the way is nobody's to write" "Read-only file system" mkdir $M/x
fails "also deeper" "Read-only file system" touch $M/deep/x
fails "an export of others is not there" "No such file" ls $M/deep/secret
check "a file in one export" dd if=/dev/urandom of=$M/home/data bs=1M count=8 conv=fsync status=none
same "its owner is root" "$(stat -c %u:%g $M/home/data)" 0:0
check "it lies on the data servers" sh \
	-c "getfattr --only-values -n user.weft.layout $M/home/data | grep -q '\"size\":8388608'"
same "a read-only export is read" "$(cat $M/deep/pub/text)" words
fails "and not written" "Read-only file system" sh -c "echo more >>$M/deep/pub/text"
fails "nor made in" "Read-only file system" mkdir $M/deep/pub/d
check "who is squashed writes" cp $M/home/data $M/squashed/copy
same "as nobody" "$(stat -c %u:%g $M/squashed/copy)" 1234:4321
check "the copy is whole" cmp $M/home/data $M/squashed/copy
fails "and owns nothing else" "not permitted" chown 7 $M/squashed/copy
fails "no link crosses exports" "cross-device" ln $M/home/data $M/squashed/link
check "mv does, by a copy" sh \
	-c "cp $M/home/data $M/home/other && mv $M/home/other $M/squashed/moved &&
		cmp $M/home/data $M/squashed/moved"
same "each export is a mount of its own" "$(awk -v m=$M/ \
	'index($2, m) == 1 { print substr($2, length(m) + 1) }' /proc/self/mounts | sort |
		tr '\n' ' ')" "deep/pub home squashed "
fails "what exports lie in cannot be moved" "Read-only|busy|cross-device" mv $M/deep $M/elsewhere

# A reload while it is mounted, with a file open for writing in the export that changes.
cat >/run/held.py <<'PY'
import errno, fcntl, os, sys, time
from flags import flag, wait
m = sys.argv[1]
def written(fd, data):
    os.pwrite(fd, data, 0)
    os.fsync(fd)
def fails(want, what, *args):
    try:
        what(*args)
    except OSError as e:
        assert e.errno in want if isinstance(want, tuple) else e.errno == want, e
        return
    raise AssertionError(f"it worked, want {want}")
def comes_back(what, *args):
    """A client may have kept for a while what it heard before."""
    end = time.monotonic() + 30
    while True:
        try:
            return what(*args)
        except OSError:
            assert time.monotonic() < end
            time.sleep(0.3)
fd = os.open(f"{m}/home/held", os.O_RDWR | os.O_CREAT)
written(fd, b"first")
flag("want-ro")
wait("ro")
fails(errno.EROFS, written, fd, b"second")
os.close(fd)
assert open(f"{m}/home/held", "rb").read() == b"first"
fails(errno.EROFS, os.mkdir, f"{m}/home/dir")
open(f"{m}/deep/pub/new", "w").close()
fd = os.open(f"{m}/home/held", os.O_RDONLY)
flag("want-rw")
wait("rw")
comes_back(os.mkdir, f"{m}/home/dir")
with open(f"{m}/home/held", "r+b") as f:
    f.write(b"third")
fails(errno.EROFS, os.mkdir, f"{m}/deep/pub/dir")
# The client returns what it holds without the export: an open with a lock, and a file that was
# removed while it was open.
lent = os.open(f"{m}/home/lent", os.O_RDWR | os.O_CREAT)
fcntl.lockf(lent, fcntl.LOCK_EX)
written(lent, b"words")
removed = os.open(f"{m}/home/removed", os.O_RDWR | os.O_CREAT)
written(removed, b"words")
os.unlink(f"{m}/home/removed")
flag("want-gone")
wait("gone")
fails((errno.ESTALE, errno.ENOENT), os.mkdir, f"{m}/home/never")
for one in (lent, removed):
    try:
        os.close(one)
    except OSError:
        pass
flag("closed")
open(f"{m}/squashed/beside", "w").close()
flag("want-back")
wait("back")
comes_back(os.mkdir, f"{m}/home/again")
assert os.pread(fd, 10, 0) == b"third", "through the descriptor of before"
PY
check "reloads while it is mounted" timeout 200 python3 /run/held.py $M
umount_weft
no_complaint
