/* SPDX-License-Identifier: Apache-2.0 */
/* weft_wrong.c - shows what is wrong: missing data servers, and files with fewer copies than they
 * should have. See weft_tool.h. */
#include "tools/weft_tool.h"
#include <stdlib.h>
#include <string.h>
#include <time.h>

static double now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

static void weft_wrong_add(json_t *j, const char *key, long long n)
{
	json_object_set_new(j, key, json_integer(j_num(j, key) + n));
}

/* Counts files for so many seconds, by the walk that weft find makes on the server. */
static int count_files(json_t *w, double seconds)
{
	double until = now() + seconds;
	char *cursor = NULL;
	int rc;

	do {
		json_t *j;

		rc = weft_ask_with("GET", "/v1/find", NULL, &j, "path", "/", "count", "1", "cursor",
				   cursor, NULL);
		free(cursor);
		cursor = NULL;
		if (rc)
			return rc;
		weft_wrong_add(w, "degraded", j_num(j, "degraded"));
		weft_wrong_add(w, "lost", j_num(j, "lost"));
		weft_wrong_add(w, "looked", j_num(j, "files"));
		weft_wrong_add(w, "too_deep", j_num(j, "too_deep"));
		if (json_is_string(json_object_get(j, "cursor")) &&
		    !(cursor = strdup(j_str(j, "cursor"))))
			rc = EXIT_FAILED;
		json_decref(j);
	} while (!rc && cursor && now() < until);
	json_object_set_new(w, "all", json_boolean(!rc && !cursor && !j_num(w, "too_deep")));
	free(cursor);
	return rc;
}

int wrong_ask(double seconds, json_t **out)
{
	json_t *w = json_pack("{s:[], s:i, s:i, s:i, s:i}", "servers", "degraded", 0, "lost", 0,
			      "looked", 0, "too_deep", 0),
	       *j, *d;
	size_t i;
	int rc = weft_ask("GET", "/v1/ds", NULL, &j);

	*out = w;
	if (rc)
		return rc;
	json_array_foreach(json_object_get(j, "ds"), i, d)
	{
		if (strcmp(j_str(d, "state"), "alive"))
			json_array_append_new(json_object_get(w, "servers"),
					      json_pack("{s:s, s:s}", "name", j_str(d, "name"),
							"state", j_str(d, "state")));
	}
	json_decref(j);
	return count_files(w, seconds);
}

bool wrong_any(const json_t *w)
{
	return j_num(w, "lost") || j_num(w, "degraded") ||
	       json_array_size(json_object_get(w, "servers"));
}

/* Does not mention what was not looked at. */
void wrong_print(const char *head, const json_t *w, long long not_in_sync)
{
	long long degraded = j_num(w, "degraded"), lost = j_num(w, "lost");
	const json_t *servers = json_object_get(w, "servers"), *d;
	bool all = json_is_true(json_object_get(w, "all"));
	const char *sep = "";
	char *text = NULL;
	size_t i, len;
	FILE *f = open_memstream(&text, &len);

	if (!f)
		return;
	fprintf(f, "%s%s: ", head,
		wrong_any(w) || not_in_sync ? "PROBLEMS FOUND" : "no known problems");
	json_array_foreach(servers, i, d)
	{
		fprintf(f, "%s%s is %s", sep, j_str(d, "name"), j_str(d, "state"));
		sep = ", ";
	}
	if (!json_array_size(servers))
		fputs("all data servers are alive", f);
	fprintf(f, "; %lld files lost, %lld degraded, of %s%lld examined just now", lost, degraded,
		all ? "all " : "the first ", j_num(w, "looked"));
	if (j_num(w, "too_deep"))
		fputs(", some directories nested too deeply", f);
	if (lost || degraded || !all)
		fprintf(f, " (\"weft find / --lost --degraded\" %s)",
			all ? "lists them" : "examines all");
	fclose(f);
	if (text)
		weft_note((int)strlen(head), "%s", text);
	free(text);
}
