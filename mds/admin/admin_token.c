/* SPDX-License-Identifier: Apache-2.0 */
/*
 * admin_token.c - tokens for the API, in rows NS_T_TOKEN (docs/schema.md).
 *
 * A token is random. Its text is shown once, when it is made; only a hash of it is kept. So whoever
 * reads the store or a backup cannot use the tokens in it, and a fast hash is enough: there are too
 * many texts to try. All tokens are in memory as well. The HTTP server calls in one at a time, so
 * that they need no lock.
 *
 * A use is noted in memory, and in the store once in USED_EACH_S seconds: last_used_at may lag by
 * that much after a restart.
 */
#include "base/log.h"
#include "mds/admin/admin_holders.h"
#include "mds/admin/admin_int.h"
#include <endian.h>
#include <errno.h>
#include <math.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define TOKEN_VERSION 1
#define TOKEN_PREFIX  "weft_"
#define TOKEN_BYTES   32 /* random ones */
#define TOKENS_MOST   256
#define DAYS_MOST     36500.0
#define USED_EACH_S   3600

/* A row; the key is the name. */
struct token_rec {
	uint8_t tk_version, tk_role;
	uint64_t tk_made, tk_ends, tk_used; /* seconds since 1970; 0: never */
	uint8_t tk_hash[32];
} __attribute__((packed));
_Static_assert(sizeof(struct token_rec) == 58, "token, version 1");
_Static_assert(HTTP_READ == 1 && HTTP_OPERATE == 2 && HTTP_ADMIN == 3, "a role is stored");

struct token {
	char t_name[HTTP_NAME_MAX + 1];
	enum http_role t_role;
	int64_t t_made, t_ends, t_used, t_stored; /* t_stored: the t_used that the store has */
	uint8_t t_hash[TOKEN_HASH];
};

struct tokens {
	struct token ts_token[TOKENS_MOST];
	unsigned ts_n;
};

static int64_t admin_token_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	return t.tv_sec;
}

void admin_token_hash(const char *text, uint8_t out[TOKEN_HASH])
{
	/* BLAKE2b */
	crypto_generichash(out, TOKEN_HASH, (const unsigned char *)text, strlen(text), NULL, 0);
}

/* Letters, digits and ._@-, so that a name needs no quotes anywhere. */
static bool admin_token_name_ok(const char *s)
{
	size_t n = strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._@-");

	return n && !s[n] && n <= HTTP_NAME_MAX;
}

/* ---- rows ---- */

static int admin_token_row(void *arg, struct kv_slice id, struct kv_slice val)
{
	struct tokens *ts = arg;
	struct token *t = &ts->ts_token[ts->ts_n];
	struct token_rec r;

	if (ts->ts_n == TOKENS_MOST)
		return 1;
	if (!id.s_len || id.s_len > HTTP_NAME_MAX || val.s_len != sizeof(r)) {
		log_warn("a token's record is damaged: the token does not count");
		return 0;
	}
	memcpy(&r, val.s_data, sizeof(r));
	*t = (struct token){.t_role = r.tk_role,
			    .t_made = (int64_t)le64toh(r.tk_made),
			    .t_ends = (int64_t)le64toh(r.tk_ends),
			    .t_used = (int64_t)le64toh(r.tk_used)};
	t->t_stored = t->t_used;
	memcpy(t->t_name, id.s_data, id.s_len);
	memcpy(t->t_hash, r.tk_hash, TOKEN_HASH);
	if (r.tk_version != TOKEN_VERSION || t->t_role < HTTP_READ || t->t_role > HTTP_ADMIN) {
		log_warn("token %s: its record is damaged or of another version: it does not count",
			 t->t_name);
		return 0;
	}
	ts->ts_n++;
	return 0;
}

int admin_tokens_open(struct admin *a)
{
	struct kv_txn *t;
	int err;

	a->a_tokens = calloc(1, sizeof(*a->a_tokens));
	if (!a->a_tokens)
		return -ENOMEM;
	err = kv_read_begin(ns_kv(a->a_ops.ao_ns), &t);
	if (err)
		return err;
	err = ns_rows(t, NS_T_TOKEN, NULL, 0, admin_token_row, a->a_tokens);
	kv_read_end(t);
	return err < 0 ? err : 0;
}

void admin_tokens_close(struct admin *a)
{
	if (a->a_tokens)
		sodium_memzero(a->a_tokens, sizeof(*a->a_tokens));
	free(a->a_tokens);
	a->a_tokens = NULL;
}

static int admin_token_put_run(void *arg, struct kv_txn *txn)
{
	const struct token *t = arg;
	struct token_rec r = {.tk_version = TOKEN_VERSION,
			      .tk_role = (uint8_t)t->t_role,
			      .tk_made = htole64((uint64_t)t->t_made),
			      .tk_ends = htole64((uint64_t)t->t_ends),
			      .tk_used = htole64((uint64_t)t->t_used)};

	memcpy(r.tk_hash, t->t_hash, TOKEN_HASH);
	return ns_row_put(txn, NS_T_TOKEN, t->t_name, strlen(t->t_name), &r, sizeof(r));
}

static int admin_token_del_run(void *arg, struct kv_txn *txn)
{
	const struct token *t = arg;

	return ns_row_del(txn, NS_T_TOKEN, t->t_name, strlen(t->t_name));
}

/* ---- use ---- */

bool admin_token_known(struct admin *a, const uint8_t hash[TOKEN_HASH], struct http_who *w)
{
	struct tokens *ts = a->a_tokens;
	struct token *found = NULL;
	int64_t now = admin_token_now();

	/* Compares with each token, and all bytes of each, so that the time reveals nothing. */
	for (unsigned i = 0; i < ts->ts_n; i++)
		if (!sodium_memcmp(ts->ts_token[i].t_hash, hash, TOKEN_HASH))
			found = &ts->ts_token[i];
	if (!found || (found->t_ends && now >= found->t_ends))
		return false;
	w->w_role = found->t_role;
	strcpy(w->w_name, found->t_name);
	found->t_used = now;
	if (now - found->t_stored >= USED_EACH_S || now < found->t_stored) {
		found->t_stored = now;
		kv_run_sync(ns_kv(a->a_ops.ao_ns), admin_token_put_run, found);
	}
	return true;
}

bool admin_token_look(void *arg, const char *text, struct http_who *w)
{
	uint8_t hash[TOKEN_HASH];

	admin_token_hash(text, hash);
	return admin_token_known(arg, hash, w);
}

/* ---- requests ---- */

static struct token *admin_token_named(struct tokens *ts, const char *name)
{
	for (unsigned i = 0; i < ts->ts_n; i++)
		if (!strcmp(ts->ts_token[i].t_name, name))
			return &ts->ts_token[i];
	return NULL;
}

static json_t *admin_token_at(int64_t t)
{
	return t ? json_integer((json_int_t)t) : json_null();
}

static json_t *admin_token_json(const struct token *t)
{
	return json_pack("{s:s, s:s, s:o, s:o, s:o}", "name", t->t_name, "role",
			 http_role_name(t->t_role), "made_at", admin_token_at(t->t_made), "ends_at",
			 admin_token_at(t->t_ends), "last_used_at", admin_token_at(t->t_used));
}

void admin_get_tokens(void *arg, const struct http_req *rq, struct http_reply *rp)
{
	struct admin *a = arg;
	json_t *list = json_array();

	(void)rq;
	for (unsigned i = 0; i < a->a_tokens->ts_n; i++)
		json_array_append_new(list, admin_token_json(&a->a_tokens->ts_token[i]));
	admin_reply_json(rp, 200, json_pack("{s:o}", "tokens", list));
}

/* Fills name and role. False: an error was put into rp. */
static bool admin_token_ask(struct tokens *ts, const struct http_req *rq, struct http_reply *rp,
			    struct token *t)
{
	const char *role = http_arg(rq, "role"), *name = http_arg(rq, "name");

	if (!role || !http_role_of(role, &t->t_role)) {
		admin_reply_error(rp, 400, "role: expected read, operate or admin");
		return false;
	}
	for (unsigned n = 1; !name && n <= TOKENS_MOST + 1; n++) {
		snprintf(t->t_name, sizeof(t->t_name), "%s-%u", role, n);
		if (!admin_token_named(ts, t->t_name))
			name = t->t_name;
	}
	if (!name || !admin_token_name_ok(name)) {
		admin_reply_error(rp, 400, "name: expected 1 to %d letters, digits and ._@-",
				  HTTP_NAME_MAX);
		return false;
	}
	if (name != t->t_name)
		strcpy(t->t_name, name);
	if (admin_token_named(ts, t->t_name)) {
		admin_reply_error(rp, 409, "%s: a token of that name exists; revoke it first",
				  name);
		return false;
	}
	if (ts->ts_n < TOKENS_MOST)
		return true;
	admin_reply_error(rp, 409, "there are %d tokens, and no more can be made: revoke some",
			  TOKENS_MOST);
	return false;
}

/* days: NULL: the token has no end. False: an error was put into rp. */
static bool admin_token_days(const char *days, struct token *t, struct http_reply *rp)
{
	char *end;
	double d;

	if (!days)
		return true;
	d = strtod(days, &end);
	if (end == days || *end || !(d > 0) || d > DAYS_MOST) {
		admin_reply_error(rp, 400, "days: expected a number above 0, and at most %.0f",
				  DAYS_MOST);
		return false;
	}
	t->t_ends = t->t_made + (int64_t)ceil(d * 86400);
	return true;
}

void admin_post_token(void *arg, const struct http_req *rq, struct http_reply *rp)
{
	char text[sizeof(TOKEN_PREFIX) +
		  sodium_base64_ENCODED_LEN(TOKEN_BYTES, sodium_base64_VARIANT_URLSAFE_NO_PADDING)];
	struct admin *a = arg;
	struct tokens *ts = a->a_tokens;
	const char *days = http_arg(rq, "days");
	uint8_t bytes[TOKEN_BYTES];
	struct token t = {0};
	json_t *j;
	int err;

	t.t_made = admin_token_now();
	if (!admin_token_days(days, &t, rp) || !admin_token_ask(ts, rq, rp, &t))
		return;
	randombytes_buf(bytes, sizeof(bytes));
	strcpy(text, TOKEN_PREFIX);
	sodium_bin2base64(text + strlen(TOKEN_PREFIX), sizeof(text) - strlen(TOKEN_PREFIX), bytes,
			  sizeof(bytes), sodium_base64_VARIANT_URLSAFE_NO_PADDING);
	admin_token_hash(text, t.t_hash);
	err = kv_run_sync(ns_kv(a->a_ops.ao_ns), admin_token_put_run, &t);
	if (err) {
		admin_reply_error(rp, 500, "cannot store the token: %s", strerror(-err));
	} else {
		ts->ts_token[ts->ts_n++] = t;
		j = admin_token_json(&t);
		json_object_set_new(j, "token", json_string(text));
		admin_reply_json(rp, 200, j);
	}
	sodium_memzero(bytes, sizeof(bytes));
	sodium_memzero(text, sizeof(text));
}

void admin_delete_token(void *arg, const struct http_req *rq, struct http_reply *rp)
{
	struct admin *a = arg;
	struct tokens *ts = a->a_tokens;
	const char *name = http_arg(rq, "name");
	struct token *t = name ? admin_token_named(ts, name) : NULL;
	int err;

	if (!t) {
		admin_reply_error(rp, name ? 404 : 400,
				  name ? "%s: no token has that name"
				       : "%s: expected a token's name",
				  name ? name : "name");
		return;
	}
	err = kv_run_sync(ns_kv(a->a_ops.ao_ns), admin_token_del_run, t);
	if (err) {
		admin_reply_error(rp, 500, "cannot remove the token: %s", strerror(-err));
		return;
	}
	*t = ts->ts_token[--ts->ts_n];
	sodium_memzero(&ts->ts_token[ts->ts_n], sizeof(*t));
	admin_get_tokens(arg, rq, rp);
}
