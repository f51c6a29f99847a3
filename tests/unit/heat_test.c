/* SPDX-License-Identifier: Apache-2.0 */
/* Heat: the busiest are known, however many others there are, and what is over cools down. */
#include "mds/nfs4/op_heat.h"
#include "tests/unit/unit.h"
#include <stdlib.h>

static struct mds mds;
static struct mds_thread th;
static struct compound c;

static void setup(void)
{
	memset(&c, 0, sizeof(c));
	memset(&th, 0, sizeof(th));
	ck_assert_int_eq(loop_create(&th.mt_loop, 64), 0);
	th.mt_mds = &mds;
	mds.m_thread = &th;
	mds.m_nthreads = 1;
	c.m = &mds;
	c.th = &th;
}

static void teardown(void)
{
	loop_destroy(th.mt_loop);
}

static void opened(uint64_t ino)
{
	c.cur = ino;
	op_heat_opened(&c);
}

START_TEST(the_hottest_are_known_among_very_many)
{
	enum { HOT = 10, COLD = 200000, TIMES = 300 };
	struct heat_row *rows;
	unsigned hot = 0;
	size_t n;

	for (unsigned i = 0; i < COLD; i++) {
		opened(1000 + i);
		if (i % (COLD / TIMES / HOT) == 0)
			opened(1 + i / (COLD / TIMES / HOT) % HOT);
	}
	rows = heat_rows(&mds, HEAT_FILE, true, &n);
	ck_assert_ptr_nonnull(rows);
	ck_assert_uint_le(n, 4096); /* bounded */
	for (unsigned i = 0; i < HOT; i++)
		hot += rows[i].hr_key <= HOT;
	ck_assert_uint_eq(hot, HOT);
	ck_assert(rows[0].hr_heat > TIMES * 0.9f && rows[0].hr_heat < TIMES * 1.1f);
	ck_assert(rows[HOT].hr_heat < TIMES * 0.1f);
	free(rows);
}
END_TEST

START_TEST(latencies_have_means_and_percentiles)
{
	struct st_session session;
	struct st_client client = {.cl_id = 77};
	struct heat_row *rows;
	size_t n;

	c.session = &session;
	c.client = &client;
	c.at = 3;
	for (unsigned i = 0; i < 98; i++)
		op_heat_compound(&c, 100);
	op_heat_compound(&c, 5000);
	op_heat_compound(&c, 5000);
	rows = heat_rows(&mds, HEAT_CLIENT, false, &n);
	ck_assert_uint_eq(n, 1);
	ck_assert_uint_eq(rows->hr_key, 77);
	ck_assert(rows->hr_us > 190 && rows->hr_us < 205);
	ck_assert(heat_percentile(rows, 0.5) == 128);
	ck_assert(heat_percentile(rows, 0.99) == 8192);
	/* 300 operations within no time, with a half-life of 5 s */
	ck_assert(rows->hr_ops > 300 * 0.6931 / 5 * 0.9 && rows->hr_ops < 300 * 0.6931 / 5 * 1.01);
	ck_assert(rows->hr_heat > 299 && rows->hr_heat < 301);
	free(rows);
	ck_assert_ptr_null(heat_rows(&mds, HEAT_DIR, false, &n));
}
END_TEST

/* Each place of an export and of a tag has a cell that no other takes. */
START_TEST(places_are_never_forgotten)
{
	static const struct {
		enum heat_kind kind;
		unsigned n;
	} of[] = {{HEAT_EXPORT, EXP_SLOTS}, {HEAT_TAG, MDS_TAG_SLOTS}};

	for (unsigned k = 0; k < 2; k++) {
		struct heat_row *rows;
		size_t n;

		for (unsigned i = 0; i < of[k].n; i++)
			heat_work(&th, of[k].kind, i, 1 + i);
		rows = heat_rows(&mds, of[k].kind, false, &n);
		ck_assert_uint_eq(n, of[k].n - 1); /* 0 is none */
		ck_assert_uint_eq(rows[0].hr_key, of[k].n - 1);
		/* All are of one of two keys now. */
		for (size_t i = 0; i < n; i++)
			rows[i].hr_key = 1 + rows[i].hr_key % 2;
		ck_assert_uint_eq(heat_merge(rows, n, false), 2);
		ck_assert(rows[0].hr_ops + rows[1].hr_ops >
			  (of[k].n * (of[k].n + 1) / 2.0f - 1) * 0.6931f / 5 * 0.9f);
		free(rows);
	}
}
END_TEST

/* A report of a minute shows as the rate that there was, not as a burst. */
START_TEST(a_late_report_is_spread_over_its_time)
{
	enum { RATE = 1000000 };
	struct heat_row *rows;
	size_t n;

	heat_bytes(&th, HEAT_DIR, 5, 60ull * RATE, 0, 60000);
	heat_bytes(&th, HEAT_DIR, 6, 0, RATE, 0);
	rows = heat_rows(&mds, HEAT_DIR, false, &n);
	ck_assert_uint_eq(n, 2);
	ck_assert_uint_eq(rows[0].hr_key, 5);
	ck_assert(rows[0].hr_read > RATE * 0.95f && rows[0].hr_read < RATE * 1.05f);
	ck_assert(rows[1].hr_written > RATE * 0.6931f / 5 * 0.95f);
	/* Of a minute almost all is left of heat. */
	ck_assert(rows[0].hr_heat > 60.0f * RATE / HEAT_UNIT * 0.95f);
	free(rows);
}
END_TEST

static uint64_t over_ms;

/* Bytes that are new of what is told. */
static uint64_t told(uint64_t ino, uint64_t bytes, bool last)
{
	struct heat_report r = {1, bytes, 1}, w = {0};

	c.cur = ino;
	ck_assert(heat_news(c.th, c.client->cl_id, c.cur, 1, &r, &w, &over_ms, last));
	ck_assert_uint_eq(w.ht_bytes, 0);
	return r.ht_bytes;
}

START_TEST(what_was_told_counts_once)
{
	enum { MANY = 100000 };
	struct st_client client = {.cl_id = 77};
	uint64_t first = 0, again = 0;

	c.client = &client;
	over_ms = 30000; /* the layout's age; then the time since the last report */
	ck_assert_uint_eq(told(5, 1000, false), 1000);
	ck_assert_uint_eq(over_ms, 30000);
	over_ms = 90000000;
	ck_assert_uint_eq(told(5, 1000, false), 0);
	ck_assert_uint_lt(over_ms, 60000);
	ck_assert_uint_eq(told(5, 1500, true), 500);
	ck_assert_uint_eq(told(5, 300, false), 300); /* another layout */
	/* Far more than are remembered, and none comes back: whose sums were forgotten is not
	 * counted anew. */
	for (unsigned i = 0; i < MANY; i++)
		first += told(1000 + i, 1, false);
	for (unsigned i = 0; i < MANY; i++)
		again += told(1000 + i, 1, false);
	ck_assert_uint_ge(first, 4000);
	ck_assert_uint_le(first, 4096);
	ck_assert_uint_eq(again, 0);
	/* They come back, one after the other: each counts, but for those that take a place
	 * first. */
	for (unsigned i = 0; i < MANY; i++)
		again += told(1000000 + i, 1, true);
	ck_assert_uint_ge(again, MANY - 4096);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("heat");
	TCase *t = tcase_create("heat");

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_set_timeout(t, 60);
	tcase_add_test(t, the_hottest_are_known_among_very_many);
	tcase_add_test(t, latencies_have_means_and_percentiles);
	tcase_add_test(t, places_are_never_forgotten);
	tcase_add_test(t, a_late_report_is_spread_over_its_time);
	tcase_add_test(t, what_was_told_counts_once);
	suite_add_tcase(s, t);
	return unit_run(s);
}
