/* SPDX-License-Identifier: Apache-2.0 */
/* mds_settings.c - what struct mds and the state keep of the configuration from its start on. */
#include "mds/mds_settings.h"
#include "base/conf.h"
#include "mds/mds_live.h"
#include "mds/nfs4/op.h"
#include "mds/nfs4/op_state.h"
#include <errno.h>
#include <string.h>

static void settings_limits(struct op_limits *lm, const struct conf *conf)
{
	lm->lm_conns.rm_max = (uint32_t)conf_int(conf, "mds.connections");
	lm->lm_conns.rm_max_addr = (uint32_t)conf_int(conf, "mds.connections_of_address");
	lm->lm_clients = (uint32_t)conf_int(conf, "mds.clients");
	lm->lm_clients_addr = (uint32_t)conf_int(conf, "mds.clients_of_address");
	for (unsigned i = 0; i < OP_SCOPES; i++) {
		static const char *const opens[OP_SCOPES] = {"mds.opens_of_client",
							     "mds.opens_of_address", "mds.opens"};
		static const char *const locks[OP_SCOPES] = {"mds.locks_of_client",
							     "mds.locks_of_address", "mds.locks"};
		static const char *const layouts[OP_SCOPES] = {
			"mds.layouts_of_client", "mds.layouts_of_address", "mds.layouts"};

		lm->lm_opens[i] = (uint32_t)conf_int(conf, opens[i]);
		lm->lm_locks[i] = (uint32_t)conf_int(conf, locks[i]);
		lm->lm_layouts[i] = (uint32_t)conf_int(conf, layouts[i]);
	}
}

void mds_settings_state(struct st *st, const struct op_limits *lm)
{
	st_set_quota_portion(st, ST_N_OPENS, lm->lm_opens[OP_OF_CLIENT], lm->lm_opens[OP_OF_ADDR],
			     lm->lm_opens[OP_OF_ALL]);
	st_set_quota_portion(st, ST_N_LOCKS, lm->lm_locks[OP_OF_CLIENT], lm->lm_locks[OP_OF_ADDR],
			     lm->lm_locks[OP_OF_ALL]);
	st_set_quota_portion(st, ST_N_RANGES, lm->lm_locks[OP_OF_CLIENT], lm->lm_locks[OP_OF_ADDR],
			     lm->lm_locks[OP_OF_ALL]);
	st_set_quota_portion(st, ST_N_LAYOUTS, lm->lm_layouts[OP_OF_CLIENT],
			     lm->lm_layouts[OP_OF_ADDR], lm->lm_layouts[OP_OF_ALL]);
	st_set_quota_portion(st, ST_N_DELEGS, UINT32_MAX, UINT32_MAX, st->st_max_delegs);
}

int mds_settings(struct mds *m, const struct conf *conf)
{
	const char *size = conf_str(conf, "mds.size_from_ds");
	const char *deleg = conf_str(conf, "mds.delegations");

	m->m_lease_ms = (uint32_t)conf_msec(conf, "mds.lease");
	m->m_ds_lease_ms = (uint32_t)conf_msec(conf, "ds.lease");
	m->m_room_ms = m->m_lease_ms > m->m_ds_lease_ms ? m->m_lease_ms : m->m_ds_lease_ms;
	m->m_recall_ms = (uint32_t)conf_msec(conf, "mds.recall_deadline");
	mds_live_times(m, conf);
	m->m_return_on_close = conf_bool(conf, "mds.return_on_close");
	m->m_striping = strdup(conf_str(conf, "mds.striping_clients"));
	if (!m->m_striping)
		return -ENOMEM;
	m->m_file.fe_size_mode = strcmp(size, "always") == 0  ? OP_SIZE_ALWAYS
				 : strcmp(size, "never") == 0 ? OP_SIZE_NEVER
							      : OP_SIZE_LAYOUT;
	m->m_delegations = strcmp(deleg, "none") == 0	? OP_DELEG_NONE
			   : strcmp(deleg, "read") == 0 ? OP_DELEG_READ
							: OP_DELEG_WRITE;
	m->m_deleg_times = conf_bool(conf, "mds.delegated_times");
	settings_limits(&m->m_limits, conf);
	return 0;
}
