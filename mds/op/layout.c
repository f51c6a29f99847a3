/* Layouts (RFC 8881 sections 18.40 to 18.44, RFC 8435, RFC 7862 sections 15.6 and 15.7). */
#include "base/clock.h"
#include "base/log.h"
#include "mds/op/op.h"
#include <errno.h>

#define NOTIFY_CHANGE_DELETE 0x6u
#define MAX_ERRORS OP_DEV_ERRORS

nfsstat4 op_getdeviceinfo(struct compound *c)
{
	const uint8_t *id = xdr_get_fixed(c->in, 16);
	uint32_t type = xdr_get_u32(c->in), max = xdr_get_u32(c->in), n = xdr_get_u32(c->in), notify = 0;
	size_t at, len;
	int err;

	if (n > 16)
		return NFS4ERR_BADXDR;
	for (uint32_t i = 0; i < n; i++) {
		uint32_t w = xdr_get_u32(c->in);

		if (i == 0)
			notify = w;
	}
	if (c->in->bad)
		return NFS4ERR_BADXDR;
	if (type != LAYOUT4_FLEX_FILES)
		return NFS4ERR_UNKNOWN_LAYOUTTYPE;
	xdr_put_u32(c->out, LAYOUT4_FLEX_FILES);
	at = c->out->x_len;
	xdr_put_u32(c->out, 0);
	err = lo_encode_device(c->m->m_lo, id, rpc_conn_peer(c->call->c_conn), rpc_conn_tls(c->call->c_conn) != RPC_TLS_NONE, c->out);
	if (err)
		return op_status(err);
	len = c->out->x_len - at - 4;
	if (!max) { /* only asks for notifications (section 18.40.3) */
		xdr_truncate(c->out, at + 4);
		len = 0;
	}
	if (max && len + 8 > max) {
		c->keep_body = true;
		xdr_truncate(c->out, c->status_at + 4);
		xdr_put_u32(c->out, (uint32_t)len + 8);
		return NFS4ERR_TOOSMALL;
	}
	xdr_patch_u32(c->out, at, (uint32_t)len);
	/* What is understood, exactly: else Linux does not keep the device, and asks for it with every file. */
	notify &= NOTIFY_CHANGE_DELETE;
	if (notify) {
		pthread_mutex_lock(&c->m->m_st->st_lock);
		c->client->cl_notified |= notify >> NOTIFY_DEVICEID4_CHANGE & 1;
		c->client->cl_notified_gone |= notify >> NOTIFY_DEVICEID4_DELETE & 1;
		pthread_mutex_unlock(&c->m->m_st->st_lock);
	}
	xdr_put_u32(c->out, notify ? 1 : 0);
	if (notify)
		xdr_put_u32(c->out, notify);
	return NFS4_OK;
}

/* ---- LAYOUTGET ---- */

struct layoutget {
	uint32_t iomode, maxcount;
	uint64_t off, len, minlen;
	struct st_stateid sid;
	uint64_t ino;
	uint32_t mark_gen, before; /* before: modes the client has */
	bool noted;		   /* layout_note was here */
	bool read; /* an open of the client, or who asks, may read: else the capabilities only write */
};

/* locked: may this stateid ask, and for that mode? layout: the one it names, when it is a layout's. */
static nfsstat4 layout_stateid(struct compound *c, struct layoutget *g)
{
	struct st *st = c->m->m_st;
	struct st_layout *l = st_layout_find(st, &g->sid);
	struct st_open *o;
	struct st_file *f;
	nfsstat4 status;

	if (l) {
		if (l->l_client != c->client || l->l_file->f_ino != g->ino)
			return NFS4ERR_BAD_STATEID;
		if (g->sid.seqid > l->l_sid.seqid)
			return NFS4ERR_BAD_STATEID;
		/* the layout stands for the opens it came from: one of them must still allow the mode */
		f = l->l_file;
		status = f->f_opens ? NFS4ERR_OPENMODE : NFS4ERR_BAD_STATEID;
		for (o = f->f_opens; o; o = o->o_fnext) {
			if (o->o_client != c->client)
				continue;
			g->read |= o->o_access & OPEN4_SHARE_ACCESS_READ;
			if (g->iomode == LAYOUTIOMODE4_READ || (o->o_access & OPEN4_SHARE_ACCESS_WRITE))
				status = NFS4_OK;
		}
		return status;
	}
	status = op_open_by_sid(c, &g->sid, g->ino, &o);
	if (status)
		return status;
	g->read = o->o_access & OPEN4_SHARE_ACCESS_READ;
	if (g->iomode == LAYOUTIOMODE4_RW && !(o->o_access & OPEN4_SHARE_ACCESS_WRITE))
		return NFS4ERR_OPENMODE;
	return NFS4_OK;
}

/* locked: registers the layout; from here on recalls find it. OP_PARKED: for writing, the file must be marked durably first; the file is pinned. */
static nfsstat4 layout_grant(struct compound *c, struct layoutget *g, struct st_stateid *sid)
{
	struct st *st = c->m->m_st;
	struct st_file *f = st_file_get(st, g->ino, true);
	struct st_layout *l;

	if (!f)
		return NFS4ERR_DELAY;
	l = st_layout_of(f, c->client);
	if (l && l->l_recalled)
		st_recall_queue(st, l); /* unless one is on its way: who asks for more has not understood, or lost it */
	if (f->f_excl || f->f_removing || f->f_judge || (l && l->l_recalled)) {
		st_file_put(st, f);
		return NFS4ERR_RECALLCONFLICT;
	}
	if (!op_exports_stand(c)) {
		st_file_put(st, f);
		return NFS4ERR_DELAY;
	}
	if (f->f_error && g->iomode == LAYOUTIOMODE4_RW && f->f_error_client == c->client->cl_id) {
		nfsstat4 failed = f->f_error;

		if (clock_mono_ns() < f->f_error_until_ns) {
			st_file_put(st, f);
			return failed;
		}
		f->f_error = NFS4_OK;
	}
	if (g->iomode == LAYOUTIOMODE4_RW && !f->f_mark_durable) {
		f->f_pins++;
		return OP_PARKED;
	}
	if (!l && c->client->cl_nlayouts >= c->m->m_limits.lm_layouts) {
		op_limited(c->m, OP_LIMIT_LAYOUTS);
		st_file_put(st, f);
		return NFS4ERR_LAYOUTUNAVAILABLE;
	}
	if (!l)
		l = st_layout_new(st, f, c->client);
	if (!l) {
		st_file_put(st, f);
		return NFS4ERR_DELAY;
	}
	g->before = l->l_iomode;
	l->l_granting++;
	l->l_iomode |= g->iomode;
	c->client->cl_laid = true;
	st_sid_bump(&l->l_sid);
	op_fh_make(c->m, op_export(c), g->ino, l->l_fh);
	l->l_fhlen = OP_FH_LEN;
	*sid = l->l_sid;
	return NFS4_OK;
}

/* What the layout is, which the snapshot behind its registration tells. */
static void layout_note(struct compound *c, const struct st_stateid *sid, const struct lo_map *map)
{
	struct layoutget *g = c->scratch;
	struct st *st = c->m->m_st;
	struct st_layout *l;

	pthread_mutex_lock(&st->st_lock);
	l = st_layout_find(st, sid);
	if (l && !g->before)
		l->l_epoch = map->lm_epoch;
	if (l) {
		l->l_servers |= lo_map_servers(map);
		l->l_granting--;
	}
	g->noted = true;
	pthread_mutex_unlock(&st->st_lock);
}

/* The grant is not told: what it added goes again. */
static void layout_undo(struct compound *c, const struct layoutget *g, const struct st_stateid *sid)
{
	struct st *st = c->m->m_st;
	struct st_layout *l;

	pthread_mutex_lock(&st->st_lock);
	l = st_layout_find(st, sid);
	if (l && !g->noted)
		l->l_granting--;
	/* Nor did the client hear of this number: a recall that counts on would be one that it waits for in vain. */
	if (l && g->before && l->l_sid.seqid == sid->seqid && !l->l_recalled)
		l->l_sid.seqid--;
	if (l)
		st_layout_drop(st, l, g->iomode & ~g->before);
	pthread_mutex_unlock(&st->st_lock);
}

static nfsstat4 try_later(struct compound *c)
{
	xdr_put_bool(c->out, false); /* no signal when it can be had (RFC 8881 section 18.43.2) */
	c->keep_body = true;
	return NFS4ERR_LAYOUTTRYLATER;
}

static nfsstat4 layoutget_encode(struct compound *c, const struct st_stateid *sid)
{
	struct layoutget *g = c->scratch;
	struct xdr_out *x = c->out;
	struct ns_inode i;
	struct lo_map map;
	nfsstat4 st;
	size_t at;
	int err;

	/* the state is registered: what a fresh snapshot says now holds until a recall */
	op_txn_stale(c->th);
	err = ns_get(c->m->m_ns, op_txn(c), g->ino, &i);
	if (!err)
		err = lo_map_decode(i.i_blob, &map);
	if (err)
		return op_status(err);
	/* The client would ask for ever. */
	if (g->iomode == LAYOUTIOMODE4_READ && (st = op_unread(c, g->ino, &map)))
		return st;
	if ((st = op_dead_status(c->m, &map, g->iomode == LAYOUTIOMODE4_RW)))
		return st;
	if (g->iomode == LAYOUTIOMODE4_RW && op_unreached(c, &map))
		return NFS4ERR_LAYOUTUNAVAILABLE;
	/* Who copies has to see each write: it comes through us. */
	if (g->iomode == LAYOUTIOMODE4_RW && lo_copied_here(c->m->m_lo, &map))
		return NFS4ERR_LAYOUTUNAVAILABLE;
	/* Cut, and a server that holds the only copy does not know yet (docs/size.md, "Setting a size"). */
	if (lo_held_objects(c->m->m_lo, g->ino, &map))
		return NFS4ERR_LAYOUTTRYLATER;
	layout_note(c, sid, &map);
	xdr_put_bool(x, c->m->m_return_on_close);
	op_put_stateid(x, sid);
	xdr_put_u32(x, 1);
	xdr_put_u64(x, 0); /* always the whole file: of less, Linux asks for the rest range by range */
	xdr_put_u64(x, NFS4_UINT64_MAX);
	xdr_put_u32(x, g->iomode);
	xdr_put_u32(x, LAYOUT4_FLEX_FILES);
	at = x->x_len;
	xdr_put_u32(x, 0);
	err = lo_encode_layout(c->m->m_lo, &i, &map, g->read, g->iomode == LAYOUTIOMODE4_RW,
			       &(struct lo_reader){c->client->cl_number, rpc_conn_peer(c->call->c_conn)}, 0, x);
	if (err)
		return err == -EAGAIN ? NFS4ERR_LAYOUTTRYLATER : op_status(err);
	xdr_patch_u32(x, at, (uint32_t)(x->x_len - at - 4));
	if (op_room(x) < OP_ERROR_ROOM)
		return op_too_big(c);
	if (x->x_len - at > g->maxcount)
		return NFS4ERR_TOOSMALL;
	op_set_current_sid(c, sid);
	return NFS4_OK;
}

static nfsstat4 layoutget_reply(struct compound *c, const struct st_stateid *sid)
{
	nfsstat4 status = layoutget_encode(c, sid);

	if (!status)
		return status;
	layout_undo(c, c->scratch, sid);
	if (status != NFS4ERR_LAYOUTTRYLATER)
		return status;
	xdr_truncate(c->out, c->status_at + 4);
	return try_later(c);
}

static nfsstat4 layoutget_go(struct compound *c);

static int mark_run(struct kv_op *op, struct kv_txn *t)
{
	struct compound *c = op_of(op);
	struct layoutget *g = c->scratch;
	struct st *st = c->m->m_st;
	struct ns_inode i;
	int err = ns_get(c->m->m_ns, t, g->ino, &i);

	if (err)
		return err;
	pthread_mutex_lock(&st->st_lock);
	g->mark_gen = st_file_get(st, g->ino, false)->f_mark_gen; /* pinned */
	pthread_mutex_unlock(&st->st_lock);
	return op_mark_put(t, g->ino);
}

static nfsstat4 mark_done(struct compound *c, int err)
{
	struct layoutget *g = c->scratch;
	struct st *st = c->m->m_st;
	struct st_file *f;

	pthread_mutex_lock(&st->st_lock);
	f = st_file_get(st, g->ino, false);
	f->f_pins--;
	if (!err) {
		f->f_marked = true;
		/* unless it was deleted again behind it */
		f->f_mark_durable |= f->f_mark_gen == g->mark_gen;
	}
	st_file_put(st, f);
	pthread_mutex_unlock(&st->st_lock);
	return err ? op_status(err) : layoutget_go(c);
}

/* A write layout goes out only when the file is marked durably. */
static nfsstat4 layoutget_go(struct compound *c)
{
	struct layoutget *g = c->scratch;
	struct st *st = c->m->m_st;
	struct st_stateid sid;
	nfsstat4 status;

	pthread_mutex_lock(&st->st_lock);
	status = st_client_goes(c->client) ? NFS4ERR_BADSESSION : layout_grant(c, g, &sid);
	pthread_mutex_unlock(&st->st_lock);
	if (status == OP_PARKED)
		return op_mutate_again(c, mark_run, mark_done); /* a mark is a mark */
	return status ? status : layoutget_reply(c, &sid);
}

/* Where the layouts of others come back now, the client asks again. */
static void layoutget_without(void *arg, int err)
{
	struct compound *c = arg;
	nfsstat4 status;

	op_txn_stale(c->th);
	status = err ? op_status(err) : layoutget_go(c);
	if (status != OP_PARKED)
		op_resume(c, status);
}

/* The writes that a layout allows are not seen here, and they must take set-id bits: such a file is written through the MDS. */
static nfsstat4 layoutget_rights(struct compound *c)
{
	struct layoutget *g = c->scratch;
	struct ns_inode i;
	int err = g->iomode == LAYOUTIOMODE4_RW ? ns_get(c->m->m_ns, op_txn(c), g->ino, &i) : 0;

	if (err)
		return op_status(err);
	if (g->iomode == LAYOUTIOMODE4_RW && (i.i_mode & 06000))
		return NFS4ERR_LAYOUTUNAVAILABLE;
	if (g->iomode == LAYOUTIOMODE4_RW && op_without_dead(c->m, c->th->mt_loop, g->ino, &i, layoutget_without, c))
		return OP_PARKED;
	return layoutget_go(c);
}

static void layoutget_settled(void *arg, int err)
{
	struct compound *c = arg;
	nfsstat4 status;

	op_txn_stale(c->th);
	status = err ? try_later(c) : layoutget_rights(c);
	if (status != OP_PARKED)
		op_resume(c, status);
}

nfsstat4 op_layoutget(struct compound *c)
{
	struct layoutget *g = op_scratch(c, sizeof(*g), NULL);
	struct st *st = c->m->m_st;
	struct ns_inode i;
	struct lo_map map;
	uint32_t type;
	nfsstat4 status;

	if (!g)
		return NFS4ERR_DELAY;
	xdr_get_bool(c->in);
	type = xdr_get_u32(c->in);
	g->iomode = xdr_get_u32(c->in);
	g->off = xdr_get_u64(c->in);
	g->len = xdr_get_u64(c->in);
	g->minlen = xdr_get_u64(c->in);
	op_get_stateid(c->in, &g->sid);
	g->maxcount = xdr_get_u32(c->in);
	if (c->in->bad)
		return NFS4ERR_BADXDR;
	if (type != LAYOUT4_FLEX_FILES)
		return NFS4ERR_UNKNOWN_LAYOUTTYPE;
	if (g->iomode != LAYOUTIOMODE4_READ && g->iomode != LAYOUTIOMODE4_RW)
		return NFS4ERR_BADIOMODE;
	if (g->len < g->minlen || (g->len != NFS4_UINT64_MAX && g->len > NFS4_UINT64_MAX - g->off) || (g->minlen != NFS4_UINT64_MAX && g->minlen > NFS4_UINT64_MAX - g->off))
		return NFS4ERR_INVAL;
	/* A layout stateid of seqid 0 is none here (section 12.5.5.2.1.4); an open's may have it. */
	if (g->sid.seqid == 0 && st_sid_ours(st, &g->sid, ST_SID_LAYOUT))
		return NFS4ERR_BAD_STATEID;
	status = op_resolve_sid(c, &g->sid);
	if (!status)
		status = op_cur_inode(c, &i);
	if (status)
		return status;
	if (i.i_type != NS_REG)
		return NFS4ERR_WRONG_TYPE;
	/* A write to a read-only export comes to us, and hears ROFS. */
	if (!op_layouts_ok(c) || (g->iomode == LAYOUTIOMODE4_RW && c->exp->g_ro))
		return NFS4ERR_LAYOUTUNAVAILABLE;
	g->ino = i.i_ino;
	if (lo_map_decode(i.i_blob, &map))
		return NFS4ERR_IO;
	if (map.lm_stripes > 1 && !c->client->cl_stripes)
		return NFS4ERR_LAYOUTUNAVAILABLE;
	pthread_mutex_lock(&st->st_lock);
	status = st_in_grace(st) ? NFS4ERR_GRACE : layout_stateid(c, g);
	pthread_mutex_unlock(&st->st_lock);
	if (status)
		return status;
	g->read = g->read || ns_may_read(&i, &c->cred) == 0; /* as op_io_access */
	if (!g->read && g->iomode == LAYOUTIOMODE4_READ)
		return NFS4ERR_OPENMODE;
	if (op_settle(c->m, c->th->mt_loop, g->ino, layoutget_settled, c))
		return OP_PARKED;
	return layoutget_rights(c);
}

/* ---- LAYOUTCOMMIT ---- */

/*
 * What the client says of size and time is a hint: a truncation may have come between its write and this call, and times that were set after the
 * write must stay. The data servers know: their sizes, and their count of writes, which moves mtime when it is new. Only where one of them cannot be
 * asked does the client's word count (op_refresh's error).
 */
struct layoutcommit {
	uint64_t last, before, sizegen;
	bool have_last;
};

static int layoutcommit_run(struct kv_op *op, struct kv_txn *t)
{
	struct compound *c = op_of(op);
	struct layoutcommit *k = c->scratch;
	struct ns_setattr s = {.s_mask = NS_S_MTIME_NOW | NS_S_SIZE | NS_S_GROW_ONLY, .s_size = k->last + 1};
	struct st *st = c->m->m_st;
	struct ns_inode out;
	struct st_file *f;
	bool old;

	/* A size that was set since, or is being set, counts: what the client tells is from before it. */
	pthread_mutex_lock(&st->st_lock);
	f = st_file_get(st, c->cur, false);
	old = !f || f->f_sizing || f->f_sizegen != k->sizegen;
	pthread_mutex_unlock(&st->st_lock);
	return old ? 0 : ns_setattr(c->m->m_ns, t, c->cur, &s, NULL, op_now(), &out);
}

static nfsstat4 layoutcommit_done(struct compound *c, int err)
{
	struct layoutcommit *k = c->scratch;
	struct ns_inode i;

	if (!err)
		err = ns_get(c->m->m_ns, op_txn(c), c->cur, &i);
	if (err)
		return op_status(err);
	xdr_put_bool(c->out, i.i_size > k->before);
	if (i.i_size > k->before)
		xdr_put_u64(c->out, i.i_size);
	return NFS4_OK;
}

static nfsstat4 layoutcommit_asked(struct compound *c, int err)
{
	struct layoutcommit *k = c->scratch;

	if (err && k->have_last)
		return op_mutate_again(c, layoutcommit_run, layoutcommit_done); /* the size only grows */
	return layoutcommit_done(c, 0);
}

nfsstat4 op_layoutcommit(struct compound *c)
{
	struct layoutcommit *k = op_scratch(c, sizeof(*k), NULL);
	struct st *st = c->m->m_st;
	struct st_layout *l;
	struct st_stateid sid;
	struct ns_inode i;
	uint32_t type, len, nsec = 0;
	uint64_t off, length;
	bool reclaim;
	nfsstat4 status;

	if (!k)
		return NFS4ERR_DELAY;
	off = xdr_get_u64(c->in);
	length = xdr_get_u64(c->in);
	reclaim = xdr_get_bool(c->in);
	op_get_stateid(c->in, &sid);
	k->have_last = xdr_get_bool(c->in);
	if (k->have_last)
		k->last = xdr_get_u64(c->in);
	if (xdr_get_bool(c->in)) {
		xdr_get_u64(c->in);
		nsec = xdr_get_u32(c->in);
	}
	type = xdr_get_u32(c->in);
	xdr_get_opaque(c->in, 65536, &len);
	if (c->in->bad)
		return NFS4ERR_BADXDR;
	if (type != LAYOUT4_FLEX_FILES)
		return NFS4ERR_UNKNOWN_LAYOUTTYPE;
	if (nsec >= 1000000000)
		return NFS4ERR_INVAL;
	if (length != NFS4_UINT64_MAX && length > NFS4_UINT64_MAX - off)
		return NFS4ERR_INVAL;
	if (k->have_last && length != NFS4_UINT64_MAX && k->last >= off + length)
		return NFS4ERR_INVAL;
	if (k->have_last && k->last >= OP_MAX_FILE)
		return NFS4ERR_FBIG;
	status = op_resolve_sid(c, &sid);
	if (status)
		return status;
	status = op_cur_inode(c, &i);
	if (status)
		return status;
	k->before = i.i_size;
	pthread_mutex_lock(&st->st_lock);
	l = st_layout_find(st, &sid);
	if (st_in_grace(st))
		status = NFS4ERR_GRACE;
	else if (reclaim)
		status = NFS4ERR_NO_GRACE;
	else if (!l || l->l_client != c->client || l->l_file->f_ino != c->cur)
		status = NFS4ERR_BADLAYOUT;
	else if (!(l->l_iomode & LAYOUTIOMODE4_RW))
		status = NFS4ERR_BADIOMODE;
	if (!status)
		k->sizegen = l->l_file->f_sizegen;
	pthread_mutex_unlock(&st->st_lock);
	if (status)
		return status;
	/* Not asked: a size is being set, and that is the size. */
	return op_refresh(c, i.i_ino, true, false, layoutcommit_asked) ? OP_PARKED : layoutcommit_done(c, 0);
}

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
	uint64_t ino;
	uint32_t epoch;    /* of the layout it is about */
	bool writer;       /* it was for writing */
	uint64_t stale;    /* found by report_run: objects that became so */
	nfsstat4 fatal;    /* and what the last copy failed with */
	bool denied, denied_before; /* ACCESS of a server that lives: in this report, in one before it in this epoch */
	bool returned_rw;  /* LAYOUTRETURN: the last write layout may be back */
	bool present;
	uint32_t iomode;   /* what is returned */
	bool recalled;
	struct st_stateid sid;
	uint32_t told;     /* the grant that the client spoke of: its seqid */
	struct op_hold hold;
};

/* READ errors are unread.c's; connection failures (OP_ILLEGAL) say nothing about what was written. */
static bool report_means_write_failed(const struct op_dev_error *e)
{
	return e->opnum == OP_WRITE || e->opnum == OP_COMMIT;
}

/* What a last copy's failure is to the application. A server that cannot be reached may come back: that is waited for. */
static nfsstat4 fatal_status(const struct report *r)
{
	nfsstat4 st = NFS4_OK;

	for (unsigned e = 0; e < r->n; e++) {
		if (!report_means_write_failed(&r->e[e]))
			continue;
		switch (r->e[e].status) {
		/* FBIG and ROFS are not in LAYOUTGET's list (section 15.2), but clients hand them on, and IO would hide the cause. */
		case NFS4ERR_NOSPC: case NFS4ERR_DQUOT: case NFS4ERR_FBIG: case NFS4ERR_ROFS:
			return r->e[e].status;
		case NFS4ERR_IO: case NFS4ERR_ACCESS:
			st = NFS4ERR_IO;
		}
	}
	return st;
}

static uint64_t stale_objects(struct mds *m, struct report *r, const struct lo_map *map)
{
	uint64_t hit = 0;

	for (unsigned e = 0; e < r->n; e++) {
		struct dsc_server sv;

		if (!report_means_write_failed(&r->e[e]) || !dsc_get_uuid(m->m_dsc, r->e[e].dev, &sv))
			continue;
		/* A server that lives denies what is fenced: the client may speak of a layout it has no more. Said twice it counts. One without a lease denies all. */
		if (r->e[e].status == NFS4ERR_ACCESS && dsc_leased(m->m_dsc, sv.sv_id)) {
			r->denied = true;
			if (!r->denied_before)
				continue;
		}
		for (unsigned k = 0; k < (unsigned)map->lm_stripes * map->lm_mirrors; k++) {
			if (map->lm_obj[k].ob_ds == sv.sv_id && map->lm_obj[k].ob_state != LO_STALE)
				hit |= 1ull << k;
		}
	}
	return hit;
}

static uint64_t last_stripes(const struct lo_map *map, uint64_t last)
{
	uint64_t stripes = 0;

	for (unsigned k = 0; k < (unsigned)map->lm_stripes * map->lm_mirrors; k++)
		stripes |= (last >> k & 1) << k % map->lm_stripes;
	return stripes;
}

/* Makes them stale, unless that were the last copy: then the data server's own answers decide. */
static int report_run(struct kv_op *op, struct kv_txn *t)
{
	struct compound *c = op_of(op);
	struct report *r = c->scratch;
	struct ns_inode i;
	struct lo_map map;
	uint64_t last;
	struct st *st = c->m->m_st;
	struct st_file *f;
	int err = ns_get(c->m->m_ns, t, r->ino, &i);

	if (!err)
		err = lo_map_decode(i.i_blob, &map);
	if (err)
		return err;
	if (r->epoch != map.lm_epoch)
		return 0;
	pthread_mutex_lock(&st->st_lock);
	f = st_file_get(st, r->ino, false);
	r->denied_before = f && f->f_denied == r->epoch + 1;
	pthread_mutex_unlock(&st->st_lock);
	r->stale = lo_map_make_stale(&map, stale_objects(c->m, r, &map), &last);
	if (last)
		r->fatal = fatal_status(r);
	/* The application hears that its write failed, and some copies may have it. */
	if (r->fatal)
		r->stale |= op_mistrust(c->m, r->ino, &map, last_stripes(&map, last));
	if (!r->stale)
		return 0;
	log_warn("inode %lu: a client reported failed writes: objects are stale now", (unsigned long)r->ino);
	err = op_hold(&r->hold, c->m, r->ino);
	return err ? err : op_set_map(c->m, t, r->ino, &map, op_now());
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
	return false;
}

/* The client has no guard against asking again for ever: its next LAYOUTGET carries the error to the application. */
static void report_fatal(struct compound *c)
{
	struct report *r = c->scratch;
	struct st *st = c->m->m_st;
	struct st_file *f;

	if (!r->fatal && !r->denied)
		return;
	pthread_mutex_lock(&st->st_lock);
	f = st_file_get(st, r->ino, false);
	if (f && r->denied)
		f->f_denied = r->epoch + 1;
	if (f && r->fatal) {
		f->f_error = r->fatal;
		f->f_error_client = c->client->cl_id;
		f->f_error_until_ns = clock_mono_ns() + 5000000000ull;
	}
	pthread_mutex_unlock(&st->st_lock);
}

static void nobody(void *arg, int err)
{
	(void)arg;
	(void)err;
}

/* The client has a grant that is newer than the one it spoke of: it does not know that an object of that one is stale. */
static bool report_is_older(struct compound *c)
{
	struct report *r = c->scratch;
	struct st *st = c->m->m_st;
	struct st_layout *l;
	bool older;

	pthread_mutex_lock(&st->st_lock);
	l = st_layout_find(st, &r->sid);
	older = l && l->l_sid.seqid - l->l_recalled > r->told;
	pthread_mutex_unlock(&st->st_lock);
	return older;
}

/* What became stale is in others' layouts: they come back before the report is answered, so that nobody reads it after the write is done elsewhere. */
static bool report_takes_back(struct compound *c, int err, void (*then)(void *arg, int err))
{
	struct report *r = c->scratch;

	bool stale = !err && r->stale, waits;

	report_fatal(c);
	/* It is not waited for: the client may not answer before it has heard this. */
	if (stale && report_is_older(c))
		op_take_back(c->m, c->th->mt_loop, r->ino, NULL, nobody, NULL);
	waits = stale && op_take_back(c->m, c->th->mt_loop, r->ino, c->client, then, c);
	op_unhold(&r->hold);
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
	for (uint32_t k = 0; k < n; k++) {
		struct op_dev_error e;

		get_dev_error(c->in, &e);
		if (r->n < MAX_ERRORS)
			r->e[r->n++] = e;
	}
	if (c->in->bad)
		return NFS4ERR_BADXDR;
	if (!c->cur)
		return NFS4ERR_NOFILEHANDLE;
	r->ino = c->cur;
	pthread_mutex_lock(&c->m->m_st->st_lock);
	l = st_layout_find(c->m->m_st, &sid);
	known = l && l->l_client == c->client && l->l_file->f_ino == c->cur;
	if (known) {
		r->epoch = l->l_epoch;
		r->writer = l->l_iomode & LAYOUTIOMODE4_RW;
		r->sid = l->l_sid;
		r->told = sid.seqid ? sid.seqid : l->l_sid.seqid;
	}
	pthread_mutex_unlock(&c->m->m_st->st_lock);
	if (known)
		op_unreached_report(c, r->e, r->n);
	if (known)
		op_unread_report(c, r->ino, r->e, r->n);
	return known && report_counts(r) ? op_mutate_again(c, report_run, layouterror_done) : NFS4_OK; /* told again, it changes nothing */
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
		for (uint32_t j = 0; j < m && !x->bad; j++) {
			struct op_dev_error e;

			get_dev_error(x, &e);
			if (r->n < MAX_ERRORS)
				r->e[r->n++] = e;
		}
	}
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
	/* The last write layout is back. GETATTR of a marked file asks for its size, also in this compound; where it never does, it is fetched now. */
	if (c->m->m_size_mode == OP_SIZE_NEVER && op_refresh(c, r->ino, true, true, return_reply))
		return OP_PARKED;
	op_unmark_later(c, r->ino);
	return return_reply(c, 0);
}

static void return_taken_back(void *arg, int err)
{
	struct compound *c = arg;
	nfsstat4 status;

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

/* Only now: who waits for the layout finds what it tells of written down. The next epoch would make nothing of it. */
static nfsstat4 return_reported(struct compound *c, int err)
{
	struct report *r = c->scratch;
	struct st *st = c->m->m_st;
	struct st_layout *l;

	pthread_mutex_lock(&st->st_lock);
	l = st_layout_find(st, &r->sid);
	if (l && l->l_sid.seqid - l->l_recalled != r->sid.seqid - r->recalled)
		l = NULL; /* a newer grant: that one is the client's */
	if (l)
		return_drop(st, r, l);
	pthread_mutex_unlock(&st->st_lock);
	return report_takes_back(c, err, return_taken_back) ? OP_PARKED : return_refresh(c, err);
}

/* locked */
static nfsstat4 return_file(struct compound *c, struct report *r, uint32_t iomode, const struct st_stateid *sid, uint64_t off, uint64_t len)
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
	/* One that crosses a newer grant would take that away, too (section 12.5.3). A recall alone is no grant. */
	if (sid->seqid && sid->seqid + l->l_recalled < l->l_sid.seqid)
		return NFS4ERR_OLD_STATEID;
	r->epoch = l->l_epoch;
	r->writer = l->l_iomode & LAYOUTIOMODE4_RW;
	r->iomode = whole ? iomode : 0; /* a part of a layout is kept whole until the rest comes back */
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

/* locked: all of the client's, or those of the current file handle's file system. As LAYOUTRETURN of each file. */
static void return_many(struct compound *c, uint32_t iomode, bool fsid)
{
	struct st *st = c->m->m_st;

	for (struct st_layout *l = c->client->cl_layouts, *next; l; l = next) {
		struct st_file *f = l->l_file;
		bool rw = iomode & l->l_iomode & LAYOUTIOMODE4_RW;

		next = l->l_cnext;
		if (fsid && !of_this_fsid(c, l))
			continue;
		f->f_pins++; /* keeps f over the free */
		st_layout_drop(st, l, iomode);
		f->f_pins--;
		if (rw && !st_file_has_writers(f))
			op_unmark_later(c, f->f_ino);
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
	pthread_mutex_lock(&st->st_lock);
	grace = st_in_grace(st);
	pthread_mutex_unlock(&st->st_lock);
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
		pthread_mutex_lock(&st->st_lock);
		return_many(c, iomode, how == LAYOUTRETURN4_FSID);
		pthread_mutex_unlock(&st->st_lock);
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
	pthread_mutex_lock(&st->st_lock);
	status = return_file(c, r, iomode, &sid, off, length);
	pthread_mutex_unlock(&st->st_lock);
	if (status)
		return status;
	op_unreached_report(c, r->e, r->n);
	op_unread_report(c, r->ino, r->e, r->n);
	return report_counts(r) ? op_mutate_again(c, report_run, return_reported) : return_refresh(c, 0);
}
