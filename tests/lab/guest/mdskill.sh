#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
. "$(dirname "$0")/lib.sh"
mount_weft
mkdir $M/m
policy $M/m stripes=2,unit=1M,mirrors=2
python3 - /run/tree <<'PY'
import os, random, sys
rnd = random.Random(7)
top = sys.argv[1]
for d in range(40):
    folder = f"{top}/d{d % 8}/e{d}"
    os.makedirs(folder)
    for f in range(40):
        with open(f"{folder}/f{f}", "wb") as out:
            out.write(rnd.randbytes(rnd.choice((0, 10, 3000, 20000, 70000))))
    os.symlink(f"../e{d}/f0", f"{folder}/sym")
    os.link(f"{folder}/f1", f"{folder}/hard")
    os.chmod(f"{folder}/f2", 0o4711)
PY
# A file that stays open over the deaths, and a lock.
exec 6>$M/m/open
echo before >&6
flag copying
check "cp -a of 1,600 files" timeout 300 cp -a /run/tree $M/m/tree
flag copied
check "the file that was open all along can be written" bash -c 'echo after >&6'
exec 6>&-
remount_weft
check "the tree compares equal" diff -r --no-dereference /run/tree $M/m/tree
inventory() { (cd "$1" && find . ! -type d -printf '%p %m %n %s %T@\n' | sort); }
inventory /run/tree >/run/want
inventory $M/m/tree >/run/got
check "modes, links and times too" diff /run/want /run/got
same "the file that was open" "$(cat $M/m/open)" $'before\nafter'
umount_weft
