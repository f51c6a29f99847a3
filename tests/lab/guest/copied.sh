#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# 64 MiB in calls of 1 MiB each way: through the client's page cache, past it, and by several users
# on a connection.
. "$(dirname "$0")/lib.sh"
mount_weft
d=$M/copied
mkdir -m 777 $d
cd $d || exit 1
head -c 64M /dev/urandom >/run/data
as() { setpriv --reuid "$1" --regid "$1" --groups "$2" "${@:3}"; }
chmod 644 /run/data
check "write through the cache" dd if=/run/data of=cached bs=1M conv=fsync status=none
check "write past the cache" dd if=/run/data of=direct bs=1M oflag=direct status=none
as 1000 1000,1001,1002 dd if=/run/data of=user1 bs=1M oflag=direct count=32 status=none &
as 2000 2000 dd if=/run/data of=user2 bs=1M oflag=direct count=32 status=none &
wait
cold
check "read through the cache" cmp /run/data cached
check "read past the cache" bash -c 'dd if=direct bs=1M iflag=direct status=none | cmp - /run/data'
check "what two users wrote" \
	bash -c 'cmp -n 33554432 user1 /run/data && cmp -n 33554432 user2 /run/data'
cd /
umount_weft
no_complaint
