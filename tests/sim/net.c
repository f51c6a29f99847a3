/* SPDX-License-Identifier: Apache-2.0 */
/*
 * net.c - messages between machines. A message takes some tenths of a millisecond, and sometimes
 * much longer. While a link is cut it is sent again and again, as TCP does; so it may arrive long
 * after its sender has ended. Each direction of a link is cut by itself.
 */
#include "tests/sim/sim.h"

enum { GIVE_UP_MS = 20000 };

uint64_t sim_slow_ns;

static uint64_t takes(void)
{
	uint64_t r = sim_rand();

	if ((r >> 32) % 256 == 0)
		return SIM_MS(1 + r % 60) + sim_slow_ns;
	return 60000 + r % 250000 + (sim_slow_ns ? r % (2 * sim_slow_ns) : 0);
}

static void arrive(void *arg, uint64_t n)
{
	struct sim_msg *m = arg;

	(void)n;
	if (sim_nodes[m->m_to].n_off || sim_now > m->m_until)
		return;
	if (sim_nodes[m->m_from].n_cut[m->m_to]) {
		/* What was not acknowledged is lost with its sender's machine. */
		if (!sim_nodes[m->m_from].n_off)
			sim_at(sim_now + SIM_MS(sim_between(30, 250)), arrive, m, 0);
		return;
	}
	if (m->m_ready && !m->m_ready(m->m_arg)) {
		sim_at(sim_now + SIM_MS(sim_between(1, 12)), arrive, m, 0);
		return;
	}
	m->m_fn(m->m_arg);
}

void sim_send(unsigned from, unsigned to, bool (*ready)(void *arg), void (*fn)(void *arg),
	      void *arg)
{
	struct sim_msg m = {.m_from = from,
			    .m_to = to,
			    .m_ready = ready,
			    .m_fn = fn,
			    .m_arg = arg,
			    .m_until = sim_now + SIM_MS(GIVE_UP_MS)};

	sim_at(sim_now + takes(), arrive, sim_copy(&m, sizeof(m)), 0);
}
