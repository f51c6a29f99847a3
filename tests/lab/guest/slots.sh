#!/bin/bash
. "$(dirname "$0")/lib.sh"
mount_weft
crowd() { # NAME: 100 processes make directories, each in one of its own and one after the other; they begin together, when all are there
	local i
	for i in $(seq 100); do
		python3 - "$M/$1$i" /run/$1 <<'PY' &
import os, sys, time
os.mkdir(sys.argv[1])
open(f"{sys.argv[2]}.{os.getpid()}", "w").close()
while not os.path.exists(sys.argv[2]):
    time.sleep(0.02)
for j in range(30):
    os.mkdir(f"{sys.argv[1]}/{j}")
PY
	done
	until [ "$(ls /run/$1.* 2>/dev/null | wc -l)" = 100 ]; do sleep 0.1; done
	flag begins
	: >/run/$1
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
