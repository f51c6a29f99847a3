/* SPDX-License-Identifier: Apache-2.0 */
/*
 * copy.c - COPY inside this server, OFFLOAD_STATUS, OFFLOAD_CANCEL (RFC 7862 sections 4, 15.2,
 * 15.8, 15.9). docs/copy.md says what a client may rely on.
 *
 * The steps of the COMPOUND:
 *
 *	op_copy		may the caller? The source's size is asked for
 *	copy_go		makes the job. An asynchronous copy is answered; a synchronous one waits
 *			for it
 *	copy_durable	the job has no more to copy: its answer becomes durable
 *	copy_answered	layouts that name copies which became stale come back
 *	copy_reply	the answer; the job is freed
 *
 * The job runs on one loop. An asynchronous one ends with CB_OFFLOAD (copy_end). For each piece of
 * the range, copy_step
 *
 *	checks		that the caller may still do this (copy_stands)
 *	reads		from a copy in sync (copy_read), or lets the data servers copy the piece by
 *			themselves (copy_local, copy_changed)
 *	writes		to all copies in sync (copy_written)
 *	records		size, change attribute and stale copies, as a WRITE does (copy_recorded)
 *
 * At the end the data servers commit (copy_commit). The size of a piece is bounded, and so is the
 * number of a loop's jobs with a piece in hand. The other jobs wait in a queue, round robin.
 */
#include "mds/nfs4/op.h"
#include "mds/nfs4/credentials.h"
#include "mds/nfs4/op_attr.h"
#include "mds/namespace/ns_trash.h"
#include "mds/nfs4/op_state.h"
#include "base/log.h"
#include <errno.h>

#define COPY_PIECE	(4u << 20)
#define COPY_LOCAL	(64u << 20)   /* the piece that data servers copy by themselves */
#define COPY_RUNNING	4	      /* jobs of a loop with a piece in hand */
#define COPY_TURN	8	      /* pieces of a job before waiting jobs run */
#define COPY_ASYNC	(16ull << 20) /* larger copies are asynchronous, if the client allows it */
#define COPY_WAIT_MS	100
#define COPY_WAITS	300 /* in a row; then the copy fails */
#define COPY_DENIALS	2
#define COPY_SYNC_WAITS 50	       /* the same for a synchronous copy */
#define COPY_SYNC_MAX	(256ull << 20) /* most bytes of a synchronous copy, which holds its slot */

struct op_copy {
	struct op_copy *cp_next; /* the next job in the queue */
	struct mds *m;
	struct mds_thread *th;
	struct compound *c;    /* of a synchronous copy: parked */
	struct st_offload *of; /* of an asynchronous copy */
	struct ns_cred cred;
	uint64_t src, dst, src_off, dst_off, count, done;
	struct lo_io io;
	struct lo_change lc; /* where the data servers copy by themselves */
	uint8_t *buf;
	uint64_t len, failed;
	const struct lo_map *by; /* the map that failed belongs to */
	/* objects of half_map that may have the piece in hand, while others do not */
	uint64_t half;
	struct lo_map half_map;
	struct op_pin pin;
	struct job_write write; /* the piece in hand, of a mirrored file */
	struct excl_layout_block hold;
	struct op_still_valid stand;
	struct kv_op op;
	struct loop_timer timer;
	unsigned waits, turn, denials; /* denials: in a row */
	bool outdated, wrote, never_local;
	bool clear;  /* the COPY request was not protected by TLS or Kerberos */
	bool missed; /* some copies did not commit: io_failed_map */
	int piece_err;
	uint64_t verifier;
	uint32_t committed;
	int err;
};

struct copy_args {
	struct st_stateid src_sid, dst_sid;
	uint64_t src, src_off, dst_off, count;
	bool synchronous;
	uint32_t nservers;
	struct op_copy *job; /* the compound waits for it */
};

static op_step copy_go, copy_durable, copy_answered, copy_reply;
static void copy_step(struct op_copy *j);
static void copy_read(struct lo_io *io, int err);
static void copy_written(struct lo_io *io, int err);
static void copy_changed(struct lo_change *lc, int err);
static void copy_recorded(struct kv_op *op, int err);
static void copy_commit(struct op_copy *j);
static void copy_committed(struct lo_io *io, int err);
static void copy_answer(struct op_copy *j);
static void copy_stale_done(struct kv_op *op, int err);
static void copy_end(struct op_copy *j);

/* ---- the queue ---- */

/* Starts jobs of the queue. Not recursive: a job may end in its first step. */
static void copy_next(struct mds_thread *th)
{
	if (th->mt_copies_next)
		return;
	th->mt_copies_next = true;
	while (th->mt_copying < COPY_RUNNING && th->mt_copies) {
		struct op_copy *j = th->mt_copies;

		th->mt_copies = j->cp_next;
		th->mt_copying++;
		j->turn = 0;
		copy_step(j);
	}
	th->mt_copies_next = false;
}

static void copy_queue(struct op_copy *j)
{
	struct mds_thread *th = j->th;

	if (!th->mt_copies)
		th->mt_copies_end = &th->mt_copies;
	j->cp_next = NULL;
	*th->mt_copies_end = j;
	th->mt_copies_end = &j->cp_next;
	copy_next(th);
}

static void copy_wake(struct loop_timer *t)
{
	copy_queue(hash_entry(t, struct op_copy, timer));
}

/* Begins in a later pass of the loop: the request is parked or answered first. */
static void copy_start(struct op_copy *j)
{
	loop_timer_start(j->th->mt_loop, &j->timer, 0);
}

/* The job gave its place up while op_still_valid waited. */
static void copy_stood(void *arg)
{
	copy_queue(arg);
}

/* The job has no piece in hand: another job may run. */
static void copy_leave(struct op_copy *j)
{
	j->th->mt_copying--;
	copy_next(j->th);
}

/* ---- COPY ---- */

/* netloc4: a name, a URL, or an address of two strings. */
static void get_netloc(struct xdr_in *x)
{
	uint32_t type = xdr_get_u32(x), len;

	xdr_get_opaque(x, NFS4_OPAQUE_LIMIT, &len);
	if (type == 3)
		xdr_get_opaque(x, NFS4_OPAQUE_LIMIT, &len);
	else if (type != 1 && type != 2)
		x->bad = true;
}

static nfsstat4 copy_decode(struct compound *c, struct copy_args *a)
{
	op_get_stateid(c->in, &a->src_sid);
	op_get_stateid(c->in, &a->dst_sid);
	a->src_off = xdr_get_u64(c->in);
	a->dst_off = xdr_get_u64(c->in);
	a->count = xdr_get_u64(c->in);
	xdr_get_bool(c->in); /* consecutive: copies are always consecutive here */
	a->synchronous = xdr_get_bool(c->in);
	a->nservers = xdr_get_u32(c->in);
	for (uint32_t n = a->nservers; n && !c->in->bad; n--)
		get_netloc(c->in);
	return c->in->bad ? NFS4ERR_BADXDR : NFS4_OK;
}

nfsstat4 op_two_files(struct compound *c, struct st_stateid *src_sid, struct st_stateid *dst_sid,
		      struct ns_inode *src)
{
	struct ns_inode dst;
	nfsstat4 st = op_cur_inode(c, &dst);

	if (!st)
		st = c->saved ? op_status(ns_get_live(c->m->m_ns, op_txn(c), c->saved, src))
			      : NFS4ERR_NOFILEHANDLE;
	if (st)
		return st == NFS4ERR_NOENT ? NFS4ERR_STALE : st;
	if (src->i_type != NS_REG || dst.i_type != NS_REG)
		return NFS4ERR_WRONG_TYPE;
	st = op_any_io_access(c, src_sid, src, false);
	return st ? st : op_any_io_access(c, dst_sid, &dst, true);
}

nfsstat4 op_copy(struct compound *c)
{
	struct copy_args *a = op_scratch(c, sizeof(*a), NULL);
	struct ns_inode src;
	nfsstat4 st;

	if (!a)
		return NFS4ERR_DELAY;
	st = copy_decode(c, a);
	if (!st && a->nservers)
		st = NFS4ERR_PARTNER_NOTSUPP; /* no copy between servers (docs/copy.md) */
	if (!st)
		st = op_two_files(c, &a->src_sid, &a->dst_sid, &src);
	if (st)
		return st;
	op_accessed(c, &src);
	a->src = c->saved;
	return op_refresh(c, a->src, false, copy_go);
}

static nfsstat4 copy_range(struct compound *c, struct copy_args *a, uint64_t size)
{
	if (c->cur == c->saved || a->src_off > size || a->count > size - a->src_off)
		return NFS4ERR_INVAL;
	if (!a->count)
		a->count = size - a->src_off;
	return a->dst_off > OP_MAX_FILE || a->count > OP_MAX_FILE - a->dst_off ? NFS4ERR_FBIG
									       : NFS4_OK;
}

static struct op_copy *copy_new(struct compound *c, const struct copy_args *a)
{
	struct op_copy *j = calloc(1, sizeof(*j));

	if (!j)
		return NULL;
	j->m = c->m;
	j->th = c->th;
	j->cred = c->cred;
	j->clear = !op_protected(c);
	j->cred.cr_groups = NULL; /* the compound's; clearing set-id bits needs the uid only */
	j->src = a->src;
	j->dst = c->cur;
	j->src_off = a->src_off;
	j->dst_off = a->dst_off;
	j->count = a->count;
	j->timer.t_fire = copy_wake;
	op_still_valid_begin(&j->stand, c, copy_stood, j);
	/* Until the job ends: no client gets a delegation on a file that a copy still changes after
	 * its opener has closed it. */
	if (!op_pin(&j->pin, j->m, j->dst)) {
		free(j);
		return NULL;
	}
	return j;
}

static void copy_put_response(struct xdr_out *x, const struct st_stateid *sid, uint64_t count,
			      uint32_t how, uint64_t verifier)
{
	xdr_put_u32(x, sid ? 1 : 0);
	if (sid)
		op_put_stateid(x, sid);
	xdr_put_u64(x, count);
	xdr_put_u32(x, how);
	xdr_put_u64(x, verifier);
}

static nfsstat4 copy_go(struct compound *c, int err)
{
	struct copy_args *a = c->scratch;
	uint8_t fh[OP_FH_LEN];
	struct st_stateid sid;
	struct ns_inode i;
	struct op_copy *j;
	nfsstat4 st;

	(void)err;
	op_txn_stale(c->th);
	st = op_status(ns_get_live(c->m->m_ns, op_txn(c), a->src, &i));
	if (!st)
		st = copy_range(c, a, i.i_size);
	if (st)
		return st == NFS4ERR_NOENT ? NFS4ERR_STALE : st;
	if (a->synchronous && a->count > COPY_SYNC_MAX) {
		xdr_put_bool(c->out, true);
		xdr_put_bool(c->out, false);
		c->keep_body = true;
		return NFS4ERR_OFFLOAD_NO_REQS;
	}
	j = copy_new(c, a);
	if (!j)
		return NFS4ERR_DELAY;
	if (!a->synchronous && a->count > COPY_ASYNC) {
		op_fh_make(c->m, op_export(c), c->cur, fh);
		j->of = st_offload_new(c->m->m_st, c->client, c->cur, c->cred.cr_uid, fh, OP_FH_LEN,
				       &sid);
	}
	if (!j->of) {
		j->count = j->count < COPY_SYNC_MAX ? j->count : COPY_SYNC_MAX;
		j->c = c;
		a->job = j;
		copy_start(j);
		return op_await(c, copy_durable);
	}
	copy_put_response(c->out, &sid, 0, UNSTABLE4, c->m->m_st->st_verifier);
	xdr_put_bool(c->out, true);
	xdr_put_bool(c->out, false);
	copy_start(j);
	return NFS4_OK;
}

/* ---- a piece ---- */

/* The call that waits for the copy; NULL: none. */
static struct rpc_call *copy_call(const struct op_copy *j)
{
	return j->c ? j->c->call : NULL;
}

/* Reads one of the two files from a fresh snapshot. */
static int copy_inode(struct op_copy *j, uint64_t ino, struct ns_inode *i, struct lo_map *map)
{
	int err;

	op_txn_stale(j->th);
	err = ns_get_live(j->m->m_ns, op_thread_txn(j->th), ino, i);
	if (err)
		return err == -ENOENT ? -ESTALE : err;
	err = lo_map_decode(i->i_blob, map);
	if (err)
		return err;
	return job_has_orders(j->m, j->th->mt_loop, i, map) ? -EAGAIN : 0;
}

static int copy_io(struct op_copy *j, uint64_t ino, uint64_t off, uint64_t count,
		   void (*done)(struct lo_io *io, int err))
{
	struct ns_inode i;
	int err;

	memset(&j->io, 0, sizeof(j->io));
	err = copy_inode(j, ino, &i, &j->io.io_map);
	if (!err)
		lo_io_fill(&j->io, j->th->mt_loop, &i, off, (uint32_t)count, done);
	j->io.io_clear = j->clear;
	return err;
}

static void copy_half(struct op_copy *j, const struct lo_map *map, uint64_t objects)
{
	j->half = objects;
	j->half_map = *map;
}

static void copy_gave_up(void *arg)
{
	copy_commit(arg);
}

/* The piece is not tried again. Where some copies may have it and others not, file_partial_done
 * resolves now which copies are right. */
static void copy_fail(struct op_copy *j, int err)
{
	uint64_t half = j->half;

	j->err = err;
	j->half = 0;
	if (!file_partial_done(&j->m->m_file, j->th->mt_loop, copy_call(j), j->dst, &j->half_map,
			       half, -EIO, copy_gave_up, j))
		copy_commit(j);
}

static void copy_again(struct op_copy *j)
{
	lo_buf_free(j->buf);
	j->buf = NULL;
	loop_timer_start(j->th->mt_loop, &j->timer, COPY_WAIT_MS);
	copy_leave(j);
}

/* A conflict, or a data server that does not answer: tries again in a moment, while other jobs
 * run. */
static void copy_wait(struct op_copy *j)
{
	excl_unblock(&j->hold); /* the hold would keep out this job's next piece */
	if (++j->waits > (j->c ? COPY_SYNC_WAITS : COPY_WAITS)) {
		copy_fail(j, -ETIMEDOUT);
		return;
	}
	copy_again(j);
}

static bool copy_may_wait(int err)
{
	return err == -EAGAIN || err == -EACCES || err == -ETIMEDOUT || err == -ENOMEM;
}

static void copy_failed(struct op_copy *j, int err)
{
	if (copy_may_wait(err))
		copy_wait(j);
	else
		copy_fail(j, err);
}

/* May the job go on? False: it goes on later, or has ended. */
static bool copy_stands(struct op_copy *j)
{
	int err = op_still_valid(&j->stand);

	if (err == -EINPROGRESS)
		copy_leave(j);
	else if (err == -EAGAIN && j->of)
		/* Without a limit, until the name services answer. The client may cancel it. */
		copy_again(j);
	else if (err == -EAGAIN)
		copy_wait(j);
	else if (err)
		/* Not copy_failed: no job waits for an export to come back. */
		copy_fail(j, err);
	return !err;
}

/* With both files' maps: can the data servers copy the next piece by themselves? Then starts it. */
static bool copy_local(struct op_copy *j, bool same, uint64_t from, uint64_t left)
{
	struct lo_change *lc = &j->lc;
	struct ns_inode dst;
	struct lo_map map;

	if (j->never_local || copy_inode(j, j->dst, &dst, &map) || lo_generic(j->m->m_lo, &map) ||
	    !lo_copy_is_local(&map, &j->io.io_map, same, from, j->dst_off + j->done))
		return false;
	if (!op_pin(&j->pin, j->m, j->dst))
		return false;
	memset(lc, 0, sizeof(*lc));
	lc->lc_loop = j->th->mt_loop;
	lc->lc_ino = j->dst;
	lc->lc_incarnation = dst.i_incarnation;
	lc->lc_map = map;
	lc->lc_kind = LO_COPY;
	lc->lc_off = j->dst_off + j->done;
	lc->lc_src = j->src;
	lc->lc_from = from;
	lc->lc_src_incarnation = j->io.io_inode.i_incarnation;
	lc->lc_src_map = j->io.io_map;
	lc->lc_src_same = same;
	lc->lc_len = left < COPY_LOCAL ? left : COPY_LOCAL;
	if (lc->lc_len > j->io.io_inode.i_size - from)
		lc->lc_len = j->io.io_inode.i_size - from;
	lc->lc_done = copy_changed;
	j->len = lc->lc_len;
	lo_change(j->m->m_lo, lc);
	return true;
}

static void copy_step(struct op_copy *j)
{
	uint64_t from = j->src_off + j->done, left = j->count - j->done;
	/* Up to a multiple of COPY_PIECE in the source: a piece is whole units of its stripes. */
	uint64_t len = COPY_PIECE - from % COPY_PIECE;
	bool same, taking;
	int err;

	if (j->of && st_offload_is_over(j->m->m_st, j->of)) {
		copy_fail(j, -ECANCELED);
		return;
	}
	if (!left) {
		copy_commit(j);
		return;
	}
	if (!copy_stands(j))
		return;
	err = copy_io(j, j->src, from, len < left ? len : left, copy_read);
	if (!err && excl_hidden(&j->m->m_file, j->src))
		err = -EAGAIN;
	if (err) {
		copy_failed(j, err);
		return;
	}
	/* The source was truncated meanwhile: all that is left of it has been copied. */
	if (from >= j->io.io_inode.i_size) {
		copy_commit(j);
		return;
	}
	same = file_is_contended(&j->m->m_file, j->src, &j->io.io_map, &taking);
	if (copy_local(j, same, from, left))
		return;
	j->io.io_same = same;
	lo_read(j->m->m_lo, &j->io);
}

static void copy_read(struct lo_io *io, int err)
{
	struct op_copy *j = hash_entry(io, struct op_copy, io);

	if (err && io->io_same &&
	    file_first_lost(&j->m->m_file, j->th->mt_loop, NULL, j->src, &io->io_map,
			    io->io_failed_map, NULL, NULL))
		err = -EAGAIN;
	if (!err) {
		j->buf = io->io_buf;
		j->len = io->io_count;
		err = copy_io(j, j->dst, j->dst_off + j->done, j->len, copy_written);
		if (!err && file_lost_writes(&j->m->m_file, j->dst, &j->io.io_map))
			err = -EAGAIN; /* the lost writer may still write there */
	} else if (err == -ESTALE) {
		err = -EAGAIN; /* placed again, or lost: the next look at the inode shows which */
	}
	if (!err && !op_pin(&j->pin, j->m, j->dst))
		err = -EAGAIN;
	/* The caller's own layout for writing counts as another client's (NULL). */
	if (!err && j->io.io_map.lm_mirrors > 1 &&
	    !job_write_begin(&j->write, j->m, j->th->mt_loop, j->dst, NULL, j->dst_off + j->done,
			     j->dst_off + j->done + j->len))
		err = -EAGAIN;
	if (err) {
		copy_failed(j, err);
		return;
	}
	j->io.io_data = j->buf;
	j->io.io_stable = UNSTABLE4;
	/* As in WRITE (op_io.c): a server has no orders left to run, and still denies the piece. */
	j->io.io_denied = j->denials >= COPY_DENIALS;
	lo_write(j->m->m_lo, &j->io);
}

static void copy_half_done(void *arg)
{
	struct op_copy *j = arg;

	j->half = 0;
	copy_failed(j, j->piece_err);
}

/* The target was fenced after its map was read: the servers that denied the piece are not to
 * blame. */
static bool copy_fenced(struct op_copy *j)
{
	struct ns_inode i;
	struct lo_map map;

	return copy_inode(j, j->dst, &i, &map) || i.i_incarnation != j->io.io_inode.i_incarnation ||
	       map.lm_epoch != j->io.io_map.lm_epoch;
}

static int copy_run(struct kv_op *op, struct kv_txn *t)
{
	struct op_copy *j = hash_entry(op, struct op_copy, op);

	j->outdated = op_pin_outdated(&j->pin);
	return j->outdated
		       ? 0
		       : op_data_changed(j->m, t, j->dst, &j->cred, j->dst_off + j->done + j->len,
					 j->failed, j->by, &j->hold);
}

static void copy_record(struct op_copy *j, uint64_t verifier, uint64_t failed,
			const struct lo_map *by)
{
	if (!j->wrote)
		j->verifier = verifier;
	j->wrote = true;
	j->failed = failed;
	j->by = by;
	j->op.o_run = copy_run;
	j->op.o_done = copy_recorded;
	j->op.o_loop = j->th->mt_loop;
	kv_submit(j->m->m_kv, &j->op);
}

static void copy_written(struct lo_io *io, int err)
{
	struct op_copy *j = hash_entry(io, struct op_copy, io);

	job_write_end(&j->write);
	if (!err && io->io_denied && io->io_failed_map && copy_fenced(j))
		err = -EACCES;
	j->denials = err == -EACCES ? j->denials + 1 : 0;
	j->piece_err = err == -ESTALE ? -EAGAIN : err;
	if (err)
		copy_half(j, &io->io_map,
			  io->io_half_map ? io->io_half_map : lo_writers(&io->io_map));
	if (err && file_partial_done(&j->m->m_file, j->th->mt_loop, copy_call(j), j->dst,
				     &io->io_map, io->io_half_map, err, copy_half_done, j))
		return;
	if (err)
		copy_failed(j, j->piece_err);
	else
		copy_record(j, io->io_verifier, io->io_failed_map, &io->io_map);
}

static void copy_changed(struct lo_change *lc, int err)
{
	struct op_copy *j = hash_entry(lc, struct op_copy, lc);

	/* Then by reading and writing: a real failure fails that way too. */
	if (err && err != -EACCES)
		j->never_local = true;
	if (err) {
		copy_half(j, &lc->lc_map, lo_writers(&lc->lc_map));
		copy_failed(j, -EAGAIN);
	} else {
		copy_record(j, lc->lc_verifier, lc->lc_failed_map, &lc->lc_map);
	}
}

/* After COPY_TURN pieces the job goes behind those in the queue. */
static void copy_turn(struct op_copy *j)
{
	struct mds_thread *th = j->th;

	if (++j->turn < COPY_TURN || !th->mt_copies) {
		copy_step(j);
		return;
	}
	th->mt_copying--;
	copy_queue(j);
}

static void copy_piece_done(struct op_copy *j)
{
	lo_buf_free(j->buf);
	j->buf = NULL;
	j->done += j->len;
	j->waits = 0;
	j->half = 0;
	if (j->of)
		st_offload_progress(j->m->m_st, j->of, j->done);
	copy_turn(j);
}

static void copy_piece_taken_back(void *arg, int err)
{
	struct op_copy *j = arg;

	(void)err;
	if (j->c)
		op_client_came(j->c);
	copy_piece_done(j);
}

/* Clients' layouts may name the copies that did not take the piece: those layouts come back. */
static void copy_piece_stale(struct op_copy *j)
{
	if (!excl_recall_stale(&j->hold, &j->m->m_file, j->th->mt_loop, j->dst, NULL,
			       copy_piece_taken_back, j))
		copy_piece_done(j);
	else if (j->c)
		op_client_waits(j->c);
}

static void copy_recorded(struct kv_op *op, int err)
{
	struct op_copy *j = hash_entry(op, struct op_copy, op);

	j->piece_err = err == -ENOENT ? -ESTALE : err;
	if (err && j->failed &&
	    file_partial_done(&j->m->m_file, j->th->mt_loop, copy_call(j), j->dst, &j->io.io_map,
			      lo_writers(&j->io.io_map), err, copy_half_done, j))
		return;
	if (err)
		copy_fail(j, j->piece_err);
	else if (j->outdated)
		copy_wait(j);
	else if (!j->failed)
		copy_piece_done(j);
	else
		copy_piece_stale(j);
}

/* ---- the data servers' commit ---- */

static void copy_commit(struct op_copy *j)
{
	int err = j->wrote ? copy_io(j, j->dst, 0, 0, copy_committed) : -ENOENT;

	if (!j->wrote) {
		j->verifier = j->m->m_st->st_verifier;
		j->committed = FILE_SYNC4;
	}
	if (err) {
		copy_answer(j);
		return;
	}
	lo_commit(j->m->m_lo, &j->io);
}

/* FILE_SYNC where no data server lost anything since the first piece. Otherwise the client's COMMIT
 * gets another verifier than this one, and the client copies again. */
static void copy_committed(struct lo_io *io, int err)
{
	struct op_copy *j = hash_entry(io, struct op_copy, io);

	j->committed = !err && io->io_verifier == j->verifier ? FILE_SYNC4 : UNSTABLE4;
	j->missed = !err && io->io_failed_map;
	copy_answer(j);
}

static int copy_stale(struct op_copy *j, struct kv_txn *t)
{
	return j->missed ? op_data_changed(j->m, t, j->dst, &j->cred, 0, j->io.io_failed_map,
					   &j->io.io_map, &j->hold)
			 : 0;
}

static int copy_stale_run(struct kv_op *op, struct kv_txn *t)
{
	return copy_stale(hash_entry(op, struct op_copy, op), t);
}

/* The job has no more to copy. */
static void copy_answer(struct op_copy *j)
{
	if (j->c) {
		op_wake(j->c, 0);
		return;
	}
	if (!j->missed) {
		copy_end(j);
		return;
	}
	j->op.o_run = copy_stale_run;
	j->op.o_done = copy_stale_done;
	j->op.o_loop = j->th->mt_loop;
	kv_submit(j->m->m_kv, &j->op);
}

/* Recalls the layouts that name the copies which became stale. False: there are none. */
static bool copy_recalls(struct op_copy *j, int err, void (*then)(void *arg, int err), void *arg)
{
	if (err) { /* the store could not record a stale copy or the answer */
		j->err = err;
		j->done = 0;
	}
	return !err && j->missed &&
	       excl_recall_stale(&j->hold, &j->m->m_file, j->th->mt_loop, j->dst, NULL, then, arg);
}

static void copy_taken_back(void *arg, int err)
{
	(void)err;
	copy_end(arg);
}

static void copy_stale_done(struct kv_op *op, int err)
{
	struct op_copy *j = hash_entry(op, struct op_copy, op);

	if (!copy_recalls(j, err, copy_taken_back, j))
		copy_end(j);
}

/* ---- the end ---- */

static void copy_free(struct op_copy *j)
{
	struct mds_thread *th = j->th;

	excl_unblock(&j->hold);
	job_write_end(&j->write);
	op_unpin(&j->pin);
	op_still_valid_end(&j->stand);
	lo_buf_free(j->buf);
	free(j);
	th->mt_copying--;
	copy_next(th);
}

/* An asynchronous copy is over: CB_OFFLOAD has its result. */
static void copy_end(struct op_copy *j)
{
	/* No DELAY: the client cannot retry a job that has ended. */
	nfsstat4 over = j->err == -ETIMEDOUT ? NFS4ERR_IO : op_status(j->err);
	struct st_offload_end end = {.oe_status = over,
				     .oe_count = j->done,
				     .oe_how = j->committed,
				     .oe_verifier = j->verifier};

	metric_add(j->m->m_copied, j->done);
	st_offload_end(j->m->m_st, j->of, &end);
	copy_free(j);
}

/* The job of the compound, which waits for it. */
static struct op_copy *copy_job_of(struct compound *c)
{
	return ((struct copy_args *)c->scratch)->job;
}

static int copy_answer_run(struct kv_op *op, struct kv_txn *t)
{
	return copy_stale(copy_job_of(op_of(op)), t);
}

static void copy_put(struct compound *c, struct xdr_out *x, struct op_after *after)
{
	const struct op_copy *j = ((struct copy_args *)c->scratch)->job;

	(void)after;
	copy_put_response(x, NULL, j->done, j->committed, j->verifier);
	xdr_put_bool(x, true); /* consecutive */
	xdr_put_bool(x, true); /* synchronous */
}

/* The data is on the disks, or the answer says that it may not be (UNSTABLE). The answer becomes
 * durable before the client gets it: otherwise a client that retries after a crash would copy over
 * what others have written since. */
static nfsstat4 copy_durable(struct compound *c, int err)
{
	const struct op_copy *j = copy_job_of(c);

	(void)err;
	if (j->done)
		return op_mutate(c, copy_answer_run, copy_put, copy_answered);
	/* It failed, which needs no durable reply. */
	return j->missed ? op_mutate_again(c, copy_answer_run, copy_answered) : copy_reply(c, 0);
}

static nfsstat4 copy_answered(struct compound *c, int err)
{
	return copy_recalls(copy_job_of(c), err, op_wake, c) ? op_await_client(c, copy_reply)
							     : copy_reply(c, 0);
}

static nfsstat4 copy_reply(struct compound *c, int err)
{
	struct op_copy *j = copy_job_of(c);
	/* After a failure the client gets a short copy of what was done. It meets the failure when
	 * it goes on (section 15.2.3). */
	nfsstat4 st = j->done ? NFS4_OK : op_data_status(j->err);

	(void)err;
	metric_add(j->m->m_copied, j->done);
	if (!st)
		op_result(c, copy_put);
	copy_free(j);
	return st;
}

/* ---- OFFLOAD_STATUS, OFFLOAD_CANCEL ---- */

nfsstat4 op_offload_status(struct compound *c)
{
	struct st *st = c->m->m_st;
	struct st_stateid sid;
	struct st_offload *of;
	nfsstat4 status;

	op_get_stateid(c->in, &sid);
	if (c->in->bad)
		return NFS4ERR_BADXDR;
	if (!c->cur)
		return NFS4ERR_NOFILEHANDLE;
	st_all_lock(st);
	status = st_offload_find(c->client, &sid, c->cur, c->cred.cr_uid, &of);
	if (!status) {
		xdr_put_u64(c->out, of->of_count);
		xdr_put_u32(c->out, of->of_done);
		if (of->of_done)
			xdr_put_u32(c->out, of->of_end.oe_status);
	}
	st_all_unlock(st);
	return status;
}

static void cancel_wake(struct loop_msg *m)
{
	op_wake(hash_entry(m, struct st_offload_wait, ow_msg)->ow_arg, 0);
}

/* Answers when no part of the copy is under way any more. */
nfsstat4 op_offload_cancel(struct compound *c)
{
	struct st_offload_wait *w = op_scratch(c, sizeof(*w), NULL);
	struct st *st = c->m->m_st;
	struct st_stateid sid;
	struct st_offload *of;
	nfsstat4 status;

	if (!w)
		return NFS4ERR_DELAY;
	op_get_stateid(c->in, &sid);
	if (c->in->bad)
		return NFS4ERR_BADXDR;
	if (!c->cur)
		return NFS4ERR_NOFILEHANDLE;
	w->ow_arg = c;
	w->ow_loop = c->th->mt_loop;
	w->ow_msg.m_run = cancel_wake;
	st_all_lock(st);
	status = st_offload_find(c->client, &sid, c->cur, c->cred.cr_uid, &of);
	if (!status)
		status = st_offload_cancel(of, w) ? op_await(c, op_step_ok)
						  : NFS4ERR_COMPLETE_ALREADY;
	st_all_unlock(st);
	return status;
}
