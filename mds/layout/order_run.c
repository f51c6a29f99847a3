/* SPDX-License-Identifier: Apache-2.0 */
/* order_run.c - sends orders to a data server. See order_int.h. Runs on the orders' loop. */
#include "base/clock.h"
#include "base/crash.h"
#include "base/log.h"
#include "common/trace.h"
#include "mds/layout/order_int.h"
#include "proto/ctl_chan.h"
#include "proto/ctl_more.h"
#include <errno.h>
#include <urcu/compiler.h>

#define RETRY_MS 1000
#define AHEAD_MS 1000
/* Fences in a batch. The server syncs each one, and one answer for all must come before they are
 * unconfirmed for long. */
#define FENCES_MAX 32

struct order_joining {
	struct loop_msg oj_msg;
	struct lo_orders *oj_orders;
	uint32_t oj_ds;
	void (*oj_ready)(void *rarg);
	void *oj_rarg;
};

/* True when an older CLONE order that is not done reads this object as it was before this order. */
static bool clone_needs(const struct order_queue *oq, const struct order *o)
{
	if (!oq->oq_orders->os_nclones)
		return false;
	for (const struct order *p = oq->oq_list[ORDER_URGENT]; p; p = p->or_next)
		if (p->or_type == CTL_CLONE && p->or_number < o->or_number &&
		    p->or_src == o->or_file->of_ino && p->or_src_incarnation == o->or_incarnation &&
		    p->or_stripe == o->or_stripe && p->or_src_mirror == o->or_mirror)
			return true;
	return false;
}

/* True when an older order of the same object is not done. */
static bool held_back(const struct order_queue *oq, const struct order *o)
{
	if (o->or_type == CTL_BAR_CLIENT)
		/* A client may be revoked twice without harm, and thousands of these orders may be
		 * queued at once. */
		return false;
	if (clone_needs(oq, o))
		return true;
	for (const struct order *p = o->or_file->of_orders; p; p = p->or_file_next)
		if (p->or_number < o->or_number && p->or_ds == o->or_ds &&
		    p->or_stripe == o->or_stripe && p->or_mirror == o->or_mirror &&
		    p->or_incarnation == o->or_incarnation && p->or_client == o->or_client)
			return true;
	return false;
}

bool lo_order_owed(const struct order *o)
{
	return !o->or_in_force && (o->or_type == CTL_FENCE || o->or_type == CTL_BAR_CLIENT ||
				   o->or_type == CTL_TRUNCATE);
}

void lo_order_owe(struct order_queue *oq)
{
	uint64_t since = 0, answered = oq->oq_lane[QUEUE_FENCES].ol_answered_ms;

	for (unsigned l = 0; l < ORDER_DELETE; l++)
		for (const struct order *o = oq->oq_list[l]; o; o = o->or_next)
			if (lo_order_owed(o) && (!since || o->or_since_ms < since))
				since = o->or_since_ms;
	/* A server that has many orders and works on them obeys. */
	if (since && since < answered)
		since = answered;
	atomic_store(&oq->oq_orders->os_owed_ms[oq->oq_ds], since);
}

/* True while a CLONE order that is not done makes or replaces the object. Until then a missing file
 * proves nothing. */
static bool being_made(const struct order *o)
{
	for (const struct order *p = o->or_file->of_orders; p; p = p->or_file_next)
		if (p->or_type == CTL_CLONE && p->or_number < o->or_number &&
		    p->or_ds == o->or_ds && p->or_stripe == o->or_stripe &&
		    p->or_mirror == o->or_mirror && p->or_incarnation == o->or_incarnation)
			return true;
	return false;
}

static void order_run_batch_add(struct order_batch *ol, struct order *o, ctl_order_type type,
				uint64_t number)
{
	ol->ol_batch[ol->ol_n] = o;
	ol->ol_wire[ol->ol_n++] = (ctl_order){
		.type = type,
		.number = number,
		.object =
			{
				.ino = o->or_file->of_ino,
				.fs = o->or_fs,
				.incarnation = o->or_incarnation,
				.stripe = o->or_stripe,
				.mirror = o->or_mirror,
			},
		.size = o->or_size,
		.epoch = o->or_epoch,
		.client = o->or_client,
		.source =
			{
				.ino = o->or_src,
				.fs = o->or_fs,
				.incarnation = o->or_src_incarnation,
				.stripe = o->or_stripe,
				.mirror = o->or_src_mirror,
			},
		.known = (o->or_src_known ? CTL_KNOWN_SOURCE : 0) |
			 (o->or_known && !(type == CTL_FENCE && being_made(o)) ? CTL_KNOWN : 0),
		.from = o->or_from,
		.offset = o->or_offset,
	};
}

/* True when the server takes a fence of number 0. An older server skips such a fence as one that it
 * has done, and confirms it. */
static bool overtakes(const struct order_queue *oq)
{
	struct ds_reg_server sv;

	return ds_reg_get(oq->oq_orders->os_lo->l_dsc, oq->oq_ds, &sv) &&
	       sv.sv_protocol >= CTL_PROTOCOL_OVERTAKE;
}

/* collect_fences and collect_rest fill a batch and return how many of its orders are urgent. */
static unsigned collect_fences(struct order_queue *oq)
{
	struct order_batch *ol = &oq->oq_lane[QUEUE_FENCES];
	uint64_t now = clock_mono_ms(), mine = ds_reg_clock_ms(oq->oq_orders->os_lo->l_dsc);
	bool overtake = (oq->oq_list[ORDER_FENCE] || oq->oq_list[ORDER_URGENT]) && overtakes(oq);
	unsigned urgent;

	ol->ol_n = 0;
	for (struct order *o = oq->oq_list[ORDER_FENCE]; o && ol->ol_n < FENCES_MAX;
	     o = o->or_next) {
		bool held = o->or_after_ms <= now && held_back(oq, o);

		if (o->or_after_ms <= now && (!held || overtake))
			order_run_batch_add(ol, o, (ctl_order_type)o->or_type,
					    held ? 0 : o->or_number);
	}
	urgent = ol->ol_n;
	for (struct order *o = overtake ? oq->oq_list[ORDER_URGENT] : NULL;
	     o && ol->ol_n < FENCES_MAX; o = o->or_next) {
		if (o->or_type != CTL_TRUNCATE || o->or_in_force ||
		    mine - o->or_since_ms < AHEAD_MS)
			continue;
		o->or_ahead = true;
		order_run_batch_add(ol, o, CTL_FENCE, 0);
	}
	return urgent;
}

static unsigned collect_rest(struct order_queue *oq)
{
	struct order_batch *ol = &oq->oq_lane[QUEUE_REST];
	uint64_t now = clock_mono_ms();
	unsigned urgent = 0;

	ol->ol_n = 0;
	for (unsigned l = ORDER_URGENT; l < ORDER_LISTS; l++) {
		for (struct order *o = oq->oq_list[l]; o && ol->ol_n < CTL_BATCH_MAX;
		     o = o->or_next) {
			if (o->or_after_ms > now || held_back(oq, o))
				continue;
			urgent += l == ORDER_URGENT;
			order_run_batch_add(ol, o, (ctl_order_type)o->or_type, o->or_number);
		}
	}
	return urgent;
}

static void order_run_ready(struct order_queue *oq)
{
	void (*fn)(void *) = oq->oq_ready;

	oq->oq_ready = NULL;
	if (fn)
		fn(oq->oq_rarg);
}

static void order_run_retry_later(struct order_queue *oq)
{
	loop_timer_start(oq->oq_orders->os_loop, &oq->oq_retry, RETRY_MS + 1);
}

void lo_order_retry_fire(struct loop_timer *t)
{
	lo_order_run(caa_container_of(t, struct order_queue, oq_retry));
}

/* Runs on the connection's loop. */
static void batch_take(struct ds_reg_ctl *c, const ctl_response *res)
{
	struct order_batch *ol = caa_container_of(c, struct order_batch, ol_ctl);
	const ctl_orders_res *r = &res->result.ctl_result_u.orders;

	ol->ol_status = res->status;
	if (res->status != CTL_OK)
		return;
	if (r->results.results_len != ol->ol_n) {
		ol->ol_status = CTL_INVAL;
		return;
	}
	memcpy(ol->ol_result, r->results.results_val, ol->ol_n * sizeof(ol->ol_result[0]));
}

static void order_log_failed(const struct order_queue *oq, const struct order *o, ctl_status st)
{
	struct ds_reg_server sv = {0};

	ds_reg_get(oq->oq_orders->os_lo->l_dsc, oq->oq_ds, &sv);
	if (o->or_type == CTL_BAR_CLIENT)
		log_warn("data server %u (%s): cannot bar client %u: %s; trying again (order %llu)",
			 oq->oq_ds, sv.sv_name, o->or_client, ctl_status_text(st),
			 (unsigned long long)o->or_number);
	else
		log_warn("data server %u (%s): cannot %s the object of inode %llu (stripe %u, "
			 "mirror %u): %s; trying again (order %llu)",
			 oq->oq_ds, sv.sv_name, ctl_order_name(o->or_type),
			 (unsigned long long)o->or_file->of_ino, o->or_stripe, o->or_mirror,
			 ctl_status_text(st), (unsigned long long)o->or_number);
}

static void order_run_order_failed(struct order_queue *oq, struct order *o, ctl_status st)
{
	atomic_store_explicit(&o->or_error, (int32_t)st, memory_order_relaxed);
	if (!o->or_logged)
		order_log_failed(oq, o, st);
	if (!o->or_logged && !atomic_fetch_add(&oq->oq_orders->os_failing[oq->oq_ds], 1))
		atomic_store(&oq->oq_orders->os_failing_ms[oq->oq_ds],
			     ds_reg_clock_ms(oq->oq_orders->os_lo->l_dsc));
	o->or_logged = true;
	o->or_after_ms = clock_mono_ms() + RETRY_MS;
	order_run_retry_later(oq);
}

/* True when the server enforces from memory what it could not store. An NFSv3 data server keeps
 * nothing: it has done what it confirmed, and no more. */
static bool forces(const struct order_queue *oq)
{
	struct ds_reg_server sv;

	return ds_reg_get(oq->oq_orders->os_lo->l_dsc, oq->oq_ds, &sv) && !sv.sv_nfs3;
}

static void batch_results(struct order_batch *ol)
{
	struct order_queue *oq = ol->ol_queue;
	bool in_force = forces(oq);
	uint64_t now = clock_mono_ns();

	crash_point("orders-done");
	for (unsigned i = 0; i < ol->ol_n; i++) {
		struct order *o = ol->ol_batch[i];

		if (!o)
			continue;
		log_request = o->or_request;
		TRACE_AT(now, order_done, o->or_file->of_ino, oq->oq_ds, o->or_number,
			 (uint64_t)ol->ol_wire[i].type << 32 | ol->ol_result[i]);
		o->or_in_force = in_force;
		if (ol->ol_wire[i].type != (ctl_order_type)o->or_type)
			/* Only a fence ahead of this order was sent. The order itself is still to
			 * be done. */
			o->or_ahead = false;
		else if (ol->ol_result[i] == CTL_OK || ol->ol_result[i] == CTL_NOENT)
			lo_order_finish(oq->oq_orders, o);
		else
			order_run_order_failed(oq, o, ol->ol_result[i]);
	}
	log_request = 0;
	ol->ol_n = 0;
	ol->ol_answered_ms = ds_reg_clock_ms(oq->oq_orders->os_lo->l_dsc);
	lo_order_owe(oq);
	lo_order_finished(oq->oq_orders);
}

/* Fences that went ahead of other orders were lost, and will be sent again. */
static void batch_drop(struct order_batch *ol)
{
	for (unsigned i = 0; i < ol->ol_n; i++)
		if (ol->ol_batch[i] &&
		    ol->ol_wire[i].type != (ctl_order_type)ol->ol_batch[i]->or_type)
			ol->ol_batch[i]->or_ahead = false;
}

static void batch_lost(struct order_batch *ol, int err)
{
	struct order_queue *oq = ol->ol_queue;

	for (unsigned i = 0; i < ol->ol_n; i++)
		if (ol->ol_batch[i])
			atomic_store_explicit(&ol->ol_batch[i]->or_error, err,
					      memory_order_relaxed);
	if (ol->ol_again) {
		/* The batch was lost with an old connection. The server is back on a new one. */
		ol->ol_again = false;
		lo_order_run(oq);
	} else if (err == -ENOTCONN || err == -ECONNRESET) {
		/* The next join begins again. A join that waits here has lost its connection. */
		oq->oq_up = false;
		order_run_ready(oq);
	} else {
		/* The connection may also have ended in another way. The next try then finds that
		 * out. */
		log_warn("data server %u did not answer %u orders (%s); retrying", oq->oq_ds,
			 ol->ol_n, strerror(-err));
		order_run_retry_later(oq);
	}
}

static void order_run_batch_done(struct ds_reg_ctl *c, int err)
{
	struct order_batch *ol = caa_container_of(c, struct order_batch, ol_ctl);
	struct order_queue *oq = ol->ol_queue;

	ol->ol_busy = false;
	if (err || ol->ol_status != CTL_OK)
		batch_drop(ol);
	if (err) {
		batch_lost(ol, err);
		return;
	}
	ol->ol_again = false;
	if (ol->ol_status != CTL_OK) {
		log_error("data server %u refused orders: %s", oq->oq_ds,
			  ctl_status_text(ol->ol_status));
		/* A join goes on waiting: the server must not serve before its orders are done. */
		order_run_retry_later(oq);
		return;
	}
	batch_results(ol);
	lo_order_run(oq);
}

static void lane_send(struct order_batch *ol)
{
	struct lo_orders *os = ol->ol_queue->oq_orders;
	ctl_orders_args *a = &ol->ol_ctl.dc_req.ctl_request_u.orders;
	uint64_t now;

	if (ol->ol_busy || !ol->ol_n)
		return;
	now = clock_mono_ns();
	ol->ol_busy = true;
	for (unsigned i = 0; i < ol->ol_n; i++) {
		log_request = ol->ol_batch[i]->or_request;
		atomic_fetch_add_explicit(&ol->ol_batch[i]->or_tries, 1, memory_order_relaxed);
		TRACE_AT(now, order_send, ol->ol_batch[i]->or_file->of_ino, ol->ol_queue->oq_ds,
			 ol->ol_batch[i]->or_number, ol->ol_wire[i].type);
	}
	log_request = 0;
	ol->ol_ctl.dc_req.op = CTL_OP_ORDERS;
	crash_point("orders-send");
	a->instance_epoch = ns_super(os->os_lo->l_ns)->su_boot;
	a->orders.orders_len = ol->ol_n;
	a->orders.orders_val = ol->ol_wire;
	ol->ol_ctl.dc_take = batch_take;
	ol->ol_ctl.dc_done = order_run_batch_done;
	ds_reg_call(os->os_lo->l_dsc, ol->ol_queue->oq_ds, &ol->ol_ctl, CTL_ORDERS_MS);
}

static bool waits(const struct order_queue *oq)
{
	bool any = false;

	for (unsigned l = 0; l < ORDER_LISTS; l++)
		any |= oq->oq_list[l] != NULL;
	return any;
}

void lo_order_run(struct order_queue *oq)
{
	struct order_batch *fences = &oq->oq_lane[QUEUE_FENCES], *rest = &oq->oq_lane[QUEUE_REST];
	bool busy = fences->ol_busy || rest->ol_busy;
	unsigned urgent = 0;

	if (!oq->oq_up)
		return;
	if (!fences->ol_busy)
		urgent += collect_fences(oq);
	if (!rest->ol_busy)
		urgent += collect_rest(oq);
	/* An order that the server could not run must not keep it from serving everything else.
	 * Only orders that were not tried yet count. */
	if (!busy && !urgent)
		order_run_ready(oq);
	lane_send(fences);
	lane_send(rest);
	/* The retry timer sends fences ahead of orders that take long, and what failed. It may fire
	 * before or_after_ms: it counts from the start of a turn of the loop. */
	if (waits(oq) && !oq->oq_retry.t_pos)
		order_run_retry_later(oq);
}

/* ---- a server joins: what is urgent goes before it serves ---- */

/* The server may have forgotten what it refused from memory. It must get these orders again before
 * it serves. */
static void owe_again(struct order_queue *oq)
{
	for (unsigned l = 0; l < ORDER_DELETE; l++)
		for (struct order *o = oq->oq_list[l]; o; o = o->or_next) {
			o->or_after_ms = 0;
			o->or_in_force = false;
		}
	oq->oq_lane[QUEUE_FENCES].ol_answered_ms = ds_reg_clock_ms(oq->oq_orders->os_lo->l_dsc);
	lo_order_owe(oq);
}

static void joining_run(struct loop_msg *m)
{
	struct order_joining *oj = caa_container_of(m, struct order_joining, oj_msg);
	struct order_queue *oq;

	lo_orders_refresh(oj->oj_orders);
	oq = lo_order_queue(oj->oj_orders, oj->oj_ds);
	if (!oq)
		log_fatal("out of memory for the orders of a data server");
	/* Answer an earlier join that was not answered yet: its connection is gone, or its sender
	 * has stopped waiting. */
	order_run_ready(oq);
	oq->oq_ready = oj->oj_ready;
	oq->oq_rarg = oj->oj_rarg;
	oq->oq_up = true;
	for (unsigned l = 0; l < QUEUES; l++)
		oq->oq_lane[l].ol_again = oq->oq_lane[l].ol_busy;
	free(oj);
	owe_again(oq);
	lo_order_run(oq);
}

void lo_order_join(void *arg, uint32_t id, void (*fn)(void *rarg), void *rarg)
{
	struct lo_orders *os = arg;
	struct order_joining *oj = calloc(1, sizeof(*oj));

	if (!oj)
		log_fatal("out of memory for the orders of a data server");
	oj->oj_orders = os;
	oj->oj_ds = id;
	oj->oj_ready = fn;
	oj->oj_rarg = rarg;
	oj->oj_msg.m_run = joining_run;
	/* A restarted server may have lost uncommitted writes. It may also no longer belong to the
	 * file when a COMMIT comes, and that COMMIT would ask only other servers. */
	atomic_fetch_add(&os->os_lo->l_generation, 1);
	loop_post(os->os_loop, &oj->oj_msg);
}
