/* SPDX-License-Identifier: Apache-2.0 */
/*
 * relocate.h - moves one object of a file to a chosen server (docs/balance.md): the object leaves,
 * and a spare column has its successor, as for any object that moves (mds/layout/mirror_change.h).
 * Also a row NS_T_RELOCATED for each file that was moved so lately.
 */
#ifndef MDS_LO_SHIFT_H
#define MDS_LO_SHIFT_H
#include "mds/layout/lo.h"

/* May an object of the file move: is the map whole, is nothing misplaced, and has the layout room
 * for one more column? */
bool lo_relocate_fits(struct lo *lo, const struct lo_map *m);
/* May the object be on that server, by the file's policy and the server's room? */
bool lo_relocate_may(struct lo *lo, const struct lo_map *m, unsigned obj, uint32_t to);
/* Makes the object begin to move there. -EAGAIN: not now, or not there. */
int lo_relocate(struct lo *lo, struct lo_map *m, unsigned obj, uint32_t to);

int lo_relocated_put(struct kv_txn *t, uint64_t ino, uint64_t now_s); /* W */
/* Returns when the file was moved, in s of CLOCK_REALTIME; 0: unknown. */
uint64_t lo_relocated(struct kv_txn *t, uint64_t ino);
/* W: deletes up to max rows from before before_s. Returns how many, or -errno. */
int lo_relocated_forget(struct kv_txn *t, uint64_t before_s, unsigned max);
/* Decodes a row, for the checker: 0 or -EIO. */
int lo_relocated_decode(struct kv_slice id, struct kv_slice val, uint64_t *ino, uint64_t *when_s);
#endif
