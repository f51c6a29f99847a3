/*
 * mirror.h - which copies of a mirrored file tell the truth (docs/mirrors.md).
 *
 * truth.c: a copy that may lack a write, or hold one that others lack, becomes stale.
 * first.c: the first copy of a file that two clients write.
 */
#ifndef MDS_FILE_MIRROR_H
#define MDS_FILE_MIRROR_H
#include "mds/mds.h"

/* truth.c. A change through the MDS failed (why), and these objects of that map may have taken it,
 * or part of it: what may differ becomes stale, and layouts that name it come back. then(arg) on
 * loop. call is parked meanwhile, or NULL: nobody waits. False: nothing can differ, and then is not
 * called. */
bool op_half_done(struct mds *m, struct loop *loop, struct rpc_call *call, uint64_t ino,
		  const struct lo_map *map, uint64_t objects, int why, void (*then)(void *arg),
		  void *arg);
/* Around a transaction that gives up a client which may have written (and puts lo_lost_put's row),
 * and what it does in memory. */
void op_lost_begin(struct mds *m);
void op_lost_end(struct mds *m);
/* locked: the files that it was writing are to be judged. False: there are none. */
bool op_lost_client(struct st *st, struct st_client *cl);
/* A writer of it is lost, and on a generic data server it may write until the next fence, which the
 * next tick brings (docs/generic.md). */
bool op_lost_writes(struct mds *m, uint64_t ino, const struct lo_map *map);
void op_judge_tick(struct mds *m, struct loop *loop);
int op_judge_open(struct mds *m); /* before the loops run */

/* first.c. Whether two write the mirrored file, so that only the first copy of each stripe is read
 * until they are compared. *taking: it is, and layouts are on their way back. Locks the file. */
bool op_is_contended(struct mds *m, uint64_t ino, const struct lo_map *map, bool *taking);
/* Of such a file first copies cannot be read (lo_first_lost): they become stale, durably, and
 * layouts that name them are taken back; call is parked until they are back, or NULL: nobody waits.
 * then(arg, err) on loop (it may be NULL). False: there is nothing to do, and then is not called.
 */
bool op_first_lost(struct mds *m, struct loop *loop, struct rpc_call *call, uint64_t ino,
		   const struct lo_map *map, uint64_t failed, void (*then)(void *arg, int err),
		   void *arg);
/* Of such a file: its first copies can be read. failed: reads of these failed. Else it is to be
 * asked again: another copy is first then, or the server is back. One that is alone is not waited
 * for. */
bool op_first_reads(struct mds *m, struct loop *loop, uint64_t ino, const struct lo_map *map,
		    uint64_t failed);
#endif
