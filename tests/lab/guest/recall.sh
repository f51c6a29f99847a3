#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
. "$(dirname "$0")/lib.sh"
mount_weft
if [ "$1" = a ]; then
	exec 7>$M/f
	head -c 3000000 /dev/urandom >&7
	sync $M/f
	flag holding
	wait_flag cut
	same "the holder sees the new size" "$(stat -c %s $M/f)" 100
	echo more >&7
	check "and writes on where it was" sync $M/f
	exec 7>&-
	same "beyond a hole" "$(stat -c %s $M/f)" 3000005
	flag grown
	no_complaint
else
	wait_flag broken
	began=$SECONDS
	check "the other cuts the file" truncate -s 100 $M/f
	check "and does not wait for the deadline (took $((SECONDS - began)) s)" \
		test $((SECONDS - began)) -lt 13
	flag cut
	wait_flag grown
	same "then it sees what the first wrote" "$(tail -c 5 $M/f)" more
fi
umount_weft
