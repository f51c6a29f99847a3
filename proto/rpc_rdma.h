/*
 * rpc_rdma.h - RPC over RDMA version 1 (RFC 8166, 8167, 8267, 8797) as a transport of rpc.h: what
 * serves calls, and what makes them, sees an rpc_conn as ever. docs/rdma.md tells how it works and
 * what it does not do.
 *
 * There may be no RDMA device when the daemon starts, and devices may come and go: listeners are
 * tried again for ever, and say when they begin and cease to take connections.
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
	unsigned ro_credits;	      /* calls under way on a connection, at most */
	/* how long a loop may poll for the next completion; 0: never */
	unsigned ro_poll_us;
	bool ro_srq;		/* shared receive queues, where the device has them */
	uint32_t ro_srq_max;	/* receives of a loop on a device */
	uint32_t ro_quiet_ms;	/* peers not heard of for so long are tried */
	unsigned ro_conns_addr; /* connections of one address, at most; 0: any number */
};
/* The keys rdma.*. */
void rpc_rdma_conf(struct rpc_rdma_opts *o, const struct conf *c);
/* While the daemon still is root: lets it lock the memory that devices use. */
void rpc_rdma_allow(void);
/* Once, before any other call but the above; starts the control thread. The pool (base/pool.h) is
 * there. */
int rpc_rdma_start(const struct rpc_rdma_opts *o);

/* A listener, for the life of the process. up is called on loop whenever it begins (true) or ceases
 * (false) to take connections; may be NULL. svc is copied. rs_tls has no meaning but that calls are
 * refused where TLS is required. */
int rpc_listen_rdma(struct loop *loop, const struct sockaddr *addr, socklen_t len,
		    const struct rpc_service *svc, void (*up)(void *arg, bool yes), void *arg);

/* On the connection's loop. */
bool rpc_conn_is_rdma(const struct rpc_conn *c);

/* The program's own memory, registered once with each device that there is, and with those that
 * come (where that fails, a line in the log says so). Payload of calls of ours that lies in one
 * region goes from there, and to there, by the devices themselves: of a call that does not fit
 * inline what xdr_put_ref put, if that is all of its payload, and what xdr_put_place named. Their
 * release then waits until the peer can neither read nor write it for that call any more. Peers may
 * read and write all of it as long as it is registered. Any thread, whether or not RDMA was
 * started; waits for the control thread. -EINVAL, -EEXIST: it overlaps with one that is there,
 * -ENOSPC: RPC_RDMA_REGIONS are; else what the registration failed with (-ENOMEM: the limit on
 * locked memory, -EFAULT: it cannot be written), and nothing is registered. */
int rpc_rdma_memory_add(void *p, size_t len);
/* p: where it begins. -ENOENT, -EBUSY: calls are using it. */
int rpc_rdma_memory_remove(void *p);
#endif
