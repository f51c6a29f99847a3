/* rpc_msg.c - RPC headers (RFC 5531 sections 9 and 10, appendix A), on plain bytes and without side
 * effects. */
#include "proto/rpc_int.h"
#include <errno.h>

#define RPC_VERS    2u
#define MACHINE_MAX 255u
enum { MSG_CALL, MSG_REPLY };

/* Appendix A, authsys_parms. */
static enum rpc_auth_stat authsys_parse(const uint8_t *body, uint32_t len, struct rpc_cred *cred)
{
	struct xdr_in x;
	uint32_t namelen;

	xdr_in_init(&x, body, len);
	xdr_get_u32(&x); /* stamp */
	xdr_get_opaque(&x, MACHINE_MAX, &namelen);
	cred->rc_uid = xdr_get_u32(&x);
	cred->rc_gid = xdr_get_u32(&x);
	cred->rc_ngids = xdr_get_u32(&x);
	if (x.bad || cred->rc_ngids > RPC_MAX_GIDS)
		return RPC_AUTH_BADCRED;
	for (uint32_t i = 0; i < cred->rc_ngids; i++)
		cred->rc_gids[i] = xdr_get_u32(&x);
	return x.bad || xdr_left(&x) ? RPC_AUTH_BADCRED : RPC_AUTH_OK;
}

static enum rpc_auth_stat cred_parse(struct xdr_in *x, struct rpc_cred *cred)
{
	const uint8_t *body;
	uint32_t len;

	cred->rc_flavor = xdr_get_u32(x);
	body = xdr_get_opaque(x, RPC_MAX_AUTH, &len);
	if (x->bad)
		return RPC_AUTH_BADCRED;
	switch (cred->rc_flavor) {
	case RPC_AUTH_TLS:
		return len ? RPC_AUTH_BADCRED : RPC_AUTH_OK;
	case RPC_AUTH_NONE:
		cred->rc_uid = cred->rc_gid = 65534;
		return RPC_AUTH_OK;
	case RPC_AUTH_SYS:
		return authsys_parse(body, len, cred);
	default:
		return RPC_AUTH_REJECTEDCRED;
	}
}

/* RFC 9289 section 4.1: the verifier is an empty AUTH_NONE. */
static enum rpc_verdict tls_parse(struct xdr_in *x, struct rpc_head *h)
{
	uint64_t verf = xdr_get_u64(x);

	if (!h->h_auth && (x->bad || verf))
		h->h_auth = RPC_AUTH_BADVERF;
	return RPC_HDR_TLS;
}

enum rpc_verdict rpc_call_parse(struct xdr_in *x, struct rpc_head *h)
{
	uint32_t dir, vers, len;

	memset(h, 0, sizeof *h);
	h->h_xid = xdr_get_u32(x);
	dir = xdr_get_u32(x);
	vers = xdr_get_u32(x);
	if (x->bad || dir != MSG_CALL)
		return RPC_HDR_GARBAGE;
	if (vers != RPC_VERS)
		return RPC_HDR_MISMATCH;
	h->h_prog = xdr_get_u32(x);
	h->h_vers = xdr_get_u32(x);
	h->h_proc = xdr_get_u32(x);
	if (x->bad)
		return RPC_HDR_ARGS;
	h->h_auth = cred_parse(x, &h->h_cred);
	if (h->h_cred.rc_flavor == RPC_AUTH_TLS)
		return tls_parse(x, h);
	if (h->h_auth)
		return RPC_HDR_AUTH;
	/* AUTH_NONE and AUTH_SYS are sent with an AUTH_NONE verifier; what another one holds proves
	 * nothing, so that its flavour is not looked at. */
	xdr_get_u32(x);
	xdr_get_opaque(x, RPC_MAX_AUTH, &len);
	if (x->bad) {
		h->h_auth = RPC_AUTH_BADVERF;
		return RPC_HDR_AUTH;
	}
	return RPC_HDR_OK;
}

int rpc_reply_parse(struct xdr_in *x)
{
	uint32_t denied, stat, len;

	denied = xdr_get_u32(x);
	if (x->bad || denied)
		return -EPROTO;
	xdr_get_u32(x);
	xdr_get_opaque(x, RPC_MAX_AUTH, &len);
	stat = xdr_get_u32(x);
	return x->bad || stat != RPC_A_SUCCESS ? -EPROTO : 0;
}

void rpc_cred_put(struct xdr_out *x, const struct rpc_cred *cred)
{
	uint32_t n;

	if (!cred || cred->rc_flavor != RPC_AUTH_SYS) {
		xdr_put_u64(x, 0);
		return;
	}
	n = cred->rc_ngids < RPC_MAX_GIDS ? cred->rc_ngids : RPC_MAX_GIDS;
	xdr_put_u32(x, RPC_AUTH_SYS);
	xdr_put_u32(x, 4 + 4 + 4 + 4 + 4 + 4 + 4 * n);
	xdr_put_u32(x, 0);
	xdr_put_opaque(x, "weft", 4);
	xdr_put_u32(x, cred->rc_uid);
	xdr_put_u32(x, cred->rc_gid);
	xdr_put_u32(x, n);
	for (uint32_t i = 0; i < n; i++)
		xdr_put_u32(x, cred->rc_gids[i]);
}
