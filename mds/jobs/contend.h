/*
 * contend.h - mirrored files that two clients write at the same time (docs/mirrors.md).
 */
#ifndef MDS_JOBS_CONTEND_H
#define MDS_JOBS_CONTEND_H
#include "mds/file/mirror.h"

/* contend.c. A write of [off, end) of a mirrored file through us, which is pinned from before this
 * until after op_write_end. by: who writes. Zeroed before its first use. False: it overlaps
 * another, or another client has a layout to write the file, which is being made contended: to be
 * tried again. */
struct op_write {
	struct mds *ow_m;
	uint64_t ow_ino;
	struct st_write ow_write;
};
bool op_write_begin(struct op_write *w, struct mds *m, struct loop *loop, uint64_t ino,
		    const struct st_client *by, uint64_t off, uint64_t end);
void op_write_end(struct op_write *w);
/* locked: whether a write by this client makes the mirrored file contended, which it is not yet. */
bool op_contends(const struct st_file *f, const struct st_client *by);
/* Begins to mark that; until it is done, and all layouts are back, the file gets none. Locks the
 * file. */
void op_contend(struct mds *m, struct loop *loop, uint64_t ino);
int op_contended_open(struct mds *m, struct loop *loop); /* before the loops run */
void op_contended_tick(struct mds *m);
#endif
