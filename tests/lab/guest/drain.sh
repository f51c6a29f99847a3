#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# drain.sh [POLICY] - rounds of fio, each written, read back and compared, in a plain, a mirrored
# and a striped file at once; POLICY: what all of them have more.
. "$(dirname "$0")/lib.sh"
mount_weft
mkdir -p $M/d/one $M/d/two $M/d/wide $M/d/many
[ -z "${1:-}" ] || for d in one many; do policy $M/d/$d "$1"; done
policy $M/d/two "mirrors=2${1:+,$1}"
policy $M/d/wide "stripes=2,mirrors=2${1:+,$1}"
# Files that nobody uses meanwhile: these move too.
for i in $(seq 60); do echo "file $i" >$M/d/many/$i; done
one_round() {
	timeout 100 fio --output=/run/fio.out --randseed="$1" --verify=crc32c --verify_fatal=1 \
		--do_verify=1 --fallocate=none --ioengine=psync --thread --rw=randwrite --bs=64k \
		--size=12M \
		--fsync=32 --name=plain --directory=$M/d/one --name=mirrored --directory=$M/d/two \
		--name=striped --directory=$M/d/wide >/dev/null || {
			tail -25 /run/fio.out
			return 1
		}
}
rounds() { # FLAG: until it is there, and one more
	local n=0 bad=0 last=
	while [ -z "$last" ]; do
		[ ! -e "$WEFT_SHARED/$1" ] || last=1
		n=$((n + 1))
		one_round $((RANDOM + n)) || bad=$((bad + 1))
		[ $n -lt 200 ] && [ $bad = 0 ] || break
	done
	same "what fio wrote is what it reads, and nothing failed ($n rounds)" $bad 0
}
one_round 1
flag writing
rounds drained
sync
flag settled
rounds moved
cold
good=0
for i in $(seq 60); do [ "$(cat $M/d/many/$i)" != "file $i" ] || good=$((good + 1)); done
same "every other file is whole" $good 60
remount_weft
check "and after a new mount" \
	bash -c 'for i in $(seq 60); do [ "$(cat '$M'/d/many/$i)" = "file $i" ] || exit 1; done'
umount_weft
no_complaint
