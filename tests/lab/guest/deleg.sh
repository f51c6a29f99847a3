#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
. "$(dirname "$0")/lib.sh"
me=$1 times=$2
mount_weft
# Two opens for writing in a row: the client holds a delegation.
hold() {
	echo one >>"$1"
	echo two >>"$1"
	echo three >>"$1"
}
meet() { # NAME: both are here
	flag $1.$me
	wait_flag $1.a
	wait_flag $1.b
}
if [ $me = a ]; then
	mkdir $M/d
	for i in 1 2 3 4 5; do echo $i >$M/d/r$i; done
	flag made
	wait_flag closed
	# The server gives no delegation while it still takes down the size of what was written.
	until [ -e "$WEFT_SHARED/given" ]; do
		cat $M/d/r* >/dev/null
		sleep 0.2
	done
	flag held
	wait_flag reopen
	cat $M/d/r* $M/d/r* >/dev/null
	flag reopened
	wait_flag counted
	hold $M/d/w
	exec 5>>$M/d/w
	printf 0123456789 >&5
	meet written
	meet stat
	flag asked
	exec 5>&-
	# The client sees the other's change, though it held the file.
	meet changed
	same "a change by another" "$(cat $M/d/r1)" new
	cold # what is cached for some seconds without a delegation, too
	same "a mode set by another" "$(stat -c %a $M/d/r2)" 600
	check "a file renamed by another" test -e $M/d/r3.new -a ! -e $M/d/r3
	check "a file removed by another" test ! -e $M/d/r4
	# A holder sets times.
	hold $M/d/t
	touch -d '2001-02-03 04:05:06 UTC' $M/d/t
	same "a time that is set is there at once" "$(stat -c %Y $M/d/t)" 981173106
	hold $M/d/p
	touch -d '2002-02-03 04:05:06 UTC' $M/d/src
	cp -p $M/d/src $M/d/p
	meet timed
	meet times
	# It holds them over a restart: read, write, and what it wrote before.
	hold $M/d/k
	exec 6>>$M/d/k
	printf before >&6
	flag restart
	wait_flag restarted
	printf after >&6
	exec 6>&-
	cat $M/d/r5 >/dev/null
	meet restarted2
	meet over
else
	meet written
	same "the size that the holder keeps" "$(stat -c %s $M/d/w)" 24
	same "and what it wrote" "$(tail -c 10 $M/d/w)" 0123456789
	meet stat
	cat $M/d/r* >/dev/null
	echo new >$M/d/r1
	chmod 600 $M/d/r2
	mv $M/d/r3 $M/d/r3.new
	rm $M/d/r4
	meet changed
	meet timed
	# A holder that keeps the times may not set them back (RFC 9754 section 5):
	# docs/delegations.md.
	if [ $times = false ]; then
		same "a time that a holder set" "$(stat -c %Y $M/d/t)" 981173106
		same "a time that cp -p set" "$(stat -c %Y $M/d/p)" 1012709106
	else
		check "a time is of now" test $(($(date +%s) - $(stat -c %Y $M/d/t))) -lt 60
	fi
	meet times
	meet restarted2
	same "written under a delegation through a restart" "$(tail -c 11 $M/d/k)" beforeafter
	meet over
fi
umount_weft
no_complaint
