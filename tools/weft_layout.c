/* SPDX-License-Identifier: Apache-2.0 */
/* weft_layout.c - weft layout: shows what clients may do with data servers directly, and recalls
 * it. */
#include "tools/weft_tool.h"

const struct column layout_columns[] = {{"CLIENT", COL_RIGHT},
					{"NAME", COL_CUT},
					{"MODE", 0},
					{"RECALLED", 0},
					{"INODE", COL_RIGHT},
					{"SERVERS", COL_CUT},
					{"PATH", COL_CUT | COL_TAIL},
					{0}};

static void layout_table(const json_t *j)
{
	size_t i, shown = json_array_size(json_object_get(j, "layouts"));
	struct table t;
	const json_t *l;

	table_begin(&t, layout_columns);
	json_array_foreach(json_object_get(j, "layouts"), i, l)
	{
		table_cell(&t, "%lld", j_num(l, "client"));
		table_cell(&t, "%s", j_str(l, "name"));
		table_cell(&t, "%s", j_str(l, "mode"));
		table_cell(&t, "%s", json_is_true(json_object_get(l, "recalled")) ? "yes" : "no");
		table_cell(&t, "%lld", j_num(l, "inode"));
		table_words(&t, json_object_get(l, "ds"));
		table_cell(&t, "%s", j_str(l, "path"));
	}
	table_end(&t);
	if (j_num(j, "known") > (long long)shown)
		weft_note(2,
			  "%lld more are not shown: name a file, a client (--client C) or a "
			  "data server (--ds DS)",
			  j_num(j, "known") - (long long)shown);
}

int cmd_layout_list(char **args)
{
	json_t *j;
	int rc = weft_ask_with("GET", "/v1/layouts", NULL, &j, "path", args[0], "client",
			       weft_option("client"), "ds", weft_option("ds"), NULL);

	return weft_show(rc, j, layout_table);
}

static void weft_layout_recalled(const json_t *j)
{
	printf("%lld layouts were returned or fenced\n", j_num(j, "recalled"));
}

int cmd_layout_recall(char **args)
{
	long long n, left;
	json_t *j, *now;
	int rc = weft_ask_path("PUT", "/v1/layouts/recall", args[0], "", &j);

	if (rc)
		return rc;
	n = j_num(j, "asked");
	left = j_num(j, "recalled");
	json_decref(j);
	for (unsigned step = 0; left; step++) {
		weft_wait_step(step, "waiting for clients to return the layouts; at the deadline "
				     "the rest are fenced");
		rc = weft_ask_path("GET", "/v1/layouts", args[0], NULL, &now);
		if (rc) {
			weft_wait_over();
			return rc;
		}
		left = j_num(now, "recalled");
		json_decref(now);
	}
	weft_wait_over();
	return weft_show(EXIT_DONE,
			 json_pack("{s:s, s:I}", "path", args[0], "recalled", (json_int_t)n),
			 weft_layout_recalled);
}
