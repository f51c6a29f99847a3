#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The metadata server and its clients run in the guest; its store is on ext4 on a device that the
# test takes its last writes from.
. "$(dirname "$0")/lib.sh"
here=$(cd "$(dirname "$0")" && pwd)
export top_builddir=$1 top_srcdir=$here/../../.. TMPDIR=/run
ip link set lo up
truncate -s 192M /run/disk
loop=$(losetup --show -f /run/disk) || { not_ok "a loop device"; exit 1; }
dmsetup create cut --table "0 $(blockdev --getsz "$loop") linear $loop 0" && dmsetup mknodes cut ||
	{
	not_ok "a device-mapper device"
	exit 1
}
mkfs.ext4 -q /dev/mapper/cut
mkdir /run/store
timeout 250 python3 "$here/powercut.py" "$loop" || not_ok "the test ends"
