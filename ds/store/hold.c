/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hold.c - the objects that a loop uses, or used lately: one reference for all of the loop's calls.
 *
 * Connections are spread over the loops, so calls for one object arrive on any of them. If each
 * call took the object from the shared table, each READ would write memory that the other loops
 * write as well. So each loop has its own table of holds. A hold is one reference to the object
 * (ob_refs), and counts the loop's uses of it. Only a loop's first use of an object and the end of
 * the hold touch the object.
 *
 * The loop keeps an unused hold until it has too many of them, until there are too many objects in
 * memory (ds_holds_trim), or until the object is deleted; ds_holds_drop reports a deletion to each
 * loop that holds the object. A hold never finds a deleted object: each use checks ob_deleted, as a
 * lookup in the shared table would.
 *
 * In ds_hold, ob_lock guards h_told, h_next and h_prevp. The loop writes h_fast, and other threads
 * read it. The loop alone uses the rest.
 */
#include "base/log.h"
#include "ds/store/store_int.h"
#include <assert.h>
#include <errno.h>
#include <string.h>
#include <urcu/compiler.h>

#define HOLDS_LEAST 64u

struct ds_holds {
	struct ds_store *hs_store;
	struct loop *hs_loop;
	struct hash hs_hash;
	struct ds_hold *hs_newest, *hs_oldest; /* unused */
	unsigned hs_idle;
	struct loop_msg hs_gone_msg, hs_trim_msg;
	/* reported as deleted, and not handled yet */
	_Alignas(64) _Atomic(struct ds_hold *) hs_gone;
	_Atomic bool hs_trim;
	struct ds_holds *hs_next; /* guarded by s_holds_lock */
};

static void hold_idle_del(struct ds_holds *hs, struct ds_hold *h)
{
	*(h->h_newer ? &h->h_newer->h_older : &hs->hs_newest) = h->h_older;
	*(h->h_older ? &h->h_older->h_newer : &hs->hs_oldest) = h->h_newer;
	h->h_newer = h->h_older = NULL;
	hs->hs_idle--;
}

static void hold_idle_add(struct ds_holds *hs, struct ds_hold *h)
{
	h->h_older = hs->hs_newest;
	h->h_newer = NULL;
	*(hs->hs_newest ? &hs->hs_newest->h_newer : &hs->hs_oldest) = h;
	hs->hs_newest = h;
	hs->hs_idle++;
}

/* Ends a hold without uses that is not among the idle ones. If it is on hs_gone, it stays until
 * gone_run handles it. */
static void hold_end(struct ds_hold *h)
{
	struct ds_obj *o = h->h_obj;
	bool waits;

	pthread_mutex_lock(&o->ob_lock);
	waits = h->h_told && !h->h_gone;
	if (!waits) {
		*h->h_prevp = h->h_next;
		if (h->h_next)
			h->h_next->h_prevp = h->h_prevp;
	}
	pthread_mutex_unlock(&o->ob_lock);
	if (waits)
		return;
	hash_del(&h->h_of->hs_hash, &h->h_link);
	free(h);
	ds_obj_put(o);
}

static void idle_end(struct ds_holds *hs, unsigned keep)
{
	while (hs->hs_idle > keep) {
		struct ds_hold *h = hs->hs_oldest;

		hold_idle_del(hs, h);
		hold_end(h);
	}
}

static void hold_gone_run(struct loop_msg *m)
{
	struct ds_holds *hs = caa_container_of(m, struct ds_holds, hs_gone_msg);
	struct ds_hold *next;

	for (struct ds_hold *h = atomic_exchange(&hs->hs_gone, NULL); h; h = next) {
		bool idle = h->h_newer || hs->hs_newest == h;

		next = h->h_gone_next;
		h->h_gone = true;
		if (idle)
			hold_idle_del(hs, h);
		if (!h->h_uses)
			hold_end(h);
	}
}

static void trim_run(struct loop_msg *m)
{
	struct ds_holds *hs = caa_container_of(m, struct ds_holds, hs_trim_msg);

	atomic_store(&hs->hs_trim, false);
	idle_end(hs, hs->hs_idle / 2);
}

/* The loop is being destroyed: it has no calls left, and no other loop runs. */
static void holds_drop(void *p)
{
	struct ds_holds *hs = p, **at;

	hold_gone_run(&hs->hs_gone_msg);
	idle_end(hs, 0);
	assert(!hs->hs_hash.h_count);
	pthread_mutex_lock(&hs->hs_store->s_holds_lock);
	for (at = &hs->hs_store->s_holds; *at != hs; at = &(*at)->hs_next)
		;
	*at = hs->hs_next;
	pthread_mutex_unlock(&hs->hs_store->s_holds_lock);
	free(hs->hs_hash.h_slot);
	free(hs);
}

static struct ds_holds *holds_self(struct ds_store *s)
{
	struct ds_holds *hs = loop_local(loop_self(), LOOP_SLOT_HOLDS);

	if (hs) {
		assert(hs->hs_store == s);
		return hs;
	}
	hs = aligned_alloc(64, sizeof(*hs));
	if (!hs)
		log_fatal("store: out of memory");
	memset(hs, 0, sizeof(*hs));
	hs->hs_store = s;
	hs->hs_loop = loop_self();
	hs->hs_gone_msg.m_run = hold_gone_run;
	hs->hs_trim_msg.m_run = trim_run;
	loop_set_local(loop_self(), LOOP_SLOT_HOLDS, hs, holds_drop);
	pthread_mutex_lock(&s->s_holds_lock);
	hs->hs_next = s->s_holds;
	s->s_holds = hs;
	pthread_mutex_unlock(&s->s_holds_lock);
	return hs;
}

/* o: the caller's reference, which the hold takes over. NULL: out of memory, and the caller keeps
 * it. */
static struct ds_hold *hold_new(struct ds_holds *hs, struct ds_obj *o, uint64_t hash)
{
	struct ds_hold *h = aligned_alloc(64, sizeof(*h));

	if (!h)
		return NULL;
	memset(h, 0, sizeof(*h));
	h->h_obj = o;
	h->h_of = hs;
	h->h_uses = 1;
	if (hash_add(&hs->hs_hash, &h->h_link, hash)) {
		free(h);
		return NULL;
	}
	pthread_mutex_lock(&o->ob_lock);
	/* If the object is deleted, ds_holds_drop has already run, or will run and skip this hold,
	 * because h_told is set. */
	h->h_gone = atomic_load(&o->ob_deleted);
	h->h_told = h->h_gone;
	h->h_next = o->ob_holds;
	h->h_prevp = &o->ob_holds;
	if (h->h_next)
		h->h_next->h_prevp = &h->h_next;
	o->ob_holds = h;
	pthread_mutex_unlock(&o->ob_lock);
	return h;
}

int ds_obj_hold(struct ds_store *s, const struct cap_object *key, bool create, struct ds_hold **out)
{
	uint64_t hash = ds_key_hash(key);
	struct ds_holds *hs = holds_self(s);
	struct ds_obj *o;
	int err;

	*out = NULL;
	for (struct hash_link *l = hash_first(&hs->hs_hash, hash); l; l = hash_next(l)) {
		struct ds_hold *h = hash_entry(l, struct ds_hold, h_link);

		if (!ds_key_equal(&h->h_obj->ob_key, key) || atomic_load(&h->h_obj->ob_deleted))
			continue;
		if (atomic_load(&h->h_obj->ob_lost))
			return -ESTALE;
		if (!h->h_uses++)
			hold_idle_del(hs, h);
		*out = h;
		return 0;
	}
	err = ds_obj_get(s, key, create, &o);
	if (err)
		return err;
	*out = hold_new(hs, o, hash);
	if (*out)
		return 0;
	ds_obj_put(o);
	return -ENOMEM;
}

void ds_hold_put(struct ds_hold *h)
{
	struct ds_holds *hs = h->h_of;
	unsigned most = hs->hs_store->s_max_open / 2;

	if (--h->h_uses)
		return;
	if (h->h_gone) {
		hold_end(h);
		return;
	}
	hold_idle_add(hs, h);
	idle_end(hs, most > HOLDS_LEAST ? most : HOLDS_LEAST);
}

struct ds_obj *ds_hold_obj(const struct ds_hold *h)
{
	return h->h_obj;
}

void ds_holds_drop(struct ds_obj *o)
{
	pthread_mutex_lock(&o->ob_lock);
	for (struct ds_hold *h = o->ob_holds; h; h = h->h_next) {
		struct ds_holds *hs = h->h_of;
		struct ds_hold *first = atomic_load(&hs->hs_gone);

		if (h->h_told)
			continue;
		h->h_told = true;
		do
			h->h_gone_next = first;
		while (!atomic_compare_exchange_strong(&hs->hs_gone, &first, h));
		if (!first)
			loop_post(hs->hs_loop, &hs->hs_gone_msg);
	}
	pthread_mutex_unlock(&o->ob_lock);
}

void ds_holds_trim(struct ds_store *s)
{
	pthread_mutex_lock(&s->s_holds_lock);
	for (struct ds_holds *hs = s->s_holds; hs; hs = hs->hs_next)
		if (!atomic_exchange(&hs->hs_trim, true))
			loop_post(hs->hs_loop, &hs->hs_trim_msg);
	pthread_mutex_unlock(&s->s_holds_lock);
}

void ds_holds_give(struct ds_store *s)
{
	struct ds_holds *hs = loop_self() ? loop_local(loop_self(), LOOP_SLOT_HOLDS) : NULL;

	if (hs)
		idle_end(hs, hs->hs_idle / 2);
	ds_holds_trim(s);
}
