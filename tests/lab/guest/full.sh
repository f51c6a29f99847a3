#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
. "$(dirname "$0")/lib.sh"
mount_weft
mkdir $M/one $M/two
policy $M/one stripes=2,unit=1M,mirrors=1
policy $M/two stripes=1,mirrors=2
check "statfs knows the disks' size" test "$(($(stat -f -c '%b * %S' $M) >> 20))" -lt 200
echo kept >$M/one/kept
for p in one two; do
	check "$p: a file that fits" dd if=/dev/zero of=$M/$p/fits bs=1M count=8 conv=fsync \
		status=none
	fails "$p: one that does not says so" "No space left" timeout 120 dd if=/dev/zero \
		of=$M/$p/big bs=1M count=400 conv=fsync status=none
	check "$p: what was there is readable" cmp -n 8388608 /dev/zero $M/$p/fits
	check "$p: rm of the large one" rm $M/$p/big
	check "$p: then there is room" \
		bash -c 'for i in {1..50};
			do dd if=/dev/zero of='$M/$p'/again bs=1M count=20 \
				conv=fsync status=none 2>/run/err &&
				exit 0; sleep 0.5; done; cat /run/err; exit 1'
	rm $M/$p/again
done
same "a small file kept its bytes" "$(cat $M/one/kept)" kept
rm -r $M/one $M/two
umount_weft
