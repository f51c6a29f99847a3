#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
. "$(dirname "$0")/lib.sh"
mount_weft
python='import os, sys
top = sys.argv[1]
os.mkdir(top)
os.chdir(top)
n = 0
while not os.path.exists(os.environ["WEFT_SHARED"] + "/stop"):
    n += 1
    os.mkdir("dir")
    os.close(os.open("file", os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o640))
    os.symlink("file", "symlink")
    os.link("file", "link")
    os.rename("link", "dir/renamed")
    os.chmod("file", 0o604)
    os.setxattr("file", "user.x", b"1", os.XATTR_CREATE)
    os.removexattr("file", "user.x")
    os.mkfifo("fifo")
    os.rename("fifo", "file")
    for name in ("symlink", "file", "dir/renamed"):
        os.unlink(name)
    os.rmdir("dir")
print(n)'
for i in 1 2 3 4; do
	python3 -c "$python" $M/$i >/run/rounds$i 2>/run/error$i &
	jobs+=($!)
done
flag going
for i in 1 2 3 4; do
	if wait "${jobs[i - 1]}"; then ok "no call failed (process $i)"; else
		not_ok "no call failed (process $i)"
		tail -3 /run/error$i | sed 's/^/#   /'
	fi
done
same "nothing is left" "$(ls $M/1 $M/2 $M/3 $M/4 | grep -v :)" ""
echo "# $(awk "{n += \$1} END {print n}" /run/rounds?) times round"
umount_weft
