/* SPDX-License-Identifier: Apache-2.0 */
/* admin_trash.c - the trash over the API: what is in it, restore, and empty (docs/trash.md). */
#include "mds/admin/admin_holders.h"
#include "mds/file/file.h"
#include "mds/jobs/revoke_exports.h"
#include "mds/jobs/trash.h"
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <urcu/compiler.h>

#define ROWS	     1000
#define ROWS_MOST    10000
#define LOOK_ENTRIES 50000  /* that one request looks at */
#define PATHS_BUDGET 300000 /* directory entries that are read to find paths */
#define PATH_LEN     4096

/* ---- list ---- */

struct trash_listing {
	struct ns *tl_ns;
	struct kv_txn *tl_txn;
	struct ns_trash_top tl_top;
	int64_t tl_most;
	unsigned tl_budget, tl_looked;
	json_t *tl_list;
	struct ns_trash_at tl_at;
	bool tl_more;
	/* of the directory of the last entry; tl_dir 0: none yet */
	uint64_t tl_dir;
	bool tl_known;
	char tl_path[PATH_LEN];
};

/* Puts the path of a directory, which may be in the trash, into out. False: it is not known. */
static bool trash_dir_path(struct trash_listing *l, uint64_t dir, char out[PATH_LEN])
{
	char below[PATH_LEN] = "", longer[PATH_LEN];
	struct ns_trash e;
	int err;

	while ((err = ns_trash_get(l->tl_txn, dir, &e)) == 0) {
		if ((size_t)snprintf(longer, sizeof(longer), "/%.*s%s", (int)e.tr_len, e.tr_name,
				     below) >= sizeof(longer))
			return false;
		strcpy(below, longer);
		dir = e.tr_parent;
	}
	if (err != -ENOENT ||
	    ns_path_of(l->tl_ns, l->tl_txn, dir, &l->tl_budget, longer, sizeof(longer)))
		return false;
	return (size_t)snprintf(out, PATH_LEN, "%s%s", strcmp(longer, "/") ? longer : "", below) <
	       PATH_LEN;
}

static json_t *trash_path(struct trash_listing *l, const struct ns_trash *e)
{
	char path[PATH_LEN + NS_NAME_MAX + 2];

	if (l->tl_dir != e->tr_parent) {
		l->tl_dir = e->tr_parent;
		l->tl_known = trash_dir_path(l, e->tr_parent, l->tl_path);
	}
	if (!l->tl_known)
		return json_null();
	snprintf(path, sizeof(path), "%s/%.*s", l->tl_path, (int)e->tr_len, e->tr_name);
	return admin_text(path, strlen(path));
}

static int admin_trash_row(void *arg, const struct ns_trash *e)
{
	static const char *const type[] = {
		[NS_REG] = "file", [NS_DIR] = "directory", [NS_LNK] = "symlink"};
	struct trash_listing *l = arg;
	struct ns_inode i;
	bool reg = e->tr_type == NS_REG;
	int below;

	if ((int64_t)json_array_size(l->tl_list) == l->tl_most || l->tl_looked++ == LOOK_ENTRIES) {
		l->tl_more = true;
		return 1;
	}
	if (e->tr_damaged) /* its event says so */
		return 0;
	l->tl_at = ns_trash_at(e);
	below = ns_trash_below(l->tl_ns, l->tl_txn, e->tr_ino, &l->tl_top);
	if (below <= 0)
		return below;
	json_array_append_new(
		l->tl_list,
		json_pack("{s:I, s:o, s:o, s:s, s:o, s:o, s:f, s:I, s:I}", "id",
			  (json_int_t)e->tr_ino, "path", trash_path(l, e), "name",
			  admin_text(e->tr_name, e->tr_len), "type", type[e->tr_type], "size_bytes",
			  reg && !ns_get(l->tl_ns, l->tl_txn, e->tr_ino, &i)
				  ? json_integer((json_int_t)i.i_size)
				  : json_null(),
			  "used_bytes", reg ? json_integer((json_int_t)e->tr_bytes) : json_null(),
			  "removed_at", (double)e->tr_removed / NS_TRASH_SECOND, "expires_at",
			  (json_int_t)e->tr_expires, "uid", (json_int_t)e->tr_uid));
	return 0;
}

/* Where a list goes on: what the one before said in next. */
static bool trash_after(const struct http_req *rq, struct http_reply *rp, struct ns_trash_at *at)
{
	uint64_t *const part[] = {&at->ta_dir, &at->ta_hash, &at->ta_removed, &at->ta_ino};
	const char *p = http_arg(rq, "after");
	char *end;

	for (unsigned k = 0; p && k < 4; k++) {
		*part[k] = strtoull(p, &end, 10);
		if (!isdigit((unsigned char)*p) || *end != (k < 3 ? '.' : 0)) {
			admin_reply_error(rp, 400, "after: expected what \"next\" said");
			return false;
		}
		p = end + 1;
	}
	return true;
}

void admin_get_trash(void *arg, const struct http_req *rq, struct http_reply *rp)
{
	struct admin *a = arg;
	const char *path = http_arg(rq, "path") ? admin_path_arg(rq, rp) : "/";
	struct trash_listing *l = calloc(1, sizeof(*l));
	struct ns_trash_sums sums = {.ts_entries = 0};
	char next[96];
	int err;

	if (!l)
		admin_reply_error(rp, 500, "out of memory");
	if (!l || !path || !trash_after(rq, rp, &l->tl_at) ||
	    (l->tl_most = admin_number_arg(rq, rp, "limit", 1, ROWS_MOST, ROWS)) < 0)
		goto out;
	l->tl_ns = a->a_ops.ao_ns;
	l->tl_budget = PATHS_BUDGET;
	l->tl_list = json_array();
	err = kv_read_begin(ns_kv(l->tl_ns), &l->tl_txn);
	if (!err) {
		err = ns_trash_path(l->tl_ns, l->tl_txn, path, &l->tl_top);
		if (!err)
			err = ns_trash_sums(l->tl_txn, &sums);
		if (!err)
			err = ns_trash_each(l->tl_txn, &l->tl_at, admin_trash_row, l);
		kv_read_end(l->tl_txn);
	}
	if (err) {
		json_decref(l->tl_list);
		admin_reply_errno(rp, err, path);
		goto out;
	}
	snprintf(next, sizeof(next), "%lu.%lu.%lu.%lu", (unsigned long)l->tl_at.ta_dir,
		 (unsigned long)l->tl_at.ta_hash, (unsigned long)l->tl_at.ta_removed,
		 (unsigned long)l->tl_at.ta_ino);
	admin_reply_json(rp, 200,
			 json_pack("{s:I, s:I, s:o, s:o}", "total_entries",
				   (json_int_t)sums.ts_entries, "total_bytes",
				   (json_int_t)sums.ts_bytes, "entries", l->tl_list, "next",
				   l->tl_more ? json_string(next) : json_null()));
out:
	free(l);
}

/* ---- restore of one ---- */

struct trash_restore {
	struct kv_op rs_op;
	struct admin *rs_a;
	const char *rs_path, *rs_to; /* path NULL: rs_ino; to NULL: where it was */
	uint64_t rs_ino;
	struct ns_trash_back rs_back;
	bool rs_no_to;
	struct admin_wait rs_wait;
};

/* W: the directory and the name that rs_to stands for. */
static int restore_to(struct trash_restore *rs, struct kv_txn *t, const struct ns_trash *e,
		      uint64_t *dir, char name[NS_NAME_MAX + 1], size_t *len)
{
	struct ns *ns = rs->rs_a->a_ops.ao_ns;
	const char *last = strrchr(rs->rs_to, '/');
	char parent[PATH_LEN];
	struct ns_inode i;
	int err = ns_path(ns, t, rs->rs_to, dir);

	if (!err)
		err = ns_get(ns, t, *dir, &i);
	if (!err && i.i_type != NS_DIR)
		return -EEXIST;
	if (!err) { /* into this directory */
		*len = e->tr_len;
		memcpy(name, e->tr_name, e->tr_len);
		return 0;
	}
	if (err != -ENOENT || strlen(last + 1) > NS_NAME_MAX ||
	    (size_t)(last - rs->rs_to) >= sizeof(parent))
		return err;
	*len = strlen(last + 1);
	memcpy(name, last + 1, *len);
	snprintf(parent, sizeof(parent), "%.*s", last == rs->rs_to ? 1 : (int)(last - rs->rs_to),
		 rs->rs_to);
	return ns_path(ns, t, parent, dir);
}

static int trash_restore_run(struct kv_op *op, struct kv_txn *t)
{
	struct trash_restore *rs = caa_container_of(op, struct trash_restore, rs_op);
	struct ns *ns = rs->rs_a->a_ops.ao_ns;
	char name[NS_NAME_MAX + 1];
	struct ns_trash_top top;
	struct ns_trash e;
	uint64_t dir = 0;
	size_t len = 0;
	int err = rs->rs_path ? ns_trash_path(ns, t, rs->rs_path, &top) : 0;

	if (!err && rs->rs_path)
		rs->rs_ino = top.tp_ino;
	if (!err)
		err = ns_trash_get(t, rs->rs_ino, &e);
	if (err)
		return err;
	if (rs->rs_to) {
		err = restore_to(rs, t, &e, &dir, name, &len);
		rs->rs_no_to = err && err != -EEXIST;
		if (!err)
			err = job_revocation_stays(rs->rs_a->a_ops.ao_mds, t, e.tr_parent, dir);
		if (err)
			return err;
	}
	return ns_trash_restore(ns, t, rs->rs_ino, dir, name, len, file_now(), &rs->rs_back);
}

static void trash_restore_done(struct kv_op *op, int err)
{
	struct trash_restore *rs = caa_container_of(op, struct trash_restore, rs_op);

	admin_wait_done(&rs->rs_wait, err);
}

static void restore_failed(const struct trash_restore *rs, int err, struct http_reply *rp)
{
	const char *what = rs->rs_path ? rs->rs_path : "this id", *to = rs->rs_to;

	if (rs->rs_no_to && err != -EAGAIN)
		admin_reply_error(rp, 404, "%s: no such directory", to);
	else if (err == -ENOENT)
		admin_reply_error(rp, 404, "%s: not in the trash", what);
	else if (err == -EEXIST)
		admin_reply_error(rp, 409, "%s: the name exists", to ? to : what);
	else if (err == -ENOTDIR)
		admin_reply_error(rp, 409, "%s: a directory of its path is a file now", what);
	else if (err == -ESTALE)
		admin_reply_error(rp, 409,
				  "%s: the directory it was in is gone; \"to\" says where it goes",
				  what);
	else if (err == -EAGAIN)
		admin_reply_error(rp, 409, "%s: the exports were just changed; try again", what);
	else
		admin_reply_error(rp, 500, "%s: %s", what, strerror(-err));
}

/* The path of what is there now. */
static json_t *restored_path(struct admin *a, const struct trash_restore *rs)
{
	unsigned budget = PATHS_BUDGET;
	struct kv_txn *t;
	json_t *path;

	if (kv_read_begin(ns_kv(a->a_ops.ao_ns), &t))
		return json_null();
	path = admin_path_json(a, t, rs->rs_ino, &budget);
	kv_read_end(t);
	return path;
}

static void admin_trash_restore_one(struct admin *a, struct trash_restore *rs,
				    struct http_reply *rp)
{
	int err;

	rs->rs_a = a;
	/* On the committer: the loops may have stopped. */
	rs->rs_op = (struct kv_op){.o_run = trash_restore_run, .o_done = trash_restore_done};
	admin_wait_init(&rs->rs_wait);
	kv_submit(ns_kv(a->a_ops.ao_ns), &rs->rs_op);
	err = admin_wait_end(&rs->rs_wait);
	if (err)
		restore_failed(rs, err, rp);
	else
		admin_reply_json(rp, 200,
				 json_pack("{s:I, s:o, s:n}", "id", (json_int_t)rs->rs_ino, "path",
					   restored_path(a, rs), "job"));
}

/* ---- jobs ---- */

struct trash_begin {
	struct job_trash_ask tb_ask;
	struct admin_wait tb_wait;
};

static void trash_begun(struct job_trash_ask *ta, int err)
{
	admin_wait_done(&caa_container_of(ta, struct trash_begin, tb_ask)->tb_wait, err);
}

static void trash_begin(struct admin *a, const char *path, bool restores, uint64_t before,
			struct http_reply *rp)
{
	struct trash_begin tb = {
		.tb_ask = {.ta_restores = restores, .ta_before = before, .ta_done = trash_begun}};
	struct kv_txn *t;
	int err = kv_read_begin(ns_kv(a->a_ops.ao_ns), &t);

	if (!err) {
		err = ns_trash_path(a->a_ops.ao_ns, t, path, &tb.tb_ask.ta_top);
		kv_read_end(t);
	}
	if (err) {
		admin_reply_errno(rp, err, path);
		return;
	}
	admin_wait_init(&tb.tb_wait);
	job_trash_ask(a->a_ops.ao_mds, &tb.tb_ask);
	err = admin_wait_end(&tb.tb_wait);
	if (err == -EBUSY)
		admin_reply_error(rp, 409, "%d jobs about the trash run or wait already",
				  JOB_TRASH_MOST);
	else if (err)
		admin_reply_errno(rp, err, path);
	else
		admin_reply_json(rp, 200,
				 json_pack("{s:n, s:o, s:o}", "id", "path",
					   admin_text(path, strlen(path)), "job",
					   admin_job_json(tb.tb_ask.ta_job)));
}

void admin_put_trash_restore(void *arg, const struct http_req *rq, struct http_reply *rp)
{
	struct trash_restore rs = {.rs_to = http_arg(rq, "to")};
	int64_t id = admin_number_arg(rq, rp, "id", 1, INT64_MAX, 0);
	bool recursive = http_arg(rq, "recursive");

	if (id < 0)
		return;
	if (!http_arg(rq, "path") == !id) {
		admin_reply_error(rp, 400, "expected path or id, one of them");
		return;
	}
	if (!id && !(rs.rs_path = admin_path_arg(rq, rp)))
		return;
	if (rs.rs_to && rs.rs_to[0] != '/') {
		admin_reply_error(rp, 400, "to: expected an absolute path");
		return;
	}
	if (recursive && (id || rs.rs_to)) {
		admin_reply_error(rp, 400, "recursive: takes a path, and neither id nor to");
		return;
	}
	rs.rs_ino = (uint64_t)id;
	if (recursive)
		trash_begin(arg, rs.rs_path, true, UINT64_MAX, rp);
	else
		admin_trash_restore_one(arg, &rs, rp);
}

void admin_delete_trash(void *arg, const struct http_req *rq, struct http_reply *rp)
{
	const char *path = http_arg(rq, "path") ? admin_path_arg(rq, rp) : "/";
	int64_t older = admin_number_arg(rq, rp, "older_s", 0, UINT32_MAX, 0);

	if (path && older >= 0)
		trash_begin(arg, path, false, (uint64_t)(file_now().t_sec - older), rp);
}
