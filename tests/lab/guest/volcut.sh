#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The cluster and its client run in the guest; each volume is on ext4 on a device that the test
# takes its last writes from.
. "$(dirname "$0")/lib.sh"
here=$(cd "$(dirname "$0")" && pwd)
export top_builddir=$1 top_srcdir=$here/../../.. TMPDIR=/run
ip link set lo up
for v in 1 2; do
	truncate -s 160M /run/disk$v
	loop=$(losetup --show -f /run/disk$v) || { not_ok "a loop device"; exit 1; }
	dmsetup create cut$v --table "0 $(blockdev --getsz "$loop") linear $loop 0" &&
		dmsetup mknodes cut$v || {
		not_ok "a device-mapper device"
		exit 1
	}
	mkfs.ext4 -q /dev/mapper/cut$v
	loops+=("$loop")
done
timeout 170 python3 "$here/volcut.py" "${loops[@]}" || not_ok "the test ends"
