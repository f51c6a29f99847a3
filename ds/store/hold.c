/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hold.c - the objects that a loop uses now: one reference for all of the loop's calls.
 *
 * Connections are spread over the loops, so calls for one object arrive on any of them. Each loop
 * has its own table of holds. A hold is one reference to the object (ob_refs), and counts the
 * loop's uses of it. It begins with the loop's first use of the object and ends with the last. In
 * between, calls of the loop use the object without a lock, and count their ranges in hld_fast,
 * which no other loop writes (range.c).
 *
 * A hold never finds a deleted object: each use checks ob_deleted, as a lookup in the shared table
 * would. The uses that began before the delete keep their hold until the last of them ends.
 *
 * In ds_hold, ob_lock guards hld_next and hld_prevp. The loop writes hld_fast, and other threads
 * read it. The loop alone uses the rest.
 */
#include "base/log.h"
#include "ds/store/store_int.h"
#include <assert.h>
#include <errno.h>
#include <string.h>

struct ds_holds {
	struct ds_store *hs_store;
	struct hash hs_hash;
};

/* The loop is being destroyed: it has no calls left. */
static void holds_drop(void *p)
{
	struct ds_holds *hs = p;

	assert(!hs->hs_hash.h_count);
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
	hs = calloc(1, sizeof(*hs));
	if (!hs)
		log_fatal("store: out of memory");
	hs->hs_store = s;
	loop_set_local(loop_self(), LOOP_SLOT_HOLDS, hs, holds_drop);
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
	h->hld_obj = o;
	h->hld_of = hs;
	h->hld_uses = 1;
	if (hash_add(&hs->hs_hash, &h->hld_link, hash)) {
		free(h);
		return NULL;
	}
	pthread_mutex_lock(&o->ob_lock);
	h->hld_next = o->ob_holds;
	h->hld_prevp = &o->ob_holds;
	if (h->hld_next)
		h->hld_next->hld_prevp = &h->hld_next;
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
		struct ds_hold *h = hash_entry(l, struct ds_hold, hld_link);

		if (!ds_key_equal(&h->hld_obj->ob_key, key) || atomic_load(&h->hld_obj->ob_deleted))
			continue;
		if (atomic_load(&h->hld_obj->ob_lost))
			return -ESTALE;
		h->hld_uses++;
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
	struct ds_obj *o = h->hld_obj;

	if (--h->hld_uses)
		return;
	pthread_mutex_lock(&o->ob_lock);
	*h->hld_prevp = h->hld_next;
	if (h->hld_next)
		h->hld_next->hld_prevp = h->hld_prevp;
	pthread_mutex_unlock(&o->ob_lock);
	hash_del(&h->hld_of->hs_hash, &h->hld_link);
	free(h);
	ds_obj_put(o);
}

struct ds_obj *ds_hold_obj(const struct ds_hold *h)
{
	return h->hld_obj;
}
