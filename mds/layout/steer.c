/*
 * steer.c - which files are better read and written through the metadata server (mdsthreshold, RFC
 * 8881 section 5.12.6): those below a size, which the policy of their directory says, or else the
 * configuration. A file is in the directory where it was made, or moved to last.
 */
#include "mds/layout/lo_int.h"
#include <errno.h>

/* The row is there from the first directory on that got a threshold. Without it no file's
 * directories are looked at. */
static const uint8_t steers_row = 1;

int lo_steer_load(struct lo *lo, uint64_t bytes)
{
	struct kv_slice val;
	struct kv_txn *t;
	int err = kv_read_begin(ns_kv(lo->l_ns), &t);

	lo->l_threshold = bytes;
	if (err)
		return err;
	err = ns_row_get(t, NS_T_HINT, &steers_row, sizeof(steers_row), &val);
	kv_read_end(t);
	atomic_store(&lo->l_steers, err == 0);
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

	if (err || !p || !p->lp_steers)
		return err;
	atomic_store(&lo->l_steers, true);
	err = ns_row_get(t, NS_T_HINT, &steers_row, sizeof(steers_row), &val);
	return err == -ENOENT
		       ? ns_row_put(t, NS_T_HINT, &steers_row, sizeof(steers_row), &version, 1)
		       : err;
}

uint64_t lo_threshold(struct lo *lo, struct kv_txn *t, const struct ns_inode *i)
{
	struct kv_slice s;
	struct lo_policy p;

	if (!atomic_load_explicit(&lo->l_steers, memory_order_relaxed) ||
	    ns_policy(lo->l_ns, t, i->i_parent, &s) || lo_policy_decode(s, &p) || !p.lp_steers)
		return lo->l_threshold;
	return p.lp_threshold;
}
