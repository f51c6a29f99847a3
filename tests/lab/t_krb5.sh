# SPDX-License-Identifier: Apache-2.0
# Kerberos with the stock client: a real KDC here, rpc.gssd in the guest; krb5, krb5i and krb5p,
# users, owners' names, nobody, a restart of the MDS.
for program in krb5kdc kadmin.local kinit rpc.gssd nfsidmap; do
	PATH=$PATH:/usr/sbin command -v $program >/dev/null || {
		skip "needs the program $program (tools/setup installs it)"
		exit 0
	}
done
# Users of the test's own, for the server and the guest alike: this mount namespace is the test's.
users=$LAB_DIR/users
mkdir "$users"
cat /etc/passwd - >"$users/passwd" <<'USERS'
alice:x:3001:3001::/:/bin/sh
bob:x:3002:3002::/:/bin/sh
USERS
cat /etc/group - >"$users/group" <<'GROUPS'
alice:x:3001:
bob:x:3002:
crew:x:3100:alice,bob
GROUPS
printf '[General]\nDomain = weft.test\n[Translation]\nMethod = nsswitch\n' >"$users/idmapd.conf"
[ -e /etc/idmapd.conf ] || : >/etc/idmapd.conf
for f in passwd group idmapd.conf; do mount --bind "$users/$f" /etc/$f; done
echo '10.77.0.1 labhost' >"$users/hosts"

check "a KDC starts" bash "$LAB_HERE/../kdc" up "$LAB_DIR/kdc" -a 10.77.0.1 alice bob mallory \
	host/lab1 nfs/labhost
export KRB5_CONFIG=$LAB_DIR/kdc/krb5.conf
cluster_up --set mds.keytab="$LAB_DIR/kdc/nfs-labhost.keytab" --set mds.idmap_domain=weft.test \
	--set mds.lease=5s --set mds.grace=5s
guest -t 200 1 krb5.sh "$LAB_DIR/kdc" &
wait_flag writing 150
made=$(metric mds weft_rpc_gss_made_total)
check "the client made contexts" test "${made%.*}" -ge 4
writes=0
for d in ds1 ds2 ds3 ds4; do writes=$((writes + $(metric $d weft_ds_op_total proc=WRITE))); done
check "its files went straight to the data servers" test "$writes" -gt 0
dev kill mds -9
check "the MDS starts again" dev start mds
flag restarted
wait
same "no call was taken for a replay" "$(metric mds weft_rpc_gss_dropped_total)" 0
bash "$LAB_HERE/../kdc" down "$LAB_DIR/kdc"
