/* SPDX-License-Identifier: Apache-2.0 */
/* restripe.h - restripe: gives a file other stripes or another stripe unit while clients read and
 * write it (docs/restripe.md). There is one file at a time; the files that wait are in the store
 * (mds/layout/pending_layout.h). */
#ifndef MDS_OP_RESTRIPE_H
#define MDS_OP_RESTRIPE_H
#include "mds/jobs/job_work.h"
#include "mds/layout/pending_layout.h"
#include "mds/mds.h"

/* Call it before the loops run. 0 or -errno. */
int job_restripe_open(struct mds *m, struct loop *loop);
/* Call it often, always on that loop. */
void job_restripe_tick(struct mds *m);

struct job_restripe_view {
	/* wp_done: bytes of the file, in the first round; wp_copied: in all rounds */
	struct job_progress rsv_progress;
	unsigned rsv_round, rsv_restarts;
	uint8_t rsv_number; /* as tw_number; valid when wp_size is */
};
/* Any thread. */
void job_restripe_look(struct mds *m, struct job_restripe_view *out);
#endif
