/* SPDX-License-Identifier: Apache-2.0 */
/* admin_top.c - load and heat over the API. */
#include "base/clock.h"
#include "mds/admin/admin_holders.h"
#include "mds/admin/admin_tag.h"
#include "mds/jobs/heat.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>

#define ROWS_MOST    200
#define ENTRIES_MOST 300000 /* directory entries that are read to find paths */
/* operations a second, or their worth in bytes: what does less is left out */
#define IDLE 0.05f

struct names {
	struct admin *n_a;
	struct kv_txn *n_txn;
	unsigned n_budget;
	const char *n_below; /* heat: list only what is below this path; "" for all */
};

static float load_of(const struct heat_row *r)
{
	return r->hr_ops + (r->hr_read + r->hr_written) / HEAT_UNIT;
}

/* A time of the sums, which are fractions: a mean of 1,000 us may be 999.99. */
static json_t *top_us(double us)
{
	return admin_known(llrint(us));
}

static json_t *rates(const struct heat_row *r)
{
	return json_pack("{s:f, s:f, s:f, s:o, s:o, s:o, s:f}", "ops", (double)r->hr_ops, "read",
			 (double)r->hr_read, "written", (double)r->hr_written, "mean_us",
			 top_us(r->hr_us), "p50_us", top_us(heat_percentile(r, 0.5)), "p99_us",
			 top_us(heat_percentile(r, 0.99)), "heat", (double)r->hr_heat);
}

/* A client or a server that is gone is left out. */
static bool name_client(struct names *n, const struct heat_row *r, json_t *o)
{
	struct st_client_view v;

	if (!st_client_view(n->n_a->a_ops.ao_mds->m_st, r->hr_key, &v))
		return false;
	json_object_set_new(o, "number", json_integer((json_int_t)v.cv_number));
	json_object_set_new(o, "name", admin_client_name(&v));
	json_object_set_new(o, "tag", admin_tag_json(n->n_a, &v));
	return true;
}

/* An export that was removed is left out. */
static bool name_export(struct names *n, const struct heat_row *r, json_t *o)
{
	struct exp_table *t = export_set_get(n->n_a->a_ops.ao_exports);
	int id = export_slot_id((unsigned)r->hr_key);
	const struct exp *e = id >= 0 ? exp_by_id(t, (uint16_t)id) : NULL;
	bool known = e || r->hr_key == EXP_SLOTS - 1;

	if (known)
		json_object_set_new(o, "name", json_string(e ? e->e_path : "other"));
	exp_put(t);
	return known;
}

/* Clients of the tag that do something now. */
static unsigned tag_clients(struct admin *a, unsigned slot)
{
	size_t have, n = 0;
	struct heat_row *rows = heat_rows(a->a_ops.ao_mds, HEAT_CLIENT, false, &have);
	struct st_client_view v;

	for (size_t i = 0; i < have && load_of(&rows[i]) >= IDLE; i++)
		n += st_client_view(a->a_ops.ao_mds->m_st, rows[i].hr_key, &v) &&
		     admin_tag_of(a, &v) == slot;
	free(rows);
	return (unsigned)n;
}

/* A tag that is gone is left out. */
static bool name_tag(struct names *n, const struct heat_row *r, json_t *o)
{
	char name[TAG_NAME_MAX + 1];

	if (!job_tag_name(n->n_a->a_ops.ao_mds, (unsigned)r->hr_key, name))
		return false;
	json_object_set_new(o, "name", json_string(name));
	json_object_set_new(o, "clients",
			    json_integer((json_int_t)tag_clients(n->n_a, (unsigned)r->hr_key)));
	return true;
}

static bool name_server(struct names *n, const struct heat_row *r, json_t *o)
{
	struct ds_reg_terms dt = {0};
	struct ds_reg_server sv;

	if (!ds_reg_get(n->n_a->a_ops.ao_dsc, (uint32_t)r->hr_key, &sv))
		return false;
	ds_reg_terms(n->n_a->a_ops.ao_dsc, sv.sv_id, &dt);
	json_object_set_new(o, "number", json_integer((json_int_t)sv.sv_id));
	json_object_set_new(o, "name", json_string(sv.sv_name));
	json_object_set_new(o, "load", json_real(dt.dt_load / 100.0));
	return true;
}

static bool admin_top_below(const char *path, const char *top)
{
	size_t n = strlen(top);

	while (n && top[n - 1] == '/')
		n--;
	return !strncmp(path, top, n) && (!path[n] || path[n] == '/');
}

static bool name_inode(struct names *n, const struct heat_row *r, json_t *o)
{
	char path[4096];
	bool known = n->n_txn && n->n_budget &&
		     !ns_path_of(n->n_a->a_ops.ao_ns, n->n_txn, r->hr_key, &n->n_budget, path,
				 sizeof(path));

	if (*n->n_below && (!known || !admin_top_below(path, n->n_below)))
		return false;
	json_object_set_new(o, "inode", json_integer((json_int_t)r->hr_key));
	json_object_set_new(o, "path", known ? admin_text(path, strlen(path)) : json_null());
	return true;
}

/* What a data server reports itself is true now; clients report late, and only some of them. */
static void server_now(struct ds_reg *d, struct heat_row *r)
{
	struct ds_reg_terms dt = {0};
	const struct ds_reg_traffic *tr = &dt.dt_traffic;

	ds_reg_terms(d, (uint32_t)r->hr_key, &dt);
	if (!tr->tr_ms || clock_mono_ms() - tr->tr_ms > DS_REG_TRAFFIC_MS)
		return;
	r->hr_ops = (float)tr->tr_ops_rate;
	r->hr_read = (float)tr->tr_read_rate;
	r->hr_written = (float)tr->tr_written_rate;
}

static int busier(const void *a, const void *b)
{
	float x = load_of(a), y = load_of(b);

	return x > y ? -1 : x < y;
}

/* A row for each data server that is busy by its own report or by that of clients: the latency that
 * clients report, and what the server does now. */
static struct heat_row *server_rows(struct admin *a, size_t *n)
{
	size_t told, known;
	struct heat_row *of = heat_rows(a->a_ops.ao_mds, HEAT_SERVER, false, &told),
			*rows = calloc(DS_REG_MAX, sizeof(*rows));
	struct ds_reg_server *sv = calloc(DS_REG_MAX, sizeof(*sv));

	*n = 0;
	known = rows && sv ? ds_reg_list(a->a_ops.ao_dsc, sv, DS_REG_MAX) : 0;
	for (size_t i = 0; i < known; i++) {
		struct heat_row *r = &rows[*n];
		bool idle;

		*r = (struct heat_row){.hr_key = sv[i].sv_id};
		for (size_t k = 0; of && k < told; k++)
			if (of[k].hr_key == sv[i].sv_id)
				*r = of[k];
		idle = load_of(r) < IDLE;
		server_now(a->a_ops.ao_dsc, r);
		if (!idle || load_of(r) >= IDLE)
			++*n;
	}
	if (*n)
		qsort(rows, *n, sizeof(*rows), busier);
	free(sv);
	free(of);
	return rows;
}

/* Frees the rows. */
static json_t *list_rows(struct names *n, enum heat_kind kind, struct heat_row *rows, size_t have,
			 bool heat, size_t most)
{
	static bool (*const name[HEAT_KINDS])(struct names *, const struct heat_row *, json_t *) = {
		name_client, name_server, name_inode, name_inode, name_export, name_tag};
	json_t *list = json_array();

	for (size_t i = 0; i < have && json_array_size(list) < most; i++) {
		const struct heat_row *r = &rows[i];
		json_t *o;

		if (heat ? r->hr_heat < 0.5f : kind != HEAT_SERVER && load_of(r) < IDLE)
			break;
		o = rates(r);
		if (o && name[kind](n, r, o))
			json_array_append_new(list, o);
		else
			json_decref(o);
	}
	free(rows);
	return list;
}

static json_t *busiest(struct names *n, enum heat_kind kind, bool heat, size_t most)
{
	size_t have;
	struct heat_row *rows = kind == HEAT_SERVER
					? server_rows(n->n_a, &have)
					: heat_rows(n->n_a->a_ops.ao_mds, kind, heat, &have);

	return list_rows(n, kind, rows, have, heat, most);
}

/* Returns the directory in `top` that is above this one or is it; top itself for top; 0: it is
 * elsewhere, or is gone. */
static uint64_t part_of(struct names *n, uint64_t ino, uint64_t top)
{
	struct ns_inode i;

	while (ino != top && n->n_budget) {
		n->n_budget--;
		if (ino == NS_ROOT_INO || ns_get(n->n_a->a_ops.ao_ns, n->n_txn, ino, &i) ||
		    i.i_type != NS_DIR)
			return 0;
		if (i.i_parent == top)
			return ino;
		ino = i.i_parent;
	}
	return ino == top ? top : 0;
}

/* What goes on in a directory itself, and below each directory in it. */
static json_t *busiest_below(struct names *n, uint64_t top, size_t most)
{
	size_t have, k = 0;
	struct heat_row *rows = heat_rows(n->n_a->a_ops.ao_mds, HEAT_DIR, false, &have);

	for (size_t i = 0; i < have; i++) {
		uint64_t part = part_of(n, rows[i].hr_key, top);

		if (!part)
			continue;
		rows[k] = rows[i];
		rows[k++].hr_key = part;
	}
	return list_rows(n, HEAT_DIR, rows, heat_merge(rows, k, false), false, most);
}

static bool names_begin(struct names *n, void *arg, struct http_reply *rp)
{
	int err;

	*n = (struct names){.n_a = arg, .n_budget = ENTRIES_MOST, .n_below = ""};
	err = kv_read_begin(ns_kv(n->n_a->a_ops.ao_ns), &n->n_txn);
	if (err)
		admin_reply_error(rp, 500, "%s", strerror(-err));
	return !err;
}

void admin_get_top(void *arg, const struct http_req *rq, struct http_reply *rp)
{
	int64_t most = admin_number_arg(rq, rp, "rows", 1, ROWS_MOST, 10);
	const char *path = http_arg(rq, "path");
	struct ns_inode i;
	struct names n;
	json_t *j;

	if (most < 0 || (path && !admin_inode_arg(arg, rq, rp, &i)))
		return;
	if (path && i.i_type != NS_DIR) {
		admin_reply_error(rp, 400, "%s: not a directory", path);
		return;
	}
	if (!names_begin(&n, arg, rp))
		return;
	j = json_pack("{s:i, s:o, s:o, s:o, s:o, s:o}", "half_life", HEAT_FAST_S, "tags",
		      busiest(&n, HEAT_TAG, false, (size_t)most), "clients",
		      busiest(&n, HEAT_CLIENT, false, (size_t)most), "servers",
		      busiest(&n, HEAT_SERVER, false, (size_t)most), "exports",
		      busiest(&n, HEAT_EXPORT, false, (size_t)most), "directories",
		      path ? busiest_below(&n, i.i_ino, (size_t)most)
			   : busiest(&n, HEAT_DIR, false, (size_t)most));
	kv_read_end(n.n_txn);
	admin_reply_json(rp, 200, j);
}

void admin_get_heat(void *arg, const struct http_req *rq, struct http_reply *rp)
{
	int64_t most = admin_number_arg(rq, rp, "rows", 1, ROWS_MOST, 20);
	struct ns_inode i;
	struct names n;
	json_t *j;

	if (most < 0 || (http_arg(rq, "path") && !admin_inode_arg(arg, rq, rp, &i)) ||
	    !names_begin(&n, arg, rp))
		return;
	if (http_arg(rq, "path") && i.i_ino != NS_ROOT_INO)
		n.n_below = http_arg(rq, "path");
	j = json_pack("{s:i, s:o, s:o}", "half_life", HEAT_SLOW_S, "directories",
		      busiest(&n, HEAT_DIR, true, (size_t)most), "files",
		      busiest(&n, HEAT_FILE, true, (size_t)most));
	kv_read_end(n.n_txn);
	admin_reply_json(rp, 200, j);
}

json_t *admin_hot_directories(struct admin *a, size_t most)
{
	struct names n = {.n_a = a, .n_budget = ENTRIES_MOST, .n_below = ""};
	json_t *list;

	if (kv_read_begin(ns_kv(a->a_ops.ao_ns), &n.n_txn))
		return json_array();
	list = busiest(&n, HEAT_DIR, true, most);
	kv_read_end(n.n_txn);
	return list;
}
