#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
. "$(dirname "$0")/lib.sh"
case $WEFT_MOUNT in
	*'[fd77::1]:/'*) ok "the mount command names an IPv6 address" ;;
	*) not_ok "the mount command names an IPv6 address: $WEFT_MOUNT" ;;
esac
mount_weft nconnect=2
mkdir $M/d
policy $M/d stripes=4,unit=1M,mirrors=2
head -c 20000000 /dev/urandom >/run/src
for f in 1 2 3; do check "a file is written" cp /run/src $M/d/f$f; done
remount_weft nconnect=2
for f in 1 2 3; do check "and comes back" cmp /run/src $M/d/f$f; done
check "files come and go in two directories at once" bash -c '
	cd '$M' && mkdir a b
	(for i in {1..200}; do echo $i >a/$i; done
	for i in {1..200}; do mv a/$i b/a$i || exit 1; done) &
	(for i in {1..200}; do echo $i >b/$i; done
	for i in {1..200}; do mv b/$i a/b$i || exit 1; done)
	wait $! && [ "$(ls a | wc -l)" = 200 ] && [ "$(ls b | wc -l)" = 200 ] &&
		[ "$(cat a/b77)" = 77 ]'
umount_weft
no_complaint
