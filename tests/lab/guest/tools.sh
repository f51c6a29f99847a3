#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# tools.sh: writes, gives back, is evicted, and goes on
. "$(dirname "$0")/lib.sh"
mount_weft
mkdir $M/tools
exec 3>$M/tools/f
head -c 4194304 /dev/urandom >&3
sync $M/tools/f
flag written
wait_flag recalled
head -c 4194304 /dev/urandom >&3
sync $M/tools/f
same "after a recall it writes on" "$(stat -c %s $M/tools/f)" 8388608
flag again
wait_flag evicted
exec 3>&-
check "after an eviction it makes and reads files as a new client" sh \
	-c "echo new >$M/tools/g && sync $M/tools/g && echo 3 >/proc/sys/vm/drop_caches &&
		grep -q new $M/tools/g"
