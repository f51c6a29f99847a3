/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store_lease.c - see store_lease.h.
 *
 * Waking: a waiter sets lw_waits and then looks at the end; the extender sets the end and then
 * looks at lw_waits. Both orders are sequentially consistent, so one of the two sees the other.
 */
#include "common/store_lease.h"
#include "base/log.h"
#include <unistd.h>

_Atomic bool store_lease_is_lost;

void store_lease_init(struct store_lease *sl, uint64_t end_ns)
{
	*sl = (struct store_lease){0};
	pthread_mutex_init(&sl->sl_lock, NULL);
	atomic_store(&sl->sl_end_ns, end_ns);
	atomic_store(&sl->sl_end_mono_ns, clock_mono_ns());
}

/* The caller holds sl_lock. */
static void clock_goes_on(struct store_lease *sl, uint64_t left_ns)
{
	uint64_t now = clock_mono_ns(), stood = atomic_load(&sl->sl_end_mono_ns);

	atomic_fetch_add(&sl->sl_turn, 1);
	if (now > stood)
		atomic_fetch_add(&sl->sl_shut_ns, now - stood);
	atomic_store(&sl->sl_end_mono_ns, now + left_ns);
	atomic_fetch_add(&sl->sl_turn, 1);
}

uint64_t store_lease_clock_held_ns(const struct store_lease *sl)
{
	uint64_t end, shut, now;
	uint32_t turn;

	do {
		turn = atomic_load(&sl->sl_turn);
		end = atomic_load(&sl->sl_end_mono_ns);
		shut = atomic_load(&sl->sl_shut_ns);
	} while ((turn & 1) || turn != atomic_load(&sl->sl_turn));
	now = clock_mono_ns();
	return (now < end ? now : end) - shut;
}

void store_lease_extend(struct store_lease *sl, uint64_t end_ns)
{
	uint64_t now, was;

	pthread_mutex_lock(&sl->sl_lock);
	was = atomic_load(&sl->sl_end_ns);
	now = clock_boot_ns();
	/* An answer that came too late for its own lease opens nothing. */
	if (end_ns <= was || end_ns <= now || atomic_load(&store_lease_is_lost)) {
		pthread_mutex_unlock(&sl->sl_lock);
		return;
	}
	/* Before the end: who sees that the lease lives sees this as well. */
	if (now >= was)
		atomic_fetch_add(&sl->sl_opened, 1);
	clock_goes_on(sl, end_ns - now);
	atomic_store(&sl->sl_end_ns, end_ns);
	for (struct store_lease_watch *w = sl->sl_watches; w; w = w->lw_next)
		if (atomic_exchange(&w->lw_waits, false))
			w->lw_again(w);
	if (atomic_exchange(&sl->sl_warned, false))
		log_info("the store is held again, after %lu ms: answers go out",
			 (unsigned long)(now > was && was ? (now - was) / 1000000 : 0));
	pthread_mutex_unlock(&sl->sl_lock);
}

static void (*_Atomic at_loss)(void);

void store_lease_at_loss(void (*fn)(void))
{
	atomic_store(&at_loss, fn);
}

void store_lease_lost(const char *why)
{
	void (*fn)(void) = atomic_load(&at_loss);

	/* The log may have to wait for its reader: the gates shut first. */
	while (atomic_exchange(&store_lease_is_lost, true))
		pause(); /* another thread ends the process */
	if (fn)
		fn();
	log_error("another instance holds the store: %s; stopping", why);
	_exit(1);
}

void store_lease_watch(struct store_lease *sl, struct store_lease_watch *w)
{
	pthread_mutex_lock(&sl->sl_lock);
	w->lw_next = sl->sl_watches;
	sl->sl_watches = w;
	pthread_mutex_unlock(&sl->sl_lock);
}

void store_lease_unwatch(struct store_lease *sl, struct store_lease_watch *w)
{
	struct store_lease_watch **p = &sl->sl_watches;

	pthread_mutex_lock(&sl->sl_lock);
	while (*p && *p != w)
		p = &(*p)->lw_next;
	if (*p)
		*p = w->lw_next;
	pthread_mutex_unlock(&sl->sl_lock);
}

bool store_lease_wait(struct store_lease *sl, struct store_lease_watch *w)
{
	atomic_store(&w->lw_waits, true);
	if (clock_boot_ns() < atomic_load(&sl->sl_end_ns) && !atomic_load(&store_lease_is_lost))
		return true;
	if (!atomic_exchange(&sl->sl_warned, true))
		log_warn("the store is not held now: answers wait");
	return false;
}
