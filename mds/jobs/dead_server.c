/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dead_server.c - a data server was declared dead (mds/dataserver/liveness.c): no client is sent to
 * it any more (docs/device-failure.md).
 *
 * Layouts that name the server are found in memory and are recalled. Their clients then give up
 * what they have under way there, and go on with the next layout. In a file that is being written,
 * the object on the dead server first becomes stale, durably. All other files are examined when a
 * client wants a layout for writing; or, some at a time, when the server does not come back.
 */
#include "base/clock.h"
#include "base/log.h"
#include "mds/jobs/dead_server.h"
#include "mds/jobs/repair.h"
#include "mds/mds.h"
#include <errno.h>

#define AT_ONCE 64u /* files at the same time */

/* ---- one file ---- */

struct without {
	struct kv_op op;
	struct mds *m;
	struct loop *loop;
	uint64_t ino;
	bool written;	/* only if a client may be writing the file */
	bool take_back; /* recall all layouts, even if no object became stale */
	bool wait;	/* wait for these layouts */
	uint64_t stale;
	struct excl_layout_block hold;
	void (*then)(void *arg, int err);
	void *arg;
};

static int without_run(struct kv_op *op, struct kv_txn *t)
{
	struct without *w = hash_entry(op, struct without, op);
	struct ns_inode i;
	struct lo_map map;
	int err = ns_get(w->m->m_ns, t, w->ino, &i);

	w->stale = 0;
	if (!err)
		err = lo_map_decode(i.i_blob, &map);
	if (err || (w->written && !file_writers_left(&w->m->m_file, w->ino, NULL)))
		return err;
	w->stale = lo_map_make_stale(&map, lo_map_dead(w->m->m_lo, &map), NULL);
	if (!w->stale)
		return 0;
	return excl_stale(&w->hold, &w->m->m_file, t, w->ino, &map, file_now());
}

static void without_end(void *arg, int err)
{
	struct without *w = arg;

	excl_unblock(&w->hold);
	if (w->then)
		w->then(w->arg, err);
	free(w);
}

static void without_committed(struct kv_op *op, int err)
{
	struct without *w = hash_entry(op, struct without, op);

	if (err && err != -ENOENT && err != -ESTALE)
		log_error("inode %lu: cannot mark its copy on a dead server as stale: %s",
			  (unsigned long)w->ino, strerror(-err));
	if (!err && (w->stale || w->take_back)) {
		if (w->wait && excl_recall_stale(&w->hold, &w->m->m_file, w->loop, w->ino, NULL,
						 without_end, w))
			return;
		if (!w->wait)
			excl_recall_stale(&w->hold, &w->m->m_file, w->loop, w->ino, NULL, NULL,
					  NULL);
	}
	without_end(w, err);
}

static struct without *without_new(struct mds *m, struct loop *loop, uint64_t ino,
				   void (*then)(void *arg, int err), void *arg)
{
	struct without *w = calloc(1, sizeof(*w));

	if (!w)
		log_fatal("out of memory while handling a dead server");
	*w = (struct without){.m = m, .loop = loop, .ino = ino, .then = then, .arg = arg};
	w->op = (struct kv_op){.o_run = without_run, .o_done = without_committed, .o_loop = loop};
	return w;
}

bool job_without_dead(struct mds *m, struct loop *loop, uint64_t ino, const struct ns_inode *i,
		      void (*then)(void *arg, int err), void *arg)
{
	struct without *w;
	struct lo_map map;

	if (lo_map_decode(i->i_blob, &map) ||
	    !lo_map_make_stale(&map, lo_map_dead(m->m_lo, &map), NULL))
		return false;
	w = without_new(m, loop, ino, then, arg);
	kv_submit(m->m_kv, &w->op);
	return true;
}

bool job_has_orders(struct mds *m, struct loop *loop, const struct ns_inode *i,
		    const struct lo_map *map)
{
	if (!lo_objects_with_orders(m->m_lo, i->i_ino, map))
		return false;
	job_without_dead(m, loop, i->i_ino, i, NULL, NULL);
	return true;
}

/* ---- all layouts that name it ---- */

struct death {
	struct loop_msg msg;
	struct mds *m;
	struct loop *loop;
	uint8_t uuid[16];
	uint32_t id;
	uint64_t began_ns;
	uint64_t *ino;
	size_t n, next;
	unsigned busy;
};

static int dead_server_order(const void *a, const void *b)
{
	const uint64_t *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

/* A layout that is registered later is encoded with what is known of the server now. */
static void dead_server_collect(struct death *d)
{
	struct st *st = d->m->m_st;
	uint64_t bit = lo_server_bit(d->id);
	size_t n = 0;

	st_all_lock(st);
	d->ino = calloc(st_states(st) + 1, sizeof(*d->ino));
	if (!d->ino)
		log_fatal("out of memory while recalling layouts of a dead server");
	st_each(st, ST_LAYOUT, l)
	{
		const struct st_layout *y = hash_entry(l, struct st_layout, l_link);

		if (y->l_granting || (y->l_servers & bit))
			d->ino[n++] = y->l_file->f_ino;
	}
	st_all_unlock(st);
	qsort(d->ino, n, sizeof(*d->ino), dead_server_order);
	for (size_t i = 0; i < n; i++)
		if (!d->n || d->ino[d->n - 1] != d->ino[i])
			d->ino[d->n++] = d->ino[i];
}

static void death_go(struct death *d);

static void file_done(void *arg, int err)
{
	struct death *d = arg;

	(void)err; /* logged; a client without a new layout asks again */
	d->busy--;
	death_go(d);
}

static void death_go(struct death *d)
{
	while (d->next < d->n && d->busy < AT_ONCE) {
		struct without *w = without_new(d->m, d->loop, d->ino[d->next++], file_done, d);

		w->written = w->take_back = w->wait = true;
		d->busy++;
		kv_submit(d->m->m_kv, &w->op);
	}
	if (d->busy || d->next < d->n)
		return;
	if (d->n)
		log_info("data server %u: recalled the layouts of %zu files in %lu ms", d->id, d->n,
			 (unsigned long)((clock_mono_ns() - d->began_ns) / 1000000));
	/* Now no layout names the server. If the server is back already, clients look it up again:
	 * they may have marked it as unavailable. */
	if (ds_reg_dead(d->m->m_dsc, d->id))
		st_device_gone(d->m->m_st, d->uuid);
	else
		st_device_changed(d->m->m_st, d->uuid);
	free(d->ino);
	free(d);
}

void job_ds_dead(struct mds *m, struct loop *loop, uint32_t id, const uint8_t uuid[16])
{
	struct death *d = calloc(1, sizeof(*d));

	if (!d)
		log_fatal("out of memory while recalling layouts of a dead server");
	d->m = m;
	d->loop = loop;
	d->id = id;
	d->began_ns = clock_mono_ns();
	memcpy(d->uuid, uuid, 16);
	dead_server_collect(d);
	death_go(d);
}

/* ---- objects on servers that do not come back: examines all files, some in each tick ---- */

#define SWEEP_FILES 1024
#define SWEEP_REST  16	/* ticks between searches for such servers */
#define SWEEP_AGAIN 240 /* ticks before files without another copy are examined again */

struct op_sweep {
	struct mds *sw_m;
	struct loop *sw_loop;
	/* cursor 0: no sweep is under way; only: files without another copy */
	uint64_t sw_cursor, sw_only;
	unsigned sw_rest, sw_busy, sw_seen, sw_found;
	/* all files have been examined; those of the last tick may not be done yet */
	bool sw_last;
	bool sw_gone[DS_REG_MAX + 1]; /* the servers of this sweep */
	/* sv_since_s of a server when a sweep found nothing more to do for it */
	uint64_t sw_done[DS_REG_MAX + 1];
	uint64_t sw_since[DS_REG_MAX + 1];
	uint64_t sw_ino[AT_ONCE];
};

static void swept(void *arg, int err)
{
	struct op_sweep *sw = arg;

	sw->sw_only += err != 0; /* the next look tries again */
	sw->sw_busy--;
}

static int sweep_file(void *arg, const struct ns_inode *i)
{
	struct op_sweep *sw = arg;
	uint64_t dead, gone = 0;
	struct lo_map map;

	if (sw->sw_seen++ == SWEEP_FILES || sw->sw_found == AT_ONCE)
		return 1;
	sw->sw_cursor = i->i_ino + 1;
	if (lo_map_decode(i->i_blob, &map))
		return 0;
	dead = lo_map_dead(sw->sw_m->m_lo, &map);
	for (unsigned k = 0; dead >> k; k++)
		gone |= (dead >> k & 1 & (uint64_t)sw->sw_gone[map.lm_obj[k].ob_ds]) << k;
	if (!gone)
		return 0;
	if (lo_map_make_stale(&map, dead, NULL) & gone)
		sw->sw_ino[sw->sw_found++] = i->i_ino;
	else
		sw->sw_only++;
	return 0;
}

/* Finds the servers that were killed, or have been away so long that their objects are made again
 * elsewhere. */
static bool sweep_begin(struct op_sweep *sw)
{
	struct mds *m = sw->sw_m;
	uint32_t wait = job_repair_opts(m).ro_wait_ms;
	struct ds_reg_server sv;
	bool any = false;

	for (uint32_t id = 1; id <= DS_REG_MAX; id++) {
		sw->sw_gone[id] = ds_reg_known(m->m_dsc, id) && ds_reg_dead(m->m_dsc, id) &&
				  ds_reg_since_heartbeat_ms(m->m_dsc, id) >= wait &&
				  ds_reg_get(m->m_dsc, id, &sv) && sv.sv_since_s != sw->sw_done[id];
		if (!sw->sw_gone[id])
			continue;
		sw->sw_since[id] = sv.sv_since_s;
		any = true;
	}
	sw->sw_only = 0;
	sw->sw_cursor = any;
	return any;
}

static void sweep_over(struct op_sweep *sw)
{
	for (uint32_t id = 1; !sw->sw_only && id <= DS_REG_MAX; id++)
		if (sw->sw_gone[id])
			sw->sw_done[id] = sw->sw_since[id];
	sw->sw_rest = sw->sw_only ? SWEEP_AGAIN : SWEEP_REST;
	sw->sw_cursor = 0;
	sw->sw_last = false;
}

void job_dead_tick(struct mds *m, struct loop *loop)
{
	struct op_sweep *sw = m->m_sweep ? m->m_sweep : (m->m_sweep = calloc(1, sizeof(*sw)));
	struct kv_txn *t;
	int err;

	if (!sw || sw->sw_busy || !job_repair_opts(m).ro_files || (sw->sw_rest && --sw->sw_rest))
		return;
	sw->sw_m = m;
	sw->sw_loop = loop;
	if (sw->sw_last) {
		sweep_over(sw);
		return;
	}
	if (!sw->sw_cursor && !sweep_begin(sw)) {
		sw->sw_rest = SWEEP_REST;
		return;
	}
	if (kv_read_begin(m->m_kv, &t))
		return;
	sw->sw_seen = sw->sw_found = 0;
	err = ns_files(m->m_ns, t, sw->sw_cursor, sweep_file, sw);
	kv_read_end(t);
	if (err)
		log_error("cannot read the files of a dead server: %s", strerror(-err));
	sw->sw_only += err != 0;
	for (unsigned i = 0; i < sw->sw_found; i++) {
		struct without *w = without_new(m, loop, sw->sw_ino[i], swept, sw);

		sw->sw_busy++;
		kv_submit(m->m_kv, &w->op);
	}
	sw->sw_last = err || (sw->sw_seen <= SWEEP_FILES && sw->sw_found < AT_ONCE);
}
