/* SPDX-License-Identifier: Apache-2.0 */
/*
 * http.h - a small HTTP server (libmicrohttpd) for metrics and administration: on a Unix socket, on
 * a TCP port of this machine, or by HTTPS for other machines. Handlers run on the HTTP server's own
 * thread and may block: they wait for loops, never the other way.
 *
 * Roles. A request is made with a role, and each route names the least role that it needs:
 *
 *   - On the Unix socket the kernel reports the peer's user and groups. root, the daemon's own user
 *     and members of the group ho_group have the role admin. Other users that may connect have the
 *     role read.
 *   - A token (RFC 6750, "Authorization: Bearer TOKEN") has the role that it was made with. It
 *     counts on each address, and before what is known about the peer in another way. A token that
 *     is not known is answered with 401.
 *   - By HTTPS a client certificate that an authority of ho_tls_ca signed has the highest role that
 *     ho_certs gives to one of its names: the common name, or a subject alternative name.
 *   - A session of a browser (ho_session_look) has the role of its token, over TCP only. It counts
 *     if there is no Authorization header, and before a certificate. Its cookie alone gives no
 *     role: each request must also carry the header HTTP_CSRF.
 *   - Every other request has no role.
 *
 * A request with less than it needs is answered with 403, and the answer names the role. Over plain
 * TCP a request must also name this machine as its Host. Over TCP a web page may send requests only
 * to where it came from (Origin, Sec-Fetch-Site).
 */
#ifndef COMMON_HTTP_H
#define COMMON_HTTP_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
struct http;
struct store_lease;
/* Each role may do what those before it may. */
enum http_role {
	HTTP_OPEN,    /* the route needs no role; the peer has none */
	HTTP_READ,    /* look at everything but tokens */
	HTTP_OPERATE, /* run the cluster: what loses no data and gives no rights away */
	HTTP_ADMIN,   /* everything */
};
const char *http_role_name(enum http_role role); /* "none", "read", "operate", "admin" */
/* False: name is not "read", "operate" or "admin". */
bool http_role_of(const char *name, enum http_role *out);
#define HTTP_NAME_MAX 64
/* The cookie of a session, and the header that must come with it. With the prefix __Host- a browser
 * takes the cookie over TLS only, for this host and all paths (RFC 6265bis). */
#define HTTP_COOKIE	"weft-session"
#define HTTP_COOKIE_TLS "__Host-weft-session"
#define HTTP_CSRF	"X-Weft-CSRF"
/* Who sent a request. */
struct http_who {
	enum http_role w_role;
	const char *w_how; /* "user", "token", "certificate"; "" without any of these */
	uid_t w_uid;	   /* of a user */
	char w_name[HTTP_NAME_MAX + 1]; /* of a token or certificate; "" otherwise */
	char w_from[64];		/* "unix", or an address and a port */
	bool w_tls;			/* it came by https:// */
	uint64_t w_session;		/* 0: the role is not from a session */
};
/* "user root", "token prom"; for people */
void http_who_text(const struct http_who *w, char *out, size_t len);
struct http_req {
	const char *rq_method; /* "GET", "PUT", "POST", "DELETE" */
	const char *rq_path;   /* "/v1/policy" */
	const char *rq_body;   /* NUL-terminated, "" without one; at most 1 MiB */
	size_t rq_len;
	const struct http_who *rq_who;
	void *rq_priv;
};
/* A decoded query argument, or NULL; lives as long as the request. */
const char *http_arg(const struct http_req *rq, const char *name);
/* Is that query argument there, with or without a value? */
bool http_has(const struct http_req *rq, const char *name);
struct http_reply {
	int rp_status;	     /* 200 ... */
	const char *rp_type; /* static string; NULL: application/json */
	char *rp_body;	     /* malloc'd; the server frees it */
	char rp_cookie[192]; /* of Set-Cookie; "": none */
	/* The audit names this one if w_how is not "": who the request turned out to be from. */
	struct http_who rp_who;
};
/* A file that GET serves to everyone, as it is. */
struct http_file {
	const char *hf_path; /* "/console/app.js" */
	const char *hf_type; /* NULL: the answer leads to hf_path with a "/" behind it */
	const void *hf_data;
	size_t hf_len;
	char hf_etag[36]; /* with its quotation marks */
};
struct http_route {
	const char *rt_method, *rt_path;
	enum http_role rt_role;
	void (*rt_handler)(void *arg, const struct http_req *rq, struct http_reply *rp);
};
/* The handler of GET /v1/openapi.json (openapi.c). */
void http_openapi(void *arg, const struct http_req *rq, struct http_reply *rp);
/* What may need root, for a daemon that becomes another user before http_start: the ports of TCP
 * addresses are bound, and the files of https:// are read. Nothing listens yet. */
struct http_bound;
struct http_opts;
/* Of ho_addrs and ho_tls_cert, ho_tls_key, ho_tls_ca. Returns as http_start. */
int http_bind(struct http_bound **out, const struct http_opts *opts, char *err, size_t errlen);
/* The same for a second server that comes before or after: the ports are shared, so one of the two
 * may listen at a time. b NULL: so is *out. 0 or -errno. */
int http_bound_copy(struct http_bound **out, const struct http_bound *b);
#define HTTP_TOKEN_MAX 256
/* Everything is used only during http_start, except ho_token_look, ho_session_look, ho_files and
 * ho_audit. A string that is NULL counts as "". */
struct http_opts {
	/* "unix:/path", "127.0.0.1:port", "[::1]:port" (port 0: any) and "https://ADDRESS:port",
	 * comma separated, at most 4. Only https:// may have an address of another network than
	 * loopback. */
	const char *ho_addrs;
	/* While it does not live, no route but /v1/health is served: the answer is 503. /metrics
	 * and files are served, because they are the process's and not the store's. NULL: it always
	 * lives. Must outlive the server. */
	const struct store_lease *ho_lease;
	const char *ho_token; /* a token with the role admin; "": there is none */
	const char *ho_group; /* its members have the role admin on the Unix socket; "": none has */
	const char *ho_certs; /* "ROLE NAME", comma separated */
	/* PEM files for https:// */
	const char *ho_tls_cert, *ho_tls_key, *ho_tls_ca;
	/* Looks a token up that is not ho_token: fills w_role and w_name. False: it is unknown.
	 * NULL: there are no such tokens. */
	bool (*ho_token_look)(void *arg, const char *token, struct http_who *w);
	/* Looks up a session by its cookie and the value of HTTP_CSRF: fills w_role, w_name and
	 * w_session. NULL: there are no sessions. */
	bool (*ho_session_look)(void *arg, const char *id, const char *csrf, struct http_who *w);
	const struct http_file *ho_files; /* they outlive the server */
	size_t ho_nfiles;
	/* Is called for each PUT, POST, DELETE and PATCH after it was done or refused; the log has
	 * the same line. who: "user root"; what: method, path, status, origin and arguments. It
	 * reports at most HTTP_REFUSED_EACH_S requests a second of peers that may change nothing,
	 * and counts the others. NULL: only the log gets the lines. */
	void (*ho_audit)(void *arg, const char *who, const char *what);
	/* What http_bind made with the same addresses and files: http_start takes it over and frees
	 * it. NULL: http_start opens everything. */
	struct http_bound *ho_bound;
};
struct conf;
/* Fills the addresses, the group, the certificates and their roles from the keys of a section:
 * "mds", or "ds", which has the first two. They live as long as conf. */
void http_opts_conf(struct http_opts *o, const struct conf *conf, const char *section);
#define HTTP_REFUSED_EACH_S 10u
/* GET /metrics is always served: over https:// it needs the role read. So is GET /counts in a build
 * with counts (count.h). routes must outlive the server; arg goes to handlers, ho_token_look,
 * ho_session_look and ho_audit, which are called one at a time. Returns 0, or a negative errno and
 * one line in err. */
int http_start(struct http **out, const struct http_opts *opts, const struct http_route *routes,
	       size_t n, void *arg, char *err, size_t errlen);
/* Reads the certificate and the authorities of https:// again. On an error it logs, and the old
 * ones stay. Any thread but those of handlers. */
void http_tls_reload(struct http *h);
void http_stop(struct http *h);
/* Copies the next address of a list into out and returns the rest of the list; NULL: no more. */
const char *http_addr(const char *list, char *out, size_t len);
/* The bound port of the first TCP address in host order, for port 0; 0: no TCP address. */
uint16_t http_port(const struct http *h);
/* Parses ADDRESS:PORT, without "https://", into ss. loopback: the address is one of this machine
 * only. 0 or -EINVAL. */
struct sockaddr_storage;
int http_tcp_parse(const char *addr, struct sockaddr_storage *ss, bool *loopback);
/* Checks "ROLE NAME, ROLE NAME...". 0, or -EINVAL and the faulty item in bad. */
int http_certs_check(const char *list, char *bad, size_t len);
#endif
