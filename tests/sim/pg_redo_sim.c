/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pg_redo_sim.c - mds/pg_redo.c as it is, and its variable for the scheduler. One planted fault is
 * here: the lease counts from when the answer came.
 */
#include "common/store_lease.h"
#include "tests/sim/globals.h"

static void extend(struct store_lease *sl, uint64_t end_ns)
{
	if (sim_planted("lease-from-answer"))
		end_ns = clock_boot_ns() + SIM_MS(server_lease_ms()) * 3 / 4;
	store_lease_extend(sl, end_ns);
}
#define store_lease_extend extend
#include "mds/pg_redo.c"

void globals_of_pg_redo(void)
{
	sim_global((void *)&folding, sizeof(folding));
}
