/*
 * pool.h - the daemon's memory for payload: made once at start, per NUMA node, of huge pages where
 * there are some, all of it in RAM. It is registered once with each loop's ring (fixed buffers) and
 * once with each RDMA device (by the RDMA code, which walks the pieces). One pool per process, of a
 * part for each node: a part is what others call a node's pool.
 *
 * Blocks begin on a page. Their sizes are 4 KiB << n, and from 16 KiB on also two pages more
 * (payload of that size with its header in front), up to POOL_MOST. A loop keeps some free blocks
 * to itself, so that most calls take no lock; together the loops keep at most an eighth of the
 * pool, each at most POOL_KEEP.
 *
 * Who can do without (pool_get returned NULL, ordinary memory will do) leaves some to who cannot:
 * that is pool_leave. Who cannot waits (pool_wait). While somebody waits, pool_get gives nothing:
 * what comes back goes to those who wait, in order. That nobody waits for ever is the users' to see
 * to: who holds a block waits neither for another nor for somebody who does; and blocks that a peer
 * can keep for long are got with POOL_LEAVE_HALF or POOL_LEAVE_QUARTER.
 *
 * Caveats:
 * - A block is given back with the size that was asked for.
 * - pool_init comes first; pool_register before the loop runs, and before privileges are dropped.
 */
#ifndef BASE_POOL_H
#define BASE_POOL_H
#include "base/loop.h"
#include <stddef.h>

#define POOL_PAGE  4096u
#define POOL_MOST  ((1u << 20) + 2 * POOL_PAGE) /* bytes of the largest block */
#define POOL_KEEP  (8u << 20)
#define POOL_LEAST (2u << 20) /* bytes of the smallest pool, and what its size is a multiple of */
#define POOL_NODES 64

/* At most 1 GiB: a fixed buffer can have no more. */
struct pool_piece {
	uint8_t *pp_base;
	size_t pp_len;
	int pp_node;
};

/* Before pool_init: all memory is of these nodes (ascending, at most POOL_NODES), else of all that
 * have some. Where the kernel refuses a node, the memory is of any. */
void pool_use_nodes(const int *nodes, int n);
/* bytes are shared out evenly among the nodes, and rounded up to POOL_LEAST for each. 0: there is
 * no pool, pool_get returns NULL, pool_wait must not be called. Logs what was made. 0, or a
 * negative errno and one line in err. */
int pool_init(size_t bytes, char *err, size_t errlen);
/* All pieces together. */
size_t pool_bytes(void);
unsigned pool_pieces(void);
const struct pool_piece *pool_piece(unsigned i);
/* The piece that p lies in; -1: none. */
int pool_piece_of(const void *p);

/* Before pool_register: l runs on this node. It gets blocks of the node's memory as long as there
 * are some, keeps no others to itself, and has that memory alone as fixed buffers. Nothing where
 * the pool is not of several nodes, or has no memory of this one. */
void pool_home(struct loop *l, int node);
/* Makes the pool, or what of it is of the loop's node, the fixed buffers of l's ring, and of the
 * one that is polled. A refusal is logged, with the limit that refused, and returned as a negative
 * errno: the loop does without. 0 where there is no pool. */
int pool_register(struct loop *l);
/* The fixed buffer of l's ring that p lies in; -1: none. On l. */
int pool_fixed(struct loop *l, const void *p);

/* Of a node's memory, so much stays free. */
enum pool_leave { POOL_LEAVE_NONE, POOL_LEAVE_QUARTER, POOL_LEAVE_HALF };
/* A block, its contents undefined; NULL: there is none. Any thread; on loops mostly without a
 * lock. */
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
/* At most POOL_MOST bytes. pw_ready is called on this loop, never from inside. It cannot be called
 * off: who needs the block no more gives it back. */
void pool_wait(struct pool_wait *w, size_t bytes);

/* "0-1,4" as numbers, ascending. How many; -1: it is no such list, or longer than most. */
int pool_nodes_parse(const char *text, int *nodes, int most);
#endif
