/* SPDX-License-Identifier: Apache-2.0 */
/* rpc_req.c - calls of ours: sends them on a connection, matches replies by xid, and ends them by
 * reply, timer or loss of the connection. */
#include "proto/rpc_int.h"
#include <errno.h>

#define REQ_XID_AT 4u

/* Owns the arguments while they are queued: the end of a call must not free them under the send. */
struct req_out {
	struct rpc_out ro_out;
	struct xdr_out ro_x;
};

static void req_out_free(struct rpc_out *o)
{
	struct req_out *ro = caa_container_of(o, struct req_out, ro_out);

	xdr_out_free(&ro->ro_x);
	free(ro);
}

static void req_timer(struct loop_timer *t);

void rpc_req_init(struct rpc_req *q, uint32_t prog, uint32_t vers, uint32_t proc,
		  const struct rpc_cred *cred, size_t limit,
		  void (*done)(struct rpc_req *, int, struct xdr_in *))
{
	struct xdr_out *x = &q->q_args;

	memset(q, 0, sizeof *q);
	q->q_done = done;
	q->q_timer.t_fire = req_timer;
	xdr_out_init(x, SIZE_MAX / 2);
	xdr_put_u64(x, 0); /* mark and xid, later */
	xdr_put_u32(x, 0); /* CALL */
	xdr_put_u32(x, 2);
	xdr_put_u32(x, prog);
	xdr_put_u32(x, vers);
	xdr_put_u32(x, proc);
	rpc_cred_put(x, cred);
	xdr_put_u64(x, 0); /* verifier: AUTH_NONE */
	x->x_limit = x->x_len + limit;
}

/* ---- ending ---- */

void rpc_req_finish(struct rpc_req *q, int err, struct xdr_in *res, struct rpc_buf *buf)
{
	struct xdr_out args = q->q_args;
	struct xdr_in none;

	xdr_in_init(&none, "", 0);
	/* q_done may free q, or use it for the next call. */
	xdr_out_init(&q->q_args, 0);
	q->q_buf = buf;
	q->q_done(q, err, res ? res : &none);
	xdr_out_free(&args);
}

static void req_unlink(struct rpc_req *q)
{
	struct rpc_req **head = &q->q_conn->rcn_reqs[q->q_xid % RPC_XIDS];

	if (q->q_prev)
		q->q_prev->q_next = q->q_next;
	else
		*head = q->q_next;
	if (q->q_next)
		q->q_next->q_prev = q->q_prev;
	q->q_next = q->q_prev = NULL;
	q->q_conn->rcn_nreqs--;
}

static void req_timer(struct loop_timer *t)
{
	struct rpc_req *q = caa_container_of(t, struct rpc_req, q_timer);

	if (!q->q_given_up && (rpc_gate_again(q) || rpc_quiet_again(q)))
		return;
	if (q->q_conn)
		req_unlink(q);
	else if (q->q_client)
		rpc_client_forget(q->q_client, q);
	rpc_req_finish(q, q->q_err, NULL, NULL);
}

void rpc_req_fail_later(struct loop *l, struct rpc_req *q, int err)
{
	q->q_conn = NULL;
	q->q_client = NULL;
	q->q_err = err;
	q->q_loop = l;
	loop_timer_start(l, &q->q_timer, 0);
}

void rpc_req_give_up(struct rpc_req *q)
{
	q->q_given_up = true;
	loop_timer_start(q->q_loop, &q->q_timer, 0);
}

void rpc_req_lost(struct rpc_conn *c)
{
	for (unsigned i = 0; c->rcn_reqs && i < RPC_XIDS; i++)
		while (c->rcn_reqs[i]) {
			struct rpc_req *q = c->rcn_reqs[i];

			req_unlink(q);
			loop_timer_stop(c->rcn_loop, &q->q_timer);
			rpc_req_finish(q, -ECONNRESET, NULL, NULL);
		}
}

/* ---- sending ---- */

static struct rpc_req *req_find(const struct rpc_conn *c, uint32_t xid)
{
	struct rpc_req *q = c->rcn_reqs ? c->rcn_reqs[xid % RPC_XIDS] : NULL;

	while (q && q->q_xid != xid)
		q = q->q_next;
	return q;
}

bool rpc_req_is_out(const struct rpc_conn *c, uint32_t xid)
{
	return req_find(c, xid);
}

static void req_link(struct rpc_conn *c, struct rpc_req *q)
{
	struct rpc_req **head;

	do
		q->q_xid = c->rcn_xid++;
	while (req_find(c, q->q_xid));
	q->q_conn = c;
	head = &c->rcn_reqs[q->q_xid % RPC_XIDS];
	q->q_prev = NULL;
	q->q_next = *head;
	if (*head)
		(*head)->q_prev = q;
	*head = q;
	c->rcn_nreqs++;
}

void rpc_req_send(struct rpc_conn *c, struct rpc_req *q, uint32_t timeout_ms)
{
	struct req_out *ro;

	q->q_loop = c->rcn_loop;
	q->q_client = NULL;
	if (c->rcn_dead || q->q_args.bad) {
		rpc_req_fail_later(c->rcn_loop, q, c->rcn_dead ? -ECONNRESET : -EMSGSIZE);
		return;
	}
	if (!c->rcn_reqs)
		c->rcn_reqs = calloc(RPC_XIDS, sizeof *c->rcn_reqs);
	ro = c->rcn_reqs ? malloc(sizeof *ro) : NULL;
	if (!ro) {
		rpc_req_fail_later(c->rcn_loop, q, -ENOMEM);
		return;
	}
	req_link(c, q);
	if (!rpc_quiet_sent(c)) {
		req_unlink(q);
		free(ro);
		rpc_req_fail_later(c->rcn_loop, q, -ENOMEM);
		return;
	}
	q->q_sent_ns = loop_now_ns(c->rcn_loop);
	q->q_err = -ETIMEDOUT;
	q->q_timeout_ms = timeout_ms;
	if (!q->q_limit_ms)
		q->q_limit_ms = timeout_ms;
	q->q_opened = store_lease_opened(c->rcn_rl->rl_lease);
	if (timeout_ms)
		loop_timer_start(c->rcn_loop, &q->q_timer, timeout_ms);
	xdr_patch_u32(&q->q_args, REQ_XID_AT, q->q_xid);
	rpc_out_mark(&q->q_args);
	ro->ro_x = q->q_args;
	ro->ro_out = (struct rpc_out){
		.o_x = &ro->ro_x, .o_free = req_out_free, .o_reply_max = q->q_reply_max};
	xdr_out_init(&q->q_args, 0);
	rpc_conn_out(c, &ro->ro_out);
	rpc_conn_unpause(c);
}

/* ---- replies ---- */

void rpc_req_reply(struct rpc_conn *c, struct rpc_record *r)
{
	struct rpc_req *q;
	struct xdr_in x;
	int err;

	xdr_in_init(&x, r->r_data, r->r_len);
	q = req_find(c, xdr_get_u32(&x));
	xdr_get_u32(&x); /* direction */
	if (q) {
		err = rpc_reply_parse(&x);
		if (err)
			metric_add(rpc_m_bad_replies, 1);
		q->q_direct = r->r_direct;
		q->q_placed = r->r_placed;
		rpc_quiet_reply(q);
		req_unlink(q);
		loop_timer_stop(c->rcn_loop, &q->q_timer);
		rpc_req_finish(q, err, &x, r->r_buf);
	} else {
		/* A late reply, after its call's timeout, or one to a call that never was. */
		metric_add(rpc_m_bad_replies, 1);
	}
	rpc_buf_put(r->r_buf);
}

void rpc_req_refused(struct rpc_conn *c, uint32_t xid)
{
	struct rpc_req *q = req_find(c, xid);

	if (!q)
		return;
	metric_add(rpc_m_bad_replies, 1);
	req_unlink(q);
	rpc_req_fail_later(c->rcn_loop, q, -EPROTO);
}

struct rpc_buf *rpc_req_keep(struct rpc_req *q)
{
	q->q_buf->b_refs++;
	return q->q_buf;
}
