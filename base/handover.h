/* SPDX-License-Identifier: Apache-2.0 */
/* A queue of liburcu orders what its producer wrote before what its consumer reads.
 * ThreadSanitizer does not look into liburcu: these say it, and cost nothing in other builds. */
#ifndef BASE_HANDOVER_H
#define BASE_HANDOVER_H

#ifdef __SANITIZE_THREAD__
#include <sanitizer/tsan_interface.h>
#define HANDED_OVER(m) __tsan_release(m) /* before m is enqueued */
#define TAKEN_OVER(m)  __tsan_acquire(m) /* after m is dequeued */
#else
#define HANDED_OVER(m) ((void)0)
#define TAKEN_OVER(m)  ((void)0)
#endif

#endif
