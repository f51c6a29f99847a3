/* SPDX-License-Identifier: Apache-2.0 */
/*
 * op_session.c - sessions, SEQUENCE, and the other operations on clients and stateids (RFC 8881
 * sections 18.35 and on). EXCHANGE_ID is in exchange_id.c.
 *
 *	op_create_session		checks, and makes the session of a client that is recorded
 *	create_session_recorded		the client is recorded (create_session_run): data
 *					servers revoke the number that it had before its reboot
 *	create_session_barred		they have, or their leases are over:
 *					create_session_confirm makes the session
 *
 *	op_sequence			sequence_go takes the slot
 *	sequence_back_done		the lease had run out, and the record does not say so any
 *					more (sequence_back_run): sequence_go again
 *
 *	op_reclaim_complete		checks; reclaim_complete_run
 *	reclaim_complete_done		the answer
 */
#include "base/crash.h"
#include "base/log.h"
#include "mds/nfs4/credentials.h"
#include "mds/nfs4/op_state.h"
#include "base/pool.h"
#include "mds/layout/repair_row.h"
#include "mds/nfs4/state_protect.h"
#include "proto/rpc_rdma.h"
#include <errno.h>

#define CB_MAX	     4096u
#define CB_MIN	     512u
#define FORE_MIN     256u
#define SEQUENCE_LEN 36u /* bytes of SEQUENCE's result */
#define CHECK_BYTES  256u
#define SESSIONS_MAX 64u /* of one client */

static uint64_t get_clientid(struct xdr_in *x)
{
	return xdr_get_u64(x);
}

/*
 * ---- CREATE_SESSION ----
 *
 * The first one of a clientid confirms the client. It
 *
 *	records		the client's durable record. If the client may have layouts from before its
 *			reboot, also the revocation of its old number, and that the writes under it
 *			are lost (create_session_run)
 *	waits		then, until every data server has revoked that number, or has lost its lease
 *			(create_session_wait, create_session_barred)
 *	confirms	the client, destroys its state from before, and makes the session
 *			(create_session_confirm)
 */

struct chan {
	uint32_t pad, maxreq, maxresp, maxcached, maxops, maxreqs, nird;
};

static void get_chan(struct xdr_in *x, struct chan *ch)
{
	ch->pad = xdr_get_u32(x);
	ch->maxreq = xdr_get_u32(x);
	ch->maxresp = xdr_get_u32(x);
	ch->maxcached = xdr_get_u32(x);
	ch->maxops = xdr_get_u32(x);
	ch->maxreqs = xdr_get_u32(x);
	ch->nird = xdr_get_u32(x);
	if (ch->nird > 1)
		x->bad = true;
	else if (ch->nird)
		xdr_get_u32(x);
}

static void put_chan(struct xdr_out *x, const struct chan *ch)
{
	xdr_put_u32(x, 0);
	xdr_put_u32(x, ch->maxreq);
	xdr_put_u32(x, ch->maxresp);
	xdr_put_u32(x, ch->maxcached);
	xdr_put_u32(x, ch->maxops);
	xdr_put_u32(x, ch->maxreqs);
	xdr_put_u32(x, 0);
}

static uint32_t min_u32(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

struct create_session {
	uint64_t clientid;
	uint32_t seq, flags, prog, flavor, uid, gid;
	struct chan fore, back;
	uint32_t number, barred;
	bool losing;   /* the transaction declares lost what the client wrote before its reboot */
	bool old_laid; /* the client may have layouts from before its reboot */
	uint8_t verifier[8], key[32];
	uint8_t owner[NFS4_OPAQUE_LIMIT];
	uint32_t owner_len;
};

static void get_cb_sec(struct xdr_in *x, struct create_session *a)
{
	uint32_t n = xdr_get_u32(x), len, ngids;
	bool have = false;

	for (uint32_t i = 0; i < n && !x->bad; i++) {
		uint32_t flavor = xdr_get_u32(x);

		switch (flavor) {
		case RPC_AUTH_NONE:
			if (!have)
				a->flavor = RPC_AUTH_NONE;
			break;
		case RPC_AUTH_SYS:
			xdr_get_u32(x);
			xdr_get_opaque(x, 255, &len);
			a->uid = xdr_get_u32(x);
			a->gid = xdr_get_u32(x);
			ngids = xdr_get_u32(x);
			if (ngids > 16)
				x->bad = true;
			else
				xdr_take(x, ngids * 4);
			a->flavor = RPC_AUTH_SYS;
			have = true;
			break;
		case RPC_AUTH_GSS:
			xdr_get_u32(x);
			xdr_get_opaque(x, NFS4_OPAQUE_LIMIT, &len);
			xdr_get_opaque(x, NFS4_OPAQUE_LIMIT, &len);
			break;
		default:
			x->bad = true;
		}
	}
}

/* Most bytes of a call or reply. Over RDMA a long one lies in a block of the pool. */
static uint32_t most_bytes(const struct compound *c)
{
	return rpc_conn_is_rdma(c->call->c_conn) ? min_u32(OP_MAX_IO + 65536, POOL_MOST)
						 : OP_MAX_IO + 65536;
}

/* locked: makes the session of a confirmed client, and puts the reply. */
static nfsstat4 op_session_make(struct compound *c, struct create_session *a, struct st_client *cl)
{
	struct st_session *s;
	size_t at = c->out->x_len;
	struct chan f = a->fore, b = a->back;
	bool back = a->flags & CREATE_SESSION4_FLAG_CONN_BACK_CHAN;
	uint16_t port = UINT16_MAX;

	if (cl->cl_nsessions >= SESSIONS_MAX)
		return NFS4ERR_NOSPC;
	s = st_session_new(c->m->m_st, cl);
	if (s && cl->cl_mach && !st_session_admit(s, c->call->c_conn)) {
		st_session_destroy(c->m->m_st, s);
		s = NULL;
	}
	if (!s)
		return NFS4ERR_DELAY;
	f.maxreq = min_u32(f.maxreq, most_bytes(c));
	f.maxresp = min_u32(f.maxresp, most_bytes(c));
	f.maxcached = min_u32(f.maxcached, 16384);
	f.maxops = min_u32(f.maxops, OP_MAX_OPS);
	f.maxreqs = st_slots_grant(c->m->m_st, s, f.maxreqs);
	b.maxreq = min_u32(b.maxreq, CB_MAX);
	b.maxresp = min_u32(b.maxresp, CB_MAX);
	b.maxcached = 0;
	s->se_cb_nslots = min_u32(b.maxreqs, ST_CB_SLOTS);
	st_session_came(s, c->call->c_conn);
	exp_addr(rpc_conn_peer(c->call->c_conn), s->se_addr, &port);
	s->se_sec = c->sec;
	s->se_tls = (uint8_t)rpc_conn_tls(c->call->c_conn);
	s->se_minor = c->minor;
	s->se_maxreq = f.maxreq;
	s->se_maxresp = f.maxresp;
	s->se_maxcached = f.maxcached;
	s->se_maxops = f.maxops;
	s->se_cb_prog = a->prog;
	s->se_cb_flavor = a->flavor;
	s->se_cb_uid = a->uid;
	s->se_cb_gid = a->gid;
	xdr_put_fixed(c->out, s->se_id, 16);
	xdr_put_u32(c->out, a->seq);
	xdr_put_u32(c->out, back ? CREATE_SESSION4_FLAG_CONN_BACK_CHAN : 0);
	put_chan(c->out, &f);
	put_chan(c->out, &b);
	if (back)
		st_session_bind(c->m->m_st, s, c->call->c_conn);
	rpc_limit_addr(c->call->c_conn, cl->cl_cs_addr);
	cl->cl_cs_seq = a->seq + 1;
	cl->cl_cs_len = 0;
	if (!c->out->bad && c->out->x_len - at <= sizeof(cl->cl_cs_reply)) {
		cl->cl_cs_len = (uint32_t)(c->out->x_len - at);
		memcpy(cl->cl_cs_reply, c->out->x_head + at, cl->cl_cs_len);
	}
	st_client_renew(c->m->m_st, cl);
	st_session_publish(c->m->m_st, s);
	atomic_store(&cl->cl_tag, 0); /* its address may belong to a tag */
	return NFS4_OK;
}

static op_step create_session_recorded, create_session_barred;
static nfsstat4 create_session_confirm(struct compound *c);

static int create_session_run(struct kv_op *op, struct kv_txn *t)
{
	struct compound *c = op_of(op);
	struct create_session *a = c->scratch;
	int err = st_record_put(c->m->m_st, t, a->key, a->verifier, &a->number, &a->barred);

	if (!a->old_laid)
		a->barred = 0;
	if (!err && a->barred && !a->losing)
		file_lost_writers_begin(&c->m->m_file);
	a->losing |= !err && a->barred;
	if (a->losing && !err)
		err = lo_lost_writers_put(
			t); /* the client was rebooted: what it was writing is lost */
	return err || !a->barred ? err : lo_order_bar(c->m->m_lo, t, a->barred);
}

/* The kept answer names the session. Only the address that asked for it gets it, or the client
 * itself. */
static bool session_asked(const struct compound *c, const struct st_client *cl)
{
	uint8_t addr[16];

	rpc_limit_addr(c->call->c_conn, addr);
	return memcmp(addr, cl->cl_cs_addr, sizeof(addr)) == 0 || op_from_client(c, cl);
}

nfsstat4 op_create_session(struct compound *c)
{
	struct create_session *a = op_scratch(c, sizeof(*a), NULL);
	struct st *st = c->m->m_st;
	struct st_client *cl, *old;
	nfsstat4 status = NFS4_OK;
	bool record = false;

	if (!a)
		return NFS4ERR_DELAY;
	a->clientid = get_clientid(c->in);
	a->seq = xdr_get_u32(c->in);
	a->flags = xdr_get_u32(c->in);
	get_chan(c->in, &a->fore);
	get_chan(c->in, &a->back);
	a->prog = xdr_get_u32(c->in);
	get_cb_sec(c->in, a);
	if (c->in->bad)
		return NFS4ERR_BADXDR;
	if (a->flags & ~7u)
		return NFS4ERR_INVAL;
	if (a->fore.maxreqs == 0 || a->fore.maxops == 0)
		return NFS4ERR_INVAL;
	/* Below these sizes no SEQUENCE with an operation fits, and no CB_SEQUENCE with a recall
	 * (section 18.36.3). */
	if (a->fore.maxreq < FORE_MIN || a->fore.maxresp < FORE_MIN)
		return NFS4ERR_TOOSMALL;
	if (a->back.maxreq < CB_MIN || a->back.maxresp < FORE_MIN || a->back.maxops < 2 ||
	    a->back.maxreqs < 1)
		return NFS4ERR_TOOSMALL;
	st_all_lock(st);
	cl = st_client_get(st, a->clientid);
	if (!cl || atomic_load(&cl->cl_evicting)) {
		status = cl ? NFS4ERR_DELAY : NFS4ERR_STALE_CLIENTID;
	} else if ((status = op_mach_check(c, cl, OP_CREATE_SESSION))) {
		; /* first, so that no stranger gets a kept answer */
	} else if (!op_principal_is(cl, &c->call->c_cred)) {
		/* Confirmed or not: the kept answer and the callbacks are the client's. */
		status = NFS4ERR_CLID_INUSE;
	} else if (a->seq == cl->cl_cs_seq - 1 && cl->cl_cs_len && session_asked(c, cl)) {
		uint8_t *p = xdr_reserve(c->out, cl->cl_cs_len);

		if (p)
			memcpy(p, cl->cl_cs_reply, cl->cl_cs_len);
	} else if (a->seq != cl->cl_cs_seq) {
		status = NFS4ERR_SEQ_MISORDERED;
	} else if (cl->cl_confirming) {
		status = NFS4ERR_DELAY; /* a retry while the first request is under way */
	} else if (cl->cl_recorded) {
		status = op_session_make(c, a, cl);
	} else {
		memcpy(a->owner, cl->cl_owner, cl->cl_owner_len);
		a->owner_len = cl->cl_owner_len;
		memcpy(a->verifier, cl->cl_verifier, 8);
		memcpy(a->key, cl->cl_key, sizeof(a->key));
		old = st_client_by_owner(st, cl->cl_owner, cl->cl_owner_len, true);
		/* Without an old client, the record may be from an earlier boot. */
		a->old_laid = !old || atomic_load(&old->cl_laid) || old->cl_boot;
		cl->cl_confirming = record = true;
		/* The end of grace comes in a later transaction. It must not delete the row and
		 * revoke the number that this transaction gives. */
		st_record_back(st, cl->cl_key);
	}
	st_all_unlock(st);
	/* Idempotent: after a restart the clientid is stale, the client sends EXCHANGE_ID, and the
	 * record is put again. */
	return record ? op_mutate_again(c, create_session_run, create_session_recorded) : status;
}

static nfsstat4 create_session_wait(struct compound *c)
{
	lo_orders_wait(c->m->m_lo, 0, c->th->mt_loop, op_confirm_ms(c->m), op_wake, c);
	return op_await(c, create_session_barred);
}

static nfsstat4 create_session_recorded(struct compound *c, int err)
{
	struct create_session *a = c->scratch;
	struct st *st = c->m->m_st;
	struct st_client *cl;

	if (err) {
		st_all_lock(st);
		cl = st_client_get(st, a->clientid);
		if (cl)
			cl->cl_confirming = false;
		st_record_away(st, a->owner, a->owner_len, a->key);
		c->m->m_lost.fl_losing -= a->losing;
		a->losing = false;
		st_all_unlock(st);
		return op_status(err);
	}
	if (!a->barred)
		return create_session_confirm(c);
	lo_orders_wake(c->m->m_lo);
	return create_session_wait(c);
}

/* A data server with a lease that has not revoked the client's old number may still take writes
 * under it. So the client gets no session until each data server has confirmed, or its lease is
 * over. */
static nfsstat4 create_session_barred(struct compound *c, int err)
{
	struct create_session *a = c->scratch;

	if (!err)
		return create_session_confirm(c);
	log_error("client %u: a live data server does not bar its number from before its reboot: "
		  "%s",
		  a->number, strerror(-err));
	return create_session_wait(c);
}

/* The record is durable, and the data servers refuse the client's writes from before its reboot.
 * Confirms the client, and destroys its state from before. */
static nfsstat4 create_session_confirm(struct compound *c)
{
	struct create_session *a = c->scratch;
	struct st *st = c->m->m_st;
	struct st_client *cl, *old;
	nfsstat4 status;

	st_all_lock(st);
	old = st_client_by_owner(st, a->owner, a->owner_len, true);
	cl = st_client_get(st, a->clientid);
	/* Also when another EXCHANGE_ID took this one's place meanwhile: the old number may be
	 * revoked already. */
	if (a->losing) {
		if (old && old != cl)
			file_lost_client(st, old);
		st->st_lost |= st_in_grace(st);
		atomic_store(&c->m->m_lost.fl_lost, true);
		c->m->m_lost.fl_losing--;
		a->losing = false;
	}
	if (old && old != cl)
		st_client_destroy(st, old);
	if (!cl) {
		st_record_away(st, a->owner, a->owner_len, a->key);
		status = NFS4ERR_STALE_CLIENTID;
	} else {
		cl->cl_number = a->number;
		cl->cl_confirmed = cl->cl_recorded = true;
		cl->cl_confirming = false;
		cl->cl_boot = st_record_known(st, cl->cl_key) && !a->barred;
		atomic_store(&cl->cl_may_reclaim,
			     st_in_grace(st) && st_record_reclaims(st, cl->cl_key));
		status = op_session_make(c, a, cl);
	}
	st_all_unlock(st);
	return status;
}

nfsstat4 op_destroy_session(struct compound *c)
{
	const uint8_t *id = xdr_get_fixed(c->in, 16);
	struct st *st = c->m->m_st;
	struct st_session *s;
	nfsstat4 status;

	if (!id)
		return NFS4ERR_BADXDR;
	st_all_lock(st);
	s = st_session_get(st, id);
	/* DESTROY_SESSION of the own session must be the last operation (section 18.37.3). */
	if (s && s == c->session && c->at + 1 < c->nops) {
		st_all_unlock(st);
		return NFS4ERR_NOT_ONLY_OP;
	}
	status = s ? op_mach_check(c, s->se_client, OP_DESTROY_SESSION) : NFS4ERR_BADSESSION;
	/* The request must come on a connection of the session. A client whose idle connections
	 * were closed unmounts over a new one: then it must be a connection of the client. */
	if (!status && !s->se_client->cl_mach &&
	    ((!op_from_session(c, s) && !op_from_client(c, s->se_client)) ||
	     !st_session_carried(s, c->call->c_conn)))
		status = NFS4ERR_CONN_NOT_BOUND_TO_SESSION;
	if (!status) {
		s->se_client->cl_parted = true;
		st_session_destroy(st, s);
	}
	st_all_unlock(st);
	return status;
}

nfsstat4 op_bind_conn(struct compound *c)
{
	const uint8_t *id = xdr_get_fixed(c->in, 16);
	uint32_t dir = xdr_get_u32(c->in), given;
	struct st *st = c->m->m_st;
	struct st_session *s;
	nfsstat4 status;

	xdr_get_bool(c->in);
	if (c->in->bad)
		return NFS4ERR_BADXDR;
	if (dir != CDFC4_FORE && dir != CDFC4_BACK && dir != CDFC4_FORE_OR_BOTH &&
	    dir != CDFC4_BACK_OR_BOTH)
		return NFS4ERR_BADXDR;
	st_all_lock(st);
	s = st_session_get(st, id);
	/* The session's callbacks go to the connection bound here. The client may bind one from any
	 * address (section 2.10.8.3). WRONG_CRED is no error of this operation (section 15.2). */
	status = !s						   ? NFS4ERR_BADSESSION
		 : op_principal_is(s->se_client, &c->call->c_cred) ? NFS4_OK
								   : NFS4ERR_ACCESS;
	if (!status && s->se_client->cl_mach && !st_session_admit(s, c->call->c_conn))
		status = NFS4ERR_DELAY;
	if (!status) {
		given = dir == CDFC4_FORE   ? CDFS4_FORE
			: dir == CDFC4_BACK ? CDFS4_BACK
					    : CDFS4_BOTH;
		if (given != CDFS4_FORE)
			st_session_bind(st, s, c->call->c_conn);
		st_session_came(s, c->call->c_conn);
		st_client_renew(st, s->se_client);
		xdr_put_fixed(c->out, id, 16);
		xdr_put_u32(c->out, given);
		xdr_put_bool(c->out, false);
	}
	st_all_unlock(st);
	return status;
}

/* No client has SP4_SSV, because EXCHANGE_ID grants it to none. RFC 8881 section 18.47.3 does not
 * allow NOTSUPP. */
nfsstat4 op_set_ssv(struct compound *c)
{
	uint32_t len;

	xdr_get_opaque(c->in, UINT32_MAX, &len);
	xdr_get_opaque(c->in, UINT32_MAX, &len);
	return c->in->bad ? NFS4ERR_BADXDR : NFS4ERR_INVAL;
}

nfsstat4 op_backchannel_ctl(struct compound *c)
{
	struct create_session a = {0};

	a.prog = xdr_get_u32(c->in);
	get_cb_sec(c->in, &a);
	if (c->in->bad)
		return NFS4ERR_BADXDR;
	if (!op_principal_is(c->client, &c->call->c_cred))
		return NFS4ERR_ACCESS;
	st_all_lock(c->m->m_st);
	c->session->se_cb_prog = a.prog;
	c->session->se_cb_flavor = a.flavor;
	c->session->se_cb_uid = a.uid;
	c->session->se_cb_gid = a.gid;
	st_all_unlock(c->m->m_st);
	return NFS4_OK;
}

/* ---- SEQUENCE ---- */

static void sequence_put(struct compound *c, struct st_session *s, const struct st_seq *q)
{
	struct st_client *cl = s->se_client;
	uint32_t flags = atomic_load(&cl->cl_revoked);

	/* Until the client has freed the revoked stateids. Also in the reply to a retry: the first
	 * reply had the flag, and may have been lost. */
	if (atomic_load(&cl->cl_nrevoked) || (q->sq_retry && q->sq_sl->sl_revoked))
		flags |= SEQ4_STATUS_RECALLABLE_STATE_REVOKED;
	if (!atomic_load(&s->se_cb_conn))
		flags |= SEQ4_STATUS_CB_PATH_DOWN | SEQ4_STATUS_CB_PATH_DOWN_SESSION;
	xdr_put_fixed(c->out, s->se_id, 16);
	xdr_put_u32(c->out, q->sq_seq);
	xdr_put_u32(c->out, q->sq_slot);
	xdr_put_u32(c->out, q->sq_room.r_nslots - 1u);
	xdr_put_u32(c->out, q->sq_room.r_target - 1u);
	xdr_put_u32(c->out, flags);
	/* The flag goes out once: the client then drops all its layouts. */
	q->sq_sl->sl_revoked = flags & SEQ4_STATUS_RECALLABLE_STATE_REVOKED;
	if (q->sq_sl->sl_revoked)
		atomic_fetch_and(&cl->cl_revoked, ~(uint32_t)SEQ4_STATUS_RECALLABLE_STATE_REVOKED);
}

/* A hash that tells one request from another: of the caller, and of all that follows SEQUENCE. It
 * leaves out SEQUENCE's own arguments, which may differ in a retry. */
static uint32_t sequence_check(const struct compound *c)
{
	size_t left = xdr_left(c->in);
	uint64_t h = hash_bytes(c->in->p, left < CHECK_BYTES ? left : CHECK_BYTES);

	return (uint32_t)hash_u64(h + left + (op_principal_hash(&c->call->c_cred) << 16) + c->nops);
}

/* A retry of the slot's last request. Answers with the kept reply, or, without one, with
 * RETRY_UNCACHED_REP on the operation after SEQUENCE (section 2.10.6.1.3). */
static nfsstat4 sequence_replay(struct compound *c, struct st_session *s, struct st_seq *q)
{
	const struct st_slot *sl = q->sq_sl;
	uint32_t status;
	uint8_t *p;

	if (sl->sl_check != sequence_check(c))
		return NFS4ERR_SEQ_FALSE_RETRY;
	if (!sl->sl_cached) {
		q->sq_room = st_quota(s);
		sequence_put(c, s, q);
		c->fail_next = NFS4ERR_RETRY_UNCACHED_REP;
		return NFS4_OK;
	}
	c->replayed = true;
	xdr_truncate(c->out, c->call->c_body);
	p = xdr_reserve(c->out, sl->sl_len);
	if (p)
		memcpy(p, sl->sl_reply, sl->sl_len);
	/* Of the reply's operations, only SEQUENCE ran this time. */
	c->at = 1;
	memcpy(&status, sl->sl_reply, sizeof(status));
	c->status = be32toh(status);
	op_trace_end(c, s->se_client->cl_number);
	return NFS4_OK;
}

static void limit_reply(struct compound *c, const struct st_session *s)
{
	/* The session may have been made over another transport. */
	uint32_t most = min_u32(s->se_maxresp, most_bytes(c));
	size_t limit = most > c->call->c_trailer ? most - c->call->c_trailer : 0;

	/* se_maxcached 0: the client sets no limit. */
	c->cached_only = c->cachethis && s->se_maxcached && s->se_maxcached < limit;
	if (c->cached_only)
		limit = s->se_maxcached;
	if (limit < c->out->x_len + OP_ERROR_ROOM)
		limit = c->out->x_len + OP_ERROR_ROOM;
	if (limit < c->out->x_limit)
		c->out->x_limit = limit;
}

static void sequence_begin(struct compound *c, struct st_session *s, const struct st_seq *q)
{
	q->sq_sl->sl_check = sequence_check(c);
	c->session = s;
	c->client = s->se_client;
	c->slot = q->sq_sl;
	st_session_came(s, c->call->c_conn);
	sequence_put(c, s, q);
	c->seq_end = c->out->x_len;
	c->once_slot = q->sq_slot;
	c->replay_seq = q->sq_seq;
	c->once_slots = q->sq_room.r_nslots;
	c->once_target = q->sq_room.r_target;
	limit_reply(c, s);
}

/* BADSESSION: the session is being destroyed. */
static nfsstat4 sequence_in(struct compound *c, struct st_session *s, struct st_seq *q)
{
	nfsstat4 status;

	if (s->se_client->cl_mach && !st_session_admits(s, c->call->c_conn))
		return NFS4ERR_CONN_NOT_BOUND_TO_SESSION;
	if (q->sq_slot >= st_quota(s).r_nslots)
		return NFS4ERR_BADSLOT;
	if (c->call->c_size > s->se_maxreq)
		return NFS4ERR_REQ_TOO_BIG;
	if (c->nops > s->se_maxops)
		return NFS4ERR_TOO_MANY_OPS;
	if (c->cachethis && s->se_maxcached && c->out->x_len + SEQUENCE_LEN > s->se_maxcached)
		q->sq_refused = NFS4ERR_REP_TOO_BIG_TO_CACHE;
	status = st_slot_take(c->m->m_st, s, q);
	if (status)
		return status;
	if (q->sq_retry) {
		status = sequence_replay(c, s, q);
		st_slot_let(q->sq_sl);
	} else {
		sequence_begin(c, s, q);
	}
	return status;
}

/* The client's lease had run out: what a SEQUENCE has while the client's record is made right. */
struct sequence_back {
	struct st_seq q;
	uint8_t id[NFS4_SESSIONID_SIZE];
	uint64_t clientid;
	uint32_t number, turn;
	uint8_t key[32];
};

static nfsstat4 sequence_go(struct compound *c, const uint8_t *id, struct st_seq *q);

static int sequence_back_run(struct kv_op *op, struct kv_txn *t)
{
	const struct sequence_back *b = op_of(op)->scratch;
	int err = st_record_lapse(t, b->key, b->number, false);

	return err < 0 ? err : 0;
}

/* DELAY: the client asks again. Its lease is not renewed meanwhile. */
static nfsstat4 sequence_back_done(struct compound *c, int err)
{
	struct sequence_back b = *(const struct sequence_back *)c->scratch;

	free(c->scratch);
	c->scratch = NULL;
	if (err)
		return NFS4ERR_DELAY;
	crash_point("lease-back");
	st_back_done(c->m->m_st, b.clientid, b.turn);
	return sequence_go(c, b.id, &b.q);
}

/* Idempotent: a second one finds nothing to write. */
static nfsstat4 sequence_back(struct compound *c, const struct sequence_back *from)
{
	struct sequence_back *b = op_scratch(c, sizeof(*b), NULL);

	if (!b)
		return NFS4ERR_DELAY;
	*b = *from;
	return op_mutate_again(c, sequence_back_run, sequence_back_done);
}

static nfsstat4 sequence_go(struct compound *c, const uint8_t *id, struct st_seq *q)
{
	struct sequence_back b = {.q = *q};
	struct st_session *s;
	nfsstat4 status;

	memcpy(b.id, id, sizeof(b.id));
	urcu_memb_read_lock();
	s = st_session_find(c->m->m_st, id);
	status = s ? sequence_in(c, s, q) : NFS4ERR_BADSESSION;
	if (q->sq_lapsed) {
		struct st_client *cl = s->se_client;

		b.clientid = cl->cl_id;
		b.number = cl->cl_number;
		memcpy(b.key, cl->cl_key, sizeof(b.key));
		st_back_begin(cl, &b.turn);
	}
	urcu_memb_read_unlock();
	if (q->sq_lapsed)
		return sequence_back(c, &b);
	if (status == NFS4ERR_BADSESSION)
		return op_replay_retry(c, id, q->sq_seq, q->sq_slot);
	if (status == NFS4_OK && !c->replayed)
		rpc_conn_proven(c->call->c_conn);
	if (c->replayed) {
		struct rpc_call *call = c->call;

		c->call = NULL;
		op_cred_done(c);
		free(c);
		rpc_reply(call);
		return OP_ANSWERED;
	}
	return status;
}

nfsstat4 op_sequence(struct compound *c)
{
	const uint8_t *id = xdr_get_fixed(c->in, NFS4_SESSIONID_SIZE);
	struct st_seq q = {.sq_seq = xdr_get_u32(c->in)};

	q.sq_slot = xdr_get_u32(c->in);
	q.sq_highest = xdr_get_u32(c->in);
	c->cachethis = q.sq_keep = xdr_get_bool(c->in);
	if (c->in->bad)
		return NFS4ERR_BADXDR;
	c->replay_args = c->in->p;
	return sequence_go(c, id, &q);
}

void op_reply_copy(const struct xdr_out *x, size_t from, uint8_t *to)
{
	struct iovec iov[XDR_SPLICES * 2 + 1];
	unsigned n = xdr_out_iov(x, iov);

	for (unsigned i = 0; i < n; i++) {
		size_t skip = from < iov[i].iov_len ? from : iov[i].iov_len;

		memcpy(to, (const uint8_t *)iov[i].iov_base + skip, iov[i].iov_len - skip);
		to += iov[i].iov_len - skip;
		from -= skip;
	}
}

/* The reply is complete: keeps it for a retry. */
void op_slot_done(struct compound *c)
{
	struct xdr_out *x = c->out;
	size_t len = x->x_len + x->x_payload - c->call->c_body;
	uint8_t *copy = NULL;

	/* Keeps every reply that asked for it. Keeps small ones in any case: they cost little, and
	 * a retry gets the right answer. */
	if (!x->bad && (c->cachethis || (len <= 512 && x->x_nsplice == 0))) {
		copy = malloc(len);
		if (copy)
			op_reply_copy(x, c->call->c_body, copy);
		else if (c->cachethis)
			log_warn("out of memory: cannot keep a reply of %zu bytes for a retry",
				 len);
	}
	st_slot_done(c->m->m_st, c->session, c->slot, copy, copy ? (uint32_t)len : 0);
}

/* ---- the rest ---- */

static int destroy_clientid_run(struct kv_op *op, struct kv_txn *t)
{
	struct compound *c = op_of(op);
	struct create_session *a = c->scratch;

	return st_record_del(c->m->m_st, t, a->key, a->number);
}

/* Do the client's sessions keep it busy (section 18.50.3)? Linux's trunking discovery leaves unused
 * sessions behind. Once the client has destroyed a session, unused ones do not count: they go with
 * the client. */
static bool sessions_count(const struct st_client *cl)
{
	if (!cl->cl_parted)
		return cl->cl_sessions;
	for (const struct st_session *s = cl->cl_sessions; s; s = s->se_next) {
		if (atomic_load(&s->se_used))
			return true;
	}
	return false;
}

nfsstat4 op_destroy_clientid(struct compound *c)
{
	uint64_t id = get_clientid(c->in);
	struct create_session *a = op_scratch(c, sizeof(*a), NULL);
	struct st *st = c->m->m_st;
	struct st_client *cl;
	nfsstat4 status = NFS4_OK;
	bool recorded = false;

	if (!a)
		return NFS4ERR_DELAY;
	if (c->in->bad)
		return NFS4ERR_BADXDR;
	st_all_lock(st);
	cl = st_client_get(st, id);
	if (!cl) {
		status = NFS4ERR_STALE_CLIENTID;
	} else if ((status = op_mach_check(c, cl, OP_DESTROY_CLIENTID))) {
		;
	} else if (!op_from_client(c, cl)) {
		status = NFS4ERR_WRONG_CRED;
	} else if (sessions_count(cl) || st_open_next(cl, NULL) || st_layout_next(cl, NULL) ||
		   !st_client_leaves(cl)) {
		status = NFS4ERR_CLIENTID_BUSY;
	} else {
		recorded = cl->cl_recorded;
		a->number = cl->cl_number;
		memcpy(a->key, cl->cl_key, sizeof(a->key));
		st_client_destroy(st, cl);
	}
	st_all_unlock(st);
	/* Idempotent: after a restart the clientid is stale. */
	return recorded ? op_mutate_again(c, destroy_clientid_run, op_step_status) : status;
}

static op_step reclaim_complete_done;

static int reclaim_complete_run(struct kv_op *op, struct kv_txn *t)
{
	return st_record_complete(t, op_of(op)->client->cl_key);
}

nfsstat4 op_reclaim_complete(struct compound *c)
{
	bool one_fs = xdr_get_bool(c->in), owes = false;
	struct st *st = c->m->m_st;
	nfsstat4 status = NFS4_OK;

	if (c->in->bad)
		return NFS4ERR_BADXDR;
	if (one_fs && !c->cur)
		return NFS4ERR_NOFILEHANDLE;
	/* No file system migrates to this server. A client that sends this for one file system, and
	 * never for all, may still lock from now on, which does no harm (section 18.51.4). */
	atomic_store(&c->client->cl_ready, true);
	if (one_fs)
		return NFS4_OK;
	st_all_lock(st);
	if (atomic_load(&c->client->cl_reclaim_done))
		status = NFS4ERR_COMPLETE_ALREADY;
	else
		owes = st_record_owes(st, c->client->cl_key);
	atomic_store(&c->client->cl_reclaim_done, true);
	atomic_store(&c->client->cl_may_reclaim, false);
	st_record_done(st, c->client->cl_key);
	st_all_unlock(st);
	if (!status) /* grace may end with it */
		st_tick(st);
	/* Idempotent: a second one finds nothing to write. */
	return owes ? op_mutate_again(c, reclaim_complete_run, reclaim_complete_done) : status;
}

static nfsstat4 reclaim_complete_done(struct compound *c, int err)
{
	struct st *st = c->m->m_st;

	st_all_lock(st);
	if (err)
		atomic_store(&c->client->cl_reclaim_done, false); /* the client sends it again */
	else
		st_record_paid(st, c->client->cl_key);
	st_all_unlock(st);
	return op_status(err);
}

static nfsstat4 stateid_status(struct compound *c, const struct st_stateid *sid)
{
	struct st *st = c->m->m_st;
	uint32_t seq;
	const struct st_open *o = st_open_or_lock(st, sid, &seq);
	const struct st_layout *l = o ? NULL : st_layout_find(st, sid);

	if (!o && !l && st_revoked_find(c->client, sid))
		return NFS4ERR_DELEG_REVOKED;
	if ((!o || o->o_client != c->client) && (!l || l->l_client != c->client))
		return NFS4ERR_BAD_STATEID;
	if (l)
		seq = l->l_sid.seqid;
	return op_seqid_status(sid, seq);
}

#define TEST_AT_ONCE 128u

nfsstat4 op_test_stateid(struct compound *c)
{
	uint32_t n = xdr_get_u32(c->in);

	if (c->in->bad || n > xdr_left(c->in) / 16)
		return NFS4ERR_BADXDR;
	if (op_reply_room(c->out) < 4 + 4 * (size_t)n)
		return op_too_big(c);
	xdr_put_u32(c->out, n);
	/* Tens of thousands fit into a request. Between groups of them others get the lock. */
	while (n) {
		uint32_t some = n < TEST_AT_ONCE ? n : TEST_AT_ONCE;

		n -= some;
		st_all_lock(c->m->m_st);
		while (some--) {
			struct st_stateid sid;

			op_get_stateid(c->in, &sid);
			xdr_put_u32(c->out, stateid_status(c, &sid));
		}
		st_all_unlock(c->m->m_st);
	}
	return NFS4_OK;
}

nfsstat4 op_free_stateid(struct compound *c)
{
	struct st *st = c->m->m_st;
	struct st_stateid sid;
	struct st_lock *k;
	nfsstat4 status;

	op_get_stateid(c->in, &sid);
	if (c->in->bad)
		return NFS4ERR_BADXDR;
	status = op_resolve_sid(c, &sid);
	if (status)
		return status;
	st_all_lock(c->m->m_st);
	status = stateid_status(c, &sid);
	k = status ? NULL : st_lock_find(st, &sid);
	if (status == NFS4ERR_DELEG_REVOKED) {
		st_revoked_free(c->client, &sid);
		status = NFS4_OK;
	} else if (k && !k->k_ranges)
		st_lock_free(st, k);
	else if (!status) /* opens need CLOSE, layouts LAYOUTRETURN */
		status = NFS4ERR_LOCKS_HELD;
	st_all_unlock(c->m->m_st);
	return status;
}
