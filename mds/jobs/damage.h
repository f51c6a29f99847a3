/* SPDX-License-Identifier: Apache-2.0 */
/*
 * damage.h - how many files are degraded or lost because data servers are dead (docs/health.md).
 *
 * The table of repairs does not have these files: their copies are in sync until a client writes
 * the file, or until the servers have been away for mds.repair_wait. So while a server is dead, a
 * thread of its own examines all files, with at most a fifth of a processor. While none is dead,
 * nothing is examined. A request only looks at what the thread has counted.
 */
#ifndef MDS_OP_DAMAGE_H
#define MDS_OP_DAMAGE_H
#include "mds/mds.h"

struct job_damage_view {
	bool dg_dead;  /* a server that files may need is dead */
	bool dg_whole; /* dg_degraded and dg_lost are of all files */
	/* Of the last whole count since the set of dead servers changed; else so far. */
	uint64_t dg_degraded, dg_lost;
	uint64_t dg_looked;  /* files that the count under way has examined */
	uint64_t dg_counted; /* files that counts have examined since the start */
};
/* Begins the thread. Call it when the data servers are known. 0 or -errno. */
int job_damage_open(struct mds *m);
/* Ends the thread. Call it before the store is closed. */
void job_damage_close(struct mds *m);
/* Any thread. */
void job_damage_look(struct mds *m, struct job_damage_view *out);
#endif
