/* SPDX-License-Identifier: Apache-2.0 */
/*
 * grace.c - the end of the grace period. Clients that did not come back are barred from the data
 * servers, their records are deleted, and the files that they were writing are resolved.
 */
#include "base/crash.h"
#include "base/log.h"
#include "mds/file/evict.h"
#include "mds/file/mirror_state.h"
#include "mds/journal/event_journal.h"
#include "mds/layout/repair_row.h"
#include <errno.h>

struct grace {
	struct kv_op op;
	const struct file_env *fe;
	int n; /* clients whose records were deleted */
	bool more;
};

/* A client that did not come back may be cut off from this server only, and may still write. */
static int grace_evict(void *lo, struct kv_txn *t, uint32_t number)
{
	log_warn(
		"client %u did not come back in the grace period: barring it from the data servers",
		number);
	journal_add(EV_CLIENT_EVICTED, "", 0, "client %u did not come back in the grace period",
		    number);
	return lo_order_bar(lo, t, number);
}

static int grace_run(struct kv_op *op, struct kv_txn *t)
{
	struct grace *e = (struct grace *)op;
	const struct file_env *fe = e->fe;

	crash_point("grace-over");
	e->n = st_records_close(fe->fe_st, t, grace_evict, fe->fe_lo, &e->more);
	/* The records go, and the files that these clients were writing must be resolved: the next
	 * boot must know. */
	return e->n > 0 ? lo_lost_writers_put(t) : e->n;
}

static void grace_done(struct kv_op *op, int err)
{
	struct grace *e = (struct grace *)op;
	const struct file_env *fe = e->fe;
	static _Atomic uint64_t last;
	bool more = !err && e->more;

	if (err && log_due(&last))
		log_error("cannot record the end of the grace period, retrying: %s",
			  strerror(-err));
	lo_orders_wake(fe->fe_lo);
	if (e->n)
		atomic_store(&fe->fe_lost->fl_lost, true);
	st_records_closed(fe->fe_st, err, more);
	if (more) {
		kv_submit(fe->fe_kv, op);
		return;
	}
	file_lost_writers_end(fe);
	if (!err)
		journal_add(EV_GRACE_ENDED, "", 0, "clients may open, lock and get layouts again");
	free(op);
}

void file_grace_over(const struct file_env *fe, struct loop *loop)
{
	struct grace *e = calloc(1, sizeof(*e));

	if (!e) {
		st_records_closed(fe->fe_st, -ENOMEM, false);
		return;
	}
	file_lost_writers_begin(fe);
	e->op = (struct kv_op){.o_run = grace_run, .o_done = grace_done, .o_loop = loop};
	e->fe = fe;
	kv_submit(fe->fe_kv, &e->op);
}
