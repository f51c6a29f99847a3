/* SPDX-License-Identifier: Apache-2.0 */
/* xdr.c - the parts of xdr.h that are not worth inlining. */
#include "proto/xdr.h"

#define XDR_FIRST 512

void xdr_out_init(struct xdr_out *x, size_t limit)
{
	x->x_head = NULL;
	x->x_len = x->x_cap = 0;
	x->x_limit = limit;
	x->x_payload = 0;
	x->x_nsplice = 0;
	x->x_place.sp_release = NULL;
	x->x_place.sp_len = 0;
	x->bad = false;
}

static void splice_release(struct xdr_splice *s)
{
	if (s->sp_release)
		s->sp_release(s->sp_arg);
}

void xdr_out_free(struct xdr_out *x)
{
	for (unsigned i = 0; i < x->x_nsplice; i++)
		splice_release(&x->x_splice[i]);
	splice_release(&x->x_place);
	free(x->x_head);
	xdr_out_init(x, x->x_limit);
}

uint8_t *xdr_reserve_slow(struct xdr_out *x, size_t n)
{
	size_t used = x->x_len + x->x_payload, cap = x->x_cap;
	uint8_t *p;

	if (x->bad)
		return NULL;
	if (used > x->x_limit || n > x->x_limit - used)
		goto bad;
	if (x->x_cap - x->x_len < n) {
		if (cap < XDR_FIRST)
			cap = XDR_FIRST;
		while (cap - x->x_len < n)
			cap *= 2;
		p = realloc(x->x_head, cap);
		if (!p)
			goto bad;
		x->x_head = p;
		x->x_cap = cap;
	}
	p = x->x_head + x->x_len;
	x->x_len += n;
	return p;
bad:
	x->bad = true;
	return NULL;
}

/* A splice exactly at the cut stays: it ends what was written before the position was taken. */
void xdr_truncate(struct xdr_out *x, size_t at)
{
	if (at < x->x_len)
		x->x_len = at;
	while (x->x_nsplice && x->x_splice[x->x_nsplice - 1].sp_at > at) {
		struct xdr_splice *s = &x->x_splice[--x->x_nsplice];

		x->x_payload -= s->sp_len;
		splice_release(s);
	}
	x->bad = false;
}

static void put_ref(struct xdr_out *x, const void *data, uint32_t n, void (*release)(void *),
		    void *arg, bool stays)
{
	struct xdr_splice s = {x->x_len, data, n, release, arg, stays};
	size_t used = x->x_len + x->x_payload;
	uint64_t padded = ((uint64_t)n + 3) & ~(uint64_t)3;
	uint8_t *pad;

	if (!x->bad && (used > x->x_limit || padded > x->x_limit - used))
		x->bad = true;
	/* No place is left. A copy costs time; a failed reply costs the client its answer. */
	if (x->bad || (!n && stays) || x->x_nsplice == XDR_SPLICES) {
		if (!x->bad)
			xdr_put_fixed(x, data, n);
		splice_release(&s);
		return;
	}
	x->x_splice[x->x_nsplice++] = s;
	x->x_payload += n;
	pad = xdr_reserve(x, padded - n);
	if (pad)
		memset(pad, 0, padded - n);
}

void xdr_put_ref(struct xdr_out *x, const void *data, uint32_t n, void (*release)(void *),
		 void *arg)
{
	put_ref(x, data, n, release, arg, false);
}

void xdr_put_ref_plain(struct xdr_out *x, const void *data, uint32_t n, void (*release)(void *),
		       void *arg)
{
	put_ref(x, data, n, release, arg, true);
}

void xdr_put_place(struct xdr_out *x, void *p, uint32_t n, void (*release)(void *), void *arg)
{
	x->x_place = (struct xdr_splice){
		.sp_data = p, .sp_len = n, .sp_release = release, .sp_arg = arg};
}

unsigned xdr_out_iov(const struct xdr_out *x, struct iovec *iov)
{
	unsigned n = 0;
	size_t at = 0;

	for (unsigned i = 0; i < x->x_nsplice; i++) {
		const struct xdr_splice *s = &x->x_splice[i];

		if (s->sp_at > at)
			iov[n++] = (struct iovec){x->x_head + at, s->sp_at - at};
		if (s->sp_len)
			iov[n++] = (struct iovec){(void *)s->sp_data, s->sp_len};
		at = s->sp_at;
	}
	if (x->x_len > at)
		iov[n++] = (struct iovec){x->x_head + at, x->x_len - at};
	return n;
}
