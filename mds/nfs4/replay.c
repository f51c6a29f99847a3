/* SPDX-License-Identifier: Apache-2.0 */
/*
 * replay.c - the durable reply cache: exactly-once semantics across a restart (docs/recovery.md).
 *
 * Every mutation's transaction also puts a row for its session's slot: the sequence id, a hash of
 * the caller and of the request's bytes, and the results of the COMPOUND up to the mutation's own.
 * A session ends with the server's boot. For a request on a session of an earlier boot,
 * op_replay_retry does this:
 *
 *	row matches	The request is the slot's last. The reply has the kept results, byte for
 *			byte. Then the operations behind the mutation run, but only those that read:
 *			there is no client, and nothing keeps two retries apart. Any other operation
 *			gets NFS4ERR_DELAY: it was not done, and the client sends it again in a
 *			session of this boot.
 *	otherwise	Nothing of the request was done. The answer is NFS4ERR_BADSESSION, as for
 *			every new request.
 *
 * A row that says that the mutation had orders is answered when they are done (orders_wait,
 * orders_confirmed).
 */
#include "base/crash.h"
#include "base/hash.h"
#include "mds/nfs4/op.h"
#include "mds/nfs4/credentials.h"
#include "mds/nfs4/op_attr.h"
#include <errno.h>
#include <sodium.h>

#define CHECK_CLOSELY 4096u /* bytes; only the data of a WRITE is longer */

/* Leaves out SEQUENCE's own arguments: they may differ in a retry. */
void op_replay_check(const struct compound *c, uint8_t out[16])
{
	const struct rpc_cred *cr = &c->call->c_cred;
	bool named = cr->rc_flavor == RPC_AUTH_GSS; /* a principal's uid may change */
	uint32_t who[] = {htole32(cr->rc_flavor), htole32(named ? 0 : cr->rc_uid),
			  htole32(c->minor), htole32(c->nops)};
	size_t n = (size_t)(c->in->end - c->replay_args),
	       near = n < CHECK_CLOSELY ? n : CHECK_CLOSELY;
	crypto_generichash_state h;

	crypto_generichash_init(&h, NULL, 0, 16);
	crypto_generichash_update(&h, (const uint8_t *)who, sizeof(who));
	if (named)
		crypto_generichash_update(&h, (const uint8_t *)cr->rc_principal,
					  strlen(cr->rc_principal) + 1);
	crypto_generichash_update(&h, c->replay_args, near);
	if (n > near) { /* a weak hash will do: a client that forges one deceives only itself */
		uint64_t rest[] = {htole64(n), htole64(hash_long(c->replay_args + near, n - near))};

		crypto_generichash_update(&h, (const uint8_t *)rest, sizeof(rest));
	}
	crypto_generichash_final(&h, out, 16);
}

static void sid_keep(uint8_t out[16], const struct st_stateid *s)
{
	uint32_t seqid = htole32(s->seqid);

	memcpy(out, &seqid, 4);
	memcpy(out + 4, s->other, NFS4_OTHER_SIZE);
}

static void sid_load(const uint8_t in[16], struct st_stateid *s)
{
	memcpy(&s->seqid, in, 4);
	s->seqid = le32toh(s->seqid);
	memcpy(s->other, in + 4, NFS4_OTHER_SIZE);
}

int op_replay_put(struct compound *c, struct kv_txn *t)
{
	uint8_t buf[NS_REPLY_HEAD + NS_REPLY_RESULTS_MAX], key[NS_REPLY_KEY];
	size_t from = c->seq_end, before = c->out->x_len - from + c->out->x_payload;
	struct op_after after = {.cur = c->cur, .have_sid = c->have_sid, .sid = c->cur_sid};
	struct xdr_out x = {.x_head = buf + NS_REPLY_HEAD,
			    .x_cap = NS_REPLY_RESULTS_MAX,
			    .x_limit = NS_REPLY_RESULTS_MAX};
	struct ns_reply o = {
		.on_seq = c->replay_seq,
		.on_slots = c->once_slots,
		.on_target = c->once_target,
		.on_limit = (uint32_t)(c->out->x_limit - c->call->c_body),
		.on_at = (uint8_t)(c->at + 1),
		.on_in = (uint32_t)(c->in->p - c->replay_args),
		.on_last = (uint32_t)(c->status_at - 4 - from +
				      c->out->x_payload), /* all splices lie before this result */
		.on_saved = c->saved,
		.on_orders = c->once_orders,
		.on_cur_exp = c->cur ? op_export(c) : 0,
		.on_saved_exp = c->saved ? c->saved_exp->g_id : 0,
	};
	int err;

	/* Longer than any reply that a slot keeps. The client gets it once. A retry of it counts as
	 * a new request. */
	if (before > NS_REPLY_RESULTS_MAX)
		return 0;
	op_reply_copy(c->out, from, xdr_reserve(&x, before));
	c->put(c, &x, &after);
	if (x.bad)
		return 0;
	memcpy(o.on_check, c->replay_check, sizeof(o.on_check));
	o.on_flags = (after.have_sid ? NS_REPLY_HAVE_SID : 0) |
		     (c->saved_have_sid ? NS_REPLY_SAVED_HAVE_SID : 0) |
		     (c->cached_only ? NS_REPLY_CACHED_ONLY : 0);
	o.on_cur = after.cur;
	sid_keep(o.on_cur_sid, &after.sid);
	sid_keep(o.on_saved_sid, &c->saved_sid);
	o.on_results.s_len = x.x_len;
	ns_reply_key(key, c->session->se_id, c->once_slot);
	err = ns_row_put(t, NS_T_REPLY, key, sizeof(key), buf, ns_reply_encode(&o, buf));
	/* A full disk refuses the first write of a mutation. So this mutation wrote nothing itself,
	 * and may be done again. */
	return err == -ENOSPC ? 0 : err;
}

/* ---- a retry ---- */

static nfsstat4 orders_wait(struct compound *c);

static nfsstat4 orders_confirmed(struct compound *c, int err)
{
	/* -EBUSY: an NFSv3 data server may take earlier writes. Wait, as at first. */
	return err == -EBUSY ? orders_wait(c) : NFS4_OK;
}

/* Waits for the orders of the file once_orders. No layout names its stale objects: layouts of
 * earlier boots are fenced where they are known (excl_resolve). */
static nfsstat4 orders_wait(struct compound *c)
{
	uint64_t ino = c->once_orders;
	struct lo_map map;
	struct ns_inode i;
	bool known = !ns_get(c->m->m_ns, op_txn(c), ino, &i) && !lo_map_decode(i.i_blob, &map);

	lo_orders_wait_used(c->m->m_lo, ino, known ? &map : NULL, c->th->mt_loop,
			    op_confirm_ms(c->m), op_wake, c);
	return op_await(c, orders_confirmed);
}

static void replay_put_sequence(struct compound *c, const uint8_t *id, uint32_t slot,
				const struct ns_reply *o)
{
	xdr_patch_u32(c->out, c->status_at, NFS4_OK);
	xdr_put_fixed(c->out, id, NFS4_SESSIONID_SIZE);
	xdr_put_u32(c->out, o->on_seq);
	xdr_put_u32(c->out, slot);
	xdr_put_u32(c->out, o->on_slots - 1);
	xdr_put_u32(c->out, o->on_target - 1);
	xdr_put_u32(c->out, SEQ4_STATUS_RESTART_RECLAIM_NEEDED);
}

/* Finds the export of an earlier boot's file handle among the present ones. A handle that these do
 * not give becomes no handle. */
static const struct exp_grant *once_exp(struct compound *c, uint16_t export, uint64_t *ino)
{
	const struct exp_grant *g = *ino && c->view ? exp_of_handle(c->view, export, *ino) : NULL;

	if (!g || !op_sec_ok(c, g))
		*ino = 0;
	return *ino ? g : NULL;
}

/* Is it known where the earlier file handles are in the present exports, and who the caller is? */
static bool once_known(const struct compound *c, const struct ns_reply *o)
{
	const struct exp_grant *saved, *cur;

	if (!c->view)
		return false;
	saved = o->on_saved ? exp_of_handle(c->view, o->on_saved_exp, o->on_saved) : NULL;
	cur = o->on_cur ? exp_of_handle(c->view, o->on_cur_exp, o->on_cur) : NULL;
	return saved != &exp_unknown && (!cur || op_enterable(c, cur));
}

/* Does what was to be done between the commit and the reply. */
static nfsstat4 once_settle(struct compound *c, const struct ns_reply *o)
{
	if ((c->opnum == OP_ALLOCATE || c->opnum == OP_DEALLOCATE) && c->cur)
		return op_refresh(c, c->cur, true, op_step_ok); /* as when the request came first */
	if (!o->on_orders)
		return NFS4_OK;
	lo_orders_wake(c->m->m_lo);
	c->once_orders = o->on_orders;
	return orders_wait(c);
}

/* Goes on as if the mutation had just been done: op_end closes its result, and the operations
 * behind it run. */
static nfsstat4 once_again(struct compound *c, const struct ns_reply *o)
{
	const uint8_t *results = o->on_results.s_data;
	uint8_t *p = xdr_reserve(c->out, o->on_results.s_len);
	const struct exp_grant *g;
	uint32_t opnum;

	if (!p)
		return NFS4ERR_SERVERFAULT;
	memcpy(p, results, o->on_results.s_len);
	memcpy(&opnum, results + o->on_last, 4);
	c->opnum = be32toh(opnum);
	c->status_at = (size_t)(p - c->out->x_head) + o->on_last + 4;
	c->at = o->on_at - 1u;
	c->in->p = c->replay_args + o->on_in;
	c->cur = o->on_cur;
	c->saved = o->on_saved;
	c->saved_exp = once_exp(c, o->on_saved_exp, &c->saved);
	g = once_exp(c, o->on_cur_exp, &c->cur);
	if (g)
		op_enter(c, g);
	c->have_sid = o->on_flags & NS_REPLY_HAVE_SID;
	c->saved_have_sid = o->on_flags & NS_REPLY_SAVED_HAVE_SID;
	c->cached_only = o->on_flags & NS_REPLY_CACHED_ONLY;
	sid_load(o->on_cur_sid, &c->cur_sid);
	sid_load(o->on_saved_sid, &c->saved_sid);
	crash_point("once-again");
	c->again = true;
	c->client = &c->m->m_gone;
	metric_add(c->m->m_once, 1);
	return once_settle(c, o);
}

bool op_replay_kept(struct mds *m, const uint8_t *id, uint32_t seq, uint32_t slot)
{
	struct ns_reply o;
	struct kv_txn *t;
	uint32_t boot;
	bool kept;

	memcpy(&boot, id, 4);
	if (be32toh(boot) >= (uint32_t)m->m_st->st_boot || kv_read_begin(m->m_kv, &t))
		return false;
	kept = !ns_reply_get(t, id, slot, &o) && o.on_seq == seq;
	kv_read_end(t);
	return kept;
}

nfsstat4 op_replay_retry(struct compound *c, const uint8_t *id, uint32_t seq, uint32_t slot)
{
	struct ns_reply o;
	uint8_t check[16];
	uint32_t boot;
	size_t limit;

	memcpy(&boot, id, 4);
	if (be32toh(boot) >= (uint32_t)c->m->m_st->st_boot)
		return NFS4ERR_BADSESSION;
	if (ns_reply_get(op_txn(c), id, slot, &o) || o.on_seq != seq || o.on_at > c->nops ||
	    o.on_in > xdr_left(c->in))
		return NFS4ERR_BADSESSION;
	op_replay_check(c, check);
	if (memcmp(check, o.on_check, sizeof(check)) != 0)
		return NFS4ERR_BADSESSION;
	if (!once_known(c, &o))
		return NFS4ERR_DELAY;
	limit = c->call->c_body + o.on_limit;
	if (limit < c->out->x_limit)
		c->out->x_limit = limit;
	replay_put_sequence(c, id, slot, &o);
	return once_again(c, &o);
}
