/* repair.c - the repair of mirrors over the API: what is under way, what waits and for what, and files that are to be repaired now (docs/repair.md). */
#include "mds/admin/repair.h"
#include "mds/op/repair.h"
#include <errno.h>
#include <jansson.h>
#include <pthread.h>
#include <urcu/compiler.h>

#define WAITING_MAX 1000 /* told of; all are counted */
#define RUNNING_MAX 64

static void reply(struct http_reply *rp, int status, json_t *j)
{
	rp->rp_status = status;
	rp->rp_body = j ? json_dumps(j, JSON_COMPACT) : NULL;
	if (!rp->rp_body) {
		rp->rp_status = 500;
		rp->rp_body = strdup("{\"error\":\"no memory\"}");
	}
	json_decref(j);
}

static void refuse(struct http_reply *rp, int status, const char *path, const char *why)
{
	char *text = NULL;

	if (asprintf(&text, "%s: %s", path, why) < 0)
		text = NULL;
	for (char *p = text; p && *p; p++) /* a path may hold bytes that JSON cannot */
		*p = (unsigned char)*p < 0x80 ? *p : '?';
	reply(rp, status, text ? json_pack("{s:s}", "error", text) : NULL);
	free(text);
}

static void refuse_errno(struct http_reply *rp, int err, const char *path)
{
	if (err == -ENOENT || err == -ESTALE || err == -ENOTDIR)
		refuse(rp, 404, path, "no such file or directory");
	else if (err == -ENAMETOOLONG || err == -EINVAL)
		refuse(rp, 400, path, "not a path");
	else
		refuse(rp, err == -ENOSPC ? 409 : 500, path, strerror(-err));
}

/* ---- what there is ---- */

struct listing {
	struct mds *l_m;
	struct kv_txn *l_txn;
	struct op_repair_opts l_opts;
	struct op_repair_view l_run[RUNNING_MAX];
	unsigned l_nrun, l_shown;
	uint64_t l_only, l_count; /* only: of this inode; 0: of all */
	json_t *l_running, *l_waiting;
};

static json_t *server(struct mds *m, uint32_t id)
{
	struct dsc_server sv;

	return id && dsc_get(m->m_dsc, id, &sv) ? json_string(sv.sv_name) : json_null();
}

static void add_running(struct listing *l, const struct op_repair_view *v)
{
	static const char *const step[] = {[OP_REPAIR_RECALL] = "recall", [OP_REPAIR_BEGIN] = "begin", [OP_REPAIR_COPY] = "copy", [OP_REPAIR_END] = "end"};
	uint64_t moved = v->rv_done - v->rv_began;
	double rate = v->rv_ms ? (double)moved * 1000 / (double)v->rv_ms : 0;
	bool known = v->rv_step == OP_REPAIR_COPY && v->rv_size && rate > 0;
	double left = known && v->rv_size > v->rv_done ? (double)(v->rv_size - v->rv_done) / rate : 0;

	json_array_append_new(l->l_running,
			      json_pack("{s:I, s:i, s:o, s:o, s:s, s:I, s:I, s:I, s:I, s:I, s:o}", "inode", (json_int_t)v->rv_ino, "object", (int)v->rv_object, "ds",
					server(l->l_m, v->rv_to), "from", server(l->l_m, v->rv_from), "step", step[v->rv_step], "done", (json_int_t)v->rv_done, "size",
					(json_int_t)v->rv_size, "written", (json_int_t)v->rv_copied, "equal", (json_int_t)v->rv_same, "rate", (json_int_t)rate, "seconds_left",
					known ? json_integer((json_int_t)(left + 0.5)) : json_null()));
}

/* Why an object is not being repaired now, and for how long that is known to be so. */
static void add_waiting(struct listing *l, uint64_t ino, const struct lo_repair *row, const struct lo_map *map, unsigned obj)
{
	static const char *const wait[] = {[LO_IN_PLACE] = "its turn comes", [LO_ELSEWHERE] = "its turn comes", [LO_WAIT_SERVER] = "its data server is away, and may come back",
					   [LO_WAIT_SPACE] = "no data server is there for it", [LO_WAIT_SOURCE] = "no copy in sync can be read"};
	uint64_t now = (uint64_t)op_now().t_sec, left_ms = 0;
	const char *why;
	uint32_t ds;

	why = wait[lo_repair_where(l->l_m->m_lo, map, obj, row, l->l_opts.ro_wait_ms, &ds, &left_ms)];
	if (row->rr_after > now) {
		why = lo_repair_why_text(row->rr_why);
		left_ms = (row->rr_after - now) * 1000;
	}
	if (!l->l_opts.ro_files)
		why = "nothing is repaired: mds.repair_files is 0";
	json_array_append_new(l->l_waiting, json_pack("{s:I, s:i, s:o, s:s, s:s, s:i, s:I}", "inode", (json_int_t)ino, "object", (int)obj, "ds", server(l->l_m, map->lm_obj[obj].ob_ds),
						      "state", map->lm_obj[obj].ob_state == LO_REBUILDING ? "rebuilding" : "stale", "why", why, "fails", (int)row->rr_fails,
						      "seconds_left", (json_int_t)(left_ms + 999) / 1000));
}

static bool runs(const struct listing *l, uint64_t ino, unsigned obj)
{
	for (unsigned i = 0; i < l->l_nrun; i++)
		if (l->l_run[i].rv_ino == ino && l->l_run[i].rv_object == obj)
			return true;
	return false;
}

static int list_row(void *arg, uint64_t ino, const struct lo_repair *row)
{
	struct listing *l = arg;
	struct ns_inode i;
	struct lo_map map;

	if (l->l_only && ino != l->l_only)
		return ino > l->l_only;
	l->l_count++;
	if (l->l_shown >= WAITING_MAX || ns_get(l->l_m->m_ns, l->l_txn, ino, &i) || lo_map_decode(i.i_blob, &map))
		return 0;
	for (unsigned k = 0; k < (unsigned)map.lm_stripes * map.lm_mirrors; k++) {
		if (map.lm_obj[k].ob_state == LO_IN_SYNC || runs(l, ino, k))
			continue;
		add_waiting(l, ino, row, &map, k);
		l->l_shown++;
	}
	return 0;
}

static void list(struct mds *m, uint64_t only, struct http_reply *rp)
{
	struct listing l = {.l_m = m, .l_opts = op_repair_opts(m), .l_only = only, .l_running = json_array(), .l_waiting = json_array()};
	int err = kv_read_begin(m->m_kv, &l.l_txn);

	l.l_nrun = op_repair_list(m, l.l_run, RUNNING_MAX);
	for (unsigned i = 0; i < l.l_nrun; i++)
		if (!only || l.l_run[i].rv_ino == only)
			add_running(&l, &l.l_run[i]);
	if (!err) {
		err = lo_repairs(l.l_txn, only ? only : 1, list_row, &l);
		kv_read_end(l.l_txn);
	}
	if (err < 0) {
		json_decref(l.l_running);
		json_decref(l.l_waiting);
		refuse(rp, 500, "the table of repairs", strerror(-err));
		return;
	}
	reply(rp, 200,
	      json_pack("{s:i, s:I, s:I, s:I, s:o, s:o}", "files_at_a_time", (int)l.l_opts.ro_files, "rate", (json_int_t)l.l_opts.ro_rate, "wait_seconds",
			(json_int_t)l.l_opts.ro_wait_ms / 1000, "files", (json_int_t)l.l_count, "running", l.l_running, "waiting", l.l_waiting));
}

/* The inode of the "path" argument, a regular file's; 0: refused. */
static uint64_t file_arg(struct mds *m, const char *path, struct http_reply *rp)
{
	struct ns_inode i;
	struct kv_txn *t;
	uint64_t ino = 0;
	int err;

	if (path[0] != '/') {
		refuse(rp, 400, path, "expected an absolute path");
		return 0;
	}
	err = kv_read_begin(m->m_kv, &t);
	if (!err) {
		err = ns_path(m->m_ns, t, path, &ino);
		if (!err)
			err = ns_get(m->m_ns, t, ino, &i);
		kv_read_end(t);
	}
	if (err)
		refuse_errno(rp, err, path);
	else if (i.i_type != NS_REG)
		refuse(rp, 400, path, "not a regular file");
	return !err && i.i_type == NS_REG ? ino : 0;
}

void admin_get_repair(struct mds *m, const struct http_req *rq, struct http_reply *rp)
{
	const char *path = http_arg(rq, "path");
	uint64_t ino = path ? file_arg(m, path, rp) : 0;

	if (!path || ino)
		list(m, ino, rp);
}

/* ---- now ---- */

struct now {
	struct kv_op n_op;
	struct mds *n_m;
	uint64_t n_ino;
	pthread_mutex_t n_lock;
	pthread_cond_t n_cond;
	bool n_done;
	int n_err;
};

static int now_run(struct kv_op *op, struct kv_txn *t)
{
	struct now *n = caa_container_of(op, struct now, n_op);
	struct lo_repair row;
	struct ns_inode i;
	struct lo_map map;
	int err = ns_get(n->n_m->m_ns, t, n->n_ino, &i);

	if (!err)
		err = lo_map_decode(i.i_blob, &map);
	if (err)
		return err;
	if (lo_map_whole(&map))
		return lo_repair_del(t, n->n_ino);
	if (lo_repair_get(t, n->n_ino, &row))
		row = (struct lo_repair){0};
	row.rr_now = true;
	row.rr_after = 0;
	return lo_repair_put(t, n->n_ino, &row);
}

static void now_done(struct kv_op *op, int err)
{
	struct now *n = caa_container_of(op, struct now, n_op);

	pthread_mutex_lock(&n->n_lock);
	n->n_err = err;
	n->n_done = true;
	pthread_cond_signal(&n->n_cond);
	pthread_mutex_unlock(&n->n_lock);
}

void admin_put_repair(struct mds *m, const struct http_req *rq, struct http_reply *rp)
{
	const char *path = http_arg(rq, "path");
	struct now n = {.n_m = m, .n_op = {.o_run = now_run, .o_done = now_done}}; /* on the committer: the loops may have stopped */

	n.n_ino = path ? file_arg(m, path, rp) : 0;
	if (!path)
		refuse(rp, 400, "path", "expected an absolute path");
	if (!n.n_ino)
		return;
	pthread_mutex_init(&n.n_lock, NULL);
	pthread_cond_init(&n.n_cond, NULL);
	kv_submit(m->m_kv, &n.n_op);
	pthread_mutex_lock(&n.n_lock);
	while (!n.n_done)
		pthread_cond_wait(&n.n_cond, &n.n_lock);
	pthread_mutex_unlock(&n.n_lock);
	pthread_cond_destroy(&n.n_cond);
	pthread_mutex_destroy(&n.n_lock);
	if (n.n_err)
		refuse_errno(rp, n.n_err, path);
	else
		list(m, n.n_ino, rp);
}
