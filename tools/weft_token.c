/* SPDX-License-Identifier: Apache-2.0 */
/* weft_token.c - weft token: tokens for the metadata server's API. */
#include "tools/weft_tool.h"
#include <string.h>
#include <time.h>

static const char *token_time(char out[20], const json_t *j, const char *key)
{
	time_t at = (time_t)j_num(j, key);
	struct tm tm;

	if (!at || !localtime_r(&at, &tm) || !strftime(out, 20, "%Y-%m-%d %H:%M", &tm))
		strcpy(out, "never");
	return out;
}

int cmd_token_create(char **args)
{
	const char *role = weft_option("role");
	json_t *j;
	int rc;

	(void)args;
	if (!role)
		return weft_usage_error("token create: say what it may do, with --role read, "
					"--role operate or --role admin");
	rc = weft_ask_with("POST", "/v1/tokens", "", &j, "role", role, "name", weft_option("name"),
			   "days", weft_option("days"), NULL);
	if (rc || weft_json)
		return weft_show(rc, j, NULL);
	/* The token alone on standard output: it goes into a file or a variable. */
	fprintf(stderr, "weft: token %s, role %s; it is shown only now:\n", j_str(j, "name"),
		j_str(j, "role"));
	puts(j_str(j, "token"));
	json_decref(j);
	return weft_flush();
}

const struct column token_columns[] = {{"NAME", COL_CUT}, {"ROLE", 0},	    {"MADE", 0},
				       {"ENDS", 0},	  {"LAST-USED", 0}, {0}};

static void token_table(const json_t *j)
{
	char made[20], ends[20], used[20];
	struct table t;
	const json_t *k;
	size_t i;

	table_begin(&t, token_columns);
	json_array_foreach(json_object_get(j, "tokens"), i, k)
	{
		table_cell(&t, "%s", j_str(k, "name"));
		table_cell(&t, "%s", j_str(k, "role"));
		table_cell(&t, "%s", token_time(made, k, "made_at"));
		table_cell(&t, "%s", token_time(ends, k, "ends_at"));
		table_cell(&t, "%s", token_time(used, k, "last_used_at"));
	}
	table_end(&t);
}

int cmd_token_list(char **args)
{
	json_t *j;
	int rc = weft_ask("GET", "/v1/tokens", "", &j);

	(void)args;
	return weft_show(rc, j, token_table);
}

int cmd_token_revoke(char **args)
{
	json_t *j;
	int rc = weft_ask_with("DELETE", "/v1/tokens", "", &j, "name", args[0], NULL);

	return weft_show(rc, j, token_table);
}
