/* SPDX-License-Identifier: Apache-2.0 */
/* admin_nfs3ds.c - adds an NFSv3 server as a data server (docs/generic.md). */
#include "mds/admin/admin_int.h"
#include <ctype.h>
#include <errno.h>
#include <netdb.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <urcu/compiler.h>

#define NFS_PORT 2049

/* The request and the work have a reference each. */
struct taking {
	struct ds_reg_add ta_add;
	struct admin_wait ta_wait;
	_Atomic int ta_holds;
};

static void taking_put(struct taking *ta)
{
	if (atomic_fetch_sub(&ta->ta_holds, 1) == 1)
		free(ta);
}

static void admin_nfs3ds_taken(struct ds_reg_add *a, int err)
{
	struct taking *ta = caa_container_of(a, struct taking, ta_add);

	admin_wait_done(&ta->ta_wait, err);
	taking_put(ta);
}

/* ---- what was asked for ---- */

static bool admin_nfs3ds_port(const char *s, uint16_t *out)
{
	char *end;
	unsigned long v = isdigit((unsigned char)*s) ? strtoul(s, &end, 10) : 0;

	if (!v || v > UINT16_MAX || *end)
		return false;
	*out = (uint16_t)v;
	return true;
}

/* Parses nfs3://HOST[:PORT]/PATH. host gets the host as it is written. */
static bool url(const char *s, char host[256], char ports[8], char path[256])
{
	const char *slash, *end, *colon;

	if (strncmp(s, "nfs3://", 7))
		return false;
	s += 7;
	slash = strchr(s, '/');
	if (!slash || strlen(slash) >= 256 || slash - s >= 256)
		return false;
	strcpy(path, slash);
	if (*s == '[') {
		end = memchr(s, ']', (size_t)(slash - s));
		s++;
		colon = end && end[1] == ':' ? end + 1 : end && end + 1 == slash ? slash : NULL;
	} else {
		colon = end = memchr(s, ':', (size_t)(slash - s));
		colon = end = end ? end : slash;
	}
	if (!end || !colon || end == s ||
	    (colon < slash && (slash - colon < 2 || slash - colon > 6)))
		return false;
	memcpy(host, s, (size_t)(end - s));
	host[end - s] = 0;
	*ports = 0;
	if (colon < slash) {
		memcpy(ports, colon + 1, (size_t)(slash - colon - 1));
		ports[slash - colon - 1] = 0;
	}
	return true;
}

static bool admin_nfs3ds_hex(const char *s, struct ds_reg_handle *h)
{
	size_t n = strlen(s);

	if (!n || n % 2 || n / 2 > DS_REG_HANDLE_MAX || strspn(s, "0123456789abcdefABCDEF") != n)
		return false;
	for (size_t i = 0; i < n / 2; i++) {
		char two[3] = {s[2 * i], s[2 * i + 1], 0};

		h->dh_data[i] = (uint8_t)strtoul(two, NULL, 16);
	}
	h->dh_len = (uint32_t)(n / 2);
	return true;
}

static bool admin_nfs3ds_name_ok(const char *s)
{
	if (!*s || strlen(s) > 64)
		return false;
	for (; *s; s++)
		if (*s <= ' ' || *s > '~' || *s == '"' || *s == '\\')
			return false;
	return true;
}

/* NULL: the option is accepted; else what was expected. */
static const char *admin_nfs3ds_option(struct ds_reg_add *a, const char *key, const char *value)
{
	if (!strcmp(key, "mount-port"))
		return admin_nfs3ds_port(value, &a->da_mount_port)
			       ? NULL
			       : "mount-port: expected a port from 1 to 65535";
	if (!strcmp(key, "rdma"))
		return admin_nfs3ds_port(value, &a->da_rdma_port)
			       ? NULL
			       : "rdma: expected a port from 1 to 65535 (20049 is usual)";
	if (!strcmp(key, "handle"))
		return admin_nfs3ds_hex(value, &a->da_root)
			       ? NULL
			       : "handle: expected the export's file handle, up to "
				 "64 bytes in hexadecimal digits";
	if (strcmp(key, "name"))
		return "expected mount-port=, rdma=, handle= or name=";
	if (!admin_nfs3ds_name_ok(value))
		return "name: expected up to 64 characters without blanks, quotes and backslashes";
	strcpy(a->da_name, value);
	return NULL;
}

static const char *admin_nfs3ds_options(struct ds_reg_add *a, char *body)
{
	const char *why = NULL;
	char *save;

	for (char *p = strtok_r(body, ", \n", &save); p && !why;
	     p = strtok_r(NULL, ", \n", &save)) {
		char *eq = strchr(p, '=');

		if (!eq)
			return "expected KEY=VALUE";
		*eq = 0;
		why = admin_nfs3ds_option(a, p, eq + 1);
	}
	return why;
}

/* Runs on the HTTP thread, which may wait for a name server. */
static bool resolve(struct ds_reg_add *a, const char *host, const char *ports,
		    struct http_reply *rp)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV}, *ai;
	char text[8];
	uint16_t p = NFS_PORT;
	int e;

	if (*ports && !admin_nfs3ds_port(ports, &p)) {
		admin_reply_error(rp, 400, "url: expected a port from 1 to 65535");
		return false;
	}
	snprintf(text, sizeof(text), "%u", p);
	e = getaddrinfo(host, text, &hints, &ai);
	if (e) {
		admin_reply_error(rp, 409, "%s: %s", host, gai_strerror(e));
		return false;
	}
	memcpy(&a->da_addr, ai->ai_addr, ai->ai_addrlen);
	a->da_len = ai->ai_addrlen;
	freeaddrinfo(ai);
	return true;
}

static bool admin_nfs3ds_asked(const struct http_req *rq, struct ds_reg_add *a,
			       struct http_reply *rp)
{
	const char *u = http_arg(rq, "url"), *why;
	char host[256], ports[8], *body = strdup(rq->rq_body);

	if (!body) {
		admin_reply_error(rp, 500, "out of memory");
		return false;
	}
	why = admin_nfs3ds_options(a, body);
	free(body);
	if (why) {
		admin_reply_error(rp, 400, "%s", why);
		return false;
	}
	if (!u || !url(u, host, ports, a->da_path)) {
		admin_reply_error(rp, 400, "url: expected nfs3://HOST[:PORT]/PATH");
		return false;
	}
	if (!resolve(a, host, ports, rp))
		return false;
	if (!*a->da_name &&
	    (strlen(host) + strlen(a->da_path) + 1 > 64 ||
	     (snprintf(a->da_name, sizeof(a->da_name), "%.32s:%.31s", host, a->da_path),
	      !admin_nfs3ds_name_ok(a->da_name)))) {
		admin_reply_error(
			rp, 400,
			"name: host and path do not make a valid name; give one with name=NAME");
		return false;
	}
	return true;
}

void admin_post_ds(void *arg, const struct http_req *rq, struct http_reply *rp)
{
	struct admin *a = arg;
	struct ds_reg *d = a->a_ops.ao_dsc;
	struct taking *ta = calloc(1, sizeof(*ta));
	struct ds_reg_server sv;

	if (!ta) {
		admin_reply_error(rp, 500, "out of memory");
		return;
	}
	if (!admin_nfs3ds_asked(rq, &ta->ta_add, rp)) {
		free(ta);
		return;
	}
	admin_wait_init(&ta->ta_wait);
	atomic_store(&ta->ta_holds, 2);
	ta->ta_add.da_done = admin_nfs3ds_taken;
	ds_reg_add(d, &ta->ta_add);
	if (!admin_wait_loop(&ta->ta_wait, d))
		admin_reply_error(rp, 503, "the metadata server is stopping");
	else if (admin_wait_end(&ta->ta_wait))
		admin_reply_error(rp, 409, "%s: %s", ta->ta_add.da_name, ta->ta_add.da_why);
	else if (ds_reg_get(d, ta->ta_add.da_id, &sv))
		admin_reply_json(rp, 200, admin_ds_json(a, &sv));
	else
		admin_reply_error(rp, 500,
				  "the data server was added, but its record cannot be found");
	taking_put(ta);
}
