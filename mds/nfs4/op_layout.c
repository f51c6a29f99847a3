/* SPDX-License-Identifier: Apache-2.0 */
/*
 * op_layout.c - GETDEVICEINFO, LAYOUTGET and LAYOUTCOMMIT (RFC 8881 sections 18.40, 18.43 and
 * 18.42, RFC 8435). layout_report.c has LAYOUTRETURN and the reports of clients about layouts.
 *
 *	op_layoutget		may the caller have it? What an earlier boot or a lost writer left
 *				is resolved
 *	layoutget_resolved	layoutget_rights: copies on dead servers, or a lost first copy,
 *				become stale
 *	layoutget_go		registers the layout (layout_grant)
 *	layoutget_marked	the store has the write intent, which it must have first:
 *				layoutget_go again
 *	layoutget_given		the store knows that capabilities are out: layoutget_go again
 *	layoutget_reply		encodes the layout from a snapshot that is younger than the
 *				registration
 *
 *	op_layoutcommit		may the caller? The data servers are asked for size and times
 *	layoutcommit_asked	if one did not answer, the client's size counts (layoutcommit_run)
 *	layoutcommit_done	the answer
 */
#include "base/clock.h"
#include "mds/nfs4/op.h"
#include "mds/nfs4/credentials.h"
#include "mds/nfs4/op_attr.h"
#include "mds/nfs4/op_state.h"
#include <errno.h>

#define NOTIFY_CHANGE_DELETE 0x6u

nfsstat4 op_getdeviceinfo(struct compound *c)
{
	const uint8_t *id = xdr_get_fixed(c->in, 16);
	uint32_t type = xdr_get_u32(c->in), max = xdr_get_u32(c->in), n = xdr_get_u32(c->in),
		 notify = 0;
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
	err = lo_encode_device(c->m->m_lo, id, rpc_conn_peer(c->call->c_conn),
			       rpc_conn_tls(c->call->c_conn) != RPC_TLS_NONE, c->out);
	if (err)
		return op_status(err);
	len = c->out->x_len - at - 4;
	if (!max) { /* the client only asks for notifications (section 18.40.3) */
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
	/* Answer with exactly the notifications that this server supports: otherwise Linux does not
	 * keep the device, and sends GETDEVICEINFO for every file. */
	notify &= NOTIFY_CHANGE_DELETE;
	if (notify) {
		st_all_lock(c->m->m_st);
		c->client->cl_notified |= notify >> NOTIFY_DEVICEID4_CHANGE & 1;
		c->client->cl_notified_gone |= notify >> NOTIFY_DEVICEID4_DELETE & 1;
		st_all_unlock(c->m->m_st);
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
	uint32_t mark_gen, before; /* before: the iomodes that the client's layout had */
	uint32_t grant;		   /* f_grants after this grant */
	bool marked;		   /* f_intent before this grant */
	bool noted;		   /* layout_note has run */
	bool mirrored;		   /* the file has several copies */
	bool contended;		   /* the file was contended when the request came */
	bool pinned;		   /* the file is pinned until the store has its write intent */
	bool clean;		   /* the map says that no client has a capability */
	bool contends;		   /* another client writes the file, which is not contended yet */
	/* An open of the client, or the caller, may read. Otherwise the capabilities only write. */
	bool read;
};

/* locked: may a layout of this iomode be given under this stateid? The stateid may be an open's,
 * a lock's, a delegation's or a layout's. */
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
		/* A layout stands for the opens that it came from: one of them must still allow the
		 * iomode. */
		f = l->l_file;
		status = f->f_opens ? NFS4ERR_OPENMODE : NFS4ERR_BAD_STATEID;
		for (o = f->f_opens; o; o = o->o_fnext) {
			if (o->o_client != c->client)
				continue;
			g->read |= o->o_access & OPEN4_SHARE_ACCESS_READ;
			if (g->iomode == LAYOUTIOMODE4_READ ||
			    (o->o_access & OPEN4_SHARE_ACCESS_WRITE))
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

/* locked: another client has a layout to write the file, or writes it through the metadata
 * server. */
static bool layout_contends(const struct st_file *f, const struct st_client *by)
{
	bool writes = false;

	for (const struct st_write *w = f->f_contended ? NULL : f->f_writes; w; w = w->sw_next)
		writes |= w->sw_client != by;
	return writes || job_contends(f, by);
}

/* What layout_grant returns, and no status: the store must first record something. */
#define NOT_RECORDED UINT32_MAX

/* The file, or all, is locked. Registers the layout: a recall from now on finds it. NOT_RECORDED:
 * the store must first record a write intent (then the file is pinned), or that capabilities are
 * out. */
static nfsstat4 layout_grant(struct compound *c, struct layoutget *g, struct st_stateid *sid)
{
	struct st *st = c->m->m_st;
	struct st_file *f = st_file_get(st, g->ino, true);
	struct st_layout *l;

	if (!f)
		return NFS4ERR_DELAY;
	l = st_layout_of(f, c->client);
	if (l && l->l_recalled && !st_needs_all()) /* the layout keeps f: no st_file_put */
		return NFS4ERR_RECALLCONFLICT;
	/* The client asks for more under a layout that is recalled: it did not understand the
	 * recall, or never got it. Recall again, unless a recall is on its way. */
	if (l && l->l_recalled)
		st_recall_queue(st, l);
	if (f->f_nexcl || f->f_removing || f->f_suspect || (l && l->l_recalled)) {
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
	g->pinned = g->iomode == LAYOUTIOMODE4_RW && !f->f_intent_durable;
	if (g->pinned) {
		f->f_pins++;
		return NOT_RECORDED;
	}
	if (g->clean) {
		st_file_put(st, f);
		return NOT_RECORDED;
	}
	g->contends = g->mirrored && g->iomode == LAYOUTIOMODE4_RW && layout_contends(f, c->client);
	if (g->contends) {
		st_file_put(st, f);
		return NFS4ERR_RECALLCONFLICT;
	}
	/* Over a limit the client gets no layout, and sends its I/O to the metadata server. */
	if (!l && op_full(c, ST_N_LAYOUTS, OP_LIMIT_LAYOUTS, c->m->m_limits.lm_layouts,
			  &(enum op_scope){0})) {
		st_file_put(st, f);
		return NFS4ERR_LAYOUTUNAVAILABLE;
	}
	if (!l)
		l = st_layout_new(st, f, c->client);
	if (!l) {
		st_file_put(st, f);
		return NFS4ERR_DELAY;
	}
	if (g->iomode == LAYOUTIOMODE4_RW) {
		g->marked = f->f_intent;
		if (!f->f_intent) { /* the map's write counts cover all writes before this */
			f->f_counts = true;
			f->f_moved = 0;
		}
		g->grant = ++f->f_grants;
		f->f_equal = false;
		f->f_intent = true;
		st_file_watch(f);
	}
	g->before = l->l_iomode;
	l->l_granting++;
	l->l_iomode |= g->iomode;
	if (!atomic_load(&c->client->cl_laid))
		atomic_store(&c->client->cl_laid, true);
	st_sid_bump(&l->l_sid);
	st_granted(st, &l->l_grants, c->session, c->once_slot, c->replay_seq);
	op_fh_make(c->m, op_export(c), g->ino, l->l_fh);
	l->l_fhlen = OP_FH_LEN;
	*sid = l->l_sid;
	return NFS4_OK;
}

/* Completes the registered layout from the snapshot that was read after the registration: its data
 * servers and its fence epoch. True: the file is contended. */
static bool layout_note(struct compound *c, const struct st_stateid *sid, const struct lo_map *map)
{
	struct layoutget *g = c->scratch;
	struct st *st = c->m->m_st;
	struct st_layout *l;
	bool contended;

	st_file_lock(st, g->ino);
	l = st_layout_find(st, sid);
	contended = l && l->l_file->f_contended;
	if (l && !g->before)
		l->l_epoch = map->lm_epoch;
	if (l) {
		l->l_servers |= lo_map_servers(map);
		l->l_granting--;
	}
	g->noted = true;
	st_file_unlock(st, g->ino);
	return contended;
}

/* locked: the grant did not reach the client, so the client cannot have written by it. Removes the
 * write intent (mark) where the file has no other writer. had: the layout was still there. */
static void mark_undo(struct compound *c, const struct layoutget *g, struct st_file *f, bool had)
{
	if (g->iomode != LAYOUTIOMODE4_RW || st_file_has_writers(f))
		return;
	if (had && !g->marked && f->f_grants == g->grant)
		f->f_intent = false; /* the end of the COMPOUND deletes it from the store */
	else if (f->f_intent)
		/* A request to delete the intent may have failed because of this grant. */
		file_intent_clear_later(&c->th->mt_returned, g->ino);
}

/* The client does not get the grant: takes back what the grant added. */
static void layout_undo(struct compound *c, const struct layoutget *g, const struct st_stateid *sid)
{
	struct st *st = c->m->m_st;
	struct st_layout *l;
	struct st_file *f;

	st_file_lock(st, g->ino);
	f = st_file_get(st, g->ino, false);
	if (f)
		f->f_pins++; /* keeps f while st_layout_drop may free the layout */
	l = st_layout_find(st, sid);
	if (l && !g->noted)
		l->l_granting--;
	/* The client has not seen this seqid either. A recall with a higher one would make the
	 * client wait for a LAYOUTGET reply that never comes. */
	if (l && g->before && l->l_sid.seqid == sid->seqid && !l->l_recalled)
		l->l_sid.seqid--;
	if (l)
		st_layout_drop(st, l, g->iomode & ~g->before);
	if (f) {
		f->f_pins--;
		mark_undo(c, g, f, l);
		st_file_put(st, f);
	}
	st_file_unlock(st, g->ino);
}

static nfsstat4 try_later(struct compound *c)
{
	xdr_put_bool(c->out, false); /* no signal when it is available (RFC 8881 section 18.43.2) */
	c->keep_body = true;
	return NFS4ERR_LAYOUTTRYLATER;
}

/*
 * The copies of a contended file may differ. The write handle of an NFSv3 data server also reads: a
 * client that cannot read the first copy would go on to that handle. With FF_FLAGS_NO_READ_IO the
 * client reads under a layout for reading, which names the first copy only (RFC 8435 section 5.1).
 */
static uint32_t layout_flags(struct compound *c, const struct lo_map *map, bool contended)
{
	return contended && lo_generic(c->m->m_lo, map) ? FF_FLAGS_NO_READ_IO : 0;
}

int op_map_given(struct mds *m, struct kv_txn *t, const struct ns_inode *i)
{
	uint8_t blob[NS_BLOB_MAX];
	struct lo_map map;
	int err = lo_map_decode(i->i_blob, &map);

	if (err || !map.lm_clean)
		return err;
	map.lm_clean = false;
	return ns_set_blob_quietly(m->m_ns, t, i->i_ino, blob,
				   lo_map_encode(&map, blob, sizeof(blob)));
}

static int layoutget_given_run(struct kv_op *op, struct kv_txn *t)
{
	struct compound *c = op_of(op);
	struct layoutget *g = c->scratch;
	struct ns_inode i;
	int err = ns_get(c->m->m_ns, t, g->ino, &i);

	return err ? err : op_map_given(c->m, t, &i);
}

static int op_layout_mark_run(struct kv_op *op, struct kv_txn *t)
{
	struct compound *c = op_of(op);
	struct layoutget *g = c->scratch;
	struct st *st = c->m->m_st;
	struct ns_inode i;
	int err = ns_get(c->m->m_ns, t, g->ino, &i);

	if (err)
		return err;
	st_file_lock(st, g->ino);
	g->mark_gen = st_file_get(st, g->ino, false)->f_intent_gen; /* the pin keeps the file */
	st_file_unlock(st, g->ino);
	err = op_map_given(c->m, t, &i);
	return err ? err : file_intent_put(t, g->ino);
}

/* The steps, in the order of time. */
static op_step layoutget_resolved, layoutget_go, layoutget_marked, layoutget_given;
static nfsstat4 layoutget_reply(struct compound *c, const struct st_stateid *sid);

nfsstat4 op_layoutget(struct compound *c)
{
	struct layoutget *g = op_scratch(c, sizeof(*g), NULL);
	struct st *st = c->m->m_st;
	struct ns_inode i;
	struct lo_map map;
	uint32_t type;
	nfsstat4 status;
	bool taking;

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
	if (g->len < g->minlen ||
	    (g->len != NFS4_UINT64_MAX && g->len > NFS4_UINT64_MAX - g->off) ||
	    (g->minlen != NFS4_UINT64_MAX && g->minlen > NFS4_UINT64_MAX - g->off))
		return NFS4ERR_INVAL;
	/* Seqid 0 is invalid in a layout stateid here (section 12.5.5.2.1.4); an open stateid may
	 * have it. */
	if (g->sid.seqid == 0 && st_sid_ours(st, &g->sid, ST_SID_LAYOUT))
		return NFS4ERR_BAD_STATEID;
	status = op_resolve_sid(c, &g->sid);
	if (!status)
		status = op_cur_inode(c, &i);
	if (status)
		return status;
	if (i.i_type != NS_REG)
		return NFS4ERR_WRONG_TYPE;
	/* Writes to a read-only export come to the metadata server, which answers NFS4ERR_ROFS. */
	if (!op_layouts_ok(c) || (g->iomode == LAYOUTIOMODE4_RW && c->exp->g_ro))
		return NFS4ERR_LAYOUTUNAVAILABLE;
	g->ino = i.i_ino;
	if (g->iomode == LAYOUTIOMODE4_RW)
		op_intent_doubt(c, g->ino);
	if (lo_map_decode(i.i_blob, &map))
		return NFS4ERR_IO;
	if (map.lm_stripes > 1 && !c->client->cl_stripes)
		return NFS4ERR_LAYOUTUNAVAILABLE;
	g->mirrored = map.lm_mirrors > 1;
	g->clean = map.lm_clean;
	g->contended = file_is_contended(&c->m->m_file, g->ino, &map, &taking);
	st_file_lock(st, g->ino);
	status = op_lock_grace(c) ? NFS4ERR_GRACE : layout_stateid(c, g);
	g->read = g->read || ns_may_read(&i, &c->cred) == 0; /* as op_io_access */
	if (!status && !g->read && g->iomode == LAYOUTIOMODE4_READ)
		status = NFS4ERR_OPENMODE;
	if (!status)
		status = op_user_access(c, &i,
					g->iomode == LAYOUTIOMODE4_RW ? OPEN4_SHARE_ACCESS_WRITE
								      : OPEN4_SHARE_ACCESS_READ);
	st_file_unlock(st, g->ino);
	if (status)
		return status;
	/* The client reads from the data servers, which do not report reads: count one now. */
	if (g->iomode == LAYOUTIOMODE4_READ)
		op_accessed(c, &i);
	return excl_resolve(&c->m->m_file, c->th->mt_loop, g->ino, op_wake, c)
		       ? op_await(c, layoutget_resolved)
		       : layoutget_resolved(c, 0);
}

/* Writes under a layout do not pass this server, and a write must clear the set-id bits. So clients
 * write a file with set-id bits through the metadata server. */
static nfsstat4 layoutget_rights(struct compound *c)
{
	struct layoutget *g = c->scratch;
	/* A reader, too: a dead data server of the file may have had a truncate to run. */
	bool looks = g->iomode == LAYOUTIOMODE4_RW || g->contended ||
		     file_held(&c->m->m_file, op_txn(c), g->ino);
	struct ns_inode i;
	struct lo_map map;
	int err = looks ? ns_get(c->m->m_ns, op_txn(c), g->ino, &i) : 0;

	if (err)
		return op_status(err);
	if (g->iomode == LAYOUTIOMODE4_RW && (i.i_mode & 06000))
		return NFS4ERR_LAYOUTUNAVAILABLE;
	/* The lost first copy becomes stale. This LAYOUTGET waits until layouts that name it are
	 * back. */
	if (g->contended && lo_map_decode(i.i_blob, &map) == 0 &&
	    file_first_lost(&c->m->m_file, c->th->mt_loop, NULL, g->ino, &map, 0, op_wake, c))
		return op_await(c, layoutget_go);
	if (looks && job_without_dead(c->m, c->th->mt_loop, g->ino, &i, op_wake, c))
		return op_await(c, layoutget_go);
	return layoutget_go(c, 0);
}

static nfsstat4 layoutget_resolved(struct compound *c, int err)
{
	return err ? try_later(c) : layoutget_rights(c);
}

/* A layout for writing goes out only when the store has the file's write intent. If copies have
 * just become stale, and others' layouts that name them are still coming back, the answer is
 * RECALLCONFLICT, and the client asks again. */
static nfsstat4 layoutget_go(struct compound *c, int err)
{
	struct layoutget *g = c->scratch;
	struct st *st = c->m->m_st;
	struct st_work w = {0};
	struct st_stateid sid;
	nfsstat4 status;

	if (err)
		return op_status(err);
	do {
		st_work_lock(&w, st, g->ino);
		status = st_client_goes(c->client) ? NFS4ERR_BADSESSION : layout_grant(c, g, &sid);
	} while (st_work_again(&w));
	/* The store records that capabilities are out before the first one goes out. Both mutations
	 * are idempotent: their result needs no durable reply. */
	if (status == NOT_RECORDED && g->pinned)
		return op_mutate_again(c, op_layout_mark_run, layoutget_marked);
	if (status == NOT_RECORDED)
		return op_mutate_again(c, layoutget_given_run, layoutget_given);
	if (status && g->contends)
		job_contend(c->m, c->th->mt_loop, g->ino);
	return status ? status : layoutget_reply(c, &sid);
}

static nfsstat4 layoutget_marked(struct compound *c, int err)
{
	struct layoutget *g = c->scratch;
	struct st *st = c->m->m_st;
	struct st_file *f;

	st_file_lock(st, g->ino);
	f = st_file_get(st, g->ino, false);
	f->f_pins--;
	g->clean &= !!err;
	if (!err) /* unless another mutation deleted the intent after this one put it */
		f->f_intent_durable |= f->f_intent_gen == g->mark_gen;
	st_file_put(st, f);
	st_file_unlock(st, g->ino);
	return layoutget_go(c, err);
}

static nfsstat4 layoutget_given(struct compound *c, int err)
{
	struct layoutget *g = c->scratch;

	g->clean = false;
	return layoutget_go(c, err);
}

static nfsstat4 layoutget_encode(struct compound *c, const struct st_stateid *sid)
{
	struct layoutget *g = c->scratch;
	struct xdr_out *x = c->out;
	struct ns_inode i;
	struct lo_map map;
	bool contended;
	nfsstat4 st;
	size_t at;
	int err;

	/* The layout is registered: what a fresh snapshot says now holds until a recall. */
	op_txn_stale(c->th);
	err = ns_get(c->m->m_ns, op_txn(c), g->ino, &i);
	if (!err)
		err = lo_map_decode(i.i_blob, &map);
	if (err)
		return op_status(err);
	if (map.lm_clean) /* the file was fenced after op_layoutget read the map */
		return NFS4ERR_LAYOUTTRYLATER;
	/* A client that can read no copy of a stripe would otherwise send LAYOUTGET for ever. */
	if (g->iomode == LAYOUTIOMODE4_READ && (st = op_unread(c, g->ino, &map)))
		return st;
	if ((st = op_dead_status(c->m, &map, g->iomode == LAYOUTIOMODE4_RW)))
		return st;
	if (g->iomode == LAYOUTIOMODE4_RW && op_unreached(c, &map))
		return NFS4ERR_LAYOUTUNAVAILABLE;
	/* This server rebuilds an object of the file and must see each write: clients write through
	 * it. */
	if (g->iomode == LAYOUTIOMODE4_RW && lo_copied_here(c->m->m_lo, &map))
		return NFS4ERR_LAYOUTUNAVAILABLE;
	/* The file was truncated or fenced, and a data server with the only copy has not run that
	 * order yet (docs/size.md, "Setting a size"). */
	if (lo_objects_with_orders(c->m->m_lo, g->ino, &map))
		return NFS4ERR_LAYOUTTRYLATER;
	contended = layout_note(c, sid, &map);
	/* The file became contended after op_layoutget looked. A retry gets a layout without the
	 * lost copy. */
	if (contended && lo_first_lost(c->m->m_lo, &map, 0))
		return NFS4ERR_LAYOUTTRYLATER;
	xdr_put_bool(x, c->m->m_return_on_close);
	op_put_stateid(x, sid);
	xdr_put_u32(x, 1);
	/* Always the whole file: after a smaller range Linux asks for the rest range by range. */
	xdr_put_u64(x, 0);
	xdr_put_u64(x, NFS4_UINT64_MAX);
	xdr_put_u32(x, g->iomode);
	xdr_put_u32(x, LAYOUT4_FLEX_FILES);
	at = x->x_len;
	xdr_put_u32(x, 0);
	err = lo_encode_layout(c->m->m_lo, &i, &map, g->read, g->iomode == LAYOUTIOMODE4_RW,
			       &(struct lo_reader){c->client->cl_number,
						   rpc_conn_peer(c->call->c_conn), contended},
			       layout_flags(c, &map, contended), x);
	if (err)
		return err == -EAGAIN ? NFS4ERR_LAYOUTTRYLATER : op_status(err);
	xdr_patch_u32(x, at, (uint32_t)(x->x_len - at - 4));
	if (op_reply_room(x) < OP_ERROR_ROOM)
		return op_too_big(c);
	if (x->x_len - at > g->maxcount)
		return NFS4ERR_TOOSMALL;
	op_set_current_sid(c, sid);
	return NFS4_OK;
}

static nfsstat4 layoutget_reply(struct compound *c, const struct st_stateid *sid)
{
	const struct layoutget *g = c->scratch;
	nfsstat4 status = layoutget_encode(c, sid);

	if (!status) {
		if (c->marked == g->ino)
			c->marked = 0;
		return status;
	}
	layout_undo(c, g, sid);
	if (status != NFS4ERR_LAYOUTTRYLATER)
		return status;
	xdr_truncate(c->out, c->status_at + 4);
	return try_later(c);
}

/* ---- LAYOUTCOMMIT ---- */

/*
 * The client's size and time are hints only: a truncate may have come between its write and this
 * LAYOUTCOMMIT, and times that were set after the write must stay. The data servers know the sizes
 * of their objects and a count of writes; a new count moves mtime. The client's size counts only
 * where a data server cannot be queried (op_refresh reports an error).
 */
struct layoutcommit {
	uint64_t last, before, size, sizegen; /* size: after it */
	bool have_last;
};

static int layoutcommit_run(struct kv_op *op, struct kv_txn *t)
{
	struct compound *c = op_of(op);
	struct layoutcommit *k = c->scratch;
	struct ns_setattr s = {.s_mask = NS_S_MTIME_NOW | NS_S_SIZE | NS_S_GROW_ONLY,
			       .s_size = k->last + 1};
	struct st *st = c->m->m_st;
	struct ns_inode i;
	struct st_file *f;
	bool old;
	int err;

	/* A size that was set since, or is being set, counts: the client's size is older. */
	st_file_lock(st, c->cur);
	f = st_file_get(st, c->cur, false);
	old = !f || f->f_nsizing || f->f_sizegen != k->sizegen;
	st_file_unlock(st, c->cur);
	c->once_none = old; /* no durable reply: a retry must see the size set in between */
	err = old ? ns_get(c->m->m_ns, t, c->cur, &i)
		  : ns_setattr(c->m->m_ns, t, c->cur, &s, NULL, file_now(), &i);
	k->size = err ? 0 : i.i_size;
	return err;
}

static void layoutcommit_put(struct compound *c, struct xdr_out *x, struct op_after *after)
{
	const struct layoutcommit *k = c->scratch;

	(void)after;
	xdr_put_bool(x, k->size > k->before);
	if (k->size > k->before)
		xdr_put_u64(x, k->size);
}

/* The steps, in the order of time. */
static op_step layoutcommit_asked, layoutcommit_done;

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
	st_file_lock(st, c->cur);
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
	st_file_unlock(st, c->cur);
	if (status)
		return status;
	/* op_refresh queries no data server while a size is being set: then that size counts. */
	k->size = i.i_size;
	return op_refresh_begin(c, i.i_ino, true, false) ? op_await(c, layoutcommit_asked)
							 : layoutcommit_done(c, 0);
}

static nfsstat4 layoutcommit_asked(struct compound *c, int err)
{
	struct layoutcommit *k = c->scratch;
	struct ns_inode i;

	if (err && k->have_last)
		return op_mutate(c, layoutcommit_run, layoutcommit_put, layoutcommit_done);
	/* The data servers' size is committed already. A retry queries them again. */
	err = ns_get(c->m->m_ns, op_txn(c), c->cur, &i);
	k->size = err ? 0 : i.i_size;
	return layoutcommit_done(c, err);
}

static nfsstat4 layoutcommit_done(struct compound *c, int err)
{
	return err ? op_status(err) : op_result(c, layoutcommit_put);
}
