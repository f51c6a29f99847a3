/* SPDX-License-Identifier: Apache-2.0 */
/*
 * layout_report.c - what clients report about layouts, and what they return: LAYOUTERROR (RFC 7862
 * section 15.6), LAYOUTRETURN (RFC 8881 section 18.44), and the data servers' errors in both (RFC
 * 8435). unread.c remembers errors of READ and data servers that a client does not reach.
 *
 *	op_layouterror		decodes the errors. report_run: objects that failed to take a write
 *				become stale
 *	layouterror_done	report_takes_back: layouts that name stale objects come back
 *
 *	op_layoutreturn		decodes the errors, and records them by report_run
 *	return_reported		the layout goes; report_takes_back
 *	return_refresh		the last write layout is back: the size is asked for, now or later
 *	return_reply		the answer
 */
#include "base/clock.h"
#include "base/log.h"
#include "mds/nfs4/op.h"
#include "mds/nfs4/credentials.h"
#include "mds/nfs4/op_attr.h"
#include "mds/nfs4/op_state.h"

#define MAX_ERRORS OP_DEV_ERRORS
/* Linux puts at most this many errors into one LAYOUTRETURN (FF_LAYOUTRETURN_MAXERR), those of READ
 * first. It may never report the others. */
#define RETURN_MOST 20

/* ---- errors of data servers, as clients report them ---- */

static void get_dev_error(struct xdr_in *x, struct op_dev_error *e)
{
	const uint8_t *p = xdr_get_fixed(x, 16);

	if (p)
		memcpy(e->ode_dev, p, 16);
	e->ode_status = xdr_get_u32(x);
	e->ode_opnum = xdr_get_u32(x);
}

struct report {
	struct op_dev_error e[MAX_ERRORS];
	unsigned n;
	/* there were more errors, or may have been: which copies missed a write is not known */
	bool more;
	uint64_t ino;
	uint32_t epoch; /* fence epoch of the layout */
	bool writer;	/* the layout was for writing */
	uint64_t stale; /* set by report_run: objects that became stale */
	nfsstat4 fatal; /* set by report_run: the error of a stripe's last copy */
	/* a server with a lease answered ACCESS: in this report, in an earlier one of the epoch */
	bool denied, denied_before;
	bool returned_rw; /* LAYOUTRETURN: the last write layout may be back */
	bool present;
	uint32_t iomode; /* the iomodes that are returned */
	bool recalled;
	struct st_stateid sid;
	uint32_t granted; /* seqid of the grant that the client reports about */
	struct excl_layout_block hold;
};

static void put_dev_error(struct report *r, struct xdr_in *x)
{
	struct op_dev_error e;

	get_dev_error(x, &e);
	if (r->n < MAX_ERRORS)
		r->e[r->n++] = e;
	else
		r->more = true;
}

/* unread.c handles errors of READ. A failed connection (OP_ILLEGAL) says nothing about what was
 * written. */
static bool report_means_write_failed(const struct op_dev_error *e)
{
	return e->ode_opnum == OP_WRITE || e->ode_opnum == OP_COMMIT;
}

/* The error that the application gets when the last copy failed. OK: the error may pass, as when a
 * server cannot be reached; the client waits. */
static nfsstat4 fatal_status(const struct report *r)
{
	nfsstat4 st = NFS4_OK;

	for (unsigned e = 0; e < r->n; e++) {
		if (!report_means_write_failed(&r->e[e]))
			continue;
		switch (r->e[e].ode_status) {
		case NFS4ERR_NOSPC:
		case NFS4ERR_DQUOT:
		case NFS4ERR_STALE:
		case NFS4ERR_SERVERFAULT:
			return r->e[e].ode_status;
		/* Errors of WRITE, but not of LAYOUTGET (section 15.2). Without a layout the client
		 * writes through this server and gets the data server's error; IO would hide it. */
		case NFS4ERR_FBIG:
		case NFS4ERR_ROFS:
			return NFS4ERR_LAYOUTUNAVAILABLE;
		case NFS4_OK:
		case NFS4ERR_NXIO:
		case NFS4ERR_DELAY:
			break;
		default:
			st = NFS4ERR_IO;
		}
	}
	return st;
}

/* The objects that failed to take a write. doubted: the objects on any data server that the report
 * names. */
static uint64_t stale_objects(struct mds *m, struct report *r, const struct lo_map *map,
			      uint64_t *doubted)
{
	uint64_t hit = 0;

	*doubted = 0;
	for (unsigned e = 0; e < r->n; e++) {
		struct ds_reg_server sv;

		if (!ds_reg_get_uuid(m->m_dsc, r->e[e].ode_dev, &sv))
			continue;
		*doubted |= lo_map_on(map, sv.sv_id);
		if (!report_means_write_failed(&r->e[e]))
			continue;
		/* A server with a lease denies what is fenced, and the report may be about a layout
		 * that the client has no more: the second report counts. A server without a lease
		 * denies everything: its first report counts. */
		if (r->e[e].ode_status == NFS4ERR_ACCESS && ds_reg_leased(m->m_dsc, sv.sv_id)) {
			r->denied = true;
			if (!r->denied_before)
				continue;
		}
		hit |= lo_map_on(map, sv.sv_id);
	}
	return hit;
}

/* Makes those objects stale. Where that would leave a stripe without a copy, the data servers'
 * errors decide what the application gets. */
static int report_run(struct kv_op *op, struct kv_txn *t)
{
	struct compound *c = op_of(op);
	struct report *r = c->scratch;
	struct ns_inode i;
	struct lo_map map;
	uint64_t last, doubted;
	struct st *st = c->m->m_st;
	struct st_file *f;
	int err = ns_get(c->m->m_ns, t, r->ino, &i);

	if (!err)
		err = lo_map_decode(i.i_blob, &map);
	if (err)
		return err;
	if (r->epoch != map.lm_epoch)
		return 0;
	st_file_lock(st, r->ino);
	f = st_file_get(st, r->ino, false);
	r->denied_before = f && f->f_denied == r->epoch + 1;
	st_file_unlock(st, r->ino);
	r->stale = lo_map_make_stale(&map, stale_objects(c->m, r, &map, &doubted), &last);
	if (last)
		r->fatal = fatal_status(r);
	/* The application gets an error, and some copies may have the write all the same. */
	if (r->fatal)
		r->stale |= file_suspect(&c->m->m_file, r->ino, &map, lo_map_stripes(&map, last),
					 doubted);
	if (r->more)
		r->stale |= file_suspect(&c->m->m_file, r->ino, &map, UINT64_MAX, doubted);
	if (!r->stale)
		return 0;
	log_warn("inode %lu: a client reported failed writes: the objects are now stale",
		 (unsigned long)r->ino);
	return excl_stale(&r->hold, &c->m->m_file, t, r->ino, &map, file_now());
}

/* A report counts only with a layout for writing: without one no write can have failed. */
static bool report_counts(const struct report *r)
{
	if (!r->writer)
		return false;
	for (unsigned e = 0; e < r->n; e++) {
		if (report_means_write_failed(&r->e[e]))
			return true;
	}
	return r->more;
}

/* The client would send LAYOUTGET for ever. So its next LAYOUTGET carries the error to the
 * application. */
static void report_fatal(struct compound *c)
{
	struct report *r = c->scratch;
	struct st *st = c->m->m_st;
	struct st_file *f;

	if (!r->fatal && !r->denied)
		return;
	st_file_lock(st, r->ino);
	f = st_file_get(st, r->ino, false);
	if (f && r->denied)
		f->f_denied = r->epoch + 1;
	if (f && r->fatal) {
		f->f_error = r->fatal;
		f->f_error_client = c->client->cl_id;
		f->f_error_until_ns = clock_mono_ns() + 5000000000ull;
	}
	st_file_unlock(st, r->ino);
}

/* The client has got a grant since the one that it reports about, and does not know that an object
 * in the newer one is stale. */
static bool report_is_older(struct compound *c)
{
	struct report *r = c->scratch;
	struct st *st = c->m->m_st;
	struct st_layout *l;
	bool older;

	st_file_lock(st, r->ino);
	l = st_layout_find(st, &r->sid);
	older = l && l->l_sid.seqid - l->l_recalled > r->granted;
	st_file_unlock(st, r->ino);
	return older;
}

/* Other clients' layouts may name objects that became stale. They come back before the report is
 * answered: no client may read such an object after the write is done elsewhere. */
static nfsstat4 report_takes_back(struct compound *c, int err, op_step *next)
{
	struct report *r = c->scratch;
	bool stale = !err && r->stale, waits;

	report_fatal(c);
	/* Recalls the reporter's layout too, but does not wait: the client may not answer a recall
	 * before it has this reply. */
	if (stale && report_is_older(c))
		excl_recall_and_fence(&c->m->m_file, c->th->mt_loop, r->ino, NULL, NULL, NULL);
	waits = stale && excl_recall_stale(&r->hold, &c->m->m_file, c->th->mt_loop, r->ino,
					   c->client, op_wake, c);
	excl_unblock(&r->hold);
	return waits ? op_await_client(c, next) : next(c, err);
}

static nfsstat4 layouterror_done(struct compound *c, int err)
{
	return report_takes_back(c, err, op_step_status);
}

nfsstat4 op_layouterror(struct compound *c)
{
	struct report *r = op_scratch(c, sizeof(*r), NULL);
	struct st_stateid sid;
	struct st_layout *l;
	uint32_t n;
	bool known;

	if (!r)
		return NFS4ERR_DELAY;
	xdr_get_u64(c->in);
	xdr_get_u64(c->in);
	op_get_stateid(c->in, &sid);
	n = xdr_get_u32(c->in);
	if (c->in->bad || n > xdr_left(c->in) / 24)
		return NFS4ERR_BADXDR;
	for (uint32_t k = 0; k < n; k++)
		put_dev_error(r, c->in);
	if (c->in->bad)
		return NFS4ERR_BADXDR;
	if (!c->cur)
		return NFS4ERR_NOFILEHANDLE;
	r->ino = c->cur;
	st_file_lock(c->m->m_st, c->cur);
	l = st_layout_find(c->m->m_st, &sid);
	known = l && l->l_client == c->client && l->l_file->f_ino == c->cur;
	if (known) {
		r->epoch = l->l_epoch;
		r->writer = l->l_iomode & LAYOUTIOMODE4_RW;
		r->sid = l->l_sid;
		r->granted = sid.seqid ? sid.seqid : l->l_sid.seqid;
	}
	st_file_unlock(c->m->m_st, c->cur);
	if (known)
		op_unreached_report(c, r->e, r->n);
	if (known)
		op_unread_report(c, r->ino, r->e, r->n);
	/* idempotent: a second report changes nothing */
	return known && report_counts(r) ? op_mutate_again(c, report_run, layouterror_done)
					 : NFS4_OK;
}

/* ---- LAYOUTRETURN ---- */

/* Most statistics that one LAYOUTRETURN may count: a client reports as many mirrors as the layout
 * has. Any more are decoded and ignored. */
#define STATS_MAX LO_MAX_OBJECTS

/* ff_layoutreturn4 (RFC 8435 section 9.3): I/O errors, then statistics. Decodes all of it. */
static bool get_ff_return(struct compound *c, struct xdr_in *x, struct report *r)
{
	uint32_t n = xdr_get_u32(x), m;

	for (uint32_t k = 0; k < n && !x->bad; k++) {
		xdr_get_u64(x);
		xdr_get_u64(x);
		xdr_get_fixed(x, 16);
		m = xdr_get_u32(x);
		for (uint32_t j = 0; j < m && !x->bad; j++)
			put_dev_error(r, x);
	}
	r->more |= r->n >= RETURN_MOST;
	n = xdr_get_u32(x);
	for (uint32_t k = 0; k < n && !x->bad; k++)
		op_get_iostats(c, x, k < STATS_MAX);
	return !x->bad;
}

static nfsstat4 return_reply(struct compound *c, int err)
{
	struct report *r = c->scratch;

	/* Where a data server did not answer the write intent stays: the size is queried later. */
	(void)err;
	xdr_put_bool(c->out, r->present);
	if (r->present) {
		op_put_stateid(c->out, &r->sid);
		op_set_current_sid(c, &r->sid);
	} else {
		c->have_sid = false;
	}
	return NFS4_OK;
}

static nfsstat4 return_refresh(struct compound *c, int err)
{
	struct report *r = c->scratch;

	if (err)
		return op_status(err);
	if (!r->returned_rw)
		return return_reply(c, 0);
	/* The last write layout is back. A GETATTR of a file with a write intent queries the size,
	 * also later in this COMPOUND. With OP_SIZE_NEVER it does not: then query the size now. */
	if (c->m->m_file.fe_size_mode == OP_SIZE_NEVER && op_refresh_begin(c, r->ino, true, true))
		return op_await(c, return_reply);
	file_intent_clear_later(&c->th->mt_returned, r->ino);
	return return_reply(c, 0);
}

/* locked: drops the returned iomodes of the layout. */
static void return_drop(struct st *st, struct report *r, struct st_layout *l)
{
	struct st_file *f = l->l_file;

	r->returned_rw = r->iomode & l->l_iomode & LAYOUTIOMODE4_RW;
	r->present = l->l_iomode & ~r->iomode;
	r->sid = l->l_sid;
	f->f_pins++; /* keeps f while st_layout_drop may free the layout */
	st_layout_drop(st, l, r->iomode);
	f->f_pins--;
	if (r->returned_rw)
		r->returned_rw = !st_file_has_writers(f);
	st_file_put(st, f);
}

/* Drops the layout only after the report is committed: a request that waits for the layout must
 * find what the report changed. Afterwards the epoch may rise, and a report of an older epoch is
 * ignored. */
static nfsstat4 return_reported(struct compound *c, int err)
{
	struct report *r = c->scratch;
	struct st *st = c->m->m_st;
	struct st_layout *l;

	st_file_lock(st, r->ino);
	l = st_layout_find(st, &r->sid);
	if (l && l->l_sid.seqid - l->l_recalled != r->sid.seqid - r->recalled)
		l = NULL; /* the client has got a newer grant, and keeps it */
	if (l)
		return_drop(st, r, l);
	st_file_unlock(st, r->ino);
	return report_takes_back(c, err, return_refresh);
}

/* locked */
static nfsstat4 return_file(struct compound *c, struct report *r, uint32_t iomode,
			    const struct st_stateid *sid, uint64_t off, uint64_t len)
{
	static const struct st_stateid zero;
	struct st *st = c->m->m_st;
	struct st_layout *l = st_layout_find(st, sid);
	bool whole = off == 0 && len == NFS4_UINT64_MAX;

	/* After a restart Linux returns its layouts with the all-zero stateid. */
	if (!l && memcmp(sid, &zero, sizeof(zero)) == 0)
		return NFS4_OK;
	if (!l || l->l_client != c->client || l->l_file->f_ino != c->cur)
		return NFS4ERR_BAD_STATEID;
	if (sid->seqid && sid->seqid > l->l_sid.seqid)
		return NFS4ERR_BAD_STATEID;
	/* A LAYOUTRETURN that crossed a newer grant would return that as well (section 12.5.3). A
	 * recall raises the seqid too, but is no grant. */
	if (sid->seqid && sid->seqid + l->l_recalled < l->l_sid.seqid)
		return NFS4ERR_OLD_STATEID;
	r->epoch = l->l_epoch;
	r->writer = l->l_iomode & LAYOUTIOMODE4_RW;
	/* A return of a part drops nothing: the layout stays until the whole file is returned. */
	r->iomode = whole ? iomode : 0;
	r->sid = l->l_sid;
	r->sid.seqid = ++l->l_sid.seqid;
	r->recalled = l->l_recalled;
	r->granted = r->sid.seqid - r->recalled;
	r->present = l->l_iomode;
	if (!report_counts(r))
		return_drop(st, r, l);
	return NFS4_OK;
}

/* An export is a file system of its own, and the layout's file handle names it. */
static bool of_this_fsid(struct compound *c, const struct st_layout *l)
{
	uint8_t fh[OP_FH_LEN];

	op_fh_make(c->m, op_export(c), l->l_file->f_ino, fh);
	return l->l_fhlen == OP_FH_LEN && !memcmp(l->l_fh, fh, OP_FH_LEN);
}

/* locked: returns all layouts of the client, or those in the current file handle's file system, as
 * a LAYOUTRETURN of each file would. */
static void return_many(struct compound *c, uint32_t iomode, bool fsid)
{
	struct st *st = c->m->m_st;

	for (struct st_layout *l = st_layout_next(c->client, NULL), *next; l; l = next) {
		struct st_file *f = l->l_file;
		bool rw = iomode & l->l_iomode & LAYOUTIOMODE4_RW;

		next = st_layout_next(c->client, l);
		if (fsid && !of_this_fsid(c, l))
			continue;
		f->f_pins++; /* keeps f while st_layout_drop may free the layout */
		st_layout_drop(st, l, iomode);
		f->f_pins--;
		if (rw && !st_file_has_writers(f))
			file_intent_clear_later(&c->th->mt_returned, f->f_ino);
		st_file_put(st, f);
	}
}

nfsstat4 op_layoutreturn(struct compound *c)
{
	struct report *r = op_scratch(c, sizeof(*r), NULL);
	struct st *st = c->m->m_st;
	struct st_stateid sid;
	struct xdr_in body;
	const uint8_t *p;
	uint32_t type, iomode, how, len;
	uint64_t off, length;
	bool reclaim, grace;
	nfsstat4 status;

	if (!r)
		return NFS4ERR_DELAY;
	reclaim = xdr_get_bool(c->in);
	type = xdr_get_u32(c->in);
	iomode = xdr_get_u32(c->in);
	how = xdr_get_u32(c->in);
	if (c->in->bad || how < LAYOUTRETURN4_FILE || how > LAYOUTRETURN4_ALL)
		return NFS4ERR_BADXDR;
	grace = st_in_grace(st);
	if (reclaim && how != LAYOUTRETURN4_FILE)
		return NFS4ERR_INVAL; /* section 18.44.3 */
	if (reclaim && !grace)
		return NFS4ERR_NO_GRACE;
	if (how != LAYOUTRETURN4_FILE) {
		if (type != LAYOUT4_FLEX_FILES)
			return NFS4ERR_UNKNOWN_LAYOUTTYPE;
		if (iomode < LAYOUTIOMODE4_READ || iomode > LAYOUTIOMODE4_ANY)
			return NFS4ERR_INVAL;
		if (how == LAYOUTRETURN4_FSID && !c->cur)
			return NFS4ERR_NOFILEHANDLE;
		st_all_lock(st);
		return_many(c, iomode, how == LAYOUTRETURN4_FSID);
		st_all_unlock(st);
		xdr_put_bool(c->out, false);
		return NFS4_OK;
	}
	off = xdr_get_u64(c->in);
	length = xdr_get_u64(c->in);
	op_get_stateid(c->in, &sid);
	p = xdr_get_opaque(c->in, 65536, &len);
	if (c->in->bad)
		return NFS4ERR_BADXDR;
	if (type != LAYOUT4_FLEX_FILES)
		return NFS4ERR_UNKNOWN_LAYOUTTYPE;
	if (iomode < LAYOUTIOMODE4_READ || iomode > LAYOUTIOMODE4_ANY)
		return NFS4ERR_INVAL;
	if (len) {
		xdr_in_init(&body, p, len);
		if (!get_ff_return(c, &body, r))
			return NFS4ERR_BADXDR;
	}
	if (sid.seqid == 0 && st_sid_ours(st, &sid, ST_SID_LAYOUT))
		return NFS4ERR_BAD_STATEID;
	status = op_resolve_sid(c, &sid);
	if (status)
		return status;
	if (!c->cur)
		return NFS4ERR_NOFILEHANDLE;
	r->ino = c->cur;
	st_file_lock(st, r->ino);
	status = return_file(c, r, iomode, &sid, off, length);
	st_file_unlock(st, r->ino);
	if (status)
		return status;
	op_unreached_report(c, r->e, r->n);
	op_unread_report(c, r->ino, r->e, r->n);
	return report_counts(r) ? op_mutate_again(c, report_run, return_reported)
				: return_refresh(c, 0);
}
