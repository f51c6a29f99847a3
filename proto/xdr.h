/* SPDX-License-Identifier: Apache-2.0 */
/*
 * xdr.h - XDR (RFC 4506) by cursor.
 *
 * Reading: a struct xdr_in walks bytes in place. Every get checks the end. The first get that does
 * not fit sets bad, and from then on all gets return 0, so a decoder checks once at its end (and
 * before it acts). Lengths are checked against the declared bound and the bytes that are there
 * before anything is used, in 64-bit arithmetic.
 *
 * Writing: a struct xdr_out is a growing buffer plus references ("splices") to payload that is not
 * copied. The first put that does not fit under the limit sets bad. Memory is x_head (malloc);
 * xdr_out_free releases it and every splice.
 */
#ifndef PROTO_XDR_H
#define PROTO_XDR_H
#include <endian.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>

struct xdr_in {
	const uint8_t *p, *end;
	bool bad;
};

static inline void xdr_in_init(struct xdr_in *x, const void *data, size_t len)
{
	x->p = data;
	x->end = x->p + len;
	x->bad = false;
}
static inline size_t xdr_left(const struct xdr_in *x)
{
	return (size_t)(x->end - x->p);
}
/* Returns n raw bytes (n is not rounded), or NULL. */
static inline const uint8_t *xdr_take(struct xdr_in *x, size_t n)
{
	const uint8_t *p = x->p;

	if (x->bad || xdr_left(x) < n) {
		x->bad = true;
		return NULL;
	}
	x->p += n;
	return p;
}
static inline uint32_t xdr_get_u32(struct xdr_in *x)
{
	const uint8_t *p = xdr_take(x, 4);
	uint32_t v = 0;

	if (p)
		memcpy(&v, p, 4);
	return be32toh(v);
}
static inline uint64_t xdr_get_u64(struct xdr_in *x)
{
	const uint8_t *p = xdr_take(x, 8);
	uint64_t v = 0;

	if (p)
		memcpy(&v, p, 8);
	return be64toh(v);
}
/* RFC 4506 section 4.4: only 0 and 1. */
static inline bool xdr_get_bool(struct xdr_in *x)
{
	uint32_t v = xdr_get_u32(x);

	if (v > 1)
		x->bad = true;
	return v == 1;
}
/* Fixed opaque of n bytes, with its padding. */
static inline const uint8_t *xdr_get_fixed(struct xdr_in *x, size_t n)
{
	return n > SIZE_MAX - 3 ? (x->bad = true, (const uint8_t *)NULL)
				: xdr_take(x, (n + 3) & ~(size_t)3);
}
/* Variable opaque of at most max bytes; *len is 0 and the result NULL when it does not fit. */
static inline const uint8_t *xdr_get_opaque(struct xdr_in *x, uint32_t max, uint32_t *len)
{
	uint32_t n = xdr_get_u32(x);
	const uint8_t *p;

	*len = 0;
	if (x->bad || n > max) {
		x->bad = true;
		return NULL;
	}
	p = xdr_get_fixed(x, n);
	if (p)
		*len = n;
	return p;
}

struct xdr_splice {
	size_t sp_at; /* position in the head after which the payload goes */
	const void *sp_data;
	uint32_t sp_len;
	void (*sp_release)(void *arg); /* called once, on the loop that sends; may be NULL */
	void *sp_arg;
	bool sp_stays; /* part of the stream over RDMA as well */
};
#define XDR_SPLICES 8

struct xdr_out {
	uint8_t *x_head;
	size_t x_len, x_cap; /* bytes used and allocated in the head */
	size_t x_limit;	     /* head + payload may not pass this */
	size_t x_payload;    /* bytes in splices */
	unsigned x_nsplice;
	bool bad;
	struct xdr_splice x_splice[XDR_SPLICES];
	/* sp_data, sp_len: where the reply's payload may go; not part of the message */
	struct xdr_splice x_place;
};

void xdr_out_init(struct xdr_out *x, size_t limit);
void xdr_out_free(struct xdr_out *x);
/* Room for n more head bytes, or NULL (bad). */
uint8_t *xdr_reserve_slow(struct xdr_out *x, size_t n);
static inline uint8_t *xdr_reserve(struct xdr_out *x, size_t n)
{
	if (!x->bad && x->x_cap - x->x_len >= n && x->x_len + n + x->x_payload <= x->x_limit) {
		uint8_t *p = x->x_head + x->x_len;

		x->x_len += n;
		return p;
	}
	return xdr_reserve_slow(x, n);
}
static inline void xdr_put_u32(struct xdr_out *x, uint32_t v)
{
	uint8_t *p = xdr_reserve(x, 4);

	v = htobe32(v);
	if (p)
		memcpy(p, &v, 4);
}
static inline void xdr_put_u64(struct xdr_out *x, uint64_t v)
{
	uint8_t *p = xdr_reserve(x, 8);

	v = htobe64(v);
	if (p)
		memcpy(p, &v, 8);
}
static inline void xdr_put_bool(struct xdr_out *x, bool v)
{
	xdr_put_u32(x, v);
}
/* Fixed opaque with zero padding. */
static inline void xdr_put_fixed(struct xdr_out *x, const void *data, size_t n)
{
	size_t r = (n + 3) & ~(size_t)3;
	uint8_t *p = r ? xdr_reserve(x, r) : NULL; /* the head may not be there yet */

	if (p) {
		memset(p + r - 4, 0, 4);
		memcpy(p, data, n);
	}
}
static inline void xdr_put_opaque(struct xdr_out *x, const void *data, uint32_t n)
{
	xdr_put_u32(x, n);
	xdr_put_fixed(x, data, n);
}
/* Overwrites 4 bytes at a position that x->x_len had earlier. */
static inline void xdr_patch_u32(struct xdr_out *x, size_t at, uint32_t v)
{
	if (at + 4 > x->x_len)
		return; /* the put that should have made the place did not fit: bad is set */
	v = htobe32(v);
	memcpy(x->x_head + at, &v, 4);
}
/* Cuts the head back to an earlier position (drops later splices, releasing them) and clears
 * bad. */
void xdr_truncate(struct xdr_out *x, size_t at);
/* Puts payload by reference: n bytes of data go here, WITHOUT length word; the padding goes into
 * the head. release(arg) is called when the bytes are sent or the buffer is freed, also when this
 * put fails. Over RDMA the bytes may go by themselves, without the rest: only for DDP-eligible
 * items (RFC 8267: data of READ and READLINK), and for each such item, also an empty one. */
void xdr_put_ref(struct xdr_out *x, const void *data, uint32_t n, void (*release)(void *),
		 void *arg);
/* As xdr_put_ref, for payload that is not DDP-eligible. */
void xdr_put_ref_plain(struct xdr_out *x, const void *data, uint32_t n, void (*release)(void *),
		       void *arg);
/* In a call: a transport that can (rpc_rdma.h) may put the payload of the reply (at most n bytes)
 * at p by itself. release as in xdr_put_ref: once the peer can no longer write there. */
void xdr_put_place(struct xdr_out *x, void *p, uint32_t n, void (*release)(void *), void *arg);
/* Fills iov (at most 2 * XDR_SPLICES + 1) and returns the count. */
unsigned xdr_out_iov(const struct xdr_out *x, struct iovec *iov);
#endif
