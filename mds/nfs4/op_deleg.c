/* SPDX-License-Identifier: Apache-2.0 */
/*
 * op_deleg.c - delegations (RFC 8881 chapter 10, sections 18.6, 18.16 and 18.49; RFC 9754): which
 * client gets one, and what the requests of others do to it.
 *
 *	give		decide (deleg_decide), register (deleg_register), and read from a fresh
 *			snapshot what the holder knows (deleg_baseline)
 *	change		recall what conflicts and wait (op_deleg_clear), commit, and recall what was
 *			given meanwhile (op_deleg_late)
 *	GETATTR		ask the holder of a write delegation for size and times (op_deleg_ask)
 */
#include "base/log.h"
#include "mds/nfs4/op.h"
#include "mds/nfs4/credentials.h"
#include "mds/nfs4/op_attr.h"
#include "mds/nfs4/op_state.h"
#include <errno.h>

/* ---- giving ---- */

static uint32_t why_not(struct op_deleg *d, uint32_t why)
{
	d->dlg_why = why;
	return OPEN_DELEGATE_NONE;
}

/* Does another client's open, layout or delegation conflict with a delegation of this type? */
static bool opens_conflict(const struct st_file *f, const struct st_client *c, uint32_t type)
{
	for (const struct st_open *o = f->f_opens; o; o = o->o_fnext) {
		if (o->o_client == c || o->o_deleg)
			continue;
		if (type == OPEN_DELEGATE_WRITE || (o->o_access & OPEN4_SHARE_ACCESS_WRITE) ||
		    (o->o_deny & OPEN4_SHARE_ACCESS_READ))
			return true;
	}
	/* A layout may outlive the open that it came with. */
	for (const struct st_layout *l = f->f_layouts; l; l = l->l_fnext) {
		if (l->l_client != c &&
		    (type == OPEN_DELEGATE_WRITE || (l->l_iomode & LAYOUTIOMODE4_RW)))
			return true;
	}
	return st_file_deleg_conflict(
		f, c,
		type == OPEN_DELEGATE_WRITE ? OPEN4_SHARE_ACCESS_BOTH : OPEN4_SHARE_ACCESS_READ, 0);
}

static bool op_deleg_has_backchannel(const struct st_client *c)
{
	for (const struct st_session *s = c->cl_sessions; s; s = s->se_next) {
		if (atomic_load(&s->se_cb_conn))
			return true;
	}
	return false;
}

/* The client has the file open for writing too. It then reads the file once, and a delegation for
 * reading does not pay. */
static bool writes_itself(const struct st_file *f, const struct st_client *c)
{
	for (const struct st_open *o = f->f_opens; o; o = o->o_fnext) {
		if (o->o_client == c && !o->o_deleg && (o->o_access & OPEN4_SHARE_ACCESS_WRITE))
			return true;
	}
	return false;
}

/* The type that the client wants. Without a wish, it gets a delegation for writing only when it
 * opens the file for writing repeatedly. */
static uint32_t type_wanted(struct compound *c, const struct st_file *f, uint32_t access,
			    uint32_t want, struct op_deleg *d)
{
	bool write = access & OPEN4_SHARE_ACCESS_WRITE;
	unsigned times = st_heat_opened(c->m->m_st, f->f_ino, c->client, write);

	switch (want & OPEN4_SHARE_ACCESS_WANT_DELEG_MASK) {
	case OPEN4_SHARE_ACCESS_WANT_READ_DELEG:
		return OPEN_DELEGATE_READ;
	case OPEN4_SHARE_ACCESS_WANT_WRITE_DELEG:
		return OPEN_DELEGATE_WRITE;
	case OPEN4_SHARE_ACCESS_WANT_ANY_DELEG:
		return write ? OPEN_DELEGATE_WRITE : OPEN_DELEGATE_READ;
	case OPEN4_SHARE_ACCESS_WANT_NO_DELEG:
		return why_not(d, WND4_NOT_WANTED);
	case OPEN4_SHARE_ACCESS_WANT_CANCEL:
		return why_not(d, WND4_CANCELED);
	}
	if (write)
		return times >= 2 ? OPEN_DELEGATE_WRITE : why_not(d, WND4_RESOURCE);
	return writes_itself(f, c->client) ? why_not(d, WND4_RESOURCE) : OPEN_DELEGATE_READ;
}

static uint32_t plain_type(uint32_t type)
{
	return type == OPEN_DELEGATE_READ_ATTRS_DELEG	 ? OPEN_DELEGATE_READ
	       : type == OPEN_DELEGATE_WRITE_ATTRS_DELEG ? OPEN_DELEGATE_WRITE
							 : type;
}

bool op_deleg_conflicts(const struct st_file *f, const struct st_client *c, uint32_t type)
{
	type = plain_type(type);
	return (type == OPEN_DELEGATE_READ || type == OPEN_DELEGATE_WRITE) &&
	       opens_conflict(f, c, type);
}

/* locked */
static bool delegs_full(const struct compound *c)
{
	struct st *st = c->m->m_st;
	const _Atomic uint32_t *n = &st->st_counts.ct_n[ST_N_DELEGS];

	if (st_has_quota(c->client, ST_N_DELEGS) || atomic_load(n) < st->st_max_delegs)
		return false;
	return !st_quotas_gather(st, NULL, ST_N_DELEGS) || atomic_load(n) >= st->st_max_delegs;
}

/* locked */
static uint32_t deleg_decide(struct compound *c, struct st_file *f, uint32_t access, uint32_t want,
			     struct op_deleg *d)
{
	struct st *st = c->m->m_st;
	uint32_t type = type_wanted(c, f, access, want, d);
	const struct st_open *mine = st_deleg_of(f, c->client);

	if (!type)
		return type;
	if (c->m->m_delegations == OP_DELEG_NONE ||
	    (c->m->m_delegations == OP_DELEG_READ && type == OPEN_DELEGATE_WRITE))
		return why_not(d, type == OPEN_DELEGATE_WRITE ? WND4_WRITE_DELEG_NOT_SUPP_FTYPE
							      : WND4_NOT_SUPP_FTYPE);
	if (!op_exports_stand(c))
		return why_not(d, WND4_CONTENTION);
	if (type == OPEN_DELEGATE_WRITE && c->exp->g_ro)
		return why_not(d, WND4_WRITE_DELEG_NOT_SUPP_FTYPE);
	if (st_in_grace(st) || !op_deleg_has_backchannel(c->client) || delegs_full(c))
		return why_not(d, WND4_RESOURCE);
	if (mine)
		return why_not(d, mine->o_deleg->dg_type < type	  ? WND4_NOT_SUPP_UPGRADE
				  : mine->o_deleg->dg_type > type ? WND4_NOT_SUPP_DOWNGRADE
								  : WND4_RESOURCE);
	/* f_pins: the metadata server is changing the file's data, or queries its size. */
	if (f->f_removing || f->f_orphan || f->f_nexcl || f->f_pins ||
	    opens_conflict(f, c->client, type) || st_heat_contended(st, f->f_ino))
		return why_not(d, WND4_CONTENTION);
	return type;
}

/* locked */
static void deleg_register(struct compound *c, struct st_file *f, uint32_t type, uint32_t want,
			   struct op_deleg *d)
{
	bool times = c->minor >= 2 && c->m->m_deleg_times &&
		     (want & OPEN4_SHARE_ACCESS_WANT_DELEG_TIMESTAMPS);
	uint8_t fh[OP_FH_LEN];
	struct st_open *o;

	op_fh_make(c->m, op_export(c), f->f_ino, fh);
	o = st_deleg_new(c->m->m_st, f, c->client, type, times, fh, OP_FH_LEN);
	if (!o) {
		why_not(d, WND4_RESOURCE);
		return;
	}
	st_granted(c->m->m_st, &o->o_deleg->dg_grants, c->session, c->once_slot, c->replay_seq);
	d->dlg_type = type;
	d->dlg_times = times;
	d->dlg_sid = o->o_sid;
}

/* Gives the delegation its first change attribute and size limit, from a snapshot that is younger
 * than the registration. */
static void deleg_baseline(struct compound *c, uint64_t ino, struct op_deleg *d)
{
	struct st *st = c->m->m_st;
	struct st_work w = {0};
	uint64_t total, avail;
	struct ns_inode i;
	struct st_open *o;
	int err;

	op_txn_stale(c->th);
	err = ns_get(c->m->m_ns, op_txn(c), ino, &i);
	do {
		st_work_lock(&w, st, ino);
		o = st_open_find(st, &d->dlg_sid);
		if (o && !err)
			o->o_deleg->dg_change = i.i_change;
		else if (o && st_may_free(o))
			st_open_free(st, o);
	} while (st_work_again(&w));
	if (err)
		d->dlg_type = why_not(d, WND4_CONTENTION);
	if (d->dlg_type == OPEN_DELEGATE_WRITE) {
		op_space(c->m, &total, &avail);
		d->dlg_limit = i.i_size + avail < OP_MAX_FILE ? i.i_size + avail : OP_MAX_FILE;
	}
}

/* May the user have the delegation? Its stateid admits I/O, so he needs the permission for that.
 * With a write delegation the stock client truncates as the holder, whatever user asks. The
 * truncate would leave set-id bits that it must clear: so none on a file with set-id bits. */
static bool op_deleg_may_have(const struct compound *c, const struct ns_inode *i, uint32_t type)
{
	if (type == OPEN_DELEGATE_WRITE && (i->i_mode & 06000))
		return false;
	return ns_permission(i, &c->cred, type == OPEN_DELEGATE_WRITE ? 6 : 4) == 0;
}

void op_deleg_give(struct compound *c, const struct ns_inode *i, uint32_t access, uint32_t want,
		   struct op_deleg *d)
{
	struct st *st = c->m->m_st;
	uint64_t ino = i->i_ino;
	struct st_file *f;
	uint32_t type;

	*d = (struct op_deleg){.dlg_why = WND4_RESOURCE};
	st_file_lock(st, ino);
	f = st_client_goes(c->client) ? NULL : st_file_get(st, ino, true);
	if (f) {
		type = deleg_decide(c, f, access, want, d);
		if (type && op_deleg_may_have(c, i, type))
			deleg_register(c, f, type, want, d);
		st_file_put(st, f);
	}
	st_file_unlock(st, ino);
	if (d->dlg_type)
		deleg_baseline(c, ino, d);
}

/* CLAIM_PREVIOUS: gives the delegation that the client had before the server's restart, unless
 * another client has reclaimed something that conflicts. */
void op_deleg_reclaim(struct compound *c, const struct ns_inode *i, uint32_t type,
		      struct op_deleg *d)
{
	struct st *st = c->m->m_st;
	uint64_t ino = i->i_ino;
	uint32_t plain = plain_type(type);
	uint32_t want = plain != type ? OPEN4_SHARE_ACCESS_WANT_DELEG_TIMESTAMPS : 0;
	struct st_file *f;

	*d = (struct op_deleg){.dlg_why = WND4_CONTENTION};
	if ((plain != OPEN_DELEGATE_READ && plain != OPEN_DELEGATE_WRITE) ||
	    (plain == OPEN_DELEGATE_WRITE && c->exp->g_ro) ||
	    (i->i_uid != c->cred.cr_uid && !op_deleg_may_have(c, i, plain)))
		return;
	st_file_lock(st, ino);
	f = st_client_goes(c->client) ? NULL : st_file_get(st, ino, true);
	if (f && op_exports_stand(c) && !f->f_pins && !f->f_nexcl && !st_deleg_of(f, c->client) &&
	    !opens_conflict(f, c->client, plain))
		deleg_register(c, f, plain, want, d);
	if (f)
		st_file_put(st, f);
	st_file_unlock(st, ino);
	if (d->dlg_type)
		deleg_baseline(c, ino, d);
}

/* Puts an open_delegation4. told: the client said what it wants, so it gets the reason for none. */
void op_put_deleg(struct xdr_out *x, const struct op_deleg *d, bool told)
{
	if (!d->dlg_type) {
		xdr_put_u32(x, told ? OPEN_DELEGATE_NONE_EXT : OPEN_DELEGATE_NONE);
		if (told) {
			xdr_put_u32(x, d->dlg_why);
			if (d->dlg_why == WND4_CONTENTION || d->dlg_why == WND4_RESOURCE)
				xdr_put_bool(x, false); /* no signal when it is available */
		}
		return;
	}
	xdr_put_u32(x, !d->dlg_times			   ? d->dlg_type
		       : d->dlg_type == OPEN_DELEGATE_READ ? OPEN_DELEGATE_READ_ATTRS_DELEG
							   : OPEN_DELEGATE_WRITE_ATTRS_DELEG);
	op_put_stateid(x, &d->dlg_sid);
	xdr_put_bool(x, false);
	if (d->dlg_type == OPEN_DELEGATE_WRITE) {
		xdr_put_u32(x, NFS_LIMIT_SIZE);
		xdr_put_u64(x, d->dlg_limit);
	}
	/* An ACE that allows nothing: for other users the client sends ACCESS (section 18.16.3). */
	xdr_put_u32(x, 0);
	xdr_put_u32(x, 0);
	xdr_put_u32(x, 0);
	xdr_put_opaque(x, "EVERYONE@", 9);
}

/* ---- recalling what conflicts ---- */

struct clear {
	struct st_wait wait;
	struct compound *c;
	uint64_t ino[2];
	unsigned n, at;
	uint32_t access, deny;
};

static void clear_end(struct clear *j)
{
	struct compound *c = j->c;

	free(j);
	op_wake(c, 0);
}

/* Recalls the conflicting delegations of the next file that has some. False: no file is left. */
static bool clear_next(struct clear *j)
{
	struct compound *c = j->c;

	while (j->at < j->n) {
		if (j->ino[j->at] &&
		    st_recall_delegs(c->m->m_st, j->ino[j->at], c->client, j->access, j->deny,
				     c->th->mt_loop, c->m->m_recall_ms, &j->wait))
			return true;
		j->at++;
	}
	return false;
}

static void clear_fenced(void *arg, int err)
{
	struct clear *j = arg;

	(void)err; /* logged */
	if (!clear_next(j))
		clear_end(j);
}

static void clear_recalled(struct st_wait *w, unsigned left)
{
	struct clear *j = hash_entry(w, struct clear, wait);
	struct compound *c = j->c;
	uint64_t ino = j->ino[j->at];
	bool wrote = false;

	if (left) {
		log_warn("inode %lu: %u delegations were not returned in time: revoked",
			 (unsigned long)ino, left);
		st_all_lock(c->m->m_st);
		wrote = st_deleg_revoke_file(c->m->m_st, ino, c->client, j->access, j->deny);
		st_all_unlock(c->m->m_st);
	}
	/* The holder of a write delegation that was revoked may have opened the file without an
	 * OPEN, and may still write by its layout. */
	if (wrote &&
	    excl_recall_and_fence(&c->m->m_file, c->th->mt_loop, ino, c->client, clear_fenced, j))
		return;
	if (!clear_next(j))
		clear_end(j);
}

bool op_delegs_out(struct compound *c)
{
	return st_others_have(c->client, ST_N_DELEGS);
}

bool op_deleg_clear_begin(struct compound *c, const uint64_t *ino, unsigned n, uint32_t access,
			  uint32_t deny)
{
	struct clear *j;

	if (!op_delegs_out(c))
		return false;
	j = calloc(1, sizeof(*j));
	if (!j)
		log_fatal("out of memory while recalling delegations");
	j->c = c;
	memcpy(j->ino, ino, n * sizeof(*ino));
	j->n = n;
	j->access = access;
	j->deny = deny;
	j->wait.w_then = clear_recalled;
	if (clear_next(j))
		return true;
	free(j);
	return false;
}

nfsstat4 op_deleg_clear(struct compound *c, const uint64_t *ino, unsigned n, uint32_t access,
			uint32_t deny, op_step *next)
{
	return op_deleg_clear_begin(c, ino, n, access, deny) ? op_await_client(c, next)
							     : next(c, 0);
}

bool op_deleg_grace(struct compound *c, uint64_t ino)
{
	struct st *st = c->m->m_st;
	const struct st_file *f;
	struct ns_inode i;
	bool unknown;

	st_file_lock(st, ino);
	unknown = st_in_grace(st);
	f = unknown ? st_file_get(st, ino, false) : NULL;
	for (const struct st_open *o = f ? f->f_opens : NULL; o && unknown; o = o->o_fnext)
		unknown = o->o_client != c->client || !(o->o_access & OPEN4_SHARE_ACCESS_WRITE);
	st_file_unlock(st, ino);
	return unknown && ns_get(c->m->m_ns, op_txn(c), ino, &i) == 0 && i.i_type == NS_REG;
}

bool op_deleg_stands(struct compound *c, uint64_t ino, uint32_t access)
{
	struct st *st = c->m->m_st;
	struct st_work w = {0};
	struct st_file *f;
	bool stands;

	if (!st_watched(ino) || !op_delegs_out(c))
		return false;
	do {
		st_work_lock(&w, st, ino);
		f = st_file_get(st, ino, false);
		stands = f && st_file_deleg_conflict(f, c->client, access, 0);
		if (stands && st_needs_all())
			st_deleg_recall_file(st, f, c->client, access, 0);
	} while (st_work_again(&w));
	return stands;
}

static void overdue_taken_back(void *arg, int err)
{
	(void)arg;
	(void)err; /* logged */
}

void op_deleg_overdue(struct mds *m, struct loop *loop, uint64_t ino)
{
	bool wrote;

	st_all_lock(m->m_st);
	wrote = st_deleg_revoke_overdue(m->m_st, ino);
	st_all_unlock(m->m_st);
	log_warn("inode %lu: a delegation was not returned in time: revoked", (unsigned long)ino);
	if (wrote)
		excl_recall_and_fence(&m->m_file, loop, ino, NULL, overdue_taken_back, NULL);
}

void op_deleg_late(struct compound *c, uint64_t ino)
{
	if (ino)
		op_deleg_stands(c, ino, OPEN4_SHARE_ACCESS_WRITE);
}

/* ---- attributes that a holder knows better (section 10.4.3) ---- */

struct ask {
	struct st_deleg_query a;
	struct kv_op op;
	struct compound *c;
	uint64_t ino;
};

static void ask_end(struct ask *k, int err)
{
	struct compound *c = k->c;

	free(k);
	op_wake(c, err);
}

/* The holder has written: moves change attribute and times, as its writes would have done. */
static int op_deleg_ask_run(struct kv_op *op, struct kv_txn *t)
{
	struct ask *k = hash_entry(op, struct ask, op);
	const struct ns_setattr s = {.s_mask = NS_S_MTIME_NOW};
	struct ns *ns = k->c->m->m_ns;
	struct ns_inode i;

	if (k->a.dq_times)
		return ns_deleg_times(ns, t, k->ino, &k->a.dq_atime, &k->a.dq_mtime,
				      k->a.dq_modified, file_now());
	return ns_setattr(ns, t, k->ino, &s, NULL, file_now(), &i);
}

static void ask_committed(struct kv_op *op, int err)
{
	ask_end(hash_entry(op, struct ask, op), err);
}

static void ask_answered(struct st_deleg_query *a)
{
	struct ask *k = hash_entry(a, struct ask, a);
	struct compound *c = k->c;
	struct ns_inode i = {0};

	if (a->dq_err) { /* no answer: its delegation is recalled, or revoked at the deadline */
		if (op_deleg_clear_begin(c, &k->ino, 1, OPEN4_SHARE_ACCESS_READ, 0))
			free(k);
		else
			ask_end(k, 0);
		return;
	}
	c->told_ino = k->ino;
	c->told_size = a->dq_size < OP_MAX_FILE ? a->dq_size : OP_MAX_FILE;
	op_txn_stale(c->th);
	if (ns_get(c->m->m_ns, op_txn(c), k->ino, &i) == 0)
		a->dq_modified |= i.i_size != a->dq_size;
	if (!a->dq_modified && !(a->dq_times && (ns_time_after(&a->dq_atime, &i.i_atime) ||
						 ns_time_after(&a->dq_mtime, &i.i_mtime)))) {
		ask_end(k, 0);
		return;
	}
	k->op = (struct kv_op){
		.o_run = op_deleg_ask_run, .o_done = ask_committed, .o_loop = c->th->mt_loop};
	op_client_came(c); /* from here on the call waits for the store */
	kv_submit(c->m->m_kv, &k->op);
}

bool op_deleg_ask(struct compound *c, uint64_t ino)
{
	struct st *st = c->m->m_st;
	struct st_open *o = NULL;
	struct st_work w = {0};
	struct st_file *f;
	struct ask *k;

	if (!st_watched(ino) || !op_delegs_out(c))
		return false;
	k = calloc(1, sizeof(*k));
	if (!k)
		return false; /* the caller answers with what is committed */
	k->c = c;
	k->ino = ino;
	k->a.dq_loop = c->th->mt_loop;
	k->a.dq_then = ask_answered;
	do {
		st_work_lock(&w, st, ino);
		f = st_file_get(st, ino, false);
		for (o = f ? f->f_opens : NULL; o; o = o->o_fnext) {
			if (o->o_deleg && o->o_client != c->client &&
			    o->o_deleg->dg_type == OPEN_DELEGATE_WRITE)
				break;
		}
		if (o && st_needs_all())
			st_deleg_ask(st, o, &k->a);
	} while (st_work_again(&w));
	if (!o)
		free(k);
	return o;
}

/* ---- DELEGRETURN ---- */

/* locked: the client's delegation on the current file. */
nfsstat4 op_deleg_by_sid(struct compound *c, const struct st_stateid *sid, struct st_open **out)
{
	struct st_open *o = st_open_find(c->m->m_st, sid);

	if (st_revoked_find(c->client, sid))
		return NFS4ERR_DELEG_REVOKED;
	if (!o || !o->o_deleg || o->o_client != c->client || o->o_file->f_ino != c->cur)
		return NFS4ERR_BAD_STATEID;
	*out = o;
	return op_seqid_status(sid, o->o_sid.seqid);
}

/* locked */
static nfsstat4 deleg_to_return(struct compound *c, const struct st_stateid *sid,
				struct st_open **out)
{
	nfsstat4 status = op_deleg_by_sid(c, sid, out);

	if (!status && !(*out)->o_deleg->dg_recalled &&
	    st_since((*out)->o_deleg->dg_given_ns, st_now_ns(c->m->m_st)) < 1000000000ull)
		metric_add(c->m->m_st->st_deleg_wasted, 1);
	return status;
}

/* Is it a delegation for reading? Its holder may have opened the file without an OPEN. */
static bool returns_read(struct compound *c, const struct st_stateid *sid)
{
	struct st *st = c->m->m_st;
	struct st_open *o;
	bool read;

	st_file_lock(st, c->cur);
	read = op_deleg_by_sid(c, sid, &o) == NFS4_OK && o->o_deleg->dg_type == OPEN_DELEGATE_READ;
	st_file_unlock(st, c->cur);
	return read;
}

nfsstat4 op_delegreturn(struct compound *c)
{
	struct st_stateid sid;
	struct ns_inode i;
	nfsstat4 status;

	op_get_stateid(c->in, &sid);
	if (c->in->bad)
		return NFS4ERR_BADXDR;
	status = c->cur ? op_resolve_sid(c, &sid) : NFS4ERR_NOFILEHANDLE;
	if (!status && returns_read(c, &sid) && op_cur_inode(c, &i) == NFS4_OK)
		op_accessed(c, &i);
	return status ? status : op_give_up(c, &sid, deleg_to_return);
}

/* ---- WANT_DELEGATION (section 18.49) ---- */

/* Checks in the order of section 18.49.3. Sets none, and the reason in d, where the file is not a
 * regular one. */
static nfsstat4 want_check(struct compound *c, uint32_t want, uint32_t claim, struct ns_inode *i,
			   bool *none, struct op_deleg *d)
{
	uint32_t type = want & OPEN4_SHARE_ACCESS_WANT_DELEG_MASK;
	nfsstat4 status = op_cur_inode(c, i);

	if (status)
		return status;
	/* Ignores the share access bits. To want nothing, or no delegation, is invalid here. */
	if (!(type & ~(uint32_t)OPEN4_SHARE_ACCESS_WANT_NO_DELEG) ||
	    type > OPEN4_SHARE_ACCESS_WANT_CANCEL)
		return NFS4ERR_INVAL;
	if (i->i_type == NS_DIR)
		return NFS4ERR_ISDIR;
	if (i->i_type != NS_REG) {
		d->dlg_why = type == OPEN4_SHARE_ACCESS_WANT_WRITE_DELEG
				     ? WND4_WRITE_DELEG_NOT_SUPP_FTYPE
				     : WND4_NOT_SUPP_FTYPE;
		*none = true;
		return NFS4_OK;
	}
	if (claim == CLAIM_PREVIOUS) {
		st_look_lock(c->m->m_st);
		status = st_reclaim_check(c->m->m_st, c->client);
		st_look_unlock(c->m->m_st);
		return status ? NFS4ERR_NO_GRACE : NFS4_OK;
	}
	return op_lock_grace(c) ? NFS4ERR_GRACE : NFS4_OK;
}

nfsstat4 op_want_delegation(struct compound *c)
{
	uint32_t want = xdr_get_u32(c->in), claim = xdr_get_u32(c->in), type = 0;
	struct op_deleg d = {0};
	struct ns_inode i;
	nfsstat4 status;
	bool none = false;

	if (claim == CLAIM_PREVIOUS)
		type = xdr_get_u32(c->in);
	if (c->in->bad ||
	    (claim != CLAIM_PREVIOUS && claim != CLAIM_FH && claim != CLAIM_DELEG_PREV_FH) ||
	    type > OPEN_DELEGATE_WRITE_ATTRS_DELEG)
		return NFS4ERR_BADXDR;
	if (claim == CLAIM_DELEG_PREV_FH)
		/* A client's delegations do not outlive its restart (section 10.2.1). */
		return NFS4ERR_NOTSUPP;
	status = want_check(c, want, claim, &i, &none, &d);
	if (status)
		return status;
	if (claim == CLAIM_PREVIOUS)
		op_deleg_reclaim(c, &i, type, &d);
	else if (!none)
		op_deleg_give(c, &i, OPEN4_SHARE_ACCESS_READ, want, &d);
	op_put_deleg(c->out, &d, true);
	if (d.dlg_type)
		op_set_current_sid(c, &d.dlg_sid);
	return NFS4_OK;
}
