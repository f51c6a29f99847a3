/* SPDX-License-Identifier: Apache-2.0 */
/* weft_config.c - weft config and weft set: the configuration of a daemon that runs. */
#include "tools/weft_tool.h"
#include <stdlib.h>
#include <string.h>

/* false: keys that have their default are left out */
static bool all;

const struct column config_columns[] = {
	{"KEY", 0}, {"VALUE", COL_CUT | COL_TAIL}, {"FROM", 0}, {"CHANGES", 0}, {0}};

static void config_table(const json_t *j)
{
	struct table t;
	const json_t *k;
	size_t i;

	table_begin(&t, config_columns);
	json_array_foreach(json_object_get(j, "keys"), i, k)
	{
		if (!all && !strcmp(j_str(k, "from"), "default") &&
		    !json_is_string(json_object_get(k, "next_start")))
			continue;
		table_cell(&t, "%s", j_str(k, "key"));
		table_cell(&t, "%s", *j_str(k, "value") ? j_str(k, "value") : "-");
		table_cell(&t, "%s", j_str(k, "from"));
		if (json_is_string(json_object_get(k, "next_start")))
			table_cell(&t, "to %s at the next start", j_str(k, "next_start"));
		else
			table_cell(&t, "%s",
				   json_is_true(json_object_get(k, "live")) ? "at once"
									    : "at the next start");
	}
	table_end(&t);
}

int cmd_config(char **args)
{
	json_t *j;
	int rc = weft_ask_with("GET", "/v1/config", NULL, &j, "key", args[0], NULL);

	all = args[0] || weft_option("all");
	return weft_show(rc, j, config_table);
}

static void set_table(const json_t *j)
{
	config_table(j);
	if (json_is_string(json_object_get(j, "file")))
		printf("This holds until the daemon starts again or reads its file again. "
		       "To keep it, write it into %s.\n",
		       j_str(j, "file"));
	else
		puts("This holds until the daemon starts again or reads its file again.");
}

int cmd_set(char **args)
{
	char *value = strchr(args[0], '=');
	json_t *j;
	int rc;

	if (!value || value == args[0])
		return weft_usage_error("set: expected KEY=VALUE");
	*value++ = 0;
	all = true;
	rc = weft_ask_with("PUT", "/v1/config", "", &j, "key", args[0], "value", value, NULL);
	return weft_show(rc, j, set_table);
}
