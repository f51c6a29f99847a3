/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store_lease.h - says until when this process holds its store.
 *
 * A metadata server whose store another machine may claim has proof that the store is its own only
 * until a certain moment. After that moment it may be an instance that is no longer the one, and
 * nothing leaves it (docs/decisions/lease-gate.md). The moment is by CLOCK_BOOTTIME, which counts
 * the time while the machine is suspended. With the embedded store the lease never ends.
 *
 * The rule: first look at the state, then at the lease, then answer. If the lease lives after the
 * look, no other instance had claimed the store by then, so what was seen was true at a moment
 * inside the request. It does not matter how long the answer takes from there on.
 */
#ifndef COMMON_STORE_LEASE_H
#define COMMON_STORE_LEASE_H
#include "base/clock.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#define STORE_LEASE_ALWAYS UINT64_MAX

/* One for each place that keeps answers back. The memory stays until store_lease_unwatch. */
struct store_lease_watch {
	/* The lease lives again. On the thread that extended it; must not block. */
	void (*lw_again)(struct store_lease_watch *w);
	_Atomic bool lw_waits;
	struct store_lease_watch *lw_next;
};

struct store_lease {
	_Atomic uint64_t sl_end_ns;
	_Atomic uint32_t sl_opened; /* how often it lived again after it had run out */
	_Atomic bool sl_warned;	    /* since it last ran out */
	/* store_lease_clock_ns: the end by CLOCK_MONOTONIC, and for how long the store was not held
	 * in all. sl_turn is odd while they change. */
	_Atomic uint64_t sl_end_mono_ns, sl_shut_ns;
	_Atomic uint32_t sl_turn;
	pthread_mutex_t sl_lock; /* of the list, and for who extends */
	struct store_lease_watch *sl_watches;
};

/* end_ns: STORE_LEASE_ALWAYS, or 0: it has not begun. */
void store_lease_init(struct store_lease *sl, uint64_t end_ns);
/* Any thread. The store is ours until end_ns of CLOCK_BOOTTIME. Who asked the store's holder and
 * got the answer passes the moment at which the question was sent, plus the lease's length; not
 * STORE_LEASE_ALWAYS. An earlier end than the present one changes nothing. */
void store_lease_extend(struct store_lease *sl, uint64_t end_ns);
/* Any thread. Another instance has claimed the store: no lease of this process lives any more, and
 * none is extended. Then it logs why and ends the process. Nothing is sent meanwhile, however long
 * the log takes. */
_Noreturn void store_lease_lost(const char *why);
/* Set by store_lease_lost. */
extern _Atomic bool store_lease_is_lost;
/* What store_lease_lost calls before it logs, on any thread: it must not wait for anything but a
 * lock that is never held long. One function; the last one counts. */
void store_lease_at_loss(void (*fn)(void));

/* Any thread. NULL: always true. */
static inline bool store_lease_live(const struct store_lease *sl)
{
	uint64_t end;

	if (!sl)
		return true;
	/* What the caller has looked at was read before the clock is. */
	atomic_thread_fence(memory_order_acquire);
	end = atomic_load_explicit(&sl->sl_end_ns, memory_order_acquire);
	return end == STORE_LEASE_ALWAYS ||
	       (clock_boot_ns() < end &&
		!atomic_load_explicit(&store_lease_is_lost, memory_order_acquire));
}

/* A number that differs from an earlier one if the lease has run out in between, and lives. */
static inline uint32_t store_lease_opened(const struct store_lease *sl)
{
	return sl ? atomic_load_explicit(&sl->sl_opened, memory_order_acquire) : 0;
}

/* The clock for the time that others have: CLOCK_MONOTONIC, but it stands still while the store is
 * not held, because nobody gets an answer or a question then. It never goes back. Any thread. NULL,
 * or a lease without an end: CLOCK_MONOTONIC. */
uint64_t store_lease_clock_held_ns(const struct store_lease *sl);
static inline uint64_t store_lease_clock_ns(const struct store_lease *sl)
{
	if (!sl || atomic_load_explicit(&sl->sl_end_ns, memory_order_relaxed) == STORE_LEASE_ALWAYS)
		return clock_mono_ns();
	return store_lease_clock_held_ns(sl);
}

void store_lease_watch(struct store_lease *sl, struct store_lease_watch *w);
void store_lease_unwatch(struct store_lease *sl, struct store_lease_watch *w);
/* After store_lease_live was false: lw_again will be called, once. True: the lease lives after
 * all. */
bool store_lease_wait(struct store_lease *sl, struct store_lease_watch *w);

/* Only a test's daemon has it: it extends the lease as the test says. */
extern void store_lease_hook(struct store_lease *sl) __attribute__((weak, visibility("hidden")));
#endif
