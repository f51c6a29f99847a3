/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rpc_rdma_recv.c - receives messages, and the arguments that a call's Read list announces.
 *
 * An inline message is handed out where it was received, and the receive queue gets another buffer
 * in its place. Arguments in chunks are fetched straight into the record. They are placed so that
 * the data of the first chunk begins on a page boundary. The part of the message in front of that
 * data, a few hundred bytes, is copied there.
 */
#include "base/log.h"
#include "proto/rpc_rdma.h"
#include "proto/rpc_rdma_int.h"
#include <errno.h>

/* The most bytes of calls that a connection may have fetched, or be fetching, before they are
 * served. */
#define FETCH_MOST (4u << 20)

/* ---- records ---- */

static void rpc_rdma_recv_ready(struct rd_conn *r, struct rd_in *in)
{
	in->in_next = NULL;
	*r->r_ready_end = in;
	r->r_ready_end = &in->in_next;
}

/* The hook retries what waits for its turn. */
static void fetched_less(struct rd_conn *r, size_t n)
{
	r->r_fetched -= n;
	r->r_port->pt_fetched -= n;
	if (n && r->r_wait)
		rd_stall(r);
}

bool rpc_rdma_next(struct rpc_conn *c, struct rpc_record *rec)
{
	struct rd_conn *r = c->rcn_rdma;
	struct rd_in *in = r ? r->r_ready : NULL;

	if (!in)
		return false;
	r->r_ready = in->in_next;
	if (!r->r_ready)
		r->r_ready_end = &r->r_ready;
	*rec = in->in_rec;
	fetched_less(r, in->in_fetched);
	free(in->in_mem);
	return true;
}

static void chunk_error(struct rd_conn *r, const struct rd_hdr *h, struct rd_call *rc)
{
	free(rc);
	metric_add(rd_m_chunk_errors, 1);
	rd_send_error(r, h->h_xid, h->h_vers, RD_ERR_CHUNK);
}

/* ---- fetching ---- */

static struct rd_op *fetch_new(const struct rd_hdr *h, const struct rd_plan *pl,
			       const struct rd_read *reads, uint32_t lkey, uint8_t *base)
{
	struct rd_op *op = rd_op_new(pl->pl_nreads, pl->pl_nreads);

	if (!op)
		return NULL;
	op->op_xid = h->h_xid;
	for (unsigned i = 0; i < pl->pl_nreads; i++) {
		op->op_sge[i] =
			(struct ibv_sge){(uintptr_t)base + reads[i].rr_at, reads[i].rr_len, lkey};
		op->op_wr[i] = (struct ibv_send_wr){
			.sg_list = &op->op_sge[i], .num_sge = 1, .opcode = IBV_WR_RDMA_READ};
		op->op_wr[i].wr.rdma.remote_addr = reads[i].rr_offset;
		op->op_wr[i].wr.rdma.rkey = reads[i].rr_handle;
		metric_add(rd_m_read_bytes, reads[i].rr_len);
	}
	return op;
}

/* Copies the inline parts to the record. Returns how many bytes that were. Payload in chunks is
 * fetched, and not copied. */
static size_t rpc_rdma_recv_place(const struct rd_hdr *h, const struct rd_plan *pl,
				  const struct rd_copy *copies, uint8_t *base)
{
	size_t copied = 0;

	for (unsigned i = 0; i < pl->pl_ncopies; i++) {
		const struct rd_copy *cp = &copies[i];

		if (cp->cp_from == RD_ZEROS) {
			memset(base + cp->cp_at, 0, cp->cp_len);
			continue;
		}
		memcpy(base + cp->cp_at, h->h_body + cp->cp_from, cp->cp_len);
		copied += cp->cp_len;
	}
	return copied;
}

/*
 * A peer announces as much as it likes, and decides how long its memory takes to answer. So the
 * memory for fetching has bounds: for the connection, for all connections of a port together, and
 * while a connection takes no more calls. One call may always be fetched.
 */
static bool fetch_may(const struct rd_conn *r, size_t len)
{
	size_t all = pool_bytes() / 4 / rd_opts.ro_nloops;

	return !r->r_fetched || (!r->r_c->rcn_paused && r->r_fetched + len <= FETCH_MOST &&
				 r->r_port->pt_fetched + len <= all);
}

/* Returns 0; -EBUSY if others have to end first; -EAGAIN if there is no memory now; any other error
 * if the chunks are at fault. */
static int fetch_begin(struct rd_conn *r, const struct rd_hdr *h, const struct rd_plan *pl,
		       const struct rd_read *reads, const struct rd_copy *copies,
		       struct rd_call *rc)
{
	uint32_t start = (RPC_PAGE - pl->pl_first % RPC_PAGE) % RPC_PAGE, lkey;
	struct rpc_buf *b, *sink = NULL;
	struct rd_op *op;
	size_t copied;

	if (start + pl->pl_len > POOL_MOST)
		start = 0;
	if (!fetch_may(r, (size_t)start + pl->pl_len))
		return -EBUSY;
	b = rd_record_new(r->r_port, (size_t)start + pl->pl_len, &lkey, &sink);
	if (!b)
		return -EAGAIN;
	copied = rpc_rdma_recv_place(h, pl, copies, b->b_data + start);
	op = fetch_new(h, pl, reads, lkey, (sink ? sink : b)->b_data + start);
	if (!op) {
		if (sink)
			rpc_buf_put(sink);
		rpc_buf_put(b);
		return -EAGAIN;
	}
	op->op_sink = sink;
	op->op_in.in_mem = op;
	op->op_in.in_fetched = (size_t)start + pl->pl_len;
	r->r_fetched += op->op_in.in_fetched;
	r->r_port->pt_fetched += op->op_in.in_fetched;
	op->op_in.in_rec = (struct rpc_record){.r_buf = b,
					       .r_data = b->b_data + start,
					       .r_len = pl->pl_len,
					       .r_copied = copied,
					       .r_rdma = rc};
	*r->r_readq_end = op;
	r->r_readq_end = &op->op_next;
	if (!pl->pl_nreads) /* chunks of no length */
		rd_read_completed(r, op);
	return 0;
}

static int rpc_rdma_recv_fetch(struct rd_conn *r, const struct rd_hdr *h, struct rd_call *rc)
{
	size_t nreads = RD_PLAN_READS(h), ncopies = RD_PLAN_COPIES(h),
	       max = r->r_c->rcn_svc.rs_max_record;
	struct rd_read *reads = malloc(nreads * sizeof *reads + ncopies * sizeof(struct rd_copy));
	struct rd_copy *copies;
	struct rd_plan pl;
	int err;

	if (!reads)
		return -EAGAIN;
	copies = (struct rd_copy *)(reads + nreads);
	err = r->r_ord ? rd_plan(h, max < POOL_MOST ? max : POOL_MOST, &pl, reads, copies)
		       : -EOPNOTSUPP;
	if (!err)
		err = fetch_begin(r, h, &pl, reads, copies, rc);
	free(reads);
	return err;
}

/* iWARP: this peer and others can write to the memory of the fetch at any time. So the data moves
 * out of it before anything reads it. */
static void sink_leave(struct rd_op *op)
{
	uint8_t *to = op->op_in.in_rec.r_buf->b_data;

	for (unsigned i = 0; i < op->op_nwr; i++) {
		const uint8_t *from = (const uint8_t *)(uintptr_t)op->op_sge[i].addr;

		memcpy(to + (from - op->op_sink->b_data), from, op->op_sge[i].length);
		op->op_in.in_rec.r_copied += op->op_sge[i].length;
	}
	rpc_buf_put(op->op_sink);
	op->op_sink = NULL;
}

/* The message of a position-zero chunk can be checked only now (RFC 8166 section 4.5.2). */
void rd_read_done(struct rd_conn *r, struct rd_op *op)
{
	struct rpc_record *rec = &op->op_in.in_rec;
	struct rd_hdr h = {.h_xid = op->op_xid, .h_vers = RD_VERS};
	struct xdr_in x;

	if (op->op_sink)
		sink_leave(op);
	xdr_in_init(&x, rec->r_data, rec->r_len);
	if (xdr_get_u32(&x) == op->op_xid && !xdr_get_u32(&x) && !x.bad) {
		rpc_rdma_recv_ready(r, &op->op_in);
		return;
	}
	chunk_error(r, &h, rec->r_rdma);
	fetched_less(r, op->op_in.in_fetched);
	rpc_buf_put(rec->r_buf);
	free(op);
}

/* ---- messages ---- */

/* Queues the message behind others that wait. */
static void wait_for_turn(struct rd_conn *r, struct rd_buf *b)
{
	b->bf_next = NULL;
	*r->r_wait_end = b;
	r->r_wait_end = &b->bf_next;
}

static void wait_for_memory(struct rd_conn *r, struct rd_buf *b)
{
	wait_for_turn(r, b);
	rd_stall(r);
}

/* Handles a call that was counted, and takes b. */
static void call_taken(struct rd_conn *r, struct rd_buf *b, const struct rd_hdr *h)
{
	struct rd_call *rc = NULL;
	int err;

	if (h->h_nreads || h->h_nchunks || h->h_reply) {
		rc = rd_call_new(h);
		if (!rc) {
			wait_for_memory(r, b);
			return;
		}
	}
	if (h->h_proc == RD_MSG && !h->h_nreads) {
		b->bf_in = (struct rd_in){.in_rec = {.r_buf = &b->bf_rpc,
						     .r_data = h->h_body,
						     .r_len = h->h_len,
						     .r_rdma = rc}};
		rpc_rdma_recv_ready(r, &b->bf_in);
		return;
	}
	err = rpc_rdma_recv_fetch(r, h, rc);
	if (err == -EAGAIN || err == -EBUSY) {
		free(rc);
		if (err == -EBUSY)
			wait_for_turn(r, b);
		else
			wait_for_memory(r, b);
		return;
	}
	if (err)
		chunk_error(r, h, rc);
	rd_buf_put(b);
}

/* Counts one more call to answer. Returns false if the peer breaks the rules: it exceeds its
 * credits, or has no receives for our answers. A peer that keeps them has had an answer for each
 * call beyond its credits. That answer was posted, whether or not its completion has come to us. */
static bool rpc_rdma_recv_counted(struct rd_conn *r)
{
	if (++r->r_calls <= r->r_credits)
		return true;
	log_info("rdma: a peer sends more calls than it was granted, or takes no replies");
	rpc_conn_fail(r->r_c, -EPROTO);
	return false;
}

static void call_came(struct rd_conn *r, struct rd_buf *b, const struct rd_hdr *h)
{
	if (!rpc_rdma_recv_counted(r)) {
		rd_buf_put(b);
		return;
	}
	if (r->r_wait && h->h_nreads)
		wait_for_turn(r, b);
	else
		call_taken(r, b, h);
}

/* RFC 8166 section 4.5 requires to discard such a message. Each takes a receive that no credit pays
 * for. So between two replies only as many may come as receives stand behind all credits of the
 * connection. */
static void discard(struct rd_conn *r, struct rd_buf *b)
{
	rd_buf_put(b);
	metric_add(rd_m_discarded, 1);
	if (++r->r_nonsense <= r->r_reserved)
		return;
	log_info("rdma: a peer sends message after message that is no RPC");
	rpc_conn_fail(r->r_c, -EPROTO);
}

/* Handles a reply to a call of ours. Its credit value is how many calls the peer takes (RFC 8167
 * section 4). A reply to no call is discarded: it would lie here for as long as the connection
 * takes nothing. */
static void reply_came(struct rd_conn *r, struct rd_buf *b, const struct rd_hdr *h)
{
	uint32_t placed;
	struct rd_in *in;
	bool direct;

	if (!r->r_back) {
		discard(r, b);
		return;
	}
	r->r_back_max = h->h_credit < 1		     ? 1
			: h->h_credit < r->r_own_max ? h->h_credit
						     : r->r_own_max;
	r->r_back--;
	r->r_mute = false;
	if (!rd_bulk_reply(r, h, &in, &direct, &placed)) {
		discard(r, b);
		return;
	}
	r->r_nonsense = 0;
	if (in) {
		rd_buf_put(b);
		in->in_rec.r_direct = direct;
		rpc_rdma_recv_ready(r, in);
		return;
	}
	b->bf_in = (struct rd_in){.in_rec = {.r_buf = &b->bf_rpc,
					     .r_data = h->h_body,
					     .r_len = h->h_len,
					     .r_direct = direct,
					     .r_placed = placed}};
	rpc_rdma_recv_ready(r, &b->bf_in);
}

/* The chunks show the direction of a message that is not inline: only a call has a Read list, and
 * only we as a client offer Reply chunks. */
static bool is_reply(const struct rd_conn *r, const struct rd_hdr *h)
{
	struct xdr_in x;

	if (h->h_proc == RD_NOMSG)
		return r->r_client && !h->h_nreads;

	xdr_in_init(&x, h->h_body, h->h_len);
	xdr_get_u32(&x);
	return xdr_get_u32(&x) == 1;
}

static void message(struct rd_conn *r, struct rd_buf *b)
{
	struct rd_hdr h;
	enum rd_verdict v = rd_hdr_parse(b->bf_rpc.b_data, b->bf_len, &h);

	if (v == RD_OK && h.h_proc != RD_ERROR) {
		if (is_reply(r, &h))
			reply_came(r, b, &h);
		else
			call_came(r, b, &h);
		return;
	}
	if (v == RD_BAD_VERS || v == RD_BAD_CHUNK) {
		metric_add(rd_m_chunk_errors, 1);
		if (rpc_rdma_recv_counted(r))
			rd_send_error(r, h.h_xid, h.h_vers,
				      v == RD_BAD_VERS ? RD_ERR_VERS : RD_ERR_CHUNK);
	} else if (v == RD_OK && r->r_back) {
		struct rd_in *none;
		uint32_t placed;
		bool direct;

		r->r_back--;
		r->r_mute = false;
		rd_bulk_reply(r, &h, &none, &direct, &placed);
		rpc_req_refused(r->r_c, h.h_xid);
	} else {
		discard(r, b);
		return;
	}
	rd_buf_put(b);
}

void rd_received(struct rd_conn *r, const struct ibv_wc *wc)
{
	struct rd_buf *b = (struct rd_buf *)(uintptr_t)wc->wr_id;

	if (wc->status != IBV_WC_SUCCESS || r->r_ending) {
		rd_buf_put(b);
		if (!r->r_ending && r->r_c) {
			metric_add(rd_m_errors, wc->status != IBV_WC_WR_FLUSH_ERR);
			rpc_conn_fail(r->r_c, -EIO);
		}
		return;
	}
	b->bf_len = wc->byte_len;
	r->r_heard = true;
	r->r_quiet = false;
	message(r, b);
	rd_activate(r);
}

void rd_retry(struct rd_conn *r)
{
	struct rd_buf *b = r->r_wait;

	r->r_wait = NULL;
	r->r_wait_end = &r->r_wait;
	while (b) {
		struct rd_buf *next = b->bf_next;
		struct rd_hdr h;

		if (r->r_ending) {
			rd_buf_put(b);
		} else {
			rd_hdr_parse(b->bf_rpc.b_data, b->bf_len, &h);
			if (r->r_wait)
				wait_for_turn(r, b);
			else
				call_taken(r, b, &h);
		}
		b = next;
	}
	rd_activate(r);
}

/* Frees what was received. The queue pair is gone. */
void rd_recv_free(struct rd_conn *r)
{
	struct rpc_record rec;

	while (r->r_wait) {
		struct rd_buf *b = r->r_wait;

		r->r_wait = b->bf_next;
		rd_buf_put(b);
	}
	while (r->r_c && rpc_rdma_next(r->r_c, &rec)) {
		rpc_buf_put(rec.r_buf);
		free(rec.r_rdma);
	}
	while (r->r_readq) {
		struct rd_op *op = r->r_readq;

		r->r_readq = op->op_next;
		if (op->op_sink)
			rpc_buf_put(op->op_sink);
		rpc_buf_put(op->op_in.in_rec.r_buf);
		free(op->op_in.in_rec.r_rdma);
		free(op);
	}
	r->r_port->pt_fetched -= r->r_fetched;
	r->r_fetched = 0;
}
