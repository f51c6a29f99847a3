/* SPDX-License-Identifier: Apache-2.0 */
/* topo_plan.c - see topo_plan.h. */
#include "topo/topo_plan.h"
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- lists of processors ---- */

/* Parses digits and advances *s. */
static bool topo_plan_number(const char **s, unsigned long *out)
{
	char *end;

	if (!isdigit((unsigned char)**s))
		return false;
	*out = strtoul(*s, &end, 10);
	*s = end;
	return *out < CPU_SETSIZE;
}

bool topo_cpulist_parse(const char *text, cpu_set_t *out)
{
	unsigned long a, b;

	CPU_ZERO(out);
	do {
		if (!topo_plan_number(&text, &a))
			return false;
		b = a;
		if (*text == '-' && (text++, !topo_plan_number(&text, &b) || b < a))
			return false;
		for (; a <= b; a++)
			CPU_SET(a, out);
	} while (*text == ',' && text++);
	return !*text;
}

void topo_cpulist(const cpu_set_t *cpus, char *out, size_t room)
{
	size_t len = 0;

	*out = 0;
	for (int i = 0; i < CPU_SETSIZE && len < room; i++) {
		int end = i;

		if (!CPU_ISSET(i, cpus))
			continue;
		while (end + 1 < CPU_SETSIZE && CPU_ISSET(end + 1, cpus))
			end++;
		len += (size_t)snprintf(out + len, room - len, "%s%d", len ? "," : "", i);
		if (end > i && len < room)
			len += (size_t)snprintf(out + len, room - len, "-%d", end);
		i = end;
	}
}

/* ---- nodes ---- */

/* Finds the nodes with usable processors, in the order of the topology. */
static void topo_plan_nodes_find(const struct topo *t, const cpu_set_t *usable, struct topo_plan *p)
{
	for (size_t i = 0; i < t->t_nnode && p->tp_nnodes < TOPO_PLAN_NODES; i++) {
		struct topo_plan_node *n = &p->tp_node[p->tp_nnodes];

		CPU_AND(&n->pn_cpus, &t->t_node[i].o_cpus, usable);
		if (CPU_COUNT(&t->t_online))
			CPU_AND(&n->pn_cpus, &n->pn_cpus, &t->t_online);
		n->pn_ncpus = (unsigned)CPU_COUNT(&n->pn_cpus);
		n->pn_id = t->t_node[i].o_id;
		p->tp_nnodes += n->pn_ncpus > 0;
	}
}

/* Returns the nearest of the nodes that use() accepts, the first of equals, or -1 if there is
 * none. */
static int plan_nearest(const struct topo *t, const struct topo_plan *p, int id,
			bool (*use)(const struct topo_plan_node *n))
{
	unsigned least = 0;
	int best = -1;

	for (unsigned i = 0; i < p->tp_nnodes; i++) {
		unsigned d = p->tp_node[i].pn_id == id
				     ? 0
				     : topo_node_distance(t, id, p->tp_node[i].pn_id);

		if (use(&p->tp_node[i]) && (best < 0 || d < least)) {
			best = (int)i;
			least = d;
		}
	}
	return best;
}

static bool any(const struct topo_plan_node *n)
{
	(void)n;
	return true;
}

static bool has_addrs(const struct topo_plan_node *n)
{
	return n->pn_naddrs > 0;
}

static bool topo_plan_known(const struct topo *t, int id)
{
	for (size_t i = 0; i < t->t_nnode; i++)
		if (t->t_node[i].o_id == id)
			return true;
	return false;
}

/* Returns a bit for each node (by its place in tp_node) that has functions of the place, or 0 if
 * that is unknown. */
static uint64_t nodes_of(const struct topo *t, const struct topo_plan *p,
			 const struct topo_place *pl)
{
	uint64_t bits = 0;

	for (unsigned i = 0; i < pl->pl_n; i++) {
		int id = t->t_pci[pl->pl_pci[i]].p_node;

		if (!topo_plan_known(t, id))
			return 0;
		bits |= 1ull << plan_nearest(t, p, id, any);
	}
	return bits;
}

static void near_count(const struct topo *t, struct topo_plan *p, const struct topo_wish *w)
{
	for (unsigned i = 0; i < p->tp_nnodes; i++)
		p->tp_node[i].pn_nstores = p->tp_node[i].pn_naddrs = 0;
	for (size_t k = 0; k < w->tw_nstores; k++)
		for (uint64_t m = nodes_of(t, p, &w->tw_store[k]); m; m &= m - 1)
			p->tp_node[__builtin_ctzll(m)].pn_nstores++;
	for (size_t k = 0; k < w->tw_naddrs; k++)
		for (uint64_t m = nodes_of(t, p, &w->tw_addr[k]); m; m &= m - 1)
			p->tp_node[__builtin_ctzll(m)].pn_naddrs++;
}

/* ---- threads ---- */

static int worth(const struct topo_plan_node *n)
{
	return n->pn_nstores && n->pn_naddrs ? 3 : n->pn_nstores ? 2 : n->pn_naddrs ? 1 : 0;
}

static int topo_plan_node_cmp(const void *a, const void *b)
{
	const struct topo_plan_node *x = a, *y = b;

	return worth(x) != worth(y) ? worth(y) - worth(x) : x->pn_id - y->pn_id;
}

/* Returns the node, of from to n, with the most processors for one more thread, or -1 if no node
 * has a processor for it alone. */
static int roomiest(const struct topo_plan *p, unsigned from, unsigned n, bool full)
{
	int best = -1;

	for (unsigned i = from; i < n; i++) {
		const struct topo_plan_node *x = &p->tp_node[i],
					    *y = best < 0 ? NULL : &p->tp_node[best];

		if (!full && x->pn_nthreads >= x->pn_ncpus)
			continue;
		if (!y || (uint64_t)x->pn_ncpus * (y->pn_nthreads + 1) >
				  (uint64_t)y->pn_ncpus * (x->pn_nthreads + 1))
			best = (int)i;
	}
	return best;
}

static void seat(struct topo_plan *p, unsigned node)
{
	p->tp_node[node].pn_threads |= 1ull << p->tp_nthreads;
	p->tp_node[node].pn_nthreads++;
	p->tp_thread[p->tp_nthreads++] = (uint8_t)node;
}

static void threads_deal(struct topo_plan *p, unsigned nthreads)
{
	unsigned near = 0, all = p->tp_nnodes;

	while (near < all && worth(&p->tp_node[near]))
		near++;
	if (!near)
		near = all;
	for (unsigned i = 0; i < near && p->tp_nthreads < nthreads; i++)
		seat(p, i);
	while (p->tp_nthreads < nthreads) {
		int i = roomiest(p, 0, near, false);

		if (i < 0)
			i = roomiest(p, near, all, false);
		if (i < 0)
			i = roomiest(p, 0, near, true);
		seat(p, (unsigned)i);
	}
}

/* Removes the nodes without threads, and adapts the numbers in tp_thread. */
static void nodes_pack(struct topo_plan *p)
{
	uint8_t to[TOPO_PLAN_NODES];
	unsigned n = 0;

	for (unsigned i = 0; i < p->tp_nnodes; i++) {
		to[i] = (uint8_t)n;
		if (p->tp_node[i].pn_nthreads)
			p->tp_node[n++] = p->tp_node[i];
	}
	p->tp_nnodes = n;
	for (unsigned i = 0; i < p->tp_nthreads; i++)
		p->tp_thread[i] = to[p->tp_thread[i]];
}

static void serves_deal(const struct topo *t, struct topo_plan *p)
{
	for (unsigned i = 0; i < p->tp_nnodes; i++)
		p->tp_node[i].pn_serves |= p->tp_node[i].pn_threads;
	for (unsigned i = 0; i < p->tp_nnodes; i++) {
		int helps = p->tp_node[i].pn_naddrs
				    ? -1
				    : plan_nearest(t, p, p->tp_node[i].pn_id, has_addrs);

		if (helps >= 0)
			p->tp_node[helps].pn_serves |= p->tp_node[i].pn_threads;
	}
}

/* One node for all: there is nothing to tell apart. */
static void plan_one(const cpu_set_t *cpus, struct topo_plan *p)
{
	struct topo_plan_node *n = &p->tp_node[0];

	if (!p->tp_nnodes)
		n->pn_id = -1;
	p->tp_nnodes = 1;
	n->pn_cpus = *cpus;
	n->pn_ncpus = (unsigned)CPU_COUNT(cpus);
}

void topo_plan(const struct topo *t, const struct topo_wish *w, struct topo_plan *p)
{
	memset(p, 0, sizeof(*p));
	topo_plan_nodes_find(t, &w->tw_cpus, p);
	p->tp_bound = p->tp_nnodes > 1;
	if (!p->tp_bound)
		plan_one(&w->tw_cpus, p);
	near_count(t, p, w);
	qsort(p->tp_node, p->tp_nnodes, sizeof(p->tp_node[0]), topo_plan_node_cmp);
	threads_deal(p, w->tw_nthreads);
	nodes_pack(p);
	near_count(t, p, w); /* what was near a removed node is nearest to another */
	serves_deal(t, p);
}

uint64_t topo_plan_serves(const struct topo *t, const struct topo_plan *p,
			  const struct topo_place *pl)
{
	uint64_t bits = 0, all = p->tp_nthreads == 64 ? ~0ull : (1ull << p->tp_nthreads) - 1;

	for (uint64_t m = p->tp_bound ? nodes_of(t, p, pl) : 0; m; m &= m - 1)
		bits |= p->tp_node[__builtin_ctzll(m)].pn_serves;
	return bits ? bits : all;
}
