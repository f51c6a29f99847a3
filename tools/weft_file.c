/* SPDX-License-Identifier: Apache-2.0 */
/* weft_file.c - weft file: shows where a file lies. */
#include "tools/weft_tool.h"
#include <stdlib.h>

const struct column file_columns[] = {{"MIRROR", COL_RIGHT},
				      {"STRIPE", COL_RIGHT},
				      {"STATE", COL_STATE},
				      {"SERVER", COL_CUT},
				      {"SIZE", COL_RIGHT},
				      {"OBJECT", COL_CUT | COL_TAIL},
				      {"ADDRESSES", COL_CUT | COL_ROOM},
				      {0}};

static void file_table(const json_t *j)
{
	const json_t *mirror, *object;
	struct table t;
	size_t m, o;

	printf("inode %lld, %lld bytes, unit %s", j_num(j, "inode"), j_num(j, "size"),
	       size_text(j_num(j, "unit")));
	if (j_num(j, "threshold"))
		printf("\nthrough the metadata server while smaller than %s",
		       size_text(j_num(j, "threshold")));
	putchar('\n');
	table_begin(&t, file_columns);
	json_array_foreach(json_object_get(j, "mirrors"), m, mirror)
	{
		json_array_foreach(json_object_get(mirror, "objects"), o, object)
		{
			table_cell(&t, "%zu", m);
			table_cell(&t, "%zu", o);
			table_cell(&t, "%s", j_str(object, "state"));
			table_cell(&t, "%s", j_str(object, "ds"));
			table_number(&t, object, "size");
			table_cell(&t, "%s", j_str(object, "object"));
			table_words(&t, json_object_get(object, "addr"));
		}
	}
	table_end(&t);
}

/* Lists the clients that hold a layout of the file. */
static void layouts_line(const json_t *j)
{
	char *text = NULL;
	const json_t *l;
	size_t i, len;
	FILE *f = open_memstream(&text, &len);

	if (!f)
		return;
	json_array_foreach(json_object_get(j, "layouts"), i, l) fprintf(
		f, "%s%s (%s%s)", i ? ", " : "layouts: ", j_str(l, "name"), j_str(l, "mode"),
		json_is_true(json_object_get(l, "recalled")) ? ", recalled" : "");
	fclose(f);
	if (text && *text)
		weft_note(2, "%s", text);
	free(text);
}

static void repair_lines(const json_t *j)
{
	const json_t *e;
	size_t i;

	json_array_foreach(json_object_get(j, "running"), i, e)
		weft_note(2, "object %lld on %s: being repaired from %s, %s of %s done",
			  j_num(e, "object"), j_str(e, "ds"), j_str(e, "from"),
			  size_text(j_num(e, "done")), size_text(j_num(e, "size")));
	json_array_foreach(json_object_get(j, "waiting"), i, e)
		weft_note(2, "object %lld on %s waits: %s", j_num(e, "object"), j_str(e, "ds"),
			  j_str(e, "why"));
}

static int more(const char *target, const char *path, void (*lines)(const json_t *j))
{
	json_t *j;
	int rc = weft_ask_path("GET", target, path, NULL, &j);

	if (rc)
		return rc;
	lines(j);
	json_decref(j);
	return weft_flush();
}

int cmd_file_show(char **args)
{
	json_t *j;
	int rc = weft_ask_path("GET", "/v1/file", args[0], NULL, &j);

	rc = weft_show(rc, j, file_table);
	if (!rc && !weft_json)
		rc = more("/v1/layouts", args[0], layouts_line);
	if (!rc && !weft_json)
		rc = more("/v1/repair", args[0], repair_lines);
	return rc;
}
