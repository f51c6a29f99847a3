/* SPDX-License-Identifier: Apache-2.0 */
/* histo_test.c - the histogram of base/histo.h. */
#include "base/histo.h"
#include "tests/unit/unit.h"
#include <stdlib.h>

static struct histo h, g;

START_TEST(every_value_has_a_bucket_that_is_at_most_a_32nd_wide)
{
	uint64_t v = 0;

	for (int i = 0; i < 200000; i++) {
		unsigned b = histo_bucket(v, HISTO_STEP_BITS);

		ck_assert_uint_lt(b, HISTO_BUCKETS);
		ck_assert_uint_ge(histo_upper(b, HISTO_STEP_BITS), v);
		ck_assert_uint_le(histo_upper(b, HISTO_STEP_BITS) - v, v / HISTO_STEPS);
		if (b)
			ck_assert_uint_lt(histo_upper(b - 1, HISTO_STEP_BITS), v);
		v = i < 5000 ? v + 1 : v + v / 300 + (uint64_t)random() % 7;
		if (v > UINT64_MAX / 2)
			break;
	}
	ck_assert_uint_eq(histo_bucket(UINT64_MAX, HISTO_STEP_BITS), HISTO_BUCKETS - 1);
	ck_assert_uint_eq(histo_upper(HISTO_BUCKETS - 1, HISTO_STEP_BITS), UINT64_MAX);
}
END_TEST

START_TEST(shares_are_read_as_they_are)
{
	ck_assert_uint_eq(histo_per_mille(&h, 500), 0);
	for (uint64_t v = 1; v <= 1000; v++)
		histo_add(&h, v * 1000);
	ck_assert_uint_eq(h.h_min, 1000);
	ck_assert_uint_eq(h.h_max, 1000000);
	ck_assert_uint_eq(h.h_sum, 500500000);
	for (unsigned p = 1; p <= 1000; p++) {
		ck_assert_uint_ge(histo_per_mille(&h, p), p * 1000);
		ck_assert_uint_le(histo_per_mille(&h, p), p * 1000 + p * 1000 / HISTO_STEPS);
	}
	ck_assert_uint_eq(histo_per_mille(&h, 1000), 1000000);
}
END_TEST

START_TEST(two_become_one)
{
	histo_add(&g, 7);
	histo_merge(&h, &g);
	ck_assert_uint_eq(h.h_count, 1);
	ck_assert_uint_eq(h.h_min, 7);
	g = (struct histo){0};
	histo_merge(&h, &g);
	histo_add(&g, 3);
	histo_add(&g, 900);
	histo_merge(&h, &g);
	ck_assert_uint_eq(h.h_count, 3);
	ck_assert_uint_eq(h.h_min, 3);
	ck_assert_uint_eq(h.h_max, 900);
	ck_assert_uint_eq(histo_per_mille(&h, 500), 7);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("histo");
	TCase *t = tcase_create("histo");

	tcase_add_test(t, every_value_has_a_bucket_that_is_at_most_a_32nd_wide);
	tcase_add_test(t, shares_are_read_as_they_are);
	tcase_add_test(t, two_become_one);
	suite_add_tcase(s, t);
	return unit_run(s);
}
