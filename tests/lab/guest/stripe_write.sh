#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
. "$(dirname "$0")/lib.sh"
mount_weft
mkdir $M/s
policy $M/s stripes=4,unit=1M,mirrors=2
head -c 256M /dev/urandom >"$WEFT_SHARED/big"
check "256 MiB are written" dd if="$WEFT_SHARED/big" of=$M/s/big bs=1M conv=fsync status=none
same "the size is known" "$(stat -c %s $M/s/big)" $((256 << 20))
layout $M/s/big >"$WEFT_SHARED/layout.json"
umount_weft
no_complaint
