/* SPDX-License-Identifier: Apache-2.0 */
/* clock.c - see clock.h. */
#include "base/clock.h"

_Thread_local uint64_t clock_last_ns;
