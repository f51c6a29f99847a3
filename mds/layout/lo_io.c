/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lo_io.c - READ, WRITE and COMMIT through the metadata server, by the file's layout map.
 *
 * An I/O is cut at stripe units. A read's piece goes to one copy, and to the next copy when that
 * one fails. A write has a piece for each copy that is in sync or being rebuilt. A piece that is
 * longer than the server takes at once is done in several calls.
 *
 * Write verifiers. The client compares the verifier of a WRITE with that of a COMMIT, but many data
 * servers stand behind them. One number stands for all: the boot epoch, and a generation that rises
 * whenever any server's verifier changes. A WRITE answers with the generation from before it began,
 * a COMMIT with the generation after it ended. So a restart that any call notices in between makes
 * the two differ. The cost is that one server's restart makes clients repeat uncommitted writes to
 * other servers too.
 */
#include "base/log.h"
#include "base/pool.h"
#include "mds/layout/lo_int.h"
#include "proto/nfs3.h"
#include <errno.h>
#include <urcu/compiler.h>

enum io_kind { IO_READ, IO_WRITE, IO_COMMIT };

struct io_piece {
	struct ds_reg_io ip_io;
	struct io_run *ip_run;
	unsigned ip_obj;
	uint64_t ip_off, ip_tried; /* ip_tried: a bit per object (reads) */
	uint32_t ip_len, ip_done;
	bool ip_again; /* it was repeated after a lost connection */
	bool ip_pad;   /* a zero that pads the object, not data of a client */
	struct ds_reg_handle ip_fh;
};
struct io_run {
	struct lo *ir_lo;
	struct lo_io *ir_io;
	enum io_kind ir_kind;
	struct loop_msg ir_msg;
	unsigned ir_left;
	uint64_t ir_generation;
	uint64_t ir_touched, ir_bad; /* bit per object */
	int ir_err, ir_obj_err[LO_MAX_OBJECTS];
	uint32_t ir_committed;
	unsigned ir_npieces;
	struct io_piece ir_piece[];
};

static void piece_start(struct io_piece *ip);

/* ---- verifiers ---- */

void lo_verifier_seen(struct lo *lo, uint32_t ds, uint64_t verifier)
{
	if (!ds || ds > DS_REG_MAX)
		return;
	pthread_mutex_lock(&lo->l_verf_lock);
	if (lo->l_verf[ds] && lo->l_verf[ds] != verifier)
		atomic_fetch_add(&lo->l_generation, 1);
	lo->l_verf[ds] = verifier;
	pthread_mutex_unlock(&lo->l_verf_lock);
}

void lo_may_have_lost(struct lo *lo)
{
	atomic_fetch_add(&lo->l_generation, 1);
}

uint64_t lo_verifier_of(struct lo *lo, uint64_t generation)
{
	return ns_super(lo->l_ns)->su_boot << 32 ^ generation;
}

/* ---- ending ---- */

/* Turns every error that means "not reached" into one: the caller may try again later. */
int lo_plain_err(int err)
{
	switch (err) {
	case -ENOTCONN:
	case -ECONNRESET:
	case -ECONNREFUSED:
	case -EHOSTUNREACH:
	case -ENETUNREACH:
	case -ECONNABORTED:
	case -EPIPE:
	case -EAGAIN:
	case -ENOBUFS:
	case -ETIMEDOUT:
		return -ETIMEDOUT;
	case -EACCES:
	case -ESTALE:
	case -ENOSPC:
	case -EFBIG:
	case -EROFS:
	case -EOPNOTSUPP:
	case -ENOMEM:
		return err;
	default:
		return -EIO;
	}
}

/* Returns the result of the whole I/O. It fails when it touched a stripe and no copy in sync of
 * that stripe took it. Otherwise the caller gets the copies that failed. */
int lo_copies_err(const struct lo_map *m, uint64_t hit, uint64_t bad, bool denied, const int *errs)
{
	unsigned objects = (unsigned)m->lm_stripes * m->lm_mirrors;

	/* The file was fenced meanwhile: the whole I/O is repeated, and no copy is to blame. With
	 * `denied` the file was not fenced, so the copy is to blame. */
	for (unsigned i = 0; i < objects && !denied; i++)
		if ((bad >> i & 1) && errs[i] == -EACCES)
			return -EACCES;
	/* This process could not read the object's handle from its store (ds_reg_nfs3_handle),
	 * which is no fault of the copy. */
	for (unsigned i = 0; i < objects; i++)
		if ((bad >> i & 1) && errs[i] == -ENOBUFS)
			return -ETIMEDOUT;
	for (unsigned s = 0; s < m->lm_stripes; s++) {
		bool touched = false, taken = false;
		int err = 0;

		for (unsigned i = s; i < objects; i += m->lm_stripes) {
			if (!(hit >> i & 1))
				continue;
			touched = true;
			if (m->lm_obj[i].ob_state != LO_IN_SYNC)
				continue;
			if (!(bad >> i & 1))
				taken = true;
			else if (!err || errs[i] == -ENOSPC)
				err = errs[i];
		}
		if (touched && !taken)
			return lo_plain_err(err);
	}
	return 0;
}

static void lo_io_run_end(struct loop_msg *msg)
{
	struct io_run *ir = caa_container_of(msg, struct io_run, ir_msg);
	struct lo_io *io = ir->ir_io;
	int err = ir->ir_err;

	if (ir->ir_kind == IO_READ) {
		if (err) {
			lo_buf_free(io->io_buf);
			io->io_buf = NULL;
			io->io_count = 0;
		}
		io->io_failed_map = err ? ir->ir_bad : 0;
	} else if (!err) {
		err = lo_copies_err(&io->io_map, ir->ir_touched, ir->ir_bad, io->io_denied,
				    ir->ir_obj_err);
		io->io_failed_map = err ? 0 : ir->ir_bad;
		io->io_half_map = err ? ir->ir_touched : 0;
		io->io_committed = ir->ir_committed;
		io->io_verifier = lo_verifier_of(
			ir->ir_lo, ir->ir_kind == IO_WRITE ? ir->ir_generation
							   : atomic_load(&ir->ir_lo->l_generation));
	}
	free(ir);
	io->io_done(io, err);
}

static void lo_io_run_put(struct io_run *ir)
{
	if (--ir->ir_left)
		return;
	ir->ir_msg.m_run = lo_io_run_end;
	loop_post(ir->ir_io->io_loop, &ir->ir_msg);
}

/* ---- pieces ---- */

/* Returns the copy to read next: living servers first, then in the order of the map. Where copies
 * may differ, only the first copy of all. -1: all were tried. */
static int next_copy(const struct io_piece *ip)
{
	const struct lo_io *io = ip->ip_run->ir_io;
	const struct lo_map *m = &io->io_map;
	unsigned stripe = lo_stripe_of(m, ip->ip_off);
	int found = -1, obj;
	struct ds_reg_server sv;

	for (unsigned r = 0; (obj = lo_source(m, stripe, r, io->io_same)) >= 0; r++) {
		if (ip->ip_tried >> obj & 1)
			continue;
		if (ds_reg_get(ip->ip_run->ir_lo->l_dsc, m->lm_obj[obj].ob_ds, &sv) && sv.sv_alive)
			return obj;
		if (found < 0)
			found = obj;
	}
	return found;
}

static void piece_failed(struct io_piece *ip, int err)
{
	struct io_run *ir = ip->ip_run;
	int next;

	if (ir->ir_kind != IO_READ) {
		ir->ir_bad |= UINT64_C(1) << ip->ip_obj;
		ir->ir_obj_err[ip->ip_obj] = err;
		lo_io_run_put(ir);
		return;
	}
	if (err == -ESTALE && ir->ir_io->io_map.lm_obj[ip->ip_obj].ob_known)
		log_error("inode %llu: object %u on data server %u is known to exist and is not "
			  "there",
			  (unsigned long long)ir->ir_io->io_inode.i_ino, ip->ip_obj,
			  ir->ir_io->io_map.lm_obj[ip->ip_obj].ob_ds);
	ip->ip_tried |= UINT64_C(1) << ip->ip_obj;
	next = next_copy(ip);
	if (next < 0) {
		/* A fence, or a lack of memory here, is no fault of the copy. */
		if (ir->ir_io->io_same && err != -EACCES && err != -ENOBUFS && err != -ENOMEM)
			ir->ir_bad |= UINT64_C(1) << ip->ip_obj;
		if (!ir->ir_err)
			ir->ir_err = lo_plain_err(err);
		lo_io_run_put(ir);
		return;
	}
	ip->ip_obj = (unsigned)next;
	ip->ip_again = false;
	piece_start(ip);
}

static void piece_done(struct ds_reg_io *di, int err)
{
	struct io_piece *ip = caa_container_of(di, struct io_piece, ip_io);
	struct io_run *ir = ip->ip_run;

	if (err == -ECONNRESET && !ip->ip_again) {
		/* The server may be back already, and each of these calls is idempotent. */
		ip->ip_again = true;
		piece_start(ip);
		return;
	}
	if (err) {
		piece_failed(ip, err);
		return;
	}
	if (ir->ir_kind != IO_READ)
		lo_verifier_seen(ir->ir_lo, ir->ir_io->io_map.lm_obj[ip->ip_obj].ob_ds,
				 di->di_verifier);
	if (ir->ir_kind == IO_WRITE && di->di_stable < ir->ir_committed)
		ir->ir_committed = di->di_stable;
	if (ir->ir_kind != IO_COMMIT)
		ip->ip_done += di->di_count;
	/* A short read at the object's end leaves zeros in the buffer: the file goes on there, but
	 * the object does not. */
	if (ip->ip_done < ip->ip_len && !(ir->ir_kind == IO_READ && di->di_eof)) {
		piece_start(ip);
		return;
	}
	lo_io_run_put(ir);
}

static uint32_t most(uint32_t left, uint32_t limit)
{
	return left < limit ? left : limit;
}

static void piece_start(struct io_piece *ip)
{
	static const uint8_t zero;
	struct io_run *ir = ip->ip_run;
	struct lo_io *io = ir->ir_io;
	struct lo *lo = ir->ir_lo;
	uint32_t ds = io->io_map.lm_obj[ip->ip_obj].ob_ds, left = ip->ip_len - ip->ip_done, ms;
	struct ds_reg_io *di = &ip->ip_io;
	struct ds_reg_server sv;
	int err;

	if (!ds_reg_get(lo->l_dsc, ds, &sv) || sv.sv_state >= DS_REG_DEAD ||
	    (!sv.sv_alive && !ds_reg_leased(lo->l_dsc, ds))) {
		piece_failed(ip, -ENOTCONN);
		return;
	}
	ms = sv.sv_alive ? LO_IO_MS : LO_IO_SHORT_MS;
	err = lo_handle(lo, &sv, io->io_inode.i_ino, io->io_inode.i_incarnation, &io->io_map,
			ip->ip_obj, ir->ir_kind == IO_READ ? CAP_READ : CAP_WRITE, 0, &ip->ip_fh);
	if (err) {
		piece_failed(ip, err);
		return;
	}
	memset(di, 0, sizeof(*di));
	di->di_done = piece_done;
	di->di_off = ip->ip_off + ip->ip_done;
	di->di_clear = io->io_clear;
	switch (ir->ir_kind) {
	case IO_READ:
		di->di_count = most(left, sv.sv_max_read);
		di->di_read_to = io->io_buf + (di->di_off - io->io_off);
		ds_reg_read(lo->l_dsc, ds, &ip->ip_fh, di, ms);
		return;
	case IO_WRITE:
		di->di_count = most(left, sv.sv_max_write);
		di->di_data = ip->ip_pad ? &zero : io->io_data + (di->di_off - io->io_off);
		di->di_stable = io->io_stable;
		ds_reg_write(lo->l_dsc, ds, &ip->ip_fh, di, ms);
		return;
	case IO_COMMIT:
		di->di_off = 0;
		ds_reg_commit(lo->l_dsc, ds, &ip->ip_fh, di, ms);
	}
}

/* ---- memory ---- */

/* Precedes the bytes of a buffer. */
struct lo_buf {
	_Alignas(64) size_t lb_len;
	bool lb_pooled;
};

uint8_t *lo_buf_new(size_t n)
{
	struct lo_buf *lb = pool_get(sizeof(*lb) + n, POOL_LEAVE_HALF);
	bool pooled = lb;

	if (!lb)
		lb = aligned_alloc(_Alignof(struct lo_buf),
				   (sizeof(*lb) + n + _Alignof(struct lo_buf) - 1) &
					   ~(_Alignof(struct lo_buf) - 1));
	if (!lb)
		return NULL;
	memset(lb, 0, sizeof(*lb) + n);
	lb->lb_len = n;
	lb->lb_pooled = pooled;
	return (uint8_t *)(lb + 1);
}

void lo_buf_free(void *p)
{
	struct lo_buf *lb = p ? (struct lo_buf *)p - 1 : NULL;

	if (lb && lb->lb_pooled)
		pool_put(lb, sizeof(*lb) + lb->lb_len);
	else
		free(lb);
}

/* ---- cutting ---- */

static struct io_run *run_new(struct lo *lo, struct lo_io *io, enum io_kind kind, size_t npieces)
{
	struct io_run *ir = calloc(1, sizeof(*ir) + npieces * sizeof(ir->ir_piece[0]));

	/* Without memory for this the caller cannot get an answer. An allocation this small does
	 * not fail. */
	if (!ir)
		log_fatal("out of memory for an I/O of %zu pieces", npieces);
	ir->ir_lo = lo;
	ir->ir_io = io;
	ir->ir_kind = kind;
	ir->ir_generation = atomic_load(&lo->l_generation);
	ir->ir_committed = 2;
	io->io_priv = ir;
	io->io_failed_map = io->io_half_map = 0;
	return ir;
}

static void add_piece(struct io_run *ir, unsigned obj, uint64_t off, uint32_t len)
{
	struct io_piece *ip = &ir->ir_piece[ir->ir_npieces++];

	ip->ip_run = ir;
	ip->ip_obj = obj;
	ip->ip_off = off;
	ip->ip_len = len;
	ir->ir_touched |= UINT64_C(1) << obj;
}

/* ir_left counts the caller once: pieces may end while this function starts others. */
static void run_start(struct io_run *ir)
{
	ir->ir_left = ir->ir_npieces + 1;
	for (unsigned i = 0; i < ir->ir_npieces; i++)
		piece_start(&ir->ir_piece[i]);
	lo_io_run_put(ir);
}

static uint64_t unit_left(const struct lo_map *m, uint64_t off)
{
	return m->lm_unit - off % m->lm_unit;
}

static size_t units(const struct lo_map *m, uint64_t off, uint32_t count)
{
	return count ? (size_t)((off + count - 1) / m->lm_unit - off / m->lm_unit + 1) : 0;
}

/* Cuts a read or write into pieces. Each part inside one unit gets a piece for its first copy, or
 * for every copy. */
static void lo_io_cut(struct io_run *ir, uint64_t off, uint32_t count, bool all)
{
	const struct lo_map *m = &ir->ir_io->io_map;

	while (count) {
		uint32_t n = (uint32_t)(unit_left(m, off) < count ? unit_left(m, off) : count);
		unsigned stripe = lo_stripe_of(m, off), r = 0;
		int obj;

		for (; (obj = all ? lo_writer(m, stripe, r) : lo_copy(m, stripe, r)) >= 0 &&
		       (all || !r);
		     r++)
			add_piece(ir, (unsigned)obj, off, n);
		if (lo_copy(m, stripe, 0) < 0)
			/* no copy in sync: the stripe is unavailable now */
			ir->ir_err = -ETIMEDOUT;
		off += n;
		count -= n;
	}
}

void lo_io_fill(struct lo_io *io, struct loop *loop, const struct ns_inode *i, uint64_t off,
		uint32_t count, void (*done)(struct lo_io *io, int err))
{
	io->io_loop = loop;
	io->io_inode = *i;
	/* these point into a transaction that ends before the I/O does */
	io->io_inode.i_blob = io->io_inode.i_acl = (struct kv_slice){0};
	io->io_off = off;
	io->io_count = count;
	io->io_done = done;
}

void lo_read(struct lo *lo, struct lo_io *io)
{
	uint64_t size = io->io_inode.i_size;
	struct io_run *ir;

	if (io->io_off >= size)
		io->io_count = 0;
	else if (io->io_count > size - io->io_off)
		io->io_count = (uint32_t)(size - io->io_off);
	io->io_buf = lo_buf_new(io->io_count);
	ir = run_new(lo, io, IO_READ, units(&io->io_map, io->io_off, io->io_count));
	if (!io->io_buf)
		ir->ir_err = -ENOMEM;
	else
		lo_io_cut(ir, io->io_off, io->io_count, false);
	if (ir->ir_err)
		ir->ir_npieces = 0;
	for (unsigned i = 0; i < ir->ir_npieces; i++)
		ir->ir_piece[i].ip_obj = (unsigned)next_copy(&ir->ir_piece[i]);
	run_start(ir);
}

static void pad(struct io_run *ir, uint64_t end, uint64_t objects)
{
	for (unsigned i = 0; i < LO_MAX_OBJECTS; i++) {
		if (!(objects >> i & 1))
			continue;
		add_piece(ir, i, end - 1, 1);
		ir->ir_piece[ir->ir_npieces - 1].ip_pad = true;
	}
}

/* Returns the objects (a bit each) that a write beyond the end of the file leaves short
 * (lo_short). */
static uint64_t left_short(struct lo *lo, const struct lo_io *io)
{
	const struct lo_map *m = &io->io_map;
	uint64_t end = io->io_off + io->io_count, bits = 0, writers = lo_writers(m);
	struct ds_reg_server sv;

	for (unsigned i = 0; m->lm_stripes > 1 && ds_reg_has_generic(lo->l_dsc) && io->io_count &&
			     end > io->io_inode.i_size && i < lo_objects(m);
	     i++)
		if ((writers >> i & 1) && lo_stripe_of(m, end - 1) != i % m->lm_stripes &&
		    ds_reg_get(lo->l_dsc, m->lm_obj[i].ob_ds, &sv) && sv.sv_nfs3)
			bits |= UINT64_C(1) << i;
	return bits;
}

void lo_write(struct lo *lo, struct lo_io *io)
{
	bool fits = io->io_count <= UINT64_MAX - io->io_off;
	size_t n = fits ? units(&io->io_map, io->io_off, io->io_count) : 0;
	uint64_t more = fits ? left_short(lo, io) : 0;
	struct io_run *ir = run_new(lo, io, IO_WRITE,
				    n * io->io_map.lm_mirrors + (size_t)__builtin_popcountll(more));

	if (!fits)
		ir->ir_err = -EFBIG;
	else
		lo_io_cut(ir, io->io_off, io->io_count, true);
	pad(ir, io->io_off + io->io_count, more);
	if (ir->ir_err)
		ir->ir_npieces = 0;
	run_start(ir);
}

void lo_pad(struct lo *lo, struct lo_io *io, uint64_t objects)
{
	struct io_run *ir = run_new(lo, io, IO_WRITE, (size_t)__builtin_popcountll(objects));

	io->io_stable = NFS3_FILE_SYNC;
	pad(ir, io->io_off, objects);
	run_start(ir);
}

void lo_commit(struct lo *lo, struct lo_io *io)
{
	const struct lo_map *m = &io->io_map;
	unsigned objects = (unsigned)m->lm_stripes * m->lm_mirrors;
	struct io_run *ir = run_new(lo, io, IO_COMMIT, objects);

	for (unsigned i = 0; i < objects; i++)
		if (lo_writers(m) >> i & 1)
			add_piece(ir, i, 0, 0);
	for (unsigned s = 0; s < m->lm_stripes; s++)
		if (lo_copy(m, s, 0) < 0)
			ir->ir_err = -ETIMEDOUT;
	if (ir->ir_err)
		ir->ir_npieces = 0;
	run_start(ir);
}
