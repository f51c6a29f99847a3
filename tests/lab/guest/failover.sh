#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
. "$(dirname "$0")/lib.sh"
mount_weft
mkdir $M/new $M/old $M/look
(cd $M/old && for i in $(seq 1500); do : >f$i; done)
remount_weft # no open, no delegation
exec 6>$M/held
echo held >&6
# Each does one thing again and again, and logs when it began and ended (the clock is the host's).
python='import os, sys, time
top, what, log = sys.argv[1:]
with open(log, "w", buffering=1) as out:
    i = 0
    while not os.path.exists(os.environ["WEFT_SHARED"] + "/stop"):
        i += 1
        began = time.time()
        if what == "create":
            os.close(os.open(f"{top}/new/f{i}", os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))
        elif what == "open":
            os.close(os.open(f"{top}/old/f{i % 1500 + 1}", os.O_RDWR))
        else:
            try:
                os.stat(f"{top}/look/f{i}")
            except FileNotFoundError:
                pass
        out.write(f"{began} {time.time()}\n")
        time.sleep(0.05)'
for what in create open look; do
	python3 -c "$python" $M $what "$WEFT_SHARED/$what.log" &
	jobs+=($!)
done
flag going
for job in "${jobs[@]}"; do wait "$job" || not_ok "an operation failed"; done
echo still >&6
exec 6>&-
same "the file that was open" "$(cat $M/held)" $'held\nstill'
umount_weft
