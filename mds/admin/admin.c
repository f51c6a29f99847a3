/* SPDX-License-Identifier: Apache-2.0 */
/* admin.c - see admin.h. */
#include "mds/member.h"
#include "mds/admin/admin.h"
#include "mds/admin/admin_int.h"
#include "mds/admin/admin_health.h"
#include "mds/admin/admin_holders.h"
#include "mds/admin/admin_tag.h"
#include "mds/journal/event_journal.h"
#include "mds/jobs/job.h"
#include "mds/jobs/revoke_exports.h"
#include "base/clock.h"
#include "common/scrape.h"
#include "common/version.h"
#include <errno.h>
#include <stdarg.h>
#include <urcu/compiler.h>

/* How often a wait for a loop looks whether the server ends. */
#define WAIT_LOOK_NS UINT64_C(200000000)

/* ---- replies ---- */

void admin_reply_json(struct http_reply *rp, int status, json_t *j)
{
	rp->rp_status = j ? status : 500;
	rp->rp_body = j ? json_dumps(j, JSON_COMPACT | JSON_REAL_PRECISION(16)) : NULL;
	if (!rp->rp_body) {
		rp->rp_status = 500;
		rp->rp_body = strdup("{\"error\":\"out of memory\"}");
	}
	json_decref(j);
}

void admin_reply_error(struct http_reply *rp, int status, const char *fmt, ...)
{
	char *text = NULL;
	json_t *s = NULL;
	va_list ap;

	va_start(ap, fmt);
	if (vasprintf(&text, fmt, ap) < 0)
		text = NULL;
	va_end(ap);
	if (text)
		s = json_string(text);
	if (text && !s) {
		/* A path may have bytes that are not UTF-8; JSON cannot carry them. */
		for (char *p = text; *p; p++)
			*p = (unsigned char)*p < 0x80 ? *p : '?';
		s = json_string(text);
	}
	free(text);
	admin_reply_json(rp, status, s ? json_pack("{s:o}", "error", s) : NULL);
}

const char *admin_path_arg(const struct http_req *rq, struct http_reply *rp)
{
	const char *path = http_arg(rq, "path");

	if (path && path[0] == '/')
		return path;
	admin_reply_error(rp, 400, "%s: expected an absolute path", path ? path : "path");
	return NULL;
}

/* ---- status ---- */

static struct ds_reg_server *admin_servers(struct admin *a, unsigned *n)
{
	struct ds_reg_server *sv = calloc(DS_REG_MAX, sizeof(*sv));

	*n = sv ? ds_reg_list(a->a_ops.ao_dsc, sv, DS_REG_MAX) : 0;
	return sv;
}

static json_t *status_ds(struct admin *a)
{
	unsigned n, alive = 0;
	struct ds_reg_server *sv = admin_servers(a, &n);
	uint64_t capacity = 0, available = 0;

	for (unsigned i = 0; i < n; i++) {
		if (!sv[i].sv_alive)
			continue;
		alive++;
		capacity += sv[i].sv_capacity;
		available += sv[i].sv_available;
	}
	free(sv);
	return json_pack("{s:i, s:i, s:I, s:I}", "known", (int)n, "alive", (int)alive, "capacity",
			 (json_int_t)capacity, "available", (json_int_t)available);
}

static json_t *status_store(struct admin *a)
{
	struct kv_stats ks;
	struct kv_txn *t;
	struct ns_counts nc = {0};

	kv_stats(ns_kv(a->a_ops.ao_ns), &ks);
	if (!kv_read_begin(ns_kv(a->a_ops.ao_ns), &t)) {
		if (ns_counts(a->a_ops.ao_ns, t, &nc))
			nc.nct_inodes = 0;
		kv_read_end(t);
	}
	return json_pack("{s:I, s:I, s:I, s:I}", "inodes", (json_int_t)nc.nct_inodes, "commits",
			 (json_int_t)ks.ks_commits, "operations", (json_int_t)ks.ks_ops,
			 "bytes_used", (json_int_t)ks.ks_bytes_used);
}

static void get_status(void *arg, const struct http_req *rq, struct http_reply *rp)
{
	struct admin *a = arg;
	const struct ns_super *su = ns_super(a->a_ops.ao_ns);
	struct admin_counts ac = {0};
	struct exp_table *exports = export_set_get(a->a_ops.ao_exports);
	json_t *j, *instance;
	char cluster[37], hash[EXPORTS_HASH_LEN + 1];

	(void)rq;
	exports_hash(exports, hash);
	exp_put(exports);
	a->a_ops.ao_counts(a->a_ops.ao_arg, &ac);
	lo_uuid_text(su->su_uuid, cluster);
	j = json_pack("{s:s, s:s, s:i, s:s, s:I, s:b, s:o, s:{s:I, s:I, s:I, s:I}, s:I, s:o}",
		      "version", version_text, "cluster", cluster, "fs", su->su_fs, "exports_hash",
		      hash, "boot_epoch", (json_int_t)su->su_boot, "grace", ac.ac_grace, "ds",
		      status_ds(a), "clients", "known", (json_int_t)ac.ac_clients, "sessions",
		      (json_int_t)ac.ac_sessions, "opens", (json_int_t)ac.ac_opens, "layouts",
		      (json_int_t)ac.ac_layouts, "orders",
		      (json_int_t)lo_orders_count(a->a_ops.ao_lo), "store", status_store(a));
	/* Only where the log is in PostgreSQL. */
	instance = member_json();
	if (instance)
		json_object_set_new(j, "instance", instance);
	admin_reply_json(rp, 200, j);
}

/* ---- policies ---- */

/* Answers with the policy in force at path. */
static void policy_reply(struct admin *a, const char *path, struct http_reply *rp)
{
	struct ns *ns = a->a_ops.ao_ns;
	char text[LO_POLICY_TEXT];
	struct lo_policy p;
	struct kv_slice s;
	struct ns_inode i;
	struct kv_txn *t;
	uint64_t ino;
	json_t *jpath;
	int err = kv_read_begin(ns_kv(ns), &t);

	if (err) {
		admin_reply_errno(rp, err, path);
		return;
	}
	err = ns_path(ns, t, path, &ino);
	if (!err)
		err = ns_get(ns, t, ino, &i);
	if (!err && i.i_type != NS_DIR) {
		kv_read_end(t);
		admin_reply_error(rp, 400, "%s: only directories have policies", path);
		return;
	}
	if (!err)
		err = ns_policy(ns, t, ino, &s);
	if (!err)
		err = lo_policy_decode(s, &p);
	kv_read_end(t);
	if (err) {
		admin_reply_errno(rp, err, path);
		return;
	}
	lo_policy_format(&p, text);
	jpath = json_string(path);
	admin_reply_json(rp, 200,
			 json_pack("{s:o, s:s, s:b}", "path", jpath ? jpath : json_null(), "policy",
				   text, "inherited", !i.i_has_policy));
}

static void admin_get_policy(void *arg, const struct http_req *rq, struct http_reply *rp)
{
	const char *path = admin_path_arg(rq, rp);

	if (path)
		policy_reply(arg, path, rp);
}

void admin_wait_init(struct admin_wait *w)
{
	pthread_mutex_init(&w->aw_lock, NULL);
	clock_cond_init(&w->aw_cond);
	w->aw_done = false;
}

void admin_wait_done(struct admin_wait *w, int err)
{
	pthread_mutex_lock(&w->aw_lock);
	w->aw_err = err;
	w->aw_done = true;
	pthread_cond_signal(&w->aw_cond);
	pthread_mutex_unlock(&w->aw_lock);
}

int admin_wait_end(struct admin_wait *w)
{
	pthread_mutex_lock(&w->aw_lock);
	while (!w->aw_done)
		pthread_cond_wait(&w->aw_cond, &w->aw_lock);
	pthread_mutex_unlock(&w->aw_lock);
	pthread_cond_destroy(&w->aw_cond);
	pthread_mutex_destroy(&w->aw_lock);
	return w->aw_err;
}

bool admin_wait_loop(struct admin_wait *w, struct ds_reg *d)
{
	bool done;

	pthread_mutex_lock(&w->aw_lock);
	while (!w->aw_done && !ds_reg_closed(d))
		clock_cond_wait(&w->aw_cond, &w->aw_lock, clock_mono_ns() + WAIT_LOOK_NS);
	done = w->aw_done;
	pthread_mutex_unlock(&w->aw_lock);
	return done;
}

struct policy_set {
	struct kv_op ps_op;
	struct ns *ps_ns;
	struct lo *ps_lo;
	const char *ps_path;
	struct ns_time ps_now;
	struct lo_policy *ps_policy; /* NULL: the directory inherits one */
	bool ps_not_dir;
	struct admin_wait ps_wait;
	int ps_err;
};

static int admin_policy_run(struct kv_op *op, struct kv_txn *t)
{
	struct policy_set *ps = caa_container_of(op, struct policy_set, ps_op);
	struct ns_inode i;
	uint64_t ino;
	int err = ns_path(ps->ps_ns, t, ps->ps_path, &ino);

	if (!err)
		err = ns_get(ps->ps_ns, t, ino, &i);
	if (err)
		return err;
	if (i.i_type != NS_DIR) {
		ps->ps_not_dir = true;
		return -ENOTDIR;
	}
	return lo_policy_set(ps->ps_lo, t, ino, ps->ps_policy, ps->ps_now);
}

static void policy_done(struct kv_op *op, int err)
{
	struct policy_set *ps = caa_container_of(op, struct policy_set, ps_op);

	admin_wait_done(&ps->ps_wait, err);
}

static void policy_commit(struct admin *a, struct policy_set *ps)
{
	ps->ps_now = ns_now();
	ps->ps_op.o_run = admin_policy_run;
	ps->ps_op.o_done = policy_done; /* on the committer: the loops may have stopped */
	admin_wait_init(&ps->ps_wait);
	kv_submit(ns_kv(a->a_ops.ao_ns), &ps->ps_op);
	ps->ps_err = admin_wait_end(&ps->ps_wait);
}

static bool inherits(const char *body, size_t len)
{
	while (len && (body[len - 1] == '\n' || body[len - 1] == ' '))
		len--;
	return !len || (len == 7 && !memcmp(body, "inherit", 7));
}

static void policy_said(struct admin *a, const struct policy_set *ps, struct http_reply *rp)
{
	char text[LO_POLICY_TEXT] = "inherit";

	if (ps->ps_policy)
		lo_policy_format(ps->ps_policy, text);
	journal_add(EV_POLICY_SET, ps->ps_path, 0, "%s", text);
	policy_reply(a, ps->ps_path, rp);
}

static void put_policy(void *arg, const struct http_req *rq, struct http_reply *rp)
{
	struct admin *a = arg;
	const char *path = admin_path_arg(rq, rp);
	struct policy_set ps = {.ps_ns = a->a_ops.ao_ns, .ps_lo = a->a_ops.ao_lo, .ps_path = path};
	struct lo_policy p;
	char err[200];

	if (!path)
		return;
	if (!inherits(rq->rq_body, rq->rq_len)) {
		if (lo_policy_parse(rq->rq_body, rq->rq_len, &p, err, sizeof(err))) {
			admin_reply_error(rp, 400, "%s", err);
			return;
		}
		if (lo_policy_check(a->a_ops.ao_lo, &p, err, sizeof(err))) {
			admin_reply_error(rp, 409, "%s", err);
			return;
		}
		ps.ps_policy = &p;
	}
	policy_commit(a, &ps);
	if (ps.ps_not_dir)
		admin_reply_error(rp, 400, "%s: only directories have policies", path);
	else if (ps.ps_err)
		admin_reply_errno(rp, ps.ps_err, path);
	else
		policy_said(a, &ps, rp);
}

/* ---- exports ---- */

/* pass: of the job that the request began; 0: of the one that was asked for last, if any. */
static void exports_reply(struct admin *a, uint64_t pass, struct http_reply *rp)
{
	struct exp_table *t = export_set_get(a->a_ops.ao_exports);
	char *text = exp_json(t, export_set_path(a->a_ops.ao_exports));
	json_t *j = text ? json_loads(text, 0, NULL) : NULL;
	struct job_revocation_view v;

	exp_put(t);
	free(text);
	job_revocation_look(a->a_ops.ao_mds, &v);
	if (!j ||
	    json_object_set_new(
		    j, "ending",
		    json_pack("{s:b, s:o, s:I, s:I, s:I, s:I, s:I}", "running", v.ev_running, "job",
			      admin_run_json(a, JOB_REVOKE, pass ? pass : v.ev_next), "number",
			      (json_int_t)v.ev_number, "exports", (json_int_t)v.ev_exports,
			      "looked", (json_int_t)v.ev_looked, "ended", (json_int_t)v.ev_ended,
			      "unconfirmed", (json_int_t)v.ev_unconfirmed))) {
		json_decref(j);
		admin_reply_error(rp, 500, "out of memory");
		return;
	}
	admin_reply_json(rp, 200, j);
}

static void get_exports(void *arg, const struct http_req *rq, struct http_reply *rp)
{
	(void)rq;
	exports_reply(arg, 0, rp);
}

static void put_exports(void *arg, const struct http_req *rq, struct http_reply *rp)
{
	struct admin *a = arg;
	char err[512];
	uint64_t pass;

	(void)rq;
	if (a->a_ops.ao_reload(a->a_ops.ao_arg, &pass, err, sizeof(err)))
		admin_reply_error(rp, 409, "%s", err);
	else
		exports_reply(a, pass, rp);
}

/* ---- files ---- */

static void get_file(void *arg, const struct http_req *rq, struct http_reply *rp)
{
	struct admin *a = arg;
	const char *path = admin_path_arg(rq, rp);
	struct ns *ns = a->a_ops.ao_ns;
	struct ns_inode i;
	struct lo_map m;
	struct kv_txn *t;
	uint64_t ino;
	int err;

	if (!path)
		return;
	err = kv_read_begin(ns_kv(ns), &t);
	if (err) {
		admin_reply_errno(rp, err, path);
		return;
	}
	err = ns_path(ns, t, path, &ino);
	if (!err)
		err = ns_get(ns, t, ino, &i);
	if (!err && i.i_type == NS_REG)
		err = lo_map_decode(i.i_blob, &m);
	if (err) {
		admin_reply_errno(rp, err, path);
	} else if (i.i_type != NS_REG) {
		admin_reply_error(rp, 400, "%s: not a regular file", path);
	} else {
		rp->rp_body = lo_layout_json(a->a_ops.ao_lo, t, &i, &m);
		if (!rp->rp_body)
			admin_reply_error(rp, 500, "%s: out of memory", path);
	}
	kv_read_end(t);
}

/* ---- start and stop ---- */

static void admin_get_config(void *arg, const struct http_req *rq, struct http_reply *rp)
{
	live_get(((struct admin *)arg)->a_ops.ao_live, rq, rp);
}

static void admin_put_config(void *arg, const struct http_req *rq, struct http_reply *rp)
{
	live_put(((struct admin *)arg)->a_ops.ao_live, rq, rp);
}

static const struct http_route routes[] = {
	{"GET", "/v1/health", HTTP_OPEN, admin_get_health},
	{"GET", "/v1/status", HTTP_READ, get_status},
	{"GET", "/v1/ds", HTTP_READ, admin_get_ds},
	{"POST", "/v1/ds", HTTP_ADMIN, admin_post_ds},
	{"PUT", "/v1/ds/weight", HTTP_OPERATE, admin_put_weight},
	{"PUT", "/v1/ds/labels", HTTP_OPERATE, admin_put_labels},
	{"GET", "/v1/policy", HTTP_READ, admin_get_policy},
	{"PUT", "/v1/ds/kill", HTTP_ADMIN, admin_put_kill},
	{"PUT", "/v1/ds/admit", HTTP_ADMIN, admin_put_admit},
	{"PUT", "/v1/ds/forget", HTTP_ADMIN, admin_put_forget},
	{"PUT", "/v1/ds/key", HTTP_ADMIN, admin_put_ds_key},
	{"GET", "/v1/key", HTTP_READ, admin_get_key},
	{"PUT", "/v1/key/rotate", HTTP_ADMIN, admin_put_rotate},
	{"PUT", "/v1/policy", HTTP_OPERATE, put_policy},
	{"GET", "/v1/file", HTTP_READ, get_file},
	{"GET", "/v1/repair", HTTP_READ, admin_get_repair},
	{"PUT", "/v1/repair", HTTP_OPERATE, admin_put_repair},
	{"PUT", "/v1/mirror/add", HTTP_OPERATE, admin_put_mirror_add},
	{"PUT", "/v1/mirror/remove", HTTP_OPERATE, admin_put_mirror_remove},
	{"PUT", "/v1/move", HTTP_OPERATE, admin_put_move},
	{"GET", "/v1/verify", HTTP_READ, admin_get_verify},
	{"PUT", "/v1/verify", HTTP_OPERATE, admin_put_verify},
	{"DELETE", "/v1/verify", HTTP_OPERATE, admin_delete_verify},
	{"GET", "/v1/choose", HTTP_READ, admin_get_elect},
	{"PUT", "/v1/choose", HTTP_ADMIN, admin_put_elect},
	{"GET", "/v1/scrub", HTTP_READ, admin_get_scrub},
	{"PUT", "/v1/scrub", HTTP_OPERATE, admin_put_scrub},
	{"DELETE", "/v1/scrub", HTTP_OPERATE, admin_delete_scrub},
	{"GET", "/v1/ds/one", HTTP_READ, admin_get_one},
	{"PUT", "/v1/ds/drain", HTTP_OPERATE, admin_put_drain},
	{"PUT", "/v1/ds/undrain", HTTP_OPERATE, admin_put_undrain},
	{"GET", "/v1/restripe", HTTP_READ, admin_get_restripe},
	{"PUT", "/v1/restripe", HTTP_OPERATE, admin_put_restripe},
	{"GET", "/v1/advise", HTTP_READ, admin_get_advise},
	{"GET", "/v1/balance", HTTP_READ, admin_get_balance},
	{"PUT", "/v1/balance", HTTP_OPERATE, admin_put_balance},
	{"DELETE", "/v1/balance", HTTP_OPERATE, admin_delete_balance},
	{"GET", "/v1/exports", HTTP_READ, get_exports},
	{"PUT", "/v1/exports", HTTP_OPERATE, put_exports},
	{"GET", "/v1/top", HTTP_READ, admin_get_top},
	{"GET", "/v1/heat", HTTP_READ, admin_get_heat},
	{"GET", "/v1/find", HTTP_READ, admin_get_find},
	{"GET", "/v1/xattr", HTTP_READ, admin_get_xattr},
	{"PUT", "/v1/xattr", HTTP_ADMIN, admin_put_xattr},
	{"DELETE", "/v1/xattr", HTTP_ADMIN, admin_delete_xattr},
	{"GET", "/v1/events", HTTP_READ, admin_get_events},
	{"GET", "/v1/trace", HTTP_READ, admin_get_trace},
	{"GET", "/v1/clients", HTTP_READ, admin_get_clients},
	{"DELETE", "/v1/clients", HTTP_OPERATE, admin_delete_client},
	{"GET", "/v1/layouts", HTTP_READ, admin_get_layouts},
	{"PUT", "/v1/layouts/recall", HTTP_OPERATE, admin_put_recall},
	{"GET", "/v1/tokens", HTTP_ADMIN, admin_get_tokens},
	{"POST", "/v1/tokens", HTTP_ADMIN, admin_post_token},
	{"DELETE", "/v1/tokens", HTTP_ADMIN, admin_delete_token},
	{"GET", "/v1/config", HTTP_READ, admin_get_config},
	{"PUT", "/v1/config", HTTP_ADMIN, admin_put_config},
	{"GET", "/v1/orders", HTTP_READ, admin_get_orders},
	{"GET", "/v1/jobs", HTTP_READ, admin_get_jobs},
	{"GET", "/v1/jobs/one", HTTP_READ, admin_get_job},
	{"DELETE", "/v1/jobs", HTTP_OPERATE, admin_delete_job},
	{"GET", "/v1/openapi.json", HTTP_READ, http_openapi},
	{"POST", "/v1/cluster/token", HTTP_ADMIN, admin_post_join_token},
	{"GET", "/v1/dir", HTTP_READ, admin_get_dir},
	{"GET", "/v1/session", HTTP_OPEN, admin_get_session},
	{"POST", "/v1/session", HTTP_OPEN, admin_post_session},
	{"DELETE", "/v1/session", HTTP_READ, admin_delete_session},
	{"GET", "/v1/pins", HTTP_READ, admin_get_pins},
	{"PUT", "/v1/pins", HTTP_OPERATE, admin_put_pin},
	{"DELETE", "/v1/pins", HTTP_OPERATE, admin_delete_pin},
	{"GET", "/v1/trash", HTTP_READ, admin_get_trash},
	{"PUT", "/v1/trash/restore", HTTP_OPERATE, admin_put_trash_restore},
	{"DELETE", "/v1/trash", HTTP_ADMIN, admin_delete_trash},
	{"GET", "/v1/tags", HTTP_READ, admin_get_tags},
	{"PUT", "/v1/tags", HTTP_OPERATE, admin_put_tag},
	{"DELETE", "/v1/tags", HTTP_OPERATE, admin_delete_tag},
	{"GET", "/v1/du", HTTP_READ, admin_get_du},
	{"GET", "/v1/du/users", HTTP_READ, admin_get_du_users},
};

bool admin_may(const struct http_req *rq, struct http_reply *rp, enum http_role role,
	       const char *what)
{
	if (rq->rq_who->w_role >= role)
		return true;
	admin_reply_error(rp, 403, "%s needs the role %s, and this request has %s", what,
			  http_role_name(role), http_role_name(rq->rq_who->w_role));
	return false;
}

static void admin_audit(void *arg, const char *who, const char *what)
{
	(void)arg;
	journal_add(EV_AUDIT, who, 0, "%s", what);
}

static void admin_free(struct admin *a)
{
	admin_console_close(a);
	admin_sessions_close(a);
	admin_tokens_close(a);
	free(a);
}

int admin_start(struct admin **out, const struct http_opts *opts, const struct admin_ops *ops,
		char *err, size_t errlen)
{
	struct admin *a = calloc(1, sizeof(*a));
	struct http_opts all = *opts;
	char why[400];
	int e;

	if (!a) {
		snprintf(err, errlen, "out of memory");
		return -ENOMEM;
	}
	a->a_ops = *ops;
	admin_health_open(ops);
	all.ho_audit = admin_audit;
	all.ho_token_look = admin_token_look;
	all.ho_session_look = admin_session_look;
	e = admin_tokens_open(a);
	if (!e)
		e = admin_sessions_open(a, all.ho_token);
	if (e)
		snprintf(why, sizeof(why), "cannot read the tokens: %s", strerror(-e));
	else
		e = admin_console_open(a, ops->ao_console, &all, why, sizeof(why));
	if (!e)
		e = http_start(&a->a_http, &all, routes, sizeof(routes) / sizeof(routes[0]), a, why,
			       sizeof(why));
	if (e) {
		snprintf(err, errlen, "mds.admin: %s", why);
		admin_free(a);
		return e;
	}
	admin_metrics_init(a);
	*out = a;
	return 0;
}

void admin_reload(struct admin *a)
{
	http_tls_reload(a->a_http);
}

int admin_open_metrics(struct admin *a, const char *addr, char *err, size_t errlen)
{
	return scrape_start(&a->a_scrape, "mds.metrics", addr, admin_get_health, a, err, errlen);
}

void admin_stop(struct admin *a)
{
	scrape_stop(a->a_scrape);
	http_stop(a->a_http);
	admin_free(a);
}
