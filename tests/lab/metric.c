/* SPDX-License-Identifier: Apache-2.0 */
/*
 * metric.c - asks daemons for their metrics, for the lab's scripts:
 *
 *   metric CLUSTER DAEMON[,DAEMON...] NAME [LABEL=VALUE]...
 *           prints the sum of the daemons' series that have these labels. CLUSTER is weft-dev's
 *           folder. Fails when no series of a daemon matches: every series exists from the start.
 *   metric -g SOCKET PATH
 *           prints what a daemon answers there.
 *
 * metric.py does the first, too. Scripts ask many times a second, and Python takes longer to start
 * than all the rest.
 */
#include "tools/http_get.h"
#include <err.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* line is `name{a="b",c="d"} 1` or `name 1`. *value: that of a series that was asked for. */
static bool matches(const char *line, const char *name, char *const *labels, double *value)
{
	size_t len = strlen(name);
	const char *end = line + len;

	if (strncmp(line, name, len) || (*end != '{' && *end != ' '))
		return false;
	if (*end == '{')
		end = strchr(end, '}');
	for (; end && *labels; labels++) {
		const char *equals = strchr(*labels, '=');
		char want[256];
		const char *at;
		int n;

		if (!equals)
			errx(2, "%s is no LABEL=VALUE", *labels);
		n = (int)(equals + 1 - *labels);
		if (snprintf(want, sizeof(want), "%.*s\"%s\"", n, *labels, equals + 1) >=
		    (int)sizeof(want))
			errx(2, "%s is longer than a label is", *labels);
		at = strstr(line + len, want);
		if (!at || at > end || (at[-1] != '{' && at[-1] != ','))
			return false;
	}
	return end && sscanf(end + (*end == '}'), " %lf", value) == 1;
}

/* malloc'd, NUL-terminated; ends the program without an answer of 200. */
static char *get(const char *where, const char *path)
{
	struct http_answer a;
	int e = http_ask(where, "GET", path, NULL, &a);

	if (e)
		errx(1, "%s: %s", where, strerror(-e));
	if (a.ha_status != 200)
		errx(1, "%s%s answers %d", where, path, a.ha_status);
	return a.ha_body;
}

static double sum(const char *cluster, const char *daemon, const char *name, char *const *labels)
{
	char where[PATH_MAX + 16], *body;
	double total = 0, value;
	bool found = false;

	snprintf(where, sizeof(where), "%s/run/%s.sock", cluster, daemon);
	body = get(where, "/metrics");
	for (char *rest = body, *line; (line = strsep(&rest, "\n"));) {
		if (!matches(line, name, labels, &value))
			continue;
		total += value;
		found = true;
	}
	if (!found)
		errx(1, "%s has no series %s with these labels", daemon, name);
	free(body);
	return total;
}

int main(int argc, char **argv)
{
	char cluster[PATH_MAX];
	double total = 0;

	if (argc == 4 && strcmp(argv[1], "-g") == 0) {
		printf("%s\n", get(argv[2], argv[3]));
		return 0;
	}
	if (argc < 4)
		errx(2, "usage: metric CLUSTER DAEMON[,DAEMON...] NAME [LABEL=VALUE]...");
	if (!realpath(argv[1], cluster))
		err(1, "%s", argv[1]);
	for (char *rest = argv[2], *daemon; (daemon = strsep(&rest, ","));)
		total += sum(cluster, daemon, argv[3], argv + 4);
	if (total == (double)(long long)total)
		printf("%lld\n", (long long)total);
	else
		printf("%.17g\n", total);
	return 0;
}
