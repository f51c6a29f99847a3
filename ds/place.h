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
	/* All that clients come to, over TCP and RDMA; wildcards are ignored. */
	const struct sockaddr_storage *po_addr[PLACE_MAX_ADDRS];
	unsigned po_naddrs;
	bool po_paper; /* only to be shown: a recorded machine's processors are all there */
};

struct place;
/* Asks drivers: takes milliseconds. 0, or a negative errno and one line in err, which names the
 * key. A machine that cannot be read is warned of: nothing is bound then. */
int place_make(struct place **out, const struct place_opts *o, char *err, size_t errlen);
void place_log(const struct place *p);
void place_print(const struct place *p, FILE *f);
/* order[] gets 0..n-1, what suits the stores best first. */
void place_order(const struct place *p, const struct sockaddr_storage *addr, unsigned n,
		 unsigned *order);
/* NUMA nodes that memory is taken of; 1: it is not told apart. */
unsigned place_nodes(const struct place *p);

/* ---- of the calling thread, and those it makes from now on ---- */
/* Where the daemon may run at all. */
void place_anywhere(const struct place *p);
/* Where thread i belongs. */
void place_thread(const struct place *p, unsigned i);
/* Near the stores. */
void place_stores(const struct place *p);

/* Before pool_init. */
void place_pool(const struct place *p);
/* l is thread i's; before pool_register. */
void place_loop(const struct place *p, unsigned i, struct loop *l);
/* An rs_deal (proto/rpc.h), whose argument is a struct place: the thread for a connection to this
 * address of ours. Any thread. */
unsigned place_deal(const struct sockaddr *local, void *place);
#endif
