/* SPDX-License-Identifier: Apache-2.0 */
/* http_who.c - who sent a request, what role that gives, and the line that reports it. */
#include "common/http_int.h"
#include "base/host_port.h"
#include "base/log.h"
#include <arpa/inet.h>
#include <errno.h>
#include <gnutls/gnutls.h>
#include <gnutls/x509.h>
#include <grp.h>
#include <netinet/in.h>
#include <pwd.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define HTTP_GROUPS    1024u	   /* groups of a peer that are looked at */
#define GROUP_TEXT_MAX (16u << 20) /* of one group's record */
#define HTTP_SAN_MAX   64u	   /* alternative names of a certificate that are looked at */

static const char *const role_names[] = {
	[HTTP_OPEN] = "none",
	[HTTP_READ] = "read",
	[HTTP_OPERATE] = "operate",
	[HTTP_ADMIN] = "admin",
};

const char *http_role_name(enum http_role role)
{
	return role_names[role];
}

bool http_role_of(const char *name, enum http_role *out)
{
	for (unsigned r = HTTP_READ; r <= HTTP_ADMIN; r++) {
		if (strcmp(name, role_names[r]))
			continue;
		*out = r;
		return true;
	}
	return false;
}

/* ---- users of the Unix socket ---- */

gid_t http_group(const char *name)
{
	struct group gr, *found = NULL;
	gid_t gid = (gid_t)-1;
	size_t len = 4096;
	char *text = NULL, *more;
	int err = *name ? ERANGE : 0;

	/* A group of many members needs more room. */
	for (; err == ERANGE && len <= GROUP_TEXT_MAX; len *= 2) {
		more = realloc(text, len);
		if (!more)
			break;
		text = more;
		err = getgrnam_r(name, &gr, text, len, &found);
	}
	if (found)
		gid = found->gr_gid;
	else if (err)
		log_warn("cannot look up the group %s: %s; nobody administers by it", name,
			 strerror(err));
	free(text);
	return gid;
}

static bool who_in_group(int fd, gid_t first, gid_t want)
{
	gid_t list[HTTP_GROUPS];
	socklen_t len = sizeof list;

	if (want == (gid_t)-1)
		return false;
	if (first == want)
		return true;
	if (getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, list, &len))
		return false;
	for (size_t i = 0; i < len / sizeof list[0]; i++)
		if (list[i] == want)
			return true;
	return false;
}

static void who_user(const struct http *h, int fd, struct http_who *w)
{
	struct ucred uc;
	socklen_t len = sizeof uc;

	strcpy(w->w_from, "unix");
	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &uc, &len))
		return;
	w->w_how = "user";
	w->w_uid = uc.uid;
	w->w_role = !uc.uid || uc.uid == geteuid() || who_in_group(fd, uc.gid, h->h_group)
			    ? HTTP_ADMIN
			    : HTTP_READ;
}

/* ---- certificates ---- */

/* Copies the next "ROLE NAME" of a list, and returns the rest. NULL: no more. name is "" where the
 * item is faulty. */
static const char *certs_next(const char *list, enum http_role *role, char *name, size_t len)
{
	char item[256], *space;

	list = http_addr(list, item, sizeof item);
	if (!list)
		return NULL;
	*name = 0;
	space = strchr(item, ' ');
	if (!space)
		return list;
	*space++ = 0;
	while (*space == ' ')
		space++;
	for (char *end = space + strlen(space); end > space && end[-1] == ' ';)
		*--end = 0;
	if (http_role_of(item, role) && !strchr(space, ' '))
		snprintf(name, len, "%s", space);
	return list;
}

int http_certs_check(const char *list, char *bad, size_t len)
{
	const char *item = list;
	enum http_role role;
	char name[256];

	while ((list = certs_next(list, &role, name, sizeof name))) {
		if (!*name) {
			http_addr(item, bad, len);
			return -EINVAL;
		}
		item = list;
	}
	return 0;
}

/* Takes the role of a name of the certificate where it is higher than the one found before. */
static void who_named(const struct http *h, const char *name, size_t n, struct http_who *w)
{
	const char *list = h->h_certs;
	char want[256];
	enum http_role role;

	while ((list = certs_next(list, &role, want, sizeof want))) {
		if (strlen(want) != n || memcmp(want, name, n) || role <= w->w_role)
			continue;
		w->w_role = role;
		snprintf(w->w_name, sizeof w->w_name, "%.*s", HTTP_NAME_MAX, want);
	}
}

static void who_crt(const struct http *h, gnutls_x509_crt_t crt, struct http_who *w)
{
	char name[256];
	size_t n = sizeof name;
	int kind;

	w->w_how = "certificate";
	if (!gnutls_x509_crt_get_dn_by_oid(crt, GNUTLS_OID_X520_COMMON_NAME, 0, 0, name, &n)) {
		snprintf(w->w_name, sizeof w->w_name, "%.*s", (int)n, name);
		who_named(h, name, n, w);
	}
	for (unsigned i = 0; i < HTTP_SAN_MAX; i++) {
		n = sizeof name;
		kind = gnutls_x509_crt_get_subject_alt_name(crt, i, name, &n, NULL);
		if (kind == GNUTLS_E_REQUESTED_DATA_NOT_AVAILABLE)
			break;
		if (kind == GNUTLS_SAN_DNSNAME || kind == GNUTLS_SAN_RFC822NAME ||
		    kind == GNUTLS_SAN_URI)
			who_named(h, name, n, w);
	}
}

/* MHD asks clients for a certificate, and does not look at it. */
static void who_certificate(const struct http *h, struct MHD_Connection *conn, struct http_who *w)
{
	const union MHD_ConnectionInfo *info =
		MHD_get_connection_info(conn, MHD_CONNECTION_INFO_GNUTLS_SESSION);
	gnutls_typed_vdata_st purpose = {.type = GNUTLS_DT_KEY_PURPOSE_OID,
					 .data = (void *)GNUTLS_KP_TLS_WWW_CLIENT};
	const gnutls_datum_t *chain;
	unsigned status = 1, n = 0;
	gnutls_x509_crt_t crt;
	gnutls_session_t tls;

	if (!info || !*h->h_certs || !*h->h_tls_ca)
		return;
	tls = info->tls_session;
	chain = gnutls_certificate_get_peers(tls, &n);
	if (!chain || !n || gnutls_certificate_verify_peers(tls, &purpose, 1, &status) || status)
		return;
	if (gnutls_x509_crt_init(&crt))
		return;
	if (!gnutls_x509_crt_import(crt, &chain[0], GNUTLS_X509_FMT_DER))
		who_crt(h, crt, w);
	gnutls_x509_crt_deinit(crt);
}

/* ---- tokens ---- */

/* Compares all bytes, so that the time reveals nothing. */
static bool token_is(const char *want, const char *given)
{
	size_t n = strlen(want);

	return n && strlen(given) == n && !sodium_memcmp(want, given, n);
}

/* Returns 0, or 401 with its reason. */
static int who_token(struct http *h, const char *auth, struct http_who *w, char *why, size_t len)
{
	struct http_who t = {.w_how = "token"};
	bool known = false;

	if (!strncasecmp(auth, "Bearer ", 7)) {
		known = token_is(h->h_token, auth + 7);
		if (known) {
			t.w_role = HTTP_ADMIN;
			strcpy(t.w_name, "mds.admin_token");
		} else if (h->h_token_look) {
			pthread_mutex_lock(&h->h_lock);
			known = h->h_token_look(h->h_arg, auth + 7, &t);
			pthread_mutex_unlock(&h->h_lock);
		}
	}
	w->w_how = t.w_how;
	w->w_role = known ? t.w_role : HTTP_OPEN;
	strcpy(w->w_name, t.w_name);
	if (known)
		return 0;
	snprintf(why, len,
		 strncasecmp(auth, "Bearer ", 7)
			 ? "the Authorization header is not \"Bearer TOKEN\""
			 : "unknown token: it was revoked, its time is over, or it is of "
			   "another cluster");
	return MHD_HTTP_UNAUTHORIZED;
}

/* ---- sessions of browsers ---- */

/* A browser sends the cookie to every port of this host, so the cookie alone proves nothing: only
 * the page that logged in can add the header. */
static void who_session(const struct http_at *at, struct MHD_Connection *conn, struct http_who *w)
{
	struct http *h = at->at_http;
	const char *id = MHD_lookup_connection_value(conn, MHD_COOKIE_KIND,
						     at->at_tls ? HTTP_COOKIE_TLS : HTTP_COOKIE);
	const char *csrf = MHD_lookup_connection_value(conn, MHD_HEADER_KIND, HTTP_CSRF);
	struct http_who t = {0};
	bool known;

	if (!id || !csrf)
		return;
	pthread_mutex_lock(&h->h_lock);
	known = h->h_session_look(h->h_arg, id, csrf, &t);
	pthread_mutex_unlock(&h->h_lock);
	if (!known)
		return;
	w->w_how = "token";
	w->w_role = t.w_role;
	w->w_session = t.w_session;
	strcpy(w->w_name, t.w_name);
}

/* ---- requests ---- */

/* Whether the page that sent the request, if any did, came from this server: "https://" and the
 * Host. TLS or host_is_here() has proved the Host. */
static bool origin_is_ours(const struct http_at *at, struct MHD_Connection *conn, const char *host)
{
	const char *scheme = at->at_tls ? "https://" : "http://",
		   *origin = MHD_lookup_connection_value(conn, MHD_HEADER_KIND,
							 MHD_HTTP_HEADER_ORIGIN);
	size_t n = strlen(scheme);

	return !origin || (host && !strncmp(origin, scheme, n) && !strcasecmp(origin + n, host));
}

static void who_from(struct MHD_Connection *conn, struct http_who *w)
{
	const union MHD_ConnectionInfo *info =
		MHD_get_connection_info(conn, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
	const struct sockaddr *sa = info ? info->client_addr : NULL;
	char text[INET6_ADDRSTRLEN] = "?";

	if (sa && sa->sa_family == AF_INET6) {
		const struct sockaddr_in6 *in6 = (const void *)sa;

		inet_ntop(AF_INET6, &in6->sin6_addr, text, sizeof text);
		snprintf(w->w_from, sizeof w->w_from, "[%s]:%u", text, ntohs(in6->sin6_port));
	} else if (sa && sa->sa_family == AF_INET) {
		const struct sockaddr_in *in = (const void *)sa;

		inet_ntop(AF_INET, &in->sin_addr, text, sizeof text);
		snprintf(w->w_from, sizeof w->w_from, "%s:%u", text, ntohs(in->sin_port));
	}
}

int http_who(const struct http_at *at, struct MHD_Connection *conn, const char *version,
	     struct http_who *w, char *why, size_t len)
{
	struct http *h = at->at_http;
	const char *host = MHD_lookup_connection_value(conn, MHD_HEADER_KIND, MHD_HTTP_HEADER_HOST);
	const char *auth =
		MHD_lookup_connection_value(conn, MHD_HEADER_KIND, MHD_HTTP_HEADER_AUTHORIZATION);
	const union MHD_ConnectionInfo *info =
		MHD_get_connection_info(conn, MHD_CONNECTION_INFO_CONNECTION_FD);

	*w = (struct http_who){.w_how = "", .w_tls = at->at_tls};
	if (at->at_tcp)
		who_from(conn, w);
	else if (info)
		who_user(h, info->connect_fd, w);
	/* Any process on this machine can connect to a port, and so can a web page in a browser
	 * here. TLS proves the name of the host. */
	if (at->at_tcp && !at->at_tls &&
	    (host ? !host_is_here(host) : strcmp(version, "HTTP/1.0"))) {
		snprintf(why, len, "the Host header of a request must be 127.0.0.1 or localhost");
		return MHD_HTTP_FORBIDDEN;
	}
	if (at->at_tcp && !origin_is_ours(at, conn, host)) {
		snprintf(why, len, "requests from web pages of another origin are refused");
		return MHD_HTTP_FORBIDDEN;
	}
	if (at->at_tls)
		who_certificate(h, conn, w);
	if (auth && (*h->h_token || h->h_token_look))
		return who_token(h, auth, w, why, len);
	if (at->at_tcp && h->h_session_look)
		who_session(at, conn, w);
	return 0;
}

void http_who_text(const struct http_who *w, char *out, size_t len)
{
	char text[1024];
	struct passwd pw, *found = NULL;

	if (strcmp(w->w_how, "user"))
		snprintf(out, len, "%s%s%s", *w->w_how ? w->w_how : "unknown",
			 *w->w_name ? " " : "", w->w_name);
	else if (getpwuid_r(w->w_uid, &pw, text, sizeof text, &found) || !found)
		snprintf(out, len, "user %u", (unsigned)w->w_uid);
	else
		snprintf(out, len, "user %s", pw.pw_name);
}

void http_who_short(const struct http_at *at, const struct http_who *w, enum http_role need,
		    char *why, size_t len)
{
	const struct http *h = at->at_http;
	const char *role = role_names[need];
	char who[128];

	if (*w->w_how) {
		http_who_text(w, who, sizeof who);
		snprintf(why, len, "this request needs the role %s, and %s has %s", role, who,
			 w->w_role == HTTP_OPEN ? "none" : role_names[w->w_role]);
	} else if (h->h_token_look || *h->h_token) {
		snprintf(
			why, len,
			"this request needs the role %s: send a token (WEFT_TOKEN, or --token-file "
			"of weft), or use the Unix socket",
			role);
	} else {
		snprintf(why, len,
			 "this request needs the role %s, and over TCP only GET /metrics and "
			 "/v1/health need none: use the Unix socket",
			 role);
	}
}

/* ---- audit ---- */

struct audit_text {
	char *a_text;
	size_t a_n, a_len;
};

static void audit_add(struct audit_text *a, const char *s, size_t n)
{
	for (size_t i = 0; i < n && a->a_n + 1 < a->a_len; i++) {
		unsigned char c = (unsigned char)s[i];

		a->a_text[a->a_n++] = c < ' ' || c == 0x7f ? '?' : s[i];
	}
	a->a_text[a->a_n] = 0;
}

static enum MHD_Result audit_arg(void *cls, enum MHD_ValueKind kind, const char *key,
				 size_t key_len, const char *value, size_t value_len)
{
	struct audit_text *a = cls;

	(void)kind;
	audit_add(a, "; ", 2);
	audit_add(a, key, key_len);
	if (value) {
		audit_add(a, "=", 1);
		audit_add(a, value, value_len);
	}
	return MHD_YES;
}

/* Returns how many requests were left out since the last line; -1: leaves this one out. */
static int audit_due(struct http *h, const struct http_who *w)
{
	struct timespec now;
	int left_out;

	if (w->w_role >= HTTP_OPERATE)
		return 0;
	clock_gettime(CLOCK_MONOTONIC, &now);
	if (now.tv_sec != h->h_refused_at) {
		h->h_refused_at = now.tv_sec;
		h->h_refused = 0;
	}
	if (h->h_refused++ >= HTTP_REFUSED_EACH_S) {
		h->h_left_out++;
		return -1;
	}
	left_out = (int)h->h_left_out;
	h->h_left_out = 0;
	return left_out;
}

void http_audit(struct http *h, const struct http_req *rq, int status)
{
	const struct http_who *w = rq->rq_who;
	char who[128], what[512];
	struct audit_text a = {.a_text = what, .a_len = sizeof what};
	int left_out = audit_due(h, w);

	if (left_out < 0)
		return;
	http_who_text(w, who, sizeof who);
	for (char *p = who; *p; p++)
		if ((unsigned char)*p < ' ' || *p == 0x7f)
			*p = '?';
	audit_add(&a, rq->rq_method, strlen(rq->rq_method));
	audit_add(&a, " ", 1);
	audit_add(&a, rq->rq_path, strnlen(rq->rq_path, 100));
	a.a_n += (size_t)snprintf(what + a.a_n, sizeof what - a.a_n, ": %d, from %s", status,
				  w->w_from);
	if (left_out)
		a.a_n += (size_t)snprintf(what + a.a_n, sizeof what - a.a_n,
					  ", after %d more that are not listed", left_out);
	MHD_get_connection_values_n(rq->rq_priv, MHD_GET_ARGUMENT_KIND, audit_arg, &a);
	log_info("audit: %s: %s", who, what);
	if (h->h_audit)
		h->h_audit(h->h_arg, who, what);
}
