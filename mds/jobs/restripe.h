/* SPDX-License-Identifier: Apache-2.0 */
/* restripe.h - restripe: gives a file other stripes or another stripe unit while clients read and
 * write it (docs/restripe.md). There is one file at a time; the files that wait are in the store
 * (mds/layout/pending_layout.h). */
#ifndef MDS_OP_RESTRIPE_H
#define MDS_OP_RESTRIPE_H
#include "mds/layout/pending_layout.h"
#include "mds/mds.h"

/* Call it before the loops run. 0 or -errno. */
int job_restripe_open(struct mds *m, struct loop *loop);
/* Call it often, always on that loop. */
void job_restripe_tick(struct mds *m);

struct job_restripe_view {
	uint64_t rsv_ino; /* 0: none */
	const char *rsv_step;
	uint64_t rsv_done, rsv_size; /* bytes of the file, in the first round */
	uint64_t rsv_copied;	     /* bytes written at data servers, in all rounds */
	unsigned rsv_round, rsv_restarts;
	double rsv_begun;   /* when it was taken in hand; s of CLOCK_REALTIME */
	uint8_t rsv_number; /* as tw_number; valid when rsv_size is */
};
/* Any thread. */
void job_restripe_look(struct mds *m, struct job_restripe_view *out);
#endif
