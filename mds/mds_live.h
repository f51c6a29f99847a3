/* SPDX-License-Identifier: Apache-2.0 */
/* mds_live.h - the keys of weft-mds that change while it runs (common/live.h). */
#ifndef MDS_MDS_LIVE_H
#define MDS_MDS_LIVE_H
#include "common/live.h"
#include "mds/mds.h"

/* After the jobs are open, before the API and the loops run. All arguments must stay. 0 or
 * -ENOMEM. */
int mds_live_open(struct live **out, struct mds *m, struct conf *c, const char *path,
		  const char *const *sets, unsigned nsets);
/* Puts mds.io_error_after and mds.ds_unreached into m, also at start. */
void mds_live_times(void *m, const struct conf *c);
#endif
