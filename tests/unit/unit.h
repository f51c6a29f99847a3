/* SPDX-License-Identifier: Apache-2.0 */
/* unit.h - how a program of unit tests is put together, and ends. */
#ifndef TESTS_UNIT_UNIT_H
#define TESTS_UNIT_UNIT_H
#include "tests/unit/scratch.h"
#include <check.h>

/* Adds these tests, up to NULL, as a case of the suite; with functions to run before and after
 * each, and the seconds that each test has. */
static inline void unit_add(Suite *s, const char *name, SFun before, SFun after, int seconds,
			    const TTest *const *tests)
{
	TCase *tc = tcase_create(name);

	tcase_add_checked_fixture(tc, before, after);
	tcase_set_timeout(tc, seconds);
	for (; *tests; tests++)
		tcase_add_test(tc, *tests);
	suite_add_tcase(s, tc);
}

/* Runs the suite and frees it; returns the exit status. */
static inline int unit_run(Suite *s)
{
	SRunner *r = srunner_create(s);
	int failed;

	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
#endif
