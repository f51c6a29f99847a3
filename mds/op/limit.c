/*
 * limit.c - what one client may take (docs/security.md, "Limits"): connections and clients by address and in all, and state by client, by address and in all.
 *
 * A connection over a limit is closed when it opens: the client's machine tries again by itself, later and later. What is refused to a client that is in
 * is answered DELAY, which is what NFSv4.1 has for "not now" in OPEN, LOCK and EXCHANGE_ID; a layout is answered LAYOUTUNAVAILABLE, and data then comes through us.
 */
#include "base/clock.h"
#include "base/log.h"
#include "mds/op/op.h"
#include <stdio.h>

#define LOG_EVERY_NS 10000000000ull

static const char *const what[OP_LIMITS] = {"connections", "clients", "opens", "locks", "layouts", "strangers"};

/* One address; of IPv6 a network of 64 bits, all of which any host has. */
struct limit_addr {
	struct hash_link la_link;
	uint8_t la_addr[16];
	uint32_t la_conns;
};

void op_conn_addr(const struct rpc_conn *conn, uint8_t addr[16])
{
	uint16_t port;

	exp_addr(rpc_conn_peer(conn), addr, &port);
	if (rpc_conn_peer(conn)->ss_family == AF_INET6)
		memset(addr + 8, 0, 8);
}

static uint64_t addr_key(const struct rpc_conn *conn, uint8_t addr[16])
{
	op_conn_addr(conn, addr);
	return hash_bytes(addr, 16);
}

static struct limit_addr *addr_find(struct op_limits *lm, const uint8_t addr[16], uint64_t h)
{
	struct hash_link *l = hash_first(&lm->lm_addrs, h);

	while (l && memcmp(hash_entry(l, struct limit_addr, la_link)->la_addr, addr, 16) != 0)
		l = hash_next(l);
	return l ? hash_entry(l, struct limit_addr, la_link) : NULL;
}

static struct limit_addr *addr_make(struct op_limits *lm, const uint8_t addr[16], uint64_t h)
{
	struct limit_addr *a = addr_find(lm, addr, h);

	if (a)
		return a;
	a = calloc(1, sizeof(*a));
	if (!a || hash_add(&lm->lm_addrs, &a->la_link, h)) {
		free(a);
		return NULL;
	}
	memcpy(a->la_addr, addr, 16);
	return a;
}

bool op_limited(struct mds *m, enum op_limit which)
{
	uint64_t now = clock_mono_ns(), told = atomic_load(&m->m_limits.lm_told_ns[which]);

	metric_add(m->m_limits.lm_refused[which], 1);
	if ((!told || now - told > LOG_EVERY_NS) && atomic_compare_exchange_strong(&m->m_limits.lm_told_ns[which], &told, now))
		log_warn("%s%s: refused, and counted in weft_mds_refused_total", what[which], which == OP_LIMIT_STRANGERS ? " who may use no export" : " over their limit");
	return true;
}

/* OP_OF_CLIENT: neither the address's limit is reached, nor that of all. */
static enum op_scope reached(const struct compound *c, enum st_count what, const uint32_t most[OP_SCOPES])
{
	const struct st_place *at = c->client->cl_place;

	if (atomic_load(&c->m->m_st->st_counts.ct_n[what]) >= most[OP_OF_ALL])
		return OP_OF_ALL;
	return at && atomic_load(&at->pl_counts.ct_n[what]) >= most[OP_OF_ADDR] ? OP_OF_ADDR : OP_OF_CLIENT;
}

bool op_full(struct compound *c, enum st_count what, enum op_limit which, const uint32_t most[OP_SCOPES], enum op_scope *whose)
{
	enum op_scope scope = reached(c, what, most);

	if (st_has_room(c->client, what))
		return false;
	if (scope != OP_OF_CLIENT && st_rooms_gather(c->m->m_st, scope == OP_OF_ALL ? NULL : c->client->cl_place, what))
		scope = reached(c, what, most);
	if (scope == OP_OF_CLIENT)
		return op_full_again(c, what, which, most);
	*whose = scope;
	return op_limited(c->m, which);
}

void op_make_room(struct compound *c, enum op_scope whose)
{
	struct st *st = c->m->m_st;
	const struct st_place *at;
	uint64_t evict;

	if (whose == OP_OF_CLIENT)
		return;
	st_all_lock(st);
	at = c->client->cl_place;
	evict = whose == OP_OF_ALL ? st_client_oldest(st, NULL) : at ? st_client_oldest(st, at->pl_addr) : 0;
	st_all_unlock(st);
	if (evict)
		op_evict(c->m, c->th->mt_loop, evict);
}

bool op_full_again(struct compound *c, enum st_count what, enum op_limit which, const uint32_t most[OP_SCOPES])
{
	const _Atomic uint32_t *n = &c->client->cl_counts.ct_n[what];

	if (st_has_room(c->client, what) || atomic_load(n) < most[OP_OF_CLIENT])
		return false;
	st_room_back(c->client, what); /* what its other threads took ahead */
	return atomic_load(n) >= most[OP_OF_CLIENT] && op_limited(c->m, which);
}

void op_conn_opened(struct mds *m, struct rpc_conn *conn)
{
	struct op_limits *lm = &m->m_limits;
	struct limit_addr *a;
	uint8_t addr[16];
	uint64_t h = addr_key(conn, addr);
	bool refused;

	pthread_mutex_lock(&lm->lm_lock);
	a = addr_make(lm, addr, h);
	if (a)
		a->la_conns++;
	lm->lm_conns++;
	refused = !a || a->la_conns > lm->lm_conns_addr || lm->lm_conns > lm->lm_conns_max;
	pthread_mutex_unlock(&lm->lm_lock);
	if (!refused)
		return;
	op_limited(m, OP_LIMIT_CONNS);
	rpc_conn_close(conn); /* op_conn_closed counts it back */
}

void op_conn_closed(struct mds *m, struct rpc_conn *conn)
{
	struct op_limits *lm = &m->m_limits;
	struct limit_addr *a;
	uint8_t addr[16];
	uint64_t h = addr_key(conn, addr);

	op_conn_view_drop(conn);
	pthread_mutex_lock(&lm->lm_lock);
	lm->lm_conns--;
	a = addr_find(lm, addr, h);
	if (a && --a->la_conns == 0) {
		hash_del(&lm->lm_addrs, &a->la_link);
		free(a);
	}
	pthread_mutex_unlock(&lm->lm_lock);
}

void op_limits_init(struct mds *m)
{
	char label[32];

	pthread_mutex_init(&m->m_limits.lm_lock, NULL);
	for (unsigned i = 0; i < OP_LIMITS; i++) {
		snprintf(label, sizeof(label), "what=\"%s\"", what[i]);
		m->m_limits.lm_refused[i] = metric_counter("weft_mds_refused_total", "What was refused because a limit is reached, and requests of strangers", label);
	}
}
