/* SPDX-License-Identifier: Apache-2.0 */
/* open.c - open files: OPEN and CLOSE (RFC 8881 sections 18.16 and 18.2), and getting their state
 * back when a server lost it. */
#include "client/layout.h"
#include "client/open.h"
#include "client/res.h"
#include "client/ring.h"
#include "client/session.h"
#include "client/weft_call.h"
#include "client/weft_io.h"
#include <errno.h>
#include <stdlib.h>

#define WAIT_MS 20u

bool wc_state_error(uint32_t status)
{
	return status == NFS4ERR_BAD_STATEID || status == NFS4ERR_STALE_STATEID ||
	       status == NFS4ERR_EXPIRED || status == NFS4ERR_ADMIN_REVOKED;
}

const struct weft_fh *weft_file_fh(const struct weft_file *f)
{
	return &f->f_fh;
}

static struct weft_file *file_new(struct weft *w, uint32_t flags)
{
	struct weft_file *f = calloc(1, sizeof(*f));

	if (!f)
		return NULL;
	f->f_w = w;
	f->f_owner = ++w->w_next_owner;
	f->f_access = flags & (WEFT_O_READ | WEFT_O_WRITE);
	return f;
}

static struct weft_file **bucket(struct weft *w, const struct weft_fh *fh)
{
	uint64_t h = 0xcbf29ce484222325ull; /* FNV-1a */

	for (uint32_t i = 0; i < fh->fh_len; i++)
		h = (h ^ fh->fh_data[i]) * 0x100000001b3ull;
	return &w->w_buckets[(h ^ h >> 32) % WC_BUCKETS];
}

bool wc_fh_is(const struct weft_file *f, const struct weft_fh *fh)
{
	return f->f_fh.fh_len == fh->fh_len && !memcmp(f->f_fh.fh_data, fh->fh_data, fh->fh_len);
}

struct weft_file *wc_files_of(struct weft *w, const struct weft_fh *fh)
{
	struct weft_file *f = *bucket(w, fh);

	while (f && !wc_fh_is(f, fh))
		f = f->f_bucket;
	return f;
}

static void file_link(struct weft_file *f)
{
	struct weft *w = f->f_w;
	struct weft_file **b = bucket(w, &f->f_fh);

	f->f_bucket = *b;
	*b = f;

	f->f_next = w->w_files;
	if (w->w_files)
		w->w_files->f_prev = f;
	w->w_files = f;
	f->f_linked = true;
}

void wc_file_free(struct weft_file *f)
{
	if (f->f_linked) {
		struct weft_file **at = bucket(f->f_w, &f->f_fh);

		while (*at != f)
			at = &(*at)->f_bucket;
		*at = f->f_bucket;
		if (f->f_prev)
			f->f_prev->f_next = f->f_next;
		else
			f->f_w->w_files = f->f_next;
		if (f->f_next)
			f->f_next->f_prev = f->f_prev;
	}
	wc_lo_free(f);
	wc_dirty_free(f->f_dirty);
	free(f->f_places);
	free(f);
}

/* ---- OPEN ---- */

static void put_open(struct wc_call *c, struct xdr_out *x, const struct weft_file *f)
{
	uint64_t owner = htobe64(f->f_owner);

	wc_call_op(c, x, OP_OPEN);
	xdr_put_u32(x, 0); /* seqid: without meaning in sessions */
	xdr_put_u32(x, f->f_access | OPEN4_SHARE_ACCESS_WANT_NO_DELEG);
	xdr_put_u32(x, 0); /* deny nothing */
	xdr_put_u64(x, c->wcl_w->w_clientid);
	xdr_put_opaque(x, &owner, sizeof(owner));
}

static void skip_ace(struct xdr_in *x)
{
	uint32_t n;

	xdr_take(x, 12);
	xdr_get_opaque(x, UINT32_MAX, &n);
}

/* Parses open_delegation4. A delegation that the server granted without being asked is in *si, to
 * be returned. */
static bool get_delegation(struct xdr_in *x, struct wc_stateid *si)
{
	uint32_t type = xdr_get_u32(x), why;

	switch (type) {
	case OPEN_DELEGATE_NONE:
		return false;
	case OPEN_DELEGATE_NONE_EXT:
		why = xdr_get_u32(x);
		if (why == WND4_CONTENTION || why == WND4_RESOURCE)
			xdr_get_bool(x);
		return false;
	case OPEN_DELEGATE_READ:
	case OPEN_DELEGATE_WRITE:
		wc_get_stateid(x, si);
		xdr_get_bool(x);
		if (type == OPEN_DELEGATE_WRITE) {
			why = xdr_get_u32(x);
			if (why != NFS_LIMIT_SIZE && why != NFS_LIMIT_BLOCKS)
				x->bad = true;
			xdr_take(x, 8);
		}
		skip_ace(x);
		return !x->bad;
	default:
		x->bad = true;
		return false;
	}
}

static bool get_open(struct wc_call *c, struct wc_res *r, struct weft_file *f)
{
	uint32_t mask[3];

	if (!wc_res_op(r, OP_OPEN))
		return false;
	wc_get_stateid(r->x, &c->wcl_stateid);
	xdr_get_bool(r->x); /* change_info4 */
	xdr_take(r->x, 16);
	xdr_get_u32(r->x); /* flags: none of them matters to us */
	wc_get_bits(r->x, mask);
	f->f_delegated = get_delegation(r->x, &f->f_deleg);
	return !r->x->bad;
}

static void open_put(struct wc_call *c, struct xdr_out *x)
{
	static const struct wc_stateid current = {.si_seq = 1}; /* section 16.2.3.1.2 */
	static const struct weft_attr empty = {.at_set = WEFT_A_SIZE};
	struct weft_op *op = c->wcl_op;
	uint32_t flags = op->o_flags;

	c->wcl_at = 0;
	c->wcl_lo = !(flags & WEFT_O_NO_DATA) && wc_lo_with_open(c->wcl_arg);
	wc_put_fh(c, x, &op->o_fh);
	put_open(c, x, c->wcl_arg);
	if (flags & WEFT_O_CREATE) {
		struct weft_attr a = op->o_attr;

		a.at_set &= WEFT_A_MODE | WEFT_A_UID | WEFT_A_GID;
		if (flags & WEFT_O_TRUNC && !(flags & WEFT_O_EXCL))
			a.at_set |= WEFT_A_SIZE;
		a.at_size = 0;
		xdr_put_u32(x, 1);
		xdr_put_u32(x, flags & WEFT_O_EXCL ? GUARDED4 : UNCHECKED4);
		wc_put_attrs(x, &a, UINT32_MAX);
	} else {
		xdr_put_u32(x, 0);
	}
	if (op->o_name) {
		xdr_put_u32(x, CLAIM_NULL);
		xdr_put_opaque(x, op->o_name, (uint32_t)strlen(op->o_name));
	} else {
		xdr_put_u32(x, CLAIM_FH);
	}
	wc_call_op(c, x, OP_GETFH);
	if (flags & WEFT_O_TRUNC && !(flags & WEFT_O_CREATE)) {
		wc_call_op(c, x, OP_SETATTR);
		wc_put_stateid(x, &current);
		wc_put_attrs(x, &empty, WEFT_A_SIZE);
	}
	wc_put_getattr_limits(c, x);
	if (c->wcl_lo)
		wc_lo_put_get(c, x, c->wcl_arg, &current, WC_OPEN_BYTES);
}

static void open_got(struct wc_call *c, struct wc_res *r)
{
	struct weft_op *op = c->wcl_op;
	struct weft_file *f = c->wcl_arg;
	uint32_t mask[3];

	if (!wc_res_fh(r, &op->o_fh) || !get_open(c, r, f) || !wc_get_fh(r, &f->f_fh))
		return;
	c->wcl_at = 1;
	f->f_stateid = c->wcl_stateid;
	if (op->o_flags & WEFT_O_TRUNC && !(op->o_flags & WEFT_O_CREATE)) {
		if (!wc_res_op(r, OP_SETATTR))
			return;
		wc_get_bits(r->x, mask);
	}
	if (!wc_res_attr_limits(r, &op->o_attr, &f->f_limits) || !c->wcl_lo)
		return;
	/* An OPEN that brings no layout has not failed. */
	if (!wc_lo_res_get(r, f, &c->wcl_lo_stateid) && r->r_failed) {
		c->wcl_lo_status = c->wcl_status;
		c->wcl_status = NFS4_OK;
	}
}

static void deleg_return(struct weft_file *f);

static void open_end(struct wc_call *c, int err, uint32_t status)
{
	struct weft_op *op = c->wcl_op;
	struct weft_file *f = c->wcl_arg;
	struct weft *w = c->wcl_w;

	if (err && !c->wcl_at) {
		wc_file_free(f);
	} else if (err) {
		/* The OPEN itself worked, and what came after it failed. */
		wc_lo_free(f);
		file_link(f);
		wc_close_send(f, NULL);
	} else {
		file_link(f);
		f->f_gen = 1;
		f->f_size = op->o_attr.at_size;
		w->w_threshold = f->f_limits.th_read_size || f->f_limits.th_write_size ||
				 f->f_limits.th_read_io || f->f_limits.th_write_io;
		if (op->o_flags & WEFT_O_TRUNC && !(op->o_flags & WEFT_O_EXCL))
			wc_io_cut(w, &f->f_fh, 0);
		op->o_file = f;
		op->o_fh2 = f->f_fh;
		if (f->f_delegated)
			deleg_return(f);
		if (c->wcl_lo)
			wc_lo_opened(f, &c->wcl_lo_stateid, wc_errno(c->wcl_lo_status),
				     c->wcl_lo_status, c->wcl_recalled);
	}
	wc_op_end(op, err, status);
}

static const struct wc_kind open_kind = {
	.k_put = open_put, .k_got = open_got, .k_end = open_end, .k_cache = true};

void wc_open_begin(struct weft_op *op)
{
	bool good = op->o_flags & (WEFT_O_READ | WEFT_O_WRITE) &&
		    (op->o_name || !(op->o_flags & WEFT_O_CREATE)) &&
		    (op->o_flags & WEFT_O_WRITE || !(op->o_flags & WEFT_O_TRUNC)) &&
		    (op->o_flags & WEFT_O_CREATE || !(op->o_flags & WEFT_O_EXCL));
	struct weft_file *f = good ? file_new(op->o_w, op->o_flags) : NULL;
	struct wc_call *c;

	if (f && !op->o_name)
		f->f_fh = op->o_fh;
	c = f ? wc_call_new(op->o_w, &open_kind, op, f) : NULL;

	op->o_file = NULL;
	if (c) {
		wc_call_send(c);
		return;
	}
	free(f);
	wc_op_end(op, good ? -ENOMEM : -EINVAL, 0);
}

/* ---- a delegation that was not asked for ---- */

struct deleg {
	struct weft_fh fh;
	struct wc_stateid si;
};

static void deleg_put(struct wc_call *c, struct xdr_out *x)
{
	struct deleg *d = c->wcl_arg;

	wc_put_fh(c, x, &d->fh);
	wc_call_op(c, x, OP_DELEGRETURN);
	wc_put_stateid(x, &d->si);
}

static void deleg_got(struct wc_call *c, struct wc_res *r)
{
	struct deleg *d = c->wcl_arg;

	if (wc_res_fh(r, &d->fh))
		wc_res_op(r, OP_DELEGRETURN);
}

static void deleg_end(struct wc_call *c, int err, uint32_t status)
{
	(void)err;
	(void)status;
	free(c->wcl_arg);
}

static const struct wc_kind deleg_kind = {
	.k_put = deleg_put, .k_got = deleg_got, .k_end = deleg_end, .k_cache = true};

static void deleg_return(struct weft_file *f)
{
	struct deleg *d = malloc(sizeof(*d));
	struct wc_call *c = d ? wc_call_new(f->f_w, &deleg_kind, NULL, d) : NULL;

	f->f_delegated = false;
	if (!c) {
		free(d);
		return;
	}
	d->fh = f->f_fh;
	d->si = f->f_deleg;
	wc_call_send(c);
}

/* ---- CLOSE ---- */

static void close_put(struct wc_call *c, struct xdr_out *x)
{
	struct weft_file *f = c->wcl_arg;

	c->wcl_lo = f->f_lo && !f->f_lo->lo_dead;
	wc_put_fh(c, x, &f->f_fh);
	if (c->wcl_lo)
		wc_lo_put_return(c, x, f);
	wc_call_op(c, x, OP_CLOSE);
	xdr_put_u32(x, 0);
	wc_put_stateid(x, &f->f_stateid);
}

/* wcl_at: LAYOUTRETURN was refused */
static void close_got(struct wc_call *c, struct wc_res *r)
{
	struct weft_file *f = c->wcl_arg;
	struct wc_stateid si;

	c->wcl_at = 0;
	if (!wc_res_fh(r, &f->f_fh))
		return;
	c->wcl_at = c->wcl_lo && !wc_lo_res_return(r);
	if (!c->wcl_at && wc_res_op(r, OP_CLOSE))
		wc_get_stateid(r->x, &si);
}

static void close_end(struct wc_call *c, int err, uint32_t status)
{
	struct weft_file *f = c->wcl_arg;
	bool over = c->wcl_w->w_state == WC_CLOSING || c->wcl_w->w_state == WC_FAILED;

	/* A layout that the server does not know is gone as well. */
	if (c->wcl_at && !over) {
		c->wcl_at = 0;
		wc_lo_free(f);
		wc_call_again(c, 0);
		return;
	}
	if (f->f_reopen && !over) {
		wc_call_again(c, WAIT_MS);
		return;
	}
	wc_file_free(f);
	if (c->wcl_op)
		wc_op_end(c->wcl_op, err, status);
}

static const struct wc_kind close_kind = {
	.k_put = close_put, .k_got = close_got, .k_end = close_end, .k_cache = true};

void wc_close_send(struct weft_file *f, struct weft_op *op)
{
	struct wc_call *c = wc_call_new(f->f_w, &close_kind, op, f);

	if (c) {
		wc_call_send(c);
		return;
	}
	/* The server keeps it until the client ends. */
	wc_file_free(f);
	if (op)
		wc_op_end(op, -ENOMEM, 0);
}

void wc_close_begin(struct weft_op *op)
{
	struct weft_file *f = op->o_file;

	op->o_file = NULL;
	if (!wc_lo_close(f, op))
		wc_close_now(f, op);
}

void wc_close_now(struct weft_file *f, struct weft_op *op)
{
	if (f->f_state == WC_F_BAD) {
		wc_file_free(f);
		wc_op_end(op, -EBADF, 0);
	} else {
		wc_close_send(f, op);
	}
}

/* ---- state that a server lost: opened again by file handle, in the grace period as a reclaim
 * (section 8.4.2.1) ---- */

static void reopen_put(struct wc_call *c, struct xdr_out *x)
{
	const struct weft_file *f = c->wcl_arg;

	wc_put_fh(c, x, &f->f_fh);
	put_open(c, x, f);
	xdr_put_u32(x, 0);
	if (c->wcl_kind->k_urgent) {
		xdr_put_u32(x, CLAIM_PREVIOUS);
		xdr_put_u32(x, OPEN_DELEGATE_NONE);
	} else {
		xdr_put_u32(x, CLAIM_FH);
	}
}

static void reopen_got(struct wc_call *c, struct wc_res *r)
{
	struct weft_file *f = c->wcl_arg;

	if (wc_res_fh(r, &f->f_fh))
		get_open(c, r, f);
}

static void reopened(struct wc_call *c, int err)
{
	struct weft_file *f = c->wcl_arg;

	f->f_reopen = NULL;
	f->f_state = err ? WC_F_BAD : WC_F_OPEN;
	if (err)
		return;
	f->f_stateid = c->wcl_stateid;
	f->f_gen++;
	if (f->f_delegated)
		deleg_return(f);
}

static void reopen_end(struct wc_call *c, int err, uint32_t status)
{
	(void)status;
	reopened(c, err);
}

static const struct wc_kind reopen_kind = {
	.k_put = reopen_put, .k_got = reopen_got, .k_end = reopen_end, .k_cache = true};

void wc_file_lost(struct weft_file *f, uint64_t gen)
{
	if (f->f_state != WC_F_OPEN || f->f_gen != gen)
		return;
	f->f_state = WC_F_LOST;
	f->f_reopen = wc_call_new(f->f_w, &reopen_kind, NULL, f);
	if (f->f_reopen)
		wc_call_send(f->f_reopen);
	else
		f->f_state = WC_F_BAD;
}

static void reclaim_check(struct weft *w)
{
	if (!w->w_reclaiming)
		w->w_reclaim_done(w, w->w_reclaim_cut);
}

static void reclaim_end(struct wc_call *c, int err, uint32_t status)
{
	struct weft_file *f = c->wcl_arg;
	struct weft *w = c->wcl_w;

	if (!err) {
		reopened(c, 0);
	} else if (status && status != NFS4ERR_BADSESSION && status != NFS4ERR_DEADSESSION) {
		/* Too late to reclaim, or unknown to the server: perhaps it can be opened as if for
		 * the first time. */
		f->f_reopen = NULL;
		f->f_state = WC_F_OPEN;
		wc_file_lost(f, f->f_gen);
	} else {
		f->f_reopen = NULL;
		w->w_reclaim_cut = true;
	}
	w->w_reclaiming--;
	reclaim_check(w);
}

static const struct wc_kind reclaim_kind = {.k_put = reopen_put,
					    .k_got = reopen_got,
					    .k_end = reclaim_end,
					    .k_cache = true,
					    .k_urgent = true};

void wc_files_reclaim(struct weft *w, void (*done)(struct weft *w, bool cut))
{
	w->w_reclaim_done = done;
	w->w_reclaim_cut = false;
	w->w_reclaiming = 1;
	for (struct weft_file *f = w->w_files; f; f = f->f_next) {
		wc_lo_lost(f);
		if (f->f_state == WC_F_BAD || f->f_reopen)
			continue;
		f->f_state = WC_F_LOST;
		f->f_reopen = wc_call_new(w, &reclaim_kind, NULL, f);
		if (!f->f_reopen) {
			f->f_state = WC_F_BAD;
			continue;
		}
		w->w_reclaiming++;
		wc_call_send(f->f_reopen);
	}
	w->w_reclaiming--;
	reclaim_check(w);
}
