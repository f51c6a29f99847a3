#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# names.sh FILES AT-ONCE - the client's side of tests/bench/beside_names.py: $WEFT_SHARED/servers
# has a line for each, NAME MOUNT-COMMAND...
. "$(dirname "$0")/lib.sh"
files=$1 at_once=$2
while read -r name what; do
	mkdir "/mnt/$name"
	timeout 60 $what "/mnt/$name" || { not_ok "mount of $name"; dmesg | tail -5; exit 1; }
	mkdir "/mnt/$name/names"
done <"$WEFT_SHARED/servers"
python='import os, sys
top, n, what = sys.argv[1], int(sys.argv[2]), sys.argv[3]
me, step = int(sys.argv[4]), int(sys.argv[5])
for i in range(me, n, step):
    p = f"{top}/f{i}"
    if what == "create":
        os.close(os.open(p, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))
    elif what == "stat":
        os.stat(p)
    elif what == "open":
        os.close(os.open(p, os.O_RDONLY))
    elif what == "rename":
        os.rename(p, f"{top}/g{i}")
    else:
        os.unlink(f"{top}/g{i}")'
work() { # FOLDER WHAT
	local i bad=0 all=()
	for ((i = 0; i < at_once; i++)); do
		python3 -S -c "$python" "$1" "$files" "$2" $i "$at_once" &
		all+=($!)
	done
	for i in "${all[@]}"; do wait "$i" || bad=1; done
	return $bad
}
for ((i = 1; ; i++)); do
	wait_flag todo.$i 400
	read -r server what count <"$WEFT_SHARED/todo.$i"
	status=0
	if [ "$what" != end ]; then
		echo 3 >/proc/sys/vm/drop_caches
		# What a mount and its cold start take is not measured.
		ls -d "/mnt/$server/names" >/dev/null
		work "/mnt/$server/names" "$what" || status=1
	fi
	echo $status >"$WEFT_SHARED/done.new"
	mv "$WEFT_SHARED/done.new" "$WEFT_SHARED/done.$i"
	[ "$what" != end ] || break
done
for name in /mnt/*/names; do umount "${name%/names}"; done
