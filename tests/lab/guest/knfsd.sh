#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# knfsd.sh - Linux's own NFS server in this guest, with a file system in memory. It needs no daemon
# of nfs-utils: this script gives the kernel what they would give it, and leaves the handle that
# MOUNT would give in $WEFT_SHARED/knfsd.handle.
. "$(dirname "$0")/lib.sh"
e=/run/export
mkdir $e
mount -t tmpfs -o size=512M tmpfs $e
chmod 755 $e
rpcbind -f &
until [ -S /run/rpcbind.sock ]; do sleep 0.05; done
mount -t nfsd nfsd /proc/fs/nfsd
r=/proc/net/rpc
never=2147483647
# insecure, no_subtree_check, fsid=0; root is root, and SETATTR is synchronous.
for who in 10.77.0.1 10.77.1.2 10.77.2.2; do
	echo "nfsd $who $never weft" >$r/auth.unix.ip/channel
done
echo "weft $e $never $((0x2402)) 65534 65534 0" >$r/nfsd.export/channel
echo "weft 1 \\x00000000 $never $e" >$r/nfsd.fh/channel
echo -2 -3 +4 >/proc/fs/nfsd/versions 2>/dev/null
echo +3 >/proc/fs/nfsd/versions
echo "tcp 2049" >/proc/fs/nfsd/portlist
check "knfsd starts" bash -c 'echo 4 >/proc/fs/nfsd/threads'
exec 3<>/proc/fs/nfsd/filehandle
echo "weft $e 64" >&3
read -r -u 3 handle
exec 3>&-
echo "$handle" | tr -d '\\x\n' >"$WEFT_SHARED/knfsd.handle"
flag knfsd.up
wait_flag settled 200
same "knfsd: files are of owners that nobody is" \
	"$(find $e -type f -size +0 -printf '%m %U\n' | awk '$1 == 640 && $2 >= 1073741824' |
	wc -l)" "$(find $e -type f -size +0 | wc -l)"
same "knfsd: nothing of who was fenced is in the file" \
	"$(find $e -type f -size +0 -exec cat {} + | tr -d B | wc -c)" 0
no_complaint
flag knfsd.looked
wait_flag knfsd.over 100
