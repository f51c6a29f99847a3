/* SPDX-License-Identifier: Apache-2.0 */
/* weft_pg.c - the commands for PostgreSQL, in which instances keep their log. */
#include "tools/weft_tool.h"
#include "pg/pg.h"
#include <stdlib.h>
#include <string.h>

/* 0; or an exit status. */
static int check_args(const char *number, const char *conninfo, int64_t *inst)
{
	char *end;

	if (number) {
		*inst = strtol(number, &end, 10);
		if (!*number || *end || *inst < 1 || *inst > 65535)
			return weft_usage_error("--instance: a number from 1 to 65535 is wanted");
	}
	if (pg_has_password(conninfo))
		return weft_usage_error("a password in CONNINFO is seen in the list of processes: "
					"use passfile= or service=");
	return 0;
}

int cmd_pg_verify(char **args)
{
	const char *number = weft_option("instance");
	int64_t inst;
	int rc = check_args(number ? number : "1", args[0], &inst);

	return rc ? rc : weft_check_log(args[0], number ? number : "1", weft_option("store"));
}

int cmd_pg_init(char **args)
{
	const char *number = weft_option("instance"), *role = weft_option("role");
	struct pg_init i = {.i_conninfo = args[0], .i_role = role ? role : "weft", .i_inst = -1};
	char why[PG_WHY];
	int rc = check_args(number, args[0], &i.i_inst);

	if (rc)
		return rc;
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
