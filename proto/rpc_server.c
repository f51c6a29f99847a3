/* SPDX-License-Identifier: Apache-2.0 */
/* rpc_server.c - calls of the peer: checks them (RFC 5531 section 9), dispatches them, and sends
 * the replies. */
#include "base/log.h"
#include "proto/rpc_int.h"
#include <errno.h>

#define CALLS_KEEP 1024u
enum { REPLY_ACCEPTED, REPLY_DENIED };
enum { DENIED_RPC_MISMATCH, DENIED_AUTH_ERROR };

static struct rpc_call_int *rpc_server_call_int(struct rpc_call *call)
{
	return caa_container_of(call, struct rpc_call_int, ci_call);
}

/* ---- memory ---- */

static void rpc_server_call_free(struct rpc_out *o)
{
	struct rpc_call_int *ci = caa_container_of(o, struct rpc_call_int, ci_out);
	struct rpc_conn *c = ci->ci_call.c_conn;
	struct rpc_loop *rl = c->rcn_rl;

	c->rcn_held -= ci->ci_call.c_expect;
	rl->rl_all_held -= ci->ci_call.c_expect;
	xdr_out_free(&ci->ci_call.c_reply);
	free(ci->ci_out.o_rdma);
	rpc_gss_call_free(ci);
	rpc_conn_put(c);
	if (rl->rl_ncalls >= CALLS_KEEP) {
		free(ci);
		return;
	}
	rl->rl_ncalls++;
	ci->ci_next = rl->rl_calls;
	rl->rl_calls = ci;
}

void rpc_calls_drain(struct rpc_loop *rl)
{
	while (rl->rl_calls) {
		struct rpc_call_int *ci = rl->rl_calls;

		rl->rl_calls = ci->ci_next;
		free(ci);
	}
	rl->rl_ncalls = 0;
}

static struct rpc_call_int *rpc_server_call_new(struct rpc_conn *c, struct rpc_record *r)
{
	struct rpc_loop *rl = c->rcn_rl;
	struct rpc_call_int *ci = rl->rl_calls;

	if (ci) {
		rl->rl_calls = ci->ci_next;
		rl->rl_ncalls--;
	} else {
		ci = malloc(sizeof *ci);
		if (!ci)
			return NULL;
	}
	ci->ci_out = (struct rpc_out){.o_x = &ci->ci_call.c_reply,
				      .o_free = rpc_server_call_free,
				      .o_reply = true,
				      .o_rdma = r->r_rdma};
	ci->ci_rec = r->r_data;
	ci->ci_copied = r->r_copied;
	ci->ci_next = NULL;
	ci->ci_ctx = NULL;
	ci->ci_gss_service = ci->ci_verf_len = 0;
	ci->ci_call.c_conn = c;
	ci->ci_call.c_loop = c->rcn_loop;
	ci->ci_call.c_buf = r->r_buf;
	ci->ci_call.c_size = r->r_len;
	ci->ci_call.c_cut = r->r_cut;
	ci->ci_call.c_expect = 0;
	ci->ci_call.c_priv = NULL;
	ci->ci_call.c_trailer = 0;
	xdr_in_init(&ci->ci_call.c_args, r->r_data, r->r_len);
	xdr_out_init(&ci->ci_call.c_reply, c->rcn_svc.rs_max_reply + RPC_REPLY_HEAD);
	c->rcn_refs++;
	ci->ci_waits = false;
	rpc_host_call(c, r->r_len);
	return ci;
}

/* ---- replies ---- */

/* Empties the reply, so that it can be written again. There is always room for a rejection. */
static struct xdr_out *reply_cut(struct rpc_call *call)
{
	struct xdr_out *x = &call->c_reply;

	xdr_truncate(x, 0);
	if (x->x_limit < RPC_REPLY_HEAD + RPC_MAX_AUTH + 8)
		x->x_limit = RPC_REPLY_HEAD + RPC_MAX_AUTH + 8;
	return x;
}

void rpc_reply_head(struct rpc_call *call, uint32_t stat)
{
	struct rpc_call_int *ci = rpc_server_call_int(call);
	struct xdr_out *x = reply_cut(call);

	xdr_put_u32(x, 0); /* the mark */
	xdr_put_u32(x, call->c_xid);
	xdr_put_u32(x, 1); /* REPLY */
	xdr_put_u32(x, REPLY_ACCEPTED);
	xdr_put_u32(x, ci->ci_verf_len ? RPC_AUTH_GSS : RPC_AUTH_NONE);
	xdr_put_opaque(x, ci->ci_verf, ci->ci_verf_len);
	xdr_put_u32(x, stat);
	if (stat == RPC_A_SUCCESS && ci->ci_gss_service)
		rpc_gss_reply_begin(call);
	call->c_body = x->x_len;
}

void rpc_call_waits(struct rpc_call *call, bool waits)
{
	struct rpc_call_int *ci = rpc_server_call_int(call);

	if (ci->ci_waits == waits)
		return;
	ci->ci_waits = waits;
	rpc_host_call_waits(call->c_conn, call->c_size, waits);
	if (waits)
		rpc_conn_unpause(call->c_conn);
}

static void call_done(struct rpc_call *call)
{
	if (rpc_server_call_int(call)->ci_waits)
		rpc_host_call_waits(call->c_conn, call->c_size, false);
	rpc_host_call_done(call->c_conn, call->c_size);
}

/* Sends the reply, which is complete in c_reply, and ends the rest of the call. */
static void call_finish(struct rpc_call *call)
{
	struct rpc_conn *c = call->c_conn;
	struct xdr_out *x = &call->c_reply;

	rpc_buf_put(call->c_buf);
	call->c_buf = NULL;
	call_done(call);
	c->rcn_refs++;
	if (x->bad) {
		/* Not even the status fits in memory. A client that gets no reply waits for ever; a
		 * client that loses its connection retries. */
		rpc_conn_fail(c, -ENOMEM);
		rpc_server_call_free(&rpc_server_call_int(call)->ci_out);
	} else {
		rpc_out_mark(x);
		if (x->x_len + x->x_payload > call->c_expect)
			rpc_call_expect(call, x->x_len + x->x_payload - call->c_expect);
		rpc_conn_out(c, &rpc_server_call_int(call)->ci_out);
	}
	rpc_conn_unpause(c);
	rpc_conn_put(c);
}

void rpc_drop(struct rpc_call *call)
{
	struct rpc_conn *c = call->c_conn;

	rpc_buf_put(call->c_buf);
	call->c_buf = NULL;
	call_done(call);
	if (c->rcn_rdma)
		rpc_rdma_dropped(c);
	c->rcn_refs++;
	rpc_server_call_free(&rpc_server_call_int(call)->ci_out);
	rpc_conn_unpause(c);
	rpc_conn_put(c);
}

void rpc_reply(struct rpc_call *call)
{
	if (!call->c_reply.bad && rpc_server_call_int(call)->ci_gss_service &&
	    rpc_gss_reply_wrap(call)) {
		/* RFC 2203 section 5.3.3.4: no response. The client learns it from the end of its
		 * connection. */
		log_warn("rpc: cannot protect a reply of program %u procedure %u", call->c_prog,
			 call->c_proc);
		rpc_conn_fail(call->c_conn, -EIO);
		rpc_drop(call);
		return;
	}
	if (rpc_server_call_int(call)->ci_gss_service && rpc_server_call_int(call)->ci_out.o_rdma)
		rpc_rdma_wrapped(rpc_server_call_int(call)->ci_out.o_rdma);
	if (call->c_reply.bad) {
		log_warn("rpc: a reply of program %u procedure %u does not fit", call->c_prog,
			 call->c_proc);
		rpc_reply_error(call, RPC_A_SYSTEM_ERR);
		return;
	}
	call_finish(call);
}

/* Gets the lowest and highest version of prog that is served. Returns false if prog is not served
 * at all. */
static bool version_range(const struct rpc_service *svc, uint32_t prog, uint32_t *lo, uint32_t *hi)
{
	bool found = false;

	*lo = UINT32_MAX;
	*hi = 0;
	for (size_t i = 0; i < svc->rs_nprogs; i++) {
		const struct rpc_program *p = &svc->rs_progs[i];

		if (p->pr_prog != prog)
			continue;
		found = true;
		*lo = p->pr_vers_lo < *lo ? p->pr_vers_lo : *lo;
		*hi = p->pr_vers_hi > *hi ? p->pr_vers_hi : *hi;
	}
	return found;
}

void rpc_reply_error(struct rpc_call *call, enum rpc_accept_stat stat)
{
	struct xdr_out *x = &call->c_reply;
	uint32_t lo, hi;

	rpc_reply_head(call, stat);
	if (stat == RPC_A_PROG_MISMATCH) {
		version_range(&call->c_conn->rcn_svc, call->c_prog, &lo, &hi);
		xdr_put_u32(x, lo);
		xdr_put_u32(x, hi);
	}
	call_finish(call);
}

static void reply_denied(struct rpc_call *call, uint32_t why, uint32_t a, uint32_t b)
{
	struct xdr_out *x = reply_cut(call);

	xdr_put_u32(x, 0);
	xdr_put_u32(x, call->c_xid);
	xdr_put_u32(x, 1);
	xdr_put_u32(x, REPLY_DENIED);
	xdr_put_u32(x, why);
	xdr_put_u32(x, a);
	if (why == DENIED_RPC_MISMATCH)
		xdr_put_u32(x, b);
	call_finish(call);
}

void rpc_reply_auth_error(struct rpc_call *call, enum rpc_auth_stat stat)
{
	reply_denied(call, DENIED_AUTH_ERROR, stat, 0);
}

/* ---- dispatch ---- */

static const struct rpc_program *program_find(struct rpc_conn *c, const struct rpc_call *call,
					      enum rpc_accept_stat *why)
{
	uint32_t lo, hi;

	for (size_t i = 0; i < c->rcn_svc.rs_nprogs; i++) {
		const struct rpc_program *p = &c->rcn_svc.rs_progs[i];

		if (p->pr_prog != call->c_prog || call->c_vers < p->pr_vers_lo ||
		    call->c_vers > p->pr_vers_hi)
			continue;
		*why = call->c_proc < p->pr_nprocs ? RPC_A_SUCCESS : RPC_A_PROC_UNAVAIL;
		return p;
	}
	*why = version_range(&c->rcn_svc, call->c_prog, &lo, &hi) ? RPC_A_PROG_MISMATCH
								  : RPC_A_PROG_UNAVAIL;
	return NULL;
}

/* Says whether TLS must come first. NULL may go in the clear: it pings and probes. */
static bool clear_refused(struct rpc_conn *c, const struct rpc_call *call)
{
	bool alone = call->c_prog == c->rcn_svc.rs_clear_prog;

	if (!call->c_proc)
		return false;
	if (!alone && rpc_tls_mode(c->rcn_svc.rs_tls) >= RPC_TLS_REQUIRED)
		return true;
	if (!alone && !c->rcn_spoke && rpc_tls_mode(c->rcn_svc.rs_tls) != RPC_TLS_OFF)
		rpc_tls_log_clear(c);
	c->rcn_spoke = true;
	return false;
}

static void rpc_server_dispatch(struct rpc_conn *c, struct rpc_call *call)
{
	enum rpc_accept_stat why;
	const struct rpc_program *p = program_find(c, call, &why);

	if (why != RPC_A_SUCCESS) {
		metric_add(rpc_m_rejected, 1);
		rpc_reply_error(call, why);
		return;
	}
	if (!c->rcn_tls && clear_refused(c, call)) {
		metric_add(rpc_m_rejected, 1);
		rpc_reply_auth_error(call, RPC_AUTH_TOOWEAK);
		return;
	}
	rpc_reply_head(call, RPC_A_SUCCESS);
	p->pr_dispatch(call, p->pr_arg);
}

/* Says whether the TLS probe is accepted. With TLS off for clients, their probe gets the answer of
 * a server without TLS. Peers probe with a program of their own. */
static bool tls_offered(const struct rpc_conn *c, const struct rpc_call *call)
{
	const struct rpc_service *s = &c->rcn_svc;

	if (!s->rs_tls || c->rcn_is_rdma)
		return false;
	return rpc_tls_mode(s->rs_tls) != RPC_TLS_OFF ||
	       (s->rs_peer_prog && call->c_prog == s->rs_peer_prog);
}

/*
 * The AUTH_TLS probe, RFC 9289 section 4.1. It is refused on other procedures, inside TLS, and
 * after calls other than NULL: anyone on the path may have sent those, and what they set up would
 * pass for the client's (see rpc_tls.c).
 */
static void tls_probe(struct rpc_conn *c, struct rpc_call *call, enum rpc_auth_stat bad)
{
	struct xdr_out *x = &call->c_reply;
	enum rpc_accept_stat why;
	uint32_t lo, hi;

	if (!tls_offered(c, call))
		bad = RPC_AUTH_REJECTEDCRED; /* like any flavour that is not served */
	else if (call->c_proc || c->rcn_t || c->rcn_spoke || c->rcn_client || c->rcn_ncalls > 1)
		bad = RPC_AUTH_BADCRED;
	if (bad) {
		metric_add(rpc_m_rejected, 1);
		rpc_reply_auth_error(call, bad);
		return;
	}
	if (rpc_tls_begin(c)) {
		rpc_conn_fail(c, -ENOMEM);
		rpc_reply_error(call, RPC_A_SYSTEM_ERR); /* only frees */
		return;
	}
	program_find(c, call, &why);
	xdr_put_u32(x, 0);
	xdr_put_u32(x, call->c_xid);
	xdr_put_u32(x, 1);
	xdr_put_u32(x, REPLY_ACCEPTED);
	xdr_put_u32(x, RPC_AUTH_NONE);
	xdr_put_opaque(x, "STARTTLS", 8);
	xdr_put_u32(x, why);
	if (why == RPC_A_PROG_MISMATCH) {
		version_range(&c->rcn_svc, call->c_prog, &lo, &hi);
		xdr_put_u32(x, lo);
		xdr_put_u32(x, hi);
	}
	rpc_server_call_int(call)->ci_out.o_last_clear = true;
	call_finish(call);
}

/* Returns false if RPCSEC_GSS now owns the call, or if the call was dropped. */
static bool gss_begin(struct rpc_call *call, struct rpc_head *h, enum rpc_verdict *verdict)
{
	switch (rpc_gss_call(call, h)) {
	case RPC_GSS_OK:
		call->c_cred = h->rhd_cred;
		return true;
	case RPC_GSS_AUTH:
		*verdict = RPC_HDR_AUTH;
		return true;
	case RPC_GSS_ARGS:
		*verdict = RPC_HDR_ARGS;
		return true;
	case RPC_GSS_DROP:
		rpc_drop(call);
		return false;
	default:
		return false;
	}
}

void rpc_serve(struct rpc_conn *c, struct rpc_record *r)
{
	struct rpc_call_int *ci = rpc_server_call_new(c, r);
	enum rpc_verdict verdict;
	struct rpc_call *call;
	struct rpc_head h;

	metric_add(rpc_m_calls, 1);
	if (!ci) {
		free(r->r_rdma);
		rpc_buf_put(r->r_buf);
		rpc_conn_fail(c, -ENOMEM);
		return;
	}
	call = &ci->ci_call;
	verdict = rpc_call_parse(&call->c_args, &h);
	call->c_xid = h.rhd_xid;
	call->c_prog = h.rhd_prog;
	call->c_vers = h.rhd_vers;
	call->c_proc = h.rhd_proc;
	call->c_cred = h.rhd_cred;
	if (verdict == RPC_HDR_OK && h.rhd_cred.rc_flavor == RPC_AUTH_GSS &&
	    !gss_begin(call, &h, &verdict))
		return;
	if (verdict == RPC_HDR_OK) {
		rpc_server_dispatch(c, call);
		return;
	}
	if (verdict == RPC_HDR_TLS) {
		tls_probe(c, call, h.rhd_auth);
		return;
	}
	metric_add(rpc_m_rejected, 1);
	switch (verdict) {
	case RPC_HDR_MISMATCH:
		reply_denied(call, DENIED_RPC_MISMATCH, 2, 2);
		break;
	case RPC_HDR_AUTH: /* a flavour that is not served is refused as such, whatever its body */
		rpc_reply_auth_error(call,
				     h.rhd_cred.rc_flavor == RPC_AUTH_GSS && !c->rcn_svc.rs_gss
					     ? RPC_AUTH_REJECTEDCRED
					     : h.rhd_auth);
		break;
	case RPC_HDR_ARGS:
		rpc_reply_error(call, RPC_A_GARBAGE_ARGS);
		break;
	default:
		metric_add(rpc_m_garbage, 1);
		rpc_conn_fail(c, -EPROTO);
		rpc_reply_error(call, RPC_A_GARBAGE_ARGS); /* only frees */
	}
}

void rpc_put_item(struct rpc_call *call, struct xdr_out *x, const void *data, uint32_t n)
{
	void *copy;

	if (!rpc_server_call_int(call)->ci_out.o_rdma ||
	    !rpc_rdma_takes_items(rpc_server_call_int(call)->ci_out.o_rdma)) {
		xdr_put_opaque(x, data, n);
		return;
	}
	copy = malloc(n ? n : 1);
	if (!copy) {
		x->bad = true;
		return;
	}
	memcpy(copy, data, n);
	xdr_put_u32(x, n);
	xdr_put_ref(x, copy, n, free, copy);
}

/* ---- the record's memory ---- */

void rpc_call_expect(struct rpc_call *call, size_t bytes)
{
	call->c_expect += bytes;
	call->c_conn->rcn_held += bytes;
	call->c_conn->rcn_rl->rl_all_held += bytes;
}

struct rpc_buf *rpc_buf_get(struct rpc_call *call)
{
	call->c_buf->b_refs++;
	return call->c_buf;
}

void rpc_call_bulk_hint(struct rpc_call *call, const void *p)
{
	const uint8_t *rec = rpc_server_call_int(call)->ci_rec;

	rpc_rx_hint(&call->c_conn->rcn_rx, rec, (size_t)((const uint8_t *)p - rec));
}

size_t rpc_call_copied(const struct rpc_call *call, const void *p)
{
	const struct rpc_call_int *ci = caa_container_of(call, struct rpc_call_int, ci_call);
	size_t head = (size_t)((const uint8_t *)p - ci->ci_rec);

	return ci->ci_copied > head ? ci->ci_copied - head : 0;
}
