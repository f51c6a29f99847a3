/* SPDX-License-Identifier: Apache-2.0 */
/* repair_test.c - copies that are not in sync: what becomes of states, what layouts and writes
 * name, the table of repairs, and where an object is made again. */
#pragma GCC diagnostic ignored "-Wunused-function" /* lo_fake.h has more than this test needs */
#include "base/clock.h"
#include "mds/dataserver/ds_reg_int.h"
#include "mds/layout/repair_row.h"
#include "tests/unit/lo_layout.h"
#include "tests/unit/unit.h"

#define SYNC  LO_IN_SYNC
#define STALE LO_STALE
#define AGAIN LO_REBUILDING

static struct lo_map states(unsigned stripes, unsigned mirrors, const uint8_t *state)
{
	struct lo_map m = map_on(stripes, mirrors);

	m.lm_next = (uint8_t)mirrors;
	for (unsigned i = 0; i < stripes * mirrors; i++)
		m.lm_obj[i].ob_state = state[i];
	return m;
}

/* ---- maps ---- */

START_TEST(a_map_of_before_has_its_mirrors_as_copy_numbers)
{
	/* Version 1: 2 stripes, 2 mirrors, unit 1 MiB, epoch 7. */
	uint8_t rec[8 + 4 * 16] = {1, 2, 2, 20, 7};
	struct lo_map m;

	for (unsigned i = 0; i < 4; i++)
		rec[8 + 16 * i] = (uint8_t)(i + 1);
	ck_assert_int_eq(lo_map_decode((struct kv_slice){rec, sizeof(rec)}, &m), 0);
	for (unsigned i = 0; i < 4; i++)
		ck_assert_uint_eq(m.lm_obj[i].ob_copy, i / 2);
	ck_assert_uint_eq(m.lm_next, 2);
	rec[8 + 6] = 1; /* was zero then */
	ck_assert_int_eq(lo_map_decode((struct kv_slice){rec, sizeof(rec)}, &m), -EIO);
	/* Now it says so itself. */
	rec[0] = 2;
	ck_assert_int_eq(lo_map_decode((struct kv_slice){rec, sizeof(rec)}, &m), 0);
	ck_assert_uint_eq(m.lm_obj[0].ob_copy, 1);
	rec[8 + 16 + 7] = 1; /* the next number is in the first object only */
	ck_assert_int_eq(lo_map_decode((struct kv_slice){rec, sizeof(rec)}, &m), -EIO);
}
END_TEST

START_TEST(copy_numbers_rise_go_round_and_are_never_another_copys)
{
	static const uint8_t all[6];
	struct lo_map m = states(2, 3, all);

	ck_assert_uint_eq(lo_map_new_copy(&m, 1), 3);
	ck_assert_uint_eq(lo_map_new_copy(&m, 0), 4);
	m.lm_next = 255;
	ck_assert_uint_eq(lo_map_new_copy(&m, 0), 255);
	/* 0, 1 and 2 are there. */
	ck_assert_uint_eq(lo_map_new_copy(&m, 0), 3);
	ck_assert_uint_eq(m.lm_next, 4);
	m.lm_obj[1].ob_copy = 4; /* of stripe 1 */
	ck_assert_uint_eq(lo_map_new_copy(&m, 0), 4);
	m.lm_next = 4;
	ck_assert_uint_eq(lo_map_new_copy(&m, 1), 5);
}
END_TEST

START_TEST(what_is_being_rebuilt_becomes_stale_with_its_own_failure_and_with_its_sources)
{
	struct lo_map m = states(1, 3, (uint8_t[]){SYNC, AGAIN, SYNC});
	uint64_t last;

	ck_assert_uint_eq(lo_map_make_stale(&m, 2, &last), 2);
	ck_assert_uint_eq(last, 0);
	ck_assert_int_eq(m.lm_obj[1].ob_state, STALE);
	/* One in sync is left: the other one's failure is none of the rebuilt one's. */
	m = states(1, 3, (uint8_t[]){SYNC, AGAIN, SYNC});
	ck_assert_uint_eq(lo_map_make_stale(&m, 1, &last), 1);
	ck_assert_int_eq(m.lm_obj[1].ob_state, AGAIN);
	/* The last in sync fails: it stays, and what may hold more than it does goes. */
	ck_assert_uint_eq(lo_map_make_stale(&m, 4, &last), 2);
	ck_assert_uint_eq(last, 4);
	ck_assert_int_eq(m.lm_obj[2].ob_state, SYNC);
	ck_assert_int_eq(m.lm_obj[1].ob_state, STALE);
}
END_TEST

START_TEST(of_copies_that_may_differ_one_is_believed_a_living_one_where_there_is_one)
{
	struct lo_map m = states(2, 3, (uint8_t[]){SYNC, SYNC, SYNC, SYNC, AGAIN, STALE});

	/* Stripe 1 only; its object 1 does not live, 3 does. */
	ck_assert_uint_eq(lo_map_suspect(&m, 2, 1u << 3 | 1u << 4), 1u << 1);
	ck_assert_int_eq(m.lm_obj[3].ob_state, SYNC);
	ck_assert_int_eq(m.lm_obj[0].ob_state, SYNC);
	ck_assert_int_eq(m.lm_obj[4].ob_state, AGAIN);
	/* None lives: one is kept all the same. */
	ck_assert_uint_eq(lo_map_suspect(&m, 1, 0), 1u << 2 | 1u << 4);
	ck_assert_int_eq(m.lm_obj[0].ob_state, SYNC);
	ck_assert_uint_eq(lo_map_suspect(&m, 3, 0), 0);
}
END_TEST

START_TEST(a_write_is_for_all_in_sync_or_being_rebuilt_and_one_in_sync_must_take_it)
{
	struct lo_map m = states(1, 3, (uint8_t[]){AGAIN, SYNC, STALE});
	int errs[LO_MAX_OBJECTS] = {-EIO, -ENOSPC};

	ck_assert_uint_eq(lo_writers(&m), 3);
	ck_assert_int_eq(lo_writer(&m, 0, 0), 1);
	ck_assert_int_eq(lo_writer(&m, 0, 1), 0);
	ck_assert_int_eq(lo_writer(&m, 0, 2), -1);
	ck_assert_int_eq(lo_copies_err(&m, 3, 1, false, errs), 0);
	ck_assert_int_eq(lo_copies_err(&m, 3, 2, false, errs), -ENOSPC);
	/* A fence is no fault of any copy; a copy that denies what is not fenced has failed. */
	errs[0] = -EACCES;
	ck_assert_int_eq(lo_copies_err(&m, 3, 1, false, errs), -EACCES);
	ck_assert_int_eq(lo_copies_err(&m, 3, 1, true, errs), 0);
	errs[1] = -EACCES;
	ck_assert_int_eq(lo_copies_err(&m, 3, 3, true, errs), -EACCES);
	errs[0] = -ENOBUFS; /* its handle cannot be read here: no copy is to blame */
	ck_assert_int_eq(lo_copies_err(&m, 3, 1, false, errs), -ETIMEDOUT);
	ck_assert_int_eq(lo_copies_err(&m, 3, 1, true, errs), -ETIMEDOUT);
	ck_assert_int_eq(lo_object_of(&m, m.lm_obj[1].ob_ds, 0, 1), 1);
	ck_assert_int_eq(lo_object_of(&m, m.lm_obj[1].ob_ds, 0, 0), -1);
	ck_assert_int_eq(lo_object_of(&m, m.lm_obj[1].ob_ds, 1, 1), -1);
}
END_TEST

/* ---- layouts ---- */

START_TEST(write_layouts_name_what_is_being_rebuilt_for_writing_only_and_last)
{
	struct lo_map m = states(2, 3, (uint8_t[]){SYNC, SYNC, AGAIN, SYNC, STALE, SYNC});
	struct ns_inode i = {.i_ino = 78, .i_type = NS_REG};
	struct entry e[16];
	struct xdr_out x;
	unsigned odd = 0;
	uint64_t unit;

	join_fakes(4);
	xdr_out_init(&x, 100000);
	ck_assert_int_eq(lo_encode_layout(lo, &i, &m, true, true,
					  &(struct lo_reader){1, NULL, false}, 5, &x),
			 0);
	/* Stripe 0: copy 0, being rebuilt 1, and its copy in sync again; stripe 1: all three, as
	 * this client should read them. */
	ck_assert_uint_eq(take_layout(&x, &unit, 2, e), 3);
	for (unsigned k = 0; k < 6; k++) {
		static const unsigned copy[] = {0, 0, 1, 0, 0, 0};

		if (k % 2)
			odd |= 1u << e[k].e_cap.cp_obj.co_copy;
		else
			ck_assert_uint_eq(e[k].e_cap.cp_obj.co_copy, copy[k]);
		ck_assert_uint_eq(e[k].e_cap.cp_rights,
				  (unsigned)(CAP_WRITE | CAP_STRIPED | (k == 2 ? 0 : CAP_READ)));
	}
	ck_assert_uint_eq(odd, 7);
	/* Who reads by that row gets nothing: it is the last that anybody tries. */
	ck_assert_uint_eq(e[2].e_eff + e[3].e_eff, 0);
	ck_assert_uint_gt(e[0].e_eff, 0);
	ck_assert_uint_gt(e[4].e_eff, 0);
	xdr_truncate(&x, 0);
	ck_assert_int_eq(lo_encode_layout(lo, &i, &m, true, false,
					  &(struct lo_reader){1, NULL, false}, 5, &x),
			 0);
	ck_assert_uint_eq(take_layout(&x, &unit, 2, e), 3);
	for (unsigned k = 0; k < 6; k++)
		ck_assert(k % 2 || e[k].e_cap.cp_obj.co_copy == 0);
	xdr_truncate(&x, 0);
	/* Only being rebuilt is not in sync. */
	m.lm_obj[0].ob_state = STALE;
	ck_assert_int_eq(lo_encode_layout(lo, &i, &m, true, true,
					  &(struct lo_reader){1, NULL, false}, 5, &x),
			 -EAGAIN);
	xdr_out_free(&x);
}
END_TEST

/* ---- the table ---- */

struct row_job {
	struct kv_op op;
	sem_t done;
	int (*fn)(struct kv_txn *t);
	int err;
};

static int row_run(struct kv_op *op, struct kv_txn *t)
{
	return caa_container_of(op, struct row_job, op)->fn(t);
}

static void row_done(struct kv_op *op, int err)
{
	struct row_job *j = caa_container_of(op, struct row_job, op);

	j->err = err;
	sem_post(&j->done);
}

static int mutate(int (*fn)(struct kv_txn *t))
{
	struct row_job j = {.op = {.o_run = row_run, .o_done = row_done}, .fn = fn};

	sem_init(&j.done, 0, 0);
	kv_submit(kv, &j.op);
	sem_wait(&j.done);
	sem_destroy(&j.done);
	return j.err;
}

static const struct lo_repair full_row = {.rr_session = 77,
					  .rr_done = 5ull << 30,
					  .rr_after = 123,
					  .rr_bad = 3,
					  .rr_object = 43,
					  .rr_fails = 9,
					  .rr_why = LO_REPAIR_FULL,
					  .rr_now = true,
					  .rr_asked = LO_REPAIR_ASKED_ADD,
					  .rr_number = 255,
					  .rr_begun_s = 1700000000};

static bool same_row(const struct lo_repair *a, const struct lo_repair *b)
{
	return a->rr_session == b->rr_session && a->rr_done == b->rr_done &&
	       a->rr_after == b->rr_after && a->rr_bad == b->rr_bad &&
	       a->rr_object == b->rr_object && a->rr_fails == b->rr_fails &&
	       a->rr_why == b->rr_why && a->rr_now == b->rr_now &&
	       a->rr_cancelled == b->rr_cancelled && a->rr_asked == b->rr_asked &&
	       a->rr_number == b->rr_number && a->rr_begun_s == b->rr_begun_s;
}

static int put_rows(struct kv_txn *t)
{
	struct lo_map whole = map_on(1, 2), stale = whole;
	int err = lo_repair_put(t, 5, &full_row);

	stale.lm_obj[1].ob_state = STALE;
	err = err ? err : lo_repair_note(t, 6, &whole);
	err = err ? err : lo_repair_note(t, 7, &stale);
	err = err ? err : lo_repair_note(t, 5, &stale); /* keeps what is there */
	return err ? err : lo_lost_writers_put(t);
}

static int del_rows(struct kv_txn *t)
{
	return lo_repair_del(t, 5) || lo_lost_writers_del(t);
}

struct rows {
	unsigned n;
	uint64_t ino[8];
};

static int note_row(void *arg, uint64_t ino, const struct lo_repair *rr)
{
	struct rows *r = arg;

	(void)rr;
	r->ino[r->n++] = ino;
	return 0;
}

START_TEST(a_file_that_is_not_whole_has_a_row_and_the_lost_have_one)
{
	struct lo_repair rr;
	struct rows r = {0};
	struct kv_txn *t;

	ck_assert_int_eq(mutate(put_rows), 0);
	ck_assert_int_eq(kv_read_begin(kv, &t), 0);
	ck_assert_int_eq(lo_repair_get(t, 5, &rr), 0);
	ck_assert(same_row(&rr, &full_row));
	ck_assert_int_eq(lo_repair_get(t, 6, &rr), -ENOENT);
	ck_assert_int_eq(lo_repair_get(t, 7, &rr), 0);
	ck_assert_uint_eq(rr.rr_session | rr.rr_after | rr.rr_fails, 0);
	ck_assert(lo_lost_writers_get(t));
	ck_assert_int_eq(lo_repairs(t, 0, note_row, &r), 0);
	ck_assert_uint_eq(r.n, 2);
	ck_assert_uint_eq(r.ino[0], 5);
	ck_assert_uint_eq(r.ino[1], 7);
	kv_read_end(t);
	ck_assert_int_eq(mutate(del_rows), 0);
	ck_assert_int_eq(kv_read_begin(kv, &t), 0);
	ck_assert_int_eq(lo_repair_get(t, 5, &rr), -ENOENT);
	ck_assert(!lo_lost_writers_get(t));
	kv_read_end(t);
}
END_TEST

START_TEST(a_failure_is_tried_again_later_and_later)
{
	struct lo_repair rr = {.rr_session = 1, .rr_done = 2};
	uint64_t before = 0;

	for (unsigned i = 0; i < 300; i++) {
		lo_repair_failed(&rr, LO_REPAIR_TARGET, 1000);
		ck_assert_uint_gt(rr.rr_after, 1000);
		ck_assert_uint_ge(rr.rr_after, before);
		ck_assert_uint_le(rr.rr_after, 1300);
		before = rr.rr_after;
	}
	ck_assert_uint_eq(rr.rr_after, 1300);
	ck_assert_uint_eq(rr.rr_fails, 255);
	ck_assert_uint_eq(rr.rr_session | rr.rr_done, 0);
}
END_TEST

START_TEST(one_that_fails_does_not_keep_the_others_from_their_turn)
{
	struct lo_repair rr = {.rr_object = 2};

	ck_assert_uint_eq(lo_repair_first(&rr), 0);
	lo_repair_failed(&rr, LO_REPAIR_TARGET, 1000);
	lo_repair_of(&rr, 2);
	rr.rr_bad = 7;
	ck_assert_uint_eq(lo_repair_first(&rr), 2); /* elsewhere */
	lo_repair_failed(&rr, LO_REPAIR_TARGET, 1000);
	lo_repair_of(&rr, 2);
	ck_assert_uint_eq(rr.rr_bad, 7);
	ck_assert_uint_eq(lo_repair_first(&rr), 3);
	lo_repair_failed(&rr, LO_REPAIR_BUSY, 1000);
	ck_assert_uint_eq(lo_repair_waits(&rr, 1000), rr.rr_after - 1000);
	ck_assert_uint_eq(lo_repair_waits(&rr, rr.rr_after), 0);
	ck_assert_uint_eq(lo_repair_waits(&rr, 10), 0); /* the clock was put back */
	lo_repair_of(&rr, 3);
	ck_assert_uint_eq(rr.rr_bad, 0); /* it failed with the other one */
	ck_assert_uint_eq(lo_repair_first(&rr), 4);
}
END_TEST

/* ---- where ---- */

START_TEST(an_object_is_repaired_in_place_and_elsewhere_when_its_server_stays_away)
{
	struct lo_map m = map_on(1, 2); /* on 1 and 2 */
	struct lo_repair rr = {0};
	uint64_t left;
	uint32_t ds;

	join_fakes(4);
	m.lm_obj[0].ob_state = STALE;
	ck_assert_int_eq(lo_repair_where(lo, &m, 0, &rr, 60000, &ds, &left), LO_IN_PLACE);
	ck_assert_uint_eq(ds, 1);
	ck_assert_int_eq(lo_repair_source(lo, &m, 0, 0), 1);
	/* It lives and fails. */
	rr.rr_bad = 1;
	for (unsigned i = 0; i < 20; i++) {
		ck_assert_int_eq(lo_repair_where(lo, &m, 0, &rr, 60000, &ds, &left), LO_ELSEWHERE);
		ck_assert(ds == 3 || ds == 4);
	}
	rr.rr_object = 1; /* with another object: that says nothing of this one */
	ck_assert_int_eq(lo_repair_where(lo, &m, 0, &rr, 60000, &ds, &left), LO_IN_PLACE);
	rr.rr_object = 0;
	rr.rr_bad = 0;
	on_loop(fake_loop, fake_disconnect, &fakes[0]);
	eventually(alive() == 3);
	ck_assert_int_eq(lo_repair_where(lo, &m, 0, &rr, 60000, &ds, &left), LO_WAIT_SERVER);
	ck_assert_uint_gt(left, 50000);
	ck_assert_uint_eq(ds, 1);
	nap(20);
	ck_assert_int_eq(lo_repair_where(lo, &m, 0, &rr, 1, &ds, &left), LO_ELSEWHERE);
	/* The administrator does not wait. */
	rr.rr_now = true;
	ck_assert_int_eq(lo_repair_where(lo, &m, 0, &rr, 60000, &ds, &left), LO_ELSEWHERE);
	ck_assert(ds == 3 || ds == 4);
	/* Nowhere: the others hold a copy. */
	m = map_on(1, 4);
	m.lm_obj[0].ob_state = STALE;
	ck_assert_int_eq(lo_repair_where(lo, &m, 0, &rr, 60000, &ds, &left), LO_WAIT_SPACE);
	/* And from what? */
	m = map_on(1, 2);
	m.lm_obj[1].ob_state = STALE;
	ck_assert_int_eq(lo_repair_where(lo, &m, 1, &rr, 60000, &ds, &left), LO_WAIT_SOURCE);
	ck_assert_int_eq(lo_repair_source(lo, &m, 1, 0), -1);
}
END_TEST

START_TEST(a_fence_hangs_where_a_server_with_a_lease_does_not_hear_its_orders)
{
	struct lo_map m = map_on(1, 2);

	join_fakes(2);
	ck_assert(!lo_fence_hangs(lo, &m));
	/* Clients do not reach it, and it does its orders. */
	pthread_mutex_lock(&dsc->d_lock);
	dsc->d_node[1]->nd_state = DS_REG_DEAD;
	dsc->d_node[1]->nd_unserving = true;
	dsc->d_node[1]->nd_reported_ms = clock_mono_ms();
	pthread_mutex_unlock(&dsc->d_lock);
	ck_assert(!lo_fence_hangs(lo, &m));
	on_loop(fake_loop, fake_disconnect, &fakes[0]);
	eventually(!ds_reg_linked(dsc, 1));
	ck_assert(ds_reg_leased(dsc, 1));
	ck_assert(lo_fence_hangs(lo, &m));
	m.lm_obj[0].ob_state = STALE;
	ck_assert(!lo_fence_hangs(lo, &m));
}
END_TEST

int main(void)
{
	Suite *s = suite_create("repair");
	TCase *plain = tcase_create("plain"), *live = tcase_create("live");

	tcase_add_test(plain, a_map_of_before_has_its_mirrors_as_copy_numbers);
	tcase_add_test(plain, copy_numbers_rise_go_round_and_are_never_another_copys);
	tcase_add_test(
		plain,
		what_is_being_rebuilt_becomes_stale_with_its_own_failure_and_with_its_sources);
	tcase_add_test(plain,
		       of_copies_that_may_differ_one_is_believed_a_living_one_where_there_is_one);
	tcase_add_test(plain,
		       a_write_is_for_all_in_sync_or_being_rebuilt_and_one_in_sync_must_take_it);
	tcase_add_test(plain, a_failure_is_tried_again_later_and_later);
	tcase_add_test(plain, one_that_fails_does_not_keep_the_others_from_their_turn);
	tcase_add_checked_fixture(live, setup, teardown);
	tcase_add_test(live, write_layouts_name_what_is_being_rebuilt_for_writing_only_and_last);
	tcase_add_test(live, a_file_that_is_not_whole_has_a_row_and_the_lost_have_one);
	tcase_add_test(live,
		       an_object_is_repaired_in_place_and_elsewhere_when_its_server_stays_away);
	tcase_add_test(live, a_fence_hangs_where_a_server_with_a_lease_does_not_hear_its_orders);
	suite_add_tcase(s, plain);
	suite_add_tcase(s, live);
	return unit_run(s);
}
