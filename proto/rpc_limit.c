/* SPDX-License-Identifier: Apache-2.0 */
/* rpc_limit.c - see rpc_limit.h. */
#include "proto/rpc_limit.h"
#include "proto/rpc_int.h"

struct limit_addr {
	struct hash_link la_link;
	uint8_t la_addr[16];
	uint32_t la_conns;
};

void rpc_limit_addr(const struct rpc_conn *conn, uint8_t addr[16])
{
	rpc_conn_host(conn, addr);
}

static struct limit_addr *addr_find(struct rpc_limit *rm, const uint8_t addr[16], uint64_t h)
{
	struct hash_link *l = hash_first(&rm->rm_addrs, h);

	while (l && memcmp(hash_entry(l, struct limit_addr, la_link)->la_addr, addr, 16) != 0)
		l = hash_next(l);
	return l ? hash_entry(l, struct limit_addr, la_link) : NULL;
}

static struct limit_addr *rpc_limit_addr_make(struct rpc_limit *rm, const uint8_t addr[16],
					      uint64_t h)
{
	struct limit_addr *a = addr_find(rm, addr, h);

	if (a)
		return a;
	a = calloc(1, sizeof(*a));
	if (!a || hash_add(&rm->rm_addrs, &a->la_link, h)) {
		free(a);
		return NULL;
	}
	memcpy(a->la_addr, addr, 16);
	return a;
}

void rpc_limit_init(struct rpc_limit *rm)
{
	pthread_mutex_init(&rm->rm_lock, NULL);
}

void rpc_limit_set(struct rpc_limit *rm, uint32_t max, uint32_t max_addr)
{
	pthread_mutex_lock(&rm->rm_lock);
	rm->rm_max = max;
	rm->rm_max_addr = max_addr;
	pthread_mutex_unlock(&rm->rm_lock);
}

bool rpc_limit_opened(struct rpc_limit *rm, const struct rpc_conn *conn)
{
	struct limit_addr *a;
	uint8_t addr[16];
	bool ok;

	rpc_limit_addr(conn, addr);
	pthread_mutex_lock(&rm->rm_lock);
	a = rpc_limit_addr_make(rm, addr, hash_bytes(addr, 16));
	if (a)
		a->la_conns++;
	rm->rm_conns++;
	ok = a && a->la_conns <= rm->rm_max_addr && rm->rm_conns <= rm->rm_max;
	pthread_mutex_unlock(&rm->rm_lock);
	return ok;
}

void rpc_limit_closed(struct rpc_limit *rm, const struct rpc_conn *conn)
{
	struct limit_addr *a;
	uint8_t addr[16];

	rpc_limit_addr(conn, addr);
	pthread_mutex_lock(&rm->rm_lock);
	rm->rm_conns--;
	a = addr_find(rm, addr, hash_bytes(addr, 16));
	if (a && --a->la_conns == 0) {
		hash_del(&rm->rm_addrs, &a->la_link);
		free(a);
	}
	pthread_mutex_unlock(&rm->rm_lock);
}
