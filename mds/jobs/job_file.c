/* SPDX-License-Identifier: Apache-2.0 */
/*
 * job_file.c - jobs about one file each, for the list of jobs (job.h): the rows of the table of
 * repairs (repair_queue.c), which stand for repairs, moves, and mirrors that are added or removed;
 * and the files that are restriped (restripe.c).
 */
#include "mds/file/file.h"
#include "mds/jobs/job_int.h"
#include "mds/layout/mirror_change.h"
#include "mds/layout/pending_layout.h"
#include <errno.h>
#include <urcu/compiler.h>

#define ROWS_LOOKED 20000u

uint64_t job_file_id(uint64_t ino, const struct lo_repair *row)
{
	return job_id(ino, row->rr_number, JOB_OF_REPAIRS);
}

uint64_t job_restripe_id(uint64_t ino, const struct lo_pending *tw)
{
	return job_id(ino, tw->tw_number, JOB_OF_RESTRIPES);
}

/* ---- what a row is about ---- */

static bool anything_leaves(const struct lo_map *map)
{
	for (unsigned s = 0; s < map->lm_stripes; s++)
		if (lo_leaving(map, s) >= 0)
			return true;
	return false;
}

enum job_kind job_file_kind(struct mds *m, const struct lo_repair *row, const struct lo_map *map)
{
	static const enum job_kind asked[LO_REPAIR_ASKS] = {[LO_REPAIR_ASKED_MOVE] = JOB_MOVE,
							    [LO_REPAIR_ASKED_ADD] = JOB_MIRROR_ADD,
							    [LO_REPAIR_ASKED_REMOVE] =
								    JOB_MIRROR_REMOVE};

	if (row->rr_asked)
		return asked[row->rr_asked];
	if (!map)
		return JOB_REPAIR;
	/* Balance and drains move objects too. */
	if (map->lm_pending_mirror || map->lm_move || map->lm_from || lo_misplaced(m->m_lo, map))
		return JOB_MOVE;
	return anything_leaves(map) ? JOB_MIRROR_REMOVE : JOB_REPAIR;
}

/* Must something be made in this place, or leave it? */
static bool object_waits(const struct lo_object *o)
{
	return o->ob_state != LO_IN_SYNC && o->ob_state != LO_ABSENT && !o->ob_leaving;
}

static uint64_t objects_left(struct mds *m, const struct lo_map *map)
{
	uint64_t misplaced = lo_misplaced(m->m_lo, map), n = 0;

	for (unsigned k = 0; k < lo_objects(map); k++)
		n += object_waits(&map->lm_obj[k]) ||
		     ((misplaced >> k & 1) && !map->lm_obj[k].ob_leaving);
	return n;
}

static const char *file_waits(struct mds *m, uint64_t ino, const struct lo_repair *row,
			      const struct lo_map *map)
{
	const char *why;
	uint64_t left;

	for (unsigned k = 0; k < lo_objects(map); k++)
		if (object_waits(&map->lm_obj[k]))
			return job_repair_waits(m, row, map, k, &left);
	if (!job_repair_opts(m).ro_files)
		return "repair is off: mds.repair_files is 0";
	return job_move_look(m, ino, map, &why) == OP_MOVE_NOTHING ? "waiting for its turn" : why;
}

bool job_move_stops(struct mds *m, const struct lo_map *map)
{
	uint64_t misplaced = lo_misplaced(m->m_lo, map);

	if (!map->lm_move && !map->lm_from)
		return false;
	for (unsigned k = 0; k < lo_objects(map) && map->lm_pending_mirror; k++)
		if ((misplaced >> k & 1) && !map->lm_obj[k].ob_leaving)
			return true;
	return !map->lm_pending_mirror;
}

/* Why the job cannot be cancelled; NULL: it can. */
/* The mirror that is being added: the last one. The pinned one may have come behind it. */
static unsigned file_added(const struct lo_map *map)
{
	unsigned last = map->lm_mirrors - 1u, before = last - 1;

	if (map->lm_pin == map->lm_mirrors && last)
		for (unsigned s = 0; s < map->lm_stripes; s++)
			if (object_waits(&map->lm_obj[before * map->lm_stripes + s]))
				return before;
	return last;
}

static const char *file_stays(struct mds *m, const struct lo_repair *row, const struct lo_map *map,
			      enum job_kind kind)
{
	unsigned added = file_added(map) * map->lm_stripes;

	if (row->rr_cancelled)
		return "it is cancelled already, and about to end";
	switch (kind) {
	case JOB_MOVE:
		if (job_move_stops(m, map))
			return NULL;
		return map->lm_pending_mirror
			       ? "its objects are being copied to their new places "
				 "already; it ends by itself"
			       : "its data server is being drained: cancel the drain";
	case JOB_MIRROR_ADD:
		for (unsigned k = added; k < added + map->lm_stripes; k++)
			if (object_waits(&map->lm_obj[k]))
				return NULL;
		return "the new mirror is complete; remove it instead";
	case JOB_MIRROR_REMOVE:
		return anything_leaves(map) ? NULL : "the mirror is gone already";
	default:
		return "a repair cannot be cancelled: its copy would stay behind the others";
	}
}

/* ---- the list ---- */

struct file_listing {
	struct mds *fl_m;
	struct kv_txn *fl_txn;
	struct job_sink *fl_sink;
	struct job_repair_view fl_run[REPAIR_FILES_MAX];
	unsigned fl_nrun;
	unsigned fl_looked; /* at rows that wait */
};

/* What both engines show of their work. The caller has filled j_bytes and j_bytes_all. */
static void job_of_progress(struct job *j, const struct job_progress *p)
{
	uint64_t left;

	j->j_phase = job_step_name(p->wp_step);
	if (p->wp_done <= p->wp_from || !p->wp_since_ms)
		return;
	j->j_rate = (uint64_t)job_progress_rate(p);
	left = j->j_bytes < j->j_bytes_all ? j->j_bytes_all - j->j_bytes : 0;
	j->j_eta = j->j_rate ? left / j->j_rate : JOB_UNKNOWN;
}

static void job_running(struct job *j, const struct job_repair_view *v, uint64_t size,
			uint64_t left)
{
	const struct job_progress *p = &v->rv_progress;
	uint64_t all = p->wp_size ? p->wp_size : size;

	j->j_objects = v->rv_objects;
	j->j_objects_all = v->rv_objects + left;
	j->j_bytes = v->rv_bytes + p->wp_done;
	/* The objects that are left may be shorter than the file. */
	j->j_bytes_all = v->rv_bytes + (left ? all + (left - 1) * size : 0);
	if (j->j_bytes_all < j->j_bytes)
		j->j_bytes_all = j->j_bytes;
	job_of_progress(j, p);
}

/* A row, and the repair's job that has it in hand; or NULL. */
static void job_of_row(struct mds *m, struct kv_txn *t, uint64_t ino, const struct lo_repair *row,
		       const struct job_repair_view *v, struct job *j)
{
	struct ns_inode i;
	struct lo_map map;
	bool fine = !ns_get(m->m_ns, t, ino, &i) && !lo_map_decode(i.i_blob, &map);

	job_blank(j, job_file_id(ino, row), job_file_kind(m, row, fine ? &map : NULL));
	j->j_ino = ino;
	j->j_begun = row->rr_begun_s;
	j->j_state = row->rr_cancelled ? JOB_CANCELLING : v ? JOB_RUNNING : JOB_WAITING;
	if (row->rr_fails)
		snprintf(j->j_error, sizeof(j->j_error), "%s", lo_repair_why_text(row->rr_why));
	if (!fine) {
		j->j_stays = "its file cannot be read";
		snprintf(j->j_error, sizeof(j->j_error), "%s", j->j_stays);
		return;
	}
	j->j_stays = file_stays(m, row, &map, j->j_kind);
	j->j_objects = 0;
	j->j_objects_all = objects_left(m, &map);
	if (v)
		job_running(j, v, i.i_size, j->j_objects_all);
	else
		snprintf(j->j_waits, sizeof(j->j_waits), "%s", file_waits(m, ino, row, &map));
}

static const struct job_repair_view *file_run(const struct file_listing *fl, uint64_t ino)
{
	for (unsigned i = 0; i < fl->fl_nrun; i++)
		if (fl->fl_run[i].rv_progress.wp_ino == ino)
			return &fl->fl_run[i];
	return NULL;
}

static int job_file_put(struct file_listing *fl, uint64_t ino, const struct lo_repair *row)
{
	struct job j;

	job_of_row(fl->fl_m, fl->fl_txn, ino, row, file_run(fl, ino), &j);
	return !job_put(fl->fl_sink, &j);
}

static int file_put_waiting(void *arg, uint64_t ino, const struct lo_repair *row)
{
	struct file_listing *fl = arg;

	/* A filter may let few of very many rows through. */
	if (++fl->fl_looked > ROWS_LOOKED) {
		fl->fl_sink->js_more = true;
		return 1;
	}
	return file_run(fl, ino) ? 0 : job_file_put(fl, ino, row);
}

/* Those that run come first: there may be very many that wait. */
int job_file_list(struct mds *m, struct kv_txn *t, struct job_sink *s)
{
	struct file_listing fl = {.fl_m = m, .fl_txn = t, .fl_sink = s};
	uint64_t only = s->js_filter.jf_ino;
	struct lo_repair row;
	int err = 0;

	fl.fl_nrun = job_repair_list(m, fl.fl_run, REPAIR_FILES_MAX);
	if (only) {
		if (!lo_repair_get(t, only, &row))
			job_file_put(&fl, only, &row);
		return 0;
	}
	for (unsigned i = 0; i < fl.fl_nrun && !s->js_more; i++)
		if (!lo_repair_get(t, fl.fl_run[i].rv_progress.wp_ino, &row))
			job_file_put(&fl, fl.fl_run[i].rv_progress.wp_ino, &row);
	if (!s->js_more)
		err = lo_repairs(t, 1, file_put_waiting, &fl);
	return err < 0 ? err : 0;
}

int job_file_find(struct mds *m, struct kv_txn *t, struct job_name n, struct job *out)
{
	struct file_listing fl = {.fl_m = m, .fl_txn = t};
	const struct job_repair_view *v;
	struct lo_repair row;

	fl.fl_nrun = job_repair_list(m, fl.fl_run, REPAIR_FILES_MAX);
	v = file_run(&fl, n.jn_subject);
	if (!n.jn_subject)
		return -ENOENT;
	if (!lo_repair_get(t, n.jn_subject, &row) && row.rr_number == n.jn_turn) {
		job_of_row(m, t, n.jn_subject, &row, v, out);
		return 0;
	}
	/* The row is gone, and the job is about to be noted as over. */
	if (!v || v->rv_kind < 0 || v->rv_row.rr_number != n.jn_turn)
		return -ENOENT;
	job_of_row(m, t, n.jn_subject, &v->rv_row, v, out);
	return 0;
}

void job_file_over(struct mds *m, const struct job_repair_view *v)
{
	enum job_state state = v->rv_row.rr_cancelled ? JOB_CANCELLED : JOB_DONE;
	const struct lo_repair *was = &v->rv_row;
	struct lo_repair row;
	struct ns_inode i;
	struct kv_txn *t;
	struct job j;
	int gone;

	if ((v->rv_kind < 0 && !was->rr_number) || kv_read_begin(m->m_kv, &t))
		return;
	if (!lo_repair_get(t, v->rv_progress.wp_ino, &row) && row.rr_number == was->rr_number) {
		kv_read_end(t);
		return;
	}
	gone = ns_get(m->m_ns, t, v->rv_progress.wp_ino, &i);
	kv_read_end(t);
	job_blank(&j, job_file_id(v->rv_progress.wp_ino, was),
		  v->rv_kind < 0 ? job_file_kind(m, was, NULL) : (enum job_kind)v->rv_kind);
	j.j_ino = v->rv_progress.wp_ino;
	j.j_begun = was->rr_begun_s;
	j.j_objects = j.j_objects_all = v->rv_objects;
	j.j_bytes = j.j_bytes_all = v->rv_bytes;
	if (gone) {
		state = JOB_CANCELLED;
		snprintf(j.j_error, sizeof(j.j_error), "the file was removed");
	}
	job_over(m, &j, state);
}

/* ---- cancel ---- */

static int file_cancel_run(struct kv_op *op, struct kv_txn *t)
{
	struct job_cancel *jc = caa_container_of(op, struct job_cancel, jc_op);
	struct mds *m = jc->jc_m;
	uint64_t ino = jc->jc_job.j_ino;
	enum job_kind kind;
	struct lo_repair row;
	struct ns_inode i;
	struct lo_map map;
	const char *why;
	int err = lo_repair_get(t, ino, &row);

	if (!err)
		err = ns_get(m->m_ns, t, ino, &i);
	if (!err)
		err = lo_map_decode(i.i_blob, &map);
	if (err || job_file_id(ino, &row) != jc->jc_job.j_id)
		return err ? err : -ENOENT;
	kind = job_file_kind(m, &row, &map);
	why = file_stays(m, &row, &map, kind);
	if (why) {
		snprintf(jc->jc_why, sizeof(jc->jc_why), "%s", why);
		return -EBUSY;
	}
	if (kind == JOB_MIRROR_ADD)
		err = lo_mirror_remove(&map, file_added(&map), jc->jc_why, sizeof(jc->jc_why));
	else if (kind == JOB_MIRROR_REMOVE)
		lo_mirror_keep(&map);
	else
		lo_move_forget(&map);
	if (!err)
		err = file_set_map(&m->m_file, t, ino, &map, file_now());
	if (err)
		return err == -EINVAL ? -EBUSY : err;
	row.rr_cancelled = true;
	row.rr_after = 0;
	return lo_repair_put(t, ino, &row);
}

static void job_cancelled(struct kv_op *op, int err)
{
	struct job_cancel *jc = caa_container_of(op, struct job_cancel, jc_op);

	if (!err && jc->jc_over)
		job_over(jc->jc_m, &jc->jc_job, JOB_CANCELLED);
	if (!err)
		lo_orders_wake(jc->jc_m->m_lo);
	jc->jc_done(jc, err);
}

static int cancel_submit(struct job_cancel *jc, int (*run)(struct kv_op *op, struct kv_txn *t))
{
	/* On the committer: the loops may have stopped. */
	jc->jc_op = (struct kv_op){.o_run = run, .o_done = job_cancelled};
	kv_submit(jc->jc_m->m_kv, &jc->jc_op);
	return 0;
}

int job_file_cancel(struct job_cancel *jc)
{
	return cancel_submit(jc, file_cancel_run);
}

/* ---- restripe ---- */

static void job_of_pending(struct mds *m, uint64_t ino, const struct lo_pending *tw, struct job *j)
{
	struct job_restripe_view v;
	const struct job_progress *p = &v.rsv_progress;

	job_restripe_look(m, &v);
	job_blank(j, job_restripe_id(ino, tw), JOB_RESTRIPE);
	j->j_ino = ino;
	j->j_objects_all = lo_objects(&tw->tw_map);
	j->j_state = JOB_WAITING;
	if (p->wp_ino != ino) {
		snprintf(j->j_waits, sizeof(j->j_waits), "%s",
			 job_repair_opts(m).ro_files ? "waiting for its turn"
						     : "repair is off: mds.repair_files is 0");
		return;
	}
	j->j_state = JOB_RUNNING;
	j->j_begun = (uint64_t)p->wp_taken;
	if (p->wp_size) {
		j->j_bytes = p->wp_done;
		j->j_bytes_all = p->wp_size;
	}
	job_of_progress(j, p);
}

struct pending_listing {
	struct mds *pl_m;
	struct job_sink *pl_sink;
};

static int pending_put(void *arg, uint64_t ino, const struct lo_pending *tw)
{
	struct pending_listing *pl = arg;
	struct job j;

	job_of_pending(pl->pl_m, ino, tw, &j);
	return !job_put(pl->pl_sink, &j);
}

int job_restripe_list(struct mds *m, struct kv_txn *t, struct job_sink *s)
{
	struct pending_listing pl = {m, s};
	uint64_t only = s->js_filter.jf_ino;
	struct lo_pending tw;
	int err;

	if (only) {
		if (!lo_pending_get(t, only, &tw))
			pending_put(&pl, only, &tw);
		return 0;
	}
	err = lo_pendings(t, 1, pending_put, &pl);
	return err < 0 ? err : 0;
}

int job_restripe_find(struct mds *m, struct kv_txn *t, struct job_name n, struct job *out)
{
	struct job_restripe_view v;
	struct lo_pending tw;

	job_restripe_look(m, &v);
	if (!lo_pending_get(t, n.jn_subject, &tw) && tw.tw_number == n.jn_turn) {
		job_of_pending(m, n.jn_subject, &tw, out);
		return 0;
	}
	/* The row is gone, and the job is about to be noted as over. */
	if (!n.jn_subject || v.rsv_progress.wp_ino != n.jn_subject || v.rsv_number != n.jn_turn)
		return -ENOENT;
	job_blank(out, job_id(n.jn_subject, n.jn_turn, JOB_OF_RESTRIPES), JOB_RESTRIPE);
	out->j_ino = n.jn_subject;
	out->j_state = JOB_RUNNING;
	out->j_phase = job_step_name(v.rsv_progress.wp_step);
	out->j_stays = "it is about to end";
	return 0;
}

void job_restripe_over(struct mds *m, const struct job_restripe_view *v,
		       const struct lo_pending *tw, enum job_state ended)
{
	const struct job_progress *p = &v->rsv_progress;
	struct job j;

	job_blank(&j, job_restripe_id(p->wp_ino, tw), JOB_RESTRIPE);
	j.j_ino = p->wp_ino;
	j.j_begun = (uint64_t)p->wp_taken;
	j.j_bytes = p->wp_done;
	j.j_bytes_all = p->wp_size;
	if (ended == JOB_DONE)
		j.j_objects = j.j_objects_all = lo_objects(&tw->tw_map);
	job_over(m, &j, ended);
}

static int restripe_cancel_run(struct kv_op *op, struct kv_txn *t)
{
	struct job_cancel *jc = caa_container_of(op, struct job_cancel, jc_op);
	struct lo_pending tw;
	struct ns_inode i;
	int err = lo_pending_get(t, jc->jc_job.j_ino, &tw);

	if (!err && job_restripe_id(jc->jc_job.j_ino, &tw) != jc->jc_job.j_id)
		err = -ENOENT;
	if (!err)
		err = ns_get(jc->jc_m->m_ns, t, jc->jc_job.j_ino, &i);
	return err ? err : lo_pending_free(jc->jc_m->m_lo, t, &i);
}

/* The engine sees that the row is gone, if it has the file in hand. Else nothing has begun. */
int job_restripe_cancel(struct job_cancel *jc)
{
	jc->jc_over = true;
	return cancel_submit(jc, restripe_cancel_run);
}
