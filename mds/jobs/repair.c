/* SPDX-License-Identifier: Apache-2.0 */
/*
 * repair.c - the repair of one file: its objects, one after the other (docs/repair.md). All of it
 * runs on one loop. repair_queue.c says which file is repaired when. For each object a job does:
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
#include "mds/jobs/job_int.h"
#include "mds/jobs/repair_int.h"
#include "base/clock.h"
#include "base/log.h"
#include <errno.h>
#include <sodium.h>

#define PULL_BYTES   (8u << 20)
#define SAVE_BYTES   (256ull << 20)
#define RESTARTS_MAX 4	  /* times that a copy begins again without getting further */
#define PAUSES_MAX   5	  /* the pause before that doubles so often */
#define SILENT_FAILS 3	  /* after more failures the object is placed elsewhere */
#define ORDERS_MS    5000 /* for older orders of the object */

/* The steps, in the order of time. */
static int row_del_run(struct kv_op *op, struct kv_txn *t);
static void row_deleted(struct kv_op *op, int err);
static void lost_asked(struct lo_stat *ls, int err);
static bool sources_lost(const struct repair_job *j);
static void job_ask(struct repair_job *j, const struct lo_map *map,
		    void (*done)(struct lo_stat *ls, int err));
static void job_moved(void *arg, int err);
static void job_freeze(struct job_work *w);
static void repair_frozen(void *arg, int err);
static int t1_run(struct kv_op *op, struct kv_txn *t);
static int t1_place(struct repair_job *j, struct kv_txn *t, const struct ns_inode *i,
		    struct lo_map *map, uint32_t ds);
static void t1_done(struct kv_op *op, int err);
static void job_begin(struct job_work *w);
static void begin_done(struct lo_rebuild *rb, int err);
static void job_copy(struct repair_job *j, uint64_t from);
static void job_pull(struct job_work *w);
static int job_source(struct repair_job *j, unsigned r);
static void pull_done(struct lo_rebuild *rb, int err);
static void pull_asked(struct lo_stat *ls, int err);
static void pulled(struct repair_job *j);
static int save_run(struct kv_op *op, struct kv_txn *t);
static void save_done(struct kv_op *op, int err);
static void job_finish(struct job_work *w);
static void end_done(struct lo_rebuild *rb, int err);
static int t2_run(struct kv_op *op, struct kv_txn *t);
static void t2_done(struct kv_op *op, int err);
static enum lo_repair_why why_of(int err);
static bool job_nfs3(const struct repair_job *j);
static enum lo_repair_why stale_why(const struct repair_job *j);
static void repair_again(struct repair_job *j, enum lo_repair_why why);
static void job_fail(struct repair_job *j, enum lo_repair_why why);
static int fail_run(struct kv_op *op, struct kv_txn *t);
static void fail_done(struct kv_op *op, int err);
static void fail_left(void *arg, int err);
static void fail_abort(struct repair_job *j);
static void fail_aborted(struct lo_rebuild *rb, int err);

/* ---- the parts of a job ---- */

static void job_view(struct repair_job *j, enum job_step step)
{
	pthread_mutex_lock(&j->rpj_r->jr_lock);
	j->rpj_view.rv_progress.wp_step = step;
	j->rpj_view.rv_object = j->rpj_obj;
	j->rpj_view.rv_to = j->rpj_ds;
	pthread_mutex_unlock(&j->rpj_r->jr_lock);
}

/* Shows which job of the list (job.h) this is. */
static void job_known(struct repair_job *j, const struct lo_map *map)
{
	enum job_kind kind = job_file_kind(j->rpj_m, &j->rpj_row, map);

	pthread_mutex_lock(&j->rpj_r->jr_lock);
	j->rpj_view.rv_row = j->rpj_row;
	j->rpj_view.rv_kind = (int)kind;
	pthread_mutex_unlock(&j->rpj_r->jr_lock);
}

static int repair_job_map(struct repair_job *j, struct kv_txn *t, struct ns_inode *i,
			  struct lo_map *map)
{
	int err = ns_get(j->rpj_m->m_ns, t, j->rpj_ino, i);

	return err ? err : lo_map_decode(i->i_blob, map);
}

/* Whether the map has the object of this attempt as the attempt made it. */
static bool job_owns(const struct repair_job *j, const struct ns_inode *i, const struct lo_map *map,
		     enum lo_state state)
{
	const struct lo_object *o = &map->lm_obj[j->rpj_obj];

	return i->i_incarnation == j->rpj_incarnation &&
	       j->rpj_obj < (unsigned)map->lm_stripes * map->lm_mirrors && o->ob_ds == j->rpj_ds &&
	       o->ob_copy == j->rpj_copy && o->ob_state == state;
}

/* Reads the current map, by which the data servers are asked. -ESTALE: the object does not belong
 * to this job any more. */
static int job_look(struct repair_job *j)
{
	struct ns_inode i;
	struct kv_txn *t;
	int err = kv_read_begin(j->rpj_m->m_kv, &t);

	if (err)
		return err;
	err = repair_job_map(j, t, &i, &j->rpj_rb.rb_map);
	if (!err && !job_owns(j, &i, &j->rpj_rb.rb_map, LO_REBUILDING))
		err = -ESTALE;
	kv_read_end(t);
	return err;
}

static void job_step(struct repair_job *j, int step, void (*done)(struct lo_rebuild *rb, int err))
{
	j->rpj_rb.rb_ino = j->rpj_ino;
	j->rpj_rb.rb_incarnation = j->rpj_incarnation;
	j->rpj_rb.rb_obj = j->rpj_obj;
	j->rpj_rb.rb_step = step;
	j->rpj_rb.rb_session = j->rpj_session;
	j->rpj_rb.rb_done = done;
	lo_rebuild(j->rpj_m->m_lo, &j->rpj_rb);
}

/* ---- which object ---- */

/* Goes on with the file's next object, or ends the job. */
void repair_object(struct job_work *w)
{
	struct repair_job *j = hash_entry(w, struct repair_job, rpj_work);
	struct kv_txn *t;
	struct repair_pick p;
	int err = kv_read_begin(j->rpj_m->m_kv, &t);

	if (err) {
		repair_job_end(j);
		return;
	}
	err = lo_repair_get(t, j->rpj_ino, &j->rpj_row);
	if (!err)
		err = repair_pick(j->rpj_r, t, j->rpj_ino, &j->rpj_row, true, &p);
	kv_read_end(t);
	if (err == -ENOENT) {
		pthread_mutex_lock(&j->rpj_r->jr_lock);
		j->rpj_view.rv_row = j->rpj_row;
		pthread_mutex_unlock(&j->rpj_r->jr_lock);
		job_work_submit(&j->rpj_work, row_del_run, row_deleted);
		return;
	}
	if (err) {
		repair_job_end(j);
		return;
	}
	job_known(j, &p.rpk_map);
	j->rpj_obj = p.rpk_obj;
	j->rpj_ds = p.rpk_map.lm_obj[p.rpk_obj].ob_ds;
	j->rpj_copy = p.rpk_map.lm_obj[p.rpk_obj].ob_copy;
	j->rpj_incarnation = p.rpk_i.i_incarnation;
	if (p.rpk_move > OP_MOVE_WAITS) {
		job_view(j, JOB_STEP_SWITCH);
		job_move_step(&j->rpj_move, j->rpj_m, j->rpj_loop, j->rpj_ino, p.rpk_move,
			      job_moved, j);
		return;
	}
	job_work_goes_on(&j->rpj_work);
	j->rpj_furthest = j->rpj_rb.rb_off = 0;
	j->rpj_restarts = j->rpj_pauses = 0;
	j->rpj_changed = false;
	if (p.rpk_demote) {
		j->rpj_begun = true; /* layouts may name the object */
		job_fail(j, j->rpj_row.rr_why ? j->rpj_row.rr_why : LO_REPAIR_NO_ANSWER);
	} else if (p.rpk_resume) {
		j->rpj_session = j->rpj_row.rr_session;
		j->rpj_begun = true;
		job_copy(j, j->rpj_row.rr_done);
	} else if (j->rpj_row.rr_why == LO_REPAIR_LOST) {
		job_ask(j, &p.rpk_map, lost_asked);
	} else {
		job_freeze(&j->rpj_work);
	}
}

static int row_del_run(struct kv_op *op, struct kv_txn *t)
{
	struct repair_job *j = hash_entry(op, struct repair_job, rpj_work.jw_op);
	struct ns_inode i;
	struct lo_map map;

	int err = repair_job_map(j, t, &i, &map);

	if (!err)
		return lo_map_whole(&map) ? lo_repair_del(t, j->rpj_ino) : 0;
	/* a file that cannot be read now may not be whole */
	return err == -ENOENT || err == -ESTALE ? lo_repair_del(t, j->rpj_ino) : err;
}

static void row_deleted(struct kv_op *op, int err)
{
	(void)err; /* on error the next scan deletes it */
	repair_job_end(hash_entry(op, struct repair_job, rpj_work.jw_op));
}

/* While the sources are still lost, nothing is recalled or fenced. */
static void lost_asked(struct lo_stat *ls, int err)
{
	struct repair_job *j = hash_entry(ls, struct repair_job, rpj_stat);

	(void)err;
	if (sources_lost(j))
		job_fail(j, LO_REPAIR_LOST);
	else
		job_freeze(&j->rpj_work);
}

/* When sources refuse: whether all of them are missing. The job does not wait for a missing source:
 * very many such files would take all turns. */
static bool sources_lost(const struct repair_job *j)
{
	const struct lo_map *map = &j->rpj_stat.ls_map;
	uint64_t sources = 0;

	for (unsigned k = j->rpj_obj % map->lm_stripes; k < lo_objects(map); k += map->lm_stripes)
		sources |= (uint64_t)(map->lm_obj[k].ob_state == LO_IN_SYNC) << k;
	return sources && !(sources & ~j->rpj_stat.ls_lost);
}

static void job_ask(struct repair_job *j, const struct lo_map *map,
		    void (*done)(struct lo_stat *ls, int err))
{
	j->rpj_stat.ls_loop = j->rpj_loop;
	j->rpj_stat.ls_ino = j->rpj_ino;
	j->rpj_stat.ls_incarnation = j->rpj_incarnation;
	j->rpj_stat.ls_map = *map;
	j->rpj_stat.ls_done = done;
	lo_stat(j->rpj_m->m_lo, &j->rpj_stat);
}

/* ---- what moves ---- */

static void job_moved(void *arg, int err)
{
	struct repair_job *j = arg;

	if (!err) {
		job_work_goes_on(&j->rpj_work);
		repair_object(&j->rpj_work);
	} else if (err == -ESTALE || err == -ENOENT) {
		repair_job_end(j); /* the file was removed, and its row with it */
	} else if (err != -EAGAIN || !job_work_again(&j->rpj_work, repair_object)) {
		job_fail(j, err == -ETIMEDOUT ? LO_REPAIR_NO_ANSWER : LO_REPAIR_BUSY);
	}
}

/* ---- freeze ---- */

static void job_freeze(struct job_work *w)
{
	struct repair_job *j = hash_entry(w, struct repair_job, rpj_work);

	job_view(j, JOB_STEP_RECALL);
	excl_begin(&j->rpj_freeze, &j->rpj_m->m_file, j->rpj_loop, j->rpj_ino, NULL, EXCL_LAYOUTS,
		   repair_frozen, j);
}

static void repair_frozen(void *arg, int err)
{
	struct repair_job *j = arg;

	if (!err) {
		job_work_submit(&j->rpj_work, t1_run, t1_done);
		return;
	}
	excl_end(&j->rpj_freeze, 0);
	if (err != -EAGAIN || !job_work_again(&j->rpj_work, job_freeze))
		/* Also where a fence is not confirmed: which server failed to is not known here,
		 * and it is seldom the target. */
		job_fail(j, LO_REPAIR_BUSY);
}

/* ---- T1 ---- */

static int t1_run(struct kv_op *op, struct kv_txn *t)
{
	struct repair_job *j = hash_entry(op, struct repair_job, rpj_work.jw_op);
	uint64_t left;
	uint32_t ds;
	struct ns_inode i;
	struct lo_map map;
	int err = repair_job_map(j, t, &i, &map);

	if (!err && (i.i_incarnation != j->rpj_incarnation ||
		     map.lm_obj[j->rpj_obj].ob_state == LO_IN_SYNC))
		err = -EAGAIN; /* the file was placed again, or another repair did it */
	if (err)
		return err;
	if (lo_repair_get(t, j->rpj_ino, &j->rpj_row))
		j->rpj_row = (struct lo_repair){0};
	j->rpj_where = lo_repair_where(j->rpj_m->m_lo, &map, j->rpj_obj, &j->rpj_row,
				       job_repair_opts(j->rpj_m).ro_wait_ms, &ds, &left);
	if (j->rpj_where > LO_ELSEWHERE)
		return -EAGAIN;
	err = j->rpj_where == LO_ELSEWHERE ? ds_reg_nfs3_ready(j->rpj_m->m_dsc, t, ds, 1) : 0;
	if (!err)
		err = t1_place(j, t, &i, &map, ds);
	if (err)
		return err;
	map.lm_obj[j->rpj_obj].ob_state = LO_REBUILDING;
	randombytes_buf(&j->rpj_session, sizeof(j->rpj_session));
	j->rpj_session |= 1;
	j->rpj_ds = ds;
	j->rpj_copy = map.lm_obj[j->rpj_obj].ob_copy;
	j->rpj_row.rr_session = j->rpj_session;
	lo_repair_of(&j->rpj_row, j->rpj_obj);
	j->rpj_row.rr_done = 0;
	err = lo_repair_put(t, j->rpj_ino, &j->rpj_row);
	return err ? err : file_set_map(&j->rpj_m->m_file, t, j->rpj_ino, &map, file_now());
}

static int t1_place(struct repair_job *j, struct kv_txn *t, const struct ns_inode *i,
		    struct lo_map *map, uint32_t ds)
{
	struct lo_object *o = &map->lm_obj[j->rpj_obj];
	int err;

	if (j->rpj_where != LO_ELSEWHERE)
		return 0;
	for (unsigned k = j->rpj_obj % map->lm_stripes;
	     k < (unsigned)map->lm_stripes * map->lm_mirrors; k += map->lm_stripes)
		if (map->lm_obj[k].ob_ds == ds)
			/* another object of this stripe was placed on that server in between */
			return -EAGAIN;
	err = lo_order_free_object(j->rpj_m->m_lo, t, i, map, j->rpj_obj);
	if (err)
		return err;
	o->ob_copy = lo_map_new_copy(map, j->rpj_obj % map->lm_stripes);
	o->ob_ds = ds;
	o->ob_known = 0;
	return 0;
}

static void t1_done(struct kv_op *op, int err)
{
	struct repair_job *j = hash_entry(op, struct repair_job, rpj_work.jw_op);

	if (err) {
		job_fail(j, LO_REPAIR_BUSY);
		return;
	}
	if (j->rpj_where == LO_ELSEWHERE)
		lo_orders_wake(j->rpj_m->m_lo);
	job_work_goes_on(&j->rpj_work);
	j->rpj_orders = 0;
	job_begin(&j->rpj_work);
}

/* ---- BEGIN ---- */

/* Waits for older orders that are not done at the data server: later they would change what is
 * copied. */
static void job_begin(struct job_work *w)
{
	struct repair_job *j = hash_entry(w, struct repair_job, rpj_work);
	int err = job_look(j);

	if (err) {
		job_fail(j, LO_REPAIR_CHANGED);
	} else if (lo_order_pending(j->rpj_m->m_lo, j->rpj_ino, &j->rpj_rb.rb_map, j->rpj_obj,
				    &j->rpj_orders)) {
		if (job_work_waits(&j->rpj_work, ORDERS_MS))
			job_work_later(&j->rpj_work, JOB_AGAIN_MS / 5, job_begin);
		else /* the freeze did not wait for these orders */
			job_fail(j, ds_reg_since_heartbeat_ms(j->rpj_m->m_dsc, j->rpj_ds)
					    ? LO_REPAIR_NO_ANSWER
					    : LO_REPAIR_TARGET);
	} else {
		job_view(j, JOB_STEP_BEGIN);
		job_step(j, CTL_REBUILD_BEGIN, begin_done);
	}
}

static void begin_done(struct lo_rebuild *rb, int err)
{
	struct repair_job *j = hash_entry(rb, struct repair_job, rpj_rb);

	if (err == -ETIMEDOUT && job_nfs3(j)) {
		/* what was copied before stays (nfs3ds_copy.c) */
		excl_end(&j->rpj_freeze, 0);
		repair_again(j, LO_REPAIR_NO_ANSWER);
		return;
	}
	if (err) {
		job_fail(j, why_of(err));
		return;
	}
	j->rpj_begun = true;
	excl_end(&j->rpj_freeze, 0);
	job_copy(j, 0);
}

/* ---- PULL ---- */

static void job_copy(struct repair_job *j, uint64_t from)
{
	j->rpj_rb.rb_off = j->rpj_saved = from;
	job_work_goes_on(&j->rpj_work);
	j->rpj_source = 0;
	job_work_copies(&j->rpj_work, from, 0);
	pthread_mutex_lock(&j->rpj_r->jr_lock);
	j->rpj_view.rv_progress.wp_copied = j->rpj_view.rv_same = 0;
	pthread_mutex_unlock(&j->rpj_r->jr_lock);
	job_view(j, JOB_STEP_COPY);
	job_pull(&j->rpj_work);
}

static void job_pull(struct job_work *w)
{
	struct repair_job *j = hash_entry(w, struct repair_job, rpj_work);
	int err = job_look(j), source = err ? -1 : job_source(j, j->rpj_source);

	if (err) {
		job_fail(j, LO_REPAIR_CHANGED);
		return;
	}
	if (source < 0) {
		j->rpj_source = 0;
		if (!job_work_again(&j->rpj_work, job_pull))
			job_fail(j, LO_REPAIR_NO_SOURCE);
		return;
	}
	j->rpj_rb.rb_source = (unsigned)source;
	j->rpj_rb.rb_len = PULL_BYTES;
	pthread_mutex_lock(&j->rpj_r->jr_lock);
	j->rpj_view.rv_from = j->rpj_rb.rb_map.lm_obj[source].ob_ds;
	pthread_mutex_unlock(&j->rpj_r->jr_lock);
	job_step(j, CTL_REBUILD_PULL, pull_done);
}

/* The r-th copy to read from. A copy with an order to truncate it, or to clone to it, is no source
 * yet: what is pulled from it would be at the target even after that order, and only there. */
static int job_source(struct repair_job *j, unsigned r)
{
	struct lo *lo = j->rpj_m->m_lo;
	uint64_t held = lo_objects_with_orders(lo, j->rpj_ino, &j->rpj_rb.rb_map);
	int k;

	for (unsigned n = 0; (k = lo_repair_source(lo, &j->rpj_rb.rb_map, j->rpj_obj, n)) >= 0; n++)
		if (!(held >> k & 1) && r-- == 0)
			return k;
	return -1;
}

static void pull_done(struct lo_rebuild *rb, int err)
{
	struct repair_job *j = hash_entry(rb, struct repair_job, rpj_rb);

	if (!err) {
		pulled(j);
	} else if (err == -ESTALE || err == -ENOLINK) {
		repair_again(j, err == -ESTALE ? stale_why(j) : LO_REPAIR_TARGET);
	} else if (err == -EREMOTEIO) {
		j->rpj_source++; /* another copy, or the first one again in a moment */
		if (job_source(j, j->rpj_source) >= 0)
			job_pull(&j->rpj_work);
		else
			job_ask(j, &j->rpj_rb.rb_map, pull_asked);
	} else if ((err != -ETIMEDOUT && err != -EACCES) ||
		   !job_work_again(&j->rpj_work, job_pull)) {
		job_fail(j, why_of(err));
	}
}

static void pull_asked(struct lo_stat *ls, int err)
{
	struct repair_job *j = hash_entry(ls, struct repair_job, rpj_stat);

	(void)err; /* on error nothing is known to be lost */
	if (sources_lost(j))
		job_fail(j, LO_REPAIR_LOST);
	else if (!job_work_again(&j->rpj_work, job_pull))
		job_fail(j, LO_REPAIR_NO_SOURCE);
}

static void pulled(struct repair_job *j)
{
	const ctl_rebuild_res *res = &j->rpj_rb.rb_res;
	uint32_t wait;

	metric_add(j->rpj_r->jr_copied, res->copied);
	metric_add(j->rpj_r->jr_same, res->same);
	job_work_copied(&j->rpj_work, res->next, res->size, res->copied);
	pthread_mutex_lock(&j->rpj_r->jr_lock);
	j->rpj_view.rv_same += res->same;
	pthread_mutex_unlock(&j->rpj_r->jr_lock);
	job_work_goes_on(&j->rpj_work);
	j->rpj_source = 0;
	j->rpj_rb.rb_off = res->next;
	/* Last time the object missed a write, perhaps because there was no room for notes. Without
	 * a pause the pulls catch up with the writes sooner. */
	wait = j->rpj_row.rr_why == LO_REPAIR_CHANGED
		       ? 0
		       : job_repair_pace(j->rpj_m, res->copied + res->same);
	if (res->eof)
		job_work_later(&j->rpj_work, wait, job_finish);
	else if (res->next - j->rpj_saved >= SAVE_BYTES)
		job_work_submit(&j->rpj_work, save_run, save_done);
	else
		job_work_later(&j->rpj_work, wait, job_pull);
}

/* Saves the progress, for a restart of this server. */
static int save_run(struct kv_op *op, struct kv_txn *t)
{
	struct repair_job *j = hash_entry(op, struct repair_job, rpj_work.jw_op);
	struct lo_repair row;
	int err = lo_repair_get(t, j->rpj_ino, &row);

	if (err || row.rr_session != j->rpj_session)
		return err == -ENOENT ? 0 : err;
	row.rr_done = j->rpj_rb.rb_off;
	return lo_repair_put(t, j->rpj_ino, &row);
}

static void save_done(struct kv_op *op, int err)
{
	struct repair_job *j = hash_entry(op, struct repair_job, rpj_work.jw_op);

	(void)err; /* on error a restart pulls more again */
	j->rpj_saved = j->rpj_rb.rb_off;
	job_pull(&j->rpj_work);
}

/* ---- END ---- */

static void job_finish(struct job_work *w)
{
	struct repair_job *j = hash_entry(w, struct repair_job, rpj_work);
	int err = job_look(j);

	if (err) {
		job_fail(j, LO_REPAIR_CHANGED);
		return;
	}
	job_view(j, JOB_STEP_END);
	job_step(j, CTL_REBUILD_END, end_done);
}

static void end_done(struct lo_rebuild *rb, int err)
{
	struct repair_job *j = hash_entry(rb, struct repair_job, rpj_rb);

	if (err == -ESTALE)
		repair_again(j, stale_why(j));
	else if (!err)
		job_work_submit(&j->rpj_work, t2_run, t2_done);
	else if ((err != -ETIMEDOUT && err != -EACCES) || !job_work_again(&j->rpj_work, job_finish))
		job_fail(j, why_of(err));
}

/* ---- T2: in sync ---- */

static int t2_run(struct kv_op *op, struct kv_txn *t)
{
	struct repair_job *j = hash_entry(op, struct repair_job, rpj_work.jw_op);
	struct ns_inode i;
	struct lo_map map;
	bool taking;
	int err = repair_job_map(j, t, &i, &map);

	if (err)
		return err;
	/* An acknowledged write that the object missed has made it stale first. */
	j->rpj_lost = !job_owns(j, &i, &map, LO_REBUILDING);
	if (j->rpj_lost)
		return 0;
	/* Two clients may have written this copy in another order than the other copies, and
	 * readers have seen those. */
	lo_map_join(&map, j->rpj_obj,
		    file_is_contended(&j->rpj_m->m_file, j->rpj_ino, &map, &taking));
	map.lm_obj[j->rpj_obj].ob_known = 1;
	map.lm_obj[j->rpj_obj].ob_writes = j->rpj_rb.rb_res.writes; /* the copying is no write */
	err = file_set_map(&j->rpj_m->m_file, t, j->rpj_ino, &map, file_now());
	if (err)
		return err;
	if (lo_map_whole(&map))
		return lo_repair_del(t, j->rpj_ino);
	/* Keep rr_now: the administrator may have set it in between. */
	if (lo_repair_get(t, j->rpj_ino, &j->rpj_row))
		j->rpj_row.rr_now = false;
	j->rpj_row = (struct lo_repair){.rr_now = j->rpj_row.rr_now};
	return lo_repair_put(t, j->rpj_ino, &j->rpj_row);
}

static void t2_done(struct kv_op *op, int err)
{
	struct repair_job *j = hash_entry(op, struct repair_job, rpj_work.jw_op);
	struct job_progress *p = &j->rpj_view.rv_progress;

	if (err == -ESTALE || err == -ENOENT) {
		repair_job_end(j); /* the file was removed, and its row with it */
		return;
	}
	if (err || j->rpj_lost) {
		job_fail(j, LO_REPAIR_CHANGED);
		return;
	}
	log_info("inode %lu: object %u on data server %u is in sync again: %lu bytes written, %lu "
		 "were equal",
		 (unsigned long)j->rpj_ino, j->rpj_obj, j->rpj_ds,
		 (unsigned long)j->rpj_view.rv_progress.wp_copied,
		 (unsigned long)j->rpj_view.rv_same);
	metric_add(j->rpj_r->jr_repaired, 1);
	pthread_mutex_lock(&j->rpj_r->jr_lock);
	j->rpj_view.rv_objects++;
	j->rpj_view.rv_bytes += p->wp_size;
	p->wp_done = p->wp_from = p->wp_size = p->wp_since_ms = 0;
	pthread_mutex_unlock(&j->rpj_r->jr_lock);
	j->rpj_repaired = true;
	j->rpj_begun = false;
	j->rpj_session = 0;
	repair_object(&j->rpj_work);
}

/* ---- a failure ---- */

/* What a step's error says about the server. */
static enum lo_repair_why why_of(int err)
{
	return err == -ENOSPC	   ? LO_REPAIR_FULL
	       : err == -ETIMEDOUT ? LO_REPAIR_NO_ANSWER
	       : err == -EACCES	   ? LO_REPAIR_BUSY
				   : LO_REPAIR_TARGET;
}

static bool job_nfs3(const struct repair_job *j)
{
	struct ds_reg_server sv;

	return ds_reg_get(j->rpj_m->m_dsc, j->rpj_ds, &sv) && sv.sv_nfs3;
}

/* What a session that has ended says about the server. A weft-ds that ends every session is bad for
 * this file: a disk that refuses clients' writes does so. Sessions of an NFSv3 server are in this
 * one. A size that is set ends them, or a write that missed the object. */
static enum lo_repair_why stale_why(const struct repair_job *j)
{
	return job_nfs3(j) ? LO_REPAIR_CHANGED : LO_REPAIR_TARGET;
}

/* Begins again in this job: the session is gone, and with it the notes of what clients wrote.
 * Layouts name the object until the freeze has recalled them (begun stays set). Where it does not
 * get further, it ends with why, or with the fact that the file changed.
 * Layouts never name an object on an NFSv3 server that is being rebuilt, so clients go on during a
 * pause, and the file is not frozen all the time. For a weft-ds there is no pause: without a
 * session clients' writes to it wait. */
static void repair_again(struct repair_job *j, enum lo_repair_why why)
{
	if (j->rpj_rb.rb_off > j->rpj_furthest) {
		j->rpj_furthest = j->rpj_rb.rb_off;
		j->rpj_restarts = 0;
		j->rpj_changed = false;
	}
	j->rpj_changed |= why == LO_REPAIR_CHANGED;
	if (j->rpj_restarts++ == RESTARTS_MAX) {
		job_fail(j, j->rpj_changed ? LO_REPAIR_CHANGED : why);
		return;
	}
	j->rpj_session = 0;
	job_work_goes_on(&j->rpj_work);
	if (!job_nfs3(j)) {
		job_freeze(&j->rpj_work);
		return;
	}
	job_view(j, JOB_STEP_RECALL);
	job_work_later(&j->rpj_work, JOB_AGAIN_MS << j->rpj_pauses, job_freeze);
	j->rpj_pauses += j->rpj_pauses < PAUSES_MAX;
}

static void job_fail(struct repair_job *j, enum lo_repair_why why)
{
	log_warn("inode %lu: the repair of object %u on data server %u stopped: %s",
		 (unsigned long)j->rpj_ino, j->rpj_obj, j->rpj_ds, lo_repair_why_text(why));
	metric_add(j->rpj_r->jr_failed, 1);
	j->rpj_why = why;
	job_work_submit(&j->rpj_work, fail_run, fail_done);
}

/* Makes the object stale that the attempt left. An object that became stale in between, or belongs
 * to another job now, stays as it is. */
static int fail_run(struct kv_op *op, struct kv_txn *t)
{
	struct repair_job *j = hash_entry(op, struct repair_job, rpj_work.jw_op);
	struct ns_inode i;
	struct lo_map map;
	int err = repair_job_map(j, t, &i, &map);

	if (err)
		return err == -ENOENT || err == -ESTALE ? lo_repair_del(t, j->rpj_ino) : err;
	if (lo_repair_get(t, j->rpj_ino, &j->rpj_row))
		j->rpj_row = (struct lo_repair){0};
	lo_repair_failed(&j->rpj_row, j->rpj_why, repair_wall_s());
	lo_repair_of(&j->rpj_row, j->rpj_obj);
	/* A server that does not answer may come back in time. */
	if (j->rpj_why == LO_REPAIR_TARGET || j->rpj_why == LO_REPAIR_FULL ||
	    (j->rpj_why == LO_REPAIR_NO_ANSWER && j->rpj_row.rr_fails > SILENT_FAILS))
		j->rpj_row.rr_bad = j->rpj_ds;
	err = lo_repair_put(t, j->rpj_ino, &j->rpj_row);
	if (err || !job_owns(j, &i, &map, LO_REBUILDING))
		return err;
	map.lm_obj[j->rpj_obj].ob_state = LO_STALE;
	return excl_stale(&j->rpj_hold, &j->rpj_m->m_file, t, j->rpj_ino, &map, file_now());
}

static void fail_done(struct kv_op *op, int err)
{
	struct repair_job *j = hash_entry(op, struct repair_job, rpj_work.jw_op);

	if (err)
		log_error("inode %lu: cannot record the failed repair: %s",
			  (unsigned long)j->rpj_ino, strerror(-err));
	excl_end(&j->rpj_freeze, 0);
	/* Write layouts name the object, and their writes to it fail from here on. */
	if (j->rpj_begun && excl_recall_stale(&j->rpj_hold, &j->rpj_m->m_file, j->rpj_loop,
					      j->rpj_ino, NULL, fail_left, j))
		return;
	fail_left(j, 0);
}

static void fail_left(void *arg, int err)
{
	struct repair_job *j = arg;

	(void)err;
	excl_unblock(&j->rpj_hold);
	fail_abort(j);
}

static void fail_abort(struct repair_job *j)
{
	if (j->rpj_session && j->rpj_rb.rb_map.lm_stripes &&
	    ds_reg_since_heartbeat_ms(j->rpj_m->m_dsc, j->rpj_ds) == 0)
		job_step(j, CTL_REBUILD_ABORT, fail_aborted);
	else
		repair_job_end(j);
}

static void fail_aborted(struct lo_rebuild *rb, int err)
{
	/* the server forgets the session now, or at the next session, or when it restarts */
	(void)err;
	repair_job_end(hash_entry(rb, struct repair_job, rpj_rb));
}
