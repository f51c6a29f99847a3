/* SPDX-License-Identifier: Apache-2.0 */
/*
 * data_ops.c - SEEK, ALLOCATE, DEALLOCATE, READ_PLUS, IO_ADVISE (RFC 7862 sections 15.1, 15.4,
 * 15.5, 15.10, 15.11); docs/copy.md says what each does to stripes and mirrors.
 *
 *	op_seek			may the caller? The file's size is asked for
 *	seek_go			the data servers look for data or a hole
 *	seek_done		the answer
 *
 *	change_op		ALLOCATE, DEALLOCATE: may the caller? The file's size is asked for
 *	change_begin		reads the file, and freezes it where needed
 *	change_frozen		change_start: the data servers do it in every copy
 *	change_done		change_record_run: size, change attribute and stale copies
 *	change_committed	layouts that name stale copies come back
 *	change_count		the space that the file takes is asked for, and the answer is given
 *	change_failed		the copies that may differ after a failure are judged: the answer
 *
 *	op_read_plus		may the caller? The file's size is asked for
 *	read_plus_go		the data servers read
 *	read_plus_done		the answer, or only zeros came: where is the next data?
 *	read_plus_sought	the answer: a hole
 */
#include "mds/nfs4/op.h"
#include "mds/nfs4/credentials.h"
#include "mds/nfs4/op_attr.h"
#include "mds/nfs4/op_heat.h"
#include "mds/nfs4/op_state.h"
#include <errno.h>

#define DATA_TRIES 3

/* Reads the file from a fresh snapshot, for a job on its data. DELAY: a data server has not run a
 * truncate or a fence yet. */
static nfsstat4 data_inode(struct compound *c, struct ns_inode *i, struct lo_map *map)
{
	nfsstat4 st;

	op_txn_stale(c->th);
	st = op_cur_inode(c, i);
	if (st)
		return st;
	if (lo_map_decode(i->i_blob, map))
		return NFS4ERR_IO;
	return job_has_orders(c->m, c->th->mt_loop, i, map) ? NFS4ERR_DELAY : NFS4_OK;
}

/* ---- SEEK ---- */

enum { CONTENT_DATA = 0, CONTENT_HOLE = 1 };

struct seek {
	struct lo_seek lk;
	struct compound *c;
	uint64_t size;
};

static op_step seek_go, seek_done;

nfsstat4 op_seek(struct compound *c)
{
	struct seek *k = op_scratch(c, sizeof(*k), NULL);
	struct st_stateid sid;
	struct ns_inode i;
	uint32_t what;
	nfsstat4 st;

	if (!k)
		return NFS4ERR_DELAY;
	op_get_stateid(c->in, &sid);
	k->lk.lk_off = xdr_get_u64(c->in);
	what = xdr_get_u32(c->in);
	if (c->in->bad)
		return NFS4ERR_BADXDR;
	if (what != CONTENT_DATA && what != CONTENT_HOLE)
		return NFS4ERR_UNION_NOTSUPP;
	k->lk.lk_hole = what == CONTENT_HOLE;
	st = op_cur_inode(c, &i);
	if (!st)
		st = op_any_io_access(c, &sid, &i, false);
	if (st)
		return st;
	return op_refresh(c, i.i_ino, false, seek_go);
}

static void seek_wake(struct lo_seek *lk, int err)
{
	op_wake(hash_entry(lk, struct seek, lk)->c, err);
}

static nfsstat4 seek_go(struct compound *c, int err)
{
	struct seek *k = c->scratch;
	struct ns_inode i;
	nfsstat4 st = data_inode(c, &i, &k->lk.lk_map);
	bool taking;

	(void)err;
	if (st)
		return st;
	k->size = i.i_size;
	if (k->lk.lk_off >= k->size)
		return NFS4ERR_NXIO;
	k->lk.lk_same = file_is_contended(&c->m->m_file, i.i_ino, &k->lk.lk_map, &taking);
	if (taking)
		return NFS4ERR_DELAY;
	k->c = c;
	k->lk.lk_loop = c->th->mt_loop;
	k->lk.lk_ino = i.i_ino;
	k->lk.lk_incarnation = i.i_incarnation;
	k->lk.lk_done = seek_wake;
	lo_seek(c->m->m_lo, &k->lk);
	return op_await(c, seek_done);
}

static nfsstat4 seek_reply(struct compound *c, struct seek *k)
{
	bool found = k->lk.lk_found && k->lk.lk_at < k->size;

	/* Behind the end every file has a hole (section 15.11.3). */
	xdr_put_bool(c->out, !found);
	xdr_put_u64(c->out, found ? k->lk.lk_at : k->size);
	return NFS4_OK;
}

static nfsstat4 seek_done(struct compound *c, int err)
{
	struct seek *k = c->scratch;
	const struct lo_seek *lk = &k->lk;

	if (err && lk->lk_same &&
	    file_first_lost(&c->m->m_file, lk->lk_loop, NULL, lk->lk_ino, &lk->lk_map,
			    lk->lk_failed, NULL, NULL))
		err = -ETIMEDOUT;
	return err ? op_read_status(c->m, &lk->lk_map, err) : seek_reply(c, k);
}

/* ---- ALLOCATE and DEALLOCATE ---- */

/*
 * ALLOCATE changes no byte, so it conflicts with nothing: it reserves space in every copy, then
 * commits the size. DEALLOCATE of a mirrored file must come in the same order among the writes in
 * each copy: so it freezes the file. A single copy has one order anyway.
 */
struct change {
	struct lo_change lc;
	struct excl freeze;
	struct op_pin pin;
	struct excl_layout_block hold;
	struct compound *c;
	struct ns_inode inode;
	/* stale: objects that became stale before the change, because their servers are silent */
	uint64_t ino, off, len, failed, stale;
	unsigned tries;
	bool outdated, grows;
	nfsstat4 status;
};

static op_step change_begin, change_frozen, change_done, change_committed, change_count,
	change_failed;
static nfsstat4 change_start(struct compound *c, struct change *k);

static void change_fini(void *scratch)
{
	struct change *k = scratch;

	excl_end(&k->freeze, 0);
	excl_unblock(&k->hold);
	op_unpin(&k->pin);
}

static nfsstat4 change_op(struct compound *c)
{
	struct change *k = op_scratch(c, sizeof(*k), change_fini);
	struct st_stateid sid;
	struct ns_inode i;
	nfsstat4 st;

	if (!k)
		return NFS4ERR_DELAY;
	op_get_stateid(c->in, &sid);
	k->off = xdr_get_u64(c->in);
	k->len = xdr_get_u64(c->in);
	if (c->in->bad)
		return NFS4ERR_BADXDR;
	st = op_cur_inode(c, &i);
	if (st)
		return st;
	if (i.i_type != NS_REG)
		return NFS4ERR_WRONG_TYPE;
	st = op_any_io_access(c, &sid, &i, true);
	if (st)
		return st;
	if (!k->len || k->len > UINT64_MAX - k->off)
		return NFS4ERR_INVAL;
	if (k->off > OP_MAX_FILE || k->len > OP_MAX_FILE - k->off) {
		if (c->opnum == OP_ALLOCATE)
			return NFS4ERR_FBIG;
		if (k->off >= OP_MAX_FILE)
			return NFS4_OK; /* no file has bytes there */
		k->len = OP_MAX_FILE - k->off;
	}
	k->c = c;
	k->ino = i.i_ino;
	return op_refresh(c, k->ino, false, change_begin);
}

nfsstat4 op_allocate(struct compound *c)
{
	return change_op(c);
}

nfsstat4 op_deallocate(struct compound *c)
{
	return change_op(c);
}

static unsigned copies(const struct lo_map *map)
{
	unsigned most = 0;

	for (unsigned s = 0; s < map->lm_stripes; s++) {
		unsigned n = 0;

		while (lo_writer(map, s, n) >= 0)
			n++;
		most = n > most ? n : most;
	}
	return most;
}

static nfsstat4 change_begin(struct compound *c, int err)
{
	struct change *k = c->scratch;
	struct ns_inode i;
	struct lo_map map;
	nfsstat4 st;

	(void)err;
	if (k->tries++ >= DATA_TRIES)
		return NFS4ERR_DELAY;
	st = data_inode(c, &i, &map);
	if (st)
		return st;
	excl_end(&k->freeze, 0);
	if (c->opnum == OP_DEALLOCATE && copies(&map) > 1) {
		excl_begin(&k->freeze, &c->m->m_file, c->th->mt_loop, k->ino, NULL, EXCL_WRITES,
			   op_wake, c);
		return op_await_client(c, change_frozen);
	}
	return op_pin(&k->pin, c->m, k->ino) ? change_start(c, k) : NFS4ERR_DELAY;
}

static nfsstat4 change_frozen(struct compound *c, int err)
{
	return err ? op_data_status(err) : change_start(c, c->scratch);
}

static void change_wake(struct lo_change *lc, int err)
{
	op_wake(hash_entry(lc, struct change, lc)->c, err);
}

static nfsstat4 change_start(struct compound *c, struct change *k)
{
	struct ns_inode i;
	nfsstat4 st = data_inode(c, &i, &k->lc.lc_map);

	if (st)
		return st;
	k->inode = i;
	k->failed = 0;
	k->stale |= k->freeze.ex_silent;
	k->lc.lc_loop = c->th->mt_loop;
	k->lc.lc_ino = i.i_ino;
	k->lc.lc_incarnation = i.i_incarnation;
	k->lc.lc_kind = c->opnum == OP_ALLOCATE ? LO_ALLOCATE : LO_DEALLOCATE;
	k->lc.lc_off = k->off;
	k->lc.lc_len = k->len;
	k->lc.lc_done = change_wake;
	k->grows = c->opnum == OP_ALLOCATE && k->off + k->len > i.i_size;
	lo_change(c->m->m_lo, &k->lc);
	return op_await(c, change_done);
}

/* Ends with k->status. Some copies may have the hole, others not: those are judged before. */
static nfsstat4 change_half(struct compound *c, struct change *k, const struct lo_map *map,
			    uint64_t half, int err)
{
	return c->opnum == OP_DEALLOCATE && op_partial_reported(c, k->ino, k->off, k->off + k->len,
								map, half, k->status, err)
		       ? op_await(c, change_failed)
		       : k->status;
}

static nfsstat4 change_redo(struct compound *c, struct change *k)
{
	struct lo_map was = k->lc.lc_map;
	uint64_t half = k->lc.lc_half_map;
	nfsstat4 st = change_begin(c, 0);

	if (st == OP_PARKED)
		return st;
	k->status = st;
	return change_half(c, k, &was, half, -EACCES);
}

static int change_record_run(struct kv_op *op, struct kv_txn *t)
{
	struct compound *c = op_of(op);
	struct change *k = c->scratch;

	k->outdated = c->once_none = op_pin_outdated(&k->pin);
	return k->outdated ? 0
			   : op_data_changed(c->m, t, k->ino, &c->cred,
					     c->opnum == OP_ALLOCATE ? k->off + k->len : 0,
					     k->failed, &k->lc.lc_map, &k->hold);
}

static nfsstat4 change_done(struct compound *c, int err)
{
	struct change *k = c->scratch;
	struct lo_change *lc = &k->lc;

	if (err == -EACCES || (err == -ESTALE && op_io_outdated(c, &k->inode, &lc->lc_map)))
		return change_redo(c, k);
	if (err) {
		k->status = op_data_status(err);
		return change_half(c, k, &lc->lc_map, lc->lc_half_map, err);
	}
	if (lc->lc_kind == LO_ALLOCATE && k->grows) {
		/* ALLOCATE beyond the end also moves the objects' ends. A data server reports the
		 * end of an unstriped file from its object. And a scrub takes a last byte that is
		 * in no object for lost. */
		uint64_t failed = lc->lc_failed_map;

		for (unsigned i = 0; i < lo_objects(&lc->lc_map); i++)
			if (failed >> i & 1)
				lc->lc_map.lm_obj[i].ob_state = LO_STALE;
		k->failed = failed;
		lc->lc_kind = LO_EXTEND;
		lc->lc_off = k->off + k->len - 1;
		lc->lc_len = 1;
		lo_change(c->m->m_lo, lc);
		return op_await(c, change_done);
	}
	k->failed |= lc->lc_failed_map;
	return op_mutate(c, change_record_run, op_put_nothing, change_committed);
}

static nfsstat4 change_committed(struct compound *c, int err)
{
	struct change *k = c->scratch;

	if (!err && k->outdated)
		return change_begin(c, 0);
	excl_end(&k->freeze, 0);
	if (!err && c->opnum == OP_DEALLOCATE)
		op_partial_over(c, k->ino, k->off, k->off + k->len);
	k->status = op_status(err);
	if (err && k->failed &&
	    file_partial_done(&c->m->m_file, c->th->mt_loop, c->call, k->ino, &k->lc.lc_map,
			      c->opnum == OP_DEALLOCATE ? lo_writers(&k->lc.lc_map) : 0, err,
			      op_wake_ok, c))
		return op_await(c, change_failed);
	/* Clients' layouts may name copies that became stale: those layouts come back. */
	if (!err && (k->failed | k->stale) &&
	    excl_recall_stale(&k->hold, &c->m->m_file, c->th->mt_loop, k->ino, NULL, op_wake, c))
		return op_await_client(c, change_count);
	return change_count(c, err);
}

/* Queries the space that the file takes before the reply: space_used must show the change (sections
 * 15.1.3 and 15.4.3). If a server does not answer, a later query counts it. */
static nfsstat4 change_count(struct compound *c, int err)
{
	struct change *k = c->scratch;

	return err ? op_status(err) : op_refresh(c, k->ino, true, op_step_ok);
}

static nfsstat4 change_failed(struct compound *c, int err)
{
	(void)err;
	return ((struct change *)c->scratch)->status;
}

/* ---- READ_PLUS ---- */

struct read_plus {
	struct lo_io io;
	struct lo_seek lk;
	struct compound *c;
	struct ns_inode inode;
	uint64_t off;
	uint32_t count;
	bool locked; /* the stateid is a lock's: the reply must not go beyond the request's range */
	unsigned tries;
};

static op_step read_plus_go, read_plus_done, read_plus_sought;

static void read_plus_fini(void *scratch)
{
	lo_buf_free(((struct read_plus *)scratch)->io.io_buf);
}

nfsstat4 op_read_plus(struct compound *c)
{
	struct read_plus *k = op_scratch(c, sizeof(*k), read_plus_fini);
	struct st_stateid sid;
	nfsstat4 st;

	if (!k)
		return NFS4ERR_DELAY;
	st = op_read_args(c, &sid, &k->off, &k->count);
	if (st)
		return st;
	k->locked = st_sid_ours(c->m->m_st, &sid, ST_SID_LOCK);
	return op_refresh(c, c->cur, false, read_plus_go);
}

static void read_plus_wake(struct lo_io *io, int err)
{
	op_wake(hash_entry(io, struct read_plus, io)->c, err);
}

static nfsstat4 read_plus_go(struct compound *c, int err)
{
	struct read_plus *k = c->scratch;
	nfsstat4 st = data_inode(c, &k->inode, &k->io.io_map);
	bool taking;

	(void)err;
	if (st)
		return st;
	k->io.io_same = file_is_contended(&c->m->m_file, k->inode.i_ino, &k->io.io_map, &taking);
	if (taking || excl_hidden(&c->m->m_file, k->inode.i_ino))
		return NFS4ERR_DELAY;
	if (k->off >= k->inode.i_size || !k->count) {
		xdr_put_bool(c->out, k->off >= k->inode.i_size);
		xdr_put_u32(c->out, 0);
		return NFS4_OK;
	}
	k->c = c;
	lo_io_fill(&k->io, c->th->mt_loop, &k->inode, k->off, k->count, read_plus_wake);
	k->io.io_clear = !op_protected(c);
	lo_read(c->m->m_lo, &k->io);
	return op_await(c, read_plus_done);
}

/* Shorter runs of zeros go out as data: a segment costs more than they do. */
#define HOLE_MIN  65536u
#define ZERO_STEP 4096u

/* The buffer of one reply, to which its segments refer. */
struct shared_buf {
	uint8_t *shb_data;
	unsigned shb_refs;
};

static void shared_put(void *arg)
{
	struct shared_buf *sb = arg;

	if (--sb->shb_refs)
		return;
	lo_buf_free(sb->shb_data);
	free(sb);
}

static bool all_zero(const uint8_t *p, size_t n)
{
	return !n || (!p[0] && !memcmp(p, p + 1, n - 1));
}

/* How many bytes from p on are of one kind: zeros in whole steps of the file, or other bytes? */
static uint32_t data_ops_run_of(const uint8_t *p, uint32_t left, uint64_t off, bool *zero)
{
	uint32_t n = 0;

	while (n < left) {
		uint32_t step = ZERO_STEP - (uint32_t)((off + n) % ZERO_STEP);
		bool z;

		step = step < left - n ? step : left - n;
		z = all_zero(p + n, step);
		if (!n)
			*zero = z;
		else if (z != *zero)
			break;
		n += step;
	}
	return n;
}

/* The next segment: a hole, or data with the short holes in it. */
static uint32_t read_plus_segment(const uint8_t *p, uint32_t left, uint64_t off, bool *hole)
{
	uint32_t n = 0;

	*hole = false;
	while (n < left) {
		bool zero;
		uint32_t run = data_ops_run_of(p + n, left - n, off + n, &zero);

		if (zero && (run >= HOLE_MIN || run == left)) {
			*hole = !n;
			return n ? n : run;
		}
		n += run;
	}
	return n;
}

static void read_plus_put_hole(struct xdr_out *x, uint64_t off, uint64_t len)
{
	xdr_put_u32(x, CONTENT_HOLE);
	xdr_put_u64(x, off);
	xdr_put_u64(x, len);
}

static nfsstat4 read_plus_segments(struct compound *c, struct read_plus *k)
{
	struct shared_buf *sb = calloc(1, sizeof(*sb));
	uint32_t n = k->io.io_count, segments = 0;
	size_t at;

	if (!sb)
		return NFS4ERR_DELAY;
	sb->shb_data = k->io.io_buf;
	sb->shb_refs = 1;
	k->io.io_buf = NULL;
	xdr_put_bool(c->out, k->off + n >= k->inode.i_size);
	at = c->out->x_len;
	xdr_put_u32(c->out, 0);
	for (uint32_t done = 0, len; done < n; done += len, segments++) {
		bool hole;

		len = read_plus_segment(sb->shb_data + done, n - done, k->off + done, &hole);
		if (hole) {
			read_plus_put_hole(c->out, k->off + done, len);
			continue;
		}
		xdr_put_u32(c->out, CONTENT_DATA);
		xdr_put_u64(c->out, k->off + done);
		xdr_put_u32(c->out, len);
		sb->shb_refs++;
		/* RFC 8267 does not make it eligible for direct data placement. */
		xdr_put_ref_plain(c->out, sb->shb_data + done, len, shared_put, sb);
	}
	xdr_patch_u32(c->out, at, segments);
	shared_put(sb);
	return NFS4_OK;
}

static void read_plus_seek_wake(struct lo_seek *lk, int err)
{
	op_wake(hash_entry(lk, struct read_plus, lk)->c, err);
}

static nfsstat4 read_plus_done(struct compound *c, int err)
{
	struct read_plus *k = c->scratch;
	struct lo_io *io = &k->io;

	if ((err == -EACCES ||
	     ((err == -ESTALE || !err) && op_io_outdated(c, &k->inode, &k->io.io_map))) &&
	    k->tries++ < DATA_TRIES) {
		lo_buf_free(io->io_buf);
		io->io_buf = NULL;
		return read_plus_go(c, 0);
	}
	if (err && io->io_same &&
	    file_first_lost(&c->m->m_file, io->io_loop, NULL, k->inode.i_ino, &io->io_map,
			    io->io_failed_map, NULL, NULL))
		err = -ETIMEDOUT;
	if (err)
		return op_read_status(c->m, &io->io_map, op_lost_err(c, k->inode.i_ino, err));
	op_heat_io(c, &k->inode, io->io_count, false);
	if (io->io_count && !k->locked && all_zero(io->io_buf, io->io_count)) {
		k->lk.lk_loop = io->io_loop;
		k->lk.lk_ino = k->inode.i_ino;
		k->lk.lk_incarnation = k->inode.i_incarnation;
		k->lk.lk_map = io->io_map;
		k->lk.lk_same = io->io_same;
		k->lk.lk_off = k->off + io->io_count;
		k->lk.lk_done = read_plus_seek_wake;
		lo_seek(c->m->m_lo, &k->lk);
		return op_await(c, read_plus_sought);
	}
	return read_plus_segments(c, k);
}

/* All that was read is zeros: one hole, up to the next data. */
static nfsstat4 read_plus_hole(struct compound *c, const struct read_plus *k, uint64_t end)
{
	xdr_put_bool(c->out, k->off + k->count >= k->inode.i_size);
	xdr_put_u32(c->out, 1);
	read_plus_put_hole(c->out, k->off, end - k->off);
	return NFS4_OK;
}

static nfsstat4 read_plus_sought(struct compound *c, int err)
{
	const struct read_plus *k = c->scratch;
	const struct lo_seek *lk = &k->lk;
	uint64_t end = k->off + k->io.io_count,
		 next = lk->lk_found && lk->lk_at < k->inode.i_size ? lk->lk_at : k->inode.i_size;

	/* Zeros in allocated blocks are data to the servers, and a hole to the client: so the hole
	 * ends behind the bytes read at the earliest. */
	return read_plus_hole(c, k, !err && next > end ? next : end);
}

/* ---- IO_ADVISE ---- */

/* Follows no hint, and says so in the reply (section 15.5.3). */
nfsstat4 op_io_advise(struct compound *c)
{
	struct st *st = c->m->m_st;
	struct st_stateid sid;
	struct op_bitmap hints;
	struct st_open *o;
	struct ns_inode i;
	nfsstat4 status;
	uint64_t off, len;
	bool extra;

	op_get_stateid(c->in, &sid);
	off = xdr_get_u64(c->in);
	len = xdr_get_u64(c->in);
	op_get_bitmap(c->in, &hints, &extra);
	if (c->in->bad)
		return NFS4ERR_BADXDR;
	status = op_cur_inode(c, &i);
	if (!status)
		status = op_regular(&i);
	if (!status)
		status = op_resolve_sid(c, &sid);
	if (status)
		return status;
	if (len && len != NFS4_UINT64_MAX && len > NFS4_UINT64_MAX - off)
		return NFS4ERR_INVAL;
	if (st_sid_special(&sid)) {
		/* Without permission the caller must not recall or evict anything. */
		status = op_status(ns_may_read(&i, &c->cred));
		if (!status)
			status = op_special_io(c, i.i_ino, OPEN4_SHARE_ACCESS_READ);
		status = status == NFS4ERR_LOCKED ? NFS4ERR_ACCESS : status;
	} else {
		st_file_lock(st, i.i_ino);
		status = op_open_by_sid(c, &sid, i.i_ino, &o);
		st_file_unlock(st, i.i_ino);
	}
	if (!status)
		xdr_put_u32(c->out, 0);
	return status;
}
