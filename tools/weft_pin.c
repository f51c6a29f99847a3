/* SPDX-License-Identifier: Apache-2.0 */
/* weft_pin.c - weft pin, warm and unpin: copies of files on other data servers for a time. */
#include "tools/weft_tool.h"
#include <stdlib.h>
#include <string.h>
#include <time.h>

const struct column pin_columns[] = {{"PIN", COL_RIGHT | COL_MORE},
				     {"KIND", 0},
				     {"GROUP", COL_CUT},
				     {"STATE", 0},
				     {"COPIES", COL_RIGHT},
				     {"SIZE", COL_RIGHT},
				     {"UNTIL", 0},
				     {"NONE", COL_RIGHT | COL_FILLED},
				     {"PATH", COL_CUT | COL_TAIL},
				     {0}};

static const char *pin_until(char out[20], const json_t *p)
{
	time_t at = (time_t)j_num(p, "ends_at");
	struct tm tm;

	if (!at || !localtime_r(&at, &tm) || !strftime(out, 20, "%Y-%m-%d %H:%M", &tm))
		strcpy(out, "unpinned");
	return out;
}

static void pin_table(const json_t *j)
{
	const json_t *list = json_object_get(j, "pins"), *p;
	char until[20];
	struct table t;
	size_t i;

	if (!json_array_size(list)) {
		puts("nothing is pinned or warmed");
		return;
	}
	table_begin(&t, pin_columns);
	json_array_foreach(list, i, p)
	{
		table_cell(&t, "%lld", j_num(p, "id"));
		table_cell(&t, json_is_true(json_object_get(p, "warm")) ? "warm" : "pin");
		table_cell(&t, "%s", j_str(p, "group"));
		table_cell(&t, "%s", j_str(p, "state"));
		table_cell(&t, "%lld", j_num(p, "copies"));
		table_cell(&t, "%s", size_text(j_num(p, "copies_bytes")));
		table_cell(&t, "%s", pin_until(until, p));
		table_cell(&t, j_num(p, "without_copy") ? "%lld" : "-", j_num(p, "without_copy"));
		table_path(&t, p);
	}
	table_end(&t);
}

int cmd_pin_list(char **args)
{
	json_t *j;
	int rc = weft_ask("GET", "/v1/pins", NULL, &j);

	(void)args;
	return weft_show(rc, j, pin_table);
}

/* 90s, 30m, 12h, 7d as seconds; NULL: it is no such time. */
static const char *pin_seconds(const char *text, char out[24])
{
	static const char units[] = "smhd";
	static const long of[] = {1, 60, 3600, 86400};
	char *end;
	long n = strtol(text, &end, 10);
	const char *unit = *end ? strchr(units, *end) : NULL;

	if (end == text || n < 1 || n > 1000000000 || !unit || end[1])
		return NULL;
	snprintf(out, 24, "%lld", (long long)n * of[unit - units]);
	return out;
}

static bool pin_failed(const json_t *j)
{
	return !strcmp(j_str(j, "state"), "failed") || !strcmp(j_str(j, "state"), "cancelled");
}

/* Waits until the server knows whether there is room. EXIT_FAILED, with a line: there is not. */
static int pin_counted(const char *path, long long job)
{
	char id[24];
	int rc = EXIT_DONE;

	snprintf(id, sizeof(id), "%lld", job);
	for (unsigned step = 0; !rc; step++) {
		bool counts;
		json_t *j;

		rc = weft_ask_with("GET", "/v1/jobs/one", NULL, &j, "id", id, NULL);
		if (rc)
			break;
		counts = !strcmp(j_str(j, "phase"), "count");
		if (pin_failed(j)) {
			fprintf(stderr, "weft: %s: %s\n", path, j_str(j, "error"));
			rc = EXIT_FAILED;
		}
		json_decref(j);
		if (!counts)
			break;
		weft_wait_step(step, "counting files");
	}
	weft_wait_over();
	return rc;
}

static int pin_ask(const char *path, const char *warm)
{
	const char *time = weft_option("for");
	char seconds[24];
	json_t *j;
	long long job;
	int rc;

	if (time && !(time = pin_seconds(time, seconds)))
		return weft_usage_error("--for: expected a time such as 90s, 30m, 12h or 7d");
	rc = weft_ask_with("PUT", "/v1/pins", "", &j, "path", path, "group", weft_option("group"),
			   "for_s", time, "warm", warm, "recursive",
			   weft_option("recursive") ? "1" : NULL, NULL);
	if (rc)
		return rc;
	job = j_num(json_array_get(json_object_get(j, "pins"), 0), "job");
	json_decref(j);
	if (job)
		rc = pin_counted(path, job);
	if (!rc && weft_option("wait"))
		rc = jobs_wait_one(job);
	return rc ? rc : cmd_pin_list(NULL);
}

int cmd_pin(char **args)
{
	return pin_ask(args[0], NULL);
}

int cmd_warm(char **args)
{
	return pin_ask(args[0], "1");
}

int cmd_unpin(char **args)
{
	bool path = args[0][0] == '/';
	const json_t *p;
	int rc, ended = EXIT_DONE;
	json_t *j;
	size_t i;

	rc = weft_ask_with("DELETE", "/v1/pins", "", &j, path ? "path" : "id", args[0], "group",
			   weft_option("group"), NULL);
	if (!rc && weft_option("wait"))
		json_array_foreach(json_object_get(j, "pins"), i, p)
		{
			int one = j_num(p, "job") ? jobs_wait_one(j_num(p, "job")) : EXIT_DONE;

			ended = one ? one : ended;
		}
	rc = weft_show(rc, j, pin_table);
	return rc ? rc : ended;
}
