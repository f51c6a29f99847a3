/* SPDX-License-Identifier: Apache-2.0 */
/*
 * absent.c - what the simulated servers have not: the identity of a file system. And in the place
 * of the members' table, which decides who goes first and no more: any answer that it may give.
 */
#include "tests/sim/sim.h"
#include "tests/sim/redirect.h"
#include "mds/member.h"
#include "mds/namespace/ns.h"

/* ---- members: a move may be under way, or not ---- */

int member_start(const struct member_opts *o)
{
	(void)o;
	sim_point();
	return 0;
}

void member_stop(void)
{
}

void member_follows(uint64_t batch)
{
	(void)batch;
}

uint32_t member_pause_ms(uint32_t usual)
{
	return sim_chance(50) && usual > 20 ? 20 : usual;
}

bool member_yields(void)
{
	sim_point();
	return sim_chance(100);
}

void member_holds(const struct member_took *t)
{
	(void)t;
}

void member_log(uint64_t (*last)(void *arg), void *arg)
{
	(void)last;
	(void)arg;
}

/* A second at most, while a standby comes near. */
void member_let_go(uint64_t last)
{
	(void)last;
	if (sim_chance(250))
		sim_sleep(sim_between(0, SIM_MS(1000)));
}

/* ---- a file system ---- */

int ns_identity_check(struct kv *kv, const struct ns_identity *id, char *err, size_t errlen)
{
	(void)kv;
	(void)id;
	(void)err;
	(void)errlen;
	sim_point();
	return 0;
}
