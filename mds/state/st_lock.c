/* SPDX-License-Identifier: Apache-2.0 */
/* st_lock.c - byte-range locks with POSIX semantics (RFC 8881 sections 8.2.2, 9.1 and 18.10 to
 * 18.12). The caller holds the file's lock, or the lock of all. */
#include "mds/state/st.h"
#include <errno.h>

struct st_lock *st_lock_find(struct st *st, const struct st_stateid *sid)
{
	for (struct hash_link *l = st_first_by_sid(st, sid, ST_LOCK); l; l = hash_next(l)) {
		struct st_lock *k = hash_entry(l, struct st_lock, k_link);

		if (memcmp(k->k_sid.other, sid->other, NFS4_OTHER_SIZE) == 0)
			return k;
	}
	return NULL;
}

static bool is_owner(const struct st_lock *k, const struct st_client *c, const void *owner,
		     uint32_t len)
{
	return k->k_open->o_client == c && k->k_owner_len == len &&
	       memcmp(k->k_owner, owner, len) == 0;
}

struct st_lock *st_lock_by_owner(struct st_file *f, const struct st_client *c, const void *owner,
				 uint32_t len)
{
	struct st_lock *k = f->f_locks;

	while (k && !is_owner(k, c, owner, len))
		k = k->k_fnext;
	return k;
}

struct st_lock *st_lock_new(struct st *st, struct st_open *o, const void *owner, uint32_t len)
{
	struct st_lock *k = calloc(1, sizeof(*k) + len);
	struct st_file *f = o->o_file;

	if (!k)
		return NULL;
	st_sid_make(st, f->f_ino, ST_SID_LOCK, &k->k_sid);
	k->k_sid.seqid = 0; /* the first use makes it 1 */
	if (st_add_by_sid(st, f->f_ino, &k->k_sid, ST_LOCK, &k->k_link)) {
		free(k);
		return NULL;
	}
	k->k_open = o;
	st_count(o->o_client, ST_N_LOCKS, 1);
	k->k_owner_len = len;
	memcpy(k->k_owner, owner, len);
	k->k_onext = o->o_locks;
	k->k_oprev = &o->o_locks;
	if (k->k_onext)
		k->k_onext->k_oprev = &k->k_onext;
	o->o_locks = k;
	k->k_fnext = f->f_locks;
	k->k_fprev = &f->f_locks;
	if (k->k_fnext)
		k->k_fnext->k_fprev = &k->k_fnext;
	f->f_locks = k;
	return k;
}

static void range_free(struct st_lock *k, struct st_range *r)
{
	st_count(k->k_open->o_client, ST_N_RANGES, -1);
	free(r);
}

void st_lock_free(struct st *st, struct st_lock *k)
{
	st_count(k->k_open->o_client, ST_N_LOCKS, -1);
	st_table_del(st, k->k_open->o_file->f_ino, &k->k_link);
	*k->k_oprev = k->k_onext;
	if (k->k_onext)
		k->k_onext->k_oprev = k->k_oprev;
	*k->k_fprev = k->k_fnext;
	if (k->k_fnext)
		k->k_fnext->k_fprev = k->k_fprev;
	while (k->k_ranges) {
		struct st_range *r = k->k_ranges;

		k->k_ranges = r->r_next;
		range_free(k, r);
	}
	free(k);
}

const struct st_range *st_lock_conflict(struct st *st, struct st_file *f, const struct st_client *c,
					const void *owner, uint32_t len, uint64_t first,
					uint64_t last, bool write, struct st_lock **holder)
{
	const struct st_range *dead = NULL;

	for (struct st_lock *k = f->f_locks; k; k = k->k_fnext) {
		if (is_owner(k, c, owner, len))
			continue;
		for (const struct st_range *r = k->k_ranges; r && r->r_first <= last;
		     r = r->r_next) {
			if (r->r_last < first || !(write || r->r_write))
				continue;
			if (dead && st_lease_expired(st, k->k_open->o_client))
				continue;
			*holder = k;
			if (!st_lease_expired(st, k->k_open->o_client))
				return r;
			dead = r;
		}
	}
	return dead;
}

/* Removes [first, last] from the ranges. Cutting a range in its middle uses up *spare. */
static void st_lock_cut(struct st_lock *k, uint64_t first, uint64_t last, struct st_range **spare)
{
	struct st_range **p = &k->k_ranges, *r;

	while ((r = *p) && r->r_first <= last) {
		if (r->r_last < first) {
			p = &r->r_next;
		} else if (r->r_first >= first && r->r_last <= last) {
			*p = r->r_next;
			range_free(k, r);
		} else if (r->r_first < first && r->r_last > last) {
			struct st_range *tail = *spare;

			*spare = NULL;
			st_count(k->k_open->o_client, ST_N_RANGES, 1);
			*tail = (struct st_range){r->r_next, last + 1, r->r_last, r->r_write};
			r->r_last = first - 1;
			r->r_next = tail;
			return;
		} else if (r->r_first < first) {
			r->r_last = first - 1;
			p = &r->r_next;
		} else {
			r->r_first = last + 1;
			return;
		}
	}
}

/* Inserts n in order and joins it with adjacent ranges of the same kind. */
static void insert(struct st_lock *k, struct st_range *n)
{
	struct st_range **p = &k->k_ranges, *r;

	while ((r = *p) && r->r_last < n->r_first &&
	       !(r->r_write == n->r_write && r->r_last + 1 == n->r_first))
		p = &r->r_next;
	if (r && r->r_write == n->r_write && r->r_last != UINT64_MAX &&
	    r->r_last + 1 == n->r_first) {
		n->r_first = r->r_first;
		*p = r->r_next;
		range_free(k, r);
	}
	r = *p;
	if (r && r->r_write == n->r_write && n->r_last != UINT64_MAX &&
	    n->r_last + 1 == r->r_first) {
		n->r_last = r->r_last;
		*p = r->r_next;
		range_free(k, r);
	}
	n->r_next = *p;
	*p = n;
}

int st_lock_set(struct st_lock *k, uint64_t first, uint64_t last, bool write)
{
	struct st_range *n = malloc(sizeof(*n)), *spare = malloc(sizeof(*spare));

	if (!n || !spare) {
		free(n);
		free(spare);
		return -ENOMEM;
	}
	st_lock_cut(k, first, last, &spare);
	st_count(k->k_open->o_client, ST_N_RANGES, 1);
	*n = (struct st_range){NULL, first, last, write};
	insert(k, n);
	free(spare);
	return 0;
}

int st_lock_clear(struct st_lock *k, uint64_t first, uint64_t last)
{
	struct st_range *spare = malloc(sizeof(*spare));

	if (!spare)
		return -ENOMEM;
	st_lock_cut(k, first, last, &spare);
	free(spare);
	return 0;
}

bool st_open_has_locks(const struct st_open *o)
{
	for (const struct st_lock *k = o->o_locks; k; k = k->k_onext) {
		if (k->k_ranges)
			return true;
	}
	return false;
}

struct st_open *st_open_or_lock(struct st *st, const struct st_stateid *sid, uint32_t *seqid)
{
	struct st_open *o = st_open_find(st, sid);
	struct st_lock *k = o ? NULL : st_lock_find(st, sid);

	*seqid = o ? o->o_sid.seqid : k ? k->k_sid.seqid : 0;
	return k ? k->k_open : o;
}

/* ---- waiting lock-owners ---- */

#define WAITERS_MAX 64u

static void waiter_unlink(struct st_file *f, struct st_waiter **p)
{
	*p = (*p)->wt_next;
	f->f_nwaiters--;
}

void st_wait_for_lock(struct st_file *f, const struct st_client *c, const void *owner, uint32_t len,
		      uint64_t first, uint64_t last, bool write, const uint8_t *fh, uint32_t fhlen)
{
	struct st_waiter **p = &f->f_waiters, *w;

	for (; (w = *p); p = &w->wt_next) {
		if (w->wt_client == c->cl_id && w->wt_owner_len == len &&
		    memcmp(w->wt_owner, owner, len) == 0)
			break;
	}
	if (!w && f->f_nwaiters < WAITERS_MAX && (w = calloc(1, sizeof(*w) + len))) {
		w->wt_client = c->cl_id;
		w->wt_owner_len = len;
		memcpy(w->wt_owner, owner, len);
		*p = w; /* at the end: first come, first notified */
		f->f_nwaiters++;
	}
	if (!w)
		return;
	w->wt_first = first;
	w->wt_last = last;
	w->wt_write = write;
	w->wt_fhlen = fhlen;
	memcpy(w->wt_fh, fh, fhlen);
}

void st_locks_gone(struct st *st, struct st_file *f)
{
	struct st_waiter **p = &f->f_waiters, *w;

	while ((w = *p)) {
		struct st_client *c = st_client_get(st, w->wt_client);
		struct st_lock *holder;

		if (c && st_lock_conflict(st, f, c, w->wt_owner, w->wt_owner_len, w->wt_first,
					  w->wt_last, w->wt_write, &holder)) {
			p = &w->wt_next;
			continue;
		}
		waiter_unlink(f, p);
		if (c)
			st_notify_queue(st, c, w);
		else
			free(w);
	}
}
