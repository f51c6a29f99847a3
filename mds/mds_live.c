/* SPDX-License-Identifier: Apache-2.0 */
/* mds_live.c - see mds_live.h. */
#include "mds/mds_live.h"
#include "base/log.h"
#include "mds/journal/event_journal.h"
#include "mds/jobs/balance.h"
#include "mds/jobs/repair.h"
#include "mds/jobs/scrub.h"

static void mds_live_log(void *arg, const struct conf *c)
{
	(void)arg;
	log_set_level_name(conf_str(c, "log.level"));
}

static void live_repair(void *arg, const struct conf *c)
{
	job_repair_set_opts(arg, &(struct job_repair_opts){
					 .ro_files = (unsigned)conf_int(c, "mds.repair_files"),
					 .ro_rate = conf_size(c, "mds.repair_rate"),
					 .ro_wait_ms = (uint32_t)conf_msec(c, "mds.repair_wait"),
				 });
}

static void live_balance(void *arg, const struct conf *c)
{
	job_balance_set_again(arg, (uint64_t)conf_msec(c, "mds.balance_again"));
}

static void live_scrub(void *arg, const struct conf *c)
{
	job_scrub_set_delay(arg, (uint32_t)conf_msec(c, "mds.scrub_delay"));
}

static void mds_live_connections(void *arg, const struct conf *c)
{
	struct mds *m = arg;

	rpc_limit_set(&m->m_limits.lm_conns, (uint32_t)conf_int(c, "mds.connections"),
		      (uint32_t)conf_int(c, "mds.connections_of_address"));
}

void mds_live_times(void *arg, const struct conf *c)
{
	struct mds *m = arg;
	uint64_t gone = (uint64_t)conf_msec(c, "mds.io_error_after");

	atomic_store_explicit(&m->m_gone_ms, gone ? gone : DS_REG_GONE, memory_order_relaxed);
	atomic_store_explicit(&m->m_unreached_ms, (uint32_t)conf_msec(c, "mds.ds_unreached"),
			      memory_order_relaxed);
}

static const struct live_key keys[] = {
	{"log.level", mds_live_log},
	{"mds.repair_files", live_repair},
	{"mds.repair_rate", live_repair},
	{"mds.repair_wait", live_repair},
	{"mds.balance_again", live_balance},
	{"mds.scrub_delay", live_scrub},
	{"mds.io_error_after", mds_live_times},
	{"mds.ds_unreached", mds_live_times},
	{"mds.connections", mds_live_connections},
	{"mds.connections_of_address", mds_live_connections},
};

static void live_changed(void *arg, const char *key, const char *value, enum conf_from from)
{
	(void)arg;
	journal_add(EV_CONFIG_CHANGED, "", 0, "%s is %s%s", key, value,
		    from == CONF_FROM_LIVE ? ", until weft-mds starts again or reads its file"
					   : "");
}

int mds_live_open(struct live **out, struct mds *m, struct conf *c, const char *path,
		  const char *const *sets, unsigned nsets)
{
	return live_open(out, &(struct live_opts){
				      .lv_conf = c,
				      .lv_path = path,
				      .lv_sets = sets,
				      .lv_nsets = nsets,
				      .lv_daemon = "mds",
				      .lv_keys = keys,
				      .lv_nkeys = sizeof(keys) / sizeof(keys[0]),
				      .lv_changed = live_changed,
				      .lv_arg = m,
			      });
}
