/* SPDX-License-Identifier: Apache-2.0 */
/* ring.h - rings: submitting operations and reaping them. */
#ifndef CLIENT_RING_H
#define CLIENT_RING_H
#include "base/loop.h"
#include "client/weft.h"

struct weft_ring {
	struct loop *r_loop;
	struct weft_op *r_ended, **r_ended_end; /* without o_done */
	struct weft_op *r_new, **r_new_end;	/* submitted between two runs */
	struct loop_msg r_msg;
	bool r_posted, r_running, r_once;
	const struct weft_op *r_wait; /* weft_do waits for it */
	uint64_t r_nended;
	unsigned r_conns; /* connections that have not ended */
	bool r_rdma;
	struct loop_timer r_timer;
};

void wc_op_end(struct weft_op *op, int err, uint32_t status);
/* Runs the ring's loop until wc_ring_poke, or for timeout_ms (-1: no limit). */
void wc_ring_run(struct weft_ring *r, int timeout_ms);
void wc_ring_poke(struct weft_ring *r); /* ends the run */
struct weft_ring *wc_ring_of(struct loop *l);
#endif
