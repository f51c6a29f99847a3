/* http.c - see http.h. libmicrohttpd with one thread: requests are handled one after the other. */
#include "base/count.h"
#include "base/http.h"
#include "base/log.h"
#include "base/metrics.h"
#include <arpa/inet.h>
#include <errno.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define HTTP_MAX_BODY  (1u << 20)
#define HTTP_TIMEOUT_S 30u
#define OPENMETRICS    "application/openmetrics-text; version=1.0.0; charset=utf-8"

struct http {
	struct MHD_Daemon *h_daemon;
	const struct http_route *h_routes;
	size_t h_nroutes;
	void *h_arg;
	char h_path[sizeof((struct sockaddr_un *)0)->sun_path]; /* the socket file, "" for TCP */
};

/* A request while its body arrives. */
struct pending {
	char *pd_body;
	size_t pd_len, pd_cap;
	int pd_status; /* not 0: refused, what is still to come is thrown away */
};

const char *http_arg(const struct http_req *rq, const char *name)
{
	const char *value = NULL;
	size_t len = 0;

	/* A value with a NUL in it is none: cut there it would be another. */
	if (MHD_lookup_connection_value_n(rq->rq_priv, MHD_GET_ARGUMENT_KIND, name, strlen(name), &value, &len) != MHD_YES || !value ||
	    strlen(value) != len)
		return NULL;
	return value;
}

/* ---- requests ---- */

static void body_add(struct pending *pd, const char *data, size_t n)
{
	char *p;

	if (pd->pd_status)
		return;
	if (n > HTTP_MAX_BODY - pd->pd_len) {
		pd->pd_status = MHD_HTTP_CONTENT_TOO_LARGE;
		return;
	}
	if (pd->pd_len + n + 1 > pd->pd_cap) {
		size_t cap = 2 * (pd->pd_len + n + 1);

		p = realloc(pd->pd_body, cap);
		if (!p) {
			pd->pd_status = MHD_HTTP_SERVICE_UNAVAILABLE;
			return;
		}
		pd->pd_body = p;
		pd->pd_cap = cap;
	}
	memcpy(pd->pd_body + pd->pd_len, data, n);
	pd->pd_len += n;
	pd->pd_body[pd->pd_len] = 0;
}

static void error_reply(struct http_reply *rp, int status, const char *text)
{
	char body[128];

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

/* Called with the header, then for each piece of body, then with none. */
static enum MHD_Result on_request(void *cls, struct MHD_Connection *conn, const char *url,
				  const char *method, const char *version, const char *data,
				  size_t *n, void **state)
{
	struct http_reply rp = {0};
	struct pending *pd = *state;
	struct http_req rq;

	(void)version;
	if (!pd) {
		*state = calloc(1, sizeof *pd);
		return *state ? MHD_YES : MHD_NO;
	}
	if (*n) {
		body_add(pd, data, *n);
		*n = 0;
		return MHD_YES;
	}
	if (pd->pd_status) {
		error_reply(&rp, pd->pd_status, "body too large");
		return reply_queue(conn, &rp);
	}
	rq = (struct http_req){
		.rq_method = method,
		.rq_path = url,
		.rq_body = pd->pd_body ? pd->pd_body : "",
		.rq_len = pd->pd_len,
		.rq_priv = conn,
	};
	route(cls, &rq, &rp);
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
	free(pd->pd_body);
	free(pd);
	*state = NULL;
}

/* ---- sockets ---- */

/* A socket file that nobody answers on is left over from a daemon that was killed; any other file
 * stays. */
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

static int unix_listen(struct http *h, const char *path)
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
	/* Who may connect administers the server: closed to others before anybody can. */
	if (fchmod(fd, 0660) || bind(fd, (struct sockaddr *)&un, sizeof un)) {
		err = -errno;
		close(fd);
		return err;
	}
	strcpy(h->h_path, path);
	/* The umask took bits away: whose group may is said by the folder. */
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
	/* There is no authentication: this machine only. */
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

int http_start(struct http **out, const char *addr, const struct http_route *routes, size_t n,
	       void *arg)
{
	struct http *h = calloc(1, sizeof *h);
	int fd;

	if (!h)
		return -ENOMEM;
	h->h_routes = routes;
	h->h_nroutes = n;
	h->h_arg = arg;
	fd = strncmp(addr, "unix:", 5) ? tcp_listen(addr) : unix_listen(h, addr + 5);
	if (fd < 0) {
		free(h);
		return fd;
	}
	h->h_daemon = MHD_start_daemon(
		MHD_USE_AUTO | MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_ITC, 0, NULL, NULL,
		on_request, h, MHD_OPTION_LISTEN_SOCKET, fd, MHD_OPTION_CONNECTION_TIMEOUT,
		HTTP_TIMEOUT_S, MHD_OPTION_NOTIFY_COMPLETED, on_completed, NULL, MHD_OPTION_END);
	if (!h->h_daemon) {
		close(fd);
		if (*h->h_path)
			unlink(h->h_path);
		free(h);
		return -EIO;
	}
	*out = h;
	return 0;
}

uint16_t http_port(const struct http *h)
{
	const union MHD_DaemonInfo *info =
		MHD_get_daemon_info(h->h_daemon, MHD_DAEMON_INFO_LISTEN_FD);
	struct sockaddr_in in;
	socklen_t len = sizeof in;

	if (*h->h_path || !info || getsockname(info->listen_fd, (struct sockaddr *)&in, &len))
		return 0;
	return ntohs(in.sin_port);
}

void http_stop(struct http *h)
{
	/* The name first, so that nobody comes to a server that is going. */
	if (*h->h_path)
		unlink(h->h_path);
	MHD_stop_daemon(h->h_daemon);
	free(h);
}
