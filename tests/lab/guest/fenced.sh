#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# fenced.sh first|second ROUNDS [POLICY]
. "$(dirname "$0")/lib.sh"
mount_weft
if [ "$1" = first ]; then
	mkdir $M/d
	policy $M/d "$3"
	flag there
else
	wait_flag there
fi
check "the $1 client writes its part of $2 rounds" timeout "${LIMIT:-3000}" \
	python3 "${0%/*}/fenced.py" "$1" $M/d "$WEFT_SHARED" "$2"
umount_weft
