/* SPDX-License-Identifier: Apache-2.0 */
/* st_session.c - sessions (RFC 8881 section 2.10). */
#include "mds/state/st.h"
#include "base/log.h"
#include <errno.h>

#include <stdlib.h>

#define ENDED_BATCH 4096 /* sessions whose rows are deleted together */

struct st_session *st_session_get(struct st *st, const uint8_t id[16])
{
	for (struct hash_link *l = hash_first(&st->st_sessions, hash_bytes(id, 16)); l;
	     l = hash_next(l)) {
		struct st_session *s = hash_entry(l, struct st_session, se_link);

		if (memcmp(s->se_id, id, 16) == 0)
			return s;
	}
	return NULL;
}

static struct st_session *_Atomic *chain_of(struct st *st, const uint8_t id[16])
{
	return &st->st_by_id[hash_bytes(id, 16) % ST_BY_ID];
}

struct st_session *st_session_find(struct st *st, const uint8_t id[16])
{
	struct st_session *s = atomic_load_explicit(chain_of(st, id), memory_order_acquire);

	while (s && memcmp(s->se_id, id, 16) != 0)
		s = atomic_load_explicit(&s->se_by_id, memory_order_acquire);
	return s && !atomic_load(&s->se_dead) ? s : NULL;
}

void st_session_publish(struct st *st, struct st_session *s)
{
	struct st_session *_Atomic *at = chain_of(st, s->se_id);
	struct st_session *next = atomic_load_explicit(at, memory_order_relaxed);

	s->se_by_id_at = at;
	atomic_store_explicit(&s->se_by_id, next, memory_order_relaxed);
	if (next)
		next->se_by_id_at = &s->se_by_id;
	atomic_store_explicit(at, s, memory_order_release);
}

/* Readers that have come as far as s go on from there: its own pointer stays. */
static void unpublish(struct st_session *s)
{
	struct st_session *next = atomic_load_explicit(&s->se_by_id, memory_order_relaxed);

	if (!s->se_by_id_at)
		return;
	atomic_store_explicit(s->se_by_id_at, next, memory_order_release);
	if (next)
		next->se_by_id_at = s->se_by_id_at;
}

struct st_session *st_session_new(struct st *st, struct st_client *c)
{
	struct st_session *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	do
		st_id_session(&st->st_ids, (uint32_t)st->st_boot, (uint32_t)st->st_next++,
			      s->se_id);
	/* the counter may wrap round to the id of a session that still exists */
	while (st_session_get(st, s->se_id));
	if (hash_add(&st->st_sessions, &s->se_link, hash_bytes(s->se_id, 16))) {
		free(s);
		return NULL;
	}
	pthread_mutex_init(&s->se_lock, NULL);
	atomic_fetch_add(&st->st_nsessions, 1);
	s->se_client = c;
	c->cl_refs++;
	pthread_mutex_lock(&c->cl_lock);
	s->se_next = c->cl_sessions;
	c->cl_sessions = s;
	pthread_mutex_unlock(&c->cl_lock);
	c->cl_nsessions++;
	s->se_cb_nslots = 1;
	for (unsigned i = 0; i < ST_CB_SLOTS; i++)
		s->se_cb_next[i] = 1;
	s->se_cb_tail = &s->se_cb_head;
	return s;
}

static void session_free(struct rcu_head *head)
{
	struct st_session *s = caa_container_of(head, struct st_session, se_rcu);

	RCU_TAKEN_OVER(head);
	pthread_mutex_destroy(&s->se_lock);
	free(s->se_bound);
	free(s);
}

void st_session_free(struct st_session *s)
{
	urcu_memb_call_rcu(&s->se_rcu, session_free);
}

static void unlink_from(struct st_session **p, struct st_session *s)
{
	while (*p != s)
		p = &(*p)->se_next;
	*p = s->se_next;
}

/* locked: ends a dead session unless a slot is busy; then st_slot_done calls it again. The slots
 * are read after se_dead was set, so that a request that begins later sees se_dead. */
static void st_session_session_end(struct st *st, struct st_session *s)
{
	struct st_client *c = s->se_client;
	uint64_t last = 0;

	if (s->se_ended || st_slots_busy(s, &last))
		return;
	s->se_ended = true;
	st_renewed(c, last);
	pthread_mutex_lock(&c->cl_lock);
	unlink_from(&c->cl_dead_sessions, s);
	pthread_mutex_unlock(&c->cl_lock);
	st_slots_free(st, s);
	if (atomic_load(&s->se_rows)) {
		s->se_next = st->st_ended;
		st->st_ended = s;
		st->st_nended++;
	} else {
		st_session_free(s);
	}
	st_client_put(c);
}

void st_session_over(struct st *st, struct st_session *s)
{
	st_all_lock(st);
	st_session_session_end(st, s);
	st_all_unlock(st);
}

/* ---- what the slots say of a client ---- */

/* True when a request of the client is in progress. *last is updated as by st_slots_busy. */
static bool client_busy(struct st_client *c, uint64_t *last)
{
	struct st_session *lists[2];
	bool busy = false;

	pthread_mutex_lock(&c->cl_lock);
	lists[0] = c->cl_sessions;
	lists[1] = c->cl_dead_sessions;
	for (unsigned i = 0; i < 2; i++) {
		for (struct st_session *s = lists[i]; s && !busy; s = s->se_next)
			busy = st_slots_busy(s, last);
	}
	pthread_mutex_unlock(&c->cl_lock);
	return busy;
}

bool st_client_leaves(struct st_client *c)
{
	uint64_t last = 0;

	if (atomic_load(&c->cl_evicting))
		return true;
	/* A request makes its slot busy before it reads cl_evicting, and this code sets cl_evicting
	 * before it reads the slots. So one of the two sees the other (st_slot_take). */
	atomic_store(&c->cl_evicting, true);
	if (client_busy(c, &last))
		atomic_store(&c->cl_evicting, false);
	return atomic_load(&c->cl_evicting);
}

void st_renewed(struct st_client *c, uint64_t at_ns)
{
	uint64_t was = atomic_load_explicit(&c->cl_renewed_ns, memory_order_relaxed);

	while (was < at_ns && !atomic_compare_exchange_weak(&c->cl_renewed_ns, &was, at_ns))
		;
}

uint64_t st_silent_ns(struct st_client *c, uint64_t now)
{
	uint64_t last = 0;
	bool busy = client_busy(c, &last);

	st_renewed(c, last);
	return busy ? 0 : st_since(atomic_load(&c->cl_renewed_ns), now);
}

bool st_silent_over(struct st_client *c, uint64_t now, uint64_t ns)
{
	return st_since(atomic_load(&c->cl_renewed_ns), now) > ns && st_silent_ns(c, now) > ns;
}

struct st_session *st_sessions_ended(struct st *st)
{
	struct st_session *first = st->st_ended, *last = first;

	for (unsigned n = 1; last && n < ENDED_BATCH; n++)
		last = last->se_next ? last->se_next : last;
	if (last) {
		st->st_ended = last->se_next;
		last->se_next = NULL;
	}
	return first;
}

/* c NULL: the callback path is down. The table by connection exists because few of thousands of
 * sessions use the connection that ends. */
static bool cb_conn_set(struct st *st, struct st_session *s, struct rpc_conn *c)
{
	bool in;

	if (atomic_load(&s->se_cb_conn) == c)
		return true;
	if (atomic_load(&s->se_cb_conn))
		hash_del(&st->st_cb_conns, &s->se_conn_link);
	in = c && hash_add(&st->st_cb_conns, &s->se_conn_link, hash_u64((uintptr_t)c)) == 0;
	/* one store, because requests read it without a lock */
	atomic_store(&s->se_cb_conn, in ? c : NULL);
	return atomic_load(&s->se_cb_conn) == c;
}

void st_session_destroy(struct st *st, struct st_session *s)
{
	struct st_client *c = s->se_client;

	if (atomic_load(&s->se_dead))
		return;
	pthread_mutex_lock(&s->se_lock);
	atomic_store(&s->se_dead, true);
	pthread_mutex_unlock(&s->se_lock);
	hash_del(&st->st_sessions, &s->se_link);
	unpublish(s);
	atomic_fetch_sub(&st->st_nsessions, 1);
	pthread_mutex_lock(&c->cl_lock);
	unlink_from(&c->cl_sessions, s);
	s->se_next = c->cl_dead_sessions;
	c->cl_dead_sessions = s;
	pthread_mutex_unlock(&c->cl_lock);
	c->cl_nsessions--;
	cb_conn_set(st, s, NULL);
	while (s->se_cb_head) {
		struct st_cb *cb = s->se_cb_head;

		s->se_cb_head = cb->cb_next;
		st_cb_lost(st, cb);
	}
	s->se_cb_tail = &s->se_cb_head;
	st_session_session_end(st, s);
}

bool st_session_admits(const struct st_session *s, const struct rpc_conn *c)
{
	for (unsigned i = 0; i < atomic_load(&s->se_nbound) && i < ST_BOUND; i++) {
		if (atomic_load(&s->se_bound[i]) == rpc_conn_id(c))
			return true;
	}
	return false;
}

bool st_session_admit(struct st_session *s, const struct rpc_conn *c)
{
	bool in;

	pthread_mutex_lock(&s->se_lock);
	in = st_session_admits(s, c);
	if (!in && !s->se_bound)
		s->se_bound = calloc(ST_BOUND, sizeof(*s->se_bound));
	/* Connection numbers are not used again: the number of a connection that ended admits no
	 * connection, until another number takes its place. */
	if (!in && s->se_bound) {
		atomic_store(&s->se_bound[atomic_load(&s->se_nbound) % ST_BOUND], rpc_conn_id(c));
		atomic_fetch_add(&s->se_nbound, 1);
		in = true;
	}
	pthread_mutex_unlock(&s->se_lock);
	return in;
}

static uint64_t conn_bit(const struct rpc_conn *c)
{
	return 1ull << rpc_conn_id(c) % 64;
}

void st_session_came(struct st_session *s, const struct rpc_conn *c)
{
	if (!(atomic_load(&s->se_carried) & conn_bit(c)))
		atomic_fetch_or(&s->se_carried, conn_bit(c));
}

/* The connection of the backchannel is the one that is known to be up. */
bool st_session_carried(const struct st_session *s, const struct rpc_conn *c)
{
	return !atomic_load(&s->se_cb_conn) || atomic_load(&s->se_cb_conn) == c ||
	       (atomic_load(&s->se_carried) & conn_bit(c));
}

void st_session_bind(struct st *st, struct st_session *s, struct rpc_conn *c)
{
	/* The connection may have ended while the caller was parked. st_conn_gone has run then, and
	 * nothing would take the connection out again. */
	if (rpc_conn_dead(c) || !cb_conn_set(st, s, c))
		return;
	if (s->se_client->cl_recalls_wait) {
		s->se_client->cl_recalls_wait = false;
		for (struct st_layout *l = st_layout_next(s->se_client, NULL); l;
		     l = st_layout_next(s->se_client, l)) {
			if (l->l_recalled)
				st_recall_queue(st, l);
		}
		for (struct st_open *o = st_open_next(s->se_client, NULL); o;
		     o = st_open_next(s->se_client, o)) {
			if (o->o_deleg && o->o_deleg->dg_recalled)
				st_deleg_recall(st, o);
		}
	}
	st_cb_pump(st, s);
}

void st_conn_gone(struct st *st, struct rpc_conn *c)
{
	struct hash_link *next;

	st_all_lock(st);
	for (struct hash_link *l = hash_first(&st->st_cb_conns, hash_u64((uintptr_t)c)); l;
	     l = next) {
		struct st_session *s = hash_entry(l, struct st_session, se_conn_link);

		next = hash_next(l);
		if (atomic_load(&s->se_cb_conn) == c) {
			cb_conn_set(st, s, NULL);
			st_cb_path_lost(st, s);
		}
	}
	st_all_unlock(st);
}
