/* SPDX-License-Identifier: Apache-2.0 */
/* ns_du.c - answers how much is below a directory, and how much each user has, from one snapshot
 * (ns_sum.h). */
#include "mds/namespace/ns_sum_rec.h"
#include "base/hash.h"
#include <errno.h>
#include <stdlib.h>

/* A directory that is unpushed, or above one that is. */
struct above {
	struct hash_link ab_link;
	uint64_t ab_ino, ab_parent;
	struct ns_sum ab_more; /* what is below it and not in its T */
	bool ab_unknown;       /* a row of something below it is damaged */
};

struct ns_du {
	struct ns *du_ns;
	struct kv_txn *du_txn;
	struct hash du_above;
	struct hash du_user; /* struct waiting */
	bool du_all;	     /* its elements have the users' rows, too */
	/* A directory's record is damaged, or what it is in: above which ones it is, and which
	 * users' parts wait in it, is not known. */
	bool du_dirs_lost, du_users_lost;
};

/* A user's parts that wait in directories; with du_all, everything. */
struct waiting {
	struct hash_link wt_link;
	uint32_t wt_uid;
	struct ns_sum wt_sum, wt_trash;
	bool wt_unknown, wt_trash_unknown; /* the row is damaged */
};

static struct above *above_find(struct ns_du *du, uint64_t ino)
{
	uint64_t hash = hash_u64(ino);

	for (struct hash_link *l = hash_first(&du->du_above, hash); l; l = hash_next(l)) {
		struct above *ab = hash_entry(l, struct above, ab_link);

		if (ab->ab_ino == ino)
			return ab;
	}
	return NULL;
}

/* Returns the directory's element; NULL with *err 0: there is no such directory (damage). */
static struct above *above_get(struct ns_du *du, uint64_t ino, int *err)
{
	struct above *ab = above_find(du, ino);
	struct ns_inode i;

	*err = 0;
	if (ab)
		return ab;
	*err = ns_get(du->du_ns, du->du_txn, ino, &i);
	if (*err || i.i_type != NS_DIR) {
		*err = *err == -ESTALE ? 0 : *err;
		return NULL;
	}
	ab = calloc(1, sizeof(*ab));
	if (!ab || hash_add(&du->du_above, &ab->ab_link, hash_u64(ino))) {
		free(ab);
		*err = -ENOMEM;
		return NULL;
	}
	ab->ab_ino = ino;
	ab->ab_parent = i.i_parent;
	return ab;
}

static struct waiting *wait_get(struct hash *users, uint32_t uid)
{
	uint64_t hash = hash_u64(uid);
	struct waiting *wt;

	for (struct hash_link *l = hash_first(users, hash); l; l = hash_next(l)) {
		wt = hash_entry(l, struct waiting, wt_link);
		if (wt->wt_uid == uid)
			return wt;
	}
	wt = calloc(1, sizeof(*wt));
	if (!wt || hash_add(users, &wt->wt_link, hash)) {
		free(wt);
		return NULL;
	}
	wt->wt_uid = uid;
	return wt;
}

/* Adds to all directories from one up to the root. delta: NULL: it is not known. */
static int above_add(struct ns_du *du, uint64_t at, const struct ns_sum *delta)
{
	int err;

	for (unsigned depth = 0; depth < NS_DEPTH_MAX; depth++) {
		struct above *ab = above_get(du, at, &err);

		if (!ab && err && err != -EIO)
			return err;
		if (!ab)
			break;
		if (delta)
			ns_sum_plus(&ab->ab_more, delta);
		else
			ab->ab_unknown = true;
		if (at == NS_ROOT_INO)
			return 0;
		at = ab->ab_parent;
	}
	ns_sum_damaged("a directory that others are in", at);
	du->du_dirs_lost = true;
	return 0;
}

static int on_unpushed(void *arg, uint64_t ino, struct kv_slice val)
{
	struct ns_sum_user users[NS_SUM_USERS];
	struct ns_sum counted, delta;
	struct ns_du *du = arg;
	struct waiting *wt;
	struct ns_inode i;
	bool unknown;
	int err;

	if (ino == NS_SUM_LOST) {
		ns_sum_damaged("what was counted of a directory that is elsewhere now", ino);
		du->du_dirs_lost = true;
		return 0;
	}
	err = ns_get(du->du_ns, du->du_txn, ino, &i);
	if (err && err != -ESTALE && err != -EIO)
		return err;
	if (err || i.i_type != NS_DIR) {
		ns_sum_damaged("a directory with sums to push", ino);
		/* The row of what is no directory counts nothing. */
		du->du_dirs_lost |= err == -EIO;
		du->du_users_lost |= err == -EIO;
		return 0;
	}
	unknown = ns_counted_decode(val, &counted);
	if (unknown)
		ns_sum_damaged("what a directory's parent has counted", ino);
	for (unsigned n = ns_sums_users(&i, users); n--;) {
		wt = wait_get(&du->du_user, users[n].us_uid);
		if (!wt)
			return -ENOMEM;
		ns_sum_plus(&wt->wt_sum, &users[n].us_sum);
	}
	delta = ns_sums_total(&i);
	if (!unknown)
		ns_sum_minus(&delta, &counted);
	if (ino == NS_ROOT_INO || (!unknown && ns_sum_zero(&delta)))
		return 0;
	return above_add(du, i.i_parent, unknown ? NULL : &delta);
}

int ns_du_begin(struct ns_du **out, struct ns *ns, struct kv_txn *t)
{
	struct ns_du *du = calloc(1, sizeof(*du));
	int err;

	if (!du)
		return -ENOMEM;
	du->du_ns = ns;
	du->du_txn = t;
	err = ns_unpushed_rows(t, 0, on_unpushed, du);
	if (err) {
		ns_du_end(du);
		return err;
	}
	*out = du;
	return 0;
}

int ns_du_get(struct ns_du *du, uint64_t ino, struct ns_sum *out)
{
	struct above *ab;
	struct ns_inode i;
	int err = ns_get(du->du_ns, du->du_txn, ino, &i);

	if (err)
		return err;
	if (i.i_type != NS_DIR) {
		*out = ns_sum_of(&i);
		return 0;
	}
	*out = ns_sums_total(&i);
	ab = above_find(du, ino);
	if (ab)
		ns_sum_plus(out, &ab->ab_more);
	if (du->du_dirs_lost || (ab && ab->ab_unknown))
		*out = NS_SUM_UNKNOWN;
	else if (!ns_sum_sane(out))
		ns_sum_damaged("what is below a directory", ino);
	return 0;
}

static int ns_du_user_trash(void *arg, uint32_t uid, const struct ns_sum *s)
{
	struct waiting *wt = wait_get(arg, uid);

	if (!wt)
		return -ENOMEM;
	if (s)
		wt->wt_trash = *s;
	else
		ns_sum_damaged("what a user has in the trash", uid);
	wt->wt_trash_unknown = !s;
	return 0;
}

static int ns_du_user_row(void *arg, uint32_t uid, const struct ns_sum *s)
{
	struct waiting *wt = wait_get(arg, uid);

	if (!wt)
		return -ENOMEM;
	if (s)
		ns_sum_plus(&wt->wt_sum, s);
	else
		ns_sum_damaged("what a user has", uid);
	wt->wt_unknown = !s;
	return 0;
}

int ns_du_users(struct ns_du *du,
		int (*fn)(void *arg, uint32_t uid, const struct ns_sum *s,
			  const struct ns_sum *trash),
		void *arg)
{
	int err = 0;

	/* Adds the users' rows to what waits. */
	if (!du->du_all)
		err = ns_user_rows(du->du_txn, ns_du_user_row, &du->du_user);
	if (!err && !du->du_all)
		err = ns_trash_users(du->du_txn, ns_du_user_trash, &du->du_user);
	if (err)
		return err;
	du->du_all = true;
	hash_each(&du->du_user, at, l, next)
	{
		struct waiting *wt = hash_entry(l, struct waiting, wt_link);

		if (wt->wt_unknown || du->du_users_lost)
			wt->wt_sum = NS_SUM_UNKNOWN;
		else if (!ns_sum_sane(&wt->wt_sum))
			ns_sum_damaged("what a user has", wt->wt_uid);
		if (wt->wt_trash_unknown)
			wt->wt_trash = NS_SUM_UNKNOWN;
		if (!err && !(ns_sum_zero(&wt->wt_sum) && ns_sum_zero(&wt->wt_trash)))
			err = fn(arg, wt->wt_uid, &wt->wt_sum, &wt->wt_trash);
	}
	return err;
}

void ns_du_end(struct ns_du *du)
{
	hash_each(&du->du_above, at, l, next) free(hash_entry(l, struct above, ab_link));
	hash_each(&du->du_user, at, l, next) free(hash_entry(l, struct waiting, wt_link));
	free(du->du_above.h_slot);
	free(du->du_user.h_slot);
	free(du);
}
