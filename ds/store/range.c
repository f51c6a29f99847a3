/*
 * range.c - direct and buffered I/O on the same pages of an object exclude each other, and one that is alone excludes all.
 *
 * Two of one kind never do: the kernel orders them. But a direct write drops the pages it wrote from the cache, and a
 * page that is made dirty meanwhile cannot be dropped: the kernel then notes an error that the next fsync returns.
 *
 * First come, first served: a request waits for every conflicting one before it, held or waiting. While all requests of an
 * object are of one kind, which is the rule, nothing is searched.
 *
 * And then no lock is taken either, by calls that have a hold of the object: ob_fast says which kind goes free, and such a range is but counted, in its loop's
 * hold (h_fast). Who is of another kind sets ob_fast to none, under ob_lock, and waits until no hold counts any more, whatever the pages; from then on all go by the
 * list, until RANGE_CALM in a row have met nobody of another kind. Count first, then look at ob_fast; set ob_fast first, then look at the counts: one sees the other.
 */
#include "ds/store/store_int.h"

#define RANGE_CALM 64u

void ds_range_init(struct ds_obj *o)
{
	o->ob_ranges_end = &o->ob_ranges;
	atomic_init(&o->ob_fast, DS_FAST_NONE);
	o->ob_was_fast = DS_FAST_NONE;
	o->ob_calm = RANGE_CALM; /* the first says what goes free */
}

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
	return &o->ob_nrange[r->rg_alone ? DS_KIND_ALONE : r->rg_direct];
}

/* Whether there may be others that it conflicts with; it is counted itself. */
static bool mixed(struct ds_obj *o, const struct ds_range *r)
{
	return r->rg_alone ? o->ob_nrange[0] + o->ob_nrange[1] + o->ob_nrange[2] > 1 : o->ob_nrange[!r->rg_direct] + o->ob_nrange[2];
}

static unsigned kind_of(const struct ds_range *r)
{
	return r->rg_alone ? DS_KIND_ALONE : r->rg_direct;
}

/* With ob_lock: whether ranges that are held without it keep r out. They are none of its own kind. */
static bool fast_blocks(const struct ds_obj *o, const struct ds_range *r)
{
	if (kind_of(r) == o->ob_was_fast)
		return false;
	for (const struct ds_hold *h = o->ob_holds; h; h = h->h_next)
		if (atomic_load(&h->h_fast))
			return true;
	return false;
}

/* With ob_lock: r comes, and is counted. */
static void fast_note(struct ds_obj *o, const struct ds_range *r)
{
	unsigned fast = atomic_load(&o->ob_fast), kind = kind_of(r);

	if (fast == kind)
		return;
	if (fast != DS_FAST_NONE || kind == DS_KIND_ALONE || mixed(o, r)) {
		o->ob_calm = 0;
		atomic_store(&o->ob_fast, DS_FAST_NONE);
	} else if (o->ob_calm < RANGE_CALM) {
		o->ob_calm++;
	} else if (!fast_blocks(o, r)) {
		o->ob_was_fast = kind;
		atomic_store(&o->ob_fast, kind);
	}
}

/* With ob_lock: who waits for nothing any more is told. */
static void grant(struct ds_obj *o)
{
	for (struct ds_range *e = o->ob_ranges, *next; e; e = next) {
		next = e->rg_next;
		if (!e->rg_held && !blocked(o, e) && !fast_blocks(o, e)) {
			e->rg_held = true;
			/* From now on e is its owner's; it stays in the list until it is unlocked, under this lock. */
			if (e->rg_loop)
				loop_post(e->rg_loop, &e->rg_msg);
			else
				e->rg_granted(e);
		}
	}
}

static void fast_leave(struct ds_obj *o, struct ds_hold *h)
{
	atomic_fetch_sub(&h->h_fast, 1);
	if (atomic_load(&o->ob_fast) != DS_FAST_NONE)
		return;
	pthread_mutex_lock(&o->ob_lock);
	grant(o);
	pthread_mutex_unlock(&o->ob_lock);
}

static bool fast_enter(struct ds_obj *o, struct ds_range *r, struct ds_hold *h)
{
	if (!h || atomic_load(&o->ob_fast) != kind_of(r) || r->rg_alone)
		return false;
	atomic_fetch_add(&h->h_fast, 1);
	if (atomic_load(&o->ob_fast) == kind_of(r)) {
		r->rg_fast = h;
		return r->rg_held = true;
	}
	fast_leave(o, h);
	return false;
}

/* True: held now. False: rg_granted will be called on this loop; of a thread without one anywhere, with ob_lock. */
bool ds_range_lock(struct ds_obj *o, struct ds_range *r, struct ds_hold *h)
{
	bool held;

	r->rg_loop = loop_self();
	r->rg_msg.m_run = granted;
	r->rg_next = NULL;
	r->rg_fast = NULL;
	if (fast_enter(o, r, h))
		return true;
	pthread_mutex_lock(&o->ob_lock);
	r->rg_prevp = o->ob_ranges_end;
	*o->ob_ranges_end = r;
	o->ob_ranges_end = &r->rg_next;
	++*count_of(o, r);
	fast_note(o, r);
	held = r->rg_held = !fast_blocks(o, r) && (!mixed(o, r) || !blocked(o, r));
	/* From now on it may be granted at any time. */
	pthread_mutex_unlock(&o->ob_lock);
	return held;
}

void ds_range_unlock(struct ds_obj *o, struct ds_range *r)
{
	bool wait;

	if (r->rg_fast) {
		fast_leave(o, r->rg_fast);
		return;
	}
	pthread_mutex_lock(&o->ob_lock);
	wait = mixed(o, r);
	--*count_of(o, r);
	*r->rg_prevp = r->rg_next;
	if (r->rg_next)
		r->rg_next->rg_prevp = r->rg_prevp;
	else
		o->ob_ranges_end = r->rg_prevp;
	if (wait)
		grant(o);
	pthread_mutex_unlock(&o->ob_lock);
}
