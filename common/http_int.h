/* SPDX-License-Identifier: Apache-2.0 */
/* http_int.h - the inside of the HTTP server: http.c serves requests, http_who.c finds out who
 * asks, http_page.c answers browsers, http_listen.c opens sockets and TLS. */
#ifndef COMMON_HTTP_INT_H
#define COMMON_HTTP_INT_H
#include "common/http.h"
#include <microhttpd.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/un.h>

#define HTTP_ADDRS 4u

/* What a daemon of https:// was started with. It keeps pointers into this. */
struct http_tls {
	char *t_cert, *t_key, *t_ca; /* PEM texts; t_ca: NULL without authorities */
};

/* An address before http_start. */
struct http_bound_at {
	char ba_addr[256];
	int ba_fd; /* -1: it was taken over */
	struct http_tls ba_tls;
};
struct http_bound {
	struct http_bound_at b_at[HTTP_ADDRS];
	unsigned b_n;
};
void http_bound_free(struct http_bound *b); /* b may be NULL */

/* One address, with a thread of its own. */
struct http_at {
	struct http *at_http;
	struct MHD_Daemon *at_daemon;
	struct http_tls at_tls_files;
	int at_fd;
	bool at_tcp, at_tls;
	char at_path[sizeof((struct sockaddr_un *)0)->sun_path]; /* the socket file, "" for TCP */
};

struct http {
	struct http_at h_at[HTTP_ADDRS];
	unsigned h_n;
	const struct store_lease *h_lease;
	const struct http_route *h_routes;
	size_t h_nroutes;
	void *h_arg;
	pthread_mutex_t h_lock; /* handlers run one after the other */
	_Atomic size_t h_bodies;
	char h_token[HTTP_TOKEN_MAX + 1]; /* "": none */
	gid_t h_group;			  /* (gid_t)-1: none */
	char *h_certs, *h_tls_cert, *h_tls_key, *h_tls_ca;
	bool (*h_token_look)(void *arg, const char *token, struct http_who *w);
	bool (*h_session_look)(void *arg, const char *id, const char *csrf, struct http_who *w);
	const struct http_file *h_files;
	size_t h_nfiles;
	void (*h_audit)(void *arg, const char *who, const char *what);
	/* Requests of peers that may change nothing: reported in this second, and left out. */
	int64_t h_refused_at;
	unsigned h_refused, h_left_out;
};

/* http.c: what MHD calls */
enum MHD_Result http_on_request(void *cls, struct MHD_Connection *conn, const char *url,
				const char *method, const char *version, const char *data,
				size_t *n, void **state);
void http_on_completed(void *cls, struct MHD_Connection *conn, void **state,
		       enum MHD_RequestTerminationCode why);

/* http_who.c. Fills w. Returns 0, or the status of a refusal with its reason in why. */
int http_who(const struct http_at *at, struct MHD_Connection *conn, const char *version,
	     struct http_who *w, char *why, size_t len);
/* A reason for a peer that has too small a role for a route. */
void http_who_short(const struct http_at *at, const struct http_who *w, enum http_role need,
		    char *why, size_t len);
/* Reports a request that changes something, or would. */
void http_audit(struct http *h, const struct http_req *rq, int status);
gid_t http_group(const char *name);

/* http_page.c */
const struct http_file *http_file_find(const struct http *h, const char *path);
/* Answers GET or HEAD. */
enum MHD_Result http_file_reply(struct MHD_Connection *conn, const struct http_file *f);
/* Puts the headers of every answer. False: no memory. */
bool http_page_headers(struct MHD_Response *r, const struct http_file *f);
/* A browser says that a page of another origin made it send this request. */
bool http_other_site(struct MHD_Connection *conn);

/* http_listen.c. 0, or -errno and a reason in err. b: NULL: nothing is bound. */
int http_at_start(struct http *h, const char *addr, struct http_bound *b, char *err, size_t errlen);
void http_at_stop(struct http_at *at);
#endif
