/*
 * size.h - a file's size, change and times, which data servers know first (docs/size.md).
 */
#ifndef MDS_FILE_SIZE_H
#define MDS_FILE_SIZE_H
#include "mds/mds.h"

/* locked: nobody was given to write the file since its size was set, and what had been given was
 * fenced. */
bool op_size_is_set(struct mds *m, const struct st_file *f, const struct lo_map *map);
/* What data servers know of its size and times, we do not yet. Locks the file. */
bool op_refresh_needed(struct mds *m, uint64_t ino);
/* Where the file ends at the latest: its size, where that was set and nobody could write since;
 * else UINT64_MAX. */
uint64_t op_size_set(struct mds *m, const struct ns_inode *i, const struct lo_map *map);
/* Brings the inode's size, change and mtime up to date from the data servers, then calls
 * then(arg, err) on loop. unmark: the file's mark goes too, if no writer has come. False: there is
 * nothing to ask, and then is not called. */
bool op_refresh_file(struct mds *m, struct loop *loop, struct kv_txn *t, uint64_t ino, bool unmark,
		     void (*then)(void *arg, int err), void *arg);
/* The last write layout of the file is back: its size is fetched and its mark taken away, soon,
 * together with others'. Until then the file stays marked. */
void op_unmark_later(struct mds_thread *th, uint64_t ino);
/* The same at once, on the calling loop, which is one of the MDS's. */
void op_unmark(struct mds *m, struct loop *loop, uint64_t ino);
/* Answers CTL_OP_EOF. */
void op_eof_handler(void *mds, struct loop *loop, uint64_t ino, uint16_t inc,
		    void (*reply)(void *rarg, int err, uint64_t size), void *rarg);
/* W: the mark of a file whose write layout is out (docs/size.md). */
int op_mark_put(struct kv_txn *t, uint64_t ino);
/* W: and two clients write it at once. */
int op_mark_contended(struct kv_txn *t, uint64_t ino);
int op_mark_del(struct kv_txn *t, uint64_t ino);
/* locked: the mark was put for a layout that nobody was given. */
bool op_mark_is_unused(struct st_file *f);
#endif
