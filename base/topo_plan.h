/*
 * topo_plan.h - which of a daemon's threads run on which NUMA node, and which of them serve whom:
 * decided from a topology, the processors that may be used, and where the daemon's stores and
 * addresses are. Pure: nothing is asked or changed.
 *
 * Threads go to nodes near something first: a node with a store's drive and a network card that
 * clients come by before one with a drive only, that before one with a card only. Each such node
 * gets one thread, in this order, as long as there are threads; the others are dealt in proportion
 * to the nodes' processors, no more to a node than it has processors while there are nodes that
 * have more of them than threads: those that are near nothing come last. Where nothing is known of
 * drives and cards all nodes are alike.
 *
 * What comes by a network card is served by the threads of its node, or of the nearest node that
 * has threads. The threads of a node without network cards of ours would have nothing to do: they
 * help those of the nearest node that has one.
 */
#ifndef BASE_TOPO_PLAN_H
#define BASE_TOPO_PLAN_H
#include "base/topo.h"

enum { TOPO_PLAN_THREADS = 64, TOPO_PLAN_NODES = 64 };

struct topo_wish {
	cpu_set_t tw_cpus;		   /* that may be used */
	unsigned tw_nthreads;		   /* 1..TOPO_PLAN_THREADS */
	const struct topo_place *tw_store; /* of each store; of which nothing is known: empty */
	size_t tw_nstores;
	const struct topo_place *tw_addr; /* of each address that clients come to, likewise */
	size_t tw_naddrs;
};

struct topo_plan_node {
	int pn_id;	   /* -1: the machine tells no nodes apart */
	cpu_set_t pn_cpus; /* of tw_cpus */
	unsigned pn_ncpus, pn_nthreads;
	/* those near it: this is their node, or the nearest with processors that may be used */
	unsigned pn_nstores, pn_naddrs;
	uint64_t pn_threads; /* a bit for each */
	/* a bit for each thread that serves what comes by a network card here */
	uint64_t pn_serves;
};

struct topo_plan {
	/* there is more than one node to tell apart: threads are to be bound to their node's
	 * processors */
	bool tp_bound;
	unsigned tp_nnodes; /* those with threads, the best first */
	struct topo_plan_node tp_node[TOPO_PLAN_NODES];
	unsigned tp_nthreads;
	uint8_t tp_thread[TOPO_PLAN_THREADS]; /* each one's, in tp_node */
};

/* Nodes past TOPO_PLAN_NODES are left out. */
void topo_plan(const struct topo *t, const struct topo_wish *w, struct topo_plan *p);
/* A bit for each thread that serves what comes by this place; all where it is not known. */
uint64_t topo_plan_serves(const struct topo *t, const struct topo_plan *p,
			  const struct topo_place *pl);

/* "0-3,8". False: it is no such list, or names a processor beyond CPU_SETSIZE. */
bool topo_cpulist_parse(const char *text, cpu_set_t *out);
/* The same, written; cut where room ends. */
void topo_cpulist(const cpu_set_t *cpus, char *out, size_t room);
#endif
