/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rpc_any.c - receive buffers that the connections of a loop share. A few buffers wait in the
 * loop's ring (IORING_REGISTER_PBUF_RING) for the next connection that has data, so an idle
 * connection holds none. If more connections have data at once than there are buffers, a receive
 * finds none and is repeated with a buffer of the connection's own. Kernels before 5.19 have no
 * such ring: there every connection has its own buffer.
 */
#include "base/log.h"
#include "proto/rpc_int.h"
#include <errno.h>

#define ANY_GROUP 0

unsigned rpc_any_n = RPC_ANY_MOST;

struct rpc_any {
	struct io_uring_buf_ring *a_ring;
	unsigned a_n;
	struct rpc_buf *a_buf[RPC_ANY_MOST];
};

static void any_give(struct rpc_any *a, unsigned i, struct rpc_buf *b)
{
	a->a_buf[i] = b;
	io_uring_buf_ring_add(a->a_ring, b->b_data, (unsigned)rpc_buf_cap(b), (unsigned short)i,
			      (int)a->a_n - 1, 0);
	io_uring_buf_ring_advance(a->a_ring, 1);
}

static void any_free(struct rpc_any *a)
{
	for (unsigned i = 0; i < a->a_n; i++)
		if (a->a_buf[i])
			rpc_buf_put(a->a_buf[i]);
	free(a->a_ring);
	free(a);
}

/* Returns NULL without memory, or on a kernel without such rings. */
static struct rpc_any *any_new(struct rpc_loop *rl)
{
	struct rpc_any *a = calloc(1, sizeof *a);
	struct io_uring_buf_reg reg = {.ring_entries = rpc_any_n, .bgid = ANY_GROUP};
	struct rpc_buf *b;

	if (!a)
		return NULL;
	a->a_n = rpc_any_n;
	a->a_ring = aligned_alloc(RPC_PAGE, RPC_PAGE);
	if (!a->a_ring)
		goto out;
	memset(a->a_ring, 0, RPC_PAGE);
	for (unsigned i = 0; i < a->a_n; i++) {
		b = rpc_buf_new(&rl->rl_pool, RPC_ANY);
		if (!b)
			goto out;
		any_give(a, i, b);
	}
	reg.ring_addr = (uintptr_t)a->a_ring;
	if (io_uring_register_buf_ring(loop_ring(rl->rl_loop), &reg, 0))
		goto out;
	return a;
out:
	any_free(a);
	return NULL;
}

bool rpc_any_has(struct rpc_loop *rl)
{
	if (!rl->rl_any_tried) {
		rl->rl_any_tried = true;
		rl->rl_any = any_new(rl);
	}
	return rl->rl_any;
}

void rpc_any_recv(struct io_uring_sqe *sqe, int fd, size_t most)
{
	io_uring_prep_recv(sqe, fd, NULL, most, 0);
	sqe->flags |= IOSQE_BUFFER_SELECT;
	sqe->buf_group = ANY_GROUP;
}

struct rpc_buf *rpc_any_take(struct rpc_loop *rl, uint32_t flags)
{
	struct rpc_any *a = rl->rl_any;
	unsigned i = flags >> IORING_CQE_BUFFER_SHIFT;
	struct rpc_buf *b = a->a_buf[i], *next = rpc_buf_new(&rl->rl_pool, RPC_ANY);

	any_give(a, i, next ? next : b);
	return next ? b : NULL;
}

void rpc_any_drop(struct rpc_loop *rl)
{
	if (rl->rl_any)
		any_free(rl->rl_any);
}
