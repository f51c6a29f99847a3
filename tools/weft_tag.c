/* SPDX-License-Identifier: Apache-2.0 */
/* weft_tag.c - weft job: names the clients that work on one compute job, and shows what they did.
 * The server's own background jobs are weft jobs. */
#include "tools/weft_tool.h"
#include <stdlib.h>
#include <string.h>
#include <time.h>

const struct column tag_columns[] = {{"JOB", COL_CUT},	   {"CLIENTS", COL_RIGHT},
				     {"KNOWN", COL_RIGHT}, {"OPERATIONS", COL_RIGHT},
				     {"READ", COL_RIGHT},  {"WRITTEN", COL_RIGHT},
				     {"SINCE", 0},	   {0}};
const struct column tag_client_columns[] = {{"CLIENT", COL_CUT}, {"KNOWN", COL_RIGHT}, {0}};

static const char *tag_since(char out[20], const json_t *tag)
{
	time_t at = (time_t)j_num(tag, "since_at");
	struct tm tm;

	if (!localtime_r(&at, &tm) || !strftime(out, 20, "%Y-%m-%d %H:%M", &tm))
		strcpy(out, "-");
	return out;
}

static void tag_table(const json_t *j)
{
	const json_t *list = json_object_get(j, "tags"), *tag;
	char since[20];
	struct table t;
	size_t i;

	if (!json_array_size(list)) {
		puts("no client is in a compute job");
		return;
	}
	table_begin(&t, tag_columns);
	json_array_foreach(list, i, tag)
	{
		table_cell(&t, "%s", j_str(tag, "name"));
		table_cell(&t, "%zu", json_array_size(json_object_get(tag, "clients")));
		table_number(&t, tag, "known");
		table_number(&t, tag, "operations");
		table_cell(&t, "%s", size_text(j_num(tag, "read_bytes")));
		table_cell(&t, "%s", size_text(j_num(tag, "written_bytes")));
		table_cell(&t, "%s", tag_since(since, tag));
	}
	table_end(&t);
}

static void tag_one_table(const json_t *j)
{
	const json_t *tag = json_array_get(json_object_get(j, "tags"), 0), *c;
	struct table t;
	size_t i;

	tag_table(j);
	putchar('\n');
	table_begin(&t, tag_client_columns);
	json_array_foreach(json_object_get(tag, "clients"), i, c)
	{
		table_cell(&t, "%s", j_str(c, "client"));
		table_number(&t, c, "known");
	}
	table_end(&t);
}

int cmd_job_list(char **args)
{
	json_t *j;
	int rc = weft_ask_with("GET", "/v1/tags", NULL, &j, "name", args[0], NULL);

	return weft_show(rc, j, args[0] ? tag_one_table : tag_table);
}

int cmd_job_tag(char **args)
{
	size_t len = 1;
	char *body;
	json_t *j;
	int rc;

	for (unsigned i = 1; args[i]; i++)
		len += strlen(args[i]) + 1;
	body = calloc(1, len);
	if (!body)
		return EXIT_FAILED;
	len = 0;
	for (unsigned i = 1; args[i]; i++) {
		size_t n = strlen(args[i]);

		memcpy(body + len, args[i], n);
		len += n;
		body[len++] = '\n';
	}
	rc = weft_ask_with("PUT", "/v1/tags", body, &j, "name", args[0], NULL);
	free(body);
	return weft_show(rc, j, tag_table);
}

int cmd_job_untag(char **args)
{
	json_t *j = NULL;
	int rc = EXIT_DONE;

	if (!args[1])
		rc = weft_ask_with("DELETE", "/v1/tags", NULL, &j, "name", args[0], NULL);
	for (unsigned i = 1; args[i] && !rc; i++) {
		json_decref(j);
		rc = weft_ask_with("DELETE", "/v1/tags", NULL, &j, "name", args[0], "client",
				   args[i], NULL);
	}
	return weft_show(rc, j, tag_table);
}
