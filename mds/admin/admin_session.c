/* SPDX-License-Identifier: Apache-2.0 */
/*
 * admin_session.c - logins of browsers, for the console (docs/console.md).
 *
 * A session stands for a token: it has the role that the token has now, and is over when the token
 * is revoked or its time ends. It is in memory only, so a start of the daemon ends all of them. The
 * browser has a random cookie, which scripts cannot read, and a second random value that its page
 * keeps and sends as a header; a request needs both (common/http.h). Kept are hashes of them. The
 * HTTP server calls in one at a time, so that nothing here needs a lock.
 */
#include "base/clock.h"
#include "mds/admin/admin_int.h"
#include <arpa/inet.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SECRET_BYTES  32 /* random ones */
#define SECRET_TEXT   sodium_base64_ENCODED_LEN(32, sodium_base64_VARIANT_URLSAFE_NO_PADDING)
#define SESSIONS_MOST 256
#define OF_TOKEN_MOST 16 /* then its oldest one ends */
/* Wrong tokens of one address in this time; then it waits. */
#define TRIES_MOST    5
#define TRIES_MS      60000u
#define TRIES_OF_MOST 64 /* addresses */

struct session {
	uint64_t se_number; /* 0: this place is free */
	uint64_t se_ends_ms;
	int64_t se_ends_s; /* the same of the clock */
	uint8_t se_id[TOKEN_HASH], se_csrf[TOKEN_HASH], se_token[TOKEN_HASH];
};

struct tries {
	char tr_from[INET6_ADDRSTRLEN];
	uint64_t tr_ms; /* of the first one; 0: this place is free */
	unsigned tr_n;
};

struct sessions {
	struct session ss_at[SESSIONS_MOST];
	struct tries ss_tries[TRIES_OF_MOST];
	uint64_t ss_last;
	uint8_t ss_file[TOKEN_HASH]; /* mds.admin_token */
	bool ss_has_file;
};

int admin_sessions_open(struct admin *a, const char *token)
{
	struct sessions *ss = calloc(1, sizeof(*ss));

	if (!ss)
		return -ENOMEM;
	ss->ss_has_file = token && *token;
	if (ss->ss_has_file)
		admin_token_hash(token, ss->ss_file);
	a->a_sessions = ss;
	return 0;
}

void admin_sessions_close(struct admin *a)
{
	if (a->a_sessions)
		sodium_memzero(a->a_sessions, sizeof(*a->a_sessions));
	free(a->a_sessions);
	a->a_sessions = NULL;
}

/* ---- use ---- */

/* Fills w from the token, as a request with it would. False: it is not known any more. */
static bool session_token(struct admin *a, const uint8_t hash[TOKEN_HASH], struct http_who *w)
{
	struct sessions *ss = a->a_sessions;

	if (!ss->ss_has_file || sodium_memcmp(ss->ss_file, hash, TOKEN_HASH))
		return admin_token_known(a, hash, w);
	w->w_role = HTTP_ADMIN;
	strcpy(w->w_name, "mds.admin_token");
	return true;
}

static void session_end(struct session *se)
{
	sodium_memzero(se, sizeof(*se));
}

bool admin_session_look(void *arg, const char *id, const char *csrf, struct http_who *w)
{
	struct admin *a = arg;
	struct session *found = NULL;
	uint8_t id_hash[TOKEN_HASH], csrf_hash[TOKEN_HASH];

	admin_token_hash(id, id_hash);
	admin_token_hash(csrf, csrf_hash);
	/* Compares with each one, and all bytes of each, so that the time reveals nothing. */
	for (unsigned i = 0; i < SESSIONS_MOST; i++) {
		struct session *se = &a->a_sessions->ss_at[i];
		int other = sodium_memcmp(se->se_id, id_hash, TOKEN_HASH) |
			    sodium_memcmp(se->se_csrf, csrf_hash, TOKEN_HASH);

		if (se->se_number && !other)
			found = se;
	}
	if (!found)
		return false;
	if (clock_mono_ms() >= found->se_ends_ms || !session_token(a, found->se_token, w)) {
		session_end(found);
		return false;
	}
	w->w_session = found->se_number;
	return true;
}

static struct session *session_numbered(struct sessions *ss, uint64_t number)
{
	for (unsigned i = 0; number && i < SESSIONS_MOST; i++)
		if (ss->ss_at[i].se_number == number)
			return &ss->ss_at[i];
	return NULL;
}

/* ---- wrong tokens ---- */

/* The address of a request, without its port; of IPv6 the network of 64 bits. */
static void session_from(const struct http_who *w, char out[INET6_ADDRSTRLEN])
{
	const char *colon = strrchr(w->w_from, ':');
	size_t n = colon ? (size_t)(colon - w->w_from) : strlen(w->w_from);
	struct in6_addr in6;

	if (n >= INET6_ADDRSTRLEN)
		n = INET6_ADDRSTRLEN - 1;
	memcpy(out, w->w_from, n);
	out[n] = 0;
	if (*out != '[')
		return;
	memmove(out, out + 1, n);
	out[strcspn(out, "]")] = 0;
	if (inet_pton(AF_INET6, out, &in6) != 1)
		return;
	memset(&in6.s6_addr[8], 0, 8);
	inet_ntop(AF_INET6, &in6, out, INET6_ADDRSTRLEN);
}

/* The place of an address; one that is free, or the oldest, if it has none. */
static struct tries *session_tries(struct sessions *ss, const char *from, uint64_t now)
{
	struct tries *oldest = &ss->ss_tries[0];

	for (unsigned i = 0; i < TRIES_OF_MOST; i++) {
		struct tries *tr = &ss->ss_tries[i];

		if (tr->tr_ms && now - tr->tr_ms >= TRIES_MS)
			*tr = (struct tries){0};
		if (tr->tr_ms && !strcmp(tr->tr_from, from))
			return tr;
		if (tr->tr_ms < oldest->tr_ms)
			oldest = tr;
	}
	*oldest = (struct tries){.tr_ms = now};
	strcpy(oldest->tr_from, from);
	return oldest;
}

/* ---- requests ---- */

static json_t *session_json(struct admin *a, const struct http_who *w)
{
	struct session *se = session_numbered(a->a_sessions, w->w_session);
	char who[128];

	http_who_text(w, who, sizeof(who));
	return json_pack("{s:o, s:s, s:b, s:o}", "who", *w->w_how ? json_string(who) : json_null(),
			 "role", http_role_name(w->w_role), "session", se != NULL, "ends_at",
			 se ? json_integer((json_int_t)se->se_ends_s) : json_null());
}

void admin_get_session(void *arg, const struct http_req *rq, struct http_reply *rp)
{
	admin_reply_json(rp, 200, session_json(arg, rq->rq_who));
}

/* Puts the body, without the end of its line, into text. */
static bool session_body(const struct http_req *rq, char text[HTTP_TOKEN_MAX + 1])
{
	size_t n = rq->rq_len;

	while (n && strchr("\r\n ", rq->rq_body[n - 1]))
		n--;
	if (!n || n > HTTP_TOKEN_MAX)
		return false;
	for (size_t i = 0; i < n; i++)
		if (rq->rq_body[i] <= ' ' || rq->rq_body[i] > '~')
			return false;
	memcpy(text, rq->rq_body, n);
	text[n] = 0;
	return true;
}

/* A free place: what is over goes, and of a token that has many the oldest one. NULL: none. */
static struct session *session_place(struct sessions *ss, const uint8_t token[TOKEN_HASH])
{
	struct session *oldest = NULL, *place = NULL;
	uint64_t now = clock_mono_ms();
	unsigned n = 0;

	for (unsigned i = 0; i < SESSIONS_MOST; i++) {
		struct session *se = &ss->ss_at[i];

		if (se->se_number && now >= se->se_ends_ms)
			session_end(se);
		if (!se->se_number)
			place = se;
		if (!se->se_number || memcmp(se->se_token, token, TOKEN_HASH))
			continue;
		n++;
		if (!oldest || se->se_number < oldest->se_number)
			oldest = se;
	}
	return n >= OF_TOKEN_MOST ? oldest : place;
}

static void session_secret(char text[SECRET_TEXT], uint8_t hash[TOKEN_HASH])
{
	uint8_t bytes[SECRET_BYTES];

	randombytes_buf(bytes, sizeof(bytes));
	sodium_bin2base64(text, SECRET_TEXT, bytes, sizeof(bytes),
			  sodium_base64_VARIANT_URLSAFE_NO_PADDING);
	admin_token_hash(text, hash);
	sodium_memzero(bytes, sizeof(bytes));
}

/* The token is known, and w is filled. */
static void admin_session_make(struct admin *a, const uint8_t token[TOKEN_HASH], struct http_who *w,
			       struct http_reply *rp)
{
	struct session *se = session_place(a->a_sessions, token);
	uint64_t ms = a->a_ops.ao_console_login_ms;
	char id[SECRET_TEXT], csrf[SECRET_TEXT];
	json_t *j;

	if (!se) {
		admin_reply_error(rp, 503, "there are %d sessions, and no more can begin",
				  SESSIONS_MOST);
		return;
	}
	session_end(se);
	session_secret(id, se->se_id);
	session_secret(csrf, se->se_csrf);
	memcpy(se->se_token, token, TOKEN_HASH);
	se->se_number = w->w_session = ++a->a_sessions->ss_last;
	se->se_ends_ms = clock_mono_ms() + ms;
	se->se_ends_s = (int64_t)time(NULL) + (int64_t)(ms / 1000);
	snprintf(rp->rp_cookie, sizeof(rp->rp_cookie),
		 "%s=%s; Path=/; Max-Age=%llu; HttpOnly; SameSite=Strict%s",
		 w->w_tls ? HTTP_COOKIE_TLS : HTTP_COOKIE, id, (unsigned long long)(ms / 1000),
		 w->w_tls ? "; Secure" : "");
	j = session_json(a, w);
	json_object_set_new(j, "csrf", json_string(csrf));
	admin_reply_json(rp, 200, j);
	rp->rp_who = *w;
	sodium_memzero(id, sizeof(id));
	sodium_memzero(csrf, sizeof(csrf));
}

void admin_post_session(void *arg, const struct http_req *rq, struct http_reply *rp)
{
	struct admin *a = arg;
	struct http_who w = {.w_how = "token", .w_tls = rq->rq_who->w_tls};
	char text[HTTP_TOKEN_MAX + 1], from[INET6_ADDRSTRLEN];
	uint64_t now = clock_mono_ms();
	uint8_t token[TOKEN_HASH];
	struct tries *tr;

	if (!strcmp(rq->rq_who->w_from, "unix")) {
		admin_reply_error(rp, 409,
				  "sessions are for browsers, and not for the Unix socket");
		return;
	}
	session_from(rq->rq_who, from);
	tr = session_tries(a->a_sessions, from, now);
	if (tr->tr_n >= TRIES_MOST) {
		admin_reply_error(rp, 429,
				  "%d wrong tokens came from %s: it can try again in %llu s",
				  TRIES_MOST, from,
				  (unsigned long long)(TRIES_MS - (now - tr->tr_ms)) / 1000 + 1);
		return;
	}
	if (!session_body(rq, text)) {
		admin_reply_error(rp, 400,
				  "expected a token as the body, as weft token create "
				  "prints it");
		return;
	}
	admin_token_hash(text, token);
	sodium_memzero(text, sizeof(text));
	if (session_token(a, token, &w)) {
		admin_session_make(a, token, &w, rp);
		return;
	}
	tr->tr_n++;
	admin_reply_error(rp, 401,
			  "unknown token: it was revoked, its time is over, or it is of "
			  "another cluster");
}

void admin_delete_session(void *arg, const struct http_req *rq, struct http_reply *rp)
{
	struct admin *a = arg;
	struct session *se = session_numbered(a->a_sessions, rq->rq_who->w_session);
	const struct http_who nothing = {.w_how = ""};

	if (!se) {
		admin_reply_error(rp, 409, "this request belongs to no session");
		return;
	}
	session_end(se);
	snprintf(rp->rp_cookie, sizeof(rp->rp_cookie),
		 "%s=; Path=/; Max-Age=0; HttpOnly; SameSite=Strict%s",
		 rq->rq_who->w_tls ? HTTP_COOKIE_TLS : HTTP_COOKIE,
		 rq->rq_who->w_tls ? "; Secure" : "");
	admin_reply_json(rp, 200, session_json(a, &nothing));
}
