/* SPDX-License-Identifier: Apache-2.0 */
/*
 * faults.c - what fails, when and for how long, as the seed says. Often several at a time: a second
 * one in the middle of the first is where a way of taking over breaks.
 */
#include "tests/sim/sim.h"
#include <string.h>

const char *const fault_names[SIM_FAULTS] = {
	"kill",	     "power",	    "pause",	 "stop",     "lost-store", "cut-engine",
	"cut-one",   "cut-clients", "pg-kill",	 "pg-power", "pg-pause",   "pg-standbys",
	"pg-cancel", "slow",	    "pg-revive", "trap",     "cut-data",   "ds-restart",
	"etcd-away", "etcd-power",  "cut-etcd"};
enum fault {
	F_KILL,
	F_POWER,
	F_PAUSE,
	F_STOP,
	F_LOST,
	F_CUT_ENGINE,
	F_CUT_ONE,
	F_CUT_CLIENTS,
	F_PG_KILL,
	F_PG_POWER,
	F_PG_PAUSE,
	F_PG_STANDBYS,
	F_PG_CANCEL,
	F_SLOW,
	F_PG_REVIVE,
	F_TRAP,
	F_CUT_DATA,
	F_DS,
	F_ETCD_AWAY, /* from here on: only where a lease is in etcd */
	F_ETCD_POWER,
	F_CUT_ETCD,
	F_ALL
};
_Static_assert((int)F_ALL == SIM_FAULTS, "a name for each");
unsigned faults_struck[SIM_FAULTS];

/* The one that serves, most often. */
static unsigned victim(void)
{
	for (unsigned i = 0; i < MDS_MAX; i++)
		if (server_serves(i) && sim_chance(750))
			return i;
	return (unsigned)sim_below(MDS_MAX);
}

/* From an instant to several leases. */
static uint64_t a_while(void)
{
	uint64_t l = SIM_MS(server_lease_ms());

	if (sim_chance(80))
		return sim_between(3 * l, 5 * l);
	return sim_chance(300) ? sim_between(SIM_MS(1), l / 2) : sim_between(l / 2, 3 * l);
}

static void mend(void *arg, uint64_t ab)
{
	(void)arg;
	sim_nodes[ab >> 8].n_cut[ab & 255] = false;
	sim_log("the link from %llu to %llu is whole", (unsigned long long)(ab >> 8),
		(unsigned long long)(ab & 255));
}

static void cut(unsigned a, unsigned b, uint64_t ns)
{
	sim_nodes[a].n_cut[b] = true;
	sim_log("the link from %u to %u is cut for %.0f ms", a, b, (double)ns / 1e6);
	sim_at(sim_now + ns, mend, NULL, (uint64_t)a << 8 | b);
}

static void cut_group(unsigned a, unsigned from, unsigned n, uint64_t ns)
{
	uint64_t way = sim_below(4); /* 0: one way; 1: the other; else both */

	for (unsigned i = from; i < from + n; i++) {
		if (way != 1)
			cut(a, i, ns);
		if (way != 0)
			cut(i, a, ns);
	}
}

static void fast_again(void *arg, uint64_t n)
{
	(void)arg;
	(void)n;
	sim_slow_ns = 0;
}

/* Both standbys go; the primary goes and comes back alone, and shows what nobody else has; then it
 * goes for good. */
static void revive(void)
{
	unsigned p = (unsigned)engine_primary();
	uint64_t back = SIM_MS(sim_between(200, 700));

	for (unsigned i = 0; i < PG_SERVERS; i++)
		if (i != p)
			engine_kill(i, false, back + SIM_MS(sim_between(800, 2500)));
	engine_kill(p, false, back);
}

static void second_death(void *arg, uint64_t n)
{
	(void)arg;
	engine_kill((unsigned)n, true, SIM_MS(sim_between(3000, 8000)));
}

static void set_trap(unsigned i)
{
	struct sim_proc *p = server_proc(i);

	p->p_trap = (unsigned)sim_between(1, 400);
	p->p_trap_ns = sim_chance(600) ? a_while() : 0;
}

static void strike_engine(enum fault f)
{
	unsigned p = (unsigned)engine_primary();
	unsigned s = (p + 1 + (unsigned)sim_below(2)) % PG_SERVERS;
	unsigned any = sim_chance(600) ? p : s;

	switch (f) {
	case F_PG_KILL:
		engine_kill(any, false, SIM_MS(sim_between(100, 5000)));
		break;
	case F_PG_POWER:
		engine_kill(any, true, SIM_MS(sim_between(500, 8000)));
		break;
	case F_PG_PAUSE:
		engine_pause(any, a_while());
		break;
	case F_PG_STANDBYS:
		engine_pause((p + 1) % PG_SERVERS, a_while());
		engine_pause((p + 2) % PG_SERVERS, a_while());
		break;
	case F_PG_REVIVE:
		revive();
		if (sim_chance(500))
			sim_at(sim_now + SIM_MS(sim_between(900, 2000)), second_death, NULL, p);
		break;
	case F_ETCD_AWAY:
		etcd_away(a_while());
		break;
	case F_ETCD_POWER:
		s = (unsigned)sim_below(ETCD_MEMBERS);
		etcd_power_cut(s, SIM_MS(sim_between(200, 5000)));
		break;
	default:
		engine_cancel();
	}
}

static void strike(enum fault f)
{
	unsigned v = victim(), which;

	faults_struck[f]++;
	sim_log("fault: %s of %u", fault_names[f], v);
	switch (f) {
	case F_KILL:
		server_kill(v, false, SIM_MS(sim_between(20, 3000)));
		break;
	case F_POWER:
		server_kill(v, true, SIM_MS(sim_between(500, 5000)));
		break;
	case F_PAUSE:
		sim_proc_pause(server_proc(v), a_while());
		break;
	case F_STOP:
		server_stop(v);
		break;
	case F_LOST:
		server_lose_store(v);
		break;
	case F_CUT_ENGINE:
		cut_group(MDS_NODE0 + v, PG_NODE0, PG_SERVERS, a_while());
		break;
	case F_CUT_ONE:
		which = (unsigned)sim_below(PG_SERVERS);
		cut_group(MDS_NODE0 + v, which, 1, a_while());
		break;
	case F_CUT_CLIENTS:
		cut_group(MDS_NODE0 + v, CLIENT_NODE, 1, a_while());
		break;
	case F_CUT_DATA:
		cut_group(MDS_NODE0 + v, DS_NODE0, DS_MAX, 2 * a_while());
		/* And the one that holds the store is replaced meanwhile. */
		if (sim_chance(500))
			sim_proc_pause(server_proc(v), a_while());
		break;
	case F_CUT_ETCD:
		cut_group(MDS_NODE0 + v, ETCD_NODE0, ETCD_MEMBERS, a_while());
		break;
	case F_DS:
		ds_kill((unsigned)sim_below(DS_MAX));
		break;
	case F_SLOW:
		sim_slow_ns = SIM_MS(sim_between(5, 300));
		sim_at(sim_now + a_while(), fast_again, NULL, 0);
		break;
	case F_TRAP:
		set_trap(v);
		break;
	default:
		strike_engine(f);
	}
}

static void due(void *arg, uint64_t f)
{
	(void)arg;
	strike((enum fault)f);
}

void faults_begin(uint64_t end)
{
	unsigned n = 1 + (unsigned)sim_below(4), kinds = servers_in_etcd() ? F_ALL : F_ETCD_AWAY;
	uint64_t at = sim_now;

	sim_slow_ns = 0;
	for (unsigned i = 0; i < n; i++) {
		/* Half of them follow closely on the one before. */
		at += sim_chance(500) ? sim_between(0, SIM_MS(400))
				      : sim_between(SIM_MS(400), SIM_MS(2500));
		if (at > end)
			at = end;
		sim_at(at, due, NULL, sim_below(kinds));
	}
}
