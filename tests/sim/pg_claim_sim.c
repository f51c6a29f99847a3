/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pg_claim_sim.c - pg/pg_claim.c as it is, with three planted faults: a standby takes the holder
 * for gone after a third of the lease; at once; and after its own lease, where the holder's is
 * longer.
 */
#include "tests/sim/sim.h"
#include "pg/pg_int.h"
#define pg_watch_due watch_due
#include "pg/pg_claim.c"
#undef pg_watch_due

bool pg_watch_due(const struct pg_watch *w)
{
	if (sim_planted("claim-too-early") && w->w_seen &&
	    w->w_at - w->w_since >= SIM_MS(w->w_o.o_lease_ms) / 3)
		return true;
	if (sim_planted("no-wait") && w->w_seen)
		return true;
	if (sim_planted("own-lease")) {
		struct pg_watch mine = *w;

		mine.w_row.r_lease_ms = 0;
		return watch_due(&mine);
	}
	return watch_due(w);
}
