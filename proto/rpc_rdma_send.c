/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rpc_rdma_send.c - sending: the send queue, replies, calls of ours; and a connection's life on its
 * loop.
 *
 * The send queue. Sends and RDMA Writes have numbers, and complete in that order. Only some of them
 * are signaled. A completion with number n says that all up to n are done. RDMA Reads are signaled
 * by themselves, once for each batch: siw completes a request that was posted behind a Read before
 * the Read's answer is there. siw also sends the memory of an unsignaled request by reference, and
 * may send it again after a later request has completed: on iWARP all requests are signaled. The
 * queue is posted in one chain per turn, as far as the send queue of the device has room.
 *
 * A reply. Payload that was put by reference goes where the call's Write list says, straight from
 * its memory, whatever its length. The rest goes behind the header in one Send or, if it is too
 * long for the peer, by RDMA Write into the Reply chunk.
 */
#include "base/log.h"
#include "proto/rpc_rdma.h"
#include "proto/rpc_rdma_int.h"
#include <assert.h>
#include <errno.h>

/* The low bits of a wr_id. A receive's wr_id is its buffer. An RDMA Read's is its op, which lives
 * until the completion if nothing failed. */
#define ID_BITS	 3u
#define SEND_ID	 1u
#define READ_ID	 2u
#define DRAIN_ID UINT64_MAX
#define DRAIN_MS 1000u

static struct metric *m_copied, *m_undrained;

__attribute__((constructor)) static void send_metrics_make(void)
{
	m_copied = metric_counter(
		"weft_rdma_copied_bytes_total",
		"Payload bytes that lay outside of registered memory and were copied to be sent.",
		"");
	m_undrained = metric_counter(
		"weft_rdma_undrained_total",
		"Queue pairs destroyed before their device said that they had ended.", "");
}

/* ---- work requests ---- */

struct rd_op *rd_op_new(unsigned nwr, unsigned nsge)
{
	struct rd_op *op = malloc(sizeof *op + nwr * sizeof *op->op_wr + nsge * sizeof *op->op_sge);

	if (!op)
		return NULL;
	memset(op, 0, sizeof *op);
	op->op_nwr = nwr;
	op->op_wr = (struct ibv_send_wr *)(op + 1);
	op->op_sge = (struct ibv_sge *)(op->op_wr + nwr);
	return op;
}

void rd_op_free(struct rd_conn *r, struct rd_op *op)
{
	struct rpc_conn *c = r->r_c;
	struct rpc_out *o = op->op_out;

	if (op->op_head)
		rd_buf_put(op->op_head);
	while (op->op_mem) {
		struct rpc_buf *b = op->op_mem;

		op->op_mem = b->b_next;
		rpc_buf_put(b);
	}
	free(op);
	if (!o)
		return;
	if (o->o_reply)
		c->rcn_queued -= rpc_out_len(o);
	o->o_free(o);
}

struct chain {
	struct ibv_send_wr *ch_first, *ch_last;
	unsigned ch_n, ch_told;
};

static unsigned rpc_rdma_send_room(const struct rd_conn *r)
{
	return r->r_depth - (unsigned)(r->r_seq - r->r_done) - r->r_reads;
}

static void chain_put(struct chain *ch, struct ibv_send_wr *wr)
{
	wr->next = NULL;
	if (ch->ch_last)
		ch->ch_last->next = wr;
	else
		ch->ch_first = wr;
	ch->ch_last = wr;
	ch->ch_n++;
}

static void chain_tell(struct chain *ch, struct ibv_send_wr *wr)
{
	ch->ch_told += !(wr->send_flags & IBV_SEND_SIGNALED);
	wr->send_flags |= IBV_SEND_SIGNALED;
}

static void chain_send(struct rd_conn *r, struct chain *ch, struct ibv_send_wr *wr, bool tell)
{
	wr->wr_id = ++r->r_seq << 2 | SEND_ID;
	if (tell || r->r_dev->dv_iwarp || r->r_seq - r->r_signaled >= r->r_depth / 4) {
		chain_tell(ch, wr);
		r->r_signaled = r->r_seq;
	}
	chain_put(ch, wr);
}

/* Chains as many RDMA Reads as the peer takes at once. More of them would hold up what is behind
 * them (RFC 8166 section 3.1). */
static void chain_reads(struct rd_conn *r, struct chain *ch)
{
	for (struct rd_op *op = r->r_readq; op && r->r_reads < r->r_ord && rpc_rdma_send_room(r);
	     op = op->op_next) {
		unsigned n = op->op_nwr - op->op_posted;

		if (op->op_batch || !n)
			continue;
		if (n > r->r_ord - r->r_reads)
			n = r->r_ord - r->r_reads;
		if (n > rpc_rdma_send_room(r))
			n = rpc_rdma_send_room(r);
		for (unsigned i = 0; i < n; i++) {
			op->op_wr[op->op_posted + i].wr_id = (uintptr_t)op | READ_ID;
			chain_put(ch, &op->op_wr[op->op_posted + i]);
		}
		chain_tell(ch, ch->ch_last);
		op->op_posted += n;
		op->op_batch = n;
		r->r_reads += n;
	}
}

/* A posted op keeps its memory until it completes. A peer that takes nothing gets no more memory
 * than this; from then on its calls count (counted()). A peer that takes data, but whose
 * completions are late, waits. */
static bool may_post(const struct rd_conn *r)
{
	return rpc_rdma_send_room(r) && r->r_ops < 4 * r->r_credits + r->r_own_max;
}

static void chain_sends(struct rd_conn *r, struct chain *ch)
{
	while (r->r_txq && may_post(r)) {
		struct rd_op *op = r->r_txq;

		while (op->op_posted < op->op_nwr && rpc_rdma_send_room(r)) {
			bool last = op->op_posted + 1 == op->op_nwr;

			/* Signal the last request of an op with payload, to get the payload's
			 * memory back. */
			chain_send(r, ch, &op->op_wr[op->op_posted++], last && op->op_nwr > 1);
		}
		if (op->op_posted < op->op_nwr)
			return;
		op->op_last = r->r_seq;
		r->r_ops++;
		r->r_calls -= op->op_answer;
		r->r_txq = op->op_next;
		if (!r->r_txq)
			r->r_txq_end = &r->r_txq;
		op->op_next = NULL;
		*r->r_sent_end = op;
		r->r_sent_end = &op->op_next;
	}
}

void rd_post(struct rd_conn *r)
{
	struct chain ch = {0};
	struct ibv_send_wr *bad;

	if (r->r_ending)
		return;
	chain_reads(r, &ch);
	if (!r->r_txq || !rpc_gate_shut(r->r_c))
		chain_sends(r, &ch);
	if (!ch.ch_n)
		return;
	if ((ch.ch_last->wr_id & ID_BITS) == SEND_ID) {
		chain_tell(&ch, ch.ch_last);
		r->r_signaled = r->r_seq;
	}
	metric_add(rd_m_wrs, ch.ch_n);
	metric_add(rd_m_signaled, ch.ch_told);
	metric_add(rd_m_doorbells, 1);
	if (ibv_post_send(r->r_qp, ch.ch_first, &bad))
		rpc_conn_fail(r->r_c, -EIO);
	else
		rd_activate(r);
}

static void enqueue(struct rd_conn *r, struct rd_op *op)
{
	op->op_next = NULL;
	*r->r_txq_end = op;
	r->r_txq_end = &op->op_next;
}

void rd_read_completed(struct rd_conn *r, struct rd_op *op)
{
	struct rd_op **at = &r->r_readq;

	r->r_reads -= op->op_batch;
	op->op_batch = 0;
	if (op->op_posted < op->op_nwr)
		return;
	while (*at != op)
		at = &(*at)->op_next;
	*at = op->op_next;
	if (!*at)
		r->r_readq_end = at;
	rd_read_done(r, op);
}

static void completed(struct rd_conn *r, uint64_t seq)
{
	if (seq > r->r_done)
		r->r_done = seq;
	while (r->r_sent && r->r_sent->op_last <= r->r_done) {
		struct rd_op *op = r->r_sent;

		r->r_sent = op->op_next;
		if (!r->r_sent)
			r->r_sent_end = &r->r_sent;
		r->r_ops--;
		rd_op_free(r, op);
	}
}

/* ---- replies ---- */

/* A reply being put together. */
struct reply {
	struct rd_conn *rp_r;
	struct xdr_out *rp_x;
	struct rd_call *rp_rc;
	uint32_t rp_xid;
	uint64_t rp_moved; /* splices that go to Write chunks, by bit */
	unsigned rp_first[XDR_SPLICES], rp_nsegs[XDR_SPLICES]; /* their segments */
	size_t rp_stream; /* bytes left of the Payload stream */
};

_Static_assert(XDR_SPLICES <= 64, "rp_moved has a bit for each");

static uint32_t roundup(uint32_t len)
{
	return -len & 3;
}

/* RFC 8267 section 6.4.1: the n-th item goes to the n-th chunk; an empty chunk asks for it inline.
 * Returns false if a chunk is too small. */
static bool deal(struct reply *rp)
{
	struct rd_call *rc = rp->rp_rc;
	struct xdr_out *x = rp->rp_x;

	rp->rp_stream = x->x_len + x->x_payload - RPC_MARK;
	if (!rc || rc->rc_no_ddp)
		return true;
	for (unsigned i = 0, item = 0; i < x->x_nsplice && item < rc->rc_nchunks; i++) {
		unsigned first, n;
		uint32_t len = x->x_splice[i].sp_len;

		if (x->x_splice[i].sp_stays)
			continue;
		first = rc->rc_chunk[item];
		n = rc->rc_chunk[++item] - first;
		if (!n)
			continue;
		if (!rd_fill(rc->rc_segs + first, n, len))
			return false;
		rp->rp_moved |= 1ull << i;
		rp->rp_first[i] = first;
		rp->rp_nsegs[i] = n;
		rp->rp_stream -= len + roundup(len);
	}
	return true;
}

static uint8_t *op_memory(struct rd_conn *r, struct rd_op *op, size_t len, uint32_t *lkey)
{
	struct rpc_buf *b = rd_memory_new(r->r_port, len, lkey);

	if (!b)
		return NULL;
	b->b_next = op->op_mem;
	op->op_mem = b;
	return b->b_data;
}

/* Copies payload that is not in registered memory. */
static bool bounce(struct reply *rp, struct rd_op *op, struct rd_src *s)
{
	uint8_t *p = op_memory(rp->rp_r, op, s->sr_len, &s->sr_lkey);

	if (!p)
		return false;
	memcpy(p, s->sr_p, s->sr_len);
	s->sr_p = p;
	metric_add(m_copied, s->sr_len);
	return true;
}

static bool source(struct reply *rp, struct rd_op *op, const struct xdr_splice *sp,
		   struct rd_src *s)
{
	*s = (struct rd_src){sp->sp_data, sp->sp_len, rd_lkey(rp->rp_r->r_dev, sp->sp_data)};
	return s->sr_lkey || !s->sr_len || bounce(rp, op, s);
}

/* Lists the Payload stream as sources, in order: the head's bytes, without those that belong to
 * moved splices, and between them the unmoved splices. at: where the head is copied to, in a buffer
 * with this lkey. */
static unsigned stream(struct reply *rp, uint8_t *at, uint32_t lkey, const struct rd_src *splices,
		       struct rd_src *src)
{
	const struct xdr_out *x = rp->rp_x;
	size_t from = RPC_MARK;
	unsigned n = 0;

	for (unsigned i = 0; i <= x->x_nsplice; i++) {
		size_t end = i < x->x_nsplice ? x->x_splice[i].sp_at : x->x_len;
		bool moved = rp->rp_moved >> i & 1;

		if (end > from) {
			memcpy(at, x->x_head + from, end - from);
			if (n && src[n - 1].sr_p + src[n - 1].sr_len == at)
				src[n - 1].sr_len += (uint32_t)(end - from);
			else
				src[n++] = (struct rd_src){at, (uint32_t)(end - from), lkey};
			at += end - from;
		}
		from = end;
		if (i == x->x_nsplice)
			break;
		if (moved)
			from += roundup(x->x_splice[i].sp_len);
		else if (splices[i].sr_len)
			src[n++] = splices[i];
	}
	return n;
}

/* Copies the pieces into one, if a Send does not take so many. */
static bool flatten(struct reply *rp, struct rd_op *op, struct rd_src *src, unsigned *nsrc)
{
	uint32_t lkey, len = 0;
	uint8_t *p = op_memory(rp->rp_r, op, RD_INLINE, &lkey);

	if (!p)
		return false;
	for (unsigned i = 0; i < *nsrc; i++) {
		memcpy(p + len, src[i].sr_p, src[i].sr_len);
		len += src[i].sr_len;
	}
	for (unsigned i = 0; i < rp->rp_x->x_nsplice; i++)
		metric_add(m_copied, rp->rp_moved >> i & 1 ? 0 : rp->rp_x->x_splice[i].sp_len);
	src[0] = (struct rd_src){p, len, lkey};
	*nsrc = 1;
	return true;
}

/* siw copies up to 32 bytes into its header. It copies them wrongly if they lie across a page and
 * its own thread sends them. It does not copy bytes that are in two parts. */
#define SLIVER 32u

/* Returns the length of the first of two parts of s, or 0 if s may go as it is. */
static uint32_t sliver_cut(const struct rd_conn *r, const struct rd_src *s)
{
	uint32_t page = RPC_PAGE - (uint32_t)((uintptr_t)s->sr_p % RPC_PAGE);

	return r->r_dev->dv_iwarp && r->r_max_sge > 1 && s->sr_len <= SLIVER && s->sr_len > page
		       ? page
		       : 0;
}

static void put_writes(const struct rd_conn *r, struct rd_op *op, unsigned *nwr, unsigned *nsge,
		       const struct rd_cut *cuts, unsigned ncuts, const struct rd_src *pieces)
{
	for (unsigned i = 0; i < ncuts; i++) {
		struct ibv_send_wr *wr = &op->op_wr[(*nwr)++];

		*wr = (struct ibv_send_wr){.sg_list = &op->op_sge[*nsge],
					   .num_sge = (int)cuts[i].ct_n,
					   .opcode = IBV_WR_RDMA_WRITE};
		wr->wr.rdma.remote_addr = cuts[i].ct_offset;
		wr->wr.rdma.rkey = cuts[i].ct_handle;
		for (unsigned k = 0; k < cuts[i].ct_n; k++) {
			const struct rd_src *s = &pieces[cuts[i].ct_first + k];
			uint32_t first = cuts[i].ct_n == 1 ? sliver_cut(r, s) : 0;

			if (first) {
				op->op_sge[(*nsge)++] =
					(struct ibv_sge){(uintptr_t)s->sr_p, first, s->sr_lkey};
				wr->num_sge = 2;
			}
			op->op_sge[(*nsge)++] = (struct ibv_sge){(uintptr_t)s->sr_p + first,
								 s->sr_len - first, s->sr_lkey};
			metric_add(rd_m_write_bytes, s->sr_len);
		}
	}
}

struct builder {
	struct rd_op *b_op;
	unsigned b_nwr, b_nsge;
	struct rd_cut *b_cuts;
	struct rd_src *b_pieces;
};

static void build_writes(struct reply *rp, struct builder *b, const struct rd_wseg *segs,
			 unsigned nsegs, const struct rd_src *src, unsigned nsrc)
{
	unsigned npieces, ncuts = rd_cut(segs, nsegs, src, nsrc, rp->rp_r->r_max_sge, b->b_cuts,
					 b->b_pieces, &npieces);

	put_writes(rp->rp_r, b->b_op, &b->b_nwr, &b->b_nsge, b->b_cuts, ncuts, b->b_pieces);
}

static void build_send(struct reply *rp, struct builder *b, uint32_t hdr_len,
		       const struct rd_src *src, unsigned nsrc)
{
	struct rd_op *op = b->b_op;
	struct ibv_send_wr *wr = &op->op_wr[b->b_nwr++];
	const struct rd_call *rc = rp->rp_rc;

	*wr = (struct ibv_send_wr){
		.sg_list = &op->op_sge[b->b_nsge], .num_sge = 1, .opcode = IBV_WR_SEND};
	op->op_sge[b->b_nsge] = (struct ibv_sge){(uintptr_t)op->op_head->bf_rpc.b_data, hdr_len,
						 op->op_head->bf_lkey};
	for (unsigned i = 0; i < nsrc; i++) {
		struct ibv_sge *last = &op->op_sge[b->b_nsge];

		if (last->addr + last->length == (uintptr_t)src[i].sr_p &&
		    last->lkey == src[i].sr_lkey) {
			last->length += src[i].sr_len;
			continue;
		}
		op->op_sge[++b->b_nsge] =
			(struct ibv_sge){(uintptr_t)src[i].sr_p, src[i].sr_len, src[i].sr_lkey};
		wr->num_sge++;
	}
	b->b_nsge++;
	if (rc && rc->rc_has_inv && rp->rp_r->r_inv) {
		wr->opcode = IBV_WR_SEND_WITH_INV;
		wr->invalidate_rkey = rc->rc_inv;
	}
	op->op_nwr = b->b_nwr;
}

enum built { BUILT, TOO_LONG, NO_MEMORY };

static enum built rpc_rdma_send_build(struct reply *rp, struct builder *b)
{
	struct rd_conn *r = rp->rp_r;
	struct rd_call *rc = rp->rp_rc;
	struct rd_src splices[XDR_SPLICES], src[2 * XDR_SPLICES + 1];
	size_t hdr = rd_reply_hdr_len(rc);
	uint8_t *head = b->b_op->op_head->bf_rpc.b_data;
	uint32_t lkey = b->b_op->op_head->bf_lkey;
	unsigned nsrc;
	bool is_long;

	if (hdr > r->r_send_max)
		return TOO_LONG;
	is_long = hdr + rp->rp_stream > r->r_send_max;
	if (is_long && (!rc || !rc->rc_reply || rp->rp_x->x_len > POOL_MOST ||
			!rd_fill(rd_reply_segs(rc), rc->rc_nreply, rp->rp_stream)))
		return TOO_LONG;
	for (unsigned i = 0; i < rp->rp_x->x_nsplice; i++) {
		if (rp->rp_x->x_splice[i].sp_len > POOL_MOST) /* there is never memory for a copy */
			return TOO_LONG;
		if (!source(rp, b->b_op, &rp->rp_x->x_splice[i], &splices[i]))
			return NO_MEMORY;
		if (rp->rp_moved >> i & 1)
			build_writes(rp, b, rc->rc_segs + rp->rp_first[i], rp->rp_nsegs[i],
				     &splices[i], 1);
	}
	if (!is_long) {
		nsrc = stream(rp, head + hdr, lkey, splices, src);
		if (nsrc > r->r_max_sge && !flatten(rp, b->b_op, src, &nsrc))
			return NO_MEMORY;
	} else {
		uint8_t *at = op_memory(r, b->b_op, rp->rp_x->x_len, &lkey);

		if (!at)
			return NO_MEMORY;
		nsrc = stream(rp, at, lkey, splices, src);
		build_writes(rp, b, rd_reply_segs(rc), rc->rc_nreply, src, nsrc);
		nsrc = 0;
	}
	rd_reply_hdr_put(head, rp->rp_xid, r->r_credits, is_long ? RD_NOMSG : RD_MSG, rc);
	build_send(rp, b, (uint32_t)hdr, src, nsrc);
	return BUILT;
}

/* The most RDMA Writes that the reply can take, and the most pieces in them: each piece ends with a
 * segment or with a source. */
static unsigned most_writes(const struct reply *rp)
{
	return rp->rp_rc ? rp->rp_rc->rc_nsegs + rp->rp_rc->rc_nreply + 3 * XDR_SPLICES + 1 : 0;
}

static enum built reply_build(struct reply *rp, struct rd_op **out)
{
	unsigned most = most_writes(rp);
	unsigned parts = rp->rp_r->r_dev->dv_iwarp ? 2 * most : most;
	struct builder b = {.b_op = rd_op_new(most + 1, parts + 2 * XDR_SPLICES + 2)};
	enum built res = NO_MEMORY;

	if (!b.b_op)
		return NO_MEMORY;
	b.b_pieces = malloc((most + 1) * (sizeof *b.b_pieces + sizeof *b.b_cuts));
	b.b_cuts = (struct rd_cut *)(b.b_pieces + most + 1);
	b.b_op->op_head = rd_buf_get(rp->rp_r->r_port);
	if (b.b_pieces && b.b_op->op_head)
		res = rpc_rdma_send_build(rp, &b);
	free(b.b_pieces);
	if (res == BUILT)
		*out = b.b_op;
	else
		rd_op_free(rp->rp_r, b.b_op);
	return res;
}

/* Returns false if there is no memory now. o is then still the first that waits. */
static bool reply_send(struct rd_conn *r, struct rpc_out *o)
{
	struct reply rp = {.rp_r = r, .rp_x = o->o_x, .rp_rc = o->o_rdma};
	enum built res = TOO_LONG;
	struct rd_op *op;

	if (rd_receives_late(r))
		return false;
	memcpy(&rp.rp_xid, o->o_x->x_head + RPC_MARK, 4);
	rp.rp_xid = be32toh(rp.rp_xid);
	if (deal(&rp))
		res = reply_build(&rp, &op);
	if (res == NO_MEMORY)
		return false;
	if (res == TOO_LONG) {
		struct rpc_conn *c = r->r_c;

		metric_add(rd_m_chunk_errors, 1);
		rd_send_error(r, rp.rp_xid, RD_VERS, RD_ERR_CHUNK);
		c->rcn_queued -= rpc_out_len(o);
		o->o_free(o);
		return true;
	}
	op->op_out = o;
	op->op_answer = true;
	r->r_nonsense = 0;
	enqueue(r, op);
	return true;
}

void rd_send_error(struct rd_conn *r, uint32_t xid, uint32_t vers, enum rd_errcode err)
{
	struct rd_op *op = rd_op_new(1, 1);

	if (op)
		op->op_head = rd_buf_get(r->r_port);
	if (!op || !op->op_head) {
		free(op);
		rpc_conn_fail(r->r_c, -ENOMEM); /* RFC 8166 section 4.5.4 */
		return;
	}
	op->op_sge[0] = (struct ibv_sge){
		(uintptr_t)op->op_head->bf_rpc.b_data,
		(uint32_t)rd_error_put(op->op_head->bf_rpc.b_data, xid, vers, r->r_credits, err),
		op->op_head->bf_lkey};
	op->op_wr[0] =
		(struct ibv_send_wr){.sg_list = op->op_sge, .num_sge = 1, .opcode = IBV_WR_SEND};
	op->op_answer = true;
	enqueue(r, op);
}

void rd_probe(struct rd_conn *r)
{
	struct rd_op *op = r->r_ending || !r->r_up || r->r_txq || r->r_seq != r->r_done
				   ? NULL
				   : rd_op_new(1, 0);

	if (!op)
		return;
	op->op_wr[0] = (struct ibv_send_wr){.opcode = IBV_WR_RDMA_WRITE};
	enqueue(r, op);
	rd_post(r);
}

/* ---- calls of ours: inline; where we are the client, long ones in chunks (RFC 8167 section 5.3
 * has no chunks in the backward direction) ---- */

static bool rpc_rdma_send_call_send(struct rd_conn *r, struct rpc_out *o)
{
	const struct xdr_out *x = o->o_x;
	struct iovec iov[2 * XDR_SPLICES + 1];
	unsigned n = xdr_out_iov(x, iov);
	size_t len = x->x_len + x->x_payload - RPC_MARK;
	struct rd_op *op;
	uint32_t xid;
	uint8_t *p;

	bool bulk = r->r_client && (o->o_reply_max || RD_HDR_MIN + len > r->r_send_max),
	     kept = false;
	uint32_t sent = (uint32_t)(RD_HDR_MIN + len);
	int err = 0;

	if (!bulk && RD_HDR_MIN + len > r->r_send_max) {
		memcpy(&xid, x->x_head + RPC_MARK, 4);
		rpc_req_refused(r->r_c, be32toh(xid));
		o->o_free(o);
		return true;
	}
	op = rd_op_new(1, 1);
	if (op)
		op->op_head = rd_buf_get(r->r_port);
	if (!op || !op->op_head) {
		free(op);
		return false;
	}
	memcpy(&xid, x->x_head + RPC_MARK, 4);
	p = op->op_head->bf_rpc.b_data;
	if (bulk)
		err = rd_bulk_call(r, o, be32toh(xid), p, &sent, &kept);
	else
		p += rd_reply_hdr_put(p, be32toh(xid), r->r_own_max, RD_MSG, NULL);
	if (err) {
		rd_op_free(r, op);
		if (err == -EAGAIN)
			return false;
		rpc_req_refused(r->r_c, be32toh(xid));
		o->o_free(o);
		return true;
	}
	for (unsigned i = 0, skip = RPC_MARK; i < n && !bulk; i++, skip = 0) {
		memcpy(p, (uint8_t *)iov[i].iov_base + skip, iov[i].iov_len - skip);
		p += iov[i].iov_len - skip;
	}
	op->op_sge[0] =
		(struct ibv_sge){(uintptr_t)op->op_head->bf_rpc.b_data, sent, op->op_head->bf_lkey};
	op->op_wr[0] =
		(struct ibv_send_wr){.sg_list = op->op_sge, .num_sge = 1, .opcode = IBV_WR_SEND};
	op->op_out = kept ? NULL : o;
	r->r_back++;
	enqueue(r, op);
	return true;
}

static void backlog_send(struct rd_conn *r)
{
	if (r->r_backlog && rpc_gate_shut(r->r_c))
		return;
	while (r->r_up && r->r_backlog && r->r_back < r->r_back_max) {
		struct rpc_out *o = r->r_backlog, *next = o->o_next;

		if (!rpc_rdma_send_call_send(r, o)) {
			rd_stall(r);
			return;
		}
		r->r_backlog = next;
		if (!next)
			r->r_backlog_end = &r->r_backlog;
	}
}

void rpc_rdma_send(struct rpc_conn *c)
{
	struct rd_conn *r = c->rcn_rdma;
	bool shut = c->rcn_outs && rpc_gate_shut(c);

	while (c->rcn_outs && !r->r_ending && !shut) {
		struct rpc_out *o = c->rcn_outs, *next = o->o_next;

		if (o->o_reply && !reply_send(r, o)) {
			rd_stall(r);
			break;
		}
		c->rcn_outs = next;
		if (!next)
			c->rcn_outs_end = &c->rcn_outs;
		if (!o->o_reply) {
			o->o_next = NULL;
			*r->r_backlog_end = o;
			r->r_backlog_end = &o->o_next;
		}
	}
	backlog_send(r);
	rd_post(r);
}

void rd_send_free(struct rd_conn *r)
{
	struct rd_op **lists[] = {&r->r_txq, &r->r_sent};

	for (unsigned i = 0; i < 2; i++)
		while (*lists[i]) {
			struct rd_op *op = *lists[i];

			*lists[i] = op->op_next;
			rd_op_free(r, op);
		}
	while (r->r_backlog) {
		struct rpc_out *o = r->r_backlog;

		r->r_backlog = o->o_next;
		o->o_free(o);
	}
}

/* ---- a connection's life on its loop ---- */

static void drain_timer(struct loop_timer *t);

void rd_prepare(struct loop_msg *m)
{
	struct rd_conn *r = caa_container_of(m, struct rd_conn, r_prepare_msg);
	struct rpc_conn *c = rpc_conn_new(-1, r->r_port->pt_loop, &r->r_svc, &r->r_peer);

	r->r_drain_timer.t_fire = drain_timer;
	r->r_back_max = 1;
	r->r_up = !r->r_client;
	rd_qp_add(r);
	if (!c) {
		r->r_ending = r->r_destroying = true;
		rd_cmd(&r->r_destroy, CM_DESTROY, r);
		return;
	}
	c->rcn_rdma = r;
	c->rcn_receiving = true; /* until the queue pair is gone */
	c->rcn_refs++;
	r->r_c = c;
	r->r_credits = rd_reserve(r, r->r_client ? RD_BACK_CALLS : rd_opts.ro_credits);
	c->rcn_refs++; /* the service may close it when it opens */
	rpc_conn_start(c);
	if (!r->r_credits) {
		log_warn("rdma: refused a connection: no receives are left for it (rdma.receives)");
		rpc_conn_fail(c, -ENOBUFS);
	}
	rd_arrive(r);
	rpc_conn_put(c);
}

static void rpc_rdma_send_dial_done(struct rd_conn *r, int err)
{
	struct rpc_rdma_dial *dl = r->r_dial;

	r->r_dial = NULL;
	if (dl)
		rd_dial_done(dl, err, r->r_c);
}

/* The connection that we asked for is up. */
void rd_up(struct loop_msg *m)
{
	struct rd_conn *r = caa_container_of(m, struct rd_conn, r_up_msg);

	r->r_up = true;
	rpc_rdma_send_dial_done(r, r->r_c && !r->r_ending ? 0 : -ECONNRESET);
	if (!r->r_ending)
		rpc_rdma_send(r->r_c);
}

void rd_fail(struct loop_msg *m)
{
	struct rd_conn *r = caa_container_of(m, struct rd_conn, r_fail_msg);
	int err = atomic_load(&r->r_fail);

	if (r->r_c)
		rpc_conn_fail(r->r_c, err);
	rpc_rdma_send_dial_done(r, err);
}

void rpc_rdma_end(struct rpc_conn *c)
{
	struct rd_conn *r = c->rcn_rdma;

	r->r_ending = true;
	rd_cmd(&r->r_disconnect, CM_DISCONNECT, r);
}

/* The queue pair is in its error state and gives back what it has, in order. The request that is
 * posted here comes back last. */
void rd_drain(struct loop_msg *m)
{
	struct rd_conn *r = caa_container_of(m, struct rd_conn, r_drain_msg);
	struct ibv_send_wr wr = {.wr_id = DRAIN_ID,
				 .opcode = IBV_WR_SEND,
				 .send_flags = IBV_SEND_SIGNALED},
			   *bad;

	/* siw has flushed everything when the queue pair is in its error state, and reports no
	 * more. */
	r->r_drained = r->r_dev->dv_iwarp || ibv_post_send(r->r_qp, &wr, &bad) != 0;
	loop_timer_start(r->r_port->pt_loop, &r->r_drain_timer, DRAIN_MS);
	rd_activate(r);
}

static void rpc_rdma_send_destroy(struct rd_conn *r)
{
	loop_timer_stop(r->r_port->pt_loop, &r->r_drain_timer);
	rd_shared_empty(r->r_port);
	r->r_destroying = true;
	rd_cmd(&r->r_destroy, CM_DESTROY, r);
}

/* True if no more completions can come, neither of its own nor of the shared queue. */
static bool rpc_rdma_send_drained(const struct rd_conn *r)
{
	return r->r_drained &&
	       (!r->r_port->pt_srq || !r->r_dev->dv_says_last || atomic_load(&r->r_last));
}

/* Some devices do not give back everything, or do not say that they have. */
static void drain_timer(struct loop_timer *t)
{
	struct rd_conn *r = caa_container_of(t, struct rd_conn, r_drain_timer);

	metric_add(m_undrained, 1);
	log_debug("rdma: a queue pair is destroyed %u ms after its end, %s", DRAIN_MS,
		  r->r_drained ? "its device did not say that it uses no more receives"
			       : "its sends have not all come back");
	rpc_rdma_send_destroy(r);
}

void rd_last(struct loop_msg *m)
{
	rd_activate(caa_container_of(m, struct rd_conn, r_last_msg));
}

void rd_gone(struct loop_msg *m)
{
	struct rd_conn *r = caa_container_of(m, struct rd_conn, r_gone_msg);
	struct rpc_conn *c = r->r_c;

	rpc_rdma_send_dial_done(r, -ECONNRESET);
	rd_qp_del(r);
	rd_forget(r);
	rd_unreserve(r);
	rd_recv_free(r);
	rd_send_free(r);
	rd_bulk_drop(r);
	free(r);
	if (c) {
		rpc_conn_released(c);
	}
}

/* ---- completions ---- */

static void sent(struct rd_conn *r, const struct ibv_wc *wc)
{
	if (wc->wr_id == DRAIN_ID) {
		r->r_drained = true;
	} else if (wc->status == IBV_WC_SUCCESS) {
		if (r->r_ending)
			return;
		r->r_stuck = false;
		if ((wc->wr_id & ID_BITS) == READ_ID)
			rd_read_completed(
				r, (struct rd_op *)(uintptr_t)(wc->wr_id & ~(uint64_t)ID_BITS));
		else
			completed(r, wc->wr_id >> 2);
	} else if (!r->r_ending) {
		metric_add(rd_m_errors, wc->status != IBV_WC_WR_FLUSH_ERR);
		log_info("rdma: a work request failed: %s", ibv_wc_status_str(wc->status));
		rpc_conn_fail(r->r_c, -EIO);
	}
}

unsigned rd_poll(struct rd_conn *r)
{
	struct ibv_wc wc[RD_WCS];
	struct rpc_conn *c = r->r_c;
	int n, err;

	if (r->r_destroying)
		return 0;
	n = rd_poll_cq(r->r_cq, wc);
	for (int i = 0; i < n; i++) {
		if (wc[i].wr_id & ID_BITS) {
			sent(r, &wc[i]);
		} else {
			rd_own_returned(r, &wc[i]);
			rd_received(r, &wc[i]);
		}
	}
	if (r->r_ending) {
		if (!n && rpc_rdma_send_drained(r))
			rpc_rdma_send_destroy(r);
		return n > 0 ? (unsigned)n : 0;
	}
	err = r->r_port->pt_srq ? 0 : rd_post_receives(r->r_port, r);
	if (err && err != -EAGAIN) {
		rpc_conn_fail(c, -ENOMEM); /* receives that it was granted are gone */
		return (unsigned)n;
	}
	if (r->r_ready && !c->rcn_paused && !c->rcn_resuming)
		rpc_conn_input(c);
	if (!r->r_ending) {
		backlog_send(r);
		rd_post(r);
		rpc_conn_unpause(c);
	}
	return n > 0 ? (unsigned)n : 0;
}

bool rpc_conn_is_rdma(const struct rpc_conn *c)
{
	return c->rcn_is_rdma;
}

void rpc_rdma_dropped(struct rpc_conn *c)
{
	c->rcn_rdma->r_calls--;
}

void rpc_rdma_wrapped(struct rd_call *rc)
{
	rc->rc_no_ddp = true;
}

bool rpc_rdma_takes_items(const struct rd_call *rc)
{
	return rc->rc_nchunks > 0;
}
