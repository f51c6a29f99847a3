/* SPDX-License-Identifier: Apache-2.0 */
/* repair.h - repair of mirrors, as the administrator sees and controls it (docs/repair.md). */
#ifndef MDS_OP_REPAIR_H
#define MDS_OP_REPAIR_H
#include "mds/jobs/job_work.h"
#include "mds/layout/repair_row.h"
#include "mds/mds.h"

#define REPAIR_FILES_MAX 64 /* the most that mds.repair_files may say */
struct job_repair_opts {
	unsigned ro_files;   /* repaired at a time; 0: nothing is repaired */
	uint64_t ro_rate;    /* bytes a second, for all files together; 0: no limit */
	uint32_t ro_wait_ms; /* a server that has been away this many milliseconds counts as gone */
};
/* Call it before the loops run. 0 or -errno. */
int job_repair_open(struct mds *m, struct loop *loop, const struct job_repair_opts *o);
/* Call it often, always on that loop. */
void job_repair_tick(struct mds *m);

/* A repair that is under way. */
struct job_repair_view {
	struct job_progress rv_progress; /* of the object */
	uint64_t rv_same;		 /* of what is done: bytes found equal */
	unsigned rv_object;
	uint32_t rv_from, rv_to; /* servers; rv_from: the one read last */
	/* For the list of jobs (job.h): the file's row as it was last read, and what is done of it
	 * since this server took it in hand. */
	struct lo_repair rv_row;
	int rv_kind; /* enum job_kind; -1: not known yet */
	uint64_t rv_objects, rv_bytes;
};
/* Any thread. Fills up to max views and returns their number. */
unsigned job_repair_list(struct mds *m, struct job_repair_view *out, unsigned max);
/* Both on any thread. What is set holds from the next file, piece or look on. */
struct job_repair_opts job_repair_opts(const struct mds *m);
void job_repair_set_opts(struct mds *m, const struct job_repair_opts *o);
/* Why an object is not being repaired now. *left_ms: how long that will be so, at least. */
const char *job_repair_waits(struct mds *m, const struct lo_repair *row, const struct lo_map *map,
			     unsigned obj, uint64_t *left_ms);
/* Counts bytes that were read. Returns for how many milliseconds no repair may read more. On that
 * loop. */
uint32_t job_repair_pace(struct mds *m, uint64_t bytes);

/* move.c: one step of a change of the map that is not a repair (mds/layout/mirror_change.h). Either
 * objects begin to leave, or the switch; before both, layouts come back or are fenced.
 * then(arg, err) is called on loop, once, later. 0; -EAGAIN: another job or request has the file;
 * or the error. The caller keeps the memory until then. */
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
enum job_move_what { OP_MOVE_NOTHING, OP_MOVE_WAITS, OP_MOVE_BEGIN, OP_MOVE_SWITCH };
/* Returns the step that can be done now. *why: what it waits for. */
enum job_move_what job_move_look(struct mds *m, uint64_t ino, const struct lo_map *map,
				 const char **why);
void job_move_step(struct op_move *mv, struct mds *m, struct loop *loop, uint64_t ino,
		   enum job_move_what what, void (*then)(void *arg, int err), void *arg);
#endif
