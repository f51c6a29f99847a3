/* unit.h - how a program of unit tests ends. */
#ifndef TESTS_UNIT_UNIT_H
#define TESTS_UNIT_UNIT_H
#include "tests/unit/scratch.h"
#include <check.h>

/* Runs the suite, which is freed; the exit status. */
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
