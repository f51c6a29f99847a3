/* SPDX-License-Identifier: Apache-2.0 */
/* weft_exports.c - weft exports: shows which clients may use what. */
#include "tools/weft_tool.h"

const struct column exports_columns[] = {{"EXPORT", COL_CUT | COL_TAIL},
					 {"ID", COL_RIGHT},
					 {"CLIENTS", COL_CUT},
					 {"ACCESS", 0},
					 {"SQUASH", 0},
					 {"ANON", COL_ROOM},
					 {"SEC", COL_CUT},
					 {"TLS", 0},
					 {"PORT", 0},
					 {"LAYOUTS", 0},
					 {"STATE", COL_STATE | COL_FILLED},
					 {0}};

static void rule_line(struct table *t, const json_t *e, const json_t *r)
{
	table_cell(t, "%s", j_str(e, "path"));
	table_number(t, e, "id");
	table_words(t, json_object_get(r, "clients"));
	table_cell(t, "%s", j_str(r, "access"));
	table_cell(t, "%s", j_str(r, "squash"));
	if (r)
		table_cell(t, "%lld:%lld", j_num(r, "anon_uid"), j_num(r, "anon_gid"));
	else
		table_cell(t, "-");
	table_words(t, json_object_get(r, "sec"));
	table_cell(t, "%s", j_str(r, "tls"));
	table_cell(t, "%s",
		   !r							 ? "-"
		   : json_is_true(json_object_get(r, "privileged_port")) ? "privileged"
									 : "any");
	table_cell(t, "%s", j_str(r, "layouts"));
	table_cell(t, "%s", json_is_true(json_object_get(e, "served")) ? "-" : "not served");
}

static void exports_table(const json_t *j)
{
	const json_t *list = json_object_get(j, "exports"), *e, *r;
	const json_t *d = json_object_get(j, "ending");
	struct table t;
	size_t i, k;

	table_begin(&t, exports_columns);
	json_array_foreach(list, i, e)
	{
		const json_t *rules = json_object_get(e, "rules");

		if (!json_array_size(rules))
			rule_line(&t, e, NULL);
		json_array_foreach(rules, k, r) rule_line(&t, e, r);
	}
	table_end(&t);
	json_array_foreach(list, i, e) if (!json_is_true(json_object_get(e, "served")))
		weft_note(2, "%s: NOT SERVED: no such directory", j_str(e, "path"));
	if (json_is_true(json_object_get(d, "running")))
		weft_note(2,
			  "ending what the new exports no longer allow: %lld files examined, "
			  "ended for %lld",
			  j_num(d, "looked"), j_num(d, "ended"));
}

int cmd_exports(char **args)
{
	json_t *j;
	int rc = weft_ask("GET", "/v1/exports", NULL, &j);

	(void)args;
	return weft_show(rc, j, exports_table);
}

int cmd_exports_reload(char **args)
{
	json_t *j;
	int rc = weft_ask("PUT", "/v1/exports", "", &j);

	(void)args;
	return weft_show(rc, j, exports_table);
}
