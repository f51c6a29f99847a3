/* SPDX-License-Identifier: Apache-2.0 */
/* admin_restripe.c - gives files other stripes, over the API (docs/restripe.md). */
#include "mds/admin/admin_holders.h"
#include "mds/layout/mirror_change.h"
#include "mds/jobs/job.h"
#include "mds/jobs/restripe.h"
#include <ctype.h>
#include <errno.h>
#include <sodium.h>
#include <stdlib.h>
#include <urcu/compiler.h>

#define ROWS	     1000
#define ENTRIES_MOST 100000 /* directory entries that are read to find paths */

/* ---- what there is ---- */

struct listing {
	struct admin *l_a;
	struct kv_txn *l_txn;
	unsigned l_budget;
	uint64_t l_only, l_count; /* only: list this inode; 0: all */
	struct job_restripe_view l_view;
	json_t *l_files;
};

static int admin_restripe_list_one(void *arg, uint64_t ino, const struct lo_pending *tw)
{
	struct listing *l = arg;
	const struct job_restripe_view *v =
		l->l_view.rsv_progress.wp_ino == ino ? &l->l_view : NULL;

	if (l->l_only && ino != l->l_only)
		return ino > l->l_only;
	if (l->l_count++ >= ROWS)
		return 0;
	json_array_append_new(
		l->l_files,
		json_pack("{s:I, s:o, s:i, s:I, s:i, s:s, s:I, s:I, s:I, s:i, s:i}", "inode",
			  (json_int_t)ino, "path",
			  admin_path_json(l->l_a, l->l_txn, ino, &l->l_budget), "stripes",
			  tw->tw_map.lm_stripes, "unit", (json_int_t)tw->tw_map.lm_unit, "mirrors",
			  tw->tw_map.lm_mirrors, "step",
			  v ? job_step_name(v->rsv_progress.wp_step) : "waits", "done",
			  (json_int_t)(v ? v->rsv_progress.wp_done : 0), "size",
			  (json_int_t)(v ? v->rsv_progress.wp_size : 0), "written",
			  (json_int_t)(v ? v->rsv_progress.wp_copied : 0), "round",
			  v ? (int)v->rsv_round : 0, "restarts", v ? (int)v->rsv_restarts : 0));
	return 0;
}

/* job: as for admin_reply_repair. */
static void admin_restripe_reply(struct admin *a, uint64_t only, const uint64_t *job,
				 struct http_reply *rp)
{
	struct listing l = {
		.l_a = a, .l_budget = ENTRIES_MOST, .l_only = only, .l_files = json_array()};
	json_t *j;
	int err = kv_read_begin(ns_kv(a->a_ops.ao_ns), &l.l_txn);

	job_restripe_look(a->a_ops.ao_mds, &l.l_view);
	if (!err) {
		err = lo_pendings(l.l_txn, only ? only : 1, admin_restripe_list_one, &l);
		kv_read_end(l.l_txn);
	}
	if (err < 0) {
		json_decref(l.l_files);
		admin_reply_error(rp, 500, "cannot read the list of files being restriped: %s",
				  strerror(-err));
		return;
	}
	j = json_pack("{s:I, s:o}", "files", (json_int_t)l.l_count, "restriping", l.l_files);
	if (job)
		json_object_set_new(j, "job", admin_job_json(*job));
	admin_reply_json(rp, 200, j);
}

void admin_get_restripe(void *arg, const struct http_req *rq, struct http_reply *rp)
{
	const char *path = http_arg(rq, "path");
	uint64_t ino = path ? admin_file_arg(arg, rq, rp) : 0;

	if (!path || ino)
		admin_restripe_reply(arg, ino, NULL, rp);
}

/* ---- the request ---- */

struct wish {
	struct kv_op wsh_op;
	struct mds *wsh_m;
	uint64_t wsh_ino, wsh_job;
	unsigned wsh_stripes; /* 0: as it is now; the same for wsh_unit */
	uint32_t wsh_unit;
	struct admin_wait wsh_wait;
	char wsh_why[300];
};

static int admin_restripe_refused(struct wish *w, int err, const char *why)
{
	snprintf(w->wsh_why, sizeof(w->wsh_why), "%s", why);
	return err;
}

static int admin_restripe_check(struct wish *w, struct kv_txn *t, const struct lo_map *map)
{
	if (lo_pending_is(t, w->wsh_ino))
		return admin_restripe_refused(w, -EBUSY, "the file is already being restriped");
	if (map->lm_pending_mirror || map->lm_move || map->lm_from)
		return admin_restripe_refused(
			w, -EBUSY, "its objects are being moved; try again when that is done");
	if (map->lm_pin)
		return admin_restripe_refused(
			w, -EBUSY, "it has a pinned copy: weft unpin it, then restripe the file");
	for (unsigned s = 0; s < map->lm_stripes; s++)
		if (lo_leaving(map, s) >= 0)
			return admin_restripe_refused(
				w, -EBUSY,
				"one of its mirrors is being removed; try again when that is done");
	if (w->wsh_stripes == map->lm_stripes && w->wsh_unit == map->lm_unit)
		return admin_restripe_refused(w, -EINVAL,
					      "the file already has these stripes and this unit");
	/* Objects of an abandoned restripe have names that new objects could get. */
	if (lo_orders_of(w->wsh_m->m_lo, w->wsh_ino))
		return admin_restripe_refused(w, -EBUSY,
					      "data servers still have orders for it; try again");
	return 0;
}

static int wish_run(struct kv_op *op, struct kv_txn *t)
{
	struct wish *w = caa_container_of(op, struct wish, wsh_op);
	struct lo_pending tw;
	struct ns_inode i;
	struct lo_map map;
	int err = ns_get(w->wsh_m->m_ns, t, w->wsh_ino, &i);

	if (!err)
		err = lo_map_decode(i.i_blob, &map);
	if (err)
		return err;
	w->wsh_stripes = w->wsh_stripes ? w->wsh_stripes : map.lm_stripes;
	w->wsh_unit = w->wsh_unit ? w->wsh_unit : map.lm_unit;
	err = admin_restripe_check(w, t, &map);
	if (!err)
		err = lo_pending_place(w->wsh_m->m_lo, &i, &map, w->wsh_stripes, w->wsh_unit,
				       64 + randombytes_uniform(128), w->wsh_m->m_room_ms, &tw,
				       w->wsh_why, sizeof(w->wsh_why));
	if (!err)
		w->wsh_job = job_restripe_id(w->wsh_ino, &tw);
	return err ? err : lo_pending_put(t, w->wsh_ino, &tw);
}

static void wish_done(struct kv_op *op, int err)
{
	admin_wait_done(&caa_container_of(op, struct wish, wsh_op)->wsh_wait, err);
}

/* Parses a unit as in a policy. 0: it is none. */
static uint32_t unit_of(const char *text)
{
	struct lo_policy p;
	char line[64], err[256];
	int n = snprintf(line, sizeof(line), "unit=%s", text);

	return n > 0 && (size_t)n < sizeof(line) && !strchr(text, ',') &&
			       !lo_policy_parse(line, (size_t)n, &p, err, sizeof(err))
		       ? p.lp_unit
		       : 0;
}

void admin_put_restripe(void *arg, const struct http_req *rq, struct http_reply *rp)
{
	const char *unit = http_arg(rq, "unit"), *path = http_arg(rq, "path");
	struct admin *a = arg;
	struct wish w = {.wsh_m = a->a_ops.ao_mds,
			 .wsh_op = {.o_run = wish_run, .o_done = wish_done}};
	int64_t stripes = admin_number_arg(rq, rp, "stripes", 1, LO_MAX_OBJECTS, 0);
	int err;

	if (stripes < 0)
		return;
	w.wsh_ino = admin_file_arg(a, rq, rp);
	if (!w.wsh_ino)
		return;
	w.wsh_stripes = (unsigned)stripes;
	w.wsh_unit = unit ? unit_of(unit) : 0;
	if ((unit && !w.wsh_unit) || (!unit && !stripes)) {
		admin_reply_error(rp, 400, "unit: expected a power of two from 1M to 2G");
		return;
	}
	if (http_arg(rq, "group") || http_arg(rq, "policy") || http_arg(rq, "from") ||
	    http_arg(rq, "cancel")) {
		admin_reply_error(rp, 400,
				  "expected stripes and a unit, or a destination, not both: give "
				  "one after the other");
		return;
	}
	admin_wait_init(&w.wsh_wait);
	kv_submit(ns_kv(a->a_ops.ao_ns), &w.wsh_op);
	err = admin_wait_end(&w.wsh_wait);
	if (!err)
		admin_restripe_reply(a, w.wsh_ino, &w.wsh_job, rp);
	else if (*w.wsh_why)
		admin_reply_error(rp, err == -EINVAL ? 400 : 409, "%s: %s", path, w.wsh_why);
	else
		admin_reply_errno(rp, err, path);
}
