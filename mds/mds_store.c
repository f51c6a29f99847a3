/* SPDX-License-Identifier: Apache-2.0 */
/* mds_store.c - opens the store (mds_store.h). */
#include "mds/mds_store.h"
#include "base/conf.h"
#include "base/log.h"
#include "common/check.h"
#include "mds/identity.h"
#include "mds/mds_log.h"
#include "mds/layout/lo.h"
#include "mds/namespace/ns_sum.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

/* weft restore makes this file. The store must not serve before --restored has made it whole. */
static void mark_path(const struct conf *conf, char path[4096])
{
	snprintf(path, 4096, "%s/restored", conf_str(conf, "mds.store"));
}

int mds_store_whole(const struct conf *conf, char *err, size_t errlen)
{
	char path[4096];

	mark_path(conf, path);
	if (!unlink(path) || errno == ENOENT)
		return 0;
	snprintf(err, errlen, "%s: %s", path, strerror(errno));
	return -errno;
}

/* An old store gets its sums before anything is served: that may take longer than systemd waits. */
static void on_counting(const char *line)
{
	log_info("%s", line);
	sd_notifyf(0, "EXTEND_TIMEOUT_USEC=120000000\nSTATUS=%s", line);
}

int mds_store_open(struct mds *m, const struct conf *conf, bool restoring, char *err, size_t errlen)
{
	/* What is to be made fit for service is there. */
	struct kv_opts opts = {.ko_create = !restoring,
			       .ko_nosync = !conf_bool(conf, "mds.sync"),
			       .ko_archive = (int64_t)conf_size(conf, "mds.backup_log"),
			       /* What backups had before is another line of time. */
			       .ko_archive_new = restoring};
	const char *store = conf_str(conf, "mds.store"), *hint;
	struct ns_identity id;
	char path[4096];
	size_t len;
	int rc;

	if (!opts.ko_archive)
		opts.ko_archive = -1;
	rc = mds_identity_conf(conf, &id, err, errlen);
	if (rc)
		return rc;
	mark_path(conf, path);
	if (!restoring && !access(path, F_OK)) {
		snprintf(err, errlen,
			 "%s: this store was put back from a backup: start weft-mds once with "
			 "--restored",
			 store);
		return -EINVAL;
	}
	if (mds_log_elsewhere(conf)) {
		id.id_fs = mds_log_instance(conf);
		rc = mds_log_open(m, conf, &id, restoring, &opts, err, errlen);
	} else {
		rc = kv_open(&m->m_kv, store, &opts, err, errlen);
	}
	if (rc) {
		hint = check_hint(rc, store);
		len = strlen(err);
		snprintf(err + len, errlen - len, "%s", hint);
	} else {
		ns_sum_set_copies(lo_map_copies);
		ns_sum_set_say(on_counting);
		rc = ns_open_as(&m->m_ns, m->m_kv, &id, err, errlen);
	}
	if (rc && mds_log_elsewhere(conf))
		mds_log_give_up(m);
	return rc;
}
