/* SPDX-License-Identifier: Apache-2.0 */
/*
 * weft_call.c - one COMPOUND: takes its slot, sends it until it is answered, and applies what
 * the answer means for the session (RFC 8881 section 2.10.6).
 *
 * A slot's sequence id rises when its SEQUENCE was answered with OK, and only then. A call whose
 * connection is lost keeps its slot and sequence id, and goes again on the next connection: the
 * server does it once. When the session itself is lost, the call has no slot any more.
 */
#include "client/res.h"
#include "client/ring.h"
#include "client/session.h"
#include "client/weft_call.h"
#include "proto/nfs3.h"
#include <errno.h>
#include <stdlib.h>
#include <urcu/compiler.h>

#define NFS4ERR_BAD_HIGH_SLOT 10077
#define DELAY_FIRST_MS	      10u
#define DELAY_MOST_MS	      2000u
#define ROUNDS		      64u /* of a call whose SEQUENCE the server refuses */
#define PUT_LIMIT	      (WC_MAX_IO + 65536u)

struct wc_call *wc_call_new(struct weft *w, const struct wc_kind *kind, struct weft_op *op,
			    void *arg)
{
	struct wc_call *c = calloc(1, sizeof(*c));

	if (!c)
		return NULL;
	c->wcl_w = w;
	c->wcl_kind = kind;
	c->wcl_op = op;
	c->wcl_arg = arg;
	c->wcl_slot = -1;
	c->wcl_since_ns = loop_now_ns(w->w_loop);
	c->wcl_all_next = w->w_all;
	if (w->w_all)
		w->w_all->wcl_all_prev = c;
	w->w_all = c;
	return c;
}

static void call_free(struct wc_call *c)
{
	struct weft *w = c->wcl_w;

	if (c->wcl_all_prev)
		c->wcl_all_prev->wcl_all_next = c->wcl_all_next;
	else
		w->w_all = c->wcl_all_next;
	if (c->wcl_all_next)
		c->wcl_all_next->wcl_all_prev = c->wcl_all_prev;
	free(c);
}

/* ---- slots ---- */

static void call_slot_free(struct wc_call *c)
{
	struct weft *w = c->wcl_w;

	if (c->wcl_slot >= 0 && c->wcl_gen == w->w_gen)
		w->w_busy[c->wcl_slot / 64] &= ~(1ull << c->wcl_slot % 64);
	c->wcl_slot = -1;
}

/* Takes the lowest free slot (section 2.10.6.1). */
static bool call_slot_take(struct wc_call *c)
{
	struct weft *w = c->wcl_w;
	uint32_t most = w->w_target + 1 < w->w_nslots ? w->w_target + 1 : w->w_nslots;

	for (uint32_t i = 0; i * 64 < most; i++) {
		uint32_t at;

		if (!~w->w_busy[i])
			continue;
		at = i * 64 + (uint32_t)__builtin_ctzll(~w->w_busy[i]);
		if (at >= most)
			return false;
		w->w_busy[i] |= 1ull << at % 64;
		c->wcl_slot = (int)at;
		c->wcl_gen = w->w_gen;
		return true;
	}
	return false;
}

static uint32_t slot_highest(const struct weft *w)
{
	for (uint32_t i = WEFT_MAX_SLOTS / 64; i--;)
		if (w->w_busy[i])
			return i * 64 + 63 - (uint32_t)__builtin_clzll(w->w_busy[i]);
	return 0;
}

/* ---- sending ---- */

void wc_call_op(struct wc_call *c, struct xdr_out *x, uint32_t op)
{
	c->wcl_nops++;
	xdr_put_u32(x, op);
}

static void payload_sent(void *arg);

void wc_put_payload(struct wc_call *c, struct xdr_out *x, const void *data, uint32_t n)
{
	xdr_put_u32(x, n);
	c->wcl_holds++;
	xdr_put_ref(x, data, n, payload_sent, c);
}

static void call_put_sequence(struct wc_call *c, struct xdr_out *x)
{
	struct weft *w = c->wcl_w;

	wc_call_op(c, x, OP_SEQUENCE);
	xdr_put_fixed(x, w->w_session, NFS4_SESSIONID_SIZE);
	xdr_put_u32(x, w->w_slots[c->wcl_slot].sl_seq);
	xdr_put_u32(x, (uint32_t)c->wcl_slot);
	xdr_put_u32(x, slot_highest(w));
	xdr_put_bool(x, c->wcl_kind->k_cache);
	w->w_used_ns = loop_now_ns(w->w_loop);
}

static void call_reply(struct rpc_req *q, int err, struct xdr_in *x);

static void call_put(struct wc_call *c)
{
	struct xdr_out *x = &c->wcl_rpc.q_args;
	size_t at;

	rpc_req_init(&c->wcl_rpc, NFS4_PROGRAM, c->wcl_w->w_opts.wo_nfs3 ? NFS3_VERSION : 4,
		     c->wcl_null ? 0 : 1, &c->wcl_w->w_cred, PUT_LIMIT, call_reply);
	c->wcl_holds = 1;
	c->wcl_err = 0;
	c->wcl_status = 0;
	c->wcl_seq_ok = false;
	c->wcl_recalled = false;
	c->wcl_nops = 0;
	if (c->wcl_null)
		return;
	xdr_put_u32(x, 0); /* tag */
	xdr_put_u32(x, c->wcl_w->w_minor);
	at = x->x_len;
	xdr_put_u32(x, 0);
	if (!c->wcl_kind->k_bare)
		call_put_sequence(c, x);
	c->wcl_kind->k_put(c, x);
	xdr_patch_u32(x, at, c->wcl_nops);
}

void wc_call_send_on(struct wc_call *c, struct wc_conn *cn)
{
	c->wcl_conn = cn;
	call_put(c);
	rpc_req_send(cn->cn_conn, &c->wcl_rpc, c->wcl_w->w_opts.wo_timeout_ms);
}

/* Returns the first usable connection, of all of them from this one on. */
static struct wc_conn *conn_from(struct weft *w, unsigned first)
{
	for (unsigned i = 0; i < w->w_nconns; i++) {
		struct wc_conn *cn = &w->w_conns[(first + i) % w->w_nconns];

		if (cn->cn_conn && cn->cn_bound)
			return cn;
	}
	return NULL;
}

static bool call_slot(struct wc_call *c)
{
	if (c->wcl_slot >= 0 && c->wcl_gen != c->wcl_w->w_gen)
		c->wcl_slot = -1;
	return c->wcl_null || c->wcl_slot >= 0 || call_slot_take(c);
}

/* Returns whether the call was sent. If not, it stays queued. */
static bool call_start(struct wc_call *c)
{
	struct weft *w = c->wcl_w;

	if (!conn_from(w, 0) || (!c->wcl_null && !w->w_have_session) || !call_slot(c))
		return false;
	/* A slot keeps its connection while it can. If each thread of the server has connections of
	 * its own, its threads then do not pass the slot, and the reply in it, to and fro. */
	wc_call_send_on(c, conn_from(w, c->wcl_null ? w->w_turn++ : (unsigned)c->wcl_slot));
	return true;
}

static void queue_add(struct wc_call *c, bool front)
{
	struct weft *w = c->wcl_w;

	c->wcl_queued = true;
	if (c->wcl_kind && c->wcl_kind->k_urgent) {
		c->wcl_next = w->w_urgent;
		w->w_urgent = c;
	} else if (front) {
		c->wcl_next = w->w_queue;
		if (!w->w_queue)
			w->w_queue_end = &c->wcl_next;
		w->w_queue = c;
	} else {
		c->wcl_next = NULL;
		*w->w_queue_end = c;
		w->w_queue_end = &c->wcl_next;
	}
}

void wc_pump(struct weft *w)
{
	while (w->w_urgent && w->w_have_session) {
		struct wc_call *c = w->w_urgent;

		w->w_urgent = c->wcl_next;
		if (!call_start(c)) {
			w->w_urgent = c;
			break;
		}
		c->wcl_queued = false;
	}
	while (w->w_queue && w->w_state == WC_READY) {
		struct wc_call *c = w->w_queue, *next = c->wcl_next;

		if (!call_start(c))
			break;
		c->wcl_queued = false;
		w->w_queue = next;
		if (!next)
			w->w_queue_end = &w->w_queue;
	}
}

/* ---- ends ---- */

static void call_end(struct wc_call *c, int err, uint32_t status)
{
	call_slot_free(c);
	if (c->wcl_null)
		wc_op_end(c->wcl_op, err, 0);
	else
		c->wcl_kind->k_end(c, err, status);
	if (!c->wcl_queued && !c->wcl_timer.t_pos)
		call_free(c);
}

void wc_call_send(struct wc_call *c)
{
	struct weft *w = c->wcl_w;

	queue_add(c, false);
	wc_pump(w);
}

static void pause_over(struct loop_timer *t)
{
	struct wc_call *c = caa_container_of(t, struct wc_call, wcl_timer);

	queue_add(c, c->wcl_slot >= 0);
	wc_pump(c->wcl_w);
}

void wc_call_again(struct wc_call *c, uint32_t pause_ms)
{
	if (!pause_ms) {
		queue_add(c, c->wcl_slot >= 0);
		return;
	}
	c->wcl_timer.t_fire = pause_over;
	loop_timer_start(c->wcl_w->w_loop, &c->wcl_timer, pause_ms);
}

static bool too_old(const struct wc_call *c)
{
	const struct weft *w = c->wcl_w;

	return w->w_opts.wo_giveup_ms &&
	       loop_now_ns(w->w_loop) - c->wcl_since_ns > w->w_opts.wo_giveup_ms * 1000000ull;
}

/* Sends the call again, unless its time is over: then the state of its slot is unknown. */
static void call_retry(struct wc_call *c, uint32_t pause_ms)
{
	struct weft *w = c->wcl_w;

	if (w->w_state == WC_CLOSING || w->w_state == WC_FAILED) {
		call_end(c, w->w_state == WC_FAILED ? w->w_err : -ECANCELED, 0);
	} else if (too_old(c)) {
		if (c->wcl_slot >= 0 && c->wcl_gen == w->w_gen) {
			w->w_spoiled = true;
			c->wcl_slot = -1;
		}
		call_end(c, -ETIMEDOUT, c->wcl_status);
	} else {
		wc_call_again(c, pause_ms);
	}
}

static uint32_t call_pause(struct wc_call *c)
{
	c->wcl_delay_ms = !c->wcl_delay_ms			? DELAY_FIRST_MS
			  : c->wcl_delay_ms * 2 < DELAY_MOST_MS ? c->wcl_delay_ms * 2
								: DELAY_MOST_MS;
	return c->wcl_delay_ms;
}

/* The session of the slot is gone. A call that went out before without an answer may have been
 * done. */
static void call_lost(struct wc_call *c)
{
	struct weft *w = c->wcl_w;

	if (c->wcl_given_up && c->wcl_op && c->wcl_kind->k_cache)
		c->wcl_op->o_again = true;
	c->wcl_given_up = false;
	if (c->wcl_gen == w->w_gen)
		wc_session_lost(w);
	c->wcl_slot = -1;
	if (++c->wcl_rounds > ROUNDS)
		call_end(c, -EPROTO, c->wcl_status);
	else if (c->wcl_kind->k_urgent)
		/* The setup that the call is part of begins again. */
		call_end(c, -ECONNRESET, c->wcl_status);
	else
		call_retry(c, c->wcl_rounds > 2 ? call_pause(c) : 0);
}

/* Handles a refused SEQUENCE: the slot's sequence id stays. */
static void sequence_refused(struct wc_call *c)
{
	struct weft *w = c->wcl_w;
	bool current = c->wcl_gen == w->w_gen;

	switch (c->wcl_status) {
	case NFS4ERR_SEQ_MISORDERED:
		/* A slot that the server took away and granted again may begin at 1. */
		if (current && w->w_slots[c->wcl_slot].sl_retired &&
		    w->w_slots[c->wcl_slot].sl_seq != 1) {
			w->w_slots[c->wcl_slot].sl_retired = false;
			w->w_slots[c->wcl_slot].sl_seq = 1;
			if (c->wcl_given_up && c->wcl_op && c->wcl_kind->k_cache)
				c->wcl_op->o_again = true; /* the slot's kept reply is gone */
			c->wcl_given_up = false;
			call_retry(c, 0);
			return;
		}
		call_lost(c);
		return;
	case NFS4ERR_BADSESSION:
	case NFS4ERR_DEADSESSION:
	case NFS4ERR_SEQ_FALSE_RETRY:
	case NFS4ERR_BADSLOT:
	case NFS4ERR_BAD_HIGH_SLOT:
		call_lost(c);
		return;
	case NFS4ERR_DELAY:
		call_retry(c, call_pause(c));
		return;
	case NFS4ERR_CONN_NOT_BOUND_TO_SESSION:
		if (c->wcl_conn && c->wcl_conn->cn_conn) {
			c->wcl_conn->cn_bound = false;
			wc_bind(c->wcl_conn);
		}
		if (++c->wcl_rounds > ROUNDS)
			call_end(c, -EPROTO, c->wcl_status);
		else
			call_retry(c, 0);
		return;
	default:
		call_end(c, wc_errno(c->wcl_status), c->wcl_status);
	}
}

/* Handles a failure of the transport. */
static void call_broken(struct wc_call *c)
{
	struct weft *w = c->wcl_w;

	if (c->wcl_kind->k_bare) {
		call_end(c, c->wcl_err, 0);
		return;
	}
	switch (c->wcl_err) {
	case -EPROTO:
		/* The call was rejected, or the reply is no RPC: it is unknown whether the slot was
		 * used. */
		w->w_spoiled = true;
		c->wcl_slot = -1;
		call_end(c, -EPROTO, 0);
		return;
	case -EMSGSIZE:
		call_end(c, -EMSGSIZE, 0);
		return;
	case -ENOMEM:
		call_retry(c, call_pause(c));
		return;
	default:
		c->wcl_given_up = true;
		w->w_resent++;
		call_retry(c, 0);
	}
}

static void call_over(struct wc_call *c)
{
	struct weft *w = c->wcl_w;

	if (c->wcl_null)
		call_end(c, c->wcl_err, 0);
	else if (c->wcl_err && !c->wcl_parsed)
		call_broken(c);
	else if (c->wcl_kind->k_bare)
		call_end(c, c->wcl_err ? c->wcl_err : wc_errno(c->wcl_status), c->wcl_status);
	else if (!c->wcl_seq_ok && c->wcl_err) {
		w->w_spoiled = true;
		c->wcl_slot = -1;
		call_end(c, c->wcl_err, 0);
	} else if (!c->wcl_seq_ok)
		sequence_refused(c);
	else {
		if (c->wcl_gen == w->w_gen && c->wcl_slot >= 0)
			w->w_slots[c->wcl_slot].sl_seq++;
		call_slot_free(c);
		if (c->wcl_err)
			call_end(c, c->wcl_err, c->wcl_status);
		else if (c->wcl_status == NFS4ERR_DELAY || c->wcl_status == NFS4ERR_GRACE)
			call_retry(c, call_pause(c));
		else if (c->wcl_status == NFS4ERR_RETRY_UNCACHED_REP && ++c->wcl_rounds < ROUNDS) {
			if (c->wcl_op && c->wcl_kind->k_cache)
				c->wcl_op->o_again = true;
			call_retry(c, 0);
		} else
			call_end(c, wc_errno(c->wcl_status), c->wcl_status);
	}
	if (w->w_spoiled && w->w_have_session) {
		w->w_spoiled = false;
		wc_session_lost(w);
	}
	wc_pump(w);
}

static void call_put_down(struct wc_call *c)
{
	if (--c->wcl_holds == 0)
		call_over(c);
}

static void payload_sent(void *arg)
{
	call_put_down(arg);
}

/* ---- replies ---- */

/* Parses SEQUENCE4resok. Values that do not fit our call make it no answer to that call. */
static bool get_sequence(struct wc_call *c, struct wc_res *r)
{
	struct weft *w = c->wcl_w;
	uint32_t seq, slot, highest, target, flags;
	const uint8_t *id;

	if (!wc_res_op(r, OP_SEQUENCE))
		return false;
	id = xdr_get_fixed(r->x, NFS4_SESSIONID_SIZE);
	seq = xdr_get_u32(r->x);
	slot = xdr_get_u32(r->x);
	highest = xdr_get_u32(r->x);
	target = xdr_get_u32(r->x);
	flags = xdr_get_u32(r->x);
	if (r->x->bad)
		return false;
	if (c->wcl_gen == w->w_gen && c->wcl_slot >= 0) {
		if (memcmp(id, w->w_session, NFS4_SESSIONID_SIZE) ||
		    slot != (uint32_t)c->wcl_slot || seq != w->w_slots[c->wcl_slot].sl_seq) {
			r->r_bad = true;
			return false;
		}
		target = target < highest ? target : highest;
		for (uint32_t i = target + 1; i <= w->w_target && i < WEFT_MAX_SLOTS; i++)
			w->w_slots[i].sl_retired = true;
		w->w_target = target < WEFT_MAX_SLOTS ? target : WEFT_MAX_SLOTS - 1;
		if (flags)
			wc_seq_flags(w, flags);
	}
	c->wcl_seq_ok = true;
	return true;
}

void wc_call_parse(struct wc_call *c, struct xdr_in *x)
{
	struct wc_res r = {.x = x};
	uint32_t n;

	c->wcl_parsed = true;
	r.r_status = xdr_get_u32(x);
	xdr_get_opaque(x, NFS4_OPAQUE_LIMIT, &n); /* the tag */
	r.r_left = xdr_get_u32(x);
	if (r.r_left > c->wcl_nops)
		x->bad = true;
	c->wcl_status = r.r_status;
	/* No results: the COMPOUND itself was refused. */
	if (!x->bad && !r.r_left && r.r_status != NFS4_OK)
		return;
	if (c->wcl_kind->k_bare || get_sequence(c, &r))
		c->wcl_kind->k_got(c, &r);
	if (x->bad || r.r_bad || r.r_left || (r.r_status != NFS4_OK && !r.r_failed))
		c->wcl_err = -EPROTO;
}

struct wc_call *wc_call_take(struct weft *w)
{
	struct wc_call *c = w->w_queue;

	if (!c || !call_slot(c))
		return NULL;
	w->w_queue = c->wcl_next;
	if (!w->w_queue)
		w->w_queue_end = &w->w_queue;
	c->wcl_queued = false;
	call_put(c);
	return c;
}

void wc_call_feed(struct wc_call *c, struct xdr_in *x)
{
	struct xdr_out args = c->wcl_rpc.q_args;

	c->wcl_parsed = false;
	if (!c->wcl_null)
		wc_call_parse(c, x);
	xdr_out_init(&c->wcl_rpc.q_args, 0);
	xdr_out_free(&args);
	call_put_down(c);
}

static void call_reply(struct rpc_req *q, int err, struct xdr_in *x)
{
	struct wc_call *c = caa_container_of(q, struct wc_call, wcl_rpc);

	c->wcl_err = err;
	c->wcl_parsed = false;
	if (!err && c->wcl_conn->cn_client)
		rpc_client_proven(c->wcl_conn->cn_client);
	if (!err && !c->wcl_null)
		wc_call_parse(c, x);
	/* Close a connection that does not answer. That gives the payload back as well. */
	if (err == -ETIMEDOUT && q->q_conn)
		rpc_conn_close(q->q_conn);
	call_put_down(c);
}

/* ---- all of them ---- */

static void queue_expire(struct weft *w, struct wc_call **at, bool all, int err)
{
	while (*at) {
		struct wc_call *c = *at;

		if (!all && !too_old(c)) {
			at = &c->wcl_next;
			continue;
		}
		*at = c->wcl_next;
		c->wcl_queued = false;
		if (c->wcl_slot >= 0 && c->wcl_gen == w->w_gen) {
			w->w_spoiled = true;
			c->wcl_slot = -1;
		}
		call_end(c, err, 0);
	}
}

/* Calls that end may queue others, at the end of the queue. So this goes through the list as it is
 * now. */
static void queues_expire(struct weft *w, bool all, int err)
{
	struct wc_call *old = w->w_queue;

	w->w_queue = NULL;
	w->w_queue_end = &w->w_queue;
	queue_expire(w, &old, all, err);
	*w->w_queue_end = old;
	while (*w->w_queue_end)
		w->w_queue_end = &(*w->w_queue_end)->wcl_next;
	old = w->w_urgent;
	w->w_urgent = NULL;
	queue_expire(w, &old, all, err);
	while (old) {
		struct wc_call *c = old;

		old = c->wcl_next;
		c->wcl_next = w->w_urgent;
		w->w_urgent = c;
	}
}

void wc_calls_expire(struct weft *w)
{
	if (w->w_opts.wo_giveup_ms)
		queues_expire(w, false, -ETIMEDOUT);
}

void wc_calls_fail(struct weft *w, int err)
{
	struct wc_call *c, *next;

	queues_expire(w, true, err);
	for (c = w->w_all; c; c = next) {
		next = c->wcl_all_next;
		if (c->wcl_timer.t_pos) {
			loop_timer_stop(w->w_loop, &c->wcl_timer);
			call_end(c, err, 0);
			next = w->w_all; /* anything may have changed */
		}
	}
}

void wc_null(struct weft *w, struct weft_op *op)
{
	static const struct wc_kind null_kind = {0};
	struct wc_call *c = wc_call_new(w, &null_kind, op, NULL);

	if (!c) {
		wc_op_end(op, -ENOMEM, 0);
		return;
	}
	c->wcl_null = true;
	wc_call_send(c);
}
