#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
. "$(dirname "$0")/lib.sh"
files=$1
mount_weft
mkdir $M/c $M/w
policy $M/w stripes=4,unit=1M,mirrors=1
phase() { # NAME COMMAND...
	local name=$1
	shift
	flag $name.begin
	wait_flag $name.go
	check "$name" "$@"
	flag $name.end
	wait_flag $name.seen
}
python='import os, sys
top, n, what = sys.argv[1], int(sys.argv[2]), sys.argv[3]
for i in range(n):
    p = f"{top}/f{i}"
    if what == "create":
        os.close(os.open(p, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))
    elif what == "stat":
        os.stat(p)
    else:
        os.unlink(p)'
phase create python3 -c "$python" $M/c "$files" create
cold
phase stat python3 -c "$python" $M/c "$files" stat
phase unlink python3 -c "$python" $M/c "$files" unlink
phase write dd if=/dev/zero of=$M/w/big bs=1M count=512 conv=fsync status=none
remount_weft
phase read dd if=$M/w/big of=/dev/null bs=1M status=none
umount_weft
