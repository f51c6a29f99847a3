/* SPDX-License-Identifier: Apache-2.0 */
/* rpc_rdma_hdr.c - see rpc_rdma_hdr.h. */
#include "proto/rpc_rdma_hdr.h"
#include <errno.h>

#define PRIVATE_MAGIC 0xf6ab0e18u
#define PRIVATE_VERS  1u
#define PRIVATE_INV   1u
#define READ_ENTRY    24u /* present, position, handle, length, offset */
#define SEG_LEN	      16u

/* ---- parsing ---- */

static void read_list(struct xdr_in *x, struct rd_hdr *h)
{
	h->h_reads = x->p;
	while (xdr_get_bool(x)) {
		xdr_take(x, READ_ENTRY - 4);
		h->h_nreads++;
	}
}

static unsigned segments(struct xdr_in *x)
{
	uint32_t n = xdr_get_u32(x);

	if (n > xdr_left(x) / SEG_LEN)
		x->bad = true;
	else
		xdr_take(x, (size_t)n * SEG_LEN);
	return x->bad ? 0 : n;
}

static void write_list(struct xdr_in *x, struct rd_hdr *h)
{
	h->h_writes = x->p;
	while (xdr_get_bool(x)) {
		h->h_nsegs += segments(x);
		h->h_nchunks++;
	}
}

static void reply_chunk(struct xdr_in *x, struct rd_hdr *h)
{
	h->h_reply = xdr_get_bool(x);
	h->h_reply_segs = x->p + 4;
	if (h->h_reply)
		h->h_nreply = segments(x);
}

/* RFC 8166 section 4.5: an error message that cannot be decoded is discarded too. */
static enum rd_verdict error_body(struct xdr_in *x, struct rd_hdr *h)
{
	h->h_err = xdr_get_u32(x);
	if (x->bad || (h->h_err != RD_ERR_VERS && h->h_err != RD_ERR_CHUNK))
		return RD_DISCARD;
	return RD_OK;
}

/* True if the whole Payload stream is in chunks, or if its first word repeats the header's XID
 * (section 4.5.2). */
static bool body_fits(const struct rd_hdr *h)
{
	struct xdr_in x;

	if (h->h_proc == RD_NOMSG)
		return h->h_nreads || h->h_nchunks || h->h_reply;
	xdr_in_init(&x, h->h_body, h->h_len);
	return xdr_get_u32(&x) == h->h_xid && !x.bad;
}

enum rd_verdict rd_hdr_parse(const uint8_t *p, size_t len, struct rd_hdr *h)
{
	struct xdr_in x;

	memset(h, 0, sizeof *h);
	xdr_in_init(&x, p, len);
	h->h_xid = xdr_get_u32(&x);
	h->h_vers = xdr_get_u32(&x);
	h->h_credit = xdr_get_u32(&x);
	h->h_proc = xdr_get_u32(&x);
	/* An error message may be shorter than other messages. */
	if (!x.bad && h->h_proc == RD_ERROR)
		return error_body(&x, h);
	if (len < RD_HDR_MIN)
		return RD_DISCARD;
	if (h->h_vers != RD_VERS)
		return RD_BAD_VERS;
	if (h->h_proc == RD_DONE)
		return RD_DISCARD;
	if (h->h_proc != RD_MSG && h->h_proc != RD_NOMSG)
		return RD_BAD_CHUNK;
	read_list(&x, h);
	write_list(&x, h);
	reply_chunk(&x, h);
	h->h_body = x.p;
	h->h_len = xdr_left(&x);
	return x.bad || !body_fits(h) ? RD_BAD_CHUNK : RD_OK;
}

static struct rd_seg seg_get(struct xdr_in *x)
{
	struct rd_seg s;

	s.sg_handle = xdr_get_u32(x);
	s.sg_length = xdr_get_u32(x);
	s.sg_offset = xdr_get_u64(x);
	return s;
}

/* ---- a call's record ---- */

struct planner {
	struct rd_plan *p_pl;
	struct rd_read *p_reads;
	struct rd_copy *p_copies;
	uint64_t p_pos, p_max;
	/* The stream that chunks are inserted into: inline, or the position-zero chunk. */
	uint64_t p_base; /* bytes taken of it */
	size_t p_inline;
	struct xdr_in p_zero; /* at the position-zero entry being taken */
	unsigned p_nzero;     /* entries left, with that one */
	uint32_t p_zero_used; /* bytes of it that are taken */
};

static int advance(struct planner *p, uint64_t len)
{
	p->p_pos += len;
	return p->p_pos > p->p_max ? -EMSGSIZE : 0;
}

static int put_read(struct planner *p, const struct rd_seg *s, uint32_t skip, uint32_t len)
{
	if (len)
		p->p_reads[p->p_pl->pl_nreads++] = (struct rd_read){
			(uint32_t)p->p_pos, len, s->sg_handle, s->sg_offset + skip};
	return advance(p, len);
}

static int put_copy(struct planner *p, uint32_t from, uint32_t len)
{
	if (len)
		p->p_copies[p->p_pl->pl_ncopies++] =
			(struct rd_copy){(uint32_t)p->p_pos, from, len};
	return advance(p, len);
}

/* Takes n bytes of the position-zero chunk, or all of it with UINT64_MAX. */
static int take_zero(struct planner *p, uint64_t n)
{
	int err = 0;

	while (n && p->p_nzero && !err) {
		struct xdr_in at = p->p_zero;
		struct rd_seg s;
		uint32_t left;

		xdr_take(&at, 8);
		s = seg_get(&at);
		left = s.sg_length - p->p_zero_used;
		if (left > n) {
			err = put_read(p, &s, p->p_zero_used, (uint32_t)n);
			p->p_zero_used += (uint32_t)n;
			return err;
		}
		err = put_read(p, &s, p->p_zero_used, left);
		n -= n == UINT64_MAX ? 0 : left;
		p->p_zero = at;
		p->p_nzero--;
		p->p_zero_used = 0;
	}
	return !err && n && n != UINT64_MAX ? -EPROTO : err;
}

static int take_base(struct planner *p, uint64_t n, bool msg)
{
	uint64_t left = p->p_inline - p->p_base;
	int err;

	if (!msg)
		return take_zero(p, n);
	if (n == UINT64_MAX)
		n = left;
	if (n > left)
		return -EPROTO;
	err = put_copy(p, (uint32_t)p->p_base, (uint32_t)n);
	p->p_base += n;
	return err;
}

/* Takes the chunk at *x, which consists of the entries with the same position. */
static int take_chunk(struct planner *p, struct xdr_in *x, unsigned *left, bool msg)
{
	struct xdr_in at = *x;
	uint64_t start;
	uint32_t pos;
	int err;

	xdr_take(&at, 4);
	pos = xdr_get_u32(&at);
	if (pos % 4 || pos < p->p_pos || !pos)
		return -EPROTO;
	err = take_base(p, pos - p->p_pos, msg);
	if (!err && !p->p_pl->pl_first)
		p->p_pl->pl_first = pos;
	start = p->p_pos;
	while (!err && *left) {
		struct rd_seg s;

		at = *x;
		xdr_take(&at, 4);
		if (xdr_get_u32(&at) != pos)
			break;
		s = seg_get(&at);
		err = put_read(p, &s, 0, s.sg_length);
		*x = at;
		--*left;
	}
	return err ? err : put_copy(p, RD_ZEROS, (uint32_t)(-(p->p_pos - start) & 3));
}

int rd_plan(const struct rd_hdr *h, size_t max, struct rd_plan *pl, struct rd_read *reads,
	    struct rd_copy *copies)
{
	struct planner p = {.p_pl = pl,
			    .p_reads = reads,
			    .p_copies = copies,
			    .p_max = max < UINT32_MAX / 2 ? max : UINT32_MAX / 2,
			    .p_inline = h->h_len};
	bool msg = h->h_proc == RD_MSG;
	unsigned left = h->h_nreads;
	struct xdr_in x;
	int err = 0;

	memset(pl, 0, sizeof *pl);
	xdr_in_init(&x, h->h_reads, (size_t)h->h_nreads * READ_ENTRY);
	p.p_zero = x;
	for (; !msg && left; left--) {
		struct xdr_in at = x;

		xdr_take(&at, 4);
		if (xdr_get_u32(&at))
			break;
		xdr_take(&x, READ_ENTRY);
		p.p_nzero++;
	}
	if (!msg && !p.p_nzero)
		return -EPROTO;
	while (left && !err)
		err = take_chunk(&p, &x, &left, msg);
	if (!err)
		err = take_base(&p, UINT64_MAX, msg);
	pl->pl_len = (uint32_t)p.p_pos;
	return !err && !pl->pl_len ? -EPROTO : err; /* no message at all */
}

/* ---- a call's reply ---- */

/* Chooses one handle of the call to invalidate, that of a segment with payload. The last segment of
 * a client's Write chunk may be a place for roundup that all of its calls share. */
static void choose_inv(struct rd_call *rc, const struct rd_hdr *h)
{
	struct xdr_in x;
	struct rd_seg s;

	if (h->h_nreads) {
		xdr_in_init(&x, h->h_reads + 8, SEG_LEN);
		s = seg_get(&x);
	} else if (rc->rc_nsegs || rc->rc_nreply) {
		s = rc->rc_segs[0].ws_seg;
	} else {
		return;
	}
	rc->rc_has_inv = s.sg_length > 4;
	rc->rc_inv = s.sg_handle;
}

struct rd_call *rd_call_new(const struct rd_hdr *h)
{
	size_t nsegs = (size_t)h->h_nsegs + h->h_nreply;
	struct rd_call *rc = malloc(sizeof *rc + nsegs * sizeof rc->rc_segs[0] +
				    ((size_t)h->h_nchunks + 1) * sizeof *rc->rc_chunk);
	struct xdr_in x;
	unsigned at = 0;

	if (!rc)
		return NULL;
	*rc = (struct rd_call){.rc_reply = h->h_reply,
			       .rc_nchunks = h->h_nchunks,
			       .rc_nsegs = h->h_nsegs,
			       .rc_nreply = h->h_nreply};
	rc->rc_chunk = (unsigned *)(rc->rc_segs + nsegs);
	xdr_in_init(&x, h->h_writes, h->h_nchunks * (size_t)8 + h->h_nsegs * (size_t)SEG_LEN);
	for (unsigned i = 0; i < h->h_nchunks; i++) {
		uint32_t n;

		xdr_take(&x, 4);
		n = xdr_get_u32(&x);
		rc->rc_chunk[i] = at;
		while (n--)
			rc->rc_segs[at++] = (struct rd_wseg){.ws_seg = seg_get(&x)};
	}
	rc->rc_chunk[h->h_nchunks] = at;
	xdr_in_init(&x, h->h_reply_segs, h->h_nreply * (size_t)SEG_LEN);
	for (unsigned i = 0; i < h->h_nreply; i++)
		rc->rc_segs[at++] = (struct rd_wseg){.ws_seg = seg_get(&x)};
	choose_inv(rc, h);
	return rc;
}

bool rd_fill(struct rd_wseg *segs, unsigned n, uint64_t len)
{
	uint64_t room = 0;

	for (unsigned i = 0; i < n; i++)
		room += segs[i].ws_seg.sg_length;
	if (room < len)
		return false;
	for (unsigned i = 0; i < n; i++) {
		segs[i].ws_used =
			len < segs[i].ws_seg.sg_length ? (uint32_t)len : segs[i].ws_seg.sg_length;
		len -= segs[i].ws_used;
	}
	return true;
}

size_t rd_reply_hdr_len(const struct rd_call *rc)
{
	if (!rc)
		return RD_HDR_MIN;
	return RD_HDR_MIN + 8 * (size_t)rc->rc_nchunks + (rc->rc_reply ? 4 : 0) +
	       SEG_LEN * ((size_t)rc->rc_nsegs + rc->rc_nreply);
}

static uint8_t *put_u32(uint8_t *p, uint32_t v)
{
	v = htobe32(v);
	memcpy(p, &v, 4);
	return p + 4;
}

static uint8_t *put_segs(uint8_t *p, const struct rd_wseg *s, unsigned n)
{
	p = put_u32(p, n);
	for (; n--; s++) {
		p = put_u32(p, s->ws_seg.sg_handle);
		p = put_u32(p, s->ws_used);
		p = put_u32(p, (uint32_t)(s->ws_seg.sg_offset >> 32));
		p = put_u32(p, (uint32_t)s->ws_seg.sg_offset);
	}
	return p;
}

size_t rd_reply_hdr_put(uint8_t *out, uint32_t xid, uint32_t credit, enum rd_proc proc,
			const struct rd_call *rc)
{
	uint8_t *p = put_u32(out, xid);

	p = put_u32(p, RD_VERS);
	p = put_u32(p, credit);
	p = put_u32(p, proc);
	p = put_u32(p, 0); /* a reply has no Read list */
	for (unsigned i = 0; rc && i < rc->rc_nchunks; i++) {
		p = put_u32(p, 1);
		p = put_segs(p, rc->rc_segs + rc->rc_chunk[i],
			     rc->rc_chunk[i + 1] - rc->rc_chunk[i]);
	}
	p = put_u32(p, 0);
	p = put_u32(p, rc && rc->rc_reply);
	if (rc && rc->rc_reply)
		p = put_segs(p, rc->rc_segs + rc->rc_nsegs, rc->rc_nreply);
	return (size_t)(p - out);
}

static uint8_t *put_seg(uint8_t *p, const struct rd_seg *s)
{
	struct rd_wseg ws = {.ws_seg = *s, .ws_used = s->sg_length};

	put_segs(p, &ws, 1);
	memmove(p, p + 4, SEG_LEN); /* without the count */
	return p + SEG_LEN;
}

static uint8_t *put_chunk(uint8_t *p, const struct rd_seg *seg)
{
	p = put_u32(p, 1);
	return put_seg(p, seg);
}

size_t rd_call_hdr_put(uint8_t *out, uint32_t xid, uint32_t credit, const struct rd_chunks *ck)
{
	const struct rd_seg *read = ck->ck_call ? ck->ck_call : ck->ck_data;
	uint8_t *p = put_u32(out, xid);

	p = put_u32(p, RD_VERS);
	p = put_u32(p, credit);
	p = put_u32(p, ck->ck_call ? RD_NOMSG : RD_MSG);
	if (read) {
		p = put_u32(p, 1);
		p = put_u32(p, ck->ck_call ? 0 : ck->ck_at); /* position */
		p = put_seg(p, read);
	}
	p = put_u32(p, 0);
	if (ck->ck_place) {
		p = put_u32(p, 1);
		p = put_chunk(p, ck->ck_place);
	}
	p = put_u32(p, 0);
	p = put_u32(p, ck->ck_reply != NULL);
	if (ck->ck_reply)
		p = put_chunk(p, ck->ck_reply);
	return (size_t)(p - out);
}

size_t rd_error_put(uint8_t *out, uint32_t xid, uint32_t vers, uint32_t credit, enum rd_errcode err)
{
	uint8_t *p = put_u32(out, xid);

	p = put_u32(p, vers);
	p = put_u32(p, credit);
	p = put_u32(p, RD_ERROR);
	p = put_u32(p, err);
	if (err == RD_ERR_VERS) {
		p = put_u32(p, RD_VERS);
		p = put_u32(p, RD_VERS);
	}
	return (size_t)(p - out);
}

/* ---- private data ---- */

static uint8_t size_code(uint32_t bytes)
{
	return (uint8_t)(bytes / 1024 - 1);
}

void rd_private_put(uint8_t p[RD_PRIVATE_LEN], const struct rd_private *pv)
{
	put_u32(p, PRIVATE_MAGIC);
	p[4] = PRIVATE_VERS;
	p[5] = pv->pv_inv ? PRIVATE_INV : 0;
	p[6] = size_code(pv->pv_send);
	p[7] = size_code(pv->pv_recv);
}

/* RFC 8797 section 5.2: the private data may stand behind that of other layers. */
void rd_private_parse(const void *data, size_t len, struct rd_private *pv)
{
	const uint8_t *p = data;
	uint8_t magic[4];

	*pv = (struct rd_private){.pv_send = RD_INLINE_MIN, .pv_recv = RD_INLINE_MIN};
	put_u32(magic, PRIVATE_MAGIC);
	for (; len >= RD_PRIVATE_LEN; p++, len--) {
		if (memcmp(p, magic, 4) || p[4] != PRIVATE_VERS)
			continue;
		pv->pv_inv = p[5] & PRIVATE_INV;
		pv->pv_send = (p[6] + 1u) * 1024;
		pv->pv_recv = (p[7] + 1u) * 1024;
		return;
	}
}

/* ---- payload ---- */

unsigned rd_cut(const struct rd_wseg *segs, unsigned nsegs, const struct rd_src *src, unsigned nsrc,
		unsigned max_sge, struct rd_cut *cuts, struct rd_src *pieces, unsigned *npieces)
{
	unsigned ncuts = 0, n = 0, s = 0;
	uint32_t used = 0; /* of src[s] */

	for (unsigned i = 0; i < nsegs; i++) {
		uint32_t done = 0;
		unsigned sge = max_sge;

		while (done < segs[i].ws_used && s < nsrc) {
			uint32_t len = src[s].sr_len - used;

			if (len > segs[i].ws_used - done)
				len = segs[i].ws_used - done;
			if (len && sge == max_sge) {
				cuts[ncuts++] =
					(struct rd_cut){segs[i].ws_seg.sg_handle,
							segs[i].ws_seg.sg_offset + done, n, 0};
				sge = 0;
			}
			if (len) {
				pieces[n++] =
					(struct rd_src){src[s].sr_p + used, len, src[s].sr_lkey};
				cuts[ncuts - 1].ct_n++;
				sge++;
			}
			done += len;
			used += len;
			if (used == src[s].sr_len) {
				s++;
				used = 0;
			}
		}
	}
	*npieces = n;
	return ncuts;
}
