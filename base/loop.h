/* SPDX-License-Identifier: Apache-2.0 */
/*
 * loop.h - one event loop per thread, on io_uring.
 *
 * A loop belongs to the thread that runs it. All functions except loop_post() and loop_stop() are
 * called on that thread. I/O is submitted as SQEs whose user data is a struct loop_io; its lio_done
 * runs once per completion. The loop submits SQEs in one system call at the end of a turn. A turn
 * is: reap completions (also polled ones), run posted messages, fire due timers, run the turn-end
 * hooks, submit and wait.
 *
 * Caveats:
 * - lio_done, m_run and t_fire must not block.
 * - A loop_io is in use until its (last) completion: its owner keeps the memory.
 */
#ifndef BASE_LOOP_H
#define BASE_LOOP_H
#include <liburing.h>
#include <stdbool.h>
#include <stdint.h>
#include <urcu/wfcqueue.h>

struct loop;

struct loop_io {
	/* res: as io_uring gives it (negative errno on failure); flags: cqe flags. */
	void (*lio_done)(struct loop_io *io, int res, uint32_t flags);
};

/* A message to a loop. The memory is the loop's until m_run is called. */
struct loop_msg {
	struct cds_wfcq_node m_node;
	void (*m_run)(struct loop_msg *m);
};

struct loop_timer {
	void (*t_fire)(struct loop_timer *t);
	uint64_t t_due_ns; /* CLOCK_MONOTONIC; the loop's own */
	uint32_t t_pos;	   /* place in the heap + 1, 0 when idle */
};

struct loop_hook {
	void (*h_run)(struct loop_hook *h);
	struct loop_hook *h_next;
};

/* entries: size of the submission queue, a power of two. Returns 0 or a negative errno. */
int loop_create(struct loop **out, unsigned entries);
/* After loop_run has returned, or before it was called. No other thread may be in loop_post() or
 * loop_stop(): a message may run before the thread that posted it leaves loop_post(). */
void loop_destroy(struct loop *l);
/* Runs until loop_stop(); the calling thread becomes the owner. Registers the thread with RCU
 * (urcu-memb). */
void loop_run(struct loop *l);
/* Any thread. */
void loop_stop(struct loop *l);
/* The loop that runs on this thread, or NULL. */
struct loop *loop_self(void);

/* A free SQE whose completion goes to io; never NULL. When the ring is full, it submits what is
 * queued. The caller first fills the SQE with io_uring_prep_*() and AFTER that calls loop_arm(sqe,
 * io), because prep clears the user data. */
struct io_uring_sqe *loop_sqe(struct loop *l);
static inline void loop_arm(struct io_uring_sqe *sqe, struct loop_io *io)
{
	io_uring_sqe_set_data(sqe, io);
}
/* The ring itself, for registrations. */
struct io_uring *loop_ring(struct loop *l);

/* Gives l a second ring, for polled reads and writes past the page cache (IORING_SETUP_IOPOLL);
 * before l runs. The loop does not sleep while some of them are in flight. Returns 0 or a negative
 * errno. */
int loop_poll_create(struct loop *l, unsigned entries);
/* NULL: there is none. */
struct io_uring *loop_poll_ring(struct loop *l);
/* As loop_sqe, of the polled ring. */
struct io_uring_sqe *loop_poll_sqe(struct loop *l);

/* Any thread: m->m_run runs on l's thread. Wait-free enqueue; wakes the loop only when it
 * sleeps. */
void loop_post(struct loop *l, struct loop_msg *m);

/* Starts (or moves) a one-shot timer. The caller owns the memory, zeroes it before the first use
 * and sets t_fire. */
void loop_timer_start(struct loop *l, struct loop_timer *t, uint64_t msec);
void loop_timer_stop(struct loop *l, struct loop_timer *t);

/* Runs h_run at the end of every turn, before the loop may sleep; hooks run in the order they were
 * added. */
void loop_at_turn_end(struct loop *l, struct loop_hook *h);

/* CLOCK_MONOTONIC in nanoseconds, read once per turn. */
uint64_t loop_now_ns(struct loop *l);

/* One pointer per module and loop, for a module's own per-loop state (free lists, hooks).
 * loop_destroy calls drop(p), on its thread; drop may be NULL. */
enum loop_slot {
	LOOP_SLOT_POOL,
	LOOP_SLOT_RPC,
	LOOP_SLOT_RDMA,
	LOOP_SLOT_STORE,
	LOOP_SLOT_HOLDS,
	LOOP_SLOT_SERVICE,
	LOOP_SLOTS
};
void *loop_local(struct loop *l, enum loop_slot slot);
void loop_set_local(struct loop *l, enum loop_slot slot, void *p, void (*drop)(void *p));
#endif
