#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
. "$(dirname "$0")/lib.sh"
me=$1
mount_weft
mkdir -p $M/s
setfattr -n user.weft.policy -v stripes=2,unit=1M,mirrors=2 $M/s
flag writing$me
check "client $me writes through it all" timeout 400 python3 - $M/s $me "$WEFT_SHARED/enough" <<'PY'
import os, random, sys, time
top, me, enough = sys.argv[1], int(sys.argv[2]), sys.argv[3]
rnd = random.Random(me)
n = 0
with open("/run/wrote", "w", encoding="ascii") as log:
    while n < 100 and (n < 12 or not os.path.exists(enough)):
        whole, mtime = rnd.randrange(1 << 20, 8 << 20), 1_000_000_000 + n
        size = whole
        path = f"{top}/c{me}-{n}"
        with open(path, "wb") as f:
            f.write(random.Random(me * 1000 + n).randbytes(whole))
            if n % 2 or n % 3 == 0:
                os.fsync(f.fileno())
        if n % 3 == 0:
            size = size // 2
            os.truncate(path, size)
        os.utime(path, (mtime, mtime))
        print(n, whole, size, mtime, file=log)
        n += 1
PY
# Each client reads what both wrote. (Linux' close returns before it has written pages again that a
# failed data server made dirty; its fsync does not. So sync comes first, and only times that a
# client set after an fsync must stay.)
sync
flag done$me
wait_flag done1 400
wait_flag done2 400
cp /run/wrote "$WEFT_SHARED/wrote$me"
remount_weft
flag read$me
wait_flag read1 200
wait_flag read2 200
for who in 1 2; do
	check "client $me reads what client $who wrote" timeout 300 python3 - $M/s $who \
		"$WEFT_SHARED/wrote$who" <<'PY'
import os, random, sys
top, who, log = sys.argv[1], int(sys.argv[2]), sys.argv[3]
bad = []
for line in open(log, encoding="ascii"):
    n, whole, size, mtime = map(int, line.split())
    path = f"{top}/c{who}-{n}"
    st = os.stat(path)
    whole = random.Random(who * 1000 + n).randbytes(whole)[:size]
    got = open(path, "rb").read()
    if st.st_size != size or got != whole:
        where = next((i for i, (a, b) in enumerate(zip(got, whole)) if a != b),
                     min(len(got), len(whole)))
        bad.append(f"{path}: size {st.st_size}, read {len(got)}, wrote {size}, differs at {where}")
    elif n % 2 and int(st.st_mtime) != mtime:
        bad.append(f"{path}: mtime {st.st_mtime}, set {mtime}")
sys.exit("\n".join(bad) or 0)
PY
done
umount_weft
