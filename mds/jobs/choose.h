/* choose.h - the administrator's word on which copy of a file is good (docs/scrub.md). One at a
 * time, in memory; the choice itself is a transaction. */
#ifndef MDS_OP_CHOOSE_H
#define MDS_OP_CHOOSE_H
#include "mds/mds.h"

struct op_choose_ask {
	uint64_t ca_ino;
	/* the one that is good; -1: what each copy has is shown, and nothing is changed */
	int ca_mirror;
	bool ca_force; /* also where another copy in sync can be read */
};
struct op_choose_view {
	struct op_choose_ask cv_ask;
	uint64_t cv_number;	  /* rises with each that begins; 0: there was none yet */
	bool cv_running, cv_done; /* done: the choice is durable */
	char cv_why[200];	  /* why it was refused, or failed; "" */
	/* as it was; what is in it is valid when it is not running any more */
	struct lo_map cv_map;
	uint64_t cv_size; /* the file's */
	/* a bit per object: its server told; and it has it, whole */
	uint64_t cv_answered, cv_there;
	/* changed: of the object, ns of CLOCK_REALTIME, as its server tells it */
	uint64_t cv_sizes[LO_MAX_OBJECTS], cv_changed[LO_MAX_OBJECTS];
	uint64_t cv_summed; /* a bit per object: cv_sum is of all of it */
	uint8_t cv_sum[LO_MAX_OBJECTS][CTL_SUM_LEN];
};
int op_choose_open(struct mds *m, struct loop *loop);
/* These two are any thread's. The number of the run; 0: another one is under way. */
uint64_t op_choose_begin(struct mds *m, const struct op_choose_ask *ask);
void op_choose_look(struct mds *m, struct op_choose_view *out);
#endif
