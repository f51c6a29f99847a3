/* SPDX-License-Identifier: Apache-2.0 */
/*
 * call.c - a call on an exported folder: checks who calls, chooses the thread, sends the reply.
 *
 *   1. on the call's loop: check the handle's MAC, the rule for the peer's address (other threads
 *      resolve names), flavour, port and TLS; look in the reply cache
 *   2. on a thread of work.c: everything that touches the file system, and the reply
 *   3. on the loop again: send the reply
 */
#include "base/clock.h"
#include "base/log.h"
#include "ds/path/path_int.h"
#include "proto/rpc_rdma.h"
#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdio.h>
#include <unistd.h>
#include <urcu/compiler.h>

#define ASK_THREADS    2
#define PRIVILEGED_END 1024

/* Indexed by procedure. */
const struct path_proc path_procs[NFS3_NPROCS] = {
	[NFS3_GETATTR] = {path_getattr, PATH_PLAIN, false, false},
	[NFS3_SETATTR] = {path_setattr, PATH_WCC, true, true},
	[NFS3_LOOKUP] = {path_lookup, PATH_POST, false, false},
	[NFS3_ACCESS] = {path_access_proc, PATH_POST, false, false},
	[NFS3_READLINK] = {path_readlink, PATH_POST, false, false},
	[NFS3_READ] = {path_read, PATH_POST, false, false},
	[NFS3_WRITE] = {path_write, PATH_WCC, false, true},
	[NFS3_CREATE] = {path_create, PATH_WCC, true, true},
	[NFS3_MKDIR] = {path_mkdir, PATH_WCC, true, true},
	[NFS3_SYMLINK] = {path_symlink, PATH_WCC, true, true},
	[NFS3_MKNOD] = {path_mknod, PATH_WCC, true, true},
	[NFS3_REMOVE] = {path_remove, PATH_WCC, true, true},
	[NFS3_RMDIR] = {path_rmdir, PATH_WCC, true, true},
	[NFS3_RENAME] = {path_rename, PATH_WCC_WCC, true, true},
	[NFS3_LINK] = {path_link, PATH_POST_WCC, true, true},
	[NFS3_READDIR] = {path_readdir, PATH_POST, false, false},
	[NFS3_READDIRPLUS] = {path_readdirplus, PATH_POST, false, false},
	[NFS3_FSSTAT] = {path_fsstat, PATH_POST, false, false},
	[NFS3_FSINFO] = {path_fsinfo, PATH_POST, false, false},
	[NFS3_PATHCONF] = {path_pathconf, PATH_POST, false, false},
	[NFS3_COMMIT] = {path_commit, PATH_WCC, false, true},
};

struct metric *path_m_read_bytes, *path_m_write_bytes;
static struct metric *m_seconds, *m_denied, *m_busy, *m_copied;

void path_metrics_init(void)
{
	path_m_read_bytes = metric_counter("weft_ds_export_bytes_total",
					   "Payload bytes of exported files.", "dir=\"read\"");
	path_m_write_bytes = metric_counter("weft_ds_export_bytes_total",
					    "Payload bytes of exported files.", "dir=\"write\"");
	m_seconds = metric_histogram("weft_ds_export_seconds",
				     "Time from a call on an exported folder to its reply.", "");
	m_denied = metric_counter("weft_ds_export_denied_total",
				  "Calls that no export allows to their sender.", "");
	m_busy = metric_counter("weft_ds_export_busy_total",
				"Calls put off: too many wait, or a name cannot be looked up.", "");
	m_copied = metric_counter("weft_ds_copied_bytes_total",
				  "Payload bytes copied by the daemon.", "");
	path_drc_metrics();
}

/* ---- replies ---- */

void path_fail(struct path_call *c, enum nfsstat3 st)
{
	struct xdr_out *x = c->pcl_out;

	xdr_truncate(x, c->pcl_rpc->c_body);
	xdr_put_u32(x, st);
	switch (c->pcl_proc->pr_shape) {
	case PATH_PLAIN:
		break;
	case PATH_POST:
		nfs3_put_post_op(x, NULL);
		break;
	case PATH_POST_WCC:
		nfs3_put_post_op(x, NULL);
		nfs3_put_wcc(x, NULL);
		break;
	case PATH_WCC_WCC:
		nfs3_put_wcc(x, NULL);
		nfs3_put_wcc(x, NULL);
		break;
	default:
		nfs3_put_wcc(x, NULL);
	}
}

static void path_call_free(struct path_call *c)
{
	path_table_put(c->pcl_table);
	ask_val_put(c->pcl_names);
	if (c->pcl_buf)
		ds_buf_put(c->pcl_buf);
	free(c);
}

static void path_call_reply(struct path_call *c)
{
	struct rpc_call *rpc = c->pcl_rpc;
	bool garbage = c->pcl_garbage;

	if (c->pcl_put_data && !garbage)
		path_read_reply(c);
	metric_observe_us(m_seconds, (clock_mono_ns() - c->pcl_start_ns) / 1000);
	path_call_free(c);
	if (garbage)
		rpc_reply_error(rpc, RPC_A_GARBAGE_ARGS);
	else
		rpc_reply(rpc);
}

static void done_run(struct loop_msg *m)
{
	path_call_reply(caa_container_of(m, struct path_call, pcl_msg));
}

void path_call_done(struct path_call *c)
{
	c->pcl_msg.m_run = done_run;
	loop_post(c->pcl_rpc->c_loop, &c->pcl_msg);
}

static void call_denied(struct path_call *c, enum rpc_auth_stat why)
{
	struct rpc_call *rpc = c->pcl_rpc;

	metric_add(m_denied, 1);
	path_call_free(c);
	rpc_reply_auth_error(rpc, why);
}

/* ---- rights and ids ---- */

static struct ask_val *call_names_ask(void *arg, const void *key, size_t len)
{
	static _Atomic uint64_t told;
	struct path *p = arg;
	struct path_table *t = path_table_get(p);
	struct exp_names_key k;
	struct ask_val *v;

	memcpy(&k, key, len);
	v = exp_names_ask(t->t_exports, &k);
	if (v && v->av_failed && log_due(&told))
		log_warn("cannot look up a name in the exports: calls that depend on it are "
			 "delayed");
	path_table_put(t);
	return v;
}

const struct path_export *path_export_of(struct path_call *c, uint16_t id,
					 const struct exp_rule **rule)
{
	const struct path_table *t = c->pcl_table;
	const uint8_t *match = exp_names_told(t->t_exports, c->pcl_names);

	for (unsigned i = 0; i < t->t_exports->xt_n; i++) {
		const struct path_export *x = &t->t_x[i];

		if (x->x_fd < 0 || x->x_exp->e_id != id)
			continue;
		*rule = exp_match(x->x_exp, c->pcl_addr, match, &c->pcl_unknown);
		return *rule ? x : NULL;
	}
	c->pcl_unknown = false;
	return NULL;
}

enum rpc_auth_stat path_auth(const struct path_call *c, const struct exp_rule *r)
{
	enum exp_sec sec = c->pcl_rpc->c_cred.rc_flavor == RPC_AUTH_SYS ? EXP_SYS : EXP_NONE;

	if (c->pcl_tls < r->r_tls || (r->r_privileged && c->pcl_port >= PRIVILEGED_END))
		return RPC_AUTH_TOOWEAK;
	for (unsigned i = 0; i < r->r_nsec; i++)
		if (r->r_sec[i] == sec)
			return RPC_AUTH_OK;
	return RPC_AUTH_TOOWEAK;
}

/* An id of all ones is no user's or group's: it becomes the anonymous one. */
static uint32_t known_id(uint32_t id, uint32_t anon)
{
	return id == UINT32_MAX ? anon : id;
}

static void ids_make(struct path_call *c, const struct exp_rule *r)
{
	const struct rpc_cred *cr = &c->pcl_rpc->c_cred;
	struct path_ids *to = &c->pcl_ids;
	bool root = r->r_squash == EXP_SQUASH_ROOT;

	*to = (struct path_ids){.id_uid = r->r_anon_uid, .id_gid = r->r_anon_gid};
	if (r->r_squash == EXP_SQUASH_ALL || cr->rc_flavor != RPC_AUTH_SYS ||
	    (root && cr->rc_uid == 0))
		return;
	to->id_uid = known_id(cr->rc_uid, r->r_anon_uid);
	to->id_gid = root && cr->rc_gid == 0 ? r->r_anon_gid : known_id(cr->rc_gid, r->r_anon_gid);
	for (uint32_t i = 0; i < cr->rc_ngids && i < PATH_GIDS; i++)
		to->id_gids[to->id_ngids++] = root && cr->rc_gids[i] == 0
						      ? r->r_anon_gid
						      : known_id(cr->rc_gids[i], r->r_anon_gid);
}

/* ---- on a thread of work.c ---- */

bool path_as_caller(struct path_call *c)
{
	int err = path_become(&c->pcl_ids);

	if (!err)
		return true;
	log_warn("exports: cannot act as user %u: %s", c->pcl_ids.id_uid, strerror(-err));
	path_fail(c, NFS3ERR_SERVERFAULT);
	return false;
}

void path_as_server(struct path_call *c)
{
	int err = path_become(NULL);

	(void)c;
	/* The thread now acts as nobody: the kernel refuses what it tries, and the next call tries
	 * again. */
	if (err)
		log_error("exports: a thread cannot switch back from a user to the server: %s",
			  strerror(-err));
}

static void call_run(struct path_job *j)
{
	struct path_call *c = caa_container_of(j, struct path_call, pcl_job);
	bool data = c->pcl_rpc->c_proc == NFS3_READ || c->pcl_rpc->c_proc == NFS3_WRITE ||
		    c->pcl_rpc->c_proc == NFS3_COMMIT;

	path_as_server(c);
	/* READ, WRITE and COMMIT use descriptors that file.c keeps open. */
	c->pcl_fd = data ? -1 : path_fh_open(c->pcl_x->x_fd, &c->pcl_fh);
	if (!data && c->pcl_fd < 0)
		path_fail(c, path_status(c->pcl_fd));
	else if (!data && fstat(c->pcl_fd, &c->pcl_st))
		path_fail(c, path_status(-errno));
	else if (!data && !c->pcl_st.st_nlink)
		path_fail(c, NFS3ERR_STALE);
	else if (c->pcl_proc->pr_changes && c->pcl_rule->r_ro)
		path_fail(c, NFS3ERR_ROFS);
	else
		c->pcl_proc->pr_run(c);
	if (c->pcl_fd >= 0)
		close(c->pcl_fd);
	if (c->pcl_in->bad)
		c->pcl_garbage = true;
	path_drc_done(c->pcl_path->p_drc, c, true);
	path_call_done(c);
}

static void call_submit(struct path_call *c)
{
	c->pcl_job.pj_run = call_run;
	if (path_work_submit(c->pcl_path->p_work, &c->pcl_job))
		return;
	metric_add(m_busy, 1);
	path_fail(c, NFS3ERR_JUKEBOX);
	path_drc_done(c->pcl_path->p_drc, c, false);
	path_call_reply(c);
}

/* ---- on the call's loop ---- */

static void buf_ready(struct ds_buf_wait *w, struct ds_buf *b)
{
	struct path_call *c = caa_container_of(w, struct path_call, pcl_bufwait);

	c->pcl_buf = b;
	call_submit(c);
}

/* Says where the payload of this WRITE lies in its record, so that the next WRITE's payload is
 * received where it should be. */
static void write_hint(const struct path_call *c)
{
	struct xdr_in x = *c->pcl_in;
	const uint8_t *data;
	uint32_t len;

	xdr_take(&x, 8 + 4 + 4); /* offset, count, stable */
	data = xdr_get_opaque(&x, DS_MAX_IO, &len);
	if (!data || !len)
		return;
	metric_add(m_copied, rpc_call_copied(c->pcl_rpc, data));
	rpc_call_bulk_hint(c->pcl_rpc, data);
}

static void nfs3_begin(struct path_call *c)
{
	const struct path_proc *pr = c->pcl_proc;
	enum rpc_auth_stat auth;

	c->pcl_x = path_export_of(c, c->pcl_fh.fh_export, &c->pcl_rule);
	if (!c->pcl_x) {
		metric_add(c->pcl_unknown ? m_busy : m_denied, 1);
		path_fail(c, c->pcl_unknown ? NFS3ERR_JUKEBOX : NFS3ERR_STALE);
		path_call_reply(c);
		return;
	}
	auth = path_auth(c, c->pcl_rule);
	if (auth != RPC_AUTH_OK) {
		call_denied(c, auth);
		return;
	}
	ids_make(c, c->pcl_rule);
	if (c->pcl_rpc->c_proc == NFS3_READ) {
		if (!path_read_args(c)) {
			path_call_reply(c);
			return;
		}
		rpc_call_expect(c->pcl_rpc, ds_buf_takes(c->pcl_count));
		c->pcl_bufwait.bw_ready = buf_ready;
		/* The device knows only the pool's memory. */
		if (rpc_conn_is_rdma(c->pcl_rpc->c_conn))
			ds_buf_get_pooled(&c->pcl_bufwait, c->pcl_count ? c->pcl_count : 1);
		else
			ds_buf_get(&c->pcl_bufwait, c->pcl_count ? c->pcl_count : 1);
		return;
	}
	if (c->pcl_rpc->c_proc == NFS3_WRITE)
		write_hint(c);
	if (pr->pr_once) {
		enum path_drc_verdict v = path_drc_begin(c->pcl_path->p_drc, c);

		if (v == PATH_DRC_KNOWN)
			path_call_reply(c);
		if (v != PATH_DRC_NEW)
			return;
	}
	call_submit(c);
}

static void mount_begin(struct path_call *c)
{
	c->pcl_job.pj_run = path_mount_run;
	if (path_work_submit(c->pcl_path->p_work, &c->pcl_job))
		return;
	metric_add(m_busy, 1);
	c->pcl_rpc->c_reply.bad =
		true; /* MOUNT has no status for "try later": answer SYSTEM_ERR. */
	path_call_reply(c);
}

static void call_known(struct path_call *c)
{
	if (c->pcl_proc)
		nfs3_begin(c);
	else
		mount_begin(c);
}

static void names_answered(struct ask_wait *w, struct ask_val *v)
{
	struct path_call *c = caa_container_of(w, struct path_call, pcl_wait);

	c->pcl_names = v;
	call_known(c);
}

/* c is complete except for the names of its table. */
static void call_begin(struct path_call *c)
{
	struct exp_names_key key = {.nk_generation = c->pcl_table->t_exports->xt_generation};

	memcpy(key.nk_addr, c->pcl_addr, 16);
	if (c->pcl_table->t_exports->xt_nnames) {
		c->pcl_wait.aw_loop = c->pcl_rpc->c_loop;
		c->pcl_wait.aw_then = names_answered;
		c->pcl_names = ask_get(c->pcl_path->p_ask_names, &key, sizeof(key), &c->pcl_wait);
		if (!c->pcl_names)
			return;
	}
	call_known(c);
}

static struct path_call *call_new(struct path *p, struct rpc_call *rpc)
{
	struct path_call *c = calloc(1, sizeof(*c));

	if (!c) {
		rpc_reply_error(rpc, RPC_A_SYSTEM_ERR);
		return NULL;
	}
	c->pcl_path = p;
	c->pcl_rpc = rpc;
	c->pcl_in = &rpc->c_args;
	c->pcl_out = &rpc->c_reply;
	c->pcl_table = path_table_get(p);
	c->pcl_start_ns = clock_mono_ns();
	c->pcl_fd = -1;
	c->pcl_port = UINT16_MAX;
	c->pcl_tls = (enum exp_tls)rpc_conn_tls(rpc->c_conn); /* only the loop may ask this */
	exp_addr(rpc_conn_peer(rpc->c_conn), c->pcl_addr, &c->pcl_port);
	return c;
}

void path_nfs3(struct path *p, struct rpc_call *rpc)
{
	struct path_call *c = call_new(p, rpc);
	const uint8_t *fh;
	uint32_t len;

	if (!c)
		return;
	c->pcl_proc = &path_procs[rpc->c_proc];
	fh = xdr_get_opaque(c->pcl_in, NFS3_FHSIZE, &len);
	if (!fh || !path_fh_read(p, fh, len, &c->pcl_fh)) {
		c->pcl_garbage = c->pcl_in->bad;
		if (!c->pcl_garbage)
			path_fail(c, NFS3ERR_BADHANDLE);
		path_call_reply(c);
		return;
	}
	rpc_conn_proven(rpc->c_conn);
	call_begin(c);
}

void path_mount3(struct path *p, struct rpc_call *rpc)
{
	struct path_call *c;

	if (rpc->c_proc == MOUNT3_NULL) {
		rpc_reply(rpc);
		return;
	}
	c = call_new(p, rpc);
	if (c)
		call_begin(c);
}

/* ---- the service ---- */

struct load {
	struct path *l_path;
	struct path_table *l_table;
	char *l_err;
	size_t l_errlen;
	int l_rc;
};

static void path_call_load_run(void *arg)
{
	struct load *l = arg;

	l->l_rc = path_become(NULL);
	if (l->l_rc)
		snprintf(l->l_err, l->l_errlen, "exports: %s", strerror(-l->l_rc));
	else
		l->l_rc = path_table_load(l->l_path, &l->l_table, l->l_err, l->l_errlen);
}

static int table_replace(struct path *p, char *err, size_t errlen)
{
	struct load l = {.l_path = p, .l_err = err, .l_errlen = errlen};
	struct path_table *old;

	path_work_wait(p->p_work, path_call_load_run, &l);
	if (l.l_rc)
		return l.l_rc;
	pthread_mutex_lock(&p->p_lock);
	l.l_table->t_exports->xt_generation = atomic_fetch_add(&p->p_generation, 1) + 1;
	old = p->p_table;
	p->p_table = l.l_table;
	pthread_mutex_unlock(&p->p_lock);
	path_table_put(old);
	return 0;
}

int path_open(struct path **out, const struct path_opts *o, char *err, size_t errlen)
{
	struct path *p = calloc(1, sizeof(*p));
	int rc = -ENOMEM;

	if (p) {
		p->p_exports = strdup(o->po_exports);
		p->p_store = strdup(o->po_store);
		pthread_mutex_init(&p->p_lock, NULL);
		for (unsigned i = 0; i < PATH_LOCKS; i++)
			pthread_mutex_init(&p->p_wcc[i], NULL);
		randombytes_buf(&p->p_verifier, sizeof(p->p_verifier));
	}
	if (p && p->p_exports && p->p_store)
		rc = path_files_open(&p->p_files);
	if (!rc)
		rc = path_drc_open(&p->p_drc, o->po_replies);
	if (!rc)
		rc = path_mounts_open(&p->p_mounts);
	if (rc)
		snprintf(err, errlen, "ds.exports: %s", strerror(-rc));
	else
		rc = path_work_open(&p->p_work, o->po_threads, path_files_idle, p, err, errlen);
	if (!rc) {
		p->p_names_keep_ms = o->po_names_keep_ms;
		*out = p;
	}
	return rc;
}

int path_start(struct path *p, const uint8_t key[CAP_KEY_LEN], const uint8_t ds_uuid[16], char *err,
	       size_t errlen)
{
	int rc;

	memcpy(p->p_uuid, ds_uuid, 16);
	memcpy(p->p_key, key, sizeof(p->p_key));
	rc = table_replace(p, err, errlen);
	if (rc)
		return rc;
	/* Here, because this thread has no capabilities that those threads could inherit. */
	rc = ask_open(&p->p_ask_names, ASK_THREADS, p->p_names_keep_ms, call_names_ask, p);
	if (rc)
		snprintf(err, errlen, "ds.exports: %s", strerror(-rc));
	return rc;
}

void path_reload(struct path *p)
{
	char err[512];

	if (table_replace(p, err, sizeof(err)))
		log_error("exports not reloaded, the old ones stay in force: %s", err);
	else
		log_info("exports reloaded from %s", p->p_exports);
}
