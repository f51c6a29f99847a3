/* What clients tell of layouts, and give back: LAYOUTERROR (RFC 7862 section 15.6), LAYOUTRETURN
 * (RFC 8881 section 18.44), and the errors of data servers in both (RFC 8435). */
#include "base/clock.h"
#include "base/log.h"
#include "mds/nfs4/op.h"

#define MAX_ERRORS OP_DEV_ERRORS
/* Linux puts as many into one LAYOUTRETURN at most (FF_LAYOUTRETURN_MAXERR), those of READ first:
 * of what comes after them it may never tell. */
#define RETURN_MOST 20

/* ---- errors of data servers, as clients report them ---- */

static void get_dev_error(struct xdr_in *x, struct op_dev_error *e)
{
	const uint8_t *p = xdr_get_fixed(x, 16);

	if (p)
		memcpy(e->dev, p, 16);
	e->status = xdr_get_u32(x);
	e->opnum = xdr_get_u32(x);
}

struct report {
	struct op_dev_error e[MAX_ERRORS];
	unsigned n;
	/* there were more than these, or may have been: which copies missed a write is not known */
	bool more;
	uint64_t ino;
	uint32_t epoch; /* of the layout it is about */
	bool writer;	/* it was for writing */
	uint64_t stale; /* found by report_run: objects that became so */
	nfsstat4 fatal; /* and what the last copy failed with */
	/* ACCESS of a server that lives: in this report, in one before it in this epoch */
	bool denied, denied_before;
	bool returned_rw; /* LAYOUTRETURN: the last write layout may be back */
	bool present;
	uint32_t iomode; /* what is returned */
	bool recalled;
	struct st_stateid sid;
	uint32_t told; /* the grant that the client spoke of: its seqid */
	struct excl_hold hold;
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

/* READ errors are unread.c's; connection failures (OP_ILLEGAL) say nothing about what was
 * written. */
static bool report_means_write_failed(const struct op_dev_error *e)
{
	return e->opnum == OP_WRITE || e->opnum == OP_COMMIT;
}

/* What a last copy's failure is to the application. A server that cannot be reached may come back:
 * that is waited for. */
static nfsstat4 fatal_status(const struct report *r)
{
	nfsstat4 st = NFS4_OK;

	for (unsigned e = 0; e < r->n; e++) {
		if (!report_means_write_failed(&r->e[e]))
			continue;
		switch (r->e[e].status) {
		case NFS4ERR_NOSPC:
		case NFS4ERR_DQUOT:
		case NFS4ERR_STALE:
		case NFS4ERR_SERVERFAULT:
			return r->e[e].status;
		/* WRITE's errors, and not LAYOUTGET's (section 15.2): the client writes through us,
		 * and hears the server's own word. IO would hide the cause. */
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

/* Also those of which it says that they are on servers where anything failed. */
static uint64_t stale_objects(struct mds *m, struct report *r, const struct lo_map *map,
			      uint64_t *doubted)
{
	uint64_t hit = 0;

	*doubted = 0;
	for (unsigned e = 0; e < r->n; e++) {
		struct dsc_server sv;

		if (!dsc_get_uuid(m->m_dsc, r->e[e].dev, &sv))
			continue;
		*doubted |= lo_map_on(map, sv.sv_id);
		if (!report_means_write_failed(&r->e[e]))
			continue;
		/* A server that lives denies what is fenced: the client may speak of a layout it
		 * has no more. Said twice it counts. One without a lease denies all. */
		if (r->e[e].status == NFS4ERR_ACCESS && dsc_leased(m->m_dsc, sv.sv_id)) {
			r->denied = true;
			if (!r->denied_before)
				continue;
		}
		hit |= lo_map_on(map, sv.sv_id);
	}
	return hit;
}

/* Makes them stale, unless that were the last copy: then the data server's own answers decide. */
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
	/* The application hears that its write failed, and some copies may have it. */
	if (r->fatal)
		r->stale |= file_mistrust(&c->m->m_file, r->ino, &map, lo_map_stripes(&map, last),
					  doubted);
	if (r->more)
		r->stale |= file_mistrust(&c->m->m_file, r->ino, &map, UINT64_MAX, doubted);
	if (!r->stale)
		return 0;
	log_warn("inode %lu: a client reported failed writes: the objects are now stale",
		 (unsigned long)r->ino);
	return excl_stale(&r->hold, &c->m->m_file, t, r->ino, &map, file_now());
}

/* Who may not write the file cannot have failed at it. */
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

/* The client has no guard against asking again for ever: its next LAYOUTGET carries the error to
 * the application. */
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

/* The client has a grant that is newer than the one it spoke of: it does not know that an object of
 * that one is stale. */
static bool report_is_older(struct compound *c)
{
	struct report *r = c->scratch;
	struct st *st = c->m->m_st;
	struct st_layout *l;
	bool older;

	st_file_lock(st, r->ino);
	l = st_layout_find(st, &r->sid);
	older = l && l->l_sid.seqid - l->l_recalled > r->told;
	st_file_unlock(st, r->ino);
	return older;
}

/* What became stale is in others' layouts: they come back before the report is answered, so that
 * nobody reads it after the write is done elsewhere. */
static bool report_takes_back(struct compound *c, int err, void (*then)(void *arg, int err))
{
	struct report *r = c->scratch;

	bool stale = !err && r->stale, waits;

	report_fatal(c);
	/* It is not waited for: the client may not answer before it has heard this. */
	if (stale && report_is_older(c))
		excl_take_back(&c->m->m_file, c->th->mt_loop, r->ino, NULL, NULL, NULL);
	waits = stale &&
		excl_recall_stale(&r->hold, &c->m->m_file, c->th->mt_loop, r->ino, c->client, then,
				  c) &&
		op_waits(c, true);
	excl_unhold(&r->hold);
	return waits;
}

static void layouterror_taken_back(void *arg, int err)
{
	op_resume(arg, op_status(err));
}

static nfsstat4 layouterror_done(struct compound *c, int err)
{
	return report_takes_back(c, err, layouterror_taken_back) ? OP_PARKED : op_status(err);
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
		r->told = sid.seqid ? sid.seqid : l->l_sid.seqid;
	}
	st_file_unlock(c->m->m_st, c->cur);
	if (known)
		op_unreached_report(c, r->e, r->n);
	if (known)
		op_unread_report(c, r->ino, r->e, r->n);
	/* told again, it changes nothing */
	return known && report_counts(r) ? op_mutate_again(c, report_run, layouterror_done)
					 : NFS4_OK;
}

/* ---- LAYOUTRETURN ---- */

/* Of one return: a client names as many mirrors as the layout has. The rest is read over. */
#define STATS_MAX LO_MAX_OBJECTS

/* ff_layoutreturn4 (RFC 8435 section 9.3): I/O errors, then statistics, every byte of them. */
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

	(void)err; /* a data server that did not answer leaves the mark: the size is asked again */
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
	/* The last write layout is back. GETATTR of a marked file asks for its size, also in this
	 * compound; where it never does, it is fetched now. */
	if (c->m->m_size_mode == OP_SIZE_NEVER && op_refresh(c, r->ino, true, true, return_reply))
		return OP_PARKED;
	op_unmark_later(c->th, r->ino);
	return return_reply(c, 0);
}

static void return_taken_back(void *arg, int err)
{
	struct compound *c = arg;
	nfsstat4 status;

	op_waits(c, false);
	op_txn_stale(c->th);
	status = return_refresh(c, err);
	if (status != OP_PARKED)
		op_resume(c, status);
}

/* locked: what is returned is ours again. */
static void return_drop(struct st *st, struct report *r, struct st_layout *l)
{
	struct st_file *f = l->l_file;

	r->returned_rw = r->iomode & l->l_iomode & LAYOUTIOMODE4_RW;
	r->present = l->l_iomode & ~r->iomode;
	r->sid = l->l_sid;
	f->f_pins++; /* keeps f over the free */
	st_layout_drop(st, l, r->iomode);
	f->f_pins--;
	if (r->returned_rw)
		r->returned_rw = !st_file_has_writers(f);
	st_file_put(st, f);
}

/* Only now: who waits for the layout finds what it tells of written down. The next epoch would make
 * nothing of it. */
static nfsstat4 return_reported(struct compound *c, int err)
{
	struct report *r = c->scratch;
	struct st *st = c->m->m_st;
	struct st_layout *l;

	st_file_lock(st, r->ino);
	l = st_layout_find(st, &r->sid);
	if (l && l->l_sid.seqid - l->l_recalled != r->sid.seqid - r->recalled)
		l = NULL; /* a newer grant: that one is the client's */
	if (l)
		return_drop(st, r, l);
	st_file_unlock(st, r->ino);
	return report_takes_back(c, err, return_taken_back) ? OP_PARKED : return_refresh(c, err);
}

/* locked */
static nfsstat4 return_file(struct compound *c, struct report *r, uint32_t iomode,
			    const struct st_stateid *sid, uint64_t off, uint64_t len)
{
	static const struct st_stateid zero;
	struct st *st = c->m->m_st;
	struct st_layout *l = st_layout_find(st, sid);
	bool whole = off == 0 && len == NFS4_UINT64_MAX;

	/* After a restart Linux returns its layouts with the all-zero stateid (facts section 5). */
	if (!l && memcmp(sid, &zero, sizeof(zero)) == 0)
		return NFS4_OK;
	if (!l || l->l_client != c->client || l->l_file->f_ino != c->cur)
		return NFS4ERR_BAD_STATEID;
	if (sid->seqid && sid->seqid > l->l_sid.seqid)
		return NFS4ERR_BAD_STATEID;
	/* One that crosses a newer grant would take that away, too (section 12.5.3). A recall alone
	 * is no grant. */
	if (sid->seqid && sid->seqid + l->l_recalled < l->l_sid.seqid)
		return NFS4ERR_OLD_STATEID;
	r->epoch = l->l_epoch;
	r->writer = l->l_iomode & LAYOUTIOMODE4_RW;
	/* a part of a layout is kept whole until the rest comes back */
	r->iomode = whole ? iomode : 0;
	r->sid = l->l_sid;
	r->sid.seqid = ++l->l_sid.seqid;
	r->recalled = l->l_recalled;
	r->told = r->sid.seqid - r->recalled;
	r->present = l->l_iomode;
	if (!report_counts(r))
		return_drop(st, r, l);
	return NFS4_OK;
}

/* An export is a file system of its own, and a file's handle names it. */
static bool of_this_fsid(struct compound *c, const struct st_layout *l)
{
	uint8_t fh[OP_FH_LEN];

	op_fh_make(c->m, op_export(c), l->l_file->f_ino, fh);
	return l->l_fhlen == OP_FH_LEN && !memcmp(l->l_fh, fh, OP_FH_LEN);
}

/* locked: all of the client's, or those of the current file handle's file system. As LAYOUTRETURN
 * of each file. */
static void return_many(struct compound *c, uint32_t iomode, bool fsid)
{
	struct st *st = c->m->m_st;

	for (struct st_layout *l = st_layout_next(c->client, NULL), *next; l; l = next) {
		struct st_file *f = l->l_file;
		bool rw = iomode & l->l_iomode & LAYOUTIOMODE4_RW;

		next = st_layout_next(c->client, l);
		if (fsid && !of_this_fsid(c, l))
			continue;
		f->f_pins++; /* keeps f over the free */
		st_layout_drop(st, l, iomode);
		f->f_pins--;
		if (rw && !st_file_has_writers(f))
			op_unmark_later(c->th, f->f_ino);
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
