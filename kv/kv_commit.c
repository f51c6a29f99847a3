/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kv_commit.c - the committer thread: group commit.
 *
 * Submitters enqueue without waiting. The committer takes the queued mutations, and those that
 * arrive while it runs them, into one write transaction. It commits that transaction durably once,
 * and answers. No timer collects a batch: the next batch collects while this one is on its way to
 * the disk. KV_BATCH_OPS and kv_space_batch_full() bound a batch.
 *
 * How the committer sleeps without losing a wake-up: the committer sets k_asleep and then looks at
 * the queue; a submitter enqueues and then looks at k_asleep. Each side has a full barrier between
 * its two steps, so one of them sees the other. A submitter makes a system call only when the
 * committer sleeps.
 */
#include "base/clock.h"
#include "base/count.h"
#include "base/crash.h"
#include "base/handover.h"
#include "base/log.h"
#include "common/trace.h"
#include "kv/kv_int.h"
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <semaphore.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <urcu/compiler.h>

static void kv_commit_count(_Atomic uint64_t *c, uint64_t n)
{
	atomic_fetch_add_explicit(c, n, memory_order_relaxed);
}

/* Answers */

/* One message answers a chain of operations. An operation belongs to its owner again when o_done is
 * called. */
static void run_done(struct loop_msg *m)
{
	struct kv_op *op = caa_container_of(m, struct kv_op, o_msg);

	clock_turn_ns(); /* the committer's events are before these */
	while (op) {
		struct cds_wfcq_node *next = op->o_node.next;

		log_request = op->o_request;
		if (log_request)
			TRACE_TURN(mutation_done, 0, op->o_batch, -op->o_err, 0);
		op->o_done(op, op->o_err);
		crash_point("kv-done");
		op = next ? caa_container_of(next, struct kv_op, o_node) : NULL;
	}
}

static void post_answer(struct kv_answer *a)
{
	a->a_first->o_msg.m_run = run_done;
	loop_post(a->a_loop, &a->a_first->o_msg);
}

static struct kv_answer *answer_of(struct kv *kv, struct loop *loop, size_t *n)
{
	for (size_t i = 0; i < *n; i++)
		if (kv->k_answers[i].a_loop == loop)
			return &kv->k_answers[i];
	if (*n == KV_BATCH_LOOPS) {
		for (size_t i = 0; i < *n; i++)
			post_answer(&kv->k_answers[i]);
		*n = 0;
	}
	kv->k_answers[*n] = (struct kv_answer){.a_loop = loop};
	return &kv->k_answers[(*n)++];
}

/* batch_err is the result of every member; with 0 each member gets its own result. */
static void answer_batch(struct kv *kv, int batch_err)
{
	size_t n = 0;

	for (size_t i = 0; i < kv->k_batch_n; i++) {
		struct kv_op *op = kv->k_batch[i];
		struct kv_answer *a;

		if (batch_err)
			op->o_err = batch_err;
		op->o_batch = kv->k_batches;
		op->o_node.next = NULL;
		if (!op->o_loop) { /* kv_run_sync */
			op->o_done(op, op->o_err);
			continue;
		}
		a = answer_of(kv, op->o_loop, &n);
		if (a->a_first)
			a->a_last->o_node.next = &op->o_node;
		else
			a->a_first = op;
		a->a_last = op;
	}
	for (size_t i = 0; i < n; i++) {
		post_answer(&kv->k_answers[i]);
		crash_point("kv-answer");
	}
}

/* The queue */

static bool queued(struct kv *kv)
{
	return !cds_wfcq_empty(&kv->k_own_head, &kv->k_own_tail) ||
	       !cds_wfcq_empty(&kv->k_head, &kv->k_tail);
}

static struct kv_op *next_op(struct kv *kv)
{
	struct cds_wfcq_node *node;

	if (cds_wfcq_empty(&kv->k_own_head, &kv->k_own_tail))
		__cds_wfcq_splice_blocking(&kv->k_own_head, &kv->k_own_tail, &kv->k_head,
					   &kv->k_tail);
	node = __cds_wfcq_dequeue_blocking(&kv->k_own_head, &kv->k_own_tail);
	if (!node)
		return NULL;
	TAKEN_OVER(caa_container_of(node, struct kv_op, o_node));
	return caa_container_of(node, struct kv_op, o_node);
}

static void futex(_Atomic uint32_t *word, int what, uint32_t val)
{
	syscall(SYS_futex, (uint32_t *)word, what | FUTEX_PRIVATE_FLAG, val, NULL, NULL, 0);
}

static void wake(struct kv *kv)
{
	atomic_thread_fence(memory_order_seq_cst);
	if (atomic_load_explicit(&kv->k_asleep, memory_order_relaxed) &&
	    atomic_exchange(&kv->k_asleep, 0))
		futex(&kv->k_asleep, FUTEX_WAKE, 1);
}

/* Sleeps while there is nothing to do. Returns false when the committer has to stop and the queue
 * is empty. */
static bool wait_for_ops(struct kv *kv)
{
	for (;;) {
		/* Read this before the queue, so that the committer sees what was submitted before
		 * the stop. */
		bool stop = atomic_load(&kv->k_stop);

		if (queued(kv))
			return true;
		if (stop)
			return false;
		atomic_store(&kv->k_asleep, 1);
		atomic_thread_fence(memory_order_seq_cst);
		if (!queued(kv) && !atomic_load(&kv->k_stop))
			futex(&kv->k_asleep, FUTEX_WAIT, 1);
		atomic_store(&kv->k_asleep, 0);
	}
}

/* A batch */

/* Runs one member. Returns 0 to go on (a refusal concerns only the member), or a negative errno if
 * the batch cannot be committed. */
static int run_one(struct kv *kv, struct kv_op *op)
{
	struct kv_txn *t = &kv->k_txn;
	int rc;

	t->t_wrote = false;
	log_request = op->o_request;
	rc = op->o_run(op, t);
	crash_point("kv-run");
	if (rc > 0) {
		log_error("kv: a mutation returned %d, which is not an errno", rc);
		rc = -EINVAL;
	}
	op->o_err = rc;
	if (t->t_err)
		return t->t_err;
	if (rc == 0) {
		kv->k_dirty |= t->t_wrote;
		return 0;
	}
	kv_commit_count(&kv->k_refused, 1);
	if (!t->t_wrote)
		return 0;
	log_error("kv: a mutation wrote before it failed (%s): a batch of %zu is aborted",
		  strerror(-rc), kv->k_batch_n);
	return rc;
}

static int run_ops(struct kv *kv)
{
	struct kv_op *op;
	int rc = 0;

	while (rc == 0 && kv->k_batch_n < KV_BATCH_OPS && kv->k_wlog.wl_len < KV_RECORD_FULL &&
	       !kv_space_batch_full(kv)) {
		op = next_op(kv);
		if (!op)
			break;
		kv->k_batch[kv->k_batch_n++] = op;
		rc = run_one(kv, op);
	}
	log_request = 0;
	return rc;
}

static int show_hook(struct kv *kv)
{
	struct kv_writeset ws;
	int rc;

	if (!kv->k_hook || !kv->k_dirty)
		return 0;
	rc = kv_wlog_list(&kv->k_wlog);
	if (rc)
		return rc;
	ws.ws_v = kv->k_wlog.wl_v;
	ws.ws_n = kv->k_wlog.wl_n;
	ws.ws_batch = kv_redo_next(kv);
	return kv->k_hook(kv->k_hook_arg, &ws);
}

static void commit_trace(struct kv *kv, uint64_t now, int rc, uint64_t run_ns, uint64_t commit_ns)
{
	TRACE_AT(now, commit_batch, 0, ++kv->k_batches,
		 (uint64_t)kv->k_batch_n << 32 | (uint32_t)-rc,
		 run_ns / 1000 << 32 | (uint32_t)(commit_ns / 1000));
}

static int run_batch(struct kv *kv)
{
	uint64_t start = clock_mono_ns(), ran, now;
	bool dirty;
	int rc;

	rc = run_ops(kv);
	if (rc == 0)
		rc = show_hook(kv);
	COUNT_PART(COUNT_PART_MEMBERS);
	ran = clock_mono_ns();
	kv_commit_count(&kv->k_run_ns, ran - start);
	dirty = kv->k_dirty;
	if (rc || !dirty) {
		kv_txn_abort(kv);
		commit_trace(kv, ran, rc, ran - start, 0);
		return rc;
	}
	crash_point("kv-commit");
	rc = kv->k_log.lg_on ? kv_redo_commit(kv) : kv_txn_commit(kv);
	now = clock_mono_ns();
	if (rc == 0) {
		crash_point("kv-committed");
		kv_commit_count(&kv->k_commits, 1);
		kv_commit_count(&kv->k_sync_ns, now - ran);
	}
	commit_trace(kv, now, rc, ran - start, now - ran);
	return rc;
}

/* No transaction can begin (out of memory): answer the queued mutations without running them. */
static void take_all(struct kv *kv)
{
	while (kv->k_batch_n < KV_BATCH_OPS) {
		struct kv_op *op = next_op(kv);

		if (!op)
			return;
		kv->k_batch[kv->k_batch_n++] = op;
	}
}

static void *committer(void *arg)
{
	struct kv *kv = arg;

	while (wait_for_ops(kv)) {
		int rc;

		kv->k_batch_n = 0;
		kv->k_dirty = false;
		COUNT_PART(COUNT_PART_SLEEP);
		rc = kv_txn_begin(kv);
		COUNT_PART(COUNT_PART_STORE);
		if (rc == 0)
			rc = run_batch(kv);
		else
			take_all(kv);
		if (rc)
			log_error("kv: %s: a batch of %zu failed: %s", kv->k_path, kv->k_batch_n,
				  strerror(-rc));
		COUNT_PART(COUNT_PART_COMMIT);
		kv_commit_count(&kv->k_ops, kv->k_batch_n);
		answer_batch(kv, rc);
		kv_wlog_reset(&kv->k_wlog);
		COUNT_PART(COUNT_PART_ANSWERS);
	}
	return NULL;
}

int kv_committer_start(struct kv *kv)
{
	sigset_t all, old;
	int rc;

	cds_wfcq_init(&kv->k_head, &kv->k_tail);
	cds_wfcq_init(&kv->k_own_head, &kv->k_own_tail);
	/* The main thread handles all signals. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	rc = pthread_create(&kv->k_thread, NULL, committer, kv);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (rc)
		return -rc;
	pthread_setname_np(kv->k_thread, "kv-commit");
	atomic_store(&kv->k_writes, true);
	return 0;
}

void kv_committer_stop(struct kv *kv)
{
	atomic_store(&kv->k_stop, true);
	wake(kv);
	pthread_join(kv->k_thread, NULL);
}

void kv_submit(struct kv *kv, struct kv_op *op)
{
	if (!atomic_load_explicit(&kv->k_writes, memory_order_acquire)) {
		op->o_err = -EROFS;
		op->o_node.next = NULL;
		op->o_request = op->o_batch = 0;
		op->o_msg.m_run = run_done;
		if (op->o_loop)
			loop_post(op->o_loop, &op->o_msg);
		else
			op->o_done(op, op->o_err);
		return;
	}
	COUNT(COUNT_MESSAGES);
	COUNT_LINE(&kv->k_tail);
	op->o_request = log_request;
	cds_wfcq_node_init(&op->o_node);
	HANDED_OVER(op);
	cds_wfcq_enqueue(&kv->k_head, &kv->k_tail, &op->o_node);
	wake(kv);
}

struct sync_op {
	struct kv_op so_op;
	int (*so_run)(void *arg, struct kv_txn *t);
	void *so_arg;
	sem_t so_done;
	int so_err;
};

static int sync_run(struct kv_op *op, struct kv_txn *t)
{
	struct sync_op *so = caa_container_of(op, struct sync_op, so_op);

	return so->so_run(so->so_arg, t);
}

static void sync_done(struct kv_op *op, int err)
{
	struct sync_op *so = caa_container_of(op, struct sync_op, so_op);

	so->so_err = err;
	sem_post(&so->so_done);
}

int kv_run_sync(struct kv *kv, int (*run)(void *arg, struct kv_txn *t), void *arg)
{
	struct sync_op so = {
		.so_op = {.o_run = sync_run, .o_done = sync_done},
		.so_run = run,
		.so_arg = arg,
	};

	sem_init(&so.so_done, 0, 0);
	kv_submit(kv, &so.so_op);
	while (sem_wait(&so.so_done) < 0 && errno == EINTR)
		;
	sem_destroy(&so.so_done);
	return so.so_err;
}

void kv_set_batch_hook(struct kv *kv, int (*hook)(void *arg, const struct kv_writeset *ws),
		       void *arg)
{
	kv->k_hook_arg = arg;
	kv->k_hook = hook;
}
