/* SPDX-License-Identifier: Apache-2.0 */
/*
 * place.h - what runs where: threads and memory by NUMA node, connections by the network card that
 * they come by, the order of addresses by the stores' drives. Read once at start from the machine
 * and the configuration (docs/placement.md); never changes.
 */
#ifndef DS_PLACE_H
#define DS_PLACE_H
#include "base/conf.h"
#include "base/loop.h"
#include <stdbool.h>
#include <stdio.h>
#include <sys/socket.h>

enum { PLACE_MAX_ADDRS = 64, PLACE_MAX_STORES = 16 };

struct place_opts {
	const struct conf *po_conf;
	unsigned po_nthreads;
	/* All addresses that clients connect to, over TCP and RDMA; wildcards are ignored. */
	const struct sockaddr_storage *po_addr[PLACE_MAX_ADDRS];
	unsigned po_naddrs;
	/* only to show the plan: assumes that all processors of a recorded machine exist */
	bool po_paper;
};

struct place;
/* Queries drivers: takes milliseconds. Returns 0, or a negative errno and one line in err, which
 * names the key. If the machine cannot be read, it logs a warning and binds nothing. */
int place_make(struct place **out, const struct place_opts *o, char *err, size_t errlen);
void place_log(const struct place *p);
void place_print(const struct place *p, FILE *f);
/* order[] gets 0..n-1, the addresses that suit the stores best first. */
void place_order(const struct place *p, const struct sockaddr_storage *addr, unsigned n,
		 unsigned *order);
/* How many NUMA nodes the memory comes from; 1: nodes are not told apart. */
unsigned place_nodes(const struct place *p);

/* ---- bind the calling thread, and the threads that it creates from now on ---- */
/* To all processors that the daemon may use. */
void place_anywhere(const struct place *p);
/* To the processors of thread i. */
void place_thread(const struct place *p, unsigned i);
/* To processors near the stores. */
void place_stores(const struct place *p);

/* Before pool_init. */
void place_pool(const struct place *p);
/* l is the loop of thread i; before pool_register. */
void place_loop(const struct place *p, unsigned i, struct loop *l);
/* An rs_deal (proto/rpc.h) whose argument is a struct place: the thread for a connection to this
 * local address. Any thread. */
unsigned place_deal(const struct sockaddr *local, void *place);
#endif
