/* SPDX-License-Identifier: Apache-2.0 */
/* state_protect.c - principals, and state protection by machine credentials (RFC 8881 sections
 * 2.10.8.3 and 18.35.3). */
#include "base/log.h"
#include "mds/nfs4/credentials.h"
#include "mds/nfs4/op_attr.h"
#include "mds/nfs4/state_protect.h"

/* ---- principals ---- */

uint64_t op_principal_hash(const struct rpc_cred *cred)
{
	if (cred->rc_flavor == RPC_AUTH_GSS)
		return hash_bytes(cred->rc_principal, strlen(cred->rc_principal));
	return (uint64_t)cred->rc_flavor << 32 | cred->rc_uid;
}

bool op_principal_set(struct st_client *cl, const struct rpc_cred *cred)
{
	return st_client_principal(cl, cred->rc_flavor, cred->rc_uid,
				   cred->rc_flavor == RPC_AUTH_GSS ? cred->rc_principal : NULL);
}

static bool protected_call(const struct rpc_cred *cred)
{
	return cred->rc_flavor == RPC_AUTH_GSS && cred->rc_service >= RPC_GSS_INTEGRITY;
}

bool op_principal_is(const struct st_client *cl, const struct rpc_cred *cred)
{
	if (cl->cl_flavor != cred->rc_flavor || (cl->cl_mach && !protected_call(cred)))
		return false;
	/* Compare the names of Kerberos principals: the uid that one is mapped to may change. */
	return cred->rc_flavor == RPC_AUTH_GSS ? strcmp(cl->cl_principal, cred->rc_principal) == 0
					       : cl->cl_uid == cred->rc_uid;
}

/* ---- SP4_MACH_CRED ---- */

/* What the server can enforce: the whole set of section 18.35.3. */
static const struct op_bitmap may_enforce = {{
	1u << OP_DELEGPURGE,
	1u << (OP_BIND_CONN_TO_SESSION - 32) | 1u << (OP_EXCHANGE_ID - 32) |
		1u << (OP_CREATE_SESSION - 32) | 1u << (OP_DESTROY_SESSION - 32) |
		1u << (OP_DESTROY_CLIENTID - 32),
	0,
}};
/* What the machine principal may do with any user's state: exactly the operations here that need no
 * permission of the user. */
static const struct op_bitmap may_allow = {{
	1u << OP_CLOSE | 1u << OP_DELEGRETURN | 1u << OP_LOCKU | 1u << OP_OPEN_DOWNGRADE,
	1u << (OP_LAYOUTRETURN - 32) | 1u << (OP_FREE_STATEID - 32) | 1u << (OP_TEST_STATEID - 32),
	0,
}};

nfsstat4 op_mach_get(struct compound *c, struct op_mach *a)
{
	op_get_bitmap(c->in, &a->om_enforce, NULL);
	op_get_bitmap(c->in, &a->om_allow, NULL);
	if (c->in->bad)
		return NFS4ERR_BADXDR;
	if (!protected_call(&c->call->c_cred))
		return NFS4ERR_INVAL;
	for (unsigned w = 0; w < NFS4_ATTRS_WORDS; w++) {
		a->om_enforce.w[w] &= may_enforce.w[w];
		a->om_allow.w[w] &= may_allow.w[w];
	}
	return NFS4_OK;
}

void op_mach_put(struct xdr_out *x, const struct st_client *cl)
{
	struct op_bitmap enforce, allow;

	xdr_put_u32(x, cl->cl_mach ? SP4_MACH_CRED : SP4_NONE);
	if (!cl->cl_mach)
		return;
	memcpy(enforce.w, cl->cl_enforce, sizeof(enforce.w));
	memcpy(allow.w, cl->cl_allow, sizeof(allow.w));
	op_put_bitmap(x, &enforce);
	op_put_bitmap(x, &allow);
}

nfsstat4 op_mach_check(const struct compound *c, const struct st_client *cl, unsigned opnum)
{
	bool enforced = cl->cl_mach && (cl->cl_enforce[opnum / 32] >> opnum % 32 & 1);

	/* Enforced whatever EXCHANGE_ID agreed on (section 18.37.3). */
	if (cl->cl_mach && opnum == OP_DESTROY_SESSION)
		enforced = true;
	return !enforced || op_principal_is(cl, &c->call->c_cred) ? NFS4_OK : NFS4ERR_WRONG_CRED;
}

/* ---- does a request come from the client itself? ---- */

/* The request must come from the address that made the session, and be no weaker: over TLS, with a
 * certificate, or with Kerberos if CREATE_SESSION was. The service of Kerberos does not matter:
 * machines sign where users need not. */
bool op_from_session(const struct compound *c, const struct st_session *s)
{
	uint8_t addr[16];
	uint16_t port = UINT16_MAX;

	exp_addr(rpc_conn_peer(c->call->c_conn), addr, &port);
	return memcmp(addr, s->se_addr, sizeof(addr)) == 0 &&
	       (uint8_t)rpc_conn_tls(c->call->c_conn) >= s->se_tls &&
	       c->sec >= (s->se_sec < EXP_KRB5 ? s->se_sec : EXP_KRB5);
}

/* A Kerberos principal proves itself from any address. AUTH_SYS proves nothing: there the address
 * of EXCHANGE_ID counts. */
bool op_from_client(const struct compound *c, const struct st_client *cl)
{
	const struct rpc_cred *cred = &c->call->c_cred;
	uint8_t addr[16];

	if (cl->cl_flavor == RPC_AUTH_GSS)
		return op_principal_is(cl, cred);
	rpc_limit_addr(c->call->c_conn, addr);
	return cl->cl_place && memcmp(addr, cl->cl_place->pl_addr, sizeof(addr)) == 0 &&
	       (uint8_t)rpc_conn_tls(c->call->c_conn) >= cl->cl_tls &&
	       (cl->cl_flavor == RPC_AUTH_NONE || cred->rc_flavor != RPC_AUTH_NONE);
}

void op_wrongsec_log(const struct compound *c, const struct exp_grant *g)
{
	static _Atomic uint64_t last;
	const struct exp_rule *r = g->g_rule;
	const struct sockaddr_storage *peer = rpc_conn_peer(c->call->c_conn);
	const char *why = "its security flavour is not in sec";
	uint16_t port = UINT16_MAX;
	uint8_t addr[16];
	char text[80];

	if (!r || !log_due(&last))
		return;
	exp_addr(peer, addr, &port);
	rpc_addr_text((const struct sockaddr *)peer, text, sizeof(text));
	if ((uint8_t)rpc_conn_tls(c->call->c_conn) < (uint8_t)r->r_tls)
		why = "the export requires TLS (tls)";
	else if (r->r_privileged && c->sec <= EXP_SYS && port >= 1024)
		why = "its port is not below 1024 (privileged_port)";
	log_info("refused %s access to export %u (NFS4ERR_WRONGSEC): %s", text, g->g_id, why);
}
