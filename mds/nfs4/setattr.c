/* SPDX-License-Identifier: Apache-2.0 */
/*
 * setattr.c - SETATTR, and what a COMPOUND needs to know of a size (docs/size.md).
 *
 * The steps of a change (op_do_setattr; OPEN uses it too):
 *
 *	op_do_setattr		may the caller make the change? Other clients' delegations come
 *				back
 *	setattr_cleared		they are back: what an earlier boot or a lost writer left is
 *				resolved
 *	setattr_resolved	conflicting layouts come back, or earlier writes are counted
 *	setattr_commit		setattr_run: one transaction has the change, the fence and the
 *				orders
 *	setattr_committed	the data servers run the orders
 *	setattr_ordered		they have, or their leases are over: setattr_end lets go, and the
 *				caller's step follows (setattr_done)
 */
#include "mds/namespace/ns_trash.h"
#include "base/log.h"
#include "mds/nfs4/op.h"
#include "mds/nfs4/op_attr.h"
#include "mds/nfs4/op_state.h"
#include <errno.h>

bool op_refresh_begin(struct compound *c, uint64_t ino, bool force, bool unmark)
{
	return (force || file_refresh_needed(&c->m->m_file, ino)) &&
	       file_refresh(&c->m->m_file, c->th->mt_loop, op_txn(c), ino, unmark, op_wake, c);
}

nfsstat4 op_refresh(struct compound *c, uint64_t ino, bool force, op_step *next)
{
	return op_refresh_begin(c, ino, force, false) ? op_await(c, next) : next(c, 0);
}

void op_intent_doubt(struct compound *c, uint64_t ino)
{
	if (c->marked && c->marked != ino)
		op_intent_unused(c);
	c->marked = ino;
}

void op_intent_unused(struct compound *c)
{
	struct st *st = c->m->m_st;
	struct st_file *f;
	bool unused;

	st_file_lock(st, c->marked);
	f = st_file_get(st, c->marked, false);
	unused = f && file_intent_is_unused(f);
	st_file_unlock(st, c->marked);
	if (unused)
		file_intent_clear_later(&c->th->mt_returned, c->marked);
}

struct setattr {
	struct excl excl;
	struct op_sattr a;
	uint64_t ino;
	bool have_write, orders;
	op_put_fn put;
	op_step *then;
};

/* The last write layout came back during the change, which kept the file's write intent (mark) from
 * being deleted. */
static bool setattr_unmarks(struct st *st, uint64_t ino)
{
	struct st_file *f;
	bool unmark;

	st_file_lock(st, ino);
	f = st_file_get(st, ino, false);
	unmark = f && f->f_intent && !f->f_nsizing && !st_file_has_writers(f);
	st_file_unlock(st, ino);
	return unmark;
}

/* May some user do less with the file than before? If none may, the capabilities stay good: they
 * allow no more than their users could get again. */
static bool setattr_takes(const struct ns_setattr *s, const struct ns_inode *old,
			  const struct ns_inode *now)
{
	return (s->s_mask & NS_S_ACL) || now->i_uid != old->i_uid || now->i_gid != old->i_gid ||
	       (old->i_mode & ~now->i_mode & 0777);
}

/*
 * Must the caller's own layout come back as well? Yes if its capabilities are about to be fenced: a
 * stock client whose WRITE is refused writes those pages again later, after the close that should
 * have had them written. Yes if set-id bits are set: the next write must clear them, so the
 * caller's client must have no layout by which it could write unseen (layoutget_rights).
 */
static bool setattr_own(struct compound *c, const struct setattr *j)
{
	const struct ns_setattr *s = &j->a.s;
	struct ns_inode old, now;

	if (j->a.has_size || ns_get(c->m->m_ns, op_txn(c), j->ino, &old))
		return true;
	now = old;
	if (s->s_mask & NS_S_MODE)
		now.i_mode =
			(uint16_t)((old.i_mode & s->s_mode_keep) | (s->s_mode & ~s->s_mode_keep));
	if (s->s_mask & NS_S_UID)
		now.i_uid = s->s_uid;
	if (s->s_mask & NS_S_GID)
		now.i_gid = s->s_gid;
	return ((s->s_mask & NS_S_MODE) && (s->s_mode & ~s->s_mode_keep & 06000)) ||
	       setattr_takes(s, &old, &now);
}

static int setattr_run(struct kv_op *op, struct kv_txn *t)
{
	struct compound *c = op_of(op);
	struct setattr *j = c->sub;
	struct ns *ns = c->m->m_ns;
	struct ns_setattr s = j->a.s;
	struct ns_time now = file_now();
	struct ns_inode i, old;
	struct lo_map map;
	bool file, takes, raise;
	int err = ns_get(ns, t, j->ino, &old);

	if (!err && !old.i_nlink && !ns_is_orphan(t, j->ino))
		err = -ESTALE; /* it went to the trash */
	if (err)
		return err;
	file = old.i_type == NS_REG;
	if (j->a.has_size && old.i_type != NS_REG)
		return old.i_type == NS_DIR ? -EISDIR : -EINVAL;
	if (j->have_write)
		s.s_mask |= NS_S_HAS_WRITE;
	if (file) {
		err = lo_map_decode(old.i_blob, &map);
		if (err)
			return err;
	}
	err = ns_setattr(ns, t, j->ino, &s, &c->cred, now, &i);
	if (err || !file)
		return err;
	takes = j->a.has_size || setattr_takes(&s, &old, &i);
	/* A write by a layout that was returned, or is the caller's own, may still be under way. */
	raise = j->excl.ex_left || (!map.lm_clean && takes);
	/* takes without raise: another request raised the epoch just now; wait for its orders. */
	if (!takes && !raise)
		return 0;
	/* The truncate order carries the epoch. */
	err = excl_fence(&j->excl, t, &i, &map, raise, j->a.has_size, now);
	if (!err && j->a.has_size)
		err = lo_order_truncate(c->m->m_lo, t, &i, &map, s.s_size);
	j->orders = true;
	c->once_orders = j->ino;
	return err;
}

/* The steps, in the order of time. */
static op_step setattr_cleared, setattr_resolved, setattr_commit, setattr_committed,
	setattr_ordered, setattr_end;

nfsstat4 op_do_setattr(struct compound *c, uint64_t ino, const struct op_sattr *a, bool have_write,
		       op_put_fn put, op_step *then)
{
	struct setattr *j;
	struct ns_setattr s = a->s;
	struct ns_inode i;
	struct lo_map map;
	int err = ns_get(c->m->m_ns, op_txn(c), ino, &i);

	/* No layout is recalled for a change that would be refused. The commit checks again. */
	if (have_write)
		s.s_mask |= NS_S_HAS_WRITE;
	if (!err && !i.i_nlink && !ns_is_orphan(op_txn(c), ino))
		err = -ESTALE;
	if (!err)
		err = ns_setattr_check(&i, &s, &c->cred);
	if (err)
		return op_status(err);
	if (op_deleg_grace(c, ino))
		return NFS4ERR_GRACE;
	/* One truncate at a time: orders must not pile up for a server that does not answer. */
	if (a->has_size &&
	    (lo_map_decode(i.i_blob, &map) || job_has_orders(c->m, c->th->mt_loop, &i, &map)))
		return NFS4ERR_DELAY;
	j = calloc(1, sizeof(*j));
	if (!j)
		return NFS4ERR_DELAY;
	c->sub = j;
	j->a = *a;
	j->ino = ino;
	j->have_write = have_write;
	j->put = put;
	j->then = then;
	return op_deleg_clear(c, &ino, 1, OPEN4_SHARE_ACCESS_WRITE, 0, setattr_cleared);
}

/* Other clients' delegations are back. */
static nfsstat4 setattr_cleared(struct compound *c, int err)
{
	struct setattr *j = c->sub;

	(void)err;
	return excl_resolve(&c->m->m_file, c->th->mt_loop, j->ino, op_wake, c)
		       ? op_await(c, setattr_resolved)
		       : setattr_resolved(c, 0);
}

/* Recalls the layouts that conflict with the change, counts the writes before it, and commits. */
static nfsstat4 setattr_resolved(struct compound *c, int err)
{
	struct setattr *j = c->sub;
	/* A change of mode, ACL or owner recalls what was granted under the old one. */
	bool rights = j->a.s.s_mask & (NS_S_MODE | NS_S_ACL | NS_S_UID | NS_S_GID);
	enum excl_how how = j->a.has_size ? EXCL_SIZE : EXCL_RIGHTS;

	if (err)
		return setattr_end(c, err == -ETIMEDOUT ? -EAGAIN : err);
	if (j->a.has_size || rights) {
		int waits =
			excl_change(&j->excl, &c->m->m_file, c->th->mt_loop, j->ino,
				    setattr_own(c, j) ? NULL : c->client, how, !rights, op_wake, c);

		if (waits)
			return waits < 0 ? j->then(c, waits) : op_await_client(c, setattr_commit);
	}
	/* A time that is set replaces the time of earlier writes. Those are counted first, so that
	 * no later query takes them for new ones. */
	return j->a.s.s_mask & (NS_S_MTIME | NS_S_MTIME_NOW)
		       ? op_refresh(c, j->ino, false, setattr_commit)
		       : setattr_commit(c, 0);
}

static nfsstat4 setattr_commit(struct compound *c, int err)
{
	(void)err;
	return op_mutate(c, setattr_run, ((struct setattr *)c->sub)->put, setattr_committed);
}

static nfsstat4 setattr_committed(struct compound *c, int err)
{
	struct setattr *j = c->sub;

	if (err || !j->orders)
		return setattr_end(c, err);
	/* Layouts that name copies without the change may have to come back. */
	excl_order(&j->excl, op_client_waits, op_wake, c);
	return op_await(c, setattr_ordered);
}

/* Every data server has confirmed, or its lease has run out. */
static nfsstat4 setattr_ordered(struct compound *c, int err)
{
	/* The change is committed. A data server that could not store its order enforces it from
	 * memory. */
	(void)err;
	return setattr_end(c, 0);
}

static nfsstat4 setattr_end(struct compound *c, int err)
{
	struct setattr *j = c->sub;
	bool had = j->excl.ex_held;

	excl_end(&j->excl, err);
	if (had && setattr_unmarks(c->m->m_st, j->ino)) /* a LAYOUTRETURN could not do this */
		file_intent_clear_later(&c->th->mt_returned, j->ino);
	if (!err)
		op_deleg_late(c, j->ino);
	return j->then(c, err);
}

struct op_setattr_args {
	struct op_sattr a;
};

static void setattr_put(struct compound *c, struct xdr_out *x, struct op_after *after)
{
	struct op_setattr_args *k = c->scratch;

	(void)after;
	op_put_bitmap(x, &k->a.set);
}

static nfsstat4 setattr_done(struct compound *c, int err)
{
	if (!err)
		return op_result(c, setattr_put);
	xdr_put_u32(c->out, 0);
	c->keep_body = true; /* the reply has attrsset with every status */
	return op_status(err);
}

static int deleg_times_run(struct kv_op *op, struct kv_txn *t)
{
	struct compound *c = op_of(op);
	const struct ns_setattr *s = &((struct op_setattr_args *)c->scratch)->a.s;

	return ns_deleg_times(c->m->m_ns, t, c->cur, s->s_mask & NS_S_ATIME ? &s->s_atime : NULL,
			      s->s_mask & NS_S_MTIME ? &s->s_mtime : NULL, false, file_now());
}

/* Times that the holder of a delegation kept while it had it (RFC 9754 section 5). Only the holder
 * may set them. */
static nfsstat4 setattr_deleg_times(struct compound *c, const struct st_stateid *sid)
{
	struct st *st = c->m->m_st;
	struct st_open *o;
	nfsstat4 status;

	st_file_lock(st, c->cur);
	status = op_deleg_by_sid(c, sid, &o);
	if (!status && !o->o_deleg->dg_times)
		status = NFS4ERR_BAD_STATEID;
	/* A client that may only read modifies nothing. */
	if (!status && o->o_deleg->dg_type != OPEN_DELEGATE_WRITE &&
	    (((struct op_setattr_args *)c->scratch)->a.s.s_mask & NS_S_MTIME))
		status = NFS4ERR_INVAL;
	st_file_unlock(st, c->cur);
	return status ? status : op_mutate(c, deleg_times_run, setattr_put, setattr_done);
}

nfsstat4 op_setattr(struct compound *c)
{
	struct op_setattr_args *k = op_scratch(c, sizeof(*k), NULL);
	struct st *st = c->m->m_st;
	struct st_stateid sid;
	struct ns_inode i;
	struct st_open *o;
	bool have_write = false;
	nfsstat4 status;

	if (!k)
		return NFS4ERR_DELAY;
	op_get_stateid(c->in, &sid);
	status = op_get_sattr(c, c->in, &k->a, false);
	if (!status && !c->cur)
		status = NFS4ERR_NOFILEHANDLE;
	if (!status)
		status = op_resolve_sid(c, &sid);
	if (!status && k->a.deleg_times) {
		status = setattr_deleg_times(c, &sid);
		if (status == OP_PARKED)
			return status;
	} else if (!status && k->a.has_size && st_sid_special(&sid)) {
		status = op_cur_inode(c, &i);
		if (!status) /* without permission it must not recall or evict anything */
			status = op_status(ns_setattr_check(&i, &k->a.s, &c->cred));
		if (!status)
			status = op_special_io(c, c->cur, OPEN4_SHARE_ACCESS_WRITE);
	} else if (!status && k->a.has_size) {
		status = op_cur_inode(c, &i);
		st_file_lock(st, c->cur);
		if (!status)
			status = st_in_grace(st) ? NFS4ERR_GRACE
						 : op_open_by_sid(c, &sid, c->cur, &o);
		if (!status && !(o->o_access & OPEN4_SHARE_ACCESS_WRITE))
			status = NFS4ERR_OPENMODE;
		if (!status)
			status = op_user_access(c, &i, OPEN4_SHARE_ACCESS_WRITE);
		st_file_unlock(st, c->cur);
		have_write = true; /* counts only with a good status */
	}
	if (!status && !k->a.deleg_times)
		return op_do_setattr(c, c->cur, &k->a, have_write, setattr_put, setattr_done);
	xdr_put_u32(c->out, 0);
	c->keep_body = true;
	return status;
}
