#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
. "$(dirname "$0")/lib.sh"
mount_weft
d=$M/acl
umask 022
mkdir $d
as() { # UID[,GROUP] COMMAND...
	local id=${1%,*} group=${1#*,}
	shift
	setpriv --reuid "$id" --regid "$id" --groups "$group" "$@"
}
acl() { nfs4_getfacl -c "$1"; }
reads() { as "$1" cat "$2" >/dev/null 2>&1 && echo yes || echo no; }
writes() { as "$1" sh -c 'echo more >>"$0"' "$2" 2>/dev/null && echo yes || echo no; }

echo secret >$d/f
chmod 640 $d/f
check "a mode is shown as an ACL" bash -c "nfs4_getfacl -c $d/f | grep -q '^A::OWNER@:rw'"
same "nobody else reads" "$(reads 1001 $d/f) $(reads 1002,500 $d/f)" "no no"
check "a user is let in" nfs4_setfacl -a A::1001:r $d/f
check "a group is let in" nfs4_setfacl -a A:g:500:rwa $d/f
same "both read, others do not" "$(reads 1001 $d/f) $(reads 1002,500 $d/f) $(reads 1002 $d/f)" \
	"yes yes no"
same "the group writes, the user does not" "$(writes 1001 $d/f) $(writes 1002,500 $d/f)" "no yes"
same "the mode is its owner's and group's" "$(stat -c %a $d/f)" 640
check "a user is kept out" nfs4_setfacl -a D::1003:r $d/f
same "though the group is let in" "$(reads 1003,500 $d/f) $(reads 1004,500 $d/f)" "no yes"
check "the ACL is shown as it was set" bash -c "nfs4_getfacl -c $d/f | grep -q '^D::1003:r$'"
chmod 600 $d/f
same "chmod 600 keeps everybody out" "$(reads 1001 $d/f) $(reads 1002,500 $d/f) $(writes 1002,500 \
	$d/f)" "no no no"
check "and the ACL shows it" test "$(acl $d/f | grep -c '^A.*:\(1001\|500\):.*r')" = 0
nfs4_setfacl -a A::1001:r $d/f
same "a new ACL opens it again" "$(reads 1001 $d/f) $(stat -c %a $d/f)" "yes 600"
fails "others do not set it" "not permitted|denied" as 1001 nfs4_setfacl -a A::1001:rw $d/f
fails "an audit entry is refused" "[Ee]rror|not supported|[Ii]nvalid" nfs4_setfacl -a U:S:1001:r \
	$d/f
check "an ACL is removed by setting the mode's" \
	bash -c "touch $d/new && chmod 600 $d/new && nfs4_getfacl -c $d/new >/run/plain &&
		nfs4_setfacl -S /run/plain $d/f"
same "then it keeps others out" "$(reads 1001 $d/f)" no

# Inheritance, with the umask of a careful user.
mkdir $d/tree
check "a directory hands its entries down" nfs4_setfacl -a A:fd:1001:rwaxdD $d/tree
(umask 077; echo inside >$d/tree/file; mkdir $d/tree/sub; echo deeper >$d/tree/sub/file)
same "to files, whatever the umask" "$(reads 1001 $d/tree/file) $(reads 1002 \
	$d/tree/file) $(writes 1001 $d/tree/file)" "yes no yes"
same "and to what is below" "$(reads 1001 $d/tree/sub/file) $(reads 1002 $d/tree/sub/file)" "yes no"
check "who inherits may make files" as 1001 touch $d/tree/sub/mine
fails "others may not" denied as 1002 touch $d/tree/sub/theirs
check "who inherits the right to delete deletes" as 1001 rm -f $d/tree/file
chmod 700 $d/tree
fails "chmod of the directory binds" denied as 1001 ls $d/tree
nfs4_setfacl -a A:g:600:x $d/tree
echo later >$d/tree/later
same "but not what new files inherit" "$(reads 1001,600 $d/tree/later) $(reads 1002,600 \
	$d/tree/later)" "yes no"

# Deleting by the file's own ACL.
echo x >$d/one
echo x >$d/two
nfs4_setfacl -a A::1001:d $d/one
fails "a directory that one cannot write keeps its names" denied as 1001 rm -f $d/two
check "except those one may delete" as 1001 rm -f $d/one

# After a restart.
echo kept >$d/kept
chmod 600 $d/kept
nfs4_setfacl -a A::1001:r $d/kept
acl $d/kept >/run/before
flag acls_set
wait_flag restarted
remount_weft
acl $d/kept >/run/after
check "the ACL outlives the server" diff /run/before /run/after
same "and is held" "$(reads 1001 $d/kept) $(reads 1002 $d/kept)" "yes no"
umount_weft
mount_weft vers=4.1
acl $d/kept >/run/after
check "NFSv4.1 shows the same" diff /run/before /run/after
check "cp -a and rm -r work on such a tree" \
	bash -c "cp -a $d /run/copy && cp -a $d $M/again && rm -r $M/again"
umount_weft
no_complaint
