/* SPDX-License-Identifier: Apache-2.0 */
/*
 * http.h - a small HTTP server (libmicrohttpd) for metrics and administration, on a Unix socket or
 * a loopback TCP port. Handlers run on the HTTP server's own thread and may block: they wait for
 * loops, never the other way.
 */
#ifndef BASE_HTTP_H
#define BASE_HTTP_H
#include <stddef.h>
#include <stdint.h>
struct http;
struct http_req {
	const char *rq_method; /* "GET", "PUT", "POST", "DELETE" */
	const char *rq_path;   /* "/v1/policy" */
	const char *rq_body;   /* NUL-terminated, "" without one; at most 1 MiB */
	size_t rq_len;
	void *rq_priv;
};
/* A decoded query argument, or NULL; lives as long as the request. */
const char *http_arg(const struct http_req *rq, const char *name);
struct http_reply {
	int rp_status;	     /* 200 ... */
	const char *rp_type; /* static string; NULL: application/json */
	char *rp_body;	     /* malloc'd; the server frees it */
};
struct http_route {
	const char *rt_method, *rt_path;
	void (*rt_handler)(void *arg, const struct http_req *rq, struct http_reply *rp);
};
#define HTTP_TOKEN_MAX 256
/* addrs: "unix:/path" and "127.0.0.1:port" (port 0: any), comma separated, at most 4. Over TCP a
 * request must name this machine as its Host and must not come from a web page (Origin). It must be
 * a GET of /metrics or /v1/health, or have the token (RFC 6750, "Authorization: Bearer TOKEN";
 * token NULL or "": there is none). A process that may connect to the Unix socket may send any
 * request. GET /metrics is always served, and GET /counts in a build with counts (count.h). routes
 * must outlive the server. Returns 0 or a negative errno. */
int http_start(struct http **out, const char *addrs, const char *token,
	       const struct http_route *routes, size_t n, void *arg);
void http_stop(struct http *h);
/* Copies the next address of a list into out and returns the rest of the list; NULL: no more. */
const char *http_addr(const char *list, char *out, size_t len);
/* The bound TCP port in host order, for port 0; 0: no TCP address. */
uint16_t http_port(const struct http *h);
#endif
