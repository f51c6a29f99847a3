/* SPDX-License-Identifier: Apache-2.0 */
/* back.c - answers calls of the server (RFC 8881 section 20). Each slot keeps its last reply, for a
 * server that retries. */
#include "client/back.h"
#include "client/layout.h"
#include "client/res.h"
#include "client/ring.h"
#include "client/session.h"
#include "client/weft_call.h"

enum {
	CB_NOTIFY = 6,
	CB_PUSH_DELEG = 7,
	CB_RECALLABLE_OBJ_AVAIL = 9,
	CB_RECALL_SLOT = 10,
	CB_WANTS_CANCELLED = 12
};
#define CB_MAX_OPS 8u

void wc_back_reset(struct weft *w)
{
	for (unsigned i = 0; i < WC_CB_SLOTS; i++)
		w->w_cb[i].cs_seq = w->w_cb[i].cs_len = 0;
}

/* Handles CB_SEQUENCE (section 20.9). Sets *again if this is a retry whose reply the slot has. */
static uint32_t back_sequence(struct weft *w, struct xdr_in *x, struct xdr_out *out,
			      struct wc_cb_slot **slot, bool *again)
{
	const uint8_t *id = xdr_get_fixed(x, NFS4_SESSIONID_SIZE);
	uint32_t seq = xdr_get_u32(x), at = xdr_get_u32(x), lists;

	xdr_get_u32(x);
	xdr_get_bool(x);
	lists = xdr_get_u32(x);
	for (uint32_t i = 0; i < lists && !x->bad; i++) {
		uint32_t n;

		xdr_get_fixed(x, NFS4_SESSIONID_SIZE);
		n = xdr_get_u32(x);
		xdr_take(x, (size_t)n * 8);
	}
	if (x->bad)
		return NFS4ERR_BADXDR;
	if (!w->w_have_session || memcmp(id, w->w_session, NFS4_SESSIONID_SIZE))
		return NFS4ERR_BADSESSION;
	if (at >= WC_CB_SLOTS)
		return NFS4ERR_BADSLOT;
	*slot = &w->w_cb[at];
	if (seq == (*slot)->cs_seq && (*slot)->cs_len) {
		*again = true;
		return NFS4_OK;
	}
	if (seq != (*slot)->cs_seq + 1) {
		*slot = NULL;
		return NFS4ERR_SEQ_MISORDERED;
	}
	(*slot)->cs_seq = seq;
	(*slot)->cs_len = 0;
	xdr_put_u32(out, OP_CB_SEQUENCE);
	xdr_put_u32(out, NFS4_OK);
	xdr_put_fixed(out, id, NFS4_SESSIONID_SIZE);
	xdr_put_u32(out, seq);
	xdr_put_u32(out, at);
	xdr_put_u32(out, WC_CB_SLOTS - 1);
	xdr_put_u32(out, WC_CB_SLOTS - 1);
	return NFS4_OK;
}

static uint32_t back_notify_device(struct xdr_in *x)
{
	uint32_t n = xdr_get_u32(x), mask[3], len;

	for (uint32_t i = 0; i < n && !x->bad; i++) {
		wc_get_bits(x, mask);
		xdr_get_opaque(x, UINT32_MAX, &len);
	}
	return NFS4_OK;
}

static uint32_t back_notify_lock(struct xdr_in *x)
{
	uint32_t n;

	xdr_get_opaque(x, NFS4_FHSIZE, &n);
	xdr_get_u64(x);
	xdr_get_opaque(x, NFS4_OPAQUE_LIMIT, &n);
	return NFS4_OK;
}

static uint32_t back_op(struct weft *w, uint32_t op, struct xdr_in *x)
{
	uint32_t mask[3], n;

	switch (op) {
	case OP_CB_RECALL_ANY:
		xdr_get_u32(x);
		wc_get_bits(x, mask);
		return NFS4_OK; /* there is nothing to return */
	case CB_RECALL_SLOT:
		n = xdr_get_u32(x);
		if (!x->bad && n < w->w_target)
			w->w_target = n;
		return NFS4_OK;
	case CB_WANTS_CANCELLED:
		xdr_get_bool(x);
		xdr_get_bool(x);
		return NFS4_OK;
	case OP_CB_NOTIFY_DEVICEID:
		return back_notify_device(x);
	case OP_CB_NOTIFY_LOCK:
		return back_notify_lock(x);
	case OP_CB_LAYOUTRECALL:
		return wc_lo_recall(w, x);
	case OP_CB_RECALL:
		return NFS4ERR_BAD_STATEID;
	case OP_CB_GETATTR:
		return NFS4ERR_BADHANDLE;
	case CB_NOTIFY:
	case CB_PUSH_DELEG:
	case CB_RECALLABLE_OBJ_AVAIL:
	case OP_CB_OFFLOAD:
		return NFS4ERR_NOTSUPP;
	default:
		return NFS4ERR_OP_ILLEGAL;
	}
}

static uint32_t back_one(struct weft *w, uint32_t op, struct xdr_in *x, struct xdr_out *out)
{
	uint32_t status = back_op(w, op, x);

	if (x->bad)
		status = NFS4ERR_BADXDR;
	xdr_put_u32(out, status == NFS4ERR_OP_ILLEGAL ? (uint32_t)OP_ILLEGAL : op);
	xdr_put_u32(out, status);
	return status;
}

bool wc_back_compound(struct weft *w, struct xdr_in *x, struct xdr_out *out)
{
	struct wc_cb_slot *slot = NULL;
	uint32_t n, minor, nops, status = NFS4_OK, done = 0;
	size_t begin = out->x_len, at;
	const uint8_t *tag = xdr_get_opaque(x, NFS4_OPAQUE_LIMIT, &n);
	bool again = false;

	minor = xdr_get_u32(x);
	xdr_get_u32(x);
	nops = xdr_get_u32(x);
	if (x->bad)
		return false;
	w->w_callbacks++;
	xdr_put_u32(out, 0);
	xdr_put_opaque(out, n ? tag : (const uint8_t *)"", n);
	at = out->x_len;
	xdr_put_u32(out, 0);
	if (minor != w->w_minor)
		status = NFS4ERR_MINOR_VERS_MISMATCH;
	else if (nops > CB_MAX_OPS)
		status = NFS4ERR_TOO_MANY_OPS;
	for (; status == NFS4_OK && done < nops && !again; done++) {
		uint32_t op = xdr_get_u32(x);

		if (x->bad) {
			status = NFS4ERR_BADXDR;
			break;
		}
		if (done == 0 && op == OP_CB_SEQUENCE) {
			status = back_sequence(w, x, out, &slot, &again);
			if (status == NFS4_OK)
				continue;
		} else if (done == 0 || op == OP_CB_SEQUENCE) {
			status = done ? NFS4ERR_SEQUENCE_POS : NFS4ERR_OP_NOT_IN_SESSION;
		} else {
			status = back_one(w, op, x, out);
			continue;
		}
		xdr_put_u32(out, op);
		xdr_put_u32(out, status);
	}
	xdr_patch_u32(out, begin, status);
	xdr_patch_u32(out, at, done);
	if (again) {
		xdr_truncate(out, begin);
		xdr_put_fixed(out, slot->cs_reply, slot->cs_len);
	} else if (slot && !out->bad && out->x_len - begin <= sizeof(slot->cs_reply)) {
		slot->cs_len = (uint32_t)(out->x_len - begin);
		memcpy(slot->cs_reply, out->x_head + begin, slot->cs_len);
	}
	return true;
}

static void back_dispatch(struct rpc_call *call, void *arg)
{
	struct weft *w = rpc_conn_priv(call->c_conn);

	(void)arg;
	if (call->c_proc == 0 || (w && wc_back_compound(w, &call->c_args, &call->c_reply)))
		rpc_reply(call);
	else
		rpc_reply_error(call, RPC_A_GARBAGE_ARGS);
}

static void back_opened(struct rpc_conn *conn, void *arg)
{
	(void)arg;
	wc_ring_of(rpc_conn_loop(conn))->r_conns++;
}

static void back_closed(struct rpc_conn *conn, void *arg)
{
	(void)arg;
	wc_ring_of(rpc_conn_loop(conn))->r_conns--;
}

static const struct rpc_program back_programs[] = {
	{NFS4_CALLBACK_DEFAULT, 1, 1, 2, back_dispatch, NULL}};
const struct rpc_service wc_back_service = {
	.rs_progs = back_programs,
	.rs_nprogs = 1,
	.rs_max_record = WC_MAX_IO + 65536, /* replies to our calls as well */
	.rs_max_reply = WC_CB_BYTES,
	.rs_opened = back_opened,
	.rs_closed = back_closed,
};
