#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
. "$(dirname "$0")/lib.sh"
mount_weft
n=$LAB_MANY
UMOUNT_LIMIT=$((60 + n / 500))
mkdir $M/many
check "$n files with data in one directory" python3 - $M/many "$n" <<'PY'
import os, sys
for i in range(int(sys.argv[2])):
    fd = os.open(f"{sys.argv[1]}/file-{i:06d}", os.O_CREAT | os.O_WRONLY | os.O_EXCL)
    # Every tenth has data: the others are never made on a data server.
    if i % 10 == 0:
        os.write(fd, b"%d" % i)
    os.close(fd)
PY
remount_weft
same "readdir counts $n" "$(ls -U $M/many | wc -l)" "$n"
same "each name once" "$(ls -U $M/many | sort -u | wc -l)" "$n"
same "with attributes" "$(find $M/many -type f -printf x | wc -c)" "$n"
same "data of file 10" "$(cat $M/many/file-000010)" 10
# Names that come and go during a listing: those that stay all along are seen exactly once.
check "a listing under creates and removes" python3 - $M/many "$n" <<'PY'
import os, sys
d, n = sys.argv[1], int(sys.argv[2])
pid = os.fork()
if pid == 0:
    for i in range(300):
        open(f"{d}/new-{i}", "w").close()
        if i >= 10:
            os.unlink(f"{d}/new-{i - 10}")
    os._exit(0)
for _ in range(3):
    seen = [e.name for e in os.scandir(d) if e.name.startswith("file-")]
    assert len(seen) == len(set(seen)) == n, (len(seen), len(set(seen)), n)
os.waitpid(pid, 0)
PY
check "rm -rf" rm -rf $M/many
same "nothing is left" "$(ls -A $M)" ""
umount_weft
no_complaint
