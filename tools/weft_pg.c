/* SPDX-License-Identifier: Apache-2.0 */
/* weft_pg.c - the commands for PostgreSQL, in which instances keep their log. */
#include "tools/weft.h"
#include "pg/pg.h"
#include <stdlib.h>
#include <string.h>

int cmd_pg_init(char **args)
{
	const char *number = weft_option("instance"), *role = weft_option("role");
	struct pg_init i = {.i_conninfo = args[0], .i_role = role ? role : "weft", .i_inst = -1};
	char why[PG_WHY], *end;

	if (number) {
		i.i_inst = strtol(number, &end, 10);
		if (!*number || *end || i.i_inst < 1 || i.i_inst > 65535)
			return weft_usage_error("--instance: a number from 1 to 65535 is wanted");
	}
	if (pg_has_password(args[0]))
		return weft_usage_error("a password in CONNINFO is seen in the list of processes: "
					"use passfile= or service=");
	if (pg_init(&i, why)) {
		fprintf(stderr, "weft: %s\n", why);
		return EXIT_FAILED;
	}
	if (weft_json) {
		printf("{\"created\": %s, \"version\": %u, \"instance\": ",
		       i.i_new ? "true" : "false", PG_VERSION);
		if (number)
			printf("%lld}\n", (long long)i.i_inst);
		else
			puts("null}");
		return weft_flush();
	}
	printf("%s, version %u, role %s\n",
	       i.i_new ? "The schema \"weft\" is made" : "The schema \"weft\" is there", PG_VERSION,
	       i.i_role);
	if (number)
		printf("Instance %lld is there.\n", (long long)i.i_inst);
	return weft_flush();
}
