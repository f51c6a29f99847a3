/* SPDX-License-Identifier: Apache-2.0 */
/* state_protect.h - principals of clients, and names of users: state_protect.c and idmap.c. */
#ifndef MDS_SEC_H
#define MDS_SEC_H
#include "mds/nfs4/op.h"
#include "mds/nfs4/op_attr.h"
#include "proto/rpc_gss.h"

/* state_protect.c. The principal of a client (RFC 8881 section 2.4). op_principal_set: false: no
 * memory. op_principal_is: is this the client's principal? For a client with SP4_MACH_CRED only
 * with integrity or privacy. */
bool op_principal_set(struct st_client *cl, const struct rpc_cred *cred);
bool op_principal_is(const struct st_client *cl, const struct rpc_cred *cred);
uint64_t op_principal_hash(const struct rpc_cred *cred);
/* SP4_MACH_CRED. op_mach_get decodes the request's two lists, cut to the operations that we
 * support: BADXDR, INVAL. op_mach_put puts the results. op_mach_check: may this operation be done
 * for the client with this credential? */
struct op_mach {
	struct op_bitmap om_enforce, om_allow;
};
nfsstat4 op_mach_get(struct compound *c, struct op_mach *a);
void op_mach_put(struct xdr_out *x, const struct st_client *cl);
nfsstat4 op_mach_check(const struct compound *c, const struct st_client *cl, unsigned opnum);
/* Does this request come from where the session, or the client, was made? An attacker that has read
 * ids off the wire elsewhere can take nothing away with them. */
bool op_from_session(const struct compound *c, const struct st_session *s);
bool op_from_client(const struct compound *c, const struct st_client *cl);

/* idmap.c. Puts an owner or group as a string: user@domain for a Kerberos call if there is such a
 * name, else the number. Use it only in operations that change nothing: they are run again when the
 * name is not known yet. */
void op_put_who(struct compound *c, struct xdr_out *x, uint32_t id, bool group);
/* The reverse, for both forms. NFS4ERR_BADOWNER; NFS4ERR_DELAY if the name must be looked up. Call
 * it before the operation changes anything. */
nfsstat4 op_get_who(struct compound *c, const uint8_t *name, uint32_t len, bool group,
		    uint32_t *id);
/* Calls then(c) on c's loop when all missing names have been looked up. False: too many requests
 * wait. */
bool op_idmap_then(struct compound *c, void (*then)(struct compound *c));
int op_idmap_init(struct mds *m, const char *domain, char *err, size_t errlen);
struct worker *op_idmap_worker(struct mds *m);
/* rpc_gss_opts.go_map */
int op_idmap_principal(void *arg, const char *principal, struct rpc_ids *ids);
#endif
