/* SPDX-License-Identifier: Apache-2.0 */
/* lapse.c - puts the end of clients' leases into their records (mds/state/st_lapse.c). */
#include "base/crash.h"
#include "base/log.h"
#include "mds/file/evict.h"

struct lapse {
	struct kv_op op;
	const struct file_env *fe;
	unsigned n, written;
	uint64_t ids[ST_LAPSES];
};

static int lapse_run(struct kv_op *op, struct kv_txn *t)
{
	struct lapse *l = (struct lapse *)op;
	int rc = 0;

	crash_point("lease-ends");
	for (unsigned i = 0; i < l->n && rc >= 0; i++) {
		rc = st_lapse_put(l->fe->fe_st, t, l->ids[i]);
		l->written += rc > 0;
	}
	return rc < 0 ? rc : 0;
}

/* After a failure the next start waits for these clients. */
static void lapse_done(struct kv_op *op, int err)
{
	struct lapse *l = (struct lapse *)op;

	if (!err && l->written)
		log_info("the leases of %u clients have run out: no grace period waits for them",
			 l->written);
	free(l);
}

void file_lapsed(const struct file_env *fe, struct loop *loop, const uint64_t *clientids,
		 unsigned n)
{
	struct lapse *l = calloc(1, sizeof(*l));

	if (!l)
		return;
	l->op = (struct kv_op){.o_run = lapse_run, .o_done = lapse_done, .o_loop = loop};
	l->fe = fe;
	l->n = n;
	memcpy(l->ids, clientids, n * sizeof(*clientids));
	kv_submit(fe->fe_kv, &l->op);
}
