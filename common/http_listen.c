/* SPDX-License-Identifier: Apache-2.0 */
/* http_listen.c - the sockets of the HTTP server, and what its TLS needs. */
#include "base/conf.h"
#include "base/log.h"
#include "common/http_int.h"
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <gnutls/gnutls.h>
#include <netinet/in.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define HTTP_MAX_PEER	32u    /* of them, of one peer by https:// */
#define HTTP_MAX_CONNS	128u   /* of one address of ours */
#define HTTP_CONN_MEM	32768u /* bytes of a connection, for the head of a request */
#define HTTP_TIMEOUT_S	30u
#define HTTP_PEM_MAX	(1u << 20)
#define HTTP_PRIORITIES "NORMAL:-VERS-ALL:+VERS-TLS1.3"

/* ---- Unix sockets ---- */

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
	/* Members of the daemon's group at least may read everything here. So close the socket to
	 * others before any can connect. */
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

/* ---- TCP ---- */

static bool is_loopback(const struct sockaddr_storage *ss)
{
	if (ss->ss_family == AF_INET6)
		return IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)ss)->sin6_addr);
	return ntohl(((const struct sockaddr_in *)ss)->sin_addr.s_addr) >> 24 == 127;
}

int http_tcp_parse(const char *addr, struct sockaddr_storage *ss, bool *loopback)
{
	const char *colon = strrchr(addr, ':');
	struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)ss;
	struct sockaddr_in *in = (struct sockaddr_in *)ss;
	char host[INET6_ADDRSTRLEN + 2], *end;
	size_t n = colon ? (size_t)(colon - addr) : 0;
	unsigned long port;

	memset(ss, 0, sizeof *ss);
	if (!n || n >= sizeof host || colon[1] < '0' || colon[1] > '9')
		return -EINVAL;
	port = strtoul(colon + 1, &end, 10);
	if (*end || port > 65535)
		return -EINVAL;
	memcpy(host, addr, n);
	host[n] = 0;
	if (host[0] == '[' && host[n - 1] == ']') {
		host[n - 1] = 0;
		if (inet_pton(AF_INET6, host + 1, &in6->sin6_addr) != 1)
			return -EINVAL;
		in6->sin6_family = AF_INET6;
		in6->sin6_port = htons((uint16_t)port);
	} else {
		if (inet_pton(AF_INET, host, &in->sin_addr) != 1)
			return -EINVAL;
		in->sin_family = AF_INET;
		in->sin_port = htons((uint16_t)port);
	}
	*loopback = is_loopback(ss);
	return 0;
}

/* Binds, and does not listen. */
static int tcp_bind(const char *addr, bool tls)
{
	struct sockaddr_storage ss;
	int fd, err, one = 1;
	bool loopback;
	socklen_t len;

	if (http_tcp_parse(addr, &ss, &loopback))
		return -EINVAL;
	/* The network does not protect this traffic: allow this machine only. */
	if (!loopback && !tls)
		return -EACCES;
	len = ss.ss_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
	fd = socket(ss.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) ||
	    (ss.ss_family == AF_INET6 &&
	     setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof one)) ||
	    bind(fd, (struct sockaddr *)&ss, len)) {
		err = -errno;
		close(fd);
		return err;
	}
	return fd;
}

/* ---- TLS ---- */

/* Their paths; "": none. */
struct tls_paths {
	const char *tp_cert, *tp_key, *tp_ca;
};

static void pem_free(char *text)
{
	if (text)
		sodium_memzero(text, strlen(text));
	free(text);
}

static int pem_read(const char *path, char **out)
{
	FILE *f = fopen(path, "re");
	char *text = f ? malloc(HTTP_PEM_MAX) : NULL;
	size_t n;
	int err = f ? -ENOMEM : -errno;

	if (text) {
		n = fread(text, 1, HTTP_PEM_MAX - 1, f);
		err = ferror(f) ? -EIO : !feof(f) ? -EFBIG : 0;
		text[n] = 0;
		if (err)
			pem_free(text);
		else
			*out = text;
	}
	if (f)
		fclose(f);
	return err;
}

static void tls_free(struct http_tls *t)
{
	pem_free(t->t_key);
	free(t->t_cert);
	free(t->t_ca);
	*t = (struct http_tls){0};
}

/* MHD only reports that it did not start: finds out what is wrong with the files. */
static int tls_try(const struct tls_paths *p, const struct http_tls *t, char *err, size_t errlen)
{
	gnutls_datum_t cert = {(unsigned char *)t->t_cert, (unsigned)strlen(t->t_cert)},
		       key = {(unsigned char *)t->t_key, (unsigned)strlen(t->t_key)};
	gnutls_certificate_credentials_t cred;
	int rc = gnutls_certificate_allocate_credentials(&cred);

	if (rc)
		return -ENOMEM;
	rc = gnutls_certificate_set_x509_key_mem(cred, &cert, &key, GNUTLS_X509_FMT_PEM);
	if (rc)
		snprintf(err, errlen, "%s and %s: %s", p->tp_cert, p->tp_key, gnutls_strerror(rc));
	if (!rc && t->t_ca) {
		gnutls_datum_t ca = {(unsigned char *)t->t_ca, (unsigned)strlen(t->t_ca)};
		int n = gnutls_certificate_set_x509_trust_mem(cred, &ca, GNUTLS_X509_FMT_PEM);

		rc = n > 0 ? 0 : -1;
		if (rc)
			snprintf(err, errlen, "%s: no certificate of an authority in it", p->tp_ca);
	}
	gnutls_certificate_free_credentials(cred);
	return rc ? -EINVAL : 0;
}

static int tls_read(const struct tls_paths *p, struct http_tls *t, char *err, size_t errlen)
{
	const char *path = p->tp_cert;
	int e;

	*t = (struct http_tls){0};
	if (!*p->tp_cert || !*p->tp_key) {
		snprintf(err, errlen, "https:// needs a certificate and its key");
		return -EINVAL;
	}
	e = pem_read(path, &t->t_cert);
	if (!e)
		e = pem_read(path = p->tp_key, &t->t_key);
	if (!e && *p->tp_ca)
		e = pem_read(path = p->tp_ca, &t->t_ca);
	if (e)
		snprintf(err, errlen, "%s: %s", path, strerror(-e));
	else
		e = tls_try(p, t, err, errlen);
	if (e)
		tls_free(t);
	return e;
}

/* ---- start and stop ---- */

void http_opts_conf(struct http_opts *o, const struct conf *conf, const char *section)
{
	*o = (struct http_opts){0};
	if (strcmp(section, "mds")) {
		o->ho_addrs = conf_str(conf, "ds.admin");
		o->ho_group = conf_str(conf, "ds.admin_group");
		return;
	}
	o->ho_addrs = conf_str(conf, "mds.admin");
	o->ho_group = conf_str(conf, "mds.admin_group");
	o->ho_certs = conf_str(conf, "mds.admin_certs");
	o->ho_tls_cert = conf_str(conf, "mds.tls_cert");
	o->ho_tls_key = conf_str(conf, "mds.tls_key");
	o->ho_tls_ca = conf_str(conf, "mds.tls_ca");
}

/* On the socket at_fd, which MHD closes when the daemon stops. */
static int daemon_start(struct http_at *at)
{
	const struct http_tls *t = &at->at_tls_files;
	const struct MHD_OptionItem with_tls[] = {
		{MHD_OPTION_HTTPS_MEM_CERT, 0, t->t_cert},
		{MHD_OPTION_HTTPS_MEM_KEY, 0, t->t_key},
		{MHD_OPTION_HTTPS_PRIORITIES, 0, (void *)HTTP_PRIORITIES},
		/* no authorities: no client is asked for a certificate */
		{t->t_ca ? MHD_OPTION_HTTPS_MEM_TRUST : MHD_OPTION_END, 0, t->t_ca},
		{MHD_OPTION_END, 0, NULL},
	};
	const struct MHD_OptionItem without[] = {{MHD_OPTION_END, 0, NULL}};

	at->at_daemon = MHD_start_daemon(
		MHD_USE_AUTO | MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_ITC |
			(at->at_tls ? MHD_USE_TLS : 0),
		0, NULL, NULL, http_on_request, at, MHD_OPTION_LISTEN_SOCKET, at->at_fd,
		MHD_OPTION_CONNECTION_TIMEOUT, HTTP_TIMEOUT_S, MHD_OPTION_PER_IP_CONNECTION_LIMIT,
		at->at_tls ? HTTP_MAX_PEER : 0u, MHD_OPTION_CONNECTION_LIMIT, HTTP_MAX_CONNS,
		MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)HTTP_CONN_MEM,
		MHD_OPTION_NOTIFY_COMPLETED, http_on_completed, NULL, MHD_OPTION_ARRAY,
		at->at_tls ? with_tls : without, MHD_OPTION_END);
	return at->at_daemon ? 0 : -EIO;
}

static bool addr_tcp(const char *addr)
{
	return strncmp(addr, "unix:", 5);
}

static bool addr_tls(const char *addr)
{
	return !strncmp(addr, "https://", 8);
}

static int cannot_listen(const char *addr, int e, char *err, size_t errlen)
{
	snprintf(err, errlen, "cannot listen on %s: %s", addr, strerror(-e));
	return e;
}

/* Of a TCP address. Returns the socket, or -errno. */
static int addr_bind(const char *addr, const struct tls_paths *p, struct http_tls *tls, char *err,
		     size_t errlen)
{
	bool with = addr_tls(addr);
	int e = with ? tls_read(p, tls, err, errlen) : 0, fd;

	if (e)
		return e;
	fd = tcp_bind(addr + (with ? 8 : 0), with);
	if (fd >= 0)
		return fd;
	tls_free(tls);
	return cannot_listen(addr, fd, err, errlen);
}

int http_bind(struct http_bound **out, const struct http_opts *o, char *err, size_t errlen)
{
	const struct tls_paths p = {o->ho_tls_cert ? o->ho_tls_cert : "",
				    o->ho_tls_key ? o->ho_tls_key : "",
				    o->ho_tls_ca ? o->ho_tls_ca : ""};
	struct http_bound *b = calloc(1, sizeof *b);
	const char *addrs = o->ho_addrs;
	char addr[sizeof b->b_at[0].ba_addr];

	if (!b) {
		snprintf(err, errlen, "out of memory");
		return -ENOMEM;
	}
	/* More addresses than there may be are for http_start to refuse. */
	while (b->b_n < HTTP_ADDRS && (addrs = http_addr(addrs, addr, sizeof addr))) {
		struct http_bound_at *at = &b->b_at[b->b_n];
		int fd;

		if (!addr_tcp(addr))
			continue;
		fd = addr_bind(addr, &p, &at->ba_tls, err, errlen);
		if (fd < 0) {
			http_bound_free(b);
			return fd;
		}
		at->ba_fd = fd;
		strcpy(at->ba_addr, addr);
		b->b_n++;
	}
	*out = b;
	return 0;
}

void http_bound_free(struct http_bound *b)
{
	for (unsigned i = 0; b && i < b->b_n; i++) {
		if (b->b_at[i].ba_fd >= 0)
			close(b->b_at[i].ba_fd);
		tls_free(&b->b_at[i].ba_tls);
	}
	free(b);
}

static char *text_copy(const char *s, int *e)
{
	char *t = s ? strdup(s) : NULL;

	if (s && !t)
		*e = -ENOMEM;
	return t;
}

int http_bound_copy(struct http_bound **out, const struct http_bound *b)
{
	struct http_bound *now = b ? calloc(1, sizeof *now) : NULL;
	int e = 0;

	*out = NULL;
	if (!b)
		return 0;
	if (!now)
		return -ENOMEM;
	for (; now->b_n < b->b_n && !e; now->b_n++) {
		const struct http_bound_at *from = &b->b_at[now->b_n];
		struct http_bound_at *to = &now->b_at[now->b_n];

		*to = *from;
		to->ba_tls.t_cert = text_copy(from->ba_tls.t_cert, &e);
		to->ba_tls.t_key = text_copy(from->ba_tls.t_key, &e);
		to->ba_tls.t_ca = text_copy(from->ba_tls.t_ca, &e);
		to->ba_fd = from->ba_fd < 0 ? -1 : fcntl(from->ba_fd, F_DUPFD_CLOEXEC, 0);
		if (from->ba_fd >= 0 && to->ba_fd < 0)
			e = -errno;
	}
	if (e)
		http_bound_free(now);
	else
		*out = now;
	return e;
}

/* Takes over what was bound; where nothing was, binds. */
static int addr_take(struct http *h, struct http_at *at, const char *addr, struct http_bound *b,
		     char *err, size_t errlen)
{
	const struct tls_paths p = {h->h_tls_cert, h->h_tls_key, h->h_tls_ca};
	int fd;

	for (unsigned i = 0; b && i < b->b_n; i++) {
		struct http_bound_at *ba = &b->b_at[i];

		if (ba->ba_fd < 0 || strcmp(ba->ba_addr, addr))
			continue;
		fd = ba->ba_fd;
		at->at_tls_files = ba->ba_tls;
		ba->ba_fd = -1;
		ba->ba_tls = (struct http_tls){0};
		return fd;
	}
	return addr_bind(addr, &p, &at->at_tls_files, err, errlen);
}

int http_at_start(struct http *h, const char *addr, struct http_bound *b, char *err, size_t errlen)
{
	struct http_at *at = &h->h_at[h->h_n];
	int e;

	at->at_http = h;
	at->at_tcp = addr_tcp(addr);
	at->at_tls = addr_tls(addr);
	if (at->at_tcp) {
		at->at_fd = addr_take(h, at, addr, b, err, errlen);
		if (at->at_fd < 0)
			return at->at_fd;
		if (listen(at->at_fd, 64)) {
			e = cannot_listen(addr, -errno, err, errlen);
			close(at->at_fd);
			tls_free(&at->at_tls_files);
			return e;
		}
	} else {
		at->at_fd = unix_listen(at, addr + 5);
		if (at->at_fd < 0)
			return cannot_listen(addr, at->at_fd, err, errlen);
	}
	h->h_n++;
	e = daemon_start(at);
	if (e) {
		snprintf(err, errlen, "cannot listen on %s: the HTTP library does not start", addr);
		close(at->at_fd);
	}
	return e;
}

void http_at_stop(struct http_at *at)
{
	if (at->at_daemon)
		MHD_stop_daemon(at->at_daemon);
	tls_free(&at->at_tls_files);
}

/* Connections wait in the socket while the daemon is exchanged; those that are open end. */
static void at_reload(struct http_at *at)
{
	const struct http *h = at->at_http;
	const struct tls_paths p = {h->h_tls_cert, h->h_tls_key, h->h_tls_ca};
	struct http_tls old = at->at_tls_files, now;
	char why[512];
	int fd;

	if (tls_read(&p, &now, why, sizeof why)) {
		log_error("https: the old certificate stays: %s", why);
		return;
	}
	if (at->at_daemon) {
		fd = MHD_quiesce_daemon(at->at_daemon);
		MHD_stop_daemon(at->at_daemon);
		at->at_fd = fd;
	}
	at->at_tls_files = now;
	if (daemon_start(at))
		log_error("https: the HTTP library does not start again; the next reload tries it "
			  "once more");
	tls_free(&old);
}

void http_tls_reload(struct http *h)
{
	for (unsigned i = 0; i < h->h_n; i++)
		if (h->h_at[i].at_tls)
			at_reload(&h->h_at[i]);
}
