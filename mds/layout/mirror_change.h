/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mirror_change.h - objects of a file that come and go: one mirror more, one less, and objects that
 * move to other servers (docs/moving.md). All of this is in the file's map, so it survives every
 * crash; mds/jobs/repair.c does what the map says.
 *
 * A new mirror is a column of objects that are stale at first, and repair fills them. An object
 * that moves is *leaving*; its stripe has a new object in a *spare column*, the last mirror of the
 * map, which repair fills likewise. When all objects of that column are in sync, they take the
 * places of those that leave, and the column is gone: the switch. A mirror that is being removed
 * has only leaving objects, and no new ones.
 */
#ifndef MDS_LO_COLUMN_H
#define MDS_LO_COLUMN_H
#include "mds/layout/lo.h"

/* Returns the mirror of the file to which an object belongs, or will belong. */
unsigned lo_mirror_of(const struct lo_map *m, unsigned obj);
/* Returns the object of a stripe that leaves, or -1. */
int lo_leaving(const struct lo_map *m, unsigned stripe);
/* Is the first copy in sync of a stripe leaving? */
bool lo_first_leaves(const struct lo_map *m);

/* Adds a mirror, with that group ("": none of its own). These three return 0; or with a line in err
 * -EINVAL (impossible), -EBUSY (not now), -ENOSPC (no server). */
int lo_mirror_add(struct lo *lo, struct lo_map *m, const char *group, char *err, size_t errlen);
/* Adds a mirror that is a pinned copy, on servers with that group's labels of which f says that the
 * object fits there. Neither the file's groups nor its domain count for it. -EEXIST: the file has
 * one. */
int lo_mirror_pin(struct lo *lo, struct lo_map *m, const char *group, const struct lo_fits *f,
		  char *err, size_t errlen);
/* Begins to remove that mirror. */
int lo_mirror_remove(struct lo_map *m, unsigned mirror, char *err, size_t errlen);
/* Ends a removal that is not done yet: the mirror stays. False: none is being removed. */
bool lo_mirror_keep(struct lo_map *m);
/* Asks for a move of the objects that are not where the domain and groups of p want them, and of
 * those on server from (0: none). p: the file's new policy; NULL: its domain and groups stay. */
int lo_move_ask(struct lo *lo, struct lo_map *m, const struct lo_policy *p, uint32_t from,
		char *err, size_t errlen);

/* Forgets what was asked. Objects that leave already go on. */
void lo_move_forget(struct lo_map *m);
/* Returns the objects (a bit each) that are not where they should be: by what was asked, or because
 * their server is being drained. */
uint64_t lo_misplaced(struct lo *lo, const struct lo_map *m);
/* Makes misplaced objects leave, one of each stripe, as far as there are places for new ones: adds
 * a spare column. If nothing is misplaced any more, forgets what was asked. Returns the number of
 * objects; 0: the map has no new ones. -ENOSPC: some are misplaced, and there is no place for any;
 * -EFBIG: the layout would not fit. */
int lo_move_begin(struct lo *lo, struct lo_map *m);
/* Can the switch be done? */
bool lo_switch_ready(const struct lo_map *m);
/* Do the servers of the new objects live, and for each stripe that of a copy that stays? If not,
 * the object that goes may be the last one that can be read. */
bool lo_switch_lives(struct lo *lo, const struct lo_map *m);
/* W: does the switch in m, with the orders that delete what left. 0 or -errno. */
int lo_switch(struct lo *lo, struct kv_txn *t, const struct ns_inode *i, struct lo_map *m);
/* Prepares a map for a file that gets the same layout and has no data yet: without a spare column,
 * leaving objects, a pinned copy, and anything that was asked. */
void lo_map_settle(struct lo_map *m);
#endif
