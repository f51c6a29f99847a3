/* SPDX-License-Identifier: Apache-2.0 */
/*
 * st_clock.c - the clock by which the server judges that a client is silent.
 *
 * A process that was stopped, swapped out or moved to another machine receives nothing for that
 * time, and all clients look silent for as long. So that time does not count: the clock of leases,
 * grace and recalls stands still when no thread has read it for PAUSE_NS. Each tick reads it, four
 * times a second. The first thread that reads the clock after a pause takes the pause off, before
 * the server decides anything by the time.
 *
 * It is the same while the store is not held (common/store_lease.h): clients get no answers then,
 * and cannot renew a lease. The clock below stands still for that time.
 *
 * The whole pause is taken off, and a thread may have read part of it as time before. So the clock
 * goes back, by at most PAUSE_NS. Code that compares two of its times uses st_since.
 */
#include "base/clock.h"
#include "base/log.h"
#include "common/store_lease.h"
#include "mds/state/st.h"

#define PAUSE_NS UINT64_C(1000000000)

/* st_clock_seen_ns only rises. st_paused_ns is written before st_clock_seen_ns says that the pause
 * was handled. */
static void clock_paused(struct st *st, uint64_t now)
{
	uint64_t seen, gap = 0;

	pthread_mutex_lock(&st->st_clock_lock);
	seen = atomic_load(&st->st_clock_seen_ns);
	if (now > seen + PAUSE_NS) {
		gap = now - seen;
		atomic_fetch_add(&st->st_paused_ns, gap);
		atomic_store(&st->st_clock_seen_ns, now);
	}
	pthread_mutex_unlock(&st->st_clock_lock);
	if (gap)
		log_warn("stood still for %llu ms; client leases are extended by that time",
			 (unsigned long long)(gap / 1000000));
}

uint64_t st_now_ns(struct st *st)
{
	uint64_t paused, now;

	/* Another thread may take a pause off between these reads. The loop makes sure that the new
	 * pause is not taken off a time that was read before it. */
	do {
		paused = atomic_load_explicit(&st->st_paused_ns, memory_order_acquire);
		now = store_lease_clock_ns(st->st_lease);
		if (now >
		    atomic_load_explicit(&st->st_clock_seen_ns, memory_order_acquire) + PAUSE_NS)
			clock_paused(st, now);
	} while (paused != atomic_load_explicit(&st->st_paused_ns, memory_order_acquire));
	return now - paused;
}

void st_clock_tick(struct st *st)
{
	uint64_t now = store_lease_clock_ns(st->st_lease);

	(void)st_now_ns(st);
	pthread_mutex_lock(&st->st_clock_lock);
	if (now > atomic_load(&st->st_clock_seen_ns))
		atomic_store(&st->st_clock_seen_ns, now);
	pthread_mutex_unlock(&st->st_clock_lock);
}

void st_clock_init(struct st *st)
{
	pthread_mutex_init(&st->st_clock_lock, NULL);
	atomic_store(&st->st_clock_seen_ns, clock_mono_ns());
}

void st_clock_use(struct st *st, const struct store_lease *sl)
{
	st->st_lease = sl;
	atomic_store(&st->st_clock_seen_ns, store_lease_clock_ns(sl));
}
