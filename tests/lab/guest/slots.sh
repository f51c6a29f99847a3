#!/bin/bash
. "$(dirname "$0")/lib.sh"
mount_weft
flag begins
crowd() { # NAME: 100 processes make directories, each in one of its own and one after the other
	local i
	for i in $(seq 100); do
		python3 - "$M/$1$i" <<'PY' &
import os, sys
os.mkdir(sys.argv[1])
for j in range(30):
    os.mkdir(f"{sys.argv[1]}/{j}")
PY
	done
	wait
	same "all of $1 were made" "$(find $M/$1* -mindepth 1 | wc -l)" 3000
}
crowd a
flag busy
wait_flag idle
# It renews its lease, and nothing else.
wait_flag fewer
crowd b
no_complaint
umount_weft
