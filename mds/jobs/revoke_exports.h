/* SPDX-License-Identifier: Apache-2.0 */
/* revoke_exports.h - ends the capabilities that were granted below an export which is gone or has
 * changed (docs/security.md). */
#ifndef MDS_OP_ENDING_H
#define MDS_OP_ENDING_H
#include "mds/mds.h"

/* Call it before the loops run. 0 or -ENOMEM. */
int job_revocation_open(struct mds *m, struct loop *loop);
/* Call it often on that loop, once the server serves. */
void job_revocation_tick(struct mds *m);
/* Call it when changed exports are in force. Returns the number of the pass that follows, as in
 * ev_next. Any thread. */
uint64_t job_revocation_look_again(struct mds *m);
/* On the committer: something moves from directory from to directory to. -EAGAIN: not now, because
 * files below from have yet to be looked at, and the pass would miss the one that moves. */
int job_revocation_stays(struct mds *m, struct kv_txn *t, uint64_t from, uint64_t to);
struct job_revocation_view {
	bool ev_running;    /* a pass is under way, or it is not known yet whether one is needed */
	uint64_t ev_number; /* passes that have ended since the start */
	uint64_t ev_next;   /* the pass that was asked for last; 0: none that is not over */
	bool ev_waits;	    /* of ev_running: it has not begun yet */
	double ev_begun;    /* of the pass under way; s of CLOCK_REALTIME */
	/* directories; these four are of the pass under way, or of the last one */
	uint64_t ev_exports;
	uint64_t ev_looked; /* files */
	uint64_t ev_ended;  /* of these: no earlier capability is good */
	/* of these: a data server that lives has not confirmed that yet */
	uint64_t ev_unconfirmed;
};
/* Any thread. */
void job_revocation_look(struct mds *m, struct job_revocation_view *out);
#endif
