#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Client a and client b take turns; turn N ends with flag tN.
. "$(dirname "$0")/lib.sh"
me=$1
mount_weft
t=$M/t
if [ "$me" = a ]; then
	mkdir $t
	policy $t stripes=4,unit=1M,mirrors=2
	head -c 9000000 /dev/urandom >"$WEFT_SHARED/v1"
	head -c 5000000 /dev/urandom >"$WEFT_SHARED/v2"
	cp "$WEFT_SHARED/v1" $t/f
	flag t1
	wait_flag t2
	same "a sees the size of what b wrote over its file" "$(wc -c <$t/f)" 5000000
	check "a sees what b wrote over its file" cmp $t/f "$WEFT_SHARED/v2"
	check "a sees b's rename" test -e $t/renamed -a ! -e $t/old
	echo a1 >>$t/log
	flag t3
	wait_flag t4
	same "a sees b's line after its own" "$(cat $t/log)" $'a1\nb1'
	# A write layout is out at a; b asks for the size.
	exec 7>$t/growing
	head -c 3000000 /dev/zero >&7
	sync $t/growing
	flag t5
	wait_flag t6
	exec 7>&-
	# One file, two writers, each its own blocks.
	flag t7
	check "a writes the even blocks" python3 - $t/shared 0 <<'PY'
import os, sys
fd = os.open(sys.argv[1], os.O_CREAT | os.O_WRONLY)
for b in range(int(sys.argv[2]), 64, 2):
    os.pwrite(fd, bytes([b + 1]) * 262144, b * 262144)
os.fsync(fd)
PY
	wait_flag t8
	flag t9
else
	wait_flag t1
	check "b sees what a wrote" cmp $t/f "$WEFT_SHARED/v1"
	cp "$WEFT_SHARED/v2" $t/f
	same "b sees the size of its own file" "$(stat -c %s $t/f)" 5000000
	touch $t/old
	mv $t/old $t/renamed
	flag t2
	wait_flag t3
	same "b sees a's line" "$(cat $t/log)" a1
	echo b1 >>$t/log
	flag t4
	wait_flag t5
	same "b sees the size of a file that a still has open" "$(stat -c %s $t/growing)" 3000000
	flag t6
	wait_flag t7
	check "b writes the odd blocks" python3 - $t/shared 1 <<'PY'
import os, sys
fd = os.open(sys.argv[1], os.O_CREAT | os.O_WRONLY)
for b in range(int(sys.argv[2]), 64, 2):
    os.pwrite(fd, bytes([b + 1]) * 262144, b * 262144)
os.fsync(fd)
PY
	flag t8
	wait_flag t9
fi
check "$me reads both writers' blocks" python3 - $t/shared <<'PY'
import sys
with open(sys.argv[1], "rb") as f:
    for b in range(64):
        assert f.read(262144) == bytes([b + 1]) * 262144, f"block {b}"
    assert not f.read(1)
PY
# A truncation by b while a has a write layout: a's layout is recalled and a goes on.
if [ "$me" = a ]; then
	exec 8>$t/cut
	head -c 4000000 /dev/zero | tr '\0' x >&8
	sync $t/cut
	flag u1
	wait_flag u2
	same "a sees the truncation by b" "$(wc -c <$t/cut)" 1000
	exec 8>>$t/cut
	echo tail >&8
	exec 8>&-
	flag u3
	wait_flag u4
	fails "a removed file is gone" "No such file" cat $t/cut
else
	wait_flag u1
	check "b truncates a file that a writes" timeout 60 truncate -s 1000 $t/cut
	flag u2
	wait_flag u3
	same "b sees a's append after the cut" "$(tail -c 5 $t/cut)" tail
	same "with the right size" "$(stat -c %s $t/cut)" 1005
	rm $t/cut
	flag u4
fi
umount_weft
no_complaint
