/* SPDX-License-Identifier: Apache-2.0 */
/* pg_redo_none.c - in a build without PostgreSQL: the configuration is refused, and nothing else is
 * ever called. */
#include "mds/pg_check.h"
#include "mds/pg_redo.h"
#include <errno.h>
#include <stdio.h>

int pg_redo_check(const char *conninfo, char *err, size_t errlen)
{
	(void)conninfo;
	snprintf(err, errlen, "this weft-mds was built without PostgreSQL (configure)");
	return -ENOSYS;
}

int pg_redo_open(struct pg_redo **out, const struct pg_redo_opts *o, char *err, size_t errlen)
{
	(void)o;
	*out = NULL;
	return pg_redo_check("", err, errlen);
}

const struct kv_redo *pg_redo_kv(struct pg_redo *pr)
{
	(void)pr;
	return NULL;
}

int pg_redo_look(struct pg_redo *pr, bool *due, char *err, size_t errlen)
{
	(void)pr;
	*due = false;
	return pg_redo_check("", err, errlen);
}

void pg_redo_seen(struct pg_redo *pr, bool *free, uint64_t *quiet_ms)
{
	(void)pr;
	*free = false;
	*quiet_ms = 0;
}

uint64_t pg_redo_claim_ms(const struct pg_redo *pr)
{
	(void)pr;
	return 0;
}

int pg_redo_restore(struct pg_redo *pr, bool has_copy, char *err, size_t errlen)
{
	(void)pr, (void)has_copy;
	return pg_redo_check("", err, errlen);
}

int pg_redo_whole(struct pg_redo *pr, char *err, size_t errlen)
{
	(void)pr;
	return pg_redo_check("", err, errlen);
}

int pg_redo_fold(struct pg_redo *pr)
{
	(void)pr;
	return -ENOSYS;
}

void pg_redo_stop(struct pg_redo *pr)
{
	(void)pr;
}

int pg_redo_close(struct pg_redo *pr)
{
	(void)pr;
	return 0;
}

int pg_check(const char *conninfo, uint32_t inst, const char *store, bool json)
{
	(void)conninfo, (void)inst, (void)store, (void)json;
	fprintf(stderr, "weft-fsck: this weft was built without PostgreSQL (configure)\n");
	return PG_CHECK_WRONG;
}
