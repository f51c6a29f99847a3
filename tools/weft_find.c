/* SPDX-License-Identifier: Apache-2.0 */
/* weft_find.c - weft find: finds files by where they lie. It prints as it goes: the server walks a
 * little for each request. */
#include "tools/weft_tool.h"
#include <stdlib.h>
#include <string.h>

static void weft_find_found_line(const json_t *f)
{
	size_t i, stale = 0, n = json_array_size(json_object_get(f, "objects"));
	const json_t *o;

	if (weft_json) {
		json_dumpf(f, stdout, JSON_COMPACT);
		putchar('\n');
		return;
	}
	json_array_foreach(json_object_get(f, "objects"), i, o) stale +=
		strcmp(j_str(o, "state"), "in-sync") != 0;
	if (stale && weft_option("stale"))
		printf("%s  (%zu of %zu objects)\n", j_str(f, "path"), stale, n);
	else
		puts(j_str(f, "path"));
}

int cmd_find(char **args)
{
	const char *ds = weft_option("on-ds"), *policy = weft_option("policy"),
		   *stale = weft_option("stale") ? "1" : NULL;
	const char *lost = weft_option("lost") ? "1" : NULL,
		   *degraded = weft_option("degraded") ? "1" : NULL;
	char *cursor = NULL;
	long long deep = 0;
	int rc;

	if (!ds && !policy && !stale && !lost && !degraded)
		return weft_usage_error("find: no condition: give --on-ds DS, --stale, --lost, "
					"--degraded or --policy TEXT");
	do {
		const json_t *f;
		size_t i;
		json_t *j;

		rc = weft_ask_with("GET", "/v1/find", NULL, &j, "path", args[0] ? args[0] : "/",
				   "ds", ds, "stale", stale, "lost", lost, "degraded", degraded,
				   "policy", policy, "cursor", cursor, NULL);
		free(cursor);
		cursor = NULL;
		if (rc)
			return rc;
		json_array_foreach(json_object_get(j, "found"), i, f) weft_find_found_line(f);
		deep += j_num(j, "too_deep");
		if (json_is_string(json_object_get(j, "cursor")) &&
		    !(cursor = strdup(j_str(j, "cursor")))) {
			fputs("weft: out of memory\n", stderr);
			rc = EXIT_FAILED;
		}
		json_decref(j);
		if (!rc)
			rc = weft_flush();
	} while (!rc && cursor);
	free(cursor);
	if (deep)
		fprintf(stderr, "weft: %lld directories are nested too deeply and were skipped\n",
			deep);
	return !rc && deep ? EXIT_FAILED : rc;
}
