/* SPDX-License-Identifier: Apache-2.0 */
/* scrape.c - see scrape.h. libmicrohttpd with one thread for each address. */
#include "common/scrape.h"
#include "base/clock.h"
#include "base/metrics.h"
#include <errno.h>
#include <microhttpd.h>
#include <netdb.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define SCRAPE_ADDRS	   4u
#define SCRAPE_CONNS	   32u /* of one address of ours */
#define SCRAPE_CONNS_PEER  8u  /* from one address */
#define SCRAPE_CONN_MEM	   8192u
#define SCRAPE_TIMEOUT_S   10u
#define SCRAPE_OPENMETRICS "application/openmetrics-text; version=1.0.0; charset=utf-8"
#define SCRAPE_PLAIN	   "text/plain; version=0.0.4; charset=utf-8"

/* A text, for as many answers as come within SCRAPE_APART_MS. */
struct scrape_text {
	char *sx_text;
	uint64_t sx_ms;
};

struct scrape {
	struct MHD_Daemon *sc_daemon[SCRAPE_ADDRS];
	unsigned sc_n;
	void (*sc_health)(void *arg, const struct http_req *rq, struct http_reply *rp);
	void *sc_arg;
	pthread_mutex_t sc_lock; /* guards sc_text */
	struct scrape_text sc_text[2];
};

/* ---- requests ---- */

/* The metrics in that format, malloc'd; NULL: no memory. */
static char *scrape_metrics(struct scrape *s, bool plain)
{
	struct scrape_text *sx = &s->sc_text[plain];
	char *text;

	pthread_mutex_lock(&s->sc_lock);
	if (!sx->sx_text || clock_mono_ms() - sx->sx_ms >= SCRAPE_APART_MS) {
		free(sx->sx_text);
		sx->sx_text = plain ? metrics_render_plain() : metrics_render();
		sx->sx_ms = clock_mono_ms();
	}
	text = strdup(sx->sx_text);
	pthread_mutex_unlock(&s->sc_lock);
	return text;
}

static void scrape_error(struct http_reply *rp, int status, const char *why)
{
	rp->rp_status = status;
	if (asprintf(&rp->rp_body, "{\"error\": \"%s\"}\n", why) < 0)
		rp->rp_body = NULL;
}

static void scrape_route(struct scrape *s, struct MHD_Connection *conn, const char *url,
			 const char *method, struct http_reply *rp)
{
	const char *accept =
		MHD_lookup_connection_value(conn, MHD_HEADER_KIND, MHD_HTTP_HEADER_ACCEPT);
	const struct http_req rq = {
		.rq_method = "GET", .rq_path = url, .rq_body = "", .rq_priv = conn};
	bool plain = !accept || !strstr(accept, "application/openmetrics-text");

	rp->rp_status = MHD_HTTP_OK;
	if (strcmp(method, MHD_HTTP_METHOD_GET) && strcmp(method, MHD_HTTP_METHOD_HEAD)) {
		scrape_error(rp, MHD_HTTP_METHOD_NOT_ALLOWED, "this port is read only");
	} else if (!strcmp(url, "/metrics")) {
		rp->rp_body = scrape_metrics(s, plain);
		rp->rp_type = plain ? SCRAPE_PLAIN : SCRAPE_OPENMETRICS;
	} else if (!strcmp(url, "/v1/health")) {
		s->sc_health(s->sc_arg, &rq, rp);
	} else {
		scrape_error(rp, MHD_HTTP_NOT_FOUND, "this port has /metrics and /v1/health only");
	}
}

static enum MHD_Result scrape_reply(struct MHD_Connection *conn, const struct http_reply *rp)
{
	struct MHD_Response *r =
		rp->rp_body ? MHD_create_response_from_buffer(strlen(rp->rp_body), rp->rp_body,
							      MHD_RESPMEM_MUST_FREE)
			    : NULL;
	enum MHD_Result ok = MHD_NO;

	if (!r) {
		free(rp->rp_body);
		return MHD_NO;
	}
	if (MHD_add_response_header(r, MHD_HTTP_HEADER_CONTENT_TYPE,
				    rp->rp_type ? rp->rp_type : "application/json") == MHD_YES &&
	    (rp->rp_status != MHD_HTTP_METHOD_NOT_ALLOWED ||
	     MHD_add_response_header(r, MHD_HTTP_HEADER_ALLOW, "GET, HEAD") == MHD_YES))
		ok = MHD_queue_response(conn, (unsigned)rp->rp_status, r);
	MHD_destroy_response(r);
	return ok;
}

/* Called with the header, then for each piece of the body, then with no piece. A request with a
 * body is answered at once, and libmicrohttpd then ends its connection. */
static enum MHD_Result scrape_request(void *cls, struct MHD_Connection *conn, const char *url,
				      const char *method, const char *version, const char *data,
				      size_t *n, void **state)
{
	struct http_reply rp = {0};
	bool get = !strcmp(method, MHD_HTTP_METHOD_GET) || !strcmp(method, MHD_HTTP_METHOD_HEAD);

	(void)version;
	(void)data;
	if (!*state && get) {
		*state = cls;
		return MHD_YES;
	}
	if (*n) {
		*n = 0;
		return MHD_YES;
	}
	scrape_route(cls, conn, url, method, &rp);
	return scrape_reply(conn, &rp);
}

/* ---- addresses ---- */

/* "192.0.2.1:9300" or "[2001:db8::1]:9300" */
static int scrape_addr(const char *text, struct addrinfo **ai)
{
	const struct addrinfo hints = {.ai_flags = AI_PASSIVE | AI_NUMERICHOST | AI_NUMERICSERV,
				       .ai_socktype = SOCK_STREAM};
	const char *colon = strrchr(text, ':'), *from = text;
	unsigned long port;
	char host[64], *end;
	size_t len = colon ? (size_t)(colon - text) : 0;

	if (len > 2 && text[0] == '[' && text[len - 1] == ']') {
		from++;
		len -= 2;
	} else if (memchr(text, ':', len)) {
		return -EINVAL;
	}
	if (!len || len >= sizeof(host))
		return -EINVAL;
	port = strtoul(colon + 1, &end, 10);
	if (end == colon + 1 || *end || port > UINT16_MAX)
		return -EINVAL;
	memcpy(host, from, len);
	host[len] = 0;
	return getaddrinfo(host, colon + 1, &hints, ai) ? -EINVAL : 0;
}

static int scrape_not_addr(const char *key, const char *addr, char *err, size_t errlen)
{
	snprintf(err, errlen,
		 "%s: \"%s\" is not an address with a port; expected one such as 0.0.0.0:9300 or "
		 "[::]:9300",
		 key, addr);
	return -EINVAL;
}

int scrape_check(const char *key, const char *addrs, char *err, size_t errlen)
{
	struct addrinfo *ai;
	char addr[256];

	for (unsigned n = 1; (addrs = http_addr(addrs, addr, sizeof(addr))); n++) {
		if (scrape_addr(addr, &ai))
			return scrape_not_addr(key, addr, err, errlen);
		freeaddrinfo(ai);
		if (n > SCRAPE_ADDRS) {
			snprintf(err, errlen, "%s: more than %u addresses", key, SCRAPE_ADDRS);
			return -E2BIG;
		}
	}
	return 0;
}

static int scrape_listen(const struct addrinfo *ai)
{
	int fd = socket(ai->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1, err;

	if (fd < 0)
		return -errno;
	/* [::] is the addresses of IPv6 alone, so that 0.0.0.0 may stand beside it. */
	if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) ||
	    (ai->ai_family == AF_INET6 &&
	     setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof(one))) ||
	    bind(fd, ai->ai_addr, ai->ai_addrlen) || listen(fd, (int)SCRAPE_CONNS)) {
		err = -errno;
		close(fd);
		return err;
	}
	return fd;
}

static int scrape_one(struct scrape *s, const char *key, const char *addr, char *err, size_t errlen)
{
	struct addrinfo *ai;
	int fd;

	if (scrape_addr(addr, &ai))
		return scrape_not_addr(key, addr, err, errlen);
	fd = scrape_listen(ai);
	freeaddrinfo(ai);
	if (fd < 0) {
		snprintf(err, errlen, "%s: cannot listen on %s: %s", key, addr, strerror(-fd));
		return fd;
	}
	s->sc_daemon[s->sc_n] = MHD_start_daemon(
		MHD_USE_AUTO | MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_ITC, 0, NULL, NULL,
		scrape_request, s, MHD_OPTION_LISTEN_SOCKET, fd, MHD_OPTION_CONNECTION_TIMEOUT,
		SCRAPE_TIMEOUT_S, MHD_OPTION_CONNECTION_LIMIT, SCRAPE_CONNS,
		MHD_OPTION_PER_IP_CONNECTION_LIMIT, SCRAPE_CONNS_PEER,
		MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)SCRAPE_CONN_MEM, MHD_OPTION_END);
	if (s->sc_daemon[s->sc_n]) {
		s->sc_n++;
		return 0;
	}
	close(fd);
	snprintf(err, errlen, "%s: %s: cannot start a thread", key, addr);
	return -EIO;
}

int scrape_start(struct scrape **out, const char *key, const char *addrs,
		 void (*health)(void *arg, const struct http_req *rq, struct http_reply *rp),
		 void *arg, char *err, size_t errlen)
{
	struct scrape *s;
	char addr[256];
	int e = scrape_check(key, addrs, err, errlen);

	if (e)
		return e;
	s = calloc(1, sizeof(*s));
	if (!s) {
		snprintf(err, errlen, "%s: out of memory", key);
		return -ENOMEM;
	}
	s->sc_health = health;
	s->sc_arg = arg;
	pthread_mutex_init(&s->sc_lock, NULL);
	while (!e && (addrs = http_addr(addrs, addr, sizeof(addr))))
		e = scrape_one(s, key, addr, err, errlen);
	if (e)
		scrape_stop(s);
	else
		*out = s;
	return e;
}

void scrape_stop(struct scrape *s)
{
	if (!s)
		return;
	for (unsigned i = 0; i < s->sc_n; i++)
		MHD_stop_daemon(s->sc_daemon[i]);
	for (unsigned i = 0; i < 2; i++)
		free(s->sc_text[i].sx_text);
	pthread_mutex_destroy(&s->sc_lock);
	free(s);
}
