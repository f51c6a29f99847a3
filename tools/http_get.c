/* SPDX-License-Identifier: Apache-2.0 */
/* http_get.c - see http_get.h. */
#include "tools/http_get.h"
#include "base/host_port.h"
#include <curl/curl.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>

#define ANSWER_MAX     (64u << 20)
#define ANSWER_SECONDS 30L
#define TOKEN_MAX      256

struct http_creds http_creds;

/* ---- addresses ---- */

static bool is_unix(const char *addr)
{
	return !strncmp(addr, "unix:", 5) || addr[0] == '/';
}

static const char *unix_path(const char *addr)
{
	return addr[0] == '/' ? addr : addr + 5;
}

const char *http_addr_wrong(const char *addr)
{
	static const char forms[] = "expected unix:/PATH, 127.0.0.1:PORT or https://HOST:PORT";
	bool tls = !strncmp(addr, "https://", 8);

	if (is_unix(addr))
		return unix_path(addr)[0] != '/' ? forms
		       : strlen(unix_path(addr)) >= sizeof(((struct sockaddr_un *)0)->sun_path)
			       ? "the path of a Unix socket has at most 107 bytes"
			       : NULL;
	if (tls || !strncmp(addr, "http://", 7))
		addr += tls ? 8 : 7;
	if (!host_port_ok(addr))
		return forms;
	return tls || host_is_here(addr) ? NULL : "another machine needs https://HOST:PORT";
}

/* ---- credentials ---- */

static int token_file(const char *what, const char *path, char out[TOKEN_MAX + 2], char *why,
		      size_t len)
{
	FILE *f = fopen(path, "re");
	int err = 0;

	if (!f || !fgets(out, TOKEN_MAX + 2, f)) {
		err = f ? -EINVAL : -errno;
		snprintf(why, len, "%s: %s: %s", what, path,
			 f ? "expected one line with a token" : strerror(-err));
		fprintf(stderr, "%s\n", why);
	}
	if (f)
		fclose(f);
	return err;
}

/* Fills in the token, or "". */
static int token_read(char out[TOKEN_MAX + 2], char *why, size_t len)
{
	const char *text = getenv("WEFT_TOKEN"), *path = getenv("WEFT_ADMIN_TOKEN");
	int err = 0;

	*out = 0;
	if (http_creds.hc_token_file)
		err = token_file("--token-file", http_creds.hc_token_file, out, why, len);
	else if (text && *text)
		snprintf(out, TOKEN_MAX + 2, "%s", text);
	else if (path && *path)
		err = token_file("WEFT_ADMIN_TOKEN", path, out, why, len);
	out[strcspn(out, "\r\n")] = 0;
	return err;
}

/* ---- the request ---- */

static size_t take(char *data, size_t size, size_t n, void *arg)
{
	struct http_answer *out = arg;
	char *more;

	n *= size;
	if (out->ha_len + n + 1 > ANSWER_MAX)
		return 0;
	more = realloc(out->ha_body, out->ha_len + n + 1);
	if (!more)
		return 0;
	memcpy(more + out->ha_len, data, n);
	out->ha_body = more;
	out->ha_len += n;
	more[out->ha_len] = 0;
	return n;
}

static struct curl_slist *get_headers(const char *token)
{
	/* A body has no form's type, and waits for nothing. */
	struct curl_slist *list = curl_slist_append(NULL, "Content-Type:"), *more;
	char auth[TOKEN_MAX + 32];

	more = list ? curl_slist_append(list, "Expect:") : NULL;
	if (more && *token) {
		snprintf(auth, sizeof(auth), "Authorization: Bearer %s", token);
		more = curl_slist_append(more, auth);
	}
	if (!more)
		curl_slist_free_all(list);
	return more;
}

/* The system's error where there is one, else curl's words. */
static int get_failed(CURL *c, CURLcode rc, const char *text, struct http_answer *out)
{
	long os = 0;
	int err = rc == CURLE_OPERATION_TIMEDOUT ? ETIMEDOUT
		  : rc == CURLE_OUT_OF_MEMORY	 ? ENOMEM
		  : rc == CURLE_WRITE_ERROR	 ? EFBIG
						 : 0;

	curl_easy_getinfo(c, CURLINFO_OS_ERRNO, &os);
	if (!err &&
	    (rc == CURLE_COULDNT_CONNECT || rc == CURLE_RECV_ERROR || rc == CURLE_SEND_ERROR))
		err = (int)os;
	snprintf(out->ha_why, sizeof(out->ha_why), "%s",
		 err	 ? strerror(err)
		 : *text ? text
			 : curl_easy_strerror(rc));
	free(out->ha_body);
	out->ha_body = NULL;
	return err ? -err : -EPROTO;
}

static void set_target(CURL *c, const char *addr, char *url)
{
	if (is_unix(addr))
		curl_easy_setopt(c, CURLOPT_UNIX_SOCKET_PATH, unix_path(addr));
	curl_easy_setopt(c, CURLOPT_URL, url);
	curl_easy_setopt(c, CURLOPT_PATH_AS_IS, 1L);
	curl_easy_setopt(c, CURLOPT_PROTOCOLS_STR, "http,https");
	curl_easy_setopt(c, CURLOPT_PROXY, "");
	curl_easy_setopt(c, CURLOPT_NOSIGNAL, 1L);
	curl_easy_setopt(c, CURLOPT_CONNECTTIMEOUT, ANSWER_SECONDS);
	/* Nothing at all comes for so long. */
	curl_easy_setopt(c, CURLOPT_LOW_SPEED_LIMIT, 1L);
	curl_easy_setopt(c, CURLOPT_LOW_SPEED_TIME, ANSWER_SECONDS);
	if (http_creds.hc_cacert)
		curl_easy_setopt(c, CURLOPT_CAINFO, http_creds.hc_cacert);
	if (http_creds.hc_cert)
		curl_easy_setopt(c, CURLOPT_SSLCERT, http_creds.hc_cert);
	if (http_creds.hc_key)
		curl_easy_setopt(c, CURLOPT_SSLKEY, http_creds.hc_key);
}

static int perform(CURL *c, const char *method, const char *body, const char *token,
		   struct http_answer *out)
{
	struct curl_slist *list = get_headers(token);
	char text[CURL_ERROR_SIZE] = "";
	long status = 0;
	CURLcode rc;

	if (!list)
		return get_failed(c, CURLE_OUT_OF_MEMORY, "", out);
	curl_easy_setopt(c, CURLOPT_HTTPHEADER, list);
	if (strcmp(method, "GET")) {
		curl_easy_setopt(c, CURLOPT_POSTFIELDSIZE_LARGE,
				 (curl_off_t)(body ? strlen(body) : 0));
		curl_easy_setopt(c, CURLOPT_POSTFIELDS, body ? body : "");
	}
	curl_easy_setopt(c, CURLOPT_CUSTOMREQUEST, method);
	curl_easy_setopt(c, CURLOPT_ERRORBUFFER, text);
	curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, take);
	curl_easy_setopt(c, CURLOPT_WRITEDATA, out);
	rc = curl_easy_perform(c);
	curl_slist_free_all(list);
	curl_easy_getinfo(c, CURLINFO_RESPONSE_CODE, &status);
	out->ha_status = (int)status;
	/* Without a body there was no call. */
	if (!rc && !out->ha_body && !(out->ha_body = strdup("")))
		rc = CURLE_OUT_OF_MEMORY;
	return rc ? get_failed(c, rc, text, out) : 0;
}

int http_ask(const char *addr, const char *method, const char *target, const char *body,
	     struct http_answer *out)
{
	bool tls = !strncmp(addr, "https://", 8);
	const char *host = tls ? addr + 8 : !strncmp(addr, "http://", 7) ? addr + 7 : addr;
	char token[TOKEN_MAX + 2], *url = NULL;
	CURL *c;
	int err;

	*out = (struct http_answer){0};
	err = token_read(token, out->ha_why, sizeof(out->ha_why));
	if (err)
		return err;
	if (!is_unix(addr) && !tls && !host_is_here(host))
		*token = 0;
	c = curl_easy_init();
	if (c && asprintf(&url, "%s%s%s", tls ? "https://" : "http://",
			  is_unix(addr) ? "localhost" : host, target) < 0)
		url = NULL;
	if (url) {
		set_target(c, addr, url);
		err = perform(c, method, body, token, out);
	} else {
		snprintf(out->ha_why, sizeof(out->ha_why), "out of memory");
		err = -ENOMEM;
	}
	free(url);
	curl_easy_cleanup(c);
	explicit_bzero(token, sizeof(token));
	return err;
}

char *http_encode(const char *text)
{
	char *out = malloc(strlen(text) * 3 + 1), *p = out;

	for (; out && *text; text++) {
		unsigned char c = (unsigned char)*text;

		if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
		    strchr("/-._~", c))
			*p++ = (char)c;
		else
			p += sprintf(p, "%%%02X", c);
	}
	if (out)
		*p = 0;
	return out;
}
