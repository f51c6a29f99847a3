/* SPDX-License-Identifier: Apache-2.0 */
/*
 * access_times.c - access times of files, symlinks and directories that are read (docs/acl.md
 * "Times"), as Linux's relatime keeps them.
 *
 * Nothing waits for an access time, and none costs a commit of its own. A table of fixed size keeps
 * what was read. A few times a second one mutation sets all of its times. What finds no room in the
 * table is forgotten until it is read again. Only the time changes: not ctime, and not the change
 * attribute, by which clients validate their caches. Each thread has a table for its clients, so
 * readers on different threads do not meet at a lock. If something else has changed the file since
 * it was read, that change stands (it may have set the time itself).
 */
#include "base/hash.h"
#include "base/metrics.h"
#include "mds/jobs/access_times.h"
#include <errno.h>
#include <string.h>

#define TABLE 8192u /* entries, a power of two */
#define FULL  4096u /* most entries in use */
#define SOON  1024u /* as many do not wait for the next tick */
#define BATCH 1024u /* times that one mutation sets */

struct read {
	uint64_t ino; /* 0: free */
	struct ns_time at;
};

/* One thread's. The thread and the tick take the lock. */
struct atimes {
	_Alignas(64) pthread_mutex_t lock;
	bool busy;
	/* n: entries of table[fill], which is filled; batches use the other table while busy */
	unsigned n, fill;
	struct read table[2][TABLE];
	unsigned from, to;    /* entries of the batch under way */
	unsigned set, missed; /* by that batch */
	struct kv_op op;
};
#define THREADS 64 /* mds.threads */

static struct {
	bool on;
	struct mds *m;
	struct metric *done, *dropped;
	struct atimes thread[THREADS];
} atimes;

void job_atime_init(struct mds *m, bool on)
{
	for (unsigned i = 0; i < THREADS; i++)
		pthread_mutex_init(&atimes.thread[i].lock, NULL);
	atimes.m = m;
	atimes.on = on;
	atimes.done = metric_counter(
		"weft_mds_atimes_total",
		"Files, symlinks and folders whose access time was set because they were read", "");
	atimes.dropped = metric_counter(
		"weft_mds_atimes_dropped_total",
		"Access times that were not set: too many at a time, or the store refused them",
		"");
}

static void atime_tick(struct atimes *my, struct loop *loop);

/* locked */
static struct read *entry(struct atimes *my, uint64_t ino)
{
	struct read *table = my->table[my->fill];
	uint64_t at = hash_u64(ino);

	while (table[at % TABLE].ino && table[at % TABLE].ino != ino)
		at++;
	return &table[at % TABLE];
}

static int atime_batch_run(struct kv_op *op, struct kv_txn *t)
{
	struct atimes *my = hash_entry(op, struct atimes, op);
	const struct read *table = my->table[!my->fill];
	unsigned n = 0;

	my->set = my->missed = 0;
	for (my->to = my->from; my->to < TABLE && n < BATCH; my->to++) {
		const struct read *r = &table[my->to];
		int err;

		if (!r->ino)
			continue;
		/* A file that was removed, or cannot be read, must not keep the others from being
		 * set: a mutation that has written and then fails ends all of its commit. */
		err = ns_accessed(atimes.m->m_ns, t, r->ino, r->at);
		my->set += err > 0;
		my->missed += err < 0 && err != -ESTALE;
		n++;
	}
	return 0;
}

static void atime_batch_done(struct kv_op *op, int err)
{
	struct atimes *my = hash_entry(op, struct atimes, op);
	struct loop *loop = op->o_loop;
	bool more;

	metric_add(err ? atimes.dropped : atimes.done, my->set);
	metric_add(atimes.dropped, my->missed);
	my->from = my->to;
	if (my->from < TABLE) {
		kv_submit(atimes.m->m_kv, op);
		return;
	}
	pthread_mutex_lock(&my->lock);
	memset(my->table[!my->fill], 0, sizeof(my->table[0]));
	my->busy = false;
	more = my->n >= SOON;
	pthread_mutex_unlock(&my->lock);
	if (more)
		atime_tick(my, loop);
}

static void atime_tick(struct atimes *my, struct loop *loop)
{
	bool go;

	pthread_mutex_lock(&my->lock);
	go = my->n && !my->busy;
	if (go) {
		my->fill = !my->fill;
		my->n = my->from = 0;
		my->busy = true;
	}
	pthread_mutex_unlock(&my->lock);
	if (!go)
		return;
	my->op = (struct kv_op){
		.o_run = atime_batch_run, .o_done = atime_batch_done, .o_loop = loop};
	kv_submit(atimes.m->m_kv, &my->op);
}

void job_atime_tick(struct loop *loop)
{
	for (unsigned i = 0; atimes.m && i < atimes.m->m_nthreads; i++)
		atime_tick(&atimes.thread[i], loop);
}

void job_accessed(struct mds_thread *th, const struct ns_inode *i)
{
	struct ns_time now;
	bool soon, full = false;
	struct atimes *my;
	struct read *r;

	if (!atimes.on)
		return;
	now = file_now();
	if (!ns_atime_due(i, &now))
		return;
	my = &atimes.thread[th - atimes.m->m_thread];
	pthread_mutex_lock(&my->lock);
	r = entry(my, i->i_ino);
	if (!r->ino && my->n >= FULL) {
		full = true;
	} else {
		my->n += !r->ino;
		*r = (struct read){i->i_ino, now};
	}
	soon = my->n >= SOON && !my->busy;
	pthread_mutex_unlock(&my->lock);
	if (full)
		metric_add(atimes.dropped, 1);
	if (soon)
		atime_tick(my, th->mt_loop);
}
