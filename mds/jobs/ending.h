/* ending.h - what was given below an export that is gone, or says something else, ends
 * (docs/security.md). */
#ifndef MDS_OP_ENDING_H
#define MDS_OP_ENDING_H
#include "mds/mds.h"

/* Before the loops run. -ENOMEM. */
int op_ending_open(struct mds *m, struct loop *loop);
/* On that loop, while it serves, often. */
void op_ending_tick(struct mds *m);
/* The exports are other ones, and in force. Any thread. */
void op_ending_look_again(struct mds *m);
/* On the committer: something is moved from one directory to another. -EAGAIN: not out of a
 * directory below which files have yet to be looked at, since it would not be found there. */
int op_ending_stays(struct mds *m, struct kv_txn *t, uint64_t from, uint64_t to);
struct op_ending_view {
	bool ev_running;    /* or it is not known yet whether there is anything to do */
	uint64_t ev_number; /* of looks that are over, since the start */
	uint64_t
		ev_exports; /* directories; these four are of the look under way, or the last one */
	uint64_t ev_looked; /* files */
	uint64_t ev_ended;  /* of these: no capability of before is good */
	uint64_t ev_unconfirmed; /* of these: a data server that lives has not said so yet */
};
/* Any thread. */
void op_ending_look(struct mds *m, struct op_ending_view *out);
#endif
