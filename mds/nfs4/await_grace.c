/* SPDX-License-Identifier: Apache-2.0 */
/*
 * await_grace.c - an operation that the grace period refuses waits for the end of that period,
 * before it is refused.
 *
 * Grace mostly ends within a second: with the last client's RECLAIM_COMPLETE. A client that gets
 * NFS4ERR_GRACE comes back later, and each time after twice as long (Linux: 0.1 s up to 15 s). So
 * it would wait for much longer than grace lasts. The answer is held for WAIT_MS, or a quarter of
 * mds.grace, at most: a client that must recover waits for all its slots first.
 *
 * A timer of the thread looks, because the end of grace comes on another thread and is seldom: a
 * thread has the timer only while operations wait there.
 */
#include "mds/nfs4/op.h"

enum { WAIT_MS = 2000, LOOK_MS = 20 };

/* How long an answer is held, in ms. */
static uint32_t grace_hold(const struct mds_thread *th)
{
	uint32_t quarter = th->mt_mds->m_st->st_grace_ms / 4;

	return quarter < WAIT_MS ? quarter : WAIT_MS;
}

static void grace_look_later(struct mds_thread *th)
{
	uint32_t hold = grace_hold(th);

	if (th->mt_grace && !th->mt_grace_look.t_pos)
		loop_timer_start(th->mt_loop, &th->mt_grace_look, hold < LOOK_MS ? hold : LOOK_MS);
}

static void grace_look(struct loop_timer *t)
{
	struct mds_thread *th = hash_entry(t, struct mds_thread, mt_grace_look);
	bool over = !st_in_grace(th->mt_mds->m_st);
	uint64_t now = loop_now_ns(th->mt_loop);
	struct compound *c = th->mt_grace, *next;

	/* Those that go on may wait here again with their next operation. */
	th->mt_grace = NULL;
	th->mt_grace_end = &th->mt_grace;
	for (; c; c = next) {
		next = c->grace_next;
		if (over || now >= c->grace_until_ns) {
			op_wake(c, over ? 0 : -EAGAIN);
			continue;
		}
		c->grace_next = NULL;
		*th->mt_grace_end = c;
		th->mt_grace_end = &c->grace_next;
	}
	grace_look_later(th);
}

bool op_grace_waits(struct compound *c)
{
	struct mds_thread *th = c->th;
	uint32_t hold = grace_hold(th);

	if (!hold || !c->client || !atomic_load(&c->client->cl_ready) || !st_in_grace(c->m->m_st))
		return false;
	c->grace_next = NULL;
	c->grace_until_ns = loop_now_ns(th->mt_loop) + hold * 1000000ull;
	if (!th->mt_grace)
		th->mt_grace_end = &th->mt_grace;
	*th->mt_grace_end = c;
	th->mt_grace_end = &c->grace_next;
	th->mt_grace_look.t_fire = grace_look;
	grace_look_later(th);
	return true;
}
