#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# generic.sh one|two KINDS - clients of generic data servers. one works in a folder of each, then
# loses the metadata server while it writes. two takes over.
. "$(dirname "$0")/lib.sh"
me=$1 kinds=$2
# rounds KIND: how many writes its writer has made. The file is put in place by a rename on the
# host, in the middle of which the guest may find nothing.
rounds() {
	local n=
	for _ in {1..100}; do
		n=$(cat "$WEFT_SHARED/$1.rounds" 2>/dev/null)
		[ -z "$n" ] || break
		sleep 0.1
	done
	echo "$n"
}
mount_weft
if [ "$me" = one ]; then
	for kind in $kinds; do
		d=$M/$kind
		mkdir $d
		policy $d group=who=$kind
		head -c 8000000 /dev/urandom >/run/data
		check "$kind: write" cp /run/data $d/f
		check "$kind: fsync" sync $d/f
		sha256sum </run/data >"$WEFT_SHARED/$kind.sum"
		same "$kind: it is there" "$(layout $d/f | grep -o '"ds":"[a-z]*"')" \
			"\"ds\":\"$kind\""
		flag $kind.written
		wait_flag $kind.seen
		cold
		check "$kind: read" cmp /run/data $d/f
		same "$kind: size" "$(stat -c %s $d/f)" 8000000
		check "$kind: cut" truncate -s 5000001 $d/f
		cold
		check "$kind: what is left" cmp -n 5000001 /run/data $d/f
		same "$kind: its size" "$(stat -c %s $d/f)" 5000001
		check "$kind: append" bash -c "echo end >>$d/f; sync $d/f"
		cold
		same "$kind: what was appended" "$(tail -c 4 $d/f)" end
		check "$kind: a hole" truncate -s 9000000 $d/f
		cold
		same "$kind: reads as zeros" "$(tail -c 1000 $d/f | tr -d '\0' |
			wc -c) $(stat -c %s $d/f)" "0 9000000"
		check "$kind: many files" \
			bash -c "for n in {1..40}; do echo \$n >$d/n\$n; done;
				[ \$(cat $d/n* | sort -nu | wc -l) = 40 ]"
		check "$kind: copy and remove" \
			bash -c "cp $d/f $d/f2 && cmp $d/f $d/f2 && rm $d/f $d/f2 $d/n*"
		python3 - $d/fenced "$WEFT_SHARED" $kind <<'PY' &
import mmap, os, sys, time
path, shared, kind = sys.argv[1:]
buf = mmap.mmap(-1, 65536)
buf.write(b"A" * 65536)
fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_DIRECT)
done = 0
try:
    while True:
        for off in range(0, 1 << 20, 65536):
            os.pwrite(fd, buf, off)
            done += 1
        if done == 64:
            open(f"{shared}/{kind}.writing", "w").close()
        with open(f"{shared}/{kind}.rounds.new", "w") as f:
            f.write(str(done))
        os.rename(f"{shared}/{kind}.rounds.new", f"{shared}/{kind}.rounds")
except OSError:
    pass
PY
	done
	# Stripes and copies on different kinds in one file; read directly, a hole of one stripe
	# does not end before the file does.
	set -- $kinds
	if [ $# -ge 2 ]; then
		d=$M/mixed
		mkdir $d
		policy $d "stripes=2,mirrors=2,group0=who=$1,group1=who=${!#}"
		head -c 5000000 /dev/urandom >/run/data
		check "mixed: write" bash -c "cp /run/data $d/f && sync $d/f"
		same "mixed: it is on both" "$(layout $d/f | grep -o '"ds":"[a-z]*"' | sort -u |
			wc -l)" 2
		cold
		check "mixed: read" cmp /run/data $d/f
		check "mixed: a hole, and then data" \
			bash -c "dd if=/run/data of=$d/h bs=1M count=1 seek=7 \
				oflag=direct status=none; sync $d/h"
		cold
		same "mixed: its hole, read directly" \
			"$(dd if=$d/h bs=7M count=1 iflag=direct status=none | tr -d '\0' |
			wc -c) $(dd if=$d/h bs=8M count=1 iflag=direct status=none |
			wc -c)" "0 8388608"
		flag mixed.written
		wait_flag mixed.seen
		rm -r $d
	fi
	for kind in $kinds; do wait_flag $kind.writing; done
	# The metadata server is away for this client; the data servers are not.
	ip route add blackhole 10.77.0.1/32
	for kind in $kinds; do rounds $kind >/run/$kind.rounds; done
	sleep 1
	for kind in $kinds; do
		check "$kind: it writes on, without the metadata server" \
			test "$(rounds $kind)" -gt "$(cat /run/$kind.rounds)"
	done
	flag cut
	wait_flag over
	ip route del blackhole 10.77.0.1/32
	sync -f $M 2>/dev/null
else
	wait_flag cut
	for kind in $kinds; do
		d=$M/$kind
		check "$kind: another cuts the file" timeout 30 truncate -s 0 $d/fenced
		check "$kind: and writes it" \
			bash -c "tr '\0' B </dev/zero | head -c 1048576 >$d/fenced; sync $d/fenced"
		same "$kind: by its own layout" "$(layout $d/fenced | grep -o '"ds":"[a-z]*"')" \
			"\"ds\":\"$kind\""
	done
	sleep 3
	cold
	for kind in $kinds; do
		same "$kind: nothing else is in it" "$(tr -d B <$M/$kind/fenced | wc -c)" 0
	done
	flag settled
	wait_flag over
	umount_weft
fi
# Linux 7.2 writes mirrors of different servers from one list of pages each. It warns (once) when it
# finds more on one of them than that takes at a time, sends what is there and begins again. The
# test compared above what it wrote, with the data and between the copies.
if [ "$me" = one ]; then
	# A connection by a blackhole route fails with EINVAL.
	no_complaint 'fs/nfs/pagelist\.c:[0-9]+ at nfs_generic_pg_test' \
		'check lease failed on NFSv4 server 10.77.0.1 with error 22$'
else
	no_complaint
fi
