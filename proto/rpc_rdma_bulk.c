/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rpc_rdma_bulk.c - calls of ours that do not fit inline: the whole call goes in a position-zero
 * Read chunk, the reply in a Reply chunk (RFC 8166 section 3.5.3). Their memory is a region that
 * the peer may read and write. Each call has a run of its pages until its reply has come or the
 * connection is gone: the peer may still read and answer a call that has timed out. Payload in
 * memory that the program registered (rpc_rdma_region.c) has chunks of its own instead (sections
 * 3.4.5 and 3.4.6). The rest of such a call or reply goes inline.
 */
#include "proto/rpc_rdma_int.h"
#include <errno.h>

struct rd_bulk {
	struct rd_bulk *bk_next;
	uint32_t bk_xid;
	struct rpc_buf *bk_call, *bk_reply; /* NULL: none */
	size_t bk_reply_len;
	/* Memory of the program that the peer reads and writes itself (rpc_rdma_region.c): the
	 * number of the region, or -1. With a region, bk_out releases it. */
	int bk_from, bk_to;
	uint32_t bk_to_len;
	struct rpc_out *bk_out;
	struct rd_in bk_in;
};

static void bulk_free(struct rd_bulk *bk)
{
	if (bk->bk_call)
		rpc_buf_put(bk->bk_call);
	if (bk->bk_reply)
		rpc_buf_put(bk->bk_reply);
	rd_region_put(bk->bk_from);
	rd_region_put(bk->bk_to);
	if (bk->bk_out)
		bk->bk_out->o_free(bk->bk_out);
	free(bk);
}

static void rpc_rdma_bulk_gather(uint8_t *p, const struct xdr_out *x)
{
	struct iovec iov[2 * XDR_SPLICES + 1];
	unsigned n = xdr_out_iov(x, iov);

	for (unsigned i = 0, skip = RPC_MARK; i < n; i++, skip = 0) {
		memcpy(p, (uint8_t *)iov[i].iov_base + skip, iov[i].iov_len - skip);
		p += iov[i].iov_len - skip;
	}
}

static struct rd_seg rpc_rdma_bulk_segment(const struct rpc_buf *b, size_t len, uint32_t rkey)
{
	return (struct rd_seg){rkey, (uint32_t)len, (uintptr_t)b->b_data};
}

/* Copies a call without its payload, which the peer fetches. */
static uint32_t gather_rest(uint8_t *p, const struct xdr_out *x)
{
	const struct xdr_splice *sp = &x->x_splice[0];
	size_t before = sp->sp_at - RPC_MARK, after = sp->sp_at + (-sp->sp_len & 3);

	memcpy(p, x->x_head + RPC_MARK, before);
	memcpy(p + before, x->x_head + after, x->x_len - after);
	return (uint32_t)(before + x->x_len - after);
}

/* True if the peer can fetch the call's payload where it lies, and the rest fits inline. */
static bool fetched(struct rd_conn *r, struct rd_bulk *bk, const struct xdr_out *x,
		    struct rd_seg *data)
{
	const struct xdr_splice *sp = &x->x_splice[0];
	struct ibv_mr *mr;

	if (x->x_nsplice != 1 || sp->sp_stays ||
	    RD_HDR_MIN + RD_BULK_HDR + x->x_len > r->r_send_max)
		return false;
	bk->bk_from = rd_region_get(r->r_dev, sp->sp_data, sp->sp_len, &mr);
	if (bk->bk_from >= 0)
		*data = (struct rd_seg){mr->rkey, sp->sp_len, (uintptr_t)sp->sp_data};
	return bk->bk_from >= 0;
}

static bool placed_there(struct rd_conn *r, struct rd_bulk *bk, const struct xdr_out *x,
			 struct rd_seg *place)
{
	const struct xdr_splice *sp = &x->x_place;
	struct ibv_mr *mr;

	if (sp->sp_len)
		bk->bk_to = rd_region_get(r->r_dev, sp->sp_data, sp->sp_len, &mr);
	if (bk->bk_to >= 0) {
		*place = (struct rd_seg){mr->rkey, sp->sp_len, (uintptr_t)sp->sp_data};
		bk->bk_to_len = sp->sp_len;
	}
	return bk->bk_to >= 0;
}

/* Takes a run of our pages where the program has no registered memory. Returns false if no run is
 * free now. */
static bool copies_get(struct rd_conn *r, struct rd_bulk *bk, size_t call, size_t reply,
		       struct rd_seg *segs)
{
	uint32_t rkey = 0;

	if (call && !(bk->bk_call = rd_bulk_memory(r->r_port, call, &rkey)))
		return false;
	if (call)
		segs[0] = rpc_rdma_bulk_segment(bk->bk_call, call, rkey);
	if (reply && !(bk->bk_reply = rd_bulk_memory(r->r_port, reply, &rkey)))
		return false;
	if (reply)
		segs[1] = rpc_rdma_bulk_segment(bk->bk_reply, reply, rkey);
	return true;
}

int rd_bulk_call(struct rd_conn *r, struct rpc_out *o, uint32_t xid, uint8_t *hdr,
		 uint32_t *hdr_len, bool *kept)
{
	const struct xdr_out *x = o->o_x;
	size_t len = x->x_len + x->x_payload - RPC_MARK, reply_max = o->o_reply_max;
	bool is_long = RD_HDR_MIN + RD_BULK_HDR + len > r->r_send_max;
	struct rd_chunks ck = {0};
	struct rd_seg data, place, segs[2];
	struct rd_bulk *bk;

	if (len > RD_BULK_MAX || reply_max > RD_BULK_MAX)
		return -EMSGSIZE;
	bk = calloc(1, sizeof *bk);
	if (!bk)
		return -EAGAIN;
	bk->bk_from = bk->bk_to = -1;
	bk->bk_xid = xid;
	if (is_long && fetched(r, bk, x, &data)) {
		ck.ck_data = &data;
		ck.ck_at = (uint32_t)(x->x_splice[0].sp_at - RPC_MARK);
		is_long = false;
	}
	if (placed_there(r, bk, x, &place)) {
		ck.ck_place = &place;
		reply_max = 0;
	}
	bk->bk_reply_len = reply_max;
	if (!copies_get(r, bk, is_long ? len : 0, reply_max, segs)) {
		bulk_free(bk);
		return -EAGAIN;
	}
	if (is_long) {
		rpc_rdma_bulk_gather(bk->bk_call->b_data, x);
		ck.ck_call = &segs[0];
	}
	if (reply_max)
		ck.ck_reply = &segs[1];
	*hdr_len = (uint32_t)rd_call_hdr_put(hdr, xid, r->r_own_max, &ck);
	if (ck.ck_data) {
		*hdr_len += gather_rest(hdr + *hdr_len, x);
	} else if (!is_long) {
		rpc_rdma_bulk_gather(hdr + *hdr_len, x);
		*hdr_len += (uint32_t)len;
	}
	*kept = ck.ck_data || ck.ck_place;
	bk->bk_out = *kept ? o : NULL;
	bk->bk_next = r->r_bulks;
	r->r_bulks = bk;
	return 0;
}

/* Gets how much the peer says it wrote to the program's memory. Returns false if it is more than
 * there is, or elsewhere. */
static bool placed_len(const struct rd_bulk *bk, const struct rd_hdr *h, uint32_t *len)
{
	struct rd_call *rc = h->h_nchunks ? rd_call_new(h) : NULL;
	bool good = true;

	*len = 0;
	if (rc) {
		*len = rc->rc_nsegs == 1 ? rc->rc_segs[0].ws_seg.sg_length : 0;
		good = rc->rc_nchunks == 1 && rc->rc_nsegs <= 1 && *len <= bk->bk_to_len;
	}
	free(rc);
	return good && !rc == !h->h_nchunks;
}

/* The reply lies in the Reply chunk. Puts it into *in, which then owns bk. */
static bool bulk_long(struct rd_bulk *bk, const struct rd_hdr *h, struct rd_in **in)
{
	struct rd_call *rc;
	uint64_t len;

	if (h->h_proc != RD_NOMSG || !bk->bk_reply || h->h_nreply != 1 || !(rc = rd_call_new(h)))
		return false;
	len = rd_reply_segs(rc)->ws_seg.sg_length;
	free(rc);
	if (len > bk->bk_reply_len)
		return false;
	bk->bk_in.in_mem = bk;
	bk->bk_in.in_rec = (struct rpc_record){
		.r_buf = bk->bk_reply, .r_data = bk->bk_reply->b_data, .r_len = len};
	*in = &bk->bk_in;
	return true;
}

/* Takes the call's memory back. Sets *in to what the Reply chunk holds, or to NULL if the reply is
 * inline. Returns false if the message is no reply. */
bool rd_bulk_reply(struct rd_conn *r, const struct rd_hdr *h, struct rd_in **in, bool *direct,
		   uint32_t *placed)
{
	struct rd_bulk **at = &r->r_bulks, *bk;
	bool good = h->h_proc == RD_MSG;

	*in = NULL;
	*direct = false;
	*placed = 0;
	while (*at && (*at)->bk_xid != h->h_xid)
		at = &(*at)->bk_next;
	bk = *at;
	if (!bk)
		return good;
	*at = bk->bk_next;
	if (bulk_long(bk, h, in)) {
		*direct = bk->bk_from >= 0;
		if (bk->bk_call)
			rpc_buf_put(bk->bk_call);
		bk->bk_call = bk->bk_reply = NULL; /* the record has the reply now */
		rd_region_put(bk->bk_from);
		rd_region_put(bk->bk_to);
		if (bk->bk_out)
			bk->bk_out->o_free(bk->bk_out);
		return true;
	}
	if (bk->bk_to >= 0 && good)
		good = placed_len(bk, h, placed);
	*direct = bk->bk_from >= 0 || *placed;
	bulk_free(bk);
	return good;
}

void rd_bulk_drop(struct rd_conn *r)
{
	while (r->r_bulks) {
		struct rd_bulk *bk = r->r_bulks;

		r->r_bulks = bk->bk_next;
		bulk_free(bk);
	}
}
