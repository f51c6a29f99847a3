/* SPDX-License-Identifier: Apache-2.0 */
/* mds_gauges.c - metrics of the process, of the store, and of the memory that sessions take. */
#include "mds/mds_gauges.h"
#include "base/metrics.h"
#include "common/version.h"
#include "kv/kv_redo.h"
#include "mds/mds_log.h"
#include "mds/state/st.h"

static double gauge_commits(void *arg)
{
	struct kv_stats s;

	kv_stats(arg, &s);
	return (double)s.ks_commits;
}

static double gauge_checkpoints(void *arg)
{
	struct kv_stats st;

	kv_stats(arg, &st);
	return (double)st.ks_checkpoints;
}

static double gauge_log_waits(void *arg)
{
	struct kv_stats st;

	kv_stats(arg, &st);
	return (double)st.ks_log_waits;
}

static double gauge_kv_ops(void *arg)
{
	struct kv_stats s;

	kv_stats(arg, &s);
	return (double)s.ks_ops;
}

static double gauge_slots(void *arg)
{
	struct mds *m = arg;

	return (double)atomic_load(&m->m_st->st_nslots);
}

static double gauge_kept(void *arg)
{
	struct mds *m = arg;

	return (double)atomic_load(&m->m_st->st_kept);
}

static double gauge_log_up(void *arg)
{
	struct mds *m = arg;
	struct kv_redo_state st;

	kv_redo_state(m->m_kv, &st);
	return st.rs_up;
}

static double gauge_held(void *arg)
{
	struct mds *m = arg;

	return store_lease_live(&m->m_store_lease);
}

static double gauge_etcd_asked(void *arg)
{
	uint64_t asked, unasked;

	(void)arg;
	mds_log_etcd(&asked, &unasked);
	return (double)asked;
}

static double gauge_etcd_failed(void *arg)
{
	uint64_t asked, unasked;

	(void)arg;
	mds_log_etcd(&asked, &unasked);
	return (double)unasked;
}

static void lease_gauges(struct mds *m)
{
	metric_gauge("weft_mds_log_up", "1 if the log of the store takes changes", "", gauge_log_up,
		     m);
	metric_gauge("weft_mds_store_held", "1 while this process holds the store and answers", "",
		     gauge_held, m);
	metric_counter_of("weft_mds_etcd_requests_total", "Questions to etcd about the lease", "",
			  gauge_etcd_asked, m);
	metric_counter_of("weft_mds_etcd_failures_total",
			  "Questions to etcd that had no answer, or a late one", "",
			  gauge_etcd_failed, m);
}

void mds_gauges(struct mds *m)
{
	lease_gauges(m);
	version_metric();
	metric_counter_of("weft_mds_kv_commits_total", "Commits of the store since start", "",
			  gauge_commits, m->m_kv);
	metric_counter_of("weft_mds_kv_checkpoints_total", "Checkpoints of the store since start",
			  "", gauge_checkpoints, m->m_kv);
	metric_counter_of("weft_mds_kv_log_waits_total",
			  "Times that a commit waited for a checkpoint, the log being full", "",
			  gauge_log_waits, m->m_kv);
	metric_gauge("weft_mds_slots", "Slots of sessions in use", "", gauge_slots, m);
	metric_gauge("weft_mds_kept_bytes", "Memory of slots and of replies kept for retries", "",
		     gauge_kept, m);
	metric_counter_of("weft_mds_kv_ops_total", "Mutations of the store since start", "",
			  gauge_kv_ops, m->m_kv);
}
