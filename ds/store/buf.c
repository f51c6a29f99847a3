/*
 * buf.c - memory for reads: page-aligned, in sizes of 4 KiB to 1 MiB, kept in free lists of the loop. A buffer goes back to
 * the loop it came from, where its reply is sent. A loop hands out a bounded amount; requests beyond it wait, in order.
 */
#include "base/log.h"
#include "ds/store/store.h"
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

#define BUF_CLASSES 9 /* 4 KiB << 0 .. 8 */
#define BUF_BUDGET	(256u << 20)
#define BUF_KEEP	(64u << 20) /* free memory kept, per loop */

_Static_assert(DS_PAGE << (BUF_CLASSES - 1) == DS_MAX_IO, "the largest buffer is the largest transfer");

struct ds_pool {
	struct ds_buf *bp_free[BUF_CLASSES];
	size_t bp_out, bp_kept; /* bytes */
	struct ds_buf_wait *bp_wait, **bp_wait_end;
};

static void buf_free(struct ds_buf *b)
{
	munmap(b->b_data, (size_t)DS_PAGE << b->b_class);
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
			log_fatal("store: no memory");
		bp->bp_wait_end = &bp->bp_wait;
		loop_set_local(loop_self(), LOOP_SLOT_STORE, bp, pool_drop);
	}
	return bp;
}

static unsigned class_of(uint32_t size)
{
	unsigned c = 0;

	while (DS_PAGE << c < size)
		c++;
	return c;
}

/* NULL: over the budget, or no memory. */
static struct ds_buf *buf_take(struct ds_pool *bp, uint32_t size)
{
	unsigned c = class_of(size);
	size_t bytes = (size_t)DS_PAGE << c;
	struct ds_buf *b = bp->bp_free[c];

	if (bp->bp_out + bytes > BUF_BUDGET)
		return NULL;
	if (b) {
		bp->bp_free[c] = b->b_next;
		bp->bp_kept -= bytes;
	} else {
		b = malloc(sizeof(*b));
		if (!b)
			return NULL;
		b->b_data = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (b->b_data == MAP_FAILED) {
			free(b);
			return NULL;
		}
		b->b_class = c;
		b->b_pool = bp;
	}
	bp->bp_out += bytes;
	return b;
}

void ds_buf_get(struct ds_buf_wait *w, uint32_t size)
{
	struct ds_pool *bp = pool_self();
	struct ds_buf *b = bp->bp_wait ? NULL : buf_take(bp, size);

	w->bw_size = size;
	w->bw_next = NULL;
	/* Nothing is out, so nothing will come back: not even one buffer can be had. */
	if (!b && !bp->bp_out)
		log_fatal("store: no memory for a read");
	if (b) {
		w->bw_ready(w, b);
		return;
	}
	*bp->bp_wait_end = w;
	bp->bp_wait_end = &w->bw_next;
}

void ds_buf_put(void *buf)
{
	struct ds_buf *b = buf;
	struct ds_pool *bp = b->b_pool;
	size_t bytes = (size_t)DS_PAGE << b->b_class;
	struct ds_buf_wait *w;

	bp->bp_out -= bytes;
	if (bp->bp_kept + bytes <= BUF_KEEP) {
		b->b_next = bp->bp_free[b->b_class];
		bp->bp_free[b->b_class] = b;
		bp->bp_kept += bytes;
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
