/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rcu.h - liburcu (its flavour memb), and for ThreadSanitizer what it does not see in there. It
 * costs nothing in other builds.
 *
 * Two things come before what runs after a grace period. What the thread did that asked for it:
 * urcu_memb_call_rcu hands the rcu_head over, and the callback begins with RCU_TAKEN_OVER. And what
 * each reader did in a section that began before: leaving a section hands rcu_left over.
 */
#ifndef BASE_RCU_H
#define BASE_RCU_H
#include "base/handover.h"
#include <urcu/urcu-memb.h>

#ifdef __SANITIZE_THREAD__
__attribute__((weak)) char rcu_left; /* one for the whole program */

#define urcu_memb_read_unlock()		   (HANDED_OVER(&rcu_left), (urcu_memb_read_unlock)())
#define urcu_memb_synchronize_rcu()	   ((urcu_memb_synchronize_rcu)(), TAKEN_OVER(&rcu_left))
#define urcu_memb_call_rcu(head, callback) (HANDED_OVER(head), (urcu_memb_call_rcu)(head, callback))
#define RCU_TAKEN_OVER(head)		   (TAKEN_OVER(head), TAKEN_OVER(&rcu_left))
#else
#define RCU_TAKEN_OVER(head) ((void)(head))
#endif

#endif
