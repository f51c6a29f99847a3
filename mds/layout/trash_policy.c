/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trash_policy.c - for how long the trash keeps what is removed from a directory (docs/trash.md).
 * The key trash is inherited by itself: a directory whose own policy does not have the key looks
 * further up. So a policy for stripes below it does not end what a directory says about its trash.
 */
#include "mds/layout/lo_int.h"
#include <errno.h>

/* Value of the row that exists once a policy had the key. Without that row, no directory is looked
 * up, and a removal costs what it costs without trash. */
static const uint8_t trash_row = 2;

/* A path has no more directories (PATH_MAX). */
#define TRASH_UP 2048u

int lo_trash_load(struct lo *lo)
{
	struct kv_slice val;
	struct kv_txn *t;
	int err = kv_read_begin(ns_kv(lo->l_ns), &t);

	if (err)
		return err;
	err = ns_row_get(t, NS_T_HINT, &trash_row, sizeof(trash_row), &val);
	kv_read_end(t);
	atomic_store(&lo->l_has_trash, err == 0);
	return err == -ENOENT ? 0 : err;
}

int lo_trash_note(struct lo *lo, struct kv_txn *t)
{
	static const uint8_t version = 1;
	struct kv_slice val;
	int err = ns_row_get(t, NS_T_HINT, &trash_row, sizeof(trash_row), &val);

	atomic_store(&lo->l_has_trash, true);
	return err == -ENOENT ? ns_row_put(t, NS_T_HINT, &trash_row, sizeof(trash_row), &version, 1)
			      : err;
}

uint32_t lo_trash_s(struct lo *lo, struct kv_txn *t, uint64_t dir)
{
	struct ns_inode i;
	struct lo_policy p;

	if (!atomic_load_explicit(&lo->l_has_trash, memory_order_relaxed))
		return 0;
	for (unsigned up = 0; up < TRASH_UP && !ns_get(lo->l_ns, t, dir, &i); up++) {
		if (i.i_has_policy && !lo_policy_decode(i.i_blob, &p) && p.lp_has_trash)
			return p.lp_trash_s;
		if (dir == NS_ROOT_INO)
			break;
		dir = i.i_parent;
	}
	return 0;
}
