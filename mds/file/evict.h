/*
 * evict.h - all that a client has is taken away from it (docs/fencing.md).
 */
#ifndef MDS_FILE_EVICT_H
#define MDS_FILE_EVICT_H
#include "mds/mds.h"

/* evict.c: starts to take everything away from a client whose lease has run out; nothing happens to
 * one that is alive. */
void op_evict(struct mds *m, struct loop *loop, uint64_t clientid);
/* The same to one that may be alive. Any thread; the work is loop's. 0; -ENOENT; -EALREADY: it is
 * under way; -ENOMEM. If its record cannot be deleted it stays, without its sessions. */
int op_evict_now(struct mds *m, struct loop *loop, uint64_t clientid);
/* The same for all dead clients whose opens of the file deny this access or are denied by this
 * deny; with neither, for those that hold locks. */
void op_evict_in_way(struct mds *m, struct loop *loop, uint64_t ino, uint32_t access,
		     uint32_t deny);
#endif
