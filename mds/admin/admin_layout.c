/* SPDX-License-Identifier: Apache-2.0 */
/* admin_layout.c - lists layouts, and recalls the layouts of a file, over the API. */
#include "mds/admin/admin_holders.h"
#include "mds/nfs4/op.h"
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#define LAYOUTS_MOST	 10000	 /* layouts in one answer; all are counted */
#define ENTRIES_MOST	 1000000 /* directory entries that are read to find paths */
#define ROWS_OF_SNAPSHOT 256

struct listing {
	struct admin *lst_a;
	struct kv_txn *lst_txn;
	uint32_t lst_ds;      /* only files with an object on this server; 0: all */
	const char *lst_path; /* the path of the only file; NULL: any file */
	unsigned lst_budget, lst_rows;
	uint64_t lst_count, lst_recalled;
	uint64_t lst_ino, lst_client; /* of the previous row: its path and name are known */
	json_t *lst_where, *lst_name, *lst_servers;
	bool lst_fits;
	json_t *lst_list;
};

static json_t *servers_of(struct listing *l, const struct lo_map *m)
{
	json_t *admin_layout_list = json_array();
	uint32_t done[LO_MAX_OBJECTS];
	unsigned n = 0;

	for (unsigned k = 0; k < (unsigned)m->lm_stripes * m->lm_mirrors; k++) {
		struct ds_reg_server sv;
		bool had = false;

		for (unsigned d = 0; d < n; d++)
			had |= done[d] == m->lm_obj[k].ob_ds;
		if (had)
			continue;
		done[n++] = m->lm_obj[k].ob_ds;
		if (ds_reg_get(l->lst_a->a_ops.ao_dsc, m->lm_obj[k].ob_ds, &sv))
			json_array_append_new(admin_layout_list, json_string(sv.sv_name));
	}
	return admin_layout_list;
}

static json_t *path_json(struct listing *l, uint64_t ino)
{
	char path[4096];

	if (l->lst_path)
		return admin_text(l->lst_path, strlen(l->lst_path));
	if (!l->lst_txn || !l->lst_budget ||
	    ns_path_of(l->lst_a->a_ops.ao_ns, l->lst_txn, ino, &l->lst_budget, path, sizeof(path)))
		return json_null();
	return admin_text(path, strlen(path));
}

/* Reads what all layouts of a file have in common. */
static void admin_layout_file_begin(struct listing *l, uint64_t ino)
{
	struct ns_inode i;
	struct lo_map m;
	bool known;

	json_decref(l->lst_where);
	json_decref(l->lst_servers);
	l->lst_where = l->lst_servers = NULL;
	l->lst_ino = ino;
	if (l->lst_txn && l->lst_rows++ % ROWS_OF_SNAPSHOT == 0 && kv_read_renew(l->lst_txn))
		l->lst_txn = NULL;
	known = l->lst_txn && !ns_get(l->lst_a->a_ops.ao_ns, l->lst_txn, ino, &i) &&
		i.i_type == NS_REG && !lo_map_decode(i.i_blob, &m);
	l->lst_fits = !l->lst_ds || (known && lo_map_on(&m, l->lst_ds));
	if (!l->lst_fits || json_array_size(l->lst_list) >= LAYOUTS_MOST)
		return;
	l->lst_servers = known ? servers_of(l, &m) : json_array();
	l->lst_where = path_json(l, ino);
}

static json_t *name_json(struct listing *l, uint64_t client)
{
	struct st_client_view v;

	if (client != l->lst_client) {
		json_decref(l->lst_name);
		l->lst_name = st_client_view(l->lst_a->a_ops.ao_mds->m_st, client, &v)
				      ? admin_client_name(&v)
				      : json_null();
		l->lst_client = client;
	}
	return json_incref(l->lst_name);
}

static void admin_layout_add(void *arg, const struct st_layout_view *v)
{
	struct listing *l = arg;

	if (v->lv_ino != l->lst_ino)
		admin_layout_file_begin(l, v->lv_ino);
	if (!l->lst_fits)
		return;
	l->lst_count++;
	l->lst_recalled += v->lv_recalled;
	if (json_array_size(l->lst_list) >= LAYOUTS_MOST || !l->lst_where)
		return;
	json_array_append_new(
		l->lst_list, json_pack("{s:I, s:o, s:I, s:O, s:s, s:b, s:O}", "client",
				       (json_int_t)v->lv_number, "name", name_json(l, v->lv_client),
				       "inode", (json_int_t)v->lv_ino, "path", l->lst_where, "mode",
				       v->lv_iomode & LAYOUTIOMODE4_RW ? "write" : "read",
				       "recalled", v->lv_recalled, "ds", l->lst_servers));
}

/* asked: how many layouts there were when they were recalled; -1: they were not recalled. */
static void admin_layout_list(struct admin *a, uint64_t ino, uint64_t client, uint32_t ds,
			      const char *path, json_int_t asked, struct http_reply *rp)
{
	struct listing l = {.lst_a = a,
			    .lst_ds = ds,
			    .lst_path = path,
			    .lst_budget = ENTRIES_MOST,
			    .lst_list = json_array(),
			    .lst_client = UINT64_MAX};
	struct kv_txn *t = NULL;
	int err = kv_read_begin(ns_kv(a->a_ops.ao_ns), &t);

	l.lst_txn = err ? NULL : t;
	if (!err)
		err = st_layouts_view(a->a_ops.ao_mds->m_st, ino, client, admin_layout_add, &l);
	if (t)
		kv_read_end(t);
	json_decref(l.lst_where);
	json_decref(l.lst_servers);
	json_decref(l.lst_name);
	if (err) {
		json_decref(l.lst_list);
		admin_reply_error(rp, 500, "%s", strerror(-err));
		return;
	}
	admin_reply_json(rp, 200,
			 json_pack("{s:I, s:I, s:o, s:o*}", "known", (json_int_t)l.lst_count,
				   "recalled", (json_int_t)l.lst_recalled, "layouts", l.lst_list,
				   "asked", asked < 0 ? NULL : json_integer(asked)));
}

void admin_get_layouts(void *arg, const struct http_req *rq, struct http_reply *rp)
{
	const char *path = http_arg(rq, "path");
	struct ns_inode i = {0};
	uint64_t client = 0;
	uint32_t ds = 0;

	if (path && !admin_inode_arg(arg, rq, rp, &i))
		return;
	if (http_arg(rq, "client") && !(client = admin_client_arg(arg, rq, rp)))
		return;
	if (http_arg(rq, "ds") && !(ds = admin_ds_arg(arg, rq, rp)))
		return;
	admin_layout_list(arg, i.i_ino, client, ds, path, -1, rp);
}

/* ---- recall ---- */

#define BEGIN_MS 1000

struct recall {
	struct loop_msg r_msg;
	struct mds *r_m;
	struct loop *r_loop;
	uint64_t r_ino;
	atomic_bool r_begun;
	atomic_uint r_refs; /* one of the request, one of the work */
};

static void recall_put(struct recall *r)
{
	if (atomic_fetch_sub(&r->r_refs, 1) == 1)
		free(r);
}

static void admin_layout_count(void *arg, const struct st_layout_view *v)
{
	(void)v;
	++*(json_int_t *)arg;
}

static void recall_over(void *arg, int err)
{
	(void)err; /* logged */
	recall_put(arg);
}

static void recall_run(struct loop_msg *m)
{
	struct recall *r = (struct recall *)((char *)m - offsetof(struct recall, r_msg));
	bool waits =
		excl_recall_and_fence(&r->r_m->m_file, r->r_loop, r->r_ino, NULL, recall_over, r);

	atomic_store(&r->r_begun, true);
	if (!waits)
		recall_put(r);
}

/* Begins the recall. It is over when no recalled layout is listed any more. Layouts that are still
 * out at the deadline are fenced. */
void admin_put_recall(void *arg, const struct http_req *rq, struct http_reply *rp)
{
	const struct timespec ms = {0, 1000000};
	struct admin *a = arg;
	struct mds *m = a->a_ops.ao_mds;
	json_int_t asked = 0;
	struct ns_inode i;
	struct recall *r;

	if (!admin_inode_arg(a, rq, rp, &i))
		return;
	if (i.i_type != NS_REG) {
		admin_reply_error(rp, 400, "%s: not a regular file", http_arg(rq, "path"));
		return;
	}
	r = calloc(1, sizeof(*r));
	if (!r || st_layouts_view(m->m_st, i.i_ino, 0, admin_layout_count, &asked)) {
		free(r);
		admin_reply_error(rp, 500, "out of memory");
		return;
	}
	r->r_msg.m_run = recall_run;
	r->r_m = m;
	r->r_loop = m->m_thread[0].mt_loop;
	r->r_ino = i.i_ino;
	atomic_store(&r->r_refs, 2);
	loop_post(r->r_loop, &r->r_msg);
	/* Do not wait for ever: the loops may have stopped. */
	for (unsigned n = 0; n < BEGIN_MS && !atomic_load(&r->r_begun); n++)
		nanosleep(&ms, NULL);
	if (atomic_load(&r->r_begun))
		admin_layout_list(a, i.i_ino, 0, 0, http_arg(rq, "path"), asked, rp);
	else
		admin_reply_error(rp, 500, "the server is too busy, or is stopping");
	recall_put(r);
}
