/* SPDX-License-Identifier: Apache-2.0 */
/* http.c - see http.h. libmicrohttpd with one thread for each address; requests are handled one
 * after the other. */
#include "base/count.h"
#include "base/http.h"
#include "base/log.h"
#include "base/metrics.h"
#include <arpa/inet.h>
#include <errno.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define HTTP_MAX_BODY	(1u << 20)
#define HTTP_MAX_BODIES (8u << 20) /* of all requests under way */
#define HTTP_MAX_CONNS	128u	   /* of one address of ours */
#define HTTP_CONN_MEM	32768u	   /* bytes of a connection, for the head of a request */
#define HTTP_TIMEOUT_S	30u
#define HTTP_ADDRS	4u
#define OPENMETRICS	"application/openmetrics-text; version=1.0.0; charset=utf-8"

/* One address, with a thread of its own. */
struct http_at {
	struct http *at_http;
	struct MHD_Daemon *at_daemon;
	bool at_tcp;
	char at_path[sizeof((struct sockaddr_un *)0)->sun_path]; /* the socket file, "" for TCP */
};

struct http {
	struct http_at h_at[HTTP_ADDRS];
	unsigned h_n;
	const struct http_route *h_routes;
	size_t h_nroutes;
	void *h_arg;
	pthread_mutex_t h_lock; /* handlers run one after the other */
	_Atomic size_t h_bodies;
	char h_token[HTTP_TOKEN_MAX + 1]; /* "": none */
};

/* A request while its body arrives. */
struct pending {
	struct http *pd_http;
	char *pd_body;
	const char *pd_why;
	size_t pd_len, pd_cap;
	int pd_status; /* not 0: refused because of pd_why, the rest of the body is dropped */
};

const char *http_arg(const struct http_req *rq, const char *name)
{
	const char *value = NULL;
	size_t len = 0;

	/* Refuse a value with a NUL in it: cut there it would be another value. */
	if (MHD_lookup_connection_value_n(rq->rq_priv, MHD_GET_ARGUMENT_KIND, name, strlen(name),
					  &value, &len) != MHD_YES ||
	    !value || strlen(value) != len)
		return NULL;
	return value;
}

/* ---- requests ---- */

static void http_refuse(struct pending *pd, int status, const char *why)
{
	pd->pd_status = status;
	pd->pd_why = why;
	atomic_fetch_sub(&pd->pd_http->h_bodies, pd->pd_cap);
	free(pd->pd_body);
	pd->pd_body = NULL;
	pd->pd_len = pd->pd_cap = 0;
}

static void body_add(struct pending *pd, const char *data, size_t n)
{
	_Atomic size_t *all = &pd->pd_http->h_bodies;
	char *p;

	if (pd->pd_status)
		return;
	if (n > HTTP_MAX_BODY - pd->pd_len) {
		http_refuse(pd, MHD_HTTP_CONTENT_TOO_LARGE, "body too large");
		return;
	}
	if (pd->pd_len + n + 1 > pd->pd_cap) {
		size_t cap = 2 * (pd->pd_len + n + 1), more = cap - pd->pd_cap;

		if (atomic_fetch_add(all, more) + more > HTTP_MAX_BODIES ||
		    !(p = realloc(pd->pd_body, cap))) {
			atomic_fetch_sub(all, more);
			http_refuse(pd, MHD_HTTP_SERVICE_UNAVAILABLE,
				    "too many requests with bodies at the same time");
			return;
		}
		pd->pd_body = p;
		pd->pd_cap = cap;
	}
	memcpy(pd->pd_body + pd->pd_len, data, n);
	pd->pd_len += n;
	pd->pd_body[pd->pd_len] = 0;
}

/* ---- what is allowed over TCP ---- */

/* True for a name of this machine. Another name leads here only through a DNS that an attacker
 * answers. */
static bool host_is_ours(const char *host)
{
	size_t n = strcspn(host, ":");
	char text[INET_ADDRSTRLEN];
	struct in_addr in;

	if (n == 9 && !strncasecmp(host, "localhost", 9))
		return true;
	if (n >= sizeof(text))
		return false;
	memcpy(text, host, n);
	text[n] = 0;
	return inet_pton(AF_INET, text, &in) == 1 && ntohl(in.s_addr) >> 24 == 127;
}

static bool token_right(const struct http *h, const char *given)
{
	size_t n = strlen(h->h_token);
	unsigned char other = 0;

	if (!n || !given || strncasecmp(given, "Bearer ", 7) || strlen(given + 7) != n)
		return false;
	/* Compare all bytes, so that the time reveals nothing. */
	for (size_t i = 0; i < n; i++)
		other |= (unsigned char)(given[7 + i] ^ h->h_token[i]);
	return !other;
}

static bool http_is_open(const char *path, const char *method)
{
	if (strcmp(method, "GET") && strcmp(method, "HEAD"))
		return false;
#ifdef WEFT_COUNTS
	if (!strcmp(path, "/counts"))
		return true;
#endif
	return !strcmp(path, "/metrics") || !strcmp(path, "/v1/health");
}

/* Any process on this machine can connect to a port, and so can a web page in a browser here.
 * Returns NULL if the request is allowed, else why not. */
static const char *http_refused(const struct http *h, struct MHD_Connection *conn, const char *path,
				const char *method, const char *version)
{
	const char *host = MHD_lookup_connection_value(conn, MHD_HEADER_KIND, MHD_HTTP_HEADER_HOST);
	const char *auth =
		MHD_lookup_connection_value(conn, MHD_HEADER_KIND, MHD_HTTP_HEADER_AUTHORIZATION);

	if (host ? !host_is_ours(host) : strcmp(version, "HTTP/1.0") != 0)
		return "the Host header of a request must be 127.0.0.1 or localhost";
	if (MHD_lookup_connection_value(conn, MHD_HEADER_KIND, MHD_HTTP_HEADER_ORIGIN))
		return "requests from web pages are refused";
	if (http_is_open(path, method) || token_right(h, auth))
		return NULL;
	return *h->h_token ? "over TCP this request needs the token of mds.admin_token "
			     "(WEFT_ADMIN_TOKEN names its file); or use the Unix socket"
			   : "over TCP only GET /metrics and /v1/health are allowed: use the Unix "
			     "socket, or set mds.admin_token";
}

static void error_reply(struct http_reply *rp, int status, const char *text)
{
	char body[256];

	snprintf(body, sizeof body, "{\"error\": \"%s\"}\n", text);
	free(rp->rp_body);
	rp->rp_status = status;
	rp->rp_type = NULL;
	rp->rp_body = strdup(body);
}

static void route(struct http *h, const struct http_req *rq, struct http_reply *rp)
{
	bool other = false, head = !strcmp(rq->rq_method, "HEAD");
	const char *method = head ? "GET" : rq->rq_method;

	for (size_t i = 0; i < h->h_nroutes; i++) {
		const struct http_route *rt = &h->h_routes[i];

		if (strcmp(rt->rt_path, rq->rq_path))
			continue;
		if (!strcmp(rt->rt_method, method)) {
			rp->rp_status = MHD_HTTP_OK;
			rt->rt_handler(h->h_arg, rq, rp);
			return;
		}
		other = true;
	}
#ifdef WEFT_COUNTS
	if (!strcmp(rq->rq_path, "/counts") && !strcmp(method, "GET")) {
		rp->rp_status = MHD_HTTP_OK;
		rp->rp_body = count_json();
		return;
	}
#endif
	if (strcmp(rq->rq_path, "/metrics")) {
		error_reply(rp, other ? MHD_HTTP_METHOD_NOT_ALLOWED : MHD_HTTP_NOT_FOUND,
			    other ? "method not allowed here" : "no such path");
		return;
	}
	if (strcmp(method, "GET")) {
		error_reply(rp, MHD_HTTP_METHOD_NOT_ALLOWED, "method not allowed here");
		return;
	}
	rp->rp_status = MHD_HTTP_OK;
	rp->rp_type = OPENMETRICS;
	rp->rp_body = metrics_render();
}

static enum MHD_Result reply_queue(struct MHD_Connection *conn, struct http_reply *rp)
{
	const char *type = rp->rp_type ? rp->rp_type : "application/json";
	size_t len = rp->rp_body ? strlen(rp->rp_body) : 0;
	struct MHD_Response *r =
		MHD_create_response_from_buffer(len, rp->rp_body, MHD_RESPMEM_MUST_FREE);
	enum MHD_Result ok = MHD_NO;

	if (!r) {
		free(rp->rp_body);
		return MHD_NO;
	}
	if (MHD_add_response_header(r, MHD_HTTP_HEADER_CONTENT_TYPE, type) == MHD_YES)
		ok = MHD_queue_response(conn, (unsigned)rp->rp_status, r);
	MHD_destroy_response(r);
	return ok;
}

/* Called with the header, then for each piece of the body, then with no piece. */
static enum MHD_Result on_request(void *cls, struct MHD_Connection *conn, const char *url,
				  const char *method, const char *version, const char *data,
				  size_t *n, void **state)
{
	struct http_reply rp = {0};
	struct pending *pd = *state;
	struct http_at *at = cls;
	struct http *h = at->at_http;
	struct http_req rq;
	const char *why;

	if (!pd) {
		*state = pd = calloc(1, sizeof *pd);
		if (!pd)
			return MHD_NO;
		pd->pd_http = h;
		why = at->at_tcp ? http_refused(h, conn, url, method, version) : NULL;
		if (why)
			http_refuse(pd, MHD_HTTP_FORBIDDEN, why);
		return MHD_YES;
	}
	if (*n) {
		body_add(pd, data, *n);
		*n = 0;
		return MHD_YES;
	}
	if (pd->pd_status) {
		error_reply(&rp, pd->pd_status, pd->pd_why);
		return reply_queue(conn, &rp);
	}
	rq = (struct http_req){
		.rq_method = method,
		.rq_path = url,
		.rq_body = pd->pd_body ? pd->pd_body : "",
		.rq_len = pd->pd_len,
		.rq_priv = conn,
	};
	pthread_mutex_lock(&h->h_lock);
	route(h, &rq, &rp);
	pthread_mutex_unlock(&h->h_lock);
	return reply_queue(conn, &rp);
}

static void on_completed(void *cls, struct MHD_Connection *conn, void **state,
			 enum MHD_RequestTerminationCode why)
{
	struct pending *pd = *state;

	(void)cls;
	(void)conn;
	(void)why;
	if (!pd)
		return;
	atomic_fetch_sub(&pd->pd_http->h_bodies, pd->pd_cap);
	free(pd->pd_body);
	free(pd);
	*state = NULL;
}

/* ---- sockets ---- */

/* A socket file on which no daemon answers is left over from a daemon that was killed. Any other
 * file stays. */
static int unix_stale(const struct sockaddr_un *un)
{
	struct stat st;
	int fd, rc;

	if (lstat(un->sun_path, &st))
		return errno == ENOENT ? 0 : -errno;
	if (!S_ISSOCK(st.st_mode))
		return -EEXIST;
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	rc = connect(fd, (const struct sockaddr *)un, sizeof *un) ? errno : 0;
	close(fd);
	if (rc != ECONNREFUSED)
		return -EADDRINUSE;
	return unlink(un->sun_path) && errno != ENOENT ? -errno : 0;
}

static int unix_listen(struct http_at *at, const char *path)
{
	struct sockaddr_un un = {.sun_family = AF_UNIX};
	int fd, err;

	if (!*path || strlen(path) >= sizeof un.sun_path)
		return -ENAMETOOLONG;
	memcpy(un.sun_path, path, strlen(path));
	err = unix_stale(&un);
	if (err)
		return err;
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	/* A client of this socket administers the server. So close it to others before any can
	 * connect. */
	if (fchmod(fd, 0660) || bind(fd, (struct sockaddr *)&un, sizeof un)) {
		err = -errno;
		close(fd);
		return err;
	}
	strcpy(at->at_path, path);
	/* The umask took bits away. The folder decides which group may connect. */
	if (chmod(path, 0660) || listen(fd, 64)) {
		err = -errno;
		close(fd);
		unlink(path);
		return err;
	}
	return fd;
}

static int tcp_listen(const char *addr)
{
	struct sockaddr_in in = {.sin_family = AF_INET};
	const char *colon = strrchr(addr, ':');
	char host[INET_ADDRSTRLEN], *end;
	int fd, err, one = 1;
	unsigned long port;

	if (!colon || (size_t)(colon - addr) >= sizeof host)
		return -EINVAL;
	memcpy(host, addr, (size_t)(colon - addr));
	host[colon - addr] = 0;
	port = strtoul(colon + 1, &end, 10);
	if (inet_pton(AF_INET, host, &in.sin_addr) != 1 || end == colon + 1 || *end || port > 65535)
		return -EINVAL;
	/* This traffic is not protected: allow this machine only. */
	if (ntohl(in.sin_addr.s_addr) >> 24 != 127)
		return -EACCES;
	in.sin_port = htons((uint16_t)port);
	fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) ||
	    bind(fd, (struct sockaddr *)&in, sizeof in) || listen(fd, 64)) {
		err = -errno;
		close(fd);
		return err;
	}
	return fd;
}

static int at_start(struct http *h, const char *addr)
{
	struct http_at *at = &h->h_at[h->h_n];
	int fd;

	at->at_http = h;
	at->at_tcp = strncmp(addr, "unix:", 5);
	fd = at->at_tcp ? tcp_listen(addr) : unix_listen(at, addr + 5);
	if (fd < 0)
		return fd;
	at->at_daemon = MHD_start_daemon(
		MHD_USE_AUTO | MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_ITC, 0, NULL, NULL,
		on_request, at, MHD_OPTION_LISTEN_SOCKET, fd, MHD_OPTION_CONNECTION_TIMEOUT,
		HTTP_TIMEOUT_S, MHD_OPTION_CONNECTION_LIMIT, HTTP_MAX_CONNS,
		MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)HTTP_CONN_MEM,
		MHD_OPTION_NOTIFY_COMPLETED, on_completed, NULL, MHD_OPTION_END);
	h->h_n++;
	if (at->at_daemon)
		return 0;
	close(fd);
	return -EIO;
}

const char *http_addr(const char *list, char *out, size_t len)
{
	size_t n = 0;

	while (*list == ',' || *list == ' ')
		list++;
	if (!*list)
		return NULL;
	while (list[n] && list[n] != ',')
		n++;
	snprintf(out, len, "%.*s", (int)n, list);
	return list + n;
}

int http_start(struct http **out, const char *addrs, const char *token,
	       const struct http_route *routes, size_t n, void *arg)
{
	struct http *h = calloc(1, sizeof *h);
	char addr[256];
	int err = 0;

	if (!h)
		return -ENOMEM;
	h->h_routes = routes;
	h->h_nroutes = n;
	h->h_arg = arg;
	pthread_mutex_init(&h->h_lock, NULL);
	snprintf(h->h_token, sizeof h->h_token, "%s", token ? token : "");
	while (!err && (addrs = http_addr(addrs, addr, sizeof addr)))
		err = h->h_n == HTTP_ADDRS ? -E2BIG : at_start(h, addr);
	if (err)
		http_stop(h);
	else
		*out = h;
	return err;
}

uint16_t http_port(const struct http *h)
{
	const union MHD_DaemonInfo *info;
	struct sockaddr_in in;
	socklen_t len = sizeof in;

	for (unsigned i = 0; i < h->h_n; i++) {
		if (!h->h_at[i].at_tcp)
			continue;
		info = MHD_get_daemon_info(h->h_at[i].at_daemon, MHD_DAEMON_INFO_LISTEN_FD);
		return !info || getsockname(info->listen_fd, (struct sockaddr *)&in, &len)
			       ? 0
			       : ntohs(in.sin_port);
	}
	return 0;
}

void http_stop(struct http *h)
{
	/* Remove the names first, so that no client comes to a server that is stopping. */
	for (unsigned i = 0; i < h->h_n; i++)
		if (*h->h_at[i].at_path)
			unlink(h->h_at[i].at_path);
	for (unsigned i = 0; i < h->h_n; i++)
		if (h->h_at[i].at_daemon)
			MHD_stop_daemon(h->h_at[i].at_daemon);
	pthread_mutex_destroy(&h->h_lock);
	explicit_bzero(h->h_token, sizeof h->h_token);
	free(h);
}
