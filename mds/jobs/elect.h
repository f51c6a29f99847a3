/* SPDX-License-Identifier: Apache-2.0 */
/* elect.h - the administrator decides which copy of a file is good (docs/scrub.md). There is one
 * run at a time, in memory; the choice itself is a transaction. */
#ifndef MDS_OP_CHOOSE_H
#define MDS_OP_CHOOSE_H
#include "mds/mds.h"

struct job_elect_ask {
	uint64_t ca_ino;
	/* the mirror that is good; -1: shows what each copy has, and changes nothing */
	int ca_mirror;
	bool ca_force; /* also where another copy in sync can be read */
};
struct job_elect_view {
	struct job_elect_ask elv_ask;
	double elv_begun;	    /* s of CLOCK_REALTIME */
	uint64_t elv_number;	    /* rises with each run that begins; 0: there was none yet */
	bool elv_running, elv_done; /* elv_done: the choice is durable */
	char elv_why[200];	    /* why the choice was refused or failed; else "" */
	/* The map before the choice. It and what follows are valid when elv_running is false. */
	struct lo_map elv_map;
	uint64_t elv_size; /* of the file, in bytes */
	/* a bit for each object: its server answered; its server has all of it */
	uint64_t elv_answered, elv_there;
	/* elv_changed: when the object last changed, in ns of CLOCK_REALTIME, by its server's
	 * clock */
	uint64_t elv_sizes[LO_MAX_OBJECTS], elv_changed[LO_MAX_OBJECTS];
	uint64_t elv_summed; /* a bit for each object: elv_sum covers all of it */
	uint8_t elv_sum[LO_MAX_OBJECTS][CTL_SUM_LEN];
};
int job_elect_open(struct mds *m, struct loop *loop);
/* Any thread may call these two. job_elect_begin returns the number of the run; 0: another one is
 * under way. */
uint64_t job_elect_begin(struct mds *m, const struct job_elect_ask *ask);
void job_elect_look(struct mds *m, struct job_elect_view *out);
#endif
