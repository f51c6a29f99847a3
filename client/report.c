/* SPDX-License-Identifier: Apache-2.0 */
/*
 * report.c - reports to the server about its data servers: errors (LAYOUTERROR, RFC 7862 section
 * 15.6, and with LAYOUTRETURN) and statistics (LAYOUTSTATS, section 15.7, and with LAYOUTRETURN;
 * RFC 8435 section 9).
 */
#include "client/device.h"
#include "client/layout.h"
#include "client/open.h"
#include "client/report.h"
#include "client/res.h"
#include "client/session.h"
#include "client/weft_call.h"
#include <stdlib.h>

#define LOOK_NS	      2000000000ull
#define STATS_AT_ONCE 4u  /* in a COMPOUND */
#define STATS_MOST    64u /* with a layout's return */

/* ---- errors ---- */

void wc_lo_error(struct wc_layout *lo, uint32_t ds, uint64_t off, uint64_t len, uint32_t status,
		 uint32_t op)
{
	for (uint32_t i = 0; i < lo->lo_nerrors; i++)
		if (lo->lo_error[i].le_ds == ds && lo->lo_error[i].le_op == op &&
		    lo->lo_error[i].le_status == status)
			return;
	if (lo->lo_nerrors < WC_ERRORS)
		lo->lo_error[lo->lo_nerrors++] = (struct wc_lo_error){.le_off = off,
								      .le_len = len,
								      .le_ds = ds,
								      .le_status = status,
								      .le_op = op};
}

/* device_error4 (RFC 7862 section 15.6.1) */
static void put_device_error(struct xdr_out *x, const uint8_t id[NFS4_DEVICEID4_SIZE],
			     uint32_t status, uint32_t op)
{
	xdr_put_fixed(x, id, NFS4_DEVICEID4_SIZE);
	xdr_put_u32(x, status);
	xdr_put_u32(x, op);
}

struct report {
	struct weft_fh re_fh;
	struct wc_stateid re_stateid;
	uint64_t re_off, re_len;
	uint8_t re_id[NFS4_DEVICEID4_SIZE];
	uint32_t re_status, re_op;
};

static void report_put(struct wc_call *c, struct xdr_out *x)
{
	const struct report *re = c->wcl_arg;

	wc_put_fh(c, x, &re->re_fh);
	wc_call_op(c, x, OP_LAYOUTERROR);
	xdr_put_u64(x, re->re_off);
	xdr_put_u64(x, re->re_len);
	wc_put_stateid(x, &re->re_stateid);
	xdr_put_u32(x, 1);
	put_device_error(x, re->re_id, re->re_status, re->re_op);
}

static void report_got(struct wc_call *c, struct wc_res *r)
{
	const struct report *re = c->wcl_arg;

	if (wc_res_fh(r, &re->re_fh))
		wc_res_op(r, OP_LAYOUTERROR);
}

static void report_end(struct wc_call *c, int err, uint32_t status)
{
	(void)err;
	if (status == NFS4ERR_NOTSUPP || status == NFS4ERR_OP_ILLEGAL)
		c->wcl_w->w_no_report = true;
	free(c->wcl_arg);
}

const struct wc_kind wc_report_kind = {
	.k_put = report_put, .k_got = report_got, .k_end = report_end, .k_cache = true};

bool wc_lo_report(struct weft_file *f, const struct wc_layout *lo, uint32_t ds, uint64_t off,
		  uint64_t len, uint32_t status, uint32_t op)
{
	struct weft *w = f->f_w;
	struct report *re;
	struct wc_call *c;

	if (w->w_minor < 2 || w->w_no_report || lo->lo_dead)
		return false;
	re = malloc(sizeof(*re));
	c = re ? wc_call_new(w, &wc_report_kind, NULL, re) : NULL;
	if (!c) {
		free(re);
		return false;
	}
	*re = (struct report){.re_fh = f->f_fh,
			      .re_stateid = lo->lo_stateid,
			      .re_off = off,
			      .re_len = len,
			      .re_status = status,
			      .re_op = op};
	memcpy(re->re_id, lo->lo_ds[ds].ld_id, NFS4_DEVICEID4_SIZE);
	w->w_reports++;
	wc_call_send(c);
	return true;
}

/* ---- statistics: sums since the layout was granted ---- */

void wc_lo_begins(struct weft *w, struct wc_lo_traffic *lt, uint32_t bytes)
{
	if (!lt->lt_under_way++)
		lt->lt_since_ns = loop_now_ns(w->w_loop);
	lt->lt_asked++;
	lt->lt_asked_bytes += bytes;
}

void wc_lo_ends(struct weft *w, struct wc_lo_traffic *lt, uint64_t began_ns, uint32_t bytes)
{
	uint64_t now = loop_now_ns(w->w_loop);

	if (!--lt->lt_under_way)
		lt->lt_busy_ns += now - lt->lt_since_ns;
	if (!bytes)
		return;
	lt->lt_done++;
	lt->lt_done_bytes += bytes;
	lt->lt_ns += now - began_ns;
}

static void report_put_time(struct xdr_out *x, uint64_t ns)
{
	xdr_put_u64(x, ns / 1000000000);
	xdr_put_u32(x, (uint32_t)(ns % 1000000000));
}

static void put_traffic(struct xdr_out *x, const struct wc_lo_traffic *lt)
{
	xdr_put_u64(x, lt->lt_asked);
	xdr_put_u64(x, lt->lt_asked_bytes);
	xdr_put_u64(x, lt->lt_done);
	xdr_put_u64(x, lt->lt_done_bytes);
	xdr_put_u64(x, lt->lt_asked_bytes - lt->lt_done_bytes);
	report_put_time(x, lt->lt_busy_ns);
	report_put_time(x, lt->lt_ns);
}

/* ff_layoutupdate4 */
static void put_update(struct weft *w, struct xdr_out *x, const struct wc_layout *lo,
		       const struct wc_lo_ds *ds)
{
	unsigned v = ds->ld_dev->dv_version;

	xdr_put_opaque(x, ds->ld_dev->dv_netid, (uint32_t)strlen(ds->ld_dev->dv_netid));
	xdr_put_opaque(x, ds->ld_dev->dv_uaddr, (uint32_t)strlen(ds->ld_dev->dv_uaddr));
	xdr_put_opaque(x, ds->ld_fh[v], ds->ld_fh_len[v]);
	put_traffic(x, &ds->ld_read);
	put_traffic(x, &ds->ld_write);
	report_put_time(x, loop_now_ns(w->w_loop) - lo->lo_since_ns);
	xdr_put_bool(x, false);
}

/* io_info4 of reads, then of writes */
static void put_info(struct xdr_out *x, const struct wc_lo_ds *ds)
{
	xdr_put_u64(x, ds->ld_read.lt_done);
	xdr_put_u64(x, ds->ld_read.lt_done_bytes);
	xdr_put_u64(x, ds->ld_write.lt_done);
	xdr_put_u64(x, ds->ld_write.lt_done_bytes);
}

static bool has_news(const struct wc_lo_ds *ds)
{
	return ds->ld_dev && ds->ld_read.lt_done + ds->ld_write.lt_done != ds->ld_told;
}

/* Puts ff_iostats4 for each data server that was used. */
static void put_iostats(struct weft *w, struct xdr_out *x, const struct wc_layout *lo)
{
	size_t at = x->x_len;
	uint32_t n = 0;

	xdr_put_u32(x, 0);
	for (uint32_t i = 0; i < lo->lo_nds && n < STATS_MOST; i++) {
		const struct wc_lo_ds *ds = &lo->lo_ds[i];

		if (!ds->ld_dev || !(ds->ld_read.lt_done + ds->ld_write.lt_done))
			continue;
		xdr_put_u64(x, 0);
		xdr_put_u64(x, NFS4_UINT64_MAX);
		wc_put_stateid(x, &lo->lo_stateid);
		put_info(x, ds);
		xdr_put_fixed(x, ds->ld_id, NFS4_DEVICEID4_SIZE);
		put_update(w, x, lo, ds);
		n++;
	}
	xdr_patch_u32(x, at, n);
}

void wc_lo_put_reports(struct weft *w, struct xdr_out *x, const struct wc_layout *lo)
{
	size_t at = x->x_len;

	xdr_put_u32(x, 0);
	xdr_put_u32(x, lo->lo_nerrors);
	for (uint32_t i = 0; i < lo->lo_nerrors; i++) {
		const struct wc_lo_error *e = &lo->lo_error[i];

		xdr_put_u64(x, e->le_off);
		xdr_put_u64(x, e->le_len);
		wc_put_stateid(x, &lo->lo_stateid);
		xdr_put_u32(x, 1);
		put_device_error(x, lo->lo_ds[e->le_ds].ld_id, e->le_status, e->le_op);
	}
	put_iostats(w, x, lo);
	xdr_patch_u32(x, at, (uint32_t)(x->x_len - at - 4));
}

/* ---- LAYOUTSTATS ---- */

struct stats {
	struct weft_fh ss_fh;
	uint32_t ss_n;
	struct xdr_out ss_args[STATS_AT_ONCE]; /* of each operation */
};

static void report_stats_put(struct wc_call *c, struct xdr_out *x)
{
	struct stats *ss = c->wcl_arg;

	wc_put_fh(c, x, &ss->ss_fh);
	for (uint32_t i = 0; i < ss->ss_n; i++) {
		wc_call_op(c, x, OP_LAYOUTSTATS);
		xdr_put_fixed(x, ss->ss_args[i].x_head, ss->ss_args[i].x_len);
	}
}

static void stats_got(struct wc_call *c, struct wc_res *r)
{
	const struct stats *ss = c->wcl_arg;

	if (!wc_res_fh(r, &ss->ss_fh))
		return;
	for (uint32_t i = 0; i < ss->ss_n; i++)
		if (!wc_res_op(r, OP_LAYOUTSTATS))
			return;
}

static void stats_free(struct stats *ss)
{
	for (uint32_t i = 0; i < ss->ss_n; i++)
		xdr_out_free(&ss->ss_args[i]);
	free(ss);
}

static void stats_end(struct wc_call *c, int err, uint32_t status)
{
	(void)err;
	if (status == NFS4ERR_NOTSUPP || status == NFS4ERR_OP_ILLEGAL)
		c->wcl_w->w_no_stats = true;
	stats_free(c->wcl_arg);
}

const struct wc_kind wc_stats_kind = {
	.k_put = report_stats_put, .k_got = stats_got, .k_end = stats_end};

static void put_stats(struct weft *w, struct xdr_out *x, const struct wc_layout *lo,
		      const struct wc_lo_ds *ds)
{
	size_t at;

	xdr_out_init(x, 2048);
	xdr_put_u64(x, 0);
	xdr_put_u64(x, NFS4_UINT64_MAX);
	wc_put_stateid(x, &lo->lo_stateid);
	put_info(x, ds);
	xdr_put_fixed(x, ds->ld_id, NFS4_DEVICEID4_SIZE);
	xdr_put_u32(x, LAYOUT4_FLEX_FILES);
	at = x->x_len;
	xdr_put_u32(x, 0);
	put_update(w, x, lo, ds);
	xdr_patch_u32(x, at, (uint32_t)(x->x_len - at - 4));
}

/* Collects the data servers from *at on that have something new, as many as go at once. Returns
 * NULL if there are none, or no memory. */
static struct stats *stats_of(struct weft_file *f, uint32_t *at)
{
	struct wc_layout *lo = f->f_lo;
	struct stats *ss = calloc(1, sizeof(*ss));

	if (!ss)
		return NULL;
	ss->ss_fh = f->f_fh;
	for (; *at < lo->lo_nds && ss->ss_n < STATS_AT_ONCE; ++*at) {
		struct wc_lo_ds *ds = &lo->lo_ds[*at];

		if (!has_news(ds))
			continue;
		put_stats(f->f_w, &ss->ss_args[ss->ss_n], lo, ds);
		if (ss->ss_args[ss->ss_n++].bad)
			break;
		ds->ld_told = ds->ld_read.lt_done + ds->ld_write.lt_done;
	}
	if (ss->ss_n && !ss->ss_args[ss->ss_n - 1].bad)
		return ss;
	stats_free(ss);
	return NULL;
}

static void report_tell(struct weft_file *f)
{
	uint32_t at = 0;
	struct stats *ss;

	while ((ss = stats_of(f, &at))) {
		struct wc_call *c = wc_call_new(f->f_w, &wc_stats_kind, NULL, ss);

		if (!c) {
			stats_free(ss);
			return;
		}
		wc_call_send(c);
	}
}

void wc_lo_tell_stats(struct weft *w)
{
	uint64_t now = loop_now_ns(w->w_loop);

	if (w->w_minor < 2 || w->w_no_stats || !w->w_pnfs || now - w->w_stats_ns < LOOK_NS)
		return;
	w->w_stats_ns = now;
	for (struct weft_file *f = w->w_files; f; f = f->f_next) {
		struct wc_layout *lo = f->f_lo;

		if (f->f_lo_state != WC_LO_HELD ||
		    now - lo->lo_told_ns < lo->lo_hint_s * 1000000000ull)
			continue;
		lo->lo_told_ns = now;
		report_tell(f);
	}
}
