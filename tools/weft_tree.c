/* SPDX-License-Identifier: Apache-2.0 */
/* weft_tree.c - does to all files below a directory what a command does to one. Each file has a
 * request of its own, so that the command may be interrupted and repeated: what was begun goes
 * on. */
#include "tools/weft_tool.h"
#include <stdlib.h>
#include <string.h>

int tree_begun(json_t *answer)
{
	long long job = j_num(answer, "job");

	json_decref(answer);
	return weft_option("wait") ? jobs_begun(job) : EXIT_DONE;
}

/* A refusal of one file does not stop the others. */
static int piece(const json_t *found, tree_fn *fn, struct tree_sum *sum)
{
	const json_t *f;
	size_t i;

	json_array_foreach(found, i, f)
	{
		int rc = fn(f);

		if (rc == TREE_PASSED)
			continue;
		sum->ts_files++;
		if (rc == EXIT_FAILED) {
			fprintf(stderr, "weft: %s is left unchanged\n", j_str(f, "path"));
			sum->ts_refused++;
		} else if (rc) {
			return rc;
		}
	}
	return EXIT_DONE;
}

static int weft_tree_show(const struct tree_sum *sum)
{
	struct jobs_sum ended = {0};
	int rc = weft_option("wait") ? jobs_wait_begun(&ended) : EXIT_DONE;

	if (rc == EXIT_NO_ANSWER)
		return rc;
	printf(weft_json ? "{\"files\":%lld,\"begun\":%lld,\"refused\":%lld"
			 : "%lld files: %lld begun, %lld refused",
	       sum->ts_files, sum->ts_files - sum->ts_refused, sum->ts_refused);
	if (weft_option("wait"))
		printf(weft_json ? ",\"done\":%lld,\"failed\":%lld,\"cancelled\":%lld"
				 : ", %lld done, %lld failed, %lld cancelled",
		       ended.js_done, ended.js_failed, ended.js_cancelled);
	puts(weft_json ? "}" : "");
	return sum->ts_refused ? EXIT_FAILED : rc;
}

int tree_each(const char *path, const char *key, const char *value, tree_fn *fn)
{
	struct tree_sum sum = {0};
	char *cursor = NULL;
	int rc;

	do {
		json_t *j;

		rc = weft_ask_with("GET", "/v1/find", NULL, &j, "path", path, "cursor", cursor, key,
				   value, NULL);
		free(cursor);
		cursor = NULL;
		if (rc)
			return rc;
		rc = piece(json_object_get(j, "found"), fn, &sum);
		if (!rc && json_is_string(json_object_get(j, "cursor")) &&
		    !(cursor = strdup(j_str(j, "cursor")))) {
			fputs("weft: out of memory\n", stderr);
			rc = EXIT_FAILED;
		}
		sum.ts_refused += j_num(j, "too_deep");
		json_decref(j);
	} while (!rc && cursor);
	free(cursor);
	return rc ? rc : weft_tree_show(&sum);
}
