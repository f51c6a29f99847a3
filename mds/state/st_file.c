/* SPDX-License-Identifier: Apache-2.0 */
/* st_file.c - state of files: opens and layouts, recall and revocation. */
#include "mds/state/st.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/metrics.h"
#include <errno.h>

/* Counts of delegations that are out and of files that are watched, by a hash of the inode
 * number. */
static _Atomic uint32_t watched[65536];

/* How often a watch or a delegation ended. Each thread counts on one of UNWATCH_LINES cache
 * lines. */
#define UNWATCH_LINES 64u
static struct {
	_Alignas(64) _Atomic uint32_t u_n;
} unwatches[UNWATCH_LINES];
static _Atomic uint32_t unwatch_lines;

uint32_t st_unwatches(void)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < atomic_load(&unwatch_lines); i++)
		n += atomic_load(&unwatches[i].u_n);
	return n;
}

static void count_unwatch(void)
{
	uint32_t i = st_thread_index() % UNWATCH_LINES, lines = atomic_load(&unwatch_lines);

	while (lines <= i && !atomic_compare_exchange_weak(&unwatch_lines, &lines, i + 1))
		;
	atomic_fetch_add(&unwatches[i].u_n, 1);
}

static _Atomic uint32_t *st_file_watch_of(uint64_t ino)
{
	return &watched[hash_u64(ino) % (sizeof(watched) / sizeof(watched[0]))];
}

void st_file_watch(struct st_file *f)
{
	if (!f->f_watched)
		atomic_fetch_add(st_file_watch_of(f->f_ino), 1);
	f->f_watched = true;
}

static void st_file_unwatch(uint64_t ino)
{
	count_unwatch();
	atomic_fetch_sub(st_file_watch_of(ino), 1);
}

static void file_unwatch(struct st_file *f)
{
	if (!f->f_watched || f->f_intent || f->f_intent_old || f->f_suspect || f->f_nhidden ||
	    f->f_contended)
		return;
	st_file_unwatch(f->f_ino);
	f->f_watched = false;
}

bool st_watched(uint64_t ino)
{
	return atomic_load(st_file_watch_of(ino)) != 0;
}

struct st_file *st_file_get(struct st *st, uint64_t ino, bool make)
{
	struct st_file *f;

	for (struct hash_link *l = st_first_by_ino(st, ino); l; l = hash_next(l)) {
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
	if (st_add_by_ino(st, ino, &f->f_link)) {
		free(f);
		return NULL;
	}
	return f;
}

void st_file_put(struct st *st, struct st_file *f)
{
	file_unwatch(f);
	if (f->f_opens || f->f_layouts || f->f_waits || f->f_removing || f->f_nexcl ||
	    f->f_intent || f->f_intent_durable || f->f_suspect || f->f_orphan || f->f_pins ||
	    f->f_npartials)
		return;
	while (f->f_waiters) {
		struct st_waiter *w = f->f_waiters;

		f->f_waiters = w->wt_next;
		free(w);
	}
	st_table_del(st, f->f_ino, &f->f_link);
	free(f);
}

/* ---- opens ---- */

struct st_open *st_open_find(struct st *st, const struct st_stateid *sid)
{
	for (struct hash_link *l = st_first_by_sid(st, sid, ST_OPEN); l; l = hash_next(l)) {
		struct st_open *o = hash_entry(l, struct st_open, o_link);

		if (memcmp(o->o_sid.other, sid->other, NFS4_OTHER_SIZE) == 0)
			return o;
	}
	return NULL;
}

struct st_open *st_open_by_owner(struct st_file *f, struct st_client *c, const void *owner,
				 uint32_t len)
{
	for (struct st_open *o = f->f_opens; o; o = o->o_fnext) {
		if (o->o_client == c && !o->o_deleg && o->o_owner_len == len &&
		    memcmp(o->o_owner, owner, len) == 0)
			return o;
	}
	return NULL;
}

static struct st_open *open_make(struct st *st, struct st_file *f, struct st_client *c,
				 struct st_deleg *dg, const void *owner, uint32_t len,
				 const struct st_stateid *sid)
{
	struct st_open *o = calloc(1, sizeof(*o) + len);

	if (!o)
		return NULL;
	if (sid)
		o->o_sid = *sid;
	else
		st_sid_make(st, f->f_ino, dg ? ST_SID_DELEG : ST_SID_OPEN, &o->o_sid);
	o->o_sid.seqid = 0; /* the first use makes it 1 */
	if (st_add_by_sid(st, f->f_ino, &o->o_sid, ST_OPEN, &o->o_link)) {
		free(o);
		return NULL;
	}
	o->o_client = c;
	o->o_file = f;
	o->o_owner_len = len;
	if (len)
		memcpy(o->o_owner, owner, len);
	o->o_deleg = dg;
	st_open_list(o);
	o->o_fnext = f->f_opens;
	o->o_fprev = &f->f_opens;
	if (o->o_fnext)
		o->o_fnext->o_fprev = &o->o_fnext;
	f->f_opens = o;
	return o;
}

struct st_open *st_open_new(struct st *st, struct st_file *f, struct st_client *c,
			    const void *owner, uint32_t len, const struct st_stateid *sid)
{
	return open_make(st, f, c, NULL, owner, len, sid);
}

struct st_open *st_deleg_new(struct st *st, struct st_file *f, struct st_client *c, uint32_t type,
			     bool times, const uint8_t *fh, uint32_t fhlen)
{
	struct st_deleg *dg = calloc(1, sizeof(*dg));
	struct st_open *o = dg ? open_make(st, f, c, dg, NULL, 0, NULL) : NULL;

	if (!o) {
		free(dg);
		return NULL;
	}
	o->o_sid.seqid = 1;
	o->o_access =
		type == OPEN_DELEGATE_WRITE ? OPEN4_SHARE_ACCESS_BOTH : OPEN4_SHARE_ACCESS_READ;
	dg->dg_type = type;
	dg->dg_times = times;
	dg->dg_given_ns = st_now_ns(st);
	memcpy(dg->dg_fh, fh, fhlen);
	dg->dg_fhlen = fhlen;
	atomic_fetch_add(st_file_watch_of(f->f_ino), 1);
	metric_add(st->st_deleg_given[type == OPEN_DELEGATE_WRITE], 1);
	return o;
}

bool st_open_by_user(struct st_open *o, uint32_t uid, uint32_t access)
{
	struct st_user *u = &o->o_user;

	while (u && u->u_access && u->u_uid != uid)
		u = u == &o->o_user ? o->o_users : u->u_next;
	if (!u) {
		u = calloc(1, sizeof(*u));
		if (!u)
			return false;
		u->u_next = o->o_users;
		o->o_users = u;
		st_count(o->o_client, ST_N_OPENS, 1);
	}
	u->u_uid = uid;
	u->u_access |= access;
	return true;
}

static void users_free(struct st_open *o)
{
	while (o->o_users) {
		struct st_user *u = o->o_users;

		o->o_users = u->u_next;
		free(u);
		st_count(o->o_client, ST_N_OPENS, -1);
	}
}

/* o_access counts as well, because an OPEN_DOWNGRADE takes rights from all users of the open. */
static bool opened_for(const struct st_open *o, uint32_t uid, uint32_t access)
{
	const struct st_user *u = &o->o_user;

	if (!(o->o_access & access))
		return false;
	while (u && !o->o_deleg && !(u->u_uid == uid && (u->u_access & access)))
		u = u == &o->o_user ? o->o_users : u->u_next;
	return u;
}

bool st_file_opened(const struct st_file *f, const struct st_client *c, uint32_t uid,
		    uint32_t access)
{
	const struct st_open *o = f->f_opens;

	while (o && !(o->o_client == c && opened_for(o, uid, access)))
		o = o->o_fnext;
	return o;
}

static void st_file_waits_check(struct st_file *f);

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
	st_table_del(st, f->f_ino, &o->o_link);
	users_free(o);
	st_open_unlist(o);
	*o->o_fprev = o->o_fnext;
	if (o->o_fnext)
		o->o_fnext->o_fprev = o->o_fprev;
	if (dg) {
		if (dg->dg_recalled)
			atomic_fetch_sub(&c->cl_nrecalled, 1);
		st_file_unwatch(f->f_ino);
		st_asks_fail(dg);
		free(dg);
	}
	free(o);
	if (dg)
		st_file_waits_check(f);
	/* a client that closed the file does not repeat its partial write */
	if (f->f_npartials && !opened_by(f, c))
		st_partial_lost(st, c, f);
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
	for (struct hash_link *l = st_first_by_sid(st, sid, ST_LAYOUT); l; l = hash_next(l)) {
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
	st_sid_make(st, f->f_ino, ST_SID_LAYOUT, &l->l_sid);
	l->l_sid.seqid = 0;
	if (st_add_by_sid(st, f->f_ino, &l->l_sid, ST_LAYOUT, &l->l_link)) {
		free(l);
		return NULL;
	}
	l->l_client = c;
	l->l_file = f;
	st_layout_list(l);
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

static unsigned wait_count(const struct st_file *f, const struct st_wait *w)
{
	unsigned n = 0;

	for (struct st_open *o = w->w_delegs ? f->f_opens : NULL; o; o = o->o_fnext)
		n += st_deleg_conflicts(o, w->w_except, w->w_access, w->w_deny);
	for (struct st_layout *l = !w->w_delegs ? f->f_layouts : NULL; l; l = l->l_fnext)
		n += wait_matches(w, l);
	return n;
}

static void st_file_wait_unlink(struct st_file *f, struct st_wait *w)
{
	struct st_wait **p = &f->f_waits;

	while (*p != w)
		p = &(*p)->w_next;
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
	uint64_t ino = w->w_ino, now = st_now_ns(st);
	/* The timer fired early because the process stood still: answers that the holders sent
	 * meanwhile are still in the sockets. */
	bool early = now + 1000000 < w->w_until_ns, mine;
	struct st_file *f;

	st_file_lock(st, ino);
	mine = !w->w_done && !early;
	if (!w->w_done && early)
		loop_timer_start(w->w_loop, t, (uint32_t)((w->w_until_ns - now) / 1000000) + 1);
	if (mine) {
		f = st_file_get(st, ino, false); /* the wait keeps the file in memory */
		w->w_done = true;
		w->w_left = wait_count(f, w);
		st_file_wait_unlink(f, w);
		st_file_put(st, f);
	}
	st_file_unlock(st, ino);
	if (mine) /* else wait_finish is on its way to this loop */
		w->w_then(w, w->w_left);
}

static void st_file_waits_check(struct st_file *f)
{
	for (struct st_wait *w = f->f_waits, *next; w; w = next) {
		next = w->w_next;
		if (wait_count(f, w))
			continue;
		w->w_done = true;
		w->w_left = 0;
		st_file_wait_unlink(f, w);
		w->w_msg.m_run = wait_finish;
		loop_post(w->w_loop, &w->w_msg);
	}
}

void st_layout_free(struct st *st, struct st_layout *l)
{
	struct st_file *f = l->l_file;

	st_table_del(st, f->f_ino, &l->l_link);
	st_layout_unlist(l);
	*l->l_fprev = l->l_fnext;
	if (l->l_fnext)
		l->l_fnext->l_fprev = l->l_fprev;
	free(l);
	st_file_waits_check(f);
	st_file_put(st, f);
}

void st_layout_drop(struct st *st, struct st_layout *l, uint32_t iomode)
{
	l->l_iomode &= ~iomode;
	if (!l->l_iomode)
		st_layout_free(st, l);
	else
		st_file_waits_check(l->l_file);
}

/* All locked: adds the wait, which ends at the deadline at the latest. */
static void wait_begin(struct st_file *f, struct st_wait *w, bool live, uint32_t deadline_ms)
{
	w->w_until_ns = st_now_ns(w->w_st) + (live ? deadline_ms : 0) * UINT64_C(1000000);
	w->w_next = f->f_waits;
	f->f_waits = w;
	/* There is no wait for clients whose leases have all run out. */
	loop_timer_start(w->w_loop, &w->w_timer, live ? deadline_ms : 1);
}

/* Recalls what the wait is for. Returns true when the lease of one of the holders has not run
 * out. */
static bool wait_recall(struct st *st, struct st_file *f, const struct st_wait *w)
{
	bool live = false;

	for (struct st_layout *l = w->w_delegs ? NULL : f->f_layouts; l; l = l->l_fnext) {
		if (!wait_matches(w, l))
			continue;
		live |= !st_lease_expired(st, l->l_client);
		st_recall_queue(st, l);
	}
	for (struct st_open *o = w->w_delegs ? f->f_opens : NULL; o; o = o->o_fnext) {
		if (!st_deleg_conflicts(o, w->w_except, w->w_access, w->w_deny))
			continue;
		live |= !st_lease_expired(st, o->o_client);
		st_deleg_recall(st, o);
	}
	if (w->w_delegs)
		st_heat_conflict(st, f->f_ino);
	return live;
}

static unsigned st_file_recall(struct st *st, struct st_wait *w, uint32_t deadline_ms)
{
	struct st_work k = {0};
	struct st_file *f;
	unsigned n;

	w->w_st = st;
	w->w_done = false;
	w->w_timer.t_fire = wait_deadline;
	do {
		st_work_lock(&k, st, w->w_ino);
		f = st_file_get(st, w->w_ino, false);
		n = f ? wait_count(f, w) : 0;
		if (n && st_needs_all())
			wait_begin(f, w, wait_recall(st, f, w), deadline_ms);
	} while (st_work_again(&k));
	return n;
}

unsigned st_recall_file(struct st *st, uint64_t ino, struct st_client *except, bool rw_only,
			struct loop *loop, uint32_t deadline_ms, struct st_wait *w)
{
	w->w_ino = ino;
	w->w_except = except;
	w->w_rw_only = rw_only;
	w->w_delegs = false;
	w->w_loop = loop;
	return st_file_recall(st, w, deadline_ms);
}

unsigned st_recall_delegs(struct st *st, uint64_t ino, struct st_client *except, uint32_t access,
			  uint32_t deny, struct loop *loop, uint32_t deadline_ms, struct st_wait *w)
{
	w->w_ino = ino;
	w->w_except = except;
	w->w_delegs = true;
	w->w_access = access;
	w->w_deny = deny;
	w->w_loop = loop;
	return st_file_recall(st, w, deadline_ms);
}

void st_revoke_file(struct st *st, uint64_t ino, struct st_client *except, bool rw_only)
{
	struct st_file *f;

	st_file_lock(st, ino);
	f = st_file_get(st, ino, false);
	for (struct st_layout *l = f ? f->f_layouts : NULL, *next; l; l = next) {
		next = l->l_fnext;
		if (l->l_client == except || (rw_only && !(l->l_iomode & LAYOUTIOMODE4_RW)))
			continue;
		atomic_fetch_or(&l->l_client->cl_revoked, SEQ4_STATUS_RECALLABLE_STATE_REVOKED);
		metric_add(st->st_revoked, 1);
		st_layout_free(st, l);
	}
	st_file_unlock(st, ino);
}
