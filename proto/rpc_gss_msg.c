/* SPDX-License-Identifier: Apache-2.0 */
/* rpc_gss_msg.c - one RPCSEC_GSS call: checks its header, opens its arguments and wraps its results
 * (RFC 2203 section 5.3). */
#include "base/clock.h"
#include "proto/rpc_gss_int.h"
#include <errno.h>
#include <gssapi/gssapi_ext.h>

/* The most that privacy adds to the results: a token's header, confounder, checksum and padding. */
#define PRIVACY_ROOM 160u

static struct rpc_call_int *rpc_gss_msg_call_int(struct rpc_call *call)
{
	return caa_container_of(call, struct rpc_call_int, ci_call);
}

void rpc_gss_call_free(struct rpc_call_int *ci)
{
	if (ci->ci_ctx)
		gss_ctx_put(ci->ci_ctx);
	ci->ci_ctx = NULL;
}

bool gss_window(struct gss_ctx *x, uint32_t seq)
{
	uint64_t *word = &x->x_seen[seq % GSS_WINDOW / 64], bit = 1ull << seq % 64;

	if (seq > x->x_high) {
		/* The bits in between belonged to numbers that are too old now. */
		if (seq - x->x_high >= GSS_WINDOW) {
			memset(x->x_seen, 0, sizeof x->x_seen);
		} else {
			for (uint32_t s = x->x_high + 1; s != seq; s++)
				x->x_seen[s % GSS_WINDOW / 64] &= ~(1ull << s % 64);
		}
		x->x_high = seq;
		*word |= bit;
		return true;
	}
	if (x->x_high - seq >= GSS_WINDOW || *word & bit)
		return false;
	*word |= bit;
	return true;
}

/* ---- the header ---- */

static bool mic_good(struct gss_ctx *x, const void *data, size_t len, const void *mic,
		     uint32_t miclen)
{
	gss_buffer_desc text = {len, (void *)data}, token = {miclen, (void *)mic};
	gss_qop_t qop;
	OM_uint32 minor;

	/* The sequence window decides about replays and gaps. The library may count them too, but
	 * reports them only as supplementary information. */
	return !GSS_ERROR(gss_verify_mic(&minor, x->x_sec, &text, &token, &qop)) &&
	       qop == GSS_C_QOP_DEFAULT;
}

/* The reply's verifier: the signed sequence number (section 5.3.3.2). */
static bool verf_make(struct gss_ctx *x, struct rpc_call_int *ci)
{
	uint32_t seq = htobe32(ci->ci_gss_seq);
	gss_buffer_desc text = {sizeof seq, &seq}, mic = GSS_C_EMPTY_BUFFER;
	OM_uint32 minor;
	bool good =
		gss_get_mic(&minor, x->x_sec, GSS_C_QOP_DEFAULT, &text, &mic) == GSS_S_COMPLETE &&
		mic.length && mic.length <= RPC_MAX_AUTH;

	if (good) {
		memcpy(ci->ci_verf, mic.value, mic.length);
		ci->ci_verf_len = (uint32_t)mic.length;
	}
	gss_release_buffer(&minor, &mic);
	return good;
}

static void cred_fill(struct gss_ctx *x, struct rpc_cred *cred)
{
	gss_ctx_refresh(x);
	cred->rc_uid = x->x_ids.id_uid;
	cred->rc_gid = x->x_ids.id_gid;
	cred->rc_principal = x->x_principal;
}

/* The caller holds x_lock. */
static enum rpc_gss_verdict header_check(struct gss_ctx *x, struct rpc_call_int *ci,
					 struct rpc_head *h)
{
	const struct rpc_gss_head *gh = &h->rhd_gss;

	h->rhd_auth = RPC_AUTH_CREDPROBLEM;
	if (!x->x_established)
		return RPC_GSS_AUTH;
	if (gh->gh_verf_flavor != RPC_AUTH_GSS) {
		h->rhd_auth = RPC_AUTH_BADVERF;
		return RPC_GSS_AUTH;
	}
	if (!mic_good(x, gh->gh_signed, gh->gh_signed_len, gh->gh_verf, gh->gh_verf_len))
		return RPC_GSS_AUTH;
	h->rhd_auth = RPC_AUTH_CTXPROBLEM;
	if (gh->gh_seq >= GSS_MAXSEQ || clock_mono_ns() > x->x_expires_ns)
		return RPC_GSS_AUTH;
	if (!gss_window(x, gh->gh_seq)) {
		metric_add(gss_m_dropped, 1);
		return RPC_GSS_DROP;
	}
	ci->ci_gss_seq = gh->gh_seq;
	if (!verf_make(x, ci))
		return RPC_GSS_AUTH;
	h->rhd_auth = RPC_AUTH_OK;
	cred_fill(x, &h->rhd_cred);
	h->rhd_cred.rc_service = gh->gh_service;
	return RPC_GSS_OK;
}

/* ---- the arguments ---- */

/* The inner sequence number must be that of the credential. The arguments follow it. */
static bool args_within(struct xdr_in *args, const uint8_t *p, size_t len, uint32_t seq)
{
	struct xdr_in x;

	xdr_in_init(&x, p, len);
	if (xdr_get_u32(&x) != seq || x.bad)
		return false;
	*args = x;
	return true;
}

static bool args_integrity(struct gss_ctx *x, struct xdr_in *args, uint32_t seq)
{
	uint32_t len, miclen;
	const uint8_t *body = xdr_get_opaque(args, UINT32_MAX - 3, &len),
		      *mic = xdr_get_opaque(args, RPC_MAX_AUTH, &miclen);

	return !args->bad && !xdr_left(args) && mic_good(x, body, len, mic, miclen) &&
	       args_within(args, body, len, seq);
}

/* Puts the plain bytes in place of the token in the record, so that they live as long as the record
 * does (rpc_buf_get). */
static bool args_privacy(struct gss_ctx *x, struct xdr_in *args, uint32_t seq)
{
	uint32_t len;
	uint8_t *body = (uint8_t *)xdr_get_opaque(args, UINT32_MAX - 3, &len);
	gss_buffer_desc token = {len, body}, plain = GSS_C_EMPTY_BUFFER;
	gss_qop_t qop;
	OM_uint32 minor;
	int secret = 0;
	bool good;

	if (args->bad || xdr_left(args))
		return false;
	good = !GSS_ERROR(gss_unwrap(&minor, x->x_sec, &token, &plain, &secret, &qop)) && secret &&
	       qop == GSS_C_QOP_DEFAULT && plain.length <= len;
	if (good && plain.length)
		memcpy(body, plain.value, plain.length);
	good = good && args_within(args, body, plain.length, seq);
	gss_release_buffer(&minor, &plain);
	return good;
}

bool rpc_gss_known(struct rpc_gss *g, const struct rpc_gss_head *gh)
{
	struct gss_ctx *x = g ? gss_ctx_find(g, gh->gh_handle, gh->gh_handle_len) : NULL;
	bool made;

	if (!x)
		return false;
	pthread_mutex_lock(&x->x_lock);
	made = x->x_established;
	pthread_mutex_unlock(&x->x_lock);
	gss_ctx_put(x);
	return made;
}

enum rpc_gss_verdict rpc_gss_call(struct rpc_call *call, struct rpc_head *h)
{
	struct rpc_call_int *ci = rpc_gss_msg_call_int(call);
	struct rpc_gss *g = call->c_conn->rcn_svc.rs_gss;
	const struct rpc_gss_head *gh = &h->rhd_gss;
	enum rpc_gss_verdict verdict;
	bool good = true;
	struct gss_ctx *x;

	h->rhd_auth = RPC_AUTH_REJECTEDCRED;
	if (!g)
		return RPC_GSS_AUTH;
	if (gh->gh_proc == RPC_GSS_INIT || gh->gh_proc == RPC_GSS_CONTINUE_INIT)
		return gss_init(g, call, h);
	h->rhd_auth = RPC_AUTH_CREDPROBLEM;
	x = gss_ctx_find(g, gh->gh_handle, gh->gh_handle_len);
	if (!x)
		return RPC_GSS_AUTH;
	ci->ci_ctx = x;
	pthread_mutex_lock(&x->x_lock);
	verdict = header_check(x, ci, h);
	if (verdict == RPC_GSS_OK && gh->gh_service == RPC_GSS_INTEGRITY)
		good = args_integrity(x, &call->c_args, gh->gh_seq);
	else if (verdict == RPC_GSS_OK && gh->gh_service == RPC_GSS_PRIVACY)
		good = args_privacy(x, &call->c_args, gh->gh_seq);
	pthread_mutex_unlock(&x->x_lock);
	if (verdict != RPC_GSS_OK || !good)
		return good ? verdict : RPC_GSS_ARGS;
	if (gh->gh_service == RPC_GSS_INTEGRITY)
		call->c_trailer = 4 + ((ci->ci_verf_len + 3) & ~3u);
	else if (gh->gh_service == RPC_GSS_PRIVACY)
		call->c_trailer = PRIVACY_ROOM;
	ci->ci_gss_service = gh->gh_service == RPC_GSS_NONE ? 0 : gh->gh_service;
	call->c_reply.x_limit += ci->ci_verf_len + 3 + 8;
	if (gh->gh_proc != RPC_GSS_DESTROY)
		return RPC_GSS_OK;
	if (h->rhd_proc != 0) {
		ci->ci_gss_service = 0;
		h->rhd_auth = RPC_AUTH_BADCRED;
		return RPC_GSS_AUTH;
	}
	gss_ctx_remove(x);
	rpc_reply_head(call, RPC_A_SUCCESS);
	rpc_reply(call);
	return RPC_GSS_TAKEN;
}

/* ---- the results ---- */

/* The length and the sequence number stand before the results from the start, so that the results
 * need not be moved. */
void rpc_gss_reply_begin(struct rpc_call *call)
{
	xdr_put_u32(&call->c_reply, 0);
	xdr_put_u32(&call->c_reply, rpc_gss_msg_call_int(call)->ci_gss_seq);
}

static int wrap_integrity(struct gss_ctx *x, struct rpc_call *call)
{
	gss_iov_buffer_desc iov[2 * XDR_SPLICES + 2];
	struct iovec part[2 * XDR_SPLICES + 1];
	struct xdr_out *r = &call->c_reply;
	size_t from = call->c_body - 4;
	unsigned n = xdr_out_iov(r, part), k = 0;
	OM_uint32 minor, major;

	xdr_patch_u32(r, call->c_body - 8, (uint32_t)(r->x_len + r->x_payload - from));
	for (unsigned i = 0; i < n; i++) {
		size_t skip = from < part[i].iov_len ? from : part[i].iov_len;

		from -= skip;
		if (part[i].iov_len > skip)
			iov[k++] = (gss_iov_buffer_desc){
				GSS_IOV_BUFFER_TYPE_DATA,
				{part[i].iov_len - skip, (uint8_t *)part[i].iov_base + skip}};
	}
	iov[k++] = (gss_iov_buffer_desc){
		GSS_IOV_BUFFER_TYPE_MIC_TOKEN | GSS_IOV_BUFFER_FLAG_ALLOCATE, GSS_C_EMPTY_BUFFER};
	major = gss_get_mic_iov(&minor, x->x_sec, GSS_C_QOP_DEFAULT, iov, (int)k);
	if (!GSS_ERROR(major)) {
		r->x_limit += 8 + iov[k - 1].buffer.length;
		xdr_put_opaque(r, iov[k - 1].buffer.value, (uint32_t)iov[k - 1].buffer.length);
	}
	gss_release_iov_buffer(&minor, iov + k - 1, 1);
	return GSS_ERROR(major) ? -EIO : 0;
}

/* Copies data that is sent by reference: it has to be encrypted in any case. */
static int wrap_privacy(struct gss_ctx *x, struct rpc_call *call)
{
	struct xdr_out *r = &call->c_reply;
	size_t from = call->c_body - 4, len = r->x_len + r->x_payload - from;
	struct iovec part[2 * XDR_SPLICES + 1];
	unsigned n = xdr_out_iov(r, part);
	uint8_t *flat = malloc(len), *p = flat;
	gss_buffer_desc text = {len, flat}, token = GSS_C_EMPTY_BUFFER;
	OM_uint32 minor, major;
	int secret = 0;

	if (!flat)
		return -EIO;
	for (unsigned i = 0; i < n; i++) {
		size_t skip = from < part[i].iov_len ? from : part[i].iov_len;

		from -= skip;
		memcpy(p, (const uint8_t *)part[i].iov_base + skip, part[i].iov_len - skip);
		p += part[i].iov_len - skip;
	}
	major = gss_wrap(&minor, x->x_sec, 1, GSS_C_QOP_DEFAULT, &text, &secret, &token);
	free(flat);
	if (!GSS_ERROR(major) && secret) {
		xdr_truncate(r, call->c_body - 8);
		r->x_limit += 8 + PRIVACY_ROOM + token.length;
		xdr_put_opaque(r, token.value, (uint32_t)token.length);
	}
	gss_release_buffer(&minor, &token);
	return GSS_ERROR(major) || !secret ? -EIO : 0;
}

int rpc_gss_reply_wrap(struct rpc_call *call)
{
	struct rpc_call_int *ci = rpc_gss_msg_call_int(call);
	struct gss_ctx *x = ci->ci_ctx;
	int err;

	pthread_mutex_lock(&x->x_lock);
	err = ci->ci_gss_service == RPC_GSS_INTEGRITY ? wrap_integrity(x, call)
						      : wrap_privacy(x, call);
	pthread_mutex_unlock(&x->x_lock);
	ci->ci_gss_service = 0;
	return err;
}
