/* SPDX-License-Identifier: Apache-2.0 */
/* rpc_msg.c - parses and makes RPC headers (RFC 5531 sections 9 and 10, appendix A), from plain
 * bytes and without side effects. */
#include "proto/rpc_int.h"
#include <errno.h>

#define RPC_VERS     2u
#define MACHINE_MAX  255u
#define RPC_GSS_VERS 1u
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

/* RFC 2203 sections 5.2.2 and 5.3.3.3. An unknown version is AUTH_REJECTEDCRED when a context is
 * made (section 5.2.3.2). */
static enum rpc_auth_stat gss_parse(const uint8_t *body, uint32_t len, struct rpc_gss_head *g)
{
	struct xdr_in x;
	uint32_t vers;
	bool making;

	xdr_in_init(&x, body, len);
	vers = xdr_get_u32(&x);
	g->gh_proc = xdr_get_u32(&x);
	g->gh_seq = xdr_get_u32(&x);
	g->gh_service = xdr_get_u32(&x);
	g->gh_handle = xdr_get_opaque(&x, RPC_MAX_AUTH, &g->gh_handle_len);
	if (x.bad || xdr_left(&x) || g->gh_proc > RPC_GSS_DESTROY)
		return RPC_AUTH_BADCRED;
	making = g->gh_proc == RPC_GSS_INIT || g->gh_proc == RPC_GSS_CONTINUE_INIT;
	if (vers != RPC_GSS_VERS)
		return making ? RPC_AUTH_REJECTEDCRED : RPC_AUTH_BADCRED;
	if (!making && (g->gh_service < RPC_GSS_NONE || g->gh_service > RPC_GSS_PRIVACY))
		return RPC_AUTH_BADCRED;
	return RPC_AUTH_OK;
}

static enum rpc_auth_stat cred_parse(struct xdr_in *x, struct rpc_cred *cred,
				     struct rpc_gss_head *g)
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
	case RPC_AUTH_GSS:
		cred->rc_uid = cred->rc_gid = 65534; /* until the context says otherwise */
		return gss_parse(body, len, g);
	default:
		return RPC_AUTH_REJECTEDCRED;
	}
}

/* RFC 9289 section 4.1: the verifier is an empty AUTH_NONE. */
static enum rpc_verdict tls_parse(struct xdr_in *x, struct rpc_head *h)
{
	uint64_t verf = xdr_get_u64(x);

	if (!h->rhd_auth && (x->bad || verf))
		h->rhd_auth = RPC_AUTH_BADVERF;
	return RPC_HDR_TLS;
}

enum rpc_verdict rpc_call_parse(struct xdr_in *x, struct rpc_head *h)
{
	const uint8_t *start = x->p;
	uint32_t dir, vers;

	memset(h, 0, sizeof *h);
	h->rhd_xid = xdr_get_u32(x);
	dir = xdr_get_u32(x);
	vers = xdr_get_u32(x);
	if (x->bad || dir != MSG_CALL)
		return RPC_HDR_GARBAGE;
	if (vers != RPC_VERS)
		return RPC_HDR_MISMATCH;
	h->rhd_prog = xdr_get_u32(x);
	h->rhd_vers = xdr_get_u32(x);
	h->rhd_proc = xdr_get_u32(x);
	if (x->bad)
		return RPC_HDR_ARGS;
	h->rhd_auth = cred_parse(x, &h->rhd_cred, &h->rhd_gss);
	if (h->rhd_cred.rc_flavor == RPC_AUTH_TLS)
		return tls_parse(x, h);
	if (h->rhd_auth)
		return RPC_HDR_AUTH;
	h->rhd_gss.gh_signed = start;
	h->rhd_gss.gh_signed_len = (size_t)(x->p - start);
	/* AUTH_NONE and AUTH_SYS come with an AUTH_NONE verifier. Any other verifier proves
	 * nothing, so its flavour is not checked. */
	h->rhd_gss.gh_verf_flavor = xdr_get_u32(x);
	h->rhd_gss.gh_verf = xdr_get_opaque(x, RPC_MAX_AUTH, &h->rhd_gss.gh_verf_len);
	if (x->bad) {
		h->rhd_auth = RPC_AUTH_BADVERF;
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
