/* SPDX-License-Identifier: Apache-2.0 */
/* backup_json.c - reads an object of JSON that comes from outside; see backup_json.h. */
#include "mds/backup_json.h"
#include <sodium.h>
#include <stdio.h>
#include <string.h>

void json_read_fail(struct json_read *jr, const char *name, const char *what)
{
	if (!jr->jr_bad)
		snprintf(jr->jr_why, sizeof(jr->jr_why), "%s%s%s", name, *name ? ": " : "", what);
	jr->jr_bad = true;
}

void json_read_object(struct json_read *jr, json_t *object)
{
	*jr = (struct json_read){.jr_object = object};
	if (!json_is_object(object))
		json_read_fail(jr, "", "an object is expected");
}

void json_read_line(struct json_read *jr, const char *line, size_t len)
{
	json_error_t e;
	json_t *o = json_loadb(line, len, JSON_REJECT_DUPLICATES, &e);

	json_read_object(jr, o);
	if (!o) {
		jr->jr_bad = false;
		json_read_fail(jr, "no JSON", e.text);
	}
}

static bool json_was_taken(const struct json_read *jr, const char *name)
{
	for (size_t i = 0; i < jr->jr_n; i++)
		if (!strcmp(jr->jr_taken[i], name))
			return true;
	return false;
}

bool json_read_end(struct json_read *jr)
{
	char shown[64];
	const char *name;
	json_t *v;

	if (jr->jr_bad || jr->jr_n == json_object_size(jr->jr_object))
		return !jr->jr_bad;
	json_object_foreach(jr->jr_object, name, v)
	{
		if (json_was_taken(jr, name))
			continue;
		snprintf(shown, sizeof(shown), "%.60s", name);
		json_read_fail(jr, shown, "no such member is known");
		break;
	}
	return false;
}

void json_read_free(struct json_read *jr)
{
	json_decref(jr->jr_object);
	jr->jr_object = NULL;
}

bool json_read_has(const struct json_read *jr, const char *name)
{
	return json_object_get(jr->jr_object, name) != NULL;
}

static json_t *json_take(struct json_read *jr, const char *name)
{
	json_t *v = jr->jr_bad ? NULL : json_object_get(jr->jr_object, name);

	if (!v)
		json_read_fail(jr, name, "is missing");
	else if (jr->jr_n == JSON_READ_MEMBERS)
		json_read_fail(jr, name, "too many members");
	else
		jr->jr_taken[jr->jr_n++] = name;
	return jr->jr_bad ? NULL : v;
}

int64_t json_read_int(struct json_read *jr, const char *name, int64_t min, int64_t max)
{
	json_t *v = json_take(jr, name);
	char what[80];
	int64_t n = v ? (int64_t)json_integer_value(v) : 0;

	if (!v)
		return 0;
	if (json_is_integer(v) && n >= min && n <= max)
		return n;
	snprintf(what, sizeof(what), "an integer from %lld to %lld is expected", (long long)min,
		 (long long)max);
	json_read_fail(jr, name, what);
	return 0;
}

bool json_read_bool(struct json_read *jr, const char *name)
{
	json_t *v = json_take(jr, name);

	if (v && !json_is_boolean(v))
		json_read_fail(jr, name, "true or false is expected");
	return json_is_true(v);
}

static const char *json_text_of(struct json_read *jr, const char *name, json_t *v, size_t max)
{
	const char *s = json_string_value(v);
	char what[80];

	if (s && json_string_length(v) <= max && strlen(s) == json_string_length(v))
		return s;
	snprintf(what, sizeof(what), "a text of at most %zu bytes is expected", max);
	json_read_fail(jr, name, what);
	return NULL;
}

const char *json_read_text(struct json_read *jr, const char *name, size_t max)
{
	json_t *v = json_take(jr, name);
	const char *s = v ? json_text_of(jr, name, v, max) : NULL;

	return s ? s : "";
}

const char *json_read_text_null(struct json_read *jr, const char *name, size_t max)
{
	json_t *v = json_take(jr, name);

	return !v || json_is_null(v) ? NULL : json_text_of(jr, name, v, max);
}

static bool json_digits(const char *text, uint8_t *out, size_t max, size_t *n)
{
	const char *end = NULL;
	size_t len = strlen(text);

	return !(len % 2) && len / 2 <= max &&
	       !sodium_hex2bin(out, max, text, len, NULL, n, &end) && *n == len / 2 &&
	       end == text + len;
}

bool json_unhex(const char *text, uint8_t *out, size_t n)
{
	size_t got;

	return json_digits(text, out, n, &got) && got == n;
}

size_t json_read_hex_any(struct json_read *jr, const char *name, uint8_t *out, size_t max)
{
	const char *s = json_read_text(jr, name, 2 * max);
	size_t n = 0;

	if (json_digits(s, out, max, &n))
		return n;
	json_read_fail(jr, name, "hexadecimal digits are expected");
	return 0;
}

void json_read_hex(struct json_read *jr, const char *name, uint8_t *out, size_t n)
{
	char what[80];

	memset(out, 0, n);
	if (json_read_hex_any(jr, name, out, n) == n || jr->jr_bad)
		return;
	snprintf(what, sizeof(what), "%zu hexadecimal digits are expected", 2 * n);
	json_read_fail(jr, name, what);
}

uint64_t json_read_id(struct json_read *jr, const char *name)
{
	uint8_t b[8];
	uint64_t v = 0;

	json_read_hex(jr, name, b, sizeof(b));
	for (size_t i = 0; i < sizeof(b); i++)
		v = v << 8 | b[i];
	return v;
}

unsigned json_read_word(struct json_read *jr, const char *name, const char *const *words)
{
	const char *s = json_read_text(jr, name, 64);

	for (unsigned i = 0; words[i]; i++)
		if (!strcmp(words[i], s))
			return i;
	json_read_fail(jr, name, "this word is not known");
	return 0;
}

json_t *json_read_any(struct json_read *jr, const char *name)
{
	return json_take(jr, name);
}

json_t *json_read_array(struct json_read *jr, const char *name, size_t max)
{
	json_t *v = json_take(jr, name);

	if (v && (!json_is_array(v) || json_array_size(v) > max)) {
		json_read_fail(jr, name, "a shorter array is expected");
		return NULL;
	}
	return v;
}
