/* SPDX-License-Identifier: Apache-2.0 */
/*
 * op_open.c - OPEN, CLOSE, OPEN_DOWNGRADE (RFC 8881 sections 18.16, 18.2, 18.18).
 *
 *	op_open			decodes and checks; open_by_name or open_by_fh finds the file
 *	open_create		no such name: op_open_create_run makes the file
 *	open_created		it is made, or another was faster (exclusive_same, open_existing)
 *	open_finish		registers the open (open_register), and reads the inode again
 *				(open_confirm)
 *	open_again		the delegations of others that conflict are back: once more
 *	open_size		sets a size under the open, which was registered before
 *				(op_do_setattr)
 *	open_sized		it is set: open_confirm
 */
#include "mds/nfs4/op.h"
#include "mds/namespace/ns_trash.h"
#include "mds/nfs4/credentials.h"
#include "mds/nfs4/op_attr.h"
#include "mds/nfs4/op_state.h"
#include <errno.h>

struct open {
	uint32_t access, deny, want;
	uint32_t create; /* 0 or 1 */
	uint32_t how;	 /* UNCHECKED4 .. EXCLUSIVE4_1 */
	uint32_t claim;
	uint64_t verifier;
	struct op_sattr sa;
	const char *name;
	size_t len;
	const uint8_t *owner;
	uint32_t owner_len;
	uint64_t dir, ino;
	bool created, mark;
	bool pinned; /* the new file's st_file */
	struct ns_create_args a;
	struct ns_inode out;
	uint8_t blob[NS_BLOB_MAX];
	struct ns_cinfo ci;
	struct op_place place;
	struct op_bitmap set;
	struct st_stateid sid;
	uint32_t had_access, had_deny; /* of the open-owner's earlier open; 0: none */
	bool dead;		       /* the conflicting open's client has an expired lease */
	bool delegs;		       /* other clients' delegations conflict */
	uint32_t recalls;	       /* the access for which they are recalled */
	bool sizes;		       /* the size is set under the open */
	struct st_stateid deleg_sid;   /* CLAIM_DELEGATE_CUR, CLAIM_DELEG_CUR_FH */
	uint32_t reclaims; /* CLAIM_PREVIOUS: the type of delegation that is reclaimed */
	struct op_deleg deleg;
	bool instead; /* the client gets a delegation and no open (RFC 9754) */
};

static bool claims_deleg(const struct open *o)
{
	return o->claim == CLAIM_DELEGATE_CUR || o->claim == CLAIM_DELEG_CUR_FH;
}

static nfsstat4 decode_how(struct compound *c, struct open *o)
{
	const uint8_t *v;

	o->how = xdr_get_u32(c->in);
	switch (o->how) {
	case UNCHECKED4:
	case GUARDED4:
		return op_get_sattr(c, c->in, &o->sa, true);
	case EXCLUSIVE4:
	case EXCLUSIVE4_1:
		v = xdr_get_fixed(c->in, 8);
		if (!v)
			return NFS4ERR_BADXDR;
		memcpy(&o->verifier, v, 8);
		/* RFC 8881 section 18.16.3: EXCLUSIVE4 is not for clients of a pNFS metadata
		 * server. */
		return o->how == EXCLUSIVE4_1 ? op_get_sattr(c, c->in, &o->sa, true)
					      : NFS4ERR_INVAL;
	}
	return NFS4ERR_BADXDR;
}

/* Decodes all arguments. A semantic error is returned only when the arguments were complete. */
static nfsstat4 op_open_decode(struct compound *c, struct open *o)
{
	struct xdr_in *x = c->in;
	uint32_t share;
	nfsstat4 st = NFS4_OK, st2 = NFS4_OK;

	xdr_get_u32(x); /* seqid: unused in 4.1 */
	share = xdr_get_u32(x);
	o->access = share & OPEN4_SHARE_ACCESS_MASK;
	o->want = share & ~(uint32_t)OPEN4_SHARE_ACCESS_MASK;
	o->deny = xdr_get_u32(x);
	xdr_get_u64(x); /* clientid: ignored, the session's counts (RFC 8881 section 18.16.3) */
	o->owner = xdr_get_opaque(x, NFS4_OPAQUE_LIMIT, &o->owner_len);
	o->create = xdr_get_u32(x);
	if (x->bad || o->create > 1)
		return NFS4ERR_BADXDR;
	if (o->create)
		st = decode_how(c, o);
	if (st == NFS4ERR_BADXDR)
		return st;
	o->claim = xdr_get_u32(x);
	switch (o->claim) {
	case CLAIM_NULL:
		st2 = op_get_name(x, &o->name, &o->len);
		break;
	case CLAIM_PREVIOUS:
		o->reclaims = xdr_get_u32(x);
		if (o->reclaims > OPEN_DELEGATE_WRITE_ATTRS_DELEG ||
		    o->reclaims == OPEN_DELEGATE_NONE_EXT)
			return NFS4ERR_BADXDR;
		break;
	case CLAIM_FH:
		break;
	case CLAIM_DELEGATE_CUR:
		op_get_stateid(x, &o->deleg_sid);
		st2 = op_get_name(x, &o->name, &o->len);
		break;
	case CLAIM_DELEG_CUR_FH:
		op_get_stateid(x, &o->deleg_sid);
		break;
	case CLAIM_DELEGATE_PREV:
	case CLAIM_DELEG_PREV_FH:
		/* A client's delegations do not outlive its restart (section 10.2.1). */
		return NFS4ERR_NOTSUPP;
	default:
		return NFS4ERR_BADXDR;
	}
	if (x->bad)
		return NFS4ERR_BADXDR;
	if (o->access < 1 || o->access > 3 || o->deny > 3 ||
	    (o->want & OPEN4_SHARE_ACCESS_WANT_DELEG_MASK) > OPEN4_SHARE_ACCESS_WANT_CANCEL ||
	    (o->create && claims_deleg(o)))
		return NFS4ERR_INVAL;
	return st ? st : st2;
}

bool op_open_has_name(struct xdr_in *x)
{
	uint32_t len, how, claim;

	xdr_take(x, 20); /* seqid, access, deny, clientid */
	xdr_get_opaque(x, NFS4_OPAQUE_LIMIT, &len);
	if (xdr_get_u32(x)) {
		how = xdr_get_u32(x);
		if (how >= EXCLUSIVE4)
			xdr_take(x, 8);
		if (how != EXCLUSIVE4) {
			op_get_bitmap(x, &(struct op_bitmap){{0}}, NULL);
			xdr_get_opaque(x, UINT32_MAX - 3, &len);
		}
	}
	claim = xdr_get_u32(x);
	return x->bad || claim == CLAIM_NULL || claim == CLAIM_DELEGATE_CUR ||
	       claim == CLAIM_DELEGATE_PREV;
}

/* Does the COMPOUND end with a LAYOUTGET for writing? Then the transaction that creates the file
 * also puts its write intent (mark). A wrong guess costs one more transaction later, nothing else.
 * LAYOUTGET's arguments are 60 bytes (RFC 8881 section 18.43.1). */
static bool layoutget_follows(const struct compound *c)
{
	struct xdr_in x;

	if (xdr_left(c->in) < 60)
		return false;
	xdr_in_init(&x, c->in->end - 60, 60);
	if (xdr_get_u32(&x) != OP_LAYOUTGET)
		return false;
	xdr_get_u32(&x);
	return xdr_get_u32(&x) == LAYOUT4_FLEX_FILES && xdr_get_u32(&x) == LAYOUTIOMODE4_RW;
}

static op_step open_created, open_again, open_sized;
static nfsstat4 open_create(struct compound *c, struct open *o);
static nfsstat4 open_finish(struct compound *c, struct open *o);
static nfsstat4 open_size(struct compound *c, struct open *o);

/* ---- OPEN: which file is it? ---- */

static nfsstat4 open_type(const struct ns_inode *i)
{
	switch (i->i_type) {
	case NS_REG:
		return NFS4_OK;
	case NS_DIR:
		return NFS4ERR_ISDIR;
	case NS_LNK:
		return NFS4ERR_SYMLINK;
	/* RFC 8881 section 18.16.3 says WRONG_TYPE, but Linux (7.2) turns that into EIO. After
	 * SYMLINK it sends LOOKUP and opens the device or pipe: tests/lab/guest/basic.sh. */
	default:
		return NFS4ERR_SYMLINK;
	}
}

static nfsstat4 open_permission(struct compound *c, const struct open *o, const struct ns_inode *i)
{
	unsigned rwx = (o->access & OPEN4_SHARE_ACCESS_READ ? 4 : 0) |
		       (o->access & OPEN4_SHARE_ACCESS_WRITE ? 2 : 0);

	if (ns_permission(i, &c->cred, rwx) == 0)
		return NFS4_OK;
	/* Execute permission lets the client read the file to run it (section 6.2.1.3.1). OPEN of a
	 * file that it creates does not come here: a mode of 0400 does not keep it from writing. */
	if (rwx == 4 && ns_may_read(i, &c->cred) == 0)
		return NFS4_OK;
	return NFS4ERR_ACCESS;
}

static nfsstat4 open_existing(struct compound *c, struct open *o, const struct ns_inode *i)
{
	nfsstat4 st = open_type(i);

	if (!st)
		st = open_permission(c, o, i);
	if (st)
		return st;
	o->ino = i->i_ino;
	if (o->create && o->sa.has_size && o->sa.s.s_size == 0 && o->how == UNCHECKED4) {
		/* UNCHECKED4 with size 0 and an existing file: truncate the file, and apply
		 * nothing else of createattrs (section 18.16.3). */
		st = c->exp->g_ro ? NFS4ERR_ROFS : op_status(ns_permission(i, &c->cred, 2));
		if (st)
			return st;
		op_bit_set(&o->set, FATTR4_SIZE);
		return open_size(c, o);
	}
	return open_finish(c, o);
}

static nfsstat4 exclusive_same(struct compound *c, struct open *o)
{
	struct ns_inode i;
	uint8_t type;
	uint64_t ino;
	int err = ns_lookup(c->m->m_ns, op_txn(c), o->dir, o->name, o->len, &ino, &type);

	if (!err)
		err = ns_get(c->m->m_ns, op_txn(c), ino, &i);
	if (err)
		return op_status(err);
	if (o->how == EXCLUSIVE4_1) {
		/* A retry of the OPEN that created the file. Verifier 0: any other file. */
		if (i.i_type != NS_REG || !o->verifier || i.i_verifier != o->verifier ||
		    (c->cred.cr_uid && c->cred.cr_uid != i.i_uid))
			return NFS4ERR_EXIST;
		o->ino = ino;
		o->set = o->sa.set; /* as in the first reply */
		return open_finish(c, o);
	}
	if (o->how == GUARDED4)
		return NFS4ERR_EXIST;
	return open_existing(c, o, &i);
}

static nfsstat4 open_by_name(struct compound *c, struct open *o)
{
	struct ns_inode d, i;
	uint64_t ino;
	uint8_t type;
	nfsstat4 st = op_cur_inode(c, &d);
	int err;

	if (st)
		return st;
	if (d.i_type != NS_DIR)
		return d.i_type == NS_LNK ? NFS4ERR_SYMLINK : NFS4ERR_NOTDIR;
	st = c->wrongsec ? NFS4ERR_WRONGSEC : op_status(ns_permission(&d, &c->cred, 1));
	if (st)
		return st;
	o->dir = c->cur;
	o->ci.c_before = o->ci.c_after = d.i_change;
	err = ns_lookup(c->m->m_ns, op_txn(c), c->cur, o->name, o->len, &ino, &type);
	if (!err && exp_down(c->view, c->exp, ino) == &exp_unknown)
		return NFS4ERR_DELAY;
	/* The name belongs to another export: it is not shown, and cannot be created either. */
	if (!err && !exp_down(c->view, c->exp, ino))
		return !o->create ? NFS4ERR_NOENT : c->exp->g_ro ? NFS4ERR_ROFS : NFS4ERR_EXIST;
	if (err == -ENOENT)
		return o->create ? open_create(c, o) : NFS4ERR_NOENT;
	if (!err)
		err = ns_get(c->m->m_ns, op_txn(c), ino, &i);
	if (err)
		return op_status(err);
	return o->create && o->how != UNCHECKED4 ? exclusive_same(c, o) : open_existing(c, o, &i);
}

static nfsstat4 open_by_fh(struct compound *c, struct open *o)
{
	struct ns_inode i;
	nfsstat4 st = op_cur_inode(c, &i);

	if (st)
		return st;
	/* CLAIM_PREVIOUS: the permission was checked before the restart, for a user that we do not
	 * know. As in Linux the owner may open, even if he has lost the permission since. Other
	 * users need the permission now. */
	if (o->claim == CLAIM_PREVIOUS) {
		st = open_type(&i);
		if (!st && i.i_uid != c->cred.cr_uid)
			st = open_permission(c, o, &i);
		if (st)
			return st;
		o->ino = i.i_ino;
		return open_finish(c, o);
	}
	return open_existing(c, o, &i);
}

nfsstat4 op_open(struct compound *c)
{
	struct open *o = op_scratch(c, sizeof(*o), NULL);
	struct st *st = c->m->m_st;
	enum op_scope whose = OP_OF_CLIENT;
	bool full;
	nfsstat4 status;

	if (!o)
		return NFS4ERR_DELAY;
	status = op_open_decode(c, o);
	if (status)
		return status;
	if (!c->cur)
		return NFS4ERR_NOFILEHANDLE;
	st_look_lock(st);
	if (o->claim == CLAIM_PREVIOUS)
		status = st_reclaim_check(st, c->client);
	else if (!claims_deleg(o) && op_lock_grace(c)) /* the delegation was reclaimed: no wait */
		status = NFS4ERR_GRACE;
	if (o->claim == CLAIM_PREVIOUS || claims_deleg(o))
		full = op_full_again(c, ST_N_OPENS, OP_LIMIT_OPENS, c->m->m_limits.lm_opens);
	else
		full = op_full(c, ST_N_OPENS, OP_LIMIT_OPENS, c->m->m_limits.lm_opens, &whose);
	st_look_unlock(st);
	if (full) { /* before a file is created that could not be opened */
		op_make_room(c, whose);
		return NFS4ERR_DELAY;
	}
	if (status)
		return status;
	return o->claim == CLAIM_NULL || o->claim == CLAIM_DELEGATE_CUR ? open_by_name(c, o)
									: open_by_fh(c, o);
}

/* ---- OPEN: a new file ---- */

/* The durable reply has no delegation: a delegation ends with the server's boot. A retry after a
 * restart gets the open's stateid. */
static void open_result_put(struct compound *c, struct xdr_out *x, struct op_after *after)
{
	static const struct st_stateid zero;
	uint32_t flags = OPEN4_RESULT_LOCKTYPE_POSIX | OPEN4_RESULT_PRESERVE_UNLINKED |
			 OPEN4_RESULT_MAY_NOTIFY_LOCK;
	struct open *o = c->scratch;

	op_put_stateid(x, o->instead ? &zero : &o->sid);
	op_put_cinfo(x, &o->ci);
	xdr_put_u32(x, o->instead ? flags | OPEN4_RESULT_NO_OPEN_STATEID : flags);
	op_put_bitmap(x, &o->set);
	op_put_deleg(x, &o->deleg, o->want & OPEN4_SHARE_ACCESS_WANT_DELEG_MASK);
	after->cur = o->ino;
	after->have_sid = true;
	after->sid = o->instead ? o->deleg.dlg_sid : o->sid;
}

/* The durable reply of the create's transaction. Another transaction sets a size above 0, so its
 * bit is not in this reply. */
static void created_put(struct compound *c, struct xdr_out *x, struct op_after *after)
{
	struct open *o = c->scratch;
	struct op_bitmap all = o->set;

	if (o->sa.has_size && o->sa.s.s_size)
		o->set.w[0] &= ~(1u << FATTR4_SIZE);
	open_result_put(c, x, after);
	o->set = all;
}

/* On the committer thread, before any other thread can see the inode: a thread that finds the inode
 * finds the write intent as well. */
static void mark_known(struct st *st, struct open *o)
{
	struct st_file *f;

	st_file_lock(st, o->ino);
	f = st_file_get(st, o->ino, true);
	if (f) { /* without memory for f the intent stays until it is put again, and deleted */
		f->f_pins++;
		f->f_intent_durable = o->pinned = true;
	}
	st_file_unlock(st, o->ino);
}

static int op_open_create_run(struct kv_op *op, struct kv_txn *t)
{
	struct compound *c = op_of(op);
	struct open *o = c->scratch;
	struct lo_map map;
	int err;

	o->place.opl_t = t;
	err = ns_create(c->m->m_ns, t, &o->a, &o->out, o->blob, &o->ci);
	if (!err && ds_reg_has_generic(c->m->m_dsc)) {
		err = lo_map_decode(o->out.i_blob, &map);
		if (!err)
			err = lo_adopt(c->m->m_lo, t, &o->out, NULL, &map);
	}
	if (!err && o->mark)
		err = file_intent_put(t, o->out.i_ino);
	if (err)
		return err;
	o->ino = o->out.i_ino;
	st_sid_make(c->m->m_st, o->ino, ST_SID_OPEN, &o->sid); /* for the durable reply */
	if (o->mark)
		mark_known(c->m->m_st, o);
	return 0;
}

static nfsstat4 open_create(struct compound *c, struct open *o)
{
	struct ns_inode *i = &o->a.a_attr;
	nfsstat4 st;

	if (c->exp->g_ro)
		return NFS4ERR_ROFS;
	o->a.a_dir = o->dir;
	o->a.a_name = o->name;
	o->a.a_len = o->len;
	o->a.a_cred = &c->cred;
	o->a.a_now = file_now();
	i->i_type = NS_REG;
	st = op_sattr_create(c, &o->sa, 0644, &o->a);
	if (st)
		return st;
	if (o->how == EXCLUSIVE4_1)
		i->i_verifier = o->verifier;
	o->place.opl_m = c->m;
	o->place.opl_mirrors = o->sa.mirrors;
	o->a.a_map = op_place_map;
	o->a.a_map_arg = &o->place;
	o->set = o->sa.set;
	o->mark = o->place.opl_given = layoutget_follows(c);
	return op_mutate(c, op_open_create_run, created_put, open_created);
}

static void mark_unpin(struct st *st, struct open *o, int err)
{
	struct st_file *f;

	st_file_lock(st, o->ino);
	f = st_file_get(st, o->ino, false);
	f->f_pins--;
	if (err)
		f->f_intent_durable = false;
	st_file_put(st, f);
	st_file_unlock(st, o->ino);
	o->pinned = false;
}

static nfsstat4 open_created(struct compound *c, int err)
{
	struct open *o = c->scratch;

	if (o->pinned)
		mark_unpin(c->m->m_st, o, err);
	if (err == -EEXIST)
		return exclusive_same(c, o);
	if (err)
		return op_status(err);
	metric_add(c->m->m_creates, 1);
	o->created = true;
	if (o->mark)
		op_intent_doubt(c, o->ino);
	/* With a size: the data servers' objects get that size too. */
	return o->sa.has_size && o->sa.s.s_size ? open_size(c, o) : open_finish(c, o);
}

/* ---- OPEN: the open itself ---- */

/* locked: does the client have the delegation that this OPEN claims? */
static nfsstat4 deleg_claimed(struct compound *c, const struct open *o)
{
	const struct st_open *d = st_open_find(c->m->m_st, &o->deleg_sid);

	if (st_revoked_find(c->client, &o->deleg_sid))
		return NFS4ERR_DELEG_REVOKED;
	if (!d || !d->o_deleg || d->o_client != c->client || d->o_file->f_ino != o->ino)
		return NFS4ERR_BAD_STATEID;
	return op_seqid_status(&o->deleg_sid, d->o_sid.seqid);
}

static nfsstat4 share_register(struct compound *c, struct open *o)
{
	struct st *st = c->m->m_st;
	struct st_file *f = st_file_get(st, o->ino, true);
	struct st_open *op, *holder;
	nfsstat4 status = NFS4_OK;

	if (!f)
		return NFS4ERR_DELAY;
	if (claims_deleg(o))
		status = deleg_claimed(c, o);
	if (f->f_removing && !status)
		status = NFS4ERR_DELAY;
	if (status) {
		st_file_put(st, f);
		return status;
	}
	op = st_open_by_owner(f, c->client, o->owner, o->owner_len);
	/* The open-owner's own open may conflict as well (section 18.16.3). */
	holder = st_share_conflict(st, f, o->access, o->deny);
	/* A client with a delegation does not send its CLOSE at once. So the delegation is recalled
	 * before the share reservation is decided (section 10.4). */
	o->recalls = holder && holder->o_client != c->client && st_deleg_of(f, holder->o_client)
			     ? OPEN4_SHARE_ACCESS_BOTH
			     : o->access;
	o->delegs = st_file_deleg_conflict(f, c->client, o->recalls, o->deny);
	/* States that clients had before the restart do not conflict: a client is wrong here. */
	if (o->claim == CLAIM_PREVIOUS &&
	    (o->delegs || op_deleg_conflicts(f, c->client, o->reclaims)))
		return NFS4ERR_RECLAIM_CONFLICT; /* no st_file_put: another open keeps f */
	if (o->delegs)
		return NFS4ERR_DELAY;
	if (holder) {
		if (!st_lease_expired(st, holder->o_client))
			return o->claim == CLAIM_PREVIOUS ? NFS4ERR_RECLAIM_CONFLICT
							  : NFS4ERR_SHARE_DENIED;
		o->dead = true;
		return NFS4ERR_DELAY;
	}
	if (!op)
		op = st_open_new(st, f, c->client, o->owner, o->owner_len,
				 o->created ? &o->sid : NULL);
	if (!op) {
		st_file_put(st, f);
		return NFS4ERR_DELAY;
	}
	/* A new open has room for its first user: this cannot fail for it. */
	if (!st_open_by_user(op, c->cred.cr_uid, o->access))
		return NFS4ERR_DELAY;
	o->had_access = op->o_access;
	o->had_deny = op->o_deny;
	op->o_access |= o->access;
	op->o_deny |= o->deny;
	st_sid_bump(&op->o_sid);
	o->sid = op->o_sid;
	return NFS4_OK;
}

/* Registers the open: other clients' OPENs and REMOVEs see it from now on. */
static nfsstat4 open_register(struct compound *c, struct open *o)
{
	struct st *st = c->m->m_st;
	nfsstat4 status;

	if (c->exp->g_ro && (o->access & OPEN4_SHARE_ACCESS_WRITE))
		return NFS4ERR_ROFS;
	st_file_lock(st, o->ino);
	status = st_client_goes(c->client) ? NFS4ERR_BADSESSION : share_register(c, o);
	st_file_unlock(st, o->ino);
	if (o->dead)
		file_evict_in_way(&c->m->m_file, c->th->mt_loop, o->ino, o->access, o->deny);
	if (status == NFS4ERR_DELAY && o->delegs &&
	    op_deleg_clear_begin(c, &o->ino, 1, o->recalls, o->deny))
		return op_await_client(c, open_again);
	return status;
}

/* The client gets a delegation in place of an open (RFC 9754 section 4). Not where the open-owner
 * had an open already, which this OPEN has upgraded, and not where the OPEN denies something. */
static bool deleg_instead(struct compound *c, const struct open *o)
{
	struct st *st = c->m->m_st;
	struct st_work w = {0};
	struct st_open *op;
	bool gone;

	if (c->minor < 2 || !(o->want & OPEN4_SHARE_ACCESS_WANT_OPEN_XOR_DELEGATION) ||
	    !o->deleg.dlg_type || o->had_access || o->deny)
		return false;
	do {
		st_work_lock(&w, st, o->ino);
		op = st_open_find(st, &o->sid);
		gone = op && op->o_sid.seqid == o->sid.seqid;
		if (gone && st_may_free(op))
			st_open_free(st, op);
	} while (st_work_again(&w));
	return gone;
}

static void open_deleg(struct compound *c, struct open *o, const struct ns_inode *i)
{
	if (o->claim == CLAIM_PREVIOUS)
		op_deleg_reclaim(c, i, o->reclaims, &o->deleg);
	else if (!claims_deleg(o))
		op_deleg_give(c, i, o->access, o->want, &o->deleg);
	o->instead = deleg_instead(c, o);
}

static void open_undo(struct compound *c, struct open *o)
{
	struct st *st = c->m->m_st;
	struct st_work w = {0};
	struct st_open *op;

	do {
		st_work_lock(&w, st, o->ino);
		op = st_open_find(st, &o->sid);
		if (op && op->o_sid.seqid != o->sid.seqid) {
			/* a later OPEN of the open-owner needs what this one added */
		} else if (op && !o->had_access) {
			if (st_may_free(op))
				st_open_free(st, op);
		} else if (op) {
			op->o_access = o->had_access;
			op->o_deny = o->had_deny;
			op->o_sid.seqid--;
		}
	} while (st_work_again(&w));
}

/* Reads the inode again from a fresh snapshot. A removal that was committed before the open was
 * registered shows here. A removal that is still queued sees the open. */
static nfsstat4 open_confirm(struct compound *c, struct open *o)
{
	struct ns_inode i;

	op_txn_stale(c->th);
	if (ns_get(c->m->m_ns, op_txn(c), o->ino, &i) == 0 &&
	    (i.i_nlink || ns_is_orphan(op_txn(c), o->ino))) {
		/* Count a read now: the client may read from its cache, or by a layout it has. */
		if (o->access == OPEN4_SHARE_ACCESS_READ && !o->created &&
		    o->claim != CLAIM_PREVIOUS)
			op_accessed(c, &i);
		open_deleg(c, o, &i);
		return op_result(c, open_result_put);
	}
	open_undo(c, o);
	return o->name ? NFS4ERR_NOENT : NFS4ERR_STALE;
}

static nfsstat4 open_finish(struct compound *c, struct open *o)
{
	nfsstat4 status = open_register(c, o);

	return status ? status : open_confirm(c, o);
}

/* Other clients' delegations are back. */
static nfsstat4 open_again(struct compound *c, int err)
{
	struct open *o = c->scratch;

	(void)err;
	return o->sizes ? open_size(c, o) : open_finish(c, o);
}

/* Sets the size under the open, not before it: an OPEN that is refused must change nothing. */
static nfsstat4 open_size(struct compound *c, struct open *o)
{
	struct op_sattr a = {.s = {.s_mask = NS_S_SIZE, .s_size = o->sa.s.s_size},
			     .has_size = true};
	nfsstat4 status;

	o->sizes = true;
	status = open_register(c, o);
	if (status)
		return status;
	status = op_do_setattr(c, o->ino, &a, true, open_result_put, open_sized);
	if (status != OP_PARKED)
		open_undo(c, o);
	return status;
}

static nfsstat4 open_sized(struct compound *c, int err)
{
	struct open *o = c->scratch;

	if (!err)
		return open_confirm(c, o);
	open_undo(c, o);
	return op_status(err);
}

/* ---- CLOSE, OPEN_DOWNGRADE ---- */

/* locked: finds the open of a stateid, and checks its client, file and seqid. */
static nfsstat4 open_of(struct compound *c, const struct st_stateid *sid, struct st_open **out)
{
	struct st *st = c->m->m_st;
	struct st_open *o = st_open_find(st, sid);

	if (!o || o->o_deleg || o->o_client != c->client || o->o_file->f_ino != c->cur)
		return NFS4ERR_BAD_STATEID;
	*out = o;
	return op_seqid_status(sid, o->o_sid.seqid);
}

/* locked */
static nfsstat4 open_to_close(struct compound *c, const struct st_stateid *sid,
			      struct st_open **out)
{
	nfsstat4 status = open_of(c, sid, out);

	/* Section 18.2.3 lets the server choose; the client must unlock first. */
	if (!status && st_open_has_locks(*out))
		status = NFS4ERR_LOCKS_HELD;
	return status;
}

nfsstat4 op_close(struct compound *c)
{
	struct st_stateid sid, gone = {.seqid = UINT32_MAX};
	nfsstat4 status;

	xdr_get_u32(c->in);
	op_get_stateid(c->in, &sid);
	if (c->in->bad)
		return NFS4ERR_BADXDR;
	status = op_resolve_sid(c, &sid);
	if (status)
		return status;
	if (!c->cur)
		return NFS4ERR_NOFILEHANDLE;
	op_put_stateid(c->out, &gone); /* RFC 8881 section 18.2.4: the invalid special stateid */
	c->have_sid = false;
	return op_give_up(c, &sid, open_to_close);
}

nfsstat4 op_open_downgrade(struct compound *c)
{
	struct st *st = c->m->m_st;
	struct st_stateid sid;
	struct st_open *o;
	uint32_t access, deny;
	nfsstat4 status;

	op_get_stateid(c->in, &sid);
	xdr_get_u32(c->in);
	access = xdr_get_u32(c->in) & OPEN4_SHARE_ACCESS_MASK;
	deny = xdr_get_u32(c->in);
	if (c->in->bad)
		return NFS4ERR_BADXDR;
	status = op_resolve_sid(c, &sid);
	if (status)
		return status;
	if (!c->cur)
		return NFS4ERR_NOFILEHANDLE;
	st_file_lock(st, c->cur);
	status = open_of(c, &sid, &o);
	if (!status && (access == 0 || (access & ~o->o_access) || (deny & ~o->o_deny)))
		status = NFS4ERR_INVAL;
	if (!status) {
		o->o_access = access;
		o->o_deny = deny;
		o->o_sid.seqid++;
		op_put_stateid(c->out, &o->o_sid);
		op_set_current_sid(c, &o->o_sid);
	}
	st_file_unlock(st, c->cur);
	return status;
}
