/* SPDX-License-Identifier: Apache-2.0 */
/*
 * contended.h - mirrored files that two clients write at the same time (docs/mirrors.md).
 */
#ifndef MDS_JOBS_CONTEND_H
#define MDS_JOBS_CONTEND_H
#include "mds/file/mirror_state.h"

/* contended.c. A write of [off, end) of a mirrored file through the MDS. The file must be pinned
 * from before job_write_begin until after job_write_end. by: the client that writes. Zero *w before
 * its first use. False: try again later. The write overlaps another one; or another client has a
 * layout to write the file, and the file is being made contended. */
struct job_write {
	struct mds *ow_m;
	uint64_t ow_ino;
	struct st_write ow_write;
};
bool job_write_begin(struct job_write *w, struct mds *m, struct loop *loop, uint64_t ino,
		     const struct st_client *by, uint64_t off, uint64_t end);
void job_write_end(struct job_write *w);
/* locked: would a write by this client make the mirrored file contended? No if it is already. */
bool job_contends(const struct st_file *f, const struct st_client *by);
/* Starts to mark the file as contended. Until the mark is durable and all layouts are back, the
 * file gets no layouts. Locks the file. */
void job_contend(struct mds *m, struct loop *loop, uint64_t ino);
int job_contended_open(struct mds *m, struct loop *loop); /* call it before the loops run */
void job_contended_tick(struct mds *m);
#endif
