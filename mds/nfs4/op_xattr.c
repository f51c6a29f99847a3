/* SPDX-License-Identifier: Apache-2.0 */
/*
 * op_xattr.c - extended attributes (RFC 8276), and two virtual ones: weft.policy of directories and
 * files, weft.layout of files. LISTXATTRS does not list the virtual ones. Other names that begin
 * with weft. are reserved: none can be set, but one that a store has can be read and removed.
 *
 *	op_getxattr			weft.layout: the file's size is asked for
 *	layout_fresh			the answer
 *
 *	op_setxattr, op_removexattr	xattr_recall: other clients' delegations come back
 *	xattr_change			the mutation, or op_place_again (file_place.c)
 *	xattr_done			the answer
 */
#include "base/log.h"
#include "base/near.h"
#include "mds/file/evict.h"
#include "mds/journal/event_journal.h"
#include "mds/nfs4/op.h"
#include "mds/nfs4/op_attr.h"
#include "mds/nfs4/op_state.h"
#include <errno.h>

static bool op_xattr_name_is(const char *name, size_t len, const char *want)
{
	return len == strlen(want) && memcmp(name, want, len) == 0;
}

bool op_xattr_virtual(const char *name, size_t len)
{
	return op_xattr_name_is(name, len, "weft.policy") ||
	       op_xattr_name_is(name, len, "weft.layout");
}

bool op_xattr_reserved(const char *name, size_t len)
{
	return len >= 5 && !memcmp(name, "weft.", 5) && !op_xattr_virtual(name, len);
}

/* Copies bytes of a client as a log may have them. */
static void printable(char *out, size_t max, const char *bytes, size_t len)
{
	size_t n = len < max - 1 ? len : max - 1;

	for (size_t i = 0; i < n; i++)
		out[i] = bytes[i] >= 0x20 && bytes[i] < 0x7f ? bytes[i] : '?';
	out[n] = 0;
}

nfsstat4 op_policy_refused(struct compound *c, nfsstat4 st, const char *why)
{
	static _Atomic uint64_t last;
	static _Atomic unsigned left_out;
	char client[EV_SUBJECT_MAX + 1] = "", reason[256], more[40] = "";
	unsigned n, number = c->client ? c->client->cl_number : 0;

	if (!log_due(&last)) {
		atomic_fetch_add(&left_out, 1);
		return st;
	}
	n = atomic_exchange(&left_out, 0);
	if (n)
		snprintf(more, sizeof(more), " (%u more are left out)", n);
	if (c->client)
		evict_name_of(c->client, client);
	printable(reason, sizeof(reason), why, strlen(why));
	log_warn("refused a policy that client %u (%s), uid %u, set on inode %llu: %s%s", number,
		 client, c->cred.cr_uid, (unsigned long long)c->cur, reason, more);
	journal_add(EV_POLICY_REFUSED, client, c->cur, "client %u, uid %u: %s%s", number,
		    c->cred.cr_uid, reason, more);
	return st;
}

void op_xattr_reserved_why(const char *name, size_t len, char *why, size_t max)
{
	static const char *const known[] = {"weft.policy", "weft.layout"};
	char typed[NEAR_NAME];
	const char *near = NULL;

	printable(typed, sizeof(typed), name, len);
	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		if (near_distance(typed, known[i]) <= NEAR_EDITS)
			near = known[i];
	snprintf(why, max, "user.%s: names that begin with user.weft. are reserved%s%s%s", typed,
		 near ? "; did you mean user." : "", near ? near : "", near ? "?" : "");
}

struct xattr {
	struct op_again again; /* ag_policy is also the policy of a directory */
	const char *name;
	size_t len;
	uint32_t how;
	struct kv_slice val;
	struct ns_cinfo ci;
	bool on_file;
};

static void xattr_fini(void *scratch)
{
	struct xattr *k = scratch;

	excl_end(&k->again.ag_freeze, 0);
}

static nfsstat4 get_xname(struct compound *c, struct xattr *k)
{
	uint32_t n;

	k->name = (const char *)xdr_get_opaque(c->in, UINT32_MAX - 3, &n);
	k->len = n;
	if (c->in->bad)
		return NFS4ERR_BADXDR;
	if (n == 0)
		return NFS4ERR_INVAL;
	if (n > NS_XATTR_NAME_MAX)
		return NFS4ERR_NAMETOOLONG;
	return memchr(k->name, 0, n) ? NFS4ERR_INVAL : NFS4_OK;
}

/* ---- GETXATTR ---- */

/* A file's policy: the shape of its layout map. weft.layout says where its copies are. */
static nfsstat4 get_shape(struct compound *c, uint64_t ino)
{
	char text[LO_POLICY_TEXT];
	struct lo_policy p;
	struct lo_map map;
	struct ns_inode i;
	int err = ns_get(c->m->m_ns, op_txn(c), ino, &i);

	if (err)
		return op_status(err);
	if (lo_map_decode(i.i_blob, &map) || lo_map_policy(&map, &p))
		return NFS4ERR_IO;
	xdr_put_opaque(c->out, text, (uint32_t)lo_policy_format(&p, text));
	return NFS4_OK;
}

static nfsstat4 op_xattr_get_policy(struct compound *c, const struct ns_inode *i)
{
	struct kv_slice s;
	struct lo_policy p;
	char text[LO_POLICY_TEXT];
	int err;

	if (i->i_type == NS_REG)
		return get_shape(c, i->i_ino);
	if (i->i_type != NS_DIR)
		return NFS4ERR_NOXATTR;
	err = ns_policy(c->m->m_ns, op_txn(c), i->i_ino, &s);
	if (!err)
		err = lo_policy_decode(s, &p);
	if (err)
		return op_status(err);
	xdr_put_opaque(c->out, text, (uint32_t)lo_policy_format(&p, text));
	return NFS4_OK;
}

static nfsstat4 op_xattr_get_layout(struct compound *c, uint64_t ino)
{
	struct ns_inode i;
	struct lo_map map;
	char *json;
	int err = ns_get(c->m->m_ns, op_txn(c), ino, &i);

	if (err)
		return op_status(err);
	if (i.i_type != NS_REG)
		return NFS4ERR_NOXATTR;
	if (lo_map_decode(i.i_blob, &map))
		return NFS4ERR_IO;
	json = lo_layout_json(c->m->m_lo, op_txn(c), &i, &map);
	if (!json)
		return NFS4ERR_DELAY;
	xdr_put_opaque(c->out, json, (uint32_t)strlen(json));
	free(json);
	return NFS4_OK;
}

static nfsstat4 layout_fresh(struct compound *c, int err)
{
	(void)err;
	return op_xattr_get_layout(c, c->cur);
}

nfsstat4 op_getxattr(struct compound *c)
{
	struct xattr k = {0};
	struct ns_inode i;
	struct kv_slice val;
	nfsstat4 st = get_xname(c, &k);
	int err;

	if (!st)
		st = op_cur_inode(c, &i);
	if (!st)
		st = op_status(ns_access(&i, &c->cred, NS_R_READ_XATTRS));
	if (st)
		return st;
	if (exp_is_pseudo(c->exp)) /* hides those of the real directory */
		return NFS4ERR_NOXATTR;
	if (op_xattr_name_is(k.name, k.len, "weft.policy"))
		return op_xattr_get_policy(c, &i);
	if (op_xattr_name_is(k.name, k.len, "weft.layout")) {
		return i.i_type == NS_REG ? op_refresh(c, i.i_ino, false, layout_fresh)
					  : layout_fresh(c, 0);
	}
	err = ns_xattr_get(c->m->m_ns, op_txn(c), i.i_ino, k.name, k.len, &val);
	if (err)
		return op_status(err);
	xdr_put_opaque(c->out, val.s_data, (uint32_t)val.s_len);
	return NFS4_OK;
}

/* ---- SETXATTR, REMOVEXATTR ---- */

/* Only the directory's owner, or root, may set or remove its policy. */
static int op_xattr_policy_run(struct kv_op *op, struct kv_txn *t)
{
	struct compound *c = op_of(op);
	struct xattr *k = c->scratch;
	struct ns *ns = c->m->m_ns;
	struct ns_inode i;
	int err = ns_get(ns, t, c->cur, &i);

	if (err)
		return err;
	if (i.i_type != NS_DIR)
		return -EINVAL;
	if (c->cred.cr_uid != 0 && c->cred.cr_uid != i.i_uid)
		return -EPERM;
	if (k->how == NS_X_CREATE && i.i_has_policy)
		return -EEXIST;
	if (!i.i_has_policy && (!k->val.s_data || k->how == NS_X_REPLACE))
		return -ENODATA;
	k->ci.c_before = i.i_change;
	err = lo_policy_set(c->m->m_lo, t, c->cur, k->val.s_data ? &k->again.ag_policy : NULL,
			    file_now());
	k->ci.c_after = i.i_change + 1;
	return err;
}

static int setxattr_run(struct kv_op *op, struct kv_txn *t)
{
	struct compound *c = op_of(op);
	struct xattr *k = c->scratch;

	return ns_xattr_set(c->m->m_ns, t, c->cur, k->name, k->len, k->val, k->how, &c->cred,
			    file_now(), &k->ci);
}

static int removexattr_run(struct kv_op *op, struct kv_txn *t)
{
	struct compound *c = op_of(op);
	struct xattr *k = c->scratch;

	return ns_xattr_remove(c->m->m_ns, t, c->cur, k->name, k->len, &c->cred, file_now(),
			       &k->ci);
}

static void xattr_put(struct compound *c, struct xdr_out *x, struct op_after *after)
{
	struct xattr *k = c->scratch;

	(void)after;
	op_put_cinfo(x, &k->ci);
}

static nfsstat4 xattr_done(struct compound *c, int err)
{
	const struct xattr *k = c->scratch;

	if (err == -EINVAL && c->opnum == OP_SETXATTR &&
	    op_xattr_name_is(k->name, k->len, "weft.policy"))
		return op_policy_refused(c, NFS4ERR_INVAL,
					 "only directories and empty files take one");
	if (err)
		return op_status(err);
	op_deleg_late(c, c->cur);
	return op_result(c, xattr_put);
}

static nfsstat4 xattr_change(struct compound *c, int err)
{
	struct xattr *k = c->scratch;

	(void)err;
	if (op_xattr_name_is(k->name, k->len, "weft.policy") && c->opnum == OP_SETXATTR &&
	    k->on_file)
		return k->how == NS_X_CREATE ? NFS4ERR_EXIST : op_place_again(c);
	if (op_xattr_name_is(k->name, k->len, "weft.policy"))
		return op_mutate(c, op_xattr_policy_run, xattr_put, xattr_done);
	return op_mutate(c, c->opnum == OP_SETXATTR ? setxattr_run : removexattr_run, xattr_put,
			 xattr_done);
}

/* Clients cache extended attributes under a delegation like other attributes: other clients'
 * delegations come back before one changes. Without permission the caller must not recall any. */
static nfsstat4 xattr_recall(struct compound *c)
{
	struct xattr *k = c->scratch;
	struct ns_inode i;
	nfsstat4 st = op_cur_inode(c, &i);

	if (st)
		return st;
	k->on_file = i.i_type == NS_REG;
	if (ns_permission(&i, &c->cred, 2))
		return xattr_change(c, 0);
	if (op_deleg_grace(c, c->cur))
		return NFS4ERR_DELAY; /* GRACE is not allowed here (RFC 8276 section 8.4.5) */
	return op_deleg_clear(c, &c->cur, 1, OPEN4_SHARE_ACCESS_WRITE, 0, xattr_change);
}

nfsstat4 op_setxattr(struct compound *c)
{
	struct xattr *k = op_scratch(c, sizeof(*k), xattr_fini);
	char err[256];
	uint32_t len;
	nfsstat4 st;

	if (!k)
		return NFS4ERR_DELAY;
	k->how = xdr_get_u32(c->in);
	st = get_xname(c, k);
	k->val.s_data = xdr_get_opaque(c->in, UINT32_MAX - 3, &len);
	k->val.s_len = len;
	if (c->in->bad || k->how > NS_X_REPLACE)
		return NFS4ERR_BADXDR;
	if (!st && !c->cur)
		st = NFS4ERR_NOFILEHANDLE;
	if (!st && len > NS_XATTR_VALUE_MAX)
		st = NFS4ERR_XATTR2BIG;
	if (st)
		return st;
	if (op_xattr_name_is(k->name, k->len, "weft.layout"))
		return NFS4ERR_PERM;
	if (op_xattr_reserved(k->name, k->len)) {
		op_xattr_reserved_why(k->name, k->len, err, sizeof(err));
		return op_policy_refused(c, NFS4ERR_INVAL, err);
	}
	if (op_xattr_name_is(k->name, k->len, "weft.policy")) {
		if (lo_policy_parse(k->val.s_data, len, &k->again.ag_policy, err, sizeof(err)) ||
		    lo_policy_check(c->m->m_lo, &k->again.ag_policy, err, sizeof(err)))
			return op_policy_refused(c, NFS4ERR_INVAL, err);
		k->again.ag_ci = &k->ci;
		k->again.ag_put = xattr_put;
	}
	return xattr_recall(c);
}

nfsstat4 op_removexattr(struct compound *c)
{
	struct xattr *k = op_scratch(c, sizeof(*k), NULL);
	nfsstat4 st;

	if (!k)
		return NFS4ERR_DELAY;
	st = get_xname(c, k);
	if (!st && !c->cur)
		st = NFS4ERR_NOFILEHANDLE;
	if (st)
		return st;
	if (op_xattr_name_is(k->name, k->len, "weft.layout"))
		return NFS4ERR_PERM;
	return xattr_recall(c);
}

/* ---- LISTXATTRS ---- */

struct xlist {
	struct compound *c;
	uint64_t cookie, at;
	uint32_t max, n;
	size_t start;
	bool more;
};

static int op_xattr_list_one(void *arg, const char *name, size_t len)
{
	struct xlist *l = arg;
	struct xdr_out *x = l->c->out;

	if (l->at++ < l->cookie)
		return 0;
	/* There must be room for this name, and for eof. */
	if (x->x_len - l->start + 4 + ((len + 3) & ~(size_t)3) + 4 > l->max) {
		l->at--;
		l->more = true;
		return 1;
	}
	xdr_put_opaque(x, name, (uint32_t)len);
	l->n++;
	return 0;
}

nfsstat4 op_listxattrs(struct compound *c)
{
	struct xlist l = {.c = c};
	struct ns_inode i;
	size_t cookie_at, count_at;
	nfsstat4 st;
	int err;

	l.cookie = xdr_get_u64(c->in);
	l.max = xdr_get_u32(c->in);
	if (c->in->bad)
		return NFS4ERR_BADXDR;
	st = op_cur_inode(c, &i);
	if (!st)
		st = op_status(ns_access(&i, &c->cred, NS_R_READ_XATTRS));
	if (st)
		return st;
	l.start = cookie_at = c->out->x_len;
	xdr_put_u64(c->out, 0);
	count_at = c->out->x_len;
	xdr_put_u32(c->out, 0);
	err = exp_is_pseudo(c->exp)
		      ? 0
		      : ns_xattr_list(c->m->m_ns, op_txn(c), i.i_ino, op_xattr_list_one, &l);
	if (err < 0)
		return op_status(err);
	if (l.more && l.n == 0)
		return NFS4ERR_TOOSMALL;
	xdr_patch_u32(c->out, cookie_at, (uint32_t)(l.at >> 32));
	xdr_patch_u32(c->out, cookie_at + 4, (uint32_t)l.at);
	xdr_patch_u32(c->out, count_at, l.n);
	xdr_put_bool(c->out, !l.more);
	return NFS4_OK;
}
