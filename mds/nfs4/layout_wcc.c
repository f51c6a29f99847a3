/* SPDX-License-Identifier: Apache-2.0 */
/*
 * layout_wcc.c - LAYOUT_WCC (RFC 9766): a client hands on the attributes that data servers sent it.
 *
 *	op_layout_wcc	decodes and checks all of it. The data servers are asked for size and times
 *	wcc_asked	wcc_run: the size that the client names, if none answered, and the access
 *			time
 *	wcc_done	the answer
 *
 * Ignores unknown objects. A client may err or lie. So sizes and modification times only lead to
 * the query of the data servers that LAYOUTCOMMIT makes. Where no data server can be queried, the
 * client's size counts if the file grows by it. Owners and modes of objects do not become the
 * file's: capabilities guard objects here, not user ids.
 */
#include "mds/nfs4/op.h"
#include "mds/nfs4/op_attr.h"
#include "mds/nfs4/op_state.h"
#include <errno.h>

struct wcc {
	bool write, have_size, have_mtime, have_atime; /* write: the layout is for writing */
	uint64_t size, sizegen, ino;
	struct ns_time atime;
};

struct wcc_attrs {
	bool size, atime, mtime;
	uint64_t s;
	struct ns_time a;
};

static struct ns_time layout_wcc_get_time(struct xdr_in *x, bool *ok)
{
	struct ns_time t = {.t_sec = (int64_t)xdr_get_u64(x), .t_nsec = xdr_get_u32(x)};

	*ok &= t.t_nsec < 1000000000;
	return t;
}

/* A fattr4 of what an NFSv3 server reports, in the order of the attribute numbers. */
static nfsstat4 get_attrs(struct xdr_in *x, struct wcc_attrs *a)
{
	static const uint8_t known[] = {FATTR4_SIZE,	      FATTR4_MODE,	 FATTR4_OWNER,
					FATTR4_OWNER_GROUP,   FATTR4_SPACE_USED, FATTR4_TIME_ACCESS,
					FATTR4_TIME_METADATA, FATTR4_TIME_MODIFY};
	struct op_bitmap b;
	struct xdr_in v;
	const uint8_t *p;
	uint32_t len;
	bool extra, ok = true;

	op_get_bitmap(x, &b, &extra);
	p = xdr_get_opaque(x, UINT32_MAX - 3, &len);
	if (x->bad)
		return NFS4ERR_BADXDR;
	xdr_in_init(&v, p, len);
	memset(a, 0, sizeof(*a));
	for (unsigned i = 0; i < sizeof(known); i++) {
		if (!op_bit(&b, known[i]))
			continue;
		b.w[known[i] / 32] &= ~(1u << known[i] % 32);
		switch (known[i]) {
		case FATTR4_SIZE:
			a->size = true;
			a->s = xdr_get_u64(&v);
			break;
		case FATTR4_MODE:
			xdr_get_u32(&v);
			break;
		case FATTR4_OWNER:
		case FATTR4_OWNER_GROUP:
			xdr_get_opaque(&v, NFS4_OPAQUE_LIMIT, &len);
			break;
		case FATTR4_SPACE_USED:
			xdr_get_u64(&v);
			break;
		case FATTR4_TIME_ACCESS:
			a->atime = true;
			a->a = layout_wcc_get_time(&v, &ok);
			break;
		case FATTR4_TIME_METADATA:
			layout_wcc_get_time(&v, &ok);
			break;
		default:
			a->mtime = true;
			layout_wcc_get_time(&v, &ok);
			break;
		}
	}
	/* Other attributes do not exist for an object, and their values cannot be skipped. */
	if (extra || b.w[0] || b.w[1] || b.w[2] || !ok)
		return NFS4ERR_INVAL;
	return v.bad || xdr_left(&v) ? NFS4ERR_BADXDR : NFS4_OK;
}

/* Device, stateid and file handle together name an object (section 2 of RFC 9766). Here the stateid
 * is the anonymous one, and the handle is the capability that this client got. */
static bool names_object(struct compound *c, const uint8_t dev[16], const struct st_stateid *sid,
			 const uint8_t *fh, uint32_t len, const struct ns_inode *i,
			 const struct lo_map *map)
{
	static const struct st_stateid anonymous;
	struct ds_reg_server sv;
	struct cap cap;
	int obj;

	if (memcmp(sid, &anonymous, sizeof(anonymous)) || !fh || len != CAP_LEN ||
	    !ds_reg_get_uuid(c->m->m_dsc, dev, &sv) || !ds_reg_cap_open(c->m->m_dsc, &sv, fh, &cap))
		return false;
	obj = lo_object_of(map, sv.sv_id, cap.cp_obj.co_stripe, cap.cp_obj.co_copy);
	return cap.cp_obj.co_ino == i->i_ino && cap.cp_obj.co_incarnation == i->i_incarnation &&
	       cap.cp_client == c->client->cl_number && cap.cp_epoch == map->lm_epoch && obj >= 0 &&
	       map->lm_obj[obj].ob_state == LO_IN_SYNC;
}

static void wcc_note(struct wcc *k, const struct wcc_attrs *a)
{
	k->have_mtime |= a->mtime;
	if (a->size) {
		/* sparse mapping: an object's end is the file's */
		k->size = !k->have_size || a->s > k->size ? a->s : k->size;
		k->have_size = true;
	}
	if (a->atime && (!k->have_atime || ns_time_after(&a->a, &k->atime))) {
		k->atime = a->a;
		k->have_atime = true;
	}
}

/* ff_layout_wcc4: mirrors of data servers. */
static nfsstat4 get_body(struct compound *c, struct xdr_in *x, struct wcc *k,
			 const struct ns_inode *i, const struct lo_map *map)
{
	nfsstat4 st = NFS4_OK;

	for (uint32_t m = xdr_get_u32(x); m && !st && !x->bad; m--) {
		for (uint32_t n = xdr_get_u32(x); n && !st && !x->bad; n--) {
			const uint8_t *dev = xdr_get_fixed(x, NFS4_DEVICEID4_SIZE), *fh = NULL;
			struct wcc_attrs a;
			struct st_stateid sid;
			uint32_t len = 0, one;

			op_get_stateid(x, &sid);
			for (uint32_t v = xdr_get_u32(x); v && !x->bad; v--) {
				const uint8_t *p = xdr_get_opaque(x, NFS4_FHSIZE, &one);

				fh = fh ? fh : p; /* the first handle, as clients use it */
				len = fh == p ? one : len;
			}
			if (x->bad)
				break;
			st = get_attrs(x, &a);
			if (!st && names_object(c, dev, &sid, fh, len, i, map))
				wcc_note(k, &a);
		}
	}
	return st ? st : x->bad || xdr_left(x) ? NFS4ERR_BADXDR : NFS4_OK;
}

static int wcc_run(struct kv_op *op, struct kv_txn *t)
{
	struct compound *c = op_of(op);
	struct wcc *k = c->scratch;
	struct ns_setattr atime = {.s_mask = NS_S_ATIME, .s_atime = k->atime};
	struct ns_setattr s = {.s_mask = NS_S_MTIME_NOW | NS_S_SIZE | NS_S_GROW_ONLY,
			       .s_size = k->size};
	struct ns_time now = file_now();
	struct st *st = c->m->m_st;
	struct ns_inode i;
	struct st_file *f;
	bool old;
	int err = ns_get(c->m->m_ns, t, k->ino, &i);

	if (err)
		return err;
	if (k->have_atime) {
		if (k->atime.t_sec >= now.t_sec)
			atime.s_atime = now;
		if (ns_time_after(&atime.s_atime, &i.i_atime))
			err = ns_setattr(c->m->m_ns, t, k->ino, &atime, NULL, now, &i);
	}
	if (err || !k->have_size || k->size <= i.i_size)
		return err;
	/* A size that was set since, or is being set, counts. */
	st_file_lock(st, k->ino);
	f = st_file_get(st, k->ino, false);
	old = !f || f->f_nsizing || f->f_sizegen != k->sizegen;
	st_file_unlock(st, k->ino);
	return old ? 0 : ns_setattr(c->m->m_ns, t, k->ino, &s, NULL, now, &i);
}

static nfsstat4 wcc_done(struct compound *c, int err)
{
	(void)c;
	return err == -ENOENT ? NFS4ERR_STALE : err ? op_status(err) : NFS4_OK;
}

static nfsstat4 wcc_asked(struct compound *c, int err)
{
	struct wcc *k = c->scratch;

	k->have_size &= err != 0; /* without an error the data servers' own sizes count */
	return k->have_size || k->have_atime ? op_mutate_again(c, wcc_run, wcc_done) : NFS4_OK;
}

static nfsstat4 wcc_layout(struct compound *c, const struct st_stateid *sid, struct wcc *k)
{
	struct st *st = c->m->m_st;
	struct st_layout *l;
	nfsstat4 status = NFS4ERR_BAD_STATEID;

	st_file_lock(st, k->ino);
	l = st_layout_find(st, sid);
	if (l && l->l_client == c->client && l->l_file->f_ino == k->ino &&
	    sid->seqid <= l->l_sid.seqid) {
		k->write = l->l_iomode & LAYOUTIOMODE4_RW;
		k->sizegen = l->l_file->f_sizegen;
		status = NFS4_OK;
	}
	st_file_unlock(st, k->ino);
	return status;
}

nfsstat4 op_layout_wcc(struct compound *c)
{
	struct wcc *k = op_scratch(c, sizeof(*k), NULL);
	struct st_stateid sid;
	struct ns_inode i;
	struct lo_map map;
	struct xdr_in body;
	const uint8_t *p;
	uint32_t type, len;
	nfsstat4 st;

	if (!k)
		return NFS4ERR_DELAY;
	op_get_stateid(c->in, &sid);
	type = xdr_get_u32(c->in);
	p = xdr_get_opaque(c->in, UINT32_MAX - 3, &len);
	if (c->in->bad)
		return NFS4ERR_BADXDR;
	if (type != LAYOUT4_FLEX_FILES)
		return NFS4ERR_UNKNOWN_LAYOUTTYPE;
	st = op_resolve_sid(c, &sid);
	if (!st)
		st = op_cur_inode(c, &i);
	if (st)
		return st == NFS4ERR_NOENT ? NFS4ERR_STALE : st;
	if (i.i_type != NS_REG)
		return i.i_type == NS_DIR ? NFS4ERR_ISDIR : NFS4ERR_WRONG_TYPE;
	if (lo_map_decode(i.i_blob, &map))
		return NFS4ERR_SERVERFAULT;
	k->ino = i.i_ino;
	st = wcc_layout(c, &sid, k);
	if (st)
		return st;
	xdr_in_init(&body, p, len);
	st = get_body(c, &body, k, &i, &map);
	if (st)
		return st;
	/* Only the holder of a layout for writing knows of writes. */
	k->have_size &= k->write && k->size <= OP_MAX_FILE;
	if (k->write && (k->have_size || k->have_mtime) && op_refresh_begin(c, k->ino, true, false))
		return op_await(c, wcc_asked);
	k->have_size = false; /* a size is being set, and that size counts */
	return k->have_atime ? op_mutate_again(c, wcc_run, wcc_done) : NFS4_OK;
}
