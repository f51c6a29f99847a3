/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pool.h - the daemon's memory for payload: made once at start, per NUMA node, of huge pages where
 * there are some, all of it in RAM. It is registered once with each loop's ring (fixed buffers) and
 * once with each RDMA device (by the RDMA code, which walks the pieces). A process has one pool,
 * with a part for each node; others call a part a node's pool.
 *
 * Blocks begin on a page. Their sizes are 4 KiB << n, and from 16 KiB on also two pages more
 * (payload of that size with its header in front), up to POOL_MOST. A loop keeps some free blocks
 * to itself, so that most calls take no lock; together the loops keep at most an eighth of the
 * pool, each at most POOL_KEEP.
 *
 * A caller that can do without a block (pool_get returned NULL, ordinary memory will do) leaves
 * some to callers that cannot: that is pool_leave. A caller that cannot waits (pool_wait). While
 * any caller waits, pool_get gives nothing: blocks that come back go to the waiting callers, in
 * order. The users of the pool must make sure that no wait lasts for ever: a holder of a block
 * waits neither for another block nor for a caller that does; and blocks that a peer can keep for
 * long are got with POOL_LEAVE_HALF or POOL_LEAVE_QUARTER.
 *
 * Caveats:
 * - Give a block back with the size that was asked for.
 * - pool_init comes first; pool_register before the loop runs, and before privileges are dropped.
 */
#ifndef BASE_POOL_H
#define BASE_POOL_H
#include "base/loop.h"
#include <stddef.h>

#define POOL_PAGE  4096u
#define POOL_MOST  ((1u << 20) + 2 * POOL_PAGE) /* bytes of the largest block */
#define POOL_KEEP  (8u << 20)
#define POOL_LEAST (2u << 20) /* bytes of the smallest pool; a pool's size is a multiple of it */
#define POOL_NODES 64

/* At most 1 GiB: a fixed buffer can have no more. */
struct pool_piece {
	uint8_t *pp_base;
	size_t pp_len;
	int pp_node;
};

/* Before pool_init: takes all memory from these nodes (ascending, at most POOL_NODES); without this
 * call, from all nodes that have some. Where the kernel refuses a node, the memory comes from
 * any. */
void pool_use_nodes(const int *nodes, int n);
/* Shares bytes out evenly among the nodes, each rounded up to POOL_LEAST. 0: there is no pool,
 * pool_get returns NULL, pool_wait must not be called. Logs the result. Returns 0, or a negative
 * errno and one line in err. */
int pool_init(size_t bytes, char *err, size_t errlen);
/* The size of all pieces together. */
size_t pool_bytes(void);
unsigned pool_pieces(void);
const struct pool_piece *pool_piece(unsigned i);
/* The piece that p lies in; -1: none. */
int pool_piece_of(const void *p);

/* Before pool_register: l runs on this node. It gets blocks of the node's memory as long as there
 * are some, keeps no others to itself, and has only that memory as fixed buffers. Does nothing if
 * the pool has one node only, or no memory of this node. */
void pool_home(struct loop *l, int node);
/* Makes the pool, or the part of the loop's node, the fixed buffers of l's ring, and of its polled
 * ring. If the kernel refuses, logs it with the limit that refused, and returns a negative errno:
 * the loop works without. Returns 0 where there is no pool. */
int pool_register(struct loop *l);
/* The fixed buffer of l's ring that p lies in; -1: none. On l. */
int pool_fixed(struct loop *l, const void *p);

/* So much of a node's memory stays free. */
enum pool_leave { POOL_LEAVE_NONE, POOL_LEAVE_QUARTER, POOL_LEAVE_HALF };
/* Returns a block with undefined contents; NULL: there is none. Any thread; on loops mostly without
 * a lock. */
void *pool_get(size_t bytes, enum pool_leave leave);
/* Any thread, best on the loop that got it. bytes as asked for. */
void pool_put(void *p, size_t bytes);

struct pool_wait {
	void (*pw_ready)(struct pool_wait *w, void *p);
	/* the pool's own */
	struct loop_msg pw_msg;
	struct loop *pw_loop;
	struct pool_wait *pw_next;
	size_t pw_bytes;
	int pw_here;
	void *pw_block;
};
/* bytes: at most POOL_MOST. pw_ready is called on this loop, never inside this call. A wait cannot
 * be cancelled: a caller that no longer needs the block gives it back. */
void pool_wait(struct pool_wait *w, size_t bytes);

/* Parses "0-1,4" into ascending numbers. Returns how many; -1: malformed, or more than most. */
int pool_nodes_parse(const char *text, int *nodes, int most);
#endif
