/* SPDX-License-Identifier: Apache-2.0 */
/*
 * orphan.h - freeing files. A file whose last name is removed while a client has it open is an
 * orphan, until the last such client gives its opens and delegations up. The sweep frees orphans of
 * clients that are gone, and those that a crash left.
 */
#ifndef MDS_ORPHAN_H
#define MDS_ORPHAN_H
#include "mds/file/file.h"

/* Frees inodes in ns_remove and ns_rename. An inode that is open stays as an orphan. For
 * others deletions are queued, and new opens are blocked until file_free_done. */
struct file_free_ctx {
	const struct file_env *ffc_fe;
	struct st_client *ffc_client; /* the client that removes; NULL: none */
	uint64_t ffc_removing, ffc_orphaned;
	bool ffc_kept;	 /* the trash has it: nothing of its state ends */
	bool ffc_fenced; /* but its layouts: the mutation fenced them */
	bool ffc_waits;	 /* there were some: the answer waits for the fence */
};
void file_free_ops(struct file_free_ctx *ctx, const struct file_env *fe, struct st_client *client,
		   struct ns_free_ops *fo);
/* On the committer thread, in a mutation that put ctx->removing into the trash, where no client has
 * it open: no client writes it from then on. 0 or the store's error. */
int file_free_fence(struct file_free_ctx *ctx, struct kv_txn *t);
/* Call it on the loop, after the mutation. */
void file_free_done(struct file_free_ctx *ctx, int err);
/* On the committer thread. The last client has closed the orphan. 0 or the store's error. */
int file_free_orphan(struct file_free_ctx *ctx, struct kv_txn *t, uint64_t ino,
		     const struct ns_free_ops *fo);
/* Frees orphans that no client has open. Call it after the grace period and after evictions. */
void file_orphan_sweep(const struct file_env *fe, struct loop *loop);
#endif
