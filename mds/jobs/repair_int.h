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
	struct job_repair *rpj_r;
	struct mds *rpj_m;
	struct loop *rpj_loop;
	uint64_t rpj_ino;
	struct lo_repair rpj_row;
	struct excl rpj_freeze;
	struct excl_layout_block rpj_hold;
	struct op_move rpj_move;
	struct job_work rpj_work;
	struct lo_rebuild rpj_rb;
	struct lo_stat rpj_stat;
	/* the attempt */
	unsigned rpj_obj;
	uint32_t rpj_ds;
	uint8_t rpj_copy; /* with rpj_ds: which object it is */
	uint16_t rpj_incarnation;
	uint64_t rpj_session, rpj_saved; /* rpj_saved: the progress in the row */
	uint64_t rpj_orders;		 /* lo_order_pending */
	/* rpj_restarts: how often it began again since it got as far as rpj_furthest. rpj_changed:
	 * once of these because the file changed. rpj_pauses: how often before the pause is the
	 * longest. */
	unsigned rpj_source, rpj_restarts, rpj_pauses;
	bool rpj_changed;
	uint64_t rpj_furthest;
	enum lo_where rpj_where;
	enum lo_repair_why rpj_why;
	bool rpj_repaired;	  /* at least one object */
	bool rpj_begun, rpj_lost; /* rpj_lost: the object does not belong to this job any more */
	struct job_repair_view rpj_view; /* rv_progress is the work's */
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
	struct ns_inode rpk_i;
	struct lo_map rpk_map;
	unsigned rpk_obj;
	uint32_t rpk_ds;
	/* rpk_demote: nothing goes on with the object that is being rebuilt, so it becomes stale */
	bool rpk_resume, rpk_demote;
	bool rpk_vain; /* a place was looked for, and there is none */
	enum job_move_what rpk_move;
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
