/* restore.h - a store that was put back: its files, before anything is served
 * (docs/recovery.md). */
#ifndef MDS_LO_RESTORE_H
#define MDS_LO_RESTORE_H
#include "mds/namespace/ns.h"

/*
 * After ns_restore. Each file's fence epoch becomes one that no data server has seen, and mark is
 * called: as if a client had been writing the file when the server ended. Who had a layout in the
 * line of time that was left is then fenced before the file is used, its size is that of its
 * objects, and its copies are compared. Blocks; may be done again. The number of files, or a
 * negative errno.
 */
int64_t lo_restore(struct kv *kv, struct ns *ns, int (*mark)(struct kv_txn *t, uint64_t ino));
#endif
