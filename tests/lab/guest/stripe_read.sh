#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
. "$(dirname "$0")/lib.sh"
mount_weft
check "256 MiB are the same after a cold re-mount" cmp $M/s/big "$WEFT_SHARED/big"
same "no layout was refused" "$(awk '/LAYOUTGET:/ {print $9 + 0; exit}' /proc/self/mountstats)" 0
umount_weft
no_complaint
