/* SPDX-License-Identifier: Apache-2.0 */
/* LOCK, LOCKT, LOCKU (RFC 8881 sections 18.10 to 18.12). */
#include "mds/nfs4/op.h"
#include "mds/nfs4/credentials.h"
#include "mds/nfs4/op_state.h"
#include <errno.h>

struct lock {
	uint32_t type;
	uint64_t off, len, first, last;
	bool reclaim, is_new, waits;
	struct st_stateid sid;
	const uint8_t *owner;
	uint32_t owner_len;
	bool dead;	    /* the conflicting lock's client has an expired lease */
	enum op_scope full; /* op_full */
};

static bool lock_writes(const struct lock *g)
{
	return g->type == WRITE_LT || g->type == WRITEW_LT;
}

/* Section 18.10.3: a length of all ones reaches to the end of every file. A range beyond the
 * largest offset is INVAL. */
static nfsstat4 lock_range(struct lock *g)
{
	if (g->len == 0 || (g->len != NFS4_UINT64_MAX && g->len > NFS4_UINT64_MAX - g->off))
		return NFS4ERR_INVAL;
	g->first = g->off;
	g->last = g->len == NFS4_UINT64_MAX ? UINT64_MAX : g->off + g->len - 1;
	return NFS4_OK;
}

static bool get_lock_type(struct xdr_in *x, struct lock *g)
{
	g->type = xdr_get_u32(x);
	return g->type >= READ_LT && g->type <= WRITEW_LT;
}

/* The checks that LOCK, LOCKT and LOCKU make before they look at locks. */
static nfsstat4 lock_begin(struct compound *c, struct lock *g)
{
	struct ns_inode i;
	nfsstat4 st = lock_range(g);

	if (!st)
		st = op_resolve_sid(c, &g->sid);
	if (!st)
		st = op_cur_inode(c, &i);
	return st ? st : op_regular(&i);
}

static nfsstat4 put_denied(struct compound *c, const struct st_range *r, const struct st_lock *k)
{
	const struct st_client *holder = k->k_open->o_client;
	struct xdr_out *x = c->out;

	xdr_put_u64(x, r->r_first);
	xdr_put_u64(x, r->r_last == UINT64_MAX ? NFS4_UINT64_MAX : r->r_last - r->r_first + 1);
	xdr_put_u32(x, r->r_write ? WRITE_LT : READ_LT);
	/* A clientid is as good as a password: another client gets another number. */
	xdr_put_u64(x, holder == c->client ? holder->cl_id
					   : st_id_other(&c->m->m_st->st_ids, holder->cl_id));
	xdr_put_opaque(x, k->k_owner, k->k_owner_len);
	c->keep_body = true;
	return NFS4ERR_DENIED;
}

/* locked: OK where no other lock-owner's lock conflicts. Otherwise DENIED with that lock, or DELAY
 * while a client with an expired lease is evicted. */
static nfsstat4 lock_conflict(struct compound *c, struct lock *g, struct st_file *f)
{
	struct st *st = c->m->m_st;
	struct st_lock *k = NULL;
	const struct st_range *r = st_lock_conflict(st, f, c->client, g->owner, g->owner_len,
						    g->first, g->last, lock_writes(g), &k);

	if (!r)
		return NFS4_OK;
	if (!st_lease_expired(st, k->k_open->o_client)) {
		if (g->waits) {
			uint8_t fh[OP_FH_LEN];

			op_fh_make(c->m, op_export(c), c->cur, fh);
			st_wait_for_lock(f, c->client, g->owner, g->owner_len, g->first, g->last,
					 lock_writes(g), fh, sizeof(fh));
		}
		return g->reclaim ? NFS4ERR_RECLAIM_CONFLICT : put_denied(c, r, k);
	}
	g->dead = true;
	return NFS4ERR_DELAY;
}

/* Puts the lock stateid with its next seqid. */
static void put_lock_sid(struct compound *c, struct st_lock *k)
{
	st_sid_bump(&k->k_sid);
	op_put_stateid(c->out, &k->k_sid);
	op_set_current_sid(c, &k->k_sid);
}

/* locked: finds this client's lock state on the current file. */
static nfsstat4 lock_by_sid(struct compound *c, const struct st_stateid *sid, struct st_lock **out)
{
	*out = st_lock_find(c->m->m_st, sid);
	if (!*out || (*out)->k_open->o_client != c->client ||
	    (*out)->k_open->o_file->f_ino != c->cur)
		return NFS4ERR_BAD_STATEID;
	return op_seqid_status(sid, (*out)->k_sid.seqid);
}

/* locked: finds the lock-owner's state on the file; LOCK makes it with the owner's first lock. */
static nfsstat4 lock_state(struct compound *c, struct lock *g, struct st_lock **out,
			   struct st_open **open)
{
	struct st *st = c->m->m_st;
	nfsstat4 status;

	if (!g->is_new) {
		status = lock_by_sid(c, &g->sid, out);
		if (status)
			return status;
		g->owner = (*out)->k_owner;
		g->owner_len = (*out)->k_owner_len;
		*open = (*out)->k_open;
		return NFS4_OK;
	}
	*open = st_open_find(st, &g->sid);
	if (!*open || (*open)->o_client != c->client || (*open)->o_file->f_ino != c->cur)
		return NFS4ERR_BAD_STATEID;
	*out = st_lock_by_owner((*open)->o_file, c->client, g->owner, g->owner_len);
	return op_seqid_status(&g->sid, (*open)->o_sid.seqid);
}

/* locked: is a limit reached? The holder of a recalled delegation sends the locks that it kept
 * under it before it returns the delegation (section 10.4.5): there only the client's own limit
 * counts. */
static bool lock_full(struct compound *c, struct lock *g, struct st_file *f, enum st_count what)
{
	const uint32_t *most = c->m->m_limits.lm_locks;
	struct st_open *d = st_deleg_of(f, c->client);

	if (g->reclaim || (d && d->o_deleg->dg_recalled))
		return op_full_again(c, what, OP_LIMIT_LOCKS, most);
	return op_full(c, what, OP_LIMIT_LOCKS, most, &g->full);
}

/* locked */
static nfsstat4 lock_set(struct compound *c, struct lock *g)
{
	struct st *st = c->m->m_st;
	struct st_lock *k = NULL;
	struct st_open *o;
	nfsstat4 status = lock_state(c, g, &k, &o);

	if (status)
		return status;
	status = g->reclaim	    ? st_reclaim_check(st, c->client)
		 : op_lock_grace(c) ? NFS4ERR_GRACE
				    : NFS4_OK;
	if (status)
		return status;
	if (o->o_file->f_waiters && !st_needs_all()) /* waiting clients may get a callback */
		return NFS4ERR_DELAY;
	if (!(o->o_access & (lock_writes(g) ? OPEN4_SHARE_ACCESS_WRITE : OPEN4_SHARE_ACCESS_READ)))
		return NFS4ERR_OPENMODE;
	status = lock_conflict(c, g, o->o_file);
	if (status)
		return status;
	if (lock_full(c, g, o->o_file, ST_N_RANGES) ||
	    (!k && lock_full(c, g, o->o_file, ST_N_LOCKS)))
		return NFS4ERR_DELAY;
	if (!k)
		k = st_lock_new(st, o, g->owner, g->owner_len);
	if (!k)
		return NFS4ERR_DELAY;
	if (st_lock_set(k, g->first, g->last, lock_writes(g))) {
		if (!k->k_ranges && !k->k_sid.seqid) /* made just now */
			st_lock_free(st, k);
		return NFS4ERR_DELAY;
	}
	if (!lock_writes(g)) /* it may replace a lock for writing */
		op_locks_gone(c->m, o->o_file);
	put_lock_sid(c, k);
	return NFS4_OK;
}

nfsstat4 op_lock(struct compound *c)
{
	struct xdr_in *x = c->in;
	struct lock g = {0};
	struct st *st = c->m->m_st;
	bool type_ok = get_lock_type(x, &g);
	struct st_work w = {0};
	nfsstat4 status;

	g.reclaim = xdr_get_bool(x);
	g.waits = g.type == READW_LT || g.type == WRITEW_LT;
	g.off = xdr_get_u64(x);
	g.len = xdr_get_u64(x);
	g.is_new = xdr_get_bool(x);
	if (g.is_new) {
		xdr_get_u32(x); /* open_seqid: unused in 4.1 */
		op_get_stateid(x, &g.sid);
		xdr_get_u32(x); /* lock_seqid */
		xdr_get_u64(x); /* clientid: ignored, the session's counts */
		g.owner = xdr_get_opaque(x, NFS4_OPAQUE_LIMIT, &g.owner_len);
	} else {
		op_get_stateid(x, &g.sid);
		xdr_get_u32(x);
	}
	if (x->bad || !type_ok)
		return NFS4ERR_BADXDR;
	status = lock_begin(c, &g);
	if (status)
		return status;
	do {
		st_work_lock(&w, st, c->cur);
		status = lock_set(c, &g);
	} while (st_work_again(&w));
	op_make_room(c, g.full);
	if (g.dead)
		file_evict_in_way(&c->m->m_file, c->th->mt_loop, c->cur, 0, 0);
	return status;
}

/* A caller that may neither read nor write the file learns nothing of its locks, and recalls no
 * delegation. */
static nfsstat4 may_look(struct compound *c)
{
	struct ns_inode i;
	nfsstat4 status = op_cur_inode(c, &i);

	if (status)
		return status;
	return ns_permission(&i, &c->cred, 4) && ns_permission(&i, &c->cred, 2) ? NFS4ERR_ACCESS
										: NFS4_OK;
}

nfsstat4 op_lockt(struct compound *c)
{
	struct lock g = {0};
	struct st *st = c->m->m_st;
	struct st_file *f;
	bool type_ok = get_lock_type(c->in, &g);
	nfsstat4 status;

	g.off = xdr_get_u64(c->in);
	g.len = xdr_get_u64(c->in);
	xdr_get_u64(c->in);
	g.owner = xdr_get_opaque(c->in, NFS4_OPAQUE_LIMIT, &g.owner_len);
	if (c->in->bad || !type_ok)
		return NFS4ERR_BADXDR;
	status = lock_begin(c, &g);
	if (!status)
		status = may_look(c);
	if (status)
		return status;
	st_file_lock(st, c->cur);
	f = st_file_get(st, c->cur, false);
	status = st_in_grace(st) ? NFS4ERR_GRACE : f ? lock_conflict(c, &g, f) : NFS4_OK;
	st_file_unlock(st, c->cur);
	/* The holder of a delegation keeps locks to itself (section 10.4.2). */
	if (!status &&
	    op_deleg_stands(c, c->cur,
			    lock_writes(&g) ? OPEN4_SHARE_ACCESS_WRITE : OPEN4_SHARE_ACCESS_READ))
		status = NFS4ERR_DELAY;
	if (g.dead)
		file_evict_in_way(&c->m->m_file, c->th->mt_loop, c->cur, 0, 0);
	return status;
}

void op_locks_gone(struct mds *m, struct st_file *f)
{
	st_locks_gone(m->m_st, f);
}

nfsstat4 op_locku(struct compound *c)
{
	struct lock g = {0};
	struct st *st = c->m->m_st;
	struct st_lock *k;
	struct st_work w = {0};
	bool type_ok = get_lock_type(c->in, &g);
	nfsstat4 status;

	xdr_get_u32(c->in); /* seqid: unused in 4.1 */
	op_get_stateid(c->in, &g.sid);
	g.off = xdr_get_u64(c->in);
	g.len = xdr_get_u64(c->in);
	if (c->in->bad || !type_ok)
		return NFS4ERR_BADXDR;
	status = lock_begin(c, &g);
	if (status)
		return status;
	do {
		st_work_lock(&w, st, c->cur);
		status = lock_by_sid(c, &g.sid, &k);
		if (!status && k->k_open->o_file->f_waiters && !st_needs_all())
			continue;
		if (!status && st_lock_clear(k, g.first, g.last))
			status = NFS4ERR_DELAY;
		if (!status) {
			op_locks_gone(c->m, k->k_open->o_file);
			put_lock_sid(c, k);
		}
	} while (st_work_again(&w));
	return status;
}
