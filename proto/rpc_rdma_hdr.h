/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rpc_rdma_hdr.h - RPC-over-RDMA version 1 headers (RFC 8166) and the CM private data of RFC 8797,
 * on plain bytes and without side effects: this code bounds and checks what comes from a peer,
 * before any other code uses it.
 */
#ifndef PROTO_RPC_RDMA_HDR_H
#define PROTO_RPC_RDMA_HDR_H
#include "proto/xdr.h"

#define RD_VERS	       1u
#define RD_HDR_MIN     28u /* RFC 8166 section 4.5: a shorter message is discarded */
#define RD_PRIVATE_LEN 8u
#define RD_INLINE_MIN  1024u   /* of a peer that says nothing (RFC 8797 section 5.1) */
#define RD_INLINE_MAX  262144u /* RFC 8797 section 4.2 */

enum rd_proc { RD_MSG, RD_NOMSG, RD_MSGP, RD_DONE, RD_ERROR };
enum rd_errcode { RD_ERR_VERS = 1, RD_ERR_CHUNK = 2 };

struct rd_seg {
	uint32_t sg_handle, sg_length;
	uint64_t sg_offset;
};

/* A parsed header; the pointers point into the message. */
struct rd_hdr {
	uint32_t h_xid, h_vers, h_credit, h_proc;
	uint32_t h_err; /* RD_ERROR: 0 when it cannot be decoded */
	unsigned h_nreads;
	const uint8_t *h_reads; /* at the first entry of the Read list */
	unsigned h_nchunks;	/* in the Write list */
	unsigned h_nsegs;	/* in all of them */
	const uint8_t *h_writes;
	bool h_reply;	   /* there is a Reply chunk */
	unsigned h_nreply; /* segments in it */
	const uint8_t *h_reply_segs;
	const uint8_t *h_body; /* the Payload stream, as far as it is inline */
	size_t h_len;
};

enum rd_verdict {
	RD_OK,
	RD_DISCARD, /* silently, as the RFC demands */
	RD_BAD_VERS,
	RD_BAD_CHUNK,
};
enum rd_verdict rd_hdr_parse(const uint8_t *p, size_t len, struct rd_hdr *h);

/*
 * Where a call's parts go in its record: its Payload stream, whole again (RFC 8166 section 3.4.5).
 */
struct rd_read { /* by RDMA Read */
	uint32_t rr_at, rr_len, rr_handle;
	uint64_t rr_offset;
};
struct rd_copy {
	/* cp_from: offset in the inline stream, or RD_ZEROS: roundup */
	uint32_t cp_at, cp_from, cp_len;
};
#define RD_ZEROS UINT32_MAX
struct rd_plan {
	uint32_t pl_len; /* of the record */
	/* offset of the first chunk's data in it; the payload's offset when the chunk is not the
	 * whole call */
	uint32_t pl_first;
	unsigned pl_nreads, pl_ncopies;
};
/* The most entries of a plan for this header. */
#define RD_PLAN_READS(h)  (2 * (h)->h_nreads)
#define RD_PLAN_COPIES(h) (2 * (h)->h_nreads + 1)
/* Returns 0; -EPROTO: the header is inconsistent; -EMSGSIZE: the record would be longer than
 * max. */
int rd_plan(const struct rd_hdr *h, size_t max, struct rd_plan *pl, struct rd_read *reads,
	    struct rd_copy *copies);

/* What a call's header provides for its reply: the Write list and the Reply chunk. */
struct rd_wseg {
	struct rd_seg ws_seg;
	uint32_t ws_used;
};
struct rd_call {
	uint32_t rc_inv; /* a handle of this call that the reply may invalidate, if rc_has_inv */
	bool rc_has_inv, rc_no_ddp, rc_reply;
	unsigned rc_nchunks, rc_nsegs, rc_nreply;
	unsigned *rc_chunk;	  /* [rc_nchunks + 1]: the first segment of each */
	struct rd_wseg rc_segs[]; /* rc_nsegs of the Write list, rc_nreply of the Reply chunk */
};
/* NULL: no memory. The caller frees it. */
struct rd_call *rd_call_new(const struct rd_hdr *h);
static inline struct rd_wseg *rd_reply_segs(struct rd_call *rc)
{
	return rc->rc_segs + rc->rc_nsegs;
}
/* Deals len bytes to n segments, in order. False: they have too little room (they stay unused). */
bool rd_fill(struct rd_wseg *segs, unsigned n, uint64_t len);

/* The length of the header of a reply with these chunks (rc may be NULL), and the header itself.
 * The header echoes the Reply chunk. */
size_t rd_reply_hdr_len(const struct rd_call *rc);
size_t rd_reply_hdr_put(uint8_t *p, uint32_t xid, uint32_t credit, enum rd_proc proc,
			const struct rd_call *rc);
/* The chunks of a call of ours; NULL: none. */
struct rd_chunks {
	const struct rd_seg *ck_call; /* all of its Payload stream; without ck_data */
	/* payload that is missing in the stream, where its offset was ck_at */
	const struct rd_seg *ck_data;
	uint32_t ck_at;
	const struct rd_seg *ck_place; /* where payload of the reply is to go */
	const struct rd_seg *ck_reply; /* where the reply may go */
};
size_t rd_call_hdr_put(uint8_t *p, uint32_t xid, uint32_t credit, const struct rd_chunks *ck);
/* Returns the length. */
size_t rd_error_put(uint8_t *p, uint32_t xid, uint32_t vers, uint32_t credit, enum rd_errcode err);

/* RFC 8797. Sizes in bytes. */
struct rd_private {
	bool pv_inv;
	uint32_t pv_send, pv_recv;
};
void rd_private_put(uint8_t p[RD_PRIVATE_LEN], const struct rd_private *pv);
/* Returns the defaults where the peer sent nothing intelligible. */
void rd_private_parse(const void *data, size_t len, struct rd_private *pv);

/*
 * Payload to be sent: memory of ours, and places of the peer. rd_cut deals sources to segments:
 * each cut becomes one work request, of at most max_sge pieces.
 */
struct rd_src {
	const uint8_t *sr_p;
	uint32_t sr_len, sr_lkey;
};
struct rd_cut {
	uint32_t ct_handle;
	uint64_t ct_offset;
	unsigned ct_first, ct_n; /* in pieces */
};
/* The most cuts and pieces for so many segments and sources. */
#define RD_CUTS(nsegs, nsrc)   ((nsegs) + (nsrc))
#define RD_PIECES(nsegs, nsrc) ((nsegs) + (nsrc))
/* The segments' used bytes equal the sources'. Returns how many cuts. */
unsigned rd_cut(const struct rd_wseg *segs, unsigned nsegs, const struct rd_src *src, unsigned nsrc,
		unsigned max_sge, struct rd_cut *cuts, struct rd_src *pieces, unsigned *npieces);
#endif
