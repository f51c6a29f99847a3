/* Sessions and their backchannels (RFC 8881 sections 2.10 and 20). */
#include "mds/st/st.h"
#include "base/log.h"
#include "base/metrics.h"
#include <errno.h>

#define CB_TIMEOUT_MS 10000
#define CB_TRIES 200

struct st_session *st_session_get(struct st *st, const uint8_t id[16])
{
	for (struct hash_link *l = hash_first(&st->st_sessions, hash_bytes(id, 16)); l; l = hash_next(l)) {
		struct st_session *s = hash_entry(l, struct st_session, se_link);

		if (memcmp(s->se_id, id, 16) == 0)
			return s;
	}
	return NULL;
}

struct st_session *st_session_new(struct st *st, struct st_client *c)
{
	struct st_session *s = calloc(1, sizeof(*s));
	uint64_t w[2];

	if (!s)
		return NULL;
	w[0] = htobe64(c->cl_id);
	w[1] = htobe64(st->st_next++);
	memcpy(s->se_id, w, 16);
	if (hash_add(&st->st_sessions, &s->se_link, hash_bytes(s->se_id, 16))) {
		free(s);
		return NULL;
	}
	s->se_client = c;
	c->cl_refs++;
	s->se_next = c->cl_sessions;
	c->cl_sessions = s;
	c->cl_nsessions++;
	s->se_refs = 1;
	s->se_cb_seq = 1;
	s->se_cb_tail = &s->se_cb_head;
	return s;
}

void st_session_put(struct st *st, struct st_session *s)
{
	struct st_client *c = s->se_client;

	(void)st;
	if (--s->se_refs)
		return;
	for (unsigned i = 0; i < ST_SLOTS; i++)
		free(s->se_slot[i].sl_reply);
	free(s);
	if (--c->cl_refs == 0) {
		free(c->cl_owner);
		free(c);
	}
}

/* The recall's session is gone: another carries it, or the client's next. */
static void recall_move(struct st *st, struct st_recall *r)
{
	struct st_layout *l = r->rc_waiter ? NULL : st_layout_find(st, &r->rc_sid);

	free(r->rc_waiter);
	free(r);
	if (!l)
		return;
	l->l_queued = false;
	st_recall_queue(st, l);
}

void st_session_destroy(struct st *st, struct st_session *s)
{
	struct st_session **p = &s->se_client->cl_sessions;

	if (s->se_dead)
		return;
	s->se_dead = true;
	hash_del(&st->st_sessions, &s->se_link);
	while (*p != s)
		p = &(*p)->se_next;
	*p = s->se_next;
	s->se_client->cl_nsessions--;
	s->se_cb_conn = NULL;
	while (s->se_cb_head) {
		struct st_recall *r = s->se_cb_head;

		s->se_cb_head = r->rc_next;
		recall_move(st, r);
	}
	s->se_cb_tail = &s->se_cb_head;
	st_session_put(st, s);
}

void st_session_bind(struct st *st, struct st_session *s, struct rpc_conn *c)
{
	/* Ended while the caller was parked: its end was told already, and nobody would take it away again. */
	if (rpc_conn_dead(c))
		return;
	s->se_cb_conn = c;
	if (s->se_client->cl_recalls_wait) {
		s->se_client->cl_recalls_wait = false;
		for (struct st_layout *l = s->se_client->cl_layouts; l; l = l->l_cnext) {
			if (l->l_recalled)
				st_recall_queue(st, l);
		}
	}
	st_cb_pump(st, s);
}

void st_conn_gone(struct st *st, struct rpc_conn *c)
{
	pthread_mutex_lock(&st->st_lock);
	hash_each(&st->st_sessions, i, l, next) {
		struct st_session *s = hash_entry(l, struct st_session, se_link);

		if (s->se_cb_conn == c)
			s->se_cb_conn = NULL;
	}
	pthread_mutex_unlock(&st->st_lock);
}

/* ---- callbacks: one slot, one operation after CB_SEQUENCE ---- */

struct st_recall *st_cb_new(struct st_client *c, const uint8_t *fh, uint32_t fhlen, struct st_session **out)
{
	struct st_session *s = c->cl_sessions;
	struct st_recall *r;

	while (s && !s->se_cb_conn && s->se_next)
		s = s->se_next;
	r = s ? calloc(1, sizeof(*r)) : NULL;
	if (!r)
		return NULL;
	memcpy(r->rc_fh, fh, fhlen);
	r->rc_fhlen = fhlen;
	memcpy(r->rc_session, s->se_id, 16);
	*out = s;
	return r;
}

void st_cb_queue(struct st *st, struct st_session *s, struct st_recall *r)
{
	*s->se_cb_tail = r;
	s->se_cb_tail = &r->rc_next;
	st_cb_pump(st, s);
}

static void cb_free(struct st_recall *r)
{
	free(r->rc_waiter);
	free(r);
}

/* Nothing hangs on it: a client that is not told asks again after a while. */
void st_notify_queue(struct st *st, struct st_client *c, struct st_waiter *w, const uint8_t *fh, uint32_t fhlen)
{
	struct st_session *s;
	struct st_recall *r = st_cb_new(c, fh, fhlen, &s);

	if (!r) {
		free(w);
		return;
	}
	r->rc_waiter = w;
	st_cb_queue(st, s, r);
}

static void cb_encode(struct st_recall *r, struct st_session *s)
{
	struct xdr_out *x = &r->rc_req.q_args;

	xdr_put_u32(x, 0); /* tag */
	xdr_put_u32(x, s->se_minor);
	xdr_put_u32(x, 0); /* callback_ident: unused in 4.1 */
	xdr_put_u32(x, 2);
	xdr_put_u32(x, OP_CB_SEQUENCE);
	xdr_put_fixed(x, s->se_id, 16);
	xdr_put_u32(x, s->se_cb_seq);
	xdr_put_u32(x, 0);
	xdr_put_u32(x, 0);
	xdr_put_bool(x, false);
	xdr_put_u32(x, 0); /* referring calls */
	if (r->rc_waiter) {
		xdr_put_u32(x, OP_CB_NOTIFY_LOCK);
		xdr_put_opaque(x, r->rc_fh, r->rc_fhlen);
		xdr_put_u64(x, r->rc_waiter->wt_client);
		xdr_put_opaque(x, r->rc_waiter->wt_owner, r->rc_waiter->wt_owner_len);
		return;
	}
	xdr_put_u32(x, OP_CB_LAYOUTRECALL);
	xdr_put_u32(x, LAYOUT4_FLEX_FILES);
	xdr_put_u32(x, LAYOUTIOMODE4_ANY);
	xdr_put_bool(x, false);
	xdr_put_u32(x, LAYOUTRETURN4_FILE);
	xdr_put_opaque(x, r->rc_fh, r->rc_fhlen);
	xdr_put_u64(x, 0);
	xdr_put_u64(x, NFS4_UINT64_MAX);
	xdr_put_u32(x, r->rc_sid.seqid);
	xdr_put_fixed(x, r->rc_sid.other, NFS4_OTHER_SIZE);
}

int64_t st_cb_decode(struct xdr_in *res, bool *sequenced)
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
		xdr_get_fixed(res, 16);
		for (int i = 0; i < 4; i++)
			xdr_get_u32(res);
	}
	if (n >= 2) {
		uint32_t op = xdr_get_u32(res);

		status = xdr_get_u32(res);
		if (res->bad || (op != OP_CB_LAYOUTRECALL && op != OP_CB_NOTIFY_LOCK))
			return -1;
	}
	/* A recall that is not answered for is not done. */
	return res->bad || (n < 2 && status == NFS4_OK) ? -1 : (int64_t)status;
}

static void recall_requeue(struct st *st, struct st_session *s, struct st_recall *r)
{
	r->rc_next = s->se_cb_head;
	s->se_cb_head = r;
	if (!r->rc_next)
		s->se_cb_tail = &r->rc_next;
	st_cb_pump(st, s);
}

static void recall_again(struct loop_timer *t)
{
	struct st_recall *r = hash_entry(t, struct st_recall, rc_timer);
	struct st *st = r->rc_st;
	struct st_session *s;

	pthread_mutex_lock(&st->st_lock);
	s = st_session_get(st, r->rc_session);
	if (s)
		recall_requeue(st, s, r);
	else
		recall_move(st, r);
	pthread_mutex_unlock(&st->st_lock);
}

static void recall_done(struct rpc_req *q, int err, struct xdr_in *res)
{
	struct st_recall *r = hash_entry(q, struct st_recall, rc_req);
	struct st *st = r->rc_st;
	struct st_session *s;
	struct st_layout *l;
	bool sequenced = false, again = false, move = false;
	int64_t status = err ? -1 : st_cb_decode(res, &sequenced);

	pthread_mutex_lock(&st->st_lock);
	s = st_session_get(st, r->rc_session);
	if (s) {
		s->se_cb_busy = false;
		if (sequenced)
			s->se_cb_seq++;
	}
	l = r->rc_waiter ? NULL : st_layout_find(st, &r->rc_sid);
	if (l && status == NFS4ERR_NOMATCHING_LAYOUT)
		st_layout_free(st, l);
	else if (l && status != NFS4_OK && !s)
		move = true;
	else if (l && status != NFS4_OK)
		again = ++r->rc_tries < CB_TRIES;
	if (s)
		st_cb_pump(st, s);
	if (move)
		recall_move(st, r);
	pthread_mutex_unlock(&st->st_lock);
	if (move)
		return;
	if (again) {
		/* DELAY: the layout's reply is still on its way to the client; a lost connection: the next one carries it */
		r->rc_timer.t_fire = recall_again;
		loop_timer_start(loop_self(), &r->rc_timer, 50);
	} else {
		cb_free(r);
	}
}

/* On the loop of the connection. */
static void recall_send(struct loop_msg *m)
{
	struct st_recall *r = hash_entry(m, struct st_recall, rc_msg);
	struct st *st = r->rc_st;
	struct rpc_conn *conn = NULL;
	struct st_session *s;
	struct rpc_cred cred = {.rc_flavor = RPC_AUTH_NONE};

	pthread_mutex_lock(&st->st_lock);
	s = st_session_get(st, r->rc_session);
	if (s && s->se_cb_conn && rpc_conn_loop(s->se_cb_conn) == loop_self()) {
		conn = s->se_cb_conn;
		if (s->se_cb_flavor == RPC_AUTH_SYS) {
			cred.rc_flavor = RPC_AUTH_SYS;
			cred.rc_uid = s->se_cb_uid;
			cred.rc_gid = s->se_cb_gid;
		}
		rpc_req_init(&r->rc_req, s->se_cb_prog, 1, 1, &cred, 4096, recall_done);
		cb_encode(r, s);
	} else if (s) {
		s->se_cb_busy = false;
		recall_requeue(st, s, r);
	} else {
		recall_move(st, r);
	}
	pthread_mutex_unlock(&st->st_lock);
	if (conn) {
		metric_add(r->rc_waiter ? st->st_notifies : st->st_recalls, 1);
		rpc_req_send(conn, &r->rc_req, CB_TIMEOUT_MS);
	}
}

void st_cb_pump(struct st *st, struct st_session *s)
{
	struct st_recall *r = s->se_cb_head;

	if (!r || s->se_cb_busy || !s->se_cb_conn)
		return;
	s->se_cb_head = r->rc_next;
	if (!s->se_cb_head)
		s->se_cb_tail = &s->se_cb_head;
	s->se_cb_busy = true;
	r->rc_st = st;
	r->rc_msg.m_run = recall_send;
	loop_post(rpc_conn_loop(s->se_cb_conn), &r->rc_msg);
}
