/* SPDX-License-Identifier: Apache-2.0 */
/* http_get.h - requests to a daemon's administration server (libcurl): over a Unix socket, TCP or
 * HTTPS. */
#ifndef TOOLS_HTTP_GET_H
#define TOOLS_HTTP_GET_H
#include <stddef.h>

struct http_answer {
	int ha_status; /* 200 ... */
	char *ha_body; /* malloc'd, NUL-terminated */
	size_t ha_len;
	char ha_why[256]; /* of an error: one line */
};
/* What the command line says of credentials; NULL: nothing. */
struct http_creds {
	const char *hc_token_file; /* --token-file */
	const char *hc_cacert;	   /* PEM file of authorities; NULL: those of the system */
	const char *hc_cert, *hc_key;
};
extern struct http_creds http_creds;
/* NULL: addr is "unix:/path", "/path", "127.0.0.1:port", "http://127.0.0.1:port" or
 * "https://HOST:port". Otherwise what is wrong with it. */
const char *http_addr_wrong(const char *addr);
/* target: path and query, encoded. body may be NULL. It sends the token in hc_token_file, or that
 * of the environment's WEFT_TOKEN, or the one in the file that WEFT_ADMIN_TOKEN names: never in the
 * clear to another machine. Returns 0, or a negative errno and ha_why when there is no (whole)
 * answer. */
int http_ask(const char *addr, const char *method, const char *target, const char *body,
	     struct http_answer *out);
/* Percent-encodes for a query value; malloc'd. */
char *http_encode(const char *text);
#endif
