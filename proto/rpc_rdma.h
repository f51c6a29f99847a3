/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rpc_rdma.h - RPC over RDMA version 1 (RFC 8166, 8167, 8267, 8797) as a transport of rpc.h:
 * services and callers see an rpc_conn as with TCP. docs/rdma.md says how it works and what it does
 * not do.
 *
 * There may be no RDMA device when the daemon starts, and devices may come and go: listeners are
 * tried again for ever, and report when they begin and cease to take connections.
 */
#ifndef PROTO_RPC_RDMA_H
#define PROTO_RPC_RDMA_H
#include "base/conf.h"
#include "proto/rpc.h"

#define RPC_RDMA_PORT	 20049
#define RPC_RDMA_REGIONS 64
/* bytes of the pool, at least: a loop must get a record of any size from a part of it */
#define RPC_RDMA_POOL (16u << 20)

struct rpc_rdma_opts {
	struct loop *const *ro_loops; /* connections are dealt to them; must outlive all */
	unsigned ro_nloops;	      /* at most 64 */
	unsigned ro_credits;	      /* calls in flight on a connection, at most */
	/* how long a loop may poll for the next completion; 0: never */
	unsigned ro_poll_us;
	bool ro_srq;		/* shared receive queues, where the device has them */
	uint32_t ro_srq_max;	/* receives of a loop on a device */
	uint32_t ro_quiet_ms;	/* peers that were silent for so long are probed */
	unsigned ro_conns_addr; /* connections of one address, at most; 0: no limit */
};
/* Fills o from the keys rdma.*. */
void rpc_rdma_conf(struct rpc_rdma_opts *o, const struct conf *c);
/* While the daemon still is root: lets it lock the memory that devices use. */
void rpc_rdma_allow(void);
/* Once, before any other call but the two above; starts the control thread. The pool (base/pool.h)
 * exists already. */
int rpc_rdma_start(const struct rpc_rdma_opts *o);

/* Makes a listener for the life of the process. Calls up (may be NULL) on loop whenever the
 * listener begins (true) or ceases (false) to take connections. Copies svc. rs_tls has only one
 * effect: where TLS is required, calls are refused. */
int rpc_listen_rdma(struct loop *loop, const struct sockaddr *addr, socklen_t len,
		    const struct rpc_service *svc, void (*up)(void *arg, bool yes), void *arg);

/* On the connection's loop. */
bool rpc_conn_is_rdma(const struct rpc_conn *c);

/* Registers the program's own memory once with each device, and with devices that come later (where
 * that fails, it logs a line). Devices then move payload of our calls that lies in one region from
 * and to that region themselves: for a call that does not fit inline, the payload of xdr_put_ref,
 * if that is all of its payload, and that of xdr_put_place. The release of such payload waits until
 * the peer can no longer read or write it for that call. Peers may read and write all of the memory
 * as long as it is registered. Any thread, whether or not RDMA was started; waits for the control
 * thread. -EINVAL; -EEXIST: it overlaps with a region; -ENOSPC: there are RPC_RDMA_REGIONS; else
 * the error of the registration (-ENOMEM: the limit on locked memory, -EFAULT: it cannot be
 * written), and nothing is registered. */
int rpc_rdma_memory_add(void *p, size_t len);
/* p: where the region begins. -ENOENT; -EBUSY: calls use it. */
int rpc_rdma_memory_remove(void *p);
#endif
