/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rpc_gate.c - the gate in front of every wire: no message leaves while the store is not held
 * (common/store_lease.h, docs/decisions/lease-gate.md).
 *
 * What may not leave stays where it is, in the queue of its connection. So the order stays, nothing
 * is sent twice, and the limits of a peer that does not read its replies bound the memory. Only the
 * connection is put on a list, which the loop goes through when the lease lives again.
 *
 * A send is looked at as a whole, before it begins: all its messages are queued by then, so what
 * they tell was looked at before the lease. Bytes of a send that has begun are the kernel's. What
 * it did not take is looked at again.
 */
#include "base/metrics.h"
#include "proto/rpc_int.h"
#include <errno.h>

static struct metric *m_parked;

__attribute__((constructor)) static void gate_metrics_make(void)
{
	m_parked = metric_counter("weft_rpc_parked_total",
				  "Sends that waited because the store was not held.", "");
}

static void shut_unlink(struct rpc_conn *c)
{
	struct rpc_loop *rl = c->rcn_rl;

	*c->rcn_shut_prev = c->rcn_shut_next;
	if (c->rcn_shut_next)
		c->rcn_shut_next->rcn_shut_prev = c->rcn_shut_prev;
	else
		rl->rl_shut_end = c->rcn_shut_prev;
	c->rcn_shut_next = NULL;
	c->rcn_shut_prev = NULL;
}

static void shut_link(struct rpc_conn *c)
{
	struct rpc_loop *rl = c->rcn_rl;

	metric_add(m_parked, 1);
	c->rcn_shut_next = NULL;
	c->rcn_shut_prev = rl->rl_shut_end;
	*rl->rl_shut_end = c;
	rl->rl_shut_end = &c->rcn_shut_next;
	c->rcn_refs++;
}

bool rpc_gate_shut(struct rpc_conn *c)
{
	struct rpc_loop *rl = c->rcn_rl;

	if (store_lease_live(rl->rl_lease) || store_lease_wait(rl->rl_lease, &rl->rl_watch))
		return false;
	if (!c->rcn_shut_prev)
		shut_link(c);
	return true;
}

int rpc_gate_flags(const struct rpc_conn *c)
{
	const struct store_lease *sl = c->rcn_rl->rl_lease;

	return !sl || atomic_load_explicit(&sl->sl_end_ns, memory_order_relaxed) ==
				       STORE_LEASE_ALWAYS
		       ? MSG_WAITALL
		       : 0;
}

void rpc_gate_quit(struct rpc_conn *c)
{
	if (!c->rcn_shut_prev)
		return;
	shut_unlink(c);
	rpc_conn_put(c); /* not the last reference */
}

/* Goes through those that are on the list now: one that has to wait again is put behind them. */
static void gate_open(struct loop_msg *m)
{
	struct rpc_loop *rl = caa_container_of(m, struct rpc_loop, rl_open_msg);
	struct rpc_conn *c, *last = NULL;

	atomic_exchange(&rl->rl_opening, false);
	if (rl->rl_shut)
		last = caa_container_of(rl->rl_shut_end, struct rpc_conn, rcn_shut_next);
	for (bool more = last; more;) {
		c = rl->rl_shut;
		more = c != last;
		shut_unlink(c);
		rpc_conn_send(c);
		rpc_conn_put(c);
	}
}

/* On the thread that extends the lease. */
static void gate_again(struct store_lease_watch *w)
{
	struct rpc_loop *rl = caa_container_of(w, struct rpc_loop, rl_watch);

	if (!atomic_exchange(&rl->rl_opening, true))
		loop_post(rl->rl_loop, &rl->rl_open_msg);
}

void rpc_use_lease(struct loop *l, struct store_lease *sl)
{
	struct rpc_loop *rl = rpc_loop_get(l);

	rl->rl_lease = sl;
	rl->rl_shut_end = &rl->rl_shut;
	rl->rl_watch.lw_again = gate_again;
	rl->rl_open_msg.m_run = gate_open;
	store_lease_watch(sl, &rl->rl_watch);
}

void rpc_gate_drop(struct rpc_loop *rl)
{
	if (rl->rl_lease)
		store_lease_unwatch(rl->rl_lease, &rl->rl_watch);
}

bool rpc_gate_again(struct rpc_req *q)
{
	struct store_lease *sl = rpc_loop_get(q->q_loop)->rl_lease;
	uint32_t opened = store_lease_opened(sl);

	/* The timer also ends calls that are on no list, at once. */
	if (!sl || (!q->q_conn && !q->q_client) || q->q_err != -ETIMEDOUT ||
	    (opened == q->q_opened && store_lease_live(sl)))
		return false;
	q->q_opened = opened;
	loop_timer_start(q->q_loop, &q->q_timer, q->q_timeout_ms);
	return true;
}
