/*
 * limit.c - what one client may take (docs/security.md, "Limits"): connections and clients by
 * address and in all, and state by client, by address and in all.
 *
 * A connection over a limit is closed when it opens: the client's machine tries again by itself,
 * later and later. What is refused to a client that is in is answered DELAY, which is what NFSv4.1
 * has for "not now" in OPEN, LOCK and EXCHANGE_ID; a layout is answered LAYOUTUNAVAILABLE, and data
 * then comes through us.
 */
#include "base/clock.h"
#include "base/log.h"
#include "mds/nfs4/op.h"
#include <stdio.h>

#define LOG_EVERY_NS 10000000000ull

static const char *const what[OP_LIMITS] = {"connections", "clients", "opens",
					    "locks",	   "layouts", "strangers"};

bool op_limited(struct mds *m, enum op_limit which)
{
	uint64_t now = clock_mono_ns(), told = atomic_load(&m->m_limits.lm_told_ns[which]);

	metric_add(m->m_limits.lm_refused[which], 1);
	if ((!told || now - told > LOG_EVERY_NS) &&
	    atomic_compare_exchange_strong(&m->m_limits.lm_told_ns[which], &told, now))
		log_warn("refused %s%s; weft_mds_refused_total counts them", what[which],
			 which == OP_LIMIT_STRANGERS ? " without access to any export"
						     : " over their limit");
	return true;
}

/* OP_OF_CLIENT: neither the address's limit is reached, nor that of all. */
static enum op_scope reached(const struct compound *c, enum st_count what,
			     const uint32_t most[OP_SCOPES])
{
	const struct st_place *at = c->client->cl_place;

	if (atomic_load(&c->m->m_st->st_counts.ct_n[what]) >= most[OP_OF_ALL])
		return OP_OF_ALL;
	return at && atomic_load(&at->pl_counts.ct_n[what]) >= most[OP_OF_ADDR] ? OP_OF_ADDR
										: OP_OF_CLIENT;
}

bool op_full(struct compound *c, enum st_count what, enum op_limit which,
	     const uint32_t most[OP_SCOPES], enum op_scope *whose)
{
	enum op_scope scope = reached(c, what, most);

	if (st_has_room(c->client, what))
		return false;
	if (scope != OP_OF_CLIENT &&
	    st_rooms_gather(c->m->m_st, scope == OP_OF_ALL ? NULL : c->client->cl_place, what))
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
	evict = whose == OP_OF_ALL ? st_client_oldest(st, NULL)
		: at		   ? st_client_oldest(st, at->pl_addr)
				   : 0;
	st_all_unlock(st);
	if (evict)
		op_evict(c->m, c->th->mt_loop, evict);
}

bool op_full_again(struct compound *c, enum st_count what, enum op_limit which,
		   const uint32_t most[OP_SCOPES])
{
	const _Atomic uint32_t *n = &c->client->cl_counts.ct_n[what];

	if (st_has_room(c->client, what) || atomic_load(n) < most[OP_OF_CLIENT])
		return false;
	st_room_back(c->client, what); /* what its other threads took ahead */
	return atomic_load(n) >= most[OP_OF_CLIENT] && op_limited(c->m, which);
}

void op_conn_opened(struct mds *m, struct rpc_conn *conn)
{
	if (rpc_limit_opened(&m->m_limits.lm_conns, conn))
		return;
	op_limited(m, OP_LIMIT_CONNS);
	rpc_conn_close(conn); /* op_conn_closed counts it back */
}

void op_conn_closed(struct mds *m, struct rpc_conn *conn)
{
	op_conn_view_drop(conn);
	rpc_limit_closed(&m->m_limits.lm_conns, conn);
}

/* A session that is there; the control program has proved itself by then, or sends little. */
bool op_first(struct mds *m, uint32_t prog, uint32_t proc, struct xdr_in *x)
{
	const uint8_t *id;
	uint32_t len, seq, slot;
	bool there;

	if (prog != NFS4_PROGRAM || proc != 1)
		return false;
	xdr_get_opaque(x, NFS4_OPAQUE_LIMIT, &len); /* the tag */
	xdr_get_u32(x);
	if (!xdr_get_u32(x) || xdr_get_u32(x) != OP_SEQUENCE)
		return false;
	id = xdr_get_fixed(x, NFS4_SESSIONID_SIZE);
	seq = xdr_get_u32(x);
	slot = xdr_get_u32(x);
	if (!id || x->bad)
		return false;
	urcu_memb_read_lock();
	there = st_session_find(m->m_st, id);
	urcu_memb_read_unlock();
	/* A retry from before a restart may be a WRITE, and has its answer from the store. */
	return there || op_once_kept(m, id, seq, slot);
}

void op_limits_init(struct mds *m)
{
	char label[32];

	rpc_limit_init(&m->m_limits.lm_conns);
	for (unsigned i = 0; i < OP_LIMITS; i++) {
		snprintf(label, sizeof(label), "what=\"%s\"", what[i]);
		m->m_limits.lm_refused[i] = metric_counter(
			"weft_mds_refused_total",
			"What was refused because a limit is reached, and requests of strangers",
			label);
	}
}
