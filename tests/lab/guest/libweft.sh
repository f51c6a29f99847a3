#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# libweft.sh BUILD - knfsd as in knfsd.sh, with NFSv4 as well, and libweft's programs beside it. Two
# folders: one plain, one with layouts.
. "$(dirname "$0")/lib.sh"
BUILD=$1
e=/run/export
mkdir $e
mount -t tmpfs -o size=400M tmpfs $e
chmod 755 $e
mkdir $e/plain $e/flex
mount -t tmpfs -o size=200M tmpfs $e/flex
chmod 777 $e/plain $e/flex
rpcbind -f &
until [ -S /run/rpcbind.sock ]; do sleep 0.05; done
mount -t nfsd nfsd /proc/fs/nfsd
r=/proc/net/rpc
never=2147483647
echo "nfsd 127.0.0.1 $never weft" >$r/auth.unix.ip/channel
echo "nfsd $LAB_SELF $never weft" >$r/auth.unix.ip/channel
# insecure, no_subtree_check, nohide, fsid=; flex: pnfs. Root is root.
echo "weft $e $never $((0x2402)) 65534 65534 0" >$r/nfsd.export/channel
echo "weft $e/flex $never $((0x22602)) 65534 65534 1" >$r/nfsd.export/channel
echo "weft 1 \\x00000000 $never $e" >$r/nfsd.fh/channel
echo "weft 1 \\x01000000 $never $e/flex" >$r/nfsd.fh/channel
echo "-2 +3 +4 -4.0 +4.1 +4.2" >/proc/fs/nfsd/versions
echo 10 >/proc/fs/nfsd/nfsv4leasetime
echo 10 >/proc/fs/nfsd/nfsv4gracetime
echo "tcp 2049" >/proc/fs/nfsd/portlist
check "knfsd starts" bash -c 'echo 4 >/proc/fs/nfsd/threads'
# What the server itself did since the last time.
ops() { awk -v n="$1" '$1 == "proc4ops" { print $(n + 3) }' /proc/net/rpc/nfsd; }

speaks() { # MINOR TEST [VARIABLE...]
	local minor=$1 name=$2
	shift 2
	check "4.$minor: $name" env WEFT_MINOR="$minor" "$@" \
		timeout 60 "$BUILD/tests/wirelib/weft_client" "$LAB_SELF" "$name"
}
for minor in 1 2; do
	for name in names paths data many null; do
		speaks $minor $name WEFT_TOP=plain
		rm -rf "$e/plain/$name"
	done
done
bench() { timeout 100 "$BUILD/weft-bench" "$1" --server "$LAB_SELF" --quiet "${@:2}" 2>&1; }
check "weft-bench md" bench md --dir plain --sessions 2 --depth 4 --count 50 --body 5000 --verify
check "weft-bench io" bench io --dir plain --sessions 2 --depth 4 --file 4M --size 64k --verify
check "weft-bench leaves nothing" rmdir $e/plain

gets=$(ops 50)
for minor in 1 2; do
	speaks $minor straight WEFT_TOP=flex WEFT_NO_READ_IO=1
	speaks $minor content WEFT_TOP=flex
	speaks $minor twice WEFT_TOP=flex
	rm -f $e/flex/*
done
check "knfsd gave layouts ($(($(ops 50) - gets)))" test "$(ops 50)" -gt "$gets"
check "weft-bench io by layouts" bench io --dir flex --sessions 2 --depth 4 --file 4M --size 64k \
	--verify
no_complaint
