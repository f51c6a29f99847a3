/*
 * atime.c - access times of what is read (docs/acl.md "Times"), as Linux's relatime keeps them.
 *
 * Nothing waits for an access time, and none costs a commit of its own: what was read is kept in a table of fixed size, a few times a second all of it is set in one
 * mutation, and what finds no room is forgotten until it is read again. The time alone changes: not ctime, and not the change attribute, by which clients know
 * what they have cached. Where something else has changed the file since it was read, that stands (somebody may have set the time itself).
 */
#include "base/metrics.h"
#include "mds/op/op.h"
#include <errno.h>

#define TABLE 8192u /* entries, a power of two */
#define FULL  4096u /* of them in use */
#define SOON  1024u /* so many are not kept until the next tick */
#define BATCH 1024u /* set in one mutation */

struct read {
	uint64_t ino; /* 0: free */
	struct ns_time at;
};

static struct atimes {
	pthread_mutex_t lock;
	bool on, busy;
	unsigned n, fill;             /* entries of table[fill], which is filled; the other one is the batches' while busy */
	struct read table[2][TABLE];
	unsigned from, to;            /* of the batch under way */
	unsigned set, missed;         /* by it */
	struct kv_op op;
	struct mds *m;
	struct metric *done, *dropped;
} atimes = {.lock = PTHREAD_MUTEX_INITIALIZER};

void op_atime_init(struct mds *m, bool on)
{
	atimes.m = m;
	atimes.on = on;
	atimes.done = metric_counter("weft_mds_atimes_total", "Files, symlinks and folders whose access time was set because they were read", "");
	atimes.dropped = metric_counter("weft_mds_atimes_dropped_total", "Access times that were not set: too many at a time, or the store refused them", "");
}

/* locked */
static struct read *entry(uint64_t ino)
{
	struct read *table = atimes.table[atimes.fill];
	uint64_t at = hash_u64(ino);

	while (table[at % TABLE].ino && table[at % TABLE].ino != ino)
		at++;
	return &table[at % TABLE];
}

static int batch_run(struct kv_op *op, struct kv_txn *t)
{
	const struct read *table = atimes.table[!atimes.fill];
	unsigned n = 0;

	(void)op;
	atimes.set = atimes.missed = 0;
	for (atimes.to = atimes.from; atimes.to < TABLE && n < BATCH; atimes.to++) {
		const struct read *r = &table[atimes.to];
		int err;

		if (!r->ino)
			continue;
		/* Removed meanwhile, or not to be had: the others' times are set all the same. A mutation that has written and refuses ends all of its commit. */
		err = ns_accessed(atimes.m->m_ns, t, r->ino, r->at);
		atimes.set += !err;
		atimes.missed += err && err != -ESTALE;
		n++;
	}
	return 0;
}

static void batch_done(struct kv_op *op, int err)
{
	struct loop *loop = op->o_loop;
	bool more;

	metric_add(err ? atimes.dropped : atimes.done, atimes.set);
	metric_add(atimes.dropped, atimes.missed);
	atimes.from = atimes.to;
	if (atimes.from < TABLE) {
		kv_submit(atimes.m->m_kv, op);
		return;
	}
	pthread_mutex_lock(&atimes.lock);
	memset(atimes.table[!atimes.fill], 0, sizeof(atimes.table[0]));
	atimes.busy = false;
	more = atimes.n >= SOON;
	pthread_mutex_unlock(&atimes.lock);
	if (more)
		op_atime_tick(loop);
}

void op_atime_tick(struct loop *loop)
{
	bool go;

	pthread_mutex_lock(&atimes.lock);
	go = atimes.n && !atimes.busy;
	if (go) {
		atimes.fill = !atimes.fill;
		atimes.n = atimes.from = 0;
		atimes.busy = true;
	}
	pthread_mutex_unlock(&atimes.lock);
	if (!go)
		return;
	atimes.op = (struct kv_op){.o_run = batch_run, .o_done = batch_done, .o_loop = loop};
	kv_submit(atimes.m->m_kv, &atimes.op);
}

void op_accessed(struct compound *c, const struct ns_inode *i)
{
	struct ns_time now;
	bool soon, full = false;
	struct read *r;

	if (!atimes.on || c->exp->g_ro || exp_is_pseudo(c->exp))
		return;
	now = op_now();
	if (!ns_atime_due(i, &now))
		return;
	pthread_mutex_lock(&atimes.lock);
	r = entry(i->i_ino);
	if (!r->ino && atimes.n >= FULL) {
		full = true;
	} else {
		atimes.n += !r->ino;
		*r = (struct read){i->i_ino, now};
	}
	soon = atimes.n >= SOON && !atimes.busy;
	pthread_mutex_unlock(&atimes.lock);
	if (full)
		metric_add(atimes.dropped, 1);
	if (soon)
		op_atime_tick(c->th->mt_loop);
}
