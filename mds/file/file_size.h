/* SPDX-License-Identifier: Apache-2.0 */
/*
 * file_size.h - a file's size, change attribute and times, which data servers learn first
 * (docs/size.md).
 */
#ifndef MDS_FILE_SIZE_H
#define MDS_FILE_SIZE_H
#include "mds/file/file.h"

/* A loop's files whose last write layout is back. Their marks are deleted in batches. */
struct file_returned {
	const struct file_env *fr_env; /* these two are set before the loop runs */
	struct loop *fr_loop;
	uint64_t *fr_ino;
	size_t fr_n, fr_cap;
	unsigned fr_asking;
	struct loop_timer fr_timer;
};

/* locked: since the file's size was set, no client got a layout to write it, and all earlier ones
 * were fenced. */
bool file_size_is_set(const struct file_env *fe, const struct st_file *f, const struct lo_map *map);
/* May data servers know of a size and times that the store does not have yet? Locks the file. */
bool file_refresh_needed(const struct file_env *fe, uint64_t ino);
/* Returns the offset where the file ends at the latest: its size if file_size_is_set, else
 * UINT64_MAX. Locks the file. */
uint64_t file_size_set(const struct file_env *fe, const struct ns_inode *i,
		       const struct lo_map *map);
/* Brings the inode's size, change attribute and mtime up to date from the data servers, then calls
 * then(arg, err) on loop. -ETIMEDOUT: not all servers answered. unmark: deletes the file's mark
 * too, if no writer has come. False: there is nothing to ask, and then is not called. Locks the
 * file. */
bool file_refresh(const struct file_env *fe, struct loop *loop, struct kv_txn *t, uint64_t ino,
		  bool unmark, void (*then)(void *arg, int err), void *arg);
/* Call it when the file's last write layout is back: fetches the size and deletes the mark soon,
 * together with other files'. Until then the file stays marked. */
void file_intent_clear_later(struct file_returned *fr, uint64_t ino);
/* The same at once, on the calling loop, which must be one of the MDS's. */
void file_intent_clear(const struct file_env *fe, struct loop *loop, uint64_t ino);
/* Answers CTL_OP_EOF: a data server asks where the file ends. */
void file_eof_handler(void *file_env, struct loop *loop, uint64_t ino, uint16_t inc,
		      void (*reply)(void *rarg, int err, uint64_t size), void *rarg);
/* W: puts the mark of a file whose write layout is out (docs/size.md). */
int file_intent_put(struct kv_txn *t, uint64_t ino);
/* W: puts the mark and says in it that two clients write the file at once. */
int file_intent_contended(struct kv_txn *t, uint64_t ino);
int file_intent_del(struct kv_txn *t, uint64_t ino);
/* locked: was the mark put for a layout that no client got? */
bool file_intent_is_unused(struct st_file *f);
#endif
