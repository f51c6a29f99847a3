#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# guest.sh ADDRESS[,ADDRESS] PORT WORK CLOCK [PHASE] - in the lab's guest: mounts the server twice
# (the second time by the second address, if there is one), and runs client.py once for each phase
# that WORK/shared/phaseN asks for, from PHASE (1) on, until WORK/shared/end is there. Linux is one
# client for each minor version, so the two mounts are two clients and share nothing. Meanwhile it
# does what WORK/shared/orderN says, from 1 on: each is what "ip" takes.
set -u
here=${0%/*} flags=$3/shared
mount_as() { # NAME VERSION SERVER
	mkdir -p "/mnt/$1"
	timeout 60 mount -t nfs4 -o "vers=$2,port=$port,actimeo=0,lookupcache=none" "$3:/" \
		"/mnt/$1" || exit 1
}
port=$2
# Few ports of its own: the client often has one again that it had when it last was at a node.
echo 992 >/proc/sys/sunrpc/min_resvport
echo 1023 >/proc/sys/sunrpc/max_resvport
mount_as a 4.2 "${1%,*}"
mount_as b 4.1 "${1#*,}"
export PYTHONDONTWRITEBYTECODE=1
orders() {
	local n=1

	while [ ! -e "$flags/end" ]; do
		if [ -e "$flags/order$n" ]; then
			# shellcheck disable=SC2046 # each word is one of ip's
			ip $(cat "$flags/order$n")
			mv "$flags/order$n" "$flags/did$n"
			n=$((n + 1))
		fi
		sleep 0.1
	done
}
orders &
phase=${5:-1}
while [ ! -e "$flags/end" ]; do
	if [ -e "$flags/phase$phase" ]; then
		python3 "$here/client.py" /mnt/a /mnt/b "$3/h/p$phase" "$flags/p$phase" "$4" \
			"$phase"
		echo $? >"$flags/status$phase.new"
		mv "$flags/status$phase.new" "$flags/status$phase"
		phase=$((phase + 1))
	fi
	sleep 0.1
done
wait
umount -f /mnt/a /mnt/b
dmesg | grep -E 'BUG:|WARNING:|Oops|general protection' && exit 1
exit 0
