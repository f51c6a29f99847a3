#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# acked.sh LIMIT TIMEO NAME=POLICY...: writes a file for each NAME until its flag NAME.stop; then
# reads all back. LIMIT bounds the wait for one block, in seconds. TIMEO is how long the client
# waits for a data server that does not answer, in tenths of a second (its default is 600).
. "$(dirname "$0")/lib.sh"
limit=$1 timeo=$2
shift 2
echo "$timeo" >/sys/module/nfs_layout_flexfiles/parameters/dataserver_timeo
mount_weft
names=
for arg; do
	name=${arg%%=*}
	names="$names $name"
	mkdir "$M/$name"
	policy "$M/$name" "${arg#*=}"
	python3 "${0%/*}/acked.py" write "$M/$name/f" "$WEFT_SHARED/$name.log" "$WEFT_SHARED" \
		"$name" "$limit" 2>"$WEFT_SHARED/$name.err" || {
		not_ok "$name: no client loops: $(tail -1 "$WEFT_SHARED/$name.err")"
		dmesg | tail -60 | sed 's/^/#   /'
	} &
done
wait
cold
for name in $names; do
	check "$name: what was acknowledged is read" python3 "${0%/*}/acked.py" verify \
		"$M/$name/f" "$WEFT_SHARED/$name.log"
done
umount_weft
