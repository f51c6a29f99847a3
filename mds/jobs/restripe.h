/* restripe.h - files that are laid out anew, with other stripes or another unit, while clients read
 * and write them (docs/restripe.md). One at a time; what is to be done is in the store
 * (mds/layout/twin.h). */
#ifndef MDS_OP_RESTRIPE_H
#define MDS_OP_RESTRIPE_H
#include "mds/layout/twin.h"
#include "mds/mds.h"

/* Before the loops run. */
int op_restripe_open(struct mds *m, struct loop *loop);
/* On that loop, often. */
void op_restripe_tick(struct mds *m);

struct op_restripe_view {
	uint64_t rv_ino; /* 0: none */
	const char *rv_step;
	uint64_t rv_done, rv_size; /* bytes of the file, in the first round */
	uint64_t rv_copied;	   /* written at data servers, in all */
	unsigned rv_round, rv_restarts;
};
/* Any thread. */
void op_restripe_look(struct mds *m, struct op_restripe_view *out);
#endif
