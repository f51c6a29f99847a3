/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_rdma.c - libFuzzer target: RPC-over-RDMA headers, what is planned from them, and the headers
 * and work requests that answer them.
 *
 * The first two bytes say how long a reply is and how much a record may hold. What is checked
 * beyond memory: a plan stays inside of its record and covers it once, a reply's payload goes to
 * the peer's segments and nowhere else, an echoed header says the same when it is read.
 */
#include "proto/rpc_rdma_hdr.h"
#include <assert.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define MAX_RECORD 65536u
static uint8_t covered[MAX_RECORD];

static void cover(uint32_t at, uint32_t len, uint32_t end)
{
	assert(len && at <= end && len <= end - at);
	for (; len--; at++)
		assert(!covered[at]++);
}

static void plan(const struct rd_hdr *h, size_t max)
{
	struct rd_read *reads = malloc((RD_PLAN_READS(h) + 1) * sizeof *reads);
	struct rd_copy *copies = malloc(RD_PLAN_COPIES(h) * sizeof *copies);
	struct rd_plan pl;

	assert(reads && copies);
	if (!rd_plan(h, max, &pl, reads, copies)) {
		assert(pl.pl_len <= max && pl.pl_nreads <= RD_PLAN_READS(h) &&
		       pl.pl_ncopies <= RD_PLAN_COPIES(h));
		memset(covered, 0, pl.pl_len);
		for (unsigned i = 0; i < pl.pl_nreads; i++)
			cover(reads[i].rr_at, reads[i].rr_len, pl.pl_len);
		for (unsigned i = 0; i < pl.pl_ncopies; i++) {
			cover(copies[i].cp_at, copies[i].cp_len, pl.pl_len);
			assert(copies[i].cp_from == RD_ZEROS
				       ? copies[i].cp_len < 4
				       : copies[i].cp_from + (size_t)copies[i].cp_len <= h->h_len);
		}
		for (uint32_t i = 0; i < pl.pl_len; i++)
			assert(covered[i]);
	}
	free(reads);
	free(copies);
}

static void cut(struct rd_wseg *segs, unsigned n, uint32_t len)
{
	static const uint8_t payload[65536];
	struct rd_src src[2] = {{payload, len / 3, 1}, {payload + len / 3, len - len / 3, 2}};
	struct rd_cut *cuts = malloc(RD_CUTS(n, 2) * sizeof *cuts);
	struct rd_src *pieces = malloc(RD_PIECES(n, 2) * sizeof *pieces);
	unsigned ncuts, npieces;
	uint64_t done = 0;

	assert(cuts && pieces);
	if (rd_fill(segs, n, len)) {
		ncuts = rd_cut(segs, n, src, 2, 1 + len % 3, cuts, pieces, &npieces);
		assert(ncuts <= RD_CUTS(n, 2) && npieces <= RD_PIECES(n, 2));
		for (unsigned i = 0; i < npieces; i++)
			done += pieces[i].sr_len;
		assert(done == len);
	}
	free(cuts);
	free(pieces);
}

static void echo(const struct rd_hdr *h, uint32_t len)
{
	struct rd_call *rc = rd_call_new(h), *back;
	size_t n = rd_reply_hdr_len(rc);
	uint8_t *p = malloc(n + 4);
	struct rd_hdr again;

	assert(rc && p);
	for (unsigned i = 0; i < rc->rc_nchunks; i++)
		cut(rc->rc_segs + rc->rc_chunk[i], rc->rc_chunk[i + 1] - rc->rc_chunk[i], len);
	cut(rd_reply_segs(rc), rc->rc_nreply, len);
	assert(rd_reply_hdr_put(p, h->h_xid, 1, RD_MSG, rc) == n);
	memcpy(p + n, p, 4);
	assert(rd_hdr_parse(p, n + 4, &again) == RD_OK);
	assert(!again.h_nreads && again.h_nchunks == h->h_nchunks && again.h_nsegs == h->h_nsegs &&
	       again.h_reply == h->h_reply);
	back = rd_call_new(&again);
	assert(back);
	for (unsigned i = 0; i < rc->rc_nsegs + rc->rc_nreply; i++)
		assert(back->rc_segs[i].ws_seg.sg_length == rc->rc_segs[i].ws_used &&
		       back->rc_segs[i].ws_seg.sg_handle == rc->rc_segs[i].ws_seg.sg_handle);
	free(back);
	free(rc);
	free(p);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct rd_private pv;
	struct rd_hdr h;
	uint32_t len;

	if (size < 2)
		return 0;
	len = (uint32_t)data[0] * 256 + data[1];
	rd_private_parse(data + 2, size - 2, &pv);
	assert(pv.pv_recv >= RD_INLINE_MIN && pv.pv_recv <= RD_INLINE_MAX);
	if (rd_hdr_parse(data + 2, size - 2, &h) != RD_OK || h.h_proc == RD_ERROR)
		return 0;
	assert(h.h_body + h.h_len == data + size);
	plan(&h, len);
	echo(&h, len);
	return 0;
}
