/* SPDX-License-Identifier: Apache-2.0 */
/* etcd_json.c - see etcd_json.h. */
#include "mds/etcd_json.h"
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>

/* gRPC's code of a call whose caller is not known. */
#define UNAUTHENTICATED 16

/* ---- questions ---- */

/* Takes o. */
static size_t print(char out[ETCD_ASK], json_t *o)
{
	size_t n = o ? json_dumpb(o, out, ETCD_ASK - 1, JSON_COMPACT) : 0;

	json_decref(o);
	if (n > ETCD_ASK - 1)
		n = 0;
	out[n] = 0;
	return n;
}

static json_t *text64(const char *s)
{
	char out[sodium_base64_ENCODED_LEN(ETCD_TEXT, sodium_base64_VARIANT_ORIGINAL)];

	return json_string(sodium_bin2base64(out, sizeof(out), (const unsigned char *)s,
					     strnlen(s, ETCD_TEXT - 1),
					     sodium_base64_VARIANT_ORIGINAL));
}

static json_t *etcd_number(uint64_t v)
{
	char out[24];

	snprintf(out, sizeof(out), "%" PRIu64, v);
	return json_string(out);
}

static json_t *read_of(const char *key)
{
	return json_pack("{s:{s:o}}", "request_range", "key", text64(key));
}

static json_t *reads(const char *key0, const char *key1)
{
	return json_pack("[o,o]", read_of(key0), read_of(key1));
}

size_t etcd_ask_rows(char out[ETCD_ASK], const char *key0, const char *key1)
{
	return print(out, json_pack("{s:o}", "success", reads(key0, key1)));
}

static void compare(json_t *list, const struct etcd_row *r)
{
	if (!r->er_mod) {
		json_array_append_new(list, json_pack("{s:s,s:s,s:o,s:s}", "target", "CREATE",
						      "result", "EQUAL", "key", text64(r->er_key),
						      "create_revision", "0"));
		return;
	}
	json_array_append_new(list, json_pack("{s:s,s:s,s:o,s:o}", "target", "MOD", "result",
					      "EQUAL", "key", text64(r->er_key), "mod_revision",
					      etcd_number(r->er_mod)));
	json_array_append_new(list,
			      json_pack("{s:s,s:s,s:o,s:o}", "target", "VALUE", "result", "EQUAL",
					"key", text64(r->er_key), "value", text64(r->er_value)));
}

size_t etcd_ask_swap(char out[ETCD_ASK], const struct etcd_row *rows, unsigned n, const char *key0,
		     const char *key1, const char *value)
{
	json_t *list = json_array();

	for (unsigned i = 0; i < n; i++)
		compare(list, &rows[i]);
	return print(out, json_pack("{s:o,s:[{s:{s:o,s:o}}],s:o}", "compare", list, "success",
				    "request_put", "key", text64(rows[n - 1].er_key), "value",
				    text64(value), "failure", reads(key0, key1)));
}

size_t etcd_ask_token(char out[ETCD_ASK], const char *user, const char *password)
{
	return print(out, json_pack("{s:s,s:s}", "name", user, "password", password));
}

/* ---- answers ---- */

/* NULL: it is no object. The caller's to json_decref. */
static json_t *object(const char *text, size_t len)
{
	json_t *o = len <= ETCD_ANSWER ? json_loadb(text, len, JSON_REJECT_DUPLICATES, NULL) : NULL;

	if (o && !json_is_object(o)) {
		json_decref(o);
		o = NULL;
	}
	return o;
}

/* A 64-bit number, which the gateway writes as a string. Nothing there: 0. */
static int get_number(const json_t *o, const char *name, uint64_t *out)
{
	const json_t *v = json_object_get(o, name);
	const char *s = json_string_value(v);

	*out = 0;
	if (!v)
		return 0;
	if (!s || json_string_length(v) != strlen(s) || strlen(s) > 19 || !*s ||
	    strspn(s, "0123456789") != strlen(s))
		return -EPROTO;
	*out = strtoull(s, NULL, 10);
	return 0;
}

/* Text in base64. What is not printable is not this program's: each such byte becomes '?'. */
static int get_text(const json_t *o, const char *name, char out[ETCD_TEXT])
{
	const json_t *v = json_object_get(o, name);
	size_t n = 0;

	*out = 0;
	if (!v)
		return 0;
	if (!json_is_string(v) || sodium_base642bin((unsigned char *)out, ETCD_TEXT - 1,
						    json_string_value(v), json_string_length(v),
						    NULL, &n, NULL, sodium_base64_VARIANT_ORIGINAL))
		return -EPROTO;
	for (size_t i = 0; i < n; i++)
		if (out[i] < ' ' || out[i] > '~')
			out[i] = '?';
	out[n] = 0;
	return 0;
}

static int get_row(const json_t *range, const char *key, struct etcd_row *r)
{
	const json_t *kvs = json_object_get(range, "kvs"), *kv = json_array_get(kvs, 0);

	*r = (struct etcd_row){0};
	snprintf(r->er_key, sizeof(r->er_key), "%s", key);
	if (!kvs)
		return 0;
	if (json_array_size(kvs) != 1 || !json_is_object(kv) || get_text(kv, "key", r->er_key) ||
	    get_text(kv, "value", r->er_value) || get_number(kv, "mod_revision", &r->er_mod) ||
	    !r->er_mod || strcmp(r->er_key, key))
		return -EPROTO;
	return 0;
}

int etcd_parse(const char *text, size_t len, const char *key0, const char *key1,
	       struct etcd_answer *out)
{
	const char *const keys[ETCD_ROWS] = {key0, key1};
	json_t *o = object(text, len);
	const json_t *done = json_object_get(o, "succeeded"),
		     *list = json_object_get(o, "responses");
	int rc = -EPROTO;

	*out = (struct etcd_answer){.ea_done = json_is_true(done)};
	if (o && (!done || json_is_boolean(done)) && json_is_array(list))
		rc = get_number(json_object_get(o, "header"), "revision", &out->ea_revision);
	if (!rc && !out->ea_revision)
		rc = -EPROTO;
	/* A write has one answer, which is not a row. */
	if (!rc && json_array_size(list) == 1 && out->ea_done &&
	    json_is_object(json_object_get(json_array_get(list, 0), "response_put"))) {
		json_decref(o);
		return 0;
	}
	if (!rc && json_array_size(list) != ETCD_ROWS)
		rc = -EPROTO;
	for (unsigned i = 0; !rc && i < ETCD_ROWS; i++) {
		const json_t *range = json_object_get(json_array_get(list, i), "response_range");

		rc = json_is_object(range) ? get_row(range, keys[i], &out->ea_row[i]) : -EPROTO;
	}
	json_decref(o);
	if (rc)
		*out = (struct etcd_answer){0};
	return rc;
}

int etcd_parse_token(const char *text, size_t len, char token[ETCD_TOKEN])
{
	json_t *o = object(text, len);
	const char *s = json_string_value(json_object_get(o, "token"));
	size_t n = s ? strlen(s) : 0;
	int rc = n && n < ETCD_TOKEN ? 0 : -EPROTO;

	/* It goes into a header. */
	for (size_t i = 0; i < n; i++)
		if (s[i] <= ' ' || s[i] > '~')
			rc = -EPROTO;
	*token = 0;
	if (!rc)
		memcpy(token, s, n + 1);
	json_decref(o);
	return rc;
}

bool etcd_parse_error(const char *text, size_t len, char why[ETCD_TEXT])
{
	json_t *o = object(text, len);
	const json_t *code = json_object_get(o, "code");
	const char *s = json_string_value(json_object_get(o, "message"));
	bool token;

	/* What refuses before etcd's gateway does so in plain text. */
	if (!s && !o)
		snprintf(why, ETCD_TEXT, "%.*s", (int)(len < ETCD_TEXT ? len : ETCD_TEXT - 1),
			 text);
	else
		snprintf(why, ETCD_TEXT, "%s", s ? s : "");
	why[strcspn(why, "\r\n")] = 0;
	for (char *c = why; *c; c++)
		if (*c < ' ' || *c > '~')
			*c = '?';
	/* The second is what it says to who sends no token, the third of a JSON Web Token that is
	 * older than the last change of a user or a role. */
	token = json_integer_value(code) == UNAUTHENTICATED || strstr(why, "user name is empty") ||
		strstr(why, "auth store is old");
	json_decref(o);
	return token;
}
