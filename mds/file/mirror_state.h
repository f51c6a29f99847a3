/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mirror_state.h - which copies of a mirrored file are right (docs/mirrors.md).
 *
 * mirror_state.c: a copy that may lack a write, or have a write that others lack, becomes stale.
 * first_copy.c: the first copy of a file that two clients write.
 */
#ifndef MDS_FILE_MIRROR_H
#define MDS_FILE_MIRROR_H
#include "mds/file/file.h"

/* mirror_state.c. Call it when a change through the MDS failed (why: the error) and these objects
 * of that map may have taken it, or a part of it. Copies that may differ become stale, and layouts
 * that name them are recalled; then(arg) is called on loop. call (may be NULL) is parked meanwhile,
 * and does not keep its client's requests from being read. False: no copies can differ, and then is
 * not called. */
bool file_partial_done(const struct file_env *fe, struct loop *loop, struct rpc_call *call,
		       uint64_t ino, const struct lo_map *map, uint64_t objects, int why,
		       void (*then)(void *arg), void *arg);
/* Call these before and after a transaction that gives up a client which may have written (and that
 * puts lo_lost_writers_put's row), and after what goes with it in memory. Both take the lock of all
 * shards. */
void file_lost_writers_begin(const struct file_env *fe);
void file_lost_writers_end(const struct file_env *fe);
/* Under the lock of all shards: marks the files that the client was writing, to be judged. False:
 * there are none. */
bool file_lost_client(struct st *st, struct st_client *cl);
/* Has a writer of the file been lost, on generic data servers? There it may write until the next
 * fence, which the next tick brings (docs/generic.md). */
bool file_lost_writes(const struct file_env *fe, uint64_t ino, const struct lo_map *map);
void file_resolve_tick(const struct file_env *fe, struct loop *loop);
int file_resolve_open(const struct file_env *fe); /* call it before the loops run */

/* first_copy.c. Do two clients write the mirrored file, so that only the first copy of each stripe
 * is read until the copies are compared? *taking: yes, and layouts are being recalled. Locks the
 * file. */
bool file_is_contended(const struct file_env *fe, uint64_t ino, const struct lo_map *map,
		       bool *taking);
/* First copies of a contended file cannot be read (lo_first_lost): they become stale, durably, and
 * layouts that name them are recalled and fenced. call (may be NULL) is parked until the layouts
 * are back. then(arg, err) is called on loop; it may be NULL. False: there is nothing to do, or no
 * memory, and then is not called. */
bool file_first_lost(const struct file_env *fe, struct loop *loop, struct rpc_call *call,
		     uint64_t ino, const struct lo_map *map, uint64_t failed,
		     void (*then)(void *arg, int err), void *arg);
/* Can the first copies of a contended file be read? failed: objects that could not be read. False:
 * ask again; by then another copy is first, or the server is back. A copy without another in sync
 * counts as readable: no other could take its place. */
bool file_first_reads(const struct file_env *fe, struct loop *loop, uint64_t ino,
		      const struct lo_map *map, uint64_t failed);
#endif
