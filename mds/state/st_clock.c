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
 * It is the same while the store is not held (base/store_lease.h): clients get no answers then, and
 * cannot renew a lease. So the clock stands still from the last look before until the first look at
 * which the store is held again.
 *
 * The whole pause is taken off, and a thread may have read part of it as time before. So the clock
 * goes back, by at most PAUSE_NS (by at most a tick where the store was not held). Code that
 * compares two of its times uses st_since.
 */
#include "base/clock.h"
#include "base/log.h"
#include "base/store_lease.h"
#include "mds/state/st.h"

#define PAUSE_NS UINT64_C(1000000000)

/* st_clock_seen_ns only rises. st_paused_ns is written before st_clock_seen_ns says that the pause
 * was handled. */
static void clock_paused(struct st *st, uint64_t now)
{
	uint32_t opened = store_lease_opened(st->st_lease);
	uint64_t seen, gap = 0;
	bool stood;

	pthread_mutex_lock(&st->st_clock_lock);
	seen = atomic_load(&st->st_clock_seen_ns);
	stood = atomic_load(&st->st_clock_stands) || atomic_load(&st->st_clock_opened) != opened;
	if (now > seen && (stood || now > seen + PAUSE_NS)) {
		gap = now - seen;
		atomic_fetch_add(&st->st_paused_ns, gap);
		atomic_store(&st->st_clock_seen_ns, now);
	}
	atomic_store(&st->st_clock_opened, opened);
	atomic_store(&st->st_clock_stands, false);
	pthread_mutex_unlock(&st->st_clock_lock);
	if (stood && gap < PAUSE_NS)
		return;
	if (gap)
		log_warn("stood still for %llu ms; client leases are extended by that time",
			 (unsigned long long)(gap / 1000000));
}

/* The store is not held. */
static uint64_t clock_stands(struct st *st)
{
	uint64_t at;

	pthread_mutex_lock(&st->st_clock_lock);
	atomic_store(&st->st_clock_stands, true);
	at = atomic_load(&st->st_clock_seen_ns) - atomic_load(&st->st_paused_ns);
	pthread_mutex_unlock(&st->st_clock_lock);
	return at;
}

/* The embedded store's lease does not. Each request comes here. */
static bool lease_ends(const struct st *st)
{
	return st->st_lease && atomic_load_explicit(&st->st_lease->sl_end_ns,
						    memory_order_relaxed) != STORE_LEASE_ALWAYS;
}

static bool clock_stood(struct st *st, uint64_t now, bool ends)
{
	if (now > atomic_load_explicit(&st->st_clock_seen_ns, memory_order_acquire) + PAUSE_NS)
		return true;
	return ends && (atomic_load_explicit(&st->st_clock_stands, memory_order_acquire) ||
			atomic_load_explicit(&st->st_clock_opened, memory_order_acquire) !=
				store_lease_opened(st->st_lease));
}

uint64_t st_now_ns(struct st *st)
{
	bool ends = lease_ends(st);
	uint64_t paused, now;

	if (ends && !store_lease_live(st->st_lease))
		return clock_stands(st);
	/* Another thread may take a pause off between these reads. The loop makes sure that the new
	 * pause is not taken off a time that was read before it. */
	do {
		paused = atomic_load_explicit(&st->st_paused_ns, memory_order_acquire);
		now = clock_mono_ns();
		if (clock_stood(st, now, ends))
			clock_paused(st, now);
	} while (paused != atomic_load_explicit(&st->st_paused_ns, memory_order_acquire));
	return now - paused;
}

void st_clock_tick(struct st *st)
{
	uint64_t now = clock_mono_ns();

	(void)st_now_ns(st);
	pthread_mutex_lock(&st->st_clock_lock);
	if (!atomic_load(&st->st_clock_stands) && now > atomic_load(&st->st_clock_seen_ns))
		atomic_store(&st->st_clock_seen_ns, now);
	pthread_mutex_unlock(&st->st_clock_lock);
}

void st_clock_init(struct st *st)
{
	pthread_mutex_init(&st->st_clock_lock, NULL);
	atomic_store(&st->st_clock_seen_ns, clock_mono_ns());
}
