/* SPDX-License-Identifier: Apache-2.0 */
/* lo_order_test.c - orders to data servers, which are fake ones here (lo_fake.h): what becomes of
 * them, what waits for them, and what comes before what. */
#include "base/clock.h"
#include "common/store_lease.h"
#include "mds/dataserver/ds_reg_int.h"
#include "mds/layout/order_int.h"
#include "tests/unit/lo_fake.h"
#include "tests/unit/lo_layout.h"
#include "tests/unit/unit.h"

struct order_args {
	struct lo_map *m;
	struct ns_inode i;
	/* 0 free, 1 truncate, 2 fence, 3 fence and truncate, 4 bar, 5 clone of the inode before
	 * it */
	int what;
};

static int order_run(void *arg, struct kv_txn *t)
{
	struct order_args *a = arg;
	uint8_t blob[NS_BLOB_MAX];
	int err = 0;

	a->i.i_blob = (struct kv_slice){blob, lo_map_encode(a->m, blob, sizeof(blob))};
	if (a->what == 0)
		return lo_order_free(lo, t, &a->i);
	if (a->what == 4)
		return lo_order_bar(lo, t, 5);
	if (a->what == 5) {
		struct lo_clone cl = {.cl_ino = a->i.i_ino - 1,
				      .cl_from = 4096,
				      .cl_to = 8192,
				      .cl_len = 100,
				      .cl_map = *a->m};

		return lo_order_clone(lo, t, &a->i, a->m, &cl);
	}
	if (a->what >= 2)
		err = lo_order_fence(lo, t, &a->i, a->m, 8);
	if (!err && a->what != 2)
		err = lo_order_truncate(lo, t, &a->i, a->m, 100);
	return err;
}

static void order(struct lo_map *m, uint64_t ino, int what)
{
	struct order_args a = {m, {.i_ino = ino, .i_type = NS_REG}, what};

	ck_assert_int_eq(kv_run_sync(kv, order_run, &a), 0);
}

struct waiting {
	sem_t w_sem;
	int w_err;
};

static void waited(void *arg, int err)
{
	struct waiting *w = arg;

	ck_assert_ptr_eq(loop_self(), loops[1]);
	w->w_err = err;
	sem_post(&w->w_sem);
}

static int wait_orders_used(uint64_t ino, const struct lo_map *m, uint32_t ms)
{
	struct waiting w;

	sem_init(&w.w_sem, 0, 0);
	lo_orders_wait_used(lo, ino, m, loops[1], ms, waited, &w);
	sem_wait(&w.w_sem);
	return w.w_err;
}

static int wait_orders(uint64_t ino, uint32_t ms)
{
	return wait_orders_used(ino, NULL, ms);
}

static int count_row(void *arg, struct kv_slice id, struct kv_slice val)
{
	(void)id;
	(void)val;
	++*(unsigned *)arg;
	return 0;
}

static unsigned order_rows(void)
{
	struct kv_txn *t;
	unsigned n = 0;

	ck_assert_int_eq(kv_read_begin(kv, &t), 0);
	ck_assert_int_eq(ns_rows(t, NS_T_ORDER, "", 0, count_row, &n), 0);
	kv_read_end(t);
	return n;
}

START_TEST(orders_reach_every_object_and_their_rows_go)
{
	struct lo_map m = map_on(4, 2);

	join_fakes(4);
	order(&m, 500, 3);
	ck_assert_uint_eq(order_rows(), 16);
	ck_assert_int_eq(wait_orders(500, 60000), 0);
	for (unsigned f = 0; f < 4; f++) {
		ck_assert_uint_eq(fakes[f].f_orders, 4);
		for (unsigned o = 0; o < fakes[f].f_nobj; o++)
			ck_assert_uint_eq(fakes[f].f_obj[o].ob_epoch, 8);
	}
	ck_assert_uint_eq(lo_objects_with_orders(lo, 500, &m), 0);
	eventually(order_rows() == 0);
	order(&m, 500, 0);
	lo_orders_wake(lo);
	eventually(order_rows() == 0);
	order(&m, 0, 4);
	ck_assert_int_eq(wait_orders(0, 60000), 0);
	ck_assert_uint_eq(lo_orders_count(lo), 0);
	ck_assert_int_eq(wait_orders(12345, 60000), 0);
}
END_TEST

START_TEST(the_last_copy_never_becomes_stale)
{
	struct lo_map m = map_on(2, 2);
	uint64_t last;

	/* objects 0 and 1 are mirror 0, 2 and 3 are mirror 1 */
	ck_assert_uint_eq(lo_map_make_stale(&m, 1, &last), 1);
	ck_assert_uint_eq(last, 0);
	ck_assert_uint_eq(lo_map_make_stale(&m, 1 | 4, &last), 0);
	ck_assert_uint_eq(last, 4);
	ck_assert_int_eq(m.lm_obj[0].ob_state, LO_STALE);
	ck_assert_int_eq(m.lm_obj[2].ob_state, LO_IN_SYNC);
	ck_assert_uint_eq(lo_map_make_stale(&m, 2 | 8, &last), 0);
	ck_assert_uint_eq(last, 2 | 8);
	ck_assert_uint_eq(lo_map_make_stale(&m, 8, NULL), 8);
}
END_TEST

START_TEST(a_wait_ends_with_the_lease_of_a_silent_server_and_its_orders_run_before_it_serves)
{
	struct lo_map m = map_on(1, 2);
	struct timespec a, b;

	join_fakes(2);
	on_loop(fake_loop, fake_disconnect, &fakes[0]);
	eventually(alive() == 1);
	order(&m, 600, 0);
	order(&m, 601, 2);
	clock_gettime(CLOCK_MONOTONIC, &a);
	/* The dead server holds a lease: the fence is not complete before that is over, however
	 * short the wait is to be. */
	ck_assert_int_eq(wait_orders(601, 60000), 0);
	clock_gettime(CLOCK_MONOTONIC, &b);
	ck_assert_int_ge((b.tv_sec - a.tv_sec) * 1000 + (b.tv_nsec - a.tv_nsec) / 1000000,
			 LEASE_MS / 2);
	/* Without a lease it fences before it serves; what it has yet to cut is not to be used. */
	ck_assert_uint_eq(lo_objects_with_orders(lo, 601, &m), 0);
	order(&m, 602, 1);
	ck_assert_int_eq(wait_orders(602, 60000), 0);
	ck_assert_uint_eq(lo_objects_with_orders(lo, 602, &m), 1);
	m.lm_obj[0].ob_state = LO_STALE;
	ck_assert_uint_eq(lo_objects_with_orders(lo, 602, &m), 0);
	m.lm_obj[0].ob_state = LO_IN_SYNC;
	on_loop(fake_loop, fake_connect, &fakes[0]);
	eventually(alive() == 2);
	ck_assert(fakes[0].f_orders_before_join);
	/* The fence goes first, though the deletion is older. */
	ck_assert_uint_eq(fakes[0].f_order_types[0], CTL_FENCE);
	eventually(order_rows() == 0);
	ck_assert_uint_eq(lo_objects_with_orders(lo, 602, &m), 0);
}
END_TEST

static int count_version(void *arg, struct kv_slice id, struct kv_slice val)
{
	(void)id;
	++((unsigned *)arg)[*(const uint8_t *)val.s_data];
	return 0;
}

/* A release of before does what it can read, and leaves the rest alone. */
START_TEST(an_order_that_tells_nothing_new_is_of_the_version_of_before)
{
	struct lo_map m = map_on(1, 2);
	unsigned version[256] = {0};
	struct kv_txn *t;

	m.lm_obj[1].ob_known = 1;
	join_fakes(2);
	on_loop(fake_loop, fake_disconnect, &fakes[0]);
	on_loop(fake_loop, fake_disconnect, &fakes[1]);
	eventually(alive() == 0);
	order(&m, 620, 0);
	order(&m, 621, 2);
	order(&m, 622, 5);
	order(&m, 0, 4);
	ck_assert_int_eq(kv_read_begin(kv, &t), 0);
	ck_assert_int_eq(ns_rows(t, NS_T_ORDER, "", 0, count_version, version), 0);
	kv_read_end(t);
	ck_assert_uint_eq(version[1], 7);
	ck_assert_uint_eq(version[2], 1); /* the fence of the one that is known to exist */
}
END_TEST

START_TEST(an_order_tells_whether_its_object_must_be_there)
{
	uint8_t row[32] = {[0] = 1, [1] = CTL_FENCE, [28] = 1};
	struct lo_map m = map_on(1, 2);
	struct order *o;
	uint64_t ino;

	join_fakes(2);
	m.lm_obj[1].ob_known = 1;
	order(&m, 610, 3); /* a fence and a truncation */
	ck_assert_int_eq(wait_orders(610, 60000), 0);
	for (unsigned n = 0; n < 2; n++) {
		ck_assert_uint_eq(fakes[0].f_order_known[n], 0);
		ck_assert_uint_eq(fakes[1].f_order_known[n], CTL_KNOWN);
	}
	/* Rows of before tell nothing of it. */
	o = lo_order_decode(1, 1, (struct kv_slice){row, sizeof(row)}, &ino);
	ck_assert(o && !o->or_known && !o->or_client);
	free(o);
	row[0] = 2;
	o = lo_order_decode(1, 1, (struct kv_slice){row, sizeof(row)}, &ino);
	ck_assert(o && o->or_known && !o->or_client);
	free(o);
	row[0] = 3;
	ck_assert_ptr_null(lo_order_decode(1, 1, (struct kv_slice){row, sizeof(row)}, &ino));
}
END_TEST

START_TEST(a_join_that_is_given_up_and_sent_again_makes_nobody_alive_before_its_orders)
{
	struct lo_map m = map_on(1, 2);

	join_fakes(2);
	on_loop(fake_loop, fake_disconnect, &fakes[0]);
	eventually(alive() == 1);
	order(&m, 600, 2);
	fakes[0].f_hold = true;
	on_loop(fake_loop, fake_connect, &fakes[0]);
	eventually(fakes[0].f_held);
	on_loop(fake_loop, fake_join_again, &fakes[0]);
	nap(300);
	ck_assert_uint_eq(alive(), 1);
	ck_assert(!ds_reg_linked(dsc, 1));
	on_loop(fake_loop, fake_answer_held, &fakes[0]);
	eventually(alive() == 2);
	ck_assert_int_eq(wait_orders(600, 60000), 0);
}
END_TEST

START_TEST(an_answer_that_is_none_is_asked_for_again)
{
	struct lo_map m = map_on(1, 1);

	join_fakes(1);
	fakes[0].f_babble = 1;
	order(&m, 700, 2);
	ck_assert_int_eq(wait_orders(700, 60000), 0);
	ck_assert_uint_eq(fakes[0].f_orders, 1);
}
END_TEST

START_TEST(a_failed_order_is_tried_again_and_holds_back_only_its_object)
{
	struct lo_map m = map_on(1, 1);

	join_fakes(1);
	fakes[0].f_order_status = CTL_IO;
	order(&m, 700, 3);
	ck_assert_int_eq(wait_orders(700, 300), -ETIMEDOUT);
	for (unsigned n = 0; n < fakes[0].f_orders; n++)
		ck_assert_uint_eq(fakes[0].f_order_types[n],
				  CTL_FENCE); /* the truncate waits for the fence */
	fakes[0].f_order_status = CTL_OK;
	order(&m, 701, 1);
	ck_assert_int_eq(wait_orders(701, 60000), 0);
	ck_assert_int_eq(wait_orders(700, 60000), 0);
	eventually(order_rows() == 0);
}
END_TEST

START_TEST(a_stream_of_removals_does_not_hide_that_a_file_has_no_orders)
{
	struct lo_map m = map_on(1, 1);
	bool pending = true;
	uint64_t upto = 0;

	join_fakes(1);
	for (unsigned i = 0; i < 40 && pending; i++) {
		order(&m, 1000 + i, 0);
		pending = lo_order_pending(lo, 700, &m, 0, &upto);
		nap(5);
	}
	ck_assert(!pending);
	fakes[0].f_order_status = CTL_IO;
	order(&m, 700, 2);
	upto = 0;
	ck_assert(lo_order_pending(lo, 700, &m, 0, &upto));
	ck_assert_int_eq(wait_orders(700, 300), -ETIMEDOUT);
	ck_assert(lo_order_pending(lo, 700, &m, 0, &upto));
	fakes[0].f_order_status = CTL_OK;
	ck_assert_int_eq(wait_orders(700, 60000), 0);
	ck_assert(!lo_order_pending(lo, 700, &m, 0, &upto));
}
END_TEST

static bool deletes(uint32_t ds, uint64_t ino)
{
	ctl_object o = {.ino = ino};
	struct kv_txn *t;
	bool yes;

	ck_assert_int_eq(kv_read_begin(kv, &t), 0);
	yes = lo_order_deletes(lo, t, ds, &o);
	kv_read_end(t);
	return yes;
}

START_TEST(what_is_gone_is_known_to_be_deleted_before_that_is_sent)
{
	struct lo_map m = map_on(1, 1);
	uint32_t ds = m.lm_obj[0].ob_ds;
	struct timespec a, b;

	join_fakes(1);
	ck_assert_int_eq(wait_orders(1, 60000), 0); /* what there was is read */
	fakes[0].f_hold = true;			    /* it is done when we say so */
	clock_gettime(CLOCK_MONOTONIC, &a);
	order(&m, 700, 0);
	lo_orders_files_gone(lo);
	ck_assert(deletes(ds, 700));
	ck_assert(!deletes(ds, 701));
	ck_assert(!deletes(ds + 1, 700));
	eventually(fakes[0].f_held);
	clock_gettime(CLOCK_MONOTONIC, &b);
	ck_assert_int_ge((b.tv_sec - a.tv_sec) * 1000 + (b.tv_nsec - a.tv_nsec) / 1000000, 90);
	ck_assert(deletes(ds, 700));
	on_loop(fake_loop, fake_answer_held, &fakes[0]);
	eventually(order_rows() == 0);
	ck_assert(!deletes(ds, 700));
	ck_assert_uint_eq(lo_orders_count(lo), 0);
}
END_TEST

START_TEST(what_nobody_uses_is_not_waited_for)
{
	struct lo_map m = map_on(1, 2), used = m, other = map_on(1, 2);

	join_fakes(2);
	fakes[1].f_order_status = CTL_IO;
	order(&m, 700, 2);
	used.lm_obj[1].ob_state = LO_STALE;
	ck_assert_int_eq(wait_orders_used(700, &used, 60000), 0);
	used.lm_obj[1].ob_state = LO_REBUILDING;
	ck_assert_int_eq(wait_orders_used(700, &used, 300), -ETIMEDOUT);
	other.lm_obj[1].ob_copy = 7;
	ck_assert_int_eq(wait_orders_used(700, &other, 60000), 0);
	ck_assert_int_eq(wait_orders(700, 300), -ETIMEDOUT);
	fakes[1].f_order_status = CTL_OK;
	ck_assert_int_eq(wait_orders(700, 60000), 0);
}
END_TEST

/* Of the first server, which was asked for less than 64. */
static unsigned times_ordered(ctl_order_type type)
{
	unsigned n = 0;

	for (unsigned i = 0; i < fakes[0].f_orders; i++)
		n += fakes[0].f_order_types[i] == type;
	return n;
}

/* What a clone takes is not cut or deleted before it; and its target is not used. */
START_TEST(orders_of_a_source_wait_for_its_clones)
{
	struct lo_map m = map_on(2, 1), other = map_on(2, 1);

	join_fakes(2);
	fakes[0].f_order_status = fakes[1].f_order_status = CTL_IO;
	order(&m, 701, 5);
	ck_assert_int_eq(wait_orders(701, 150), -ETIMEDOUT);
	ck_assert_uint_eq(lo_objects_with_orders(lo, 701, &m), 3);
	order(&m, 700, 1);
	order(&m, 700, 0);
	ck_assert_int_eq(wait_orders(700, 150), -ETIMEDOUT);
	ck_assert_uint_eq(times_ordered(CTL_TRUNCATE), 0);
	ck_assert_uint_eq(times_ordered(CTL_DELETE), 0);
	order(&m, 702, 1); /* another file's do not wait */
	ck_assert_int_eq(wait_orders(702, 100), -ETIMEDOUT);
	eventually(times_ordered(CTL_TRUNCATE) == 1);
	fakes[0].f_order_status = fakes[1].f_order_status = CTL_OK;
	ck_assert_int_eq(wait_orders(700, 60000), 0);
	ck_assert_uint_eq(lo_objects_with_orders(lo, 701, &m), 0);
	ck_assert_uint_lt(fakes[0].f_clone_at, fakes[0].f_cut_at);
	ck_assert_uint_eq(fakes[0].f_clone.from, 4096);
	ck_assert_uint_eq(fakes[0].f_clone.offset, 8192);
	ck_assert_uint_eq(fakes[0].f_clone.size, 100);
	ck_assert_uint_eq(fakes[0].f_clone.source.ino, 700);
	eventually(order_rows() == 0);
	/* A server that has no copy of the source. */
	other.lm_obj[1].ob_ds = m.lm_obj[0].ob_ds;
	ck_assert_int_eq(lo_clone_source(&other, 1, &m, false), -1);
	ck_assert_int_eq(lo_clone_source(&m, 1, &m, false), 1);
	/* Of copies that may differ only the first is one. */
	other = m;
	other.lm_stripes = 1;
	other.lm_mirrors = 2;
	ck_assert_int_eq(lo_clone_source(&other, 1, &other, false), 1);
	ck_assert_int_eq(lo_clone_source(&other, 1, &other, true), -1);
	ck_assert_int_eq(lo_clone_source(&other, 0, &other, true), 0);
	other = m;
	m.lm_obj[1].ob_state = LO_STALE;
	ck_assert_int_eq(lo_clone_source(&other, 0, &m, false), 0);
	ck_assert_int_eq(lo_clone_source(&m, 1, &m, false), -1);
}
END_TEST

START_TEST(many_orders_go_in_batches)
{
	struct lo_map m = map_on(1, 1);

	join_fakes(1);
	on_loop(fake_loop, fake_disconnect, &fakes[0]);
	eventually(!ds_reg_linked(dsc, 1));
	for (unsigned i = 0; i < 1000; i++)
		order(&m, 0x1000000 + i % 50, 1);
	on_loop(fake_loop, fake_connect, &fakes[0]);
	eventually(order_rows() == 0);
	/* Beside fences ahead of those that wait for long. */
	ck_assert_uint_eq(fakes[0].f_cuts, 1000);
}
END_TEST

START_TEST(a_fence_waits_for_no_other_order)
{
	struct lo_map m = map_on(1, 1);

	join_fakes(1);
	fakes[0].f_hold_rest = true;
	order(&m, 710, 1);
	lo_orders_wake(lo);
	eventually(fakes[0].f_held);
	order(&m, 711, 2);
	ck_assert_int_eq(wait_orders(711, 60000), 0);
	order(&m, 0, 4);
	ck_assert_int_eq(wait_orders(0, 60000), 0);
	/* Of the same object: the truncate is not done, and the fence ahead of it is. */
	order(&m, 710, 2);
	lo_orders_wake(lo);
	eventually(fakes[0].f_nobj && fakes[0].f_obj[0].ob_epoch == 8);
	eventually(order_rows() == 1);
	ck_assert_uint_eq(lo_objects_with_orders(lo, 710, &m), 1);
	on_loop(fake_loop, fake_answer_held, &fakes[0]);
	ck_assert_int_eq(wait_orders(710, 60000), 0);
	eventually(order_rows() == 0);
}
END_TEST

START_TEST(a_fence_goes_ahead_of_a_truncate_that_takes_long)
{
	struct lo_map m = map_on(1, 1);

	m.lm_epoch = 12;
	join_fakes(1);
	fakes[0].f_hold_rest = true;
	order(&m, 720, 1);
	lo_orders_wake(lo);
	eventually(fakes[0].f_held);
	eventually(fakes[0].f_nobj && fakes[0].f_obj[0].ob_epoch == 12);
	ck_assert_uint_eq(order_rows(), 1);
	/* What it takes away is taken: the lease goes on, and the wait has an end. */
	ck_assert_int_eq(wait_orders(720, 2 * LEASE_MS), -ETIMEDOUT);
	ck_assert_uint_eq(fakes[0].f_lease_ms, LEASE_MS);
	ck_assert(ds_reg_leased(dsc, 1));
	on_loop(fake_loop, fake_answer_held, &fakes[0]);
	ck_assert_int_eq(wait_orders(720, 60000), 0);
	ck_assert_uint_eq(fakes[0].f_orders, 2);
}
END_TEST

START_TEST(who_does_not_answer_a_fence_loses_its_lease_and_the_wait_ends_with_that)
{
	struct lo_map m = map_on(1, 2);

	join_fakes(2);
	fakes[0].f_hold = true;
	order(&m, 730, 2);
	ck_assert_int_eq(wait_orders(730, 60000), 0);
	ck_assert(!ds_reg_leased(dsc, 1));
	ck_assert(ds_reg_leased(dsc, 2));
	eventually(fakes[0].f_lease_ms == 0 || !fakes[0].f_chan);
	ck_assert_uint_eq(fakes[1].f_lease_ms, LEASE_MS);
	ck_assert_uint_eq(order_rows(), 1);
}
END_TEST

START_TEST(who_answers_that_it_cannot_store_a_fence_keeps_its_lease)
{
	struct lo_map m = map_on(1, 1);

	join_fakes(1);
	fakes[0].f_order_status = CTL_IO;
	order(&m, 740, 2);
	ck_assert_int_eq(wait_orders(740, 2 * LEASE_MS), -ETIMEDOUT);
	ck_assert_uint_eq(fakes[0].f_lease_ms, LEASE_MS);
	fakes[0].f_order_status = CTL_OK;
	ck_assert_int_eq(wait_orders(740, 60000), 0);
}
END_TEST

/* The first order has failed, and may be tried again only later than its timer fires. */
static void put_off(void *arg)
{
	const struct order_queue *oq = lo->l_orders->os_queue[1];
	struct order *o = oq ? oq->oq_list[ORDER_FENCE] : NULL;

	*(bool *)arg = o && o->or_after_ms;
	if (o && o->or_after_ms)
		o->or_after_ms += 1500;
}

START_TEST(a_timer_that_fires_too_early_forgets_no_order)
{
	struct lo_map m = map_on(1, 1);
	bool failed = false;

	join_fakes(1);
	fakes[0].f_order_status = CTL_IO;
	order(&m, 750, 2);
	lo_orders_wake(lo);
	while (!failed)
		on_loop(loops[0], put_off, &failed);
	fakes[0].f_order_status = CTL_OK;
	eventually(order_rows() == 0);
}
END_TEST

/* ---- the store is not held ---- */

static struct store_lease store;

static void hold_ms(uint64_t ms)
{
	store_lease_extend(&store, clock_boot_ns() + ms * 1000000);
}

/* From here on the store is not held. */
static void lose_store(void)
{
	store_lease_init(&store, 0);
	dsc->d_opts.do_store = &store;
}

/* The time of the wait stands still, and goes on when the store is held again. */
START_TEST(the_deadline_of_an_order_stands_still_while_the_store_is_not_held)
{
	struct lo_map m = map_on(1, 1);
	struct waiting w;

	join_fakes(1);
	lose_store();
	fakes[0].f_order_status = CTL_IO;
	order(&m, 760, 2);
	sem_init(&w.w_sem, 0, 0);
	lo_orders_wait(lo, 760, loops[1], LEASE_MS, waited, &w);
	nap(3 * LEASE_MS);
	ck_assert_int_eq(sem_trywait(&w.w_sem), -1);
	hold_ms(600000);
	sem_wait(&w.w_sem);
	ck_assert_int_eq(w.w_err, -ETIMEDOUT);
}
END_TEST

/* A server is not blamed for a fence that it could not confirm meanwhile. Later it is. */
START_TEST(no_lease_is_withheld_for_the_time_in_which_the_store_is_not_held)
{
	struct lo_map m = map_on(1, 1);

	join_fakes(1);
	lose_store();
	fakes[0].f_hold = true;
	order(&m, 770, 2);
	lo_orders_wake(lo);
	eventually(fakes[0].f_held);
	nap(3 * LEASE_MS);
	ck_assert_uint_eq(fakes[0].f_lease_ms, LEASE_MS);
	hold_ms(600000);
	eventually(fakes[0].f_lease_ms == 0);
}
END_TEST

/* Of the first server, as if it had joined by this protocol. */
static void speaks(uint8_t protocol)
{
	struct ds_reg_node *nd;

	pthread_mutex_lock(&dsc->d_lock);
	nd = dsc->d_node[1];
	nd->nd_sv.sv_protocol = protocol;
	ds_reg_unlock(dsc, nd);
}

START_TEST(nothing_overtakes_at_a_server_of_a_protocol_that_skips_number_0)
{
	struct lo_map m = map_on(1, 1);

	m.lm_epoch = 12;
	join_fakes(1);
	speaks(CTL_PROTOCOL_OVERTAKE - 1);
	fakes[0].f_hold_rest = true;
	order(&m, 750, 1);
	lo_orders_wake(lo);
	eventually(fakes[0].f_held);
	order(&m, 750, 2);
	ck_assert_int_eq(wait_orders(751, 60000), 0);
	lo_orders_wake(lo);
	/* It is busy before the fence for longer than a lease, and keeps that. */
	nap(3 * LEASE_MS);
	ck_assert_uint_eq(fakes[0].f_orders, 0);
	ck_assert_uint_eq(fakes[0].f_lease_ms, LEASE_MS);
	ck_assert(ds_reg_leased(dsc, 1));
	on_loop(fake_loop, fake_answer_held, &fakes[0]);
	ck_assert_int_eq(wait_orders(750, 60000), 0);
	eventually(order_rows() == 0);
	ck_assert_uint_eq(fakes[0].f_orders, 2);
	ck_assert_uint_eq(fakes[0].f_order_types[0], CTL_TRUNCATE);
	ck_assert_uint_eq(fakes[0].f_order_types[1], CTL_FENCE);
}
END_TEST

START_TEST(a_server_that_joins_is_told_a_failed_fence_again_before_it_serves)
{
	struct lo_map m = map_on(1, 2);
	unsigned told;

	join_fakes(2);
	fakes[0].f_order_status = CTL_IO;
	order(&m, 760, 2);
	lo_orders_wake(lo);
	eventually(fakes[0].f_orders);
	on_loop(fake_loop, fake_disconnect, &fakes[0]);
	eventually(alive() == 1);
	told = fakes[0].f_orders;
	fakes[0].f_order_status = CTL_OK;
	fakes[0].f_hold = true;
	fakes[0].f_held = NULL;
	on_loop(fake_loop, fake_connect, &fakes[0]);
	eventually(fakes[0].f_held);
	ck_assert_uint_eq(alive(), 1);
	on_loop(fake_loop, fake_answer_held, &fakes[0]);
	eventually(alive() == 2);
	ck_assert_uint_eq(fakes[0].f_orders, told + 1);
	ck_assert(fakes[0].f_orders_before_join);
}
END_TEST

/* For tests that count calls: a late heartbeat would have orders sent again. */
static void patient_setup(void)
{
	lease_ms = 60000;
	setup();
}

/* The list of orders */

enum { LISTED = 300, SLOTS = 8192 };

struct met {
	unsigned m_times[LISTED + 1]; /* by number */
	unsigned m_step;
};

static void on_met(void *arg, const struct order *o)
{
	struct met *m = arg;

	m->m_step++;
	if (o->or_number <= LISTED)
		m->m_times[o->or_number]++;
}

static void list_file(struct lo_orders *os, uint64_t ino, struct order_file *of, struct order *o,
		      uint64_t number)
{
	*of = (struct order_file){.of_ino = ino, .of_orders = o};
	if (o)
		*o = (struct order){.or_number = number, .or_ds = 1 + number % 2, .or_file = of};
	ck_assert_int_eq(hash_add(&os->os_files, &of->of_link, hash_u64(ino)), 0);
}

/* A table with many empty slots, and LISTED orders in it. */
static struct lo_orders *sparse_orders(struct order_file *of, struct order *o)
{
	struct lo_orders *os = calloc(1, sizeof(*os));

	ck_assert_ptr_nonnull(os);
	pthread_mutex_init(&os->os_lock, NULL);
	for (unsigned i = 0; i < SLOTS; i++)
		list_file(os, 1000 + i, &of[i], NULL, 0);
	for (unsigned i = 0; i < SLOTS; i++)
		hash_del(&os->os_files, &of[i].of_link);
	for (unsigned i = 0; i < LISTED; i++)
		list_file(os, 1000 + i, &of[i], &o[i], 1 + i);
	atomic_store(&os->os_count, LISTED);
	return os;
}

START_TEST(a_list_is_made_in_steps_while_the_table_grows)
{
	struct order_file *of = calloc(4 * SLOTS, sizeof(*of));
	struct order *o = calloc(4 * SLOTS, sizeof(*o));
	struct lo_orders *os = sparse_orders(of, o);
	struct met m = {.m_step = 0};
	struct order_walk w = {.wk_fn = on_met, .wk_arg = &m};
	uint32_t size = os->os_files.h_size;
	unsigned steps = 1;

	ck_assert_uint_ge(size, SLOTS);
	while (lo_order_walk(os, &w)) {
		ck_assert_uint_le(m.m_step, ORDER_STEP);
		m.m_step = 0;
		/* In the middle the table doubles, twice. */
		for (unsigned i = SLOTS; steps == 3 && i < 4 * SLOTS; i++)
			list_file(os, 100000 + i, &of[i], &o[i], 100000 + i);
		steps++;
	}
	ck_assert_uint_ge(steps, SLOTS / ORDER_STEP);
	ck_assert_uint_ge(os->os_files.h_size, 4 * size);
	for (unsigned i = 1; i <= LISTED; i++)
		ck_assert_msg(m.m_times[i] == 1, "order %u: %u times", i, m.m_times[i]);
	free(os->os_files.h_slot);
	free(os);
	free(of);
	free(o);
}
END_TEST

START_TEST(a_list_has_the_orders_of_a_server_the_oldest_first)
{
	struct order_file *of = calloc(SLOTS, sizeof(*of));
	struct order *o = calloc(SLOTS, sizeof(*o));
	struct lo_orders *os = sparse_orders(of, o);
	struct ds_reg *none = calloc(1, sizeof(*none));
	struct lo with = {.l_orders = os, .l_dsc = none};
	struct lo_order_view *v;

	for (unsigned i = 0; i < LISTED; i++)
		o[i].or_since_ms = i == 7 ? 0 : clock_mono_ms();
	ck_assert_int_eq(lo_orders_list(&with, 0, SLOTS, &v), LISTED);
	ck_assert_uint_eq(v[0].ov_number, 8);
	free(v);
	ck_assert_int_eq(lo_orders_list(&with, 2, SLOTS, &v), LISTED / 2);
	for (unsigned i = 0; i < LISTED / 2; i++)
		ck_assert_uint_eq(v[i].ov_ds, 2);
	free(v);
	ck_assert_int_eq(lo_orders_list(&with, 0, 5, &v), 5);
	ck_assert_uint_eq(v[0].ov_number, 8);
	free(v);
	free(none);
	free(os->os_files.h_slot);
	free(os);
	free(of);
	free(o);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("lo_order");
	TCase *live = tcase_create("live"), *patient = tcase_create("patient"),
	      *list = tcase_create("list");

	tcase_add_checked_fixture(live, setup, teardown);
	tcase_set_timeout(live, 60);
	tcase_add_test(live, orders_reach_every_object_and_their_rows_go);
	tcase_add_test(
		live,
		a_wait_ends_with_the_lease_of_a_silent_server_and_its_orders_run_before_it_serves);
	tcase_add_test(live, the_last_copy_never_becomes_stale);
	tcase_add_test(live, a_failed_order_is_tried_again_and_holds_back_only_its_object);
	tcase_add_test(live, an_order_tells_whether_its_object_must_be_there);
	tcase_add_test(live, an_order_that_tells_nothing_new_is_of_the_version_of_before);
	tcase_add_test(live,
		       a_join_that_is_given_up_and_sent_again_makes_nobody_alive_before_its_orders);
	tcase_add_test(live, an_answer_that_is_none_is_asked_for_again);
	tcase_add_test(live, what_nobody_uses_is_not_waited_for);
	tcase_add_test(live, what_is_gone_is_known_to_be_deleted_before_that_is_sent);
	tcase_add_test(live, a_stream_of_removals_does_not_hide_that_a_file_has_no_orders);
	tcase_add_test(live, orders_of_a_source_wait_for_its_clones);
	tcase_add_test(live, a_fence_waits_for_no_other_order);
	tcase_add_test(live, a_fence_goes_ahead_of_a_truncate_that_takes_long);
	tcase_add_test(live,
		       who_does_not_answer_a_fence_loses_its_lease_and_the_wait_ends_with_that);
	tcase_add_test(live, who_answers_that_it_cannot_store_a_fence_keeps_its_lease);
	tcase_add_test(live, a_timer_that_fires_too_early_forgets_no_order);
	tcase_add_test(live, the_deadline_of_an_order_stands_still_while_the_store_is_not_held);
	tcase_add_test(live, no_lease_is_withheld_for_the_time_in_which_the_store_is_not_held);
	tcase_add_test(live, nothing_overtakes_at_a_server_of_a_protocol_that_skips_number_0);
	tcase_add_test(live, a_server_that_joins_is_told_a_failed_fence_again_before_it_serves);
	suite_add_tcase(s, live);
	tcase_add_checked_fixture(patient, patient_setup, teardown);
	tcase_set_timeout(patient, 60);
	tcase_add_test(patient, many_orders_go_in_batches);
	suite_add_tcase(s, patient);
	tcase_add_test(list, a_list_is_made_in_steps_while_the_table_grows);
	tcase_add_test(list, a_list_has_the_orders_of_a_server_the_oldest_first);
	suite_add_tcase(s, list);
	return unit_run(s);
}
