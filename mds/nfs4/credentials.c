/* SPDX-License-Identifier: Apache-2.0 */
/*
 * credentials.c - the caller of a request: the view that its connection has of the exports, the
 * user's groups, and what an export makes of the credential.
 *
 * Only the first request waits for this. The view is kept with the connection, the groups by thread
 * and by process. A worker puts a question to NSS or DNS (base/ask.h). Meanwhile the compound waits
 * before its first operation: only where the question is new, and at most ASK_WAIT_MS for hosts and
 * ASK_WAIT_MS for groups. So no lease runs out for want of a name.
 *
 * A name service that fails has not said "no". To take its failure for "no" would open what a deny
 * rule keeps shut, or let a later section of the exports decide. So a request that puts a file
 * handle of such an export, or comes from such a user, gets NFS4ERR_DELAY. Sessions and leases need
 * no names: SEQUENCE, and operations without a file handle, go on.
 */
#include "base/clock.h"
#include "base/log.h"
#include "mds/nfs4/op.h"
#include "mds/nfs4/credentials.h"
#include "proto/rpc_tls.h"
#include <errno.h>
#include <grp.h>
#include <pwd.h>
#include <unistd.h>

#define ASK_THREADS  4
#define GROUPS_MAX   65536
#define LOG_EVERY_NS 10000000000ull

/* True at most once in LOG_EVERY_NS: then the failure gets a line in the log. On a worker. */
static bool credentials_may_log(_Atomic uint64_t *logged)
{
	uint64_t now = clock_mono_ns(), last = atomic_load(logged);

	return (!last || now - last >= LOG_EVERY_NS) &&
	       atomic_compare_exchange_strong(logged, &last, now);
}

/* ---- exports ---- */

/* On a worker. */
static struct ask_val *credentials_names_ask(void *arg, const void *key, size_t len)
{
	static _Atomic uint64_t logged;
	struct mds *m = arg;
	struct exp_table *t = export_set_get(m->m_exports);
	struct exp_names_key k;
	struct ask_val *v;

	memcpy(&k, key, len);
	v = exp_names_ask(t, &k);
	if (v && v->av_failed && credentials_may_log(&logged))
		log_warn("cannot look up a name in the exports: clients that depend on it wait");
	exp_put(t);
	return v;
}

static struct exp_table *thread_table(struct mds_thread *th)
{
	struct mds *m = th->mt_mds;

	if (!th->mt_exports ||
	    th->mt_exports->xt_generation != export_set_generation(m->m_exports)) {
		op_thread_forget(th); /* groups as well: after a reload they are looked up again */
		th->mt_exports = export_set_get(m->m_exports);
	}
	return th->mt_exports;
}

static bool view_good(const struct compound *c, const struct exp_view *v, const struct exp_table *t)
{
	return v && v->v_table == t && v->v_tls == (enum exp_tls)rpc_conn_tls(c->call->c_conn) &&
	       (!v->v_until_ns || loop_now_ns(c->th->mt_loop) < v->v_until_ns);
}

/* Keeps the view with the connection. Not after the connection's end: op_conn_view_drop may have
 * run already. */
static void view_keep(struct compound *c, struct exp_view *v)
{
	struct rpc_conn *conn = c->call->c_conn;

	if (rpc_conn_dead(conn))
		return;
	export_view_put(rpc_conn_priv(conn));
	rpc_conn_set_priv(conn, v);
	v->v_refs++;
}

static void peer_answered(struct ask_wait *w, struct ask_val *v);

/* False: parked. Without memory there is no view, or one in which everything that depends on a name
 * is unknown. */
static bool peer_view(struct compound *c)
{
	struct exp_table *t = thread_table(c->th);
	struct rpc_conn *conn = c->call->c_conn;
	struct exp_view *v = rpc_conn_dead(conn) ? NULL : rpc_conn_priv(conn);
	struct exp_names_key key = {.nk_generation = t->xt_generation};
	uint16_t port = UINT16_MAX;

	if (view_good(c, v, t)) {
		c->view = v;
		v->v_refs++;
		return true;
	}
	exp_addr(rpc_conn_peer(conn), key.nk_addr, &port);
	if (t->xt_nnames && !c->no_answer && !exp_names_told(t, c->answer)) {
		ask_val_put(c->answer);
		c->answer = ask_get(c->m->m_ask_names, &key, sizeof(key), &c->wait);
		if (!c->answer)
			return false;
	}
	c->view = export_view_new(t, key.nk_addr, port, (enum exp_tls)rpc_conn_tls(conn),
				  exp_names_told(t, c->answer));
	if (c->view && t->xt_nnames)
		c->view->v_until_ns = c->answer ? c->answer->av_until_ns : 1;
	if (c->view)
		view_keep(c, c->view);
	ask_val_put(c->answer);
	c->answer = NULL;
	c->no_answer = false; /* the question for the groups is a separate one */
	return true;
}

/* ---- jobs ---- */

static void stand_named(struct ask_wait *w, struct ask_val *v)
{
	struct op_still_valid *s = hash_entry(w, struct op_still_valid, s_wait);

	s->s_names = v;
	s->s_told = true;
	s->s_then(s->s_arg);
}

void op_still_valid_begin(struct op_still_valid *s, const struct compound *c,
			  void (*then)(void *arg), void *arg)
{
	*s = (struct op_still_valid){.s_m = c->m,
				     .s_generation = c->view->v_table->xt_generation,
				     .s_ino = c->cur,
				     .s_export = op_export(c),
				     .s_sec = c->sec,
				     .s_tls = c->view->v_tls};
	exp_addr(rpc_conn_peer(c->call->c_conn), s->s_addr, &s->s_port);
	s->s_wait.aw_loop = c->th->mt_loop;
	s->s_wait.aw_then = stand_named;
	s->s_then = then;
	s->s_arg = arg;
}

void op_still_valid_end(struct op_still_valid *s)
{
	ask_val_put(s->s_names);
	s->s_names = NULL;
	s->s_told = false;
}

/* Where the table has names, gets what they are for this address. Queries once, and uses that
 * answer. */
static int stand_names(struct op_still_valid *s, const struct exp_table *t)
{
	struct exp_names_key key = {.nk_generation = t->xt_generation};

	if (!t->xt_nnames || s->s_told)
		return 0;
	memcpy(key.nk_addr, s->s_addr, sizeof(key.nk_addr));
	s->s_names = ask_get(s->s_m->m_ask_names, &key, sizeof(key), &s->s_wait);
	s->s_told = s->s_names;
	return s->s_told ? 0 : -EINPROGRESS;
}

static int stand_judge(struct op_still_valid *s, struct exp_table *t)
{
	struct exp_view *v =
		export_view_new(t, s->s_addr, s->s_port, s->s_tls, exp_names_told(t, s->s_names));
	const struct exp_grant *g = v ? exp_of_handle(v, s->s_export, s->s_ino) : &exp_unknown;
	int err = 0;

	if (g == &exp_unknown)
		err = -EAGAIN;
	else if (!g || exp_is_pseudo(g))
		err = -ESTALE;
	else if (g->g_ro)
		err = -EROFS;
	else if (!(g->g_ok >> s->s_sec & 1))
		err = -EACCES;
	if (!err)
		s->s_generation = t->xt_generation;
	export_view_put(v);
	op_still_valid_end(s);
	return err;
}

int op_still_valid(struct op_still_valid *s)
{
	struct exp_table *t;
	int err;

	if (s->s_generation == export_set_generation(s->s_m->m_exports))
		return 0;
	t = export_set_get(s->s_m->m_exports);
	err = stand_names(s, t);
	if (!err)
		err = stand_judge(s, t);
	exp_put(t);
	return err;
}

/* ---- groups ---- */

struct groups_answer {
	uint32_t uid;
	struct ns_groups groups;
};

static int gid_order(const void *a, const void *b)
{
	const gid_t *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

/* Returns *n groups of a user, malloc'd. An unknown user has none (glibc returns 0 for him). NULL:
 * no memory, or NSS fails. */
static gid_t *user_groups(uid_t uid, int *n, int *err)
{
	size_t len = 1 << 16;
	char *buf = malloc(len);
	struct passwd pw, *found = NULL;
	gid_t *list = NULL;
	int max = 64;

	*n = 0;
	*err = buf ? getpwuid_r(uid, &pw, buf, len, &found) : ENOMEM;
	if (!*err)
		list = calloc((size_t)max, sizeof(*list));
	while (list && found) {
		*n = max;
		if (getgrouplist(pw.pw_name, pw.pw_gid, list, n) >= 0)
			break;
		max = *n > max ? *n : max * 2;
		free(list);
		list = max <= GROUPS_MAX ? calloc((size_t)max, sizeof(*list)) : NULL;
	}
	free(buf);
	if (!list && !*err)
		*err = max > GROUPS_MAX ? E2BIG : ENOMEM;
	return list;
}

/* On a worker. An unknown user has no groups but the one that the client names. */
static struct ask_val *groups_ask(void *arg, const void *key, size_t len)
{
	static _Atomic uint64_t logged;
	struct groups_answer *a;
	struct ask_val *v;
	uint32_t uid;
	gid_t *list;
	int n, err;

	(void)arg;
	memcpy(&uid, key, len);
	list = user_groups(uid, &n, &err);
	if (!list) {
		n = 0;
		if (credentials_may_log(&logged))
			log_warn("cannot look up the groups of user %u, whose requests wait: %s",
				 uid, strerror(err));
	}
	v = ask_val_new(sizeof(*a) + (size_t)n * sizeof(a->groups.g_gid[0]));
	if (v) {
		a = (struct groups_answer *)v->av_data;
		a->uid = uid;
		v->av_failed = !list;
		if (list)
			qsort(list, (size_t)n, sizeof(*list), gid_order);
		for (int i = 0; i < n; i++)
			a->groups.g_gid[a->groups.g_n++] = list[i];
	}
	free(list);
	return v;
}

/* False: parked. */
static bool peer_groups(struct compound *c)
{
	uint32_t uid = c->call->c_cred.rc_uid;
	struct ask_val **near = &c->th->mt_groups[uid % OP_GROUPS_NEAR];

	if (*near && ((struct groups_answer *)(*near)->av_data)->uid == uid &&
	    loop_now_ns(c->th->mt_loop) < (*near)->av_until_ns) {
		c->groups = ask_val_get(*near);
		return true;
	}
	c->groups = ask_get(c->m->m_ask_groups, &uid, sizeof(uid), &c->wait);
	if (!c->groups)
		return false;
	if (c->groups->av_failed)
		return true;
	ask_val_put(*near);
	*near = ask_val_get(c->groups);
	return true;
}

/* ---- both ---- */

/* A Kerberos call brings no groups: they are always looked up. */
static bool server_groups(const struct compound *c)
{
	return c->m->m_server_groups || c->call->c_cred.rc_flavor == RPC_AUTH_GSS;
}

/* AUTH_NONE is the anonymous user. Root may do everything without its groups; squashed, it has
 * none. */
static bool groups_count(const struct compound *c)
{
	return server_groups(c) && c->sec != EXP_NONE && c->call->c_cred.rc_uid;
}

static bool peer_known(struct compound *c)
{
	if (!c->view && !peer_view(c))
		return false;
	if (c->view && groups_count(c) && !c->groups && !c->no_answer)
		return peer_groups(c);
	return true;
}

static void peer_answered(struct ask_wait *w, struct ask_val *v)
{
	struct compound *c = hash_entry(w, struct compound, wait);

	c->no_answer = !v;
	if (c->view)
		c->groups = v;
	else
		c->answer = v;
	if (peer_known(c))
		c->go(c);
}

static enum exp_sec sec_of(const struct rpc_cred *cred)
{
	if (cred->rc_flavor == RPC_AUTH_GSS)
		return cred->rc_service == 3   ? EXP_KRB5P
		       : cred->rc_service == 2 ? EXP_KRB5I
					       : EXP_KRB5;
	return cred->rc_flavor == RPC_AUTH_SYS ? EXP_SYS : EXP_NONE;
}

bool op_cred(struct compound *c, void (*go)(struct compound *c))
{
	c->go = go;
	c->sec = sec_of(&c->call->c_cred);
	c->wait.aw_loop = c->th->mt_loop;
	c->wait.aw_then = peer_answered;
	return peer_known(c);
}

void op_cred_done(struct compound *c)
{
	export_view_put(c->view);
	ask_val_put(c->groups);
	ask_val_put(c->answer);
}

void op_conn_view_drop(struct rpc_conn *conn)
{
	export_view_put(rpc_conn_priv(conn));
	rpc_conn_set_priv(conn, NULL);
}

int op_cred_open(struct mds *m, bool server_groups, bool kerberos, uint32_t keep_ms)
{
	int err = ask_open(&m->m_ask_names, ASK_THREADS, keep_ms, credentials_names_ask, m);

	m->m_server_groups = server_groups;
	return err || !(server_groups || kerberos)
		       ? err
		       : ask_open(&m->m_ask_groups, ASK_THREADS, keep_ms, groups_ask, m);
}

void op_thread_forget(struct mds_thread *th)
{
	exp_put(th->mt_exports);
	th->mt_exports = NULL;
	for (unsigned i = 0; i < OP_GROUPS_NEAR; i++) {
		ask_val_put(th->mt_groups[i]);
		th->mt_groups[i] = NULL;
	}
}

/* ---- credentials ---- */

static void nobody(struct ns_cred *cr, const struct exp_rule *r)
{
	*cr = (struct ns_cred){.cr_uid = r->r_anon_uid, .cr_gid = r->r_anon_gid};
}

static void squash_root(struct ns_cred *cr, const struct exp_rule *r)
{
	if (cr->cr_uid == 0) {
		nobody(cr, r);
		return;
	}
	if (cr->cr_gid == 0)
		cr->cr_gid = r->r_anon_gid;
	for (uint32_t i = 0; i < cr->cr_ngids; i++) {
		if (cr->cr_gids[i] == 0)
			cr->cr_gids[i] = r->r_anon_gid;
	}
	cr->cr_not_root_group = true;
}

static void cred_make(struct compound *c, const struct exp_rule *r)
{
	const struct rpc_cred *from = &c->call->c_cred;
	struct ns_cred *cr = &c->cred;

	*cr = (struct ns_cred){.cr_uid = from->rc_uid, .cr_gid = from->rc_gid};
	if (c->groups)
		cr->cr_groups = &((struct groups_answer *)c->groups->av_data)->groups;
	if (!server_groups(c)) {
		cr->cr_ngids = from->rc_ngids;
		memcpy(cr->cr_gids, from->rc_gids, sizeof(cr->cr_gids));
	}
	if (r && (r->r_squash == EXP_SQUASH_ALL || c->sec == EXP_NONE))
		nobody(cr, r);
	else if (r && r->r_squash == EXP_SQUASH_ROOT)
		squash_root(cr, r);
}

/* Where every user is squashed no groups count. */
bool op_enterable(const struct compound *c, const struct exp_grant *g)
{
	if (g == &exp_unknown)
		return false;
	return !g->g_rule || g->g_rule->r_squash == EXP_SQUASH_ALL || !groups_count(c) ||
	       (c->groups && !c->groups->av_failed);
}

void op_enter(struct compound *c, const struct exp_grant *g)
{
	if (c->exp == g)
		return;
	c->exp = g;
	cred_make(c, g->g_rule);
}

/* Every data server offers TLS at this level at least, and this client speaks TLS: it then uses TLS
 * to the data servers as well. */
static bool data_path_tls(const struct compound *c, unsigned least)
{
	return c->view->v_tls != EXP_TLS_NONE && ds_reg_least_tls(c->m->m_dsc) >= least;
}

bool op_protected(const struct compound *c)
{
	return c->sec >= EXP_KRB5I || c->view->v_tls != EXP_TLS_NONE;
}

bool op_layouts_ok(const struct compound *c)
{
	const struct exp_rule *r = c->exp->g_rule;
	bool demanded, plain = false, has = op_protected(c);

	if (!r || r->r_layouts == EXP_LAYOUTS_NO)
		return false;
	for (unsigned i = 0; i < r->r_nsec; i++)
		plain |= r->r_sec[i] < EXP_KRB5I;
	demanded = !plain || r->r_tls != EXP_TLS_NONE;
	if (r->r_layouts == EXP_LAYOUTS_YES || (!demanded && !has))
		return true;
	/* The export demands no protection, but this client protects its request. It is enough that
	 * the data servers take TLS. */
	if (!demanded)
		return data_path_tls(c, RPC_TLS_OPTIONAL);
	return data_path_tls(c, r->r_tls == EXP_TLS_MUTUAL ? RPC_TLS_CERT : RPC_TLS_REQUIRED);
}

/* Each client sees its own entries in such a directory. So the change attribute is that of the
 * table of exports: it rises with each reload and each start. */
void op_pseudo_inode(const struct compound *c, struct ns_inode *i)
{
	const struct exp_table *t = c->view->v_table;

	i->i_mode = 0555;
	i->i_acl = (struct kv_slice){0};
	i->i_uid = i->i_gid = 0;
	i->i_nlink = 2;
	i->i_size = i->i_used = 4096;
	i->i_change = (c->m->m_st->st_boot << 32) + t->xt_generation;
	i->i_atime = i->i_mtime = i->i_ctime = i->i_btime = (struct ns_time){t->xt_sec, t->xt_nsec};
	i->i_entries = 0;
	i->i_has_policy = i->i_has_xattrs = false;
	i->i_blob = (struct kv_slice){0};
}
