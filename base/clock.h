/* SPDX-License-Identifier: Apache-2.0 */
/*
 * clock.h - clocks that are never set, in nanoseconds or milliseconds since some moment before the
 * start: for deadlines and durations. And condition variables whose waits end by such a clock.
 */
#ifndef BASE_CLOCK_H
#define BASE_CLOCK_H
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

static inline uint64_t clock_of(clockid_t id)
{
	struct timespec ts;

	clock_gettime(id, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/* CLOCK_MONOTONIC: does not count the time while the machine is suspended. */
static inline uint64_t clock_mono_ns(void)
{
	return clock_of(CLOCK_MONOTONIC);
}

static inline uint64_t clock_mono_ms(void)
{
	return clock_mono_ns() / 1000000;
}

/* The last reading of clock_turn_ns() on this thread: the loop's of its turn, or a later one. */
extern _Thread_local uint64_t clock_last_ns;
static inline uint64_t clock_turn_ns(void)
{
	return clock_last_ns = clock_mono_ns();
}

/* CLOCK_BOOTTIME: counts it. */
static inline uint64_t clock_boot_ns(void)
{
	return clock_of(CLOCK_BOOTTIME);
}

/* Initialises c for clock_cond_wait(). The caller ends it by pthread_cond_destroy(). */
static inline void clock_cond_init(pthread_cond_t *c)
{
	pthread_condattr_t attr;

	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(c, &attr);
	pthread_condattr_destroy(&attr);
}

/* Waits for c, which clock_cond_init() has initialised, until clock_mono_ns() is until_ns. The
 * caller holds lock before and after. False: the time is over. As with any condition variable,
 * true does not say that c was signalled. */
static inline bool clock_cond_wait(pthread_cond_t *c, pthread_mutex_t *lock, uint64_t until_ns)
{
	struct timespec until = {.tv_sec = (time_t)(until_ns / 1000000000u),
				 .tv_nsec = (long)(until_ns % 1000000000u)};

	return pthread_cond_timedwait(c, lock, &until) != ETIMEDOUT;
}
#endif
