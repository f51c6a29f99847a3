/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_admin.c - the administrator's requests to the whole metadata server: every route of
 * mds/admin, with arguments and a body made by the fuzzer.
 *
 * An input is lines: the first one's bytes choose routes, one after the other; then NAME=VALUE
 * lines are the arguments, and what is behind an empty line is the body. Two clients are there,
 * files with objects and layouts (the base and the prelude of fuzz_compound.c, which is a part of
 * this). The handlers are called as common/http.h calls them, on a thread that is no loop's.
 *
 * The routes are counted from '0', in the order of admin.c: a route that is put in between moves
 * the seeds of those behind it (corpus/admin).
 *
 * Held, beyond the sanitizers: each request is answered, with a status that is of HTTP, and with a
 * body that is JSON by RFC 8259; an error has one line that says why.
 *
 * Admission: a line @NAME=VALUE is a header of the request; @tcp=1 and @tls=1 say how it came.
 * @Authorization=T is a token that exists until a request revokes it. The cookie S and the header
 * @X-Weft-CSRF=S are of a session of this token. Held: over TCP a request gets a role by this
 * token, by both parts of the session, or by mds.admin_token only, and no other role than the
 * token's; any other Authorization is answered with 401. A body T is the token's text, for a login.
 *
 * Not asked: what would take the made-up data servers away (kill, forget), or connect to an address
 * of the fuzzer's (a generic server is taken in by no address).
 */
#define LLVMFuzzerInitialize   compound_initialize
#define LLVMFuzzerTestOneInput compound_one_input
#include "tests/fuzz/fuzz_compound.c"
#undef LLVMFuzzerInitialize
#undef LLVMFuzzerTestOneInput
#include "common/http_int.h"
#include "common/live.h"
#include "common/trace.h"
#include "mds/admin/admin.h"
#include "mds/jobs/balance.h"
#include "mds/jobs/elect.h"
#include "mds/jobs/restripe.h"
#include "mds/jobs/revoke_exports.h"
#include "mds/jobs/scrub.h"
#include "mds/jobs/verify.h"
#include <jansson.h>

#define MAX_ARGS 16

static const struct http_route *routes;
static size_t nroutes;
static void *routes_arg;
static struct http server = {.h_lock = PTHREAD_MUTEX_INITIALIZER,
			     .h_token = "the-token-of-the-file",
			     .h_group = (gid_t)-1,
			     .h_certs = "read someone"};
static char good_token[128]; /* "Bearer " and a token with the role operate */
static char session_id[64], session_csrf[64];
static const struct http_who everything = {.w_role = HTTP_ADMIN, .w_how = "user"};

/* The HTTP server is not started: its routes are what is wanted. */
int __wrap_http_start(struct http **out, const struct http_opts *opts, const struct http_route *r,
		      size_t n, void *arg, char *err, size_t errlen);
int __wrap_http_start(struct http **out, const struct http_opts *opts, const struct http_route *r,
		      size_t n, void *arg, char *err, size_t errlen)
{
	(void)out, (void)err, (void)errlen;
	server.h_token_look = opts->ho_token_look;
	server.h_session_look = opts->ho_session_look;
	server.h_arg = arg;
	routes = r;
	nroutes = n;
	routes_arg = arg;
	return 0;
}

static struct {
	char *a_name, *a_value;
} args[MAX_ARGS];
static unsigned nargs;
static bool spare; /* the made-up servers are not named */

const char *__wrap_http_arg(const struct http_req *rq, const char *name);
const char *__wrap_http_arg(const struct http_req *rq, const char *name)
{
	(void)rq;
	if (spare && (!strcmp(name, "ds") || !strcmp(name, "url")))
		return "nobody";
	for (unsigned i = 0; i < nargs; i++)
		if (!strcmp(args[i].a_name, name))
			return args[i].a_value;
	return NULL;
}

bool __wrap_http_has(const struct http_req *rq, const char *name);
bool __wrap_http_has(const struct http_req *rq, const char *name)
{
	return __wrap_http_arg(rq, name) != NULL;
}

/* ---- who asks ---- */

const char *__wrap_MHD_lookup_connection_value(struct MHD_Connection *conn, enum MHD_ValueKind kind,
					       const char *key);
const char *__wrap_MHD_lookup_connection_value(struct MHD_Connection *conn, enum MHD_ValueKind kind,
					       const char *key)
{
	(void)conn, (void)kind;
	for (unsigned i = 0; i < nargs; i++) {
		if (args[i].a_name[0] != '@' || strcasecmp(args[i].a_name + 1, key))
			continue;
		if (!strcmp(args[i].a_value, "S"))
			return strcmp(key, HTTP_CSRF) ? session_id : session_csrf;
		return strcmp(args[i].a_value, "T") ? args[i].a_value : good_token;
	}
	return NULL;
}

const union MHD_ConnectionInfo *
__wrap_MHD_get_connection_info(struct MHD_Connection *conn, enum MHD_ConnectionInfoType type, ...);
const union MHD_ConnectionInfo *
__wrap_MHD_get_connection_info(struct MHD_Connection *conn, enum MHD_ConnectionInfoType type, ...)
{
	(void)conn, (void)type;
	return NULL;
}

static bool header_is(const char *name, const char *value)
{
	const char *got = __wrap_MHD_lookup_connection_value(NULL, MHD_HEADER_KIND, name);

	return got && (!value || !strcmp(got, value));
}

static bool own_origin(const struct http_at *at)
{
	const char *host = __wrap_MHD_lookup_connection_value(NULL, MHD_HEADER_KIND, "Host"),
		   *origin = __wrap_MHD_lookup_connection_value(NULL, MHD_HEADER_KIND, "Origin");
	size_t n = at->at_tls ? 8 : 7;

	return host && !strncmp(origin, at->at_tls ? "https://" : "http://", n) &&
	       !strcasecmp(origin + n, host);
}

static void admission(void)
{
	struct http_at at = {.at_http = &server,
			     .at_tcp = header_is("tcp", "1") || header_is("tls", "1"),
			     .at_tls = header_is("tls", "1")};
	bool good = header_is("Authorization", good_token),
	     file = header_is("Authorization", "Bearer the-token-of-the-file");
	bool session = header_is(at.at_tls ? HTTP_COOKIE_TLS : HTTP_COOKIE, session_id) &&
		       header_is(HTTP_CSRF, session_csrf) && !header_is("Authorization", NULL);
	char why[256] = "", who[128];
	struct http_who w;
	int status = http_who(&at, NULL, "HTTP/1.1", &w, why, sizeof(why));

	http_who_text(&w, who, sizeof(who));
	if (status && (!*why || (status != 401 && status != 403)))
		fz_bug("a refusal without a reason");
	if (!status && w.w_role != HTTP_OPEN && !good && !file && !session)
		fz_bug("a role from nothing");
	if (!status && session && w.w_role != HTTP_OPEN && w.w_role != HTTP_OPERATE)
		fz_bug("the role of another session");
	if (!status && good && w.w_role != HTTP_OPERATE)
		fz_bug("the role of another token");
	if (!status && header_is("Authorization", NULL) && !good && !file)
		fz_bug("an Authorization that nothing knows");
	if (!status && header_is("Origin", NULL) && at.at_tcp && !own_origin(&at))
		fz_bug("a page of another origin");
}

static void admin_counts(void *arg, struct admin_counts *out)
{
	(void)arg;
	*out = (struct admin_counts){.ac_clients = 1};
}

static int reload(void *arg, uint64_t *pass, char *err, size_t len)
{
	(void)arg;
	*pass = 1;
	return export_set_reload(mds.m_exports, err, len);
}

static void check_reply(const struct http_route *r, struct http_reply *rp)
{
	json_error_t why;
	json_t *j = rp->rp_body ? json_loads(rp->rp_body, 0, &why) : NULL;
	const char *text;

	if (rp->rp_status < 200 || rp->rp_status > 599 || !j) {
		fprintf(stderr, "%s %s: %d %s\n", r->rt_method, r->rt_path, rp->rp_status,
			rp->rp_body ? rp->rp_body : "(nothing)");
		fz_bug("an answer that is none");
	}
	text = json_string_value(json_object_get(j, "error"));
	if (rp->rp_status >= 400 && rp->rp_status != 409 && (!text || !*text))
		fz_bug("an error that does not say why");
	json_decref(j);
	free(rp->rp_body);
}

static void ask(const struct http_route *r, const char *body)
{
	const char *text = strcmp(body, "T") ? body : good_token + strlen("Bearer ");
	struct http_req rq = {.rq_method = r->rt_method,
			      .rq_path = r->rt_path,
			      .rq_body = text,
			      .rq_len = strlen(text),
			      .rq_who = &everything};
	struct http_reply rp = {.rp_status = 200};

	spare = !strcmp(r->rt_path, "/v1/ds/kill") || !strcmp(r->rt_path, "/v1/ds/forget") ||
		!strcmp(r->rt_method, "POST");
	if (getenv("FUZZ_SHOW"))
		fprintf(stderr, "%s %s\n", r->rt_method, r->rt_path);
	r->rt_handler(routes_arg, &rq, &rp);
	check_reply(r, &rp);
}

/* What the base of mds_fuzz.h has no need of. */
static void open_rest(void)
{
	if (job_verify_open(&mds, fz_loop) || job_balance_open(&mds, fz_loop, 3600000) ||
	    job_restripe_open(&mds, fz_loop) || job_elect_open(&mds, fz_loop) ||
	    job_scrub_open(&mds, fz_loop, 3600000) || job_contended_open(&mds, fz_loop) ||
	    file_resolve_open(&mds.m_file) || job_revocation_open(&mds, fz_loop))
		fz_bug("no memory");
}

static void no_change(void *arg, const struct conf *c)
{
	(void)arg;
	(void)c;
}

/* Fills in good_token. */
static void make_token(void)
{
	struct http_req rq = {.rq_method = "POST", .rq_path = "/v1/tokens", .rq_who = &everything};
	struct http_reply rp = {.rp_status = 200};
	char role[] = "operate", name[] = "fuzz", role_name[] = "role", name_name[] = "name";
	json_t *j;

	args[0].a_name = role_name;
	args[0].a_value = role;
	args[1].a_name = name_name;
	args[1].a_value = name;
	nargs = 2;
	for (size_t i = 0; i < nroutes; i++)
		if (!strcmp(routes[i].rt_method, "POST") && !strcmp(routes[i].rt_path, rq.rq_path))
			routes[i].rt_handler(routes_arg, &rq, &rp);
	j = rp.rp_body ? json_loads(rp.rp_body, 0, NULL) : NULL;
	if (!j || !json_string_value(json_object_get(j, "token")))
		fz_bug("no token");
	snprintf(good_token, sizeof(good_token), "Bearer %s",
		 json_string_value(json_object_get(j, "token")));
	json_decref(j);
	free(rp.rp_body);
	nargs = 0;
}

/* Logs in, for the cookie and the header S. */
static void make_session(void)
{
	const struct http_who stranger = {.w_how = "", .w_from = "127.0.0.1:9", .w_tls = true};
	struct http_req rq = {.rq_method = "POST",
			      .rq_path = "/v1/session",
			      .rq_body = good_token + strlen("Bearer "),
			      .rq_len = strlen(good_token) - strlen("Bearer "),
			      .rq_who = &stranger};
	struct http_reply rp = {.rp_status = 200};
	const char *csrf;
	json_t *j;

	for (size_t i = 0; i < nroutes; i++)
		if (!strcmp(routes[i].rt_method, "POST") && !strcmp(routes[i].rt_path, rq.rq_path))
			routes[i].rt_handler(routes_arg, &rq, &rp);
	j = rp.rp_body ? json_loads(rp.rp_body, 0, NULL) : NULL;
	csrf = json_string_value(json_object_get(j, "csrf"));
	if (!csrf || sscanf(rp.rp_cookie, HTTP_COOKIE_TLS "=%63[^;]", session_id) != 1)
		fz_bug("no session");
	snprintf(session_csrf, sizeof(session_csrf), "%s", csrf);
	json_decref(j);
	free(rp.rp_body);
}

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	static struct admin *admin;
	static struct live_key key = {"log.level", no_change};
	const struct http_opts opts = {.ho_addrs = ""};
	struct admin_ops ops = {.ao_counts = admin_counts,
				.ao_reload = reload,
				.ao_mds = &mds,
				.ao_console_login_ms = 3600000};
	struct live_opts live = {.lv_daemon = "mds", .lv_keys = &key, .lv_nkeys = 1};
	char err[256];

	trace_open(256);
	compound_initialize(argc, argv);
	fz_on_loop(open_rest);
	ops.ao_ns = mds.m_ns;
	ops.ao_dsc = mds.m_dsc;
	ops.ao_lo = mds.m_lo;
	ops.ao_exports = mds.m_exports;
	if (conf_load(&live.lv_conf, NULL, err, sizeof(err)) || live_open(&ops.ao_live, &live))
		fz_bug("no configuration");
	if (admin_start(&admin, &opts, &ops, err, sizeof(err)))
		fz_bug("no administrator");
	make_token();
	make_session();
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text, *at, *line, *body;
	const char *which;

	if (size < 2 || size > 4096)
		return 0;
	fz_restore();
	base_ino = mds.m_ns->n_ino_next;
	circumstances(H_B | H_FILE | H_B_LAYOUT, 0);
	prelude(H_B | H_FILE | H_B_LAYOUT);
	text = malloc(size + 1);
	memcpy(text, data, size);
	text[size] = 0;
	body = strstr(text, "\n\n");
	if (body) {
		*body = 0;
		body += 2;
	}
	at = text;
	which = strsep(&at, "\n");
	for (nargs = 0; at && nargs < MAX_ARGS && (line = strsep(&at, "\n"));) {
		args[nargs].a_value = line;
		args[nargs].a_name = strsep(&args[nargs].a_value, "=");
		nargs += args[nargs].a_value != NULL;
	}
	admission();
	for (unsigned n = 0; which[n] && n < 6; n++)
		ask(&routes[((uint8_t)which[n] - '0') % nroutes], body ? body : "");
	free(text);
	return 0;
}
