#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
. "$(dirname "$0")/lib.sh"
mount_weft
mkdir $M/d
policy $M/d stripes=2,unit=1M,mirrors=2
head -c 128M /dev/urandom >/run/src
sum=$(sha256sum </run/src)
for f in 1 2 3 4; do cp /run/src $M/d/r$f; done
remount_weft

# Reads, cold each time, before, during and after the death. Four files, so that every server holds
# a first mirror.
flag reading
good=0 bad=0
while [ ! -e "$WEFT_SHARED/killed" ] || [ "${after:=0}" -lt 4 ]; do
	[ ! -e "$WEFT_SHARED/killed" ] || after=$((after + 1))
	for f in 1 2 3 4; do
		cold
		if [ "$(sha256sum <$M/d/r$f)" = "$sum" ]; then
			good=$((good + 1))
		else
			bad=$((bad + 1))
		fi
	done
	[ $((good + bad)) -lt 200 ] || break
done
same "no read failed ($good good ones)" $bad 0
check "files were read after the death" test $good -ge 16

# Writes: one long run with a death in it, each block acknowledged by fsync.
flag writing
check "writes go on with one copy" timeout 250 python3 - $M/d/w "$WEFT_SHARED" <<'PY'
import os, sys, time
path, shared = sys.argv[1:]
fd = os.open(path, os.O_CREAT | os.O_RDWR)
after = 0
block = 0
while after < 8 and block < 400:
    os.pwrite(fd, bytes([block % 251 + 1]) * (1 << 20), block << 20)
    os.fsync(fd)
    block += 1
    after += os.path.exists(shared + "/killed3")
    if not after:
        time.sleep(0.05)
os.close(fd)
assert after >= 8, "the server was never killed"
open(shared + "/blocks", "w").write(str(block))
PY
flag written
wait_flag back 200
remount_weft
check "every acknowledged block is there, with the old copies back" timeout 200 python3 - $M/d/w \
	"$(cat "$WEFT_SHARED/blocks")" <<'PY'
import os, sys
path, blocks = sys.argv[1], int(sys.argv[2])
assert os.path.getsize(path) == blocks << 20, (os.path.getsize(path), blocks << 20)
with open(path, "rb") as f:
    for b in range(blocks):
        assert f.read(1 << 20) == bytes([b % 251 + 1]) * (1 << 20), f"block {b}"
PY
check "the layout tells which copies are stale" \
	bash -c 'getfattr --absolute-names --only-values -n user.weft.layout /mnt/weft/d/w |
		grep -q "\"stale\""'
for f in 1 2 3 4; do
	check "r$f is whole" test "$(sha256sum <$M/d/r$f)" = "$sum"
done
umount_weft
