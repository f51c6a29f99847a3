/* SPDX-License-Identifier: Apache-2.0 */
/* repair_int.h - the inside of the repair of mirrors: the queue of files (repair_queue.c), and the
 * repair of one file (repair.c). */
#ifndef MDS_JOBS_REPAIR_INT_H
#define MDS_JOBS_REPAIR_INT_H
#include "mds/file/exclusive.h"
#include "mds/file/file.h"
#include "mds/jobs/job_work.h"
#include "mds/jobs/repair.h"

#define REPAIR_RESTS 1024 /* files that are remembered because they wait for a place */

struct repair_job {
	struct job_repair *r;
	struct mds *m;
	struct loop *loop;
	uint64_t ino;
	struct lo_repair row;
	struct excl freeze;
	struct excl_layout_block hold;
	struct op_move move;
	struct job_work work;
	struct lo_rebuild rb;
	struct lo_stat stat;
	/* the attempt */
	unsigned obj;
	uint32_t ds;
	uint8_t copy; /* with ds: which object it is */
	uint16_t incarnation;
	uint64_t session, saved; /* saved: the progress in the row */
	uint64_t orders;	 /* lo_order_pending */
	/* restarts: how often it began again since it got as far as furthest; changed: once of
	 * these because the file changed; pauses: how often before the pause is the longest */
	unsigned source, restarts, pauses;
	bool changed;
	uint64_t furthest;
	enum lo_where where;
	enum lo_repair_why why;
	bool repaired;		     /* at least one object */
	bool begun, lost;	     /* lost: the object does not belong to this job any more */
	struct job_repair_view view; /* rv_progress is the work's */
};

struct job_repair {
	struct mds *jr_m;
	struct loop *jr_loop;
	/* struct job_repair_opts, which may change at any time (job_repair_set_opts) */
	_Atomic unsigned jr_files;
	_Atomic uint64_t jr_rate;
	_Atomic uint32_t jr_wait_ms;
	struct repair_job *jr_job[REPAIR_FILES_MAX];
	struct loop_timer jr_next;
	/* protects jr_job and the views: the loop changes them, any thread reads them */
	pthread_mutex_t jr_lock;
	uint64_t jr_started_ms;		/* data servers come back within a lease from this */
	uint64_t jr_cursor, jr_next_ns; /* jr_next_ns: when the next pull may begin */
	struct {
		uint64_t ino, until_ms;
	} jr_rest[REPAIR_RESTS];
	struct metric *jr_repaired, *jr_failed, *jr_copied, *jr_same;
};

/* What there is to do for a file now. repair_pick returns -ENOENT: nothing; -EAGAIN: something
 * waits; 0: the job's object, and resume if its session may still live. */
struct repair_pick {
	struct ns_inode i;
	struct lo_map map;
	unsigned obj;
	uint32_t ds;
	/* demote: nothing goes on with the object that is being rebuilt, so it becomes stale */
	bool resume, demote;
	bool vain; /* a place was looked for, and there is none */
	enum job_move_what move;
};

static inline uint64_t repair_wall_s(void)
{
	return (uint64_t)file_now().t_sec;
}

/* ---- repair_queue.c ---- */

/* moves: check also whether the file can move. Otherwise a file that could only move waits. */
int repair_pick(struct job_repair *r, struct kv_txn *t, uint64_t ino, const struct lo_repair *row,
		bool moves, struct repair_pick *p);
/* Ends the job, and frees it. */
void repair_job_end(struct repair_job *j);

/* ---- repair.c ---- */

/* Goes on with the file's next object, or ends the job. w: of a struct repair_job. */
void repair_object(struct job_work *w);
#endif
