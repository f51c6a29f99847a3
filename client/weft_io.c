/* SPDX-License-Identifier: Apache-2.0 */
/*
 * weft_io.c - data: READ, WRITE and COMMIT (RFC 8881 sections 18.22, 18.32 and 18.3), in as
 * many calls
 * as the server's limits make of an operation.
 *
 * A WRITE that leaves data unstable leaves a record (wc_dirty), with the server's verifier. A
 * COMMIT that answers with another verifier shows that the server has lost the data: the client
 * then writes it again from the caller's memory. Before a later WRITE replaces data, its range is
 * taken out of the records: older data must not overwrite it. Data that is stable, or that the
 * server still has, has no record, or a record that is not written again.
 */
#include "client/layout.h"
#include "client/open.h"
#include "client/res.h"
#include "client/ring.h"
#include "client/session.h"
#include "client/weft_call.h"
#include "client/weft_io.h"
#include <errno.h>
#include <stdlib.h>

#define STATE_WAIT_MS 20u
#define STATE_ROUNDS  256u

static void io_place(struct weft_file *f, struct wc_dirty *d)
{
	struct wc_dirty **at = &f->f_places[d->d_off / WC_MAX_IO % WC_PLACES];

	d->d_same = *at;
	d->d_at = at;
	if (*at)
		(*at)->d_at = &d->d_same;
	*at = d;
}

static void displace(struct wc_dirty *d)
{
	if (!d->d_at)
		return;
	*d->d_at = d->d_same;
	if (d->d_same)
		d->d_same->d_at = d->d_at;
	d->d_at = NULL;
}

void wc_dirty_free(struct wc_dirty *d)
{
	while (d) {
		struct wc_dirty *next = d->d_next;

		displace(d);
		free(d);
		d = next;
	}
}

struct wc_dirty *wc_dirty_new(struct weft_file *f, const struct wc_dirty *d)
{
	struct wc_dirty *n;

	if (!f->f_places)
		f->f_places = calloc(WC_PLACES, sizeof(f->f_places[0]));
	n = f->f_places ? malloc(sizeof(*n)) : NULL;
	if (!n)
		return NULL;
	*n = *d;
	n->d_next = NULL;
	io_place(f, n);
	return n;
}

static void cut_front(struct weft_file *f, struct wc_dirty *d, uint64_t to)
{
	uint32_t n = (uint32_t)(to - d->d_off);

	displace(d);
	d->d_off = to;
	d->d_buf += n;
	d->d_len -= n;
	io_place(f, d);
}

/* Takes what is between off and end out of a record. */
static bool cut_one(struct weft_file *f, struct wc_dirty *d, uint64_t off, uint64_t end)
{
	uint64_t dend = d->d_off + d->d_len;

	if (d->d_off >= end || dend <= off)
		return true;
	if (d->d_off >= off && dend <= end) {
		displace(d);
		d->d_len = 0;
		return true;
	}
	if (d->d_off < off && dend > end) {
		struct wc_dirty *n = wc_dirty_new(f, d);

		if (!n)
			return false;
		n->d_next = d->d_next;
		d->d_next = n;
		if (f->f_dirty_last == d)
			f->f_dirty_last = n;
		if (f->f_lo && f->f_lo->lo_dirty_last == d)
			f->f_lo->lo_dirty_last = n;
		cut_front(f, n, end);
	}
	if (d->d_off < off)
		d->d_len = (uint32_t)(off - d->d_off);
	else
		cut_front(f, d, end);
	return true;
}

/* Takes a range out of all records. A record that reaches into it begins at the earliest in the
 * stretch of WC_MAX_IO bytes before. */
static bool dirty_cut(struct weft_file *f, uint64_t off, uint64_t end)
{
	uint64_t first = off / WC_MAX_IO, last;

	if (!f->f_places || off >= end)
		return true;
	first -= first ? 1 : 0;
	last = (end - 1) / WC_MAX_IO;
	if (last - first >= WC_PLACES)
		last = first + WC_PLACES - 1;
	for (uint64_t i = first; i <= last; i++) {
		struct wc_dirty *d = f->f_places[i % WC_PLACES], *next;

		for (; d; d = next) {
			next = d->d_same;
			if (!cut_one(f, d, off, end))
				return false;
		}
	}
	return true;
}

void wc_io_cut(struct weft *w, const struct weft_fh *fh, uint64_t size)
{
	for (struct weft_file *f = wc_files_of(w, fh); f; f = f->f_bucket) {
		if (!wc_fh_is(f, fh))
			continue;
		f->f_size = size;
		dirty_cut(f, size, UINT64_MAX);
		if (f->f_lo && f->f_lo->lo_last > size)
			f->f_lo->lo_last = size;
	}
}

static void commit_start(struct wc_io *io);

void wc_io_put_down(struct wc_io *io)
{
	struct weft_op *op = io->io_op;

	if (--io->io_pending)
		return;
	if (io->io_tell && !io->io_err) {
		io->io_tell = false;
		io->io_pending = 1;
		wc_lo_tell(io);
		return;
	}
	if (op->o_what == WEFT_READ && !io->io_err) {
		op->o_count = (uint32_t)(io->io_end - op->o_off);
		op->o_eof = io->io_eof;
	} else if (op->o_what == WEFT_WRITE && !io->io_err) {
		op->o_count = op->o_len;
		if (io->io_end > io->io_file->f_size)
			io->io_file->f_size = io->io_end;
	}
	wc_dirty_free(io->io_dirty);
	wc_dirty_free(io->io_through);
	if (op->o_what == WEFT_COMMIT) {
		struct weft_file *f = io->io_file;
		struct wc_io *next = f->f_commits = io->io_next;

		wc_op_end(op, io->io_err, io->io_status);
		free(io);
		if (next)
			commit_start(next);
		return;
	}
	wc_op_end(op, io->io_err, io->io_status);
	free(io);
}

void wc_io_failed(struct wc_io *io, int err, uint32_t status)
{
	if (io->io_err)
		return;
	io->io_err = err;
	io->io_status = status;
}

/* Handles the errors that mean the same for each kind of call. Returns true if the call goes
 * again. */
static bool io_state_again(struct wc_call *c, uint32_t status)
{
	struct wc_io *io = c->wcl_arg;
	struct weft_file *f = io->io_file;

	if (!wc_state_error(status) || !f || f->f_state == WC_F_BAD ||
	    c->wcl_state_rounds++ > STATE_ROUNDS)
		return false;
	wc_file_lost(f, c->wcl_file_gen);
	if (f->f_state == WC_F_BAD)
		return false;
	wc_call_again(c, STATE_WAIT_MS);
	return true;
}

static void put_io(struct wc_call *c, struct xdr_out *x, uint32_t opnum)
{
	static const struct wc_stateid none;
	struct wc_io *io = c->wcl_arg;
	struct wc_stateid si = io->io_file ? io->io_file->f_stateid : none;

	si.si_seq = 0; /* the state as it is (section 8.2.2) */
	c->wcl_file_gen = io->io_file ? io->io_file->f_gen : 0;
	wc_put_fh(c, x, io->io_file ? &io->io_file->f_fh : &io->io_op->o_fh);
	wc_call_op(c, x, opnum);
	if (opnum != OP_COMMIT)
		wc_put_stateid(x, &si);
	xdr_put_u64(x, c->wcl_off);
}

static bool res_io(struct wc_call *c, struct wc_res *r, uint32_t opnum)
{
	struct wc_io *io = c->wcl_arg;

	return wc_res_fh(r, io->io_file ? &io->io_file->f_fh : &io->io_op->o_fh) &&
	       wc_res_op(r, opnum);
}

static struct wc_call *io_call(struct wc_io *io, const struct wc_kind *kind, uint64_t off,
			       const uint8_t *buf, uint32_t n)
{
	struct wc_call *c = wc_call_new(io->io_op->o_w, kind, io->io_op, io);

	if (!c) {
		wc_io_failed(io, -ENOMEM, 0);
		return NULL;
	}
	c->wcl_off = off;
	c->wcl_buf = (uint8_t *)(uintptr_t)buf;
	c->wcl_n = n;
	io->io_pending++;
	return c;
}

/* ---- READ ---- */

static void read_put(struct wc_call *c, struct xdr_out *x)
{
	put_io(c, x, OP_READ);
	xdr_put_u32(x, c->wcl_n);
}

/* wcl_at: bytes that came; wcl_eof: as in the reply */
static void io_read_got(struct wc_call *c, struct wc_res *r)
{
	const uint8_t *p;
	uint32_t n;

	if (!res_io(c, r, OP_READ))
		return;
	c->wcl_eof = xdr_get_bool(r->x);
	p = xdr_get_opaque(r->x, c->wcl_n, &n);
	if (!n && !c->wcl_eof)
		r->r_bad = true; /* the client would ask for ever */
	if (r->x->bad || r->r_bad)
		return;
	c->wcl_at = n;
	if (n)
		memcpy(c->wcl_buf, p, n);
}

/* The file ends there, or before: keeps the least of what the calls say. */
void wc_io_read_ends(struct wc_io *io, uint64_t end)
{
	io->io_eof = true;
	if (end < io->io_end)
		io->io_end = end;
}

static void read_end(struct wc_call *c, int err, uint32_t status)
{
	struct wc_io *io = c->wcl_arg;

	if (err && io_state_again(c, status))
		return;
	if (err) {
		wc_io_failed(io, err, status);
	} else {
		c->wcl_off += c->wcl_at;
		c->wcl_buf += c->wcl_at;
		c->wcl_n -= c->wcl_at;
		if (c->wcl_n && !c->wcl_eof) {
			wc_call_again(c, 0);
			return;
		}
		if (c->wcl_eof)
			wc_io_read_ends(io, c->wcl_off);
	}
	wc_io_put_down(io);
}

static const struct wc_kind read_kind = {
	.k_put = read_put, .k_got = io_read_got, .k_end = read_end};

/* ---- WRITE ---- */

static void io_write_put(struct wc_call *c, struct xdr_out *x)
{
	struct wc_io *io = c->wcl_arg;

	put_io(c, x, OP_WRITE);
	xdr_put_u32(x, io->io_stable);
	wc_put_payload(c, x, c->wcl_buf, c->wcl_n);
}

static void write_got(struct wc_call *c, struct wc_res *r)
{
	struct wc_io *io = c->wcl_arg;
	const uint8_t *verf;
	uint32_t n, how;

	if (!res_io(c, r, OP_WRITE))
		return;
	n = xdr_get_u32(r->x);
	how = xdr_get_u32(r->x);
	verf = xdr_get_fixed(r->x, NFS4_VERIFIER_SIZE);
	if (!n || n > c->wcl_n || how > FILE_SYNC4 || how < io->io_stable)
		r->r_bad = true;
	if (r->x->bad || r->r_bad)
		return;
	c->wcl_at = n;
	c->wcl_how = how;
	memcpy(&c->wcl_verf, verf, sizeof(c->wcl_verf));
}

/* Records what the server may still lose: DATA_SYNC4 data, whose attributes are not stable, or
 * UNSTABLE4 data. */
static bool dirty_add(struct weft_file *f, const struct wc_call *c)
{
	struct wc_dirty *d = f->f_dirty_last;

	if (d && d->d_at && !d->d_forced && d->d_verf == c->wcl_verf &&
	    d->d_off + d->d_len == c->wcl_off && d->d_buf + d->d_len == c->wcl_buf &&
	    d->d_len + c->wcl_at <= WC_MAX_IO) {
		d->d_len += c->wcl_at;
		return true;
	}
	d = wc_dirty_new(f, &(struct wc_dirty){.d_off = c->wcl_off,
					       .d_verf = c->wcl_verf,
					       .d_buf = c->wcl_buf,
					       .d_len = c->wcl_at});
	if (!d)
		return false;
	if (f->f_dirty_last)
		f->f_dirty_last->d_next = d;
	else
		f->f_dirty = d;
	f->f_dirty_last = d;
	return true;
}

static void write_end(struct wc_call *c, int err, uint32_t status)
{
	struct wc_io *io = c->wcl_arg;

	if (err && io_state_again(c, status))
		return;
	if (!err && c->wcl_how != FILE_SYNC4 && !dirty_add(io->io_file, c))
		err = -ENOMEM;
	if (err) {
		wc_io_failed(io, err, status);
	} else {
		c->wcl_off += c->wcl_at;
		c->wcl_buf += c->wcl_at;
		c->wcl_n -= c->wcl_at;
		if (c->wcl_n) {
			wc_call_again(c, 0);
			return;
		}
	}
	wc_io_put_down(io);
}

static const struct wc_kind write_kind = {
	.k_put = io_write_put, .k_got = write_got, .k_end = write_end, .k_cache = true};

/* Sends a range, in as many calls as it takes. */
static void io_range(struct wc_io *io, const struct wc_kind *kind, uint64_t off, const uint8_t *buf,
		     uint32_t len, uint32_t most)
{
	while (len && !io->io_err) {
		uint32_t n = len < most ? len : most;
		struct wc_call *c = io_call(io, kind, off, buf, n);

		if (!c)
			return;
		wc_call_send(c);
		off += n;
		buf += n;
		len -= n;
	}
}

void wc_io_through(struct wc_io *io, uint64_t off, const uint8_t *buf, uint32_t len)
{
	const struct weft *w = io->io_op->o_w;

	if (io->io_op->o_what == WEFT_READ)
		io_range(io, &read_kind, off, buf, len, w->w_max_read);
	else
		io_range(io, &write_kind, off, buf, len, w->w_max_write);
}

void wc_io_through_all(struct wc_io *io)
{
	wc_io_through(io, io->io_op->o_off, io->io_op->o_buf, io->io_op->o_len);
}

static struct wc_io *io_new(struct weft_op *op)
{
	struct wc_io *io = calloc(1, sizeof(*io));

	if (!io) {
		wc_op_end(op, -ENOMEM, 0);
		return NULL;
	}
	io->io_op = op;
	io->io_file = op->o_file;
	io->io_pending = 1;
	return io;
}

void wc_io_begin(struct weft_op *op)
{
	struct weft_file *f = op->o_file;
	bool rd = op->o_what == WEFT_READ;
	struct wc_io *io;

	if ((f && !(f->f_access & (rd ? OPEN4_SHARE_ACCESS_READ : OPEN4_SHARE_ACCESS_WRITE))) ||
	    (f && f->f_state == WC_F_BAD)) {
		wc_op_end(op, -EBADF, 0);
		return;
	}
	if (op->o_off > (uint64_t)INT64_MAX - op->o_len || (op->o_len && !op->o_buf)) {
		wc_op_end(op, -EINVAL, 0);
		return;
	}
	io = io_new(op);
	if (!io)
		return;
	io->io_end = op->o_off + op->o_len;
	io->io_stable = op->o_flags & WEFT_STABLE ? FILE_SYNC4 : UNSTABLE4;
	if (!rd && !dirty_cut(f, op->o_off, io->io_end))
		wc_io_failed(io, -ENOMEM, 0);
	else if (!f || !wc_lo_io(io))
		wc_io_through_all(io);
	wc_io_put_down(io);
}

/* ---- COMMIT ---- */

static void commit_put(struct wc_call *c, struct xdr_out *x)
{
	put_io(c, x, OP_COMMIT);
	xdr_put_u32(x, 0); /* with offset 0: all of it */
}

static void commit_got(struct wc_call *c, struct wc_res *r)
{
	const uint8_t *verf;

	if (!res_io(c, r, OP_COMMIT))
		return;
	verf = xdr_get_fixed(r->x, NFS4_VERIFIER_SIZE);
	if (verf)
		memcpy(&c->wcl_verf, verf, sizeof(c->wcl_verf));
}

static void commit_end(struct wc_call *c, int err, uint32_t status)
{
	struct wc_io *io = c->wcl_arg;

	if (err)
		wc_io_failed(io, err, status);
	for (const struct wc_dirty *d = io->io_through; d && !err; d = d->d_next)
		if (d->d_len && (d->d_forced || d->d_verf != c->wcl_verf)) {
			c->wcl_w->w_rewritten++;
			wc_io_through(io, d->d_off, d->d_buf, d->d_len);
		}
	wc_dirty_free(io->io_through);
	io->io_through = NULL;
	wc_io_put_down(io);
}

static const struct wc_kind commit_kind = {
	.k_put = commit_put, .k_got = commit_got, .k_end = commit_end};

static void commit_start(struct wc_io *io)
{
	struct weft_file *f = io->io_file;
	struct wc_call *c;

	if (f->f_commit_err) {
		wc_io_failed(io, f->f_commit_err, f->f_commit_status);
		f->f_commit_err = 0;
	}
	if (f->f_dirty) {
		c = io_call(io, &commit_kind, 0, NULL, 0);
		if (c) {
			io->io_through = f->f_dirty;
			f->f_dirty = f->f_dirty_last = NULL;
			wc_call_send(c);
		}
	}
	wc_lo_flush(io);
	wc_io_put_down(io);
}

/* COMMITs run one after the other: the second must not end before what the first took over is
 * stable. */
void wc_commit_begin(struct weft_op *op)
{
	struct weft_file *f = op->o_file;
	struct wc_io *io = io_new(op), **at = &f->f_commits;

	if (!io)
		return;
	io->io_stable = FILE_SYNC4; /* for what is written again */
	while (*at)
		at = &(*at)->io_next;
	*at = io;
	if (f->f_commits == io)
		commit_start(io);
}
