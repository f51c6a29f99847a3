#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
. "$(dirname "$0")/lib.sh"
mount_weft noac
command -v mkfs.ext4 >/dev/null || { echo "skip - needs mkfs.ext4"; exit 0; }
truncate -s 64M /run/img
mkfs.ext4 -q /run/img
mkdir -p /run/ext4
mount -o loop,noatime /run/img /run/ext4
echo 0 >/proc/sys/fs/protected_hardlinks
echo 0 >/proc/sys/fs/protected_regular
echo 0 >/proc/sys/fs/protected_fifos
umask 0
mkdir $M/p.$1 /run/ext4/p
check "$2 random calls with seed $1 do the same as on ext4" \
	timeout 180 python3 "$(dirname "$0")/posix.py" $M/p.$1 /run/ext4/p "$1" "$2"
umount_weft
no_complaint
