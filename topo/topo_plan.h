/* SPDX-License-Identifier: Apache-2.0 */
/*
 * topo_plan.h - decides which of a daemon's threads run on which NUMA node, and which clients they
 * serve, from a topology, the processors that may be used, and the places of the daemon's stores
 * and addresses. Pure: it queries and changes nothing.
 *
 * Threads go to nodes near something first: a node with a store's drive and a network card that
 * clients come by before a node with only a drive, and that before one with only a card. Each such
 * node gets one thread, in this order, as long as there are threads. The others are dealt in
 * proportion to the nodes' processors. A node gets no more threads than it has processors while
 * other nodes have more processors than threads; nodes near nothing come last. Where nothing is
 * known of drives and cards, all nodes are equal.
 *
 * The threads of a network card's node serve what comes by the card; if that node has no threads,
 * the threads of the nearest node that has some do. The threads of a node without network cards of
 * ours would have nothing to do: they help those of the nearest node that has one.
 */
#ifndef TOPO_TOPO_PLAN_H
#define TOPO_TOPO_PLAN_H
#include "topo/topo.h"

enum { TOPO_PLAN_THREADS = 64, TOPO_PLAN_NODES = 64 };

struct topo_wish {
	cpu_set_t tw_cpus;		   /* the processors that may be used */
	unsigned tw_nthreads;		   /* 1..TOPO_PLAN_THREADS */
	const struct topo_place *tw_store; /* of each store; empty where nothing is known */
	size_t tw_nstores;
	const struct topo_place *tw_addr; /* of each address that clients connect to, likewise */
	size_t tw_naddrs;
};

struct topo_plan_node {
	int pn_id;	   /* -1: the machine tells no nodes apart */
	cpu_set_t pn_cpus; /* of tw_cpus */
	unsigned pn_ncpus, pn_nthreads;
	/* stores and addresses near it: this is their node, or the nearest with processors that may
	 * be used */
	unsigned pn_nstores, pn_naddrs;
	uint64_t pn_threads; /* a bit for each */
	/* a bit for each thread that serves what comes by a network card here */
	uint64_t pn_serves;
};

struct topo_plan {
	/* there is more than one node to tell apart: bind threads to their node's processors */
	bool tp_bound;
	unsigned tp_nnodes; /* those with threads, the best first */
	struct topo_plan_node tp_node[TOPO_PLAN_NODES];
	unsigned tp_nthreads;
	uint8_t tp_thread[TOPO_PLAN_THREADS]; /* for each thread, its index in tp_node */
};

/* Leaves out nodes past TOPO_PLAN_NODES. */
void topo_plan(const struct topo *t, const struct topo_wish *w, struct topo_plan *p);
/* A bit for each thread that serves what comes by this place; all where it is not known. */
uint64_t topo_plan_serves(const struct topo *t, const struct topo_plan *p,
			  const struct topo_place *pl);

/* Parses "0-3,8". False: malformed, or names a processor beyond CPU_SETSIZE. */
bool topo_cpulist_parse(const char *text, cpu_set_t *out);
/* Writes the same form; cut where room ends. */
void topo_cpulist(const cpu_set_t *cpus, char *out, size_t room);
#endif
