#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# nfs3.sh FOLDER PORT: the folder of labhost by NFSv3.
. "$(dirname "$0")/lib.sh"
opts=vers=3,proto=tcp,port=$2,mountport=$2,mountproto=tcp,nolock,hard
mount_v3() {
	mkdir -p $M
	timeout 60 mount -t nfs -o "$opts" "$LAB_HOST:$1" $M || {
		not_ok "mount of $1"
		dmesg | tail -5 | sed 's/^/#   /'
		exit 1
	}
}
fails "a folder that is not exported is not mounted" "denied|No such|not permitted" \
	timeout 60 mount -t nfs -o "$opts,retry=0" "$LAB_HOST:$(dirname "$1")" /mnt
mkdir -p $M
check "what rpcbind knows is mounted without its ports" timeout 60 mount -t nfs \
	-o vers=3,proto=tcp,nolock "$LAB_HOST:$1" $M
umount_weft
mount_v3 "$1"
cd $M || exit 1
check "df tells the file system's size" bash -c '[ "$(stat -f -c %b .)" -gt 0 ]'

# A tree, every kind of object, and what keeps it a tree.
mkdir -p /run/src/d/e
cp -a "$(dirname "$0")"/*.sh /run/src/d
head -c 3000001 /dev/urandom >/run/src/d/e/odd
ln -s ../d /run/src/d/e/link
ln /run/src/d/e/odd /run/src/d/hard
mkfifo /run/src/fifo
mknod /run/src/char c 1 3
touch -d '2001-02-03 04:05:06 UTC' /run/src/d/e
chmod 1751 /run/src/d/e
chown 1234:5678 /run/src/d/e/odd
check "cp -a" cp -a /run/src copy
check "the tree is the same" diff -r --no-dereference /run/src/d copy/d
list() { (cd "$1" && find . -printf '%P %y %m %U:%G %l %T@ %n\n' | grep -v '^ ' | sort); }
same "with modes, owners, times and links" "$(list copy)" "$(list /run/src)"
check "rename to another directory" mv copy/d/e copy/e
check "and back" mv copy/e copy/d/e
same "hard links are one file" "$(stat -c %h:%i copy/d/hard)" "2:$(stat -c %i copy/d/e/odd)"
check "rm of one leaves the other" bash -c 'rm copy/d/hard && cmp /run/src/d/hard copy/d/e/odd'
mkdir many
(cd many && seq -f 'name-%05g' 1 1200 | xargs touch)
cold
same "readdir of 1,200 names" "$(ls many | sort -u | wc -l)" 1200
same "with attributes" "$(ls -ln many | grep -c '^-rw-r--r-- ')" 1200
check "rm -r" rm -r many
fails "O_EXCL on what exists" "File exists" \
	python3 -c 'import os; os.open("copy/d/nfs3.sh", os.O_CREAT | os.O_EXCL)'
check "O_EXCL on what does not" \
	python3 -c 'import os; os.open("excl", os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o640)'
same "its mode and times are set" "$(stat -c %a excl) $(($(date +%s) - $(stat -c %Y excl) < 60))" \
	"640 1"
exec 5>open
rm open
check "write to a file that is removed and open" bash -c 'echo still >&5'
exec 5>&-
for i in 1 2 3 4; do echo line $i >>appended; done
same "append" "$(wc -l <appended)" 4

# Two users.
as() { setpriv --reuid "$1" --regid "$1" --groups "$2" "${@:3}"; }
mkdir -m 1777 user
check "a user makes a file" as 1000 1000 bash -c 'umask 027; echo mine >user/mine'
fails "another does not read it" "Permission denied" as 2000 2000 cat user/mine
fails "nor write it" "Permission denied" as 2000 2000 bash -c 'echo x >>user/mine'
fails "nor remove it" "not permitted" as 2000 2000 rm -f user/mine
same "its group reads it" "$(as 2000 2000,1000 cat user/mine)" mine
check "a file without any right is its owner's while it is open" as 1000 1000 \
	bash -c 'exec 7>user/closed; chmod 0 user/closed; echo x >&7'

# The server dies while much is written; a hard mount goes on.
head -c 48M /dev/urandom >/run/big
flag writing
check "a big file is written" \
	timeout 200 bash -c 'for i in $(seq 40); do cp /run/big big$((i % 3)) || exit 1;
		sync big$((i % 3)); [ -e "$WEFT_SHARED/restarted" ] && [ $i -gt 2 ] && exit 0;
		done; exit 1'
wait_flag restarted
check "another after the death" cp /run/big again
cold
check "what was written is there" cmp /run/big big1
check "and there" cmp /run/big again
(cd $M && find copy -type f -print0 | sort -z | xargs -0 sha256sum | sha256sum) \
	>"$WEFT_SHARED/tree.sum.new"
mv "$WEFT_SHARED/tree.sum.new" "$WEFT_SHARED/tree.sum"
cd /
umount_weft
mount_v3 "$1/copy/d"
check "a folder below is mounted" cmp /run/src/d/e/odd $M/e/odd
umount_weft
no_complaint
