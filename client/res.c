/* SPDX-License-Identifier: Apache-2.0 */
/* res.c - results and attributes, by cursor (RFC 8881 section 5, RFC 5662); errors. Nothing here
 * trusts a server. */
#include "client/res.h"
#include "client/weft_call.h"
#include <errno.h>
#include <stdio.h>
#include <urcu/compiler.h>

/* Reads the head of one operation's result. Returns false if the operation failed, or is not
 * there. */
bool wc_res_op(struct wc_res *r, uint32_t op)
{
	uint32_t got, status;

	if (r->r_failed || r->r_bad)
		return false;
	if (!r->r_left) {
		r->r_bad = true;
		return false;
	}
	r->r_left--;
	got = xdr_get_u32(r->x);
	status = xdr_get_u32(r->x);
	if (r->x->bad || (got != op && !(got == OP_ILLEGAL && status == NFS4ERR_OP_ILLEGAL)))
		r->r_bad = true;
	else if (status != NFS4_OK) {
		r->r_failed = true;
		/* The status of a COMPOUND is that of its last operation (section 16.2.3). */
		if (r->r_left || status != r->r_status)
			r->r_bad = true;
	}
	return !r->r_failed && !r->r_bad;
}

void wc_put_fh(struct wc_call *c, struct xdr_out *x, const struct weft_fh *fh)
{
	if (!fh->fh_len) {
		wc_call_op(c, x, OP_PUTROOTFH);
		return;
	}
	wc_call_op(c, x, OP_PUTFH);
	xdr_put_opaque(x, fh->fh_data, fh->fh_len);
}

bool wc_res_fh(struct wc_res *r, const struct weft_fh *fh)
{
	return wc_res_op(r, fh->fh_len ? OP_PUTFH : OP_PUTROOTFH);
}

static void res_get_fh(struct xdr_in *x, struct weft_fh *fh)
{
	uint32_t n;
	const uint8_t *p = xdr_get_opaque(x, NFS4_FHSIZE, &n);

	if (!n)
		x->bad = true;
	if (x->bad)
		return;
	fh->fh_len = n;
	memcpy(fh->fh_data, p, n);
}

bool wc_get_fh(struct wc_res *r, struct weft_fh *fh)
{
	if (!wc_res_op(r, OP_GETFH))
		return false;
	res_get_fh(r->x, fh);
	return !r->x->bad;
}

void wc_put_stateid(struct xdr_out *x, const struct wc_stateid *si)
{
	xdr_put_u32(x, si->si_seq);
	xdr_put_fixed(x, si->si_other, sizeof(si->si_other));
}

void wc_get_stateid(struct xdr_in *x, struct wc_stateid *si)
{
	const uint8_t *p;

	si->si_seq = xdr_get_u32(x);
	p = xdr_get_fixed(x, NFS4_OTHER_SIZE);
	if (p)
		memcpy(si->si_other, p, NFS4_OTHER_SIZE);
}

/* ---- attributes ---- */

static const unsigned wanted[] = {FATTR4_TYPE,	      FATTR4_CHANGE,	    FATTR4_SIZE,
				  FATTR4_FSID,	      FATTR4_RDATTR_ERROR,  FATTR4_FILEHANDLE,
				  FATTR4_FILEID,      FATTR4_MODE,	    FATTR4_NUMLINKS,
				  FATTR4_OWNER,	      FATTR4_OWNER_GROUP,   FATTR4_SPACE_USED,
				  FATTR4_TIME_ACCESS, FATTR4_TIME_METADATA, FATTR4_TIME_MODIFY};

void wc_put_bits(struct xdr_out *x, const unsigned *bits, unsigned n)
{
	uint32_t w[NFS4_ATTRS_WORDS] = {0}, words = 0;

	for (unsigned i = 0; i < n; i++) {
		w[bits[i] / 32] |= 1u << bits[i] % 32;
		words = bits[i] / 32 + 1 > words ? bits[i] / 32 + 1 : words;
	}
	xdr_put_u32(x, words);
	for (uint32_t i = 0; i < words; i++)
		xdr_put_u32(x, w[i]);
}

static void put_mask(struct xdr_out *x, bool readdir, bool limits)
{
	unsigned bits[CAA_ARRAY_SIZE(wanted) + 1], n = 0;

	/* A server reports the error of an entry only if it is asked for. Outside READDIR that is
	 * no attribute (section 5.8.1.12). */
	for (unsigned i = 0; i < CAA_ARRAY_SIZE(wanted); i++)
		if (readdir || (wanted[i] != FATTR4_RDATTR_ERROR && wanted[i] != FATTR4_FILEHANDLE))
			bits[n++] = wanted[i];
	if (limits)
		bits[n++] = FATTR4_MDSTHRESHOLD;
	wc_put_bits(x, bits, n);
}

void wc_put_mask(struct xdr_out *x, bool readdir)
{
	put_mask(x, readdir, false);
}

void wc_get_bits(struct xdr_in *x, uint32_t mask[3])
{
	uint32_t n = xdr_get_u32(x);

	memset(mask, 0, 3 * sizeof(*mask));
	if (n > xdr_left(x) / 4) {
		x->bad = true;
		return;
	}
	for (uint32_t i = 0; i < n; i++) {
		uint32_t word = xdr_get_u32(x);

		if (i < 3)
			mask[i] = word;
		else if (word)
			x->bad = true; /* unknown, and not asked for */
	}
}

static void res_get_time(struct xdr_in *x, struct weft_time *t)
{
	t->ti_sec = (int64_t)xdr_get_u64(x);
	t->ti_nsec = xdr_get_u32(x);
}

bool wc_get_id(struct xdr_in *x, uint32_t *id)
{
	uint32_t n;
	const uint8_t *p = xdr_get_opaque(x, 1024, &n);
	uint64_t v = 0;

	if (!n || n > 10)
		return false;
	for (uint32_t i = 0; i < n; i++) {
		if (p[i] < '0' || p[i] > '9')
			return false;
		v = v * 10 + (p[i] - '0');
	}
	*id = (uint32_t)v;
	return v <= UINT32_MAX;
}

/* Reads the thresholds of one layout type: the values follow in the order of their bits. A value
 * that is not known cannot be told from what follows, so it ends them. */
static void get_hints(struct xdr_in *x, struct wc_limits *th)
{
	uint64_t *const at[] = {&th->th_read_size, &th->th_write_size, &th->th_read_io,
				&th->th_write_io};
	uint32_t type = xdr_get_u32(x), mask[3], n;
	const uint8_t *p;
	struct xdr_in in;

	wc_get_bits(x, mask);
	p = xdr_get_opaque(x, UINT32_MAX, &n);
	if (x->bad || type != LAYOUT4_FLEX_FILES)
		return;
	xdr_in_init(&in, n ? p : (const uint8_t *)"", n);
	for (unsigned bit = 0; bit < CAA_ARRAY_SIZE(at); bit++)
		if (mask[0] & 1u << bit)
			*at[bit] = xdr_get_u64(&in);
	x->bad |= in.bad;
}

static void get_limits(struct xdr_in *x, struct wc_limits *th)
{
	uint32_t n = xdr_get_u32(x);

	if (!th || n > xdr_left(x) / 12) {
		x->bad = true; /* not asked for, or too many */
		return;
	}
	while (n--)
		get_hints(x, th);
}

static void res_get_attr(struct xdr_in *x, unsigned bit, struct weft_attr *a, struct weft_fh *fh,
			 struct wc_limits *th)
{
	struct weft_fh unused;

	switch (bit) {
	case FATTR4_TYPE:
		a->at_type = xdr_get_u32(x);
		a->at_set |= WEFT_A_TYPE;
		break;
	case FATTR4_CHANGE:
		a->at_change = xdr_get_u64(x);
		a->at_set |= WEFT_A_CHANGE;
		break;
	case FATTR4_SIZE:
		a->at_size = xdr_get_u64(x);
		a->at_set |= WEFT_A_SIZE;
		break;
	case FATTR4_FSID:
		a->at_fsid[0] = xdr_get_u64(x);
		a->at_fsid[1] = xdr_get_u64(x);
		a->at_set |= WEFT_A_FSID;
		break;
	case FATTR4_RDATTR_ERROR:
		xdr_get_u32(x);
		break;
	case FATTR4_FILEHANDLE:
		res_get_fh(x, fh ? fh : &unused);
		break;
	case FATTR4_FILEID:
		a->at_fileid = xdr_get_u64(x);
		a->at_set |= WEFT_A_FILEID;
		break;
	case FATTR4_MODE:
		a->at_mode = xdr_get_u32(x);
		a->at_set |= WEFT_A_MODE;
		break;
	case FATTR4_NUMLINKS:
		a->at_nlink = xdr_get_u32(x);
		a->at_set |= WEFT_A_NLINK;
		break;
	case FATTR4_OWNER:
		a->at_set |= wc_get_id(x, &a->at_uid) ? WEFT_A_UID : 0;
		break;
	case FATTR4_OWNER_GROUP:
		a->at_set |= wc_get_id(x, &a->at_gid) ? WEFT_A_GID : 0;
		break;
	case FATTR4_SPACE_USED:
		a->at_used = xdr_get_u64(x);
		a->at_set |= WEFT_A_USED;
		break;
	case FATTR4_TIME_ACCESS:
		res_get_time(x, &a->at_atime);
		a->at_set |= WEFT_A_ATIME;
		break;
	case FATTR4_TIME_METADATA:
		res_get_time(x, &a->at_ctime);
		a->at_set |= WEFT_A_CTIME;
		break;
	case FATTR4_TIME_MODIFY:
		res_get_time(x, &a->at_mtime);
		a->at_set |= WEFT_A_MTIME;
		break;
	case FATTR4_MDSTHRESHOLD:
		get_limits(x, th);
		break;
	default:
		x->bad = true; /* not asked for: its end is unknown */
	}
}

void wc_get_attrs(struct xdr_in *x, struct weft_attr *a, struct weft_fh *fh, struct wc_limits *th)
{
	uint32_t mask[3], n;
	const uint8_t *p;
	struct xdr_in in;

	memset(a, 0, sizeof(*a));
	if (th)
		memset(th, 0, sizeof(*th));
	wc_get_bits(x, mask);
	p = xdr_get_opaque(x, UINT32_MAX, &n);
	if (x->bad)
		return;
	xdr_in_init(&in, n ? p : (const uint8_t *)"", n);
	for (unsigned bit = 0; bit < 96 && !in.bad; bit++)
		if (mask[bit / 32] & 1u << bit % 32)
			res_get_attr(&in, bit, a, fh, th);
	if (in.bad || xdr_left(&in))
		x->bad = true;
}

void wc_put_getattr(struct wc_call *c, struct xdr_out *x)
{
	wc_call_op(c, x, OP_GETATTR);
	wc_put_mask(x, false);
}

bool wc_res_attr(struct wc_res *r, struct weft_attr *a)
{
	if (!wc_res_op(r, OP_GETATTR))
		return false;
	wc_get_attrs(r->x, a, NULL, NULL);
	return !r->x->bad;
}

void wc_put_getattr_limits(struct wc_call *c, struct xdr_out *x)
{
	wc_call_op(c, x, OP_GETATTR);
	put_mask(x, false, true);
}

bool wc_res_attr_limits(struct wc_res *r, struct weft_attr *a, struct wc_limits *th)
{
	if (!wc_res_op(r, OP_GETATTR))
		return false;
	wc_get_attrs(r->x, a, NULL, th);
	return !r->x->bad;
}

static void put_owner(struct xdr_out *x, uint32_t id)
{
	char text[16];
	int n = snprintf(text, sizeof(text), "%u", id);

	xdr_put_opaque(x, text, (uint32_t)n);
}

static void put_set_time(struct xdr_out *x, const struct weft_time *t)
{
	xdr_put_u32(x, SET_TO_CLIENT_TIME4);
	xdr_put_u64(x, (uint64_t)t->ti_sec);
	xdr_put_u32(x, t->ti_nsec);
}

/* Puts the attributes in the order of their numbers. */
void wc_put_attrs(struct xdr_out *x, const struct weft_attr *a, uint32_t which)
{
	static const struct {
		uint32_t set;
		unsigned bit;
	} order[] = {{WEFT_A_SIZE, FATTR4_SIZE},
		     {WEFT_A_MODE, FATTR4_MODE},
		     {WEFT_A_UID, FATTR4_OWNER},
		     {WEFT_A_GID, FATTR4_OWNER_GROUP},
		     {WEFT_A_ATIME, FATTR4_TIME_ACCESS_SET},
		     {WEFT_A_MTIME, FATTR4_TIME_MODIFY_SET}};
	unsigned bits[CAA_ARRAY_SIZE(order)], n = 0;
	size_t at;

	which &= a->at_set;
	for (unsigned i = 0; i < CAA_ARRAY_SIZE(order); i++)
		if (which & order[i].set)
			bits[n++] = order[i].bit;
	wc_put_bits(x, bits, n);
	at = x->x_len;
	xdr_put_u32(x, 0);
	if (which & WEFT_A_SIZE)
		xdr_put_u64(x, a->at_size);
	if (which & WEFT_A_MODE)
		xdr_put_u32(x, a->at_mode & 07777);
	if (which & WEFT_A_UID)
		put_owner(x, a->at_uid);
	if (which & WEFT_A_GID)
		put_owner(x, a->at_gid);
	if (which & WEFT_A_ATIME)
		put_set_time(x, &a->at_atime);
	if (which & WEFT_A_MTIME)
		put_set_time(x, &a->at_mtime);
	xdr_patch_u32(x, at, (uint32_t)(x->x_len - at - 4));
}

/* ---- errors ---- */

/* This is the one place that turns NFS status into errno. */
int wc_errno(uint32_t status)
{
	static const struct {
		uint32_t status;
		int err;
	} map[] = {{NFS4_OK, 0},
		   {NFS4ERR_PERM, EPERM},
		   {NFS4ERR_NOENT, ENOENT},
		   {NFS4ERR_IO, EIO},
		   {NFS4ERR_NXIO, ENXIO},
		   {NFS4ERR_ACCESS, EACCES},
		   {NFS4ERR_EXIST, EEXIST},
		   {NFS4ERR_XDEV, EXDEV},
		   {NFS4ERR_NOTDIR, ENOTDIR},
		   {NFS4ERR_ISDIR, EISDIR},
		   {NFS4ERR_INVAL, EINVAL},
		   {NFS4ERR_FBIG, EFBIG},
		   {NFS4ERR_NOSPC, ENOSPC},
		   {NFS4ERR_ROFS, EROFS},
		   {NFS4ERR_MLINK, EMLINK},
		   {NFS4ERR_NAMETOOLONG, ENAMETOOLONG},
		   {NFS4ERR_NOTEMPTY, ENOTEMPTY},
		   {NFS4ERR_DQUOT, EDQUOT},
		   {NFS4ERR_STALE, ESTALE},
		   {NFS4ERR_BADHANDLE, ESTALE},
		   {NFS4ERR_FHEXPIRED, ESTALE},
		   {NFS4ERR_BAD_COOKIE, EINVAL},
		   {NFS4ERR_NOT_SAME, EAGAIN},
		   {NFS4ERR_NOTSUPP, EOPNOTSUPP},
		   {NFS4ERR_ATTRNOTSUPP, EOPNOTSUPP},
		   {NFS4ERR_TOOSMALL, ERANGE},
		   {NFS4ERR_SYMLINK, ELOOP},
		   {NFS4ERR_WRONG_TYPE, EINVAL},
		   {NFS4ERR_BADNAME, EINVAL},
		   {NFS4ERR_BADCHAR, EILSEQ},
		   {NFS4ERR_BADOWNER, EINVAL},
		   {NFS4ERR_DELAY, EAGAIN},
		   {NFS4ERR_GRACE, EAGAIN},
		   {NFS4ERR_LOCKED, EACCES},
		   {NFS4ERR_SHARE_DENIED, EACCES},
		   {NFS4ERR_OPENMODE, EBADF},
		   {NFS4ERR_FILE_OPEN, EBUSY},
		   {NFS4ERR_MOVED, EREMOTE},
		   {NFS4ERR_WRONGSEC, EACCES},
		   {NFS4ERR_REQ_TOO_BIG, EMSGSIZE},
		   {NFS4ERR_REP_TOO_BIG, EMSGSIZE},
		   {NFS4ERR_REP_TOO_BIG_TO_CACHE, EMSGSIZE},
		   {NFS4ERR_TOO_MANY_OPS, EMSGSIZE},
		   {NFS4ERR_BAD_STATEID, EBADF},
		   {NFS4ERR_STALE_STATEID, EBADF},
		   {NFS4ERR_EXPIRED, EBADF},
		   {NFS4ERR_ADMIN_REVOKED, EBADF},
		   {NFS4ERR_MINOR_VERS_MISMATCH, EPROTONOSUPPORT},
		   {NFS4ERR_NOXATTR, ENODATA},
		   {NFS4ERR_XATTR2BIG, E2BIG}};

	for (unsigned i = 0; i < CAA_ARRAY_SIZE(map); i++)
		if (map[i].status == status)
			return -map[i].err;
	return -EIO;
}
