/* SPDX-License-Identifier: Apache-2.0 */
/* The work of jobs that copy files: how long they wait for a server, and what they show. */
#include "base/clock.h"
#include "mds/jobs/job_work.h"
#include "tests/unit/unit.h"
#include <string.h>

#define PATIENCE_MS 70000
#define SPARE_MS    5000 /* more than a line of this test takes */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct job_progress progress;
static struct job_work work;
static unsigned woken;

static void setup(void)
{
	struct loop *loop;

	memset(&work, 0, sizeof(work));
	ck_assert_int_eq(loop_create(&loop, 64), 0);
	job_work_open(&work, NULL, loop, &lock, &progress);
	job_work_take(&work, 7);
	woken = 0;
}

static void teardown(void)
{
	loop_destroy(work.jw_loop);
}

static void wakes(struct job_work *w)
{
	woken++;
	loop_stop(w->jw_loop);
}

START_TEST(a_job_waits_for_seventy_seconds_and_no_longer)
{
	uint64_t begun = clock_mono_ms();

	ck_assert(job_work_again(&work, wakes));
	ck_assert_uint_eq(woken, 0); /* never from inside */
	loop_run(work.jw_loop);
	ck_assert_uint_eq(woken, 1);
	ck_assert_uint_ge(clock_mono_ms() - begun, JOB_AGAIN_MS);
	/* the wait goes on from where it began */
	ck_assert_uint_le(work.jw_since_ms, begun + SPARE_MS);
	work.jw_since_ms = clock_mono_ms() - (PATIENCE_MS - SPARE_MS);
	ck_assert(job_work_again(&work, wakes));
	loop_timer_stop(work.jw_loop, &work.jw_timer);
	work.jw_since_ms = clock_mono_ms() - PATIENCE_MS;
	ck_assert(!job_work_again(&work, wakes));
	ck_assert_uint_eq(woken, 1);
}
END_TEST

START_TEST(each_wait_begins_from_nothing)
{
	work.jw_since_ms = clock_mono_ms() - PATIENCE_MS;
	ck_assert(!job_work_waits(&work, PATIENCE_MS));
	job_work_goes_on(&work);
	ck_assert(job_work_waits(&work, PATIENCE_MS));
	work.jw_since_ms = clock_mono_ms() - PATIENCE_MS;
	job_work_take(&work, 8); /* another file */
	ck_assert(job_work_waits(&work, PATIENCE_MS));
}
END_TEST

START_TEST(progress_is_counted_from_where_the_copy_began)
{
	ck_assert_uint_eq(progress.wp_ino, 7);
	ck_assert(progress.wp_taken > 0);
	ck_assert(!job_progress_rate(&progress));
	job_work_copies(&work, 1000000, 0); /* after a restart of the server */
	job_work_copied(&work, 3000000, 4000000, 5);
	job_work_copied(&work, 3500000, 4000000, 6);
	job_work_step(&work, JOB_STEP_COPY);
	ck_assert_str_eq(job_step_name(progress.wp_step), "copy");
	ck_assert_uint_eq(progress.wp_done, 3500000);
	ck_assert_uint_eq(progress.wp_size, 4000000);
	ck_assert_uint_eq(progress.wp_copied, 11);
	progress.wp_since_ms = clock_mono_ms() - 10000;
	/* 2.5 MB in 10 s, or in a little more */
	ck_assert(job_progress_rate(&progress) <= 250000);
	ck_assert(job_progress_rate(&progress) > 250000 * 10000.0 / (10000 + SPARE_MS));
	job_work_take(&work, 0);
	ck_assert(!progress.wp_ino && !progress.wp_taken && !progress.wp_done);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("job work");
	TCase *tc = tcase_create("waits and progress");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, a_job_waits_for_seventy_seconds_and_no_longer);
	tcase_add_test(tc, each_wait_begins_from_nothing);
	tcase_add_test(tc, progress_is_counted_from_where_the_copy_began);
	suite_add_tcase(s, tc);
	return unit_run(s);
}
