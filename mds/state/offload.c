/* SPDX-License-Identifier: Apache-2.0 */
/* offload.c - stateids of asynchronous copies (RFC 7862 section 4.8) and CB_OFFLOAD (section 16.1).
 * mds/nfs4 does the copying. */
#include "mds/state/st.h"
#include "base/metrics.h"
#include <errno.h>

#define OFFLOADS_MAX 32 /* per client */

static void unlink_offload(struct st_offload *of)
{
	if (!of->of_client)
		return;
	*of->of_prev = of->of_next;
	if (of->of_next)
		of->of_next->of_prev = of->of_prev;
	of->of_client->cl_noffloads--;
	of->of_client = NULL;
}

/* Detaches the copy from its client. A copy that still runs is freed by its job. */
static void offload_drop(struct st_offload *of)
{
	unlink_offload(of);
	if (of->of_done)
		free(of);
}

/* Makes room for one more. The oldest result that its client has not asked for goes first. */
static bool offload_make_room(struct st_client *c)
{
	struct st_offload *oldest = NULL;

	if (c->cl_noffloads < OFFLOADS_MAX)
		return true;
	for (struct st_offload *of = c->cl_offloads; of; of = of->of_next)
		oldest = of->of_done ? of : oldest;
	if (oldest)
		offload_drop(oldest);
	return oldest;
}

static bool offload_has_backchannel(const struct st_client *c)
{
	for (const struct st_session *s = c->cl_sessions; s; s = s->se_next)
		if (atomic_load(&s->se_cb_conn))
			return true;
	return false;
}

struct st_offload *st_offload_new(struct st *st, struct st_client *c, uint64_t ino, uint32_t uid,
				  const uint8_t *fh, uint32_t fhlen, struct st_stateid *sid)
{
	struct st_offload *of = calloc(1, sizeof(*of));

	if (!of)
		return NULL;
	st_all_lock(st);
	if (c->cl_dead || !offload_has_backchannel(c) || !offload_make_room(c)) {
		st_all_unlock(st);
		free(of);
		return NULL;
	}
	st_sid_make(st, ino, ST_SID_COPY, &of->of_sid);
	of->of_client = c;
	of->of_ino = ino;
	of->of_uid = uid;
	memcpy(of->of_fh, fh, fhlen);
	of->of_fhlen = fhlen;
	of->of_next = c->cl_offloads;
	of->of_prev = &c->cl_offloads;
	if (of->of_next)
		of->of_next->of_prev = &of->of_next;
	c->cl_offloads = of;
	c->cl_noffloads++;
	*sid = of->of_sid;
	st_all_unlock(st);
	return of;
}

nfsstat4 st_offload_find(struct st_client *c, const struct st_stateid *sid, uint64_t ino,
			 uint32_t uid, struct st_offload **out)
{
	for (struct st_offload *of = c->cl_offloads; of; of = of->of_next) {
		if (memcmp(of->of_sid.other, sid->other, NFS4_OTHER_SIZE) || of->of_ino != ino ||
		    of->of_uid != uid)
			continue;
		*out = of;
		/* 0 is not "the latest" here (section 4.8) */
		return sid->seqid == of->of_sid.seqid ? NFS4_OK : NFS4ERR_BAD_STATEID;
	}
	return NFS4ERR_BAD_STATEID;
}

void st_offload_progress(struct st *st, struct st_offload *of, uint64_t count)
{
	st_all_lock(st);
	of->of_count = count;
	st_all_unlock(st);
}

bool st_offload_is_over(struct st *st, struct st_offload *of)
{
	bool over;

	st_all_lock(st);
	over = !of->of_client;
	st_all_unlock(st);
	return over;
}

bool st_offload_cancel(struct st_offload *of, struct st_offload_wait *w)
{
	bool runs = !of->of_done;

	if (runs)
		of->of_wait = w;
	offload_drop(of);
	return runs;
}

void st_offloads_drop(struct st_client *c)
{
	while (c->cl_offloads)
		offload_drop(c->cl_offloads);
}

/* ---- CB_OFFLOAD ---- */

struct offload_call {
	uint64_t ocl_client;
	struct st_offload_end ocl_end;
};

static void offload_tell(struct st *st, struct st_offload *of);

static struct st_offload *offload_of_call(struct st *st, const struct st_cb *cb)
{
	const struct offload_call *t = cb->cb_arg;
	struct st_client *c = st_client_get(st, t->ocl_client);

	for (struct st_offload *of = c ? c->cl_offloads : NULL; of; of = of->of_next)
		if (!memcmp(of->of_sid.other, cb->cb_sid.other, NFS4_OTHER_SIZE))
			return of;
	return NULL;
}

static void offload_encode(const struct st_cb *cb, struct xdr_out *x)
{
	const struct st_offload_end *e = &((const struct offload_call *)cb->cb_arg)->ocl_end;

	xdr_put_opaque(x, cb->cb_fh, cb->cb_fhlen);
	xdr_put_u32(x, cb->cb_sid.seqid);
	xdr_put_fixed(x, cb->cb_sid.other, NFS4_OTHER_SIZE);
	xdr_put_u32(x, e->oe_status);
	if (!e->oe_status)
		xdr_put_u32(x, 0); /* wr_callback_id is not set (section 16.1.3) */
	xdr_put_u64(x, e->oe_count);
	if (!e->oe_status) {
		xdr_put_u32(x, e->oe_how);
		xdr_put_u64(x, e->oe_verifier);
	}
}

/* The client's answer ends the stateid (section 4.8). Without an answer the client can still ask
 * with OFFLOAD_STATUS. */
static bool offload_done(struct st *st, struct st_cb *cb, int64_t status, struct xdr_in *res)
{
	struct st_offload *of = offload_of_call(st, cb);

	(void)res;
	if (!of)
		return false;
	if (status < 0 || status == NFS4ERR_DELAY)
		return true;
	offload_drop(of);
	return false;
}

static void offload_lost(struct st *st, struct st_cb *cb)
{
	struct st_offload *of = offload_of_call(st, cb);

	if (of)
		offload_tell(st, of);
}

static const struct st_cb_kind offload_kind = {.k_op = OP_CB_OFFLOAD,
					       .k_metric = ST_CB_OFFLOAD,
					       .k_encode = offload_encode,
					       .k_done = offload_done,
					       .k_lost = offload_lost};

static void offload_tell(struct st *st, struct st_offload *of)
{
	struct offload_call *t = calloc(1, sizeof(*t));
	struct st_session *s;
	struct st_cb *cb =
		t ? st_cb_new(of->of_client, &offload_kind, of->of_fh, of->of_fhlen, &s) : NULL;

	if (!cb) {
		free(t);
		return;
	}
	t->ocl_client = of->of_client->cl_id;
	t->ocl_end = of->of_end;
	cb->cb_arg = t;
	cb->cb_sid = of->of_sid;
	st_cb_queue(st, s, cb);
}

void st_offload_end(struct st *st, struct st_offload *of, const struct st_offload_end *end)
{
	struct st_offload_wait *w;

	st_all_lock(st);
	w = of->of_wait;
	of->of_wait = NULL;
	of->of_done = true;
	of->of_end = *end;
	of->of_count = end->oe_count;
	if (of->of_client)
		offload_tell(st, of);
	else
		free(of);
	st_all_unlock(st);
	if (w)
		loop_post(w->ow_loop, &w->ow_msg);
}
