/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mdsthreshold.c - decides which files are better read and written through the metadata server
 * (mdsthreshold, RFC 8881 section 5.12.6): files below a size. The policy of the file's directory
 * sets that size, or else the configuration. A file's directory is the one where it was created or
 * last moved to.
 */
#include "mds/layout/lo_int.h"
#include <errno.h>

/* Value of the row that exists once a directory has got a threshold. Without that row, directories
 * are not looked up. */
static const uint8_t steers_row = 1;

int lo_threshold_load(struct lo *lo, uint64_t bytes)
{
	struct kv_slice val;
	struct kv_txn *t;
	int err = kv_read_begin(ns_kv(lo->l_ns), &t);

	lo->l_threshold = bytes;
	if (err)
		return err;
	err = ns_row_get(t, NS_T_HINT, &steers_row, sizeof(steers_row), &val);
	kv_read_end(t);
	atomic_store(&lo->l_has_threshold, err == 0);
	return err == -ENOENT ? 0 : err;
}

int lo_policy_set(struct lo *lo, struct kv_txn *t, uint64_t dir, const struct lo_policy *p,
		  struct ns_time now)
{
	static const uint8_t version = 1;
	uint8_t buf[LO_POLICY_MAX] = {0};
	struct kv_slice val;
	int err = ns_set_blob(lo->l_ns, t, dir, buf, p ? lo_policy_encode(p, buf, sizeof(buf)) : 0,
			      true, now);

	if (!err && p && p->lp_has_trash)
		err = lo_trash_note(lo, t);
	if (err || !p || !p->lp_has_threshold)
		return err;
	atomic_store(&lo->l_has_threshold, true);
	err = ns_row_get(t, NS_T_HINT, &steers_row, sizeof(steers_row), &val);
	return err == -ENOENT
		       ? ns_row_put(t, NS_T_HINT, &steers_row, sizeof(steers_row), &version, 1)
		       : err;
}

uint64_t lo_threshold(struct lo *lo, struct kv_txn *t, const struct ns_inode *i)
{
	struct kv_slice s;
	struct lo_policy p;

	if (!atomic_load_explicit(&lo->l_has_threshold, memory_order_relaxed) ||
	    ns_policy(lo->l_ns, t, i->i_parent, &s) || lo_policy_decode(s, &p) ||
	    !p.lp_has_threshold)
		return lo->l_threshold;
	return p.lp_threshold;
}
