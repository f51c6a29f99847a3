#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
. "$(dirname "$0")/lib.sh"
me=$1 files=$2
mount_weft
cat >/run/work.py <<'PY'
import os, sys
what, top, n = sys.argv[1], sys.argv[2], int(sys.argv[3])
os.makedirs(top, exist_ok=True)
data = b"x" * 4096
for i in range(n):
    p = f"{top}/f{i}"
    if what == "create":
        with open(p, "wb") as f: f.write(data)
    elif what == "append":
        with open(p, "ab") as f: f.write(data)
    elif what == "read":
        with open(p, "rb") as f: assert len(f.read()) % 4096 == 0
PY
phase() { # NAME WHAT FOLDER
	local began
	flag $1.begin
	wait_flag $1.go
	began=$(date +%s.%N)
	check "$1" python3 /run/work.py $2 $M/$3 $files
	echo "$(date +%s.%N) - $began" | python3 -c 'print(f"{eval(input()):.2f}")' >$WEFT_SHARED/t
	mv $WEFT_SHARED/t $WEFT_SHARED/$1.end
	wait_flag $1.seen
}
if [ $me = a ]; then
	wait_flag made
	phase epoch1 read data
	phase epoch2 read data
	phase epoch3 read data
	phase create create own
	phase append append own
	flag written
	wait_flag read
	phase again append own
	flag over
else
	check "made" python3 /run/work.py create $M/data $files
	sync
	flag made
	wait_flag written
	phase handoff read own
	flag read
	wait_flag over
fi
umount_weft
