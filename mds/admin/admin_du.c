/* SPDX-License-Identifier: Apache-2.0 */
/* admin_du.c - how much is below a directory, and what each user has, over the API. All of an
 * answer is from one snapshot of the store (mds/namespace/ns_sum.h). */
#include "mds/admin/admin_holders.h"
#include "mds/namespace/ns_sum.h"
#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define DU_DEPTH_MOST	16
#define DU_ROWS_MOST	10000
#define DU_ENTRIES_MOST 200000u /* entries that are looked at for directories */
#define DU_WRITING_MOST 2000u /* files with a mark; of more it is not said whether they are below */
#define DU_UP_MOST	4096u

struct du_row {
	char *dur_path;
	uint64_t dur_ino;
	unsigned dur_depth;
	struct ns_sum dur_sum;
};

struct du_ask {
	struct ns *dua_ns;
	struct kv_txn *dua_txn;
	struct ns_du *dua_du;
	struct du_row *dua_rows;
	size_t dua_n, dua_cap;
	unsigned dua_looked;
	bool dua_cut; /* there may be more directories */
	int dua_err;
};

/* Puts the four figures; of damaged sums null, with the reason. others: the object's other figures
 * are not damaged. */
static void sum_json(json_t *o, const struct ns_sum *s, bool others)
{
	static const char *const name[] = {"files", "directories", "logical_bytes", "stored_bytes"};
	const uint64_t v[] = {s->sum_files, s->sum_dirs, s->sum_bytes, s->sum_stored};
	bool sane = ns_sum_sane(s);

	for (unsigned k = 0; k < 4; k++)
		json_object_set_new(o, name[k],
				    sane ? json_integer((json_int_t)v[k]) : json_null());
	json_object_set_new(
		o, "reason",
		sane && others
			? json_null()
			: json_string("the sums in the store are damaged: stop weft-mds, and run "
				      "weft-fsck --rebuild-sums"));
}

/* ---- the directories below ---- */

struct du_level {
	struct du_ask *dul_a;
	const char *dul_path; /* without a slash at its end */
	unsigned dul_depth;
	struct du_row *dul_rows; /* of this level */
	size_t dul_n, dul_cap;
};

static char *admin_du_join(const char *path, const char *name, size_t len)
{
	size_t n = strlen(path);
	char *out = malloc(n + len + 2);

	if (!out)
		return NULL;
	memcpy(out, path, n);
	out[n] = '/';
	memcpy(out + n + 1, name, len);
	out[n + 1 + len] = 0;
	return out;
}

/* The record of a directory below is damaged, or gone. */
static bool is_damage(int err)
{
	return err == -EIO || err == -ESTALE;
}

static int du_entry(void *arg, const struct ns_dirent *d)
{
	struct du_level *v = arg;
	struct du_ask *a = v->dul_a;
	struct du_row r = {.dur_ino = d->d_ino, .dur_depth = v->dul_depth}, *more;

	if (++a->dua_looked > DU_ENTRIES_MOST) {
		a->dua_cut = true;
		return 1;
	}
	if (d->d_type != NS_DIR)
		return 0;
	if (a->dua_n + v->dul_n >= DU_ROWS_MOST) {
		a->dua_cut = true;
		return 1;
	}
	a->dua_err = ns_du_get(a->dua_du, d->d_ino, &r.dur_sum);
	if (is_damage(a->dua_err)) {
		r.dur_sum = NS_SUM_UNKNOWN;
		a->dua_err = 0;
	}
	if (a->dua_err)
		return a->dua_err;
	if (v->dul_n == v->dul_cap) {
		size_t cap = v->dul_cap ? 2 * v->dul_cap : 64;

		more = reallocarray(v->dul_rows, cap, sizeof(*more));
		if (!more)
			return a->dua_err = -ENOMEM;
		v->dul_rows = more;
		v->dul_cap = cap;
	}
	r.dur_path = admin_du_join(v->dul_path, d->d_name, d->d_len);
	if (!r.dur_path)
		return a->dua_err = -ENOMEM;
	v->dul_rows[v->dul_n++] = r;
	return 0;
}

static int du_keep(struct du_ask *a, const struct du_row *r)
{
	if (a->dua_n == a->dua_cap) {
		size_t cap = a->dua_cap ? 2 * a->dua_cap : 64;
		struct du_row *more = reallocarray(a->dua_rows, cap, sizeof(*more));

		if (!more)
			return -ENOMEM;
		a->dua_rows = more;
		a->dua_cap = cap;
	}
	a->dua_rows[a->dua_n++] = *r;
	return 0;
}

/* Level by level: where not all fit, those near the top are there. */
static void du_below(struct du_ask *a, const char *path, uint64_t ino, unsigned depth)
{
	size_t from = 0, to;

	for (unsigned k = 1; k <= depth && !a->dua_err && !a->dua_cut; k++) {
		to = a->dua_n;
		for (size_t at = from; (k == 1 || at < to) && !a->dua_err && !a->dua_cut; at++) {
			struct du_level v = {.dul_a = a, .dul_depth = k};
			bool eof;
			int err;

			v.dul_path = k == 1 ? path : a->dua_rows[at].dur_path;
			err = ns_readdir(a->dua_ns, a->dua_txn,
					 k == 1 ? ino : a->dua_rows[at].dur_ino, 0, du_entry, &v,
					 &eof);
			for (size_t n = 0; n < v.dul_n; n++) {
				if (!err)
					err = du_keep(a, &v.dul_rows[n]);
				if (err)
					free(v.dul_rows[n].dur_path);
			}
			free(v.dul_rows);
			if (k > 1 && is_damage(err))
				err = 0;
			a->dua_err = err < 0 ? err : a->dua_err;
			if (k == 1)
				break;
		}
		from = to;
	}
}

static int du_larger(const void *x, const void *y)
{
	const struct du_row *a = x, *b = y;

	if (a->dur_sum.sum_stored != b->dur_sum.sum_stored)
		return a->dur_sum.sum_stored > b->dur_sum.sum_stored ? -1 : 1;
	if (a->dur_sum.sum_files != b->dur_sum.sum_files)
		return a->dur_sum.sum_files > b->dur_sum.sum_files ? -1 : 1;
	return strcmp(a->dur_path, b->dur_path);
}

static json_t *du_rows_json(struct du_ask *a, size_t most)
{
	json_t *list = json_array(), *o;

	if (a->dua_n)
		qsort(a->dua_rows, a->dua_n, sizeof(*a->dua_rows), du_larger);
	for (size_t k = 0; k < a->dua_n && k < most; k++) {
		const struct du_row *r = &a->dua_rows[k];

		o = json_pack("{s:o, s:I, s:i}", "path",
			      admin_text(r->dur_path, strlen(r->dur_path)), "inode",
			      (json_int_t)r->dur_ino, "depth", (int)r->dur_depth);
		if (o)
			sum_json(o, &r->dur_sum, true);
		json_array_append_new(list, o);
	}
	return list;
}

/* ---- files that are being written ---- */

struct du_writing {
	struct du_ask *duw_a;
	uint64_t duw_top;
	unsigned duw_looked, duw_below;
};

static bool is_below(struct du_ask *a, uint64_t ino, uint64_t top)
{
	struct ns_inode i;

	for (unsigned up = 0; up < DU_UP_MOST; up++) {
		if (ino == top)
			return true;
		if (ino == NS_ROOT_INO || ns_get(a->dua_ns, a->dua_txn, ino, &i) || !i.i_nlink)
			return false;
		ino = i.i_parent;
	}
	return false;
}

static int du_mark(void *arg, struct kv_slice id, struct kv_slice val)
{
	struct du_writing *w = arg;
	uint64_t ino;

	(void)val;
	if (id.s_len != sizeof(ino))
		return 0;
	if (++w->duw_looked > DU_WRITING_MOST)
		return 1;
	memcpy(&ino, id.s_data, sizeof(ino));
	w->duw_below += is_below(w->duw_a, be64toh(ino), w->duw_top);
	return 0;
}

/* Files whose size the server may not know exactly; null: too many to look at. */
static json_t *writing_json(struct du_ask *a, uint64_t top)
{
	struct du_writing w = {.duw_a = a, .duw_top = top};
	int err = ns_rows(a->dua_txn, NS_T_WRITE_INTENT, "", 0, du_mark, &w);

	return err || w.duw_looked > DU_WRITING_MOST ? json_null() : json_integer(w.duw_below);
}

/* ---- requests ---- */

static json_t *du_answer(struct du_ask *a, const char *path, uint64_t ino, unsigned depth,
			 size_t most)
{
	struct ns_sum sum;
	struct ns_inode i;
	json_t *o, *list, *writing;
	size_t n = strlen(path);
	char *shown = strdup(path);

	a->dua_err = shown ? ns_get(a->dua_ns, a->dua_txn, ino, &i) : -ENOMEM;
	if (!a->dua_err)
		a->dua_err = ns_du_get(a->dua_du, ino, &sum);
	while (shown && n > 0 && shown[n - 1] == '/')
		shown[--n] = 0;
	if (!a->dua_err && i.i_type == NS_DIR)
		du_below(a, shown, ino, depth);
	if (a->dua_err) {
		free(shown);
		return NULL;
	}
	writing = writing_json(a, ino);
	list = du_rows_json(a, most);
	o = json_pack("{s:o, s:I, s:s, s:o, s:o, s:o, s:b}", "path",
		      admin_text(n ? shown : "/", n ? n : 1), "inode", (json_int_t)ino, "type",
		      i.i_type == NS_DIR ? "directory" : "file", "writing_files", writing, "exact",
		      json_is_null(writing) ? json_null()
					    : json_boolean(json_integer_value(writing) == 0),
		      "below", list, "cut", a->dua_cut || a->dua_n > most);
	if (o)
		sum_json(o, &sum, true);
	free(shown);
	return o;
}

void admin_get_du(void *arg, const struct http_req *rq, struct http_reply *rp)
{
	struct du_ask a = {.dua_ns = ((struct admin *)arg)->a_ops.ao_ns};
	int64_t depth = admin_number_arg(rq, rp, "depth", 0, DU_DEPTH_MOST, 0), rows;
	const char *path;
	json_t *answer = NULL;
	uint64_t ino;

	if (depth < 0)
		return;
	rows = admin_number_arg(rq, rp, "rows", 1, DU_ROWS_MOST, 1000);
	path = rows < 0 ? NULL : admin_path_arg(rq, rp);
	if (!path)
		return;
	a.dua_err = kv_read_begin(ns_kv(a.dua_ns), &a.dua_txn);
	if (!a.dua_err) {
		a.dua_err = ns_path(a.dua_ns, a.dua_txn, path, &ino);
		if (!a.dua_err)
			a.dua_err = ns_du_begin(&a.dua_du, a.dua_ns, a.dua_txn);
		if (!a.dua_err)
			answer = du_answer(&a, path, ino, (unsigned)depth, (size_t)rows);
		if (a.dua_du)
			ns_du_end(a.dua_du);
		kv_read_end(a.dua_txn);
	}
	if (a.dua_err)
		admin_reply_errno(rp, a.dua_err, path);
	else
		admin_reply_json(rp, 200, answer);
	for (size_t k = 0; k < a.dua_n; k++)
		free(a.dua_rows[k].dur_path);
	free(a.dua_rows);
}

struct du_user {
	uint32_t duu_uid;
	struct ns_sum duu_sum, duu_trash; /* duu_trash: besides */
};
struct du_users {
	struct du_user *dus_v;
	size_t dus_n, dus_cap;
};

static int du_user_add(void *arg, uint32_t uid, const struct ns_sum *s, const struct ns_sum *trash)
{
	struct du_users *u = arg;

	if (u->dus_n == u->dus_cap) {
		size_t cap = u->dus_cap ? 2 * u->dus_cap : 256;
		struct du_user *more = reallocarray(u->dus_v, cap, sizeof(*more));

		if (!more)
			return -ENOMEM;
		u->dus_v = more;
		u->dus_cap = cap;
	}
	u->dus_v[u->dus_n++] = (struct du_user){.duu_uid = uid, .duu_sum = *s, .duu_trash = *trash};
	return 0;
}

/* What is not known comes first: no cut hides it. */
static uint64_t user_room(const struct du_user *u)
{
	return ns_sum_sane(&u->duu_sum) && ns_sum_sane(&u->duu_trash)
		       ? u->duu_sum.sum_stored + u->duu_trash.sum_stored
		       : UINT64_MAX;
}

static int user_larger(const void *x, const void *y)
{
	const struct du_user *a = x, *b = y;
	uint64_t room = user_room(a), other = user_room(b);

	if (room != other)
		return room > other ? -1 : 1;
	if (a->duu_sum.sum_files != b->duu_sum.sum_files)
		return a->duu_sum.sum_files > b->duu_sum.sum_files ? -1 : 1;
	return a->duu_uid < b->duu_uid ? -1 : a->duu_uid > b->duu_uid;
}

static void du_users_reply(struct du_users *u, size_t most, struct http_reply *rp)
{
	json_t *list = json_array(), *o;

	if (u->dus_n)
		qsort(u->dus_v, u->dus_n, sizeof(*u->dus_v), user_larger);
	for (size_t k = 0; k < u->dus_n && k < most; k++) {
		const struct ns_sum *trash = &u->dus_v[k].duu_trash;
		bool sane = ns_sum_sane(trash);

		o = json_pack("{s:I, s:o, s:o}", "uid", (json_int_t)u->dus_v[k].duu_uid,
			      "trash_files",
			      sane ? json_integer((json_int_t)trash->sum_files) : json_null(),
			      "trash_stored_bytes",
			      sane ? json_integer((json_int_t)trash->sum_stored) : json_null());
		if (o)
			sum_json(o, &u->dus_v[k].duu_sum, sane);
		json_array_append_new(list, o);
	}
	admin_reply_json(rp, 200,
			 json_pack("{s:o, s:I}", "users", list, "total", (json_int_t)u->dus_n));
}

void admin_get_du_users(void *arg, const struct http_req *rq, struct http_reply *rp)
{
	int64_t rows = admin_number_arg(rq, rp, "rows", 1, DU_ROWS_MOST, 1000);
	struct ns *ns = ((struct admin *)arg)->a_ops.ao_ns;
	struct du_users u = {.dus_n = 0};
	struct ns_du *du = NULL;
	struct kv_txn *t;
	int err;

	if (rows < 0)
		return;
	err = kv_read_begin(ns_kv(ns), &t);
	if (!err) {
		err = ns_du_begin(&du, ns, t);
		if (!err)
			err = ns_du_users(du, du_user_add, &u);
		if (du)
			ns_du_end(du);
		kv_read_end(t);
	}
	if (err)
		admin_reply_error(rp, 500, "the sums of users: %s", strerror(-err));
	else
		du_users_reply(&u, (size_t)rows, rp);
	free(u.dus_v);
}
