#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Every kind of object and every daily operation.
. "$(dirname "$0")/lib.sh"
mount_weft
d=$M/basic
check "mkdir" mkdir $d
cd $d || exit 1

echo hello >file
same "read what was written" "$(cat file)" hello
check "a mode given at create holds" \
	bash -c 'umask 077; : >private; [ "$(stat -c %a private)" = 600 ]'
mkdir -m 1777 sticky
same "a directory's mode holds" "$(stat -c %a sticky)" 1777
fails "O_EXCL on what exists" "File exists" \
	python3 -c 'import os; os.open("file", os.O_CREAT | os.O_EXCL)'
fails "open of what does not exist" "No such file" cat nothing
fails "a file is no directory" "Not a directory" cat file/x
fails "a directory is no file" "Is a directory" bash -c 'echo x >sticky'
echo more >>file
same "append" "$(cat file)" $'hello\nmore'
check "truncate through O_TRUNC" bash -c 'echo new >file; [ "$(cat file)" = new ]'

check "link" ln file file2
same "the link count is two" "$(stat -c %h file)" 2
same "both names have one inode" "$(stat -c %i file)" "$(stat -c %i file2)"
rm file2
same "the link count is one again" "$(stat -c %h file)" 1
fails "a directory has no second link" "not permitted" ln -d sticky sticky2
check "symlink" ln -s file sym
same "readlink" "$(readlink sym)" file
same "read through a symlink" "$(cat sym)" new
long=$(printf 'x%.0s' {1..1000})
ln -s "$long" longsym
same "a symlink of 1,000 bytes" "$(readlink longsym)" "$long"
check "mknod fifo" mknod fifo p
check "mknod character device" mknod char c 1 3
check "mknod block device" mknod block b 7 300
same "types and numbers of special files" "$(stat -c '%F %t %T' fifo char block)" \
	$'fifo 0 0\ncharacter special file 1 3\nblock special file 7 12c'
check "a device works" bash -c 'echo gone >char'
cold
check "and opens when nothing of it is cached" bash -c 'echo gone >char'
cold
check "a fifo works" timeout 20 bash -c 'cat fifo >/run/fifo & echo through >fifo; wait;
	[ "$(cat /run/fifo)" = through ]'
check "unix socket" python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind("sock")'

mkdir a b
echo 1 >a/one
echo 2 >b/two
mv a/one b/one
same "rename to another directory" "$(ls b)" $'one\ntwo'
mv b/one b/two
same "rename over a file" "$(cat b/two)" 1
mv b a/
same "rename of a directory" "$(cat a/b/two)" 1
same "the new parent is .." "$(stat -c %i a/b/..)" "$(stat -c %i a)"
fails "rename into itself" "subdirectory of itself" mv a a/b/c
fails "rename over a directory that is not empty" "not empty|File exists" \
	python3 -c 'import os; os.mkdir("e"); os.rename("e", "a")'
check "rename over an empty directory" python3 -c 'import os; os.mkdir("e2"); os.rename("e2", "e")'
fails "rmdir of what is not empty" "not empty" rmdir a
rm -r a e
fails "what is removed is gone" "No such file" ls a

exec 5>open
rm open
check "write to a file that is removed and open" bash -c 'echo still >&5'
exec 5>&-

mkdir many
(cd many && seq -f 'name-%05g' 1 1500 | xargs touch)
same "readdir of 1,500 names" "$(ls many | wc -l)" 1500
same "each name once" "$(ls many | sort -u | wc -l)" 1500
same "readdir with attributes" "$(ls -ln many | grep -c '^-rw-r--r-- ')" 1500
rm -r many
name=$(printf 'n%.0s' {1..255})
check "a name of 255 bytes" touch "$name"
fails "a name of 256 bytes" "too long" touch "n$name"
check "a name in UTF-8 with a space" touch "Grüße an 🌍"
same "readdir gives it back" "$(ls | grep -c 'Grüße an 🌍')" 1

check "chmod" chmod 4751 file
same "chmod holds" "$(stat -c %a file)" 4751
check "chown" chown 1234:5678 file
same "chown holds and takes the setuid bit" "$(stat -c '%u:%g %a' file)" "1234:5678 751"
check "utimes" touch -d '2001-02-03 04:05:06.123456789 UTC' file
same "utimes hold to the nanosecond" "$(TZ=UTC stat -c %y file)" \
	"2001-02-03 04:05:06.123456789 +0000"
before=$(stat -c %Z file)
sleep 1.1
chmod 600 file
check "chmod moves ctime" test "$(stat -c %Z file)" -gt "$before"

check "setfattr" setfattr -n user.color -v green file
same "getfattr" "$(getfattr --only-values -n user.color file)" green
setfattr -n user.empty file
setfattr -n user.big -v "$(printf 'v%.0s' {1..3000})" file
same "listxattr has each and no virtual ones" "$(getfattr file | sed -n 's/^user/user/p' | sort |
	tr '\n' ' ')" "user.big user.color user.empty "
same "a value of 3,000 bytes" "$(getfattr --only-values -n user.big file | wc -c)" 3000
setfattr -x user.color file
fails "a removed xattr is gone" "No such attribute" getfattr -n user.color file
fails "XATTR_CREATE of what exists" "File exists" \
	python3 -c 'import os; os.setxattr("file", "user.big", b"", os.XATTR_CREATE)'
fails "XATTR_REPLACE of what does not" "No data available" \
	python3 -c 'import os; os.setxattr("file", "user.none", b"", os.XATTR_REPLACE)'
check "xattrs of a directory" \
	bash -c 'setfattr -n user.d -v 1 sticky &&
		[ "$(getfattr --only-values -n user.d sticky)" = 1 ]'

# Permissions: numeric ids, supplementary groups.
mkdir -m 750 team
chgrp 7000 team
echo secret >team/s
chmod 640 team/s
chgrp 7000 team/s
as() { setpriv --reuid "$1" --regid "$1" --groups "$2" "${@:3}"; }
fails "no permission without the group" "Permission denied" as 1000 1000 cat team/s
same "a supplementary group opens" "$(as 1000 1000,7000 cat team/s)" secret
fails "and does not write" "Permission denied" as 1000 1000,7000 bash -c 'echo x >team/s'
chmod 1777 sticky
touch sticky/roots
fails "a sticky directory keeps others' files" "not permitted" as 1000 1000 rm -f sticky/roots
fails "chown is not for users" "not permitted" as 1000 1000 chown 1000 file
as 1000 1000 touch sticky/mine
same "a user's file has their ids" "$(stat -c %u:%g sticky/mine)" 1000:1000
chmod g+s sticky; chgrp 7000 sticky
as 1000 1000 touch sticky/inherits
same "a setgid directory gives its group" "$(stat -c %g sticky/inherits)" 7000

check "statfs has room" test "$(stat -f -c %a .)" -gt 0
dd if=/dev/urandom of=data bs=64k count=48 status=none
cp data /run/data
cp data copy
check "cp and cmp" cmp data copy

# Policies are read, inherited and refused. (The client remembers the value that it set: what the
# server makes of it shows cold.)
get_policy_cold() { cold; get_policy "$1"; }
mkdir p
check "set a policy" policy p "mirrors=2,stripes=2"
same "its normal form" "$(get_policy_cold p)" "stripes=2,unit=1M,mirrors=2"
mkdir p/q
same "it is inherited" "$(get_policy p/q)" "stripes=2,unit=1M,mirrors=2"
policy p/q unit=4096K
same "absent keys take defaults" "$(get_policy_cold p/q)" "stripes=1,unit=4M,mirrors=1"
setfattr -x user.weft.policy p/q
same "removing it means inherit" "$(get_policy p/q)" "stripes=2,unit=1M,mirrors=2"
for bad in stripes=0 unit=3M unit=512K unit=4G mirrors=5 stripes=40,mirrors=2 color=red stripes= \
	"" stripes=2,stripes=3; do
	fails "policy '$bad' is refused" "Invalid argument" policy p "$bad"
done
same "a refused policy changes nothing" "$(get_policy_cold p)" "stripes=2,unit=1M,mirrors=2"
fails "only the owner sets it" "not permitted" as 1000 1000 setfattr -n user.weft.policy \
	-v stripes=1 p
echo x >p/placed
sync
check "the layout is JSON" \
	bash -c 'getfattr --only-values -n user.weft.layout p/placed | python3 -m json.tool'
fails "setting it answers EPERM" "not permitted" setfattr -n user.weft.layout -v x p/placed
same "the virtual ones are not listed" "$(getfattr p p/placed 2>/dev/null)" ""
# An empty file takes a policy of its own, also while it is open and its layout is here; one with
# data keeps its place.
: >p/own
check "an empty file takes a policy" policy p/own stripes=4
same "and is placed by it" "$(get_policy_cold p/own)" "stripes=4,unit=1M,mirrors=1"
exec 7>p/open
check "so does one that is open" policy p/open stripes=4,mirrors=1
dd if=/run/data bs=64k status=none >&7
exec 7>&-
cold
check "what is written then is there" cmp /run/data p/open
same "on four servers" "$(getfattr --only-values -n user.weft.layout p/open |
	grep -o '"ds":"[a-z0-9]*"' | sort -u | wc -l)" 4
fails "one with data does not" "File exists" policy p/open stripes=1
check "cp -a does not copy them" \
	bash -c 'cp -a p p2 &&
		[ "$(getfattr --only-values -n user.weft.policy p2)" != \
			"stripes=2,unit=1M,mirrors=2" ]'

cd /
umount_weft
mount_weft nconnect=4
check "after a re-mount with nconnect=4" cmp /run/data $M/basic/data
mkdir -p /mnt/sub
check "a subdirectory is mounted" timeout 60 ${WEFT_MOUNT}basic/p /mnt/sub
same "and is that directory" "$(cat /mnt/sub/placed)" x
umount /mnt/sub
fails "a directory that is not there is not mounted" "No such file" \
	timeout 60 ${WEFT_MOUNT}basic/none /mnt/sub
umount_weft
mount_weft vers=4.1
check "over NFSv4.1" cmp /run/data $M/basic/copy
umount_weft
no_complaint
