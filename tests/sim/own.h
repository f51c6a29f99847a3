/* SPDX-License-Identifier: Apache-2.0 */
/*
 * own.h - for the simulator's own files that need the system itself, and not what redirect.h puts
 * in its place.
 */
#ifndef TESTS_SIM_OWN_H
#define TESTS_SIM_OWN_H
#undef clock_gettime
#undef malloc
#undef calloc
#undef realloc
#undef free
#undef exit
#endif
