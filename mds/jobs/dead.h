/*
 * dead.h - what lies on data servers that do not come back (docs/device-failure.md).
 */
#ifndef MDS_JOBS_DEAD_H
#define MDS_JOBS_DEAD_H
#include "mds/mds.h"

/* dead.c: a data server was declared dead (docs/device-failure.md): on the first loop. */
void op_ds_dead(struct mds *m, struct loop *loop, uint32_t id, const uint8_t uuid[16]);
/* Every tick: what is on servers that do not come back becomes stale, so that repair makes it anew
 * elsewhere. */
void op_dead_tick(struct mds *m, struct loop *loop);
/* What is on dead servers is stale, where its stripe has another copy in sync, before anybody
 * writes without it; layouts that may name it come back. then(arg, err) on loop, when that is
 * durable. False: nothing is, and then is not called. */
bool op_without_dead(struct mds *m, struct loop *loop, uint64_t ino, const struct ns_inode *i,
		     void (*then)(void *arg, int err), void *arg);
/* lo_held_objects of the file. Who sets a size makes the copy of a server that is dead stale
 * himself, unless we died in between: that is made good here, for those that ask again. */
bool op_is_held(struct mds *m, struct loop *loop, const struct ns_inode *i,
		const struct lo_map *map);
#endif
