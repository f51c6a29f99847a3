/* SPDX-License-Identifier: Apache-2.0 */
/*
 * buf.c - page-aligned memory for reads, in sizes of 4 KiB to 1 MiB. It comes from the memory pool
 * while the pool has some, then from ordinary memory. Each loop keeps free lists of ordinary memory
 * and hands out a bounded amount of it; requests beyond that wait, in order. So a peer that does
 * not take the data it asked for, and with it holds the whole pool, does not stop other peers'
 * reads.
 *
 * A caller that can use only the pool's memory waits for it (pool_wait), and holds no other buffer
 * meanwhile. A buffer goes back on the loop that handed it out, which also sends the reply.
 */
#include "base/log.h"
#include "base/pool.h"
#include "ds/store/store.h"
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <urcu/compiler.h>

#define BUF_CLASSES 9		 /* 4 KiB << 0 .. 8 */
#define BUF_BUDGET  (256u << 20) /* ordinary memory handed out, per loop */
#define BUF_KEEP    (64u << 20)	 /* free ordinary memory kept, per loop */

_Static_assert(DS_PAGE << (BUF_CLASSES - 1) == DS_MAX_IO,
	       "the largest buffer is the largest transfer");
_Static_assert(DS_MAX_IO <= POOL_MOST, "the pool has buffers of every size");

struct ds_pool {
	struct ds_buf *bp_free[BUF_CLASSES];
	size_t bp_out, bp_kept; /* bytes of ordinary memory */
	size_t bp_nout;		/* buffers handed out, of both kinds */
	struct ds_buf_wait *bp_wait, **bp_wait_end;
};

static size_t buf_bytes(const struct ds_buf *b)
{
	return (size_t)DS_PAGE << b->b_class;
}

static void buf_free(struct ds_buf *b)
{
	if (b->b_pooled)
		pool_put(b->b_data, buf_bytes(b));
	else
		munmap(b->b_data, buf_bytes(b));
	free(b);
}

static void pool_drop(void *p)
{
	struct ds_pool *bp = p;

	for (unsigned i = 0; i < BUF_CLASSES; i++) {
		while (bp->bp_free[i]) {
			struct ds_buf *b = bp->bp_free[i];

			bp->bp_free[i] = b->b_next;
			buf_free(b);
		}
	}
	free(bp);
}

static struct ds_pool *pool_self(void)
{
	struct ds_pool *bp = loop_local(loop_self(), LOOP_SLOT_STORE);

	if (!bp) {
		bp = calloc(1, sizeof(*bp));
		if (!bp)
			log_fatal("store: out of memory");
		bp->bp_wait_end = &bp->bp_wait;
		loop_set_local(loop_self(), LOOP_SLOT_STORE, bp, pool_drop);
	}
	return bp;
}

static unsigned buf_class_of(uint32_t size)
{
	unsigned c = 0;

	while (DS_PAGE << c < size)
		c++;
	return c;
}

uint32_t ds_buf_takes(uint32_t size)
{
	return DS_PAGE << buf_class_of(size);
}

static struct ds_buf *buf_new(struct ds_pool *bp, unsigned class)
{
	struct ds_buf *b = malloc(sizeof(*b));

	if (b) {
		b->b_pool = bp;
		b->b_class = class;
		b->b_pooled = true;
	}
	return b;
}

static struct ds_buf *take_pooled(struct ds_pool *bp, unsigned class, enum pool_leave leave)
{
	void *data = pool_get((size_t)DS_PAGE << class, leave);
	struct ds_buf *b = data ? buf_new(bp, class) : NULL;

	if (data && !b)
		pool_put(data, (size_t)DS_PAGE << class);
	if (b)
		b->b_data = data;
	return b;
}

/* NULL: over the budget, or out of memory. */
static struct ds_buf *take_plain(struct ds_pool *bp, unsigned class)
{
	size_t bytes = (size_t)DS_PAGE << class;
	struct ds_buf *b = bp->bp_free[class];

	if (bp->bp_out + bytes > BUF_BUDGET)
		return NULL;
	if (b) {
		bp->bp_free[class] = b->b_next;
		bp->bp_kept -= bytes;
	} else {
		b = buf_new(bp, class);
		if (!b)
			return NULL;
		b->b_pooled = false;
		b->b_data = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
				 -1, 0);
		if (b->b_data == MAP_FAILED) {
			free(b);
			return NULL;
		}
	}
	bp->bp_out += bytes;
	return b;
}

static struct ds_buf *buf_take(struct ds_pool *bp, uint32_t size)
{
	unsigned class = buf_class_of(size);
	struct ds_buf *b = take_pooled(bp, class, POOL_LEAVE_QUARTER);

	if (!b)
		b = take_plain(bp, class);
	bp->bp_nout += b != NULL;
	return b;
}

void ds_buf_get(struct ds_buf_wait *w, uint32_t size)
{
	struct ds_pool *bp = pool_self();
	struct ds_buf *b = bp->bp_wait ? NULL : buf_take(bp, size);

	w->bw_size = size;
	w->bw_next = NULL;
	/* The loop has handed out no buffer, so none will come back: there is no memory for even
	 * one. */
	if (!b && !bp->bp_nout)
		log_fatal("store: out of memory for a read");
	if (b) {
		w->bw_ready(w, b);
		return;
	}
	*bp->bp_wait_end = w;
	bp->bp_wait_end = &w->bw_next;
}

static void pool_ready(struct pool_wait *pw, void *data)
{
	struct ds_buf_wait *w = caa_container_of(pw, struct ds_buf_wait, bw_pool);
	struct ds_pool *bp = pool_self();
	struct ds_buf *b = buf_new(bp, buf_class_of(w->bw_size));

	if (!b)
		log_fatal("store: out of memory for a read");
	b->b_data = data;
	bp->bp_nout++;
	w->bw_ready(w, b);
}

void ds_buf_get_pooled(struct ds_buf_wait *w, uint32_t size)
{
	struct ds_pool *bp = pool_self();
	struct ds_buf *b = take_pooled(bp, buf_class_of(size), POOL_LEAVE_NONE);

	w->bw_size = size;
	if (!b) {
		w->bw_pool.pw_ready = pool_ready;
		pool_wait(&w->bw_pool, (size_t)DS_PAGE << buf_class_of(size));
		return;
	}
	bp->bp_nout++;
	w->bw_ready(w, b);
}

void ds_buf_put(void *buf)
{
	struct ds_buf *b = buf;
	struct ds_pool *bp = b->b_pool;
	struct ds_buf_wait *w;

	bp->bp_nout--;
	if (!b->b_pooled)
		bp->bp_out -= buf_bytes(b);
	if (!b->b_pooled && bp->bp_kept + buf_bytes(b) <= BUF_KEEP) {
		b->b_next = bp->bp_free[b->b_class];
		bp->bp_free[b->b_class] = b;
		bp->bp_kept += buf_bytes(b);
	} else {
		buf_free(b);
	}
	while ((w = bp->bp_wait)) {
		b = buf_take(bp, w->bw_size);
		if (!b)
			return;
		bp->bp_wait = w->bw_next;
		if (!bp->bp_wait)
			bp->bp_wait_end = &bp->bp_wait;
		w->bw_ready(w, b);
	}
}
