/* SPDX-License-Identifier: Apache-2.0 */
/* weft_op.c - operations on names and attributes. */
#include "client/weft_op.h"
#include "client/open.h"
#include "client/res.h"
#include "client/ring.h"
#include "client/session.h"
#include "client/weft_call.h"
#include "client/weft_io.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define READDIR_BYTES 65536u
#define READDIR_FRAME 512u
#define XATTR_MOST    65536u

static void end_op(struct wc_call *c, int err, uint32_t status)
{
	wc_op_end(c->wcl_op, err, status);
}

static void put_name(struct xdr_out *x, const char *name)
{
	xdr_put_opaque(x, name, (uint32_t)strlen(name));
}

/* Skips a change_info4. */
static void skip_change(struct xdr_in *x)
{
	xdr_get_bool(x);
	xdr_get_u64(x);
	xdr_get_u64(x);
}

/* ---- WEFT_LOOKUP: as many parts of the path as a COMPOUND takes, then on from there ---- */

/* Gets the part at *path, without slashes. Returns false if there is none. */
static bool path_part(const char **path, const char **part, uint32_t *len)
{
	const char *p = *path;

	for (;;) {
		while (*p == '/')
			p++;
		*part = p;
		*len = (uint32_t)strcspn(p, "/");
		p += *len;
		if (*len != 1 || (*part)[0] != '.')
			break;
	}
	*path = p;
	return *len != 0;
}

static void lookup_put(struct wc_call *c, struct xdr_out *x)
{
	struct weft_op *op = c->wcl_op;
	const char *path = (op->o_name ? op->o_name : "") + c->wcl_at, *part;
	uint32_t len;

	wc_put_fh(c, x, c->wcl_at ? &op->o_fh2 : &op->o_fh);
	c->wcl_n = 0;
	/* SEQUENCE and PUTFH come before, GETFH and GETATTR after. */
	while (c->wcl_n + 4 < c->wcl_w->w_max_ops && path_part(&path, &part, &len)) {
		if (len == 2 && !memcmp(part, "..", 2)) {
			wc_call_op(c, x, OP_LOOKUPP);
		} else {
			wc_call_op(c, x, OP_LOOKUP);
			xdr_put_opaque(x, part, len);
		}
		c->wcl_n++;
	}
	c->wcl_off = (uint64_t)(path - (op->o_name ? op->o_name : path));
	wc_call_op(c, x, OP_GETFH);
	wc_put_getattr(c, x);
}

static void lookup_got(struct wc_call *c, struct wc_res *r)
{
	struct weft_op *op = c->wcl_op;
	const char *path = (op->o_name ? op->o_name : "") + c->wcl_at, *part;
	struct weft_fh fh;
	uint32_t len;

	if (!wc_res_fh(r, c->wcl_at ? &op->o_fh2 : &op->o_fh))
		return;
	for (uint32_t i = 0; i < c->wcl_n; i++) {
		path_part(&path, &part, &len);
		if (!wc_res_op(r, len == 2 && !memcmp(part, "..", 2) ? OP_LOOKUPP : OP_LOOKUP))
			return;
	}
	if (wc_get_fh(r, &fh) && wc_res_attr(r, &op->o_attr))
		op->o_fh2 = fh;
}

static void lookup_end(struct wc_call *c, int err, uint32_t status)
{
	const char *path = (c->wcl_op->o_name ? c->wcl_op->o_name : "") + c->wcl_off, *part;
	uint32_t len;

	if (!err && path_part(&path, &part, &len)) {
		c->wcl_at = (uint32_t)c->wcl_off;
		wc_call_again(c, 0);
		return;
	}
	wc_op_end(c->wcl_op, err, status);
}

static const struct wc_kind lookup_kind = {
	.k_put = lookup_put, .k_got = lookup_got, .k_end = lookup_end};

/* ---- attributes ---- */

static void op_getattr_put(struct wc_call *c, struct xdr_out *x)
{
	wc_put_fh(c, x, &c->wcl_op->o_fh);
	wc_put_getattr(c, x);
}

static void getattr_got(struct wc_call *c, struct wc_res *r)
{
	if (wc_res_fh(r, &c->wcl_op->o_fh))
		wc_res_attr(r, &c->wcl_op->o_attr);
}

static const struct wc_kind getattr_kind = {
	.k_put = op_getattr_put, .k_got = getattr_got, .k_end = end_op};

/* Uses the stateid of an open file for the size (section 18.30.3), otherwise the anonymous one. */
static void op_setattr_put(struct wc_call *c, struct xdr_out *x)
{
	static const struct wc_stateid anonymous;
	struct weft_op *op = c->wcl_op;
	struct wc_stateid si = op->o_file ? op->o_file->f_stateid : anonymous;

	si.si_seq = 0;
	c->wcl_n = op->o_attr.at_set & WEFT_A_SIZE;
	c->wcl_off = op->o_attr.at_size;
	wc_put_fh(c, x, &op->o_fh);
	wc_call_op(c, x, OP_SETATTR);
	wc_put_stateid(x, &si);
	wc_put_attrs(x, &op->o_attr,
		     WEFT_A_MODE | WEFT_A_UID | WEFT_A_GID | WEFT_A_SIZE | WEFT_A_ATIME |
			     WEFT_A_MTIME);
	wc_put_getattr(c, x);
}

static void setattr_got(struct wc_call *c, struct wc_res *r)
{
	uint32_t mask[3];

	if (!wc_res_fh(r, &c->wcl_op->o_fh) || !wc_res_op(r, OP_SETATTR))
		return;
	wc_get_bits(r->x, mask);
	wc_res_attr(r, &c->wcl_op->o_attr);
}

/* The operation has the reply's attributes by now. The size that was asked for is in wcl_off. */
static void op_setattr_end(struct wc_call *c, int err, uint32_t status)
{
	if (!err && c->wcl_n)
		wc_io_cut(c->wcl_w, &c->wcl_op->o_fh, c->wcl_off);
	wc_op_end(c->wcl_op, err, status);
}

static const struct wc_kind setattr_kind = {
	.k_put = op_setattr_put, .k_got = setattr_got, .k_end = op_setattr_end, .k_cache = true};

/* ---- WEFT_MKDIR, WEFT_SYMLINK: CREATE (section 18.4) ---- */

static void op_create_put(struct wc_call *c, struct xdr_out *x)
{
	struct weft_op *op = c->wcl_op;

	wc_put_fh(c, x, &op->o_fh);
	wc_call_op(c, x, OP_CREATE);
	if (op->o_what == WEFT_MKDIR) {
		xdr_put_u32(x, WEFT_DIR);
	} else {
		xdr_put_u32(x, WEFT_LNK);
		put_name(x, op->o_name2);
	}
	put_name(x, op->o_name);
	wc_put_attrs(x, &op->o_attr, WEFT_A_MODE | WEFT_A_UID | WEFT_A_GID);
	wc_call_op(c, x, OP_GETFH);
	wc_put_getattr(c, x);
}

static void op_create_got(struct wc_call *c, struct wc_res *r)
{
	uint32_t mask[3];

	if (!wc_res_fh(r, &c->wcl_op->o_fh) || !wc_res_op(r, OP_CREATE))
		return;
	skip_change(r->x);
	wc_get_bits(r->x, mask);
	if (wc_get_fh(r, &c->wcl_op->o_fh2))
		wc_res_attr(r, &c->wcl_op->o_attr);
}

static const struct wc_kind create_kind = {
	.k_put = op_create_put, .k_got = op_create_got, .k_end = end_op, .k_cache = true};

static void readlink_put(struct wc_call *c, struct xdr_out *x)
{
	wc_put_fh(c, x, &c->wcl_op->o_fh);
	wc_call_op(c, x, OP_READLINK);
}

static void readlink_got(struct wc_call *c, struct wc_res *r)
{
	struct weft_op *op = c->wcl_op;
	const uint8_t *p;
	uint32_t n;

	if (!wc_res_fh(r, &op->o_fh) || !wc_res_op(r, OP_READLINK))
		return;
	p = xdr_get_opaque(r->x, UINT32_MAX, &n);
	op->o_count = n;
	if (n && n <= op->o_len)
		memcpy(op->o_buf, p, n);
}

static void readlink_end(struct wc_call *c, int err, uint32_t status)
{
	wc_op_end(c->wcl_op, !err && c->wcl_op->o_count > c->wcl_op->o_len ? -ERANGE : err, status);
}

static const struct wc_kind readlink_kind = {
	.k_put = readlink_put, .k_got = readlink_got, .k_end = readlink_end};

/* ---- names ---- */

static void link_put(struct wc_call *c, struct xdr_out *x)
{
	wc_put_fh(c, x, &c->wcl_op->o_fh2);
	wc_call_op(c, x, OP_SAVEFH);
	wc_put_fh(c, x, &c->wcl_op->o_fh);
	wc_call_op(c, x, OP_LINK);
	put_name(x, c->wcl_op->o_name);
}

static void link_got(struct wc_call *c, struct wc_res *r)
{
	if (wc_res_fh(r, &c->wcl_op->o_fh2) && wc_res_op(r, OP_SAVEFH) &&
	    wc_res_fh(r, &c->wcl_op->o_fh) && wc_res_op(r, OP_LINK))
		skip_change(r->x);
}

static const struct wc_kind link_kind = {
	.k_put = link_put, .k_got = link_got, .k_end = end_op, .k_cache = true};

static void remove_put(struct wc_call *c, struct xdr_out *x)
{
	wc_put_fh(c, x, &c->wcl_op->o_fh);
	wc_call_op(c, x, OP_REMOVE);
	put_name(x, c->wcl_op->o_name);
}

static void remove_got(struct wc_call *c, struct wc_res *r)
{
	if (wc_res_fh(r, &c->wcl_op->o_fh) && wc_res_op(r, OP_REMOVE))
		skip_change(r->x);
}

static const struct wc_kind remove_kind = {
	.k_put = remove_put, .k_got = remove_got, .k_end = end_op, .k_cache = true};

static void op_rename_put(struct wc_call *c, struct xdr_out *x)
{
	wc_put_fh(c, x, &c->wcl_op->o_fh);
	wc_call_op(c, x, OP_SAVEFH);
	wc_put_fh(c, x, &c->wcl_op->o_fh2);
	wc_call_op(c, x, OP_RENAME);
	put_name(x, c->wcl_op->o_name);
	put_name(x, c->wcl_op->o_name2);
}

static void rename_got(struct wc_call *c, struct wc_res *r)
{
	if (wc_res_fh(r, &c->wcl_op->o_fh) && wc_res_op(r, OP_SAVEFH) &&
	    wc_res_fh(r, &c->wcl_op->o_fh2) && wc_res_op(r, OP_RENAME)) {
		skip_change(r->x);
		skip_change(r->x);
	}
}

static const struct wc_kind rename_kind = {
	.k_put = op_rename_put, .k_got = rename_got, .k_end = end_op, .k_cache = true};

/* ---- extended attributes (RFC 8276 sections 8.4.1 and 8.4.2) ---- */

static void setxattr_put(struct wc_call *c, struct xdr_out *x)
{
	const struct weft_op *op = c->wcl_op;

	wc_put_fh(c, x, &op->o_fh);
	wc_call_op(c, x, OP_SETXATTR);
	xdr_put_u32(x, 0); /* SETXATTR4_EITHER: made or replaced */
	put_name(x, op->o_name);
	xdr_put_u32(x, op->o_len);
	xdr_put_fixed(x, op->o_buf, op->o_len);
}

static void setxattr_got(struct wc_call *c, struct wc_res *r)
{
	if (wc_res_fh(r, &c->wcl_op->o_fh) && wc_res_op(r, OP_SETXATTR))
		skip_change(r->x);
}

static const struct wc_kind setxattr_kind = {
	.k_put = setxattr_put, .k_got = setxattr_got, .k_end = end_op, .k_cache = true};

static void getxattr_put(struct wc_call *c, struct xdr_out *x)
{
	wc_put_fh(c, x, &c->wcl_op->o_fh);
	wc_call_op(c, x, OP_GETXATTR);
	put_name(x, c->wcl_op->o_name);
}

static void getxattr_got(struct wc_call *c, struct wc_res *r)
{
	struct weft_op *op = c->wcl_op;
	const uint8_t *p;
	uint32_t n;

	if (!wc_res_fh(r, &op->o_fh) || !wc_res_op(r, OP_GETXATTR))
		return;
	p = xdr_get_opaque(r->x, UINT32_MAX, &n);
	op->o_count = n;
	if (n && n <= op->o_len)
		memcpy(op->o_buf, p, n);
}

static const struct wc_kind getxattr_kind = {
	.k_put = getxattr_put, .k_got = getxattr_got, .k_end = readlink_end};

/* ---- READDIR (section 18.23) ---- */

static void readdir_put(struct wc_call *c, struct xdr_out *x)
{
	struct weft_op *op = c->wcl_op;
	uint32_t most = c->wcl_w->w_max_resp - READDIR_FRAME,
		 want = op->o_len ? op->o_len : READDIR_BYTES;

	want = want < most ? want : most;
	wc_put_fh(c, x, &op->o_fh);
	wc_call_op(c, x, OP_READDIR);
	xdr_put_u64(x, op->o_off);
	xdr_put_fixed(x, &op->o_verf, NFS4_VERIFIER_SIZE);
	xdr_put_u32(x, want);
	xdr_put_u32(x, want);
	wc_put_mask(x, true);
}

static void get_entry(struct wc_call *c, struct xdr_in *x)
{
	char name[1025];
	struct weft_entry en = {.en_name = name};
	const uint8_t *p;

	en.en_cookie = xdr_get_u64(x);
	p = xdr_get_opaque(x, sizeof(name) - 1, &en.en_len);
	wc_get_attrs(x, &en.en_attr, &en.en_fh, NULL);
	/* Cookies 0 to 2 belong to no entry; a name has neither a slash nor a NUL. */
	if (!en.en_len || en.en_cookie <= 2 ||
	    (p && (memchr(p, 0, en.en_len) || memchr(p, '/', en.en_len))))
		x->bad = true;
	if (x->bad)
		return;
	memcpy(name, p, en.en_len);
	name[en.en_len] = 0;
	c->wcl_off = en.en_cookie;
	c->wcl_n++;
	if (c->wcl_op->o_entry)
		c->wcl_op->o_entry(c->wcl_op, &en);
}

static void readdir_got(struct wc_call *c, struct wc_res *r)
{
	struct weft_op *op = c->wcl_op;
	const uint8_t *verf;
	uint64_t v = 0;

	c->wcl_n = 0;
	if (!wc_res_fh(r, &op->o_fh) || !wc_res_op(r, OP_READDIR))
		return;
	verf = xdr_get_fixed(r->x, NFS4_VERIFIER_SIZE);
	if (verf)
		memcpy(&v, verf, sizeof(v));
	c->wcl_off = op->o_off;
	while (xdr_get_bool(r->x) && !r->x->bad)
		get_entry(c, r->x);
	op->o_eof = xdr_get_bool(r->x);
	/* With neither an entry nor the end, the client would ask for ever. */
	if (!c->wcl_n && !op->o_eof)
		r->r_bad = true;
	if (r->x->bad || r->r_bad)
		return;
	op->o_count = c->wcl_n;
	op->o_off = c->wcl_off;
	op->o_verf = v;
}

static const struct wc_kind readdir_kind = {
	.k_put = readdir_put, .k_got = readdir_got, .k_end = end_op};

/* ---- all ---- */

static bool name_fits(const char *name)
{
	return name && strlen(name) <= 4096;
}

/* Checks that the operation has what it needs. */
static bool op_complete(const struct weft_op *op)
{
	if (op->o_fh.fh_len > sizeof(op->o_fh.fh_data) ||
	    op->o_fh2.fh_len > sizeof(op->o_fh2.fh_data))
		return false;
	switch (op->o_what) {
	case WEFT_MKDIR:
	case WEFT_REMOVE:
	case WEFT_LINK:
		return name_fits(op->o_name);
	case WEFT_SETXATTR:
		return name_fits(op->o_name) && op->o_len <= XATTR_MOST &&
		       (op->o_buf || !op->o_len);
	case WEFT_GETXATTR:
		return name_fits(op->o_name) && (op->o_buf || !op->o_len);
	case WEFT_READLINK:
		return op->o_buf || !op->o_len;
	case WEFT_SYMLINK:
	case WEFT_RENAME:
		return name_fits(op->o_name) && name_fits(op->o_name2);
	case WEFT_LOOKUP:
	case WEFT_OPEN:
		return !op->o_name || name_fits(op->o_name);
	case WEFT_CLOSE:
	case WEFT_COMMIT:
	case WEFT_WRITE:
		return op->o_file && op->o_file->f_w == op->o_w;
	default:
		return op->o_what < WEFT_NWHATS && (!op->o_file || op->o_file->f_w == op->o_w);
	}
}

void wc_op_begin(struct weft_op *op)
{
	static const struct wc_kind *const kinds[WEFT_NWHATS] = {
		[WEFT_LOOKUP] = &lookup_kind,	  [WEFT_GETATTR] = &getattr_kind,
		[WEFT_SETATTR] = &setattr_kind,	  [WEFT_MKDIR] = &create_kind,
		[WEFT_SYMLINK] = &create_kind,	  [WEFT_READLINK] = &readlink_kind,
		[WEFT_LINK] = &link_kind,	  [WEFT_REMOVE] = &remove_kind,
		[WEFT_RENAME] = &rename_kind,	  [WEFT_READDIR] = &readdir_kind,
		[WEFT_SETXATTR] = &setxattr_kind, [WEFT_GETXATTR] = &getxattr_kind};
	struct weft *w = op->o_w;
	struct wc_call *c;

	if (w->w_state == WC_FAILED || w->w_state == WC_CLOSING) {
		wc_op_end(op, w->w_state == WC_FAILED ? w->w_err : -ECANCELED, 0);
	} else if (!op_complete(op)) {
		wc_op_end(op, -EINVAL, 0);
	} else if ((op->o_what >= WEFT_SETXATTR && w->w_minor < 2) ||
		   (op->o_what != WEFT_NULL && w->w_opts.wo_nfs3)) {
		wc_op_end(op, -EOPNOTSUPP, 0);
	} else if (op->o_what == WEFT_NULL) {
		wc_null(w, op);
	} else if (op->o_what == WEFT_OPEN) {
		wc_open_begin(op);
	} else if (op->o_what == WEFT_CLOSE) {
		wc_close_begin(op);
	} else if (op->o_what == WEFT_COMMIT) {
		wc_commit_begin(op);
	} else if (op->o_what == WEFT_READ || op->o_what == WEFT_WRITE) {
		wc_io_begin(op);
	} else {
		c = wc_call_new(w, kinds[op->o_what], op, NULL);
		if (c)
			wc_call_send(c);
		else
			wc_op_end(op, -ENOMEM, 0);
	}
}
