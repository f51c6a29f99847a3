/* SPDX-License-Identifier: Apache-2.0 */
/*
 * job.h - what the server does by itself or because the administrator asked, as one list: repair,
 * moves, restripe, drain, balance, verify, scrub and others. The engines know nothing of this list
 * except when they are over (job_int.h). A table in job.c has a row for each kind: how its jobs are
 * listed, found and cancelled.
 *
 * A job has a number. It is made of what the job is about (an inode, a data server, or how many
 * such runs there were), of a part that tells apart jobs about the same, and of the table that has
 * the job. So nothing more is stored, a job is found by its number at once, and a job that
 * continues after a restart of the server keeps its number. A file has one job in the table of
 * repairs: what is asked for meanwhile becomes part of it, and its kind changes. A drain has the
 * same number each time the server is drained.
 */
#ifndef MDS_JOBS_JOB_H
#define MDS_JOBS_JOB_H
#include "mds/mds.h"

#define JOB_UNKNOWN UINT64_MAX /* a figure that is not known, or that the kind does not have */
#define JOB_KEPT    256	       /* jobs that are over and remembered */

enum job_kind {
	JOB_REPAIR,
	JOB_MOVE,
	JOB_MIRROR_ADD,
	JOB_MIRROR_REMOVE,
	JOB_RESTRIPE,
	JOB_DRAIN,
	JOB_BALANCE,
	JOB_VERIFY,
	JOB_SCRUB,
	JOB_CHOOSE,
	JOB_REVOKE,
	JOB_PIN,
	JOB_UNPIN,
	JOB_TRASH_EXPIRE,
	JOB_TRASH_EMPTY,
	JOB_TRASH_RESTORE,
	JOB_KINDS
};
enum job_state {
	JOB_WAITING,
	JOB_RUNNING,
	JOB_CANCELLING, /* was cancelled, and is about to end */
	/* over: */
	JOB_DONE,
	JOB_FAILED,
	JOB_CANCELLED,
	JOB_STATES
};

struct job {
	uint64_t j_id;
	enum job_kind j_kind;
	enum job_state j_state;
	uint64_t j_ino;		   /* what it is about, or 0 */
	uint32_t j_ds;		   /* the data server that it is about, or 0 */
	uint64_t j_begun, j_ended; /* s of CLOCK_REALTIME; 0: unknown, or not yet */
	/* JOB_UNKNOWN: not known */
	uint64_t j_bytes, j_bytes_all;
	uint64_t j_objects, j_objects_all;
	uint64_t j_files, j_files_all;
	uint64_t j_rate;     /* bytes a second */
	uint64_t j_eta;	     /* seconds that are left */
	const char *j_stays; /* why it cannot be cancelled; NULL: it can */
	const char *j_phase; /* what it does now, in a word; NULL: no such word */
	char j_waits[300];   /* what it waits for; "": nothing */
	char j_error[300];   /* why it failed, or what failed last; "": nothing */
	char j_result[300];  /* of a job that is over: what came of it; "": nothing to say */
};
struct job_filter {
	int jf_kind;	 /* enum job_kind; -1: any */
	uint64_t jf_ino; /* about this inode; 0: all */
	unsigned jf_max; /* at most so many */
};

const char *job_kind_name(enum job_kind kind);
int job_kind_of(const char *name); /* -1: there is no such kind */
const char *job_state_name(enum job_state state);
/* Does a job of that kind continue after a restart of the server? */
bool job_resumes(enum job_kind kind);
static inline bool job_is_over(const struct job *j)
{
	return j->j_state >= JOB_DONE;
}

/* All functions from here on: any thread. */

/* Notes that a job which another command ended was cancelled. */
void job_was_cancelled(struct mds *m, struct job *j);
int job_open(struct mds *m); /* call it before the loops run and before other jobs are opened */
/* Calls fn for each job that runs or waits. *more: there were more than jf_max. 0 or -errno. */
int job_list(struct mds *m, const struct job_filter *f, void (*fn)(void *arg, const struct job *j),
	     void *arg, bool *more);
/* Copies up to max jobs that are over, the one that ended last first. Returns their number. */
unsigned job_ended_list(struct mds *m, const struct job_filter *f, struct job *out, unsigned max);
/* Finds a job that runs, waits, or is over and still remembered. 0; -ENOENT. */
int job_find(struct mds *m, uint64_t id, struct job *out);

/* Cancels a job. jc_done is called once, on the committer thread or from inside the call; the
 * caller keeps the memory until then. 0: it ends soon, see its state; -ENOENT: no such job; -EBUSY:
 * refused, with one line in jc_why; or the store's error. */
struct job_cancel {
	struct mds *jc_m;
	struct job jc_job; /* the job as it was found */
	void (*jc_done)(struct job_cancel *jc, int err);
	char jc_why[300];
	bool jc_over; /* it never began, and is over with this */
	struct kv_op jc_op;
	struct ds_reg_command jc_word;
};
void job_cancel(struct job_cancel *jc, struct mds *m, uint64_t id,
		void (*done)(struct job_cancel *jc, int err));

/* The numbers of jobs that are about to begin, or that have begun. */
struct lo_repair;
struct lo_pending;
uint64_t job_file_id(uint64_t ino, const struct lo_repair *row);
/* Would a cancel of the move leave any of the file's objects where they are? Not if all that were
 * to move are being copied: then the move goes to its end. */
bool job_move_stops(struct mds *m, const struct lo_map *map);
uint64_t job_restripe_id(uint64_t ino, const struct lo_pending *tw);
uint64_t job_drain_id(uint32_t ds);
/* number: of the run in this boot (verify, balance, choose, revoke). */
uint64_t job_run_id(struct mds *m, enum job_kind kind, uint64_t number);
uint64_t job_scrub_id(uint64_t number);
#endif
