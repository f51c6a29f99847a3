/* SPDX-License-Identifier: Apache-2.0 */
/*
 * repair.c - which file is repaired when, and what becomes of its layouts meanwhile
 * (docs/repair.md). All of it runs on one loop.
 *
 * The table of repairs is the queue. A tick reads on in the table where the last tick ended, and
 * takes what can be done now. So while a file waits, its row is all that is remembered of it. A job
 * does one object after the other:
 *	freeze   all layouts are back, every older capability is fenced, and nothing is written
 *	         through the MDS
 *	T1       the object is REBUILDING, in its place or as a new one elsewhere; the row has the
 *	         session
 *	BEGIN    from here on the data server notes what clients write; the file is thawed, and
 *	         write layouts name the object
 *	PULL     until the source's end
 *	END      the object is durable
 *	T2       the object is in sync, if it still is what T1 made it
 * When all that can be repaired is repaired, objects move, and mirrors go (move.c).
 *
 * Each new BEGIN comes after a new freeze. Otherwise an earlier write that has reached the target,
 * and is still on its way to the source, would be overwritten at the target.
 */
#include "mds/file/mirror_state.h"
#include "mds/jobs/repair.h"
#include "base/clock.h"
#include "base/log.h"
#include <errno.h>
#include <sodium.h>

#define FILES_MAX  64
#define SCAN_ROWS  4096 /* rows of the table that a tick reads */
#define SCAN_MOVES 512	/* rows that a tick checks for files that can move */
#define RESTS	   1024 /* files that are remembered because they wait for a place */
#define REST_MS	   1000
#define PULL_BYTES (8u << 20)
#define SAVE_BYTES (256ull << 20)
#define AGAIN_MS   500
/* for a source or a target that does not answer: the limits of two steps (layout/repair_row.c) at
 * least. Otherwise the target would be blamed for a source that hangs. */
#define PATIENCE_MS  70000
#define SILENT_FAILS 3	  /* after more failures the object is placed elsewhere */
#define ORDERS_MS    5000 /* for older orders of the object */

struct job {
	struct job_repair *r;
	struct mds *m;
	struct loop *loop;
	uint64_t ino;
	struct lo_repair row;
	struct excl freeze;
	struct excl_layout_block hold;
	struct op_move move;
	struct kv_op op;
	struct lo_rebuild rb;
	struct lo_stat stat;
	struct loop_timer timer;
	void (*wake)(struct job *j);
	/* the attempt */
	unsigned obj;
	uint32_t ds;
	uint8_t copy; /* with ds: which object it is */
	uint16_t incarnation;
	/* saved: the progress in the row; since: when the wait for a server began */
	uint64_t session, saved, since_ms, started_ms;
	uint64_t orders; /* lo_order_pending */
	unsigned source;
	enum lo_where where;
	enum lo_repair_why why;
	bool repaired;	  /* at least one object */
	bool begun, lost; /* lost: the object does not belong to this job any more */
	struct job_repair_view view;
};

struct job_repair {
	struct mds *r_m;
	struct loop *r_loop;
	struct job_repair_opts r_opts;
	struct job *r_job[FILES_MAX];
	struct loop_timer r_next;
	/* protects r_job and the views: the loop changes them, any thread reads them */
	pthread_mutex_t r_lock;
	uint64_t r_started_ms;	      /* data servers come back within a lease from this */
	uint64_t r_cursor, r_next_ns; /* r_next_ns: when the next pull may begin */
	struct {
		uint64_t ino, until_ms;
	} r_rest[RESTS];
	struct metric *r_repaired, *r_failed, *r_copied, *r_same;
};

static void job_object(struct job *j);
static void job_pull(struct job *j);
static void job_freeze(struct job *j);

static uint64_t wall_s(void)
{
	return (uint64_t)file_now().t_sec;
}

/* ---- the parts of a job ---- */

static void job_end(struct job *j)
{
	struct job_repair *r = j->r;

	excl_end(&j->freeze, 0);
	pthread_mutex_lock(&r->r_lock);
	for (unsigned i = 0; i < FILES_MAX; i++)
		if (r->r_job[i] == j)
			r->r_job[i] = NULL;
	pthread_mutex_unlock(&r->r_lock);
	/* The next jobs of very many small files do not wait for a tick. */
	if (j->repaired && !r->r_next.t_pos)
		loop_timer_start(r->r_loop, &r->r_next, 1);
	free(j);
}

static void job_view(struct job *j, enum job_repair_step step)
{
	pthread_mutex_lock(&j->r->r_lock);
	j->view.rv_step = step;
	j->view.rv_ino = j->ino;
	j->view.rv_object = j->obj;
	j->view.rv_to = j->ds;
	pthread_mutex_unlock(&j->r->r_lock);
}

static void job_submit(struct job *j, int (*run)(struct kv_op *op, struct kv_txn *t),
		       void (*done)(struct kv_op *op, int err))
{
	j->op = (struct kv_op){.o_run = run, .o_done = done, .o_loop = j->loop};
	kv_submit(j->m->m_kv, &j->op);
}

static void job_woken(struct loop_timer *t)
{
	struct job *j = hash_entry(t, struct job, timer);

	j->wake(j);
}

static void job_later(struct job *j, uint32_t ms, void (*wake)(struct job *j))
{
	j->wake = wake;
	j->timer.t_fire = job_woken;
	loop_timer_start(j->loop, &j->timer, ms);
}

static int repair_job_map(struct job *j, struct kv_txn *t, struct ns_inode *i, struct lo_map *map)
{
	int err = ns_get(j->m->m_ns, t, j->ino, i);

	return err ? err : lo_map_decode(i->i_blob, map);
}

/* Whether the map has the object of this attempt as the attempt made it. */
static bool job_owns(const struct job *j, const struct ns_inode *i, const struct lo_map *map,
		     enum lo_state state)
{
	const struct lo_object *o = &map->lm_obj[j->obj];

	return i->i_incarnation == j->incarnation &&
	       j->obj < (unsigned)map->lm_stripes * map->lm_mirrors && o->ob_ds == j->ds &&
	       o->ob_copy == j->copy && o->ob_state == state;
}

/* Reads the current map, by which the data servers are asked. -ESTALE: the object does not belong
 * to this job any more. */
static int job_look(struct job *j)
{
	struct ns_inode i;
	struct kv_txn *t;
	int err = kv_read_begin(j->m->m_kv, &t);

	if (err)
		return err;
	err = repair_job_map(j, t, &i, &j->rb.rb_map);
	if (!err && !job_owns(j, &i, &j->rb.rb_map, LO_REBUILDING))
		err = -ESTALE;
	kv_read_end(t);
	return err;
}

static void job_step(struct job *j, int step, void (*done)(struct lo_rebuild *rb, int err))
{
	j->rb.rb_ino = j->ino;
	j->rb.rb_incarnation = j->incarnation;
	j->rb.rb_obj = j->obj;
	j->rb.rb_step = step;
	j->rb.rb_session = j->session;
	j->rb.rb_done = done;
	lo_rebuild(j->m->m_lo, &j->rb);
}

/* ---- a failure ---- */

/* Makes the object stale that the attempt left. An object that became stale in between, or belongs
 * to another job now, stays as it is. */
static int fail_run(struct kv_op *op, struct kv_txn *t)
{
	struct job *j = hash_entry(op, struct job, op);
	struct ns_inode i;
	struct lo_map map;
	int err = repair_job_map(j, t, &i, &map);

	if (err)
		return err == -ENOENT || err == -ESTALE ? lo_repair_del(t, j->ino) : err;
	if (lo_repair_get(t, j->ino, &j->row))
		j->row = (struct lo_repair){0};
	lo_repair_failed(&j->row, j->why, wall_s());
	lo_repair_of(&j->row, j->obj);
	/* A server that does not answer may come back in time. */
	if (j->why == LO_REPAIR_TARGET || j->why == LO_REPAIR_FULL ||
	    (j->why == LO_REPAIR_NO_ANSWER && j->row.rr_fails > SILENT_FAILS))
		j->row.rr_bad = j->ds;
	err = lo_repair_put(t, j->ino, &j->row);
	if (err || !job_owns(j, &i, &map, LO_REBUILDING))
		return err;
	map.lm_obj[j->obj].ob_state = LO_STALE;
	return excl_stale(&j->hold, &j->m->m_file, t, j->ino, &map, file_now());
}

static void fail_aborted(struct lo_rebuild *rb, int err)
{
	/* the server forgets the session now, or at the next session, or when it restarts */
	(void)err;
	job_end(hash_entry(rb, struct job, rb));
}

static void fail_abort(struct job *j)
{
	if (j->session && j->rb.rb_map.lm_stripes &&
	    ds_reg_since_heartbeat_ms(j->m->m_dsc, j->ds) == 0)
		job_step(j, CTL_REBUILD_ABORT, fail_aborted);
	else
		job_end(j);
}

static void fail_left(void *arg, int err)
{
	struct job *j = arg;

	(void)err;
	excl_unblock(&j->hold);
	fail_abort(j);
}

static void fail_done(struct kv_op *op, int err)
{
	struct job *j = hash_entry(op, struct job, op);

	if (err)
		log_error("inode %lu: cannot record the failed repair: %s", (unsigned long)j->ino,
			  strerror(-err));
	excl_end(&j->freeze, 0);
	/* Write layouts name the object, and their writes to it fail from here on. */
	if (j->begun &&
	    excl_recall_stale(&j->hold, &j->m->m_file, j->loop, j->ino, NULL, fail_left, j))
		return;
	fail_left(j, 0);
}

static void job_fail(struct job *j, enum lo_repair_why why)
{
	log_warn("inode %lu: the repair of object %u on data server %u stopped: %s",
		 (unsigned long)j->ino, j->obj, j->ds, lo_repair_why_text(why));
	metric_add(j->r->r_failed, 1);
	j->why = why;
	job_submit(j, fail_run, fail_done);
}

/* What a step's error says about the server. */
static enum lo_repair_why why_of(int err)
{
	return err == -ENOSPC	   ? LO_REPAIR_FULL
	       : err == -ETIMEDOUT ? LO_REPAIR_NO_ANSWER
	       : err == -EACCES	   ? LO_REPAIR_BUSY
				   : LO_REPAIR_TARGET;
}

/* Begins again in this job: the session is gone, and with it the notes of what clients wrote.
 * Layouts name the object until the freeze has recalled them (begun stays set). */
static void job_anew(struct job *j)
{
	j->session = 0;
	j->since_ms = 0;
	job_freeze(j);
}

/* Whether the job still waits for a server: it does not wait for ever. */
static bool job_patient(struct job *j)
{
	if (!j->since_ms)
		j->since_ms = clock_mono_ms();
	return clock_mono_ms() - j->since_ms < PATIENCE_MS;
}

/* ---- END, and in sync ---- */

static int t2_run(struct kv_op *op, struct kv_txn *t)
{
	struct job *j = hash_entry(op, struct job, op);
	struct ns_inode i;
	struct lo_map map;
	bool taking;
	int err = repair_job_map(j, t, &i, &map);

	if (err)
		return err;
	/* An acknowledged write that the object missed has made it stale first. */
	j->lost = !job_owns(j, &i, &map, LO_REBUILDING);
	if (j->lost)
		return 0;
	/* Two clients may have written this copy in another order than the other copies, and
	 * readers have seen those. */
	lo_map_join(&map, j->obj, file_is_contended(j->m, j->ino, &map, &taking));
	map.lm_obj[j->obj].ob_known = 1;
	map.lm_obj[j->obj].ob_writes = j->rb.rb_res.writes; /* the copying is no write */
	err = file_set_map(&j->m->m_file, t, j->ino, &map, file_now());
	if (err)
		return err;
	if (lo_map_whole(&map))
		return lo_repair_del(t, j->ino);
	/* Keep rr_now: the administrator may have set it in between. */
	if (lo_repair_get(t, j->ino, &j->row))
		j->row.rr_now = false;
	j->row = (struct lo_repair){.rr_now = j->row.rr_now};
	return lo_repair_put(t, j->ino, &j->row);
}

static void t2_done(struct kv_op *op, int err)
{
	struct job *j = hash_entry(op, struct job, op);

	if (err == -ESTALE || err == -ENOENT) {
		job_end(j); /* the file was removed, and its row with it */
		return;
	}
	if (err || j->lost) {
		job_fail(j, LO_REPAIR_CHANGED);
		return;
	}
	log_info("inode %lu: object %u on data server %u is in sync again: %lu bytes written, %lu "
		 "were equal",
		 (unsigned long)j->ino, j->obj, j->ds, (unsigned long)j->view.rv_copied,
		 (unsigned long)j->view.rv_same);
	metric_add(j->r->r_repaired, 1);
	j->repaired = true;
	j->begun = false;
	j->session = 0;
	job_object(j);
}

static void job_finish(struct job *j);

static void end_done(struct lo_rebuild *rb, int err)
{
	struct job *j = hash_entry(rb, struct job, rb);

	if (err == -ESTALE)
		job_anew(j);
	else if ((err == -ETIMEDOUT || err == -EACCES) && job_patient(j))
		job_later(j, AGAIN_MS, job_finish);
	else if (err)
		job_fail(j, why_of(err));
	else
		job_submit(j, t2_run, t2_done);
}

static void job_finish(struct job *j)
{
	int err = job_look(j);

	if (err) {
		job_fail(j, LO_REPAIR_CHANGED);
		return;
	}
	job_view(j, OP_REPAIR_END);
	job_step(j, CTL_REBUILD_END, end_done);
}

/* ---- PULL ---- */

/* Saves the progress, for a restart of this server. */
static int save_run(struct kv_op *op, struct kv_txn *t)
{
	struct job *j = hash_entry(op, struct job, op);
	struct lo_repair row;
	int err = lo_repair_get(t, j->ino, &row);

	if (err || row.rr_session != j->session)
		return err == -ENOENT ? 0 : err;
	row.rr_done = j->rb.rb_off;
	return lo_repair_put(t, j->ino, &row);
}

static void save_done(struct kv_op *op, int err)
{
	struct job *j = hash_entry(op, struct job, op);

	(void)err; /* on error a restart pulls more again */
	j->saved = j->rb.rb_off;
	job_pull(j);
}

/* All jobs together keep to the rate: each pull delays the next. */
static uint32_t pace(struct job_repair *r, uint64_t bytes)
{
	uint64_t now = clock_mono_ns();

	if (r->r_next_ns < now)
		r->r_next_ns = now;
	if (r->r_opts.ro_rate)
		r->r_next_ns += (uint64_t)((double)bytes * 1e9 / (double)r->r_opts.ro_rate);
	return (uint32_t)((r->r_next_ns - now) / 1000000);
}

uint32_t job_repair_pace(struct mds *m, uint64_t bytes)
{
	return pace(m->m_repair, bytes);
}

static void pulled(struct job *j)
{
	const ctl_rebuild_res *res = &j->rb.rb_res;
	uint32_t wait;

	metric_add(j->r->r_copied, res->copied);
	metric_add(j->r->r_same, res->same);
	pthread_mutex_lock(&j->r->r_lock);
	j->view.rv_copied += res->copied;
	j->view.rv_same += res->same;
	j->view.rv_done = res->next;
	j->view.rv_size = res->size;
	pthread_mutex_unlock(&j->r->r_lock);
	j->since_ms = 0;
	j->source = 0;
	j->rb.rb_off = res->next;
	/* Last time the object missed a write, perhaps because there was no room for notes. Without
	 * a pause the pulls catch up with the writes sooner. */
	wait = j->row.rr_why == LO_REPAIR_CHANGED ? 0 : pace(j->r, res->copied + res->same);
	if (res->eof)
		job_later(j, wait, job_finish);
	else if (res->next - j->saved >= SAVE_BYTES)
		job_submit(j, save_run, save_done);
	else
		job_later(j, wait, job_pull);
}

/* The r-th copy to read from. A copy with an order to truncate it, or to clone to it, is no source
 * yet: what is pulled from it would be at the target even after that order, and only there. */
static int job_source(struct job *j, unsigned r)
{
	struct lo *lo = j->m->m_lo;
	uint64_t held = lo_objects_with_orders(lo, j->ino, &j->rb.rb_map);
	int k;

	for (unsigned n = 0; (k = lo_repair_source(lo, &j->rb.rb_map, j->obj, n)) >= 0; n++)
		if (!(held >> k & 1) && r-- == 0)
			return k;
	return -1;
}

/* When sources refuse: whether all of them are missing. The job does not wait for a missing source:
 * very many such files would take all turns. */
static bool sources_lost(const struct job *j)
{
	const struct lo_map *map = &j->stat.ls_map;
	uint64_t sources = 0;

	for (unsigned k = j->obj % map->lm_stripes; k < lo_objects(map); k += map->lm_stripes)
		sources |= (uint64_t)(map->lm_obj[k].ob_state == LO_IN_SYNC) << k;
	return sources && !(sources & ~j->stat.ls_lost);
}

static void job_ask(struct job *j, const struct lo_map *map,
		    void (*done)(struct lo_stat *ls, int err))
{
	j->stat.ls_loop = j->loop;
	j->stat.ls_ino = j->ino;
	j->stat.ls_incarnation = j->incarnation;
	j->stat.ls_map = *map;
	j->stat.ls_done = done;
	lo_stat(j->m->m_lo, &j->stat);
}

static void pull_asked(struct lo_stat *ls, int err)
{
	struct job *j = hash_entry(ls, struct job, stat);

	(void)err; /* on error nothing is known to be lost */
	if (sources_lost(j))
		job_fail(j, LO_REPAIR_LOST);
	else if (job_patient(j))
		job_later(j, AGAIN_MS, job_pull);
	else
		job_fail(j, LO_REPAIR_NO_SOURCE);
}

static void pull_done(struct lo_rebuild *rb, int err)
{
	struct job *j = hash_entry(rb, struct job, rb);

	if (!err) {
		pulled(j);
	} else if (err == -ESTALE) {
		job_anew(j);
	} else if (err == -EREMOTEIO) {
		j->source++; /* another copy, or the first one again in a moment */
		if (job_source(j, j->source) >= 0)
			job_pull(j);
		else
			job_ask(j, &j->rb.rb_map, pull_asked);
	} else if ((err == -ETIMEDOUT || err == -EACCES) && job_patient(j)) {
		job_later(j, AGAIN_MS, job_pull);
	} else {
		job_fail(j, why_of(err));
	}
}

static void job_pull(struct job *j)
{
	int err = job_look(j), source = err ? -1 : job_source(j, j->source);

	if (err) {
		job_fail(j, LO_REPAIR_CHANGED);
		return;
	}
	if (source < 0) {
		j->source = 0;
		if (job_patient(j))
			job_later(j, AGAIN_MS, job_pull);
		else
			job_fail(j, LO_REPAIR_NO_SOURCE);
		return;
	}
	j->rb.rb_source = (unsigned)source;
	j->rb.rb_len = PULL_BYTES;
	pthread_mutex_lock(&j->r->r_lock);
	j->view.rv_from = j->rb.rb_map.lm_obj[source].ob_ds;
	pthread_mutex_unlock(&j->r->r_lock);
	job_step(j, CTL_REBUILD_PULL, pull_done);
}

static void job_copy(struct job *j, uint64_t from)
{
	j->rb.rb_off = j->saved = from;
	j->since_ms = 0;
	j->source = 0;
	pthread_mutex_lock(&j->r->r_lock);
	j->view.rv_done = j->view.rv_began = from;
	j->view.rv_copied = j->view.rv_same = j->view.rv_size = 0;
	j->started_ms = clock_mono_ms();
	pthread_mutex_unlock(&j->r->r_lock);
	job_view(j, OP_REPAIR_COPY);
	job_pull(j);
}

/* ---- BEGIN ---- */

static void job_begin(struct job *j);

static void begin_done(struct lo_rebuild *rb, int err)
{
	struct job *j = hash_entry(rb, struct job, rb);

	if (err) {
		job_fail(j, why_of(err));
		return;
	}
	j->begun = true;
	excl_end(&j->freeze, 0);
	job_copy(j, 0);
}

/* Waits for older orders that are not done at the data server: later they would change what is
 * copied. */
static void job_begin(struct job *j)
{
	int err = job_look(j);

	if (err) {
		job_fail(j, LO_REPAIR_CHANGED);
	} else if (lo_order_pending(j->m->m_lo, j->ino, &j->rb.rb_map, j->obj, &j->orders)) {
		if (!j->since_ms)
			j->since_ms = clock_mono_ms();
		if (clock_mono_ms() - j->since_ms < ORDERS_MS)
			job_later(j, AGAIN_MS / 5, job_begin);
		else /* the freeze did not wait for these orders */
			job_fail(j, ds_reg_since_heartbeat_ms(j->m->m_dsc, j->ds)
					    ? LO_REPAIR_NO_ANSWER
					    : LO_REPAIR_TARGET);
	} else {
		job_view(j, OP_REPAIR_BEGIN);
		job_step(j, CTL_REBUILD_BEGIN, begin_done);
	}
}

/* ---- T1 ---- */

static int t1_place(struct job *j, struct kv_txn *t, const struct ns_inode *i, struct lo_map *map,
		    uint32_t ds)
{
	struct lo_object *o = &map->lm_obj[j->obj];
	int err;

	if (j->where != LO_ELSEWHERE)
		return 0;
	for (unsigned k = j->obj % map->lm_stripes; k < (unsigned)map->lm_stripes * map->lm_mirrors;
	     k += map->lm_stripes)
		if (map->lm_obj[k].ob_ds == ds)
			/* another object of this stripe was placed on that server in between */
			return -EAGAIN;
	err = lo_order_free_object(j->m->m_lo, t, i, map, j->obj);
	if (err)
		return err;
	o->ob_copy = lo_map_new_copy(map, j->obj % map->lm_stripes);
	o->ob_ds = ds;
	o->ob_known = 0;
	return 0;
}

static int t1_run(struct kv_op *op, struct kv_txn *t)
{
	struct job *j = hash_entry(op, struct job, op);
	uint64_t left;
	uint32_t ds;
	struct ns_inode i;
	struct lo_map map;
	int err = repair_job_map(j, t, &i, &map);

	if (!err &&
	    (i.i_incarnation != j->incarnation || map.lm_obj[j->obj].ob_state == LO_IN_SYNC))
		err = -EAGAIN; /* the file was placed again, or another repair did it */
	if (err)
		return err;
	if (lo_repair_get(t, j->ino, &j->row))
		j->row = (struct lo_repair){0};
	j->where = lo_repair_where(j->m->m_lo, &map, j->obj, &j->row, j->r->r_opts.ro_wait_ms, &ds,
				   &left);
	if (j->where > LO_ELSEWHERE)
		return -EAGAIN;
	err = j->where == LO_ELSEWHERE ? ds_reg_nfs3_ready(j->m->m_dsc, t, ds, 1) : 0;
	if (!err)
		err = t1_place(j, t, &i, &map, ds);
	if (err)
		return err;
	map.lm_obj[j->obj].ob_state = LO_REBUILDING;
	randombytes_buf(&j->session, sizeof(j->session));
	j->session |= 1;
	j->ds = ds;
	j->copy = map.lm_obj[j->obj].ob_copy;
	j->row.rr_session = j->session;
	lo_repair_of(&j->row, j->obj);
	j->row.rr_done = 0;
	err = lo_repair_put(t, j->ino, &j->row);
	return err ? err : file_set_map(&j->m->m_file, t, j->ino, &map, file_now());
}

static void t1_done(struct kv_op *op, int err)
{
	struct job *j = hash_entry(op, struct job, op);

	if (err) {
		job_fail(j, LO_REPAIR_BUSY);
		return;
	}
	if (j->where == LO_ELSEWHERE)
		lo_orders_wake(j->m->m_lo);
	j->since_ms = j->orders = 0;
	job_begin(j);
}

/* ---- freeze ---- */

static void repair_frozen(void *arg, int err)
{
	struct job *j = arg;

	if (!err) {
		job_submit(j, t1_run, t1_done);
		return;
	}
	excl_end(&j->freeze, 0);
	if (err == -EAGAIN && job_patient(j))
		job_later(j, AGAIN_MS, job_freeze);
	else
		/* Also where a fence is not confirmed: which server failed to is not known here,
		 * and it is seldom the target. */
		job_fail(j, LO_REPAIR_BUSY);
}

static void job_freeze(struct job *j)
{
	job_view(j, OP_REPAIR_RECALL);
	excl_begin(&j->freeze, &j->m->m_file, j->loop, j->ino, NULL, EXCL_LAYOUTS, repair_frozen,
		   j);
}

/* ---- what moves ---- */

static void job_moved(void *arg, int err)
{
	struct job *j = arg;

	if (!err) {
		j->since_ms = 0;
		job_object(j);
	} else if (err == -ESTALE || err == -ENOENT) {
		job_end(j); /* the file was removed, and its row with it */
	} else if (err == -EAGAIN && job_patient(j)) {
		job_later(j, AGAIN_MS, job_object);
	} else {
		job_fail(j, err == -ETIMEDOUT ? LO_REPAIR_NO_ANSWER : LO_REPAIR_BUSY);
	}
}

/* ---- which object ---- */

/* What there is to do for a file now. pick returns -ENOENT: nothing; -EAGAIN: something waits;
 * 0: the job's object, and resume if its session may still live. */
struct pick {
	struct ns_inode i;
	struct lo_map map;
	unsigned obj;
	uint32_t ds;
	/* demote: nothing goes on with the object that is being rebuilt, so it becomes stale */
	bool resume, demote;
	bool vain; /* a place was looked for, and there is none */
	enum job_move_what move;
};

/* moves: check also whether the file can move. Otherwise a file that could only move waits. */
static int pick(struct job_repair *r, struct kv_txn *t, uint64_t ino, const struct lo_repair *row,
		bool moves, struct pick *p)
{
	int err = ns_get(r->r_m->m_ns, t, ino, &p->i);
	bool waits = false, off = !r->r_opts.ro_files;
	enum lo_where where;
	const char *why;
	uint64_t left;

	p->resume = p->demote = p->vain = false;
	p->move = OP_MOVE_NOTHING;
	if (!err)
		err = lo_map_decode(p->i.i_blob, &p->map);
	if (err)
		return err == -ESTALE ? -ENOENT : err;
	for (unsigned n = 0; n < (unsigned)p->map.lm_stripes * p->map.lm_mirrors; n++) {
		unsigned k = (lo_repair_first(row) + n) %
			     ((unsigned)p->map.lm_stripes * p->map.lm_mirrors);
		const struct lo_object *o = &p->map.lm_obj[k];
		bool later = off || lo_repair_waits(row, wall_s());

		if (o->ob_state == LO_IN_SYNC || o->ob_state == LO_ABSENT ||
		    (o->ob_leaving && o->ob_state == LO_STALE))
			continue;
		waits = true;
		p->obj = k;
		p->ds = o->ob_ds;
		p->resume = !off && o->ob_state == LO_REBUILDING && row->rr_session &&
			    row->rr_object == k &&
			    !ds_reg_since_heartbeat_ms(r->r_m->m_dsc, o->ob_ds);
		if (p->resume)
			return 0;
		where = later ? LO_WAIT_SERVER
			      : lo_repair_where(r->r_m->m_lo, &p->map, k, row, r->r_opts.ro_wait_ms,
						&p->ds, &left);
		if (where <= LO_ELSEWHERE)
			return 0;
		p->vain |= where == LO_WAIT_SPACE;
		if (o->ob_state == LO_REBUILDING &&
		    clock_mono_ms() - r->r_started_ms > r->r_m->m_ds_lease_ms) {
			p->demote = true;
			p->ds = o->ob_ds;
			return 0;
		}
	}
	if (!moves)
		return -EAGAIN;
	p->move = job_move_look(r->r_m, ino, &p->map, &why);
	p->vain |= p->move == OP_MOVE_WAITS;
	waits |= p->move != OP_MOVE_NOTHING;
	if (p->move > OP_MOVE_WAITS && !off && !lo_repair_waits(row, wall_s())) {
		p->obj = lo_objects(&p->map) - p->map.lm_stripes;
		return 0;
	}
	return waits ? -EAGAIN : -ENOENT;
}

static int row_del_run(struct kv_op *op, struct kv_txn *t)
{
	struct job *j = hash_entry(op, struct job, op);
	struct ns_inode i;
	struct lo_map map;

	int err = repair_job_map(j, t, &i, &map);

	if (!err)
		return lo_map_whole(&map) ? lo_repair_del(t, j->ino) : 0;
	/* a file that cannot be read now may not be whole */
	return err == -ENOENT || err == -ESTALE ? lo_repair_del(t, j->ino) : err;
}

static void row_deleted(struct kv_op *op, int err)
{
	(void)err; /* on error the next scan deletes it */
	job_end(hash_entry(op, struct job, op));
}

/* While the sources are still lost, nothing is recalled or fenced. */
static void lost_asked(struct lo_stat *ls, int err)
{
	struct job *j = hash_entry(ls, struct job, stat);

	(void)err;
	if (sources_lost(j))
		job_fail(j, LO_REPAIR_LOST);
	else
		job_freeze(j);
}

/* Goes on with the file's next object, or ends the job. */
static void job_object(struct job *j)
{
	struct kv_txn *t;
	struct pick p;
	int err = kv_read_begin(j->m->m_kv, &t);

	if (err) {
		job_end(j);
		return;
	}
	err = lo_repair_get(t, j->ino, &j->row);
	if (!err)
		err = pick(j->r, t, j->ino, &j->row, true, &p);
	kv_read_end(t);
	if (err == -ENOENT) {
		job_submit(j, row_del_run, row_deleted);
		return;
	}
	if (err) {
		job_end(j);
		return;
	}
	j->obj = p.obj;
	j->ds = p.map.lm_obj[p.obj].ob_ds;
	j->copy = p.map.lm_obj[p.obj].ob_copy;
	j->incarnation = p.i.i_incarnation;
	if (p.move > OP_MOVE_WAITS) {
		job_view(j, OP_REPAIR_SWITCH);
		job_move_step(&j->move, j->m, j->loop, j->ino, p.move, job_moved, j);
		return;
	}
	j->since_ms = 0;
	if (p.demote) {
		j->begun = true; /* layouts may name the object */
		job_fail(j, j->row.rr_why ? j->row.rr_why : LO_REPAIR_NO_ANSWER);
	} else if (p.resume) {
		j->session = j->row.rr_session;
		j->begun = true;
		job_copy(j, j->row.rr_done);
	} else if (j->row.rr_why == LO_REPAIR_LOST) {
		job_ask(j, &p.map, lost_asked);
	} else {
		job_freeze(j);
	}
}

/* ---- the table ---- */

struct scan {
	struct job_repair *r;
	struct kv_txn *t;
	unsigned rows, looks, n, nmove, room;
	/* move: files that only move come last, as a drain has very many */
	uint64_t last, ino[FILES_MAX], move[FILES_MAX];
	bool more;
};

static bool under_way(const struct job_repair *r, uint64_t ino)
{
	for (unsigned i = 0; i < FILES_MAX; i++)
		if (r->r_job[i] && r->r_job[i]->ino == ino)
			return true;
	return false;
}

/* The file waits: places are not looked for again and again while there are none. */
static bool rests(const struct job_repair *r, uint64_t ino)
{
	return r->r_rest[ino % RESTS].ino == ino &&
	       clock_mono_ms() < r->r_rest[ino % RESTS].until_ms;
}

static void repair_rest(struct job_repair *r, uint64_t ino)
{
	r->r_rest[ino % RESTS].ino = ino;
	r->r_rest[ino % RESTS].until_ms = clock_mono_ms() + REST_MS;
}

static int repair_scan_row(void *arg, uint64_t ino, const struct lo_repair *row)
{
	struct scan *s = arg;
	struct pick p;
	bool moves;
	int err;

	if (s->n == s->room || s->rows++ == SCAN_ROWS) {
		s->more = true;
		return 1;
	}
	s->last = ino;
	if (under_way(s->r, ino) || rests(s->r, ino))
		return 0;
	moves = s->nmove < s->room && s->looks < SCAN_MOVES;
	s->looks += moves;
	err = pick(s->r, s->t, ino, row, moves, &p);
	if (!err && p.move > OP_MOVE_WAITS)
		s->move[s->nmove++] = ino;
	else if (!err || err == -ENOENT)
		s->ino[s->n++] = ino;
	else if (p.vain)
		repair_rest(s->r, ino);
	return 0;
}

static void job_start(struct job_repair *r, uint64_t ino)
{
	struct job *j = calloc(1, sizeof(*j));
	unsigned i = 0;

	if (!j)
		return; /* no memory: the next scan finds the file again */
	j->r = r;
	j->m = r->r_m;
	j->loop = r->r_loop;
	j->ino = j->view.rv_ino = ino;
	pthread_mutex_lock(&r->r_lock);
	while (r->r_job[i])
		i++;
	r->r_job[i] = j;
	pthread_mutex_unlock(&r->r_lock);
	job_object(j);
}

/* Repair is off: one job at a time, which only makes objects stale that nothing rebuilds. */
static unsigned room(const struct job_repair *r)
{
	unsigned busy = 0, most = r->r_opts.ro_files ? r->r_opts.ro_files : 1;

	for (unsigned i = 0; i < FILES_MAX; i++)
		busy += r->r_job[i] != NULL;
	return busy < most ? most - busy : 0;
}

void job_repair_tick(struct mds *m)
{
	struct job_repair *r = m->m_repair;
	struct scan s = {.r = r, .room = room(r)};
	int err;

	if (!s.room || st_in_grace(m->m_st) || kv_read_begin(m->m_kv, &s.t))
		return;
	err = lo_repairs(s.t, r->r_cursor, repair_scan_row, &s);
	kv_read_end(s.t);
	if (err < 0)
		log_error("cannot read the table of repairs: %s", strerror(-err));
	r->r_cursor = s.more ? s.last + 1 : 1;
	for (unsigned i = 0; i < s.n; i++)
		job_start(r, s.ino[i]);
	for (unsigned i = 0; i < s.nmove && s.n + i < s.room; i++)
		job_start(r, s.move[i]);
}

/* ---- for the administrator ---- */

unsigned job_repair_list(struct mds *m, struct job_repair_view *out, unsigned max)
{
	struct job_repair *r = m->m_repair;
	unsigned n = 0;

	pthread_mutex_lock(&r->r_lock);
	for (unsigned i = 0; i < FILES_MAX && n < max; i++) {
		if (!r->r_job[i])
			continue;
		out[n] = r->r_job[i]->view;
		out[n].rv_ms =
			r->r_job[i]->started_ms ? clock_mono_ms() - r->r_job[i]->started_ms : 0;
		n++;
	}
	pthread_mutex_unlock(&r->r_lock);
	return n;
}

struct job_repair_opts job_repair_opts(const struct mds *m)
{
	return m->m_repair->r_opts;
}

static double repair_gauge_running(void *arg)
{
	struct job_repair_view v[FILES_MAX];

	return job_repair_list(arg, v, FILES_MAX);
}

static int repair_count_row(void *arg, uint64_t ino, const struct lo_repair *row)
{
	(void)ino;
	(void)row;
	++*(uint64_t *)arg;
	return 0;
}

static double gauge_files(void *arg)
{
	struct mds *m = arg;
	struct kv_txn *t;
	uint64_t n = 0;

	if (kv_read_begin(m->m_kv, &t))
		return 0;
	lo_repairs(t, 1, repair_count_row, &n);
	kv_read_end(t);
	return (double)n;
}

static void next_fire(struct loop_timer *t)
{
	job_repair_tick(hash_entry(t, struct job_repair, r_next)->r_m);
}

int job_repair_open(struct mds *m, struct loop *loop, const struct job_repair_opts *o)
{
	struct job_repair *r = calloc(1, sizeof(*r));

	if (!r)
		return -ENOMEM;
	r->r_m = m;
	r->r_loop = loop;
	r->r_opts = *o;
	r->r_cursor = 1;
	r->r_next.t_fire = next_fire;
	r->r_started_ms = clock_mono_ms();
	pthread_mutex_init(&r->r_lock, NULL);
	r->r_repaired = metric_counter("weft_mds_repaired_total",
				       "Objects that were made equal to a copy in sync again", "");
	r->r_failed = metric_counter(
		"weft_mds_repair_failures_total",
		"Repairs of an object that did not come to an end, and are tried again", "");
	r->r_copied = metric_counter("weft_mds_repair_written_bytes_total",
				     "Bytes that data servers wrote to repair objects", "");
	r->r_same = metric_counter(
		"weft_mds_repair_equal_bytes_total",
		"Bytes that data servers compared to repair objects, and found equal", "");
	metric_gauge("weft_mds_repairs", "Files being repaired now", "", repair_gauge_running, m);
	metric_gauge("weft_mds_repair_files",
		     "Files with objects that are not in sync, or that are being moved", "",
		     gauge_files, m);
	m->m_repair = r;
	return 0;
}
