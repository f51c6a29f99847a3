#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
. "$(dirname "$0")/lib.sh"
mount_weft
d=$M/copy
mkdir $d && cd $d || exit 1
policy . stripes=2,unit=1M,mirrors=2
head -c 24M /dev/urandom >"$WEFT_SHARED/random"
check "a file of 48 MiB with a hole" \
	bash -c "dd if=$WEFT_SHARED/random of=src bs=1M count=20 conv=fsync status=none &&
		dd if=$WEFT_SHARED/random of=src bs=1M seek=44 \
			count=4 conv=notrunc,fsync status=none"
sum=$(sha256sum <src)

copy_range() { # FROM TO BYTES: all of it by copy_file_range alone
	python3 - "$@" <<'PY'
import os, sys
a, b = os.open(sys.argv[1], os.O_RDONLY), os.open(sys.argv[2], os.O_RDWR | os.O_CREAT, 0o644)
left = int(sys.argv[3])
while left:
    n = os.copy_file_range(a, b, left)
    if not n:
        sys.exit("copy_file_range ended early")
    left -= n
os.close(b)
PY
}
check "copy_file_range of all" copy_range src copied $((48 << 20))
same "the copy's bytes" "$(sha256sum <copied)" "$sum"
head -c 70000 src >small
check "copy_file_range of a small file" copy_range small small2 70000
check "a small copy" cmp small small2
if [ -n "${1:-}" ]; then
	check "cp --reflink=always" cp --reflink=always src cloned
	same "the clone's bytes" "$(sha256sum <cloned)" "$sum"
	check "a write to the clone" \
		bash -c 'printf mine | dd of=cloned bs=1 seek=1500000 conv=notrunc status=none'
	same "leaves the source alone" "$(sha256sum <src)" "$sum"
	check "xfs_io reflinks a range" xfs_io -c "reflink src 4194304 8388608 2097152" cloned
	check "and it is there" cmp -i 4194304:8388608 -n 2097152 src cloned
else
	fails "cp --reflink=always without reflinks" "not supported|Invalid" cp --reflink=always \
		src cloned
	rm -f cloned
fi
check "cp --reflink=auto" cp --reflink=auto src auto
same "its bytes" "$(sha256sum <auto)" "$sum"

# The same on a file system of the guest's own, which shows what is right.
mkdir /run/ref
cp --sparse=never src punched
cp --sparse=never src /run/ref/punched
ops() { # in both places
	check "fallocate $*" fallocate "$@" punched
	fallocate "$@" /run/ref/punched
}
ops -p -o 3000000 -l 5000000
ops -p -o 17000000 -l 100
check "fallocate -l beyond the end" fallocate -o $((48 << 20)) -l 3000000 punched
truncate -s $(((48 << 20) + 3000000)) /run/ref/punched
check "fallocate -z" fallocate -z -o 1000000 -l 1000000 punched
fallocate -p -o 1000000 -l 1000000 /run/ref/punched
fails "fallocate -c is refused cleanly" "not supported" fallocate -c -o 0 -l 4096 punched
fails "more than there is" "No space" fallocate -l 8T punched
same "and the size is as before" "$(stat -c %s punched)" $(((48 << 20) + 3000000))
check "holes read as zeros" cmp punched /run/ref/punched

dd if="$WEFT_SHARED/random" of=sparse bs=4k count=3 seek=1000 status=none
dd if="$WEFT_SHARED/random" of=sparse bs=4k count=5 seek=300 conv=notrunc status=none
truncate -s 9000000 sparse
dd if="$WEFT_SHARED/random" of=/run/ref/sparse bs=4k count=3 seek=1000 status=none
dd if="$WEFT_SHARED/random" of=/run/ref/sparse bs=4k count=5 seek=300 conv=notrunc status=none
truncate -s 9000000 /run/ref/sparse
map() { # FILE: where its data and holes begin
	python3 - "$1" <<'PY'
import os, sys
fd, at, what = os.open(sys.argv[1], os.O_RDONLY), 0, (os.SEEK_DATA, os.SEEK_HOLE)
size, k = os.fstat(fd).st_size, 0
while at < size:
    try:
        at = os.lseek(fd, at, what[k])
    except OSError as e:
        print(e.errno)
        break
    print(at)
    k = 1 - k
PY
}
same "SEEK_DATA and SEEK_HOLE as on tmpfs" "$(map sparse | xargs)" "$(map /run/ref/sparse | xargs)"
cd /
remount_weft
cd $d || exit 1
same "the copy after a cold mount" "$(sha256sum <copied)" "$sum"
same "the source after a cold mount" "$(sha256sum <src)" "$sum"
check "the punched file after a cold mount" cmp punched /run/ref/punched
same "SEEK after a cold mount" "$(map sparse | xargs)" "$(map /run/ref/sparse | xargs)"
for f in copied cloned punched; do
	[ -e $f ] || continue
	cp $f "$WEFT_SHARED/$f"
	layout $f >"$WEFT_SHARED/$f.json"
done
cd /
umount_weft
no_complaint
