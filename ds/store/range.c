/* SPDX-License-Identifier: Apache-2.0 */
/*
 * range.c - range locks of an object. Direct and buffered I/O on the same pages exclude each other,
 * so do writes of the same bytes, and a range that is alone excludes all others.
 *
 * Kinds. A direct write drops the pages it wrote from the page cache. The kernel cannot drop a page
 * that becomes dirty meanwhile, and then reports an error to the next fsync.
 *
 * Writes. A client sends a WRITE again if its connection ended, or if it has waited for long, and
 * the first one may still be in the disk. The client takes the answer to the second for the end of
 * both, and writes new data to the same bytes. The kernel does not order writes that are under way
 * at the same time. So the store does: each write ends before the next write of the same bytes
 * begins, whichever clients send them, and no old write lands over a newer one.
 *
 * First come, first served: a request waits for every conflicting request before it, held or
 * waiting. While all requests of an object are of one kind, and none are writes, nothing is
 * searched.
 *
 * Without a lock. While all requests are of one kind, calls that have a hold of the object take no
 * lock either. ob_fast says which kind may pass, and such a range is only counted, in its loop's
 * hold (hld_fast). A range of another kind sets ob_fast to none, under ob_lock, and waits until no
 * hold counts any range, whatever its pages. From then on all ranges use the list, until RANGE_CALM
 * in a row have met no range of another kind. A passing range first counts itself and then checks
 * ob_fast; a range that stops them first sets ob_fast and then checks the counts. So one always
 * sees the other.
 *
 * A write that passes without a lock first claims its pages: one bit for each, in a table of the
 * store. Others write the same words only if they write the same MiB of the object or, by chance of
 * the hash, one in CLAIMS writers of other places. So the loops share nothing here. A claim costs
 * one locked instruction for each 64 pages, and its end costs the same. A write that finds a bit
 * set uses the list. Writes in the list claim their pages too, so that passing writes see them.
 * While a write in the list lacks its claim (because it waits, or other bytes of its page are being
 * written, or the hash collides), ob_fast is none; and if it is held without a claim, no range that
 * it could meet passes.
 */
#include "ds/store/store_int.h"
#include <errno.h>
#include <sys/mman.h>

#define RANGE_CALM 64u

/* 2 MiB of address space; the kernel backs only the part in use. */
#define CLAIMS	    65536u
#define CLAIM_WORDS 4u /* of 64 pages: one claim of the table covers 1 MiB */

/* How a range counts in hld_fast. */
#define FAST_READ  ((uint64_t)1)
#define FAST_WRITE (FAST_READ | (uint64_t)1 << 32)
_Static_assert(sizeof(((struct ds_hold *)0)->hld_fast) == 8, "room for both");

int ds_claims_init(struct ds_store *s)
{
	size_t size = CLAIMS * CLAIM_WORDS * sizeof(*s->s_claims);
	void *mem = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (mem == MAP_FAILED)
		return -errno;
	s->s_claims = mem;
	s->s_claims_mask = CLAIMS - 1;
	return 0;
}

void ds_claims_close(struct ds_store *s)
{
	if (s->s_claims)
		munmap(s->s_claims, CLAIMS * CLAIM_WORDS * sizeof(*s->s_claims));
}

void ds_range_init(struct ds_obj *o)
{
	o->ob_ranges_end = &o->ob_ranges;
	atomic_init(&o->ob_fast, DS_FAST_NONE);
	o->ob_was_fast = DS_FAST_NONE;
	o->ob_calm = RANGE_CALM; /* the first range sets ob_fast */
}

static bool conflict(const struct ds_range *a, const struct ds_range *b)
{
	if (a->rg_write && b->rg_write && a->rg_from < b->rg_to && b->rg_from < a->rg_to)
		return true;
	return (a->rg_alone || b->rg_alone || a->rg_direct != b->rg_direct) &&
	       a->rg_first <= b->rg_last && b->rg_first <= a->rg_last;
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

/* How many requests of the object have r's kind. */
static unsigned *range_count_of(struct ds_obj *o, const struct ds_range *r)
{
	return &o->ob_nrange[r->rg_alone ? DS_KIND_ALONE : r->rg_direct];
}

/* True if other requests may conflict with r; r itself is counted already. */
static bool mixed(struct ds_obj *o, const struct ds_range *r)
{
	return r->rg_alone ? o->ob_nrange[0] + o->ob_nrange[1] + o->ob_nrange[2] > 1
			   : o->ob_nrange[!r->rg_direct] + o->ob_nrange[2];
}

static unsigned kind_of(const struct ds_range *r)
{
	return r->rg_alone ? DS_KIND_ALONE : r->rg_direct;
}

/* ---- claims ---- */

/* The word with the bits of pages w * 64 to w * 64 + 63. */
static _Atomic uint64_t *claim_word(const struct ds_obj *o, uint64_t w)
{
	const struct ds_store *s = o->ob_store;
	uint64_t at = hash_u64((uint64_t)(uintptr_t)o + w / CLAIM_WORDS * 0x9e3779b97f4a7c15u) &
		      s->s_claims_mask;

	return &s->s_claims[at * CLAIM_WORDS + w % CLAIM_WORDS];
}

static uint64_t claim_bits(const struct ds_range *r, uint64_t w)
{
	uint64_t from = r->rg_first > w * 64 ? r->rg_first - w * 64 : 0,
		 to = r->rg_last < w * 64 + 63 ? r->rg_last - w * 64 : 63;

	return UINT64_MAX >> (63 - to) & UINT64_MAX << from;
}

/* Clears r's bits in its words below end. */
static void unclaim(const struct ds_obj *o, const struct ds_range *r, uint64_t end)
{
	for (uint64_t w = r->rg_first / 64; w < end; w++)
		atomic_fetch_and(claim_word(o, w), ~claim_bits(r, w));
}

static void unclaim_all(const struct ds_obj *o, const struct ds_range *r)
{
	unclaim(o, r, r->rg_last / 64 + 1);
}

/* Claims all pages of r, or none. */
static bool range_claim(const struct ds_obj *o, const struct ds_range *r)
{
	for (uint64_t w = r->rg_first / 64; w <= r->rg_last / 64; w++) {
		uint64_t bits = claim_bits(r, w), was = atomic_fetch_or(claim_word(o, w), bits);

		if (!(was & bits))
			continue;
		atomic_fetch_and(claim_word(o, w), ~(bits & ~was));
		unclaim(o, r, w);
		return false;
	}
	return true;
}

/* True for a write that has no claim. */
static bool bare(const struct ds_range *r)
{
	return r->rg_write && !r->rg_claimed;
}

/* ---- ranges without ob_lock ---- */

/* With ob_lock held. True if ranges held without it may conflict with r. Ranges of r's own kind do
 * not, nor do writes if r has a claim. */
static bool fast_blocks(const struct ds_obj *o, const struct ds_range *r)
{
	if (kind_of(r) == o->ob_was_fast && !bare(r))
		return false;
	for (const struct ds_hold *h = o->ob_holds; h; h = h->hld_next)
		if (atomic_load(&h->hld_fast))
			return true;
	return false;
}

/* With ob_lock held. From now on all ranges use the list. */
static void fast_stop(struct ds_obj *o)
{
	o->ob_calm = 0;
	atomic_store(&o->ob_fast, DS_FAST_NONE);
}

/* With ob_lock held. r arrives, and is counted already: stops ranges of another kind. */
static void fast_meet(struct ds_obj *o, const struct ds_range *r)
{
	unsigned fast = atomic_load(&o->ob_fast), kind = kind_of(r);

	if (fast != kind && (fast != DS_FAST_NONE || kind == DS_KIND_ALONE || mixed(o, r)))
		fast_stop(o);
}

/* With ob_lock held. r has arrived: lets ranges of its kind pass without ob_lock once all is
 * calm. */
static void fast_begin(struct ds_obj *o, const struct ds_range *r)
{
	unsigned kind = kind_of(r);

	if (atomic_load(&o->ob_fast) != DS_FAST_NONE || kind == DS_KIND_ALONE || mixed(o, r))
		return;
	if (o->ob_calm < RANGE_CALM) {
		o->ob_calm++;
	} else if (!o->ob_nbare && !fast_blocks(o, r)) {
		o->ob_was_fast = kind;
		atomic_store(&o->ob_fast, kind);
	}
}

/* ---- the list ---- */

/* With ob_lock held. True if r need not wait any more. */
static bool enter(struct ds_obj *o, struct ds_range *r)
{
	bool first = !(mixed(o, r) || (r->rg_write && o->ob_nwrites > 1)) || !blocked(o, r);

	if (first && bare(r) && range_claim(o, r)) {
		r->rg_claimed = true;
		o->ob_nbare--;
	}
	if (bare(r))
		fast_stop(o);
	return first && !fast_blocks(o, r);
}

/* With ob_lock held. Grants the ranges that need not wait any more. */
static void grant(struct ds_obj *o)
{
	for (struct ds_range *e = o->ob_ranges, *next; e; e = next) {
		next = e->rg_next;
		if (!e->rg_held && enter(o, e)) {
			e->rg_held = true;
			/* From now on e is its owner's. It stays in the list until its owner
			 * unlocks it, under this lock. */
			if (e->rg_loop)
				loop_post(e->rg_loop, &e->rg_msg);
			else
				e->rg_granted(e);
		}
	}
}

static void fast_leave(struct ds_obj *o, const struct ds_range *r, struct ds_hold *h)
{
	atomic_fetch_sub(&h->hld_fast, r->rg_write ? FAST_WRITE : FAST_READ);
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
	atomic_fetch_add(&h->hld_fast, r->rg_write ? FAST_WRITE : FAST_READ);
	if (atomic_load(&o->ob_fast) == kind_of(r) && (!r->rg_write || range_claim(o, r))) {
		r->rg_claimed = r->rg_write;
		r->rg_fast = h;
		return r->rg_held = true;
	}
	fast_leave(o, r, h);
	return false;
}

static void range_list_add(struct ds_obj *o, struct ds_range *r)
{
	r->rg_prevp = o->ob_ranges_end;
	*o->ob_ranges_end = r;
	o->ob_ranges_end = &r->rg_next;
	++*range_count_of(o, r);
	o->ob_nwrites += r->rg_write;
	o->ob_nbare += r->rg_write;
}

static void list_del(struct ds_obj *o, struct ds_range *r)
{
	if (r->rg_claimed)
		unclaim_all(o, r);
	o->ob_nbare -= bare(r);
	o->ob_nwrites -= r->rg_write;
	--*range_count_of(o, r);
	*r->rg_prevp = r->rg_next;
	if (r->rg_next)
		r->rg_next->rg_prevp = r->rg_prevp;
	else
		o->ob_ranges_end = r->rg_prevp;
}

/* True: held now. False: this loop will call rg_granted. If the thread has no loop, any thread
 * calls it, with ob_lock held. */
bool ds_range_lock(struct ds_obj *o, struct ds_range *r, struct ds_hold *h)
{
	bool held;

	r->rg_loop = loop_self();
	r->rg_msg.m_run = granted;
	r->rg_next = NULL;
	r->rg_fast = NULL;
	r->rg_claimed = false;
	if (fast_enter(o, r, h))
		return true;
	pthread_mutex_lock(&o->ob_lock);
	range_list_add(o, r);
	fast_meet(o, r);
	held = r->rg_held = enter(o, r);
	fast_begin(o, r);
	/* After this, another thread may grant r at any time. */
	pthread_mutex_unlock(&o->ob_lock);
	return held;
}

void ds_range_unlock(struct ds_obj *o, struct ds_range *r)
{
	bool wait;

	if (r->rg_fast) {
		if (r->rg_claimed)
			unclaim_all(o, r);
		fast_leave(o, r, r->rg_fast);
		return;
	}
	pthread_mutex_lock(&o->ob_lock);
	wait = mixed(o, r);
	list_del(o, r);
	if (wait || (r->rg_write && o->ob_nbare))
		grant(o);
	pthread_mutex_unlock(&o->ob_lock);
}

bool ds_range_writing(struct ds_obj *o)
{
	bool writing;

	pthread_mutex_lock(&o->ob_lock);
	writing = o->ob_nwrites || o->ob_nrange[DS_KIND_ALONE];
	for (const struct ds_hold *h = o->ob_holds; h; h = h->hld_next)
		writing |= atomic_load(&h->hld_fast) >= FAST_WRITE;
	pthread_mutex_unlock(&o->ob_lock);
	return writing;
}
