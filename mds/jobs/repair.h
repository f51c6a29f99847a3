/* repair.h - repair of mirrors, as the administrator sees and steers it (docs/repair.md). */
#ifndef MDS_OP_REPAIR_H
#define MDS_OP_REPAIR_H
#include "mds/layout/repair.h"
#include "mds/mds.h"

struct op_repair_opts {
	unsigned ro_files;   /* at a time; 0: nothing is repaired */
	uint64_t ro_rate;    /* bytes a second, of all together; 0: no limit */
	uint32_t ro_wait_ms; /* a server that is away so long counts as gone */
};
/* Before the loops run. */
int op_repair_open(struct mds *m, struct loop *loop, const struct op_repair_opts *o);
/* On that loop, often. */
void op_repair_tick(struct mds *m);

enum op_repair_step {
	OP_REPAIR_RECALL,
	OP_REPAIR_BEGIN,
	OP_REPAIR_COPY,
	OP_REPAIR_END,
	OP_REPAIR_SWITCH
};
/* What is under way. */
struct op_repair_view {
	uint64_t rv_ino, rv_done, rv_size; /* bytes of the object; size: 0 while it is not known */
	uint64_t rv_copied, rv_same;	   /* of done: written; found equal */
	uint64_t rv_ms;			   /* since the copy began */
	uint64_t rv_began;		   /* where it did: after a restart not at 0 */
	unsigned rv_object;
	uint32_t rv_from, rv_to; /* servers; from: the last that was read */
	enum op_repair_step rv_step;
};
/* Any thread. Returns how many. */
unsigned op_repair_list(struct mds *m, struct op_repair_view *out, unsigned max);
struct op_repair_opts op_repair_opts(const struct mds *m);
/* So many bytes were read: for how many ms nothing more is, of all together. On that loop. */
uint32_t op_repair_pace(struct mds *m, uint64_t bytes);

/* move.c: what the map asks for beside repair (mds/layout/column.h), one step of it: objects begin
 * to leave, or the switch, with the layouts back and fenced before it. then(arg, err) on loop,
 * once, later: 0, -EAGAIN (somebody else has the file), or what failed. Memory is the caller's
 * until then. */
struct op_move {
	struct excl mv_freeze;
	struct kv_op mv_op;
	struct lo_io mv_io;
	struct mds *mv_m;
	struct loop *mv_loop;
	uint64_t mv_ino;
	bool mv_switched;
	void (*mv_then)(void *arg, int err);
	void *mv_arg;
};
enum op_move_what { OP_MOVE_NOTHING, OP_MOVE_WAITS, OP_MOVE_BEGIN, OP_MOVE_SWITCH };
/* What there is to do of that now. why: where it waits, for what. */
enum op_move_what op_move_look(struct mds *m, uint64_t ino, const struct lo_map *map,
			       const char **why);
void op_move_step(struct op_move *mv, struct mds *m, struct loop *loop, uint64_t ino,
		  enum op_move_what what, void (*then)(void *arg, int err), void *arg);
#endif
