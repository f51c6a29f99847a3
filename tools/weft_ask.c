/* SPDX-License-Identifier: Apache-2.0 */
/* weft_ask.c - sends the commands' requests to the server, shows the answers. See weft_tool.h. */
#include "tools/weft_tool.h"
#include "tools/http_get.h"
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

int weft_ask_status(const char *method, const char *target, const char *body, int *status,
		    json_t **out)
{
	struct http_answer ha = {0};
	json_error_t je;
	int err = http_ask(weft_admin, method, target, body, &ha);

	*out = NULL;
	if (err == -EINVAL && strncmp(weft_admin, "unix:", 5)) {
		char what[200];

		snprintf(what, sizeof(what),
			 "--admin: \"%.100s\" is no address: expected unix:/path or "
			 "127.0.0.1:port",
			 weft_admin);
		return weft_usage_error(what);
	}
	if (err) {
		fprintf(stderr, "weft: no answer from %s: %s\n", weft_admin, ha.ha_why);
		return EXIT_NO_ANSWER;
	}
	*status = ha.ha_status;
	*out = json_loads(ha.ha_body, 0, &je);
	free(ha.ha_body);
	if (*out)
		return EXIT_DONE;
	fprintf(stderr, "weft: %s answered %d, but not in JSON\n", weft_admin, ha.ha_status);
	/* A refusal by the HTTP layer (a path that is too long) is an answer. */
	return ha.ha_status == 200 ? EXIT_NO_ANSWER : EXIT_FAILED;
}

int weft_refused(int status, json_t *j)
{
	if (json_is_string(json_object_get(j, "error")))
		fprintf(stderr, "weft: %s\n", json_string_value(json_object_get(j, "error")));
	else
		fprintf(stderr, "weft: %s answered with HTTP status %d\n", weft_admin, status);
	if (weft_json) {
		json_dumpf(j, stdout, WEFT_JSON_STYLE);
		putchar('\n');
	}
	json_decref(j);
	return EXIT_FAILED;
}

int weft_ask_text(const char *target, char **out)
{
	struct http_answer ha = {0};

	*out = NULL;
	if (http_ask(weft_admin, "GET", target, NULL, &ha))
		return 0;
	*out = ha.ha_body;
	return ha.ha_status;
}

int weft_ask(const char *method, const char *target, const char *body, json_t **out)
{
	int status, rc = weft_ask_status(method, target, body, &status, out);

	if (rc || status == 200)
		return rc;
	rc = weft_refused(status, *out);
	*out = NULL;
	return rc;
}

int weft_ask_with(const char *method, const char *target, const char *body, json_t **out, ...)
{
	char *full = strdup(target), *longer, *encoded;
	const char *name, *value, *sep = "?";
	va_list ap;
	int rc = EXIT_FAILED;

	va_start(ap, out);
	while (full && (name = va_arg(ap, const char *))) {
		value = va_arg(ap, const char *);
		if (!value)
			continue;
		encoded = http_encode(value);
		if (!encoded || asprintf(&longer, "%s%s%s=%s", full, sep, name, encoded) < 0)
			longer = NULL;
		free(encoded);
		free(full);
		full = longer;
		sep = "&";
	}
	va_end(ap);
	*out = NULL;
	if (full)
		rc = weft_ask(method, full, body, out);
	else
		fputs("weft: out of memory\n", stderr);
	free(full);
	return rc;
}

int weft_ask_path(const char *method, const char *target, const char *path, const char *body,
		  json_t **out)
{
	return weft_ask_with(method, target, body, out, "path", path, NULL);
}

int weft_flush(void)
{
	if (!fflush(stdout) && !ferror(stdout))
		return EXIT_DONE;
	fputs("weft: cannot write to standard output\n", stderr);
	return EXIT_FAILED;
}

int weft_show(int rc, json_t *j, void (*table)(const json_t *j))
{
	if (rc)
		return rc;
	if (weft_json) {
		json_dumpf(j, stdout, WEFT_JSON_STYLE);
		putchar('\n');
	} else {
		table(j);
	}
	json_decref(j);
	return weft_flush();
}

const char *j_str(const json_t *j, const char *key)
{
	const char *s = json_string_value(json_object_get(j, key));

	return s ? s : "-";
}

long long j_num(const json_t *j, const char *key)
{
	return (long long)json_integer_value(json_object_get(j, key));
}

double j_real(const json_t *j, const char *key)
{
	return json_number_value(json_object_get(j, key));
}

void j_words(const json_t *list)
{
	size_t i;
	json_t *w;

	json_array_foreach(list, i, w)
		printf("%s%s", i ? "," : "", json_is_string(w) ? json_string_value(w) : "?");
}
