/* SPDX-License-Identifier: Apache-2.0 */
/*
 * st_lapse.c - the end of a lease, in the client's record.
 *
 * A client that was past its lease before the server failed does not come back, as a rule, and the
 * next grace period does not wait for it. It may reclaim for as long as that lasts: had another
 * client taken what it has, then its record would be gone.
 *
 * Two rules keep a client that lives from being taken for one that does not:
 * - The record says that the lease has run out only when another recorded client was heard after
 *   that. A server that was itself cut off hears nobody, and knows nothing of its clients. When it
 *   hears the first one again after a lease or more, the others get a lease to come back too.
 * - A request of the client begins, and a retry is answered, when the record does not say so any
 *   more, in a transaction that is durable. So no client that has had an answer is taken for one
 *   past its lease. The other way round does no harm: grace waits for a client in vain, at most for
 *   mds.grace.
 *
 * cl_lapses: in the low two bits the state, above them how often the lease has run out. Between a
 * tick and the committer the state decides: a transaction notes the end of the lease only while it
 * is LAPSED. A request makes it BACK and then submits its own transaction. So that one runs later,
 * or the tick's finds BACK. If it fails, the state stays BACK, and the next request tries again.
 */
#include "mds/state/st.h"

enum { HEARD, LAPSED, BACK, STATES = 4 };

bool st_client_lapsed(const struct st_client *c)
{
	return atomic_load(&c->cl_lapses) % STATES != HEARD;
}

bool st_client_lapses(const struct st *st, struct st_client *c, uint64_t now)
{
	uint64_t lease = st->st_lease_ms * UINT64_C(1000000);

	return c->cl_recorded && !st_client_lapsed(c) && !atomic_load(&c->cl_evicting) &&
	       st_silent_over(c, now, lease) &&
	       atomic_load(&st->st_heard_ns) > atomic_load(&c->cl_renewed_ns) + lease &&
	       st_since(st->st_resumed_ns, now) > lease;
}

bool st_client_lapse(struct st *st, struct st_client *c, uint64_t now)
{
	uint32_t was = atomic_load(&c->cl_lapses), is = was + STATES + LAPSED;

	if (!st_client_lapses(st, c, now))
		return false;
	/* A request makes its slot busy before it reads cl_lapses (slot_begin), and this code sets
	 * it before it reads the slots. So one of the two sees the other. */
	atomic_store(&c->cl_lapses, is);
	if (st_silent_over(c, now, st->st_lease_ms * UINT64_C(1000000)))
		return true;
	atomic_compare_exchange_strong(&c->cl_lapses, &is, was);
	return false;
}

int st_lapse_put(struct st *st, struct kv_txn *t, uint64_t clientid)
{
	const struct st_client *c;
	uint8_t key[32];
	uint32_t number = 0;
	bool lapsed;

	st_look_lock(st);
	c = st_client_get(st, clientid);
	lapsed =
		c && !atomic_load(&c->cl_evicting) && atomic_load(&c->cl_lapses) % STATES == LAPSED;
	if (lapsed) {
		number = c->cl_number;
		memcpy(key, c->cl_key, sizeof(key));
	}
	st_look_unlock(st);
	return lapsed ? st_record_lapse(t, key, number, true) : 0;
}

void st_back_begin(struct st_client *c, uint32_t *turn)
{
	*turn = atomic_load(&c->cl_lapses);
	while (*turn % STATES == LAPSED &&
	       !atomic_compare_exchange_weak(&c->cl_lapses, turn, *turn - LAPSED + BACK))
		;
	*turn = *turn / STATES * STATES + BACK;
}

void st_back_done(struct st *st, uint64_t clientid, uint32_t turn)
{
	struct st_client *c;

	st_all_lock(st);
	c = st_client_get(st, clientid);
	if (c && atomic_compare_exchange_strong(&c->cl_lapses, &turn, turn - BACK))
		st_renewed(c, st_now_ns(st));
	st_all_unlock(st);
}

void st_client_renew(struct st *st, struct st_client *c)
{
	if (!st_client_lapsed(c))
		atomic_store(&c->cl_renewed_ns, st_now_ns(st));
}

void st_heard(struct st *st, const struct st_client *c, uint64_t now)
{
	uint64_t at = atomic_load(&c->cl_renewed_ns), was = atomic_load(&st->st_heard_ns);

	if (at > was + st->st_lease_ms * UINT64_C(1000000))
		st->st_resumed_ns = now;
	while (at > was && !atomic_compare_exchange_weak(&st->st_heard_ns, &was, at))
		;
}
