/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trash.h - what goes on with the trash (namespace/ns_trash.h, docs/trash.md): it expires, it is
 * emptied early where a data server or the metadata store is nearly full, and the administrator
 * empties it or restores a whole tree.
 */
#ifndef MDS_JOBS_TRASH_H
#define MDS_JOBS_TRASH_H
#include "mds/jobs/job.h"
#include "mds/namespace/ns_trash.h"

#define JOB_TRASH_MOST 16 /* jobs that run or wait */
#define JOB_TRASH_FULL 95 /* percent, from which on the trash makes room */
#define JOB_TRASH_ROOM 93 /* and how far */

struct job_trash;
/* Reads the jobs that a restart interrupted. 0 or -errno. */
int job_trash_open(struct mds *m, struct loop *loop);
void job_trash_tick(struct mds *m); /* on the loop of job_trash_open */

/* Asks for a job: to restore all below top, or to empty what is below top and was removed before
 * ta_before (s of the epoch; UINT64_MAX: all). ta_done is called once, on the committer thread: 0,
 * with the job's number for job.h; -EBUSY: JOB_TRASH_MOST wait already. The caller keeps the memory
 * until then. */
struct job_trash_ask {
	bool ta_restores;
	struct ns_trash_top ta_top;
	uint64_t ta_before;
	void (*ta_done)(struct job_trash_ask *ta, int err);
	uint64_t ta_job;
	/* for trash.c only */
	uint64_t ta_begun;
	struct mds *ta_m;
	struct kv_op ta_op;
};
void job_trash_ask(struct mds *m, struct job_trash_ask *ta);

/* For the list of jobs. */
struct job_trash_view {
	uint64_t tv_number, tv_begun;
	enum job_kind tv_kind;
	bool tv_waits, tv_cancelled;
	uint64_t tv_ino; /* of the directory that it is about */
	uint64_t tv_done, tv_bytes, tv_failed;
	char tv_error[120]; /* of the last one that failed */
};
/* Copies the jobs that run or wait; returns their number. */
unsigned job_trash_look(struct mds *m, struct job_trash_view out[JOB_TRASH_MOST + 1]);
/* Cancels one; false: there is none of that number. */
bool job_trash_cancel(struct mds *m, uint64_t number);

/* For the checker: the row of a job, or one that was set aside. 0 or -EIO; -EINVAL: it can be read,
 * and is not what would be written. */
int job_trash_row_check(struct kv_slice id, struct kv_slice val);
#endif
