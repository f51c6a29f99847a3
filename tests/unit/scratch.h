/* SPDX-License-Identifier: Apache-2.0 */
/* scratch.h - a folder of the test's own, under $TMPDIR. */
#ifndef TESTS_UNIT_SCRATCH_H
#define TESTS_UNIT_SCRATCH_H
#include <ftw.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

static inline bool scratch_make(char *dir, size_t room, const char *name)
{
	const char *tmp = getenv("TMPDIR");

	return (size_t)snprintf(dir, room, "%s/%s.XXXXXX", tmp ? tmp : "/tmp", name) < room &&
	       mkdtemp(dir);
}

static inline int scratch_one(const char *path, const struct stat *st, int what, struct FTW *ftw)
{
	(void)st, (void)what, (void)ftw;
	return remove(path);
}

/* With all that is in it. */
static inline void scratch_remove(const char *dir)
{
	nftw(dir, scratch_one, 16, FTW_DEPTH | FTW_PHYS);
}
#endif
