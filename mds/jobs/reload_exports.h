/* SPDX-License-Identifier: Apache-2.0 */
/* reload_exports.h - recalls layouts and delegations that were granted under exports which have
 * changed. */
#ifndef MDS_RELOAD_EXPORTS_H
#define MDS_RELOAD_EXPORTS_H
#include "mds/mds.h"

/* The number of the export in a file handle of this server. */
typedef uint16_t job_export_of(const uint8_t *fh, uint32_t len);
/* The table now has taken the place of old. Any thread; loop does the work. Returns the number of
 * the pass that follows (revoke_exports.h). */
uint64_t job_exports_changed(struct mds *m, struct loop *loop, const struct exp_table *old,
			     const struct exp_table *now, job_export_of *of);
#endif
