/* SPDX-License-Identifier: Apache-2.0 */
/* ns_check_sum.c - checks the sums of directories and users, and the rows of further names, against
 * all inodes and entries (ns_sum.h). */
#include "mds/namespace/ns_sum_rec.h"
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>

struct sum_check {
	struct kv_txn *k_txn;
	struct ns_sum_walk k_walk;
	void (*k_bad)(void *arg, const char *line);
	void *k_arg;
	struct ns_sum_user *k_user; /* as stored; like w_users of the walk */
	size_t k_at;		    /* w_names that were compared */
	uint64_t k_rows;
};

static void __attribute__((format(printf, 2, 3))) sum_bad(struct sum_check *k, const char *fmt, ...)
{
	char line[512];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(line, sizeof(line), fmt, ap);
	va_end(ap);
	k->k_bad(k->k_arg, line);
}

/* buf: 128 bytes */
static const char *sum_text(const struct ns_sum *s, char *buf)
{
	snprintf(buf, 128, "%ld files, %ld directories, %ld bytes, %ld stored", (long)s->sum_files,
		 (long)s->sum_dirs, (long)s->sum_bytes, (long)s->sum_stored);
	return buf;
}

static int ns_check_sum_each(struct sum_check *k, uint8_t prefix,
			     void (*fn)(struct sum_check *k, struct kv_slice key,
					struct kv_slice val))
{
	struct kv_slice p = ns_slice(&prefix, 1), key, val;
	struct kv_scan sc;
	int rc = kv_scan_begin(k->k_txn, p, p, &sc);

	if (rc)
		return rc;
	while ((rc = kv_scan_next(&sc, &key, &val)) > 0)
		fn(k, key, val);
	kv_scan_end(&sc);
	return rc;
}

/* ---- directories ---- */

static int dir_inode(struct sum_check *k, uint64_t ino, struct ns_inode *i)
{
	uint8_t b[NS_KEY_INODE];
	struct kv_slice val;
	int err = kv_get(k->k_txn, ns_key_ino(b, NS_K_INODE, ino), &val);

	return err ? err : ns_inode_decode(val, ino, i);
}

static struct ns_sum_user *user_find(struct sum_check *k, uint32_t uid)
{
	size_t lo = 0, hi = k->k_walk.w_nusers;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (k->k_walk.w_users[mid].us_uid < uid)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo < k->k_walk.w_nusers && k->k_walk.w_users[lo].us_uid == uid ? &k->k_user[lo]
									      : NULL;
}

static void user_add(struct sum_check *k, uint32_t uid, const struct ns_sum *s)
{
	struct ns_sum_user *u = user_find(k, uid);

	if (u)
		ns_sum_plus(&u->us_sum, s);
}

/* Adds to dr_all of the parent what its sum has counted of a directory. */
static void check_counted(struct sum_check *k, const struct ns_sum_dir *d)
{
	struct ns_sum_dir *up =
		d->dr_ino == NS_ROOT_INO ? NULL : ns_sum_walk_dir(&k->k_walk, d->dr_parent);
	struct ns_sum_user users[NS_SUM_USERS];
	struct ns_sum counted;
	struct ns_inode i;

	if (dir_inode(k, d->dr_ino, &i) || i.i_type != NS_DIR)
		return;
	if (ns_sums_counted(k->k_txn, &i, &counted)) {
		sum_bad(k,
			"directory %lu: its sums wait to be pushed, and the row of what was "
			"counted is missing or damaged",
			(unsigned long)d->dr_ino);
		return;
	}
	if (up)
		ns_sum_plus(&up->dr_all, &counted);
	for (unsigned n = ns_sums_users(&i, users); n--;)
		user_add(k, users[n].us_uid, &users[n].us_sum);
}

static void check_dir_sum(struct sum_check *k, const struct ns_sum_dir *d)
{
	struct ns_sum says, is = d->dr_own;
	char a[128], b[128];
	struct ns_inode i;

	if (dir_inode(k, d->dr_ino, &i) || i.i_type != NS_DIR)
		return;
	says = ns_sums_total(&i);
	ns_sum_plus(&is, &d->dr_all);
	if (!ns_sum_same(&says, &is))
		sum_bad(k, "directory %lu: its sums say %s; what is in it makes %s",
			(unsigned long)d->dr_ino, sum_text(&says, a), sum_text(&is, b));
}

static void check_unpushed(struct sum_check *k, struct kv_slice key, struct kv_slice val)
{
	struct ns_sum counted;
	struct ns_inode i;
	uint64_t ino;

	k->k_rows++;
	if (key.s_len != NS_KEY_INODE || ns_counted_decode(val, &counted)) {
		sum_bad(k, "sums that wait to be pushed: record damaged");
		return;
	}
	ino = ns_get64((const uint8_t *)key.s_data + 1);
	if (dir_inode(k, ino, &i) || i.i_type != NS_DIR)
		sum_bad(k, "sums that wait to be pushed: inode %lu is not a directory",
			(unsigned long)ino);
	else if (!ns_sums_unpushed(&i))
		sum_bad(k, "directory %lu: there is a row of sums to push, and it has none",
			(unsigned long)ino);
}

/* ---- users ---- */

static void check_user_row(struct sum_check *k, struct kv_slice key, struct kv_slice val)
{
	struct ns_sum s;
	uint32_t uid;

	k->k_rows++;
	if (key.s_len != NS_KEY_USER || ns_counted_decode(val, &s)) {
		sum_bad(k, "sums of a user: record damaged");
		return;
	}
	memcpy(&uid, (const uint8_t *)key.s_data + 1, sizeof(uid));
	user_add(k, be32toh(uid), &s);
}

static int check_trash_user(void *arg, uint32_t uid, const struct ns_sum *s)
{
	struct sum_check *k = arg;
	struct ns_sum_user *u = user_find(k, uid);

	k->k_rows++;
	if (!s)
		sum_bad(k, "sums of user %u in the trash: record damaged", uid);
	else if (u)
		u->us_trash = *s;
	return 0;
}

static void check_users(struct sum_check *k)
{
	const struct ns_sum_walk *w = &k->k_walk;
	char a[128], b[128];

	for (size_t n = 0; n < w->w_nusers; n++) {
		const struct ns_sum_user *says = &k->k_user[n], *is = &w->w_users[n];

		if (!ns_sum_same(&says->us_sum, &is->us_sum))
			sum_bad(k, "user %u: the sums say %s; the user's files make %s", is->us_uid,
				sum_text(&says->us_sum, a), sum_text(&is->us_sum, b));
		if (!ns_sum_same(&says->us_trash, &is->us_trash))
			sum_bad(k, "user %u: the sums of the trash say %s; what is in it makes %s",
				is->us_uid, sum_text(&says->us_trash, a),
				sum_text(&is->us_trash, b));
	}
}

/* ---- further names ---- */

static void name_missing(struct sum_check *k, const struct ns_sum_names *nm)
{
	sum_bad(k, "inode %lu: has %u further names in directory %lu, and no row says so",
		(unsigned long)nm->nm_ino, nm->nm_names, (unsigned long)nm->nm_dir);
}

/* Both lists are in the order of their keys. */
static void check_link(struct sum_check *k, struct kv_slice key, struct kv_slice val)
{
	const struct ns_sum_walk *w = &k->k_walk;
	uint64_t ino, dir;
	uint32_t names;

	k->k_rows++;
	if (key.s_len != NS_KEY_LINK || ns_link_decode(val, &names)) {
		sum_bad(k, "further names of a file: record damaged");
		return;
	}
	ino = ns_get64((const uint8_t *)key.s_data + 1);
	dir = ns_get64((const uint8_t *)key.s_data + NS_KEY_INODE);
	while (k->k_at < w->w_nnames &&
	       (w->w_names[k->k_at].nm_ino < ino ||
		(w->w_names[k->k_at].nm_ino == ino && w->w_names[k->k_at].nm_dir < dir)))
		name_missing(k, &w->w_names[k->k_at++]);
	if (k->k_at == w->w_nnames || w->w_names[k->k_at].nm_ino != ino ||
	    w->w_names[k->k_at].nm_dir != dir) {
		sum_bad(k, "inode %lu: a row says %u further names in directory %lu, and has none",
			(unsigned long)ino, names, (unsigned long)dir);
		return;
	}
	if (w->w_names[k->k_at].nm_names != names)
		sum_bad(k, "inode %lu: a row says %u further names in directory %lu, and it has %u",
			(unsigned long)ino, names, (unsigned long)dir,
			w->w_names[k->k_at].nm_names);
	k->k_at++;
}

static void check_strays(struct sum_check *k)
{
	const struct ns_sum_walk *w = &k->k_walk;

	for (size_t n = 0; n < w->w_nstrays; n++)
		sum_bad(k,
			"inode %lu: counts in directory %lu, where it has no name; one is in %lu",
			(unsigned long)w->w_strays[n].sy_ino,
			(unsigned long)w->w_strays[n].sy_parent,
			(unsigned long)w->w_strays[n].sy_dir);
}

static int more_user(void *arg, uint32_t uid, const struct ns_sum *s)
{
	(void)s;
	return ns_sum_walk_user(arg, uid, NULL, NULL);
}

/* Users of which only sums speak: their parts may add up to nothing. */
static int check_more_users(struct sum_check *k)
{
	uint8_t prefix = NS_K_USER;
	struct kv_slice key, val, p = ns_slice(&prefix, 1);
	struct ns_sum_walk *w = &k->k_walk;
	struct ns_sum_user users[NS_SUM_USERS];
	struct kv_scan sc;
	uint32_t uid;
	int rc = 0;

	for (size_t n = 0; n < w->w_ndirs && rc >= 0; n++) {
		struct ns_inode i;

		if (dir_inode(k, w->w_dirs[n].dr_ino, &i) || i.i_type != NS_DIR)
			continue;
		for (unsigned u = ns_sums_users(&i, users); u-- && !rc;)
			rc = ns_sum_walk_user(w, users[u].us_uid, NULL, NULL);
	}
	if (!rc)
		rc = kv_scan_begin(k->k_txn, p, p, &sc);
	if (rc)
		return rc;
	while ((rc = kv_scan_next(&sc, &key, &val)) > 0) {
		if (key.s_len != NS_KEY_USER)
			continue;
		memcpy(&uid, (const uint8_t *)key.s_data + 1, sizeof(uid));
		rc = ns_sum_walk_user(w, be32toh(uid), NULL, NULL);
		if (rc)
			break;
	}
	kv_scan_end(&sc);
	return rc < 0 ? rc : ns_trash_users(k->k_txn, more_user, w);
}

int ns_check_sums(struct kv_txn *t, void (*bad)(void *arg, const char *line), void *arg,
		  uint64_t *rows)
{
	struct sum_check k = {.k_txn = t, .k_walk = {.w_txn = t}, .k_bad = bad, .k_arg = arg};
	struct ns_sum_walk *w = &k.k_walk;
	int err = ns_sum_walk(w);

	if (!err)
		err = check_more_users(&k);
	if (!err) {
		k.k_user = calloc(w->w_nusers + 1, sizeof(*k.k_user));
		err = k.k_user ? 0 : -ENOMEM;
	}
	if (!err) {
		check_strays(&k);
		for (size_t n = 0; n < w->w_ndirs; n++)
			check_counted(&k, &w->w_dirs[n]);
		for (size_t n = 0; n < w->w_ndirs; n++)
			check_dir_sum(&k, &w->w_dirs[n]);
		err = ns_check_sum_each(&k, NS_K_UNPUSHED, check_unpushed);
	}
	if (!err)
		err = ns_check_sum_each(&k, NS_K_USER, check_user_row);
	if (!err)
		err = ns_check_sum_each(&k, NS_K_LINK, check_link);
	if (!err)
		err = ns_trash_users(t, check_trash_user, &k);
	if (!err) {
		check_users(&k);
		while (k.k_at < w->w_nnames)
			name_missing(&k, &w->w_names[k.k_at++]);
	}
	*rows = k.k_rows;
	free(k.k_user);
	ns_sum_walk_free(w);
	return err;
}
