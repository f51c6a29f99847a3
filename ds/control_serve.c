/* SPDX-License-Identifier: Apache-2.0 */
/*
 * control_serve.c - the requests that the MDS sends on the control connection (proto/ctl.x):
 * orders, questions, changes, the steps of a rebuild and of a restripe. A worker of the store or a
 * puller does each; loop 0 answers.
 */
#include "common/trace.h"
#include "ds/ds.h"
#include "ds/peer.h"
#include "proto/ctl_chan.h"
#include <stdlib.h>
#include <urcu/compiler.h>
struct serve_work {
	struct ds_job sw_job;
	struct work sw_work; /* for the long steps of a rebuild, and for SUM and FILL */
	struct loop_msg sw_msg;
	struct ds *sw_ds;
	struct ds_fs *sw_fs; /* of the MDS that asks */
	struct ctl_incoming *sw_in;
	ctl_status sw_status;
	ctl_result sw_res;
	ctl_span *sw_spans; /* of a WATCH's step TAKE */
	uint8_t sw_cookie[64];
	union {
		ctl_status sw_results[CTL_BATCH_MAX];
		ctl_stat sw_stats[CTL_BATCH_MAX];
		ctl_list_entry sw_entries[CTL_BATCH_MAX];
	};
};

static void serve_done(struct loop_msg *m)
{
	struct serve_work *sw = caa_container_of(m, struct serve_work, sw_msg);

	ctl_chan_reply(sw->sw_in, sw->sw_status, sw->sw_status == CTL_OK ? &sw->sw_res : NULL);
	free(sw->sw_spans);
	free(sw);
}

/* True if there are orders, and all of them are of types that wait for no other order. */
static bool only_fences(const ctl_orders_args *a)
{
	for (unsigned i = 0; i < a->orders.orders_len; i++)
		if (a->orders.orders_val[i].type != CTL_FENCE &&
		    a->orders.orders_val[i].type != CTL_BAR_CLIENT)
			return false;
	return a->orders.orders_len;
}

static void serve_orders(struct serve_work *sw)
{
	const ctl_orders_args *a = &sw->sw_in->in_req.ctl_request_u.orders;
	ctl_orders_res *r = &sw->sw_res.ctl_result_u.orders;

	sw->sw_status = (only_fences(a) ? ds_store_fences : ds_store_orders)(
		sw->sw_fs, a->instance_epoch, a->orders.orders_val, a->orders.orders_len,
		sw->sw_results);
	r->results.results_len = a->orders.orders_len;
	r->results.results_val = sw->sw_results;
	for (unsigned i = 0; sw->sw_status == CTL_OK && i < a->orders.orders_len; i++)
		TRACE(order_run, a->orders.orders_val[i].object.ino, a->orders.orders_val[i].number,
		      a->orders.orders_val[i].type, sw->sw_results[i]);
}

static void serve_stat(struct serve_work *sw)
{
	const ctl_stat_args *a = &sw->sw_in->in_req.ctl_request_u.stat;
	ctl_stat_res *r = &sw->sw_res.ctl_result_u.stat;

	for (unsigned i = 0; i < a->objects.objects_len; i++)
		ds_store_stat(sw->sw_ds->d_store, &a->objects.objects_val[i], &sw->sw_stats[i]);
	r->stats.stats_len = a->objects.objects_len;
	r->stats.stats_val = sw->sw_stats;
	sw->sw_status = CTL_OK;
}

static void serve_list(struct serve_work *sw)
{
	const ctl_list_args *a = &sw->sw_in->in_req.ctl_request_u.list;
	ctl_list_res *r = &sw->sw_res.ctl_result_u.list;
	unsigned n, len, max = a->max && a->max < CTL_BATCH_MAX ? a->max : CTL_BATCH_MAX;
	int err = ds_store_list(sw->sw_fs, a->cookie.cookie_val, a->cookie.cookie_len, max,
				sw->sw_entries, &n, sw->sw_cookie, &len);

	r->cookie.cookie_len = len;
	r->cookie.cookie_val = (char *)sw->sw_cookie;
	r->entries.entries_len = n;
	r->entries.entries_val = sw->sw_entries;
	sw->sw_status = !err ? CTL_OK : err == -EINVAL ? CTL_INVAL : CTL_IO;
}

static void serve_change(struct serve_work *sw)
{
	/* Without a lease, orders for this server may be pending: change nothing before they are
	 * done. */
	sw->sw_status =
		!ds_lease_live(sw->sw_ds, sw->sw_fs)
			? CTL_NOT_JOINED
			: ds_store_change(sw->sw_fs, &sw->sw_in->in_req.ctl_request_u.change,
					  &sw->sw_res.ctl_result_u.change);
}

/*
 * ---- a rebuild ----
 *
 * The orders worker runs BEGIN and ABORT; a puller runs PULL. END syncs on the puller, ends the
 * rebuild on the orders worker, and reads the count of writes on the queries worker.
 */

static const ctl_rebuild_args *rebuild_args(const struct serve_work *sw)
{
	return &sw->sw_in->in_req.ctl_request_u.rebuild;
}

static void rebuild_count(struct ds_job *j)
{
	struct serve_work *sw = caa_container_of(j, struct serve_work, sw_job);
	ctl_rebuild_res *res = &sw->sw_res.ctl_result_u.rebuild;
	ctl_stat st;

	ds_store_stat(sw->sw_ds->d_store, &rebuild_args(sw)->object, &st);
	sw->sw_status = st.status;
	res->size = st.size;
	res->writes = st.writes;
	loop_post(sw->sw_ds->d_loops[0], &sw->sw_msg);
}

static void rebuild_end(struct ds_job *j)
{
	struct serve_work *sw = caa_container_of(j, struct serve_work, sw_job);

	sw->sw_status = ds_rebuild_end(sw->sw_ds->d_store, rebuild_args(sw));
	if (sw->sw_status == CTL_OK) {
		sw->sw_job.jb_run = rebuild_count;
		ds_store_submit(sw->sw_ds->d_store, DS_WORKER_QUERIES, &sw->sw_job);
		return;
	}
	loop_post(sw->sw_ds->d_loops[0], &sw->sw_msg);
}

static ctl_status rebuild_may(const struct serve_work *sw)
{
	const ctl_rebuild_args *a = rebuild_args(sw);

	if (!ds_store_instance_ok(sw->sw_fs, a->instance_epoch))
		return CTL_STALE_INSTANCE;
	if (a->step < CTL_REBUILD_BEGIN || a->step > CTL_REBUILD_ABORT)
		return CTL_INVAL;
	/* As in serve_change: without a lease, orders may be pending. */
	return a->step != CTL_REBUILD_ABORT && !ds_lease_live(sw->sw_ds, sw->sw_fs) ? CTL_NOT_JOINED
										    : CTL_OK;
}

static void rebuild_pull(struct work *w)
{
	struct serve_work *sw = caa_container_of(w, struct serve_work, sw_work);
	const ctl_rebuild_args *a = rebuild_args(sw);

	sw->sw_status = rebuild_may(sw);
	if (sw->sw_status == CTL_OK && a->step == CTL_REBUILD_PULL) {
		sw->sw_status = ds_pull(sw->sw_ds, a, &sw->sw_res.ctl_result_u.rebuild);
	} else if (sw->sw_status == CTL_OK) {
		sw->sw_status = ds_rebuild_sync(sw->sw_ds->d_store, a);
		if (sw->sw_status == CTL_OK) {
			sw->sw_job.jb_run = rebuild_end;
			ds_store_submit(sw->sw_ds->d_store, DS_WORKER_ORDERS, &sw->sw_job);
			return;
		}
	}
	loop_post(sw->sw_ds->d_loops[0], &sw->sw_msg);
}

static void rebuild_order(struct ds_job *j)
{
	struct serve_work *sw = caa_container_of(j, struct serve_work, sw_job);
	const ctl_rebuild_args *a = rebuild_args(sw);

	sw->sw_status = rebuild_may(sw);
	if (sw->sw_status == CTL_OK && a->step == CTL_REBUILD_BEGIN)
		sw->sw_status =
			ds_rebuild_begin(sw->sw_ds->d_store, a, &sw->sw_res.ctl_result_u.rebuild);
	else if (sw->sw_status == CTL_OK)
		sw->sw_status = ds_rebuild_abort(sw->sw_ds->d_store, a);
	loop_post(sw->sw_ds->d_loops[0], &sw->sw_msg);
}

static void serve_rebuild(struct serve_work *sw)
{
	const ctl_rebuild_args *a = rebuild_args(sw);

	if (a->step == CTL_REBUILD_BEGIN || a->step == CTL_REBUILD_ABORT) {
		sw->sw_job.jb_run = rebuild_order;
		ds_store_submit(sw->sw_ds->d_store, DS_WORKER_ORDERS, &sw->sw_job);
		return;
	}
	sw->sw_work.w_run = rebuild_pull;
	if (!ds_pull_submit(sw->sw_ds, a->object.ino, &sw->sw_work)) {
		sw->sw_status = CTL_IO;
		serve_done(&sw->sw_msg);
	}
}

static void sum_run(struct work *w)
{
	struct serve_work *sw = caa_container_of(w, struct serve_work, sw_work);

	sw->sw_status = ds_sum(sw->sw_ds->d_store, &sw->sw_in->in_req.ctl_request_u.sum,
			       &sw->sw_res.ctl_result_u.sum);
	loop_post(sw->sw_ds->d_loops[0], &sw->sw_msg);
}

static void serve_sum(struct serve_work *sw)
{
	sw->sw_work.w_run = sum_run;
	if (!ds_pull_submit(sw->sw_ds, sw->sw_in->in_req.ctl_request_u.sum.object.ino,
			    &sw->sw_work)) {
		sw->sw_status = CTL_IO;
		serve_done(&sw->sw_msg);
	}
}

/* ---- a restripe: WATCH and FILL ---- */

/* The same checks as for a rebuild. */
static ctl_status anew_may(const struct serve_work *sw, uint64_t instance)
{
	if (!ds_store_instance_ok(sw->sw_fs, instance))
		return CTL_STALE_INSTANCE;
	return ds_lease_live(sw->sw_ds, sw->sw_fs) ? CTL_OK : CTL_NOT_JOINED;
}

static void serve_watch(struct serve_work *sw)
{
	const ctl_watch_args *a = &sw->sw_in->in_req.ctl_request_u.watch;

	sw->sw_spans =
		a->step == CTL_WATCH_TAKE ? calloc(CTL_SPANS_MAX, sizeof(*sw->sw_spans)) : NULL;
	sw->sw_status = anew_may(sw, a->instance_epoch);
	if (sw->sw_status == CTL_OK && a->step == CTL_WATCH_TAKE && !sw->sw_spans)
		sw->sw_status = CTL_IO;
	if (sw->sw_status == CTL_OK)
		sw->sw_status = ds_watch(sw->sw_ds->d_store, a, sw->sw_spans,
					 &sw->sw_res.ctl_result_u.watch);
}

static void fill_count(struct ds_job *j)
{
	struct serve_work *sw = caa_container_of(j, struct serve_work, sw_job);
	ctl_stat st;

	ds_store_stat(sw->sw_ds->d_store, &sw->sw_in->in_req.ctl_request_u.fill.object, &st);
	sw->sw_status = st.status;
	sw->sw_res.ctl_result_u.fill.writes = st.writes;
	loop_post(sw->sw_ds->d_loops[0], &sw->sw_msg);
}

static void fill_run(struct work *w)
{
	struct serve_work *sw = caa_container_of(w, struct serve_work, sw_work);
	const ctl_fill_args *a = &sw->sw_in->in_req.ctl_request_u.fill;

	sw->sw_status = anew_may(sw, a->instance_epoch);
	if (sw->sw_status == CTL_OK)
		sw->sw_status = ds_fill(sw->sw_ds, a, &sw->sw_res.ctl_result_u.fill);
	if (sw->sw_status == CTL_OK && a->end) {
		sw->sw_job.jb_run = fill_count;
		ds_store_submit(sw->sw_ds->d_store, DS_WORKER_QUERIES, &sw->sw_job);
		return;
	}
	loop_post(sw->sw_ds->d_loops[0], &sw->sw_msg);
}

static void serve_fill(struct serve_work *sw)
{
	sw->sw_work.w_run = fill_run;
	if (!ds_pull_submit(sw->sw_ds, sw->sw_in->in_req.ctl_request_u.fill.object.ino,
			    &sw->sw_work)) {
		sw->sw_status = CTL_IO;
		serve_done(&sw->sw_msg);
	}
}

/* Only for clients of the file system that this MDS has: another one's clients have numbers of
 * their own. */
static void serve_dead(struct serve_work *sw)
{
	const ctl_dead_args *a = &sw->sw_in->in_req.ctl_request_u.dead;

	sw->sw_status = a->fs != ds_fs_number(sw->sw_fs)
				? CTL_INVAL
				: ds_store_dead(sw->sw_fs, a, &sw->sw_res.ctl_result_u.dead.runs);
}

static void serve_job(struct ds_job *j)
{
	struct serve_work *sw = caa_container_of(j, struct serve_work, sw_job);

	switch (sw->sw_res.op) {
	case CTL_OP_ORDERS:
		serve_orders(sw);
		break;
	case CTL_OP_STAT:
		serve_stat(sw);
		break;
	case CTL_OP_SEEK:
		sw->sw_status =
			ds_store_seek(sw->sw_ds->d_store, &sw->sw_in->in_req.ctl_request_u.seek,
				      &sw->sw_res.ctl_result_u.seek);
		break;
	case CTL_OP_CHANGE:
		serve_change(sw);
		break;
	case CTL_OP_WATCH:
		serve_watch(sw);
		break;
	case CTL_OP_KEY:
		sw->sw_status = ds_keys_take(&sw->sw_ds->d_keys, sw->sw_fs,
					     &sw->sw_in->in_req.ctl_request_u.key);
		sw->sw_res.ctl_result_u.key.number = sw->sw_in->in_req.ctl_request_u.key.number;
		break;
	case CTL_OP_DEAD:
		serve_dead(sw);
		break;
	default:
		serve_list(sw);
	}
	loop_post(sw->sw_ds->d_loops[0], &sw->sw_msg);
}

static bool serve_worker(ctl_op op, enum ds_worker_id *w)
{
	switch (op) {
	case CTL_OP_ORDERS:
	case CTL_OP_WATCH:
	case CTL_OP_KEY:
	case CTL_OP_DEAD:
		*w = DS_WORKER_ORDERS;
		return true;
	case CTL_OP_STAT:
	case CTL_OP_LIST:
		*w = DS_WORKER_QUERIES;
		return true;
	case CTL_OP_SEEK:
	case CTL_OP_CHANGE:
	case CTL_OP_REBUILD: /* ds_control_serve() sends these three to a puller instead */
	case CTL_OP_SUM:
	case CTL_OP_FILL:
		*w = DS_WORKER_DATA;
		return true;
	default:
		return false;
	}
}

static bool orders_of(const struct ds_fs *f, const ctl_orders_args *a)
{
	for (unsigned i = 0; i < a->orders.orders_len; i++) {
		const ctl_order *o = &a->orders.orders_val[i];

		/* The bars are those of the MDS' own file system. An older MDS may leave the number
		 * out. */
		if (o->object.fs != ds_fs_number(f) && (o->type != CTL_BAR_CLIENT || o->object.fs))
			return false;
		if (o->type == CTL_CLONE && o->source.fs != ds_fs_number(f))
			return false;
	}
	return true;
}

static bool control_serve_stats(const struct ds_fs *f, const ctl_stat_args *a)
{
	for (unsigned i = 0; i < a->objects.objects_len; i++)
		if (a->objects.objects_val[i].fs != ds_fs_number(f))
			return false;
	return true;
}

/* An MDS acts on the objects of its own file system alone. */
static bool serve_own(const struct ds_fs *f, const ctl_request *rq)
{
	uint32_t fs = ds_fs_number(f);

	switch (rq->op) {
	case CTL_OP_ORDERS:
		return orders_of(f, &rq->ctl_request_u.orders);
	case CTL_OP_STAT:
		return control_serve_stats(f, &rq->ctl_request_u.stat);
	case CTL_OP_SEEK:
		return rq->ctl_request_u.seek.object.fs == fs;
	case CTL_OP_CHANGE:
		return rq->ctl_request_u.change.object.fs == fs &&
		       (rq->ctl_request_u.change.type != CTL_CHANGE_COPY ||
			rq->ctl_request_u.change.source.fs == fs);
	case CTL_OP_REBUILD:
		return rq->ctl_request_u.rebuild.object.fs == fs;
	case CTL_OP_SUM:
		return rq->ctl_request_u.sum.object.fs == fs;
	case CTL_OP_WATCH:
		return rq->ctl_request_u.watch.object.fs == fs;
	case CTL_OP_FILL:
		return rq->ctl_request_u.fill.object.fs == fs;
	default: /* LIST, KEY and DEAD name no object */
		return true;
	}
}

void ds_control_serve(struct ds *d, struct ds_fs *f, struct ctl_incoming *in)
{
	ctl_op op = in->in_req.op;
	enum ds_worker_id worker;
	struct serve_work *sw;

	if (!f || !serve_worker(op, &worker) || !serve_own(f, &in->in_req)) {
		ctl_chan_reply(in, f ? CTL_INVAL : CTL_NOT_JOINED, NULL);
		return;
	}
	sw = calloc(1, sizeof(*sw));
	if (!sw) {
		ctl_chan_reply(in, CTL_IO, NULL);
		return;
	}
	sw->sw_job.jb_run = serve_job;
	sw->sw_msg.m_run = serve_done;
	sw->sw_ds = d;
	sw->sw_fs = f;
	sw->sw_in = in;
	sw->sw_res.op = op;
	if (op == CTL_OP_ORDERS && only_fences(&in->in_req.ctl_request_u.orders))
		worker = DS_WORKER_FENCES;
	if (op == CTL_OP_REBUILD)
		serve_rebuild(sw);
	else if (op == CTL_OP_SUM)
		serve_sum(sw);
	else if (op == CTL_OP_FILL)
		serve_fill(sw);
	else
		ds_store_submit(d->d_store, worker, &sw->sw_job);
}
