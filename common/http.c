/* SPDX-License-Identifier: Apache-2.0 */
/* http.c - see http.h. libmicrohttpd with one thread for each address; requests are handled one
 * after the other. */
#include "base/count.h"
#include "base/log.h"
#include "base/metrics.h"
#include "common/http_int.h"
#include "common/store_lease.h"
#include <errno.h>
#include <jansson.h>
#include <netinet/in.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define HTTP_MAX_BODY	(1u << 20)
#define HTTP_MAX_BODIES (8u << 20) /* of all requests under way */
#define HEALTH		"/v1/health"
#define OPENMETRICS	"application/openmetrics-text; version=1.0.0; charset=utf-8"

/* A request while its body arrives. */
struct pending {
	struct http *pd_http;
	char *pd_body;
	char pd_why[256];
	size_t pd_len, pd_cap;
	int pd_status; /* not 0: refused because of pd_why, the rest of the body is dropped */
	struct http_who pd_who;
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

bool http_has(const struct http_req *rq, const char *name)
{
	const char *value;

	return MHD_lookup_connection_value_n(rq->rq_priv, MHD_GET_ARGUMENT_KIND, name, strlen(name),
					     &value, NULL) == MHD_YES;
}

/* ---- requests ---- */

static void http_refuse(struct pending *pd, int status, const char *why)
{
	pd->pd_status = status;
	snprintf(pd->pd_why, sizeof pd->pd_why, "%s", why);
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

/* ---- routes ---- */

static const struct http_route *route_find(const struct http *h, const char *path,
					   const char *method, bool *other)
{
	*other = false;
	if (!strcmp(method, "HEAD"))
		method = "GET";
	for (size_t i = 0; i < h->h_nroutes; i++) {
		const struct http_route *rt = &h->h_routes[i];

		if (strcmp(rt->rt_path, path))
			continue;
		if (!strcmp(rt->rt_method, method))
			return rt;
		*other = true;
	}
	return NULL;
}

static bool is_get(const char *method)
{
	return !strcmp(method, "GET") || !strcmp(method, "HEAD");
}

/* What the server itself answers, without a route. */
static bool is_own(const char *path)
{
#ifdef COUNTS_ON
	if (!strcmp(path, "/counts"))
		return true;
#endif
	return !strcmp(path, "/metrics");
}

/* The role that a request needs. A peer without a role does not learn which paths there are. */
static enum http_role role_needed(const struct http_at *at, const char *path, const char *method)
{
	bool other, get = is_get(method);
	const struct http_route *rt = route_find(at->at_http, path, method, &other);

	if (rt)
		return rt->rt_role;
	if (http_file_find(at->at_http, path))
		return HTTP_OPEN;
	return get && is_own(path) && !at->at_tls ? HTTP_OPEN : HTTP_READ;
}

static void error_reply(struct http_reply *rp, int status, const char *text)
{
	json_t *s = json_string(text), *j = json_pack("{s:o}", "error", s ? s : json_null());

	free(rp->rp_body);
	rp->rp_status = status;
	rp->rp_type = NULL;
	rp->rp_body = json_dumps(j, 0);
	json_decref(j);
}

static bool changes(const char *method)
{
	return !strcmp(method, "PUT") || !strcmp(method, "POST") || !strcmp(method, "DELETE") ||
	       !strcmp(method, "PATCH");
}

/* A person, or a program that a person started, waits for the answer, and gets one. What it asked
 * for was not begun. */
static bool held_before(struct http *h, const char *path, struct http_reply *rp)
{
	if (!strcmp(path, HEALTH) || store_lease_live(h->h_lease))
		return true;
	error_reply(rp, MHD_HTTP_SERVICE_UNAVAILABLE,
		    "this instance does not hold its store now: nothing was done; try again");
	return false;
}

/* The handler looked at the state; this looks at the lease behind it. */
static void held_after(struct http *h, const struct http_req *rq, struct http_reply *rp)
{
	if (!strcmp(rq->rq_path, HEALTH) || store_lease_live(h->h_lease))
		return;
	free(rp->rp_body);
	*rp->rp_cookie = 0;
	rp->rp_body = NULL;
	rp->rp_type = NULL;
	error_reply(rp, MHD_HTTP_SERVICE_UNAVAILABLE,
		    changes(rq->rq_method)
			    ? "this instance lost hold of its store meanwhile: it is not known "
			      "whether the request was done; look, then try again"
			    : "this instance does not hold its store now: try again");
}

static void route(struct http *h, const struct http_req *rq, struct http_reply *rp)
{
	const char *method = !strcmp(rq->rq_method, "HEAD") ? "GET" : rq->rq_method;
	bool other;
	const struct http_route *rt = route_find(h, rq->rq_path, method, &other);

	if (rt) {
		if (!held_before(h, rq->rq_path, rp))
			return;
		rp->rp_status = MHD_HTTP_OK;
		rt->rt_handler(h->h_arg, rq, rp);
		held_after(h, rq, rp);
		return;
	}
	/* A process that waits for its store has few routes: the others come when it serves. */
	if (!strncmp(rq->rq_path, "/v1/", 4) && !held_before(h, rq->rq_path, rp))
		return;
#ifdef COUNTS_ON
	if (!strcmp(rq->rq_path, "/counts") && !strcmp(method, "GET")) {
		rp->rp_status = MHD_HTTP_OK;
		rp->rp_body = count_json();
		return;
	}
#endif
	if (strcmp(rq->rq_path, "/metrics")) {
		other = other || http_file_find(h, rq->rq_path);
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
	if (http_page_headers(r, NULL) &&
	    MHD_add_response_header(r, MHD_HTTP_HEADER_CONTENT_TYPE, type) == MHD_YES &&
	    (!*rp->rp_cookie ||
	     MHD_add_response_header(r, MHD_HTTP_HEADER_SET_COOKIE, rp->rp_cookie) == MHD_YES) &&
	    (rp->rp_status != MHD_HTTP_UNAUTHORIZED ||
	     MHD_add_response_header(r, MHD_HTTP_HEADER_WWW_AUTHENTICATE, "Bearer") == MHD_YES))
		ok = MHD_queue_response(conn, (unsigned)rp->rp_status, r);
	MHD_destroy_response(r);
	return ok;
}

/* The head of a request is here. */
static struct pending *pending_make(struct http_at *at, struct MHD_Connection *conn,
				    const char *url, const char *method, const char *version)
{
	struct pending *pd = calloc(1, sizeof *pd);
	enum http_role need;
	char why[256];
	int status;

	if (!pd)
		return NULL;
	pd->pd_http = at->at_http;
	status = http_who(at, conn, version, &pd->pd_who, why, sizeof why);
	need = role_needed(at, url, method);
	/* Anyone may link to a file. A page elsewhere has no business with the API: a browser
	 * would add the user's certificate. */
	if (!status && at->at_tcp && !http_file_find(at->at_http, url) && http_other_site(conn)) {
		status = MHD_HTTP_FORBIDDEN;
		snprintf(why, sizeof why, "requests from web pages of another site are refused");
	}
	/* Probes send what they have been given. */
	if (status == MHD_HTTP_UNAUTHORIZED && need == HTTP_OPEN)
		status = 0;
	if (!status && pd->pd_who.w_role < need) {
		status = MHD_HTTP_FORBIDDEN;
		http_who_short(at, &pd->pd_who, need, why, sizeof why);
	}
	if (status)
		http_refuse(pd, status, why);
	return pd;
}

/* Called with the header, then for each piece of the body, then with no piece. */
enum MHD_Result http_on_request(void *cls, struct MHD_Connection *conn, const char *url,
				const char *method, const char *version, const char *data,
				size_t *n, void **state)
{
	struct http_reply rp = {.rp_who.w_how = ""};
	struct pending *pd = *state;
	struct http_at *at = cls;
	struct http *h = at->at_http;
	const struct http_file *file;
	struct http_req rq;

	if (!pd) {
		*state = pd = pending_make(at, conn, url, method, version);
		return pd ? MHD_YES : MHD_NO;
	}
	if (*n) {
		body_add(pd, data, *n);
		*n = 0;
		return MHD_YES;
	}
	file = is_get(method) && !pd->pd_status ? http_file_find(h, url) : NULL;
	if (file)
		return http_file_reply(conn, file);
	rq = (struct http_req){
		.rq_method = method,
		.rq_path = url,
		.rq_body = pd->pd_body ? pd->pd_body : "",
		.rq_len = pd->pd_len,
		.rq_who = &pd->pd_who,
		.rq_priv = conn,
	};
	pthread_mutex_lock(&h->h_lock);
	if (pd->pd_status)
		error_reply(&rp, pd->pd_status, pd->pd_why);
	else
		route(h, &rq, &rp);
	if (*rp.rp_who.w_how) {
		snprintf(rp.rp_who.w_from, sizeof rp.rp_who.w_from, "%s", pd->pd_who.w_from);
		rq.rq_who = &rp.rp_who;
	}
	if (changes(method))
		http_audit(h, &rq, rp.rp_status);
	pthread_mutex_unlock(&h->h_lock);
	return reply_queue(conn, &rp);
}

void http_on_completed(void *cls, struct MHD_Connection *conn, void **state,
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

/* ---- start and stop ---- */

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

static char *copy_of(const char *s)
{
	return strdup(s ? s : "");
}

int http_start(struct http **out, const struct http_opts *opts, const struct http_route *routes,
	       size_t n, void *arg, char *err, size_t errlen)
{
	struct http *h = calloc(1, sizeof *h);
	const char *addrs = opts->ho_addrs;
	char addr[256];
	int e = 0;

	snprintf(err, errlen, "out of memory");
	if (!h) {
		http_bound_free(opts->ho_bound);
		return -ENOMEM;
	}
	h->h_lease = opts->ho_lease;
	h->h_routes = routes;
	h->h_nroutes = n;
	h->h_arg = arg;
	pthread_mutex_init(&h->h_lock, NULL);
	snprintf(h->h_token, sizeof h->h_token, "%s", opts->ho_token ? opts->ho_token : "");
	h->h_group = http_group(opts->ho_group ? opts->ho_group : "");
	h->h_certs = copy_of(opts->ho_certs);
	h->h_tls_cert = copy_of(opts->ho_tls_cert);
	h->h_tls_key = copy_of(opts->ho_tls_key);
	h->h_tls_ca = copy_of(opts->ho_tls_ca);
	h->h_token_look = opts->ho_token_look;
	h->h_session_look = opts->ho_session_look;
	h->h_files = opts->ho_files;
	h->h_nfiles = opts->ho_nfiles;
	h->h_audit = opts->ho_audit;
	if (!h->h_certs || !h->h_tls_cert || !h->h_tls_key || !h->h_tls_ca)
		e = -ENOMEM;
	while (!e && (addrs = http_addr(addrs, addr, sizeof addr))) {
		if (h->h_n == HTTP_ADDRS) {
			snprintf(err, errlen, "more than %u addresses", HTTP_ADDRS);
			e = -E2BIG;
		} else {
			e = http_at_start(h, addr, opts->ho_bound, err, errlen);
		}
	}
	http_bound_free(opts->ho_bound);
	if (e)
		http_stop(h);
	else
		*out = h;
	return e;
}

uint16_t http_port(const struct http *h)
{
	const union MHD_DaemonInfo *info;
	struct sockaddr_storage ss;
	socklen_t len = sizeof ss;

	for (unsigned i = 0; i < h->h_n; i++) {
		if (!h->h_at[i].at_tcp)
			continue;
		info = MHD_get_daemon_info(h->h_at[i].at_daemon, MHD_DAEMON_INFO_LISTEN_FD);
		if (!info || getsockname(info->listen_fd, (struct sockaddr *)&ss, &len))
			return 0;
		return ntohs(ss.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&ss)->sin6_port
						      : ((struct sockaddr_in *)&ss)->sin_port);
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
		http_at_stop(&h->h_at[i]);
	pthread_mutex_destroy(&h->h_lock);
	sodium_memzero(h->h_token, sizeof h->h_token);
	free(h->h_certs);
	free(h->h_tls_cert);
	free(h->h_tls_key);
	free(h->h_tls_ca);
	free(h);
}
