/* SPDX-License-Identifier: Apache-2.0 */
/* reply_sweep.h - deletes the rows of the durable reply cache (nfs4/replay.c) that no client will
 * ask for. */
#ifndef MDS_REPLY_SWEEP_H
#define MDS_REPLY_SWEEP_H
#include "mds/mds.h"

/* Call it every tick. Deletes the rows of ended sessions, and once grace is over those of earlier
 * boots. */
void job_replies_tick(struct mds *m, struct loop *loop);
#endif
