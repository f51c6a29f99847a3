/* SPDX-License-Identifier: Apache-2.0 */
/*
 * weft_ds_io.c - data straight to and from data servers: NFSv3 READ, WRITE and COMMIT (RFC 1813).
 *
 * A READ goes to the copy that the server prefers, and on to the others if it fails. A WRITE goes
 * to all copies. What fails on all copies, or on one that is to be written, goes through the
 * metadata server. The client reports the error to that server when the layout goes back (RFC 8435
 * section 9.1).
 */
#include "client/device.h"
#include "client/layout.h"
#include "client/open.h"
#include "client/report.h"
#include "client/session.h"
#include "client/weft_ds_io.h"
#include "client/weft_io.h"
#include "proto/nfs3.h"
#include <errno.h>
#include <stdlib.h>
#include <urcu/compiler.h>

#define DS_CALL_MS     60000u /* of a call that its server has passed over */
#define JUKEBOX_MS     100u
#define JUKEBOX_ROUNDS 20u
#define BAD_NS	       10000000000ull /* for this long, other copies are read first */

/* A range that is written to several copies. */
struct ds_write {
	unsigned w_left;
	bool w_failed;
	uint64_t w_off;
	const uint8_t *w_buf;
	uint32_t w_len;
};

struct ds_call {
	struct rpc_req dc_rpc;
	struct wc_io *dc_io;
	struct weft_file *dc_file;
	struct wc_layout *dc_lo;
	struct wc_dev_conn *dc_conn;	  /* on which it is under way, or NULL */
	struct ds_call *dc_next, **dc_at; /* lo_calls */
	struct loop_timer dc_timer;
	uint32_t dc_ds, dc_proc;
	uint64_t dc_off;
	uint8_t *dc_buf;
	uint32_t dc_len;
	uint32_t dc_tried; /* READ: copies that were tried */
	unsigned dc_holds, dc_rounds;
	struct ds_write *dc_write;
	bool dc_out;	 /* dc_rpc is under way */
	bool dc_rdma;	 /* it went by RDMA */
	bool dc_passed;	 /* its server has passed it over, and lives */
	bool dc_direct;	 /* its data went straight to or from the program's memory */
	bool dc_counted; /* it is among what its server has under way */
	uint64_t dc_began_ns;
	/* The reply's. */
	int dc_err;
	uint32_t dc_status, dc_got, dc_how;
	uint64_t dc_verf;
	bool dc_eof;
};

static void ds_call_send(struct ds_call *dc);
static void ds_call_over(struct ds_call *dc);

uint32_t wc_lo_index(const struct wc_layout *lo, unsigned mirror, uint64_t off)
{
	uint32_t n = lo->lo_first[mirror + 1] - lo->lo_first[mirror];

	return lo->lo_first[mirror] + (n > 1 ? (uint32_t)(off / lo->lo_unit % n) : 0);
}

static struct ds_call *ds_call_new(struct wc_io *io, struct wc_layout *lo, uint32_t proc,
				   uint64_t off, const uint8_t *buf, uint32_t len)
{
	struct ds_call *dc = calloc(1, sizeof(*dc));

	if (!dc) {
		wc_io_failed(io, -ENOMEM, 0);
		return NULL;
	}
	dc->dc_io = io;
	dc->dc_file = io->io_file;
	dc->dc_lo = lo;
	dc->dc_proc = proc;
	dc->dc_off = off;
	dc->dc_buf = (uint8_t *)(uintptr_t)buf;
	dc->dc_len = len;
	dc->dc_next = lo->lo_calls;
	dc->dc_at = &lo->lo_calls;
	if (dc->dc_next)
		dc->dc_next->dc_at = &dc->dc_next;
	lo->lo_calls = dc;
	io->io_pending++;
	lo->lo_refs++;
	io->io_file->f_w->w_ds_calls++;
	return dc;
}

static void ds_call_free(struct ds_call *dc)
{
	struct wc_io *io = dc->dc_io;
	struct weft_file *f = dc->dc_file;
	struct wc_layout *lo = dc->dc_lo;

	*dc->dc_at = dc->dc_next;
	if (dc->dc_next)
		dc->dc_next->dc_at = dc->dc_at;
	free(dc);
	f->f_w->w_ds_calls--;
	/* In this order: the end of the operation may still report about the layout, which this
	 * reference holds. */
	wc_io_put_down(io);
	wc_lo_ref_put(f, lo);
}

static void ds_call_put_down(struct ds_call *dc)
{
	if (--dc->dc_holds == 0)
		ds_call_over(dc);
}

static void ds_sent(void *arg)
{
	ds_call_put_down(arg);
}

/* ---- replies ---- */

static void ds_get_read(struct ds_call *dc, struct xdr_in *x)
{
	struct nfs3_fattr fa;
	const uint8_t *p;
	uint32_t count, n;

	nfs3_get_post_op(x, &fa);
	count = xdr_get_u32(x);
	dc->dc_eof = xdr_get_bool(x);
	if (dc->dc_rpc.q_placed) {
		p = NULL;
		n = xdr_get_u32(x);
		x->bad |= n != dc->dc_rpc.q_placed;
	} else {
		p = xdr_get_opaque(x, dc->dc_len, &n);
	}
	if (x->bad || count != n || (!n && !dc->dc_eof)) {
		x->bad = true;
		return;
	}
	dc->dc_got = n;
	if (p && n)
		memcpy(dc->dc_buf, p, n);
}

static void ds_get_write(struct ds_call *dc, struct xdr_in *x)
{
	struct nfs3_fattr fa;

	nfs3_get_wcc(x, &fa);
	dc->dc_got = xdr_get_u32(x);
	dc->dc_how = xdr_get_u32(x);
	dc->dc_verf = xdr_get_u64(x);
	if (!dc->dc_got || dc->dc_got > dc->dc_len || dc->dc_how > NFS3_FILE_SYNC ||
	    dc->dc_how < dc->dc_io->io_stable)
		x->bad = true;
}

static void ds_get_commit(struct ds_call *dc, struct xdr_in *x)
{
	struct nfs3_fattr fa;

	nfs3_get_wcc(x, &fa);
	dc->dc_verf = xdr_get_u64(x);
}

static void ds_reply(struct rpc_req *q, int err, struct xdr_in *x)
{
	struct ds_call *dc = caa_container_of(q, struct ds_call, dc_rpc);

	dc->dc_out = false;
	dc->dc_err = err;
	dc->dc_status = 0;
	dc->dc_direct = !err && q->q_direct;
	if (!err) {
		dc->dc_status = xdr_get_u32(x);
		if (!dc->dc_status && dc->dc_proc == NFS3_READ)
			ds_get_read(dc, x);
		else if (!dc->dc_status && dc->dc_proc == NFS3_WRITE)
			ds_get_write(dc, x);
		else if (!dc->dc_status)
			ds_get_commit(dc, x);
		if (x->bad)
			dc->dc_err = -EPROTO;
	}
	dc->dc_passed = err == -ETIMEDOUT && q->q_conn;
	/* A server does not begin a WRITE of a connection that has ended. Over RDMA this gives the
	 * payload back as well. */
	if (dc->dc_passed && (dc->dc_rdma || dc->dc_proc == NFS3_WRITE)) {
		rpc_conn_close(q->q_conn);
		dc->dc_passed = false;
	}
	ds_call_put_down(dc);
}

/* ---- sending ---- */

static struct wc_lo_traffic *traffic(const struct ds_call *dc)
{
	struct wc_lo_ds *ds = &dc->dc_lo->lo_ds[dc->dc_ds];

	return dc->dc_proc == NFS3_READ ? &ds->ld_read : &ds->ld_write;
}

static bool too_late(const struct ds_call *dc)
{
	return dc->dc_lo->lo_late > (dc->dc_proc == NFS3_COMMIT);
}

static void nowhere(struct loop_timer *t)
{
	struct ds_call *dc = caa_container_of(t, struct ds_call, dc_timer);

	dc->dc_passed = too_late(dc);
	dc->dc_err = -ENOTCONN;
	ds_call_put_down(dc);
}

static void ds_call_send(struct ds_call *dc)
{
	struct weft *w = dc->dc_file->f_w;
	const struct wc_lo_ds *ds = &dc->dc_lo->lo_ds[dc->dc_ds];
	struct wc_dev_conn *dn =
		ds->ld_usable && !too_late(dc) ? wc_device_conn(w, ds->ld_dev) : NULL;
	struct rpc_cred cred = {
		.rc_flavor = RPC_AUTH_SYS, .rc_uid = ds->ld_uid, .rc_gid = ds->ld_gid};
	struct xdr_out *x = &dc->dc_rpc.q_args;
	unsigned version = ds->ld_dev->dv_version;

	dc->dc_holds = 1;
	dc->dc_counted = dc->dc_passed = false;
	dc->dc_rdma = dn && ds->ld_dev->dv_is_rdma;
	if (!dn || version >= ds->ld_nfh || !ds->ld_fh_len[version]) {
		dc->dc_timer.t_fire = nowhere;
		loop_timer_start(w->w_loop, &dc->dc_timer, 0);
		return;
	}
	rpc_req_init(&dc->dc_rpc, NFS3_PROGRAM, NFS3_VERSION, dc->dc_proc, &cred,
		     256 + (size_t)dc->dc_len, ds_reply);
	dc->dc_rpc.q_reply_max = dc->dc_proc == NFS3_READ ? 512 + (size_t)dc->dc_len : 0;
	xdr_put_opaque(x, ds->ld_fh[version], ds->ld_fh_len[version]);
	xdr_put_u64(x, dc->dc_off);
	xdr_put_u32(x, dc->dc_len);
	if (dc->dc_proc == NFS3_WRITE) {
		xdr_put_u32(x, dc->dc_io->io_stable);
		xdr_put_u32(x, dc->dc_len);
		dc->dc_holds++;
		xdr_put_ref(x, dc->dc_buf, dc->dc_len, ds_sent, dc);
		w->w_ds_writes++;
	} else if (dc->dc_proc == NFS3_READ) {
		dc->dc_holds++;
		xdr_put_place(x, dc->dc_buf, dc->dc_len, ds_sent, dc);
		w->w_ds_reads++;
	}
	dc->dc_counted = dc->dc_proc != NFS3_COMMIT;
	dc->dc_began_ns = loop_now_ns(w->w_loop);
	if (dc->dc_counted)
		wc_lo_begins(w, traffic(dc), dc->dc_len);
	dc->dc_conn = dn;
	dn->dn_calls++;
	dc->dc_out = true;
	rpc_client_send(dn->dn_client, &dc->dc_rpc, DS_CALL_MS);
}

void wc_ds_cut(struct wc_layout *lo)
{
	for (struct ds_call *dc = lo->lo_calls; dc; dc = dc->dc_next)
		if (dc->dc_out && too_late(dc))
			rpc_req_give_up(&dc->dc_rpc);
}

static void again(struct loop_timer *t)
{
	ds_call_send(caa_container_of(t, struct ds_call, dc_timer));
}

/* ---- ends ---- */

/* Records the error for the server. stays: the layout is good for this without that data server. */
static void note(struct ds_call *dc, uint32_t ds, bool stays)
{
	static const uint32_t ops[NFS3_NPROCS] = {
		[NFS3_READ] = OP_READ, [NFS3_WRITE] = OP_WRITE, [NFS3_COMMIT] = OP_COMMIT};
	uint64_t len = dc->dc_len ? dc->dc_len : NFS4_UINT64_MAX,
		 until = loop_now_ns(dc->dc_file->f_w->w_loop) + BAD_NS;
	struct wc_lo_ds *ld = &dc->dc_lo->lo_ds[ds];
	uint32_t status = dc->dc_status;
	bool known = ld->ld_bad_ns > until - BAD_NS;

	dc->dc_file->f_w->w_ds_errors++;
	ld->ld_bad_ns = until;
	if (dc->dc_passed) {
		status = NFS4ERR_DELAY; /* it can be reached */
	} else if (dc->dc_err) {
		status = dc->dc_err == -EPROTO ? NFS4ERR_IO : NFS4ERR_NXIO;
		ld->ld_dev->dv_again = true;
		ld->ld_dev->dv_bad_ns = until;
	}
	if (!stays || (!known && !wc_lo_report(dc->dc_file, dc->dc_lo, ds, dc->dc_off, len, status,
					       ops[dc->dc_proc])))
		wc_lo_error(dc->dc_lo, ds, dc->dc_off, len, status, ops[dc->dc_proc]);
}

/* Chooses the copy that the server prefers of those that were not tried. Copies that failed lately
 * come last. */
static bool read_choose(struct ds_call *dc)
{
	const struct wc_layout *lo = dc->dc_lo;
	uint64_t now = loop_now_ns(dc->dc_file->f_w->w_loop), most = 0;
	int best = -1;

	for (unsigned m = 0; m < lo->lo_nmirrors; m++) {
		const struct wc_lo_ds *ds = &lo->lo_ds[wc_lo_index(lo, m, dc->dc_off)];
		uint64_t worth = ds->ld_efficiency |
				 (uint64_t)(ds->ld_bad_ns <= now && ds->ld_dev->dv_bad_ns <= now)
					 << 32;

		if (dc->dc_tried & 1u << m || !ds->ld_usable || (best >= 0 && worth <= most))
			continue;
		best = (int)m;
		most = worth;
	}
	if (best < 0)
		return false;
	dc->dc_tried |= 1u << best;
	dc->dc_ds = wc_lo_index(lo, (unsigned)best, dc->dc_off);
	return true;
}

static void through(struct ds_call *dc)
{
	if (dc->dc_lo->lo_flags & FF_FLAGS_NO_IO_THRU_MDS)
		wc_io_failed(dc->dc_io, -EIO, dc->dc_status);
	else if (!wc_lo_later(dc->dc_lo, dc->dc_io, dc->dc_off, dc->dc_buf, dc->dc_len))
		wc_io_through(dc->dc_io, dc->dc_off, dc->dc_buf, dc->dc_len);
}

static void read_over(struct ds_call *dc, bool failed)
{
	if (failed) {
		uint32_t ds = dc->dc_ds;
		bool more = read_choose(dc);

		note(dc, ds, more);
		if (more) {
			ds_call_send(dc);
			return;
		}
		through(dc);
		ds_call_free(dc);
		return;
	}
	dc->dc_off += dc->dc_got;
	dc->dc_buf += dc->dc_got;
	dc->dc_len -= dc->dc_got;
	if (dc->dc_len && !dc->dc_eof) {
		ds_call_send(dc);
		return;
	}
	if (dc->dc_eof)
		wc_io_read_ends(dc->dc_io, dc->dc_off);
	ds_call_free(dc);
}

static void write_over(struct ds_call *dc, bool failed)
{
	struct ds_write *dw = dc->dc_write;
	struct wc_layout *lo = dc->dc_lo;

	if (failed) {
		note(dc, dc->dc_ds, false);
		dw->w_failed = true;
	} else {
		struct wc_dirty d = {.d_off = dc->dc_off,
				     .d_verf = dc->dc_verf,
				     .d_buf = dc->dc_buf,
				     .d_len = dc->dc_got,
				     .d_ds = dc->dc_ds};

		if (dc->dc_how != NFS3_FILE_SYNC && !wc_lo_dirty(dc->dc_file, lo, &d))
			wc_io_failed(dc->dc_io, -ENOMEM, 0);
		dc->dc_off += dc->dc_got;
		dc->dc_buf += dc->dc_got;
		dc->dc_len -= dc->dc_got;
		lo->lo_tell = true;
		lo->lo_last = dc->dc_off > lo->lo_last ? dc->dc_off : lo->lo_last;
		if (dc->dc_len) {
			ds_call_send(dc);
			return;
		}
	}
	if (--dw->w_left == 0) {
		/* Write the whole range to all copies, through the metadata server: what the copy
		 * that failed has is unknown. */
		if (dw->w_failed) {
			dc->dc_off = dw->w_off;
			dc->dc_buf = (uint8_t *)(uintptr_t)dw->w_buf;
			dc->dc_len = dw->w_len;
			through(dc);
		}
		free(dw);
	}
	ds_call_free(dc);
}

static void commit_over(struct ds_call *dc, bool failed)
{
	struct wc_io *io = dc->dc_io;

	if (failed)
		note(dc, dc->dc_ds, false);
	for (const struct wc_dirty *d = io->io_dirty; d; d = d->d_next)
		if (d->d_len && d->d_ds == dc->dc_ds &&
		    (failed || d->d_forced || d->d_verf != dc->dc_verf)) {
			dc->dc_file->f_w->w_rewritten++;
			wc_io_through(io, d->d_off, d->d_buf, d->d_len);
		}
	ds_call_free(dc);
}

static void ds_call_over(struct ds_call *dc)
{
	struct weft *w = dc->dc_file->f_w;
	bool closing = w->w_state == WC_CLOSING || w->w_state == WC_FAILED;

	if (dc->dc_counted)
		wc_lo_ends(w, traffic(dc), dc->dc_began_ns,
			   dc->dc_err || dc->dc_status ? 0 : dc->dc_got);
	dc->dc_counted = false;
	if (dc->dc_conn)
		dc->dc_conn->dn_calls--;
	dc->dc_conn = NULL;
	/* Retry by TCP: every call to a data server may be done twice. */
	if (dc->dc_err && dc->dc_rdma && !closing) {
		wc_device_no_rdma(w, dc->dc_lo->lo_ds[dc->dc_ds].ld_dev);
		ds_call_send(dc);
		return;
	}
	w->w_ds_rdma += dc->dc_rdma;
	w->w_ds_direct += dc->dc_direct;
	if (!dc->dc_err && dc->dc_status == NFS3ERR_JUKEBOX && !closing &&
	    dc->dc_rounds++ < JUKEBOX_ROUNDS) {
		dc->dc_timer.t_fire = again;
		loop_timer_start(w->w_loop, &dc->dc_timer, JUKEBOX_MS);
	} else if (dc->dc_proc == NFS3_READ) {
		read_over(dc, dc->dc_err || dc->dc_status);
	} else if (dc->dc_proc == NFS3_WRITE) {
		write_over(dc, dc->dc_err || dc->dc_status);
	} else {
		commit_over(dc, dc->dc_err || dc->dc_status);
	}
}

/* ---- beginning ---- */

void wc_ds_read(struct wc_io *io, struct wc_layout *lo, uint64_t off, uint8_t *buf, uint32_t len)
{
	struct ds_call *dc = ds_call_new(io, lo, NFS3_READ, off, buf, len);

	if (!dc)
		return;
	if (read_choose(dc)) {
		ds_call_send(dc);
	} else {
		through(dc);
		ds_call_free(dc);
	}
}

void wc_ds_write(struct wc_io *io, struct wc_layout *lo, uint64_t off, const uint8_t *buf,
		 uint32_t len)
{
	struct ds_write *dw = calloc(1, sizeof(*dw));
	unsigned n = lo->lo_flags & FF_FLAGS_WRITE_ONE_MIRROR ? 1 : lo->lo_nmirrors;

	if (!dw) {
		wc_io_failed(io, -ENOMEM, 0);
		return;
	}
	*dw = (struct ds_write){.w_left = 1, .w_off = off, .w_buf = buf, .w_len = len};
	for (unsigned m = 0; m < n; m++) {
		struct ds_call *dc = ds_call_new(io, lo, NFS3_WRITE, off, buf, len);

		if (!dc)
			break;
		dc->dc_write = dw;
		dw->w_left++;
		if (n < lo->lo_nmirrors)
			read_choose(dc);
		else
			dc->dc_ds = wc_lo_index(lo, m, off);
		/* Two mirrors may name one object: write it once. */
		for (unsigned k = 0; k < m && n > 1; k++)
			if (wc_lo_same(lo, wc_lo_index(lo, k, off), dc->dc_ds)) {
				dw->w_left--;
				ds_call_free(dc);
				dc = NULL;
				break;
			}
		if (dc)
			ds_call_send(dc);
	}
	if (--dw->w_left == 0)
		free(dw);
}

void wc_ds_commit(struct wc_io *io, struct wc_layout *lo, uint32_t ds)
{
	struct ds_call *dc = ds_call_new(io, lo, NFS3_COMMIT, 0, NULL, 0);

	if (!dc)
		return;
	dc->dc_ds = ds;
	ds_call_send(dc);
}
