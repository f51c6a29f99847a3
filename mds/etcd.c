/* SPDX-License-Identifier: Apache-2.0 */
/* etcd.c - see etcd.h. */
#include "mds/etcd.h"
#include "base/clock.h"
#include "base/host_port.h"
#include <curl/curl.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ENDPOINTS = 8, URL = 256, PASSWORD = 512 };

struct etcd {
	CURL *e_curl;
	struct curl_slist *e_headers;
	char e_url[ENDPOINTS][URL];
	unsigned e_n, e_at;
	char *e_ca, *e_cert, *e_key, *e_user, *e_password;
	char e_token[ETCD_TOKEN]; /* "": none yet */
	char e_ask[ETCD_ASK], e_got[ETCD_ANSWER];
	size_t e_len;
	char e_why[CURL_ERROR_SIZE + URL + ETCD_TEXT];
};

/* ---- options ---- */

static const char *wrong_endpoint(const char *url, bool secret)
{
	bool tls = !strncmp(url, "https://", 8);

	if (!tls && strncmp(url, "http://", 7))
		return "an endpoint is http://HOST:PORT or https://HOST:PORT";
	if (!host_port_ok(url + (tls ? 8 : 7)))
		return "an endpoint is http://HOST:PORT or https://HOST:PORT";
	if (secret && !tls && !host_is_here(url + 7))
		return "a password goes to another machine by https:// only";
	return NULL;
}

/* The endpoints, each into out. Returns how many; 0: why says what is wrong. */
static unsigned split(const char *list, bool secret, char out[ENDPOINTS][URL], const char **why)
{
	unsigned n = 0;

	*why = "no endpoint is named";
	for (const char *at = list; *at;) {
		size_t len;

		at += strspn(at, " ,");
		len = strcspn(at, " ,");
		if (!len)
			break;
		*why = n == ENDPOINTS ? "at most 8 endpoints" : "an endpoint is too long";
		if (n == ENDPOINTS || len >= URL)
			return 0;
		memcpy(out[n], at, len);
		out[n][len] = 0;
		*why = wrong_endpoint(out[n++], secret);
		if (*why)
			return 0;
		at += len;
	}
	return n;
}

int etcd_check(const struct etcd_opts *o, char *err, size_t errlen)
{
	char urls[ENDPOINTS][URL];
	const char *why = NULL;

	if (!*o->eo_cert != !*o->eo_key)
		why = "a certificate and its key belong together";
	else if (!*o->eo_user != !*o->eo_password)
		why = "a user and a password belong together";
	else if (split(o->eo_endpoints, *o->eo_user, urls, &why))
		return 0;
	snprintf(err, errlen, "%s", why);
	return -EINVAL;
}

static size_t got(char *data, size_t size, size_t n, void *arg)
{
	struct etcd *e = arg;

	n *= size;
	if (n > sizeof(e->e_got) - e->e_len)
		return 0; /* too long */
	memcpy(e->e_got + e->e_len, data, n);
	e->e_len += n;
	return n;
}

int etcd_open(struct etcd **out, const struct etcd_opts *o, char *err, size_t errlen)
{
	struct etcd *e = calloc(1, sizeof(*e));
	const char *why;

	*out = NULL;
	if (!e || curl_global_init(CURL_GLOBAL_DEFAULT) || !(e->e_curl = curl_easy_init())) {
		free(e);
		snprintf(err, errlen, "etcd: %s", strerror(ENOMEM));
		return -ENOMEM;
	}
	e->e_n = split(o->eo_endpoints, *o->eo_user, e->e_url, &why);
	e->e_ca = strdup(o->eo_ca);
	e->e_cert = strdup(o->eo_cert);
	e->e_key = strdup(o->eo_key);
	e->e_user = strdup(o->eo_user);
	e->e_password = strdup(o->eo_password);
	if (!e->e_n || !e->e_ca || !e->e_cert || !e->e_key || !e->e_user || !e->e_password) {
		snprintf(err, errlen, "etcd: %s", e->e_n ? strerror(ENOMEM) : why);
		etcd_close(e);
		return -EINVAL;
	}
	*out = e;
	return 0;
}

void etcd_close(struct etcd *e)
{
	curl_easy_cleanup(e->e_curl);
	curl_slist_free_all(e->e_headers);
	explicit_bzero(e->e_token, sizeof(e->e_token));
	free(e->e_ca);
	free(e->e_cert);
	free(e->e_key);
	free(e->e_user);
	free(e->e_password);
	free(e);
}

const char *etcd_why(const struct etcd *e)
{
	return e->e_why;
}

/* ---- a question ---- */

static int etcd_headers(struct etcd *e)
{
	struct curl_slist *all, *more;
	char line[ETCD_TOKEN + 32];

	curl_slist_free_all(e->e_headers);
	e->e_headers = all = curl_slist_append(NULL, "Content-Type: application/json");
	/* It would wait for a leave to send. */
	if (all && (more = curl_slist_append(all, "Expect:")))
		e->e_headers = all = more;
	else
		return -ENOMEM;
	if (!*e->e_token)
		return 0;
	snprintf(line, sizeof(line), "Authorization: %s", e->e_token);
	more = curl_slist_append(all, line);
	explicit_bzero(line, sizeof(line));
	return more ? 0 : -ENOMEM;
}

static void etcd_options(struct etcd *e, const char *url, size_t len, long ms)
{
	CURL *c = e->e_curl;

	/* Connections are kept over this. */
	curl_easy_reset(c);
	curl_easy_setopt(c, CURLOPT_URL, url);
	curl_easy_setopt(c, CURLOPT_POSTFIELDS, e->e_ask);
	curl_easy_setopt(c, CURLOPT_POSTFIELDSIZE, (long)len);
	curl_easy_setopt(c, CURLOPT_HTTPHEADER, e->e_headers);
	curl_easy_setopt(c, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
	curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, got);
	curl_easy_setopt(c, CURLOPT_WRITEDATA, e);
	curl_easy_setopt(c, CURLOPT_TIMEOUT_MS, ms);
	curl_easy_setopt(c, CURLOPT_NOSIGNAL, 1L);
	curl_easy_setopt(c, CURLOPT_NOPROXY, "*");
	curl_easy_setopt(c, CURLOPT_FOLLOWLOCATION, 0L);
#if LIBCURL_VERSION_NUM >= 0x075500
	curl_easy_setopt(c, CURLOPT_PROTOCOLS_STR, "http,https");
#else
	curl_easy_setopt(c, CURLOPT_PROTOCOLS, CURLPROTO_HTTP | CURLPROTO_HTTPS);
#endif
	if (*e->e_ca) {
		curl_easy_setopt(c, CURLOPT_CAINFO, e->e_ca);
		curl_easy_setopt(c, CURLOPT_CAPATH, NULL);
	}
	if (*e->e_cert) {
		curl_easy_setopt(c, CURLOPT_SSLCERT, e->e_cert);
		curl_easy_setopt(c, CURLOPT_SSLKEY, e->e_key);
	}
}

/* What e_ask says, to the present endpoint. 0: an answer of 200 is in e_got. -EACCES: a token is
 * wanted. */
static int post(struct etcd *e, const char *path, size_t len, uint64_t until_ns)
{
	char url[URL + 32], said[CURL_ERROR_SIZE] = "", why[ETCD_TEXT];
	uint64_t now = clock_boot_ns();
	const char *endpoint = e->e_url[e->e_at];
	CURLcode rc;
	long status = 0;

	if (!len || until_ns < now + 1000000 || etcd_headers(e)) {
		snprintf(e->e_why, sizeof(e->e_why), "%s: no time is left", endpoint);
		return -EAGAIN;
	}
	snprintf(url, sizeof(url), "%s%s", endpoint, path);
	etcd_options(e, url, len, (long)((until_ns - now) / 1000000));
	curl_easy_setopt(e->e_curl, CURLOPT_ERRORBUFFER, said);
	e->e_len = 0;
	rc = curl_easy_perform(e->e_curl);
	curl_easy_setopt(e->e_curl, CURLOPT_ERRORBUFFER, NULL);
	if (rc) {
		snprintf(e->e_why, sizeof(e->e_why), "%s: %s", endpoint,
			 *said ? said : curl_easy_strerror(rc));
		return -EAGAIN;
	}
	curl_easy_getinfo(e->e_curl, CURLINFO_RESPONSE_CODE, &status);
	if (status == 200)
		return 0;
	rc = etcd_parse_error(e->e_got, e->e_len, why);
	snprintf(e->e_why, sizeof(e->e_why), "%s: %s (HTTP %ld)", endpoint,
		 *why ? why : "it refuses", status);
	return rc ? -EACCES : -EAGAIN;
}

static int read_password(const struct etcd *e, char out[PASSWORD])
{
	FILE *f = fopen(e->e_password, "re");
	int rc = f && fgets(out, PASSWORD, f) ? 0 : -EACCES;

	if (f)
		fclose(f);
	if (!rc)
		out[strcspn(out, "\r\n")] = 0;
	return rc;
}

/* A token, for the present endpoint: each knows those of all. */
static int log_in(struct etcd *e, uint64_t until_ns)
{
	char password[PASSWORD];
	size_t len;
	int rc = read_password(e, password);

	*e->e_token = 0;
	if (rc) {
		snprintf(e->e_why, sizeof(e->e_why), "the password cannot be read: %s",
			 e->e_password);
		return -EAGAIN;
	}
	len = etcd_ask_token(e->e_ask, e->e_user, password);
	rc = post(e, "/v3/auth/authenticate", len, until_ns);
	if (!rc && etcd_parse_token(e->e_got, e->e_len, e->e_token)) {
		snprintf(e->e_why, sizeof(e->e_why), "%s: no token in its answer",
			 e->e_url[e->e_at]);
		rc = -EAGAIN;
	}
	explicit_bzero(password, sizeof(password));
	explicit_bzero(e->e_ask, sizeof(e->e_ask));
	explicit_bzero(e->e_got, sizeof(e->e_got));
	return rc ? -EAGAIN : 0;
}

/* What is to be asked: the answers of a login come into the same memory. */
struct question {
	const struct etcd_row *q_rows; /* NULL: reads */
	unsigned q_n;
	const char *q_key[ETCD_ROWS], *q_value;
};

static size_t write_ask(struct etcd *e, const struct question *q)
{
	return q->q_rows ? etcd_ask_swap(e->e_ask, q->q_rows, q->q_n, q->q_key[0], q->q_key[1],
					 q->q_value)
			 : etcd_ask_rows(e->e_ask, q->q_key[0], q->q_key[1]);
}

static int etcd_ask(struct etcd *e, const struct question *q, uint64_t until_ns,
		    struct etcd_answer *out)
{
	int rc = *e->e_user && !*e->e_token ? -EACCES : 0;

	if (!rc)
		rc = post(e, "/v3/kv/txn", write_ask(e, q), until_ns);
	/* It says that it did nothing: a token ends with its time. */
	if (rc == -EACCES && *e->e_user) {
		rc = log_in(e, until_ns);
		if (!rc)
			rc = post(e, "/v3/kv/txn", write_ask(e, q), until_ns);
	}
	if (!rc && etcd_parse(e->e_got, e->e_len, q->q_key[0], q->q_key[1], out)) {
		snprintf(e->e_why, sizeof(e->e_why), "%s: its answer is not understood",
			 e->e_url[e->e_at]);
		rc = -EAGAIN;
	}
	if (!rc)
		return 0;
	e->e_at = (e->e_at + 1) % e->e_n;
	return -EAGAIN;
}

int etcd_rows(struct etcd *e, const char *key0, const char *key1, uint64_t until_ns,
	      struct etcd_answer *out)
{
	const struct question q = {.q_key = {key0, key1}};

	return etcd_ask(e, &q, until_ns, out);
}

int etcd_swap(struct etcd *e, const struct etcd_row *rows, unsigned n, const char *key0,
	      const char *key1, const char *value, uint64_t until_ns, struct etcd_answer *out)
{
	const struct question q = {
		.q_rows = rows, .q_n = n, .q_key = {key0, key1}, .q_value = value};

	return etcd_ask(e, &q, until_ns, out);
}
