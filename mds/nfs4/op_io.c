/* SPDX-License-Identifier: Apache-2.0 */
/*
 * op_io.c - READ, WRITE and COMMIT through the metadata server, for clients without a layout. They
 * use the same map as clients with a layout: otherwise the two would not see the same file.
 *
 *	op_read				may the caller? The file's size is asked for
 *	read_go				the I/O begins (io_prepare, io_go)
 *	op_write, op_commit		may the caller? The I/O begins
 *	io_done				READ: the answer. Else write_run: size, change attribute
 *					and stale copies. If the file was fenced meanwhile, the
 *					I/O is done again (io_redo)
 *	read_first_left			the first copy of a contended file was lost: the read is
 *					done again
 *	write_committed			layouts that name copies which became stale come back
 *	write_reply			the answer
 *	io_failed			the copies that may differ after a failure are judged: the
 *					answer
 */
#include "base/log.h"
#include "mds/nfs4/credentials.h"
#include "mds/nfs4/op_attr.h"
#include "mds/nfs4/op_state.h"
#include "mds/nfs4/op_heat.h"
#include <errno.h>

struct io {
	struct lo_io io;
	struct compound *c;
	uint64_t off;
	uint32_t count;
	struct ns_inode inode;
	unsigned tries;
	struct op_pin pin;	/* WRITE */
	struct job_write write; /* WRITE of a mirrored file */
	struct excl_layout_block hold;
	bool again;
	nfsstat4 failed;
};

#define IO_TRIES 3

static op_step read_go, io_done, read_first_left, write_committed, write_reply, io_failed;

nfsstat4 op_regular(const struct ns_inode *i)
{
	switch (i->i_type) {
	case NS_REG:
		return NFS4_OK;
	case NS_DIR:
		return NFS4ERR_ISDIR;
	case NS_LNK:
		return NFS4ERR_SYMLINK;
	default:
		return NFS4ERR_WRONG_TYPE;
	}
}

nfsstat4 op_open_by_sid(struct compound *c, const struct st_stateid *s, uint64_t ino,
			struct st_open **out)
{
	uint32_t seqid;

	*out = st_open_or_lock(c->m->m_st, s, &seqid);
	if (!*out && st_revoked_find(c->client, s))
		return NFS4ERR_DELEG_REVOKED;
	if (!*out || (*out)->o_client != c->client || (*out)->o_file->f_ino != ino)
		return NFS4ERR_BAD_STATEID;
	return op_seqid_status(s, seqid);
}

nfsstat4 op_user_access(struct compound *c, const struct ns_inode *i, uint32_t need)
{
	const struct st_file *f;

	if (i->i_uid == c->cred.cr_uid ||
	    ns_permission(i, &c->cred, need == OPEN4_SHARE_ACCESS_WRITE ? 2 : 4) == 0 ||
	    (need == OPEN4_SHARE_ACCESS_READ && ns_may_read(i, &c->cred) == 0))
		return NFS4_OK;
	f = st_file_get(c->m->m_st, i->i_ino, false);
	return f && st_file_opened(f, c->client, c->cred.cr_uid, need) ? NFS4_OK : NFS4ERR_ACCESS;
}

nfsstat4 op_special_io(struct compound *c, uint64_t ino, uint32_t need)
{
	struct st *st = c->m->m_st;
	struct st_open *holder;
	struct st_file *f;
	nfsstat4 status = NFS4_OK;

	st_file_lock(st, ino);
	f = st_file_get(st, ino, false);
	holder = f ? st_share_conflict(st, f, need, 0) : NULL;
	if (st_in_grace(st))
		status = NFS4ERR_GRACE;
	else if (holder)
		status = st_lease_expired(st, holder->o_client) ? NFS4ERR_DELAY : NFS4ERR_LOCKED;
	st_file_unlock(st, ino);
	if (status == NFS4ERR_DELAY)
		file_evict_in_way(&c->m->m_file, c->th->mt_loop, ino, need, 0);
	return !status && op_deleg_stands(c, ino, need) ? NFS4ERR_DELAY : status;
}

static nfsstat4 sid_access(struct compound *c, struct st_stateid *sid, const struct ns_inode *i,
			   bool write, bool any_user)
{
	struct st *st = c->m->m_st;
	uint32_t need = write ? OPEN4_SHARE_ACCESS_WRITE : OPEN4_SHARE_ACCESS_READ;
	struct st_open *o;
	nfsstat4 status = op_resolve_sid(c, sid);

	if (!status)
		status = op_regular(i);
	if (status)
		return status;
	if (st_sid_special(sid)) { /* without permission it must not recall or evict anything */
		status =
			op_status(write ? ns_permission(i, &c->cred, 2) : ns_may_read(i, &c->cred));
		return status ? status : op_special_io(c, i->i_ino, need);
	}
	st_file_lock(st, i->i_ino);
	status = op_open_by_sid(c, sid, i->i_ino, &o);
	if (!status && !(o->o_access & need) &&
	    (write || !(o->o_access & OPEN4_SHARE_ACCESS_WRITE) || ns_may_read(i, &c->cred)))
		status = NFS4ERR_OPENMODE;
	if (!status && !any_user)
		status = op_user_access(c, i, need);
	st_file_unlock(st, i->i_ino);
	return status;
}

nfsstat4 op_io_access(struct compound *c, struct st_stateid *sid, const struct ns_inode *i,
		      bool write)
{
	return sid_access(c, sid, i, write, false);
}

nfsstat4 op_any_io_access(struct compound *c, struct st_stateid *sid, const struct ns_inode *i,
			  bool write)
{
	return sid_access(c, sid, i, write, true);
}

bool op_pin(struct op_pin *p, struct mds *m, uint64_t ino)
{
	struct st *st = m->m_st;
	struct st_file *f;
	bool ok;

	st_file_lock(st, ino);
	f = st_file_get(st, ino, true);
	ok = f && !f->f_nsizing && !f->f_nfrozen && !f->f_nrecalling;
	if (ok && !p->pin_m) {
		p->pin_m = m;
		p->pin_ino = ino;
		f->f_pins++;
	}
	if (ok)
		p->pin_sizegen = f->f_sizegen;
	if (f)
		st_file_put(st, f);
	st_file_unlock(st, ino);
	return ok;
}

bool op_pin_outdated(const struct op_pin *p)
{
	struct st_file *f;
	bool old;

	if (!p->pin_m)
		return false;
	st_file_lock(p->pin_m->m_st, p->pin_ino);
	f = st_file_get(p->pin_m->m_st, p->pin_ino, false);
	old = f->f_nsizing || f->f_sizegen != p->pin_sizegen;
	st_file_unlock(p->pin_m->m_st, p->pin_ino);
	return old;
}

void op_unpin(struct op_pin *p)
{
	struct st_file *f;

	if (!p->pin_m)
		return;
	st_file_lock(p->pin_m->m_st, p->pin_ino);
	f = st_file_get(p->pin_m->m_st, p->pin_ino, false);
	f->f_pins--;
	st_file_put(p->pin_m->m_st, f);
	st_file_unlock(p->pin_m->m_st, p->pin_ino);
	p->pin_m = NULL;
}

bool op_io_outdated(struct compound *c, const struct ns_inode *i, const struct lo_map *map)
{
	struct ns_inode now;
	struct lo_map is;

	return ns_get(c->m->m_ns, op_txn(c), i->i_ino, &now) == 0 &&
	       lo_map_decode(now.i_blob, &is) == 0 &&
	       (now.i_incarnation != i->i_incarnation || is.lm_epoch != map->lm_epoch);
}

int op_lost_err(struct compound *c, uint64_t ino, int err)
{
	struct ns_inode i;

	if (err != -ESTALE || ns_get(c->m->m_ns, op_txn(c), ino, &i))
		return err;
	log_error("inode %lu: cannot read or write it: no copy exists on its data servers "
		  "(docs/scrub.md)",
		  (unsigned long)ino);
	return -EIO;
}

nfsstat4 op_data_status(int err)
{
	return err == -ETIMEDOUT ? NFS4ERR_DELAY : op_status(err);
}

bool op_partial_reported(struct compound *c, uint64_t ino, uint64_t off, uint64_t end,
			 const struct lo_map *map, uint64_t objects, nfsstat4 reply, int why)
{
	struct st *st = c->m->m_st;
	bool noted = false;

	if (objects && map->lm_mirrors > 1 && reply == NFS4ERR_DELAY) {
		st_all_lock(st);
		noted = st_partial_note(st, c->client, ino, off, end);
		st_all_unlock(st);
	}
	return file_partial_done(&c->m->m_file, c->th->mt_loop, c->call, ino, map, objects,
				 noted ? why : -EIO, op_wake_ok, c);
}

void op_partial_over(struct compound *c, uint64_t ino, uint64_t off, uint64_t end)
{
	struct st *st = c->m->m_st;

	if (!atomic_load(&c->client->cl_npartials))
		return;
	st_all_lock(st);
	st_partial_over(st, c->client, ino, off, end);
	st_all_unlock(st);
}

static void io_wake(struct lo_io *io, int err)
{
	op_wake(hash_entry(io, struct io, io)->c, err);
}

static nfsstat4 io_prepare(struct compound *c, struct io *k)
{
	nfsstat4 st = op_cur_inode(c, &k->inode);
	bool taking;

	if (st)
		return st;
	if (k->inode.i_type == NS_REG && lo_map_decode(k->inode.i_blob, &k->io.io_map))
		return NFS4ERR_IO;
	/* The file was truncated, and a data server has not run the truncate yet. A READ must find
	 * no old byte below a new end, and the late truncate must not cut what a WRITE puts now. */
	if (k->inode.i_type == NS_REG &&
	    job_has_orders(c->m, c->th->mt_loop, &k->inode, &k->io.io_map))
		return op_all_gone(c->m, &k->io.io_map) ? NFS4ERR_IO : NFS4ERR_DELAY;
	if (c->opnum == OP_WRITE && file_lost_writes(&c->m->m_file, c->cur, &k->io.io_map))
		return NFS4ERR_DELAY;
	if (c->opnum == OP_WRITE && !op_pin(&k->pin, c->m, c->cur))
		return NFS4ERR_DELAY;
	if (c->opnum == OP_WRITE && k->io.io_map.lm_mirrors > 1 && k->count &&
	    !job_write_begin(&k->write, c->m, c->th->mt_loop, c->cur, c->client, k->off,
			     k->off + k->count))
		return NFS4ERR_DELAY;
	if (c->opnum == OP_READ && excl_hidden(&c->m->m_file, k->inode.i_ino))
		return NFS4ERR_DELAY;
	/* Layouts that are being recalled may name another first copy: the client would see a byte
	 * of this copy, and then that copy's byte. */
	k->io.io_same = c->opnum == OP_READ &&
			file_is_contended(&c->m->m_file, k->inode.i_ino, &k->io.io_map, &taking);
	if (k->io.io_same && taking)
		return NFS4ERR_DELAY;
	k->c = c;
	lo_io_fill(&k->io, c->th->mt_loop, &k->inode, k->off, k->count, io_wake);
	k->io.io_clear = !op_protected(c);
	return NFS4_OK;
}

static nfsstat4 io_go(struct compound *c, struct io *k)
{
	if (c->opnum == OP_READ) {
		if (k->off < k->inode.i_size && k->count > k->inode.i_size - k->off)
			k->io.io_count = (uint32_t)(k->inode.i_size - k->off);
		lo_read(c->m->m_lo, &k->io);
	} else if (c->opnum == OP_WRITE) {
		lo_write(c->m->m_lo, &k->io);
	} else {
		lo_commit(c->m->m_lo, &k->io);
	}
	return op_await(c, io_done);
}

static void io_fini(void *scratch)
{
	struct io *k = scratch;

	lo_buf_free(k->io.io_buf);
	excl_unblock(&k->hold);
	job_write_end(&k->write);
	op_unpin(&k->pin);
}

/* ---- READ ---- */

nfsstat4 op_read_args(struct compound *c, struct st_stateid *sid, uint64_t *off, uint32_t *count)
{
	struct ns_inode i;
	nfsstat4 st;

	op_get_stateid(c->in, sid);
	*off = xdr_get_u64(c->in);
	*count = xdr_get_u32(c->in);
	if (c->in->bad)
		return NFS4ERR_BADXDR;
	st = op_cur_inode(c, &i);
	if (!st)
		st = op_io_access(c, sid, &i, false);
	if (st)
		return st;
	if (*count > OP_MAX_IO)
		*count = OP_MAX_IO;
	rpc_call_expect(c->call, *count);
	if (*count)
		op_accessed(c, &i);
	return NFS4_OK;
}

nfsstat4 op_read(struct compound *c)
{
	struct io *k = op_scratch(c, sizeof(*k), io_fini);
	struct st_stateid sid;
	nfsstat4 st;

	if (!k)
		return NFS4ERR_DELAY;
	st = op_read_args(c, &sid, &k->off, &k->count);
	if (st)
		return st;
	return op_refresh(c, c->cur, false, read_go);
}

static void read_reply(struct compound *c, struct io *k, uint32_t n)
{
	xdr_put_bool(c->out, k->off + n >= k->inode.i_size);
	xdr_put_u32(c->out, n);
	if (n) {
		uint8_t *buf = k->io.io_buf;

		k->io.io_buf = NULL;
		xdr_put_ref(c->out, buf, n, lo_buf_free, buf);
	} else {
		xdr_put_ref(c->out, "", 0, NULL, NULL);
	}
}

static nfsstat4 read_go(struct compound *c, int err)
{
	struct io *k = c->scratch;
	nfsstat4 st;

	(void)err;
	st = io_prepare(c, k);
	if (st)
		return st;
	if (k->off >= k->inode.i_size || k->count == 0) {
		read_reply(c, k, 0);
		return NFS4_OK;
	}
	return io_go(c, k);
}

/* ---- WRITE ---- */

nfsstat4 op_write(struct compound *c)
{
	struct io *k = op_scratch(c, sizeof(*k), io_fini);
	struct st_stateid sid;
	struct ns_inode i;
	uint32_t stable, len;
	const uint8_t *data;
	nfsstat4 st;

	if (!k)
		return NFS4ERR_DELAY;
	op_get_stateid(c->in, &sid);
	k->off = xdr_get_u64(c->in);
	stable = xdr_get_u32(c->in);
	data = xdr_get_opaque(c->in, UINT32_MAX - 3, &len);
	if (c->in->bad || stable > FILE_SYNC4)
		return NFS4ERR_BADXDR;
	st = op_cur_inode(c, &i);
	if (!st)
		st = op_io_access(c, &sid, &i, true);
	if (st)
		return st;
	if (k->off > OP_MAX_FILE || len > OP_MAX_FILE - k->off)
		return NFS4ERR_FBIG;
	k->count = len;
	st = io_prepare(c, k);
	if (st)
		return st;
	/* The pin keeps new delegations away. This finds a delegation given before the pin. */
	if (st_sid_special(&sid) && op_deleg_stands(c, i.i_ino, OPEN4_SHARE_ACCESS_WRITE))
		return NFS4ERR_DELAY;
	if (len == 0) {
		xdr_put_u32(c->out, 0);
		xdr_put_u32(c->out, stable);
		xdr_put_u64(c->out, c->m->m_st->st_verifier);
		return NFS4_OK;
	}
	k->io.io_data = data;
	k->io.io_stable = stable;
	return io_go(c, k);
}

/* ---- COMMIT ---- */

/*
 * COMMIT has no stateid (RFC 8881 section 18.3). A user with write permission may commit. So may
 * the owner, who can always grant himself that permission, and a client that has the file open for
 * writing, whatever the file's mode says now. For other callers the data servers would work in
 * vain.
 */
static nfsstat4 commit_access(struct compound *c, const struct ns_inode *i)
{
	struct st *st = c->m->m_st;
	struct st_file *f;
	bool opened = false;

	if (!c->exp->g_ro && (i->i_uid == c->cred.cr_uid || !ns_permission(i, &c->cred, 2)))
		return NFS4_OK;
	st_file_lock(st, i->i_ino);
	f = st_file_get(st, i->i_ino, false);
	for (const struct st_open *o = f ? f->f_opens : NULL; o && !opened; o = o->o_fnext)
		opened = o->o_client == c->client && (o->o_access & OPEN4_SHARE_ACCESS_WRITE);
	st_file_unlock(st, i->i_ino);
	return opened ? NFS4_OK : NFS4ERR_ACCESS;
}

nfsstat4 op_commit(struct compound *c)
{
	struct io *k = op_scratch(c, sizeof(*k), io_fini);
	struct ns_inode i;
	nfsstat4 st;

	if (!k)
		return NFS4ERR_DELAY;
	k->off = xdr_get_u64(c->in);
	k->count = xdr_get_u32(c->in);
	if (c->in->bad)
		return NFS4ERR_BADXDR;
	st = op_cur_inode(c, &i);
	if (st)
		return st;
	st = op_regular(&i);
	if (!st)
		st = commit_access(c, &i);
	if (st)
		return st;
	st = io_prepare(c, k);
	return st ? st : io_go(c, k);
}

/* ---- the I/O is over ---- */

int op_data_changed(struct mds *m, struct kv_txn *t, uint64_t ino, const struct ns_cred *cred,
		    uint64_t end, uint64_t failed, const struct lo_map *by,
		    struct excl_layout_block *hold)
{
	struct ns_setattr s = {.s_mask =
				       NS_S_SIZE | NS_S_GROW_ONLY | NS_S_MTIME_NOW | NS_S_HAS_WRITE,
			       .s_size = end};
	struct ns *ns = m->m_ns;
	struct ns_inode i;
	struct lo_map map;
	uint64_t last;
	struct ns_time now = file_now();
	int err = ns_get(ns, t, ino, &i);

	if (err)
		return err;
	if (ns_mode_written(&i, cred) != i.i_mode) {
		s.s_mask |= NS_S_MODE;
		s.s_mode = ns_mode_written(&i, cred);
		s.s_mode_keep = 0777;
	}
	if (!failed)
		return ns_setattr(ns, t, ino, &s, NULL, now, &i);
	err = lo_map_decode(i.i_blob, &map);
	if (err)
		return err;
	/* A copy that did not take the change becomes stale before the client hears that the
	 * change succeeded. */
	lo_map_make_stale(&map, lo_map_same(by, failed, &map), &last);
	if (last) /* the copies that took the change have become stale meanwhile */
		return -EIO;
	err = excl_block(hold, &m->m_file, ino); /* may fail: so before anything is written */
	if (err)
		return err;
	err = ns_setattr(ns, t, ino, &s, NULL, now, &i);
	return err ? err : excl_stale(hold, &m->m_file, t, ino, &map, file_now());
}

static int write_run(struct kv_op *op, struct kv_txn *t)
{
	struct compound *c = op_of(op);
	struct io *k = c->scratch;

	k->again = c->once_none = op_pin_outdated(&k->pin);
	return k->again ? 0
			: op_data_changed(c->m, t, c->cur, &c->cred, k->off + k->count,
					  k->io.io_failed_map, &k->io.io_map, &k->hold);
}

static void write_put(struct compound *c, struct xdr_out *x, struct op_after *after)
{
	const struct io *k = c->scratch;

	(void)after;
	xdr_put_u32(x, k->count);
	xdr_put_u32(x, k->io.io_committed);
	xdr_put_u64(x, k->io.io_verifier);
}

/* Does the I/O once more, with the present map, epoch and size. */
static nfsstat4 io_again(struct compound *c, struct io *k)
{
	nfsstat4 st;

	if (k->tries++ >= IO_TRIES)
		return NFS4ERR_DELAY;
	k->again = false;
	st = io_prepare(c, k);
	return st ? st : io_go(c, k);
}

/* half: objects of the map that may have the write already, while others do not. If it is not done
 * once more now, op_partial_reported remembers it until the client has sent the write again. */
static nfsstat4 io_redo(struct compound *c, struct io *k, uint64_t half)
{
	struct lo_map was = k->io.io_map;
	nfsstat4 st = io_again(c, k);

	if (st == OP_PARKED || c->opnum != OP_WRITE)
		return st;
	k->failed = st;
	return op_partial_reported(c, c->cur, k->off, k->off + k->count, &was, half, k->failed,
				   -EACCES)
		       ? op_await(c, io_failed)
		       : k->failed;
}

/* The I/O failed: some copies may have the change, others not. */
static bool io_partial(struct compound *c, struct io *k, int err)
{
	if (c->opnum == OP_WRITE)
		return op_partial_reported(c, c->cur, k->off, k->off + k->count, &k->io.io_map,
					   k->io.io_half_map, k->failed, err);
	return file_partial_done(&c->m->m_file, c->th->mt_loop, c->call, c->cur, &k->io.io_map,
				 c->opnum == OP_READ ? 0 : k->io.io_half_map, err, op_wake_ok, c);
}

static nfsstat4 io_done(struct compound *c, int err)
{
	struct io *k = c->scratch;

	/* The file was fenced after its map was read: the servers that denied the write are not to
	 * blame. Other servers took it. */
	if (!err && k->io.io_denied && k->io.io_failed_map &&
	    op_io_outdated(c, &k->inode, &k->io.io_map)) {
		k->io.io_half_map = lo_writers(&k->io.io_map);
		err = -EACCES;
	}
	/* No fence is under way, and a server still denies the write. Such a copy must not keep the
	 * other copies from being written. */
	k->io.io_denied = err == -EACCES && c->opnum != OP_READ && k->tries + 1 == IO_TRIES &&
			  !op_io_outdated(c, &k->inode, &k->io.io_map) &&
			  !lo_objects_with_orders(c->m->m_lo, k->inode.i_ino, &k->io.io_map);
	/* The file was fenced, or its data moved, after its map was read. A read may have got half
	 * of the state before and half of the state after. */
	if (err == -EACCES || ((err == -ESTALE || (!err && c->opnum == OP_READ)) &&
			       op_io_outdated(c, &k->inode, &k->io.io_map))) {
		lo_buf_free(k->io.io_buf);
		k->io.io_buf = NULL;
		return io_redo(c, k, k->io.io_half_map);
	}
	if (err && k->io.io_same &&
	    file_first_lost(&c->m->m_file, c->th->mt_loop, c->call, k->inode.i_ino, &k->io.io_map,
			    k->io.io_failed_map, op_wake, c))
		return op_await(c, read_first_left);
	err = op_lost_err(c, k->inode.i_ino, err);
	if (err) {
		k->failed = op_read_status(c->m, &k->io.io_map, err);
		/* The client does not retry after NFS4ERR_IO: the write failed for good. */
		err = k->failed == NFS4ERR_IO ? -EIO : err;
		return io_partial(c, k, err) ? op_await(c, io_failed) : k->failed;
	}
	if (c->opnum == OP_READ || c->opnum == OP_WRITE)
		op_heat_io(c, &k->inode, k->io.io_count, c->opnum == OP_WRITE);
	if (c->opnum == OP_READ) {
		read_reply(c, k, k->io.io_count);
		return NFS4_OK;
	}
	if (c->opnum == OP_WRITE)
		return op_mutate(c, write_run, write_put, write_committed);
	if (!k->io.io_failed_map)
		return write_reply(c, 0);
	/* grows nothing, records the stale copies; idempotent: no durable reply */
	k->off = k->count = 0;
	return op_mutate_again(c, write_run, write_committed);
}

static nfsstat4 read_first_left(struct compound *c, int err)
{
	return err ? op_status(err) : io_redo(c, c->scratch, 0);
}

/* Clients' layouts may name copies that became stale: those layouts come back before the WRITE is
 * answered. */
static nfsstat4 write_committed(struct compound *c, int err)
{
	struct io *k = c->scratch;

	if (!err && k->again)
		return io_redo(c, k, k->io.io_failed_map ? lo_writers(&k->io.io_map) : 0);
	/* The copies that took the write became stale, or the store cannot record the copies that
	 * did not take it: the copies differ. */
	k->failed = op_status(err);
	if (err && k->io.io_failed_map &&
	    file_partial_done(&c->m->m_file, c->th->mt_loop, c->call, c->cur, &k->io.io_map,
			      lo_writers(&k->io.io_map), err, op_wake_ok, c))
		return op_await(c, io_failed);
	if (!err && k->io.io_failed_map &&
	    excl_recall_stale(&k->hold, &c->m->m_file, c->th->mt_loop, c->cur, NULL, op_wake, c))
		return op_await_client(c, write_reply);
	return write_reply(c, err);
}

static nfsstat4 write_reply(struct compound *c, int err)
{
	struct io *k = c->scratch;

	if (err)
		return op_status(err);
	if (c->opnum == OP_WRITE) {
		op_partial_over(c, c->cur, k->off, k->off + k->count);
		return op_result(c, write_put);
	}
	xdr_put_u64(c->out, k->io.io_verifier);
	return NFS4_OK;
}

static nfsstat4 io_failed(struct compound *c, int err)
{
	(void)err;
	return ((struct io *)c->scratch)->failed;
}
