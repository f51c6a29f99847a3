/* SPDX-License-Identifier: Apache-2.0 */
/*
 * admin_metrics_use.c - metrics by client and by export. There is a series for each of the
 * USE_CLIENTS clients that did most lately, and one, "other", for all the others.
 *
 * A client's series shows what the client has done since it got the series, or all if it was never
 * among the others. So the sum over all series rises as the work does, and what a client did is in
 * one series only.
 */
#include "base/metrics.h"
#include "mds/admin/admin_holders.h"
#include "mds/jobs/heat.h"
#include <stdlib.h>

#define USE_CLIENTS 64u
#define USE_LABEL   400

/* A client, as of the last rendering. */
struct use_client {
	struct heat_sum u_last;
	uint64_t u_shown[3];
	bool u_listed;
	char u_label[USE_LABEL];
};

/* Renderings come one at a time (metrics.h). */
static struct {
	struct admin *u_admin;
	struct use_client *u_client;
	size_t u_nclients;
	uint64_t u_given[3]; /* all that client series ever showed */
	uint64_t u_other[3];
} use;

static int by_last_heat(const void *a, const void *b)
{
	const struct use_client *x = a, *y = b;

	return x->u_last.hs_heat > y->u_last.hs_heat ? -1 : x->u_last.hs_heat < y->u_last.hs_heat;
}

static const struct use_client *client_before(uint64_t key)
{
	for (size_t i = 0; i < use.u_nclients; i++)
		if (use.u_client[i].u_last.hs_key == key)
			return &use.u_client[i];
	return NULL;
}

/* False: the client is gone. */
static bool client_label(struct use_client *u)
{
	struct st_client_view v;
	json_t *name;
	char number[24];
	size_t n;

	if (!st_client_view(use.u_admin->a_ops.ao_mds->m_st, u->u_last.hs_key, &v))
		return false;
	name = admin_client_name(&v);
	n = metric_label(u->u_label, USE_LABEL - 64, "client",
			 name && json_string_value(name) ? json_string_value(name) : "");
	json_decref(name);
	snprintf(number, sizeof(number), "%u", v.cv_number);
	u->u_label[n++] = ',';
	metric_label(u->u_label + n, USE_LABEL - n, "id", number);
	return true;
}

/* The client did so much since the last rendering. A sum that fell lost the cell of one thread:
 * what was done meanwhile counts as "other". */
static void client_more(struct use_client *u, const struct use_client *was)
{
	for (unsigned i = 0; i < 3; i++) {
		uint64_t now = u->u_last.hs_n[i], last = was ? was->u_last.hs_n[i] : 0,
			 more = now < last ? 0 : now - last;

		u->u_shown[i] = was ? was->u_shown[i] : 0;
		if (!u->u_listed)
			continue;
		u->u_shown[i] += more;
		use.u_given[i] += more;
	}
}

static void use_look(void *arg)
{
	struct admin *a = arg;
	uint64_t all[3];
	size_t n, listed = 0;
	struct heat_sum *sums = heat_sums(a->a_ops.ao_mds, &n, all);
	struct use_client *now = calloc(n ? n : 1, sizeof(*now));

	for (size_t i = 0; now && i < n; i++)
		now[i].u_last = sums[i];
	if (now && n)
		qsort(now, n, sizeof(*now), by_last_heat);
	for (size_t i = 0; now && i < n; i++) {
		now[i].u_listed = listed < USE_CLIENTS && client_label(&now[i]);
		listed += now[i].u_listed;
		client_more(&now[i], client_before(now[i].u_last.hs_key));
	}
	if (now) {
		free(use.u_client);
		use.u_client = now;
		use.u_nclients = n;
	}
	for (unsigned i = 0; i < 3; i++)
		if (all[i] > use.u_given[i] && all[i] - use.u_given[i] > use.u_other[i])
			use.u_other[i] = all[i] - use.u_given[i];
	free(sums);
}

static void put_bytes(struct metric_out *o, const char *label, const uint64_t n[3])
{
	static const char *const dirs[] = {"", "read", "write"};
	char labels[USE_LABEL + 16];

	for (unsigned i = 1; i < 3; i++) {
		snprintf(labels, sizeof(labels), "%s,dir=\"%s\"", label, dirs[i]);
		metric_put(o, labels, (double)n[i]);
	}
}

#define USE_OTHER "client=\"other\",id=\"0\""

static void client_ops(struct metric_out *o, void *arg)
{
	(void)arg;
	for (size_t i = 0; i < use.u_nclients; i++)
		if (use.u_client[i].u_listed)
			metric_put(o, use.u_client[i].u_label, (double)use.u_client[i].u_shown[0]);
	metric_put(o, USE_OTHER, (double)use.u_other[0]);
}

static void client_bytes(struct metric_out *o, void *arg)
{
	(void)arg;
	for (size_t i = 0; i < use.u_nclients; i++)
		if (use.u_client[i].u_listed)
			put_bytes(o, use.u_client[i].u_label, use.u_client[i].u_shown);
	put_bytes(o, USE_OTHER, use.u_other);
}

/* ---- exports ---- */

static void export_sums(unsigned slot, uint64_t sum[3])
{
	struct mds *m = use.u_admin->a_ops.ao_mds;

	memset(sum, 0, 3 * sizeof(*sum));
	for (unsigned t = 0; t < m->m_nthreads; t++)
		for (unsigned i = 0; i < 3; i++)
			sum[i] += atomic_load_explicit(&m->m_thread[t].mt_export[slot][i],
						       memory_order_relaxed);
}

/* Calls put for each export that has been used. */
static void exports_each(struct metric_out *o,
			 void (*put)(struct metric_out *o, const char *label, const uint64_t n[3]))
{
	struct exp_table *t = export_set_get(use.u_admin->a_ops.ao_exports);

	for (unsigned slot = 1; slot < EXP_SLOTS; slot++) {
		int id = export_slot_id(slot);
		const struct exp *e = id >= 0 ? exp_by_id(t, (uint16_t)id) : NULL;
		char label[USE_LABEL];
		uint64_t n[3];

		if (!e && slot != EXP_SLOTS - 1)
			continue;
		export_sums(slot, n);
		metric_label(label, sizeof(label), "export", e ? e->e_path : "other");
		put(o, label, n);
	}
	exp_put(t);
}

static void put_ops(struct metric_out *o, const char *label, const uint64_t n[3])
{
	metric_put(o, label, (double)n[0]);
}

static void export_ops(struct metric_out *o, void *arg)
{
	(void)arg;
	exports_each(o, put_ops);
}

static void export_bytes(struct metric_out *o, void *arg)
{
	(void)arg;
	exports_each(o, put_bytes);
}

void admin_metrics_use_init(struct admin *a)
{
	use.u_admin = a;
	metric_before(use_look, a);
	metric_family("weft_mds_client_operations_total",
		      "NFSv4 operations of a client; \"other\" is all but the 64 busiest.",
		      client_ops, NULL);
	metric_family("weft_mds_client_bytes_total",
		      "Bytes that a client read and wrote, through this server or, as it reports, "
		      "at data servers.",
		      client_bytes, NULL);
	metric_family("weft_mds_export_operations_total", "NFSv4 operations in an export.",
		      export_ops, NULL);
	metric_family("weft_mds_export_bytes_total",
		      "Bytes that clients read and wrote in an export, through this server or, as "
		      "they report, at data servers.",
		      export_bytes, NULL);
}
