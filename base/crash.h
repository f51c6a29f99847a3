/* SPDX-License-Identifier: Apache-2.0 */
/*
 * crash.h - named points at which a test kills a daemon.
 *
 * Only a test's own daemon, linked from the same objects (tests/fault), has a crash_hook. In all
 * others the linker makes the reference null, and a point does nothing.
 */
#ifndef BASE_CRASH_H
#define BASE_CRASH_H
extern void crash_hook(const char *point) __attribute__((weak, visibility("hidden")));

static inline void crash_point(const char *point)
{
	if (crash_hook)
		crash_hook(point);
}
#endif
