/* SPDX-License-Identifier: Apache-2.0 */
/* st_deleg.c - delegations: which client has one, recall, revocation, CB_GETATTR (RFC 8881 chapter
 * 10, sections 20.1, 20.2 and 20.6; RFC 9754). The caller holds the file's lock, or the lock of
 * all. Functions that call a client back or walk over its delegations need the lock of all. */
#include "mds/state/st.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/metrics.h"
#include <errno.h>

#define REVOKED_MAX 1024u /* stateids kept of a client that does not free them */
#define WASTED_NS   1000000000ull
/* A client that denies so many times, over a second, that it has the delegation does not have
 * it. */
#define UNKNOWN_TRIES 20u

struct st_open *st_deleg_of(struct st_file *f, const struct st_client *c)
{
	for (struct st_open *o = f->f_opens; o; o = o->o_fnext) {
		if (o->o_deleg && o->o_client == c)
			return o;
	}
	return NULL;
}

bool st_deleg_conflicts(const struct st_open *o, const struct st_client *client, uint32_t access,
			uint32_t deny)
{
	if (!o->o_deleg || o->o_client == client)
		return false;
	return o->o_deleg->dg_type == OPEN_DELEGATE_WRITE || (access & OPEN4_SHARE_ACCESS_WRITE) ||
	       (deny & OPEN4_SHARE_ACCESS_READ);
}

bool st_file_deleg_conflict(const struct st_file *f, const struct st_client *client,
			    uint32_t access, uint32_t deny)
{
	for (const struct st_open *o = f->f_opens; o; o = o->o_fnext) {
		if (st_deleg_conflicts(o, client, access, deny))
			return true;
	}
	return false;
}

/* ---- CB_RECALL (section 20.2) ---- */

static struct st_open *deleg_find(struct st *st, const struct st_stateid *sid)
{
	struct st_open *o = st_open_find(st, sid);

	return o && o->o_deleg ? o : NULL;
}

static void st_deleg_recall_encode(const struct st_cb *cb, struct xdr_out *x)
{
	xdr_put_u32(x, cb->cb_sid.seqid);
	xdr_put_fixed(x, cb->cb_sid.other, NFS4_OTHER_SIZE);
	/* truncate: false, since the holder's data may matter */
	xdr_put_bool(x, false);
	xdr_put_opaque(x, cb->cb_fh, cb->cb_fhlen);
}

static struct st_grants *st_deleg_recall_grants(struct st *st, const struct st_cb *cb)
{
	struct st_open *o = deleg_find(st, &cb->cb_sid);

	return o ? &o->o_deleg->dg_grants : NULL;
}

static bool st_deleg_recall_done(struct st *st, struct st_cb *cb, int64_t status,
				 struct xdr_in *res)
{
	struct st_open *o = deleg_find(st, &cb->cb_sid);

	(void)res;
	if (!o || status == NFS4_OK)
		return false;
	/* The client may not have the reply that carries the delegation yet (section 2.10.6.3). A
	 * client that has that reply, and still says that it has no such delegation, never took
	 * it. */
	if ((status == NFS4ERR_BAD_STATEID || status == NFS4ERR_BADHANDLE) &&
	    cb->cb_tries >= UNKNOWN_TRIES && !cb->cb_referred &&
	    st_grants_seen(st, &o->o_deleg->dg_grants)) {
		st->st_orphaned |= o->o_file->f_orphan;
		st_open_free(st, o);
		return false;
	}
	return true;
}

static void st_deleg_recall_lost(struct st *st, struct st_cb *cb)
{
	struct st_open *o = deleg_find(st, &cb->cb_sid);

	if (!o)
		return;
	o->o_deleg->dg_queued = false;
	st_deleg_recall(st, o);
}

static const struct st_cb_kind recall_kind = {.k_op = OP_CB_RECALL,
					      .k_metric = ST_CB_RECALL,
					      .k_encode = st_deleg_recall_encode,
					      .k_done = st_deleg_recall_done,
					      .k_lost = st_deleg_recall_lost,
					      .k_grants = st_deleg_recall_grants};

void st_deleg_recall(struct st *st, struct st_open *o)
{
	struct st_deleg *dg = o->o_deleg;
	struct st_session *s;
	struct st_cb *cb;

	if (dg->dg_queued)
		return;
	if (!dg->dg_recalled && st_since(dg->dg_given_ns, st_now_ns(st)) < WASTED_NS)
		metric_add(st->st_deleg_wasted, 1);
	if (!dg->dg_recalled) {
		dg->dg_recalled_ns = st_now_ns(st);
		atomic_fetch_add(&o->o_client->cl_nrecalled, 1);
	}
	dg->dg_recalled = true;
	cb = st_cb_new(o->o_client, &recall_kind, dg->dg_fh, dg->dg_fhlen, &s);
	if (!cb) {
		/* The client's next session carries the recall, or the deadline ends the wait. */
		o->o_client->cl_recalls_wait = true;
		return;
	}
	dg->dg_queued = true;
	cb->cb_sid = o->o_sid;
	st_cb_queue(st, s, cb);
}

void st_deleg_recall_file(struct st *st, struct st_file *f, const struct st_client *client,
			  uint32_t access, uint32_t deny)
{
	for (struct st_open *o = f->f_opens; o; o = o->o_fnext) {
		if (!st_deleg_conflicts(o, client, access, deny))
			continue;
		st_deleg_recall(st, o);
		st_heat_conflict(st, f->f_ino);
	}
}

/* ---- revocation ---- */

bool st_revoked_find(const struct st_client *c, const struct st_stateid *sid)
{
	const struct st_revoked *v = c->cl_dead_sids;

	while (v && memcmp(v->v_sid.other, sid->other, NFS4_OTHER_SIZE) != 0)
		v = v->v_next;
	return v;
}

void st_revoked_free(struct st_client *c, const struct st_stateid *sid)
{
	struct st_revoked **p = &c->cl_dead_sids, *v;

	while ((v = *p) && memcmp(v->v_sid.other, sid->other, NFS4_OTHER_SIZE) != 0)
		p = &v->v_next;
	if (!v)
		return;
	*p = v->v_next;
	atomic_fetch_sub(&c->cl_nrevoked, 1);
	free(v);
}

/* When REVOKED_MAX stateids are kept, or memory is short, the stateid is a bad one
 * (NFS4ERR_BAD_STATEID) from now on. */
static void revoked_note(struct st_client *c, const struct st_stateid *sid)
{
	struct st_revoked *v =
		atomic_load(&c->cl_nrevoked) < REVOKED_MAX ? malloc(sizeof(*v)) : NULL;

	if (!v)
		return;
	v->v_sid = *sid;
	v->v_next = c->cl_dead_sids;
	c->cl_dead_sids = v;
	atomic_fetch_add(&c->cl_nrevoked, 1);
}

static bool is_overdue(struct st *st, const struct st_open *o)
{
	return o->o_deleg && o->o_deleg->dg_recalled &&
	       st_since(o->o_deleg->dg_recalled_ns, st_now_ns(st)) > st->st_recall_ms * 1000000ull;
}

/* Returns true when it was a write delegation. */
static bool deleg_revoke(struct st *st, struct st_open *o)
{
	bool wrote = o->o_deleg->dg_type == OPEN_DELEGATE_WRITE;

	revoked_note(o->o_client, &o->o_sid);
	for (const struct st_lock *k = o->o_locks; k; k = k->k_onext)
		revoked_note(o->o_client, &k->k_sid);
	metric_add(st->st_deleg_revoked, 1);
	st->st_orphaned |= o->o_file->f_orphan;
	st_open_free(st, o);
	return wrote;
}

/* Revokes the file's overdue delegations, or else the delegations that conflict with such an
 * open. */
static bool deleg_revoke_some(struct st *st, uint64_t ino, bool overdue,
			      const struct st_client *client, uint32_t access, uint32_t deny)
{
	struct st_file *f = st_file_get(st, ino, false);
	bool wrote = false;

	if (!f)
		return false;
	f->f_pins++;
	for (struct st_open *o = f->f_opens, *next; o; o = next) {
		next = o->o_fnext;
		if (overdue ? is_overdue(st, o) : st_deleg_conflicts(o, client, access, deny))
			wrote |= deleg_revoke(st, o);
	}
	f->f_pins--;
	st_file_put(st, f);
	return wrote;
}

bool st_deleg_revoke_overdue(struct st *st, uint64_t ino)
{
	return deleg_revoke_some(st, ino, true, NULL, 0, 0);
}

bool st_deleg_revoke_file(struct st *st, uint64_t ino, const struct st_client *client,
			  uint32_t access, uint32_t deny)
{
	return deleg_revoke_some(st, ino, false, client, access, deny);
}

unsigned st_deleg_overdue(struct st *st, const struct st_client *c, uint64_t *ino, unsigned max)
{
	unsigned n = 0;

	for (const struct st_open *o = atomic_load(&c->cl_nrecalled) ? st_open_next(c, NULL) : NULL;
	     o && n < max; o = st_open_next(c, o)) {
		if (is_overdue(st, o))
			ino[n++] = o->o_file->f_ino;
	}
	return n;
}

/* ---- CB_GETATTR (section 20.1) ---- */

static void st_deleg_ask_run(struct loop_msg *m)
{
	struct st_deleg_query *a = hash_entry(m, struct st_deleg_query, dq_msg);

	a->dq_then(a);
}

static void asks_end(struct st_deleg *dg, const struct st_deleg_query *answer)
{
	while (dg->dg_asks) {
		struct st_deleg_query *a = dg->dg_asks;

		dg->dg_asks = a->dq_next;
		a->dq_err = answer->dq_err;
		a->dq_modified = answer->dq_modified;
		a->dq_times = answer->dq_times;
		a->dq_size = answer->dq_size;
		a->dq_atime = answer->dq_atime;
		a->dq_mtime = answer->dq_mtime;
		a->dq_msg.m_run = st_deleg_ask_run;
		loop_post(a->dq_loop, &a->dq_msg);
	}
	dg->dg_asking = false;
}

void st_asks_fail(struct st_deleg *dg)
{
	asks_end(dg, &(struct st_deleg_query){.dq_err = -EIO});
}

#define ASK_WORD0 (1u << FATTR4_CHANGE | 1u << FATTR4_SIZE)
#define ASK_WORD2 (1u << (FATTR4_TIME_DELEG_ACCESS - 64) | 1u << (FATTR4_TIME_DELEG_MODIFY - 64))

static void ask_encode(const struct st_cb *cb, struct xdr_out *x)
{
	bool times = cb->cb_flag;

	xdr_put_opaque(x, cb->cb_fh, cb->cb_fhlen);
	xdr_put_u32(x, times ? 3 : 1);
	xdr_put_u32(x, ASK_WORD0);
	if (times) {
		xdr_put_u32(x, 0);
		xdr_put_u32(x, ASK_WORD2);
	}
}

static bool st_deleg_get_time(struct xdr_in *x, struct ns_time *t)
{
	t->t_sec = (int64_t)xdr_get_u64(x);
	t->t_nsec = xdr_get_u32(x);
	return t->t_nsec < 1000000000;
}

bool st_ask_decode(struct xdr_in *x, uint64_t given, struct st_deleg_query *a)
{
	uint32_t n = xdr_get_u32(x), w[3] = {0}, len;
	uint64_t change;

	if (n > 8)
		return false;
	for (uint32_t i = 0; i < n; i++) {
		uint32_t v = xdr_get_u32(x);

		if (i < 3)
			w[i] = v;
		else if (v)
			return false;
	}
	len = xdr_get_u32(x);
	if (x->bad || w[0] != ASK_WORD0 || w[1] || (w[2] && w[2] != ASK_WORD2) ||
	    len != 16u + (w[2] ? 24 : 0))
		return false;
	change = xdr_get_u64(x);
	a->dq_size = xdr_get_u64(x);
	a->dq_modified = change != given;
	a->dq_times = w[2];
	if (a->dq_times &&
	    (!st_deleg_get_time(x, &a->dq_atime) || !st_deleg_get_time(x, &a->dq_mtime)))
		return false;
	return !x->bad;
}

static bool st_deleg_ask_done(struct st *st, struct st_cb *cb, int64_t status, struct xdr_in *res)
{
	struct st_open *o = deleg_find(st, &cb->cb_sid);
	struct st_deleg_query a = {0};

	if (!o)
		return false;
	if (status != NFS4_OK || !st_ask_decode(res, o->o_deleg->dg_change, &a))
		a.dq_err = -EIO;
	asks_end(o->o_deleg, &a);
	return false;
}

static void ask_lost(struct st *st, struct st_cb *cb)
{
	struct st_open *o = deleg_find(st, &cb->cb_sid);

	if (o)
		st_asks_fail(o->o_deleg);
}

static const struct st_cb_kind ask_kind = {.k_op = OP_CB_GETATTR,
					   .k_metric = ST_CB_GETATTR,
					   .k_brief = true,
					   .k_encode = ask_encode,
					   .k_done = st_deleg_ask_done,
					   .k_lost = ask_lost};

void st_deleg_ask(struct st *st, struct st_open *o, struct st_deleg_query *a)
{
	struct st_deleg *dg = o->o_deleg;
	struct st_session *s;
	struct st_cb *cb;

	a->dq_next = dg->dg_asks;
	dg->dg_asks = a;
	if (dg->dg_asking)
		return;
	cb = st_lease_expired(st, o->o_client)
		     ? NULL
		     : st_cb_new(o->o_client, &ask_kind, dg->dg_fh, dg->dg_fhlen, &s);
	if (!cb || !atomic_load(&s->se_cb_conn)) { /* no connection to the client now */
		free(cb);
		st_asks_fail(dg);
		return;
	}
	dg->dg_asking = true;
	cb->cb_sid = o->o_sid;
	cb->cb_flag = dg->dg_times;
	st_cb_queue(st, s, cb);
}

/* ---- recent opens and conflicts of files ---- */

struct st_heat {
	uint64_t h_ino;
	uint32_t h_client, h_opens;
	uint32_t h_seen, h_conflict; /* tenths of a second; 0: never */
};

static uint32_t now_tenths(void)
{
	return (uint32_t)(clock_mono_ns() / 100000000u) + 1;
}

int st_heat_new(struct st *st)
{
	st->st_heat = calloc(ST_SHARDS, sizeof(*st->st_heat));
	return st->st_heat ? 0 : -1;
}

/* An entry belongs to the files of one shard and is used under that shard's lock. Files that were
 * created one after the other have entries that are far apart. */
static struct st_heat *entry_of(const struct st *st, uint64_t ino)
{
	return &st->st_heat[ino % 256 * 256 + ino / 256 % 256];
}

static struct st_heat *st_deleg_heat_of(struct st *st, uint64_t ino)
{
	struct st_heat *h = entry_of(st, ino);

	if (h->h_ino != ino)
		*h = (struct st_heat){.h_ino = ino};
	return h;
}

bool st_heat_contended(const struct st *st, uint64_t ino)
{
	const struct st_heat *h = entry_of(st, ino);

	return h->h_ino == ino && h->h_conflict &&
	       now_tenths() - h->h_conflict <= st->st_lease_ms / 100;
}

void st_heat_conflict(struct st *st, uint64_t ino)
{
	st_deleg_heat_of(st, ino)->h_conflict = now_tenths();
}

unsigned st_heat_opened(struct st *st, uint64_t ino, const struct st_client *c, bool write)
{
	struct st_heat *h = st_deleg_heat_of(st, ino);
	uint32_t now = now_tenths(), who = c->cl_number * 2 + write;

	if (h->h_client != who || now - h->h_seen > st->st_lease_ms / 100)
		h->h_opens = 0;
	h->h_client = who;
	h->h_seen = now;
	return ++h->h_opens;
}

/* ---- CB_RECALL_ANY (section 20.6) ---- */

struct thin {
	uint64_t client;
	uint32_t keep;
};

static void thin_encode(const struct st_cb *cb, struct xdr_out *x)
{
	const struct thin *t = cb->cb_arg;

	xdr_put_u32(x, t->keep);
	xdr_put_u32(x, 1);
	xdr_put_u32(x, 1u << RCA4_TYPE_MASK_RDATA_DLG | 1u << RCA4_TYPE_MASK_WDATA_DLG);
}

static void thin_lost(struct st *st, struct st_cb *cb)
{
	const struct thin *t = cb->cb_arg;
	struct st_client *c = st_client_get(st, t->client);

	if (c)
		c->cl_thinned = false;
}

static bool thin_done(struct st *st, struct st_cb *cb, int64_t status, struct xdr_in *res)
{
	(void)status;
	(void)res;
	thin_lost(st, cb);
	return false;
}

static const struct st_cb_kind thin_kind = {.k_op = OP_CB_RECALL_ANY,
					    .k_metric = ST_CB_RECALL_ANY,
					    .k_encode = thin_encode,
					    .k_done = thin_done,
					    .k_lost = thin_lost};

/* True from three quarters of the limit on. */
bool st_deleg_many(const struct st *st)
{
	uint32_t n = atomic_load(&st->st_counts.ct_n[ST_N_DELEGS]);

	return n && n >= st->st_max_delegs - st->st_max_delegs / 4;
}

/* Asks each client that holds its share or more to keep half of what it has. */
void st_deleg_thin(struct st *st)
{
	size_t share;

	if (!st_deleg_many(st) || !st->st_clients.h_count)
		return;
	share = st_number(st, ST_N_DELEGS) / st->st_clients.h_count;
	hash_each(&st->st_clients, i, l, next)
	{
		struct st_client *c = hash_entry(l, struct st_client, cl_link);
		uint32_t has = st_client_number(c, ST_N_DELEGS);
		struct st_session *s;
		struct thin *t;
		struct st_cb *cb;

		if (c->cl_thinned || has < 2 || has < share)
			continue;
		t = malloc(sizeof(*t));
		cb = t ? st_cb_new(c, &thin_kind, NULL, 0, &s) : NULL;
		if (!cb) {
			free(t);
			continue;
		}
		*t = (struct thin){c->cl_id, has / 2};
		cb->cb_arg = t;
		c->cl_thinned = true;
		st_cb_queue(st, s, cb);
	}
}
