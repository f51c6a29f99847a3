/* SPDX-License-Identifier: Apache-2.0 */
/*
 * admin_metrics.c - metrics that are read from the parts of the server when somebody asks for
 * them: its state, its store, and the data servers as it sees them.
 */
#include "base/metrics.h"
#include "mds/admin/admin_holders.h"
#include "mds/admin/admin_tag.h"
#include "mds/namespace/ns_trash.h"
#include "mds/jobs/scrub.h"
#include "proto/rpc_tls.h"
#include <stdlib.h>
#include <sys/statvfs.h>

/* What one rendering shows. Renderings come one at a time (metrics.h). */
static struct {
	struct admin *m_admin;
	struct admin_counts m_counts;
	struct ns_counts m_names;
	struct ns_trash_sums m_trash;
	struct kv_stats m_kv;
	struct job_scrub_state m_scrub;
	struct ds_reg_server *m_ds;
	unsigned m_nds;
} now;

static void metrics_look(void *arg)
{
	struct admin *a = arg;
	struct ns *ns = a->a_ops.ao_ns;
	struct kv_txn *t;

	a->a_ops.ao_counts(a->a_ops.ao_arg, &now.m_counts);
	kv_stats(ns_kv(ns), &now.m_kv);
	if (!kv_read_begin(ns_kv(ns), &t)) {
		ns_counts(ns, t, &now.m_names);
		ns_trash_sums(t, &now.m_trash);
		kv_read_end(t);
	}
	job_scrub_look(a->a_ops.ao_mds, &now.m_scrub);
	if (!now.m_ds)
		now.m_ds = calloc(DS_REG_MAX, sizeof(*now.m_ds));
	now.m_nds = now.m_ds ? ds_reg_list(a->a_ops.ao_dsc, now.m_ds, DS_REG_MAX) : 0;
}

/* ---- data servers ---- */

#define DS_LABELS 160

/* Two servers may have one name: the number tells them apart. */
static size_t ds_labels(const struct ds_reg_server *sv, char out[DS_LABELS])
{
	char id[16];
	size_t n = metric_label(out, DS_LABELS, "ds", sv->sv_name);

	snprintf(id, sizeof(id), "%u", sv->sv_id);
	out[n++] = ',';
	return n + metric_label(out + n, DS_LABELS - n, "id", id);
}

static void ds_states(struct metric_out *o, void *arg)
{
	(void)arg;
	for (unsigned i = 0; i < now.m_nds; i++)
		for (unsigned s = 0; s < DS_REG_STATES; s++) {
			char labels[DS_LABELS];
			size_t n = ds_labels(&now.m_ds[i], labels);

			labels[n++] = ',';
			metric_label(labels + n, DS_LABELS - n, "state",
				     ds_reg_state_text((enum ds_reg_state)s));
			metric_put(o, labels, now.m_ds[i].sv_state == s);
		}
}

/* What a family shows of each server. */
enum ds_shows {
	DS_UP,
	DS_CAPACITY,
	DS_AVAILABLE,
	DS_LOAD,
	DS_LATENCY,
	DS_WEIGHT,
	DS_DRAINING,
	DS_ORDERS_AGE,
	DS_READ,
	DS_WRITTEN,
	DS_OPS,
	DS_SHOWS
};
static const struct {
	const char *name, *help;
} ds_family[DS_SHOWS] = {
	[DS_UP] = {"weft_mds_ds_up", "1 while the data server reports within its lease."},
	[DS_CAPACITY] = {"weft_mds_ds_capacity_bytes", "Size of the data server's store."},
	[DS_AVAILABLE] = {"weft_mds_ds_free_bytes", "Room left in the data server's store."},
	[DS_LOAD] = {"weft_mds_ds_load",
		     "NFS requests in progress at the data server, on average, lately."},
	[DS_LATENCY] = {"weft_mds_ds_latency_seconds",
			"How long clients lately waited for a read of 64 KiB; absent if none "
			"reported it."},
	[DS_WEIGHT] = {"weft_mds_ds_weight", "The administrator's weight; 0: no new objects."},
	[DS_DRAINING] = {"weft_mds_ds_draining", "1 while the data server is being drained."},
	[DS_ORDERS_AGE] = {"weft_mds_ds_oldest_order_seconds",
			   "How long the oldest order to the data server has been waiting; 0: "
			   "there is none."},
	[DS_READ] = {"weft_mds_ds_read_bytes_total",
		     "Bytes that the data server sent for READs, as it reports."},
	[DS_WRITTEN] = {"weft_mds_ds_written_bytes_total",
			"Bytes that the data server took for WRITEs, as it reports."},
	[DS_OPS] = {"weft_mds_ds_operations_total",
		    "NFS requests of the data server, as it reports."},
};

/* The value; negative: it is not known. */
static double ds_value(enum ds_shows what, const struct ds_reg_server *sv,
		       const struct ds_reg_terms *dt)
{
	switch (what) {
	case DS_UP:
		return sv->sv_alive;
	case DS_CAPACITY:
		return (double)sv->sv_capacity;
	case DS_AVAILABLE:
		return (double)sv->sv_available;
	case DS_LOAD:
		return dt->dt_load / 100.0;
	case DS_LATENCY:
		return dt->dt_latency ? dt->dt_latency / 1e6 : -1;
	case DS_WEIGHT:
		return (double)dt->dt_weight / DS_REG_WEIGHT_ONE;
	case DS_DRAINING:
		return dt->dt_draining;
	case DS_ORDERS_AGE:
		return (double)lo_orders_age(now.m_admin->a_ops.ao_lo, sv->sv_id) / 1000;
	case DS_READ:
		return dt->dt_traffic.tr_ms ? (double)dt->dt_traffic.tr_read : -1;
	case DS_WRITTEN:
		return dt->dt_traffic.tr_ms ? (double)dt->dt_traffic.tr_written : -1;
	case DS_OPS:
		return dt->dt_traffic.tr_ms ? (double)dt->dt_traffic.tr_ops : -1;
	case DS_SHOWS:
		break;
	}
	return -1;
}

static void ds_each(struct metric_out *o, void *arg)
{
	enum ds_shows what = (enum ds_shows)(uintptr_t)arg;

	for (unsigned i = 0; i < now.m_nds; i++) {
		struct ds_reg_terms dt = {0};
		char labels[DS_LABELS];
		double v;

		ds_reg_terms(now.m_admin->a_ops.ao_dsc, now.m_ds[i].sv_id, &dt);
		v = ds_value(what, &now.m_ds[i], &dt);
		ds_labels(&now.m_ds[i], labels);
		if (v >= 0)
			metric_put(o, labels, v);
	}
}

/* ---- the server ---- */

static double of_counts(void *arg)
{
	return (double)*(const uint64_t *)arg;
}

static double opens_gauge(void *arg)
{
	(void)arg;
	return (double)(now.m_counts.ac_opens - now.m_counts.ac_delegs);
}

static double grace_gauge(void *arg)
{
	(void)arg;
	return now.m_counts.ac_grace;
}

static double serving_gauge(void *arg)
{
	(void)arg;
	return atomic_load(&now.m_admin->a_ops.ao_mds->m_serving);
}

static double store_free_gauge(void *arg)
{
	struct statvfs v;

	(void)arg;
	if (statvfs(now.m_admin->a_ops.ao_store, &v))
		return 0;
	return (double)v.f_bavail * (double)v.f_frsize;
}

static double oldest_order_gauge(void *arg)
{
	uint64_t oldest = 0;

	(void)arg;
	for (unsigned i = 0; i < now.m_nds; i++) {
		uint64_t age = lo_orders_age(now.m_admin->a_ops.ao_lo, now.m_ds[i].sv_id);

		oldest = age > oldest ? age : oldest;
	}
	return (double)oldest / 1000;
}

/* ---- what may not be there yet ---- */

static void scrub_end(struct metric_out *o, void *arg)
{
	(void)arg;
	if (now.m_scrub.ss_ended_s)
		metric_put(o, "", (double)now.m_scrub.ss_ended_s);
}

static void scrub_findings(struct metric_out *o, void *arg)
{
	uint64_t found = 0;

	(void)arg;
	for (unsigned k = 1; k < JOB_SCRUB_KINDS; k++)
		found += now.m_scrub.ss_counts[k];
	if (now.m_scrub.ss_number)
		metric_put(o, "", (double)found);
}

static void scrub_stopped(struct metric_out *o, void *arg)
{
	(void)arg;
	if (now.m_scrub.ss_number)
		metric_put(o, "", now.m_scrub.ss_stopped);
}

static void admin_metrics_certificate_end(struct metric_out *o, void *arg)
{
	int64_t end = rpc_tls_cert_end(now.m_admin->a_ops.ao_tls);

	(void)arg;
	if (end)
		metric_put(o, "", (double)end);
}

static void metrics_counts(void)
{
	metric_gauge("weft_mds_clients", "Clients known.", "", of_counts, &now.m_counts.ac_clients);
	metric_gauge("weft_mds_sessions", "Sessions.", "", of_counts, &now.m_counts.ac_sessions);
	metric_gauge("weft_mds_opens", "Opens of files by clients.", "", opens_gauge, NULL);
	metric_gauge("weft_mds_locks", "Ranges locked by clients.", "", of_counts,
		     &now.m_counts.ac_locks);
	metric_gauge("weft_mds_layouts", "Layouts that clients have.", "", of_counts,
		     &now.m_counts.ac_layouts);
	metric_gauge("weft_mds_delegations", "Delegations that clients have.", "", of_counts,
		     &now.m_counts.ac_delegs);
	metric_gauge("weft_mds_inodes", "Inodes in the store.", "", of_counts,
		     &now.m_names.nct_inodes);
	metric_gauge("weft_mds_trash_entries",
		     "Files, directories and symbolic links in the trash.", "", of_counts,
		     &now.m_trash.ts_entries);
	metric_gauge("weft_mds_trash_bytes",
		     "Room that what is in the trash took when it was removed.", "", of_counts,
		     &now.m_trash.ts_bytes);
	metric_gauge("weft_mds_store_used_bytes", "The most that the store has held.", "",
		     of_counts, &now.m_kv.ks_bytes_used);
	metric_gauge("weft_mds_store_free_bytes", "Room left in the store's file system.", "",
		     store_free_gauge, NULL);
	metric_gauge("weft_mds_grace", "1 while clients reclaim what they had before a restart.",
		     "", grace_gauge, NULL);
	metric_gauge("weft_mds_serving", "0 while the server waits for data servers.", "",
		     serving_gauge, NULL);
	metric_gauge("weft_mds_oldest_order_seconds",
		     "How long the oldest order to a data server has been waiting; 0: there is "
		     "none.",
		     "", oldest_order_gauge, NULL);
}

void admin_metrics_init(struct admin *a)
{
	now.m_admin = a;
	metric_before(metrics_look, a);
	metrics_counts();
	admin_metrics_use_init(a);
	admin_tag_metrics_init(a);
	metric_family("weft_mds_ds_state",
		      "1 for the state of the data server, 0 for its other states.", ds_states,
		      NULL);
	for (uintptr_t i = 0; i < DS_SHOWS; i++)
		metric_family(ds_family[i].name, ds_family[i].help, ds_each, (void *)i);
	metric_family("weft_mds_scrub_end_timestamp_seconds",
		      "When the last scrub ended, in seconds since 1970; absent if none has.",
		      scrub_end, NULL);
	metric_family("weft_mds_scrub_findings", "What the last scrub has found.", scrub_findings,
		      NULL);
	metric_family("weft_mds_scrub_stopped", "1 if the last scrub was stopped before its end.",
		      scrub_stopped, NULL);
	metric_family("weft_mds_certificate_end_timestamp_seconds",
		      "When the certificate ends, in seconds since 1970; absent without TLS.",
		      admin_metrics_certificate_end, NULL);
}
