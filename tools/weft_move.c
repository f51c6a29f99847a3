/* SPDX-License-Identifier: Apache-2.0 */
/* weft_move.c - weft move: moves a file's objects to other servers, or into other stripes. */
#include "tools/weft_tool.h"

const struct column restripe_columns[] = {{"STRIPES", COL_RIGHT},
					  {"UNIT", COL_RIGHT},
					  {"STEP", 0},
					  {"DONE", COL_RIGHT},
					  {"SIZE", COL_RIGHT},
					  {"WRITTEN", COL_RIGHT},
					  {"PATH", COL_CUT | COL_TAIL},
					  {0}};

static void restripe_table(const json_t *j)
{
	struct table t;
	const json_t *f;
	size_t i;

	if (!j_num(j, "files")) {
		puts("restripe finished");
		return;
	}
	table_begin(&t, restripe_columns);
	json_array_foreach(json_object_get(j, "restriping"), i, f)
	{
		table_cell(&t, "%lld", j_num(f, "stripes"));
		table_cell(&t, "%s", size_text(j_num(f, "unit")));
		table_cell(&t, "%s", j_str(f, "step"));
		table_cell(&t, "%s", size_text(j_num(f, "done")));
		table_cell(&t, "%s", size_text(j_num(f, "size")));
		table_cell(&t, "%s", size_text(j_num(f, "written")));
		table_path(&t, f);
	}
	table_end(&t);
}

static int weft_move_ask(const char *path, json_t **out)
{
	return weft_ask_with(
		"PUT", "/v1/move", "", out, "path", path, "stripes", weft_option("stripes"), "unit",
		weft_option("unit"), "group", weft_option("group"), "policy", weft_option("policy"),
		"from", weft_option("from"), "cancel", weft_option("cancel") ? "1" : NULL, NULL);
}

static int restripe(const char *path)
{
	json_t *j;
	int rc = weft_move_ask(path, &j), ended = EXIT_DONE;

	if (!rc && weft_option("wait")) {
		ended = jobs_wait_one(j_num(j, "job"));
		json_decref(j);
		rc = weft_ask_path("GET", "/v1/restripe", path, NULL, &j);
	}
	rc = weft_show(rc, j, restripe_table);
	return rc ? rc : ended;
}

static int move_ask_one(const json_t *f)
{
	json_t *j = NULL;
	int rc = weft_move_ask(j_str(f, "path"), &j);

	return rc ? rc : tree_begun(j);
}

int cmd_move(char **args)
{
	json_t *j;
	int rc;

	if (weft_option("recursive"))
		return weft_option("from")
			       ? tree_each(args[0], "ds", weft_option("from"), move_ask_one)
			       : tree_each(args[0], "files", "1", move_ask_one);
	if (weft_option("stripes") || weft_option("unit"))
		return restripe(args[0]);
	rc = weft_move_ask(args[0], &j);
	return mirror_follow(rc, j, args[0]);
}
