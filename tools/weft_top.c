/* SPDX-License-Identifier: Apache-2.0 */
/* weft_top.c - weft top and weft heat: shows which compute jobs, clients, data servers, exports and
 * directories are busiest now, and what was used most lately. */
#include "tools/weft_tool.h"
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define RATE_COLUMNS                                                                               \
	{"OPS/S", COL_RIGHT}, {"READ", COL_RIGHT}, {"WRITTEN", COL_RIGHT}, {"MEAN", COL_RIGHT},    \
		{"P50", COL_RIGHT},                                                                \
	{                                                                                          \
		"P99", COL_RIGHT                                                                   \
	}
#define HEAT_COLUMNS                                                                               \
	{"HEAT", COL_RIGHT}, {"OPS/S", COL_RIGHT}, {"READ", COL_RIGHT},                            \
	{                                                                                          \
		"WRITTEN", COL_RIGHT                                                               \
	}
const struct column top_client_columns[] = {RATE_COLUMNS, {"CLIENT", COL_CUT}, {0}},
		    top_tag_columns[] = {RATE_COLUMNS, {"BUSY", COL_RIGHT}, {"JOB", COL_CUT}, {0}},
		    top_export_columns[] = {RATE_COLUMNS, {"EXPORT", COL_CUT | COL_TAIL}, {0}},
		    top_server_columns[] = {RATE_COLUMNS, {"SERVER", COL_CUT}, {0}},
		    top_directory_columns[] = {
			    RATE_COLUMNS, {"DIRECTORY", COL_CUT | COL_TAIL}, {0}};
const struct column heat_directory_columns[] = {HEAT_COLUMNS,
						{"DIRECTORY", COL_CUT | COL_TAIL},
						{0}},
		    heat_file_columns[] = {HEAT_COLUMNS, {"FILE", COL_CUT | COL_TAIL}, {0}};

/* v may be anything: the server adds it up from what clients report. */
static long long whole(double v)
{
	return v < 9e18 ? (long long)v : (long long)9e18;
}

static void rate_cells(struct table *t, const json_t *r)
{
	table_cell(t, "%.1f", j_real(r, "ops"));
	table_cell(t, "%s/s", size_text(whole(j_real(r, "read"))));
	table_cell(t, "%s/s", size_text(whole(j_real(r, "written"))));
	table_cell(t, "%s", latency_text(j_num(r, "mean_us")));
	table_cell(t, "%s", latency_text(j_num(r, "p50_us")));
	table_cell(t, "%s", latency_text(j_num(r, "p99_us")));
}

static void name_cell(struct table *t, const json_t *r)
{
	if (json_object_get(r, "inode"))
		table_path(t, r);
	else
		table_cell(t, "%s", j_str(r, "name"));
}

static void weft_top_part(const json_t *list, const struct column *columns)
{
	struct table t;
	const json_t *r;
	size_t i;

	table_begin(&t, columns);
	json_array_foreach(list, i, r)
	{
		rate_cells(&t, r);
		if (columns == top_tag_columns)
			table_number(&t, r, "clients");
		name_cell(&t, r);
	}
	table_end(&t);
}

/* The tables of the answer: one is shown with --by, else all. That of compute jobs is left out
 * where none works, and that of exports where there is only one. */
static const struct top_part {
	const char *tp_by, *tp_list;
	const struct column *tp_columns;
	size_t tp_least;
} top_parts[] = {
	{"job", "tags", top_tag_columns, 1},
	{"client", "clients", top_client_columns, 0},
	{"server", "servers", top_server_columns, 0},
	{"export", "exports", top_export_columns, 2},
	{"directory", "directories", top_directory_columns, 0},
};
#define TOP_PARTS (sizeof(top_parts) / sizeof(top_parts[0]))

static const struct top_part *part_named(const char *by)
{
	for (size_t i = 0; i < TOP_PARTS; i++)
		if (!strcmp(by, top_parts[i].tp_by))
			return &top_parts[i];
	return NULL;
}

static void top_table(const json_t *j)
{
	const char *by = weft_option("by");
	bool more = false;

	for (size_t i = 0; i < TOP_PARTS; i++) {
		const struct top_part *p = &top_parts[i];
		const json_t *list = json_object_get(j, p->tp_list);

		if (by ? strcmp(by, p->tp_by) != 0 : json_array_size(list) < p->tp_least)
			continue;
		if (more)
			putchar('\n');
		more = true;
		weft_top_part(list, p->tp_columns);
	}
}

/* Returns the number of this option, or the fallback, or -1 if it is no such number. */
static long weft_top_number(const char *name, long fallback)
{
	const char *text = weft_option(name);
	char *end;
	long n = text ? strtol(text, &end, 10) : fallback;

	return text && (*end || !*text || n < 1 || n > 1000000) ? -1 : n;
}

/* Runs until it is interrupted. With -n it prints that many times, for scripts, without clearing
 * the screen. */
int cmd_top(char **args)
{
	long times = weft_top_number("times", 0);
	bool live = !times && !weft_json && isatty(STDOUT_FILENO);
	int rc = EXIT_DONE;

	if (times < 0)
		return weft_usage_error("top: N is a number from 1 to 1000000");
	if (weft_option("by") && !part_named(weft_option("by")))
		return weft_usage_error("top: --by takes job, client, server, export or directory");
	if (!times && !live)
		times = 1;
	for (long n = 0; !rc && (live || n < times); n++) {
		json_t *j;

		if (n)
			nanosleep(&(struct timespec){1, 0}, NULL);
		rc = weft_ask_with("GET", "/v1/top", NULL, &j, "path", args[0], "rows",
				   weft_option("rows"), NULL);
		if (!rc && live)
			fputs("\033[H\033[2J", stdout);
		else if (!rc && n && !weft_json)
			putchar('\n');
		rc = weft_show(rc, j, top_table);
	}
	return rc;
}

static void heat_part(const json_t *list, const struct column *columns)
{
	struct table t;
	const json_t *r;
	size_t i;

	table_begin(&t, columns);
	json_array_foreach(list, i, r)
	{
		table_cell(&t, "%.0f", j_real(r, "heat"));
		table_cell(&t, "%.1f", j_real(r, "ops"));
		table_cell(&t, "%s/s", size_text(whole(j_real(r, "read"))));
		table_cell(&t, "%s/s", size_text(whole(j_real(r, "written"))));
		name_cell(&t, r);
	}
	table_end(&t);
}

static void heat_table(const json_t *j)
{
	heat_part(json_object_get(j, "directories"), heat_directory_columns);
	putchar('\n');
	heat_part(json_object_get(j, "files"), heat_file_columns);
}

int cmd_heat(char **args)
{
	json_t *j;
	int rc = weft_ask_with("GET", "/v1/heat", NULL, &j, "path", args[0], "rows",
			       weft_option("rows"), NULL);

	return weft_show(rc, j, heat_table);
}
