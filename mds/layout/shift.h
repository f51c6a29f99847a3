/*
 * shift.h - one object of a file to a server that somebody chose (docs/balance.md): it leaves, and
 * a spare column has its successor, as for any object that moves (mds/layout/column.h). And which
 * files were moved so lately: a row NS_T_SHIFTED for each.
 */
#ifndef MDS_LO_SHIFT_H
#define MDS_LO_SHIFT_H
#include "mds/layout/lo.h"

/* The file is at rest: whole, nothing of it is misplaced, and its layout has room for a column
 * more. */
bool lo_shift_fits(struct lo *lo, const struct lo_map *m);
/* The object may be there: as the file's policy says, and with room. */
bool lo_shift_may(struct lo *lo, const struct lo_map *m, unsigned obj, uint32_t to);
/* It begins to move there. -EAGAIN: not now, or not there. */
int lo_shift(struct lo *lo, struct lo_map *m, unsigned obj, uint32_t to);

int lo_shifted_put(struct kv_txn *t, uint64_t ino, uint64_t now_s); /* W */
/* When, in seconds of CLOCK_REALTIME; 0: not that is known. */
uint64_t lo_shifted(struct kv_txn *t, uint64_t ino);
/* W: forgets up to max of those from before. Returns how many, or -errno. */
int lo_shifted_forget(struct kv_txn *t, uint64_t before_s, unsigned max);
/* A row's bytes, for the checker: 0 or -EIO. */
int lo_shifted_decode(struct kv_slice id, struct kv_slice val, uint64_t *ino, uint64_t *when_s);
#endif
