/* SPDX-License-Identifier: Apache-2.0 */
/* admin_xattr.c - extended attributes over the API: shown and changed as over NFS (RFC 8276), with
 * the rights of root. */
#include "mds/admin/admin_holders.h"
#include "mds/nfs4/op.h"
#include "mds/nfs4/op_attr.h"
#include <errno.h>
#include <stdlib.h>
#include <time.h>
#include <urcu/compiler.h>

/* short, because this thread answers other requests as well; a request that is repeated finds the
 * delegation returned or revoked */
#define PATIENCE_MS 2000

/* The name as it is stored: without "user." in front. NULL: refused. */
static const char *admin_xattr_name_arg(const struct http_req *rq, struct http_reply *rp)
{
	const char *name = http_arg(rq, "name");

	if (name && !strncmp(name, "user.", 5))
		name += 5;
	if (name && *name && strlen(name) <= NS_XATTR_NAME_MAX)
		return name;
	admin_reply_error(rp, 400,
			  "name: expected one with 1 to %d bytes; user. before it may be left out",
			  NS_XATTR_NAME_MAX);
	return NULL;
}

static void reply_xattr_errno(struct http_reply *rp, int err, const char *path, const char *name)
{
	if (err == -ENODATA)
		admin_reply_error(rp, 404, "%s: it has no attribute user.%s", path, name);
	else if (err == -EEXIST)
		admin_reply_error(rp, 409, "%s: it has an attribute user.%s already", path, name);
	else if (err == -EPERM)
		admin_reply_error(rp, 409,
				  "%s: only regular files and directories have extended attributes",
				  path);
	else if (err == -E2BIG)
		admin_reply_error(rp, 400, "the value is longer than %d bytes", NS_XATTR_VALUE_MAX);
	else
		admin_reply_errno(rp, err, path);
}

/* ---- show ---- */

/* "text" if the value can be read as text; else "hex". */
static void admin_xattr_put_value(json_t *o, const void *data, size_t len)
{
	const uint8_t *p = data;
	json_t *s = NULL;
	char *hex, *q;

	json_object_set_new(o, "size", json_integer((json_int_t)len));
	if (admin_plain(data, len, "\n\t"))
		s = json_stringn(data ? data : "", len);
	if (s) {
		json_object_set_new(o, "text", s);
		return;
	}
	q = hex = malloc(2 * len + 1);
	if (!hex)
		return;
	*q = 0;
	for (size_t i = 0; i < len; i++)
		q += sprintf(q, "%02x", p[i]);
	json_object_set_new(o, "hex", json_string(hex));
	free(hex);
}

static json_t *xattr_json(const char *name, size_t len, const void *data, size_t n, bool made)
{
	json_t *o = json_object();
	char *full = NULL;

	if (asprintf(&full, "user.%.*s", (int)len, name) >= 0)
		json_object_set_new(o, "name", admin_text(full, strlen(full)));
	free(full);
	json_object_set_new(o, "virtual", json_boolean(made));
	admin_xattr_put_value(o, data, n);
	return o;
}

struct show {
	struct admin *s_a;
	struct kv_txn *s_txn;
	uint64_t s_ino;
	const char *s_only;
	json_t *s_list;
};

static int show_one(void *arg, const char *name, size_t len)
{
	struct show *s = arg;
	struct kv_slice val;
	int err;

	if (s->s_only && (strlen(s->s_only) != len || memcmp(s->s_only, name, len)))
		return 0;
	err = ns_xattr_get(s->s_a->a_ops.ao_ns, s->s_txn, s->s_ino, name, len, &val);
	if (err)
		return err;
	json_array_append_new(s->s_list, xattr_json(name, len, val.s_data, val.s_len, false));
	return 0;
}

/* Attributes that are made when they are asked for. NFS never lists them, but an administrator
 * wants to see them. */
static int show_made(struct show *s, const struct ns_inode *i)
{
	struct ns *ns = s->s_a->a_ops.ao_ns;
	struct lo_policy p;
	char text[LO_POLICY_TEXT], *json;
	struct kv_slice blob;
	struct lo_map m;
	int err = 0;

	if (i->i_type == NS_DIR) {
		err = ns_policy(ns, s->s_txn, i->i_ino, &blob);
		if (!err)
			err = lo_policy_decode(blob, &p);
	} else if (i->i_type == NS_REG) {
		err = lo_map_decode(i->i_blob, &m);
		if (!err)
			err = lo_map_policy(&m, &p);
	} else {
		return 0;
	}
	if (err)
		return err;
	if (!s->s_only || !strcmp(s->s_only, "weft.policy"))
		json_array_append_new(s->s_list, xattr_json("weft.policy", 11, text,
							    lo_policy_format(&p, text), true));
	if (i->i_type != NS_REG || (s->s_only && strcmp(s->s_only, "weft.layout")))
		return 0;
	json = lo_layout_json(s->s_a->a_ops.ao_lo, s->s_txn, i, &m);
	if (!json)
		return -ENOMEM;
	json_array_append_new(s->s_list, xattr_json("weft.layout", 11, json, strlen(json), true));
	free(json);
	return 0;
}

static void admin_xattr_show(struct admin *a, uint64_t ino, const char *path, const char *only,
			     struct http_reply *rp)
{
	struct show s = {.s_a = a, .s_ino = ino, .s_only = only, .s_list = json_array()};
	struct ns *ns = a->a_ops.ao_ns;
	struct ns_inode i;
	int err = kv_read_begin(ns_kv(ns), &s.s_txn);

	if (!err) {
		err = ns_get(ns, s.s_txn, ino, &i);
		if (!err)
			err = show_made(&s, &i);
		if (!err)
			err = ns_xattr_list(ns, s.s_txn, ino, show_one, &s);
		kv_read_end(s.s_txn);
	}
	if (!err && only && !json_array_size(s.s_list))
		err = -ENODATA;
	if (err) {
		json_decref(s.s_list);
		reply_xattr_errno(rp, err, path, only ? only : "");
		return;
	}
	admin_reply_json(rp, 200,
			 json_pack("{s:o, s:o}", "path", admin_text(path, strlen(path)), "xattrs",
				   s.s_list));
}

void admin_get_xattr(void *arg, const struct http_req *rq, struct http_reply *rp)
{
	const char *only = http_arg(rq, "name") ? admin_xattr_name_arg(rq, rp) : NULL;
	struct ns_inode i;

	if ((!http_arg(rq, "name") || only) && admin_inode_arg(arg, rq, rp, &i))
		admin_xattr_show(arg, i.i_ino, http_arg(rq, "path"), only, rp);
}

/* ---- set, remove ---- */

struct change {
	struct kv_op c_op;
	struct ns *c_ns;
	uint64_t c_ino;
	const char *c_name;
	struct kv_slice c_val;
	unsigned c_how;
	bool c_remove;
	struct ns_time c_now;
	struct admin_wait c_wait;
};

static int admin_xattr_change_run(struct kv_op *op, struct kv_txn *t)
{
	struct change *c = caa_container_of(op, struct change, c_op);
	const struct ns_cred root = {0};
	struct ns_cinfo ci;

	if (c->c_remove)
		return ns_xattr_remove(c->c_ns, t, c->c_ino, c->c_name, strlen(c->c_name), &root,
				       c->c_now, &ci);
	return ns_xattr_set(c->c_ns, t, c->c_ino, c->c_name, strlen(c->c_name), c->c_val, c->c_how,
			    &root, c->c_now, &ci);
}

static void admin_xattr_change_done(struct kv_op *op, int err)
{
	admin_wait_done(&caa_container_of(op, struct change, c_op)->c_wait, err);
}

/* Recalls the delegations that conflict with a change; the tick revokes them at the deadline.
 * False: a delegation is still out. */
static bool delegations_back(struct st *st, uint64_t ino, unsigned wait_ms)
{
	const struct timespec some = {0, 10000000};

	for (unsigned ms = 0;; ms += 10) {
		struct st_file *f;
		bool out;

		st_all_lock(st);
		f = st_file_get(st, ino, false);
		out = f && st_file_deleg_conflict(f, NULL, OPEN4_SHARE_ACCESS_WRITE, 0);
		if (out)
			st_deleg_recall_file(st, f, NULL, OPEN4_SHARE_ACCESS_WRITE, 0);
		st_all_unlock(st);
		if (!out || ms >= wait_ms)
			return !out;
		nanosleep(&some, NULL);
	}
}

static void admin_xattr_change(struct admin *a, struct change *c, const char *path,
			       struct http_reply *rp)
{
	struct mds *m = a->a_ops.ao_mds;
	int err;

	if (!delegations_back(m->m_st, c->c_ino, PATIENCE_MS)) {
		admin_reply_error(rp, 409, "%s: a client did not return its delegation; try again",
				  path);
		return;
	}
	c->c_ns = a->a_ops.ao_ns;
	c->c_now = file_now();
	/* on the committer: the loops may have stopped */
	c->c_op =
		(struct kv_op){.o_run = admin_xattr_change_run, .o_done = admin_xattr_change_done};
	admin_wait_init(&c->c_wait);
	kv_submit(m->m_kv, &c->c_op);
	err = admin_wait_end(&c->c_wait);
	delegations_back(m->m_st, c->c_ino, 0); /* recall what was granted in between */
	if (err)
		reply_xattr_errno(rp, err, path, c->c_name);
	else
		admin_xattr_show(a, c->c_ino, path, c->c_remove ? NULL : c->c_name, rp);
}

static int digit(char ch)
{
	return ch >= '0' && ch <= '9'	? ch - '0'
	       : ch >= 'a' && ch <= 'f' ? ch - 'a' + 10
	       : ch >= 'A' && ch <= 'F' ? ch - 'A' + 10
					: -1;
}

/* The body as a value; "encoding" says how it is written. Malloc'd; NULL: refused. */
static uint8_t *value_arg(const struct http_req *rq, struct http_reply *rp, size_t *len)
{
	const char *encoding = http_arg(rq, "encoding"), *body = rq->rq_body;
	uint8_t *v = malloc(rq->rq_len + 1);
	bool hex = encoding && !strcmp(encoding, "hex");

	*len = hex ? rq->rq_len / 2 : rq->rq_len;
	if (!v) {
		admin_reply_error(rp, 500, "out of memory");
		return NULL;
	}
	memcpy(v, body, *len);
	for (size_t i = 0; hex && i < *len; i++) {
		if (digit(body[2 * i]) < 0 || digit(body[2 * i + 1]) < 0)
			hex = false;
		else
			v[i] = (uint8_t)(digit(body[2 * i]) << 4 | digit(body[2 * i + 1]));
	}
	if (encoding && (!hex || rq->rq_len % 2)) {
		admin_reply_error(rp, 400, "the value must be pairs of hexadecimal digits");
		free(v);
		return NULL;
	}
	return v;
}

/* True: refused, because NFS would refuse it or do it in another way. */
static bool admin_xattr_is_ours(const char *name, const char *path, struct http_reply *rp)
{
	if (!op_xattr_virtual(name, strlen(name)))
		return false;
	if (!strcmp(name, "weft.policy"))
		admin_reply_error(rp, 409,
				  "%s: set a directory's policy with weft policy set and policy "
				  "remove, and an empty file's through a client",
				  path);
	else
		admin_reply_error(rp, 409,
				  "%s: user.weft.layout is read-only: it cannot be set or removed",
				  path);
	return true;
}

/* True: refused, as NFS refuses it. One that a store has can be removed. */
static bool is_reserved(const char *name, const char *path, struct http_reply *rp)
{
	char why[256];

	if (!op_xattr_reserved(name, strlen(name)))
		return false;
	op_xattr_reserved_why(name, strlen(name), why, sizeof(why));
	admin_reply_error(rp, 400, "%s: %s", path, why);
	return true;
}

void admin_put_xattr(void *arg, const struct http_req *rq, struct http_reply *rp)
{
	struct change c = {.c_name = admin_xattr_name_arg(rq, rp)};
	const char *path = http_arg(rq, "path");
	struct ns_inode i;
	uint8_t *value;

	if (!c.c_name || !admin_inode_arg(arg, rq, rp, &i) ||
	    admin_xattr_is_ours(c.c_name, path, rp) || is_reserved(c.c_name, path, rp))
		return;
	c.c_ino = i.i_ino;
	value = value_arg(rq, rp, &c.c_val.s_len);
	if (!value)
		return;
	c.c_val.s_data = value;
	admin_xattr_change(arg, &c, path, rp);
	free(value);
}

void admin_delete_xattr(void *arg, const struct http_req *rq, struct http_reply *rp)
{
	struct change c = {.c_name = admin_xattr_name_arg(rq, rp), .c_remove = true};
	const char *path = http_arg(rq, "path");
	struct ns_inode i;

	if (!c.c_name || !admin_inode_arg(arg, rq, rp, &i) ||
	    admin_xattr_is_ours(c.c_name, path, rp))
		return;
	c.c_ino = i.i_ino;
	admin_xattr_change(arg, &c, path, rp);
}
