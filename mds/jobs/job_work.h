/* SPDX-License-Identifier: Apache-2.0 */
/*
 * job_work.h - the work of a job that copies a file while clients write it, for both engines
 * (docs/decisions/copy-engines.md): repair.c and restripe.c. It has the waits, the patience with
 * data servers, and the progress as any thread sees it. The rate is job_repair_pace().
 *
 * The row of such a job in the store is all that outlives a restart. The queue finds the row again
 * (repair_queue.c, job_restripe_tick). A cancel changes or deletes the row and knows no engine
 * (job_file.c). The engine looks at the row or at the map before each step, and in the transaction
 * that ends the work.
 */
#ifndef MDS_JOBS_JOB_WORK_H
#define MDS_JOBS_JOB_WORK_H
#include "base/loop.h"
#include "kv/kv.h"
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#define JOB_AGAIN_MS 500 /* until a server or a file is asked again */

enum job_step {
	/* repair.c */
	JOB_STEP_RECALL,
	JOB_STEP_BEGIN,
	JOB_STEP_SWITCH,
	/* restripe.c */
	JOB_STEP_WATCH,
	JOB_STEP_CHANGES,
	JOB_STEP_FREEZE,
	/* both */
	JOB_STEP_COPY,
	JOB_STEP_END,
	JOB_STEPS
};
const char *job_step_name(enum job_step step);

struct job_progress {
	uint64_t wp_ino; /* 0: no file */
	enum job_step wp_step;
	double wp_taken;	   /* when the file was taken in hand; s of CLOCK_REALTIME */
	uint64_t wp_done, wp_size; /* bytes; wp_size: 0 while unknown */
	uint64_t wp_from;	   /* of wp_done: where the copy began; after a restart not 0 */
	uint64_t wp_since_ms;	   /* since when it copies; ms of CLOCK_MONOTONIC; 0: not yet */
	uint64_t wp_copied;	   /* bytes that data servers wrote */
};
/* Bytes a second since the copy began. 0: not known. Any thread. */
double job_progress_rate(const struct job_progress *p);

/* The engine keeps it in its own struct. The fields are job_work.c's, and jw_op is the caller's
 * from job_work_submit until done. */
struct job_work {
	struct kv *jw_kv;
	struct loop *jw_loop;
	struct kv_op jw_op;
	struct loop_timer jw_timer;
	void (*jw_wake)(struct job_work *w);
	uint64_t jw_since_ms;	  /* since when it waits for a server; 0: it does not */
	pthread_mutex_t *jw_lock; /* protects *jw_progress: the loop writes it, any thread reads */
	struct job_progress *jw_progress;
};

/* All functions from here on: on the loop. */

/* w is zeroed. lock and progress are the engine's, for as long as w is used. */
void job_work_open(struct job_work *w, struct kv *kv, struct loop *loop, pthread_mutex_t *lock,
		   struct job_progress *progress);
/* Takes a file in hand; 0: it has none any more. */
void job_work_take(struct job_work *w, uint64_t ino);

/* run is called on the committer thread with w's jw_op, then done on the loop. */
void job_work_submit(struct job_work *w, int (*run)(struct kv_op *op, struct kv_txn *t),
		     void (*done)(struct kv_op *op, int err));
void job_work_later(struct job_work *w, uint64_t ms, void (*wake)(struct job_work *w));
/* Notes that the job waits, if it does not yet. False: it has waited for most_ms. */
bool job_work_waits(struct job_work *w, uint64_t most_ms);
/* Calls wake after JOB_AGAIN_MS. False: the job has waited too long, and wake is not called. */
bool job_work_again(struct job_work *w, void (*wake)(struct job_work *w));
/* The job does not wait any more: the next wait begins from nothing. */
void job_work_goes_on(struct job_work *w);

void job_work_step(struct job_work *w, enum job_step step);
/* A copy of so many bytes begins at from; size: 0 if it is not known. */
void job_work_copies(struct job_work *w, uint64_t from, uint64_t size);
/* The copy got as far as done, and data servers wrote so many bytes more. */
void job_work_copied(struct job_work *w, uint64_t done, uint64_t size, uint64_t written);
#endif
