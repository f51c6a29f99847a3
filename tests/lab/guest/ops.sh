#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# ops.sh FILES - random changes of fresh mirrored files, with and without stripes.
. "$(dirname "$0")/lib.sh"
mount_weft
for p in mirrors=2 stripes=2,mirrors=2; do
	mkdir "$M/$p"
	policy "$M/$p" "$p"
	check "each change of $1 files with $p is seen as it was made" \
		python3 "$(dirname "$0")/ops.py" "$M/$p" "$1" "${LAB_SEED:-11}"
done
umount_weft
no_complaint
