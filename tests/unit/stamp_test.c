/* SPDX-License-Identifier: Apache-2.0 */
/* stamp_test.c - the times that a store gives go one way, whatever the clock of the machine that
 * opens it says. A row that is ahead stands for a clock that is behind. */
#include "tests/unit/ns_store.h"
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define SECOND INT64_C(1000000000)

/* By how many seconds somebody set the clock of the machine. */
static int64_t clock_set_by;

int __wrap_clock_gettime(clockid_t id, struct timespec *ts);
int __wrap_clock_gettime(clockid_t id, struct timespec *ts)
{
	int rc = (int)syscall(SYS_clock_gettime, id, ts);

	if (id == CLOCK_REALTIME)
		ts->tv_sec += clock_set_by;
	return rc;
}

static int64_t real_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_REALTIME, &ts);
	return ts.tv_sec * SECOND + ts.tv_nsec;
}

static int64_t ns_of(struct ns_time t)
{
	return t.t_sec * SECOND + t.t_nsec;
}

static int64_t row(void)
{
	const struct ns_stamp_rec *r;
	struct kv_slice val;

	ck_assert_int_eq(ns_row_get(snapshot(), NS_T_STAMP, "", 1, &val), 0);
	ck_assert_uint_eq(val.s_len, sizeof(*r));
	r = val.s_data;
	ck_assert_uint_eq(r->sm_version, NS_VERSION);
	return (int64_t)le64toh(r->sm_until);
}

static void row_set(int64_t until)
{
	struct ns_stamp_rec r = {.sm_version = NS_VERSION, .sm_until = htole64((uint64_t)until)};

	ck_assert_int_eq(W(ns_row_put(wt, NS_T_STAMP, "", 1, &r, sizeof(r))), 0);
}

static int make(const char *name, struct ns_time t)
{
	struct ns_create_args a = {.a_dir = 1,
				   .a_name = name,
				   .a_len = strlen(name),
				   .a_cred = &root,
				   .a_attr = {.i_type = NS_REG, .i_mode = 0600},
				   .a_now = t};

	return W(ns_create(ns, wt, &a, &out, blob, &ci));
}

static void crash_and_open(void)
{
	snapshot_end();
	crash_store();
	open_store();
}

START_TEST(a_time_that_was_given_is_on_record)
{
	struct ns_time t;

	row_set(1);
	t = ns_now();
	ck_assert_int_eq(make("f", t), 0);
	ck_assert_int_ge(row(), ns_of(t));
	ck_assert_int_le(row(), ns_of(t) + SECOND);
	/* The next ones need no row of their own, until a second has passed. */
	ck_assert_int_eq(make("g", ns_now()), 0);
	ck_assert_int_le(row(), ns_of(t) + SECOND);
	crash_and_open();
	ck_assert_int_ge(ns_of(ns_now()), ns_of(t) + SECOND);
}
END_TEST

START_TEST(a_clock_that_is_behind_gives_no_older_time)
{
	int64_t ahead = real_ns() + 3600 * SECOND, before, after, from;
	struct timespec nap = {.tv_nsec = 50000000};

	row_set(ahead);
	crash_and_open();
	from = real_ns();
	before = ns_of(ns_now());
	ck_assert_int_ge(before, ahead);
	ck_assert_int_eq(make("f", ns_now()), 0);
	ck_assert_int_ge(ns_of(get(out.i_ino).i_ctime), ahead);
	nanosleep(&nap, NULL);
	after = ns_of(ns_now());
	ck_assert_int_gt(after, before);
	/* The clock catches up: half as fast, and some room for what ran before from. */
	ck_assert_int_le(after - before, (real_ns() - from) / 2 + SECOND / 100);
	crash_and_open();
	ck_assert_int_ge(ns_of(ns_now()), after);
}
END_TEST

START_TEST(a_clock_that_is_set_back_meanwhile_gives_no_older_time)
{
	int64_t given, then, from, last;
	struct timespec nap = {.tv_nsec = 50000000};

	ck_assert_int_eq(make("f", ns_now()), 0);
	/* It serves for an hour, and then the clock goes back by half of that. */
	clock_set_by = 3600;
	given = ns_of(ns_now());
	ck_assert_int_ge(given, real_ns() - 60 * SECOND);
	ck_assert_int_eq(make("g", ns_now()), 0);
	clock_set_by = 1800;
	from = real_ns();
	then = ns_of(ns_now());
	ck_assert_int_ge(then, given);
	ck_assert_int_eq(make("h", ns_now()), 0);
	ck_assert_int_ge(ns_of(get(out.i_ino).i_ctime), given);
	nanosleep(&nap, NULL);
	last = ns_of(ns_now());
	ck_assert_int_ge(last, then + nap.tv_nsec / 4);
	ck_assert_int_le(last - then, (real_ns() - from) / 2 + SECOND / 100);
	/* The row is no further ahead than before, and a restart goes on from there. */
	ck_assert_int_le(row(), last + SECOND);
	crash_and_open();
	ck_assert_int_ge(ns_of(ns_now()), last);
	/* The clock is there again. */
	clock_set_by = 7200;
	ck_assert_int_ge(ns_of(ns_now()), last + 3000 * SECOND);
	ck_assert_int_le(ns_of(ns_now()), real_ns());
	clock_set_by = 0;
}
END_TEST

START_TEST(a_clock_that_is_ahead_counts)
{
	int64_t from = real_ns();

	row_set(from - 60 * SECOND);
	crash_and_open();
	ck_assert_int_ge(ns_of(ns_now()), from);
	ck_assert_int_le(ns_of(ns_now()), real_ns());
}
END_TEST

START_TEST(a_commit_that_failed_leaves_nothing_to_rely_on)
{
	struct ns_time t = ns_now();

	row_set(1);
	commit_error = -EIO;
	ck_assert_int_eq(make("f", t), 0);
	commit_error = 0;
	ck_assert_int_eq(row(), 1);
	/* The same time again: nothing remembers the put that was lost. */
	ck_assert_int_eq(make("g", t), 0);
	ck_assert_int_ge(row(), ns_of(t));
}
END_TEST

START_TEST(nobody_sets_the_clock_forward)
{
	struct ns_time far = {.t_sec = INT64_C(1) << 40};
	struct ns_setattr s = {.s_mask = NS_S_MTIME, .s_mtime = far};

	row_set(1);
	ck_assert_int_eq(make("f", ns_now()), 0);
	ck_assert_int_eq(W(ns_setattr(ns, wt, out.i_ino, &s, &root, ns_now(), &out)), 0);
	ck_assert_int_le(row(), real_ns() + SECOND);
	/* Nor does a ctime that is later than the clock. */
	ck_assert_int_eq(make("g", far), 0);
	ck_assert_int_le(row(), real_ns() + SECOND);
	crash_and_open();
	ck_assert_int_le(ns_of(ns_now()), real_ns() + 2 * SECOND);
}
END_TEST

/* The length comes after the version: a later version may be longer. */
static const struct {
	uint8_t version;
	size_t len;
	int64_t until;
	int err;
} not_valid[] = {
	{NS_VERSION + 1, sizeof(struct ns_stamp_rec), 0, -EPROTONOSUPPORT},
	{NS_VERSION + 1, sizeof(struct ns_stamp_rec) + 8, 0, -EPROTONOSUPPORT},
	{NS_VERSION, sizeof(struct ns_stamp_rec) + 1, 0, -EIO},
	{NS_VERSION, sizeof(struct ns_stamp_rec) - 1, 0, -EIO},
	{NS_VERSION, sizeof(struct ns_stamp_rec), -1, -EIO},
	{0, sizeof(struct ns_stamp_rec), 0, -EIO},
	{0, 0, 0, -EIO},
};

START_TEST(a_row_that_is_not_valid_is_refused)
{
	union {
		struct ns_stamp_rec r;
		uint8_t b[sizeof(struct ns_stamp_rec) + 8];
	} u = {.r = {.sm_version = not_valid[_i].version,
		     .sm_until = htole64((uint64_t)not_valid[_i].until)}};

	ck_assert_uint_eq(violation_count(), 0);
	ck_assert_int_eq(W(ns_row_put(wt, NS_T_STAMP, "", 1, &u, not_valid[_i].len)), 0);
	ck_assert_uint_eq(violation_count(), 1);
	snapshot_end();
	crash_store();
	open_bare();
	ck_assert_int_eq(ns_open(&ns, kv, err, sizeof(err)), not_valid[_i].err);
	kv_close(kv);
	scratch_remove(dir);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("stamp");
	TCase *a = tcase_create("times"), *b = tcase_create("rows");

	tcase_add_checked_fixture(a, setup, teardown);
	tcase_set_timeout(a, 60);
	tcase_add_test(a, a_time_that_was_given_is_on_record);
	tcase_add_test(a, a_clock_that_is_behind_gives_no_older_time);
	tcase_add_test(a, a_clock_that_is_set_back_meanwhile_gives_no_older_time);
	tcase_add_test(a, a_clock_that_is_ahead_counts);
	tcase_add_test(a, a_commit_that_failed_leaves_nothing_to_rely_on);
	tcase_add_test(a, nobody_sets_the_clock_forward);
	suite_add_tcase(s, a);
	tcase_add_checked_fixture(b, setup, NULL);
	tcase_set_timeout(b, 60);
	tcase_add_loop_test(b, a_row_that_is_not_valid_is_refused, 0,
			    sizeof(not_valid) / sizeof(not_valid[0]));
	suite_add_tcase(s, b);
	return s;
}

int main(void)
{
	return unit_run(suite());
}
