#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# threshold.sh write|read FOLDER SIZE
. "$(dirname "$0")/lib.sh"
mount_weft
f=$M/$2/f
if [ "$1" = write ]; then
	mkdir -p "$M/$2/below"
	[ "$2" = plain ] || policy "$M/$2" threshold=64K
	head -c "$3" /dev/urandom >"$WEFT_SHARED/$2"
	check "a file is written" dd if="$WEFT_SHARED/$2" of="$f" bs="$3" conv=fsync status=none
	ln "$f" "$M/$2/below/f"
else
	check "it is read as it was written" cmp "$f" "$WEFT_SHARED/${2%/*}"
fi
umount_weft
no_complaint
