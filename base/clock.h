/* SPDX-License-Identifier: Apache-2.0 */
/*
 * clock.h - clocks that are never set, in nanoseconds or milliseconds since some moment before the
 * start: for deadlines and durations.
 */
#ifndef BASE_CLOCK_H
#define BASE_CLOCK_H
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

/* CLOCK_BOOTTIME: counts it. */
static inline uint64_t clock_boot_ns(void)
{
	return clock_of(CLOCK_BOOTTIME);
}
#endif
