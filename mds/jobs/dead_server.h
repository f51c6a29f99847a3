/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dead_server.h - what to do about copies on data servers that do not come back
 * (docs/device-failure.md).
 */
#ifndef MDS_JOBS_DEAD_H
#define MDS_JOBS_DEAD_H
#include "mds/mds.h"

/* Call it on the first loop when a data server was declared dead: recalls the layouts that name
 * it. */
void job_ds_dead(struct mds *m, struct loop *loop, uint32_t id, const uint8_t uuid[16]);
/* Call it every tick. Copies on servers that do not come back become stale, so that repair makes
 * them again on other servers. */
void job_dead_tick(struct mds *m, struct loop *loop);
/* Makes copies on dead servers stale where their stripe has another copy in sync, before a client
 * writes without them, and recalls layouts that may name them. then(arg, err) is called on loop
 * when this is durable; then may be NULL. False: there are no such copies, and then is not
 * called. */
bool job_without_dead(struct mds *m, struct loop *loop, uint64_t ino, const struct ns_inode *i,
		      void (*then)(void *arg, int err), void *arg);
/* Does lo_objects_with_orders name any object of the file? A request that sets a size makes the
 * copy of a dead server stale itself. If we died in between, this does it, for clients that ask
 * again. */
bool job_has_orders(struct mds *m, struct loop *loop, const struct ns_inode *i,
		    const struct lo_map *map);
#endif
