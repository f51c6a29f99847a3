/* SPDX-License-Identifier: Apache-2.0 */
/* restore.h - prepares the files of a restored store before anything is served
 * (docs/recovery.md). */
#ifndef MDS_LO_RESTORE_H
#define MDS_LO_RESTORE_H
#include "mds/namespace/ns.h"

/*
 * Call it after ns_restore. Gives each file a fence epoch that no data server has seen, and calls
 * mark: as if a client had been writing the file when the server ended. So a client that had a
 * layout in the timeline that was left is fenced before the file is used, the file's size is that
 * of its objects, and its copies are compared. Blocks; may be repeated. Returns the number of
 * files, or -errno.
 */
int64_t lo_restore(struct kv *kv, struct ns *ns, int (*mark)(struct kv_txn *t, uint64_t ino));
#endif
