/* drain.h - servers that are drained (docs/moving.md): which files have something there. */
#ifndef MDS_OP_DRAIN_H
#define MDS_OP_DRAIN_H
#include "mds/mds.h"

/* Before the loops run. */
int op_drain_open(struct mds *m);
/* On that loop, often. */
void op_drain_tick(struct mds *m, struct loop *loop);
/* Around a mutation that places objects where others are, on servers that are drained perhaps
 * (CLONE): in it, and after it, whatever became of it. A look that may not have seen them does not
 * say that a server is empty. Any thread. */
void op_drain_placing(struct mds *m);
void op_drain_placed(struct mds *m);
/* Before a server is drained: what was known of it is old. Any thread. */
void op_drain_begin(struct mds *m, uint32_t ds);
struct op_drain_view {
	bool dv_known;	  /* all files were looked at since it is drained */
	uint64_t dv_left; /* objects there, as last counted */
	bool dv_empty;	  /* none, and the old ones are deleted */
};
/* Any thread. False: it is not drained. */
bool op_drain_look(struct mds *m, uint32_t ds, struct op_drain_view *out);
#endif
