/* SPDX-License-Identifier: Apache-2.0 */
/* admin_restripe.c - gives files other stripes, over the API (docs/restripe.md). */
#include "mds/admin/admin_holders.h"
#include "mds/layout/mirror_change.h"
#include "mds/jobs/restripe.h"
#include <ctype.h>
#include <errno.h>
#include <sodium.h>
#include <stdlib.h>
#include <urcu/compiler.h>

#define ROWS 1000

/* ---- what there is ---- */

struct listing {
	uint64_t l_only, l_count; /* only: list this inode; 0: all */
	struct job_restripe_view l_view;
	json_t *l_files;
};

static int admin_restripe_list_one(void *arg, uint64_t ino, const struct lo_pending *tw)
{
	struct listing *l = arg;
	const struct job_restripe_view *v = l->l_view.rsv_ino == ino ? &l->l_view : NULL;

	if (l->l_only && ino != l->l_only)
		return ino > l->l_only;
	if (l->l_count++ >= ROWS)
		return 0;
	json_array_append_new(
		l->l_files,
		json_pack("{s:I, s:i, s:I, s:i, s:s, s:I, s:I, s:I, s:i, s:i}", "inode",
			  (json_int_t)ino, "stripes", tw->tw_map.lm_stripes, "unit",
			  (json_int_t)tw->tw_map.lm_unit, "mirrors", tw->tw_map.lm_mirrors, "step",
			  v ? v->rsv_step : "waits", "done", (json_int_t)(v ? v->rsv_done : 0),
			  "size", (json_int_t)(v ? v->rsv_size : 0), "written",
			  (json_int_t)(v ? v->rsv_copied : 0), "round", v ? (int)v->rsv_round : 0,
			  "restarts", v ? (int)v->rsv_restarts : 0));
	return 0;
}

static void admin_restripe_reply(struct admin *a, uint64_t only, struct http_reply *rp)
{
	struct listing l = {.l_only = only, .l_files = json_array()};
	struct kv_txn *t;
	int err = kv_read_begin(ns_kv(a->a_ops.ao_ns), &t);

	job_restripe_look(a->a_ops.ao_mds, &l.l_view);
	if (!err) {
		err = lo_pendings(t, only ? only : 1, admin_restripe_list_one, &l);
		kv_read_end(t);
	}
	if (err < 0) {
		json_decref(l.l_files);
		admin_reply_error(rp, 500, "cannot read the list of files being restriped: %s",
				  strerror(-err));
		return;
	}
	admin_reply_json(
		rp, 200,
		json_pack("{s:I, s:o}", "files", (json_int_t)l.l_count, "restriping", l.l_files));
}

void admin_get_restripe(void *arg, const struct http_req *rq, struct http_reply *rp)
{
	const char *path = http_arg(rq, "path");
	uint64_t ino = path ? admin_file_arg(arg, rq, rp) : 0;

	if (!path || ino)
		admin_restripe_reply(arg, ino, rp);
}

/* ---- the request ---- */

struct wish {
	struct kv_op w_op;
	struct mds *w_m;
	uint64_t w_ino;
	unsigned w_stripes; /* 0: as it is now; the same for w_unit */
	uint32_t w_unit;
	struct admin_wait w_wait;
	char w_why[300];
};

static int admin_restripe_refused(struct wish *w, int err, const char *why)
{
	snprintf(w->w_why, sizeof(w->w_why), "%s", why);
	return err;
}

static int admin_restripe_check(struct wish *w, struct kv_txn *t, const struct lo_map *map)
{
	if (lo_pending_is(t, w->w_ino))
		return admin_restripe_refused(w, -EBUSY, "the file is already being restriped");
	if (map->lm_pending_mirror || map->lm_move || map->lm_from)
		return admin_restripe_refused(
			w, -EBUSY, "its objects are being moved; try again when that is done");
	for (unsigned s = 0; s < map->lm_stripes; s++)
		if (lo_leaving(map, s) >= 0)
			return admin_restripe_refused(
				w, -EBUSY,
				"one of its mirrors is being removed; try again when that is done");
	if (w->w_stripes == map->lm_stripes && w->w_unit == map->lm_unit)
		return admin_restripe_refused(w, -EINVAL,
					      "the file already has these stripes and this unit");
	/* Objects of an abandoned restripe have names that new objects could get. */
	if (lo_orders_of(w->w_m->m_lo, w->w_ino))
		return admin_restripe_refused(w, -EBUSY,
					      "data servers still have orders for it; try again");
	return 0;
}

static int wish_run(struct kv_op *op, struct kv_txn *t)
{
	struct wish *w = caa_container_of(op, struct wish, w_op);
	struct lo_pending tw;
	struct ns_inode i;
	struct lo_map map;
	int err = ns_get(w->w_m->m_ns, t, w->w_ino, &i);

	if (!err)
		err = lo_map_decode(i.i_blob, &map);
	if (err)
		return err;
	w->w_stripes = w->w_stripes ? w->w_stripes : map.lm_stripes;
	w->w_unit = w->w_unit ? w->w_unit : map.lm_unit;
	err = admin_restripe_check(w, t, &map);
	if (!err)
		err = lo_pending_place(w->w_m->m_lo, &i, &map, w->w_stripes, w->w_unit,
				       64 + randombytes_uniform(128), w->w_m->m_lease_ms, &tw,
				       w->w_why, sizeof(w->w_why));
	return err ? err : lo_pending_put(t, w->w_ino, &tw);
}

static void wish_done(struct kv_op *op, int err)
{
	admin_wait_done(&caa_container_of(op, struct wish, w_op)->w_wait, err);
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
	struct wish w = {.w_m = a->a_ops.ao_mds, .w_op = {.o_run = wish_run, .o_done = wish_done}};
	int64_t stripes = admin_number_arg(rq, rp, "stripes", 1, LO_MAX_OBJECTS, 0);
	int err;

	if (stripes < 0)
		return;
	w.w_ino = admin_file_arg(a, rq, rp);
	if (!w.w_ino)
		return;
	w.w_stripes = (unsigned)stripes;
	w.w_unit = unit ? unit_of(unit) : 0;
	if ((unit && !w.w_unit) || (!unit && !stripes)) {
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
	admin_wait_init(&w.w_wait);
	kv_submit(ns_kv(a->a_ops.ao_ns), &w.w_op);
	err = admin_wait_end(&w.w_wait);
	if (!err)
		admin_restripe_reply(a, w.w_ino, rp);
	else if (*w.w_why)
		admin_reply_error(rp, err == -EINVAL ? 400 : 409, "%s: %s", path, w.w_why);
	else
		admin_reply_errno(rp, err, path);
}
