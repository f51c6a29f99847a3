/* SPDX-License-Identifier: Apache-2.0 */
/* pg_none.c - in a build without PostgreSQL: what is asked for says so. */
#include "pg/pg.h"
#include <errno.h>
#include <stdio.h>

int pg_init(struct pg_init *i, char why[PG_WHY])
{
	i->i_new = false;
	snprintf(why, PG_WHY, "this weft was built without PostgreSQL (configure)");
	return -ENOSYS;
}

bool pg_has_password(const char *conninfo)
{
	(void)conninfo;
	return false;
}
