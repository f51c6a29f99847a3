/*
 * clock.c - the time by which clients are silent.
 *
 * A process that was stopped, swapped out or moved to another machine hears nobody, and every
 * client looks silent for as long. So that time does not count: the clock of leases, grace and
 * recalls stands still while nobody has looked at it for PAUSE_NS. Each tick looks at it, four
 * times a second. Whoever looks first after a pause takes it off, on any thread, before anything is
 * decided by the time.
 *
 * All of the pause is taken off, and some of it may have been read as time before: so the clock
 * goes back, by PAUSE_NS at most. Who compares two times of it asks st_since.
 */
#include "base/clock.h"
#include "base/log.h"
#include "mds/state/st.h"

#define PAUSE_NS UINT64_C(1000000000)

/* seen only rises, and the pause is there before seen tells that it was looked at. */
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

	/* Who is interrupted here by a pause that another takes off must not take it off a time of
	 * before. */
	do {
		paused = atomic_load_explicit(&st->st_paused_ns, memory_order_acquire);
		now = clock_mono_ns();
		if (now >
		    atomic_load_explicit(&st->st_clock_seen_ns, memory_order_acquire) + PAUSE_NS)
			clock_paused(st, now);
	} while (paused != atomic_load_explicit(&st->st_paused_ns, memory_order_acquire));
	return now - paused;
}

void st_clock_tick(struct st *st)
{
	uint64_t now = clock_mono_ns();

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
