#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
. "$(dirname "$0")/lib.sh"
mount_weft
# NAME: 100 processes make directories, each in one of its own and one after the other; they begin
# together, when all are there
crowd() {
	python3 - "$M/$1" "$WEFT_SHARED/begins" <<'PY'
import os, sys
ready, told = os.pipe()
wait, go = os.pipe()
for i in range(1, 101):
    if os.fork():
        continue
    os.close(go)
    os.mkdir(f"{sys.argv[1]}{i}")
    os.write(told, b".")
    os.read(wait, 1)
    for j in range(30):
        os.mkdir(f"{sys.argv[1]}{i}/{j}")
    os._exit(0)
n = 0
while n < 100:
    n += len(os.read(ready, 100))
open(sys.argv[2], "w").close()
os.close(go)
for i in range(100):
    if os.wait()[1]:
        sys.exit("one could not make its directories")
PY
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
