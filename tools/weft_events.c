/* SPDX-License-Identifier: Apache-2.0 */
/* weft_events.c - weft events: the journal. With --json each event is a line: there may be more
 * events than one answer holds, and --follow never ends. */
#include "tools/weft_tool.h"
#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define LAST "100" /* shown without options */

/* Parses a time of day, a date, or an age such as 10m, 2h, 3d or 45s. Returns seconds of the epoch,
 * or -1 if it is none of these. */
static long long time_of(const char *text)
{
	static const char *const forms[] = {
		"%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M", "%Y-%m-%dT%H:%M",
		"%Y-%m-%d",	     "%H:%M:%S",	  "%H:%M"};
	static const struct {
		char unit;
		long long seconds;
	} units[] = {{'s', 1}, {'m', 60}, {'h', 3600}, {'d', 86400}, {'w', 604800}};
	time_t now = time(NULL);
	char *end;
	long long n = strtoll(text, &end, 10);

	if (isdigit((unsigned char)*text) && *end && !end[1] && n < 1000000)
		for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++)
			if (units[i].unit == *end)
				return n * units[i].seconds > now ? 0 : now - n * units[i].seconds;
	for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
		struct tm tm;

		localtime_r(&now, &tm);
		tm.tm_sec = 0;
		if (i == 4)
			tm.tm_hour = tm.tm_min = 0;
		tm.tm_isdst = -1;
		end = strptime(text, forms[i], &tm);
		if (end && !*end)
			return mktime(&tm) < 0 ? 0 : mktime(&tm);
	}
	return -1;
}

static void event_line(const json_t *e)
{
	const char *path = json_string_value(json_object_get(e, "path")),
		   *subject = json_string_value(json_object_get(e, "subject"));
	time_t t = (time_t)j_real(e, "happened_at");
	char when[32];
	struct tm tm;

	if (weft_json) {
		json_dumpf(e, stdout, JSON_COMPACT);
		putchar('\n');
		return;
	}
	strftime(when, sizeof(when), "%Y-%m-%d %H:%M:%S", localtime_r(&t, &tm));
	printf("%s  %-16s  %-16s  ", when, j_str(e, "kind"), subject ? subject : "-");
	if (path)
		printf("%s: ", path);
	else if (j_num(e, "inode"))
		printf("inode %lld: ", j_num(e, "inode"));
	puts(j_str(e, "text"));
}

/* Shows one page, and moves *after on. */
static int page(const char *since, const char *kind, const char *last, long long *after, bool *more)
{
	const json_t *e;
	char text[32];
	json_t *j;
	size_t i;
	int rc;

	snprintf(text, sizeof(text), "%lld", *after);
	rc = weft_ask_with("GET", "/v1/events", NULL, &j, "after", text, "since", since, "kind",
			   kind, "last", last, NULL);
	if (rc)
		return rc;
	*after = j_num(j, "next");
	*more = json_is_true(json_object_get(j, "more"));
	json_array_foreach(json_object_get(j, "events"), i, e) event_line(e);
	json_decref(j);
	return weft_flush();
}

int cmd_events(char **args)
{
	const char *since = weft_option("since"), *kind = weft_option("kind"),
		   *last = weft_option("last");
	bool follow = weft_option("follow"), more = true;
	long long after = 0, from = since ? time_of(since) : 0;
	char text[32];
	int rc;

	(void)args;
	if (from < 0)
		return weft_usage_error("events: TIME is a date and time such as \"2030-01-31 "
					"12:00\", a time of day, or an age: 45s, 10m, 2h, 3d, 1w");
	snprintf(text, sizeof(text), "%lld", from);
	since = since ? text : NULL;
	if (!last && !since && !kind)
		last = LAST;
	rc = page(since, kind, last, &after, &more);
	while (!rc && (more || follow)) {
		if (!more)
			nanosleep(&(struct timespec){1, 0}, NULL);
		rc = page(since, kind, NULL, &after, &more);
	}
	return rc;
}
