/* SPDX-License-Identifier: Apache-2.0 */
/*
 * without.c - takes a rule of an instance away from tests/ha/weft-mds, which is linked from the
 * objects of weft-mds and this one. No other program has it. A checker must find what comes of it.
 *
 *	WEFT_WITHOUT=lease	answers go out whether the store is held or not
 *	WEFT_WITHOUT=guard	a process that is no longer the one writes on
 *	WEFT_WITHOUT=doubt	a batch in doubt is looked for by a read
 */
#include "common/store_lease.h"
#include "tests/ha/without.h"
#include <stdlib.h>
#include <string.h>

static bool without(const char *rule)
{
	const char *s = getenv("WEFT_WITHOUT");

	return s && !strcmp(s, rule);
}

__attribute__((constructor)) static void take_away(void)
{
	if (without("guard"))
		pg_statements = without_guard;
	if (without("doubt"))
		pg_statements = without_doubt;
}

void store_lease_hook(struct store_lease *sl)
{
	if (without("lease"))
		store_lease_init(sl, STORE_LEASE_ALWAYS);
}
