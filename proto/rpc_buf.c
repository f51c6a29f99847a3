/* SPDX-License-Identifier: Apache-2.0 */
/* rpc_buf.c - buffers for received data, and cutting a byte stream into records; see rpc_int.h. */
#include "base/pool.h"
#include "proto/rpc_int.h"
#include <assert.h>
#include <errno.h>

#define RX_SMALL 8192u /* a record up to this size is completed in the receive buffer */
#define RX_ROOM	 4096u /* with less free space than this, start a new receive buffer */
/* At most this much of a record moves to a new receive buffer when the space behind it is short. */
#define RX_MOVE	 256u
#define BULK_MIN 8192u
/* After a bulk record, expect another one until this many small records have come. */
#define BULK_AGAIN 16u
#define HINT_MAX   2048u
/* The part of a call's header that gives the length of the credential (RFC 5531 section 9). */
#define CALL_CRED 32u

/* ---- buffers ---- */

static size_t class_cap(uint32_t class)
{
	/* Room for a payload of a power of two, and one page on each side to align it. */
	return ((size_t)RPC_ANY << class) + 2 * RPC_PAGE;
}

size_t rpc_buf_cap(const struct rpc_buf *b)
{
	return class_cap(b->b_class);
}

/* data is pool memory, or NULL. */
static struct rpc_buf *buf_make(uint32_t class, void *data)
{
	struct rpc_buf *b = malloc(sizeof *b);

	if (b) {
		b->b_own = NULL;
		b->b_class = class;
		b->b_pooled = data;
		b->b_data = data ? data : aligned_alloc(RPC_PAGE, class_cap(class));
		if (b->b_data)
			return b;
	} else if (data) {
		pool_put(data, class_cap(class));
	}
	free(b);
	return NULL;
}

static void rpc_buf_buf_free(struct rpc_buf *b)
{
	if (b->b_pooled)
		pool_put(b->b_data, rpc_buf_cap(b));
	else
		free(b->b_data);
	free(b);
}

/* Takes payload buffers from the memory pool while half of it is left: no more than that, because
 * peers may send slowly. Buffers of the smallest class do not come from the pool: every connection
 * has one of them, however long it is idle. */
struct rpc_buf *rpc_buf_new(struct rpc_pool *pool, size_t need)
{
	uint32_t class = 0;
	struct rpc_buf *b;
	void *data;

	while (class < RPC_BUF_CLASSES && class_cap(class) < need)
		class ++;
	if (class == RPC_BUF_CLASSES)
		return NULL;
	data = class ? pool_get(class_cap(class), POOL_LEAVE_HALF) : NULL;
	if (!data && pool->p_free[class]) {
		b = pool->p_free[class];
		pool->p_free[class] = b->b_next;
		pool->p_nsmall -= class == 0;
		pool->p_bytes -= class_cap(class);
	} else {
		b = buf_make(class, data);
		if (!b)
			return NULL;
		b->b_pool = pool;
	}
	b->b_refs = 1;
	b->b_next = NULL;
	return b;
}

void rpc_buf_put(struct rpc_buf *b)
{
	struct rpc_pool *pool;

	assert(b->b_refs);
	if (--b->b_refs)
		return;
	if (b->b_own) {
		b->b_own(b);
		return;
	}
	pool = b->b_pool;
	if (b->b_pooled || pool->p_bytes + rpc_buf_cap(b) > RPC_BUF_KEEP ||
	    (b->b_class == 0 && pool->p_nsmall >= RPC_BUF_SMALL)) {
		rpc_buf_buf_free(b);
		return;
	}
	b->b_next = pool->p_free[b->b_class];
	pool->p_free[b->b_class] = b;
	pool->p_nsmall += b->b_class == 0;
	pool->p_bytes += rpc_buf_cap(b);
}

void rpc_pool_drain(struct rpc_pool *pool)
{
	for (uint32_t i = 0; i < RPC_BUF_CLASSES; i++)
		while (pool->p_free[i]) {
			struct rpc_buf *b = pool->p_free[i];

			pool->p_free[i] = b->b_next;
			rpc_buf_buf_free(b);
		}
	pool->p_bytes = pool->p_nsmall = 0;
}

/* ---- records ---- */

void rpc_rx_init(struct rpc_rx *x, struct rpc_pool *pool, size_t max)
{
	memset(x, 0, sizeof *x);
	x->x_pool = pool;
	x->x_max = max;
}

void rpc_rx_free(struct rpc_rx *x)
{
	if (x->x_rx)
		rpc_buf_put(x->x_rx);
	if (x->x_rec)
		rpc_buf_put(x->x_rec);
	x->x_rx = x->x_rec = NULL;
	x->x_r = x->x_w = 0;
}

static uint32_t mark_at(const uint8_t *p)
{
	uint32_t v;

	memcpy(&v, p, sizeof v);
	return be32toh(v);
}

/* Returns the length of a call's header, of which have bytes are at p, or 0 if it is no call or too
 * little has come. A verifier that has not come yet counts as empty. */
static size_t call_head(const uint8_t *p, size_t have)
{
	size_t at, n;

	if (have < CALL_CRED || mark_at(p + 4) != 0)
		return 0;
	n = mark_at(p + CALL_CRED - 4);
	if (n > RPC_MAX_AUTH)
		return 0;
	at = CALL_CRED + ((n + 3) & ~(size_t)3) + 8;
	n = have >= at ? mark_at(p + at - 4) : 0;
	return n > RPC_MAX_AUTH ? 0 : at + ((n + 3) & ~(size_t)3);
}

/* Returns where the payload of the record at p is expected, if the record is like the last bulk
 * record. The credential is measured, because it differs between users. */
static size_t payload_at(const struct rpc_rx *x, const uint8_t *p, size_t have)
{
	size_t head = call_head(p, have);

	return x->x_hint && x->x_hint_args && head ? head + x->x_hint_args : x->x_hint;
}

/* Moves the unconsumed bytes to the front of a buffer that has no other reader. */
static int rx_fresh(struct rpc_rx *x)
{
	uint32_t have = x->x_w - x->x_r;
	struct rpc_buf *b;

	if (have > RPC_MARK)
		x->x_copied += have - RPC_MARK;
	if (x->x_rx && x->x_rx->b_refs == 1) {
		memmove(x->x_rx->b_data, x->x_rx->b_data + x->x_r, have);
	} else {
		b = rpc_buf_new(x->x_pool, RPC_ANY);
		if (!b)
			return -ENOMEM;
		if (x->x_rx) {
			memcpy(b->b_data, x->x_rx->b_data + x->x_r, have);
			rpc_buf_put(x->x_rx);
		}
		x->x_rx = b;
	}
	x->x_r = 0;
	x->x_w = have;
	return 0;
}

/* Returns how much of the current fragment goes into x_rec next. If the service has to look at the
 * record first, that is no more than its first RPC_FIRST bytes. */
static size_t rec_takes(const struct rpc_rx *x)
{
	if (x->x_gate && x->x_frag_left > RPC_FIRST - x->x_len)
		return RPC_FIRST - x->x_len;
	return x->x_frag_left;
}

static int rx_space(struct rpc_rx *x, bool any, void **p, size_t *n, bool *all)
{
	uint32_t have = x->x_w - x->x_r;
	size_t cap, len, want = RX_ROOM, rest = 0, small = 0;
	int err;

	*all = false;
	if (x->x_rec && x->x_frag_left && !x->x_skip) {
		*p = x->x_rec->b_data + x->x_start + x->x_len;
		*n = rec_takes(x);
		*all = true;
		return 0;
	}
	if (x->x_rx && !have && x->x_rx->b_refs == 1)
		x->x_r = x->x_w = 0;
	cap = x->x_rx ? rpc_buf_cap(x->x_rx) : any ? class_cap(0) : 0;
	/* rpc_rx_next leaves at most a mark and an incomplete small record, or a mark and the first
	 * bytes of a header. */
	if (have >= RPC_MARK) {
		len = mark_at(x->x_rx->b_data + x->x_r) & ~RPC_LAST;
		if (len <= RX_SMALL)
			small = RPC_MARK + len - have;
		else
			len = x->x_hint > CALL_CRED ? x->x_hint : CALL_CRED;
		rest = RPC_MARK + len - have;
		if (want < rest || (small && have > RX_MOVE))
			want = rest;
	} else if (x->x_small) {
		small = x->x_small - have;
		if (want < small)
			want = small;
	}
	if (cap - x->x_w < want) {
		err = rx_fresh(x);
		if (err)
			return err;
		cap = rpc_buf_cap(x->x_rx);
	}
	*p = x->x_rx ? x->x_rx->b_data + x->x_w : NULL;
	*n = cap - x->x_w < RPC_ANY ? cap - x->x_w : RPC_ANY;
	/* Receive whole records if more come like the last one: a record that the end of the buffer
	 * cuts in two has to be moved to the next buffer. */
	if (small && x->x_small)
		*n = small + (*n - small) / x->x_small * x->x_small;
	/* Receive only the header of the coming bulk record, so that its payload does not come
	 * along and need a copy. */
	if (x->x_bulk && x->x_hint && !x->x_skip)
		*n = have < RPC_MARK ? RPC_MARK + x->x_hint - have : rest;
	return 0;
}

int rpc_rx_space(struct rpc_rx *x, void **p, size_t *n, bool *all)
{
	return rx_space(x, false, p, n, all);
}

int rpc_rx_space_any(struct rpc_rx *x, void **p, size_t *n, bool *all)
{
	return rx_space(x, true, p, n, all);
}

void rpc_rx_got(struct rpc_rx *x, size_t n)
{
	if (x->x_rec && x->x_frag_left && !x->x_skip) {
		x->x_len += n;
		x->x_frag_left -= n;
	} else {
		x->x_w += (uint32_t)n;
	}
}

/* Makes room for len more bytes in x_rec. If there is no x_rec, makes one that begins where its
 * payload will be aligned to a page. */
static int rec_room(struct rpc_rx *x, size_t len)
{
	size_t start = x->x_start;
	struct rpc_buf *b;

	if (x->x_rec && rpc_buf_cap(x->x_rec) - x->x_start - x->x_len >= len)
		return 0;
	if (!x->x_rec)
		start = -payload_at(x, x->x_rx->b_data + x->x_r + RPC_MARK,
				    x->x_w - x->x_r - RPC_MARK) %
			RPC_PAGE;
	b = rpc_buf_new(x->x_pool, start + (x->x_rec ? x->x_len : 0) + len);
	if (!b)
		return -ENOMEM;
	if (x->x_rec) {
		memcpy(b->b_data + start, x->x_rec->b_data + start, x->x_len);
		x->x_copied += x->x_len;
		rpc_buf_put(x->x_rec);
	} else {
		x->x_len = 0;
	}
	x->x_rec = b;
	x->x_start = start;
	return 0;
}

/* A mark is at x_r. Returns 1 if the whole record lies in the receive buffer, in *r; 0 to wait; 2
 * if x_rec goes on. */
static int fragment_begin(struct rpc_rx *x, struct rpc_record *r)
{
	const uint8_t *p = x->x_rx->b_data + x->x_r;
	uint32_t mark = mark_at(p), len = mark & ~RPC_LAST, have = x->x_w - x->x_r - RPC_MARK;
	size_t room = len;
	int err;

	if (len > x->x_max || (x->x_rec && len > x->x_max - x->x_len - x->x_skipped))
		return -EMSGSIZE;
	if (!x->x_rec && (mark & RPC_LAST)) {
		if (have >= len) {
			x->x_rx->b_refs++;
			*r = (struct rpc_record){.r_buf = x->x_rx,
						 .r_data = p + RPC_MARK,
						 .r_len = len,
						 .r_copied = x->x_copied};
			x->x_copied = 0;
			x->x_small = RPC_MARK + len;
			x->x_r += RPC_MARK + len;
			x->x_bulk -= x->x_bulk > 0;
			return 1;
		}
		if (len <= RX_SMALL)
			return 0;
	}
	/* The header says where the payload will be. */
	if (!x->x_rec && x->x_hint && len > RX_SMALL && have < CALL_CRED)
		return 0;
	if (x->x_gate && room > RPC_FIRST - (x->x_rec ? x->x_len : 0))
		room = RPC_FIRST - (x->x_rec ? x->x_len : 0);
	err = x->x_skip ? 0 : rec_room(x, room);
	if (err)
		return err;
	x->x_r += RPC_MARK;
	x->x_frag_left = len;
	x->x_last = mark & RPC_LAST;
	return 2;
}

/* Takes the bytes of x_rec's record that lie in the receive buffer. Appends them to x_rec, or drops
 * them. */
static void rec_feed(struct rpc_rx *x)
{
	size_t n = x->x_w - x->x_r, most = x->x_skip ? x->x_frag_left : rec_takes(x);

	if (n > most)
		n = most;
	if (!n)
		return;
	if (x->x_skip) {
		x->x_skipped += n;
	} else {
		memcpy(x->x_rec->b_data + x->x_start + x->x_len, x->x_rx->b_data + x->x_r, n);
		x->x_copied += n;
		x->x_len += n;
	}
	x->x_r += (uint32_t)n;
	x->x_frag_left -= n;
}

int rpc_rx_admit(struct rpc_rx *x, bool whole)
{
	x->x_gate = !whole;
	x->x_skip = !whole;
	return whole ? rec_room(x, x->x_frag_left) : 0;
}

static bool rec_was_cut(struct rpc_rx *x)
{
	bool cut = x->x_skip;

	x->x_skip = false;
	x->x_skipped = 0;
	return cut;
}

int rpc_rx_next(struct rpc_rx *x, struct rpc_record *r)
{
	for (;;) {
		int got;

		if (!x->x_rec || (!x->x_frag_left && !x->x_last)) {
			if (x->x_w - x->x_r < RPC_MARK)
				return 0;
			got = fragment_begin(x, r);
			if (got != 2)
				return got;
		}
		rec_feed(x);
		if (x->x_frag_left && x->x_gate && !x->x_skip && x->x_len == RPC_FIRST) {
			*r = (struct rpc_record){.r_data = x->x_rec->b_data + x->x_start,
						 .r_len = x->x_len};
			return RPC_RX_FIRST;
		}
		if (x->x_frag_left)
			return 0;
		if (!x->x_last)
			continue;
		*r = (struct rpc_record){.r_buf = x->x_rec,
					 .r_data = x->x_rec->b_data + x->x_start,
					 .r_len = x->x_len,
					 .r_copied = x->x_copied};
		x->x_copied = 0;
		r->r_cut = rec_was_cut(x);
		if (x->x_len >= BULK_MIN && !r->r_cut)
			x->x_bulk = BULK_AGAIN;
		else
			x->x_bulk -= x->x_bulk > 0;
		x->x_rec = NULL;
		return 1;
	}
}

size_t rpc_rx_half(const struct rpc_rx *x)
{
	if (!x->x_rec && x->x_w == x->x_r)
		return 0;
	return (x->x_rx ? rpc_buf_cap(x->x_rx) : 0) + (x->x_rec ? rpc_buf_cap(x->x_rec) : 0);
}

size_t rpc_rx_rest(const struct rpc_rx *x, const uint8_t **p)
{
	*p = x->x_rx ? x->x_rx->b_data + x->x_r : NULL;
	return x->x_w - x->x_r;
}

void rpc_rx_take(struct rpc_rx *x, struct rpc_buf *b)
{
	assert(!x->x_rx);
	x->x_rx = b;
}

void rpc_rx_leave(struct rpc_rx *x)
{
	if (!x->x_rx || x->x_w != x->x_r)
		return;
	rpc_buf_put(x->x_rx);
	x->x_rx = NULL;
	x->x_r = x->x_w = 0;
}

void rpc_rx_idle(struct rpc_rx *x)
{
	if (x->x_rx && x->x_rx->b_refs == 1)
		rpc_rx_leave(x);
}

void rpc_rx_hint(struct rpc_rx *x, const uint8_t *rec, size_t off)
{
	size_t head = call_head(rec, off);

	x->x_hint = off <= HINT_MAX ? (uint32_t)off : 0;
	x->x_hint_args = head && head < off ? (uint32_t)(off - head) : 0;
}
