/* SPDX-License-Identifier: Apache-2.0 */
/* mds_store.h - the store of weft-mds: what must be right before it is opened, and its opening. */
#ifndef MDS_MDS_STORE_H
#define MDS_MDS_STORE_H
#include "mds/mds.h"

struct conf;

/* Opens m_kv and m_ns. restoring: weft-mds --restored makes the store fit for service. Blocks while
 * the sums of an older store are computed, which systemd hears of. 0; or -errno and a line in err.
 */
int mds_store_open(struct mds *m, const struct conf *conf, bool restoring, char *err,
		   size_t errlen);
/* --restored has made the store whole: the next start needs no --restored. 0; or -errno and a line
 * in err. */
int mds_store_whole(const struct conf *conf, char *err, size_t errlen);
#endif
