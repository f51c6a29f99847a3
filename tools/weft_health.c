/* SPDX-License-Identifier: Apache-2.0 */
/* weft_health.c - weft health: says whether anything is wrong, and what to do. Its exit status is
 * that of a monitoring plugin: 0 OK, 1 WARN, 2 ERROR; 3 if there is no answer. */
#include "tools/weft_tool.h"
#include <string.h>

enum { HEALTH_OK = 0, HEALTH_WARN = 1, HEALTH_ERROR = 2, SERVICE_UNAVAILABLE = 503 };

static int weft_health_level(const json_t *j)
{
	const char *word = j_str(j, "health");

	return !strcmp(word, "ok") ? HEALTH_OK : !strcmp(word, "warn") ? HEALTH_WARN : HEALTH_ERROR;
}

/* The first line says it all: monitoring shows no other. */
static void health_table(const json_t *j)
{
	static const char *const word[] = {"OK", "WARN", "ERROR"};
	const json_t *list = json_object_get(j, "reasons"), *r;
	const char *sep = ": ";
	size_t i;

	fputs(word[weft_health_level(j)], stdout);
	json_array_foreach(list, i, r)
	{
		if (!strcmp(j_str(r, "severity"), "info"))
			continue;
		printf("%s%s", sep, j_str(r, "code"));
		sep = ", ";
	}
	puts(*sep == ':' ? ": nothing is wrong" : "");
	json_array_foreach(list, i, r) printf("%-5s %s: %s\n      do: %s\n", j_str(r, "severity"),
					      j_str(r, "code"), j_str(r, "text"), j_str(r, "hint"));
}

int cmd_health(char **args)
{
	json_t *j;
	int status = 0, level, rc = weft_ask_status("GET", "/v1/health", NULL, &status, &j);

	(void)args;
	if (rc)
		return EXIT_NO_ANSWER;
	/* A server that does not serve says why. */
	if ((status != 200 && status != SERVICE_UNAVAILABLE) || !json_object_get(j, "health")) {
		weft_refused(status, j);
		return EXIT_NO_ANSWER;
	}
	level = weft_health_level(j);
	rc = weft_show(EXIT_DONE, j, health_table);
	return rc ? EXIT_NO_ANSWER : level;
}
