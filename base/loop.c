/* SPDX-License-Identifier: Apache-2.0 */
/*
 * loop.c - see loop.h.
 *
 * The ring is made disabled, and loop_run enables it: the kernel takes the enabling thread for the
 * only submitter. (DEFER_TASKRUN: the kernel works off completions when the loop asks, never in the
 * middle of the loop's work.) What the thread that sets things up queues before loop_run waits in
 * the submission queue until then.
 *
 * Waking: a poster enqueues and then looks at 'sleeping'; the loop sets 'sleeping' and then looks
 * at the queue. Both orders are sequentially consistent, so one of the two sees the other. An awake
 * loop costs its posters no system call.
 */
#include "base/clock.h"
#include "base/count.h"
#include "base/handover.h"
#include "base/loop.h"
#include "base/log.h"
#include "base/rcu.h"
#include <assert.h>
#include <errno.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#define LOOP_MIN_ENTRIES 256

struct loop {
	struct io_uring l_ring;
	bool l_disabled;	/* ring not enabled yet */
	struct io_uring l_poll; /* valid if l_polls; l_polling: I/O in it */
	bool l_polls;
	unsigned l_polling;
	bool l_running;
	_Atomic int l_stop;
	int l_eventfd;
	uint64_t l_wakes; /* the eventfd is read into it */
	struct loop_io l_wake_io;
	uint64_t l_now_ns;
	struct loop_timer **l_heap; /* l_heap[0] is due first */
	uint32_t l_ntimers, l_heap_cap;
	struct loop_hook *l_hooks, **l_hooks_end;
	struct {
		void *p;
		void (*drop)(void *p);
	} l_slot[LOOP_SLOTS];
	/* Keep what posters touch off the lines above. */
	_Alignas(64) struct cds_wfcq_tail l_tail;
	_Atomic int l_sleeping;
	_Alignas(64) struct cds_wfcq_head l_head;
};

static _Thread_local struct loop *loop_this;

/* ---- messages ---- */

static void wake_arm(struct loop *l)
{
	struct io_uring_sqe *sqe = loop_sqe(l);

	io_uring_prep_read(sqe, l->l_eventfd, &l->l_wakes, sizeof l->l_wakes, 0);
	loop_arm(sqe, &l->l_wake_io);
}

static void wake_done(struct loop_io *io, int res, uint32_t flags)
{
	struct loop *l = caa_container_of(io, struct loop, l_wake_io);

	(void)flags;
	if (res < 0 && res != -EINTR && res != -EAGAIN)
		log_fatal("loop: reading the wake-up descriptor: %s", strerror(-res));
	wake_arm(l);
}

static void loop_wake(struct loop *l)
{
	uint64_t one = 1;

	if (atomic_exchange(&l->l_sleeping, 0) == 0)
		return;
	if (write(l->l_eventfd, &one, sizeof one) < 0 && errno != EAGAIN)
		log_fatal("loop: wake-up: %s", strerror(errno));
}

void loop_post(struct loop *l, struct loop_msg *m)
{
	cds_wfcq_node_init(&m->m_node);
	HANDED_OVER(m);
	COUNT(COUNT_MESSAGES);
	COUNT_LINE(&l->l_tail);
	cds_wfcq_enqueue(&l->l_head, &l->l_tail, &m->m_node);
	atomic_thread_fence(memory_order_seq_cst);
	loop_wake(l);
}

/* Runs only the messages that were there at the start of the turn: a message that posts itself
 * again does not starve the I/O. */
static void run_messages(struct loop *l)
{
	struct cds_wfcq_head head;
	struct cds_wfcq_tail tail;
	struct cds_wfcq_node *node;

	if (cds_wfcq_empty(&l->l_head, &l->l_tail))
		return;
	cds_wfcq_init(&head, &tail);
	__cds_wfcq_splice_blocking(&head, &tail, &l->l_head, &l->l_tail);
	while ((node = __cds_wfcq_dequeue_blocking(&head, &tail))) {
		struct loop_msg *m = caa_container_of(node, struct loop_msg, m_node);

		TAKEN_OVER(m);
		log_request = 0;
		m->m_run(m);
	}
	cds_wfcq_destroy(&head, &tail);
}

/* ---- timers: a binary heap ---- */

static void heap_set(struct loop *l, uint32_t i, struct loop_timer *t)
{
	l->l_heap[i] = t;
	t->t_pos = i + 1;
}

static void heap_up(struct loop *l, uint32_t i)
{
	struct loop_timer *t = l->l_heap[i];

	while (i) {
		uint32_t up = (i - 1) / 2;

		if (l->l_heap[up]->t_due_ns <= t->t_due_ns)
			break;
		heap_set(l, i, l->l_heap[up]);
		i = up;
	}
	heap_set(l, i, t);
}

static void heap_down(struct loop *l, uint32_t i)
{
	struct loop_timer *t = l->l_heap[i];

	for (;;) {
		uint32_t kid = 2 * i + 1;

		if (kid >= l->l_ntimers)
			break;
		if (kid + 1 < l->l_ntimers &&
		    l->l_heap[kid + 1]->t_due_ns < l->l_heap[kid]->t_due_ns)
			kid++;
		if (t->t_due_ns <= l->l_heap[kid]->t_due_ns)
			break;
		heap_set(l, i, l->l_heap[kid]);
		i = kid;
	}
	heap_set(l, i, t);
}

void loop_timer_stop(struct loop *l, struct loop_timer *t)
{
	uint32_t i = t->t_pos - 1;
	struct loop_timer *last;

	if (!t->t_pos)
		return;
	t->t_pos = 0;
	last = l->l_heap[--l->l_ntimers];
	if (last == t)
		return;
	heap_set(l, i, last);
	heap_up(l, i);
	heap_down(l, last->t_pos - 1);
}

void loop_timer_start(struct loop *l, struct loop_timer *t, uint64_t msec)
{
	uint64_t now = loop_now_ns(l);

	loop_timer_stop(l, t);
	t->t_due_ns = msec > (UINT64_MAX - now) / 1000000u ? UINT64_MAX : now + msec * 1000000u;
	if (l->l_ntimers == l->l_heap_cap) {
		uint32_t cap = l->l_heap_cap ? l->l_heap_cap * 2 : 64;
		struct loop_timer **heap = realloc(l->l_heap, cap * sizeof *heap);

		if (!heap)
			log_fatal("loop: out of memory for timers");
		l->l_heap = heap;
		l->l_heap_cap = cap;
	}
	l->l_heap[l->l_ntimers++] = t;
	heap_up(l, l->l_ntimers - 1);
}

/* Runs only the timers that were due at the start of the turn. A timer that is started again with 0
 * ms waits for the next turn. */
static void run_timers(struct loop *l)
{
	uint32_t most = l->l_ntimers;

	while (most-- && l->l_ntimers && l->l_heap[0]->t_due_ns <= l->l_now_ns) {
		struct loop_timer *t = l->l_heap[0];

		loop_timer_stop(l, t);
		log_request = 0;
		t->t_fire(t);
	}
}

/* ---- the ring ---- */

static int ring_init(struct loop *l, unsigned entries)
{
	static const unsigned tries[] = {
		IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_R_DISABLED,
		IORING_SETUP_COOP_TASKRUN,
		0,
	};
	int err = -EINVAL;

	for (size_t i = 0; i < sizeof tries / sizeof tries[0] && err == -EINVAL; i++) {
		struct io_uring_params p = {
			.flags = tries[i] | IORING_SETUP_CQSIZE | IORING_SETUP_CLAMP,
			.cq_entries = entries * 8,
		};

		err = io_uring_queue_init_params(entries, &l->l_ring, &p);
		l->l_disabled = p.flags & IORING_SETUP_R_DISABLED;
	}
	return err;
}

int loop_create(struct loop **out, unsigned entries)
{
	struct loop *l = aligned_alloc(64, (sizeof *l + 63) & ~(size_t)63);
	int err;

	if (!l)
		return -ENOMEM;
	memset(l, 0, sizeof *l);
	l->l_hooks_end = &l->l_hooks;
	cds_wfcq_init(&l->l_head, &l->l_tail);
	l->l_wake_io.lio_done = wake_done;
	l->l_eventfd = eventfd(0, EFD_CLOEXEC);
	if (l->l_eventfd < 0) {
		err = -errno;
		goto out_free;
	}
	err = ring_init(l, entries < LOOP_MIN_ENTRIES ? LOOP_MIN_ENTRIES : entries);
	if (err)
		goto out_fd;
	wake_arm(l);
	*out = l;
	return 0;
out_fd:
	close(l->l_eventfd);
out_free:
	free(l);
	return err;
}

void loop_destroy(struct loop *l)
{
	assert(!l->l_running);
	io_uring_queue_exit(&l->l_ring);
	if (l->l_polls)
		io_uring_queue_exit(&l->l_poll);
	for (int i = 0; i < LOOP_SLOTS; i++)
		if (l->l_slot[i].drop)
			l->l_slot[i].drop(l->l_slot[i].p);
	close(l->l_eventfd);
	cds_wfcq_destroy(&l->l_head, &l->l_tail);
	free(l->l_heap);
	free(l);
}

struct io_uring *loop_ring(struct loop *l)
{
	return &l->l_ring;
}

struct io_uring_sqe *loop_sqe(struct loop *l)
{
	struct io_uring_sqe *sqe;

	while (!(sqe = io_uring_get_sqe(&l->l_ring))) {
		int n;

		if (l->l_disabled)
			log_fatal("loop: more I/O queued before the loop runs than its ring holds");
		n = io_uring_submit(&l->l_ring);
		if (n < 0 && n != -EINTR && n != -EAGAIN && n != -EBUSY)
			log_fatal("loop: io_uring_submit: %s", strerror(-n));
		if (n <= 0)
			sched_yield();
	}
	/* The memory is reused: a caller that forgets loop_arm must not complete another
	 * request. */
	sqe->user_data = 0;
	return sqe;
}

int loop_poll_create(struct loop *l, unsigned entries)
{
	struct io_uring_params p = {.flags = IORING_SETUP_IOPOLL | IORING_SETUP_CLAMP};
	int err = io_uring_queue_init_params(entries, &l->l_poll, &p);

	l->l_polls = !err;
	return err;
}

struct io_uring *loop_poll_ring(struct loop *l)
{
	return l->l_polls ? &l->l_poll : NULL;
}

static void poll_enter(struct loop *l)
{
	int n = io_uring_submit_and_get_events(&l->l_poll);

	if (n < 0 && n != -EINTR && n != -EAGAIN && n != -EBUSY)
		log_fatal("loop: io_uring_enter to poll: %s", strerror(-n));
}

struct io_uring_sqe *loop_poll_sqe(struct loop *l)
{
	struct io_uring_sqe *sqe;

	while (!(sqe = io_uring_get_sqe(&l->l_poll)))
		poll_enter(l);
	sqe->user_data = 0;
	l->l_polling++;
	return sqe;
}

/* Submits what is to be polled for, looks once at the devices' queues, and reaps. */
static void poll_turn(struct loop *l)
{
	unsigned n;

	if (!l->l_polling)
		return;
	poll_enter(l);
	for (n = io_uring_cq_ready(&l->l_poll); n--;) {
		struct io_uring_cqe *cqe =
			&l->l_poll.cq.cqes[*l->l_poll.cq.khead & *l->l_poll.cq.kring_mask];
		struct loop_io *io = io_uring_cqe_get_data(cqe);
		int res = cqe->res;

		io_uring_cq_advance(&l->l_poll, 1);
		l->l_polling--;
		log_request = 0;
		io->lio_done(io, res, 0);
	}
}

static void loop_reap(struct loop *l)
{
	unsigned n = io_uring_cq_ready(&l->l_ring);

	while (n--) {
		struct io_uring_cqe *cqe;
		struct loop_io *io;
		uint32_t flags;
		int res;

		if (io_uring_peek_cqe(&l->l_ring, &cqe))
			return;
		io = io_uring_cqe_get_data(cqe);
		res = cqe->res;
		flags = cqe->flags;
		io_uring_cqe_seen(&l->l_ring, cqe);
		log_request = 0;
		if (io)
			io->lio_done(io, res, flags);
	}
}

/* Submits; sleeps until a completion, a message or the next timer if there is nothing else to
 * do. */
static void submit_and_wait(struct loop *l)
{
	struct __kernel_timespec ts, *wait = NULL;
	struct io_uring_cqe *cqe;
	bool idle = true;
	int n;

	if (l->l_ntimers) {
		uint64_t now = clock_mono_ns(), due = l->l_heap[0]->t_due_ns;

		idle = due > now;
		ts.tv_sec = (int64_t)(idle ? (due - now) / 1000000000u : 0);
		ts.tv_nsec = (int64_t)(idle ? (due - now) % 1000000000u : 0);
		wait = &ts;
	}
	atomic_store(&l->l_sleeping, 1);
	atomic_thread_fence(memory_order_seq_cst);
	if (!idle || l->l_polling || atomic_load(&l->l_stop) ||
	    !cds_wfcq_empty(&l->l_head, &l->l_tail) || io_uring_cq_ready(&l->l_ring)) {
		atomic_store(&l->l_sleeping, 0);
		n = io_uring_submit_and_get_events(&l->l_ring);
	} else if (wait) {
		n = io_uring_submit_and_wait_timeout(&l->l_ring, &cqe, 1, wait, NULL);
	} else {
		n = io_uring_submit_and_wait(&l->l_ring, 1);
	}
	atomic_store(&l->l_sleeping, 0);
	if (n < 0 && n != -ETIME && n != -EINTR && n != -EAGAIN && n != -EBUSY)
		log_fatal("loop: io_uring_enter: %s", strerror(-n));
}

void loop_run(struct loop *l)
{
	assert(!loop_this);
	loop_this = l;
	l->l_running = true;
	urcu_memb_register_thread();
	if (l->l_disabled) {
		/* Not io_uring_enable_rings(): liburing 2.3 declares it, but its shared library
		 * lacks it. */
		if (syscall(__NR_io_uring_register, l->l_ring.ring_fd, IORING_REGISTER_ENABLE_RINGS,
			    NULL, 0) < 0)
			log_fatal("loop: enabling the ring: %s", strerror(errno));
		l->l_disabled = false;
	}
	while (!atomic_load(&l->l_stop)) {
		l->l_now_ns = clock_turn_ns();
		loop_reap(l);
		poll_turn(l);
		run_messages(l);
		run_timers(l);
		log_request = 0;
		for (struct loop_hook *h = l->l_hooks; h; h = h->h_next)
			h->h_run(h);
		submit_and_wait(l);
	}
	atomic_store(&l->l_stop, 0);
	urcu_memb_unregister_thread();
	l->l_running = false;
	loop_this = NULL;
}

void loop_stop(struct loop *l)
{
	atomic_store(&l->l_stop, 1);
	loop_wake(l);
}

struct loop *loop_self(void)
{
	return loop_this;
}

void loop_at_turn_end(struct loop *l, struct loop_hook *h)
{
	h->h_next = NULL;
	*l->l_hooks_end = h;
	l->l_hooks_end = &h->h_next;
}

uint64_t loop_now_ns(struct loop *l)
{
	return l->l_running ? l->l_now_ns : clock_mono_ns();
}

void *loop_local(struct loop *l, enum loop_slot slot)
{
	return l->l_slot[slot].p;
}

void loop_set_local(struct loop *l, enum loop_slot slot, void *p, void (*drop)(void *p))
{
	l->l_slot[slot].p = p;
	l->l_slot[slot].drop = drop;
}
