/* SPDX-License-Identifier: Apache-2.0 */
/*
 * layout.c - Flex Files layouts (RFC 8435; RFC 8881 section 12). A file has one layout. The client
 * asks for it with OPEN or with the first I/O. The client returns it with CLOSE, when the server
 * recalls it, and after an error, which the return reports. I/O waits while the layout is asked for
 * or returned. Two kinds of I/O go through the server: what the layout does not cover, and what the
 * server wants to do itself (mdsthreshold).
 *
 * A server has one layout of a file for a client, whatever opened it (section 12.5.2). Of several
 * open files the first that asks has the layout; the others go through the server meanwhile.
 *
 * The layout goes back when no call to a data server is under way. First the client commits what
 * the data servers have unstable, then it reports to the server (LAYOUTCOMMIT), then LAYOUTRETURN
 * follows.
 */
#include "client/device.h"
#include "client/layout.h"
#include "client/open.h"
#include "client/report.h"
#include "client/res.h"
#include "client/session.h"
#include "client/weft_call.h"
#include "client/weft_ds_io.h"
#include "client/weft_io.h"
#include <errno.h>
#include <stdlib.h>
#include <urcu/compiler.h>

#define OFF_MS 1000u /* after an error, or when the server had none just now */
/* after a refusal: its reason may pass (a copy under way, or the server has given as many layouts
 * as it gives) */
#define REFUSED_MS 60000u
/* A recall leaves the data servers so much time, and then so much for a COMMIT. The server's own
 * limit is 15 s if nobody has set it. */
#define RECALL_MS	 8000u
#define RECALL_COMMIT_MS 4000u
#define FAILURES	 3u
#define LEAST_LENGTH	 4096u
#define LAYOUT_BYTES	 65536u
/* how often to send statistics if the server does not say; Linux does the same */
#define HINT_S	 60u
#define OPEN_OPS 7u /* SEQUENCE, PUTFH, OPEN, GETFH, SETATTR, GETATTR, LAYOUTGET */

/* ---- ff_layout4 (RFC 8435 section 5.1) ---- */

static void get_ds(struct xdr_in *x, struct wc_lo_ds *ds)
{
	const uint8_t *p = xdr_get_fixed(x, NFS4_DEVICEID4_SIZE);
	uint32_t n;

	if (p)
		memcpy(ds->ld_id, p, NFS4_DEVICEID4_SIZE);
	ds->ld_efficiency = xdr_get_u32(x);
	xdr_get_fixed(x, 16); /* a stateid: NFSv3 has none */
	n = xdr_get_u32(x);
	for (uint32_t i = 0; i < n && !x->bad; i++) {
		uint32_t len;

		p = xdr_get_opaque(x, NFS4_FHSIZE, &len);
		if (x->bad || i >= WC_FHS)
			continue;
		ds->ld_nfh = i + 1;
		if (len && len <= sizeof(ds->ld_fh[i])) {
			ds->ld_fh_len[i] = len;
			memcpy(ds->ld_fh[i], p, len);
		}
	}
	ds->ld_usable = wc_get_id(x, &ds->ld_uid);
	ds->ld_usable &= wc_get_id(x, &ds->ld_gid);
}

/* Returns how many data servers there are in all, or 0 for a layout that we do not read. */
static uint32_t count_ds(struct xdr_in x)
{
	uint32_t mirrors, all = 0;

	xdr_get_u64(&x);
	mirrors = xdr_get_u32(&x);
	if (mirrors > WC_MIRRORS)
		return 0;
	for (uint32_t m = 0; m < mirrors; m++) {
		uint32_t n = xdr_get_u32(&x);

		if (!n || n > WC_LO_DS - all || x.bad)
			return 0;
		all += n;
		for (uint32_t i = 0; i < n && !x.bad; i++) {
			struct wc_lo_ds skipped;

			get_ds(&x, &skipped);
		}
	}
	return x.bad ? 0 : all;
}

static struct wc_layout *layout_get_layout(const uint8_t *body, uint32_t len)
{
	struct wc_layout *lo;
	struct xdr_in x;
	uint32_t n;

	xdr_in_init(&x, body, len);
	n = count_ds(x);
	lo = n ? calloc(1, sizeof(*lo) + n * sizeof(lo->lo_ds[0])) : NULL;
	if (!lo)
		return NULL;
	lo->lo_unit = xdr_get_u64(&x);
	lo->lo_nmirrors = xdr_get_u32(&x);
	for (uint32_t m = 0; m < lo->lo_nmirrors; m++) {
		uint32_t k = xdr_get_u32(&x);

		lo->lo_first[m] = lo->lo_nds;
		while (k--)
			get_ds(&x, &lo->lo_ds[lo->lo_nds++]);
		/* Several stripes without a stripe unit are no layout. */
		if (lo->lo_nds - lo->lo_first[m] > 1 && !lo->lo_unit)
			x.bad = true;
	}
	lo->lo_first[lo->lo_nmirrors] = lo->lo_nds;
	lo->lo_flags = xdr_get_u32(&x);
	lo->lo_hint_s = xdr_get_u32(&x);
	lo->lo_hint_s = lo->lo_hint_s ? lo->lo_hint_s : HINT_S;
	if (x.bad) {
		free(lo);
		return NULL;
	}
	return lo;
}

bool wc_lo_same(const struct wc_layout *lo, uint32_t a, uint32_t b)
{
	const struct wc_lo_ds *x = &lo->lo_ds[a], *y = &lo->lo_ds[b];

	return x == y ||
	       (!memcmp(x->ld_id, y->ld_id, NFS4_DEVICEID4_SIZE) && x->ld_nfh == y->ld_nfh &&
		!memcmp(x->ld_fh_len, y->ld_fh_len, sizeof(x->ld_fh_len)) &&
		!memcmp(x->ld_fh, y->ld_fh, sizeof(x->ld_fh)));
}

static void layout_free(struct wc_layout *lo)
{
	if (!lo)
		return;
	if (lo->lo_loop)
		loop_timer_stop(lo->lo_loop, &lo->lo_timer);
	wc_dirty_free(lo->lo_dirty);
	free(lo);
}

void wc_lo_free(struct weft_file *f)
{
	layout_free(f->f_lo);
	f->f_lo = NULL;
}

/* ---- I/O ---- */

static void layout_io_start(struct wc_io *io)
{
	struct weft_file *f = io->io_file;
	struct wc_layout *lo = f->f_lo;
	bool rd = io->io_op->o_what == WEFT_READ;
	uint64_t off = io->io_op->o_off, end = off + io->io_op->o_len;
	uint8_t *buf = io->io_op->o_buf;

	/* That flag concerns layouts for writing (RFC 8435 section 5.1). */
	if (f->f_lo_state != WC_LO_HELD ||
	    (rd && f->f_access & OPEN4_SHARE_ACCESS_WRITE && lo->lo_flags & FF_FLAGS_NO_READ_IO)) {
		wc_io_through_all(io);
		return;
	}
	io->io_tell = !rd && io->io_stable == FILE_SYNC4;
	while (off < end) {
		uint64_t upto = end;
		uint32_t n;

		if (off < lo->lo_off || off >= lo->lo_end) {
			upto = off < lo->lo_off && lo->lo_off < end ? lo->lo_off : end;
			wc_io_through(io, off, buf, (uint32_t)(upto - off));
		} else {
			upto = lo->lo_end < upto ? lo->lo_end : upto;
			if (lo->lo_unit && lo->lo_nds > lo->lo_nmirrors)
				upto = (off / lo->lo_unit + 1) * lo->lo_unit < upto
					       ? (off / lo->lo_unit + 1) * lo->lo_unit
					       : upto;
			for (unsigned m = 0; m < lo->lo_nmirrors; m++) {
				const struct wc_device *dv =
					lo->lo_ds[wc_lo_index(lo, m, off)].ld_dev;
				uint32_t most = rd ? dv->dv_rsize : dv->dv_wsize;

				if (dv->dv_state == WC_DEV_GOOD)
					upto = upto - off > most ? off + most : upto;
			}
			upto = upto - off > WC_MAX_IO ? off + WC_MAX_IO : upto;
			n = (uint32_t)(upto - off);
			if (rd)
				wc_ds_read(io, lo, off, buf, n);
			else
				wc_ds_write(io, lo, off, buf, n);
		}
		buf += upto - off;
		off = upto;
	}
}

/* A part of an operation. */
struct wc_lo_part {
	struct wc_lo_part *lp_next;
	struct wc_io *lp_io;
	uint64_t lp_off;
	const uint8_t *lp_buf;
	uint32_t lp_len;
};

bool wc_lo_later(struct wc_layout *lo, struct wc_io *io, uint64_t off, const uint8_t *buf,
		 uint32_t len)
{
	struct weft_file *f = io->io_file;
	struct wc_lo_part *lp;

	if (!lo->lo_late || f->f_lo_state != WC_LO_RETURNING || f->f_lo_flushing)
		return false;
	lp = malloc(sizeof(*lp));
	if (!lp)
		return false;
	*lp = (struct wc_lo_part){f->f_lo_parts, io, off, buf, len};
	f->f_lo_parts = lp;
	io->io_pending++;
	return true;
}

static void parts_go(struct weft_file *f)
{
	struct wc_lo_part *lp = f->f_lo_parts, *next;

	f->f_lo_parts = NULL;
	for (; lp; lp = next) {
		next = lp->lp_next;
		wc_io_through(lp->lp_io, lp->lp_off, lp->lp_buf, lp->lp_len);
		wc_io_put_down(lp->lp_io);
		free(lp);
	}
}

/* Lets the I/O that waited go on, whatever became of the layout. */
static void waiters_go(struct weft_file *f)
{
	struct wc_io *io = f->f_lo_wait, *next;

	f->f_lo_wait = f->f_lo_wait_last = NULL;
	for (; io; io = next) {
		next = io->io_next;
		layout_io_start(io);
		wc_io_put_down(io);
	}
}

static void layout_settled(struct weft_file *f)
{
	struct weft_op *op = f->f_lo_close;

	parts_go(f);
	waiters_go(f);
	if (!op)
		return;
	f->f_lo_close = NULL;
	if (!wc_lo_close(f, op))
		wc_close_now(f, op);
}

static void off_for(struct weft_file *f, uint32_t ms)
{
	f->f_lo_state = WC_LO_OFF;
	f->f_lo_off_ns = loop_now_ns(f->f_w->w_loop) + ms * 1000000ull;
}

/* ---- LAYOUTGET (RFC 8881 section 18.43) ---- */

void wc_lo_put_get(struct wc_call *c, struct xdr_out *x, const struct weft_file *f,
		   const struct wc_stateid *si, uint32_t most)
{
	wc_call_op(c, x, OP_LAYOUTGET);
	xdr_put_bool(x, false);
	xdr_put_u32(x, LAYOUT4_FLEX_FILES);
	xdr_put_u32(x,
		    f->f_access & OPEN4_SHARE_ACCESS_WRITE ? LAYOUTIOMODE4_RW : LAYOUTIOMODE4_READ);
	xdr_put_u64(x, 0);
	xdr_put_u64(x, NFS4_UINT64_MAX);
	xdr_put_u64(x, LEAST_LENGTH);
	wc_put_stateid(x, si);
	xdr_put_u32(x, most < LAYOUT_BYTES ? most : LAYOUT_BYTES);
}

/* f_lo stays NULL for a kind of layout that we do not read. */
bool wc_lo_res_get(struct wc_res *r, struct weft_file *f, struct wc_stateid *si)
{
	uint32_t n;

	if (!wc_res_op(r, OP_LAYOUTGET))
		return false;
	xdr_get_bool(r->x); /* return_on_close: we always do */
	wc_get_stateid(r->x, si);
	n = xdr_get_u32(r->x);
	for (uint32_t i = 0; i < n && !r->x->bad; i++) {
		uint64_t off = xdr_get_u64(r->x), len = xdr_get_u64(r->x);
		uint32_t mode = xdr_get_u32(r->x), type = xdr_get_u32(r->x), blen;
		const uint8_t *body = xdr_get_opaque(r->x, UINT32_MAX, &blen);

		if (r->x->bad || f->f_lo || type != LAYOUT4_FLEX_FILES || !blen ||
		    (f->f_access & OPEN4_SHARE_ACCESS_WRITE && mode != LAYOUTIOMODE4_RW))
			continue;
		f->f_lo = layout_get_layout(body, blen);
		if (f->f_lo) {
			f->f_lo->lo_off = off;
			f->f_lo->lo_end = len > UINT64_MAX - off ? UINT64_MAX : off + len;
		}
	}
	if (r->x->bad || !n) {
		r->r_bad = true;
		wc_lo_free(f);
		return false;
	}
	return true;
}

static void get_put(struct wc_call *c, struct xdr_out *x)
{
	const struct weft_file *f = c->wcl_arg;

	wc_put_fh(c, x, &f->f_fh);
	wc_lo_put_get(c, x, f, &f->f_stateid, c->wcl_w->w_max_resp - 512);
}

static void get_got(struct wc_call *c, struct wc_res *r)
{
	struct weft_file *f = c->wcl_arg;

	if (wc_res_fh(r, &f->f_fh))
		wc_lo_res_get(r, f, &c->wcl_stateid);
}

/* True if all devices are known, as good or as bad. */
static bool devices_known(const struct wc_layout *lo)
{
	for (uint32_t i = 0; i < lo->lo_nds; i++)
		if (lo->lo_ds[i].ld_dev->dv_state == WC_DEV_ASKED)
			return false;
	return true;
}

static void devices_check(struct weft_file *f)
{
	if (!devices_known(f->f_lo))
		return;
	f->f_lo_state = WC_LO_HELD;
	if (f->f_lo->lo_dead) {
		wc_lo_give_back(f);
		return;
	}
	f->f_w->w_nlayouts++;
	layout_settled(f);
}

void wc_lo_go_on(struct weft *w)
{
	struct weft_file *f, *next;

	for (f = w->w_files; f; f = next) {
		next = f->f_next;
		if (f->f_lo_state == WC_LO_DEVICES)
			devices_check(f);
	}
}

static void layout_refuse(struct weft_file *f, const struct wc_stateid *si)
{
	if (!f->f_lo)
		f->f_lo = calloc(1, sizeof(*f->f_lo));
	if (!f->f_lo) {
		off_for(f, REFUSED_MS);
		return;
	}
	f->f_lo->lo_stateid = *si;
	f->f_lo->lo_nds = 0;
	f->f_lo_state = WC_LO_HELD;
	wc_lo_give_back(f);
}

static void devices_find(struct weft_file *f)
{
	struct wc_layout *lo = f->f_lo;

	for (uint32_t i = 0; i < lo->lo_nds; i++) {
		lo->lo_ds[i].ld_dev = wc_device_get(f->f_w, lo->lo_ds[i].ld_id);
		if (!lo->lo_ds[i].ld_dev) {
			f->f_lo_failures = FAILURES;
			layout_refuse(f, &lo->lo_stateid);
			return;
		}
	}
	f->f_lo_state = WC_LO_DEVICES;
	devices_check(f);
}

static void layout_got(struct weft_file *f, const struct wc_stateid *si, int err, uint32_t status)
{
	if (err) {
		bool later = status == NFS4ERR_LAYOUTTRYLATER || status == NFS4ERR_RECALLCONFLICT ||
			     status == NFS4ERR_DELAY || status == NFS4ERR_GRACE ||
			     status == NFS4ERR_TOOSMALL || wc_state_error(status) || !status;

		/* The reply was bad further on. Free the layout, so that no CLOSE waits for its
		 * return. The server recalls what it gave when it needs to. */
		wc_lo_free(f);
		f->f_w->w_no_flex |= status == NFS4ERR_UNKNOWN_LAYOUTTYPE;
		off_for(f, later ? OFF_MS : REFUSED_MS);
		layout_settled(f);
		return;
	}
	if (!f->f_lo) {
		f->f_lo_failures = FAILURES;
		f->f_w->w_no_flex = true;
		layout_refuse(f, si);
		return;
	}
	f->f_lo->lo_stateid = *si;
	f->f_lo->lo_since_ns = f->f_lo->lo_told_ns = loop_now_ns(f->f_w->w_loop);
	devices_find(f);
}

static void get_end(struct wc_call *c, int err, uint32_t status)
{
	layout_got(c->wcl_arg, &c->wcl_stateid, err, status);
}

/* The server does not cache its reply: a retry gets the layout again, and some layouts are larger
 * than what the reply cache holds. */
static const struct wc_kind get_kind = {.k_put = get_put, .k_got = get_got, .k_end = get_end};

/* True if another open file has the layout of this file, or is about to get it. */
static bool another_has(const struct weft_file *f)
{
	struct weft_file *o = wc_files_of(f->f_w, &f->f_fh);

	for (; o; o = o->f_bucket)
		if (o != f && wc_fh_is(o, &f->f_fh) && o->f_lo_state != WC_LO_NONE &&
		    o->f_lo_state != WC_LO_OFF)
			return true;
	return false;
}

bool wc_lo_with_open(const struct weft_file *f)
{
	const struct weft *w = f->f_w;

	return w->w_pnfs && !w->w_no_flex && !w->w_threshold && w->w_max_ops >= OPEN_OPS &&
	       w->w_max_cached >= 2 * WC_OPEN_BYTES && !(f->f_fh.fh_len && another_has(f));
}

void wc_lo_opened(struct weft_file *f, const struct wc_stateid *si, int err, uint32_t status,
		  bool stale)
{
	/* The other open file has this same layout: returning it would end both. */
	if (another_has(f))
		wc_lo_free(f);
	else if (!err && stale)
		layout_refuse(f, si);
	else if (!err || (status != NFS4ERR_TOOSMALL && status != NFS4ERR_DELAY &&
			  status != NFS4ERR_REP_TOO_BIG && status != NFS4ERR_REP_TOO_BIG_TO_CACHE))
		layout_got(f, si, err, status);
}

/* True for I/O that the server wants to do itself (RFC 8881 section 5.12.6). */
static bool steered(const struct wc_io *io)
{
	const struct wc_limits *th = &io->io_file->f_limits;
	const struct weft_op *op = io->io_op;
	uint64_t end = op->o_off + op->o_len, size = io->io_file->f_size;

	if (op->o_what == WEFT_READ)
		return size < th->th_read_size || op->o_len < th->th_read_io;
	return (end > size ? end : size) < th->th_write_size || op->o_len < th->th_write_io;
}

bool wc_lo_io(struct wc_io *io)
{
	struct weft_file *f = io->io_file;
	struct weft *w = f->f_w;
	struct wc_call *c;

	if (f->f_lo_state == WC_LO_OFF && loop_now_ns(w->w_loop) >= f->f_lo_off_ns)
		f->f_lo_state = WC_LO_NONE;
	if (!w->w_pnfs || f->f_lo_state == WC_LO_OFF)
		return false;
	if (steered(io)) {
		w->w_steered++;
		return false;
	}
	if (f->f_lo_state == WC_LO_HELD) {
		layout_io_start(io);
		return true;
	}
	if (f->f_lo_state == WC_LO_NONE) {
		if (another_has(f))
			return false;
		c = wc_call_new(w, &get_kind, NULL, f);
		if (!c)
			return false;
		f->f_lo_state = WC_LO_ASKED;
		wc_call_send(c);
	}
	io->io_pending++;
	io->io_next = NULL;
	if (f->f_lo_wait_last)
		f->f_lo_wait_last->io_next = io;
	else
		f->f_lo_wait = io;
	f->f_lo_wait_last = io;
	return true;
}

/* ---- unstable data on data servers ---- */

/* The next COMMIT writes again what the servers of a dead layout have, and what has no place among
 * its records. */
bool wc_lo_dirty(struct weft_file *f, struct wc_layout *lo, const struct wc_dirty *d)
{
	struct wc_dirty *n = wc_dirty_new(f, d),
			**last = lo->lo_dead ? &f->f_dirty_last : &lo->lo_dirty_last,
			**first = lo->lo_dead ? &f->f_dirty : &lo->lo_dirty;

	if (!n)
		return false;
	n->d_forced = lo->lo_dead;
	if (*last)
		(*last)->d_next = n;
	else
		*first = n;
	*last = n;
	return true;
}

void wc_lo_flush(struct wc_io *io)
{
	struct weft_file *f = io->io_file;
	struct wc_layout *lo = f->f_lo;

	if (!lo || (f->f_lo_state != WC_LO_HELD && f->f_lo_state != WC_LO_RETURNING) || lo->lo_dead)
		return;
	io->io_dirty = lo->lo_dirty;
	lo->lo_dirty = lo->lo_dirty_last = NULL;
	io->io_tell = lo->lo_tell;
	for (uint32_t i = 0; i < lo->lo_nds; i++)
		for (const struct wc_dirty *d = io->io_dirty; d; d = d->d_next)
			if (d->d_ds == i) {
				wc_ds_commit(io, lo, i);
				break;
			}
}

/* ---- LAYOUTCOMMIT (section 18.42) ---- */

static void tell_put(struct wc_call *c, struct xdr_out *x)
{
	struct wc_io *io = c->wcl_arg;
	const struct weft_file *f = io->io_file;

	wc_put_fh(c, x, &f->f_fh);
	wc_call_op(c, x, OP_LAYOUTCOMMIT);
	xdr_put_u64(x, 0);
	xdr_put_u64(x, NFS4_UINT64_MAX);
	xdr_put_bool(x, false);
	wc_put_stateid(x, &c->wcl_stateid);
	/* The file may have become shorter meanwhile. */
	if (c->wcl_more == f->f_lo && f->f_lo && f->f_lo->lo_last < c->wcl_off)
		c->wcl_off = f->f_lo->lo_last;
	xdr_put_bool(x, c->wcl_off != 0);
	if (c->wcl_off)
		xdr_put_u64(x, c->wcl_off - 1);
	xdr_put_bool(x, false);
	xdr_put_u32(x, LAYOUT4_FLEX_FILES);
	xdr_put_u32(x, 0);
}

static void tell_got(struct wc_call *c, struct wc_res *r)
{
	struct wc_io *io = c->wcl_arg;

	if (wc_res_fh(r, &io->io_file->f_fh) && wc_res_op(r, OP_LAYOUTCOMMIT) && xdr_get_bool(r->x))
		xdr_get_u64(r->x);
}

/* If the server refuses it, all of the data has to be written again, through the server. */
static void layout_tell_end(struct wc_call *c, int err, uint32_t status)
{
	struct wc_io *io = c->wcl_arg;
	struct weft_file *f = io->io_file;

	(void)status;
	if (c->wcl_more == f->f_lo && f->f_lo)
		wc_lo_ref_put(f, f->f_lo);
	if (err && io->io_op->o_what == WEFT_WRITE) {
		wc_io_through_all(io);
	} else if (err) {
		for (const struct wc_dirty *d = io->io_dirty; d; d = d->d_next)
			wc_io_through(io, d->d_off, d->d_buf, d->d_len);
	}
	wc_io_put_down(io);
}

static const struct wc_kind tell_kind = {
	.k_put = tell_put, .k_got = tell_got, .k_end = layout_tell_end, .k_cache = true};

void wc_lo_tell(struct wc_io *io)
{
	struct weft_file *f = io->io_file;
	struct wc_layout *lo = f->f_lo;
	struct wc_call *c;

	/* A stable WRITE sends it in any case: the answer to another LAYOUTCOMMIT may still be
	 * out. */
	if (!lo || lo->lo_dead || !lo->lo_last ||
	    (!lo->lo_tell && io->io_op->o_what != WEFT_WRITE) ||
	    lo->lo_flags & FF_FLAGS_NO_LAYOUTCOMMIT) {
		if (lo && lo->lo_flags & FF_FLAGS_NO_LAYOUTCOMMIT)
			lo->lo_tell = false;
		wc_io_put_down(io);
		return;
	}
	c = wc_call_new(f->f_w, &tell_kind, NULL, io);
	if (!c) {
		wc_io_failed(io, -ENOMEM, 0);
		wc_io_put_down(io);
		return;
	}
	lo->lo_tell = false;
	lo->lo_refs++;
	c->wcl_more = lo;
	c->wcl_off = lo->lo_last;
	c->wcl_stateid = lo->lo_stateid;
	wc_call_send(c);
}

/* ---- giving back: LAYOUTRETURN (section 18.44) with ff_layoutreturn4 (RFC 8435 section 9) ---- */

void wc_lo_put_return(struct wc_call *c, struct xdr_out *x, const struct weft_file *f)
{
	wc_call_op(c, x, OP_LAYOUTRETURN);
	xdr_put_bool(x, false);
	xdr_put_u32(x, LAYOUT4_FLEX_FILES);
	xdr_put_u32(x, LAYOUTIOMODE4_ANY);
	xdr_put_u32(x, LAYOUTRETURN4_FILE);
	xdr_put_u64(x, 0);
	xdr_put_u64(x, NFS4_UINT64_MAX);
	wc_put_stateid(x, &f->f_lo->lo_stateid);
	wc_lo_put_reports(c->wcl_w, x, f->f_lo);
}

bool wc_lo_res_return(struct wc_res *r)
{
	struct wc_stateid si;

	if (!wc_res_op(r, OP_LAYOUTRETURN))
		return false;
	if (xdr_get_bool(r->x))
		wc_get_stateid(r->x, &si);
	return !r->x->bad;
}

static void return_put(struct wc_call *c, struct xdr_out *x)
{
	const struct weft_file *f = c->wcl_arg;

	wc_put_fh(c, x, &f->f_fh);
	wc_lo_put_return(c, x, f);
}

static void return_got(struct wc_call *c, struct wc_res *r)
{
	const struct weft_file *f = c->wcl_arg;

	if (wc_res_fh(r, &f->f_fh))
		wc_lo_res_return(r);
}

/* A layout that the server does not know is gone as well. */
static void return_end(struct wc_call *c, int err, uint32_t status)
{
	struct weft_file *f = c->wcl_arg;

	(void)err;
	(void)status;
	f->f_lo_failures = f->f_lo->lo_nerrors ? f->f_lo_failures + 1 : f->f_lo_failures;
	wc_lo_free(f);
	f->f_lo_state = WC_LO_NONE;
	if (f->f_lo_failures >= FAILURES) {
		f->f_lo_failures = 0;
		off_for(f, OFF_MS);
	}
	parts_go(f);
	/* They ask again, for what may be another layout. */
	if (f->f_lo_state == WC_LO_NONE && f->f_lo_wait) {
		struct wc_io *io = f->f_lo_wait, *next;

		f->f_lo_wait = f->f_lo_wait_last = NULL;
		for (; io; io = next) {
			next = io->io_next;
			if (!wc_lo_io(io))
				wc_io_through_all(io);
			wc_io_put_down(io);
		}
		return;
	}
	layout_settled(f);
}

static const struct wc_kind return_kind = {
	.k_put = return_put, .k_got = return_got, .k_end = return_end, .k_cache = true};

static void return_send(struct weft_file *f)
{
	struct weft_op *op = f->f_lo_close;
	struct wc_call *c;

	if (op && !f->f_lo_wait && !f->f_lo_parts && f->f_state == WC_F_OPEN) {
		f->f_lo_close = NULL;
		wc_close_send(f, op);
		return;
	}
	c = wc_call_new(f->f_w, &return_kind, NULL, f);
	if (c) {
		wc_call_send(c);
		return;
	}
	/* The server takes the layout back when it needs to. */
	wc_lo_free(f);
	off_for(f, OFF_MS);
	layout_settled(f);
}

/* The flush before the return: an operation of our own. */
struct flush {
	struct weft_op fl_op;
	struct weft_file *fl_file;
};

static void flushed(struct weft_op *op)
{
	struct flush *fl = caa_container_of(op, struct flush, fl_op);
	struct weft_file *f = fl->fl_file;

	if (op->o_err) {
		f->f_commit_err = op->o_err;
		f->f_commit_status = op->o_status;
	}
	free(fl);
	return_send(f);
}

static void layout_drained(struct weft_file *f)
{
	struct wc_layout *lo = f->f_lo;
	struct flush *fl;

	if (lo->lo_dead) {
		wc_lo_free(f);
		f->f_lo_state = WC_LO_NONE;
		layout_settled(f);
		return;
	}
	f->f_lo_flushing = true;
	if (!lo->lo_dirty && !lo->lo_tell) {
		return_send(f);
		return;
	}
	fl = calloc(1, sizeof(*fl));
	if (!fl) {
		f->f_commit_err = -ENOMEM;
		f->f_commit_status = 0;
		return_send(f);
		return;
	}
	fl->fl_file = f;
	fl->fl_op = (struct weft_op){
		.o_what = WEFT_COMMIT, .o_file = f, .o_done = flushed, .o_w = f->f_w};
	wc_commit_begin(&fl->fl_op);
}

void wc_lo_give_back(struct weft_file *f)
{
	if (f->f_lo_state != WC_LO_HELD)
		return;
	f->f_lo_state = WC_LO_RETURNING;
	f->f_lo_flushing = false;
	if (!f->f_lo->lo_refs)
		layout_drained(f);
}

void wc_lo_ref_put(struct weft_file *f, struct wc_layout *lo)
{
	if (--lo->lo_refs)
		return;
	if (lo->lo_nerrors && f->f_lo_state == WC_LO_HELD)
		wc_lo_give_back(f);
	else if (f->f_lo_state == WC_LO_RETURNING && !f->f_lo_flushing)
		layout_drained(f);
}

bool wc_lo_close(struct weft_file *f, struct weft_op *op)
{
	if (!f->f_lo && f->f_lo_state != WC_LO_ASKED)
		return false;
	f->f_lo_close = op;
	wc_lo_give_back(f);
	return true;
}

void wc_lo_lost(struct weft_file *f)
{
	struct wc_layout *lo = f->f_lo;

	f->f_lo_failures = 0;
	if (!lo || lo->lo_dead)
		return;
	for (struct wc_dirty *d = lo->lo_dirty; d; d = d->d_next)
		d->d_forced = true;
	if (f->f_dirty_last)
		f->f_dirty_last->d_next = lo->lo_dirty;
	else
		f->f_dirty = lo->lo_dirty;
	f->f_dirty_last = lo->lo_dirty ? lo->lo_dirty_last : f->f_dirty_last;
	lo->lo_dirty = lo->lo_dirty_last = NULL;
	lo->lo_dead = true;
	wc_lo_give_back(f);
}

/* ---- CB_LAYOUTRECALL (section 20.3) ---- */

static void recall_late(struct loop_timer *t)
{
	struct wc_layout *lo = caa_container_of(t, struct wc_layout, lo_timer);

	if (!lo->lo_late++)
		loop_timer_start(lo->lo_loop, t, RECALL_COMMIT_MS);
	wc_ds_cut(lo);
}

static void recall_begins(struct weft *w, struct wc_layout *lo)
{
	if (!lo || lo->lo_loop)
		return;
	lo->lo_loop = w->w_loop;
	lo->lo_timer.t_fire = recall_late;
	loop_timer_start(w->w_loop, &lo->lo_timer, RECALL_MS);
}

uint32_t wc_lo_recall(struct weft *w, struct xdr_in *x)
{
	uint32_t type = xdr_get_u32(x), how, n = 0, status = NFS4ERR_NOMATCHING_LAYOUT;
	const uint8_t *fh = NULL;
	struct weft_file *f, *next;
	struct wc_stateid si;
	uint64_t fsid[2];

	xdr_get_u32(x);
	xdr_get_bool(x);
	how = xdr_get_u32(x);
	if (how == LAYOUTRETURN4_FILE) {
		fh = xdr_get_opaque(x, NFS4_FHSIZE, &n);
		xdr_get_u64(x);
		xdr_get_u64(x);
		wc_get_stateid(x, &si);
	} else if (how == LAYOUTRETURN4_FSID) {
		fsid[0] = xdr_get_u64(x);
		fsid[1] = xdr_get_u64(x);
		(void)fsid;
	} else if (how != LAYOUTRETURN4_ALL) {
		x->bad = true;
	}
	if (x->bad)
		return NFS4ERR_BADXDR;
	w->w_recalls++;
	/* An OPEN under way may bring the very layout that is recalled. That is unknown here, so
	 * what it brings is returned. */
	for (struct wc_call *c = w->w_all; c; c = c->wcl_all_next)
		c->wcl_recalled = true;
	if (type != LAYOUT4_FLEX_FILES)
		return NFS4ERR_NOMATCHING_LAYOUT;
	for (f = w->w_files; f; f = next) {
		next = f->f_next;
		if (fh && (f->f_fh.fh_len != n || memcmp(f->f_fh.fh_data, fh, n)))
			continue;
		/* A layout is on its way: it is unknown which came first, the layout or the
		 * recall. */
		if (f->f_lo_state == WC_LO_ASKED || f->f_lo_state == WC_LO_DEVICES)
			return NFS4ERR_DELAY;
		if (f->f_lo_state == WC_LO_HELD || f->f_lo_state == WC_LO_RETURNING) {
			status = NFS4_OK;
			recall_begins(w, f->f_lo);
			wc_lo_give_back(f);
		}
	}
	return status;
}
