/* SPDX-License-Identifier: Apache-2.0 */
/* http_get.h - one HTTP/1.0 request to a daemon's administration server, over a Unix socket or
 * TCP. */
#ifndef TOOLS_HTTP_GET_H
#define TOOLS_HTTP_GET_H
#include <stddef.h>

struct http_answer {
	int ha_status; /* 200 ... */
	char *ha_body; /* malloc'd, NUL-terminated */
	size_t ha_len;
};
/* addr: "unix:/path", "/path", "127.0.0.1:port" or "http://127.0.0.1:port". target: path and query,
 * encoded. body may be NULL. Sends the token in the file that the environment's WEFT_ADMIN_TOKEN
 * names. Returns 0, or a negative errno when there is no (whole) answer. */
int http_ask(const char *addr, const char *method, const char *target, const char *body,
	     struct http_answer *out);
/* Percent-encodes for a query value; malloc'd. */
char *http_encode(const char *text);
#endif
