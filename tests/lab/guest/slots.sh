#!/bin/bash
. "$(dirname "$0")/lib.sh"
mount_weft
crowd() { # NAME: 100 processes make directories, each one after the other
	local i
	for i in $(seq 100); do
		python3 - "$M/$1$i" <<'PY' &
import os, sys
for j in range(15):
    os.mkdir(f"{sys.argv[1]}.{j}")
PY
	done
	wait
	same "all of $1 were made" "$(ls $M | grep -c "^$1")" 1500
}
crowd a
flag busy
wait_flag idle
# It renews its lease, and nothing else.
wait_flag fewer
crowd b
no_complaint
umount_weft
