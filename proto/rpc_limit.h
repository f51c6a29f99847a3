/* SPDX-License-Identifier: Apache-2.0 */
/* rpc_limit.h - limits of connections, in all and of one address. Of IPv6 a network of 64 bits
 * counts as one address, because any host has all of it. Any thread. */
#ifndef PROTO_RPC_LIMIT_H
#define PROTO_RPC_LIMIT_H
#include "base/hash.h"
#include "proto/rpc.h"
#include <pthread.h>

struct rpc_limit {
	uint32_t rm_max, rm_max_addr;
	pthread_mutex_t rm_lock;
	struct hash rm_addrs;
	uint32_t rm_conns;
};

void rpc_limit_init(struct rpc_limit *rm);
/* Connections that are there stay. */
void rpc_limit_set(struct rpc_limit *rm, uint32_t max, uint32_t max_addr);
/* False: there are too many. The connection counts all the same, until it is closed. */
bool rpc_limit_opened(struct rpc_limit *rm, const struct rpc_conn *conn);
void rpc_limit_closed(struct rpc_limit *rm, const struct rpc_conn *conn);
/* The address by which a connection counts. */
void rpc_limit_addr(const struct rpc_conn *conn, uint8_t addr[16]);
#endif
