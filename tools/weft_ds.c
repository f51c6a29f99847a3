/* weft_ds.c - weft ds: the data servers. */
#include "tools/weft.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Dead, alive, or what the administrator said of it. */
static void ds_state(const json_t *d, char *out, size_t len)
{
	const char *alive = json_is_true(json_object_get(d, "alive")) ? "alive" : "dead";

	if (json_is_integer(json_object_get(d, "left")) && j_num(d, "left"))
		snprintf(out, len, "%s, %s: %lld left", alive, j_str(d, "drain"), j_num(d, "left"));
	else
		snprintf(out, len, "%s%s%s", alive, json_is_string(json_object_get(d, "drain")) ? ", " : "", json_is_string(json_object_get(d, "drain")) ? j_str(d, "drain") : "");
}

static void ds_line(const json_t *d)
{
	long long used = j_num(d, "capacity") - j_num(d, "available");
	char state[80];

	ds_state(d, state, sizeof(state));
	printf("%-6lld %-16s %-6s %6g %9s %9s %6.1f  ", j_num(d, "number"), j_str(d, "name"), state,
	       j_real(d, "weight"), size_text(j_num(d, "capacity")), size_text(used), j_real(d, "load"));
	j_labels(json_object_get(d, "labels"));
	printf("  ");
	j_words(json_object_get(d, "addr"));
	putchar('\n');
}

static void ds_head(void)
{
	printf("%-6s %-16s %-6s %6s %9s %9s %6s  %s  %s\n", "NUMBER", "NAME", "STATE", "WEIGHT", "CAPACITY", "USED", "LOAD", "LABELS", "ADDRESSES");
}

static void ds_table(const json_t *j)
{
	const json_t *list = json_object_get(j, "ds"), *d;
	size_t i;

	ds_head();
	json_array_foreach(list, i, d)
		ds_line(d);
}

/* One, after a change. */
static void ds_one(const json_t *j)
{
	ds_head();
	ds_line(j);
}

int cmd_ds_list(char **args)
{
	json_t *j;
	int rc = weft_ask("GET", "/v1/ds", NULL, &j);

	(void)args;
	return weft_show(rc, j, ds_table);
}

int cmd_ds_weight(char **args)
{
	json_t *j;
	int rc = weft_ask_with("PUT", "/v1/ds/weight", args[1], &j, "ds", args[0], NULL);

	return weft_show(rc, j, ds_one);
}

/* The labels in one request: all of them, or none. */
int cmd_ds_group(char **args)
{
	size_t len = 0;
	char *body;
	json_t *j;
	int rc;

	for (char **a = args + 1; *a; a++)
		len += strlen(*a) + 1;
	body = calloc(1, len + 1);
	if (!body)
		return EXIT_FAILED;
	for (char **a = args + 1; *a; a++) {
		strcat(body, *a);
		if (a[1])
			strcat(body, ",");
	}
	rc = weft_ask_with("PUT", "/v1/ds/labels", body, &j, "ds", args[0], NULL);
	free(body);
	return weft_show(rc, j, ds_one);
}

int cmd_ds_drain(char **args)
{
	bool seen = isatty(STDERR_FILENO) && weft_option("wait");
	json_t *j;
	int rc = weft_ask_with("PUT", "/v1/ds/drain", "", &j, "ds", args[0], NULL);

	while (!rc && weft_option("wait") && strcmp(j_str(j, "drain"), "drained")) {
		if (seen)
			fprintf(stderr, "\r%lld objects left\033[K", j_num(j, "left"));
		json_decref(j);
		usleep(300000);
		/* Nobody waits for what somebody else has called off. */
		rc = weft_ask_with("GET", "/v1/ds/one", NULL, &j, "ds", args[0], NULL);
		if (!rc && !json_is_string(json_object_get(j, "drain"))) {
			fprintf(stderr, "weft: %s is not drained any more\n", args[0]);
			json_decref(j);
			return EXIT_FAILED;
		}
	}
	if (seen)
		fputs("\r\033[K", stderr);
	return weft_show(rc, j, ds_one);
}

int cmd_ds_undrain(char **args)
{
	json_t *j;
	int rc = weft_ask_with("PUT", "/v1/ds/undrain", "", &j, "ds", args[0], NULL);

	return weft_show(rc, j, ds_one);
}
