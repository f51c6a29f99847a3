/* SPDX-License-Identifier: Apache-2.0 */
/* weft_orders.c - weft orders: what data servers still have to do. */
#include "tools/weft_tool.h"

const struct column orders_columns[] = {{"SERVER", COL_CUT},
					{"WHAT", 0},
					{"AGE", COL_RIGHT},
					{"TRIES", COL_RIGHT},
					{"OBJECT", COL_RIGHT | COL_MORE},
					{"NUMBER", COL_RIGHT | COL_MORE},
					{"INODE", COL_RIGHT | COL_MORE},
					{"FOR", COL_CUT | COL_TAIL},
					{"ERROR", COL_CUT | COL_FILLED},
					{0}};

static void orders_line(struct table *t, const json_t *o)
{
	bool client = json_is_integer(json_object_get(o, "client"));

	table_cell(t, "%s", j_str(o, "ds"));
	table_cell(t, "%s", j_str(o, "what"));
	table_cell(t, "%s", time_text(j_real(o, "age_s")));
	table_number(t, o, "tries");
	if (client)
		table_cell(t, "-");
	else
		table_cell(t, "%lld/%lld", j_num(o, "mirror"), j_num(o, "stripe"));
	table_number(t, o, "number");
	table_number(t, o, "inode");
	if (client)
		table_cell(t, "client %lld", j_num(o, "client"));
	else
		table_path(t, o);
	table_cell(t, "%s", j_str(o, "error"));
}

static void orders_table(const json_t *j)
{
	const json_t *list = json_object_get(j, "orders"), *o;
	struct table t;
	size_t i;

	if (!json_array_size(list)) {
		puts(weft_option("ds") ? "no order to this data server is pending"
				       : "no order to a data server is pending");
		return;
	}
	table_begin(&t, orders_columns);
	json_array_foreach(list, i, o) orders_line(&t, o);
	table_end(&t);
	if (!weft_option("ds") && j_num(j, "known") > (long long)json_array_size(list))
		weft_note(2, "%lld more are pending",
			  j_num(j, "known") - (long long)json_array_size(list));
}

int cmd_orders(char **args)
{
	json_t *j;
	int rc = weft_ask_with("GET", "/v1/orders", NULL, &j, "ds", weft_option("ds"), "last",
			       weft_option("last"), NULL);

	(void)args;
	return weft_show(rc, j, orders_table);
}
