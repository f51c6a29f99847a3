/*
 * column.h - a file's objects that come and go: a mirror more, one less, and objects that move to
 * other servers (docs/moving.md). All of it is in the file's map, and so survives every crash;
 * mds/jobs/repair.c does what the map says.
 *
 * A new mirror is a column of objects that are stale from the first, and repair fills them. An
 * object that moves is *leaving*; its stripe has an object in a *spare column*, the last of the
 * map, which is filled likewise. When all of that column are in sync, they take the places of those
 * that leave, and the column is gone: the switch. A mirror that is taken away has only leaving
 * objects, and nothing comes instead.
 */
#ifndef MDS_LO_COLUMN_H
#define MDS_LO_COLUMN_H
#include "mds/layout/lo.h"

/* The mirror of the file that an object is, or becomes, a part of. */
unsigned lo_mirror_of(const struct lo_map *m, unsigned obj);
/* The object of a stripe that leaves, or -1. */
int lo_leaving(const struct lo_map *m, unsigned stripe);
/* The first copy in sync of a stripe is leaving. */
bool lo_first_leaves(const struct lo_map *m);

/* One mirror more, with that group ("": none of its own). All return 0; or -EINVAL (it makes no
 * sense), -EBUSY (not now), -ENOSPC (no server), with a line in err. */
int lo_column_add(struct lo *lo, struct lo_map *m, const char *group, char *err, size_t errlen);
/* That mirror is to go. */
int lo_column_leave(struct lo_map *m, unsigned mirror, char *err, size_t errlen);
/* What is not where the policy's domain and groups want it is to move, and what is on that server
 * (0: none). p: NULL leaves the file's as it is. */
int lo_move_ask(struct lo *lo, struct lo_map *m, const struct lo_policy *p, uint32_t from,
		char *err, size_t errlen);

/* Objects (a bit each) that are where they should not be: as asked for, or on a server that is
 * being drained. */
uint64_t lo_misplaced(struct lo *lo, const struct lo_map *m);
/* What is misplaced begins to leave, one object of each stripe, as far as there are places: a spare
 * column. Nothing being so any more, it is forgotten that it was asked for. Returns how many
 * objects; 0 where the map is as it was; -ENOSPC: there are some, and no place for any; -EFBIG: the
 * layout would not fit. */
int lo_move_begin(struct lo *lo, struct lo_map *m);
/* The switch can be done. */
bool lo_switch_ready(const struct lo_map *m);
/* And the servers of what takes the places, and of a copy that stays, live: what goes may be the
 * last that can be read. */
bool lo_switch_lives(struct lo *lo, const struct lo_map *m);
/* W: does it, with the orders that delete what left. */
int lo_switch(struct lo *lo, struct kv_txn *t, const struct ns_inode *i, struct lo_map *m);
/* For a file that is laid out like this one, and has nothing yet: no spare column, nobody leaves,
 * nothing is asked for. */
void lo_map_settle(struct lo_map *m);
#endif
