/* State of files: opens and layouts, recall and revocation. */
#include "mds/st/st.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/metrics.h"
#include <errno.h>

/* other: boot epoch (4 bytes), type (1), number (7) */
void st_sid_make(struct st *st, unsigned type, struct st_stateid *sid)
{
	uint32_t epoch = htobe32(st->st_epoch);
	uint64_t n = htobe64((uint64_t)type << 56 | (st->st_next++ & 0xffffffffffffffull));

	sid->seqid = 1;
	memcpy(sid->other, &epoch, 4);
	memcpy(sid->other + 4, &n, 8);
}

bool st_sid_ours(struct st *st, const struct st_stateid *sid, unsigned type)
{
	uint32_t epoch;

	memcpy(&epoch, sid->other, 4);
	return be32toh(epoch) == st->st_epoch && sid->other[4] == type;
}

bool st_sid_special(const struct st_stateid *sid)
{
	static const uint8_t zero[NFS4_OTHER_SIZE], ones[NFS4_OTHER_SIZE] = {255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255};

	return (sid->seqid == 0 && memcmp(sid->other, zero, NFS4_OTHER_SIZE) == 0) ||
	       (sid->seqid == UINT32_MAX && memcmp(sid->other, ones, NFS4_OTHER_SIZE) == 0);
}

/* By a hash of their numbers, how many delegations are out and how many files are watched. */
static _Atomic uint32_t watched[65536];

/* How often such a state has gone. */
static _Alignas(64) _Atomic uint32_t unwatches;

uint32_t st_unwatches(void)
{
	return atomic_load(&unwatches);
}

static _Atomic uint32_t *watch_of(uint64_t ino)
{
	return &watched[hash_u64(ino) % (sizeof(watched) / sizeof(watched[0]))];
}

void st_file_watch(struct st_file *f)
{
	if (!f->f_watched)
		atomic_fetch_add(watch_of(f->f_ino), 1);
	f->f_watched = true;
}

static void unwatch(uint64_t ino)
{
	atomic_fetch_add(&unwatches, 1);
	atomic_fetch_sub(watch_of(ino), 1);
}

static void file_unwatch(struct st_file *f)
{
	if (!f->f_watched || f->f_marked || f->f_mark_old || f->f_judge || f->f_hidden)
		return;
	unwatch(f->f_ino);
	f->f_watched = false;
}

bool st_watched(uint64_t ino)
{
	return atomic_load(watch_of(ino)) != 0;
}

struct st_file *st_file_get(struct st *st, uint64_t ino, bool make)
{
	struct st_file *f;

	for (struct hash_link *l = hash_first(&st->st_files, hash_u64(ino)); l; l = hash_next(l)) {
		f = hash_entry(l, struct st_file, f_link);
		if (f->f_ino == ino)
			return f;
	}
	if (!make)
		return NULL;
	f = calloc(1, sizeof(*f));
	if (!f)
		return NULL;
	f->f_ino = ino;
	if (hash_add(&st->st_files, &f->f_link, hash_u64(ino))) {
		free(f);
		return NULL;
	}
	return f;
}

void st_file_put(struct st *st, struct st_file *f)
{
	file_unwatch(f);
	if (f->f_opens || f->f_layouts || f->f_removing || f->f_excl || f->f_marked || f->f_judge || f->f_orphan || f->f_pins || f->f_halves)
		return;
	while (f->f_waiters) {
		struct st_waiter *w = f->f_waiters;

		f->f_waiters = w->wt_next;
		free(w);
	}
	hash_del(&st->st_files, &f->f_link);
	free(f);
}

/* ---- opens ---- */

struct st_open *st_open_find(struct st *st, const struct st_stateid *sid)
{
	for (struct hash_link *l = hash_first(&st->st_opens, hash_bytes(sid->other, NFS4_OTHER_SIZE)); l; l = hash_next(l)) {
		struct st_open *o = hash_entry(l, struct st_open, o_link);

		if (memcmp(o->o_sid.other, sid->other, NFS4_OTHER_SIZE) == 0)
			return o;
	}
	return NULL;
}

struct st_open *st_open_by_owner(struct st_file *f, struct st_client *c, const void *owner, uint32_t len)
{
	for (struct st_open *o = f->f_opens; o; o = o->o_fnext) {
		if (o->o_client == c && !o->o_deleg && o->o_owner_len == len && memcmp(o->o_owner, owner, len) == 0)
			return o;
	}
	return NULL;
}

static struct st_open *open_make(struct st *st, struct st_file *f, struct st_client *c, unsigned type, const void *owner, uint32_t len,
				 const struct st_stateid *sid)
{
	struct st_open *o = calloc(1, sizeof(*o) + len);

	if (!o)
		return NULL;
	if (sid)
		o->o_sid = *sid;
	else
		st_sid_make(st, type, &o->o_sid);
	o->o_sid.seqid = 0; /* the first use makes it 1 */
	if (hash_add(&st->st_opens, &o->o_link, hash_bytes(o->o_sid.other, NFS4_OTHER_SIZE))) {
		free(o);
		return NULL;
	}
	o->o_client = c;
	o->o_file = f;
	o->o_owner_len = len;
	if (len)
		memcpy(o->o_owner, owner, len);
	o->o_cnext = c->cl_opens;
	o->o_cprev = &c->cl_opens;
	if (o->o_cnext)
		o->o_cnext->o_cprev = &o->o_cnext;
	c->cl_opens = o;
	o->o_fnext = f->f_opens;
	o->o_fprev = &f->f_opens;
	if (o->o_fnext)
		o->o_fnext->o_fprev = &o->o_fnext;
	f->f_opens = o;
	return o;
}

struct st_open *st_open_new(struct st *st, struct st_file *f, struct st_client *c, const void *owner, uint32_t len,
			    const struct st_stateid *sid)
{
	struct st_open *o = open_make(st, f, c, ST_SID_OPEN, owner, len, sid);

	if (o)
		st_count(c, ST_N_OPENS, 1);
	return o;
}

struct st_open *st_deleg_new(struct st *st, struct st_file *f, struct st_client *c, uint32_t type, bool times, const uint8_t *fh, uint32_t fhlen)
{
	struct st_deleg *dg = calloc(1, sizeof(*dg));
	struct st_open *o = dg ? open_make(st, f, c, ST_SID_DELEG, NULL, 0, NULL) : NULL;

	if (!o) {
		free(dg);
		return NULL;
	}
	o->o_deleg = dg;
	o->o_sid.seqid = 1;
	o->o_access = type == OPEN_DELEGATE_WRITE ? OPEN4_SHARE_ACCESS_BOTH : OPEN4_SHARE_ACCESS_READ;
	dg->dg_type = type;
	dg->dg_times = times;
	dg->dg_given_ns = clock_mono_ns();
	memcpy(dg->dg_fh, fh, fhlen);
	dg->dg_fhlen = fhlen;
	c->cl_ndelegs++;
	st->st_ndelegs++;
	atomic_fetch_add(watch_of(f->f_ino), 1);
	metric_add(st->st_deleg_given[type == OPEN_DELEGATE_WRITE], 1);
	return o;
}

static void waits_check(struct st *st, uint64_t ino);

static bool opened_by(const struct st_file *f, const struct st_client *c)
{
	const struct st_open *o = f->f_opens;

	while (o && o->o_client != c)
		o = o->o_fnext;
	return o;
}

void st_open_free(struct st *st, struct st_open *o)
{
	struct st_file *f = o->o_file;
	struct st_deleg *dg = o->o_deleg;
	struct st_client *c = o->o_client;

	while (o->o_locks)
		st_lock_free(st, o->o_locks);
	hash_del(&st->st_opens, &o->o_link);
	*o->o_cprev = o->o_cnext;
	if (o->o_cnext)
		o->o_cnext->o_cprev = o->o_cprev;
	*o->o_fprev = o->o_fnext;
	if (o->o_fnext)
		o->o_fnext->o_fprev = o->o_fprev;
	if (dg) {
		o->o_client->cl_ndelegs--;
		o->o_client->cl_nrecalled -= dg->dg_recalled;
		st->st_ndelegs--;
		unwatch(f->f_ino);
		st_asks_fail(dg);
		free(dg);
	} else {
		st_count(c, ST_N_OPENS, -1);
	}
	free(o);
	if (dg && st->st_waits)
		waits_check(st, f->f_ino);
	if (f->f_halves && !opened_by(f, c)) /* who gave up a write does not do it again */
		st_half_lost(st, c, f);
	st_file_put(st, f);
}

struct st_open *st_share_conflict(struct st *st, struct st_file *f, uint32_t access, uint32_t deny)
{
	struct st_open *dead = NULL;

	for (struct st_open *o = f->f_opens; o; o = o->o_fnext) {
		if (o->o_deleg || !((o->o_access & deny) || (o->o_deny & access)))
			continue;
		if (!st_lease_expired(st, o->o_client))
			return o;
		dead = o;
	}
	return dead;
}

/* ---- layouts ---- */

struct st_layout *st_layout_find(struct st *st, const struct st_stateid *sid)
{
	for (struct hash_link *l = hash_first(&st->st_layouts, hash_bytes(sid->other, NFS4_OTHER_SIZE)); l; l = hash_next(l)) {
		struct st_layout *lo = hash_entry(l, struct st_layout, l_link);

		if (memcmp(lo->l_sid.other, sid->other, NFS4_OTHER_SIZE) == 0)
			return lo;
	}
	return NULL;
}

struct st_layout *st_layout_of(struct st_file *f, struct st_client *c)
{
	struct st_layout *l = f->f_layouts;

	while (l && l->l_client != c)
		l = l->l_fnext;
	return l;
}

struct st_layout *st_layout_new(struct st *st, struct st_file *f, struct st_client *c)
{
	struct st_layout *l = calloc(1, sizeof(*l));

	if (!l)
		return NULL;
	st_sid_make(st, ST_SID_LAYOUT, &l->l_sid);
	l->l_sid.seqid = 0;
	if (hash_add(&st->st_layouts, &l->l_link, hash_bytes(l->l_sid.other, NFS4_OTHER_SIZE))) {
		free(l);
		return NULL;
	}
	l->l_client = c;
	l->l_file = f;
	l->l_cnext = c->cl_layouts;
	l->l_cprev = &c->cl_layouts;
	if (l->l_cnext)
		l->l_cnext->l_cprev = &l->l_cnext;
	c->cl_layouts = l;
	st_count(c, ST_N_LAYOUTS, 1);
	l->l_fnext = f->f_layouts;
	l->l_fprev = &f->f_layouts;
	if (l->l_fnext)
		l->l_fnext->l_fprev = &l->l_fnext;
	f->f_layouts = l;
	return l;
}

bool st_file_has_writers(struct st_file *f)
{
	for (const struct st_layout *l = f->f_layouts; l; l = l->l_fnext) {
		if (l->l_iomode & LAYOUTIOMODE4_RW)
			return true;
	}
	return false;
}

static bool wait_matches(const struct st_wait *w, const struct st_layout *l)
{
	return l->l_client != w->w_except && (!w->w_rw_only || (l->l_iomode & LAYOUTIOMODE4_RW));
}

static unsigned wait_count(struct st *st, const struct st_wait *w)
{
	struct st_file *f = st_file_get(st, w->w_ino, false);
	unsigned n = 0;

	for (struct st_open *o = f && w->w_delegs ? f->f_opens : NULL; o; o = o->o_fnext)
		n += st_deleg_conflicts(o, w->w_except, w->w_access, w->w_deny);
	for (struct st_layout *l = f && !w->w_delegs ? f->f_layouts : NULL; l; l = l->l_fnext)
		n += wait_matches(w, l);
	return n;
}

static void wait_unlink(struct st *st, struct st_wait *w)
{
	struct st_wait **p = &st->st_waits;

	while (*p && *p != w)
		p = &(*p)->w_next;
	if (*p)
		*p = w->w_next;
}

static void wait_finish(struct loop_msg *m)
{
	struct st_wait *w = hash_entry(m, struct st_wait, w_msg);

	loop_timer_stop(w->w_loop, &w->w_timer);
	w->w_then(w, w->w_left);
}

static void wait_deadline(struct loop_timer *t)
{
	struct st_wait *w = hash_entry(t, struct st_wait, w_timer);
	struct st *st = w->w_st;
	bool mine;

	pthread_mutex_lock(&st->st_lock);
	mine = !w->w_done;
	if (mine) {
		w->w_done = true;
		w->w_left = wait_count(st, w);
		wait_unlink(st, w);
	}
	pthread_mutex_unlock(&st->st_lock);
	if (mine) /* else wait_finish is on its way to this loop */
		w->w_then(w, w->w_left);
}

static void waits_check(struct st *st, uint64_t ino)
{
	for (struct st_wait *w = st->st_waits, *next; w; w = next) {
		next = w->w_next;
		if (w->w_ino != ino || w->w_done || wait_count(st, w))
			continue;
		w->w_done = true;
		w->w_left = 0;
		wait_unlink(st, w);
		w->w_msg.m_run = wait_finish;
		loop_post(w->w_loop, &w->w_msg);
	}
}

void st_layout_free(struct st *st, struct st_layout *l)
{
	struct st_file *f = l->l_file;
	uint64_t ino = f->f_ino;

	hash_del(&st->st_layouts, &l->l_link);
	st_count(l->l_client, ST_N_LAYOUTS, -1);
	*l->l_cprev = l->l_cnext;
	if (l->l_cnext)
		l->l_cnext->l_cprev = l->l_cprev;
	*l->l_fprev = l->l_fnext;
	if (l->l_fnext)
		l->l_fnext->l_fprev = l->l_fprev;
	free(l);
	if (st->st_waits)
		waits_check(st, ino);
	st_file_put(st, f);
}

void st_layout_drop(struct st *st, struct st_layout *l, uint32_t iomode)
{
	l->l_iomode &= ~iomode;
	if (!l->l_iomode)
		st_layout_free(st, l);
	else if (st->st_waits)
		waits_check(st, l->l_file->f_ino);
}

/* locked: nothing: 0; else waits, until the deadline at most. */
static unsigned wait_begin(struct st *st, struct st_wait *w)
{
	unsigned n;

	w->w_st = st;
	w->w_done = false;
	n = wait_count(st, w);
	if (n) {
		w->w_next = st->st_waits;
		st->st_waits = w;
	}
	return n;
}

unsigned st_recall_file(struct st *st, uint64_t ino, struct st_client *except, bool rw_only, struct loop *loop, uint32_t deadline_ms, struct st_wait *w)
{
	bool live = false;
	unsigned n;

	w->w_ino = ino;
	w->w_except = except;
	w->w_rw_only = rw_only;
	w->w_delegs = false;
	w->w_loop = loop;
	w->w_timer.t_fire = wait_deadline;
	pthread_mutex_lock(&st->st_lock);
	n = wait_begin(st, w);
	for (struct st_layout *l = n ? st_file_get(st, ino, false)->f_layouts : NULL; l; l = l->l_fnext) {
		if (!wait_matches(w, l))
			continue;
		live |= !st_lease_expired(st, l->l_client);
		st_recall_queue(st, l);
	}
	if (n) /* Nobody waits for the dead. */
		loop_timer_start(loop, &w->w_timer, live ? deadline_ms : 1);
	pthread_mutex_unlock(&st->st_lock);
	return n;
}

unsigned st_recall_delegs(struct st *st, uint64_t ino, struct st_client *except, uint32_t access, uint32_t deny, struct loop *loop, uint32_t deadline_ms, struct st_wait *w)
{
	bool live = false;
	unsigned n;

	w->w_ino = ino;
	w->w_except = except;
	w->w_delegs = true;
	w->w_access = access;
	w->w_deny = deny;
	w->w_loop = loop;
	w->w_timer.t_fire = wait_deadline;
	pthread_mutex_lock(&st->st_lock);
	n = wait_begin(st, w);
	for (struct st_open *o = n ? st_file_get(st, ino, false)->f_opens : NULL; o; o = o->o_fnext) {
		if (!st_deleg_conflicts(o, except, access, deny))
			continue;
		live |= !st_lease_expired(st, o->o_client);
		st_deleg_recall(st, o);
	}
	if (n) {
		st_heat_conflict(st, ino);
		loop_timer_start(loop, &w->w_timer, live ? deadline_ms : 1);
	}
	pthread_mutex_unlock(&st->st_lock);
	return n;
}

void st_revoke_file(struct st *st, uint64_t ino, struct st_client *except, bool rw_only)
{
	struct st_file *f;

	pthread_mutex_lock(&st->st_lock);
	f = st_file_get(st, ino, false);
	for (struct st_layout *l = f ? f->f_layouts : NULL, *next; l; l = next) {
		next = l->l_fnext;
		if (l->l_client == except || (rw_only && !(l->l_iomode & LAYOUTIOMODE4_RW)))
			continue;
		l->l_client->cl_revoked |= SEQ4_STATUS_RECALLABLE_STATE_REVOKED;
		metric_add(st->st_revoked, 1);
		st_layout_free(st, l);
	}
	pthread_mutex_unlock(&st->st_lock);
}
