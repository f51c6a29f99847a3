/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kv_copy_sim.c - kv/kv_copy.c as it is, with a planted fault: a standby takes the log, and writes
 * behind its end, without the batches that it lacks.
 */
#include "tests/sim/sim.h"
#include "kv/kv_int.h"
#define kv_promote copy_promote
#include "kv/kv_copy.c"
#undef kv_promote

int kv_promote(struct kv *kv, char *err, size_t errlen)
{
	struct kv_redo_end end;
	int rc;

	if (!sim_planted("promote-with-gap"))
		return copy_promote(kv, err, errlen);
	rc = kv->k_redo.r_ops->ro_take(kv->k_redo.r_log, &end, err, errlen);
	if (rc)
		return rc;
	atomic_store(&kv->k_copy.co_batch, end.re_last);
	kv->k_copy.co_epoch = end.re_epoch;
	return kv_committer_start(kv);
}
