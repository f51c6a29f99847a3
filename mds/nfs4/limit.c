/* SPDX-License-Identifier: Apache-2.0 */
/*
 * limit.c - how much one client may use (docs/security.md, "Limits"): connections and clients, by
 * address and in all; state, by client, by address and in all.
 *
 * A connection over a limit is closed when it opens: the client's machine connects again by itself,
 * at growing intervals. A client that is admitted gets NFS4ERR_DELAY, which NFSv4.1 has for "not
 * now" in OPEN, LOCK and EXCHANGE_ID. For a layout over the limit it gets
 * NFS4ERR_LAYOUTUNAVAILABLE, and then sends its data through the metadata server.
 */
#include "base/clock.h"
#include "base/log.h"
#include "mds/nfs4/op.h"
#include "mds/nfs4/credentials.h"
#include <stdio.h>

#define LOG_EVERY_NS 10000000000ull

static const char *const what[OP_LIMITS] = {"connections", "clients", "opens",
					    "locks",	   "layouts", "strangers"};

bool op_limited(struct mds *m, enum op_limit which)
{
	uint64_t now = clock_mono_ns(), logged = atomic_load(&m->m_limits.lm_logged_ns[which]);

	metric_add(m->m_limits.lm_refused[which], 1);
	if ((!logged || now - logged > LOG_EVERY_NS) &&
	    atomic_compare_exchange_strong(&m->m_limits.lm_logged_ns[which], &logged, now))
		log_warn("refused %s%s; weft_mds_refused_total counts them", what[which],
			 which == OP_LIMIT_STRANGERS ? " without access to any export"
						     : " over their limit");
	return true;
}

/* OP_OF_CLIENT: neither the limit of the address nor that of all clients is reached. */
static enum op_scope limit_reached(const struct compound *c, enum st_count what,
				   const uint32_t most[OP_SCOPES])
{
	const struct st_addr_account *at = c->client->cl_place;

	if (atomic_load(&c->m->m_st->st_counts.ct_n[what]) >= most[OP_OF_ALL])
		return OP_OF_ALL;
	return at && atomic_load(&at->pl_counts.ct_n[what]) >= most[OP_OF_ADDR] ? OP_OF_ADDR
										: OP_OF_CLIENT;
}

bool op_full(struct compound *c, enum st_count what, enum op_limit which,
	     const uint32_t most[OP_SCOPES], enum op_scope *whose)
{
	enum op_scope scope = limit_reached(c, what, most);

	if (st_has_quota(c->client, what))
		return false;
	if (scope != OP_OF_CLIENT &&
	    st_quotas_gather(c->m->m_st, scope == OP_OF_ALL ? NULL : c->client->cl_place, what))
		scope = limit_reached(c, what, most);
	if (scope == OP_OF_CLIENT)
		return op_full_again(c, what, which, most);
	*whose = scope;
	return op_limited(c->m, which);
}

void op_make_room(struct compound *c, enum op_scope whose)
{
	struct st *st = c->m->m_st;
	const struct st_addr_account *at;
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
		file_evict(&c->m->m_file, c->th->mt_loop, evict);
}

bool op_full_again(struct compound *c, enum st_count what, enum op_limit which,
		   const uint32_t most[OP_SCOPES])
{
	const _Atomic uint32_t *n = &c->client->cl_counts.ct_n[what];

	if (st_has_quota(c->client, what) || atomic_load(n) < most[OP_OF_CLIENT])
		return false;
	st_quota_back(c->client, what); /* the room that its other threads reserved */
	return atomic_load(n) >= most[OP_OF_CLIENT] && op_limited(c->m, which);
}

void op_conn_opened(struct mds *m, struct rpc_conn *conn)
{
	if (rpc_limit_opened(&m->m_limits.lm_conns, conn))
		return;
	op_limited(m, OP_LIMIT_CONNS);
	rpc_conn_close(conn); /* op_conn_closed takes it off the count */
}

void op_conn_closed(struct mds *m, struct rpc_conn *conn)
{
	op_conn_view_drop(conn);
	rpc_limit_closed(&m->m_limits.lm_conns, conn);
}

/* Does the call use a session that exists? The control program is not asked: it has authenticated
 * its caller by then, or sends little. */
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
	/* A retry from before a restart may be a WRITE: the durable reply cache answers it. */
	return there || op_replay_kept(m, id, seq, slot);
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
