#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# tls.sh PHASE TLSHD CERTS: the stock client with tlshd, TLS with and without a certificate of the
# client's.
. "$(dirname "$0")/lib.sh"
phase=$1 tlshd=$2 certs=$3
start_tlshd() { # CA
	[ -z "${pid:-}" ] || { kill "$pid"; wait "$pid" 2>/dev/null; }
	cat >/run/tlshd.conf <<-EOF
	[debug]
	loglevel=1
	tls=0
	nl=0
	[authenticate]
	[authenticate.client]
	x509.truststore=$certs/$1.pem
	x509.certificate=$certs/client.pem
	x509.private_key=$certs/client.key
	EOF
	chmod 600 /run/tlshd.conf
	"$tlshd/usr/sbin/tlshd" -s -c /run/tlshd.conf >/run/tlshd.log 2>&1 &
	pid=$!
	sleep 0.3
}
told() { # NAME COMMAND...: as check, with tlshd's log where it fails
	check "$@" || tail -20 /run/tlshd.log | sed 's/^/#   /'
}
fill() { # FILE MARK MIB
	python3 -c '
import sys
mark = sys.argv[2].encode() + b"\n"
with open(sys.argv[1], "wb") as f:
    for _ in range(int(sys.argv[3])):
        f.write((mark * ((1 << 20) // len(mark) + 1))[:1 << 20])
' "$1" "$2" "$3"
}
clear=weft-marks-the-clear-bytes-of-a-file secret=weft-marks-the-secret-bytes-of-a-file
trap '[ $? = 0 ] || tail -20 /run/tlshd.log | sed "s/^/#   /"' EXIT
start_tlshd ca
case $phase in
clear)
	mount_weft
	mkdir $M/s
	policy $M/s stripes=4,unit=1M,mirrors=1
	fill /run/clear $clear 4
	told "a file is written in the clear" dd if=/run/clear of=$M/s/clear bs=1M conv=fsync \
		status=none
	umount_weft
	;;
tls)
	for how in tls mtls; do
		mount_weft xprtsec=$how
		check "the mount says xprtsec=$how" grep -q "xprtsec=$how" /proc/mounts
		fill /run/secret $secret 20
		told "20 MiB are written with $how" dd if=/run/secret of=$M/s/$how bs=1M \
			conv=fsync status=none
		remount_weft xprtsec=$how
		told "and are the same after a cold re-mount" cmp $M/s/$how /run/secret
		same "no layout was refused with $how" \
			"$(awk '/LAYOUTGET:/ {print $9 + 0; exit}' /proc/self/mountstats)" 0
		told "small files and names with $how" \
			bash -c "for i in \$(seq 50); do echo \$i >$M/s/$how.\$i || exit 1; done;
				[ \$(cat $M/s/$how.* | wc -l) = 50 ]"
		umount_weft
	done
	start_tlshd other
	fails "a server of an unknown authority is not mounted" . \
		timeout 60 ${WEFT_MOUNT/ -o / -o xprtsec=tls,} $M
	;;
required)
	fails "a mount in the clear is refused" . timeout 60 $WEFT_MOUNT $M
	mount_weft xprtsec=mtls
	told "what was written is there" cmp $M/s/tls $M/s/mtls
	told "and more can be written" dd if=$M/s/tls of=$M/s/again bs=1M conv=fsync status=none
	umount_weft
	;;
esac
kill "$pid"
no_complaint
