/* SPDX-License-Identifier: Apache-2.0 */
/* weft_trace.c - weft trace: what a daemon did for requests, step by step. */
#include "tools/weft.h"
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
	long long began = j_num(r, "began_ms");
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

int cmd_trace(char **args)
{
	bool follow = weft_option("follow");
	const char *last = weft_option("last");
	char *after = NULL;
	int rc;

	(void)args;
	do {
		json_t *j;

		rc = weft_ask_with("GET", "/v1/trace", NULL, &j, "id", weft_option("id"), "client",
				   weft_option("client"), "inode", weft_option("inode"), "last",
				   after ? NULL : last, "after", after, NULL);
		if (!rc && after && j_num(j, "left_out"))
			fprintf(stderr, "weft: %lld requests are left out here\n",
				j_num(j, "left_out"));
		if (!rc && follow) {
			free(after);
			after = strdup(j_str(j, "next"));
			rc = after ? 0 : EXIT_FAILED;
		}
		if (!rc && !weft_option("follow") && weft_option("id") &&
		    !json_array_size(json_object_get(j, "requests"))) {
			fprintf(stderr, "weft: no events of request %s are kept\n",
				weft_option("id"));
			json_decref(j);
			return EXIT_FAILED;
		}
		rc = weft_show(rc, j, trace_table);
		if (!rc && follow)
			nanosleep(&(struct timespec){1, 0}, NULL);
	} while (!rc && follow);
	free(after);
	return rc;
}
