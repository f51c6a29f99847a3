/* SPDX-License-Identifier: Apache-2.0 */
/* scrub_test.c - what a scrub keeps in the store, and how it judges what data servers answer. */
#include "base/clock.h"
#include "mds/jobs/job.h"
#include "mds/jobs/scrub_int.h"
#include "tests/unit/scratch.h"
#include "tests/unit/unit.h"
#include <errno.h>
#include <stdlib.h>

static char dir[256];
static struct kv *kv;
static struct ns *ns;

static void begin(void)
{
	struct kv_opts o = {.ko_create = true, .ko_nosync = true, .ko_map_max = 1ull << 28};
	char err[512];

	ck_assert_msg(!kv_open(&kv, dir, &o, err, sizeof(err)), "%s", err);
	ck_assert_msg(!ns_open(&ns, kv, err, sizeof(err)), "%s", err);
}

static void end(void)
{
	ns_close(ns);
	kv_close(kv);
}

static void setup(void)
{
	ck_assert(scratch_make(dir, sizeof(dir), "scrub_test"));
	begin();
}

static void teardown(void)
{
	end();
	scratch_remove(dir);
}

static void write_in(int (*fn)(void *arg, struct kv_txn *t), void *arg)
{
	ck_assert_int_eq(kv_run_sync(kv, fn, arg), 0);
}

static struct kv_txn *reading(void)
{
	struct kv_txn *t;

	ck_assert_int_eq(kv_read_begin(kv, &t), 0);
	return t;
}

/* ---- rows ---- */

static int put_state(void *arg, struct kv_txn *t)
{
	return scrub_state_put(t, arg);
}

START_TEST(the_state_is_read_as_it_was_written)
{
	static struct job_scrub_state s = {.ss_number = 7,
					   .ss_began_s = 1,
					   .ss_ended_s = 2,
					   .ss_objects = 3,
					   .ss_files = 4,
					   .ss_bytes = 5,
					   .ss_busy = 6,
					   .ss_skipped = 8,
					   .ss_degraded = 9,
					   .ss_removed = 10,
					   .ss_stale = 11,
					   .ss_kept = 12,
					   .ss_ino = 13,
					   .ss_firsts = 14,
					   .ss_ds = DS_REG_MAX + 1,
					   .ss_phase = JOB_SCRUB_CONTENT,
					   .ss_running = true,
					   .ss_content = true,
					   .ss_old = true,
					   .ss_ncookie = 64},
				      got;
	struct kv_txn *t = reading();

	ck_assert_int_eq(scrub_state_get(t, &got), -ENOENT);
	kv_read_end(t);
	memset(s.ss_cookie, 0xa5, sizeof(s.ss_cookie));
	for (unsigned k = 1; k < JOB_SCRUB_KINDS; k++)
		s.ss_counts[k] = 100 + k;
	write_in(put_state, &s);
	end();
	begin();
	t = reading();
	ck_assert_int_eq(scrub_state_get(t, &got), 0);
	kv_read_end(t);
	ck_assert_mem_eq(&got, &s, sizeof(s));
}
END_TEST

static int put_bad(void *arg, struct kv_txn *t)
{
	uint8_t key = 0, val[288] = {1};
	unsigned at = *(unsigned *)arg;

	val[at] = 0xff;
	return ns_row_put(t, NS_T_SCRUB, &key, 1, val, sizeof(val));
}

START_TEST(a_damaged_state_is_refused)
{
	/* version, flags, phase, length of the cookie, server */
	for (unsigned at = 0; at < 5; at++) {
		unsigned where = at == 4 ? 6 : at;
		struct job_scrub_state got;
		struct kv_txn *t;

		write_in(put_bad, &where);
		t = reading();
		ck_assert_int_eq(scrub_state_get(t, &got), -EIO);
		kv_read_end(t);
		ck_assert(!got.ss_running);
	}
}
END_TEST

static int put_many(void *arg, struct kv_txn *t)
{
	struct job_scrub_state *s = arg;
	int err = 0;

	for (unsigned k = 0; k < JOB_SCRUB_KEPT + 5 && !err; k++)
		err = scrub_found_put(
			t, s,
			&(struct job_scrub_found){
				.sf_kind = k % 2 ? JOB_SCRUB_ORPHAN : JOB_SCRUB_MISSING,
				.sf_done = k % 2 ? JOB_SCRUB_REMOVED : JOB_SCRUB_STALE,
				.sf_ds = 3,
				.sf_ino = k,
				.sf_incarnation = 257,
				.sf_stripe = 4,
				.sf_copy = 200,
				.sf_size = 1ull << 40,
				.sf_want = 9});
	for (unsigned k = 0; k < 10 && !err; k++)
		err = scrub_first_put(t, s,
				      &(struct scrub_first){.fi_ds = 1 + k / 6,
							    .fi_object = {.ino = 5,
									  .fs = 1,
									  .incarnation = 1,
									  .stripe = k,
									  .mirror = 255},
							    .fi_size = k});
	return err;
}

static int see(void *arg, const struct job_scrub_found *f)
{
	unsigned *n = arg;

	ck_assert_uint_eq(f->sf_ino, *n);
	ck_assert_int_eq(f->sf_kind, *n % 2 ? JOB_SCRUB_ORPHAN : JOB_SCRUB_MISSING);
	ck_assert(f->sf_ds == 3 && f->sf_incarnation == 257 && f->sf_stripe == 4 &&
		  f->sf_copy == 200 && f->sf_size == 1ull << 40 && f->sf_want == 9);
	++*n;
	return 0;
}

static int clear(void *arg, struct kv_txn *t)
{
	(void)arg;
	return scrub_rows_clear(t);
}

START_TEST(findings_are_kept_in_order_and_counted_beyond_what_is_kept)
{
	struct job_scrub_state s = {0};
	struct scrub_first first[16];
	unsigned n = 0;
	struct kv_txn *t;

	write_in(put_many, &s);
	ck_assert_uint_eq(s.ss_counts[JOB_SCRUB_ORPHAN] + s.ss_counts[JOB_SCRUB_MISSING],
			  JOB_SCRUB_KEPT + 5);
	ck_assert_uint_eq(s.ss_removed + s.ss_stale, JOB_SCRUB_KEPT + 5);
	ck_assert(s.ss_kept == JOB_SCRUB_KEPT && s.ss_firsts == 10 && !s.ss_old);
	t = reading();
	ck_assert_int_eq(job_scrub_each(t, see, &n), 0);
	ck_assert_uint_eq(n, JOB_SCRUB_KEPT);
	/* Those of one server. */
	ck_assert_int_eq(scrub_firsts(t, 1, first, 16), 6);
	ck_assert(first[5].fi_ds == 1 && first[5].fi_object.stripe == 5 &&
		  first[5].fi_object.mirror == 255 && first[5].fi_object.fs == 1 &&
		  first[5].fi_size == 5);
	ck_assert_int_eq(scrub_firsts(t, 1, first, 4), 4);
	kv_read_end(t);
	write_in(clear, NULL);
	t = reading();
	n = 0;
	ck_assert_int_eq(job_scrub_each(t, see, &n), 0);
	ck_assert_uint_eq(n, 0);
	ck_assert_int_eq(scrub_firsts(t, 1, first, 16), 0);
	kv_read_end(t);
}
END_TEST

/* ---- what is wrong with a file ---- */

static struct scrub_file file(unsigned stripes, unsigned mirrors, uint64_t size,
			      const uint64_t *sizes)
{
	struct scrub_file f = {.f_inode = {.i_ino = 9, .i_size = size}};
	struct lo_stat *ls = &f.f_stat;

	ls->ls_map.lm_stripes = (uint8_t)stripes;
	ls->ls_map.lm_mirrors = (uint8_t)mirrors;
	for (unsigned k = 0; k < stripes * mirrors; k++) {
		ls->ls_map.lm_obj[k].ob_ds = k + 1;
		ls->ls_sizes[k] = sizes[k];
		ls->ls_size = sizes[k] > ls->ls_size ? sizes[k] : ls->ls_size;
	}
	ls->ls_answered = ls->ls_exists = (UINT64_C(1) << stripes * mirrors) - 1;
	return f;
}

static struct scrub_wrong judged(const struct scrub_file *f)
{
	struct scrub_wrong w;

	scrub_compare(NULL, f, &w);
	return w;
}

START_TEST(sizes_are_judged_by_where_the_file_ends)
{
	struct scrub_file f = file(1, 2, 100, (uint64_t[]){100, 100});
	struct scrub_wrong w = judged(&f);

	ck_assert(!w.w_size && !w.w_bad && !w.w_missing && !w.w_unasked && !w.w_degraded);
	f = file(1, 3, 100, (uint64_t[]){100, 50, 100});
	w = judged(&f);
	ck_assert(w.w_size == 2 && w.w_bad == 2);
	/* None ends where the file does: none is believed. */
	f = file(1, 2, 100, (uint64_t[]){90, 50});
	w = judged(&f);
	ck_assert(w.w_size == 3 && !w.w_bad);
	/* All the same, and not where the file ends. */
	f = file(1, 2, 100, (uint64_t[]){120, 120});
	w = judged(&f);
	ck_assert(w.w_size == 3 && !w.w_bad);
	/* Stripes end where they end; one does where the file does. */
	f = file(2, 2, 100, (uint64_t[]){60, 100, 60, 100});
	w = judged(&f);
	ck_assert(!w.w_size);
	f = file(2, 2, 100, (uint64_t[]){60, 100, 30, 100});
	w = judged(&f);
	ck_assert(w.w_size == 5 && !w.w_bad);
	/* One that is stale says nothing. */
	f = file(1, 2, 100, (uint64_t[]){100, 50});
	f.f_stat.ls_map.lm_obj[1].ob_state = LO_STALE;
	w = judged(&f);
	ck_assert(!w.w_size && w.w_degraded);
}
END_TEST

START_TEST(a_missing_object_is_bad_where_another_is_there)
{
	struct scrub_file f = file(1, 2, 100, (uint64_t[]){0, 100});
	struct scrub_wrong w;

	f.f_stat.ls_lost = 1;
	f.f_stat.ls_exists = f.f_stat.ls_answered = 2;
	w = judged(&f);
	ck_assert(w.w_missing == 1 && w.w_bad == 1 && !w.w_size && !w.w_unasked);
	/* The other one was not heard of. */
	f.f_stat.ls_answered = f.f_stat.ls_exists = 0;
	w = judged(&f);
	ck_assert(w.w_missing == 1 && !w.w_bad && w.w_unasked == 2);
	/* Both. */
	f.f_stat.ls_lost = 3;
	w = judged(&f);
	ck_assert(w.w_missing == 3 && !w.w_bad);
	/* Another stripe's object is no help. */
	f = file(2, 1, 100, (uint64_t[]){0, 100});
	f.f_stat.ls_lost = 1;
	f.f_stat.ls_exists = f.f_stat.ls_answered = 2;
	w = judged(&f);
	ck_assert(w.w_missing == 1 && !w.w_bad);
}
END_TEST

/* ---- the job ---- */

static int refused; /* batches that the hook still refuses */

static int refuse(void *arg, const struct kv_writeset *ws)
{
	(void)arg, (void)ws;
	return refused && refused-- ? -ENOSPC : 0;
}

struct waiting {
	struct loop_timer timer;
	struct mds *mds;
	uint64_t end_ms;
	bool over;
};

static void look_again(struct loop_timer *t)
{
	struct waiting *w = caa_container_of(t, struct waiting, timer);
	struct job_scrub_state s;

	job_scrub_look(w->mds, &s);
	w->over = !s.ss_running;
	if (w->over || clock_mono_ms() > w->end_ms)
		loop_stop(loop_self());
	else
		loop_timer_start(loop_self(), t, 1);
}

/* Begins a scrub that stops before its first step. True: it came to an end. */
static bool scrubbed(struct mds *m, struct loop *l)
{
	struct waiting w = {.mds = m, .end_ms = clock_mono_ms() + 30000};
	struct job_scrub_ask ask = {.sa_dry = true};

	ck_assert_int_eq(job_scrub_begin(m, &ask), 0);
	job_scrub_end(m);
	w.timer.t_fire = look_again;
	loop_timer_start(l, &w.timer, 1);
	loop_run(l);
	return w.over;
}

START_TEST(a_scrub_whose_first_commit_fails_does_not_keep_the_next_from_starting)
{
	static struct mds m;
	struct job_scrub_state s;
	struct loop *l;

	kv_set_batch_hook(kv, refuse, NULL);
	m.m_kv = kv;
	ck_assert_int_eq(loop_create(&l, 64), 0);
	ck_assert_int_eq(job_open(&m), 0);
	ck_assert_int_eq(job_scrub_open(&m, l, 0), 0);
	refused = 1;
	ck_assert(scrubbed(&m, l));
	ck_assert_int_eq(refused, 0);
	job_scrub_look(&m, &s);
	ck_assert_uint_eq(s.ss_number, 0); /* that one never began */
	ck_assert(scrubbed(&m, l));
	job_scrub_look(&m, &s);
	ck_assert(s.ss_number == 1 && s.ss_stopped);
	end(); /* the committer posts to the loop */
	loop_destroy(l);
	begin();
}
END_TEST

int main(void)
{
	Suite *s = suite_create("scrub");
	TCase *tc = tcase_create("scrub");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, the_state_is_read_as_it_was_written);
	tcase_add_test(tc, a_damaged_state_is_refused);
	tcase_add_test(tc, findings_are_kept_in_order_and_counted_beyond_what_is_kept);
	tcase_add_test(tc, sizes_are_judged_by_where_the_file_ends);
	tcase_add_test(tc, a_missing_object_is_bad_where_another_is_there);
	tcase_add_test(tc, a_scrub_whose_first_commit_fails_does_not_keep_the_next_from_starting);
	suite_add_tcase(s, tc);
	return unit_run(s);
}
