#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What basic.sh left, after a restart of the MDS; then all of it goes.
. "$(dirname "$0")/lib.sh"
mount_weft
cd $M/basic || exit 1
same "a file is as it was" "$(stat -c '%a %u %g %h' file)" "600 1234 5678 1"
same "its xattrs are" "$(getfattr --only-values -n user.big file | wc -c)" 3000
same "its data is" "$(cat file)" new
same "special files are" "$(stat -c '%F %t %T' char block)" \
	$'character special file 1 3\nblock special file 7 12c'
same "policies are" "$(get_policy p)" "stripes=2,unit=1M,mirrors=2"
check "the copy equals" cmp data copy
cd /
check "rm -rf" rm -rf $M/basic
same "nothing is left" "$(ls -A $M)" ""
umount_weft
no_complaint
