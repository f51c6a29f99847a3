/* SPDX-License-Identifier: Apache-2.0 */
/*
 * drain.c - while a data server is drained, passes go over all files again and again, some files in
 * each tick. A pass counts the objects on the server. Each file with an object there gets a row in
 * the table of repairs, whose jobs move the file (move.c). When a whole pass finds nothing, and no
 * order is left for the server, the server is empty. There is no list of what a server holds: the
 * maps say it.
 */
#include "mds/jobs/drain.h"
#include "mds/jobs/job_int.h"
#include "mds/jobs/repair.h"
#include "base/log.h"
#include "mds/layout/mirror_change.h"
#include "mds/layout/repair_row.h"
#include "mds/layout/pending_layout.h"
#include <errno.h>

#define LOOK_FILES 1024 /* files in a tick */
#define ROWS	   256	/* files in a tick that get a row, or are asked whether they can move */
/* files that can move and wait for their turn, whatever else waits in the table. As these go,
 * others get a row. */
#define QUEUE 1024
/* rows in a pass while that many wait already: for files that cannot move, so that the reason is
 * reported; and for files that can, if the number of waiting rows does not fall */
#define QUEUE_MORE 16
#define REST_TICKS 8 /* after a pass that found nothing */

struct job_drain {
	pthread_mutex_t dr_lock; /* protects the fields up to dr_view: any thread */
	bool dr_again;		 /* begin the pass again: what it counts is void */
	/* mutations under way that place objects which a pass does not see */
	unsigned dr_placing;
	uint64_t dr_placed; /* rises with each such mutation that is over */
	struct job_drain_view dr_view[DS_REG_MAX + 1];
	/* the pass under way */
	uint64_t dr_cursor, dr_count[DS_REG_MAX + 1];
	uint64_t dr_began;	    /* dr_placed when the pass began */
	uint32_t dr_ds[DS_REG_MAX]; /* servers that were being drained when the pass began */
	unsigned dr_n, dr_rest;
	/* files that get a row */
	struct mds *dr_m;
	struct kv_op dr_op;
	bool dr_busy;
	uint64_t dr_ino[ROWS];
	unsigned dr_nino, dr_more; /* more: what is left of QUEUE_MORE in this pass */
	/* files that could move when they got their row, and still have it */
	uint64_t dr_queued[QUEUE];
	unsigned dr_nqueued;
};

int job_drain_open(struct mds *m)
{
	struct job_drain *d = calloc(1, sizeof(*d));

	if (!d)
		return -ENOMEM;
	d->dr_m = m;
	pthread_mutex_init(&d->dr_lock, NULL);
	m->m_drain = d;
	return 0;
}

bool job_drain_look(struct mds *m, uint32_t ds, struct job_drain_view *out)
{
	struct job_drain *d = m->m_drain;

	if (!ds_reg_draining(m->m_dsc, ds))
		return false;
	pthread_mutex_lock(&d->dr_lock);
	*out = d->dr_view[ds];
	pthread_mutex_unlock(&d->dr_lock);
	return true;
}

void job_drain_begin(struct mds *m, uint32_t ds)
{
	struct job_drain *d = m->m_drain;

	job_again(m, job_drain_id(ds));
	pthread_mutex_lock(&d->dr_lock);
	d->dr_view[ds] = (struct job_drain_view){.dv_begun = job_now()};
	d->dr_again = true;
	pthread_mutex_unlock(&d->dr_lock);
}

void job_drain_placing(struct mds *m)
{
	pthread_mutex_lock(&m->m_drain->dr_lock);
	m->m_drain->dr_placing++;
	pthread_mutex_unlock(&m->m_drain->dr_lock);
}

void job_drain_placed(struct mds *m)
{
	pthread_mutex_lock(&m->m_drain->dr_lock);
	m->m_drain->dr_placing--;
	m->m_drain->dr_placed++;
	pthread_mutex_unlock(&m->m_drain->dr_lock);
}

static int drain_rows_run(struct kv_op *op, struct kv_txn *t)
{
	struct job_drain *d = hash_entry(op, struct job_drain, dr_op);
	struct lo_repair row;
	struct ns_inode i;

	for (unsigned k = 0; k < d->dr_nino; k++) {
		int err = ns_get(d->dr_m->m_ns, t, d->dr_ino[k], &i);

		if (!err && lo_repair_get(t, d->dr_ino[k], &row) == -ENOENT)
			err = lo_repair_put(t, d->dr_ino[k], &(struct lo_repair){0});
		if (err && err != -ENOENT && err != -ESTALE) /* else it was removed in between */
			return err;
	}
	return 0;
}

static void drain_rows_done(struct kv_op *op, int err)
{
	struct job_drain *d = hash_entry(op, struct job_drain, dr_op);

	if (err)
		log_error("cannot queue files of draining servers: %s", strerror(-err));
	d->dr_busy = false; /* after an error the next pass finds them again */
}

/* ---- a pass ---- */

struct look {
	struct job_drain *d;
	struct kv_txn *t;
	unsigned n, asked;
	bool more, full; /* full: there are QUEUE rows of any kind */
};

static bool on_drained(struct job_drain *d, const struct lo_map *map)
{
	bool any = false;

	for (unsigned k = 0; k < lo_objects(map); k++) {
		for (unsigned i = 0; i < d->dr_n; i++) {
			if (map->lm_obj[k].ob_ds != d->dr_ds[i])
				continue;
			d->dr_count[d->dr_ds[i]]++;
			any = true;
		}
	}
	return any;
}

/* Whether the file gets a row now. */
static bool gets_row(struct look *l, uint64_t ino, const struct lo_map *map)
{
	struct job_drain *d = l->d;
	const char *why;

	if (d->dr_nqueued < QUEUE && l->asked++ < ROWS &&
	    job_move_look(d->dr_m, ino, map, &why) > OP_MOVE_WAITS) {
		d->dr_queued[d->dr_nqueued++] = ino;
		return true;
	}
	if (l->full && !d->dr_more)
		return false;
	d->dr_more -= l->full;
	return true;
}

static int drain_look_file(void *arg, const struct ns_inode *i)
{
	struct look *l = arg;
	struct lo_repair row;
	struct lo_map map;

	if (l->n++ == LOOK_FILES || l->d->dr_nino == ROWS || l->asked == ROWS) {
		l->more = true;
		return 1;
	}
	l->d->dr_cursor = i->i_ino + 1;
	if (lo_map_decode(i->i_blob, &map) || !on_drained(l->d, &map) ||
	    lo_repair_get(l->t, i->i_ino, &row) != -ENOENT)
		return 0;
	if (gets_row(l, i->i_ino, &map))
		l->d->dr_ino[l->d->dr_nino++] = i->i_ino;
	return 0;
}

/* A file whose row is gone has moved. */
static void queue_look(struct job_drain *d, struct kv_txn *t)
{
	struct lo_repair row;
	unsigned n = 0;

	for (unsigned i = 0; i < d->dr_nqueued; i++)
		if (lo_repair_get(t, d->dr_queued[i], &row) != -ENOENT)
			d->dr_queued[n++] = d->dr_queued[i];
	d->dr_nqueued = n;
}

static int drain_count_row(void *arg, uint64_t ino, const struct lo_repair *row)
{
	(void)ino;
	(void)row;
	return ++*(unsigned *)arg >= QUEUE;
}

static bool queue_full(struct kv_txn *t)
{
	unsigned n = 0;

	lo_repairs(t, 1, drain_count_row, &n);
	return n >= QUEUE;
}

/* Counts the objects of a pending layout: its job places them elsewhere (restripe.c). */
static int drain_look_pending(void *arg, uint64_t ino, const struct lo_pending *tw)
{
	(void)ino;
	on_drained(arg, &tw->tw_map);
	return 0;
}

static void look_over(struct job_drain *d, struct kv_txn *t)
{
	uint64_t left = 0;
	bool unseen;

	pthread_mutex_lock(&d->dr_lock);
	unseen = d->dr_placing || d->dr_placed != d->dr_began;
	for (unsigned i = 0; i < d->dr_n && !d->dr_again; i++) {
		struct job_drain_view *v = &d->dr_view[d->dr_ds[i]];
		bool was = v->dv_empty;

		v->dv_left = d->dr_count[d->dr_ds[i]];
		if (!v->dv_known || v->dv_left > v->dv_most)
			v->dv_most = v->dv_left;
		if (!v->dv_known)
			v->dv_counted = job_now();
		v->dv_known = true;
		v->dv_empty = !v->dv_left && !unseen && !lo_orders_for(t, d->dr_ds[i]);
		if (v->dv_empty && !was) {
			log_info("data server %u is drained: it holds no objects any more",
				 d->dr_ds[i]);
			job_drain_over(d->dr_m, d->dr_ds[i], v);
		}
		left += !v->dv_empty;
	}
	pthread_mutex_unlock(&d->dr_lock);
	d->dr_rest = left ? 1 : REST_TICKS;
	d->dr_cursor = 0;
}

static void look_begin(struct job_drain *d, struct mds *m)
{
	d->dr_n = ds_reg_drains(m->m_dsc, d->dr_ds, DS_REG_MAX);
	memset(d->dr_count, 0, sizeof(d->dr_count));
	pthread_mutex_lock(&d->dr_lock);
	d->dr_began = d->dr_placed;
	pthread_mutex_unlock(&d->dr_lock);
	d->dr_cursor = 1;
	d->dr_more = QUEUE_MORE;
}

void job_drain_tick(struct mds *m, struct loop *loop)
{
	struct job_drain *d = m->m_drain;
	struct look l = {.d = d};
	bool again;
	int err;

	if (d->dr_busy)
		return;
	pthread_mutex_lock(&d->dr_lock);
	again = d->dr_again;
	d->dr_again = false;
	pthread_mutex_unlock(&d->dr_lock);
	if (!again && d->dr_rest && --d->dr_rest)
		return;
	if (again || !d->dr_cursor)
		look_begin(d, m);
	if (!d->dr_n) {
		d->dr_cursor = 0;
		return;
	}
	if (kv_read_begin(m->m_kv, &l.t))
		return;
	d->dr_nino = 0;
	queue_look(d, l.t);
	l.full = queue_full(l.t);
	err = ns_files(m->m_ns, l.t, d->dr_cursor, drain_look_file, &l);
	if (!err && !l.more)
		err = lo_pendings(l.t, 1, drain_look_pending, d);
	if (!err && !l.more)
		look_over(d, l.t);
	kv_read_end(l.t);
	if (err)
		log_error("drain: cannot read the files: %s", strerror(-err));
	if (!d->dr_nino)
		return;
	d->dr_busy = true;
	d->dr_op =
		(struct kv_op){.o_run = drain_rows_run, .o_done = drain_rows_done, .o_loop = loop};
	kv_submit(m->m_kv, &d->dr_op);
}
