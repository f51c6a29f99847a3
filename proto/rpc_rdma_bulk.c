/*
 * rpc_rdma_bulk.c - calls of ours that do not fit inline: the whole call in a position-zero Read chunk, the reply in a Reply chunk
 * (RFC 8166 section 3.5.3). Their memory is a region that the peer may read and write, of which each call has a run of pages
 * until its reply has come, or the connection has gone: a call that has timed out may still be read and answered.
 */
#include "proto/rpc_rdma_int.h"
#include <errno.h>

struct rd_bulk {
	struct rd_bulk *bk_next;
	uint32_t bk_xid;
	struct rpc_buf *bk_call, *bk_reply; /* NULL: none */
	size_t bk_reply_len;
	struct rd_in bk_in;
};

static void bulk_free(struct rd_bulk *bk)
{
	if (bk->bk_call)
		rpc_buf_put(bk->bk_call);
	if (bk->bk_reply)
		rpc_buf_put(bk->bk_reply);
	free(bk);
}

static void gather(uint8_t *p, const struct xdr_out *x)
{
	struct iovec iov[2 * XDR_SPLICES + 1];
	unsigned n = xdr_out_iov(x, iov);

	for (unsigned i = 0, skip = RPC_MARK; i < n; i++, skip = 0) {
		memcpy(p, (uint8_t *)iov[i].iov_base + skip, iov[i].iov_len - skip);
		p += iov[i].iov_len - skip;
	}
}

static struct rd_seg segment(const struct rpc_buf *b, size_t len, uint32_t rkey)
{
	return (struct rd_seg){rkey, (uint32_t)len, (uintptr_t)b->b_data};
}

int rd_bulk_call(struct rd_conn *r, const struct xdr_out *x, uint32_t xid, size_t reply_max, uint8_t *hdr, uint32_t *hdr_len)
{
	size_t len = x->x_len + x->x_payload - RPC_MARK;
	struct rd_bulk *bk;
	struct rd_seg call, reply;
	bool is_long = RD_HDR_MIN + RD_BULK_HDR + len > r->r_send_max;
	uint32_t rkey = 0;

	if (len > RD_BULK_MAX || reply_max > RD_BULK_MAX)
		return -EMSGSIZE;
	bk = calloc(1, sizeof *bk);
	if (!bk)
		return -EAGAIN;
	bk->bk_xid = xid;
	bk->bk_reply_len = reply_max;
	if (is_long)
		bk->bk_call = rd_bulk_memory(r->r_port, len, &rkey);
	if (reply_max)
		bk->bk_reply = rd_bulk_memory(r->r_port, reply_max, &rkey);
	if ((is_long && !bk->bk_call) || (reply_max && !bk->bk_reply)) {
		bulk_free(bk);
		return -EAGAIN;
	}
	if (bk->bk_call) {
		gather(bk->bk_call->b_data, x);
		call = segment(bk->bk_call, len, rkey);
	}
	if (bk->bk_reply)
		reply = segment(bk->bk_reply, reply_max, rkey);
	*hdr_len = (uint32_t)rd_call_hdr_put(hdr, xid, r->r_own_max, bk->bk_call ? &call : NULL, bk->bk_reply ? &reply : NULL);
	if (!is_long) {
		gather(hdr + *hdr_len, x);
		*hdr_len += (uint32_t)len;
	}
	bk->bk_next = r->r_bulks;
	r->r_bulks = bk;
	return 0;
}

/* Takes the call's memory back. In *in what the Reply chunk holds, NULL: the reply is inline. False: the reply is none. */
bool rd_bulk_reply(struct rd_conn *r, const struct rd_hdr *h, struct rd_in **in)
{
	struct rd_bulk **at = &r->r_bulks, *bk;
	struct rd_call *rc;
	uint64_t len = 0;

	*in = NULL;
	while (*at && (*at)->bk_xid != h->h_xid)
		at = &(*at)->bk_next;
	bk = *at;
	if (!bk)
		return h->h_proc == RD_MSG;
	*at = bk->bk_next;
	if (h->h_proc == RD_NOMSG && bk->bk_reply && h->h_nreply == 1 && (rc = rd_call_new(h))) {
		len = rd_reply_segs(rc)->ws_seg.sg_length;
		free(rc);
		if (len <= bk->bk_reply_len) {
			if (bk->bk_call)
				rpc_buf_put(bk->bk_call);
			bk->bk_in.in_mem = bk;
			bk->bk_in.in_rec = (struct rpc_record){.r_buf = bk->bk_reply, .r_data = bk->bk_reply->b_data, .r_len = len};
			*in = &bk->bk_in;
			return true;
		}
	}
	bulk_free(bk);
	return h->h_proc == RD_MSG;
}

void rd_bulk_drop(struct rd_conn *r)
{
	while (r->r_bulks) {
		struct rd_bulk *bk = r->r_bulks;

		r->r_bulks = bk->bk_next;
		bulk_free(bk);
	}
}
