/* SPDX-License-Identifier: Apache-2.0 */
/* callback.c - the backchannel (RFC 8881 section 20). A CB_COMPOUND has one operation after
 * CB_SEQUENCE. The server has as many callbacks under way at a time as both sides have slots. */
#include "mds/state/st.h"
#include "base/log.h"
#include "base/metrics.h"
#include "common/trace.h"
#include <errno.h>

#define CB_TIMEOUT_MS 10000
#define CB_TRIES      200
#define CB_AGAIN_MS   50
/* The stock Linux client has one callback thread, which waits this long for each referring call. */
#define CB_REFERRED_MS 500

struct st_cb *st_cb_new(struct st_client *c, const struct st_cb_kind *kind, const uint8_t *fh,
			uint32_t fhlen, struct st_session **out)
{
	struct st_session *s = c->cl_sessions;
	struct st_cb *cb;

	st_must_have_all();
	while (s && !atomic_load(&s->se_cb_conn) && s->se_next)
		s = s->se_next;
	cb = s ? calloc(1, sizeof(*cb)) : NULL;
	if (!cb)
		return NULL;
	cb->cb_kind = kind;
	if (fhlen)
		memcpy(cb->cb_fh, fh, fhlen);
	cb->cb_fhlen = fhlen;
	memcpy(cb->cb_session, s->se_id, NFS4_SESSIONID_SIZE);
	*out = s;
	return cb;
}

void st_cb_queue(struct st *st, struct st_session *s, struct st_cb *cb)
{
	*s->se_cb_tail = cb;
	s->se_cb_tail = &cb->cb_next;
	st_cb_pump(st, s);
}

void st_cb_lost(struct st *st, struct st_cb *cb)
{
	if (cb->cb_kind->k_lost)
		cb->cb_kind->k_lost(st, cb);
	free(cb->cb_arg);
	free(cb);
}

/* Encodes one referring call list for each call, because there are few calls
 * (csa_referring_call_lists, section 20.9.3). */
static void referring_encode(struct st *st, struct st_cb *cb, struct xdr_out *x)
{
	struct st_grants *g = cb->cb_kind->k_grants ? cb->cb_kind->k_grants(st, cb) : NULL;
	bool unseen = g && !st_grants_seen(st, g);
	unsigned n = 0;

	if (unseen)
		n = g->gs_n;
	/* A callback that is sent again in its slot may get the reply to its first transmission, so
	 * cb_referred stays set. */
	cb->cb_referred = unseen || (cb->cb_keeps && cb->cb_referred);
	xdr_put_u32(x, n);
	for (unsigned i = 0; i < n; i++) {
		xdr_put_fixed(x, g->gs_grant[i].g_session, NFS4_SESSIONID_SIZE);
		xdr_put_u32(x, 1);
		xdr_put_u32(x, g->gs_grant[i].g_seq);
		xdr_put_u32(x, g->gs_grant[i].g_slot);
	}
}

static void cb_encode(struct st *st, struct st_cb *cb, struct st_session *s, struct xdr_out *x)
{
	xdr_put_u32(x, 0); /* tag */
	xdr_put_u32(x, s->se_minor);
	xdr_put_u32(x, 0); /* callback_ident: unused in 4.1 */
	xdr_put_u32(x, 2);
	xdr_put_u32(x, OP_CB_SEQUENCE);
	xdr_put_fixed(x, s->se_id, NFS4_SESSIONID_SIZE);
	xdr_put_u32(x, s->se_cb_next[cb->cb_slot]);
	xdr_put_u32(x, cb->cb_slot);
	xdr_put_u32(x, 31 - (uint32_t)__builtin_clz(s->se_cb_busy)); /* csa_highest_slotid */
	xdr_put_bool(x, false);
	referring_encode(st, cb, x);
	xdr_put_u32(x, cb->cb_kind->k_op);
	cb->cb_kind->k_encode(cb, x);
}

int64_t st_cb_decode(struct xdr_in *res, uint32_t want, bool *sequenced)
{
	uint32_t status, n, len;

	*sequenced = false;
	status = xdr_get_u32(res);
	xdr_get_opaque(res, NFS4_OPAQUE_LIMIT, &len);
	n = xdr_get_u32(res);
	if (res->bad)
		return -1;
	if (n >= 1) {
		uint32_t op = xdr_get_u32(res), st = xdr_get_u32(res);

		if (res->bad || op != OP_CB_SEQUENCE)
			return -1;
		if (st)
			return st;
		*sequenced = true;
		xdr_get_fixed(res, NFS4_SESSIONID_SIZE);
		for (int i = 0; i < 4; i++)
			xdr_get_u32(res);
	}
	if (n >= 2) {
		uint32_t op = xdr_get_u32(res);

		status = xdr_get_u32(res);
		if (res->bad || op != want)
			return -1;
	}
	/* A recall without a result of its own is not done. */
	return res->bad || (n < 2 && status == NFS4_OK) ? -1 : (int64_t)status;
}

/*
 * Returns whether the slot moves to its next sequence id.
 *
 * The server sends a callback without a reply again, unchanged, in its slot and with its sequence
 * id (section 2.10.6.2). A client that has executed it already answers with an error, and the
 * server sends it with the next sequence id. When the server gives a callback up without a reply,
 * its slot is in doubt: the server uses that slot only when no other is free, and the next callback
 * in it finds the right sequence id in the same way.
 */
static bool slot_moves(int64_t status, bool sequenced)
{
	return sequenced || status == NFS4ERR_RETRY_UNCACHED_REP ||
	       status == NFS4ERR_SEQ_FALSE_RETRY;
}

static void cb_requeue(struct st *st, struct st_session *s, struct st_cb *cb)
{
	cb->cb_next = s->se_cb_head;
	s->se_cb_head = cb;
	if (!cb->cb_next)
		s->se_cb_tail = &cb->cb_next;
	st_cb_pump(st, s);
}

static void cb_again(struct loop_timer *t)
{
	struct st_cb *cb = hash_entry(t, struct st_cb, cb_timer);
	struct st *st = cb->cb_st;
	struct st_session *s;

	st_all_lock(st);
	s = st_session_get(st, cb->cb_session);
	if (s)
		cb_requeue(st, s, cb);
	else
		st_cb_lost(st, cb);
	st_all_unlock(st);
}

static void callback_slot_free(struct st_session *s, struct st_cb *cb)
{
	uint32_t bit = 1u << cb->cb_slot;

	s->se_cb_busy &= ~bit;
	s->se_cb_doubt = cb->cb_keeps ? s->se_cb_doubt | bit : s->se_cb_doubt & ~bit;
	cb->cb_keeps = false;
}

static uint32_t again_ms(const struct st_cb *cb, int64_t status)
{
	bool unknown = status == NFS4ERR_DELAY || status == NFS4ERR_NOMATCHING_LAYOUT ||
		       status == NFS4ERR_BAD_STATEID || status == NFS4ERR_BADHANDLE;

	return cb->cb_referred && unknown ? CB_REFERRED_MS : CB_AGAIN_MS;
}

static void cb_done(struct rpc_req *q, int err, struct xdr_in *res)
{
	struct st_cb *cb = hash_entry(q, struct st_cb, cb_req);
	struct st *st = cb->cb_st;
	struct st_session *s;
	bool sequenced = false, again;
	int64_t status = err ? -1 : st_cb_decode(res, cb->cb_kind->k_op, &sequenced);

	st_all_lock(st);
	s = st_session_get(st, cb->cb_session);
	if (s && slot_moves(status, sequenced))
		s->se_cb_next[cb->cb_slot]++;
	cb->cb_keeps = s && status == -1 && !sequenced;
	/* The client did not execute it, and that is not this callback's fault. It goes out first,
	 * with the next sequence id. */
	if (s && !sequenced && slot_moves(status, sequenced) && ++cb->cb_tries < CB_TRIES) {
		callback_slot_free(s, cb);
		cb_requeue(st, s, cb);
		st_all_unlock(st);
		return;
	}
	again = cb->cb_kind->k_done(st, cb, status, res) && ++cb->cb_tries < CB_TRIES;
	if (s && !(again && cb->cb_keeps)) {
		callback_slot_free(s, cb);
		st_cb_pump(st, s);
	}
	if (!s && again) {
		st_cb_lost(st, cb);
		cb = NULL;
	}
	st_all_unlock(st);
	if (!cb)
		return;
	if (again) {
		/* NFS4ERR_DELAY: the reply that carries the state is still on its way to the
		 * client. A lost connection: the next connection carries the callback. */
		cb->cb_timer.t_fire = cb_again;
		loop_timer_start(loop_self(), &cb->cb_timer, again_ms(cb, status));
	} else {
		free(cb->cb_arg);
		free(cb);
	}
}

/* Drops the brief callbacks: a request waits for their answer and cannot wait for the client's next
 * connection. */
void st_cb_path_lost(struct st *st, struct st_session *s)
{
	struct st_cb **p = &s->se_cb_head, *cb;

	while (!atomic_load(&s->se_cb_conn) && (cb = *p)) {
		if (!cb->cb_kind->k_brief) {
			p = &cb->cb_next;
			continue;
		}
		*p = cb->cb_next;
		if (!*p)
			s->se_cb_tail = p;
		st_cb_lost(st, cb);
	}
}

/* Runs on the connection's loop. */
static void cb_send(struct loop_msg *m)
{
	struct st_cb *cb = hash_entry(m, struct st_cb, cb_msg);
	struct st *st = cb->cb_st;
	struct rpc_conn *conn = NULL;
	struct st_session *s;
	struct rpc_cred cred = {.rc_flavor = RPC_AUTH_NONE};

	st_all_lock(st);
	s = st_session_get(st, cb->cb_session);
	if (s && atomic_load(&s->se_cb_conn) &&
	    rpc_conn_loop(atomic_load(&s->se_cb_conn)) == loop_self()) {
		conn = atomic_load(&s->se_cb_conn);
		if (s->se_cb_flavor == RPC_AUTH_SYS) {
			cred.rc_flavor = RPC_AUTH_SYS;
			cred.rc_uid = s->se_cb_uid;
			cred.rc_gid = s->se_cb_gid;
		}
		rpc_req_init(&cb->cb_req, s->se_cb_prog, 1, 1, &cred, 4096, cb_done);
		cb_encode(st, cb, s, &cb->cb_req.q_args);
	} else if (s) {
		if (!cb->cb_keeps)
			s->se_cb_busy &= ~(1u << cb->cb_slot);
		cb_requeue(st, s, cb);
		st_cb_path_lost(st, s);
	} else {
		st_cb_lost(st, cb);
	}
	st_all_unlock(st);
	if (conn) {
		uint32_t limit = cb->cb_kind->k_brief && st->st_recall_ms < CB_TIMEOUT_MS
					 ? st->st_recall_ms
					 : CB_TIMEOUT_MS;

		metric_add(st->st_callbacks[cb->cb_kind->k_metric], 1);
		rpc_req_send(conn, &cb->cb_req, limit);
	}
}

void st_cb_pump(struct st *st, struct st_session *s)
{
	for (struct st_cb *cb; (cb = s->se_cb_head) && atomic_load(&s->se_cb_conn);) {
		uint32_t free = ~s->se_cb_busy & ((1u << s->se_cb_nslots) - 1);

		if (!free && !cb->cb_keeps)
			return;
		if (free & ~s->se_cb_doubt)
			free &= ~s->se_cb_doubt;
		s->se_cb_head = cb->cb_next;
		if (!s->se_cb_head)
			s->se_cb_tail = &s->se_cb_head;
		if (!cb->cb_keeps)
			cb->cb_slot = (uint32_t)__builtin_ctz(free);
		s->se_cb_busy |= 1u << cb->cb_slot;
		cb->cb_st = st;
		cb->cb_msg.m_run = cb_send;
		loop_post(rpc_conn_loop(atomic_load(&s->se_cb_conn)), &cb->cb_msg);
	}
}

/* ---- CB_NOTIFY_LOCK (section 20.11) ---- */

static void notify_encode(const struct st_cb *cb, struct xdr_out *x)
{
	const struct st_waiter *w = cb->cb_arg;

	xdr_put_opaque(x, cb->cb_fh, cb->cb_fhlen);
	xdr_put_u64(x, w->wt_client);
	xdr_put_opaque(x, w->wt_owner, w->wt_owner_len);
}

/* Nothing depends on the answer: a client that missed the callback retries its LOCK after a
 * while. */
static bool notify_done(struct st *st, struct st_cb *cb, int64_t status, struct xdr_in *res)
{
	(void)st;
	(void)cb;
	(void)status;
	(void)res;
	return false;
}

static const struct st_cb_kind notify_kind = {.k_op = OP_CB_NOTIFY_LOCK,
					      .k_metric = ST_CB_NOTIFY_LOCK,
					      .k_encode = notify_encode,
					      .k_done = notify_done};

void st_notify_queue(struct st *st, struct st_client *c, struct st_waiter *w)
{
	struct st_session *s;
	struct st_cb *cb = st_cb_new(c, &notify_kind, w->wt_fh, w->wt_fhlen, &s);

	if (!cb) {
		free(w);
		return;
	}
	cb->cb_arg = w;
	st_cb_queue(st, s, cb);
}

/* ---- CB_LAYOUTRECALL (section 20.3) ---- */

static void callback_recall_encode(const struct st_cb *cb, struct xdr_out *x)
{
	xdr_put_u32(x, LAYOUT4_FLEX_FILES);
	xdr_put_u32(x, LAYOUTIOMODE4_ANY);
	xdr_put_bool(x, false);
	xdr_put_u32(x, LAYOUTRETURN4_FILE);
	xdr_put_opaque(x, cb->cb_fh, cb->cb_fhlen);
	xdr_put_u64(x, 0);
	xdr_put_u64(x, NFS4_UINT64_MAX);
	xdr_put_u32(x, cb->cb_sid.seqid);
	xdr_put_fixed(x, cb->cb_sid.other, NFS4_OTHER_SIZE);
}

static struct st_grants *callback_recall_grants(struct st *st, const struct st_cb *cb)
{
	struct st_layout *l = st_layout_find(st, &cb->cb_sid);

	return l ? &l->l_grants : NULL;
}

static bool callback_recall_done(struct st *st, struct st_cb *cb, int64_t status,
				 struct xdr_in *res)
{
	struct st_layout *l = st_layout_find(st, &cb->cb_sid);

	(void)res;
	if (!l)
		return false;
	/* The client may not have the reply that carries the layout yet, or may not have had it
	 * when this recall was sent. Then the server repeats the recall, until a waiting request
	 * fences the client and revokes the layout. */
	if (status == NFS4ERR_NOMATCHING_LAYOUT && !cb->cb_referred &&
	    st_grants_seen(st, &l->l_grants)) {
		st_layout_free(st, l);
		return false;
	}
	/* The next request that needs the layout recalls it again: a client may have answered
	 * NFS4_OK, or NFS4ERR_DELAY too often, and have kept the layout. */
	if (status == NFS4_OK || cb->cb_tries + 1 >= CB_TRIES) {
		l->l_queued = false;
		return false;
	}
	return true;
}

/* The recall's session is gone. Another session of the client carries the recall, or else the
 * client's next session. */
static void callback_recall_lost(struct st *st, struct st_cb *cb)
{
	struct st_layout *l = st_layout_find(st, &cb->cb_sid);

	if (!l)
		return;
	l->l_queued = false;
	st_recall_queue(st, l);
}

static const struct st_cb_kind recall_kind = {.k_op = OP_CB_LAYOUTRECALL,
					      .k_metric = ST_CB_LAYOUTRECALL,
					      .k_encode = callback_recall_encode,
					      .k_done = callback_recall_done,
					      .k_lost = callback_recall_lost,
					      .k_grants = callback_recall_grants};

/* The first recall raises the stateid's seqid by one (RFC 8881 section 12.5.5.2.1). */
void st_recall_queue(struct st *st, struct st_layout *l)
{
	struct st_session *s;
	struct st_cb *cb;

	if (l->l_queued)
		return;
	if (!l->l_recalled)
		l->l_sid.seqid++;
	l->l_recalled = true;
	TRACE(recall, l->l_file->f_ino, l->l_client->cl_number, l->l_iomode, 0);
	cb = st_cb_new(l->l_client, &recall_kind, l->l_fh, l->l_fhlen, &s);
	if (!cb) {
		/* The client's next session carries the recall, or the deadline ends the wait. */
		l->l_client->cl_recalls_wait = true;
		return;
	}
	l->l_queued = true;
	cb->cb_sid = l->l_sid;
	st_cb_queue(st, s, cb);
}

/* ---- CB_NOTIFY_DEVICEID (section 20.12) ---- */

/* Sends NOTIFY_DEVICEID4_CHANGE, one in each callback. DELETE is not allowed here because layouts
 * that name the device are out. The stock client (7.2) does not read the last word of a CHANGE,
 * which does no harm when nothing follows it. The client drops what it knows of the device on
 * CHANGE as on DELETE. */
static void device_encode(const struct st_cb *cb, struct xdr_out *x)
{
	xdr_put_u32(x, 1);
	xdr_put_u32(x, 1);
	xdr_put_u32(x, 1u << NOTIFY_DEVICEID4_CHANGE);
	xdr_put_u32(x, 4 + NFS4_DEVICEID4_SIZE + 4);
	xdr_put_u32(x, LAYOUT4_FLEX_FILES);
	xdr_put_fixed(x, cb->cb_arg, NFS4_DEVICEID4_SIZE);
	xdr_put_bool(x, true); /* ndc_immediate: the old addresses serve no client any more */
}

static const struct st_cb_kind device_kind = {.k_op = OP_CB_NOTIFY_DEVICEID,
					      .k_metric = ST_CB_NOTIFY_DEVICEID,
					      .k_encode = device_encode,
					      .k_done = notify_done};

static void device_gone_encode(const struct st_cb *cb, struct xdr_out *x)
{
	xdr_put_u32(x, 1);
	xdr_put_u32(x, 1);
	xdr_put_u32(x, 1u << NOTIFY_DEVICEID4_DELETE);
	xdr_put_u32(x, 4 + NFS4_DEVICEID4_SIZE);
	xdr_put_u32(x, LAYOUT4_FLEX_FILES);
	xdr_put_fixed(x, cb->cb_arg, NFS4_DEVICEID4_SIZE);
}

static const struct st_cb_kind device_gone_kind = {.k_op = OP_CB_NOTIFY_DEVICEID,
						   .k_metric = ST_CB_NOTIFY_DEVICEID,
						   .k_encode = device_gone_encode,
						   .k_done = notify_done};

/* A client that cannot be notified now notices the change by itself: the old addresses do not
 * answer, and it sends GETDEVICEINFO again. */
static void device_tell(struct st *st, const struct st_cb_kind *kind,
			const uint8_t deviceid[NFS4_DEVICEID4_SIZE])
{
	st_all_lock(st);
	hash_each(&st->st_clients, i, l, next)
	{
		struct st_client *c = hash_entry(l, struct st_client, cl_link);
		struct st_session *s;
		bool asked = kind == &device_kind ? c->cl_notified : c->cl_notified_gone;
		struct st_cb *cb = asked ? st_cb_new(c, kind, NULL, 0, &s) : NULL;

		if (!cb)
			continue;
		cb->cb_arg = malloc(NFS4_DEVICEID4_SIZE);
		if (!cb->cb_arg) {
			free(cb);
			continue;
		}
		memcpy(cb->cb_arg, deviceid, NFS4_DEVICEID4_SIZE);
		st_cb_queue(st, s, cb);
	}
	st_all_unlock(st);
}

void st_device_changed(struct st *st, const uint8_t deviceid[NFS4_DEVICEID4_SIZE])
{
	device_tell(st, &device_kind, deviceid);
}

void st_device_gone(struct st *st, const uint8_t deviceid[NFS4_DEVICEID4_SIZE])
{
	device_tell(st, &device_gone_kind, deviceid);
}
