# SPDX-License-Identifier: Apache-2.0
# Kerberos over RDMA: a real KDC here, servers and client on one soft RoCE device in the guest.
# Calls whose results are signed or encrypted come whole in a position-zero chunk, and their replies
# go whole into the Reply chunk (RFC 8166 section 8.2.2.3: nothing is placed by itself then).
for program in rdma krb5kdc kadmin.local kinit rpc.gssd nfsidmap; do
	PATH=$PATH:/usr/sbin:/sbin command -v $program >/dev/null || {
		skip "needs the program $program (tools/setup installs it)"
		exit 0
	}
done
users=$LAB_DIR/users
mkdir "$users"
{ cat /etc/passwd; echo 'alice:x:3001:3001::/:/bin/sh'; } >"$users/passwd"
{ cat /etc/group; echo 'alice:x:3001:'; } >"$users/group"
printf '[General]\nDomain = weft.test\n[Translation]\nMethod = nsswitch\n' >"$users/idmapd.conf"
[ -e /etc/idmapd.conf ] || : >/etc/idmapd.conf
for f in passwd group idmapd.conf; do mount --bind "$users/$f" /etc/$f; done
check "a KDC starts" bash "$LAB_HERE/../kdc" up "$LAB_DIR/kdc" -a 10.77.0.1 alice host/lab1 nfs/lab1
guest -m 2G -t 200 1 rdmakrb5.sh "$WEFT_BUILD" "$LAB_DIR/kdc"
bash "$LAB_HERE/../kdc" down "$LAB_DIR/kdc"
