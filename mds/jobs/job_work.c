/* SPDX-License-Identifier: Apache-2.0 */
/* job_work.c - the waits and the progress of jobs that copy files. See job_work.h. */
#include "mds/jobs/job_work.h"
#include "mds/jobs/job_int.h"
#include "base/clock.h"
#include <urcu/compiler.h>

/* For a data server that does not answer: the limits of two steps (layout/repair_row.c) at least.
 * Otherwise a target would be blamed for a source that hangs. */
#define PATIENCE_MS 70000

const char *job_step_name(enum job_step step)
{
	static const char *const name[JOB_STEPS] = {
		[JOB_STEP_RECALL] = "recall",	[JOB_STEP_BEGIN] = "begin",
		[JOB_STEP_SWITCH] = "switch",	[JOB_STEP_WATCH] = "watch",
		[JOB_STEP_CHANGES] = "changes", [JOB_STEP_FREEZE] = "freeze",
		[JOB_STEP_COPY] = "copy",	[JOB_STEP_END] = "end"};

	return name[step];
}

double job_progress_rate(const struct job_progress *p)
{
	uint64_t ms = p->wp_since_ms ? clock_mono_ms() - p->wp_since_ms : 0;

	return ms ? (double)(p->wp_done - p->wp_from) * 1000 / (double)ms : 0;
}

void job_work_open(struct job_work *w, struct kv *kv, struct loop *loop, pthread_mutex_t *lock,
		   struct job_progress *progress)
{
	w->jw_kv = kv;
	w->jw_loop = loop;
	w->jw_lock = lock;
	w->jw_progress = progress;
}

void job_work_take(struct job_work *w, uint64_t ino)
{
	w->jw_since_ms = 0;
	pthread_mutex_lock(w->jw_lock);
	*w->jw_progress = (struct job_progress){.wp_ino = ino, .wp_taken = ino ? job_now() : 0};
	pthread_mutex_unlock(w->jw_lock);
}

/* ---- waits ---- */

void job_work_submit(struct job_work *w, int (*run)(struct kv_op *op, struct kv_txn *t),
		     void (*done)(struct kv_op *op, int err))
{
	w->jw_op = (struct kv_op){.o_run = run, .o_done = done, .o_loop = w->jw_loop};
	kv_submit(w->jw_kv, &w->jw_op);
}

static void job_work_woken(struct loop_timer *t)
{
	struct job_work *w = caa_container_of(t, struct job_work, jw_timer);

	w->jw_wake(w);
}

void job_work_later(struct job_work *w, uint64_t ms, void (*wake)(struct job_work *w))
{
	w->jw_wake = wake;
	w->jw_timer.t_fire = job_work_woken;
	loop_timer_start(w->jw_loop, &w->jw_timer, ms);
}

bool job_work_waits(struct job_work *w, uint64_t most_ms)
{
	if (!w->jw_since_ms)
		w->jw_since_ms = clock_mono_ms();
	return clock_mono_ms() - w->jw_since_ms < most_ms;
}

bool job_work_again(struct job_work *w, void (*wake)(struct job_work *w))
{
	if (!job_work_waits(w, PATIENCE_MS))
		return false;
	job_work_later(w, JOB_AGAIN_MS, wake);
	return true;
}

void job_work_goes_on(struct job_work *w)
{
	w->jw_since_ms = 0;
}

/* ---- progress ---- */

void job_work_step(struct job_work *w, enum job_step step)
{
	pthread_mutex_lock(w->jw_lock);
	w->jw_progress->wp_step = step;
	pthread_mutex_unlock(w->jw_lock);
}

void job_work_copies(struct job_work *w, uint64_t from, uint64_t size)
{
	pthread_mutex_lock(w->jw_lock);
	w->jw_progress->wp_from = w->jw_progress->wp_done = from;
	w->jw_progress->wp_size = size;
	w->jw_progress->wp_since_ms = clock_mono_ms();
	pthread_mutex_unlock(w->jw_lock);
}

void job_work_copied(struct job_work *w, uint64_t done, uint64_t size, uint64_t written)
{
	pthread_mutex_lock(w->jw_lock);
	w->jw_progress->wp_done = done;
	w->jw_progress->wp_size = size;
	w->jw_progress->wp_copied += written;
	pthread_mutex_unlock(w->jw_lock);
}
