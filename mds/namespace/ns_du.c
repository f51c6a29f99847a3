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
};

struct ns_du {
	struct ns *du_ns;
	struct kv_txn *du_txn;
	struct hash du_above;
	struct hash du_user; /* struct waiting */
	bool du_all;	     /* its elements have the users' rows, too */
};

/* A user's parts that wait in directories; with du_all, everything. */
struct waiting {
	struct hash_link wt_link;
	uint32_t wt_uid;
	struct ns_sum wt_sum, wt_trash;
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

static int on_unpushed(void *arg, uint64_t ino, struct kv_slice val)
{
	struct ns_sum_user users[NS_SUM_USERS];
	struct ns_sum counted, delta;
	struct ns_du *du = arg;
	struct waiting *wt;
	struct above *ab;
	struct ns_inode i;
	uint64_t at;
	int err = ns_get(du->du_ns, du->du_txn, ino, &i);

	if (err || i.i_type != NS_DIR || ns_counted_decode(val, &counted))
		return err && err != -ESTALE ? err : -EIO;
	for (unsigned n = ns_sums_users(&i, users); !err && n--;) {
		wt = wait_get(&du->du_user, users[n].us_uid);
		if (!wt)
			return -ENOMEM;
		ns_sum_plus(&wt->wt_sum, &users[n].us_sum);
	}
	delta = ns_sums_total(&i);
	ns_sum_minus(&delta, &counted);
	if (err || ino == NS_ROOT_INO || ns_sum_zero(&delta))
		return err;
	at = i.i_parent;
	for (unsigned depth = 0; depth < NS_DEPTH_MAX; depth++) {
		ab = above_get(du, at, &err);
		if (!ab)
			return err ? err : -EIO;
		ns_sum_plus(&ab->ab_more, &delta);
		if (at == NS_ROOT_INO)
			return 0;
		at = ab->ab_parent;
	}
	return -EIO;
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
	return 0;
}

static int ns_du_user_trash(void *arg, uint32_t uid, const struct ns_sum *s)
{
	struct waiting *wt = wait_get(arg, uid);

	if (wt)
		wt->wt_trash = *s;
	return wt ? 0 : -ENOMEM;
}

/* Adds the users' rows to what waits. */
static int ns_du_user_rows(struct kv_txn *t, struct hash *all)
{
	uint8_t prefix = NS_K_USER;
	struct kv_slice key, val, p = ns_slice(&prefix, 1);
	struct kv_scan sc;
	int rc = kv_scan_begin(t, p, p, &sc);

	if (rc)
		return rc;
	while ((rc = kv_scan_next(&sc, &key, &val)) > 0) {
		struct waiting *wt;
		struct ns_sum s;
		uint32_t uid;

		rc = key.s_len == NS_KEY_USER ? ns_counted_decode(val, &s) : -EIO;
		if (!rc) {
			memcpy(&uid, (const uint8_t *)key.s_data + 1, sizeof(uid));
			wt = wait_get(all, be32toh(uid));
			if (wt)
				ns_sum_plus(&wt->wt_sum, &s);
			rc = wt ? 0 : -ENOMEM;
		}
		if (rc)
			break;
	}
	kv_scan_end(&sc);
	return rc ? rc : ns_trash_users(t, ns_du_user_trash, all);
}

int ns_du_users(struct ns_du *du,
		int (*fn)(void *arg, uint32_t uid, const struct ns_sum *s,
			  const struct ns_sum *trash),
		void *arg)
{
	int err = 0;

	if (!du->du_all)
		err = ns_du_user_rows(du->du_txn, &du->du_user);
	if (err)
		return err;
	du->du_all = true;
	hash_each(&du->du_user, at, l, next)
	{
		struct waiting *wt = hash_entry(l, struct waiting, wt_link);

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
