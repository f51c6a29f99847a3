/* SPDX-License-Identifier: Apache-2.0 */
/* order.c - orders: the copy of their rows in memory, and waiting for them. See order_int.h. */
#include "base/clock.h"
#include "base/crash.h"
#include "base/log.h"
#include "base/metrics.h"
#include "mds/layout/order_int.h"
#include <errno.h>
#include <urcu/compiler.h>

#define TICK_MS	    50
#define DELETE_MS   100
#define DELETE_MANY 1024 /* rows deleted in one mutation at most */
#define LATER_MS    100
#define LATER_MANY  CTL_BATCH_MAX /* so many removed files wait for each other at most */

/* ---- the copy in memory: used on the orders' loop ---- */

struct order_queue *lo_order_queue(struct lo_orders *os, uint32_t ds)
{
	struct order_queue *oq = os->os_queue[ds];

	if (oq)
		return oq;
	oq = calloc(1, sizeof(*oq));
	if (!oq)
		return NULL;
	oq->oq_orders = os;
	oq->oq_ds = ds;
	for (unsigned l = 0; l < ORDER_LISTS; l++)
		oq->oq_tail[l] = &oq->oq_list[l];
	for (unsigned l = 0; l < QUEUES; l++)
		oq->oq_lane[l].ol_queue = oq;
	oq->oq_retry.t_fire = lo_order_retry_fire;
	os->os_queue[ds] = oq;
	return oq;
}

/* The caller holds os_lock, or runs on the orders' loop. */
static struct order_file *order_file_find(struct lo_orders *os, uint64_t ino)
{
	uint64_t h = hash_u64(ino);

	for (struct hash_link *l = hash_first(&os->os_files, h); l; l = hash_next(l)) {
		struct order_file *of = hash_entry(l, struct order_file, of_link);

		if (of->of_ino == ino)
			return of;
	}
	return NULL;
}

static struct order_file *order_file_get(struct lo_orders *os, uint64_t ino)
{
	struct order_file *of = order_file_find(os, ino);
	int err;

	if (of)
		return of;
	of = calloc(1, sizeof(*of));
	if (!of)
		return NULL;
	of->of_ino = ino;
	pthread_mutex_lock(&os->os_lock);
	err = hash_add(&os->os_files, &of->of_link, hash_u64(ino));
	pthread_mutex_unlock(&os->os_lock);
	if (err) {
		free(of);
		return NULL;
	}
	return of;
}

static void order_file_put(struct lo_orders *os, struct order_file *of)
{
	if (of->of_orders || of->of_waits)
		return;
	pthread_mutex_lock(&os->os_lock);
	hash_del(&os->os_files, &of->of_link);
	pthread_mutex_unlock(&os->os_lock);
	free(of);
}

static uint64_t object_held(struct lo *lo, const struct order *o, const struct lo_map *m)
{
	int k = lo_object_of(m, o->or_ds, o->or_stripe, o->or_mirror);

	/* A server without a lease runs its fences before it serves again, so a fence to it holds
	 * no object back. */
	if (o->or_type == CTL_FENCE ? !ds_reg_leased(lo->l_dsc, o->or_ds)
				    : o->or_type != CTL_TRUNCATE && o->or_type != CTL_CLONE)
		return 0;
	if (k < 0 || m->lm_obj[k].ob_state == LO_STALE)
		return 0;
	return UINT64_C(1) << k;
}

uint64_t lo_objects_with_orders(struct lo *lo, uint64_t ino, const struct lo_map *m)
{
	struct lo_orders *os = lo->l_orders;
	struct order_file *of;
	uint64_t pending = 0;

	if (!atomic_load(&os->os_count))
		return 0;
	pthread_mutex_lock(&os->os_lock);
	of = order_file_find(os, ino);
	for (const struct order *o = of ? of->of_orders : NULL; o; o = o->or_file_next)
		pending |= object_held(lo, o, m);
	pthread_mutex_unlock(&os->os_lock);
	return pending;
}

bool lo_order_pending(struct lo *lo, uint64_t ino, const struct lo_map *m, unsigned obj,
		      uint64_t *upto)
{
	struct lo_orders *os = lo->l_orders;
	struct order_file *of;
	bool pending = false;

	/* A row that was not read yet may be such an order. A refresh that begins after the first
	 * call sees it. */
	if (!*upto)
		*upto = atomic_load(&os->os_begun) + 1;
	if (*upto > atomic_load(&os->os_ended)) {
		lo_orders_wake(lo);
		return true;
	}
	pthread_mutex_lock(&os->os_lock);
	of = order_file_find(os, ino);
	for (const struct order *o = of ? of->of_orders : NULL; o; o = o->or_file_next)
		pending |= o->or_type != CTL_DELETE &&
			   lo_object_of(m, o->or_ds, o->or_stripe, o->or_mirror) == (int)obj;
	pthread_mutex_unlock(&os->os_lock);
	return pending;
}

uint32_t lo_orders_failing(struct lo *lo, uint32_t ds, uint64_t *for_ms)
{
	struct lo_orders *os = lo->l_orders;
	uint32_t n = atomic_load(&os->os_failing[ds]);

	*for_ms = n ? ds_reg_clock_ms(lo->l_dsc) - atomic_load(&os->os_failing_ms[ds]) : 0;
	return n;
}

/* Each list is in the order in which its orders were read. */
void lo_orders_look(struct lo *lo)
{
	struct lo_orders *os = lo->l_orders;

	for (uint32_t ds = 1; ds <= DS_REG_MAX; ds++) {
		const struct order_queue *oq = os->os_queue[ds];
		uint64_t oldest = 0;

		for (unsigned l = 0; oq && l < ORDER_LISTS; l++)
			if (oq->oq_list[l] && (!oldest || oq->oq_list[l]->or_since_ms < oldest))
				oldest = oq->oq_list[l]->or_since_ms;
		atomic_store(&os->os_oldest_ms[ds], oldest);
	}
}

uint64_t lo_orders_age(struct lo *lo, uint32_t ds)
{
	uint64_t oldest = atomic_load(&lo->l_orders->os_oldest_ms[ds]);

	return oldest ? ds_reg_clock_ms(lo->l_dsc) - oldest : 0;
}

static bool deletes(const struct order *o, uint32_t ds, const ctl_object *obj)
{
	return o->or_type == CTL_DELETE && o->or_ds == ds &&
	       o->or_incarnation == obj->incarnation && o->or_stripe == obj->stripe &&
	       o->or_mirror == obj->mirror;
}

struct deleting {
	uint32_t dl_ds;
	const ctl_object *dl_obj;
	bool dl_found;
};

static int deletes_row(void *arg, struct kv_slice id, struct kv_slice val)
{
	struct deleting *dl = arg;
	uint64_t number, ino;
	struct order *o;

	if (lo_order_key_read(id, &number) != dl->dl_ds)
		return 1;
	o = lo_order_decode(dl->dl_ds, number, val, &ino);
	dl->dl_found = o && ino == dl->dl_obj->ino && deletes(o, dl->dl_ds, dl->dl_obj);
	free(o);
	return dl->dl_found;
}

bool lo_order_deletes(struct lo *lo, struct kv_txn *t, uint32_t ds, const ctl_object *obj)
{
	struct deleting dl = {ds, obj, false};
	struct lo_orders *os = lo->l_orders;
	bool unread = atomic_load(&os->os_gone) + atomic_load(&os->os_looking);
	uint32_t be = htobe32(ds);
	struct order_file *of;

	pthread_mutex_lock(&os->os_lock);
	of = order_file_find(os, obj->ino);
	for (const struct order *o = of ? of->of_orders : NULL; o; o = o->or_file_next)
		dl.dl_found |= deletes(o, ds, obj);
	pthread_mutex_unlock(&os->os_lock);
	/* Orders of files that were just removed wait in the store for each other
	 * (lo_orders_files_gone), so look there too. */
	if (!dl.dl_found && unread)
		ns_rows(t, NS_T_ORDER, &be, sizeof(be), deletes_row, &dl);
	return dl.dl_found;
}

bool lo_orders_of(struct lo *lo, uint64_t ino)
{
	struct lo_orders *os = lo->l_orders;
	const struct order_file *of;
	bool any;

	pthread_mutex_lock(&os->os_lock);
	of = order_file_find(os, ino);
	any = of && of->of_orders;
	pthread_mutex_unlock(&os->os_lock);
	return any;
}

uint64_t lo_orders_count(struct lo *lo)
{
	struct lo_orders *os = lo->l_orders;

	return atomic_load(&os->os_count) + atomic_load(&os->os_gone) +
	       atomic_load(&os->os_looking);
}

static unsigned list_of(const struct order *o)
{
	return o->or_type == CTL_DELETE					 ? ORDER_DELETE
	       : o->or_type == CTL_FENCE || o->or_type == CTL_BAR_CLIENT ? ORDER_FENCE
									 : ORDER_URGENT;
}

static void order_link(struct lo_orders *os, struct order_queue *oq, struct order_file *of,
		       struct order *o)
{
	unsigned l = list_of(o);

	o->or_since_ms = ds_reg_clock_ms(os->os_lo->l_dsc);
	if (lo_order_owed(o) && !atomic_load(&os->os_owed_ms[oq->oq_ds]))
		atomic_store(&os->os_owed_ms[oq->oq_ds], o->or_since_ms);
	o->or_prevp = oq->oq_tail[l];
	*o->or_prevp = o;
	oq->oq_tail[l] = &o->or_next;
	o->or_file = of;
	pthread_mutex_lock(&os->os_lock);
	o->or_file_next = of->of_orders;
	if (o->or_file_next)
		o->or_file_next->or_file_prevp = &o->or_file_next;
	o->or_file_prevp = &of->of_orders;
	of->of_orders = o;
	pthread_mutex_unlock(&os->os_lock);
	atomic_fetch_add(&os->os_count, 1);
	os->os_nclones += o->or_type == CTL_CLONE;
}

static void order_unlink(struct lo_orders *os, struct order_queue *oq, struct order *o)
{
	unsigned l = list_of(o);

	*o->or_prevp = o->or_next;
	if (o->or_next)
		o->or_next->or_prevp = o->or_prevp;
	else
		oq->oq_tail[l] = o->or_prevp;
	pthread_mutex_lock(&os->os_lock);
	*o->or_file_prevp = o->or_file_next;
	if (o->or_file_next)
		o->or_file_next->or_file_prevp = o->or_file_prevp;
	pthread_mutex_unlock(&os->os_lock);
	atomic_fetch_sub(&os->os_count, 1);
	os->os_nclones -= o->or_type == CTL_CLONE;
}

/* ---- reading new rows ---- */

struct scan {
	struct lo_orders *sc_orders;
	uint32_t sc_ds; /* 0: of every server */
	int sc_err;
};

static int order_scan_row(void *arg, struct kv_slice id, struct kv_slice val)
{
	struct scan *sc = arg;
	struct lo_orders *os = sc->sc_orders;
	struct order_file *of = NULL;
	struct order_queue *oq;
	uint64_t number = 0, ino = 0;
	struct order *o;
	uint32_t ds = lo_order_key_read(id, &number);

	if (id.s_len != ORDER_KEY_LEN) {
		log_error("ignoring the row of an order with a key of %zu bytes", id.s_len);
		return 0;
	}
	if (sc->sc_ds && ds != sc->sc_ds)
		return 1;
	oq = ds && ds <= DS_REG_MAX ? lo_order_queue(os, ds) : NULL;
	o = oq ? lo_order_decode(ds, number, val, &ino) : NULL;
	if (!o) {
		log_error("ignoring order %llu of data server %u: its record is damaged",
			  (unsigned long long)number, ds);
		return 0;
	}
	of = number > os->os_seen[ds] ? order_file_get(os, ino) : NULL;
	if (!of) {
		free(o);
		/* os_seen stays when memory is short, so that the next refresh tries again. */
		return number > os->os_seen[ds] ? (sc->sc_err = -ENOMEM) : 0;
	}
	o->or_request = lo_order_origin(os, number);
	os->os_seen[ds] = number;
	os->os_high = number > os->os_high ? number : os->os_high;
	order_link(os, oq, of, o);
	return 0;
}

static void queue_drop(struct lo_orders *os, uint32_t ds);

/* Reads the new rows of the queues in which a mutation has put more than was seen. */
void lo_orders_refresh(struct lo_orders *os)
{
	uint64_t turn = atomic_fetch_add(&os->os_begun, 1) + 1;
	bool first = !os->os_loaded;
	struct scan sc = {.sc_orders = os};
	struct kv_txn *t = NULL;
	struct order_key from;
	int err = 0;

	/* before reading os_put, because the rows of these files are committed */
	atomic_store(&os->os_looking, atomic_exchange(&os->os_gone, 0));
	for (uint32_t ds = 1; ds <= DS_REG_MAX && !err; ds++) {
		uint64_t seen = os->os_seen[ds];

		if (os->os_loaded && atomic_load(&os->os_put[ds]) <= seen)
			continue;
		if (!t)
			err = kv_read_begin(ns_kv(os->os_lo->l_ns), &t);
		if (err)
			break;
		lo_order_key(&from, ds, seen + 1);
		sc.sc_ds = os->os_loaded ? ds : 0;
		err = os->os_loaded ? ns_rows(t, NS_T_ORDER, from.ork_k, sizeof(from.ork_k),
					      order_scan_row, &sc)
				    : ns_rows(t, NS_T_ORDER, "", 0, order_scan_row, &sc);
		err = err ? err : sc.sc_err;
		if (!os->os_loaded && !err) {
			os->os_loaded = true;
			break; /* the scan has read all rows of this snapshot */
		}
	}
	if (t)
		kv_read_end(t);
	atomic_store(&os->os_looking, 0);
	if (err)
		log_error("cannot read the rows of orders: %s", strerror(-err));
	else
		atomic_store(&os->os_ended, turn);
	/* A crash may come between the deletion of a server's record and that of its orders. */
	for (uint32_t ds = 1; first && os->os_loaded && ds <= DS_REG_MAX; ds++)
		if (os->os_queue[ds] && !ds_reg_known(os->os_lo->l_dsc, ds))
			queue_drop(os, ds);
}

/* ---- waiting ---- */

static void wait_back(struct loop_msg *m)
{
	struct order_wait *ow = caa_container_of(m, struct order_wait, ow_msg);

	ow->ow_done(ow->ow_arg, ow->ow_err);
	free(ow);
}

static void wait_end(struct order_wait *ow, int err)
{
	ow->ow_err = err;
	ow->ow_msg.m_run = wait_back;
	loop_post(ow->ow_loop, &ow->ow_msg);
}

static void order_wait_unlink(struct order_wait *ow)
{
	*ow->ow_prevp = ow->ow_next;
	if (ow->ow_next)
		ow->ow_next->ow_prevp = ow->ow_prevp;
	*ow->ow_all_prevp = ow->ow_all_next;
	if (ow->ow_all_next)
		ow->ow_all_next->ow_all_prevp = ow->ow_all_prevp;
}

static bool wait_counts(const struct order_wait *ow, const struct order *o)
{
	int k = ow->ow_map.lm_stripes
			? lo_object_of(&ow->ow_map, o->or_ds, o->or_stripe, o->or_mirror)
			: -1;

	return !ow->ow_map.lm_stripes || (k >= 0 && ow->ow_map.lm_obj[k].ob_state != LO_STALE);
}

/* True while the order is still to be waited for. A server whose lease has run out honours no
 * capability, and runs its orders before it honours one again. */
static bool order_open(struct lo_orders *os, const struct order *o)
{
	return ds_reg_leased(os->os_lo->l_dsc, o->or_ds);
}

/* Returns the number of the first order of the inode that is still to be waited for. */
static uint64_t first_open(struct lo_orders *os, const struct order_file *of)
{
	uint64_t first = UINT64_MAX;
	uint8_t leased[DS_REG_MAX + 1]; /* 2: not looked up yet */

	memset(leased, 2, sizeof(leased));
	for (const struct order *o = of->of_orders; o; o = o->or_file_next) {
		if (leased[o->or_ds] == 2)
			leased[o->or_ds] = order_open(os, o);
		if (leased[o->or_ds] && o->or_number < first)
			first = o->or_number;
	}
	return first;
}

/* first: first_open's result. It decides for waits in which every order counts, so that ten
 * thousand clients that are evicted at once do not each walk all orders. */
static bool wait_over(struct lo_orders *os, const struct order_wait *ow, uint64_t first)
{
	if (!ow->ow_map.lm_stripes || first > ow->ow_high)
		return first > ow->ow_high;
	for (const struct order *o = ow->ow_file->of_orders; o; o = o->or_file_next)
		if (o->or_number <= ow->ow_high && wait_counts(ow, o) && order_open(os, o))
			return false;
	return true;
}

/* True when the order is not in force yet, and the server's lease runs, or an NFSv3 data server has
 * no lease. */
static bool order_is_owed(struct lo_orders *os, const struct order *o, bool generic)
{
	struct ds_reg_server sv;

	return lo_order_owed(o) && order_open(os, o) &&
	       ds_reg_get(os->os_lo->l_dsc, o->or_ds, &sv) && sv.sv_nfs3 == generic;
}

/* Returns the number of the first unconfirmed order of the inode, as wait_owed needs it. */
static uint64_t first_owed(struct lo_orders *os, const struct order_file *of)
{
	uint64_t first = UINT64_MAX;

	for (const struct order *o = of->of_orders; o; o = o->or_file_next)
		if (o->or_number < first && order_is_owed(os, o, false))
			first = o->or_number;
	return first;
}

static bool any_owed(struct lo_orders *os, const struct order_wait *ow, bool generic)
{
	for (const struct order *o = ow->ow_file->of_orders; o; o = o->or_file_next)
		if (o->or_number <= ow->ow_high && wait_counts(ow, o) &&
		    order_is_owed(os, o, generic))
			return true;
	return false;
}

/* True when the wait must go on after its deadline. A server that renews its lease has not
 * confirmed yet that it enforces the order. The wait ends when the server confirms, or with its
 * lease, which is not renewed meanwhile (fences_owed); time alone does not end it. A server whose
 * protocol version lets no fence overtake goes on renewing its lease: then the wait ends when the
 * server confirms. An NFSv3 data server has no lease: there the deadline counts, and the caller
 * gets an error. first: first_owed's result, as in wait_over. */
static bool wait_owed(struct lo_orders *os, const struct order_wait *ow, uint64_t first)
{
	if (!ow->ow_map.lm_stripes || first > ow->ow_high)
		return first <= ow->ow_high;
	return any_owed(os, ow, false);
}

static void order_waits_check(struct lo_orders *os, struct order_file *of)
{
	uint64_t first = first_open(os, of);

	for (struct order_wait *ow = of->of_waits, *next; ow; ow = next) {
		next = ow->ow_next;
		if (wait_over(os, ow, first)) {
			order_wait_unlink(ow);
			wait_end(ow, 0);
		}
	}
}

static void order_tick(struct loop_timer *t)
{
	struct lo_orders *os = caa_container_of(t, struct lo_orders, os_tick);
	/* first, owed: of inode `ino`, the last one handled. owed 0: not known yet */
	uint64_t now = ds_reg_clock_ms(os->os_lo->l_dsc), first = 0, owed = 0, ino = UINT64_MAX;

	for (struct order_wait *ow = os->os_waits, *next; ow; ow = next) {
		struct order_file *of = ow->ow_file;
		bool over;

		if (of->of_ino != ino) {
			first = first_open(os, of);
			owed = 0;
		}
		ino = of->of_ino;
		over = wait_over(os, ow, first);
		next = ow->ow_all_next;
		if (!over && now < ow->ow_deadline_ms)
			continue;
		if (!over && !owed)
			owed = first_owed(os, of);
		if (!over && wait_owed(os, ow, owed))
			continue;
		order_wait_unlink(ow);
		wait_end(ow, over ? 0 : any_owed(os, ow, true) ? -EBUSY : -ETIMEDOUT);
		order_file_put(os, of);
	}
	if (os->os_waits)
		loop_timer_start(os->os_loop, &os->os_tick, TICK_MS);
}

static void run_all(struct lo_orders *os)
{
	for (uint32_t ds = 1; ds <= DS_REG_MAX; ds++)
		if (os->os_queue[ds])
			lo_order_run(os->os_queue[ds]);
}

/* A wait that begins covers all existing orders, so nearly always the first order decides. */
static bool wait_needed(struct lo_orders *os, const struct order_wait *ow)
{
	for (const struct order *o = ow->ow_file->of_orders; o; o = o->or_file_next)
		if (wait_counts(ow, o) && order_open(os, o))
			return true;
	return false;
}

static void wait_start(struct loop_msg *m)
{
	struct order_wait *ow = caa_container_of(m, struct order_wait, ow_msg);
	struct lo_orders *os = ow->ow_orders;

	lo_orders_refresh(os);
	ow->ow_high = os->os_high;
	ow->ow_deadline_ms = ds_reg_clock_ms(os->os_lo->l_dsc) + ow->ow_timeout_ms;
	ow->ow_file = order_file_find(os, ow->ow_ino);
	if (!ow->ow_file || !wait_needed(os, ow)) {
		wait_end(ow, 0);
	} else {
		ow->ow_next = ow->ow_file->of_waits;
		if (ow->ow_next)
			ow->ow_next->ow_prevp = &ow->ow_next;
		ow->ow_prevp = &ow->ow_file->of_waits;
		ow->ow_file->of_waits = ow;
		ow->ow_all_next = os->os_waits;
		if (ow->ow_all_next)
			ow->ow_all_next->ow_all_prevp = &ow->ow_all_next;
		ow->ow_all_prevp = &os->os_waits;
		os->os_waits = ow;
		if (!os->os_tick.t_pos)
			loop_timer_start(os->os_loop, &os->os_tick, TICK_MS);
	}
	run_all(os);
}

void lo_orders_wait(struct lo *lo, uint64_t ino, struct loop *loop, uint32_t timeout_ms,
		    void (*done)(void *arg, int err), void *arg)
{
	lo_orders_wait_used(lo, ino, NULL, loop, timeout_ms, done, arg);
}

void lo_orders_wait_used(struct lo *lo, uint64_t ino, const struct lo_map *map, struct loop *loop,
			 uint32_t timeout_ms, void (*done)(void *arg, int err), void *arg)
{
	struct order_wait *ow = calloc(1, sizeof(*ow));

	if (!ow)
		log_fatal("out of memory while waiting for an order");
	ow->ow_orders = lo->l_orders;
	ow->ow_ino = ino;
	if (map)
		ow->ow_map = *map;
	ow->ow_loop = loop;
	ow->ow_timeout_ms = timeout_ms;
	ow->ow_done = done;
	ow->ow_arg = arg;
	ow->ow_msg.m_run = wait_start;
	loop_post(lo->l_orders->os_loop, &ow->ow_msg);
}

/* ---- waking the queues ---- */

static void kick_run(struct loop_msg *m)
{
	struct lo_orders *os = caa_container_of(m, struct lo_orders, os_kick);

	/* Cleared before the rows are read, so that a later kick posts again. */
	atomic_store(&os->os_kicked, false);
	lo_orders_refresh(os);
	run_all(os);
}

void lo_orders_wake(struct lo *lo)
{
	struct lo_orders *os = lo->l_orders;

	if (!atomic_exchange(&os->os_kicked, true))
		loop_post(os->os_loop, &os->os_kick);
}

static void later_fire(struct loop_timer *t)
{
	struct lo_orders *os = caa_container_of(t, struct lo_orders, os_later_timer);

	lo_orders_refresh(os);
	run_all(os);
}

static void later_run(struct loop_msg *m)
{
	struct lo_orders *os = caa_container_of(m, struct lo_orders, os_later);

	atomic_store(&os->os_latered, false);
	if (!os->os_later_timer.t_pos)
		loop_timer_start(os->os_loop, &os->os_later_timer, LATER_MS);
}

void lo_orders_files_gone(struct lo *lo)
{
	struct lo_orders *os = lo->l_orders;
	uint64_t n = atomic_fetch_add(&os->os_gone, 1);

	if (n == 0 && !atomic_exchange(&os->os_latered, true))
		loop_post(os->os_loop, &os->os_later);
	if (n + 1 >= LATER_MANY)
		lo_orders_wake(lo);
}

/* ---- completed orders ---- */

static int delete_run(struct kv_op *op, struct kv_txn *t)
{
	struct lo_orders *os = caa_container_of(op, struct lo_orders, os_del);

	crash_point("orders-delete");
	for (size_t i = 0; i < os->os_ndeleting; i++) {
		int err = ns_row_del(t, NS_T_ORDER, os->os_deleting[i].ork_k, ORDER_KEY_LEN);

		if (err)
			return err;
	}
	return 0;
}

static void order_delete_now(struct lo_orders *os);

/* Deletes the rows of completed orders. No request waits for that, and a commit for each would
 * double the cost of an unlink. So the rows are collected for a while. */
void lo_orders_delete(struct lo_orders *os)
{
	if (os->os_ndeleting || !os->os_ndead)
		return;
	if (os->os_ndead >= DELETE_MANY)
		order_delete_now(os);
	else if (!os->os_del_timer.t_pos)
		loop_timer_start(os->os_loop, &os->os_del_timer, DELETE_MS);
}

static void delete_fire(struct loop_timer *t)
{
	struct lo_orders *os = caa_container_of(t, struct lo_orders, os_del_timer);

	if (!os->os_ndeleting && os->os_ndead)
		order_delete_now(os);
}

static void order_delete_now(struct lo_orders *os)
{
	loop_timer_stop(os->os_loop, &os->os_del_timer);
	os->os_deleting = os->os_dead;
	os->os_ndeleting = os->os_ndead;
	os->os_dead = NULL;
	os->os_ndead = os->os_dead_cap = 0;
	kv_submit(ns_kv(os->os_lo->l_ns), &os->os_del);
}

static void delete_done(struct kv_op *op, int err)
{
	struct lo_orders *os = caa_container_of(op, struct lo_orders, os_del);

	/* After the next start, orders whose rows stay are sent again, and the servers know their
	 * numbers. */
	if (err)
		log_error("cannot delete the rows of %zu completed orders: %s", os->os_ndeleting,
			  strerror(-err));
	free(os->os_deleting);
	os->os_deleting = NULL;
	os->os_ndeleting = 0;
	lo_orders_delete(os);
}

static void delete_later(struct lo_orders *os, const struct order *o)
{
	if (os->os_ndead == os->os_dead_cap) {
		size_t cap = os->os_dead_cap ? os->os_dead_cap * 2 : CTL_BATCH_MAX;
		struct order_key *v = realloc(os->os_dead, cap * sizeof(*v));

		if (!v)
			/* as in delete_done: the row stays, and the order is sent again after the
			 * next start */
			return;
		os->os_dead = v;
		os->os_dead_cap = cap;
	}
	lo_order_key(&os->os_dead[os->os_ndead++], o->or_ds, o->or_number);
}

void lo_order_finish(struct lo_orders *os, struct order *o)
{
	struct order_file *of = o->or_file;

	order_unlink(os, os->os_queue[o->or_ds], o);
	for (unsigned i = 0; o->or_ahead && i < os->os_queue[o->or_ds]->oq_lane[QUEUE_FENCES].ol_n;
	     i++)
		if (os->os_queue[o->or_ds]->oq_lane[QUEUE_FENCES].ol_batch[i] == o)
			os->os_queue[o->or_ds]->oq_lane[QUEUE_FENCES].ol_batch[i] = NULL;
	if (o->or_logged)
		atomic_fetch_sub(&os->os_failing[o->or_ds], 1);
	delete_later(os, o);
	free(o);
	if (of->of_waits && !of->of_due) {
		of->of_due = true;
		of->of_due_next = os->os_due;
		os->os_due = of;
	}
	order_file_put(os, of);
}

void lo_order_finished(struct lo_orders *os)
{
	struct order_file *of;

	while ((of = os->os_due)) {
		os->os_due = of->of_due_next;
		of->of_due = false;
		order_waits_check(os, of);
		order_file_put(os, of);
	}
	lo_orders_delete(os);
}

/* ---- a server that was forgotten ---- */

static void queue_drop(struct lo_orders *os, uint32_t ds)
{
	struct order_queue *oq = os->os_queue[ds];

	for (unsigned l = 0; oq && l < ORDER_LISTS; l++)
		while (oq->oq_list[l])
			lo_order_finish(os, oq->oq_list[l]);
	if (oq)
		lo_order_owe(oq);
	lo_order_finished(os);
}

struct forgetting {
	struct loop_msg fg_msg;
	struct lo_orders *fg_orders;
	uint32_t fg_ds;
};

static void forget_go(struct loop_msg *m)
{
	struct forgetting *fg = caa_container_of(m, struct forgetting, fg_msg);
	struct order_queue *oq;

	lo_orders_refresh(fg->fg_orders);
	oq = fg->fg_orders->os_queue[fg->fg_ds];
	/* the batch in progress will fail soon, because its connection has ended */
	if (oq && (oq->oq_lane[QUEUE_FENCES].ol_busy || oq->oq_lane[QUEUE_REST].ol_busy)) {
		loop_post(fg->fg_orders->os_loop, m);
		return;
	}
	queue_drop(fg->fg_orders, fg->fg_ds);
	free(fg);
}

void lo_orders_forget(struct lo *lo, uint32_t ds)
{
	struct forgetting *fg = calloc(1, sizeof(*fg));

	if (!fg)
		return; /* the next start drops the orders */
	fg->fg_msg.m_run = forget_go;
	fg->fg_orders = lo->l_orders;
	fg->fg_ds = ds;
	loop_post(lo->l_orders->os_loop, &fg->fg_msg);
}

/* ---- start and end ---- */

/* Returns for how many ms the server has left a fence or revocation unconfirmed. Runs on any
 * loop. */
static uint64_t fences_owed(void *arg, uint32_t ds)
{
	struct lo_orders *os = arg;
	uint64_t since = atomic_load_explicit(&os->os_owed_ms[ds], memory_order_relaxed),
		 now = ds_reg_clock_ms(os->os_lo->l_dsc);

	return since && now > since ? now - since : 0;
}

static double gauge_orders(void *arg)
{
	return (double)lo_orders_count(arg);
}

int lo_orders_create(struct lo *lo)
{
	struct lo_orders *os = calloc(1, sizeof(*os));

	if (!os)
		return -ENOMEM;
	lo->l_orders = os;
	os->os_lo = lo;
	os->os_loop = ds_reg_loop(lo->l_dsc, 0);
	os->os_kick.m_run = kick_run;
	os->os_later.m_run = later_run;
	os->os_later_timer.t_fire = later_fire;
	os->os_tick.t_fire = order_tick;
	os->os_del_timer.t_fire = delete_fire;
	os->os_del.o_run = delete_run;
	os->os_del.o_done = delete_done;
	os->os_del.o_loop = os->os_loop;
	pthread_mutex_init(&os->os_lock, NULL);
	ds_reg_set_join_handler(lo->l_dsc, lo_order_join, os);
	ds_reg_set_owed_handler(lo->l_dsc, fences_owed, os);
	metric_gauge("weft_mds_orders", "Orders to data servers that are not done.", "",
		     gauge_orders, lo);
	/* Orders from an earlier run. */
	lo_orders_wake(lo);
	return 0;
}

void lo_orders_destroy(struct lo *lo)
{
	struct lo_orders *os = lo->l_orders;

	if (!os)
		return;
	hash_each(&os->os_files, i, l, next)
	{
		struct order_file *of = hash_entry(l, struct order_file, of_link);

		while (of->of_orders) {
			struct order *o = of->of_orders;

			of->of_orders = o->or_file_next;
			free(o);
		}
		free(of);
	}
	free(os->os_files.h_slot);
	while (os->os_waits) {
		struct order_wait *ow = os->os_waits;

		os->os_waits = ow->ow_all_next;
		free(ow);
	}
	for (uint32_t ds = 1; ds <= DS_REG_MAX; ds++)
		free(os->os_queue[ds]);
	free(os->os_dead);
	free(os->os_deleting);
	pthread_mutex_destroy(&os->os_lock);
	free(os);
}
