/* SPDX-License-Identifier: Apache-2.0 */
/* weft_du.c - weft du: how much is below directories, and what each user has. */
#include "tools/weft_tool.h"
#include <pwd.h>
#include <stdlib.h>
#include <string.h>

#define DU_COLUMNS                                                                                 \
	{"STORED", COL_RIGHT}, {"SIZE", COL_RIGHT}, {"FILES", COL_RIGHT},                          \
	{                                                                                          \
		"DIRS", COL_RIGHT                                                                  \
	}
const struct column du_columns[] = {DU_COLUMNS, {"PATH", COL_CUT | COL_TAIL}, {0}},
		    du_user_columns[] = {DU_COLUMNS,
					 {"TRASH", COL_RIGHT},
					 {"UID", COL_RIGHT},
					 {"USER", COL_CUT},
					 {0}};

static void du_size(struct table *t, const json_t *o, const char *key)
{
	const json_t *v = json_object_get(o, key);

	table_cell(t, "%s", json_is_integer(v) ? size_text(json_integer_value(v)) : "-");
}

static void du_cells(struct table *t, const json_t *o)
{
	du_size(t, o, "stored_bytes");
	du_size(t, o, "logical_bytes");
	table_number(t, o, "files");
	table_number(t, o, "directories");
}

static void du_row(struct table *t, const json_t *o)
{
	du_cells(t, o);
	table_cell(t, "%s", j_str(o, "path"));
}

/* What a table has no room for. */
static void du_notes(const json_t *o)
{
	const json_t *writing = json_object_get(o, "writing_files");

	if (json_is_string(json_object_get(o, "reason")))
		weft_note(2, "%s: not known: %s", j_str(o, "path"), j_str(o, "reason"));
	else if (json_is_null(writing))
		weft_note(2,
			  "%s: very many files are being written: the sizes may be older than "
			  "what clients have written",
			  j_str(o, "path"));
	else if (json_integer_value(writing))
		weft_note(2,
			  "%s: %lld files are being written: their sizes may be older than what "
			  "clients have written",
			  j_str(o, "path"), (long long)json_integer_value(writing));
	if (json_is_true(json_object_get(o, "cut")))
		weft_note(2, "%s: there are more directories: --rows shows up to 10000",
			  j_str(o, "path"));
}

static void du_table(const json_t *j)
{
	const json_t *list = json_object_get(j, "paths"), *o, *below;
	struct table t;
	size_t i, k;

	table_begin(&t, du_columns);
	json_array_foreach(list, i, o)
	{
		json_array_foreach(json_object_get(o, "below"), k, below) du_row(&t, below);
		du_row(&t, o);
	}
	table_end(&t);
	json_array_foreach(list, i, o) du_notes(o);
}

static void du_users_table(const json_t *j)
{
	const json_t *list = json_object_get(j, "users"), *o;
	struct table t;
	size_t i;

	table_begin(&t, du_user_columns);
	json_array_foreach(list, i, o)
	{
		struct passwd *pw = getpwuid((uid_t)j_num(o, "uid"));

		du_cells(&t, o);
		du_size(&t, o, "trash_stored_bytes");
		table_number(&t, o, "uid");
		table_cell(&t, "%s", pw ? pw->pw_name : "-");
	}
	table_end(&t);
	json_array_foreach(list, i, o) if (json_is_string(json_object_get(o, "reason")))
		weft_note(2, "user %lld: not known: %s", j_num(o, "uid"), j_str(o, "reason"));
	if ((size_t)j_num(j, "total") > i)
		weft_note(2, "%lld more users: --rows shows up to 10000",
			  j_num(j, "total") - (long long)i);
}

int cmd_du(char **args)
{
	const char *summary = weft_option("summarize"), *depth = weft_option("depth"),
		   *rows = weft_option("rows");
	static char *root[] = {"/", NULL};
	json_t *j, *all;
	int rc = EXIT_DONE;

	if (weft_option("users")) {
		if (args[0] || summary || depth)
			return weft_usage_error("du: --users is about the whole file system: it "
						"takes no PATH, -s or --depth");
		rc = weft_ask_with("GET", "/v1/du/users", NULL, &j, "rows", rows, NULL);
		return weft_show(rc, j, du_users_table);
	}
	if (summary && depth)
		return weft_usage_error("du: -s is --depth 0: give one of both");
	all = json_array();
	for (char **path = args[0] ? args : root; !rc && *path; path++) {
		rc = weft_ask_with("GET", "/v1/du", NULL, &j, "path", *path, "depth",
				   summary ? "0"
				   : depth ? depth
					   : "1",
				   "rows", rows, NULL);
		if (!rc)
			json_array_append_new(all, j);
	}
	if (rc) {
		json_decref(all);
		return rc;
	}
	return weft_show(EXIT_DONE, json_pack("{s:o}", "paths", all), du_table);
}
