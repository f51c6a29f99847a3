/* SPDX-License-Identifier: Apache-2.0 */
/* weft_ds.c - weft ds: the data servers. */
#include "tools/weft_tool.h"
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* Formats a local time: the hour if it is today, otherwise the day. */
static const char *moment(long long when)
{
	static char out[24];
	time_t t = (time_t)when, now = time(NULL);
	struct tm at, today;

	if (!when || !localtime_r(&t, &at) || !localtime_r(&now, &today))
		return "-";
	strftime(out, sizeof(out),
		 at.tm_yday == today.tm_yday && at.tm_year == today.tm_year ? "%H:%M:%S"
									    : "%Y-%m-%d",
		 &at);
	return out;
}

const struct column ds_columns[] = {{"NUM", COL_RIGHT},
				    {"NAME", COL_CUT},
				    {"STATE", COL_STATE},
				    {"DRAIN", COL_STATE | COL_FILLED},
				    {"SPACE", COL_STATE | COL_FILLED},
				    {"SINCE", 0},
				    {"WEIGHT", COL_RIGHT},
				    {"SIZE", COL_RIGHT},
				    {"USED", COL_RIGHT},
				    {"LOAD", COL_RIGHT},
				    {"LATENCY", COL_RIGHT},
				    {"LABELS", COL_CUT | COL_FILLED | COL_ROOM},
				    {"ADDRESSES", COL_CUT | COL_ROOM},
				    {"KIND", COL_MORE},
				    {"ID", COL_MORE},
				    {0}};

static void drain_cell(struct table *t, const json_t *d)
{
	if (json_is_true(json_object_get(d, "stuck")))
		table_cell(t, "stuck");
	else if (json_is_integer(json_object_get(d, "left")) && j_num(d, "left"))
		table_cell(t, "%lld left", j_num(d, "left"));
	else
		table_cell(t, "%s", j_str(d, "drain"));
}

/* LATENCY: how long a read of 64 KiB takes, as clients report it. */
static void ds_line(struct table *t, const json_t *d)
{
	long long size = j_num(d, "capacity"), used = size - j_num(d, "available");
	bool known = size > 0; /* it has told */

	table_number(t, d, "number");
	table_cell(t, "%s", j_str(d, "name"));
	table_cell(t, "%s", j_str(d, "state"));
	drain_cell(t, d);
	table_cell(t, "%s", strcmp(j_str(d, "space"), "ok") != 0 ? j_str(d, "space") : "-");
	table_cell(t, "%s", moment(j_num(d, "since_at")));
	table_cell(t, "%g", j_real(d, "weight"));
	table_cell(t, "%s", known ? size_text(size) : "-");
	table_cell(t, "%s", known ? size_text(used) : "-");
	table_cell(t, "%.1f", j_real(d, "load"));
	table_cell(t, "%s", latency_text(j_num(d, "latency_us")));
	table_labels(t, json_object_get(d, "labels"));
	table_words(t, json_object_get(d, "addr"));
	table_cell(t, "%s", j_str(d, "kind"));
	table_cell(t, "%s", j_str(d, "id"));
}

/* What a table has no room for. */
static void ds_notes(const json_t *d)
{
	if (json_is_true(json_object_get(d, "stuck")))
		weft_note(2, "%s: cannot be drained: %lld orders fail there (\"weft orders\")",
			  j_str(d, "name"), j_num(d, "failing"));
	if (json_is_string(json_object_get(d, "why")))
		weft_note(2, "%s: %s", j_str(d, "name"), j_str(d, "why"));
}

static void ds_table(const json_t *j)
{
	const json_t *list = json_object_get(j, "ds"), *d;
	struct table t;
	size_t i;

	table_begin(&t, ds_columns);
	json_array_foreach(list, i, d) ds_line(&t, d);
	table_end(&t);
	json_array_foreach(list, i, d) ds_notes(d);
}

/* Shows one server, after a change. */
static void ds_one(const json_t *j)
{
	struct table t;

	table_begin(&t, ds_columns);
	ds_line(&t, j);
	table_end(&t);
	ds_notes(j);
}

int cmd_ds_list(char **args)
{
	json_t *j;
	int rc = weft_ask("GET", "/v1/ds", NULL, &j);

	(void)args;
	return weft_show(rc, j, ds_table);
}

int cmd_ds_weight(char **args)
{
	json_t *j;
	int rc = weft_ask_with("PUT", "/v1/ds/weight", args[1], &j, "ds", args[0], NULL);

	return weft_show(rc, j, ds_one);
}

/* Sends what follows the first argument in one request: all of it takes effect, or nothing. */
static int weft_ds_words(const char *method, const char *what, const char *arg, char **args)
{
	size_t len = 0;
	char *body;
	json_t *j;
	int rc;

	for (char **a = args + 1; *a; a++)
		len += strlen(*a) + 1;
	body = calloc(1, len + 1);
	if (!body)
		return EXIT_FAILED;
	for (char **a = args + 1; *a; a++) {
		strcat(body, *a);
		if (a[1])
			strcat(body, ",");
	}
	rc = weft_ask_with(method, what, body, &j, arg, args[0], NULL);
	free(body);
	return weft_show(rc, j, ds_one);
}

int cmd_ds_drain(char **args)
{
	bool seen = isatty(STDERR_FILENO) && weft_option("wait");
	json_t *j;
	int rc = weft_ask_with("PUT", "/v1/ds/drain", "", &j, "ds", args[0], NULL);

	while (!rc && weft_option("wait") && strcmp(j_str(j, "drain"), "drained")) {
		if (seen)
			fprintf(stderr, "\r%lld objects left\033[K", j_num(j, "left"));
		json_decref(j);
		usleep(300000);
		/* Another administrator may cancel the drain. */
		rc = weft_ask_with("GET", "/v1/ds/one", NULL, &j, "ds", args[0], NULL);
		if (!rc && !json_is_string(json_object_get(j, "drain"))) {
			fprintf(stderr, "weft: %s is no longer draining: the drain was cancelled\n",
				args[0]);
			json_decref(j);
			return EXIT_FAILED;
		}
		/* What the server cannot fence or delete stays there, however long this command
		 * waits. */
		if (!rc && json_is_true(json_object_get(j, "stuck"))) {
			fprintf(stderr,
				"%sweft: %s cannot be drained: it is alive, but %lld orders to "
				"fence, truncate or delete objects fail there (see the metadata "
				"server's log). Repair its drives, or run \"weft ds kill %s\": "
				"objects that have another copy are then rebuilt on other data "
				"servers\n",
				seen ? "\r\033[K" : "", args[0], j_num(j, "failing"), args[0]);
			json_decref(j);
			return EXIT_FAILED;
		}
	}
	if (seen)
		fputs("\r\033[K", stderr);
	return weft_show(rc, j, ds_one);
}

int cmd_ds_undrain(char **args)
{
	json_t *j;
	int rc = weft_ask_with("PUT", "/v1/ds/undrain", "", &j, "ds", args[0], NULL);

	return weft_show(rc, j, ds_one);
}

static int ds_put(const char *what, const char *ds)
{
	json_t *j;
	int rc = weft_ask_with("PUT", what, "", &j, "ds", ds, NULL);

	return weft_show(rc, j, ds_one);
}

int cmd_ds_kill(char **args)
{
	if (!weft_sure("%s is declared dead and fenced, even if it works.\nFiles whose only copy "
		       "is there cannot be read or written until \"weft ds admit %s\";\n"
		       "of other files the copies are rebuilt on other data servers.",
		       args[0], args[0]))
		return EXIT_FAILED;
	return ds_put("/v1/ds/kill", args[0]);
}

int cmd_ds_admit(char **args)
{
	return ds_put("/v1/ds/admit", args[0]);
}

static void forgotten_table(const json_t *j)
{
	const json_t *path;
	size_t i;

	json_array_foreach(json_object_get(j, "lost"), i, path)
		printf("lost: %s\n", json_is_string(path) ? json_string_value(path) : "?");
	if (j_num(j, "lost_files") > (long long)json_array_size(json_object_get(j, "lost")))
		printf("lost: %lld more\n",
		       j_num(j, "lost_files") -
			       (long long)json_array_size(json_object_get(j, "lost")));
	printf("the record of %s is removed; %lld files had objects there, %lld files are lost\n",
	       j_str(j, "forgotten"), j_num(j, "files"), j_num(j, "lost_files"));
	if (json_object_get(j, "left"))
		printf("not all of weft's objects could be removed from it: %s\n",
		       j_str(j, "left"));
}

int cmd_ds_forget(char **args)
{
	json_t *j;
	int rc;

	if (!weft_sure(weft_option("force")
			       ? "The record of %s is removed for good. ALL FILES WHOSE ONLY COPY "
				 "IS THERE ARE LOST:\nreading or writing them fails with EIO."
			       : "The record of %s is removed for good. The metadata server "
				 "refuses this if a file needs it.",
		       args[0]))
		return EXIT_FAILED;
	rc = weft_ask_with("PUT", "/v1/ds/forget", "", &j, "ds", args[0], "force",
			   weft_option("force") ? "1" : NULL, NULL);

	return weft_show(rc, j, forgotten_table);
}

int cmd_ds_group(char **args)
{
	return weft_ds_words("PUT", "/v1/ds/labels", "ds", args);
}

int cmd_ds_add(char **args)
{
	return weft_ds_words("POST", "/v1/ds", "url", args);
}
