/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ns_sum_walk.c - finds out of all inodes and entries of a snapshot what the sums stand for
 * (ns_sum.h). Needs about 80 bytes of memory for each directory.
 *
 * The first pass reads the inodes: the directories, and what each user has. The second reads the
 * entries, with the inode of each: what is in each directory itself. Files with several names are
 * put aside until all of their names are known. The third reads the trash: what of each user's is
 * there.
 */
#include "mds/namespace/ns_sum_rec.h"
#include "base/clock.h"
#include "mds/namespace/ns_trash.h"
#include <errno.h>
#include <stdlib.h>

#define SAY_EVERY_NS 5000000000u

/* Makes room for one more element. */
static int grow(void **v, size_t n, size_t *cap, size_t size)
{
	size_t more = *cap ? *cap * 2 : 256;
	void *p;

	if (n < *cap)
		return 0;
	p = reallocarray(*v, more, size);
	if (!p)
		return -ENOMEM;
	*v = p;
	*cap = more;
	return 0;
}

static void progress(struct ns_sum_walk *w, const char *what)
{
	char line[128];

	if (++w->w_rows % 4096 || !w->w_say || clock_mono_ns() < w->w_said_ns + SAY_EVERY_NS)
		return;
	w->w_said_ns = clock_mono_ns();
	snprintf(line, sizeof(line), "counts what is below each directory: %lu %s read",
		 (unsigned long)w->w_rows, what);
	w->w_say(line);
}

int ns_sum_walk_user(struct ns_sum_walk *w, uint32_t uid, const struct ns_sum *s,
		     const struct ns_sum *trash)
{
	size_t lo = 0, hi = w->w_nusers;
	int err;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (w->w_users[mid].us_uid < uid)
			lo = mid + 1;
		else
			hi = mid;
	}
	if (lo == w->w_nusers || w->w_users[lo].us_uid != uid) {
		err = grow((void **)&w->w_users, w->w_nusers, &w->w_users_cap, sizeof(*w->w_users));
		if (err)
			return err;
		memmove(&w->w_users[lo + 1], &w->w_users[lo],
			(w->w_nusers - lo) * sizeof(*w->w_users));
		w->w_users[lo] = (struct ns_sum_user){.us_uid = uid};
		w->w_nusers++;
	}
	if (s)
		ns_sum_plus(&w->w_users[lo].us_sum, s);
	if (trash)
		ns_sum_plus(&w->w_users[lo].us_trash, trash);
	return 0;
}

static int walk_inode(struct ns_sum_walk *w, const struct ns_inode *i)
{
	struct ns_sum s = ns_sum_of(i);
	int err;

	if (i->i_type == NS_DIR) {
		err = grow((void **)&w->w_dirs, w->w_ndirs, &w->w_dirs_cap, sizeof(*w->w_dirs));
		if (err)
			return err;
		w->w_dirs[w->w_ndirs++] =
			(struct ns_sum_dir){.dr_ino = i->i_ino, .dr_parent = i->i_parent};
	}
	return i->i_ino == NS_ROOT_INO || !i->i_nlink ? 0 : ns_sum_walk_user(w, i->i_uid, &s, NULL);
}

static int walk_inodes(struct ns_sum_walk *w)
{
	uint8_t prefix = NS_K_INODE;
	struct kv_slice key, val, p = ns_slice(&prefix, 1);
	struct ns_inode i;
	struct kv_scan sc;
	int rc = kv_scan_begin(w->w_txn, p, p, &sc);

	if (rc)
		return rc;
	while ((rc = kv_scan_next(&sc, &key, &val)) > 0) {
		progress(w, "inodes");
		if (key.s_len != NS_KEY_INODE ||
		    ns_inode_decode(val, ns_get64((const uint8_t *)key.s_data + 1), &i)) {
			w->w_damaged++; /* the checker reports it */
			continue;
		}
		rc = walk_inode(w, &i);
		if (rc)
			break;
	}
	kv_scan_end(&sc);
	return rc;
}

struct ns_sum_dir *ns_sum_walk_dir(const struct ns_sum_walk *w, uint64_t ino)
{
	size_t lo = 0, hi = w->w_ndirs;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (w->w_dirs[mid].dr_ino < ino)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo < w->w_ndirs && w->w_dirs[lo].dr_ino == ino ? &w->w_dirs[lo] : NULL;
}

static int inode_get(struct kv_txn *t, uint64_t ino, struct ns_inode *i)
{
	uint8_t k[NS_KEY_INODE];
	struct kv_slice val;
	int err = kv_get(t, ns_key_ino(k, NS_K_INODE, ino), &val);

	return err ? err : ns_inode_decode(val, ino, i);
}

static int stray_add(struct ns_sum_walk *w, const struct ns_inode *i, uint64_t dir)
{
	int err = grow((void **)&w->w_strays, w->w_nstrays, &w->w_strays_cap, sizeof(*w->w_strays));

	if (!err)
		w->w_strays[w->w_nstrays++] = (struct ns_sum_stray){
			.sy_ino = i->i_ino, .sy_parent = i->i_parent, .sy_dir = dir};
	return err;
}

static int walk_entry(struct ns_sum_walk *w, struct ns_sum_dir *d, const struct ns_inode *i)
{
	struct ns_sum s = ns_sum_of(i);
	int err;

	if (i->i_type == NS_DIR || i->i_nlink == 1) {
		ns_sum_plus(&d->dr_own, &s);
		return i->i_type == NS_DIR || i->i_parent == d->dr_ino ? 0
								       : stray_add(w, i, d->dr_ino);
	}
	err = grow((void **)&w->w_names, w->w_nnames, &w->w_names_cap, sizeof(*w->w_names));
	if (!err)
		w->w_names[w->w_nnames++] = (struct ns_sum_names){
			.nm_ino = i->i_ino, .nm_dir = d->dr_ino, .nm_names = 1};
	return err;
}

static int walk_entries(struct ns_sum_walk *w)
{
	uint8_t prefix = NS_K_DIRENT;
	struct kv_slice key, val, p = ns_slice(&prefix, 1);
	struct ns_sum_dir *d = NULL;
	struct ns_dirent de;
	struct ns_inode i;
	struct kv_scan sc;
	uint64_t dir;
	int rc = kv_scan_begin(w->w_txn, p, p, &sc);

	if (rc)
		return rc;
	while ((rc = kv_scan_next(&sc, &key, &val)) > 0) {
		progress(w, "inodes and entries");
		if (ns_dirent_decode(key, val, &dir, &de)) {
			w->w_damaged++;
			continue;
		}
		if (!d || d->dr_ino != dir)
			d = ns_sum_walk_dir(w, dir);
		if (!d || inode_get(w->w_txn, de.d_ino, &i))
			continue;
		rc = walk_entry(w, d, &i);
		if (rc)
			break;
	}
	kv_scan_end(&sc);
	return rc;
}

static int names_compare(const void *a, const void *b)
{
	const struct ns_sum_names *x = a, *y = b;

	if (x->nm_ino != y->nm_ino)
		return x->nm_ino < y->nm_ino ? -1 : 1;
	return x->nm_dir < y->nm_dir ? -1 : x->nm_dir > y->nm_dir;
}

/* The names of one file, [at, end) of w_names: it counts at one of them, and the others are further
 * names. What stays of them goes to *out on. */
static int ns_sum_walk_file(struct ns_sum_walk *w, size_t at, size_t end, size_t *out)
{
	uint64_t home = w->w_names[at].nm_dir;
	struct ns_inode i;
	struct ns_sum s;
	int err = inode_get(w->w_txn, w->w_names[at].nm_ino, &i);

	if (err)
		return err;
	for (size_t k = at; k < end; k++)
		if (w->w_names[k].nm_dir == i.i_parent)
			home = i.i_parent;
	s = ns_sum_of(&i);
	ns_sum_plus(&ns_sum_walk_dir(w, home)->dr_own, &s);
	err = home == i.i_parent ? 0 : stray_add(w, &i, home);
	for (size_t k = at; k < end; k++) {
		struct ns_sum_names n = w->w_names[k];

		if (n.nm_dir == home && !--n.nm_names)
			continue;
		w->w_names[(*out)++] = n;
	}
	return err;
}

static int walk_files(struct ns_sum_walk *w)
{
	size_t n = 0, out = 0, end;
	int err = 0;

	if (!w->w_nnames)
		return 0;
	qsort(w->w_names, w->w_nnames, sizeof(*w->w_names), names_compare);
	for (size_t k = 1; k < w->w_nnames; k++) {
		if (!names_compare(&w->w_names[n], &w->w_names[k]))
			w->w_names[n].nm_names++;
		else
			w->w_names[++n] = w->w_names[k];
	}
	w->w_nnames = n + 1;
	for (size_t at = 0; !err && at < w->w_nnames; at = end) {
		for (end = at + 1; end < w->w_nnames; end++)
			if (w->w_names[end].nm_ino != w->w_names[at].nm_ino)
				break;
		err = ns_sum_walk_file(w, at, end, &out);
	}
	w->w_nnames = out;
	return err;
}

static int walk_trash(struct ns_sum_walk *w)
{
	uint8_t prefix = NS_K_TRASH;
	struct kv_slice key, val, p = ns_slice(&prefix, 1);
	struct ns_trash e;
	struct ns_sum s;
	struct kv_scan sc;
	uint32_t uid;
	int rc = kv_scan_begin(w->w_txn, p, p, &sc);

	if (rc)
		return rc;
	while ((rc = kv_scan_next(&sc, &key, &val)) > 0) {
		progress(w, "inodes and entries");
		if (ns_trash_decode(key, val, &e) || ns_trash_counts(w->w_txn, &e, &uid, &s))
			continue; /* a row of another kind, or damage */
		rc = ns_sum_walk_user(w, uid, NULL, &s);
		if (rc)
			break;
	}
	kv_scan_end(&sc);
	return rc;
}

int ns_sum_walk(struct ns_sum_walk *w)
{
	int err;

	w->w_said_ns = clock_mono_ns();
	err = walk_inodes(w);
	if (!err)
		err = walk_entries(w);
	if (!err)
		err = walk_trash(w);
	return err ? err : walk_files(w);
}

void ns_sum_walk_free(struct ns_sum_walk *w)
{
	free(w->w_dirs);
	free(w->w_users);
	free(w->w_names);
	free(w->w_strays);
}
