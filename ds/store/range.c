/*
 * range.c - direct and buffered I/O on the same pages of an object exclude each other, and one that is alone excludes all.
 *
 * Two of one kind never do: the kernel orders them. But a direct write drops the pages it wrote from the cache, and a
 * page that is made dirty meanwhile cannot be dropped: the kernel then notes an error that the next fsync returns.
 *
 * First come, first served: a request waits for every conflicting one before it, held or waiting. While all requests of an
 * object are of one kind, which is the rule, nothing is searched.
 */
#include "ds/store/store_int.h"

static bool conflict(const struct ds_range *a, const struct ds_range *b)
{
	return (a->rg_alone || b->rg_alone || a->rg_direct != b->rg_direct) && a->rg_first <= b->rg_last && b->rg_first <= a->rg_last;
}

static bool blocked(const struct ds_obj *o, const struct ds_range *r)
{
	for (const struct ds_range *e = o->ob_ranges; e != r; e = e->rg_next)
		if (conflict(e, r))
			return true;
	return false;
}

static void granted(struct loop_msg *m)
{
	struct ds_range *r = (struct ds_range *)((char *)m - offsetof(struct ds_range, rg_msg));

	r->rg_granted(r);
}

/* Of the object's requests: those of its kind. */
static unsigned *count_of(struct ds_obj *o, const struct ds_range *r)
{
	return &o->ob_nrange[r->rg_alone ? 2 : r->rg_direct];
}

/* Whether there may be others that it conflicts with; it is counted itself. */
static bool mixed(struct ds_obj *o, const struct ds_range *r)
{
	return r->rg_alone ? o->ob_nrange[0] + o->ob_nrange[1] + o->ob_nrange[2] > 1 : o->ob_nrange[!r->rg_direct] + o->ob_nrange[2];
}

/* True: held now. False: rg_granted will be called on this loop; of a thread without one anywhere, with ob_lock. */
bool ds_range_lock(struct ds_obj *o, struct ds_range *r)
{
	bool held;

	r->rg_loop = loop_self();
	r->rg_msg.m_run = granted;
	r->rg_next = NULL;
	pthread_mutex_lock(&o->ob_lock);
	r->rg_prevp = o->ob_ranges_end;
	*o->ob_ranges_end = r;
	o->ob_ranges_end = &r->rg_next;
	++*count_of(o, r);
	held = r->rg_held = !mixed(o, r) || !blocked(o, r);
	/* From now on it may be granted at any time. */
	pthread_mutex_unlock(&o->ob_lock);
	return held;
}

void ds_range_unlock(struct ds_obj *o, struct ds_range *r)
{
	bool wait;

	pthread_mutex_lock(&o->ob_lock);
	wait = mixed(o, r);
	--*count_of(o, r);
	*r->rg_prevp = r->rg_next;
	if (r->rg_next)
		r->rg_next->rg_prevp = r->rg_prevp;
	else
		o->ob_ranges_end = r->rg_prevp;
	for (struct ds_range *e = wait ? o->ob_ranges : NULL, *next; e; e = next) {
		next = e->rg_next;
		if (!e->rg_held && !blocked(o, e)) {
			e->rg_held = true;
			/* From now on e is its owner's; it stays in the list until it is unlocked, under this lock. */
			if (e->rg_loop)
				loop_post(e->rg_loop, &e->rg_msg);
			else
				e->rg_granted(e);
		}
	}
	pthread_mutex_unlock(&o->ob_lock);
}
