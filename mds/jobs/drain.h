/* SPDX-License-Identifier: Apache-2.0 */
/* drain.h - data servers that are being drained (docs/moving.md): which files have objects
 * there. */
#ifndef MDS_OP_DRAIN_H
#define MDS_OP_DRAIN_H
#include "mds/mds.h"

/* Call it before the loops run. 0 or -ENOMEM. */
int job_drain_open(struct mds *m);
/* Call it often, always on that loop. */
void job_drain_tick(struct mds *m, struct loop *loop);
/* Call these for a mutation that places objects where others are, perhaps on servers that are being
 * drained (CLONE): job_drain_placing inside the mutation, job_drain_placed after it, whether it
 * succeeded or not. A pass that may have missed these objects then does not report a server as
 * empty. Any thread. */
void job_drain_placing(struct mds *m);
void job_drain_placed(struct mds *m);
/* Call it before a drain begins: drops what is known of the server. Any thread. */
void job_drain_begin(struct mds *m, uint32_t ds);
struct job_drain_view {
	bool dv_known;	  /* all files were looked at since the drain began */
	uint64_t dv_left; /* objects there, as last counted */
	uint64_t dv_most; /* the most that were counted since the drain began, or this server */
	/* When the drain began, and when the objects were first counted; s of CLOCK_REALTIME. 0:
	 * before this server started; not yet. */
	double dv_begun, dv_counted;
	bool dv_empty; /* there are none, and the orders that delete the old ones are done */
};
/* Any thread. False: the server is not being drained. */
bool job_drain_look(struct mds *m, uint32_t ds, struct job_drain_view *out);
#endif
