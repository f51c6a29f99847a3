/* SPDX-License-Identifier: Apache-2.0 */
/* topo_show.h - what the table and the JSON of weft topo have in common. */
#ifndef TOOLS_TOPO_SHOW_H
#define TOOLS_TOPO_SHOW_H
#include "topo/topo.h"
#include "topo/topo_plan.h"
#include <jansson.h>
#include <netinet/in.h>

/* What is near a store: the network cards in the order of topo_rank. */
struct near {
	const char *ne_what;
	struct topo_place ne_store;
	size_t *ne_nics, ne_nnics;   /* indexes in t_dev */
	struct topo_place *ne_place; /* of each of ne_nics */
	size_t *ne_order;	     /* of ne_nics, the best first */
	char ne_cpus[CPU_SETSIZE * 5];
};
/* The whole; NULL: no memory. */
json_t *show_json(const struct topo *t);
json_t *show_near_json(const struct topo *t, const struct near *n);

/* True when a block device is a namespace of this controller, and no partition and no single path
 * of one. */
bool show_namespace(const struct topo *t, size_t block, size_t dev);
bool show_within(const struct topo_place *pl, int pci);
const char *show_ip(const struct topo_addr *a, char out[INET6_ADDRSTRLEN]);
#endif
