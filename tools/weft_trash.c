/* SPDX-License-Identifier: Apache-2.0 */
/* weft_trash.c - weft trash: shows what was removed and is kept, restores it, and empties it. */
#include "tools/weft_tool.h"
#include <stdlib.h>
#include <string.h>
#include <time.h>

const struct column trash_columns[] = {{"ID", COL_RIGHT},
				       {"TYPE", 0},
				       {"SIZE", COL_RIGHT},
				       {"REMOVED", COL_RIGHT},
				       {"LEFT", COL_RIGHT},
				       {"BY", COL_RIGHT},
				       {"PATH", COL_CUT | COL_TAIL},
				       {0}};

static void trash_line(struct table *t, const json_t *e)
{
	double now = (double)time(NULL), left = j_real(e, "expires_at") - now;
	const json_t *size = json_object_get(e, "size_bytes");

	table_cell(t, "%lld", j_num(e, "id"));
	table_cell(t, "%s", j_str(e, "type"));
	if (json_is_integer(size))
		table_cell(t, "%s", size_text(json_integer_value(size)));
	else
		table_cell(t, "-");
	table_cell(t, "%s ago", time_text(now - j_real(e, "removed_at")));
	table_cell(t, "%s", time_text(left > 0 ? left : 0));
	table_cell(t, "%lld", j_num(e, "uid"));
	if (json_is_string(json_object_get(e, "path")))
		table_cell(t, "%s", j_str(e, "path"));
	else
		table_cell(t, "?/%s", j_str(e, "name"));
}

static void trash_table(const json_t *j)
{
	const json_t *list = json_object_get(j, "entries"), *e;
	struct table t;
	size_t i;

	if (!json_array_size(list)) {
		puts("nothing there is in the trash");
		return;
	}
	table_begin(&t, trash_columns);
	json_array_foreach(list, i, e) trash_line(&t, e);
	table_end(&t);
	printf("in all the trash has %lld entries of %s\n", j_num(j, "total_entries"),
	       size_text(j_num(j, "total_bytes")));
}

/* Asks until there is no more, and puts it all into one answer. */
int cmd_trash_list(char **args)
{
	json_t *all = NULL, *j;
	char after[96];
	int rc;

	rc = weft_ask_with("GET", "/v1/trash", NULL, &all, "path", args[0], NULL);
	while (!rc && json_is_string(json_object_get(all, "next"))) {
		snprintf(after, sizeof(after), "%s", j_str(all, "next"));
		rc = weft_ask_with("GET", "/v1/trash", NULL, &j, "path", args[0], "after", after,
				   NULL);
		if (rc)
			break;
		json_array_extend(json_object_get(all, "entries"), json_object_get(j, "entries"));
		json_object_set(all, "next", json_object_get(j, "next"));
		json_decref(j);
	}
	if (rc) {
		json_decref(all);
		return rc;
	}
	return weft_show(rc, all, trash_table);
}

static void trash_did(const json_t *j)
{
	if (json_is_integer(json_object_get(j, "job")))
		printf("job %lld: weft jobs shows how far it is\n", j_num(j, "job"));
	else
		printf("restored: %s\n", j_str(j, "path"));
}

/* Shows the answer; with --wait, first waits for the job. */
static int trash_follow(int rc, json_t *j)
{
	long long job = rc ? 0 : j_num(j, "job");
	int ended = weft_show(rc, j, trash_did);

	return ended || !job || !weft_option("wait") ? ended : jobs_wait_one(job);
}

int cmd_trash_restore(char **args)
{
	bool id = args[0][0] && args[0][strspn(args[0], "0123456789")] == 0;
	json_t *j;
	int rc;

	if (!id && args[0][0] != '/')
		return weft_usage_error("trash restore: expected an absolute PATH, or an ID");
	if (weft_option("recursive") && (id || weft_option("to")))
		return weft_usage_error("trash restore: -r takes a PATH, and no --to");
	rc = weft_ask_with("PUT", "/v1/trash/restore", "", &j, id ? "id" : "path", args[0], "to",
			   weft_option("to"), "recursive", weft_option("recursive") ? "1" : NULL,
			   NULL);
	return trash_follow(rc, j);
}

/* "3d" in seconds; false: no duration. */
static bool trash_older(const char *text, char out[32])
{
	static const char units[] = "smhd";
	static const long each[] = {1, 60, 3600, 86400};
	char *end;
	long n = strtol(text, &end, 10);
	const char *u = *end ? strchr(units, *end) : NULL;

	if (end == text || *text == '-' || n > 36500 * 24 || !u || end[1])
		return false;
	snprintf(out, 32, "%ld", n * each[u - units]);
	return true;
}

int cmd_trash_empty(char **args)
{
	char older[32];
	json_t *j;
	int rc;

	if (weft_option("older") && !trash_older(weft_option("older"), older))
		return weft_usage_error("trash empty: --older takes a duration such as 3d or 12h");
	if (!weft_sure("What is in the trash%s%s is removed for good.", args[0] ? " below " : "",
		       args[0] ? args[0] : ""))
		return EXIT_FAILED;
	rc = weft_ask_with("DELETE", "/v1/trash", NULL, &j, "path", args[0], "older_s",
			   weft_option("older") ? older : NULL, NULL);
	return trash_follow(rc, j);
}
