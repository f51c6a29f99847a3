/* SPDX-License-Identifier: Apache-2.0 */
/* ring.c - rings: operations go in and come back. */
#include "base/clock.h"
#include "base/pool.h"
#include "client/weft_op.h"
#include "client/ring.h"
#include "client/session.h"
#include "proto/rpc_rdma.h"
#include <errno.h>
#include <stdlib.h>
#include <urcu/compiler.h>

#define RING_ENTRIES 512
#define END_TURNS    3
#define RDMA_RINGS   64u
#define RDMA_POOL    (32u << 20)

struct ring_hook {
	struct loop_hook rh_hook;
	struct weft_ring *rh_ring;
};

/* Operations that were submitted in a turn begin at its end, before the transport's hook, which
 * sends. Operations that are submitted meanwhile wait for the next turn. */
static void begin_new(struct weft_ring *r)
{
	struct weft_op *op = r->r_new, *next;

	r->r_new = NULL;
	r->r_new_end = &r->r_new;
	for (; op; op = next) {
		next = op->o_next;
		op->o_next = NULL;
		wc_op_begin(op);
	}
	if (r->r_new && !r->r_posted) {
		r->r_posted = true;
		loop_post(r->r_loop, &r->r_msg);
	}
}

static void hook_run(struct loop_hook *h)
{
	begin_new(caa_container_of(h, struct ring_hook, rh_hook)->rh_ring);
}

static void ring_woken(struct loop_msg *m)
{
	caa_container_of(m, struct weft_ring, r_msg)->r_posted = false;
}

static void ring_timer(struct loop_timer *t)
{
	loop_stop(caa_container_of(t, struct weft_ring, r_timer)->r_loop);
}

static void hook_drop(void *p)
{
	free(p);
}

int weft_ring_create(struct weft_ring **out)
{
	struct weft_ring *r = calloc(1, sizeof(*r));
	struct ring_hook *h = calloc(1, sizeof(*h));
	int err = r && h ? loop_create(&r->r_loop, RING_ENTRIES) : -ENOMEM;

	if (err) {
		free(r);
		free(h);
		return err;
	}
	r->r_ended_end = &r->r_ended;
	r->r_new_end = &r->r_new;
	r->r_msg.m_run = ring_woken;
	r->r_timer.t_fire = ring_timer;
	h->rh_hook.h_run = hook_run;
	h->rh_ring = r;
	loop_at_turn_end(r->r_loop, &h->rh_hook);
	loop_set_local(r->r_loop, LOOP_SLOT_SERVICE, h, hook_drop);
	*out = r;
	return 0;
}

struct weft_ring *wc_ring_of(struct loop *l)
{
	struct ring_hook *h = loop_local(l, LOOP_SLOT_SERVICE);

	return h->rh_ring;
}

int weft_rdma_start(struct weft_ring *const *rings, unsigned n)
{
	static struct loop *loops[RDMA_RINGS];
	static bool started;
	struct rpc_rdma_opts o = {.ro_loops = loops,
				  .ro_nloops = n,
				  .ro_credits = 128,
				  .ro_srq = true,
				  .ro_srq_max = 8192,
				  .ro_quiet_ms = 30000};
	char why[256];
	int err;

	if (!n || n > RDMA_RINGS)
		return -EINVAL;
	if (started)
		return -EALREADY;
	err = pool_init(RDMA_POOL, why, sizeof(why));
	for (unsigned i = 0; i < n; i++)
		loops[i] = rings[i]->r_loop;
	err = err ? err : rpc_rdma_start(&o);
	for (unsigned i = 0; i < n && !err; i++)
		rings[i]->r_rdma = true;
	started = true;
	return err;
}

_Static_assert(WEFT_MAX_REGIONS == RPC_RDMA_REGIONS, "regions");

int weft_memory_register(void *p, size_t len)
{
	return rpc_rdma_memory_add(p, len);
}

int weft_memory_unregister(void *p)
{
	return rpc_rdma_memory_remove(p);
}

void weft_ring_destroy(struct weft_ring *r)
{
	/* Connections end in turns of the loop, and their last I/O comes back in the turns
	 * after. */
	while (r->r_conns)
		wc_ring_run(r, 1);
	for (int i = 0; i < END_TURNS; i++)
		wc_ring_run(r, 1);
	/* The control thread of RDMA still knows the loop. */
	if (r->r_rdma)
		return;
	loop_destroy(r->r_loop);
	free(r);
}

void wc_ring_poke(struct weft_ring *r)
{
	if (r->r_running)
		loop_stop(r->r_loop);
}

void wc_ring_run(struct weft_ring *r, int timeout_ms)
{
	if (timeout_ms >= 0)
		loop_timer_start(r->r_loop, &r->r_timer, (uint64_t)timeout_ms);
	r->r_running = true;
	loop_run(r->r_loop);
	r->r_running = false;
	loop_timer_stop(r->r_loop, &r->r_timer);
}

void weft_submit(struct weft *w, struct weft_op *op)
{
	struct weft_ring *r = w->w_ring;

	op->o_w = w;
	op->o_next = NULL;
	op->o_priv = NULL;
	op->o_err = 0;
	op->o_status = op->o_count = 0;
	op->o_eof = op->o_again = false;
	*r->r_new_end = op;
	r->r_new_end = &op->o_next;
}

void wc_op_end(struct weft_op *op, int err, uint32_t status)
{
	struct weft_ring *r = op->o_w->w_ring;

	op->o_err = err;
	op->o_status = status;
	r->r_nended++;
	if (r->r_once || r->r_wait == op)
		wc_ring_poke(r);
	if (r->r_wait == op)
		r->r_wait = NULL;
	else if (op->o_done)
		op->o_done(op);
	else {
		op->o_next = NULL;
		*r->r_ended_end = op;
		r->r_ended_end = &op->o_next;
	}
}

int weft_reap(struct weft_ring *r, struct weft_op **ops, unsigned max, int timeout_ms)
{
	unsigned n = 0;

	r->r_once = true;
	wc_ring_run(r, r->r_ended ? 0 : timeout_ms);
	r->r_once = false;
	while (n < max && r->r_ended) {
		ops[n] = r->r_ended;
		r->r_ended = r->r_ended->o_next;
		ops[n++]->o_next = NULL;
	}
	if (!r->r_ended)
		r->r_ended_end = &r->r_ended;
	return (int)n;
}

int weft_do(struct weft *w, struct weft_op *op)
{
	weft_submit(w, op);
	w->w_ring->r_wait = op;
	while (w->w_ring->r_wait)
		wc_ring_run(w->w_ring, -1);
	return op->o_err;
}
