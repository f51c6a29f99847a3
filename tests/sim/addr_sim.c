/* SPDX-License-Identifier: Apache-2.0 */
/*
 * addr_sim.c - weft-addr on both machines of servers: addr/addr_place.c as it is, and what it asks
 * of the kernel as a model. The service address is where it was announced last, as clients hear it:
 * some clients ask only there. A connection to an address whose server does not listen yet is
 * dropped.
 *
 * weft-addr does not block, so it is no process here: each node has its variables of addr_place.c.
 */
#include "addr/addr_place.c"
#include "tests/sim/sim.h"

enum { RUN_MS = 100, ALIVE_MS = 5000 };

struct addr_holder {
	unsigned h_node;
};
struct machine {
	struct addr_place m_places[ADDR_PLACES];
	unsigned m_n, m_nstuck;
	struct stuck m_stuck[LEFT_MAX];
	struct addr_holder m_holder;
	bool m_on, m_quiet; /* the address is on the interface; the filter drops what comes */
};
static struct machine machines[MDS_MAX];
static unsigned current, told; /* whose variables are in place; the node that clients know */

static const struct addr_ip service = {.ip_family = 2, .ip_bytes = {192, 0, 2, 10}};

/* Variables of the node that has them. */
static struct machine *use(unsigned i)
{
	struct machine *m = &machines[current];

	if (i != current) {
		memcpy(m->m_places, places, sizeof(*places));
		memcpy(m->m_stuck, stuck, nstuck * sizeof(*stuck));
		m->m_n = nplaces;
		m->m_nstuck = nstuck;
		m = &machines[i];
		memcpy(places, m->m_places, sizeof(*places));
		memcpy(stuck, m->m_stuck, m->m_nstuck * sizeof(*stuck));
		nplaces = m->m_n;
		nstuck = m->m_nstuck;
		current = i;
	}
	return m;
}

static int64_t now_ms(unsigned i)
{
	return (int64_t)(sim_boot(MDS_NODE0 + i) / 1000000);
}

/* ---- the kernel ---- */

bool addr_ip_same(const struct addr_ip *a, const struct addr_ip *b)
{
	return !memcmp(a, b, sizeof(*a));
}

const char *addr_ip_text(const struct addr_ip *ip, char *buf)
{
	(void)ip;
	return strcpy(buf, "192.0.2.10");
}

int addr_net_add(const struct addr_place *pl)
{
	(void)pl;
	if (machines[current].m_on)
		return -EEXIST;
	machines[current].m_on = true;
	return 0;
}

int addr_net_remove(const struct addr_ip *ip)
{
	(void)ip;
	machines[current].m_on = false;
	return 1;
}

int addr_net_list(addr_net_fn fn, void *arg)
{
	if (machines[current].m_on)
		fn(arg, &places[0], true);
	return 0;
}

int addr_filter_set(const struct addr_place *pl, unsigned n)
{
	machines[current].m_quiet = n && pl[0].pl_quiet;
	return 0;
}

static void heard(void *arg)
{
	told = *(unsigned *)arg;
}

int addr_announce(const struct addr_place *pl)
{
	/* Nobody sends it again but addr_place.c. The planted fault: it does not. */
	if (sim_nodes[MDS_NODE0 + current].n_cut[CLIENT_NODE] ||
	    (sim_planted("announce-once") && pl->pl_next))
		return 0;
	sim_send(MDS_NODE0 + current, CLIENT_NODE, NULL, heard,
		 sim_copy(&current, sizeof(current)));
	return 0;
}

int addr_closed_end(const struct addr_ip *ip, const uint16_t *ports, unsigned nports, int64_t *left)
{
	(void)left;
	(void)ip;
	(void)ports;
	(void)nports;
	return 0;
}

unsigned addr_tickle_add(const struct addr_row *rows, unsigned n, int64_t now)
{
	(void)rows;
	(void)now;
	return n;
}

void addr_tickle_drop(const struct addr_ip *local)
{
	(void)local;
}

unsigned addr_tickle_count(void)
{
	return 0;
}

/* ---- what the servers say ---- */

unsigned addr_where(void)
{
	return told;
}

bool addr_takes(unsigned i)
{
	return machines[i].m_on && !machines[i].m_quiet;
}

void addr_say(unsigned i, enum sim_addr what)
{
	struct addr_msg *m = sim_alloc(sizeof(*m));
	struct addr_holder *h = &use(i)->m_holder;
	char err[128] = "";

	m->m_nips = 1;
	m->m_ips[0] = service;
	m->m_nports = 1;
	m->m_ports[0] = 2049;
	m->m_alive_ms = ALIVE_MS;
	switch (what) {
	case SIM_ADDR_HOLD:
		if (place_hold(h, m, now_ms(i), err, sizeof(err)))
			sim_fail("address", "%s", err);
		break;
	case SIM_ADDR_LISTENING:
		place_listening(h);
		break;
	case SIM_ADDR_LIVE:
		place_live(h, m, now_ms(i));
		break;
	case SIM_ADDR_RELEASE:
		place_release(h, now_ms(i));
		break;
	case SIM_ADDR_GONE:
		place_gone(h, now_ms(i));
		break;
	}
}

/* ---- time ---- */

static void turn(void *arg, uint64_t i)
{
	(void)arg;
	use((unsigned)i);
	if (!sim_nodes[MDS_NODE0 + i].n_off)
		place_run(now_ms((unsigned)i));
	sim_at(sim_now + SIM_MS(RUN_MS), turn, NULL, i);
}

static void boot(unsigned i)
{
	static const struct addr_place conf = {
		.pl_ip = {.ip_family = 2, .ip_bytes = {192, 0, 2, 10}},
		.pl_prefix = 24,
		.pl_ifname = "eth0"};

	use(i);
	memset(places, 0, sizeof(*places));
	nstuck = 0;
	machines[i].m_on = machines[i].m_quiet = false;
	machines[i].m_holder.h_node = i;
	place_open(&conf, 1, 0, false, now_ms(i));
}

void addr_power_cut(unsigned i)
{
	boot(i);
}

void addr_begin(void)
{
	told = 0;
	for (unsigned i = 0; i < MDS_MAX; i++) {
		boot(i);
		sim_at(sim_now + SIM_MS(RUN_MS), turn, NULL, i);
	}
}
