/* SPDX-License-Identifier: Apache-2.0 */
/* weft_trace.c - weft trace: what a daemon did for requests, step by step. */
#include "tools/http_get.h"
#include "tools/weft_tool.h"
#include <stdlib.h>
#include <string.h>
#include <time.h>

static void trace_event(const json_t *e)
{
	printf("%12.1f us  thread %-2lld  %s", j_real(e, "us"), j_num(e, "thread"),
	       j_str(e, "text"));
	if (j_num(e, "inode"))
		printf("; inode %lld", j_num(e, "inode"));
	putchar('\n');
}

static void trace_one(const json_t *r)
{
	long long began = (long long)(j_real(r, "began_at") * 1000 + 0.5);
	time_t t = (time_t)(began / 1000);
	const json_t *e;
	char when[32];
	struct tm tm;
	size_t i;

	strftime(when, sizeof(when), "%Y-%m-%d %H:%M:%S", localtime_r(&t, &tm));
	if (json_is_null(json_object_get(r, "request")))
		printf("no request, from %s.%03lld on\n", when, began % 1000);
	else
		printf("request %s from %s, %s.%03lld%s\n", j_str(r, "request"), j_str(r, "client"),
		       when, began % 1000,
		       json_is_true(json_object_get(r, "whole")) ? ""
		       : json_is_null(json_object_get(r, "us"))	 ? ", under way"
								 : ", its start is overwritten");
	json_array_foreach(json_object_get(r, "events"), i, e) trace_event(e);
}

static void trace_table(const json_t *j)
{
	const json_t *r;
	size_t i;

	json_array_foreach(json_object_get(j, "requests"), i, r) trace_one(r);
}

/* What -f begins a look with: the last answer's next. *after is the caller's. */
static int trace_next(const json_t *j, char **after)
{
	const char *next = json_string_value(json_object_get(j, "next"));

	free(*after);
	*after = next ? strdup(next) : NULL;
	if (*after)
		return EXIT_DONE;
	if (next)
		fputs("weft: out of memory\n", stderr);
	else
		fprintf(stderr,
			"weft: trace: %s is too old for --follow: its answer has no \"next\"\n",
			weft_admin);
	return EXIT_FAILED;
}

/* One look. *after: NULL at the first; trace_next() moves it on where follow is set. */
static int trace_look(bool follow, char **after)
{
	const char *id = weft_option("id");
	json_t *j;
	int rc = weft_ask_with("GET", "/v1/trace", NULL, &j, "id", id, "client",
			       weft_option("client"), "inode", weft_option("inode"), "last",
			       *after ? NULL : weft_option("last"), "after", *after, NULL);

	if (rc)
		return rc;
	if (json_is_true(json_object_get(j, "restarted")))
		fputs("weft: the daemon was restarted: its request numbers begin again\n", stderr);
	if (*after && j_num(j, "left_out"))
		fprintf(stderr, "weft: %lld requests are left out here\n", j_num(j, "left_out"));
	if (follow) {
		rc = trace_next(j, after);
	} else if (id && !json_array_size(json_object_get(j, "requests"))) {
		fprintf(stderr, "weft: no events of request %s are kept\n", id);
		rc = EXIT_FAILED;
	}
	if (!rc)
		return weft_show(rc, j, trace_table);
	json_decref(j);
	return rc;
}

/* Returns when the daemon answers. */
static void trace_wait(void)
{
	struct http_answer ha = {0};

	do
		nanosleep(&(struct timespec){1, 0}, NULL);
	while (http_ask(weft_admin, "GET", "/v1/trace?last=1", NULL, &ha));
	free(ha.ha_body);
}

int cmd_trace(char **args)
{
	bool follow = weft_option("follow");
	char *after = NULL;
	int rc;

	(void)args;
	do {
		rc = trace_look(follow, &after);
		if (rc == EXIT_NO_ANSWER && after) { /* it may be restarting */
			trace_wait();
			rc = EXIT_DONE;
		} else if (!rc && follow) {
			nanosleep(&(struct timespec){1, 0}, NULL);
		}
	} while (!rc && follow);
	free(after);
	return rc;
}
