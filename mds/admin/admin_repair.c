/* SPDX-License-Identifier: Apache-2.0 */
/* admin_repair.c - the repair of mirrors over the API: lists what is under way, what waits and why,
 * and what moves (docs/moving.md), and has a file repaired now (docs/repair.md). */
#include "mds/admin/admin_holders.h"
#include "mds/layout/mirror_change.h"
#include "mds/jobs/job.h"
#include "mds/jobs/repair.h"
#include <errno.h>
#include <urcu/compiler.h>

#define WAITING_MAX  1000   /* objects in one answer; all files are counted */
#define ENTRIES_MOST 100000 /* directory entries that are read to find paths */

/* ---- what there is ---- */

struct listing {
	struct admin *l_a;
	struct mds *l_m;
	struct kv_txn *l_txn;
	struct job_repair_opts l_opts;
	struct job_repair_view l_run[REPAIR_FILES_MAX];
	unsigned l_nrun, l_shown, l_budget;
	uint64_t l_path_of; /* the inode that l_path is about: its objects follow each other */
	json_t *l_path;
	uint64_t l_only, l_count; /* only: list this inode; 0: all */
	json_t *l_running, *l_waiting, *l_moving;
};

static json_t *server(struct mds *m, uint32_t id)
{
	struct ds_reg_server sv;

	return id && ds_reg_get(m->m_dsc, id, &sv) ? json_string(sv.sv_name) : json_null();
}

/* The caller's reference. */
static json_t *path_of(struct listing *l, uint64_t ino)
{
	if (!l->l_path || l->l_path_of != ino) {
		json_decref(l->l_path);
		l->l_path = admin_path_json(l->l_a, l->l_txn, ino, &l->l_budget);
		l->l_path_of = ino;
	}
	return json_incref(l->l_path);
}

static void add_running(struct listing *l, const struct job_repair_view *v)
{
	const struct job_progress *p = &v->rv_progress;
	double rate = job_progress_rate(p);
	bool known = p->wp_step == JOB_STEP_COPY && p->wp_size && rate > 0;
	double left =
		known && p->wp_size > p->wp_done ? (double)(p->wp_size - p->wp_done) / rate : 0;

	json_array_append_new(
		l->l_running,
		json_pack("{s:I, s:o, s:i, s:o, s:o, s:s, s:I, s:I, s:I, s:I, s:I, s:o}", "inode",
			  (json_int_t)p->wp_ino, "path", path_of(l, p->wp_ino), "object",
			  (int)v->rv_object, "ds", server(l->l_m, v->rv_to), "from",
			  server(l->l_m, v->rv_from), "step", job_step_name(p->wp_step), "done",
			  (json_int_t)p->wp_done, "size", (json_int_t)p->wp_size, "written",
			  (json_int_t)p->wp_copied, "equal", (json_int_t)v->rv_same, "rate",
			  (json_int_t)rate, "left_s",
			  known ? json_integer((json_int_t)(left + 0.5)) : json_null()));
}

/* Why an object is not being repaired now, and how long that will at least be so. */
static void add_waiting(struct listing *l, uint64_t ino, const struct lo_repair *row,
			const struct lo_map *map, unsigned obj)
{
	uint64_t left_ms;
	const char *why = job_repair_waits(l->l_m, row, map, obj, &left_ms);

	json_array_append_new(
		l->l_waiting,
		json_pack("{s:I, s:o, s:i, s:o, s:s, s:s, s:i, s:I}", "inode", (json_int_t)ino,
			  "path", path_of(l, ino), "object", (int)obj, "ds",
			  server(l->l_m, map->lm_obj[obj].ob_ds), "state",
			  map->lm_obj[obj].ob_state == LO_REBUILDING ? "rebuilding" : "stale",
			  "why", why, "fails", (int)row->rr_fails, "left_s",
			  (json_int_t)(left_ms + 999) / 1000));
}

static bool runs(const struct listing *l, uint64_t ino, unsigned obj)
{
	for (unsigned i = 0; i < l->l_nrun; i++)
		if (l->l_run[i].rv_progress.wp_ino == ino && l->l_run[i].rv_object == obj)
			return true;
	return false;
}

/* Objects that leave, and where they go; and objects that should leave and cannot. */
static void add_moving(struct listing *l, uint64_t ino, const struct lo_map *map)
{
	uint64_t misplaced = lo_misplaced(l->l_m->m_lo, map);
	unsigned spare = lo_objects(map) - map->lm_stripes;
	const char *why;

	if (job_move_look(l->l_m, ino, map, &why) == OP_MOVE_NOTHING)
		return;
	for (unsigned k = 0; k < lo_objects(map); k++) {
		bool goes = map->lm_obj[k].ob_leaving;
		uint32_t to = goes && map->lm_pending_mirror
				      ? map->lm_obj[spare + k % map->lm_stripes].ob_ds
				      : 0;

		if (!goes && !(misplaced >> k & 1))
			continue;
		json_array_append_new(l->l_moving,
				      json_pack("{s:I, s:o, s:i, s:o, s:o, s:s, s:s}", "inode",
						(json_int_t)ino, "path", path_of(l, ino), "object",
						(int)k, "ds", server(l->l_m, map->lm_obj[k].ob_ds),
						"to", server(l->l_m, to), "state",
						to     ? "moves"
						: goes ? "leaves"
						       : "waits",
						"why", why));
		l->l_shown++;
	}
}

static int list_row(void *arg, uint64_t ino, const struct lo_repair *row)
{
	struct listing *l = arg;
	struct ns_inode i;
	struct lo_map map;

	if (l->l_only && ino != l->l_only)
		return ino > l->l_only;
	l->l_count++;
	if (l->l_shown >= WAITING_MAX || ns_get(l->l_m->m_ns, l->l_txn, ino, &i) ||
	    lo_map_decode(i.i_blob, &map))
		return 0;
	for (unsigned k = 0; k < (unsigned)map.lm_stripes * map.lm_mirrors; k++) {
		if (map.lm_obj[k].ob_state == LO_IN_SYNC || map.lm_obj[k].ob_state == LO_ABSENT ||
		    map.lm_obj[k].ob_leaving || runs(l, ino, k))
			continue;
		add_waiting(l, ino, row, &map, k);
		l->l_shown++;
	}
	add_moving(l, ino, &map);
	return 0;
}

void admin_reply_repair(struct admin *a, uint64_t only, const uint64_t *job, struct http_reply *rp)
{
	struct mds *m = a->a_ops.ao_mds;
	struct listing l = {.l_a = a,
			    .l_m = m,
			    .l_budget = ENTRIES_MOST,
			    .l_opts = job_repair_opts(m),
			    .l_only = only,
			    .l_running = json_array(),
			    .l_waiting = json_array(),
			    .l_moving = json_array()};
	json_t *j;
	int err = kv_read_begin(m->m_kv, &l.l_txn);

	l.l_nrun = job_repair_list(m, l.l_run, REPAIR_FILES_MAX);
	for (unsigned i = 0; i < l.l_nrun; i++)
		if (!only || l.l_run[i].rv_progress.wp_ino == only)
			add_running(&l, &l.l_run[i]);
	if (!err) {
		err = lo_repairs(l.l_txn, only ? only : 1, list_row, &l);
		kv_read_end(l.l_txn);
	}
	json_decref(l.l_path);
	if (err < 0) {
		json_decref(l.l_running);
		json_decref(l.l_waiting);
		json_decref(l.l_moving);
		admin_reply_error(rp, 500, "cannot read the table of repairs: %s", strerror(-err));
		return;
	}
	j = json_pack("{s:i, s:I, s:I, s:I, s:o, s:o, s:o}", "files_at_a_time",
		      (int)l.l_opts.ro_files, "rate", (json_int_t)l.l_opts.ro_rate, "wait_s",
		      (json_int_t)l.l_opts.ro_wait_ms / 1000, "files", (json_int_t)l.l_count,
		      "running", l.l_running, "waiting", l.l_waiting, "moving", l.l_moving);
	if (job)
		json_object_set_new(j, "job", admin_job_json(*job));
	admin_reply_json(rp, 200, j);
}

uint64_t admin_file_arg(struct admin *a, const struct http_req *rq, struct http_reply *rp)
{
	const char *path = admin_path_arg(rq, rp);
	struct ns *ns = a->a_ops.ao_ns;
	struct ns_inode i;
	struct kv_txn *t;
	uint64_t ino = 0;
	int err;

	if (!path)
		return 0;
	err = kv_read_begin(ns_kv(ns), &t);
	if (!err) {
		err = ns_path(ns, t, path, &ino);
		if (!err)
			err = ns_get(ns, t, ino, &i);
		kv_read_end(t);
	}
	if (err)
		admin_reply_errno(rp, err, path);
	else if (i.i_type != NS_REG)
		admin_reply_error(rp, 400, "%s: not a regular file", path);
	return !err && i.i_type == NS_REG ? ino : 0;
}

void admin_get_repair(void *arg, const struct http_req *rq, struct http_reply *rp)
{
	const char *path = http_arg(rq, "path");
	uint64_t ino = path ? admin_file_arg(arg, rq, rp) : 0;

	if (!path || ino)
		admin_reply_repair(arg, ino, NULL, rp);
}

/* ---- now ---- */

struct now {
	struct kv_op n_op;
	struct mds *n_m;
	uint64_t n_ino, n_job;
	struct admin_wait n_wait;
};

static int now_run(struct kv_op *op, struct kv_txn *t)
{
	struct now *n = caa_container_of(op, struct now, n_op);
	struct lo_repair row;
	struct ns_inode i;
	struct lo_map map;
	int err = ns_get(n->n_m->m_ns, t, n->n_ino, &i);

	if (!err)
		err = lo_map_decode(i.i_blob, &map);
	if (err)
		return err;
	if (lo_map_whole(&map) && !lo_misplaced(n->n_m->m_lo, &map))
		return lo_repair_del(t, n->n_ino);
	if (lo_repair_get(t, n->n_ino, &row))
		row = (struct lo_repair){0};
	row.rr_now = true;
	row.rr_after = 0;
	err = lo_repair_put(t, n->n_ino, &row);
	if (!err)
		err = lo_repair_get(t, n->n_ino, &row);
	if (!err)
		n->n_job = job_file_id(n->n_ino, &row);
	return err;
}

static void now_done(struct kv_op *op, int err)
{
	admin_wait_done(&caa_container_of(op, struct now, n_op)->n_wait, err);
}

void admin_put_repair(void *arg, const struct http_req *rq, struct http_reply *rp)
{
	struct admin *a = arg;
	struct now n = {.n_m = a->a_ops.ao_mds, .n_op = {.o_run = now_run, .o_done = now_done}};
	int err;

	n.n_ino = admin_file_arg(a, rq, rp);
	if (!n.n_ino)
		return;
	admin_wait_init(&n.n_wait);
	kv_submit(ns_kv(a->a_ops.ao_ns), &n.n_op);
	err = admin_wait_end(&n.n_wait);
	if (err)
		admin_reply_errno(rp, err, http_arg(rq, "path"));
	else
		admin_reply_repair(a, n.n_ino, &n.n_job, rp);
}
