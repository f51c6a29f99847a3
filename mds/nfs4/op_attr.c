/* SPDX-License-Identifier: Apache-2.0 */
/*
 * op_attr.c - attributes on the wire (RFC 8881 chapter 5, RFC 7862 section 12, RFC 8276 section
 * 8.2).
 *
 *	op_getattr		asks the holder of a write delegation (op_deleg_ask), else the data
 *				servers
 *	getattr_asked		it has answered: asks the data servers
 *	getattr_reply		the answer
 *
 *	op_verify, op_nverify	the same
 *	verify_asked		asks the data servers
 *	verify_fresh		compares
 */
#include "mds/jobs/access_times.h"
#include "mds/nfs4/state_protect.h"
#include "mds/nfs4/credentials.h"
#include "mds/nfs4/op_attr.h"
#include "mds/nfs4/op_state.h"

#define BIT0(n) (1u << (n))
#define BIT1(n) (1u << ((n)-32))
#define BIT2(n) (1u << ((n)-64))

/* Every attribute in this table is encoded below. */
static const struct op_bitmap supported = {{
	BIT0(FATTR4_SUPPORTED_ATTRS) | BIT0(FATTR4_TYPE) | BIT0(FATTR4_FH_EXPIRE_TYPE) |
		BIT0(FATTR4_CHANGE) | BIT0(FATTR4_SIZE) | BIT0(FATTR4_LINK_SUPPORT) |
		BIT0(FATTR4_SYMLINK_SUPPORT) | BIT0(FATTR4_NAMED_ATTR) | BIT0(FATTR4_FSID) |
		BIT0(FATTR4_UNIQUE_HANDLES) | BIT0(FATTR4_LEASE_TIME) | BIT0(FATTR4_RDATTR_ERROR) |
		BIT0(FATTR4_ACL) | BIT0(FATTR4_ACLSUPPORT) | BIT0(FATTR4_CANSETTIME) |
		BIT0(FATTR4_CASE_INSENSITIVE) | BIT0(FATTR4_CASE_PRESERVING) |
		BIT0(FATTR4_CHOWN_RESTRICTED) | BIT0(FATTR4_FILEHANDLE) | BIT0(FATTR4_FILEID) |
		BIT0(FATTR4_FILES_AVAIL) | BIT0(FATTR4_FILES_FREE) | BIT0(FATTR4_FILES_TOTAL) |
		BIT0(FATTR4_HOMOGENEOUS) | BIT0(FATTR4_MAXFILESIZE) | BIT0(FATTR4_MAXLINK) |
		BIT0(FATTR4_MAXNAME) | BIT0(FATTR4_MAXREAD) | BIT0(FATTR4_MAXWRITE),
	BIT1(FATTR4_MODE) | BIT1(FATTR4_NO_TRUNC) | BIT1(FATTR4_NUMLINKS) | BIT1(FATTR4_OWNER) |
		BIT1(FATTR4_OWNER_GROUP) | BIT1(FATTR4_RAWDEV) | BIT1(FATTR4_SPACE_AVAIL) |
		BIT1(FATTR4_SPACE_FREE) | BIT1(FATTR4_SPACE_TOTAL) | BIT1(FATTR4_SPACE_USED) |
		BIT1(FATTR4_TIME_ACCESS) | BIT1(FATTR4_TIME_ACCESS_SET) | BIT1(FATTR4_TIME_CREATE) |
		BIT1(FATTR4_TIME_DELTA) | BIT1(FATTR4_TIME_METADATA) | BIT1(FATTR4_TIME_MODIFY) |
		BIT1(FATTR4_TIME_MODIFY_SET) | BIT1(FATTR4_MOUNTED_ON_FILEID) | BIT1(FATTR4_DACL) |
		BIT1(FATTR4_FS_LAYOUT_TYPES) | BIT1(FATTR4_LAYOUT_HINT),
	BIT2(FATTR4_LAYOUT_TYPES) | BIT2(FATTR4_LAYOUT_BLKSIZE) | BIT2(FATTR4_MDSTHRESHOLD) |
		BIT2(FATTR4_LAYOUT_ALIGNMENT) | BIT2(FATTR4_MODE_SET_MASKED) |
		BIT2(FATTR4_SUPPATTR_EXCLCREAT) | BIT2(FATTR4_FS_CHARSET_CAP) |
		BIT2(FATTR4_SPACE_FREED) | BIT2(FATTR4_CHANGE_ATTR_TYPE) | BIT2(FATTR4_MODE_UMASK) |
		BIT2(FATTR4_XATTR_SUPPORT) | BIT2(FATTR4_TIME_DELEG_ACCESS) |
		BIT2(FATTR4_TIME_DELEG_MODIFY) | BIT2(FATTR4_OPEN_ARGUMENTS),
}};

#define DELEG_TIMES (BIT2(FATTR4_TIME_DELEG_ACCESS) | BIT2(FATTR4_TIME_DELEG_MODIFY))

/* 4.2 added these (RFC 7862, RFC 8275, RFC 8276, RFC 9754). */
#define MINOR2_WORD2                                                                               \
	(BIT2(FATTR4_CLONE_BLKSIZE) | BIT2(FATTR4_SPACE_FREED) | BIT2(FATTR4_CHANGE_ATTR_TYPE) |   \
	 BIT2(FATTR4_MODE_UMASK) | BIT2(FATTR4_XATTR_SUPPORT) | DELEG_TIMES |                      \
	 BIT2(FATTR4_OPEN_ARGUMENTS))

#define CREATE_WORD0 (BIT0(FATTR4_SIZE) | BIT0(FATTR4_ACL))
#define CREATE_WORD1                                                                               \
	(BIT1(FATTR4_MODE) | BIT1(FATTR4_OWNER) | BIT1(FATTR4_OWNER_GROUP) |                       \
	 BIT1(FATTR4_TIME_ACCESS_SET) | BIT1(FATTR4_TIME_CREATE) | BIT1(FATTR4_TIME_MODIFY_SET) |  \
	 BIT1(FATTR4_DACL) | BIT1(FATTR4_LAYOUT_HINT))
static const struct op_bitmap settable = {
	{CREATE_WORD0, CREATE_WORD1,
	 BIT2(FATTR4_MODE_SET_MASKED) | BIT2(FATTR4_MODE_UMASK) | DELEG_TIMES}};
/* Attributes that cannot be read (RFC 8881 section 18.7.3). */
static const struct op_bitmap write_only = {
	{0, BIT1(FATTR4_TIME_ACCESS_SET) | BIT1(FATTR4_TIME_MODIFY_SET) | BIT1(FATTR4_LAYOUT_HINT),
	 BIT2(FATTR4_MODE_SET_MASKED) | BIT2(FATTR4_MODE_UMASK) | DELEG_TIMES}};
/* All that CREATE may set: the verifier has a place of its own in the inode. */
const struct op_bitmap op_attrs_exclcreat = {{CREATE_WORD0, CREATE_WORD1, BIT2(FATTR4_MODE_UMASK)}};

static struct op_bitmap supported_for(const struct compound *c)
{
	struct op_bitmap b = supported;

	/* RFC 7862 section 4.1.2: only where CLONE works. */
	if (ds_reg_clone_block(c->m->m_dsc))
		b.w[2] |= BIT2(FATTR4_CLONE_BLKSIZE);
	if (c->minor < 2)
		b.w[2] &= ~MINOR2_WORD2;
	if (!c->m->m_deleg_times)
		b.w[2] &= ~DELEG_TIMES;
	return b;
}

nfsstat4 op_want_status(const struct compound *c, const struct op_bitmap *want)
{
	struct op_bitmap sup = supported_for(c);

	for (unsigned w = 0; w < NFS4_ATTRS_WORDS; w++) {
		if (want->w[w] & write_only.w[w] & sup.w[w])
			return NFS4ERR_INVAL;
	}
	return NFS4_OK;
}

void op_get_bitmap(struct xdr_in *x, struct op_bitmap *b, bool *extra)
{
	uint32_t n = xdr_get_u32(x);

	*b = (struct op_bitmap){{0}};
	if (extra)
		*extra = false;
	if (n > xdr_left(x) / 4) {
		x->bad = true;
		return;
	}
	for (uint32_t i = 0; i < n; i++) {
		uint32_t w = xdr_get_u32(x);

		if (i < NFS4_ATTRS_WORDS)
			b->w[i] = w;
		else if (w && extra)
			*extra = true;
	}
}

void op_put_bitmap(struct xdr_out *x, const struct op_bitmap *b)
{
	uint32_t n = b->w[2] ? 3 : b->w[1] ? 2 : b->w[0] ? 1 : 0;

	xdr_put_u32(x, n);
	for (uint32_t i = 0; i < n; i++)
		xdr_put_u32(x, b->w[i]);
}

bool op_attrs_need_ds(const struct op_bitmap *b)
{
	return op_bit(b, FATTR4_SIZE) || op_bit(b, FATTR4_CHANGE) || op_bit(b, FATTR4_SPACE_USED) ||
	       op_bit(b, FATTR4_TIME_MODIFY) || op_bit(b, FATTR4_TIME_METADATA);
}

static void op_attr_put_time(struct xdr_out *x, const struct ns_time *t)
{
	xdr_put_u64(x, (uint64_t)t->t_sec);
	xdr_put_u32(x, t->t_nsec);
}

void op_space(struct mds *m, uint64_t *total, uint64_t *avail)
{
	unsigned n = ds_reg_count(m->m_dsc);
	struct ds_reg_server *sv = n ? calloc(n, sizeof(*sv)) : NULL;

	*total = *avail = 0;
	if (!sv)
		return;
	n = ds_reg_list(m->m_dsc, sv, n);
	for (unsigned i = 0; i < n; i++) {
		if (sv[i].sv_alive) {
			*total += sv[i].sv_capacity;
			*avail += sv[i].sv_available;
		}
	}
	free(sv);
}

static void put_word(struct xdr_out *x, uint32_t w)
{
	xdr_put_u32(x, 1);
	xdr_put_u32(x, w);
}

/* What OPEN supports (RFC 9754 section 3). The values are bit numbers. */
static void put_open_arguments(const struct compound *c, struct xdr_out *x)
{
	/* any, no, cancel: their RFC 8881 values, shifted right by eight bits */
	uint32_t want = 1u << 3 | 1u << 4 | 1u << 5 | OPEN4_SHARE_ACCESS_WANT_OPEN_XOR_DELEGATION;

	if (c->m->m_deleg_times)
		want |= OPEN4_SHARE_ACCESS_WANT_DELEG_TIMESTAMPS;
	put_word(x, 1u << OPEN4_SHARE_ACCESS_READ | 1u << OPEN4_SHARE_ACCESS_WRITE |
			    1u << OPEN4_SHARE_ACCESS_BOTH);
	put_word(x, 0xf); /* none, read, write, both */
	put_word(x, want);
	put_word(x, 1u << CLAIM_NULL | 1u << CLAIM_PREVIOUS | 1u << CLAIM_DELEGATE_CUR |
			    1u << CLAIM_FH | 1u << CLAIM_DELEG_CUR_FH);
	put_word(x, 1u << UNCHECKED4 | 1u << GUARDED4 | 1u << EXCLUSIVE4_1);
}

/* mdsthreshold (RFC 8881 section 5.12.6): clients had better read and write files below this many
 * bytes through the metadata server. 0: no threshold. */
static void put_threshold(struct xdr_out *x, uint64_t bytes)
{
	xdr_put_u32(x, bytes != 0);
	if (!bytes)
		return;
	xdr_put_u32(x, LAYOUT4_FLEX_FILES);
	put_word(x, 1u << TH4_READ_SIZE | 1u << TH4_WRITE_SIZE);
	xdr_put_u32(x, 16);
	xdr_put_u64(x, bytes);
	xdr_put_u64(x, bytes);
}

/* Looks the policy's threshold up once for all entries of a directory. */
static uint64_t threshold(struct compound *c, const struct ns_inode *i)
{
	if (c->threshold_dir != i->i_parent)
		c->threshold = lo_threshold(c->m->m_lo, op_txn(c), i);
	c->threshold_dir = i->i_parent;
	return c->threshold;
}

/* Attributes of the file system, not of the inode. */
struct fs_facts {
	uint64_t total, avail, inodes;
};

static void fs_facts(struct compound *c, const struct op_bitmap *b, struct fs_facts *f)
{
	struct ns_counts n = {0};

	*f = (struct fs_facts){0};
	if (op_bit(b, FATTR4_SPACE_AVAIL) || op_bit(b, FATTR4_SPACE_FREE) ||
	    op_bit(b, FATTR4_SPACE_TOTAL))
		op_space(c->m, &f->total, &f->avail);
	if (op_bit(b, FATTR4_FILES_AVAIL) || op_bit(b, FATTR4_FILES_FREE) ||
	    op_bit(b, FATTR4_FILES_TOTAL)) {
		ns_counts(c->m->m_ns, op_txn(c), &n);
		f->inodes = n.nct_inodes;
	}
}

#define FILES_LIMIT (1ull << 48)

static void put_word0(struct compound *c, struct xdr_out *x, unsigned n, const struct ns_inode *i,
		      const struct fs_facts *f)
{
	const struct ns_super *su = ns_super(c->m->m_ns);
	struct op_bitmap b;
	uint8_t fh[OP_FH_LEN];
	uint64_t id;

	switch (n) {
	case FATTR4_SUPPORTED_ATTRS:
		b = supported_for(c);
		op_put_bitmap(x, &b);
		break;
	case FATTR4_TYPE:
		xdr_put_u32(x, i->i_type);
		break;
	case FATTR4_FH_EXPIRE_TYPE:
		xdr_put_u32(x, 0);
		break; /* FH4_PERSISTENT */
	case FATTR4_CHANGE:
		xdr_put_u64(x, i->i_change);
		break;
	case FATTR4_SIZE:
		xdr_put_u64(x, c->told_ino == i->i_ino ? c->told_size : i->i_size);
		break;
	case FATTR4_LINK_SUPPORT:
	case FATTR4_SYMLINK_SUPPORT:
	case FATTR4_UNIQUE_HANDLES:
	case FATTR4_CANSETTIME:
	case FATTR4_CASE_PRESERVING:
	case FATTR4_CHOWN_RESTRICTED:
	case FATTR4_HOMOGENEOUS:
		xdr_put_bool(x, true);
		break;
	case FATTR4_NAMED_ATTR:
	case FATTR4_CASE_INSENSITIVE:
		xdr_put_bool(x, false);
		break;
	case FATTR4_FSID:
		memcpy(&id, su->su_uuid, 8);
		xdr_put_u64(x, id & INT64_MAX);
		/* Each export is a file system of its own (docs/security.md). */
		xdr_put_u64(x, (uint64_t)op_export(c) << 16 | su->su_fs);
		break;
	case FATTR4_LEASE_TIME:
		xdr_put_u32(x, (c->m->m_lease_ms + 999) / 1000);
		break;
	case FATTR4_RDATTR_ERROR:
		xdr_put_u32(x, NFS4_OK);
		break;
	case FATTR4_ACL:
		op_put_acl(c, x, i, false);
		break;
	case FATTR4_ACLSUPPORT:
		xdr_put_u32(x, ACL4_SUPPORT_ALLOW_ACL | ACL4_SUPPORT_DENY_ACL);
		break;
	case FATTR4_FILEHANDLE:
		op_fh_make(c->m, op_export(c), i->i_ino, fh);
		xdr_put_opaque(x, fh, sizeof(fh));
		break;
	case FATTR4_FILEID:
		xdr_put_u64(x, i->i_ino);
		break;
	case FATTR4_FILES_AVAIL:
	case FATTR4_FILES_FREE:
		xdr_put_u64(x, FILES_LIMIT - f->inodes);
		break;
	case FATTR4_FILES_TOTAL:
		xdr_put_u64(x, FILES_LIMIT);
		break;
	case FATTR4_MAXFILESIZE:
		xdr_put_u64(x, OP_MAX_FILE);
		break;
	case FATTR4_MAXLINK:
		xdr_put_u32(x, NS_LINK_MAX);
		break;
	case FATTR4_MAXNAME:
		xdr_put_u32(x, NS_NAME_MAX);
		break;
	case FATTR4_MAXREAD:
	case FATTR4_MAXWRITE:
		xdr_put_u64(x, OP_MAX_IO);
		break;
	}
}

static uint64_t space_used(const struct ns_inode *i)
{
	return i->i_type == NS_REG && i->i_used == 0 ? i->i_size : i->i_used;
}

static void put_layout_types(struct xdr_out *x, bool any)
{
	xdr_put_u32(x, any);
	if (any)
		xdr_put_u32(x, LAYOUT4_FLEX_FILES);
}

static void put_words12(struct compound *c, struct xdr_out *x, unsigned n, const struct ns_inode *i,
			const struct fs_facts *f)
{
	switch (n) {
	case FATTR4_MODE:
		xdr_put_u32(x, i->i_mode);
		break;
	case FATTR4_NO_TRUNC:
		xdr_put_bool(x, true);
		break;
	case FATTR4_NUMLINKS:
		xdr_put_u32(x, i->i_nlink);
		break;
	case FATTR4_OWNER:
		op_put_who(c, x, i->i_uid, false);
		break;
	case FATTR4_OWNER_GROUP:
		op_put_who(c, x, i->i_gid, true);
		break;
	case FATTR4_RAWDEV:
		xdr_put_u32(x, i->i_rdev_major);
		xdr_put_u32(x, i->i_rdev_minor);
		break;
	case FATTR4_SPACE_AVAIL:
	case FATTR4_SPACE_FREE:
		xdr_put_u64(x, f->avail);
		break;
	case FATTR4_SPACE_TOTAL:
		xdr_put_u64(x, f->total);
		break;
	case FATTR4_SPACE_USED:
		xdr_put_u64(x, space_used(i));
		break;
	case FATTR4_SPACE_FREED:
		xdr_put_u64(x, i->i_type == NS_DIR || i->i_nlink <= 1 ? space_used(i) : 0);
		break;
	case FATTR4_DACL:
		op_put_acl(c, x, i, true);
		break;
	case FATTR4_TIME_ACCESS:
		op_attr_put_time(x, &i->i_atime);
		break;
	case FATTR4_TIME_CREATE:
		op_attr_put_time(x, &i->i_btime);
		break;
	case FATTR4_TIME_DELTA:
		xdr_put_u64(x, 0);
		xdr_put_u32(x, 1);
		break;
	case FATTR4_TIME_METADATA:
		op_attr_put_time(x, &i->i_ctime);
		break;
	case FATTR4_TIME_MODIFY:
		op_attr_put_time(x, &i->i_mtime);
		break;
	case FATTR4_MOUNTED_ON_FILEID:
		xdr_put_u64(x, i->i_ino);
		break;
	case FATTR4_FS_LAYOUT_TYPES:
		put_layout_types(x, op_layouts_ok(c));
		break;
	case FATTR4_LAYOUT_TYPES:
		put_layout_types(x, i->i_type == NS_REG && op_layouts_ok(c));
		break;
	case FATTR4_MDSTHRESHOLD:
		put_threshold(x, i->i_type == NS_REG ? threshold(c, i) : 0);
		break;
	case FATTR4_CLONE_BLKSIZE:
		xdr_put_u32(x, ds_reg_clone_block(c->m->m_dsc));
		break;
	case FATTR4_LAYOUT_BLKSIZE:
	case FATTR4_LAYOUT_ALIGNMENT:
		xdr_put_u32(x, LO_UNIT_MIN);
		break;
	case FATTR4_FS_CHARSET_CAP:
		xdr_put_u32(x, FSCHARSET_CAP4_CONTAINS_NON_UTF8);
		break; /* names are bytes */
	case FATTR4_SUPPATTR_EXCLCREAT: {
		struct op_bitmap b = op_attrs_exclcreat;

		if (c->minor < 2)
			b.w[2] &= ~MINOR2_WORD2;
		op_put_bitmap(x, &b);
		break;
	}
	case FATTR4_CHANGE_ATTR_TYPE:
		xdr_put_u32(x, NFS4_CHANGE_TYPE_IS_MONOTONIC_INCR);
		break;
	case FATTR4_XATTR_SUPPORT:
		xdr_put_bool(x, true);
		break;
	case FATTR4_OPEN_ARGUMENTS:
		put_open_arguments(c, x);
		break;
	}
}

/* Leaves out set-only attributes: RFC 8881 section 5.6 lets a GETATTR of those fail, and op_getattr
 * does so. */
void op_put_attrs(struct compound *c, struct xdr_out *x, const struct op_bitmap *want,
		  const struct ns_inode *i)
{
	struct op_bitmap sup = supported_for(c), b;
	struct fs_facts f;
	size_t at;

	for (unsigned w = 0; w < NFS4_ATTRS_WORDS; w++)
		b.w[w] = want->w[w] & sup.w[w] & ~write_only.w[w];
	fs_facts(c, &b, &f);
	op_put_bitmap(x, &b);
	at = x->x_len;
	xdr_put_u32(x, 0);
	for (unsigned w = 0; w < NFS4_ATTRS_WORDS; w++) {
		for (uint32_t left = b.w[w]; left; left &= left - 1) {
			unsigned n = w * 32 + (unsigned)__builtin_ctz(left);

			if (w == 0)
				put_word0(c, x, n, i, &f);
			else
				put_words12(c, x, n, i, &f);
		}
	}
	if (!x->bad)
		xdr_patch_u32(x, at, (uint32_t)(x->x_len - at - 4));
}

/* ---- settable ---- */

static nfsstat4 get_id(struct compound *c, struct xdr_in *x, bool group, uint32_t *id)
{
	uint32_t len;
	const uint8_t *p = xdr_get_opaque(x, NFS4_OPAQUE_LIMIT, &len);

	return p ? op_get_who(c, p, len, group, id) : NFS4ERR_BADXDR;
}

static nfsstat4 get_settime(struct xdr_in *x, struct ns_time *t, bool *now)
{
	uint32_t how = xdr_get_u32(x);

	if (how > SET_TO_CLIENT_TIME4)
		x->bad = true;
	*now = how == SET_TO_SERVER_TIME4;
	if (!*now) {
		t->t_sec = (int64_t)xdr_get_u64(x);
		t->t_nsec = xdr_get_u32(x);
		if (!x->bad && t->t_nsec >= 1000000000)
			return NFS4ERR_INVAL;
	}
	return x->bad ? NFS4ERR_BADXDR : NFS4_OK;
}

/* mode, mode_set_masked (RFC 8881 section 6.2.5), mode_umask (RFC 8275, at create only). */
static nfsstat4 get_mode(struct xdr_in *x, unsigned n, struct op_sattr *a)
{
	uint32_t mode = xdr_get_u32(x), mask = n == FATTR4_MODE ? 07777 : xdr_get_u32(x);

	if (x->bad)
		return NFS4ERR_BADXDR;
	if (mode & ~07777u || mask & ~(n == FATTR4_MODE_UMASK ? 0777u : 07777u))
		return NFS4ERR_INVAL;
	a->s.s_mask |= NS_S_MODE;
	a->s.s_mode = (uint16_t)mode;
	if (n == FATTR4_MODE_UMASK) {
		a->has_umask = true;
		a->umask = (uint16_t)mask;
	} else {
		a->s.s_mode_keep = (uint16_t)(~mask & 07777);
	}
	return NFS4_OK;
}

static nfsstat4 get_acl(struct compound *c, struct xdr_in *x, bool dacl, struct ns_setattr *s)
{
	struct ns_acl *acl = NULL;
	nfsstat4 st = op_get_acl(c, x, dacl, &acl);

	s->s_acl = acl;
	s->s_mask |= NS_S_ACL;
	return st;
}

/* RFC 9754 section 5. */
static nfsstat4 get_deleg_time(struct xdr_in *x, struct ns_time *t)
{
	t->t_sec = (int64_t)xdr_get_u64(x);
	t->t_nsec = xdr_get_u32(x);
	return x->bad ? NFS4ERR_BADXDR : t->t_nsec >= 1000000000 ? NFS4ERR_INVAL : NFS4_OK;
}

static nfsstat4 get_btime(struct xdr_in *x, struct ns_setattr *s)
{
	s->s_btime.t_sec = (int64_t)xdr_get_u64(x);
	s->s_btime.t_nsec = xdr_get_u32(x);
	s->s_mask |= NS_S_BTIME;
	return !x->bad && s->s_btime.t_nsec >= 1000000000 ? NFS4ERR_INVAL : NFS4_OK;
}

/* ff_layouthint4 (RFC 8435 section 12.1). Ignores the hints of other layout types. */
static nfsstat4 get_hint(struct xdr_in *x, struct op_sattr *a)
{
	uint32_t type = xdr_get_u32(x), len;
	const uint8_t *p = xdr_get_opaque(x, UINT32_MAX - 3, &len);
	struct xdr_in body;

	if (x->bad)
		return NFS4ERR_BADXDR;
	if (type != LAYOUT4_FLEX_FILES)
		return NFS4_OK;
	xdr_in_init(&body, p, len);
	a->mirrors = xdr_get_bool(&body) ? xdr_get_u32(&body) : 0;
	return body.bad || xdr_left(&body) ? NFS4ERR_BADXDR : NFS4_OK;
}

static nfsstat4 get_one(struct compound *c, struct xdr_in *x, unsigned n, struct op_sattr *a)
{
	struct ns_setattr *s = &a->s;
	nfsstat4 st = NFS4_OK;
	bool now;

	switch (n) {
	case FATTR4_SIZE:
		s->s_size = xdr_get_u64(x);
		s->s_mask |= NS_S_SIZE;
		a->has_size = true;
		if (!x->bad && s->s_size > OP_MAX_FILE)
			return NFS4ERR_FBIG;
		break;
	case FATTR4_MODE:
	case FATTR4_MODE_SET_MASKED:
	case FATTR4_MODE_UMASK:
		st = get_mode(x, n, a);
		break;
	case FATTR4_ACL:
	case FATTR4_DACL:
		st = get_acl(c, x, n == FATTR4_DACL, s);
		break;
	case FATTR4_OWNER:
		st = get_id(c, x, false, &s->s_uid);
		s->s_mask |= NS_S_UID;
		break;
	case FATTR4_OWNER_GROUP:
		st = get_id(c, x, true, &s->s_gid);
		s->s_mask |= NS_S_GID;
		break;
	case FATTR4_LAYOUT_HINT:
		st = get_hint(x, a);
		break;
	case FATTR4_TIME_CREATE:
		st = get_btime(x, s);
		break;
	case FATTR4_TIME_ACCESS_SET:
		st = get_settime(x, &s->s_atime, &now);
		s->s_mask |= now ? NS_S_ATIME_NOW : NS_S_ATIME;
		break;
	case FATTR4_TIME_MODIFY_SET:
		st = get_settime(x, &s->s_mtime, &now);
		s->s_mask |= now ? NS_S_MTIME_NOW : NS_S_MTIME;
		break;
	case FATTR4_TIME_DELEG_ACCESS:
		s->s_mask |= NS_S_ATIME;
		return get_deleg_time(x, &s->s_atime);
	case FATTR4_TIME_DELEG_MODIFY:
		s->s_mask |= NS_S_MTIME;
		return get_deleg_time(x, &s->s_mtime);
	}
	return st ? st : x->bad ? NFS4ERR_BADXDR : NFS4_OK;
}

/* At most one attribute may set the mode. At create it must set all of the mode (RFC 8881 section
 * 6.2.5, RFC 8275). */
static bool modes_clash(const struct op_bitmap *b, bool create)
{
	bool mode = op_bit(b, FATTR4_MODE), masked = op_bit(b, FATTR4_MODE_SET_MASKED),
	     umask = op_bit(b, FATTR4_MODE_UMASK);

	return mode + masked + umask > 1 || (create ? masked : umask);
}

nfsstat4 op_get_sattr(struct compound *c, struct xdr_in *x, struct op_sattr *a, bool create)
{
	struct op_bitmap b, sup = supported_for(c);
	struct xdr_in body;
	uint32_t len;
	const uint8_t *p;
	bool extra;

	memset(a, 0, sizeof(*a));
	free(c->acl); /* when the operation runs again from its arguments */
	c->acl = NULL;
	op_get_bitmap(x, &b, &extra);
	p = xdr_get_opaque(x, UINT32_MAX - 3, &len);
	if (x->bad)
		return NFS4ERR_BADXDR;
	if (extra)
		return NFS4ERR_ATTRNOTSUPP;
	for (unsigned w = 0; w < NFS4_ATTRS_WORDS; w++) {
		if (b.w[w] & ~sup.w[w])
			return NFS4ERR_ATTRNOTSUPP;
		if (b.w[w] & ~settable.w[w])
			return NFS4ERR_INVAL;
	}
	if (modes_clash(&b, create) || (!create && op_bit(&b, FATTR4_LAYOUT_HINT)))
		return NFS4ERR_INVAL;
	a->deleg_times = b.w[2] & DELEG_TIMES;
	if (a->deleg_times && (create || b.w[0] || b.w[1] || (b.w[2] & ~DELEG_TIMES)))
		return NFS4ERR_INVAL;
	xdr_in_init(&body, p, len);
	for (unsigned n = 0; n < NFS4_ATTRS_WORDS * 32; n++) {
		nfsstat4 st = op_bit(&b, n) ? get_one(c, &body, n, a) : NFS4_OK;

		if (st)
			return st;
	}
	if (xdr_left(&body))
		return NFS4ERR_BADXDR;
	a->set = b;
	return NFS4_OK;
}

nfsstat4 op_sattr_create(const struct compound *c, const struct op_sattr *sa, uint16_t fallback,
			 struct ns_create_args *a)
{
	const struct ns_setattr *s = &sa->s;
	struct ns_inode *i = &a->a_attr;

	a->a_mode_default = !(s->s_mask & NS_S_MODE);
	i->i_mode = a->a_mode_default ? fallback : s->s_mode;
	i->i_uid = s->s_mask & NS_S_UID ? s->s_uid : c->cred.cr_uid;
	i->i_gid = s->s_mask & NS_S_GID ? s->s_gid : c->cred.cr_gid;
	a->a_has_umask = sa->has_umask;
	a->a_umask = sa->umask;
	a->a_acl = s->s_mask & NS_S_ACL ? s->s_acl : NULL;
	a->a_times = s->s_mask & (NS_S_ATIME | NS_S_MTIME | NS_S_BTIME);
	i->i_atime = s->s_atime;
	i->i_mtime = s->s_mtime;
	i->i_btime = s->s_btime;
	/* Only root may create a file that belongs to another user or group. */
	if (c->cred.cr_uid && (i->i_uid != c->cred.cr_uid || !ns_in_group(&c->cred, i->i_gid)))
		return NFS4ERR_PERM;
	return NFS4_OK;
}

/* ---- GETATTR, VERIFY, NVERIFY ---- */

struct getattr {
	struct op_bitmap want;
	uint64_t ino;
};

static nfsstat4 op_attr_getattr_put(struct compound *c, const struct op_bitmap *want,
				    const struct ns_inode *i)
{
	nfsstat4 st = op_acl_readable(c, want, i);

	if (!st)
		op_put_attrs(c, c->out, want, i);
	return st;
}

static nfsstat4 getattr_reply(struct compound *c, int err)
{
	struct getattr *g = c->scratch;
	struct ns_inode i;

	/* Where a data server did not answer, the committed attributes are the best there are. */
	(void)err;
	err = ns_get(c->m->m_ns, op_txn(c), g->ino, &i);
	if (err)
		return op_status(err);
	return op_attr_getattr_put(c, &g->want, &i);
}

/* The holder of a write delegation has answered. */
static nfsstat4 getattr_asked(struct compound *c, int err)
{
	struct getattr *g = c->scratch;

	(void)err;
	return op_refresh(c, g->ino, false, getattr_reply);
}

static bool needs_holder(const struct op_bitmap *b)
{
	return op_attrs_need_ds(b) || op_bit(b, FATTR4_TIME_ACCESS);
}

nfsstat4 op_getattr(struct compound *c)
{
	struct op_bitmap want;
	struct getattr *g;
	struct ns_inode i;
	nfsstat4 st;

	op_get_bitmap(c->in, &want, NULL);
	if (c->in->bad)
		return NFS4ERR_BADXDR;
	st = op_want_status(c, &want);
	if (!st)
		st = op_cur_inode(c, &i);
	if (st)
		return st;
	if (i.i_type == NS_REG && needs_holder(&want)) {
		g = op_scratch(c, sizeof(*g), NULL);
		if (!g)
			return NFS4ERR_DELAY;
		g->want = want;
		g->ino = i.i_ino;
		if (op_deleg_ask(c, i.i_ino))
			return op_await_client(c, getattr_asked);
		if (op_attrs_need_ds(&want) && op_refresh_begin(c, i.i_ino, false, false))
			return op_await(c, getattr_reply);
	}
	return op_attr_getattr_put(c, &want, &i);
}

/* Undefined mode bits are an error here as well (section 6.2.4). The mode comes first behind the
 * attributes of word 0. If the client's word 0 is not as long as ours, the values differ anyway. */
static bool verify_mode_bad(struct compound *c, const struct op_bitmap *b, const struct ns_inode *i,
			    const uint8_t *theirs, uint32_t len)
{
	struct op_bitmap before = {{b->w[0]}};
	struct xdr_out mine;
	struct xdr_in x;
	size_t at;

	if (!op_bit(b, FATTR4_MODE))
		return false;
	xdr_out_init(&mine, 65536);
	op_put_attrs(c, &mine, &before, i);
	at = mine.x_len - (before.w[0] ? 12 : 8);
	xdr_out_free(&mine);
	if (len < at + 4)
		return false;
	xdr_in_init(&x, theirs + at, 4);
	return xdr_get_u32(&x) & ~07777u;
}

static nfsstat4 verify_compare(struct compound *c)
{
	struct op_bitmap b, sup = supported_for(c);
	struct xdr_out mine;
	struct ns_inode i;
	uint32_t len;
	const uint8_t *theirs;
	size_t start;
	bool extra, same, want_same;
	nfsstat4 st;

	op_get_bitmap(c->in, &b, &extra);
	theirs = xdr_get_opaque(c->in, UINT32_MAX - 3, &len);
	if (c->in->bad)
		return NFS4ERR_BADXDR;
	st = op_cur_inode(c, &i);
	if (st)
		return st;
	if (op_bit(&b, FATTR4_RDATTR_ERROR) || op_want_status(c, &b))
		return NFS4ERR_INVAL;
	for (unsigned w = 0; w < NFS4_ATTRS_WORDS; w++)
		extra |= (b.w[w] & ~sup.w[w]) != 0;
	if (extra)
		return NFS4ERR_ATTRNOTSUPP;
	st = op_acl_readable(c, &b, &i);
	if (!st && verify_mode_bad(c, &b, &i, theirs, len))
		st = NFS4ERR_INVAL;
	if (st)
		return st;
	xdr_out_init(&mine, 65536);
	op_put_bitmap(&mine, &b);
	start = mine.x_len;
	op_put_attrs(c, &mine, &b, &i);
	/* mine: the bitmap a second time, the length word, then the values */
	want_same = c->opnum == OP_VERIFY;
	same = !mine.bad && mine.x_len == start * 2 + 4 + len &&
	       (len == 0 || memcmp(mine.x_head + start * 2 + 4, theirs, len) == 0);
	xdr_out_free(&mine);
	if (same == want_same)
		return NFS4_OK;
	return same ? NFS4ERR_SAME : NFS4ERR_NOT_SAME;
}

struct verify {
	const uint8_t *args;
};

static nfsstat4 verify_fresh(struct compound *c, int err)
{
	struct verify *v = c->scratch;

	(void)err; /* without an answer the committed attributes count */
	c->in->p = v->args;
	return verify_compare(c);
}

static nfsstat4 verify_asked(struct compound *c, int err)
{
	(void)err;
	return op_refresh(c, c->cur, false, verify_fresh);
}

/* As in GETATTR: the data servers know the attributes while a write layout is out, and the holder
 * of a write delegation while that is out. */
nfsstat4 op_verify(struct compound *c)
{
	struct verify *v = op_scratch(c, sizeof(*v), NULL);
	struct op_bitmap b;
	struct ns_inode i;
	uint32_t len;

	if (!v)
		return NFS4ERR_DELAY;
	v->args = c->in->p;
	op_get_bitmap(c->in, &b, NULL);
	xdr_get_opaque(c->in, UINT32_MAX - 3, &len);
	if (c->in->bad)
		return NFS4ERR_BADXDR;
	if (!needs_holder(&b) || op_cur_inode(c, &i) != NFS4_OK || i.i_type != NS_REG)
		return verify_fresh(c, 0);
	if (op_deleg_ask(c, i.i_ino))
		return op_await_client(c, verify_asked);
	return op_refresh(c, i.i_ino, false, verify_fresh);
}

nfsstat4 op_nverify(struct compound *c)
{
	return op_verify(c);
}

void op_accessed(struct compound *c, const struct ns_inode *i)
{
	if (!c->exp->g_ro && !exp_is_pseudo(c->exp))
		job_accessed(c->th, i);
}
