/* SPDX-License-Identifier: Apache-2.0 */
/*
 * name_ops.c - operations on file handles and names: PUTFH to SECINFO_NO_NAME, without OPEN and the
 * attributes.
 *
 *	op_create			decodes and checks; create_run
 *	create_done			the answer
 *
 *	op_link				other clients' delegations on the file come back
 *	link_go				link_run
 *	link_done			the answer
 *
 *	op_remove, op_rename		unlink_start: other clients' delegations on the files come
 *					back
 *	unlink_go			other clients' layouts of a file that loses its last name
 *					come back
 *	unlink_taken_back		remove_run, or rename_run
 *	remove_done			the answer; the file goes, or becomes an orphan
 *					(file_free_done)
 *	rename_done			the same
 *	remove_fenced			of what went to the trash, and had layouts
 */
#include "mds/jobs/revoke_exports.h"
#include "mds/nfs4/credentials.h"
#include "mds/nfs4/op_attr.h"
#include "mds/nfs4/op_state.h"
#include "mds/nfs4/state_protect.h"
#include <errno.h>

/* May a put operation name a place that this request's flavour may not use (RFC 8881 section
 * 2.6.3.1.1)? The operation behind it decides. */
static bool put_excused(const struct compound *c)
{
	struct xdr_in x = *c->in;

	for (uint32_t n = c->at + 1; n < c->nops; n++) {
		switch (xdr_get_u32(&x)) {
		case OP_SAVEFH: /* does not count */
			continue;
		case OP_PUTFH:
		case OP_PUTROOTFH:
		case OP_PUTPUBFH:
		case OP_RESTOREFH:
		case OP_LOOKUP:
		case OP_LOOKUPP:
		case OP_SECINFO:
		case OP_SECINFO_NO_NAME:
			return true;
		case OP_OPEN:
			return op_open_has_name(&x);
		default:
			return false;
		}
	}
	return true;
}

static nfsstat4 put_fh(struct compound *c, uint64_t ino, const struct exp_grant *g)
{
	if (!op_enterable(c, g))
		return NFS4ERR_DELAY;
	c->wrongsec = !op_sec_ok(c, g);
	if (c->wrongsec && !put_excused(c)) {
		op_wrongsec_log(c, g);
		return NFS4ERR_WRONGSEC;
	}
	c->cur = ino;
	c->have_sid = false;
	op_enter(c, g);
	return NFS4_OK;
}

/*
 * Does the operation give state back? A client may give back what it holds of an export that it may
 * no longer use: otherwise its opens, locks and delegations would be in others' way as long as it
 * lives. The handle is good for that alone. Clients ask for attributes before the CLOSE, in the
 * same request. For those they get NFS4ERR_ACCESS, and Linux then sends CLOSE without them.
 */
static bool gives_back(uint32_t opnum)
{
	return opnum == OP_CLOSE || opnum == OP_LOCKU || opnum == OP_OPEN_DOWNGRADE ||
	       opnum == OP_DELEGRETURN || opnum == OP_LAYOUTRETURN;
}

/* Does the request give state back, right behind the put operation or behind attributes? */
static bool put_gives_back(const struct compound *c)
{
	struct xdr_in x = *c->in;
	struct op_bitmap b;

	for (uint32_t n = c->at + 1; n < c->nops && !x.bad; n++) {
		uint32_t opnum = xdr_get_u32(&x), len;

		if (gives_back(opnum))
			return !x.bad;
		if (opnum != OP_GETATTR && opnum != OP_SETATTR)
			return false;
		if (opnum == OP_SETATTR)
			xdr_get_fixed(&x, 4 + NFS4_OTHER_SIZE);
		op_get_bitmap(&x, &b, NULL);
		if (opnum == OP_SETATTR)
			xdr_get_opaque(&x, UINT32_MAX - 3, &len);
	}
	return false;
}

nfsstat4 op_gone(const struct compound *c)
{
	if (!c->cur || c->exp != &c->gone || gives_back(c->opnum))
		return NFS4_OK;
	switch (c->opnum) {
	case OP_PUTFH:
	case OP_PUTROOTFH:
	case OP_PUTPUBFH:
	case OP_RESTOREFH:
	case OP_TEST_STATEID:
	case OP_FREE_STATEID:
		return NFS4_OK;
	case OP_GETATTR:
	case OP_SETATTR:
		return NFS4ERR_ACCESS;
	default:
		return NFS4ERR_STALE;
	}
}

/* No export admits this request: so its connection must be the client's own. With machine
 * credentials the principal has admitted the connection (SEQUENCE checks that). */
static bool put_by_client(const struct compound *c)
{
	return c->session && (c->session->se_client->cl_mach || op_from_session(c, c->session));
}

static nfsstat4 put_gone(struct compound *c, uint16_t export, uint64_t ino)
{
	if (!put_gives_back(c) || !put_by_client(c))
		return NFS4ERR_STALE;
	c->gone = (struct exp_grant){.g_id = export, .g_ro = true};
	c->cur = ino;
	c->have_sid = c->wrongsec = false;
	c->exp = &c->gone;
	c->cred = (struct ns_cred){.cr_uid = EXP_NOBODY, .cr_gid = EXP_NOBODY};
	return NFS4_OK;
}

nfsstat4 op_putrootfh(struct compound *c)
{
	return c->view ? put_fh(c, NS_ROOT_INO, exp_root(c->view)) : NFS4ERR_DELAY;
}

nfsstat4 op_putfh(struct compound *c)
{
	const struct exp_grant *g;
	uint16_t export;
	uint64_t ino;
	uint32_t len;
	const uint8_t *fh = xdr_get_opaque(c->in, NFS4_FHSIZE, &len);
	nfsstat4 st;

	if (!fh)
		return NFS4ERR_BADXDR;
	if (!c->view)
		return NFS4ERR_DELAY;
	st = op_fh_open(c->m, fh, len, &export, &ino);
	if (st)
		return st;
	g = exp_of_handle(c->view, export, ino);
	return g ? put_fh(c, ino, g) : put_gone(c, export, ino);
}

nfsstat4 op_getfh(struct compound *c)
{
	uint8_t fh[OP_FH_LEN];

	if (!c->cur)
		return NFS4ERR_NOFILEHANDLE;
	op_fh_make(c->m, op_export(c), c->cur, fh);
	xdr_put_opaque(c->out, fh, sizeof(fh));
	return NFS4_OK;
}

nfsstat4 op_savefh(struct compound *c)
{
	if (!c->cur)
		return NFS4ERR_NOFILEHANDLE;
	c->saved = c->cur;
	c->saved_exp = c->exp;
	c->saved_sid = c->cur_sid;
	c->saved_have_sid = c->have_sid;
	return NFS4_OK;
}

nfsstat4 op_restorefh(struct compound *c)
{
	nfsstat4 st;

	if (!c->saved)
		return NFS4ERR_NOFILEHANDLE;
	st = put_fh(c, c->saved, c->saved_exp);
	if (st)
		return st;
	c->cur_sid = c->saved_sid;
	c->have_sid = c->saved_have_sid;
	return NFS4_OK;
}

static nfsstat4 dir_searchable(struct compound *c, struct ns_inode *d)
{
	nfsstat4 st = op_cur_inode(c, d);

	if (st)
		return st;
	if (d->i_type != NS_DIR)
		return d->i_type == NS_LNK ? NFS4ERR_SYMLINK : NFS4ERR_NOTDIR;
	return op_status(ns_permission(d, &c->cred, 1));
}

/*
 * Looks a name up in the current directory: its inode and the export there. If the request's
 * flavour is not good for the directory, only the names of other exports are answered. Every other
 * name gets NFS4ERR_WRONGSEC, whether it exists or not.
 */
static nfsstat4 lookup_in(struct compound *c, const char *name, size_t len, uint64_t *ino,
			  const struct exp_grant **g)
{
	struct ns_inode d;
	uint8_t type;
	nfsstat4 st = c->wrongsec ? op_cur_inode(c, &d) : dir_searchable(c, &d);

	if (!st)
		st = op_status(ns_lookup(c->m->m_ns, op_txn(c), c->cur, name, len, ino, &type));
	*g = st ? NULL : exp_down(c->view, c->exp, *ino);
	if (*g == &exp_unknown)
		return NFS4ERR_DELAY;
	if (c->wrongsec && (!*g || *g == c->exp)) {
		*g = c->exp;
		return NFS4ERR_WRONGSEC;
	}
	return st ? st : *g ? NFS4_OK : NFS4ERR_NOENT;
}

static nfsstat4 move_to(struct compound *c, uint64_t ino, const struct exp_grant *g)
{
	if (!op_enterable(c, g))
		return NFS4ERR_DELAY;
	if (!op_sec_ok(c, g)) {
		op_wrongsec_log(c, g);
		return NFS4ERR_WRONGSEC;
	}
	c->cur = ino;
	c->have_sid = c->wrongsec = false;
	op_enter(c, g);
	return NFS4_OK;
}

nfsstat4 op_lookup(struct compound *c)
{
	const struct exp_grant *g;
	const char *name;
	size_t len;
	uint64_t ino;
	nfsstat4 st = op_get_name(c->in, &name, &len);

	if (!st)
		st = lookup_in(c, name, len, &ino, &g);
	return st ? st : move_to(c, ino, g);
}

nfsstat4 op_lookupp(struct compound *c)
{
	const struct exp_grant *g;
	struct ns_inode d;
	nfsstat4 st = c->wrongsec ? op_cur_inode(c, &d) : dir_searchable(c, &d);

	if (st)
		return st;
	if (d.i_type != NS_DIR)
		return NFS4ERR_NOTDIR;
	if (c->cur == NS_ROOT_INO)
		return NFS4ERR_NOENT;
	g = exp_up(c->view, c->exp, c->cur, d.i_parent, c->m->m_ns, op_txn(c));
	return g ? move_to(c, d.i_parent, g) : NFS4ERR_STALE;
}

/* The ACCESS bits that are granted. In a directory EXTEND adds names, DELETE removes them, and
 * MODIFY needs both rights. */
static uint32_t access_bits(const struct ns_inode *i, const struct ns_cred *cr)
{
	bool dir = i->i_type == NS_DIR, adds;
	uint32_t have = 0;

	if (ns_access(i, cr, NS_R_READ) == 0)
		have |= NS_A_READ;
	if (ns_access(i, cr, NS_R_EXECUTE) == 0)
		have |= dir ? NS_A_LOOKUP : NS_A_EXECUTE;
	if (dir) {
		adds = ns_access(i, cr, NS_R_WRITE) == 0;
		have |= ns_access(i, cr, NS_R_DELETE_CHILD) == 0 ? NS_A_DELETE : 0;
		have |= adds || ns_access(i, cr, NS_R_APPEND) == 0 ? NS_A_EXTEND : 0;
		have |= adds && (have & NS_A_DELETE) ? NS_A_MODIFY : 0;
	} else if (ns_permission(i, cr, 2) == 0) {
		have |= NS_A_MODIFY | NS_A_EXTEND;
	}
	/* RFC 8276 section 8.5: XAREAD, XALIST, XAWRITE */
	if (ns_access(i, cr, NS_R_READ_XATTRS) == 0)
		have |= 0x140;
	if (ns_access(i, cr, NS_R_WRITE_XATTRS) == 0)
		have |= 0x80;
	return have;
}

nfsstat4 op_access(struct compound *c)
{
	uint32_t want = xdr_get_u32(c->in), have = 0;
	struct ns_inode i;
	bool dir;
	nfsstat4 st;

	if (c->in->bad)
		return NFS4ERR_BADXDR;
	/* RFC 8276 section 8.5: XAREAD, XAWRITE, XALIST */
	if (want & ~0x1ffu)
		return NFS4ERR_INVAL;
	st = op_cur_inode(c, &i);
	if (st)
		return st;
	dir = i.i_type == NS_DIR;
	have = access_bits(&i, &c->cred);
	if (c->exp->g_ro)
		have &= ~(uint32_t)(NS_A_MODIFY | NS_A_EXTEND | NS_A_DELETE | 0x80);
	if (c->minor < 2) /* the bits of RFC 8276 belong to minor version 2 */
		want &= 0x3f;
	xdr_put_u32(c->out,
		    want & ~(dir ? (uint32_t)NS_A_EXECUTE : (uint32_t)(NS_A_LOOKUP | NS_A_DELETE)));
	xdr_put_u32(c->out, want & have);
	return NFS4_OK;
}

nfsstat4 op_readlink(struct compound *c)
{
	struct ns_inode i;
	nfsstat4 st = op_cur_inode(c, &i);

	if (st)
		return st;
	if (i.i_type != NS_LNK)
		return NFS4ERR_WRONG_TYPE;
	rpc_put_item(c->call, c->out, i.i_blob.s_data, (uint32_t)i.i_blob.s_len);
	op_accessed(c, &i);
	return NFS4_OK;
}

/* ---- READDIR ---- */

struct readdir {
	struct compound *c;
	struct op_bitmap want;
	uint32_t maxcount, dircount;
	size_t start, dirbytes;
	unsigned n;
	bool failed;
	nfsstat4 status; /* not OK: an entry's attributes cannot be read, READDIR fails */
};

static void readdir_error(struct xdr_out *x, nfsstat4 st)
{
	static const struct op_bitmap only = {{1u << FATTR4_RDATTR_ERROR}};

	op_put_bitmap(x, &only);
	xdr_put_u32(x, 4);
	xdr_put_u32(x, st);
}

/* The attributes of an entry. Where another export's root covers it, they are that root's (RFC 8881
 * section 18.23.3). */
static nfsstat4 readdir_attrs(struct readdir *r, const struct ns_dirent *d,
			      const struct exp_grant *g)
{
	struct compound *c = r->c;
	const struct exp_grant *here = c->exp;
	struct ns_inode i;

	if (ns_get(c->m->m_ns, op_txn(c), d->d_ino, &i))
		return NFS4ERR_IO;
	if (!op_sec_ok(c, g) && op_bit(&r->want, FATTR4_RDATTR_ERROR))
		return NFS4ERR_WRONGSEC;
	if (exp_is_pseudo(g) || !op_sec_ok(c, g))
		op_pseudo_inode(c, &i);
	if (op_acl_readable(c, &r->want, &i))
		return NFS4ERR_ACCESS;
	c->exp = g; /* for fsid and file handle; the credential stays this directory's */
	op_put_attrs(c, c->out, &r->want, &i);
	c->exp = here;
	return NFS4_OK;
}

static int readdir_entry(void *arg, const struct ns_dirent *d)
{
	struct readdir *r = arg;
	struct xdr_out *x = r->c->out;
	size_t at = x->x_len, name = 4 + ((d->d_len + 3) & ~(size_t)3);
	const struct exp_grant *g = exp_down(r->c->view, r->c->exp, d->d_ino);
	nfsstat4 st;

	if (!g)
		return 0;
	if (g == &exp_unknown) { /* it is not known whether this client sees the entry */
		r->status = NFS4ERR_DELAY;
		return 1;
	}
	/* dircount is a hint: bytes of names and cookies (RFC 8881 section 18.23.3) */
	if (r->dircount && r->n && r->dirbytes + name + 8 > r->dircount)
		return 1;
	xdr_put_bool(x, true);
	xdr_put_u64(x, d->d_cookie);
	xdr_put_opaque(x, d->d_name, (uint32_t)d->d_len);
	st = readdir_attrs(r, d, g);
	/* Without rdattr_error the whole READDIR fails (section 18.23.3). */
	if (st && !op_bit(&r->want, FATTR4_RDATTR_ERROR)) {
		r->status = st;
		return 1;
	}
	if (st)
		readdir_error(x, st);
	/* There must be room for this entry, "no more entries" and eof. */
	if (x->bad || x->x_len - r->start + 8 > r->maxcount ||
	    x->x_len + x->x_payload + 8 > x->x_limit) {
		xdr_truncate(x, at);
		r->failed = true;
		return 1;
	}
	r->n++;
	r->dirbytes += name + 8;
	return 0;
}

nfsstat4 op_readdir(struct compound *c)
{
	uint64_t cookie = xdr_get_u64(c->in);
	struct readdir r = {.c = c};
	struct ns_inode d;
	nfsstat4 st;
	bool eof = false;
	int err;

	xdr_get_u64(c->in); /* cookie verifier: ignored, cookies never become invalid */
	r.dircount = xdr_get_u32(c->in);
	r.maxcount = xdr_get_u32(c->in);
	op_get_bitmap(c->in, &r.want, NULL);
	if (c->in->bad)
		return NFS4ERR_BADXDR;
	st = op_want_status(c, &r.want);
	if (st)
		return st;
	if (cookie == 1 || cookie == 2)
		return NFS4ERR_BAD_COOKIE;
	st = op_cur_inode(c, &d);
	if (st)
		return st;
	if (d.i_type != NS_DIR)
		return NFS4ERR_NOTDIR;
	st = op_status(ns_permission(&d, &c->cred, 4));
	if (st)
		return st;
	r.start = c->out->x_len;
	xdr_put_u64(c->out, 0);
	if (exp_is_pseudo(c->exp))
		err = exp_pseudo_readdir(c->view, c->cur, cookie, readdir_entry, &r, &eof);
	else
		err = ns_readdir(c->m->m_ns, op_txn(c), c->cur, cookie, readdir_entry, &r, &eof);
	if (err < 0)
		return op_status(err);
	if (r.status)
		return r.status;
	if (r.failed && r.n == 0)
		return NFS4ERR_TOOSMALL;
	xdr_put_bool(c->out, false);
	xdr_put_bool(c->out, eof);
	op_accessed(c, &d);
	return NFS4_OK;
}

/* ---- CREATE ---- */

struct create {
	struct ns_create_args a;
	struct ns_inode out;
	uint8_t blob[NS_BLOB_MAX];
	struct ns_cinfo ci;
	struct op_bitmap set;
};

static op_step create_done;

static nfsstat4 create_decode(struct compound *c, struct create *k)
{
	struct ns_inode *i = &k->a.a_attr;
	struct op_sattr sa;
	uint32_t type = xdr_get_u32(c->in), len;
	const uint8_t *link = NULL;
	nfsstat4 st, name_st;

	switch (type) {
	case NS_LNK:
		link = xdr_get_opaque(c->in, UINT32_MAX - 3, &len);
		if (c->in->bad)
			return NFS4ERR_BADXDR;
		i->i_blob = (struct kv_slice){link, len};
		break;
	case NS_BLK:
	case NS_CHR:
		i->i_rdev_major = xdr_get_u32(c->in);
		i->i_rdev_minor = xdr_get_u32(c->in);
		break;
	case NS_SOCK:
	case NS_FIFO:
	case NS_DIR:
		break;
	default:
		return NFS4ERR_BADTYPE;
	}
	name_st = op_get_name(c->in, &k->a.a_name, &k->a.a_len);
	if (name_st == NFS4ERR_BADXDR)
		return name_st;
	st = op_get_sattr(c, c->in, &sa, true);
	if (st || name_st)
		return st ? st : name_st;
	if (link && len == 0)
		return NFS4ERR_INVAL;
	if (link && len > NS_SYMLINK_MAX)
		return NFS4ERR_NAMETOOLONG;
	if (link && memchr(link, 0, len))
		return NFS4ERR_INVAL;
	if (sa.has_size || op_bit(&sa.set, FATTR4_LAYOUT_HINT))
		return NFS4ERR_INVAL;
	i->i_type = (uint8_t)type;
	k->set = sa.set;
	if (type == NS_LNK) /* a symlink has no mode of its own */
		k->set.w[1] &= ~(1u << (FATTR4_MODE % 32));
	/* As with POSIX mknod, only root makes devices. */
	if ((type == NS_BLK || type == NS_CHR) && c->cred.cr_uid)
		return NFS4ERR_PERM;
	return op_sattr_create(c, &sa, type == NS_LNK || type == NS_DIR ? 0777 : 0666, &k->a);
}

static int create_run(struct kv_op *op, struct kv_txn *t)
{
	struct compound *c = op_of(op);
	struct create *k = c->scratch;

	return ns_create(c->m->m_ns, t, &k->a, &k->out, k->blob, &k->ci);
}

static void create_put(struct compound *c, struct xdr_out *x, struct op_after *after)
{
	struct create *k = c->scratch;

	op_put_cinfo(x, &k->ci);
	op_put_bitmap(x, &k->set);
	after->cur = k->out.i_ino;
	after->have_sid = false;
}

nfsstat4 op_create(struct compound *c)
{
	struct create *k = op_scratch(c, sizeof(*k), NULL);
	nfsstat4 st;

	if (!k)
		return NFS4ERR_DELAY;
	st = create_decode(c, k);
	if (st)
		return st;
	if (!c->cur)
		return NFS4ERR_NOFILEHANDLE;
	k->a.a_dir = c->cur;
	k->a.a_cred = &c->cred;
	k->a.a_now = file_now();
	return op_mutate(c, create_run, create_put, create_done);
}

static nfsstat4 create_done(struct compound *c, int err)
{
	if (err)
		return op_status(err);
	metric_add(c->m->m_creates, 1);
	return op_result(c, create_put);
}

/* ---- LINK, REMOVE, RENAME ---- */

struct names {
	const char *name, *to;
	size_t len, tolen;
	struct ns_time now;
	struct file_free_ctx ctx;
	struct ns_free_ops fo;
	struct ns_inode gone;
	struct ns_cinfo ci, dci;
	bool pinned; /* the name leads to an export's root */
};

static op_step link_go, link_done, unlink_go, unlink_taken_back, remove_done, remove_fenced,
	rename_done;

nfsstat4 op_link(struct compound *c)
{
	struct names *k = op_scratch(c, sizeof(*k), NULL);
	struct ns_inode d;
	nfsstat4 st;

	if (!k)
		return NFS4ERR_DELAY;
	st = op_get_name(c->in, &k->name, &k->len);
	if (st)
		return st;
	if (!c->cur || !c->saved)
		return NFS4ERR_NOFILEHANDLE;
	k->now = file_now();
	/* A new name changes the change attribute and ctime: delegations on the file come back
	 * (section 10.4.4). Without permission the caller must not recall anything. */
	if (ns_get(c->m->m_ns, op_txn(c), c->cur, &d) || d.i_type != NS_DIR ||
	    ns_permission(&d, &c->cred, 3))
		return link_go(c, 0);
	if (op_deleg_grace(c, c->saved))
		return NFS4ERR_GRACE;
	return op_deleg_clear(c, &c->saved, 1, OPEN4_SHARE_ACCESS_WRITE, 0, link_go);
}

static int link_run(struct kv_op *op, struct kv_txn *t)
{
	struct compound *c = op_of(op);
	struct names *k = c->scratch;

	return ns_link(c->m->m_ns, t, c->saved, c->cur, k->name, k->len, &c->cred, k->now, &k->ci);
}

static void cinfo_put(struct compound *c, struct xdr_out *x, struct op_after *after)
{
	struct names *k = c->scratch;

	(void)after;
	op_put_cinfo(x, &k->ci);
}

static nfsstat4 link_go(struct compound *c, int err)
{
	(void)err;
	return op_mutate(c, link_run, cinfo_put, link_done);
}

static nfsstat4 link_done(struct compound *c, int err)
{
	if (err)
		return op_status(err);
	op_deleg_late(c, c->saved);
	return op_result(c, cinfo_put);
}

/* The regular file of a name. 0: there is none, or the caller may not remove the name. */
static uint64_t name_file(struct compound *c, uint64_t dir, const char *name, size_t len)
{
	struct ns_inode d, i;
	uint64_t ino;
	uint8_t type;

	if (ns_get(c->m->m_ns, op_txn(c), dir, &d) || d.i_type != NS_DIR ||
	    ns_permission(&d, &c->cred, 1))
		return 0;
	if (ns_lookup(c->m->m_ns, op_txn(c), dir, name, len, &ino, &type) || type != NS_REG ||
	    ns_get(c->m->m_ns, op_txn(c), ino, &i))
		return 0;
	return ns_may_unlink(&d, &i, &c->cred) ? 0 : ino;
}

/* Other clients' delegations on the files come back first (sections 18.25.4 and 18.26.4). */
static nfsstat4 unlink_start(struct compound *c)
{
	struct names *k = c->scratch;
	uint64_t file[2];

	if (!op_delegs_out(c))
		return unlink_go(c, 0);
	file[0] = name_file(c, c->opnum == OP_REMOVE ? c->cur : c->saved, k->name, k->len);
	file[1] = c->opnum == OP_REMOVE ? 0 : name_file(c, c->cur, k->to, k->tolen);
	return op_deleg_clear(c, file, 2, OPEN4_SHARE_ACCESS_WRITE, 0, unlink_go);
}

static nfsstat4 check_not_grace(struct compound *c)
{
	/* A client may still reclaim an open of the file. */
	return st_in_grace(c->m->m_st) ? NFS4ERR_GRACE : NFS4_OK;
}

nfsstat4 op_remove(struct compound *c)
{
	struct names *k = op_scratch(c, sizeof(*k), NULL);
	nfsstat4 st;

	if (!k)
		return NFS4ERR_DELAY;
	st = op_get_name(c->in, &k->name, &k->len);
	if (!st)
		st = c->cur ? check_not_grace(c) : NFS4ERR_NOFILEHANDLE;
	if (st)
		return st;
	k->now = file_now();
	file_free_ops(&k->ctx, &c->m->m_file, c->client, &k->fo);
	return unlink_start(c);
}

nfsstat4 op_rename(struct compound *c)
{
	struct names *k = op_scratch(c, sizeof(*k), NULL);
	nfsstat4 st, st2;

	if (!k)
		return NFS4ERR_DELAY;
	st = op_get_name(c->in, &k->name, &k->len);
	st2 = st == NFS4ERR_BADXDR ? st : op_get_name(c->in, &k->to, &k->tolen);
	if (st || st2)
		return st ? st : st2;
	if (!c->cur || !c->saved)
		return NFS4ERR_NOFILEHANDLE;
	st = check_not_grace(c);
	if (st)
		return st;
	k->now = file_now();
	file_free_ops(&k->ctx, &c->m->m_file, c->client, &k->fo);
	return unlink_start(c);
}

static bool is_open(struct compound *c, uint64_t ino)
{
	struct st *st = c->m->m_st;
	struct st_file *f;
	bool open;

	st_file_lock(st, ino);
	f = st_file_get(st, ino, false);
	open = f && f->f_opens;
	st_file_unlock(st, ino);
	return open;
}

/* Recalls other clients' layouts of the file that the name leads to; of one that goes to the trash
 * and that no client has open, all layouts. True: it has begun, and calls op_wake. */
static bool unlink_takes_back(struct compound *c, const char *name, size_t len)
{
	bool keeps =
		st_any_has(c->client, ST_N_LAYOUTS) && lo_trash_s(c->m->m_lo, op_txn(c), c->cur);
	struct ns_inode d, i;
	uint64_t ino;
	uint8_t type;

	/* Usually no other client has a layout: no lookup. Without permission to remove the name
	 * the caller must not recall anything. */
	if ((!keeps && !st_others_have(c->client, ST_N_LAYOUTS)) ||
	    ns_get(c->m->m_ns, op_txn(c), c->cur, &d) || d.i_type != NS_DIR ||
	    ns_permission(&d, &c->cred, 1))
		return false;
	if (ns_lookup(c->m->m_ns, op_txn(c), c->cur, name, len, &ino, &type) || type != NS_REG ||
	    ns_get(c->m->m_ns, op_txn(c), ino, &i) || i.i_nlink != 1 ||
	    ns_may_unlink(&d, &i, &c->cred))
		return false;
	return excl_recall_and_fence(&c->m->m_file, c->th->mt_loop, ino,
				     keeps && !is_open(c, ino) ? NULL : c->client, op_wake, c);
}

static nfsstat4 unlink_go(struct compound *c, int err)
{
	const struct names *k = c->scratch;
	bool removes = c->opnum == OP_REMOVE;

	(void)err;
	return unlink_takes_back(c, removes ? k->name : k->to, removes ? k->len : k->tolen)
		       ? op_await_client(c, unlink_taken_back)
		       : unlink_taken_back(c, 0);
}

/* On the committer thread: is the name an export's root, or a directory above one? */
static bool name_pinned(struct compound *c, struct kv_txn *t, uint64_t dir, const char *name,
			size_t len)
{
	uint64_t ino;
	uint8_t type;

	return export_set_has_pins(c->m->m_exports) &&
	       ns_lookup(c->m->m_ns, t, dir, name, len, &ino, &type) == 0 && type == NS_DIR &&
	       export_set_pinned(c->m->m_exports, ino);
}

/* What loses its last name in dir goes to the trash, where the policy says so. */
static void unlink_keeps(struct compound *c, struct kv_txn *t, uint64_t dir)
{
	struct names *k = c->scratch;

	/* On a store that is full, a removal must only free. */
	k->fo.f_keep_s = kv_low(c->m->m_kv) ? 0 : lo_trash_s(c->m->m_lo, t, dir);
	k->fo.f_uid = c->cred.cr_uid;
	k->ctx.ffc_kept = k->fo.f_keep_s != 0;
}

static int remove_run(struct kv_op *op, struct kv_txn *t)
{
	struct compound *c = op_of(op);
	struct names *k = c->scratch;
	int err;

	if (name_pinned(c, t, c->cur, k->name, k->len)) {
		k->pinned = true;
		return -EBUSY;
	}
	unlink_keeps(c, t, c->cur);
	err = ns_remove(c->m->m_ns, t, c->cur, k->name, k->len, 0, &c->cred, k->now, &k->fo,
			&k->gone, &k->ci);
	return err || !k->ctx.ffc_kept ? err : file_free_fence(&k->ctx, t);
}

static nfsstat4 remove_go(struct compound *c)
{
	return op_mutate(c, remove_run, cinfo_put, remove_done);
}

static int rename_run(struct kv_op *op, struct kv_txn *t)
{
	struct compound *c = op_of(op);
	struct names *k = c->scratch;
	int err;

	if (name_pinned(c, t, c->saved, k->name, k->len) ||
	    name_pinned(c, t, c->cur, k->to, k->tolen))
		return -EXDEV;
	err = job_revocation_stays(c->m, t, c->saved, c->cur);
	if (err)
		return err;
	unlink_keeps(c, t, c->cur);
	err = ns_rename(c->m->m_ns, t, c->saved, k->name, k->len, c->cur, k->to, k->tolen, &c->cred,
			k->now, &k->fo, &k->gone, &k->ci, &k->dci);
	return err || !k->ctx.ffc_kept ? err : file_free_fence(&k->ctx, t);
}

static void rename_put(struct compound *c, struct xdr_out *x, struct op_after *after)
{
	struct names *k = c->scratch;

	(void)after;
	op_put_cinfo(x, &k->ci);
	op_put_cinfo(x, &k->dci);
}

static nfsstat4 rename_go(struct compound *c)
{
	return op_mutate(c, rename_run, rename_put, rename_done);
}

/*
 * The last unlink recalls the other clients' layouts first (docs/fencing.md, "When"). A layout may
 * be granted after that, or the name may be another file's when the mutation commits. Then
 * file_free_done recalls the layouts, and nothing waits for that. What goes to the trash is fenced
 * by the mutation itself, and remove_fenced waits for that.
 */
static nfsstat4 unlink_taken_back(struct compound *c, int err)
{
	/* A data server that does not confirm deletes the object later, and then needs no fence. */
	(void)err;
	return c->opnum == OP_REMOVE ? remove_go(c) : rename_go(c);
}

/* Data servers have fenced what went to the trash, or do it later. */
static nfsstat4 remove_fenced(struct compound *c, int err)
{
	(void)err;
	return op_result(c, c->opnum == OP_REMOVE ? cinfo_put : rename_put);
}

static nfsstat4 remove_done(struct compound *c, int err)
{
	struct names *k = c->scratch;

	file_free_done(&k->ctx, err);
	if (err)
		return k->pinned ? NFS4ERR_FILE_OPEN : op_status(err);
	op_deleg_late(c, k->gone.i_ino);
	return op_free_waits(c, &k->ctx) ? op_await(c, remove_fenced) : remove_fenced(c, 0);
}

static nfsstat4 rename_done(struct compound *c, int err)
{
	struct names *k = c->scratch;

	file_free_done(&k->ctx, err);
	if (err == -EISDIR || err == -ENOTDIR || err == -ENOTEMPTY) {
		/* RFC 8881 section 18.26.3: EXIST for a target of another type, or one that is not
		 * empty. NOTDIR where a parent is no directory. */
		struct ns_inode d;

		if (err == -ENOTDIR &&
		    ((ns_get(c->m->m_ns, op_txn(c), c->saved, &d) == 0 && d.i_type != NS_DIR) ||
		     (ns_get(c->m->m_ns, op_txn(c), c->cur, &d) == 0 && d.i_type != NS_DIR)))
			return NFS4ERR_NOTDIR;
		return NFS4ERR_EXIST;
	}
	if (err)
		return op_status(err);
	if (op_delegs_out(c)) {
		op_deleg_late(c, k->gone.i_ino);
		op_deleg_late(c, name_file(c, c->cur, k->to, k->tolen));
	}
	return op_free_waits(c, &k->ctx) ? op_await(c, remove_fenced) : remove_fenced(c, 0);
}

/* ---- security information ---- */

/* The exports file may name Kerberos flavours although the server has no keys. */
static unsigned without_krb5(uint8_t *secs, unsigned n)
{
	unsigned left = 0;

	for (unsigned i = 0; i < n; i++) {
		if (secs[i] <= EXP_SYS)
			secs[left++] = secs[i];
	}
	return left;
}

/* Answers with the flavours that the export offers over this connection. */
static nfsstat4 secinfo_reply(struct compound *c, const struct exp_grant *g)
{
	/* RFC 7861: without tag and length */
	static const uint8_t krb5[] = {0x2a, 0x86, 0x48, 0x86, 0xf7, 0x12, 0x01, 0x02, 0x02};
	uint8_t secs[EXP_SECS];
	unsigned n;

	if (g == &exp_unknown || (exp_is_pseudo(g) && c->view->v_unknown))
		return NFS4ERR_DELAY;
	n = exp_secs(c->view, g, secs);
	if (!c->m->m_krb5)
		n = without_krb5(secs, n);
	xdr_put_u32(c->out, n);
	for (unsigned i = 0; i < n; i++) {
		if (secs[i] <= EXP_SYS) {
			xdr_put_u32(c->out, secs[i] == EXP_SYS ? RPC_AUTH_SYS : RPC_AUTH_NONE);
			continue;
		}
		xdr_put_u32(c->out, RPC_AUTH_GSS);
		xdr_put_opaque(c->out, krb5, sizeof(krb5));
		xdr_put_u32(c->out, 0); /* the default quality of protection */
		xdr_put_u32(c->out, secs[i] - EXP_KRB5 + 1u);
	}
	c->cur = 0; /* the operation consumes it (RFC 8881 section 2.6.3.1.1.8) */
	c->have_sid = false;
	return NFS4_OK;
}

nfsstat4 op_secinfo(struct compound *c)
{
	const struct exp_grant *g;
	const char *name;
	size_t len;
	uint64_t ino;
	nfsstat4 st = op_get_name(c->in, &name, &len);

	if (!st)
		st = lookup_in(c, name, len, &ino, &g);
	/* Where LOOKUP answers WRONGSEC, SECINFO lists the right flavours (RFC 8881 section
	 * 2.6.3.1.1.5). */
	return st && st != NFS4ERR_WRONGSEC ? st : secinfo_reply(c, g);
}

nfsstat4 op_secinfo_no_name(struct compound *c)
{
	uint32_t style = xdr_get_u32(c->in);
	const struct exp_grant *g;
	struct ns_inode i;
	nfsstat4 st;

	if (c->in->bad || style > 1)
		return NFS4ERR_BADXDR;
	st = op_cur_inode(c, &i);
	if (st)
		return st;
	if (style == 0)
		return secinfo_reply(c, c->exp);
	if (c->cur == NS_ROOT_INO)
		return NFS4ERR_NOENT;
	if (i.i_type != NS_DIR)
		return NFS4ERR_NOTDIR;
	g = exp_up(c->view, c->exp, c->cur, i.i_parent, c->m->m_ns, op_txn(c));
	return g ? secinfo_reply(c, g) : NFS4ERR_STALE;
}
