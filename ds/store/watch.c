/* SPDX-License-Identifier: Apache-2.0 */
/*
 * watch.c - records which bytes of an object change while a restripe reads it (docs/restripe.md).
 * All of this runs on the orders worker, except the notes, which ob_lock guards.
 *
 * A change is noted before it touches the file, within what ds_write_drain waits for, or on this
 * worker. So the changes that a TAKE returns have ended after its drain; changes noted later come
 * with a later TAKE.
 */
#include "ds/store/rebuild_int.h"
#include <errno.h>

/* Beyond this number, a new watch ends the oldest, which the metadata server may have forgotten. */
#define WATCHES_MAX 256u

struct ds_watch {
	struct ds_obj *wa_obj; /* a reference */
	uint64_t wa_id;
	struct ds_watch *wa_next; /* newest first */
	struct extents wa_notes;  /* guarded by ob_lock, like wa_all */
	/* The notes ran out of room: the whole object counts as changed. */
	bool wa_all;
};

void ds_watch_note(struct ds_obj *o, uint64_t from, uint64_t to)
{
	if (!atomic_load(&o->ob_watched))
		return;
	pthread_mutex_lock(&o->ob_lock);
	if (o->ob_watch && extents_add(&o->ob_watch->wa_notes, from, to))
		o->ob_watch->wa_all = true;
	pthread_mutex_unlock(&o->ob_lock);
}

static void watch_end(struct ds_watch **at)
{
	struct ds_watch *wa = *at;
	struct ds_obj *o = wa->wa_obj;

	*at = wa->wa_next;
	pthread_mutex_lock(&o->ob_lock);
	o->ob_watch = NULL;
	atomic_store(&o->ob_watched, false);
	pthread_mutex_unlock(&o->ob_lock);
	extents_free(&wa->wa_notes);
	ds_obj_put(o);
	free(wa);
}

static struct ds_watch **watch_of(struct ds_store *s, const struct cap_object *key)
{
	struct ds_watch **at = &s->s_watches;

	while (*at && !ds_key_equal(&(*at)->wa_obj->ob_key, key))
		at = &(*at)->wa_next;
	return at;
}

void ds_watch_drop(struct ds_store *s, const struct cap_object *key)
{
	struct ds_watch **at = watch_of(s, key);

	if (*at)
		watch_end(at);
}

void ds_watches_close(struct ds_store *s)
{
	while (s->s_watches)
		watch_end(&s->s_watches);
}

static void watch_make_room(struct ds_store *s)
{
	struct ds_watch **at = &s->s_watches;
	unsigned n = 0;

	for (; *at; at = &(*at)->wa_next)
		if (++n == WATCHES_MAX) {
			watch_end(at);
			return;
		}
}

static ctl_status watch_begin(struct ds_store *s, const struct cap_object *key, uint64_t id)
{
	struct ds_watch *wa;
	struct ds_obj *o;
	int err;

	ds_watch_drop(s, key);
	watch_make_room(s);
	wa = calloc(1, sizeof(*wa));
	err = wa ? ds_obj_get(s, key, true, &o) : -ENOMEM;
	if (err) {
		free(wa);
		return err == -ESTALE ? CTL_NOENT : ds_ctl_status(err);
	}
	wa->wa_obj = o;
	wa->wa_id = id;
	wa->wa_next = s->s_watches;
	s->s_watches = wa;
	pthread_mutex_lock(&o->ob_lock);
	o->ob_watch = wa;
	atomic_store(&o->ob_watched, true);
	pthread_mutex_unlock(&o->ob_lock);
	/* Wait for the changes that did not see the watch. */
	ds_write_drain(s);
	return CTL_OK;
}

static void watch_take(struct ds_store *s, struct ds_watch *wa, ctl_span *spans, ctl_watch_res *res)
{
	struct extents *ns = &wa->wa_notes;
	unsigned n = 0;

	pthread_mutex_lock(&wa->wa_obj->ob_lock);
	if (wa->wa_all) {
		spans[n++] = (ctl_span){.offset = 0, .length = UINT64_MAX};
		extents_free(ns);
		wa->wa_all = false;
	}
	for (; n < CTL_SPANS_MAX && n < ns->es_n; n++)
		spans[n] = (ctl_span){.offset = ns->es_at[n].e_from,
				      .length = ns->es_at[n].e_to - ns->es_at[n].e_from};
	if (n && ns->es_n)
		extents_forget(ns, ns->es_at[n - 1].e_to);
	res->more = ns->es_n != 0;
	pthread_mutex_unlock(&wa->wa_obj->ob_lock);
	res->spans.spans_len = n;
	res->spans.spans_val = spans;
	if (n)
		ds_write_drain(s);
}

ctl_status ds_watch(struct ds_store *s, const ctl_watch_args *a, ctl_span *spans,
		    ctl_watch_res *res)
{
	struct ds_watch **at;
	struct cap_object key;

	if (!ds_key_of(&a->object, &key) || !a->session)
		return CTL_INVAL;
	at = watch_of(s, &key);
	switch (a->step) {
	case CTL_WATCH_BEGIN:
		return watch_begin(s, &key, a->session);
	case CTL_WATCH_TAKE:
		if (!*at || (*at)->wa_id != a->session)
			return CTL_BAD_SESSION;
		watch_take(s, *at, spans, res);
		return CTL_OK;
	case CTL_WATCH_END:
		if (*at && (*at)->wa_id == a->session)
			watch_end(at);
		return CTL_OK;
	default:
		return CTL_INVAL;
	}
}
