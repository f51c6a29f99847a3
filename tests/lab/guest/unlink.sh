#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
. "$(dirname "$0")/lib.sh"
mount_weft
cat >/run/hold.py <<'PY'
import os, sys
from flags import flag, wait
path = sys.argv[1]
def cold():
    os.sync()
    with open("/proc/sys/vm/drop_caches", "w") as f:
        f.write("3")
data = bytearray(os.urandom(3000000))
fd = os.open(path, os.O_RDWR | os.O_CREAT)
os.pwrite(fd, data, 0)
os.fsync(fd)
flag("held")
wait("removed")
for turn in ("used", "again"):
    cold()
    assert os.pread(fd, 4000000, 0) == bytes(data), f"{turn}: other bytes"
    assert os.fstat(fd).st_nlink == 0, f"{turn}: {os.fstat(fd).st_nlink} links"
    more = os.urandom(5000)
    os.pwrite(fd, more, len(data))
    data += more
    os.fsync(fd)
    flag(turn)
    wait("restarted")
cold()
assert os.pread(fd, 4000000, 0) == bytes(data)
os.close(fd)
flag("closed")
PY
case $1 in
holder)
	check "a removed file is read and written through a crash of the MDS" python3 /run/hold.py \
		$M/f
	no_complaint
	wait_flag second
	exec 7<>$M/g
	head -c 100000 /dev/urandom >&7
	sync $M/g
	flag held2
	wait_flag removed2
	check "before its holder dies it is written" \
		python3 -c 'import os; os.write(7, b"more"); os.fsync(7)'
	flag written2
	wait_flag die
	echo o >/proc/sysrq-trigger
	sleep 10
	;;
other)
	wait_flag held
	check "another removes it" rm $M/f
	flag removed
	wait_flag held2
	check "another removes the second" rm $M/g
	flag removed2
	wait_flag gone
	same "nothing is left of either" "$(ls -A $M)" ""
	no_complaint
	umount_weft
	;;
esac
