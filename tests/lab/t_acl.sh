# SPDX-License-Identifier: Apache-2.0
# ACLs by nfs4-acl-tools and the stock client: set, enforced for other users, changed by chmod,
# inherited, and there after a restart of the MDS.
command -v nfs4_setfacl >/dev/null || { skip "needs the package nfs4-acl-tools"; return; }
cluster_up
guest 1 acl.sh &
wait_flag acls_set 100
dev kill mds -9
check "the MDS starts again" dev start mds
flag restarted
wait
